/*
 * What is used of what an account allows in a month. The archive tells what all its processes had used when this one
 * had moved so much; what it moves from then on counts at once.
 */
#include "endpoint/core/core.h"

#include "util/units.h"

#include <inttypes.h>

static EcfsMonthUse sent_locked (const EcfsEndpoint *self) ECFS_REQUIRES (self->lock)
{
    return (EcfsMonthUse){.requests = self->counts.sent, .egress_bytes = self->read_meter.total};
}

static EcfsMonth month_locked (const EcfsEndpoint *self) ECFS_REQUIRES (self->lock)
{
    const EcfsTariff *tariff = &self->tariff;
    EcfsMonthUse sent = sent_locked (self);
    EcfsMonth month = {
        .used = {.requests = ecfs_add_up (self->month_used.requests, sent.requests - self->month_sent.requests),
                 .egress_bytes =
                     ecfs_add_up (self->month_used.egress_bytes, sent.egress_bytes - self->month_sent.egress_bytes)},
        .is_read_anyway = self->is_read_anyway};
    month.requests_spent = tariff->requests_per_month > 0 && month.used.requests >= tariff->requests_per_month;
    month.egress_spent = tariff->egress_per_month > 0 && month.used.egress_bytes >= tariff->egress_per_month;
    return month;
}

void ecfs_core_month_locked (const EcfsEndpoint *self, EcfsMonth *ret_month)
{
    *ret_month = ecfs_tariff_counts (&self->tariff) ? month_locked (self) : (EcfsMonth){.requests_spent = false};
}

char *ecfs_core_spent_text_locked (const EcfsEndpoint *self)
{
    EcfsMonth month;
    ecfs_core_month_locked (self, &month);
    const char *behind = self->is_read_anyway ? "; it is read all the same where others have too little" : "";
    if (month.requests_spent)
        return g_strdup_printf ("endpoint %s: its requests of this month are used up (%" PRIu64 " of %" PRIu64 ")%s",
                                self->name, month.used.requests, self->tariff.requests_per_month, behind);
    if (month.egress_spent)
        return g_strdup_printf ("endpoint %s: its egress of this month is used up (%" PRIu64 " of %" PRIu64 " bytes)%s",
                                self->name, month.used.egress_bytes, self->tariff.egress_per_month, behind);
    return NULL;
}

const EcfsTariff *ecfs_endpoint_tariff (const EcfsEndpoint *self)
{
    return &self->tariff;
}

void ecfs_endpoint_sent (EcfsEndpoint *self, EcfsMonthUse *ret_sent)
{
    ecfs_mutex_lock (&self->lock);
    *ret_sent = sent_locked (self);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_endpoint_note_month (EcfsEndpoint *self, const EcfsMonthUse *used, const EcfsMonthUse *sent)
{
    ecfs_mutex_lock (&self->lock);
    self->month_used = *used;
    self->month_sent = *sent;
    EcfsMonth month = month_locked (self);
    if (!month.requests_spent && !month.egress_spent)
        self->is_read_anyway = false;
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_endpoint_month (EcfsEndpoint *self, EcfsMonth *ret_month)
{
    ecfs_mutex_lock (&self->lock);
    ecfs_core_month_locked (self, ret_month);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_endpoint_note_read_anyway (EcfsEndpoint *self)
{
    ecfs_mutex_lock (&self->lock);
    bool news = !self->is_read_anyway;
    self->is_read_anyway = true;
    ecfs_mutex_unlock (&self->lock);
    if (news)
        g_message ("endpoint %s is read although its month is used up: others have too little of what is needed",
                   self->name);
}

uint64_t ecfs_endpoint_store_requests (const EcfsEndpoint *self, uint64_t bytes)
{
    return self->driver->store_requests == NULL ? 1 : self->driver->store_requests (self->config, bytes);
}

/* Parsing */

static bool parse_price (const EcfsEndpointSpec *spec, const char *key, EcfsTariff *tariff, uint64_t *ret_price,
                         GError **error)
{
    const char *text = ecfs_spec_option (spec, key);
    if (text == NULL)
        return true;
    tariff->has_prices = true;
    return ecfs_parse_money (text, ret_price) ||
           ecfs_fail (error, EINVAL,
                      "%s = \"%s\" is not a price such as 0.023, with at most six digits behind the point", key, text);
}

bool ecfs_core_parse_tariff (const EcfsEndpointSpec *spec, EcfsTariff *ret_tariff, GError **error)
{
    const char *requests = ecfs_spec_option (spec, "requests_per_month");
    const char *egress = ecfs_spec_option (spec, "egress_per_month");
    guint64 n_requests = 0;
    *ret_tariff = (EcfsTariff){.has_prices = false};
    if (requests != NULL && !g_ascii_string_to_unsigned (requests, 10, 1, INT64_MAX, &n_requests, NULL))
        return ecfs_fail (error, EINVAL, "requests_per_month = \"%s\" is not a number from 1 on", requests);
    if (egress != NULL &&
        (!ecfs_parse_size (egress, &ret_tariff->egress_per_month) || ret_tariff->egress_per_month == 0))
        return ecfs_fail (error, EINVAL, "egress_per_month = \"%s\" is not a number of bytes such as 10G or 1TB",
                          egress);
    ret_tariff->requests_per_month = n_requests;
    return parse_price (spec, "price_storage", ret_tariff, &ret_tariff->price_storage, error) &&
           parse_price (spec, "price_requests", ret_tariff, &ret_tariff->price_requests, error) &&
           parse_price (spec, "price_egress", ret_tariff, &ret_tariff->price_egress, error);
}
