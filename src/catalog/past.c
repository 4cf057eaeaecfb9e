#include "catalog/past.h"

#include "catalog/age.h"
#include "catalog/content_priv.h"

#define BATCH 512 /* objects of one operation */

bool ecfs_past_keep (EcfsCatalog *self, const EcfsObjectRow *object, GError **error)
{
    return object->stripes->len == 0 || EXEC (self, PAST_INSERT, error, INT (object->id), INT (ecfs_age_ns (self)));
}

EcfsObjectRow *ecfs_past_find (EcfsCatalog *self, const EcfsUuid *uuid, int *ret_found, GError **error)
{
    autoquery *query = QUERY (self, PAST_BY_UUID, error, UUID (uuid));
    *ret_found = ecfs_query_step (self, query, error);
    EcfsObjectRow *row = *ret_found == 1 ? ecfs_object_load (self, query, error) : NULL;
    if (*ret_found == 1 && row == NULL)
        *ret_found = -1;
    return row;
}

bool ecfs_past_take (EcfsCatalog *self, const EcfsUuid *uuid, GError **error)
{
    return EXEC (self, PAST_DELETE, error, UUID (uuid));
}

bool ecfs_past_stripe_swap (EcfsCatalog *self, const EcfsObjectRow *object, const EcfsStripeRow *stripe,
                            const EcfsStripeRow *old, GError **error)
{
    EcfsUuid endpoint;
    uint64_t sequence = 0;
    if (!ecfs_endpoint_uuid (self, stripe->endpoint, &endpoint, error) || !ecfs_age_note (self, error) ||
        !ecfs_sequence_next (self, &sequence, error))
        return false;
    ecfs_journal_put_past_stripe (self->record, &object->uuid, stripe, &endpoint);
    self->counters.totals.n_deletions++;
    if (old == NULL)
        return EXEC (self, PAST_STRIPE_ADD, error, UUID (&object->uuid), INT (stripe->index), INT (stripe->instance),
                     INT (stripe->endpoint), INT (stripe->size), BLOB (stripe->digest, sizeof stripe->digest));
    return EXEC (self, PAST_STRIPE_LEAVE, error, UUID (&object->uuid), INT (old->index), INT (old->instance),
                 INT (ecfs_age_ns (self)), INT (sequence), INT (ecfs_real_ns ())) &&
           EXEC (self, PAST_STRIPE_SET, error, UUID (&object->uuid), INT (old->index), INT (old->instance),
                 INT (stripe->instance), INT (stripe->endpoint), INT (stripe->size),
                 BLOB (stripe->digest, sizeof stripe->digest));
}

static GPtrArray *list (EcfsCatalog *self, int64_t until_age_ns, int64_t after, size_t max, GError **error)
{
    autoquery *query = QUERY (self, PAST_LIST, error, INT (-after), INT (until_age_ns), INT (MIN (max, INT_MAX)));
    return ecfs_objects_load (self, query, error);
}

GPtrArray *ecfs_catalog_past (EcfsCatalog *self, int64_t until_age_ns, int64_t after, size_t max, GError **error)
{
    return READ (self, list (self, until_age_ns, after, max, error));
}

static GPtrArray *list_by_uuid (EcfsCatalog *self, int64_t until_age_ns, const EcfsUuid *after, size_t max,
                                GError **error)
{
    autoquery *query =
        QUERY (self, PAST_LIST_BY_UUID, error, UUID (after), INT (until_age_ns), INT (MIN (max, INT_MAX)));
    return ecfs_objects_load (self, query, error);
}

GPtrArray *ecfs_catalog_past_by_uuid (EcfsCatalog *self, int64_t until_age_ns, const EcfsUuid *after, size_t max,
                                      GError **error)
{
    return READ (self, list_by_uuid (self, until_age_ns, after, max, error));
}

static bool forget (EcfsCatalog *self, int64_t until_age_ns, int64_t *after, bool *ret_more, GError **error)
{
    int64_t last = 0;
    if (QUERY_NUMBER (self, PAST_OLD, &last, error, INT (*after), INT (until_age_ns), INT (BATCH)) < 0)
        return false;
    *ret_more = last > 0;
    if (last == 0)
        return true;
    bool forgotten = EXEC (self, PAST_FORGET, error, INT (*after), INT (until_age_ns), INT (last));
    *after = last;
    return forgotten;
}

bool ecfs_catalog_past_forget (EcfsCatalog *self, int64_t until_age_ns, int64_t *after, bool *ret_more, GError **error)
{
    int64_t last = *after;
    *ret_more = false;
    bool forgotten = CHANGE (self, error, (last = *after, forget (self, until_age_ns, &last, ret_more, error)));
    *after = forgotten ? last : *after;
    return forgotten;
}

char *ecfs_past_name (const EcfsUuid *object)
{
    char uuid[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (object, uuid);
    return g_strdup_printf ("history: object %s", uuid);
}
