/*
 * Packs small files behind their users: what is in logs that have ended, and in packs of which little is left, becomes
 * packs in the files' own codes. What a pack has of a file that changed meanwhile is nobody's, and logs and packs that
 * no file needs any more go.
 */
#ifndef ECFS_UPKEEP_PACKER_H
#define ECFS_UPKEEP_PACKER_H

#include "archive/archive.h"

typedef struct EcfsPacker EcfsPacker;

/** For a mount; the archive's logs end in time from then on, too. */
EcfsPacker *ecfs_packer_start (EcfsArchive *archive);
/** Cancels what is under way. NULL is accepted. */
void ecfs_packer_stop (EcfsPacker *self);

#endif
