#include "archive/staged.h"
#include "ecfs/ecfs.h"
#include "fixture.h"
#include "util/io.h"
#include "util/lock.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_US (60 * G_USEC_PER_SEC)
#define CODE        "rs:4+2"

/* Answers that come from any thread */

typedef struct Answer {
    EcfsMutex lock;
    EcfsCond cond;
    bool done;
    GError *error;
    EcfsStaged *staged;
} Answer;

static Answer *answer_new (void)
{
    Answer *answer = g_new0 (Answer, 1);
    ecfs_mutex_init (&answer->lock);
    ecfs_cond_init (&answer->cond);
    return answer;
}

static void opened (void *user, EcfsStaged *staged, const GError *error)
{
    Answer *answer = user;
    ecfs_mutex_lock (&answer->lock);
    g_assert_false (answer->done);
    answer->done = true;
    answer->staged = staged;
    answer->error = error == NULL ? NULL : g_error_copy (error);
    ecfs_cond_signal (&answer->cond);
    ecfs_mutex_unlock (&answer->lock);
}

static void done (void *user, const GError *error)
{
    opened (user, NULL, error);
}

/* Waits and frees; the code of the error, or 0. */
static int code_of (Answer *answer, EcfsStaged **ret_staged)
{
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    ecfs_mutex_lock (&answer->lock);
    while (!answer->done)
        g_assert_true (ecfs_cond_wait_until (&answer->cond, &answer->lock, deadline_us) || answer->done);
    ecfs_mutex_unlock (&answer->lock);
    int code = ecfs_errno (answer->error);
    if (ret_staged != NULL)
        *ret_staged = answer->staged;
    g_clear_error (&answer->error);
    ecfs_cond_clear (&answer->cond);
    ecfs_mutex_clear (&answer->lock);
    g_free (answer);
    return code;
}

static int flush (EcfsStaged *staged)
{
    Answer *answer = answer_new ();
    ecfs_staged_flush (staged, done, answer);
    return code_of (answer, NULL);
}

static int wait_for_all (Fixture *fixture, bool full)
{
    Answer *answer = answer_new ();
    ecfs_staged_wait (fixture->archive, 0, full, done, answer);
    return code_of (answer, NULL);
}

static void wait_until_stored (Fixture *fixture)
{
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    while (wait_for_all (fixture, true) != 0)
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
}

/* Files */

static EcfsStaged *create (Fixture *fixture, const char *name, uint64_t *ret_ino)
{
    g_autoptr (GError) error = NULL;
    EcfsNewInode inode = {.mode = S_IFREG | 0644, .staged = true};
    EcfsAttr attr;
    int64_t row;
    ecfs_catalog_make (ecfs_archive_catalog (fixture->archive), ECFS_ROOT_INO, name, &inode, &attr, &row, &error);
    g_assert_no_error (error);
    EcfsStaged *staged = ecfs_staged_new (fixture->archive, &attr, row, &error);
    g_assert_no_error (error);
    *ret_ino = attr.ino;
    return staged;
}

static int open_file (Fixture *fixture, uint64_t ino, bool truncate, EcfsStaged **ret_staged)
{
    Answer *answer = answer_new ();
    ecfs_staged_open (fixture->archive, ino, truncate, opened, answer);
    return code_of (answer, ret_staged);
}

static void put (EcfsStaged *staged, const void *bytes, size_t size, uint64_t offset)
{
    g_autoptr (GError) error = NULL;
    ecfs_staged_change_begin (staged, size, &error);
    g_assert_no_error (error);
    g_assert_cmpint (ecfs_pwrite_all (ecfs_staged_fd (staged), bytes, size, offset), ==, 0);
    ecfs_staged_change_end (staged, size, offset + size, 1234567890123456789);
}

static uint64_t store (Fixture *fixture, const char *name, const void *bytes, size_t size)
{
    uint64_t ino;
    EcfsStaged *staged = create (fixture, name, &ino);
    put (staged, bytes, size, 0);
    g_assert_cmpint (flush (staged), ==, 0);
    ecfs_staged_release (staged);
    return ino;
}

static unsigned count_in (const Fixture *fixture, const char *directory)
{
    g_autofree char *path = g_build_filename (fixture->directory, directory, NULL);
    return count_files (path);
}

static void wait_until_staging_is_empty (const Fixture *fixture)
{
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    while (count_in (fixture, "staging") > 0) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (1000);
    }
}

