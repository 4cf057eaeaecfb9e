/*
 * What lies open at endpoints of an archive that was made without a key and has one now: journal files from before.
 * Two snapshots that are sealed take their place, and they are tidied up as all that snapshots take the place of.
 */
#ifndef ECFS_JOURNAL_JOURNAL_OPEN_H
#define ECFS_JOURNAL_JOURNAL_OPEN_H

#include "archive/common.h"

/** Counts what an endpoint has of them, by listing two directories, and has the catalog know. Nothing is asked where
 * there can be none. Blocks. */
bool ecfs_journal_note_open (EcfsArchive *archive, size_t position, GError **error);

/** What all endpoints have together, as far as that is known; *ret_n_unknown: endpoints that could not be asked. */
bool ecfs_journal_open_files (EcfsArchive *archive, uint64_t *ret_n_files, unsigned *ret_n_unknown, GError **error);

/** Notes that nothing is known of any endpoint: before the first of them is asked. */
bool ecfs_journal_expect_open (EcfsArchive *archive, GError **error);

#endif
