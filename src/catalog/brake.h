/*
 * The brake on mass deletions: how many files lost content lately, and since when what they had is kept although it
 * would be due. Durability, threads and errors are as in catalog.h.
 */
#ifndef ECFS_CATALOG_BRAKE_H
#define ECFS_CATALOG_BRAKE_H

#include "catalog/work.h"

/* How many files had lost content by then, since the catalog was made; and how many there were. */
typedef struct EcfsLosses {
    int64_t age_ns;  /* of the catalog */
    int64_t time_ns; /* since 1970 */
    uint64_t n_lost;
    uint64_t n_files;
} EcfsLosses;

/** What they are now. */
bool ecfs_catalog_losses_now (EcfsCatalog *self, EcfsLosses *ret_losses, GError **error);
/** Keeps @losses, unless later ones are kept, and forgets what nobody needs who looks back to @since_age_ns. */
bool ecfs_catalog_losses_keep (EcfsCatalog *self, const EcfsLosses *losses, int64_t since_age_ns, GError **error);
/** Those that are kept, the oldest first. GArray of EcfsLosses. */
GArray *ecfs_catalog_losses (EcfsCatalog *self, GError **error);

typedef struct EcfsBrake {
    EcfsLosses from;      /* before it began: what was removed since is kept, … */
    int64_t until_age_ns; /* … until then; 0: there is no brake */
    EcfsLosses last;      /* when it was found the last time */
} EcfsBrake;

/** *ret_brake: the one that is in force. */
bool ecfs_catalog_brake (EcfsCatalog *self, EcfsBrake *ret_brake, GError **error);
/** Durable. */
bool ecfs_catalog_brake_set (EcfsCatalog *self, const EcfsBrake *brake, GError **error);
/** Durable: none is in force, and counting begins anew. */
bool ecfs_catalog_brake_end (EcfsCatalog *self, GError **error);

#endif
