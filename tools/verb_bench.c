/* bench codec: how fast codes are on one core, beside ISA-L called directly and memcpy */
#include "codec/codec.h"
#include "tool.h"
#include "util/units.h"

#include <isa-l.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_ROUNDS   5
#define MAX_MEMORY (UINT64_C (768) << 20) /* of all packets of a case */
#define MAX_LOSSES 6                      /* that are tried of a code that survives more */
#define DEFAULT_MS 10
#define MAX_PACKET (UINT64_C (1) << 30)
#define GAP        72

static const char *const default_codes[] = {"copies:3", "rs:4+2",     "rs:8+3",    "rs:8+6",
                                            "ldpc:8+6", "ldpc:20+20", "basic:8+8", NULL};
static const uint64_t default_packets[] = {4096, 32768, 262144, 1048576, 4194304};

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

/* GB/s of user data, medians. */
typedef struct Rates {
    double ecfs, isal, memcpy;
} Rates;

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

static Rates measure_all (const Case *self, int round_us)
{
    static void (*const runs[]) (const Case *) = {run_ecfs, run_isal, run_memcpy};
    double rates[G_N_ELEMENTS (runs)][N_ROUNDS];
    for (unsigned round = 0; round < N_ROUNDS; round++)
        for (size_t i = 0; i < G_N_ELEMENTS (runs); i++)
            rates[i][round] = measure (self, runs[i], round_us);
    for (size_t i = 0; i < G_N_ELEMENTS (runs); i++)
        qsort (rates[i], N_ROUNDS, sizeof rates[i][0], compare);
    return (Rates){rates[0][N_ROUNDS / 2], rates[1][N_ROUNDS / 2], rates[2][N_ROUNDS / 2]};
}

static void print_row (const Case *self, const Rates *rates)
{
    g_autofree char *packet = tool_bytes ((double) self->packet_bytes);
    g_autofree char *what = self->n_lost == 0 ? g_strdup ("encode") : g_strdup_printf ("decode %u lost", self->n_lost);
    printf ("%-14s %8s  %-14s %6.1f %6.1f %6.1f   %5.2f\n", ecfs_codec_code (self->codec), packet, what, rates->ecfs,
            rates->isal, rates->memcpy, rates->ecfs / rates->isal);
    fflush (stdout);
}

static JsonObject *facts (const Case *self, const Rates *rates)
{
    JsonObject *object = json_object_new ();
    json_object_set_string_member (object, "code", ecfs_codec_code (self->codec));
    json_object_set_int_member (object, "packet_bytes", (int64_t) self->packet_bytes);
    json_object_set_string_member (object, "operation", self->n_lost == 0 ? "encode" : "decode");
    json_object_set_int_member (object, "lost", self->n_lost);
    json_object_set_double_member (object, "gb_per_s", rates->ecfs);
    json_object_set_double_member (object, "isal_gb_per_s", rates->isal);
    json_object_set_double_member (object, "memcpy_gb_per_s", rates->memcpy);
    return object;
}

typedef struct BenchArguments {
    gboolean json;
    int round_ms;
    char **packets;
    GArray *packet_bytes; /* of uint64_t */
} BenchArguments;

static void bench_code (const BenchArguments *arguments, const EcfsCodec *codec, JsonArray *rows)
{
    unsigned n_losses = MIN (ecfs_codec_tolerance (codec), MAX_LOSSES);
    for (guint i = 0; i < arguments->packet_bytes->len; i++) {
        uint64_t packet_bytes = g_array_index (arguments->packet_bytes, uint64_t, i);
        if (packet_bytes * ecfs_codec_n (codec) > MAX_MEMORY)
            continue;
        for (unsigned n_lost = 0; n_lost <= n_losses; n_lost++) {
            Case *one = case_new (codec, packet_bytes, MIN (n_lost, ecfs_codec_k (codec)));
            Rates rates = measure_all (one, arguments->round_ms * 1000);
            if (arguments->json)
                json_array_add_object_element (rows, facts (one, &rates));
            else
                print_row (one, &rates);
            case_free (one);
            if (n_lost >= ecfs_codec_k (codec))
                break;
        }
    }
}

static bool read_packets (BenchArguments *arguments, GError **error)
{
    for (char **text = arguments->packets; text != NULL && *text != NULL; text++) {
        uint64_t bytes;
        if (!ecfs_parse_size (*text, &bytes) || bytes == 0 || bytes > MAX_PACKET)
            return ecfs_fail (error, EINVAL, "--packet: \"%s\" is no size from 1 to 1G", *text);
        g_array_append_val (arguments->packet_bytes, bytes);
    }
    if (arguments->packet_bytes->len == 0)
        g_array_append_vals (arguments->packet_bytes, default_packets, G_N_ELEMENTS (default_packets));
    return true;
}

static bool bench_codes (const BenchArguments *arguments, const char *const *codes, GError **error)
{
    g_autoptr (GPtrArray) codecs = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_codec_free);
    for (; *codes != NULL; codes++) {
        EcfsCodec *codec = ecfs_codec_new (*codes, error);
        if (codec == NULL)
            return false;
        g_ptr_array_add (codecs, codec);
    }
    JsonArray *rows = json_array_new ();
    if (!arguments->json)
        printf ("GB/s of user data, one core, medians of %d rounds; ISA-L: Reed-Solomon with as many packets\n\n"
                "%-14s %8s  %-14s %6s %6s %6s   %5s\n",
                N_ROUNDS, "code", "packet", "", "ecfs", "ISA-L", "memcpy", "/ISA-L");
    for (guint i = 0; i < codecs->len; i++)
        bench_code (arguments, g_ptr_array_index (codecs, i), rows);
    JsonNode *node = json_node_new (JSON_NODE_ARRAY);
    json_node_take_array (node, rows);
    if (arguments->json)
        tool_print_json (node);
    else
        json_node_unref (node);
    return true;
}

int verb_bench (const Verb *verb, int argc, char **argv)
{
    BenchArguments arguments = {.round_ms = DEFAULT_MS};
    g_auto (GStrv) packets = NULL;
    const GOptionEntry options[] = {
        {"json", 0, 0, G_OPTION_ARG_NONE, &arguments.json, "Print a JSON array with an object per row", NULL},
        {"packet", 'p', 0, G_OPTION_ARG_STRING_ARRAY, &packets, "Bytes of a packet (4K, 32K, 256K, 1M, 4M)", "SIZE"},
        {"round-ms", 0, 0, G_OPTION_ARG_INT, &arguments.round_ms, "Milliseconds of a round (10)", "MS"},
        G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 1, G_MAXINT);
    arguments.packets = packets;
    GError *error = NULL;
    if (strcmp (argv[1], "codec") != 0) {
        tool_say (verb->name, "\"%s\" is nothing to measure; codec is", argv[1]);
        return TOOL_USAGE;
    }
    g_autoptr (GArray) packet_bytes = g_array_new (FALSE, FALSE, sizeof (uint64_t));
    arguments.packet_bytes = packet_bytes;
    if (!read_packets (&arguments, &error))
        return tool_fail (verb->name, error, TOOL_USAGE);
    if (arguments.round_ms < 1 || arguments.round_ms > 10000) {
        tool_say (verb->name, "--round-ms is 1 to 10000");
        return TOOL_USAGE;
    }
    const char *const *codes = argc > 2 ? (const char *const *) argv + 2 : default_codes;
    return bench_codes (&arguments, codes, &error) ? TOOL_DONE : tool_fail (verb->name, error, TOOL_FAILED);
}
