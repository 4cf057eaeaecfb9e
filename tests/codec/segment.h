/* One encoded segment of random bytes for the codec tests; each packet lies between pages that must not be touched. */
#ifndef ECFS_TESTS_CODEC_SEGMENT_H
#define ECFS_TESTS_CODEC_SEGMENT_H

#include "codec/codec.h"

typedef struct Segment {
    unsigned k, n;
    size_t packet_bytes;
    uint8_t *packets[ECFS_CODEC_MAX_N]; /* what was encoded */
    uint8_t *work[ECFS_CODEC_MAX_N];    /* what a test may damage */
    void *mappings[2 * ECFS_CODEC_MAX_N];
    size_t mapping_bytes;
} Segment;

typedef enum SegmentEdge {
    SEGMENT_AT_END,   /* packets end where a forbidden page begins */
    SEGMENT_AT_START, /* packets begin where a forbidden page ends */
} SegmentEdge;

/** Random data, encoded; @shift moves packets off the edge by that many bytes. Free with segment_free (). */
Segment *segment_new (const EcfsCodec *codec, size_t packet_bytes, SegmentEdge edge, size_t shift);
void segment_free (Segment *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (Segment, segment_free)

/** Restores work: the encoded packets, where @lost is set other bytes. */
void segment_lose (Segment *self, const bool *lost);

/** Fails the test unless work equals what was encoded; @lost for the message. */
void segment_check (const Segment *self, const bool *lost);

/** Loses, plans and decodes @lost from all others and checks every byte. */
void segment_survives (Segment *self, const EcfsCodec *codec, const bool *lost);

/** Fails the test unless a plan for @lost from all others is refused with ENODATA. */
void segment_cannot_survive (const EcfsCodec *codec, const bool *lost);

/** The bits of @mask as n flags. */
void segment_flags (uint32_t mask, unsigned n, bool *flags);

/** Loses @n_lost of @n packets at random. */
void segment_random_loss (unsigned n, unsigned n_lost, bool *lost);

/* A sanitizer makes everything slower: then only every SEGMENT_SAMPLE-th of many similar cases is tried. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SEGMENT_SAMPLE 23
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SEGMENT_SAMPLE 23
#endif
#endif
#ifndef SEGMENT_SAMPLE
#define SEGMENT_SAMPLE 1
#endif

/** A codec, or a failed test. */
EcfsCodec *segment_codec (const char *code);
EcfsCodec *segment_codec_by (const char *code, const char *provider);

#endif
