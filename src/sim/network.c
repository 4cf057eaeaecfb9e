#include "sim/network.h"

#include "sim/events.h"

#include <math.h>

#define FIRST_BYTES 32768   /* come as one */
#define RETRY_US    1000000 /* an endpoint that is down is looked at so often */

typedef enum SimKind {
    SIM_READY,
    SIM_FIRST,
    SIM_COMPLETE,
    SIM_CHANGE,
    SIM_STALL,
    SIM_RESUME,
    SIM_TIMER,
    SIM_TICK
} SimKind;

/* Whoever sends or receives; servers and clients. */
typedef struct Side {
    GPtrArray *links; /* of SimLink that send, borrowed */
    double bytes_per_s;
    unsigned n_stalls; /* that last now: its own, and of its zone */
} Side;

struct SimNetwork {
    const EcfsSimModel *model;
    GRand *random;
    SimCalls calls;
    SimEvents events;
    int64_t now_us;
    Side *servers, *clients;
    SimLink **links; /* n_clients × n_servers; NULL: not needed yet */
};

int64_t ecfs_sim_now_us (const SimNetwork *self)
{
    return self->now_us;
}

uint64_t ecfs_sim_n_events (const SimNetwork *self)
{
    return self->events.n_events;
}

static void plan (SimNetwork *self, int64_t us, SimKind kind, void *subject, uint64_t what)
{
    ecfs_sim_events_add (&self->events, us, kind, subject, what);
}

static int64_t draw_us (SimNetwork *self, int64_t mean_us)
{
    return (int64_t) (-log (1 - g_rand_double (self->random)) * (double) mean_us);
}

/* What has a server of its own, or a zone: whose numbers are those of zones behind those of servers. */
static void plan_stall (SimNetwork *self, uint64_t what)
{
    size_t n = self->model->n_servers;
    int64_t every_us =
        what < n ? self->model->servers[what].stalls_every_us : self->model->zones[what - n].stalls_every_us;
    if (every_us > 0)
        plan (self, self->now_us + draw_us (self, every_us), SIM_STALL, NULL, what);
}

SimNetwork *ecfs_sim_network_new (const EcfsSimModel *model, GRand *random, const SimCalls *calls)
{
    SimNetwork *self = g_new0 (SimNetwork, 1);
    self->model = model;
    self->random = random;
    self->calls = *calls;
    self->servers = g_new0 (Side, model->n_servers);
    self->clients = g_new0 (Side, model->n_clients);
    self->links = g_new0 (SimLink *, model->n_servers * model->n_clients);
    for (size_t i = 0; i < model->n_servers; i++) {
        const EcfsSimServer *server = &model->servers[i];
        self->servers[i] = (Side){.links = g_ptr_array_new (), .bytes_per_s = server->bytes_per_s};
        if (server->changes_us != ECFS_SIM_NEVER)
            plan (self, server->changes_us, SIM_CHANGE, NULL, i);
        if (server->until_us != ECFS_SIM_NEVER)
            plan (self, server->until_us, SIM_CHANGE, NULL, i);
    }
    for (size_t i = 0; i < model->n_clients; i++)
        self->clients[i] = (Side){.links = g_ptr_array_new (), .bytes_per_s = model->client_bytes_per_s};
    for (size_t i = 0; i < model->n_servers + model->n_zones; i++)
        plan_stall (self, i);
    plan (self, ECFS_SIM_TICK_US, SIM_TICK, NULL, 0);
    return self;
}

void ecfs_sim_network_free (SimNetwork *self)
{
    for (size_t i = 0; i < self->model->n_servers; i++)
        g_ptr_array_unref (self->servers[i].links);
    for (size_t i = 0; i < self->model->n_clients; i++)
        g_ptr_array_unref (self->clients[i].links);
    for (size_t i = 0; i < self->model->n_servers * self->model->n_clients; i++)
        g_free (self->links[i]);
    ecfs_sim_events_clear (&self->events);
    g_free (self->servers);
    g_free (self->clients);
    g_free (self->links);
    g_free (self);
}

