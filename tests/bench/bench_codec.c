/*
 * How fast codes are on one core: our codec beside ISA-L called directly, liberasurecode and memcpy, in GB/s (10^9
 * bytes) of user data, medians of interleaved rounds. Buffers are reused, so small packets stay in the cache; decoding
 * loses the first data packets. What can be made once per loss pattern is made once, for those whose interface can.
 */
#include "codec/codec.h"
#include "util/lock.h"

#include <isa-l.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#ifdef HAVE_LIBERASURECODE
#include <liberasurecode/erasurecode.h>
#endif

#define MAX_N    32
#define N_ROUNDS 9

typedef struct Case {
    unsigned k, n;
    unsigned n_lost; /* 0: encode */
    size_t packet_bytes;
    uint8_t *packets[MAX_N];
    uint8_t *copy; /* k packets in a row */

    EcfsCodec *codec;
    EcfsPlan *plan;

    uint8_t tables[32 * MAX_N * MAX_N];
    uint8_t *sources[MAX_N], *outputs[MAX_N];
    int n_outputs;

    int reference; /* liberasurecode's descriptor; 0: not here */
    char *fragments[MAX_N];
    char **data_fragments, **parity_fragments;
    uint64_t fragment_bytes;
} Case;

static void run_ours (Case *self)
{
    if (self->n_lost == 0)
        ecfs_codec_encode (self->codec, (const uint8_t *const *) self->packets, self->packets + self->k,
                           self->packet_bytes);
    else
        ecfs_plan_run (self->plan, self->packets, self->packet_bytes);
}

static void run_isal (Case *self)
{
    ec_encode_data ((int) self->packet_bytes, (int) self->k, self->n_outputs, self->tables, self->sources,
                    self->outputs);
}

static void run_memcpy (Case *self)
{
    for (unsigned i = 0; i < self->k; i++)
        memcpy (self->copy + i * self->packet_bytes, self->packets[i], self->packet_bytes);
}

#ifdef HAVE_LIBERASURECODE
static void run_reference (Case *self)
{
    int failed;
    if (self->n_lost == 0) {
        char **data, **parity;
        uint64_t fragment_bytes;
        failed = liberasurecode_encode (self->reference, (char *) self->copy, self->k * self->packet_bytes, &data,
                                        &parity, &fragment_bytes);
        if (!failed)
            failed = liberasurecode_encode_cleanup (self->reference, data, parity);
    } else {
        char *data;
        uint64_t size;
        failed = liberasurecode_decode (self->reference, self->fragments + self->n_lost, (int) self->k,
                                        self->fragment_bytes, 0, &data, &size);
        if (!failed)
            failed = liberasurecode_decode_cleanup (self->reference, data);
    }
    if (failed)
        g_error ("liberasurecode failed: %d", failed);
}

static void open_reference (Case *self)
{
    struct ec_args args = {
        .k = (int) self->k, .m = (int) (self->n - self->k), .w = 8, .hd = (int) (self->n - self->k), .ct = CHKSUM_NONE};
    self->reference = MAX (0, liberasurecode_instance_create (EC_BACKEND_ISA_L_RS_CAUCHY, &args));
    if (self->reference == 0)
        return;
    if (liberasurecode_encode (self->reference, (char *) self->copy, self->k * self->packet_bytes,
                               &self->data_fragments, &self->parity_fragments, &self->fragment_bytes) != 0)
        g_error ("liberasurecode failed to encode");
    for (unsigned i = 0; i < self->n; i++)
        self->fragments[i] = i < self->k ? self->data_fragments[i] : self->parity_fragments[i - self->k];
}

static void close_reference (Case *self)
{
    if (self->reference == 0)
        return;
    (void) liberasurecode_encode_cleanup (self->reference, self->data_fragments, self->parity_fragments);
    (void) liberasurecode_instance_destroy (self->reference);
}
#else
static void run_reference (Case *self)
{
}

static void open_reference (Case *self)
{
}

static void close_reference (Case *self)
{
}
#endif

/* Tables for what run_isal does: all parities, or the first n_lost data packets from the k packets after them. */
static void make_isal_tables (Case *self)
{
    unsigned k = self->k, first = self->n_lost == 0 ? 0 : self->n_lost;
    uint8_t generator[MAX_N * MAX_N], matrix[MAX_N * MAX_N], inverse[MAX_N * MAX_N];
    gf_gen_cauchy1_matrix (generator, (int) self->n, (int) k);
    memcpy (matrix, generator + first * k, k * k);
    if (gf_invert_matrix (matrix, inverse, (int) k) != 0)
        g_error ("the decoding matrix is singular");
    self->n_outputs = (int) (self->n_lost == 0 ? self->n - k : self->n_lost);
    ec_init_tables ((int) k, self->n_outputs, self->n_lost == 0 ? generator + k * k : inverse, self->tables);
    for (unsigned i = 0; i < k; i++)
        self->sources[i] = self->packets[first + i];
    for (unsigned i = 0; i < (unsigned) self->n_outputs; i++)
        self->outputs[i] = self->packets[self->n_lost == 0 ? k + i : i];
}

static void make_plan (Case *self)
{
    bool present[MAX_N] = {0}, wanted[MAX_N] = {0};
    for (unsigned i = 0; i < self->n; i++) {
        wanted[i] = i < self->n_lost;
        present[i] = !wanted[i];
    }
    g_autoptr (GError) error = NULL;
    self->plan = ecfs_codec_plan (self->codec, present, wanted, &error);
    if (self->plan == NULL)
        g_error ("%s", error->message);
}

