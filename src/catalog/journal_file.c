#include "catalog/journal_file.h"

#include "util/bytes.h"
#include "util/xxh3.h"

#include <inttypes.h>
#include <stdio.h>
#include <zlib.h>

#define VERSION        1
#define COMPRESSION    1
#define OPEN           0
#define SEALED         1
#define FLAG_LAST_PART 1
#define DIGEST_AT      88
#define DIGEST_BYTES   16
#define KEY_AT         104
#define SALT_AT        120
#define SALT_BYTES     16
#define HASHED_BYTES   136
#define BOUND_BYTES    (HASHED_BYTES - DIGEST_BYTES)
#define LEVEL          1 /* a seventeenth more bytes than 6 makes of names, in half of its time */

static const uint8_t magic[8] = {0x89, 'E', 'C', 'J', '\r', '\n', 0x1a, '\n'};

void ecfs_journal_file_put (GByteArray *raw, uint64_t sequence, int64_t time_ns, const uint8_t *record, size_t size)
{
    ecfs_append_le (raw, sequence, 8);
    ecfs_append_le (raw, (uint64_t) time_ns, 8);
    ecfs_append_le (raw, size, 4);
    g_byte_array_append (raw, record, (guint) size);
}

/* The header, but for the checksums. */
static void append_head (GByteArray *to, const EcfsJournalFile *file, const uint8_t salt[SALT_BYTES])
{
    static const uint8_t later[DIGEST_BYTES] = {0};
    g_byte_array_append (to, magic, sizeof magic);
    ecfs_append_le (to, VERSION, 2);
    ecfs_append_le (to, file->kind, 2);
    ecfs_append_le (to, COMPRESSION, 2);
    ecfs_append_le (to, file->is_sealed ? SEALED : OPEN, 2);
    g_byte_array_append (to, file->archive.bytes, sizeof file->archive.bytes);
    ecfs_append_le (to, file->epoch, 4);
    ecfs_append_le (to, file->part, 4);
    ecfs_append_le (to, file->is_last ? FLAG_LAST_PART : 0, 4);
    ecfs_append_le (to, file->n_records, 4);
    ecfs_append_le (to, file->first, 8);
    ecfs_append_le (to, file->last, 8);
    ecfs_append_le (to, (uint64_t) file->time_ns, 8);
    ecfs_append_le (to, file->raw_bytes, 8);
    ecfs_append_le (to, file->stored_bytes, 8);
    g_byte_array_append (to, later, sizeof later);
    g_byte_array_append (to, file->key.bytes, sizeof file->key.bytes);
    g_byte_array_append (to, salt, SALT_BYTES);
    ecfs_append_le (to, 0, 8);
}

static void put_checksums (GByteArray *head, const GByteArray *payload)
{
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash (&digest, ecfs_xxh3_128 (payload->data, payload->len));
    memcpy (head->data + DIGEST_AT, digest.digest, sizeof digest.digest);
    ecfs_put_le (head->data + HASHED_BYTES, ecfs_xxh3_64 (head->data, HASHED_BYTES), 8);
}

static GByteArray *compressed (const GByteArray *raw)
{
    uLongf size = compressBound (raw->len);
    GByteArray *payload = g_byte_array_sized_new ((guint) size);
    g_byte_array_set_size (payload, (guint) size);
    int result = compress2 (payload->data, &size, raw->data, raw->len, LEVEL);
    if (result != Z_OK)
        g_error ("zlib: %s", zError (result)); /* no memory: the bound is zlib's own */
    g_byte_array_set_size (payload, (guint) size);
    return payload;
}

/* What a payload is bound to: its header, but for the checksums. */
static void bind_head (const uint8_t *head, uint8_t ret_bound[BOUND_BYTES])
{
    memcpy (ret_bound, head, DIGEST_AT);
    memcpy (ret_bound + DIGEST_AT, head + KEY_AT, HASHED_BYTES - KEY_AT);
}

static GByteArray *sealed (const GByteArray *payload, const uint8_t *head, const EcfsKeyRing *keys)
{
    uint8_t key[ECFS_KEY_BYTES], bound[BOUND_BYTES];
    if (!ecfs_key_ring_derive (keys, ecfs_key_ring_active (keys), ECFS_KEY_USE_JOURNAL, head + SALT_AT, SALT_BYTES, key,
                               NULL))
        g_error ("a ring of keys without its active key");
    bind_head (head, bound);
    GByteArray *bytes = ecfs_key_seal (key, bound, sizeof bound, payload->data, payload->len);
    ecfs_key_forget (key, sizeof key);
    return bytes;
}

