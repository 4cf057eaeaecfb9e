/*
 * Snapshots and segments, as endpoints have them, and which of them are believed. An endpoint may lie, or have been set
 * back: a file counts when so many endpoints' copies say the same as `ecfs wait` asks for, where each endpoint
 * that nobody can ask counts as one that has them. What does not count is left out, and the endpoint is named.
 */
#include "recover/files.h"

#include <inttypes.h>
#include <unistd.h>

/* Epochs that too few tell of, and that nothing new is called by all the same: what a recovery has left that came to
 * nothing has such names. */
#define EPOCHS_SKIPPED 16
#define LOOKS_BEHIND   3 /* without what comes next, until a catalog is made anew */

typedef struct Search {
    EcfsRecovering *recovering;
    GHashTable *by_name; /* name → EcfsRecoverFound */
    size_t position;
} Search;

static void on_listed (void *user, const EcfsListed *listed)
{
    Search *self = user;
    EcfsJournalFile file;
    if (!ecfs_journal_file_name_parse (listed->name, &file))
        return;
    EcfsRecoverFound *found = g_hash_table_lookup (self->by_name, listed->name);
    if (found == NULL) {
        found = g_new (EcfsRecoverFound, 1);
        *found = (EcfsRecoverFound){.name = g_strdup (listed->name),
                                    .file = file,
                                    .copies = g_array_new (FALSE, TRUE, sizeof (EcfsRecoverCopy))};
        g_array_set_clear_func (found->copies, ecfs_recover_copy_clear);
        g_hash_table_insert (self->by_name, found->name, found);
    }
    const EcfsRecoverCopy copy = {.position = self->position, .size = listed->size};
    g_array_append_val (found->copies, copy);
}

static int oldest_first (const void *a, const void *b)
{
    const EcfsJournalFile *left = &(*(const EcfsRecoverFound *const *) a)->file,
                          *right = &(*(const EcfsRecoverFound *const *) b)->file;
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
        if (((EcfsRecoverFound *) value)->file.kind == kind)
            g_ptr_array_add (sorted, value);
    g_ptr_array_sort (sorted, oldest_first);
    return sorted;
}

/* Snapshots: parts belong together where they are of one taking, which its time tells. One that did not come to its end
 * leaves parts under names that the next may have too. */

/* Part @number before @last; NULL: nobody has it. */
static EcfsRecoverFound *find_part (const GPtrArray *parts, const EcfsRecoverFound *last, uint32_t number)
{
    for (guint i = 0; i < parts->len; i++) {
        EcfsRecoverFound *found = g_ptr_array_index (parts, i);
        const EcfsJournalFile *file = &found->file;
        if (file->epoch == last->file.epoch && file->last == last->file.last && file->part == number && !file->is_last)
            return found;
    }
    return NULL;
}

static bool has_parts (const GPtrArray *parts, const EcfsRecoverFound *last)
{
    for (uint32_t number = 0; number < last->file.part; number++)
        if (find_part (parts, last, number) == NULL)
            return false;
    return true;
}

