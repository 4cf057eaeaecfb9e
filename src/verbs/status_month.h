/* What endpoints have used of this calendar month, and what that costs, as facts of a status. */
#ifndef ECFS_VERBS_STATUS_MONTH_H
#define ECFS_VERBS_STATUS_MONTH_H

#include "archive/common.h"

#include <json-glib/json-glib.h>

/** What it has used of this month, where it has limits or prices, as "month"; with costs where it is known what is
 * @stored there in bytes (may be NULL). */
void ecfs_status_add_month (JsonObject *facts, EcfsEndpoint *endpoint, const uint64_t *stored);
/** The sum of all endpoints that are told already, and why that may be wrong; nothing where none has limits or prices.
 */
void ecfs_status_add_month_sum (JsonObject *status, EcfsArchive *archive);
/** How many bytes each endpoint has, by position, where storage has a price, else 0; g_free (). */
uint64_t *ecfs_status_stored (EcfsArchive *archive, GError **error);

#endif
