/* Headers, footers and tails: what is written is read, and no damage goes unnoticed. */
#include "object/format.h"

#include "util/bytes.h"

#include <string.h>
#include <xxhash.h>

#define AREA_BYTES 4242

static EcfsStripeHeader sample_header (void)
{
    return (EcfsStripeHeader){.archive = ecfs_uuid_new (),
                              .object = ecfs_uuid_new (),
                              .instance = 0x1122334455667788,
                              .sequence = 99,
                              .epoch = 7,
                              .family = 2,
                              .k = 4,
                              .n_written = 6,
                              .index = 5,
                              .segment_bytes = 1 << 20,
                              .block_bytes = ECFS_BLOCK_MAX_BYTES,
                              .granule = 16};
}

static void test_header (void)
{
    EcfsStripeHeader header = sample_header (), parsed;
    g_autoptr (GByteArray) bytes = ecfs_stripe_header_format (&header, NULL);
    g_autoptr (GError) error = NULL;
    g_assert_cmpuint (header.header_bytes, ==, bytes->len);
    ecfs_stripe_header_parse (bytes->data, bytes->len, &parsed, &error);
    g_assert_no_error (error);
    g_assert_cmpmem (&parsed.archive, 16, &header.archive, 16);
    g_assert_cmpmem (&parsed.object, 16, &header.object, 16);
    g_assert_cmpuint (parsed.instance, ==, header.instance);
    g_assert_cmpuint (parsed.sequence, ==, header.sequence);
    g_assert_cmpuint (parsed.epoch, ==, header.epoch);
    g_assert_cmpuint (parsed.family, ==, header.family);
    g_assert_cmpuint (parsed.k, ==, header.k);
    g_assert_cmpuint (parsed.n_written, ==, header.n_written);
    g_assert_cmpuint (parsed.index, ==, header.index);
    g_assert_cmpuint (parsed.header_bytes, ==, header.header_bytes);
    g_assert_cmpuint (parsed.segment_bytes, ==, header.segment_bytes);
    g_assert_cmpuint (parsed.block_bytes, ==, header.block_bytes);
    g_assert_cmpuint (parsed.granule, ==, header.granule);
}

static int parse_header (const uint8_t *bytes, size_t size, EcfsStripeHeader *ret_header)
{
    g_autoptr (GError) error = NULL;
    /* Exactly as long as it says, so that a sanitizer sees what is read behind it. */
    g_autofree uint8_t *exact = g_memdup2 (bytes, size);
    bool parsed = ecfs_stripe_header_parse (exact, size, ret_header, &error);
    g_assert_true (parsed == (error == NULL));
    return ecfs_errno (error);
}

static void test_header_damage (void)
{
    EcfsStripeHeader header = sample_header (), parsed;
    g_autoptr (GByteArray) bytes = ecfs_stripe_header_format (&header, NULL);
    for (guint at = 0; at < bytes->len; at++) {
        for (unsigned with = 1; with < 256; with = with * 2 + (with & 1)) {
            bytes->data[at] ^= (uint8_t) with;
            g_assert_cmpint (parse_header (bytes->data, bytes->len, &parsed), !=, 0);
            bytes->data[at] ^= (uint8_t) with;
        }
    }
    for (guint size = 0; size < bytes->len; size++) {
        parsed.header_bytes = 0;
        int code = parse_header (bytes->data, size, &parsed);
        g_assert_cmpint (code, ==, size < ECFS_STRIPE_PREAMBLE_BYTES ? EBADMSG : EAGAIN);
        if (code == EAGAIN)
            g_assert_cmpuint (parsed.header_bytes, ==, bytes->len);
    }
}

/* The graph of an ldpc code is in the header: bytes of the header itself, and the code made of them is the same. */
static void test_parameters (void)
{
    EcfsStripeHeader header = sample_header (), parsed;
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsCodec) codec = ecfs_codec_new ("ldpc:100+28", &error);
    g_assert_no_error (error);
    ecfs_stripe_header_set_code (&header, codec);
    g_autoptr (GByteArray) bytes = ecfs_stripe_header_format (&header, NULL);
    g_assert_true (ecfs_stripe_header_parse (bytes->data, bytes->len, &parsed, &error));
    g_assert_cmpmem (parsed.parameters, (int) parsed.parameters_bytes, header.parameters,
                     (int) header.parameters_bytes);
    g_assert_true (parsed.parameters > bytes->data && parsed.parameters < bytes->data + bytes->len);
    g_autoptr (EcfsCodec) same = ecfs_stripe_codec (&parsed, &error);
    g_assert_no_error (error);
    g_assert_cmpstr (ecfs_codec_identity (same), ==, ecfs_codec_identity (codec));
    parsed.parameters_bytes--;
    g_assert_null (ecfs_stripe_codec (&parsed, &error));
    g_assert_error (error, ECFS_ERROR, EBADMSG);
}