/* Reads the parts of a taking into a new catalog. False without an error: they cannot be read. */
static bool apply_snapshot (EcfsRecovering *self, const GPtrArray *parts, EcfsRecoverFound *last, int64_t time_ns,
                            GError **error)
{
    uint32_t n_before = last->file.part;
    if (!ecfs_restore_begin_snapshot (self->restore, error))
        return false;
    for (uint32_t number = 0; number <= n_before; number++) {
        EcfsRecoverFound *part = number < n_before ? find_part (parts, last, number) : last;
        const EcfsRecoverCopy *copy = ecfs_recover_choose_copy (self, part, &time_ns);
        if (copy == NULL || !ecfs_restore_records (self->restore, copy->rows, &self->sums->n_refused, error))
            return false;
        ecfs_recover_doubt_all (self, part, copy->digest);
        ecfs_recover_forget_copies (part);
        if (!ecfs_recover_tick (self, "snapshot", number + 1, n_before + 1, error))
            return false;
    }
    self->sums->time_ns = time_ns;
    return ecfs_restore_end_snapshot (self->restore, error);
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

/* An empty catalog that knows the endpoints, but for those whose markers anybody may have made: whether they are the
 * archive's the journal tells. */
static bool open_catalog (EcfsRecovering *self, const char *path, GError **error)
{
    if (!ecfs_catalog_create (path, &self->archive, error))
        return false;
    self->catalog = ecfs_catalog_open (path, 0, error);
    if (self->catalog == NULL)
        return false;
    self->restore = ecfs_restore_new (self->catalog);
    for (guint i = 0; self->seeds != NULL && i < self->seeds->len; i++)
        if (!ecfs_restore_seed (self->restore, g_ptr_array_index (self->seeds, i), error))
            return false;
    for (size_t i = 0; i < self->n_places; i++)
        if (!self->places[i].doubtful &&
            !ecfs_restore_endpoint (self->restore, &self->places[i].marker.endpoint, self->places[i].name,
                                    &self->places[i].id, &self->places[i].state, error))
            return false;
    return true;
}

/* Makes the catalog of a taking that ended with @last, of this time, if it can be read. */
static bool try_taking (EcfsRecovering *self, const GPtrArray *parts, EcfsRecoverFound *last, int64_t time_ns,
                        const char *path, bool *ret_made, GError **error)
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
static bool try_snapshot (EcfsRecovering *self, const GPtrArray *parts, EcfsRecoverFound *last, const char *path,
                          bool *ret_made, GError **error)
{
    const EcfsRecoverCopy *best = ecfs_recover_choose_copy (self, last, NULL);
    if (best != NULL && !ecfs_recover_is_then (self, best->time_ns, last->file.last)) {
        ecfs_recover_forget_copies (last);
        return true;
    }
    g_autoptr (GArray) times = g_array_new (FALSE, FALSE, sizeof (int64_t));
    if (best != NULL)
        g_array_append_val (times, best->time_ns);
    for (guint i = 0; best != NULL && i < last->copies->len; i++) {
        const EcfsRecoverCopy *copy = &g_array_index (last->copies, EcfsRecoverCopy, i);
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
        ecfs_recover_doubt_all (self, last, NULL);
    self->has_doubted = self->has_doubted || !*ret_made;
    last->disputed = !*ret_made;
    ecfs_recover_forget_copies (last);
    return true;
}

/* Makes the catalog of the newest snapshot that can be read, or an empty one. Sets where it stands. */
static bool begin_catalog (EcfsRecovering *self, const GPtrArray *parts, const GPtrArray *segments, const char *path,
                           uint32_t *ret_epoch, GError **error)
{
    for (guint i = parts->len; i-- > 0;) {
        EcfsRecoverFound *last = g_ptr_array_index (parts, i);
        bool made = false;
        if (!last->file.is_last || last->file.epoch > self->epoch || !has_parts (parts, last))
            continue;
        if (!try_snapshot (self, parts, last, path, &made, error))
            return false;
        if (made && ecfs_recover_is_refuted (self, segments, last)) {
            ecfs_recover_doubt_all (self, last, NULL);
            ecfs_recover_forget (self, path);
            made = false;
        }
        if (!made)
            continue;
        self->sums->has_snapshot = true;
        self->sums->sequence = self->then = last->file.last;
        self->then_ns = self->sums->time_ns;
        *ret_epoch = last->file.epoch;
        return true;
    }
    *ret_epoch = 0;
    self->sums->sequence = 0;
    return open_catalog (self, path, error);
}

/* Else it is no reason to leave the catalog that there is: anybody writes a name. */
static bool can_be_read (EcfsRecovering *self, EcfsRecoverFound *last)
{
    const bool can = ecfs_recover_choose_copy (self, last, NULL) != NULL;
    ecfs_recover_forget_copies (last);
    return can;
}

/* Makes the catalog of one snapshot, in the place of the one that there is. */
static bool begin_again (EcfsRecovering *self, const GPtrArray *parts, EcfsRecoverFound *last, const char *path,
                         bool *ret_made, GError **error)
{
    const EcfsRecoverWatch *watch = self->what->watch;
    const uint64_t n_refused = self->sums->n_refused;
    *ret_made = false;
    if (watch->leaving != NULL && !watch->leaving (watch->user, self->catalog, &last->file, error))
        return false;
    ecfs_recover_forget (self, path);
    bool tried = try_snapshot (self, parts, last, path, ret_made, error);
    self->sums->n_refused += n_refused;
    if (!tried || !*ret_made)
        return tried;
    self->sums->has_snapshot = true;
    self->sums->sequence = last->file.last;
    return watch->applied (watch->user, self->catalog, self->sums->time_ns, error);
}

/* All that is kept, from the oldest on: where records are missing, the next snapshot has what they did. */
static bool show_past (EcfsRecovering *self, const GPtrArray *parts, const GPtrArray *segments, const char *path,
                       uint32_t *ret_epoch, GError **error)
{
    *ret_epoch = 0;
    self->sums->sequence = 0;
    self->what->watch->begin (self->what->watch->user);
    if (!open_catalog (self, path, error) || !ecfs_recover_segments (self, segments, ret_epoch, error))
        return false;
    for (guint i = 0; i < parts->len; i++) {
        EcfsRecoverFound *last = g_ptr_array_index (parts, i);
        const uint64_t reached = self->sums->sequence;
        bool made;
        if (!last->file.is_last || last->file.epoch > self->epoch || !has_parts (parts, last) ||
            (last->file.epoch <= *ret_epoch && last->file.last <= reached) || !can_be_read (self, last))
            continue;
        if (!begin_again (self, parts, last, path, &made, error))
            return false;
        if (made) {
            *ret_epoch = last->file.epoch;
            if (!ecfs_recover_segments (self, segments, ret_epoch, error))
                return false;
        } else { /* until the next that can be read, nothing is known */
            if (!open_catalog (self, path, error))
                return false;
            self->sums->sequence = reached;
        }
    }
    return true;
}

static bool search (EcfsRecovering *self, GHashTable *by_name, GError **error)
{
    for (size_t i = 0; i < self->n_places; i++) {
        EcfsRecoverPlace *place = &self->places[i];
        Search one = {.recovering = self, .by_name = by_name, .position = i};
        GError *why = NULL;
        if (place->absent ||
            (ecfs_endpoint_list_wait (place->endpoint, ECFS_JOURNAL_DIRECTORY, on_listed, &one, &why) &&
             ecfs_endpoint_list_wait (place->endpoint, ECFS_SNAPSHOT_DIRECTORY, on_listed, &one, &why)))
            continue;
        if (self->seeds == NULL) {
            g_propagate_error (error, why);
            return false;
        }
        ecfs_recover_tell (self, "%s", why->message);
        g_error_free (why);
        place->absent = true; /* what it has listed so far counts */
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
    g_autoptr (GHashTable) by_name = g_hash_table_new_full (g_str_hash, g_str_equal, NULL, ecfs_recover_found_free);
    GHashTableIter iter;
    gpointer value;
    *ret_grew = false;
    if (!search (self, by_name, error))
        return false;
    g_hash_table_iter_init (&iter, by_name);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        const EcfsRecoverFound *found = value;
        *ret_grew = *ret_grew || (found->file.epoch < self->new_epoch && found->file.last > self->sums->sequence &&
                                  !g_hash_table_contains (self->seen, found->name));
    }
    return true;
}

static int by_first (const void *a, const void *b)
{
    const EcfsJournalFile *left = *(const EcfsJournalFile *const *) a, *right = *(const EcfsJournalFile *const *) b;
    return (left->first > right->first) - (left->first < right->first);
}

/* Whether it has files behind which something of its own is missing: up to its newest snapshot, or the beginning. */
static bool has_gap (EcfsRecovering *self, GHashTable *by_name, size_t position)
{
    uint64_t covered = 0;
    GHashTableIter iter;
    gpointer value;
    g_autoptr (GPtrArray) segments = g_ptr_array_new ();
    g_hash_table_iter_init (&iter, by_name);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        const EcfsRecoverFound *found = value;
        for (guint i = 0; i < found->copies->len; i++) {
            if (g_array_index (found->copies, EcfsRecoverCopy, i).position != position)
                continue;
            if (found->file.kind == ECFS_JOURNAL_SEGMENT)
                g_ptr_array_add (segments, (gpointer) &found->file);
            else if (found->file.epoch <= self->epoch)
                covered = MAX (covered, found->file.last);
        }
    }
    g_ptr_array_sort (segments, by_first);
    for (guint i = 0; i < segments->len; i++) {
        const EcfsJournalFile *file = g_ptr_array_index (segments, i);
        if (file->first > covered && file->first - covered > 1)
            return true;
        covered = MAX (covered, file->last);
    }
    return false;
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
        place->gapped = false;
        place->has_false = false;
        place->last = 0;
    }
    g_hash_table_iter_init (&iter, by_name);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        const EcfsRecoverFound *found = value;
        for (guint i = 0; i < found->copies->len; i++) {
            EcfsRecoverPlace *place = &self->places[g_array_index (found->copies, EcfsRecoverCopy, i).position];
            place->epoch = MAX (place->epoch, found->file.epoch);
            place->sequence = MAX (place->sequence, found->file.last);
            place->last = MAX (place->last, found->file.last);
            place->silent = false;
        }
    }
}

