/* Digests by which an object under a key is read without its tags' key. */
#include "object/units.h"
#include "store.h"

#include <glib/gstdio.h>
#include <string.h>

#define KIB     ((uint64_t) 1024)
#define SIZE    (1500 * KIB + 321)
#define SEGMENT (256 * KIB)

typedef struct Fixture {
    Store store;
    Object object;
    EcfsKeyRing *ring;
    EcfsReaderStripe stripes[ECFS_CODEC_MAX_N];
    EcfsReaderParams params; /* as who has no key reads */
    EcfsUnits *units;
    EcfsSealKeys *keys;
    uint8_t *bytes;
} Fixture;

static bool give_content (void *user, uint64_t offset, size_t size, uint8_t *to, GError **error)
{
    (void) error;
    memcpy (to, ((Object *) user)->content + offset, size);
    return true;
}

static void begin (Fixture *self, const char *code, uint32_t n_segments)
{
    g_autoptr (GError) error = NULL;
    *self = (Fixture){.ring = NULL};
    store_init (&self->store, "file", code, 0, 64 << 20);
    self->ring = ecfs_key_ring_new (&self->store.archive);
    EcfsCodec *codec = self->store.codec;
    object_init (&self->object, &self->store, SIZE,
                 ecfs_layout_segment_bytes (SEGMENT, ecfs_codec_k (codec), ecfs_codec_granule (codec)));
    object_seal (&self->object, self->ring, ECFS_SEAL_CTR_GHASH);
    g_assert_cmpint (object_write (&self->object, NULL), ==, 0);
    object_reader_params (&self->object, self->stripes, &self->params);
    self->params.keys = NULL;
    self->params.unchecked = true;
    g_assert_true (ecfs_seal_open (&self->object.job.header.seal, self->ring, &self->params.object, &self->keys, NULL));
    self->units = ecfs_units_new (codec, &self->object.layout, n_segments, &error);
    g_assert_no_error (error);
    g_assert_true (ecfs_units_make (self->units, self->keys->content, give_content, &self->object, &error));
    g_assert_cmpuint (self->units->digests->len, ==,
                      ecfs_units_count (self->units) * ecfs_units_digest_bytes (self->units));
    self->bytes = g_malloc (ecfs_units_bytes (self->units, 0));
}

static void end (Fixture *self)
{
    ecfs_units_free (self->units);
    ecfs_seal_keys_unref (self->keys);
    ecfs_key_ring_unref (self->ring);
    g_free (self->bytes);
    object_clear (&self->object);
    store_clear (&self->store);
}

/* Reads a unit and compares it with the content; 0 or the errno. Exactly those in @expected are found to lie. */
static int take (Fixture *self, uint64_t unit, const bool *expected)
{
    g_autoptr (GError) error = NULL;
    bool lies[ECFS_CODEC_MAX_N] = {false};
    bool good = ecfs_units_read (self->units, &self->params, unit, self->bytes, lies, &error);
    g_assert_cmpmem (lies, self->store.n, expected, self->store.n);
    if (!good)
        return ecfs_errno (error);
    uint64_t offset = ecfs_units_offset (self->units, unit);
    EcfsCipher *cipher = ecfs_cipher_new (self->keys->content, offset);
    ecfs_cipher_next (cipher, self->bytes, ecfs_units_bytes (self->units, unit));
    ecfs_cipher_free (cipher);
    g_assert_cmpmem (self->bytes, ecfs_units_bytes (self->units, unit), self->object.content + offset,
                     ecfs_units_bytes (self->units, unit));
    return 0;
}

static void change (const Fixture *self, unsigned index, uint64_t segment)
{
    g_autofree char *path = object_stripe_path (&self->object, index), *stripe = NULL;
    size_t size;
    g_assert_true (g_file_get_contents (path, &stripe, &size, NULL));
    stripe[ecfs_layout_block_offset (&self->object.layout, segment, 0) + 7] ^= 1;
    g_assert_true (g_file_set_contents (path, stripe, (gssize) size, NULL));
}

static void test_codes (void)
{
    static const char *const codes[] = {"rs:4+2", "rs:1+1", "ldpc:4+3", "basic:4+4", "copies:3"};
    const bool nobody[ECFS_CODEC_MAX_N] = {false};
    for (size_t c = 0; c < G_N_ELEMENTS (codes); c++)
        for (uint32_t n_segments = 1; n_segments <= 7; n_segments += 2) {
            Fixture self;
            begin (&self, codes[c], n_segments);
            for (uint64_t unit = 0; unit < ecfs_units_count (self.units); unit++)
                g_assert_cmpint (take (&self, unit, nobody), ==, 0);
            g_assert_cmpuint (ecfs_units_at (self.units, SIZE - 1), ==, ecfs_units_count (self.units) - 1);
            end (&self);
        }
}

