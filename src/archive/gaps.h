/*
 * Endpoints that have lost some of the journal that they had, as one that was put back from an earlier copy has. The
 * mount that sees it stores a snapshot of the catalog there, which closes the gap; but stripes of that time may be
 * missing as well, and only who lists all of them knows. So it is noted in ARCHIVE/journal-gaps until a check has.
 *
 * Only `ecfs status` reads it: what cannot be noted or read is not told, and that is all.
 */
#ifndef ECFS_ARCHIVE_GAPS_H
#define ECFS_ARCHIVE_GAPS_H

#include "archive/archive.h"

/** @text: a sentence about the endpoint. One that is noted already stays as it is. */
void ecfs_gap_note (const EcfsArchive *archive, const EcfsUuid *endpoint, const char *text);
/** That sentence, g_free (); and since when, in seconds since 1970. NULL: none is noted. */
char *ecfs_gap_noted (const EcfsArchive *archive, const EcfsUuid *endpoint, int64_t *ret_since_s);

/** All that is noted now, for ecfs_gaps_forget () after a check; g_free (). NULL: nothing is. */
char *ecfs_gaps_all (const EcfsArchive *archive);
/** A check has listed all stripes and left nothing to repair. What was noted since @all (may be NULL) stays. */
void ecfs_gaps_forget (const EcfsArchive *archive, const char *all);

#endif
