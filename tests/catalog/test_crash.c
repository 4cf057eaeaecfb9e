/* What is left after kill -9, after a torn log, and after writes that fail: always a prefix of the operations. */
#include "check_db.h"
#include "failing_disk.h"
#include "fixture.h"
#include "program/program.h"
#include "util/lock.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define TIMEOUT_US (60 * G_USEC_PER_SEC)

/* Operation i makes file i with an attribute, and every third one renames the file before it. */
static bool operate (EcfsCatalog *catalog, unsigned i, GError **error)
{
    g_autofree char *name = g_strdup_printf ("file%u", i), *old = g_strdup_printf ("file%u", i - 1);
    g_autofree char *new = g_strdup_printf ("renamed%u", i - 1);
    if (i % 3 == 2)
        return ecfs_catalog_rename (catalog, ECFS_ROOT_INO, old, ECFS_ROOT_INO, new, 0, NULL, error);
    EcfsNewInode inode = {.mode = S_IFREG | 0644};
    return ecfs_catalog_make (catalog, ECFS_ROOT_INO, name, &inode, NULL, NULL, error);
}

static bool has_name (EcfsCatalog *catalog, const char *what, unsigned i)
{
    g_autofree char *name = g_strdup_printf ("%s%u", what, i);
    EcfsAttr attr;
    int code = CODE (e, ecfs_catalog_lookup (catalog, ECFS_ROOT_INO, name, &attr, &e));
    g_assert_true (code == 0 || code == ENOENT);
    return code == 0;
}

static bool was_done (EcfsCatalog *catalog, unsigned i)
{
    if (i % 3 == 2)
        return has_name (catalog, "renamed", i - 1);
    return has_name (catalog, "file", i) || has_name (catalog, "renamed", i);
}

/* How many operations the file has; none may be missing among them. */
static unsigned count_prefix (const char *path, unsigned max)
{
    check_integrity (path);
    g_autoptr (GError) error = NULL;
    EcfsCatalog *catalog = ecfs_catalog_open (path, 0, &error);
    g_assert_no_error (error);
    unsigned n = 0;
    while (n < max && was_done (catalog, n))
        n++;
    for (unsigned i = n; i < MIN (n + 200, max); i++)
        g_assert_false (was_done (catalog, i));
    EcfsTotals totals;
    OK (e, ecfs_catalog_totals (catalog, &totals, &e));
    g_assert_cmpuint (totals.n_files, ==, n - n / 3);
    g_assert_cmpuint (ecfs_catalog_sequence (catalog), ==, n + 1);
    OK (e, ecfs_catalog_close (catalog, &e));
    return n;
}

static void run_child (const char *path, unsigned per_barrier, int pipe_fd)
{
    EcfsCatalog *catalog = ecfs_catalog_open (path, 0, NULL);
    if (catalog == NULL)
        _exit (1);
    for (unsigned i = 0;; i++) {
        if (!operate (catalog, i, NULL))
            _exit (2);
        if (i % per_barrier != per_barrier - 1)
            continue;
        unsigned n_durable = i + 1;
        if (!ecfs_catalog_barrier (catalog, NULL) || write (pipe_fd, &n_durable, sizeof n_durable) < 0)
            _exit (3);
    }
}

/* Starts a child, reads @n_reports of its barriers, kills it @more_us later; returns what the last barrier said. */
static unsigned run_and_kill (const char *path, unsigned per_barrier, unsigned n_reports, int64_t more_us)
{
    int fds[2];
    unsigned n_durable = 0, last;
    g_assert_cmpint (pipe (fds), ==, 0);
    pid_t child = fork ();
    g_assert_cmpint (child, >=, 0);
    if (child == 0)
        run_child (path, per_barrier, fds[1]);
    close (fds[1]);
    for (unsigned i = 0; i < n_reports; i++)
        g_assert_cmpint (read (fds[0], &n_durable, sizeof n_durable), ==, sizeof n_durable);
    for (int64_t until_us = ecfs_now_us () + more_us; ecfs_now_us () < until_us;)
        g_thread_yield ();
    g_assert_cmpint (kill (child, SIGKILL), ==, 0);
    g_assert_cmpint (waitpid (child, NULL, 0), ==, child);
    while (read (fds[0], &last, sizeof last) == sizeof last)
        n_durable = last;
    close (fds[0]);
    return n_durable;
}

