/* How much a connection has outstanding, from what it moved. */
#include "endpoint/sftp/sftp_priv.h"

#define KIB    1024
#define MIB    (1024 * 1024)
#define RTT_US 200000

/* Half a second ago a measurement began, in which @moved bytes came and as much was outstanding as the limit allows. */
static EcfsSftpWindow measured (uint64_t moved)
{
    return (EcfsSftpWindow){.least = 256 * KIB,
                            .limit = 4 * MIB,
                            .outstanding = 4 * MIB,
                            .moved = moved,
                            .since_us = ecfs_now_us () - 500000};
}

static void test_follows_the_line (void)
{
    EcfsSftpWindow window = measured (2 * MIB);
    g_assert_false (ecfs_sftp_window_room (&window, 128 * KIB));
    ecfs_sftp_window_take (&window, 128 * KIB, 128 * KIB, RTT_US);
    g_assert_cmpuint (window.limit, <, 2 * MIB); /* 1.5 times what a round trip brings at 4 MiB/s */
    g_assert_cmpuint (window.limit, >, MIB);
    window = measured (10 * MIB);
    g_assert_false (ecfs_sftp_window_room (&window, 128 * KIB));
    ecfs_sftp_window_take (&window, 128 * KIB, 128 * KIB, RTT_US);
    g_assert_cmpuint (window.limit, >, 5 * MIB);
}

/* It was full for a moment, and then there was nothing more to ask for. */
static void test_pauses_do_not_narrow_it (void)
{
    EcfsSftpWindow window = measured (512 * KIB);
    g_assert_false (ecfs_sftp_window_room (&window, 128 * KIB));
    window.outstanding = MIB;
    ecfs_sftp_window_take (&window, 128 * KIB, 128 * KIB, RTT_US);
    g_assert_cmpuint (window.limit, ==, 4 * MIB);
    /* What came all the same shows that the line can do more. */
    window = measured (10 * MIB);
    g_assert_false (ecfs_sftp_window_room (&window, 128 * KIB));
    window.outstanding = MIB;
    ecfs_sftp_window_take (&window, 128 * KIB, 128 * KIB, RTT_US);
    g_assert_cmpuint (window.limit, >, 5 * MIB);
}

static void test_without_demand_it_stays (void)
{
    EcfsSftpWindow window = measured (512 * KIB);
    ecfs_sftp_window_take (&window, 128 * KIB, 128 * KIB, RTT_US);
    g_assert_cmpuint (window.limit, ==, 4 * MIB);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/sftp-window/follows-the-line", test_follows_the_line);
    g_test_add_func ("/sftp-window/pauses-do-not-narrow-it", test_pauses_do_not_narrow_it);
    g_test_add_func ("/sftp-window/without-demand-it-stays", test_without_demand_it_stays);
    return g_test_run ();
}
