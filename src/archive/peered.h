/* Peers of the archive: other machines that read it, by the keys peers and peer_listen of ecfs.conf. */
#ifndef ECFS_ARCHIVE_PEERED_H
#define ECFS_ARCHIVE_PEERED_H

#include "archive/archive.h"
#include "archive/config.h"
#include "archive/located.h"
#include "peer/peer.h"

/** Those who are asked for what the cache has not; NULL: nobody. As long as the archive. */
EcfsPeers *ecfs_archive_peers (const EcfsArchive *self);
/** How they find each other; never NULL, and does nothing until it is started. As long as the archive. */
EcfsLocated *ecfs_archive_located (const EcfsArchive *self);
/** Why there are none, though they are wanted; NULL: there are, or none are wanted. */
const char *ecfs_archive_peers_trouble (const EcfsArchive *self);
/** Has what the archive publishes renewed for as long as it is open; nothing where it publishes nothing. */
void ecfs_archive_renew_published (EcfsArchive *self);
/** When cache and keys are there. *ret_trouble (g_free ()): why there are none, though they are wanted; else NULL. */
EcfsPeers *ecfs_peers_make (const EcfsConfig *config, const EcfsKeyRing *keys, EcfsCache *cache, char **ret_trouble);

/** Begins to serve them and to look for them, where that is wanted, until the archive stops. EADDRINUSE: somebody else
 * does; ENOTSUP: there cannot be any, and they are wanted. */
bool ecfs_archive_serve_peers (EcfsArchive *self, GError **error);

#endif