/* As the catalog keeps them from one mount to the next. */
static void expect (SimLink *link, const EcfsSimServer *server)
{
    double latency_us = (double) MAX (server->latency_us, 1), jitter_us = (double) server->jitter_us;
    EcfsQuantiles latency = {latency_us, latency_us + jitter_us / 2, latency_us + jitter_us};
    EcfsQuantiles rate = {0.8 * server->bytes_per_s, server->bytes_per_s, 1.1 * server->bytes_per_s};
    (void) ecfs_distribution_expect (&link->latency, &latency); /* it is new, and they are sane */
    ecfs_meter_expect (&link->meter, &rate);
}

SimLink *ecfs_sim_link (SimNetwork *self, unsigned client, unsigned server)
{
    SimLink **link = &self->links[client * self->model->n_servers + server];
    if (*link == NULL) {
        *link = g_new0 (SimLink, 1);
        (*link)->client = client;
        (*link)->server = server;
        g_queue_init (&(*link)->queue);
        if (self->model->known)
            expect (*link, &self->model->servers[server]);
    }
    return *link;
}

/* What is measured */

static void note_owes (SimNetwork *self, SimLink *link, EcfsOwes owes)
{
    if (ecfs_clock_set (&link->clock, owes, self->now_us))
        ecfs_clock_note (&link->clock, link->silences, self->now_us);
}

static void note_came (SimNetwork *self, SimPacket *packet, uint64_t bytes)
{
    SimLink *link = packet->link;
    note_owes (self, link, ECFS_OWES_ANSWER);
    if (packet->alone && packet->filled == 0)
        ecfs_distribution_note (&link->latency, (double) (self->now_us - packet->asked_us), 1, self->now_us);
    packet->filled += bytes;
    link->queued_bytes -= bytes;
    Progress progress = {
        .owed = (double) link->queued_bytes, .delay_us = link->latency.quantiles.p5, .now_us = self->now_us};
    ecfs_meter_add (&link->meter, bytes, &progress);
    self->calls.came (packet, bytes);
}

void ecfs_sim_settle (SimNetwork *self, SimLink *link)
{
    SimPacket *packet = link->sending;
    int64_t elapsed_us = self->now_us - link->since_us;
    link->since_us = self->now_us;
    if (packet == NULL || link->rate <= 0)
        return;
    packet->left = MAX (packet->left - link->rate * (double) elapsed_us / 1e6, 0);
    uint64_t come = packet->bytes - (uint64_t) ceil (packet->left - 1e-6);
    if (come > packet->filled)
        note_came (self, packet, come - packet->filled);
}

EcfsForecast ecfs_sim_forecast (const SimLink *link, uint64_t bytes)
{
    return ecfs_forecast_of (&link->latency, &link->meter, link->silences[ECFS_OWES_ANSWER].usual_us,
                             link->queued_bytes + bytes);
}

/* Rates */

static double share_of_server (const Side *server)
{
    return server->n_stalls > 0 ? 0 : server->bytes_per_s / MAX (server->links->len, 1);
}

static void set_rate (SimNetwork *self, SimLink *link, double rate)
{
    ecfs_sim_settle (self, link);
    if (link->rate == rate && rate > 0 && link->version > 0)
        return; /* the moment that is planned stays right */
    link->rate = rate;
    link->version++;
    if (rate > 0 && link->sending->filled == 0)
        plan (self, self->now_us + ecfs_sim_span_us (MIN (link->sending->left, FIRST_BYTES), rate), SIM_FIRST, link,
              link->version);
    if (rate > 0)
        plan (self, self->now_us + ecfs_sim_span_us (link->sending->left, rate), SIM_COMPLETE, link, link->version);
}

/* A client's line is shared so that nobody who gets less than another could have more. */
static double fair_share (SimNetwork *self, const Side *client)
{
    double left = client->bytes_per_s, level = 0;
    guint n_left = client->links->len;
    if (left <= 0)
        return INFINITY;
    for (bool moved = true; moved && n_left > 0;) {
        double next = left / n_left;
        moved = false;
        left = client->bytes_per_s;
        n_left = 0;
        for (guint i = 0; i < client->links->len; i++) {
            const SimLink *link = g_ptr_array_index (client->links, i);
            double share = share_of_server (&self->servers[link->server]);
            left -= share <= next ? share : 0;
            n_left += share > next;
        }
        moved = next > level * (1 + 1e-9);
        level = next;
    }
    return level;
}

static void balance_client (SimNetwork *self, unsigned number)
{
    Side *client = &self->clients[number];
    double most = fair_share (self, client);
    for (guint i = 0; i < client->links->len; i++) {
        SimLink *link = g_ptr_array_index (client->links, i);
        set_rate (self, link, MIN (most, share_of_server (&self->servers[link->server])));
    }
}

