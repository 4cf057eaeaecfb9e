/* What verbs do to endpoints. */
#ifndef ECFS_VERBS_ENDPOINTS_H
#define ECFS_VERBS_ENDPOINTS_H

#include "archive/archive.h"

/** The state of that word, where a user can give it to an endpoint; EINVAL. */
bool ecfs_control_state_parse (const char *text, EcfsEndpointState *ret_state, GError **error);

#endif
