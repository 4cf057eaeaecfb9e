#include "server.h"

#include "util/lock.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_US (60 * G_USEC_PER_SEC)

void server_run (const char *const *argv)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *out = NULL;
    g_autofree char *complaint = NULL;
    int status = 0;
    (void) g_spawn_sync (NULL, (char **) argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, &out, &complaint, &status,
                         &error);
    g_assert_no_error (error);
    if (!g_spawn_check_wait_status (status, &error))
        g_error ("%s: %s%s", argv[0], error->message, complaint);
}

/* One that no connection takes for its own end, as it could take others while their server is away. */
static unsigned free_port (void)
{
    for (;;) {
        unsigned port = (unsigned) g_random_int_range (20000, 32000);
        int fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_in address = {
            .sin_family = AF_INET, .sin_addr.s_addr = htonl (INADDR_LOOPBACK), .sin_port = htons ((uint16_t) port)};
        bool is_free = bind (fd, (struct sockaddr *) &address, sizeof address) == 0;
        close (fd);
        if (is_free)
            return port;
    }
}

static bool answers (unsigned port)
{
    int fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl (INADDR_LOOPBACK), .sin_port = htons ((uint16_t) port)};
    bool connected = connect (fd, (struct sockaddr *) &address, sizeof address) == 0;
    close (fd);
    return connected;
}

static void to_log (gpointer log)
{
    /* A test that aborts leaves no server behind. */
    if (prctl (PR_SET_PDEATHSIG, SIGTERM) != 0 || freopen (log, "a", stderr) == NULL ||
        dup2 (STDERR_FILENO, STDOUT_FILENO) < 0)
        _exit (1);
}

GPid server_spawn (const char *const *argv, char **environment, const char *log, unsigned port)
{
    g_autoptr (GError) error = NULL;
    GPid pid = 0;
    (void) g_spawn_async (NULL, (char **) argv, environment, G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_SEARCH_PATH, to_log,
                          (gpointer) log, &pid, &error);
    g_assert_no_error (error);
    for (int64_t deadline_us = ecfs_now_us () + START_US; ecfs_now_us () < deadline_us; g_usleep (5000)) {
        if (answers (port))
            return pid;
        if (waitpid (pid, NULL, WNOHANG) == pid)
            return 0;
    }
    server_kill (pid);
    return 0;
}

bool server_start (bool (*start_on) (void *data, unsigned port), void *data, unsigned port)
{
    for (unsigned i = 0; i < 5; i++)
        if (start_on (data, port != 0 ? port : free_port ()))
            return true;
    return false;
}

void server_fail_start (const char *program, const char *log)
{
    g_autofree char *words = NULL;
    (void) g_file_get_contents (log, &words, NULL, NULL);
    g_error ("%s does not start: %s", program, words);
}

/* 0: there is no such process, or it has ended and nobody asked for it. */
static GPid parent_of (GPid pid)
{
    g_autofree char *path = g_strdup_printf ("/proc/%d/stat", (int) pid);
    g_autofree char *text = NULL;
    if (!g_file_get_contents (path, &text, NULL, NULL))
        return 0;
    const char *behind = strrchr (text, ')'); /* the name may hold anything */
    char state = 'Z';
    int parent = 0;
    return behind != NULL && sscanf (behind, ") %c %d", &state, &parent) == 2 && state != 'Z' ? parent : 0;
}

/* Sessions leave sshd's process group, so they are found by parent. What is killed is appended to @pids. */
static void kill_tree (GPid pid, GArray *pids)
{
    (void) kill (pid, SIGSTOP); /* no new children while we look */
    g_autoptr (GDir) proc = g_dir_open ("/proc", 0, NULL);
    const char *name;
    while (proc != NULL && (name = g_dir_read_name (proc)) != NULL)
        if (g_ascii_isdigit (name[0]) && parent_of (atoi (name)) == pid)
            kill_tree (atoi (name), pids);
    (void) kill (pid, SIGKILL);
    g_array_append_val (pids, pid);
}

void server_kill (GPid pid)
{
    g_autoptr (GArray) pids = g_array_new (FALSE, FALSE, sizeof (GPid));
    kill_tree (pid, pids);
    (void) waitpid (pid, NULL, 0);
    int64_t deadline_us = ecfs_now_us () + START_US;
    for (guint i = 0; i < pids->len; i++)
        while (parent_of (g_array_index (pids, GPid, i)) != 0 && ecfs_now_us () < deadline_us)
            g_usleep (1000); /* until then it may have the port */
}
