/*
 * The graph of an ldpc code in a descriptor: any bytes are refused with EBADMSG, or are a graph whose bytes are just
 * these; and what a small one promises to survive, it survives.
 */
#include "codec/codec.h"
#include "codec/graph.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

#define SMALL_N      20
#define PACKET_BYTES 64

static void check_bytes (const EcfsGraph *graph, const uint8_t *bytes, size_t size)
{
    size_t again_size;
    g_autofree uint8_t *again = ecfs_graph_format (graph, &again_size);
    g_assert_cmpuint (again_size, ==, size);
    g_assert_true (memcmp (again, bytes, size) == 0);
}

/* Loses as many packets as are promised, from @first on, round the end. */
static void check_promise (const EcfsCodec *codec, unsigned first)
{
    unsigned k = ecfs_codec_k (codec), n = ecfs_codec_n (codec);
    uint8_t bytes[SMALL_N][PACKET_BYTES], decoded[SMALL_N][PACKET_BYTES];
    uint8_t *packets[SMALL_N];
    bool lost[ECFS_CODEC_MAX_N] = {false}, present[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < n; i++) {
        packets[i] = bytes[i];
        memset (bytes[i], 1 << i % 8, PACKET_BYTES);
        bytes[i][i % PACKET_BYTES] ^= 0xff;
    }
    ecfs_codec_encode (codec, (const uint8_t *const *) packets, packets + k, PACKET_BYTES);
    for (unsigned i = 0; i < ecfs_codec_tolerance (codec); i++)
        lost[(first + i) % n] = true;
    for (unsigned i = 0; i < n; i++) {
        present[i] = !lost[i];
        packets[i] = lost[i] ? decoded[i] : bytes[i];
    }
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsPlan) plan = ecfs_codec_plan_repair (codec, lost, present, NULL, &error);
    g_assert_no_error (error);
    ecfs_plan_run (plan, packets, PACKET_BYTES);
    for (unsigned i = 0; i < n; i++)
        g_assert_true (memcmp (packets[i], bytes[i], PACKET_BYTES) == 0);
}

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    if (size < 3)
        return 0;
    unsigned k = 1 + bytes[0] % ECFS_GRAPH_MAX, m = 1 + bytes[1] % ECFS_GRAPH_MAX;
    size -= 3;
    uint8_t *graph_bytes = malloc (MAX (size, 1)); /* a sanitizer sees what is read behind it */
    memcpy (graph_bytes, bytes + 3, size);
    EcfsGraph graph;
    g_autoptr (GError) error = NULL;
    bool parsed = ecfs_graph_parse (graph_bytes, size, k, m, &graph, &error);
    g_assert_true (parsed ? error == NULL : g_error_matches (error, ECFS_ERROR, EBADMSG));
    if (parsed)
        check_bytes (&graph, graph_bytes, size);
    if (k + m <= SMALL_N) {
        g_autoptr (EcfsCodec) codec = ecfs_codec_new_for (ECFS_CODE_LDPC, k, k + m, graph_bytes, size, NULL);
        g_assert_true ((codec != NULL) == parsed);
        if (codec != NULL)
            check_promise (codec, bytes[2] % (k + m));
    }
    free (graph_bytes);
    return 0;
}