GByteArray *ecfs_journal_file_format (EcfsJournalFile *file, const GByteArray *raw, const EcfsKeyRing *keys)
{
    uint8_t salt[SALT_BYTES] = {0};
    g_autoptr (GByteArray) payload = compressed (raw);
    file->is_sealed = keys != NULL;
    file->key = keys == NULL ? (EcfsUuid){{0}} : *ecfs_key_ring_active (keys);
    file->raw_bytes = raw->len;
    file->stored_bytes = payload->len + (keys == NULL ? 0 : ECFS_KEY_SEALED_BYTES);
    if (keys != NULL)
        ecfs_random (salt, sizeof salt);
    GByteArray *bytes = g_byte_array_sized_new (ECFS_JOURNAL_HEADER_BYTES + (guint) file->stored_bytes);
    append_head (bytes, file, salt);
    if (keys != NULL) {
        GByteArray *plain = g_steal_pointer (&payload);
        payload = sealed (plain, bytes->data, keys);
        g_byte_array_unref (plain);
    }
    put_checksums (bytes, payload);
    g_byte_array_append (bytes, payload->data, payload->len);
    return bytes;
}

/* Whether the numbers go together. */
static bool is_possible (const EcfsJournalFile *file)
{
    bool segment = file->kind == ECFS_JOURNAL_SEGMENT;
    if (!segment && file->kind != ECFS_JOURNAL_SNAPSHOT)
        return false;
    if (file->last > INT64_MAX || file->epoch == 0)
        return false;
    return segment ? file->first > 0 && file->first <= file->last && file->part == 0 && !file->is_last
                   : file->first == 0;
}

bool ecfs_journal_file_head (const uint8_t *bytes, size_t size, EcfsJournalFile *ret_file, GError **error)
{
    EcfsCursor from = {.at = bytes, .left = size};
    const uint8_t *start = ecfs_cursor_bytes (&from, ECFS_JOURNAL_HEADER_BYTES);
    if (start == NULL || memcmp (start, magic, sizeof magic) != 0)
        return ecfs_fail (error, EBADMSG, "this is not a journal file of ecfs");
    if (ecfs_get_le (start + HASHED_BYTES, 8) != ecfs_xxh3_64 (start, HASHED_BYTES))
        return ecfs_fail (error, EBADMSG, "the header fails its checksum");
    from = (EcfsCursor){.at = start + sizeof magic, .left = HASHED_BYTES - sizeof magic};
    EcfsJournalFile file = {.part = 0};
    uint64_t version = ecfs_cursor_le (&from, 2);
    file.kind = (EcfsJournalFileKind) ecfs_cursor_le (&from, 2);
    uint64_t compression = ecfs_cursor_le (&from, 2);
    uint64_t sealing = ecfs_cursor_le (&from, 2);
    ecfs_cursor_copy (&from, file.archive.bytes, sizeof file.archive.bytes);
    file.epoch = (uint32_t) ecfs_cursor_le (&from, 4);
    file.part = (uint32_t) ecfs_cursor_le (&from, 4);
    uint64_t flags = ecfs_cursor_le (&from, 4);
    file.is_last = (flags & FLAG_LAST_PART) != 0;
    file.n_records = (uint32_t) ecfs_cursor_le (&from, 4);
    file.first = ecfs_cursor_le (&from, 8);
    file.last = ecfs_cursor_le (&from, 8);
    file.time_ns = (int64_t) ecfs_cursor_le (&from, 8);
    file.raw_bytes = ecfs_cursor_le (&from, 8);
    file.stored_bytes = ecfs_cursor_le (&from, 8);
    file.is_sealed = sealing == SEALED;
    if (file.is_sealed)
        memcpy (file.key.bytes, start + KEY_AT, sizeof file.key.bytes);
    if (version != VERSION || compression != COMPRESSION || sealing > SEALED ||
        (flags & ~(uint64_t) FLAG_LAST_PART) != 0)
        return ecfs_fail (error, ENOTSUP, "version, compression or sealing are of a kind that this ecfs does not know");
    if (!is_possible (&file) || file.raw_bytes > ECFS_JOURNAL_FILE_MAX ||
        file.stored_bytes > 2u * ECFS_JOURNAL_FILE_MAX)
        return ecfs_fail (error, EBADMSG, "the header's numbers make no sense");
    *ret_file = file;
    return true;
}

