/* Who gets which stripe, and what a stored set survives: against counting every case. */
#include "object/placement.h"

#include <glib.h>
#include <string.h>

static EcfsCodec *codec_of (const char *code)
{
    g_autoptr (GError) error = NULL;
    EcfsCodec *codec = ecfs_codec_new (code, &error);
    g_assert_no_error (error);
    return codec;
}

static unsigned most (const EcfsPlace *places, size_t n_places, bool by_zone)
{
    unsigned largest = 0;
    for (size_t i = 0; i < n_places; i++) {
        unsigned held = 0;
        for (size_t j = 0; j < n_places; j++)
            if (by_zone ? places[j].zone == places[i].zone : j == i)
                held += places[j].n_held;
        largest = MAX (largest, held);
    }
    return largest;
}

/* The smallest possible largest number of stripes in a zone: by trying each bound. */
static unsigned best_bound (const EcfsPlace *places, size_t n_places, unsigned n, unsigned max_per_endpoint)
{
    for (unsigned bound = 1;; bound++) {
        unsigned room = 0;
        for (unsigned zone = 0; zone < 8; zone++) {
            unsigned in_zone = 0;
            for (size_t i = 0; i < n_places; i++)
                in_zone += places[i].usable && places[i].zone == zone ? max_per_endpoint : 0;
            room += MIN (in_zone, bound);
        }
        if (room >= n)
            return bound;
    }
}

static void test_random (void)
{
    bool wanted[16];
    memset (wanted, true, sizeof wanted);
    for (unsigned round = 0; round < 3000; round++) {
        EcfsPlace places[12] = {0};
        size_t n_places = (size_t) g_test_rand_int_range (1, 13), found[16];
        unsigned n = (unsigned) g_test_rand_int_range (1, 12), per = (unsigned) g_test_rand_int_range (1, 4), room = 0;
        for (size_t i = 0; i < n_places; i++) {
            places[i] = (EcfsPlace){.zone = (unsigned) g_test_rand_int_range (0, 8),
                                    .usable = g_test_rand_int () % 4 != 0,
                                    .room = ECFS_ROOM_UNKNOWN};
            room += places[i].usable ? per : 0;
        }
        unsigned without = ecfs_place (places, n_places, wanted, n, per, (guint32) g_test_rand_int (), found);
        g_assert_cmpuint (without, ==, n > room ? n - room : 0);
        unsigned held[12] = {0};
        for (unsigned i = 0; i < n; i++) {
            if (found[i] == SIZE_MAX)
                continue;
            g_assert_true (places[found[i]].usable);
            g_assert_cmpuint (++held[found[i]], <=, per);
        }
        for (size_t i = 0; i < n_places; i++)
            g_assert_cmpuint (held[i], ==, places[i].n_held);
        if (without == 0)
            g_assert_cmpuint (most (places, n_places, true), ==, best_bound (places, n_places, n, per));
    }
}

/* Six stripes over endpoints in three zones: two in each zone, one on each endpoint. */
static void test_zones (void)
{
    EcfsPlace places[9];
    bool wanted[6] = {true, true, true, true, true, true};
    size_t found[6];
    for (uint64_t rotation = 0; rotation < 20; rotation++) {
        for (unsigned i = 0; i < 9; i++)
            places[i] = (EcfsPlace){.zone = i / 3, .usable = true, .room = 1 + i};
        g_assert_cmpuint (ecfs_place (places, 9, wanted, 6, 2, rotation, found), ==, 0);
        g_assert_cmpuint (most (places, 9, true), ==, 2);
        g_assert_cmpuint (most (places, 9, false), ==, 1);
    }
}

static void test_lots (void)
{
    const bool wanted[3] = {true, true, true};
    unsigned n_first[7] = {0}, n_any[7] = {0};
    for (uint64_t lot = 0; lot < 7000; lot++) {
        EcfsPlace places[7];
        size_t found[3], again[3];
        for (unsigned i = 0; i < 7; i++)
            places[i] = (EcfsPlace){.zone = i, .usable = true, .room = 1000 + i};
        g_assert_cmpuint (ecfs_place (places, 7, wanted, 3, 1, lot, found), ==, 0);
        for (unsigned i = 0; i < 7; i++)
            places[i].n_held = 0;
        g_assert_cmpuint (ecfs_place (places, 7, wanted, 3, 1, lot, again), ==, 0);
        g_assert_cmpmem (found, sizeof found, again, sizeof again);
        n_first[found[0]]++;
        for (unsigned i = 0; i < 3; i++)
            n_any[found[i]]++;
    }
    for (unsigned i = 0; i < 7; i++) {
        g_assert_cmpuint (n_first[i], >, 850);
        g_assert_cmpuint (n_first[i], <, 1150);
        g_assert_cmpuint (n_any[i], >, 2800);
        g_assert_cmpuint (n_any[i], <, 3200);
    }
}

