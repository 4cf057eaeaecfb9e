/*
 * What an object has of its stripes: the one answer that status, metrics, wait, info and drill go by, and that
 * ecfs-fsck finds at the endpoints. A stripe is
 *
 *   stored     a row in the catalog says so, and it reaches as far as it is asked about
 *   given up   stored, and nobody is to read it there any more: its endpoint is distrusted or failed
 *   damaged    stored, and queued for repair: somebody found that it is not what was stored, or is gone
 *   held       stored, and neither given up nor damaged: nobody has to rebuild it
 *   reachable  held, and its endpoint is in ecfs.conf and not down
 *   nowhere    held, and its endpoint is not in ecfs.conf: nobody can look from here whether it is there
 *
 * An object lacks stripes for as long as it holds fewer than its code has, however many endpoints are away.
 */
#ifndef ECFS_ARCHIVE_STANDING_H
#define ECFS_ARCHIVE_STANDING_H

#include "archive/archive.h"
#include "codec/codec.h"

typedef struct EcfsStanding {
    unsigned n; /* that the code has */
    unsigned n_stored, n_given_up, n_damaged, n_held, n_reachable, n_nowhere;
    bool held[ECFS_CODEC_MAX_N];
    bool reachable[ECFS_CODEC_MAX_N];
    size_t holder[ECFS_CODEC_MAX_N]; /* row ids of the endpoints of what is stored */
} EcfsStanding;

/** Of the content of an object with this codec up to @end, without the stripes that are @damaged (ECFS_CODEC_MAX_N
 * flags). Thread-safe. */
void ecfs_object_standing (const EcfsArchive *archive, const EcfsObjectRow *object, const EcfsCodec *codec,
                           uint64_t end, const bool *damaged, EcfsStanding *ret_standing);

/** Whether it holds fewer stripes than its code has. */
static inline bool ecfs_standing_lacks (const EcfsStanding *self)
{
    return self->n_held < self->n;
}

/* All that is known to be damaged, for who walks over objects by ascending id. One thread. */
typedef struct EcfsKnownDamage {
    GArray *rows; /* of EcfsRepairRow, by object; owned */
    guint next;
} EcfsKnownDamage;

bool ecfs_damage_load (EcfsArchive *archive, EcfsKnownDamage *ret_damage, GError **error);
/** Of an object with a larger id than the one before; flags for ecfs_object_standing (). */
void ecfs_damage_of (EcfsKnownDamage *self, int64_t object, bool *ret_damaged);
/** Zeroed is accepted. */
void ecfs_damage_clear (EcfsKnownDamage *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (EcfsKnownDamage, ecfs_damage_clear)

#endif