/* The last epoch and the last change that so many say as have to. Only markers say that an epoch has begun: a recovery
 * that was killed has left files of one that never did, and the archive has gone on in the last. */
static void find_end (EcfsRecovering *self)
{
    g_autofree uint64_t *said = g_new (uint64_t, self->n_places + 1);
    self->epoch = ecfs_recover_told_epoch (self);
    for (size_t i = 0; i < self->n_places; i++)
        said[i] = UINT64_MAX - 1 - MIN (self->places[i].sequence, INT64_MAX);
    uint64_t sequence = ecfs_recover_least_said (self, said);
    self->sequence = sequence == UINT64_MAX ? 0 : UINT64_MAX - 1 - sequence;
    for (size_t i = 0; i < self->n_places && self->keys != NULL; i++)
        self->sequence = MAX (self->sequence, MIN (self->places[i].marker.sequence, INT64_MAX / 2));
    self->used_epoch = self->epoch;
    for (size_t i = 0; i < self->n_places; i++) {
        uint32_t told = self->places[i].epoch;
        g_autofree char *what = g_strdup_printf ("epoch %" PRIu32, told);
        if (told > self->epoch)
            ecfs_recover_doubt (self, i, what);
        if (told > self->used_epoch && told - self->epoch <= EPOCHS_SKIPPED)
            self->used_epoch = told;
    }
}

