/* Files of SQLite that are catalogs: making, opening and looking whether they are one. */
#include "catalog/catalog.h"
#include "catalog/content_sum.h"
#include "catalog/schema.h"
#include "catalog/sqlite.h"
#include "util/io.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define BUSY_MS    5000
#define CHECKPOINT 2000 /* pages: 8 MiB, some 10 ms */

static bool refuse_network_disk (const char *path, GError **error)
{
    struct statfs fs;
    if (statfs (path, &fs) != 0)
        return ecfs_fail_errno (error, errno, "catalog %s", path);
    unsigned long type = (unsigned long) fs.f_type & 0xffffffff;
    if (type == 0x6969 || type == 0xfe534d42 || type == 0xff534d42) /* NFS, SMB2, CIFS */
        return ecfs_fail (error, ENOTSUP,
                          "catalog %s is on a network file system, where its locks and its shared "
                          "memory do not work: keep the archive directory on a local disk",
                          path);
    return true;
}

static bool configure (sqlite3 *db, const char *path, bool readonly, GError **error)
{
    (void) sqlite3_extended_result_codes (db, 1);                      /* cannot fail on an open database */
    (void) sqlite3_busy_timeout (db, BUSY_MS);                         /* likewise */
    (void) sqlite3_db_config (db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL); /* likewise, and the next three */
    (void) sqlite3_db_config (db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    (void) sqlite3_db_config (db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    (void) sqlite3_db_config (db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    /* Nothing is spilled before COMMIT: until then a full disk cannot hurt. */
    int rc =
        sqlite3_exec (db,
                      "PRAGMA foreign_keys = ON; PRAGMA cell_size_check = ON; PRAGMA synchronous = FULL; "
                      "PRAGMA cache_spill = OFF; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -32768; "
                      "PRAGMA wal_autocheckpoint = " G_STRINGIFY (CHECKPOINT) "; "
                                                                              "PRAGMA journal_size_limit = 67108864",
                      NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = ecfs_content_sum_register (db);
    if (rc == SQLITE_OK && !readonly)
        rc = sqlite3_exec (db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
    return rc == SQLITE_OK || ecfs_sqlite_fail (db, rc, error, path, "opening");
}

/* Reading needs the tables of this version; bringing older ones there is writing. */
static bool is_current (const char *path, int version, GError **error)
{
    return version == ECFS_CATALOG_VERSION ||
           ecfs_fail (error, ENOTSUP,
                      "catalog %s has version %d, made by an earlier ecfs; mount the archive for writing once, which "
                      "brings it to version %d. If an earlier ecfs has it mounted, unmount it first",
                      path, version, ECFS_CATALOG_VERSION);
}

static sqlite3 *open_db (const char *path, int flags, bool immutable, GError **error)
{
    g_autofree char *absolute = g_canonicalize_filename (path, NULL);
    g_autofree char *escaped = g_uri_escape_string (absolute, "/", false);
    g_autofree char *uri = g_strconcat ("file:", escaped, immutable ? "?immutable=1" : NULL, NULL);
    sqlite3 *db = NULL;
    bool readonly = (flags & SQLITE_OPEN_READONLY) != 0;
    int rc = sqlite3_open_v2 (uri, &db, flags | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, NULL);
    int version = 0;
    bool ok = rc == SQLITE_OK || ecfs_sqlite_fail (db, rc, error, path, "opening");
    if (ok && configure (db, path, readonly, error) &&
        ((flags & SQLITE_OPEN_CREATE) != 0 || ecfs_schema_check (db, path, &version, error)) &&
        (readonly ? is_current (path, version, error) : ecfs_schema_migrate (db, path, error)))
        return db;
    (void) sqlite3_close (db); /* nothing was written */
    return NULL;
}

/* A catalog in a directory that cannot be written has no place for SQLite's shared memory; without a log nobody is
 * writing, and it can be read as it is. */
static sqlite3 *open_readonly (const char *path, GError **error)
{
    g_autoptr (GError) first = NULL;
    sqlite3 *db = open_db (path, SQLITE_OPEN_READONLY, false, &first);
    if (db != NULL)
        return db;
    g_autofree char *wal = g_strconcat (path, "-wal", NULL);
    g_autofree char *dir = g_path_get_dirname (path);
    struct stat st;
    bool has_log = stat (wal, &st) == 0 ? st.st_size > 0 : errno != ENOENT;
    if (!has_log && access (dir, W_OK) != 0 && !g_error_matches (first, ECFS_ERROR, EBADMSG) &&
        !g_error_matches (first, ECFS_ERROR, ENOTSUP))
        return open_db (path, SQLITE_OPEN_READONLY, true, error);
    g_propagate_error (error, g_steal_pointer (&first));
    return NULL;
}

/* SQLite would make a new database of a file that is empty. */
static bool refuse_missing (const char *path, GError **error)
{
    struct stat st;
    if (stat (path, &st) != 0)
        return ecfs_fail_errno (error, errno, "catalog %s (" ECFS_CATALOG_ADVICE ")", path);
    return st.st_size > 0 || ecfs_fail (error, EBADMSG, "catalog %s is empty: " ECFS_CATALOG_ADVICE, path);
}

EcfsDb *ecfs_sqlite_open (const char *path, bool readonly, GError **error)
{
    if (!refuse_missing (path, error) || !refuse_network_disk (path, error))
        return NULL;
    sqlite3 *db = readonly ? open_readonly (path, error) : open_db (path, SQLITE_OPEN_READWRITE, false, error);
    return db == NULL ? NULL : ecfs_sqlite_wrap (db, path);
}

/* Making */

/* The finished file appears under its name at once. */
static bool publish_file (const char *from, const char *to, GError **error)
{
    g_autofree char *dir = g_path_get_dirname (to);
    if (renameat2 (AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) != 0)
        return ecfs_fail_errno (error, errno, "catalog %s", to);
    int result = ecfs_fsync_dir (AT_FDCWD, dir);
    return result == 0 || ecfs_fail_errno (error, -result, "directory %s", dir);
}

sqlite3 *ecfs_sqlite_make (const char *path, GError **error)
{
    ecfs_autofd fd = open (path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return open_db (path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, false, error);
    told (ecfs_fail_errno (error, errno, "%s", path));
    return NULL;
}

bool ecfs_sqlite_create (const char *path,
                         bool (*fill) (EcfsDb *db, const char *path, const EcfsUuid *archive, GError **error),
                         const EcfsUuid *archive, GError **error)
{
    g_autofree char *temporary = g_strconcat (path, ".new-XXXXXX", NULL);
    if (access (path, F_OK) == 0)
        return ecfs_fail_errno (error, EEXIST, "catalog %s", path);
    ecfs_autofd fd = g_mkstemp_full (temporary, O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return ecfs_fail_errno (error, errno, "catalog %s", path);
    sqlite3 *db = refuse_network_disk (temporary, error)
                      ? open_db (temporary, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, false, error)
                      : NULL;
    /* As the last connection it moves the log into the file. */
    bool ok = db != NULL && fill (ecfs_sqlite_wrap (db, temporary), temporary, archive, error) &&
              publish_file (temporary, path, error);
    if (!ok)
        (void) unlink (temporary); /* the first error is the one to tell */
    return ok;
}
