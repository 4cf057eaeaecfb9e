#include "object/lane.h"

#include "object/transfer.h"

#define STALL_MIN_US     200000
#define STALL_UNKNOWN_US 1000000
#define STALL_RETRY_US   5000000
#define PACE_US          200000  /* time constant of a lane's pace */
#define FORGIVEN_US      5000000 /* time constant of taking a slow lane for what its endpoint usually is */
#define REACH_MIN_BYTES  (32u << 20)
#define RATE_UNKNOWN     1e8 /* bytes per second of an endpoint that was never read: it is worth a try */
#define OPEN_SEGMENTS    8   /* at first and more each second, and at least … */
#define OPEN_BYTES       (8u << 20)
#define FOREVER_US       1e12 /* longer forecasts say nothing, and need not fit into an integer */

int64_t ecfs_stall_us (int64_t rtt_us, int64_t mean_gap_us)
{
    if (rtt_us == 0)
        return STALL_UNKNOWN_US;
    return MAX (MAX (4 * rtt_us, 8 * mean_gap_us), STALL_MIN_US);
}

int64_t ecfs_due_us (uint64_t bytes, double bytes_per_s, int64_t gap_us, int64_t silent_us)
{
    int64_t moving_us = bytes_per_s > 0 ? (int64_t) MIN (1e6 * (double) bytes / bytes_per_s, FOREVER_US) : 0;
    return moving_us + MAX (gap_us - silent_us, silent_us > gap_us ? silent_us : 0);
}

double ecfs_smooth_rate (double rate, uint64_t bytes, int64_t elapsed_us, int64_t constant_us)
{
    double now = (double) bytes * 1e6 / (double) MAX (elapsed_us, 1);
    double weight = (double) elapsed_us / (double) (elapsed_us + constant_us);
    return rate > 0 ? rate + weight * (now - rate) : now;
}

bool ecfs_lane_refresh (EcfsLane *self, const EcfsLaneEndpoint *endpoint, int64_t now_us)
{
    bool found = endpoint->suspect && !self->suspect;
    bool answers = self->suspect && !endpoint->suspect;
    self->down = endpoint->down;
    self->down_us = endpoint->down ? endpoint->down_since_us : 0;
    self->suspect = endpoint->suspect;
    self->spent = endpoint->spent;
    self->rtt_us = endpoint->rtt_us;
    self->gap_us = endpoint->gap_us;
    self->endpoint_rate = endpoint->read_bytes_per_s;
    if (endpoint->read_bytes != self->endpoint_bytes)
        self->moved_us = now_us;
    self->endpoint_bytes = endpoint->read_bytes;
    if (self->stalled && (answers || now_us - self->stalled_us > STALL_RETRY_US))
        self->stalled = false;
    return found;
}

/* Its pace counts while it owes something. Meanwhile one that was slow is forgiven, or nobody would find out that it
 * is not any more. */
void ecfs_lane_measure (EcfsLane *self, int64_t now_us)
{
    if (self->bytes_per_s <= 0) /* it is what its endpoint usually is until it shows otherwise */
        self->bytes_per_s = self->endpoint_rate;
    if (self->owed_since_us != 0)
        self->bytes_per_s =
            ecfs_smooth_rate (self->bytes_per_s, self->came_bytes, now_us - self->owed_since_us, PACE_US);
    else if (self->bytes_per_s < self->endpoint_rate)
        self->bytes_per_s += (self->endpoint_rate - self->bytes_per_s) * ECFS_TICK_US / FORGIVEN_US;
    self->owed_since_us = self->n_running > 0 ? now_us : 0;
    self->came_bytes = 0;
}

uint64_t ecfs_lane_asked (EcfsLane *self, uint64_t bytes, int64_t now_us)
{
    if (self->n_running++ == 0) {
        self->busy_since_us = self->owed_since_us = now_us;
        self->came_bytes = 0;
    }
    return self->asked_bytes += bytes;
}

void ecfs_lane_came (EcfsLane *self, uint64_t bytes)
{
    self->came_bytes += bytes;
    self->passed_bytes += bytes;
}