static unsigned count_rows (Fixture *fixture)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) rows = ecfs_catalog_staging_list (ecfs_archive_catalog (fixture->archive), &error);
    g_assert_no_error (error);
    return rows->len;
}

static EcfsStagingState only_state (Fixture *fixture)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) rows = ecfs_catalog_staging_list (ecfs_archive_catalog (fixture->archive), &error);
    g_assert_no_error (error);
    g_assert_cmpuint (rows->len, ==, 1);
    return ((const EcfsStagingRow *) rows->pdata[0])->state;
}

static bool exists (Fixture *fixture, const char *name, EcfsAttr *ret_attr)
{
    return ecfs_catalog_lookup (ecfs_archive_catalog (fixture->archive), ECFS_ROOT_INO, name, ret_attr, NULL);
}

/* Life cycle */

static void start (Fixture *fixture)
{
    g_autoptr (GError) error = NULL;
    ecfs_staged_start (fixture->archive, &error);
    g_assert_no_error (error);
}

static unsigned stop (Fixture *fixture)
{
    unsigned n_left;
    ecfs_staged_stop (fixture->archive, ecfs_now_us () + PATIENCE_US, &n_left);
    return n_left;
}

static void set_up_staged (Fixture *fixture, gconstpointer adjust)
{
    set_up_adjusted (fixture, CODE, (void (*) (EcfsConfig *)) (uintptr_t) adjust);
    start (fixture);
}

static void tear_down_staged (Fixture *fixture, gconstpointer adjust)
{
    (void) stop (fixture); /* what is left is removed with the rest */
    tear_down (fixture, NULL);
}

/* Lets a child that dies without a word work on the archive, and opens it again. */
static void crash (Fixture *fixture, void (*work) (Fixture *fixture))
{
    (void) stop (fixture); /* nothing is staged here */
    ecfs_archive_free (g_steal_pointer (&fixture->archive));
    pid_t child = fork ();
    g_assert_cmpint (child, >=, 0);
    if (child == 0) {
        reopen (fixture);
        start (fixture);
        work (fixture);
        (void) ecfs_catalog_barrier (ecfs_archive_catalog (fixture->archive), NULL); /* the test sees what is missing */
        _exit (0);
    }
    int status;
    g_assert_cmpint (waitpid (child, &status, 0), ==, child);
    g_assert_true (WIFEXITED (status) && WEXITSTATUS (status) == 0);
    reopen (fixture);
    start (fixture);
}

/* Commits */

static void test_flush_commits (Fixture *fixture, gconstpointer data)
{
    size_t size = 3000001;
    g_autofree uint8_t *bytes = random_bytes (size);
    uint64_t ino;
    EcfsStaged *staged = create (fixture, "file", &ino);
    put (staged, bytes, size, 0);
    g_assert_true (ecfs_staged_is_newer (fixture->archive, ino));
    g_assert_cmpint (flush (staged), ==, 0);
    assert_content (fixture, ino, bytes, size);
    g_assert_false (ecfs_staged_is_newer (fixture->archive, ino));
    g_assert_cmpint (flush (staged), ==, 0);
    ecfs_staged_release (staged);
    wait_until_staging_is_empty (fixture);
    g_assert_cmpuint (count_rows (fixture), ==, 0);
    EcfsAttr attr;
    g_assert_true (exists (fixture, "file", &attr));
    g_assert_cmpint (attr.mtime_ns, ==, 1234567890123456789);
}

static void test_empty_file (Fixture *fixture, gconstpointer data)
{
    uint64_t ino = store (fixture, "file", "", 0);
    assert_content (fixture, ino, (const uint8_t *) "", 0);
    wait_until_staging_is_empty (fixture);
}

static void test_small_additions (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (1000);
    uint64_t ino;
    EcfsStaged *staged = create (fixture, "file", &ino);
    put (staged, bytes, 900, 0);
    g_assert_cmpint (flush (staged), ==, 0);
    put (staged, bytes + 900, 100, 900);
    g_assert_cmpint (flush (staged), ==, 0);
    g_assert_true (ecfs_staged_is_newer (fixture->archive, ino)); /* not worth another upload of all */
    g_assert_cmpint (only_state (fixture), ==, ECFS_STAGING_QUEUED);
    assert_content (fixture, ino, bytes, 900);
    ecfs_staged_release (staged);
    wait_until_stored (fixture);
    assert_content (fixture, ino, bytes, 1000);
    wait_until_staging_is_empty (fixture);
}

