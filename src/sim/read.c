/* Clients that read objects, one after the other: what reader.c, fetch.c and lanes.c of src/object do with threads. */
#include "object/placement.h"
#include "sim/events.h"
#include "sim/network.h"

#include <string.h>

#define MINUTE_US    (60 * G_USEC_PER_SEC)
#define N_CANDIDATES 64  /* endpoints that placement chooses from, for each object */
#define MAX_PACKETS  1e8 /* of the objects that are read at a time */

typedef enum SegmentState { SEGMENT_RUNNING, SEGMENT_DECODING, SEGMENT_READY } SegmentState;

typedef struct Segment {
    SegmentState state;
    bool *arrived;       /* n */
    SimPacket **packets; /* n; NULL: not asked */
} Segment;

typedef struct Sim Sim;

struct SimReader {
    Sim *sim;
    unsigned client;
    uint64_t object;
    unsigned n_places; /* where its packets are: n, or all servers where it is spread */
    SimLink **links;   /* n_places; NULL: not stored */
    EcfsLane *lanes;   /* n_places */
    Segment *segments;
    uint64_t consumed; /* segments */
    uint64_t first;    /* that is not ready */
    unsigned window, n_running;
    int64_t begun_us, free_us, decoded_us; /* free_us: it takes the next segment then */
    uint64_t n_numbers, received_bytes, extra_bytes, hedging_bytes;
    double measured_at, consumes_per_s; /* bytes of packets */
    int64_t measured_us, reach_us;
    bool failed;
    bool ended; /* its memory is kept for timers that are planned still */
};

struct Sim {
    const EcfsSimModel *model;
    EcfsCodec *codec;
    unsigned k, n;
    double decoding_work;
    GRand *random;
    SimNetwork *network;
    bool wanted[ECFS_CODEC_MAX_N];
    SimReader **readers;   /* by client; NULL: it has read all */
    uint64_t *next_object; /* by client */
    unsigned n_reading;
    GPtrArray *all_readers; /* of SimReader, those that ended too */
    GArray *object_us;      /* of int64_t */
    EcfsSimResult result;
};

enum { TIMER_CONSUME = 0, TIMER_DECODED = 1 }; /* TIMER_DECODED + segment */

void ecfs_sim_model_init (EcfsSimModel *self)
{
    *self = (EcfsSimModel){.code = "rs:8+3",
                           .n_segments = 200,
                           .packet_bytes = 256 << 10,
                           .n_clients = 1,
                           .n_objects = 1,
                           .seed = 1,
                           .limit_us = 10 * MINUTE_US};
    ecfs_read_policy_init (&self->policy);
}

EcfsSimServer ecfs_sim_server (void)
{
    return (EcfsSimServer){
        .bytes_per_s = 10e6, .latency_us = 1000, .changes_us = ECFS_SIM_NEVER, .until_us = ECFS_SIM_NEVER};
}

static void schedule (SimReader *self, uint64_t segment);

static uint64_t segment_bytes (const Sim *sim)
{
    return sim->k * sim->model->packet_bytes;
}

/* Where sequential reading has come to, within a segment where its reader takes its time. */
static double position (const SimReader *self)
{
    const Sim *sim = self->sim;
    int64_t left_us = MAX (self->free_us - ecfs_sim_now_us (sim->network), 0);
    return ((double) self->consumed - (double) left_us * sim->model->reader_segments_per_s / 1e6) *
           (double) segment_bytes (sim);
}

static unsigned window_of (const SimReader *self)
{
    const EcfsSimModel *model = self->sim->model;
    return model->window > 0 ? model->window : self->window + 1;
}

static void schedule_all (SimReader *self)
{
    uint64_t end = MIN (self->consumed + window_of (self), self->sim->model->n_segments);
    for (uint64_t segment = MAX (self->consumed, self->first); segment < end && !self->failed; segment++)
        schedule (self, segment);
}

static unsigned place_of (const SimReader *self, uint64_t segment, unsigned lane)
{
    return self->sim->model->spread ? (unsigned) ((segment * self->sim->n + lane) % self->n_places) : lane;
}

/* Packets */

