/* Key files of another revision: in the archive directory first, then at each endpoint. */
#include "archive/archive_priv.h"
#include "archive/key_losses.h"
#include "archive/key_newest.h"
#include "archive/key_slots.h"
#include "archive/lineage.h"

const EcfsKeyShares *ecfs_archive_key_shares (const EcfsArchive *self)
{
    return self->shares;
}

/* An endpoint that says otherwise may be another copy's by now, and so may its key file. */
static bool put (EcfsArchive *self, const EcfsKeyShares *shares, size_t position, GError **error)
{
    const EcfsArchiveEndpoint *endpoint = &self->endpoints[position];
    if (!ecfs_endpoint_is_down (endpoint->endpoint) && !ecfs_lineage_may_write (self->lineage, position))
        return ecfs_fail (error, EAGAIN, "it does not confirm that this archive directory is the newest copy");
    return ecfs_key_shares_put (shares, self->catalog, endpoint->endpoint, endpoint->zone, error);
}

bool ecfs_archive_tell_key (EcfsArchive *self, const EcfsKeyShares *shares, GError **error)
{
    EcfsKeySlotsTold told;
    EcfsKeyLosses losses;
    unsigned threshold = ecfs_key_shares_threshold (shares);
    if (!ecfs_key_slots_told (self->catalog, &told, error) || !ecfs_archive_load_codes (self, error) ||
        !ecfs_key_shares_tell (shares, self->catalog, error))
        return false;
    ecfs_archive_losses (self, NULL, &losses);
    unsigned before = told.threshold == threshold ? MAX (told.stripes, threshold - MIN (threshold, 1)) : 0;
    return threshold == 0 || ecfs_key_shares_note_stripes (self->catalog, MAX (losses.stripes, before), error);
}

void ecfs_key_note_stored (const EcfsArchive *self, const EcfsKeyShares *shares, size_t position, GArray *stored)
{
    EcfsZoneShare one = {.zone = self->endpoints[position].zone};
    if (ecfs_key_shares_threshold (shares) == 0) /* all zones have the same: each counts */
        one.x = MIN (ecfs_archive_zone_number (self, position) + 1, ECFS_SHARES_MAX);
    else if (!ecfs_key_shares_of_zone (self->catalog, one.zone, &one.x, NULL))
        one.x = 0; /* whoever writes to the catalog tells what is wrong with it */
    if (one.x > 0)
        g_array_append_val (stored, one);
}

/* How many zones must still have it when as much is lost as may be: one that has the new slot, and where endpoints get
 * shares with it, as many as bring the shared secret back. */
static unsigned zones_needed (const EcfsKeyShares *before, const EcfsKeyShares *shares)
{
    unsigned threshold = ecfs_key_shares_threshold (shares);
    bool had_shares =
        before != NULL && ecfs_key_shares_threshold (before) == threshold &&
        ecfs_uuid_equal (&ecfs_key_shares_file (before)->generation, &ecfs_key_shares_file (shares)->generation);
    return had_shares ? 1 : MAX (threshold, 1);
}

/* Those that cannot take it now get it from a mount later, or from fsck. */
static void store (EcfsArchive *self, const EcfsKeyShares *shares, unsigned needed, EcfsKeyStored *ret_stored)
{
    EcfsKeyCount count;
    EcfsKeyLosses losses;
    size_t n_endpoints = self->n_endpoints;
    g_autoptr (GArray) stored = g_array_new (FALSE, FALSE, sizeof (EcfsZoneShare));
    ret_stored->behind = g_ptr_array_new_with_free_func (g_free);
    for (size_t i = 0; i < n_endpoints; i++) {
        const EcfsArchiveEndpoint *endpoint = &self->endpoints[i];
        g_autoptr (GError) why = NULL;
        if (!ecfs_archive_endpoint_counts (endpoint))
            continue;
        if (put (self, shares, i, &why))
            ecfs_key_note_stored (self, shares, i, stored);
        else
            g_ptr_array_add (ret_stored->behind, g_strdup_printf ("endpoint %s: %s", endpoint->name, why->message));
    }
    ecfs_archive_losses (self, NULL, &losses);
    ecfs_key_count ((const EcfsZoneShare *) stored->data, stored->len, needed, &losses, &count);
    ret_stored->is_safe = ecfs_key_count_left (&count) >= needed;
}

/* Of the same keys, and what comes after what is here now; here is the newest copy. */
static bool check_next (EcfsArchive *self, const EcfsKeyShares *shares, GError **error)
{
    g_autofree char *trouble = ecfs_archive_trouble (self);
    if (trouble != NULL)
        return ecfs_fail (error, EROFS, "%s", trouble);
    uint64_t now = self->shares == NULL ? 0 : MAX (ecfs_key_shares_file (self->shares)->revision, 1);
    return ecfs_key_shares_file (shares)->revision == now + 1 ||
           ecfs_fail (error, EAGAIN, "%s: the key slots were changed meanwhile: run this again", self->directory);
}

