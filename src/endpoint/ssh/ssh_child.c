/* Programs at the other end of a socket: a proxy command, ssh itself, or a helper. */
#include "endpoint/ssh/ssh_child.h"
#include "util/error.h"
#include "util/io.h"
#include "util/lock.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
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

/* What a program says */

typedef struct Errors {
    FILE *from;
    char *program;
} Errors;

static void *log_errors (void *data)
{
    Errors *self = data;
    char line[1024];
    while (fgets (line, sizeof line, self->from) != NULL)
        if (*g_strchomp (line) != '\0')
            g_warning ("%s: %s", self->program, line);
    (void) fclose (self->from); /* only read */
    g_free (self->program);
    g_free (self);
    return NULL;
}

/* Returns where @program is to write what it says, which the log gets; -1: nowhere. Our own stderr is none of its
 * business: whoever reads that waits until nobody has it, and we may have left it long before. */
static int begin_errors (const char *program)
{
    int pipes[2];
    pthread_t thread;
    if (pipe2 (pipes, O_CLOEXEC) != 0)
        return -1;
    Errors *self = g_new0 (Errors, 1);
    self->program = g_path_get_basename (program);
    self->from = fdopen (pipes[0], "r");
    if (self->from != NULL && pthread_create (&thread, NULL, log_errors, self) == 0) {
        (void) pthread_detach (thread); /* it ends with the program, or with us */
        return pipes[1];
    }
    if (self->from == NULL)
        (void) close (pipes[0]); /* a pipe loses nothing */
    else
        (void) fclose (self->from);
    (void) close (pipes[1]);
    g_free (self->program);
    g_free (self);
    return -1;
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
    ecfs_autofd logged = errors < 0 ? begin_errors (words[0]) : -1;
    if (errors < 0 && logged < 0)
        logged = open ("/dev/null", O_WRONLY | O_CLOEXEC);
    int result = fcntl (ours, F_SETFL, O_NONBLOCK) != 0
                     ? errno
                     : spawn (words, environment, its, errors < 0 ? logged : errors, memory, ret_pid);
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
