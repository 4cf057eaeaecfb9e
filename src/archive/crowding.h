/*
 * Objects that have more stripes in one zone, or at one endpoint, than they would get now: endpoints were down, full or
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
    EcfsPlace *now;    /* those that take stripes */
    EcfsPlace *wished; /* if all answered that are to take some, and had room */
} EcfsRoomy;

void ecfs_roomy_init (EcfsRoomy *self, EcfsArchive *archive);
void ecfs_roomy_clear (EcfsRoomy *self);

typedef struct EcfsCrowding {
    EcfsSpread now;
    EcfsSpread possible;         /* if all endpoints were as wished */
    EcfsSpread reachable;        /* by moves that can be made now */
    unsigned n_moves;            /* that takes; 0: none helps now */
    size_t to[ECFS_CODEC_MAX_N]; /* positions of endpoints; SIZE_MAX: the stripe stays */
    size_t lacking;              /* an endpoint that would be needed and takes nothing now; SIZE_MAX: none is */
} EcfsCrowding;

/** Whether an object could be safer than it is, by moves alone. @lot: a random number, which chooses among equals. */
bool ecfs_object_is_crowded (const EcfsRoomy *roomy, const EcfsObjectRow *object, uint64_t lot,
                             EcfsCrowding *ret_crowding);

#endif
