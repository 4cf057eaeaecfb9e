/* Content that only this machine has, as plain files under the paths that it had, for its owner to copy. */
#ifndef ECFS_VERBS_UNSTORED_KEEP_H
#define ECFS_VERBS_UNSTORED_KEEP_H

#include "ecfs/ecfs.h"
#include "verbs/unstored.h"

/**
 * Writes files of @unstored that are stored, and that @newer has no equal of, into @directory, which is made when
 * there is anything. What cannot be read is told (@warn) and left out. *ret_n: how many.
 */
bool ecfs_unstored_keep_stored (Ecfs *reading, EcfsCatalog *newer, const GPtrArray *unstored, const char *directory,
                                void (*warn) (void *user, const char *text), void *user, guint *ret_n, GError **error);

/**
 * Moves what the staging area has of @unstored into @directory; what was written and not closed gets names that end
 * with ".unfinished". Durable. Nothing that @archive's catalog names has content in the staging area any more. *ret_n
 * is added to. Can be repeated.
 */
bool ecfs_unstored_keep_staged (EcfsArchive *archive, const GPtrArray *unstored, const char *directory, guint *ret_n,
                                GError **error);

#endif
