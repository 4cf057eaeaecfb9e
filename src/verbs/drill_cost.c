/* What a drill that reads takes: counted by the catalog before anything is read, for the very objects that it draws. */
#include "archive/key_shares.h"
#include "endpoint/tariff.h"
#include "verbs/drill_priv.h"
#include "verbs/price.h"

#include <string.h>

typedef struct Taken {
    double bytes;
    double requests;
} Taken;

typedef struct Cost {
    EcfsArchive *archive;
    bool *without; /* by position of the endpoint */
    size_t n_endpoints;
    Taken *taken; /* likewise */
    EcfsKnownDamage damage;
    EcfsDrillSample sample;
    uint64_t bytes;   /* of content, once */
    uint64_t dearest; /* price of egress of any, where what is cheap is preferred */
} Cost;

/* One object */

/* How gladly a stripe is read: as it is before parity, and what is cheap first where that is wanted. */
static double dislike (const Cost *self, const EcfsCodec *codec, unsigned index, size_t holder)
{
    const EcfsEndpoint *endpoint = ecfs_archive_endpoint (self->archive, holder)->endpoint;
    double parity = index < ecfs_codec_k (codec) ? 1 : 1.001;
    return self->dearest == 0
               ? parity
               : parity + 100 * (double) ecfs_endpoint_tariff (endpoint)->price_egress / (double) self->dearest;
}

/* With all endpoints, or without those that are left out; each segment takes a request of its own. What cannot be read
 * so takes nothing. */
static void add_reading (Cost *self, const EcfsCodec *codec, const EcfsStanding *standing, const EcfsLayout *layout,
                         bool all)
{
    bool wanted[ECFS_CODEC_MAX_N] = {0}, available[ECFS_CODEC_MAX_N] = {0}, sources[ECFS_CODEC_MAX_N];
    double costs[ECFS_CODEC_MAX_N] = {0};
    for (unsigned i = 0; i < standing->n; i++) {
        wanted[i] = i < ecfs_codec_k (codec);
        available[i] = standing->held[i] && standing->reachable[i] && (all || !self->without[standing->holder[i]]);
        costs[i] = available[i] ? dislike (self, codec, i, standing->holder[i]) : 0;
    }
    if (!ecfs_codec_choose (codec, wanted, available, costs, sources))
        return;
    for (unsigned i = 0; i < standing->n; i++) {
        if (!sources[i])
            continue;
        self->taken[standing->holder[i]].bytes += (double) ecfs_layout_area_bytes (layout);
        self->taken[standing->holder[i]].requests += (double) ecfs_layout_n_segments (layout);
    }
}

static bool add_object (void *user, const EcfsObjectRow *object, GError **error)
{
    Cost *self = user;
    EcfsStanding standing;
    EcfsLayout layout;
    if (!ecfs_drill_sample_draws (&self->sample))
        return true;
    const EcfsCodec *codec = ecfs_archive_codec (self->archive, object->code, error);
    if (codec == NULL || !ecfs_archive_layout (self->archive, object, &layout, error))
        return false;
    ecfs_drill_standing (self->archive, object, codec, &self->damage, &standing);
    self->bytes += object->size;
    add_reading (self, codec, &standing, &layout, false);
    add_reading (self, codec, &standing, &layout, true);
    return true;
}

/* The archive's key is read from shares of it: how large one is, and what it is. */
static void add_key (Cost *self)
{
    const EcfsKeyShares *shares = ecfs_archive_key_shares (self->archive);
    for (size_t i = 0; shares != NULL && i < self->n_endpoints; i++)
        if (ecfs_archive_endpoint_counts (ecfs_archive_endpoint (self->archive, i)) && !self->without[i])
            self->taken[i].requests += 2;
}

/* Reporting */