/* Whether it tells of something later than what was taken, or of a later epoch, that is not believed. */
static void note_later (EcfsRecovering *self, const GPtrArray *files, bool *later)
{
    for (guint i = 0; i < files->len; i++) {
        const EcfsRecoverFound *found = g_ptr_array_index (files, i);
        bool is_cut = found->file.kind == ECFS_JOURNAL_SEGMENT && found->end < found->file.last;
        uint64_t last = is_cut ? found->end : found->file.last;
        for (guint j = 0; j < found->copies->len; j++)
            if (found->file.epoch <= self->epoch && last > self->sums->sequence &&
                (found->disputed || ecfs_recover_is_rare (self, found)))
                later[g_array_index (found->copies, EcfsRecoverCopy, j).position] = true;
    }
    for (size_t i = 0; i < self->n_places; i++)
        later[i] = !self->places[i].distrusted && (later[i] || self->places[i].marker.epoch > self->epoch);
}

/* What is not believed, and may be what `ecfs wait` has waited for all the same: a forger, and endpoints that have lost
 * it, look alike where there are few. Whoever says nothing of it has to say whose word counts. */
static void note_unsettled (EcfsRecovering *self, const GPtrArray *parts, const GPtrArray *segments)
{
    size_t n_without = 0;
    g_autofree bool *later = g_new0 (bool, self->n_places + 1);
    g_autoptr (GString) names = g_string_new (NULL);
    note_later (self, parts, later);
    note_later (self, segments, later);
    for (size_t i = 0; i < self->n_places; i++) {
        const EcfsRecoverPlace *place = &self->places[i];
        n_without += !later[i] && !place->distrusted && !place->silent && !place->gapped;
        if (later[i])
            g_string_append_printf (names, "%s%s", names->len > 0 ? ", " : "", place->name);
    }
    g_clear_pointer (&self->unsettled, g_free);
    if (names->len > 0 && n_without < self->n_copies)
        self->unsettled = g_strdup (names->str);
}

