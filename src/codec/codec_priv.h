/*
 * What the code families share behind codec.h. A new family is one .c with an EcfsCodecOps, one row in codec.c's table
 * and one in the conformance test.
 */
#ifndef ECFS_CODEC_CODEC_PRIV_H
#define ECFS_CODEC_CODEC_PRIV_H

#include "codec/codec.h"

typedef struct EcfsCodecOps {
    EcfsCodeFamily family;
    const char *name; /* in the code's text, before the colon */
    const char *form; /* for messages: "rs:K+M" */

    /* Reads what follows the colon. Only the form counts here; numbers that make no code are refuse's business. */
    bool (*parse) (const char *numbers, unsigned *ret_k, unsigned *ret_n);
    /* Why there is no such code, as the end of a sentence; NULL when there is one. Takes any numbers. */
    const char *(*refuse) (unsigned k, unsigned n);
    char *(*text) (unsigned k, unsigned n);

    /* Numbers have passed refuse. Fills what is the family's own; codec.c fills the base and clears it. */
    EcfsCodec *(*new) (unsigned k, unsigned n, GError **error);
    void (*encode) (const EcfsCodec *self, const uint8_t *const *data, uint8_t *const *parity, size_t packet_bytes);
    bool (*decodable) (const EcfsCodec *self, const bool *present);
    int (*guarantee) (const EcfsCodec *self, const bool *present);

    /* At least one packet is wanted and none of those is present. Sets sources; codec.c fills the base's rest. */
    EcfsPlan *(*plan) (const EcfsCodec *self, const bool *present, const bool *wanted, GError **error);
    void (*run) (const EcfsPlan *plan, uint8_t *const *packets, size_t packet_bytes);
} EcfsCodecOps;

/* The base: first member of each family's own struct, one allocation that g_free () ends. Immutable after new. */
struct EcfsCodec {
    const EcfsCodecOps *ops;
    char *code;
    unsigned k;
    unsigned n;
    unsigned tolerance; /* set by the family's new */
    size_t granule;     /* bytes; set by the family's new */
};

/* Likewise for plans. */
struct EcfsPlan {
    const EcfsCodec *codec;
    bool sources[ECFS_CODEC_MAX_N];
    bool wanted[ECFS_CODEC_MAX_N];
};

extern const EcfsCodecOps ecfs_copies_ops;
extern const EcfsCodecOps ecfs_rs_ops;

/** Reads a decimal number of at most three digits without leading zeros and moves *at behind it. False: no such. */
bool ecfs_codec_parse_number (const char **at, unsigned *ret_number);

/*
 * For codes where any k packets determine all (maximum distance separable): decodable, guarantee, and the choice of
 * sources. Data packets come first, because what they give needs the least arithmetic.
 */
bool ecfs_mds_decodable (const EcfsCodec *self, const bool *present);
int ecfs_mds_guarantee (const EcfsCodec *self, const bool *present);

/** Flags the first k packets of @present in @sources (n flags, all false before); false and ENODATA when fewer. */
bool ecfs_mds_choose_sources (const EcfsCodec *self, const bool *present, bool *sources, GError **error);

/* What multiplies: ISA-L's ec_encode_data, or in tests something that does it wrongly. */
typedef void (*EcfsRsKernel) (int packet_bytes, int n_sources, int n_rows, unsigned char *tables,
                              unsigned char **sources, unsigned char **rows);

/** An rs codec without its base's ops and text, untested; for the self-test. Free with g_free (). */
EcfsCodec *ecfs_rs_new_untested (unsigned k, unsigned n, EcfsRsKernel kernel);

/**
 * Encodes and decodes known bytes with @kernel at several k and m and compares with plain C, which shares no code with
 * ISA-L. Returns NULL, or what came out wrong.
 */
const char *ecfs_rs_self_test (EcfsRsKernel kernel);

#endif
