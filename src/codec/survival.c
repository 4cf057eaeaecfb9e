#include "codec/survival.h"

#include "codec/binary.h"
#include "codec/random.h"
#include "codec/solve.h"

#include <math.h>
#include <string.h>

#define ENUMERATED_N 16 /* stripes of a code that can only be asked whether a set is decodable */
#define LEAST_SETS   16 /* of each number of lost stripes that are sampled */

__extension__ typedef unsigned __int128 Column;

#define COLUMN_BITS 128

/* An enumeration of the sets of lost stripes. Weights: of a lost and of a kept stripe; of a set their product. */
typedef struct Count {
    const EcfsCodec *codec;
    unsigned n;
    double lost[ECFS_CODEC_MAX_N], kept[ECFS_CODEC_MAX_N];
    /* [e][i]: what all sets of i of the stripes from e on weigh */
    double (*sums)[ECFS_CODEC_MAX_N + 2];
    double bad[ECFS_CODEC_MAX_N + 1]; /* by how many are lost */

    unsigned parts; /* columns for each stripe; 0: the codec is asked */
    Column columns[ECFS_SURVIVAL_EXACT_N][COLUMN_BITS / 2];
    Column basis[COLUMN_BITS]; /* reduced columns by their lowest bit; 0: none */
    bool present[ECFS_CODEC_MAX_N];
} Count;

static void count_init (Count *self, const EcfsCodec *codec, const double *availability)
{
    unsigned n = self->n = ecfs_codec_n (codec);
    self->codec = codec;
    self->sums = g_malloc0 ((n + 1) * sizeof *self->sums);
    for (unsigned e = 0; e < n; e++) {
        self->lost[e] = availability == NULL ? 1 : 1 - availability[e];
        self->kept[e] = availability == NULL ? 1 : availability[e];
        self->present[e] = true;
    }
    self->sums[n][0] = 1;
    for (unsigned e = n; e-- > 0;)
        for (unsigned i = 0; i <= n - e; i++)
            self->sums[e][i] =
                self->kept[e] * self->sums[e + 1][i] + (i > 0 ? self->lost[e] * self->sums[e + 1][i - 1] : 0);
}

/* The columns of the parity check matrix, where they fit. */
static void find_columns (Count *self)
{
    const EcfsBinary *code = (const EcfsBinary *) self->codec;
    unsigned k = self->codec->k, m = self->n - k;
    if (self->codec->ops->determines != ecfs_binary_determines || m * code->parts > COLUMN_BITS ||
        code->parts > COLUMN_BITS / 2)
        return;
    self->parts = code->parts;
    for (unsigned parity = 0; parity < m; parity++)
        for (unsigned part = 0; part < code->parts; part++) {
            Column bit = (Column) 1 << (parity * code->parts + part);
            self->columns[k + parity][part] |= bit;
            for (unsigned i = 0; i < k; i++) {
                if (code->rotation[parity][i] < 0)
                    continue;
                unsigned coefficient = ecfs_rotated (code, part, code->rotation[parity][i]);
                for (unsigned other = 0; other < code->parts; other++)
                    if (coefficient == code->parts || coefficient == other)
                        self->columns[i][other] |= bit;
            }
        }
}

static unsigned lowest_bit (Column column)
{
    uint64_t low = (uint64_t) column;
    return low != 0 ? (unsigned) __builtin_ctzll (low) : 64 + (unsigned) __builtin_ctzll ((uint64_t) (column >> 64));
}

/* Adds the columns of stripe @e to the basis; false: they depend on those there. Lists what was added. */
static bool add_columns (Count *self, unsigned e, uint8_t *added, unsigned *n_added)
{
    *n_added = 0;
    for (unsigned part = 0; part < self->parts; part++) {
        Column left = self->columns[e][part];
        while (left != 0 && self->basis[lowest_bit (left)] != 0)
            left ^= self->basis[lowest_bit (left)];
        if (left == 0)
            return false;
        added[*n_added] = (uint8_t) lowest_bit (left);
        self->basis[added[(*n_added)++]] = left;
    }
    return true;
}

static void visit (Count *self, unsigned from, unsigned n_lost, double weight)
{
    uint8_t added[COLUMN_BITS];
    for (unsigned e = from; e < self->n; e++) {
        unsigned n_added = 0;
        self->present[e] = false;
        bool good = self->parts > 0 ? add_columns (self, e, added, &n_added)
                                    : ecfs_codec_decodable (self->codec, self->present);
        if (good)
            visit (self, e + 1, n_lost + 1, weight * self->lost[e]);
        for (unsigned i = 0; i < self->n - e && !good; i++)
            self->bad[n_lost + 1 + i] += weight * self->lost[e] * self->sums[e + 1][i];
        for (unsigned i = 0; i < n_added; i++)
            self->basis[added[i]] = 0;
        self->present[e] = true;
        weight *= self->kept[e];
    }
}

