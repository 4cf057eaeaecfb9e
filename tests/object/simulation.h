/*
 * Sequential reading of one object on a simulated clock: the real scheduler decides, the lanes are a model. What the
 * scheduler is told of a lane is measured from what the lane delivered, as a reader does, never taken from the model.
 *
 * A lane answers each request after its latency, jitter and perhaps a delay of that request alone, and then sends at
 * its rate, one piece after the other in the order of asking as far as they are ready. From a given moment on it has
 * another rate; 0 is a stall.
 */
#ifndef TESTS_OBJECT_SIMULATION_H
#define TESTS_OBJECT_SIMULATION_H

#include "object/scheduler.h"

#define SIMULATION_NEVER INT64_MAX

typedef struct ModelLane {
    double bytes_per_s;
    int64_t latency_us;
    int64_t jitter_us;    /* at most, evenly spread */
    double delayed_share; /* of requests */
    int64_t delay_us;     /* of these */
    int64_t changes_us;   /* when it gets … ; SIMULATION_NEVER */
    double later_bytes_per_s;
    int64_t until_us; /* … and until when */
    bool removed;     /* the catalog knows no endpoint for it */
} ModelLane;

typedef struct Model {
    const char *code;
    EcfsReadPolicy policy;
    uint64_t n_segments;
    uint64_t piece_bytes;
    unsigned window;              /* segments that are read ahead */
    double reader_segments_per_s; /* how fast they are consumed; 0: at once */
    guint32 seed;
    ModelLane lanes[ECFS_CODEC_MAX_N];
} Model;

typedef struct Simulated {
    int64_t us;              /* until all is read */
    int64_t longest_wait_us; /* of the reader, for one segment */
    uint64_t received_bytes, extra_bytes;
    unsigned n_hedges;
    unsigned most_running;              /* pieces at once */
    unsigned n_asked[ECFS_CODEC_MAX_N]; /* of each lane */
    bool impossible;                    /* it ended at a segment that cannot be read */
} Simulated;

/** The default policy, n_segments of 2 MiB with RS 8+3, a window of 16, and lanes of 10 MB/s at 1 ms. */
void model_init (Model *self);
/** Runs until all is read, or ten simulated minutes have passed, which fails the test. */
Simulated simulate (const Model *model);

#endif
