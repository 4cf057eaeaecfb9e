/* What a catalog of the past is without: objects that came later, and stripes that are gone. */
#include "catalog/restore_priv.h"

#define BATCH 256 /* objects that go in one operation */

static bool drop_unnamed (EcfsCatalog *catalog, uint64_t *ret_n, GError **error)
{
    g_autoptr (GArray) ids = g_array_new (FALSE, FALSE, sizeof (int64_t));
    autoquery *query = QUERY (catalog, OBJECTS_UNNAMED, error, INT (BATCH));
    int found;
    while ((found = ecfs_query_step (catalog, query, error)) == 1) {
        int64_t id = ecfs_column_number (query, 0);
        g_array_append_val (ids, id);
    }
    ecfs_query_end (&query);
    for (guint i = 0; i < ids->len && found == 0; i++)
        if (!ecfs_object_delete (catalog, g_array_index (ids, int64_t, i), error))
            return false;
    *ret_n = ids->len;
    return found == 0;
}

bool ecfs_restore_drop_unnamed (EcfsRestore *self, GError **error)
{
    for (uint64_t n = 1; n > 0;)
        if (!CHANGE (self->catalog, error, drop_unnamed (self->catalog, &n, error)))
            return false;
    return true;
}

static bool forget_stripe (EcfsCatalog *catalog, const EcfsObjectRow *object, const EcfsStripeRow *stripe,
                           GError **error)
{
    catalog->counters.totals.stripe_bytes -= stripe->size;
    return EXEC (catalog, STRIPE_DELETE, error, INT (object->id), INT (stripe->index));
}

bool ecfs_restore_forget_stripe (EcfsRestore *self, const EcfsObjectRow *object, const EcfsStripeRow *stripe,
                                 GError **error)
{
    return CHANGE (self->catalog, error, forget_stripe (self->catalog, object, stripe, error));
}