/* Records of a segment ascend within its range; those of a snapshot are all of its moment. */
static bool is_in_order (const EcfsJournalFile *file, uint64_t sequence, uint64_t previous)
{
    if (file->kind == ECFS_JOURNAL_SNAPSHOT)
        return sequence == file->last;
    return sequence == (previous == 0 ? file->first : previous + 1) && sequence <= file->last;
}

static bool read_records (const EcfsJournalFile *file, EcfsCursor *from, GPtrArray *rows, GError **error)
{
    uint64_t sequence = 0;
    while (from->left > 0) {
        uint64_t next = ecfs_cursor_le (from, 8);
        int64_t time_ns = (int64_t) ecfs_cursor_le (from, 8);
        size_t size = ecfs_cursor_le (from, 4);
        const uint8_t *record = ecfs_cursor_bytes (from, size);
        if (from->bad || !is_in_order (file, next, sequence))
            return ecfs_fail (error, EBADMSG, "a record is out of place");
        sequence = next;
        EcfsJournalRow *row = g_new (EcfsJournalRow, 1);
        *row = (EcfsJournalRow){
            .sequence = sequence, .time_ns = time_ns, .record = g_byte_array_new_take (g_memdup2 (record, size), size)};
        g_ptr_array_add (rows, row);
    }
    if (rows->len != file->n_records || (file->kind == ECFS_JOURNAL_SEGMENT && sequence != file->last))
        return ecfs_fail (error, EBADMSG, "records are missing");
    return true;
}

/* Who has no key can make an open file. */
static bool check_sealing (const EcfsJournalFile *file, const EcfsKeyRing *keys, GError **error)
{
    if (!file->is_sealed && keys != NULL)
        return ecfs_fail (error, EBADMSG, "it is not sealed, and this archive has a key: it is not the archive's");
    return !file->is_sealed || keys != NULL ||
           ecfs_fail (error, ENOKEY, "it is sealed, and the archive's key is not here");
}

static bool check_payload (const EcfsJournalFile *file, const uint8_t *bytes, size_t size, GError **error)
{
    if (size - ECFS_JOURNAL_HEADER_BYTES != file->stored_bytes)
        return ecfs_fail (error, EBADMSG, "it has %zu bytes in place of %" PRIu64, size,
                          file->stored_bytes + ECFS_JOURNAL_HEADER_BYTES);
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash (&digest, ecfs_xxh3_128 (bytes + ECFS_JOURNAL_HEADER_BYTES, file->stored_bytes));
    return memcmp (digest.digest, bytes + DIGEST_AT, sizeof digest.digest) == 0 ||
           ecfs_fail (error, EBADMSG, "its records fail their checksum");
}

/* The records of a payload that is open. */
static GPtrArray *unpack (const EcfsJournalFile *file, const uint8_t *payload, size_t size, GError **error)
{
    /* What is promised is not believed beyond what deflate can do. */
    if (file->raw_bytes / 1100 > size) {
        (void) !ecfs_fail (error, EBADMSG, "its records cannot be as long as it says");
        return NULL;
    }
    g_autofree uint8_t *raw = g_malloc (file->raw_bytes + 1);
    uLongf raw_bytes = file->raw_bytes + 1;
    int result = uncompress (raw, &raw_bytes, payload, size);
    if (result != Z_OK || raw_bytes != file->raw_bytes) {
        (void) !ecfs_fail (error, EBADMSG, "its records cannot be uncompressed");
        return NULL;
    }
    g_autoptr (GPtrArray) rows = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_journal_row_free);
    EcfsCursor from = {.at = raw, .left = raw_bytes};
    return read_records (file, &from, rows, error) ? g_steal_pointer (&rows) : NULL;
}

/* The payload of a whole file, opened; for ecfs_key_forget_array (). */
static GByteArray *open_payload (const EcfsJournalFile *file, const uint8_t *bytes, const EcfsKeyRing *keys,
                                 GError **error)
{
    uint8_t key[ECFS_KEY_BYTES], bound[BOUND_BYTES];
    if (ecfs_key_ring_has (keys, &file->key) && !ecfs_key_ring_covers (keys, &file->key, file->epoch, file->last)) {
        (void) !ecfs_fail (error, EBADMSG, "it is sealed under a key that was retired before");
        return NULL;
    }
    if (!ecfs_key_ring_derive (keys, &file->key, ECFS_KEY_USE_JOURNAL, bytes + SALT_AT, SALT_BYTES, key, error)) {
        (void) !ecfs_prefix (error, "it is sealed under another key");
        return NULL;
    }
    bind_head (bytes, bound);
    GByteArray *payload =
        ecfs_key_open (key, bound, sizeof bound, bytes + ECFS_JOURNAL_HEADER_BYTES, file->stored_bytes, error);
    ecfs_key_forget (key, sizeof key);
    return payload;
}

