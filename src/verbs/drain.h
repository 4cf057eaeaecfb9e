/*
 * Moving all that an endpoint holds to others: drain.c does it in the archive that this process has opened for writing,
 * drain_plan.c tells before what it takes, control/drain.c lets the mount do it that has the archive open.
 *
 * The endpoint is DRAINING from the first step on, in the catalog, so nothing new is placed there, now or after a
 * crash. Each stripe that is moved is one step by compare-and-set (commit/repair.c): read from the endpoint where it is
 * healthy, rebuilt from the others where it is not. What is left to do is what the catalog says, so whatever ends a
 * drain, the next one goes on. The most endangered objects are moved first.
 */
#ifndef ECFS_VERBS_DRAIN_H
#define ECFS_VERBS_DRAIN_H

#include "archive/past.h"
#include "verbs/verbs.h"

typedef struct EcfsDrainHere {
    const char *name;
    const char *const *towards; /* names of endpoints that take what they can, before others do; NULL: whichever */
    const EcfsTransferOptions *transfer;
} EcfsDrainHere;

/** Returns when the endpoint is empty. False: something is left there, each told as a problem; or it was cancelled. */
bool ecfs_drain_here (EcfsArchive *archive, const EcfsDrainHere *what, GError **error);
/** The same through the control socket. */
bool ecfs_drain_mounted (const char *archive_dir, const EcfsDrainHere *what, GError **error);

/* A walk over the objects that have stripes at an endpoint, by their rows, and then over those of the past that have
 * some; what moves meanwhile is met or not. */
typedef struct EcfsHolding {
    EcfsArchive *archive;
    EcfsCatalog *catalog;
    int64_t endpoint; /* row id */
    int64_t after;
    bool ended;
    GArray *stripes; /* of EcfsStripeAt; or … */
    GPtrArray *past; /* … of EcfsObjectRow */
    guint next;      /* of these */
    int64_t after_past;
    bool past_ended;
    uint64_t n_lost; /* objects of the past that were left out: nothing can be rebuilt of them without the endpoint */
} EcfsHolding;

void ecfs_holding_init (EcfsHolding *self, EcfsArchive *archive, int64_t endpoint);
void ecfs_holding_clear (EcfsHolding *self);
/** The next object, for ecfs_object_row_free (); NULL at the end, and on errors with @error. */
EcfsObjectRow *ecfs_holding_next (EcfsHolding *self, GError **error);

/** Flags for the first @n endpoints: whether they are among @names (NULL-terminated, may be NULL); g_free (). ENOENT.
 */
bool *ecfs_endpoint_flags (EcfsArchive *archive, const char *const *names, size_t n, GError **error);

/** How many endpoints an object can still lose for certain, by what this process knows of them; -1: none, or nothing is
 * known of its code. */
int ecfs_object_guarantee (EcfsArchive *archive, const EcfsObjectRow *object);

/** Whether no object has a stripe at the endpoint, and none is on its way there. */
bool ecfs_endpoint_is_empty (EcfsArchive *archive, const EcfsArchiveEndpoint *endpoint, bool *ret_empty,
                             GError **error);

#endif
