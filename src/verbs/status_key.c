/* What `ecfs status` tells of the shares that zones of endpoints have of the archive's key. */
#include "archive/key_slots.h"
#include "archive/key_watch.h"
#include "verbs/key.h"
#include "verbs/status_priv.h"

/* How the shares are, as far as endpoints have told. */
typedef struct Sharing {
    JsonArray *lacking; /* names of endpoints that have lost theirs, or have another */
    GArray *here;       /* of EcfsZoneShare: of endpoints that answer now, … */
    GArray *known;      /* … and of all that ever did */
    GHashTable *zones;  /* names; borrowed */
} Sharing;

static void add_endpoint (Sharing *self, EcfsArchive *archive, size_t position, bool answers, JsonObject *facts)
{
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, position);
    EcfsKeySeen seen = ecfs_key_watch_sight (ecfs_archive_key_watch (archive), position);
    const EcfsZoneShare one = {.zone = endpoint->zone, .x = seen.x};
    g_hash_table_add (self->zones, (char *) one.zone);
    if (seen.x > 0) {
        if (seen.sight == ECFS_KEY_THERE && ecfs_key_shares_threshold (ecfs_archive_key_shares (archive)) > 0)
            json_object_set_int_member (facts, "key_share", seen.x);
        g_array_append_val (self->known, one);
        if (answers)
            g_array_append_val (self->here, one);
    } else if (seen.reason != NULL) {
        ecfs_status_add_text (facts, "key_share_lost", seen.reason);
        json_array_add_string_element (self->lacking, endpoint->name);
    }
    g_free (seen.reason);
}

/* Of names of zones, which are forgotten. */
static JsonArray *names_array (GPtrArray *zones)
{
    JsonArray *names = json_array_new ();
    for (guint i = 0; i < zones->len; i++) {
        g_autofree char *utf8 = g_utf8_make_valid (g_ptr_array_index (zones, i), -1);
        json_array_add_string_element (names, utf8);
    }
    g_ptr_array_unref (zones);
    return names;
}

/* How many zones would be needed if the key were shared now, where those that are needed are no more than may vanish;
 * 0: they are, or no number is better. */
static unsigned better_threshold (EcfsArchive *archive, unsigned n_zones, unsigned threshold)
{
    unsigned better;
    EcfsKeyLosses losses;
    ecfs_archive_losses (archive, NULL, &losses);
    return threshold > 0 && losses.zones >= threshold && ecfs_key_threshold (n_zones, &losses, &better, NULL) ? better
                                                                                                              : 0;
}

static JsonObject *conclude (const Sharing *self, EcfsArchive *archive)
{
    const EcfsKeyShares *shares = ecfs_archive_key_shares (archive);
    unsigned threshold = ecfs_key_needed (archive);
    EcfsKeyLosses losses;
    JsonObject *facts = json_object_new ();
    EcfsKeyCount here, known;
    ecfs_key_losses (archive, NULL, &losses);
    ecfs_key_count ((const EcfsZoneShare *) self->here->data, self->here->len, threshold, &losses, &here);
    ecfs_key_count ((const EcfsZoneShare *) self->known->data, self->known->len, threshold, &losses, &known);
    json_object_set_array_member (facts, "slots", ecfs_key_slots_array (shares));
    json_object_set_int_member (facts, "needed", threshold);
    json_object_set_int_member (facts, "tolerance", losses.zones);
    json_object_set_int_member (facts, "endpoint_tolerance", losses.endpoints);
    json_object_set_int_member (facts, "zones", g_hash_table_size (self->zones));
    json_object_set_int_member (facts, "here", here.n_zones);
    json_object_set_int_member (facts, "shares_here", here.n_shares);
    json_object_set_int_member (facts, "left", here.left_by_zones);
    json_object_set_int_member (facts, "endpoints_left", here.left_by_endpoints);
    if (known.n_readers > 0 && ecfs_key_shares_are_needed (shares))
        json_object_set_int_member (facts, "readers", known.n_readers);
    unsigned better = better_threshold (archive, g_hash_table_size (self->zones),
                                        ecfs_key_shares_are_needed (shares) ? threshold : 0);
    if (better > 0)
        json_object_set_int_member (facts, "would_need", better);
    const EcfsZoneShare *all = (const EcfsZoneShare *) self->known->data;
    json_object_set_array_member (facts, "merged", names_array (ecfs_key_merged_zones (all, self->known->len)));
    json_object_set_array_member (facts, "twins", names_array (ecfs_key_twin_zones (all, self->known->len)));
    json_object_set_array_member (facts, "lacking", json_array_ref (self->lacking));
    return facts;
}

bool ecfs_status_add_key (JsonObject *status, EcfsArchive *archive, const GArray *found, GError **error)
{
    const EcfsKeyShares *shares = ecfs_archive_key_shares (archive);
    JsonArray *endpoints = json_object_get_array_member (status, "endpoints");
    if (ecfs_archive_keys (archive) != NULL)
        ecfs_status_add_uuid (status, "key", ecfs_key_ring_active (ecfs_archive_keys (archive)));
    if (shares == NULL)
        return true;
    if (!ecfs_archive_load_codes (archive, error))
        return false;
    Sharing self = {.lacking = json_array_new (),
                    .here = g_array_new (FALSE, FALSE, sizeof (EcfsZoneShare)),
                    .known = g_array_new (FALSE, FALSE, sizeof (EcfsZoneShare)),
                    .zones = g_hash_table_new (g_str_hash, g_str_equal)};
    for (guint i = 0, at = 0; i < found->len && at < json_array_get_length (endpoints); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        JsonObject *facts = json_array_get_object_element (endpoints, at);
        if (g_strcmp0 (json_object_get_string_member (facts, "name"), endpoint->name) != 0)
            continue; /* it was removed */
        at++;
        if (ecfs_archive_endpoint_counts (endpoint))
            add_endpoint (&self, archive, i,
                          ecfs_archive_reaches (endpoint) && g_array_index (found, EcfsFound, i).word == NULL, facts);
    }
    if (ecfs_key_shares_are_needed (shares))
        json_object_set_int_member (status, "key_shares", ecfs_key_shares_threshold (shares));
    json_object_set_object_member (status, "key_sharing", conclude (&self, archive));
    json_array_unref (self.lacking);
    g_array_unref (self.here);
    g_array_unref (self.known);
    g_hash_table_unref (self.zones);
    return true;
}
