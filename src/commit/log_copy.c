/* A copy of a log that has ended, at another endpoint or in place of one that is lost. */
#include "commit/commit_priv.h"

#include "archive/common.h"
#include "archive/content.h"
#include "key/cipher.h"
#include "object/log.h"

/* The content as stripes have it: enciphered as before, so that nothing new comes under the log's key. */
static uint8_t *read_stored (EcfsArchive *archive, const EcfsObjectRow *log, const EcfsSealKeys *keys, GError **error)
{
    size_t got = 0;
    g_autofree uint8_t *bytes = g_malloc (log->size + 1);
    EcfsContent *content = ecfs_content_open_object (archive, log->id, error);
    bool fine = content != NULL && ecfs_content_read_wait (content, 0, log->size, bytes, &got, error) &&
                (got == log->size || ecfs_fail (error, EIO, "it ends before its size"));
    ecfs_content_unref (content);
    if (!fine)
        return NULL;
    if (keys != NULL) {
        EcfsCipher *cipher = ecfs_cipher_new (keys->content, 0);
        ecfs_cipher_next (cipher, bytes, log->size);
        ecfs_cipher_free (cipher);
    }
    return g_steal_pointer (&bytes);
}

static bool write_copy (const EcfsCommitAttempt *self, const EcfsObjectRow *log, const EcfsSealKeys *keys,
                        const EcfsStripeRow *stripe, const uint8_t *stored, GError **error)
{
    char name[ECFS_STRIPE_NAME_SIZE];
    const EcfsTagger tagger = {.object = log->uuid, .mac = ecfs_seal_tag_mac (keys)};
    EcfsStripeHeader header = ecfs_attempt_header (self->archive, log, self->places.codec);
    header.index = stripe->index;
    header.instance = stripe->instance;
    g_autoptr (GByteArray) bytes = ecfs_stripe_header_format (&header, keys);
    g_autoptr (GByteArray) blocks = ecfs_log_blocks (&tagger, stripe->index, 0, stored, log->size);
    g_byte_array_append (bytes, blocks->data, blocks->len);
    ecfs_stripe_name (&log->uuid, stripe->index, stripe->instance, name);
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (self->archive, stripe->endpoint);
    return ecfs_endpoint_write_wait (endpoint->endpoint, name, bytes->data, bytes->len, error);
}

GArray *ecfs_attempt_copy_log (EcfsCommitAttempt *self, const EcfsObjectRow *log, const GArray *stripes,
                               GString *failures, GError **error)
{
    g_autoptr (EcfsSealKeys) keys = NULL;
    if (!ecfs_archive_seal_keys (self->archive, log, &keys, error))
        return NULL;
    g_autofree uint8_t *stored = read_stored (self->archive, log, keys, error);
    if (stored == NULL)
        return NULL;
    GArray *copied = g_array_new (FALSE, TRUE, sizeof (EcfsStripeRow));
    for (guint i = 0; i < stripes->len; i++) {
        g_autoptr (GError) why = NULL;
        const EcfsStripeRow *stripe = &g_array_index (stripes, EcfsStripeRow, i);
        if (write_copy (self, log, keys, stripe, stored, &why))
            g_array_append_val (copied, *stripe);
        else
            g_string_append_printf (failures, "%s%s", failures->len > 0 ? "; " : "", why->message);
    }
    return copied;
}
