/* The key of an archive that gets one, in its directory, and how it is to be kept beside that. */
#ifndef ECFS_ARCHIVE_INIT_KEY_H
#define ECFS_ARCHIVE_INIT_KEY_H

#include "archive/archive.h"
#include "archive/key_slots.h"

/* How the key of an archive is to be kept. */
typedef struct EcfsKeyKeeping {
    EcfsKeeping how;
    unsigned threshold;          /* of the shared secret; 0: none is needed */
    const EcfsKeyOpener *opener; /* of its slot; borrowed */
} EcfsKeyKeeping;

/** The kind of its slot in key files; 0: it has none. */
EcfsKeySlotKind ecfs_keeping_slot (EcfsKeeping how);
/** Whether what keeps it so needs the secret that endpoints share. */
bool ecfs_keeping_is_shared (EcfsKeeping how);

/**
 * Makes a key, and what endpoints get of it, in the archive directory: durable, and in use by nobody. Or takes those
 * that were begun before; ENOTEMPTY with what to do where these are kept otherwise. *ret_keys and *ret_shares are NULL
 * where there are none.
 */
bool ecfs_archive_make_key (const char *directory, EcfsCatalog *catalog, const EcfsKeyKeeping *keeping,
                            EcfsKeyRing **ret_keys, EcfsKeyShares **ret_shares, GError **error);

#endif
