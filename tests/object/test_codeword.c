/* Stripes read side by side: their content, and which of them are not what coding it gives. */
#include "object/codeword.h"
#include "util/lock.h"

#include <pthread.h>
#include <string.h>

#define KIB ((uint64_t) 1024)

/* An object in memory: packets of all segments in a row, each as large as the first. */
typedef struct Fixture {
    EcfsCodec *codec;
    EcfsLayout layout;
    unsigned n;
    uint64_t n_segments;
    uint8_t *packets;
    uint8_t sha256[ECFS_SHA256_SIZE];
    EcfsCodeword *codeword;
    EcfsCodewordResult result;
} Fixture;

static uint8_t *packet_at (const Fixture *self, uint64_t segment, unsigned stripe)
{
    return self->packets + (segment * self->n + stripe) * ecfs_layout_packet_bytes (&self->layout, 0);
}

static void begin (Fixture *self, const char *code, uint64_t size)
{
    g_autoptr (GError) error = NULL;
    *self = (Fixture){.codec = ecfs_codec_new (code, &error)};
    g_assert_no_error (error);
    size_t granule = ecfs_codec_granule (self->codec);
    self->n = ecfs_codec_n (self->codec);
    self->layout =
        (EcfsLayout){.size = size,
                     .segment_bytes = ecfs_layout_segment_bytes (64 * KIB, ecfs_codec_k (self->codec), granule),
                     .block_bytes = ecfs_layout_written_block_bytes (granule),
                     .header_bytes = 4096,
                     .granule = (uint32_t) granule,
                     .k = (uint16_t) ecfs_codec_k (self->codec),
                     .tag_bytes = ECFS_TAG_CHECKSUM_BYTES};
    g_assert_true (ecfs_layout_valid (&self->layout));
    self->n_segments = ecfs_layout_n_segments (&self->layout);
    self->packets = g_malloc0 (self->n_segments * self->n * ecfs_layout_packet_bytes (&self->layout, 0));
    g_autoptr (EcfsSha256) sha256 = ecfs_sha256_new ();
    uint64_t state = (uint64_t) g_test_rand_int ();
    for (uint64_t segment = 0; segment < self->n_segments; segment++) {
        uint8_t *packets[ECFS_CODEC_MAX_N];
        size_t packet_bytes = ecfs_layout_packet_bytes (&self->layout, segment);
        size_t left = ecfs_layout_content_bytes (&self->layout, segment);
        for (unsigned i = 0; i < self->n; i++)
            packets[i] = packet_at (self, segment, i);
        for (unsigned i = 0; i < self->layout.k; i++) {
            size_t bytes = MIN (left, packet_bytes);
            for (size_t at = 0; at < bytes; at++)
                packets[i][at] = (uint8_t) ((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
            ecfs_sha256_update (sha256, packets[i], bytes);
            left -= bytes;
        }
        ecfs_codec_encode (self->codec, (const uint8_t *const *) packets, packets + self->layout.k, packet_bytes);
    }
    ecfs_sha256_end (sha256, self->sha256);
}

static void end (Fixture *self)
{
    g_free (self->packets);
    ecfs_codec_free (self->codec);
}

static void take_packet (const Fixture *self, unsigned stripe, uint64_t segment)
{
    const uint8_t *from = packet_at (self, segment, stripe);
    for (uint32_t block = 0; block < ecfs_layout_n_blocks (&self->layout, segment); block++) {
        ecfs_codeword_take (self->codeword, stripe, segment, block, from);
        from += ecfs_layout_block_bytes (&self->layout, segment, block);
    }
}

typedef struct Reading {
    const Fixture *fixture;
    unsigned stripe;
    uint64_t until; /* segment before which it fails */
    pthread_t thread;
} Reading;

static void *read_stripe (void *data)
{
    static const atomic_bool never;
    const Reading *self = data;
    const Fixture *fixture = self->fixture;
    uint64_t limit = 0;
    for (uint64_t segment = 0; segment < self->until; segment++) {
        if (segment == limit)
            limit = ecfs_codeword_await (fixture->codeword, self->stripe, segment, &never);
        g_assert_cmpuint (limit, >, segment);
        take_packet (fixture, self->stripe, segment);
    }
    ecfs_codeword_leave (fixture->codeword, self->stripe);
    return NULL;
}

/* Reads those flagged, each by a thread, up to the segments in @until (NULL: to the end). */
static void read_all (Fixture *self, const bool *stripes, const uint64_t *until)
{
    Reading readings[ECFS_CODEC_MAX_N];
    self->codeword = ecfs_codeword_new (self->codec, &self->layout, NULL, stripes);
    for (unsigned i = 0; i < self->n; i++) {
        readings[i] = (Reading){.fixture = self, .stripe = i, .until = until != NULL ? until[i] : self->n_segments};
        if (stripes[i])
            g_assert_cmpint (pthread_create (&readings[i].thread, NULL, read_stripe, &readings[i]), ==, 0);
    }
    for (unsigned i = 0; i < self->n; i++)
        if (stripes[i])
            g_assert_cmpint (pthread_join (readings[i].thread, NULL), ==, 0);
    ecfs_codeword_end (self->codeword, &self->result);
    g_clear_pointer (&self->codeword, ecfs_codeword_free);
}

static void assert_content (const Fixture *self, bool right)
{
    g_assert_true (self->result.is_known);
    g_assert_true ((memcmp (self->result.sha256, self->sha256, sizeof self->sha256) == 0) == right);
}

static void assert_differs (const Fixture *self, unsigned only)
{
    for (unsigned i = 0; i < self->n; i++)
        g_assert_true (self->result.differs[i] == (i == only));
}

static const char *const codes[] = {"rs:4+2", "ldpc:6+4", "basic:4+4", "copies:3"};

static void test_agree (void)
{
    const uint64_t sizes[] = {1, 4096, 64 * KIB + 1, 300 * KIB + 7, 9000 * KIB};
    for (size_t c = 0; c < G_N_ELEMENTS (codes); c++)
        for (size_t s = 0; s < G_N_ELEMENTS (sizes); s++) {
            Fixture self;
            bool all[ECFS_CODEC_MAX_N];
            memset (all, true, sizeof all);
            begin (&self, codes[c], sizes[s]);
            read_all (&self, all, NULL);
            assert_content (&self, true);
            g_assert_true (self.result.agrees);
            assert_differs (&self, UINT_MAX);
            end (&self);
        }
}

static void test_forged (void)
{
    for (size_t c = 0; c < G_N_ELEMENTS (codes); c++) {
        Fixture self;
        bool all[ECFS_CODEC_MAX_N];
        memset (all, true, sizeof all);
        begin (&self, codes[c], 300 * KIB + 7);
        for (unsigned i = 0; i < self.n; i++) {
            packet_at (&self, i % self.n_segments, i)[1] ^= 4;
            read_all (&self, all, NULL);
            g_assert_false (self.result.agrees);
            assert_content (&self, i >= self.layout.k);
            if (i >= self.layout.k)
                assert_differs (&self, i);
            packet_at (&self, i % self.n_segments, i)[1] ^= 4;
        }
        end (&self);
    }
}

/* Behind the end of the content there is nothing to hide in. */
static void test_padding (void)
{
    Fixture self;
    bool all[ECFS_CODEC_MAX_N];
    memset (all, true, sizeof all);
    begin (&self, "rs:4+2", 5);
    packet_at (&self, 0, 3)[ecfs_layout_packet_bytes (&self.layout, 0) - 1] = 1;
    read_all (&self, all, NULL);
    assert_content (&self, true);
    assert_differs (&self, 3);
    g_assert_false (self.result.agrees);
    end (&self);
}

static void test_left (void)
{
    Fixture self;
    bool all[ECFS_CODEC_MAX_N];
    memset (all, true, sizeof all);
    begin (&self, "rs:4+2", 9000 * KIB);
    uint64_t until[6] = {3, self.n_segments, 100, self.n_segments, self.n_segments, self.n_segments};
    read_all (&self, all, until);
    assert_content (&self, true);
    g_assert_false (self.result.agrees);
    assert_differs (&self, UINT_MAX);
    until[4] = 110; /* three are too many */
    read_all (&self, all, until);
    g_assert_false (self.result.is_known);
    g_assert_false (self.result.agrees);
    end (&self);
}

static void test_some (void)
{
    Fixture self;
    bool some[ECFS_CODEC_MAX_N] = {false, true, true, false, true, true};
    begin (&self, "rs:4+2", 9000 * KIB);
    read_all (&self, some, NULL);
    assert_content (&self, true);
    g_assert_false (self.result.agrees);
    some[1] = false;
    read_all (&self, some, NULL);
    g_assert_false (self.result.is_known);
    end (&self);
}

static void test_cancelled (void)
{
    Fixture self;
    bool all[ECFS_CODEC_MAX_N];
    const atomic_bool cancelled = true, never = false;
    memset (all, true, sizeof all);
    begin (&self, "rs:4+2", 16 << 20);
    self.codeword = ecfs_codeword_new (self.codec, &self.layout, NULL, all);
    uint64_t limit = ecfs_codeword_await (self.codeword, 0, 0, &never);
    g_assert_cmpuint (limit, >, 0);
    g_assert_cmpuint (limit, <, self.n_segments); /* the others are not there: it may not run on */
    g_assert_cmpuint (limit * ecfs_layout_packet_bytes (&self.layout, 0), <=, 4 << 20);
    for (uint64_t segment = 0; segment < limit; segment++)
        take_packet (&self, 0, segment);
    g_assert_cmpuint (ecfs_codeword_await (self.codeword, 0, limit, &cancelled), ==, limit);
    for (unsigned i = 0; i < self.n; i++)
        ecfs_codeword_leave (self.codeword, i);
    ecfs_codeword_end (self.codeword, &self.result);
    g_assert_false (self.result.is_known);
    ecfs_codeword_free (self.codeword);
    ecfs_codeword_free (NULL);
    end (&self);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/codeword/stripes-as-coded-agree", test_agree);
    g_test_add_func ("/codeword/one-other-byte-is-noticed", test_forged);
    g_test_add_func ("/codeword/bytes-behind-the-end-are-noticed", test_padding);
    g_test_add_func ("/codeword/stripes-that-are-left-are-done-without", test_left);
    g_test_add_func ("/codeword/some-stripes-tell-the-content", test_some);
    g_test_add_func ("/codeword/who-is-ahead-waits-and-can-be-cancelled", test_cancelled);
    return g_test_run ();
}
