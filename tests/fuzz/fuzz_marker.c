/* The marker file of an endpoint: refused, or it says the same when it is written and read again. With a key: what is
 * authentic has the very bytes that were written, and no others. */
#include "archive/marks.h"

#include <string.h>

#define HOST_BYTES "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.?"

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

static void check_signed (const EcfsMarker *marker)
{
    static EcfsKeyRing *keys;
    if (keys == NULL)
        keys = ecfs_key_ring_new (&marker->archive);
    EcfsMarker own = *marker, again;
    own.archive = *ecfs_key_ring_archive (keys);
    g_assert_cmpint (ecfs_marker_judge (&own, keys, NULL), !=, ECFS_MARKER_AUTHENTIC);
    ecfs_marker_sign (&own, keys);
    g_autofree char *text = ecfs_marker_format (&own);
    g_assert_true (ecfs_marker_parse (text, strlen (text), &again, NULL));
    g_assert_cmpint (ecfs_marker_judge (&again, keys, &own.endpoint), ==, ECFS_MARKER_AUTHENTIC);
    again.sequence++;
    g_assert_cmpint (ecfs_marker_judge (&again, keys, NULL), ==, ECFS_MARKER_FORGED);
}

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    EcfsMarker marker, again;
    g_autoptr (GError) error = NULL;
    if (!ecfs_marker_parse ((const char *) bytes, size, &marker, &error)) {
        g_assert_true (ecfs_errno (error) == EPROTO || ecfs_errno (error) == ENOTSUP);
        return 0;
    }
    g_autofree char *text = ecfs_marker_format (&marker);
    ecfs_marker_parse (text, strlen (text), &again, &error);
    g_assert_no_error (error);
    g_assert_true (ecfs_uuid_equal (&marker.archive, &again.archive) && marker.epoch == again.epoch);
    g_assert_true (ecfs_uuid_equal (&marker.endpoint, &again.endpoint) && marker.sequence == again.sequence);
    g_autofree char *same = ecfs_marker_format (&again);
    g_assert_cmpstr (text, ==, same);
    g_assert_true ((marker.session_number > 0) == !ecfs_uuid_is_nil (&marker.session));
    g_assert_true ((marker.claim.epoch > 0) == !ecfs_uuid_is_nil (&marker.claim.session));
    g_assert_cmpuint (strspn (marker.host, HOST_BYTES), ==, strlen (marker.host));
    g_assert_cmpuint (strspn (marker.claim.host, HOST_BYTES), ==, strlen (marker.claim.host));
    if (ecfs_uuid_is_nil (&marker.key))
        for (size_t i = 0; i < sizeof marker.mac; i++)
            g_assert_cmpuint (marker.mac[i], ==, 0);
    check_signed (&marker);
    return 0;
}
