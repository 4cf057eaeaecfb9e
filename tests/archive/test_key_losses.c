/* How many zones and endpoints may vanish, and how many zones are to bring a key back with that. */
#include "archive/key_losses.h"

#include "object/spread.h"
#include "util/error.h"

#include <string.h>

#define MOST(n, tolerance, ...)                                                                                        \
    ecfs_key_most_losses ((const unsigned[]){__VA_ARGS__},                                                             \
                          sizeof ((const unsigned[]){__VA_ARGS__}) / sizeof (unsigned), n, tolerance)

/* Of a code over zones, one letter for the zone of each endpoint. */
static EcfsKeyLosses losses_of (const char *code, const char *letters, bool allow_double)
{
    char names[64][2] = {{0}};
    const char *zones[64];
    EcfsKeyLosses losses = {.zones = 0};
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsCodec) codec = ecfs_codec_new (code, &error);
    g_assert_no_error (error);
    for (size_t i = 0; i < strlen (letters); i++) {
        names[i][0] = letters[i];
        zones[i] = names[i];
    }
    ecfs_key_losses_add (&losses, zones, strlen (letters), allow_double, codec);
    return losses;
}

/* 0: there is no such number. */
static unsigned threshold_of (const char *code, const char *letters, bool allow_double)
{
    unsigned n_zones = 0, threshold;
    g_autoptr (GError) error = NULL;
    const EcfsKeyLosses losses = losses_of (code, letters, allow_double);
    for (size_t i = 0; i < strlen (letters); i++)
        n_zones += strchr (letters, letters[i]) == letters + i;
    if (ecfs_key_threshold (n_zones, &losses, &threshold, &error)) {
        g_assert_cmpuint (threshold, >, losses.zones);
        g_assert_cmpuint (threshold, <=, n_zones - losses.zones);
        return threshold;
    }
    g_assert_error (error, ECFS_ERROR, EDOM);
    return 0;
}

static void test_holders (void)
{
    g_assert_cmpuint (MOST (6, 2, 1, 1, 1, 1, 1, 1), ==, 2);
    g_assert_cmpuint (MOST (6, 2, 2, 2, 2), ==, 1);
    g_assert_cmpuint (MOST (6, 1, 2, 2, 2), ==, 0);
    g_assert_cmpuint (MOST (6, 2, 4, 4, 4, 4, 4, 4, 4, 4), ==, 2); /* one stripe each, whatever there is room for */
    g_assert_cmpuint (MOST (6, 2, 2, 2, 1, 1), ==, 2);             /* the small ones */
    g_assert_cmpuint (MOST (6, 2, 4, 1, 1), ==, 2);
    g_assert_cmpuint (MOST (6, 2, 6), ==, 0);
    g_assert_cmpuint (MOST (4, 3, 2, 2, 2), ==, 2); /* one has two, the others one each */
    g_assert_cmpuint (MOST (6, 2, 2, 2, 2, 2), ==, 1);
    g_assert_cmpuint (MOST (6, 2, 1, 1), ==, 2); /* not all stripes have a place */
    g_assert_cmpuint (MOST (6, 0, 1, 1, 1, 1, 1, 1), ==, 0);
    g_assert_cmpuint (ecfs_key_most_losses (NULL, 0, 6, 2), ==, 0);
}

static void assert_losses (EcfsKeyLosses losses, unsigned zones, unsigned endpoints, unsigned stripes)
{
    g_assert_cmpuint (losses.zones, ==, zones);
    g_assert_cmpuint (losses.endpoints, ==, endpoints);
    g_assert_cmpuint (losses.stripes, ==, stripes);
}

static void test_codes (void)
{
    assert_losses (losses_of ("rs:4+2", "abcdef", false), 2, 2, 2);
    assert_losses (losses_of ("rs:4+2", "aabbcc", false), 1, 2, 2);
    assert_losses (losses_of ("rs:4+2", "aaaaaa", false), 0, 2, 2);
    assert_losses (losses_of ("rs:4+2", "abc", true), 1, 1, 2);
    assert_losses (losses_of ("copies:3", "aabbcc", false), 2, 2, 2);
    assert_losses (losses_of ("rs:1+1", "ab", false), 1, 1, 1);
}

