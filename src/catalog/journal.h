/*
 * The records of the journal: what every change of the namespace wrote, as images of what is true after it. Applying
 * the records of a catalog in order of their sequence numbers gives its namespace; applying one twice does no harm.
 *
 * A record is one byte, the version of the encoding (1), and items up to its end. An item is
 *
 *     u8 type, u32 size, size bytes of payload
 *
 * All numbers are little-endian and unsigned; times are signed nanoseconds since 1970. A reader skips items of an
 * unknown type with bit 0x80 set and refuses a record with any other unknown type. A payload is, by type:
 *
 *     1 EPOCH          u32 epoch
 *     2 INODE          u64 ino, u32 mode, u32 nlink, u32 uid, u32 gid, u64 rdev, u64 size, i64 atime, i64 mtime,
 *                      i64 ctime, i64 btime, u8 size of code (0: the archive's default), code
 *                      size: of the committed content, never of staging
 *     3 TARGET         u64 ino, target of a symlink (the rest)
 *     4 NAME_ADDED     u64 parent, u64 ino, name (the rest); in place of what had this name
 *     5 NAME_REMOVED   u64 parent, name (the rest)
 *     6 TOUCH          u64 ino, u32 nlink, i64 mtime, i64 ctime
 *     7 XATTR_SET      u64 ino, u8 size of name, name, value (the rest)
 *     8 XATTR_REMOVED  u64 ino, name (the rest)
 *     9 OBJECT         16 UUID, u32 epoch, u64 sequence, u64 size, u32 segment bytes, u32 block bytes,
 *                      u32 header bytes, 16 digest, u8 size of code, code, u16 number of stripes, stripes;
 *                      in place of what was known of it: its code may become another, and stripes come and go with that
 *    10 CONTENT        u64 ino, u64 size, i64 mtime, i64 ctime, u32 number of extents, each: u64 offset in the file,
 *                      u64 length, 16 UUID of the object, u64 offset in the object; in place of all it had
 *    11 STRIPE         16 UUID of the object, stripe; in place of the one with its index
 *    12 INODE_DROPPED  u64 ino; with its extents and attributes
 *    13 INTENT         16 UUID of the object, u64 ino: stripes of this object may exist from here on
 *    14 ENDPOINT       16 UUID, u8 state, name (the rest)
 *    15 CODE           u8 size of code, code, its parameters (the rest)
 *    16 OBJECT_KEY     16 UUID of an object, 34 under which key it is stored (key/seal.h); the next item is its OBJECT.
 *                      An object without this item is stored without a key. Neither ever changes
 *    17 OBJECT_KIND    16 UUID of an object, u8 kind (content.h), behind its OBJECT; without it the object is WHOLE
 *    18 LOG_END        16 UUID of a log, u64 size: what is before is known, and behind that there may be more
 *    19 PACKED         16 UUID of a pack, 16 UUID of another object, places: each is u64 ino, u64 offset in the object,
 *                      u64 offset in the pack. The file whose content begins there has it in the pack now
 *    20 UNUSED         16 UUID of an object that no file names: it goes
 *   144 SETTING        u8 size of key, key, value (the rest): a key of [archive] in ecfs.conf
 *   145 NEXT_INO       u64 the number that the next new inode gets, at least
 *   146 DELETED        16 UUID of an object, stripe: no object has it any more, and it may still be there
 *   147 REMOVED        16 UUID of an endpoint that is the archive's no more, what it is called from then on (the rest)
 *   148 ABORT          16 UUID of an object that its INTENT told of, and that came to nothing: no file has it, nor ever
 * had
 *   149 OBJECT_SHA256  16 UUID of an object, 32 SHA-256 of its content; behind its OBJECT
 *   150 PREVIOUS       16 sum of the record before this one; zeros: there is none. The last item
 *   151 STANDS         of snapshots: 16 sum of the record with the sequence at which it was taken; zeros likewise
 *   152 SESSION        of snapshots: u64 number, 16 UUID of an opening of the archive that wrote this journal
 *   153 CONTENT_SHA256 u64 ino, u64 generation (object/format.h), 32 SHA-256, of the first extent of its content;
 * behind its CONTENT, or the PACKED that placed it
 *   154 MARK           u32 epoch, u64 sequence, i64 time, name (the rest): all that there was behind this record is
 *                      kept
 *   155 MARK_REMOVED   name (the rest) of a mark that there is no more
 *   156 PAST_STRIPE    16 UUID of an object that no file has any more, stripe; as STRIPE, for who shows a moment at
 * which one had it
 *
 * The sum of a record is the first 16 bytes of the SHA-256 of what journal files have of it: its sequence, time, size
 * and bytes. As these have the sum of the record before it, a record continues one history and no other: of two copies
 * of an archive directory that both wrote, each goes on with its own alone.
 *
 * A stripe is u16 index, u64 instance, 16 UUID of the endpoint, u64 size, 16 digest: 50 bytes. Names are 1 to 255
 * bytes without '/' and NUL; codes 1 to 31 bytes; extents ascend and do not overlap.
 */
