#include "sshd_fixture.h"

#include "util/lock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SSHD     "/usr/sbin/sshd"
#define START_US (60 * G_USEC_PER_SEC)

static void must_run (const char *const *argv)
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

void sshd_make_key (const char *path, const char *type)
{
    const char *argv[] = {"ssh-keygen", "-q", "-t", type, "-N", "", "-f", path, NULL};
    must_run (argv);
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

static void to_log (gpointer data)
{
    const Sshd *self = data;
    /* A test that aborts leaves no server behind. */
    if (prctl (PR_SET_PDEATHSIG, SIGTERM) != 0 || freopen (self->log, "a", stderr) == NULL)
        _exit (1);
}

static bool start (Sshd *self)
{
    g_autofree char *port = g_strdup_printf ("%u", self->port);
    const char *argv[] = {SSHD, "-D", "-e", "-f", self->config, "-p", port, NULL};
    g_autoptr (GError) error = NULL;
    (void) g_spawn_async (NULL, (char **) argv, NULL, G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_STDOUT_TO_DEV_NULL, to_log,
                          self, &self->pid, &error);
    g_assert_no_error (error);
    for (int64_t deadline_us = ecfs_now_us () + START_US; ecfs_now_us () < deadline_us; g_usleep (5000)) {
        if (answers (self->port))
            return true;
        if (waitpid (self->pid, NULL, WNOHANG) == self->pid)
            break; /* most likely somebody else took the port */
    }
    self->pid = 0;
    return false;
}

static void must_start (Sshd *self, bool same_port)
{
    for (unsigned i = 0; i < 5; i++) {
        if (!same_port)
            self->port = free_port ();
        if (start (self))
            return;
    }
    g_autofree char *words = NULL;
    (void) g_file_get_contents (self->log, &words, NULL, NULL);
    g_error ("sshd does not start: %s", words);
}

static void write_files (Sshd *self, const char *extra)
{
    g_autofree char *host_key = g_build_filename (self->dir, "host_key", NULL);
    g_autofree char *host_pub = g_strconcat (host_key, ".pub", NULL);
    g_autofree char *authorized = g_build_filename (self->dir, "authorized_keys", NULL);
    g_autofree char *user_pub = g_strconcat (self->key, ".pub", NULL);
    g_autofree char *public = NULL;
    sshd_make_key (host_key, "ed25519");
    sshd_make_key (self->key, "ed25519");
    g_assert_true (g_file_get_contents (user_pub, &public, NULL, NULL));
    g_assert_true (g_file_set_contents (authorized, public, -1, NULL));
    g_assert_true (g_file_get_contents (host_pub, &self->host_public, NULL, NULL));
    g_autofree char *config = g_strdup_printf ("ListenAddress 127.0.0.1\n"
                                               "HostKey %s\n"
                                               "AuthorizedKeysFile %s\n"
                                               "PidFile none\n"
                                               "UsePAM no\n"
                                               "StrictModes no\n"
                                               "PermitRootLogin yes\n"
                                               "PasswordAuthentication no\n"
                                               "KbdInteractiveAuthentication no\n"
                                               "MaxStartups 100\n"
                                               "SetEnv SHLVL=1\n" /* bash is quick: it reads no ~/.bashrc */
                                               "Subsystem sftp internal-sftp\n"
                                               "%s\n",
                                               host_key, authorized, extra != NULL ? extra : "");
    g_assert_true (g_file_set_contents (self->config, config, -1, NULL));
}

Sshd *sshd_new (const char *extra)
{
    if (access (SSHD, X_OK) != 0) {
        g_test_skip ("SKIPPED: there is no " SSHD ": install openssh-server to run this test");
        return NULL;
    }
    if (geteuid () == 0 && mkdir ("/run/sshd", 0755) != 0 && errno != EEXIST) {
        g_test_skip ("SKIPPED: sshd needs the directory /run/sshd, which cannot be made");
        return NULL;
    }
    Sshd *self = g_new0 (Sshd, 1);
    self->dir = g_dir_make_tmp ("ecfs-sshd-XXXXXX", NULL);
    g_assert_nonnull (self->dir);
    self->root = g_build_filename (self->dir, "root", NULL);
    self->key = g_build_filename (self->dir, "key", NULL);
    self->known_hosts = g_build_filename (self->dir, "known_hosts", NULL);
    self->config = g_build_filename (self->dir, "sshd_config", NULL);
    self->log = g_build_filename (self->dir, "log", NULL);
    g_assert_cmpint (mkdir (self->root, 0700), ==, 0);
    write_files (self, extra);
    must_start (self, false);
    g_autofree char *known = g_strdup_printf ("[127.0.0.1]:%u %s", self->port, self->host_public);
    g_assert_true (g_file_set_contents (self->known_hosts, known, -1, NULL));
    return self;
}

static GPid parent_of (const char *pid)
{
    g_autofree char *path = g_build_filename ("/proc", pid, "stat", NULL);
    g_autofree char *text = NULL;
    if (!g_file_get_contents (path, &text, NULL, NULL))
        return 0;
    const char *behind = strrchr (text, ')'); /* the name may hold anything */
    int parent = 0;
    return behind != NULL && sscanf (behind, ") %*c %d", &parent) == 1 ? parent : 0;
}

/* Sessions leave sshd's process group, so they are found by parent. */
static void kill_tree (GPid pid)
{
    (void) kill (pid, SIGSTOP); /* no new children while we look */
    g_autoptr (GDir) proc = g_dir_open ("/proc", 0, NULL);
    const char *name;
    while (proc != NULL && (name = g_dir_read_name (proc)) != NULL)
        if (g_ascii_isdigit (name[0]) && parent_of (name) == pid)
            kill_tree (atoi (name));
    (void) kill (pid, SIGKILL);
}

void sshd_kill (Sshd *self)
{
    if (self->pid == 0)
        return;
    kill_tree (self->pid);
    (void) waitpid (self->pid, NULL, 0);
    self->pid = 0;
}

void sshd_restart (Sshd *self)
{
    must_start (self, true);
}

void sshd_free (Sshd *self)
{
    if (self == NULL)
        return;
    sshd_kill (self);
    const char *argv[] = {"rm", "-rf", self->dir, NULL};
    must_run (argv);
    g_free (self->dir);
    g_free (self->root);
    g_free (self->key);
    g_free (self->known_hosts);
    g_free (self->host_public);
    g_free (self->config);
    g_free (self->log);
    g_free (self);
}

char *sshd_options (const Sshd *self)
{
    return g_strdup_printf ("identity_file=%s,known_hosts=%s,ssh_config=/dev/null", self->key, self->known_hosts);
}

char *sshd_url (const Sshd *self, const char *path)
{
    return g_strdup_printf ("sftp://127.0.0.1:%u%s", self->port, path);
}
