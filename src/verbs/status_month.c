#include "verbs/status_month.h"

#include "archive/month.h"

static void add_number (JsonObject *facts, const char *member, uint64_t number)
{
    json_object_set_int_member (facts, member, (int64_t) MIN (number, (uint64_t) INT64_MAX));
}

/* Of what it has now, a whole month. */
static void add_costs (JsonObject *month, const EcfsTariff *tariff, const EcfsMonthUse *used, uint64_t stored)
{
    uint64_t requests = ecfs_price_of_requests (tariff->price_requests, used->requests);
    uint64_t egress = ecfs_price_of_bytes (tariff->price_egress, used->egress_bytes);
    uint64_t storage = ecfs_price_of_bytes (tariff->price_storage, stored);
    JsonObject *costs = json_object_new ();
    add_number (costs, "requests", requests);
    add_number (costs, "egress", egress);
    add_number (costs, "storage", storage);
    add_number (costs, "total", ecfs_add_up (ecfs_add_up (requests, egress), storage));
    json_object_set_object_member (month, "cost_millionths", costs);
    json_object_set_double_member (month, "cost", (double) json_object_get_int_member (costs, "total") / 1e6);
}

void ecfs_status_add_month (JsonObject *facts, EcfsEndpoint *endpoint, const uint64_t *stored)
{
    const EcfsTariff *tariff = ecfs_endpoint_tariff (endpoint);
    EcfsMonth used;
    if (!ecfs_tariff_counts (tariff))
        return;
    JsonObject *month = json_object_new ();
    g_autofree char *name = ecfs_month_text (g_get_real_time () / G_USEC_PER_SEC);
    ecfs_endpoint_month (endpoint, &used);
    json_object_set_string_member (month, "month", name);
    add_number (month, "requests", used.used.requests);
    add_number (month, "egress_bytes", used.used.egress_bytes);
    if (tariff->requests_per_month > 0)
        add_number (month, "requests_limit", tariff->requests_per_month);
    if (tariff->egress_per_month > 0)
        add_number (month, "egress_limit_bytes", tariff->egress_per_month);
    json_object_set_boolean_member (month, "requests_spent", used.requests_spent);
    json_object_set_boolean_member (month, "egress_spent", used.egress_spent);
    json_object_set_boolean_member (month, "read_anyway", used.is_read_anyway);
    if (tariff->has_prices && stored != NULL)
        add_costs (month, tariff, &used.used, *stored);
    json_object_set_object_member (facts, "month", month);
}

uint64_t *ecfs_status_stored (EcfsArchive *archive, GError **error)
{
    size_t n = 0, n_endpoints = ecfs_archive_n_endpoints (archive);
    g_autofree int64_t *ids = g_new (int64_t, n_endpoints + 1);
    g_autofree size_t *positions = g_new (size_t, n_endpoints + 1);
    g_autofree uint64_t *bytes = g_new0 (uint64_t, n_endpoints + 1);
    uint64_t *stored = g_new0 (uint64_t, n_endpoints + 1);
    for (size_t i = 0; i < n_endpoints; i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        if (endpoint->endpoint == NULL || ecfs_endpoint_tariff (endpoint->endpoint)->price_storage == 0)
            continue;
        positions[n] = i;
        ids[n++] = endpoint->id;
    }
    if (n > 0 && !ecfs_catalog_bytes_at (ecfs_archive_catalog (archive), ids, n, NULL, bytes, error)) {
        g_free (stored);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        stored[positions[i]] = bytes[i];
    return stored;
}

void ecfs_status_add_month_sum (JsonObject *status, EcfsArchive *archive)
{
    JsonArray *endpoints = json_object_get_array_member (status, "endpoints");
    g_autofree char *trouble = ecfs_month_trouble (ecfs_archive_month (archive));
    uint64_t total = 0;
    bool priced = false, counted = false;
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *facts = json_array_get_object_element (endpoints, i);
        JsonObject *month =
            json_object_has_member (facts, "month") ? json_object_get_object_member (facts, "month") : NULL;
        counted = counted || month != NULL;
        if (month == NULL || !json_object_has_member (month, "cost_millionths"))
            continue;
        JsonObject *costs = json_object_get_object_member (month, "cost_millionths");
        total = ecfs_add_up (total, (uint64_t) json_object_get_int_member (costs, "total"));
        priced = true;
    }
    if (priced)
        add_number (status, "month_cost_millionths", total);
    g_autofree char *shown = counted && trouble != NULL ? g_utf8_make_valid (trouble, -1) : NULL;
    if (shown != NULL)
        json_object_set_string_member (status, "month_error", shown);
}
