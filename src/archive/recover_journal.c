/*
 * Snapshots and segments, as endpoints have them, and which of them are believed. An endpoint may lie, or have been set
 * back: a file counts when so many endpoints have the same bytes of it as `ecfs wait` asks for, where each endpoint
 * that nobody can ask counts as one that has them. What does not count is left out, and the endpoint is named.
 */
#include "archive/recover_priv.h"
#include "catalog/journal_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

/* Epochs that too few tell of, and that nothing new is called by all the same: what a recovery has left that came to
 * nothing has such names. */
#define EPOCHS_SKIPPED 16

/* A copy of a journal file. */
typedef struct Copy {
    size_t position; /* of the place that has it */
    uint64_t size;   /* there: one that was cut off says nothing about others */
    bool tried;      /* it was read, or could not be */
    char *digest;    /* SHA-256 of its bytes; NULL: it cannot be read, or is damaged */
    int64_t time_ns; /* of its header */
    GPtrArray *rows; /* until somebody has chosen */
} Copy;

/* A journal file, and who has it. */
typedef struct Found {
    char *name;
    EcfsJournalFile file;
    uint64_t end;   /* of a segment: its last record that counts, see end_epochs () */
    GArray *copies; /* of Copy */
    bool useless;   /* no copy of it can be read, or is believed */
} Found;

typedef struct Search {
    EcfsRecovering *recovering;
    GHashTable *by_name; /* name → Found */
    size_t position;
} Search;

static void copy_clear (gpointer data)
{
    Copy *self = data;
    g_clear_pointer (&self->digest, g_free);
    g_clear_pointer (&self->rows, g_ptr_array_unref);
}

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
            (Found){.name = g_strdup (listed->name), .file = file, .copies = g_array_new (FALSE, TRUE, sizeof (Copy))};
        g_array_set_clear_func (found->copies, copy_clear);
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

/* Words */

size_t ecfs_recover_n_silent (const EcfsRecovering *self)
{
    size_t n_words = 0;
    for (size_t i = 0; i < self->n_places; i++)
        n_words += !self->places[i].distrusted && !self->places[i].silent;
    return self->n_known - MIN (n_words, self->n_known);
}

size_t ecfs_recover_least_words (const EcfsRecovering *self)
{
    return MAX (self->n_copies, ecfs_recover_n_silent (self) + 1) - ecfs_recover_n_silent (self);
}

static void doubt (EcfsRecovering *self, size_t position, const char *what)
{
    EcfsRecoverPlace *place = &self->places[position];
    if (place->distrusted || place->n_doubts++ > 2)
        return;
    ecfs_recover_tell (self,
                       "endpoint %s tells of %s, and too few other endpoints do: it is not believed (--believe %s "
                       "takes its word)",
                       place->name, what, place->name);
}

static void doubt_all (EcfsRecovering *self, const Found *found, const char *besides)
{
    for (guint i = 0; i < found->copies->len; i++) {
        const Copy *copy = &g_array_index (found->copies, Copy, i);
        if (copy->tried && copy->digest != NULL && g_strcmp0 (copy->digest, besides) != 0)
            doubt (self, copy->position, found->name);
    }
}

/* Reading */

/* Whether the file is what its name says, of this archive. */
static bool is_as_named (const EcfsRecovering *self, const Found *found, const EcfsJournalFile *file, GError **error)
{
    char name[ECFS_JOURNAL_NAME_SIZE];
    ecfs_journal_file_name (file, name);
    if (!ecfs_uuid_equal (&file->archive, &self->archive))
        return ecfs_fail (error, EBADMSG, "it is of another archive");
    return g_str_equal (name, found->name) || ecfs_fail (error, EBADMSG, "it is another file, renamed");
}

typedef struct Reading {
    EcfsRecovering *recovering;
    const Found *found;
    Copy *copy;
    GError *error;
} Reading;

