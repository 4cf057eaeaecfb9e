/*
 * Whether the stripes of an object agree with each other, and what the SHA-256 of its content is, while they are read
 * side by side: each by a thread of its own, none more than a window of segments before the slowest, so that memory is
 * bounded however large the object is. Tags and digests tell of each stripe alone, and can be forged; that coding the
 * content gives just these stripes, and that the content has the SHA-256 that the catalog has of it, cannot.
 *
 * Nothing of the bytes is parsed: they are copied, coded and hashed by sizes that the layout gives, which was checked.
 *
 * new → threads: await, take …, leave → end, free. A stripe that is left early is done without, as long as the others
 * determine the content.
 */
#ifndef ECFS_OBJECT_CODEWORD_H
#define ECFS_OBJECT_CODEWORD_H

#include "codec/codec.h"
#include "key/seal.h"
#include "object/layout.h"
#include "util/sha256.h"

#include <stdatomic.h>

typedef struct EcfsCodeword EcfsCodeword;

/* What was found. */
typedef struct EcfsCodewordResult {
    bool is_known;                  /* the stripes determine the content; the others are valid then only */
    bool agrees;                    /* all n stripes came to their end, and are what coding the content gives */
    bool differs[ECFS_CODEC_MAX_N]; /* of those that came: it is not what coding the content gives */
    uint8_t sha256[ECFS_SHA256_SIZE];
} EcfsCodewordResult;

/** Memory that one takes, about. */
size_t ecfs_codeword_bytes (const EcfsCodec *codec, const EcfsLayout *layout);

/** For the stripes flagged in @stripes (n flags), which will be read. @codec must outlive it, and @keys, which are the
 * object's; NULL: it is stored without. */
EcfsCodeword *ecfs_codeword_new (const EcfsCodec *codec, const EcfsLayout *layout, const EcfsSealKeys *keys,
                                 const bool *stripes);
/** When all stripes are left. NULL is accepted. */
void ecfs_codeword_free (EcfsCodeword *self);

/**
 * Waits until @segment of a stripe may be taken, and returns the segment before which taking has to end until it is
 * asked again. @segment itself: *cancelled was set meanwhile.
 */
uint64_t ecfs_codeword_await (EcfsCodeword *self, unsigned stripe, uint64_t segment, const atomic_bool *cancelled);

/** The next check block of a stripe, in order; its tag is right. Never blocks; any thread, one at a time for a stripe.
 */
void ecfs_codeword_take (EcfsCodeword *self, unsigned stripe, uint64_t segment, uint32_t block, const uint8_t *bytes);

/** No more of a stripe comes. */
void ecfs_codeword_leave (EcfsCodeword *self, unsigned stripe);

/** When all stripes are left, once. */
void ecfs_codeword_end (EcfsCodeword *self, EcfsCodewordResult *ret_result);

#endif
