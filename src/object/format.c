#include "object/format.h"

#include "object/chain.h"
#include "util/bytes.h"
#include "util/xxh3.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <zlib.h>

static const uint8_t header_magic[8] = {0x89, 'E', 'C', 'F', 'S', '\r', '\n', 0x1a};
static const uint8_t tail_magic[8] = {0x89, 'e', 'c', 'f', 's', 'e', 'n', 'd'};

/* Section types; even a reader that does not know a type can step over it, unless it is critical. */
enum {
    SECTION_PADDING = 0,
    SECTION_PUBLIC = 1,
    SECTION_MAC = 2,
    SECTION_CODE = 3,
    SECTION_SEAL = 4,
    SECTION_LOG = 5,
    SECTION_SIZES = 16,
    SECTION_RECORDS = 17,
    SECTION_CONTENTS = 18,
    SECTION_SEALED = 19,   /* the two before, as sections of their own, or as the next one; the chain */
    SECTION_DEFLATED = 20, /* the two, as sections of their own, compressed */
    SECTION_CHAIN = 21,
};

enum {
    FLAG_CRITICAL = 1,
};

#define SECTION_HEAD_BYTES 8
#define SECTION_HASH_BYTES 8
#define TAG_KIND_XXH3_64   1
#define TAG_KIND_HMAC      2
#define TAG_KIND_GHASH     3
#define CIPHER_AES_CTR     1
#define MAC_KIND_HMAC      1

static const uint16_t tag_kinds[] = {
    [ECFS_SEAL_NONE] = TAG_KIND_XXH3_64, [ECFS_SEAL_CTR_HMAC] = TAG_KIND_HMAC, [ECFS_SEAL_CTR_GHASH] = TAG_KIND_GHASH};
#define MAC_OF_HEADER   1
#define MAC_OF_FOOTER   2
#define HEADER_UNIT     64
#define PATH_MAX_BYTES  4096
#define ELSEWHERE_BYTES 40

/* A section under construction: where its head is in the buffer. */
static guint section_begin (GByteArray *to, uint16_t type, uint16_t flags)
{
    guint start = to->len;
    ecfs_append_le (to, type, 2);
    ecfs_append_le (to, flags, 2);
    ecfs_append_le (to, 0, 4);
    return start;
}

static void section_end (GByteArray *to, guint start)
{
    ecfs_put_le (to->data + start + 4, to->len - start - SECTION_HEAD_BYTES, 4);
    ecfs_append_le (to, ecfs_xxh3_64 (to->data + start, to->len - start), 8);
}

/* Where a header ends that has @size bytes before its padding, which is a section. */
static guint padded (guint size)
{
    guint least = SECTION_HEAD_BYTES + SECTION_HASH_BYTES;
    guint end = (size + HEADER_UNIT - 1) / HEADER_UNIT * HEADER_UNIT;
    while (end != size && end - size < least)
        end += HEADER_UNIT;
    return end;
}

static void append_padding (GByteArray *to)
{
    guint end = padded (to->len);
    if (end == to->len)
        return;
    guint start = section_begin (to, SECTION_PADDING, 0);
    guint zeros = end - SECTION_HASH_BYTES - to->len;
    guint at = to->len;
    g_byte_array_set_size (to, at + zeros);
    memset (to->data + at, 0, zeros);
    section_end (to, start);
}

/* Of which part of which stripe the bytes are. */
static void compute_mac (const EcfsSealKeys *keys, uint8_t part, const EcfsStripeHeader *header, const uint8_t *bytes,
                         size_t size, uint8_t ret_mac[ECFS_MAC_BYTES])
{
    uint8_t head[11];
    head[0] = part;
    ecfs_put_le (head + 1, header->index, 2);
    ecfs_put_le (head + 3, header->instance, 8);
    ecfs_mac_compute (keys->frame, head, sizeof head, bytes, size, ret_mac);
}

/* Over all that is there before; empty without a key. */
static void append_mac (GByteArray *to, uint8_t part, const EcfsStripeHeader *header, const EcfsSealKeys *keys)
{
    uint8_t mac[ECFS_MAC_BYTES] = {0};
    guint covers = to->len;
    guint start = section_begin (to, SECTION_MAC, 0);
    if (keys != NULL)
        compute_mac (keys, part, header, to->data, covers, mac);
    if (header->seal.kind != ECFS_SEAL_NONE)
        g_byte_array_append (to, mac, sizeof mac);
    section_end (to, start);
}

