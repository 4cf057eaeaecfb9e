/* What codes survive: against closed forms, and against every set of what the codes encode. */
#include "codec/survival.h"
#include "oracle.h"

#include <math.h>
#include <string.h>

static EcfsCodec *codec_of (const char *code)
{
    GError *error = NULL;
    EcfsCodec *codec = ecfs_codec_new_modelled (code, &error);
    g_assert_no_error (error);
    return codec;
}

static EcfsFailure failure_at (const char *code, double availability)
{
    g_autoptr (EcfsCodec) codec = codec_of (code);
    EcfsSurvival survival;
    double same[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < ECFS_CODEC_MAX_N; i++)
        same[i] = availability;
    ecfs_survival_count (codec, NULL, ECFS_SURVIVAL_SAMPLED, 1, &survival);
    return ecfs_survival_failure (&survival, same);
}

static double choose (unsigned n, unsigned i)
{
    return exp (lgamma (n + 1.0) - lgamma (i + 1.0) - lgamma (n - i + 1.0));
}

static void expect_near (double value, double expected, double relative)
{
    g_test_message ("%.9g, expected %.9g", value, expected);
    g_assert_cmpfloat (fabs (value - expected), <=, relative * fabs (expected) + 1e-300);
}

/* P = Σ_{i > m} C(n, i) q^i a^(n - i) */
static double closed_form (unsigned n, unsigned m, double availability)
{
    double sum = 0;
    for (unsigned i = m + 1; i <= n; i++)
        sum += choose (n, i) * pow (1 - availability, i) * pow (availability, n - i);
    return sum;
}

static void test_closed_forms (void)
{
    expect_near (failure_at ("rs:8+3", 0.95).probability, closed_form (11, 3, 0.95), 1e-9);
    expect_near (failure_at ("rs:4+2", 0.99).probability, closed_form (6, 2, 0.99), 1e-9);
    expect_near (failure_at ("copies:3", 0.9).probability, 1e-3, 1e-9);
    expect_near (failure_at ("mds:100+100", 0.6).probability, closed_form (200, 100, 0.6), 1e-6);
    g_assert_cmpfloat (failure_at ("rs:8+3", 0.95).error, ==, 0);
}

static void test_certain_endpoints (void)
{
    static const char *const codes[] = {"rs:4+2", "ldpc:8+6", "basic:4+4", "copies:2", "ldpc:20+20"};
    for (size_t i = 0; i < G_N_ELEMENTS (codes); i++) {
        g_assert_cmpfloat (failure_at (codes[i], 1).probability, ==, 0);
        g_assert_cmpfloat (failure_at (codes[i], 0).probability, ==, 1);
    }
}

/* Whether peeling gives all data: each parity packet that lacks one member gives it, as often as one does. */
static bool peels (const Oracle *oracle, const bool *present)
{
    uint64_t missing = 0;
    for (unsigned i = 0; i < oracle->k; i++)
        missing |= present[i] ? 0 : UINT64_C (1) << i;
    for (bool moved = true; moved;) {
        moved = false;
        for (unsigned i = oracle->k; i < oracle->n; i++) {
            uint64_t lacks = present[i] ? oracle->rows[i][0] & missing : 0;
            if (lacks == 0 || (lacks & (lacks - 1)) != 0)
                continue;
            missing &= ~lacks;
            moved = true;
        }
    }
    return missing == 0;
}

/* Looks at every set of stripes, without the decoder: the shares that lose data, by weight. */
static void ask_all (const char *code, const double *availability, double *ret_share)
{
    bool peeling = g_str_has_prefix (code, "peeling:");
    g_autofree char *encodes = peeling ? g_strdup_printf ("ldpc:%s", strchr (code, ':') + 1) : g_strdup (code);
    g_autoptr (EcfsCodec) codec = codec_of (encodes);
    g_autoptr (Oracle) oracle = oracle_new (codec);
    unsigned n = oracle->n;
    double bad[ECFS_CODEC_MAX_N + 1] = {0}, all[ECFS_CODEC_MAX_N + 1] = {0};
    g_assert_true (!peeling || oracle->parts == 1);
    for (uint32_t set = 0; set < 1u << n; set++) {
        bool present[ECFS_CODEC_MAX_N];
        double weight = 1;
        for (unsigned i = 0; i < n; i++) {
            present[i] = !(set >> i & 1);
            weight *= availability == NULL ? 1 : present[i] ? availability[i] : 1 - availability[i];
        }
        unsigned n_lost = (unsigned) __builtin_popcount (set);
        all[n_lost] += weight;
        bad[n_lost] += (peeling ? peels (oracle, present) : oracle_decodable (oracle, present)) ? 0 : weight;
    }
    for (unsigned i = 0; i <= n; i++)
        ret_share[i] = bad[i] / all[i];
}

