/*
 * A process that has an archive open that others have open for writing, too (catalog_mounts = many): it gives signs of
 * life, finds out whether it is to lead, and when it leads, does for the others what only that one does.
 */
#ifndef ECFS_SERVICE_LEADING_H
#define ECFS_SERVICE_LEADING_H

#include "archive/archive.h"

typedef struct EcfsLeading EcfsLeading;

/** @is_mount: damage is repaired, and small files are packed, when it leads. */
EcfsLeading *ecfs_leading_start (EcfsArchive *archive, bool is_mount);
/** NULL is accepted. */
void ecfs_leading_stop (EcfsLeading *self);

/** Starts what only who leads has, once nobody else does. */
bool ecfs_archive_lead (EcfsArchive *archive, bool is_mount, GError **error);

#endif
