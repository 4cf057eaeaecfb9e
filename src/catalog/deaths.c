#include "catalog/deaths.h"

#include "catalog/db.h"

static bool deaths_since (EcfsCatalog *self, int64_t after, int64_t *ret_last, uint64_t *ret_bytes, GError **error)
{
    autoquery *query = QUERY (self, DEATHS_SINCE, error, INT (after));
    int found = ecfs_query_step (self, query, error);
    if (found != 1)
        return false;
    *ret_last = MAX (after, ecfs_column_number (query, 0));
    return ecfs_column_u64 (query, 1, INT64_MAX, ret_bytes) ||
           ecfs_bad_row (error, "deletions", after, "a number is impossible");
}

bool ecfs_catalog_deaths_since (EcfsCatalog *self, int64_t after, int64_t *ret_last, uint64_t *ret_bytes,
                                GError **error)
{
    return READ (self, deaths_since (self, after, ret_last, ret_bytes, error));
}

static bool read_death (EcfsCatalog *self, EcfsQuery *query, EcfsDeath *ret_death, GError **error)
{
    int found = ecfs_query_step (self, query, error);
    if (found != 1)
        return false;
    *ret_death = (EcfsDeath){.number = ecfs_column_number (query, 0), .is_marked = ecfs_column_number (query, 1) != 0};
    return true;
}

static bool death_of (EcfsCatalog *self, const EcfsUuid *object, unsigned index, uint64_t instance,
                      EcfsDeath *ret_death, GError **error)
{
    autoquery *query = QUERY (self, DEATH_OF, error, UUID (object), INT (index), INT (instance));
    return read_death (self, query, ret_death, error);
}

bool ecfs_catalog_death (EcfsCatalog *self, const EcfsUuid *object, unsigned index, uint64_t instance,
                         EcfsDeath *ret_death, GError **error)
{
    return READ (self, death_of (self, object, index, instance, ret_death, error));
}

static bool death_of_object (EcfsCatalog *self, const EcfsUuid *object, EcfsDeath *ret_death, GError **error)
{
    autoquery *query = QUERY (self, DEATH_OF_OBJECT, error, UUID (object));
    return read_death (self, query, ret_death, error);
}

bool ecfs_catalog_object_death (EcfsCatalog *self, const EcfsUuid *object, EcfsDeath *ret_death, GError **error)
{
    return READ (self, death_of_object (self, object, ret_death, error));
}

static bool list_objects (EcfsCatalog *self, int64_t *after, size_t max, GArray *objects, bool *ret_more,
                          GError **error)
{
    autoquery *query = QUERY (self, DEATHS_LIST, error, INT (*after), INT (max));
    size_t n = 0;
    int found;
    for (; (found = ecfs_query_step (self, query, error)) == 1; n++) {
        EcfsUuid object;
        *after = ecfs_column_number (query, 0);
        if (!ecfs_column_bytes (query, 1, object.bytes, sizeof object.bytes))
            return ecfs_bad_row (error, "deletions", *after, "its object is impossible");
        g_array_append_val (objects, object);
    }
    *ret_more = n == max;
    return found == 0;
}

bool ecfs_catalog_deaths_objects (EcfsCatalog *self, int64_t *after, size_t max, GArray *objects, bool *ret_more,
                                  GError **error)
{
    return READ (self, list_objects (self, after, max, objects, ret_more, error));
}

void ecfs_catalog_lost_anew (EcfsCatalog *self)
{
    ecfs_mutex_lock (&self->lock);
    if (self->lost != NULL)
        g_hash_table_remove_all (self->lost);
    ecfs_mutex_unlock (&self->lock);
}
