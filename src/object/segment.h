/*
 * One segment in memory, in the shape it has on the endpoints: n packets, each with its check blocks and tags in place,
 * so that content is read straight into it and packets are sent straight from it. Reference-counted; its memory was
 * granted by the transfer and goes back with the last reference.
 */
#ifndef ECFS_OBJECT_SEGMENT_H
#define ECFS_OBJECT_SEGMENT_H

#include "codec/codec.h"
#include "object/format.h"
#include "object/transfer.h"

#include <stdatomic.h>

typedef struct EcfsSegment {
    atomic_uint references;
    EcfsTransferPool *transfer;
    uint64_t index;
    uint32_t stored_bytes; /* of one packet with tags */
    uint32_t n_blocks;     /* of one packet */
    uint32_t block_step;   /* bytes of a check block with its tag */
    size_t size;           /* n × stored_bytes */
    uint8_t *bytes;
} EcfsSegment;

/** Memory of a segment with @n packets: what is to be acquired before ecfs_segment_new (). */
size_t ecfs_segment_bytes (const EcfsLayout *layout, unsigned n, uint64_t index);

/** Takes over a grant of ecfs_segment_bytes (). */
EcfsSegment *ecfs_segment_new (EcfsTransferPool *transfer, const EcfsLayout *layout, unsigned n, uint64_t index);
EcfsSegment *ecfs_segment_ref (EcfsSegment *self);
void ecfs_segment_unref (EcfsSegment *self); /* NULL is accepted */

static inline uint8_t *ecfs_segment_packet (const EcfsSegment *self, unsigned packet)
{
    return self->bytes + (size_t) packet * self->stored_bytes;
}

static inline uint8_t *ecfs_segment_block (const EcfsSegment *self, unsigned packet, uint32_t block)
{
    return ecfs_segment_packet (self, packet) + (size_t) block * self->block_step;
}

/**
 * Reads the segment's content from @fd into the data packets; zero bytes behind its end. @ranges as in EcfsWriterJob.
 * EIO when the file ends early, else as pread(2).
 */
bool ecfs_segment_load (EcfsSegment *self, const EcfsLayout *layout, int fd, const GArray *ranges, GError **error);

/** Calls @each with the segment's content, piece by piece in its order; what is behind its end is left out. */
void ecfs_segment_each_content (EcfsSegment *self, const EcfsLayout *layout,
                                void (*each) (void *user, uint8_t *bytes, size_t size), void *user);

/** Takes a packet as ecfs_reader_rebuild () gives it, and computes its tags. */
void ecfs_segment_put_packet (EcfsSegment *self, const EcfsLayout *layout, const EcfsTagger *tagger, unsigned packet,
                              const uint8_t *bytes);

/** Enciphers the content where @keys is not NULL, and computes parity and all tags. */
void ecfs_segment_encode (EcfsSegment *self, const EcfsLayout *layout, const EcfsCodec *codec, const EcfsTagger *tagger,
                          const EcfsSealKeys *keys);

#endif
