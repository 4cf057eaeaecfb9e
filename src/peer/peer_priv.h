/* What peer.c (who there is, what is being fetched), look.c (asking), client.c and server.c share. */
#ifndef ECFS_PEER_PEER_PRIV_H
#define ECFS_PEER_PEER_PRIV_H

#include "peer/identity.h"
#include "peer/lists.h"
#include "peer/peer.h"
#include "peer/peer_text.h"
#include "util/io.h"
#include "util/lock.h"
#include "util/ticker.h"

#define ECFS_PEER_LOOKERS 16
/* Nobody waits for longer without any progress, except where endpoints would take as long: who asks these instead as
 * soon as all is slow makes them slower for everybody. */
#define ECFS_PEER_SILENT_US      2500000
#define ECFS_PEER_SILENT_MOST_US 8000000
#define ECFS_PEER_STALLED_US     3000000 /* … and then a question has failed */

/* One of the list. */
typedef struct EcfsPeer {
    char *address; /* as it is listed; immutable while anybody may ask it, like the next */
    char *url;     /* "https://HOST:PORT" */
    EcfsUuid id;   /* nil: not known; guarded by lock, like all below */
    bool is_self;
    bool lies;
    bool is_dropped;     /* by the user */
    bool is_seeder;      /* it says so */
    bool is_greeted;     /* right now */
    unsigned n_failures; /* in a row */
    unsigned n_empty;    /* times that it had nothing of what it gave, or promised; since it gave something */
    int64_t rests_until_us;
    int64_t met_us;   /* when it answered last; 0: never */
    int64_t found_us; /* when it was; 0: it is of the list in ecfs.conf */
    char *problem;    /* NULL: none */
    uint64_t fetched_bytes;
} EcfsPeer;

typedef struct EcfsPeerServer EcfsPeerServer;
typedef struct EcfsPeerClient EcfsPeerClient;

/* Who has shown a certificate of the archive's. */
typedef struct EcfsPeerTaker {
    EcfsUuid id; /* first: the key */
    char address[64];
    bool is_dropped;
    unsigned n_connections;
    uint64_t bytes;
} EcfsPeerTaker;

struct EcfsPeers {
    EcfsMutex starting; /* serving begins or ends; outer to lock */
    EcfsMutex lock;
    EcfsCond moved; /* somebody was met, something is fetched, or all ends */
    EcfsUuid id;    /* of this process; immutable, as what follows but where it is said */
    EcfsPeer *list; /* room for ECFS_PEERS_MAX; which there are is guarded by lock, like the next */
    unsigned n;
    bool grows;
    char *listen;
    uint64_t bytes_per_s;
    unsigned max_connections;
    EcfsCache *cache;
    EcfsPeerIdentity *identity;
    EcfsPeerServer *server; /* NULL: nobody is served; guarded by lock */
    atomic_bool serves;
    atomic_bool seeds;
    EcfsPeerClient *client;
    EcfsWorkers *lookers; /* NULL: not yet, or not any more; guarded by lock, like all below */
    EcfsTicker *greeter;  /* likewise */
    EcfsWorkers *callers; /* likewise; greet several at once, as those that are silent take their time */
    unsigned n_greeted;   /* right now */
    bool has_greeted;     /* all were called once */
    int64_t known_us;     /* who has not answered by then is not waited for */
    atomic_bool stopped;
    unsigned n_looks;
    GQueue queued; /* of EcfsPeerLook: of these, those that no looker has begun with */
    EcfsPeerLists *lists;
    GHashTable *fetching; /* EcfsCacheCell → Fetching */
    GHashTable *takers;   /* EcfsUuid → EcfsPeerTaker: since the start; those that went first are forgotten first */
    _Atomic uint64_t served_bytes;
    _Atomic int64_t answer_us; /* that peers take for an answer, smoothed */
};

/* What somebody is told who asks from whom to get a cell. */
typedef enum EcfsPeerWhere {
    ECFS_PEER_HERE,
    ECFS_PEER_ELSEWHERE,
    ECFS_PEER_NOWHERE, /* from endpoints */
    ECFS_PEER_UNKNOWN, /* who would know could not be asked; somebody else may know then */
} EcfsPeerWhere;

