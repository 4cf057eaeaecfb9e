/* What every code keeps: one table row per code, the same tests for all. */
#include "oracle.h"
#include "rows.h"
#include "segment.h"

#include <string.h>

#define EXHAUSTIVE_N 16 /* up to here every set of losses is tried */

static void test_numbers (const void *data)
{
    const Row *row = data;
    g_autoptr (EcfsCodec) codec = segment_codec_by (row->code, row->provider);
    size_t parameters_bytes;
    const uint8_t *parameters = ecfs_codec_parameters (codec, &parameters_bytes);
    g_autoptr (EcfsCodec) same = ecfs_codec_new_for (row->family, row->k, row->n, parameters, parameters_bytes, NULL);
    g_autoptr (EcfsCodec) again = segment_codec (ecfs_codec_identity (codec));
    g_autofree char *small = ecfs_codec_small_code (codec);
    g_assert_cmpstr (ecfs_codec_code (codec), ==, row->code);
    g_assert_cmpstr (ecfs_codec_code (same), ==, row->code);
    g_assert_cmpstr (ecfs_codec_identity (same), ==, ecfs_codec_identity (codec));
    g_assert_cmpstr (ecfs_codec_identity (again), ==, ecfs_codec_identity (codec));
    g_assert_cmpuint (ecfs_codec_tolerance (same), ==, row->tolerance);
    g_assert_true (ecfs_codec_overhead (codec) >= 1);
    g_assert_true (ecfs_codec_overhead (codec) * row->k <= row->n);
    g_assert_cmpint (ecfs_codec_family (codec), ==, row->family);
    g_assert_cmpuint (ecfs_codec_k (codec), ==, row->k);
    g_assert_cmpuint (ecfs_codec_n (codec), ==, row->n);
    g_assert_cmpuint (ecfs_codec_tolerance (codec), ==, row->tolerance);
    g_assert_cmpuint (ecfs_codec_granule (codec), <=, 4096);
    g_assert_cmpstr (small, ==, row->small_code);
    g_autoptr (EcfsCodec) small_codec = segment_codec (small);
    g_assert_cmpuint (ecfs_codec_tolerance (small_codec), ==, MIN (row->tolerance, 31));
}

/* One loss set: the verdict, and the bytes. @guarantee as the oracle says; INT_MAX: it did not say. */
static void check_loss (const EcfsCodec *codec, Segment *segment, const bool *lost, bool decodable, int guarantee)
{
    bool present[ECFS_CODEC_MAX_N] = {0};
    for (unsigned i = 0; i < segment->n; i++)
        present[i] = !lost[i];
    g_assert_cmpint (ecfs_codec_decodable (codec, present), ==, decodable);
    if (guarantee != INT_MAX)
        g_assert_cmpint (ecfs_codec_guarantee (codec, present), ==, guarantee);
    if (decodable)
        segment_survives (segment, codec, lost);
    else
        segment_cannot_survive (codec, lost);
}

static unsigned n_set (uint32_t mask)
{
    return (unsigned) __builtin_popcount (mask);
}

/* Every set of up to m losses, against what the oracle knows of every set of packets. Guarantees take long to find out
 * where much is lost: few are. */
static void check_all_losses (const Row *row, const EcfsCodec *codec, const Oracle *oracle, Segment *segment)
{
    g_autofree int8_t *guarantees = oracle_guarantees (oracle);
    uint32_t all = (1u << row->n) - 1;
    bool lost[ECFS_CODEC_MAX_N] = {0};
    g_assert_cmpint (guarantees[all], ==, row->tolerance);
    for (uint32_t mask = 0; mask <= all; mask += mask < 64 ? 1 : SEGMENT_SAMPLE) {
        if (n_set (mask) > row->n - row->k + 1)
            continue;
        segment_flags (mask, row->n, lost);
        int guarantee = guarantees[all & ~mask];
        bool tell = oracle->parts == 0 || n_set (mask) < 2 || mask % 199 == 0;
        check_loss (codec, segment, lost, guarantee >= 0, tell ? guarantee : INT_MAX);
    }
}

