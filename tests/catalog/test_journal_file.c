/* Files of the journal that are sealed under the archive's key: who has not that key neither reads nor makes any. */
#include "catalog/journal_file.h"

#include "util/bytes.h"
#include "util/xxh3.h"

#include <zlib.h>

#define HEAD_BYTES ECFS_JOURNAL_HEADER_BYTES
#define SECRET     "a name that nobody is to learn"
#define N_RECORDS  20

static EcfsKeyRing *keys;   /* of the archive */
static EcfsKeyRing *others; /* of the same archive, and not the one that it is under */

/* A segment, or the last part of a snapshot; @epoch makes them different. */
static EcfsJournalFile some_head (EcfsJournalFileKind kind, uint32_t epoch)
{
    bool segment = kind == ECFS_JOURNAL_SEGMENT;
    return (EcfsJournalFile){.archive = *ecfs_key_ring_archive (keys),
                             .kind = kind,
                             .epoch = epoch,
                             .part = segment ? 0 : epoch,
                             .is_last = !segment && epoch % 2 == 0,
                             .first = segment ? 10 * epoch : 0,
                             .last = 10 * epoch + N_RECORDS - 1,
                             .time_ns = 1000 + epoch,
                             .n_records = N_RECORDS};
}

static GByteArray *some_records (const EcfsJournalFile *file)
{
    GByteArray *raw = g_byte_array_new ();
    for (uint64_t i = 0; i < N_RECORDS; i++)
        ecfs_journal_file_put (raw, file->kind == ECFS_JOURNAL_SEGMENT ? file->first + i : file->last,
                               1000 + (int64_t) i, (const uint8_t *) SECRET, sizeof SECRET - 1);
    return raw;
}

static GByteArray *some_file (EcfsJournalFileKind kind, uint32_t epoch, const EcfsKeyRing *under)
{
    EcfsJournalFile file = some_head (kind, epoch);
    g_autoptr (GByteArray) raw = some_records (&file);
    return ecfs_journal_file_format (&file, raw, under);
}

/* The code of what a reader with @ring says; 0: it takes it. */
static int code_of (const uint8_t *bytes, size_t size, const EcfsKeyRing *ring)
{
    EcfsJournalFile file;
    g_autoptr (GError) error = NULL;
    g_autofree uint8_t *exact = g_memdup2 (bytes, size); /* where reading beyond is seen */
    g_autoptr (GPtrArray) rows = ecfs_journal_file_parse (exact, size, ring, &file, &error);
    g_assert_true ((rows == NULL) == (error != NULL));
    return error == NULL ? 0 : error->code;
}

/* Makes the checksums right, as anybody can. */
static void put_checksums (uint8_t *bytes, size_t size)
{
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash (&digest, ecfs_xxh3_128 (bytes + HEAD_BYTES, size - HEAD_BYTES));
    memcpy (bytes + 88, digest.digest, sizeof digest.digest);
    ecfs_put_le (bytes + 136, ecfs_xxh3_64 (bytes, 136), 8);
}

static void test_sealed (void)
{
    for (EcfsJournalFileKind kind = ECFS_JOURNAL_SEGMENT; kind <= ECFS_JOURNAL_SNAPSHOT; kind++) {
        EcfsJournalFile head, file;
        g_autoptr (GError) error = NULL;
        g_autoptr (GByteArray) bytes = some_file (kind, 3, keys), again = some_file (kind, 3, keys);
        g_autoptr (GPtrArray) rows = ecfs_journal_file_parse (bytes->data, bytes->len, keys, &file, &error);
        g_assert_no_error (error);
        g_assert_cmpuint (rows->len, ==, N_RECORDS);
        const EcfsJournalRow *row = g_ptr_array_index (rows, 7);
        g_assert_cmpint (row->time_ns, ==, 1007);
        g_assert_cmpmem (row->record->data, row->record->len, SECRET, sizeof SECRET - 1);
        g_assert_true (ecfs_journal_file_head (bytes->data, bytes->len, &head, &error)); /* which needs no key */
        g_assert_true (head.is_sealed && file.is_sealed && head.epoch == 3 && head.last == 49);
        g_assert_true (ecfs_uuid_equal (&head.key, ecfs_key_ring_active (keys)));
        g_assert_cmpuint (again->len, ==, bytes->len);
        g_assert_true (memcmp (again->data + 120, bytes->data + 120, 16) != 0);
        g_assert_true (memcmp (again->data + HEAD_BYTES, bytes->data + HEAD_BYTES, bytes->len - HEAD_BYTES) != 0);
    }
}