static void balance_server (SimNetwork *self, unsigned number)
{
    const Side *server = &self->servers[number];
    for (guint i = 0; i < server->links->len; i++)
        balance_client (self, ((const SimLink *) g_ptr_array_index (server->links, i))->client);
}

static void leave (GPtrArray *links, size_t at, bool of_client)
{
    g_ptr_array_remove_index_fast (links, (guint) at);
    if (at < links->len) {
        SimLink *moved = g_ptr_array_index (links, at);
        *(of_client ? &moved->at_client : &moved->at_server) = at;
    }
}

static SimPacket *first_ready (const SimNetwork *self, const SimLink *link)
{
    for (GList *at = link->queue.head; at != NULL; at = at->next)
        if (((SimPacket *) at->data)->ready_us <= self->now_us)
            return at->data;
    return NULL;
}

/* Sends what is ready, if nothing is being sent; tells everybody whom that concerns. */
static void send_next (SimNetwork *self, SimLink *link, bool was_sending)
{
    GPtrArray *at_server = self->servers[link->server].links, *at_client = self->clients[link->client].links;
    if (link->sending == NULL)
        link->sending = first_ready (self, link);
    bool is_sending = link->sending != NULL;
    link->since_us = self->now_us;
    if (is_sending && was_sending) {
        double rate = link->rate;
        link->rate = -1; /* so that it is planned anew */
        set_rate (self, link, rate);
        return;
    }
    if (is_sending == was_sending)
        return;
    if (is_sending) {
        link->at_server = at_server->len;
        link->at_client = at_client->len;
        g_ptr_array_add (at_server, link);
        g_ptr_array_add (at_client, link);
    } else {
        leave (at_server, link->at_server, false);
        leave (at_client, link->at_client, true);
        link->rate = 0;
        link->version++;
    }
    balance_client (self, link->client);
    balance_server (self, link->server);
}

/* Packets */

static int64_t answer_us (SimNetwork *self, const EcfsSimServer *server)
{
    int64_t us = server->latency_us;
    if (server->jitter_us > 0)
        us += (int64_t) (g_rand_double (self->random) * (double) server->jitter_us);
    if (server->delayed_share > 0 && g_rand_double (self->random) < server->delayed_share)
        us += server->delay_us;
    return us;
}

void ecfs_sim_ask (SimNetwork *self, SimPacket *packet)
{
    SimLink *link = packet->link;
    ecfs_sim_settle (self, link);
    packet->asked_us = self->now_us;
    packet->ready_us = self->now_us + answer_us (self, &self->model->servers[link->server]);
    packet->left = (double) packet->bytes;
    packet->filled = 0;
    packet->alone = link->queue.length == 0;
    packet->node = (GList){.data = packet};
    if (link->queue.length == 0)
        note_owes (self, link, ECFS_OWES_ANSWER);
    g_queue_push_tail_link (&link->queue, &packet->node);
    link->queued_bytes += packet->bytes;
    ecfs_meter_begin (&link->meter, self->now_us);
    plan (self, packet->ready_us, SIM_READY, link, 0);
}

void ecfs_sim_drop (SimNetwork *self, SimPacket *packet)
{
    SimLink *link = packet->link;
    bool was_sending = link->sending != NULL;
    ecfs_sim_settle (self, link);
    g_queue_unlink (&link->queue, &packet->node);
    link->queued_bytes -= packet->bytes - packet->filled;
    if (link->queued_bytes == 0)
        ecfs_meter_dry (&link->meter, link->latency.quantiles.p5);
    ecfs_meter_end (&link->meter, link->latency.quantiles.p5, self->now_us);
    if (link->queue.length == 0)
        note_owes (self, link, ECFS_OWES_NOTHING);
    if (link->sending != packet)
        return;
    link->sending = NULL;
    send_next (self, link, was_sending);
}

static void complete (SimNetwork *self, SimLink *link)
{
    SimPacket *packet = link->sending;
    ecfs_sim_settle (self, link);
    packet->left = 0; /* but for what was rounded */
    if (packet->filled < packet->bytes)
        note_came (self, packet, packet->bytes - packet->filled);
    self->calls.complete (packet);
}

/* Down and up */

