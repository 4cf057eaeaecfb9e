#include "archive/init_key.h"

#include "archive/common.h"
#include "archive/keys.h"

#include <string.h>

EcfsKeySlotKind ecfs_init_key_slot (EcfsKeeping how)
{
    static const EcfsKeySlotKind kinds[] = {[ECFS_KEEPING_SPLIT] = ECFS_KEY_SLOT_SPLIT,
                                            [ECFS_KEEPING_PASSPHRASE] = ECFS_KEY_SLOT_PASSPHRASE,
                                            [ECFS_KEEPING_ALONE] = ECFS_KEY_SLOT_ALONE,
                                            [ECFS_KEEPING_CODE] = ECFS_KEY_SLOT_CODE,
                                            [ECFS_KEEPING_RECIPIENT] = ECFS_KEY_SLOT_RECIPIENT};
    return kinds[how];
}

/* What an init has left that was killed must have been begun with the same key. */
static bool check_begun (const char *directory, const EcfsInitKey *keeping, const EcfsKeyRing *keys,
                         const EcfsKeyShares *shares, GError **error)
{
    g_autofree char *kinds = shares == NULL ? NULL : ecfs_key_shares_kinds (shares);
    bool same = (keys == NULL || keeping->how != ECFS_KEEPING_NONE) &&
                (shares == NULL || (strcmp (kinds, ecfs_key_slot_kind_text (ecfs_init_key_slot (keeping->how))) == 0 &&
                                    ecfs_key_shares_threshold (shares) == keeping->threshold));
    return same || ecfs_fail (error, ENOTEMPTY,
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
static bool make_slot (const EcfsKeyRing *keys, const EcfsInitKey *keeping, EcfsKeyShares **shares, GError **error)
{
    static const EcfsKeyOpener nothing = {.secret = NULL};
    const EcfsKeyOpener *opener = keeping->opener != NULL ? keeping->opener : &nothing;
    g_autoptr (EcfsKeyShares) begun = g_steal_pointer (shares);
    if (begun == NULL)
        begun = ecfs_key_shares_empty (keys, keeping->threshold);
    EcfsKeySlot *slot = ecfs_key_shares_make_slot (begun, keys, ecfs_init_key_slot (keeping->how), opener, error);
    if (slot != NULL)
        *shares = ecfs_key_shares_with (begun, keys, slot, error);
    const GPtrArray *old = ecfs_key_shares_file (begun)->slots;
    for (guint i = 0; *shares != NULL && i < old->len; i++) {
        g_autoptr (EcfsKeyShares) both = g_steal_pointer (shares);
        *shares = ecfs_key_shares_without (both, keys, &((const EcfsKeySlot *) g_ptr_array_index (old, i))->id, error);
    }
    return *shares != NULL;
}

bool ecfs_init_key_make (const char *directory, EcfsCatalog *catalog, const EcfsInitKey *keeping,
                         EcfsKeyRing **ret_keys, EcfsKeyShares **ret_shares, GError **error)
{
    if (!load_begun (directory, catalog, ret_keys, ret_shares, error) ||
        !check_begun (directory, keeping, *ret_keys, *ret_shares, error))
        return false;
    if (keeping->how == ECFS_KEEPING_NONE)
        return true;
    if (*ret_keys == NULL) {
        *ret_keys = ecfs_key_ring_new (ecfs_catalog_archive (catalog));
        if (!ecfs_keys_write (directory, *ret_keys, error))
            return false;
    }
    if (!ecfs_keys_keep_id (catalog, *ret_keys, error))
        return false;
    if (keeping->how == ECFS_KEEPING_FILE)
        return true;
    bool made = *ret_shares != NULL && keeping->how == ECFS_KEEPING_SPLIT;
    return (made || make_slot (*ret_keys, keeping, ret_shares, error)) &&
           ecfs_key_shares_write (*ret_shares, directory, error) && ecfs_key_shares_tell (*ret_shares, catalog, error);
}
