/* The inside of the file:// driver: file.c (options, the walk to a file, operations, the loop) and file_write.c. */
#ifndef ECFS_ENDPOINT_CORE_FILE_PRIV_H
#define ECFS_ENDPOINT_CORE_FILE_PRIV_H

#include "endpoint/core/driver.h"

#define ECFS_FILE_N_OPEN 8

typedef struct EcfsDirectoryFile {
    char *name; /* NULL: free */
    int fd;
    uint64_t used; /* when, by the connection's counter */
} EcfsDirectoryFile;

/* A connection; everything is of the slot's thread. */
typedef struct EcfsDirectory {
    EcfsSlot *slot;
    const char *root;
    unsigned directory_mode;
    int root_fd;
    int64_t root_checked_us;
    EcfsDirectoryFile open[ECFS_FILE_N_OPEN];
    uint64_t n_uses;
    uint8_t *piece; /* memory for those that are lent */
    size_t piece_bytes;
    GQueue writes; /* EcfsStream, parked or not, logs too; file_write.c */
} EcfsDirectory;

/* file.c */

/** Whether the path still leads to the directory that is held open: unmounted or exchanged ones must take nothing. */
bool ecfs_file_check_root (EcfsDirectory *self, GError **error);
/** The directory in which @name lies, which @make makes, and its last part. Returns a descriptor or -errno. */
int ecfs_file_open_parent (EcfsDirectory *self, const char *name, bool make, const char **ret_leaf);
/** Ends the request with the errno @code and the words for it. */
void ecfs_file_fail_named (EcfsStream *request, int code);

/* file_write.c */

void ecfs_file_write_begin (EcfsDirectory *self, EcfsStream *request);
void ecfs_file_log_begin (EcfsDirectory *self, EcfsStream *request);
/** Moves every write and log on by one step. Returns whether any had something to do. */
bool ecfs_file_step_writes (EcfsDirectory *self);
/** Lets go of all of them; the requests stay with the core, which fails them. */
void ecfs_file_abandon_writes (EcfsDirectory *self);
/** Both return 0 or an errno. */
int ecfs_file_unlink (EcfsDirectory *self, const char *name);
int ecfs_file_store_marker (EcfsDirectory *self, const EcfsStream *request);

#endif
