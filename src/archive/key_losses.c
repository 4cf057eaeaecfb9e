#include "archive/key_losses.h"

#include <stdlib.h>
#include <string.h>

/* What may vanish, by where stripes are */

static int smallest_first (const void *a, const void *b)
{
    unsigned left = *(const unsigned *) a, right = *(const unsigned *) b;
    return (left > right) - (left < right);
}

/* How many stripes of one object holders have that take them evenly: `level` at most, and fewer than that all but
 * `n_full` of those that have room for as many. */
typedef struct Filling {
    unsigned level;
    unsigned n_full;
} Filling;

static unsigned room_below (const unsigned *rooms, size_t n_holders, unsigned level)
{
    unsigned sum = 0;
    for (size_t i = 0; i < n_holders; i++)
        sum += MIN (rooms[i], level);
    return sum;
}

/* Where there is not room for all stripes, all holders are full. */
static Filling fill (const unsigned *rooms, size_t n_holders, unsigned n)
{
    Filling filling = {.level = 1};
    unsigned most = 1;
    for (size_t i = 0; i < n_holders; i++)
        most = MAX (most, rooms[i]);
    while (filling.level < most && room_below (rooms, n_holders, filling.level) < n)
        filling.level++;
    filling.n_full = n - MIN (n, room_below (rooms, n_holders, filling.level - 1));
    return filling;
}

unsigned ecfs_key_most_losses (const unsigned *rooms, size_t n_holders, unsigned n, unsigned tolerance)
{
    const Filling filling = fill (rooms, n_holders, n);
    unsigned n_full = filling.n_full, lost = 0, n_lost = 0;
    g_autofree unsigned *held = g_new (unsigned, n_holders + 1);
    for (size_t i = 0; i < n_holders; i++)
        held[i] = MIN (rooms[i], filling.level);
    qsort (held, n_holders, sizeof *held, smallest_first);
    for (size_t i = 0; i < n_holders; i++) {
        bool is_full = held[i] == filling.level && n_full > 0; /* who is, is up to chance */
        n_full -= is_full;
        lost += held[i] == filling.level && !is_full ? filling.level - 1 : held[i];
        if (lost > tolerance)
            break;
        n_lost++;
    }
    return n_lost;
}

void ecfs_key_losses_add (EcfsKeyLosses *losses, const char *const *zones, size_t n_endpoints, bool allow_double,
                          const EcfsCodec *codec)
{
    unsigned n = ecfs_codec_n (codec), tolerance = ecfs_codec_tolerance (codec), n_zones = 0;
    unsigned most = allow_double && n_endpoints > 0 ? (n + (unsigned) n_endpoints - 1) / (unsigned) n_endpoints : 1;
    g_autofree unsigned *endpoints = g_new (unsigned, n_endpoints + 1);
    g_autofree unsigned *rooms = g_new0 (unsigned, n_endpoints + 1);
    g_autoptr (GHashTable) numbers = g_hash_table_new (g_str_hash, g_str_equal); /* of zones, from 1 on */
    for (size_t i = 0; i < n_endpoints; i++) {
        if (!g_hash_table_contains (numbers, zones[i]))
            g_hash_table_insert (numbers, (char *) zones[i], GUINT_TO_POINTER (++n_zones));
        rooms[GPOINTER_TO_UINT (g_hash_table_lookup (numbers, zones[i])) - 1] += most;
        endpoints[i] = most;
    }
    losses->zones = MAX (losses->zones, ecfs_key_most_losses (rooms, n_zones, n, tolerance));
    losses->endpoints = MAX (losses->endpoints, ecfs_key_most_losses (endpoints, n_endpoints, n, tolerance));
    losses->stripes = MAX (losses->stripes, tolerance);
}

bool ecfs_key_allows (const EcfsKeySlotsTold *told, unsigned threshold, const char *const *zones, size_t n_endpoints,
                      bool allow_double, const EcfsCodec *codec, GError **error)
{
    EcfsKeyLosses losses = {.zones = 0};
    const unsigned most = MAX (told->stripes, threshold - 1);
    if (ecfs_codec_tolerance (codec) <= most)
        return true;
    ecfs_key_losses_add (&losses, zones, n_endpoints, allow_double, codec);
    return (told->stripes == 0 && losses.zones < threshold) ||
           ecfs_fail (error, EINVAL,
                      "%s survives the loss of %u stripes, and the archive's key is shared for codes that survive the "
                      "loss of %u: as many zones as files could do without would bring it back; choose one that "
                      "survives fewer losses",
                      ecfs_codec_code (codec), ecfs_codec_tolerance (codec), most);
}

bool ecfs_key_threshold (unsigned n_zones, const EcfsKeyLosses *losses, unsigned *ret_threshold, GError **error)
{
    unsigned n_left = n_zones - MIN (n_zones, losses->zones);
    *ret_threshold = MIN (losses->endpoints + 1, n_left);
    if (losses->endpoints == 0)
        return ecfs_fail (
            error, EDOM,
            "the archive's key cannot be shared: with a code that survives no loss, each zone alone would "
            "bring it back");
    if (n_zones > ECFS_SHARES_MAX)
        return ecfs_fail (error, EDOM, "keys are shared by %u zones at most, and there are %u", ECFS_SHARES_MAX,
                          n_zones);
    if (losses->zones == 0)
        return ecfs_fail (error, EDOM,
                          "the archive's key cannot be shared by %u zone%s: files do not survive the loss of one, so "
                          "each would have to bring it back alone or could withhold it; that takes more zones, with "
                          "fewer endpoints each",
                          n_zones, n_zones == 1 ? "" : "s");
    return losses->zones < n_left ||
           ecfs_fail (error, EDOM,
                      "the archive's key cannot be shared by %u zone%s: %u may vanish and files can still be read, so "
                      "the others have to bring it back, but no %u may be able to; that takes %u zones",
                      n_zones, n_zones == 1 ? "" : "s", losses->zones, losses->zones, 2 * losses->zones + 1);
}
