/*
 * The inside of an endpoint, shared by endpoint.c (face, life cycle, health), slot.c (connections, keeper), driver.c
 * (what drivers ask of a slot), request.c (requests and their callbacks), silence.c (how long is too long),
 * distribution.c and meter.c (how long and how fast it usually is), breaker.c (who is down) and refusal.c (who takes
 * nothing) and month.c (what an account allows in a month).
 *
 * Slots:
 *
 *   state       connection  moved on by
 *   IDLE        none        the core, when there is work and no other slot takes it, or to probe → WANTED
 *   WANTED      none        its thread → CONNECTING
 *   CONNECTING  being made  its thread → SERVING, or IDLE on failure
 *   SERVING     yes         its thread, when serve () returns → IDLE
 *
 * Down means: no request is accepted but urgent ones, and every connection is told to end. On trial there is one
 * connection, with one request at a time that is not idle. The keeper is the thread that calls back for requests that
 * end without a connection (cancelled in the queue, endpoint down), watches the stall clocks and asks for probes.
 */
#ifndef ECFS_ENDPOINT_CORE_CORE_H
#define ECFS_ENDPOINT_CORE_CORE_H

#include "endpoint/core/driver.h"
#include "endpoint/core/estimate.h"
#include "util/text.h"

#define MAX_CONNECTIONS    16
#define ECFS_PROBLEM_MAX   4000 /* bytes of what a driver says of a failure, words of the server included */
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

    /* Whose turn it is to use the connection: its thread's, but while that waits for events, ecfs_slot_poll (). Others
     * only ever try to have it, as they may hold locks that the thread's callbacks take. */
    EcfsMutex turn;
    void *connection; /* guarded by turn */
    StallClock clock; /* the same, but for what is atomic */

    /* guarded by the endpoint's lock */
    SlotState state;
    SlotTrust trust;
    bool hungry;          /* its last take found nothing: it wants to be told */
    bool stalled;         /* its clock ran out; the thread may be stuck */
    GError *broken;       /* why the connection has to end */
    GQueue active;        /* EcfsStream by link */
    unsigned n_idle_logs; /* of these */
    EcfsStream *identity; /* the check of the marker that it is to make before anything else */
    bool doubted;         /* that check, waiting or under way, is not the first of the connection */
    char *last_read;      /* name, so that consecutive reads of a file meet its open handle */
    int64_t retry_us;     /* not connecting before, after a failure while other slots worked */
    int64_t backoff_us;
};

#define ECFS_OWED_PLENTY 1e15 /* a writer that has more keeps as much outstanding as its connection takes */

typedef enum BreakerState { BREAKER_UP, BREAKER_DOWN, BREAKER_TRIAL } BreakerState;

/* Whether an endpoint is asked; breaker.c has the states. */
typedef struct EcfsBreaker {
    BreakerState state;
    bool at_work;          /* DOWN: it failed with requests under way */
    unsigned credit;       /* TRIAL */
    unsigned n_losses;     /* connections lost at work since a request last got anywhere */
    int64_t down_since_us; /* DOWN, and the last time it was */
    int64_t backoff_us;    /* 0: it was never down */
    int64_t next_probe_us; /* DOWN */
    int64_t up_us;         /* when it left DOWN or TRIAL last */
} EcfsBreaker;

