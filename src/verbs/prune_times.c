#include "verbs/prune_priv.h"

static int compare_times (const void *a, const void *b)
{
    const int64_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

/* Of the times at which each endpoint had the last of it: that at which enough had. False: too few have it. */
static bool settle (const EcfsPruneTimes *self, const GArray *latest, int64_t *ret_time_ns)
{
    g_autoptr (GArray) told = g_array_new (FALSE, FALSE, sizeof (int64_t));
    for (guint i = 0; i < latest->len; i++)
        if (g_array_index (latest, int64_t, i) > 0)
            g_array_append_val (told, g_array_index (latest, int64_t, i));
    if (told->len < MAX (self->n_copies, 1))
        return false;
    g_array_sort (told, compare_times);
    *ret_time_ns = g_array_index (told, int64_t, MAX (self->n_copies, 1) - 1);
    return true;
}

static void note (const EcfsPruneTimes *self, GArray *latest, const EcfsPruneFile *file)
{
    if (file->position >= latest->len)
        g_array_set_size (latest, (guint) file->position + 1);
    int64_t *at = &g_array_index (latest, int64_t, file->position);
    const int64_t time_ns = file->mtime_s <= 0 ? self->now_ns : (file->mtime_s + 1) * ECFS_PRUNE_NS_PER_S;
    *at = MAX (*at, time_ns);
}

/* *ret_until: the last record of which the same files tell. */
static bool find_record (const EcfsPruneTimes *self, uint32_t epoch, uint64_t sequence, uint64_t *ret_until,
                         int64_t *ret_time_ns)
{
    g_autoptr (GArray) latest = g_array_new (FALSE, TRUE, sizeof (int64_t));
    uint64_t until = UINT64_MAX;
    for (guint i = 0; i < self->files->len; i++) {
        const EcfsPruneFile *file = &g_array_index (self->files, EcfsPruneFile, i);
        if (file->file.kind != ECFS_JOURNAL_SEGMENT || file->file.epoch != epoch || file->file.last < sequence)
            continue;
        if (file->file.first > sequence) {
            until = MIN (until, file->file.first - 1);
            continue;
        }
        until = MIN (until, file->file.last);
        note (self, latest, file);
    }
    *ret_until = until;
    return settle (self, latest, ret_time_ns);
}

static bool find_snapshot (const EcfsPruneTimes *self, uint32_t epoch, uint64_t last, int64_t *ret_time_ns)
{
    g_autoptr (GArray) latest = g_array_new (FALSE, TRUE, sizeof (int64_t));
    for (guint i = 0; i < self->files->len; i++) {
        const EcfsPruneFile *file = &g_array_index (self->files, EcfsPruneFile, i);
        if (file->file.kind == ECFS_JOURNAL_SNAPSHOT && file->file.epoch == epoch && file->file.last == last)
            note (self, latest, file);
    }
    return settle (self, latest, ret_time_ns);
}

/* When enough had the first snapshot that they have of a later epoch. */
static int64_t later_epoch (const EcfsPruneTimes *self, uint32_t epoch)
{
    int64_t time_ns = self->now_ns;
    for (guint i = 0; i < self->files->len; i++) {
        const EcfsJournalFile *file = &g_array_index (self->files, EcfsPruneFile, i).file;
        int64_t told_ns;
        if (file->kind == ECFS_JOURNAL_SNAPSHOT && file->epoch > epoch && file->is_last &&
            find_snapshot (self, file->epoch, file->last, &told_ns))
            time_ns = MIN (time_ns, told_ns);
    }
    return time_ns;
}

/* Records tell of the one before them, so one that few have was there before the next that enough have. */
int64_t ecfs_prune_record_time (EcfsPruneTimes *self, uint32_t epoch, uint64_t sequence)
{
    uint64_t at = sequence, until;
    if (self->epoch == epoch && self->from <= sequence && sequence <= self->until)
        return self->time_ns;
    while (!find_record (self, epoch, at, &until, &self->time_ns)) {
        if (until == UINT64_MAX) {
            self->time_ns = later_epoch (self, epoch);
            break;
        }
        at = until + 1;
    }
    self->epoch = epoch;
    self->from = sequence;
    self->until = until;
    return self->time_ns;
}

int64_t ecfs_prune_snapshot_time (EcfsPruneTimes *self, const EcfsJournalFile *snapshot)
{
    int64_t time_ns;
    return find_snapshot (self, snapshot->epoch, snapshot->last, &time_ns)
               ? time_ns
               : ecfs_prune_record_time (self, snapshot->epoch, snapshot->last + 1);
}
