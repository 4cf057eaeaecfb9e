/* What a code costs where accounts ask for money: by how much it stores and asks for, on average over all objects. */
#include "archive/common.h"
#include "codec/survival.h"
#include "endpoint/tariff.h"
#include "verbs/verbs.h"

#include <json-glib/json-glib.h>
#include <math.h>
#include <string.h>

#define SEGMENT_BYTES (2u << 20) /* as ecfs.conf has it: readers ask for each on its own */
#define PER_BYTES     1e9
#define PER_REQUESTS  1e3

typedef struct Bill {
    const EcfsCodec *codec;
    const EcfsPlanned *what;
    EcfsPrices mean;    /* of all endpoints */
    double n_objects;   /* one at least */
    double stripe_size; /* of an object */
    double n_segments;  /* likewise */
} Bill;

bool ecfs_parse_prices (const char *text, EcfsPrices *ret_prices)
{
    EcfsPrices prices = {0};
    uint64_t *const all[] = {&prices.storage, &prices.requests, &prices.egress};
    g_auto (GStrv) parts = g_strsplit (text, "/", -1);
    unsigned n = g_strv_length (parts);
    if (n == 0 || n > G_N_ELEMENTS (all))
        return false;
    for (unsigned i = 0; i < n; i++)
        if (!ecfs_parse_money (parts[i], all[i]))
            return false;
    *ret_prices = prices;
    return true;
}

static double price_of (const EcfsPrices *prices, double read_bytes, double requests)
{
    return (double) prices->egress * read_bytes / PER_BYTES + (double) prices->requests * requests / PER_REQUESTS;
}

static void begin (Bill *self)
{
    const EcfsPlanned *what = self->what;
    double sums[3] = {0};
    for (unsigned i = 0; i < what->n_endpoints; i++) {
        sums[0] += (double) what->prices[i].storage / what->n_endpoints;
        sums[1] += (double) what->prices[i].requests / what->n_endpoints;
        sums[2] += (double) what->prices[i].egress / what->n_endpoints;
    }
    self->mean = (EcfsPrices){(uint64_t) (sums[0] + 0.5), (uint64_t) (sums[1] + 0.5), (uint64_t) (sums[2] + 0.5)};
    self->n_objects = (double) MAX (what->n_objects, 1);
    self->stripe_size = (double) what->bytes / self->n_objects / ecfs_codec_k (self->codec);
    self->n_segments = MAX (ceil ((double) what->bytes / self->n_objects / SEGMENT_BYTES), 1);
}

/* From what is cheapest of what suffices; the mean over the endpoints at which an object may begin. */
static bool read_cheaply (const Bill *self, double *ret_cost)
{
    double sum = 0;
    unsigned n = ecfs_codec_n (self->codec), n_endpoints = self->what->n_endpoints;
    if (ecfs_codec_is_modelled (self->codec))
        return false;
    for (unsigned start = 0; start < n_endpoints; start++) {
        bool wanted[ECFS_CODEC_MAX_N] = {0}, available[ECFS_CODEC_MAX_N] = {0}, sources[ECFS_CODEC_MAX_N] = {0};
        double costs[ECFS_CODEC_MAX_N] = {0};
        for (unsigned i = 0; i < n; i++) {
            wanted[i] = i < ecfs_codec_k (self->codec);
            available[i] = true;
            costs[i] = price_of (&self->what->prices[(start + i) % n_endpoints], self->stripe_size, self->n_segments);
        }
        if (!ecfs_codec_choose (self->codec, wanted, available, costs, sources))
            return false;
        for (unsigned i = 0; i < n; i++)
            sum += sources[i] ? costs[i] : 0;
    }
    *ret_cost = sum / n_endpoints * self->n_objects;
    return true;
}

static void put (JsonObject *to, const char *member, double millionths)
{
    json_object_set_int_member (to, member, (int64_t) (MIN (millionths, (double) (INT64_MAX / 2)) + 0.5));
}

