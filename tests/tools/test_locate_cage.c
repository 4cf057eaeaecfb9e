/* What is given up: each case is a process of its own that has tried it before. */
#include "locate_cage.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static char *file; /* that everybody may read and write */

static bool opens (const char *path, int flags)
{
    int fd = open (path, flags | O_CLOEXEC, 0600);
    return fd >= 0 && close (fd) == 0;
}

static bool has_socket (int domain, int type)
{
    int fd = socket (domain, type | SOCK_CLOEXEC, 0);
    return fd >= 0 && close (fd) == 0;
}

static bool reads (void)
{
    return opens (file, O_RDONLY);
}

static bool writes (void)
{
    return opens (file, O_WRONLY) || opens (file, O_RDONLY | O_TRUNC);
}

static bool creates (void)
{
    g_autofree char *other = g_strconcat (file, "2", NULL);
    return opens (other, O_WRONLY | O_CREAT) && unlink (other) == 0;
}

static bool talks_here (void)
{
    return has_socket (AF_UNIX, SOCK_STREAM) || has_socket (AF_UNIX, SOCK_DGRAM);
}

static bool has_streams (void)
{
    return has_socket (AF_INET, SOCK_STREAM) || has_socket (AF_INET6, SOCK_STREAM);
}

static bool forks (void)
{
    pid_t child = fork ();
    if (child == 0)
        _exit (0);
    return child > 0 && waitpid (child, NULL, 0) == child;
}

static bool signals (void)
{
    return kill (getppid (), 0) == 0;
}

/* What it still can */

static void *run_thread (void *user)
{
    return user;
}

static bool has_threads (void)
{
    pthread_t thread;
    void *returned = NULL;
    return pthread_create (&thread, NULL, run_thread, file) == 0 && pthread_join (thread, &returned) == 0 &&
           returned == file;
}

static bool finds_hosts (void)
{
    struct addrinfo *found = NULL;
    bool good = getaddrinfo ("localhost", "53", NULL, &found) == 0;
    freeaddrinfo (found);
    return good && opens ("/etc/hosts", O_RDONLY);
}

static bool sends (void)
{
    char byte = 'a';
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl (INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket (AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && bind (fd, (struct sockaddr *) &address, size) == 0 &&
           getsockname (fd, (struct sockaddr *) &address, &size) == 0 &&
           sendto (fd, &byte, 1, 0, (struct sockaddr *) &address, size) == 1 && recv (fd, &byte, 1, 0) == 1 &&
           close (fd) == 0;
}

enum { KEPT, GONE, NOT_BEFORE, NO_CAGE };

/* In a child: KEPT or GONE, by what @tries says before and in the cage. */
static int verdict (bool (*tries) (void), bool by_files)
{
    int status = 0;
    pid_t child = fork ();
    g_assert_cmpint (child, >=, 0);
    if (child == 0) {
        if (!tries ())
            _exit (NOT_BEFORE);
        EcfsCage cage = ecfs_cage_enter ();
        if (by_files ? !cage.files : !cage.calls)
            _exit (NO_CAGE);
        _exit (tries () ? KEPT : GONE);
    }
    g_assert_cmpint (waitpid (child, &status, 0), ==, child);
    g_assert_true (WIFEXITED (status));
    return WEXITSTATUS (status);
}

static void assert_all (bool (*const tries[]) (void), bool by_files, int expected)
{
    for (unsigned i = 0; tries[i] != NULL; i++) {
        int found = verdict (tries[i], by_files);
        if (found == NO_CAGE)
            g_test_skip ("this kernel cannot");
        else
            g_assert_cmpint (found, ==, expected);
    }
}

static void test_files_of_the_user_are_out_of_reach (void)
{
    static bool (*const tries[]) (void) = {reads, NULL};
    assert_all (tries, true, GONE);
}

static void test_nothing_is_written_or_started (void)
{
    static bool (*const tries[]) (void) = {writes, creates, talks_here, has_streams, forks, signals, NULL};
    assert_all (tries, false, GONE);
}

static void test_datagrams_threads_and_names_stay (void)
{
    static bool (*const tries[]) (void) = {has_threads, finds_hosts, sends, NULL};
    assert_all (tries, false, KEPT);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_autofree char *directory = g_dir_make_tmp ("ecfs-cage-XXXXXX", NULL);
    g_assert_nonnull (directory);
    file = g_build_filename (directory, "file", NULL);
    g_assert_true (g_file_set_contents (file, "secret", -1, NULL));
    g_assert_cmpint (chmod (directory, 0777), ==, 0);
    g_assert_cmpint (chmod (file, 0666), ==, 0);
    g_test_add_func ("/cage/files-of-the-user-are-out-of-reach", test_files_of_the_user_are_out_of_reach);
    g_test_add_func ("/cage/nothing-is-written-or-started", test_nothing_is_written_or_started);
    g_test_add_func ("/cage/datagrams-threads-and-names-stay", test_datagrams_threads_and_names_stay);
    int result = g_test_run ();
    g_assert_cmpint (unlink (file), ==, 0);
    g_assert_cmpint (rmdir (directory), ==, 0);
    g_free (file);
    return result;
}
