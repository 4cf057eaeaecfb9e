/* Content that only this machine has, as plain files under the paths that it had, for its owner to copy. */
#ifndef ECFS_VERBS_UNSTORED_KEEP_H
#define ECFS_VERBS_UNSTORED_KEEP_H

#include "ecfs/ecfs.h"
#include "verbs/unstored.h"

/* Where it goes. Names that are too long for a file go to long-names/, by the numbers of their inodes. */
typedef struct EcfsUnstoredSink {
    const char *directory; /* made when there is anything */
    void (*warn) (void *user, const char *text);
    void *user;
} EcfsUnstoredSink;

/**
 * Writes files of @unstored that are stored, and that @newer has no equal of. What cannot be written or read is told:
 * *ret_n_failed; *ret_n: the others. Both are added to.
 */
bool ecfs_unstored_keep_stored (Ecfs *reading, EcfsCatalog *newer, const GPtrArray *unstored,
                                const EcfsUnstoredSink *to, guint *ret_n, guint *ret_n_failed, GError **error);

/**
 * Moves what the staging area has of @unstored into @directory; what was written and not closed gets names that end
 * with ".unfinished". Whoever goes on makes the directory durable. *ret_n is added to. Can be repeated.
 */
bool ecfs_unstored_keep_staged (EcfsArchive *archive, const GPtrArray *unstored, const char *directory, guint *ret_n,
                                GError **error);

#endif