static void test_brute_force (void)
{
    static const char *const codes[] = {"ldpc:8+6", "ldpc:5+5", "ldpc:3+1", "basic:4+4", "basic:6+6", "peeling:5+5"};
    for (size_t i = 0; i < G_N_ELEMENTS (codes); i++) {
        g_autoptr (EcfsCodec) codec = codec_of (codes[i]);
        double share[ECFS_CODEC_MAX_N + 1];
        EcfsSurvival survival;
        ask_all (codes[i], NULL, share);
        ecfs_survival_count (codec, NULL, ECFS_SURVIVAL_SAMPLED, 1, &survival);
        g_assert_true (survival.exact);
        for (unsigned j = 0; j <= survival.n; j++)
            g_assert_cmpfloat_with_epsilon (survival.share[j], share[j], 1e-12);
    }
}

static void test_different_endpoints (void)
{
    g_autoptr (EcfsCodec) codec = codec_of ("ldpc:4+4");
    const double availability[] = {0.99, 0.5, 0.9, 0.95, 0.7, 0.999, 0.8, 0.6};
    double share[ECFS_CODEC_MAX_N + 1];
    EcfsSurvival brute = {.n = 8, .exact = true}, survival;
    ask_all ("ldpc:4+4", availability, share);
    memcpy (brute.share, share, sizeof share);
    ecfs_survival_count (codec, availability, ECFS_SURVIVAL_SAMPLED, 1, &survival);
    expect_near (ecfs_survival_failure (&survival, availability).probability,
                 ecfs_survival_failure (&brute, availability).probability, 1e-9);
}

/* The MS-BASIC paper promises that any k of n do; these sets do not. */
static void test_basic_sets (void)
{
    static const struct {
        const char *code;
        unsigned n_lost;
        double sets, bad;
    } rows[] = {{"basic:4+4", 3, 56, 4}, {"basic:6+6", 4, 495, 7}, {"basic:8+8", 5, 4368, 8}};
    for (size_t i = 0; i < G_N_ELEMENTS (rows); i++) {
        g_autoptr (EcfsCodec) codec = codec_of (rows[i].code);
        EcfsSurvival survival;
        ecfs_survival_count (codec, NULL, ECFS_SURVIVAL_SAMPLED, 1, &survival);
        g_assert_cmpfloat (survival.share[rows[i].n_lost - 1], ==, 0);
        g_assert_cmpfloat_with_epsilon (survival.share[rows[i].n_lost] * rows[i].sets, rows[i].bad, 1e-9);
    }
}

/* One stripe too many to be counted: the estimate is as near as its error says. The seed is fixed. */
static void test_sampling (void)
{
    g_autoptr (EcfsCodec) codec = codec_of ("peeling:9+8");
    double share[ECFS_CODEC_MAX_N + 1];
    EcfsSurvival survival;
    ask_all ("peeling:9+8", NULL, share);
    ecfs_survival_count (codec, NULL, ECFS_SURVIVAL_SAMPLED, 7, &survival);
    g_assert_false (survival.exact);
    for (unsigned i = 0; i <= survival.n; i++)
        g_assert_cmpfloat (fabs (survival.share[i] - share[i]), <=, 4 * survival.error[i]);
    EcfsSurvival brute = {.n = 17};
    memcpy (brute.share, share, sizeof share);
    double same[17];
    for (unsigned i = 0; i < 17; i++)
        same[i] = 0.9;
    EcfsFailure failure = ecfs_survival_failure (&survival, same), exact = ecfs_survival_failure (&brute, same);
    g_assert_cmpfloat (failure.error, >, 0);
    g_assert_cmpfloat (fabs (failure.probability - exact.probability), <=, 4 * failure.error);
}

