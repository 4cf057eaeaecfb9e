/* Logs: what is in a stripe of one, however it was torn, cut off, damaged or made up. */
#include "object/log.h"

#include "key/cipher.h"
#include "util/bytes.h"

#include <glib.h>
#include <string.h>

#define BLOCK ECFS_LOG_BLOCK_BYTES

static const EcfsUuid log_uuid = {"a log, of course"};

typedef struct Fixture {
    EcfsKeyRing *ring;
    EcfsSealKeys *keys; /* NULL: it is stored without */
    EcfsStripeHeader header;
    GByteArray *stripe;  /* index 2, that is made */
    GByteArray *content; /* of the log */
    uint8_t file[20000];
} Fixture;

static void set_up (Fixture *self, gconstpointer is_sealed)
{
    g_autoptr (GError) error = NULL;
    for (size_t i = 0; i < sizeof self->file; i++)
        self->file[i] = (uint8_t) (i * i >> 3);
    self->header = (EcfsStripeHeader){.archive = {"the archive's id"},
                                      .object = log_uuid,
                                      .family = ECFS_CODE_COPIES,
                                      .k = 1,
                                      .n_written = 3,
                                      .index = 2,
                                      .segment_bytes = 64 * BLOCK,
                                      .block_bytes = BLOCK,
                                      .granule = 1,
                                      .is_log = true};
    if (is_sealed != NULL) {
        self->ring = ecfs_key_ring_new (&(EcfsUuid){"the archive's id"});
        self->header.seal = ecfs_seal_new (self->ring);
        g_assert_true (ecfs_seal_open (&self->header.seal, self->ring, &log_uuid, &self->keys, &error));
        g_assert_no_error (error);
    }
    self->stripe = ecfs_stripe_header_format (&self->header, self->keys);
    self->content = g_byte_array_new ();
}

static void tear_down (Fixture *self, gconstpointer unused)
{
    (void) unused;
    g_byte_array_unref (self->stripe);
    g_byte_array_unref (self->content);
    ecfs_seal_keys_unref (self->keys);
    if (self->ring != NULL)
        ecfs_key_ring_unref (self->ring);
}

static EcfsLogRecord some_record (const Fixture *self, uint64_t ino, size_t content_bytes)
{
    static const char path[] = "/a/path";
    return (EcfsLogRecord){.ino = ino,
                           .sequence = 4711,
                           .epoch = 3,
                           .mode = 0100640,
                           .uid = 5,
                           .gid = 6,
                           .mtime_ns = -7,
                           .path = path,
                           .path_bytes = strlen (path),
                           .content = self->file,
                           .content_bytes = content_bytes};
}

/* What is appended to log and stripe, whatever it is. */
static void append_bytes (Fixture *self, const uint8_t *bytes, size_t size)
{
    const EcfsTagger tagger = {.object = log_uuid, .mac = ecfs_seal_tag_mac (self->keys)};
    g_autofree uint8_t *stored = g_memdup2 (bytes, size);
    if (self->keys != NULL) {
        EcfsCipher *cipher = ecfs_cipher_new (self->keys->content, self->content->len);
        ecfs_cipher_next (cipher, stored, size);
        ecfs_cipher_free (cipher);
    }
    g_autoptr (GByteArray) blocks = ecfs_log_blocks (&tagger, self->header.index, self->content->len, stored, size);
    g_byte_array_append (self->content, bytes, (guint) size);
    g_byte_array_append (self->stripe, blocks->data, blocks->len);
    g_assert_cmpuint (self->stripe->len, ==,
                      ecfs_log_stripe_bytes (self->header.header_bytes, &self->header.seal, self->content->len));
}

static void append (Fixture *self, uint64_t ino, size_t content_bytes)
{
    const EcfsLogRecord record = some_record (self, ino, content_bytes);
    g_autoptr (GByteArray) bytes = ecfs_log_record_format (&record, &log_uuid, self->content->len);
    g_assert_cmpuint (bytes->len % BLOCK, ==, 0);
    g_assert_cmpuint (bytes->len, <, content_bytes + BLOCK + 80);
    append_bytes (self, bytes->data, bytes->len);
}

typedef struct Found {
    uint64_t ino;
    uint64_t offset;
} Found;

static void note (void *user, const EcfsLogRecord *record, uint64_t offset)
{
    const Found found = {.ino = record->ino, .offset = offset};
    g_array_append_val (user, found);
}

