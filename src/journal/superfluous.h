/*
 * What of the journal may go: segments that a snapshot has the records of, and older snapshots. A mount decides it for
 * accounts where it deletes, `ecfs prune` for those that only grow, by the same rules. Pure functions.
 *
 * Snapshots are a GArray of EcfsSnapshotRow, newest first. The last of them is the oldest that stays: what is told of
 * the past begins with it.
 */
#ifndef ECFS_JOURNAL_SUPERFLUOUS_H
#define ECFS_JOURNAL_SUPERFLUOUS_H

#include "catalog/journal_file.h"
#include "catalog/journal_rows.h"

#define ECFS_SNAPSHOT_GENERATIONS 2 /* that stay in any case */

/** The order of changes: below 0 where (@epoch, @sequence) is before the snapshot. */
int ecfs_snapshot_compare (uint32_t epoch, uint64_t sequence, const EcfsSnapshotRow *row);

typedef struct EcfsJournalNeeds {
    unsigned n_copies;   /* endpoints that have to have a snapshot */
    int64_t since_ns;    /* all moments from then on can be shown */
    const GArray *marks; /* of EcfsMark, which can be, too; NULL: they are not known */
} EcfsJournalNeeds;

/** Whether what is before the last of @snapshots is not needed: there are newer ones, it is safe, and it is from before
 * all that can be shown. */
bool ecfs_journal_may_go (const GArray *snapshots, const EcfsJournalNeeds *needs);

/** If so: whether this file may go, by its name. */
bool ecfs_journal_is_superfluous (const GArray *snapshots, const EcfsJournalFile *file);

/* A segment may also go where another of the same endpoint has its records, as one that was merged has. */

/** The order of segments in which those that another contains follow it. */
int ecfs_segment_compare (const EcfsJournalFile *a, const EcfsJournalFile *b);
/** By their numbers. */
bool ecfs_segment_contains (const EcfsJournalFile *wide, const EcfsJournalFile *other);
/** Whether @rows (of EcfsJournalRow) are all records of the segment, without a gap. */
bool ecfs_segment_is_whole (const EcfsJournalFile *file, const GPtrArray *rows);
/** Whether both are the same record, of the same time. */
bool ecfs_journal_row_equal (const EcfsJournalRow *a, const EcfsJournalRow *b);
/** Whether the records of @all have those of @some from their number @at on. */
bool ecfs_segment_has_rows (const GPtrArray *all, uint64_t at, const GPtrArray *some);

#endif
