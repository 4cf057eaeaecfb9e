/*
 * What a code survives: of all sets of stripes that may be lost, how many lose data, counted by how many are lost; and
 * with endpoints that are there so and so often, how probable that is. Counted exactly where any k stripes do, or a
 * code has few stripes; sampled elsewhere.
 *
 * Exactly: lost stripes can be had back if and only if their columns of the parity check matrix are independent. Sets
 * are enumerated depth first, one column more at a time; of a set whose columns are dependent all that contain it lose
 * data and are counted without being looked at.
 */
#ifndef ECFS_CODEC_SURVIVAL_H
#define ECFS_CODEC_SURVIVAL_H

#include "codec/codec.h"

#define ECFS_SURVIVAL_EXACT_N 24      /* stripes of which all sets are counted */
#define ECFS_SURVIVAL_SAMPLED 4000000 /* stripes of all sets of a sample that takes some tenths of a second */

typedef struct EcfsSurvival {
    unsigned n;
    bool exact;
    double share[ECFS_CODEC_MAX_N + 1]; /* of the sets of so many lost stripes those that lose data */
    double error[ECFS_CODEC_MAX_N + 1]; /* its standard error; 0: it is exact */
} EcfsSurvival;

typedef struct EcfsFailure {
    double probability;
    double error; /* its standard error; 0: it is exact */
} EcfsFailure;

/**
 * Counts the sets that lose data.
 *
 * @availability: n probabilities that a stripe is there, by which sets are weighed: then the result means something
 *                with the same ones only. NULL: all sets count alike, as they do where all endpoints are alike
 * @n_stripes:    of all sets together where sets are sampled; ECFS_SURVIVAL_SAMPLED, or a part of it
 * @seed:         of the sampling
 */
void ecfs_survival_count (const EcfsCodec *codec, const double *availability, unsigned n_stripes, uint64_t seed,
                          EcfsSurvival *ret_survival);

/** The probability that data cannot be read, when each stripe is there with its probability, independently. */
EcfsFailure ecfs_survival_failure (const EcfsSurvival *self, const double *availability);

/** Packets that are read to give one lost packet back, on average over all n. Not for modelled codes. */
double ecfs_survival_repair_reads (const EcfsCodec *codec);

#endif