static void test_other_keys (void)
{
    const EcfsUuid another = ecfs_uuid_new ();
    g_autoptr (EcfsKeyRing) foreign = ecfs_key_ring_new (&another);
    g_autoptr (GByteArray) bytes = some_file (ECFS_JOURNAL_SEGMENT, 3, keys);
    g_autoptr (GByteArray) open = some_file (ECFS_JOURNAL_SEGMENT, 3, NULL);
    EcfsJournalFile head;
    g_assert_cmpint (code_of (bytes->data, bytes->len, NULL), ==, ENOKEY);
    g_assert_cmpint (code_of (bytes->data, bytes->len, others), ==, ENOKEY);
    g_assert_cmpint (code_of (bytes->data, bytes->len, foreign), ==, ENOKEY);
    memcpy (bytes->data + 104, ecfs_key_ring_active (others)->bytes, 16); /* as if it were that one */
    put_checksums (bytes->data, bytes->len);
    g_assert_cmpint (code_of (bytes->data, bytes->len, others), ==, EBADMSG);
    g_assert_cmpint (code_of (open->data, open->len, NULL), ==, 0);
    g_assert_cmpint (code_of (open->data, open->len, keys), ==, EBADMSG); /* nobody gets an archive to take it */
    g_assert_true (ecfs_journal_file_head (open->data, open->len, &head, NULL));
    g_assert_true (!head.is_sealed && ecfs_uuid_is_nil (&head.key));
    ecfs_put_le (bytes->data + 14, 2, 2);
    put_checksums (bytes->data, bytes->len);
    g_assert_cmpint (code_of (bytes->data, bytes->len, keys), ==, ENOTSUP);
}

/* Each bit, by itself and with checksums that fit. There is none that may be another. */
static void test_every_bit (void)
{
    for (EcfsJournalFileKind kind = ECFS_JOURNAL_SEGMENT; kind <= ECFS_JOURNAL_SNAPSHOT; kind++) {
        g_autoptr (GByteArray) bytes = some_file (kind, 4, keys);
        for (size_t bit = 0; bit < 8 * (size_t) bytes->len; bit++) {
            bytes->data[bit / 8] ^= (uint8_t) (1u << bit % 8);
            g_assert_cmpint (code_of (bytes->data, bytes->len, keys), !=, 0);
            g_autofree uint8_t *repaired = g_memdup2 (bytes->data, bytes->len);
            put_checksums (repaired, bytes->len);
            bool is_checksum = (bit / 8 >= 88 && bit / 8 < 104) || (bit / 8 >= 136 && bit / 8 < HEAD_BYTES);
            g_assert_true ((code_of (repaired, bytes->len, keys) == 0) == is_checksum); /* which was put right */
            bytes->data[bit / 8] ^= (uint8_t) (1u << bit % 8);
        }
        g_assert_cmpint (code_of (bytes->data, bytes->len, keys), ==, 0);
    }
}

static void test_every_length (void)
{
    g_autoptr (GByteArray) bytes = some_file (ECFS_JOURNAL_SEGMENT, 3, keys);
    g_autofree uint8_t *copy = g_malloc0 (bytes->len + 40u);
    for (size_t size = 0; size < bytes->len + 40u; size++) {
        memcpy (copy, bytes->data, MIN (size, bytes->len));
        g_assert_true ((code_of (copy, size, keys) == 0) == (size == bytes->len));
        if (size < HEAD_BYTES)
            continue;
        ecfs_put_le (copy + 80, size - HEAD_BYTES, 8);
        put_checksums (copy, size);
        g_assert_true ((code_of (copy, size, keys) == 0) == (size == bytes->len));
    }
}

