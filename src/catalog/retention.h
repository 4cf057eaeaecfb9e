/*
 * What only the past has: stripes of content that was deleted or overwritten, as long as they can be taken back. The
 * oldest of them may be let go before their time, by whole moments: all that was removed up to one, and never a part.
 * Durability, threads and errors are as in catalog.h.
 */
#ifndef ECFS_CATALOG_RETENTION_H
#define ECFS_CATALOG_RETENTION_H

#include "catalog/work.h"

/* Why, as the database has it. */
typedef enum EcfsReleaseReason {
    ECFS_RELEASE_NONE = 0,
    ECFS_RELEASE_LIMIT = 1, /* it took more room than it may */
    ECFS_RELEASE_ROOM = 2,  /* an endpoint was full */
} EcfsReleaseReason;

/* Up to when it was let go. */
typedef struct EcfsReleased {
    int64_t age_ns;  /* of the catalog, as deletions wait by it; 0: nothing was let go */
    int64_t time_ns; /* since 1970: the archive of that moment and before may lack content */
    EcfsReleaseReason reason;
} EcfsReleased;

bool ecfs_catalog_released (EcfsCatalog *self, EcfsReleased *ret_released, GError **error);
/** Durable: lets go of what was removed up to a moment. One that is not later than the last changes nothing. */
bool ecfs_catalog_release (EcfsCatalog *self, const EcfsReleased *up_to, GError **error);

/* A stripe of the past. */
typedef struct EcfsRemovedStripe {
    int64_t id;
    int64_t endpoint; /* row id */
    int64_t age_ns;   /* when it was removed, by the catalog's age, … */
    int64_t time_ns;  /* … and since 1970; 0: an earlier ecfs did not note it, … */
    uint64_t bytes;   /* … nor this */
    uint64_t sequence;
} EcfsRemovedStripe;

/** Up to @max of those behind @after, in the order in which they were removed. GArray of EcfsRemovedStripe. */
GArray *ecfs_catalog_removed (EcfsCatalog *self, int64_t after, size_t max, GError **error);

#endif