static void test_wait_with_writer (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (1000);
    uint64_t ino;
    EcfsStaged *staged = create (fixture, "file", &ino);
    put (staged, bytes, 900, 0);
    g_assert_cmpint (flush (staged), ==, 0);
    put (staged, bytes + 900, 100, 900);
    g_assert_cmpint (flush (staged), ==, 0);
    g_assert_cmpint (wait_for_all (fixture, true), ==, 0);
    assert_content (fixture, ino, bytes, 1000);
    ecfs_staged_release (staged);
}

static void test_reopened (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (100000);
    uint64_t ino = store (fixture, "file", bytes, 90000);
    for (unsigned i = 0; i < 20; i++) { /* sometimes before the former one is finished, sometimes after */
        EcfsStaged *staged;
        g_assert_cmpint (open_file (fixture, ino, i % 3 == 0, &staged), ==, 0);
        if (i % 3 == 0)
            put (staged, bytes, 90000, 0);
        else
            put (staged, bytes + 90000, 10000, 90000);
        g_assert_cmpint (flush (staged), ==, 0);
        ecfs_staged_release (staged);
        if (i % 5 == 0)
            wait_until_stored (fixture);
    }
    wait_until_stored (fixture);
    assert_content (fixture, ino, bytes, 100000);
    wait_until_staging_is_empty (fixture);
    g_assert_cmpuint (count_rows (fixture), ==, 0);
}

/* Attempts that are overtaken by changes and truncations, over and over. */
static void test_overtaken (Fixture *fixture, gconstpointer data)
{
    size_t size = 400000;
    g_autofree uint8_t *bytes = random_bytes (size);
    uint64_t ino;
    EcfsStaged *staged = create (fixture, "file", &ino);
    for (unsigned i = 0; i < 40; i++) {
        put (staged, bytes, size, 0);
        Answer *answer = answer_new ();
        ecfs_staged_flush (staged, done, answer);
        if (i % 2 == 0)
            g_assert_true (ecfs_staged_truncate (staged, i % 4 == 0 ? 0 : 1000, 1, NULL));
        else
            put (staged, bytes, 1, 5);
        g_assert_cmpint (code_of (answer, NULL), ==, 0);
    }
    put (staged, bytes, size, 0);
    g_assert_cmpint (flush (staged), ==, 0);
    ecfs_staged_release (staged);
    wait_until_stored (fixture);
    assert_content (fixture, ino, bytes, size);
    wait_until_staging_is_empty (fixture);
}

static void test_times (Fixture *fixture, gconstpointer data)
{
    uint64_t ino;
    EcfsAttr attr;
    EcfsStaged *staged = create (fixture, "file", &ino);
    put (staged, "x", 1, 0);
    g_assert_false (ecfs_staged_set_mtime (staged, -5));
    g_assert_cmpint (flush (staged), ==, 0);
    g_assert_true (exists (fixture, "file", &attr));
    g_assert_cmpint (attr.mtime_ns, ==, -5);
    g_assert_true (ecfs_staged_set_mtime (staged, 7)); /* the caller tells the catalog */
    ecfs_staged_overlay (fixture->archive, ecfs_staged_moment (fixture->archive), &attr);
    g_assert_cmpint (attr.mtime_ns, ==, 7);
    g_assert_cmpuint (attr.size, ==, 1);
    ecfs_staged_release (staged);
}

/* Failures */

/* As a listing does that reads many attributes and then looks what is staged. */
static void test_attributes_of_before (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (100000);
    EcfsAttr attr;
    uint64_t ino;
    EcfsStaged *staged = create (fixture, "file", &ino);
    unsigned moment = ecfs_staged_moment (fixture->archive);
    g_assert_true (exists (fixture, "file", &attr));
    g_assert_cmpuint (attr.size, ==, 0);
    put (staged, bytes, 100000, 0);
    g_assert_cmpint (flush (staged), ==, 0);
    ecfs_staged_release (staged);
    wait_until_staging_is_empty (fixture);
    ecfs_staged_overlay (fixture->archive, moment, &attr);
    g_assert_cmpuint (attr.size, ==, 100000);
    g_assert_cmpint (attr.mtime_ns, ==, 1234567890123456789);
}

