/*
 * xor:K+M, liberasurecode's flat XOR codes (flat_xor_hd): each parity packet is the XOR of some data packets, for a few
 * K and M. Which data packets they are is found out from the library, by encoding packets that differ in a bit each,
 * and goes into every descriptor. So the library is needed to store the first object with a code, not to read or repair
 * one.
 *
 * From then on such a code is a graph like any other: coded by our own kernels, which give the library's bytes; decoded
 * by elimination, which survives more losses than the library's own decoder; its tolerance proven from the graph.
 *
 * Where the library has codes of two distances for the same K and M, this is the one that survives more.
 */
#include "codec/binary.h"
#include "codec/graph.h"
#include "codec/liberasurecode.h"

#define PROOF_SUMS 2000000 /* more than these small graphs take */

static const char *refuse (unsigned k, unsigned n)
{
    bool known = (k == 3 && n == 3 + 3) || (k >= 5 && k <= 10 && n == k + 5) || (k >= 6 && k <= 20 && n == k + 6);
    return known ? NULL : "liberasurecode has 3+3, 5+5 to 10+5, and 6+6 to 20+6";
}

static char *text (unsigned k, unsigned n)
{
    return g_strdup_printf ("xor:%u+%u", k, n - k);
}

#ifdef ECFS_WITH_LIBERASURECODE

#define PACKET ECFS_LIBERASURECODE_GRANULE

/* Byte i of data packet i is 1, all others are 0: so parity has a 1 for each member. */
static bool learn_graph (unsigned k, unsigned m, EcfsGraph *ret_graph, GError **error)
{
    g_autoptr (EcfsLiberasurecode) library =
        ecfs_liberasurecode_new (ECFS_LIBERASURECODE_FLAT_XOR, k, m, m == 3 ? 3 : 4, error);
    if (library == NULL)
        return false;
    uint8_t bytes[20 + 6][PACKET] = {{0}};
    const uint8_t *data[20];
    uint8_t *parity[6];
    for (unsigned i = 0; i < k; i++) {
        bytes[i][i] = 1;
        data[i] = bytes[i];
    }
    for (unsigned i = 0; i < m; i++)
        parity[i] = bytes[k + i];
    ecfs_liberasurecode_encode (library, data, parity, PACKET);
    *ret_graph = (EcfsGraph){.k = k, .m = m};
    for (unsigned i = 0; i < m; i++)
        for (unsigned at = 0; at < PACKET; at++) {
            if (parity[i][at] > (at < k ? 1 : 0))
                return ecfs_fail (error, EIO, "the installed liberasurecode is broken here: parity is no exclusive or");
            if (parity[i][at] == 1)
                ret_graph->columns[at][0] |= UINT64_C (1) << i;
        }
    return true;
}

#else

static bool learn_graph (unsigned k, unsigned m, EcfsGraph *ret_graph, GError **error)
{
    return ecfs_fail (error, ENOTSUP,
                      "xor:%u+%u: this ecfs was built without liberasurecode, which makes this code: set another for "
                      "new files; files stored with it can be read",
                      k, m);
}

#endif

static EcfsCodec *new (unsigned k, unsigned n, const uint8_t *parameters, size_t parameters_bytes, GError **error)
{
    EcfsGraph graph;
    bool known = parameters == NULL ? learn_graph (k, n - k, &graph, error)
                                    : ecfs_graph_parse (parameters, parameters_bytes, k, n - k, &graph, error);
    if (!known)
        return NULL;
    EcfsCodec *self = ecfs_graph_codec_new (&graph);
    self->tolerance = ecfs_graph_distance (&graph, PROOF_SUMS).at_least - 1;
    return self;
}

const EcfsCodecOps ecfs_xor_ops = {
    .family = ECFS_CODE_XOR,
    .name = "xor",
    .form = "xor:K+M (liberasurecode's, of M = 5 or 6 and some K)",
    .parse = ecfs_codec_parse_sum,
    .refuse = refuse,
    .text = text,
    .new = new,
    .clear = ecfs_binary_clear,
    .encode = ecfs_binary_encode,
    .determines = ecfs_binary_determines,
    .guarantee = ecfs_binary_guarantee,
    .choose = ecfs_binary_choose,
    .plan = ecfs_binary_plan,
    .run = ecfs_binary_run,
    .plan_clear = ecfs_binary_plan_clear,
};
