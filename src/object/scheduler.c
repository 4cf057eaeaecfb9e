#include "object/scheduler.h"

#include <string.h>

#define DECODE_US       5000   /* what data packets may be later than parity: decoding costs a turn of a worker */
#define TRAFFIC_US      10000  /* what a packet more than needed may save at least */
#define DOWN_US         1e12   /* so much more than any forecast that a lane that is down is the last to ask */
#define SPENT_US        1e10   /* the same for one whose month is used up */
#define SOONER_US       20000  /* what is sooner by less is not worth bytes */
#define PRICE_US        1e8    /* what the dearest lane is later than one that costs nothing, where that counts, … */
#define SLOW_US         1e9    /* … and one that is not fast enough; spent and down lanes are last all the same */
#define FAST_TIMES      2      /* as late as the soonest is fast enough, … */
#define FAST_US         100000 /* … and a little */
#define HEDGE_MIN_BYTES (2u << 20) /* so that the first packets of an object can be hedged, too */

unsigned ecfs_hedges_left (const EcfsReadPolicy *policy, uint64_t received_bytes, uint64_t extra_bytes,
                           uint64_t packet_bytes)
{
    uint64_t budget = policy->hedge_percent == 0 ? 0 : HEDGE_MIN_BYTES + received_bytes / 100 * policy->hedge_percent;
    return (unsigned) MIN ((budget - MIN (extra_bytes, budget)) / packet_bytes, ECFS_CODEC_MAX_N);
}

/* What the steps of one decision share. */
typedef struct Task {
    const EcfsCodec *codec;
    const EcfsReadPolicy *policy;
    const EcfsWanted *wanted;
    const EcfsCandidate *lanes;
    unsigned n;
    double cheapest, dearest; /* prices of lanes; equal: they do not count */
    int64_t fast_us;          /* a lane that takes longer is not fast enough */
} Task;

static bool askable (const EcfsCandidate *lane, bool desperate)
{
    return lane->stored && !lane->arrived && !lane->asked && !lane->failed && !lane->resting &&
           (desperate || (!lane->down && !lane->avoided && !lane->spent));
}

static int64_t selection_us (const Task *task, const EcfsCandidate *lane)
{
    switch (task->policy->selection) {
    case ECFS_SELECT_FASTEST0:
        return lane->alone_us;
    case ECFS_SELECT_FASTEST1:
        return lane->alone_us * (1 + (int64_t) lane->n_running);
    case ECFS_SELECT_SOONEST:
        break;
    }
    return lane->forecast_us;
}

/* Until the packet of a lane would be of use if it were asked now. */
static int64_t useful_us (const Task *task, unsigned i)
{
    bool decoded = i >= ecfs_codec_k (task->codec) && task->policy->preference != ECFS_PREFER_NONE;
    return selection_us (task, &task->lanes[i]) + (decoded ? DECODE_US : 0);
}

/* Until the packet would be there, for adding up; spent and then down lanes last. */
static double lane_cost (const Task *task, unsigned i)
{
    const EcfsCandidate *lane = &task->lanes[i];
    double us = (double) (useful_us (task, i) + TRAFFIC_US);
    if (task->dearest > task->cheapest)
        us += PRICE_US * (lane->price - task->cheapest) / (task->dearest - task->cheapest) +
              (lane->alone_us > task->fast_us ? SLOW_US : 0);
    return us + (lane->down ? DOWN_US : 0) + (lane->spent ? SPENT_US : 0);
}

/* Asks beside the set the lanes with which the code gives the wanted packets soonest. Lanes in both are about to be
 * asked, and are not when they do not help. False when there are not enough. */
static bool complete (const Task *task, bool desperate, const bool *set, bool *ask)
{
    bool available[ECFS_CODEC_MAX_N], sources[ECFS_CODEC_MAX_N];
    double cost[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < task->n; i++) {
        available[i] = set[i] || askable (&task->lanes[i], desperate);
        cost[i] = !set[i] ? lane_cost (task, i) : ask[i] ? 1 : 0;
    }
    if (!ecfs_codec_choose (task->codec, task->wanted->packets, available, cost, sources))
        return false;
    for (unsigned i = 0; i < task->n; i++)
        ask[i] = sources[i] && (ask[i] || !set[i]);
    return true;
}

/* When the last packet and when they on average would be of use, and what their traffic costs others. The average is
 * what spreads the work: the last alone would be as late wherever one busy lane is needed. */
static int64_t cost_us (const Task *task, const bool *ask)
{
    int64_t last_us = 0, sum_us = 0, n_asked = 0;
    for (unsigned i = 0; i < task->n; i++) {
        if (!ask[i])
            continue;
        last_us = MAX (last_us, useful_us (task, i));
        sum_us += useful_us (task, i);
        n_asked++;
    }
    return last_us + sum_us / (4 * MAX (n_asked, 1)) + n_asked * TRAFFIC_US;
}

static double price_of (const Task *task, const bool *ask)
{
    double sum = 0;
    for (unsigned i = 0; i < task->n; i++)
        sum += ask[i] ? lane_cost (task, i) : 0;
    return sum;
}