static void hide_three (Fixture *fixture, bool hide)
{
    for (unsigned i = 0; i < 3; i++)
        hide_endpoint (fixture, i, hide);
}

static void test_failed_commit (Fixture *fixture, gconstpointer data)
{
    size_t size = 100000;
    g_autofree uint8_t *bytes = random_bytes (size);
    uint64_t ino;
    EcfsStaged *staged = create (fixture, "file", &ino);
    put (staged, bytes, size, 0);
    hide_three (fixture, true);
    g_assert_cmpint (flush (staged), ==, EIO);
    g_assert_cmpint (only_state (fixture), ==, ECFS_STAGING_QUEUED);
    ecfs_staged_release (staged);
    hide_three (fixture, false);
    wait_until_stored (fixture);
    assert_content (fixture, ino, bytes, size);
    wait_until_staging_is_empty (fixture);
}

static void test_not_full (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (100000);
    hide_endpoint (fixture, 1, true);
    uint64_t ino = store (fixture, "file", bytes, 100000);
    g_assert_cmpint (only_state (fixture), ==, ECFS_STAGING_STORED);
    g_assert_cmpint (wait_for_all (fixture, false), ==, 0);
    g_assert_cmpint (wait_for_all (fixture, true), !=, 0);
    assert_content (fixture, ino, bytes, 100000);
    hide_endpoint (fixture, 1, false);
    wait_until_stored (fixture);
    wait_until_staging_is_empty (fixture);
    EcfsFileState state;
    g_assert_true (ecfs_archive_file_state (fixture->archive, ino, &state, NULL));
    g_assert_cmpuint (state.n_stored, ==, N_ENDPOINTS);
}

static void test_change_of_what_is_not_full (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (100000);
    hide_endpoint (fixture, 1, true);
    uint64_t ino = store (fixture, "file", bytes, 90000);
    EcfsStaged *staged;
    g_assert_cmpint (open_file (fixture, ino, false, &staged), ==, 0);
    put (staged, bytes + 90000, 10000, 90000);
    g_assert_cmpint (only_state (fixture), ==, ECFS_STAGING_OPEN);
    hide_endpoint (fixture, 1, false);
    g_assert_cmpint (flush (staged), ==, 0);
    ecfs_staged_release (staged);
    wait_until_stored (fixture);
    assert_content (fixture, ino, bytes, 100000);
    wait_until_staging_is_empty (fixture);
}

static void test_hurry (Fixture *fixture, gconstpointer data)
{
    size_t size = 20000000;
    g_autofree uint8_t *bytes = random_bytes (size);
    uint64_t ino;
    EcfsStaged *staged = create (fixture, "file", &ino);
    put (staged, bytes, size, 0);
    Answer *answer = answer_new ();
    ecfs_staged_flush (staged, done, answer);
    ecfs_staged_hurry (staged, answer);
    g_assert_cmpint (code_of (answer, NULL), ==, 0);
    ecfs_staged_release (staged);
    wait_until_stored (fixture);
    assert_content (fixture, ino, bytes, size);
}

/* Settings */

static void async (EcfsConfig *config)
{
    config->commit_async = true;
}

static void test_async (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (100000);
    uint64_t ino;
    EcfsStaged *staged = create (fixture, "file", &ino);
    put (staged, bytes, 100000, 0);
    hide_three (fixture, true);
    g_assert_cmpint (flush (staged), ==, 0); /* needs no endpoint */
    g_assert_cmpint (only_state (fixture), ==, ECFS_STAGING_QUEUED);
    hide_three (fixture, false);
    ecfs_staged_release (staged);
    wait_until_stored (fixture);
    assert_content (fixture, ino, bytes, 100000);
}

static void write_once (EcfsConfig *config)
{
    config->rewrite_deny = true;
}

static void test_write_once (Fixture *fixture, gconstpointer data)
{
    uint64_t ino = store (fixture, "file", "abc", 3);
    EcfsStaged *staged;
    for (unsigned truncate = 0; truncate < 2; truncate++) {
        g_assert_cmpint (open_file (fixture, ino, truncate, &staged), ==, EPERM);
        g_assert_null (staged);
    }
    wait_until_staging_is_empty (fixture);
    g_assert_cmpint (open_file (fixture, ino, true, &staged), ==, EPERM);
    assert_content (fixture, ino, (const uint8_t *) "abc", 3);
}

