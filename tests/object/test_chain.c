/* What tells a segment that the writer stored from one that only has tags that fit. */
#include "object/chain.h"

#include "key/ring.h"
#include "object/repair.h"
#include "store.h"
#include "util/lock.h"

#include <stdio.h>
#include <string.h>

#define KIB     1024u
#define SEGMENT (256 * KIB)
#define SIZE    (5 * SEGMENT + 4321)

typedef struct Fixture {
    Store store;
    Object object;
    EcfsKeyRing *ring;
    EcfsReaderStripe stripes[ECFS_CODEC_MAX_N];
    EcfsReaderParams params;
} Fixture;

static void begin (Fixture *self, const char *code, uint64_t size)
{
    *self = (Fixture){.ring = NULL};
    store_init (&self->store, "file", code, 2, 64 << 20);
    self->ring = ecfs_key_ring_new (&self->store.archive);
    const EcfsCodec *codec = self->store.codec;
    object_init (&self->object, &self->store, size,
                 ecfs_layout_segment_bytes (SEGMENT, ecfs_codec_k (codec), ecfs_codec_granule (codec)));
    object_seal (&self->object, self->ring, ECFS_SEAL_CTR_GHASH);
    g_assert_cmpint (object_write (&self->object, NULL), ==, 0);
    object_reader_params (&self->object, self->stripes, &self->params);
}

static void end (Fixture *self)
{
    object_clear (&self->object);
    ecfs_key_ring_unref (self->ring);
    store_clear (&self->store);
}

static void remove_stripe (Fixture *self, unsigned index)
{
    g_autofree char *path = object_stripe_path (&self->object, index);
    g_assert_cmpint (remove (path), ==, 0);
}

/* The packets of a segment as a peer gives them, with the bit @flip of its content changed; the tags are not looked at.
 */
static bool fits_by (const Fixture *self, const GByteArray *chain, uint64_t segment, int64_t flip, EcfsSha256Lanes run)
{
    const EcfsLayout *layout = &self->object.layout;
    uint64_t offset = segment * layout->segment_bytes;
    uint32_t packet_bytes = ecfs_layout_packet_bytes (layout, segment);
    uint32_t stored_bytes = ecfs_layout_stored_bytes (layout, segment);
    g_autofree uint8_t *bytes = g_malloc0 ((size_t) layout->k * packet_bytes);
    g_autofree uint8_t *stored = g_malloc ((size_t) layout->k * stored_bytes);
    const uint8_t *packets[ECFS_CODEC_MAX_N];
    memcpy (bytes, self->object.content + offset, ecfs_layout_content_bytes (layout, segment));
    EcfsCipher *cipher = ecfs_cipher_new (self->params.keys->content, offset);
    ecfs_cipher_next (cipher, bytes, ecfs_layout_content_bytes (layout, segment));
    ecfs_cipher_free (cipher);
    if (flip >= 0)
        bytes[flip / 8] ^= (uint8_t) (1 << flip % 8);
    memset (stored, g_test_rand_int_range (0, 256), (size_t) layout->k * stored_bytes);
    for (unsigned i = 0; i < layout->k; i++) {
        uint8_t *to = stored + (size_t) i * stored_bytes;
        packets[i] = to;
        for (uint32_t block = 0; block < ecfs_layout_n_blocks (layout, segment); block++) {
            uint32_t size = ecfs_layout_block_bytes (layout, segment, block);
            memcpy (to, bytes + i * packet_bytes + block * layout->block_bytes, size);
            to += size + layout->tag_bytes;
        }
    }
    return ecfs_chain_fits_by (chain, layout, self->params.keys, segment, packets, run);
}

/* One piece after the other, and in the lanes of each kernel that the processor can run. */
static bool fits (const Fixture *self, const GByteArray *chain, uint64_t segment, int64_t flip)
{
    EcfsSha256Level levels[ECFS_SHA256_MAX_LEVELS];
    bool good = fits_by (self, chain, segment, flip, NULL);
    for (size_t level = 0, n = ecfs_sha256_levels (levels); level < n; level++)
        g_assert_true (fits_by (self, chain, segment, flip, levels[level].run) == good);
    return good;
}

