#include "object/placement.h"

#include <string.h>

static unsigned held_in_zone (const EcfsPlace *places, size_t n_places, unsigned zone)
{
    unsigned n_held = 0;
    for (size_t i = 0; i < n_places; i++)
        if (places[i].zone == zone)
            n_held += places[i].n_held;
    return n_held;
}

/* The place for one more stripe: least full zone, then least full endpoint, then the first from `start` on. */
static size_t best_place (const EcfsPlace *places, size_t n_places, unsigned max_per_endpoint, size_t start)
{
    size_t best = SIZE_MAX;
    unsigned best_zone_held = 0;
    for (size_t step = 0; step < n_places; step++) {
        size_t i = (start + step) % n_places;
        if (!places[i].usable || places[i].n_held >= max_per_endpoint)
            continue;
        unsigned zone_held = held_in_zone (places, n_places, places[i].zone);
        if (best != SIZE_MAX &&
            (zone_held > best_zone_held || (zone_held == best_zone_held && places[i].n_held >= places[best].n_held)))
            continue;
        best = i;
        best_zone_held = zone_held;
    }
    return best;
}

unsigned ecfs_place (EcfsPlace *places, size_t n_places, const bool *wanted, unsigned n, unsigned max_per_endpoint,
                     uint64_t rotation, size_t *ret_places)
{
    unsigned n_without = 0;
    for (unsigned stripe = 0; stripe < n; stripe++) {
        ret_places[stripe] = SIZE_MAX;
        if (!wanted[stripe])
            continue;
        size_t start = n_places == 0 ? 0 : (size_t) ((rotation + stripe) % n_places);
        size_t place = best_place (places, n_places, max_per_endpoint, start);
        ret_places[stripe] = place;
        if (place == SIZE_MAX)
            n_without++;
        else
            places[place].n_held++;
    }
    return n_without;
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

/* Losing the fullest holders first is the worst case where any set of stripes up to the guarantee may go: exact for MDS
 * codes, and never too high for others. */
int ecfs_holders_guarantee (const EcfsCodec *codec, const bool *present, const size_t *holder)
{
    unsigned n = ecfs_codec_n (codec);
    int stripes_guarantee = ecfs_codec_guarantee (codec, present);
    if (stripes_guarantee < 0)
        return -1;
    bool left[ECFS_CODEC_MAX_N];
    memcpy (left, present, n * sizeof left[0]);
    int n_holders = 0;
    unsigned lost = 0;
    for (;;) {
        unsigned largest = remove_largest (left, holder, n);
        if (largest == 0)
            return n_holders;
        lost += largest;
        if (lost > (unsigned) stripes_guarantee)
            return n_holders;
        n_holders++;
    }
}

bool ecfs_quorum_reached (const EcfsCodec *codec, const bool *present, const size_t *holder, unsigned quorum)
{
    int guarantee = ecfs_holders_guarantee (codec, present, holder);
    if (quorum == 0)
        return guarantee >= (int) (ecfs_codec_tolerance (codec) + 1) / 2;
    unsigned n_present = 0;
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++)
        n_present += present[i];
    return guarantee >= 0 && n_present >= MIN (quorum, ecfs_codec_n (codec));
}
