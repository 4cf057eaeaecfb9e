/*
 * What ecfs-fsck and ecfs recover make of an archive: -y brings everything to full redundancy, so that a second run
 * finds nothing, and where the archive directory is lost, the endpoints alone give back the same tree.
 */
#ifndef ECFS_TESTS_CRASH_RECOVERED_H
#define ECFS_TESTS_CRASH_RECOVERED_H

#include "verdict.h"

typedef struct Recovered {
    const char *base;
    unsigned n_away; /* endpoints that are not there, … */
    unsigned seed;   /* … by this */
    bool recover;    /* else it is only checked */
    unsigned n_blot; /* endpoints that lose journal and snapshots between two checks, until all have; 0: none */
} Recovered;

/** The archive is closed, and stays so; the verdict goes to @progress. In a process of its own. */
void recovered_judge (const Recovered *self, Progress *progress);

#endif
