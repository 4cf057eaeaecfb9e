/*
 * XOR of many packets in one pass: what ldpc and basic spend their time in. A packet is seen as columns of 64 bytes,
 * `step` bytes apart; 64 where the columns follow each other. No alignment is required.
 */
#ifndef ECFS_CODEC_XOR_H
#define ECFS_CODEC_XOR_H

#include <stddef.h>
#include <stdint.h>

#define ECFS_XOR_COLUMN 64 /* bytes */

/**
 * Sets @n_columns columns of @to to the XOR of those of the @n_from (at least 1) packets. @to may be one of them, but
 * must not overlap one otherwise.
 */
typedef void (*EcfsXorKernel) (uint8_t *to, const uint8_t *const *from, size_t n_from, size_t n_columns, size_t step);

typedef struct EcfsXorLevel {
    const char *name; /* of the processor's level: "plain", "avx2" */
    EcfsXorKernel run;
} EcfsXorLevel;

#define ECFS_XOR_MAX_LEVELS 4

/** The kernels that this processor can run, the plain one first and the fastest last. Returns how many; at least 1. */
size_t ecfs_xor_levels (EcfsXorLevel levels[ECFS_XOR_MAX_LEVELS]);

/** The last of the levels. */
EcfsXorKernel ecfs_xor_kernel (void);

#endif
