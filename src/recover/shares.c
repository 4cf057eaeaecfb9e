/* The archive's keys, from the shares of them that endpoints have. */
#include "archive/keys.h"
#include "recover/recover_priv.h"

#define FILES_MOST 64 /* of one endpoint that are looked at */

/* A file with a share. */
typedef struct Found {
    EcfsRecoverPlace *place;
    EcfsKeyFile file;
} Found;

typedef struct Listing {
    GPtrArray *names; /* owned */
    GArray *sizes;    /* of uint64_t */
} Listing;

static void on_listed (void *user, const EcfsListed *listed)
{
    Listing *self = user;
    if (!ecfs_key_shares_is_name (listed->name) || listed->size > ECFS_KEY_FILE_MAX_BYTES ||
        self->names->len == FILES_MOST)
        return;
    g_ptr_array_add (self->names, g_strdup (listed->name));
    g_array_append_val (self->sizes, listed->size);
}

static void found_clear (gpointer data)
{
    ecfs_key_file_clear (&((Found *) data)->file);
}

static void read_file (EcfsRecovering *self, EcfsRecoverPlace *place, const char *name, uint64_t size, GArray *all)
{
    g_autoptr (GError) error = NULL;
    Found found = {.place = place};
    g_autoptr (GByteArray) bytes = ecfs_recover_read (place, name, size, &error);
    if (bytes == NULL || !ecfs_key_file_parse (bytes->data, bytes->len, &found.file, &error)) {
        ecfs_recover_tell (self, "endpoint %s: %s cannot be used: %s", place->name, name, error->message);
        return;
    }
    ecfs_key_forget (bytes->data, bytes->len);
    if (ecfs_uuid_equal (&found.file.archive, &self->archive))
        g_array_append_val (all, found);
    else /* left behind by one that was there before */
        ecfs_key_file_clear (&found.file);
}

static void read_place (EcfsRecovering *self, EcfsRecoverPlace *place, GArray *all)
{
    Listing listing = {.names = g_ptr_array_new_with_free_func (g_free),
                       .sizes = g_array_new (FALSE, FALSE, sizeof (uint64_t))};
    g_autoptr (GError) error = NULL;
    if (!ecfs_endpoint_list_wait (place->endpoint, ECFS_KEYS_DIRECTORY, on_listed, &listing, &error) &&
        error->code != ENOENT)
        ecfs_recover_tell (self, "endpoint %s: its share of a key cannot be looked for: %s", place->name,
                           error->message);
    for (guint i = 0; i < listing.names->len; i++)
        read_file (self, place, g_ptr_array_index (listing.names, i), g_array_index (listing.sizes, uint64_t, i), all);
    g_ptr_array_unref (listing.names);
    g_array_unref (listing.sizes);
}

static EcfsShareWitness *witnesses_of (const GArray *all)
{
    EcfsShareWitness *witnesses = g_new0 (EcfsShareWitness, all->len + 1);
    for (guint i = 0; i < all->len; i++) {
        const Found *found = &g_array_index (all, Found, i);
        witnesses[i] =
            (EcfsShareWitness){.zone = found->place->zone, .file = found->place->distrusted ? NULL : &found->file};
    }
    return witnesses;
}

static bool open_with (EcfsRecovering *self, GArray *all, const EcfsShareWitness *witnesses, const uint8_t *secret,
                       const EcfsUuid *generation, GError **error)
{
    for (guint i = 0; i < all->len && self->shares == NULL; i++) {
        Found *found = &g_array_index (all, Found, i);
        if (witnesses[i].file == NULL || witnesses[i].contradicts ||
            !ecfs_uuid_equal (&found->file.generation, generation))
            continue;
        g_autoptr (EcfsKeyRing) keys = ecfs_key_file_open (&found->file, secret);
        if (keys == NULL) /* another has a slot that nobody has changed */
            continue;
        self->shares = ecfs_key_shares_of (keys, &found->file, NULL);
        if (self->shares != NULL)
            self->keys = g_steal_pointer (&keys);
    }
    return self->keys != NULL ||
           ecfs_fail (error, ENOKEY, "the endpoints' shares of the archive's key fit, and what they open is damaged");
}

static bool gather (EcfsRecovering *self, GArray *all, GError **error)
{
    uint8_t secret[ECFS_SECRET_BYTES];
    EcfsUuid generation;
    GError *why = NULL;
    g_autofree EcfsShareWitness *witnesses = witnesses_of (all);
    if (!ecfs_secret_gather (&self->archive, witnesses, all->len, secret, &generation, &why)) {
        const char *cause = why->code == ENOTUNIQ ? "some of the endpoints that it is shared by lie"
                                                  : "too few of the endpoints that it is shared by are here";
        (void) !ecfs_fail (
            error, ENOKEY,
            "the archive has a key, and %s: %s; name more of them, or those that lie with --distrust, or "
            "give the key with --key FILE",
            cause, why->message);
        g_error_free (why);
        return false;
    }
    for (guint i = 0; i < all->len; i++)
        if (witnesses[i].contradicts && ecfs_uuid_equal (&witnesses[i].file->generation, &generation))
            ecfs_recover_tell (self, "endpoint %s: its share of the archive's key is not what was stored there",
                               g_array_index (all, Found, i).place->name);
    bool opened = open_with (self, all, witnesses, secret, &generation, error);
    ecfs_key_forget (secret, sizeof secret);
    return opened;
}