static bool check_mac (const EcfsSealKeys *keys, uint8_t part, const EcfsStripeHeader *header, const uint8_t *bytes,
                       size_t size, const uint8_t *mac)
{
    uint8_t own[ECFS_MAC_BYTES];
    if (mac == NULL)
        return false;
    compute_mac (keys, part, header, bytes, size, own);
    return CRYPTO_memcmp (own, mac, sizeof own) == 0;
}

static void append_seal (GByteArray *to, const EcfsSeal *seal)
{
    uint8_t bytes[ECFS_SEAL_BYTES];
    guint start = section_begin (to, SECTION_SEAL, FLAG_CRITICAL);
    ecfs_seal_put (seal, bytes);
    g_byte_array_append (to, bytes, sizeof bytes);
    section_end (to, start);
}

GByteArray *ecfs_stripe_header_format (EcfsStripeHeader *header, const EcfsSealKeys *keys)
{
    const bool is_keyed = header->seal.kind != ECFS_SEAL_NONE;
    GByteArray *to = g_byte_array_sized_new (256);
    g_byte_array_append (to, header_magic, sizeof header_magic);
    ecfs_append_le (to, ECFS_FORMAT_VERSION, 2);
    ecfs_append_le (to, 0, 2);
    ecfs_append_le (to, 0, 4);
    guint start = section_begin (to, SECTION_PUBLIC, FLAG_CRITICAL);
    g_byte_array_append (to, header->archive.bytes, 16);
    g_byte_array_append (to, header->object.bytes, 16);
    ecfs_append_le (to, header->instance, 8);
    ecfs_append_le (to, header->sequence, 8);
    ecfs_append_le (to, header->epoch, 4);
    ecfs_append_le (to, header->family, 2);
    ecfs_append_le (to, header->k, 2);
    ecfs_append_le (to, header->n_written, 2);
    ecfs_append_le (to, header->index, 2);
    ecfs_append_le (to, header->segment_bytes, 4);
    ecfs_append_le (to, header->block_bytes, 4);
    ecfs_append_le (to, header->granule, 4);
    ecfs_append_le (to, tag_kinds[header->seal.kind], 2);
    ecfs_append_le (to, ecfs_tag_bytes_under (&header->seal), 2);
    ecfs_append_le (to, is_keyed ? CIPHER_AES_CTR : 0, 2);
    ecfs_append_le (to, is_keyed ? MAC_KIND_HMAC : 0, 2);
    ecfs_append_le (to, 0, 8);
    ecfs_append_le (to, 0, 4);
    section_end (to, start);
    if (header->parameters_bytes > 0) {
        start = section_begin (to, SECTION_CODE, FLAG_CRITICAL);
        g_byte_array_append (to, header->parameters, header->parameters_bytes);
        section_end (to, start);
    }
    if (is_keyed)
        append_seal (to, &header->seal);
    if (header->is_log)
        section_end (to, section_begin (to, SECTION_LOG, FLAG_CRITICAL));
    header->header_bytes = padded (to->len + SECTION_HEAD_BYTES + (is_keyed ? ECFS_MAC_BYTES : 0) + SECTION_HASH_BYTES);
    ecfs_put_le (to->data + 12, header->header_bytes, 4); /* the MAC is of this, too */
    append_mac (to, MAC_OF_HEADER, header, keys);
    append_padding (to);
    g_assert (to->len == header->header_bytes);
    return to;
}

typedef struct Section {
    uint16_t type;
    uint16_t flags;
    EcfsCursor payload;
} Section;

static bool next_section (EcfsCursor *from, Section *ret_section, GError **error)
{
    const uint8_t *start = from->at;
    uint16_t type = (uint16_t) ecfs_cursor_le (from, 2);
    uint16_t flags = (uint16_t) ecfs_cursor_le (from, 2);
    uint32_t length = (uint32_t) ecfs_cursor_le (from, 4);
    const uint8_t *payload = ecfs_cursor_bytes (from, length);
    uint64_t hash = ecfs_cursor_le (from, SECTION_HASH_BYTES);
    if (from->bad)
        return ecfs_fail (error, EBADMSG, "a section of type %u ends outside its part", type);
    if (ecfs_xxh3_64 (start, SECTION_HEAD_BYTES + (size_t) length) != hash)
        return ecfs_fail (error, EBADMSG, "the section of type %u fails its checksum", type);
    *ret_section = (Section){.type = type, .flags = flags, .payload = {.at = payload, .left = length}};
    return true;
}

/* What is authentic: a MAC covers what is before it, and nothing that says anything may come behind. */
typedef struct Authentic {
    const uint8_t *mac; /* NULL: there is none */
    size_t covers;
    bool has_mac_section;
    bool is_last;
} Authentic;

