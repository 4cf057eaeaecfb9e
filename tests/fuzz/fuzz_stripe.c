/*
 * Header, footer and tail of a stripe, and its name: any bytes are refused with an error of the face, or are read and
 * give numbers that the layout can work with. Checksums are put right first, or no input would get past them; and all
 * that needs a key is also done as somebody with the key would, so that what is behind a seal is reached.
 */
#include "object/format.h"
#include "util/bytes.h"

#include <stdlib.h>
#include <xxhash.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

#define SECTION_MAC      2
#define SECTION_SEALED   19
#define SECTION_DEFLATED 20
#define SECTION_BYTES    16 /* type, flags, length; and the checksum behind the payload */
#define MAC_OF_HEADER    1
#define MAC_OF_FOOTER    2
#define HEADER_BYTES_AT  12 /* in a header */

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

/* Of one object under it; *ret_header is of its first stripe, as far as footers depend on that. */
static const EcfsSealKeys *fixed_keys (EcfsStripeHeader *ret_header)
{
    static EcfsSealKeys *keys;
    EcfsStripeHeader header = {.instance = 7, .seal = {.kind = ECFS_SEAL_CTR_GHASH}};
    memset (header.archive.bytes, 'a', sizeof header.archive.bytes);
    memset (header.object.bytes, 'o', sizeof header.object.bytes);
    memset (header.seal.nonce, 'n', sizeof header.seal.nonce);
    header.seal.key = *ecfs_key_ring_active (fixed_ring ());
    if (keys == NULL)
        g_assert_true (ecfs_seal_open (&header.seal, fixed_ring (), &header.object, &keys, NULL));
    *ret_header = header;
    return keys;
}

static void check_refused (const GError *error)
{
    g_assert_true (error != NULL && error->domain == ECFS_ERROR);
    g_assert_true (error->code == EBADMSG || error->code == ENOTSUP || error->code == EAGAIN);
}

/* Makes the checksums of all sections in bytes[at, end) right. */
static void mend_sections (uint8_t *bytes, size_t at, size_t end)
{
    while (end - at >= 16) {
        size_t length = ecfs_get_le (bytes + at + 4, 4);
        if (length > end - at - 16)
            return;
        ecfs_put_le (bytes + at + 8 + length, XXH3_64bits (bytes + at, 8 + length), 8);
        at += 16 + length;
    }
}

static void check_layout (const EcfsStripeHeader *header, uint64_t size)
{
    EcfsLayout layout;
    if (!ecfs_stripe_layout (header, size, &layout, NULL))
        return;
    uint64_t last = ecfs_layout_n_segments (&layout) - 1;
    uint32_t n_blocks = ecfs_layout_n_blocks (&layout, last);
    g_assert_cmpuint (n_blocks, >, 0);
    g_assert_cmpuint (ecfs_layout_block_bytes (&layout, last, n_blocks - 1), >, 0);
    g_assert_cmpuint (ecfs_layout_block_offset (&layout, last, n_blocks), ==,
                      layout.header_bytes + ecfs_layout_area_bytes (&layout));
    g_assert_cmpuint (ecfs_layout_area_bytes (&layout), >=, size / layout.k);
}

/* A code that the header describes, or a reason why there is none. Large graphs take long to judge: they are left out.
 */
static void check_codec (const EcfsStripeHeader *header, const uint8_t *bytes, size_t size)
{
    g_assert_true (header->parameters_bytes == 0 || (header->parameters >= bytes && header->parameters_bytes <= size &&
                                                     header->parameters + header->parameters_bytes <= bytes + size));
    if (header->n_written > 32)
        return;
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsCodec) codec = ecfs_stripe_codec (header, &error);
    g_assert_true ((codec == NULL) == (error != NULL));
    if (codec == NULL)
        g_assert_true (error->domain == ECFS_ERROR && (error->code == EINVAL || error->code == EBADMSG));
}

