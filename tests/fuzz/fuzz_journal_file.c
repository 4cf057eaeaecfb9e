/* A segment or a part of a snapshot, as an endpoint gives it back, and its name. */
#include "catalog/journal_file.h"

#include "util/bytes.h"

#include <xxhash.h>

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

static void parse (const uint8_t *bytes, size_t size)
{
    EcfsJournalFile file;
    g_autoptr (GPtrArray) rows = ecfs_journal_file_parse (bytes, size, &file, NULL);
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
    parse (copy, size);
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
    parse (bytes, size);
    parse_repaired (bytes, size);
    return 0;
}
