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

/** @id has the segment. Counts where nobody else is known to have it or to fetch it from endpoints. */
void ecfs_peer_lists_has (EcfsPeerLists *self, const EcfsCacheCell *cell, const EcfsUuid *id, int64_t now_us);

/**
 * From whom @asker, which serves others itself unless it is nil, gets it; nothing came from @without, which is off the
 * list then (nil: nobody). False: from endpoints.
 */
bool ecfs_peer_lists_ask (EcfsPeerLists *self, const EcfsCacheCell *cell, const EcfsUuid *asker,
                          const EcfsUuid *without, int64_t now_us, EcfsUuid *ret_from);
/** The same, but @asker will not fetch it from endpoints: false where nobody is known to have it or to do so, and then
 * it is on no list, so that those who only hope do not wait for one another. */
bool ecfs_peer_lists_join (EcfsPeerLists *self, const EcfsCacheCell *cell, const EcfsUuid *asker,
                           const EcfsUuid *without, int64_t now_us, EcfsUuid *ret_from);

/** Whether @asker is to fetch the segment from endpoints, as nobody else is known to have it or to do so. Else
 * *ret_from has it, or is to, and @asker comes onto no list. */
bool ecfs_peer_lists_claim (EcfsPeerLists *self, const EcfsCacheCell *cell, const EcfsUuid *asker, int64_t now_us,
                            EcfsUuid *ret_from);

unsigned ecfs_peer_lists_n (const EcfsPeerLists *self);

#endif
