/* Snapshots and segments, as endpoints have them. */
#include "archive/recover_priv.h"
#include "catalog/journal_file.h"

#include <inttypes.h>
#include <unistd.h>

/* A copy of a journal file. */
typedef struct Copy {
    size_t position; /* of the place that has it */
    uint64_t size;   /* there: one that was cut off says nothing about others */
} Copy;

/* A journal file, and who has it. */
typedef struct Found {
    char *name;
    EcfsJournalFile file;
    uint64_t end;   /* of a segment: its last record that counts, see end_epochs () */
    GArray *copies; /* of Copy */
    bool useless;   /* no copy of it can be read */
} Found;

typedef struct Search {
    EcfsRecovering *recovering;
    GHashTable *by_name; /* name → Found */
    size_t position;
} Search;

static void found_free (gpointer data)
{
    Found *self = data;
    g_free (self->name);
    g_array_unref (self->copies);
    g_free (self);
}

static void on_listed (void *user, const EcfsListed *listed)
{
    Search *self = user;
    EcfsJournalFile file;
    if (!ecfs_journal_file_name_parse (listed->name, &file))
        return;
    Found *found = g_hash_table_lookup (self->by_name, listed->name);
    if (found == NULL) {
        found = g_new (Found, 1);
        *found =
            (Found){.name = g_strdup (listed->name), .file = file, .copies = g_array_new (FALSE, FALSE, sizeof (Copy))};
        g_hash_table_insert (self->by_name, found->name, found);
    }
    const Copy copy = {.position = self->position, .size = listed->size};
    g_array_append_val (found->copies, copy);
}

static int oldest_first (const void *a, const void *b)
{
    const EcfsJournalFile *left = &(*(const Found *const *) a)->file, *right = &(*(const Found *const *) b)->file;
    if (left->epoch != right->epoch)
        return left->epoch < right->epoch ? -1 : 1;
    if (left->last != right->last)
        return left->last < right->last ? -1 : 1;
    return (left->part > right->part) - (left->part < right->part);
}

/* All of one kind, in order; the table keeps them. */
static GPtrArray *of_kind (GHashTable *by_name, EcfsJournalFileKind kind)
{
    GPtrArray *sorted = g_ptr_array_new ();
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init (&iter, by_name);
    while (g_hash_table_iter_next (&iter, NULL, &value))
        if (((Found *) value)->file.kind == kind)
            g_ptr_array_add (sorted, value);
    g_ptr_array_sort (sorted, oldest_first);
    return sorted;
}

/* Whether the file is what its name says, of this archive. */
static bool is_as_named (const EcfsRecovering *self, const Found *found, const EcfsJournalFile *file, GError **error)
{
    char name[ECFS_JOURNAL_NAME_SIZE];
    ecfs_journal_file_name (file, name);
    if (!ecfs_uuid_equal (&file->archive, &self->archive))
        return ecfs_fail (error, EBADMSG, "it is of another archive");
    return g_str_equal (name, found->name) || ecfs_fail (error, EBADMSG, "it is another file, renamed");
}

static GPtrArray *read_copy (EcfsRecovering *self, const Found *found, const Copy *copy, int64_t *ret_time_ns,
                             GError **error)
{
    EcfsJournalFile file;
    g_autoptr (GByteArray) bytes = ecfs_recover_read (&self->places[copy->position], found->name, copy->size, error);
    g_autoptr (GPtrArray) rows = bytes == NULL ? NULL : ecfs_journal_file_parse (bytes->data, bytes->len, &file, error);
    if (rows == NULL || !is_as_named (self, found, &file, error))
        return NULL;
    *ret_time_ns = file.time_ns;
    return g_steal_pointer (&rows);
}

static void tell_useless (EcfsRecovering *self, const Found *found, size_t position, const GError *why)
{
    ecfs_recover_tell (self, "endpoint %s: %s cannot be used: %s", self->places[position].name, found->name,
                       why->message);
}