static bool check_whole (const uint8_t *bytes, size_t size, const EcfsKeyRing *keys, EcfsJournalFile *ret_file,
                         GError **error)
{
    return ecfs_journal_file_head (bytes, size, ret_file, error) && check_sealing (ret_file, keys, error) &&
           check_payload (ret_file, bytes, size, error);
}

bool ecfs_journal_file_is_authentic (const uint8_t *bytes, size_t size, const EcfsKeyRing *keys,
                                     EcfsJournalFile *ret_file, GError **error)
{
    GByteArray *opened = check_whole (bytes, size, keys, ret_file, error) && ret_file->is_sealed
                             ? open_payload (ret_file, bytes, keys, error)
                             : NULL;
    const bool is_authentic = opened != NULL;
    ecfs_key_forget_array (opened);
    return is_authentic;
}

GPtrArray *ecfs_journal_file_parse (const uint8_t *bytes, size_t size, const EcfsKeyRing *keys,
                                    EcfsJournalFile *ret_file, GError **error)
{
    EcfsJournalFile file;
    if (!check_whole (bytes, size, keys, &file, error))
        return NULL;
    GByteArray *opened = file.is_sealed ? open_payload (&file, bytes, keys, error) : NULL;
    if (file.is_sealed && opened == NULL)
        return NULL;
    GPtrArray *rows = opened == NULL ? unpack (&file, bytes + ECFS_JOURNAL_HEADER_BYTES, file.stored_bytes, error)
                                     : unpack (&file, opened->data, opened->len, error);
    ecfs_key_forget_array (opened);
    if (rows != NULL)
        *ret_file = file;
    return rows;
}

void ecfs_journal_file_name (const EcfsJournalFile *file, char name[ECFS_JOURNAL_NAME_SIZE])
{
    if (file->kind == ECFS_JOURNAL_SEGMENT)
        (void) snprintf (name, ECFS_JOURNAL_NAME_SIZE,
                         ECFS_JOURNAL_DIRECTORY "/%08" PRIx32 "-%016" PRIx64 "-%016" PRIx64, file->epoch, file->first,
                         file->last);
    else
        (void) snprintf (name, ECFS_JOURNAL_NAME_SIZE,
                         ECFS_SNAPSHOT_DIRECTORY "/%08" PRIx32 "-%016" PRIx64 "-%08" PRIx32 "%s", file->epoch,
                         file->last, file->part, file->is_last ? "-end" : "");
}

/* Hexadecimal digits of a fixed number and what follows them. */
static bool take_hex (const char **at, unsigned n_digits, char end, uint64_t *ret_number)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < n_digits; i++) {
        int digit = g_ascii_xdigit_value ((*at)[i]);
        if (digit < 0 || g_ascii_isupper ((*at)[i]))
            return false;
        number = number << 4 | (unsigned) digit;
    }
    *at += n_digits;
    if (end != '\0' && *(*at)++ != end)
        return false;
    *ret_number = number;
    return true;
}

bool ecfs_journal_file_name_parse (const char *name, EcfsJournalFile *ret_file)
{
    EcfsJournalFile file = {.kind = ECFS_JOURNAL_SEGMENT};
    uint64_t epoch, part = 0;
    const char *at = name;
    if (g_str_has_prefix (name, ECFS_SNAPSHOT_DIRECTORY "/"))
        file.kind = ECFS_JOURNAL_SNAPSHOT;
    else if (!g_str_has_prefix (name, ECFS_JOURNAL_DIRECTORY "/"))
        return false;
    at = strchr (name, '/') + 1;
    if (!take_hex (&at, 8, '-', &epoch))
        return false;
    if (file.kind == ECFS_JOURNAL_SEGMENT) {
        if (!take_hex (&at, 16, '-', &file.first) || !take_hex (&at, 16, '\0', &file.last))
            return false;
    } else {
        if (!take_hex (&at, 16, '-', &file.last) || !take_hex (&at, 8, '\0', &part))
            return false;
        file.is_last = g_str_equal (at, "-end");
        at += file.is_last ? strlen (at) : 0;
    }
    file.epoch = (uint32_t) epoch;
    file.part = (uint32_t) part;
    if (*at != '\0' || !is_possible (&file))
        return false;
    *ret_file = file;
    return true;
}
