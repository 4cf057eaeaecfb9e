/*
 * What the code families share behind codec.h. A new family is one .c with an EcfsCodecOps, one row in codec.c's table
 * and one in the conformance test.
 *
 * codec.c, with that table, and model.c are on top: they alone know families. Families know no other. Below them are
 * base.c, which calls a codec's ops, mds.c, binary.c and so on, which know no family.
 */
#ifndef ECFS_CODEC_CODEC_PRIV_H
#define ECFS_CODEC_CODEC_PRIV_H

#include "codec/codec.h"

typedef struct EcfsCodecOps {
    EcfsCodeFamily family;
    const char *name; /* in the code's text, before the colon */
    const char *form; /* for messages: "rs:K+M" */
    const char
        *provider; /* the library that computes it, where several give the same bytes; NULL: there is no choice */

    /* Reads what follows the colon. Only the form counts here; numbers that make no code are refuse's business. */
    bool (*parse) (const char *numbers, unsigned *ret_k, unsigned *ret_n);
    /* Why there is no such code, as the end of a sentence; NULL when there is one. Takes any numbers. */
    const char *(*refuse) (unsigned k, unsigned n);
    char *(*text) (unsigned k, unsigned n);
    bool extensible; /* a stripe is the same whatever m is: parity can be added and taken away */

    /* Numbers have passed refuse. @parameters: what a descriptor says beside them; NULL: nothing is stored yet, the
     * family chooses. Fills what is the family's own; base.c fills the base and clears it. */
    EcfsCodec *(*new) (unsigned k, unsigned n, const uint8_t *parameters, size_t parameters_bytes, GError **error);
    void (*clear) (EcfsCodec *self); /* may be NULL: the struct is all there is */

    void (*encode) (const EcfsCodec *self, const uint8_t *const *data, uint8_t *const *parity, size_t packet_bytes);
    bool (*determines) (const EcfsCodec *self, const bool *present, const bool *wanted);
    int (*guarantee) (const EcfsCodec *self, const bool *present);
    bool (*choose) (const EcfsCodec *self, const bool *wanted, const bool *available, const double *cost,
                    bool *sources);

    /* At least one packet is wanted and none of those is present. Sets sources; base.c fills the base's rest. */
    EcfsPlan *(*plan) (const EcfsCodec *self, const bool *present, const bool *wanted, GError **error);
    void (*run) (const EcfsPlan *plan, uint8_t *const *packets, size_t packet_bytes);
    void (*plan_clear) (EcfsPlan *plan); /* may be NULL: the struct is all there is */
} EcfsCodecOps;

/* The base: first member of each family's own struct. Immutable after new. */
struct EcfsCodec {
    const EcfsCodecOps *ops;
    char *code;
    char *identity;
    unsigned k;
    unsigned n;
    unsigned tolerance;  /* set by the family's new */
    size_t granule;      /* bytes; set by the family's new */
    double overhead;     /* set by the family's new; 0: measured when asked for */
    uint8_t *parameters; /* set by the family's new, g_free (); NULL: none */
    size_t parameters_bytes;
};

/* Likewise for plans. */
struct EcfsPlan {
    const EcfsCodec *codec;
    bool sources[ECFS_CODEC_MAX_N];
    bool wanted[ECFS_CODEC_MAX_N];
    unsigned n_reads;
    EcfsPlanRead reads[ECFS_CODEC_MAX_N];
};

extern const EcfsCodecOps ecfs_basic_ops;
extern const EcfsCodecOps ecfs_copies_ops;
extern const EcfsCodecOps ecfs_ldpc_ops;
extern const EcfsCodecOps ecfs_rs_ops;
extern const EcfsCodecOps ecfs_rs_liberasurecode_ops; /* where it is built in */
extern const EcfsCodecOps ecfs_xor_ops;

#define ECFS_COPIES_MAX 32

/** The family of a table whose name @code begins with and whose numbers follow; of several that only differ in their
 * provider the one with @provider, or the first when that is NULL. NULL: none. */
const EcfsCodecOps *ecfs_codec_find (const EcfsCodecOps *const *table, size_t n_table, const char *code,
                                     const char *provider, unsigned *ret_k, unsigned *ret_n);

/** A codec of a family; EINVAL when it has none with these numbers, and the errors of its new. */
EcfsCodec *ecfs_codec_make (const EcfsCodecOps *ops, unsigned k, unsigned n, const uint8_t *parameters,
                            size_t parameters_bytes, GError **error);

static inline unsigned ecfs_codec_count (const bool *flags, unsigned n)
{
    unsigned set = 0;
    for (unsigned i = 0; i < n; i++)
        set += flags[i];
    return set;
}

/** What ecfs_codec_overhead () is where it is not known, from so many random orders. */
double ecfs_codec_measure_overhead (const EcfsCodec *self, unsigned n_orders);

/** Reads a decimal number of at most three digits without leading zeros and moves *at behind it. False: no such. */
bool ecfs_codec_parse_number (const char **at, unsigned *ret_number);

/** Reads "K+M" and nothing behind it: the parse of codes with that form. */
bool ecfs_codec_parse_sum (const char *numbers, unsigned *ret_k, unsigned *ret_n);

/** ENODATA: what is present does not determine what is wanted. */
void ecfs_codec_set_undetermined (const EcfsCodec *self, const bool *present, GError **error);

/** EBADMSG when a family that takes no parameters is given some. */
bool ecfs_codec_no_parameters (size_t parameters_bytes, GError **error);

/*
 * For codes where any k packets determine all (maximum distance separable): what determines what, guarantee, and the
 * choice of sources. Data packets come first, because what they give needs the least arithmetic.
 */
bool ecfs_mds_determines (const EcfsCodec *self, const bool *present, const bool *wanted);
int ecfs_mds_guarantee (const EcfsCodec *self, const bool *present);
bool ecfs_mds_choose (const EcfsCodec *self, const bool *wanted, const bool *available, const double *cost,
                      bool *sources);

/** Flags the first k packets of @present in @sources (n flags, all false before); false and ENODATA when fewer. */
bool ecfs_mds_choose_sources (const EcfsCodec *self, const bool *present, bool *sources, GError **error);

#endif
