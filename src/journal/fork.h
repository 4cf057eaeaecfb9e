/* Whether endpoints have journal that another copy of the catalog wrote, from a point on where both had the same. */
#ifndef ECFS_JOURNAL_FORK_H
#define ECFS_JOURNAL_FORK_H

#include "archive/archive.h"
#include "archive/lineage.h"

/**
 * Whether an endpoint has other records than the catalog, among those beyond @known, up to which the catalog knows what
 * is there. Nothing is there, but after a crash; or where a standby was promoted while the server before still takes
 * changes: both go on with the same numbers. 1: it has, 0: no, -1: @error, it could not be asked. For an endpoint that
 * has told what it has (ecfs_lineage_listed ()) and where nothing was stored since. Blocks as long as it does.
 */
int ecfs_journal_is_forked (EcfsArchive *archive, EcfsLineage *lineage, size_t position, uint64_t known,
                            GError **error);

/**
 * The same of all that have answered, for who is to lead, before these are told so. Who answers later is asked before
 * something is stored there. ESTALE: so many have other records that the catalog is an old copy.
 */
bool ecfs_journal_check_fork (EcfsArchive *archive, EcfsLineage *lineage, GError **error);

#endif
