/* Whether endpoints have journal that another copy of the catalog wrote, from a point on where both had the same. */
#ifndef ECFS_JOURNAL_FORK_H
#define ECFS_JOURNAL_FORK_H

#include "archive/archive.h"
#include "archive/lineage.h"

/**
 * Compares what endpoints have beyond what the catalog knows to be there, with the catalog. Nothing is, but after a
 * crash; or where a standby was promoted while the server before still takes changes: both go on with the same numbers.
 * For who has just asked them (ecfs_lineage_await ()) and has stored nothing yet, of a catalog that others changed
 * before. ESTALE: so many have other records that the catalog is an old copy. Blocks as long as endpoints do.
 */
bool ecfs_journal_check_fork (EcfsArchive *archive, EcfsLineage *lineage, GError **error);

#endif
