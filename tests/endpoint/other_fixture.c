#include "other_fixture.h"

#include "server.h"

#include <stdbool.h>
#include <sys/stat.h>

static bool start_on (void *data, unsigned port)
{
    Other *self = data;
    g_autofree char *text = g_strdup_printf ("%u", port);
    g_autofree char *missing = g_build_filename (self->dir, "missing", NULL);
    const char *argv[] = {OTHER_SERVER, self->kind, self->dir, text, NULL};
    self->port = port;
    self->pid = server_spawn (argv, NULL, self->log, port);
    return self->pid != 0 || g_file_test (missing, G_FILE_TEST_EXISTS);
}

Other *other_new (const char *kind, char **ret_why)
{
    Other *self = g_new0 (Other, 1);
    self->kind = g_strdup (kind);
    self->dir = g_dir_make_tmp ("ecfs-other-XXXXXX", NULL);
    g_assert_nonnull (self->dir);
    self->root = g_build_filename (self->dir, "root", NULL);
    self->log = g_build_filename (self->dir, "log", NULL);
    g_assert_cmpint (mkdir (self->root, 0700), ==, 0);
    if (!server_start (start_on, self, 0))
        server_fail_start (kind, self->log);
    if (self->pid != 0)
        return self;
    g_autofree char *missing = g_build_filename (self->dir, "missing", NULL);
    g_assert_true (g_file_get_contents (missing, ret_why, NULL, NULL));
    g_strchomp (*ret_why);
    other_free (self);
    return NULL;
}

void other_free (Other *self)
{
    if (self == NULL)
        return;
    if (self->pid != 0)
        server_kill (self->pid);
    const char *argv[] = {"rm", "-rf", self->dir, NULL};
    server_run (argv);
    g_free (self->kind);
    g_free (self->dir);
    g_free (self->root);
    g_free (self->log);
    g_free (self);
}

static bool is_sftp (const Other *self)
{
    return g_str_has_suffix (self->kind, "-sftp") || g_str_equal (self->kind, "asyncssh");
}

char *other_url (const Other *self)
{
    if (is_sftp (self))
        return g_strdup_printf ("sftp://lab@127.0.0.1:%u%s", self->port, self->root);
    if (g_str_equal (self->kind, "vsftpd"))
        return g_strdup_printf ("ftp://127.0.0.1:%u%s", self->port, self->root);
    if (g_str_equal (self->kind, "proftpd-ftp"))
        return g_strdup_printf ("ftp://lab@127.0.0.1:%u%s", self->port, self->root);
    return g_strdup_printf ("dav://127.0.0.1:%u", self->port);
}

char *other_options (const Other *self)
{
    if (is_sftp (self))
        return g_strdup_printf ("identity_file=%s/key,known_hosts=%s/known_hosts,ssh_config=/dev/null", self->dir,
                                self->dir);
    return g_str_equal (self->kind, "proftpd-ftp") ? g_strdup_printf ("password_file=%s/password,auth=clear", self->dir)
                                                   : NULL;
}
