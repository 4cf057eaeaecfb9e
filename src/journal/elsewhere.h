/* The journal of an archive whose sender is another mount (catalog_mounts = many). */
#ifndef ECFS_JOURNAL_ELSEWHERE_H
#define ECFS_JOURNAL_ELSEWHERE_H

#include "archive/archive.h"

/** As ecfs_archive_store_journal (), by asking who leads; if this process comes to lead meanwhile, by its own sender.
 * Blocks. */
bool ecfs_journal_store_elsewhere (EcfsArchive *archive, bool (*goes_on) (void *user), void *user, GError **error);

#endif
