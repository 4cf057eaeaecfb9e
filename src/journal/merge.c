#include "journal/merge.h"

#include "catalog/journal.h"
#include "catalog/journal_rows.h"
#include "journal/journal_io.h"
#include "journal/superfluous.h"

#include <inttypes.h>

#define SMALL_BYTES  (256u << 10)       /* of a segment, as it is stored */
#define MERGED_BYTES (4u << 20)         /* of the records of a larger one, about */
#define RECORDS_MOST (4 * MERGED_BYTES) /* of the records of one that is read: who lies may have packed more */
#define GROUP_LEAST  16                 /* segments that one is made of */
#define N_NEWEST     64                 /* that stay as they are */
#define FILES_MAX    1000000            /* that an endpoint lists */

_Atomic unsigned ecfs_merge_least = 256;

typedef struct Seen {
    EcfsJournalFile file; /* as its name says */
    uint64_t size;
    bool stays;   /* it is damaged, or contradicts another */
    bool covered; /* a larger one has its records, or it is gone */
} Seen;

typedef struct Merging {
    EcfsArchive *archive;
    EcfsEndpoint *endpoint;
    const atomic_bool *stop;
    int64_t end_us;
    bool stopped;  /* before the end */
    GArray *files; /* of Seen, in order */
    const EcfsSnapshotRow *newest;
    uint64_t n_behind;
} Merging;

static void on_listed (void *user, const EcfsListed *listed)
{
    Merging *self = user;
    Seen seen = {.size = listed->size};
    if (self->files->len < FILES_MAX && ecfs_journal_file_name_parse (listed->name, &seen.file) &&
        seen.file.kind == ECFS_JOURNAL_SEGMENT && seen.file.first <= seen.file.last)
        g_array_append_val (self->files, seen);
}

static int compare (const void *a, const void *b)
{
    return ecfs_segment_compare (&((const Seen *) a)->file, &((const Seen *) b)->file);
}

static Seen *seen_at (const Merging *self, guint i)
{
    return &g_array_index (self->files, Seen, i);
}

static bool is_stopped (Merging *self)
{
    self->stopped = self->stopped || ecfs_now_us () >= self->end_us || (self->stop != NULL && atomic_load (self->stop));
    return self->stopped;
}

/* All records of a segment, without a gap; NULL: it is none of ours, or damaged, or cannot be read. */
static GPtrArray *load (const Merging *self, const Seen *seen)
{
    EcfsJournalFile file;
    char name[ECFS_JOURNAL_NAME_SIZE];
    g_autoptr (GError) why = NULL;
    ecfs_journal_file_name (&seen->file, name);
    if (seen->size > 2 * MERGED_BYTES)
        return NULL;
    g_autoptr (GPtrArray) rows =
        ecfs_journal_load (self->archive, self->endpoint, name, seen->size, RECORDS_MOST, &file, NULL, &why);
    if (rows == NULL) {
        g_info ("a segment stays as it is: %s", why->message);
        return NULL;
    }
    return ecfs_segment_is_whole (&file, rows) ? g_steal_pointer (&rows) : NULL;
}

static bool is_behind (const Merging *self, const EcfsJournalFile *file)
{
    return file->epoch > self->newest->epoch ||
           (file->epoch == self->newest->epoch && file->last > self->newest->sequence);
}

static bool remove_file (Merging *self, Seen *seen, GError **error)
{
    char name[ECFS_JOURNAL_NAME_SIZE];
    g_autoptr (GError) why = NULL;
    ecfs_journal_file_name (&seen->file, name);
    if (ecfs_endpoint_remove_wait (self->endpoint, name, &why) || why->code == ENOENT) {
        seen->covered = true;
        return true;
    }
    g_propagate_error (error, g_steal_pointer (&why));
    return false;
}

/* Those that another one contains, as a merging that broke off has left them. */

/* Removes what @wide contains from @from on, if it says the same. *ret_end is the first that it does not contain. */
static bool remove_contained (Merging *self, guint at, guint *ret_end, GError **error)
{
    Seen *wide = seen_at (self, at);
    g_autoptr (GPtrArray) rows = NULL;
    guint end = at + 1;
    for (; end < self->files->len && ecfs_segment_contains (&wide->file, &seen_at (self, end)->file) &&
           !is_stopped (self);
         end++) {
        Seen *seen = seen_at (self, end);
        rows = rows == NULL && !wide->stays ? load (self, wide) : rows;
        g_autoptr (GPtrArray) some = rows == NULL ? NULL : load (self, seen);
        if (some == NULL || !ecfs_segment_has_rows (rows, seen->file.first - wide->file.first, some))
            seen->stays = wide->stays = true;
        else if (!remove_file (self, seen, error))
            return false;
    }
    *ret_end = end;
    return true;
}

static bool remove_all_contained (Merging *self, GError **error)
{
    for (guint at = 0; at < self->files->len && !is_stopped (self);)
        if (!remove_contained (self, at, &at, error))
            return false;
    return true;
}

/* Making one of many */

/* Of records of one history each says what the one before it was. */
static bool is_continued (const EcfsJournalRow *last, const EcfsJournalRow *next)
{
    uint8_t told[ECFS_JOURNAL_SUM_BYTES], sum[ECFS_JOURNAL_SUM_BYTES];
    if (!ecfs_journal_previous (next->record->data, next->record->len, told))
        return true; /* an ecfs of before that wrote it */
    ecfs_journal_sum (last->sequence, last->time_ns, last->record->data, last->record->len, sum);
    return memcmp (sum, told, sizeof sum) == 0;
}

static bool is_small (const Seen *seen)
{
    return seen->size < SMALL_BYTES && !seen->stays && !seen->covered;
}

