#include "object/tag.h"

#include "util/bytes.h"
#include "util/xxh3.h"

#include <openssl/crypto.h>

#include <string.h>

static void put_checksum (const EcfsTagger *self, unsigned stripe_index, uint64_t number, const uint8_t *block,
                          size_t block_bytes, uint8_t *ret_tag)
{
    uint8_t position[32];
    memcpy (position, self->object.bytes, 16);
    ecfs_put_le (position + 16, stripe_index, 8);
    ecfs_put_le (position + 24, number, 8);
    uint64_t seed = ecfs_xxh3_64 (position, sizeof position);
    ecfs_put_le (ret_tag, ecfs_xxh3_64_seeded (block, block_bytes, seed), ECFS_TAG_CHECKSUM_BYTES);
}

/* The key is the object's own, so that its UUID need not be among what is hashed. */
static void put_mac (const EcfsTagger *self, unsigned stripe_index, uint64_t number, const uint8_t *block,
                     size_t block_bytes, uint8_t *ret_tag)
{
    uint8_t head[24];
    ecfs_put_le (head, stripe_index, 8);
    ecfs_put_le (head + 8, number, 8);
    ecfs_put_le (head + 16, block_bytes, 8);
    ecfs_block_mac_compute (self->mac, head, sizeof head, block, block_bytes, ret_tag);
}

void ecfs_tag_put (const EcfsTagger *self, unsigned stripe_index, uint64_t number, const uint8_t *block,
                   size_t block_bytes, uint8_t *ret_tag)
{
    if (self->mac == NULL)
        put_checksum (self, stripe_index, number, block, block_bytes, ret_tag);
    else
        put_mac (self, stripe_index, number, block, block_bytes, ret_tag);
}

bool ecfs_tag_fits (const EcfsTagger *self, unsigned stripe_index, uint64_t number, const uint8_t *block,
                    size_t block_bytes, const uint8_t *tag)
{
    uint8_t right[ECFS_TAG_MAX_BYTES];
    ecfs_tag_put (self, stripe_index, number, block, block_bytes, right);
    return CRYPTO_memcmp (right, tag, ecfs_tag_bytes (self)) == 0;
}
