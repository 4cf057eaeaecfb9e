/*
 * Locks at accounts that lock what they store for a time (ecfs_endpoint_lock_us ()): what is still needed is to stay
 * locked. All that an endpoint has of the archive is gone round, again and again, a few files at a time, and it is
 * asked to lock those for longer whose locks end soon. What only the dead need is left out, so that it can go one day.
 *
 * How the last round went is kept in the archive directory: a round is not begun by each mount, and status tells it.
 */
#ifndef ECFS_UPKEEP_RENEWALS_H
#define ECFS_UPKEEP_RENEWALS_H

#include "archive/archive.h"

typedef struct EcfsRenewals EcfsRenewals;

/* How a round at an endpoint went; while one is under way, this far. */
typedef struct EcfsRenewed {
    int64_t began_s, ended_s; /* since 1970; ended: of the last that was all round; 0: none was */
    uint64_t n_asked;         /* files, … */
    uint64_t n_renewed;       /* … that were locked for longer, … */
    uint64_t n_refused;       /* … and that could not be */
    char *error;              /* why the last of these could not; NULL: none; owned */
    unsigned phase;           /* where it goes on */
    int64_t after;
} EcfsRenewed;

#define ECFS_RENEWALS_PAUSE_US 250000 /* between two looks while there is something to do */

EcfsRenewals *ecfs_renewals_new (EcfsArchive *archive);
/** Goes on where it is time to, a few files at each endpoint; never waits for one. Returns whether there is more to do
 * soon. By one thread. */
bool ecfs_renewals_look (EcfsRenewals *self);
/** Waits for what is under way. NULL is accepted. */
void ecfs_renewals_free (EcfsRenewals *self);

/** What an archive directory tells of an endpoint; all zeros where it is nothing. To be cleared. */
void ecfs_renewed_load (EcfsRenewed *self, const char *directory, const EcfsUuid *endpoint);
void ecfs_renewed_clear (EcfsRenewed *self);

#endif
