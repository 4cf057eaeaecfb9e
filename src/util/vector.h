/*
 * Libraries with kernels in AVX and AVX-512 that leave the upper halves of vector registers in use: from then on each
 * SSE instruction of that thread has to merge with them, until VZEROUPPER. Debian's ISA-L (2.30) and libxxhash (0.8.1)
 * do. libssh2's decryption, which is SSE for 16 bytes at a time, took 12 processor seconds per GiB behind a hash, and
 * takes 3.3 with this.
 */
#ifndef ECFS_UTIL_VECTOR_H
#define ECFS_UTIL_VECTOR_H

/** To be called behind such a kernel, on its thread. Costs nothing. */
static inline void ecfs_vector_end (void)
{
#if defined __x86_64__ && defined __GNUC__
    if (__builtin_cpu_supports ("avx"))
        __asm__ volatile("vzeroupper");
#endif
}

#endif
