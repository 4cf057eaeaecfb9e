/*
 * A list of XORs over parts of packets, made once per code or loss pattern and run for every segment: what encoding and
 * decoding of ldpc and basic come down to.
 *
 * A packet is a row of granules, a granule is `parts` columns of 64 bytes, and part p of a packet is column p of each
 * of its granules. A step sets one part to the XOR of others. Packets from n on are scratch: they exist while a program
 * runs, a strip of the packets at a time.
 */
#ifndef ECFS_CODEC_PROGRAM_H
#define ECFS_CODEC_PROGRAM_H

#include "codec/xor.h"

#include <glib.h>
#include <stdbool.h>

#define ECFS_PROGRAM_MAX_PARTS   16
#define ECFS_PROGRAM_MAX_SCRATCH 320 /* packets with one part; in all 320 parts */

typedef struct EcfsUnit {
    uint16_t packet;
    uint16_t part;
} EcfsUnit;

typedef struct EcfsProgram EcfsProgram;

/** Packets below @n_packets are the caller's. @parts: 1 to ECFS_PROGRAM_MAX_PARTS. */
EcfsProgram *ecfs_program_new (unsigned n_packets, unsigned parts);
void ecfs_program_free (EcfsProgram *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsProgram, ecfs_program_free)

/** A part of a scratch packet that nothing uses yet. */
EcfsUnit ecfs_program_scratch (EcfsProgram *self);
/** A scratch packet with all its parts. */
unsigned ecfs_program_scratch_packet (EcfsProgram *self);

/* A step: begin, then what is summed up (at least one), each for once. */
void ecfs_program_begin (EcfsProgram *self, EcfsUnit to);
void ecfs_program_add (EcfsProgram *self, EcfsUnit from);

/** XORs of parts that a run takes: the sum over steps of what they add up. For comparing programs. */
size_t ecfs_program_n_terms (const EcfsProgram *self);

/** Flags the caller's packets that are read before a step sets them (n_packets flags, all false before). */
void ecfs_program_sources (const EcfsProgram *self, bool *sources);

/**
 * Runs all steps on @packet_bytes bytes (a multiple of 64 × parts) of each packet. Steps whose packet is NULL are left
 * out; what others read must not be NULL.
 */
void ecfs_program_run (const EcfsProgram *self, uint8_t *const *packets, size_t packet_bytes);

#endif
