/*
 * Codes end to end: an object is stored under each shipped code, and read without every set of up to m stripes where it
 * has at most 16, without random sets where it has more. What can be decoded is found out without the decoder; then the
 * bytes come, and otherwise an error and no byte.
 *
 * ECFS_LOSSES=all tries every set; without it, and under sanitizers, some of many.
 */
#include "../codec/oracle.h"
#include "../codec/segment.h"
#include "codec/graph.h"
#include "program/program.h"
#include "store.h"

#define MEMORY        (64u << 20)
#define EXHAUSTIVE_N  16
#define SETS_USUALLY  1500 /* of a code */
#define SETS_OF_LARGE 60

typedef struct Counts {
    unsigned n_read;
    unsigned n_refused;
} Counts;

/* Reads all of the object without the stripes that are @lost. */
static void read_without (Object *object, const Oracle *oracle, const bool *lost, Counts *counts)
{
    bool present[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < object->store->n; i++)
        object->result.stored[i] = present[i] = !lost[i];
    bool decodable = oracle_decodable (oracle, present);
    EcfsReader *reader = object_reader (object);
    g_assert_cmpint (object_read (object, reader, 0, object->size, NULL), ==, decodable ? 0 : EIO);
    ecfs_reader_close (reader);
    counts->n_read += decodable;
    counts->n_refused += !decodable;
}

static unsigned n_sets (unsigned n, unsigned m)
{
    unsigned n_found = 0;
    for (uint32_t mask = 0; mask < 1u << n; mask++)
        n_found += (unsigned) __builtin_popcount (mask) <= m;
    return n_found;
}

static unsigned stride_of (unsigned n, unsigned m)
{
    if (SEGMENT_SAMPLE > 1)
        return 1 + n_sets (n, m) / 100;
    return g_strcmp0 (g_getenv ("ECFS_LOSSES"), "all") == 0 ? 1 : 1 + n_sets (n, m) / SETS_USUALLY;
}

static void read_without_every_set (Object *object, const Oracle *oracle, Counts *counts)
{
    unsigned n = object->store->n, m = n - ecfs_codec_k (object->store->codec), number = 0;
    unsigned stride = stride_of (n, m);
    bool lost[ECFS_CODEC_MAX_N];
    for (uint32_t mask = 0; mask < 1u << n; mask++) {
        if ((unsigned) __builtin_popcount (mask) > m || number++ % stride != 0)
            continue;
        segment_flags (mask, n, lost);
        read_without (object, oracle, lost, counts);
    }
}

static void read_without_random_sets (Object *object, const Oracle *oracle, Counts *counts)
{
    unsigned n = object->store->n, m = n - ecfs_codec_k (object->store->codec);
    for (unsigned round = 0; round < SETS_OF_LARGE; round++) {
        bool lost[ECFS_CODEC_MAX_N] = {false};
        segment_random_loss (n, 1 + round % m, lost);
        read_without (object, oracle, lost, counts);
    }
}

static void test_losses (gconstpointer code)
{
    Store store;
    Object object;
    Counts counts = {0};
    store_init (&store, "file", code, 0, MEMORY);
    unsigned k = ecfs_codec_k (store.codec), n = store.n;
    uint32_t segment_bytes = ecfs_layout_segment_bytes (1, k, ecfs_codec_granule (store.codec));
    object_init (&object, &store, segment_bytes + segment_bytes / 3 + 7, segment_bytes);
    g_assert_cmpint (object_write (&object, NULL), ==, 0);
    g_assert_cmpuint (object_n_stored (&object), ==, n);
    g_autoptr (Oracle) oracle = oracle_new (store.codec);
    if (n <= EXHAUSTIVE_N)
        read_without_every_set (&object, oracle, &counts);
    else
        read_without_random_sets (&object, oracle, &counts);
    g_test_message ("%s: %u sets, %u of them too much", (const char *) code, counts.n_read + counts.n_refused,
                    counts.n_refused);
    g_assert_cmpuint (counts.n_read, >, 0);
    g_assert_true (ecfs_codec_tolerance (store.codec) < n - k || counts.n_refused == 0);
    object_clear (&object);
    store_clear (&store);
}

static void add (const char *code)
{
    g_autofree char *path = g_strdup_printf ("/losses/%s", code);
    g_test_add_data_func (path, g_intern_string (code), test_losses);
}

int main (int argc, char **argv)
{
    static const char *const codes[] = {"copies:2",  "copies:3",    "copies:9", "rs:2+1",   "rs:4+2",    "rs:4+3",
                                        "rs:8+3",    "rs:8+6",      "rs:10+6",  "rs:20+8",  "basic:4+4", "basic:6+6",
                                        "basic:8+8", "basic:12+12", "ldpc:1+1", "ldpc:4+3", "ldpc:7+5"};
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* what is read around is told */
    for (size_t i = 0; i < G_N_ELEMENTS (codes); i++)
        add (codes[i]);
    for (size_t i = 0; i < ecfs_n_shipped_graphs; i++) {
        const EcfsShippedGraph *graph = &ecfs_shipped_graphs[i];
        g_autofree char *code = g_strdup_printf ("ldpc:%u+%u", graph->k, graph->m);
        if (graph->k + graph->m <= STORE_MAX_ENDPOINTS)
            add (code);
    }
    return g_test_run ();
}