/* Elimination decodes whatever peeling does, and more. */
static void test_peeling_is_weaker (void)
{
    double peeling = failure_at ("peeling:8+6", 0.95).probability, ldpc = failure_at ("ldpc:8+6", 0.95).probability;
    g_test_message ("(8,6) at 0.95: peeling %.3g, elimination %.3g, any 8 of 14 %.3g", peeling, ldpc,
                    failure_at ("rs:8+6", 0.95).probability);
    g_assert_cmpfloat (ldpc, <, peeling);
    g_assert_cmpfloat (failure_at ("rs:8+6", 0.95).probability, <, ldpc);
}

static void test_repair_reads (void)
{
    static const struct {
        const char *code;
        double reads;
    } rows[] = {{"rs:8+3", 8}, {"copies:3", 1}};
    for (size_t i = 0; i < G_N_ELEMENTS (rows); i++) {
        g_autoptr (EcfsCodec) codec = codec_of (rows[i].code);
        g_assert_cmpfloat (ecfs_survival_repair_reads (codec), ==, rows[i].reads);
    }
    g_autoptr (EcfsCodec) basic = codec_of ("basic:8+8");
    g_assert_cmpfloat (ecfs_survival_repair_reads (basic), <, 8);
}

static void test_modelled_codes (void)
{
    GError *error = NULL;
    g_assert_null (ecfs_codec_new ("mds:4+2", &error));
    g_assert_error (error, ECFS_ERROR, EINVAL);
    g_clear_error (&error);
    g_assert_null (ecfs_codec_new_modelled ("mds:200+100", &error));
    g_assert_error (error, ECFS_ERROR, EINVAL);
    g_clear_error (&error);
    g_autoptr (EcfsCodec) sparse = codec_of ("sparse:20+20"), ldpc = codec_of ("ldpc:20+20");
    g_assert_true (ecfs_codec_is_modelled (sparse));
    g_assert_false (ecfs_codec_is_modelled (ldpc));
    g_assert_cmpfloat (ecfs_codec_decoding_work (sparse), <, ecfs_codec_decoding_work (ldpc));
    g_assert_cmpfloat (ecfs_codec_overhead (sparse), >, ecfs_codec_overhead (ldpc));
    g_autoptr (EcfsCodec) codec = codec_of ("peeling:8+6");
    bool wanted[14] = {[2] = true, [9] = true}, available[14], sources[14];
    double cost[14];
    for (unsigned i = 0; i < 14; i++) {
        available[i] = !wanted[i];
        cost[i] = i;
    }
    g_assert_true (ecfs_codec_choose (codec, wanted, available, cost, sources));
    g_assert_true (ecfs_codec_determines (codec, sources, wanted));
    for (unsigned i = 0; i < 14; i++) {
        bool without[14];
        memcpy (without, sources, sizeof without);
        without[i] = false;
        g_assert_true (!sources[i] || !ecfs_codec_determines (codec, without, wanted));
    }
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/survival/any-k-codes-follow-the-closed-form", test_closed_forms);
    g_test_add_func ("/survival/certain-endpoints-never-or-always-fail", test_certain_endpoints);
    g_test_add_func ("/survival/counting-agrees-with-looking-at-every-set", test_brute_force);
    g_test_add_func ("/survival/endpoints-may-differ", test_different_endpoints);
    g_test_add_func ("/survival/basic-survives-half-of-what-its-paper-says", test_basic_sets);
    g_test_add_func ("/survival/a-sample-is-as-near-as-it-says", test_sampling);
    g_test_add_func ("/survival/peeling-alone-survives-less", test_peeling_is_weaker);
    g_test_add_func ("/survival/repair-reads-what-the-plans-read", test_repair_reads);
    g_test_add_func ("/survival/modelled-codes-hold-no-data", test_modelled_codes);
    return g_test_run ();
}
