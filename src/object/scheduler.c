#include "object/scheduler.h"

#include <string.h>

#define STALL_MIN_US     200000
#define STALL_UNKNOWN_US 1000000

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

/* The next lane to ask: data before parity, then the soonest; among the desperate those that are not down first. */
static int best_lane (const EcfsCodec *codec, const EcfsLane *lanes, const bool *set, bool desperate)
{
    int best = -1;
    unsigned k = ecfs_codec_k (codec);
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++) {
        if (set[i] || !askable (&lanes[i], desperate))
            continue;
        if (best < 0) {
            best = (int) i;
            continue;
        }
        const EcfsLane *rival = &lanes[best];
        bool data = i < k, rival_data = (unsigned) best < k;
        if (lanes[i].down != rival->down) {
            if (!lanes[i].down)
                best = (int) i;
        } else if (data != rival_data) {
            if (data)
                best = (int) i;
        } else if (lanes[i].forecast_us < rival->forecast_us) {
            best = (int) i;
        }
    }
    return best;
}

/* Adds lanes to set and ask until the set suffices; false when there are not enough. */
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
    return true;
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
    /* Wanted stripes are asked themselves where they can be: their bytes need no decoding. */
    for (unsigned i = 0; i < n; i++)
        if (wanted[i] && !set[i] && askable (&lanes[i], false))
            set[i] = ask[i] = true;
    if (complete (codec, wanted, lanes, false, set, ask) || complete (codec, wanted, lanes, true, set, ask)) {
        prune (codec, wanted, set, ask);
        return ECFS_SCHEDULE_WAIT;
    }
    for (unsigned i = 0; i < n; i++)
        owed[i] = owed[i] || ask[i];
    return suffices (codec, wanted, owed) ? ECFS_SCHEDULE_WAIT : ECFS_SCHEDULE_IMPOSSIBLE;
}