static void read_copy (void *data)
{
    Reading *self = data;
    Copy *copy = self->copy;
    EcfsJournalFile file;
    EcfsRecoverPlace *place = &self->recovering->places[copy->position];
    g_autoptr (GByteArray) bytes = ecfs_recover_read (place, self->found->name, copy->size, &self->error);
    g_autoptr (GPtrArray) rows =
        bytes == NULL ? NULL : ecfs_journal_file_parse (bytes->data, bytes->len, &file, &self->error);
    copy->tried = true;
    if (rows == NULL || !is_as_named (self->recovering, self->found, &file, &self->error))
        return;
    copy->rows = g_steal_pointer (&rows);
    copy->time_ns = file.time_ns;
    copy->digest = g_compute_checksum_for_data (G_CHECKSUM_SHA256, bytes->data, bytes->len);
}

/* Reads @n_wanted more copies, side by side. */
static void read_copies (EcfsRecovering *self, Found *found, size_t n_wanted)
{
    g_autofree Reading *readings = g_new0 (Reading, found->copies->len);
    size_t n_readings = 0;
    for (guint i = 0; i < found->copies->len && n_readings < n_wanted; i++) {
        Copy *copy = &g_array_index (found->copies, Copy, i);
        if (!copy->tried && !self->places[copy->position].distrusted)
            readings[n_readings++] = (Reading){.recovering = self, .found = found, .copy = copy};
    }
    EcfsWorkers *workers = n_readings > 1 ? ecfs_workers_new ("ecfs-recover", (unsigned) MIN (n_readings, 16)) : NULL;
    for (size_t i = 0; i < n_readings; i++)
        if (workers == NULL)
            read_copy (&readings[i]);
        else
            ecfs_workers_push (workers, read_copy, &readings[i]);
    ecfs_workers_free (workers);
    for (size_t i = 0; i < n_readings; i++)
        if (readings[i].error != NULL) {
            ecfs_recover_tell (self, "endpoint %s: %s cannot be used: %s",
                               self->places[readings[i].copy->position].name, found->name, readings[i].error->message);
            g_error_free (readings[i].error);
        }
}

/* Which bytes of a file most endpoints have. */
typedef struct Version {
    Copy *copy;      /* one of them; NULL: there is none */
    size_t n_copies; /* that are the same */
    size_t n_second; /* copies of the next */
    size_t n_broken; /* copies that cannot be read, and may have been of any */
    size_t n_left;   /* that were not read yet */
    bool is_believed;
} Version;

/* @made_ns: only those of this time; NULL: of any. */
static Version best_version (EcfsRecovering *self, const Found *found, const int64_t *made_ns)
{
    Version best = {.copy = NULL};
    for (guint i = 0; i < found->copies->len; i++) {
        Copy *one = &g_array_index (found->copies, Copy, i);
        size_t n_same = 0;
        bool is_first = true, is_believed = false;
        if (self->places[one->position].distrusted)
            continue;
        best.n_left += !one->tried;
        best.n_broken += one->tried && one->digest == NULL;
        if (one->digest == NULL || (made_ns != NULL && one->time_ns != *made_ns))
            continue;
        for (guint j = 0; j < found->copies->len; j++) {
            const Copy *other = &g_array_index (found->copies, Copy, j);
            if (self->places[other->position].distrusted || g_strcmp0 (other->digest, one->digest) != 0)
                continue;
            is_first = is_first && j >= i;
            n_same++;
            is_believed = is_believed || self->places[other->position].believed;
        }
        if (!is_first)
            continue;
        bool better = best.copy == NULL || is_believed > best.is_believed ||
                      (is_believed == best.is_believed && n_same > best.n_copies);
        best.n_second = better ? best.n_copies : MAX (best.n_second, n_same);
        if (better) {
            best.copy = one;
            best.n_copies = n_same;
            best.is_believed = is_believed;
        }
    }
    return best;
}

