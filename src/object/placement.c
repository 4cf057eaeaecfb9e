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
