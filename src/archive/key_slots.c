#include "archive/key_slots.h"

#include "archive/key_shares_priv.h"

#include <openssl/crypto.h>
#include <string.h>

#define SIGNING "key file" /* as a salt: a generation has another length */

bool ecfs_key_slot_is_shared (EcfsKeySlotKind kind)
{
    return kind == ECFS_KEY_SLOT_SPLIT || kind == ECFS_KEY_SLOT_PASSPHRASE;
}

/* Revisions */

static bool signing_key (const EcfsKeyRing *keys, const EcfsUuid *id, uint8_t ret_key[ECFS_KEY_BYTES])
{
    return ecfs_key_ring_derive (keys, id, ECFS_KEY_USE_SHARES, SIGNING, strlen (SIGNING), ret_key, NULL);
}

static void sign (EcfsKeyShares *self, const EcfsKeyRing *keys)
{
    uint8_t key[ECFS_KEY_BYTES];
    self->file.key = *ecfs_key_ring_active (keys);
    (void) signing_key (keys, &self->file.key, key); /* the ring has its own active key */
    ecfs_key_file_mac (&self->file, key, self->file.mac);
    ecfs_key_forget (key, sizeof key);
}

static bool is_signed (const EcfsKeyFile *file, const EcfsKeyRing *keys)
{
    uint8_t key[ECFS_KEY_BYTES], mac[ECFS_KEY_BYTES];
    if (!signing_key (keys, &file->key, key))
        return false;
    ecfs_key_file_mac (file, key, mac);
    ecfs_key_forget (key, sizeof key);
    return CRYPTO_memcmp (mac, file->mac, sizeof mac) == 0;
}

/* What a retired key has signed opens to less than these. */
bool ecfs_key_shares_is_signed (const EcfsKeyShares *self, const EcfsKeyRing *keys)
{
    return ecfs_uuid_equal (&self->file.key, ecfs_key_ring_active (keys)) && is_signed (&self->file, keys);
}

bool ecfs_key_file_is_former (const EcfsKeyFile *file, const EcfsKeyRing *keys)
{
    return file->revision > 0 && !ecfs_uuid_equal (&file->key, ecfs_key_ring_active (keys)) && is_signed (file, keys);
}

static void set_shares (EcfsKeyShares *self, const EcfsKeyRing *keys, unsigned threshold)
{
    uint8_t secret[ECFS_SECRET_BYTES];
    if (threshold == 0)
        return;
    self->file.threshold = (uint8_t) threshold;
    self->file.n_shares = ECFS_SHARES_MAX;
    ecfs_key_shares_derive (keys, &self->file.generation, threshold, secret, self->shares);
    ecfs_key_forget (secret, sizeof secret);
    g_free (self->file.digests);
    self->file.digests = g_malloc_n (ECFS_SHARES_MAX, sizeof *self->file.digests);
    for (unsigned i = 0; i < ECFS_SHARES_MAX; i++)
        ecfs_share_digest (&self->file.archive, &self->file.generation, &self->shares[i], self->file.digests[i]);
}

EcfsKeyShares *ecfs_key_shares_empty (const EcfsKeyRing *keys, unsigned threshold)
{
    EcfsKeyShares *self = g_new0 (EcfsKeyShares, 1);
    self->file = (EcfsKeyFile){.archive = *ecfs_key_ring_archive (keys),
                               .generation = ecfs_uuid_new (),
                               .slots = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_key_slot_free)};
    set_shares (self, keys, threshold);
    return self;
}

/* Not signed yet. One without a revision has the name of the first, so that the next cannot be that. */
static EcfsKeyShares *next_of (const EcfsKeyShares *self)
{
    EcfsKeyShares *next = g_memdup2 (self, sizeof *self);
    bool is_new = self->file.revision == 0 && self->file.slots->len == 0;
    next->file.revision = is_new ? 1 : MAX (self->file.revision, 1) + 1;
    next->file.digests = self->file.n_shares == 0
                             ? NULL
                             : g_memdup2 (self->file.digests, self->file.n_shares * sizeof *next->file.digests);
    next->file.slots = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_key_slot_free);
    for (guint i = 0; i < self->file.slots->len; i++)
        g_ptr_array_add (next->file.slots, ecfs_key_slot_copy (g_ptr_array_index (self->file.slots, i)));
    return next;
}