/* The inodes of the records that are found, in order. */
static GArray *find_in (const Fixture *self, const uint8_t *stripe, size_t size)
{
    GArray *found = g_array_new (FALSE, FALSE, sizeof (Found));
    g_autofree uint8_t *copy = g_memdup2 (stripe, size); /* so that a sanitizer sees its end */
    ecfs_log_each_record (copy, size, &self->header, self->keys, note, found);
    return found;
}

static void assert_found (const Fixture *self, const uint8_t *stripe, size_t size, size_t n_wanted,
                          const uint64_t *wanted)
{
    g_autoptr (GArray) found = find_in (self, stripe, size);
    g_assert_cmpuint (found->len, ==, n_wanted);
    for (size_t i = 0; i < n_wanted; i++)
        g_assert_cmpuint (g_array_index (found, Found, i).ino, ==, wanted[i]);
}

#define ASSERT_FOUND(self, stripe, ...)                                                                                \
    assert_found (self, (stripe)->data, (stripe)->len, sizeof (uint64_t[]){__VA_ARGS__} / sizeof (uint64_t),           \
                  (const uint64_t[]){__VA_ARGS__})

static void compare (void *user, const EcfsLogRecord *record, uint64_t offset)
{
    const Fixture *self = user;
    const size_t bytes = record->ino == 1 ? 1 : record->ino == 2 ? 8192 : sizeof self->file;
    g_assert_cmpuint (record->sequence, ==, 4711);
    g_assert_cmpuint (record->epoch, ==, 3);
    g_assert_cmpuint (record->mode, ==, 0100640);
    g_assert_cmpuint (record->uid, ==, 5);
    g_assert_cmpuint (record->gid, ==, 6);
    g_assert_cmpint (record->mtime_ns, ==, -7);
    g_assert_cmpmem (record->path, (int) record->path_bytes, "/a/path", 7);
    g_assert_cmpmem (record->content, (int) record->content_bytes, self->file, (int) bytes);
    g_assert_cmpmem (self->content->data + offset + ecfs_log_content_offset (record), (int) bytes, self->file,
                     (int) bytes);
}

static void test_round_trip (Fixture *self, gconstpointer unused)
{
    (void) unused;
    append (self, 1, 1);
    append (self, 2, 8192);
    append (self, 3, sizeof self->file);
    g_assert_cmpuint (
        ecfs_log_each_record (self->stripe->data, self->stripe->len, &self->header, self->keys, compare, self), ==,
        self->content->len);
    ASSERT_FOUND (self, self->stripe, 1, 2, 3);
}

/* Where a stripe ends early, what is whole before that counts. */
static void test_cut (Fixture *self, gconstpointer unused)
{
    (void) unused;
    static const uint64_t both[] = {1, 2};
    append (self, 1, 3000);
    guint first = self->stripe->len;
    append (self, 2, 3000);
    for (guint size = 0; size <= self->stripe->len; size += 7)
        assert_found (self, self->stripe->data, size, size >= self->stripe->len ? 2 : size >= first, both);
}

/* A record that was torn, or came to nothing, hides none that is behind it. */
static void test_holes (Fixture *self, gconstpointer unused)
{
    (void) unused;
    append (self, 1, 3000);
    guint torn_at = self->stripe->len;
    append (self, 2, 9000);
    guint torn_end = self->stripe->len;
    append (self, 3, 3000);
    memset (self->stripe->data + torn_at + 2000, 0, torn_end - torn_at - 2000);
    ASSERT_FOUND (self, self->stripe, 1, 3);
    memset (self->stripe->data + torn_at, 0, torn_end - torn_at);
    ASSERT_FOUND (self, self->stripe, 1, 3);
}

static void test_every_bit (Fixture *self, gconstpointer unused)
{
    (void) unused;
    append (self, 1, 700);
    guint first = self->stripe->len;
    append (self, 2, 700);
    for (guint bit = 8 * self->header.header_bytes; bit < 8 * first; bit++) {
        self->stripe->data[bit / 8] ^= (uint8_t) (1 << bit % 8);
        ASSERT_FOUND (self, self->stripe, 2);
        self->stripe->data[bit / 8] ^= (uint8_t) (1 << bit % 8);
    }
}

