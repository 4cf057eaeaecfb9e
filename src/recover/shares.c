/* The archive's keys, from the shares of them that endpoints have. */
#include "archive/key_losses.h"
#include "archive/keys.h"
#include "recover/recover_priv.h"

static void on_told (void *user, const char *text)
{
    ecfs_recover_tell (user, "%s", text);
}

/* At how many endpoints the marker is authentic under these keys. */
static size_t weigh (void *user, const EcfsKeyRing *keys)
{
    const EcfsRecovering *self = user;
    size_t n = 0;
    for (size_t i = 0; i < self->n_places; i++) {
        const EcfsRecoverPlace *place = &self->places[i];
        n += place->unread == NULL && !place->distrusted &&
             ecfs_marker_judge (&place->marker, keys, NULL) == ECFS_MARKER_AUTHENTIC;
    }
    return n;
}

static bool gather (EcfsRecovering *self, GArray *all, GError **error)
{
    EcfsKeyOpened opened;
    EcfsKeyGiven given = self->what->given_keys == NULL ? (EcfsKeyGiven){.passphrase = NULL} : *self->what->given_keys;
    given.weigh = weigh;
    given.weigh_user = self;
    if (!ecfs_key_open_found (&self->archive, all, &given, on_told, self, &opened, error))
        return false;
    self->keys = opened.keys;
    self->shares = opened.shares;
    return true;
}

/* Who has something to open it with says that there is a key. */
static bool is_given (const EcfsKeyGiven *given)
{
    return given != NULL && (given->passphrase != NULL || given->code != NULL || given->identity != NULL);
}

/* A few must not be able to give an archive a key that has none. */
static bool most_have_shares (EcfsRecovering *self, const GArray *all)
{
    g_autoptr (GHashTable) zones = g_hash_table_new (g_str_hash, g_str_equal);
    g_autoptr (GHashTable) sharing = g_hash_table_new (g_str_hash, g_str_equal);
    for (size_t i = 0; i < self->n_places; i++)
        g_hash_table_add (zones, (char *) self->places[i].zone);
    for (guint i = 0; i < all->len; i++)
        g_hash_table_add (sharing, (char *) g_array_index (all, EcfsKeyFound, i).zone);
    bool most = 2 * g_hash_table_size (sharing) > g_hash_table_size (zones);
    if (!most && all->len > 0)
        ecfs_recover_tell (self, "endpoint %s has a share of a key, and most others have none: it is left alone",
                           g_array_index (all, EcfsKeyFound, 0).endpoint);
    return most;
}

/* Who has which of the shares that go with the keys. */
static void note_shares (EcfsRecovering *self, const GArray *all)
{
    self->zone_shares = g_array_new (FALSE, FALSE, sizeof (EcfsZoneShare));
    for (guint i = 0; i < all->len; i++) {
        const EcfsKeyFound *found = &g_array_index (all, EcfsKeyFound, i);
        EcfsZoneShare one = {.zone = found->zone, .x = found->file.share.x};
        if (!found->distrusted && ecfs_key_shares_has (self->shares, &found->file))
            g_array_append_val (self->zone_shares, one);
    }
}

/* What a rotation of the key has left that did not end. */
static void note_former (EcfsRecovering *self, const GArray *all)
{
    self->former = g_array_new (FALSE, FALSE, sizeof (EcfsUuid));
    for (guint i = 0; i < all->len; i++) {
        const EcfsKeyFile *file = &g_array_index (all, EcfsKeyFound, i).file;
        if (ecfs_key_file_is_former (file, self->keys))
            g_array_append_val (self->former, file->generation);
    }
}

bool ecfs_recover_gather_keys (EcfsRecovering *self, GError **error)
{
    g_autoptr (GArray) all = ecfs_key_found_new ();
    for (size_t i = 0; i < self->n_places; i++) {
        const EcfsRecoverPlace *place = &self->places[i];
        const EcfsKeyFound where = {.endpoint = place->name, .zone = place->zone, .distrusted = place->distrusted};
        ecfs_key_find (place->endpoint, &self->archive, &where, all, on_told, self);
    }
    if (self->what->keys != NULL) {
        self->keys = ecfs_key_ring_ref (self->what->keys);
        self->shares = ecfs_key_newest (self->keys, all); /* keys that are given may be shared as well */
    } else if ((is_given (self->what->given_keys) || most_have_shares (self, all)) && !gather (self, all, error)) {
        return false;
    }
    if (self->shares != NULL) {
        note_shares (self, all);
        note_former (self, all);
    }
    return true;
}