static void test_losses (const void *data)
{
    const Row *row = data;
    g_autoptr (EcfsCodec) codec = segment_codec_by (row->code, row->provider);
    g_autoptr (Oracle) oracle = oracle_new (codec);
    g_autoptr (Segment) segment = segment_new (codec, 3 * ecfs_codec_granule (codec), SEGMENT_AT_END, 0);
    if (row->n <= EXHAUSTIVE_N) {
        check_all_losses (row, codec, oracle, segment);
        return;
    }
    unsigned n_rounds = MAX (2, (row->n <= 40 ? 40 : 4) / SEGMENT_SAMPLE);
    for (unsigned n_lost = 0; n_lost <= row->n - row->k + 1; n_lost += row->n <= 64 ? 1 : 1 + n_lost / 8)
        for (unsigned round = 0; round < n_rounds; round++) {
            bool lost[ECFS_CODEC_MAX_N] = {0}, present[ECFS_CODEC_MAX_N] = {0};
            segment_random_loss (row->n, n_lost, lost);
            for (unsigned i = 0; i < row->n; i++)
                present[i] = !lost[i];
            bool decodable = oracle_decodable (oracle, present);
            int guarantee = MAX ((int) (row->tolerance - n_lost), -1);
            g_assert_true (decodable || n_lost > row->tolerance);
            check_loss (codec, segment, lost, decodable, oracle->parts == 0 ? guarantee : INT_MAX);
            guarantee = ecfs_codec_guarantee (codec, present);
            g_assert_cmpint (guarantee >= 0, ==, decodable);
            g_assert_cmpint (guarantee, >=, (int) (row->tolerance - n_lost));
            g_assert_cmpint (guarantee, <=, MAX ((int) (row->n - row->k - n_lost), -1));
        }
}

/* Packets that end or begin at a forbidden page, also at odd addresses, in lengths around what kernels step by. */
static void test_edges (const void *data)
{
    static const size_t granules[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 63, 64, 65, 257};
    static const size_t shifts[] = {0, 1, 7, 33};
    const Row *row = data;
    g_autoptr (EcfsCodec) codec = segment_codec_by (row->code, row->provider);
    bool lost[ECFS_CODEC_MAX_N] = {0};
    for (size_t i = 0; i < G_N_ELEMENTS (granules) * G_N_ELEMENTS (shifts) * 2; i += row->n <= 16 ? 1 : 13) {
        size_t packet_bytes = granules[i / 2 / G_N_ELEMENTS (shifts)] * ecfs_codec_granule (codec);
        g_autoptr (Segment) segment = segment_new (codec, packet_bytes, i % 2 == 0 ? SEGMENT_AT_END : SEGMENT_AT_START,
                                                   shifts[i / 2 % G_N_ELEMENTS (shifts)]);
        segment_random_loss (row->n, row->tolerance, lost);
        segment_survives (segment, codec, lost);
    }
}

static void test_ranges (const void *data)
{
    const Row *row = data;
    g_autoptr (EcfsCodec) codec = segment_codec_by (row->code, row->provider);
    size_t granule = ecfs_codec_granule (codec), n_granules = 40;
    g_autoptr (Segment) segment = segment_new (codec, n_granules * granule, SEGMENT_AT_END, 0);
    bool lost[ECFS_CODEC_MAX_N] = {0}, present[ECFS_CODEC_MAX_N] = {0};
    segment_random_loss (row->n, row->tolerance, lost);
    for (unsigned i = 0; i < row->n; i++)
        present[i] = !lost[i];
    g_autoptr (EcfsPlan) plan = ecfs_codec_plan (codec, present, lost, NULL);
    segment_lose (segment, lost);
    for (size_t at = 0, step = 1; at < n_granules; at += step, step = step % 7 + 1) {
        step = MIN (step, n_granules - at);
        uint8_t *packets[ECFS_CODEC_MAX_N] = {0};
        for (unsigned i = 0; i < row->n; i++)
            packets[i] = segment->work[i] + at * granule;
        ecfs_plan_run (plan, packets, step * granule);
        ecfs_codec_encode (codec, (const uint8_t *const *) packets, packets + row->k, step * granule);
    }
    segment_check (segment, lost);
}

