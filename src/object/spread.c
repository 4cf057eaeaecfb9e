#include "object/spread.h"

#include <string.h>

int ecfs_spread_compare (const EcfsSpread *a, const EcfsSpread *b)
{
    return a->zones != b->zones ? a->zones - b->zones : a->endpoints - b->endpoints;
}

EcfsSpread ecfs_spread (const EcfsCodec *codec, const EcfsPlace *places, const size_t *position)
{
    bool present[ECFS_CODEC_MAX_N] = {0};
    size_t zone[ECFS_CODEC_MAX_N] = {0};
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++) {
        present[i] = position[i] != SIZE_MAX;
        zone[i] = present[i] ? places[position[i]].zone : 0;
    }
    return (EcfsSpread){.zones = ecfs_holders_guarantee (codec, present, zone),
                        .endpoints = ecfs_holders_guarantee (codec, present, position)};
}

/* The stripes of one object on their way. */
typedef struct Moving {
    const EcfsPlace *places;
    size_t n_places;
    unsigned n, max_per_endpoint;
    size_t position[ECFS_CODEC_MAX_N];
    bool moved[ECFS_CODEC_MAX_N];
    unsigned *held;                            /* n_places */
    unsigned *zone_held;                       /* per place: stripes in its zone */
    unsigned order[ECFS_CODEC_MAX_N], n_moves; /* stripes as they were moved */
} Moving;

/* What a move wins: stripes that zones (then endpoints) differ by, less the one that goes. */
typedef struct Gain {
    int zones, endpoints;
} Gain;

static void hold (Moving *self, size_t place, int by)
{
    self->held[place] += (unsigned) by;
    for (size_t i = 0; i < self->n_places; i++)
        if (self->places[i].zone == self->places[place].zone)
            self->zone_held[i] += (unsigned) by;
}

static Gain gain_of (const Moving *self, size_t from, size_t to)
{
    bool same = self->places[from].zone == self->places[to].zone;
    return (Gain){.zones = same ? 0 : (int) self->zone_held[from] - (int) self->zone_held[to] - 1,
                  .endpoints = (int) self->held[from] - (int) self->held[to] - 1};
}

static bool is_more (const Gain *a, const Gain *b)
{
    return a->zones != b->zones ? a->zones > b->zones : a->endpoints > b->endpoints;
}

static bool takes (const Moving *self, size_t place)
{
    return self->places[place].usable && self->places[place].room > 0 && self->held[place] < self->max_per_endpoint;
}

/* Moves what wins most; false: nothing wins anything. Each move makes the sum of squares smaller, so this ends. */
static bool move_one (Moving *self)
{
    Gain best = {0};
    unsigned stripe = self->n;
    size_t to = SIZE_MAX;
    for (unsigned i = 0; i < self->n; i++) {
        for (size_t j = 0; self->position[i] != SIZE_MAX && !self->moved[i] && j < self->n_places; j++) {
            Gain gain = j == self->position[i] || !takes (self, j) ? (Gain){0} : gain_of (self, self->position[i], j);
            if (!is_more (&gain, &best))
                continue;
            best = gain;
            stripe = i;
            to = j;
        }
    }
    if (stripe == self->n)
        return false;
    hold (self, self->position[stripe], -1);
    hold (self, to, 1);
    self->position[stripe] = to;
    self->moved[stripe] = true;
    self->order[self->n_moves++] = stripe;
    return true;
}

/* The fewest of the moves that make it as safe as all of them do. */
static unsigned choose_moves (const Moving *self, const EcfsCodec *codec, const size_t *position, const EcfsSpread *all,
                              size_t *ret_to, EcfsSpread *ret_spread)
{
    size_t after[ECFS_CODEC_MAX_N];
    memcpy (after, position, self->n * sizeof after[0]);
    for (unsigned i = 0; i < self->n_moves; i++) {
        unsigned stripe = self->order[i];
        after[stripe] = ret_to[stripe] = self->position[stripe];
        *ret_spread = i + 1 == self->n_moves ? *all : ecfs_spread (codec, self->places, after);
        if (ecfs_spread_compare (ret_spread, all) >= 0)
            return i + 1;
    }
    return self->n_moves;
}

/* What an object may lose takes milliseconds to find with some codes, and most objects for which there are moves are no
 * safer after them: that is asked about the end first. */
unsigned ecfs_move_apart (const EcfsCodec *codec, const EcfsPlace *places, size_t n_places, const size_t *position,
                          unsigned max_per_endpoint, size_t *ret_to, EcfsSpread *ret_spread)
{
    g_autofree unsigned *held = g_new0 (unsigned, 2 * n_places + 1);
    Moving self = {.places = places,
                   .n_places = n_places,
                   .n = ecfs_codec_n (codec),
                   .max_per_endpoint = max_per_endpoint,
                   .held = held,
                   .zone_held = held + n_places};
    memcpy (self.position, position, self.n * sizeof *position);
    for (unsigned i = 0; i < self.n; i++) {
        ret_to[i] = SIZE_MAX;
        if (position[i] != SIZE_MAX)
            hold (&self, position[i], 1);
    }
    while (move_one (&self))
        continue;
    if (self.n_moves == 0)
        return 0;
    EcfsSpread before = ecfs_spread (codec, places, position);
    if (before.zones < 0)
        return 0;
    EcfsSpread all = ecfs_spread (codec, places, self.position);
    if (ecfs_spread_compare (&all, &before) <= 0)
        return 0;
    return choose_moves (&self, codec, position, &all, ret_to, ret_spread);
}
