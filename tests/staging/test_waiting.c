/* Writers that wait for room, callers of fsync and `wait` that wait for endpoints, and who is not made to wait. */
#include "program/program.h"
#include "staged_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#define STAGING_MAX (1 << 20)
#define ALMOST_ALL  (STAGING_MAX - 100000)

/* Room */

static void tight (EcfsConfig *config)
{
    config->commit_async = true;
    config->staging_max = STAGING_MAX;
    config->close_timeout_us = 300 * G_USEC_PER_SEC;
}

static void tight_and_impatient (EcfsConfig *config)
{
    tight (config);
    config->close_timeout_us = 4 * G_USEC_PER_SEC;
}

/* Like put (), and tells whether the writer may go on. */
static bool put_more (EcfsStaged *staged, const void *bytes, size_t size, uint64_t offset)
{
    put (staged, bytes, size, offset);
    g_autoptr (GError) error = NULL;
    g_assert_true (ecfs_staged_change_begin (staged, offset + size, 0, &error));
    return ecfs_staged_change_end (staged, 0, 0, 1);
}

static Answer *pause_writer (EcfsStaged *staged)
{
    Answer *answer = answer_new ();
    ecfs_staged_pause (staged, done, answer);
    return answer;
}

static int begin_code (EcfsStaged *staged, uint64_t size)
{
    g_autoptr (GError) error = NULL;
    if (ecfs_staged_change_begin (staged, UINT64_MAX, size, &error))
        (void) ecfs_staged_change_end (staged, 0, 0, 1); /* nothing is written */
    return ecfs_errno (error);
}

static void test_writer_waits (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (STAGING_MAX);
    uint64_t first, second;
    hide_three (fixture, true);
    first = store (fixture, "first", bytes, ALMOST_ALL);
    EcfsStaged *staged = create (fixture, "second", &second);
    g_assert_true (put_more (staged, bytes, 50000, 0));
    g_assert_false (put_more (staged, bytes + 50000, 100000, 50000)); /* taken, but above the limit */
    Answer *paused = pause_writer (staged);
    g_usleep (500000); /* for what must not happen there is no condition */
    g_assert_false (is_answered (paused));
    hide_three (fixture, false);
    g_assert_cmpint (code_of (paused, NULL), ==, 0);
    g_assert_cmpint (begin_code (staged, 10000), ==, 0);
    g_assert_cmpint (flush (staged), ==, 0);
    ecfs_staged_release (staged);
    wait_until_stored (fixture);
    assert_content (fixture, first, bytes, ALMOST_ALL);
    assert_content (fixture, second, bytes, 150000);
}

static void test_interrupted_writer (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (STAGING_MAX);
    uint64_t ino;
    hide_three (fixture, true);
    (void) store (fixture, "first", bytes, ALMOST_ALL);
    EcfsStaged *staged = create (fixture, "second", &ino);
    g_assert_false (put_more (staged, bytes, 200000, 0));
    Answer *paused = pause_writer (staged), *other = pause_writer (staged);
    ecfs_staged_unpause (staged, paused);
    g_assert_cmpint (code_of (paused, NULL), ==, 0);
    g_assert_false (is_answered (other));
    hide_three (fixture, false);
    g_assert_cmpint (code_of (other, NULL), ==, 0);
    ecfs_staged_release (staged);
}

static void test_no_room_for_long (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (STAGING_MAX);
    uint64_t ino;
    hide_three (fixture, true);
    (void) store (fixture, "first", bytes, ALMOST_ALL);
    EcfsStaged *staged = create (fixture, "second", &ino);
    g_assert_false (put_more (staged, bytes, 200000, 0));
    g_assert_cmpint (code_of (pause_writer (staged), NULL), ==, 0); /* after close_timeout */
    g_assert_cmpint (begin_code (staged, 1), ==, ENOSPC);
    hide_three (fixture, false);
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    while (begin_code (staged, 1) == ENOSPC)
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
    g_assert_cmpint (flush (staged), ==, 0);
    ecfs_staged_release (staged);
    wait_until_stored (fixture);
    assert_content (fixture, ino, bytes, 200000);
}

