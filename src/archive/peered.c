#include "archive/peered.h"

#include "archive/common.h"
#include "locate/published.h"

/* Without it there are those of the list. */
static void locate (EcfsArchive *self)
{
    g_autoptr (GError) error = NULL;
    if (!ecfs_located_start (ecfs_archive_located (self), &error))
        g_warning ("peers = dht: %s", error->message);
}

bool ecfs_archive_serve_peers (EcfsArchive *self, GError **error)
{
    EcfsPeers *peers = ecfs_archive_peers (self);
    const char *trouble = ecfs_archive_peers_trouble (self);
    if (trouble != NULL)
        return ecfs_fail (error, ENOTSUP, "%s: %s", ecfs_archive_directory (self), trouble);
    bool serves = peers == NULL || ecfs_peers_serve (peers, error);
    if (peers != NULL)
        locate (self);
    return serves || ecfs_prefix (error, "peer_listen");
}

void ecfs_archive_renew_published (EcfsArchive *self)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) names = ecfs_publications (ecfs_archive_directory (self));
    if (names->len > 0 && !ecfs_located_start_node (ecfs_archive_located (self), &error))
        g_warning ("what is published is not renewed: %s", error->message);
}
