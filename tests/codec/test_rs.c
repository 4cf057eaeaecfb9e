#include "codec/rs.h"
#include "segment.h"

#include <isa-l.h>
#include <string.h>

#ifdef HAVE_LIBERASURECODE
#include <liberasurecode/erasurecode.h>

static int reference_new (unsigned k, unsigned m)
{
    struct ec_args args = {.k = (int) k, .m = (int) m, .w = 8, .hd = (int) m, .ct = CHKSUM_NONE};
    return liberasurecode_instance_create (EC_BACKEND_ISA_L_RS_CAUCHY, &args);
}

/* liberasurecode's fragments are our packets behind a header. */
static void compare_with_reference (unsigned k, unsigned m, size_t packet_bytes)
{
    g_autofree char *code = g_strdup_printf ("rs:%u+%u", k, m);
    g_autoptr (EcfsCodec) codec = segment_codec (code);
    g_autoptr (Segment) segment = segment_new (codec, packet_bytes, SEGMENT_AT_END, 0);
    g_autofree char *data = g_malloc (k * packet_bytes);
    for (unsigned i = 0; i < k; i++)
        memcpy (data + i * packet_bytes, segment->packets[i], packet_bytes);

    int reference = reference_new (k, m);
    g_assert_cmpint (reference, >, 0);
    char **data_fragments, **parity_fragments;
    uint64_t fragment_bytes;
    g_assert_cmpint (
        liberasurecode_encode (reference, data, k * packet_bytes, &data_fragments, &parity_fragments, &fragment_bytes),
        ==, 0);
    g_assert_cmpuint (fragment_bytes, ==, packet_bytes + sizeof (fragment_header_t));
    for (unsigned i = 0; i < k + m; i++) {
        const char *fragment = i < k ? data_fragments[i] : parity_fragments[i - k];
        if (memcmp (fragment + sizeof (fragment_header_t), segment->packets[i], packet_bytes) != 0)
            g_error ("%s: packet %u of %zu bytes differs from liberasurecode's", code, i, packet_bytes);
    }
    g_assert_cmpint (liberasurecode_encode_cleanup (reference, data_fragments, parity_fragments), ==, 0);
    g_assert_cmpint (liberasurecode_instance_destroy (reference), ==, 0);
}

static void test_reference (void)
{
    static const size_t sizes[] = {64, 320, 4096, 4096 + 64};
    int probe = reference_new (4, 2);
    if (probe <= 0) {
        g_test_skip ("liberasurecode has no isa_l_rs_cauchy backend here (libisal.so.2 missing?)");
        return;
    }
    g_assert_cmpint (liberasurecode_instance_destroy (probe), ==, 0);
    for (unsigned n = 2, round = 0; n <= 32; n++)
        for (unsigned k = 1; k < n; k++, round++)
            compare_with_reference (k, n - k, sizes[round % G_N_ELEMENTS (sizes)]);
}
#else
static void test_reference (void)
{
    g_test_skip ("liberasurecode is not installed (Debian: liberasurecode-dev); rs is not compared with it");
}
#endif

#ifdef ECFS_WITH_LIBERASURECODE
/* What one stored the other gives back, and the bytes are those of the first. */
static void check_both (Segment *segment, EcfsCodec *const codecs[2], const bool *lost)
{
    for (unsigned i = 0; i < 2; i++)
        segment_survives (segment, codecs[i], lost);
}

static void check_every_loss (Segment *segment, EcfsCodec *const codecs[2])
{
    for (uint32_t mask = 1; mask < 1u << segment->n; mask += SEGMENT_SAMPLE) {
        bool lost[ECFS_CODEC_MAX_N];
        segment_flags (mask, segment->n, lost);
        if ((unsigned) __builtin_popcount (mask) <= segment->n - segment->k)
            check_both (segment, codecs, lost);
    }
}

