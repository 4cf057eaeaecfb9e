/*
 * What authenticates the blocks of one object: a keyed hash of 16 bytes. The same key and bytes give the same one, so
 * that a block that is rebuilt has the tag it had; without the key nobody can make it.
 *
 * HMAC is the first half of an HMAC-SHA-256 (mac.h). GHASH is several times as fast: from the key come two, both by
 * HKDF. Under the first, bytes are summed as AES-256-GCM sums what it only authenticates, with a nonce of zeros. The
 * sum, 16 bytes, is enciphered by AES-256 under the second.
 *
 * Why that is sound: a sum that got out under a nonce that is used twice would tell the key, as GMAC does. This sum
 * never gets out. For two different texts of at most L blocks of 16 bytes, lengths included, sums are equal with a
 * chance of at most L / 2^128, whoever chose the texts, as nothing that is seen depends on the first key while no two
 * sums are equal. Enciphered, sums that differ look random and say nothing of each other. Who has q tags under one key
 * and tries v more texts succeeds with a chance of at most (q + v)^2 (L + 1) / 2^129 + v / 2^128. A check block has at
 * most 32 KiB, so that L is at most 2,051: for a full object of 16 GiB in six stripes that is less than 2^-76. A block
 * that was rebuilt wrongly, and got a tag, is one text more and no harm.
 *
 * Any number of threads may use one at once.
 */
#ifndef ECFS_KEY_BLOCK_MAC_H
#define ECFS_KEY_BLOCK_MAC_H

#include "key/key.h"

#define ECFS_BLOCK_MAC_BYTES 16

typedef enum EcfsBlockMacKind {
    ECFS_BLOCK_MAC_HMAC,
    ECFS_BLOCK_MAC_GHASH,
} EcfsBlockMacKind;

typedef struct EcfsBlockMac EcfsBlockMac;

/** For ecfs_block_mac_free (). */
EcfsBlockMac *ecfs_block_mac_new (EcfsBlockMacKind kind, const uint8_t key[ECFS_KEY_BYTES]);
/** Forgets the key; nobody may use it any more. NULL is accepted. */
void ecfs_block_mac_free (EcfsBlockMac *self);

/** The hash of @head and, behind it, @bytes, which each are less than 1 GiB. */
void ecfs_block_mac_compute (EcfsBlockMac *self, const void *head, size_t head_bytes, const void *bytes, size_t size,
                             uint8_t ret_mac[ECFS_BLOCK_MAC_BYTES]);

#endif
