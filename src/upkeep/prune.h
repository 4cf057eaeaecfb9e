/* Removing stripes that nothing knows; who has the archive open for writing does it. */
#ifndef ECFS_UPKEEP_PRUNE_H
#define ECFS_UPKEEP_PRUNE_H

#include "archive/archive.h"

#define ECFS_PRUNE_MOST 64 /* stripes at once */

typedef struct EcfsPruneStripe {
    EcfsUuid object;
    uint16_t index;
    uint64_t instance;
    uint64_t size;
    bool removed;        /* set by the attempt, as the next */
    bool is_open;        /* it is from before the archive had its key */
    bool is_unrecovered; /* it stays for having been stored before the archive was recovered, without its object */
} EcfsPruneStripe;

/**
 * Removes those stripes of an endpoint that no object, intent or deletion has, nor an object lacks, that are of this
 * archive and no newer than its catalog, nor, but for @unrecovered, from before it was recovered without their object,
 * once the endpoints have confirmed that none of them knows of something newer and that they have the journal up to
 * now, so that a recovery would not look for them either. False: all of the others but those that are unrecovered stay
 * for the reason in @error; some may have been removed. Blocks as long as the endpoints do.
 */
bool ecfs_prune_here (EcfsArchive *archive, int64_t endpoint, EcfsPruneStripe *stripes, size_t n_stripes,
                      bool unrecovered, GError **error);

#endif