static void check_chain (const Fixture *self, const GByteArray *chain)
{
    const EcfsLayout *layout = &self->object.layout;
    uint64_t n = ecfs_layout_n_segments (layout);
    g_assert_nonnull (chain);
    g_assert_cmpmem (chain->data + chain->len - ECFS_SHA256_SIZE, ECFS_SHA256_SIZE, self->object.result.object_sha256,
                     ECFS_SHA256_SIZE);
    for (uint64_t segment = 0; segment < n; segment++) {
        uint32_t bytes = ecfs_layout_content_bytes (layout, segment);
        g_assert_true (fits (self, chain, segment, -1));
        g_assert_false (fits (self, chain, segment, g_test_rand_int_range (0, (gint32) bytes * 8)));
        g_assert_false (fits (self, chain, segment, 0));
        g_assert_false (fits (self, chain, segment, (int64_t) bytes * 8 - 1));
    }
}

static void test_segments (void)
{
    static const char *const codes[] = {"rs:4+2", "copies:3", "basic:4+4", "rs:5+1"};
    static const uint64_t sizes[] = {SIZE, 2 * SEGMENT, SEGMENT + 1, 2 * SEGMENT - 1000};
    for (unsigned i = 0; i < G_N_ELEMENTS (codes); i++)
        for (unsigned j = 0; j < G_N_ELEMENTS (sizes); j++) {
            Fixture self;
            begin (&self, codes[i], sizes[j]);
            g_autoptr (GByteArray) chain = ecfs_chain_seek_wait (&self.params);
            if (ecfs_layout_n_segments (&self.object.layout) > 1)
                check_chain (&self, chain);
            end (&self);
        }
}

/* Those that other pieces would need, and a chain that is another object's. */
static void test_others (void)
{
    Fixture self;
    begin (&self, "rs:4+2", SIZE);
    g_autoptr (GByteArray) chain = ecfs_chain_seek_wait (&self.params);
    uint8_t *link = chain->data + 20 * ECFS_CHAIN_LINK_BYTES, first[ECFS_CHAIN_LINK_BYTES];
    memcpy (first, link, sizeof first);
    memcpy (link, link + sizeof first, sizeof first);
    memcpy (link + sizeof first, first, sizeof first);
    EcfsSha256Level levels[ECFS_SHA256_MAX_LEVELS];
    for (size_t level = 0, n = ecfs_sha256_levels (levels); level < n; level++)
        for (uint64_t segment = 0; segment < 5; segment++) /* of 16 pieces each */
            g_assert_true (fits_by (&self, chain, segment, -1, levels[level].run) == (segment != 1));
    g_byte_array_set_size (chain, chain->len - ECFS_CHAIN_LINK_BYTES);
    g_assert_false (ecfs_chain_is_of (chain, &self.object.layout));
    g_assert_false (fits (&self, chain, 0, -1));
    end (&self);
}

/* One whose pieces are longer, down to one for each segment, as ecfs made them at first. */
static void test_longer_pieces (void)
{
    Fixture self;
    begin (&self, "rs:4+2", SIZE);
    g_autoptr (GByteArray) chain = ecfs_chain_seek_wait (&self.params);
    unsigned n = chain->len / ECFS_CHAIN_LINK_BYTES;
    g_assert_cmpuint (n, ==, 5 * 16 + 1);
    for (unsigned times = 2; times <= 16; times *= 2) {
        g_autoptr (GByteArray) thin = g_byte_array_new ();
        for (unsigned i = 0; i < n; i++)
            if (i % times == times - 1 || i == n - 1)
                g_byte_array_append (thin, chain->data + i * ECFS_CHAIN_LINK_BYTES, ECFS_CHAIN_LINK_BYTES);
        g_assert_true (ecfs_chain_is_of (thin, &self.object.layout));
        check_chain (&self, thin);
    }
    end (&self);
}