/* The records of the first copy that can be read, and was made at @made_ns unless that is NULL; NULL: of none, and it
 * is told. */
static GPtrArray *read_found (EcfsRecovering *self, Found *found, const int64_t *made_ns, int64_t *ret_time_ns)
{
    for (guint i = 0; i < found->copies->len; i++) {
        g_autoptr (GError) error = NULL;
        const Copy *copy = &g_array_index (found->copies, Copy, i);
        g_autoptr (GPtrArray) rows = read_copy (self, found, copy, ret_time_ns, &error);
        if (rows == NULL)
            tell_useless (self, found, copy->position, error);
        else if (made_ns == NULL || *made_ns == *ret_time_ns)
            return g_steal_pointer (&rows);
    }
    found->useless = true;
    return NULL;
}

/* Snapshots: parts belong together where they are of one taking, which its time tells. One that did not come to its end
 * leaves parts under names that the next may have too. */

/* Part @number before @last; NULL: nobody has it. */
static Found *find_part (const GPtrArray *parts, const Found *last, uint32_t number)
{
    for (guint i = 0; i < parts->len; i++) {
        Found *found = g_ptr_array_index (parts, i);
        const EcfsJournalFile *file = &found->file;
        if (file->epoch == last->file.epoch && file->last == last->file.last && file->part == number && !file->is_last)
            return found;
    }
    return NULL;
}

static bool has_parts (const GPtrArray *parts, const Found *last)
{
    for (uint32_t number = 0; number < last->file.part; number++)
        if (find_part (parts, last, number) == NULL)
            return false;
    return true;
}

/* Reads the parts into a new catalog; @last_rows are those of the last. False without an error: they cannot be read. */
static bool apply_snapshot (EcfsRecovering *self, const GPtrArray *parts, const Found *last, GPtrArray *last_rows,
                            int64_t time_ns, GError **error)
{
    uint32_t n_before = last->file.part;
    for (uint32_t number = 0; number <= n_before; number++) {
        int64_t same_ns;
        g_autoptr (GPtrArray) rows = number < n_before
                                         ? read_found (self, find_part (parts, last, number), &time_ns, &same_ns)
                                         : g_ptr_array_ref (last_rows);
        if (rows == NULL || !ecfs_restore_records (self->restore, rows, &self->sums->n_refused, error) ||
            !ecfs_recover_tick (self, "snapshot", number + 1, n_before + 1, error))
            return false;
    }
    self->sums->time_ns = time_ns;
    return true;
}

static void close_catalog (EcfsRecovering *self, const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    g_clear_pointer (&self->restore, ecfs_restore_free);
    (void) ecfs_catalog_close (g_steal_pointer (&self->catalog), NULL); /* it is thrown away */
    self->sums->n_refused = 0;
    for (size_t i = 0; i < G_N_ELEMENTS (suffixes); i++) {
        g_autofree char *name = g_strconcat (path, suffixes[i], NULL);
        (void) unlink (name); /* what is there fails the next */
    }
}

/* An empty catalog that knows the endpoints. */
static bool open_catalog (EcfsRecovering *self, const char *path, GError **error)
{
    if (!ecfs_catalog_create (path, &self->archive, error))
        return false;
    self->catalog = ecfs_catalog_open (path, 0, error);
    if (self->catalog == NULL)
        return false;
    self->restore = ecfs_restore_new (self->catalog);
    for (size_t i = 0; i < self->n_places; i++)
        if (!ecfs_restore_endpoint (self->restore, &self->places[i].marker.endpoint, self->places[i].name,
                                    &self->places[i].id, error))
            return false;
    return true;
}