static void tight (EcfsConfig *config)
{
    config->rewrite_max = 1000;
    config->staging_max = 5000;
}

static void test_limits (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (2000);
    g_autoptr (GError) error = NULL;
    uint64_t ino = store (fixture, "file", bytes, 2000);
    wait_until_staging_is_empty (fixture);
    EcfsStaged *staged;
    g_assert_cmpint (open_file (fixture, ino, false, &staged), ==, EPERM);
    g_assert_cmpint (open_file (fixture, ino, true, &staged), ==, 0);
    g_assert_false (ecfs_staged_change_begin (staged, 5001, &error));
    g_assert_cmpint (ecfs_errno (error), ==, ENOSPC);
    put (staged, bytes, 1500, 0);
    g_assert_cmpint (flush (staged), ==, 0);
    ecfs_staged_release (staged);
    assert_content (fixture, ino, bytes, 1500);
}

/* Copying up */

static void test_copy_up (Fixture *fixture, gconstpointer data)
{
    size_t size = 3 << 20;
    g_autofree uint8_t *bytes = g_malloc0 (size);
    memset (bytes + (2 << 20), 7, 100000);
    uint64_t ino = store (fixture, "file", bytes, size);
    wait_until_staging_is_empty (fixture);
    EcfsStaged *staged;
    struct stat st;
    g_autofree uint8_t *copy = g_malloc (size);
    g_assert_cmpint (open_file (fixture, ino, false, &staged), ==, 0);
    g_assert_cmpint (ecfs_pread_all (ecfs_staged_fd (staged), copy, size, 0), ==, size);
    g_assert_true (memcmp (copy, bytes, size) == 0);
    g_assert_cmpint (fstat (ecfs_staged_fd (staged), &st), ==, 0);
    g_assert_cmpint (st.st_blocks * 512, <, 1 << 20); /* zeros take no room */
    g_assert_cmpuint (count_rows (fixture), ==, 0);   /* nothing is lost with it */
    g_assert_cmpint (flush (staged), ==, 0);
    ecfs_staged_release (staged);
    wait_until_staging_is_empty (fixture);
    assert_content (fixture, ino, bytes, size);
}

static void test_truncating_open (Fixture *fixture, gconstpointer data)
{
    uint64_t ino = store (fixture, "file", "old content", 11);
    wait_until_staging_is_empty (fixture);
    EcfsStaged *staged;
    g_assert_cmpint (open_file (fixture, ino, true, &staged), ==, 0);
    EcfsAttr attr = {.ino = ino, .mode = S_IFREG, .size = 11};
    ecfs_staged_overlay (fixture->archive, ecfs_staged_moment (fixture->archive), &attr);
    g_assert_cmpuint (attr.size, ==, 0);
    assert_content (fixture, ino, (const uint8_t *) "old content", 11); /* until there is a newer one */
    g_assert_cmpint (flush (staged), ==, 0);
    assert_content (fixture, ino, (const uint8_t *) "", 0);
    ecfs_staged_release (staged);
}

/* Without a name */

static void test_unlinked (Fixture *fixture, gconstpointer data)
{
    uint64_t ino;
    EcfsAttr attr;
    EcfsCatalog *catalog = ecfs_archive_catalog (fixture->archive);
    EcfsStaged *staged = create (fixture, "file", &ino);
    put (staged, "abc", 3, 0);
    g_assert_true (ecfs_catalog_unlink (catalog, ECFS_ROOT_INO, "file", &attr, NULL));
    ecfs_staged_unlinked (fixture->archive, ino);
    g_assert_cmpint (flush (staged), ==, 0);
    EcfsContent *content = ecfs_content_open (fixture->archive, ino, NULL);
    g_assert_cmpuint (ecfs_content_size (content), ==, 0); /* nothing was committed */
    ecfs_content_unref (content);
    put (staged, "def", 3, 3);
    char bytes[6];
    g_assert_cmpint (ecfs_pread_all (ecfs_staged_fd (staged), bytes, 6, 0), ==, 6);
    ecfs_staged_release (staged);
    ecfs_staged_drop (fixture->archive, ino);
    g_assert_true (ecfs_catalog_drop (catalog, ino, NULL));
    wait_until_staging_is_empty (fixture);
    g_assert_cmpuint (count_rows (fixture), ==, 0);
}

