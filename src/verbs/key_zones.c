/* What endpoints get of an archive's key, and how many of them must have it before anything depends on it. */
#include "archive/common.h"
#include "verbs/key.h"

#include <string.h>

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

bool ecfs_key_put_shares (EcfsArchive *archive, const EcfsKeyShares *shares, const EcfsKeyLosses *losses,
                          GError **error)
{
    EcfsKeyCount count;
    unsigned needed = losses == NULL ? 0 : MAX (ecfs_key_shares_threshold (shares), 1);
    const EcfsKeyLosses none = {.zones = 0};
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
            g_string_append_printf (reasons, "%s%s", reasons->len > 0 ? "; " : "", why->message);
    }
    ecfs_key_count ((const EcfsZoneShare *) stored->data, stored->len, needed, losses == NULL ? &none : losses, &count);
    if (ecfs_key_count_left (&count) < needed) {
        g_autofree char *lost = ecfs_key_describe_loss (&count, needed, losses);
        return ecfs_fail (error, ENOTCONN,
                          "%u zones have the key file, and without any %s those of %u must be left: %s", count.n_zones,
                          lost, needed, reasons->str);
    }
    if (reasons->len > 0)
        g_message ("%s: some endpoints have no key file yet, 'ecfs fsck -y' stores it there: %s",
                   ecfs_archive_directory (archive), reasons->str);
    return true;
}
