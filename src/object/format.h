/*
 * The bytes of a stripe file around its packets: header, footer, tail. Documented for strangers in ecfs-format(5); this
 * and that page change together. Pure functions on buffers; parsers take bytes from anywhere.
 *
 *   header   preamble and sections, header_bytes long, then the packet area (see layout.h), then
 *   footer   sections: what is known only at the end, and file records
 *   tail     fixed size, says where the footer is: a valid tail is what makes a stripe whole
 */
#ifndef ECFS_OBJECT_FORMAT_H
#define ECFS_OBJECT_FORMAT_H

#include "codec/codec.h"
#include "key/seal.h"
#include "object/layout.h"
#include "util/error.h"

#define ECFS_FORMAT_VERSION        1
#define ECFS_STRIPE_PREAMBLE_BYTES 16
#define ECFS_STRIPE_TAIL_BYTES     48
#define ECFS_FOOTER_MAX_BYTES      (3u << 20)
#define ECFS_RECORDS_MAX_BYTES     (4u << 20) /* of what a footer tells of files, before it is compressed */
#define ECFS_RECORDS_MAX           4096       /* files that a footer tells of, and so that share an object */
#define ECFS_STRIPE_DIGEST_BYTES   16

/* The public part of a stripe, from its header. */
typedef struct EcfsStripeHeader {
    EcfsUuid archive;
    EcfsUuid object;
    uint64_t instance;
    uint64_t sequence; /* (epoch, sequence) orders everything an archive ever wrote */
    uint32_t epoch;
    uint16_t family; /* EcfsCodeFamily */
    uint16_t k;
    uint16_t n_written; /* stripes of the object when this one was written; more may have been added since */
    uint16_t index;
    uint32_t header_bytes;
    uint32_t segment_bytes;
    uint32_t block_bytes;
    uint32_t granule;
    bool is_log;               /* it grows, or did: it has neither footer nor tail (log.h) */
    EcfsSeal seal;             /* under which key it is stored; with one its tags are MACs */
    const uint8_t *parameters; /* of the code, as ecfs_codec_parameters (): borrowed; parsed: points into the bytes */
    uint32_t parameters_bytes; /* 0: it has none */
    /* Set by the parser: what the header is authentic by, and of how many bytes from its beginning on; it points into
     * the bytes. NULL: it has none. */
    const uint8_t *mac;
    uint32_t mac_covers;
} EcfsStripeHeader;

/*
 * One file that an object's bytes belong to; path and attributes are hints for a recovery without catalog and journal.
 *
 * Which objects make the file whole: one attempt to store content makes n_objects of them, numbered from 0 on, which
 * all tell of one `content`; what the file has of objects that were there before is `elsewhere`. While content is still
 * being written, how many objects it takes is known only with its last: the others tell 0. An object that is stored
 * once more later, whole or in part, is content of its own: one object, and all others are elsewhere.
 */
typedef struct EcfsFileRecord {
    uint64_t ino;
    uint64_t generation; /* higher is newer among records of one inode: the sequence of its intent */
    uint64_t file_size;
    uint32_t mode;
    uint32_t uid;
    uint32_t gid;
    int64_t mtime_ns;
    const char *path; /* borrowed; bytes without NUL, at most 4096; parsed: owned by the footer */
    GArray *ranges;   /* of EcfsFileRange, borrowed; parsed: owned by the footer */
    EcfsUuid content; /* nil: not told, as by stripes from before this was */
    uint32_t number;
    uint32_t n_objects; /* of the content, more than number; 0: not known yet */
    GArray *elsewhere;  /* of EcfsElsewhere, like ranges; may be NULL: nothing */
    bool has_sha256;    /* not stored: whoever has read the content knows … */
    uint8_t sha256[32]; /* … that of all of it */
} EcfsFileRecord;

/** Frees a record that owns what it has. */
void ecfs_file_record_free (gpointer record);

typedef struct EcfsFileRange {
    uint64_t file_offset;
    uint64_t length;
    uint64_t object_offset;
} EcfsFileRange;

