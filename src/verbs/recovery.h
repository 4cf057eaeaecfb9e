/* What recovering into a new directory and taking an archive over in its own directory share. */
#ifndef ECFS_VERBS_RECOVERY_H
#define ECFS_VERBS_RECOVERY_H

#include "ecfs/ecfs.h"
#include "recover/recover.h"

/** As ecfs_recover (); @base: its configuration, archive and keys, in place of what @what says of them. */
char *ecfs_recover_as (const char *directory, const EcfsRecovery *what, const EcfsRecover *base, GError **error);

#endif
