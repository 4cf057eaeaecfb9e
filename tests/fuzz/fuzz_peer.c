/* Heads of requests of peers, in pieces of any size; what is read comes back the same. */
#include "peer/peer.h"
#include "peer/peer_text.h"

#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

static void check_head (const char *bytes, size_t size)
{
    EcfsPeerRequest request, again;
    int used = ecfs_peer_request_parse (bytes, size, &request);
    g_assert_true (used <= (int) MIN (size, ECFS_PEER_HEAD_MAX));
    if (used <= 0)
        return;
    for (size_t i = 0; i < (size_t) used; i += 7)
        g_assert_cmpint (ecfs_peer_request_parse (bytes, i, &again), ==, 0);
    g_assert_true (request.verb == ECFS_PEER_HELLO || (request.bytes > 0 && request.bytes <= ECFS_PEER_CELL_MAX &&
                                                       request.wait_ms <= ECFS_PEER_WAIT_MAX_MS));
    g_autofree char *path = ecfs_peer_request_path (&request);
    g_autofree char *head = g_strdup_printf ("GET %s HTTP/1.1\r\n\r\n", path);
    g_assert_cmpint (ecfs_peer_request_parse (head, strlen (head), &again), ==, strlen (head));
    g_autofree char *same = ecfs_peer_request_path (&again);
    g_assert_cmpstr (same, ==, path);
}

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    unsigned port;
    g_autofree char *host = NULL, *text = g_strndup ((const char *) bytes, size);
    check_head ((const char *) bytes, size);
    g_assert_true (!ecfs_peer_address_parse (text, &host, &port) || (port > 0 && port < 65536 && host[0] != '\0'));
    (void) ecfs_peers_check (text); /* whatever it says */
    return 0;
}
