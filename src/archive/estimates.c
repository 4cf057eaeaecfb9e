/* How endpoints usually are, kept in the catalog from one mount to the next. */
#include "archive/archive_priv.h"

#include <math.h>

static EcfsQuantiles loaded (const uint64_t *figures)
{
    return (EcfsQuantiles){.p5 = (double) figures[0], .p50 = (double) figures[1], .p95 = (double) figures[2]};
}

static void store (const EcfsQuantiles *quantiles, uint64_t *ret_figures)
{
    const double figures[] = {quantiles->p5, quantiles->p50, quantiles->p95};
    for (size_t i = 0; i < G_N_ELEMENTS (figures); i++)
        ret_figures[i] = (uint64_t) llround (figures[i]);
}

void ecfs_archive_load_estimates (EcfsArchive *self)
{
    for (size_t i = 0; i < self->n_endpoints; i++) {
        EcfsEstimateRow row;
        g_autoptr (GError) error = NULL;
        if (self->endpoints[i].endpoint == NULL)
            continue;
        if (!ecfs_catalog_estimate (self->catalog, self->endpoints[i].id, &row, &error)) {
            g_info ("what was measured of endpoint %s cannot be read: %s", self->endpoints[i].name, error->message);
            continue;
        }
        EcfsEstimates prior = {.latency_us = loaded (row.latency_us),
                               .read_bytes_per_s = loaded (row.read_bytes_per_s),
                               .write_bytes_per_s = loaded (row.write_bytes_per_s)};
        ecfs_endpoint_expect (self->endpoints[i].endpoint, &prior);
    }
}

void ecfs_archive_keep_estimates (EcfsArchive *self)
{
    for (size_t i = 0; i < self->n_endpoints && !self->readonly; i++) {
        EcfsEstimates estimates;
        g_autoptr (GError) error = NULL;
        if (self->endpoints[i].endpoint == NULL)
            continue;
        ecfs_endpoint_estimates (self->endpoints[i].endpoint, &estimates);
        EcfsEstimateRow row = {.endpoint = self->endpoints[i].id};
        store (&estimates.latency_us, row.latency_us);
        store (&estimates.read_bytes_per_s, row.read_bytes_per_s);
        store (&estimates.write_bytes_per_s, row.write_bytes_per_s);
        /* Hints only: what is wrong with the catalog it says itself. */
        if (estimates.latency_us.p50 > 0 && !ecfs_catalog_estimate_set (self->catalog, &row, &error))
            g_info ("what was measured of endpoint %s is not noted: %s", self->endpoints[i].name, error->message);
    }
}
