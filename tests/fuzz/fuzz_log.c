/*
 * A stripe of a log, whose content may be anything: what looks like a record gets its checksum, or no input would be
 * one. Each record that is found is within what is there, and makes the same bytes when it is formatted again.
 */
#include "object/log.h"
#include "util/bytes.h"
#include "util/xxh3.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

static const uint8_t magic[8] = {0x89, 'E', 'C', 'R', '\r', '\n', 0x1a, '\n'};

#define DIGEST_AT 56

static const EcfsStripeHeader *fixed_header (void)
{
    static EcfsStripeHeader header = {.archive = {{1}},
                                      .object = {{2}},
                                      .instance = 3,
                                      .family = ECFS_CODE_COPIES,
                                      .k = 1,
                                      .n_written = 3,
                                      .segment_bytes = 1u << 20,
                                      .block_bytes = ECFS_LOG_BLOCK_BYTES,
                                      .granule = 1,
                                      .is_log = true};
    if (header.header_bytes == 0)
        g_byte_array_unref (ecfs_stripe_header_format (&header, NULL));
    return &header;
}

static void mend (uint8_t *content, size_t size, const EcfsUuid *log)
{
    for (size_t at = 0; size - at >= ECFS_LOG_HEAD_BYTES && at < size; at += ECFS_LOG_BLOCK_BYTES) {
        uint8_t place[8], *record = content + at;
        size_t end = ECFS_LOG_HEAD_BYTES + ecfs_get_le (record + 10, 2) + ecfs_get_le (record + 12, 4);
        XXH128_canonical_t digest;
        if (memcmp (record, magic, sizeof magic) != 0 || end > size - at)
            continue;
        ecfs_put_le (place, at, sizeof place);
        XXH3_state_t *state = XXH3_createState ();
        (void) XXH3_128bits_reset (state);
        ecfs_xxh3_128_update (state, log->bytes, sizeof log->bytes);
        ecfs_xxh3_128_update (state, place, sizeof place);
        ecfs_xxh3_128_update (state, record, DIGEST_AT);
        ecfs_xxh3_128_update (state, record + ECFS_LOG_HEAD_BYTES, end - ECFS_LOG_HEAD_BYTES);
        XXH128_canonicalFromHash (&digest, XXH3_128bits_digest (state));
        (void) XXH3_freeState (state);
        memcpy (record + DIGEST_AT, digest.digest, sizeof digest.digest);
    }
}

typedef struct Content {
    const uint8_t *bytes;
    size_t size;
} Content;

static void check_record (void *user, const EcfsLogRecord *record, uint64_t offset)
{
    const Content *content = user;
    g_assert_cmpuint (offset % ECFS_LOG_BLOCK_BYTES, ==, 0);
    g_assert_true (record->content_bytes > 0 && record->content_bytes <= ECFS_LOG_FILE_MAX);
    g_assert_null (memchr (record->path, 0, record->path_bytes));
    size_t used = ecfs_log_content_offset (record) + record->content_bytes;
    g_assert_cmpuint (used, <=, content->size - offset);
    g_autoptr (GByteArray) again = ecfs_log_record_format (record, &fixed_header ()->object, offset);
    g_assert_true (memcmp (again->data, content->bytes + offset, used) == 0);
}

static void ignore_record (void *user, const EcfsLogRecord *record, uint64_t offset)
{
    (void) user;
    (void) record;
    (void) offset;
}

static void try_log (uint8_t *content, size_t size)
{
    const EcfsStripeHeader *header = fixed_header ();
    const EcfsTagger tagger = {.object = header->object};
    g_autoptr (GByteArray) stripe = ecfs_stripe_header_format (&(EcfsStripeHeader){0}, NULL);
    mend (content, size, &header->object);
    g_byte_array_set_size (stripe, header->header_bytes); /* it is parsed already */
    g_autoptr (GByteArray) blocks = ecfs_log_blocks (&tagger, 0, 0, content, size);
    g_byte_array_append (stripe, blocks->data, blocks->len);
    Content whole = {.bytes = content, .size = size};
    (void) ecfs_log_each_record (stripe->data, stripe->len, header, NULL, check_record, &whole);
}

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    size_t blocks = (size + ECFS_LOG_BLOCK_BYTES - 1) / ECFS_LOG_BLOCK_BYTES;
    uint8_t *content = calloc (blocks + 1, ECFS_LOG_BLOCK_BYTES);
    memcpy (content, bytes, size);
    try_log (content, blocks * ECFS_LOG_BLOCK_BYTES);
    free (content);
    const EcfsStripeHeader *header = fixed_header ();
    uint8_t *torn = malloc (MAX (size, 1)); /* a sanitizer sees what is read behind it */
    memcpy (torn, bytes, size);
    (void) ecfs_log_each_record (torn, size, header, NULL, ignore_record, NULL);
    free (torn);
    return 0;
}