static void test_one_segment_has_none (void)
{
    Fixture self;
    begin (&self, "rs:4+2", SEGMENT);
    g_assert_null (ecfs_chain_seek_wait (&self.params));
    end (&self);
}

static GByteArray *chain_of (uint32_t segment_bytes, uint64_t size)
{
    uint8_t digest[ECFS_SHA256_SIZE];
    g_autofree uint8_t *bytes = g_malloc0 (300 * KIB);
    EcfsChainMaker *maker = ecfs_chain_maker_new (segment_bytes);
    for (uint64_t n; size > 0; size -= n) {
        n = MIN (size, 300 * KIB);
        ecfs_chain_maker_take (maker, bytes, n);
    }
    GByteArray *chain = ecfs_chain_maker_end (maker, digest);
    if (chain != NULL)
        g_assert_cmpmem (chain->data + chain->len - sizeof digest, sizeof digest, digest, sizeof digest);
    ecfs_chain_maker_free (maker);
    return chain;
}

static void check_links (uint64_t n_segments, unsigned times)
{
    const uint32_t segment = 16 * KIB; /* 8 pieces */
    const EcfsLayout layout = {.size = n_segments * segment - 1, .segment_bytes = segment};
    g_autoptr (GByteArray) chain = chain_of (segment, layout.size);
    g_assert_true ((chain != NULL) == (times > 0));
    if (chain == NULL)
        return;
    g_assert_cmpuint (chain->len / ECFS_CHAIN_LINK_BYTES, ==, n_segments * 8 / times);
    g_assert_true (ecfs_chain_is_of (chain, &layout));
}

/* So that it is not longer than may be. */
static void test_many_segments (void)
{
    check_links (1, 0);
    check_links (2, 1);
    check_links (ECFS_CHAIN_LINKS_MAX / 8, 1);
    check_links (ECFS_CHAIN_LINKS_MAX / 8 + 1, 2);
    check_links (ECFS_CHAIN_SEGMENTS_MAX, 2);
    check_links (ECFS_CHAIN_SEGMENTS_MAX + 1, 0);
    g_autoptr (GByteArray) chain = chain_of (16 * KIB + 8, 100 * KIB); /* no whole block */
    g_assert_null (chain);
}

/* As one after the other, on every kernel that the processor can run. */
static void test_lanes (void)
{
    enum { BYTES = 5 * ECFS_SHA256_BLOCK_BYTES };
    uint8_t bytes[ECFS_SHA256_LANES][BYTES], state[ECFS_SHA256_SIZE];
    const uint8_t *pieces[ECFS_SHA256_LANES];
    EcfsSha256Level levels[ECFS_SHA256_MAX_LEVELS];
    for (size_t level = 0, n = ecfs_sha256_levels (levels); level < n; level++) {
        uint32_t words[ECFS_SHA256_WORDS][ECFS_SHA256_LANES], begun[ECFS_SHA256_WORDS][ECFS_SHA256_LANES];
        for (unsigned i = 0; i < ECFS_SHA256_LANES; i++) {
            pieces[i] = bytes[i];
            for (unsigned j = 0; j < BYTES; j++)
                bytes[i][j] = (uint8_t) g_test_rand_int ();
            for (unsigned j = 0; j < ECFS_SHA256_WORDS; j++)
                words[j][i] = begun[j][i] = (uint32_t) g_test_rand_int ();
        }
        levels[level].run (words, pieces, 3);
        for (unsigned i = 0; i < ECFS_SHA256_LANES; i++)
            pieces[i] += 3 * ECFS_SHA256_BLOCK_BYTES;
        levels[level].run (words, pieces, 2);
        for (unsigned i = 0; i < ECFS_SHA256_LANES; i++) {
            g_autoptr (EcfsSha256) sha256 = ecfs_sha256_new ();
            for (unsigned j = 0; j < ECFS_SHA256_WORDS; j++) {
                uint32_t word = GUINT32_TO_BE (begun[j][i]);
                memcpy (state + j * sizeof word, &word, sizeof word);
            }
            ecfs_sha256_resume (sha256, state, 0);
            ecfs_sha256_update (sha256, bytes[i], BYTES);
            g_assert_true (ecfs_sha256_state (sha256, state));
            for (unsigned j = 0; j < ECFS_SHA256_WORDS; j++) {
                uint32_t word;
                memcpy (&word, state + j * sizeof word, sizeof word);
                g_assert_cmphex (GUINT32_FROM_BE (word), ==, words[j][i]);
            }
        }
    }
}

