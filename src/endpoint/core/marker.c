#include "endpoint/endpoint.h"

#include <inttypes.h>
#include <string.h>

#define GROUP  "ecfs-endpoint"
#define FORMAT 1

static void put_uint (GString *text, const char *key, uint64_t value)
{
    if (value > 0)
        g_string_append_printf (text, "%s=%" PRIu64 "\n", key, value);
}

static void put_uuid (GString *text, const char *key, const EcfsUuid *uuid)
{
    char uuid_text[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (uuid, uuid_text);
    g_string_append_printf (text, "%s=%s\n", key, uuid_text);
}

static void put_host (GString *text, const char *key, const char *host)
{
    if (host[0] != '\0')
        g_string_append_printf (text, "%s=%s\n", key, host);
}

char *ecfs_marker_format_content (const EcfsMarker *marker)
{
    GString *text = g_string_new ("[" GROUP "]\nformat=" G_STRINGIFY (FORMAT) "\n");
    put_uuid (text, "archive", &marker->archive);
    put_uuid (text, "endpoint", &marker->endpoint);
    g_string_append_printf (text, "epoch=%" PRIu32 "\nsequence=%" PRIu64 "\n", marker->epoch, marker->sequence);
    if (marker->session_number > 0) {
        put_uint (text, "session_number", marker->session_number);
        put_uuid (text, "session", &marker->session);
    }
    put_uint (text, "since", (uint64_t) MAX (marker->since_s, 0));
    put_host (text, "host", marker->host);
    put_uint (text, "copies", marker->copies);
    put_uint (text, "endpoints", marker->endpoints);
    const EcfsMarkerClaim *claim = &marker->claim;
    if (claim->epoch > 0) {
        put_uint (text, "claim_epoch", claim->epoch);
        put_uuid (text, "claim_session", &claim->session);
        put_uint (text, "claim_count", claim->count);
        put_uint (text, "claim_since", (uint64_t) MAX (claim->since_s, 0));
        put_host (text, "claim_host", claim->host);
    }
    if (!ecfs_uuid_is_nil (&marker->key))
        put_uuid (text, "key", &marker->key);
    return g_string_free (text, FALSE);
}

char *ecfs_marker_format (const EcfsMarker *marker)
{
    g_autofree char *content = ecfs_marker_format_content (marker);
    if (ecfs_uuid_is_nil (&marker->key))
        return g_steal_pointer (&content);
    GString *text = g_string_new (content);
    g_string_append (text, "mac=");
    for (size_t i = 0; i < sizeof marker->mac; i++)
        g_string_append_printf (text, "%02x", marker->mac[i]);
    g_string_append_c (text, '\n');
    return g_string_free (text, FALSE);
}

static void clean_host (const char *name, char ret_host[ECFS_MARKER_HOST_SIZE])
{
    size_t size = 0;
    for (; name[size] != '\0' && size < ECFS_MARKER_HOST_SIZE - 1; size++)
        ret_host[size] = g_ascii_isalnum (name[size]) || strchr ("-_.", name[size]) != NULL ? name[size] : '?';
    ret_host[size] = '\0';
}

void ecfs_marker_host (char ret_host[ECFS_MARKER_HOST_SIZE])
{
    clean_host (g_get_host_name (), ret_host);
}

static bool get_uint (GKeyFile *file, const char *key, uint64_t max, uint64_t *ret_value, GError **error)
{
    g_autofree char *text = g_key_file_get_value (file, GROUP, key, NULL);
    guint64 value;
    if (text == NULL || !g_ascii_string_to_unsigned (text, 10, 0, max, &value, NULL))
        return ecfs_fail (error, EPROTO, "%s: \"%s\" is missing or not a number", ECFS_MARKER_NAME, key);
    *ret_value = value;
    return true;
}

static bool get_uuid (GKeyFile *file, const char *key, EcfsUuid *ret_uuid, GError **error)
{
    g_autofree char *text = g_key_file_get_value (file, GROUP, key, NULL);
    if (text == NULL || !ecfs_uuid_parse (text, ret_uuid) || ecfs_uuid_is_nil (ret_uuid))
        return ecfs_fail (error, EPROTO, "%s: \"%s\" is missing or not a UUID", ECFS_MARKER_NAME, key);
    return true;
}

/* A key that may be absent: then *ret_value is 0. */
static bool may_get_uint (GKeyFile *file, const char *key, uint64_t max, uint64_t *ret_value, GError **error)
{
    *ret_value = 0;
    return !g_key_file_has_key (file, GROUP, key, NULL) || get_uint (file, key, max, ret_value, error);
}

static bool may_get_time (GKeyFile *file, const char *key, int64_t *ret_time_s, GError **error)
{
    uint64_t value;
    bool fine = may_get_uint (file, key, INT64_MAX, &value, error);
    *ret_time_s = fine ? (int64_t) value : 0;
    return fine;
}

static void may_get_host (GKeyFile *file, const char *key, char ret_host[ECFS_MARKER_HOST_SIZE])
{
    g_autofree char *text = g_key_file_get_value (file, GROUP, key, NULL);
    clean_host (text == NULL ? "" : text, ret_host);
}

static bool parse_session (GKeyFile *file, EcfsMarker *marker, GError **error)
{
    uint64_t copies, endpoints;
    if (g_key_file_has_key (file, GROUP, "session", NULL) || g_key_file_has_key (file, GROUP, "session_number", NULL)) {
        if (!get_uint (file, "session_number", UINT64_MAX, &marker->session_number, error) ||
            !get_uuid (file, "session", &marker->session, error))
            return false;
        if (marker->session_number == 0)
            return ecfs_fail (error, EPROTO, "%s: \"session_number\" is 0", ECFS_MARKER_NAME);
    }
    may_get_host (file, "host", marker->host);
    if (!may_get_time (file, "since", &marker->since_s, error) ||
        !may_get_uint (file, "copies", UINT32_MAX, &copies, error) ||
        !may_get_uint (file, "endpoints", UINT32_MAX, &endpoints, error))
        return false;
    marker->copies = (uint32_t) copies;
    marker->endpoints = (uint32_t) endpoints;
    return true;
}

static bool parse_claim (GKeyFile *file, EcfsMarkerClaim *claim, GError **error)
{
    uint64_t epoch;
    if (!may_get_uint (file, "claim_epoch", UINT32_MAX, &epoch, error))
        return false;
    if (epoch == 0)
        return true;
    claim->epoch = (uint32_t) epoch;
    may_get_host (file, "claim_host", claim->host);
    return get_uuid (file, "claim_session", &claim->session, error) &&
           may_get_uint (file, "claim_count", UINT64_MAX, &claim->count, error) &&
           may_get_time (file, "claim_since", &claim->since_s, error);
}

static bool parse_mac (const char *text, uint8_t ret_mac[ECFS_MARKER_MAC_BYTES])
{
    if (text == NULL || strlen (text) != 2 * ECFS_MARKER_MAC_BYTES)
        return false;
    for (size_t i = 0; i < ECFS_MARKER_MAC_BYTES; i++) {
        int high = g_ascii_xdigit_value (text[2 * i]), low = g_ascii_xdigit_value (text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        ret_mac[i] = (uint8_t) (high << 4 | low);
    }
    return true;
}

/* Whoever has the key judges it: what is wrong here says no more than a MAC that does not fit. A MAC is of the text as
 * ecfs writes it, so another text of the same meaning has none. */
static void parse_key (GKeyFile *file, const char *text, size_t size, EcfsMarker *marker)
{
    g_autofree char *key = g_key_file_get_value (file, GROUP, "key", NULL);
    g_autofree char *mac = g_key_file_get_value (file, GROUP, "mac", NULL);
    if (key == NULL || !ecfs_uuid_parse (key, &marker->key)) {
        marker->key = (EcfsUuid){.bytes = {0}};
        return;
    }
    bool has_mac = parse_mac (mac, marker->mac);
    g_autofree char *again = ecfs_marker_format (marker);
    if (!has_mac || strlen (again) != size || memcmp (again, text, size) != 0)
        memset (marker->mac, 0, sizeof marker->mac);
}

static bool parse (const char *text, size_t size, EcfsMarker *ret_marker, GError **error)
{
    if (size == 0 || size > ECFS_MARKER_MAX_SIZE || memchr (text, '\0', size) != NULL)
        return ecfs_fail (error, EPROTO, "%s: not a marker of ecfs (%zu bytes)", ECFS_MARKER_NAME, size);
    g_autoptr (GKeyFile) file = g_key_file_new ();
    g_autoptr (GError) syntax = NULL;
    if (!g_utf8_validate (text, (gssize) size, NULL) ||
        !g_key_file_load_from_data (file, text, size, G_KEY_FILE_NONE, &syntax))
        return ecfs_fail (error, EPROTO, "%s: not a marker of ecfs: %s", ECFS_MARKER_NAME,
                          syntax != NULL ? syntax->message : "not text");

    uint64_t format = 0, epoch = 0, sequence = 0;
    if (!get_uint (file, "format", UINT32_MAX, &format, error))
        return false;
    if (format != FORMAT)
        return ecfs_fail (error, ENOTSUP, "%s: format %" PRIu64 " is of another version of ecfs; this one knows %d",
                          ECFS_MARKER_NAME, format, FORMAT);
    EcfsMarker marker = {.epoch = 0};
    if (!get_uuid (file, "archive", &marker.archive, error) || !get_uuid (file, "endpoint", &marker.endpoint, error) ||
        !get_uint (file, "epoch", UINT32_MAX, &epoch, error) ||
        !get_uint (file, "sequence", UINT64_MAX, &sequence, error) || !parse_session (file, &marker, error) ||
        !parse_claim (file, &marker.claim, error))
        return false;
    marker.epoch = (uint32_t) epoch;
    marker.sequence = sequence;
    parse_key (file, text, size, &marker);
    *ret_marker = marker;
    return true;
}

bool ecfs_marker_parse (const char *text, size_t size, EcfsMarker *ret_marker, GError **error)
{
    g_autoptr (GError) reason = NULL;
    if (parse (text, size, ret_marker, &reason))
        return true;
    const char *remedy = reason->code == ENOTSUP ? "" : "; restore that file, or replace the endpoint";
    return ecfs_fail (error, reason->code, "%s%s", reason->message, remedy);
}
