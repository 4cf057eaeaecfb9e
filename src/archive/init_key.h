/* The key of a new archive, in its directory, and how it is to be kept beside that. */
#ifndef ECFS_ARCHIVE_INIT_KEY_H
#define ECFS_ARCHIVE_INIT_KEY_H

#include "archive/archive.h"
#include "archive/key_slots.h"

typedef struct EcfsInitKey {
    EcfsKeeping how;
    unsigned threshold;          /* of the shared secret; 0: none is needed */
    const EcfsKeyOpener *opener; /* of its slot; borrowed */
} EcfsInitKey;

/** The kind of its slot; 0: it has none. */
EcfsKeySlotKind ecfs_init_key_slot (EcfsKeeping how);

/**
 * Makes the key, or goes on with the one of an init that was killed; *ret_keys NULL: there is none. *ret_shares is what
 * endpoints get, NULL for nothing. The key is on the disk before anything is stored under it, and its slots before any
 * endpoint is used. ENOTEMPTY: that init was another one.
 */
bool ecfs_init_key_make (const char *directory, EcfsCatalog *catalog, const EcfsInitKey *keeping,
                         EcfsKeyRing **ret_keys, EcfsKeyShares **ret_shares, GError **error);

#endif
