/*
 * Counts the system calls by which a process changes what is below some directories, and ends it by SIGKILL at one of
 * them: before it, in its middle, after it. Nothing of it is in the program under test: it stands between the program
 * and libc, either linked into a test program or by LD_PRELOAD (where the environment has the plan, see steps.c).
 *
 * It may also be stopped there, and go on when somebody says so: what others do meanwhile comes between two steps.
 *
 * With a loss it is not the process that ends but the power: what no fsync has made durable is taken back before the
 * end, all of it or a part by chance (disk.h).
 */
#ifndef ECFS_TESTS_CRASH_STEPS_H
#define ECFS_TESTS_CRASH_STEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum CrashMoment {
    CRASH_BEFORE,
    CRASH_AFTER,
    CRASH_HALFWAY, /* of a write: its first half is done; of anything else: before it */
} CrashMoment;

typedef enum CrashLoss {
    CRASH_LOSES_NOTHING, /* the process was killed */
    CRASH_LOSES_ALL,     /* that is not durable */
    CRASH_LOSES_SOME,    /* of that, by the seed */
} CrashLoss;

/* What the dying process leaves for who looks at it; in memory shared with it, or in a mapped file. */
typedef struct CrashBoard {
    _Atomic uint32_t n_steps; /* met so far */
    uint32_t died;            /* 1: at the step of the plan */
    char where[256];          /* which that was: "before 17 fsync staging/3" */
    /* For a plan that pauses: the step to stop at, before it; `died` is 1 until somebody writes 0 there. */
    _Atomic uint32_t pause_at;
} CrashBoard;

typedef struct CrashPlan {
    const char *roots; /* directories, separated by ':'; absolute and without symbolic links */
    const char *grave; /* a directory on their file system where removed files are kept; for losses */
    uint32_t at;       /* the step to die at, from 1; 0: only count */
    CrashMoment moment;
    CrashLoss loss;
    uint64_t seed;
    bool
        every_write; /* also count the writes of SQLite, whose atomicity is SQLite's business, and not only its syncs */
    bool pauses;     /* it stops where the board says, and does not end */
    CrashBoard *board;
} CrashPlan;

/** From here on steps count; what was done before is durable. @plan and what it points to must stay. */
void crash_arm (const CrashPlan *plan);

/** All that was done until now is durable, as sync(2) makes it. */
void crash_sync (void);

/** The machine starts anew, in this process and in children that it makes from now on: the kernel tells another boot.
 */
void crash_reboot (void);

#endif
