#include "verbs/prune_priv.h"

/* What is so little of it belongs to something else, before it. */
#define FINE_SHARE 64

/* The last sample before the most of what was lost until @to. */
static guint before_most (const GArray *samples, guint from, guint to)
{
    const EcfsPruneSample *a = &g_array_index (samples, EcfsPruneSample, from),
                          *b = &g_array_index (samples, EcfsPruneSample, to);
    guint before = from;
    for (guint i = from; i < to; i++) {
        const EcfsPruneSample *one = &g_array_index (samples, EcfsPruneSample, i);
        if (one->lost_names - a->lost_names <= (b->lost_names - a->lost_names) / FINE_SHARE &&
            one->lost_files - a->lost_files <= (b->lost_files - a->lost_files) / FINE_SHARE &&
            one->lost_bytes - a->lost_bytes <= (b->lost_bytes - a->lost_bytes) / FINE_SHARE)
            before = i;
    }
    return before;
}

/* What was lost between two samples, and the most that there was. */
static EcfsPruneLoss between (const GArray *samples, guint from, guint to)
{
    const EcfsPruneSample *a = &g_array_index (samples, EcfsPruneSample, from),
                          *b = &g_array_index (samples, EcfsPruneSample, to);
    const guint before = before_most (samples, from, to);
    EcfsPruneLoss loss = {.from_ns = g_array_index (samples, EcfsPruneSample, before).told_ns,
                          .to_ns = b->time_ns,
                          .n_files = b->lost_files - a->lost_files,
                          .bytes = b->lost_bytes - a->lost_bytes};
    for (guint i = from; i <= to; i++) {
        const EcfsPruneSample *one = &g_array_index (samples, EcfsPruneSample, i);
        loss.of_files = MAX (loss.of_files, one->n_files);
        loss.of_bytes = MAX (loss.of_bytes, one->bytes);
    }
    return loss;
}

static double share_of (uint64_t n, uint64_t of)
{
    return n == 0 ? 0 : of == 0 ? 100 : 100.0 * (double) n / (double) of;
}

static double worst_of (const EcfsPruneLoss *loss)
{
    return MAX (share_of (loss->n_files, loss->of_files), share_of (loss->bytes, loss->of_bytes));
}

bool ecfs_prune_find_loss (const GArray *samples, int64_t accepted_ns, unsigned max_share, EcfsPruneLoss *ret_loss)
{
    guint from = 0, accepted = 0;
    double worst = max_share;
    int64_t last_ns = 0;
    while (accepted + 1 < samples->len && g_array_index (samples, EcfsPruneSample, accepted + 1).time_ns <= accepted_ns)
        accepted++;
    for (guint to = accepted; to < samples->len; to++) {
        const int64_t day_ns = g_array_index (samples, EcfsPruneSample, to).time_ns - ECFS_PRUNE_DAY_NS;
        while (from + 1 < to && g_array_index (samples, EcfsPruneSample, from + 1).time_ns <= day_ns)
            from++;
        const EcfsPruneLoss loss = between (samples, MAX (from, accepted), to);
        if (worst_of (&loss) <= max_share)
            continue;
        last_ns = loss.to_ns;
        if (worst_of (&loss) > worst) {
            worst = worst_of (&loss);
            *ret_loss = loss;
        }
    }
    if (last_ns > 0)
        ret_loss->last_ns = last_ns;
    return last_ns > 0;
}
