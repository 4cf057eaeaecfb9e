#include "catalog/journal.h"
#include "fixture.h"

static const EcfsSeal seal = {.kind = ECFS_SEAL_CTR_HMAC, .key = {"key of archives"}, .nonce = "ABCDEFGHIJKLMNO"};

/* One of each kind. */
static GByteArray *full_record (void)
{
    GByteArray *record = g_byte_array_new ();
    EcfsAttr attr = {.ino = 7,
                     .mode = S_IFREG | 0644,
                     .nlink = 2,
                     .uid = 3,
                     .gid = 4,
                     .rdev = 5,
                     .size = 600,
                     .atime_ns = -1,
                     .mtime_ns = 2,
                     .ctime_ns = 3,
                     .btime_ns = INT64_MIN};
    EcfsUuid uuids[2] = {{"0123456789abcde"}, {"fedcba987654321"}};
    g_autoptr (EcfsObjectRow) object = ecfs_object_row_new ();
    *object = (EcfsObjectRow){.uuid = uuids[1],
                              .epoch = 3,
                              .sequence = 99,
                              .code = g_strdup ("copies:2"),
                              .size = 600,
                              .segment_bytes = 1,
                              .block_bytes = 2,
                              .header_bytes = 3,
                              .stripes = object->stripes};
    for (uint16_t i = 0; i < 2; i++) {
        EcfsStripeRow stripe = {.index = i, .instance = 1234567890123 + i, .endpoint = 1, .size = 77};
        g_array_append_val (object->stripes, stripe);
    }
    EcfsJournalExtent extents[2] = {{.offset = 0, .length = 10, .object = uuids[1]},
                                    {.offset = 100, .length = 500, .object = uuids[1], .object_offset = 10}};
    ecfs_journal_put_epoch (record, 9);
    ecfs_journal_put_inode (record, &attr, "rs:4+2");
    ecfs_journal_put_inode (record, &attr, NULL);
    ecfs_journal_put_target (record, 8, "../there");
    ecfs_journal_put_name_added (record, 1, "new", 7);
    ecfs_journal_put_name_removed (record, 1, "...");
    ecfs_journal_put_touch (record, &attr);
    ecfs_journal_put_xattr_set (record, 7, "user.x", "a\0b", 3);
    ecfs_journal_put_xattr_removed (record, 7, "user.y");
    ecfs_journal_put_object_key (record, &uuids[1], &seal);
    ecfs_journal_put_object (record, object, uuids);
    ecfs_journal_put_content (record, &attr, extents, 2);
    ecfs_journal_put_stripe (record, &uuids[1], &g_array_index (object->stripes, EcfsStripeRow, 1), &uuids[0]);
    ecfs_journal_put_inode_dropped (record, 7);
    ecfs_journal_put_intent (record, &uuids[1], 7);
    ecfs_journal_put_endpoint (record, &uuids[0], ECFS_ENDPOINT_DRAINING, "hamburg");
    ecfs_journal_put_code (record, "ldpc:1+1/0123456789abcdef", (const uint8_t *) "\1\0", 2);
    ecfs_journal_put_object_kind (record, &uuids[1], ECFS_OBJECT_PACK);
    ecfs_journal_put_log_end (record, &uuids[0], 4096);
    static const EcfsJournalPlaced places[] = {{.ino = 7, .from = 72, .to = 0}, {.ino = 9, .from = 1096, .to = 600}};
    ecfs_journal_put_packed (record, &uuids[1], &uuids[0], places, G_N_ELEMENTS (places));
    ecfs_journal_put_unused (record, &uuids[0]);
    ecfs_journal_put_content_sha256 (record, 9, 98, (const uint8_t *) "SHA-256 of what inode 9 has now.");
    ecfs_journal_put_session (record, 4711, &uuids[0]);
    ecfs_journal_put_mark (record, "release-1", 3, 99, -5);
    ecfs_journal_put_mark_removed (record, "release-1");
    ecfs_journal_put_past_stripe (record, &uuids[1], &g_array_index (object->stripes, EcfsStripeRow, 1), &uuids[0]);
    ecfs_journal_put_sum (record, ECFS_JOURNAL_STANDS, (const uint8_t *) "STANDS HERE.....");
    ecfs_journal_put_sum (record, ECFS_JOURNAL_PREVIOUS, (const uint8_t *) "WAS BEFORE......");
    return record;
}

/* Reads all items into an array; returns what the last call said. */
static int read_all (const uint8_t *bytes, size_t size, GArray *items)
{
    EcfsCursor cursor;
    EcfsJournalItem item;
    int result = ecfs_journal_open (&cursor, bytes, size);
    if (result != 0)
        return result;
    while ((result = ecfs_journal_next (&cursor, &item)) == 1)
        g_array_append_val (items, item);
    return result;
}

static void assert_text (EcfsJournalBytes got, const char *text, int size)
{
    g_assert_cmpmem (got.bytes, (int) got.size, text, size);
}