static void note_section (Authentic *self, const Section *section, size_t offset)
{
    if (self->has_mac_section && section->type != SECTION_PADDING)
        self->is_last = false;
    if (section->type != SECTION_MAC || self->has_mac_section)
        return;
    bool is_mac = section->payload.left == ECFS_MAC_BYTES && section->flags == 0;
    *self = (Authentic){
        .mac = is_mac ? section->payload.at : NULL, .covers = offset, .has_mac_section = true, .is_last = true};
}

static bool unknown_section (const Section *section, GError **error)
{
    if ((section->flags & FLAG_CRITICAL) == 0)
        return true;
    return ecfs_fail (error, ENOTSUP, "section type %u is not known here: a later ecfs wrote it", section->type);
}

static bool parse_public (EcfsCursor *from, EcfsStripeHeader *header, EcfsSealKind *ret_kind, GError **error)
{
    ecfs_cursor_copy (from, header->archive.bytes, 16);
    ecfs_cursor_copy (from, header->object.bytes, 16);
    header->instance = ecfs_cursor_le (from, 8);
    header->sequence = ecfs_cursor_le (from, 8);
    header->epoch = (uint32_t) ecfs_cursor_le (from, 4);
    header->family = (uint16_t) ecfs_cursor_le (from, 2);
    header->k = (uint16_t) ecfs_cursor_le (from, 2);
    header->n_written = (uint16_t) ecfs_cursor_le (from, 2);
    header->index = (uint16_t) ecfs_cursor_le (from, 2);
    header->segment_bytes = (uint32_t) ecfs_cursor_le (from, 4);
    header->block_bytes = (uint32_t) ecfs_cursor_le (from, 4);
    header->granule = (uint32_t) ecfs_cursor_le (from, 4);
    uint64_t tag_kind = ecfs_cursor_le (from, 2);
    uint64_t tag_bytes = ecfs_cursor_le (from, 2);
    uint64_t cipher = ecfs_cursor_le (from, 2);
    uint64_t mac = ecfs_cursor_le (from, 2);
    if (from->bad)
        return ecfs_fail (error, EBADMSG, "the public section is too short");
    EcfsSealKind kind = ECFS_SEAL_NONE;
    while (kind < G_N_ELEMENTS (tag_kinds) && tag_kinds[kind] != tag_kind)
        kind++;
    const bool is_open = kind == ECFS_SEAL_NONE && tag_bytes == ECFS_TAG_CHECKSUM_BYTES && cipher == 0 && mac == 0;
    const bool is_keyed = kind != ECFS_SEAL_NONE && kind < G_N_ELEMENTS (tag_kinds) &&
                          tag_bytes == ECFS_TAG_MAC_BYTES && cipher == CIPHER_AES_CTR && mac == MAC_KIND_HMAC;
    *ret_kind = kind;
    return is_open || is_keyed ||
           ecfs_fail (error, ENOTSUP, "tags, cipher or MAC are of a kind that this ecfs does not know");
}

static bool parse_preamble (EcfsCursor *from, EcfsStripeHeader *header, GError **error)
{
    const uint8_t *magic = ecfs_cursor_bytes (from, sizeof header_magic);
    if (magic == NULL || memcmp (magic, header_magic, sizeof header_magic) != 0)
        return ecfs_fail (error, EBADMSG, "this is not an ecfs stripe");
    uint64_t version = ecfs_cursor_le (from, 2);
    uint64_t reserved = ecfs_cursor_le (from, 2);
    header->header_bytes = (uint32_t) ecfs_cursor_le (from, 4);
    if (from->bad || reserved != 0 || header->header_bytes < ECFS_STRIPE_PREAMBLE_BYTES ||
        header->header_bytes > 1 << 20)
        return ecfs_fail (error, EBADMSG, "the header's preamble is damaged");
    if (version != ECFS_FORMAT_VERSION)
        return ecfs_fail (error, ENOTSUP, "stripe format %" PRIu64 " is not known here", version);
    return true;
}

/* What the sections of a header have said. */
typedef struct HeaderParse {
    bool have_public;
    EcfsSealKind kind;
} HeaderParse;

static bool parse_header_section (Section *section, EcfsStripeHeader *header, HeaderParse *parse, GError **error)
{
    switch (section->type) {
    case SECTION_PUBLIC:
        parse->have_public = true;
        return parse_public (&section->payload, header, &parse->kind, error);
    case SECTION_SEAL:
        return ecfs_seal_parse (section->payload.at, section->payload.left, &header->seal, error);
    case SECTION_LOG:
        header->is_log = true;
        return true;
    case SECTION_CODE:
        if (section->payload.left > ECFS_CODEC_MAX_PARAMETERS)
            return ecfs_fail (error, EBADMSG, "the code's parameters are too long: %zu bytes", section->payload.left);
        header->parameters = section->payload.at;
        header->parameters_bytes = (uint32_t) section->payload.left;
        return true;
    case SECTION_PADDING:
    case SECTION_MAC:
        return true;
    default:
        return unknown_section (section, error);
    }
}

