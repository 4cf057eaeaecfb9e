/* What the next mount makes of what an earlier one left in staging. */
#include "ecfs/ecfs.h"
#include "program/program.h"
#include "staged_fixture.h"
#include "util/io.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

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

static void assert_only_interrupted (Fixture *fixture, const char *text)
{
    g_autofree char *path = g_build_filename (fixture->directory, "interrupted", NULL);
    g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
    g_autofree char *file = g_build_filename (path, g_dir_read_name (dir), NULL);
    g_autofree char *content = NULL;
    g_assert_null (g_dir_read_name (dir));
    g_assert_true (g_file_get_contents (file, &content, NULL, NULL));
    g_assert_cmpstr (content, ==, text);
}

static void test_crash_after_flush (Fixture *fixture, gconstpointer data)
{
    EcfsAttr attr;
    crash (fixture, close_without_endpoints);
    wait_until_stored (fixture);
    g_assert_true (exists (fixture, "file", &attr));
    assert_content (fixture, attr.ino, (const uint8_t *) "closed", 6);
    wait_until_staging_is_empty (fixture);
    assert_only_interrupted (fixture, " and more");
}

/* As cp -p and rsync do it: the time comes behind the close. */
static void set_time_after_close (Fixture *fixture)
{
    uint64_t ino;
    EcfsStaged *staged = create (fixture, "file", &ino);
    put (staged, "closed", 6, 0);
    g_assert_cmpint (flush (staged), ==, 0);
    hide_three (fixture, true); /* nothing is committed before the end */
    ecfs_staged_release (staged);
    staged = ecfs_staged_find (fixture->archive, ino);
    EcfsAttr attr = {.mtime_ns = -1000000007};
    g_assert_true (ecfs_staged_set_mtime (staged, attr.mtime_ns));
    g_assert_true (
        ecfs_catalog_setattr (ecfs_archive_catalog (fixture->archive), ino, &attr, ECFS_ATTR_MTIME, NULL, NULL));
    ecfs_staged_unref (staged);
}

static void test_time_after_close (Fixture *fixture, gconstpointer data)
{
    EcfsAttr attr;
    crash (fixture, set_time_after_close);
    g_assert_true (exists (fixture, "file", &attr));
    ecfs_staged_overlay (fixture->archive, ecfs_staged_epoch (fixture->archive), &attr);
    g_assert_cmpint (attr.mtime_ns, ==, -1000000007);
    hide_three (fixture, false);
    wait_until_stored (fixture);
    g_assert_true (exists (fixture, "file", &attr));
    g_assert_cmpint (attr.mtime_ns, ==, -1000000007);
    assert_content (fixture, attr.ino, (const uint8_t *) "closed", 6);
}

