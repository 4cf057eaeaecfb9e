/*
 * Which endpoint gets which stripe, and how many endpoints or zones a stored set can still lose. Pure functions.
 */
#ifndef ECFS_OBJECT_PLACEMENT_H
#define ECFS_OBJECT_PLACEMENT_H

#include "codec/codec.h"

/* An endpoint as placement sees it. Zones are small numbers made by the caller, equal for equal zones. */
typedef struct EcfsPlace {
    unsigned zone;
    bool usable;     /* active and not known to be down */
    unsigned n_held; /* stripes of this object that it holds already */
    uint64_t room;   /* bytes that it has free; 0: it is full, ECFS_ROOM_UNKNOWN: as much as others on average */
} EcfsPlace;

#define ECFS_ROOM_UNKNOWN UINT64_MAX

/**
 * Places @n stripes: keeps the largest number of stripes per zone as small as possible, then per endpoint; among equals
 * by lot, where room counts, so that endpoints of different sizes become full together. Who is full gets something only
 * when nobody else is left.
 *
 * @places:     n_places; n_held is counted up
 * @wanted:     n flags: stripes to place
 * @max_per_endpoint: 1, or more where doubling up is allowed
 * @lot:        a random number; the same gives the same places
 * @ret_places: n positions in @places; SIZE_MAX for stripes not wanted or with no place left
 *
 * Returns the number of wanted stripes without a place.
 */
unsigned ecfs_place (EcfsPlace *places, size_t n_places, const bool *wanted, unsigned n, unsigned max_per_endpoint,
                     uint64_t lot, size_t *ret_places);

/**
 * The same, with those places only that are flagged in @preferred (n_places flags) where these suffice for all.
 */
unsigned ecfs_place_towards (EcfsPlace *places, size_t n_places, const bool *wanted, unsigned n,
                             unsigned max_per_endpoint, uint64_t lot, const bool *preferred, size_t *ret_places);

/**
 * How many holders (endpoints, or zones) of the stripes @present may vanish, whichever they are, with every byte still
 * recoverable; -1 when it is not decodable now. Never too high; exact where any k stripes do. @holder: n numbers, equal
 * for stripes that vanish together.
 */
int ecfs_holders_guarantee (const EcfsCodec *codec, const bool *present, const size_t *holder);

/**
 * Whether a stored set may be committed: still decodable after any ⌈tolerance/2⌉ further holders are lost (@quorum 0;
 * where holders have up to s stripes, ⌈⌊tolerance/s⌋/2⌉), or at least @quorum stripes and decodable.
 */
bool ecfs_quorum_reached (const EcfsCodec *codec, const bool *present, const size_t *holder, unsigned quorum);

#endif
