/* Programs at the other end of a socket: a proxy command, ssh itself, or a helper. */
#include "endpoint/ssh/ssh_child.h"
#include "util/error.h"
#include "util/io.h"
#include "util/lock.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_US (200 * 1000)

extern char **environ;

static int spawn (char *const *words, char *const *environment, int its_end, int its_errors, int its_memory,
                  pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigset_t usual;
    sigemptyset (&none);
    sigemptyset (&usual);
    sigaddset (&usual, SIGPIPE);
    posix_spawn_file_actions_init (&actions);
    posix_spawnattr_init (&attributes);
    posix_spawn_file_actions_adddup2 (&actions, its_end, STDIN_FILENO);
    posix_spawn_file_actions_adddup2 (&actions, its_end, STDOUT_FILENO);
    if (its_errors >= 0)
        posix_spawn_file_actions_adddup2 (&actions, its_errors, STDERR_FILENO);
    if (its_memory >= 0)
        posix_spawn_file_actions_adddup2 (&actions, its_memory, ECFS_SSH_CHILD_MEMORY_FD);
    posix_spawnattr_setsigmask (&attributes, &none);
    posix_spawnattr_setsigdefault (&attributes, &usual);
    /* A group of its own: an interrupt from the terminal is for us, who still need the line to end well. */
    posix_spawnattr_setpgroup (&attributes, 0);
    posix_spawnattr_setflags (&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    int result = posix_spawnp (ret_pid, words[0], &actions, &attributes, words, environment);
    posix_spawn_file_actions_destroy (&actions);
    posix_spawnattr_destroy (&attributes);
    return result;
}

int ecfs_ssh_child_spawn (char *const *words, int errors, pid_t *ret_pid, GError **error)
{
    return ecfs_ssh_child_spawn_with (words, environ, errors, -1, ret_pid, error);
}

int ecfs_ssh_child_spawn_with (char *const *words, char *const *environment, int errors, int memory, pid_t *ret_pid,
                               GError **error)
{
    int pair[2];
    if (socketpair (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return g_set_error (error, ECFS_ERROR, errno, "socketpair: %s", g_strerror (errno)), -1;
    ecfs_autofd ours = pair[0];
    ecfs_autofd its = pair[1];
    int result =
        fcntl (ours, F_SETFL, O_NONBLOCK) != 0 ? errno : spawn (words, environment, its, errors, memory, ret_pid);
    if (result != 0)
        return g_set_error (error, ECFS_ERROR, ENOTCONN, "cannot run %s: %s", words[0], g_strerror (result)), -1;
    return ecfs_steal_fd (&ours);
}

bool ecfs_ssh_child_spawn_on (char *const *words, char *const *environment, int its_end, int errors, pid_t *ret_pid,
                              GError **error)
{
    int result = spawn (words, environment, its_end, errors, -1, ret_pid);
    return result == 0 || ecfs_fail (error, ENOTCONN, "cannot run %s: %s", words[0], g_strerror (result));
}

/* Whether @pid has been reaped by @deadline_us. */
static bool reaped_by (pid_t pid, int64_t deadline_us)
{
    for (;;) {
        pid_t result = waitpid (pid, NULL, WNOHANG);
        if (result == pid || (result < 0 && errno != EINTR))
            return true;
        if (ecfs_now_us () >= deadline_us)
            return false;
        (void) poll (NULL, 0, 2);
    }
}

void ecfs_ssh_child_end (pid_t pid)
{
    if (pid <= 0)
        return;
    (void) kill (pid, SIGTERM); /* it may be gone already */
    if (reaped_by (pid, ecfs_now_us () + END_US))
        return;
    (void) kill (pid, SIGKILL);
    while (waitpid (pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}