/* The last write that failed for a reason of the endpoint's own. */
typedef struct Refusal {
    int code; /* 0: none, it takes what it is given */
    char *text;
    bool hidden;                /* no space figure tells when that is over */
    bool doubted;               /* the last figure that said there is room was wrong: so is the next that does */
    int64_t failed_us;          /* only figures that were asked for later know of it; 0: no write failed */
    int64_t pause_us, retry_us; /* until it is tried again, where no figure decides */
    int64_t roomy_us;           /* when a figure contradicted the failure before; 0: none did */
    uint64_t needs_bytes;       /* what it refused, and a little */
} Refusal;

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
    uint64_t capacity; /* bytes that the archive may have here; 0: all that there are */
    EcfsTariff tariff;
    EcfsSlot *slots;
    pthread_t keeper;  /* the one that starts and stops */
    int64_t retain_us; /* ECFS_RETAIN_NOT, ECFS_RETAIN_ALWAYS, or how long what is to go stays */
    bool retain_told;  /* its option says which; else it may be found out */
    bool (*vouch) (void *user, const EcfsMarker *marker); /* set before start, as the next; NULL: any will do */
    void *vouch_user;

    atomic_bool retains; /* nothing is removed or replaced; also found out by looking at what is there */

    atomic_llong keeper_wakes_us; /* when it looks at the clocks next, unless it is woken */

    /* guarded by lock */
    bool started;
    bool retired; /* it is down for good */
    bool stopping;
    bool stopped; /* its threads are waited for, or have ended */
    bool slots_joined;
    EcfsMarker expected;
    uint64_t n_marks; /* files in "markers/", as far as they were seen; see marks.c */
    GQueue queue;     /* requests that wait for a slot */
    GQueue ended;     /* requests that wait for the keeper */
    EcfsBreaker breaker;
    int64_t down_since_s; /* as in EcfsEndpointHealth */
    char *reason;
    bool unmarked; /* when looked at last, there was no marker */
    int64_t last_attempt_us;
    int64_t all_busy_us; /* since when no slot is free for a probe that is due; 0: one was, at the last */
    unsigned capabilities;
    char *description; /* NULL: the driver gave none */
    EcfsMeter read_meter;
    EcfsMeter write_meter;
    EcfsEndpointCounts counts;
    uint64_t queued_bytes;
    unsigned n_feeding;      /* writes whose source has more */
    uint64_t lent_bytes;     /* of writes: sent and not acknowledged */
    uint64_t logged_bytes;   /* of logs: pulled and not durable */
    Distribution latency;    /* µs to the first byte of an answer, where nothing else was under way */
    EcfsEndpointSpace space; /* as told last, … */
    uint64_t space_written;  /* … when this had been written in all */
    bool used_known;         /* what the archive has here, … */
    uint64_t used;           /* … as it told last, … */
    uint64_t used_written;   /* … when this had been written in all */
    EcfsMonthUse month_used; /* by all processes this month, … */
    EcfsMonthUse month_sent; /* … when this one had this in all */
    bool is_read_anyway;     /* although that is used up */
    Silences silences[ECFS_N_OWES];
    Refusal refusal;
};

/* slot.c */
void *ecfs_slot_main (void *slot);
void *ecfs_slot_watchdog (void *endpoint);
/** Finds a slot for the head of the queue: tells a hungry one, or has one connect. */
void ecfs_core_kick_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock);
/** A slot that has nothing to do and could begin @request, which nothing is queued before, as soon as it has its turn;
 * NULL: none. Those that are at work get requests from the queue, which spreads them over all that have room. */
EcfsSlot *ecfs_core_idle_slot_locked (EcfsEndpoint *self, const EcfsStream *request) ECFS_REQUIRES (self->lock);
/** Gives it to that slot, whose turn is the caller's. */
void ecfs_core_give_locked (EcfsEndpoint *self, EcfsSlot *slot, EcfsStream *request) ECFS_REQUIRES (self->lock);
/** Takes the endpoint down: fails the queue, ends connections, plans a probe. */
void ecfs_core_down_locked (EcfsEndpoint *self, const char *reason) ECFS_REQUIRES (self->lock);
/** A probe succeeded, or nothing was wrong. */
void ecfs_core_up_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock);
/** Work got somewhere; see ecfs_breaker_prove (). */
void ecfs_core_prove_locked (EcfsEndpoint *self, unsigned credit, int64_t now_us) ECFS_REQUIRES (self->lock);
/** Has a slot look at the marker once more: something says that it may be gone. */
void ecfs_core_doubt_locked (EcfsEndpoint *self, EcfsSlot *slot) ECFS_REQUIRES (self->lock);
static inline bool ecfs_core_down (const EcfsEndpoint *self)
{
    return self->breaker.state == BREAKER_DOWN;
}
bool ecfs_core_connected_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock);
/** A request may be queued although the endpoint is down; starts the attempt when none is under way. */
bool ecfs_core_attempt_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock);