/* What a single writer fills up nobody else can make room in. */
static void test_no_room_at_all (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (STAGING_MAX);
    uint64_t ino;
    EcfsStaged *staged = create (fixture, "file", &ino);
    g_assert_true (put_more (staged, bytes, ALMOST_ALL, 0));
    g_assert_cmpint (begin_code (staged, 200000), ==, ENOSPC);
    g_assert_cmpint (flush (staged), ==, 0);
    ecfs_staged_release (staged);
    wait_until_stored (fixture);
    assert_content (fixture, ino, bytes, ALMOST_ALL);
}

static void test_stop_answers_writers (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (STAGING_MAX);
    uint64_t ino;
    hide_three (fixture, true);
    (void) store (fixture, "first", bytes, ALMOST_ALL);
    EcfsStaged *staged = create (fixture, "second", &ino);
    g_assert_false (put_more (staged, bytes, 200000, 0));
    Answer *paused = pause_writer (staged);
    g_assert_cmpuint (stop (fixture), ==, 2);
    g_assert_cmpint (code_of (paused, NULL), ==, 0);
    ecfs_staged_release (staged);
    hide_three (fixture, false);
    reopen (fixture);
    start (fixture);
}

/* fsync = remote */

static void remote (EcfsConfig *config)
{
    config->fsync_remote = true;
}

static void test_fsync_stores (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (2 * LARGE);
    uint64_t ino;
    EcfsStaged *staged = create (fixture, "file", &ino);
    put (staged, bytes, LARGE, 0);
    g_assert_cmpint (sync_file (staged), ==, 0);
    assert_content (fixture, ino, bytes, LARGE);
    put (staged, bytes + LARGE, 1, LARGE); /* too little for a close to commit */
    g_assert_cmpint (sync_file (staged), ==, 0);
    assert_content (fixture, ino, bytes, LARGE + 1);
    hide_three (fixture, true);
    put (staged, bytes + LARGE, LARGE, LARGE);
    g_assert_cmpint (sync_file (staged), ==, EIO);
    g_assert_cmpint (only_state (fixture), ==, ECFS_STAGING_QUEUED); /* as safe as a local one, all the same */
    assert_content (fixture, ino, bytes, LARGE + 1);
    hide_three (fixture, false);
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    while (sync_file (staged) != 0)
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
    assert_content (fixture, ino, bytes, 2 * LARGE);
    ecfs_staged_release (staged);
}

static void test_local_fsync (Fixture *fixture, gconstpointer data)
{
    uint64_t ino;
    EcfsStaged *staged = create (fixture, "file", &ino);
    put (staged, "abc", 3, 0);
    hide_three (fixture, true);
    g_assert_cmpint (sync_file (staged), ==, 0);
    g_assert_cmpint (only_state (fixture), ==, ECFS_STAGING_QUEUED);
    hide_three (fixture, false);
    ecfs_staged_release (staged);
}

/* One who writes all the time, as a log is written, and waits where it is told to. */
typedef struct Scribe {
    EcfsStaged *staged;
    atomic_bool ends;
    atomic_uint n_written;
    pthread_t thread;
} Scribe;

static void *scribble (void *data)
{
    Scribe *self = data;
    while (!atomic_load (&self->ends)) {
        unsigned offset = atomic_fetch_add (&self->n_written, 1);
        if (!put_more (self->staged, "x", 1, LARGE + offset))
            g_assert_cmpint (code_of (pause_writer (self->staged), NULL), ==, 0);
        g_usleep (1000);
    }
    return NULL;
}

static void begin_scribbling (Scribe *self, Fixture *fixture, uint64_t *ret_ino)
{
    g_autofree uint8_t *bytes = random_bytes (LARGE);
    *self = (Scribe){.staged = create (fixture, "log", ret_ino)};
    put (self->staged, bytes, LARGE, 0);
    g_assert_cmpint (flush (self->staged), ==, 0);
    g_assert_cmpint (pthread_create (&self->thread, NULL, scribble, self), ==, 0);
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    while (atomic_load (&self->n_written) < 10)
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
}

static void end_scribbling (Scribe *self)
{
    unsigned before = atomic_load (&self->n_written);
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    while (atomic_load (&self->n_written) < before + 10) /* nobody holds it up any more */
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
    atomic_store (&self->ends, true);
    g_assert_cmpint (pthread_join (self->thread, NULL), ==, 0);
    ecfs_staged_release (self->staged);
}

