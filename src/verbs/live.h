/*
 * What goes on in a mount at this moment, for who looks every second: counters, figures and what is under way. Nothing
 * is asked of endpoints, and nothing is walked that grows with the archive.
 */
#ifndef ECFS_VERBS_LIVE_H
#define ECFS_VERBS_LIVE_H

#include "archive/archive.h"

#include <json-glib/json-glib.h>

/** The members that ecfs-top(1) lists. Any thread. */
JsonObject *ecfs_archive_live (EcfsArchive *self, GError **error);

#endif
