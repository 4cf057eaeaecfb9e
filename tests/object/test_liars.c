/* Endpoints whose stripes have checksums that fit, and are not what was stored. */
#include "object/liars.h"
#include "store.h"

#include <glib/gstdio.h>
#include <string.h>

#define KIB  ((uint64_t) 1024)
#define SIZE (700 * KIB + 321)

typedef struct Fixture {
    Store store;
    Object object;
    EcfsReaderStripe stripes[ECFS_CODEC_MAX_N];
    EcfsReaderParams params;
    uint8_t sha256[ECFS_SHA256_SIZE];
    EcfsLiars liars;
    bool lies[ECFS_CODEC_MAX_N];
} Fixture;

static void begin (Fixture *self, const char *code)
{
    *self = (Fixture){.liars = {.sha256 = self->sha256, .params = &self->params}};
    store_init (&self->store, "file", code, 0, 64 << 20);
    uint32_t segment =
        ecfs_layout_segment_bytes (256 * KIB, ecfs_codec_k (self->store.codec), ecfs_codec_granule (self->store.codec));
    object_init (&self->object, &self->store, SIZE, segment);
    g_assert_cmpint (object_write (&self->object, NULL), ==, 0);
    object_reader_params (&self->object, self->stripes, &self->params);
    g_autoptr (EcfsSha256) sha256 = ecfs_sha256_new ();
    ecfs_sha256_update (sha256, self->object.content, SIZE);
    ecfs_sha256_end (sha256, self->sha256);
    g_assert_cmpmem (self->sha256, ECFS_SHA256_SIZE, self->object.result.object_sha256, ECFS_SHA256_SIZE);
}

static void end (Fixture *self)
{
    object_clear (&self->object);
    store_clear (&self->store);
}

/* Changes the last check block of the first packet, and its tag; a second time takes it back. */
static void forge (const Fixture *self, unsigned index)
{
    const EcfsLayout *layout = &self->object.layout;
    uint32_t block = ecfs_layout_n_blocks (layout, 0) - 1, bytes = ecfs_layout_block_bytes (layout, 0, block);
    g_autofree char *path = object_stripe_path (&self->object, index);
    g_autofree char *stripe = NULL;
    size_t size;
    g_assert_true (g_file_get_contents (path, &stripe, &size, NULL));
    uint8_t *at = (uint8_t *) stripe + ecfs_layout_block_offset (layout, 0, block);
    at[bytes / 2] ^= 0x10;
    const EcfsTagger tagger = ecfs_reader_tagger (&self->params);
    ecfs_tag_put (&tagger, index, ecfs_layout_block_number (layout, 0, block), at, bytes, at + bytes);
    g_assert_true (g_file_set_contents (path, stripe, (gssize) size, NULL));
}

static void assert_found (Fixture *self, unsigned most, const bool *expected)
{
    g_autoptr (GError) error = NULL;
    bool found = ecfs_liars_find (&self->liars, most, self->lies, &error);
    g_assert_no_error (error);
    g_assert_true (found);
    for (unsigned i = 0; i < self->store.n; i++)
        g_assert_true (self->lies[i] == expected[i]);
}

static void test_one (void)
{
    static const char *const codes[] = {"rs:4+2", "ldpc:4+3", "basic:4+4", "copies:3"};
    for (size_t c = 0; c < G_N_ELEMENTS (codes); c++) {
        Fixture self;
        begin (&self, codes[c]);
        for (unsigned i = 0; i < self.store.n; i++) {
            bool expected[ECFS_CODEC_MAX_N] = {false};
            expected[i] = true;
            forge (&self, i);
            assert_found (&self, 1, expected);
            forge (&self, i);
        }
        end (&self);
    }
}

static void test_two (void)
{
    Fixture self;
    g_autoptr (GError) error = NULL;
    const bool expected[ECFS_CODEC_MAX_N] = {false, true, false, false, true};
    begin (&self, "rs:4+2");
    forge (&self, 1);
    forge (&self, 4);
    assert_found (&self, 2, expected);
    forge (&self, 0); /* what is left does not determine the content */
    g_assert_false (ecfs_liars_find (&self.liars, 2, self.lies, &error));
    g_assert_error (error, ECFS_ERROR, EBADMSG);
    end (&self);
}