/* Who has twice the room gets more, but not of the data stripes in particular; whose room is not known gets its part.
 */
static void test_room (void)
{
    const bool wanted[3] = {true, true, true};
    unsigned n_first[5] = {0}, n_any[5] = {0};
    for (uint64_t lot = 0; lot < 6000; lot++) {
        EcfsPlace places[5];
        size_t found[3];
        for (unsigned i = 0; i < 5; i++)
            places[i] = (EcfsPlace){.zone = i,
                                    .usable = true,
                                    .room = i == 0   ? 2000
                                            : i == 1 ? ECFS_ROOM_UNKNOWN
                                                     : 1000};
        g_assert_cmpuint (ecfs_place (places, 5, wanted, 3, 1, lot, found), ==, 0);
        n_first[found[0]]++;
        for (unsigned i = 0; i < 3; i++)
            n_any[found[i]]++;
    }
    g_assert_cmpuint (n_any[0], >, 5000);
    g_assert_cmpuint (n_any[2], <, 3600);
    g_assert_cmpuint (n_any[1], >, n_any[2]);
    for (unsigned i = 0; i < 5; i++)
        g_assert_cmpfloat (ABS (3.0 * n_first[i] / n_any[i] - 1), <, 0.1);
}

/* A full endpoint in a zone of its own is the last choice, and still one. */
static void test_full (void)
{
    const bool wanted[3] = {true, true, true};
    for (uint64_t lot = 0; lot < 100; lot++) {
        EcfsPlace places[] = {{.zone = 0, .usable = true, .room = 0},
                              {.zone = 1, .usable = true, .room = 9},
                              {.zone = 1, .usable = true, .room = ECFS_ROOM_UNKNOWN},
                              {.zone = 1, .usable = true, .room = 1}};
        size_t found[3];
        g_assert_cmpuint (ecfs_place (places, 4, wanted, 3, 1, lot, found), ==, 0);
        g_assert_cmpuint (places[0].n_held, ==, 0);
        places[1].usable = false;
        places[2].n_held = places[3].n_held = 0;
        g_assert_cmpuint (ecfs_place (places, 4, wanted, 3, 1, lot, found), ==, 0);
        g_assert_cmpuint (places[0].n_held, ==, 1);
    }
}

/* A replaced stripe keeps away from the zones that hold others, whether these are usable or not. */
static void test_replacing (void)
{
    EcfsPlace places[] = {{.zone = 0, .usable = false, .n_held = 1},
                          {.zone = 0, .usable = true},
                          {.zone = 1, .usable = true, .n_held = 1},
                          {.zone = 2, .usable = true}};
    const bool wanted[3] = {false, true, false};
    size_t found[3];
    g_assert_cmpuint (ecfs_place (places, 4, wanted, 3, 1, 1, found), ==, 0);
    g_assert_cmpuint (found[1], ==, 3);
    g_assert_cmpuint (found[0], ==, SIZE_MAX);
    g_assert_cmpuint (ecfs_place (NULL, 0, wanted, 3, 1, 1, found), ==, 1);
}

/* How many holders may go, by trying every set of them. */
static int count_guarantee (const EcfsCodec *codec, const bool *present, const size_t *holder)
{
    unsigned n = ecfs_codec_n (codec);
    int worst = -1;
    for (unsigned lost = 0; lost < 1u << n; lost++) {
        bool left[ECFS_CODEC_MAX_N];
        unsigned meaningful = 0;
        for (unsigned i = 0; i < n; i++) {
            left[i] = present[i] && (lost >> holder[i] & 1) == 0;
            if (present[i])
                meaningful |= 1u << holder[i];
        }
        if ((lost & ~meaningful) != 0 || ecfs_codec_decodable (codec, left))
            continue;
        int n_lost = __builtin_popcount (lost);
        worst = worst < 0 ? n_lost : MIN (worst, n_lost);
    }
    return worst - 1;
}

