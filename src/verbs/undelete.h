/*
 * Bringing back what was deleted or overwritten: by the process that has the archive open for writing, from a catalog
 * of the past (past.h).
 */
#ifndef ECFS_VERBS_UNDELETE_H
#define ECFS_VERBS_UNDELETE_H

#include "verbs/names.h"
#include "verbs/verbs.h"

typedef struct EcfsUndeleteHere {
    const char *past;                    /* directory of the past */
    const char *const *paths;            /* NULL-terminated */
    int64_t at_ns;                       /* the moment that this is, since 1970 */
    bool keep;                           /* what is there under the name of a file of then stays */
    int64_t looked_us;                   /* when (ecfs_now_us ()) that began to be made; 0: nobody knows */
    const char *notes;                   /* as EcfsPruneNotes had them before the past was made; NULL: nobody looked */
    const EcfsTransferOptions *transfer; /* may be NULL */
    const EcfsNameWatch *watch;          /* who is to know; NULL: nobody else uses the archive */
} EcfsUndeleteHere;

/** What the paths led to comes back, with all below them. Durable when true. */
bool ecfs_undelete_here (EcfsArchive *archive, const EcfsUndeleteHere *what, GError **error);
bool ecfs_release_brake_mounted (const char *archive_dir, GError **error);
bool ecfs_undelete_mounted (const char *archive_dir, const EcfsUndeleteHere *what, GError **error);

#endif
