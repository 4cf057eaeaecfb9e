/*
 * The journal. What a snapshot has the records of goes, and older snapshots, as a mount decides it where it deletes
 * (journal/superfluous.h); but here nobody is believed who only has the key:
 *
 * - the snapshot is read at as many endpoints as have to have it, which say alike that they have long had it;
 * - it tells of the same archive as all records up to it do, which are read one by one: else a thief would take one of
 *   an empty archive, and wait;
 * - what died by the records that go was removed, or the snapshot knows it, too: nobody could tell it otherwise.
 */
#include "verbs/prune_priv.h"

#include "archive/common.h"
#include "catalog/compare.h"
#include "catalog/marks.h"
#include "catalog/restore.h"
#include "util/sha256.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define MADE_NAME "prune-snapshot.sqlite" /* the catalog that the snapshot makes, … */
#define SEEN_NAME "prune-records.sqlite"  /* … and the one that all records up to it make */
#define READERS   16

static const EcfsPruneFile *file_at (const EcfsPruning *self, guint i)
{
    return &g_array_index (self->times.files, EcfsPruneFile, i);
}

static void remove_catalog (const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    for (size_t i = 0; path != NULL && i < G_N_ELEMENTS (suffixes); i++) {
        g_autofree char *name = g_strconcat (path, suffixes[i], NULL);
        (void) unlink (name); /* what stays is in the way of the next, which tells it */
    }
}

/* Choosing */

static bool is_of (const EcfsPruneFile *file, const EcfsSnapshotRow *row)
{
    return file->file.kind == ECFS_JOURNAL_SNAPSHOT && file->file.epoch == row->epoch &&
           file->file.last == row->sequence;
}

static const EcfsPruneFile *find_part (const EcfsPruning *self, size_t position, const EcfsSnapshotRow *row,
                                       uint32_t part)
{
    for (guint i = 0; i < self->times.files->len; i++)
        if (file_at (self, i)->position == position && is_of (file_at (self, i), row) &&
            file_at (self, i)->file.part == part)
            return file_at (self, i);
    return NULL;
}

static int newest_first (const void *a, const void *b)
{
    const EcfsSnapshotRow *left = a;
    return -ecfs_snapshot_compare (left->epoch, left->sequence, b);
}

/* All that have an end somewhere; nothing is known of their copies yet. */
static GArray *list_snapshots (const EcfsPruning *self)
{
    GArray *rows = g_array_new (FALSE, FALSE, sizeof (EcfsSnapshotRow));
    for (guint i = 0; i < self->times.files->len; i++) {
        const EcfsJournalFile *file = &file_at (self, i)->file;
        const EcfsSnapshotRow row = {.epoch = file->epoch, .sequence = file->last};
        if (file->kind == ECFS_JOURNAL_SNAPSHOT && file->is_last)
            g_array_append_val (rows, row);
    }
    g_array_sort (rows, newest_first);
    for (guint i = rows->len; i-- > 1;)
        if (newest_first (&g_array_index (rows, EcfsSnapshotRow, i - 1), &g_array_index (rows, EcfsSnapshotRow, i)) ==
            0)
            g_array_remove_index (rows, i);
    return rows;
}

/* A part that is the archive's: records, and when it was taken. */
static GPtrArray *load_part (const EcfsPruning *self, const EcfsPruneFile *file, int64_t *ret_time_ns)
{
    EcfsJournalFile read;
    g_autoptr (GPtrArray) rows = ecfs_prune_place_load (self, file, &read);
    if (rows == NULL || read.is_sealed != (ecfs_archive_keys (self->archive) != NULL) ||
        !ecfs_uuid_equal (&read.archive, ecfs_catalog_archive (ecfs_archive_catalog (self->archive))))
        return NULL;
    *ret_time_ns = read.time_ns;
    return g_steal_pointer (&rows);
}