static bool is_better (const Task *task, const bool *ask, const bool *than)
{
    return task->dearest > task->cheapest ? price_of (task, ask) < price_of (task, than)
                                          : cost_us (task, ask) < cost_us (task, than);
}

/* The cheaper of two ways: the wanted packets from their own stripes as far as these can be asked, or from whichever
 * are the soonest. */
static bool choose (const Task *task, const bool *set, bool *ask)
{
    bool own_set[ECFS_CODEC_MAX_N] = {false}, any_set[ECFS_CODEC_MAX_N], any_ask[ECFS_CODEC_MAX_N] = {false};
    memcpy (any_set, set, task->n * sizeof *set);
    for (unsigned i = 0; i < task->n; i++) {
        ask[i] = task->wanted->packets[i] && !set[i] && askable (&task->lanes[i], false);
        own_set[i] = set[i] || ask[i];
    }
    if (!complete (task, false, own_set, ask))
        return false;
    if (task->policy->preference != ECFS_PREFER_DATA && complete (task, false, any_set, any_ask) &&
        is_better (task, any_ask, ask))
        memcpy (ask, any_ask, task->n * sizeof *ask);
    return true;
}

/* When not everything can be had without them: down, avoided and spent lanes too. */
static bool choose_desperately (const Task *task, const bool *set, bool *ask)
{
    bool all[ECFS_CODEC_MAX_N] = {false};
    for (unsigned i = 0; i < task->n; i++) {
        ask[i] = task->wanted->packets[i] && !set[i] && askable (&task->lanes[i], false);
        all[i] = set[i] || ask[i];
    }
    return complete (task, true, all, ask);
}

/* Stalled and resting lanes are needed; all others are asked, in case that they do not come. */
static EcfsSchedule ask_all (const Task *task, bool *ask)
{
    bool owed[ECFS_CODEC_MAX_N] = {false};
    for (unsigned i = 0; i < task->n; i++) {
        const EcfsCandidate *lane = &task->lanes[i];
        ask[i] = askable (lane, true);
        owed[i] = lane->arrived || lane->asked || lane->resting || ask[i];
    }
    return ecfs_codec_determines (task->codec, owed, task->wanted->packets) ? ECFS_SCHEDULE_WAIT
                                                                            : ECFS_SCHEDULE_IMPOSSIBLE;
}

/* Hedging */

/* What is past its time is expected to take as long again, whatever its pace seems to be. */
static int64_t due_us (const EcfsCandidate *lane)
{
    return MAX (lane->due_us, -lane->promised_us);
}

static int64_t lateness_us (const EcfsCandidate *lane)
{
    return due_us (lane) - lane->promised_us;
}

int64_t ecfs_common_us (const int64_t *us, unsigned n, unsigned n_spare)
{
    int64_t longest_us[ECFS_CODEC_MAX_N] = {0}; /* in falling order */
    for (unsigned i = 0; i < n; i++) {
        int64_t one_us = us[i];
        for (unsigned j = 0; one_us > 0 && j <= n_spare; j++) {
            int64_t other_us = longest_us[j];
            longest_us[j] = MAX (one_us, other_us);
            one_us = MIN (one_us, other_us);
        }
    }
    return longest_us[n_spare];
}

static int64_t common_lateness_us (const Task *task, const bool *hoped)
{
    int64_t late_us[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < task->n; i++)
        late_us[i] = hoped[i] && task->lanes[i].asked ? lateness_us (&task->lanes[i]) : 0;
    return ecfs_common_us (late_us, task->n, task->n - ecfs_codec_k (task->codec));
}

/* The latest of what is hoped for and later than it was promised; n: there is none. */
static unsigned latest_of (const Task *task, const bool *hoped, int64_t common_us)
{
    unsigned latest = task->n;
    for (unsigned i = 0; i < task->n; i++) {
        const EcfsCandidate *lane = &task->lanes[i];
        if (hoped[i] && lane->asked && lateness_us (lane) > 2 * common_us + SOONER_US &&
            (latest == task->n || due_us (lane) > due_us (&task->lanes[latest])))
            latest = i;
    }
    return latest;
}

/* Until the last of those in @more and not in @ask would be here in nearly all cases; counts them. */
static int64_t replaced_us (const Task *task, const bool *more, const bool *ask, unsigned *ret_n)
{
    int64_t last_us = 0;
    *ret_n = 0;
    for (unsigned i = 0; i < task->n; i++) {
        if (!more[i] || ask[i])
            continue;
        last_us = MAX (last_us, task->lanes[i].late_us);
        ++*ret_n;
    }
    return last_us;
}

