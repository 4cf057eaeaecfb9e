/*
 * Access keys and the region: from the options, or as the AWS tools find them. They are read with each connection, so
 * that keys which somebody renews beside us are taken up. Secrets go into signatures and nowhere else.
 *
 *   key_file or profile is given   that file, or ~/.aws/credentials, and its section
 *   AWS_ACCESS_KEY_ID is set       the environment
 *   else                           the section AWS_PROFILE, or "default", of ~/.aws/credentials
 */
#include "endpoint/core/secret.h"
#include "endpoint/s3/s3_priv.h"

#include <string.h>

#define DEFAULT_REGION "us-east-1"

static void forget (char **secret)
{
    if (*secret != NULL)
        explicit_bzero (*secret, strlen (*secret));
    g_clear_pointer (secret, g_free);
}

void ecfs_s3_key_clear (EcfsS3Key *key)
{
    g_clear_pointer (&key->access, g_free);
    forget (&key->secret);
    forget (&key->token);
}

static const char *environment (const char *name)
{
    const char *value = g_getenv (name);
    return value == NULL || *value == '\0' ? NULL : value;
}

/* A file of the AWS tools, which may be elsewhere; g_free (). */
static char *user_file (const char *variable, const char *leaf)
{
    const char *path = environment (variable);
    return path != NULL ? g_strdup (path) : g_build_filename (g_get_home_dir (), ".aws", leaf, NULL);
}

static const char *profile_of (const EcfsS3Config *config)
{
    const char *profile = config->profile != NULL ? config->profile : environment ("AWS_PROFILE");
    return profile != NULL ? profile : "default";
}

static char *value_of (GKeyFile *file, const char *section, const char *key)
{
    char *value = g_key_file_get_string (file, section, key, NULL);
    return value == NULL ? NULL : g_strstrip (value);
}

static bool from_file (EcfsS3 *self, const char *path, const char *section, GError **error)
{
    const char *what = self->config->key_file != NULL ? "key_file" : "credentials";
    g_autoptr (GKeyFile) file = g_key_file_new ();
    g_autoptr (GError) wrong = NULL;
    if (!ecfs_secret_is_private (what, path, error))
        return false;
    if (!g_key_file_load_from_file (file, path, G_KEY_FILE_NONE, &wrong))
        return ecfs_fail (error, EACCES, "%s %s cannot be read: it has a line that is no KEY = VALUE", what, path);
    self->key.access = value_of (file, section, "aws_access_key_id");
    self->key.secret = value_of (file, section, "aws_secret_access_key");
    self->key.token = value_of (file, section, "aws_session_token");
    if (self->key.access == NULL || self->key.secret == NULL)
        return ecfs_fail (error, EACCES, "%s %s has no aws_access_key_id and aws_secret_access_key in its section [%s]",
                          what, path, section);
    return true;
}

static bool find_key (EcfsS3 *self, GError **error)
{
    const EcfsS3Config *config = self->config;
    const char *access = environment ("AWS_ACCESS_KEY_ID"), *secret = environment ("AWS_SECRET_ACCESS_KEY");
    if (config->key_file != NULL)
        return from_file (self, config->key_file, config->profile != NULL ? config->profile : "default", error);
    if (config->profile == NULL && access != NULL && secret != NULL) {
        self->key.access = g_strdup (access);
        self->key.secret = g_strdup (secret);
        self->key.token = g_strdup (environment ("AWS_SESSION_TOKEN"));
        return true;
    }
    g_autofree char *path = user_file ("AWS_SHARED_CREDENTIALS_FILE", "credentials");
    if (!g_file_test (path, G_FILE_TEST_EXISTS))
        return ecfs_fail (error, EACCES, "there is no access key: set key_file to a file as %s, or make that one",
                          path);
    return from_file (self, path, profile_of (config), error);
}

/* Of the profile, or NULL; what is wrong with that file is no reason to stop. */
static char *region_of_profile (const EcfsS3Config *config)
{
    g_autofree char *path = user_file ("AWS_CONFIG_FILE", "config");
    g_autoptr (GKeyFile) file = g_key_file_new ();
    if (config->key_file != NULL || !g_key_file_load_from_file (file, path, G_KEY_FILE_NONE, NULL))
        return NULL;
    const char *profile = profile_of (config);
    g_autofree char *section =
        strcmp (profile, "default") == 0 ? g_strdup (profile) : g_strconcat ("profile ", profile, NULL);
    return value_of (file, section, "region");
}

static void find_region (EcfsS3 *self)
{
    const char *set =
        environment ("AWS_REGION") != NULL ? environment ("AWS_REGION") : environment ("AWS_DEFAULT_REGION");
    if (self->config->region != NULL)
        self->region = g_strdup (self->config->region);
    else if (set != NULL && self->config->profile == NULL)
        self->region = g_strdup (set);
    else
        self->region = region_of_profile (self->config);
    if (self->region == NULL)
        self->region = g_strdup (DEFAULT_REGION);
}

bool ecfs_s3_login (EcfsS3 *self, GError **error)
{
    find_region (self);
    return find_key (self, error);
}