static void add_to_sum (EcfsSha256 *sum, const GPtrArray *rows)
{
    g_autoptr (GByteArray) head = g_byte_array_new ();
    for (guint i = 0; i < rows->len; i++) {
        const EcfsJournalRow *row = g_ptr_array_index (rows, i);
        ecfs_append_le (head, row->sequence, 8);
        ecfs_append_le (head, row->record->len, 8);
        ecfs_sha256_update (sum, head->data, head->len);
        ecfs_sha256_update (sum, row->record->data, row->record->len);
        g_byte_array_set_size (head, 0);
    }
}

/* One endpoint's copy, as a whole. */
typedef struct Copy {
    bool is_whole;
    int64_t time_ns;
    uint8_t sum[ECFS_SHA256_SIZE]; /* of all of its records */
} Copy;

static void read_copy (const EcfsPruning *self, size_t position, const EcfsSnapshotRow *row, Copy *copy)
{
    bool is_last = false;
    g_autoptr (EcfsSha256) sum = ecfs_sha256_new ();
    *copy = (Copy){.is_whole = false};
    for (uint32_t part = 0; !is_last; part++) {
        int64_t time_ns;
        const EcfsPruneFile *file = find_part (self, position, row, part);
        g_autoptr (GPtrArray) rows = file == NULL ? NULL : load_part (self, file, &time_ns);
        if (rows == NULL || (part > 0 && time_ns != copy->time_ns))
            return;
        copy->time_ns = time_ns;
        is_last = file->file.is_last;
        add_to_sum (sum, rows);
    }
    ecfs_sha256_end (sum, copy->sum);
    copy->is_whole = true;
}

static unsigned count_same (const Copy *copies, size_t n)
{
    unsigned n_same = 0;
    for (size_t i = 0; i <= n; i++)
        n_same += copies[i].is_whole && copies[i].time_ns == copies[n].time_ns &&
                  memcmp (copies[i].sum, copies[n].sum, sizeof copies[n].sum) == 0;
    return n_same;
}

/* Reads copies until so many are the same as have to be. *row: how many are, and since when; *ret_position: one of
 * these. */
static bool read_copies (EcfsPruning *self, EcfsSnapshotRow *row, size_t *ret_position, GError **error)
{
    g_autofree Copy *copies = g_new0 (Copy, self->n_places + 1);
    row->n_copies = 0;
    for (size_t i = 0; i < self->n_places && row->n_copies < self->times.n_copies; i++) {
        if (!ecfs_prune_tick (self, "snapshots", i, self->n_places, error))
            return false;
        if (self->places[i].error == NULL)
            read_copy (self, i, row, &copies[i]);
        const unsigned n_same = copies[i].is_whole ? count_same (copies, i) : 0;
        if (n_same <= row->n_copies)
            continue;
        row->n_copies = n_same;
        row->time_ns = MAX (row->time_ns, copies[i].time_ns);
        *ret_position = i;
    }
    return true;
}

/* Makes the catalog of a copy. False without an error: it does not make one. */
static bool make_catalog (EcfsPruning *self, const EcfsSnapshotRow *row, size_t position, GError **error)
{
    bool is_last = false, good = true;
    uint64_t n_refused = 0;
    const char *path = self->journal.made;
    remove_catalog (path);
    if (!ecfs_catalog_create (path, ecfs_catalog_archive (ecfs_archive_catalog (self->archive)), error))
        return false;
    EcfsCatalog *catalog = ecfs_catalog_open (path, 0, error);
    if (catalog == NULL)
        return false;
    EcfsRestore *restore = ecfs_restore_new (catalog);
    good = ecfs_restore_begin_snapshot (restore, error);
    for (uint32_t part = 0; good && !is_last; part++) {
        int64_t time_ns;
        const EcfsPruneFile *file = find_part (self, position, row, part);
        g_autoptr (GPtrArray) rows = file == NULL ? NULL : load_part (self, file, &time_ns);
        good = rows != NULL && ecfs_restore_records (restore, rows, &n_refused, error);
        is_last = file != NULL && file->file.is_last;
    }
    good = good && ecfs_restore_end_snapshot (restore, error);
    ecfs_restore_free (restore);
    good = good && n_refused == 0 && ecfs_catalog_barrier (catalog, error);
    (void) ecfs_catalog_close (catalog, NULL); /* what there is of it is durable */
    return good;
}

