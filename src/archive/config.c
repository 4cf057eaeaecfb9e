#include "archive/config.h"
#include "archive/policy.h"
#include "catalog/pg.h"
#include "codec/codec.h"
#include "locate/locate.h"
#include "peer/peer.h"
#include "util/units.h"

#include <inttypes.h>
#include <string.h>

#define MAX_PROBLEMS_TOLD 20
#define MAX_NAME          64 /* bytes of an endpoint's name or zone */
#define KIB               1024ll
#define SECOND            1000000ll

static void *field_of (const EcfsConfig *config, const EcfsConfigOption *option)
{
    return (char *) config + option->offset;
}

/* Values */

static bool set_code (char **field, const char *value, GError **error)
{
    g_autoptr (EcfsCodec) codec = ecfs_codec_new (value, error);
    if (codec == NULL)
        return false;
    g_free (*field);
    *field = g_strdup (ecfs_codec_code (codec));
    return true;
}

static bool set_choice (const EcfsConfigOption *option, bool *field, const char *value)
{
    for (unsigned i = 0; i < 2; i++)
        if (strcmp (value, option->choices[i]) == 0) {
            *field = i == 1;
            return true;
        }
    return false;
}

static const char *const doublings[] = {
    [ECFS_DOUBLE_NO] = "no",
    [ECFS_DOUBLE_YES] = "yes",
    [ECFS_DOUBLE_TEMPORARY] = "temporary",
};

static bool set_doubling (EcfsDoubling *field, const char *value)
{
    for (unsigned i = 0; i < G_N_ELEMENTS (doublings); i++)
        if (strcmp (value, doublings[i]) == 0) {
            *field = (EcfsDoubling) i;
            return true;
        }
    return false;
}

static bool set_quorum (unsigned *field, const char *value)
{
    uint64_t number = 0;
    if (strcmp (value, "auto") != 0 &&
        (!g_ascii_string_to_unsigned (value, 10, 1, ECFS_CODEC_MAX_N, &number, NULL) || number == 0))
        return false;
    *field = (unsigned) number;
    return true;
}

static bool set_percent (unsigned *field, const char *value)
{
    uint64_t number;
    g_autofree char *digits = g_strndup (value, strcspn (value, "%"));
    bool good = value[0] != '\0' && (strcmp (value, "0") == 0 || g_str_has_suffix (value, "%")) &&
                strlen (value) - strlen (digits) <= 1 && g_ascii_string_to_unsigned (digits, 10, 0, 100, &number, NULL);
    if (good)
        *field = (unsigned) number;
    return good;
}

static bool set_place (char **field, const char *value)
{
    if (!g_path_is_absolute (value) && strcmp (value, "none") != 0)
        return false;
    g_free (*field);
    *field = g_path_is_absolute (value) ? g_strdup (value) : NULL;
    return true;
}

/* Whatever is wrong with it, it is not quoted: it may have a password. */
static bool set_catalog (const EcfsConfigOption *option, char **field, const char *value, GError **error)
{
    bool is_location = ecfs_pg_is_location (value);
    if (!is_location && strcmp (value, "file") != 0)
        return ecfs_fail (error, EINVAL, "it is not %s", option->values);
    if (is_location && !ecfs_pg_check_location (value, error))
        return false;
    g_free (*field);
    *field = is_location ? g_strdup (value) : NULL;
    return true;
}

/* Up to option->max of HOST:PORT; and "dht" and "catalog", where they are the peers. */
static bool set_peers (const EcfsConfigOption *option, char **field, const char *value)
{
    bool is_none = strcmp (value, "none") == 0;
    unsigned ways = 0;
    g_autofree char *list =
        option->offset == offsetof (EcfsConfig, peers) ? ecfs_locate_list_split (value, &ways) : g_strdup (value);
    if (!is_none && (list != NULL || ways == 0) &&
        (list == NULL || !ecfs_peers_check (list) || (option->max == 1 && strchr (list, ',') != NULL)))
        return false;
    g_free (*field);
    *field = is_none ? NULL : g_strdup (value);
    return true;
}

