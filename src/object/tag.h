/*
 * Tags: what stands behind each check block of a stripe, and tells that block from every other of any stripe.
 *
 * Without a key a tag is a checksum, XXH3-64 seeded with object, stripe index and block number: accidents are found,
 * and who knows the format can make others that fit. With a key it is a MAC (block_mac.h) under the object's own
 * tag key, over stripe index, block number, length and block: who does not have the key can make none.
 * Neither has a nonce, so that a stripe that is rebuilt is the same bytes, and one that is rebuilt wrongly tells
 * nothing of the key.
 *
 * Thread-safe.
 */
#ifndef ECFS_OBJECT_TAG_H
#define ECFS_OBJECT_TAG_H

#include "key/seal.h"
#include "util/uuid.h"

#define ECFS_TAG_CHECKSUM_BYTES 8
#define ECFS_TAG_MAC_BYTES      ECFS_BLOCK_MAC_BYTES
#define ECFS_TAG_MAX_BYTES      16

/* How the blocks of one object are tagged. */
typedef struct EcfsTagger {
    EcfsUuid object;
    EcfsBlockMac *mac; /* under the object's tag key; borrowed; NULL: there is no key */
} EcfsTagger;

/** Bytes of each tag of an object that is stored so. */
static inline uint16_t ecfs_tag_bytes_under (const EcfsSeal *seal)
{
    return seal->kind == ECFS_SEAL_NONE ? ECFS_TAG_CHECKSUM_BYTES : ECFS_TAG_MAC_BYTES;
}

/** Bytes of each of its tags. */
static inline unsigned ecfs_tag_bytes (const EcfsTagger *self)
{
    return self->mac == NULL ? ECFS_TAG_CHECKSUM_BYTES : ECFS_TAG_MAC_BYTES;
}

/** Writes the tag of a block, ecfs_tag_bytes () of them. @number: of the block within its stripe. */
void ecfs_tag_put (const EcfsTagger *self, unsigned stripe_index, uint64_t number, const uint8_t *block,
                   size_t block_bytes, uint8_t *ret_tag);

/** Whether @tag is that of the block; where there is a key, in a time that says nothing of how much of it fits. */
bool ecfs_tag_fits (const EcfsTagger *self, unsigned stripe_index, uint64_t number, const uint8_t *block,
                    size_t block_bytes, const uint8_t *tag);

#endif
