/* What key_shares.c, which stores key files, and key_slots.c, which changes what is in them, share. */
#ifndef ECFS_ARCHIVE_KEY_SHARES_PRIV_H
#define ECFS_ARCHIVE_KEY_SHARES_PRIV_H

#include "archive/key_slots.h"

struct EcfsKeyShares {
    EcfsKeyFile file; /* of no endpoint: without a share */
    EcfsShare shares[ECFS_SHARES_MAX];
    unsigned n_former;
    EcfsUuid former[ECFS_KEY_RING_MAX]; /* generations before, of retired keys */
};

/** The secret and all shares of a generation. */
void ecfs_key_shares_derive (const EcfsKeyRing *keys, const EcfsUuid *generation, unsigned threshold,
                             uint8_t ret_secret[ECFS_SECRET_BYTES], EcfsShare *ret_shares);
/** Whether the file's MAC is what the archive's keys make of it. */
bool ecfs_key_shares_is_signed (const EcfsKeyShares *self, const EcfsKeyRing *keys);

#endif