/* Every subset of parities for small codes, random ones for large: what is not asked for is not touched. */
static void test_some_parities (const void *data)
{
    const Row *row = data;
    unsigned m = row->n - row->k, n_subsets = m <= 6 ? 1u << m : 64;
    g_autoptr (EcfsCodec) codec = segment_codec_by (row->code, row->provider);
    g_autoptr (Segment) segment = segment_new (codec, 5 * ecfs_codec_granule (codec), SEGMENT_AT_END, 0);
    bool lost[ECFS_CODEC_MAX_N] = {0};
    for (unsigned subset = 0; subset < n_subsets; subset++) {
        uint8_t *parity[ECFS_CODEC_MAX_N] = {0};
        for (unsigned i = 0; i < m; i++)
            lost[row->k + i] = m <= 6 ? subset >> i & 1 : g_test_rand_bit ();
        segment_lose (segment, lost);
        for (unsigned i = row->k; i < row->n; i++)
            parity[i - row->k] = lost[i] ? segment->work[i] : NULL;
        ecfs_codec_encode (codec, (const uint8_t *const *) segment->work, parity, segment->packet_bytes);
        segment_check (segment, lost);
    }
}

/* With one packet wanted of several lost, exactly that is written; where any k packets do, from k sources, data before
 * parity. */
static void test_one_wanted (const void *data)
{
    const Row *row = data;
    g_autoptr (EcfsCodec) codec = segment_codec_by (row->code, row->provider);
    g_autoptr (Segment) segment = segment_new (codec, ecfs_codec_granule (codec), SEGMENT_AT_END, 0);
    bool any_k = row->family == ECFS_CODE_RS || row->family == ECFS_CODE_COPIES;
    bool lost[ECFS_CODEC_MAX_N] = {0}, present[ECFS_CODEC_MAX_N] = {0};
    for (unsigned wanted = 0; wanted < row->n && row->tolerance > 0; wanted++) {
        do
            segment_random_loss (row->n, (unsigned) g_test_rand_int_range (1, (gint32) row->tolerance + 1), lost);
        while (!lost[wanted]);
        bool only[ECFS_CODEC_MAX_N] = {[0] = false};
        only[wanted] = true;
        unsigned n_sources = 0, data_left = 0, parity_used = 0;
        for (unsigned i = 0; i < row->n; i++)
            present[i] = !lost[i];
        g_autoptr (EcfsPlan) plan = ecfs_codec_plan (codec, present, only, NULL);
        for (unsigned i = 0; i < row->n; i++) {
            bool used = ecfs_plan_sources (plan)[i];
            g_assert_true (present[i] || !used);
            n_sources += used;
            data_left += i < row->k && present[i] && !used;
            parity_used += i >= row->k && used;
        }
        g_assert_cmpuint (n_sources, <=, any_k ? row->k : row->n - 1);
        if (any_k) {
            g_assert_cmpuint (n_sources, ==, row->k);
            g_assert_true (data_left == 0 || parity_used == 0);
        }
        segment_lose (segment, only);
        ecfs_plan_run (plan, segment->work, segment->packet_bytes);
        segment_check (segment, only);
    }
}

static double cost_of (const bool *sources, const double *cost, unsigned n)
{
    double sum = 0;
    for (unsigned i = 0; i < n; i++)
        sum += sources[i] ? cost[i] : 0;
    return sum;
}

/* The least cost of a set of available packets that determines those wanted: all sets are tried. */
static double least_cost (const EcfsCodec *codec, const bool *wanted, const bool *available, const double *cost)
{
    unsigned n = ecfs_codec_n (codec);
    double least = G_MAXDOUBLE;
    for (uint32_t mask = 0; mask < 1u << n; mask++) {
        bool sources[ECFS_CODEC_MAX_N] = {false}, fits = true;
        for (unsigned i = 0; i < n; i++) {
            sources[i] = mask >> i & 1;
            fits = fits && (available[i] || !sources[i]);
        }
        double sum = cost_of (sources, cost, n);
        if (fits && sum < least && ecfs_codec_determines (codec, sources, wanted))
            least = sum;
    }
    return least;
}