/* Takes what is late out of what is hoped for, the latest first, as long as asking others in its place is worth it. */
static void hedge_by_forecast (const Task *task, bool *hoped, EcfsDecision *decision)
{
    int64_t common_us = common_lateness_us (task, hoped);
    for (;;) {
        unsigned latest = latest_of (task, hoped, common_us), n_more;
        if (latest == task->n)
            return;
        int64_t latest_us = due_us (&task->lanes[latest]);
        bool more[ECFS_CODEC_MAX_N] = {false}, on_time[ECFS_CODEC_MAX_N];
        hoped[latest] = false;
        for (unsigned i = 0; i < task->n; i++)
            on_time[i] = hoped[i] || decision->ask[i];
        if (!complete (task, false, on_time, more))
            return;
        int64_t takes_us = replaced_us (task, more, decision->ask, &n_more);
        bool in_time = task->wanted->needed_us > takes_us && latest_us <= task->wanted->needed_us - takes_us;
        if (n_more > 0 && (in_time || latest_us <= takes_us / 2 * 3 + SOONER_US ||
                           decision->n_hedges + n_more > task->wanted->n_hedges))
            return;
        decision->late[latest] = n_more > 0;
        decision->n_hedges += n_more;
        for (unsigned i = 0; i < task->n; i++)
            decision->ask[i] |= more[i];
    }
}

/* R and P: what so many others overtook is asked once more elsewhere, up to R packets for each that is missing. */
static void replicate (const Task *task, bool *hoped, EcfsDecision *decision)
{
    unsigned n_arrived = 0, n_asked = 0;
    for (unsigned i = 0; i < task->n; i++) {
        const EcfsCandidate *lane = &task->lanes[i];
        n_arrived += lane->arrived;
        n_asked += lane->asked && !lane->stalled;
        decision->late[i] = hoped[i] && lane->asked && lane->n_overtook >= task->policy->failover;
        hoped[i] = hoped[i] && !decision->late[i];
    }
    unsigned most = task->policy->replication * (MAX (ecfs_codec_k (task->codec), n_arrived + 1) - n_arrived);
    if (!complete (task, false, hoped, decision->ask))
        memset (decision->ask, 0, sizeof decision->ask);
    for (unsigned i = 0; i < task->n; i++) {
        decision->ask[i] = decision->ask[i] && n_asked + decision->n_hedges < most;
        decision->n_hedges += decision->ask[i];
    }
}

static void hedge (const Task *task, const bool *hoped, EcfsDecision *decision)
{
    bool left[ECFS_CODEC_MAX_N];
    memcpy (left, hoped, task->n * sizeof *left);
    if (task->policy->replication > 1)
        replicate (task, left, decision);
    else if (task->policy->replication == 0 && task->wanted->n_hedges > 0)
        hedge_by_forecast (task, left, decision);
}

/* T: as many as are allowed now, those that need no decoding first. */
static void limit (const Task *task, EcfsDecision *decision)
{
    unsigned n_left = task->wanted->n_transfers;
    for (unsigned i = 0; i < task->n; i++) {
        decision->ask[i] = decision->ask[i] && n_left > 0;
        n_left -= decision->ask[i];
    }
}

/* Looks at prices, where they count: how far they go, and how long a lane may take. */
static void weigh (Task *task)
{
    int64_t soonest_us[ECFS_CODEC_MAX_N];
    unsigned n_found = 0, k = ecfs_codec_k (task->codec);
    for (unsigned i = 0; i < task->n; i++) {
        const EcfsCandidate *lane = &task->lanes[i];
        unsigned place = n_found;
        if (!lane->stored || lane->failed || lane->down || lane->avoided || lane->spent)
            continue;
        task->cheapest = n_found == 0 ? lane->price : MIN (task->cheapest, lane->price);
        task->dearest = n_found == 0 ? lane->price : MAX (task->dearest, lane->price);
        for (; place > 0 && soonest_us[place - 1] > lane->alone_us; place--)
            soonest_us[place] = soonest_us[place - 1];
        soonest_us[place] = lane->alone_us;
        n_found++;
    }
    task->fast_us = n_found == 0 ? 0 : FAST_TIMES * soonest_us[MIN (k, n_found) - 1] + FAST_US;
}

EcfsSchedule ecfs_schedule (const EcfsCodec *codec, const EcfsReadPolicy *policy, const EcfsWanted *wanted,
                            const EcfsCandidate *lanes, EcfsDecision *ret_decision)
{
    Task task = {.codec = codec, .policy = policy, .wanted = wanted, .lanes = lanes, .n = ecfs_codec_n (codec)};
    bool arrived[ECFS_CODEC_MAX_N], hoped[ECFS_CODEC_MAX_N];
    *ret_decision = (EcfsDecision){.n_hedges = 0};
    for (unsigned i = 0; i < task.n; i++) {
        arrived[i] = lanes[i].arrived;
        hoped[i] = lanes[i].arrived || (lanes[i].asked && !lanes[i].stalled);
    }
    EcfsSchedule schedule = ECFS_SCHEDULE_WAIT;
    if (policy->cheap)
        weigh (&task);
    if (ecfs_codec_determines (codec, arrived, wanted->packets))
        return ECFS_SCHEDULE_READY;
    if (ecfs_codec_determines (codec, hoped, wanted->packets))
        hedge (&task, hoped, ret_decision);
    else if (!choose (&task, hoped, ret_decision->ask) && !choose_desperately (&task, hoped, ret_decision->ask))
        schedule = ask_all (&task, ret_decision->ask);
    limit (&task, ret_decision);
    return schedule;
}