/* A command is run with more arguments behind it, and not by a shell. */
static bool set_command (char **field, const char *value, GError **error)
{
    g_autoptr (GError) reason = NULL;
    g_auto (GStrv) words = NULL;
    if (!g_shell_parse_argv (value, NULL, &words, &reason))
        return ecfs_fail (error, EINVAL, "%s", reason->message);
    g_free (*field);
    *field = strcmp (value, "none") == 0 ? NULL : g_strdup (value);
    return true;
}

static bool set_cold (char **field, const char *value, GError **error)
{
    EcfsPolicy policy;
    if (!ecfs_policy_parse (value, &policy, error))
        return false;
    bool good = true;
    if (policy.cold != NULL) {
        g_autofree char *unused = NULL;
        good = set_code (&unused, policy.cold, error);
    }
    ecfs_policy_clear (&policy);
    if (!good)
        return false;
    g_free (*field);
    *field = g_strdup (value);
    return true;
}

static bool set_number (const EcfsConfigOption *option, void *field, const char *value)
{
    uint64_t bytes;
    int64_t number;
    if (option->kind == ECFS_OPTION_LIMIT && strcmp (value, "none") == 0) {
        memset (field, 0, sizeof number);
        return true;
    }
    if (option->kind == ECFS_OPTION_DURATION) {
        if (!ecfs_parse_duration (value, &number))
            return false;
    } else {
        if (!ecfs_parse_size (value, &bytes))
            return false;
        number = (int64_t) bytes;
    }
    if (number < option->min || number > option->max)
        return false;
    memcpy (field, &number, sizeof number);
    return true;
}

static bool set_option (EcfsConfig *config, const EcfsConfigOption *option, const char *value, GError **error)
{
    void *field = field_of (config, option);
    bool good = false;
    switch (option->kind) {
    case ECFS_OPTION_CODE:
        return set_code (field, value, error) || ecfs_prefix (error, "%s", option->key);
    case ECFS_OPTION_CHOICE:
        good = set_choice (option, field, value);
        break;
    case ECFS_OPTION_DOUBLING:
        good = set_doubling (field, value);
        break;
    case ECFS_OPTION_QUORUM:
        good = set_quorum (field, value);
        break;
    case ECFS_OPTION_SIZE:
    case ECFS_OPTION_LIMIT:
    case ECFS_OPTION_DURATION:
        good = set_number (option, field, value);
        break;
    case ECFS_OPTION_PERCENT:
        good = set_percent (field, value);
        break;
    case ECFS_OPTION_PLACE:
        good = set_place (field, value);
        break;
    case ECFS_OPTION_CATALOG:
        return set_catalog (option, field, value, error) || ecfs_prefix (error, "%s", option->key);
    case ECFS_OPTION_PEERS:
        good = set_peers (option, field, value);
        break;
    case ECFS_OPTION_COMMAND:
        return set_command (field, value, error) || ecfs_prefix (error, "%s", option->key);
    case ECFS_OPTION_POLICY:
        return ecfs_read_policy_parse (value, field, error) || ecfs_prefix (error, "%s", option->key);
    case ECFS_OPTION_COLD:
        return set_cold (field, value, error) || ecfs_prefix (error, "%s", option->key);
    }
    return good || ecfs_fail (error, EINVAL, "%s: \"%s\" is not %s", option->key, value, option->values);
}

/* A value must come back the same from a line "key = value   # comment". */
static bool check_value (const char *key, const char *value, GError **error)
{
    if (value[0] == '\0')
        return ecfs_fail (error, EINVAL, "%s has no value", key);
    if (!g_utf8_validate (value, -1, NULL))
        return ecfs_fail (error, EINVAL, "the value of %s is not UTF-8", key);
    for (const char *c = value; *c != '\0'; c++)
        if (g_ascii_iscntrl (*c) || (*c == '#' && (c == value || c[-1] == ' ')))
            return ecfs_fail (error, EINVAL, "the value of %s holds a control character or begins a comment", key);
    if (value[0] == ' ' || g_str_has_suffix (value, " "))
        return ecfs_fail (error, EINVAL, "the value of %s begins or ends with a space", key);
    return true;
}

static char *format_scaled (uint64_t value, const uint64_t *factors, const char *const *suffixes, size_t n_units)
{
    for (size_t i = 0; i < n_units; i++)
        if (value != 0 && value % factors[i] == 0)
            return g_strdup_printf ("%" PRIu64 "%s", value / factors[i], suffixes[i]);
    return g_strdup_printf ("%" PRIu64, value);
}

