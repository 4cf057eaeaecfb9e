/*
 * Modelled servers, clients' lines and what is under way between them: packets move as a fluid, at rates that change
 * when somebody begins or ends to send. For reader.c.
 *
 * A link is what one client has with one server, with what the client's endpoint there measures. Packets of a link
 * queue in the order of asking; the first that is ready is being sent.
 */
#ifndef ECFS_SIM_NETWORK_H
#define ECFS_SIM_NETWORK_H

#include "endpoint/core/estimate.h"
#include "object/lane.h"
#include "sim/sim.h"

#define ECFS_SIM_TICK_US 20000

typedef struct SimLink SimLink;
typedef struct SimReader SimReader;
typedef struct SimNetwork SimNetwork;

typedef struct SimPacket {
    SimLink *link;
    SimReader *reader;
    uint64_t segment, number;
    unsigned lane, place; /* place: of the reader's lanes */
    int64_t asked_us, ready_us, promise_us;
    uint64_t mark;
    uint64_t bytes, filled; /* filled: as far as the measurements know */
    double left;
    unsigned n_overtook;
    bool alone;         /* nothing else was under way when it was asked */
    bool extra, hedged; /* asked because others are late; late, and others were asked in its place */
    GList node;         /* in its link's queue */
} SimPacket;

struct SimLink {
    unsigned client, server;
    GQueue queue;       /* of SimPacket */
    SimPacket *sending; /* NULL: nothing is ready */
    double rate;
    int64_t since_us; /* its rate was applied up to then */
    uint64_t version; /* of its rate: events of others are stale */
    bool down;
    size_t at_client, at_server; /* positions among those that send */
    /* What the client's endpoint measures */
    EcfsMeter meter;
    Distribution latency;
    Silences silences[ECFS_N_OWES];
    StallClock clock;
    uint64_t queued_bytes;
    int64_t refreshed_us;
};

/* What moves; each is called by ecfs_sim_network_run (). */
typedef struct SimCalls {
    void (*came) (SimPacket *packet, uint64_t bytes);
    void (*complete) (SimPacket *packet); /* which is to be dropped */
    void (*failed) (SimPacket *packet);   /* its endpoint is down; to be dropped */
    void (*timer) (SimReader *reader, uint64_t what);
    void (*tick) (void *user);
    bool (*over) (const void *user);
    void *user;
} SimCalls;

SimNetwork *ecfs_sim_network_new (const EcfsSimModel *model, GRand *random, const SimCalls *calls);
void ecfs_sim_network_free (SimNetwork *self);

int64_t ecfs_sim_now_us (const SimNetwork *self);
uint64_t ecfs_sim_n_events (const SimNetwork *self);

SimLink *ecfs_sim_link (SimNetwork *self, unsigned client, unsigned server);

/** Asks: the packet's link, bytes and what is the reader's are set. */
void ecfs_sim_ask (SimNetwork *self, SimPacket *packet);
/** Takes a packet off its link, complete or not; brings it up to date before. */
void ecfs_sim_drop (SimNetwork *self, SimPacket *packet);
/** What has come until now is told. */
void ecfs_sim_settle (SimNetwork *self, SimLink *link);

EcfsForecast ecfs_sim_forecast (const SimLink *link, uint64_t bytes);
EcfsLaneEndpoint ecfs_sim_look (SimNetwork *self, SimLink *link);

/** Has timer called at @us, with @what. */
void ecfs_sim_timer (SimNetwork *self, SimReader *reader, int64_t us, uint64_t what);

/** Runs until over (), or until @limit_us, which gives false. */
bool ecfs_sim_network_run (SimNetwork *self, int64_t limit_us);

#endif
