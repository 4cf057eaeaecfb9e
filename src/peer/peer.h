/*
 * Readers of one archive that help each other: segments of the cache, to and from the machines that ecfs.conf lists, by
 * HTTP inside TLS. Both ends show a certificate that only who has the archive's key can sign, and who shows none is
 * gone before a byte of a request is read. Nothing of it exists until it is wanted.
 *
 * A segment comes as it is stored, tags included, and whoever asked looks at every block of it, and at what the writer
 * left of the segment. One that gives wrong bytes is not asked again.
 *
 * So that many readers of one segment cost the endpoints one, they agree on who keeps its list: of those that are
 * known, the one whose id and the segment's give the lowest hash. Who is first on the list fetches it from endpoints;
 * the others get it from one that came before them, each from as few others as FAN_OUT. So that each uses its own line
 * to the endpoints, who reads may claim segments ahead: it becomes the first where there is none. All of that is
 * advice: who waits without seeing any progress goes on without, and so does everybody where lists contradict each
 * other.
 *
 * Life cycle: new → serve, where it is to → stop → free; threads come with the first use. Thread-safe but for these.
 * Its locks are inner to those of readers and outer to none.
 */
#ifndef ECFS_PEER_PEER_H
#define ECFS_PEER_PEER_H

#include "cache/cache.h"
#include "key/key.h"

#include <stdatomic.h>

#define ECFS_PEERS_MAX 64 /* in a list */

typedef struct EcfsPeers EcfsPeers;

typedef struct EcfsPeersParams {
    const char *list;                     /* "HOST:PORT, HOST:PORT"; NULL: none */
    bool grows;                           /* others are found later: ecfs_peers_found () */
    const char *listen;                   /* "ADDRESS:PORT"; NULL: nobody is served */
    uint64_t bytes_per_s;                 /* that are served in all; 0: no limit */
    unsigned max_connections;             /* of others that are served */
    const uint8_t (*key)[ECFS_KEY_BYTES]; /* from which certificates are made; the same for all */
    EcfsCache *cache;                     /* what is served; must outlive the peers */
} EcfsPeersParams;

/** Whether @text is a list of at most ECFS_PEERS_MAX of HOST:PORT, as in ecfs.conf; [ADDRESS]:PORT for IPv6. */
bool ecfs_peers_check (const char *text);

/** All is copied. ENOTSUP: this build cannot. */
EcfsPeers *ecfs_peers_new (const EcfsPeersParams *params, GError **error);
/** Listens, where it is to, if it does not yet. EADDRINUSE: somebody else does at that address. */
bool ecfs_peers_serve (EcfsPeers *self, GError **error);
/** Says to others from now on that it has content and fetches none: they ask it for what nobody is known to have. */
void ecfs_peers_seed (EcfsPeers *self);
/** Hangs up on all that are served. They can be served again. */
void ecfs_peers_end_serving (EcfsPeers *self);
/** Whether it does. */
bool ecfs_peers_serves (EcfsPeers *self);
/** Ends what is under way; all looks are answered. NULL is accepted, also by the next. */
void ecfs_peers_stop (EcfsPeers *self);
void ecfs_peers_free (EcfsPeers *self);

/** Somebody is at that address. Of those that do not answer, the one that was found longest ago makes room where the
 * list is full. */
void ecfs_peers_found (EcfsPeers *self, const char *address);

/** That one, a peer or a taker, is neither asked nor served until the process ends. False: there is no such one. */
bool ecfs_peers_drop (EcfsPeers *self, const char *address);

typedef enum EcfsPeerWish {
    ECFS_PEER_WANTED, /* it is needed here; from endpoints, if done () is called with false */
    ECFS_PEER_SHARE,  /* it is to be fetched for others, too: done () is called with false, and is_ours counts */
    ECFS_PEER_OFFER,  /* it may come from peers, and from nowhere else */
} EcfsPeerWish;

/* A question for a whole cell. @look: as for a cache; its ranges follow one another from 0 on, and done () is called
 * with true when all were judged to fit. begin () is called on a thread of the peers. */
typedef struct EcfsPeerLook {
    EcfsCacheLook *look;
    EcfsPeerWish wish;     /* set by the caller, like the next */
    bool asks_all;         /* endpoints cannot give it: those who are not known to have it are asked, too */
    atomic_bool is_ours;   /* a claim holds: nobody has it or fetches it, and the others will be sent to us */
    atomic_bool is_shared; /* somebody else reads, or has read, the same */
    /* For whoever may begin without them: when all is here as its pace foretells, or until when nobody minds that none
     * of it is. */
    _Atomic int64_t due_us;
    atomic_bool is_foretold;
    _Atomic int64_t endpoints_us; /* set by the caller: what they would take, as far as is known; 0: it is not */
    atomic_bool is_left;          /* set by the caller: nobody wants it any more, */
    atomic_bool is_late;          /* … or somebody has begun without them */
} EcfsPeerLook;

/** Whether somebody may be there to ask. */
bool ecfs_peers_any (EcfsPeers *self);
/** Asks; @look stays the caller's. False: there is nobody to ask, and nothing of it is called. When it was answered,
 * the cell counts as being fetched by us until ecfs_peers_settle (), which is due once. */
bool ecfs_peers_look (EcfsPeers *self, EcfsPeerLook *look);
/** Whether we are who keeps the list of a cell, so that a claim to it costs nothing; there is somebody else. */
bool ecfs_peers_keeps (EcfsPeers *self, const EcfsCacheCell *cell);
/** Something of an object came from endpoints: who waits for a cell of it that we fetch there waits on, as its turn
 * comes. */
void ecfs_peers_progress (EcfsPeers *self, const EcfsUuid *object);
/** It is in the cache, or will never be. */
void ecfs_peers_settle (EcfsPeers *self, const EcfsCacheCell *cell);

typedef struct EcfsPeerState {
    char *address; /* as it is listed; owned */
    bool is_up;
    bool lies; /* it gave wrong bytes */
    bool is_dropped;
    bool is_seeder; /* it has content without having asked for it */
    char *problem;  /* NULL: none; owned */
    uint64_t fetched_bytes;
} EcfsPeerState;

/* Who was served. */
typedef struct EcfsPeerTakerState {
    char *address; /* as it is listed, or where the connection came from; owned */
    bool is_dropped;
    unsigned n_connections;
    uint64_t bytes;
} EcfsPeerTakerState;

typedef struct EcfsPeersState {
    GPtrArray *peers;  /* of EcfsPeerState */
    GPtrArray *takers; /* of EcfsPeerTakerState */
    char *listen;      /* NULL: nobody is served; owned */
    unsigned n_connections;
    uint64_t served_bytes;
    uint64_t fetched_bytes;
} EcfsPeersState;

void ecfs_peers_state (EcfsPeers *self, EcfsPeersState *ret_state);
void ecfs_peers_state_clear (EcfsPeersState *state);

#endif