/* That a code of new files that is given may be used with the shares of the keys. */
static bool check_code (EcfsRecovering *self, GError **error)
{
    EcfsKeySlotsTold told;
    const EcfsConfig *config = self->what->config;
    unsigned threshold = self->shares == NULL ? 0 : ecfs_key_shares_threshold (self->shares);
    if (threshold == 0 || self->what->given == NULL || !g_strv_contains (self->what->given, "code"))
        return true;
    g_autoptr (EcfsCodec) codec = ecfs_codec_new (config->code, error);
    if (codec == NULL || !ecfs_key_slots_told (self->catalog, &told, error))
        return false;
    g_autoptr (GPtrArray) zones = g_ptr_array_new ();
    for (guint i = 0; i < config->endpoints->len; i++)
        g_ptr_array_add (zones, (char *) ecfs_recover_zone (self, g_ptr_array_index (config->endpoints, i)));
    return ecfs_key_allows (&told, threshold, (const char *const *) zones->pdata, zones->len, config->allow_double,
                            codec, error);
}

/* Not in a directory for a moment, which may be on any disk. */
bool ecfs_recover_keep_keys (EcfsRecovering *self, GError **error)
{
    const EcfsKeyRing *keys = self->keys != NULL ? self->keys : self->pending_keys;
    if (keys == NULL || self->what->dry_run)
        return true;
    return ecfs_keys_write (self->directory, keys, error) &&
           (self->shares == NULL || ecfs_key_shares_write (self->shares, self->directory, error));
}

/* Where keys are shared, and no endpoint that is given has its share: they are shared anew, and fsck stores them. */
static bool share_anew (EcfsRecovering *self, GError **error)
{
    EcfsKeySlotsTold told;
    if (!ecfs_key_slots_told (self->catalog, &told, error))
        return false;
    if (*told.kinds == '\0' || self->what->dry_run)
        return true;
    bool was_split = g_str_has_prefix (told.kinds, ecfs_key_slot_kind_text (ECFS_KEY_SLOT_SPLIT));
    if (!was_split || strchr (told.kinds, ' ') != NULL)
        ecfs_recover_tell (self,
                           "no endpoint has the archive's key file, which was opened by: %s; add what is to open "
                           "it from now on with 'ecfs key add'",
                           told.kinds);
    if (!was_split) /* what was needed must not be done without */
        return ecfs_key_shares_tell_none (self->catalog, error);
    self->shares = ecfs_key_shares_new (self->keys, told.threshold);
    ecfs_recover_tell (self,
                       "no endpoint has its share of the archive's key: run 'ecfs fsck -y', which stores new ones");
    return ecfs_key_shares_write (self->shares, self->directory, error);
}

bool ecfs_recover_note_keys (EcfsRecovering *self, GError **error)
{
    if (self->pending_keys != NULL)
        ecfs_recover_tell (self,
                           "the archive was about to get a key, and has none yet: 'ecfs key init' goes on with it");
    if (self->keys == NULL)
        return true;
    if (!ecfs_keys_keep_id (self->catalog, self->keys, error) || (self->shares == NULL && !share_anew (self, error)) ||
        (self->shares != NULL && !ecfs_key_shares_tell (self->shares, self->catalog, error)) ||
        !check_code (self, error))
        return false;
    for (guint i = 0; self->former != NULL && i < self->former->len; i++)
        if (!ecfs_key_shares_note_former (self->catalog, &g_array_index (self->former, EcfsUuid, i), error))
            return false;
    for (guint i = 0; self->zone_shares != NULL && i < self->zone_shares->len; i++) {
        const EcfsZoneShare *one = &g_array_index (self->zone_shares, EcfsZoneShare, i);
        if (!ecfs_key_shares_note_found (self->catalog, one->zone, one->x, error))
            return false;
    }
    return true;
}