/* Nobody makes what is authentic by trying. */
static void check_keys (const EcfsStripeHeader *header, const uint8_t *bytes)
{
    static EcfsKeyRing *ring;
    EcfsSealKeys *keys;
    if (ring == NULL)
        ring = ecfs_key_ring_new (&header->archive);
    const EcfsSeal seal = ecfs_seal_new (ring);
    g_assert_true (ecfs_seal_open (&seal, ring, &header->object, &keys, NULL));
    g_assert_false (ecfs_stripe_header_check (header, bytes, keys, NULL));
    g_assert_true (ecfs_stripe_header_check (header, bytes, NULL, NULL) == (header->seal.kind == ECFS_SEAL_NONE));
    ecfs_seal_keys_unref (keys);
}

static void try_header (uint8_t *bytes, size_t size)
{
    EcfsStripeHeader header;
    for (int mended = 0; mended < 2; mended++) {
        g_autoptr (GError) error = NULL;
        if (ecfs_stripe_header_parse (bytes, size, &header, &error)) {
            check_layout (&header, 1 + header.sequence % ECFS_OBJECT_MAX_BYTES);
            check_codec (&header, bytes, size);
            check_keys (&header, bytes);
        } else {
            check_refused (error);
        }
        if (size > ECFS_STRIPE_PREAMBLE_BYTES)
            mend_sections (bytes, ECFS_STRIPE_PREAMBLE_BYTES, size);
    }
}

static void check_same_content (const EcfsFileRecord *a, const EcfsFileRecord *b)
{
    guint n_elsewhere = a->elsewhere == NULL ? 0 : a->elsewhere->len;
    g_assert_true (ecfs_uuid_equal (&a->content, &b->content));
    g_assert_true (a->number == b->number && a->n_objects == b->n_objects);
    g_assert_true (a->n_objects == 0 || a->number < a->n_objects);
    g_assert_cmpuint (n_elsewhere, ==, b->elsewhere->len);
    for (guint i = 0; i < n_elsewhere; i++)
        g_assert_cmpuint (g_array_index (a->elsewhere, EcfsElsewhere, i).length, ==,
                          g_array_index (b->elsewhere, EcfsElsewhere, i).length);
}

static void try_footer (uint8_t *bytes, size_t size)
{
    mend_sections (bytes, 0, size);
    g_autoptr (GError) error = NULL;
    EcfsStripeFooter footer;
    if (!ecfs_stripe_footer_parse (bytes, size, XXH3_64bits (bytes, size), NULL, NULL, &footer, &error)) {
        check_refused (error);
        return;
    }
    g_autoptr (GByteArray) again = ecfs_stripe_footer_format (&footer, 4096, &(EcfsStripeHeader){0}, NULL);
    EcfsStripeFooter second;
    size_t again_bytes = again->len - ECFS_STRIPE_TAIL_BYTES;
    bool parsed = ecfs_stripe_footer_parse (again->data, again_bytes, XXH3_64bits (again->data, again_bytes), NULL,
                                            NULL, &second, &error);
    g_assert_no_error (error);
    g_assert_true (parsed);
    g_assert_cmpuint (second.records->len, ==, footer.records->len);
    for (guint i = 0; i < footer.records->len; i++)
        check_same_content (g_ptr_array_index (footer.records, i), g_ptr_array_index (second.records, i));
    ecfs_stripe_footer_clear (&second);
    ecfs_stripe_footer_clear (&footer);
}

static void append_section (GByteArray *to, const uint8_t *head, const uint8_t *payload, size_t size)
{
    uint8_t hash[8];
    guint start = to->len;
    g_byte_array_append (to, head, 4); /* type and flags */
    ecfs_put_le (hash, size, 4);
    g_byte_array_append (to, hash, 4);
    g_byte_array_append (to, payload, (guint) size);
    ecfs_put_le (hash, XXH3_64bits (to->data + start, to->len - start), 8);
    g_byte_array_append (to, hash, sizeof hash);
}

/* What is in it is compressed as that of a pack is, whatever it is. */
static void try_packed_footer (uint8_t *bytes, size_t size)
{
    static const uint8_t head[4] = {SECTION_DEFLATED, 0, 1};
    uLongf deflated_bytes = compressBound (size);
    g_autoptr (GByteArray) made = g_byte_array_new ();
    g_autofree uint8_t *deflated = g_malloc (4 + deflated_bytes);
    mend_sections (bytes, 0, size);
    ecfs_put_le (deflated, size, 4);
    g_assert_cmpint (compress (deflated + 4, &deflated_bytes, bytes, size), ==, Z_OK);
    g_byte_array_append (made, bytes, (guint) size);
    append_section (made, head, deflated, 4 + deflated_bytes);
    try_footer (made->data, made->len);
}