static SimPacket *release (SimPacket *packet)
{
    SimReader *self = packet->reader;
    ecfs_sim_drop (self->sim->network, packet);
    ecfs_lane_done (&self->lanes[packet->place], packet->bytes - packet->filled);
    self->segments[packet->segment].packets[packet->lane] = NULL;
    self->n_running--;
    self->hedging_bytes -= packet->extra ? packet->bytes : 0;
    return packet;
}

static void drop_rest (SimReader *self, uint64_t segment)
{
    for (unsigned i = 0; i < self->sim->n; i++) {
        SimPacket *packet = self->segments[segment].packets[i];
        if (packet == NULL)
            continue;
        ecfs_sim_settle (self->sim->network, packet->link);
        self->extra_bytes += packet->filled;
        g_free (release (packet));
    }
}

static void ask (SimReader *self, uint64_t segment, unsigned lane, int64_t foretold_us, bool extra)
{
    Sim *sim = self->sim;
    SimPacket *packet = g_new0 (SimPacket, 1);
    packet->place = place_of (self, segment, lane);
    packet->link = self->links[packet->place];
    packet->reader = self;
    packet->segment = segment;
    packet->lane = lane;
    packet->bytes = sim->model->packet_bytes;
    packet->number = ++self->n_numbers;
    packet->extra = extra;
    packet->promise_us = ecfs_sim_now_us (sim->network) + foretold_us;
    ecfs_sim_ask (sim->network, packet);
    packet->mark = ecfs_lane_asked (&self->lanes[packet->place], packet->bytes, packet->asked_us);
    self->segments[segment].packets[lane] = packet;
    self->n_running++;
    self->hedging_bytes += extra ? packet->bytes : 0;
    sim->result.most_running = MAX (sim->result.most_running, self->n_running);
    if (sim->model->ret_asked != NULL)
        sim->model->ret_asked[packet->link->server]++;
}

/* What the scheduler is told */

static EcfsCandidate look (SimReader *self, uint64_t segment, unsigned i, int64_t *ret_foretold_us)
{
    unsigned place = place_of (self, segment, i);
    const EcfsLane *health = &self->lanes[place];
    const SimPacket *packet = self->segments[segment].packets[i];
    int64_t now_us = ecfs_sim_now_us (self->sim->network);
    bool silent = ecfs_lane_is_silent (health);
    EcfsCandidate lane = {.stored = self->links[place] != NULL,
                          .arrived = self->segments[segment].arrived[i],
                          .asked = packet != NULL,
                          .stalled = packet != NULL && silent,
                          .down = health->down,
                          .avoided = silent};
    *ret_foretold_us = 0;
    if (!lane.stored || lane.arrived)
        return lane;
    if (packet != NULL) {
        lane.n_overtook = packet->n_overtook;
        lane.due_us = ecfs_lane_due_us (health, packet->bytes - packet->filled, packet->mark, packet->asked_us, now_us);
        lane.promised_us = packet->promise_us - now_us;
        return lane;
    }
    uint64_t bytes = self->sim->model->packet_bytes;
    EcfsForecast forecast = ecfs_sim_forecast (self->links[place], bytes);
    *ret_foretold_us = forecast.late_us;
    ecfs_lane_look_ahead (health, forecast, bytes, &lane);
    return lane;
}

static EcfsWanted wanted_of (const SimReader *self, uint64_t segment)
{
    const EcfsSimModel *model = self->sim->model;
    unsigned most = model->policy.transfers == 0 ? UINT_MAX : model->policy.transfers;
    double ahead = (double) segment * (double) segment_bytes (self->sim) - position (self);
    double us = 1e6 * ahead / MAX (self->consumes_per_s, 1);
    return (EcfsWanted){.packets = self->sim->wanted,
                        .needed_us = ahead <= 0  ? 0
                                     : us < 1e15 ? (int64_t) us
                                                 : INT64_MAX,
                        .n_hedges = ecfs_hedges_left (&model->policy, self->received_bytes,
                                                      self->extra_bytes + self->hedging_bytes, model->packet_bytes),
                        .n_transfers = most - MIN (most, self->n_running)};
}

/* Segments */

