/* What a reader knows of its lanes, and makes of it for the scheduler. */
#include "object/reader_priv.h"

#define STALL_RETRY_US  5000000
#define PACE_US         200000  /* time constant of a lane's pace */
#define FORGIVEN_US     5000000 /* time constant of taking a slow lane for what its endpoint usually is */
#define CONSUME_US      500000  /* and of the reader's own */
#define REACH_MIN_BYTES (32u << 20)
#define RATE_UNKNOWN    1e8 /* bytes per second of an endpoint that was never read: it is worth a try */

/* Of a smoothed rate, @bytes in @elapsed_us later. */
static double smooth (double rate, uint64_t bytes, int64_t elapsed_us, int64_t constant_us)
{
    double now = (double) bytes * 1e6 / (double) MAX (elapsed_us, 1);
    double weight = (double) elapsed_us / (double) (elapsed_us + constant_us);
    return rate > 0 ? rate + weight * (now - rate) : now;
}

/* Returns whether it has become suspect. */
static bool refresh_lane (LaneHealth *lane, EcfsEndpoint *endpoint, int64_t now_us)
{
    EcfsEndpointHealth health;
    ecfs_endpoint_health (endpoint, &health);
    EcfsForecast forecast = ecfs_endpoint_forecast (endpoint, 0);
    bool found = health.suspect && !lane->suspect;
    bool answers = lane->suspect && !health.suspect;
    lane->down = health.down;
    lane->down_us = health.down ? health.down_since_us : 0;
    lane->suspect = health.suspect;
    lane->rtt_us = health.rtt_us;
    lane->gap_us = forecast.late_us - forecast.us;
    lane->endpoint_rate = health.estimates.read_bytes_per_s.p50;
    if (health.read_bytes != lane->endpoint_bytes)
        lane->moved_us = now_us;
    lane->endpoint_bytes = health.read_bytes;
    ecfs_endpoint_health_clear (&health);
    if (lane->stalled && (answers || now_us - lane->stalled_us > STALL_RETRY_US))
        lane->stalled = false;
    return found;
}

/* Its pace counts while it owes something. Meanwhile one that was slow is forgiven, or nobody would find out that it
 * is not any more. */
static void measure_lane (LaneHealth *lane, int64_t now_us)
{
    if (lane->owed_since_us != 0)
        lane->bytes_per_s = smooth (lane->bytes_per_s, lane->came_bytes, now_us - lane->owed_since_us, PACE_US);
    else if (lane->bytes_per_s < lane->endpoint_rate)
        lane->bytes_per_s += (lane->endpoint_rate - lane->bytes_per_s) * ECFS_TICK_US / FORGIVEN_US;
    lane->owed_since_us = lane->n_running > 0 ? now_us : 0;
    lane->came_bytes = 0;
}

/* Four round trips until a stall is found and two for a refetch, of the longest line as any may stall. What stalls on
 * short lines is covered by the least, unless they are so fast that more memory would cost more than a wait now and
 * then: a deeper window takes 5% more processor time there. */
static int64_t reach_us (const EcfsReader *self)
{
    int64_t longest_us = 0;
    for (unsigned i = 0; i < self->n; i++) {
        const LaneHealth *lane = &self->lanes[i];
        if (self->stripes[i].endpoint != NULL && lane->rtt_us > 0 && !lane->down && !lane->suspect)
            longest_us = MAX (longest_us, 6 * lane->rtt_us);
    }
    return longest_us;
}

uint64_t ecfs_reader_reach_locked (const EcfsReader *self)
{
    double bytes = self->consumes_per_s * (double) self->reach_us / 1e6;
    return MAX (REACH_MIN_BYTES, (uint64_t) MIN (bytes, 1e12));
}

