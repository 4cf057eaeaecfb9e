/*
 * What the command `on_event` of ecfs.conf is told beside what a mount's watch sees at once (archive/watch.h): all that
 * a status (status.h) says is wrong. A mount takes its own status now and then, in a thread of its own; `ecfs report`
 * has one where nothing is mounted.
 */
#ifndef ECFS_VERBS_ALARMS_H
#define ECFS_VERBS_ALARMS_H

#include "archive/events.h"

#include <json-glib/json-glib.h>

typedef struct EcfsAlarms EcfsAlarms;

/** Looks at an archive that is mounted for writing, as often as it costs less than a hundredth of a core; not at all
 * where nobody wants to be told. The archive is started; @events is borrowed until stop. */
EcfsAlarms *ecfs_alarms_start (EcfsArchive *archive, EcfsEvents *events);
/** NULL is accepted. */
void ecfs_alarms_stop (EcfsAlarms *self);

/**
 * Notes what @status, which was judged, says of the archive. @seen: which kinds of problems there were at the last
 * look, without which they are not told yet; NULL: nobody looks again, nor watches endpoints and damage, so all of it
 * is told.
 * @point_late_s: how long changes may be known to this machine alone.
 */
void ecfs_alarms_take (EcfsEvents *events, JsonObject *status, uint32_t *seen, int64_t point_late_s);

#endif
