/* What a reader knows of its lanes, and makes of it for the scheduler. */
#include "object/reader_priv.h"

#define SHARE_STALL_US (3 * G_USEC_PER_SEC) /* nobody here waits, and others for longer: many may share a line */
#define COMMON_TIMES   2                    /* … and so many times as long as all of them are silent */

/* Returns whether it has become suspect. */
static bool refresh_lane (EcfsLane *lane, EcfsEndpoint *endpoint, int64_t now_us)
{
    EcfsEndpointHealth health;
    ecfs_endpoint_health (endpoint, &health);
    EcfsForecast forecast = ecfs_endpoint_forecast (endpoint, 0);
    EcfsLaneEndpoint seen = {.down = health.down,
                             .suspect = health.suspect,
                             .spent = health.spent,
                             .down_since_us = health.down_since_us,
                             .rtt_us = health.rtt_us,
                             .gap_us = forecast.late_us - forecast.us,
                             .read_bytes_per_s = health.estimates.read_bytes_per_s.p50,
                             .read_bytes = health.read_bytes};
    ecfs_endpoint_health_clear (&health);
    return ecfs_lane_refresh (lane, &seen, now_us);
}

/* Of the longest line, as any may stall. What stalls on short lines is covered by the least, unless they are so fast
 * that more memory would cost more than a wait now and then: a deeper window takes 5% more processor time there. */
static int64_t reach_us (const EcfsReader *self)
{
    int64_t longest_us = 0;
    for (unsigned i = 0; i < self->n; i++)
        if (self->stripes[i].endpoint != NULL)
            longest_us = MAX (longest_us, ecfs_lane_reach_us (&self->lanes[i]));
    return longest_us;
}

uint64_t ecfs_reader_reach_locked (const EcfsReader *self)
{
    return ecfs_reach_bytes (self->consumes_per_s, self->reach_us);
}

bool ecfs_lanes_refresh_locked (EcfsReader *self, int64_t now_us)
{
    bool found = false;
    for (unsigned i = 0; i < self->n; i++) {
        if (self->stripes[i].endpoint == NULL)
            continue;
        found |= refresh_lane (&self->lanes[i], self->stripes[i].endpoint, now_us);
        ecfs_lane_measure (&self->lanes[i], now_us);
    }
    self->reach_us = reach_us (self);
    if (self->next_offset >= self->measured_offset && self->measured_us != 0)
        self->consumes_per_s = ecfs_smooth_rate (self->consumes_per_s, self->next_offset - self->measured_offset,
                                                 now_us - self->measured_us, ECFS_CONSUME_US);
    else
        self->consumes_per_s = 0;
    self->measured_offset = self->next_offset;
    self->measured_us = now_us;
    return found;
}

bool ecfs_lanes_find_stalls_locked (EcfsFetch *fetch, int64_t now_us)
{
    bool found = false;
    for (unsigned i = 0; i < fetch->reader->n; i++) {
        const EcfsFetchSlot *slot = &fetch->slots[i];
        found |= slot->asked && ecfs_lane_finds_stall (&fetch->reader->lanes[i], slot->asked_us, now_us);
    }
    return found;
}

/* Until what an asked slot waits for is here, in nearly all cases. */
static int64_t slot_due_us (const EcfsFetchSlot *slot, int64_t now_us) ECFS_REQUIRES (slot->fetch->reader->lock)
{
    const EcfsLane *lane = &slot->fetch->reader->lanes[slot->index];
    return ecfs_lane_due_us (lane, slot->fetch->slot_bytes - slot->filled, slot->mark, slot->asked_us, now_us);
}

bool ecfs_fetch_is_late_locked (const EcfsFetch *self, int64_t now_us)
{
    const EcfsReadPolicy *policy = &self->reader->params.policy;
    if (self->state != FETCH_RUNNING || self->patient || policy->replication != 0)
        return false;
    for (unsigned i = 0; i < self->reader->n; i++) {
        const EcfsFetchSlot *slot = &self->slots[i];
        ecfs_mutex_is_held (&slot->fetch->reader->lock);
        if (slot->asked && !slot->hedged && now_us + slot_due_us (slot, now_us) > slot->promise_us)
            return true;
    }
    return false;
}

/* In millionths, and a request more. */
static double price_of (const EcfsTariff *tariff, size_t bytes)
{
    return (double) tariff->price_egress * (double) bytes / 1e9 + (double) tariff->price_requests / 1000;
}

static void look_ahead (EcfsFetchSlot *slot, EcfsCandidate *lane)
{
    const EcfsFetch *fetch = slot->fetch;
    const EcfsReader *reader = fetch->reader;
    EcfsForecast forecast = ecfs_endpoint_forecast (reader->stripes[slot->index].endpoint, fetch->slot_bytes);
    slot->foretold_us = forecast.late_us;
    ecfs_lane_look_ahead (&reader->lanes[slot->index], forecast, fetch->slot_bytes, lane);
}

static int64_t common_silence_us (const EcfsFetch *self, int64_t now_us) ECFS_REQUIRES (self->reader->lock)
{
    const EcfsReader *reader = self->reader;
    int64_t silent_us[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < reader->n; i++) {
        const EcfsFetchSlot *slot = &self->slots[i];
        const EcfsLane *lane = &reader->lanes[i];
        int64_t asked_us = slot->asked ? slot->asked_us : 0;
        silent_us[i] = lane->n_running == 0 ? 0 : ecfs_lane_silent_us (lane, asked_us, now_us);
    }
    return ecfs_common_us (silent_us, reader->n, reader->n - reader->params.layout.k);
}

