/* How fast a code is on one core, for `ecfs bench codec` and `ecfs tune`. */
#ifndef ECFS_TOOL_CODEC_BENCH_H
#define ECFS_TOOL_CODEC_BENCH_H

#include "codec/codec.h"

#define CODEC_BENCH_ROUNDS 5

/* GB/s of user data per second of processor time, medians of the rounds. */
typedef struct CodecRates {
    double ecfs;
    double isal;   /* ISA-L called directly, for Reed-Solomon with as many packets */
    double memcpy; /* of the data */
} CodecRates;

/**
 * Encodes (@n_lost 0) or gives back the first @n_lost data packets, at most the code's tolerance and k, for about
 * @round_us per round and rate. Returns the size of packets, rounded up to one that the code can have.
 */
size_t codec_bench (const EcfsCodec *codec, uint64_t packet_bytes, unsigned n_lost, int round_us,
                    CodecRates *ret_rates);

#endif
