#include "fs/fs_priv.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that has ended and was not waited for: its end is still told. */
static pid_t ended_child (bool killed)
{
    pid_t child = fork ();
    if (child == 0) {
        while (killed)
            (void) pause ();
        _exit (9); /* the number of SIGKILL, as an exit status */
    }
    g_assert_cmpint (child, >, 0);
    if (killed)
        g_assert_cmpint (kill (child, SIGKILL), ==, 0);
    siginfo_t info;
    g_assert_cmpint (waitid (P_PID, (id_t) child, &info, WEXITED | WNOWAIT), ==, 0);
    return child;
}

static void test_killed (void)
{
    pid_t child = ended_child (true);
    g_assert_true (ecfs_fs_is_killed (child));
    g_assert_cmpint (waitpid (child, NULL, 0), ==, child);
}

static void test_others (void)
{
    pid_t child = ended_child (false);
    g_assert_false (ecfs_fs_is_killed (child));
    g_assert_cmpint (waitpid (child, NULL, 0), ==, child);
    g_assert_false (ecfs_fs_is_killed (child));
    g_assert_false (ecfs_fs_is_killed (getpid ()));
    g_assert_false (ecfs_fs_is_killed (0));
    g_assert_false (ecfs_fs_is_killed (-1));
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/caller/who-dies-of-sigkill-is-killed", test_killed);
    g_test_add_func ("/caller/nobody-else-is", test_others);
    return g_test_run ();
}
