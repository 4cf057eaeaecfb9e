/*
 * What a code can decode, found out without its decoder: from what it encodes, by plain elimination over all packets.
 * Codes where any k packets do are counted instead.
 */
#ifndef ECFS_TESTS_CODEC_ORACLE_H
#define ECFS_TESTS_CODEC_ORACLE_H

#include "codec/codec.h"

#define ORACLE_WORDS 8 /* 512 parts of data packets */

typedef struct Oracle {
    unsigned k, n;
    unsigned parts;                 /* of a packet, 64 bytes each; 0: any k packets do */
    uint64_t (*rows)[ORACLE_WORDS]; /* per part of each packet, which parts of data packets it is the XOR of */
} Oracle;

Oracle *oracle_new (const EcfsCodec *codec);
void oracle_free (Oracle *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (Oracle, oracle_free)

bool oracle_decodable (const Oracle *self, const bool *present);

/**
 * Of every set of packets (bit i: packet i is present; n at most 16) how many more may be lost, whichever they are; -1
 * when it is not decodable. g_free ().
 */
int8_t *oracle_guarantees (const Oracle *self);

#endif