/* Crashes */

static void write_without_flush (Fixture *fixture)
{
    uint64_t ino;
    EcfsStaged *staged = create (fixture, "fresh", &ino);
    put (staged, "never closed", 12, 0);
    EcfsAttr attr;
    if (exists (fixture, "old", &attr) && open_file (fixture, attr.ino, true, &staged) == 0)
        put (staged, "half", 4, 0);
}

static void test_crash_before_flush (Fixture *fixture, gconstpointer data)
{
    EcfsAttr attr;
    uint64_t ino = store (fixture, "old", "old content", 11);
    crash (fixture, write_without_flush);
    g_assert_false (exists (fixture, "fresh", &attr));
    assert_content (fixture, ino, (const uint8_t *) "old content", 11);
    g_assert_cmpuint (count_in (fixture, "interrupted"), ==, 2);
    g_assert_cmpuint (count_in (fixture, "staging"), ==, 0);
    g_assert_cmpuint (count_rows (fixture), ==, 0);
}

static void close_without_endpoints (Fixture *fixture)
{
    uint64_t ino;
    EcfsStaged *staged = create (fixture, "file", &ino);
    put (staged, "closed", 6, 0);
    (void) ecfs_staged_set_mtime (staged, 1000000007);
    g_assert_cmpint (flush (staged), ==, 0);
    put (staged, " and more", 9, 6);
}

static void test_crash_after_flush (Fixture *fixture, gconstpointer data)
{
    EcfsAttr attr;
    crash (fixture, close_without_endpoints);
    wait_until_stored (fixture);
    g_assert_true (exists (fixture, "file", &attr));
    assert_content (fixture, attr.ino, (const uint8_t *) "closed", 6);
    wait_until_staging_is_empty (fixture);
    g_assert_cmpuint (count_in (fixture, "interrupted"), ==, 0);
}

static void change_what_is_not_full (Fixture *fixture)
{
    hide_endpoint (fixture, 1, true);
    uint64_t ino = store (fixture, "file", "committed", 9);
    hide_endpoint (fixture, 1, false);
    EcfsStaged *staged;
    if (open_file (fixture, ino, false, &staged) == 0)
        put (staged, "half", 4, 0);
}

static void test_crash_in_a_later_change (Fixture *fixture, gconstpointer data)
{
    EcfsAttr attr;
    crash (fixture, change_what_is_not_full);
    g_assert_true (exists (fixture, "file", &attr)); /* it had content once */
    assert_content (fixture, attr.ino, (const uint8_t *) "committed", 9);
    g_assert_cmpuint (count_in (fixture, "interrupted"), ==, 1);
}

#define LARGE 100000 /* bytes; with all six stripes, so one endpoint is missed */

/* As when the row could not be written before the first byte of the change. */
static void tear_what_is_not_full (Fixture *fixture)
{
    g_autofree uint8_t *zeros = g_malloc0 (LARGE);
    hide_endpoint (fixture, 1, true);
    uint64_t ino = store (fixture, "file", zeros, LARGE);
    EcfsStaged *staged = ecfs_staged_find (fixture->archive, ino);
    g_assert_cmpint (ecfs_pwrite_all (ecfs_staged_fd (staged), "half", 4, 0), ==, 0);
}

static void test_crash_that_tears_what_is_not_full (Fixture *fixture, gconstpointer data)
{
    EcfsAttr attr;
    crash (fixture, tear_what_is_not_full);
    g_assert_true (exists (fixture, "file", &attr));
    g_autofree uint8_t *zeros = g_malloc0 (LARGE);
    g_assert_null (ecfs_staged_find (fixture->archive, attr.ino)); /* nobody reads or writes it */
    assert_content (fixture, attr.ino, zeros, LARGE);
    g_assert_cmpuint (count_in (fixture, "interrupted"), ==, 1);
    g_assert_cmpuint (count_rows (fixture), ==, 0);
    hide_endpoint (fixture, 1, false);
}

