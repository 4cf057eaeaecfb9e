/*
 * Objects with stripes where they should not be. A rule (places_of.h) forbids their place, as it is newer than they
 * are. Or they have more stripes in one zone, or at one endpoint, than they would get now: endpoints were down, full or
 * not there yet when they were stored or repaired, and what was lost then took zones from what they may lose.
 */
#ifndef ECFS_ARCHIVE_CROWDING_H
#define ECFS_ARCHIVE_CROWDING_H

#include "archive/archive.h"
#include "object/spread.h"

/* The endpoints at a moment, for many objects. */
typedef struct EcfsRoomy {
    EcfsArchive *archive;
    size_t n_places;
    bool has_rules;    /* some directory has one */
    EcfsPlace *now;    /* those that take stripes */
    EcfsPlace *wished; /* if all answered that are to take some, and had room */
} EcfsRoomy;

/** False where the catalog cannot be read; it is to be cleared in any case. */
bool ecfs_roomy_init (EcfsRoomy *self, EcfsArchive *archive, GError **error);
void ecfs_roomy_clear (EcfsRoomy *self);

typedef struct EcfsCrowding {
    unsigned n_forbidden; /* stripes at endpoints that a rule forbids; then moves are about these alone */
    EcfsSpread now;
    EcfsSpread possible;         /* if all endpoints were as wished */
    EcfsSpread reachable;        /* by moves that can be made now */
    unsigned n_moves;            /* that takes; 0: none helps now */
    size_t to[ECFS_CODEC_MAX_N]; /* positions of endpoints; SIZE_MAX: the stripe stays */
    size_t lacking; /* an endpoint that would be needed and takes nothing now; SIZE_MAX: none is, or none would do */
} EcfsCrowding;

/**
 * 1: a rule forbids a place of a stripe, or the object could be safer than it is, by moves alone, none of which goes
 * where a rule forbids it or leaves what one prefers; 0: neither; -1: its rules are not known. @lot: a random number,
 * which chooses among equals.
 */
int ecfs_object_is_crowded (const EcfsRoomy *roomy, const EcfsObjectRow *object, uint64_t lot,
                            EcfsCrowding *ret_crowding, GError **error);

#endif
