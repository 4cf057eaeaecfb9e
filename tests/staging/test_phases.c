/* The phases of a staged file, step by step: a store that does nothing notes what staging begins, and the test says how
 * each attempt goes. */
#include "program/program.h"
#include "staged_fixture.h"
#include "staging/staged_priv.h"

#define N_FILES    60
#define N_TRAILING 4 /* as in step.c */
#define N_WORKERS  4 /* as in table.c */

static EcfsMutex begun_lock;
static EcfsCond begun_more;
static GQueue begun = G_QUEUE_INIT; /* of EcfsCommit, the attempts under way, oldest first; guarded by begun_lock */

static void store_that_notes (EcfsArchive *archive, const EcfsCommit *commit)
{
    EcfsCommit *attempt = g_memdup2 (commit, sizeof *commit);
    ecfs_mutex_lock (&begun_lock);
    g_queue_push_tail (&begun, attempt);
    ecfs_cond_signal (&begun_more);
    ecfs_mutex_unlock (&begun_lock);
}

static EcfsCommit *next_attempt (void)
{
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    ecfs_mutex_lock (&begun_lock);
    while (g_queue_is_empty (&begun))
        g_assert_true (ecfs_cond_wait_until (&begun_more, &begun_lock, deadline_us) || !g_queue_is_empty (&begun));
    EcfsCommit *attempt = g_queue_pop_head (&begun);
    ecfs_mutex_unlock (&begun_lock);
    return attempt;
}

static unsigned n_begun (void)
{
    ecfs_mutex_lock (&begun_lock);
    unsigned n = begun.length;
    ecfs_mutex_unlock (&begun_lock);
    return n;
}

/* It is asked for the last time whether anything moved, and writes the row as a publish does. */
static bool publish (Fixture *fixture, const EcfsCommit *commit, bool full)
{
    g_autoptr (GError) error = NULL;
    EcfsCatalog *catalog = ecfs_archive_catalog (fixture->archive);
    if (!commit->unchanged (commit->user))
        return false;
    if (full)
        (void) ecfs_catalog_staging_remove (catalog, commit->publish.staging, &error);
    else
        (void) ecfs_catalog_staging_set (catalog, commit->publish.staging, ECFS_STAGING_STORED, commit->size, 0, NULL,
                                         &error);
    g_assert_no_error (error);
    return true;
}

/* @code 0: without an error. */
static void end (EcfsCommit *attempt, int code, bool full, bool kept)
{
    g_autoptr (GError) error = code == 0 ? NULL : g_error_new_literal (ECFS_ERROR, code, "as the test wants it");
    const EcfsOutcome outcome = {.error = error, .full = full, .kept = kept};
    attempt->done (attempt->user, &outcome);
    g_free (attempt);
}

static EcfsPhase phase_of (EcfsStaged *staged)
{
    ecfs_mutex_lock (&staged->table->lock);
    EcfsPhase phase = staged->phase;
    ecfs_mutex_unlock (&staged->table->lock);
    return phase;
}

static void wait_for_phase (EcfsStaged *staged, EcfsPhase phase)
{
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    while (phase_of (staged) != phase) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (1000);
    }
}

/* Closes it for its only writer, and waits until it has left. */
static void release_and_leave (EcfsStaged *staged)
{
    EcfsStaged *mine = ecfs_staged_ref (staged);
    ecfs_staged_release (staged);
    wait_for_phase (mine, ECFS_PHASE_ABSENT);
    ecfs_staged_unref (mine);
}

/* A file whose commit is under way because somebody closes it. */
static EcfsStaged *begin_to_close (Fixture *fixture, const char *name, Answer **ret_answer, EcfsCommit **ret_attempt)
{
    uint64_t ino;
    EcfsStaged *staged = create (fixture, name, &ino);
    put (staged, "content", 7, 0);
    g_assert_cmpint (phase_of (staged), ==, ECFS_PHASE_IDLE);
    *ret_answer = answer_new ();
    ecfs_staged_flush (staged, done, *ret_answer);
    *ret_attempt = next_attempt ();
    g_assert_cmpuint ((*ret_attempt)->ino, ==, ino);
    g_assert_cmpint ((*ret_attempt)->kind, ==, ECFS_COMMIT_STORE);
    g_assert_cmpint (phase_of (staged), ==, ECFS_PHASE_COMMITTING);
    return staged;
}

