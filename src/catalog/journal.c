#include "catalog/journal.h"

#include "util/sha256.h"

#define CODE_MAX       31
#define PARAMETERS_MAX 16512

/* Writing: the size of an item is filled in when it is complete. */

static guint item_begin (GByteArray *record, EcfsJournalType type)
{
    if (record->len == 0)
        ecfs_append_le (record, ECFS_JOURNAL_VERSION, 1);
    ecfs_append_le (record, type, 1);
    ecfs_append_le (record, 0, 4);
    return record->len;
}

static void item_end (GByteArray *record, guint begin)
{
    ecfs_put_le (record->data + begin - 4, record->len - begin, 4);
}

static void put_text (GByteArray *record, const char *text)
{
    g_byte_array_append (record, (const uint8_t *) text, (guint) strlen (text));
}

static void put_short_text (GByteArray *record, const char *text)
{
    ecfs_append_le (record, text == NULL ? 0 : strlen (text), 1);
    if (text != NULL)
        put_text (record, text);
}

static void put_uuid (GByteArray *record, const EcfsUuid *uuid)
{
    g_byte_array_append (record, uuid->bytes, sizeof uuid->bytes);
}

static void put_stripe (GByteArray *record, const EcfsStripeRow *stripe, const EcfsUuid *endpoint)
{
    ecfs_append_le (record, stripe->index, 2);
    ecfs_append_le (record, stripe->instance, 8);
    put_uuid (record, endpoint);
    ecfs_append_le (record, stripe->size, 8);
    g_byte_array_append (record, stripe->digest, ECFS_DIGEST_SIZE);
}

void ecfs_journal_put_epoch (GByteArray *record, uint32_t epoch)
{
    guint begin = item_begin (record, ECFS_JOURNAL_EPOCH);
    ecfs_append_le (record, epoch, 4);
    item_end (record, begin);
}

void ecfs_journal_put_inode (GByteArray *record, const EcfsAttr *attr, const char *code)
{
    guint begin = item_begin (record, ECFS_JOURNAL_INODE);
    uint8_t fields[72];
    ecfs_put_le (fields, attr->ino, 8);
    ecfs_put_le (fields + 8, attr->mode, 4);
    ecfs_put_le (fields + 12, attr->nlink, 4);
    ecfs_put_le (fields + 16, attr->uid, 4);
    ecfs_put_le (fields + 20, attr->gid, 4);
    ecfs_put_le (fields + 24, attr->rdev, 8);
    ecfs_put_le (fields + 32, attr->size, 8);
    ecfs_put_le (fields + 40, (uint64_t) attr->atime_ns, 8);
    ecfs_put_le (fields + 48, (uint64_t) attr->mtime_ns, 8);
    ecfs_put_le (fields + 56, (uint64_t) attr->ctime_ns, 8);
    ecfs_put_le (fields + 64, (uint64_t) attr->btime_ns, 8);
    g_byte_array_append (record, fields, sizeof fields);
    put_short_text (record, code);
    item_end (record, begin);
}

void ecfs_journal_put_target (GByteArray *record, uint64_t ino, const char *target)
{
    guint begin = item_begin (record, ECFS_JOURNAL_TARGET);
    ecfs_append_le (record, ino, 8);
    put_text (record, target);
    item_end (record, begin);
}

void ecfs_journal_put_name_added (GByteArray *record, uint64_t parent, const char *name, uint64_t ino)
{
    guint begin = item_begin (record, ECFS_JOURNAL_NAME_ADDED);
    ecfs_append_le (record, parent, 8);
    ecfs_append_le (record, ino, 8);
    put_text (record, name);
    item_end (record, begin);
}

void ecfs_journal_put_name_removed (GByteArray *record, uint64_t parent, const char *name)
{
    guint begin = item_begin (record, ECFS_JOURNAL_NAME_REMOVED);
    ecfs_append_le (record, parent, 8);
    put_text (record, name);
    item_end (record, begin);
}