static void test_not_full_after_remount (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (100000);
    EcfsAttr attr;
    uint64_t ino;
    hide_endpoint (fixture, 1, true);
    EcfsStaged *staged = create (fixture, "file", &ino);
    put (staged, bytes, 50000, 0);
    put (staged, bytes + 60000, 40000, 10u << 20); /* behind a hole */
    g_assert_cmpint (flush (staged), ==, 0);
    ecfs_staged_release (staged);
    g_assert_cmpuint (stop (fixture), ==, 0);
    reopen (fixture);
    start (fixture);
    g_assert_cmpint (only_state (fixture), ==, ECFS_STAGING_STORED);
    g_assert_true (exists (fixture, "file", &attr));
    ecfs_staged_overlay (fixture->archive, ecfs_staged_moment (fixture->archive), &attr);
    g_assert_cmpuint (attr.size, ==, (10u << 20) + 40000);
    g_assert_cmpint (attr.mtime_ns, ==, 1234567890123456789);
    hide_endpoint (fixture, 1, false);
    wait_until_stored (fixture);
    wait_until_staging_is_empty (fixture);
    g_assert_cmpuint (count_in (fixture, "interrupted"), ==, 0);
}

/* What an earlier mount keeps of the old content is not taken for the file's. */
static void test_put_over_what_is_not_full (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *zeros = g_malloc0 (LARGE);
    g_autofree uint8_t *bytes = random_bytes (LARGE);
    g_autofree char *source = g_build_filename (fixture->base, "source", NULL);
    g_autoptr (GError) error = NULL;
    g_assert_true (g_file_set_contents (source, (const char *) bytes, LARGE, NULL));
    hide_endpoint (fixture, 1, true);
    uint64_t ino = store (fixture, "file", zeros, LARGE);
    g_assert_cmpuint (stop (fixture), ==, 0);
    ecfs_archive_free (g_steal_pointer (&fixture->archive));
    Ecfs *ecfs = ecfs_open (fixture->directory, ECFS_OPEN_WRITE, &error);
    const char *const sources[] = {source, NULL};
    g_assert_true (ecfs_put (ecfs, sources, "/file", NULL, &error));
    g_assert_no_error (error);
    ecfs_close (ecfs);
    reopen (fixture);
    start (fixture);
    g_assert_null (ecfs_staged_find (fixture->archive, ino));
    assert_content (fixture, ino, bytes, LARGE);
    g_assert_cmpuint (count_rows (fixture), ==, 0);
    g_assert_cmpuint (count_in (fixture, "staging"), ==, 0);
    g_assert_cmpuint (count_in (fixture, "interrupted"), ==, 0);
    hide_endpoint (fixture, 1, false);
}

/* Dies when the staged bytes are gone, before the group commit of the catalog. */
static void unlink_what_is_flushed (Fixture *fixture)
{
    uint64_t ino;
    EcfsAttr attr;
    EcfsStaged *staged = create (fixture, "file", &ino);
    put (staged, "abc", 3, 0);
    hide_three (fixture, true);
    if (flush (staged) != 0)
        _exit (1);
    (void) ecfs_catalog_unlink (ecfs_archive_catalog (fixture->archive), ECFS_ROOT_INO, "file", &attr, NULL);
    ecfs_staged_drop (fixture->archive, ino);
    ecfs_staged_release (staged);
    wait_until_staging_is_empty (fixture);
    _exit (0);
}

static void test_crash_after_unlink (Fixture *fixture, gconstpointer data)
{
    EcfsAttr attr;
    crash (fixture, unlink_what_is_flushed);
    g_assert_false (exists (fixture, "file", &attr));
    g_assert_cmpuint (count_rows (fixture), ==, 0);
}

static void unlink_while_open (Fixture *fixture)
{
    uint64_t ino;
    EcfsAttr attr;
    EcfsStaged *staged = create (fixture, "file", &ino);
    put (staged, "abc", 3, 0);
    g_assert_true (ecfs_catalog_unlink (ecfs_archive_catalog (fixture->archive), ECFS_ROOT_INO, "file", &attr, NULL));
    ecfs_staged_unlinked (fixture->archive, ino);
}

static void test_crash_with_open_unlinked (Fixture *fixture, gconstpointer data)
{
    crash (fixture, unlink_while_open);
    g_assert_cmpuint (count_in (fixture, "interrupted"), ==, 0);
    g_assert_cmpuint (count_in (fixture, "staging"), ==, 0);
    g_assert_cmpuint (count_rows (fixture), ==, 0);
}

