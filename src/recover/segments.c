/* Segments of the journal, put together record by record where endpoints have cut them at other places. */
#include "recover/files.h"

#include <inttypes.h>
#include <stdlib.h>

/* Segments */

static const EcfsRecoverFound *segment_at (const GPtrArray *segments, guint i)
{
    return g_ptr_array_index (segments, i);
}

/* Endpoints whose word counts that have a file of this name. */
static size_t count_words (const EcfsRecovering *self, const EcfsRecoverFound *found, bool *ret_believed)
{
    size_t n_words = 0;
    *ret_believed = false;
    for (guint i = 0; i < found->copies->len; i++) {
        const EcfsRecoverPlace *place = &self->places[g_array_index (found->copies, EcfsRecoverCopy, i).position];
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

bool ecfs_recover_is_rare (const EcfsRecovering *self, const EcfsRecoverFound *found)
{
    bool believed;
    return count_words (self, found, &believed) < ecfs_recover_least_words (self) && !believed;
}

/* Whether so many have segments from @first on as have to. */
static bool has_begun (const EcfsRecovering *self, uint32_t epoch, uint64_t first, const uint64_t *said)
{
    const EcfsJournalFile from = {.kind = ECFS_JOURNAL_SEGMENT, .epoch = epoch, .first = first};
    g_autofree EcfsRecoverSaid *same = g_new0 (EcfsRecoverSaid, self->n_places + 1);
    for (size_t i = 0; i < self->n_places; i++) {
        if (said[i] <= first && self->places[i].believed)
            return true;
        same[i] = said[i] <= first ? ECFS_RECOVER_SAME : ECFS_RECOVER_NOTHING;
    }
    return ecfs_recover_is_enough (self, &from, same);
}

/* Whether what the name of a copy says counts: with a key, that it is authentic. */
static bool is_told (EcfsRecovering *self, EcfsRecoverFound *found, guint number)
{
    return self->keys == NULL || ecfs_recover_is_authentic (self, found, number);
}

/* With which record the segments of an epoch begin, from @at to @end. UINT64_MAX: too few endpoints have any. */
static uint64_t begin_of_epoch (EcfsRecovering *self, const GPtrArray *segments, guint at, guint end)
{
    g_autofree uint64_t *said = g_new (uint64_t, self->n_places + 1);
    uint64_t begin = UINT64_MAX;
    for (size_t i = 0; i < self->n_places; i++)
        said[i] = UINT64_MAX;
    for (guint i = at; i < end; i++) {
        EcfsRecoverFound *found = g_ptr_array_index (segments, i);
        for (guint j = 0; j < found->copies->len; j++) {
            uint64_t *first = &said[g_array_index (found->copies, EcfsRecoverCopy, j).position];
            if (found->file.first < *first && is_told (self, found, j))
                *first = found->file.first;
        }
        ecfs_recover_forget_copies (found);
    }
    for (size_t i = 0; i < self->n_places && self->keys != NULL; i++)
        begin = MIN (begin, said[i]);
    if (self->keys != NULL)
        return begin;
    for (size_t i = 0; i < self->n_places; i++)
        if (said[i] < begin && has_begun (self, segment_at (segments, at)->file.epoch, said[i], said))
            begin = said[i];
    return begin;
}

/* Sets the ends of all: where a later epoch begins, what an older copy wrote from there on was written in vain. */
void ecfs_recover_end_epochs (EcfsRecovering *self, const GPtrArray *segments)
{
    uint64_t end = UINT64_MAX, vain_from = UINT64_MAX;
    for (guint stop = segments->len, at; stop > 0; stop = at) {
        uint32_t epoch = segment_at (segments, stop - 1)->file.epoch;
        for (at = stop; at > 0 && segment_at (segments, at - 1)->file.epoch == epoch;)
            at--;
        uint64_t begin = epoch > self->epoch ? UINT64_MAX : begin_of_epoch (self, segments, at, stop);
        for (guint i = at; i < stop; i++) {
            EcfsRecoverFound *found = g_ptr_array_index (segments, i);
            found->end = MIN (found->file.last, end);
            found->useless = begin == UINT64_MAX;
            if (!found->useless && found->file.last > end)
                vain_from = MIN (vain_from, MAX (end + 1, found->file.first));
            for (guint j = 0; found->useless && j < found->copies->len; j++)
                ecfs_recover_doubt (self, g_array_index (found->copies, EcfsRecoverCopy, j).position, found->name);
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

const EcfsJournalRow *ecfs_recover_row_at (const GPtrArray *rows, uint64_t sequence)
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

bool ecfs_recover_same_row (const EcfsJournalRow *a, const EcfsJournalRow *b)
{
    return a->time_ns == b->time_ns && a->record->len == b->record->len &&
           memcmp (a->record->data, b->record->data, a->record->len) == 0;
}

/* Whether the record that @best says is what so many do as have to. */
static bool row_counts (const EcfsRecovering *self, const EcfsRecoverFound *found, uint64_t sequence,
                        const EcfsJournalRow *best, const EcfsJournalRow *const *said)
{
    const EcfsJournalFile from = {.kind = ECFS_JOURNAL_SEGMENT, .epoch = found->file.epoch, .first = sequence};
    g_autofree EcfsRecoverSaid *same = g_new0 (EcfsRecoverSaid, self->n_places + 1);
    for (size_t i = 0; i < self->n_places; i++)
        if (said[i] != NULL)
            same[i] = ecfs_recover_same_row (said[i], best) ? ECFS_RECOVER_SAME : ECFS_RECOVER_OTHER;
    return ecfs_recover_is_enough (self, &from, same);
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
        const EcfsRecoverFound *found = segment_at (candidates, i);
        for (guint j = 0; found->end >= sequence && j < found->copies->len; j++) {
            const EcfsRecoverCopy *copy = &g_array_index (found->copies, EcfsRecoverCopy, j);
            if (!self->places[copy->position].distrusted && said[copy->position] == NULL)
                said[copy->position] = ecfs_recover_row_at (copy->rows, sequence);
        }
    }
    for (size_t i = 0; i < self->n_places; i++) {
        size_t n_same = 0;
        bool believed = false;
        for (size_t j = 0; said[i] != NULL && j < self->n_places; j++)
            if (said[j] != NULL && ecfs_recover_same_row (said[i], said[j])) {
                n_same++;
                believed = believed || self->places[j].believed;
            }
        if (believed > best_believed || (believed == best_believed && n_same > n_best)) {
            best = said[i];
            n_best = n_same;
            best_believed = believed;
        }
    }
    return best_believed || (best != NULL && row_counts (self, segment_at (candidates, 0), sequence, best, said))
               ? best
               : NULL;
}

EcfsJournalRow *ecfs_recover_row_copy (const EcfsJournalRow *row)
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
        ecfs_recover_read_copies (self, g_ptr_array_index (candidates, i), SIZE_MAX);
    for (uint64_t sequence = self->sums->sequence + 1; (row = believed_row (self, candidates, sequence, said)) != NULL;
         sequence++)
        g_ptr_array_add (rows, ecfs_recover_row_copy (row));
    if (rows->len == 0)
        return;
    row = g_ptr_array_index (rows, rows->len - 1);
    *next = (Next){.epoch = segment_at (candidates, 0)->file.epoch, .last = row->sequence, .time_ns = row->time_ns};
    next->rows = g_steal_pointer (&rows);
}

static int by_copies (const void *a, const void *b)
{
    const EcfsRecoverFound *left = *(const EcfsRecoverFound *const *) a, *right = *(const EcfsRecoverFound *const *) b;
    return (left->copies->len < right->copies->len) - (left->copies->len > right->copies->len);
}

/* Of segments that are not linked: what so many endpoints have as have to. */
static void choose_shared (EcfsRecovering *self, GPtrArray *candidates, Next *next)
{
    for (guint i = 0; i < candidates->len && next->rows == NULL; i++) {
        EcfsRecoverFound *found = g_ptr_array_index (candidates, i);
        const EcfsRecoverCopy *copy = ecfs_recover_choose_copy (self, found, NULL);
        if (copy == NULL)
            continue;
        *next = (Next){.rows = g_ptr_array_ref (copy->rows),
                       .epoch = found->file.epoch,
                       .last = found->end,
                       .time_ns = copy->time_ns};
        ecfs_recover_doubt_all (self, found, copy->digest);
    }
    if (next->rows == NULL)
        piece_together (self, candidates, next);
}

static void choose_linked (EcfsRecovering *self, GPtrArray *rows, const GPtrArray *candidates, Next *next)
{
    const EcfsJournalRow *last = g_ptr_array_index (rows, rows->len - 1);
    *next = (Next){.rows = rows,
                   .epoch = segment_at (candidates, 0)->file.epoch,
                   .last = last->sequence,
                   .time_ns = last->time_ns};
}

/* What comes next of segments of one epoch, which have the record that is wanted. */
static void choose_next (EcfsRecovering *self, GPtrArray *candidates, Next *next)
{
    GPtrArray *rows;
    g_ptr_array_sort (candidates, by_copies);
    bool linked = ecfs_recover_choose_linked (self, candidates, &rows);
    if (rows != NULL)
        choose_linked (self, rows, candidates, next);
    else if (!linked)
        choose_shared (self, candidates, next);
    for (guint i = 0; i < candidates->len; i++) {
        EcfsRecoverFound *found = g_ptr_array_index (candidates, i);
        found->useless = next->rows == NULL;
        for (guint j = 0; j < found->copies->len; j++)
            found->disputed = found->disputed ||
                              (next->rows == NULL && g_array_index (found->copies, EcfsRecoverCopy, j).digest != NULL);
        if (next->rows == NULL)
            ecfs_recover_doubt_all (self, found, NULL);
        if (next->rows == NULL || found->end <= next->last)
            ecfs_recover_forget_copies (found);
    }
}

static void find_next (EcfsRecovering *self, const GPtrArray *segments, uint32_t epoch, Next *next)
{
    uint64_t wanted = self->sums->sequence + 1;
    for (guint stop = segments->len, at; stop > 0 && next->rows == NULL; stop = at) {
        uint32_t of_these = segment_at (segments, stop - 1)->file.epoch;
        g_autoptr (GPtrArray) candidates = g_ptr_array_new ();
        for (at = stop; at > 0 && segment_at (segments, at - 1)->file.epoch == of_these; at--) {
            EcfsRecoverFound *found = g_ptr_array_index (segments, at - 1);
            if (!found->useless && found->file.first <= wanted && wanted <= found->end)
                g_ptr_array_add (candidates, found);
        }
        if (of_these < epoch)
            return;
        if (candidates->len > 0)
            choose_next (self, candidates, next);
    }
}

/* Where records are missing, as a recovery leaves none of what it did itself, those behind them tell of the past where
 * content has gone since. Whether there are any. */
static bool skip_gap (EcfsRecovering *self, const GPtrArray *segments, uint32_t epoch)
{
    uint64_t first = UINT64_MAX;
    uint32_t epoch_behind = 0;
    for (guint i = 0; i < segments->len; i++) {
        const EcfsRecoverFound *found = segment_at (segments, i);
        if (!found->useless && found->file.epoch >= epoch && found->file.first <= found->end &&
            found->file.first > self->sums->sequence + 1 && /* that was looked for just now */
            found->file.first < first) {
            first = found->file.first;
            epoch_behind = found->file.epoch;
        }
    }
    if (first == UINT64_MAX)
        return false;
    /* A recovery leaves no gap within an epoch: some of that may have been before the moment. */
    if (!self->is_past && epoch_behind == epoch && self->what->watch == NULL) {
        self->sums->is_older = true;
        ecfs_recover_tell (self, "the journal has a gap: names are as of change %" PRIu64, self->then);
    }
    self->is_gapped = self->is_gapped || !self->is_past;
    self->is_past = true;
    self->sums->sequence = first - 1;
    ecfs_restore_forget_stands (self->restore);
    return true;
}

bool ecfs_recover_segments (EcfsRecovering *self, const GPtrArray *segments, uint32_t *epoch, GError **error)
{
    for (uint64_t n_applied = 1;; n_applied++) {
        Next next = {.rows = NULL};
        find_next (self, segments, *epoch, &next);
        if (next.rows == NULL && self->what->at_ns != 0 && skip_gap (self, segments, *epoch))
            continue;
        if (next.rows == NULL)
            return true;
        g_autoptr (GPtrArray) rows = next.rows;
        *epoch = next.epoch;
        cut_rows (rows, self->sums->sequence, next.last);
        self->sums->sequence = next.last;
        self->sums->time_ns = next.time_ns;
        if (!ecfs_recover_apply (self, rows, error) ||
            !ecfs_recover_tick (self, "journal", n_applied, MAX (segments->len, n_applied), error))
            return false;
    }
}

/* Whether a copy of it is authentic: that is enough where the archive has a key. */
static bool has_authentic (EcfsRecovering *self, EcfsRecoverFound *found)
{
    bool any = false;
    for (guint i = 0; i < found->copies->len && self->keys != NULL && !any; i++)
        any = is_told (self, found, i);
    ecfs_recover_forget_copies (found);
    return any;
}

/* Segments that could not be used since others are missing before them. */
void ecfs_recover_tell_gap (EcfsRecovering *self, const GPtrArray *segments, uint32_t epoch)
{
    uint64_t first = UINT64_MAX, last = 0;
    for (guint i = 0; i < segments->len; i++) {
        EcfsRecoverFound *found = g_ptr_array_index (segments, i);
        const EcfsJournalFile *file = &found->file;
        if (file->epoch < epoch || file->last <= self->sums->sequence || file->first > found->end ||
            (ecfs_recover_is_rare (self, found) && !has_authentic (self, found)))
            continue;
        first = MIN (first, file->first);
        last = MAX (last, file->last);
    }
    if (last > 0)
        ecfs_recover_tell (self,
                           "the journal has a gap: its changes from %" PRIu64
                           " on are missing or damaged, and those up to %" PRIu64
                           " after them cannot be used; names are as of change %" PRIu64,
                           self->sums->sequence + 1, last, self->sums->sequence);
}
