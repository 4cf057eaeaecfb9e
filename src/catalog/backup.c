/* Catalogs copied as a whole, by SQLite's backup interface. */
#include "catalog/catalog.h"
#include "catalog/db.h"
#include "catalog/pg.h"
#include "catalog/sqlite.h"

#include <fcntl.h>
#include <unistd.h>

#define BUSY_MS 10000

_Atomic int ecfs_copy_step_pages = 1024; /* 4 MiB, some milliseconds in which nobody else has the catalog */

static bool fail (sqlite3 *db, int rc, const char *path, const char *what, GError **error)
{
    const char *text = db == NULL ? sqlite3_errstr (rc) : sqlite3_errmsg (db);
    return ecfs_fail (error, ecfs_sqlite_errno (rc), "catalog %s: %s: %s", path, what, text);
}

/* Taking the place of another */

/* Within one transaction: who reads it sees what was there, or all that takes its place. */
static bool copy_at_once (sqlite3 *to, sqlite3 *from, const char *path, GError **error)
{
    static const char what[] = "taking the place of another";
    sqlite3_backup *backup = sqlite3_backup_init (to, "main", from, "main");
    if (backup == NULL)
        return fail (to, sqlite3_errcode (to), path, what, error);
    int rc = sqlite3_backup_step (backup, -1);
    int ended = sqlite3_backup_finish (backup);
    rc = rc == SQLITE_DONE ? ended : rc;
    return rc == SQLITE_OK || fail (to, rc, path, what, error);
}

static sqlite3 *open_file (const char *path, int flags, GError **error)
{
    sqlite3 *db = NULL;
    int rc = sqlite3_open_v2 (path, &db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc == SQLITE_OK)
        return db;
    told (fail (db, rc, path, "opening", error));
    (void) sqlite3_close (db); /* nothing was written; NULL is accepted */
    return NULL;
}

bool ecfs_catalog_replace (const char *path, const char *by, GError **error)
{
    sqlite3 *from = open_file (by, SQLITE_OPEN_READONLY, error);
    sqlite3 *to = from == NULL ? NULL : open_file (path, SQLITE_OPEN_READWRITE, error);
    bool good = to != NULL;
    if (good) {
        (void) sqlite3_busy_timeout (to, BUSY_MS); /* cannot fail on an open database */
        good = copy_at_once (to, from, path, error);
    }
    (void) sqlite3_close (to); /* what was copied is committed; NULL is accepted */
    (void) sqlite3_close (from);
    return good;
}

/* A copy of one that goes on */

/* What others change meanwhile through the same connection, SQLite changes in the copy as well. */
static bool copy_some (EcfsCatalog *self, sqlite3_backup *backup, int n_pages, bool *ret_done, GError **error)
{
    ecfs_op_enter (self, true);
    bool stepped = ecfs_wait_all (self, error); /* it does not read what is not committed */
    int rc = stepped ? sqlite3_backup_step (backup, n_pages) : SQLITE_OK;
    ecfs_mutex_unlock (&self->lock);
    *ret_done = rc == SQLITE_DONE;
    return stepped && (rc == SQLITE_OK || rc == SQLITE_DONE || rc == SQLITE_BUSY || rc == SQLITE_LOCKED ||
                       fail (NULL, rc, self->path, "copying it", error));
}

static bool copy_all (EcfsCatalog *self, sqlite3_backup *backup, const atomic_bool *stop, GError **error)
{
    int n_pages = atomic_load (&ecfs_copy_step_pages), n_left = INT_MAX;
    for (bool done = false; !done;) {
        int64_t begun_us = ecfs_now_us ();
        if (stop != NULL && atomic_load (stop))
            return ecfs_fail (error, ECANCELED, "the copy of the catalog is given up");
        if (!copy_some (self, backup, n_pages, &done, error))
            return false;
        if (sqlite3_backup_remaining (backup) >= n_left) /* it grows as fast */
            n_pages = MIN (n_pages, INT_MAX / 2) * 2;
        n_left = sqlite3_backup_remaining (backup);
        if (!done)
            g_usleep ((gulong) (ecfs_now_us () - begun_us)); /* others want it as well */
    }
    return true;
}

static bool copy_into (EcfsCatalog *self, sqlite3 *to, const char *path, const atomic_bool *stop, GError **error)
{
    ecfs_mutex_lock (&self->lock);
    sqlite3_backup *backup = sqlite3_backup_init (to, "main", ecfs_sqlite_of (self->db), "main");
    ecfs_mutex_unlock (&self->lock);
    if (backup == NULL)
        return fail (to, sqlite3_errcode (to), path, "copying a catalog to it", error);
    bool copied = copy_all (self, backup, stop, error);
    ecfs_mutex_lock (&self->lock);
    int rc = sqlite3_backup_finish (backup);
    ecfs_mutex_unlock (&self->lock);
    if (copied && rc == SQLITE_OK) /* who reads it then needs no log beside it */
        rc = sqlite3_exec (to, "PRAGMA journal_mode = DELETE", NULL, NULL, NULL);
    return copied && (rc == SQLITE_OK || fail (to, rc, path, "copying a catalog to it", error));
}

static bool goes_on (void *user, uint64_t n_rows)
{
    const atomic_bool *stop = user;
    (void) n_rows;
    return stop == NULL || !atomic_load (stop);
}

bool ecfs_catalog_copy (EcfsCatalog *self, const char *path, const atomic_bool *stop, GError **error)
{
    (void) unlink (path); /* what a crash has left; what is there still fails the next */
    const EcfsPgCopying how = {.tick = goes_on, .user = (void *) stop, .lock = &self->lock};
    if (!self->db->ops->is_sqlite)
        return ecfs_catalog_barrier (self, error) && ecfs_pg_copy_to_file (self->db, path, &how, error) &&
               (self->readonly || ecfs_catalog_harden (self, NULL, error));
    int fd = open (path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0)
        return ecfs_fail_errno (error, errno, "%s", path);
    (void) close (fd); /* nothing was written */
    sqlite3 *to = open_file (path, SQLITE_OPEN_READWRITE, error);
    bool copied = to != NULL;
    if (copied) { /* it is of no use to anybody once this process has ended */
        (void) sqlite3_exec (to, "PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF", NULL, NULL, NULL);
        copied = copy_into (self, to, path, stop, error);
    }
    (void) sqlite3_close (to); /* its changes were written; NULL is accepted */
    if (!copied)
        (void) unlink (path);
    return copied;
}
