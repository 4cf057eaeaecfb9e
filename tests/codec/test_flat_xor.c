/* liberasurecode's flat XOR codes: all that it has, what they survive, and that the bytes are the library's. */
#include "codec/liberasurecode.h"
#include "oracle.h"
#include "segment.h"

#include <string.h>

typedef struct Shape {
    unsigned k, m, tolerance;
} Shape;

/* Calls @check for each code that there is. */
static void for_each_shape (void (*check) (const Shape *shape))
{
    check (&(Shape){3, 3, 2});
    for (unsigned k = 5; k <= 10; k++)
        check (&(Shape){k, 5, 3});
    for (unsigned k = 6; k <= 20; k++)
        check (&(Shape){k, 6, 3});
}

#ifdef ECFS_WITH_LIBERASURECODE

static EcfsCodec *codec_of (const Shape *shape)
{
    g_autofree char *code = g_strdup_printf ("xor:%u+%u", shape->k, shape->m);
    return segment_codec (code);
}

/* How many sets of @n_lost packets lose data. */
static unsigned count_fatal (const Oracle *oracle, bool *present, unsigned first, unsigned n_lost)
{
    if (n_lost == 0)
        return !oracle_decodable (oracle, present);
    unsigned n_fatal = 0;
    for (unsigned i = first; i + n_lost <= oracle->n; i++) {
        present[i] = false;
        n_fatal += count_fatal (oracle, present, i + 1, n_lost - 1);
        present[i] = true;
    }
    return n_fatal;
}

/* The tolerance is that of all sets of losses, tried by another's arithmetic. */
static void check_tolerance (const Shape *shape)
{
    g_autoptr (EcfsCodec) codec = codec_of (shape);
    g_autoptr (Oracle) oracle = oracle_new (codec);
    bool present[ECFS_CODEC_MAX_N];
    memset (present, true, sizeof present);
    g_assert_cmpuint (ecfs_codec_tolerance (codec), ==, shape->tolerance);
    for (unsigned n_lost = 1; n_lost <= shape->tolerance; n_lost++)
        g_assert_cmpuint (count_fatal (oracle, present, 0, n_lost), ==, 0);
    g_assert_cmpuint (count_fatal (oracle, present, 0, shape->tolerance + 1), >, 0);
}

static void test_tolerance (void)
{
    for_each_shape (check_tolerance);
}

/* The library's parity of our data is ours, and from our packets it gives back what any one loss took. */
static void check_bytes (const Shape *shape)
{
    static const size_t sizes[] = {64, 320, 4096 + 64, 70 * 1024};
    size_t packet_bytes = sizes[shape->k % G_N_ELEMENTS (sizes)];
    g_autoptr (EcfsCodec) codec = codec_of (shape);
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsLiberasurecode) library =
        ecfs_liberasurecode_new (ECFS_LIBERASURECODE_FLAT_XOR, shape->k, shape->m, shape->tolerance + 1, &error);
    g_assert_no_error (error);
    g_autoptr (Segment) segment = segment_new (codec, packet_bytes, SEGMENT_AT_END, 0);
    bool lost[ECFS_CODEC_MAX_N] = {false}, present[ECFS_CODEC_MAX_N];
    memset (lost + shape->k, true, shape->m);
    segment_lose (segment, lost);
    ecfs_liberasurecode_encode (library, (const uint8_t *const *) segment->packets, segment->work + shape->k,
                                packet_bytes);
    segment_check (segment, lost);
    for (unsigned i = 0; i < segment->n; i++) {
        memset (lost, 0, sizeof lost);
        memset (present, true, sizeof present);
        lost[i] = true;
        present[i] = false;
        segment_lose (segment, lost);
        ecfs_liberasurecode_rebuild (library, segment->work, present, lost, packet_bytes);
        segment_check (segment, lost);
    }
}

static void test_bytes (void)
{
    for_each_shape (check_bytes);
}

#else

static void check_refused (const Shape *shape)
{
    g_autofree char *code = g_strdup_printf ("xor:%u+%u", shape->k, shape->m);
    g_autoptr (GError) error = NULL;
    g_assert_null (ecfs_codec_new (code, &error));
    g_assert_error (error, ECFS_ERROR, ENOTSUP);
}

static void test_refused (void)
{
    for_each_shape (check_refused);
}

#endif

/* Each parity packet is the sum of two of three: a graph as a descriptor has it. With or without the library, what is
 * stored is read. */
static void test_stored (void)
{
    static const uint8_t graph[] = {2, 0, 1, 2, 0, 2, 2, 1, 2};
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsCodec) codec = ecfs_codec_new_for (ECFS_CODE_XOR, 3, 6, graph, sizeof graph, &error);
    g_assert_no_error (error);
    g_assert_cmpstr (ecfs_codec_code (codec), ==, "xor:3+3");
    g_assert_cmpuint (ecfs_codec_tolerance (codec), ==, 2);
    g_autoptr (EcfsCodec) again = ecfs_codec_new_with (ecfs_codec_identity (codec), graph, sizeof graph, &error);
    g_assert_no_error (error);
    g_autoptr (Segment) segment = segment_new (codec, 192, SEGMENT_AT_END, 0);
    bool lost[ECFS_CODEC_MAX_N] = {true, true};
    segment_survives (segment, again, lost);
}

/* A library that has another graph, or none: what is stored must be told from its descriptor. */
static void test_other_graph (void)
{
    g_autoptr (GError) error = NULL;
    g_assert_null (ecfs_codec_new ("xor:3+3/0123456789abcdef", &error));
    g_assert_error (error, ECFS_ERROR, ESTALE);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
#ifdef ECFS_WITH_LIBERASURECODE
    g_test_add_func ("/flat-xor/any-losses-up-to-the-tolerance-are-survived-and-some-of-one-more-are-not",
                     test_tolerance);
    g_test_add_func ("/flat-xor/bytes-are-those-of-the-library-and-it-repairs-them", test_bytes);
#else
    g_test_add_func ("/flat-xor/new-objects-need-the-library", test_refused);
#endif
    g_test_add_func ("/flat-xor/stored-objects-do-not-need-the-library", test_stored);
    g_test_add_func ("/flat-xor/another-graph-is-not-taken-for-this-one", test_other_graph);
    return g_test_run ();
}
