/*
 * Where the peers of an archive find each other: in a distributed hash table, where also what it publishes is renewed,
 * and in its catalog where several machines share that. Nothing of it exists until it is wanted, by "dht" or "catalog"
 * in the key peers of ecfs.conf, or by what is published.
 *
 * Life cycle: new → start → stop → free. Thread-safe but for free ().
 */
#ifndef ECFS_ARCHIVE_LOCATED_H
#define ECFS_ARCHIVE_LOCATED_H

#include "archive/config.h"
#include "key/ring.h"
#include "locate/locate.h"
#include "peer/peer.h"

typedef struct EcfsLocated EcfsLocated;

typedef struct EcfsLocatedParams {
    const EcfsConfig *config; /* borrowed, as all of these */
    const EcfsKeyRing *keys;  /* NULL: the archive has none, and no peers */
    const EcfsUuid *archive;
    EcfsCatalog *catalog;
    EcfsPeers *peers;      /* that are told who was found; NULL: there are none */
    const char *directory; /* of the archive: what it publishes is renewed */
} EcfsLocatedParams;

/** How ecfs.conf wants peers to find each other: EcfsLocateWays. */
unsigned ecfs_located_ways (const EcfsConfig *config);

EcfsLocated *ecfs_located_new (const EcfsLocatedParams *params);
/** From now on peers are looked for as ecfs.conf wants it, and this one is announced if others can reach it. Nothing
 * happens the second time. ENOTSUP: this build has no hash table; the catalog is looked into all the same. */
bool ecfs_located_start (EcfsLocated *self, GError **error);
/** From now on what the archive publishes is renewed in the hash table. Likewise. */
bool ecfs_located_start_node (EcfsLocated *self, GError **error);
/** Puts what the archive publishes under @name into the table, with the node that is started for that. */
bool ecfs_located_publish (EcfsLocated *self, const char *name, int64_t deadline_us, GError **error);
/** Takes it back: ecfs_published_withdraw (). ENOENT: it was not published here. */
bool ecfs_located_withdraw (EcfsLocated *self, const char *name, int64_t deadline_us, GError **error);

/* For who has no mount: a node of its own in the archive's network, at any port. */
EcfsDht *ecfs_located_new_node (EcfsLocated *self, GError **error);
/** Who is announced there; NULL and ENOKEY where the archive has no key. */
EcfsLocate *ecfs_located_new_peers (EcfsLocated *self, EcfsDht *dht, GError **error);
uint32_t ecfs_located_network (EcfsLocated *self);
/** Whom others ask for nodes of that network, as a list; NULL: nobody is known. g_free () */
char *ecfs_located_nodes (EcfsLocated *self);

/** Says good-bye, if that takes no more than a second. NULL is accepted, also by the next. */
void ecfs_located_stop (EcfsLocated *self);
void ecfs_located_free (EcfsLocated *self);

typedef struct EcfsLocatedWay {
    char *address;    /* as it is announced; NULL: it is not; owned */
    unsigned n_found; /* peers, this one among them */
    char *problem;    /* NULL: none; owned */
} EcfsLocatedWay;

typedef struct EcfsLocatedState {
    bool runs; /* the node of the hash table */
    EcfsDhtState dht;
    EcfsLocatedWay by_dht;
    bool uses_catalog;
    EcfsLocatedWay by_catalog;
} EcfsLocatedState;

void ecfs_located_state (EcfsLocated *self, EcfsLocatedState *ret_state);
void ecfs_located_state_clear (EcfsLocatedState *state);

#endif
