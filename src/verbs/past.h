/* The archive as it was at a moment. */
#ifndef ECFS_VERBS_PAST_H
#define ECFS_VERBS_PAST_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/** What ecfs_parse_moment () makes of it; EINVAL, also of what has not come yet. */
bool ecfs_past_moment (const char *text, int64_t *ret_ns, GError **error);

#endif
