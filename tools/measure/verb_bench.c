/* bench codec: how fast codes are on one core, by each provider, beside ISA-L called directly and memcpy */
#include "measure/codec_bench.h"
#include "tool.h"
#include "util/units.h"

#include <stdio.h>
#include <string.h>

#define MAX_MEMORY (UINT64_C (768) << 20) /* of all packets of a case */
#define MAX_LOSSES 6                      /* that are tried of a code that survives more */
#define DEFAULT_MS 10
#define MAX_PACKET (UINT64_C (1) << 30)

static const char *const default_codes[] = {"copies:3", "rs:4+2",     "rs:8+3",    "rs:8+6",
                                            "ldpc:8+6", "ldpc:20+20", "basic:8+8", NULL};
static const uint64_t default_packets[] = {4096, 32768, 262144, 1048576, 4194304};

static void print_row (const EcfsCodec *codec, size_t packet_bytes, unsigned n_lost, const CodecRates *rates)
{
    g_autofree char *packet = tool_bytes ((double) packet_bytes);
    g_autofree char *what = n_lost == 0 ? g_strdup ("encode") : g_strdup_printf ("decode %u lost", n_lost);
    const char *provider = ecfs_codec_provider (codec);
    printf ("%-14s %-14s %8s  %-14s %6.1f %6.1f %6.1f   %5.2f\n", ecfs_codec_code (codec),
            provider == NULL ? "" : provider, packet, what, rates->ecfs, rates->isal, rates->memcpy,
            rates->ecfs / rates->isal);
    fflush (stdout);
}

static JsonObject *facts (const EcfsCodec *codec, size_t packet_bytes, unsigned n_lost, const CodecRates *rates)
{
    JsonObject *object = json_object_new ();
    json_object_set_string_member (object, "code", ecfs_codec_code (codec));
    if (ecfs_codec_provider (codec) != NULL)
        json_object_set_string_member (object, "provider", ecfs_codec_provider (codec));
    json_object_set_int_member (object, "packet_bytes", (int64_t) packet_bytes);
    json_object_set_string_member (object, "operation", n_lost == 0 ? "encode" : "decode");
    json_object_set_int_member (object, "lost", n_lost);
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
            CodecRates rates;
            unsigned lost = MIN (n_lost, ecfs_codec_k (codec));
            size_t rounded = codec_bench (codec, packet_bytes, lost, arguments->round_ms * 1000, &rates);
            if (arguments->json)
                json_array_add_object_element (rows, facts (codec, rounded, lost, &rates));
            else
                print_row (codec, rounded, lost, &rates);
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
            return ecfs_fail (error, EINVAL, "--packet: \"%s\" is not a size from 1 to 1G", *text);
        g_array_append_val (arguments->packet_bytes, bytes);
    }
    if (arguments->packet_bytes->len == 0)
        g_array_append_vals (arguments->packet_bytes, default_packets, G_N_ELEMENTS (default_packets));
    return true;
}

/* A codec, and where other libraries compute the same bytes one of each. */
static bool add_codecs (GPtrArray *codecs, const char *code, GError **error)
{
    EcfsCodec *codec = ecfs_codec_new (code, error);
    if (codec == NULL)
        return false;
    g_ptr_array_add (codecs, codec);
    for (const char *const *provider = ecfs_codec_providers (); *provider != NULL; provider++) {
        g_autoptr (EcfsCodec) other = ecfs_codec_new_by (code, *provider, error);
        if (other == NULL)
            return false;
        if (g_strcmp0 (ecfs_codec_provider (other), ecfs_codec_provider (codec)) != 0)
            g_ptr_array_add (codecs, g_steal_pointer (&other));
    }
    return true;
}

static bool bench_codes (const BenchArguments *arguments, const char *const *codes, GError **error)
{
    g_autoptr (GPtrArray) codecs = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_codec_free);
    for (; *codes != NULL; codes++)
        if (!add_codecs (codecs, *codes, error))
            return false;
    JsonArray *rows = json_array_new ();
    if (!arguments->json)
        printf ("GB/s of user data, one core, medians of %d rounds; ISA-L: Reed-Solomon with as many packets\n\n"
                "%-14s %-14s %8s  %-14s %6s %6s %6s   %5s\n",
                CODEC_BENCH_ROUNDS, "code", "provider", "packet", "", "ecfs", "ISA-L", "memcpy", "/ISA-L");
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
        tool_say (verb->name, "\"%s\" cannot be measured, codec can", argv[1]);
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
