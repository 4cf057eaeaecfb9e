/*
 * The adapter to liberasurecode: what it computes, on our packets. It speaks of fragments, which are packets behind a
 * header of its own; headers and copies stay in here.
 *
 * Threads: any number may use one at once. It allocates in every call and aborts where memory is at an end, as GLib
 * does.
 */
#ifndef ECFS_CODEC_LIBERASURECODE_H
#define ECFS_CODEC_LIBERASURECODE_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>

#define ECFS_LIBERASURECODE_GRANULE 64 /* packets are multiples of so many bytes */

typedef enum EcfsLiberasurecodeKind {
    ECFS_LIBERASURECODE_CAUCHY,   /* Reed-Solomon with a Cauchy matrix, by ISA-L */
    ECFS_LIBERASURECODE_FLAT_XOR, /* parity that is the exclusive or of some data */
} EcfsLiberasurecodeKind;

typedef struct EcfsLiberasurecode EcfsLiberasurecode;

/**
 * A code of @k data and @m parity packets. @distance: what the library calls hd, of flat XOR codes; of others @m. It is
 * not checked whether there are such, beyond what the library does. ENOTSUP: there is none, or not here. Immutable.
 */
EcfsLiberasurecode *ecfs_liberasurecode_new (EcfsLiberasurecodeKind kind, unsigned k, unsigned m, unsigned distance,
                                             GError **error);
void ecfs_liberasurecode_free (EcfsLiberasurecode *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsLiberasurecode, ecfs_liberasurecode_free)

/** As ecfs_codec_encode (). */
void ecfs_liberasurecode_encode (const EcfsLiberasurecode *self, const uint8_t *const *data, uint8_t *const *parity,
                                 size_t packet_bytes);

/** Computes the packets @wanted from the packets @sources (k + m flags each), which must determine them. */
void ecfs_liberasurecode_rebuild (const EcfsLiberasurecode *self, uint8_t *const *packets, const bool *sources,
                                  const bool *wanted, size_t packet_bytes);

/** Of the library in use, as "1.6.2". */
const char *ecfs_liberasurecode_version (void);

#endif
