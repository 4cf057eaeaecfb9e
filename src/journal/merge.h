/*
 * Segments are made every minute, or every second; a recovery reads each of them, and a follower lists them all, each
 * time. So those of an endpoint that are small and follow one another become few larger ones, of the same records.
 */
#ifndef ECFS_JOURNAL_MERGE_H
#define ECFS_JOURNAL_MERGE_H

#include "archive/common.h"

/* Small segments of an endpoint of which it is not worth to make larger ones; for tests to change. */
extern _Atomic unsigned ecfs_merge_least;

typedef struct EcfsMerged {
    bool is_done;      /* else there was no time to look at all */
    uint64_t n_behind; /* segments that a recovery reads behind the snapshot */
} EcfsMerged;

/**
 * Makes larger segments of small ones at an endpoint that this archive may write to. These go at the next call, if what
 * the larger one says still reads as they do: so it is on the disk by then, and who has listed them before has read
 * them, or lists them again. The newest stay in any case. Blocks until @end_us at most; gives up soon after *@stop
 * became true. @newest: the last snapshot; sequence 0: there is none. What is damaged, or contradicts another, stays as
 * it is. *ret_merged is set in any case.
 */
bool ecfs_journal_merge (EcfsArchive *archive, EcfsEndpoint *endpoint, const EcfsSnapshotRow *newest, int64_t end_us,
                         const atomic_bool *stop, EcfsMerged *ret_merged, GError **error);

#endif