static void test_too_many_parameters (void)
{
    g_autofree uint8_t *huge = g_malloc0 (ECFS_CODEC_MAX_PARAMETERS + 1);
    EcfsStripeHeader header = sample_header (), parsed;
    header.parameters = huge;
    header.parameters_bytes = ECFS_CODEC_MAX_PARAMETERS + 1;
    g_autoptr (GByteArray) bytes = ecfs_stripe_header_format (&header, NULL);
    g_assert_cmpint (parse_header (bytes->data, bytes->len, &parsed), ==, EBADMSG);
}

static void append_section (GByteArray *to, uint16_t type, uint16_t flags)
{
    guint start = to->len;
    ecfs_append_le (to, type, 2);
    ecfs_append_le (to, flags, 2);
    ecfs_append_le (to, 3, 4);
    g_byte_array_append (to, (const uint8_t *) "new", 3);
    ecfs_append_le (to, XXH3_64bits (to->data + start, to->len - start), 8);
}

static void test_unknown_in_header (void)
{
    for (uint16_t flags = 0; flags < 4; flags++) {
        EcfsStripeHeader header = sample_header (), parsed;
        g_autoptr (GByteArray) bytes = ecfs_stripe_header_format (&header, NULL);
        append_section (bytes, 999, flags);
        ecfs_put_le (bytes->data + 12, bytes->len, 4);
        g_assert_cmpint (parse_header (bytes->data, bytes->len, &parsed), ==, flags & 1 ? ENOTSUP : 0);
        if ((flags & 1) == 0)
            g_assert_cmpuint (parsed.instance, ==, header.instance);
    }
}

static void record_free (gpointer data)
{
    EcfsFileRecord *record = data;
    g_array_unref (record->ranges);
    if (record->elsewhere != NULL)
        g_array_unref (record->elsewhere);
    g_free (record);
}

static void add_record (EcfsStripeFooter *footer, const char *path, unsigned n_ranges)
{
    EcfsFileRecord *record = g_new (EcfsFileRecord, 1);
    *record = (EcfsFileRecord){.ino = 5 + n_ranges,
                               .generation = 17,
                               .file_size = UINT64_MAX - 1,
                               .mode = 0100644,
                               .uid = 1000,
                               .gid = 65534,
                               .mtime_ns = -5,
                               .path = path,
                               .ranges = g_array_new (FALSE, FALSE, sizeof (EcfsFileRange))};
    for (unsigned i = 0; i < n_ranges; i++) {
        EcfsFileRange range = {.file_offset = i * 100, .length = 50, .object_offset = i * 50};
        g_array_append_val (record->ranges, range);
    }
    for (unsigned i = 0; i < n_ranges; i++) {
        EcfsElsewhere part = {.file_offset = i * 1000, .length = 5, .object_offset = i, .object = ecfs_uuid_new ()};
        record->elsewhere =
            record->elsewhere != NULL ? record->elsewhere : g_array_new (FALSE, FALSE, sizeof (EcfsElsewhere));
        g_array_append_val (record->elsewhere, part);
    }
    if (n_ranges > 0) {
        record->content = ecfs_uuid_new ();
        record->number = n_ranges - 1;
        record->n_objects = n_ranges % 2 == 0 ? 0 : n_ranges;
    }
    g_ptr_array_add (footer->records, record);
}

static EcfsStripeFooter sample_footer (void)
{
    EcfsStripeFooter footer = {.size = 123456,
                               .area_bytes = AREA_BYTES,
                               .area_digest = {1, 2, 3},
                               .object_digest = {4, 5, 6},
                               .records = g_ptr_array_new_with_free_func (record_free)};
    return footer;
}

/* Parses footer and tail as a reader does that has the whole file. */
static int parse_end (const uint8_t *bytes, size_t size, uint64_t offset, EcfsStripeFooter *ret_footer)
{
    g_autoptr (GError) error = NULL;
    uint64_t footer_offset, hash;
    uint32_t footer_bytes;
    if (size < ECFS_STRIPE_TAIL_BYTES)
        return EBADMSG;
    g_autofree uint8_t *tail = g_memdup2 (bytes + size - ECFS_STRIPE_TAIL_BYTES, ECFS_STRIPE_TAIL_BYTES);
    if (!ecfs_stripe_tail_parse (tail, offset + size, &footer_offset, &footer_bytes, &hash, &error))
        return ecfs_errno (error);
    g_assert_cmpuint (footer_offset, >=, offset);
    g_assert_cmpuint (footer_offset - offset + footer_bytes, <=, size);
    g_autofree uint8_t *exact = g_memdup2 (bytes + (footer_offset - offset), footer_bytes);
    if (!ecfs_stripe_footer_parse (exact, footer_bytes, hash, NULL, NULL, ret_footer, &error))
        return ecfs_errno (error);
    return 0;
}