/* A few must not be able to give an archive a key that has none. */
static bool most_have_shares (EcfsRecovering *self, const GArray *all)
{
    g_autoptr (GHashTable) zones = g_hash_table_new (g_str_hash, g_str_equal);
    g_autoptr (GHashTable) sharing = g_hash_table_new (g_str_hash, g_str_equal);
    for (size_t i = 0; i < self->n_places; i++)
        g_hash_table_add (zones, (char *) self->places[i].zone);
    for (guint i = 0; i < all->len; i++)
        g_hash_table_add (sharing, (char *) g_array_index (all, Found, i).place->zone);
    bool most = 2 * g_hash_table_size (sharing) > g_hash_table_size (zones);
    if (!most && all->len > 0)
        ecfs_recover_tell (self, "endpoint %s has a share of a key, and most others have none: it is left alone",
                           g_array_index (all, Found, 0).place->name);
    return most;
}

/* Who has which of the shares that go with the keys. */
static void note_shares (EcfsRecovering *self, const GArray *all)
{
    self->zone_shares = g_array_new (FALSE, FALSE, sizeof (EcfsZoneShare));
    for (guint i = 0; i < all->len; i++) {
        const Found *found = &g_array_index (all, Found, i);
        EcfsZoneShare one = {.zone = found->place->zone, .x = found->file.share.x};
        if (!found->place->distrusted && ecfs_key_shares_has (self->shares, &found->file))
            g_array_append_val (self->zone_shares, one);
    }
}

/* Keys that are given may be shared as well. */
static void find_shares (EcfsRecovering *self, GArray *all)
{
    for (guint i = 0; i < all->len && self->shares == NULL; i++) {
        const Found *found = &g_array_index (all, Found, i);
        if (!found->place->distrusted)
            self->shares = ecfs_key_shares_of (self->keys, &found->file, NULL);
    }
}

bool ecfs_recover_gather_keys (EcfsRecovering *self, GError **error)
{
    g_autoptr (GArray) all = g_array_new (FALSE, FALSE, sizeof (Found));
    g_array_set_clear_func (all, found_clear);
    for (size_t i = 0; i < self->n_places; i++)
        read_place (self, &self->places[i], all);
    if (self->what->keys != NULL) {
        self->keys = ecfs_key_ring_ref (self->what->keys);
        find_shares (self, all);
    } else if (most_have_shares (self, all) && !gather (self, all, error)) {
        return false;
    }
    if (self->shares != NULL)
        note_shares (self, all);
    return true;
}

bool ecfs_recover_check_code (EcfsRecovering *self, GError **error)
{
    if (self->shares == NULL || self->what->given == NULL || !g_strv_contains (self->what->given, "code"))
        return true;
    g_autoptr (EcfsCodec) codec = ecfs_codec_new (self->what->config->code, error);
    return codec != NULL && ecfs_key_shares_allow (self->shares, codec, error);
}

/* Not in a directory for a moment, which may be on any disk. */
bool ecfs_recover_keep_keys (EcfsRecovering *self, GError **error)
{
    if (self->keys == NULL || self->what->dry_run)
        return true;
    return ecfs_keys_write (self->directory, self->keys, error) &&
           (self->shares == NULL || ecfs_key_shares_write (self->shares, self->directory, error));
}

/* Where keys are shared, and no endpoint that is given has its share: they are shared anew, and fsck stores them. */
static bool share_anew (EcfsRecovering *self, GError **error)
{
    unsigned threshold;
    if (!ecfs_key_shares_told (self->catalog, &threshold, error))
        return false;
    if (threshold == 0 || self->what->dry_run)
        return true;
    self->shares = ecfs_key_shares_new (self->keys, threshold);
    if (!ecfs_recover_check_code (self, error))
        return false;
    ecfs_recover_tell (self,
                       "no endpoint has its share of the archive's key: run 'ecfs fsck -y', which stores new ones");
    return ecfs_key_shares_write (self->shares, self->directory, error);
}

bool ecfs_recover_note_keys (EcfsRecovering *self, GError **error)
{
    if (self->keys == NULL)
        return true;
    if (!ecfs_keys_keep_id (self->catalog, self->keys, error) || (self->shares == NULL && !share_anew (self, error)) ||
        (self->shares != NULL && !ecfs_key_shares_tell (self->shares, self->catalog, error)))
        return false;
    for (guint i = 0; self->zone_shares != NULL && i < self->zone_shares->len; i++) {
        const EcfsZoneShare *one = &g_array_index (self->zone_shares, EcfsZoneShare, i);
        if (!ecfs_key_shares_note_found (self->catalog, one->zone, one->x, error))
            return false;
    }
    return true;
}