void ecfs_journal_put_touch (GByteArray *record, const EcfsAttr *attr)
{
    guint begin = item_begin (record, ECFS_JOURNAL_TOUCH);
    uint8_t fields[28];
    ecfs_put_le (fields, attr->ino, 8);
    ecfs_put_le (fields + 8, attr->nlink, 4);
    ecfs_put_le (fields + 12, (uint64_t) attr->mtime_ns, 8);
    ecfs_put_le (fields + 20, (uint64_t) attr->ctime_ns, 8);
    g_byte_array_append (record, fields, sizeof fields);
    item_end (record, begin);
}

void ecfs_journal_put_xattr_set (GByteArray *record, uint64_t ino, const char *name, const void *value, size_t size)
{
    guint begin = item_begin (record, ECFS_JOURNAL_XATTR_SET);
    ecfs_append_le (record, ino, 8);
    put_short_text (record, name);
    if (size > 0)
        g_byte_array_append (record, value, (guint) size);
    item_end (record, begin);
}

void ecfs_journal_put_xattr_removed (GByteArray *record, uint64_t ino, const char *name)
{
    guint begin = item_begin (record, ECFS_JOURNAL_XATTR_REMOVED);
    ecfs_append_le (record, ino, 8);
    put_text (record, name);
    item_end (record, begin);
}

void ecfs_journal_put_object (GByteArray *record, const EcfsObjectRow *object, const EcfsUuid *endpoints)
{
    guint begin = item_begin (record, ECFS_JOURNAL_OBJECT);
    put_uuid (record, &object->uuid);
    ecfs_append_le (record, object->epoch, 4);
    ecfs_append_le (record, object->sequence, 8);
    ecfs_append_le (record, object->size, 8);
    ecfs_append_le (record, object->segment_bytes, 4);
    ecfs_append_le (record, object->block_bytes, 4);
    ecfs_append_le (record, object->header_bytes, 4);
    g_byte_array_append (record, object->digest, ECFS_DIGEST_SIZE);
    put_short_text (record, object->code);
    ecfs_append_le (record, object->stripes->len, 2);
    for (guint i = 0; i < object->stripes->len; i++)
        put_stripe (record, &g_array_index (object->stripes, EcfsStripeRow, i), &endpoints[i]);
    item_end (record, begin);
}

void ecfs_journal_put_object_key (GByteArray *record, const EcfsUuid *object, const EcfsSeal *seal)
{
    guint begin = item_begin (record, ECFS_JOURNAL_OBJECT_KEY);
    uint8_t bytes[ECFS_SEAL_BYTES];
    ecfs_seal_put (seal, bytes);
    put_uuid (record, object);
    g_byte_array_append (record, bytes, sizeof bytes);
    item_end (record, begin);
}

void ecfs_journal_put_object_sha256 (GByteArray *record, const EcfsUuid *object, const uint8_t sha256[ECFS_SHA256_SIZE])
{
    guint begin = item_begin (record, ECFS_JOURNAL_OBJECT_SHA256);
    put_uuid (record, object);
    g_byte_array_append (record, sha256, ECFS_SHA256_SIZE);
    item_end (record, begin);
}

void ecfs_journal_put_content (GByteArray *record, const EcfsAttr *attr, const EcfsJournalExtent *extents,
                               size_t n_extents)
{
    guint begin = item_begin (record, ECFS_JOURNAL_CONTENT);
    ecfs_append_le (record, attr->ino, 8);
    ecfs_append_le (record, attr->size, 8);
    ecfs_append_le (record, (uint64_t) attr->mtime_ns, 8);
    ecfs_append_le (record, (uint64_t) attr->ctime_ns, 8);
    ecfs_append_le (record, n_extents, 4);
    for (size_t i = 0; i < n_extents; i++) {
        ecfs_append_le (record, extents[i].offset, 8);
        ecfs_append_le (record, extents[i].length, 8);
        put_uuid (record, &extents[i].object);
        ecfs_append_le (record, extents[i].object_offset, 8);
    }
    item_end (record, begin);
}

static void put_object_stripe (GByteArray *record, EcfsJournalType type, const EcfsUuid *object,
                               const EcfsStripeRow *stripe, const EcfsUuid *endpoint)
{
    guint begin = item_begin (record, type);
    put_uuid (record, object);
    put_stripe (record, stripe, endpoint);
    item_end (record, begin);
}

