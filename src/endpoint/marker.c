#include "endpoint/endpoint.h"

#include <inttypes.h>
#include <string.h>

#define GROUP  "ecfs-endpoint"
#define FORMAT 1

char *ecfs_marker_format (const EcfsMarker *marker)
{
    char archive[ECFS_UUID_TEXT_SIZE], endpoint[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&marker->archive, archive);
    ecfs_uuid_text (&marker->endpoint, endpoint);
    return g_strdup_printf ("[" GROUP "]\nformat=%d\narchive=%s\nendpoint=%s\nepoch=%" PRIu32 "\nsequence=%" PRIu64
                            "\n",
                            FORMAT, archive, endpoint, marker->epoch, marker->sequence);
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
    EcfsMarker marker;
    if (!get_uuid (file, "archive", &marker.archive, error) || !get_uuid (file, "endpoint", &marker.endpoint, error) ||
        !get_uint (file, "epoch", UINT32_MAX, &epoch, error) ||
        !get_uint (file, "sequence", UINT64_MAX, &sequence, error))
        return false;
    marker.epoch = (uint32_t) epoch;
    marker.sequence = sequence;
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
