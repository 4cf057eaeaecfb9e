/* What the parts of status.h share: status.c, and status_repairs.c about damage. */
#ifndef ECFS_VERBS_STATUS_PRIV_H
#define ECFS_VERBS_STATUS_PRIV_H

#include "archive/common.h"
#include "verbs/status.h"

/** JSON is UTF-8; names and what errors say of them are bytes. */
void ecfs_status_add_text (JsonObject *object, const char *member, const char *text);

/** The queue of repairs, of which @rows (EcfsRepairRow) is all, and what became of it behind this mount. */
void ecfs_status_add_repairs (JsonObject *status, EcfsArchive *archive, const GArray *rows);

/** The state of a stripe at an endpoint: what readers met of it, which @repairs tells, comes before whether the
 * endpoint can be reached. */
void ecfs_status_add_stripe (JsonObject *facts, const EcfsArchiveEndpoint *endpoint, const GArray *repairs,
                             unsigned index);

#endif
