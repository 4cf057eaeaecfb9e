/* What the two kinds of drill share: drill.c reads a sample, drill_cost.c tells before what that takes, drill_sets.c
 * asks the catalog alone, drill_key.c joins the shares of the key. */
#ifndef ECFS_VERBS_DRILL_PRIV_H
#define ECFS_VERBS_DRILL_PRIV_H

#include "archive/common.h"
#include "archive/standing.h"
#include "verbs/verbs.h"

#include <json-glib/json-glib.h>

/**
 * Adds to @report whether all objects stay readable without each set of endpoints that their codes promise to do
 * without. *ret_good: all do.
 */
bool ecfs_drill_sets (EcfsArchive *archive, JsonObject *report, bool *ret_good, GError **error);

/**
 * Adds to @report whether the archive's key comes back from the shares of all endpoints but those flagged in @without
 * (by position; NULL: without any that may be lost). *ret_good: it does, or it is not shared. Blocks.
 */
bool ecfs_drill_key (EcfsArchive *archive, const bool *without, JsonObject *report, bool *ret_good, GError **error);

/** What an object has of its stripes; its id is larger than that of the one before. Holders are positions of endpoints
 * here, and nothing is held at one that is not in ecfs.conf: nobody reads it there. */
void ecfs_drill_standing (EcfsArchive *archive, const EcfsObjectRow *object, const EcfsCodec *codec,
                          EcfsKnownDamage *damage, EcfsStanding *ret_standing);

/* Which objects are read: each is drawn or not as it goes by in the order of the catalog, and the same seed draws the
 * same. */
typedef struct EcfsDrillSample {
    GRand *random;
    uint64_t n_objects; /* in all */
    uint64_t n_seen, n_wanted, n_drawn;
} EcfsDrillSample;

/** EINVAL: no share of the objects. */
bool ecfs_drill_sample_begin (EcfsDrillSample *self, EcfsArchive *archive, const EcfsDrill *what, GError **error);
/** Zeroed is accepted. */
void ecfs_drill_sample_clear (EcfsDrillSample *self);
/** Whether the next object is read. */
bool ecfs_drill_sample_draws (EcfsDrillSample *self);

/** Flags by position of those named (ECFS_ENDPOINTS_MAX); g_free (). NULL and EINVAL: one is not there. */
bool *ecfs_drill_without (EcfsArchive *archive, const char *const *names, GError **error);

#endif