static void consume (SimReader *self);

static void end_segment (SimReader *self, uint64_t segment)
{
    self->segments[segment].state = SEGMENT_READY;
    while (self->first < self->sim->model->n_segments && self->segments[self->first].state != SEGMENT_RUNNING)
        self->first++;
    consume (self);
}

/* What decoding goes over. */
static double decoding_bytes (const Sim *sim, const Segment *segment)
{
    unsigned n_missing = 0;
    for (unsigned i = 0; i < sim->k; i++)
        n_missing += !segment->arrived[i];
    return n_missing * sim->decoding_work * (double) sim->model->packet_bytes;
}

static void complete_segment (SimReader *self, uint64_t number)
{
    Sim *sim = self->sim;
    Segment *segment = &self->segments[number];
    drop_rest (self, number);
    segment->state = SEGMENT_DECODING;
    double bytes = sim->model->decode_bytes_per_s > 0 ? decoding_bytes (sim, segment) : 0;
    if (bytes <= 0) {
        end_segment (self, number);
        return;
    }
    int64_t now_us = ecfs_sim_now_us (sim->network);
    int64_t span_us = ecfs_sim_span_us (bytes, sim->model->decode_bytes_per_s);
    self->decoded_us = MIN (MAX (self->decoded_us, now_us) + span_us, ECFS_SIM_NEVER / 2);
    ecfs_sim_timer (sim->network, self, self->decoded_us, TIMER_DECODED + number);
}

static void schedule (SimReader *self, uint64_t number)
{
    Sim *sim = self->sim;
    Segment *segment = &self->segments[number];
    EcfsCandidate lanes[ECFS_CODEC_MAX_N];
    int64_t foretold_us[ECFS_CODEC_MAX_N];
    EcfsDecision decision;
    if (segment->state != SEGMENT_RUNNING || self->failed)
        return;
    for (unsigned i = 0; i < sim->n; i++)
        lanes[i] = look (self, number, i, &foretold_us[i]);
    EcfsWanted wanted = wanted_of (self, number);
    switch (ecfs_schedule (sim->codec, &sim->model->policy, &wanted, lanes, &decision)) {
    case ECFS_SCHEDULE_READY:
        complete_segment (self, number);
        break;
    case ECFS_SCHEDULE_WAIT:
        sim->result.n_hedges += decision.n_hedges;
        for (unsigned i = 0; i < sim->n; i++) {
            if (segment->packets[i] != NULL)
                segment->packets[i]->hedged |= decision.late[i];
            if (decision.ask[i])
                ask (self, number, i, foretold_us[i], decision.n_hedges > 0);
        }
        break;
    case ECFS_SCHEDULE_IMPOSSIBLE:
        self->failed = true;
        break;
    }
}

/* Clients */

/* Stripe i of the object; of many endpoints placement chooses among some. */
static void place_links (SimReader *self)
{
    Sim *sim = self->sim;
    const EcfsSimModel *model = sim->model;
    size_t found[ECFS_CODEC_MAX_N], candidates[N_CANDIDATES];
    EcfsPlace places[N_CANDIDATES];
    size_t n = MIN (model->n_servers, N_CANDIDATES);
    if (model->spread) {
        for (unsigned i = 0; i < self->n_places; i++)
            self->links[i] = model->servers[i].removed ? NULL : ecfs_sim_link (sim->network, self->client, i);
        return;
    }
    for (unsigned i = 0; i < sim->n; i++)
        found[i] = (self->object + i) % model->n_servers;
    if (model->place_by_lot && sim->n <= n) {
        size_t first = model->n_servers > n ? g_rand_int (sim->random) % model->n_servers : 0;
        size_t step = model->n_servers > n ? model->n_servers / n : 1;
        bool all[ECFS_CODEC_MAX_N];
        memset (all, true, sim->n * sizeof *all);
        for (size_t i = 0; i < n; i++) {
            candidates[i] = (first + i * step) % model->n_servers;
            places[i] =
                (EcfsPlace){.zone = model->servers[candidates[i]].zone, .usable = true, .room = ECFS_ROOM_UNKNOWN};
        }
        (void) ecfs_place (places, n, all, sim->n, 1, g_rand_int (sim->random), found); /* there are enough */
        for (unsigned i = 0; i < sim->n; i++)
            found[i] = candidates[found[i]];
    }
    for (unsigned i = 0; i < sim->n; i++)
        self->links[i] =
            model->servers[found[i]].removed ? NULL : ecfs_sim_link (sim->network, self->client, (unsigned) found[i]);
}

