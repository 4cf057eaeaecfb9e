/*
 * A codec makes an object redundant: it turns the k data packets of a segment into m parity packets and gives lost
 * packets back. Codecs are pure: no I/O, no threads, no allocation outside new and plan. One implementation per code
 * family (rs.c, ldpc.c, basic.c, copies.c) behind one ops table; which one serves is decided by the code's text alone.
 *
 * Life cycle: ecfs_codec_new () → any number of calls from any threads → ecfs_codec_free (). A plan belongs to the
 * codec that made it, holds what one loss pattern needs (decoding matrix, order of XORs), and is reused for every
 * segment with that pattern.
 *
 * Buffers: packets are byte vectors of equal length, in stripe order: data 0..k-1, parity k..n-1. All families work on
 * any length that is a multiple of ecfs_codec_granule (); so a caller may encode, decode or repair a range of the
 * packets (a check block) by passing pointers into them. No alignment is required.
 */
#ifndef ECFS_CODEC_CODEC_H
#define ECFS_CODEC_CODEC_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>

#define ECFS_CODEC_MAX_N          256 /* stripes; what the format and fixed arrays can carry */
#define ECFS_CODEC_MAX_IDENTITY   31
#define ECFS_CODEC_MAX_PARAMETERS (129 * 128)

/* As stored in stripe headers: never renumber. */
typedef enum EcfsCodeFamily {
    ECFS_CODE_COPIES = 1,
    ECFS_CODE_RS = 2,
    ECFS_CODE_LDPC = 3,
    ECFS_CODE_BASIC = 4,
    ECFS_CODE_XOR = 5,
} EcfsCodeFamily;

typedef struct EcfsCodec EcfsCodec;
typedef struct EcfsPlan EcfsPlan;

/**
 * The codec for a code's text: "rs:4+2", "ldpc:8+6", "basic:8+8" (k + m) or "copies:3" (k = 1, n = 3); or for an
 * identity, as ecfs_codec_identity () gives it.
 *
 * Returns a codec for ecfs_codec_free (); NULL and EINVAL with a sentence for the user when the text is no code, or
 * its numbers are impossible; ENOTSUP when a library that it needs is missing here; ESTALE for an identity whose
 * parameters this ecfs does not know: they are in the descriptor. Runs a self-test of the library once per process and
 * fails with EIO when that gives wrong bytes. Thread-safe.
 */
EcfsCodec *ecfs_codec_new (const char *code, GError **error);

/**
 * The same, where several libraries compute a code's bytes with one of them: "isal", which is the default, or
 * "liberasurecode", for rs. The bytes are the same; so what one stored another reads. A code that has no such choice is
 * made as ever. NULL: the default.
 *
 * Errors as ecfs_codec_new () and ecfs_codec_check_provider ().
 */
EcfsCodec *ecfs_codec_new_by (const char *code, const char *provider, GError **error);

/** Those that are built in, up to a NULL. */
const char *const *ecfs_codec_providers (void);

/** EINVAL: there is no such provider; ENOTSUP: this ecfs was built without it. */
bool ecfs_codec_check_provider (const char *provider, GError **error);

/** The version of the liberasurecode in use, as "1.6.2"; NULL: this ecfs was built without it. */
const char *ecfs_codec_liberasurecode_version (void);

/** The families that can be stored: "rs", "ldpc" and so on, up to a NULL. */
const char *const *ecfs_codec_names (void);

/** Their forms, for people: "rs:K+M, ldpc:K+M, xor:K+M, basic:K+K or copies:N". */
const char *ecfs_codec_forms (void);

void ecfs_codec_free (EcfsCodec *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsCodec, ecfs_codec_free)

/**
 * The same, and for plans and simulations three codes that hold no data: "mds:K+M", any K of up to 256 stripes suffice;
 * "peeling:K+M", the graph of ldpc:K+M decoded by peeling alone; and "sparse:K+M", likewise, with a graph of few edges
 * that is made for that. What determines what, guarantee and choice can be asked of these; they must not encode, and
 * plan nothing.
 */
EcfsCodec *ecfs_codec_new_modelled (const char *code, GError **error);
bool ecfs_codec_is_modelled (const EcfsCodec *self);

/** Packets that giving back a data packet goes over: k where any k packets do, else an equation's on average. */
double ecfs_codec_decoding_work (const EcfsCodec *self);

/**
 * The codec that a descriptor describes. @n may be less than was written later where parity does not depend on n.
 * @parameters: as ecfs_codec_parameters () gave them, bytes from anywhere; copied.
 *
 * Errors as ecfs_codec_new (), and EBADMSG when the parameters are damaged or those of another code.
 */
EcfsCodec *ecfs_codec_new_for (EcfsCodeFamily family, unsigned k, unsigned n, const uint8_t *parameters,
                               size_t parameters_bytes, GError **error);

/** The codec of an identity, with the parameters kept for it. Errors as ecfs_codec_new_for (); EBADMSG when they are
 * not those of this identity. */
EcfsCodec *ecfs_codec_new_with (const char *identity, const uint8_t *parameters, size_t parameters_bytes,
                                GError **error);

/**
 * What a descriptor must hold beside family, k and n: the graph of an ldpc or xor code. NULL and 0 for codes that have
 * no such thing. At most ECFS_CODEC_MAX_PARAMETERS bytes; valid while self lives.
 */
const uint8_t *ecfs_codec_parameters (const EcfsCodec *self, size_t *ret_bytes);

