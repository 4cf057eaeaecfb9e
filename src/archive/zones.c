#include "archive/zones.h"
#include "archive/config.h"
#include "catalog/journal_rows.h"

#include <string.h>

#define ZONE_SETTING "zone " /* and the UUID of an endpoint; empty: a zone of its own */

typedef struct Search {
    char *key;
    char *value; /* NULL: nothing is told */
} Search;

static void on_setting (void *user, const char *key, const char *value)
{
    Search *self = user;
    if (strcmp (key, self->key) == 0) {
        g_free (self->value);
        self->value = g_strdup (value);
    }
}

static char *key_of (const EcfsUuid *endpoint)
{
    char text[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (endpoint, text);
    return g_strconcat (ZONE_SETTING, text, NULL);
}

bool ecfs_zone_keep (EcfsCatalog *catalog, const EcfsUuid *endpoint, const char *name, const char *zone, GError **error)
{
    g_autofree char *key = key_of (endpoint);
    Search search = {.key = key};
    bool is_own = strcmp (name, zone) == 0, good = ecfs_catalog_settings (catalog, on_setting, &search, error);
    if (good && (!is_own || search.value != NULL))
        good = ecfs_catalog_keep_setting (catalog, key, is_own ? "" : zone, error);
    g_free (search.value);
    return good;
}

bool ecfs_zone_kept (EcfsCatalog *catalog, const EcfsUuid *endpoint, char **ret_zone, GError **error)
{
    g_autofree char *key = key_of (endpoint);
    Search search = {.key = key};
    if (!ecfs_catalog_settings (catalog, on_setting, &search, error))
        return false;
    if (search.value != NULL && !ecfs_config_name_is_valid (search.value))
        g_clear_pointer (&search.value, g_free);
    *ret_zone = search.value;
    return true;
}