static void test_round_trip (void)
{
    g_autoptr (GByteArray) record = full_record ();
    g_autoptr (GArray) items = g_array_new (false, false, sizeof (EcfsJournalItem));
    g_assert_cmpint (read_all (record->data, record->len, items), ==, 0);
    static const EcfsJournalType types[] = {1,  2,  2,  3,  4,  5,  6,  7,   8,   16,  9,   10,  11,  12,
                                            13, 14, 15, 17, 18, 19, 20, 153, 152, 154, 155, 156, 151, 150};
    g_assert_cmpuint (items->len, ==, G_N_ELEMENTS (types));
    const EcfsJournalItem *item = (const EcfsJournalItem *) (void *) items->data;
    for (guint i = 0; i < items->len; i++)
        g_assert_cmpint (item[i].type, ==, types[i]);
    g_assert_cmpuint (item[0].epoch, ==, 9);
    g_assert_cmpuint (item[1].attr.size, ==, 600);
    g_assert_cmpint (item[1].attr.btime_ns, ==, INT64_MIN);
    assert_text (item[1].code, "rs:4+2", 6);
    g_assert_cmpuint (item[2].code.size, ==, 0);
    assert_text (item[3].value, "../there", 8);
    assert_text (item[4].name, "new", 3);
    g_assert_cmpuint (item[4].attr.ino, ==, 7);
    assert_text (item[5].name, "...", 3);
    g_assert_cmpuint (item[6].attr.nlink, ==, 2);
    assert_text (item[7].name, "user.x", 6);
    assert_text (item[7].value, "a\0b", 3);
    g_assert_cmpmem (item[9].uuid.bytes, 16, "fedcba987654321", 16);
    EcfsSeal told;
    OK (e, ecfs_seal_parse (item[9].value.bytes, item[9].value.size, &told, &e));
    g_assert_cmpint (told.kind, ==, ECFS_SEAL_CTR_HMAC);
    g_assert_cmpmem (told.key.bytes, 16, "key of archives", 16);
    g_assert_cmpmem (told.nonce, 16, "ABCDEFGHIJKLMNO", 16);
    g_assert_cmpuint (item[10].sequence, ==, 99);
    g_assert_cmpuint (item[10].n_parts, ==, 2);
    g_assert_cmpuint (ecfs_journal_stripe (&item[10], 1).instance, ==, 1234567890124);
    g_assert_cmpmem (ecfs_journal_stripe (&item[10], 1).endpoint.bytes, 16, "fedcba987654321", 16);
    g_assert_cmpuint (ecfs_journal_extent (&item[11], 1).object_offset, ==, 10);
    g_assert_cmpuint (ecfs_journal_extent (&item[11], 1).length, ==, 500);
    g_assert_cmpuint (ecfs_journal_stripe (&item[12], 0).index, ==, 1);
    assert_text (item[15].name, "hamburg", 7);
    g_assert_cmpuint (item[15].state, ==, ECFS_ENDPOINT_DRAINING);
    assert_text (item[16].code, "ldpc:1+1/0123456789abcdef", 25);
    assert_text (item[16].value, "\1\0", 2);
    g_assert_cmpuint (item[17].state, ==, ECFS_OBJECT_PACK);
    g_assert_cmpmem (item[17].uuid.bytes, 16, "fedcba987654321", 16);
    g_assert_cmpuint (item[18].object_size, ==, 4096);
    g_assert_cmpmem (item[19].uuid.bytes, 16, "fedcba987654321", 16);
    g_assert_cmpmem (item[19].other.bytes, 16, "0123456789abcde", 16);
    g_assert_cmpuint (item[19].n_parts, ==, 2);
    g_assert_cmpuint (ecfs_journal_placed (&item[19], 1).ino, ==, 9);
    g_assert_cmpuint (ecfs_journal_placed (&item[19], 1).from, ==, 1096);
    g_assert_cmpuint (ecfs_journal_placed (&item[19], 1).to, ==, 600);
    g_assert_cmpmem (item[20].uuid.bytes, 16, "0123456789abcde", 16);
    g_assert_cmpuint (item[21].attr.ino, ==, 9);
    g_assert_cmpuint (item[21].sequence, ==, 98);
    g_assert_cmpmem (item[21].sha256, 32, "SHA-256 of what inode 9 has now.", 32);
    g_assert_cmpuint (item[22].sequence, ==, 4711);
    g_assert_cmpmem (item[22].uuid.bytes, 16, "0123456789abcde", 16);
    assert_text (item[23].name, "release-1", 9);
    g_assert_cmpuint (item[23].epoch, ==, 3);
    g_assert_cmpuint (item[23].sequence, ==, 99);
    g_assert_cmpint (item[23].attr.mtime_ns, ==, -5);
    assert_text (item[24].name, "release-1", 9);
    g_assert_cmpmem (item[25].uuid.bytes, 16, "fedcba987654321", 16);
    g_assert_cmpuint (ecfs_journal_stripe (&item[25], 0).index, ==, 1);
    g_assert_cmpmem (ecfs_journal_stripe (&item[25], 0).endpoint.bytes, 16, "0123456789abcde", 16);
    g_assert_cmpmem (item[26].sum, 16, "STANDS HERE.....", 16);
    uint8_t sum[ECFS_JOURNAL_SUM_BYTES];
    g_assert_true (ecfs_journal_previous (record->data, record->len, sum));
    g_assert_cmpmem (sum, 16, "WAS BEFORE......", 16);
}