static void enumerate (Count *self, EcfsSurvival *survival)
{
    visit (self, 0, 0, 1);
    for (unsigned i = 0; i <= self->n; i++)
        survival->share[i] = self->sums[0][i] > 0 ? MIN (self->bad[i] / self->sums[0][i], 1) : 0;
}

static double random_share (uint64_t *state)
{
    return (double) (ecfs_random_next (state) >> 11) / 9007199254740992.0;
}

/* A random set of @n_lost, each as probable as it weighs. */
static void draw (Count *self, unsigned n_lost, uint64_t *state)
{
    for (unsigned e = 0; e < self->n; e++) {
        double of_lost = n_lost == 0 ? 0 : self->lost[e] * self->sums[e + 1][n_lost - 1];
        bool lost = random_share (state) * self->sums[e][n_lost] < of_lost;
        self->present[e] = !lost;
        n_lost -= lost;
    }
}

/* Between the tolerance, up to which no set loses data, and m, beyond which all do. */
static void sample (Count *self, unsigned n_stripes, uint64_t seed, EcfsSurvival *survival)
{
    unsigned tolerance = ecfs_codec_tolerance (self->codec), m = self->n - ecfs_codec_k (self->codec);
    unsigned n_sets = MAX (n_stripes / self->n / MAX (m - MIN (tolerance, m), 1), LEAST_SETS);
    for (unsigned i = tolerance + 1; i <= self->n; i++) {
        unsigned n_bad = 0;
        for (unsigned j = 0; j < n_sets && i <= m && self->sums[0][i] > 0; j++) {
            draw (self, i, &seed);
            n_bad += !ecfs_codec_decodable (self->codec, self->present);
        }
        double share = (double) n_bad / n_sets, doubt = (n_bad + 1.0) / (n_sets + 2.0);
        survival->share[i] = i <= m ? share : 1;
        /* Where none was found, or only such, there may still be some of the others. */
        survival->error[i] = i <= m ? sqrt (doubt * (1 - doubt) / n_sets) : 0;
    }
}

void ecfs_survival_count (const EcfsCodec *codec, const double *availability, unsigned n_stripes, uint64_t seed,
                          EcfsSurvival *ret_survival)
{
    g_autofree Count *count = g_new0 (Count, 1);
    *ret_survival = (EcfsSurvival){.n = ecfs_codec_n (codec), .exact = true};
    if (codec->ops->determines == ecfs_mds_determines) {
        for (unsigned i = codec->n - codec->k + 1; i <= codec->n; i++)
            ret_survival->share[i] = 1;
        return;
    }
    count_init (count, codec, availability);
    if (count->n <= ECFS_SURVIVAL_EXACT_N)
        find_columns (count);
    ret_survival->exact = count->n <= ENUMERATED_N || count->parts > 0;
    if (ret_survival->exact)
        enumerate (count, ret_survival);
    else
        sample (count, n_stripes, seed, ret_survival);
    g_free (count->sums);
}

EcfsFailure ecfs_survival_failure (const EcfsSurvival *self, const double *availability)
{
    double lost[ECFS_CODEC_MAX_N + 1] = {1}; /* the probability that so many are, of those looked at */
    for (unsigned e = 0; e < self->n; e++)
        for (unsigned i = e + 2; i-- > 0;)
            lost[i] = lost[i] * availability[e] + (i > 0 ? lost[i - 1] * (1 - availability[e]) : 0);
    EcfsFailure failure = {0};
    double variance = 0;
    for (unsigned i = 0; i <= self->n; i++) {
        failure.probability += lost[i] * self->share[i];
        variance += lost[i] * self->error[i] * lost[i] * self->error[i];
    }
    failure.error = sqrt (variance);
    return failure;
}

double ecfs_survival_repair_reads (const EcfsCodec *codec)
{
    unsigned n = ecfs_codec_n (codec);
    bool lost[ECFS_CODEC_MAX_N] = {0}, available[ECFS_CODEC_MAX_N];
    memset (available, true, n * sizeof *available);
    size_t bytes = 0;
    for (unsigned i = 0; i < n; i++) {
        size_t n_reads = 0;
        lost[i] = true;
        available[i] = false;
        g_autoptr (EcfsPlan) plan = ecfs_codec_plan_repair (codec, lost, available, NULL, NULL);
        const EcfsPlanRead *reads = plan == NULL ? NULL : ecfs_plan_reads (plan, &n_reads);
        for (size_t j = 0; j < n_reads; j++)
            bytes += reads[j].size;
        lost[i] = false;
        available[i] = true;
    }
    return (double) bytes / (double) ecfs_codec_granule (codec) / n;
}