static void test_commit (Fixture *fixture, gconstpointer data)
{
    Answer *answer;
    EcfsCommit *attempt;
    EcfsStaged *staged = begin_to_close (fixture, "file", &answer, &attempt);
    g_assert_true (publish (fixture, attempt, true));
    g_assert_cmpint (phase_of (staged), ==, ECFS_PHASE_PUBLISHING);
    g_assert_false (is_answered (answer));
    end (attempt, 0, true, false);
    g_assert_cmpint (code_of (answer, NULL), ==, 0);
    g_assert_cmpint (phase_of (staged), ==, ECFS_PHASE_IDLE); /* a writer has it open still */
    release_and_leave (staged);
    g_assert_cmpuint (count_in (fixture, "staging"), ==, 0);
}

/* A close is answered when what it wrote is durable; the last release commits what came after it. */
static void test_overtaken (Fixture *fixture, gconstpointer data)
{
    Answer *answer;
    EcfsCommit *attempt;
    EcfsStaged *staged = begin_to_close (fixture, "file", &answer, &attempt);
    put (staged, "more", 4, 7);
    g_assert_false (publish (fixture, attempt, true));
    g_assert_cmpint (phase_of (staged), ==, ECFS_PHASE_COMMITTING);
    end (attempt, ECANCELED, false, false);
    g_assert_cmpint (code_of (answer, NULL), ==, 0);
    g_assert_cmpint (only_state (fixture), ==, ECFS_STAGING_QUEUED);
    g_assert_cmpuint (n_begun (), ==, 0);
    EcfsStaged *mine = ecfs_staged_ref (staged);
    ecfs_staged_release (staged);
    attempt = next_attempt ();
    g_assert_cmpuint (attempt->size, ==, 11);
    g_assert_true (publish (fixture, attempt, true));
    end (attempt, 0, true, false);
    wait_for_phase (mine, ECFS_PHASE_ABSENT);
    ecfs_staged_unref (mine);
}

/* What came back with its quorum stays until it is full. */
static void test_filling (Fixture *fixture, gconstpointer data)
{
    Answer *answer;
    EcfsCommit *attempt;
    EcfsStaged *staged = begin_to_close (fixture, "file", &answer, &attempt);
    g_assert_true (publish (fixture, attempt, false));
    end (attempt, 0, false, false);
    g_assert_cmpint (code_of (answer, NULL), ==, 0);
    EcfsStaged *mine = ecfs_staged_ref (staged);
    ecfs_staged_release (staged);
    g_assert_cmpint (only_state (fixture), ==, ECFS_STAGING_STORED);
    answer = answer_new ();
    ecfs_staged_wait (fixture->archive, 0, true, done, answer);
    attempt = next_attempt ();
    g_assert_cmpint (attempt->kind, ==, ECFS_COMMIT_BACKFILL);
    g_assert_cmpint (phase_of (mine), ==, ECFS_PHASE_FILLING);
    g_assert_true (attempt->unchanged (attempt->user));
    g_assert_cmpint (phase_of (mine), ==, ECFS_PHASE_FILLING); /* there is nothing to publish */
    end (attempt, 0, true, false);
    g_assert_cmpint (code_of (answer, NULL), ==, 0);
    wait_for_phase (mine, ECFS_PHASE_ABSENT);
    ecfs_staged_unref (mine);
}

/* Few go on behind a close that was answered at the quorum; a change ends those that do. */
static void test_trailing (Fixture *fixture, gconstpointer data)
{
    EcfsStaged *files[N_TRAILING + 1];
    EcfsCommit *attempts[N_TRAILING + 1];
    for (unsigned i = 0; i <= N_TRAILING; i++) {
        Answer *answer;
        g_autofree char *name = g_strdup_printf ("file%u", i);
        files[i] = begin_to_close (fixture, name, &answer, &attempts[i]);
        g_assert_true (publish (fixture, attempts[i], false));
        g_assert_cmpint (attempts[i]->publish.published (attempts[i]->user), ==, i < N_TRAILING);
        g_assert_cmpint (phase_of (files[i]), ==, i < N_TRAILING ? ECFS_PHASE_TRAILING : ECFS_PHASE_ENDING);
        g_assert_cmpint (code_of (answer, NULL), ==, 0);
        g_assert_false (atomic_load (attempts[i]->cancelled));
    }
    static const uint8_t more[100] = {1}; /* worth an upload of its own */
    put (files[0], more, sizeof more, 0);
    Answer *answer = answer_new ();
    ecfs_staged_flush (files[0], done, answer);
    g_assert_true (atomic_load (attempts[0]->cancelled));
    end (attempts[0], ECANCELED, false, false);
    attempts[0] = next_attempt ();
    g_assert_true (publish (fixture, attempts[0], true));
    end (attempts[0], 0, true, false);
    g_assert_cmpint (code_of (answer, NULL), ==, 0);
    for (unsigned i = 1; i <= N_TRAILING; i++)
        end (attempts[i], 0, true, false);
    for (unsigned i = 0; i <= N_TRAILING; i++)
        release_and_leave (files[i]);
}

