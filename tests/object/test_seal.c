/* Objects under a key: what lies on endpoints tells nothing of the content and the files, and nobody else can make it.
 */
#include "key/ring.h"
#include "object/chain.h"
#include "store.h"
#include "util/bytes.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

#define MIB  ((uint64_t) 1 << 20)
#define SIZE (3 * MIB + 12345)

static const char planted[] = "planted: nobody but the owner is to read this";

static EcfsKeyRing *new_ring (void)
{
    const EcfsUuid archive = ecfs_uuid_new ();
    return ecfs_key_ring_new (&archive);
}

static EcfsSealKeys *open_seal (const EcfsSeal *seal, const EcfsKeyRing *ring, const EcfsUuid *object)
{
    EcfsSealKeys *keys = NULL;
    g_autoptr (GError) error = NULL;
    (void) ecfs_seal_open (seal, ring, object, &keys, &error);
    g_assert_no_error (error);
    return keys;
}

/* Header and footer */

typedef struct Frame {
    EcfsStripeHeader header;
    EcfsStripeFooter footer;
    EcfsFileRecord record;
    GByteArray *chain;
    EcfsKeyRing *ring;
    EcfsSealKeys *keys;
    GByteArray *head, *foot; /* without its tail */
} Frame;

static void frame_init (Frame *self)
{
    *self = (Frame){.ring = new_ring ()};
    self->header = (EcfsStripeHeader){.archive = *ecfs_key_ring_archive (self->ring),
                                      .object = ecfs_uuid_new (),
                                      .instance = 0x1122334455667788,
                                      .sequence = 99,
                                      .epoch = 7,
                                      .family = 2,
                                      .k = 4,
                                      .n_written = 6,
                                      .index = 5,
                                      .segment_bytes = 1 << 20,
                                      .block_bytes = 8192,
                                      .granule = 16,
                                      .seal = ecfs_seal_new (self->ring)};
    self->keys = open_seal (&self->header.seal, self->ring, &self->header.object);
    self->record = (EcfsFileRecord){
        .ino = 5, .path = planted, .ranges = g_array_new (FALSE, FALSE, sizeof (EcfsFileRange)), .n_objects = 1};
    self->chain = g_byte_array_new ();
    g_byte_array_append (self->chain, (const uint8_t *) planted, ECFS_CHAIN_LINK_BYTES);
    self->footer = (EcfsStripeFooter){.size = 5, .area_bytes = 24, .records = g_ptr_array_new (), .chain = self->chain};
    g_ptr_array_add (self->footer.records, &self->record);
    self->head = ecfs_stripe_header_format (&self->header, self->keys);
    self->foot = ecfs_stripe_footer_format (&self->footer, 5000, &self->header, self->keys);
    g_byte_array_set_size (self->foot, self->foot->len - ECFS_STRIPE_TAIL_BYTES);
}

static void frame_clear (Frame *self)
{
    g_array_unref (self->record.ranges);
    g_ptr_array_unref (self->footer.records);
    g_byte_array_unref (self->chain);
    g_byte_array_unref (self->head);
    g_byte_array_unref (self->foot);
    ecfs_seal_keys_unref (self->keys);
    ecfs_key_ring_unref (self->ring);
}

/* 0, or why header or footer are not taken for those of the stripe. */
static int take_head (const uint8_t *bytes, size_t size, const EcfsSealKeys *keys)
{
    EcfsStripeHeader header;
    g_autoptr (GError) error = NULL;
    g_autofree uint8_t *exact = g_memdup2 (bytes, size); /* so that a sanitizer sees what is read behind it */
    if (ecfs_stripe_header_parse (exact, size, &header, &error))
        (void) ecfs_stripe_header_check (&header, exact, keys, &error);
    return ecfs_errno (error);
}

static int take_foot (const uint8_t *bytes, size_t size, const EcfsStripeHeader *header, const EcfsSealKeys *keys)
{
    EcfsStripeFooter footer;
    g_autoptr (GError) error = NULL;
    g_autofree uint8_t *exact = g_memdup2 (bytes, size);
    if (ecfs_stripe_footer_parse (exact, size, XXH3_64bits (bytes, size), header, keys, &footer, &error)) {
        g_assert_cmpuint (footer.records->len, ==, keys == NULL ? 0 : 1);
        if (keys != NULL)
            g_assert_cmpstr (((EcfsFileRecord *) g_ptr_array_index (footer.records, 0))->path, ==, planted);
        g_assert_true ((footer.chain != NULL) == (keys != NULL));
        if (keys != NULL)
            g_assert_cmpmem (footer.chain->data, footer.chain->len, planted, ECFS_CHAIN_LINK_BYTES);
        ecfs_stripe_footer_clear (&footer);
    }
    return ecfs_errno (error);
}

