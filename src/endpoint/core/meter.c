/*
 * How many bytes per second an endpoint can move in one direction, over all of its connections.
 *
 * As in delivery rate estimation for BBR (Cheng, Cardwell et al., draft-cheng-iccrg-delivery-rate-estimation), a sample
 * is what arrived within a window of a busy moment, and one for which not enough was asked for does not speak for the
 * line: by Little's law a line whose rate times delay is more than what is outstanding waits for us. Such a sample, and
 * one in which the other direction moved bytes as well, only counts where it shows that the line is faster than nearly
 * all samples before, or where nothing better was ever seen. A window begins with the first bytes of a busy moment, so
 * that the time until they come is none of it, and ends with the last bytes.
 */
#include "endpoint/core/estimate.h"

#include <math.h>

#define UNKNOWN_RATE    50e6 /* bytes per second */
#define WINDOW_US       (200 * 1000)
#define SAMPLE_MIN_US   500 /* less is bytes that were here already */
#define SAMPLE_MIN      (128 * 1024)
#define FIRST_MIN_BYTES (64 * 1024) /* of a busy moment, to have any figure at all */
#define PLENTY          1.25        /* times rate × delay outstanding: the line never waits */

static void note (EcfsMeter *self, double bytes_per_s, double weight, bool limited, int64_t now_us)
{
    if (limited && self->proven && bytes_per_s <= ecfs_meter_rate (self).p95)
        return;
    if (!limited && !self->proven)
        self->rates = (Distribution){.sum = 0}; /* what was noted meanwhile is too low */
    self->proven = self->proven || !limited;
    ecfs_distribution_note (&self->rates, bytes_per_s / ECFS_RATE_UNIT, weight, now_us);
}

static void close_window (EcfsMeter *self, double delay_us)
{
    double elapsed_us = (double) (self->last_us - self->start_us);
    if (self->window_bytes >= SAMPLE_MIN && elapsed_us >= SAMPLE_MIN_US) {
        double bytes_per_us = (double) self->window_bytes / elapsed_us;
        bool limited = self->shared || self->owed_sum / elapsed_us < PLENTY * bytes_per_us * delay_us;
        note (self, bytes_per_us * G_USEC_PER_SEC, MIN (elapsed_us / WINDOW_US, 1), limited, self->last_us);
    }
    self->open = false;
}

static void open_window (EcfsMeter *self, bool shared, int64_t now_us)
{
    self->open = true;
    self->shared = shared;
    self->start_us = self->last_us = now_us;
    self->window_bytes = 0;
    self->owed_sum = 0;
}

void ecfs_meter_begin (EcfsMeter *self, int64_t now_us)
{
    if (self->n_busy++ == 0) {
        self->busy_us = now_us;
        self->busy_bytes = 0;
    }
}

void ecfs_meter_add (EcfsMeter *self, uint64_t bytes, const Progress *progress)
{
    int64_t now_us = progress->now_us;
    self->total += bytes;
    self->busy_bytes += bytes;
    if (self->open) {
        self->window_bytes += bytes;
        self->owed_sum += self->owed * (double) (now_us - self->last_us);
        self->shared = self->shared || progress->shared;
        self->last_us = now_us;
    } else {
        open_window (self, progress->shared, now_us);
    }
    self->owed = progress->owed;
    bool dry = progress->owed <= 0;
    if (!dry && now_us - self->start_us < WINDOW_US)
        return;
    close_window (self, progress->delay_us);
    if (!dry)
        open_window (self, progress->shared, now_us);
}

void ecfs_meter_dry (EcfsMeter *self, double delay_us)
{
    if (self->open)
        close_window (self, delay_us);
}

void ecfs_meter_end (EcfsMeter *self, double delay_us, int64_t now_us)
{
    if (--self->n_busy > 0)
        return;
    ecfs_meter_dry (self, delay_us);
    double elapsed_us = (double) (now_us - self->busy_us);
    if (self->rates.sum <= 0 && self->busy_bytes >= FIRST_MIN_BYTES && elapsed_us > 0)
        note (self, (double) self->busy_bytes * G_USEC_PER_SEC / elapsed_us, MIN (elapsed_us / WINDOW_US, 1), true,
              now_us);
}

EcfsQuantiles ecfs_meter_rate (const EcfsMeter *self)
{
    const EcfsQuantiles *rates = &self->rates.quantiles;
    return (EcfsQuantiles){
        .p5 = rates->p5 * ECFS_RATE_UNIT, .p50 = rates->p50 * ECFS_RATE_UNIT, .p95 = rates->p95 * ECFS_RATE_UNIT};
}

void ecfs_meter_expect (EcfsMeter *self, const EcfsQuantiles *prior)
{
    EcfsQuantiles scaled = {
        .p5 = prior->p5 / ECFS_RATE_UNIT, .p50 = prior->p50 / ECFS_RATE_UNIT, .p95 = prior->p95 / ECFS_RATE_UNIT};
    if (ecfs_distribution_expect (&self->rates, &scaled))
        self->proven = true;
}

EcfsForecast ecfs_forecast_of (const Distribution *latency, const EcfsMeter *reads, int64_t usual_us, uint64_t bytes)
{
    const EcfsQuantiles *latency_us = &latency->quantiles;
    EcfsQuantiles rate = ecfs_meter_rate (reads);
    if (rate.p50 <= 0)
        rate = (EcfsQuantiles){.p5 = UNKNOWN_RATE, .p50 = UNKNOWN_RATE, .p95 = UNKNOWN_RATE};
    double wait_us = (double) bytes * 1e6 / rate.p50;
    /* Late begins and slow lines come independently of each other. */
    double late_us =
        hypot (MAX (latency_us->p95, (double) usual_us) - latency_us->p50, (double) bytes * 1e6 / rate.p5 - wait_us);
    EcfsForecast forecast = {.us = (int64_t) (latency_us->p50 + wait_us)};
    forecast.late_us = forecast.us + (int64_t) late_us;
    return forecast;
}
