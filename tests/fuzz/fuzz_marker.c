/* The marker file of an endpoint: refused, or it says the same when it is written and read again. */
#include "endpoint/endpoint.h"

#include <string.h>

#define HOST_BYTES "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.?"

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

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
    return 0;
}