static void take_down (SimNetwork *self, SimLink *link)
{
    link->down = true;
    EcfsOwes owes;
    ecfs_silences_gave_up (&link->silences[ECFS_OWES_ANSWER], ecfs_clock_silent_us (&link->clock, self->now_us, &owes));
    ecfs_clock_stop (&link->clock);
    while (link->queue.head != NULL)
        self->calls.failed (link->queue.head->data);
    link->refreshed_us = self->now_us;
}

EcfsLaneEndpoint ecfs_sim_look (SimNetwork *self, SimLink *link)
{
    EcfsOwes owes;
    ecfs_sim_settle (self, link);
    int64_t silent_us = ecfs_clock_silent_us (&link->clock, self->now_us, &owes);
    const Silences *silences = &link->silences[ECFS_OWES_ANSWER];
    if (silent_us > ecfs_silences_gone_us (silences, ECFS_OWES_ANSWER, ECFS_STALL_TIMEOUT_US))
        take_down (self, link);
    else if (link->down && self->now_us - link->refreshed_us >= RETRY_US) {
        link->refreshed_us = self->now_us;
        link->down = share_of_server (&self->servers[link->server]) <= 0;
    }
    EcfsForecast forecast = ecfs_sim_forecast (link, 0);
    return (EcfsLaneEndpoint){.down = link->down,
                              .down_since_us = link->refreshed_us,
                              .suspect =
                                  !link->down && silent_us > 0 && silent_us > ecfs_silences_suspect_us (silences),
                              .rtt_us = (int64_t) link->latency.quantiles.p50,
                              .gap_us = forecast.late_us - forecast.us,
                              .read_bytes_per_s = ecfs_meter_rate (&link->meter).p50,
                              .read_bytes = link->meter.total};
}

/* What happens */

static void change (SimNetwork *self, unsigned number)
{
    const EcfsSimServer *server = &self->model->servers[number];
    bool changed = self->now_us >= server->changes_us && self->now_us < server->until_us;
    self->servers[number].bytes_per_s = changed ? server->later_bytes_per_s : server->bytes_per_s;
    balance_server (self, number);
}

/* A server or a zone stalls, or goes on. */
static void stall (SimNetwork *self, uint64_t what, bool begins)
{
    const EcfsSimModel *model = self->model;
    size_t n = model->n_servers;
    for (size_t i = what < n ? what : 0; i < (what < n ? what + 1 : n); i++) {
        if (what >= n && model->servers[i].zone != what - n)
            continue;
        self->servers[i].n_stalls += begins ? 1 : -1;
        balance_server (self, (unsigned) i);
    }
    int64_t for_us = what < n ? model->servers[what].stalls_for_us : model->zones[what - n].stalls_for_us;
    if (begins)
        plan (self, self->now_us + draw_us (self, for_us), SIM_RESUME, NULL, what);
    else
        plan_stall (self, what);
}

void ecfs_sim_timer (SimNetwork *self, SimReader *reader, int64_t us, uint64_t what)
{
    plan (self, us, SIM_TIMER, reader, what);
}

static void happen (SimNetwork *self, const SimEvent *event)
{
    SimLink *link = event->subject;
    switch ((SimKind) event->kind) {
    case SIM_READY:
        if (link->sending == NULL)
            send_next (self, link, false);
        break;
    case SIM_FIRST:
        if (event->what == link->version)
            ecfs_sim_settle (self, link);
        break;
    case SIM_COMPLETE:
        if (event->what == link->version)
            complete (self, link);
        break;
    case SIM_CHANGE:
        change (self, (unsigned) event->what);
        break;
    case SIM_STALL:
    case SIM_RESUME:
        stall (self, event->what, event->kind == SIM_STALL);
        break;
    case SIM_TIMER:
        self->calls.timer (event->subject, event->what);
        break;
    case SIM_TICK:
        self->calls.tick (self->calls.user);
        plan (self, self->now_us + ECFS_SIM_TICK_US, SIM_TICK, NULL, 0);
        break;
    }
}

bool ecfs_sim_network_run (SimNetwork *self, int64_t limit_us)
{
    SimEvent event;
    while (!self->calls.over (self->calls.user)) {
        if (!ecfs_sim_events_take (&self->events, &event) || event.us > limit_us)
            return false;
        self->now_us = event.us;
        happen (self, &event);
    }
    return true;
}