bool ecfs_stripe_header_parse (const uint8_t *bytes, size_t size, EcfsStripeHeader *ret_header, GError **error)
{
    EcfsCursor from = {.at = bytes, .left = size};
    EcfsStripeHeader header = {0};
    if (!parse_preamble (&from, &header, error))
        return false;
    if (size < header.header_bytes) {
        ret_header->header_bytes = header.header_bytes;
        return ecfs_fail (error, EAGAIN, "the header has %u bytes", header.header_bytes);
    }
    from.left = header.header_bytes - ECFS_STRIPE_PREAMBLE_BYTES;
    HeaderParse parse = {.have_public = false};
    Authentic authentic = {.mac = NULL};
    while (from.left > 0) {
        Section section;
        size_t offset = (size_t) (from.at - bytes);
        if (!next_section (&from, &section, error))
            return false;
        note_section (&authentic, &section, offset);
        if (!parse_header_section (&section, &header, &parse, error))
            return false;
    }
    if (!parse.have_public)
        return ecfs_fail (error, EBADMSG, "the header has no public section");
    if (parse.kind != header.seal.kind)
        return ecfs_fail (error, EBADMSG, "the header is not at one on how it is sealed");
    if (parse.kind != ECFS_SEAL_NONE && (authentic.mac == NULL || !authentic.is_last))
        return ecfs_fail (error, EBADMSG, "the header is sealed, and does not end with its MAC");
    header.mac = authentic.mac;
    header.mac_covers = (uint32_t) authentic.covers;
    *ret_header = header;
    return true;
}

bool ecfs_stripe_header_check (const EcfsStripeHeader *header, const uint8_t *bytes, const EcfsSealKeys *keys,
                               GError **error)
{
    if (keys == NULL)
        return header->seal.kind == ECFS_SEAL_NONE ||
               ecfs_fail (error, EBADMSG, "the header tells of a key, and the object is stored without");
    return check_mac (keys, MAC_OF_HEADER, header, bytes, header->mac_covers, header->mac) ||
           ecfs_fail (error, EBADMSG, "the header is not authentic");
}

void ecfs_stripe_header_set_code (EcfsStripeHeader *header, const EcfsCodec *codec)
{
    size_t parameters_bytes;
    header->family = (uint16_t) ecfs_codec_family (codec);
    header->k = (uint16_t) ecfs_codec_k (codec);
    header->n_written = (uint16_t) ecfs_codec_n (codec);
    header->granule = (uint32_t) ecfs_codec_granule (codec);
    header->parameters = ecfs_codec_parameters (codec, &parameters_bytes);
    header->parameters_bytes = (uint32_t) parameters_bytes;
}

EcfsCodec *ecfs_stripe_codec (const EcfsStripeHeader *header, GError **error)
{
    return ecfs_codec_new_for ((EcfsCodeFamily) header->family, header->k, header->n_written, header->parameters,
                               header->parameters_bytes, error);
}

static void append_record (GByteArray *to, const EcfsFileRecord *record)
{
    guint start = to->len;
    size_t path_bytes = MIN (strlen (record->path), PATH_MAX_BYTES);
    ecfs_append_le (to, 0, 4);
    ecfs_append_le (to, record->ino, 8);
    ecfs_append_le (to, record->generation, 8);
    ecfs_append_le (to, record->file_size, 8);
    ecfs_append_le (to, record->mode, 4);
    ecfs_append_le (to, record->uid, 4);
    ecfs_append_le (to, record->gid, 4);
    ecfs_append_le (to, (uint64_t) record->mtime_ns, 8);
    ecfs_append_le (to, record->ranges->len, 4);
    for (guint i = 0; i < record->ranges->len; i++) {
        const EcfsFileRange *range = &g_array_index (record->ranges, EcfsFileRange, i);
        ecfs_append_le (to, range->file_offset, 8);
        ecfs_append_le (to, range->length, 8);
        ecfs_append_le (to, range->object_offset, 8);
    }
    ecfs_append_le (to, path_bytes, 2);
    g_byte_array_append (to, (const uint8_t *) record->path, (guint) path_bytes);
    ecfs_put_le (to->data + start, to->len - start - 4, 4);
}

