/* What a cache has of an archive that another machine writes: it goes with the stripes that it may have come from. */
#include "archive/cached.h"
#include "archive/common.h"
#include "catalog/check.h"
#include "catalog/journal.h"

#include <string.h>

/* NULL without @error: there is none. */
static EcfsObjectRow *object_of (EcfsCatalog *catalog, const EcfsUuid *uuid, GError **error)
{
    EcfsUuid before = *uuid; /* the last that sorts before it */
    for (size_t i = sizeof before.bytes; i > 0 && before.bytes[i - 1]-- == 0; i--)
        ;
    g_autoptr (GPtrArray) rows = ecfs_catalog_objects_by_uuid (catalog, &before, 1, error);
    const EcfsObjectRow *row = rows == NULL || rows->len == 0 ? NULL : g_ptr_array_index (rows, 0);
    return row != NULL && ecfs_uuid_equal (&row->uuid, uuid) ? ecfs_object_row_copy (row) : NULL;
}

/* *ret_replaced: whether it had a stripe that it does not have any more, and is not sealed. */
static bool is_replaced (EcfsCatalog *before, EcfsCatalog *next, const EcfsUuid *uuid, bool *ret_replaced,
                         GError **error)
{
    GError *why = NULL;
    bool current = true;
    g_autoptr (EcfsObjectRow) row = object_of (before, uuid, &why);
    if (why != NULL) {
        g_propagate_error (error, why);
        return false;
    }
    for (guint i = 0; row != NULL && row->seal.kind == ECFS_SEAL_NONE && i < row->stripes->len && current; i++)
        if (!ecfs_catalog_stripe_current (next, uuid, &g_array_index (row->stripes, EcfsStripeRow, i), &current, error))
            return false;
    *ret_replaced = row == NULL || !current; /* of what is not known, nothing is */
    return true;
}

/* *ret_is: whether an endpoint is distrusted that was not. */
static bool is_one_distrusted (EcfsCatalog *before, EcfsCatalog *next, bool *ret_is, GError **error)
{
    g_autoptr (GPtrArray) old = ecfs_catalog_endpoints (before, error);
    g_autoptr (GPtrArray) new = old == NULL ? NULL : ecfs_catalog_endpoints (next, error);
    *ret_is = false;
    for (guint i = 0; new != NULL &&i < new->len; i++) {
        const EcfsEndpointRow *row = g_ptr_array_index (new, i);
        bool was = false;
        for (guint j = 0; j < old->len; j++) {
            const EcfsEndpointRow *other = g_ptr_array_index (old, j);
            was = was || (ecfs_uuid_equal (&other->uuid, &row->uuid) && other->state == ECFS_ENDPOINT_DISTRUSTED);
        }
        *ret_is = *ret_is || (row->state == ECFS_ENDPOINT_DISTRUSTED && !was);
    }
    return new != NULL;
}

GArray *ecfs_archive_cached_replaced (EcfsArchive *self, EcfsCatalog *next)
{
    bool all = false;
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) replaced = g_array_new (FALSE, FALSE, sizeof (EcfsUuid));
    if (ecfs_archive_cache (self) == NULL)
        return g_steal_pointer (&replaced);
    g_autoptr (GArray) objects = ecfs_cache_objects (ecfs_archive_cache (self), &error);
    if (objects == NULL || objects->len == 0)
        return objects == NULL ? NULL : g_steal_pointer (&replaced);
    bool good = is_one_distrusted (ecfs_archive_catalog (self), next, &all, &error);
    for (guint i = 0; i < objects->len && good && !all; i++) {
        bool is = false;
        const EcfsUuid *object = &g_array_index (objects, EcfsUuid, i);
        good = is_replaced (ecfs_archive_catalog (self), next, object, &is, &error);
        if (good && is)
            g_array_append_val (replaced, *object);
    }
    if (!good)
        g_info ("%s: the cache begins anew: %s", ecfs_archive_directory (self), error->message);
    return good && !all ? g_steal_pointer (&replaced) : NULL;
}

void ecfs_archive_forget_replaced (EcfsArchive *self, const GArray *objects)
{
    if (ecfs_archive_cache (self) != NULL && objects == NULL)
        ecfs_cache_forget (ecfs_archive_cache (self), NULL);
    for (guint i = 0; ecfs_archive_cache (self) != NULL && objects != NULL && i < objects->len; i++)
        ecfs_cache_forget (ecfs_archive_cache (self), &g_array_index (objects, EcfsUuid, i));
}

typedef struct Changed {
    GHashTable *objects; /* EcfsUuid *: of which stripes came in the place of others, or were added */
    bool is_one_distrusted;
} Changed;

static guint uuid_hash (gconstpointer key)
{
    guint hash;
    memcpy (&hash, ((const EcfsUuid *) key)->bytes + 8, sizeof hash);
    return hash;
}

static gboolean uuid_equal (gconstpointer a, gconstpointer b)
{
    return ecfs_uuid_equal (a, b);
}

static void note_item (void *user, const EcfsJournalItem *item)
{
    Changed *self = user;
    if (item->type == ECFS_JOURNAL_STRIPE || item->type == ECFS_JOURNAL_OBJECT)
        g_hash_table_add (self->objects, g_memdup2 (&item->uuid, sizeof item->uuid));
    if (item->type == ECFS_JOURNAL_ENDPOINT && item->state == ECFS_ENDPOINT_DISTRUSTED)
        self->is_one_distrusted = true;
}

/* What is sealed stays. */
static void forget_unsealed (EcfsArchive *self, const EcfsUuid *object)
{
    g_autoptr (EcfsObjectRow) row = object_of (ecfs_archive_catalog (self), object, NULL);
    if (row == NULL || row->seal.kind == ECFS_SEAL_NONE)
        ecfs_cache_forget (ecfs_archive_cache (self), object);
}

void ecfs_archive_forget_followed (EcfsArchive *self, const GPtrArray *rows)
{
    if (ecfs_archive_cache (self) == NULL)
        return;
    Changed changed = {.objects = g_hash_table_new_full (uuid_hash, uuid_equal, g_free, NULL)};
    ecfs_journal_each_item (rows, note_item, &changed);
    g_autoptr (GArray) cached =
        g_hash_table_size (changed.objects) == 0 ? NULL : ecfs_cache_objects (ecfs_archive_cache (self), NULL);
    bool is_unknown = g_hash_table_size (changed.objects) > 0 && cached == NULL;
    if (changed.is_one_distrusted || is_unknown)
        ecfs_cache_forget (ecfs_archive_cache (self), NULL);
    for (guint i = 0; cached != NULL && !changed.is_one_distrusted && i < cached->len; i++)
        if (g_hash_table_contains (changed.objects, &g_array_index (cached, EcfsUuid, i)))
            forget_unsealed (self, &g_array_index (cached, EcfsUuid, i));
    g_hash_table_unref (changed.objects);
}