static void test_liars (void)
{
    Fixture self;
    bool expected[ECFS_CODEC_MAX_N] = {[1] = true, [4] = true};
    const bool nobody[ECFS_CODEC_MAX_N] = {false};
    begin (&self, "rs:4+2", 2);
    change (&self, 1, 2);
    change (&self, 4, 3);
    g_assert_cmpint (take (&self, 0, nobody), ==, 0);
    g_assert_cmpint (take (&self, 1, expected), ==, 0);
    change (&self, 3, 2); /* one too many */
    expected[3] = true;
    g_assert_cmpint (take (&self, 1, expected), ==, EIO);
    g_assert_cmpint (take (&self, 2, nobody), ==, 0);
    end (&self);
}

static void test_absent (void)
{
    Fixture self;
    const bool nobody[ECFS_CODEC_MAX_N] = {false};
    begin (&self, "rs:4+2", 3);
    g_autofree char *path = object_stripe_path (&self.object, 0), *short_path = object_stripe_path (&self.object, 2);
    g_assert_cmpint (g_unlink (path), ==, 0);
    g_assert_true (g_file_set_contents (short_path, "short", 5, NULL));
    g_assert_cmpint (take (&self, 0, nobody), ==, 0);
    self.stripes[5].endpoint = NULL;
    g_assert_cmpint (take (&self, 0, nobody), ==, EIO);
    end (&self);
}

static void test_contradiction (void)
{
    Fixture self;
    const bool nobody[ECFS_CODEC_MAX_N] = {false};
    begin (&self, "rs:4+2", 3);
    self.units->digests->data[0] ^= 1; /* of the content */
    g_assert_cmpint (take (&self, 0, nobody), ==, EBADMSG);
    self.units->digests->data[0] ^= 1;
    self.units->digests->data[ECFS_SHA256_SIZE] ^= 1; /* of a stripe: as if it lied */
    const bool first[ECFS_CODEC_MAX_N] = {true};
    g_assert_cmpint (take (&self, 0, first), ==, 0);
    end (&self);
}

static bool give_none (void *user, uint64_t offset, size_t size, uint8_t *to, GError **error)
{
    (void) size;
    (void) to;
    return offset < SEGMENT ? give_content (user, offset, size, to, error) : ecfs_fail (error, ENODATA, "none");
}

static void test_content_that_cannot_be_read (void)
{
    Fixture self;
    g_autoptr (GError) error = NULL;
    begin (&self, "rs:4+2", 3);
    g_assert_false (ecfs_units_make (self.units, self.keys->content, give_none, &self.object, &error));
    g_assert_error (error, ECFS_ERROR, ENODATA);
    end (&self);
}

/* However large a file is, its digests are few, and a unit fits into memory. */
static void test_sizes (void)
{
    g_autoptr (EcfsCodec) codec = ecfs_codec_new ("rs:4+2", NULL);
    EcfsLayout layout = {.size = ECFS_OBJECT_MAX_BYTES,
                         .segment_bytes = 2 << 20,
                         .block_bytes = 8192,
                         .k = 4,
                         .header_bytes = 192,
                         .granule = (uint32_t) ecfs_codec_granule (codec),
                         .tag_bytes = 16};
    g_assert_cmpuint (ecfs_units_segments (codec, &layout, 1), ==, 8);
    g_assert_cmpuint (ecfs_units_segments (codec, &layout, UINT64_C (1) << 40), ==, 32);
    layout.segment_bytes = ECFS_SEGMENT_MAX;
    g_assert_cmpuint (ecfs_units_segments (codec, &layout, 1), ==, 1);
    static const uint32_t refused[] = {0, 2, UINT32_MAX};
    for (size_t i = 0; i < G_N_ELEMENTS (refused); i++) {
        g_autoptr (GError) error = NULL;
        g_assert_null (ecfs_units_new (codec, &layout, refused[i], &error));
        g_assert_error (error, ECFS_ERROR, EBADMSG);
    }
    layout.block_bytes = 8;
    g_assert_null (ecfs_units_new (codec, &layout, 1, NULL));
    ecfs_units_free (NULL);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/units/give-the-content-of-any-code", test_codes);
    g_test_add_func ("/units/tell-who-returns-other-bytes", test_liars);
    g_test_add_func ("/units/do-without-stripes-that-are-gone-or-short", test_absent);
    g_test_add_func ("/units/that-contradict-each-other-give-nothing", test_contradiction);
    g_test_add_func ("/units/are-not-made-of-content-that-cannot-be-read", test_content_that_cannot_be_read);
    g_test_add_func ("/units/are-few-and-bounded", test_sizes);
    return g_test_run ();
}
