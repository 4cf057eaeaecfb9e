/*
 * Another key for an archive that has one. It is looked first whether that can be done, as far as can be told without
 * writing: by whom the new key would be shared, and how many endpoints answer. What is durable when:
 *
 *   rotates     in the catalog: nobody writes but this, run again, and nothing more is stored under the old key
 *   next files  in the archive directory: keys with the new one, and the slots of a new generation that open to them;
 *               the old key ends with the change that was the last
 *   key files   of that generation at the endpoints, beside those before, read back, in so many zones that they outlive
 *               any loss; who recovers takes either, and both read all that there is
 *   id          in the catalog: the new key is active, and the files of before are superfluous
 *   snapshot    at the endpoints, under the new key, and markers; the key files of before are removed
 *
 * Each can be done again. An endpoint that is away meanwhile gets its key file from a mount or fsck, as with any
 * change. Where it turns out before `id` that it cannot be done, it is taken back: nothing is under the new key yet.
 */
#include "archive/common.h"
#include "archive/init_key.h"
#include "archive/keys.h"
#include "archive/lineage.h"
#include "journal/journal_watch.h"
#include "verbs/key.h"

#include <string.h>

static bool always (void *user)
{
    (void) user;
    return true;
}

/* What is asked for. */
typedef struct Rotation {
    const EcfsKeyRotation *how;
    const EcfsKeepingRead *given; /* a way to open the new key; NULL: none */
    EcfsKeySlotKind kind;         /* of its slot */
    bool drops_split;             /* endpoints cannot share the new key, and something else opens it */
} Rotation;

/* Slots */

/* Whether what opened the old key opens the new one without being asked for again. */
static bool can_follow (const Rotation *self, const EcfsKeySlot *slot)
{
    return (slot->kind == ECFS_KEY_SLOT_SPLIT && !self->drops_split) ||
           (slot->kind == ECFS_KEY_SLOT_RECIPIENT && slot->note_bytes == ECFS_KEY_BYTES);
}

/* Whether a slot is made anew by what is given. */
static bool is_replaced (const Rotation *self, const EcfsKeySlot *slot)
{
    return self->given != NULL && slot->kind == self->kind && slot->kind != ECFS_KEY_SLOT_RECIPIENT;
}

/* The new key comes back as well as the old one does, or it is said that it need not. */
static bool check_ways (const Rotation *self, const EcfsArchive *archive, GError **error)
{
    const EcfsKeyShares *now = ecfs_archive_key_shares (archive);
    const GPtrArray *slots = now == NULL ? NULL : ecfs_key_shares_file (now)->slots;
    const char *directory = ecfs_archive_directory (archive);
    unsigned n_following = self->given != NULL;
    g_autoptr (GString) lost = g_string_new (NULL);
    for (guint i = 0; slots != NULL && i < slots->len; i++) {
        const EcfsKeySlot *slot = g_ptr_array_index (slots, i);
        char id[ECFS_UUID_TEXT_SIZE];
        ecfs_uuid_text (&slot->id, id);
        n_following += can_follow (self, slot);
        if (!can_follow (self, slot) && !is_replaced (self, slot))
            g_string_append_printf (lost, "%s%s (%s)", lost->len > 0 ? ", " : "", id,
                                    ecfs_key_slot_kind_text (slot->kind));
    }
    if (slots == NULL && n_following == 0 && self->how->copy == NULL)
        return ecfs_fail (
            error, ENOKEY,
            "the new key would be in %s alone: name a file in another place with --copy, which gets a copy", directory);
    if (slots != NULL && n_following == 0)
        return ecfs_fail (error, ENOKEY,
                          "nothing would open the new key: give a way that does, as in 'ecfs key add', also the one "
                          "that there is now");
    return lost->len == 0 || self->how->drop ||
           ecfs_fail (error, EPERM,
                      "these ways to open the key would not open the new one, as what they need is not here: %s; give "
                      "it, or go on without them with --drop, and 'ecfs key add' adds them later",
                      lost->str);
}

static bool needs_shares (const Rotation *self, const EcfsKeyShares *now)
{
    bool needs = self->given != NULL && ecfs_key_slot_is_shared (self->kind);
    const GPtrArray *slots = now == NULL ? NULL : ecfs_key_shares_file (now)->slots;
    for (guint i = 0; slots != NULL && i < slots->len && !needs; i++)
        needs = ((const EcfsKeySlot *) g_ptr_array_index (slots, i))->kind == ECFS_KEY_SLOT_SPLIT && !self->drops_split;
    return needs;
}

