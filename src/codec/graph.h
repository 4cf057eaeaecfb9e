/*
 * Graphs of ldpc and xor codes: which data packets each parity packet is the XOR of. Where they come from (shipped, or
 * made for any k and m), how a descriptor holds them, and how many losses they survive for certain.
 */
#ifndef ECFS_CODEC_GRAPH_H
#define ECFS_CODEC_GRAPH_H

#include "codec/codec.h"

#include <stddef.h>
#include <stdint.h>

#define ECFS_GRAPH_MAX 128 /* data packets, and parity packets */

typedef struct EcfsGraph {
    unsigned k, m;
    uint64_t columns[ECFS_GRAPH_MAX][2]; /* per data packet, a bit for each parity packet that has it */
} EcfsGraph;

static inline bool ecfs_graph_has (const EcfsGraph *self, unsigned parity, unsigned data)
{
    return self->columns[data][parity / 64] >> parity % 64 & 1;
}

unsigned ecfs_graph_n_edges (const EcfsGraph *self);

/**
 * As a descriptor holds it: for each parity packet a byte with the number of its members, then their indexes, a byte
 * each, ascending. g_free ().
 */
uint8_t *ecfs_graph_format (const EcfsGraph *self, size_t *ret_bytes);

/** Reads such bytes, which may be anything: EBADMSG unless they are exactly that for @k and @m, and leave no data
 * packet without a parity packet. */
bool ecfs_graph_parse (const uint8_t *bytes, size_t size, unsigned k, unsigned m, EcfsGraph *ret_graph, GError **error);

/* A graph that was searched for beforehand (tools/research/ldpc-search), with what was found out about it. */
typedef struct EcfsShippedGraph {
    uint8_t k, m;
    uint8_t tolerance;
    bool exact;        /* one loss more is known to be too many for some set */
    double overhead;   /* f: packets that a download in random order takes on average, over k */
    const char *texts; /* columns in hexadecimal; fewer than k: each stands for its m rotations too */
} EcfsShippedGraph;

/** The shipped graphs, by k and m. */
extern const EcfsShippedGraph ecfs_shipped_graphs[];
extern const size_t ecfs_n_shipped_graphs;

void ecfs_graph_from_shipped (const EcfsShippedGraph *shipped, EcfsGraph *ret_graph);

/** The shipped graph that this one is; NULL: none. */
const EcfsShippedGraph *ecfs_graph_find_shipped (const EcfsGraph *self);

/** The shipped graph for @k and @m, or one made by a short search whose outcome depends on nothing else. */
void ecfs_graph_make (unsigned k, unsigned m, EcfsGraph *ret_graph);

/** A codec of binary.h with one part: each parity packet is the XOR of its members. Without ops, tolerance, overhead.
 */
EcfsCodec *ecfs_graph_codec_new (const EcfsGraph *self);

/* Distance */

typedef struct EcfsDistance {
    unsigned at_least; /* no codeword but zero is lighter */
    unsigned at_most;  /* one that heavy was seen */
    unsigned depth;    /* generators that were summed up, in every combination, to show that */
} EcfsDistance;

/**
 * Bounds the least weight of a codeword by sums of few rows of generator matrices that are systematic on disjoint sets
 * of packets (Brouwer and Zimmermann). The code survives any at_least - 1 losses.
 *
 * @max_sums: sums to look at, at most; ends sooner where the bounds meet
 */
EcfsDistance ecfs_graph_distance (const EcfsGraph *self, uint64_t max_sums);

#endif