/* A repair reads what is available, the cheapest first, nothing without which it would do, and gives the bytes back
 * from that alone. */
static void check_repair (const EcfsCodec *codec, Segment *segment, const bool *lost, const bool *available,
                          const double *cost)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsPlan) plan = ecfs_codec_plan_repair (codec, lost, available, cost, &error);
    g_assert_no_error (error);
    size_t n_reads;
    const EcfsPlanRead *reads = ecfs_plan_reads (plan, &n_reads);
    bool sources[ECFS_CODEC_MAX_N] = {false};
    uint8_t *packets[ECFS_CODEC_MAX_N] = {0};
    segment_lose (segment, lost);
    for (unsigned i = 0; i < segment->n; i++)
        packets[i] = lost[i] ? segment->work[i] : NULL;
    for (size_t i = 0; i < n_reads; i++) {
        unsigned stripe = reads[i].stripe;
        g_assert_true (available[stripe] && !sources[stripe] && ecfs_plan_sources (plan)[stripe]);
        g_assert_true (i == 0 || cost[reads[i - 1].stripe] <= cost[stripe]);
        g_assert_cmpuint (reads[i].offset + reads[i].size, <=, ecfs_codec_granule (codec));
        sources[stripe] = true;
        packets[stripe] = segment->work[stripe];
    }
    for (size_t i = 0; i < n_reads; i++) {
        sources[reads[i].stripe] = false;
        g_assert_false (ecfs_codec_determines (codec, sources, lost));
        sources[reads[i].stripe] = true;
    }
    ecfs_plan_run (plan, packets, segment->packet_bytes);
    segment_check (segment, lost);
}

static void test_repairs (const void *data)
{
    const Row *row = data;
    g_autoptr (EcfsCodec) codec = segment_codec_by (row->code, row->provider);
    g_autoptr (Segment) segment = segment_new (codec, ecfs_codec_granule (codec), SEGMENT_AT_END, 0);
    bool any_k = row->family == ECFS_CODE_RS || row->family == ECFS_CODE_COPIES;
    for (unsigned round = 0; round < (row->n > 64 ? 4u : 20u) && row->tolerance > 0; round++) {
        bool lost[ECFS_CODEC_MAX_N], available[ECFS_CODEC_MAX_N], sources[ECFS_CODEC_MAX_N];
        double cost[ECFS_CODEC_MAX_N];
        unsigned n_lost = round % 2 == 0 ? 1 : 1 + (unsigned) g_test_rand_int_range (0, (gint32) row->tolerance);
        segment_random_loss (row->n, n_lost, lost);
        for (unsigned i = 0; i < row->n; i++) {
            available[i] = !lost[i];
            cost[i] = g_test_rand_double_range (1, 3);
        }
        check_repair (codec, segment, lost, available, cost);
        if (row->n > 14)
            continue;
        g_assert_true (ecfs_codec_choose (codec, lost, available, cost, sources));
        double least = least_cost (codec, lost, available, cost);
        bool exact = any_k || (row->family == ECFS_CODE_LDPC && n_lost == 1);
        g_assert_cmpfloat (cost_of (sources, cost, row->n), <=, least * (exact ? 1.0000001 : 2));
    }
}

static void test_hopeless_repair (const void *data)
{
    const Row *row = data;
    g_autoptr (EcfsCodec) codec = segment_codec_by (row->code, row->provider);
    bool lost[ECFS_CODEC_MAX_N], available[ECFS_CODEC_MAX_N], sources[ECFS_CODEC_MAX_N];
    double cost[ECFS_CODEC_MAX_N] = {0};
    segment_random_loss (row->n, row->n - row->k + 1, lost);
    for (unsigned i = 0; i < row->n; i++)
        available[i] = !lost[i];
    g_autoptr (GError) error = NULL;
    g_assert_null (ecfs_codec_plan_repair (codec, lost, available, NULL, &error));
    g_assert_error (error, ECFS_ERROR, ENODATA);
    g_assert_false (ecfs_codec_choose (codec, lost, available, cost, sources));
}

