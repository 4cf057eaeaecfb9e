/*
 * Sessions: each opening of the archive that changes something has a number, one higher than the last, and a random
 * UUID, which the markers of the endpoints tell. What they tell that the catalog does not know is of another copy of
 * it.
 *
 * Durability, threads and errors are as in catalog.h.
 */
#ifndef ECFS_CATALOG_SESSIONS_H
#define ECFS_CATALOG_SESSIONS_H

#include "util/error.h"
#include "util/uuid.h"

#include <stdint.h>

typedef struct EcfsCatalog EcfsCatalog;

/** Durable: a session begins. @number is higher than those before; at least the last 1,000 are kept. */
bool ecfs_catalog_session_begin (EcfsCatalog *self, uint64_t number, const EcfsUuid *uuid, GError **error);
/** The number of the last one; 0: there was none. */
bool ecfs_catalog_session_last (EcfsCatalog *self, uint64_t *ret_number, GError **error);
/** Whether a session was one of this catalog, or is older than all that it keeps. */
bool ecfs_catalog_session_known (EcfsCatalog *self, uint64_t number, const EcfsUuid *uuid, bool *ret_known,
                                 GError **error);

#endif