static void check_providers (unsigned k, unsigned m, size_t packet_bytes)
{
    g_autofree char *code = g_strdup_printf ("rs:%u+%u", k, m);
    g_autoptr (EcfsCodec) isal = segment_codec_by (code, "isal"), other = segment_codec_by (code, "liberasurecode");
    g_assert_cmpstr (ecfs_codec_provider (isal), ==, "isal");
    g_assert_cmpstr (ecfs_codec_provider (other), ==, "liberasurecode");
    g_assert_cmpstr (ecfs_codec_identity (isal), ==, ecfs_codec_identity (other));
    EcfsCodec *const codecs[2] = {isal, other};
    bool lost[ECFS_CODEC_MAX_N] = {0};
    for (unsigned i = 0; i < 2; i++) { /* one encodes, the other says whether it would have said so too */
        g_autoptr (Segment) segment = segment_new (codecs[i], packet_bytes, SEGMENT_AT_END, 0);
        memset (lost, 0, sizeof lost);
        memset (lost + k, true, m);
        segment_lose (segment, lost);
        ecfs_codec_encode (codecs[1 - i], (const uint8_t *const *) segment->packets, segment->work + k, packet_bytes);
        segment_check (segment, lost);
        segment_random_loss (k + m, m, lost);
        check_both (segment, codecs, lost);
        if (k + m <= 8)
            check_every_loss (segment, codecs);
    }
}

static void test_providers (void)
{
    static const size_t sizes[] = {64, 128, 192, 4096, 32768 - 64, 32768, 32768 + 64, 100 * 1024 + 64};
    for (unsigned n = 2, round = 0; n <= 32; n++)
        for (unsigned k = 1; k < n; k++, round++)
            check_providers (k, n - k, sizes[round % 4]);
    for (size_t i = 0; i < G_N_ELEMENTS (sizes); i++)
        check_providers (8, 3, sizes[i]);
}

/* Stripes that one made are the other's too, when parity is added. */
static void test_providers_share_stripes (void)
{
    g_autoptr (EcfsCodec) one = segment_codec_by ("rs:4+2", "liberasurecode"), more = segment_codec ("rs:4+3");
    g_assert_true (ecfs_codec_shares_stripes (one, more));
}
#endif

static void test_provider_names (void)
{
    static const char *const codes[] = {"rs:4+2", "ldpc:8+6", "copies:3", "basic:4+4"};
    for (size_t i = 0; i < G_N_ELEMENTS (codes); i++) {
        g_autoptr (EcfsCodec) preset = segment_codec (codes[i]), isal = segment_codec_by (codes[i], "isal");
        g_assert_cmpstr (ecfs_codec_provider (preset), ==, i == 0 ? "isal" : NULL);
        g_assert_cmpstr (ecfs_codec_provider (isal), ==, i == 0 ? "isal" : NULL);
        g_autoptr (GError) error = NULL;
        g_assert_null (ecfs_codec_new_by (codes[i], "jerasure", &error));
        g_assert_error (error, ECFS_ERROR, EINVAL);
    }
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsCodec) other = ecfs_codec_new_by ("rs:4+2", "liberasurecode", &error);
#ifdef ECFS_WITH_LIBERASURECODE
    g_assert_no_error (error);
    g_assert_nonnull (other);
    g_assert_nonnull (ecfs_codec_liberasurecode_version ());
#else
    g_assert_error (error, ECFS_ERROR, ENOTSUP);
    g_assert_null (other);
    g_assert_null (ecfs_codec_liberasurecode_version ());
#endif
}

/* Parity r with k data packets is the same whatever m: so m can grow without touching what is stored. */
static void test_growing_m (void)
{
    for (unsigned k = 1; k < 31; k++) {
        g_autoptr (EcfsCodec) widest = ecfs_codec_new_for (ECFS_CODE_RS, k, 32, NULL, 0, NULL);
        g_autoptr (Segment) segment = segment_new (widest, 192, SEGMENT_AT_END, 0);
        for (unsigned n = k + 1; n < 32; n++) {
            g_autoptr (EcfsCodec) codec = ecfs_codec_new_for (ECFS_CODE_RS, k, n, NULL, 0, NULL);
            memset (segment->work[n - 1], 0, 192);
            ecfs_codec_encode (codec, (const uint8_t *const *) segment->packets, segment->work + k, 192);
            for (unsigned i = k; i < n; i++)
                g_assert_cmpmem (segment->work[i], 192, segment->packets[i], 192);
        }
    }
}