static void append_content (GByteArray *to, const EcfsFileRecord *record)
{
    guint start = to->len;
    guint n_elsewhere = record->elsewhere == NULL ? 0 : record->elsewhere->len;
    ecfs_append_le (to, 0, 4);
    g_byte_array_append (to, record->content.bytes, sizeof record->content.bytes);
    ecfs_append_le (to, record->number, 4);
    ecfs_append_le (to, record->n_objects, 4);
    ecfs_append_le (to, n_elsewhere, 4);
    for (guint i = 0; i < n_elsewhere; i++) {
        const EcfsElsewhere *part = &g_array_index (record->elsewhere, EcfsElsewhere, i);
        ecfs_append_le (to, part->file_offset, 8);
        ecfs_append_le (to, part->length, 8);
        g_byte_array_append (to, part->object.bytes, sizeof part->object.bytes);
        ecfs_append_le (to, part->object_offset, 8);
    }
    ecfs_put_le (to->data + start, to->len - start - 4, 4);
}

static void append_plain_records (GByteArray *to, const GPtrArray *records)
{
    guint start = section_begin (to, SECTION_RECORDS, 0);
    for (guint i = 0; i < records->len; i++)
        append_record (to, g_ptr_array_index (records, i));
    section_end (to, start);
    start = section_begin (to, SECTION_CONTENTS, 0);
    for (guint i = 0; i < records->len; i++)
        append_content (to, g_ptr_array_index (records, i));
    section_end (to, start);
}

/* Those of many files, which are much alike. */
static void append_deflated_records (GByteArray *to, const GPtrArray *records)
{
    g_autoptr (GByteArray) plain = g_byte_array_new ();
    append_plain_records (plain, records);
    uLongf size = compressBound (plain->len);
    g_autofree uint8_t *deflated = g_malloc (size);
    int result = compress (deflated, &size, plain->data, plain->len);
    if (result != Z_OK)
        g_error ("zlib: %s", zError (result)); /* no memory: the bound is zlib's own */
    guint start = section_begin (to, SECTION_DEFLATED, FLAG_CRITICAL);
    ecfs_append_le (to, plain->len, 4);
    g_byte_array_append (to, deflated, (guint) size);
    section_end (to, start);
}

static void append_records (GByteArray *to, const EcfsStripeFooter *footer)
{
    if (footer->is_pack)
        append_deflated_records (to, footer->records);
    else
        append_plain_records (to, footer->records);
}

static void append_sealed_records (GByteArray *to, const EcfsStripeFooter *footer, const EcfsUuid *object,
                                   const EcfsSealKeys *keys)
{
    g_autoptr (GByteArray) open = g_byte_array_new ();
    append_records (open, footer);
    if (footer->chain != NULL) {
        guint begin = section_begin (open, SECTION_CHAIN, 0);
        g_byte_array_append (open, footer->chain->data, footer->chain->len);
        section_end (open, begin);
    }
    g_autoptr (GByteArray) sealed =
        ecfs_key_seal (keys->records, object->bytes, sizeof object->bytes, open->data, open->len);
    guint start = section_begin (to, SECTION_SEALED, FLAG_CRITICAL);
    g_byte_array_append (to, sealed->data, sealed->len);
    section_end (to, start);
}

GByteArray *ecfs_stripe_footer_format (const EcfsStripeFooter *footer, uint64_t footer_offset,
                                       const EcfsStripeHeader *header, const EcfsSealKeys *keys)
{
    GByteArray *to = g_byte_array_sized_new (512);
    guint start = section_begin (to, SECTION_SIZES, FLAG_CRITICAL);
    ecfs_append_le (to, footer->size, 8);
    ecfs_append_le (to, footer->size, 8); /* bytes that were coded: the same until content is encrypted or compressed */
    ecfs_append_le (to, footer->area_bytes, 8);
    g_byte_array_append (to, footer->area_digest, ECFS_STRIPE_DIGEST_BYTES);
    g_byte_array_append (to, footer->object_digest, ECFS_STRIPE_DIGEST_BYTES);
    ecfs_append_le (to, 0, 8);
    section_end (to, start);
    if (keys == NULL)
        append_records (to, footer);
    else
        append_sealed_records (to, footer, &header->object, keys);
    append_mac (to, MAC_OF_FOOTER, header, keys);
    guint footer_bytes = to->len;
    uint64_t footer_hash = ecfs_xxh3_64 (to->data, footer_bytes);
    ecfs_append_le (to, footer_offset, 8);
    ecfs_append_le (to, footer_bytes, 4);
    ecfs_append_le (to, ECFS_FORMAT_VERSION, 2);
    ecfs_append_le (to, 0, 2);
    ecfs_append_le (to, footer_hash, 8);
    ecfs_append_le (to, 0, 8);
    ecfs_append_le (to, ecfs_xxh3_64 (to->data + footer_bytes, to->len - footer_bytes), 8);
    g_byte_array_append (to, tail_magic, sizeof tail_magic);
    return to;
}

