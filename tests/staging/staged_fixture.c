#include "staged_fixture.h"

#include "util/io.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Answers that come from any thread */

Answer *answer_new (void)
{
    Answer *answer = g_new0 (Answer, 1);
    ecfs_mutex_init (&answer->lock);
    ecfs_cond_init (&answer->cond);
    return answer;
}

void opened (void *user, EcfsStaged *staged, const GError *error)
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

void done (void *user, const GError *error)
{
    opened (user, NULL, error);
}

bool is_answered (Answer *answer)
{
    ecfs_mutex_lock (&answer->lock);
    bool is_done = answer->done;
    ecfs_mutex_unlock (&answer->lock);
    return is_done;
}

GError *error_of (Answer *answer, EcfsStaged **ret_staged)
{
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    ecfs_mutex_lock (&answer->lock);
    while (!answer->done)
        g_assert_true (ecfs_cond_wait_until (&answer->cond, &answer->lock, deadline_us) || answer->done);
    ecfs_mutex_unlock (&answer->lock);
    GError *error = answer->error;
    if (ret_staged != NULL)
        *ret_staged = answer->staged;
    ecfs_cond_clear (&answer->cond);
    ecfs_mutex_clear (&answer->lock);
    g_free (answer);
    return error;
}

int code_of (Answer *answer, EcfsStaged **ret_staged)
{
    g_autoptr (GError) error = error_of (answer, ret_staged);
    return ecfs_errno (error);
}

int flush (EcfsStaged *staged)
{
    Answer *answer = answer_new ();
    ecfs_staged_flush (staged, done, answer);
    return code_of (answer, NULL);
}

int sync_file (EcfsStaged *staged)
{
    Answer *answer = answer_new ();
    ecfs_staged_fsync (staged, done, answer);
    return code_of (answer, NULL);
}

int wait_for_all (Fixture *fixture, bool full)
{
    Answer *answer = answer_new ();
    ecfs_staged_wait (fixture->archive, 0, full, done, answer);
    return code_of (answer, NULL);
}

void wait_until_stored (Fixture *fixture)
{
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    while (wait_for_all (fixture, true) != 0)
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
}

/* Files */

EcfsStaged *create (Fixture *fixture, const char *name, uint64_t *ret_ino)
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

int open_file (Fixture *fixture, uint64_t ino, bool truncate, EcfsStaged **ret_staged)
{
    Answer *answer = answer_new ();
    ecfs_staged_open (fixture->archive, ino, truncate, opened, answer);
    return code_of (answer, ret_staged);
}

void put (EcfsStaged *staged, const void *bytes, size_t size, uint64_t offset)
{
    g_autoptr (GError) error = NULL;
    ecfs_staged_change_begin (staged, offset, size, &error);
    g_assert_no_error (error);
    g_assert_cmpint (ecfs_pwrite_all (ecfs_staged_fd (staged), bytes, size, offset), ==, 0);
    (void) ecfs_staged_change_end (staged, size, offset + size, 1234567890123456789); /* tests do not pause */
}

uint64_t store (Fixture *fixture, const char *name, const void *bytes, size_t size)
{
    uint64_t ino;
    EcfsStaged *staged = create (fixture, name, &ino);
    put (staged, bytes, size, 0);
    g_assert_cmpint (flush (staged), ==, 0);
    ecfs_staged_release (staged);
    return ino;
}

EcfsObjectRow *object_of (Fixture *fixture, uint64_t ino)
{
    g_autoptr (GError) error = NULL;
    EcfsCatalog *catalog = ecfs_archive_catalog (fixture->archive);
    g_autoptr (GArray) extents = ecfs_catalog_extents (catalog, ino, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (extents->len, ==, 1);
    EcfsObjectRow *object = ecfs_catalog_object (catalog, g_array_index (extents, EcfsExtent, 0).object, &error);
    g_assert_no_error (error);
    return object;
}

unsigned count_in (const Fixture *fixture, const char *directory)
{
    g_autofree char *path = g_build_filename (fixture->directory, directory, NULL);
    g_autofree char *id = g_build_filename (path, ".ecfs-staging", NULL); /* that the directory is the archive's */
    return count_files (path) - g_file_test (id, G_FILE_TEST_EXISTS);
}

void wait_until_staging_is_empty (const Fixture *fixture)
{
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    while (count_in (fixture, "staging") > 0) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (1000);
    }
}

unsigned count_rows (Fixture *fixture)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) rows = ecfs_catalog_staging_list (ecfs_archive_catalog (fixture->archive), &error);
    g_assert_no_error (error);
    return rows->len;
}

EcfsStagingState only_state (Fixture *fixture)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) rows = ecfs_catalog_staging_list (ecfs_archive_catalog (fixture->archive), &error);
    g_assert_no_error (error);
    g_assert_cmpuint (rows->len, ==, 1);
    return ((const EcfsStagingRow *) rows->pdata[0])->state;
}

bool exists (Fixture *fixture, const char *name, EcfsAttr *ret_attr)
{
    return ecfs_catalog_lookup (ecfs_archive_catalog (fixture->archive), ECFS_ROOT_INO, name, ret_attr, NULL);
}

/* Life cycle */

void start (Fixture *fixture)
{
    g_autoptr (GError) error = NULL;
    ecfs_staged_start (fixture->archive, &error);
    g_assert_no_error (error);
}

unsigned stop (Fixture *fixture)
{
    unsigned n_left;
    ecfs_staged_stop (fixture->archive, ecfs_now_us () + PATIENCE_US, &n_left);
    return n_left;
}

void set_up_staged (Fixture *fixture, gconstpointer adjust)
{
    set_up_adjusted (fixture, CODE, (void (*) (EcfsConfig *)) (uintptr_t) adjust);
    start (fixture);
}

void tear_down_staged (Fixture *fixture, gconstpointer adjust)
{
    (void) stop (fixture); /* what is left is removed with the rest */
    tear_down (fixture, NULL);
}

void crash_and (Fixture *fixture, void (*work) (Fixture *fixture), void (*meanwhile) (Fixture *fixture))
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
        (void) raise (SIGKILL); /* a sanitizer would make _exit () take its time, in which other threads go on */
    }
    int status;
    g_assert_cmpint (waitpid (child, &status, 0), ==, child);
    g_assert_true (WIFSIGNALED (status) && WTERMSIG (status) == SIGKILL);
    if (meanwhile != NULL)
        meanwhile (fixture);
    reopen (fixture);
    start (fixture);
}

void crash (Fixture *fixture, void (*work) (Fixture *fixture))
{
    crash_and (fixture, work, NULL);
}

/* Settings and troubles */

void async (EcfsConfig *config)
{
    config->commit_async = true;
}

void hide_three (Fixture *fixture, bool hide)
{
    for (unsigned i = 0; i < 3; i++)
        hide_endpoint (fixture, i, hide);
}