void ecfs_journal_put_stripe (GByteArray *record, const EcfsUuid *object, const EcfsStripeRow *stripe,
                              const EcfsUuid *endpoint)
{
    put_object_stripe (record, ECFS_JOURNAL_STRIPE, object, stripe, endpoint);
}

void ecfs_journal_put_deleted (GByteArray *record, const EcfsUuid *object, const EcfsStripeRow *stripe,
                               const EcfsUuid *endpoint)
{
    put_object_stripe (record, ECFS_JOURNAL_DELETED, object, stripe, endpoint);
}

void ecfs_journal_put_past_stripe (GByteArray *record, const EcfsUuid *object, const EcfsStripeRow *stripe,
                                   const EcfsUuid *endpoint)
{
    put_object_stripe (record, ECFS_JOURNAL_PAST_STRIPE, object, stripe, endpoint);
}

void ecfs_journal_put_setting (GByteArray *record, const char *key, const char *value)
{
    guint begin = item_begin (record, ECFS_JOURNAL_SETTING);
    put_short_text (record, key);
    put_text (record, value);
    item_end (record, begin);
}

void ecfs_journal_put_next_ino (GByteArray *record, uint64_t ino)
{
    guint begin = item_begin (record, ECFS_JOURNAL_NEXT_INO);
    ecfs_append_le (record, ino, 8);
    item_end (record, begin);
}

void ecfs_journal_put_inode_dropped (GByteArray *record, uint64_t ino)
{
    guint begin = item_begin (record, ECFS_JOURNAL_INODE_DROPPED);
    ecfs_append_le (record, ino, 8);
    item_end (record, begin);
}

void ecfs_journal_put_code (GByteArray *record, const char *code, const uint8_t *parameters, size_t size)
{
    guint begin = item_begin (record, ECFS_JOURNAL_CODE);
    put_short_text (record, code);
    g_byte_array_append (record, parameters, (guint) size);
    item_end (record, begin);
}

void ecfs_journal_put_intent (GByteArray *record, const EcfsUuid *object, uint64_t ino)
{
    guint begin = item_begin (record, ECFS_JOURNAL_INTENT);
    put_uuid (record, object);
    ecfs_append_le (record, ino, 8);
    item_end (record, begin);
}

void ecfs_journal_put_abort (GByteArray *record, const EcfsUuid *object)
{
    guint begin = item_begin (record, ECFS_JOURNAL_ABORT);
    put_uuid (record, object);
    item_end (record, begin);
}

void ecfs_journal_put_endpoint (GByteArray *record, const EcfsUuid *endpoint, EcfsEndpointState state, const char *name)
{
    guint begin = item_begin (record, ECFS_JOURNAL_ENDPOINT);
    put_uuid (record, endpoint);
    ecfs_append_le (record, state, 1);
    put_text (record, name);
    item_end (record, begin);
}

void ecfs_journal_put_endpoint_removed (GByteArray *record, const EcfsUuid *endpoint, const char *name)
{
    guint begin = item_begin (record, ECFS_JOURNAL_REMOVED);
    put_uuid (record, endpoint);
    put_text (record, name);
    item_end (record, begin);
}

void ecfs_journal_put_sum (GByteArray *record, EcfsJournalType type, const uint8_t sum[ECFS_JOURNAL_SUM_BYTES])
{
    guint begin = item_begin (record, type);
    g_byte_array_append (record, sum, ECFS_JOURNAL_SUM_BYTES);
    item_end (record, begin);
}

void ecfs_journal_put_object_kind (GByteArray *record, const EcfsUuid *object, EcfsObjectKind kind)
{
    guint begin = item_begin (record, ECFS_JOURNAL_OBJECT_KIND);
    put_uuid (record, object);
    ecfs_append_le (record, kind, 1);
    item_end (record, begin);
}

void ecfs_journal_put_log_end (GByteArray *record, const EcfsUuid *log, uint64_t size)
{
    guint begin = item_begin (record, ECFS_JOURNAL_LOG_END);
    put_uuid (record, log);
    ecfs_append_le (record, size, 8);
    item_end (record, begin);
}

