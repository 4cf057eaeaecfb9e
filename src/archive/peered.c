#include "archive/peered.h"

#include "archive/common.h"

bool ecfs_archive_serve_peers (EcfsArchive *self, GError **error)
{
    EcfsPeers *peers = ecfs_archive_peers (self);
    const char *trouble = ecfs_archive_peers_trouble (self);
    if (trouble != NULL)
        return ecfs_fail (error, ENOTSUP, "%s: %s", ecfs_archive_directory (self), trouble);
    return peers == NULL || ecfs_peers_serve (peers, error) || ecfs_prefix (error, "peer_listen");
}
