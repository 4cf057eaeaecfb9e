/* What ends on other threads, in the order in which it does, for the one thread that began it. */
#ifndef ECFS_ARCHIVE_ENDED_H
#define ECFS_ARCHIVE_ENDED_H

#include "util/lock.h"

#include <glib.h>

typedef struct EcfsEnded {
    EcfsMutex lock;
    EcfsCond moved;
    GQueue queue; /* guarded by lock */
} EcfsEnded;

void ecfs_ended_init (EcfsEnded *self);
/** Everything was taken. */
void ecfs_ended_clear (EcfsEnded *self);
/** From any thread. */
void ecfs_ended_push (EcfsEnded *self, void *what);
/** All that there is; waits for something, at most @patience_us. */
GQueue ecfs_ended_take (EcfsEnded *self, int64_t patience_us);

#endif
