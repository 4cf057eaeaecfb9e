/*
 * The files in which the journal travels: segments (the records of a range of sequence numbers) and the parts of
 * snapshots (records that make a catalog from nothing). Documented for strangers in ecfs-format(5). Pure functions on
 * buffers; parsers take bytes from anywhere.
 *
 *   offset size
 *     0      8   0x89 "ECJ" CR LF 0x1a LF
 *     8      2   version of this format (1)
 *    10      2   kind: 1 segment, 2 part of a snapshot
 *    12      2   compression: 1 zlib
 *    14      2   0 open, 1 sealed
 *    16     16   UUID of the archive
 *    32      4   epoch
 *    36      4   part of a snapshot, from 0; 0 in segments
 *    40      4   flags: 1 the last part
 *    44      4   number of records
 *    48      8   sequence of the first record; of snapshots 0
 *    56      8   sequence of the last record; of snapshots that of the moment at which they were taken
 *    64      8   time of the last record, or of that moment; signed nanoseconds since 1970
 *    72      8   bytes of the records
 *    80      8   bytes that follow the header: the records as compressed, and sealed
 *    88     16   XXH3-128 of these, canonical (big-endian)
 *   104     16   id of the archive's key; zeros where it is open, as the next
 *   120     16   random
 *   136      8   XXH3-64 of the 136 bytes before
 *
 * What is sealed is sealed by ecfs_key_seal (), under the key that ecfs_key_ring_derive () makes of that id for
 * ECFS_KEY_USE_JOURNAL with the 16 random bytes as the salt, and is bound to the bytes 0 to 87 and 104 to 135 of the
 * header: all but the two checksums, which are compared. So who has not the key reads no record, and makes no file that
 * is taken for one of the archive's; names, numbers, times and sizes are open. Two files of the same records, sealed
 * twice, have nothing in common: what is compared are their records.
 *
 * Uncompressed, each record is u64 sequence, i64 time, u32 size, size bytes (see journal.h).
 */
#ifndef ECFS_CATALOG_JOURNAL_FILE_H
#define ECFS_CATALOG_JOURNAL_FILE_H

#include "catalog/catalog.h"
#include "key/ring.h"

#define ECFS_JOURNAL_HEADER_BYTES 144
#define ECFS_JOURNAL_FILE_MAX     (64u << 20) /* bytes of the records of one file */
#define ECFS_JOURNAL_RECORD_HEAD  20          /* bytes before each */
#define ECFS_JOURNAL_NAME_SIZE    64
#define ECFS_JOURNAL_DIRECTORY    "journal"
#define ECFS_SNAPSHOT_DIRECTORY   "snapshots"

typedef enum EcfsJournalFileKind {
    ECFS_JOURNAL_SEGMENT = 1,
    ECFS_JOURNAL_SNAPSHOT = 2,
} EcfsJournalFileKind;

/* What the header says. A file's name says kind, epoch, first, last, part and is_last too. */
typedef struct EcfsJournalFile {
    EcfsUuid archive;
    EcfsJournalFileKind kind;
    uint32_t epoch;
    uint32_t part;
    bool is_last;
    uint64_t first;
    uint64_t last;
    int64_t time_ns;
    uint32_t n_records;
    uint64_t raw_bytes;    /* set when written or read, as the next */
    uint64_t stored_bytes; /* behind the header */
    bool is_sealed;
    EcfsUuid key; /* … under this one; nil: it is not */
} EcfsJournalFile;

/** Appends a record to what ecfs_journal_file_format () takes. */
void ecfs_journal_file_put (GByteArray *raw, uint64_t sequence, int64_t time_ns, const uint8_t *record, size_t size);

/** The file with the records in @raw, at most ECFS_JOURNAL_FILE_MAX bytes; sealed under the active one of @keys, unless
 * that is NULL. */
GByteArray *ecfs_journal_file_format (EcfsJournalFile *file, const GByteArray *raw, const EcfsKeyRing *keys);

/** Parses the first ECFS_JOURNAL_HEADER_BYTES bytes; of a sealed file too, whose header anybody can have made.
 * EBADMSG: no such file, or damaged; ENOTSUP: of a later ecfs. */
bool ecfs_journal_file_head (const uint8_t *bytes, size_t size, EcfsJournalFile *ret_file, GError **error);

/** Whether a whole file is one that was sealed under a key of @keys, as it is; its records are not looked at. Likewise.
 */
bool ecfs_journal_file_is_authentic (const uint8_t *bytes, size_t size, const EcfsKeyRing *keys,
                                     EcfsJournalFile *ret_file, GError **error);

/**
 * Parses a whole file: its records, GPtrArray of EcfsJournalRow with free function. @keys: of an archive that has some,
 * of which an open file is refused; NULL: it has none. EBADMSG, also where it was not sealed under the key that it
 * names; ENOKEY: it is sealed, and that key is not among @keys; ENOTSUP.
 */
GPtrArray *ecfs_journal_file_parse (const uint8_t *bytes, size_t size, const EcfsKeyRing *keys,
                                    EcfsJournalFile *ret_file, GError **error);

/** "journal/EPOCH-FIRST-LAST", "snapshots/EPOCH-LAST-PART" and "-end" for the last part, in hexadecimal. */
void ecfs_journal_file_name (const EcfsJournalFile *file, char name[ECFS_JOURNAL_NAME_SIZE]);

/** Reads such a name back; false when it is none. */
bool ecfs_journal_file_name_parse (const char *name, EcfsJournalFile *ret_file);

#endif