/**
 * The code's text and, where it has parameters, a slash and a hash of them: "ldpc:8+6/0123456789abcdef". Codecs of one
 * identity make the same bytes, whatever better parameters a later ecfs may know for the text. At most
 * ECFS_CODEC_MAX_IDENTITY bytes; valid while self lives.
 */
const char *ecfs_codec_identity (const EcfsCodec *self);

/**
 * The code for small objects with the same tolerance as self (but 31 at most): "copies:(tolerance + 1)". Free with
 * g_free ().
 */
char *ecfs_codec_small_code (const EcfsCodec *self);

const char *ecfs_codec_code (const EcfsCodec *self); /* canonical text; valid while self lives */
EcfsCodeFamily ecfs_codec_family (const EcfsCodec *self);
const char *ecfs_codec_provider (const EcfsCodec *self); /* as in ecfs_codec_new_by (); NULL: there is no choice */
unsigned ecfs_codec_k (const EcfsCodec *self);
unsigned ecfs_codec_n (const EcfsCodec *self);

/** Whether an object of one becomes one of the other by adding stripes, or leaving the last out: those that both have
 * are the same bytes. */
bool ecfs_codec_shares_stripes (const EcfsCodec *self, const EcfsCodec *other);

/** Stripes of which any set may be lost; proven for the code, not assumed from m. */
unsigned ecfs_codec_tolerance (const EcfsCodec *self);

/**
 * Packets that a download in random order takes on average until all data is determined, over k: 1 where any k packets
 * do. Takes up to a second where it is not known beforehand and must be measured.
 */
double ecfs_codec_overhead (const EcfsCodec *self);

/** Packet lengths must be multiples of this many bytes. At most 4096. */
size_t ecfs_codec_granule (const EcfsCodec *self);

/**
 * Computes the parity packets of one segment.
 *
 * @data:         k pointers to packet_bytes bytes each; borrowed, only read
 * @parity:       m pointers to packet_bytes bytes each; overwritten. NULL entries are not computed
 * @packet_bytes: bytes, > 0, a multiple of the granule, at most INT_MAX
 *
 * Thread-safe: self is const.
 */
void ecfs_codec_encode (const EcfsCodec *self, const uint8_t *const *data, uint8_t *const *parity, size_t packet_bytes);

/** Whether the stripes flagged in @present (n flags) determine every byte. */
bool ecfs_codec_decodable (const EcfsCodec *self, const bool *present);

/** Whether the packets flagged in @present determine those flagged in @wanted (n flags each). */
bool ecfs_codec_determines (const EcfsCodec *self, const bool *present, const bool *wanted);

/**
 * How many more stripes of @present may be lost, whichever they are, with every byte still recoverable; -1 when
 * @present is not decodable now. Never too high; exact where any k packets determine all, and for n of about 16 or
 * less.
 */
int ecfs_codec_guarantee (const EcfsCodec *self, const bool *present);

/**
 * Chooses cheap packets that determine those wanted.
 *
 * @wanted:    n flags; those that are available themselves may be chosen as they are
 * @available: n flags
 * @cost:      n costs, 0 or more, in any unit, of reading each available packet
 * @sources:   n flags, set when true is returned: a subset of those available
 *
 * False when what is available does not determine what is wanted. The cheapest set where any k packets determine all;
 * for others a cheap one. Thread-safe, allocates nothing.
 */
bool ecfs_codec_choose (const EcfsCodec *self, const bool *wanted, const bool *available, const double *cost,
                        bool *sources);

/**
 * Plans how to give the packets @wanted from the packets @present (n flags each; wanted packets must not be present).
 *
 * Returns a plan for ecfs_plan_free (), or NULL and ENODATA when @present does not determine the wanted ones.
 * Thread-safe: self is const. The plan is const after this call and may be run by several threads at once.
 */
EcfsPlan *ecfs_codec_plan (const EcfsCodec *self, const bool *present, const bool *wanted, GError **error);

/**
 * Plans a repair: how to give the packets @lost from cheap ones of those @available (n flags each, none in both).
 *
 * @cost: n costs as for ecfs_codec_choose (); NULL: all the same
 *
 * The plan's reads are what is to be fetched, the cheapest first. Errors and threads as ecfs_codec_plan ().
 */
EcfsPlan *ecfs_codec_plan_repair (const EcfsCodec *self, const bool *lost, const bool *available, const double *cost,
                                  GError **error);

/** n flags: the packets that ecfs_plan_run () reads; a subset of those present. Valid while the plan lives. */
const bool *ecfs_plan_sources (const EcfsPlan *self);

/* What a plan reads of a packet: in each of its granules, these bytes. */
typedef struct EcfsPlanRead {
    unsigned stripe;
    size_t offset;
    size_t size;
} EcfsPlanRead;

/** The same as ranges; of a repair the cheapest first. Valid while the plan lives. */
const EcfsPlanRead *ecfs_plan_reads (const EcfsPlan *self, size_t *ret_n_reads);

/**
 * Computes the wanted packets of one segment, or of one range of it.
 *
 * @packets:      n pointers to packet_bytes bytes each; the sources are read, the wanted are overwritten, others may
 *                be NULL
 * @packet_bytes: bytes, > 0, a multiple of the granule, at most INT_MAX
 */
void ecfs_plan_run (const EcfsPlan *self, uint8_t *const *packets, size_t packet_bytes);

void ecfs_plan_free (EcfsPlan *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsPlan, ecfs_plan_free)

#endif