/* Published, but the catalog could not write it down: nobody stores it again, the catalog is asked until it could. */
static void test_settling (Fixture *fixture, gconstpointer data)
{
    Answer *answer;
    EcfsCommit *attempt;
    EcfsStaged *staged = begin_to_close (fixture, "file", &answer, &attempt);
    g_assert_true (publish (fixture, attempt, true));
    end (attempt, EROFS, true, true);
    g_assert_cmpint (code_of (answer, NULL), ==, EROFS);
    g_assert_true (ecfs_staged_is_newer (fixture->archive, staged->ino));
    release_and_leave (staged);
    g_assert_cmpuint (n_begun (), ==, 0);
}

/* Out of sight of the analysis, which knows no arrays of locks. */
static ECFS_TSA (no_thread_safety_analysis) void hold (EcfsMutex *row)
{
    ecfs_mutex_lock (row);
}

static ECFS_TSA (no_thread_safety_analysis) void let_go (EcfsMutex *row)
{
    ecfs_mutex_unlock (row);
}

/* Its row is to be written once more just when an attempt ends that keeps the row: it is settled all the same. */
static void test_settling_meets_durable (Fixture *fixture, gconstpointer data)
{
    EcfsStaged *files[N_WORKERS];
    Answer *answers[N_WORKERS], *closed, *synced;
    EcfsCommit *attempt;
    EcfsStaged *staged = begin_to_close (fixture, "file", &closed, &attempt);
    EcfsMutex *rows[N_WORKERS];
    for (unsigned i = 0; i < N_WORKERS; i++) { /* nobody is left for what comes behind */
        uint64_t ino;
        g_autofree char *name = g_strdup_printf ("held%u", i);
        files[i] = create (fixture, name, &ino);
        put (files[i], "content", 7, 0);
        rows[i] = &files[i]->row_lock;
        hold (rows[i]);
        answers[i] = answer_new ();
        ecfs_staged_fsync (files[i], done, answers[i]);
    }
    synced = answer_new ();
    ecfs_staged_fsync (staged, done, synced);
    EcfsStaged *mine = ecfs_staged_ref (staged);
    ecfs_staged_release (staged);
    g_assert_true (publish (fixture, attempt, true));
    end (attempt, EROFS, true, true);
    g_assert_cmpint (code_of (closed, NULL), ==, EROFS);
    g_assert_cmpint (code_of (synced, NULL), ==, EROFS);
    for (unsigned i = 0; i < N_WORKERS; i++)
        let_go (rows[i]);
    wait_for_phase (mine, ECFS_PHASE_ABSENT);
    ecfs_staged_unref (mine);
    for (unsigned i = 0; i < N_WORKERS; i++) {
        g_assert_cmpint (code_of (answers[i], NULL), ==, 0);
        ecfs_staged_release (files[i]);
    }
    for (unsigned i = 0; i < N_WORKERS; i++) {
        attempt = next_attempt ();
        g_assert_true (publish (fixture, attempt, true));
        end (attempt, 0, true, false);
    }
    wait_until_staging_is_empty (fixture);
}

static void test_failing (Fixture *fixture, gconstpointer data)
{
    Answer *answer;
    EcfsCommit *attempt;
    EcfsStaged *staged = begin_to_close (fixture, "file", &answer, &attempt);
    end (attempt, EIO, false, false);
    g_assert_cmpint (code_of (answer, NULL), ==, EIO);
    g_assert_cmpint (only_state (fixture), ==, ECFS_STAGING_QUEUED); /* it is safe here */
    EcfsStaged *mine = ecfs_staged_ref (staged);
    ecfs_staged_release (staged);
    attempt = next_attempt (); /* after a pause */
    g_assert_true (attempt->retry);
    g_assert_true (publish (fixture, attempt, true));
    end (attempt, 0, true, false);
    wait_for_phase (mine, ECFS_PHASE_ABSENT);
    ecfs_staged_unref (mine);
}

