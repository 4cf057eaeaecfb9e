/*
 * Watches the endpoints of an archive that is mounted for writing: notes in ARCHIVE/down-since when one went down, so
 * that `ecfs status` can tell it after a restart too, and has the events (events.h) told that an endpoint went down, is
 * up again, or that a stripe was found damaged. Also has the shares of the archive's key watched (key_watch.h). A
 * thread of its own looks every two seconds.
 */
#ifndef ECFS_ARCHIVE_WATCH_H
#define ECFS_ARCHIVE_WATCH_H

#include "archive/events.h"

typedef struct EcfsWatch EcfsWatch;

/** The archive is started, and stopped after this. Steps @events, which is borrowed until stop. */
EcfsWatch *ecfs_watch_start (EcfsArchive *archive, EcfsEvents *events);
/** NULL is accepted. */
void ecfs_watch_stop (EcfsWatch *self);

/** When the endpoint went down, in seconds since 1970, as a mount noted it; 0: none has. Thread-safe. */
int64_t ecfs_watch_noted (EcfsArchive *archive, const EcfsUuid *endpoint);

#endif