static void test_nothing_wanted (const void *data)
{
    const Row *row = data;
    g_autoptr (EcfsCodec) codec = segment_codec_by (row->code, row->provider);
    static const bool none[ECFS_CODEC_MAX_N];
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsPlan) plan = ecfs_codec_plan (codec, none, none, &error);
    g_assert_no_error (error);
    uint8_t *packets[ECFS_CODEC_MAX_N] = {0};
    ecfs_plan_run (plan, packets, ecfs_codec_granule (codec));
    for (unsigned i = 0; i < row->n; i++)
        g_assert_false (ecfs_plan_sources (plan)[i]);
}

static void test_bad_texts (void)
{
    static const char *const texts[] = {
        "",
        "rs",
        ":",
        "rs:",
        "rs:4",
        "rs:4+",
        "rs:+2",
        "rs:4+2x",
        "rs:4+2 ",
        " rs:4+2",
        "rs: 4+2",
        "rs:4++2",
        "rs:4+-2",
        "rs:04+2",
        "rs:4+2+1",
        "rs:0+3",
        "rs:4+0",
        "rs:30+3",
        "rs:32+1",
        "rs:999+999",
        "rs:1000+1",
        "rs:4294967300+2",
        "RS:4+2",
        "xor:4+1",
        "rs,4+2",
        "rsx:4+2",
        "copies:0",
        "copies:33",
        "copies:",
        "copies:3+1",
        "copies:-1",
        "copies:3 ",
        "copies:0x3",
        "copies",
        "ldpc",
        "\n\xff:1",
        "rs:\xd9\xa4+2",
        "ldpc:0+3",
        "ldpc:8+0",
        "ldpc:129+3",
        "ldpc:3+129",
        "ldpc:8+6+1",
        "ldpc:8",
        "xor:4+2",
        "xor:3+5",
        "xor:11+5",
        "xor:5+6",
        "xor:21+6",
        "xor:6+7",
        "basic:7+7",
        "basic:2+2",
        "basic:34+34",
        "basic:8+6",
        "basic:8",
        "basic:0+0",
        "rs:4+2/",
        "rs:4+2/x",
        "ldpc:8+6/",
        "ldpc:8+6/12",
        "ldpc:8+6/0123456789abcdeX",
        "ldpc:8+6/0123456789abcdef0",
        "ldpc:8+6/0123456789ABCDEF",
    };
    for (size_t i = 0; i < G_N_ELEMENTS (texts); i++) {
        g_autoptr (GError) error = NULL;
        g_autoptr (EcfsCodec) codec = ecfs_codec_new (texts[i], &error);
        if (codec != NULL)
            g_error ("\"%s\" was taken for a code", texts[i]);
        g_assert_error (error, ECFS_ERROR, EINVAL);
        g_assert_true (g_utf8_validate (error->message, -1, NULL));
        g_assert_null (ecfs_codec_new (texts[i], NULL));
    }
    g_autofree char *endless = g_strnfill (100000, '7');
    g_autoptr (GError) error = NULL;
    g_assert_null (ecfs_codec_new (endless, &error));
    g_assert_cmpuint (strlen (error->message), <, 400);
}

static void test_bad_numbers (void)
{
    static const struct {
        unsigned family, k, n;
    } cases[] = {{0, 1, 1},
                 {6, 4, 6},
                 {UINT_MAX, 4, 6},
                 {ECFS_CODE_RS, 0, 0},
                 {ECFS_CODE_RS, 0, 3},
                 {ECFS_CODE_RS, 4, 4},
                 {ECFS_CODE_RS, 6, 4},
                 {ECFS_CODE_RS, 30, 33},
                 {ECFS_CODE_RS, UINT_MAX, 1},
                 {ECFS_CODE_RS, 1, UINT_MAX},
                 {ECFS_CODE_RS, UINT_MAX - 1, UINT_MAX},
                 {ECFS_CODE_COPIES, 0, 3},
                 {ECFS_CODE_COPIES, 2, 3},
                 {ECFS_CODE_COPIES, 1, 0},
                 {ECFS_CODE_COPIES, 1, 33},
                 {ECFS_CODE_COPIES, 1, UINT_MAX},
                 {ECFS_CODE_LDPC, 0, 3},
                 {ECFS_CODE_LDPC, 4, 4},
                 {ECFS_CODE_LDPC, 129, 130},
                 {ECFS_CODE_LDPC, 1, 130},
                 {ECFS_CODE_LDPC, UINT_MAX, 2},
                 {ECFS_CODE_XOR, 0, 5},
                 {ECFS_CODE_XOR, 4, 6},
                 {ECFS_CODE_XOR, UINT_MAX - 4, 1},
                 {ECFS_CODE_BASIC, 7, 14},
                 {ECFS_CODE_BASIC, 8, 14},
                 {ECFS_CODE_BASIC, 2, 4},
                 {ECFS_CODE_BASIC, 34, 68},
                 {ECFS_CODE_BASIC, 0x80000004u, 8}};
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        g_autoptr (GError) error = NULL;
        g_assert_null (ecfs_codec_new_for ((EcfsCodeFamily) cases[i].family, cases[i].k, cases[i].n, NULL, 0, &error));
        g_assert_error (error, ECFS_ERROR, EINVAL);
    }
}