#ifndef ECFS_CATALOG_JOURNAL_H
#define ECFS_CATALOG_JOURNAL_H

#include "catalog/catalog.h"
#include "util/bytes.h"

#define ECFS_JOURNAL_VERSION     1
#define ECFS_JOURNAL_STRIPE_SIZE 50
#define ECFS_JOURNAL_EXTENT_SIZE 40
#define ECFS_JOURNAL_SUM_BYTES   16
#define ECFS_JOURNAL_PLACE_SIZE  24

typedef enum EcfsJournalType {
    ECFS_JOURNAL_EPOCH = 1,
    ECFS_JOURNAL_INODE = 2,
    ECFS_JOURNAL_TARGET = 3,
    ECFS_JOURNAL_NAME_ADDED = 4,
    ECFS_JOURNAL_NAME_REMOVED = 5,
    ECFS_JOURNAL_TOUCH = 6,
    ECFS_JOURNAL_XATTR_SET = 7,
    ECFS_JOURNAL_XATTR_REMOVED = 8,
    ECFS_JOURNAL_OBJECT = 9,
    ECFS_JOURNAL_CONTENT = 10,
    ECFS_JOURNAL_STRIPE = 11,
    ECFS_JOURNAL_INODE_DROPPED = 12,
    ECFS_JOURNAL_INTENT = 13,
    ECFS_JOURNAL_ENDPOINT = 14,
    ECFS_JOURNAL_CODE = 15,
    ECFS_JOURNAL_OBJECT_KEY = 16,
    ECFS_JOURNAL_OBJECT_KIND = 17,
    ECFS_JOURNAL_LOG_END = 18,
    ECFS_JOURNAL_PACKED = 19,
    ECFS_JOURNAL_UNUSED = 20,
    ECFS_JOURNAL_SETTING = 144,
    ECFS_JOURNAL_NEXT_INO = 145,
    ECFS_JOURNAL_DELETED = 146,
    ECFS_JOURNAL_REMOVED = 147,
    ECFS_JOURNAL_ABORT = 148,
    ECFS_JOURNAL_OBJECT_SHA256 = 149,
    ECFS_JOURNAL_PREVIOUS = 150,
    ECFS_JOURNAL_STANDS = 151,
    ECFS_JOURNAL_SESSION = 152,
    ECFS_JOURNAL_CONTENT_SHA256 = 153,
    ECFS_JOURNAL_MARK = 154,
    ECFS_JOURNAL_MARK_REMOVED = 155,
    ECFS_JOURNAL_PAST_STRIPE = 156,
} EcfsJournalType;

/* Bytes inside the record that is read; not terminated. */
typedef struct EcfsJournalBytes {
    const uint8_t *bytes;
    size_t size;
} EcfsJournalBytes;

typedef struct EcfsJournalStripe {
    uint16_t index;
    uint64_t instance;
    EcfsUuid endpoint;
    uint64_t size;
    uint8_t digest[ECFS_DIGEST_SIZE];
} EcfsJournalStripe;

