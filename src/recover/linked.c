/*
 * The journal of an archive with a key: whoever has no key makes none of its files, so that one authentic copy is as
 * good as many. An endpoint that lies can only show less than it has, or what it had before, and so says nothing
 * against others that have more: those that were away look the same. What is weighed is what contradicts itself, as
 * after two copies of an archive directory have both written: a record goes on where the one before it stands (see
 * journal.h), a snapshot tells the sessions that led to it, and markers are of one.
 *
 * Journals that an earlier ecfs wrote are not linked, and are weighed by how many endpoints have what (copies.c).
 */
#include "catalog/journal.h"
#include "recover/files.h"

#include <inttypes.h>

typedef uint8_t Sum[ECFS_JOURNAL_SUM_BYTES];

bool ecfs_recover_reads (const EcfsRecovering *self, const EcfsRecoverPlace *place)
{
    return !place->distrusted || (self->keys != NULL && place->doubtful && !place->is_named);
}

/* What a record says of the one before it; zeros: there was none. False: it says nothing. */
static bool previous_of (const EcfsJournalRow *row, Sum ret_sum)
{
    return ecfs_journal_previous (row->record->data, row->record->len, ret_sum);
}

static bool continues (const EcfsRecovering *self, const EcfsJournalRow *row)
{
    Sum sum;
    const uint8_t *stands = ecfs_restore_stands (self->restore);
    return stands != NULL && previous_of (row, sum) && memcmp (sum, stands, sizeof sum) == 0;
}

/* Of the copies that were read, that with the record that goes on as most endpoints have it, and of these the longest;
 * *ret_n_ways: how many different ones there are. */
static const EcfsRecoverCopy *best_way (const EcfsRecovering *self, const GPtrArray *candidates, uint64_t wanted,
                                        unsigned *ret_n_ways)
{
    const EcfsRecoverCopy *best = NULL;
    size_t n_best = 0;
    uint64_t best_end = 0;
    g_autoptr (GPtrArray) ways = g_ptr_array_new (); /* a row of each */
    g_autoptr (GPtrArray) copies = g_ptr_array_new ();
    g_autoptr (GArray) ends = g_array_new (FALSE, FALSE, sizeof (uint64_t));
    for (guint i = 0; i < candidates->len; i++) {
        const EcfsRecoverFound *found = g_ptr_array_index (candidates, i);
        for (guint j = 0; j < found->copies->len; j++) {
            const EcfsRecoverCopy *copy = &g_array_index (found->copies, EcfsRecoverCopy, j);
            const EcfsJournalRow *row = ecfs_recover_row_at (copy->rows, wanted);
            if (row == NULL || !continues (self, row))
                continue;
            g_ptr_array_add (copies, (gpointer) copy);
            g_array_append_val (ends, found->end);
        }
    }
    for (guint i = 0; i < copies->len; i++) {
        const EcfsRecoverCopy *copy = g_ptr_array_index (copies, i);
        const EcfsJournalRow *row = ecfs_recover_row_at (copy->rows, wanted);
        g_autofree bool *seen = g_new0 (bool, self->n_places + 1);
        size_t n_same = 0;
        bool known = false;
        for (guint j = 0; j < copies->len; j++) {
            const EcfsRecoverCopy *other = g_ptr_array_index (copies, j);
            if (seen[other->position] || !ecfs_recover_same_row (row, ecfs_recover_row_at (other->rows, wanted)))
                continue;
            seen[other->position] = true;
            n_same++;
        }
        for (guint j = 0; j < ways->len && !known; j++)
            known = ecfs_recover_same_row (row, g_ptr_array_index (ways, j));
        if (!known)
            g_ptr_array_add (ways, (gpointer) row);
        uint64_t end = g_array_index (ends, uint64_t, i);
        if (n_same > n_best || (n_same == n_best && end > best_end)) {
            best = copy;
            n_best = n_same;
            best_end = end;
        }
    }
    *ret_n_ways = ways->len;
    return best;
}

