#include "archive/exchange.h"

#include "archive/catalog_place.h"
#include "archive/common.h"
#include "archive/in_use.h"
#include "archive/key_shares.h"
#include "archive/keys.h"
#include "catalog/pg.h"
#include "catalog/reads.h"
#include "catalog/scrub.h"
#include "util/io.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* SQLite would apply what is in there to whatever catalog has the name. */
static bool check_alone (const char *directory, GError **error)
{
    struct stat status;
    g_autofree char *path = g_build_filename (directory, ECFS_CATALOG_NAME "-wal", NULL);
    if (stat (path, &status) != 0)
        return errno == ENOENT || ecfs_fail_errno (error, errno, "%s", path);
    return status.st_size == 0 ||
           ecfs_fail (error, EBUSY, "another program reads %s: end it, and run this again", directory);
}

static bool take_file (const char *from, const char *to, const char *name, GError **error)
{
    g_autofree char *source = g_build_filename (from, name, NULL);
    g_autofree char *target = g_build_filename (to, name, NULL);
    return rename (source, target) == 0 || errno == ENOENT ||
           ecfs_fail_errno (error, errno, "%s cannot be renamed to %s", source, target);
}

/* What is about the old catalog's rows, or says what was in use. */
static bool remove_old (const char *directory, GError **error)
{
    static const char *const names[] = {ECFS_IN_USE_NAME,        ECFS_RENEWED_NAME,      ECFS_READS_NAME,
                                        ECFS_READS_NAME "-wal",  ECFS_READS_NAME "-shm", ECFS_SCRUB_NAME,
                                        ECFS_SCRUB_NAME "-wal",  ECFS_SCRUB_NAME "-shm", ECFS_CATALOG_NAME "-wal",
                                        ECFS_CATALOG_NAME "-shm"};
    for (size_t i = 0; i < G_N_ELEMENTS (names); i++) {
        g_autofree char *path = g_build_filename (directory, names[i], NULL);
        if (unlink (path) != 0 && errno != ENOENT)
            return ecfs_fail_errno (error, errno, "%s cannot be removed", path);
    }
    return true;
}

static bool sync_directory (const char *directory, GError **error)
{
    int result = ecfs_fsync_dir (AT_FDCWD, directory);
    return result == 0 || ecfs_fail_errno (error, -result, "%s", directory);
}

/* Whether the database has it already, from before this was interrupted: nothing else has its epoch. */
static bool is_copied (const char *place, const char *file)
{
    EcfsCatalog *there = ecfs_catalog_open (place, ECFS_CATALOG_READONLY, NULL);
    EcfsCatalog *made = there == NULL ? NULL : ecfs_catalog_open (file, ECFS_CATALOG_READONLY, NULL);
    bool copied = made != NULL && ecfs_catalog_epoch (there) == ecfs_catalog_epoch (made);
    (void) ecfs_catalog_close (there, NULL); /* they were only read; NULL is accepted */
    (void) ecfs_catalog_close (made, NULL);
    return copied;
}

/* Into a database, where the directory's ecfs.conf, which was exchanged, says so. What was there is renamed. */
static bool take_catalog (const char *taken, const char *directory, GError **error)
{
    const EcfsPgCopying how = {.set_aside = true};
    g_autofree char *file = g_build_filename (taken, ECFS_CATALOG_NAME, NULL);
    g_autofree char *place = ecfs_catalog_place_in (directory, error);
    if (place == NULL)
        return false;
    if (!ecfs_pg_is_location (place))
        return take_file (taken, directory, ECFS_CATALOG_NAME, error);
    if (!is_copied (place, file) && !ecfs_pg_copy_from_file (place, file, &how, error))
        return false;
    return unlink (file) == 0 || ecfs_fail_errno (error, errno, "%s cannot be removed", file);
}

/* Each step may have been done. Behind the catalog's, the directory is the archive's, and nothing of it is touched. */
static bool go_on (const char *directory, const char *taken, GError **error)
{
    g_autofree char *catalog = g_build_filename (taken, ECFS_CATALOG_NAME, NULL);
    if (access (catalog, F_OK) == 0 &&
        (!check_alone (directory, error) || !take_file (taken, directory, ECFS_KEYS_NAME, error) ||
         !take_file (taken, directory, ECFS_KEY_SLOTS_NAME, error) ||
         !take_file (taken, directory, ECFS_CONFIG_NAME, error) || !remove_old (directory, error) ||
         !sync_directory (directory, error) || !take_catalog (taken, directory, error) ||
         !sync_directory (directory, error)))
        return false;
    ecfs_archive_empty_directory (taken, true);
    return true;
}

bool ecfs_archive_exchange_rest (const char *directory, GError **error)
{
    g_autofree char *taken = g_build_filename (directory, ECFS_TAKEN_OVER_NAME, NULL);
    g_autofree char *path = g_build_filename (directory, ECFS_LOCK_NAME, NULL);
    if (access (taken, F_OK) != 0)
        return errno == ENOENT || ecfs_fail_errno (error, errno, "%s", taken);
    if (!ecfs_archive_check_directory (directory, error))
        return false;
    ecfs_autofd lock = open (path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock < 0 || flock (lock, LOCK_EX | LOCK_NB) != 0)
        return ecfs_fail (error, errno == EWOULDBLOCK ? EBUSY : errno, "%s: %s", path,
                          errno == EWOULDBLOCK ? "another process uses the directory" : g_strerror (errno));
    return go_on (directory, taken, error);
}

bool ecfs_archive_exchange (EcfsArchive *self, const char *fresh, GError **error)
{
    g_autofree char *directory = g_strdup (ecfs_archive_directory (self));
    g_autofree char *taken = g_build_filename (directory, ECFS_TAKEN_OVER_NAME, NULL);
    ecfs_autofd lock = ecfs_archive_keep_lock (self, error); /* until all is exchanged */
    ecfs_archive_close (self);
    if (lock < 0 || !check_alone (directory, error) || !check_alone (fresh, error))
        return false;
    if (rename (fresh, taken) != 0)
        return ecfs_fail_errno (error, errno, "%s cannot be renamed to %s", fresh, taken);
    return sync_directory (directory, error) && go_on (directory, taken, error);
}
