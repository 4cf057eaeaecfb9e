/* What is remembered of reading around endpoints. */
#include "object/readlog.h"

static const EcfsErasure *erasure (const GPtrArray *erasures, guint i)
{
    return g_ptr_array_index (erasures, i);
}

static void test_episodes (void)
{
    EcfsReadLog *log = ecfs_read_log_new ();
    ecfs_read_log_erased (log, "amber", ECFS_ERASED_STALLED, 100);
    ecfs_read_log_erased (log, "birch", ECFS_ERASED_LATE, 7);
    ecfs_read_log_erased (log, "amber", ECFS_ERASED_STALLED, 300);
    ecfs_read_log_erased (log, "amber", ECFS_ERASED_STALLED, 200);
    ecfs_read_log_erased (log, "amber", ECFS_ERASED_DOWN, 0);
    g_autoptr (GPtrArray) found = ecfs_read_log_erasures (log);
    g_assert_cmpuint (found->len, ==, 3);
    g_assert_cmpstr (erasure (found, 0)->endpoint, ==, "amber");
    g_assert_cmpint (erasure (found, 0)->why, ==, ECFS_ERASED_STALLED);
    g_assert_cmpuint (erasure (found, 0)->n_segments, ==, 3);
    g_assert_cmpint (erasure (found, 0)->saved_us, ==, 300);
    g_assert_cmpint (erasure (found, 0)->end_us, >=, erasure (found, 0)->begin_us);
    g_assert_cmpstr (erasure (found, 1)->endpoint, ==, "birch");
    g_assert_cmpint (erasure (found, 2)->why, ==, ECFS_ERASED_DOWN);
    ecfs_read_log_free (log);
}

static void test_told (void)
{
    EcfsReadLog *log = ecfs_read_log_new ();
    ecfs_read_log_erased (log, "amber", ECFS_ERASED_STALLED, 1500000);
    g_test_expect_message (NULL, G_LOG_LEVEL_INFO, "endpoint amber: treated as erased in reads: stalled");
    ecfs_read_log_tell (log, false);
    g_test_assert_expected_messages ();
    ecfs_read_log_tell (log, false);
    g_test_expect_message (NULL, G_LOG_LEVEL_INFO,
                           "endpoint amber: was treated as erased in reads for *: stalled; "
                           "segments=1; one would have waited 1.5 s more");
    ecfs_read_log_tell (log, true);
    g_test_assert_expected_messages ();
    ecfs_read_log_tell (log, true);
    ecfs_read_log_erased (log, "amber", ECFS_ERASED_STALLED, 0); /* what was told as ended does not go on */
    g_autoptr (GPtrArray) found = ecfs_read_log_erasures (log);
    g_assert_cmpuint (found->len, ==, 2);
    ecfs_read_log_free (log);
}

static void test_bound (void)
{
    EcfsReadLog *log = ecfs_read_log_new ();
    for (unsigned i = 0; i < ECFS_N_ERASURES + 3; i++) {
        g_autofree char *name = g_strdup_printf ("e%u", i);
        ecfs_read_log_erased (log, name, ECFS_ERASED_DAMAGED, 0);
    }
    g_autoptr (GPtrArray) found = ecfs_read_log_erasures (log);
    EcfsReadCounts counts;
    ecfs_read_log_counts (log, &counts);
    g_assert_cmpuint (counts.erasures, ==, ECFS_N_ERASURES + 3); /* all of them, also those that are forgotten */
    g_assert_cmpuint (found->len, ==, ECFS_N_ERASURES);
    g_assert_cmpstr (erasure (found, 0)->endpoint, ==, "e3");
    ecfs_read_log_free (log);
}

static void test_counts (void)
{
    EcfsReadLog *log = ecfs_read_log_new ();
    for (unsigned i = 0; i < 3; i++)
        ecfs_read_log_count (log, &(EcfsReadCounts){.segments = 1, .decoded = i == 1, .hedged_bytes = 10 * i});
    ecfs_read_log_count (log, &(EcfsReadCounts){.cancelled = 2, .degraded = 1, .received_bytes = 100});
    EcfsReadCounts counts;
    ecfs_read_log_counts (log, &counts);
    g_assert_cmpuint (counts.segments, ==, 3);
    g_assert_cmpuint (counts.decoded, ==, 1);
    g_assert_cmpuint (counts.degraded, ==, 1);
    g_assert_cmpuint (counts.hedged_bytes, ==, 30);
    g_assert_cmpuint (counts.cancelled, ==, 2);
    g_assert_cmpuint (counts.received_bytes, ==, 100);
    ecfs_read_log_free (log);
}

static void test_nothing (void)
{
    ecfs_read_log_free (NULL);
    ecfs_read_log_count (NULL, &(EcfsReadCounts){.segments = 1});
    ecfs_read_log_erased (NULL, "amber", ECFS_ERASED_LATE, 1);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/readlog/segments-in-a-row-are-one-episode", test_episodes);
    g_test_add_func ("/readlog/each-episode-is-told-twice", test_told);
    g_test_add_func ("/readlog/the-newest-are-kept", test_bound);
    g_test_add_func ("/readlog/counters-add-up", test_counts);
    g_test_add_func ("/readlog/without-a-log-nothing-is-kept", test_nothing);
    return g_test_run ();
}
