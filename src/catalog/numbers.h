/*
 * Numbers that this process may give, and no other: of inodes, of positions in directories, of staging rows. Members of
 * a shared catalog take a range of each in their turn, and need none for each number then.
 *
 * Called with the lock of the catalog held.
 */
#ifndef ECFS_CATALOG_NUMBERS_H
#define ECFS_CATALOG_NUMBERS_H

#include "catalog/db.h"

/* With fewer left the next are taken; no operation needs as many. */
enum { ECFS_NUMBERS_LEAST = 16 };

/** Whether there are none, or few. */
bool ecfs_numbers_are_low (const EcfsCatalog *self);
/** At the end of a transaction that has its turn: takes some, if there are few. */
bool ecfs_numbers_take (EcfsCatalog *self, GError **error);
/** That is committed; !@is_answered: nobody knows which they are, and they are nobody's. */
void ecfs_numbers_taken (EcfsCatalog *self, bool is_answered);
bool ecfs_numbers_have_staging (const EcfsCatalog *self);
/** One for a staging row; 0: there is none. */
int64_t ecfs_numbers_staging (EcfsCatalog *self);

#endif