static void test_fsync_of_what_is_written (Fixture *fixture, gconstpointer data)
{
    Scribe scribe;
    uint64_t ino;
    begin_scribbling (&scribe, fixture, &ino);
    for (unsigned i = 0; i < 5; i++) {
        unsigned n_written = atomic_load (&scribe.n_written);
        g_assert_cmpint (sync_file (scribe.staged), ==, 0);
        EcfsContent *content = ecfs_content_open (fixture->archive, ino, NULL);
        g_assert_cmpuint (ecfs_content_size (content) + 1, >=, LARGE + n_written);
        ecfs_content_unref (content);
    }
    end_scribbling (&scribe);
}

/* wait */

static void test_wait_for_what_is_written (Fixture *fixture, gconstpointer data)
{
    Scribe scribe;
    uint64_t ino;
    begin_scribbling (&scribe, fixture, &ino);
    for (unsigned i = 0; i < 5; i++)
        wait_until_stored (fixture);
    end_scribbling (&scribe);
}

static void test_wait_past_writers (Fixture *fixture, gconstpointer data)
{
    uint64_t fresh, stored;
    g_autofree uint8_t *bytes = random_bytes (LARGE);
    stored = store (fixture, "stored", bytes, LARGE);
    wait_until_staging_is_empty (fixture);
    EcfsStaged *over, *staged = create (fixture, "fresh", &fresh);
    put (staged, bytes, LARGE, 0);
    g_assert_cmpint (open_file (fixture, stored, true, &over), ==, 0);
    put (over, bytes, 10, 0);
    wait_until_stored (fixture);
    g_assert_cmpint (wait_for_all (fixture, false), ==, 0);
    assert_content (fixture, stored, bytes, LARGE); /* half a file was not committed for it */
    g_assert_cmpint (flush (staged), ==, 0);
    g_assert_cmpint (flush (over), ==, 0);
    ecfs_staged_release (staged);
    ecfs_staged_release (over);
}

static void test_wait_names (Fixture *fixture, gconstpointer data)
{
    g_autofree uint8_t *bytes = random_bytes (LARGE);
    hide_endpoint (fixture, 3, true);
    for (unsigned i = 0; i < 12; i++) {
        g_autofree char *name = g_strdup_printf ("file%u", i);
        (void) store (fixture, name, bytes, LARGE);
    }
    Answer *answer = answer_new ();
    ecfs_staged_wait (fixture->archive, 0, true, done, answer);
    g_autoptr (GError) error = error_of (answer, NULL);
    g_assert_cmpint (ecfs_errno (error), ==, EIO);
    g_test_message ("%s", error->message);
    g_auto (GStrv) lines = g_strsplit (error->message, "\n", -1);
    g_assert_cmpuint (g_strv_length (lines), ==, 11);
    for (unsigned i = 0; i < 10; i++) {
        g_assert_true (g_str_has_prefix (lines[i], "/file"));
        g_assert_nonnull (strstr (lines[i], "endpoint e3"));
    }
    g_assert_cmpstr (lines[10], ==, "and 2 more files");
    g_assert_cmpint (wait_for_all (fixture, false), ==, 0);
    hide_endpoint (fixture, 3, false);
    wait_until_stored (fixture);
}

#define ADD(name, adjust, function)                                                                                    \
    g_test_add ("/waiting/" name, Fixture, (gconstpointer) (uintptr_t) (adjust), set_up_staged, function,              \
                tear_down_staged)

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    ADD ("a-writer-waits-for-room-and-goes-on", tight, test_writer_waits);
    ADD ("a-writer-that-waits-for-room-can-be-interrupted", tight, test_interrupted_writer);
    ADD ("a-writer-fails-when-nothing-makes-room-for-long", tight_and_impatient, test_no_room_for_long);
    ADD ("a-writer-fails-when-nobody-else-can-make-room", tight, test_no_room_at_all);
    ADD ("stopping-answers-writers-that-wait", tight, test_stop_answers_writers);
    ADD ("fsync-remote-returns-when-content-is-stored", remote, test_fsync_stores);
    ADD ("fsync-local-needs-no-endpoint", NULL, test_local_fsync);
    ADD ("fsync-remote-ends-although-somebody-keeps-writing", remote, test_fsync_of_what_is_written);
    ADD ("wait-ends-although-somebody-keeps-writing", NULL, test_wait_for_what_is_written);
    ADD ("wait-does-not-wait-for-what-is-not-flushed", NULL, test_wait_past_writers);
    ADD ("wait-names-files-and-endpoints", NULL, test_wait_names);
    return g_test_run ();
}
