/*
 * Reading on a simulated clock: clients read objects from modelled servers, and everything that decides is the
 * program's own (scheduler, lanes, estimators, codecs, placement). What decisions are told is measured from what the
 * servers delivered, as in a reader, never taken from the model.
 *
 * A server answers each request after its latency, jitter and perhaps a delay of that request alone. What is ready is
 * sent at once, of each client one packet after the other in the order of asking; a server's rate is shared equally by
 * the clients that it sends to, and a client's line by the servers that send to it. A rate may change at given moments
 * (0 is a stall), and servers and whole zones may stall at random. Endpoints that are silent for longer than ever are
 * taken for down, as by the endpoint's stall clock, until they send again; breaker and probes are not modelled.
 *
 * The same model gives the same result: all chance comes from the seed.
 */
#ifndef ECFS_SIM_SIM_H
#define ECFS_SIM_SIM_H

#include "object/scheduler.h"

#define ECFS_SIM_NEVER INT64_MAX

typedef struct EcfsSimServer {
    double bytes_per_s;
    int64_t latency_us;
    int64_t jitter_us;    /* at most, evenly spread */
    double delayed_share; /* of requests */
    int64_t delay_us;     /* of these */
    int64_t changes_us;   /* when it gets … ; ECFS_SIM_NEVER */
    double later_bytes_per_s;
    int64_t until_us;        /* … and until when */
    int64_t stalls_every_us; /* on average, at random; 0: never */
    int64_t stalls_for_us;   /* on average */
    unsigned zone;
    bool removed; /* it holds nothing */
} EcfsSimServer;

/* All servers of a zone stall at once. */
typedef struct EcfsSimZone {
    int64_t stalls_every_us; /* on average, at random; 0: never */
    int64_t stalls_for_us;
} EcfsSimZone;

typedef struct EcfsSimModel {
    const char *code; /* as for ecfs_codec_new_modelled () */
    EcfsReadPolicy policy;
    uint64_t n_segments; /* of each object */
    uint64_t packet_bytes;
    unsigned window;              /* segments that are read ahead; 0: as a reader does */
    uint64_t memory_bytes;        /* of a reader, for what is read ahead; 0: no bound */
    double reader_segments_per_s; /* how fast they are consumed; 0: at once */
    double client_bytes_per_s;    /* a client's line; 0: no limit */
    double decode_bytes_per_s;    /* packets that decoding goes over, beside the next segments' way; 0: takes no time */
    unsigned n_clients;
    uint64_t n_objects; /* read by the clients, each in turn */
    bool place_by_lot;  /* by ecfs_place (); else stripe i of object o is at server i + o */
    bool spread;        /* each segment's packets are at the servers behind those of the one before */
    bool known;         /* clients begin with estimates of an earlier time */
    uint32_t seed;
    size_t n_servers, n_zones;
    EcfsSimServer *servers; /* borrowed, like zones */
    const EcfsSimZone *zones;
    int64_t limit_us;    /* of simulated time */
    unsigned *ret_asked; /* n_servers, how many packets each was asked for; may be NULL */
} EcfsSimModel;

typedef struct EcfsSimResult {
    int64_t us;              /* until all is read */
    int64_t longest_wait_us; /* of a reader, for one segment */
    int64_t object_p50_us, object_p95_us;
    uint64_t n_objects;      /* that were read */
    uint64_t n_failed;       /* that could not be */
    uint64_t received_bytes; /* in packets that came whole */
    uint64_t extra_bytes;    /* that came and were not needed */
    uint64_t n_packets;      /* that came whole */
    unsigned n_hedges;
    unsigned most_running; /* packets at once, of one reader */
    uint64_t n_events;
    bool timed_out; /* the limit came first */
} EcfsSimResult;

/** A model of one client that reads @n_segments of 2 MiB with rs:8+3 and the default policy; servers are to be given.
 */
void ecfs_sim_model_init (EcfsSimModel *self);

/** A server of 10 MB/s at 1 ms. */
EcfsSimServer ecfs_sim_server (void);

/** Runs until all is read. EINVAL and the like for the model's code. */
bool ecfs_sim_run (const EcfsSimModel *model, EcfsSimResult *ret_result, GError **error);

#endif
