/*
 * Logs: small files, one record behind another, in an object that grows: copies:n, each copy in a file that grows at
 * an endpoint. Documented for strangers in ecfs-format(5); this and that page change together. Pure functions on
 * buffers; parsers take bytes from anywhere.
 *
 * A stripe of a log is the header of a stripe (object/format.h; is_log) and check blocks of ECFS_LOG_BLOCK_BYTES bytes
 * with their tags, as layout.h has them; there is neither footer nor tail. It may end anywhere: what counts is up to
 * its last whole block, but for blocks before that whose tags do not fit. The content is records, each from the
 * beginning of a block on:
 *
 *   offset size
 *     0      8   0x89 "ECR" CR LF 0x1a LF
 *     8      2   version of this format (1)
 *    10      2   bytes of the path
 *    12      4   bytes of the file's content
 *    16      8   inode number
 *    24      8   sequence: of the last change of the archive before the record
 *    32      4   epoch
 *    36      4   mode
 *    40      4   user id
 *    44      4   group id
 *    48      8   mtime, signed nanoseconds since 1970
 *    56     16   XXH3-128 (canonical) of the log's UUID, the record's offset in it (8), the 56 bytes before, path and
 *                content: what looks like a record within the content of a file is none
 *    72      *   the path, as a hint
 *     *      *   the file's content, all of it, and zeros up to the end of a block
 *
 * With a key, content is enciphered as that of any object; so no two records are ever given the same place in a log,
 * not even where one came to nothing.
 */
#ifndef ECFS_OBJECT_LOG_H
#define ECFS_OBJECT_LOG_H

#include "key/seal.h"
#include "object/format.h"
#include "util/error.h"

#define ECFS_LOG_BLOCK_BYTES 1024
#define ECFS_LOG_MAX_BYTES   (16u << 20) /* of the content of a log */
#define ECFS_LOG_FILE_MAX    (1u << 20)  /* of the content of a file that is in a log */

typedef struct EcfsLogRecord {
    uint64_t ino;
    uint64_t sequence;
    uint32_t epoch;
    uint32_t mode;
    uint32_t uid;
    uint32_t gid;
    int64_t mtime_ns;
    const char *path; /* borrowed, not terminated; at most ECFS_LOG_PATH_MAX bytes */
    size_t path_bytes;
    const uint8_t *content; /* likewise; 1 to ECFS_LOG_FILE_MAX bytes */
    size_t content_bytes;
} EcfsLogRecord;

#define ECFS_LOG_HEAD_BYTES 72
#define ECFS_LOG_PATH_MAX   4096

/** The bytes of a record at @offset of a log: a multiple of ECFS_LOG_BLOCK_BYTES. A longer path is cut. */
GByteArray *ecfs_log_record_format (const EcfsLogRecord *record, const EcfsUuid *log, uint64_t offset);

/** Where in a record the content of its file begins. */
size_t ecfs_log_content_offset (const EcfsLogRecord *record);

/** Reads the record at @offset of a log, which @bytes begin with and *ret_record points into. *ret_bytes: what it takes
 * there. EBADMSG: there is none, or it is cut off or damaged; ENOTSUP: a later ecfs wrote it. */
bool ecfs_log_record_parse (const uint8_t *bytes, size_t size, const EcfsUuid *log, uint64_t offset,
                            EcfsLogRecord *ret_record, size_t *ret_bytes, GError **error);

/** How the content of a log is laid out, up to its first @size bytes; false: the header is not that of a log. */
bool ecfs_log_layout (const EcfsStripeHeader *header, uint64_t size, EcfsLayout *ret_layout);

/** Bytes of a stripe that has the first @content_bytes of its log, which are whole blocks; of none it is the header. */
uint64_t ecfs_log_stripe_bytes (uint32_t header_bytes, const EcfsSeal *seal, uint64_t content_bytes);

/** Content from @offset on, whole blocks, as stripe @index has it: @stored, which it is enciphered in, with tags. */
GByteArray *ecfs_log_blocks (const EcfsTagger *tagger, unsigned index, uint64_t offset, const uint8_t *stored,
                             size_t size);

/** What is in a stripe of a log: calls @each with every record that is whole, and where it is in the content. Returns
 * the end of the last, 0 where there is none. @bytes: all of the stripe, whose header is in order; @keys: of the log.
 */
uint64_t ecfs_log_each_record (const uint8_t *bytes, size_t size, const EcfsStripeHeader *header,
                               const EcfsSealKeys *keys,
                               void (*each) (void *user, const EcfsLogRecord *record, uint64_t offset), void *user);

#endif
