/* The staging directory: the names of its files, whether it is this archive's, and whether a file equals what is
 * stored. */
#ifndef ECFS_STAGING_DIRECTORY_H
#define ECFS_STAGING_DIRECTORY_H

#include "archive/archive.h"

#define ECFS_STAGED_COPY_PREFIX  "copy."
#define ECFS_STAGED_ASIDE_PREFIX "aside."
#define ECFS_STAGED_ID_FILE      ".ecfs-staging" /* in the staging directory: that it is this archive's */

char *ecfs_staged_row_name (int64_t row, uint64_t ino);
/** The name under which a file that has the name @name of its row is set aside. */
char *ecfs_staged_aside_name (const char *name);
/** The inode in the name of a file that has or had a row; false: it is no such name. */
bool ecfs_staged_parse_name (const char *name, uint64_t *ret_ino);

/** Whether the staging directory is the one that the archive had before; ENOTCONN. Where it never had one, it is from
 * now on. */
bool ecfs_staged_check_identity (EcfsArchive *archive, int dir_fd, GError **error);
/** Opens a directory of the archive, made when absent; -1 and an error. */
int ecfs_staged_open_dir (EcfsArchive *archive, const char *name, GError **error);

/** Whether @fd holds the committed content of the inode, byte for byte; otherwise the error says why not. */
bool ecfs_staged_verify (EcfsCatalog *catalog, uint64_t ino, int fd, GError **error);

#endif
