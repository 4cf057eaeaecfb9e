#include "object/log.h"

#include "key/cipher.h"
#include "util/bytes.h"
#include "util/xxh3.h"

#define VERSION      1
#define HASHED_BYTES 56
#define DIGEST_BYTES 16

static const uint8_t magic[8] = {0x89, 'E', 'C', 'R', '\r', '\n', 0x1a, '\n'};

static size_t whole_blocks (size_t size)
{
    return (size + ECFS_LOG_BLOCK_BYTES - 1) / ECFS_LOG_BLOCK_BYTES * ECFS_LOG_BLOCK_BYTES;
}

static size_t path_bytes (const EcfsLogRecord *record)
{
    return MIN (record->path_bytes, ECFS_LOG_PATH_MAX);
}

size_t ecfs_log_content_offset (const EcfsLogRecord *record)
{
    return ECFS_LOG_HEAD_BYTES + path_bytes (record);
}

/* Of where it is, and of head, path and content, which are one behind the other but for the digest. */
static void digest_of (const EcfsUuid *log, uint64_t offset, const uint8_t *bytes, size_t size,
                       uint8_t ret_digest[DIGEST_BYTES])
{
    uint8_t place[8];
    XXH128_canonical_t canonical;
    XXH3_state_t *state = XXH3_createState ();
    ecfs_put_le (place, offset, sizeof place);
    XXH3_128bits_reset (state);
    ecfs_xxh3_128_update (state, log->bytes, sizeof log->bytes);
    ecfs_xxh3_128_update (state, place, sizeof place);
    ecfs_xxh3_128_update (state, bytes, HASHED_BYTES);
    ecfs_xxh3_128_update (state, bytes + ECFS_LOG_HEAD_BYTES, size - ECFS_LOG_HEAD_BYTES);
    XXH128_canonicalFromHash (&canonical, XXH3_128bits_digest (state));
    XXH3_freeState (state);
    memcpy (ret_digest, canonical.digest, DIGEST_BYTES);
}

GByteArray *ecfs_log_record_format (const EcfsLogRecord *record, const EcfsUuid *log, uint64_t offset)
{
    uint8_t digest[DIGEST_BYTES] = {0};
    size_t size = ecfs_log_content_offset (record) + record->content_bytes;
    GByteArray *to = g_byte_array_sized_new ((guint) whole_blocks (size));
    g_byte_array_append (to, magic, sizeof magic);
    ecfs_append_le (to, VERSION, 2);
    ecfs_append_le (to, path_bytes (record), 2);
    ecfs_append_le (to, record->content_bytes, 4);
    ecfs_append_le (to, record->ino, 8);
    ecfs_append_le (to, record->sequence, 8);
    ecfs_append_le (to, record->epoch, 4);
    ecfs_append_le (to, record->mode, 4);
    ecfs_append_le (to, record->uid, 4);
    ecfs_append_le (to, record->gid, 4);
    ecfs_append_le (to, (uint64_t) record->mtime_ns, 8);
    g_byte_array_append (to, digest, sizeof digest);
    g_byte_array_append (to, (const uint8_t *) record->path, (guint) path_bytes (record));
    g_byte_array_append (to, record->content, (guint) record->content_bytes);
    digest_of (log, offset, to->data, size, digest);
    memcpy (to->data + HASHED_BYTES, digest, sizeof digest);
    g_byte_array_set_size (to, (guint) whole_blocks (size));
    memset (to->data + size, 0, to->len - size);
    return to;
}

bool ecfs_log_record_parse (const uint8_t *bytes, size_t size, const EcfsUuid *log, uint64_t offset,
                            EcfsLogRecord *ret_record, size_t *ret_bytes, GError **error)
{
    uint8_t digest[DIGEST_BYTES], own[DIGEST_BYTES];
    EcfsCursor from = {.at = bytes, .left = size};
    const uint8_t *found = ecfs_cursor_bytes (&from, sizeof magic);
    if (found == NULL || memcmp (found, magic, sizeof magic) != 0)
        return ecfs_fail (error, EBADMSG, "there is no record of a log");
    if (ecfs_cursor_le (&from, 2) != VERSION)
        return ecfs_fail (error, ENOTSUP, "a later ecfs wrote the record");
    EcfsLogRecord record = {.path_bytes = ecfs_cursor_le (&from, 2), .content_bytes = ecfs_cursor_le (&from, 4)};
    record.ino = ecfs_cursor_le (&from, 8);
    record.sequence = ecfs_cursor_le (&from, 8);
    record.epoch = (uint32_t) ecfs_cursor_le (&from, 4);
    record.mode = (uint32_t) ecfs_cursor_le (&from, 4);
    record.uid = (uint32_t) ecfs_cursor_le (&from, 4);
    record.gid = (uint32_t) ecfs_cursor_le (&from, 4);
    record.mtime_ns = (int64_t) ecfs_cursor_le (&from, 8);
    ecfs_cursor_copy (&from, digest, sizeof digest);
    record.path = (const char *) ecfs_cursor_bytes (&from, record.path_bytes);
    record.content = ecfs_cursor_bytes (&from, record.content_bytes);
    if (from.bad)
        return ecfs_fail (error, EBADMSG, "the record is cut off");
    size_t used = ecfs_log_content_offset (&record) + record.content_bytes;
    if (record.path_bytes > ECFS_LOG_PATH_MAX || memchr (record.path, 0, record.path_bytes) != NULL ||
        record.content_bytes == 0 || record.content_bytes > ECFS_LOG_FILE_MAX || record.ino > INT64_MAX ||
        record.sequence > INT64_MAX || whole_blocks (used) > size)
        return ecfs_fail (error, EBADMSG, "the record makes no sense");
    digest_of (log, offset, bytes, used, own); /* behind the checks, which bound what is summed in vain */
    if (memcmp (digest, own, sizeof own) != 0)
        return ecfs_fail (error, EBADMSG, "the record fails its checksum");
    *ret_record = record;
    *ret_bytes = whole_blocks (used);
    return true;
}