/* peer.c */
EcfsPeerWhere ecfs_peers_where (EcfsPeers *self, const EcfsPeerRequest *request, EcfsUuid *ret_from);
/** Whether the cell is being fetched, after it has waited for progress; *ret_progress: grows with each. */
bool ecfs_peers_await (EcfsPeers *self, const EcfsCacheCell *cell, unsigned wait_ms, uint64_t *ret_progress);

/** How long @look may see nothing until endpoints are asked as well. */
int64_t ecfs_peers_silent_us (EcfsPeers *self, EcfsPeerLook *look);
/** A peer has answered a question that needs no waiting, after so long, or not for so long. */
void ecfs_peers_note_answer (EcfsPeers *self, int64_t elapsed_us);
/** Peers answer: the questions that wait for their turn wait on. */
void ecfs_peers_wait_on (EcfsPeers *self);
/** From a peer that gets the cell for us, we know that it goes on. As it was told: where two wait for each other, that
 * grows no further. */
void ecfs_peers_pass_on (EcfsPeers *self, const EcfsCacheCell *cell, uint64_t progress);
/** A question of ours is, and before: has its turn. */
void ecfs_peers_begun_locked (EcfsPeers *self, EcfsPeerLook *look) ECFS_REQUIRES (self->lock);
void ecfs_peers_answered_locked (EcfsPeers *self, const EcfsCacheCell *cell) ECFS_REQUIRES (self->lock);
/** Somebody greets: may be one of those that were away. */
void ecfs_peers_greet_again (EcfsPeers *self);

/* The URL of HOST:PORT; NULL: it is none. g_free () */
char *ecfs_peers_url (const char *address);

/* swarm.c */
guint ecfs_peer_id_hash (gconstpointer key);
gboolean ecfs_peer_id_equal (gconstpointer a, gconstpointer b);
/** A connection of the process @id begins; false: it was dropped, and is to be hung up on. */
bool ecfs_peers_comes (EcfsPeers *self, const EcfsUuid *id, const char *address);
/** It ends. */
void ecfs_peers_goes (EcfsPeers *self, const EcfsUuid *id);
bool ecfs_peers_may_take (EcfsPeers *self, const EcfsUuid *id);
void ecfs_peers_took (EcfsPeers *self, const EcfsUuid *id, uint64_t bytes);

/* look.c */
typedef struct EcfsPeerAsking {
    EcfsPeers *peers;
    EcfsPeerLook *look;
} EcfsPeerAsking;
/* A job; frees the EcfsPeerAsking. */
void ecfs_peers_run_look (void *asking);
void ecfs_peers_greet (void *peers);

/* An answer. */
typedef struct EcfsPeerAnswer {
    long status;
    EcfsUuid from;     /* 302 */
    uint64_t progress; /* 202: when something came last, ms since 1970 by its source's clock */
    char text[ECFS_UUID_TEXT_SIZE];
    uint64_t bytes;    /* of the body */
    bool is_seeder;    /* who answers */
    bool is_wrong;     /* a block of it is not what was stored */
    bool is_absent;    /* or was never filled in */
    bool is_silent;    /* no status: it was for too long */
    bool is_given_up;  /* nobody wants it any more, or it is too slow */
    char problem[256]; /* why there is no status */
} EcfsPeerAnswer;

/* client.c; a client is of any thread, a call of one. */
/** NULL and ENOTSUP: this build cannot. */
EcfsPeerClient *ecfs_peer_client_new (const EcfsPeerIdentity *identity, GError **error);
void ecfs_peer_client_free (EcfsPeerClient *self);
/** Asks one peer. A body of status 200 goes to @look's ranges, each judged when it is whole, or (NULL) to the text.
 * @stopped: ends it. Blocks for as long as there is progress. False: no answer, with a problem. */
bool ecfs_peer_call (EcfsPeerClient *self, const char *url, const EcfsPeerRequest *request, EcfsPeerLook *look,
                     const atomic_bool *stopped, EcfsPeerAnswer *ret_answer);

/* server.c */
/** Listens. EADDRINUSE and what else may be wrong with the address. */
EcfsPeerServer *ecfs_peer_server_new (EcfsPeers *peers, GError **error);
/** Ends all connections. NULL is accepted. */
void ecfs_peer_server_free (EcfsPeerServer *self);
unsigned ecfs_peer_server_n_connections (EcfsPeerServer *self);

#endif
