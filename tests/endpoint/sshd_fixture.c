#include "sshd_fixture.h"

#include "server.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#define SSHD "/usr/sbin/sshd"

void sshd_make_key (const char *path, const char *type)
{
    const char *argv[] = {"ssh-keygen", "-q", "-t", type, "-N", "", "-f", path, NULL};
    server_run (argv);
}

static bool start_on (void *data, unsigned port)
{
    Sshd *self = data;
    g_autofree char *text = g_strdup_printf ("%u", port);
    const char *argv[] = {SSHD, "-D", "-e", "-f", self->config, "-p", text, NULL};
    self->port = port;
    self->pid = server_spawn (argv, NULL, self->log, port);
    return self->pid != 0;
}

static void start (Sshd *self, bool same_port)
{
    if (!server_start (start_on, self, same_port ? self->port : 0))
        server_fail_start ("sshd", self->log);
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
    /* What OpenSSH prefers takes each side 20 ms of a processor; who wants it says so. */
    const char *exchange =
        extra != NULL && strstr (extra, "KexAlgorithms") != NULL ? "" : "KexAlgorithms curve25519-sha256\n";
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
                                               "%s%s\n",
                                               host_key, authorized, exchange, extra != NULL ? extra : "");
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
    start (self, false);
    g_autofree char *known = g_strdup_printf ("[127.0.0.1]:%u %s", self->port, self->host_public);
    g_assert_true (g_file_set_contents (self->known_hosts, known, -1, NULL));
    return self;
}

void sshd_kill (Sshd *self)
{
    if (self->pid == 0)
        return;
    server_kill (self->pid);
    self->pid = 0;
}

void sshd_restart (Sshd *self)
{
    start (self, true);
}

void sshd_free (Sshd *self)
{
    if (self == NULL)
        return;
    sshd_kill (self);
    const char *argv[] = {"rm", "-rf", self->dir, NULL};
    server_run (argv);
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
