/* splitmix64: numbers that are the same everywhere, for choices that must be the same everywhere. Not for secrets. */
#ifndef ECFS_CODEC_RANDOM_H
#define ECFS_CODEC_RANDOM_H

#include <stdint.h>

static inline uint64_t ecfs_random_next (uint64_t *state)
{
    uint64_t z = *state += UINT64_C (0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C (0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C (0x94d049bb133111eb);
    return z ^ z >> 31;
}

#endif
