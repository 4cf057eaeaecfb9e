#include "simulation.h"

#include <math.h>
#include <string.h>

#define TICK_US  20000
#define LIMIT_US (600 * G_USEC_PER_SEC)
#define N_GAPS   64
#define UNKNOWN  1e8 /* bytes per second */
#define RATE_US  2e6 /* time constants of the long and of the short memory of a rate */
#define PACE_US  2e5

typedef struct Piece {
    uint64_t segment, number;
    unsigned lane;
    int64_t asked_us, ready_us, promise_us;
    double left; /* bytes */
    unsigned n_overtook;
    bool extra;
} Piece;

typedef struct Segment {
    bool wanted[ECFS_CODEC_MAX_N], arrived[ECFS_CODEC_MAX_N];
    bool ready;
} Segment;

/* What the reader measures of a lane. */
typedef struct Measured {
    double rate, pace, came; /* bytes per second; bytes since the last tick */
    bool owed;               /* at the last tick */
    int64_t gaps[N_GAPS], gap_us, mean_gap_us, last_us, rtt_us;
    unsigned n_gaps;
    bool stalled;
} Measured;

typedef struct Sim {
    const Model *model;
    EcfsCodec *codec;
    unsigned n;
    GRand *random;
    GQueue queues[ECFS_CODEC_MAX_N]; /* of Piece */
    Measured measured[ECFS_CODEC_MAX_N];
    Segment *segments;
    int64_t now_us, tick_us, free_us, consumed_us; /* free_us: the reader takes the next segment then */
    uint64_t consumed, n_numbers;
    unsigned n_running;
    uint64_t hedging_bytes;
    Simulated result;
} Sim;

void model_init (Model *self)
{
    *self = (Model){.code = "rs:8+3", .n_segments = 200, .piece_bytes = 256 << 10, .window = 16, .seed = 1};
    ecfs_read_policy_init (&self->policy);
    for (unsigned i = 0; i < ECFS_CODEC_MAX_N; i++)
        self->lanes[i] = (ModelLane){
            .bytes_per_s = 10e6, .latency_us = 1000, .changes_us = SIMULATION_NEVER, .until_us = SIMULATION_NEVER};
}

/* The model */

static double rate_of (const Sim *self, unsigned lane)
{
    const ModelLane *model = &self->model->lanes[lane];
    bool changed = self->now_us >= model->changes_us && self->now_us < model->until_us;
    return changed ? model->later_bytes_per_s : model->bytes_per_s;
}

/* What a lane sends now; NULL: nothing is ready. */
static Piece *sending (const Sim *self, unsigned lane)
{
    for (GList *at = self->queues[lane].head; at != NULL; at = at->next) {
        Piece *piece = at->data;
        if (piece->ready_us <= self->now_us)
            return piece;
    }
    return NULL;
}

static int64_t answer_us (Sim *self, unsigned lane)
{
    const ModelLane *model = &self->model->lanes[lane];
    int64_t us = model->latency_us + (int64_t) (g_rand_double (self->random) * (double) model->jitter_us);
    return us + (g_rand_double (self->random) < model->delayed_share ? model->delay_us : 0);
}