/* What adding parity to stored stripes relies on. */
static void test_shared_stripes (void)
{
    static const struct {
        const char *one, *other;
        bool shared;
    } pairs[] = {
        {"rs:4+2", "rs:4+3", true},     {"rs:8+1", "rs:8+24", true},    {"copies:1", "copies:5", true},
        {"ldpc:8+6", "ldpc:8+6", true}, {"rs:4+2", "rs:5+2", false},    {"ldpc:8+6", "ldpc:8+5", false},
        {"rs:1+2", "copies:3", false},  {"basic:4+4", "rs:4+4", false}, {"basic:4+4", "basic:4+4", true},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (pairs); i++) {
        g_autoptr (EcfsCodec) one = segment_codec (pairs[i].one), other = segment_codec (pairs[i].other);
        g_assert_true (ecfs_codec_shares_stripes (one, other) == pairs[i].shared);
        g_assert_true (ecfs_codec_shares_stripes (other, one) == pairs[i].shared);
        if (!pairs[i].shared)
            continue;
        g_autoptr (Segment) segment = segment_new (other, 64 * ecfs_codec_granule (other), SEGMENT_AT_END, 0);
        bool lost[ECFS_CODEC_MAX_N] = {0};
        for (unsigned s = ecfs_codec_k (one); s < ecfs_codec_n (one); s++)
            lost[s] = true;
        segment_lose (segment, lost);
        ecfs_codec_encode (one, (const uint8_t *const *) segment->work, segment->work + ecfs_codec_k (one),
                           segment->packet_bytes);
        segment_check (segment, lost);
    }
}

static void test_null_frees (void)
{
    ecfs_codec_free (NULL);
    ecfs_plan_free (NULL);
}

static void add_row (const Row *row)
{
    static const struct {
        const char *name;
        void (*test) (const void *row);
    } tests[] = {
        {"has-the-numbers-its-text-says", test_numbers},
        {"survives-exactly-what-it-promises", test_losses},
        {"stays-within-its-buffers", test_edges},
        {"gives-ranges-the-same-bytes-as-the-whole", test_ranges},
        {"encodes-only-the-parities-asked-for", test_some_parities},
        {"decodes-only-what-is-wanted-from-k-packets", test_one_wanted},
        {"repairs-from-cheap-packets", test_repairs},
        {"refuses-repairs-that-nothing-makes-possible", test_hopeless_repair},
        {"plans-nothing-when-nothing-is-wanted", test_nothing_wanted},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (tests); i++) {
        g_autofree char *path = codec_test_path (row, tests[i].name);
        g_test_add_data_func (path, row, tests[i].test);
    }
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/codec/texts-that-are-no-code-are-refused-in-a-sentence", test_bad_texts);
    g_test_add_func ("/codec/numbers-that-are-no-code-are-refused", test_bad_numbers);
    g_test_add_func ("/codec/parity-is-added-without-touching-what-is-stored", test_shared_stripes);
    g_test_add_func ("/codec/null-may-be-freed", test_null_frees);
    for (size_t i = 0; i < codec_n_rows; i++)
        add_row (&codec_rows[i]);
    return g_test_run ();
}
