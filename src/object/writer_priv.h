/*
 * What the parts of writer.h share: writer.c (the run: lanes that fail, are late, are replaced), writer_lane.c (one
 * stripe on its way), writer_window.c (encoded segments).
 *
 * The run holds one reference of the writer and of each current lane. A lane that nobody waits for any more is cut: it
 * leaves the table, its stream is cancelled, and it lives on until the endpoint, which may hang, has let go of it. So a
 * writer may outlive its run, but its job does not: lanes that were cut ask for nothing.
 */
#ifndef ECFS_OBJECT_WRITER_PRIV_H
#define ECFS_OBJECT_WRITER_PRIV_H

#include "object/chain.h"
#include "object/segment.h"
#include "object/writer.h"
#include "util/lock.h"
#include "util/xxh3.h"

typedef enum EcfsLaneState { LANE_RUNNING, LANE_STORED, LANE_FAILED } EcfsLaneState;

typedef enum EcfsLanePhase { PHASE_HEADER, PHASE_PACKETS, PHASE_END } EcfsLanePhase;

typedef struct EcfsWriter EcfsWriter;

typedef struct EcfsUpload {
    atomic_uint references; /* the table's, and the stream's until it is done */
    EcfsWriter *writer;     /* a reference */
    unsigned index;         /* immutable */
    EcfsLaneState state;    /* guarded by writer lock */
    bool cut;               /* guarded by writer lock */
    bool waiting;           /* was told LATER; guarded by writer lock */
    uint64_t segment;       /* the next it pulls; guarded by writer lock */
    int64_t pulled_us; /* when it pulled the one before, or the next was there; guarded by writer lock, as the next */
    int64_t usual_us;  /* that it takes over one, of late */
    int64_t began_us;  /* immutable */
    atomic_uint_fast64_t sent_bytes; /* that the endpoint has let go of; atomic */
    int64_t silent_us;               /* since when its endpoint is suspect; 0: it is not. Of the run's thread */
    EcfsStream *stream;              /* guarded by writer lock */
    GError *error;                   /* guarded by writer lock */
    /* The rest is touched by the endpoint's thread only while running. */
    EcfsLanePhase phase;
    EcfsStripeHeader identity; /* of its stripe */
    GByteArray *header;
    GByteArray *footer;
    GQueue lent; /* of EcfsSegment, NULL for header and footer; in the order of pulling */
    XXH3_state_t *digest;
    uint8_t area_digest[ECFS_STRIPE_DIGEST_BYTES];
    uint64_t stripe_bytes;
} EcfsUpload;

struct EcfsWriter {
    atomic_uint references;
    EcfsMutex lock;
    EcfsCond changed;   /* guarded by lock */
    EcfsWriterJob *job; /* immutable; valid until the run ends */
    EcfsLayout layout;  /* its size is the largest possible until ended; guarded by lock, changed by the run's thread */
    unsigned n;         /* immutable */
    uint64_t n_segments;         /* goes with the layout */
    bool ended;                  /* the size is known; guarded by lock, changed by the run's thread */
    bool as_one;                 /* a stripe is sent as one piece; immutable */
    guint window;                /* segments; guarded by lock */
    GPtrArray *cached;           /* of EcfsSegment; guarded by lock */
    GPtrArray *encodings;        /* under way; guarded by lock */
    uint64_t next_leading;       /* first segment never encoded; guarded by lock */
    uint64_t next_read;          /* first whose content was never read, at most two further; guarded by lock */
    int64_t began_us;            /* immutable */
    int64_t ended_us;            /* since when only we are waited for; of the run's thread, as the two next */
    unsigned n_slow_looks;       /* in a row, at which only slow lanes were left; of the run's thread */
    bool offered;                /* the caller was told that what is stored suffices */
    bool trailing;               /* what is stored suffices, and the others go on behind */
    int64_t encoding_us;         /* that n_encoded segments took; guarded by lock */
    unsigned n_encoded;          /* guarded by lock */
    bool feed_moved;             /* the feed is final or abandoned, and the run has not looked; guarded by lock */
    bool beginning;              /* not all lanes are there, so nothing is let go of; guarded by lock */
    bool aborted;                /* guarded by lock */
    GError *error;               /* first reason for aborted; guarded by lock */
    uint64_t digest_seed;        /* of segment_digests; immutable */
    XXH3_state_t *digest;        /* of the content; used by the leading encoding, of which there is one at a time */
    EcfsChainMaker *chain_maker; /* used as the digest is; NULL where packets are loaded */
    GByteArray *chain;           /* NULL: there is none, yet; guarded by lock */
    uint8_t object_digest[ECFS_STRIPE_DIGEST_BYTES]; /* guarded by lock; valid when next_leading is n_segments */
    uint8_t object_sha256[ECFS_SHA256_SIZE];         /* likewise */
    GArray *segment_digests; /* of the content of each segment, as it was read first; guarded by lock */
    EcfsUpload **lanes;      /* n; NULL: not wanted or left out; guarded by lock, changed by the run's thread only */
    unsigned n_pulling;      /* lanes that may be using the job; guarded by lock */
    int64_t settled_us;      /* when a lane was stored last, 0: none; guarded by lock */
};

