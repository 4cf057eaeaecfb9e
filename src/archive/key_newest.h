/*
 * Which key file is the newest: the catalog tells it, as ways to open the key come and go elsewhere, too. Another
 * machine that writes the archive has changed them, or the archive directory has its own from a backup.
 */
#ifndef ECFS_ARCHIVE_KEY_NEWEST_H
#define ECFS_ARCHIVE_KEY_NEWEST_H

#include "archive/key_shares.h"

#define ECFS_KEY_MAC_TEXT_SIZE (2 * ECFS_KEY_BYTES + 1)

typedef struct EcfsKeyNewest {
    bool is_told; /* by a catalog; else nothing is known */
    EcfsUuid key;
    EcfsUuid generation;
    guint64 revision;
    char mac[ECFS_KEY_MAC_TEXT_SIZE]; /* of the file, in hexadecimal digits */
} EcfsKeyNewest;

/** What the catalog tells. */
bool ecfs_key_newest_told (EcfsCatalog *catalog, EcfsKeyNewest *ret_newest, GError **error);
/** Whether @file is that one, as far as it says itself. */
bool ecfs_key_newest_is (const EcfsKeyFile *file, const EcfsKeyNewest *newest);
/** That file of an endpoint, for ecfs_key_forget_array (); NULL: ENOENT, or why it cannot be read. Blocks. */
GByteArray *ecfs_key_newest_read (const EcfsKeyNewest *self, EcfsEndpoint *endpoint, GError **error);
/** Whether there is a newer one of the same key. */
bool ecfs_key_shares_is_outdated (const EcfsKeyShares *self, const EcfsKeyNewest *newest);
/** ESTALE, after the text @where: what to do when no endpoint shows the newest. */
bool ecfs_key_fail_outdated (const char *where, GError **error);

#endif