/* As who knows the format does: all checksums of the sections are right again. */
static void mend_sections (uint8_t *bytes, size_t at, size_t end)
{
    while (end - at >= 16) {
        size_t length = ecfs_get_le (bytes + at + 4, 4);
        if (length > end - at - 16)
            return;
        ecfs_put_le (bytes + at + 8 + length, XXH3_64bits (bytes + at, 8 + length), 8);
        at += 16 + length;
    }
}

static void test_frame (void)
{
    Frame frame;
    frame_init (&frame);
    g_assert_cmpint (take_head (frame.head->data, frame.head->len, frame.keys), ==, 0);
    g_assert_cmpint (take_foot (frame.foot->data, frame.foot->len, &frame.header, frame.keys), ==, 0);
    g_assert_cmpint (take_foot (frame.foot->data, frame.foot->len, &frame.header, NULL), ==, 0);
    g_assert_null (memmem (frame.foot->data, frame.foot->len, planted, 7));
    frame_clear (&frame);
}

/* Where the padding begins nothing is told any more. */
static size_t told_bytes (const GByteArray *head)
{
    size_t at = ECFS_STRIPE_PREAMBLE_BYTES;
    while (at < head->len && ecfs_get_le (head->data + at, 2) != 0)
        at += 16 + ecfs_get_le (head->data + at + 4, 4);
    return at;
}

/* Who makes one has the key: it is refused and nothing is read beyond it. */
static void test_chains_that_are_none (void)
{
    static const unsigned sizes[] = {0, 1, ECFS_CHAIN_LINK_BYTES - 1, ECFS_CHAIN_LINK_BYTES + 8};
    for (unsigned i = 0; i < G_N_ELEMENTS (sizes); i++) {
        Frame frame;
        frame_init (&frame);
        g_byte_array_set_size (frame.chain, sizes[i]);
        g_autoptr (GByteArray) foot = ecfs_stripe_footer_format (&frame.footer, 5000, &frame.header, frame.keys);
        guint size = foot->len - ECFS_STRIPE_TAIL_BYTES;
        g_assert_cmpint (take_foot (foot->data, size, &frame.header, frame.keys), ==, EBADMSG);
        frame_clear (&frame);
    }
}

static void test_every_bit (void)
{
    Frame frame;
    frame_init (&frame);
    for (size_t bit = 0; bit < 8 * told_bytes (frame.head); bit++) {
        g_autofree uint8_t *bytes = g_memdup2 (frame.head->data, frame.head->len);
        bytes[bit / 8] ^= (uint8_t) (1 << bit % 8);
        g_assert_cmpint (take_head (bytes, frame.head->len, frame.keys), !=, 0);
        mend_sections (bytes, ECFS_STRIPE_PREAMBLE_BYTES, frame.head->len);
        int code = take_head (bytes, frame.head->len, frame.keys);
        if (memcmp (bytes, frame.head->data, frame.head->len) != 0) /* but for a checksum that is right again */
            g_assert_cmpint (code, !=, 0);
    }
    for (size_t bit = 0; bit < 8 * frame.foot->len; bit++) {
        g_autofree uint8_t *bytes = g_memdup2 (frame.foot->data, frame.foot->len);
        bytes[bit / 8] ^= (uint8_t) (1 << bit % 8);
        mend_sections (bytes, 0, frame.foot->len);
        int code = take_foot (bytes, frame.foot->len, &frame.header, frame.keys);
        if (memcmp (bytes, frame.foot->data, frame.foot->len) != 0)
            g_assert_cmpint (code, !=, 0);
    }
    frame_clear (&frame);
}

