/* Marks: moments with a name, of which everything is kept. */
#ifndef ECFS_VERBS_MARK_H
#define ECFS_VERBS_MARK_H

#include "archive/archive.h"

#include <json-glib/json-glib.h>

/* Before what keeps endpoints from being told. */
#define ECFS_MARKED_HERE "that is so here, and endpoints are told when they can be reached ('ecfs wait')"

/** Sets a mark, or @removes it; durable on this machine. */
bool ecfs_mark_here (EcfsArchive *archive, const char *name, bool removes, GError **error);
/** All of them, as ecfs_marks () tells them; json_array_unref (). */
JsonArray *ecfs_mark_facts (EcfsArchive *archive, GError **error);

#endif
