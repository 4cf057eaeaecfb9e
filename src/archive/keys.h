/*
 * The archive's keys in the archive directory: the file "key", mode 0600. Who has it reads all that is stored, and can
 * store what passes for the archive's; without it nothing that was stored under a key can be read.
 */
#ifndef ECFS_ARCHIVE_KEYS_H
#define ECFS_ARCHIVE_KEYS_H

#include "catalog/catalog.h"
#include "key/ring.h"

#define ECFS_KEYS_NAME      "key"
#define ECFS_KEYS_NEXT_NAME "key-next" /* while the archive gets a new one: what the other is replaced by */

/*
 * Among the settings that the catalog keeps: the id of the key that is active. An archive without has no key.
 *
 * One that was made without gets a key by ecfs_key_init (). From the moment at which endpoints may have something that
 * is sealed until they have all that is needed, the setting is ECFS_KEY_BEGUN and the id: nobody else writes then, and
 * an ecfs that does not know this refuses it as the id of a key that it has not. Likewise ECFS_KEY_ROTATES and the id
 * of the key that was active so far, while ecfs_key_rotate () puts another one in its place.
 */
#define ECFS_KEY_SETTING "archive_key"
#define ECFS_KEY_BEGUN   "begun "
#define ECFS_KEY_ROTATES "rotates "

/** Reads a file of keys: ours alone. ENOENT; EPERM with what to do where others can read it; EBADMSG, ENOTSUP. */
EcfsKeyRing *ecfs_keys_read (const char *path, GError **error);

/** Writes them into the archive directory, durably. */
bool ecfs_keys_write (const char *directory, const EcfsKeyRing *keys, GError **error);
/** Writes them into any file, durably. */
bool ecfs_keys_write_file (const char *path, const EcfsKeyRing *keys, GError **error);

/** Those in the archive directory that are made to follow these; *ret_next is NULL where there are none. */
bool ecfs_keys_read_next (const char *directory, const EcfsKeyRing *now, EcfsKeyRing **ret_next, GError **error);

/** Removes what was made to follow the keys of the archive directory, durably: it is in use nowhere. */
bool ecfs_keys_forget_next (const char *directory, GError **error);

/** From now on the archive has a key, and its catalog says so: it is never opened without again. */
bool ecfs_keys_keep_id (EcfsCatalog *catalog, const EcfsKeyRing *keys, GError **error);
/** It is about to have one: nothing but ecfs_key_init () writes to it until then. */
bool ecfs_keys_begin (EcfsCatalog *catalog, const EcfsKeyRing *keys, GError **error);
/** It is about to have another one than the active one of these: nothing but ecfs_key_rotate () writes until then. */
bool ecfs_keys_begin_rotation (EcfsCatalog *catalog, const EcfsKeyRing *keys, GError **error);

typedef enum EcfsKeysState {
    ECFS_KEYS_NONE,
    ECFS_KEYS_BEGUN, /* ecfs_key_init () has begun, and not ended */
    ECFS_KEYS_ACTIVE,
    ECFS_KEYS_ROTATING, /* ecfs_key_rotate () has begun, and not ended */
} EcfsKeysState;

bool ecfs_keys_state (EcfsCatalog *catalog, EcfsKeysState *ret_state, GError **error);

typedef enum EcfsKeysFor {
    ECFS_KEYS_FOR_READING, /* where they were only begun, none are in use */
    ECFS_KEYS_FOR_WRITING, /* … which is refused with EBUSY */
    ECFS_KEYS_FOR_INIT,    /* whatever is there, in use or not */
} EcfsKeysFor;

/**
 * The keys of an archive that has some, for ecfs_key_ring_unref (); *ret_keys is NULL where it has none. Where the
 * next ones have just become active, who may write gives their files the right names. ENOKEY with
 * what to do where it has, and they are not here, or are not the ones.
 */
bool ecfs_keys_load (const char *directory, EcfsCatalog *catalog, EcfsKeysFor what, EcfsKeyRing **ret_keys,
                     GError **error);

/* What was stored before there was a key, and lies open still. */

/* The last change that the open journal may tell of. */
typedef struct EcfsOpenEnd {
    uint32_t epoch; /* 0: the archive always had its key, or has none */
    uint64_t sequence;
} EcfsOpenEnd;

bool ecfs_keys_note_end (EcfsCatalog *catalog, const EcfsOpenEnd *end, GError **error);
bool ecfs_keys_end (EcfsCatalog *catalog, EcfsOpenEnd *ret_end, GError **error);

/** Notes how many open files of the journal an endpoint has; G_MAXUINT64: it could not be asked. */
bool ecfs_keys_note_open (EcfsCatalog *catalog, const EcfsUuid *endpoint, uint64_t n_files, GError **error);
/** As it was noted; 0: it was not. */
bool ecfs_keys_open (EcfsCatalog *catalog, const EcfsUuid *endpoint, uint64_t *ret_n_files, GError **error);

/** Notes how many stripes endpoints have from before there was a key that the catalog does not list; and tells it. */
bool ecfs_keys_note_strays (EcfsCatalog *catalog, uint64_t n_stripes, GError **error);
bool ecfs_keys_strays (EcfsCatalog *catalog, uint64_t *ret_n_stripes, GError **error);

#endif