/* Whether endpoints get key files of the new key at all. */
static bool has_slots (const Rotation *self, const EcfsKeyShares *now)
{
    return now != NULL || self->given != NULL;
}

/* As many zones as bring back the key now, where that is right still, or more. */
static bool find_threshold (const EcfsArchive *archive, const EcfsKeyLosses *losses, unsigned *ret_threshold,
                            GError **error)
{
    const EcfsKeyShares *now = ecfs_archive_key_shares (archive);
    unsigned before = now == NULL ? 0 : ecfs_key_shares_threshold (now);
    if (!ecfs_key_threshold (ecfs_key_count_zones (archive), losses, ret_threshold, error))
        return false;
    if (before + losses->zones <= ecfs_key_count_zones (archive))
        *ret_threshold = MAX (*ret_threshold, before);
    return true;
}

/* Whether more than the endpoints' shares would open the new key. */
static bool opens_without_shares (const Rotation *self, const EcfsKeyShares *now)
{
    bool opens = self->given != NULL;
    const GPtrArray *slots = now == NULL ? NULL : ecfs_key_shares_file (now)->slots;
    for (guint i = 0; slots != NULL && i < slots->len && !opens; i++) {
        const EcfsKeySlot *slot = g_ptr_array_index (slots, i);
        opens = slot->kind == ECFS_KEY_SLOT_RECIPIENT && can_follow (self, slot);
    }
    return opens && (self->given == NULL || !ecfs_key_slot_is_shared (self->kind));
}

/* The endpoints can share the new key, or it is said that they need not. */
static bool check_sharing (Rotation *self, EcfsArchive *archive, GError **error)
{
    EcfsKeyLosses losses;
    unsigned threshold;
    g_autoptr (GError) why = NULL;
    const EcfsKeyShares *now = ecfs_archive_key_shares (archive);
    if (!ecfs_key_find_losses (archive, &losses, error))
        return false;
    if (!needs_shares (self, now) || find_threshold (archive, &losses, &threshold, &why))
        return true;
    self->drops_split = self->how->drop && opens_without_shares (self, now);
    if (!self->drops_split)
        g_propagate_error (error, g_steal_pointer (&why));
    return self->drops_split;
}

/* With one more slot; @shares are taken, and *shares is NULL where it fails. */
static bool add_slot (EcfsKeyShares **shares, const EcfsKeyRing *keys, EcfsKeySlotKind kind,
                      const EcfsKeyOpener *opener, GError **error)
{
    g_autoptr (EcfsKeyShares) before = g_steal_pointer (shares);
    EcfsKeySlot *slot = ecfs_key_shares_make_slot (before, keys, kind, opener, error);
    *shares = slot == NULL ? NULL : ecfs_key_shares_with (before, keys, slot, error);
    return *shares != NULL;
}

static bool follow (EcfsKeyShares **shares, const EcfsKeyRing *keys, const EcfsKeySlot *slot, GError **error)
{
    const EcfsKeyOpener opener = {.public_key = slot->kind == ECFS_KEY_SLOT_RECIPIENT ? slot->note : NULL};
    return add_slot (shares, keys, slot->kind, &opener, error);
}

/* Key files of a new generation; *ret_shares is NULL where endpoints get none. */
static bool make_shares (const Rotation *self, const EcfsArchive *archive, const EcfsKeyRing *keys,
                         const EcfsKeyLosses *losses, EcfsKeyShares **ret_shares, GError **error)
{
    unsigned threshold = 0;
    const EcfsKeyShares *now = ecfs_archive_key_shares (archive);
    const GPtrArray *slots = now == NULL ? NULL : ecfs_key_shares_file (now)->slots;
    *ret_shares = NULL;
    if (!has_slots (self, now))
        return true;
    if (needs_shares (self, now) && !find_threshold (archive, losses, &threshold, error))
        return false;
    *ret_shares = ecfs_key_shares_empty (keys, threshold);
    for (guint i = 0; slots != NULL && i < slots->len; i++) {
        const EcfsKeySlot *slot = g_ptr_array_index (slots, i);
        if (can_follow (self, slot) && !follow (ret_shares, keys, slot, error))
            return false;
    }
    return self->given == NULL || add_slot (ret_shares, keys, self->kind, &self->given->opener, error);
}

