/* URL and options of HTTP endpoints. */
#include "endpoint/web/http.h"

#include <string.h>

void ecfs_http_config_clear (EcfsHttpConfig *config)
{
    g_free (config->title);
    g_free (config->base);
    g_free (config->root);
    g_free (config->plain);
    g_free (config->user);
    g_free (config->password_file);
    g_free (config->token_file);
    g_free (config->ca_file);
    g_free (config->client_cert);
    g_free (config->client_key);
    ecfs_claims_free (config->committing);
}

/* The parts of a URL as it was written. GUri would resolve "." and ".." in the path unseen. */
typedef struct Url {
    char *scheme, *user, *password, *host, *path, *query, *fragment;
    int port; /* -1: none */
} Url;

static void url_clear (Url *self)
{
    g_free (self->scheme);
    g_free (self->user);
    g_free (self->password);
    g_free (self->host);
    g_free (self->path);
    g_free (self->query);
    g_free (self->fragment);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Url, url_clear)

char *ecfs_http_parse_path (const char *url, const char *path, GError **error)
{
    g_autofree char *plain = g_uri_unescape_string (path, NULL);
    if (plain == NULL || !g_utf8_validate (plain, -1, NULL)) {
        (void) !ecfs_fail (error, EINVAL, "the path has a %% that is not %%XX (write %%25), or is not UTF-8");
        return NULL;
    }
    for (size_t size = strlen (plain); size > 0 && plain[size - 1] == '/';)
        plain[--size] = '\0';
    g_auto (GStrv) parts = g_strsplit (plain, "/", -1);
    for (size_t i = 1; parts[0] != NULL && parts[i] != NULL; i++) {
        if (parts[i][0] == '\0')
            return (void) !ecfs_fail (error, EINVAL,
                                      "%s: the path has an empty part: write one / where there are several", url),
                   NULL;
        if (strcmp (parts[i], ".") == 0 || strcmp (parts[i], "..") == 0)
            return (void) !ecfs_fail (
                       error, EINVAL,
                       "%s: the path has a part \"%s\", which servers resolve as they like: write the path that "
                       "it leads to",
                       url, parts[i]),
                   NULL;
    }
    return g_steal_pointer (&plain);
}

static bool split_url (const char *url, Url *parts, GError **error)
{
    g_autoptr (GError) wrong = NULL;
    bool split = g_uri_split_with_user (url, G_URI_FLAGS_HAS_PASSWORD | G_URI_FLAGS_ENCODED_PATH, &parts->scheme,
                                        &parts->user, &parts->password, NULL, &parts->host, &parts->port, &parts->path,
                                        &parts->query, &parts->fragment, &wrong);
    if (!split || parts->host == NULL || *parts->host == '\0')
        return ecfs_fail (error, EINVAL, "%s is not the URL of a server: %s", url,
                          wrong != NULL ? wrong->message : "no host");
    if (parts->password != NULL)
        return ecfs_fail (error, EINVAL, "a URL may hold no password: use the option password_file");
    if (parts->query != NULL || parts->fragment != NULL)
        return ecfs_fail (error, EINVAL, "%s: a URL of an endpoint ends with its path (write %%3F for ?, %%23 for #)",
                          url);
    return true;
}

bool ecfs_http_parse_url (EcfsHttpConfig *config, const char *url, GError **error)
{
    g_auto (Url) parts = {.port = -1};
    if (!split_url (url, &parts, error))
        return false;
    config->user = g_strdup (parts.user);
    config->tls = g_str_has_suffix (parts.scheme, "s");
    bool literal = strchr (parts.host, ':') != NULL; /* an IPv6 address */
    g_autofree char *port = parts.port > 0 ? g_strdup_printf (":%d", parts.port) : g_strdup ("");
    config->base = g_strdup_printf ("%s://%s%s%s%s", config->tls ? "https" : "http", literal ? "[" : "", parts.host,
                                    literal ? "]" : "", port);
    config->plain = ecfs_http_parse_path (url, parts.path, error);
    if (config->plain == NULL)
        return false;
    config->root = g_uri_escape_string (config->plain, G_URI_RESERVED_CHARS_ALLOWED_IN_PATH, FALSE);
    return true;
}

bool ecfs_http_parse_choice (const EcfsEndpointSpec *spec, const char *key, const char *no, const char *yes,
                             bool *value, GError **error)
{
    const char *text = ecfs_spec_option (spec, key);
    if (text != NULL && strcmp (text, no) != 0 && strcmp (text, yes) != 0)
        return ecfs_fail (error, EINVAL, "%s is %s or %s, not \"%s\"", key, no, yes, text);
    if (text != NULL)
        *value = strcmp (text, yes) == 0;
    return true;
}

bool ecfs_http_parse_options (EcfsHttpConfig *config, const EcfsEndpointSpec *spec, GError **error)
{
    config->committing = ecfs_claims_new ();
    config->ca_file = ecfs_spec_file (spec, "ca_file");
    return ecfs_http_parse_choice (spec, "http2", "no", "yes", &config->http2, error);
}