/* As when the mount is told to end in the middle of a copy: half a file does not replace a whole one. */
static void test_stop_in_the_middle_of_a_file (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (100000);
    uint64_t ino = store (fixture, "old", bytes, 100000);
    uint64_t fresh;
    EcfsAttr attr;
    EcfsStaged *over;
    wait_until_staging_is_empty (fixture);
    g_assert_cmpint (open_file (fixture, ino, true, &over), ==, 0);
    put (over, "half", 4, 0);
    EcfsStaged *staged = create (fixture, "fresh", &fresh);
    put (staged, "half", 4, 0);
    g_assert_cmpuint (stop (fixture), ==, 2);
    ecfs_staged_release (over);
    ecfs_staged_release (staged);
    reopen (fixture);
    start (fixture);
    assert_content (fixture, ino, bytes, 100000);
    g_assert_false (exists (fixture, "fresh", &attr));
    g_assert_cmpuint (count_in (fixture, "interrupted"), ==, 2);
}

static void test_stop_keeps_what_cannot_be_stored (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (100000);
    uint64_t ino;
    EcfsStaged *staged = create (fixture, "file", &ino);
    put (staged, bytes, 100000, 0);
    hide_three (fixture, true);
    ecfs_staged_release (staged); /* never flushed */
    g_assert_cmpuint (stop (fixture), ==, 1);
    hide_three (fixture, false);
    reopen (fixture);
    start (fixture);
    wait_until_stored (fixture);
    assert_content (fixture, ino, bytes, 100000);
}

#define ADD(name, adjust, function)                                                                                    \
    g_test_add ("/staged/" name, Fixture, (gconstpointer) (uintptr_t) (adjust), set_up_staged, function,               \
                tear_down_staged)

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_log_set_always_fatal (G_LOG_LEVEL_CRITICAL | G_LOG_FATAL_MASK); /* warnings are what some tests are about */
    ADD ("flush-commits-and-the-last-release-cleans-up", NULL, test_flush_commits);
    ADD ("empty-files-are-committed-too", NULL, test_empty_file);
    ADD ("small-additions-wait-for-the-last-release", NULL, test_small_additions);
    ADD ("wait-commits-what-is-flushed-although-a-writer-is-there", NULL, test_wait_with_writer);
    ADD ("files-are-reopened-at-any-moment", NULL, test_reopened);
    ADD ("attempts-are-overtaken-by-changes", NULL, test_overtaken);
    ADD ("times-are-committed-with-content", NULL, test_times);
    ADD ("attributes-read-before-a-commit-are-not-told-after-it", NULL, test_attributes_of_before);
    ADD ("failed-commit-is-told-and-retried", NULL, test_failed_commit);
    ADD ("what-is-not-full-is-filled-up", NULL, test_not_full);
    ADD ("what-is-not-full-may-be-changed", NULL, test_change_of_what_is_not_full);
    ADD ("hurry-leaves-the-upload-behind", NULL, test_hurry);
    ADD ("async-needs-no-endpoint", async, test_async);
    ADD ("write-once-refuses-changes", write_once, test_write_once);
    ADD ("limits-are-kept", tight, test_limits);
    ADD ("copy-up-keeps-bytes-and-holes", NULL, test_copy_up);
    ADD ("truncating-keeps-the-old-content-until-flush", NULL, test_truncating_open);
    ADD ("unlinked-files-go-on-and-are-never-committed", NULL, test_unlinked);
    ADD ("crash-before-flush-keeps-bytes-apart", NULL, test_crash_before_flush);
    ADD ("crash-after-flush-commits-what-was-flushed", async, test_crash_after_flush);
    ADD ("crash-in-a-later-change-keeps-name-and-content", NULL, test_crash_in_a_later_change);
    ADD ("crash-that-tears-what-is-not-full-keeps-what-is-stored", NULL, test_crash_that_tears_what_is_not_full);
    ADD ("what-is-not-full-is-the-same-after-remounting", NULL, test_not_full_after_remount);
    ADD ("put-replaces-what-is-not-full", NULL, test_put_over_what_is_not_full);
    ADD ("bytes-go-after-their-name-is-gone-for-good", async, test_crash_after_unlink);
    ADD ("crash-with-an-open-unlinked-file-leaves-nothing", NULL, test_crash_with_open_unlinked);
    ADD ("stop-does-not-take-half-a-file-for-a-whole-one", NULL, test_stop_in_the_middle_of_a_file);
    ADD ("stop-keeps-what-cannot-be-stored", NULL, test_stop_keeps_what_cannot_be_stored);
    return g_test_run ();
}