/* Whoever has two stripes lies about both. */
static void test_same_endpoint (void)
{
    Fixture self;
    bool expected[ECFS_CODEC_MAX_N] = {true};
    begin (&self, "rs:4+2");
    g_autofree char *from = object_stripe_path (&self.object, 1);
    self.object.targets[1].endpoint = self.stripes[1].endpoint = self.stripes[0].endpoint;
    g_autofree char *to = object_stripe_path (&self.object, 1);
    g_assert_cmpint (g_rename (from, to), ==, 0);
    forge (&self, 0);
    assert_found (&self, 1, expected);
    forge (&self, 1);
    expected[1] = true;
    assert_found (&self, 1, expected);
    end (&self);
}

static void test_truth (void)
{
    Fixture self;
    EcfsTrueStripes truth;
    g_autoptr (GError) error = NULL;
    bool without[ECFS_CODEC_MAX_N] = {false, false, true};
    uint8_t found[ECFS_SHA256_SIZE];
    begin (&self, "rs:4+2");
    forge (&self, 2);
    g_assert_true (ecfs_true_stripes (&self.liars, without, &truth, &error));
    g_assert_true (ecfs_true_stripes (&self.liars, without, NULL, &error));
    forge (&self, 2);
    g_autoptr (EcfsSha256) sha256 = ecfs_sha256_new ();
    for (unsigned i = 0; i < self.store.n; i++) {
        g_autofree char *path = object_stripe_path (&self.object, i), *bytes = NULL;
        g_assert_true (g_file_get_contents (path, &bytes, NULL, NULL));
        ecfs_sha256_update (sha256, bytes + self.object.layout.header_bytes,
                            ecfs_layout_area_bytes (&self.object.layout));
        ecfs_sha256_end (sha256, found);
        g_assert_cmpmem (found, sizeof found, truth.sha256[i], sizeof found);
    }
    self.sha256[0] ^= 1; /* the catalog's is another */
    g_assert_false (ecfs_true_stripes (&self.liars, NULL, NULL, &error));
    g_assert_error (error, ECFS_ERROR, EBADMSG);
    g_clear_error (&error);
    g_assert_false (ecfs_liars_find (&self.liars, 2, self.lies, &error));
    g_assert_error (error, ECFS_ERROR, EBADMSG);
    g_clear_error (&error);
    without[0] = without[1] = true;
    g_assert_false (ecfs_true_stripes (&self.liars, without, NULL, &error));
    g_assert_error (error, ECFS_ERROR, EIO);
    end (&self);
}

/* What is not there is no lie. */
static void test_missing (void)
{
    Fixture self;
    const bool expected[ECFS_CODEC_MAX_N] = {false, false, false, true};
    begin (&self, "rs:4+2");
    self.stripes[0].endpoint = NULL;
    forge (&self, 3);
    assert_found (&self, 2, expected);
    end (&self);
}

static bool refuse (void *user, uint64_t bytes)
{
    unsigned *left = user;
    g_assert_cmpuint (bytes, >, 0);
    return *left > 0 && (*left)-- > 0;
}

static void test_cancelled (void)
{
    Fixture self;
    begin (&self, "rs:4+2");
    forge (&self, 0);
    for (unsigned n = 0; n < 8; n++) {
        g_autoptr (GError) error = NULL;
        unsigned left = n;
        self.liars.tick = refuse;
        self.liars.user = &left;
        if (!ecfs_liars_find (&self.liars, 2, self.lies, &error))
            g_assert_error (error, ECFS_ERROR, ECANCELED);
    }
    end (&self);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/liars/one-of-any-code-is-found", test_one);
    g_test_add_func ("/liars/two-are-found-and-three-are-too-many", test_two);
    g_test_add_func ("/liars/an-endpoint-is-left-out-with-all-its-stripes", test_same_endpoint);
    g_test_add_func ("/liars/the-truth-is-what-was-stored", test_truth);
    g_test_add_func ("/liars/what-is-not-there-is-no-lie", test_missing);
    g_test_add_func ("/liars/it-can-be-cancelled", test_cancelled);
    return g_test_run ();
}