static void check_footer (bool is_pack)
{
    EcfsStripeFooter footer = sample_footer (), parsed;
    footer.is_pack = is_pack;
    g_autofree char *longest = g_strnfill (4096, 'x');
    add_record (&footer, "dir/a file \xff\n", 3);
    add_record (&footer, "", 0);
    add_record (&footer, longest, 1000);
    g_autoptr (GByteArray) bytes = ecfs_stripe_footer_format (&footer, 5000, &(EcfsStripeHeader){0}, NULL);
    g_assert_cmpint (parse_end (bytes->data, bytes->len, 5000, &parsed), ==, 0);
    g_assert_cmpuint (parsed.size, ==, footer.size);
    g_assert_cmpuint (parsed.area_bytes, ==, footer.area_bytes);
    g_assert_cmpmem (parsed.area_digest, 16, footer.area_digest, 16);
    g_assert_cmpmem (parsed.object_digest, 16, footer.object_digest, 16);
    g_assert_true (parsed.is_pack == is_pack);
    g_assert_cmpuint (parsed.records->len, ==, 3);
    for (unsigned i = 0; i < 3; i++) {
        const EcfsFileRecord *a = g_ptr_array_index (footer.records, i), *b = g_ptr_array_index (parsed.records, i);
        g_assert_cmpuint (a->ino, ==, b->ino);
        g_assert_cmpuint (a->generation, ==, b->generation);
        g_assert_cmpuint (a->file_size, ==, b->file_size);
        g_assert_cmpuint (a->mode, ==, b->mode);
        g_assert_cmpuint (a->uid, ==, b->uid);
        g_assert_cmpuint (a->gid, ==, b->gid);
        g_assert_cmpint (a->mtime_ns, ==, b->mtime_ns);
        g_assert_cmpstr (a->path, ==, b->path);
        g_assert_true (ecfs_uuid_equal (&a->content, &b->content));
        g_assert_cmpuint (a->number, ==, b->number);
        g_assert_cmpuint (a->n_objects, ==, b->n_objects);
        guint n_elsewhere = a->elsewhere == NULL ? 0 : a->elsewhere->len;
        g_assert_cmpuint (b->elsewhere->len, ==, n_elsewhere);
        for (guint j = 0; j < n_elsewhere; j++)
            g_assert_cmpmem (&g_array_index (a->elsewhere, EcfsElsewhere, j), sizeof (EcfsElsewhere),
                             &g_array_index (b->elsewhere, EcfsElsewhere, j), sizeof (EcfsElsewhere));
        g_assert_cmpmem (a->ranges->data, (int) (a->ranges->len * sizeof (EcfsFileRange)), b->ranges->data,
                         (int) (b->ranges->len * sizeof (EcfsFileRange)));
    }
    ecfs_stripe_footer_clear (&parsed);
    ecfs_stripe_footer_clear (&parsed);
    g_ptr_array_unref (footer.records);
}

static void test_footer (void)
{
    check_footer (false);
    check_footer (true);
}

static void test_end_damage (void)
{
    EcfsStripeFooter footer = sample_footer (), parsed;
    add_record (&footer, "dir/file", 2);
    g_autoptr (GByteArray) bytes = ecfs_stripe_footer_format (&footer, 5000, &(EcfsStripeHeader){0}, NULL);
    for (guint at = 0; at < bytes->len; at++) {
        for (unsigned with = 1; with < 256; with = with * 2 + (with & 1)) {
            bytes->data[at] ^= (uint8_t) with;
            g_assert_cmpint (parse_end (bytes->data, bytes->len, 5000, &parsed), !=, 0);
            bytes->data[at] ^= (uint8_t) with;
        }
    }
    for (guint size = 0; size < bytes->len; size++)
        g_assert_cmpint (parse_end (bytes->data, size, 5000, &parsed), ==, EBADMSG);
    g_assert_cmpint (parse_end (bytes->data, bytes->len, 5001, &parsed), ==, EBADMSG);
    g_assert_cmpint (parse_end (bytes->data, bytes->len, 4999, &parsed), ==, EBADMSG);
    g_ptr_array_unref (footer.records);
}

