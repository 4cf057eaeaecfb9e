/*
 * Who gets which segment from whom: for each segment a list of those that asked, in the order in which they did. The
 * first has it or fetches it from endpoints, and each other one gets it from one that came before, FAN_OUT from each.
 * Nothing is known of whether they do: who sees no progress asks again without that one. In bounded memory, and of one
 * thread at a time; told the time.
 */
#ifndef ECFS_PEER_LISTS_H
#define ECFS_PEER_LISTS_H

#include "cache/cache.h"

#define ECFS_PEER_FAN_OUT 4

typedef struct EcfsPeerLists EcfsPeerLists;

EcfsPeerLists *ecfs_peer_lists_new (void);
/** NULL is accepted. */
void ecfs_peer_lists_free (EcfsPeerLists *self);

/** @id has the segment. Counts where nobody has asked before. */
void ecfs_peer_lists_has (EcfsPeerLists *self, const EcfsCacheCell *cell, const EcfsUuid *id, int64_t now_us);

/**
 * From whom @asker, which serves others itself unless it is nil, gets it; nothing came from @without, which is off the
 * list then (nil: nobody). False: from endpoints.
 */
bool ecfs_peer_lists_ask (EcfsPeerLists *self, const EcfsCacheCell *cell, const EcfsUuid *asker,
                          const EcfsUuid *without, int64_t now_us, EcfsUuid *ret_from);
/** The same, but where there is nobody yet @asker does not become the first. */
bool ecfs_peer_lists_join (EcfsPeerLists *self, const EcfsCacheCell *cell, const EcfsUuid *asker,
                           const EcfsUuid *without, int64_t now_us, EcfsUuid *ret_from);

/** Whether @asker is the first, or nobody was: then it is to fetch the segment from endpoints. Else *ret_from has it,
 * or is to. Nobody comes onto a list that others are on. */
bool ecfs_peer_lists_claim (EcfsPeerLists *self, const EcfsCacheCell *cell, const EcfsUuid *asker, int64_t now_us,
                            EcfsUuid *ret_from);

unsigned ecfs_peer_lists_n (const EcfsPeerLists *self);

#endif
