/* What api.c, get.c, put.c and the stores behind it share. */
#ifndef ECFS_VERBS_VERBS_H
#define ECFS_VERBS_VERBS_H

#include "archive/archive.h"
#include "ecfs/ecfs.h"

#include <sys/stat.h>

struct Ecfs {
    EcfsArchive *archive;
    bool writable;
    char *past;        /* a directory of the past, which goes with it; NULL: it is as it is now; owned */
    bool mounted;      /* somewhere, and open here for reading only: what is put goes through the mount */
    bool silent;       /* that mount does not answer */
    uint64_t sequence; /* of the archive, when it was opened */
    char *told[2];     /* texts that ecfs_stat () lent: path and target; owned */
};

/** Whether it is open for what is done once for all that have the archive open: by its mount, which says so itself, or
 * here, and nobody else leads. EROFS, EBUSY. */
bool ecfs_check_leads (const Ecfs *self, GError **error);

/* Books about a transfer: counts, problems, and when to tell the caller. The caller's thread only. */
typedef struct EcfsTally {
    const EcfsTransferOptions *transfer;
    uint64_t wire_bytes; /* for the next report; set by who knows it */
    EcfsProgress progress;
    int64_t next_us; /* when progress is to be told again */
    bool cancelled;
    GError *first; /* problem that was no warning */
} EcfsTally;

/** Tells progress when it is time. False when the transfer is to end. */
bool ecfs_tally_tick (EcfsTally *self);
/** Counts a failed file; @error is taken. */
void ecfs_tally_failed (EcfsTally *self, GError *error);
/** Tells something that does not fail the file; @error is taken. */
void ecfs_tally_warn (EcfsTally *self, GError *error);
/** The result of the whole transfer. Clears self. */
bool ecfs_tally_end (EcfsTally *self, const char *failed, GError **error);

/** Inodes with content in staging that is newer than the stored one: int64_t * → EcfsStagingRow *, or NULL. */
GHashTable *ecfs_staged_rows (EcfsCatalog *catalog, GError **error);
/** Warns where an inode has newer content in @staged, of the above, than what is stored; EAGAIN: nothing is stored. */
bool ecfs_tally_check_staged (EcfsTally *self, GHashTable *staged, uint64_t ino, const char *path, GError **error);

/** Bytes to and from all endpoints since the archive was opened. */
uint64_t ecfs_archive_wire_bytes (EcfsArchive *archive);

/** Whether an extended attribute travels with a file: the user namespace without what ecfs itself answers. */
bool ecfs_xattr_travels (const char *name);

#endif
