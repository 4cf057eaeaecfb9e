/* The verb swarm: what is shared with other machines that read the archive, and changing that while it goes on. */
#ifndef ECFS_VERBS_SWARM_H
#define ECFS_VERBS_SWARM_H

#include "archive/archive.h"

/** Does it in this process: "start", "stop", "drop" with an address. EINVAL: nothing else is known; ENOTSUP: the
 * archive has no peers, or no address where they are to be served; ENOENT: there is no such peer. */
bool ecfs_swarm_here (EcfsArchive *archive, const char *action, const char *address, GError **error);

#endif
