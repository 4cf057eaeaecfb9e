/*
 * The archive's endpoints as an attempt to store an object sees them: which take stripes now, and why others do not.
 */
#ifndef ECFS_ARCHIVE_PLACES_H
#define ECFS_ARCHIVE_PLACES_H

#include "archive/archive.h"
#include "codec/codec.h"
#include "object/placement.h"

typedef struct EcfsObjectPlaces {
    const EcfsCodec *codec;            /* borrowed */
    uint64_t stripe_bytes;             /* of one stripe, about */
    size_t n_endpoints;                /* when it began: those that are added later are not for it */
    size_t position[ECFS_CODEC_MAX_N]; /* of the endpoint of each stripe; SIZE_MAX none */
    bool tried[ECFS_CODEC_MAX_N];      /* endpoints by position that failed in this attempt, as far as they fit */
    const char *marks;                 /* of EcfsRuled: what rules say of endpoints; NULL: nothing. Borrowed */
} EcfsObjectPlaces;

/* Which endpoints are places. */
typedef enum EcfsDoubts {
    ECFS_DOUBTS_NONE,  /* those of which nothing speaks against it */
    ECFS_DOUBTS_TRIAL, /* also those that have to prove themselves */
    ECFS_DOUBTS_ALL,   /* also those that are silent, or refused what they were given last */
} EcfsDoubts;

/**
 * The endpoints for ecfs_place (), with what the object already has there; g_free (). Those that are known to have no
 * room, and those that a rule forbids, are no places, whatever the @doubts.
 */
EcfsPlace *ecfs_object_places (const EcfsArchive *archive, const EcfsObjectPlaces *self, EcfsDoubts doubts);

/** As ecfs_archive_most_per_endpoint (), with those endpoints that rules allow. */
unsigned ecfs_object_most_per_endpoint (const EcfsArchive *archive, const EcfsObjectPlaces *self);

/** As ecfs_place (), but what rules prefer comes first; or, where anything is flagged in @towards (may be NULL), that,
 * as with ecfs_place_towards (). */
unsigned ecfs_object_place (const EcfsObjectPlaces *self, EcfsPlace *places, const bool *wanted, unsigned most,
                            uint64_t lot, const bool *towards, size_t *ret_places);

/** Why the endpoint takes nothing; g_free (). NULL: it does. */
char *ecfs_unusable_endpoint (const EcfsArchiveEndpoint *endpoint);

/** Why endpoints take nothing, each as "; why": for the message of an attempt that found too few; g_free (). */
char *ecfs_unusable_endpoints (const EcfsArchive *archive, const EcfsObjectPlaces *self);

/** Whether there would be enough endpoints if those that are full had room. */
bool ecfs_only_room_is_missing (const EcfsArchive *archive, const EcfsObjectPlaces *self);

#endif
