/*
 * The archive's keys in the archive directory: the file "key", mode 0600. Who has it reads all that is stored, and can
 * store what passes for the archive's; without it nothing that was stored under a key can be read.
 */
#ifndef ECFS_ARCHIVE_KEYS_H
#define ECFS_ARCHIVE_KEYS_H

#include "catalog/catalog.h"
#include "key/ring.h"

#define ECFS_KEYS_NAME "key"

/* Among the settings that the catalog keeps: the id of the key that is active. An archive without has no key. */
#define ECFS_KEY_SETTING "archive_key"

/** Reads a file of keys: ours alone. ENOENT; EPERM with what to do where others can read it; EBADMSG, ENOTSUP. */
EcfsKeyRing *ecfs_keys_read (const char *path, GError **error);

/** Writes them into the archive directory, durably. */
bool ecfs_keys_write (const char *directory, const EcfsKeyRing *keys, GError **error);

/** From now on the archive has a key, and its catalog says so: it is never opened without again. */
bool ecfs_keys_keep_id (EcfsCatalog *catalog, const EcfsKeyRing *keys, GError **error);

/**
 * The keys of an archive that has some, for ecfs_key_ring_unref (); *ret_keys is NULL where it has none. ENOKEY with
 * what to do where it has, and they are not here, or are not the ones.
 */
bool ecfs_keys_load (const char *directory, EcfsCatalog *catalog, EcfsKeyRing **ret_keys, GError **error);

#endif