/* A footer with another section put in, and its true checksum. */
static void test_unknown_in_footer (void)
{
    EcfsStripeFooter footer = sample_footer (), parsed;
    g_autoptr (GByteArray) whole = ecfs_stripe_footer_format (&footer, 5000, &(EcfsStripeHeader){0}, NULL);
    for (uint16_t flags = 0; flags < 4; flags++) {
        g_autoptr (GByteArray) bytes = g_byte_array_new ();
        g_autoptr (GError) error = NULL;
        g_byte_array_append (bytes, whole->data, whole->len - ECFS_STRIPE_TAIL_BYTES);
        append_section (bytes, 999, flags);
        bool fine = ecfs_stripe_footer_parse (bytes->data, bytes->len, XXH3_64bits (bytes->data, bytes->len), NULL,
                                              NULL, &parsed, &error);
        g_assert_cmpint (ecfs_errno (error), ==, flags & 1 ? ENOTSUP : 0);
        if (fine)
            ecfs_stripe_footer_clear (&parsed);
    }
    g_ptr_array_unref (footer.records);
}

/* Footers of true checksums whose records lie about their lengths, at every byte. */
static void test_lying_records (void)
{
    EcfsStripeFooter footer = sample_footer (), parsed;
    add_record (&footer, "dir/file", 2);
    g_autoptr (GByteArray) whole = ecfs_stripe_footer_format (&footer, 5000, &(EcfsStripeHeader){0}, NULL);
    size_t size = whole->len - ECFS_STRIPE_TAIL_BYTES;
    size_t sizes_end = 8 + ecfs_get_le (whole->data + 4, 4) + 8;
    size_t payload = ecfs_get_le (whole->data + sizes_end + 4, 4);
    for (size_t at = 0; at < payload; at++) {
        for (unsigned value = 0; value < 256; value += 51) {
            g_autofree uint8_t *bytes = g_memdup2 (whole->data, size);
            bytes[sizes_end + 8 + at] = (uint8_t) value;
            ecfs_put_le (bytes + sizes_end + 8 + payload, XXH3_64bits (bytes + sizes_end, 8 + payload), 8);
            g_autoptr (GError) error = NULL;
            if (ecfs_stripe_footer_parse (bytes, size, XXH3_64bits (bytes, size), NULL, NULL, &parsed, &error))
                ecfs_stripe_footer_clear (&parsed);
            else
                g_assert_error (error, ECFS_ERROR, EBADMSG);
        }
    }
    g_ptr_array_unref (footer.records);
}

static void test_overhead (void)
{
    EcfsStripeHeader header = sample_header ();
    EcfsStripeFooter footer = sample_footer ();
    add_record (&footer, "", 0);
    g_autoptr (GByteArray) head = ecfs_stripe_header_format (&header, NULL);
    g_autoptr (GByteArray) end = ecfs_stripe_footer_format (&footer, 5000, &(EcfsStripeHeader){0}, NULL);
    g_test_message ("header %u, footer and tail %u bytes", head->len, end->len);
    g_assert_cmpuint (head->len + end->len, <=, 1024);
    g_ptr_array_unref (footer.records);
}

static void test_layout (void)
{
    EcfsStripeHeader header = sample_header ();
    EcfsLayout layout;
    g_autoptr (GError) error = NULL;
    g_byte_array_unref (ecfs_stripe_header_format (&header, NULL));
    g_assert_true (ecfs_stripe_layout (&header, 5, &layout, &error));
    g_assert_cmpuint (layout.header_bytes, ==, header.header_bytes);
    g_assert_false (ecfs_stripe_layout (&header, 0, &layout, &error));
    g_assert_error (error, ECFS_ERROR, EBADMSG);
    header.k = 3;
    g_assert_false (ecfs_stripe_layout (&header, 5, &layout, NULL));
}

static void test_clear (void)
{
    EcfsStripeFooter footer = {0};
    ecfs_stripe_footer_clear (&footer);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/format/a-header-carries-the-parameters-of-its-code", test_parameters);
    g_test_add_func ("/format/parameters-beyond-all-bounds-are-refused", test_too_many_parameters);
    g_test_add_func ("/format/a-header-round-trips", test_header);
    g_test_add_func ("/format/every-damaged-or-missing-byte-of-a-header-is-noticed", test_header_damage);
    g_test_add_func ("/format/unknown-sections-of-a-header-are-skipped-unless-critical", test_unknown_in_header);
    g_test_add_func ("/format/a-footer-round-trips", test_footer);
    g_test_add_func ("/format/every-damaged-or-missing-byte-of-footer-and-tail-is-noticed", test_end_damage);
    g_test_add_func ("/format/unknown-sections-of-a-footer-are-skipped-unless-critical", test_unknown_in_footer);
    g_test_add_func ("/format/records-that-lie-are-refused", test_lying_records);
    g_test_add_func ("/format/a-stripe-costs-at-most-1-kib", test_overhead);
    g_test_add_func ("/format/sizes-that-make-no-sense-are-refused", test_layout);
    g_test_add_func ("/format/clearing-nothing-is-fine", test_clear);
    return g_test_run ();
}