void ecfs_journal_put_packed (GByteArray *record, const EcfsUuid *pack, const EcfsUuid *other,
                              const EcfsJournalPlaced *places, size_t n_places)
{
    guint begin = item_begin (record, ECFS_JOURNAL_PACKED);
    put_uuid (record, pack);
    put_uuid (record, other);
    for (size_t i = 0; i < n_places; i++) {
        ecfs_append_le (record, places[i].ino, 8);
        ecfs_append_le (record, places[i].from, 8);
        ecfs_append_le (record, places[i].to, 8);
    }
    item_end (record, begin);
}

void ecfs_journal_put_unused (GByteArray *record, const EcfsUuid *object)
{
    guint begin = item_begin (record, ECFS_JOURNAL_UNUSED);
    put_uuid (record, object);
    item_end (record, begin);
}

void ecfs_journal_put_content_sha256 (GByteArray *record, uint64_t ino, uint64_t generation,
                                      const uint8_t sha256[ECFS_SHA256_SIZE])
{
    guint begin = item_begin (record, ECFS_JOURNAL_CONTENT_SHA256);
    ecfs_append_le (record, ino, 8);
    ecfs_append_le (record, generation, 8);
    g_byte_array_append (record, sha256, ECFS_SHA256_SIZE);
    item_end (record, begin);
}

void ecfs_journal_put_mark (GByteArray *record, const char *name, uint32_t epoch, uint64_t sequence, int64_t time_ns)
{
    guint begin = item_begin (record, ECFS_JOURNAL_MARK);
    ecfs_append_le (record, epoch, 4);
    ecfs_append_le (record, sequence, 8);
    ecfs_append_le (record, (uint64_t) time_ns, 8);
    put_text (record, name);
    item_end (record, begin);
}

void ecfs_journal_put_mark_removed (GByteArray *record, const char *name)
{
    guint begin = item_begin (record, ECFS_JOURNAL_MARK_REMOVED);
    put_text (record, name);
    item_end (record, begin);
}

void ecfs_journal_put_session (GByteArray *record, uint64_t number, const EcfsUuid *uuid)
{
    guint begin = item_begin (record, ECFS_JOURNAL_SESSION);
    ecfs_append_le (record, number, 8);
    put_uuid (record, uuid);
    item_end (record, begin);
}

/* Reading. A field that would pass the end sets payload->bad, which ecfs_journal_next () looks at once. */

static EcfsJournalBytes take (EcfsCursor *payload, size_t size)
{
    return (EcfsJournalBytes){.bytes = ecfs_cursor_bytes (payload, size), .size = payload->bad ? 0 : size};
}

static EcfsJournalBytes take_rest (EcfsCursor *payload)
{
    return take (payload, payload->left);
}

static void check (EcfsCursor *payload, bool condition)
{
    if (!condition)
        payload->bad = true;
}

static void check_text (EcfsCursor *payload, const EcfsJournalBytes *text, size_t max, bool slash)
{
    check (payload, text->size > 0 && text->size <= max);
    if (payload->bad)
        return;
    check (payload, memchr (text->bytes, 0, text->size) == NULL);
    check (payload, slash || memchr (text->bytes, '/', text->size) == NULL);
}

static void read_entry_name (EcfsCursor *payload, EcfsJournalItem *item)
{
    item->name = take_rest (payload);
    check_text (payload, &item->name, ECFS_NAME_MAX, false);
    if (!payload->bad && item->name.bytes[0] == '.')
        check (payload, item->name.size > 2 || (item->name.size == 2 && item->name.bytes[1] != '.'));
}

static void read_code (EcfsCursor *payload, EcfsJournalItem *item, bool optional)
{
    item->code = take (payload, ecfs_cursor_le (payload, 1));
    if (item->code.size > 0 || !optional)
        check_text (payload, &item->code, CODE_MAX, true);
}

