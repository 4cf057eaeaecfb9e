#include "key/seal.h"

#include "util/bytes.h"

EcfsSeal ecfs_seal_new (const EcfsKeyRing *ring)
{
    EcfsSeal seal = {.kind = ECFS_SEAL_NONE};
    if (ring == NULL)
        return seal;
    seal.kind = ECFS_SEAL_CTR_GHASH;
    seal.key = *ecfs_key_ring_active (ring);
    ecfs_random (seal.nonce, sizeof seal.nonce);
    return seal;
}

bool ecfs_seal_equal (const EcfsSeal *a, const EcfsSeal *b)
{
    return a->kind == b->kind && ecfs_uuid_equal (&a->key, &b->key) &&
           memcmp (a->nonce, b->nonce, sizeof a->nonce) == 0;
}

void ecfs_seal_put (const EcfsSeal *self, uint8_t ret_bytes[ECFS_SEAL_BYTES])
{
    ecfs_put_le (ret_bytes, self->kind, 2);
    memcpy (ret_bytes + 2, self->key.bytes, sizeof self->key.bytes);
    memcpy (ret_bytes + 2 + sizeof self->key.bytes, self->nonce, sizeof self->nonce);
}

bool ecfs_seal_parse (const uint8_t *bytes, size_t size, EcfsSeal *ret_seal, GError **error)
{
    EcfsCursor from = {.at = bytes, .left = size};
    EcfsSeal seal = {.kind = (EcfsSealKind) ecfs_cursor_le (&from, 2)};
    ecfs_cursor_copy (&from, seal.key.bytes, sizeof seal.key.bytes);
    ecfs_cursor_copy (&from, seal.nonce, sizeof seal.nonce);
    if (from.bad || from.left > 0 || seal.kind == ECFS_SEAL_NONE)
        return ecfs_fail (error, EBADMSG, "under which key it is stored is damaged");
    if (seal.kind != ECFS_SEAL_CTR_HMAC && seal.kind != ECFS_SEAL_CTR_GHASH)
        return ecfs_fail (error, ENOTSUP, "it is sealed in a way that this ecfs does not know");
    *ret_seal = seal;
    return true;
}

static bool derive_keys (const EcfsSeal *self, const EcfsKeyRing *ring, const EcfsUuid *object, EcfsSealKeys *keys,
                         GError **error)
{
    uint8_t salt[sizeof object->bytes + ECFS_SEAL_NONCE_BYTES], mac_key[ECFS_KEY_BYTES];
    memcpy (salt, object->bytes, sizeof object->bytes);
    memcpy (salt + sizeof object->bytes, self->nonce, sizeof self->nonce);
    if (!ecfs_key_ring_derive (ring, &self->key, ECFS_KEY_USE_CONTENT, salt, sizeof salt, keys->content, error) ||
        !ecfs_key_ring_derive (ring, &self->key, ECFS_KEY_USE_RECORDS, salt, sizeof salt, keys->records, error) ||
        !ecfs_key_ring_derive (ring, &self->key, ECFS_KEY_USE_TAG, salt, sizeof salt, mac_key, error))
        return false;
    keys->tag =
        ecfs_block_mac_new (self->kind == ECFS_SEAL_CTR_HMAC ? ECFS_BLOCK_MAC_HMAC : ECFS_BLOCK_MAC_GHASH, mac_key);
    if (ecfs_key_ring_derive (ring, &self->key, ECFS_KEY_USE_FRAME, salt, sizeof salt, mac_key, error))
        keys->frame = ecfs_mac_new (mac_key);
    ecfs_key_forget (mac_key, sizeof mac_key);
    return keys->frame != NULL;
}

bool ecfs_seal_open (const EcfsSeal *self, const EcfsKeyRing *ring, const EcfsUuid *object, EcfsSealKeys **ret_keys,
                     GError **error)
{
    *ret_keys = NULL;
    if (self->kind == ECFS_SEAL_NONE)
        return true;
    if (ring == NULL)
        return ecfs_fail (error, ENOKEY, "it is stored under a key of the archive, which is not here");
    g_autoptr (EcfsSealKeys) keys = g_new0 (EcfsSealKeys, 1);
    atomic_init (&keys->references, 1);
    if (!derive_keys (self, ring, object, keys, error))
        return false;
    *ret_keys = g_steal_pointer (&keys);
    return true;
}

EcfsSealKeys *ecfs_seal_keys_ref (const EcfsSealKeys *self)
{
    EcfsSealKeys *shared = (EcfsSealKeys *) self;
    if (shared != NULL)
        atomic_fetch_add (&shared->references, 1);
    return shared;
}

void ecfs_seal_keys_unref (const EcfsSealKeys *self)
{
    EcfsSealKeys *shared = (EcfsSealKeys *) self;
    if (shared == NULL || atomic_fetch_sub (&shared->references, 1) > 1)
        return;
    ecfs_block_mac_free (shared->tag);
    ecfs_mac_unref (shared->frame);
    ecfs_key_forget (shared, sizeof *shared);
    g_free (shared);
}
