/*
 * An archive in a distributed hash table: its peers announce themselves there and find each other, and what it
 * publishes is renewed. Nothing of it exists until it is wanted, by "dht" in the key peers of ecfs.conf, or by what is
 * published.
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
    EcfsPeers *peers;      /* that are told who was found; NULL: there are none */
    const char *directory; /* of the archive: what it publishes is renewed */
} EcfsLocatedParams;

/** Whether ecfs.conf wants peers to find each other. */
bool ecfs_located_is_wanted (const EcfsConfig *config);

EcfsLocated *ecfs_located_new (const EcfsLocatedParams *params);
/** From now on peers are looked for, and this one is announced if others can reach it; what the archive publishes is
 * renewed. Nothing happens the second time. ENOTSUP: this build cannot. */
bool ecfs_located_start (EcfsLocated *self, GError **error);
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

typedef struct EcfsLocatedState {
    bool runs;
    EcfsDhtState dht;
    char *address;    /* as it is announced; NULL: it is not; owned */
    unsigned n_found; /* peers, this one among them */
    char *problem;    /* NULL: none; owned */
} EcfsLocatedState;

void ecfs_located_state (EcfsLocated *self, EcfsLocatedState *ret_state);
void ecfs_located_state_clear (EcfsLocatedState *state);

#endif
