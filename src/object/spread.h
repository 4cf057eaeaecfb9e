/*
 * How far apart the stripes of an object are, and which of them to move so that more may be lost. Pure functions.
 *
 * Placement (placement.h) finds places for stripes that have none. Where all have one, those of some may be worse than
 * what there is now: endpoints were down when they were placed, or were added since.
 */
#ifndef ECFS_OBJECT_SPREAD_H
#define ECFS_OBJECT_SPREAD_H

#include "object/placement.h"

/* What may vanish, whichever it is, with every byte still recoverable; -1: nothing is. More zones count before more
 * endpoints, as for placement. */
typedef struct EcfsSpread {
    int zones;
    int endpoints;
} EcfsSpread;

/** < 0 where @a is worse than @b, 0 where they are equal. */
int ecfs_spread_compare (const EcfsSpread *a, const EcfsSpread *b);

/** Of stripes at @position: n positions in @places; SIZE_MAX: there is none. */
EcfsSpread ecfs_spread (const EcfsCodec *codec, const EcfsPlace *places, const size_t *position);

/**
 * Moves stripes, each from the fullest zone (then endpoint) to the emptiest that is usable and not full, until none is
 * fuller than need be; finds the fewest of these moves that make the object as safe as all of them do.
 *
 * @places:   n_places; what is in n_held does not matter
 * @position: n positions, as above
 * @ret_to:   n positions: where a stripe is to go; SIZE_MAX: it stays, or there is none
 *
 * Returns how many are to be moved, with what it comes to in *ret_spread; 0: no move makes it safer, or it is lost.
 */
unsigned ecfs_move_apart (const EcfsCodec *codec, const EcfsPlace *places, size_t n_places, const size_t *position,
                          unsigned max_per_endpoint, size_t *ret_to, EcfsSpread *ret_spread);

#endif