static void read_inode (EcfsCursor *payload, EcfsJournalItem *item)
{
    EcfsAttr *attr = &item->attr;
    attr->mode = (uint32_t) ecfs_cursor_le (payload, 4);
    attr->nlink = (uint32_t) ecfs_cursor_le (payload, 4);
    attr->uid = (uint32_t) ecfs_cursor_le (payload, 4);
    attr->gid = (uint32_t) ecfs_cursor_le (payload, 4);
    attr->rdev = ecfs_cursor_le (payload, 8);
    attr->size = ecfs_cursor_le (payload, 8);
    attr->atime_ns = (int64_t) ecfs_cursor_le (payload, 8);
    attr->mtime_ns = (int64_t) ecfs_cursor_le (payload, 8);
    attr->ctime_ns = (int64_t) ecfs_cursor_le (payload, 8);
    attr->btime_ns = (int64_t) ecfs_cursor_le (payload, 8);
    read_code (payload, item, true);
    check (payload, attr->size <= INT64_MAX);
}

static void read_touch (EcfsCursor *payload, EcfsJournalItem *item)
{
    item->attr.nlink = (uint32_t) ecfs_cursor_le (payload, 4);
    item->attr.mtime_ns = (int64_t) ecfs_cursor_le (payload, 8);
    item->attr.ctime_ns = (int64_t) ecfs_cursor_le (payload, 8);
}

static void read_parts (EcfsCursor *payload, EcfsJournalItem *item, size_t n_parts, size_t part_size)
{
    check (payload, n_parts <= payload->left / part_size);
    if (payload->bad)
        return;
    item->n_parts = n_parts;
    item->parts = ecfs_cursor_bytes (payload, n_parts * part_size);
}

static void read_stripes (EcfsCursor *payload, EcfsJournalItem *item, size_t n_stripes)
{
    read_parts (payload, item, n_stripes, ECFS_JOURNAL_STRIPE_SIZE);
    for (size_t i = 0; i < item->n_parts; i++) {
        EcfsJournalStripe stripe = ecfs_journal_stripe (item, i);
        check (payload, stripe.index <= 255 && stripe.size <= INT64_MAX && stripe.instance <= INT64_MAX);
        check (payload, i == 0 || stripe.index > ecfs_journal_stripe (item, i - 1).index);
    }
}

static void read_object (EcfsCursor *payload, EcfsJournalItem *item)
{
    item->epoch = (uint32_t) ecfs_cursor_le (payload, 4);
    item->sequence = ecfs_cursor_le (payload, 8);
    item->object_size = ecfs_cursor_le (payload, 8);
    item->segment_bytes = (uint32_t) ecfs_cursor_le (payload, 4);
    item->block_bytes = (uint32_t) ecfs_cursor_le (payload, 4);
    item->header_bytes = (uint32_t) ecfs_cursor_le (payload, 4);
    ecfs_cursor_copy (payload, item->digest, ECFS_DIGEST_SIZE);
    read_code (payload, item, false);
    check (payload, item->object_size <= INT64_MAX);
    read_stripes (payload, item, ecfs_cursor_le (payload, 2));
}

static void read_packed (EcfsCursor *payload, EcfsJournalItem *item)
{
    ecfs_cursor_copy (payload, item->other.bytes, sizeof item->other.bytes);
    read_parts (payload, item, payload->left / ECFS_JOURNAL_PLACE_SIZE, ECFS_JOURNAL_PLACE_SIZE);
    for (size_t i = 0; i < item->n_parts && !payload->bad; i++) {
        EcfsJournalPlaced placed = ecfs_journal_placed (item, i);
        check (payload, placed.ino <= INT64_MAX && placed.from <= INT64_MAX && placed.to <= INT64_MAX);
    }
}

static void read_content (EcfsCursor *payload, EcfsJournalItem *item)
{
    item->attr.size = ecfs_cursor_le (payload, 8);
    item->attr.mtime_ns = (int64_t) ecfs_cursor_le (payload, 8);
    item->attr.ctime_ns = (int64_t) ecfs_cursor_le (payload, 8);
    check (payload, item->attr.size <= INT64_MAX);
    read_parts (payload, item, ecfs_cursor_le (payload, 4), ECFS_JOURNAL_EXTENT_SIZE);
    uint64_t end = 0;
    for (size_t i = 0; i < item->n_parts && !payload->bad; i++) {
        EcfsJournalExtent extent = ecfs_journal_extent (item, i);
        check (payload, extent.offset >= end && extent.length > 0 && extent.offset <= item->attr.size &&
                            extent.length <= item->attr.size - extent.offset &&
                            extent.object_offset <= INT64_MAX - extent.length);
        end = extent.offset + extent.length;
    }
}