/* A file whose content is a record, or a whole log, makes none: not where it is stored in one, nor where it is torn. */
static void test_content_is_no_record (Fixture *self, gconstpointer unused)
{
    (void) unused;
    const EcfsLogRecord forged = some_record (self, 666, 5000);
    EcfsLogRecord record = some_record (self, 1, 0);
    g_autoptr (GByteArray) inner = ecfs_log_record_format (&forged, &log_uuid, 0); /* of the first place */
    g_autofree uint8_t *file = g_malloc0 (BLOCK + inner->len);
    size_t lead = BLOCK - ecfs_log_content_offset (&record);
    memcpy (file + lead, inner->data, inner->len);
    record.content = file;
    record.content_bytes = lead + inner->len;
    g_autoptr (GByteArray) bytes = ecfs_log_record_format (&record, &log_uuid, 0);
    g_assert_cmpmem (bytes->data + BLOCK, (int) inner->len, inner->data, (int) inner->len);
    append_bytes (self, bytes->data, bytes->len);
    ASSERT_FOUND (self, self->stripe, 1);
    self->stripe->data[self->header.header_bytes + 20] ^= 1; /* then it is looked for in what it has */
    assert_found (self, self->stripe->data, self->stripe->len, 0, NULL);
}

/* Blocks of another stripe, log or archive key are none of this one. */
static void test_foreign (Fixture *self, gconstpointer is_sealed)
{
    append (self, 1, 3000);
    Fixture other = {.header = {.index = 0}};
    set_up (&other, is_sealed);
    if (is_sealed != NULL) {
        assert_found (&other, self->stripe->data, self->stripe->len, 0, NULL);
        other.header.seal = self->header.seal;
        ecfs_seal_keys_unref (other.keys);
        other.keys = ecfs_seal_keys_ref (self->keys);
    }
    ASSERT_FOUND (&other, self->stripe, 1);
    other.header.index = 1;
    assert_found (&other, self->stripe->data, self->stripe->len, 0, NULL);
    other.header.index = 2;
    other.header.object.bytes[5] ^= 1;
    assert_found (&other, self->stripe->data, self->stripe->len, 0, NULL);
    tear_down (&other, is_sealed);
}

static void test_header (Fixture *self, gconstpointer unused)
{
    (void) unused;
    g_autoptr (GError) error = NULL;
    EcfsStripeHeader read, plain = self->header;
    EcfsLayout layout;
    g_assert_true (ecfs_stripe_header_parse (self->stripe->data, self->stripe->len, &read, &error));
    g_assert_no_error (error);
    g_assert_true (read.is_log);
    g_assert_true (ecfs_stripe_header_check (&read, self->stripe->data, self->keys, &error));
    g_assert_true (ecfs_log_layout (&read, 100 * BLOCK, &layout));
    g_assert_cmpuint (layout.header_bytes, ==, self->stripe->len);
    g_assert_cmpuint (ecfs_layout_block_offset (&layout, 1, 36), ==,
                      ecfs_log_stripe_bytes (self->stripe->len, &read.seal, 100 * BLOCK));
    g_assert_false (ecfs_log_layout (&read, ECFS_LOG_MAX_BYTES + 1, &layout));
    plain.is_log = false;
    g_autoptr (GByteArray) other = ecfs_stripe_header_format (&plain, self->keys);
    g_assert_true (ecfs_stripe_header_parse (other->data, other->len, &read, &error));
    g_assert_false (read.is_log);
    g_assert_false (ecfs_log_layout (&read, BLOCK, &layout));
}

int main (int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*test) (Fixture *self, gconstpointer is_sealed);
    } cases[] = {{"is-read-as-it-was-written", test_round_trip},
                 {"counts-up-to-where-it-is-cut-off", test_cut},
                 {"is-read-behind-holes", test_holes},
                 {"has-no-bit-that-does-not-count", test_every_bit},
                 {"has-no-records-in-content-of-files", test_content_is_no_record},
                 {"is-no-other", test_foreign},
                 {"says-what-it-is", test_header}};
    g_test_init (&argc, &argv, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        g_autofree char *open = g_strconcat ("/log/an-open-one-", cases[i].name, NULL);
        g_autofree char *sealed = g_strconcat ("/log/a-sealed-one-", cases[i].name, NULL);
        g_test_add (open, Fixture, NULL, set_up, cases[i].test, tear_down);
        g_test_add (sealed, Fixture, GINT_TO_POINTER (1), set_up, cases[i].test, tear_down);
    }
    return g_test_run ();
}