static char *format_size (uint64_t bytes)
{
    static const uint64_t factors[] = {1ull << 40, 1ull << 30, 1ull << 20, 1ull << 10};
    static const char *const suffixes[] = {"T", "G", "M", "K"};
    return format_scaled (bytes, factors, suffixes, G_N_ELEMENTS (factors));
}

/* Whole milliseconds: nothing finer can be written. */
static char *format_duration (int64_t us)
{
    static const uint64_t factors[] = {86400000, 3600000, 60000, 1000, 1};
    static const char *const suffixes[] = {"d", "h", "m", "s", "ms"};
    return format_scaled ((uint64_t) us / 1000, factors, suffixes, G_N_ELEMENTS (factors));
}

char *ecfs_config_format_option (const EcfsConfig *config, const EcfsConfigOption *option)
{
    const void *field = field_of (config, option);
    switch (option->kind) {
    case ECFS_OPTION_CODE:
        return g_strdup (*(char *const *) field);
    case ECFS_OPTION_CHOICE:
        return g_strdup (option->choices[*(const bool *) field ? 1 : 0]);
    case ECFS_OPTION_DOUBLING:
        return g_strdup (doublings[*(const EcfsDoubling *) field]);
    case ECFS_OPTION_QUORUM:
        return *(const unsigned *) field == 0 ? g_strdup ("auto") : g_strdup_printf ("%u", *(const unsigned *) field);
    case ECFS_OPTION_SIZE:
        return format_size (*(const uint64_t *) field);
    case ECFS_OPTION_LIMIT:
        return *(const uint64_t *) field == 0 ? g_strdup ("none") : format_size (*(const uint64_t *) field);
    case ECFS_OPTION_DURATION:
        return format_duration (*(const int64_t *) field);
    case ECFS_OPTION_PERCENT:
        return g_strdup_printf ("%u%%", *(const unsigned *) field);
    case ECFS_OPTION_COMMAND:
    case ECFS_OPTION_PLACE:
    case ECFS_OPTION_PEERS:
        return g_strdup (*(char *const *) field != NULL ? *(char *const *) field : "none");
    case ECFS_OPTION_CATALOG:
        return g_strdup (*(char *const *) field != NULL ? *(char *const *) field : "file");
    case ECFS_OPTION_POLICY:
        return ecfs_read_policy_format (field);
    case ECFS_OPTION_COLD:
        return g_strdup (*(char *const *) field);
    }
    return NULL;
}

/* The configuration */

static const EcfsConfigOption *find_option (const char *key)
{
    for (const EcfsConfigOption *option = ecfs_config_options; option->key != NULL; option++)
        if (strcmp (option->key, key) == 0)
            return option;
    return NULL;
}

bool ecfs_config_travels (const char *key)
{
    const EcfsConfigOption *option = find_option (key);
    return option != NULL && !option->is_local;
}

int64_t ecfs_config_history_since (const EcfsConfig *config)
{
    return config->history_us == 0 ? INT64_MAX : (g_get_real_time () - config->history_us) * 1000;
}

int64_t ecfs_config_history_least_us (const EcfsConfig *config)
{
    return MIN (config->history_min_us, config->history_us);
}

EcfsConfig *ecfs_config_new (void)
{
    EcfsConfig *config = g_new0 (EcfsConfig, 1);
    config->endpoints = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_config_endpoint_free);
    for (const EcfsConfigOption *option = ecfs_config_options; option->key != NULL; option++) {
        /* A code is checked when it is used: its library may be missing here. */
        if (option->kind == ECFS_OPTION_CODE)
            *(char **) field_of (config, option) = g_strdup (option->preset);
        else if (!set_option (config, option, option->preset, NULL))
            g_assert_not_reached ();
    }
    return config;
}

void ecfs_config_free (EcfsConfig *config)
{
    if (config == NULL)
        return;
    g_clear_pointer (&config->endpoints, g_ptr_array_unref);
    g_free (config->code);
    g_free (config->on_event);
    g_free (config->hook);
    g_free (config->cache);
    g_free (config->catalog);
    g_free (config->peers);
    g_free (config->peer_listen);
    g_free (config->dht_bootstrap);
    g_free (config->policy);
    g_free (config);
}