static void test_thresholds (void)
{
    g_assert_cmpuint (threshold_of ("rs:4+2", "abcdef", false), ==, 3);
    g_assert_cmpuint (threshold_of ("rs:4+2", "aabbcc", false), ==, 2);
    g_assert_cmpuint (threshold_of ("rs:4+2", "aabbccdd", false), ==, 3); /* two endpoints may lie anywhere */
    g_assert_cmpuint (threshold_of ("rs:8+2", "aabbccddee", false), ==, 3);
    g_assert_cmpuint (threshold_of ("rs:4+2", "abc", true), ==, 2);
    g_assert_cmpuint (threshold_of ("rs:4+2", "aaaabbbbccccddddeeee", false), ==, 3);
    g_assert_cmpuint (threshold_of ("rs:4+2", "aaabbb", false), ==, 0);
    g_assert_cmpuint (threshold_of ("rs:4+2", "aaaaaa", false), ==, 0);
    g_assert_cmpuint (threshold_of ("rs:4+2", "aabbcd", false), ==, 0); /* c and d may vanish, and must not read */
    g_assert_cmpuint (threshold_of ("rs:1+1", "aabb", false), ==, 0);
    g_assert_cmpuint (threshold_of ("copies:3", "abc", false), ==, 0);
    g_assert_cmpuint (threshold_of ("copies:1", "abc", false), ==, 0);
}

/* Zones a to f with up to three endpoints each. */
typedef struct Spread {
    unsigned sizes[6], n_zones, n_endpoints;
    char letters[24];
    EcfsPlace places[24];
} Spread;

static Spread spread_of (unsigned number)
{
    Spread self = {.n_zones = 0};
    for (unsigned zone = 0; zone < G_N_ELEMENTS (self.sizes); zone++) {
        self.sizes[zone] = number >> (2 * zone) & 3;
        self.n_zones += self.sizes[zone] > 0;
        for (unsigned i = 0; i < self.sizes[zone]; i++) {
            self.letters[self.n_endpoints] = (char) ('a' + zone);
            self.places[self.n_endpoints++] = (EcfsPlace){.zone = zone, .usable = true, .room = ECFS_ROOM_UNKNOWN};
        }
    }
    return self;
}

/* What is promised of an object that was placed there: no more than the key survives. */
static void assert_promise (const Spread *self, const char *code, uint64_t lot, const EcfsKeyLosses *losses)
{
    bool wanted[ECFS_CODEC_MAX_N];
    size_t position[ECFS_CODEC_MAX_N];
    EcfsPlace places[24];
    g_autoptr (EcfsCodec) codec = ecfs_codec_new (code, NULL);
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++)
        wanted[i] = true;
    memcpy (places, self->places, sizeof places);
    g_assert_cmpuint (ecfs_place (places, self->n_endpoints, wanted, ecfs_codec_n (codec), 1, lot, position), ==, 0);
    EcfsSpread spread = ecfs_spread (codec, places, position);
    g_assert_cmpint (spread.zones, <=, losses->zones);
    g_assert_cmpint (spread.endpoints, <=, losses->endpoints);
}

/* Whichever zones are gone: what files survive for certain leaves enough shares, and too few are in what is gone. */
static void assert_shares (const Spread *self, unsigned gone, unsigned threshold, const EcfsKeyLosses *losses)
{
    unsigned n_endpoints = 0, n_gone = 0;
    for (unsigned zone = 0; zone < G_N_ELEMENTS (self->sizes); zone++) {
        n_endpoints += gone >> zone & 1 ? self->sizes[zone] : 0;
        n_gone += gone >> zone & 1 && self->sizes[zone] > 0;
    }
    if (n_endpoints <= losses->endpoints || n_gone <= losses->zones)
        g_assert_cmpuint (self->n_zones - n_gone, >=, threshold);
    if (n_gone <= losses->zones)
        g_assert_cmpuint (n_gone, <, threshold);
}

static void test_all_spreads (void)
{
    static const char *const codes[] = {"rs:4+2", "rs:3+1", "rs:3+3", "rs:2+4", "copies:3", "copies:4"};
    unsigned n_shared = 0;
    for (size_t c = 0; c < G_N_ELEMENTS (codes); c++) {
        for (unsigned number = 0; number < 4096; number++) {
            const Spread spread = spread_of (number);
            if (spread.n_endpoints < 6)
                continue;
            const EcfsKeyLosses losses = losses_of (codes[c], spread.letters, false);
            unsigned threshold = threshold_of (codes[c], spread.letters, false);
            for (uint64_t lot = 0; lot < 3; lot++)
                assert_promise (&spread, codes[c], lot, &losses);
            for (unsigned gone = 0; threshold > 0 && gone < 64; gone++)
                assert_shares (&spread, gone, threshold, &losses);
            n_shared += threshold > 0;
        }
    }
    g_assert_cmpuint (n_shared, >, 1000);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/key_losses/holders-that-may-vanish", test_holders);
    g_test_add_func ("/key_losses/zones-and-endpoints-that-a-code-does-without", test_codes);
    g_test_add_func ("/key_losses/how-many-zones-bring-a-key-back", test_thresholds);
    g_test_add_func ("/key_losses/whatever-may-vanish-leaves-enough-and-reads-nothing", test_all_spreads);
    return g_test_run ();
}
