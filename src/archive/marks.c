#include "archive/marks.h"

#include "key/mac.h"

#include <openssl/crypto.h>
#include <string.h>

G_STATIC_ASSERT (ECFS_MARKER_MAC_BYTES == ECFS_MAC_BYTES);

static bool compute (const EcfsMarker *marker, const EcfsKeyRing *keys, uint8_t ret_mac[ECFS_MAC_BYTES])
{
    uint8_t key[ECFS_KEY_BYTES];
    if (!ecfs_key_ring_derive (keys, &marker->key, ECFS_KEY_USE_MARKER, NULL, 0, key, NULL))
        return false;
    EcfsMac *mac = ecfs_mac_new (key);
    ecfs_key_forget (key, sizeof key);
    g_autofree char *text = ecfs_marker_format_content (marker);
    ecfs_mac_compute (mac, "", 0, text, strlen (text), ret_mac);
    ecfs_mac_unref (mac);
    return true;
}

void ecfs_marker_sign (EcfsMarker *marker, const EcfsKeyRing *keys)
{
    marker->key = keys == NULL ? (EcfsUuid){.bytes = {0}} : *ecfs_key_ring_active (keys);
    if (keys == NULL || !compute (marker, keys, marker->mac)) /* a ring has its active key */
        memset (marker->mac, 0, sizeof marker->mac);
}

EcfsMarkerWorth ecfs_marker_judge (const EcfsMarker *marker, const EcfsKeyRing *keys, const EcfsUuid *endpoint)
{
    uint8_t mac[ECFS_MAC_BYTES];
    bool has_key = !ecfs_uuid_is_nil (&marker->key);
    if (keys == NULL)
        return has_key ? ECFS_MARKER_UNKNOWN_KEY : ECFS_MARKER_AUTHENTIC;
    if (!ecfs_uuid_equal (&marker->archive, ecfs_key_ring_archive (keys)) ||
        (endpoint != NULL && !ecfs_uuid_equal (&marker->endpoint, endpoint)))
        return ECFS_MARKER_MISPLACED;
    if (!has_key)
        return ECFS_MARKER_UNSIGNED;
    if (!compute (marker, keys, mac))
        return ECFS_MARKER_UNKNOWN_KEY;
    bool is_within = ecfs_key_ring_covers (keys, &marker->key, marker->epoch, marker->sequence) &&
                     (marker->claim.epoch == 0 || ecfs_key_ring_covers (keys, &marker->key, marker->claim.epoch, 0));
    return is_within && CRYPTO_memcmp (mac, marker->mac, sizeof mac) == 0 ? ECFS_MARKER_AUTHENTIC : ECFS_MARKER_FORGED;
}

char *ecfs_marker_fault (const EcfsMarker *marker, EcfsMarkerWorth worth)
{
    char text[ECFS_UUID_TEXT_SIZE];
    switch (worth) {
    case ECFS_MARKER_UNKNOWN_KEY:
        ecfs_uuid_text (&marker->key, text);
        return g_strdup_printf ("its marker is under key %s, which is not here", text);
    case ECFS_MARKER_UNSIGNED:
        return g_strdup ("its marker is not authenticated by the archive's key");
    case ECFS_MARKER_FORGED:
        return g_strdup ("its marker is damaged or forged");
    case ECFS_MARKER_MISPLACED:
        return g_strdup ("its marker is that of another endpoint");
    case ECFS_MARKER_BROKEN:
        return g_strdup ("what is there is no marker");
    case ECFS_MARKER_AUTHENTIC:
        break;
    }
    return NULL;
}
