/* What `ecfs metrics` prints: OpenMetrics text of a status. */
#ifndef ECFS_METRICS_H
#define ECFS_METRICS_H

#include "tool.h"

/**
 * The metrics of @directory by the members of ecfs_survey (); those that it lacks are left out. @status NULL: the
 * archive cannot be opened, and that is all that is told. @now_s: seconds since 1970, by which ages are told. g_free ()
 */
char *metrics_text (const char *directory, JsonObject *status, int64_t now_s);

#endif
