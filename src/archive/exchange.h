/* One archive directory in place of another, with what belongs to the machine left as it is. */
#ifndef ECFS_ARCHIVE_EXCHANGE_H
#define ECFS_ARCHIVE_EXCHANGE_H

#include "archive/archive.h"

#define ECFS_RENEWED_NAME                                                                                              \
    "renewed" /* how far locks at endpoints were renewed (upkeep/renewals.h), by rows of the catalog */

/* In the archive directory, while what was made takes the place of what was there: it is only gone on with then. */
#define ECFS_TAKEN_OVER_NAME "taken-over"

/** Goes on with an exchange that was interrupted, if there is one. EBUSY: another process uses the directory. */
bool ecfs_archive_exchange_rest (const char *directory, GError **error);

/**
 * Closes @self, which was opened for writing and never started, and puts catalog, keys and ecfs.conf of the directory
 * @fresh in place of its own, under its lock; the catalog last. @fresh goes. Its staging area is to be empty of all
 * that its catalog names. EBUSY: another program reads it; nothing has changed then. Can be repeated after a failure.
 */
bool ecfs_archive_exchange (EcfsArchive *self, const char *fresh, GError **error);

#endif
