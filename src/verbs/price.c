#include "verbs/price.h"

void ecfs_price_add (EcfsPriceSum *self, const EcfsArchiveEndpoint *endpoint, double egress_bytes, double requests)
{
    self->requests += requests;
    if (endpoint->endpoint == NULL || !ecfs_endpoint_tariff (endpoint->endpoint)->has_prices)
        return;
    const EcfsTariff *tariff = ecfs_endpoint_tariff (endpoint->endpoint);
    uint64_t egress = ecfs_price_of_bytes (tariff->price_egress, (uint64_t) (egress_bytes + 0.5));
    uint64_t asked = ecfs_price_of_requests (tariff->price_requests, (uint64_t) (requests + 0.5));
    self->is_known = true;
    self->millionths = ecfs_add_up (self->millionths, ecfs_add_up (egress, asked));
}

void ecfs_price_put (const EcfsPriceSum *self, JsonObject *to)
{
    json_object_set_int_member (to, "requests", (int64_t) (self->requests + 0.5));
    if (self->is_known)
        json_object_set_int_member (to, "cost_millionths", (int64_t) MIN (self->millionths, (uint64_t) INT64_MAX));
}