/* What was begun opens by what is given now: nobody may know what it was made with then. */
static bool renew_slot (const Rotation *self, const EcfsKeyRing *keys, EcfsKeyShares **shares, GError **error)
{
    if (self->given == NULL || *shares == NULL)
        return true;
    g_autoptr (EcfsKeyShares) begun = ecfs_key_shares_of (keys, ecfs_key_shares_file (*shares), error);
    if (begun == NULL || !add_slot (shares, keys, self->kind, &self->given->opener, error))
        return false;
    const GPtrArray *slots = ecfs_key_shares_file (begun)->slots;
    for (guint i = 0; i < slots->len; i++) {
        const EcfsKeySlot *slot = g_ptr_array_index (slots, i);
        if (!is_replaced (self, slot))
            continue;
        g_autoptr (EcfsKeyShares) both = g_steal_pointer (shares);
        *shares = ecfs_key_shares_without (both, keys, &slot->id, error);
        if (*shares == NULL)
            return false;
    }
    return true;
}

/* The next keys and what endpoints get of them, in the archive directory: those that were begun, or new ones. */
static bool make_next (const Rotation *self, EcfsArchive *archive, const EcfsKeyLosses *losses, EcfsKeyRing **ret_keys,
                       EcfsKeyShares **ret_shares, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    const char *directory = ecfs_archive_directory (archive);
    g_autofree char *path = g_build_filename (directory, ECFS_KEYS_NEXT_NAME, NULL);
    g_autoptr (EcfsKeyRing) keys = NULL;
    g_autoptr (EcfsKeyShares) shares = NULL;
    if (!ecfs_keys_read_next (directory, ecfs_archive_keys (archive), &keys, error))
        return false;
    const EcfsKeyEnd end = {.epoch = ecfs_catalog_epoch (catalog), .sequence = ecfs_catalog_sequence (catalog)};
    bool is_begun = keys != NULL;
    if (!is_begun)
        keys = ecfs_key_ring_rotate (ecfs_archive_keys (archive), &end, error);
    if (keys == NULL)
        return false;
    if (is_begun)
        shares = ecfs_key_shares_load_next (directory, keys);
    bool made = is_begun && shares != NULL ? renew_slot (self, keys, &shares, error)
                                           : make_shares (self, archive, keys, losses, &shares, error);
    if (!made || (shares != NULL && !ecfs_key_shares_write_next (shares, directory, error)) ||
        (!is_begun && !ecfs_keys_write_file (path, keys, error)) ||
        (self->how->copy != NULL && !ecfs_keys_write_file (self->how->copy, keys, error)))
        return false;
    *ret_keys = g_steal_pointer (&keys);
    *ret_shares = g_steal_pointer (&shares);
    return true;
}

/* Phases: each opens the archive anew. */

static bool check_newest (EcfsArchive *archive, GError **error)
{
    g_autofree char *trouble = ecfs_archive_trouble (archive);
    return trouble == NULL || ecfs_fail (error, EROFS, "%s", trouble);
}

/* Of key files that no endpoint shares a secret by, each is needed: nothing tells one that few have made up. */
static EcfsKeyLosses tolerated (const EcfsArchive *archive, unsigned threshold, const EcfsKeyLosses *losses)
{
    return threshold > 0 ? *losses : (EcfsKeyLosses){.zones = ecfs_key_count_zones (archive) - 1};
}

/* So many endpoints answer that the new key files would outlive any loss. */
static bool check_reach (const Rotation *self, EcfsArchive *archive, GError **error)
{
    EcfsKeyLosses losses;
    unsigned threshold = 0;
    const EcfsKeyShares *now = ecfs_archive_key_shares (archive);
    if (!has_slots (self, now))
        return true;
    if (!ecfs_key_find_losses (archive, &losses, error) ||
        (needs_shares (self, now) && !find_threshold (archive, &losses, &threshold, error)))
        return false;
    const EcfsKeyLosses may_be_lost = tolerated (archive, threshold, &losses);
    return ecfs_key_check_reach (archive, threshold, &may_be_lost, error);
}

/* With the old key, as ever: what is to be under it is stored. */
static bool freeze (const char *directory, const Rotation *self, GError **error)
{
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, 0, error);
    if (archive == NULL || !ecfs_archive_start (archive, error))
        return false;
    ecfs_archive_await_session (archive);
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    return check_newest (archive, error) && check_reach (self, archive, error) &&
           ecfs_archive_store_journal (archive, always, NULL, error) &&
           ecfs_keys_forget_next (directory, error) && /* of one that was taken back, whose old key ended before */
           ecfs_keys_begin_rotation (catalog, ecfs_archive_keys (archive), error) &&
           ecfs_catalog_barrier (catalog, error);
}