/* Ends it, but for the struct. */
static void reader_end (SimReader *self)
{
    for (uint64_t i = 0; i < self->sim->model->n_segments; i++) {
        for (unsigned j = 0; j < self->sim->n; j++)
            if (self->segments[i].packets[j] != NULL)
                g_free (release (self->segments[i].packets[j]));
        g_free (self->segments[i].packets);
        g_free (self->segments[i].arrived);
    }
    g_free (self->segments);
    g_free (self->links);
    g_free (self->lanes);
    self->ended = true;
}

static SimReader *reader_new (Sim *sim, unsigned client, uint64_t object)
{
    SimReader *self = g_new0 (SimReader, 1);
    g_ptr_array_add (sim->all_readers, self);
    self->sim = sim;
    self->client = client;
    self->object = object;
    self->n_places = sim->model->spread ? (unsigned) sim->model->n_servers : sim->n;
    self->links = g_new0 (SimLink *, self->n_places);
    self->lanes = g_new0 (EcfsLane, self->n_places);
    self->segments = g_new0 (Segment, sim->model->n_segments);
    for (uint64_t i = 0; i < sim->model->n_segments; i++) {
        self->segments[i].arrived = g_new0 (bool, sim->n);
        self->segments[i].packets = g_new0 (SimPacket *, sim->n);
    }
    self->begun_us = self->free_us = ecfs_sim_now_us (sim->network);
    place_links (self);
    return self;
}

static void note_object (SimReader *self)
{
    Sim *sim = self->sim;
    int64_t us = ecfs_sim_now_us (sim->network) - self->begun_us;
    if (self->failed)
        sim->result.n_failed++;
    else
        g_array_append_val (sim->object_us, us);
    sim->result.received_bytes += self->received_bytes;
    sim->result.extra_bytes += self->extra_bytes;
}

static bool refresh (SimReader *self);

/* The client's next object; its reader begins with what its endpoints were like the last time. */
static void begin_next (Sim *sim, unsigned client)
{
    uint64_t object = sim->next_object[client];
    sim->next_object[client] += sim->model->n_clients;
    sim->readers[client] = object < sim->model->n_objects ? reader_new (sim, client, object) : NULL;
    if (sim->readers[client] == NULL)
        return;
    sim->n_reading++;
    (void) refresh (sim->readers[client]); /* all is about to be scheduled */
    schedule_all (sim->readers[client]);
}

static bool is_over (const SimReader *self)
{
    return self->failed || (self->consumed == self->sim->model->n_segments);
}

/* Readers that are done; not while they are at work. */
static void change_readers (Sim *sim)
{
    for (unsigned client = 0; client < sim->model->n_clients; client++)
        while (sim->readers[client] != NULL && is_over (sim->readers[client])) {
            note_object (sim->readers[client]);
            reader_end (sim->readers[client]);
            sim->n_reading--;
            begin_next (sim, client);
        }
}

static void grow_window (SimReader *self, uint64_t passed)
{
    const EcfsSimModel *model = self->sim->model;
    uint64_t bytes = ecfs_reach_bytes (self->consumes_per_s, self->reach_us);
    if (model->memory_bytes > 0)
        bytes = MIN (bytes, model->memory_bytes / 4);
    self->window = ecfs_grow_window (self->window, passed, MAX (bytes / segment_bytes (self->sim), 1));
}