/* How long a lane may be silent before others are asked in its place; less than its stall time: does not matter. While
 * many read the same by one line, asking more of it makes all of them slower. */
static int64_t spare_us_locked (const EcfsFetch *self, int64_t now_us) ECFS_REQUIRES (self->reader->lock)
{
    int64_t spare_us = self->wish == ECFS_PEER_WANTED ? 0 : SHARE_STALL_US;
    bool is_shared = self->is_claimed && ecfs_reader_is_shared_locked (self->reader, now_us);
    return spare_us + (is_shared ? COMMON_TIMES * common_silence_us (self, now_us) : 0);
}

void ecfs_fetch_outlook_locked (EcfsFetch *self, int64_t now_us, EcfsCandidate *ret_lanes)
{
    EcfsReader *reader = self->reader;
    const bool cheap = reader->params.policy.cheap;
    const int64_t spare_us = spare_us_locked (self, now_us);
    for (unsigned i = 0; i < reader->n; i++) {
        const EcfsLane *health = &reader->lanes[i];
        EcfsFetchSlot *slot = &self->slots[i];
        bool silent = !self->patient && ecfs_lane_is_silent (health);
        bool may_wait = ecfs_lane_silent_us (health, slot->asked_us, now_us) < spare_us;
        EcfsCandidate *lane = &ret_lanes[i];
        *lane = (EcfsCandidate){.stored = reader->stripes[i].endpoint != NULL,
                                .arrived = slot->arrived,
                                .asked = slot->asked,
                                .stalled = slot->asked && silent && !may_wait,
                                .failed = slot->failed,
                                .resting = slot->retry_us > now_us,
                                .down = health->down || slot->attempts > 0,
                                .avoided = silent,
                                .spent = health->spent,
                                .n_overtook = slot->n_overtook};
        if (cheap && lane->stored)
            lane->price = price_of (ecfs_endpoint_tariff (reader->stripes[i].endpoint), self->slot_bytes);
        if (self->patient || !lane->stored || (lane->arrived && !cheap) || lane->failed)
            continue;
        if (!lane->asked || cheap) /* what is fast enough depends on all */
            look_ahead (slot, lane);
        if (!lane->asked)
            continue;
        ecfs_mutex_is_held (&slot->fetch->reader->lock);
        lane->due_us = slot_due_us (slot, now_us);
        lane->promised_us = slot->promise_us - now_us;
    }
}

/* Until the reader comes to it, at its pace of late. */
static int64_t needed_us_locked (const EcfsFetch *self) ECFS_REQUIRES (self->reader->lock)
{
    const EcfsReader *reader = self->reader;
    uint64_t start = self->segment * reader->params.layout.segment_bytes;
    if (self->waiting->len > 0 || start <= reader->next_offset)
        return 0;
    double us = 1e6 * (double) (start - reader->next_offset) / MAX (reader->consumes_per_s, 1);
    return us < 1e15 ? (int64_t) us : INT64_MAX;
}

EcfsWanted ecfs_fetch_wanted_locked (const EcfsFetch *self)
{
    const EcfsReader *reader = self->reader;
    const EcfsReadPolicy *policy = &reader->params.policy;
    unsigned n_most = policy->transfers == 0 ? UINT_MAX : policy->transfers;
    return (EcfsWanted){.packets = self->wanted,
                        .needed_us = needed_us_locked (self),
                        .n_hedges =
                            self->patient || self->wish != ECFS_PEER_WANTED
                                ? 0
                                : ecfs_hedges_left (policy, reader->received_bytes,
                                                    reader->extra_bytes + reader->hedging_bytes, self->slot_bytes),
                        .n_transfers = n_most - MIN (n_most, reader->n_running)};
}

static EcfsErasedWhy erased_why (const EcfsFetch *fetch, unsigned i)
{
    const EcfsLane *lane = &fetch->reader->lanes[i];
    const EcfsFetchSlot *slot = &fetch->slots[i];
    if (slot->arrived || fetch->reader->stripes[i].endpoint == NULL)
        return ECFS_ERASED_NOT;
    if (slot->attempts > 0 && !slot->asked && slot->failed_code != 0 && slot->failed_code != ECANCELED)
        return slot->failed_code == EBADMSG || slot->failed_code == ENOENT ? ECFS_ERASED_DAMAGED : ECFS_ERASED_DOWN;
    if (lane->down)
        return ECFS_ERASED_DOWN;
    if (ecfs_lane_is_silent (lane) && (slot->asked || fetch->wanted[i]))
        return ECFS_ERASED_STALLED;
    return slot->asked && slot->hedged ? ECFS_ERASED_LATE : ECFS_ERASED_NOT;
}

void ecfs_fetch_explain_locked (const EcfsFetch *self, bool decoded)
{
    EcfsReader *reader = self->reader;
    int64_t now_us = ecfs_now_us ();
    bool degraded = false;
    for (unsigned i = 0; i < reader->n && !self->patient; i++) {
        const EcfsFetchSlot *slot = &self->slots[i];
        EcfsErasedWhy why = erased_why (self, i);
        if (why == ECFS_ERASED_NOT)
            continue;
        ecfs_mutex_is_held (&slot->fetch->reader->lock);
        bool waits = slot->asked && (why == ECFS_ERASED_STALLED || why == ECFS_ERASED_LATE);
        ecfs_read_log_erased (reader->params.log, ecfs_endpoint_name (reader->stripes[i].endpoint), why,
                              waits ? slot_due_us (slot, now_us) : 0);
        degraded = true;
    }
    ecfs_read_log_count (reader->params.log,
                         &(EcfsReadCounts){.segments = 1, .decoded = decoded, .degraded = degraded});
}
