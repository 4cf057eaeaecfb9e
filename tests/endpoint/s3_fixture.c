#include "s3_fixture.h"

#include "server.h"

#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

#define PYTHON  "/usr/bin/python3"
#define ACCESS  "AKIALABLABLABLABLAB0"
#define SECRET  "secret/of+the/lab"
#define GATEWAY "versitygw"

static bool start_on (void *data, unsigned port)
{
    S3 *self = data;
    g_autofree char *text = g_strdup_printf ("%u", port);
    g_auto (GStrv) features = g_strsplit (self->features, " ", -1);
    g_autoptr (GPtrArray) argv = g_ptr_array_new ();
    const char *first[] = {PYTHON, "-W", "ignore", LAB_S3_SERVER, self->dir, text};
    for (size_t i = 0; i < G_N_ELEMENTS (first); i++)
        g_ptr_array_add (argv, (char *) first[i]);
    for (size_t i = 0; features[i] != NULL; i++)
        g_ptr_array_add (argv, features[i]);
    g_ptr_array_add (argv, NULL);
    self->port = port;
    self->pid = server_spawn ((const char *const *) argv->pdata, NULL, self->log, port);
    return self->pid != 0;
}

static bool start_gateway_on (void *data, unsigned port)
{
    S3 *self = data;
    g_autofree char *text = g_strdup_printf ("127.0.0.1:%u", port);
    g_auto (GStrv) environment = g_get_environ ();
    environment = g_environ_setenv (environment, "ROOT_ACCESS_KEY", ACCESS, true);
    environment = g_environ_setenv (environment, "ROOT_SECRET_KEY", SECRET, true);
    const char *argv[] = {GATEWAY, "--port", text, "--quiet", "posix", self->root, NULL};
    self->port = port;
    self->pid = server_spawn (argv, environment, self->log, port);
    return self->pid != 0;
}

static bool has_botocore (void)
{
    const char *argv[] = {PYTHON, "-c", "import botocore.auth", NULL};
    int status = 1;
    return g_spawn_sync (NULL, (char **) argv, NULL, G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL, NULL,
                         NULL, NULL, NULL, &status, NULL) &&
           status == 0;
}

static void make_certificate (S3 *self)
{
    g_autofree char *host = g_build_filename (self->dir, "host", NULL);
    self->ca = g_build_filename (self->dir, "ca.pem", NULL);
    const char *authority[] = {LAB_MAKE_CA, "new", self->dir, NULL};
    const char *certificate[] = {LAB_MAKE_CA, "host", self->dir, host, "localhost", "127.0.0.1", NULL};
    server_run (authority);
    server_run (certificate);
}

static S3 *new_store (const char *features)
{
    S3 *self = g_new0 (S3, 1);
    self->features = g_strdup (features);
    self->dir = g_dir_make_tmp ("ecfs-s3-XXXXXX", NULL);
    g_assert_nonnull (self->dir);
    self->root = g_build_filename (self->dir, "root", NULL);
    self->log = g_build_filename (self->dir, "log", NULL);
    return self;
}

S3 *s3_new_gateway (const char **why)
{
    g_autofree char *program = g_find_program_in_path (GATEWAY);
    if (program == NULL) {
        *why = "there is no " GATEWAY;
        return NULL;
    }
    S3 *self = new_store ("");
    g_autofree char *credentials = g_build_filename (self->dir, "credentials", NULL);
    const char *text = "[default]\naws_access_key_id = " ACCESS "\naws_secret_access_key = " SECRET "\n";
    g_assert_true (g_file_set_contents_full (credentials, text, -1, G_FILE_SET_CONTENTS_NONE, 0600, NULL));
    g_assert_cmpint (g_mkdir (self->root, 0700), ==, 0);
    if (!server_start (start_gateway_on, self, 0))
        server_fail_start (GATEWAY, self->log);
    return self;
}

S3 *s3_new (const char *features, const char **why)
{
    if (!has_botocore ()) {
        *why = "signatures cannot be verified: install python3-botocore";
        return NULL;
    }
    S3 *self = new_store (features);
    if (strstr (features, "tls") != NULL)
        make_certificate (self);
    if (!server_start (start_on, self, 0))
        server_fail_start ("s3-server", self->log);
    return self;
}

void s3_free (S3 *self)
{
    if (self == NULL)
        return;
    server_kill (self->pid);
    const char *argv[] = {"rm", "-rf", self->dir, NULL};
    server_run (argv);
    g_free (self->features);
    g_free (self->dir);
    g_free (self->root);
    g_free (self->log);
    g_free (self->ca);
    g_free (self);
}

char *s3_options (const S3 *self, unsigned port)
{
    g_autofree char *common = g_strdup_printf ("endpoint_url=http%s://127.0.0.1:%u,key_file=%s/credentials",
                                               self->ca != NULL ? "s" : "", port, self->dir);
    return self->ca == NULL ? g_steal_pointer (&common) : g_strconcat (common, ",ca_file=", self->ca, NULL);
}

void s3_set (const S3 *self, const char *feature, bool on)
{
    g_autofree char *leaf = g_strconcat ("feature-", feature, NULL);
    g_autofree char *path = g_build_filename (self->dir, leaf, NULL);
    g_assert_true (on ? g_file_set_contents (path, "", 0, NULL) : unlink (path) == 0);
}

unsigned s3_count (const S3 *self, const char *kind)
{
    g_autofree char *path = g_build_filename (self->dir, "requests", NULL);
    g_autofree char *text = NULL;
    unsigned n = 0;
    if (!g_file_get_contents (path, &text, NULL, NULL))
        return 0;
    g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
    for (size_t i = 0; lines[i] != NULL; i++) {
        g_auto (GStrv) words = g_strsplit (lines[i], " ", -1);
        n += g_strv_length (words) > 1 && (kind == NULL || g_str_equal (words[1], kind)) ? 1 : 0;
    }
    return n;
}