/* True parts of another stripe, another instance, another object, under another key, and without one. */
static void test_exchanged (void)
{
    Frame frame, other;
    frame_init (&frame);
    frame_init (&other);
    EcfsStripeHeader another = frame.header;
    another.index--;
    g_autoptr (GByteArray) sibling = ecfs_stripe_header_format (&another, frame.keys);
    g_assert_cmpint (take_head (sibling->data, sibling->len, frame.keys), ==, 0); /* its name says which it is */
    g_assert_cmpint (take_foot (frame.foot->data, frame.foot->len, &another, frame.keys), ==, EBADMSG);
    another = frame.header;
    another.instance++;
    g_assert_cmpint (take_foot (frame.foot->data, frame.foot->len, &another, frame.keys), ==, EBADMSG);
    g_assert_cmpint (take_head (other.head->data, other.head->len, frame.keys), ==, EBADMSG);
    g_assert_cmpint (take_foot (other.foot->data, other.foot->len, &frame.header, frame.keys), ==, EBADMSG);
    g_assert_cmpint (take_head (frame.head->data, frame.head->len, NULL), ==, EBADMSG);
    another = frame.header;
    another.seal.kind = ECFS_SEAL_NONE;
    g_autoptr (GByteArray) clear = ecfs_stripe_header_format (&another, NULL);
    g_autoptr (GByteArray) clear_foot = ecfs_stripe_footer_format (&frame.footer, 5000, &another, NULL);
    g_assert_cmpint (take_head (clear->data, clear->len, NULL), ==, 0);
    g_assert_cmpint (take_head (clear->data, clear->len, frame.keys), ==, EBADMSG);
    g_assert_cmpint (take_foot (clear_foot->data, clear_foot->len - ECFS_STRIPE_TAIL_BYTES, &frame.header, frame.keys),
                     ==, EBADMSG);
    frame_clear (&frame);
    frame_clear (&other);
}

/* Behind what the MAC covers: a second section that would count. */
static void test_appended (void)
{
    Frame frame;
    frame_init (&frame);
    size_t sizes_bytes = 16 + ecfs_get_le (frame.foot->data + 4, 4);
    g_autoptr (GByteArray) longer = g_byte_array_new ();
    g_byte_array_append (longer, frame.foot->data, frame.foot->len);
    g_byte_array_append (longer, frame.foot->data, (guint) sizes_bytes);
    g_assert_cmpint (take_foot (longer->data, longer->len, &frame.header, frame.keys), ==, EBADMSG);
    g_autoptr (GByteArray) head = g_byte_array_new ();
    g_byte_array_append (head, frame.head->data, frame.head->len);
    g_byte_array_append (head, frame.head->data + ECFS_STRIPE_PREAMBLE_BYTES,
                         (guint) (16 + ecfs_get_le (frame.head->data + ECFS_STRIPE_PREAMBLE_BYTES + 4, 4)));
    g_assert_cmpint (take_head (head->data, frame.head->len, frame.keys), ==, 0);
    ecfs_put_le (head->data + 12, head->len, 4);
    g_assert_cmpint (take_head (head->data, head->len, frame.keys), ==, EBADMSG);
    frame_clear (&frame);
}

/* Whole objects */

static void plant (Object *object)
{
    for (uint64_t at = 0; at + sizeof planted < object->size; at += 50000)
        memcpy (object->content + at, planted, sizeof planted);
    g_assert_cmpint ((int) pwrite (object->job.fd, object->content, object->size, 0), ==, (int) object->size);
}

static bool is_anywhere (const Object *object, const char *text)
{
    bool found = false;
    for (unsigned i = 0; i < object->store->n; i++) {
        g_autofree char *path = object_stripe_path (object, i), *bytes = NULL;
        size_t size;
        g_assert_true (g_file_get_contents (path, &bytes, &size, NULL));
        found = found || memmem (bytes, size, text, strlen (text)) != NULL;
    }
    return found;
}

static void read_about (const Object *object)
{
    EcfsReader *reader = object_reader (object);
    for (unsigned i = 0; i < 200; i++) {
        uint64_t offset = (uint64_t) g_test_rand_int_range (0, (int) object->size - 1);
        size_t size = (size_t) g_test_rand_int_range (1, 1 + (int) MIN (object->size - offset, 200000));
        g_assert_cmpint (object_read (object, reader, offset, size, NULL), ==, 0);
        g_assert_cmpint (object_read (object, reader, offset, size, NULL), ==, 0); /* what is kept is clear already */
    }
    ecfs_reader_close (reader);
    reader = object_reader (object);
    for (uint64_t at = 0; at < object->size; at += 131072)
        g_assert_cmpint (object_read (object, reader, at, (size_t) MIN (131072, object->size - at), NULL), ==, 0);
    ecfs_reader_close (reader);
}

