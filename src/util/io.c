#include "util/io.h"

#include <limits.h>

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define XFS_MAGIC 0x58465342 /* linux/magic.h lacks it */

void ecfs_autofd_cleanup (int *fd)
{
    if (*fd < 0)
        return;
    int saved = errno;
    (void) close (*fd); /* nothing was promised about it: whoever needs the result closes by hand */
    errno = saved;
}

int ecfs_steal_fd (int *fd)
{
    int stolen = *fd;
    *fd = -1;
    return stolen;
}

ssize_t ecfs_pread_all (int fd, void *to, size_t size, uint64_t offset)
{
    struct iovec iov = {.iov_base = to, .iov_len = size};
    return ecfs_preadv_all (fd, &iov, 1, offset);
}

/* Drops @n_bytes bytes from the front of the iovec list; returns the entries that are used up. */
static int advance (struct iovec *iov, int n_iov, size_t n_bytes)
{
    int done = 0;
    while (done < n_iov && n_bytes >= iov[done].iov_len)
        n_bytes -= iov[done++].iov_len;
    if (done < n_iov) {
        iov[done].iov_base = (uint8_t *) iov[done].iov_base + n_bytes;
        iov[done].iov_len -= n_bytes;
    }
    return done;
}

ssize_t ecfs_preadv_all (int fd, struct iovec *iov, int n_iov, uint64_t offset)
{
    ssize_t total = 0;
    while (n_iov > 0) {
        ssize_t got = preadv (fd, iov, MIN (n_iov, IOV_MAX), (off_t) offset + total);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        total += got;
        int done = advance (iov, n_iov, (size_t) got);
        iov += done;
        n_iov -= done;
    }
    return total;
}

/* At @offset, or at the file's own position where that is NULL. */
static int write_iov (int fd, struct iovec *iov, int n_iov, const uint64_t *offset)
{
    off_t total = 0;
    while (n_iov > 0) {
        int n = MIN (n_iov, IOV_MAX);
        ssize_t put = offset == NULL ? writev (fd, iov, n) : pwritev (fd, iov, n, (off_t) *offset + total);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -errno;
        total += put;
        int done = advance (iov, n_iov, (size_t) put);
        iov += done;
        n_iov -= done;
    }
    return 0;
}

int ecfs_pwritev_all (int fd, struct iovec *iov, int n_iov, uint64_t offset)
{
    return write_iov (fd, iov, n_iov, &offset);
}

int ecfs_writev_all (int fd, struct iovec *iov, int n_iov)
{
    return write_iov (fd, iov, n_iov, NULL);
}

int ecfs_pwrite_all (int fd, const void *from, size_t size, uint64_t offset)
{
    struct iovec iov = {.iov_base = (void *) from, .iov_len = size};
    return write_iov (fd, &iov, 1, &offset);
}

int ecfs_write_all (int fd, const void *from, size_t size)
{
    struct iovec iov = {.iov_base = (void *) from, .iov_len = size};
    return write_iov (fd, &iov, 1, NULL);
}

static int copy_data (int from_fd, off_t from, int to_fd, off_t to, off_t end)
{
    while (from < end) {
        ssize_t copied = copy_file_range (from_fd, &from, to_fd, &to, (size_t) (end - from), 0);
        if (copied < 0 && errno != EINTR)
            return -errno;
        if (copied == 0)
            break;
    }
    return 0;
}

bool ecfs_knows_holes (int fd)
{
    static const unsigned long types[] = {EXT4_SUPER_MAGIC, XFS_MAGIC, BTRFS_SUPER_MAGIC, TMPFS_MAGIC};
    struct statfs fs;
    for (size_t i = 0; fstatfs (fd, &fs) == 0 && i < G_N_ELEMENTS (types); i++)
        if (((unsigned long) fs.f_type & 0xffffffff) == types[i])
            return true;
    return fdatasync (fd) == 0;
}

int ecfs_copy_bytes (int from_fd, uint64_t from_offset, int to_fd, uint64_t to_offset, uint64_t size)
{
    off_t shift = (off_t) (to_offset - from_offset), end = (off_t) (from_offset + size);
    if (!ecfs_knows_holes (from_fd))
        return copy_data (from_fd, (off_t) from_offset, to_fd, (off_t) to_offset, end);
    for (off_t at = (off_t) from_offset; at < end;) {
        off_t data = lseek (from_fd, at, SEEK_DATA);
        if (data < 0)
            return errno == ENXIO ? 0 : -errno;
        off_t hole = lseek (from_fd, data, SEEK_HOLE);
        if (hole < 0)
            return -errno;
        hole = MIN (hole, end);
        int result = copy_data (from_fd, data, to_fd, data + shift, hole);
        if (result != 0)
            return result;
        at = hole;
    }
    return 0;
}