/* Bytes of content of any number and in any pieces. */
static void test_state (void)
{
    uint8_t bytes[8 * ECFS_SHA256_BLOCK_BYTES + 5], state[ECFS_SHA256_SIZE], whole[ECFS_SHA256_SIZE],
        found[ECFS_SHA256_SIZE];
    g_autoptr (EcfsSha256) sha256 = ecfs_sha256_new ();
    g_autoptr (EcfsSha256) other = ecfs_sha256_new ();
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t) g_test_rand_int ();
    ecfs_sha256_update (sha256, bytes, sizeof bytes);
    ecfs_sha256_end (sha256, whole);
    for (size_t n = 0; n <= sizeof bytes; n++) {
        ecfs_sha256_update (sha256, bytes, n);
        g_assert_true (ecfs_sha256_state (sha256, state) == (n % ECFS_SHA256_BLOCK_BYTES == 0));
        ecfs_sha256_end (sha256, found);
        if (n % ECFS_SHA256_BLOCK_BYTES != 0)
            continue;
        ecfs_sha256_resume (other, state, n);
        ecfs_sha256_update (other, bytes + n, sizeof bytes - n);
        ecfs_sha256_end (other, found);
        g_assert_cmpmem (found, sizeof found, whole, sizeof whole);
    }
    /* Its length counts beyond 32 bits of bits. */
    ecfs_sha256_resume (sha256, state, (uint64_t) 5 << 30);
    ecfs_sha256_end (sha256, found);
    ecfs_sha256_resume (sha256, state, ((uint64_t) 5 << 30) - ((uint64_t) 1 << 29));
    ecfs_sha256_end (sha256, whole);
    g_assert_true (memcmp (found, whole, sizeof found) != 0);
}

typedef struct Found {
    EcfsMutex lock;
    EcfsCond cond;
    bool is_done; /* guarded by lock, like the next */
    GByteArray *chain;
} Found;

static void on_found (void *user, GByteArray *chain)
{
    Found *found = user;
    ecfs_mutex_lock (&found->lock);
    g_assert_false (found->is_done);
    found->is_done = true;
    found->chain = chain;
    ecfs_cond_signal (&found->cond);
    ecfs_mutex_unlock (&found->lock);
}

/* As ecfs_chain_seek_wait (), by the other way. */
static GByteArray *seek (const Fixture *self)
{
    Found found = {.chain = NULL};
    ecfs_mutex_init (&found.lock);
    ecfs_cond_init (&found.cond);
    if (ecfs_chain_seek (&self->params, on_found, &found)) {
        ecfs_mutex_lock (&found.lock);
        while (!found.is_done)
            g_assert_true (ecfs_cond_wait_until (&found.cond, &found.lock, ecfs_now_us () + STORE_DEADLINE_US));
        ecfs_mutex_unlock (&found.lock);
    }
    ecfs_cond_clear (&found.cond);
    ecfs_mutex_clear (&found.lock);
    return found.chain;
}

static void damage_end (Fixture *self, unsigned index)
{
    g_autofree char *path = object_stripe_path (&self->object, index), *bytes = NULL;
    size_t size;
    g_assert_true (g_file_get_contents (path, &bytes, &size, NULL));
    bytes[size - ECFS_STRIPE_TAIL_BYTES - 100] ^= 1;
    g_assert_true (g_file_set_contents (path, bytes, (gssize) size, NULL));
}

