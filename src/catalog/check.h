/*
 * Looking for what is wrong: what cannot be in a whole catalog, and whether a catalog knows what was found at
 * endpoints. Durability, threads and errors are as in catalog.h.
 */
#ifndef ECFS_CATALOG_CHECK_H
#define ECFS_CATALOG_CHECK_H

#include "catalog/content.h"

#include <stdint.h>

/* Something impossible; @ino is the inode that it is about, 0: none. */
typedef void (*EcfsCatalogProblem) (void *user, uint64_t ino, const char *text);

/**
 * Looks for what is impossible in a whole catalog: SQLite's own check, references to nothing, extents outside of their
 * object or file, objects that no file has, names and counters that are wrong. Reports of each kind the first hundred;
 * @ino is the inode that it is about, 0: none. Holds the catalog for as long as it takes: it is to be one that was
 * opened READONLY for this. *ret_sound: SQLite finds nothing, so it can be written. False when it could not be read.
 */
bool ecfs_catalog_check (EcfsCatalog *self, EcfsCatalogProblem problem, void *user, bool *ret_sound, GError **error);

/**
 * Up to @max objects by UUID after *after, which moves on. Impossible rows are reported and left out, so there may be
 * fewer although there are @ret_more. GPtrArray with free function; EBADMSG: the table itself cannot be read on.
 */
GPtrArray *ecfs_catalog_walk_objects (EcfsCatalog *self, EcfsUuid *after, size_t max, bool *ret_more,
                                      EcfsCatalogProblem problem, void *user, GError **error);

/**
 * Whether an object has the stripe (index, instance), or an intent announces it, at whatever endpoint: instances are
 * never used twice, so what is found elsewhere is the same stripe, of an endpoint that was copied or came back under
 * another row.
 */
bool ecfs_catalog_stripe_known (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe, bool *ret_known,
                                GError **error);

/** Whether there is such an object, with whatever stripes. */
bool ecfs_catalog_object_known (EcfsCatalog *self, const EcfsUuid *object, bool *ret_known, GError **error);

/** Whether there is such an object, and it has no stripe with this index, which its code makes. */
bool ecfs_catalog_stripe_lacking (EcfsCatalog *self, const EcfsUuid *object, unsigned index, bool *ret_lacking,
                                  GError **error);

/** Whether the stripe (index, instance, endpoint) of an object waits to be deleted. */
bool ecfs_catalog_deletion_queued (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe,
                                   bool *ret_queued, GError **error);

/** Whether an object has the stripe (index, instance, endpoint). */
bool ecfs_catalog_stripe_current (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe,
                                  bool *ret_current, GError **error);

#endif
