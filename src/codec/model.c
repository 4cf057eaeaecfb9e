/*
 * Codes that hold no data, for plans and simulations: what determines what in codes that others describe.
 *
 * mds:K+M, any K of the stripes do, as with Reed-Solomon codes over larger fields than ours. peeling:K+M, the graph of
 * ldpc:K+M decoded as in the papers: a parity packet that lacks one member gives it, and nothing else is tried.
 */
#include "codec/solve.h"

#include <string.h>

#define PROOF_SETS 20000 /* sets of lost stripes that are looked at for the tolerance */

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

const EcfsCodecOps ecfs_mds_ops = {
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

static EcfsCodec *peeling_new (unsigned k, unsigned n, const uint8_t *parameters, size_t parameters_bytes,
                               GError **error)
{
    g_autofree char *code = g_strdup_printf ("ldpc:%u+%u", k, n - k);
    EcfsCodec *ldpc = ecfs_codec_new (code, error);
    if (ldpc == NULL)
        return NULL;
    Peeling *self = g_new0 (Peeling, 1);
    self->base = (EcfsCodec){.ops = &ecfs_peeling_ops, .k = k, .n = n, .granule = 1};
    self->ldpc = ldpc;
    bool all[ECFS_CODEC_MAX_N];
    memset (all, true, n * sizeof *all);
    self->base.tolerance = (unsigned) peeling_guarantee (&self->base, all);
    return &self->base;
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
    unsigned order[ECFS_CODEC_MAX_N], high = list_by_cost (self, available, cost, order), low = 0;
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

const EcfsCodecOps ecfs_peeling_ops = {
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
