/* Whether the archive's key would come back from the shares of it that endpoints have: they are read, and joined. */
#include "archive/key_count.h"
#include "archive/key_slots.h"
#include "archive/key_watch.h"
#include "verbs/drill_priv.h"
#include "verbs/key.h"

typedef struct Joining {
    EcfsArchive *archive;
    GArray *files;     /* of EcfsKeyFile, as endpoints have them, … */
    GArray *witnesses; /* … of EcfsShareWitness of these, … */
    GArray *right;     /* … and of EcfsZoneShare: those that are what was stored */
} Joining;

static void file_clear (gpointer data)
{
    ecfs_key_file_clear (data);
}

/* What is not there, or makes no sense, is not among those that are counted in the end. */
static void read_share (Joining *self, const EcfsArchiveEndpoint *endpoint)
{
    unsigned x;
    EcfsKeyFile file;
    const EcfsKeyShares *shares = ecfs_archive_key_shares (self->archive);
    GByteArray *bytes = ecfs_key_shares_read (shares, endpoint->endpoint, NULL);
    const EcfsShareWitness witness = {.zone = endpoint->zone};
    if (bytes != NULL && ecfs_key_file_parse (bytes->data, bytes->len, &file, NULL)) {
        g_array_append_val (self->files, file);
        g_array_append_val (self->witnesses, witness);
    }
    if (bytes != NULL && ecfs_key_shares_judge (shares, bytes, &x) == ECFS_SHARE_OURS) {
        const EcfsZoneShare one = {.zone = endpoint->zone,
                                   .x = x > 0 ? x : MIN (self->right->len + 1, ECFS_SHARES_MAX)};
        g_array_append_val (self->right, one);
    }
    ecfs_key_forget_array (bytes);
}

static bool is_same (const EcfsKeyRing *keys, const EcfsKeyRing *own)
{
    GByteArray *a = ecfs_key_ring_format (keys), *b = ecfs_key_ring_format (own);
    bool same = a->len == b->len && memcmp (a->data, b->data, a->len) == 0;
    ecfs_key_forget_array (a);
    ecfs_key_forget_array (b);
    return same;
}

/* Of the files that are believed, one that opens to the archive's keys is enough. */
static bool opens (const Joining *self, const uint8_t *secret)
{
    for (guint i = 0; i < self->files->len; i++) {
        if (g_array_index (self->witnesses, EcfsShareWitness, i).contradicts)
            continue;
        g_autoptr (EcfsKeyRing) keys = ecfs_key_file_open (&g_array_index (self->files, EcfsKeyFile, i), secret);
        if (keys != NULL && is_same (keys, ecfs_archive_keys (self->archive)))
            return true;
    }
    return false;
}

static bool join (Joining *self, GError **error)
{
    uint8_t secret[ECFS_SECRET_BYTES];
    EcfsUuid generation;
    for (guint i = 0; i < self->files->len; i++)
        g_array_index (self->witnesses, EcfsShareWitness, i).file = &g_array_index (self->files, EcfsKeyFile, i);
    if (!ecfs_secret_gather (ecfs_catalog_archive (ecfs_archive_catalog (self->archive)),
                             (EcfsShareWitness *) self->witnesses->data, self->witnesses->len, secret, &generation,
                             error))
        return false;
    bool opened = opens (self, secret);
    ecfs_key_forget (secret, sizeof secret);
    return opened || ecfs_fail (error, EBADMSG, "the shares fit, and what they open is not the archive's key");
}

/* By the slots that are left. What people keep cannot be tried here, so only what needs nothing but the shares is. */
static bool comes_back (Joining *self, const EcfsKeyShares *shares, GError **error)
{
    if (ecfs_key_shares_open_nothing (shares))
        return ecfs_fail (error, ENOKEY,
                          "no key slot is left, so nothing comes back without the file %s/key or a copy of it",
                          ecfs_archive_directory (self->archive));
    return !ecfs_key_shares_has_kind (shares, ECFS_KEY_SLOT_SPLIT) || join (self, error);
}

/* Also without any zones that may be lost; where none are named. */
static bool outlives (const Joining *self, const EcfsKeyLosses *losses, GError **error)
{
    EcfsKeyCount count;
    unsigned threshold = ecfs_key_needed (self->archive);
    ecfs_key_count ((const EcfsZoneShare *) self->right->data, self->right->len, threshold, losses, &count);
    if (ecfs_key_count_left (&count) >= threshold)
        return true;
    g_autofree char *lost = ecfs_key_describe_loss (&count, threshold, losses);
    return ecfs_fail (error, ENODATA, "%u zones have their shares, and without %s of them too few are left",
                      count.n_zones, lost);
}

static void report_key (const Joining *self, const EcfsKeyLosses *losses, const GError *why, JsonObject *report)
{
    EcfsKeyCount count;
    const EcfsKeyLosses none = {.zones = 0};
    JsonObject *facts = json_object_new ();
    unsigned threshold = ecfs_key_needed (self->archive);
    ecfs_key_count ((const EcfsZoneShare *) self->right->data, self->right->len, threshold, &none, &count);
    json_object_set_array_member (facts, "slots", ecfs_key_slots_array (ecfs_archive_key_shares (self->archive)));
    json_object_set_int_member (facts, "needed", threshold);
    json_object_set_int_member (facts, "zones", count.n_zones);
    json_object_set_int_member (facts, "without_any", losses->zones);
    json_object_set_boolean_member (facts, "comes_back", why == NULL);
    if (why != NULL)
        json_object_set_string_member (facts, "error", why->message);
    json_object_set_object_member (report, "key", facts);
}

bool ecfs_drill_key (EcfsArchive *archive, const bool *without, JsonObject *report, bool *ret_good, GError **error)
{
    g_autoptr (GError) why = NULL;
    *ret_good = true;
    const EcfsKeyShares *shares = ecfs_archive_key_shares (archive);
    if (shares == NULL)
        return true;
    if (!ecfs_archive_load_codes (archive, error))
        return false;
    EcfsKeyLosses losses = {.zones = 0};
    if (without == NULL)
        ecfs_key_losses (archive, NULL, &losses);
    Joining self = {.archive = archive,
                    .files = g_array_new (FALSE, FALSE, sizeof (EcfsKeyFile)),
                    .witnesses = g_array_new (FALSE, FALSE, sizeof (EcfsShareWitness)),
                    .right = g_array_new (FALSE, FALSE, sizeof (EcfsZoneShare))};
    g_array_set_clear_func (self.files, file_clear);
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        if (ecfs_archive_endpoint_counts (endpoint) && (without == NULL || !without[i]))
            read_share (&self, endpoint);
    }
    *ret_good = comes_back (&self, shares, &why) && outlives (&self, &losses, &why);
    report_key (&self, &losses, why, report);
    g_array_unref (self.files);
    g_array_unref (self.witnesses);
    g_array_unref (self.right);
    return true;
}