static void read_xattr (EcfsCursor *payload, EcfsJournalItem *item)
{
    item->name = take (payload, item->type == ECFS_JOURNAL_XATTR_SET ? ecfs_cursor_le (payload, 1) : payload->left);
    check_text (payload, &item->name, ECFS_NAME_MAX, true);
    if (item->type == ECFS_JOURNAL_XATTR_SET)
        item->value = take_rest (payload);
}

static void read_target (EcfsCursor *payload, EcfsJournalItem *item)
{
    item->value = take_rest (payload);
    check_text (payload, &item->value, 4095, true);
}

static void read_endpoint (EcfsCursor *payload, EcfsJournalItem *item)
{
    item->state = (uint8_t) ecfs_cursor_le (payload, 1);
    item->name = take_rest (payload);
    check_text (payload, &item->name, ECFS_NAME_MAX, true);
}

/* Types whose payload begins with an inode number. */
static bool read_by_ino (EcfsCursor *payload, EcfsJournalItem *item)
{
    item->attr.ino = ecfs_cursor_le (payload, 8);
    switch (item->type) {
    case ECFS_JOURNAL_INODE:
        read_inode (payload, item);
        return true;
    case ECFS_JOURNAL_TARGET:
        read_target (payload, item);
        return true;
    case ECFS_JOURNAL_TOUCH:
        read_touch (payload, item);
        return true;
    case ECFS_JOURNAL_XATTR_SET:
    case ECFS_JOURNAL_XATTR_REMOVED:
        read_xattr (payload, item);
        return true;
    case ECFS_JOURNAL_CONTENT:
        read_content (payload, item);
        return true;
    case ECFS_JOURNAL_CONTENT_SHA256:
        item->sequence = ecfs_cursor_le (payload, 8);
        check (payload, item->sequence <= INT64_MAX);
        ecfs_cursor_copy (payload, item->sha256, sizeof item->sha256);
        return true;
    default:
        return item->type == ECFS_JOURNAL_INODE_DROPPED || item->type == ECFS_JOURNAL_NEXT_INO;
    }
}

static bool read_by_uuid (EcfsCursor *payload, EcfsJournalItem *item)
{
    ecfs_cursor_copy (payload, item->uuid.bytes, sizeof item->uuid.bytes);
    switch (item->type) {
    case ECFS_JOURNAL_OBJECT:
        read_object (payload, item);
        return true;
    case ECFS_JOURNAL_OBJECT_KEY:
        item->value = take (payload, ECFS_SEAL_BYTES);
        return true;
    case ECFS_JOURNAL_OBJECT_SHA256:
        ecfs_cursor_copy (payload, item->sha256, sizeof item->sha256);
        return true;
    case ECFS_JOURNAL_STRIPE:
    case ECFS_JOURNAL_PAST_STRIPE:
    case ECFS_JOURNAL_DELETED:
        read_stripes (payload, item, 1);
        return true;
    case ECFS_JOURNAL_INTENT:
        item->attr.ino = ecfs_cursor_le (payload, 8);
        return true;
    case ECFS_JOURNAL_ABORT:
    case ECFS_JOURNAL_UNUSED:
        return true;
    case ECFS_JOURNAL_OBJECT_KIND:
        item->state = (uint8_t) ecfs_cursor_le (payload, 1);
        return true;
    case ECFS_JOURNAL_LOG_END:
        item->object_size = ecfs_cursor_le (payload, 8);
        check (payload, item->object_size <= INT64_MAX);
        return true;
    case ECFS_JOURNAL_PACKED:
        read_packed (payload, item);
        return true;
    case ECFS_JOURNAL_ENDPOINT:
        read_endpoint (payload, item);
        return true;
    case ECFS_JOURNAL_REMOVED:
        item->name = take_rest (payload);
        check_text (payload, &item->name, ECFS_NAME_MAX, true);
        return true;
    default:
        return false;
    }
}

