#include "program/program.h"
#include "staged_fixture.h"
#include "util/io.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* After a copy-up what counts is how much of the content is written anew. */
static void test_rewritten (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (100000);
    uint64_t ino = store (fixture, "file", bytes, 50000);
    EcfsStaged *staged;
    wait_until_staging_is_empty (fixture);
    g_assert_cmpint (open_file (fixture, ino, false, &staged), ==, 0);
    put (staged, bytes + 50000, 50000, 0);
    g_assert_cmpint (flush (staged), ==, 0);
    g_assert_false (ecfs_staged_is_newer (fixture->archive, ino));
    assert_content (fixture, ino, bytes + 50000, 50000);
    put (staged, bytes, 20000, 0);
    g_assert_cmpint (flush (staged), ==, 0);
    g_assert_true (ecfs_staged_is_newer (fixture->archive, ino));
    g_assert_true (ecfs_staged_truncate (staged, 0, 1, NULL));
    put (staged, bytes, 100, 0);
    g_assert_cmpint (flush (staged), ==, 0);
    g_assert_false (ecfs_staged_is_newer (fixture->archive, ino));
    assert_content (fixture, ino, bytes, 100);
    ecfs_staged_release (staged);
}

/* Every appender opens and closes the file. What the last one leaves is stored without anybody asking. */
static void test_appended_over_and_over (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (30000);
    uint64_t ino = store (fixture, "file", bytes, 100);
    for (unsigned i = 1; i < 300; i++) {
        EcfsStaged *staged;
        g_assert_cmpint (open_file (fixture, ino, false, &staged), ==, 0);
        put (staged, bytes + i * 100, 100, i * 100);
        g_assert_cmpint (flush (staged), ==, 0);
        ecfs_staged_release (staged);
    }
    wait_until_staging_is_empty (fixture);
    assert_content (fixture, ino, bytes, 30000);
    EcfsAttr attr;
    g_assert_true (exists (fixture, "file", &attr));
    g_assert_cmpuint (attr.size, ==, 30000);
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
    wait_until_stored (fixture);
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
    ecfs_staged_overlay (fixture->archive, ecfs_staged_epoch (fixture->archive), &attr);
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
    unsigned moment = ecfs_staged_epoch (fixture->archive);
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

/* What no row tells of would not be found after a crash: nobody is told that it is safe. */
static void test_lost_row (Fixture *fixture, gconstpointer data)
{
    uint64_t ino;
    g_autoptr (GError) error = NULL;
    EcfsCatalog *catalog = ecfs_archive_catalog (fixture->archive);
    EcfsStaged *staged = create (fixture, "file", &ino);
    put (staged, "text", 4, 0);
    g_autoptr (GPtrArray) rows = ecfs_catalog_staging_list (catalog, &error);
    g_assert_cmpuint (rows->len, ==, 1);
    g_assert_true (ecfs_catalog_staging_remove (catalog, ((const EcfsStagingRow *) rows->pdata[0])->id, &error));
    g_assert_cmpint (sync_file (staged), ==, EIO);
    ecfs_staged_release (staged);
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

/* Until a writer closes what takes its place, what was closed before cannot be stored, and that not instead. */
static void test_wait_while_replacing (Fixture *fixture, gconstpointer data)
{
    uint64_t ino;
    EcfsStaged *staged;
    hide_three (fixture, true);
    ino = store (fixture, "file", "first", 5);
    g_assert_cmpint (open_file (fixture, ino, true, &staged), ==, 0);
    put (staged, "half", 4, 0);
    g_assert_cmpuint (count_in (fixture, "staging"), ==, 2);
    hide_three (fixture, false);
    Answer *waiting = answer_new ();
    ecfs_staged_wait (fixture->archive, ino, true, done, waiting);
    uint64_t other = store (fixture, "other", "other", 5);
    Answer *behind = answer_new (); /* what comes after it gets its turn */
    ecfs_staged_wait (fixture->archive, other, true, done, behind);
    g_assert_cmpint (code_of (behind, NULL), ==, 0);
    assert_content (fixture, ino, (const uint8_t *) "", 0);
    put (staged, " and half", 9, 4);
    g_assert_cmpint (flush (staged), ==, 0);
    g_assert_cmpuint (count_in (fixture, "staging"), ==, 1);
    ecfs_staged_release (staged);
    g_assert_cmpint (code_of (waiting, NULL), ==, 0);
    assert_content (fixture, ino, (const uint8_t *) "half and half", 13);
    wait_until_staging_is_empty (fixture);
    g_assert_cmpuint (count_rows (fixture), ==, 0);
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
    g_assert_cmpint (open_file (fixture, ino, false, &staged), ==, EFBIG);
    g_assert_cmpint (open_file (fixture, ino, true, &staged), ==, 0);
    g_assert_false (ecfs_staged_change_begin (staged, 0, 5001, &error));
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
    ecfs_staged_overlay (fixture->archive, ecfs_staged_epoch (fixture->archive), &attr);
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

#define ADD(name, adjust, function)                                                                                    \
    g_test_add ("/staged/" name, Fixture, (gconstpointer) (uintptr_t) (adjust), set_up_staged, function,               \
                tear_down_staged)

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    ADD ("flush-commits-and-the-last-release-cleans-up", NULL, test_flush_commits);
    ADD ("empty-files-are-committed-too", NULL, test_empty_file);
    ADD ("small-additions-wait-for-the-last-release", NULL, test_small_additions);
    ADD ("after-a-copy-up-flush-commits-what-is-mostly-new", NULL, test_rewritten);
    ADD ("appenders-one-after-another-leave-all-they-wrote", NULL, test_appended_over_and_over);
    ADD ("wait-commits-what-is-flushed-although-a-writer-is-there", NULL, test_wait_with_writer);
    ADD ("files-are-reopened-at-any-moment", NULL, test_reopened);
    ADD ("attempts-are-overtaken-by-changes", NULL, test_overtaken);
    ADD ("times-are-committed-with-content", NULL, test_times);
    ADD ("attributes-read-before-a-commit-are-not-told-after-it", NULL, test_attributes_of_before);
    ADD ("failed-commit-is-told-and-retried", NULL, test_failed_commit);
    ADD ("what-the-catalog-lost-is-not-said-to-be-safe", async, test_lost_row);
    ADD ("what-is-not-full-is-filled-up", NULL, test_not_full);
    ADD ("what-is-not-full-may-be-changed", NULL, test_change_of_what_is_not_full);
    ADD ("hurry-leaves-the-upload-behind", NULL, test_hurry);
    ADD ("async-needs-no-endpoint", async, test_async);
    ADD ("wait-does-not-store-half-of-what-replaces-closed-content", async, test_wait_while_replacing);
    ADD ("write-once-refuses-changes", write_once, test_write_once);
    ADD ("limits-are-kept", tight, test_limits);
    ADD ("copy-up-keeps-bytes-and-holes", NULL, test_copy_up);
    ADD ("truncating-keeps-the-old-content-until-flush", NULL, test_truncating_open);
    ADD ("unlinked-files-go-on-and-are-never-committed", NULL, test_unlinked);
    return g_test_run ();
}