EcfsWriter *ecfs_writer_ref (EcfsWriter *self);
void ecfs_writer_unref (EcfsWriter *self);
/** Ends the run with @error (taken), unless it is ending already. */
void ecfs_writer_abort_locked (EcfsWriter *self, GError *error) ECFS_REQUIRES (self->lock);
/** Wakes the run when there is nothing left to wait for: it need not look at every step of every lane. */
void ecfs_writer_idle_locked (EcfsWriter *self) ECFS_REQUIRES (self->lock);
void ecfs_writer_finish_digest (XXH3_state_t *state, uint8_t digest[ECFS_STRIPE_DIGEST_BYTES]);

/* writer_lane.c */
/** Begins to send stripe @index, which has no lane, to its target. */
void ecfs_writer_lane_start (EcfsWriter *self, unsigned index);
/** Takes the lane of stripe @index out: what becomes of it counts no more. Returns the table's reference. */
EcfsUpload *ecfs_writer_lane_cut_locked (EcfsWriter *self, unsigned index) ECFS_REQUIRES (self->lock);
void ecfs_writer_lane_unref (EcfsUpload *lane); /* not with the lock held; NULL is accepted */

/* writer_window.c */
void ecfs_writer_window_init (EcfsWriter *self);
void ecfs_writer_window_clear (EcfsWriter *self);
/** The encoded segment @index when it is there, borrowed. */
EcfsSegment *ecfs_writer_cached_locked (const EcfsWriter *self, uint64_t index) ECFS_REQUIRES (self->lock);
/** The time that a lane takes over a segment, when it has taken so long over the one that it is at. */
int64_t ecfs_writer_lane_pace_us (const EcfsUpload *lane, int64_t now_us);
/** Whether the others wait for a lane that is behind; with the lock held, or where there is one thread. */
bool ecfs_writer_keeps_up (const EcfsWriter *self, const EcfsUpload *lane, int64_t now_us);
/** What is left goes on behind: keeps little memory for it, and reads more of the content again. */
void ecfs_writer_window_narrow_locked (EcfsWriter *self) ECFS_REQUIRES (self->lock);
/** Encodes the segment of a small object right here, before there are lanes, which would wait for it. */
void ecfs_writer_encode_small (EcfsWriter *self);
/** The size is known: @size. Lanes that have sent all go on to their footers. */
void ecfs_writer_end_locked (EcfsWriter *self, uint64_t size) ECFS_REQUIRES (self->lock);
/** Lets go of what no lane needs any more, and begins to encode what they need next. */
void ecfs_writer_advance_locked (EcfsWriter *self) ECFS_REQUIRES (self->lock);

#endif