/* As somebody with the key makes them */

static void append_mac (GByteArray *to, uint8_t part, const EcfsStripeHeader *header, const EcfsSealKeys *keys)
{
    static const uint8_t type[4] = {SECTION_MAC};
    uint8_t head[11] = {part}, mac[ECFS_MAC_BYTES];
    ecfs_put_le (head + 1, header->index, 2);
    ecfs_put_le (head + 3, header->instance, 8);
    ecfs_mac_compute (keys->frame, head, sizeof head, to->data, to->len, mac);
    append_section (to, type, mac, sizeof mac);
}

/* The sections of @bytes but for MACs; what is in one that is sealed is sealed, whatever it is. */
static void append_sealed (GByteArray *to, uint8_t *bytes, size_t size, const EcfsStripeHeader *header,
                           const EcfsSealKeys *keys)
{
    for (size_t at = 0; size - at >= SECTION_BYTES;) {
        size_t length = ecfs_get_le (bytes + at + 4, 4);
        uint8_t *payload = bytes + at + 8;
        if (length > size - at - SECTION_BYTES)
            return;
        if (bytes[at] == SECTION_SEALED) {
            mend_sections (payload, 0, length);
            g_autoptr (GByteArray) sealed =
                ecfs_key_seal (keys->records, header->object.bytes, sizeof header->object.bytes, payload, length);
            append_section (to, bytes + at, sealed->data, sealed->len);
        } else if (bytes[at] != SECTION_MAC) {
            append_section (to, bytes + at, payload, length);
        }
        at += SECTION_BYTES + length;
    }
}

/* It is authentic, and is read or refused for what it says. */
static void try_sealed_footer (uint8_t *bytes, size_t size)
{
    EcfsStripeHeader header;
    EcfsStripeFooter footer, second;
    g_autoptr (GError) error = NULL;
    const EcfsSealKeys *keys = fixed_keys (&header);
    g_autoptr (GByteArray) made = g_byte_array_new ();
    append_sealed (made, bytes, size, &header, keys);
    append_mac (made, MAC_OF_FOOTER, &header, keys);
    if (!ecfs_stripe_footer_parse (made->data, made->len, XXH3_64bits (made->data, made->len), &header, keys, &footer,
                                   &error)) {
        check_refused (error);
        g_assert_cmpstr (error->message, !=, "the footer is not authentic");
        return;
    }
    g_autoptr (GByteArray) again = ecfs_stripe_footer_format (&footer, 4096, &header, keys);
    size_t again_bytes = again->len - ECFS_STRIPE_TAIL_BYTES;
    bool parsed = ecfs_stripe_footer_parse (again->data, again_bytes, XXH3_64bits (again->data, again_bytes), &header,
                                            keys, &second, &error);
    g_assert_no_error (error);
    g_assert_true (parsed);
    g_assert_cmpuint (second.records->len, ==, footer.records->len);
    for (guint i = 0; i < footer.records->len; i++)
        check_same_content (g_ptr_array_index (footer.records, i), g_ptr_array_index (second.records, i));
    g_assert_true ((footer.chain == NULL) == (second.chain == NULL));
    if (footer.chain != NULL)
        g_assert_cmpmem (footer.chain->data, footer.chain->len, second.chain->data, second.chain->len);
    ecfs_stripe_footer_clear (&second);
    ecfs_stripe_footer_clear (&footer);
}

/* With a MAC at its end of the index and the instance that it tells, under the key that it tells of, if that is here.
 */
