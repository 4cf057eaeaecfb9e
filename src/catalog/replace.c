#include "catalog/catalog.h"
#include "catalog/db.h"

#define BUSY_MS 10000

static bool fail (sqlite3 *db, int rc, const char *path, GError **error)
{
    const char *text = db == NULL ? sqlite3_errstr (rc) : sqlite3_errmsg (db);
    return ecfs_fail (error, ecfs_db_errno (rc), "catalog %s: taking the place of another: %s", path, text);
}

/* Within one transaction: who reads it sees what was there, or all that takes its place. */
static bool copy (sqlite3 *to, sqlite3 *from, const char *path, GError **error)
{
    sqlite3_backup *backup = sqlite3_backup_init (to, "main", from, "main");
    if (backup == NULL)
        return fail (to, sqlite3_errcode (to), path, error);
    int rc = sqlite3_backup_step (backup, -1);
    int ended = sqlite3_backup_finish (backup);
    rc = rc == SQLITE_DONE ? ended : rc;
    return rc == SQLITE_OK || fail (to, rc, path, error);
}

bool ecfs_catalog_replace (const char *path, const char *by, GError **error)
{
    sqlite3 *to = NULL, *from = NULL;
    int rc = sqlite3_open_v2 (by, &from, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL);
    bool good = rc == SQLITE_OK || fail (from, rc, by, error);
    rc = good ? sqlite3_open_v2 (path, &to, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) : SQLITE_OK;
    good = good && (rc == SQLITE_OK || fail (to, rc, path, error));
    if (good) {
        (void) sqlite3_busy_timeout (to, BUSY_MS); /* cannot fail on an open database */
        good = copy (to, from, path, error);
    }
    (void) sqlite3_close (to); /* what was copied is committed; NULL is accepted */
    (void) sqlite3_close (from);
    return good;
}
