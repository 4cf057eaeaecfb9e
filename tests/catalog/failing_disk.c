#include "failing_disk.h"

#include <glib.h>
#include <sqlite3.h>
#include <stdatomic.h>

/* SQLite's file methods with a countdown in front. */
static sqlite3_io_methods real_methods;
static sqlite3_io_methods failing_methods[2]; /* of files without and with shared memory: the database itself */
static int (*real_open) (sqlite3_vfs *, const char *, sqlite3_file *, int, int *);
static atomic_int countdown;    /* calls until the failure; below 0: none is coming */
static atomic_int failure_code; /* what it says */
static atomic_bool stays_broken;
static atomic_int n_failures;

static bool fails (void)
{
    if (atomic_load (&countdown) < 0)
        return false;
    if (atomic_fetch_sub (&countdown, 1) > 0)
        return false;
    if (atomic_load (&stays_broken))
        atomic_store (&countdown, 0);
    atomic_fetch_add (&n_failures, 1);
    return true;
}

static int failing_write (sqlite3_file *file, const void *bytes, int size, sqlite3_int64 offset)
{
    return fails () ? atomic_load (&failure_code) : real_methods.xWrite (file, bytes, size, offset);
}

static int failing_sync (sqlite3_file *file, int flags)
{
    return fails () ? SQLITE_IOERR_FSYNC : real_methods.xSync (file, flags);
}

static int failing_open (sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *ret_flags)
{
    int rc = real_open (vfs, name, file, flags, ret_flags);
    if (file->pMethods != NULL) {
        g_assert_true (real_methods.xWrite == NULL || real_methods.xWrite == file->pMethods->xWrite);
        sqlite3_io_methods *methods = &failing_methods[file->pMethods->xShmMap != NULL];
        real_methods = *methods = *file->pMethods;
        methods->xWrite = failing_write;
        methods->xSync = failing_sync;
        file->pMethods = methods;
    }
    return rc;
}

void failing_disk_install (void)
{
    static sqlite3_vfs vfs;
    vfs = *sqlite3_vfs_find (NULL);
    real_open = vfs.xOpen;
    vfs.xOpen = failing_open;
    vfs.zName = "failing";
    vfs.pNext = NULL;
    atomic_store (&countdown, -1);
    g_assert_cmpint (sqlite3_vfs_register (&vfs, 1), ==, SQLITE_OK);
}

void failing_disk_break (int n_good, int code, bool stays)
{
    atomic_store (&failure_code, code);
    atomic_store (&stays_broken, stays);
    atomic_store (&countdown, n_good);
}

void failing_disk_heal (void)
{
    atomic_store (&stays_broken, false);
    atomic_store (&countdown, -1);
}

int failing_disk_count (void)
{
    return atomic_load (&n_failures);
}