static bool version_counts (const EcfsRecovering *self, const Version *version)
{
    return version->copy != NULL &&
           (version->is_believed || version->n_copies + version->n_broken >= ecfs_recover_least_words (self));
}

/* The copy of a file that is believed, with its rows, of @made_ns unless that is NULL. NULL: there is none. */
static const Copy *choose_copy (EcfsRecovering *self, Found *found, const int64_t *made_ns)
{
    Version best = best_version (self, found, made_ns);
    for (size_t n_wanted = ecfs_recover_least_words (self); best.n_left > 0; n_wanted = 1) {
        if (!self->has_believed && version_counts (self, &best) &&
            (best.n_copies >= self->n_copies || best.n_copies > best.n_second + best.n_left))
            break;
        read_copies (self, found, n_wanted);
        best = best_version (self, found, made_ns);
    }
    return version_counts (self, &best) ? best.copy : NULL;
}

/* They are read again when they are asked for. */
static void forget_copies (Found *found)
{
    for (guint i = 0; i < found->copies->len; i++) {
        Copy *copy = &g_array_index (found->copies, Copy, i);
        copy_clear (copy);
        copy->tried = false;
    }
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

/* Reads the parts of a taking into a new catalog. False without an error: they cannot be read. */
static bool apply_snapshot (EcfsRecovering *self, const GPtrArray *parts, Found *last, int64_t time_ns, GError **error)
{
    uint32_t n_before = last->file.part;
    for (uint32_t number = 0; number <= n_before; number++) {
        Found *part = number < n_before ? find_part (parts, last, number) : last;
        const Copy *copy = choose_copy (self, part, &time_ns);
        if (copy == NULL || !ecfs_restore_records (self->restore, copy->rows, &self->sums->n_refused, error))
            return false;
        doubt_all (self, part, copy->digest);
        forget_copies (part);
        if (!ecfs_recover_tick (self, "snapshot", number + 1, n_before + 1, error))
            return false;
    }
    self->sums->time_ns = time_ns;
    return true;
}

void ecfs_recover_forget (EcfsRecovering *self, const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    g_clear_pointer (&self->restore, ecfs_restore_free);
    (void) ecfs_catalog_close (g_steal_pointer (&self->catalog), NULL); /* it is thrown away */
    self->sums->n_refused = self->sums->n_records = 0;
    self->sums->has_snapshot = false;
    self->sums->sequence = 0;
    self->sums->time_ns = 0;
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

/* Makes the catalog of a taking that ended with @last, of this time, if it can be read. */
static bool try_taking (EcfsRecovering *self, const GPtrArray *parts, Found *last, int64_t time_ns, const char *path,
                        bool *ret_made, GError **error)
{
    GError *reason = NULL;
    if (!open_catalog (self, path, error))
        return false;
    *ret_made = apply_snapshot (self, parts, last, time_ns, &reason);
    if (reason != NULL) {
        g_propagate_error (error, reason);
        return false;
    }
    if (!*ret_made)
        ecfs_recover_forget (self, path);
    return true;
}

/* Likewise, of any time: that first which most endpoints have. */
static bool try_snapshot (EcfsRecovering *self, const GPtrArray *parts, Found *last, const char *path, bool *ret_made,
                          GError **error)
{
    const Copy *best = choose_copy (self, last, NULL);
    g_autoptr (GArray) times = g_array_new (FALSE, FALSE, sizeof (int64_t));
    if (best != NULL)
        g_array_append_val (times, best->time_ns);
    for (guint i = 0; best != NULL && i < last->copies->len; i++) {
        const Copy *copy = &g_array_index (last->copies, Copy, i);
        bool known = copy->digest == NULL;
        for (guint j = 0; j < times->len; j++)
            known = known || g_array_index (times, int64_t, j) == copy->time_ns;
        if (!known)
            g_array_append_val (times, copy->time_ns);
    }
    for (guint i = 0; i < times->len && !*ret_made; i++)
        if (!try_taking (self, parts, last, g_array_index (times, int64_t, i), path, ret_made, error))
            return false;
    if (!*ret_made)
        doubt_all (self, last, NULL);
    self->has_doubted = self->has_doubted || !*ret_made;
    forget_copies (last);
    return true;
}

/* Makes the catalog of the newest snapshot that can be read, or an empty one. Sets where it stands. */
static bool begin_catalog (EcfsRecovering *self, const GPtrArray *parts, const char *path, uint32_t *ret_epoch,
                           GError **error)
{
    for (guint i = parts->len; i-- > 0;) {
        Found *last = g_ptr_array_index (parts, i);
        bool made = false;
        if (!last->file.is_last || last->file.epoch > self->epoch || !has_parts (parts, last))
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

/* Endpoints whose word counts that have a file of this name. */
static size_t count_words (const EcfsRecovering *self, const Found *found, bool *ret_believed)
{
    size_t n_words = 0;
    *ret_believed = false;
    for (guint i = 0; i < found->copies->len; i++) {
        const EcfsRecoverPlace *place = &self->places[g_array_index (found->copies, Copy, i).position];
        n_words += !place->distrusted;
        *ret_believed = *ret_believed || place->believed;
    }
    return n_words;
}

static int compare_numbers (const void *a, const void *b)
{
    const uint64_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

uint64_t ecfs_recover_least_said (const EcfsRecovering *self, uint64_t *said)
{
    uint64_t believed = UINT64_MAX;
    for (size_t i = 0; i < self->n_places; i++) {
        if (self->places[i].believed)
            believed = MIN (believed, said[i]);
        if (self->places[i].distrusted)
            said[i] = UINT64_MAX;
    }
    qsort (said, self->n_places, sizeof *said, compare_numbers);
    size_t least = ecfs_recover_least_words (self);
    return MIN (believed, least <= self->n_places ? said[least - 1] : UINT64_MAX);
}

/* With which record the segments of an epoch begin, from @at to @end. UINT64_MAX: too few endpoints have any. */
static uint64_t begin_of_epoch (const EcfsRecovering *self, const GPtrArray *segments, guint at, guint end)
{
    g_autofree uint64_t *said = g_new (uint64_t, self->n_places + 1);
    for (size_t i = 0; i < self->n_places; i++)
        said[i] = UINT64_MAX;
    for (guint i = at; i < end; i++) {
        const Found *found = segment_at (segments, i);
        for (guint j = 0; j < found->copies->len; j++) {
            uint64_t *first = &said[g_array_index (found->copies, Copy, j).position];
            *first = MIN (*first, found->file.first);
        }
    }
    return ecfs_recover_least_said (self, said);
}

/* Sets the ends of all: where a later epoch begins, what an older copy wrote from there on was written in vain. */
static void end_epochs (EcfsRecovering *self, const GPtrArray *segments)
{
    uint64_t end = UINT64_MAX, vain_from = UINT64_MAX;
    for (guint stop = segments->len, at; stop > 0; stop = at) {
        uint32_t epoch = segment_at (segments, stop - 1)->file.epoch;
        for (at = stop; at > 0 && segment_at (segments, at - 1)->file.epoch == epoch;)
            at--;
        uint64_t begin = epoch > self->epoch ? UINT64_MAX : begin_of_epoch (self, segments, at, stop);
        for (guint i = at; i < stop; i++) {
            Found *found = g_ptr_array_index (segments, i);
            found->end = MIN (found->file.last, end);
            found->useless = begin == UINT64_MAX;
            if (!found->useless && found->file.last > end)
                vain_from = MIN (vain_from, MAX (end + 1, found->file.first));
            for (guint j = 0; found->useless && j < found->copies->len; j++)
                doubt (self, g_array_index (found->copies, Copy, j).position, found->name);
        }
        end = begin == UINT64_MAX ? end : MIN (end, begin - 1);
    }
    if (vain_from < UINT64_MAX)
        ecfs_recover_tell (self,
                           "the journal has changes, from %" PRIu64 " on, of a copy of the archive directory that was "
                           "given up when another was recovered; they do not count",
                           vain_from);
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

/* What comes next: records of one epoch. */
typedef struct Next {
    GPtrArray *rows; /* NULL: there is nothing more */
    uint32_t epoch;
    uint64_t last;
    int64_t time_ns;
} Next;

static const EcfsJournalRow *row_at (const GPtrArray *rows, uint64_t sequence)
{
    for (guint low = 0, high = rows == NULL ? 0 : rows->len; low < high;) {
        guint middle = low + (high - low) / 2;
        const EcfsJournalRow *row = g_ptr_array_index (rows, middle);
        if (row->sequence == sequence)
            return row;
        if (row->sequence < sequence)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static bool same_row (const EcfsJournalRow *a, const EcfsJournalRow *b)
{
    return a->time_ns == b->time_ns && a->record->len == b->record->len &&
           memcmp (a->record->data, b->record->data, a->record->len) == 0;
}

/* The record that so many endpoints have alike as have to, whatever segments they have it in. */
static const EcfsJournalRow *believed_row (EcfsRecovering *self, const GPtrArray *candidates, uint64_t sequence,
                                           const EcfsJournalRow **said)
{
    const EcfsJournalRow *best = NULL;
    size_t n_best = 0;
    bool best_believed = false;
    memset (said, 0, self->n_places * sizeof *said);
    for (guint i = 0; i < candidates->len; i++) {
        const Found *found = segment_at (candidates, i);
        for (guint j = 0; found->end >= sequence && j < found->copies->len; j++) {
            const Copy *copy = &g_array_index (found->copies, Copy, j);
            if (!self->places[copy->position].distrusted && said[copy->position] == NULL)
                said[copy->position] = row_at (copy->rows, sequence);
        }
    }
    for (size_t i = 0; i < self->n_places; i++) {
        size_t n_same = 0;
        bool believed = false;
        for (size_t j = 0; said[i] != NULL && j < self->n_places; j++)
            if (said[j] != NULL && same_row (said[i], said[j])) {
                n_same++;
                believed = believed || self->places[j].believed;
            }
        if (believed > best_believed || (believed == best_believed && n_same > n_best)) {
            best = said[i];
            n_best = n_same;
            best_believed = believed;
        }
    }
    return best_believed || n_best >= ecfs_recover_least_words (self) ? best : NULL;
}

static EcfsJournalRow *row_copy (const EcfsJournalRow *row)
{
    EcfsJournalRow *copy = g_new (EcfsJournalRow, 1);
    *copy =
        (EcfsJournalRow){.sequence = row->sequence, .time_ns = row->time_ns, .record = g_byte_array_ref (row->record)};
    return copy;
}

/* Of segments that were cut at other places for each endpoint: record by record. */
static void piece_together (EcfsRecovering *self, const GPtrArray *candidates, Next *next)
{
    g_autofree const EcfsJournalRow **said = g_new0 (const EcfsJournalRow *, self->n_places + 1);
    g_autoptr (GPtrArray) rows = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_journal_row_free);
    const EcfsJournalRow *row;
    for (guint i = 0; i < candidates->len; i++)
        read_copies (self, g_ptr_array_index (candidates, i), SIZE_MAX);
    for (uint64_t sequence = self->sums->sequence + 1; (row = believed_row (self, candidates, sequence, said)) != NULL;
         sequence++)
        g_ptr_array_add (rows, row_copy (row));
    if (rows->len == 0)
        return;
    row = g_ptr_array_index (rows, rows->len - 1);
    *next = (Next){.epoch = segment_at (candidates, 0)->file.epoch, .last = row->sequence, .time_ns = row->time_ns};
    next->rows = g_steal_pointer (&rows);
}

static int by_copies (const void *a, const void *b)
{
    const Found *left = *(const Found *const *) a, *right = *(const Found *const *) b;
    return (left->copies->len < right->copies->len) - (left->copies->len > right->copies->len);
}

/* What comes next of segments of one epoch, which have the record that is wanted. */
static void choose_next (EcfsRecovering *self, GPtrArray *candidates, Next *next)
{
    g_ptr_array_sort (candidates, by_copies);
    for (guint i = 0; i < candidates->len && next->rows == NULL; i++) {
        Found *found = g_ptr_array_index (candidates, i);
        const Copy *copy = choose_copy (self, found, NULL);
        if (copy == NULL)
            continue;
        *next = (Next){.rows = g_ptr_array_ref (copy->rows),
                       .epoch = found->file.epoch,
                       .last = found->end,
                       .time_ns = copy->time_ns};
        doubt_all (self, found, copy->digest);
    }
    if (next->rows == NULL)
        piece_together (self, candidates, next);
    for (guint i = 0; i < candidates->len; i++) {
        Found *found = g_ptr_array_index (candidates, i);
        found->useless = next->rows == NULL;
        if (next->rows == NULL)
            doubt_all (self, found, NULL);
        if (next->rows == NULL || found->end <= next->last)
            forget_copies (found);
    }
}

static void find_next (EcfsRecovering *self, const GPtrArray *segments, uint32_t epoch, Next *next)
{
    uint64_t wanted = self->sums->sequence + 1;
    for (guint stop = segments->len, at; stop > 0 && next->rows == NULL; stop = at) {
        uint32_t of_these = segment_at (segments, stop - 1)->file.epoch;
        g_autoptr (GPtrArray) candidates = g_ptr_array_new ();
        for (at = stop; at > 0 && segment_at (segments, at - 1)->file.epoch == of_these; at--) {
            Found *found = g_ptr_array_index (segments, at - 1);
            if (!found->useless && found->file.first <= wanted && wanted <= found->end)
                g_ptr_array_add (candidates, found);
        }
        if (of_these < epoch)
            return;
        if (candidates->len > 0)
            choose_next (self, candidates, next);
    }
}

static bool apply_segments (EcfsRecovering *self, const GPtrArray *segments, uint32_t *epoch, GError **error)
{
    for (uint64_t n_applied = 1;; n_applied++) {
        Next next = {.rows = NULL};
        find_next (self, segments, *epoch, &next);
        if (next.rows == NULL)
            return true;
        g_autoptr (GPtrArray) rows = next.rows;
        *epoch = next.epoch;
        cut_rows (rows, self->sums->sequence, next.last);
        self->sums->n_records += rows->len;
        self->sums->sequence = next.last;
        self->sums->time_ns = next.time_ns;
        if (!ecfs_restore_records (self->restore, rows, &self->sums->n_refused, error) ||
            !ecfs_recover_tick (self, "journal", n_applied, MAX (segments->len, n_applied), error))
            return false;
    }
}

/* Segments that could not be used since others are missing before them. */
static void tell_gap (EcfsRecovering *self, const GPtrArray *segments, uint32_t epoch)
{
    uint64_t first = UINT64_MAX, last = 0;
    bool believed;
    for (guint i = 0; i < segments->len; i++) {
        const EcfsJournalFile *file = &segment_at (segments, i)->file;
        if (file->epoch < epoch || file->last <= self->sums->sequence || file->first > segment_at (segments, i)->end ||
            (count_words (self, segment_at (segments, i), &believed) < ecfs_recover_least_words (self) && !believed))
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
    return true;
}

static void note_seen (EcfsRecovering *self, GHashTable *by_name)
{
    GHashTableIter iter;
    gpointer key;
    if (self->seen == NULL)
        self->seen = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
    g_hash_table_iter_init (&iter, by_name);
    while (g_hash_table_iter_next (&iter, &key, NULL))
        (void) g_hash_table_add (self->seen, g_strdup (key));
}

/* The mount of before was quicker: it may have said of what is in these segments that it is safe. */
bool ecfs_recover_journal_grew (EcfsRecovering *self, bool *ret_grew, GError **error)
{
    g_autoptr (GHashTable) by_name = g_hash_table_new_full (g_str_hash, g_str_equal, NULL, found_free);
    GHashTableIter iter;
    gpointer value;
    *ret_grew = false;
    if (!search (self, by_name, error))
        return false;
    g_hash_table_iter_init (&iter, by_name);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        const Found *found = value;
        *ret_grew = *ret_grew || (found->file.epoch < self->new_epoch && found->file.last > self->sums->sequence &&
                                  !g_hash_table_contains (self->seen, found->name));
    }
    return true;
}

/* What each endpoint says, by its marker and the names of its files, of the last epoch and the last change. */
static void hear_places (EcfsRecovering *self, GHashTable *by_name)
{
    GHashTableIter iter;
    gpointer value;
    for (size_t i = 0; i < self->n_places; i++) {
        EcfsRecoverPlace *place = &self->places[i];
        place->epoch = place->marker.epoch;
        place->sequence = place->marker.sequence;
        place->silent = true;
    }
    g_hash_table_iter_init (&iter, by_name);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        const Found *found = value;
        for (guint i = 0; i < found->copies->len; i++) {
            EcfsRecoverPlace *place = &self->places[g_array_index (found->copies, Copy, i).position];
            place->epoch = MAX (place->epoch, found->file.epoch);
            place->sequence = MAX (place->sequence, found->file.last);
            place->silent = false;
        }
    }
}

/* The last epoch and the last change that so many say as have to. Only markers say that an epoch has begun: a recovery
 * that was killed has left files of one that never did, and the archive has gone on in the last. */
static void find_end (EcfsRecovering *self)
{
    g_autofree uint64_t *said = g_new (uint64_t, self->n_places + 1);
    for (size_t i = 0; i < self->n_places; i++)
        said[i] = UINT64_MAX - 1 - self->places[i].marker.epoch;
    uint64_t epoch = ecfs_recover_least_said (self, said);
    self->epoch = epoch == UINT64_MAX ? 0 : (uint32_t) (UINT64_MAX - 1 - epoch);
    for (size_t i = 0; i < self->n_places; i++)
        said[i] = UINT64_MAX - 1 - MIN (self->places[i].sequence, INT64_MAX);
    uint64_t sequence = ecfs_recover_least_said (self, said);
    self->sequence = sequence == UINT64_MAX ? 0 : UINT64_MAX - 1 - sequence;
    self->used_epoch = self->epoch;
    for (size_t i = 0; i < self->n_places; i++) {
        uint32_t told = self->places[i].epoch;
        g_autofree char *what = g_strdup_printf ("epoch %" PRIu32, told);
        if (told > self->epoch)
            doubt (self, i, what);
        if (told > self->used_epoch && told - self->epoch <= EPOCHS_SKIPPED)
            self->used_epoch = told;
    }
}

bool ecfs_recover_journal (EcfsRecovering *self, const char *path, GError **error)
{
    uint32_t *epoch = &self->journal_epoch;
    g_autoptr (GHashTable) by_name = g_hash_table_new_full (g_str_hash, g_str_equal, NULL, found_free);
    if (!search (self, by_name, error))
        return false;
    note_seen (self, by_name);
    hear_places (self, by_name);
    find_end (self);
    g_autoptr (GPtrArray) parts = of_kind (by_name, ECFS_JOURNAL_SNAPSHOT);
    g_autoptr (GPtrArray) segments = of_kind (by_name, ECFS_JOURNAL_SEGMENT);
    end_epochs (self, segments);
    if (!begin_catalog (self, parts, path, epoch, error) || !apply_segments (self, segments, epoch, error))
        return false;
    tell_gap (self, segments, *epoch);
    return true;
}