static void test_kill (void)
{
    for (int round = 0; round < 20; round++) {
        Fixture f;
        fixture_init (&f);
        fixture_close (&f);
        unsigned n_durable =
            run_and_kill (f.path, 2003, (unsigned) g_test_rand_int_range (1, 4), g_test_rand_int_range (0, 40000));
        unsigned n = count_prefix (f.path, UINT_MAX);
        g_test_message ("%u operations durable, %u found", n_durable, n);
        g_assert_cmpuint (n, >=, n_durable);
        fixture_open (&f, 0);
        fixture_clear (&f);
    }
}

/* The log as it may be when the power went: any length of it, its last page half written. */
static void test_torn_log (void)
{
    Fixture f;
    fixture_init (&f);
    fixture_close (&f);
    unsigned n_durable = run_and_kill (f.path, 97, 12, 0);
    g_autofree char *wal = g_strconcat (f.path, "-wal", NULL), *db_bytes = NULL, *wal_bytes = NULL;
    gsize db_size, wal_size;
    g_assert_true (g_file_get_contents (f.path, &db_bytes, &db_size, NULL));
    g_assert_true (g_file_get_contents (wal, &wal_bytes, &wal_size, NULL));
    unsigned last = 0;
    for (int step = 0; step <= 20; step++) {
        gsize size = wal_size * (gsize) step / 20;
        g_autofree char *shm = g_strconcat (f.path, "-shm", NULL);
        (void) unlink (shm);
        g_assert_true (g_file_set_contents (f.path, db_bytes, (gssize) db_size, NULL));
        g_assert_true (g_file_set_contents (wal, wal_bytes, (gssize) size, NULL));
        unsigned n = count_prefix (f.path, UINT_MAX);
        g_assert_cmpuint (n, >=, last);
        last = n;
    }
    g_assert_cmpuint (last, >=, n_durable);
    fixture_open (&f, 0);
    fixture_clear (&f);
}

/* Warnings are expected here; what matters is that they are said. */
static atomic_int n_warnings, n_criticals;

static void count_message (const char *domain, GLogLevelFlags level, const char *message, gpointer data)
{
    if ((level & G_LOG_LEVEL_CRITICAL) != 0)
        atomic_fetch_add (&n_criticals, 1);
    else if ((level & G_LOG_LEVEL_WARNING) != 0)
        atomic_fetch_add (&n_warnings, 1);
}

static void operate_until_done (EcfsCatalog *catalog, unsigned i)
{
    int64_t deadline_us = ecfs_now_us () + TIMEOUT_US;
    int code;
    while (((code = CODE (e, operate (catalog, i, &e))) == EROFS || code == ENOSPC) && ecfs_now_us () < deadline_us)
        (void) ecfs_catalog_barrier (catalog, NULL); /* tries again */
    g_assert_cmpint (code, ==, 0);
}

#define N_OPERATIONS 16

static void run_with_fault (int n, int code)
{
    Fixture f;
    fixture_init (&f);
    failing_disk_break (n, code, false);
    for (unsigned i = 0; i < N_OPERATIONS; i++) {
        operate_until_done (f.catalog, i);
        g_assert_true (was_done (f.catalog, i));
        if (i % 4 == 3)
            (void) ecfs_catalog_barrier (f.catalog, NULL); /* fails once in a run */
    }
    OK (e, ecfs_catalog_barrier (f.catalog, &e) || ecfs_catalog_barrier (f.catalog, (g_clear_error (&e), &e)));
    failing_disk_heal ();
    fixture_close (&f);
    g_assert_cmpuint (count_prefix (f.path, UINT_MAX), ==, N_OPERATIONS);
    fixture_open (&f, 0);
    fixture_clear (&f);
}

static void test_one_fault (void)
{
    static const int codes[] = {SQLITE_IOERR_WRITE, SQLITE_FULL};
    for (size_t c = 0; c < G_N_ELEMENTS (codes); c++) {
        int n = 0, before;
        do {
            before = failing_disk_count ();
            run_with_fault (n++, codes[c]);
        } while (failing_disk_count () > before);
        g_test_message ("%d calls failed, one in each run", n - 1);
        g_assert_cmpint (n, >, 10);
    }
    g_assert_cmpint (atomic_load (&n_warnings), >, 20);
    g_assert_cmpint (atomic_load (&n_criticals), ==, 0);
}

/* The disk is full until someone makes room: nothing that was answered is lost, the rest is refused. */
static unsigned fill_until_refused (EcfsCatalog *catalog)
{
    int64_t deadline_us = ecfs_now_us () + TIMEOUT_US;
    unsigned i = 0;
    int code;
    while ((code = CODE (e, operate (catalog, i, &e))) == 0 && ecfs_now_us () < deadline_us)
        i++;
    g_assert_cmpint (code, ==, EROFS);
    return i;
}