static const EcfsPruneFile *find_end (const EcfsPruning *self, const EcfsSnapshotRow *row)
{
    for (guint i = 0; i < self->times.files->len; i++)
        if (is_of (file_at (self, i), row) && file_at (self, i)->file.is_last)
            return file_at (self, i);
    return NULL;
}

/* Whether what is before the last of @rows may go. */
static bool try_snapshot (EcfsPruning *self, GArray *rows, const GArray *marks, bool *ret_may, GError **error)
{
    EcfsSnapshotRow *row = &g_array_index (rows, EcfsSnapshotRow, rows->len - 1);
    const EcfsJournalNeeds needs = {
        .n_copies = (unsigned) self->times.n_copies, .since_ns = self->past.then_ns, .marks = marks};
    size_t position = 0;
    *ret_may = false;
    row->n_copies = needs.n_copies; /* until it is known */
    row->time_ns = ecfs_prune_snapshot_time (&self->times, &find_end (self, row)->file);
    if (!ecfs_journal_may_go (rows, &needs))
        return true;
    if (!read_copies (self, row, &position, error))
        return false;
    if (!ecfs_journal_may_go (rows, &needs))
        return true;
    GError *why = NULL;
    *ret_may = make_catalog (self, row, position, &why);
    if (why != NULL)
        g_propagate_error (error, why);
    return why == NULL;
}

bool ecfs_prune_journal_choose (EcfsPruning *self, GError **error)
{
    const char *directory = ecfs_archive_directory (self->archive);
    EcfsPruneJournal *journal = &self->journal;
    g_autoptr (GArray) marks = ecfs_catalog_marks (ecfs_archive_catalog (self->archive), error);
    if (marks == NULL)
        return false;
    journal->made = g_build_filename (directory, MADE_NAME, NULL);
    journal->seen = g_build_filename (directory, SEEN_NAME, NULL);
    g_autoptr (GArray) all = list_snapshots (self), rows = g_array_new (FALSE, FALSE, sizeof (EcfsSnapshotRow));
    for (guint i = 0; i < all->len; i++) {
        bool may;
        g_array_append_val (rows, g_array_index (all, EcfsSnapshotRow, i));
        if (!try_snapshot (self, rows, marks, &may, error))
            return false;
        if (!may)
            continue;
        journal->snapshots = g_steal_pointer (&rows);
        self->past.base = &g_array_index (journal->snapshots, EcfsSnapshotRow, i);
        self->past.base_path = journal->seen;
        return true;
    }
    return true;
}

/* Judging */

static char *stays (const char *format, ...) G_GNUC_PRINTF (1, 2);

static char *stays (const char *format, ...)
{
    va_list arguments;
    va_start (arguments, format);
    char *text = g_strdup_vprintf (format, arguments);
    va_end (arguments);
    return text;
}

/* What others have is not known where one cannot be looked at. */
static char *find_unseen (const EcfsPruning *self)
{
    for (size_t i = 0; i < ecfs_archive_n_endpoints (self->archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, i);
        bool is_seen = !ecfs_archive_endpoint_counts (endpoint);
        for (size_t j = 0; j < self->n_places && !is_seen; j++)
            is_seen = g_str_equal (self->places[j].name, endpoint->name) && self->places[j].error == NULL;
        if (!is_seen)
            return stays ("endpoint %s cannot be looked at, and may have what died by it", endpoint->name);
    }
    return NULL;
}

