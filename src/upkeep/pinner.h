/*
 * Keeps in the cache what the attribute user.ecfs.pin says, and fetches what of it is not there. Walks over what is
 * pinned, now and then and when something was pinned; what the last walk did not find pinned may go again.
 */
#ifndef ECFS_UPKEEP_PINNER_H
#define ECFS_UPKEEP_PINNER_H

#include "archive/archive.h"

typedef struct EcfsPinner EcfsPinner;

/** For a mount; NULL: the archive has no cache. */
EcfsPinner *ecfs_pinner_start (EcfsArchive *archive);
/** Something was pinned, or is not any more. Thread-safe. NULL is accepted, as by the next. */
void ecfs_pinner_hurry (EcfsPinner *self);
/** Cancels what is under way. */
void ecfs_pinner_stop (EcfsPinner *self);

#endif
