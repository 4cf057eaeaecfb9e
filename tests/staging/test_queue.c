/* How many files are open while many wait to be stored, and what becomes of a commit that the catalog's disk refuses.
 * ECFS_STAGED: how many files wait, for a longer test. */
#include "../catalog/failing_disk.h"
#include "program/program.h"
#include "staged_fixture.h"
#include "util/io.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <sys/resource.h>

#define MAX_FILES 192 /* open ones in the test of many */

/* Files that are closed and wait. */
static void queue_files (Fixture *fixture, unsigned n_files, const uint8_t *bytes, uint64_t *ret_inos)
{
    g_autofree Answer **answers = g_new (Answer *, n_files);
    for (unsigned i = 0; i < n_files; i++) {
        g_autofree char *name = g_strdup_printf ("file%u", i);
        EcfsStaged *staged = create (fixture, name, &ret_inos[i]);
        put (staged, bytes + i, LARGE, 0);
        answers[i] = answer_new ();
        ecfs_staged_flush (staged, done, answers[i]);
        ecfs_staged_release (staged);
    }
    for (unsigned i = 0; i < n_files; i++)
        g_assert_cmpint (code_of (answers[i], NULL), ==, 0);
}

static void limit_files (rlim_t max, struct rlimit *ret_before)
{
    g_assert_cmpint (getrlimit (RLIMIT_NOFILE, ret_before), ==, 0);
    struct rlimit limit = {.rlim_cur = max, .rlim_max = ret_before->rlim_max};
    g_assert_cmpint (setrlimit (RLIMIT_NOFILE, &limit), ==, 0);
}

static void test_many (Fixture *fixture, gconstpointer data)
{
    const char *wanted = getenv ("ECFS_STAGED");
    unsigned n_files = wanted != NULL ? (unsigned) atoi (wanted) : 600;
    g_autofree uint8_t *bytes = random_bytes (LARGE + n_files);
    g_autofree uint64_t *inos = g_new (uint64_t, n_files);
    struct rlimit before;
    limit_files (MAX_FILES, &before);
    hide_three (fixture, true);
    queue_files (fixture, n_files, bytes, inos);
    g_assert_cmpint (wait_for_all (fixture, false), ==, EIO);
    g_assert_cmpuint (stop (fixture), ==, n_files);
    hide_three (fixture, false);
    hide_endpoint (fixture, 5, true); /* committed, but not full */
    reopen (fixture);
    start (fixture);
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    while (wait_for_all (fixture, false) != 0)
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
    g_assert_cmpuint (count_in (fixture, "staging"), ==, n_files);
    g_assert_cmpuint (stop (fixture), ==, 0);
    reopen (fixture);
    start (fixture);
    hide_endpoint (fixture, 5, false);
    wait_until_stored (fixture);
    wait_until_staging_is_empty (fixture);
    for (unsigned i = 0; i < n_files; i += 97)
        assert_content (fixture, inos[i], bytes + i, LARGE);
    g_assert_cmpint (setrlimit (RLIMIT_NOFILE, &before), ==, 0);
}

/* What a close meets whose commit ends with a full disk below the catalog. */
static uint64_t store_with_fault (Fixture *fixture, unsigned n, const uint8_t *bytes, int *ret_code)
{
    uint64_t ino;
    g_autofree char *name = g_strdup_printf ("file%u", n);
    EcfsStaged *staged = create (fixture, name, &ino);
    put (staged, bytes, LARGE, 0);
    g_assert_true (ecfs_catalog_barrier (ecfs_archive_catalog (fixture->archive), NULL));
    int before = failing_disk_count ();
    failing_disk_break ((int) n, SQLITE_FULL, true);
    int code = *ret_code = flush (staged);
    g_assert_true (code == 0 || code == ENOSPC || code == EROFS);
    g_assert_true (code == 0 || failing_disk_count () > before);
    ecfs_staged_release (staged);
    return ino;
}

/* No attempt is begun again that was published, and none of its stripes is deleted. */
static void check_stored (Fixture *fixture, uint64_t ino, const uint8_t *bytes)
{
    wait_until_stored (fixture);
    wait_until_staging_is_empty (fixture);
    g_assert_cmpuint (count_rows (fixture), ==, 0);
    g_assert_cmpuint (count_in (fixture, "interrupted"), ==, 0);
    reopen (fixture);
    start (fixture);
    assert_content (fixture, ino, bytes, LARGE);
    g_autoptr (EcfsObjectRow) object = object_of (fixture, ino);
    g_assert_cmpuint (object->stripes->len, ==, N_ENDPOINTS);
}

static void test_full_catalog_disk (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (LARGE);
    int before;
    unsigned n = 0;
    do {
        before = failing_disk_count ();
        int code;
        uint64_t ino = store_with_fault (fixture, n++, bytes, &code);
        failing_disk_heal ();
        if (n % 8 > 0) /* else the catalog finds out by itself, within a second */
            (void) ecfs_catalog_barrier (ecfs_archive_catalog (fixture->archive), NULL); /* the next one says it too */
        wait_until_stored (fixture);
        (void) stop (fixture);
        check_stored (fixture, ino, bytes);
    } while (failing_disk_count () > before);
    g_test_message ("%u writes and syncs failed, one in each run", n - 1);
    g_assert_cmpuint (n, >, 10);
}

/* What could be written down nowhere is kept apart; its close has failed. */
static void test_stop_with_full_catalog_disk (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (LARGE);
    g_autofree char *interrupted = g_build_filename (fixture->directory, "interrupted", NULL);
    EcfsAttr attr;
    int before, code;
    unsigned n = 0, n_left = 0, n_apart = 0;
    do {
        before = failing_disk_count ();
        uint64_t ino = store_with_fault (fixture, n++, bytes, &code);
        n_left += stop (fixture);
        failing_disk_heal ();
        reopen (fixture);
        start (fixture);
        wait_until_stored (fixture);
        (void) stop (fixture);
        if (code != 0 && !ecfs_catalog_getattr (ecfs_archive_catalog (fixture->archive), ino, &attr, NULL)) {
            g_assert_cmpuint (count_in (fixture, "interrupted"), ==, 1);
            remove_tree (interrupted);
            n_apart++;
            reopen (fixture);
            start (fixture);
        } else {
            check_stored (fixture, ino, bytes);
        }
    } while (failing_disk_count () > before);
    g_test_message ("%u runs, %u left content behind, %u without a name", n, n_left, n_apart);
    g_assert_cmpuint (n_left, >, n_apart);
}

#define ADD(name, adjust, function)                                                                                    \
    g_test_add ("/queue/" name, Fixture, (gconstpointer) (uintptr_t) (adjust), set_up_staged, function,                \
                tear_down_staged)

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    failing_disk_install ();
    ADD ("many-files-wait-with-few-of-them-open", async, test_many);
    ADD ("a-full-disk-below-the-catalog-only-delays", NULL, test_full_catalog_disk);
    ADD ("a-full-disk-below-the-catalog-until-the-end-loses-nothing", NULL, test_stop_with_full_catalog_disk);
    return g_test_run ();
}