static void note_gap (Measured *self, int64_t us)
{
    self->gaps[self->n_gaps++ % N_GAPS] = us;
    self->mean_gap_us = (7 * self->mean_gap_us + us) / 8;
    self->rtt_us = self->rtt_us == 0 ? us : self->rtt_us + (us - self->rtt_us) / 8;
    unsigned n = MIN (self->n_gaps, N_GAPS);
    int64_t sorted[N_GAPS];
    for (unsigned i = 0; i < n; i++) { /* by insertion: they are few */
        unsigned at = i;
        for (; at > 0 && sorted[at - 1] > self->gaps[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = self->gaps[i];
    }
    self->gap_us = sorted[(n * 19 + 19) / 20 - 1];
}

/* Lets the lanes send until @until_us, before which none of their rates changes and no piece is complete. */
static void advance (Sim *self, int64_t until_us)
{
    for (unsigned i = 0; i < self->n; i++) {
        Piece *piece = sending (self, i);
        double bytes = piece == NULL ? 0 : rate_of (self, i) * (double) (until_us - self->now_us) / 1e6;
        if (bytes <= 0)
            continue;
        Measured *lane = &self->measured[i];
        if (piece->left == (double) self->model->piece_bytes)
            note_gap (lane, self->now_us - MAX (piece->asked_us, lane->last_us));
        piece->left = MAX (piece->left - bytes, 0);
        lane->came += bytes;
        lane->last_us = until_us;
        lane->stalled = false;
    }
    self->now_us = until_us;
}

static int64_t next_us (const Sim *self)
{
    int64_t next = self->tick_us;
    for (unsigned i = 0; i < self->n; i++) {
        const ModelLane *model = &self->model->lanes[i];
        const Piece *piece = sending (self, i);
        if (model->changes_us > self->now_us)
            next = MIN (next, model->changes_us);
        if (model->until_us > self->now_us)
            next = MIN (next, model->until_us);
        if (piece != NULL && rate_of (self, i) > 0)
            next = MIN (next, self->now_us + (int64_t) ceil (1e6 * piece->left / rate_of (self, i)));
        for (GList *at = self->queues[i].head; at != NULL; at = at->next)
            if (((Piece *) at->data)->ready_us > self->now_us)
                next = MIN (next, ((Piece *) at->data)->ready_us);
    }
    if (self->free_us > self->now_us)
        next = MIN (next, self->free_us);
    return MAX (next, self->now_us + 1);
}

/* The reader */

static void forget (Sim *self, Piece *piece)
{
    g_queue_remove (&self->queues[piece->lane], piece);
    if (self->queues[piece->lane].length == 0)
        self->measured[piece->lane].owed = false; /* it is not the lane that is slow from now on */
    self->n_running--;
    self->hedging_bytes -= piece->extra ? self->model->piece_bytes : 0;
    g_free (piece);
}

static Piece *find (const Sim *self, uint64_t segment, unsigned lane)
{
    for (GList *at = self->queues[lane].head; at != NULL; at = at->next)
        if (((Piece *) at->data)->segment == segment)
            return at->data;
    return NULL;
}

static double queued_bytes (const Sim *self, unsigned lane, const Piece *up_to)
{
    double bytes = 0;
    for (GList *at = self->queues[lane].head; at != NULL; at = at->next) {
        bytes += ((Piece *) at->data)->left;
        if (at->data == up_to)
            break;
    }
    return bytes;
}

static EcfsLane look (const Sim *self, uint64_t segment, unsigned i)
{
    const Measured *measured = &self->measured[i];
    const Piece *piece = find (self, segment, i);
    double rate = measured->rate > 0 ? MIN (measured->rate, measured->pace) : UNKNOWN;
    double bytes = queued_bytes (self, i, piece) + (piece == NULL ? (double) self->model->piece_bytes : 0);
    EcfsLane lane = {.stored = !self->model->lanes[i].removed,
                     .arrived = self->segments[segment].arrived[i],
                     .asked = piece != NULL,
                     .stalled = piece != NULL && measured->stalled,
                     .avoided = measured->stalled,
                     .forecast_us = measured->rtt_us + (int64_t) (1e6 * bytes / rate),
                     .alone_us = measured->rtt_us + (int64_t) (1e6 * (double) self->model->piece_bytes / rate),
                     .n_running = self->queues[i].length};
    lane.late_us = measured->rate > 0 ? lane.forecast_us + measured->gap_us : INT64_MAX / 2;
    if (piece != NULL) {
        double pace = measured->pace > 0 ? measured->pace : measured->rate;
        int64_t silent_us = self->now_us - MAX (measured->last_us, piece->asked_us);
        lane.due_us = ecfs_due_us ((uint64_t) bytes, pace, measured->gap_us, silent_us);
        lane.promised_us = piece->promise_us - self->now_us;
        lane.n_overtook = piece->n_overtook;
    }
    return lane;
}

static void ask (Sim *self, uint64_t segment, const EcfsLane *lane, unsigned i, bool extra)
{
    Piece *piece = g_new0 (Piece, 1);
    *piece = (Piece){.segment = segment,
                     .number = ++self->n_numbers,
                     .lane = i,
                     .asked_us = self->now_us,
                     .ready_us = self->now_us + answer_us (self, i),
                     .promise_us = self->now_us + lane->forecast_us + self->measured[i].gap_us,
                     .left = (double) self->model->piece_bytes,
                     .extra = extra};
    g_queue_push_tail (&self->queues[i], piece);
    self->result.n_asked[i]++;
    self->n_running++;
    self->result.most_running = MAX (self->result.most_running, self->n_running);
    self->hedging_bytes += extra ? self->model->piece_bytes : 0;
}

static void end_segment (Sim *self, uint64_t segment)
{
    self->segments[segment].ready = true;
    for (unsigned i = 0; i < self->n; i++) {
        Piece *piece = find (self, segment, i);
        if (piece == NULL)
            continue;
        self->result.extra_bytes += self->model->piece_bytes - (uint64_t) MAX (piece->left, 0);
        forget (self, piece);
    }
}

static EcfsWanted wanted_of (const Sim *self, uint64_t segment)
{
    const Model *model = self->model;
    unsigned most = model->policy.transfers == 0 ? UINT_MAX : model->policy.transfers;
    double pace = self->consumed_us == 0 ? 0 : (double) self->consumed * 1e6 / (double) self->consumed_us;
    bool waits = segment == self->consumed && self->now_us >= self->free_us;
    return (EcfsWanted){.packets = self->segments[segment].wanted,
                        .needed_us = waits       ? 0
                                     : pace <= 0 ? INT64_MAX
                                                 : (int64_t) (1e6 * (double) (segment - self->consumed + 1) / pace),
                        .n_hedges =
                            ecfs_hedges_left (&model->policy, self->result.received_bytes,
                                              self->result.extra_bytes + self->hedging_bytes, model->piece_bytes),
                        .n_transfers = most - MIN (most, self->n_running)};
}

static void schedule (Sim *self, uint64_t segment)
{
    EcfsLane lanes[ECFS_CODEC_MAX_N];
    EcfsDecision decision;
    if (self->segments[segment].ready)
        return;
    for (unsigned i = 0; i < self->n; i++)
        lanes[i] = look (self, segment, i);
    EcfsWanted wanted = wanted_of (self, segment);
    switch (ecfs_schedule (self->codec, &self->model->policy, &wanted, lanes, &decision)) {
    case ECFS_SCHEDULE_READY:
        end_segment (self, segment);
        break;
    case ECFS_SCHEDULE_WAIT:
        self->result.n_hedges += decision.n_hedges;
        for (unsigned i = 0; i < self->n; i++)
            if (decision.ask[i])
                ask (self, segment, &lanes[i], i, decision.n_hedges > 0);
        break;
    case ECFS_SCHEDULE_IMPOSSIBLE:
        self->result.impossible = true;
        break;
    }
}

static void schedule_all (Sim *self)
{
    uint64_t end = MIN (self->consumed + self->model->window, self->model->n_segments);
    for (uint64_t segment = self->consumed; segment < end; segment++)
        schedule (self, segment);
}

static void take_complete (Sim *self)
{
    bool any = false;
    for (unsigned i = 0; i < self->n; i++) {
        Piece *piece = sending (self, i);
        if (piece == NULL || piece->left >= 0.5)
            continue;
        uint64_t segment = piece->segment, number = piece->number;
        self->segments[segment].arrived[i] = any = true;
        self->result.received_bytes += self->model->piece_bytes;
        forget (self, piece);
        for (unsigned j = 0; j < self->n; j++)
            for (GList *at = self->queues[j].head; at != NULL; at = at->next)
                ((Piece *) at->data)->n_overtook += ((Piece *) at->data)->number < number;
        schedule (self, segment);
    }
    if (any && (self->model->policy.transfers > 0 || self->model->policy.replication > 1))
        schedule_all (self);
}

static void consume (Sim *self)
{
    bool moved = false;
    double per_s = self->model->reader_segments_per_s;
    while (self->consumed < self->model->n_segments && self->segments[self->consumed].ready &&
           self->now_us >= self->free_us) {
        self->result.longest_wait_us = MAX (self->result.longest_wait_us, self->now_us - self->free_us);
        self->free_us = self->now_us + (per_s > 0 ? (int64_t) (1e6 / per_s) : 0);
        self->consumed_us = self->now_us;
        self->consumed++;
        moved = true;
    }
    if (moved)
        schedule_all (self);
}

static void tick (Sim *self)
{
    self->tick_us = self->now_us + TICK_US;
    for (unsigned i = 0; i < self->n; i++) {
        Measured *lane = &self->measured[i];
        double now = lane->came * 1e6 / TICK_US;
        const Piece *oldest = g_queue_peek_head (&self->queues[i]);
        if (lane->owed) {
            lane->rate += (lane->rate > 0 ? TICK_US / (TICK_US + RATE_US) : 1) * (now - lane->rate);
            lane->pace += (lane->pace > 0 ? TICK_US / (TICK_US + PACE_US) : 1) * (now - lane->pace);
        }
        lane->came = 0;
        lane->owed = oldest != NULL;
        if (oldest != NULL &&
            self->now_us - MAX (lane->last_us, oldest->asked_us) >= ecfs_stall_us (lane->rtt_us, lane->mean_gap_us))
            lane->stalled = true;
        else if (rate_of (self, i) > 0)
            lane->stalled = false; /* the answers to what was cancelled tell */
    }
    schedule_all (self);
}

static void sim_clear (Sim *self)
{
    for (unsigned i = 0; i < self->n; i++)
        while (self->queues[i].head != NULL)
            forget (self, self->queues[i].head->data);
    g_rand_free (self->random);
    g_free (self->segments);
    ecfs_codec_free (self->codec);
}

Simulated simulate (const Model *model)
{
    g_autoptr (GError) error = NULL;
    Sim self = {.model = model, .codec = ecfs_codec_new (model->code, &error), .tick_us = TICK_US};
    g_assert_no_error (error);
    self.n = ecfs_codec_n (self.codec);
    self.random = g_rand_new_with_seed (model->seed);
    self.segments = g_new0 (Segment, model->n_segments);
    for (uint64_t s = 0; s < model->n_segments; s++)
        for (unsigned i = 0; i < ecfs_codec_k (self.codec); i++)
            self.segments[s].wanted[i] = true;
    schedule_all (&self);
    while (self.consumed < model->n_segments && !self.result.impossible) {
        g_assert_cmpint (self.now_us, <, LIMIT_US);
        advance (&self, next_us (&self));
        take_complete (&self);
        consume (&self);
        if (self.now_us >= self.tick_us)
            tick (&self);
    }
    self.result.us = self.now_us;
    sim_clear (&self);
    return self.result;
}
