/* Graphs: what a descriptor may hold, what is shipped, and what the figures in the table are worth. */
#include "codec/codec_priv.h"
#include "codec/graph.h"
#include "oracle.h"
#include "segment.h"

#include <math.h>
#include <string.h>

static EcfsCodec *codec_of (unsigned k, unsigned m)
{
    g_autofree char *code = g_strdup_printf ("ldpc:%u+%u", k, m);
    return segment_codec (code);
}

/* Parity packets are what the graph in the descriptor says. */
static void test_encoding (void)
{
    static const unsigned sizes[][2] = {{1, 1}, {8, 6}, {20, 20}, {7, 30}, {100, 28}, {128, 128}};
    for (size_t i = 0; i < G_N_ELEMENTS (sizes); i++) {
        unsigned k = sizes[i][0];
        g_autoptr (EcfsCodec) codec = codec_of (k, sizes[i][1]);
        g_autoptr (Segment) segment = segment_new (codec, 128, SEGMENT_AT_END, 0);
        size_t size, at = 0;
        const uint8_t *graph = ecfs_codec_parameters (codec, &size);
        for (unsigned parity = k; parity < segment->n; parity++) {
            uint8_t expected[128] = {0};
            for (unsigned n_members = graph[at++]; n_members > 0; n_members--, at++)
                for (unsigned byte = 0; byte < 128; byte++)
                    expected[byte] ^= segment->packets[graph[at]][byte];
            g_assert_cmpmem (segment->packets[parity], 128, expected, 128);
        }
        g_assert_cmpuint (at, ==, size);
    }
}

static int new_for (unsigned k, unsigned m, const uint8_t *bytes, size_t size)
{
    g_autofree uint8_t *exact = g_memdup2 (bytes, size); /* so that a sanitizer sees its end */
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsCodec) codec = ecfs_codec_new_for (ECFS_CODE_LDPC, k, k + m, exact, size, &error);
    g_assert_true ((codec == NULL) == (error != NULL));
    return ecfs_errno (error);
}

static void test_bad_graphs (void)
{
    static const struct {
        uint8_t bytes[9];
        uint8_t size;
    } bad[] = {
        {{2, 0, 1, 2, 1, 2}, 5},       /* ends in the middle */
        {{2, 0, 1, 2, 1, 2, 0}, 7},    /* a byte too many */
        {{2, 0, 1}, 3},                /* one parity packet only */
        {{0, 3, 0, 1, 2}, 5},          /* no members */
        {{2, 1, 0, 2, 1, 2}, 6},       /* unsorted */
        {{2, 1, 1, 3, 0, 1, 2}, 7},    /* twice the same */
        {{2, 0, 3, 2, 1, 2}, 6},       /* no such data packet */
        {{4, 0, 1, 2, 2, 2, 1, 2}, 8}, /* more members than data packets */
        {{255, 0, 1, 2, 1, 2}, 6},     /* huge */
        {{2, 0, 1, 2, 0, 1}, 6},       /* a data packet without parity */
        {{0}, 0},
    };
    static const uint8_t good[] = {2, 0, 1, 2, 1, 2};
    g_assert_cmpint (new_for (3, 2, good, sizeof good), ==, 0);
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++)
        g_assert_cmpint (new_for (3, 2, bad[i].bytes, bad[i].size), ==, EBADMSG);
    g_autofree uint8_t *huge = g_malloc0 (1 << 20);
    g_assert_cmpint (new_for (128, 128, huge, 1 << 20), ==, EBADMSG);
    memset (huge, 0xff, 1 << 20);
    g_assert_cmpint (new_for (128, 128, huge, 1 << 20), ==, EBADMSG);
}

static void test_damaged_graphs (void)
{
    g_autoptr (EcfsCodec) codec = codec_of (8, 6);
    size_t size;
    const uint8_t *graph = ecfs_codec_parameters (codec, &size);
    for (size_t at = 0; at < size; at++) {
        g_assert_cmpint (new_for (8, 6, graph, at), ==, EBADMSG);
        for (unsigned bit = 0; bit < 8; bit++) {
            g_autofree uint8_t *damaged = g_memdup2 (graph, size);
            damaged[at] ^= (uint8_t) (1 << bit);
            g_autoptr (EcfsCodec) other = ecfs_codec_new_for (ECFS_CODE_LDPC, 8, 14, damaged, size, NULL);
            if (other != NULL) /* some other graph: never taken for this one */
                g_assert_cmpstr (ecfs_codec_identity (other), !=, ecfs_codec_identity (codec));
        }
    }
}