typedef struct EcfsJournalPlaced {
    uint64_t ino;
    uint64_t from; /* offset in the object */
    uint64_t to;   /* … in the pack */
} EcfsJournalPlaced;

typedef struct EcfsJournalExtent {
    uint64_t offset;
    uint64_t length;
    EcfsUuid object;
    uint64_t object_offset;
} EcfsJournalExtent;

/* One item; the fields that its type names above are set, the others zero. */
typedef struct EcfsJournalItem {
    EcfsJournalType type;
    EcfsAttr attr;   /* INODE; ino, nlink, mtime, ctime of TOUCH; ino, size, mtime, ctime of CONTENT; mtime of MARK; ino
                        of others */
    uint64_t parent; /* NAME_* */
    EcfsJournalBytes name;  /* NAME_*, XATTR_*, ENDPOINT, REMOVED, SETTING, MARK* */
    EcfsJournalBytes value; /* XATTR_SET, TARGET, CODE, SETTING; OBJECT_KEY: for ecfs_seal_parse () */
    EcfsJournalBytes code;  /* INODE, OBJECT, CODE */
    EcfsUuid uuid;          /* of whatever has one: an object, an endpoint, a SESSION */
    EcfsUuid other;         /* PACKED: of the object that had it */
    uint32_t epoch;         /* EPOCH, OBJECT */
    uint8_t state;          /* ENDPOINT; OBJECT_KIND */
    uint64_t sequence;      /* OBJECT; the number of a SESSION; the generation of CONTENT_SHA256 */
    /* OBJECT */
    uint64_t object_size; /* also of LOG_END */
    uint32_t segment_bytes;
    uint32_t block_bytes;
    uint32_t header_bytes;
    uint8_t digest[ECFS_DIGEST_SIZE];
    uint8_t sha256[ECFS_SHA256_SIZE];    /* OBJECT_SHA256, CONTENT_SHA256 */
    uint8_t sum[ECFS_JOURNAL_SUM_BYTES]; /* PREVIOUS, STANDS */
    /* For ecfs_journal_stripe () of OBJECT, STRIPE, DELETED, PAST_STRIPE; _extent () of CONTENT; _placed () of PACKED
     */
    size_t n_parts;
    const uint8_t *parts;
} EcfsJournalItem;

/** Starts reading a record of @size bytes. Returns 0, -EBADMSG, or -ENOTSUP for a later encoding. */
int ecfs_journal_open (EcfsCursor *ret_cursor, const uint8_t *record, size_t size);

/** The next item. Returns 1, 0 at the end, -EBADMSG, or -ENOTSUP for a type that must not be skipped. */
int ecfs_journal_next (EcfsCursor *cursor, EcfsJournalItem *ret_item);

/** Calls @each with the items of records (EcfsJournalRow) that can be read, in order. */
void ecfs_journal_each_item (const GPtrArray *rows, void (*each) (void *user, const EcfsJournalItem *item), void *user);

/** Part @i (< n_parts) of an item. */
EcfsJournalStripe ecfs_journal_stripe (const EcfsJournalItem *item, size_t i);
EcfsJournalExtent ecfs_journal_extent (const EcfsJournalItem *item, size_t i);
EcfsJournalPlaced ecfs_journal_placed (const EcfsJournalItem *item, size_t i);

/** The sum of a record, of which the next one tells. */
void ecfs_journal_sum (uint64_t sequence, int64_t time_ns, const uint8_t *record, size_t size,
                       uint8_t ret_sum[ECFS_JOURNAL_SUM_BYTES]);
/** What a record tells of the one before it; zeros: there was none. False: nothing. */
bool ecfs_journal_previous (const uint8_t *record, size_t size, uint8_t ret_sum[ECFS_JOURNAL_SUM_BYTES]);

/* Writing: each appends one item, and the version before the first. */