/* Nothing of a header can be exchanged for that of another file of the archive, nor what is behind it. */
static void test_exchanged (void)
{
    static const struct Field {
        const char *name;
        size_t at, size;
    } fields[] = {{"kind", 10, 2},
                  {"epoch", 32, 4},
                  {"part", 36, 4},
                  {"is_last", 40, 4},
                  {"first", 48, 8},
                  {"last", 56, 8},
                  {"first and last", 48, 16},
                  {"time", 64, 8},
                  {"all of these", 32, 40},
                  {"random", 120, 16},
                  {"key and random", 104, 32},
                  {"head", 0, HEAD_BYTES}};
    for (unsigned round = 0; round < 3; round++) {
        EcfsJournalFileKind kind = round == 0 ? ECFS_JOURNAL_SNAPSHOT : ECFS_JOURNAL_SEGMENT;
        g_autoptr (GByteArray) to = some_file (kind, 6, keys);
        g_autoptr (GByteArray) from = some_file (round == 2 ? ECFS_JOURNAL_SNAPSHOT : kind, 7, keys);
        for (size_t i = 0; i < G_N_ELEMENTS (fields); i++) {
            g_autofree uint8_t *copy = g_memdup2 (to->data, to->len);
            bool same = memcmp (copy + fields[i].at, from->data + fields[i].at, fields[i].size) == 0;
            memcpy (copy + fields[i].at, from->data + fields[i].at, fields[i].size);
            ecfs_put_le (copy + 80, to->len - HEAD_BYTES, 8);
            put_checksums (copy, to->len);
            g_test_message ("%s of %u", fields[i].name, round);
            g_assert_cmpint (code_of (copy, to->len, keys) == 0, ==, same);
        }
    }
}

static bool has_text (const uint8_t *bytes, size_t size, const char *text)
{
    return memmem (bytes, size, text, strlen (text)) != NULL;
}

/* Whether anything in it uncompresses to something with the text. */
static bool is_legible (const uint8_t *bytes, size_t size, const char *text)
{
    uint8_t to[4096];
    for (size_t at = 0; at < size; at++)
        for (int raw = 0; raw < 2; raw++) {
            z_stream stream = {.next_in = (Bytef *) bytes + at,
                               .avail_in = (uInt) (size - at),
                               .next_out = to,
                               .avail_out = sizeof to};
            g_assert_cmpint (inflateInit2 (&stream, raw ? -MAX_WBITS : MAX_WBITS), ==, Z_OK);
            (void) inflate (&stream, Z_SYNC_FLUSH); /* mostly it is no stream */
            (void) inflateEnd (&stream);
            if (has_text (to, sizeof to - stream.avail_out, text))
                return true;
        }
    return has_text (bytes, size, text);
}

static void test_illegible (void)
{
    g_autoptr (GByteArray) bytes = some_file (ECFS_JOURNAL_SEGMENT, 3, keys);
    g_autoptr (GByteArray) open = some_file (ECFS_JOURNAL_SEGMENT, 3, NULL);
    g_assert_true (is_legible (open->data, open->len, SECRET));
    g_assert_false (is_legible (bytes->data, bytes->len, SECRET));
}

