/*
 * What the journal has seen die, of a catalog that was made of it: stripes that an object had, and that nothing has any
 * more. Each death has a number, and later ones have higher numbers. Durability, threads and errors are as in
 * catalog.h.
 */
#ifndef ECFS_CATALOG_DEATHS_H
#define ECFS_CATALOG_DEATHS_H

#include "catalog/work.h"

/* The last death of a stripe, or of any stripe of an object. */
typedef struct EcfsDeath {
    int64_t number; /* 0: it is not known to have died */
    bool is_marked; /* a mark that there is may need it (marks.h) */
} EcfsDeath;

/** The number of the last death, *ret_last, and the bytes of those with a number above @after. */
bool ecfs_catalog_deaths_since (EcfsCatalog *self, int64_t after, int64_t *ret_last, uint64_t *ret_bytes,
                                GError **error);
/** Of the stripe (index, instance) of an object, at whatever endpoint. */
bool ecfs_catalog_death (EcfsCatalog *self, const EcfsUuid *object, unsigned index, uint64_t instance,
                         EcfsDeath *ret_death, GError **error);
/** Of any stripe of an object. */
bool ecfs_catalog_object_death (EcfsCatalog *self, const EcfsUuid *object, EcfsDeath *ret_death, GError **error);
/** Adds to @objects (of EcfsUuid) those of up to @max deaths with numbers above *after, which moves on. *ret_more:
 * there may be more. */
bool ecfs_catalog_deaths_objects (EcfsCatalog *self, int64_t *after, size_t max, GArray *objects, bool *ret_more,
                                  GError **error);
/** Files that lost content already count once more as lost (EcfsTotals, n_lost) when they lose more. */
void ecfs_catalog_lost_anew (EcfsCatalog *self);

#endif
