/*
 * How an endpoint usually is, and how long is too long there: the estimators that an endpoint is measured with. Pure
 * functions that are told the time, so that a simulation shares them.
 */
#ifndef ECFS_ENDPOINT_CORE_ESTIMATE_H
#define ECFS_ENDPOINT_CORE_ESTIMATE_H

#include "endpoint/endpoint.h"

#include <stdatomic.h>

/* What the other side owes; each has its own experience of how long that takes. */
typedef enum EcfsOwes {
    ECFS_OWES_NOTHING,
    ECFS_OWES_ANSWER,
    ECFS_OWES_SYNC,    /* it writes to its disk what it took before */
    ECFS_OWES_CONNECT, /* the core's own */
    ECFS_N_OWES,
} EcfsOwes;

#define ECFS_STALL_TIMEOUT_US (10 * G_USEC_PER_SEC) /* the default */
#define ECFS_N_SILENCES       64
#define ECFS_GONE_MIN_US      (2 * G_USEC_PER_SEC) /* shorter silences take nobody down, but for a shorter stall_timeout */

/* Of one kind of what is owed: the last samples. */
typedef struct Silences {
    int64_t us[ECFS_N_SILENCES];
    unsigned n_noted;   /* in all */
    int64_t usual_us;   /* nearly all are shorter */
    int64_t longest_us; /* of those kept */
    /* After a silence for which the other side was given up: perhaps too soon, so the next may last longer. */
    int64_t patience_us;
    unsigned n_patient; /* until n_noted reaches this */
} Silences;

typedef struct StallClock {
    atomic_llong since_us; /* of the silence; 0: nothing is owed */
    atomic_int owes;       /* EcfsOwes, while since_us is not 0 */
    /* the slot's thread */
    int64_t moment_us; /* when the busy moment began */
    uint64_t moved;    /* bytes since it was set or restarted */
    int64_t longest_us[ECFS_N_OWES];
} StallClock;

#define ECFS_N_BUCKETS 232
#define ECFS_RATE_UNIT 1024.0 /* bytes per second; a distribution knows no values below one, or above 2^29 */

/* Samples, weighted by age, in logarithmic buckets. */
typedef struct Distribution {
    double weights[ECFS_N_BUCKETS];
    double sum;  /* 0: there are none */
    double gain; /* what a sample weighs now */
    int64_t noted_us;
    EcfsQuantiles quantiles;
} Distribution;

/* What an endpoint moves in one direction. */
typedef struct EcfsMeter {
    Distribution rates; /* in ECFS_RATE_UNIT */
    bool proven;        /* it has samples for which enough was asked for */
    uint64_t total;
    unsigned n_busy; /* requests that could move bytes now */
    int64_t busy_us; /* since when there are some; … */
    uint64_t busy_bytes;
    /* The window, while it is open. */
    bool open;
    bool shared;
    int64_t start_us, last_us;
    uint64_t window_bytes;
    double owed;     /* since last_us */
    double owed_sum; /* over its microseconds */
} EcfsMeter;

/* What a meter has to know when bytes moved. */
typedef struct Progress {
    double owed;     /* bytes that are outstanding still; 0: none */
    double delay_us; /* the least time to the first byte of an answer; 0: not known */
    bool shared;     /* the other direction moves bytes too */
    int64_t now_us;
} Progress;

/* distribution.c; @now_us is the monotonic clock, here and below */
/** @weight: of an average sample 1. Values below one count as one. */
void ecfs_distribution_note (Distribution *self, double value, double weight, int64_t now_us);
/** Begins with quantiles of an earlier time, which a few samples outweigh. False: they are impossible, or too late. */
bool ecfs_distribution_expect (Distribution *self, const EcfsQuantiles *prior);

/* meter.c; @delay_us as in Progress */
void ecfs_meter_begin (EcfsMeter *self, int64_t now_us);
void ecfs_meter_add (EcfsMeter *self, uint64_t bytes, const Progress *progress);
/** What was outstanding is not any more, without having come. */
void ecfs_meter_dry (EcfsMeter *self, double delay_us);
void ecfs_meter_end (EcfsMeter *self, double delay_us, int64_t now_us);
/** Bytes per second. */
EcfsQuantiles ecfs_meter_rate (const EcfsMeter *self);
void ecfs_meter_expect (EcfsMeter *self, const EcfsQuantiles *prior);

/* silence.c */
void ecfs_silences_note (Silences *self, int64_t silence_us);
/** A silence of so long is out of the usual: what can be had elsewhere should be. */
int64_t ecfs_silences_suspect_us (const Silences *self);
/** The other side was given up after @silence_us. */
void ecfs_silences_gave_up (Silences *self, int64_t silence_us);
/** A silence of so long means that the other side is gone. */
int64_t ecfs_silences_gone_us (const Silences *self, EcfsOwes owes, int64_t stall_timeout_us);

/* Fewer bytes are no progress: a byte now and then would hold up for ever whoever waits for all. */
#define ECFS_PROGRESS_BYTES 1024

/** Bytes moved, which restart it once they are enough. Slot's thread. */
void ecfs_clock_moved (StallClock *self, uint64_t bytes, int64_t now_us);
/** Something arrived. Slot's thread. */
void ecfs_clock_restart (StallClock *self, int64_t now_us);
/** As ecfs_slot_owed (). True: a busy moment has ended, for ecfs_clock_note (). Slot's thread. */
bool ecfs_clock_set (StallClock *self, EcfsOwes owes, int64_t now_us);
/** Adds the samples of a busy moment to @silences [ECFS_N_OWES], and begins another. Slot's thread. */
void ecfs_clock_note (StallClock *self, Silences *silences, int64_t now_us);
/** Stops it: what was owed will not come, so the last silence says nothing. Slot's thread. */
void ecfs_clock_stop (StallClock *self);
/** How long the silence lasts; 0: nothing is owed. Any thread. */
int64_t ecfs_clock_silent_us (const StallClock *self, int64_t now_us, EcfsOwes *ret_owes);
/** The silence counts from now on: it was our own. Any thread. */
void ecfs_clock_excuse (StallClock *self, int64_t now_us);

/** Until @bytes are here, with what is queued before them included; @usual_us: what nearly all answers come within. */
EcfsForecast ecfs_forecast_of (const Distribution *latency, const EcfsMeter *reads, int64_t usual_us, uint64_t bytes);

#endif
