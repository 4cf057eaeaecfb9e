#include "archive/catalog_place.h"
#include "archive/common.h"
#include "catalog/database.h"
#include "util/io.h"

#include <unistd.h>

#define PLACE_MAX 1000 /* bytes of the file */

static char *file_in (const char *directory, const char *name)
{
    return g_build_filename (directory, name, NULL);
}

char *ecfs_catalog_place (const char *directory, const EcfsConfig *config, GError **error)
{
    g_autofree char *path = file_in (directory, ECFS_CATALOG_PLACE_NAME);
    g_autofree char *uuids = NULL;
    if (config->catalog == NULL)
        return file_in (directory, ECFS_CATALOG_NAME);
    if (ecfs_read_file (path, PLACE_MAX, &uuids, NULL, error))
        return g_strconcat (config->catalog, "#", g_strchomp (uuids), NULL);
    told (ecfs_prefix (error,
                       "%s: ecfs.conf says that the catalog is in a database, and the file %s, which says as what, "
                       "cannot be read ('ecfs recover' makes both anew)",
                       directory, ECFS_CATALOG_PLACE_NAME));
    return NULL;
}

char *ecfs_catalog_place_in (const char *directory, GError **error)
{
    g_autofree char *path = file_in (directory, ECFS_CONFIG_NAME);
    g_autoptr (EcfsConfig) config = NULL;
    g_autofree char *text = NULL;
    if (access (path, F_OK) != 0) /* it is being made, and then a file */
        return file_in (directory, ECFS_CATALOG_NAME);
    if (ecfs_read_file (path, G_MAXINT, &text, NULL, error))
        config = ecfs_config_parse (text, path, error);
    return config == NULL ? NULL : ecfs_catalog_place (directory, config, error);
}

bool ecfs_catalog_place_is_there (const char *directory)
{
    g_autofree char *catalog = file_in (directory, ECFS_CATALOG_NAME);
    g_autofree char *place = file_in (directory, ECFS_CATALOG_PLACE_NAME);
    return access (catalog, F_OK) == 0 || access (place, F_OK) == 0;
}

static bool write_place (const char *directory, const EcfsUuid *archive, GError **error)
{
    g_autofree char *path = file_in (directory, ECFS_CATALOG_PLACE_NAME);
    char whose[ECFS_UUID_TEXT_SIZE], who[ECFS_UUID_TEXT_SIZE];
    EcfsUuid holder = ecfs_uuid_new ();
    ecfs_uuid_text (archive, whose);
    ecfs_uuid_text (&holder, who);
    g_autofree char *text = g_strdup_printf ("%s:%s\n", whose, who);
    return ecfs_replace_file (path, text, strlen (text), 0600, error);
}

bool ecfs_catalog_place_make (const char *directory, const EcfsConfig *config, const EcfsUuid *archive, GError **error)
{
    g_autofree char *path = file_in (directory, ECFS_CATALOG_PLACE_NAME);
    return config->catalog == NULL || access (path, F_OK) == 0 || write_place (directory, archive, error);
}

bool ecfs_catalog_place_join (const char *directory, const EcfsUuid *archive, GError **error)
{
    return write_place (directory, archive, error);
}