static void test_identity (void)
{
    g_autoptr (EcfsCodec) codec = codec_of (8, 6);
    g_autoptr (GError) error = NULL, wrong = NULL;
    g_assert_null (ecfs_codec_new ("ldpc:8+6/0123456789abcdef", &error));
    g_assert_error (error, ECFS_ERROR, ESTALE);
    size_t size;
    const uint8_t *graph = ecfs_codec_parameters (codec, &size);
    g_autoptr (EcfsCodec) same = ecfs_codec_new_with (ecfs_codec_identity (codec), graph, size, NULL);
    g_assert_cmpstr (ecfs_codec_identity (same), ==, ecfs_codec_identity (codec));
    g_assert_null (ecfs_codec_new_with ("ldpc:8+6/0123456789abcdef", graph, size, &wrong));
    g_assert_error (wrong, ECFS_ERROR, EBADMSG);
}

/* A graph that no table knows: what is promised of it is proved when it is loaded. */
static void test_foreign_graph (void)
{
    static const uint8_t graph[] = {2, 0, 1, 2, 1, 2, 2, 0, 2}; /* a triangle: any two losses */
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsCodec) codec = ecfs_codec_new_for (ECFS_CODE_LDPC, 3, 6, graph, sizeof graph, &error);
    g_assert_no_error (error);
    g_autoptr (Oracle) oracle = oracle_new (codec);
    g_autofree int8_t *guarantees = oracle_guarantees (oracle);
    g_assert_cmpuint (ecfs_codec_tolerance (codec), ==, 2);
    g_assert_cmpint (guarantees[63], ==, 2);
    g_assert_cmpfloat_with_epsilon (ecfs_codec_overhead (codec), 1.0667, 0.05);
}

/* Any k and m has a graph, the same each time, and at least one loss is survived. */
static void test_every_size (void)
{
    for (unsigned k = 1; k <= 128; k += 1 + k / 4)
        for (unsigned m = 1; m <= 128; m += 1 + m / 4) {
            g_autoptr (EcfsCodec) codec = codec_of (k, m), again = codec_of (k, m);
            g_assert_cmpstr (ecfs_codec_identity (codec), ==, ecfs_codec_identity (again));
            g_assert_cmpuint (ecfs_codec_tolerance (codec), >=, 1);
            g_assert_cmpuint (ecfs_codec_tolerance (codec), <=, m);
        }
}

/* The tolerance of graphs that are made is proved by sums of rows; counting losses says the same. */
static void test_made_tolerance (void)
{
    for (unsigned k = 1; k <= 8; k++)
        for (unsigned m = 1; m <= 8 && k + m <= 12; m++) {
            g_autoptr (EcfsCodec) codec = codec_of (k, m);
            g_autoptr (Oracle) oracle = oracle_new (codec);
            g_autofree int8_t *guarantees = oracle_guarantees (oracle);
            g_assert_cmpint (ecfs_codec_tolerance (codec), ==, guarantees[(1 << (k + m)) - 1]);
        }
}

/* Shipped graphs */

/* Number of loss sets of each size that the graph survives: those whose columns of the check matrix are independent. */
static void count_survived (const uint64_t *checks, unsigned n, unsigned first, const uint64_t *basis, unsigned n_lost,
                            unsigned max_lost, uint64_t *survived)
{
    survived[n_lost]++;
    for (unsigned i = first; i < n && n_lost < max_lost; i++) {
        uint64_t column = checks[i], next[64];
        for (unsigned j = 0; j < n_lost; j++)
            column = MIN (column, column ^ basis[j]);
        if (column == 0)
            continue;
        memcpy (next, basis, n_lost * sizeof *basis);
        next[n_lost] = column;
        count_survived (checks, n, i + 1, next, n_lost + 1, max_lost, survived);
    }
}

static double binomial (unsigned n, unsigned k)
{
    double sets = 1;
    for (unsigned i = 0; i < k; i++)
        sets = sets * (n - i) / (i + 1);
    return sets;
}

#define EXHAUSTIVE_SETS 3e7