/* Makes the catalog of a taking that ended with @last, if one can be read. */
static bool try_snapshot (EcfsRecovering *self, const GPtrArray *parts, const Found *last, const char *path,
                          bool *ret_made, GError **error)
{
    int64_t time_ns, failed_ns = INT64_MIN;
    for (guint i = 0; i < last->copies->len && !*ret_made; i++) {
        GError *reason = NULL;
        const Copy *copy = &g_array_index (last->copies, Copy, i);
        g_autoptr (GPtrArray) rows = read_copy (self, last, copy, &time_ns, &reason);
        if (rows == NULL) {
            tell_useless (self, last, copy->position, reason);
            g_error_free (reason);
            continue;
        }
        if (time_ns == failed_ns)
            continue;
        failed_ns = time_ns;
        if (!open_catalog (self, path, error))
            return false;
        *ret_made = apply_snapshot (self, parts, last, rows, time_ns, &reason);
        if (reason != NULL) {
            g_propagate_error (error, reason);
            return false;
        }
        if (!*ret_made)
            close_catalog (self, path);
    }
    return true;
}

/* Makes the catalog of the newest snapshot that can be read, or an empty one. Sets where it stands. */
static bool begin_catalog (EcfsRecovering *self, const GPtrArray *parts, const char *path, uint32_t *ret_epoch,
                           GError **error)
{
    for (guint i = parts->len; i-- > 0;) {
        const Found *last = g_ptr_array_index (parts, i);
        bool made = false;
        if (!last->file.is_last || !has_parts (parts, last))
            continue;
        if (!try_snapshot (self, parts, last, path, &made, error))
            return false;
        if (!made)
            continue;
        self->sums->has_snapshot = true;
        self->sums->sequence = last->file.last;
        *ret_epoch = last->file.epoch;
        return true;
    }
    *ret_epoch = 0;
    self->sums->sequence = 0;
    return open_catalog (self, path, error);
}

/* Segments */

static const Found *segment_at (const GPtrArray *segments, guint i)
{
    return g_ptr_array_index (segments, i);
}

/* Sets the ends of all: where a later epoch begins, what an older copy wrote from there on was written in vain. */
static void end_epochs (EcfsRecovering *self, const GPtrArray *segments)
{
    uint64_t end = UINT64_MAX, next_end = UINT64_MAX, vain_from = UINT64_MAX;
    for (guint i = segments->len; i-- > 0;) {
        Found *found = g_ptr_array_index (segments, i);
        if (i + 1 < segments->len && segment_at (segments, i + 1)->file.epoch != found->file.epoch)
            end = next_end;
        next_end = MIN (next_end, found->file.first - 1);
        found->end = MIN (found->file.last, end);
        if (found->file.last > end)
            vain_from = MIN (vain_from, MAX (end + 1, found->file.first));
    }
    if (vain_from < UINT64_MAX)
        ecfs_recover_tell (self,
                           "the journal has changes, from %" PRIu64 " on, of a copy of the archive directory that was "
                           "given up when another was recovered; they do not count",
                           vain_from);
}