bool ecfs_config_set (EcfsConfig *self, const char *key, const char *value, GError **error)
{
    const EcfsConfigOption *option = find_option (key);
    if (option == NULL)
        return ecfs_fail (error, EINVAL, "unknown key \"%s\" in [archive]", key);
    return check_value (key, value, error) && set_option (self, option, value, error);
}

const char *ecfs_config_rs_provider (const EcfsConfig *self)
{
    return self->rs_liberasurecode ? "liberasurecode" : "isal";
}

bool ecfs_config_check (const EcfsConfig *self, GError **error)
{
    if (!ecfs_codec_check_provider (ecfs_config_rs_provider (self), error))
        return ecfs_prefix (error, "rs_provider");
    g_autoptr (EcfsCodec) codec = ecfs_codec_new_by (self->code, ecfs_config_rs_provider (self), error);
    if (codec == NULL)
        return ecfs_prefix (error, "code");
    unsigned k = ecfs_codec_k (codec), n = ecfs_codec_n (codec);
    if (self->write_quorum != 0 && (self->write_quorum < k || self->write_quorum > n))
        return ecfs_fail (error, EINVAL, "write_quorum: %s needs at least %u stripes to be read and has %u", self->code,
                          k, n);
    return true;
}

/* Endpoints */

void ecfs_config_endpoint_free (EcfsConfigEndpoint *endpoint)
{
    if (endpoint == NULL)
        return;
    ecfs_endpoint_spec_free (endpoint->spec);
    g_free (endpoint->zone);
    g_free (endpoint);
}

bool ecfs_config_name_is_valid (const char *name)
{
    size_t length = strlen (name);
    return length > 0 && length <= MAX_NAME && strspn (name, G_CSET_A_2_Z G_CSET_a_2_z G_CSET_DIGITS "-_.") == length &&
           name[0] != '.';
}

static bool check_identity (const EcfsConfigEndpoint *endpoint, GError **error)
{
    const EcfsEndpointSpec *spec = endpoint->spec;
    if (!ecfs_config_name_is_valid (spec->name))
        return ecfs_fail (error, EINVAL, "endpoint \"%s\": a name is 1 to %d letters, digits, \"-\", \"_\" or \".\"",
                          spec->name, MAX_NAME);
    if (!ecfs_config_name_is_valid (endpoint->zone))
        return ecfs_fail (error, EINVAL,
                          "endpoint %s: zone \"%s\": a zone is 1 to %d letters, digits, \"-\", \"_\" or \".\"",
                          spec->name, endpoint->zone, MAX_NAME);
    if (!check_value ("url", spec->url, error))
        return ecfs_prefix (error, "endpoint %s", spec->name);
    if (!ecfs_endpoint_check_scheme (spec->url, error))
        return ecfs_prefix (error, "endpoint %s", spec->name);
    return true;
}

static bool check_option (const EcfsEndpointSpec *spec, const char *key, const char *value, GError **error)
{
    const char *const *keys = ecfs_endpoint_option_keys (spec->url);
    if (!g_strv_contains (keys, key)) {
        g_autofree char *known = g_strjoinv (", ", (char **) keys);
        return ecfs_fail (error, EINVAL, "endpoint %s: unknown key \"%s\"; this URL takes zone, %s", spec->name, key,
                          known);
    }
    return check_value (key, value, error) || ecfs_prefix (error, "endpoint %s", spec->name);
}

/* What the protocol itself has to say about URL and values; makes no connection. */
static bool check_protocol (const EcfsEndpointSpec *spec, GError **error)
{
    EcfsMarker any = {0};
    g_autoptr (EcfsEndpoint) endpoint = ecfs_endpoint_new (spec, &any, error);
    return endpoint != NULL;
}

static void take_zone (EcfsConfigEndpoint *endpoint)
{
    GHashTable *options = endpoint->spec->options;
    const char *zone = options == NULL ? NULL : g_hash_table_lookup (options, "zone");
    endpoint->zone = g_strdup (zone == NULL ? endpoint->spec->name : zone);
    endpoint->has_zone = zone != NULL;
    if (zone != NULL)
        g_hash_table_remove (options, "zone");
}

