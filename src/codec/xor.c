#include "codec/xor.h"

#include <string.h>

/*
 * DEFINE_KERNEL (name, width, attributes): the kernel on the compiler's own vectors of @width bytes. Four columns at a
 * time keep enough loads in flight, and the pointer of a packet is fetched once for all four.
 */
#define DEFINE_KERNEL(name, width, attributes)                                                                         \
    typedef uint64_t Vector_##name __attribute__ ((vector_size (width), aligned (1), may_alias));                      \
    attributes static void name (uint8_t *to, const uint8_t *const *from, size_t n_from, size_t n_columns,             \
                                 size_t step)                                                                          \
    {                                                                                                                  \
        typedef Vector_##name Vector;                                                                                  \
        size_t n_in_fours = n_columns / 4 * 4;                                                                         \
        for (size_t column = 0; column < n_in_fours; column += 4)                                                      \
            for (size_t at = column * step; at < column * step + ECFS_XOR_COLUMN; at += width) {                       \
                const uint8_t *packet = from[0] + at;                                                                  \
                Vector a = AT (packet), b = AT (packet + step);                                                        \
                Vector c = AT (packet + 2 * step), d = AT (packet + 3 * step);                                         \
                for (size_t i = 1; i < n_from; i++) {                                                                  \
                    packet = from[i] + at;                                                                             \
                    a ^= AT (packet);                                                                                  \
                    b ^= AT (packet + step);                                                                           \
                    c ^= AT (packet + 2 * step);                                                                       \
                    d ^= AT (packet + 3 * step);                                                                       \
                }                                                                                                      \
                *(Vector *) (to + at) = a;                                                                             \
                *(Vector *) (to + at + step) = b;                                                                      \
                *(Vector *) (to + at + 2 * step) = c;                                                                  \
                *(Vector *) (to + at + 3 * step) = d;                                                                  \
            }                                                                                                          \
        for (size_t column = n_in_fours; column < n_columns; column++)                                                 \
            for (size_t at = column * step; at < column * step + ECFS_XOR_COLUMN; at += width) {                       \
                Vector sum = AT (from[0] + at);                                                                        \
                for (size_t i = 1; i < n_from; i++)                                                                    \
                    sum ^= AT (from[i] + at);                                                                          \
                *(Vector *) (to + at) = sum;                                                                           \
            }                                                                                                          \
    }

#define AT(bytes) (*(const Vector *) (bytes))

/* The reference, byte by byte. */
static void plain (uint8_t *to, const uint8_t *const *from, size_t n_from, size_t n_columns, size_t step)
{
    for (size_t column = 0; column < n_columns; column++)
        for (size_t at = column * step; at < column * step + ECFS_XOR_COLUMN; at++) {
            uint8_t sum = from[0][at];
            for (size_t i = 1; i < n_from; i++)
                sum ^= from[i][at];
            to[at] = sum;
        }
}

/* 16 bytes: what every processor of this architecture has, in vectors or in plain registers. */
DEFINE_KERNEL (vector, 16, )
#ifdef __x86_64__
DEFINE_KERNEL (avx2, 32, __attribute__ ((target ("avx2"))))
DEFINE_KERNEL (avx512, 64, __attribute__ ((target ("avx512f"))))
#endif

size_t ecfs_xor_levels (EcfsXorLevel levels[ECFS_XOR_MAX_LEVELS])
{
    size_t n_levels = 0;
    levels[n_levels++] = (EcfsXorLevel){"plain", plain};
    levels[n_levels++] = (EcfsXorLevel){"vector", vector};
#ifdef __x86_64__
    if (__builtin_cpu_supports ("avx2"))
        levels[n_levels++] = (EcfsXorLevel){"avx2", avx2};
    if (__builtin_cpu_supports ("avx512f"))
        levels[n_levels++] = (EcfsXorLevel){"avx512", avx512};
#endif
    return n_levels;
}

EcfsXorKernel ecfs_xor_kernel (void)
{
    EcfsXorLevel levels[ECFS_XOR_MAX_LEVELS];
    return levels[ecfs_xor_levels (levels) - 1].run;
}
