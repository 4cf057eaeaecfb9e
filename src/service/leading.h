/*
 * A mount of an archive that others have mounted for writing, too (catalog_mounts = many): finds out whether it is to
 * lead, and when it leads, does for the others what only that one does.
 */
#ifndef ECFS_SERVICE_LEADING_H
#define ECFS_SERVICE_LEADING_H

#include "archive/archive.h"

typedef struct EcfsLeading EcfsLeading;

EcfsLeading *ecfs_leading_start (EcfsArchive *archive);
/** NULL is accepted. */
void ecfs_leading_stop (EcfsLeading *self);

/** Starts what only who leads has, once nobody else does. */
bool ecfs_archive_lead (EcfsArchive *archive, GError **error);

#endif