/* A range of the file that another object has. */
typedef struct EcfsElsewhere {
    uint64_t file_offset;
    uint64_t length;
    uint64_t object_offset;
    EcfsUuid object;
} EcfsElsewhere;

#define ECFS_ELSEWHERE_MAX 10000 /* of one record; whoever would write more leaves n_objects 0 */

typedef struct EcfsStripeFooter {
    uint64_t size;                                   /* bytes of the object's content */
    uint64_t area_bytes;                             /* of the packet area of this stripe */
    uint8_t area_digest[ECFS_STRIPE_DIGEST_BYTES];   /* XXH3-128 of the packet area as stored */
    uint8_t object_digest[ECFS_STRIPE_DIGEST_BYTES]; /* XXH3-128 of the content; with a key as it is enciphered */
    GPtrArray *records;                              /* of EcfsFileRecord */
    bool is_pack;                                    /* these are of many files, if not of one now: compressed */
    GByteArray *chain; /* see chain.h; borrowed; parsed: owned. NULL: it is not known, or there is no key */
} EcfsStripeFooter;

/**
 * The header of a stripe, header->header_bytes (ignored on input, set on output) long. @keys: of the object, as
 * header->seal says; NULL without one, or where only its length is of interest. g_byte_array_unref ().
 */
GByteArray *ecfs_stripe_header_format (EcfsStripeHeader *header, const EcfsSealKeys *keys);

/**
 * Parses the first @size bytes of a stripe file. EBADMSG when they are no header or damaged; ENOTSUP when it needs a
 * later ecfs; EAGAIN when @size is too small: then ret_header->header_bytes says how many are needed.
 */
bool ecfs_stripe_header_parse (const uint8_t *bytes, size_t size, EcfsStripeHeader *ret_header, GError **error);

/**
 * Whether a header, parsed from @bytes, was written by who has the object's keys. EBADMSG: it was not, or it tells of
 * another key or of none; @keys NULL: the object is stored without, and everything passes that says so.
 */
bool ecfs_stripe_header_check (const EcfsStripeHeader *header, const uint8_t *bytes, const EcfsSealKeys *keys,
                               GError **error);

/** Footer and tail for the stripe with @header whose packet area ends at @footer_offset; @keys as for the header. */
GByteArray *ecfs_stripe_footer_format (const EcfsStripeFooter *footer, uint64_t footer_offset,
                                       const EcfsStripeHeader *header, const EcfsSealKeys *keys);

/** Reads the tail, the last ECFS_STRIPE_TAIL_BYTES bytes of a file of @file_size bytes: where the footer is. EBADMSG.
 */
bool ecfs_stripe_tail_parse (const uint8_t *bytes, uint64_t file_size, uint64_t *ret_footer_offset,
                             uint32_t *ret_footer_bytes, uint64_t *ret_footer_hash, GError **error);

/**
 * Parses a footer found by its tail; ecfs_stripe_footer_clear () afterwards. EBADMSG: it is damaged, or with @keys not
 * the one that was written for the stripe with @header; ENOTSUP. Of an object with a key, and @keys NULL, it has no
 * records and is believed.
 */
bool ecfs_stripe_footer_parse (const uint8_t *bytes, size_t size, uint64_t footer_hash, const EcfsStripeHeader *header,
                               const EcfsSealKeys *keys, EcfsStripeFooter *ret_footer, GError **error);
void ecfs_stripe_footer_clear (EcfsStripeFooter *footer);

/** Sets what the header says of the code; the parameters are valid as long as the codec. */
void ecfs_stripe_header_set_code (EcfsStripeHeader *header, const EcfsCodec *codec);

/**
 * The code that the object was written with, from what the header says alone. For ecfs_codec_free (); errors as
 * ecfs_codec_new_for ().
 */
EcfsCodec *ecfs_stripe_codec (const EcfsStripeHeader *header, GError **error);

/** The layout that header and content size give; EBADMSG when they do not fit together. */
bool ecfs_stripe_layout (const EcfsStripeHeader *header, uint64_t size, EcfsLayout *ret_layout, GError **error);

#endif