void ecfs_lane_moved (EcfsLane *self, int64_t asked_us, int64_t now_us)
{
    int64_t since = MAX (self->last_byte_us, asked_us);
    self->mean_gap_us = (7 * self->mean_gap_us + (now_us - since)) / 8;
    self->last_byte_us = now_us;
    self->stalled = false;
}

void ecfs_lane_done (EcfsLane *self, uint64_t left_bytes)
{
    self->passed_bytes += left_bytes;
    if (--self->n_running == 0)
        self->owed_since_us = 0; /* it is not the lane that is slow from now on */
}

int64_t ecfs_lane_silent_us (const EcfsLane *self, int64_t asked_us, int64_t now_us)
{
    return now_us - MAX (MAX (self->last_byte_us, self->moved_us), MAX (self->busy_since_us, asked_us));
}

bool ecfs_lane_finds_stall (EcfsLane *self, int64_t asked_us, int64_t now_us)
{
    if (self->stalled || ecfs_lane_silent_us (self, asked_us, now_us) < ecfs_stall_us (self->rtt_us, self->mean_gap_us))
        return false;
    self->stalled = true;
    self->stalled_us = now_us;
    return true;
}

bool ecfs_lane_is_silent (const EcfsLane *self)
{
    return self->suspect || self->stalled;
}

int64_t ecfs_lane_due_us (const EcfsLane *self, uint64_t left_bytes, uint64_t mark, int64_t asked_us, int64_t now_us)
{
    uint64_t queued = mark - MIN (mark, self->passed_bytes);
    double rate = self->bytes_per_s > 0 ? self->bytes_per_s : self->endpoint_rate;
    return ecfs_due_us (MAX (left_bytes, queued), rate, self->gap_us,
                        MAX (ecfs_lane_silent_us (self, asked_us, now_us), 0));
}

void ecfs_lane_look_ahead (const EcfsLane *self, EcfsForecast forecast, uint64_t packet_bytes, EcfsCandidate *lane)
{
    double rate = self->endpoint_rate > 0 ? self->endpoint_rate : RATE_UNKNOWN;
    uint64_t queued = self->asked_bytes - self->passed_bytes + packet_bytes;
    /* What it did of late counts where that is less: so does it for what is under way. */
    int64_t own_us = self->rtt_us + ecfs_due_us (queued, self->bytes_per_s, 0, 0);
    lane->forecast_us = MAX (forecast.us, own_us);
    lane->late_us = self->endpoint_rate > 0 ? lane->forecast_us + self->gap_us : INT64_MAX / 2;
    lane->alone_us = self->rtt_us + ecfs_due_us (packet_bytes, rate, 0, 0);
    lane->n_running = self->n_running;
}

/* Four round trips until a stall is found and two for a refetch. */
int64_t ecfs_lane_reach_us (const EcfsLane *self)
{
    return self->rtt_us > 0 && !self->down && !self->suspect ? 6 * self->rtt_us : 0;
}

uint64_t ecfs_reach_bytes (double consumes_per_s, int64_t reach_us)
{
    double bytes = consumes_per_s * (double) reach_us / 1e6;
    return MAX (REACH_MIN_BYTES, (uint64_t) MIN (bytes, 1e12));
}

unsigned ecfs_grow_window (unsigned window, uint64_t passed, uint64_t most)
{
    window = MAX (window, 1);
    for (; passed > 0 && window < most; passed--)
        window *= 2;
    return (unsigned) MIN (window, most);
}

uint64_t ecfs_open_window (int64_t shared_us, unsigned n_at_once, uint32_t segment_bytes)
{
    uint64_t step = MAX (OPEN_SEGMENTS, OPEN_BYTES / segment_bytes);
    uint64_t us = (uint64_t) CLAMP (shared_us, 0, INT64_C (3600) * G_USEC_PER_SEC);
    return (step + step * us / G_USEC_PER_SEC) * MAX (n_at_once - 1, 1);
}