void ecfs_journal_put_epoch (GByteArray *record, uint32_t epoch);
/** @code may be NULL. */
void ecfs_journal_put_inode (GByteArray *record, const EcfsAttr *attr, const char *code);
void ecfs_journal_put_target (GByteArray *record, uint64_t ino, const char *target);
void ecfs_journal_put_name_added (GByteArray *record, uint64_t parent, const char *name, uint64_t ino);
void ecfs_journal_put_name_removed (GByteArray *record, uint64_t parent, const char *name);
void ecfs_journal_put_touch (GByteArray *record, const EcfsAttr *attr);
void ecfs_journal_put_xattr_set (GByteArray *record, uint64_t ino, const char *name, const void *value, size_t size);
void ecfs_journal_put_xattr_removed (GByteArray *record, uint64_t ino, const char *name);
/** @endpoints: the UUIDs of the endpoints of the stripes, in their order. */
void ecfs_journal_put_object (GByteArray *record, const EcfsObjectRow *object, const EcfsUuid *endpoints);
/** Right before put_object () of the same object. */
void ecfs_journal_put_object_key (GByteArray *record, const EcfsUuid *object, const EcfsSeal *seal);
void ecfs_journal_put_object_sha256 (GByteArray *record, const EcfsUuid *object,
                                     const uint8_t sha256[ECFS_SHA256_SIZE]);
void ecfs_journal_put_content (GByteArray *record, const EcfsAttr *attr, const EcfsJournalExtent *extents,
                               size_t n_extents);
void ecfs_journal_put_stripe (GByteArray *record, const EcfsUuid *object, const EcfsStripeRow *stripe,
                              const EcfsUuid *endpoint);
void ecfs_journal_put_past_stripe (GByteArray *record, const EcfsUuid *object, const EcfsStripeRow *stripe,
                                   const EcfsUuid *endpoint);
void ecfs_journal_put_code (GByteArray *record, const char *code, const uint8_t *parameters, size_t size);
void ecfs_journal_put_inode_dropped (GByteArray *record, uint64_t ino);
void ecfs_journal_put_intent (GByteArray *record, const EcfsUuid *object, uint64_t ino);
void ecfs_journal_put_abort (GByteArray *record, const EcfsUuid *object);
void ecfs_journal_put_setting (GByteArray *record, const char *key, const char *value);
void ecfs_journal_put_next_ino (GByteArray *record, uint64_t ino);
void ecfs_journal_put_deleted (GByteArray *record, const EcfsUuid *object, const EcfsStripeRow *stripe,
                               const EcfsUuid *endpoint);
void ecfs_journal_put_endpoint (GByteArray *record, const EcfsUuid *endpoint, EcfsEndpointState state,
                                const char *name);
void ecfs_journal_put_endpoint_removed (GByteArray *record, const EcfsUuid *endpoint, const char *name);
/** @type: PREVIOUS or STANDS. */
void ecfs_journal_put_sum (GByteArray *record, EcfsJournalType type, const uint8_t sum[ECFS_JOURNAL_SUM_BYTES]);
/** Behind put_object () of the same object. */
void ecfs_journal_put_object_kind (GByteArray *record, const EcfsUuid *object, EcfsObjectKind kind);
void ecfs_journal_put_log_end (GByteArray *record, const EcfsUuid *log, uint64_t size);
void ecfs_journal_put_packed (GByteArray *record, const EcfsUuid *pack, const EcfsUuid *other,
                              const EcfsJournalPlaced *places, size_t n_places);
void ecfs_journal_put_unused (GByteArray *record, const EcfsUuid *object);
/** Behind put_content () of the same file. */
void ecfs_journal_put_content_sha256 (GByteArray *record, uint64_t ino, uint64_t generation,
                                      const uint8_t sha256[ECFS_SHA256_SIZE]);
void ecfs_journal_put_mark (GByteArray *record, const char *name, uint32_t epoch, uint64_t sequence, int64_t time_ns);
void ecfs_journal_put_mark_removed (GByteArray *record, const char *name);
void ecfs_journal_put_session (GByteArray *record, uint64_t number, const EcfsUuid *uuid);

#endif
