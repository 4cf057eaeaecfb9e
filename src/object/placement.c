#include "object/placement.h"

#include <string.h>

#define N_BISECTIONS 50
#define MAX_WEIGHT   1e9 /* of those that should have a stripe of every object */

/* The places of one object, and by lot which of equals is taken. */
typedef struct Placing {
    EcfsPlace *places;
    size_t n_places;
    unsigned max_per_endpoint;
    unsigned *zone_held; /* per place: stripes of the object in its zone */
    double *weight;      /* per place: how it is drawn among equals */
    uint64_t lot;
} Placing;

static void count_zones (Placing *self)
{
    for (size_t i = 0; i < self->n_places; i++)
        for (size_t j = 0; j < self->n_places && self->places[i].n_held > 0; j++)
            if (self->places[j].zone == self->places[i].zone)
                self->zone_held[j] += self->places[i].n_held;
}

static void take (Placing *self, size_t place)
{
    self->places[place].n_held++;
    for (size_t i = 0; i < self->n_places; i++)
        self->zone_held[i] += self->places[i].zone == self->places[place].zone;
}

/* The next of the numbers that follow from a lot (splitmix64), in [0, 1). */
static double draw (uint64_t *lot)
{
    uint64_t z = *lot += UINT64_C (0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C (0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C (0x94d049bb133111eb);
    return (double) ((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* What an endpoint counts whose room is not known. */
static double average_room (const EcfsPlace *places, size_t n_places)
{
    double sum = 0;
    unsigned n_known = 0;
    for (size_t i = 0; i < n_places; i++) {
        if (!places[i].usable || places[i].room == ECFS_ROOM_UNKNOWN || places[i].room == 0)
            continue;
        sum += (double) places[i].room;
        n_known++;
    }
    return n_known == 0 ? 1 : sum / n_known;
}

static double room_of (const EcfsPlace *place, double average)
{
    if (!place->usable)
        return 0;
    return place->room == ECFS_ROOM_UNKNOWN ? average : (double) place->room;
}

/* The largest x with Σ min (room, x) ≥ n·x: the room that every stripe of all objects can have together. */
static double largest_share (const EcfsPlace *places, size_t n_places, unsigned n, double average)
{
    double low = 0, high = 0;
    for (size_t i = 0; i < n_places; i++)
        high += room_of (&places[i], average);
    for (unsigned step = 0; step < N_BISECTIONS; step++) {
        double middle = (low + high) / 2, sum = 0;
        for (size_t i = 0; i < n_places; i++)
            sum += MIN (room_of (&places[i], average), middle);
        *(sum >= n * middle ? &low : &high) = middle;
    }
    return low;
}

/*
 * So that all become full together, an endpoint has to get a stripe of every object with the probability room / share.
 * Its odds as weights of draws without putting back give very nearly that.
 */
static void weigh (Placing *self, unsigned n)
{
    double average = average_room (self->places, self->n_places);
    double share = largest_share (self->places, self->n_places, n, average);
    for (size_t i = 0; i < self->n_places; i++) {
        double room = room_of (&self->places[i], average);
        self->weight[i] = MIN (MAX (room, 1e-6 * average) / MAX (share - room, 1e-9 * average), MAX_WEIGHT);
    }
}

/* < 0 where @a is better for one more stripe than @b, 0 where they are equal: not full, least full zone, endpoint. */
static int compare (const Placing *self, size_t a, size_t b)
{
    const EcfsPlace *first = &self->places[a], *second = &self->places[b];
    if ((first->room == 0) != (second->room == 0))
        return first->room == 0 ? 1 : -1;
    if (self->zone_held[a] != self->zone_held[b])
        return self->zone_held[a] < self->zone_held[b] ? -1 : 1;
    return (int) first->n_held - (int) second->n_held;
}

/* One of the best places, by lot; SIZE_MAX: there is none. */
static size_t best_place (Placing *self)
{
    size_t best = SIZE_MAX;
    double sum = 0;
    for (size_t i = 0; i < self->n_places; i++) {
        if (!self->places[i].usable || self->places[i].n_held >= self->max_per_endpoint)
            continue;
        int order = best == SIZE_MAX ? -1 : compare (self, i, best);
        if (order > 0)
            continue;
        double weight = self->weight[i];
        sum = order < 0 ? weight : sum + weight;
        if (order < 0 || draw (&self->lot) * sum < weight) /* each stays with the probability that its weight gives */
            best = i;
    }
    return best;
}

/* Moves what was found on by some stripes: else the first stripes, which hold data, went where most room is. */
static void turn (size_t *found, unsigned n_found, uint64_t *lot)
{
    size_t turned[ECFS_CODEC_MAX_N];
    unsigned by = n_found == 0 ? 0 : (unsigned) (draw (lot) * n_found);
    for (unsigned i = 0; i < n_found; i++)
        turned[(i + by) % n_found] = found[i];
    memcpy (found, turned, n_found * sizeof found[0]);
}

unsigned ecfs_place (EcfsPlace *places, size_t n_places, const bool *wanted, unsigned n, unsigned max_per_endpoint,
                     uint64_t lot, size_t *ret_places)
{
    size_t found[ECFS_CODEC_MAX_N];
    unsigned n_found = 0, n_wanted = 0, next = 0;
    g_autofree unsigned *zone_held = g_new0 (unsigned, n_places + 1);
    g_autofree double *weight = g_new0 (double, n_places + 1);
    Placing self = {.places = places,
                    .n_places = n_places,
                    .max_per_endpoint = max_per_endpoint,
                    .zone_held = zone_held,
                    .weight = weight,
                    .lot = lot};
    count_zones (&self);
    weigh (&self, n);
    for (unsigned stripe = 0; stripe < n; stripe++) {
        size_t place = wanted[stripe] ? best_place (&self) : SIZE_MAX;
        n_wanted += wanted[stripe];
        if (place == SIZE_MAX)
            continue;
        take (&self, place);
        found[n_found++] = place;
    }
    turn (found, n_found, &self.lot);
    for (unsigned stripe = 0; stripe < n; stripe++)
        ret_places[stripe] = wanted[stripe] && next < n_found ? found[next++] : SIZE_MAX;
    return n_wanted - n_found;
}

unsigned ecfs_place_towards (EcfsPlace *places, size_t n_places, const bool *wanted, unsigned n,
                             unsigned max_per_endpoint, uint64_t lot, const bool *preferred, size_t *ret_places)
{
    g_autofree EcfsPlace *some = g_memdup2 (places, n_places * sizeof *places);
    for (size_t i = 0; i < n_places; i++)
        some[i].usable = places[i].usable && preferred[i];
    if (ecfs_place (some, n_places, wanted, n, max_per_endpoint, lot, ret_places) > 0)
        return ecfs_place (places, n_places, wanted, n, max_per_endpoint, lot, ret_places);
    for (size_t i = 0; i < n_places; i++)
        places[i].n_held = some[i].n_held;
    return 0;
}

static unsigned stripes_of (const bool *present, const size_t *holder, unsigned n, size_t of)
{
    unsigned n_stripes = 0;
    for (unsigned i = 0; i < n; i++)
        n_stripes += present[i] && holder[i] == of;
    return n_stripes;
}

/* Removes the holder with the most stripes from `left`; returns how many those were. */
static unsigned remove_largest (bool *left, const size_t *holder, unsigned n)
{
    unsigned largest = 0;
    size_t which = 0;
    for (unsigned i = 0; i < n; i++) {
        unsigned n_stripes = left[i] ? stripes_of (left, holder, n, holder[i]) : 0;
        if (n_stripes > largest) {
            largest = n_stripes;
            which = holder[i];
        }
    }
    for (unsigned i = 0; i < n; i++)
        if (left[i] && holder[i] == which)
            left[i] = false;
    return largest;
}

#define MAX_TRIES 300 /* sets of holders */

/* Whether the content survives when @n_lost more holders go, among those that begin at stripe @first or later. */
static bool survives_any (const EcfsCodec *codec, const bool *present, const size_t *holder, unsigned first,
                          unsigned n_lost, unsigned *n_tries)
{
    if (n_lost == 0)
        return ++*n_tries <= MAX_TRIES && ecfs_codec_decodable (codec, present);
    unsigned n = ecfs_codec_n (codec);
    for (unsigned i = first; i < n; i++) {
        bool left[ECFS_CODEC_MAX_N], is_first = present[i];
        for (unsigned j = 0; j < i; j++)
            is_first = is_first && !(present[j] && holder[j] == holder[i]);
        for (unsigned j = 0; j < n && is_first; j++)
            left[j] = present[j] && holder[j] != holder[i];
        if (is_first && !survives_any (codec, left, holder, i + 1, n_lost - 1, n_tries))
            return false;
    }
    return true;
}

static unsigned count_holders (const bool *present, const size_t *holder, unsigned n)
{
    unsigned n_holders = 0;
    for (unsigned i = 0; i < n; i++) {
        bool is_first = present[i];
        for (unsigned j = 0; j < i; j++)
            is_first = is_first && !(present[j] && holder[j] == holder[i]);
        n_holders += is_first;
    }
    return n_holders;
}

static unsigned most_per_holder (const bool *present, const size_t *holder, unsigned n)
{
    unsigned most = 1;
    for (unsigned i = 0; i < n; i++)
        if (present[i])
            most = MAX (most, stripes_of (present, holder, n, holder[i]));
    return most;
}

/* How many holders have no more stripes together than may be lost, the fullest first. */
static int count_guarantee (const bool *present, const size_t *holder, unsigned n, unsigned stripes_guarantee)
{
    bool left[ECFS_CODEC_MAX_N];
    memcpy (left, present, n * sizeof left[0]);
    int n_holders = 0;
    unsigned lost = 0;
    for (;;) {
        unsigned largest = remove_largest (left, holder, n);
        if (largest == 0)
            return n_holders;
        lost += largest;
        if (lost > stripes_guarantee)
            return n_holders;
        n_holders++;
    }
}

/* Counting is the worst case where any set of stripes up to the guarantee may go: exact where any k stripes do. Where
 * holders have several stripes of another code, more may go: the sets that there are are tried, as long as they are
 * few.
 */
int ecfs_holders_guarantee (const EcfsCodec *codec, const bool *present, const size_t *holder)
{
    unsigned n = ecfs_codec_n (codec), n_tries = 0;
    int stripes_guarantee = ecfs_codec_guarantee (codec, present);
    if (stripes_guarantee < 0)
        return -1;
    int guarantee = count_guarantee (present, holder, n, (unsigned) stripes_guarantee);
    if (most_per_holder (present, holder, n) == 1)
        return guarantee;
    int n_holders = (int) count_holders (present, holder, n);
    while (guarantee < n_holders && survives_any (codec, present, holder, 0, (unsigned) guarantee + 1, &n_tries))
        guarantee++;
    return guarantee;
}

bool ecfs_quorum_reached (const EcfsCodec *codec, const bool *present, const size_t *holder, unsigned quorum)
{
    int guarantee = ecfs_holders_guarantee (codec, present, holder);
    unsigned n = ecfs_codec_n (codec), n_present = 0;
    if (quorum == 0) /* a holder takes all its stripes with it: fewer of them make up the tolerance */
        return guarantee >= (int) (ecfs_codec_tolerance (codec) / most_per_holder (present, holder, n) + 1) / 2;
    for (unsigned i = 0; i < n; i++)
        n_present += present[i];
    return guarantee >= 0 && n_present >= MIN (quorum, ecfs_codec_n (codec));
}
