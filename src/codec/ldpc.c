/*
 * ldpc:K+M, parity packets that are XORs of some of the data packets each, as a small graph says. The graph is chosen
 * when the first object is stored with it, from a table or by a short search, and goes into every descriptor.
 *
 * Source: Gaidioz, Koblitz and Santos 2006, small graphs with peeling; here with Gaussian elimination for the rest.
 */
#include "codec/binary.h"
#include "codec/graph.h"

#define PROOF_SUMS 2000000 /* for a graph that is not shipped: some milliseconds */

static const char *refuse (unsigned k, unsigned n)
{
    if (k < 1)
        return "it needs at least one data stripe";
    if (n <= k)
        return "it needs at least one parity stripe";
    if (k > ECFS_GRAPH_MAX || n - k > ECFS_GRAPH_MAX)
        return "data stripes are at most 128, and parity stripes too";
    return NULL;
}

static char *text (unsigned k, unsigned n)
{
    return g_strdup_printf ("ldpc:%u+%u", k, n - k);
}

static void set_properties (EcfsCodec *self, const EcfsGraph *graph)
{
    const EcfsShippedGraph *shipped = ecfs_graph_find_shipped (graph);
    if (shipped != NULL) {
        self->tolerance = shipped->tolerance;
        self->overhead = shipped->overhead;
    } else {
        self->tolerance = ecfs_graph_distance (graph, PROOF_SUMS).at_least - 1;
    }
}

static EcfsCodec *new (unsigned k, unsigned n, const uint8_t *parameters, size_t parameters_bytes, GError **error)
{
    EcfsGraph graph;
    if (parameters == NULL)
        ecfs_graph_make (k, n - k, &graph);
    else if (!ecfs_graph_parse (parameters, parameters_bytes, k, n - k, &graph, error))
        return NULL;
    EcfsCodec *self = ecfs_graph_codec_new (&graph);
    set_properties (self, &graph);
    return self;
}

const EcfsCodecOps ecfs_ldpc_ops = {
    .family = ECFS_CODE_LDPC,
    .name = "ldpc",
    .form = "ldpc:K+M (K data and M parity stripes, at most 128 each)",
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