static bool put_files (EcfsArchive *archive, const EcfsKeyShares *shares, const EcfsKeyLosses *losses, GError **error)
{
    const EcfsKeyLosses may_be_lost = tolerated (archive, ecfs_key_shares_threshold (shares), losses);
    return ecfs_key_put_shares (archive, shares, &may_be_lost, error) && ecfs_archive_tell_key (archive, shares, error);
}

/* With the old key, and without services or a session: nothing more is stored under it. */
static bool put_next (EcfsArchive *archive, const Rotation *self, GError **error)
{
    EcfsKeyLosses losses;
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    const EcfsKeyShares *now = ecfs_archive_key_shares (archive);
    g_autoptr (EcfsKeyRing) keys = NULL;
    g_autoptr (EcfsKeyShares) shares = NULL;
    if (!ecfs_key_find_losses (archive, &losses, error) || !make_next (self, archive, &losses, &keys, &shares, error) ||
        (shares != NULL && !put_files (archive, shares, &losses, error)) ||
        (shares != NULL && now != NULL &&
         !ecfs_key_shares_note_former (catalog, &ecfs_key_shares_file (now)->generation, error)))
        return false;
    return ecfs_keys_keep_id (catalog, keys, error) && ecfs_catalog_barrier (catalog, error);
}

/* *ret_is_newest: whether it failed at something else than who has the newest copy of the archive. */
static bool exchange (const char *directory, const Rotation *self, bool *ret_is_newest, GError **error)
{
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, ECFS_ARCHIVE_GETS_KEY, error);
    *ret_is_newest = archive != NULL && ecfs_archive_begin (archive, error) && check_newest (archive, error);
    return *ret_is_newest && put_next (archive, self, error);
}

/* What opens to another key than the active one alone goes where that can be reached. */
static void remove_others (EcfsArchive *archive)
{
    g_autoptr (GError) why = NULL;
    const EcfsKeyShares *shares = ecfs_archive_key_shares (archive);
    if (shares != NULL && !ecfs_key_put_shares (archive, shares, NULL, &why))
        g_message ("%s: some endpoints have other key files still, 'ecfs fsck -y' removes them: %s",
                   ecfs_archive_directory (archive), why->message);
}

/* With the new key: what tells of it is stored. */
static bool conclude (const char *directory, GError **error)
{
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, 0, error);
    if (archive == NULL || !ecfs_archive_start (archive, error))
        return false;
    ecfs_archive_await_session (archive);
    if (!ecfs_journal_renew (archive, error) || !ecfs_archive_store_journal (archive, always, NULL, error))
        return false;
    remove_others (archive);
    return true;
}

/* Taking back */

/* The catalog tells of the slots that there were, and that those which were begun are superfluous. */
static bool forget_begun (EcfsArchive *archive, const EcfsKeyShares *begun, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    const EcfsKeyShares *now = ecfs_archive_key_shares (archive);
    return ecfs_key_shares_note_former (catalog, &ecfs_key_shares_file (begun)->generation, error) &&
           (now == NULL ? ecfs_key_shares_tell_none (catalog, error) : ecfs_archive_tell_key (archive, now, error));
}

/* The old key stays. Nothing was stored under the next one, and whoever recovers by key files of that reads all that
 * there is, or believes what is stored from now on, which they do not open. */
static bool take_back (const char *directory, bool *ret_has_begun, GError **error)
{
    EcfsKeysState state;
    g_autoptr (EcfsKeyRing) keys = NULL;
    g_autoptr (EcfsKeyShares) begun = NULL;
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, ECFS_ARCHIVE_GETS_KEY, error);
    if (archive == NULL || !ecfs_keys_state (ecfs_archive_catalog (archive), &state, error))
        return false;
    if (state != ECFS_KEYS_ROTATING)
        return ecfs_fail (error, EEXIST, "%s is under another key by now", directory);
    if (!ecfs_keys_read_next (directory, ecfs_archive_keys (archive), &keys, error))
        return false;
    begun = keys == NULL ? NULL : ecfs_key_shares_load_next (directory, keys);
    *ret_has_begun = begun != NULL;
    return (begun == NULL || forget_begun (archive, begun, error)) &&
           ecfs_keys_keep_id (ecfs_archive_catalog (archive), ecfs_archive_keys (archive), error) &&
           ecfs_catalog_barrier (ecfs_archive_catalog (archive), error) && ecfs_keys_forget_next (directory, error);
}

/* A mount does it later where it cannot be done now. */
static void tidy (const char *directory)
{
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, 0, NULL);
    if (archive == NULL || !ecfs_archive_start (archive, NULL))
        return;
    ecfs_archive_await_session (archive);
    remove_others (archive);
}