/* As after a crash between the commit and the end of the staging file: content as stored, and other content. */
static void test_crash_before_staging_goes (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (LARGE);
    uint64_t ino = store (fixture, "file", bytes, LARGE);
    wait_until_staging_is_empty (fixture);
    for (unsigned same = 0; same < 2; same++) {
        (void) stop (fixture);
        g_autofree char *path = g_strdup_printf ("%s/staging/77.%" G_GUINT64_FORMAT, fixture->directory, ino);
        g_assert_true (g_file_set_contents (path, (const char *) bytes, same ? LARGE : LARGE - 1, NULL));
        reopen (fixture);
        start (fixture);
        g_assert_cmpuint (count_in (fixture, "staging"), ==, 0);
        g_assert_cmpuint (count_in (fixture, "interrupted"), ==, 1); /* of the first round */
        assert_content (fixture, ino, bytes, LARGE);
    }
    g_autofree char *kept = g_strdup_printf ("%s/interrupted/file.77.%" G_GUINT64_FORMAT, fixture->directory, ino);
    g_assert_true (g_file_test (kept, G_FILE_TEST_EXISTS)); /* named after what it was */
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

static void store_what_is_not_full (Fixture *fixture)
{
    g_autofree uint8_t *zeros = g_malloc0 (LARGE);
    hide_endpoint (fixture, 1, true);
    (void) store (fixture, "file", zeros, LARGE);
}

/* As when the row could not be written before the first byte of a change. */
static void tear_what_is_staged (Fixture *fixture)
{
    g_autofree char *path = g_build_filename (fixture->directory, "staging", NULL);
    g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
    g_assert_cmpuint (count_in (fixture, "staging"), ==, 1);
    const char *name = g_dir_read_name (dir);
    g_autofree char *file = g_build_filename (path, *name == '.' ? g_dir_read_name (dir) : name, NULL);
    ecfs_autofd fd = open (file, O_WRONLY | O_CLOEXEC);
    g_assert_cmpint (ecfs_pwrite_all (fd, "half", 4, 0), ==, 0);
}

static void test_crash_that_tears_what_is_not_full (Fixture *fixture, gconstpointer data)
{
    EcfsAttr attr;
    crash_and (fixture, store_what_is_not_full, tear_what_is_staged);
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
    ecfs_staged_overlay (fixture->archive, ecfs_staged_epoch (fixture->archive), &attr);
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
    EcfsAttr attr;
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
    g_assert_true (exists (fixture, "file", &attr));
    assert_content (fixture, attr.ino, bytes, LARGE);
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
    g_assert_cmpint (flush (staged), ==, 0);
    (void) ecfs_catalog_unlink (ecfs_archive_catalog (fixture->archive), ECFS_ROOT_INO, "file", &attr, NULL);
    ecfs_staged_drop (fixture->archive, ino);
    ecfs_staged_release (staged);
    wait_until_staging_is_empty (fixture);
    (void) raise (SIGKILL);
}

static void test_crash_after_unlink (Fixture *fixture, gconstpointer data)
{
    EcfsAttr attr;
    crash (fixture, unlink_what_is_flushed);
    g_assert_false (exists (fixture, "file", &attr));
    g_assert_cmpuint (count_rows (fixture), ==, 0);
}

/* Half of other content in place of what was closed and is not committed yet, all of it and in its middle. */
static void replace_what_is_queued (Fixture *fixture)
{
    EcfsStaged *staged;
    hide_three (fixture, true);
    uint64_t truncated = store (fixture, "truncated", "first content", 13);
    uint64_t rewritten = store (fixture, "rewritten", "first content", 13);
    g_assert_cmpint (open_file (fixture, truncated, true, &staged), ==, 0);
    put (staged, "half", 4, 0);
    g_assert_cmpint (open_file (fixture, rewritten, false, &staged), ==, 0);
    put (staged, "other", 5, 0);
    char bytes[13];
    g_assert_cmpint (ecfs_pread_all (ecfs_staged_fd (staged), bytes, 13, 0), ==, 13);
    g_assert_cmpmem (bytes, 13, "other content", 13);
}

static void test_crash_while_replacing (Fixture *fixture, gconstpointer data)
{
    EcfsAttr attr;
    crash (fixture, replace_what_is_queued);
    g_assert_cmpuint (count_in (fixture, "interrupted"), ==, 2);
    hide_three (fixture, false);
    wait_until_stored (fixture);
    g_assert_true (exists (fixture, "truncated", &attr));
    assert_content (fixture, attr.ino, (const uint8_t *) "first content", 13);
    g_assert_true (exists (fixture, "rewritten", &attr));
    assert_content (fixture, attr.ino, (const uint8_t *) "first content", 13);
    wait_until_staging_is_empty (fixture);
    g_assert_cmpuint (count_rows (fixture), ==, 0);
}

/* What takes the place of another file before it is closed. */
static void rename_before_close (Fixture *fixture)
{
    uint64_t ino;
    EcfsAttr replaced;
    EcfsCatalog *catalog = ecfs_archive_catalog (fixture->archive);
    EcfsStaged *staged = create (fixture, "new", &ino);
    put (staged, "new content", 11, 0);
    Answer *answer = answer_new ();
    ecfs_staged_before_rename (fixture->archive, ECFS_ROOT_INO, "new", ECFS_ROOT_INO, "file", done, answer);
    g_assert_cmpint (code_of (answer, NULL), ==, 0);
    g_assert_true (ecfs_catalog_rename (catalog, ECFS_ROOT_INO, "new", ECFS_ROOT_INO, "file", 0, &replaced, NULL) &&
                   ecfs_catalog_drop (catalog, replaced.ino, NULL));
}

static void test_rename_before_close (Fixture *fixture, gconstpointer data)
{
    EcfsAttr attr;
    (void) store (fixture, "file", "old content", 11);
    wait_until_staging_is_empty (fixture);
    crash (fixture, rename_before_close);
    wait_until_stored (fixture);
    g_assert_true (exists (fixture, "file", &attr));
    assert_content (fixture, attr.ino, (const uint8_t *) "new content", 11);
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

/* Dies before the group commit of the catalog. */
static void write_without_anything_durable (Fixture *fixture)
{
    uint64_t ino;
    EcfsStaged *staged = create (fixture, "file", &ino);
    put (staged, "written", 7, 0);
    (void) raise (SIGKILL);
}

static void test_crash_before_the_inode_is_durable (Fixture *fixture, gconstpointer data)
{
    EcfsAttr attr;
    crash (fixture, write_without_anything_durable);
    g_assert_false (exists (fixture, "file", &attr));
    g_assert_cmpuint (count_in (fixture, "interrupted"), ==, 1);
    g_assert_cmpuint (count_in (fixture, "staging"), ==, 0);
}

/* Its close was promised; a change of it that nobody flushed takes it away neither. */
static void change_what_was_never_stored (Fixture *fixture)
{
    uint64_t ino;
    hide_three (fixture, true); /* nothing is committed before the end */
    EcfsStaged *staged = create (fixture, "file", &ino);
    put (staged, "closed", 6, 0);
    g_assert_cmpint (flush (staged), ==, 0);
    put (staged, "half", 4, 0);
}

static void test_crash_while_a_promise_is_changed (Fixture *fixture, gconstpointer data)
{
    EcfsAttr attr;
    crash (fixture, change_what_was_never_stored);
    hide_three (fixture, false);
    wait_until_stored (fixture);
    g_assert_true (exists (fixture, "file", &attr));
    assert_content (fixture, attr.ino, (const uint8_t *) "closed", 6);
    assert_only_interrupted (fixture, "halfed");
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
    g_test_add ("/recover/" name, Fixture, (gconstpointer) (uintptr_t) (adjust), set_up_staged, function,              \
                tear_down_staged)

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    ADD ("crash-before-flush-keeps-bytes-apart", NULL, test_crash_before_flush);
    ADD ("crash-after-flush-commits-what-was-flushed", async, test_crash_after_flush);
    ADD ("crash-after-utimens-keeps-the-time", async, test_time_after_close);
    ADD ("crash-before-a-stored-copy-goes-is-not-told", NULL, test_crash_before_staging_goes);
    ADD ("crash-in-a-later-change-keeps-name-and-content", NULL, test_crash_in_a_later_change);
    ADD ("crash-that-tears-what-is-not-full-keeps-what-is-stored", NULL, test_crash_that_tears_what_is_not_full);
    ADD ("what-is-not-full-is-the-same-after-remounting", NULL, test_not_full_after_remount);
    ADD ("put-replaces-what-is-not-full", NULL, test_put_over_what_is_not_full);
    ADD ("bytes-go-after-their-name-is-gone-for-good", async, test_crash_after_unlink);
    ADD ("crash-while-what-a-close-promised-is-changed", async, test_crash_while_a_promise_is_changed);
    ADD ("crash-before-the-inode-is-durable-keeps-bytes-apart", NULL, test_crash_before_the_inode_is_durable);
    ADD ("crash-while-replacing-what-was-closed-keeps-that", async, test_crash_while_replacing);
    ADD ("crash-after-a-rename-before-close-keeps-the-content", NULL, test_rename_before_close);
    ADD ("crash-with-an-open-unlinked-file-leaves-nothing", NULL, test_crash_with_open_unlinked);
    ADD ("stop-does-not-take-half-a-file-for-a-whole-one", NULL, test_stop_in_the_middle_of_a_file);
    ADD ("stop-keeps-what-cannot-be-stored", NULL, test_stop_keeps_what_cannot_be_stored);
    return g_test_run ();
}