/* Whether what is left there is known to have died without the records that go. */
static bool is_known (const EcfsPruning *self, EcfsCatalog *made, const EcfsPruneDead *stripe, bool *ret_known,
                      GError **error)
{
    EcfsDeath death = {.number = 0}, later = {.number = 0};
    EcfsCatalog *all = ecfs_archive_catalog (self->past.archive);
    if (!ecfs_catalog_death (made, &stripe->object, stripe->index, stripe->instance, &death, error) ||
        (!self->past.is_cut &&
         !ecfs_catalog_death (all, &stripe->object, stripe->index, stripe->instance, &later, error)))
        return false;
    *ret_known = death.number > 0 || later.number > self->past.base_death;
    return true;
}

static bool find_unknown (const EcfsPruning *self, char **ret_why, GError **error)
{
    bool good = true, known = true;
    EcfsCatalog *made = ecfs_catalog_open (self->journal.made, ECFS_CATALOG_READONLY, error);
    if (made == NULL)
        return false;
    for (size_t i = 0; good && known && i < self->n_places; i++)
        for (guint j = 0; good && known && j < self->places[i].left->len; j++) {
            const EcfsPruneDead *stripe = &g_array_index (self->places[i].left, EcfsPruneDead, j);
            good = is_known (self, made, stripe, &known, error);
            if (good && !known)
                *ret_why =
                    stripe->is_strange
                        ? stays ("dead files at endpoint %s that are not provably what their names say are known "
                                 "for dead by it alone: --unproven %s removes these, too",
                                 self->places[i].name, self->places[i].name)
                        : stays ("dead files at endpoint %s that it says are new are known for dead by it alone",
                                 self->places[i].name);
        }
    (void) ecfs_catalog_close (made, NULL); /* nothing was written there */
    return good;
}

static bool compare (const EcfsPruning *self, char **ret_why, GError **error)
{
    const char *difference;
    if (!ecfs_catalogs_compare (self->journal.seen, self->journal.made, &difference, error))
        return false;
    if (difference != NULL)
        *ret_why =
            stays ("the snapshot of change %" PRIu64 " tells something else than the changes before it (%s): whoever "
                   "made it may want these to be removed",
                   self->past.base->sequence, difference);
    return true;
}

bool ecfs_prune_journal_judge (EcfsPruning *self, GError **error)
{
    EcfsPruneJournal *journal = &self->journal;
    g_clear_pointer (&journal->stays, g_free);
    if (journal->snapshots == NULL)
        journal->stays = stays ("no snapshot that %zu endpoints have is old enough, and from before all marks",
                                self->times.n_copies);
    else if (!self->past.has_base)
        journal->stays =
            stays ("its records do not lead to the snapshot of change %" PRIu64, self->past.base->sequence);
    else
        journal->stays = find_unseen (self);
    return journal->stays != NULL || (compare (self, &journal->stays, error) &&
                                      (journal->stays != NULL || find_unknown (self, &journal->stays, error)));
}

/* What there is of it at one endpoint */

typedef struct Looking {
    const EcfsPruning *pruning;
    const EcfsPruneFile *file;
    bool is_readable;
} Looking;

static void look (void *data)
{
    Looking *self = data;
    EcfsJournalFile read;
    g_autoptr (GPtrArray) rows = ecfs_prune_place_load (self->pruning, self->file, &read);
    self->is_readable = rows != NULL;
}

static void add_file (EcfsPrunePlace *place, const EcfsPruneFile *file)
{
    char name[ECFS_JOURNAL_NAME_SIZE];
    const bool is_segment = file->file.kind == ECFS_JOURNAL_SEGMENT;
    ecfs_journal_file_name (&file->file, name);
    ecfs_prune_place_add_old (place, is_segment ? ECFS_PRUNE_JOURNAL : ECFS_PRUNE_SNAPSHOTS, name, file->size,
                              file->mtime_s);
}

static int oldest_first (const void *a, const void *b)
{
    return ecfs_segment_compare (&(*(const EcfsPruneFile *const *) a)->file,
                                 &(*(const EcfsPruneFile *const *) b)->file);
}

