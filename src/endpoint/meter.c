#include "endpoint/core.h"

/* Smaller windows say more about round trips than about the rate. */
#define WINDOW_US        (200 * 1000)
#define WINDOW_MIN_BYTES (64 * 1024)
/* Time constant of the smoothing. */
#define SMOOTH_US (2 * G_USEC_PER_SEC)

static void close_window (Meter *self, int64_t now_us)
{
    int64_t elapsed_us = now_us - self->window_start_us;
    if (self->window_bytes >= WINDOW_MIN_BYTES && elapsed_us > 0) {
        double rate = (double) self->window_bytes * G_USEC_PER_SEC / (double) elapsed_us;
        double weight = (double) elapsed_us / (double) (elapsed_us + SMOOTH_US);
        self->rate = self->rate > 0 ? self->rate + weight * (rate - self->rate) : rate;
    }
    self->window_start_us = now_us;
    self->window_bytes = 0;
}

void ecfs_meter_begin (Meter *self, int64_t now_us)
{
    if (self->n_busy++ == 0) {
        self->window_start_us = now_us;
        self->window_bytes = 0;
    }
}

void ecfs_meter_add (Meter *self, uint64_t bytes, int64_t now_us)
{
    self->total += bytes;
    self->window_bytes += bytes;
    if (now_us - self->window_start_us >= WINDOW_US)
        close_window (self, now_us);
}

void ecfs_meter_end (Meter *self, int64_t now_us)
{
    if (--self->n_busy == 0)
        close_window (self, now_us);
}
