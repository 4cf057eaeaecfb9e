/*
 * Which stripes to ask for a fetch (a range of check blocks of one segment): a pure function over what is known of the
 * lanes, so that it can be tested and simulated without network or clock.
 *
 * The policy: whichever lanes make the wanted packets available soonest, by their forecasts. Where all links are
 * equally fast that is all n of them in turn; a packet that needs no decoding is preferred while it is hardly later,
 * and a part of a segment comes from its own stripe unless k others are much sooner. Where a lane is gone, late or bad,
 * as few others as the code needs are asked in its place. Late is not lost: a lane that is asked stays asked.
 */
#ifndef ECFS_OBJECT_SCHEDULER_H
#define ECFS_OBJECT_SCHEDULER_H

#include "codec/codec.h"

/* One stripe of the object, from one fetch's point of view. */
typedef struct EcfsLane {
    bool stored;         /* the catalog knows an endpoint for it */
    bool arrived;        /* all its blocks are here and verified */
    bool asked;          /* and neither arrived nor failed yet */
    bool late;           /* asked, and shows no byte for longer than its stall time */
    bool failed;         /* for good in this fetch: missing, damaged, or tried often enough */
    bool resting;        /* failed just now, and may be asked again after a pause */
    bool down;           /* its endpoint is down: asked only when nothing else is left */
    bool avoided;        /* it stalls elsewhere right now: asked only when it must be */
    int64_t forecast_us; /* until its blocks would be here if asked now */
} EcfsLane;

typedef enum EcfsSchedule {
    ECFS_SCHEDULE_READY,      /* the wanted packets are determined by what has arrived */
    ECFS_SCHEDULE_WAIT,       /* what is asked suffices (after asking the lanes in `ask`) */
    ECFS_SCHEDULE_IMPOSSIBLE, /* not even with everything that could still arrive */
} EcfsSchedule;

/**
 * @wanted: n flags, data packets
 * @lanes:  n
 * @ask:    n flags, set: lanes to ask now (may be none)
 *
 * Thread-safe, allocates nothing.
 */
EcfsSchedule ecfs_schedule (const EcfsCodec *codec, const bool *wanted, const EcfsLane *lanes, bool *ask);

/**
 * How long a lane may owe bytes without showing one before it counts as stalled: max (4 round trips, 8 mean gaps, 200
 * ms); a second where the round trip is not known yet.
 */
int64_t ecfs_stall_us (int64_t rtt_us, int64_t mean_gap_us);

#endif