static void check_refusing (EcfsCatalog *catalog, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        g_assert_true (was_done (catalog, i));
    g_assert_cmpint (CODE (e, ecfs_catalog_barrier (catalog, &e)), ==, EROFS);
    g_assert_cmpint (CODE (e, operate (catalog, n, &e)), ==, EROFS);
    EcfsUuid uuid = ecfs_uuid_new ();
    int64_t id;
    g_assert_cmpint (CODE (e, ecfs_catalog_endpoint_add (catalog, &uuid, "x", &id, &e)), ==, EROFS);
}

static void wait_for_recovery (EcfsCatalog *catalog, unsigned n)
{
    int64_t deadline_us = ecfs_now_us () + TIMEOUT_US;
    int code;
    while ((code = CODE (e, operate (catalog, n, &e))) == EROFS && ecfs_now_us () < deadline_us)
        g_usleep (1000); /* the flusher tries each second on its own */
    g_assert_cmpint (code, ==, 0);
}

static void test_disk_full (void)
{
    Fixture f;
    fixture_init (&f);
    struct rlimit limit, full;
    g_assert_cmpint (getrlimit (RLIMIT_FSIZE, &limit), ==, 0);
    full = limit;
    full.rlim_cur = 200000; /* of the log: what is beyond fails with EFBIG */
    g_assert_true (signal (SIGXFSZ, SIG_IGN) != SIG_ERR);
    g_assert_cmpint (setrlimit (RLIMIT_FSIZE, &full), ==, 0);
    unsigned n = fill_until_refused (f.catalog);
    check_refusing (f.catalog, n);
    g_assert_cmpint (setrlimit (RLIMIT_FSIZE, &limit), ==, 0);
    wait_for_recovery (f.catalog, n);
    fixture_close (&f);
    g_assert_cmpuint (count_prefix (f.path, UINT_MAX), ==, n + 1);
    fixture_open (&f, 0);
    fixture_clear (&f);
}

static void test_close_while_full (void)
{
    Fixture f;
    fixture_init (&f);
    for (unsigned i = 0; i < 5; i++)
        OK (e, operate (f.catalog, i, &e));
    OK (e, ecfs_catalog_barrier (f.catalog, &e));
    failing_disk_break (0, SQLITE_FULL, true);
    OK (e, operate (f.catalog, 5, &e));
    EcfsCatalog *catalog = g_steal_pointer (&f.catalog);
    g_assert_cmpint (CODE (e, ecfs_catalog_close (catalog, &e)), ==, ENOSPC); /* and says that operation 5 is lost */
    failing_disk_heal ();
    g_assert_cmpuint (count_prefix (f.path, UINT_MAX), ==, 5);
    fixture_open (&f, 0);
    fixture_clear (&f);
}

/* It is the file's content for everybody at once, and for good when there is room again. */
static void test_kept_publish (void)
{
    Fixture f;
    bool kept;
    fixture_init (&f);
    fixture_add_endpoints (&f);
    uint64_t ino = make_file (&f, ECFS_ROOT_INO, "file");
    EcfsPublish publish = {.ino = ino, .size = 5, .mtime_ns = 4711};
    OK (e, ecfs_catalog_barrier (f.catalog, &e));
    failing_disk_break (0, SQLITE_FULL, true);
    g_assert_cmpint (CODE (e, ecfs_catalog_publish (f.catalog, &publish, &kept, &e)), ==, ENOSPC);
    g_assert_true (kept);
    g_assert_cmpuint (get_attr (&f, ino).size, ==, 5);
    g_assert_cmpint (CODE (e, ecfs_catalog_publish (f.catalog, &publish, &kept, &e)), ==, ENOSPC);
    g_assert_false (kept); /* refused like every further change */
    failing_disk_heal ();
    OK (e, ecfs_catalog_barrier (f.catalog, &e));
    fixture_reopen (&f);
    g_assert_cmpuint (get_attr (&f, ino).size, ==, 5);
    fixture_clear (&f);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    (void) ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    (void) g_log_set_default_handler (count_message, NULL);
    failing_disk_install ();
    g_test_add_func ("/crash/kill-9-leaves-a-prefix-with-all-that-was-durable", test_kill);
    g_test_add_func ("/crash/a-torn-log-leaves-a-prefix", test_torn_log);
    g_test_add_func ("/crash/any-failing-write-loses-nothing", test_one_fault);
    g_test_add_func ("/crash/a-full-disk-refuses-changes-until-there-is-room", test_disk_full);
    g_test_add_func ("/crash/a-publish-whose-commit-fails-is-kept", test_kept_publish);
    g_test_add_func ("/crash/closing-on-a-full-disk-says-what-is-lost", test_close_while_full);
    return g_test_run ();
}
