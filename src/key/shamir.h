/*
 * Shamir's secret sharing (Shamir 1979), byte by byte in GF(2^8) with x^8 + x^4 + x^3 + x^2 + 1: any `threshold` shares
 * give the secret, fewer tell nothing of it. Takes the same time whatever the secret is. Pure functions.
 *
 * A share says nothing of whether it is right: a false one makes a false secret. Who lies is found by slots.h.
 */
#ifndef ECFS_KEY_SHAMIR_H
#define ECFS_KEY_SHAMIR_H

#include "key/cipher.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ECFS_SECRET_BYTES 32
#define ECFS_SHARES_MAX   255

typedef struct EcfsShare {
    uint8_t x; /* 1 to 255; of the shares of one secret each has another */
    uint8_t y[ECFS_SECRET_BYTES];
} EcfsShare;

/**
 * @n shares of @secret, with x from 1 on; 1 <= threshold <= n <= ECFS_SHARES_MAX. What is random in them comes from
 * @stream, as far as it has come: the same stream gives the same shares again, and it must be as secret as they are
 * together.
 */
void ecfs_secret_split (const uint8_t secret[ECFS_SECRET_BYTES], unsigned threshold, unsigned n, EcfsCipher *stream,
                        EcfsShare *ret_shares);

/** The secret of as many shares as its threshold. False where an x is 0 or comes twice; ret_secret is then untouched.
 */
bool ecfs_secret_join (const EcfsShare *shares, unsigned threshold, uint8_t ret_secret[ECFS_SECRET_BYTES]);

#endif