EcfsConfigEndpoint *ecfs_config_endpoint_new (EcfsEndpointSpec *spec, GError **error)
{
    g_autoptr (EcfsConfigEndpoint) endpoint = g_new0 (EcfsConfigEndpoint, 1);
    endpoint->spec = spec;
    take_zone (endpoint);
    if (!check_identity (endpoint, error))
        return NULL;
    if (spec->options != NULL) {
        GHashTableIter iter;
        void *key, *value;
        g_hash_table_iter_init (&iter, spec->options);
        while (g_hash_table_iter_next (&iter, &key, &value))
            if (!check_option (spec, key, value, error))
                return NULL;
    }
    if (!check_protocol (spec, error))
        return NULL;
    return g_steal_pointer (&endpoint);
}

static bool same_url (const char *a, const char *b)
{
    size_t a_length = strlen (a), b_length = strlen (b);
    while (a_length > 0 && a[a_length - 1] == '/')
        a_length--;
    while (b_length > 0 && b[b_length - 1] == '/')
        b_length--;
    return a_length == b_length && memcmp (a, b, a_length) == 0;
}

/* Buckets of different servers may have one name. Other options say how a place is reached, not which it is. */
static bool same_place (const EcfsEndpointSpec *a, const EcfsEndpointSpec *b)
{
    static const char key[] = "endpoint_url";
    const char *server = a->options == NULL ? NULL : g_hash_table_lookup (a->options, key);
    const char *other = b->options == NULL ? NULL : g_hash_table_lookup (b->options, key);
    return same_url (a->url, b->url) && (server == NULL || other == NULL ? server == other : same_url (server, other));
}

const EcfsConfigEndpoint *ecfs_config_endpoint (const EcfsConfig *self, const char *name)
{
    for (guint i = 0; i < self->endpoints->len; i++) {
        const EcfsConfigEndpoint *endpoint = g_ptr_array_index (self->endpoints, i);
        if (strcmp (endpoint->spec->name, name) == 0)
            return endpoint;
    }
    return NULL;
}

bool ecfs_config_add_endpoint (EcfsConfig *self, EcfsConfigEndpoint *endpoint, GError **error)
{
    g_autoptr (EcfsConfigEndpoint) taken = endpoint;
    for (unsigned i = 0; i < self->endpoints->len; i++) {
        const EcfsConfigEndpoint *other = g_ptr_array_index (self->endpoints, i);
        if (strcmp (other->spec->name, taken->spec->name) == 0)
            return ecfs_fail (error, EINVAL, "endpoint %s: there are two with this name", taken->spec->name);
        if (same_place (other->spec, taken->spec))
            return ecfs_fail (error, EINVAL, "endpoint %s is the same place as endpoint %s: both are %s",
                              taken->spec->name, other->spec->name, taken->spec->url);
    }
    g_ptr_array_add (self->endpoints, g_steal_pointer (&taken));
    return true;
}

/* Parsing */

typedef struct Line {
    unsigned number;
    const char *key;
    const char *value;
} Line;

typedef struct Parser {
    const char *name;
    EcfsConfig *config;
    GString *problems;
    unsigned n_problems;
    GHashTable *sections; /* char * → line number */
    GHashTable *keys;     /* of the section: char * → line number */
    enum { SECTION_NONE, SECTION_ARCHIVE, SECTION_ENDPOINT, SECTION_UNKNOWN } section;
    unsigned section_line;
    unsigned url_line;
    unsigned code_line;
    unsigned quorum_line;
    EcfsEndpointSpec *spec; /* of the endpoint section being read; its url is "" until it comes */
} Parser;

static void problem (Parser *parser, unsigned line, const char *format, ...) G_GNUC_PRINTF (3, 4);

static void problem (Parser *parser, unsigned line, const char *format, ...)
{
    if (++parser->n_problems > MAX_PROBLEMS_TOLD)
        return;
    va_list args;
    va_start (args, format);
    g_string_append_printf (parser->problems, "%s%s:%u: ", parser->n_problems > 1 ? "\n" : "", parser->name, line);
    g_string_append_vprintf (parser->problems, format, args);
    va_end (args);
}

static void problem_take (Parser *parser, unsigned line, GError *error)
{
    problem (parser, line, "%s", error->message);
    g_error_free (error);
}

static unsigned line_of (GHashTable *table, const char *key)
{
    return GPOINTER_TO_UINT (g_hash_table_lookup (table, key));
}

