/* What endpoints get of an archive's key, and how many of them must have it before anything depends on it. */
#include "archive/common.h"
#include "verbs/key.h"

#include <string.h>

#define REMEDY                                                                                                         \
    "bring the others back; 'ecfs endpoint replace' puts another in place of one that is gone, and 'ecfs endpoint "    \
    "distrust' leaves it out"

unsigned ecfs_key_count_zones (const EcfsArchive *archive)
{
    g_autoptr (GHashTable) zones = g_hash_table_new (g_str_hash, g_str_equal);
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        if (ecfs_archive_endpoint_counts (endpoint))
            g_hash_table_add (zones, (char *) endpoint->zone);
    }
    return g_hash_table_size (zones);
}

bool ecfs_key_find_losses (EcfsArchive *archive, EcfsKeyLosses *ret_losses, GError **error)
{
    if (!ecfs_archive_load_codes (archive, error))
        return false;
    ecfs_archive_losses (archive, NULL, ret_losses);
    return true;
}

bool ecfs_key_find_threshold (EcfsArchive *archive, unsigned *ret_threshold, GError **error)
{
    EcfsKeyLosses losses;
    return ecfs_key_find_losses (archive, &losses, error) &&
           ecfs_key_threshold (ecfs_key_count_zones (archive), &losses, ret_threshold, error);
}

/* Whether those in @stored outlive what may be lost. @have: what they do, for the message; @reasons: of the others */
static bool check_left (const EcfsArchive *archive, const GArray *stored, unsigned needed, const EcfsKeyLosses *losses,
                        const char *have, const char *reasons, GError **error)
{
    EcfsKeyCount count;
    unsigned n_zones = ecfs_key_count_zones (archive);
    ecfs_key_count ((const EcfsZoneShare *) stored->data, stored->len, needed, losses, &count);
    if (ecfs_key_count_left (&count) >= needed)
        return true;
    if (losses->zones + 1 >= n_zones)
        return ecfs_fail (error, ENOTCONN, "%u zones %s, and all %u have to; " REMEDY ": %s", count.n_zones, have,
                          n_zones, reasons);
    g_autofree char *lost = ecfs_key_describe_loss (&count, needed, losses);
    return ecfs_fail (error, ENOTCONN, "%u zones %s, and %u must be left when any %s are lost; " REMEDY ": %s",
                      count.n_zones, have, needed, lost, reasons);
}

static void note_reason (GString *reasons, const char *text)
{
    g_string_append_printf (reasons, "%s%s", reasons->len > 0 ? "; " : "", text);
}

static void ignore_listed (void *user, const EcfsListed *listed)
{
    (void) user;
    (void) listed;
}

static bool answers (const EcfsArchiveEndpoint *endpoint, GError **error)
{
    g_autoptr (GError) why = NULL;
    if (ecfs_endpoint_list_wait (endpoint->endpoint, ECFS_KEYS_DIRECTORY, ignore_listed, NULL, &why) ||
        why->code == ENOENT)
        return true;
    g_propagate_error (error, g_steal_pointer (&why));
    return false;
}

bool ecfs_key_check_reach (EcfsArchive *archive, unsigned threshold, const EcfsKeyLosses *losses, GError **error)
{
    g_autoptr (GArray) reached = g_array_new (FALSE, FALSE, sizeof (EcfsZoneShare));
    g_autoptr (GString) reasons = g_string_new (NULL);
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        const EcfsZoneShare one = {.zone = endpoint->zone,
                                   .x = MIN (ecfs_archive_zone_number (archive, i) + 1, ECFS_SHARES_MAX)};
        g_autoptr (GError) why = NULL;
        if (!ecfs_archive_endpoint_counts (endpoint))
            continue;
        if (answers (endpoint, &why))
            g_array_append_val (reached, one);
        else
            note_reason (reasons, why->message);
    }
    return check_left (archive, reached, MAX (threshold, 1), losses, "answer", reasons->str, error);
}

bool ecfs_key_put_shares (EcfsArchive *archive, const EcfsKeyShares *shares, const EcfsKeyLosses *losses,
                          GError **error)
{
    unsigned needed = MAX (ecfs_key_shares_threshold (shares), 1);
    g_autoptr (GArray) stored = g_array_new (FALSE, FALSE, sizeof (EcfsZoneShare));
    g_autoptr (GString) reasons = g_string_new (NULL);
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        g_autoptr (GError) why = NULL;
        if (!ecfs_archive_endpoint_counts (endpoint))
            continue;
        if (ecfs_key_shares_put (shares, ecfs_archive_catalog (archive), endpoint->endpoint, endpoint->zone, &why))
            ecfs_key_note_stored (archive, shares, i, stored);
        else
            note_reason (reasons, why->message);
    }
    if (losses != NULL && !check_left (archive, stored, needed, losses, "have the key file", reasons->str, error))
        return false;
    if (reasons->len > 0)
        g_message ("%s: some endpoints have no key file yet, 'ecfs fsck -y' stores it there: %s",
                   ecfs_archive_directory (archive), reasons->str);
    return true;
}
