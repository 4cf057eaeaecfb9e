/* What failed, and what was rebuilt again and again, waits longer each time; other objects do not wait. */
#include "upkeep/retries.h"

#define SECOND G_USEC_PER_SEC
#define OBJECT 7
#define OTHER  8

static gboolean is_over (void *object, void *retry, void *over)
{
    (void) retry;
    return *(const int64_t *) object == *(const int64_t *) over;
}

static void test_failures (void)
{
    const int64_t over = OBJECT;
    g_autoptr (EcfsRetries) retries = ecfs_retries_new ();
    int64_t now_us = 1000 * SECOND;
    for (unsigned i = 0, pause_s = 5; i < 10; i++, pause_s = MIN (2 * pause_s, 300)) {
        g_assert_true (ecfs_retries_is_due (retries, OBJECT, now_us));
        g_assert_cmpuint (ecfs_retries_failed (retries, OBJECT, now_us, now_us), ==, i + 1);
        g_assert_false (ecfs_retries_is_due (retries, OBJECT, now_us + pause_s * SECOND - 1));
        now_us += pause_s * SECOND;
    }
    g_assert_true (ecfs_retries_is_due (retries, OTHER, 0));
    (void) ecfs_retries_failed (retries, OBJECT, now_us - 100 * SECOND, now_us); /* each try takes long */
    g_assert_false (ecfs_retries_is_due (retries, OBJECT, now_us + 1999 * SECOND));
    (void) ecfs_retries_failed (retries, OTHER, now_us, now_us);
    g_assert_cmpuint (ecfs_retries_n_failing (retries), ==, 2);
    ecfs_retries_sweep (retries, is_over, (void *) &over, now_us);
    g_assert_true (ecfs_retries_is_due (retries, OBJECT, now_us) && !ecfs_retries_has_failed (retries, OBJECT));
    g_assert_true (ecfs_retries_has_failed (retries, OTHER));
    ecfs_retries_reset (retries);
    g_assert_true (ecfs_retries_is_due (retries, OTHER, now_us));
    g_assert_cmpuint (ecfs_retries_n_failing (retries), ==, 0);
}

static void test_rebuilt (void)
{
    const int64_t over = OBJECT;
    g_autoptr (EcfsRetries) retries = ecfs_retries_new ();
    int64_t now_us = 1000 * SECOND;
    for (unsigned i = 0, pause_s = 0; i < 10; i++, pause_s = i < 2 ? 0 : MIN (MAX (2 * pause_s, 5), 300)) {
        g_assert_cmpuint (ecfs_retries_rebuilt (retries, OBJECT, now_us), ==, i + 1);
        g_assert_true (pause_s == 0 || !ecfs_retries_is_due (retries, OBJECT, now_us + pause_s * SECOND - 1));
        ecfs_retries_remove (retries, OBJECT); /* it did not fail */
        ecfs_retries_reset (retries);
        ecfs_retries_sweep (retries, is_over, (void *) &over, now_us);
        now_us += pause_s * SECOND;
        g_assert_true (ecfs_retries_is_due (retries, OBJECT, now_us));
    }
    g_assert_cmpuint (ecfs_retries_n_failing (retries), ==, 0);
    now_us += 601 * SECOND; /* that is another story */
    g_assert_cmpuint (ecfs_retries_rebuilt (retries, OBJECT, now_us), ==, 1);
    g_assert_true (ecfs_retries_is_due (retries, OBJECT, now_us));
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/retries/what-failed", test_failures);
    g_test_add_func ("/retries/what-was-rebuilt", test_rebuilt);
    return g_test_run ();
}
