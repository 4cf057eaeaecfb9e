/* Peers in a catalog that several machines have open. */
#include "locate/locate_priv.h"
#include "peer/peer_text.h"

typedef struct ByCatalog {
    EcfsLocate base;
    EcfsCatalog *catalog; /* borrowed */
} ByCatalog;

static bool by_catalog_announce (EcfsLocate *base, const char *address, unsigned ttl_s, int64_t deadline_us,
                                 GError **error)
{
    (void) deadline_us;
    return ecfs_catalog_tell_peer (((ByCatalog *) base)->catalog, ttl_s > 0 ? address : NULL, error);
}

/* What is there may be from anybody who may write in the database. */
static GPtrArray *by_catalog_find (EcfsLocate *base, unsigned most, int64_t deadline_us, GError **error)
{
    (void) deadline_us;
    g_autoptr (GPtrArray) all = ecfs_catalog_peers (((ByCatalog *) base)->catalog, error);
    if (all == NULL)
        return NULL;
    GPtrArray *found = g_ptr_array_new_with_free_func (g_free);
    for (guint i = 0; i < all->len && found->len < most; i++) {
        unsigned port;
        g_autofree char *host = NULL;
        if (ecfs_peer_address_parse (all->pdata[i], &host, &port) &&
            !g_ptr_array_find_with_equal_func (found, all->pdata[i], g_str_equal, NULL))
            g_ptr_array_add (found, g_strdup (all->pdata[i]));
    }
    return found;
}

static void by_catalog_free (EcfsLocate *base)
{
    g_free (base);
}

EcfsLocate *ecfs_locate_catalog_new (EcfsCatalog *catalog)
{
    static const EcfsLocateOps ops = {by_catalog_announce, by_catalog_find, by_catalog_free};
    ByCatalog *self = g_new0 (ByCatalog, 1);
    self->base.ops = &ops;
    self->catalog = catalog;
    return &self->base;
}