static bool take_on (EcfsArchive *self, EcfsKeyShares *shares, EcfsKeyStored *ret_stored, GError **error)
{
    if (!check_next (self, shares, error) || !ecfs_key_shares_check_newest (shares, self->catalog, error) ||
        !ecfs_key_shares_recall_former (shares, self->catalog, error) ||
        !ecfs_key_shares_write (shares, self->directory, error)) {
        ecfs_key_shares_free (shares);
        return false;
    }
    unsigned needed = zones_needed (self->shares, shares);
    if (self->shares != NULL)
        g_ptr_array_add (self->former_shares, self->shares); /* others may be using them */
    self->shares = shares;
    if (!ecfs_archive_tell_key (self, shares, error) || !ecfs_catalog_barrier (self->catalog, error))
        return false;
    store (self, shares, needed, ret_stored);
    return true;
}

/* Those that another machine has changed */

/* NULL: the endpoint does not have it, or cannot tell. */
static EcfsKeyShares *read_newest (EcfsArchive *self, EcfsEndpoint *endpoint, const EcfsKeyNewest *newest)
{
    EcfsKeyFile file = {.slots = NULL};
    EcfsKeyShares *shares = NULL;
    GByteArray *bytes = ecfs_key_newest_read (newest, endpoint, NULL); /* another may have it */
    if (bytes != NULL && ecfs_key_file_parse (bytes->data, bytes->len, &file, NULL)) {
        shares = ecfs_key_newest_is (&file, newest) ? ecfs_key_shares_of (self->keys, &file, NULL) : NULL;
        ecfs_key_file_clear (&file);
    }
    ecfs_key_forget_array (bytes);
    return shares;
}

static EcfsKeyShares *find_newest (EcfsArchive *self, const EcfsKeyNewest *newest)
{
    EcfsKeyShares *shares = NULL;
    for (size_t i = 0; shares == NULL && i < self->n_endpoints && !ecfs_archive_is_stopping (self); i++) {
        const EcfsArchiveEndpoint *endpoint = &self->endpoints[i];
        if (ecfs_archive_endpoint_counts (endpoint) && !ecfs_endpoint_is_down (endpoint->endpoint))
            shares = read_newest (self, endpoint->endpoint, newest);
    }
    return shares;
}

/* Takes @shares, unless what is here has become as new meanwhile. */
static bool take_on_locked (EcfsArchive *self, const EcfsKeyNewest *newest, EcfsKeyShares *shares, GError **error)
{
    g_autoptr (EcfsKeyShares) owned = shares;
    if (!ecfs_key_shares_is_outdated (self->shares, newest))
        return true;
    if (!ecfs_key_shares_recall_former (owned, self->catalog, error) ||
        (!self->readonly && !ecfs_key_shares_write (owned, self->directory, error)))
        return false;
    g_ptr_array_add (self->former_shares, self->shares); /* others may be using them */
    self->shares = g_steal_pointer (&owned);
    g_message ("%s: key slots were added or removed by another machine: they are taken over from the endpoints",
               self->directory);
    return true;
}

bool ecfs_archive_renew_key_slots (EcfsArchive *self, GError **error)
{
    EcfsKeyNewest newest;
    if (self->shares == NULL || self->keys == NULL)
        return true;
    if (!ecfs_key_newest_told (self->catalog, &newest, error))
        return false;
    if (!ecfs_key_shares_is_outdated (self->shares, &newest))
        return true;
    EcfsKeyShares *shares = find_newest (self, &newest);
    if (shares == NULL) {
        g_autofree char *where = g_strconcat (self->directory, ": ", NULL);
        return ecfs_key_fail_outdated (where, error);
    }
    ecfs_mutex_lock (&self->adding);
    bool taken = take_on_locked (self, &newest, shares, error);
    ecfs_mutex_unlock (&self->adding);
    return taken;
}

bool ecfs_archive_change_key_file_take (EcfsArchive *self, EcfsKeyShares *shares, EcfsKeyStored *ret_stored,
                                        GError **error)
{
    ecfs_archive_await_session (self);
    if (!ecfs_archive_renew_key_slots (self, error)) {
        ecfs_key_shares_free (shares);
        return false;
    }
    ecfs_mutex_lock (&self->adding);
    bool taken = take_on (self, shares, ret_stored, error);
    ecfs_mutex_unlock (&self->adding);
    return taken;
}