static void store_and_read (const char *code, EcfsSealKind kind)
{
    Store store;
    Object object;
    g_autoptr (EcfsKeyRing) ring = new_ring ();
    store_init (&store, "file", code, 0, 256 * MIB);
    uint32_t segment = ecfs_layout_segment_bytes (MIB, ecfs_codec_k (store.codec), ecfs_codec_granule (store.codec));
    object_init (&object, &store, SIZE, segment);
    plant (&object);
    object_seal (&object, ring, kind);
    EcfsFileRange all = {.length = SIZE};
    g_autoptr (GArray) ranges = g_array_new (FALSE, FALSE, sizeof all);
    g_array_append_val (ranges, all);
    EcfsFileRecord record = {.ino = 5, .path = planted, .ranges = ranges, .n_objects = 1};
    g_ptr_array_add (object.job.records, &record);
    g_assert_cmpint (object_write (&object, NULL), ==, 0);
    g_assert_false (is_anywhere (&object, "planted"));
    read_about (&object);
    for (unsigned i = 0; i < ecfs_codec_tolerance (store.codec); i++)
        object.result.stored[i] = false; /* what is lost is decoded */
    read_about (&object);
    object_clear (&object);
    store_clear (&store);
}

static void test_object (gconstpointer code)
{
    store_and_read (code, ECFS_SEAL_CTR_GHASH);
}

/* As what was stored before there was another way is. */
static void test_old_object (void)
{
    store_and_read ("rs:4+2", ECFS_SEAL_CTR_HMAC);
}

/* The same content twice is not the same on any endpoint; and one key opens one object. */
static void test_twice (void)
{
    Store store;
    Object one, two;
    g_autoptr (EcfsKeyRing) ring = new_ring (), other = new_ring ();
    g_autoptr (GError) error = NULL;
    EcfsSealKeys *none = NULL;
    store_init (&store, "file", "copies:2", 0, 64 * MIB);
    object_init (&one, &store, MIB, MIB);
    object_init (&two, &store, MIB, MIB);
    memcpy (two.content, one.content, MIB);
    g_assert_cmpint ((int) pwrite (two.job.fd, two.content, MIB, 0), ==, (int) MIB);
    object_seal (&one, ring, ECFS_SEAL_CTR_GHASH);
    object_seal (&two, ring, ECFS_SEAL_CTR_GHASH);
    g_assert_cmpint (object_write (&one, NULL), ==, 0);
    g_assert_cmpint (object_write (&two, NULL), ==, 0);
    g_assert_cmpint (memcmp (one.result.object_digest, two.result.object_digest, ECFS_STRIPE_DIGEST_BYTES), !=, 0);
    g_assert_cmpmem (one.result.object_sha256, ECFS_SHA256_SIZE, two.result.object_sha256, ECFS_SHA256_SIZE);
    g_assert_false (ecfs_seal_open (&one.job.header.seal, other, &one.job.header.object, &none, &error));
    g_assert_error (error, ECFS_ERROR, ENOKEY);
    const EcfsSealKeys *own = one.job.keys;
    one.job.keys = two.job.keys;
    EcfsReader *reader = object_reader (&one);
    g_assert_cmpint (object_read (&one, reader, 0, MIB, NULL), ==, EIO);
    ecfs_reader_close (reader);
    one.job.keys = own;
    object_clear (&one);
    object_clear (&two);
    store_clear (&store);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    g_test_add_func ("/seal/a-frame-tells-who-has-the-key", test_frame);
    g_test_add_func ("/seal/no-bit-of-a-frame-can-be-changed", test_every_bit);
    g_test_add_func ("/seal/chains-that-are-none", test_chains_that_are_none);
    g_test_add_func ("/seal/a-frame-is-of-one-stripe", test_exchanged);
    g_test_add_func ("/seal/nothing-can-be-put-behind-a-frame", test_appended);
    g_test_add_data_func ("/seal/an-object-tells-its-endpoints-nothing/rs", "rs:4+2", test_object);
    g_test_add_data_func ("/seal/an-object-tells-its-endpoints-nothing/copies", "copies:3", test_object);
    g_test_add_data_func ("/seal/an-object-tells-its-endpoints-nothing/ldpc", "ldpc:8+6", test_object);
    g_test_add_data_func ("/seal/an-object-tells-its-endpoints-nothing/basic", "basic:4+4", test_object);
    g_test_add_func ("/seal/an-object-with-tags-by-hmac-is-read", test_old_object);
    g_test_add_func ("/seal/the-same-content-is-another-each-time", test_twice);
    return g_test_run ();
}