static void consume (SimReader *self)
{
    const EcfsSimModel *model = self->sim->model;
    int64_t now_us = ecfs_sim_now_us (self->sim->network);
    uint64_t before = self->consumed;
    while (self->consumed < model->n_segments && self->segments[self->consumed].state == SEGMENT_READY &&
           now_us >= self->free_us) {
        int64_t waited_us = now_us - self->free_us;
        self->sim->result.longest_wait_us = MAX (self->sim->result.longest_wait_us, waited_us);
        self->free_us = now_us;
        self->consumed++;
        if (model->reader_segments_per_s > 0) {
            self->free_us += (int64_t) (1e6 / model->reader_segments_per_s);
            ecfs_sim_timer (self->sim->network, self, self->free_us, TIMER_CONSUME);
        }
    }
    if (self->consumed == before)
        return;
    grow_window (self, self->consumed - before);
    schedule_all (self);
}

/* What the network calls */

static void came (SimPacket *packet, uint64_t bytes)
{
    EcfsLane *lane = &packet->reader->lanes[packet->place];
    ecfs_lane_came (lane, bytes);
    ecfs_lane_moved (lane, packet->asked_us, ecfs_sim_now_us (packet->reader->sim->network));
}

static void overtake (const SimReader *self, uint64_t number)
{
    uint64_t end = MIN (self->consumed + window_of (self), self->sim->model->n_segments);
    for (uint64_t segment = self->consumed; segment < end; segment++)
        for (unsigned i = 0; i < self->sim->n; i++) {
            SimPacket *packet = self->segments[segment].packets[i];
            if (packet != NULL)
                packet->n_overtook += packet->number < number;
        }
}

static void complete (SimPacket *packet)
{
    SimReader *self = packet->reader;
    Sim *sim = self->sim;
    const EcfsReadPolicy *policy = &sim->model->policy;
    uint64_t segment = packet->segment;
    self->segments[segment].arrived[packet->lane] = true;
    self->received_bytes += packet->bytes;
    sim->result.n_packets++;
    uint64_t number = release (packet)->number;
    g_free (packet);
    if (policy->replication > 1)
        overtake (self, number);
    schedule (self, segment);
    if (policy->transfers > 0 || policy->replication > 1)
        schedule_all (self);
    if (is_over (self))
        change_readers (sim);
}

static void failed (SimPacket *packet)
{
    g_free (release (packet));
}

static void timer (SimReader *reader, uint64_t what)
{
    Sim *sim = reader->sim;
    if (reader->ended)
        return;
    if (what == TIMER_CONSUME)
        consume (reader);
    else
        end_segment (reader, what - TIMER_DECODED);
    if (is_over (reader))
        change_readers (sim);
}

static bool refresh (SimReader *self)
{
    SimNetwork *network = self->sim->network;
    int64_t now_us = ecfs_sim_now_us (network);
    bool found = false;
    self->reach_us = 0;
    for (unsigned i = 0; i < self->n_places; i++) {
        if (self->links[i] == NULL)
            continue;
        EcfsLaneEndpoint endpoint = ecfs_sim_look (network, self->links[i]);
        found |= ecfs_lane_refresh (&self->lanes[i], &endpoint, now_us);
        ecfs_lane_measure (&self->lanes[i], now_us);
        self->reach_us = MAX (self->reach_us, ecfs_lane_reach_us (&self->lanes[i]));
    }
    double at = position (self);
    if (at >= self->measured_at && self->measured_us != 0)
        self->consumes_per_s = ecfs_smooth_rate (self->consumes_per_s, (uint64_t) (at - self->measured_at),
                                                 now_us - self->measured_us, ECFS_CONSUME_US);
    self->measured_at = MAX (at, 0);
    self->measured_us = now_us;
    return found;
}

/* Whether something of a segment is stalled or late that was not before. */
static bool is_troubled (SimReader *self, const Segment *segment)
{
    int64_t now_us = ecfs_sim_now_us (self->sim->network);
    bool troubled = false;
    for (unsigned i = 0; i < self->sim->n; i++) {
        const SimPacket *packet = segment->packets[i];
        if (packet == NULL)
            continue;
        troubled |= ecfs_lane_finds_stall (&self->lanes[packet->place], packet->asked_us, now_us);
        if (self->sim->model->policy.replication > 0 || packet->hedged)
            continue;
        int64_t due_us = ecfs_lane_due_us (&self->lanes[packet->place], packet->bytes - packet->filled, packet->mark,
                                           packet->asked_us, now_us);
        troubled |= now_us + due_us > packet->promise_us;
    }
    return troubled;
}