/* Those of an endpoint that are old enough; g_ptr_array_unref (). */
static GPtrArray *old_files (const EcfsPruning *self, const EcfsPrunePlace *place)
{
    GPtrArray *files = g_ptr_array_new ();
    const size_t position = (size_t) (place - self->places);
    for (guint i = 0; i < self->times.files->len; i++)
        if (file_at (self, i)->position == position &&
            ecfs_prune_place_is_old (place, self, file_at (self, i)->mtime_s))
            g_ptr_array_add (files, (gpointer) file_at (self, i));
    g_ptr_array_sort (files, oldest_first);
    return files;
}

static bool is_superfluous (const EcfsPruning *self, const EcfsPruneFile *file)
{
    return self->journal.stays == NULL && ecfs_journal_is_superfluous (self->journal.snapshots, &file->file);
}

/* What cannot be read stays, whatever it is called. */
static void add_superfluous (EcfsPruning *self, EcfsPrunePlace *place, const GPtrArray *files)
{
    g_autofree Looking *looking = g_new0 (Looking, files->len + 1);
    EcfsWorkers *workers = ecfs_workers_new ("ecfs-prune", READERS);
    for (guint i = 0; i < files->len; i++) {
        looking[i] = (Looking){.pruning = self, .file = g_ptr_array_index (files, i)};
        if (is_superfluous (self, looking[i].file))
            ecfs_workers_push (workers, look, &looking[i]);
    }
    ecfs_workers_free (workers);
    for (guint i = 0; i < files->len; i++) {
        if (looking[i].is_readable)
            add_file (place, looking[i].file);
        else if (is_superfluous (self, looking[i].file))
            ecfs_prune_add (&place->unreadable, looking[i].file->size);
    }
}

/* All records of a segment; NULL: it is damaged, or cannot be read. */
static GPtrArray *load_segment (const EcfsPruning *self, const EcfsPruneFile *file)
{
    EcfsJournalFile read;
    g_autoptr (GPtrArray) rows = ecfs_prune_place_load (self, file, &read);
    return rows != NULL && ecfs_segment_is_whole (&file->file, rows) ? g_steal_pointer (&rows) : NULL;
}

/* Of segments that stay: those of which another that is old, too, has the same records. */
static void add_contained (EcfsPruning *self, EcfsPrunePlace *place, const GPtrArray *files)
{
    const EcfsPruneFile *wide = NULL;
    g_autoptr (GPtrArray) all = NULL;
    for (guint i = 0; i < files->len; i++) {
        const EcfsPruneFile *file = g_ptr_array_index (files, i);
        if (file->file.kind != ECFS_JOURNAL_SEGMENT || is_superfluous (self, file))
            continue;
        if (wide == NULL || !ecfs_segment_contains (&wide->file, &file->file)) {
            wide = file;
            g_clear_pointer (&all, g_ptr_array_unref);
            continue;
        }
        if (ecfs_segment_compare (&wide->file, &file->file) == 0) /* a list may name a file twice */
            continue;
        all = all == NULL ? load_segment (self, wide) : all;
        g_autoptr (GPtrArray) some = all == NULL ? NULL : load_segment (self, file);
        if (some != NULL && ecfs_segment_has_rows (all, file->file.first - wide->file.first, some))
            add_file (place, file);
    }
}

bool ecfs_prune_journal_find (EcfsPruning *self, EcfsPrunePlace *place, GError **error)
{
    if (!ecfs_prune_tick (self, "journal", (uint64_t) (place - self->places), self->n_places, error))
        return false;
    g_autoptr (GPtrArray) files = old_files (self, place);
    add_superfluous (self, place, files);
    add_contained (self, place, files);
    return true;
}

void ecfs_prune_journal_clear (EcfsPruneJournal *self)
{
    remove_catalog (self->made);
    remove_catalog (self->seen);
    g_clear_pointer (&self->snapshots, g_array_unref);
    g_free (self->made);
    g_free (self->seen);
    g_free (self->stays);
}
