/* What endpoints get of an archive's key, and how many of them must have it before anything depends on it. */
#include "archive/common.h"
#include "verbs/key.h"

#include <string.h>

bool ecfs_key_find_tolerance (const EcfsArchive *archive, unsigned *ret_tolerance, GError **error)
{
    g_autoptr (GPtrArray) codes = ecfs_catalog_codes_in_use (ecfs_archive_catalog (archive), error);
    if (codes == NULL)
        return false;
    g_ptr_array_add (codes, g_strdup (ecfs_archive_config (archive)->code));
    *ret_tolerance = 0;
    for (guint i = 0; i < codes->len; i++) {
        g_autofree char *text = g_strdup (g_ptr_array_index (codes, i));
        *strchrnul (text, '/') = '\0'; /* an identity says who made it, too */
        g_autoptr (EcfsCodec) codec = ecfs_codec_new (text, error);
        if (codec == NULL)
            return false;
        *ret_tolerance = MAX (*ret_tolerance, ecfs_codec_tolerance (codec));
    }
    return true;
}

unsigned ecfs_key_count_zones (const EcfsArchive *archive)
{
    g_autoptr (GHashTable) zones = g_hash_table_new (g_str_hash, g_str_equal);
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        if (ecfs_archive_endpoint_counts (endpoint) && endpoint->endpoint != NULL)
            g_hash_table_add (zones, (char *) endpoint->zone);
    }
    return g_hash_table_size (zones);
}

/* Each endpoint gets the share of its zone; those that cannot take it now must not be more than can be done without. */
bool ecfs_key_put_shares (EcfsArchive *archive, const EcfsKeyShares *shares, unsigned tolerance, GError **error)
{
    g_autoptr (GHashTable) zones = g_hash_table_new (g_str_hash, g_str_equal);
    g_autoptr (GString) reasons = g_string_new (NULL);
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        g_autoptr (GError) why = NULL;
        if (!ecfs_archive_endpoint_counts (endpoint) || endpoint->endpoint == NULL)
            continue;
        if (ecfs_key_shares_put (shares, ecfs_archive_catalog (archive), endpoint->endpoint, endpoint->zone, &why))
            g_hash_table_add (zones, (char *) endpoint->zone);
        else
            g_string_append_printf (reasons, "%s%s", reasons->len > 0 ? "; " : "", why->message);
    }
    unsigned n_zones = g_hash_table_size (zones);
    unsigned n_needed = MAX (ecfs_key_shares_threshold (shares), 1) + tolerance;
    if (n_zones < n_needed)
        return ecfs_fail (error, ENOTCONN, "%u zones have the key file, and %u must have it: %s", n_zones, n_needed,
                          reasons->str);
    if (reasons->len > 0)
        g_message ("%s: some endpoints have no key file yet, 'ecfs fsck -y' stores it there: %s",
                   ecfs_archive_directory (archive), reasons->str);
    return true;
}
