/* Where the sender brings the journal, and whom it waits for. */
#include "archive/common.h"
#include "deaf_endpoint.h"
#include "journal/sender.h"
#include "program/program.h"
#include "util/lock.h"

#define PATIENCE_US (60 * G_USEC_PER_SEC)
#define CODE        "rs:4+2"
#define COPIES      3 /* as many endpoints as may vanish, and one more */

static bool go_on (void *user)
{
    return true;
}

static int store_journal (Fixture *fixture, char **ret_message)
{
    g_autoptr (GError) error = NULL;
    bool stored = ecfs_archive_store_journal (fixture->archive, go_on, NULL, &error);
    g_assert_cmpint (stored, ==, error == NULL);
    if (ret_message != NULL)
        *ret_message = error == NULL ? NULL : g_strdup (error->message);
    return error == NULL ? 0 : error->code;
}

static unsigned n_segments (Fixture *fixture, unsigned endpoint)
{
    g_autofree char *root = endpoint_path (fixture, endpoint);
    g_autofree char *journal = g_build_filename (root, "journal", NULL);
    return g_file_test (journal, G_FILE_TEST_IS_DIR) ? count_files (journal) : 0;
}

static unsigned n_with_segments (Fixture *fixture)
{
    unsigned n = 0;
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        n += n_segments (fixture, i) > 0;
    return n;
}

static void wait_for_segments (Fixture *fixture, unsigned endpoint)
{
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    while (n_segments (fixture, endpoint) == 0) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (10000);
    }
}

static void test_stored (Fixture *fixture, gconstpointer code)
{
    (void) make_file (fixture, "file");
    g_assert_cmpint (store_journal (fixture, NULL), ==, 0);
    g_assert_cmpuint (n_with_segments (fixture), >=, COPIES);
    EcfsJournalSender *sender = ecfs_archive_service (fixture->archive, ECFS_SERVICE_JOURNAL);
    uint64_t sequence = ecfs_catalog_sequence (ecfs_archive_catalog (fixture->archive));
    g_assert_true (ecfs_journal_sender_has_stored (sender, sequence));
    (void) make_file (fixture, "other");
    sequence = ecfs_catalog_sequence (ecfs_archive_catalog (fixture->archive));
    g_assert_false (ecfs_journal_sender_has_stored (sender, sequence));
    g_assert_cmpint (store_journal (fixture, NULL), ==, 0);
    g_assert_true (ecfs_journal_sender_has_stored (sender, sequence));
}

/* Fewer than may vanish and one more are no success; who comes back gets what it missed. */
static void test_too_few (Fixture *fixture, gconstpointer code)
{
    g_autofree char *message = NULL;
    for (unsigned i = 0; i <= N_ENDPOINTS - COPIES; i++)
        hide_endpoint (fixture, i, true);
    (void) make_file (fixture, "file");
    g_assert_cmpint (store_journal (fixture, &message), ==, EIO);
    g_assert_nonnull (strstr (message, "has to be on 3"));
    for (unsigned i = 0; i <= N_ENDPOINTS - COPIES; i++)
        hide_endpoint (fixture, i, false);
    int64_t deadline_us = ecfs_now_us () + PATIENCE_US;
    while (store_journal (fixture, NULL) != 0)
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        wait_for_segments (fixture, i);
}

/* One that takes the journal and never says that it has it is waited for by nobody. */
static void test_deaf (Fixture *fixture, gconstpointer code)
{
    unsigned n_before = n_segments (fixture, 1);
    (void) make_file (fixture, "file");
    g_assert_cmpint (store_journal (fixture, NULL), ==, 0);
    g_assert_false (atomic_load (&may_answer));
    g_assert_cmpuint (n_segments (fixture, 1), >, n_before);
    atomic_store (&may_answer, true); /* the end of the archive waits for it */
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    g_test_add ("/sender/what-is-waited-for-is-where-enough-are", Fixture, CODE, set_up, test_stored, tear_down);
    g_test_add ("/sender/too-few-endpoints-are-no-success", Fixture, CODE, set_up, test_too_few, tear_down);
    g_test_add ("/sender/an-endpoint-that-does-not-answer-holds-up-nobody", Fixture, CODE, set_up_deaf, test_deaf,
                tear_down);
    return g_test_run ();
}
