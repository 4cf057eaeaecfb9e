#include "measure/codec_bench.h"

#include <isa-l.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GAP 72

/* One code with packets of one size, encoding (n_lost 0) or giving back the first n_lost data packets. */
typedef struct Case {
    const EcfsCodec *codec;
    unsigned k, n, n_lost;
    size_t packet_bytes;
    uint8_t *bytes;
    uint8_t **packets; /* n, in bytes, at no multiples of large powers of two: just so do tags place them */
    uint8_t *copy;     /* k packets in a row */
    EcfsPlan *plan;
    /* What ISA-L does for as many packets: all parities, or the lost from the k packets behind them. */
    int n_outputs;
    uint8_t *tables;
    uint8_t **sources, **outputs;
} Case;

static void run_ecfs (const Case *self)
{
    if (self->n_lost == 0)
        ecfs_codec_encode (self->codec, (const uint8_t *const *) self->packets, self->packets + self->k,
                           self->packet_bytes);
    else
        ecfs_plan_run (self->plan, self->packets, self->packet_bytes);
}

static void run_isal (const Case *self)
{
    ec_encode_data ((int) self->packet_bytes, (int) self->k, self->n_outputs, self->tables, self->sources,
                    self->outputs);
}

static void run_memcpy (const Case *self)
{
    for (unsigned i = 0; i < self->k; i++)
        memcpy (self->copy + i * self->packet_bytes, self->packets[i], self->packet_bytes);
}

/* Whatever the code: ISA-L's own is Reed-Solomon with as many packets. */
static void prepare_isal (Case *self)
{
    unsigned k = self->k, first = self->n_lost;
    g_autofree uint8_t *generator = g_malloc (self->n * k), *matrix = g_malloc (k * k), *inverse = g_malloc (k * k);
    gf_gen_cauchy1_matrix (generator, (int) self->n, (int) k);
    memcpy (matrix, generator + first * k, k * k);
    if (gf_invert_matrix (matrix, inverse, (int) k) != 0)
        g_error ("ISA-L finds no inverse of a matrix that has one");
    self->n_outputs = (int) (self->n_lost == 0 ? self->n - k : self->n_lost);
    self->tables = g_malloc (32 * k * (size_t) self->n_outputs);
    ec_init_tables ((int) k, self->n_outputs, self->n_lost == 0 ? generator + k * k : inverse, self->tables);
    self->sources = g_new (uint8_t *, k);
    self->outputs = g_new (uint8_t *, (size_t) self->n_outputs);
    for (unsigned i = 0; i < k; i++)
        self->sources[i] = self->packets[first + i];
    for (unsigned i = 0; i < (unsigned) self->n_outputs; i++)
        self->outputs[i] = self->packets[self->n_lost == 0 ? k + i : i];
}

static void prepare_plan (Case *self)
{
    bool present[ECFS_CODEC_MAX_N], lost[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < self->n; i++) {
        lost[i] = i < self->n_lost;
        present[i] = !lost[i];
    }
    g_autoptr (GError) error = NULL;
    self->plan = ecfs_codec_plan (self->codec, present, lost, &error);
    if (self->plan == NULL)
        g_error ("%s", error->message); /* no more are lost than the code survives */
}

static Case *case_new (const EcfsCodec *codec, uint64_t packet_bytes, unsigned n_lost)
{
    size_t granule = ecfs_codec_granule (codec);
    Case *self = g_new0 (Case, 1);
    *self = (Case){.codec = codec, .k = ecfs_codec_k (codec), .n = ecfs_codec_n (codec), .n_lost = n_lost};
    self->packet_bytes = (packet_bytes + granule - 1) / granule * granule;
    self->packets = g_new (uint8_t *, self->n);
    self->bytes = g_malloc (self->n * (self->packet_bytes + GAP));
    for (unsigned i = 0; i < self->n; i++) {
        self->packets[i] = self->bytes + i * (self->packet_bytes + GAP);
        memset (self->packets[i], (int) (i * 37 + 1), self->packet_bytes);
    }
    self->copy = g_malloc (self->k * self->packet_bytes);
    run_memcpy (self); /* so that its pages are there */
    prepare_plan (self);
    prepare_isal (self);
    return self;
}

static void case_free (Case *self)
{
    ecfs_plan_free (self->plan);
    g_free (self->bytes);
    g_free (self->packets);
    g_free (self->copy);
    g_free (self->tables);
    g_free (self->sources);
    g_free (self->outputs);
    g_free (self);
}

/* What this thread had of the processor: others may be busy beside it. */
static double used_us (void)
{
    struct timespec used;
    (void) clock_gettime (CLOCK_THREAD_CPUTIME_ID, &used); /* fails for no clock that there is */
    return (double) used.tv_sec * 1e6 + (double) used.tv_nsec / 1e3;
}

static double measure (const Case *self, void (*run) (const Case *), int round_us)
{
    double begin_us = used_us (), end_us;
    size_t user_bytes = self->k * self->packet_bytes, batch = 1 + (1 << 20) / user_bytes, n_runs = 0;
    do {
        for (size_t i = 0; i < batch; i++)
            run (self);
        n_runs += batch;
        end_us = used_us ();
    } while (end_us - begin_us < round_us);
    return (double) n_runs * (double) user_bytes / (end_us - begin_us) / 1e3;
}

static int compare (const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static CodecRates measure_all (const Case *self, int round_us)
{
    static void (*const runs[]) (const Case *) = {run_ecfs, run_isal, run_memcpy};
    double rates[G_N_ELEMENTS (runs)][CODEC_BENCH_ROUNDS];
    for (unsigned round = 0; round < CODEC_BENCH_ROUNDS; round++)
        for (size_t i = 0; i < G_N_ELEMENTS (runs); i++)
            rates[i][round] = measure (self, runs[i], round_us);
    for (size_t i = 0; i < G_N_ELEMENTS (runs); i++)
        qsort (rates[i], CODEC_BENCH_ROUNDS, sizeof rates[i][0], compare);
    return (CodecRates){rates[0][CODEC_BENCH_ROUNDS / 2], rates[1][CODEC_BENCH_ROUNDS / 2],
                        rates[2][CODEC_BENCH_ROUNDS / 2]};
}

size_t codec_bench (const EcfsCodec *codec, uint64_t packet_bytes, unsigned n_lost, int round_us, CodecRates *ret_rates)
{
    Case *one = case_new (codec, packet_bytes, n_lost);
    size_t rounded = one->packet_bytes;
    *ret_rates = measure_all (one, round_us);
    case_free (one);
    return rounded;
}
