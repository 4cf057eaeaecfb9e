/* What verbs do to endpoints. */
#ifndef ECFS_VERBS_ENDPOINTS_H
#define ECFS_VERBS_ENDPOINTS_H

#include "archive/archive.h"

/** Adds an endpoint as `ecfs init --endpoint` takes it, by the mount where the archive is mounted. */
bool ecfs_control_endpoint_add (const char *archive_dir, const char *endpoint, GError **error);
/** Has nothing believed that an endpoint says, or again; through the mount where there is one. */
bool ecfs_control_endpoint_distrust (const char *archive_dir, const char *name, bool undo, GError **error);

/** "active", "readonly" or "draining"; EINVAL. */
bool ecfs_control_state_parse (const char *text, EcfsEndpointState *ret_state, GError **error);

#endif
