/*
 * Which files have lost content lately, for the brake (brake.h): each counts once an hour. Those of operations that are
 * undone or given up count when they are made again.
 *
 * Called with the lock of the catalog held.
 */
#ifndef ECFS_CATALOG_LOST_H
#define ECFS_CATALOG_LOST_H

#include "catalog/db.h"

/** Notes one, at an age of the catalog. False: it counts already. */
bool ecfs_lost_add (EcfsCatalog *self, uint64_t ino, int64_t age_ns);
/** How many came since BEGIN. */
guint ecfs_lost_count (const EcfsCatalog *self);
/** Those of them behind the first @n are not lost. */
void ecfs_lost_forget (EcfsCatalog *self, guint n);
/** They are, as it is committed. */
void ecfs_lost_keep (EcfsCatalog *self);

#endif