static void tick_reader (SimReader *self)
{
    unsigned n_before = self->n_running;
    bool moved = refresh (self);
    uint64_t end = MIN (self->consumed + window_of (self), self->sim->model->n_segments);
    moved |= self->n_running != n_before; /* an endpoint went down */
    for (uint64_t segment = self->consumed; segment < end; segment++)
        moved |= is_troubled (self, &self->segments[segment]);
    if (moved || self->n_running == 0)
        schedule_all (self);
}

static void tick (void *user)
{
    Sim *sim = user;
    for (unsigned client = 0; client < sim->model->n_clients; client++)
        if (sim->readers[client] != NULL)
            tick_reader (sim->readers[client]);
    change_readers (sim);
}

static bool over (const void *user)
{
    return ((const Sim *) user)->n_reading == 0;
}

/* The whole */

static gint by_us (gconstpointer a, gconstpointer b)
{
    int64_t x = *(const int64_t *) a, y = *(const int64_t *) b;
    return x < y ? -1 : x > y;
}

static int64_t quantile (const GArray *sorted, double share)
{
    return sorted->len == 0 ? 0 : g_array_index (sorted, int64_t, (guint) (share * (sorted->len - 1)));
}

static void sum_up (Sim *sim)
{
    EcfsSimResult *result = &sim->result;
    for (unsigned client = 0; client < sim->model->n_clients; client++)
        if (sim->readers[client] != NULL) {
            sim->readers[client]->failed = true;
            note_object (sim->readers[client]);
            reader_end (sim->readers[client]);
        }
    g_array_sort (sim->object_us, by_us);
    result->us = ecfs_sim_now_us (sim->network);
    result->n_objects = sim->object_us->len;
    result->object_p50_us = quantile (sim->object_us, 0.5);
    result->object_p95_us = quantile (sim->object_us, 0.95);
    result->n_events = ecfs_sim_n_events (sim->network);
}

bool ecfs_sim_run (const EcfsSimModel *model, EcfsSimResult *ret_result, GError **error)
{
    g_autoptr (EcfsCodec) codec = ecfs_codec_new_modelled (model->code, error);
    if (codec == NULL)
        return false;
    if (model->n_servers == 0 || model->n_clients == 0 || model->n_segments == 0 || model->packet_bytes == 0)
        return ecfs_fail (error, EINVAL, "there must be servers, clients and something to read");
    if ((double) model->n_clients * (double) model->n_segments * ecfs_codec_n (codec) > MAX_PACKETS)
        return ecfs_fail (error, EINVAL, "%s: clients read more than 10^8 packets at a time; make objects smaller",
                          model->code);
    Sim sim = {.model = model, .codec = codec, .k = ecfs_codec_k (codec), .n = ecfs_codec_n (codec)};
    SimCalls calls = {
        .came = came, .complete = complete, .failed = failed, .timer = timer, .tick = tick, .over = over, .user = &sim};
    sim.decoding_work = ecfs_codec_decoding_work (codec);
    memset (sim.wanted, true, sim.k * sizeof *sim.wanted);
    sim.random = g_rand_new_with_seed (model->seed);
    sim.network = ecfs_sim_network_new (model, sim.random, &calls);
    sim.all_readers = g_ptr_array_new_with_free_func (g_free);
    sim.readers = g_new0 (SimReader *, model->n_clients);
    sim.next_object = g_new0 (uint64_t, model->n_clients);
    sim.object_us = g_array_new (FALSE, FALSE, sizeof (int64_t));
    for (unsigned client = 0; client < model->n_clients; client++) {
        sim.next_object[client] = client;
        begin_next (&sim, client);
    }
    change_readers (&sim);
    sim.result.timed_out = !ecfs_sim_network_run (sim.network, model->limit_us);
    sum_up (&sim);
    *ret_result = sim.result;
    ecfs_sim_network_free (sim.network);
    g_rand_free (sim.random);
    g_array_unref (sim.object_us);
    g_ptr_array_unref (sim.all_readers);
    g_free (sim.readers);
    g_free (sim.next_object);
    return true;
}
