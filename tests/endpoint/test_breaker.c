/* Who is down, on trial and up again, on a clock of the test's. */
#include "endpoint/core/core.h"

#define SECOND INT64_C (1000000)

static void assert_probed_after (const EcfsBreaker *breaker, int64_t now_us, int64_t seconds)
{
    g_assert_cmpint (breaker->state, ==, BREAKER_DOWN);
    g_assert_cmpint (breaker->next_probe_us - now_us, ==, seconds * SECOND);
}

static void test_back_off (void)
{
    static const int64_t expected_s[] = {1, 2, 4, 8, 16, 30, 30};
    EcfsBreaker breaker = {.state = BREAKER_UP};
    int64_t now_us = SECOND;
    for (size_t i = 0; i < G_N_ELEMENTS (expected_s); i++) {
        ecfs_breaker_fail (&breaker, false, now_us);
        assert_probed_after (&breaker, now_us, expected_s[i]);
        now_us = breaker.next_probe_us;
    }
    g_assert_cmpint (breaker.down_since_us, ==, SECOND);
    ecfs_breaker_pass (&breaker, now_us);
    g_assert_cmpint (breaker.state, ==, BREAKER_UP); /* it did not fail at work */
    ecfs_breaker_fail (&breaker, false, now_us += SECOND);
    assert_probed_after (&breaker, now_us, 1);
}

static void test_trial (void)
{
    EcfsBreaker breaker = {.state = BREAKER_UP};
    ecfs_breaker_fail (&breaker, true, SECOND);
    ecfs_breaker_fail (&breaker, false, 2 * SECOND); /* a probe */
    ecfs_breaker_pass (&breaker, 3 * SECOND);
    g_assert_cmpint (breaker.state, ==, BREAKER_TRIAL);
    ecfs_breaker_pass (&breaker, 3 * SECOND); /* another connection proves nothing */
    for (unsigned i = 0; i < 3; i++)
        g_assert_false (ecfs_breaker_prove (&breaker, ECFS_CREDIT_SERVED, 3 * SECOND));
    for (unsigned i = 0; i < 3; i++)
        g_assert_false (ecfs_breaker_prove (&breaker, ECFS_CREDIT_MOVED, 3 * SECOND));
    g_assert_cmpint (breaker.state, ==, BREAKER_TRIAL);
    g_assert_true (ecfs_breaker_prove (&breaker, ECFS_CREDIT_MOVED, 4 * SECOND));
    g_assert_cmpint (breaker.state, ==, BREAKER_UP);
    g_assert_false (ecfs_breaker_prove (&breaker, ECFS_CREDIT_SERVED, 5 * SECOND));
}

/* It answers every probe and fails at work: the pauses get longer, until it has worked for a while. */
static void test_flapping (void)
{
    static const int64_t expected_s[] = {1, 2, 4, 8, 16, 30, 30};
    EcfsBreaker breaker = {.state = BREAKER_UP};
    int64_t now_us = SECOND;
    for (size_t i = 0; i < G_N_ELEMENTS (expected_s); i++) {
        ecfs_breaker_fail (&breaker, true, now_us);
        assert_probed_after (&breaker, now_us, expected_s[i]);
        ecfs_breaker_pass (&breaker, now_us = breaker.next_probe_us);
        if (i % 2 == 1) /* on trial, or just after it */
            g_assert_true (ecfs_breaker_prove (&breaker, 100, now_us));
        now_us += 10 * SECOND;
    }
    g_assert_true (ecfs_breaker_prove (&breaker, 100, now_us));
    now_us += 61 * SECOND;
    ecfs_breaker_fail (&breaker, true, now_us);
    assert_probed_after (&breaker, now_us, 1);
}

static void test_losses (void)
{
    EcfsBreaker breaker = {.state = BREAKER_UP};
    for (unsigned i = 0; i < 10; i++) {
        g_assert_false (ecfs_breaker_lose (&breaker));
        g_assert_false (ecfs_breaker_lose (&breaker));
        g_assert_false (ecfs_breaker_prove (&breaker, ECFS_CREDIT_SERVED, SECOND));
    }
    g_assert_false (ecfs_breaker_lose (&breaker));
    g_assert_false (ecfs_breaker_lose (&breaker));
    g_assert_true (ecfs_breaker_lose (&breaker));
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/breaker/backs-off", test_back_off);
    g_test_add_func ("/breaker/tries-who-failed-at-work", test_trial);
    g_test_add_func ("/breaker/backs-off-longer-from-who-flaps", test_flapping);
    g_test_add_func ("/breaker/counts-connections-that-are-lost-in-a-row", test_losses);
    return g_test_run ();
}
