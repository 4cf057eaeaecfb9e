/* Whole reads and writes on file descriptors, and the small file chores that GLib does with paths only. */
#ifndef ECFS_UTIL_IO_H
#define ECFS_UTIL_IO_H

#include "util/error.h"

#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

/** Closes at the end of the scope when not -1; errno is preserved. */
#define ecfs_autofd __attribute__ ((cleanup (ecfs_autofd_cleanup))) int
void ecfs_autofd_cleanup (int *fd);

/** The descriptor in *fd, which becomes -1. */
int ecfs_steal_fd (int *fd);

/**
 * Reads until @size bytes are there or the file ends, whatever signals and short reads come between.
 * Returns the bytes read, or -errno.
 */
ssize_t ecfs_pread_all (int fd, void *to, size_t size, uint64_t offset);

/** The same into @iov, whose entries are used up (changed) by the call. */
ssize_t ecfs_preadv_all (int fd, struct iovec *iov, int n_iov, uint64_t offset);

/** Writes all of @size bytes. Returns 0 or -errno. */
int ecfs_pwrite_all (int fd, const void *from, size_t size, uint64_t offset);

/** Writes all of @size bytes to a pipe, socket or file at its position. Returns 0 or -errno. */
int ecfs_write_all (int fd, const void *from, size_t size);

/** The same two of all that @iov holds, whose entries are used up (changed) by the call. */
int ecfs_pwritev_all (int fd, struct iovec *iov, int n_iov, uint64_t offset);
int ecfs_writev_all (int fd, struct iovec *iov, int n_iov);

/**
 * Whether what SEEK_DATA and SEEK_HOLE tell of a file is true now; false: all of it is to be taken for data. Some file
 * systems (OpenZFS) tell of a hole where bytes were written that are not on the disk: there they are brought to it.
 */
bool ecfs_knows_holes (int fd);

/**
 * Copies @size bytes at @from_offset of one file to @to_offset of another on the same file system; holes stay holes,
 * and what lies behind the end is left out. Returns 0 or -errno.
 */
int ecfs_copy_bytes (int from_fd, uint64_t from_offset, int to_fd, uint64_t to_offset, uint64_t size);

/** A new file in @directory that has no name, and so is gone with its last descriptor, whatever ends the process. -1.
 */
int ecfs_nameless_file (const char *directory, GError **error);

/** fsyncs the directory @path (relative to @dir_fd). Returns 0 or -errno. */
int ecfs_fsync_dir (int dir_fd, const char *path);

/**
 * Replaces the file @path with @size bytes so that a crash leaves the old or the new content: temporary file in the
 * same directory, fsync, rename, fsync of the directory. The file gets @mode.
 */
bool ecfs_replace_file (const char *path, const void *bytes, size_t size, mode_t mode, GError **error);
/** The same; the file gets the mode, owner and group of @like, or stays as it is where it cannot. */
bool ecfs_replace_file_like (const char *path, const void *bytes, size_t size, const struct stat *like, GError **error);

/** A time in nanoseconds since 1970, also of before, as the system takes it. */
struct timespec ecfs_timespec (int64_t ns);

/** Reads a whole file of at most @max_size bytes; larger is EFBIG. The bytes get a NUL behind them. */
bool ecfs_read_file (const char *path, size_t max_size, char **ret_bytes, size_t *ret_size, GError **error);

#endif