/* The same numbers in the same places for ever: these bytes are on endpoints. */
static void test_bytes (void)
{
    g_autoptr (GByteArray) record = g_byte_array_new ();
    ecfs_journal_put_name_added (record, 0x0102, "ab", 0x0304);
    static const uint8_t bytes[] = {1, 4, 18, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0, 'a', 'b'};
    g_assert_cmpmem (record->data, record->len, bytes, sizeof bytes);
    g_byte_array_set_size (record, 0);
    ecfs_journal_put_object_key (record, &(EcfsUuid){"0123456789ABCDE"}, &seal);
    static const uint8_t head[] = {1, 16, 50, 0, 0, 0}, kind[] = {1, 0};
    g_assert_cmpuint (record->len, ==, sizeof head + 50);
    g_assert_cmpmem (record->data, sizeof head, head, sizeof head);
    g_assert_cmpmem (record->data + 6, 16, "0123456789ABCDE", 16);
    g_assert_cmpmem (record->data + 22, sizeof kind, kind, sizeof kind);
    g_assert_cmpmem (record->data + 24, 32, "key of archives\0ABCDEFGHIJKLMNO", 32);
}

static int code_of (const uint8_t *bytes, size_t size)
{
    g_autoptr (GArray) items = g_array_new (false, false, sizeof (EcfsJournalItem));
    g_autofree uint8_t *copy = g_memdup2 (bytes, size); /* so that a sanitizer sees its end */
    return read_all (copy, size, items);
}

static void test_unknown (void)
{
    static const uint8_t skipped[] = {1, 0xf0, 1, 0, 0, 0, 'x', 1, 4, 0, 0, 0, 1, 0, 0, 0};
    static const uint8_t critical[] = {1, 0x7f, 1, 0, 0, 0, 'x'};
    static const uint8_t later[] = {2, 1, 4, 0, 0, 0, 1, 0, 0, 0};
    g_assert_cmpint (code_of (skipped, sizeof skipped), ==, 0);
    g_assert_cmpint (code_of (critical, sizeof critical), ==, -ENOTSUP);
    g_assert_cmpint (code_of (later, sizeof later), ==, -ENOTSUP);
    g_assert_cmpint (code_of (later, 0), ==, -EBADMSG);
}

static void test_impossible (void)
{
    static const struct {
        const char *what;
        uint8_t bytes[32];
        size_t size;
    } bad[] = {
        {"an empty name", {1, 5, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}, 14},
        {"a name with a slash", {1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, '/', 'a'}, 16},
        {"dot dot", {1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, '.', '.'}, 16},
        {"dot", {1, 5, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, '.'}, 15},
        {"a size beyond the end", {1, 1, 255, 255, 255, 255, 1, 0, 0, 0}, 10},
        {"a payload too long", {1, 1, 5, 0, 0, 0, 1, 0, 0, 0, 0}, 11},
        {"a key that is too short", {1, 16, 18, 0, 0, 0, 'u', 'u', 'i', 'd', [22] = 1}, 24},
        {"a place that is cut off", {1, 19, 31, 0, 0, 0, 'u'}, 31},
        {"a code without parameters", {1, 15, 3, 0, 0, 0, 2, 'a', ':'}, 9},
        {"a payload too short", {1, 1, 3, 0, 0, 0, 1, 0, 0}, 9},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++) {
        g_test_message ("%s", bad[i].what);
        g_assert_cmpint (code_of (bad[i].bytes, bad[i].size), ==, -EBADMSG);
    }
}

static void test_damage (void)
{
    g_autoptr (GByteArray) record = full_record ();
    g_autoptr (GArray) items = g_array_new (false, false, sizeof (EcfsJournalItem));
    guint n_whole = 0;
    for (guint size = 1; size < record->len; size++)
        n_whole += code_of (record->data, size) == 0; /* only where it ends between two items */
    g_assert_cmpuint (n_whole, ==, 28);
    for (unsigned i = 0; i < 20000; i++) {
        g_autofree uint8_t *copy = g_memdup2 (record->data, record->len);
        for (int n = g_test_rand_int_range (1, 5); n > 0; n--)
            copy[g_test_rand_int_range (0, (gint32) record->len)] = (uint8_t) g_test_rand_int ();
        g_array_set_size (items, 0);
        (void) read_all (copy, record->len, items); /* any answer, but no byte outside: sanitizers look */
    }
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/journal/every-item-is-read-as-it-was-written", test_round_trip);
    g_test_add_func ("/journal/the-bytes-are-those-of-the-manual", test_bytes);
    g_test_add_func ("/journal/unknown-items-are-skipped-or-refused", test_unknown);
    g_test_add_func ("/journal/impossible-values-are-refused", test_impossible);
    g_test_add_func ("/journal/damaged-records-never-lead-outside", test_damage);
    return g_test_run ();
}
