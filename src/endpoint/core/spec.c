/* Descriptions of endpoints, and the names of what they store. */
#include "endpoint/core/driver.h"
#include "util/text.h"

#include <pthread.h>
#include <string.h>

#define ECFS_AHEAD      ECFS_INCOMING "/ahead-" /* the process, a dot, a random number */
#define STORED_NAME_MAX 200
#define NAME_MAX_BYTES  64
/* Leaves room for "incoming/" and the random part within STORED_NAME_MAX. */
#define INCOMING_MAX 160

EcfsEndpointSpec *ecfs_endpoint_spec_new (const char *name, const char *url)
{
    EcfsEndpointSpec *spec = g_new0 (EcfsEndpointSpec, 1);
    spec->name = g_strdup (name);
    spec->url = g_strdup (url);
    spec->options = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
    return spec;
}

EcfsEndpointSpec *ecfs_endpoint_spec_copy (const EcfsEndpointSpec *spec)
{
    EcfsEndpointSpec *copy = ecfs_endpoint_spec_new (spec->name, spec->url);
    if (spec->options == NULL)
        return copy;
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init (&iter, spec->options);
    while (g_hash_table_iter_next (&iter, &key, &value))
        g_hash_table_insert (copy->options, g_strdup (key), g_strdup (value));
    return copy;
}

void ecfs_endpoint_spec_free (EcfsEndpointSpec *spec)
{
    if (spec == NULL)
        return;
    g_free (spec->name);
    g_free (spec->url);
    g_clear_pointer (&spec->options, g_hash_table_unref);
    g_free (spec);
}

const char *ecfs_spec_option (const EcfsEndpointSpec *spec, const char *key)
{
    return spec->options == NULL ? NULL : g_hash_table_lookup (spec->options, key);
}

bool ecfs_spec_share (const EcfsEndpointSpec *spec, unsigned *ret_directory_mode, GError **error)
{
    static const struct {
        const char *name;
        unsigned directory_mode;
    } shares[] = {{"private", 0700}, {"group", 0750}, {"world", 0755}};
    const char *text = ecfs_spec_option (spec, "share");
    for (size_t i = 0; i < G_N_ELEMENTS (shares); i++)
        if (text == NULL || strcmp (text, shares[i].name) == 0) {
            *ret_directory_mode = shares[i].directory_mode;
            return true;
        }
    return ecfs_fail (error, EINVAL, "share is private, group or world, not \"%s\"", text);
}

char *ecfs_spec_file (const EcfsEndpointSpec *spec, const char *key)
{
    const char *value = ecfs_spec_option (spec, key);
    if (value != NULL && g_str_has_prefix (value, "~/"))
        return g_build_filename (g_get_home_dir (), value + 2, NULL);
    return g_strdup (value);
}

static bool name_char (char c)
{
    return g_ascii_isalnum (c) || c == '-' || c == '_' || c == '.';
}

bool ecfs_endpoint_name_valid (const char *name)
{
    size_t size = strlen (name);
    for (size_t i = 0; i < size; i++)
        if (!name_char (name[i]))
            return false;
    return size > 0 && size <= NAME_MAX_BYTES;
}

