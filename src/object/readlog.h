/*
 * What reading has met of late: which endpoints were treated as erased, and counters, over all readers of a process.
 *
 * An erasure is an episode: from the first segment that was read around an endpoint for one reason to the last, with no
 * more than ECFS_ERASURE_QUIET_US between two. The newest ECFS_N_ERASURES are kept.
 */
#ifndef ECFS_OBJECT_READLOG_H
#define ECFS_OBJECT_READLOG_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>

#define ECFS_N_ERASURES       64
#define ECFS_ERASURE_QUIET_US (5 * G_USEC_PER_SEC)

typedef struct EcfsReadLog EcfsReadLog;

typedef enum EcfsErasedWhy {
    ECFS_ERASED_NOT,
    ECFS_ERASED_STALLED, /* it owed bytes and showed none */
    ECFS_ERASED_LATE,    /* a packet was hedged, and not needed in the end */
    ECFS_ERASED_DOWN,    /* it does not answer, or a request failed */
    ECFS_ERASED_DAMAGED, /* what it gave failed its checksum, or is not there */
} EcfsErasedWhy;

typedef struct EcfsErasure {
    char *endpoint;
    EcfsErasedWhy why;
    int64_t begin_us, end_us; /* wall clock */
    uint64_t n_segments;
    int64_t saved_us; /* the longest that one of them would still have waited, as estimated; 0: not known */
} EcfsErasure;

typedef struct EcfsReadCounts {
    uint64_t segments;       /* that were fetched, in whole or in part */
    uint64_t decoded;        /* of them from parity */
    uint64_t degraded;       /* of them around an endpoint that was treated as erased */
    uint64_t received_bytes; /* of packets that came whole */
    uint64_t hedged_bytes;   /* that came and were not needed */
    uint64_t cancelled;      /* requests, because they no longer helped */
    uint64_t erasures;       /* episodes, as below; told by ecfs_read_log_counts () only */
    uint64_t cached;         /* segments, in whole or in part, that came from the cache; not among the others */
    uint64_t cached_bytes;   /* of their packets */
} EcfsReadCounts;

EcfsReadLog *ecfs_read_log_new (void);
/** NULL is accepted. */
void ecfs_read_log_free (EcfsReadLog *self);

/** The word for a reason, such as "stalled". */
const char *ecfs_erased_word (EcfsErasedWhy why);

/** Adds to the counters. Thread-safe, no lock; @self may be NULL. */
void ecfs_read_log_count (EcfsReadLog *self, const EcfsReadCounts *more);
/** A segment was read around an endpoint. Thread-safe; its lock is inner to all others; @self may be NULL. */
void ecfs_read_log_erased (EcfsReadLog *self, const char *endpoint, EcfsErasedWhy why, int64_t saved_us);

/** Says in the log what has begun and what has ended since it was last called; @all: as if all had ended. */
void ecfs_read_log_tell (EcfsReadLog *self, bool all);

void ecfs_read_log_counts (EcfsReadLog *self, EcfsReadCounts *ret_counts);
/** Copies of the episodes, the oldest first: GPtrArray of EcfsErasure, which frees them. */
GPtrArray *ecfs_read_log_erasures (EcfsReadLog *self);

#endif