/* What was begun cannot be done: the archive is to be usable again. False, with what becomes of it in @error. */
static bool give_up (const char *directory, GError **error)
{
    bool has_begun = false;
    g_autoptr (GError) why = NULL;
    if (!take_back (directory, &has_begun, &why)) {
        g_warning ("%s", why->message);
        return ecfs_prefix (error, "%s: nothing can be stored until this is run again", directory);
    }
    if (has_begun)
        tidy (directory);
    return ecfs_prefix (error, "%s has the key that it had, and can be used as before", directory);
}

/* Before anything is changed */

static bool look (const char *directory, Rotation *self, EcfsKeysState *ret_state, GError **error)
{
    g_autoptr (GError) busy = NULL;
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, ECFS_ARCHIVE_GETS_KEY, &busy);
    if (archive == NULL && busy->code == EBUSY)
        return ecfs_fail (error, EBUSY, "%s; an archive gets another key while it is not mounted", busy->message);
    if (archive == NULL) {
        g_propagate_error (error, g_steal_pointer (&busy));
        return false;
    }
    if (!ecfs_keys_state (ecfs_archive_catalog (archive), ret_state, error))
        return false;
    if (*ret_state == ECFS_KEYS_NONE || *ret_state == ECFS_KEYS_BEGUN)
        return ecfs_fail (error, ENOKEY, "%s has no key: 'ecfs key init' gives it one", directory);
    return check_sharing (self, archive, error) && check_ways (self, archive, error);
}

/* What is lost with the archive directory is no copy. */
static bool check_copy (const char *directory, const char *copy, GError **error)
{
    g_autofree char *inside = g_canonicalize_filename (directory, NULL);
    g_autofree char *path = copy == NULL ? NULL : g_canonicalize_filename (copy, NULL);
    g_autofree char *there = path == NULL ? NULL : g_path_get_dirname (path);
    return there == NULL || strcmp (there, inside) != 0 ||
           ecfs_fail (error, EINVAL, "%s is in the archive directory: a copy belongs elsewhere", copy);
}

/* Whether it can be done as it is asked for; one that was interrupted and cannot be is taken back. */
static bool prepare (const char *directory, Rotation *self, EcfsKeysState *ret_state, GError **error)
{
    bool has_begun;
    GError *why = NULL;
    *ret_state = ECFS_KEYS_NONE;
    if (!look (directory, self, ret_state, &why)) {
        bool never = why->code == EDOM; /* other ways may have been begun, and are only to be named */
        g_propagate_error (error, why);
        return *ret_state == ECFS_KEYS_ROTATING && never ? give_up (directory, error) : false;
    }
    if (*ret_state != ECFS_KEYS_ROTATING || !self->drops_split)
        return true;
    *ret_state = ECFS_KEYS_ACTIVE; /* what was begun may need shares */
    return take_back (directory, &has_begun, error);
}

static bool rotate (const char *directory, Rotation *self, GError **error)
{
    EcfsKeysState state;
    bool is_newest = false;
    if (!check_copy (directory, self->how->copy, error) || !prepare (directory, self, &state, error))
        return false;
    if (state == ECFS_KEYS_ACTIVE && !freeze (directory, self, error))
        return ecfs_prefix (error, "%s has the key that it had", directory);
    if (self->how->begun != NULL)
        self->how->begun (self->how->user);
    if (!exchange (directory, self, &is_newest, error))
        return is_newest ? give_up (directory, error)
                         : ecfs_prefix (error,
                                        "%s has the key that it had, and nothing can be stored until this is run again",
                                        directory);
    return conclude (directory, error) ||
           ecfs_prefix (error, "%s has its new key, and a mount does the rest", directory);
}

bool ecfs_key_rotate (const char *directory, const EcfsKeyRotation *how, GError **error)
{
    EcfsKeepingRead keeping = {.how = ECFS_KEEPING_NONE};
    Rotation self = {.how = how};
    if (how->way != NULL && !ecfs_keeping_read (how->way, &keeping, error))
        return false;
    if (how->way != NULL && keeping.how < ECFS_KEEPING_SPLIT)
        return ecfs_fail (error, EINVAL, "no way to open keys is called \"%s\"", how->way->kind);
    if (how->way != NULL) {
        self.given = &keeping;
        self.kind = ecfs_keeping_slot (keeping.how);
    }
    bool rotated = rotate (directory, &self, error);
    ecfs_keeping_forget (&keeping);
    return rotated;
}