static void test_unlinked (Fixture *fixture, gconstpointer data)
{
    Answer *answer;
    EcfsCommit *attempt;
    EcfsStaged *staged = begin_to_close (fixture, "file", &answer, &attempt);
    ecfs_staged_unlinked (fixture->archive, staged->ino);
    g_assert_cmpint (code_of (answer, NULL), ==, 0);
    g_assert_false (attempt->unchanged (attempt->user));
    end (attempt, ECANCELED, false, false);
    g_assert_cmpint (phase_of (staged), ==, ECFS_PHASE_IDLE);
    EcfsStaged *mine = ecfs_staged_ref (staged);
    ecfs_staged_release (staged);
    g_assert_cmpint (phase_of (mine), ==, ECFS_PHASE_IDLE); /* readers may have it open */
    ecfs_staged_drop (fixture->archive, mine->ino);
    wait_for_phase (mine, ECFS_PHASE_ABSENT);
    ecfs_staged_unref (mine);
    g_assert_cmpuint (n_begun (), ==, 0);
}

static void close_in_order (Fixture *fixture, uint64_t *ret_inos)
{
    g_autofree uint8_t *bytes = random_bytes (LARGE);
    for (unsigned i = 0; i < N_FILES; i++) {
        g_autofree char *name = g_strdup_printf ("file%u", i);
        ret_inos[i] = store (fixture, name, bytes, LARGE);
    }
}

static void check_order (Fixture *fixture, const uint64_t *inos)
{
    for (unsigned i = 0; i < N_FILES; i++) {
        EcfsCommit *attempt = next_attempt ();
        g_assert_cmpuint (attempt->ino, ==, inos[i]);
        g_assert_true (publish (fixture, attempt, true));
        end (attempt, 0, true, false);
    }
    wait_until_staging_is_empty (fixture);
}

static void test_oldest_first (Fixture *fixture, gconstpointer data)
{
    uint64_t inos[N_FILES];
    close_in_order (fixture, inos);
    check_order (fixture, inos);
}

static void start_noting (Fixture *fixture)
{
    g_autoptr (GError) error = NULL;
    ecfs_staged_start_with (fixture->archive, store_that_notes, &error);
    g_assert_no_error (error);
}

static void test_oldest_first_after_remount (Fixture *fixture, gconstpointer data)
{
    uint64_t inos[N_FILES];
    hide_three (fixture, true); /* from the store that does store */
    close_in_order (fixture, inos);
    g_assert_cmpuint (stop (fixture), ==, N_FILES);
    reopen (fixture);
    start_noting (fixture);
    check_order (fixture, inos);
}

static void set_up_noting (Fixture *fixture, gconstpointer adjust)
{
    set_up_adjusted (fixture, CODE, (void (*) (EcfsConfig *)) (uintptr_t) adjust);
    start_noting (fixture);
}

#define ADD(name, set_up, adjust, test)                                                                                \
    g_test_add ("/staged/phases/" name, Fixture, (gconstpointer) (uintptr_t) (adjust), set_up, test, tear_down_staged)

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    ecfs_mutex_init (&begun_lock);
    ecfs_cond_init (&begun_more);
    ADD ("a-close-commits", set_up_noting, NULL, test_commit);
    ADD ("a-change-overtakes-a-commit", set_up_noting, NULL, test_overtaken);
    ADD ("what-has-its-quorum-is-filled-up", set_up_noting, NULL, test_filling);
    ADD ("few-go-on-behind-their-close", set_up_noting, NULL, test_trailing);
    ADD ("what-the-catalog-could-not-write-is-settled", set_up_noting, NULL, test_settling);
    ADD ("what-is-settled-is-not-lost-beside-an-fsync", set_up_noting, NULL, test_settling_meets_durable);
    ADD ("a-commit-that-fails-is-tried-again", set_up_noting, NULL, test_failing);
    ADD ("what-lost-its-name-is-not-stored", set_up_noting, NULL, test_unlinked);
    ADD ("what-waits-is-stored-oldest-first", set_up_noting, async, test_oldest_first);
    ADD ("what-an-earlier-mount-left-is-stored-oldest-first", set_up_staged, async, test_oldest_first_after_remount);
    int result = g_test_run ();
    ecfs_cond_clear (&begun_more);
    ecfs_mutex_clear (&begun_lock);
    return result;
}
