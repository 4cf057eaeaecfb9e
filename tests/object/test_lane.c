/* What a reader knows of a lane, by itself: when it counts as stalled, and until when it is due. */
#include "object/lane.h"

static void test_stall_time (void)
{
    g_assert_cmpint (ecfs_stall_us (0, 0), ==, G_USEC_PER_SEC);
    g_assert_cmpint (ecfs_stall_us (1000, 1000), ==, 200000);
    g_assert_cmpint (ecfs_stall_us (300000, 1000), ==, 1200000);
    g_assert_cmpint (ecfs_stall_us (1000, 100000), ==, 800000);
}

static void test_due_time (void)
{
    g_assert_cmpint (ecfs_due_us (3000000, 1e6, 500, 100), ==, 3000400);
    g_assert_cmpint (ecfs_due_us (3000000, 0, 500, 700), ==, 700);
    int64_t never_us = ecfs_due_us (UINT64_MAX, 1e-9, 500, 100);
    g_assert_cmpint (never_us, >, INT64_C (1000000) * 86400);
    g_assert_cmpint (never_us, <, INT64_MAX / 1000); /* sums of some have room */
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/lane/the-stall-time-follows-round-trip-and-gaps", test_stall_time);
    g_test_add_func ("/lane/what-hardly-moves-is-due-some-day", test_due_time);
    return g_test_run ();
}