/* Notes where @key stands; false, with a problem told, when it stood somewhere before. */
static bool first_time (Parser *parser, GHashTable *table, const char *what, const char *key, unsigned line)
{
    unsigned before = line_of (table, key);
    if (before != 0) {
        problem (parser, line, "%s \"%s\" is given twice, first in line %u", what, key, before);
        return false;
    }
    g_hash_table_insert (table, g_strdup (key), GUINT_TO_POINTER (line));
    return true;
}

static unsigned check_options (Parser *parser, const EcfsEndpointSpec *spec)
{
    unsigned n_wrong = 0;
    g_autoptr (GList) keys = g_hash_table_get_keys (spec->options);
    keys = g_list_sort (keys, (GCompareFunc) strcmp);
    for (GList *at = keys; at != NULL; at = at->next) {
        GError *error = NULL;
        if (check_option (spec, at->data, g_hash_table_lookup (spec->options, at->data), &error))
            continue;
        problem_take (parser, line_of (parser->keys, at->data), error);
        n_wrong++;
    }
    return n_wrong;
}

static void end_endpoint (Parser *parser)
{
    g_autoptr (EcfsConfigEndpoint) endpoint = g_new0 (EcfsConfigEndpoint, 1);
    endpoint->spec = g_steal_pointer (&parser->spec);
    if (endpoint->spec->url[0] == '\0') {
        if (line_of (parser->keys, "url") == 0)
            problem (parser, parser->section_line, "endpoint %s has no url", endpoint->spec->name);
        return;
    }
    take_zone (endpoint);
    GError *error = NULL;
    if (!check_identity (endpoint, &error)) {
        problem_take (parser, parser->section_line, error);
        return;
    }
    if (check_options (parser, endpoint->spec) > 0)
        return;
    if (!check_protocol (endpoint->spec, &error) ||
        !ecfs_config_add_endpoint (parser->config, g_steal_pointer (&endpoint), &error))
        problem_take (parser, parser->section_line, error);
}

static void end_section (Parser *parser)
{
    if (parser->section == SECTION_ENDPOINT)
        end_endpoint (parser);
    parser->section = SECTION_NONE;
    g_hash_table_remove_all (parser->keys);
}

/* @title: what stands between the brackets */
static void begin_section (Parser *parser, unsigned line, char *title)
{
    end_section (parser);
    parser->section = SECTION_UNKNOWN;
    parser->section_line = line;
    g_strstrip (title);
    if (!first_time (parser, parser->sections, "section", title, line))
        return;
    if (strcmp (title, "archive") == 0) {
        parser->section = SECTION_ARCHIVE;
    } else if (g_str_has_prefix (title, "endpoint ")) {
        const char *name = g_strchug (title + strlen ("endpoint "));
        parser->section = SECTION_ENDPOINT;
        parser->spec = ecfs_endpoint_spec_new (name, "");
        if (parser->spec->options == NULL)
            parser->spec->options = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
    } else {
        problem (parser, line, "unknown section [%s]; there are [archive] and [endpoint NAME]", title);
    }
}

static void archive_key (Parser *parser, const Line *line)
{
    GError *error = NULL;
    if (!ecfs_config_set (parser->config, line->key, line->value, &error))
        problem_take (parser, line->number, error);
    if (strcmp (line->key, "code") == 0)
        parser->code_line = line->number;
    if (strcmp (line->key, "write_quorum") == 0)
        parser->quorum_line = line->number;
}

static void endpoint_key (Parser *parser, const Line *line)
{
    GError *error = NULL;
    if (!check_value (line->key, line->value, &error)) {
        problem_take (parser, line->number, error);
    } else if (strcmp (line->key, "url") == 0) {
        g_free (parser->spec->url);
        parser->spec->url = g_strdup (line->value);
    } else {
        g_hash_table_insert (parser->spec->options, g_strdup (line->key), g_strdup (line->value));
    }
}

static void key_line (Parser *parser, unsigned number, char *text)
{
    char *equals = strchr (text, '=');
    if (equals == NULL || equals == text) {
        problem (parser, number, "\"%s\" is neither [section] nor key = value", text);
        return;
    }
    *equals = '\0';
    Line line = {.number = number, .key = g_strchomp (text), .value = g_strchug (equals + 1)};
    if (parser->section == SECTION_NONE)
        problem (parser, number, "key \"%s\" stands before any [section]", line.key);
    if (parser->section == SECTION_NONE || parser->section == SECTION_UNKNOWN ||
        !first_time (parser, parser->keys, "key", line.key, number))
        return;
    if (parser->section == SECTION_ARCHIVE)
        archive_key (parser, &line);
    else
        endpoint_key (parser, &line);
}

