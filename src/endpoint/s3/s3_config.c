/* URL and options of S3 endpoints. */
#include "endpoint/s3/s3_priv.h"
#include "util/units.h"

#include <string.h>

#define PART_BYTES        (UINT64_C (8) << 20)
#define PART_MIN_BYTES    (UINT64_C (5) << 20) /* what servers demand; 10,000 parts are more than any stripe has */
#define PART_MAX_BYTES    (UINT64_C (256) << 20)
#define REGION_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
#define BUCKET_MAX        255
#define LOCK_MAX_US       (INT64_C (36500) * 86400 * G_USEC_PER_SEC) /* what Amazon takes */

void ecfs_s3_free_config (void *data)
{
    EcfsS3Config *config = data;
    ecfs_http_config_clear (&config->http);
    g_free (config->bucket);
    g_free (config->prefix);
    g_free (config->region);
    g_free (config->profile);
    g_free (config->key_file);
    g_free (config->storage_class);
    g_free (config->lock_mode);
    g_free (config->conditions);
    g_free (config->conditions_with_parts);
    g_free (config);
}

static bool is_bucket (const char *text)
{
    size_t size = strlen (text);
    return size >= 3 && size <= BUCKET_MAX && g_ascii_isalnum (*text) &&
           strspn (text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == size;
}

static bool parse_url (EcfsS3Config *config, const char *url, GError **error)
{
    const char *rest = strstr (url, "://") + strlen ("://");
    if (strpbrk (rest, "?#") != NULL)
        return ecfs_fail (error, EINVAL, "%s: a URL of an endpoint ends with its path (write %%3F for ?, %%23 for #)",
                          url);
    const char *path = rest + strcspn (rest, "/");
    config->bucket = g_strndup (rest, (size_t) (path - rest));
    if (!is_bucket (config->bucket))
        return ecfs_fail (error, EINVAL,
                          "what is behind s3:// is not the name of a bucket: write s3://BUCKET/PREFIX; the server goes "
                          "into the option endpoint_url, and keys into a file");
    g_autofree char *plain = ecfs_http_parse_path (url, path, error);
    if (plain == NULL)
        return false;
    config->prefix = *plain == '\0' ? g_strdup ("") : g_strconcat (plain + 1, "/", NULL);
    config->http.plain = g_strdup_printf ("s3://%s%s", config->bucket, plain);
    return true;
}

/* The part of @config that is of the server. */
static bool parse_server (EcfsS3Config *config, const char *url, GError **error)
{
    EcfsHttpConfig server = {.base = NULL};
    bool good = g_str_has_prefix (url, "https://") || g_str_has_prefix (url, "http://")
                    ? ecfs_http_parse_url (&server, url, error)
                    : ecfs_fail (error, EINVAL, "endpoint_url = %s is not http[s]://HOST[:PORT]", url);
    if (good && (*server.root != '\0' || server.user != NULL))
        good = ecfs_fail (error, EINVAL, "endpoint_url = %s is more than http[s]://HOST[:PORT]", url);
    if (good) {
        const char *own_port = server.tls ? ":443" : ":80";
        if (g_str_has_suffix (server.base, own_port))
            server.base[strlen (server.base) - strlen (own_port)] = '\0'; /* as it is in the header Host */
        config->http.base = g_steal_pointer (&server.base);
        config->http.tls = server.tls;
    }
    ecfs_http_config_clear (&server);
    return good;
}

static bool parse_style (EcfsS3Config *config, const EcfsEndpointSpec *spec, GError **error)
{
    bool by_host = false;
    if (!ecfs_http_parse_choice (spec, "style", "path", "host", &by_host, error))
        return false;
    if (ecfs_spec_option (spec, "style") != NULL)
        config->style = by_host ? ECFS_S3_STYLE_HOST : ECFS_S3_STYLE_PATH;
    return true;
}

static bool parse_part (EcfsS3Config *config, const EcfsEndpointSpec *spec, GError **error)
{
    const char *text = ecfs_spec_option (spec, "part_size");
    config->part_bytes = PART_BYTES;
    if (text == NULL)
        return true;
    if (!ecfs_parse_size (text, &config->part_bytes) || config->part_bytes < PART_MIN_BYTES ||
        config->part_bytes > PART_MAX_BYTES)
        return ecfs_fail (error, EINVAL, "part_size is from 5M to 256M, not \"%s\"", text);
    return true;
}

/* "governance 30d" */
static bool parse_lock (EcfsS3Config *config, const EcfsEndpointSpec *spec, GError **error)
{
    const char *text = ecfs_spec_option (spec, "object_lock");
    const char *retains = ecfs_spec_option (spec, ECFS_RETAIN_OPTION_KEY);
    config->retains = retains != NULL && strcmp (retains, "yes") != 0;
    if (text == NULL)
        return true;
    const char *time = strchr (text, ' ');
    g_autofree char *mode = g_strndup (text, time == NULL ? 0 : (size_t) (time - text));
    if ((strcmp (mode, "governance") != 0 && strcmp (mode, "compliance") != 0) ||
        !ecfs_parse_duration (time + 1, &config->lock_us) || config->lock_us <= 0 || config->lock_us > LOCK_MAX_US)
        return ecfs_fail (error, EINVAL,
                          "object_lock is as \"governance 30d\" or \"compliance 30d\", 36500d at most, not \"%s\"",
                          text);
    if (!config->retains)
        return ecfs_fail (error, EINVAL,
                          "object_lock needs delete: what is locked cannot be deleted; write delete = after %s",
                          time + 1);
    config->lock_mode = g_ascii_strup (mode, -1);
    return true;
}

static bool parse_spec (EcfsS3Config *config, const EcfsEndpointSpec *spec, GError **error)
{
    const char *server = ecfs_spec_option (spec, "endpoint_url");
    config->http.tls = true;
    if (!parse_url (config, spec->url, error) || !ecfs_http_parse_options (&config->http, spec, error) ||
        (server != NULL && !parse_server (config, server, error)) || !parse_style (config, spec, error) ||
        !parse_part (config, spec, error) || !parse_lock (config, spec, error))
        return false;
    if (!config->http.tls && config->http.ca_file != NULL)
        return ecfs_fail (error, EINVAL, "ca_file is for an endpoint_url that begins with https://");
    config->key_file = ecfs_spec_file (spec, "key_file");
    config->profile = g_strdup (ecfs_spec_option (spec, "profile"));
    config->region = g_strdup (ecfs_spec_option (spec, "region"));
    if (config->region != NULL &&
        (*config->region == '\0' || strspn (config->region, REGION_CHARACTERS) != strlen (config->region)))
        return ecfs_fail (error, EINVAL, "region is as eu-central-1, not \"%s\"", config->region);
    config->storage_class = g_strdup (ecfs_spec_option (spec, "storage_class"));
    return true;
}

void *ecfs_s3_new_config (const EcfsEndpointSpec *spec, GError **error)
{
    EcfsS3Config *config = g_new0 (EcfsS3Config, 1);
    config->conditions = g_new0 (atomic_int, 1);
    config->conditions_with_parts = g_new0 (atomic_int, 1);
    if (parse_spec (config, spec, error))
        return config;
    ecfs_s3_free_config (config);
    return NULL;
}