/* The rows of a copy from the one that is wanted on, up to @end, as long as each goes on where the one before it
 * stands.
 */
static GPtrArray *linked_rows (const EcfsRecoverCopy *copy, uint64_t wanted, uint64_t end)
{
    GPtrArray *rows = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_journal_row_free);
    const EcfsJournalRow *row;
    for (uint64_t at = wanted; at <= end && (row = ecfs_recover_row_at (copy->rows, at)) != NULL; at++) {
        Sum sum, before;
        if (rows->len > 0) {
            const EcfsJournalRow *last = g_ptr_array_index (rows, rows->len - 1);
            ecfs_journal_sum (last->sequence, last->time_ns, last->record->data, last->record->len, before);
            if (!previous_of (row, sum) || memcmp (sum, before, sizeof sum) != 0)
                break;
        }
        g_ptr_array_add (rows, ecfs_recover_row_copy (row));
    }
    return rows;
}

/* Whether any of the copies that were read has the record, and says what comes before it. */
static bool any_is_linked (const GPtrArray *candidates, uint64_t wanted)
{
    for (guint i = 0; i < candidates->len; i++) {
        const EcfsRecoverFound *found = g_ptr_array_index (candidates, i);
        for (guint j = 0; j < found->copies->len; j++) {
            Sum sum;
            const EcfsJournalRow *row =
                ecfs_recover_row_at (g_array_index (found->copies, EcfsRecoverCopy, j).rows, wanted);
            if (row != NULL && previous_of (row, sum))
                return true;
        }
    }
    return false;
}

/* Those that have another record there than the one that was taken. */
static void tell_other_ways (EcfsRecovering *self, const GPtrArray *candidates, const EcfsJournalRow *taken)
{
    for (guint i = 0; i < candidates->len; i++) {
        const EcfsRecoverFound *found = g_ptr_array_index (candidates, i);
        for (guint j = 0; j < found->copies->len; j++) {
            const EcfsRecoverCopy *copy = &g_array_index (found->copies, EcfsRecoverCopy, j);
            const EcfsJournalRow *row = ecfs_recover_row_at (copy->rows, taken->sequence);
            if (row == NULL || ecfs_recover_same_row (row, taken) || self->places[copy->position].n_doubts++ > 2)
                continue;
            ecfs_recover_tell (self,
                               "endpoint %s: %s is of another copy of the archive directory, from change %" PRIu64
                               " on: it does not count",
                               self->places[copy->position].name, found->name, taken->sequence);
        }
    }
}

bool ecfs_recover_choose_linked (EcfsRecovering *self, GPtrArray *candidates, GPtrArray **ret_rows)
{
    uint64_t wanted = self->sums->sequence + 1;
    unsigned n_ways = 0;
    *ret_rows = NULL;
    if (self->keys == NULL || ecfs_restore_stands (self->restore) == NULL)
        return false;
    for (guint i = 0; i < candidates->len; i++)
        ecfs_recover_read_copies (self, g_ptr_array_index (candidates, i), ecfs_recover_least_words (self));
    const EcfsRecoverCopy *best = best_way (self, candidates, wanted, &n_ways);
    if (n_ways != 1) {
        for (guint i = 0; i < candidates->len; i++)
            ecfs_recover_read_copies (self, g_ptr_array_index (candidates, i), SIZE_MAX);
        best = best_way (self, candidates, wanted, &n_ways);
    }
    if (best == NULL)
        return any_is_linked (candidates, wanted);
    uint64_t end = 0;
    for (guint i = 0; i < candidates->len; i++) {
        const EcfsRecoverFound *found = g_ptr_array_index (candidates, i);
        for (guint j = 0; j < found->copies->len; j++)
            if (&g_array_index (found->copies, EcfsRecoverCopy, j) == best)
                end = found->end;
    }
    *ret_rows = linked_rows (best, wanted, end);
    tell_other_ways (self, candidates, g_ptr_array_index (*ret_rows, 0));
    return true;
}

