#include "archive/key_newest.h"

#include "archive/key_shares_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NEWEST_SETTING "key_newest" /* key, generation, revision and MAC of the newest key file */

static void mac_text (const EcfsKeyFile *file, char ret_text[ECFS_KEY_MAC_TEXT_SIZE])
{
    for (size_t i = 0; i < sizeof file->mac; i++)
        (void) snprintf (ret_text + 2 * i, 3, "%02x", file->mac[i]);
}

static void on_newest (void *user, const char *key, const char *value)
{
    EcfsKeyNewest *newest = user;
    if (strcmp (key, NEWEST_SETTING) != 0)
        return;
    g_auto (GStrv) words = g_strsplit (value, " ", -1);
    newest->is_told = g_strv_length (words) == 4 && ecfs_uuid_parse (words[0], &newest->key) &&
                      ecfs_uuid_parse (words[1], &newest->generation) &&
                      g_ascii_string_to_unsigned (words[2], 10, 0, G_MAXUINT64, &newest->revision, NULL) &&
                      g_strlcpy (newest->mac, words[3], sizeof newest->mac) == sizeof newest->mac - 1;
}

bool ecfs_key_shares_tell_newest (const EcfsKeyShares *self, EcfsCatalog *catalog, GError **error)
{
    char key[ECFS_UUID_TEXT_SIZE], generation[ECFS_UUID_TEXT_SIZE], mac[ECFS_KEY_MAC_TEXT_SIZE];
    if (self == NULL)
        return ecfs_catalog_keep_setting (catalog, NEWEST_SETTING, "", error);
    ecfs_uuid_text (&self->file.key, key);
    ecfs_uuid_text (&self->file.generation, generation);
    mac_text (&self->file, mac);
    g_autofree char *value = g_strdup_printf ("%s %s %" PRIu64 " %s", key, generation, self->file.revision, mac);
    return ecfs_catalog_keep_setting (catalog, NEWEST_SETTING, value, error);
}

/* One that is newer was about to be told when whoever made it died. One of another key comes or goes with a rotation.
 */
bool ecfs_key_shares_is_outdated (const EcfsKeyShares *self, const EcfsKeyNewest *newest)
{
    char mac[ECFS_KEY_MAC_TEXT_SIZE];
    if (!newest->is_told || !ecfs_uuid_equal (&newest->key, &self->file.key))
        return false;
    mac_text (&self->file, mac);
    return !ecfs_uuid_equal (&newest->generation, &self->file.generation) || self->file.revision < newest->revision ||
           (self->file.revision == newest->revision && strcmp (mac, newest->mac) != 0);
}

bool ecfs_key_newest_is (const EcfsKeyFile *file, const EcfsKeyNewest *newest)
{
    char mac[ECFS_KEY_MAC_TEXT_SIZE];
    mac_text (file, mac);
    return file->revision == newest->revision && ecfs_uuid_equal (&file->generation, &newest->generation) &&
           strcmp (mac, newest->mac) == 0;
}

bool ecfs_key_fail_outdated (const char *where, GError **error)
{
    return ecfs_fail (error, ESTALE,
                      "%skey slots were added or removed by another machine since, so nothing is stored of those that "
                      "are here: copy the file " ECFS_KEY_SLOTS_NAME " from the machine that did it",
                      where);
}

bool ecfs_key_newest_told (EcfsCatalog *catalog, EcfsKeyNewest *ret_newest, GError **error)
{
    *ret_newest = (EcfsKeyNewest){.is_told = false};
    return ecfs_catalog_settings (catalog, on_newest, ret_newest, error);
}

bool ecfs_key_shares_check_newest (const EcfsKeyShares *self, EcfsCatalog *catalog, GError **error)
{
    EcfsKeyNewest newest;
    return ecfs_key_newest_told (catalog, &newest, error) &&
           (!ecfs_key_shares_is_outdated (self, &newest) || ecfs_key_fail_outdated ("", error));
}

GByteArray *ecfs_key_newest_read (const EcfsKeyNewest *self, EcfsEndpoint *endpoint, GError **error)
{
    const EcfsKeyShares wanted = {.file = {.generation = self->generation, .revision = self->revision}};
    return ecfs_key_shares_read (&wanted, endpoint, error);
}
