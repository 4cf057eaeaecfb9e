/*
 * Segments are made every minute, or every second; a recovery reads each of them, and a follower lists them all, each
 * time. So those of an endpoint that are small and follow one another become few larger ones, of the same records.
 */
#ifndef ECFS_JOURNAL_MERGE_H
#define ECFS_JOURNAL_MERGE_H

#include "archive/common.h"

/* Small segments of an endpoint of which it is not worth to make larger ones; for tests to change. */
extern _Atomic unsigned ecfs_merge_least;

/**
 * Makes larger segments of small ones at an endpoint that this archive may write to, and removes these once the larger
 * one reads as they did. The newest stay: followers are about to read them. Blocks; gives up soon after *@stop became
 * true. *ret_n_behind: how many it has then behind the snapshot @newest (sequence 0: there is none). What is damaged,
 * or contradicts another, stays as it is. Crash-safe: a larger one beside those that it was made of says nothing new.
 */
bool ecfs_journal_merge (EcfsArchive *archive, EcfsEndpoint *endpoint, const EcfsSnapshotRow *newest,
                         const atomic_bool *stop, uint64_t *ret_n_behind, GError **error);

#endif
