#include "object/scheduler.h"

#include <string.h>

#define STALL_MIN_US     200000
#define STALL_UNKNOWN_US 1000000
#define DECODE_US        5000  /* what data packets may be later than parity: decoding costs a turn of a worker */
#define TRAFFIC_US       10000 /* what a packet more than needed may save at least */
#define DOWN_US          1e12  /* so much more than any forecast that a lane that is down is the last to ask */

int64_t ecfs_stall_us (int64_t rtt_us, int64_t mean_gap_us)
{
    if (rtt_us == 0)
        return STALL_UNKNOWN_US;
    return MAX (MAX (4 * rtt_us, 8 * mean_gap_us), STALL_MIN_US);
}

static bool askable (const EcfsLane *lane, bool desperate)
{
    return lane->stored && !lane->arrived && !lane->asked && !lane->failed && !lane->resting &&
           (desperate || (!lane->down && !lane->avoided));
}

/* Until the packet of a lane would be of use if it were asked now. */
static int64_t useful_us (const EcfsCodec *codec, const EcfsLane *lanes, unsigned i)
{
    return lanes[i].forecast_us + (i < ecfs_codec_k (codec) ? 0 : DECODE_US);
}

/* Until the packet would be there, for adding up; the down lanes last. */
static double lane_cost (const EcfsCodec *codec, const EcfsLane *lanes, unsigned i)
{
    return (double) (useful_us (codec, lanes, i) + TRAFFIC_US) + (lanes[i].down ? DOWN_US : 0);
}

/* Asks beside the set the lanes with which the code gives the wanted packets soonest. Lanes in both are about to be
 * asked, and are not when they do not help. False when there are not enough. */
static bool complete (const EcfsCodec *codec, const bool *wanted, const EcfsLane *lanes, bool desperate,
                      const bool *set, bool *ask)
{
    unsigned n = ecfs_codec_n (codec);
    bool available[ECFS_CODEC_MAX_N], sources[ECFS_CODEC_MAX_N];
    double cost[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < n; i++) {
        available[i] = set[i] || askable (&lanes[i], desperate);
        cost[i] = !set[i] ? lane_cost (codec, lanes, i) : ask[i] ? 1 : 0;
    }
    if (!ecfs_codec_choose (codec, wanted, available, cost, sources))
        return false;
    for (unsigned i = 0; i < n; i++)
        ask[i] = sources[i] && (ask[i] || !set[i]);
    return true;
}

/* When the last packet and when they on average would be of use, and what their traffic costs others. The average is
 * what spreads the work: the last alone would be as late wherever one busy lane is needed. */
static int64_t cost_us (const EcfsCodec *codec, const EcfsLane *lanes, const bool *ask)
{
    int64_t last_us = 0, sum_us = 0, n_asked = 0;
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++) {
        if (!ask[i])
            continue;
        last_us = MAX (last_us, useful_us (codec, lanes, i));
        sum_us += useful_us (codec, lanes, i);
        n_asked++;
    }
    return last_us + sum_us / (4 * MAX (n_asked, 1)) + n_asked * TRAFFIC_US;
}

/* The cheaper of two ways: the wanted packets from their own stripes as far as these can be asked, or from whichever
 * are the soonest. */
static bool choose (const EcfsCodec *codec, const bool *wanted, const EcfsLane *lanes, const bool *set, bool *ask)
{
    unsigned n = ecfs_codec_n (codec);
    bool own_set[ECFS_CODEC_MAX_N], any_set[ECFS_CODEC_MAX_N], any_ask[ECFS_CODEC_MAX_N] = {false};
    memcpy (any_set, set, n * sizeof *set);
    for (unsigned i = 0; i < n; i++) {
        ask[i] = wanted[i] && !set[i] && askable (&lanes[i], false);
        own_set[i] = set[i] || ask[i];
    }
    if (!complete (codec, wanted, lanes, false, own_set, ask))
        return false;
    if (complete (codec, wanted, lanes, false, any_set, any_ask) &&
        cost_us (codec, lanes, any_ask) < cost_us (codec, lanes, ask))
        memcpy (ask, any_ask, n * sizeof *ask);
    return true;
}

/* When not everything can be had without them: down and avoided lanes too. */
static bool choose_desperately (const EcfsCodec *codec, const bool *wanted, const EcfsLane *lanes, const bool *set,
                                bool *ask)
{
    bool all[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++) {
        ask[i] = wanted[i] && !set[i] && askable (&lanes[i], false);
        all[i] = set[i] || ask[i];
    }
    return complete (codec, wanted, lanes, true, all, ask);
}

EcfsSchedule ecfs_schedule (const EcfsCodec *codec, const bool *wanted, const EcfsLane *lanes, bool *ask)
{
    unsigned n = ecfs_codec_n (codec);
    bool arrived[ECFS_CODEC_MAX_N], set[ECFS_CODEC_MAX_N], owed[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < n; i++) {
        ask[i] = false;
        arrived[i] = lanes[i].arrived;
        owed[i] = lanes[i].arrived || lanes[i].asked || lanes[i].resting;
        set[i] = lanes[i].arrived || (lanes[i].asked && !lanes[i].late);
    }
    if (ecfs_codec_determines (codec, arrived, wanted))
        return ECFS_SCHEDULE_READY;
    if (ecfs_codec_determines (codec, set, wanted))
        return ECFS_SCHEDULE_WAIT;
    if (choose (codec, wanted, lanes, set, ask) || choose_desperately (codec, wanted, lanes, set, ask))
        return ECFS_SCHEDULE_WAIT;
    /* Late and resting lanes are needed; all others are asked, in case that they do not come. */
    for (unsigned i = 0; i < n; i++) {
        ask[i] = askable (&lanes[i], true);
        owed[i] = owed[i] || ask[i];
    }
    return ecfs_codec_determines (codec, owed, wanted) ? ECFS_SCHEDULE_WAIT : ECFS_SCHEDULE_IMPOSSIBLE;
}
