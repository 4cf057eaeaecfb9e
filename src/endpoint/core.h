/*
 * The inside of an endpoint, shared by endpoint.c (face, life cycle, health), slot.c (connections, keeper) and
 * request.c (requests and their callbacks).
 *
 * Slots:
 *
 *   state       connection  moved on by
 *   IDLE        none        the core, when there is work and no other slot takes it, or to probe → WANTED
 *   WANTED      none        its thread → CONNECTING
 *   CONNECTING  being made  its thread → SERVING, or IDLE on failure
 *   SERVING     yes         its thread, when serve () returns → IDLE
 *
 * Down means: no request is accepted but urgent ones, and every connection is told to end. The keeper is the thread
 * that calls back for requests that end without a connection (cancelled in the queue, endpoint down), watches the
 * stall clocks and asks for probes.
 */
#ifndef ECFS_ENDPOINT_CORE_H
#define ECFS_ENDPOINT_CORE_H

#include "endpoint/endpoint_priv.h"

#define MAX_CONNECTIONS    16
#define BACKOFF_MIN_US     (G_USEC_PER_SEC)
#define BACKOFF_MAX_US     (30 * G_USEC_PER_SEC)
#define URGENT_INTERVAL_US (G_USEC_PER_SEC)

typedef enum SlotState {
    SLOT_IDLE,
    SLOT_WANTED,
    SLOT_CONNECTING,
    SLOT_SERVING,
} SlotState;

typedef enum SlotTrust {
    TRUST_NONE,    /* the marker has not been read yet */
    TRUST_FULL,    /* it is ours, or nothing is expected of it */
    TRUST_MARKERS, /* it is not ours: only examine and mark requests are served */
} SlotTrust;

struct EcfsSlot {
    EcfsEndpoint *endpoint; /* immutable */
    int event_fd;           /* immutable */
    pthread_t thread;       /* the one that starts and stops */

    atomic_llong owed_since_us; /* the stall clock; 0: stopped */

    /* guarded by the endpoint's lock */
    SlotState state;
    SlotTrust trust;
    bool hungry;    /* its last take found nothing: it wants to be told */
    bool stalled;   /* its clock ran out; the thread may be stuck */
    GError *broken; /* why the connection has to end */
    GQueue active;  /* EcfsStream by link */
    EcfsStream *identity;
    char *last_read;  /* name, so that consecutive reads of a file meet its open handle */
    int64_t retry_us; /* not connecting before, after a failure while other slots worked */
    int64_t backoff_us;
};

/* Bytes per second, smoothed over the time in which there was something to move. */
typedef struct Meter {
    double rate;
    uint64_t total;
    unsigned n_busy;
    int64_t window_start_us;
    uint64_t window_bytes;
} Meter;

struct EcfsEndpoint {
    EcfsMutex lock;
    EcfsCond slots_cond;  /* a slot is WANTED, or stop */
    EcfsCond keeper_cond; /* something for the keeper */
    atomic_uint n_refs;   /* the owner's and one per stream */

    /* immutable after new */
    const EcfsDriver *driver;
    void *config;
    char *name;
    char *url;
    int64_t stall_timeout_us;
    int64_t connect_timeout_us;
    unsigned n_slots;
    EcfsSlot *slots;
    pthread_t keeper; /* the one that starts and stops */

    /* guarded by lock */
    bool started;
    bool stopping;
    bool slots_joined;
    EcfsMarker expected;
    GQueue queue; /* requests that wait for a slot */
    GQueue ended; /* requests that wait for the keeper */
    bool down;
    char *reason;
    int64_t down_since_us;
    int64_t backoff_us;
    int64_t next_probe_us;
    int64_t last_attempt_us;
    unsigned capabilities;
    Meter read_meter;
    Meter write_meter;
    uint64_t queued_bytes;
    int64_t rtt_us;
};

/* slot.c */
void *ecfs_slot_main (void *slot);
void *ecfs_keeper_main (void *endpoint);
void ecfs_slot_notify (EcfsSlot *slot);
/** Finds a slot for the head of the queue: tells a hungry one, or has one connect. */
void ecfs_core_kick_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock);
/** Takes the endpoint down: fails the queue, ends connections, plans a probe. */
void ecfs_core_down_locked (EcfsEndpoint *self, const char *reason) ECFS_REQUIRES (self->lock);
void ecfs_core_up_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock);
bool ecfs_core_connected_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock);
/** A request may be queued although the endpoint is down; starts the attempt when none is under way. */
bool ecfs_core_attempt_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock);

/* request.c */
EcfsStream *ecfs_request_new (EcfsEndpoint *self, EcfsRequestKind kind, const char *name);
/** Hands a request to the endpoint, which takes the caller's reference. */
void ecfs_request_submit (EcfsStream *request);
/** Moves a request that no driver has to the keeper, to end with @error (taken). */
void ecfs_request_end_locked (EcfsEndpoint *self, EcfsStream *request, GError *error) ECFS_REQUIRES (self->lock);
/** Calls back and drops the core's reference; no lock held. @error is borrowed. */
void ecfs_request_deliver (EcfsStream *request, uint64_t value, const GError *error);
uint64_t ecfs_request_range_bytes (const EcfsStream *request);

/* endpoint.c */
EcfsEndpoint *ecfs_endpoint_ref (EcfsEndpoint *self);
void ecfs_endpoint_unref (EcfsEndpoint *self);

/* meter.c: @now_us is the monotonic clock */
void ecfs_meter_begin (Meter *self, int64_t now_us);
void ecfs_meter_add (Meter *self, uint64_t bytes, int64_t now_us);
void ecfs_meter_end (Meter *self, int64_t now_us);

#endif
