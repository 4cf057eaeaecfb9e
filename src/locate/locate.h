/*
 * Where the peers of an archive are: they announce their addresses, and find each other's. One interface, by a list
 * that somebody wrote, by the catalog where several machines share it, or by a distributed hash table, where what is
 * announced is sealed under a key of the archive's.
 *
 * What is found are addresses and no promise: that none is found means nothing, and who is found may be gone. Who
 * answers there shows a certificate to whoever connects (peer/peer.h).
 *
 * Life cycle: new → announce, find, withdraw → stop → free. Thread-safe but for free ().
 */
#ifndef ECFS_LOCATE_LOCATE_H
#define ECFS_LOCATE_LOCATE_H

#include "catalog/catalog.h"
#include "key/key.h"
#include "locate/dht.h"

#define ECFS_LOCATE_TTL_S 600 /* for so long a hash table keeps what it was given */

typedef struct EcfsLocate EcfsLocate;

/* Words in a list, for other ways to find them. */
typedef enum EcfsLocateWays {
    ECFS_LOCATE_BY_DHT = 1 << 0,     /* "dht" */
    ECFS_LOCATE_BY_CATALOG = 1 << 1, /* "catalog" */
} EcfsLocateWays;

/** The list without such words; NULL: nothing is left. *ret_ways: EcfsLocateWays that were there. g_free () */
char *ecfs_locate_list_split (const char *list, unsigned *ret_ways);

/** Those of "HOST:PORT, HOST:PORT", for ever; what is announced there is known already. Copied; NULL: nobody. */
EcfsLocate *ecfs_locate_list_new (const char *list);
/** By @dht, which is borrowed, for those who have @key. */
EcfsLocate *ecfs_locate_dht_new (EcfsDht *dht, const uint8_t key[ECFS_KEY_BYTES]);
/** By @catalog, which is borrowed: where several processes have it open, in PostgreSQL. Deadlines are not kept to: a
 * database that is away is waited for as it always is. */
EcfsLocate *ecfs_locate_catalog_new (EcfsCatalog *catalog);
/** NULL is accepted. */
void ecfs_locate_free (EcfsLocate *self);

/** Whoever looks within @ttl_s from now on finds "HOST:PORT". To be called again before that has passed. Blocks, as the
 * next two, until @deadline_us at most. */
bool ecfs_locate_announce (EcfsLocate *self, const char *address, unsigned ttl_s, int64_t deadline_us, GError **error);
/** It is not to be found any more. */
bool ecfs_locate_withdraw (EcfsLocate *self, const char *address, int64_t deadline_us, GError **error);
/** Addresses (char *), in no order, each once, and no more than @most; NULL: nobody has answered. */
GPtrArray *ecfs_locate_find (EcfsLocate *self, unsigned most, int64_t deadline_us, GError **error);

/* What is announced in a hash table, before it is sealed: "ecfs peer 1", COUNTER, TTL in seconds, ADDRESS, each in a
 * line. Of several that tell of one address the highest counter counts. */
typedef struct EcfsLocateAnnounced {
    uint64_t counter;
    unsigned ttl_s; /* 0: it is withdrawn */
    char *address;  /* owned */
} EcfsLocateAnnounced;

/** g_free () */
char *ecfs_locate_announced_format (const EcfsLocateAnnounced *announced);
/** False: it is none. What is returned has an address for g_free (). */
bool ecfs_locate_announced_parse (const char *text, size_t size, EcfsLocateAnnounced *ret_announced);

#endif