/* Snapshots */

/* What a snapshot says of where it stands and who led to that. */
typedef struct Origin {
    Sum stands;
    uint64_t first, last; /* of its sessions, */
    GHashTable *sessions; /* … by number: UUIDs; owned */
    bool is_told;
} Origin;

static void origin_clear (Origin *self)
{
    g_hash_table_unref (self->sessions);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Origin, origin_clear)

static Origin origin_of (const GPtrArray *rows)
{
    Origin self = {.first = UINT64_MAX,
                   .sessions = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, g_free)};
    const EcfsJournalRow *row = rows->len == 0 ? NULL : g_ptr_array_index (rows, rows->len - 1);
    EcfsCursor cursor;
    EcfsJournalItem item;
    if (row == NULL || ecfs_journal_open (&cursor, row->record->data, row->record->len) != 0)
        return self;
    while (ecfs_journal_next (&cursor, &item) == 1) {
        if (item.type == ECFS_JOURNAL_STANDS) {
            memcpy (self.stands, item.sum, sizeof self.stands);
            self.is_told = true;
        } else if (item.type == ECFS_JOURNAL_SESSION) {
            self.first = MIN (self.first, item.sequence);
            self.last = MAX (self.last, item.sequence);
            (void) g_hash_table_insert (self.sessions, g_memdup2 (&item.sequence, sizeof item.sequence),
                                        g_memdup2 (&item.uuid, sizeof item.uuid));
        }
    }
    return self;
}

/* Whether a marker is of a copy of the archive directory that went another way: of a session that is not one of those
 * that led to the snapshot, or of a later one that had not come as far. */
static bool denies_origin (const EcfsMarker *marker, const EcfsJournalFile *file, const Origin *origin)
{
    if (marker->epoch != file->epoch || marker->session_number == 0 || origin->last == 0)
        return false;
    if (marker->session_number > origin->last)
        return marker->sequence < file->last;
    const EcfsUuid *known = g_hash_table_lookup (origin->sessions, &marker->session_number);
    return marker->session_number >= origin->first && (known == NULL || !ecfs_uuid_equal (known, &marker->session));
}

bool ecfs_recover_snapshot_counts (const EcfsRecovering *self, const EcfsRecoverFound *found,
                                   const EcfsRecoverCopy *copy, bool *ret_counts)
{
    *ret_counts = true;
    if (self->keys == NULL || found->file.kind != ECFS_JOURNAL_SNAPSHOT)
        return false;
    if (!found->file.is_last) /* the last part says whether it belongs to anything */
        return true;
    g_auto (Origin) origin = origin_of (copy->rows);
    size_t n_same = 0, n_deny = 0;
    for (size_t i = 0; i < self->n_places; i++) {
        const EcfsRecoverPlace *place = &self->places[i];
        bool has = false, differs = false;
        for (guint j = 0; j < found->copies->len; j++) {
            const EcfsRecoverCopy *other = &g_array_index (found->copies, EcfsRecoverCopy, j);
            if (other->position != i || other->rows == NULL)
                continue;
            g_auto (Origin) theirs = origin_of (other->rows);
            has = memcmp (theirs.stands, origin.stands, sizeof theirs.stands) == 0;
            differs = !has;
        }
        n_same += has;
        n_deny += differs || (!has && !place->doubtful && denies_origin (&place->marker, &found->file, &origin));
    }
    *ret_counts = n_same > n_deny;
    return origin.is_told;
}

