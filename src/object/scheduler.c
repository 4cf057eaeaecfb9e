#include "object/scheduler.h"

#include <string.h>

#define STALL_MIN_US     200000
#define STALL_UNKNOWN_US 1000000
#define DECODE_US        5000  /* what data packets may be later than parity: decoding costs a turn of a worker */
#define TRAFFIC_US       10000 /* what a packet more than needed may save at least */

int64_t ecfs_stall_us (int64_t rtt_us, int64_t mean_gap_us)
{
    if (rtt_us == 0)
        return STALL_UNKNOWN_US;
    return MAX (MAX (4 * rtt_us, 8 * mean_gap_us), STALL_MIN_US);
}

/* The wanted packets come out of the set: all are in it, or it determines everything. */
static bool suffices (const EcfsCodec *codec, const bool *wanted, const bool *set)
{
    bool all = true;
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++)
        all = all && (!wanted[i] || set[i]);
    return all || ecfs_codec_decodable (codec, set);
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

/* The next lane to ask: the soonest of use; among the desperate those that are not down first. */
static int best_lane (const EcfsCodec *codec, const EcfsLane *lanes, const bool *set, bool desperate)
{
    int best = -1;
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++) {
        if (set[i] || !askable (&lanes[i], desperate))
            continue;
        if (best < 0 || (lanes[best].down && !lanes[i].down) ||
            (lanes[best].down == lanes[i].down &&
             useful_us (codec, lanes, i) < useful_us (codec, lanes, (unsigned) best)))
            best = (int) i;
    }
    return best;
}

/* Takes back what need not be asked after all, in the order in which it would be missed least: what was asked before
 * the lane that made the set suffice may not have helped. */
static void prune (const EcfsCodec *codec, const bool *wanted, bool *set, bool *ask)
{
    for (int keep_wanted = 1; keep_wanted >= 0; keep_wanted--) {
        for (unsigned i = ecfs_codec_n (codec); i-- > 0;) {
            if (!ask[i] || (keep_wanted && wanted[i]))
                continue;
            set[i] = false;
            ask[i] = !suffices (codec, wanted, set);
            set[i] = ask[i];
        }
    }
}

/* Adds the soonest lanes to set and ask until the set suffices; false when there are not enough. */
static bool complete (const EcfsCodec *codec, const bool *wanted, const EcfsLane *lanes, bool desperate, bool *set,
                      bool *ask)
{
    while (!suffices (codec, wanted, set)) {
        int lane = best_lane (codec, lanes, set, desperate);
        if (lane < 0)
            return false;
        set[lane] = true;
        ask[lane] = true;
    }
    prune (codec, wanted, set, ask);
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
    if (suffices (codec, wanted, arrived))
        return ECFS_SCHEDULE_READY;
    if (suffices (codec, wanted, set))
        return ECFS_SCHEDULE_WAIT;
    if (choose (codec, wanted, lanes, set, ask) || choose_desperately (codec, wanted, lanes, set, ask))
        return ECFS_SCHEDULE_WAIT;
    for (unsigned i = 0; i < n; i++)
        owed[i] = owed[i] || ask[i];
    return suffices (codec, wanted, owed) ? ECFS_SCHEDULE_WAIT : ECFS_SCHEDULE_IMPOSSIBLE;
}
