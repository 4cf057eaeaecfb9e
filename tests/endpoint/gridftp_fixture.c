#include "gridftp_fixture.h"

#include "server.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SERVER  "globus-gridftp-server"
#define SUBJECT "/O=ecfs lab/CN=Ada Lovelace"
#define N_PORTS 24 /* of data connections that wait to be made */

static char *in_dir (const Gridftp *self, const char *name)
{
    return g_build_filename (self->dir, name, NULL);
}

static char **make_environment (const Gridftp *self)
{
    static const char *const places[][2] = {{"X509_CERT_DIR", "ca/certificates"},
                                            {"X509_USER_CERT", "host.pem"},
                                            {"X509_USER_KEY", "host.key"},
                                            {"GRIDMAP", "gridmap"}};
    char **environment = g_get_environ ();
    for (size_t i = 0; i < G_N_ELEMENTS (places); i++) {
        g_autofree char *path = in_dir (self, places[i][1]);
        environment = g_environ_setenv (environment, places[i][0], path, TRUE);
    }
    return environment;
}

static bool start_on (void *data, unsigned port)
{
    Gridftp *self = data;
    const char *user = g_get_user_name ();
    g_autofree char *text = g_strdup_printf ("%u", port);
    g_autofree char *said = in_dir (self, "server.log");
    g_autofree char *range = g_strdup_printf ("%u,%u", port + 1, port + N_PORTS);
    g_auto (GStrv) environment = g_environ_setenv (make_environment (self), "GLOBUS_TCP_PORT_RANGE", range, TRUE);
    /* The last three matter to root only, who may otherwise not be logged in. */
    const char *argv[] = {
        SERVER, "-p",  text, "-c", "none", "-control-interface", "127.0.0.1", "-data-interface", "127.0.0.1",
        "-d",   "ALL", "-l", said, "-aa",  "-anonymous-user",    user,        "-allow-root",     NULL};
    self->port = port;
    self->pid = server_spawn (argv, environment, self->log, port);
    return self->pid != 0;
}

static void start (Gridftp *self, bool same_port)
{
    if (!server_start (start_on, self, same_port ? self->port : 0))
        server_fail_start (SERVER, self->log);
}

void gridftp_make_ca (const Gridftp *self, const char *const *words)
{
    const char *argv[16] = {"sh", "-c", "cd \"$0\" && exec \"$@\"", self->dir, MAKE_CA};
    for (size_t n = 5; *words != NULL; words++) {
        g_assert_cmpuint (n, <, G_N_ELEMENTS (argv) - 1);
        argv[n++] = *words;
    }
    server_run (argv);
}

static void make_credentials (Gridftp *self)
{
    gridftp_make_ca (self, (const char *[]){"new", "ca", NULL});
    gridftp_make_ca (self, (const char *[]){"host", "ca", "host", "localhost", "127.0.0.1", NULL});
    gridftp_make_ca (self, (const char *[]){"user", "ca", "user", "Ada Lovelace", NULL});
    gridftp_make_ca (self, (const char *[]){"proxy", "proxy", "user", NULL});
    g_autofree char *gridmap = in_dir (self, "gridmap");
    g_autofree char *line = g_strdup_printf ("\"" SUBJECT "\" %s\n", g_get_user_name ());
    g_assert_true (g_file_set_contents (gridmap, line, -1, NULL));
}

Gridftp *gridftp_new (void)
{
    g_autofree char *program = g_find_program_in_path (SERVER);
    if (program == NULL)
        return NULL;
    Gridftp *self = g_new0 (Gridftp, 1);
    self->dir = g_dir_make_tmp ("ecfs-gridftp-XXXXXX", NULL);
    g_assert_nonnull (self->dir);
    self->root = in_dir (self, "root");
    self->log = in_dir (self, "log");
    g_assert_cmpint (mkdir (self->root, 0700), ==, 0);
    make_credentials (self);
    start (self, false);
    return self;
}

void gridftp_kill (Gridftp *self)
{
    if (self->pid == 0)
        return;
    server_kill (self->pid);
    self->pid = 0;
}

void gridftp_restart (Gridftp *self)
{
    start (self, true);
}

void gridftp_free (Gridftp *self)
{
    if (self == NULL)
        return;
    gridftp_kill (self);
    server_run ((const char *[]){"rm", "-rf", self->dir, NULL});
    g_free (self->dir);
    g_free (self->root);
    g_free (self->log);
    g_free (self);
}

char *gridftp_url (const Gridftp *self, const char *scheme, const char *host, const char *path)
{
    return g_strdup_printf ("%s://%s:%u%s", scheme, host, self->port, path);
}

LabProxy *gridftp_proxy (const Gridftp *self, unsigned number, char **ret_address)
{
    LabProxy *proxy = lab_proxy_new (self->port);
    unsigned pid = (unsigned) getpid (); /* of 22 bits: no two tests have one address */
    char *address = g_strdup_printf ("127.%u.%u.%u", 64 * number + (pid >> 16), pid >> 8 & 255, pid & 255);
    *ret_address = address;
    g_autofree char *command = g_strdup_printf ("also %s %u %u", address, self->port, self->port + N_PORTS);
    lab_proxy_tell (proxy, command);
    return proxy;
}

char *gridftp_over_ssh (const Sshd *sshd)
{
    g_autofree char *program = g_build_filename (sshd->dir, "Ada's ftp für uns", NULL);
    g_autofree char *login = sshd_options (sshd);
    /* The last two matter to root only, as above. */
    g_autofree char *script =
        g_strdup_printf ("#!/bin/sh\nexec " SERVER " -ssh -data-interface 127.0.0.1 -d ALL -l %s/gridftp.log "
                         "-anonymous-user %s -allow-root\n",
                         sshd->dir, g_get_user_name ());
    g_assert_true (g_file_set_contents_full (program, script, -1, G_FILE_SET_CONTENTS_NONE, 0700, NULL));
    return g_strconcat (login, ",server_program=", program, NULL);
}

char *gridftp_options (const Gridftp *self)
{
    return g_strdup_printf ("user_proxy=%s/proxy,certificates=%s/ca/certificates", self->dir, self->dir);
}