bool ecfs_log_layout (const EcfsStripeHeader *header, uint64_t size, EcfsLayout *ret_layout)
{
    return header->is_log && header->k == 1 && header->block_bytes == ECFS_LOG_BLOCK_BYTES && header->granule == 1 &&
           header->segment_bytes % ECFS_LOG_BLOCK_BYTES == 0 && size <= ECFS_LOG_MAX_BYTES &&
           ecfs_stripe_layout (header, size, ret_layout, NULL);
}

/* Where block @number is; as segments are whole blocks, these are one behind the other. */
static uint64_t block_at (uint32_t header_bytes, unsigned tag_bytes, uint64_t number)
{
    return header_bytes + number * (ECFS_LOG_BLOCK_BYTES + tag_bytes);
}

uint64_t ecfs_log_stripe_bytes (uint32_t header_bytes, const EcfsSeal *seal, uint64_t content_bytes)
{
    return block_at (header_bytes, ecfs_tag_bytes_under (seal), content_bytes / ECFS_LOG_BLOCK_BYTES);
}

GByteArray *ecfs_log_blocks (const EcfsTagger *tagger, unsigned index, uint64_t offset, const uint8_t *stored,
                             size_t size)
{
    uint8_t tag[ECFS_TAG_MAX_BYTES];
    const unsigned tag_bytes = ecfs_tag_bytes (tagger);
    GByteArray *to = g_byte_array_sized_new ((guint) (size + size / ECFS_LOG_BLOCK_BYTES * tag_bytes));
    for (size_t at = 0; at < size; at += ECFS_LOG_BLOCK_BYTES) {
        ecfs_tag_put (tagger, index, (offset + at) / ECFS_LOG_BLOCK_BYTES, stored + at, ECFS_LOG_BLOCK_BYTES, tag);
        g_byte_array_append (to, stored + at, ECFS_LOG_BLOCK_BYTES);
        g_byte_array_append (to, tag, tag_bytes);
    }
    return to;
}

/* The blocks of a stripe without tags, deciphered. What does not fit its tag is zeros, so that no record is there. */
static GByteArray *open_blocks (const uint8_t *bytes, size_t size, const EcfsStripeHeader *header,
                                const EcfsSealKeys *keys)
{
    const EcfsTagger tagger = {.object = header->object, .mac = ecfs_seal_tag_mac (keys)};
    const unsigned tag_bytes = ecfs_tag_bytes (&tagger);
    size_t n_blocks =
        size < header->header_bytes ? 0 : (size - header->header_bytes) / (ECFS_LOG_BLOCK_BYTES + (size_t) tag_bytes);
    n_blocks = MIN (n_blocks, ECFS_LOG_MAX_BYTES / ECFS_LOG_BLOCK_BYTES);
    GByteArray *content = g_byte_array_sized_new ((guint) (n_blocks * ECFS_LOG_BLOCK_BYTES));
    EcfsCipher *cipher = keys == NULL ? NULL : ecfs_cipher_new (keys->content, 0);
    for (size_t i = 0; i < n_blocks; i++) {
        const uint8_t *block = bytes + block_at (header->header_bytes, tag_bytes, i);
        g_byte_array_append (content, block, ECFS_LOG_BLOCK_BYTES);
        uint8_t *own = content->data + i * ECFS_LOG_BLOCK_BYTES;
        if (cipher != NULL)
            ecfs_cipher_next (cipher, own, ECFS_LOG_BLOCK_BYTES);
        if (!ecfs_tag_fits (&tagger, header->index, i, block, ECFS_LOG_BLOCK_BYTES, block + ECFS_LOG_BLOCK_BYTES))
            memset (own, 0, ECFS_LOG_BLOCK_BYTES);
    }
    ecfs_cipher_free (cipher);
    return content;
}

uint64_t ecfs_log_each_record (const uint8_t *bytes, size_t size, const EcfsStripeHeader *header,
                               const EcfsSealKeys *keys,
                               void (*each) (void *user, const EcfsLogRecord *record, uint64_t offset), void *user)
{
    EcfsLayout layout;
    uint64_t end = 0;
    if (!ecfs_log_layout (header, ECFS_LOG_BLOCK_BYTES, &layout))
        return 0;
    GByteArray *content = open_blocks (bytes, size, header, keys);
    size_t step;
    for (size_t at = 0; at < content->len; at += step) {
        EcfsLogRecord record;
        if (!ecfs_log_record_parse (content->data + at, content->len - at, &header->object, at, &record, &step, NULL)) {
            step = ECFS_LOG_BLOCK_BYTES;
            continue;
        }
        each (user, &record, at);
        end = at + step;
    }
    ecfs_key_forget_array (content);
    return end;
}