static bool read_setting (EcfsCursor *payload, EcfsJournalItem *item)
{
    item->name = take (payload, ecfs_cursor_le (payload, 1));
    check_text (payload, &item->name, ECFS_NAME_MAX, true);
    item->value = take_rest (payload);
    check (payload, item->value.size <= PARAMETERS_MAX);
    return true;
}

static bool read_payload (EcfsCursor *payload, EcfsJournalItem *item)
{
    switch (item->type) {
    case ECFS_JOURNAL_EPOCH:
        item->epoch = (uint32_t) ecfs_cursor_le (payload, 4);
        return true;
    case ECFS_JOURNAL_NAME_ADDED:
        item->parent = ecfs_cursor_le (payload, 8);
        item->attr.ino = ecfs_cursor_le (payload, 8);
        read_entry_name (payload, item);
        return true;
    case ECFS_JOURNAL_NAME_REMOVED:
        item->parent = ecfs_cursor_le (payload, 8);
        read_entry_name (payload, item);
        return true;
    case ECFS_JOURNAL_CODE:
        read_code (payload, item, false);
        item->value = take_rest (payload);
        check (payload, item->value.size > 0 && item->value.size <= PARAMETERS_MAX);
        return true;
    case ECFS_JOURNAL_SETTING:
        return read_setting (payload, item);
    case ECFS_JOURNAL_PREVIOUS:
    case ECFS_JOURNAL_STANDS:
        ecfs_cursor_copy (payload, item->sum, sizeof item->sum);
        return true;
    case ECFS_JOURNAL_MARK:
        item->epoch = (uint32_t) ecfs_cursor_le (payload, 4);
        item->sequence = ecfs_cursor_le (payload, 8);
        item->attr.mtime_ns = (int64_t) ecfs_cursor_le (payload, 8);
        check (payload, item->sequence <= INT64_MAX);
        item->name = take_rest (payload);
        return true;
    case ECFS_JOURNAL_MARK_REMOVED:
        item->name = take_rest (payload);
        return true;
    case ECFS_JOURNAL_SESSION:
        item->sequence = ecfs_cursor_le (payload, 8);
        ecfs_cursor_copy (payload, item->uuid.bytes, sizeof item->uuid.bytes);
        return true;
    case ECFS_JOURNAL_OBJECT:
    case ECFS_JOURNAL_OBJECT_KEY:
    case ECFS_JOURNAL_OBJECT_SHA256:
    case ECFS_JOURNAL_STRIPE:
    case ECFS_JOURNAL_PAST_STRIPE:
    case ECFS_JOURNAL_DELETED:
    case ECFS_JOURNAL_INTENT:
    case ECFS_JOURNAL_ENDPOINT:
    case ECFS_JOURNAL_REMOVED:
    case ECFS_JOURNAL_ABORT:
    case ECFS_JOURNAL_OBJECT_KIND:
    case ECFS_JOURNAL_LOG_END:
    case ECFS_JOURNAL_PACKED:
    case ECFS_JOURNAL_UNUSED:
        return read_by_uuid (payload, item);
    default:
        return read_by_ino (payload, item);
    }
}

int ecfs_journal_open (EcfsCursor *ret_cursor, const uint8_t *record, size_t size)
{
    EcfsCursor cursor = {.at = record, .left = size};
    uint64_t version = ecfs_cursor_le (&cursor, 1);
    if (cursor.bad || version == 0)
        return -EBADMSG;
    if (version != ECFS_JOURNAL_VERSION)
        return -ENOTSUP;
    *ret_cursor = cursor;
    return 0;
}

