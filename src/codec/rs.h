/*
 * What the providers of rs share: the code is one, whoever computes it. rs.c does it with ISA-L, rs_liberasurecode.c
 * with liberasurecode; their bytes are the same.
 */
#ifndef ECFS_CODEC_RS_H
#define ECFS_CODEC_RS_H

#include "codec/codec_priv.h"

#define ECFS_RS_MAX_N 32
#define ECFS_RS_GRANULE                                                                                                \
    64 /* shorter vectors leave ISA-L's fast paths; longer ones are finished by overlapping steps                      \
        */
#define ECFS_RS_FORM "rs:K+M (K data and M parity stripes, at most 32 together)"

/* As in EcfsCodecOps. */
const char *ecfs_rs_refuse (unsigned k, unsigned n);
char *ecfs_rs_text (unsigned k, unsigned n);

/** Sets what all rs codecs with these numbers have in their base. */
void ecfs_rs_init_base (EcfsCodec *base, unsigned k, unsigned n);

/* What multiplies: ISA-L's ec_encode_data, or in tests something that does it wrongly. */
typedef void (*EcfsRsKernel) (int packet_bytes, int n_sources, int n_rows, unsigned char *tables,
                              unsigned char **sources, unsigned char **rows);

/** An rs codec without its base's texts, untested; for the self-test. Free with ecfs_codec_free (). */
EcfsCodec *ecfs_rs_new_untested (unsigned k, unsigned n, EcfsRsKernel kernel);

/**
 * Encodes and decodes known bytes at several k and m with what @make makes, and compares with plain C, which shares no
 * code with any library. Returns NULL, or what came out wrong.
 */
const char *ecfs_rs_self_test (EcfsCodec *(*make) (unsigned k, unsigned n));

#endif
