/*
 * XXH3 with the widest instructions of this processor, where the library was built to choose them when it runs:
 * without, it takes more than twice as long on a processor with AVX-512. The values are the same. What hashes much is
 * followed by ecfs_vector_end () here.
 */
#ifndef ECFS_UTIL_XXH3_H
#define ECFS_UTIL_XXH3_H

#include "util/vector.h"

#ifdef ECFS_HAVE_XXH3_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

static inline XXH64_hash_t ecfs_xxh3_64 (const void *bytes, size_t size)
{
    XXH64_hash_t hash = XXH3_64bits (bytes, size);
    ecfs_vector_end ();
    return hash;
}

static inline XXH64_hash_t ecfs_xxh3_64_seeded (const void *bytes, size_t size, XXH64_hash_t seed)
{
    XXH64_hash_t hash = XXH3_64bits_withSeed (bytes, size, seed);
    ecfs_vector_end ();
    return hash;
}

static inline XXH128_hash_t ecfs_xxh3_128 (const void *bytes, size_t size)
{
    XXH128_hash_t hash = XXH3_128bits (bytes, size);
    ecfs_vector_end ();
    return hash;
}

/** Fails for invalid arguments only. */
static inline void ecfs_xxh3_128_update (XXH3_state_t *state, const void *bytes, size_t size)
{
    (void) XXH3_128bits_update (state, bytes, size);
    ecfs_vector_end ();
}

#endif