/* All loss sets up to tolerance + 1 where that is feasible, and f from all loss sets where that is. */
static void check_shipped (const EcfsShippedGraph *shipped)
{
    EcfsGraph graph;
    ecfs_graph_from_shipped (shipped, &graph);
    unsigned n = graph.k + graph.m, t = shipped->tolerance;
    bool all = binomial (n, graph.m) < 1e6;
    uint64_t checks[2 * ECFS_GRAPH_MAX], survived[ECFS_GRAPH_MAX + 1] = {0};
    if (graph.m > 64 || binomial (n, t + 1) > EXHAUSTIVE_SETS / SEGMENT_SAMPLE)
        return;
    for (unsigned i = 0; i < n; i++)
        checks[i] = i < graph.k ? graph.columns[i][0] : UINT64_C (1) << (i - graph.k);
    count_survived (checks, n, 0, checks, 0, all ? graph.m : t + 1, survived);
    double extra = 0;
    for (unsigned n_lost = 0; n_lost <= graph.m; n_lost++) {
        bool any = survived[n_lost] == (uint64_t) llround (binomial (n, n_lost));
        if (n_lost <= t + shipped->exact)
            g_assert_cmpint (any, ==, n_lost <= t);
        extra += 1 - (double) survived[n_lost] / binomial (n, n_lost);
    }
    if (all)
        g_assert_cmpfloat_with_epsilon (shipped->overhead, 1 + extra / graph.k, 0.00006);
}

static void test_shipped (void)
{
    for (size_t i = 0; i < ecfs_n_shipped_graphs; i++) {
        const EcfsShippedGraph *shipped = &ecfs_shipped_graphs[i];
        g_autoptr (EcfsCodec) codec = codec_of (shipped->k, shipped->m);
        g_assert_cmpuint (ecfs_codec_tolerance (codec), ==, shipped->tolerance);
        g_assert_cmpfloat (ecfs_codec_overhead (codec), ==, shipped->overhead);
        check_shipped (shipped);
    }
}

/* Beyond what can be counted: sums of rows, as many as take a moment, refute nothing and prove the smaller ones. */
static void test_shipped_distance (void)
{
    for (size_t i = 0; i < ecfs_n_shipped_graphs; i++) {
        const EcfsShippedGraph *shipped = &ecfs_shipped_graphs[i];
        EcfsGraph graph;
        ecfs_graph_from_shipped (shipped, &graph);
        EcfsDistance distance = ecfs_graph_distance (&graph, 20000000 / SEGMENT_SAMPLE);
        g_assert_cmpuint (distance.at_most, >, shipped->tolerance);
        if (graph.k + graph.m <= 40)
            g_assert_cmpuint (distance.at_least, ==, shipped->tolerance + 1u);
        if (shipped->exact && distance.at_least == distance.at_most)
            g_assert_cmpuint (distance.at_most, ==, shipped->tolerance + 1u);
    }
}

static void test_targets (void)
{
    static const struct {
        const char *code;
        unsigned tolerance;
        double overhead;
    } targets[] = {{"ldpc:5+5", 3, 1.0699}, {"ldpc:8+6", 3, 1.075},   {"ldpc:10+10", 5, 1.092},
                   {"ldpc:20+20", 8, 1.07}, {"ldpc:50+50", 17, 1.04}, {"ldpc:100+100", 19, 1.03}};
    for (size_t i = 0; i < G_N_ELEMENTS (targets); i++) {
        g_autoptr (EcfsCodec) codec = segment_codec (targets[i].code);
        g_assert_cmpuint (ecfs_codec_tolerance (codec), >=, targets[i].tolerance);
        g_assert_cmpfloat (ecfs_codec_overhead (codec), <=, targets[i].overhead);
    }
}

/* Whether the packets of a set determine five data packets, each packet being a sum of those in its bits. */
static bool determines_five (const unsigned *packets, unsigned set)
{
    unsigned reduced[5] = {0}, n_found = 0;
    for (unsigned i = 0; i < 10; i++) {
        unsigned sum = (set >> i & 1) != 0 ? packets[i] : 0;
        for (unsigned bit = 5; bit-- > 0 && sum != 0;) {
            if ((sum >> bit & 1) == 0)
                continue;
            if (reduced[bit] == 0) {
                reduced[bit] = sum;
                n_found++;
                break;
            }
            sum ^= reduced[bit];
        }
    }
    return n_found == 5;
}

