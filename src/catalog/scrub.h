/*
 * What of an archive's stripes has been read and verified, and when: a database of its own beside the catalog, for
 * nobody loses anything with it, and who has the catalog open for writing is not in the way.
 *
 * Stripes are verified in the order of their objects' UUIDs. So what is verified is a few ranges of UUIDs for each
 * endpoint, however many objects there are: nothing is kept for an object, unless it was found damaged.
 *
 * A pass goes round once over all that there is; one that is interrupted is open, and is gone on with. Passes are
 * numbered, so clocks that are set do no harm: times are for people.
 *
 * One thread at a time. At most one process has it open for writing.
 */
#ifndef ECFS_CATALOG_SCRUB_H
#define ECFS_CATALOG_SCRUB_H

#include "catalog/catalog.h"

#define ECFS_SCRUB_NAME "scrub.sqlite"

/* The UUIDs behind @after up to the next range's, or to the last. */
typedef struct EcfsScrubRange {
    EcfsUuid after;
    uint64_t pass; /* that verified them last; 0: none */
    int64_t time_ns;
} EcfsScrubRange;

/* Ranges: GArray of EcfsScrubRange in order, the first behind nil; so every UUID but nil is in one. */

extern const EcfsUuid ecfs_uuid_last;

GArray *ecfs_ranges_new (void);
/** Those behind @after up to @last were verified. Becomes part of the range before it, where that is of this pass. */
void ecfs_ranges_set (GArray *self, const EcfsUuid *after, const EcfsUuid *last, uint64_t pass, int64_t time_ns);
/** The range that has what is right behind @after. Valid until self changes. */
const EcfsScrubRange *ecfs_ranges_at (const GArray *self, const EcfsUuid *after);
/** The last UUID of that range. */
EcfsUuid ecfs_ranges_end (const GArray *self, const EcfsUuid *after);
/** The one that was verified before all others, if that was before @pass; NULL: none was. */
const EcfsScrubRange *ecfs_ranges_oldest (const GArray *self, uint64_t pass);
/**
 * The part that @pass or a later one has verified of what @n endpoints (NULL in @ranges: not that one) have: 0 to 1. Of
 * the bytes of objects, as if each endpoint had as much of each; of UUIDs, where objects are so many that these are
 * spread evenly, where there are none, and where @catalog is NULL. Takes a second for a million objects.
 */
double ecfs_ranges_share (GArray *const *ranges, size_t n, uint64_t pass, EcfsCatalog *catalog);

typedef struct EcfsScrub EcfsScrub;

typedef struct EcfsScrubState {
    uint64_t pass;         /* the last that was begun; 0: none */
    bool open;             /* it has not gone round */
    int64_t began_ns;      /* when it was begun */
    int64_t full_began_ns; /* of the last that verified all that there was; 0: none did */
    int64_t full_ended_ns;
} EcfsScrubState;

/* A stripe that was found damaged, and was so still when it was read last. */
typedef struct EcfsScrubDamage {
    int64_t object; /* row id */
    unsigned index;
    uint64_t instance;
} EcfsScrubDamage;

/* A stripe that nothing knows. */
typedef struct EcfsScrubOrphan {
    int64_t endpoint; /* row id */
    EcfsUuid object;
    unsigned index;
    uint64_t instance;
} EcfsScrubOrphan;

/* What an endpoint said of a stripe whose packets were all verified then. */
typedef struct EcfsScrubDigest {
    int64_t object; /* row id */
    unsigned index;
    uint64_t instance;
    int64_t endpoint; /* row id */
    const char *text; /* borrowed */
} EcfsScrubDigest;

/**
 * Opens what is kept in an archive directory, making it when it is absent and @writable. What is damaged is begun anew,
 * with a warning. EALREADY: another process has it open for writing.
 */
EcfsScrub *ecfs_scrub_open (const char *directory, bool writable, GError **error);
/** NULL is accepted. */
void ecfs_scrub_close (EcfsScrub *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsScrub, ecfs_scrub_close)

/* Nothing below is durable before ecfs_scrub_keep (). */

bool ecfs_scrub_state (EcfsScrub *self, EcfsScrubState *ret_state, GError **error);
bool ecfs_scrub_set_state (EcfsScrub *self, const EcfsScrubState *state, GError **error);
/** What claims to be of a later pass than @last_pass is of none. */
GArray *ecfs_scrub_ranges (EcfsScrub *self, int64_t endpoint, uint64_t last_pass, GError **error);
bool ecfs_scrub_set_ranges (EcfsScrub *self, int64_t endpoint, const GArray *ranges, GError **error);

/** Up to @max, by object and index, behind @after (NULL: the first): GArray of EcfsScrubDamage. */
GArray *ecfs_scrub_damages (EcfsScrub *self, const EcfsScrubDamage *after, size_t max, GError **error);
/** It is damaged, or (@damaged false) not any more. */
bool ecfs_scrub_set_damage (EcfsScrub *self, const EcfsScrubDamage *damage, bool damaged, GError **error);

/** When it was seen for the first time: now, where it was not before. */
bool ecfs_scrub_see_orphan (EcfsScrub *self, const EcfsScrubOrphan *orphan, int64_t now_ns, int64_t *ret_first_ns,
                            GError **error);
/** Forgets those that were not seen at @now_ns, but before. */
bool ecfs_scrub_forget_orphans (EcfsScrub *self, int64_t now_ns, GError **error);

/* Digests are for who opened it writable. */

/** Whether just this was said of it. */
bool ecfs_scrub_has_digest (EcfsScrub *self, const EcfsScrubDigest *digest, bool *ret_has, GError **error);
/** It was said, in @pass; text NULL: nothing is known of the stripe any more. */
bool ecfs_scrub_set_digest (EcfsScrub *self, const EcfsScrubDigest *digest, uint64_t pass, GError **error);
/** Forgets those that were said before @pass. */
bool ecfs_scrub_forget_digests (EcfsScrub *self, uint64_t pass, GError **error);

bool ecfs_scrub_keep (EcfsScrub *self, GError **error);

#endif
