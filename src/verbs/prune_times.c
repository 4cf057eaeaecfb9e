/*
 * A name is a promise: whoever has the archive's machine stores files under names of records that he makes later, or
 * records that follow one which he keeps back. So a file tells the time of a record only if it has that record, byte
 * for byte. What too few have is as young as the last of these files, whatever follows it.
 */
#include "verbs/prune_priv.h"

#include <stdlib.h>
#include <string.h>

#define CLOCK_NS (INT64_C (3600) * ECFS_PRUNE_NS_PER_S) /* as far as clocks may differ */

/* A record that a file has. */
typedef struct Has {
    uint64_t sequence;
    uint8_t sum[ECFS_JOURNAL_SUM_BYTES];
} Has;

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

/* Records tell of the one before them, so one that few have was there before the next that enough have: by names. */
static int64_t behind (EcfsPruneTimes *self, uint32_t epoch, uint64_t sequence)
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

/* Files */

static int compare_files (const void *a, const void *b)
{
    const EcfsPruneFile *left = a, *right = b;
    if (left->file.epoch != right->file.epoch)
        return left->file.epoch < right->file.epoch ? -1 : 1;
    return (left->file.first > right->file.first) - (left->file.first < right->file.first);
}

static EcfsPruneFile *file_at (const EcfsPruneTimes *self, guint i)
{
    return &g_array_index (self->files, EcfsPruneFile, i);
}

static void read_file (const EcfsPruneTimes *self, EcfsPruneFile *file)
{
    g_autoptr (GPtrArray) rows = self->read (self->user, file);
    file->has = g_array_sized_new (FALSE, FALSE, sizeof (Has), rows == NULL ? 0 : rows->len);
    for (guint i = 0; rows != NULL && i < rows->len; i++) {
        const EcfsJournalRow *row = g_ptr_array_index (rows, i);
        Has has = {.sequence = row->sequence};
        ecfs_journal_sum (row->sequence, row->time_ns, row->record->data, row->record->len, has.sum);
        g_array_append_val (file->has, has);
    }
}

static void begin_anew (EcfsPruneTimes *self)
{
    if (self->open == NULL)
        self->open = g_array_new (FALSE, FALSE, sizeof (guint));
    for (guint i = 0; i < self->open->len; i++)
        g_clear_pointer (&file_at (self, g_array_index (self->open, guint, i))->has, g_array_unref);
    g_array_set_size (self->open, 0);
    g_array_sort (self->files, compare_files);
    self->next = 0;
}

/* Opens those that may have the record by their names, and closes others: records are asked for in their order. */
static void open_files (EcfsPruneTimes *self, uint32_t epoch, uint64_t sequence)
{
    if (self->open == NULL || epoch < self->at_epoch || (epoch == self->at_epoch && sequence < self->at))
        begin_anew (self);
    self->at_epoch = epoch;
    self->at = sequence;
    for (guint i = self->open->len; i-- > 0;) {
        EcfsPruneFile *file = file_at (self, g_array_index (self->open, guint, i));
        if (file->file.epoch == epoch && file->file.last >= sequence)
            continue;
        g_clear_pointer (&file->has, g_array_unref);
        g_array_remove_index_fast (self->open, i);
    }
    for (; self->next < self->files->len; self->next++) {
        EcfsPruneFile *file = file_at (self, self->next);
        if (file->file.epoch > epoch || (file->file.epoch == epoch && file->file.first > sequence))
            break;
        if (file->file.kind != ECFS_JOURNAL_SEGMENT || file->file.epoch < epoch || file->file.last < sequence)
            continue;
        read_file (self, file);
        g_array_append_val (self->open, self->next);
    }
}

static int compare_sequences (const void *a, const void *b)
{
    const Has *left = a, *right = b;
    return (left->sequence > right->sequence) - (left->sequence < right->sequence);
}

static int64_t latest_of (const GArray *latest)
{
    int64_t time_ns = 0;
    for (guint i = 0; i < latest->len; i++)
        time_ns = MAX (time_ns, g_array_index (latest, int64_t, i));
    return time_ns;
}

int64_t ecfs_prune_record_time (EcfsPruneTimes *self, uint32_t epoch, const EcfsJournalRow *row)
{
    int64_t time_ns;
    Has wanted = {.sequence = row->sequence};
    g_autoptr (GArray) latest = g_array_new (FALSE, TRUE, sizeof (int64_t));
    ecfs_journal_sum (row->sequence, row->time_ns, row->record->data, row->record->len, wanted.sum);
    open_files (self, epoch, row->sequence);
    for (guint i = 0; i < self->open->len; i++) {
        const EcfsPruneFile *file = file_at (self, g_array_index (self->open, guint, i));
        const Has *has = file->has->len == 0
                             ? NULL
                             : bsearch (&wanted, file->has->data, file->has->len, sizeof wanted, compare_sequences);
        if (has != NULL && memcmp (has->sum, wanted.sum, sizeof wanted.sum) == 0)
            note (self, latest, file);
    }
    if (settle (self, latest, &time_ns))
        return time_ns;
    time_ns = latest_of (latest);
    return time_ns == 0 ? self->now_ns : MAX (time_ns, behind (self, epoch, row->sequence));
}

int64_t ecfs_prune_later_time (int64_t told_ns, int64_t own_ns, bool *ret_is_future)
{
    *ret_is_future = own_ns > 0 && own_ns - CLOCK_NS > told_ns;
    return *ret_is_future ? told_ns : MAX (told_ns, own_ns);
}

/* It is not read here, so the last that has a file of its name counts: others' may have been there before. */
int64_t ecfs_prune_snapshot_time (EcfsPruneTimes *self, const EcfsJournalFile *snapshot)
{
    int64_t time_ns, first_ns;
    g_autoptr (GArray) latest = g_array_new (FALSE, TRUE, sizeof (int64_t));
    for (guint i = 0; i < self->files->len; i++) {
        const EcfsPruneFile *file = file_at (self, i);
        if (file->file.kind == ECFS_JOURNAL_SNAPSHOT && file->file.epoch == snapshot->epoch &&
            file->file.last == snapshot->last)
            note (self, latest, file);
    }
    time_ns = latest_of (latest);
    if (settle (self, latest, &first_ns))
        return time_ns;
    return time_ns == 0 ? self->now_ns : MAX (time_ns, behind (self, snapshot->epoch, snapshot->last + 1));
}

void ecfs_prune_times_clear (EcfsPruneTimes *self)
{
    if (self->open != NULL)
        begin_anew (self);
    g_clear_pointer (&self->open, g_array_unref);
    g_clear_pointer (&self->files, g_array_unref);
}