/* From the host of the URL, or the last part of the path where there is none; "" when neither gives a name. */
static char *make_name (const char *url)
{
    const char *host = strstr (url, "://") + 3;
    const char *host_end = host + strcspn (host, "/");
    const char *at = memchr (host, '@', (size_t) (host_end - host));
    if (at != NULL)
        host = at + 1;
    bool literal = *host == '[';
    size_t size = strcspn (host += literal, literal ? "]/" : ":/");
    g_autofree char *from = size > 0 ? g_strndup (host, size) : g_path_get_basename (host_end);
    g_strcanon (from, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.", '-');
    return g_strndup (from + strspn (from, "-."), NAME_MAX_BYTES);
}

static bool parse_option (EcfsEndpointSpec *spec, const char *text, GError **error)
{
    const char *equals = strchr (text, '=');
    if (equals == NULL || equals == text)
        return ecfs_fail (error, EINVAL, "endpoint %s: \"%s\" is not KEY=VALUE", spec->name, text);
    g_autofree char *key = g_strndup (text, (size_t) (equals - text));
    if (g_hash_table_contains (spec->options, key))
        return ecfs_fail (error, EINVAL, "endpoint %s: %s is given twice", spec->name, key);
    g_hash_table_insert (spec->options, g_steal_pointer (&key), g_strdup (equals + 1));
    return true;
}

EcfsEndpointSpec *ecfs_endpoint_spec_parse (const char *text, GError **error)
{
    g_auto (GStrv) parts = g_strsplit (text, ",", -1);
    const char *url = parts[0] == NULL ? "" : parts[0];
    const char *scheme_end = strstr (url, "://");
    const char *equals = strchr (url, '=');
    g_autofree char *name = NULL;
    if (scheme_end != NULL && equals != NULL && equals < scheme_end) {
        name = g_strndup (url, (size_t) (equals - url));
        url = equals + 1;
    }
    if (scheme_end == NULL || scheme_end == url) {
        g_set_error (error, ECFS_ERROR, EINVAL, "\"%s\" is not an endpoint: write [NAME=]URL[,KEY=VALUE...], as in %s",
                     text, "\"disk=file:///srv/ecfs\" or \"sftp://user@host/path\"");
        return NULL;
    }
    if (name == NULL)
        name = make_name (url);
    if (!ecfs_endpoint_name_valid (name)) {
        g_set_error (error, ECFS_ERROR, EINVAL,
                     "\"%s\" cannot name an endpoint: put NAME= before the URL, of letters, digits and \"-_.\", "
                     "at most %d",
                     name, NAME_MAX_BYTES);
        return NULL;
    }
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_new (name, url);
    for (size_t i = 1; parts[i] != NULL; i++)
        if (!parse_option (spec, parts[i], error))
            return NULL;
    return g_steal_pointer (&spec);
}

char *ecfs_endpoint_spec_text (const EcfsEndpointSpec *spec)
{
    GString *text = g_string_new (NULL);
    g_autoptr (GList) keys = spec->options == NULL ? NULL : g_hash_table_get_keys (spec->options);
    keys = g_list_sort (keys, (GCompareFunc) strcmp);
    g_string_append_printf (text, "%s=%s", spec->name, spec->url);
    for (const GList *key = keys; key != NULL; key = key->next) {
        const char *value = g_hash_table_lookup (spec->options, key->data);
        if (strchr (value, ',') == NULL) /* it could not be told from another option */
            g_string_append_printf (text, ",%s=%s", (const char *) key->data, value);
    }
    return g_string_free (text, FALSE);
}

bool ecfs_stored_name_valid (const char *name)
{
    size_t part = 0, size = 0;
    for (const char *at = name;; at++, size++) {
        if (*at == '/' || *at == '\0') {
            if (part == 0 || (part == 1 && at[-1] == '.') || (part == 2 && at[-1] == '.' && at[-2] == '.'))
                return false;
            if (*at == '\0')
                return size <= STORED_NAME_MAX;
            part = 0;
        } else {
            if (!g_ascii_islower (*at) && !g_ascii_isdigit (*at) && strchr ("-._", *at) == NULL)
                return false;
            part++;
        }
    }
}

char *ecfs_incoming_prefix (const char *name)
{
    g_autofree char *flat = g_strndup (name != NULL ? name : ECFS_MARKER_NAME, INCOMING_MAX);
    g_strdelimit (flat, "/", '-');
    return g_strconcat (ECFS_INCOMING "/", flat, ".", NULL);
}

char *ecfs_incoming_name (const char *name)
{
    g_autofree char *prefix = ecfs_incoming_prefix (name);
    uint64_t bits;
    ecfs_random (&bits, sizeof bits);
    return g_strdup_printf ("%s%0*" G_GINT64_MODIFIER "x", prefix, ECFS_INCOMING_RANDOM, bits);
}

static uint64_t process_number; /* set once */

static void number_process (void)
{
    ecfs_random (&process_number, sizeof process_number);
}

static char *ahead_prefix (void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void) pthread_once (&once, number_process); /* cannot fail */
    return g_strdup_printf (ECFS_AHEAD "%016" G_GINT64_MODIFIER "x.", process_number);
}

char *ecfs_ahead_name (void)
{
    g_autofree char *prefix = ahead_prefix ();
    uint64_t bits;
    ecfs_random (&bits, sizeof bits);
    return g_strdup_printf ("%s%0*" G_GINT64_MODIFIER "x", prefix, ECFS_INCOMING_RANDOM, bits);
}

bool ecfs_is_left_ahead (const char *file)
{
    g_autofree char *prefix = ahead_prefix ();
    return g_str_has_prefix (file, ECFS_AHEAD) && !g_str_has_prefix (file, prefix) &&
           strlen (file) == strlen (prefix) + ECFS_INCOMING_RANDOM;
}

/* Whether a %XX of @url is a control character. */
static bool has_encoded_controls (const char *url)
{
    for (const char *at = url; (at = strchr (at, '%')) != NULL; at++) {
        int high = g_ascii_xdigit_value (at[1]);
        int low = high < 0 ? -1 : g_ascii_xdigit_value (at[2]);
        if (low >= 0 && (high < 2 || (high == 7 && low == 15)))
            return true;
    }
    return false;
}

static bool check_text (const char *what, const char *text, bool is_url, GError **error)
{
    if (!ecfs_text_has_controls (text) && !(is_url && has_encoded_controls (text)))
        return true;
    g_autofree char *shown = ecfs_text_clean (text, ECFS_WORDS_MAX);
    return ecfs_fail (error, EINVAL, "%s \"%s\" has a control character, which is not allowed", what, shown);
}

bool ecfs_spec_check (const EcfsEndpointSpec *spec, GError **error)
{
    if (!check_text ("the URL", spec->url, true, error))
        return false;
    if (spec->options == NULL)
        return true;
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init (&iter, spec->options);
    while (g_hash_table_iter_next (&iter, &key, &value))
        if (!check_text ("the option", key, false, error) || !check_text (key, value, false, error))
            return false;
    return true;
}

char *ecfs_url_path (const char *url, GError **error)
{
    const char *authority = strstr (url, "://");
    const char *path = authority == NULL ? NULL : strchr (authority + 3, '/');
    if (path == NULL) {
        g_set_error (error, ECFS_ERROR, EINVAL, "%s has no path", url);
        return NULL;
    }
    char *decoded = g_uri_unescape_string (path, NULL);
    if (decoded == NULL)
        g_set_error (error, ECFS_ERROR, EINVAL, "%s: the path has a %% that is not %%XX (write %%25)", url);
    return decoded;
}