bool ecfs_stripe_tail_parse (const uint8_t *bytes, uint64_t file_size, uint64_t *ret_footer_offset,
                             uint32_t *ret_footer_bytes, uint64_t *ret_footer_hash, GError **error)
{
    EcfsCursor from = {.at = bytes, .left = ECFS_STRIPE_TAIL_BYTES};
    uint64_t footer_offset = ecfs_cursor_le (&from, 8);
    uint32_t footer_bytes = (uint32_t) ecfs_cursor_le (&from, 4);
    uint64_t version = ecfs_cursor_le (&from, 2);
    (void) ecfs_cursor_le (&from, 2);
    uint64_t footer_hash = ecfs_cursor_le (&from, 8);
    (void) ecfs_cursor_le (&from, 8);
    size_t hashed = ECFS_STRIPE_TAIL_BYTES - from.left;
    uint64_t hash = ecfs_cursor_le (&from, 8);
    if (memcmp (from.at, tail_magic, sizeof tail_magic) != 0)
        return ecfs_fail (error, EBADMSG, "the stripe has no tail: it was never completed, or it is damaged");
    if (ecfs_xxh3_64 (bytes, hashed) != hash)
        return ecfs_fail (error, EBADMSG, "the tail fails its checksum");
    if (version != ECFS_FORMAT_VERSION)
        return ecfs_fail (error, ENOTSUP, "stripe format %" PRIu64 " is not known here", version);
    if (footer_bytes > ECFS_FOOTER_MAX_BYTES || footer_offset > file_size ||
        file_size - footer_offset != (uint64_t) footer_bytes + ECFS_STRIPE_TAIL_BYTES)
        return ecfs_fail (error, EBADMSG, "the tail does not fit the file's size");
    *ret_footer_offset = footer_offset;
    *ret_footer_bytes = footer_bytes;
    *ret_footer_hash = footer_hash;
    return true;
}

void ecfs_file_record_free (gpointer data)
{
    EcfsFileRecord *record = data;
    g_free ((char *) record->path);
    if (record->ranges != NULL)
        g_array_unref (record->ranges);
    if (record->elsewhere != NULL)
        g_array_unref (record->elsewhere);
    g_free (record);
}

static bool parse_record (EcfsCursor *from, GPtrArray *records, GError **error)
{
    uint32_t length = (uint32_t) ecfs_cursor_le (from, 4);
    const uint8_t *bytes = ecfs_cursor_bytes (from, length);
    if (bytes == NULL)
        return ecfs_fail (error, EBADMSG, "a file record ends outside the footer");
    EcfsCursor in = {.at = bytes, .left = length};
    EcfsFileRecord *record = g_new0 (EcfsFileRecord, 1);
    g_ptr_array_add (records, record);
    record->ino = ecfs_cursor_le (&in, 8);
    record->generation = ecfs_cursor_le (&in, 8);
    record->file_size = ecfs_cursor_le (&in, 8);
    record->mode = (uint32_t) ecfs_cursor_le (&in, 4);
    record->uid = (uint32_t) ecfs_cursor_le (&in, 4);
    record->gid = (uint32_t) ecfs_cursor_le (&in, 4);
    record->mtime_ns = (int64_t) ecfs_cursor_le (&in, 8);
    uint32_t n_ranges = (uint32_t) ecfs_cursor_le (&in, 4);
    record->ranges = g_array_new (FALSE, FALSE, sizeof (EcfsFileRange));
    for (uint32_t i = 0; i < n_ranges && !in.bad; i++) {
        EcfsFileRange range;
        range.file_offset = ecfs_cursor_le (&in, 8);
        range.length = ecfs_cursor_le (&in, 8);
        range.object_offset = ecfs_cursor_le (&in, 8);
        g_array_append_val (record->ranges, range);
    }
    size_t path_bytes = ecfs_cursor_le (&in, 2);
    const uint8_t *path = ecfs_cursor_bytes (&in, path_bytes);
    if (in.bad || path_bytes > PATH_MAX_BYTES || memchr (path, '\0', path_bytes) != NULL)
        return ecfs_fail (error, EBADMSG, "a file record is damaged");
    record->path = g_strndup ((const char *) path, path_bytes);
    return true;
}