int ecfs_journal_next (EcfsCursor *cursor, EcfsJournalItem *ret_item)
{
    while (cursor->left > 0) {
        unsigned type = (unsigned) ecfs_cursor_le (cursor, 1);
        size_t size = ecfs_cursor_le (cursor, 4);
        EcfsCursor payload = {.at = ecfs_cursor_bytes (cursor, size), .left = size};
        if (cursor->bad)
            return -EBADMSG;
        EcfsJournalItem item = {.type = (EcfsJournalType) type};
        bool known = (type >= ECFS_JOURNAL_EPOCH && type <= ECFS_JOURNAL_UNUSED) ||
                     (type >= ECFS_JOURNAL_SETTING && type <= ECFS_JOURNAL_PAST_STRIPE);
        if (known && read_payload (&payload, &item)) {
            if (payload.bad || payload.left > 0)
                return -EBADMSG;
            *ret_item = item;
            return 1;
        }
        if ((type & 0x80) == 0)
            return -ENOTSUP;
    }
    return cursor->bad ? -EBADMSG : 0;
}

EcfsJournalStripe ecfs_journal_stripe (const EcfsJournalItem *item, size_t i)
{
    const uint8_t *at = item->parts + i * ECFS_JOURNAL_STRIPE_SIZE;
    EcfsJournalStripe stripe = {
        .index = (uint16_t) ecfs_get_le (at, 2), .instance = ecfs_get_le (at + 2, 8), .size = ecfs_get_le (at + 26, 8)};
    memcpy (stripe.endpoint.bytes, at + 10, sizeof stripe.endpoint.bytes);
    memcpy (stripe.digest, at + 34, ECFS_DIGEST_SIZE);
    return stripe;
}

EcfsJournalPlaced ecfs_journal_placed (const EcfsJournalItem *item, size_t i)
{
    const uint8_t *at = item->parts + i * ECFS_JOURNAL_PLACE_SIZE;
    return (EcfsJournalPlaced){
        .ino = ecfs_get_le (at, 8), .from = ecfs_get_le (at + 8, 8), .to = ecfs_get_le (at + 16, 8)};
}

EcfsJournalExtent ecfs_journal_extent (const EcfsJournalItem *item, size_t i)
{
    const uint8_t *at = item->parts + i * ECFS_JOURNAL_EXTENT_SIZE;
    EcfsJournalExtent extent = {
        .offset = ecfs_get_le (at, 8), .length = ecfs_get_le (at + 8, 8), .object_offset = ecfs_get_le (at + 32, 8)};
    memcpy (extent.object.bytes, at + 16, sizeof extent.object.bytes);
    return extent;
}

void ecfs_journal_sum (uint64_t sequence, int64_t time_ns, const uint8_t *record, size_t size,
                       uint8_t ret_sum[ECFS_JOURNAL_SUM_BYTES])
{
    uint8_t head[20], digest[ECFS_SHA256_SIZE];
    ecfs_put_le (head, sequence, 8);
    ecfs_put_le (head + 8, (uint64_t) time_ns, 8);
    ecfs_put_le (head + 16, size, 4);
    g_autoptr (EcfsSha256) state = ecfs_sha256_new ();
    ecfs_sha256_update (state, head, sizeof head);
    ecfs_sha256_update (state, record, size);
    ecfs_sha256_end (state, digest);
    memcpy (ret_sum, digest, ECFS_JOURNAL_SUM_BYTES);
}

bool ecfs_journal_previous (const uint8_t *record, size_t size, uint8_t ret_sum[ECFS_JOURNAL_SUM_BYTES])
{
    EcfsCursor cursor;
    EcfsJournalItem item = {.type = 0};
    if (ecfs_journal_open (&cursor, record, size) != 0)
        return false;
    int found;
    do
        found = ecfs_journal_next (&cursor, &item);
    while (found == 1 && item.type != ECFS_JOURNAL_PREVIOUS);
    if (found == 1)
        memcpy (ret_sum, item.sum, sizeof item.sum);
    return found == 1;
}

void ecfs_journal_each_item (const GPtrArray *rows, void (*each) (void *user, const EcfsJournalItem *item), void *user)
{
    for (guint i = 0; i < rows->len; i++) {
        EcfsCursor cursor;
        EcfsJournalItem item;
        const EcfsJournalRow *row = g_ptr_array_index (rows, i);
        if (ecfs_journal_open (&cursor, row->record->data, row->record->len) == 0)
            while (ecfs_journal_next (&cursor, &item) == 1)
                each (user, &item);
    }
}
