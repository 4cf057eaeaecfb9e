/*
 * Transactions of a shared catalog that do not wait for their turn while they look at what is there: see
 * pg_exchange.h. What each of them would change for all others, the counters and the end of the journal, they change by
 * as much as they add, and never read; numbers they take from ranges that this process has taken for itself before.
 *
 * Called with the lock of the catalog held.
 */
#ifndef ECFS_CATALOG_OPTIMISTIC_H
#define ECFS_CATALOG_OPTIMISTIC_H

#include "catalog/db.h"

/** Whether the transaction that begins may be one. */
bool ecfs_optimistic_is_possible (const EcfsCatalog *self);
/** Begins it. */
bool ecfs_optimistic_begin (EcfsCatalog *self, GError **error);
/** Whether it has not begun at the server: what was read is not validated, and what is changed is nowhere. */
bool ecfs_optimistic_is_unsent (const EcfsCatalog *self);
/** Whether it has not enough numbers for another operation. */
bool ecfs_optimistic_is_full (const EcfsCatalog *self);
/** The last statement of it. */
bool ecfs_optimistic_end (EcfsCatalog *self, GError **error);
/** It is committed. */
void ecfs_optimistic_ended (EcfsCatalog *self, bool is_answered);
/** Adds the record of the operation that runs to the journal. */
bool ecfs_optimistic_append (EcfsCatalog *self, int64_t now_ns, GError **error);
/** Makes the counters those that they are, for who has to know; the transaction has its turn from then on. */
bool ecfs_optimistic_settle (EcfsCatalog *self, GError **error);

#endif
