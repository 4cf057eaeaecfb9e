#include "journal/superfluous.h"

#include "catalog/marks.h"

#include <string.h>

int ecfs_snapshot_compare (uint32_t epoch, uint64_t sequence, const EcfsSnapshotRow *row)
{
    if (epoch != row->epoch)
        return epoch < row->epoch ? -1 : 1;
    return sequence < row->sequence ? -1 : sequence > row->sequence;
}

static const EcfsSnapshotRow *row_at (const GArray *snapshots, guint i)
{
    return &g_array_index (snapshots, EcfsSnapshotRow, i);
}

/* Whether a mark is of before: its journal stays from the last snapshot before it on. */
static bool is_marked_before (const GArray *marks, const EcfsSnapshotRow *row)
{
    bool any = marks == NULL;
    for (guint i = 0; !any && i < marks->len; i++) {
        const EcfsMark *mark = &g_array_index (marks, EcfsMark, i);
        any = ecfs_snapshot_compare (mark->epoch, mark->sequence, row) < 0;
    }
    return any;
}

bool ecfs_journal_may_go (const GArray *snapshots, const EcfsJournalNeeds *needs)
{
    if (snapshots->len < ECFS_SNAPSHOT_GENERATIONS)
        return false;
    const EcfsSnapshotRow *oldest = row_at (snapshots, snapshots->len - 1);
    /* What is before it tells the past: of a catalog that was recovered, what the one before it had. */
    return oldest->n_copies >= needs->n_copies && oldest->time_ns <= needs->since_ns &&
           !is_marked_before (needs->marks, oldest);
}

bool ecfs_journal_is_superfluous (const GArray *snapshots, const EcfsJournalFile *file)
{
    if (file->kind == ECFS_JOURNAL_SEGMENT)
        return ecfs_snapshot_compare (file->epoch, file->last, row_at (snapshots, snapshots->len - 1)) <= 0;
    bool stays = ecfs_snapshot_compare (file->epoch, file->last, row_at (snapshots, 0)) >= 0;
    for (guint i = 0; i < snapshots->len; i++)
        stays = stays || ecfs_snapshot_compare (file->epoch, file->last, row_at (snapshots, i)) == 0;
    return !stays;
}

/* Segments that others contain */

int ecfs_segment_compare (const EcfsJournalFile *a, const EcfsJournalFile *b)
{
    if (a->epoch != b->epoch)
        return a->epoch < b->epoch ? -1 : 1;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return (a->last < b->last) - (a->last > b->last);
}

bool ecfs_segment_contains (const EcfsJournalFile *wide, const EcfsJournalFile *other)
{
    return wide->epoch == other->epoch && wide->first <= other->first && other->last <= wide->last;
}

bool ecfs_segment_is_whole (const EcfsJournalFile *file, const GPtrArray *rows)
{
    bool whole = rows->len == file->last - file->first + 1;
    for (guint i = 0; whole && i < rows->len; i++)
        whole = ((const EcfsJournalRow *) g_ptr_array_index (rows, i))->sequence == file->first + i;
    return whole;
}

bool ecfs_journal_row_equal (const EcfsJournalRow *a, const EcfsJournalRow *b)
{
    return a->sequence == b->sequence && a->time_ns == b->time_ns && a->record->len == b->record->len &&
           memcmp (a->record->data, b->record->data, a->record->len) == 0;
}

bool ecfs_segment_has_rows (const GPtrArray *all, uint64_t at, const GPtrArray *some)
{
    bool has = at <= all->len && some->len <= all->len - at;
    for (guint i = 0; has && i < some->len; i++)
        has = ecfs_journal_row_equal (g_ptr_array_index (all, at + i), g_ptr_array_index (some, i));
    return has;
}
