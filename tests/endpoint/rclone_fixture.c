#include "rclone_fixture.h"

#include "server.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void append (const char *path, const char *format, ...) G_GNUC_PRINTF (2, 3);

static void append (const char *path, const char *format, ...)
{
    FILE *file = fopen (path, "a");
    va_list args;
    g_assert_nonnull (file);
    va_start (args, format);
    g_assert_cmpint (vfprintf (file, format, args), >, 0);
    va_end (args);
    g_assert_cmpint (fclose (file), ==, 0);
}

void rclone_add_box (Rclone *self, const char *name, unsigned port)
{
    if (port != self->sshd->port)
        append (self->sshd->known_hosts, "[127.0.0.1]:%u %s", port, self->sshd->host_public);
    append (self->config,
            "[%s]\ntype = sftp\nhost = 127.0.0.1\nport = %u\nuser = %s\nkey_file = %s\nknown_hosts_file = %s\n"
            "shell_type = unix\n",
            name, port, g_get_user_name (), self->sshd->key, self->sshd->known_hosts);
}

/* The value of a line "KEY = VALUE" of the server's credentials; g_free (). */
static char *credential (const S3 *s3, const char *key)
{
    g_autofree char *path = g_build_filename (s3->dir, "credentials", NULL);
    g_autoptr (GKeyFile) file = g_key_file_new ();
    g_assert_true (g_key_file_load_from_file (file, path, G_KEY_FILE_NONE, NULL));
    return g_key_file_get_string (file, "default", key, NULL);
}

void rclone_add_bucket (Rclone *self, const char *name, unsigned port)
{
    g_autofree char *access = credential (self->s3, "aws_access_key_id");
    g_autofree char *secret = credential (self->s3, "aws_secret_access_key");
    append (self->config,
            "[%s]\ntype = s3\nprovider = Other\nendpoint = http://127.0.0.1:%u\naccess_key_id = %s\n"
            "secret_access_key = %s\nregion = us-east-1\n",
            name, port, access, secret);
}

Rclone *rclone_new (void)
{
    g_autofree char *program = g_find_program_in_path ("rclone");
    const char *why = NULL;
    if (program == NULL)
        return NULL;
    g_unsetenv ("AWS_CA_BUNDLE"); /* rclone 1.60 fails with it */
    Rclone *self = g_new0 (Rclone, 1);
    self->dir = g_dir_make_tmp ("ecfs-rclone-XXXXXX", NULL);
    g_assert_nonnull (self->dir);
    self->config = g_build_filename (self->dir, "rclone.conf", NULL);
    self->disk = g_build_filename (self->dir, "disk", NULL);
    g_assert_cmpint (mkdir (self->disk, 0700), ==, 0);
    append (self->config, "[disk]\ntype = local\n");
    self->sshd = sshd_new (NULL);
    self->s3 = s3_new ("", &why);
    if (self->sshd != NULL)
        rclone_add_box (self, "box", self->sshd->port);
    if (self->s3 != NULL)
        rclone_add_bucket (self, "bucket", self->s3->port);
    return self;
}

void rclone_free (Rclone *self)
{
    if (self == NULL)
        return;
    sshd_free (self->sshd);
    s3_free (self->s3);
    const char *argv[] = {"rm", "-rf", self->dir, NULL};
    server_run (argv);
    g_free (self->dir);
    g_free (self->config);
    g_free (self->disk);
    g_free (self);
}

char *rclone_options (const Rclone *self)
{
    return g_strconcat ("config=", self->config, NULL);
}
