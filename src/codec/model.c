/*
 * Codes that hold no data, for plans and simulations: what determines what in codes that others describe.
 *
 * mds:K+M, any K of the stripes do, as with Reed-Solomon codes over larger fields than ours. peeling:K+M, the graph of
 * ldpc:K+M decoded as in the papers: a parity packet that lacks one member gives it, and nothing else is tried. Our
 * graphs are made for more than that, and have many edges; sparse:K+M has few, as those of Collins and Plank (2005).
 */
#include "codec/graph.h"
#include "codec/random.h"
#include "codec/solve.h"

#include <string.h>

static const EcfsCodecOps peeling_ops, sparse_ops;

#define PROOF_SETS 2000 /* sets of lost stripes that are looked at for the tolerance */

static const char *refuse (unsigned k, unsigned n)
{
    if (k < 1 || n <= k)
        return "it needs at least one data stripe and one parity stripe";
    return n > ECFS_CODEC_MAX_N ? "data and parity stripes are at most 256 together" : NULL;
}

static char *mds_text (unsigned k, unsigned n)
{
    return g_strdup_printf ("mds:%u+%u", k, n - k);
}

static EcfsCodec *mds_new (unsigned k, unsigned n, const uint8_t *parameters, size_t parameters_bytes, GError **error)
{
    EcfsCodec *self = g_new0 (EcfsCodec, 1);
    self->tolerance = n - k;
    self->overhead = 1;
    self->granule = 1;
    return self;
}

static const EcfsCodecOps mds_ops = {
    .name = "mds",
    .form = "mds:K+M (any K of K + M stripes, at most 256 together; for plans only)",
    .parse = ecfs_codec_parse_sum,
    .refuse = refuse,
    .text = mds_text,
    .new = mds_new,
    .determines = ecfs_mds_determines,
    .guarantee = ecfs_mds_guarantee,
    .choose = ecfs_mds_choose,
};

typedef struct Peeling {
    EcfsCodec base;
    EcfsCodec *ldpc; /* whose graph it is */
} Peeling;

static char *peeling_text (unsigned k, unsigned n)
{
    return g_strdup_printf ("peeling:%u+%u", k, n - k);
}

static bool peeling_determines (const EcfsCodec *base, const bool *present, const bool *wanted)
{
    const EcfsBinary *code = (const EcfsBinary *) ((const Peeling *) base)->ldpc;
    EcfsSolve solve;
    ecfs_solve_peel (&solve, code, present);
    for (unsigned i = 0; i < base->n; i++) {
        if (!wanted[i] || present[i])
            continue;
        EcfsPackets members = i < base->k ? (EcfsPackets){{0}} : code->equations[i - base->k];
        if (i >= base->k)
            ecfs_packets_remove (&members, i);
        else
            ecfs_packets_add (&members, i);
        EcfsPackets missing = ecfs_packets_minus (&members, &solve.known);
        if (ecfs_packets_count (&missing) > 0)
            return false;
    }
    return true;
}

/* Whether all data is determined without any @n_lost of the stripes from @from on; gives up, false, after so many
 * sets. */
static bool survives (const EcfsCodec *self, bool *present, unsigned from, unsigned n_lost, unsigned *n_sets)
{
    if (n_lost == 0)
        return ++*n_sets <= PROOF_SETS && ecfs_codec_decodable (self, present);
    for (unsigned i = from; i + n_lost <= self->n; i++) {
        present[i] = false;
        bool good = survives (self, present, i + 1, n_lost - 1, n_sets);
        present[i] = true;
        if (!good)
            return false;
    }
    return true;
}

static int peeling_guarantee (const EcfsCodec *self, const bool *present)
{
    bool left[ECFS_CODEC_MAX_N];
    memcpy (left, present, self->n * sizeof *left);
    unsigned n_sets = 0;
    int guarantee = ecfs_codec_decodable (self, present) ? 0 : -1;
    while (guarantee >= 0 && (unsigned) guarantee < self->n - self->k &&
           survives (self, left, 0, (unsigned) guarantee + 1, &n_sets))
        guarantee++;
    return guarantee;
}

/* Takes @ldpc. */
static EcfsCodec *peeling_of (EcfsCodec *ldpc, const EcfsCodecOps *ops)
{
    Peeling *self = g_new0 (Peeling, 1);
    self->base = (EcfsCodec){.ops = ops, .k = ldpc->k, .n = ldpc->n, .granule = 1};
    self->ldpc = ldpc;
    return &self->base;
}

static void prove (EcfsCodec *self)
{
    bool all[ECFS_CODEC_MAX_N];
    memset (all, true, self->n * sizeof *all);
    self->tolerance = (unsigned) peeling_guarantee (self, all);
}

static EcfsCodec *peeling_new (unsigned k, unsigned n, const uint8_t *parameters, size_t parameters_bytes,
                               GError **error)
{
    g_autofree char *code = g_strdup_printf ("ldpc:%u+%u", k, n - k);
    EcfsCodec *ldpc = ecfs_codec_new (code, error);
    if (ldpc == NULL)
        return NULL;
    EcfsCodec *self = peeling_of (ldpc, &peeling_ops);
    prove (self);
    return self;
}

static void peeling_clear (EcfsCodec *self)
{
    ecfs_codec_free (((Peeling *) self)->ldpc);
}

