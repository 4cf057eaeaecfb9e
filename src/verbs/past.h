/* The archive as it was at a moment. */
#ifndef ECFS_VERBS_PAST_H
#define ECFS_VERBS_PAST_H

#include "recover/recover.h"

#include <json-glib/json-glib.h>
#include <stdbool.h>
#include <stdint.h>

/** What ecfs_parse_moment () makes of it; EINVAL, also of what has not come yet. */
bool ecfs_past_moment (const char *text, int64_t *ret_ns, GError **error);

/** What became of a path, as ecfs_log () tells it; json_array_unref (). */
JsonArray *ecfs_past_log (const char *archive_dir, const char *path, GError **error);

/** Shows all of the past to @watch, of the journal alone, and leaves a directory of what comes of it, for
 * ecfs_past_close (). NULL. */
char *ecfs_past_replay (const char *archive_dir, const EcfsRecoverWatch *watch, EcfsRecovered *ret_recovered,
                        GError **error);

#endif