int ecfs_nameless_file (const char *directory, GError **error)
{
    int fd = open (directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    if (errno != EOPNOTSUPP && errno != EISDIR)
        return ecfs_fail_errno (error, errno, "%s", directory) - 1;
    /* A file system that has none: a name for a moment. */
    g_autofree char *path = g_build_filename (directory, "nameless-XXXXXX", NULL);
    ecfs_autofd named = mkostemp (path, O_CLOEXEC);
    if (named < 0 || unlink (path) != 0)
        return ecfs_fail_errno (error, errno, "%s", path) - 1;
    return ecfs_steal_fd (&named);
}

int ecfs_fsync_dir (int dir_fd, const char *path)
{
    ecfs_autofd fd = openat (dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return fsync (fd) == 0 ? 0 : -errno;
}

/* The owner is changed only where another is wanted: not everybody may. */
static int set_owner (int fd, const struct stat *wanted)
{
    struct stat now;
    if (fstat (fd, &now) != 0)
        return -errno;
    if (now.st_uid == wanted->st_uid && now.st_gid == wanted->st_gid)
        return 0;
    return fchown (fd, wanted->st_uid, wanted->st_gid) == 0 ? 0 : -errno;
}

/* @owner may be NULL. */
static int write_new_file (int fd, const void *bytes, size_t size, mode_t mode, const struct stat *owner)
{
    int result = ecfs_pwrite_all (fd, bytes, size, 0);
    if (result == 0 && owner != NULL)
        result = set_owner (fd, owner);
    if (result == 0 && fchmod (fd, mode) != 0)
        result = -errno;
    if (result == 0 && fsync (fd) != 0)
        result = -errno;
    return result;
}

static bool replace (const char *path, const void *bytes, size_t size, mode_t mode, const struct stat *owner,
                     GError **error)
{
    g_autofree char *temporary = g_strconcat (path, ".new-XXXXXX", NULL);
    ecfs_autofd fd = g_mkstemp_full (temporary, O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return ecfs_fail_errno (error, errno, "%s: cannot create a temporary file beside it", path);
    int result = write_new_file (fd, bytes, size, mode, owner);
    if (result == 0 && rename (temporary, path) != 0)
        result = -errno;
    if (result != 0) {
        (void) unlink (temporary); /* the error that counts is already known */
        return ecfs_fail_errno (error, -result, "%s: cannot write it", path);
    }
    g_autofree char *directory = g_path_get_dirname (path);
    result = ecfs_fsync_dir (AT_FDCWD, directory);
    return result == 0 || ecfs_fail_errno (error, -result, "%s: cannot make it durable", path);
}

bool ecfs_replace_file (const char *path, const void *bytes, size_t size, mode_t mode, GError **error)
{
    return replace (path, bytes, size, mode, NULL, error);
}

bool ecfs_replace_file_like (const char *path, const void *bytes, size_t size, const struct stat *like, GError **error)
{
    return replace (path, bytes, size, like->st_mode & 0777, like, error);
}

bool ecfs_read_file (const char *path, size_t max_size, char **ret_bytes, size_t *ret_size, GError **error)
{
    ecfs_autofd fd = open (path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat (fd, &st) != 0)
        return ecfs_fail_errno (error, errno, "%s", path);
    if (st.st_size < 0 || (uint64_t) st.st_size > max_size)
        return ecfs_fail (error, EFBIG, "%s: larger than %zu bytes", path, max_size);
    g_autofree char *bytes = g_malloc ((size_t) st.st_size + 1);
    ssize_t got = ecfs_pread_all (fd, bytes, (size_t) st.st_size, 0);
    if (got < 0)
        return ecfs_fail_errno (error, (int) -got, "%s", path);
    bytes[got] = '\0';
    *ret_bytes = g_steal_pointer (&bytes);
    if (ret_size != NULL)
        *ret_size = (size_t) got;
    return true;
}

struct timespec ecfs_timespec (int64_t ns)
{
    struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    if (time.tv_nsec < 0) { /* before 1970 */
        time.tv_nsec += 1000000000;
        time.tv_sec--;
    }
    return time;
}
