/*
 * The archive's keys as this machine has them: random keys of 256 bits, of which one is active, that is what is stored
 * now is stored under it. The others are retired: what was stored under them until their end can be read, and nothing
 * later is the archive's. A key is named by an id that is derived from it, which tells nothing of it. What it is used
 * for is kept apart: each use has a key of its own, derived by HKDF from the archive's key, with the archive's UUID as
 * the salt.
 *
 * Immutable and reference-counted: any number of threads may use one at once. The parser takes bytes from anywhere.
 */
#ifndef ECFS_KEY_RING_H
#define ECFS_KEY_RING_H

#include "key/key.h"
#include "util/uuid.h"

#define ECFS_KEY_RING_MAX       64 /* keys */
#define ECFS_KEY_RING_MAX_BYTES 4096

typedef enum EcfsKeyUse {
    ECFS_KEY_USE_CONTENT, /* what objects are enciphered under */
    ECFS_KEY_USE_TAG,     /* of check blocks */
    ECFS_KEY_USE_FRAME,   /* MACs of headers and footers of stripes */
    ECFS_KEY_USE_RECORDS, /* what stripes tell of files */
    ECFS_KEY_USE_JOURNAL, /* segments and snapshots */
    ECFS_KEY_USE_MARKER,
    ECFS_KEY_USE_SHARES, /* what the archive's keys are shared by */
    ECFS_KEY_USE_PEERS,  /* of who signs the certificates that peers show each other */
    ECFS_KEY_USE_LOCATE, /* by which they find each other */
} EcfsKeyUse;

#define ECFS_N_KEY_USES 9

typedef struct EcfsKeyRing EcfsKeyRing;

/** One new key, which is active. For ecfs_key_ring_unref (). */
EcfsKeyRing *ecfs_key_ring_new (const EcfsUuid *archive);
EcfsKeyRing *ecfs_key_ring_ref (const EcfsKeyRing *self);
/** The last reference forgets the keys; NULL is accepted. */
void ecfs_key_ring_unref (const EcfsKeyRing *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsKeyRing, ecfs_key_ring_unref)

/* What an archive had done when a key was retired: the last change under it. */
typedef struct EcfsKeyEnd {
    uint32_t epoch;
    uint64_t sequence;
} EcfsKeyEnd;

/** The same keys, of which the active one ends at @end, and a new one that is active. ENOSPC: there are too many. */
EcfsKeyRing *ecfs_key_ring_rotate (const EcfsKeyRing *self, const EcfsKeyEnd *end, GError **error);

const EcfsUuid *ecfs_key_ring_archive (const EcfsKeyRing *self);
/** The id of the active key. */
const EcfsUuid *ecfs_key_ring_active (const EcfsKeyRing *self);

/** How many are retired, and the id of one of them, the last one first. */
unsigned ecfs_key_ring_n_retired (const EcfsKeyRing *self);
const EcfsUuid *ecfs_key_ring_retired (const EcfsKeyRing *self, unsigned index);
/** Whether the ring has the key @id. */
bool ecfs_key_ring_has (const EcfsKeyRing *self, const EcfsUuid *id);
/** Whether what tells of this change may be under key @id: it has not ended before. False also where there is none. */
bool ecfs_key_ring_covers (const EcfsKeyRing *self, const EcfsUuid *id, uint32_t epoch, uint64_t sequence);

/**
 * The key for one use of the key @id, or with a @salt one derived from that, for one object or file. False and ENOKEY:
 * the ring has no such key.
 */
bool ecfs_key_ring_derive (const EcfsKeyRing *self, const EcfsUuid *id, EcfsKeyUse use, const void *salt,
                           size_t salt_bytes, uint8_t ret_key[ECFS_KEY_BYTES], GError **error);

/** As it is kept in a file, for ecfs_key_forget_array (). */
GByteArray *ecfs_key_ring_format (const EcfsKeyRing *self);
/** EBADMSG: it is none, or damaged; ENOTSUP: it is of a later ecfs. */
EcfsKeyRing *ecfs_key_ring_parse (const uint8_t *bytes, size_t size, GError **error);

#endif