/* The formula itself, as the format's manual states it. */
static void test_known_bytes (void)
{
    static const uint8_t expected[] = {0x58, 0x0c}; /* the sums of 2^c / (4 xor c) and of 2^c / (5 xor c), c = 0..3 */
    g_autoptr (EcfsCodec) codec = segment_codec ("rs:4+2");
    uint8_t bytes[6][64];
    uint8_t *packets[6];
    for (unsigned i = 0; i < 6; i++) {
        packets[i] = bytes[i];
        memset (bytes[i], 1 << i % 4, 64);
    }
    ecfs_codec_encode (codec, (const uint8_t *const *) packets, packets + 4, 64);
    for (unsigned i = 0; i < 2; i++)
        for (unsigned at = 0; at < 64; at++)
            g_assert_cmphex (bytes[4 + i][at], ==, expected[i]);
}

static void wrong_last_byte (int packet_bytes, int n_sources, int n_rows, unsigned char *tables,
                             unsigned char **sources, unsigned char **rows)
{
    ec_encode_data (packet_bytes, n_sources, n_rows, tables, sources, rows);
    rows[n_rows - 1][packet_bytes - 1] ^= 1;
}

static void wrong_for_six_rows (int packet_bytes, int n_sources, int n_rows, unsigned char *tables,
                                unsigned char **sources, unsigned char **rows)
{
    ec_encode_data (packet_bytes, n_sources, n_rows, tables, sources, rows);
    if (n_rows == 6)
        rows[5][0] ^= 0x80;
}

static bool decoding; /* the self-test encodes and decodes in turn */

static void wrong_decoding (int packet_bytes, int n_sources, int n_rows, unsigned char *tables, unsigned char **sources,
                            unsigned char **rows)
{
    ec_encode_data (packet_bytes, n_sources, n_rows, tables, sources, rows);
    if (decoding)
        rows[0][0] ^= 1;
    decoding = !decoding;
}

static EcfsRsKernel tested; /* by the self-test */

static EcfsCodec *new_with_tested (unsigned k, unsigned n)
{
    return ecfs_rs_new_untested (k, n, tested);
}

static const char *self_test (EcfsRsKernel kernel)
{
    tested = kernel;
    return ecfs_rs_self_test (new_with_tested);
}

static void test_self_test (void)
{
    g_assert_cmpstr (self_test (ec_encode_data), ==, NULL);
    g_assert_cmpstr (self_test (ec_encode_data_base), ==, NULL);
    const char *encoding_fault = self_test (wrong_last_byte);
    g_assert_nonnull (encoding_fault);
    g_assert_cmpstr (self_test (wrong_for_six_rows), ==, encoding_fault);
    const char *decoding_fault = self_test (wrong_decoding);
    g_assert_nonnull (decoding_fault);
    g_assert_cmpstr (decoding_fault, !=, encoding_fault);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/rs/equals-liberasurecode-for-every-k-and-m", test_reference);
#ifdef ECFS_WITH_LIBERASURECODE
    g_test_add_func ("/rs/providers-give-the-same-bytes-and-read-each-others", test_providers);
    g_test_add_func ("/rs/providers-share-stripes", test_providers_share_stripes);
#endif
    g_test_add_func ("/rs/a-provider-is-chosen-by-name", test_provider_names);
    g_test_add_func ("/rs/parity-stays-the-same-when-m-grows", test_growing_m);
    g_test_add_func ("/rs/encodes-known-bytes", test_known_bytes);
    g_test_add_func ("/rs/a-library-that-computes-wrong-bytes-is-found-out", test_self_test);
    return g_test_run ();
}
