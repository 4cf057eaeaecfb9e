/* A directory for another machine, which is to write the same archive (catalog_mounts = many). */
#include "archive/archive.h"
#include "archive/catalog_place.h"
#include "archive/common.h"
#include "archive/in_use.h"
#include "ecfs/ecfs.h"
#include "util/io.h"

#include <unistd.h>

/* What an archive directory has that was mounted: bytes that nobody else has, and signs of life. */
static bool check_fresh (const char *directory, GError **error)
{
    static const char *const names[] = {ECFS_CATALOG_NAME, ECFS_IN_USE_NAME, "staging"};
    for (size_t i = 0; i < G_N_ELEMENTS (names); i++) {
        g_autofree char *path = g_build_filename (directory, names[i], NULL);
        if (access (path, F_OK) == 0)
            return ecfs_fail (error, EEXIST,
                              "%s: only a directory that was never mounted joins: make a new one with copies of "
                              "ecfs.conf, " ECFS_CATALOG_PLACE_NAME " and the files of the key",
                              path);
    }
    return true;
}

static bool fail_file (const char *directory, GError **error)
{
    return ecfs_fail (error, EINVAL,
                      "%s: ecfs.conf says that the catalog is a file, which one machine has; joining needs one in a "
                      "database: 'ecfs catalog move' on that machine takes it there, then copy its ecfs.conf anew",
                      directory);
}

/* Before the catalog is looked for, which a file of that machine is. */
static bool check_place (const char *directory, GError **error)
{
    g_autofree char *config = g_build_filename (directory, ECFS_CONFIG_NAME, NULL);
    if (access (config, F_OK) != 0)
        return true; /* that is told of such a directory */
    g_autofree char *place = ecfs_catalog_place_in (directory, error);
    return place != NULL && (!g_str_has_suffix (place, "/" ECFS_CATALOG_NAME) || fail_file (directory, error));
}

static bool check_config (const EcfsArchive *archive, GError **error)
{
    const EcfsConfig *config = ecfs_archive_config (archive);
    if (config->catalog == NULL)
        return fail_file (ecfs_archive_directory (archive), error);
    return config->catalog_many ||
           ecfs_fail (error, EINVAL,
                      "%s: ecfs.conf says that one mount at a time writes it: set catalog_mounts = many there, and in "
                      "that of the other machines",
                      ecfs_archive_directory (archive));
}

bool ecfs_join_catalog (const char *directory, GError **error)
{
    g_autoptr (EcfsArchive) archive = NULL;
    if (!check_fresh (directory, error) || !check_place (directory, error) ||
        (archive = ecfs_archive_open (directory, ECFS_ARCHIVE_READONLY, error)) == NULL ||
        !check_config (archive, error))
        return false;
    return ecfs_catalog_place_join (directory, ecfs_catalog_archive (ecfs_archive_catalog (archive)), error);
}
