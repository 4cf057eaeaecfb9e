/*
 * Objects that only the past has: no file has them, and their stripes wait for deletion as REMOVED or MARKED. Until one
 * of them is doomed they are described as other objects are, so that they can be repaired and moved. Their ids are
 * below 0, and ecfs_catalog_object () takes these; ecfs_catalog_intent_more () and ecfs_catalog_stripe_set () do as
 * with other objects. They count in no total. Durability, threads and errors are as in catalog.h.
 */
#ifndef ECFS_CATALOG_PAST_H
#define ECFS_CATALOG_PAST_H

#include "catalog/content.h"

/** Whether a row id is of such an object. */
static inline bool ecfs_object_is_past (int64_t object)
{
    return object < 0;
}

/**
 * Up to @max of those that are to be looked after: what was removed behind @until_age_ns, by the catalog's age, and
 * what marks need. @after: 0, or the id of the last that was listed. GPtrArray of EcfsObjectRow with free function.
 */
GPtrArray *ecfs_catalog_past (EcfsCatalog *self, int64_t until_age_ns, int64_t after, size_t max, GError **error);
/** The same in the order of UUIDs, those above @after. */
GPtrArray *ecfs_catalog_past_by_uuid (EcfsCatalog *self, int64_t until_age_ns, const EcfsUuid *after, size_t max,
                                      GError **error);
/**
 * Some of those behind *after, which moves on from 0, are forgotten if they are not kept by that: their stripes wait
 * and come back as before, but nobody can repair them. *ret_more: it is to be called again.
 */
bool ecfs_catalog_past_forget (EcfsCatalog *self, int64_t until_age_ns, int64_t *after, bool *ret_more, GError **error);
/** What such an object is called, as it has no path; g_free (). */
char *ecfs_past_name (const EcfsUuid *object);

#endif