/* Of the records, in their order: which content each is of. */
static bool parse_contents (EcfsCursor *from, const GPtrArray *records, GError **error)
{
    for (guint i = 0; i < records->len && from->left > 0; i++) {
        EcfsFileRecord *record = g_ptr_array_index (records, i);
        uint32_t length = (uint32_t) ecfs_cursor_le (from, 4);
        EcfsCursor in = {.at = ecfs_cursor_bytes (from, length), .left = length};
        if (in.at == NULL)
            break;
        ecfs_cursor_copy (&in, record->content.bytes, sizeof record->content.bytes);
        record->number = (uint32_t) ecfs_cursor_le (&in, 4);
        record->n_objects = (uint32_t) ecfs_cursor_le (&in, 4);
        uint32_t n_elsewhere = (uint32_t) ecfs_cursor_le (&in, 4);
        if (in.bad || n_elsewhere > in.left / ELSEWHERE_BYTES ||
            (record->n_objects > 0 && record->number >= record->n_objects))
            return ecfs_fail (error, EBADMSG, "what a file's content consists of is damaged");
        record->elsewhere = g_array_sized_new (FALSE, FALSE, sizeof (EcfsElsewhere), n_elsewhere);
        for (uint32_t j = 0; j < n_elsewhere; j++) {
            EcfsElsewhere part;
            part.file_offset = ecfs_cursor_le (&in, 8);
            part.length = ecfs_cursor_le (&in, 8);
            ecfs_cursor_copy (&in, part.object.bytes, sizeof part.object.bytes);
            part.object_offset = ecfs_cursor_le (&in, 8);
            g_array_append_val (record->elsewhere, part);
        }
    }
    return !from->bad || ecfs_fail (error, EBADMSG, "the contents section is damaged");
}

static bool parse_sizes (EcfsCursor *from, EcfsStripeFooter *footer, GError **error)
{
    footer->size = ecfs_cursor_le (from, 8);
    uint64_t coded = ecfs_cursor_le (from, 8);
    footer->area_bytes = ecfs_cursor_le (from, 8);
    ecfs_cursor_copy (from, footer->area_digest, ECFS_STRIPE_DIGEST_BYTES);
    ecfs_cursor_copy (from, footer->object_digest, ECFS_STRIPE_DIGEST_BYTES);
    if (from->bad)
        return ecfs_fail (error, EBADMSG, "the sizes section is too short");
    if (coded != footer->size)
        return ecfs_fail (error, ENOTSUP, "coded and content bytes differ: a later ecfs wrote this");
    return true;
}

/* The sections of a footer, or of what is sealed in one. */
typedef struct FooterParts {
    EcfsCursor sizes;
    EcfsCursor records;
    EcfsCursor contents;
    EcfsCursor deflated;
    EcfsCursor chain;
    EcfsCursor sealed;
    Authentic authentic;
} FooterParts;

static bool take_part (FooterParts *parts, const Section *section, GError **error)
{
    switch (section->type) {
    case SECTION_SIZES:
        parts->sizes = section->payload;
        return true;
    case SECTION_RECORDS:
        parts->records = section->payload;
        return true;
    case SECTION_CONTENTS:
        parts->contents = section->payload;
        return true;
    case SECTION_DEFLATED:
        parts->deflated = section->payload;
        return true;
    case SECTION_SEALED:
        parts->sealed = section->payload;
        return true;
    case SECTION_CHAIN:
        parts->chain = section->payload;
        return true;
    case SECTION_PADDING:
    case SECTION_MAC:
        return true;
    default:
        return unknown_section (section, error);
    }
}

static bool find_parts (const uint8_t *bytes, size_t size, FooterParts *ret_parts, GError **error)
{
    EcfsCursor from = {.at = bytes, .left = size};
    *ret_parts = (FooterParts){.authentic = {.mac = NULL}};
    while (from.left > 0) {
        Section section;
        size_t offset = (size_t) (from.at - bytes);
        if (!next_section (&from, &section, error))
            return false;
        note_section (&ret_parts->authentic, &section, offset);
        if (!take_part (ret_parts, &section, error))
            return false;
    }
    return true;
}

static bool parse_plain_records (FooterParts *parts, GPtrArray *records, GError **error)
{
    while (parts->records.left > 0) {
        if (records->len == ECFS_RECORDS_MAX)
            return ecfs_fail (error, EBADMSG, "the footer tells of more files than an object may have");
        if (!parse_record (&parts->records, records, error))
            return false;
    }
    return parse_contents (&parts->contents, records, error);
}

