/*
 * Who returns other bytes than were stored, although each checksum fits: checksums without a key are against accidents,
 * and who stores a stripe can make others that have them. What the SHA-256 of the content says cannot be made to fit;
 * so content is read without each suspect in turn, until it has it, and then each stripe is compared with what coding
 * this content gives.
 */
#ifndef ECFS_OBJECT_LIARS_H
#define ECFS_OBJECT_LIARS_H

#include "object/reader.h"
#include "util/sha256.h"

/* Of an object whose content has the right SHA-256; the packet area of each stripe, as it is stored. */
typedef struct EcfsTrueStripes {
    uint8_t sha256[ECFS_CODEC_MAX_N][ECFS_SHA256_SIZE];
} EcfsTrueStripes;

typedef struct EcfsLiars {
    const EcfsReaderParams *params;            /* borrowed, as all */
    const uint8_t *sha256;                     /* ECFS_SHA256_SIZE, of the content; NULL: it is not known, … */
    const uint8_t *digest;                     /* … and the XXH3-128 (canonical) counts in its place */
    uint8_t *ret_sha256;                       /* of content that has what is asked for; may be NULL */
    bool (*tick) (void *user, uint64_t bytes); /* so many were read; false: it is to end. May be NULL */
    void *user;
} EcfsLiars;

/**
 * Reads the content without the stripes flagged in @without (n flags; NULL: with all) and codes it. EBADMSG: its
 * SHA-256, or its digest, is another; EIO: it cannot be read; ECANCELED. @ret_stripes may be NULL. Blocks.
 */
bool ecfs_true_stripes (const EcfsLiars *self, const bool *without, EcfsTrueStripes *ret_stripes, GError **error);

/**
 * Finds the stripes that are not what was stored, of up to @most endpoints: flags them in @ret_lies (n flags, at least
 * one). Without them the content has its SHA-256. EBADMSG: that does not help. Blocks; reads the object several times.
 */
bool ecfs_liars_find (const EcfsLiars *self, unsigned most, bool *ret_lies, GError **error);

/**
 * Where it is not known whether any is: compares all stripes with what coding the content gives, as it is read now, and
 * flags those that are not what was stored; maybe none. EBADMSG: the content has another SHA-256. Blocks.
 */
bool ecfs_liars_compare (const EcfsLiars *self, bool *ret_lies, GError **error);

#endif