/* What its account allows is told with what is left of that. */
static void add_left (JsonObject *to, const char *member, uint64_t limit, uint64_t used, double taken, bool *exceeds)
{
    if (limit == 0)
        return;
    uint64_t left = limit - MIN (used, limit);
    json_object_set_int_member (to, member, (int64_t) MIN (left, (uint64_t) INT64_MAX));
    *exceeds = *exceeds || taken > (double) left;
}

static JsonObject *describe_endpoint (const EcfsArchiveEndpoint *endpoint, const Taken *taken)
{
    EcfsMonth month;
    bool exceeds = false;
    EcfsPriceSum price = {.is_known = false};
    JsonObject *facts = json_object_new ();
    const EcfsTariff *tariff = ecfs_endpoint_tariff (endpoint->endpoint);
    json_object_set_string_member (facts, "name", endpoint->name);
    json_object_set_int_member (facts, "read_bytes", (int64_t) (taken->bytes + 0.5));
    ecfs_price_add (&price, endpoint, taken->bytes, taken->requests);
    ecfs_price_put (&price, facts);
    ecfs_endpoint_month (endpoint->endpoint, &month);
    add_left (facts, "requests_left", tariff->requests_per_month, month.used.requests, taken->requests, &exceeds);
    add_left (facts, "egress_left_bytes", tariff->egress_per_month, month.used.egress_bytes, taken->bytes, &exceeds);
    json_object_set_boolean_member (facts, "exceeds_month", exceeds);
    return facts;
}

static char *to_json (const Cost *self, const EcfsDrill *what)
{
    double read_bytes = 0;
    EcfsPriceSum price = {.is_known = false};
    JsonArray *endpoints = json_array_new ();
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
    JsonObject *report = json_object_new ();
    json_node_take_object (node, report);
    for (size_t i = 0; i < self->n_endpoints; i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, i);
        if (self->taken[i].requests == 0 || endpoint->endpoint == NULL)
            continue;
        read_bytes += self->taken[i].bytes;
        ecfs_price_add (&price, endpoint, self->taken[i].bytes, self->taken[i].requests);
        json_array_add_object_element (endpoints, describe_endpoint (endpoint, &self->taken[i]));
    }
    json_object_set_int_member (report, "seed", (int64_t) what->seed);
    json_object_set_int_member (report, "objects", (int64_t) self->sample.n_objects);
    json_object_set_int_member (report, "sampled", (int64_t) self->sample.n_drawn);
    json_object_set_int_member (report, "bytes", (int64_t) self->bytes);
    json_object_set_int_member (report, "read_bytes", (int64_t) (read_bytes + 0.5));
    ecfs_price_put (&price, report);
    json_object_set_array_member (report, "endpoints", endpoints);
    return json_to_string (node, TRUE);
}

/* The whole */

static void find_dearest (Cost *self)
{
    if (!ecfs_archive_config (self->archive)->read_cheap)
        return;
    for (size_t i = 0; i < self->n_endpoints; i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, i);
        if (endpoint->endpoint != NULL)
            self->dearest = MAX (self->dearest, ecfs_endpoint_tariff (endpoint->endpoint)->price_egress);
    }
}

char *ecfs_drill_cost (Ecfs *self, const EcfsDrill *what, GError **error)
{
    Cost cost = {.archive = self->archive, .n_endpoints = ecfs_archive_n_endpoints (self->archive)};
    char *text = NULL;
    cost.without = ecfs_drill_without (self->archive, what->without, error);
    if (cost.without == NULL)
        return NULL;
    cost.taken = g_new0 (Taken, ECFS_ENDPOINTS_MAX);
    find_dearest (&cost);
    add_key (&cost);
    if (ecfs_damage_load (self->archive, &cost.damage, error) &&
        ecfs_drill_sample_begin (&cost.sample, self->archive, what, error) &&
        ecfs_catalog_each_object (ecfs_archive_catalog (self->archive), add_object, &cost, error))
        text = to_json (&cost, what);
    ecfs_damage_clear (&cost.damage);
    ecfs_drill_sample_clear (&cost.sample);
    g_free (cost.without);
    g_free (cost.taken);
    return text;
}
