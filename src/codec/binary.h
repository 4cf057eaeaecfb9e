/*
 * The engine of ldpc and basic: systematic codes whose parity packets are XORs of data packets, rotated or not.
 *
 * A packet has `parts` parts. With one part, a parity packet is the XOR of its members. With more, a packet stands for
 * a polynomial of parts + 1 coefficients whose last one is not stored, being the XOR of the others; a member enters a
 * parity packet rotated cyclically by its rotation. So everything is linear over GF(2) in parts of packets.
 *
 * Decoding peels first: a parity packet that lacks one member gives it. What that leaves is solved by Gaussian
 * elimination over GF(2), on rows of bits. Both happen in the plan; running it is a list of XORs (program.h).
 */
#ifndef ECFS_CODEC_BINARY_H
#define ECFS_CODEC_BINARY_H

#include "codec/codec_priv.h"
#include "codec/program.h"

#define ECFS_BINARY_MAX 128 /* data packets, and parity packets */

/* Packets of a code as bits, data first. */
typedef struct EcfsPackets {
    uint64_t words[4];
} EcfsPackets;

typedef struct EcfsGuarantees EcfsGuarantees;

/* Immutable after ecfs_binary_finish (), but for the guarantees. */
typedef struct EcfsBinary {
    EcfsCodec base;
    unsigned parts;
    int8_t rotation[ECFS_BINARY_MAX][ECFS_BINARY_MAX]; /* [parity][data]: by how much; -1: no member */
    EcfsPackets equations[ECFS_BINARY_MAX];            /* [parity]: its members and itself */
    EcfsProgram *encode;
    EcfsGuarantees *guarantees;
} EcfsBinary;

/** Prepares what follows from base.k, base.n, parts and rotation. */
void ecfs_binary_finish (EcfsBinary *self);
void ecfs_binary_clear (EcfsCodec *self);

/** What gives the packets @wanted from those @present (n flags each); NULL when they are not determined. */
EcfsProgram *ecfs_binary_program (const EcfsBinary *self, const bool *present, const bool *wanted);

/* As in EcfsCodecOps. */
void ecfs_binary_encode (const EcfsCodec *self, const uint8_t *const *data, uint8_t *const *parity,
                         size_t packet_bytes);
bool ecfs_binary_determines (const EcfsCodec *self, const bool *present, const bool *wanted);
int ecfs_binary_guarantee (const EcfsCodec *self, const bool *present);
bool ecfs_binary_choose (const EcfsCodec *self, const bool *wanted, const bool *available, const double *cost,
                         bool *sources);
EcfsPlan *ecfs_binary_plan (const EcfsCodec *self, const bool *present, const bool *wanted, GError **error);
void ecfs_binary_run (const EcfsPlan *plan, uint8_t *const *packets, size_t packet_bytes);
void ecfs_binary_plan_clear (EcfsPlan *plan);

/* Sets of packets */

static inline bool ecfs_packets_has (const EcfsPackets *self, unsigned packet)
{
    return self->words[packet / 64] >> packet % 64 & 1;
}

static inline void ecfs_packets_add (EcfsPackets *self, unsigned packet)
{
    self->words[packet / 64] |= UINT64_C (1) << packet % 64;
}

static inline void ecfs_packets_remove (EcfsPackets *self, unsigned packet)
{
    self->words[packet / 64] &= ~(UINT64_C (1) << packet % 64);
}

static inline unsigned ecfs_packets_count (const EcfsPackets *self)
{
    unsigned n = 0;
    for (unsigned i = 0; i < 4; i++)
        n += (unsigned) __builtin_popcountll (self->words[i]);
    return n;
}

/** What is in @a and not in @b. */
static inline EcfsPackets ecfs_packets_minus (const EcfsPackets *a, const EcfsPackets *b)
{
    EcfsPackets left;
    for (unsigned i = 0; i < 4; i++)
        left.words[i] = a->words[i] & ~b->words[i];
    return left;
}

/** The lowest packet of a set that is not empty. */
static inline unsigned ecfs_packets_first (const EcfsPackets *self)
{
    unsigned i = 0;
    while (self->words[i] == 0)
        i++;
    return i * 64 + (unsigned) __builtin_ctzll (self->words[i]);
}

static inline EcfsPackets ecfs_packets_of (const bool *flags, unsigned n)
{
    EcfsPackets set = {{0}};
    for (unsigned i = 0; i < n; i++)
        if (flags[i])
            ecfs_packets_add (&set, i);
    return set;
}

#endif