static Case *case_new (unsigned k, unsigned m, unsigned n_lost, size_t packet_bytes)
{
    Case *self = g_new0 (Case, 1);
    g_autoptr (GError) error = NULL;
    self->k = k;
    self->n = k + m;
    self->n_lost = n_lost;
    self->packet_bytes = packet_bytes;
    self->codec = ecfs_codec_new_for (ECFS_CODE_RS, k, k + m, NULL, 0, &error);
    if (self->codec == NULL)
        g_error ("%s", error->message);
    for (unsigned i = 0; i < self->n; i++) {
        self->packets[i] = aligned_alloc (4096, packet_bytes);
        for (size_t at = 0; at < packet_bytes; at++)
            self->packets[i][at] = (uint8_t) g_random_int ();
    }
    self->copy = aligned_alloc (4096, k * packet_bytes);
    run_memcpy (self);
    make_plan (self);
    make_isal_tables (self);
    open_reference (self);
    return self;
}

static void case_free (Case *self)
{
    close_reference (self);
    ecfs_plan_free (self->plan);
    ecfs_codec_free (self->codec);
    for (unsigned i = 0; i < self->n; i++)
        free (self->packets[i]);
    free (self->copy);
    g_free (self);
}

/* GB/s of one round of at least @round_us. */
static double measure (Case *self, void (*run) (Case *), int64_t round_us)
{
    int64_t begin_us = ecfs_now_us (), end_us;
    unsigned n_runs = 0, batch = (unsigned) (1 + (1 << 20) / (self->k * self->packet_bytes));
    do {
        for (unsigned i = 0; i < batch; i++)
            run (self);
        n_runs += batch;
        end_us = ecfs_now_us ();
    } while (end_us - begin_us < round_us);
    return (double) n_runs * (double) self->k * (double) self->packet_bytes / (double) (end_us - begin_us) / 1e3;
}

static int compare_rates (const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

/* 0: not measured */
static void print_figure (double figure, int decimals)
{
    if (figure > 0)
        g_print (" %9.*f", decimals, figure);
    else
        g_print (" %9s", "-");
}

static void bench (Case *self, int64_t round_us)
{
    void (*const runs[]) (Case *) = {run_ours, run_isal, self->reference > 0 ? run_reference : NULL, run_memcpy};
    double rates[G_N_ELEMENTS (runs)][N_ROUNDS] = {0}, medians[G_N_ELEMENTS (runs)];
    for (unsigned round = 0; round < N_ROUNDS; round++)
        for (size_t i = 0; i < G_N_ELEMENTS (runs); i++)
            if (runs[i] != NULL)
                rates[i][round] = measure (self, runs[i], round_us);
    g_print ("%-8s %5zuK ", ecfs_codec_code (self->codec), self->packet_bytes / 1024);
    g_print (self->n_lost == 0 ? "encode  " : "decode %u", self->n_lost);
    for (size_t i = 0; i < G_N_ELEMENTS (runs); i++) {
        qsort (rates[i], N_ROUNDS, sizeof rates[i][0], compare_rates);
        medians[i] = rates[i][N_ROUNDS / 2];
        print_figure (medians[i], 1);
    }
    print_figure (medians[0] / medians[1], 2);
    print_figure (medians[2] > 0 ? medians[0] / medians[2] : 0, 2);
    g_print ("\n");
}

int main (int argc, char **argv)
{
    static const struct {
        unsigned k, m;
    } codes[] = {{4, 2}, {8, 3}};
    static const size_t packet_kib[] = {4, 32, 64, 256, 1024};
    gboolean cold = FALSE;
    int round_ms = 20;
    GOptionEntry entries[] = {{"cold-malloc", 0, 0, G_OPTION_ARG_NONE, &cold,
                               "leave malloc alone: it returns large blocks to the kernel", NULL},
                              {"round-ms", 0, 0, G_OPTION_ARG_INT, &round_ms, "milliseconds per round (20)", "MS"},
                              G_OPTION_ENTRY_NULL};
    g_autoptr (GOptionContext) context = g_option_context_new ("- how fast codes are on one core");
    g_autoptr (GError) error = NULL;
    g_option_context_add_main_entries (context, entries, NULL);
    if (!g_option_context_parse (context, &argc, &argv, &error)) {
        g_printerr ("bench_codec: %s\n", error->message);
        return 2;
    }
    if (!cold) { /* kindest to liberasurecode, which allocates in each call */
        mallopt (M_MMAP_THRESHOLD, 1 << 30);
        mallopt (M_TRIM_THRESHOLD, 1 << 30);
    }
    g_print ("GB/s of user data, one core, median of %d rounds\n", N_ROUNDS);
    g_print ("%-8s %6s %-8s %9s %9s %9s %9s %9s %9s\n", "code", "packet", "", "ecfs", "ISA-L", "liberas.", "memcpy",
             "/ISA-L", "/liberas.");
    for (size_t i = 0; i < G_N_ELEMENTS (codes); i++)
        for (size_t size = 0; size < G_N_ELEMENTS (packet_kib); size++)
            for (unsigned n_lost = 0; n_lost <= codes[i].m; n_lost++) {
                Case *one = case_new (codes[i].k, codes[i].m, n_lost, packet_kib[size] * 1024);
                bench (one, round_ms * INT64_C (1000));
                case_free (one);
            }
    return 0;
}
