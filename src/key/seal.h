/*
 * Under which key an object is stored: chosen when it is, and kept for its life. Each attempt to store content has
 * another one, so that no key ever sees two contents.
 */
#ifndef ECFS_KEY_SEAL_H
#define ECFS_KEY_SEAL_H

#include "key/block_mac.h"
#include "key/cipher.h"
#include "key/mac.h"
#include "key/ring.h"

#include <stdatomic.h>

#define ECFS_SEAL_BYTES       34
#define ECFS_SEAL_NONCE_BYTES 16

typedef enum EcfsSealKind {
    ECFS_SEAL_NONE = 0,
    ECFS_SEAL_CTR_HMAC = 1,  /* AES-256-CTR of the content, tags by HMAC-SHA-256; not chosen any more */
    ECFS_SEAL_CTR_GHASH = 2, /* the same, tags by GHASH that is enciphered */
} EcfsSealKind;

typedef struct EcfsSeal {
    EcfsSealKind kind;
    EcfsUuid key; /* the id of one of the archive's */
    uint8_t nonce[ECFS_SEAL_NONCE_BYTES];
} EcfsSeal;

/** For a new object, under the active key; NULL: there is none, and it is stored without. */
EcfsSeal ecfs_seal_new (const EcfsKeyRing *ring);

bool ecfs_seal_equal (const EcfsSeal *a, const EcfsSeal *b);

/** As it is stored: kind, key, nonce. */
void ecfs_seal_put (const EcfsSeal *self, uint8_t ret_bytes[ECFS_SEAL_BYTES]);
/** EBADMSG: it is none; ENOTSUP: of a kind that this ecfs does not know. */
bool ecfs_seal_parse (const uint8_t *bytes, size_t size, EcfsSeal *ret_seal, GError **error);

/* The keys of one object. Immutable and reference-counted: any number of threads may use one at once. */
typedef struct EcfsSealKeys {
    atomic_uint references;
    EcfsBlockMac *tag;    /* of its check blocks */
    const EcfsMac *frame; /* of headers and footers of its stripes */
    uint8_t content[ECFS_KEY_BYTES];
    uint8_t records[ECFS_KEY_BYTES];
} EcfsSealKeys;

/**
 * Sets *ret_keys for ecfs_seal_keys_unref (), to NULL where the object is stored without a key. False and ENOKEY: @ring
 * has not the key that it is under; NULL has none.
 */
bool ecfs_seal_open (const EcfsSeal *self, const EcfsKeyRing *ring, const EcfsUuid *object, EcfsSealKeys **ret_keys,
                     GError **error);
EcfsSealKeys *ecfs_seal_keys_ref (const EcfsSealKeys *self); /* NULL is accepted, as by the next */
/** The last reference forgets the keys. */
void ecfs_seal_keys_unref (const EcfsSealKeys *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (EcfsSealKeys, ecfs_seal_keys_unref)

/** Of its check blocks; NULL: these have checksums. @self may be NULL. */
static inline EcfsBlockMac *ecfs_seal_tag_mac (const EcfsSealKeys *self)
{
    return self == NULL ? NULL : self->tag;
}

#endif
