/*
 * Which stripes to ask for a fetch (a range of check blocks of one segment): a pure function over what is known of the
 * lanes, so that it can be tested and simulated without network or clock.
 *
 * The policy: whichever lanes make the wanted packets available soonest, by their forecasts. Where all links are
 * equally fast that is all n of them in turn; a packet that needs no decoding is preferred while it is hardly later,
 * and a part of a segment comes from its own stripe unless k others are much sooner. Where what is cheap is preferred,
 * whichever lanes cost least are asked among those that are fast enough: whose packet would take, if nothing
 * else were under way there, at most twice as long as at the k fastest, and 100 ms. Where a lane is gone, stalled or
 * bad, what it owes is erased: as few others as the code needs are asked in its place at once. A packet that is late is
 * hedged, which costs bytes: within the budget, where that brings the segment sooner, and no earlier than needed for
 * when the reader wants it. Late is not lost: a lane that is asked stays asked.
 *
 * Times in a lane are from now on; a packet is late when
 *
 *   due_us > promised_us + 2 common + 20 ms it is later than nearly all such packets are, and more so than others now,
 *   due_us > needed_us - replacement        waiting for it first would leave no time for a replacement, and
 *   due_us > 3/2 replacement + 20 ms        the replacement is sooner,
 *
 * where a packet that is past its time counts as due after as long again, and common is how late even those lanes are
 * that the code could not do without: not they are slow then, but this machine, or a line that all of them share.
 */
#ifndef ECFS_OBJECT_SCHEDULER_H
#define ECFS_OBJECT_SCHEDULER_H

#include "codec/codec.h"
#include "object/policy.h"

/* One stripe of the object, from one fetch's point of view. */
typedef struct EcfsCandidate {
    bool stored;         /* the catalog knows an endpoint for it */
    bool arrived;        /* all its blocks are here and verified */
    bool asked;          /* and neither arrived nor failed yet */
    bool stalled;        /* asked, and shows no byte for longer than its stall time */
    bool failed;         /* for good in this fetch: missing, damaged, or tried often enough */
    bool resting;        /* failed just now, and may be asked again after a pause */
    bool down;           /* its endpoint is down: asked only when nothing else is left */
    bool avoided;        /* it stalls elsewhere right now: asked only when it must be */
    bool spent;          /* what its account allows this month is used up: likewise, and before those that are down */
    double price;        /* of its packet, in any unit; where what is cheap is preferred */
    int64_t forecast_us; /* until its blocks would be here if asked now */
    int64_t late_us;     /* the same in nearly all cases; INT64_MAX / 2: nothing is known of its endpoint */
    int64_t alone_us;    /* forecast_us if nothing else were under way there; for fastest0, fastest1 and cheap */
    unsigned n_running;  /* packets under way there; for fastest1 */
    int64_t due_us;      /* asked: until its blocks are here in nearly all cases, ecfs_due_us () */
    int64_t promised_us; /* asked: the same as it was foretold when it was asked; negative: that has passed */
    unsigned n_overtook; /* asked: packets asked later, of any segment, that have come since; for P */
} EcfsCandidate;

/* What a fetch wants, and what it may take. */
typedef struct EcfsWanted {
    const bool *packets;  /* n flags */
    int64_t needed_us;    /* until the reader needs them; 0: it waits; INT64_MAX: nobody knows */
    unsigned n_hedges;    /* packets that the budget has left */
    unsigned n_transfers; /* packets that may be asked now; UINT_MAX without T */
} EcfsWanted;

typedef enum EcfsSchedule {
    ECFS_SCHEDULE_READY,      /* the wanted packets are determined by what has arrived */
    ECFS_SCHEDULE_WAIT,       /* what is asked suffices (after asking the lanes in `ask`), or T allows no more */
    ECFS_SCHEDULE_IMPOSSIBLE, /* not even with everything that could still arrive */
} EcfsSchedule;

typedef struct EcfsDecision {
    bool ask[ECFS_CODEC_MAX_N];  /* lanes to ask now (may be none) */
    bool late[ECFS_CODEC_MAX_N]; /* lanes that are asked, and in whose place others are hedged now */
    unsigned n_hedges;           /* how many of ask are beyond what would suffice if the late ones came */
} EcfsDecision;

/** @lanes: n. Thread-safe, allocates nothing. */
EcfsSchedule ecfs_schedule (const EcfsCodec *codec, const EcfsReadPolicy *policy, const EcfsWanted *wanted,
                            const EcfsCandidate *lanes, EcfsDecision *ret_decision);

/** Packets of @packet_bytes that may be asked beyond what is needed, of @received_bytes and @extra_bytes until now. */
unsigned ecfs_hedges_left (const EcfsReadPolicy *policy, uint64_t received_bytes, uint64_t extra_bytes,
                           uint64_t packet_bytes);

/** How late, or silent, even those of @n lanes are that the code could not do without, all but the @n_spare worst: that
 * is this machine, or a line that all share. Thread-safe. */
int64_t ecfs_common_us (const int64_t *us, unsigned n, unsigned n_spare);

#endif
