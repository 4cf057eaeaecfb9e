/* What S3 servers say: documents in pieces of any size, and the keys and numbers of uploads in them. */
#include "endpoint/core/driver.h"
#include "endpoint/s3/s3_text.h"

#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

static void on_entry (void *user, const EcfsS3Entry *entry)
{
    (void) user;
    g_assert_nonnull (entry->key);
    if (entry->upload_id == NULL || !ecfs_stored_name_valid (entry->key))
        return;
    g_autofree char *name = ecfs_s3_unfinished_name (entry->key, entry->upload_id);
    g_assert_true (ecfs_stored_name_valid (name) && g_str_has_prefix (name, "incoming/"));
}

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    if (size == 0)
        return 0;
    const char *root = bytes[0] % 2 == 0 ? NULL : ECFS_S3_OBJECTS;
    size_t piece = bytes[0] + 1u;
    g_autoptr (EcfsS3Parser) parser = ecfs_s3_parser_new (root, on_entry, NULL);
    g_autoptr (GError) error = NULL;
    bool good = true;
    for (size_t at = 1; good && at < size; at += piece)
        good = ecfs_s3_parser_feed (parser, bytes + at, MIN (piece, size - at), &error);
    good = good && ecfs_s3_parser_end (parser, &error);
    g_assert_true (good || ecfs_errno (error) == EPROTO);
    g_assert_true (!good || ecfs_s3_parser_values (parser)->root != NULL);
    g_assert_true (!good || root == NULL || strcmp (ecfs_s3_parser_values (parser)->root, root) == 0);
    return 0;
}