bool ecfs_recover_is_refuted (EcfsRecovering *self, const GPtrArray *segments, const EcfsRecoverFound *snapshot)
{
    const uint64_t wanted = snapshot->file.last + 1;
    size_t n_others = 0;
    g_autofree bool *seen = g_new0 (bool, self->n_places + 1);
    if (self->keys == NULL || ecfs_restore_stands (self->restore) == NULL)
        return false;
    for (guint i = 0; i < segments->len; i++) {
        EcfsRecoverFound *found = g_ptr_array_index (segments, i);
        if (found->file.epoch != snapshot->file.epoch || found->file.first > wanted || found->end < wanted)
            continue;
        ecfs_recover_read_copies (self, found, ecfs_recover_least_words (self));
        for (guint j = 0; j < found->copies->len; j++) {
            const EcfsRecoverCopy *copy = &g_array_index (found->copies, EcfsRecoverCopy, j);
            const EcfsJournalRow *row = ecfs_recover_row_at (copy->rows, wanted);
            Sum sum;
            if (row == NULL || !previous_of (row, sum))
                continue;
            if (continues (self, row))
                return false;
            n_others += !seen[copy->position];
            seen[copy->position] = true;
        }
    }
    return n_others > 0 && n_others >= snapshot->copies->len;
}

/* Epochs */

/* Only markers say that an epoch has begun. With a key none says so falsely; but a recovery that died among the markers
 * leaves some, and the archive goes on in the epoch before, in a later session. So those count against it that are of a
 * session which is not earlier, and of an epoch that is. */
static bool has_epoch (const EcfsRecovering *self, uint32_t epoch)
{
    size_t n_say = 0, n_deny = 0;
    uint64_t session = UINT64_MAX;
    for (size_t i = 0; i < self->n_places; i++) {
        const EcfsMarker *marker = &self->places[i].marker;
        if (self->places[i].distrusted || marker->epoch < epoch)
            continue;
        n_say++;
        session = MIN (session, marker->session_number);
    }
    for (size_t i = 0; i < self->n_places; i++) {
        const EcfsMarker *marker = &self->places[i].marker;
        n_deny += !self->places[i].distrusted && marker->epoch < epoch && marker->session_number >= session;
    }
    return n_say > n_deny;
}

uint32_t ecfs_recover_told_epoch (const EcfsRecovering *self)
{
    uint32_t told = 0;
    g_autofree uint64_t *said = g_new (uint64_t, self->n_places + 1);
    for (size_t i = 0; i < self->n_places; i++)
        said[i] = UINT64_MAX - 1 - self->places[i].marker.epoch;
    uint64_t least = ecfs_recover_least_said (self, said);
    if (least != UINT64_MAX)
        told = (uint32_t) (UINT64_MAX - 1 - least);
    for (size_t i = 0; self->keys != NULL && i < self->n_places; i++)
        if (self->places[i].marker.epoch > told && has_epoch (self, self->places[i].marker.epoch))
            told = self->places[i].marker.epoch;
    return told;
}

/* Who shows less than there is */

/* Reads the newest file of a place, where none of its files was found to be false. */
static void try_newest (EcfsRecovering *self, const GPtrArray *files, size_t position)
{
    for (guint i = files->len; i-- > 0;) {
        EcfsRecoverFound *found = g_ptr_array_index (files, i);
        for (guint j = 0; j < found->copies->len; j++) {
            if (g_array_index (found->copies, EcfsRecoverCopy, j).position != position)
                continue;
            (void) ecfs_recover_is_authentic (self, found, j); /* it tells */
            return;
        }
    }
}

void ecfs_recover_tell_behind (EcfsRecovering *self, const GPtrArray *parts, const GPtrArray *segments)
{
    if (self->keys == NULL || self->sums->sequence == 0)
        return;
    for (size_t i = 0; i < self->n_places; i++) {
        EcfsRecoverPlace *place = &self->places[i];
        if (place->is_named || place->has_false)
            continue;
        if (!place->silent && place->last >= self->sums->sequence) {
            try_newest (self, segments->len > 0 ? segments : parts, i);
            continue;
        }
        ecfs_recover_tell (self,
                           "endpoint %s: its journal ends at change %" PRIu64 ", and that of others at %" PRIu64
                           ": it was away, has lost files, or shows what it had before",
                           place->name, place->last, self->sums->sequence);
    }
}
