/*
 * Where the bytes of an object lie: content → segments → packets → check blocks with tags → stripe files. Pure
 * arithmetic; the numbers are in every stripe header, and ecfs-format(5) says the same in words.
 *
 * Content of segment s is bytes [s × segment_bytes, …) of the object, the last segment may be shorter. A segment of L
 * bytes is k packets of ⌈L/k⌉ bytes rounded up to the granule, filled in order, zero bytes behind the end. In a stripe,
 * each check block of at most block_bytes is followed by its tag.
 */
#ifndef ECFS_OBJECT_LAYOUT_H
#define ECFS_OBJECT_LAYOUT_H

#include "object/tag.h"

#include <stdbool.h>

#include <stddef.h>
#include <stdint.h>

#define ECFS_BLOCK_MAX_BYTES  32768 /* of a check block */
#define ECFS_OBJECT_MAX_BYTES (16ull << 30)
#define ECFS_SEGMENT_MAX      (64u << 20) /* bytes of content in a segment */

typedef struct EcfsLayout {
    uint64_t size;          /* bytes of content */
    uint32_t segment_bytes; /* of content; a multiple of k × granule */
    uint32_t block_bytes;
    uint32_t header_bytes;
    uint32_t granule;
    uint16_t k;
    uint16_t tag_bytes; /* ECFS_TAG_CHECKSUM_BYTES or ECFS_TAG_MAC_BYTES */
} EcfsLayout;

/** Content bytes per segment nearest above @wanted whose packets are whole multiples of 4 KiB and of the granule. */
uint32_t ecfs_layout_segment_bytes (uint64_t wanted, unsigned k, size_t granule);

/** Bytes of a check block in new objects: a multiple of @granule, which is at most 4096. Well below what the format
 * allows, as a random read fetches whole blocks: of 64 KiB it makes 76 on the average, and 100 with blocks of 32 KiB.
 */
uint32_t ecfs_layout_written_block_bytes (size_t granule);

/** Whether hostile numbers make sense: bounds, divisibility; everything below relies on it. */
bool ecfs_layout_valid (const EcfsLayout *self);

uint64_t ecfs_layout_n_segments (const EcfsLayout *self);
/** Content bytes in a segment. */
uint32_t ecfs_layout_content_bytes (const EcfsLayout *self, uint64_t segment);
/** Bytes of each packet of a segment, without tags. */
uint32_t ecfs_layout_packet_bytes (const EcfsLayout *self, uint64_t segment);
/** Check blocks in each packet of a segment. */
uint32_t ecfs_layout_n_blocks (const EcfsLayout *self, uint64_t segment);
/** Bytes of check block @block of a packet of a segment, without its tag. */
uint32_t ecfs_layout_block_bytes (const EcfsLayout *self, uint64_t segment, uint32_t block);
/** Bytes that a packet takes in the stripe, tags included. */
uint32_t ecfs_layout_stored_bytes (const EcfsLayout *self, uint64_t segment);
/** Offset in the stripe file of check block @block of a segment; @block may be n_blocks: the end of the packet. */
uint64_t ecfs_layout_block_offset (const EcfsLayout *self, uint64_t segment, uint32_t block);
/** Number of a check block within its stripe, as its tag takes it. */
uint64_t ecfs_layout_block_number (const EcfsLayout *self, uint64_t segment, uint32_t block);
/** Bytes of the packet area: all packets with tags. */
uint64_t ecfs_layout_area_bytes (const EcfsLayout *self);

/**
 * The UUID of a new object: random but for the fan-out directory of its stripes, which many @number in a row share, so
 * that few stripes of small files need a directory made.
 */
EcfsUuid ecfs_object_uuid (unsigned number);

#define ECFS_STRIPE_NAME_SIZE 80

/** "stripes/xxx/OBJECT-INDEX-INSTANCE", all hexadecimal, xxx the first three digits of the object. */
void ecfs_stripe_name (const EcfsUuid *object, uint16_t index, uint64_t instance, char name[ECFS_STRIPE_NAME_SIZE]);

/** Reads such a name back; false when it is none. */
bool ecfs_stripe_name_parse (const char *name, EcfsUuid *ret_object, uint16_t *ret_index, uint64_t *ret_instance);

#endif
