#include "archive/init_key.h"

#include "archive/common.h"
#include "archive/keys.h"

#include <string.h>

EcfsKeySlotKind ecfs_keeping_slot (EcfsKeeping how)
{
    static const EcfsKeySlotKind kinds[] = {[ECFS_KEEPING_SPLIT] = ECFS_KEY_SLOT_SPLIT,
                                            [ECFS_KEEPING_PASSPHRASE] = ECFS_KEY_SLOT_PASSPHRASE,
                                            [ECFS_KEEPING_ALONE] = ECFS_KEY_SLOT_ALONE,
                                            [ECFS_KEEPING_CODE] = ECFS_KEY_SLOT_CODE,
                                            [ECFS_KEEPING_RECIPIENT] = ECFS_KEY_SLOT_RECIPIENT};
    return kinds[how];
}

bool ecfs_keeping_is_shared (EcfsKeeping how)
{
    return ecfs_keeping_slot (how) != 0 && ecfs_key_slot_is_shared (ecfs_keeping_slot (how));
}

/* What an init has left that was killed must have been begun with the same key. */
static bool check_begun (const char *directory, const EcfsKeyKeeping *keeping, const EcfsKeyRing *keys,
                         const EcfsKeyShares *shares, GError **error)
{
    g_autofree char *kinds = shares == NULL ? NULL : ecfs_key_shares_kinds (shares);
    bool same = (keys == NULL || keeping->how != ECFS_KEEPING_NONE) &&
                (shares == NULL || (strcmp (kinds, ecfs_key_slot_kind_text (ecfs_keeping_slot (keeping->how))) == 0 &&
                                    ecfs_key_shares_threshold (shares) == keeping->threshold));
    if (same)
        return true;
    return ecfs_archive_has_config (directory)
               ? ecfs_fail (error, ENOTEMPTY,
                            "%s: an interrupted 'ecfs key init' had begun with another --key or code: run it again as "
                            "it was, or remove there the files " ECFS_KEYS_NAME " and " ECFS_KEY_SLOTS_NAME
                            ", and at each endpoint the directory " ECFS_KEYS_DIRECTORY,
                            directory)
               : ecfs_fail (error, ENOTEMPTY,
                            "%s: an interrupted 'ecfs init' had begun with another --key or code: run it again as it "
                            "was, or remove the directory, and at each of its endpoints the file " ECFS_MARKER_NAME
                            " and the directory " ECFS_KEYS_DIRECTORY,
                            directory);
}

/* Those that an init has made that was killed; NULL: none. */
static bool load_begun (const char *directory, EcfsCatalog *catalog, EcfsKeyRing **ret_keys, EcfsKeyShares **ret_shares,
                        GError **error)
{
    g_autofree char *path = g_build_filename (directory, ECFS_KEYS_NAME, NULL);
    GError *why = NULL;
    *ret_keys = ecfs_keys_read (path, &why);
    if (*ret_keys == NULL && why->code != ENOENT) {
        g_propagate_error (error, why);
        return false;
    }
    g_clear_error (&why);
    if (*ret_keys != NULL && !ecfs_uuid_equal (ecfs_key_ring_archive (*ret_keys), ecfs_catalog_archive (catalog)))
        return ecfs_fail (error, ENOTEMPTY, "%s has the keys of another archive: remove it", path);
    return ecfs_key_shares_load (directory, catalog, *ret_keys, ret_shares, error);
}

/* A slot for what is given now: nobody may know what the one was made with that was begun. */
static bool make_slot (const EcfsKeyRing *keys, const EcfsKeyKeeping *keeping, EcfsKeyShares **shares, GError **error)
{
    static const EcfsKeyOpener nothing = {.secret = NULL};
    const EcfsKeyOpener *opener = keeping->opener != NULL ? keeping->opener : &nothing;
    g_autoptr (EcfsKeyShares) begun = g_steal_pointer (shares);
    if (begun == NULL)
        begun = ecfs_key_shares_empty (keys, keeping->threshold);
    EcfsKeySlot *slot = ecfs_key_shares_make_slot (begun, keys, ecfs_keeping_slot (keeping->how), opener, error);
    if (slot != NULL)
        *shares = ecfs_key_shares_with (begun, keys, slot, error);
    const GPtrArray *old = ecfs_key_shares_file (begun)->slots;
    for (guint i = 0; *shares != NULL && i < old->len; i++) {
        g_autoptr (EcfsKeyShares) both = g_steal_pointer (shares);
        *shares = ecfs_key_shares_without (both, keys, &((const EcfsKeySlot *) g_ptr_array_index (old, i))->id, error);
    }
    return *shares != NULL;
}

bool ecfs_archive_make_key (const char *directory, EcfsCatalog *catalog, const EcfsKeyKeeping *keeping,
                            EcfsKeyRing **ret_keys, EcfsKeyShares **ret_shares, GError **error)
{
    g_autoptr (EcfsKeyRing) keys = NULL;
    g_autoptr (EcfsKeyShares) shares = NULL;
    if (!load_begun (directory, catalog, &keys, &shares, error) ||
        !check_begun (directory, keeping, keys, shares, error))
        return false;
    if (keys == NULL && keeping->how != ECFS_KEEPING_NONE) {
        keys = ecfs_key_ring_new (ecfs_catalog_archive (catalog));
        if (!ecfs_keys_write (directory, keys, error))
            return false;
    }
    bool made = ecfs_keeping_slot (keeping->how) == 0 || (shares != NULL && keeping->how == ECFS_KEEPING_SPLIT);
    if ((!made && !make_slot (keys, keeping, &shares, error)) ||
        (shares != NULL && !ecfs_key_shares_write (shares, directory, error)))
        return false;
    *ret_keys = g_steal_pointer (&keys);
    *ret_shares = g_steal_pointer (&shares);
    return true;
}