/* request.c */
EcfsStream *ecfs_request_new (EcfsEndpoint *self, EcfsRequestKind kind, const char *name);
/** Moves a request that no driver has to the keeper, to end with @error (taken). */
void ecfs_request_end_locked (EcfsEndpoint *self, EcfsStream *request, GError *error) ECFS_REQUIRES (self->lock);
/** The root's own marker, whatever other markers there are. */
void ecfs_request_examine (EcfsEndpoint *self, void (*done) (void *user, const EcfsMarker *marker, const GError *error),
                           void *user);
void ecfs_request_mark (EcfsEndpoint *self, const EcfsMarker *marker, bool create, EcfsEndpointDone done, void *user);
/** Calls back and drops the core's reference; no lock held. @error is borrowed. */
void ecfs_request_deliver (EcfsStream *request, uint64_t value, const GError *error);

/** Whether some connection owes an answer for longer than is usual here. */
bool ecfs_core_suspect_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock);

/* marks.c */
/** Whether the newest marker is looked for in "markers/". */
bool ecfs_core_has_marks (EcfsEndpoint *self);
/** As ecfs_endpoint_examine () and ecfs_endpoint_mark (), where markers are files of their own. */
void ecfs_marks_examine (EcfsEndpoint *self, void (*done) (void *user, const EcfsMarker *marker, const GError *error),
                         void *user);
void ecfs_marks_add (EcfsEndpoint *self, const EcfsMarker *marker, bool create, EcfsEndpointDone done, void *user);

/* endpoint.c */
EcfsEndpoint *ecfs_endpoint_ref (EcfsEndpoint *self);
void ecfs_endpoint_unref (EcfsEndpoint *self);

/* breaker.c */
/** Down, or down still. @at_work: with requests under way. */
void ecfs_breaker_fail (EcfsBreaker *self, bool at_work, int64_t now_us);
/** A probe succeeded. */
void ecfs_breaker_pass (EcfsBreaker *self, int64_t now_us);
/** Work got somewhere: bytes moved, which are one @credit, or a request was served. True: that ended its trial. */
bool ecfs_breaker_prove (EcfsBreaker *self, unsigned credit, int64_t now_us);
/** A connection was lost with requests under way. True: once too often. */
bool ecfs_breaker_lose (EcfsBreaker *self);

#define ECFS_CREDIT_MOVED  1
#define ECFS_CREDIT_SERVED 4

/* refusal.c */
/** Whether new files should go elsewhere. */
bool ecfs_core_refuses_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock);
/** The last figure of free space less what was written since; means something where space.told. */
uint64_t ecfs_core_free_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock);
/** Whether what it refused last did not fit. */
bool ecfs_core_full_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock);
/** A write ended; @error NULL: it is stored. Or a log ended with an error. */
void ecfs_core_note_write_locked (EcfsEndpoint *self, const EcfsStream *request, const GError *error)
    ECFS_REQUIRES (self->lock);
/** It took @bytes just now. */
void ecfs_core_note_stored_locked (EcfsEndpoint *self, uint64_t bytes) ECFS_REQUIRES (self->lock);
/** What it told of its space, answering @request. */
void ecfs_core_note_space_locked (EcfsEndpoint *self, const EcfsStream *request, const EcfsEndpointSpace *space)
    ECFS_REQUIRES (self->lock);

/* month.c */
bool ecfs_core_parse_tariff (const EcfsEndpointSpec *spec, EcfsTariff *ret_tariff, GError **error);
void ecfs_core_month_locked (const EcfsEndpoint *self, EcfsMonth *ret_month) ECFS_REQUIRES (self->lock);
/** What is used up of the month, for people; g_free (). NULL: nothing is. */
char *ecfs_core_spent_text_locked (const EcfsEndpoint *self) ECFS_REQUIRES (self->lock);

#endif