static void try_sealed_header (uint8_t *bytes, size_t size)
{
    EcfsStripeHeader header;
    EcfsSealKeys *keys = NULL;
    g_autoptr (GByteArray) made = g_byte_array_new ();
    if (size < ECFS_STRIPE_PREAMBLE_BYTES)
        return;
    const EcfsSealKeys *some = fixed_keys (&header);
    g_byte_array_append (made, bytes, ECFS_STRIPE_PREAMBLE_BYTES);
    append_sealed (made, bytes + ECFS_STRIPE_PREAMBLE_BYTES, size - ECFS_STRIPE_PREAMBLE_BYTES, &header, some);
    ecfs_put_le (made->data + HEADER_BYTES_AT, made->len + SECTION_BYTES + ECFS_MAC_BYTES, 4);
    guint covers = made->len;
    append_mac (made, MAC_OF_HEADER, &header, some);
    if (!ecfs_stripe_header_parse (made->data, made->len, &header, NULL) || header.seal.kind == ECFS_SEAL_NONE ||
        !ecfs_seal_open (&header.seal, fixed_ring (), &header.object, &keys, NULL))
        return;
    g_byte_array_set_size (made, covers);
    append_mac (made, MAC_OF_HEADER, &header, keys);
    g_assert_true (ecfs_stripe_header_parse (made->data, made->len, &header, NULL));
    g_assert_true (ecfs_stripe_header_check (&header, made->data, keys, NULL));
    check_layout (&header, 1 + header.sequence % ECFS_OBJECT_MAX_BYTES);
    check_codec (&header, made->data, made->len);
    ecfs_seal_keys_unref (keys);
}

/* As a recovery reads one: what is authentic under the fixed key is what a seed was. */
static void try_whole (uint8_t *bytes, size_t size)
{
    uint64_t offset, hash;
    uint32_t footer_bytes;
    EcfsStripeHeader header;
    EcfsStripeFooter footer;
    EcfsSealKeys *keys = NULL;
    if (size < ECFS_STRIPE_TAIL_BYTES || !ecfs_stripe_header_parse (bytes, size, &header, NULL) ||
        !ecfs_seal_open (&header.seal, fixed_ring (), &header.object, &keys, NULL))
        return;
    if (ecfs_stripe_header_check (&header, bytes, keys, NULL) &&
        ecfs_stripe_tail_parse (bytes + size - ECFS_STRIPE_TAIL_BYTES, size, &offset, &footer_bytes, &hash, NULL) &&
        ecfs_stripe_footer_parse (bytes + offset, footer_bytes, hash, &header, keys, &footer, NULL))
        ecfs_stripe_footer_clear (&footer);
    ecfs_seal_keys_unref (keys);
}

static void try_tail (uint8_t *bytes, size_t size)
{
    if (size < ECFS_STRIPE_TAIL_BYTES)
        return;
    uint8_t *tail = bytes + size - ECFS_STRIPE_TAIL_BYTES;
    for (int mended = 0; mended < 2; mended++) {
        uint64_t offset, hash;
        uint32_t footer_bytes;
        g_autoptr (GError) error = NULL;
        if (ecfs_stripe_tail_parse (tail, size, &offset, &footer_bytes, &hash, &error))
            g_assert_cmpuint (offset + footer_bytes + ECFS_STRIPE_TAIL_BYTES, ==, size);
        else
            check_refused (error);
        ecfs_put_le (tail + 32, XXH3_64bits (tail, 32), 8);
    }
}

static void try_name (const uint8_t *bytes, size_t size)
{
    g_autofree char *name = g_strndup ((const char *) bytes, size);
    EcfsUuid object;
    uint16_t index;
    uint64_t instance;
    char again[ECFS_STRIPE_NAME_SIZE];
    if (!ecfs_stripe_name_parse (name, &object, &index, &instance))
        return;
    ecfs_stripe_name (&object, index, instance, again);
    g_assert_cmpstr (again, ==, name);
}

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    static void (*const targets[]) (uint8_t *, size_t) = {
        try_header, try_footer, try_tail, try_whole, try_sealed_header, try_sealed_footer, try_packed_footer};
    for (size_t i = 0; i < G_N_ELEMENTS (targets); i++) {
        uint8_t *copy = malloc (MAX (size, 1)); /* a sanitizer sees what is read behind it */
        memcpy (copy, bytes, size);
        targets[i](copy, size);
        free (copy);
    }
    try_name (bytes, size);
    return 0;
}
