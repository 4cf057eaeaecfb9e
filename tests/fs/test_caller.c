#include "fs/fs_priv.h"

#include <signal.h>
#include <sys/prctl.h>
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

/* Its name may hold anything. */
static void test_named_like_a_signal (void)
{
    pid_t child = fork ();
    if (child == 0) {
        (void) prctl (PR_SET_NAME, "\nShdPnd:\t100");
        for (;;)
            (void) pause ();
    }
    g_autofree char *path = g_strdup_printf ("/proc/%d/comm", (int) child);
    g_autofree char *name = NULL;
    while (g_file_get_contents (path, &name, NULL, NULL) && strstr (name, "ShdPnd") == NULL)
        g_clear_pointer (&name, g_free);
    g_assert_false (ecfs_fs_is_killed (child));
    g_assert_cmpint (kill (child, SIGKILL), ==, 0);
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
    g_test_add_func ("/caller/names-do-not-matter", test_named_like_a_signal);
    g_test_add_func ("/caller/nobody-else-is", test_others);
    return g_test_run ();
}