/* As ecfs-format(5) tells it to strangers, who promise @raw_bytes in the header. */
static GByteArray *sealed_by_hand (const EcfsJournalFile *file, const GByteArray *raw, uint64_t raw_bytes)
{
    uint8_t key[ECFS_KEY_BYTES], bound[120];
    uLongf size = compressBound (raw->len);
    g_autofree uint8_t *payload = g_malloc (size);
    g_assert_cmpint (compress (payload, &size, raw->data, raw->len), ==, Z_OK);
    g_autoptr (GByteArray) to = g_byte_array_new ();
    g_byte_array_append (to,
                         (const uint8_t *) "\x89"
                                           "ECJ\r\n\x1a\n",
                         8);
    ecfs_append_le (to, 1, 2);
    ecfs_append_le (to, file->kind, 2);
    ecfs_append_le (to, 1, 2);
    ecfs_append_le (to, 1, 2);
    g_byte_array_append (to, file->archive.bytes, 16);
    ecfs_append_le (to, file->epoch, 4);
    ecfs_append_le (to, file->part, 4);
    ecfs_append_le (to, file->is_last, 4);
    ecfs_append_le (to, file->n_records, 4);
    ecfs_append_le (to, file->first, 8);
    ecfs_append_le (to, file->last, 8);
    ecfs_append_le (to, (uint64_t) file->time_ns, 8);
    ecfs_append_le (to, raw_bytes, 8);
    ecfs_append_le (to, size + ECFS_KEY_SEALED_BYTES, 8);
    g_byte_array_set_size (to, HEAD_BYTES);
    memcpy (to->data + 104, ecfs_key_ring_active (keys)->bytes, 16);
    memcpy (to->data + 120, "sixteen at will.", 16);
    memcpy (bound, to->data, 88);
    memcpy (bound + 88, to->data + 104, 32);
    g_assert_true (ecfs_key_ring_derive (keys, ecfs_key_ring_active (keys), ECFS_KEY_USE_JOURNAL, "sixteen at will.",
                                         16, key, NULL));
    g_autoptr (GByteArray) sealed = ecfs_key_seal (key, bound, sizeof bound, payload, size);
    g_byte_array_append (to, sealed->data, sealed->len);
    put_checksums (to->data, to->len);
    return g_steal_pointer (&to);
}

/* Another machine with the key may have gone mad. */
static void test_bounds (void)
{
    EcfsJournalFile file = some_head (ECFS_JOURNAL_SEGMENT, 3);
    g_autoptr (GByteArray) raw = some_records (&file), zeros = g_byte_array_new ();
    const struct Promise {
        uint64_t raw_bytes;
        int code;
    } promises[] = {{raw->len, 0},
                    {raw->len - 1u, EBADMSG},
                    {raw->len + 1u, EBADMSG},
                    {0, EBADMSG},
                    {1u << 20, EBADMSG}, /* more than deflate can make of it */
                    {ECFS_JOURNAL_FILE_MAX + 1u, EBADMSG},
                    {UINT64_MAX, EBADMSG}};
    for (size_t i = 0; i < G_N_ELEMENTS (promises); i++) {
        g_autoptr (GByteArray) bytes = sealed_by_hand (&file, raw, promises[i].raw_bytes);
        g_assert_cmpint (code_of (bytes->data, bytes->len, keys), ==, promises[i].code);
    }
    g_byte_array_set_size (zeros, 16u << 20);
    memset (zeros->data, 0, zeros->len);
    g_autoptr (GByteArray) bomb = sealed_by_hand (&file, zeros, raw->len);
    g_assert_cmpint (code_of (bomb->data, bomb->len, keys), ==, EBADMSG);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    const EcfsUuid archive = ecfs_uuid_new ();
    keys = ecfs_key_ring_new (&archive);
    others = ecfs_key_ring_new (&archive);
    g_test_add_func ("/journal-file/what-was-sealed-is-read-with-the-key", test_sealed);
    g_test_add_func ("/journal-file/other-keys-and-none-open-nothing", test_other_keys);
    g_test_add_func ("/journal-file/no-bit-of-a-sealed-file-may-be-another", test_every_bit);
    g_test_add_func ("/journal-file/a-sealed-file-has-one-length", test_every_length);
    g_test_add_func ("/journal-file/headers-of-sealed-files-are-not-exchanged", test_exchanged);
    g_test_add_func ("/journal-file/a-sealed-file-tells-no-name", test_illegible);
    g_test_add_func ("/journal-file/a-sealed-file-promises-what-it-has", test_bounds);
    int result = g_test_run ();
    ecfs_key_ring_unref (keys);
    ecfs_key_ring_unref (others);
    return result;
}