/* Slots */

EcfsKeySlot *ecfs_key_shares_make_slot (const EcfsKeyShares *self, const EcfsKeyRing *keys, EcfsKeySlotKind kind,
                                        const EcfsKeyOpener *opener, GError **error)
{
    uint8_t secret[ECFS_SECRET_BYTES];
    EcfsKeyOpener whole = *opener;
    g_autofree EcfsShare *shares = g_new (EcfsShare, ECFS_SHARES_MAX);
    if (self->file.threshold > 0) {
        ecfs_key_shares_derive (keys, &self->file.generation, self->file.threshold, secret, shares);
        ecfs_key_forget (shares, ECFS_SHARES_MAX * sizeof *shares);
        whole.secret = secret;
    }
    GByteArray *bytes = ecfs_key_ring_format (keys);
    EcfsKeySlot *slot = ecfs_key_slot_new (kind, &self->file.archive, &whole, bytes, error);
    ecfs_key_forget_array (bytes);
    ecfs_key_forget (secret, sizeof secret);
    return slot;
}

EcfsKeyShares *ecfs_key_shares_with (const EcfsKeyShares *self, const EcfsKeyRing *keys, EcfsKeySlot *slot,
                                     GError **error)
{
    if (self->file.slots->len >= ECFS_KEY_SLOTS_MAX) {
        ecfs_key_slot_free (slot);
        (void) !ecfs_fail (error, ENOSPC, "there are %u key slots already: remove one first", self->file.slots->len);
        return NULL;
    }
    EcfsKeyShares *next = next_of (self);
    g_ptr_array_add (next->file.slots, slot);
    sign (next, keys);
    return next;
}

EcfsKeyShares *ecfs_key_shares_without (const EcfsKeyShares *self, const EcfsKeyRing *keys, const EcfsUuid *slot,
                                        GError **error)
{
    g_autoptr (EcfsKeyShares) next = next_of (self);
    for (guint i = 0; i < next->file.slots->len; i++) {
        const EcfsKeySlot *one = g_ptr_array_index (next->file.slots, i);
        if (!ecfs_uuid_equal (&one->id, slot))
            continue;
        g_ptr_array_remove_index (next->file.slots, i);
        sign (next, keys);
        return g_steal_pointer (&next);
    }
    (void) !ecfs_fail (error, ENOENT, "there is no such key slot: 'ecfs key list' shows those that there are");
    return NULL;
}

EcfsKeyShares *ecfs_key_shares_shared (const EcfsKeyShares *self, const EcfsKeyRing *keys, unsigned threshold)
{
    g_assert (self->file.threshold == 0);
    EcfsKeyShares *next = next_of (self);
    next->file.revision = self->file.revision;
    set_shares (next, keys, threshold);
    return next;
}

bool ecfs_key_shares_has_kind (const EcfsKeyShares *self, EcfsKeySlotKind kind)
{
    for (guint i = 0; i < self->file.slots->len; i++)
        if (((const EcfsKeySlot *) g_ptr_array_index (self->file.slots, i))->kind == kind)
            return true;
    return false;
}

bool ecfs_key_shares_are_needed (const EcfsKeyShares *self)
{
    return self->file.threshold > 0 && (ecfs_key_shares_has_kind (self, ECFS_KEY_SLOT_SPLIT) ||
                                        ecfs_key_shares_has_kind (self, ECFS_KEY_SLOT_PASSPHRASE));
}

bool ecfs_key_shares_open_nothing (const EcfsKeyShares *self)
{
    return self->file.slots->len == 0;
}

char *ecfs_key_shares_kinds (const EcfsKeyShares *self)
{
    GString *text = g_string_new (NULL);
    for (unsigned kind = ECFS_KEY_SLOT_SPLIT; kind <= ECFS_KEY_SLOT_RECIPIENT; kind++) {
        if (ecfs_key_shares_has_kind (self, (EcfsKeySlotKind) kind))
            g_string_append_printf (text, "%s%s", text->len > 0 ? " " : "",
                                    ecfs_key_slot_kind_text ((EcfsKeySlotKind) kind));
    }
    return g_string_free (text, FALSE);
}
