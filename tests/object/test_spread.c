/* Which stripes move apart: each case against what is known of it, random ones against what moving must not do. */
#include "object/spread.h"

#include <glib.h>
#include <string.h>

#define NONE SIZE_MAX

static EcfsCodec *codec_of (const char *code)
{
    g_autoptr (GError) error = NULL;
    EcfsCodec *codec = ecfs_codec_new (code, &error);
    g_assert_no_error (error);
    return codec;
}

/* Places that all take stripes, @per_zone of them in each zone. */
static void fill_places (EcfsPlace *places, size_t n_places, size_t per_zone)
{
    for (size_t i = 0; i < n_places; i++)
        places[i] = (EcfsPlace){.zone = (unsigned) (i / per_zone), .usable = true, .room = ECFS_ROOM_UNKNOWN};
}

/* Two endpoints in each of three zones; while the third had one only, its second stripe went to another zone. */
static void test_back (void)
{
    g_autoptr (EcfsCodec) codec = codec_of ("rs:4+2");
    EcfsPlace places[8];
    EcfsSpread spread;
    fill_places (places, 8, 3);
    const size_t position[6] = {0, 1, 2, 3, 4, 6};
    size_t to[6];
    g_assert_cmpuint (ecfs_move_apart (codec, places, 8, position, 1, to, &spread), ==, 1);
    g_assert_cmpint (spread.zones, ==, 1);
    g_assert_cmpint (spread.endpoints, ==, 2);
    for (unsigned i = 0; i < 6; i++)
        g_assert_true (to[i] == NONE || (i < 3 && to[i] == 7));
}

/* Moves that help nothing are none: not what is balanced, not what stays as unsafe, not where nobody takes it. */
static void test_nothing (void)
{
    g_autoptr (EcfsCodec) codec = codec_of ("rs:4+2");
    EcfsPlace places[8];
    EcfsSpread spread;
    size_t to[6];
    fill_places (places, 8, 2);
    const size_t balanced[6] = {0, 1, 2, 3, 4, 5}, crowded[6] = {0, 1, 2, 3, 4, NONE};
    g_assert_cmpuint (ecfs_move_apart (codec, places, 8, balanced, 1, to, &spread), ==, 0);
    places[6].room = 0;
    places[7].usable = false;
    g_assert_cmpuint (ecfs_move_apart (codec, places, 8, crowded, 1, to, &spread), ==, 0);
    places[6].room = ECFS_ROOM_UNKNOWN;
    g_assert_cmpuint (ecfs_move_apart (codec, places, 8, crowded, 1, to, &spread), ==, 0);
    fill_places (places, 8, 8);
    g_assert_cmpuint (ecfs_move_apart (codec, places, 8, balanced, 1, to, &spread), ==, 0);
    const size_t lost[6] = {0, 1, 2, NONE, NONE, NONE};
    fill_places (places, 8, 3);
    g_assert_cmpuint (ecfs_move_apart (codec, places, 8, lost, 1, to, &spread), ==, 0);
    g_assert_cmpuint (
        ecfs_move_apart (codec, NULL, 0, (const size_t[]){NONE, NONE, NONE, NONE, NONE, NONE}, 1, to, &spread), ==, 0);
}

/* Doubled stripes of one zone go to its empty endpoint. */
static void test_doubled (void)
{
    g_autoptr (EcfsCodec) codec = codec_of ("rs:2+2");
    EcfsPlace places[4];
    EcfsSpread spread;
    size_t to[4];
    fill_places (places, 4, 4);
    const size_t position[4] = {0, 0, 1, 2};
    g_assert_cmpuint (ecfs_move_apart (codec, places, 4, position, 2, to, &spread), ==, 1);
    g_assert_cmpint (spread.zones, ==, 0);
    g_assert_cmpint (spread.endpoints, ==, 2);
    g_assert_true (to[0] == 3 || to[1] == 3);
}

/* Whatever there is: it gets safer, to places that take it, nobody gets more than allowed, and then it is at rest. */
static void test_random (gconstpointer code)
{
    g_autoptr (EcfsCodec) codec = codec_of (code);
    unsigned n = ecfs_codec_n (codec), n_moved_ever = 0;
    for (unsigned round = 0; round < 400; round++) {
        EcfsPlace places[12];
        size_t position[ECFS_CODEC_MAX_N], to[ECFS_CODEC_MAX_N];
        unsigned held[12] = {0}, per = (unsigned) g_test_rand_int_range (1, 4);
        for (size_t i = 0; i < 12; i++)
            places[i] = (EcfsPlace){.zone = (unsigned) g_test_rand_int_range (0, 6),
                                    .usable = g_test_rand_int () % 4 != 0,
                                    .room = g_test_rand_int () % 8 == 0 ? 0 : ECFS_ROOM_UNKNOWN};
        for (unsigned i = 0; i < n; i++) {
            position[i] = g_test_rand_int () % 9 == 0 ? NONE : (size_t) g_test_rand_int_range (0, 12);
            if (position[i] != NONE && ++held[position[i]] > per)
                position[i] = NONE;
        }
        EcfsSpread before = ecfs_spread (codec, places, position), spread;
        unsigned n_moved = ecfs_move_apart (codec, places, 12, position, per, to, &spread);
        n_moved_ever += n_moved;
        if (n_moved == 0)
            continue;
        memset (held, 0, sizeof held);
        for (unsigned i = 0; i < n; i++) {
            g_assert_true (to[i] == NONE || (position[i] != NONE && places[to[i]].usable && places[to[i]].room > 0));
            position[i] = to[i] == NONE ? position[i] : to[i];
            if (position[i] != NONE)
                held[position[i]]++;
        }
        for (size_t i = 0; i < 12; i++)
            g_assert_cmpuint (held[i], <=, per);
        EcfsSpread after = ecfs_spread (codec, places, position);
        g_assert_cmpint (ecfs_spread_compare (&after, &spread), ==, 0);
        g_assert_cmpint (ecfs_spread_compare (&before, &after), <, 0);
        g_assert_cmpuint (ecfs_move_apart (codec, places, 12, position, per, to, &spread), ==, 0);
    }
    g_assert_cmpuint (n_moved_ever, >, 0);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/spread/what-had-to-go-elsewhere-comes-back", test_back);
    g_test_add_func ("/spread/nothing-moves-that-gets-no-safer", test_nothing);
    g_test_add_func ("/spread/doubled-stripes-part", test_doubled);
    static const char *const codes[] = {"copies:3", "rs:2+1", "rs:4+2", "rs:5+3", "ldpc:4+4", "basic:4+4"};
    for (size_t i = 0; i < G_N_ELEMENTS (codes); i++) {
        g_autofree char *path = g_strdup_printf ("/spread/%s/moves-make-it-safer-and-end", codes[i]);
        g_test_add_data_func (path, codes[i], test_random);
    }
    return g_test_run ();
}