static void check_found (const Fixture *self, bool is_there)
{
    g_autoptr (GByteArray) chain = seek (self);
    g_autoptr (GByteArray) waited = ecfs_chain_seek_wait (&self->params);
    g_assert_true ((chain != NULL) == is_there && (waited != NULL) == is_there);
    if (is_there)
        check_chain (self, chain);
    if (is_there)
        g_assert_cmpmem (chain->data, chain->len, waited->data, waited->len);
}

static void test_one_stripe_is_enough (void)
{
    Fixture self;
    begin (&self, "rs:4+2", SIZE);
    check_found (&self, true);
    for (unsigned i = 0; i < 3; i++)
        remove_stripe (&self, i);
    damage_end (&self, 3);
    damage_end (&self, 5);
    check_found (&self, true);
    remove_stripe (&self, 4);
    check_found (&self, false);
    for (unsigned i = 0; i < self.store.n; i++)
        self.stripes[i].endpoint = NULL;
    check_found (&self, false);
    end (&self);
}

/* Of another content than the catalog tells. */
static void test_what_the_catalog_tells_counts (void)
{
    Fixture self;
    begin (&self, "rs:4+2", SIZE);
    self.params.has_sha256 = true;
    memcpy (self.params.sha256, self.object.result.object_sha256, sizeof self.params.sha256);
    check_found (&self, true);
    self.params.sha256[0] ^= 1;
    check_found (&self, false);
    end (&self);
}

/* The stripe that is made from others tells it as well; where none does, it does not, and is whole all the same. */
static void check_repaired (Fixture *self, bool has_chain)
{
    bool wanted[ECFS_CODEC_MAX_N] = {[0] = true};
    g_autoptr (GError) error = NULL;
    EcfsWriterResult result;
    EcfsRepair *repair = ecfs_repair_new (object_reader (&self->object), wanted, NULL);
    g_autoptr (GByteArray) chain = ecfs_repair_chain (repair);
    g_assert_true ((chain != NULL) == has_chain);
    EcfsWriterTarget targets[ECFS_CODEC_MAX_N] = {{.endpoint = self->store.endpoints[6], .instance = 7777}};
    EcfsWriterJob job = self->object.job;
    job.packets = ecfs_repair_packets (repair);
    job.chain = chain;
    job.expected_digest = self->object.result.object_digest;
    job.targets = targets;
    self->object.least = 0;
    g_assert_true (ecfs_writer_run (&job, &result, &error));
    g_assert_true (result.stored[0]);
    ecfs_repair_free (repair);
    g_string_free (result.failures, TRUE);
    self->stripes[0] = (EcfsReaderStripe){
        .endpoint = targets[0].endpoint, .instance = targets[0].instance, .bytes = result.stripe_bytes[0]};
    for (unsigned i = 1; i < self->store.n; i++)
        self->stripes[i].endpoint = NULL;
    check_found (self, has_chain);
}

static void test_repaired_stripes_have_it (void)
{
    for (unsigned has_chain = 0; has_chain < 2; has_chain++) {
        Fixture self;
        begin (&self, "rs:4+2", SIZE);
        remove_stripe (&self, 0);
        self.object.result.stored[0] = false;
        for (unsigned i = 1; i < self.store.n && !has_chain; i++)
            damage_end (&self, i);
        check_repaired (&self, has_chain);
        end (&self);
    }
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/chain/state", test_state);
    g_test_add_func ("/chain/segments", test_segments);
    g_test_add_func ("/chain/others", test_others);
    g_test_add_func ("/chain/one-segment", test_one_segment_has_none);
    g_test_add_func ("/chain/longer-pieces", test_longer_pieces);
    g_test_add_func ("/chain/many-segments", test_many_segments);
    g_test_add_func ("/chain/lanes", test_lanes);
    g_test_add_func ("/chain/one-stripe", test_one_stripe_is_enough);
    g_test_add_func ("/chain/catalog", test_what_the_catalog_tells_counts);
    g_test_add_func ("/chain/repaired", test_repaired_stripes_have_it);
    return g_test_run ();
}
