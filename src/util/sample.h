/* What a random sample without replacement tells about all. */
#ifndef ECFS_UTIL_SAMPLE_H
#define ECFS_UTIL_SAMPLE_H

#include <stdint.h>

#define ECFS_SAMPLE_CONFIDENCE 0.95

/**
 * The exact one-sided upper bound of how many of @population are bad when @bad of @sampled were: the largest number D
 * with which so few bad ones, or fewer, would come up with a probability of more than 1 - @confidence, by the
 * hypergeometric distribution. So with at least that confidence no more than D are bad. Between @bad and @population -
 * (@sampled - @bad), which it is where nothing was sampled.
 *
 * Source: T. Wright, Exact Confidence Bounds when Sampling from Small Finite Universes, Lecture Notes in Statistics 66,
 * Springer 1991.
 */
uint64_t ecfs_sample_most_bad (uint64_t population, uint64_t sampled, uint64_t bad, double confidence);

/** The probability that at least one of @bad among @population comes up among @sampled. */
double ecfs_sample_notices (uint64_t population, uint64_t sampled, uint64_t bad);

#endif