/* The first that is not before (@epoch, @last). */
static guint find_not_before (const GPtrArray *segments, uint32_t epoch, uint64_t last)
{
    guint low = 0, high = segments->len;
    while (low < high) {
        guint middle = low + (high - low) / 2;
        const EcfsJournalFile *file = &segment_at (segments, middle)->file;
        if (file->epoch < epoch || (file->epoch == epoch && file->last < last))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The segment with the record @sequence, of the newest epoch that has it. */
static Found *find_segment (const GPtrArray *segments, uint32_t epoch, uint64_t sequence)
{
    for (guint end = segments->len; end > 0 && segment_at (segments, end - 1)->file.epoch >= epoch;) {
        uint32_t of_these = segment_at (segments, end - 1)->file.epoch;
        for (guint i = find_not_before (segments, of_these, sequence); i < end; i++) {
            Found *found = g_ptr_array_index (segments, i);
            if (!found->useless && found->file.first <= sequence && sequence <= found->end)
                return found;
        }
        end = find_not_before (segments, of_these, 0);
    }
    return NULL;
}

/* Takes out what is not wanted: up to @from, and behind @to. */
static void cut_rows (GPtrArray *rows, uint64_t from, uint64_t to)
{
    guint n_before = 0, n_kept = 0;
    for (guint i = 0; i < rows->len; i++) {
        const EcfsJournalRow *row = g_ptr_array_index (rows, i);
        n_before += row->sequence <= from;
        n_kept += row->sequence > from && row->sequence <= to;
    }
    if (n_before + n_kept < rows->len)
        g_ptr_array_remove_range (rows, n_before + n_kept, rows->len - n_before - n_kept);
    if (n_before > 0)
        g_ptr_array_remove_range (rows, 0, n_before);
}

static bool apply_segments (EcfsRecovering *self, const GPtrArray *segments, uint32_t *epoch, GError **error)
{
    uint64_t n_applied = 0;
    Found *found;
    while ((found = find_segment (segments, *epoch, self->sums->sequence + 1)) != NULL) {
        int64_t time_ns;
        g_autoptr (GPtrArray) rows = read_found (self, found, NULL, &time_ns);
        if (rows == NULL)
            continue; /* it is useless now */
        *epoch = found->file.epoch;
        uint64_t last = found->end;
        cut_rows (rows, self->sums->sequence, last);
        if (!ecfs_restore_records (self->restore, rows, &self->sums->n_refused, error) ||
            !ecfs_recover_tick (self, "journal", ++n_applied, segments->len, error))
            return false;
        self->sums->n_records += rows->len;
        self->sums->sequence = last;
        self->sums->time_ns = time_ns;
    }
    return true;
}

/* Segments that could not be used since others are missing before them. */
static void tell_gap (EcfsRecovering *self, const GPtrArray *segments, uint32_t epoch)
{
    uint64_t first = UINT64_MAX, last = 0;
    for (guint i = 0; i < segments->len; i++) {
        const EcfsJournalFile *file = &((const Found *) g_ptr_array_index (segments, i))->file;
        if (file->epoch < epoch || file->last <= self->sums->sequence || file->first > segment_at (segments, i)->end)
            continue;
        first = MIN (first, file->first);
        last = MAX (last, file->last);
    }
    if (last > 0)
        ecfs_recover_tell (self,
                           "the journal has a gap: its changes from %" PRIu64
                           " on are missing or damaged, and those up "
                           "to %" PRIu64 " behind them cannot be used; names are as of change %" PRIu64,
                           self->sums->sequence + 1, last, self->sums->sequence);
}

static bool search (EcfsRecovering *self, GHashTable *by_name, GError **error)
{
    for (size_t i = 0; i < self->n_places; i++) {
        Search one = {.recovering = self, .by_name = by_name, .position = i};
        if (!ecfs_endpoint_list_wait (self->places[i].endpoint, ECFS_JOURNAL_DIRECTORY, on_listed, &one, error) ||
            !ecfs_endpoint_list_wait (self->places[i].endpoint, ECFS_SNAPSHOT_DIRECTORY, on_listed, &one, error))
            return false;
    }
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init (&iter, by_name);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        const Found *found = value;
        self->epoch = MAX (self->epoch, found->file.epoch);
        self->sequence = MAX (self->sequence, found->file.last);
    }
    return true;
}

bool ecfs_recover_journal (EcfsRecovering *self, const char *path, GError **error)
{
    uint32_t *epoch = &self->journal_epoch;
    g_autoptr (GHashTable) by_name = g_hash_table_new_full (g_str_hash, g_str_equal, NULL, found_free);
    if (!search (self, by_name, error))
        return false;
    g_autoptr (GPtrArray) parts = of_kind (by_name, ECFS_JOURNAL_SNAPSHOT);
    g_autoptr (GPtrArray) segments = of_kind (by_name, ECFS_JOURNAL_SEGMENT);
    end_epochs (self, segments);
    if (!begin_catalog (self, parts, path, epoch, error) || !apply_segments (self, segments, epoch, error))
        return false;
    tell_gap (self, segments, *epoch);
    return true;
}
