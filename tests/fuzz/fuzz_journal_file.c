/* A segment or a part of a snapshot, as an endpoint gives it back, and its name; sealed too, in an archive with a key.
 */
#include "catalog/journal_file.h"

#include "util/bytes.h"

#include <xxhash.h>

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

#define SALT_AT 120

/* The same each time, so that seeds are sealed under it. */
static const EcfsKeyRing *fixed_ring (void)
{
    static const uint8_t head[] = {0x89, 'E', 'C', 'R', '\r', '\n', 0x1a, '\n', 1, 0, 1};
    static EcfsKeyRing *ring;
    uint8_t bytes[72] = {0};
    if (ring != NULL)
        return ring;
    memcpy (bytes, head, sizeof head);
    memset (bytes + 16, 'a', 16);
    memset (bytes + 32, 'k', ECFS_KEY_BYTES);
    ecfs_put_le (bytes + 64, XXH3_64bits (bytes, 64), 8);
    ring = ecfs_key_ring_parse (bytes, sizeof bytes, NULL);
    g_assert_nonnull (ring);
    return ring;
}

static void parse (const uint8_t *bytes, size_t size, const EcfsKeyRing *keys)
{
    EcfsJournalFile file;
    g_autoptr (GPtrArray) rows = ecfs_journal_file_parse (bytes, size, keys, &file, NULL);
    for (guint i = 0; rows != NULL && i < rows->len; i++)
        g_assert_nonnull (((const EcfsJournalRow *) g_ptr_array_index (rows, i))->record);
}

/* The checksums made right, so that what is behind them is reached. */
static void parse_repaired (const uint8_t *bytes, size_t size)
{
    if (size < ECFS_JOURNAL_HEADER_BYTES)
        return;
    g_autofree uint8_t *copy = g_memdup2 (bytes, size);
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash (&digest,
                              XXH3_128bits (copy + ECFS_JOURNAL_HEADER_BYTES, size - ECFS_JOURNAL_HEADER_BYTES));
    ecfs_put_le (copy + 80, size - ECFS_JOURNAL_HEADER_BYTES, 8);
    memcpy (copy + 88, digest.digest, sizeof digest.digest);
    ecfs_put_le (copy + 136, XXH3_64bits (copy, 136), 8);
    parse (copy, size, NULL);
    parse (copy, size, fixed_ring ());
}

/* Sealed by somebody with the key, whatever it is, so that what is behind the seal is reached. */
static void parse_sealed (const uint8_t *bytes, size_t size)
{
    uint8_t key[ECFS_KEY_BYTES], bound[120];
    const EcfsUuid *id = ecfs_key_ring_active (fixed_ring ());
    if (size < ECFS_JOURNAL_HEADER_BYTES)
        return;
    g_autoptr (GByteArray) copy = g_byte_array_new ();
    g_byte_array_append (copy, bytes, ECFS_JOURNAL_HEADER_BYTES);
    ecfs_put_le (copy->data + 14, 1, 2);
    ecfs_put_le (copy->data + 80, size - ECFS_JOURNAL_HEADER_BYTES + ECFS_KEY_SEALED_BYTES, 8);
    memcpy (copy->data + 104, id->bytes, sizeof id->bytes);
    memcpy (bound, copy->data, 88);
    memcpy (bound + 88, copy->data + 104, 32);
    g_assert_true (ecfs_key_ring_derive (fixed_ring (), id, ECFS_KEY_USE_JOURNAL, bytes + SALT_AT, 16, key, NULL));
    g_autoptr (GByteArray) sealed =
        ecfs_key_seal (key, bound, sizeof bound, bytes + ECFS_JOURNAL_HEADER_BYTES, size - ECFS_JOURNAL_HEADER_BYTES);
    g_byte_array_append (copy, sealed->data, sealed->len);
    parse_repaired (copy->data, copy->len);
}

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    EcfsJournalFile file;
    g_autofree char *name = g_strndup ((const char *) bytes, size);
    if (ecfs_journal_file_name_parse (name, &file)) {
        char again[ECFS_JOURNAL_NAME_SIZE];
        ecfs_journal_file_name (&file, again);
        g_assert_cmpstr (again, ==, name);
    }
    parse (bytes, size, NULL);
    parse (bytes, size, fixed_ring ());
    parse_repaired (bytes, size);
    parse_sealed (bytes, size);
    return 0;
}
