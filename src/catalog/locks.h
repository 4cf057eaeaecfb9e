/*
 * Locks of files, as flock(2) and fcntl(2) take them, in a catalog that several have open: each has what its owners
 * hold, and nobody is granted what conflicts with that. They change nothing in the namespace, and are in no journal.
 *
 * Locks are of the opening of the catalog: they end with it, also where it is taken for dead. Who was finds ESTALE.
 *
 * Errors, durability and threads are as in catalog.h; what is called here waits for no database that is away where the
 * thread hurries (ecfs_catalog_hurry ()).
 */
#ifndef ECFS_CATALOG_LOCKS_H
#define ECFS_CATALOG_LOCKS_H

#include "catalog/catalog.h"
#include "catalog/lock_ranges.h"

/* They do not know of each other. */
typedef enum EcfsLockKind { ECFS_LOCK_FLOCK, ECFS_LOCK_FCNTL } EcfsLockKind;

typedef struct EcfsLockOwner {
    uint64_t ino;
    uint64_t owner; /* a number of this opening's */
    EcfsLockKind kind;
} EcfsLockOwner;

/** Has the owner hold @ranges (lock_ranges.h) and nothing else of the file, unless that conflicts with what others
 * hold: then *@ret_granted is false, and it holds what it did. After an error nobody knows which of both, and it is to
 * be done again. */
bool ecfs_catalog_lock_set (EcfsCatalog *self, const EcfsLockOwner *owner, const GArray *ranges, bool *ret_granted,
                            GError **error);
/** Whether another opening holds what conflicts with @wanted: *@ret_there and *@ret_found. */
bool ecfs_catalog_lock_find (EcfsCatalog *self, const EcfsLockOwner *owner, const EcfsLockRange *wanted,
                             bool *ret_there, EcfsLockRange *ret_found, GError **error);
/** Changes when the connection to the database is made anew, which may be to one that lacks what is held here: that is
 * to be set again. */
unsigned ecfs_catalog_lock_connections (EcfsCatalog *self);

#endif