/* Cuts a comment: "#" at the start or behind white space. */
static void cut_comment (char *text)
{
    for (char *c = text; *c != '\0'; c++)
        if (*c == '#' && (c == text || g_ascii_isspace (c[-1]))) {
            *c = '\0';
            return;
        }
}

static void parse_line (Parser *parser, unsigned number, char *text)
{
    if (!g_utf8_validate (text, -1, NULL)) {
        problem (parser, number, "is not UTF-8 text");
        return;
    }
    cut_comment (text);
    g_strstrip (text);
    size_t length = strlen (text);
    if (length == 0 || text[0] == ';')
        return;
    if (text[0] != '[') {
        key_line (parser, number, text);
    } else if (text[length - 1] != ']') {
        problem (parser, number, "\"%s\" lacks its \"]\"", text);
    } else {
        text[length - 1] = '\0';
        begin_section (parser, number, text + 1);
    }
}

static void parse_text (Parser *parser, const char *text)
{
    g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
    for (unsigned i = 0; lines[i] != NULL; i++)
        parse_line (parser, i + 1, lines[i]);
    end_section (parser);
    GError *error = NULL;
    if (parser->n_problems == 0 && !ecfs_config_check (parser->config, &error))
        problem_take (parser, parser->quorum_line != 0 ? parser->quorum_line : MAX (parser->code_line, 1), error);
}

EcfsConfig *ecfs_config_parse (const char *text, const char *name, GError **error)
{
    g_autoptr (EcfsConfig) config = ecfs_config_new ();
    g_autoptr (GString) problems = g_string_new (NULL);
    g_autoptr (GHashTable) sections = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
    g_autoptr (GHashTable) keys = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
    Parser parser = {.name = name, .config = config, .problems = problems, .sections = sections, .keys = keys};
    parse_text (&parser, text);
    if (parser.n_problems > MAX_PROBLEMS_TOLD)
        g_string_append_printf (problems, "\nand %u more", parser.n_problems - MAX_PROBLEMS_TOLD);
    bool good = parser.n_problems == 0 || ecfs_fail (error, EINVAL, "%s", problems->str);
    return good ? g_steal_pointer (&config) : NULL;
}

/* Formatting */

static void append_endpoint (GString *text, const EcfsConfigEndpoint *endpoint)
{
    const EcfsEndpointSpec *spec = endpoint->spec;
    g_string_append_printf (text, "\n[endpoint %s]\nurl = %s\n", spec->name, spec->url);
    if (strcmp (endpoint->zone, spec->name) != 0)
        g_string_append_printf (text, "zone = %s\n", endpoint->zone);
    if (spec->options == NULL)
        return;
    g_autoptr (GList) keys = g_list_sort (g_hash_table_get_keys (spec->options), (GCompareFunc) strcmp);
    for (GList *at = keys; at != NULL; at = at->next)
        g_string_append_printf (text, "%s = %s\n", (const char *) at->data,
                                (const char *) g_hash_table_lookup (spec->options, at->data));
}

char *ecfs_config_format (const EcfsConfig *config)
{
    GString *text = g_string_new ("# Configuration of an ecfs archive; see ecfs.conf(5). Changes count from the next "
                                  "mount on.\n\n[archive]\n");
    for (const EcfsConfigOption *option = ecfs_config_options; option->key != NULL; option++) {
        g_autofree char *value = ecfs_config_format_option (config, option);
        const char *values = option->values == NULL ? ecfs_codec_forms () : option->values;
        g_string_append_printf (text, "# %s (%s)\n%s = %s\n", option->help, values, option->key, value);
    }
    for (unsigned i = 0; i < config->endpoints->len; i++)
        append_endpoint (text, g_ptr_array_index (config->endpoints, i));
    return g_string_free (text, FALSE);
}

char *ecfs_config_format_endpoint (const EcfsConfigEndpoint *endpoint)
{
    GString *text = g_string_new (NULL);
    append_endpoint (text, endpoint);
    return g_string_free (text, FALSE);
}