static void test_guarantee (gconstpointer code)
{
    g_autoptr (EcfsCodec) codec = codec_of (code);
    unsigned n = ecfs_codec_n (codec);
    for (unsigned round = 0; round < 300; round++) {
        bool present[ECFS_CODEC_MAX_N];
        size_t holder[ECFS_CODEC_MAX_N];
        for (unsigned i = 0; i < n; i++) {
            present[i] = g_test_rand_int () % 5 != 0;
            holder[i] = (size_t) g_test_rand_int_range (0, (gint32) (round % n) + 1);
        }
        int expected = count_guarantee (codec, present, holder);
        unsigned n_of[ECFS_CODEC_MAX_N] = {0}, most = 1;
        for (unsigned i = 0; i < n; i++)
            if (present[i]) {
                n_of[holder[i]]++;
                most = MAX (most, n_of[holder[i]]);
            }
        g_assert_cmpint (ecfs_holders_guarantee (codec, present, holder), ==, expected);
        g_assert_true (ecfs_quorum_reached (codec, present, holder, 0) ==
                       (expected >= (int) (ecfs_codec_tolerance (codec) / most + 1) / 2));
    }
}

static void test_quorum (void)
{
    g_autoptr (EcfsCodec) codec = codec_of ("rs:4+2");
    const size_t apart[6] = {0, 1, 2, 3, 4, 5}, doubled[6] = {0, 0, 1, 1, 2, 2};
    const bool all[6] = {true, true, true, true, true, true};
    const bool five[6] = {true, true, true, false, true, true};
    const bool four[6] = {true, true, true, false, true, false};
    const bool three[6] = {true, true, true, false, false, false};
    g_assert_true (ecfs_quorum_reached (codec, all, apart, 0));
    g_assert_true (ecfs_quorum_reached (codec, five, apart, 0));
    g_assert_false (ecfs_quorum_reached (codec, four, apart, 0));
    g_assert_true (ecfs_quorum_reached (codec, all, doubled, 0));
    g_assert_false (ecfs_quorum_reached (codec, five, doubled, 0));
    g_assert_true (ecfs_quorum_reached (codec, four, apart, 4));
    g_assert_false (ecfs_quorum_reached (codec, four, apart, 5));
    g_assert_true (ecfs_quorum_reached (codec, all, apart, 99));
    g_assert_false (ecfs_quorum_reached (codec, five, apart, 99));
    g_assert_false (ecfs_quorum_reached (codec, three, apart, 1));
}

/* Many stripes on few endpoints: one holds more than may be lost for certain, and still any one may go. */
static void test_doubled (void)
{
    g_autoptr (EcfsCodec) codec = codec_of ("ldpc:50+50");
    bool present[100];
    size_t holder[100];
    for (unsigned i = 0; i < 100; i++) {
        present[i] = true;
        holder[i] = i % 5;
    }
    g_assert_cmpuint (ecfs_codec_tolerance (codec), <, 20);
    g_assert_cmpint (ecfs_holders_guarantee (codec, present, holder), >=, 1);
    g_assert_true (ecfs_quorum_reached (codec, present, holder, 0));
    g_autoptr (EcfsCodec) rs = codec_of ("rs:4+2");
    for (unsigned i = 0; i < 6; i++)
        holder[i] = i % 2;
    g_assert_cmpint (ecfs_holders_guarantee (rs, present, holder), ==, 0);
    g_assert_true (ecfs_quorum_reached (rs, present, holder, 0)); /* nothing better is possible on two endpoints */
    present[1] = present[3] = present[5] = false;
    g_assert_false (ecfs_quorum_reached (rs, present, holder, 0));
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/placement/keeps-the-fullest-zone-as-empty-as-possible", test_random);
    g_test_add_func ("/placement/spreads-over-zones-then-endpoints", test_zones);
    g_test_add_func ("/placement/draws-lots-among-equals", test_lots);
    g_test_add_func ("/placement/gives-more-where-there-is-more-room", test_room);
    g_test_add_func ("/placement/takes-full-endpoints-last", test_full);
    g_test_add_func ("/placement/a-replaced-stripe-keeps-away-from-the-others", test_replacing);
    static const char *const codes[] = {"copies:3", "rs:2+1", "rs:4+2", "rs:5+3", "ldpc:4+4", "ldpc:5+5", "basic:4+4"};
    for (size_t i = 0; i < G_N_ELEMENTS (codes); i++) {
        g_autofree char *path = g_strdup_printf ("/placement/%s/the-guarantee-is-what-every-loss-says", codes[i]);
        g_test_add_data_func (path, codes[i], test_guarantee);
    }
    g_test_add_func ("/placement/a-quorum-survives-half-the-tolerance", test_quorum);
    g_test_add_func ("/placement/many-stripes-on-few-endpoints-can-be-committed", test_doubled);
    return g_test_run ();
}
