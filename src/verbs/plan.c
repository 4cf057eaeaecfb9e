/* What a code buys, by its decodable sets. */
#include "codec/survival.h"
#include "ecfs/ecfs.h"

#include <json-glib/json-glib.h>
#include <math.h>
#include <string.h>

#define SEED 1

G_STATIC_ASSERT (ECFS_MAX_STRIPES == ECFS_CODEC_MAX_N);

/* Σ C(n, i) a^i (1-a)^(n-i) over i < needed; between whole numbers of @needed interpolated. */
static double failure_by_formula (unsigned n, double needed, double availability)
{
    double low = floor (needed), sum[2] = {0};
    for (unsigned i = 0; i < n && i <= low; i++) {
        double choose = lgamma (n + 1.0) - lgamma (i + 1.0) - lgamma (n - i + 1.0);
        double term = exp (choose) * pow (availability, i) * pow (1 - availability, n - i);
        sum[1] += term;
        sum[0] += i < low ? term : 0;
    }
    if (needed <= low || sum[0] <= 0)
        return sum[0];
    return exp (log (sum[0]) + (needed - low) * (log (sum[1]) - log (sum[0])));
}

/* Stripes rotate over the endpoints from object to object: where there are more of these, every beginning counts,
 * and has its part of the sample. */
static void add_failure (JsonObject *facts, const EcfsCodec *codec, const double *availability, unsigned n_endpoints)
{
    g_autofree EcfsSurvival *survival = g_new (EcfsSurvival, 1);
    double probability = 0, variance = 0;
    for (unsigned start = 0; start < n_endpoints; start++) {
        double turned[ECFS_CODEC_MAX_N];
        for (unsigned i = 0; i < ecfs_codec_n (codec); i++)
            turned[i] = availability[(start + i) % n_endpoints];
        ecfs_survival_count (codec, n_endpoints == 1 ? NULL : turned, ECFS_SURVIVAL_SAMPLED / n_endpoints, SEED + start,
                             survival);
        EcfsFailure failure = ecfs_survival_failure (survival, turned);
        probability += failure.probability / n_endpoints;
        variance += failure.error * failure.error;
    }
    json_object_set_double_member (facts, "failure", probability);
    json_object_set_double_member (facts, "failure_error", sqrt (variance) / n_endpoints);
    json_object_set_boolean_member (facts, "exact", survival->exact);
}

static void add_repair (JsonObject *facts, const EcfsCodec *codec)
{
    if (!ecfs_codec_is_modelled (codec))
        json_object_set_double_member (facts, "repair_reads", ecfs_survival_repair_reads (codec));
    else if (g_str_has_prefix (ecfs_codec_code (codec), "mds:"))
        json_object_set_double_member (facts, "repair_reads", ecfs_codec_k (codec));
}

char *ecfs_plan (const char *code, const double *availability, unsigned n_endpoints, GError **error)
{
    g_autoptr (EcfsCodec) codec = ecfs_codec_new_modelled (code, error);
    if (codec == NULL)
        return NULL;
    const char *name = ecfs_codec_code (codec);
    unsigned k = ecfs_codec_k (codec), n = ecfs_codec_n (codec);
    double reads = ecfs_codec_overhead (codec);
    for (unsigned i = 0; i < n_endpoints; i++) {
        if (!(availability[i] >= 0 && availability[i] <= 1)) {
            g_set_error (error, ECFS_ERROR, EINVAL, "%g is not a probability from 0 to 1", availability[i]);
            return NULL;
        }
    }
    if (n_endpoints != 1 && n_endpoints < n) {
        g_set_error (error, ECFS_ERROR, EINVAL, "%s needs %u endpoints, and availabilities of %u are given", name, n,
                     n_endpoints);
        return NULL;
    }
    JsonObject *facts = json_object_new ();
    json_object_set_string_member (facts, "code", name);
    json_object_set_int_member (facts, "k", k);
    json_object_set_int_member (facts, "m", n - k);
    json_object_set_int_member (facts, "tolerance", ecfs_codec_tolerance (codec));
    json_object_set_double_member (facts, "overhead", (double) n / k);
    json_object_set_double_member (facts, "f", reads);
    add_failure (facts, codec, availability, n_endpoints);
    json_object_set_boolean_member (facts, "modelled", ecfs_codec_is_modelled (codec));
    add_repair (facts, codec);
    bool ldpc =
        g_str_has_prefix (name, "ldpc:") || (ecfs_codec_is_modelled (codec) && !g_str_has_prefix (name, "mds:"));
    if (ldpc && n_endpoints == 1)
        json_object_set_double_member (facts, "failure_by_formula", failure_by_formula (n, reads * k, availability[0]));
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, facts);
    return json_to_string (node, TRUE);
}