/* f of ten packets any seven of which must do; infinity where they do not. */
static double overhead_of_ten (const unsigned *packets)
{
    unsigned n_good[11] = {0}, n_sets[11] = {0};
    for (unsigned set = 0; set < 1u << 10; set++)
        if (__builtin_popcount (set) == 7 && !determines_five (packets, set))
            return INFINITY;
    for (unsigned set = 0; set < 1u << 10; set++) {
        n_sets[__builtin_popcount (set)]++;
        n_good[__builtin_popcount (set)] += determines_five (packets, set) ? 1 : 0;
    }
    double expected = 0;
    for (unsigned n = 0; n < 10; n++)
        expected += 1 - (double) n_good[n] / n_sets[n];
    return expected / 5;
}

/* What ldpc:5+5 misses of 1.069 no other code of five and five that survives any three losses has either: all are
 * tried, up to the order of the parity packets. */
static void test_best_of_five (void)
{
    unsigned packets[10] = {1, 2, 4, 8, 16};
    unsigned *parity = packets + 5;
    double best = INFINITY;
    for (parity[0] = 1; parity[0] < 32; parity[0]++)
        for (parity[1] = parity[0]; parity[1] < 32; parity[1]++)
            for (parity[2] = parity[1]; parity[2] < 32; parity[2]++)
                for (parity[3] = parity[2]; parity[3] < 32; parity[3]++)
                    for (parity[4] = parity[3]; parity[4] < 32; parity[4]++)
                        best = MIN (best, overhead_of_ten (packets));
    g_autoptr (EcfsCodec) codec = segment_codec ("ldpc:5+5");
    g_assert_cmpfloat_with_epsilon (ecfs_codec_overhead (codec), best, 5e-5); /* the table has four digits */
}

/* Who skips packets that those at hand determine takes exactly k of them, in whatever order they come. */
static void test_selection (void)
{
    static const unsigned sizes[][2] = {{5, 5}, {8, 6}, {20, 20}, {50, 50}, {100, 100}, {31, 9}};
    for (size_t i = 0; i < G_N_ELEMENTS (sizes); i++) {
        unsigned k = sizes[i][0], n = k + sizes[i][1], n_orders = n > 100 ? 3 : 30;
        g_autoptr (EcfsCodec) codec = codec_of (k, sizes[i][1]);
        for (unsigned round = 0; round < n_orders; round++) {
            bool had[ECFS_CODEC_MAX_N] = {false}, seen[ECFS_CODEC_MAX_N] = {false};
            unsigned n_taken = 0;
            for (unsigned n_seen = 0; n_seen < n; n_seen++) {
                unsigned packet = (unsigned) g_test_rand_int_range (0, (gint32) n);
                while (seen[packet])
                    packet = (packet + 1) % n;
                seen[packet] = true;
                bool wanted[ECFS_CODEC_MAX_N] = {false};
                wanted[packet] = true;
                if (ecfs_codec_determines (codec, had, wanted))
                    continue;
                had[packet] = true;
                n_taken++;
            }
            g_assert_true (ecfs_codec_decodable (codec, had));
            g_assert_cmpuint (n_taken, ==, k);
        }
    }
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/ldpc/parity-is-what-the-graph-says", test_encoding);
    g_test_add_func ("/ldpc/bad-graphs-are-refused", test_bad_graphs);
    g_test_add_func ("/ldpc/damaged-graphs-are-refused-or-other-graphs", test_damaged_graphs);
    g_test_add_func ("/ldpc/an-identity-with-another-graph-is-not-guessed", test_identity);
    g_test_add_func ("/ldpc/a-graph-of-strangers-is-judged-by-itself", test_foreign_graph);
    g_test_add_func ("/ldpc/every-k-and-m-has-one-graph", test_every_size);
    g_test_add_func ("/ldpc/what-made-graphs-promise-is-what-they-survive", test_made_tolerance);
    g_test_add_func ("/ldpc/what-shipped-graphs-promise-is-what-they-survive", test_shipped);
    g_test_add_func ("/ldpc/no-sum-of-rows-refutes-a-shipped-graph", test_shipped_distance);
    g_test_add_func ("/ldpc/the-shipped-graphs-reach-their-targets", test_targets);
    g_test_add_func ("/ldpc/none-of-five-and-five-is-better", test_best_of_five);
    g_test_add_func ("/ldpc/selection-takes-exactly-k-packets", test_selection);
    return g_test_run ();
}
