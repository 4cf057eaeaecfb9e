/* Which lost packets the packets at hand determine, and how: peeling, then elimination. For binary.c and its plans. */
#ifndef ECFS_CODEC_SOLVE_H
#define ECFS_CODEC_SOLVE_H

#include "codec/binary.h"

#define ECFS_SOLVE_MAX_ROWS 512 /* parts of parity packets, and parts of unknown ones */

typedef struct EcfsSolve {
    const EcfsBinary *code;
    EcfsPackets present;
    EcfsPackets known; /* data packets: present or peeled */

    /* Data packets that peeling gives, in order, each with the parity packet (counted from 0) that gives it. */
    unsigned n_peeled;
    struct {
        uint8_t data, parity;
    } peeled[ECFS_BINARY_MAX];

    /* Data packets that it does not give, and present parity packets that have some of them as members. */
    unsigned n_unknown, n_equations;
    uint8_t unknown[ECFS_BINARY_MAX], equations[ECFS_BINARY_MAX];
    uint8_t column[ECFS_BINARY_MAX]; /* of a data packet: its position in unknown */

    /* Reduced rows: in `unknowns` over parts of unknown packets, each with a bit, its pivot, that no other row has;
     * in `sums`, of which equations' parts they are the sum. */
    unsigned n_rows;
    uint16_t pivot[ECFS_SOLVE_MAX_ROWS];
    uint64_t unknowns[ECFS_SOLVE_MAX_ROWS][ECFS_SOLVE_MAX_ROWS / 64];
    uint64_t sums[ECFS_SOLVE_MAX_ROWS][ECFS_SOLVE_MAX_ROWS / 64];
} EcfsSolve;

/** Peels, and lists what is left. Fills all but the rows. */
void ecfs_solve_peel (EcfsSolve *self, const EcfsBinary *code, const bool *present);

/** Reduces the equations that are left to rows. */
void ecfs_solve_eliminate (EcfsSolve *self);

/**
 * Whether part @part of the packet @packet, which is not present, is determined after elimination. @ret_sum (may be
 * NULL) is set to the equations' parts, as in sums, whose sum holds it beside known parts only.
 */
bool ecfs_solve_target (const EcfsSolve *self, unsigned packet, unsigned part,
                        uint64_t ret_sum[ECFS_SOLVE_MAX_ROWS / 64]);

/* Packets that add something to each other, for choosing among many. Rows are kept by their lowest bit. */
typedef struct EcfsBasis {
    unsigned n_rows;
    bool have[ECFS_SOLVE_MAX_ROWS];
    uint64_t rows[ECFS_SOLVE_MAX_ROWS][ECFS_SOLVE_MAX_ROWS / 64];
} EcfsBasis;

void ecfs_basis_init (EcfsBasis *self);

/** Adds a packet; false when those before determine it. */
bool ecfs_basis_add (EcfsBasis *self, const EcfsBinary *code, unsigned packet);

/** The coefficient that @part of a rotated packet is; parts of the code means the one that is not stored. */
static inline unsigned ecfs_rotated (const EcfsBinary *code, unsigned part, int rotation)
{
    return code->parts == 1 ? 0 : (part + code->parts + 1 - (unsigned) rotation) % (code->parts + 1);
}

#endif
