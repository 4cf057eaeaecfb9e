/* Who the peers of an archive are, as ecfs.conf says. */
#include "archive/peered.h"

EcfsPeers *ecfs_peers_make (const EcfsConfig *config, const EcfsKeyRing *keys, EcfsCache *cache, char **ret_trouble)
{
    uint8_t key[ECFS_KEY_BYTES];
    g_autoptr (GError) error = NULL;
    *ret_trouble = NULL;
    if (config->peers == NULL && config->peer_listen == NULL)
        return NULL;
    if (keys == NULL || cache == NULL) {
        *ret_trouble = g_strdup (keys == NULL ? "peers need an archive with a key: see ecfs-key(1)"
                                              : "peers need a cache: set cache_size in ecfs.conf");
        return NULL;
    }
    unsigned ways = 0;
    g_autofree char *list = config->peers == NULL ? NULL : ecfs_locate_list_split (config->peers, &ways);
    EcfsPeersParams params = {.list = list,
                              .grows = ways != 0,
                              .listen = config->peer_listen,
                              .bytes_per_s = config->peer_rate,
                              .max_connections = (unsigned) config->peer_connections,
                              .key = (const uint8_t (*)[ECFS_KEY_BYTES]) & key,
                              .cache = cache};
    EcfsPeers *peers = NULL;
    if (ecfs_key_ring_derive (keys, ecfs_key_ring_active (keys), ECFS_KEY_USE_PEERS, NULL, 0, key, &error))
        peers = ecfs_peers_new (&params, &error);
    ecfs_key_forget (key, sizeof key);
    if (peers == NULL)
        *ret_trouble = g_strdup (error->message);
    return peers;
}
