/*
 * SHA-256 of many pieces at once, a piece in each lane of the processor's vectors: for processors that have no
 * instructions for it, which takes OpenSSL 2 to 4 s of a processor for each GiB, and this 0.5 to 0.8 s. OpenSSL has
 * such code, and keeps it to itself. Pure functions.
 */
#ifndef ECFS_UTIL_SHA256_LANES_H
#define ECFS_UTIL_SHA256_LANES_H

#include <stddef.h>
#include <stdint.h>

#define ECFS_SHA256_LANES      16u
#define ECFS_SHA256_WORDS      8u
#define ECFS_SHA256_MAX_LEVELS 2

/**
 * Takes @n_blocks whole blocks of each piece. @state: the words of each lane's intermediate hash value (FIPS 180-4).
 */
typedef void (*EcfsSha256Lanes) (uint32_t state[ECFS_SHA256_WORDS][ECFS_SHA256_LANES],
                                 const uint8_t *const pieces[ECFS_SHA256_LANES], size_t n_blocks);

typedef struct EcfsSha256Level {
    const char *name;
    EcfsSha256Lanes run;
} EcfsSha256Level;

/** Those that this processor can, the fastest last; returns how many, which may be 0. For tests. */
size_t ecfs_sha256_levels (EcfsSha256Level levels[ECFS_SHA256_MAX_LEVELS]);

/** The fastest; NULL: one after the other is as fast. */
EcfsSha256Lanes ecfs_sha256_lanes (void);

#endif