bool ecfs_lanes_refresh_locked (EcfsReader *self, int64_t now_us)
{
    bool found = false;
    for (unsigned i = 0; i < self->n; i++) {
        if (self->stripes[i].endpoint == NULL)
            continue;
        found |= refresh_lane (&self->lanes[i], self->stripes[i].endpoint, now_us);
        measure_lane (&self->lanes[i], now_us);
    }
    self->reach_us = reach_us (self);
    if (self->next_offset >= self->measured_offset && self->measured_us != 0)
        self->consumes_per_s = smooth (self->consumes_per_s, self->next_offset - self->measured_offset,
                                       now_us - self->measured_us, CONSUME_US);
    else
        self->consumes_per_s = 0;
    self->measured_offset = self->next_offset;
    self->measured_us = now_us;
    return found;
}

/* Since when a slot's lane shows nothing: no byte for this reader, nor for another. */
static int64_t silent_us (const LaneHealth *lane, const Slot *slot, int64_t now_us)
{
    return now_us - MAX (MAX (lane->last_byte_us, lane->moved_us), slot->asked_us);
}

bool ecfs_lanes_find_stalls_locked (Fetch *fetch, int64_t now_us)
{
    bool found = false;
    for (unsigned i = 0; i < fetch->reader->n; i++) {
        LaneHealth *lane = &fetch->reader->lanes[i];
        const Slot *slot = &fetch->slots[i];
        if (!slot->asked || lane->stalled ||
            silent_us (lane, slot, now_us) < ecfs_stall_us (lane->rtt_us, lane->mean_gap_us))
            continue;
        lane->stalled = true;
        lane->stalled_us = now_us;
        found = true;
    }
    return found;
}

int64_t ecfs_slot_due_us (const Slot *slot, int64_t now_us)
{
    const LaneHealth *lane = &slot->fetch->reader->lanes[slot->index];
    uint64_t left = slot->fetch->slot_bytes - slot->filled;
    uint64_t queued = slot->mark - MIN (slot->mark, lane->passed_bytes);
    double rate = lane->bytes_per_s > 0 ? lane->bytes_per_s : lane->endpoint_rate;
    return ecfs_due_us (MAX (left, queued), rate, lane->gap_us, MAX (silent_us (lane, slot, now_us), 0));
}

bool ecfs_fetch_is_late_locked (const Fetch *self, int64_t now_us)
{
    const EcfsReadPolicy *policy = &self->reader->params.policy;
    if (self->state != FETCH_RUNNING || self->patient || policy->replication != 0)
        return false;
    for (unsigned i = 0; i < self->reader->n; i++) {
        const Slot *slot = &self->slots[i];
        ecfs_mutex_is_held (&slot->fetch->reader->lock);
        if (slot->asked && !slot->hedged && now_us + ecfs_slot_due_us (slot, now_us) > slot->promise_us)
            return true;
    }
    return false;
}

static void look_ahead (Slot *slot, EcfsLane *lane)
{
    const Fetch *fetch = slot->fetch;
    const LaneHealth *health = &fetch->reader->lanes[slot->index];
    EcfsForecast forecast = ecfs_endpoint_forecast (fetch->reader->stripes[slot->index].endpoint, fetch->slot_bytes);
    double rate = health->endpoint_rate > 0 ? health->endpoint_rate : RATE_UNKNOWN;
    uint64_t queued = health->asked_bytes - health->passed_bytes + fetch->slot_bytes;
    /* What it did of late counts where that is less: so does it for what is under way. */
    int64_t own_us = health->rtt_us + ecfs_due_us (queued, health->bytes_per_s, 0, 0);
    slot->foretold_us = forecast.late_us;
    lane->forecast_us = MAX (forecast.us, own_us);
    lane->late_us = health->endpoint_rate > 0 ? lane->forecast_us + health->gap_us : INT64_MAX / 2;
    lane->alone_us = health->rtt_us + ecfs_due_us (fetch->slot_bytes, rate, 0, 0);
    lane->n_running = health->n_running;
}