static unsigned list_by_cost (const EcfsCodec *self, const bool *available, const double *cost, unsigned *order)
{
    unsigned n = 0;
    for (unsigned i = 0; i < self->n; i++) {
        unsigned at = n;
        if (!available[i])
            continue;
        for (n++; at > 0 && cost[order[at - 1]] > cost[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return n;
}

static bool do_first (const EcfsCodec *self, const unsigned *order, unsigned n_first, const bool *wanted, bool *sources)
{
    memset (sources, 0, self->n * sizeof *sources);
    for (unsigned i = 0; i < n_first; i++)
        sources[order[i]] = true;
    return peeling_determines (self, sources, wanted);
}

/* The cheapest ones until they do, less those that are not missed, the dearest first. */
static bool peeling_choose (const EcfsCodec *self, const bool *wanted, const bool *available, const double *cost,
                            bool *sources)
{
    unsigned order[ECFS_CODEC_MAX_N] = {0}, high = list_by_cost (self, available, cost, order), low = 0;
    if (!do_first (self, order, high, wanted, sources))
        return false;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (do_first (self, order, middle, wanted, sources))
            high = middle;
        else
            low = middle;
    }
    (void) do_first (self, order, high, wanted, sources); /* it does */
    for (unsigned i = high; i-- > 0;) {
        sources[order[i]] = false;
        sources[order[i]] = !peeling_determines (self, sources, wanted);
    }
    return true;
}

static const EcfsCodecOps peeling_ops = {
    .name = "peeling",
    .form = "peeling:K+M (the graph of ldpc:K+M without elimination; for plans only)",
    .parse = ecfs_codec_parse_sum,
    .refuse = refuse,
    .text = peeling_text,
    .new = peeling_new,
    .clear = peeling_clear,
    .determines = peeling_determines,
    .guarantee = peeling_guarantee,
    .choose = peeling_choose,
};

/* Graphs of few edges */

#define N_TRIES  24
#define N_ORDERS 25 /* random downloads that a try is judged by */

static char *sparse_text (unsigned k, unsigned n)
{
    return g_strdup_printf ("sparse:%u+%u", k, n - k);
}

static const char *refuse_sparse (unsigned k, unsigned n)
{
    if (k < 1 || n <= k)
        return "it needs at least one data stripe and one parity stripe";
    return k > ECFS_GRAPH_MAX || n - k > ECFS_GRAPH_MAX ? "data stripes are at most 128, and parity stripes too" : NULL;
}

static void add_edge (EcfsGraph *graph, unsigned parity, unsigned data)
{
    graph->columns[data][parity / 64] |= UINT64_C (1) << parity % 64;
}

/* Data packets with two to four parity packets each, these about equally often; every fourth has more, by tries. */
static EcfsGraph make_sparse (unsigned k, unsigned m, unsigned try, uint64_t *state)
{
    EcfsGraph graph = {.k = k, .m = m};
    for (unsigned i = 0; i < k; i++) {
        unsigned weight = 2 + try % 3 + (i % 4 == 0 ? try / 3 % 4 : 0);
        add_edge (&graph, i % m, i);
        for (unsigned j = 1; j < weight; j++)
            add_edge (&graph, (unsigned) (ecfs_random_next (state) % m), i);
    }
    for (unsigned parity = 0; parity < m; parity++)
        add_edge (&graph, parity, (unsigned) (ecfs_random_next (state) % k));
    return graph;
}

static EcfsCodec *sparse_new (unsigned k, unsigned n, const uint8_t *parameters, size_t parameters_bytes,
                              GError **error)
{
    uint64_t state = k * 256 + n;
    EcfsCodec *best = NULL;
    double least = 0;
    for (unsigned i = 0; i < N_TRIES; i++) {
        size_t bytes;
        EcfsGraph graph = make_sparse (k, n - k, i, &state);
        g_autofree uint8_t *text = ecfs_graph_format (&graph, &bytes);
        EcfsCodec *ldpc = ecfs_codec_new_for (ECFS_CODE_LDPC, k, n, text, bytes, error);
        if (ldpc == NULL)
            return NULL; /* the first would fail as all do */
        EcfsCodec *one = peeling_of (ldpc, &sparse_ops);
        double overhead = ecfs_codec_measure_overhead (one, N_ORDERS);
        if (best != NULL && overhead >= least) {
            ecfs_codec_free (one);
            continue;
        }
        ecfs_codec_free (best);
        best = one;
        least = overhead;
    }
    prove (best);
    return best;
}

static const EcfsCodecOps sparse_ops = {
    .name = "sparse",
    .form = "sparse:K+M (a graph of few edges, without elimination; for plans only)",
    .parse = ecfs_codec_parse_sum,
    .refuse = refuse_sparse,
    .text = sparse_text,
    .new = sparse_new,
    .clear = peeling_clear,
    .determines = peeling_determines,
    .guarantee = peeling_guarantee,
    .choose = peeling_choose,
};

static const EcfsCodecOps *const modelled[] = {&mds_ops, &peeling_ops, &sparse_ops};

EcfsCodec *ecfs_codec_new_modelled (const char *text, GError **error)
{
    unsigned k, n;
    const EcfsCodecOps *ops = ecfs_codec_find (modelled, G_N_ELEMENTS (modelled), text, NULL, &k, &n);
    return ops == NULL ? ecfs_codec_new (text, error) : ecfs_codec_make (ops, k, n, NULL, 0, error);
}

bool ecfs_codec_is_modelled (const EcfsCodec *self)
{
    return self->ops->encode == NULL;
}

double ecfs_codec_decoding_work (const EcfsCodec *self)
{
    const EcfsBinary *code = NULL;
    unsigned n_members = 0, m = self->n - self->k;
    if (self->ops->determines == peeling_determines)
        code = (const EcfsBinary *) ((const Peeling *) self)->ldpc;
    else if (self->ops->determines == ecfs_binary_determines)
        code = (const EcfsBinary *) self;
    for (unsigned i = 0; i < m && code != NULL; i++)
        n_members += ecfs_packets_count (&code->equations[i]) - 1;
    return code == NULL ? self->k : (double) n_members / m;
}