/* All that one of the endpoints had: an object has n stripes somewhere among them. */
static void put_repair (const Bill *self, JsonObject *to)
{
    const char *code = ecfs_codec_code (self->codec);
    bool known = !ecfs_codec_is_modelled (self->codec) || g_str_has_prefix (code, "mds:");
    if (!known)
        return;
    unsigned n = ecfs_codec_n (self->codec), n_endpoints = self->what->n_endpoints;
    double reads =
        ecfs_codec_is_modelled (self->codec) ? ecfs_codec_k (self->codec) : ecfs_survival_repair_reads (self->codec);
    double n_lost = self->n_objects * (n_endpoints == 1 ? 1 : (double) n / n_endpoints);
    put (to, "repair_millionths",
         price_of (&self->mean, n_lost * reads * self->stripe_size, n_lost * (ceil (reads) + 1)));
}

static JsonObject *bill (const Bill *self)
{
    double cheap, n = ecfs_codec_n (self->codec), k = ecfs_codec_k (self->codec);
    JsonObject *costs = json_object_new ();
    double stored = self->n_objects * n * self->stripe_size, n_stored = self->n_objects * n;
    double read = (double) self->what->bytes, n_read = self->n_objects * self->n_segments * k;
    put (costs, "stored_bytes", stored);
    put (costs, "store_requests", n_stored);
    put (costs, "read_requests", n_read);
    put (costs, "month_millionths", (double) self->mean.storage * stored / PER_BYTES);
    put (costs, "store_millionths", price_of (&self->mean, 0, n_stored));
    put (costs, "read_millionths", price_of (&self->mean, read, n_read));
    if (read_cheaply (self, &cheap))
        put (costs, "read_cheap_millionths", cheap);
    put_repair (self, costs);
    return costs;
}

char *ecfs_plan_cost (const char *code, const EcfsPlanned *what, GError **error)
{
    g_autoptr (EcfsCodec) codec = ecfs_codec_new_modelled (code, error);
    if (codec == NULL)
        return NULL;
    if (what->n_endpoints != 1 && what->n_endpoints < ecfs_codec_n (codec)) {
        g_set_error (error, ECFS_ERROR, EINVAL, "%s needs %u endpoints, and prices of %u are given",
                     ecfs_codec_code (codec), ecfs_codec_n (codec), what->n_endpoints);
        return NULL;
    }
    Bill self = {.codec = codec, .what = what};
    begin (&self);
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, bill (&self));
    return json_to_string (node, TRUE);
}

/* Of an archive */

char *ecfs_prices (Ecfs *self, GError **error)
{
    EcfsTotals totals;
    bool any = false;
    if (!ecfs_catalog_totals (ecfs_archive_catalog (self->archive), &totals, error))
        return NULL;
    JsonObject *facts = json_object_new ();
    JsonArray *endpoints = json_array_new ();
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, facts);
    json_object_set_int_member (facts, "bytes", (int64_t) totals.content_bytes);
    json_object_set_int_member (facts, "objects", (int64_t) totals.n_objects);
    json_object_set_array_member (facts, "endpoints", endpoints);
    for (size_t i = 0; i < ecfs_archive_n_endpoints (self->archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, i);
        if (endpoint->endpoint == NULL || endpoint->state != ECFS_ENDPOINT_ACTIVE)
            continue;
        const EcfsTariff *tariff = ecfs_endpoint_tariff (endpoint->endpoint);
        JsonObject *prices = json_object_new ();
        any = any || tariff->has_prices;
        json_object_set_string_member (prices, "name", endpoint->name);
        json_object_set_int_member (prices, "storage", (int64_t) tariff->price_storage);
        json_object_set_int_member (prices, "requests", (int64_t) tariff->price_requests);
        json_object_set_int_member (prices, "egress", (int64_t) tariff->price_egress);
        json_array_add_object_element (endpoints, prices);
    }
    if (any)
        return json_to_string (node, TRUE);
    g_set_error (error, ECFS_ERROR, ENOENT, "no endpoint of %s has prices: price_storage and others in ecfs.conf(5)",
                 ecfs_archive_directory (self->archive));
    return NULL;
}