void ecfs_fetch_outlook_locked (Fetch *self, int64_t now_us, EcfsLane *ret_lanes)
{
    EcfsReader *reader = self->reader;
    for (unsigned i = 0; i < reader->n; i++) {
        const LaneHealth *health = &reader->lanes[i];
        Slot *slot = &self->slots[i];
        bool silent = !self->patient && (health->stalled || health->suspect);
        EcfsLane *lane = &ret_lanes[i];
        *lane = (EcfsLane){.stored = reader->stripes[i].endpoint != NULL,
                           .arrived = slot->arrived,
                           .asked = slot->asked,
                           .stalled = slot->asked && silent,
                           .failed = slot->failed,
                           .resting = slot->retry_us > now_us,
                           .down = health->down || slot->attempts > 0,
                           .avoided = silent,
                           .n_overtook = slot->n_overtook};
        if (self->patient || !lane->stored || lane->arrived || lane->failed)
            continue;
        if (!lane->asked) {
            look_ahead (slot, lane);
            continue;
        }
        ecfs_mutex_is_held (&slot->fetch->reader->lock);
        lane->due_us = ecfs_slot_due_us (slot, now_us);
        lane->promised_us = slot->promise_us - now_us;
    }
}

/* Until the reader comes to it, at its pace of late. */
static int64_t needed_us_locked (const Fetch *self) ECFS_REQUIRES (self->reader->lock)
{
    const EcfsReader *reader = self->reader;
    uint64_t start = self->segment * reader->params.layout.segment_bytes;
    if (self->waiting->len > 0 || start <= reader->next_offset)
        return 0;
    double us = 1e6 * (double) (start - reader->next_offset) / MAX (reader->consumes_per_s, 1);
    return us < 1e15 ? (int64_t) us : INT64_MAX;
}

EcfsWanted ecfs_fetch_wanted_locked (const Fetch *self)
{
    const EcfsReader *reader = self->reader;
    const EcfsReadPolicy *policy = &reader->params.policy;
    unsigned n_most = policy->transfers == 0 ? UINT_MAX : policy->transfers;
    return (EcfsWanted){.packets = self->wanted,
                        .needed_us = needed_us_locked (self),
                        .n_hedges = self->patient ? 0
                                                  : ecfs_hedges_left (policy, reader->received_bytes,
                                                                      reader->extra_bytes + reader->hedging_bytes,
                                                                      self->slot_bytes),
                        .n_transfers = n_most - MIN (n_most, reader->n_running)};
}

static EcfsErasedWhy erased_why (const Fetch *fetch, unsigned i)
{
    const LaneHealth *lane = &fetch->reader->lanes[i];
    const Slot *slot = &fetch->slots[i];
    if (slot->arrived || fetch->reader->stripes[i].endpoint == NULL)
        return ECFS_ERASED_NOT;
    if (slot->attempts > 0 && !slot->asked && slot->failed_code != 0 && slot->failed_code != ECANCELED)
        return slot->failed_code == EBADMSG || slot->failed_code == ENOENT ? ECFS_ERASED_DAMAGED : ECFS_ERASED_DOWN;
    if (lane->down)
        return ECFS_ERASED_DOWN;
    if ((lane->stalled || lane->suspect) && (slot->asked || fetch->wanted[i]))
        return ECFS_ERASED_STALLED;
    return slot->asked && slot->hedged ? ECFS_ERASED_LATE : ECFS_ERASED_NOT;
}

void ecfs_fetch_explain_locked (const Fetch *self, bool decoded)
{
    EcfsReader *reader = self->reader;
    int64_t now_us = ecfs_now_us ();
    bool degraded = false;
    for (unsigned i = 0; i < reader->n && !self->patient; i++) {
        const Slot *slot = &self->slots[i];
        EcfsErasedWhy why = erased_why (self, i);
        if (why == ECFS_ERASED_NOT)
            continue;
        ecfs_mutex_is_held (&slot->fetch->reader->lock);
        bool waits = slot->asked && (why == ECFS_ERASED_STALLED || why == ECFS_ERASED_LATE);
        ecfs_read_log_erased (reader->params.log, ecfs_endpoint_name (reader->stripes[i].endpoint), why,
                              waits ? ecfs_slot_due_us (slot, now_us) : 0);
        degraded = true;
    }
    ecfs_read_log_count (reader->params.log,
                         &(EcfsReadCounts){.segments = 1, .decoded = decoded, .degraded = degraded});
}