static bool parse_records (FooterParts *parts, EcfsStripeFooter *footer, GError **error)
{
    FooterParts inflated;
    footer->is_pack = parts->deflated.at != NULL;
    if (!footer->is_pack)
        return parse_plain_records (parts, footer->records, error);
    uint64_t size = ecfs_cursor_le (&parts->deflated, 4);
    /* What is promised is not believed beyond what deflate can do. */
    if (parts->deflated.bad || size > ECFS_RECORDS_MAX_BYTES || size / 1100 > parts->deflated.left)
        return ecfs_fail (error, EBADMSG, "the footer's records cannot be as long as it says");
    g_autofree uint8_t *plain = g_malloc (size + 1);
    uLongf plain_bytes = size + 1;
    int result = uncompress (plain, &plain_bytes, parts->deflated.at, parts->deflated.left);
    if (result != Z_OK || plain_bytes != size)
        return ecfs_fail (error, EBADMSG, "the footer's records cannot be uncompressed");
    return find_parts (plain, size, &inflated, error) && parse_plain_records (&inflated, footer->records, error);
}

static bool parse_chain (const EcfsCursor *from, EcfsStripeFooter *footer, GError **error)
{
    if (from->at == NULL)
        return true;
    if (from->left == 0 || from->left % ECFS_CHAIN_LINK_BYTES != 0)
        return ecfs_fail (error, EBADMSG, "the chain section is damaged");
    footer->chain = g_byte_array_sized_new ((guint) from->left);
    g_byte_array_append (footer->chain, from->at, (guint) from->left);
    return true;
}

static bool parse_sealed_records (const FooterParts *parts, const EcfsStripeHeader *header, const EcfsSealKeys *keys,
                                  EcfsStripeFooter *footer, GError **error)
{
    FooterParts opened;
    g_autoptr (GByteArray) open = ecfs_key_open (keys->records, header->object.bytes, sizeof header->object.bytes,
                                                 parts->sealed.at, parts->sealed.left, error);
    return open != NULL && find_parts (open->data, open->len, &opened, error) &&
           parse_chain (&opened.chain, footer, error) && parse_records (&opened, footer, error);
}

static bool parse_footer (const uint8_t *bytes, size_t size, const EcfsStripeHeader *header, const EcfsSealKeys *keys,
                          EcfsStripeFooter *footer, GError **error)
{
    FooterParts parts;
    if (!find_parts (bytes, size, &parts, error))
        return false;
    const Authentic *authentic = &parts.authentic;
    if (keys != NULL &&
        (!authentic->is_last || !check_mac (keys, MAC_OF_FOOTER, header, bytes, authentic->covers, authentic->mac)))
        return ecfs_fail (error, EBADMSG, "the footer is not authentic");
    if (parts.sizes.at == NULL)
        return ecfs_fail (error, EBADMSG, "the footer has no sizes section");
    return parse_sizes (&parts.sizes, footer, error) &&
           (keys == NULL ? parse_records (&parts, footer, error)
                         : parse_sealed_records (&parts, header, keys, footer, error));
}

bool ecfs_stripe_footer_parse (const uint8_t *bytes, size_t size, uint64_t footer_hash, const EcfsStripeHeader *header,
                               const EcfsSealKeys *keys, EcfsStripeFooter *ret_footer, GError **error)
{
    if (ecfs_xxh3_64 (bytes, size) != footer_hash)
        return ecfs_fail (error, EBADMSG, "the footer fails its checksum");
    EcfsStripeFooter footer = {.records = g_ptr_array_new_with_free_func (ecfs_file_record_free)};
    if (!parse_footer (bytes, size, header, keys, &footer, error)) {
        ecfs_stripe_footer_clear (&footer);
        return false;
    }
    *ret_footer = footer;
    return true;
}

void ecfs_stripe_footer_clear (EcfsStripeFooter *footer)
{
    g_clear_pointer (&footer->records, g_ptr_array_unref);
    g_clear_pointer (&footer->chain, g_byte_array_unref);
}

bool ecfs_stripe_layout (const EcfsStripeHeader *header, uint64_t size, EcfsLayout *ret_layout, GError **error)
{
    EcfsLayout layout = {.size = size,
                         .segment_bytes = header->segment_bytes,
                         .block_bytes = header->block_bytes,
                         .header_bytes = header->header_bytes,
                         .granule = header->granule,
                         .k = header->k,
                         .tag_bytes = ecfs_tag_bytes_under (&header->seal)};
    if (!ecfs_layout_valid (&layout))
        return ecfs_fail (error, EBADMSG, "the sizes in the stripe's header make no sense");
    *ret_layout = layout;
    return true;
}
