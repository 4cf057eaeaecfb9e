#include "util/lock.h"
#include "util/ticker.h"

#include <glib.h>
#include <stdatomic.h>

static void count (void *user)
{
    atomic_fetch_add ((atomic_uint *) user, 1);
}

static void await (atomic_uint *n, unsigned at_least)
{
    for (int64_t end_us = ecfs_now_us () + 60 * G_USEC_PER_SEC; atomic_load (n) < at_least && ecfs_now_us () < end_us;)
        g_usleep (1000);
    g_assert_cmpuint (atomic_load (n), >=, at_least);
}

static void test_ticks (void)
{
    atomic_uint n;
    atomic_init (&n, 0);
    EcfsTicker *ticker = ecfs_ticker_start (1000, count, &n);
    await (&n, 3);
    ecfs_ticker_stop (ticker);
    unsigned ended = atomic_load (&n);
    g_usleep (5000);
    g_assert_cmpuint (atomic_load (&n), ==, ended);
}

static void test_nudged (void)
{
    atomic_uint n;
    atomic_init (&n, 0);
    EcfsTicker *ticker = ecfs_ticker_start (INT64_C (3600) * G_USEC_PER_SEC, count, &n);
    await (&n, 1);
    ecfs_ticker_nudge (ticker);
    await (&n, 2);
    int64_t begin_us = ecfs_now_us ();
    ecfs_ticker_stop (ticker);
    g_assert_cmpint (ecfs_now_us () - begin_us, <, 60 * G_USEC_PER_SEC);
}

static void test_none (void)
{
    ecfs_ticker_nudge (NULL);
    ecfs_ticker_stop (NULL);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/ticker/ticks-until-it-is-stopped", test_ticks);
    g_test_add_func ("/ticker/ticks-at-once-when-nudged", test_nudged);
    g_test_add_func ("/ticker/accepts-none", test_none);
    return g_test_run ();
}