/* Whether what endpoints say was weighed by what continues what: nothing of it can be open then. */
static bool is_linked (const EcfsRecovering *self)
{
    return self->keys != NULL && self->sums->sequence > 0 && ecfs_restore_stands (self->restore) != NULL;
}

bool ecfs_recover_journal (EcfsRecovering *self, const char *path, GError **error)
{
    uint32_t *epoch = &self->journal_epoch;
    g_autoptr (GHashTable) by_name = g_hash_table_new_full (g_str_hash, g_str_equal, NULL, ecfs_recover_found_free);
    if (!search (self, by_name, error))
        return false;
    note_seen (self, by_name);
    hear_places (self, by_name);
    find_end (self);
    for (size_t i = 0; i < self->n_places; i++)
        self->places[i].gapped = has_gap (self, by_name, i);
    g_autoptr (GPtrArray) parts = of_kind (by_name, ECFS_JOURNAL_SNAPSHOT);
    g_autoptr (GPtrArray) segments = of_kind (by_name, ECFS_JOURNAL_SEGMENT);
    ecfs_recover_end_epochs (self, segments);
    if (self->what->watch != NULL)
        return show_past (self, parts, segments, path, epoch, error);
    if (!begin_catalog (self, parts, segments, path, epoch, error) ||
        !ecfs_recover_segments (self, segments, epoch, error))
        return false;
    ecfs_recover_tell_gap (self, segments, *epoch);
    ecfs_recover_tell_behind (self, parts, segments);
    if (!is_linked (self))
        note_unsettled (self, parts, segments);
    return true;
}

/* Following */

/* Those of the epoch that is followed, behind what was applied: none of a later one is told, so none ends early. */
static GPtrArray *new_segments (EcfsRecovering *self, GHashTable *by_name)
{
    g_autoptr (GPtrArray) all = of_kind (by_name, ECFS_JOURNAL_SEGMENT);
    GPtrArray *segments = g_ptr_array_new ();
    for (guint i = 0; i < all->len; i++) {
        EcfsRecoverFound *found = g_ptr_array_index (all, i);
        found->end = found->file.last;
        if (found->file.epoch == self->journal_epoch && found->end > self->sums->sequence)
            g_ptr_array_add (segments, found);
    }
    return segments;
}

/* Whether files are there of later changes, and none that continues what was applied. */
static bool is_left_behind (const EcfsRecovering *self, GHashTable *by_name)
{
    bool later = false;
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init (&iter, by_name);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        const EcfsRecoverFound *found = value;
        bool counts = found->file.epoch == self->journal_epoch && found->file.last > self->sums->sequence &&
                      !ecfs_recover_is_rare (self, found);
        bool is_segment = found->file.kind == ECFS_JOURNAL_SEGMENT;
        if (counts && is_segment && found->file.first <= self->sums->sequence + 1)
            return false;
        later = later || (counts && (is_segment || found->file.is_last));
    }
    return later;
}

bool ecfs_recover_go_on (EcfsRecovering *self, bool *ret_lost, GError **error)
{
    uint32_t epoch = self->journal_epoch;
    g_autoptr (GHashTable) by_name = g_hash_table_new_full (g_str_hash, g_str_equal, NULL, ecfs_recover_found_free);
    if (!search (self, by_name, error))
        return false;
    hear_places (self, by_name);
    find_end (self);
    *ret_lost = self->epoch > epoch;
    if (*ret_lost)
        return true;
    for (size_t i = 0; i < self->n_places; i++)
        self->places[i].gapped = has_gap (self, by_name, i);
    g_autoptr (GPtrArray) segments = new_segments (self, by_name);
    if (!ecfs_recover_segments (self, segments, &epoch, error))
        return false;
    /* A snapshot may be stored a little before the segments up to it. */
    self->n_behind = is_left_behind (self, by_name) ? self->n_behind + 1 : 0;
    *ret_lost = self->n_behind >= LOOKS_BEHIND;
    return true;
}
