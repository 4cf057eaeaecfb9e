/*
 * XXH3 with the widest instructions of this processor, where the library was built to choose them when it runs:
 * without, it takes more than twice as long on a processor with AVX-512. The values are the same.
 */
#ifndef ECFS_UTIL_XXH3_H
#define ECFS_UTIL_XXH3_H

#ifdef ECFS_HAVE_XXH3_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#endif