/* How many from @at on are small, and follow one another. */
static guint count_run (const Merging *self, guint at, guint end)
{
    guint n = 0;
    while (at + n < end && is_small (seen_at (self, at + n)) &&
           (n == 0 || (seen_at (self, at + n)->file.epoch == seen_at (self, at)->file.epoch &&
                       seen_at (self, at + n)->file.first == seen_at (self, at + n - 1)->file.last + 1)))
        n++;
    return n;
}

/* Takes the records of those from @at on, as many as make one. Returns how many these are. */
static guint gather (Merging *self, guint at, guint n_run, GPtrArray *rows)
{
    size_t bytes = 0;
    guint n = 0;
    for (; n < n_run && bytes < MERGED_BYTES && !is_stopped (self); n++) {
        g_autoptr (GPtrArray) more = load (self, seen_at (self, at + n));
        if (more == NULL ||
            (rows->len > 0 && !is_continued (g_ptr_array_index (rows, rows->len - 1), g_ptr_array_index (more, 0)))) {
            seen_at (self, at + n)->stays = true;
            return n;
        }
        for (guint i = 0; i < more->len; i++)
            bytes += ((const EcfsJournalRow *) g_ptr_array_index (more, i))->record->len + ECFS_JOURNAL_RECORD_HEAD;
        g_ptr_array_extend_and_steal (rows, g_steal_pointer (&more));
    }
    return n;
}

/* Stores them as one, and reads that back. */
static bool store (Merging *self, const EcfsJournalFile *first, const GPtrArray *rows, GError **error)
{
    const EcfsJournalRow *last = g_ptr_array_index (rows, rows->len - 1);
    Seen merged = {.file = {.archive = *ecfs_catalog_archive (ecfs_archive_catalog (self->archive)),
                            .kind = ECFS_JOURNAL_SEGMENT,
                            .epoch = first->epoch,
                            .first = first->first,
                            .last = last->sequence,
                            .time_ns = last->time_ns,
                            .n_records = rows->len}};
    char name[ECFS_JOURNAL_NAME_SIZE];
    g_autoptr (GByteArray) raw = g_byte_array_new ();
    g_autoptr (GError) why = NULL;
    for (guint i = 0; i < rows->len; i++) {
        const EcfsJournalRow *row = g_ptr_array_index (rows, i);
        ecfs_journal_file_put (raw, row->sequence, row->time_ns, row->record->data, row->record->len);
    }
    g_autoptr (GByteArray) bytes = ecfs_journal_file_format (&merged.file, raw, ecfs_archive_keys (self->archive));
    ecfs_journal_file_name (&merged.file, name);
    merged.size = bytes->len;
    if (!ecfs_journal_store (self->endpoint, name, bytes, self->stop, &why)) {
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    }
    self->n_behind += is_behind (self, &merged.file);
    g_autoptr (GPtrArray) there = load (self, &merged);
    return (there != NULL && there->len == rows->len && ecfs_segment_has_rows (there, 0, rows)) ||
           ecfs_fail (error, EIO, "endpoint %s: %s does not read as it was stored", ecfs_endpoint_name (self->endpoint),
                      name);
}

/* Makes one of those from @at on, up to @end. *ret_next is where it goes on. */
static bool merge_some (Merging *self, guint at, guint end, guint *ret_next, GError **error)
{
    guint n_run = count_run (self, at, end);
    *ret_next = at + MAX (n_run, 1);
    if (n_run < GROUP_LEAST)
        return true;
    g_autoptr (GPtrArray) rows = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_journal_row_free);
    guint n = gather (self, at, n_run, rows);
    *ret_next = at + MAX (n, 1);
    if (n < GROUP_LEAST || is_stopped (self))
        return true;
    if (!store (self, &seen_at (self, at)->file, rows, error))
        return false;
    for (guint i = 0; i < n; i++)
        seen_at (self, at + i)->covered = true;
    return true;
}

static bool merge (Merging *self, GError **error)
{
    guint n_small = 0;
    if (!ecfs_endpoint_list_wait (self->endpoint, ECFS_JOURNAL_DIRECTORY, on_listed, self, error))
        return false;
    for (guint i = 0; i < self->files->len; i++)
        n_small += is_small (seen_at (self, i));
    if (n_small < atomic_load (&ecfs_merge_least))
        return true;
    g_array_sort (self->files, compare);
    for (guint i = self->files->len; i-- > 1;) /* a list may name a file twice */
        if (compare (seen_at (self, i - 1), seen_at (self, i)) == 0)
            g_array_remove_index (self->files, i);
    if (!remove_all_contained (self, error))
        return false;
    guint end = self->files->len - MIN (self->files->len, N_NEWEST);
    for (guint at = 0; at < end && !is_stopped (self);)
        if (!merge_some (self, at, end, &at, error))
            return false;
    return true;
}

bool ecfs_journal_merge (EcfsArchive *archive, EcfsEndpoint *endpoint, const EcfsSnapshotRow *newest, int64_t end_us,
                         const atomic_bool *stop, EcfsMerged *ret_merged, GError **error)
{
    g_autoptr (GArray) files = g_array_new (FALSE, FALSE, sizeof (Seen));
    Merging self = {
        .archive = archive, .endpoint = endpoint, .stop = stop, .end_us = end_us, .files = files, .newest = newest};
    bool merged = merge (&self, error);
    for (guint i = 0; i < files->len; i++)
        self.n_behind += !seen_at (&self, i)->covered && is_behind (&self, &seen_at (&self, i)->file);
    *ret_merged = (EcfsMerged){.is_done = merged && !self.stopped, .n_behind = self.n_behind};
    return merged;
}
