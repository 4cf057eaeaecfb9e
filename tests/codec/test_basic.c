/* The construction against the paper's formula in plain arithmetic, what it survives, and what its repairs read. */
#include "oracle.h"
#include "segment.h"

#include <string.h>

typedef struct Ring {
    unsigned p;
    uint8_t coefficients[17]; /* all p of them; their sum is zero */
} Ring;

static unsigned prime_above (unsigned number)
{
    for (;;) {
        bool prime = ++number > 1;
        for (unsigned i = 2; i < number; i++)
            prime = prime && number % i != 0;
        if (prime)
            return number;
    }
}

/* A byte of every part of a granule, as an element of the ring, its last coefficient worked out. */
static Ring load (const uint8_t *granule, unsigned p, unsigned byte)
{
    Ring element = {.p = p};
    for (unsigned i = 0; i + 1 < p; i++) {
        element.coefficients[i] = granule[i * 64 + byte];
        element.coefficients[p - 1] ^= element.coefficients[i];
    }
    return element;
}

/* P_i = sum over l of z^(l·i mod p) D_((i+l-1) mod k)+1, with i, and D, counted from 1. */
static Ring parity_of (const Segment *segment, unsigned i, unsigned byte)
{
    unsigned k = segment->k, h = k / 2, p = prime_above (h);
    Ring sum = {.p = p};
    for (unsigned l = 0; l < h; l++) {
        unsigned data = (i + l - 1) % k + 1, shift = l * i % p;
        Ring element = load (segment->packets[data - 1], p, byte);
        for (unsigned j = 0; j < p; j++)
            sum.coefficients[(j + shift) % p] ^= element.coefficients[j];
    }
    return sum;
}

static void test_formula (void)
{
    for (unsigned k = 4; k <= 32; k += 2) {
        g_autofree char *code = g_strdup_printf ("basic:%u+%u", k, k);
        g_autoptr (EcfsCodec) codec = segment_codec (code);
        unsigned p = prime_above (k / 2);
        g_assert_cmpuint (ecfs_codec_granule (codec), ==, (p - 1) * 64);
        g_autoptr (Segment) segment = segment_new (codec, (p - 1) * 64, SEGMENT_AT_END, 0);
        for (unsigned i = 1; i <= k; i++)
            for (unsigned byte = 0; byte < 64; byte += 7) {
                Ring expected = parity_of (segment, i, byte);
                Ring found = load (segment->packets[k + i - 1], p, byte);
                g_assert_cmpmem (&found, sizeof found, &expected, sizeof expected);
            }
    }
}

/* All loss sets of @n_lost packets that lose data for good. */
static unsigned count_fatal (const Oracle *oracle, bool *present, unsigned first, unsigned n_lost)
{
    if (n_lost == 0)
        return !oracle_decodable (oracle, present);
    unsigned n_fatal = 0;
    for (unsigned i = first; i + n_lost <= oracle->n; i++) {
        present[i] = false;
        n_fatal += count_fatal (oracle, present, i + 1, n_lost - 1);
        present[i] = true;
    }
    return n_fatal;
}

/* The paper says that any k of 2k packets rebuild all. What is true was counted: any K/2 losses, and these many sets of
 * one more are too many. */
static void test_tolerance (void)
{
    static const struct {
        unsigned k, n_fatal;
    } cases[] = {{4, 4}, {6, 7}, {8, 8}, {10, 19}};
    for (size_t i = 0; i < G_N_ELEMENTS (cases) - (SEGMENT_SAMPLE > 1); i++) {
        unsigned k = cases[i].k;
        g_autofree char *code = g_strdup_printf ("basic:%u+%u", k, k);
        g_autoptr (EcfsCodec) codec = segment_codec (code);
        g_autoptr (Oracle) oracle = oracle_new (codec);
        bool present[ECFS_CODEC_MAX_N];
        memset (present, true, sizeof present);
        g_assert_cmpuint (ecfs_codec_tolerance (codec), ==, k / 2);
        g_assert_cmpuint (count_fatal (oracle, present, 0, k / 2), ==, 0);
        g_assert_cmpuint (count_fatal (oracle, present, 0, k / 2 + 1), ==, cases[i].n_fatal);
    }
}

/* The counterexample: a data packet and the K/2 parity packets that have it. */
static void test_counterexample (void)
{
    for (unsigned k = 4; k <= 32; k += 2) {
        g_autofree char *code = g_strdup_printf ("basic:%u+%u", k, k);
        g_autoptr (EcfsCodec) codec = segment_codec (code);
        bool lost[ECFS_CODEC_MAX_N] = {[0] = true}, present[ECFS_CODEC_MAX_N];
        for (unsigned l = 0; l < k / 2; l++)
            lost[k + (k - l) % k] = true;
        for (unsigned i = 0; i < 2 * k; i++)
            present[i] = !lost[i];
        g_assert_false (ecfs_codec_decodable (codec, present));
        segment_cannot_survive (codec, lost);
        lost[k] = false;
        g_autoptr (Segment) segment = segment_new (codec, ecfs_codec_granule (codec), SEGMENT_AT_END, 0);
        segment_survives (segment, codec, lost);
    }
}

/* Any single loss is repaired from K/2 packets, the ones that cost least. */
static void test_repair (void)
{
    for (unsigned k = 4; k <= 32; k += 4) {
        g_autofree char *code = g_strdup_printf ("basic:%u+%u", k, k);
        g_autoptr (EcfsCodec) codec = segment_codec (code);
        g_autoptr (Segment) segment = segment_new (codec, 3 * ecfs_codec_granule (codec), SEGMENT_AT_END, 0);
        for (unsigned lost_index = 0; lost_index<2 * k; lost_index += k> 8 ? 3 : 1) {
            bool lost[ECFS_CODEC_MAX_N] = {[0] = false}, available[ECFS_CODEC_MAX_N];
            double cost[ECFS_CODEC_MAX_N];
            lost[lost_index] = true;
            for (unsigned i = 0; i < 2 * k; i++) {
                available[i] = !lost[i];
                cost[i] = 1;
            }
            for (unsigned round = 0; round < 2; round++) {
                g_autoptr (EcfsPlan) plan = ecfs_codec_plan_repair (codec, lost, available, cost, NULL);
                size_t n_reads;
                const EcfsPlanRead *reads = ecfs_plan_reads (plan, &n_reads);
                g_assert_cmpuint (n_reads, ==, k / 2);
                uint8_t *packets[ECFS_CODEC_MAX_N] = {0};
                segment_lose (segment, lost);
                packets[lost_index] = segment->work[lost_index];
                for (size_t i = 0; i < n_reads; i++) {
                    g_assert_cmpuint (reads[i].size, ==, ecfs_codec_granule (codec));
                    packets[reads[i].stripe] = segment->work[reads[i].stripe];
                    cost[reads[i].stripe] += lost_index < k && reads[i].stripe >= k ? 1000 : 0;
                    g_assert_true (round == 0 || cost[reads[i].stripe] < 2000);
                }
                ecfs_plan_run (plan, packets, segment->packet_bytes);
                segment_check (segment, lost);
            }
        }
    }
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/basic/parity-is-what-the-formula-says", test_formula);
    g_test_add_func ("/basic/any-half-of-k-losses-are-survived-and-some-sets-of-one-more-are-not", test_tolerance);
    g_test_add_func ("/basic/a-data-packet-and-its-parity-packets-are-too-much", test_counterexample);
    g_test_add_func ("/basic/a-lost-packet-comes-back-from-the-cheapest-half-of-k", test_repair);
    return g_test_run ();
}
