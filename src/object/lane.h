/*
 * What a reader knows of the lane to one stripe: what it owes, how fast it is of late, whether it has stalled; and what
 * the scheduler is told of it. Pure functions that are told the time, so that a simulation shares them with the reader:
 *
 *   asked → came (any number, with moved where bytes arrived) → done
 *
 * and at every tick refresh, with what is known of its endpoint, then measure.
 */
#ifndef ECFS_OBJECT_LANE_H
#define ECFS_OBJECT_LANE_H

#include "endpoint/endpoint.h"
#include "object/scheduler.h"

typedef struct EcfsLane {
    bool down;
    bool suspect;         /* its endpoint is silent for longer than usual */
    bool spent;           /* of its month nothing is left */
    bool stalled;         /* it owed one of our fetches bytes for too long */
    bool told;            /* trouble was reported, … */
    bool damage_told;     /* … and damage was */
    int64_t down_us;      /* since when its endpoint is down; 0: it is not */
    int64_t stalled_us;   /* since when */
    int64_t last_byte_us; /* 0: none yet */
    int64_t mean_gap_us;
    int64_t rtt_us;
    int64_t gap_us;          /* nearly all its silences are shorter */
    int64_t moved_us;        /* when its endpoint was last seen to deliver, to whomever */
    uint64_t endpoint_bytes; /* that it had delivered then */
    double endpoint_rate;    /* bytes per second; 0: not known */
    uint64_t asked_bytes;    /* in all */
    uint64_t passed_bytes;   /* of them those that came, and those that will not */
    unsigned n_running;      /* packets that are asked */
    int64_t busy_since_us;   /* since when there was always one */
    int64_t owed_since_us;   /* at the last tick; 0: nothing was owed */
    uint64_t came_bytes;     /* since then */
    double bytes_per_s;      /* to this reader, of late; 0: not known */
} EcfsLane;

/* Its endpoint, at a tick. */
typedef struct EcfsLaneEndpoint {
    bool down;
    bool suspect;
    bool spent;
    int64_t down_since_us;   /* where it is down */
    int64_t rtt_us;          /* 0: not known */
    int64_t gap_us;          /* by how much nearly all answers are later than they are usually */
    double read_bytes_per_s; /* 0: not known */
    uint64_t read_bytes;     /* in all, to whomever */
} EcfsLaneEndpoint;

/**
 * How long a lane may owe bytes without showing one before it counts as stalled: max (4 round trips, 8 mean gaps, 200
 * ms); a second where the round trip is not known yet.
 */
int64_t ecfs_stall_us (int64_t rtt_us, int64_t mean_gap_us);

/**
 * Until @bytes that a lane owes, with all that is queued before them, are here in nearly all cases: the time they take
 * at its rate and what is left of @gap_us, which nearly all its silences are shorter than; one that has already lasted
 * longer is expected to last as long again. @bytes_per_s 0: not known, and no reason to doubt.
 */
int64_t ecfs_due_us (uint64_t bytes, double bytes_per_s, int64_t gap_us, int64_t silent_us);

/** Of a smoothed rate, @bytes in @elapsed_us later. */
double ecfs_smooth_rate (double rate, uint64_t bytes, int64_t elapsed_us, int64_t constant_us);

/** Returns whether it has become suspect. */
bool ecfs_lane_refresh (EcfsLane *self, const EcfsLaneEndpoint *endpoint, int64_t now_us);
void ecfs_lane_measure (EcfsLane *self, int64_t now_us);

/** Returns the mark of the packet: what was asked of the lane with it. */
uint64_t ecfs_lane_asked (EcfsLane *self, uint64_t bytes, int64_t now_us);
/** Of what it owes, @bytes came. */
void ecfs_lane_came (EcfsLane *self, uint64_t bytes);
/** Bytes of a packet that was asked at @asked_us arrive. */
void ecfs_lane_moved (EcfsLane *self, int64_t asked_us, int64_t now_us);
/** A packet ended, and @left_bytes of it will not come. */
void ecfs_lane_done (EcfsLane *self, uint64_t left_bytes);

/** For how long it has owed something and shown nothing: no byte for this reader, nor for another. @asked_us: when what
 * is waited for was asked; 0: anything. */
int64_t ecfs_lane_silent_us (const EcfsLane *self, int64_t asked_us, int64_t now_us);
/** Whether it shows nothing for longer than its stall time, while it owes a packet; it is stalled then. False when it
 * was before. */
bool ecfs_lane_finds_stall (EcfsLane *self, int64_t asked_us, int64_t now_us);

/**
 * Whether nobody should wait for what it owes who can do without: that counts as erased then. Either of two clocks says
 * so, and both are looked at once a tick:
 *
 *   suspect  The endpoint's: one of its connections owes an answer for 3 times its usual silence, 40 ms at least, or
 *            200 ms while little is known of it; ecfs_silences_suspect_us (). Asked anew at each tick.
 *   stalled  The reader's: it is owed bytes, and the endpoint delivers none to anybody for ecfs_stall_us (), 200 ms at
 *            least. Stays until a byte of ours comes, the endpoint is suspect no more, or 5 s have passed.
 *
 * Mostly suspect is first: one silent connection is enough, and its time is shorter. Stalled is first where silences
 * are usually long, and alone where a packet only queues, behind writes for example: the queue has no clock.
 */
bool ecfs_lane_is_silent (const EcfsLane *self);

/** Until a packet that is asked, with its mark and what is left of it, is here in nearly all cases. */
int64_t ecfs_lane_due_us (const EcfsLane *self, uint64_t left_bytes, uint64_t mark, int64_t asked_us, int64_t now_us);

/** What the scheduler is told of a lane that is not asked yet; @forecast: the endpoint's own. */
void ecfs_lane_look_ahead (const EcfsLane *self, EcfsForecast forecast, uint64_t packet_bytes, EcfsCandidate *lane);

/** Until a stall on this lane would be found and made good elsewhere; 0: where nothing is expected of it anyway. */
int64_t ecfs_lane_reach_us (const EcfsLane *self);

/** How much reading ahead has to cover then, at the reader's pace. */
uint64_t ecfs_reach_bytes (double consumes_per_s, int64_t reach_us);

/** Segments to read ahead, once sequential reading has @passed as many more: twice as many for each, up to @most. */
unsigned ecfs_grow_window (unsigned window, uint64_t passed, uint64_t most);

/**
 * Segments that are open to claims of those that read the same, @shared_us after they began: few at first, as on a line
 * that all share what all of them claim at once would come at once, late, and be passed on at once. @n_at_once: that
 * come to this reader, 2 at first and more where they come soon: such a line is not one that others wait for.
 */
uint64_t ecfs_open_window (int64_t shared_us, unsigned n_at_once, uint32_t segment_bytes);

#define ECFS_CONSUME_US 500000 /* time constant of the reader's pace */

#endif
