/* URL and options of rclone's remotes. */
#include "endpoint/rclone/rclone_priv.h"

#include <inttypes.h>
#include <string.h>

#define REMOTE_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+@ "
#define BROKEN_MOST       4096 /* names that are remembered */

static EcfsRcloneShared *shared_new (void)
{
    EcfsRcloneShared *self = g_new0 (EcfsRcloneShared, 1);
    ecfs_mutex_init (&self->lock);
    self->broken = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
    self->emptied = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
    self->n_directories = self->tells_space = -1;
    return self;
}

static void shared_free (EcfsRcloneShared *self)
{
    g_hash_table_unref (self->broken);
    g_hash_table_unref (self->emptied);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

void ecfs_rclone_free_config (void *data)
{
    EcfsRcloneConfig *config = data;
    ecfs_http_config_clear (&config->http);
    shared_free (config->shared);
    g_free (config->remote);
    g_free (config->place);
    g_free (config->program);
    g_free (config->file);
    g_free (config);
}

static bool is_remote (const char *name)
{
    return *name != '\0' && *name != '-' && *name != ' ' && name[strlen (name) - 1] != ' ' &&
           strspn (name, REMOTE_CHARACTERS) == strlen (name);
}

static bool parse_url (EcfsRcloneConfig *config, const char *url, GError **error)
{
    const char *rest = strstr (url, "://") + strlen ("://");
    if (strpbrk (rest, "?#") != NULL)
        return ecfs_fail (error, EINVAL, "%s: a URL of an endpoint ends with its path (write %%3F for ?, %%23 for #)",
                          url);
    const char *slash = rest + strcspn (rest, "/");
    g_autofree char *escaped = g_strndup (rest, (size_t) (slash - rest));
    config->remote = g_uri_unescape_string (escaped, NULL);
    if (config->remote == NULL || !is_remote (config->remote))
        return ecfs_fail (error, EINVAL,
                          "what is behind rclone:// is not the name of a remote: write rclone://REMOTE/PATH, with a "
                          "remote that 'rclone listremotes' shows");
    bool absolute = g_str_has_prefix (slash, "//");
    g_autofree char *plain = ecfs_http_parse_path (url, absolute ? slash + 1 : slash, error);
    if (plain == NULL)
        return false;
    const char *path = *plain == '/' && !absolute ? plain + 1 : plain;
    config->place = g_strconcat (config->remote, ":", path, NULL);
    return true;
}

static void set_http (EcfsRcloneConfig *config)
{
    config->http.title = g_strdup_printf ("rclone's remote %s", config->place);
    config->http.base = g_strdup ("http://127.0.0.1");
    config->http.root = g_strdup ("");
    config->http.plain = g_strdup (config->place);
    config->http.committing = ecfs_claims_new ();
}

/* What a file's name in an option means from wherever we run. */
static char *parse_file (const EcfsEndpointSpec *spec, const char *key)
{
    g_autofree char *file = ecfs_spec_file (spec, key);
    return file == NULL ? NULL : g_canonicalize_filename (file, NULL);
}

void *ecfs_rclone_new_config (const EcfsEndpointSpec *spec, GError **error)
{
    EcfsRcloneConfig *config = g_new0 (EcfsRcloneConfig, 1);
    const char *program = ecfs_spec_option (spec, "rclone");
    config->shared = shared_new ();
    config->program = program != NULL && strchr (program, '/') != NULL
                          ? parse_file (spec, "rclone")
                          : g_strdup (program != NULL ? program : "rclone");
    config->file = parse_file (spec, "config");
    if (parse_url (config, spec->url, error)) {
        set_http (config);
        return config;
    }
    ecfs_rclone_free_config (config);
    return NULL;
}

/* Uploads that broke off */

void ecfs_rclone_note_broken (const EcfsRcloneConfig *config, const char *name, int64_t size)
{
    EcfsRcloneShared *shared = config->shared;
    ecfs_mutex_lock (&shared->lock);
    if (g_hash_table_size (shared->broken) < BROKEN_MOST)
        g_hash_table_insert (shared->broken, g_strdup (name),
                             size < 0 ? g_strdup ("") : g_strdup_printf ("%" PRId64, size));
    ecfs_mutex_unlock (&shared->lock);
}

bool ecfs_rclone_is_part (const EcfsRcloneConfig *config, const char *name, uint64_t size)
{
    EcfsRcloneShared *shared = config->shared;
    g_autofree char *text = g_strdup_printf ("%" PRIu64, size);
    ecfs_mutex_lock (&shared->lock);
    const char *whole = g_hash_table_lookup (shared->broken, name);
    bool is_part = whole != NULL && strcmp (whole, text) != 0;
    ecfs_mutex_unlock (&shared->lock);
    return is_part;
}

bool ecfs_rclone_is_broken (const EcfsRcloneConfig *config, const char *name)
{
    EcfsRcloneShared *shared = config->shared;
    ecfs_mutex_lock (&shared->lock);
    bool is_broken = g_hash_table_contains (shared->broken, name);
    ecfs_mutex_unlock (&shared->lock);
    return is_broken;
}

void ecfs_rclone_forget_broken (const EcfsRcloneConfig *config, const char *name)
{
    EcfsRcloneShared *shared = config->shared;
    ecfs_mutex_lock (&shared->lock);
    (void) g_hash_table_remove (shared->broken, name);
    ecfs_mutex_unlock (&shared->lock);
}

char *ecfs_rclone_next_broken (const EcfsRcloneConfig *config)
{
    EcfsRcloneShared *shared = config->shared;
    GHashTableIter iter;
    gpointer name = NULL;
    ecfs_mutex_lock (&shared->lock);
    g_hash_table_iter_init (&iter, shared->broken);
    char *next = g_hash_table_iter_next (&iter, &name, NULL) ? g_strdup (name) : NULL;
    ecfs_mutex_unlock (&shared->lock);
    return next;
}

/* Space */

bool ecfs_rclone_note_space (const EcfsRcloneConfig *config, const char *text, size_t size)
{
    EcfsRcloneShared *shared = config->shared;
    uint64_t free_bytes = 0;
    bool told = ecfs_rclone_free_parse (text, size, &free_bytes);
    ecfs_mutex_lock (&shared->lock);
    shared->tells_space = told ? 1 : 0;
    shared->free_bytes = free_bytes;
    shared->written = 0;
    shared->told_us = ecfs_now_us ();
    ecfs_mutex_unlock (&shared->lock);
    return told;
}

void ecfs_rclone_note_written (const EcfsRcloneConfig *config, uint64_t bytes)
{
    EcfsRcloneShared *shared = config->shared;
    ecfs_mutex_lock (&shared->lock);
    shared->written += bytes;
    if (bytes == 0)
        shared->told_us = 0;
    ecfs_mutex_unlock (&shared->lock);
}
