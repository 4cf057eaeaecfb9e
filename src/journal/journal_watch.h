/*
 * Whether endpoints have the files of the journal that the catalog believes to be there: the parts of its newest
 * snapshot, and segments without a gap behind it. By listing two directories; a deep look also reads these files.
 */
#ifndef ECFS_JOURNAL_JOURNAL_WATCH_H
#define ECFS_JOURNAL_JOURNAL_WATCH_H

#include "archive/common.h"

/* Snapshots lie at all endpoints up to so many; with more, at as many as the codes ask for, and at no fewer than this.
 */
#define ECFS_SNAPSHOT_COPIES 8

/** At how many of the active endpoints a snapshot is to be. */
unsigned ecfs_snapshot_copies (EcfsArchive *archive);

/* What an endpoint has. */
typedef struct EcfsJournalSight {
    bool has_snapshot; /* all parts of the newest; true where the catalog has none */
    char *missing;     /* what it should have and has not, as a sentence; NULL: nothing; g_free () */
} EcfsJournalSight;

/** Lists what an active endpoint has; @deep: files that are damaged, cannot be read, or say something else than the
 * catalog are not there. Blocks; false:
 * it could not be listed, or lists more than can be. */
bool ecfs_journal_look (EcfsArchive *archive, size_t position, bool deep, EcfsJournalSight *ret_sight, GError **error);

/**
 * Stores a new snapshot of the catalog at all endpoints that take it: what was lost of older ones and of segments is
 * not needed then. ENOTCONN: too few endpoints take it. By who has the archive open for writing; blocks.
 */
bool ecfs_journal_renew (EcfsArchive *archive, GError **error);

/** Removes what the last two snapshots took the place of, at all endpoints where that can be done now; the rest is done
 * later. By who has the archive open for writing; blocks. */
bool ecfs_journal_tidy (EcfsArchive *archive, GError **error);

#endif
