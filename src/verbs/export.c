/* The verbs export and fetch: a file's descriptor, and what it describes. */
#include "util/io.h"
#include "verbs/descriptor.h"
#include "verbs/verbs.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

char *ecfs_export (Ecfs *self, const char *path, bool fec, GError **error)
{
    g_autoptr (EcfsDescriptor) descriptor = ecfs_descriptor_export (self->archive, path, error);
    if (descriptor == NULL)
        return NULL;
    return fec ? ecfs_descriptor_format_fec (descriptor, error) : ecfs_descriptor_format (descriptor);
}

/* Without a name, where the file system can: then nothing is left of it when this process is ended. */
static int open_unfinished (const char *path, const char *temporary, GError **error)
{
    struct stat st;
    g_autofree char *directory = g_path_get_dirname (path);
    if (lstat (path, &st) == 0 && S_ISDIR (st.st_mode))
        return ecfs_fail (error, EISDIR, "%s: it is a directory: name the file to write", path) - 1;
    int fd = open (directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR))
        fd = open (temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return fd >= 0 ? fd : ecfs_fail_errno (error, errno, "%s: cannot create a temporary file beside it", path) - 1;
}

static bool give_name (int fd, const char *temporary, const char *path, GError **error)
{
    struct stat st;
    g_autofree char *nameless = g_strdup_printf ("/proc/self/fd/%d", fd), *directory = g_path_get_dirname (path);
    if (fstat (fd, &st) != 0 ||
        (st.st_nlink == 0 && linkat (AT_FDCWD, nameless, AT_FDCWD, temporary, AT_SYMLINK_FOLLOW) != 0) ||
        rename (temporary, path) != 0)
        return ecfs_fail_errno (error, errno, "%s", path);
    int result = ecfs_fsync_dir (AT_FDCWD, directory);
    return result == 0 || ecfs_fail_errno (error, -result, "%s: cannot make it durable", path);
}

bool ecfs_fetch (const char *descriptor_path, const char *path, const char *const *endpoints, GError **error)
{
    g_autofree char *text = NULL;
    size_t size;
    if (!ecfs_read_file (descriptor_path, ECFS_DESCRIPTOR_MAX_BYTES, &text, &size, error))
        return false;
    g_autoptr (EcfsDescriptor) descriptor = ecfs_descriptor_parse (text, size, error);
    if (descriptor == NULL)
        return ecfs_prefix (error, "%s", descriptor_path);
    g_autofree char *temporary = g_strdup_printf ("%s.ecfs-fetch-%d", path, (int) getpid ());
    ecfs_autofd fd = open_unfinished (path, temporary, error);
    if (fd < 0)
        return false;
    bool fetched = ecfs_descriptor_fetch (descriptor, fd, endpoints, error);
    if (!fetched)
        (void) !ecfs_prefix (error, "%s", path);
    bool good = fetched && give_name (fd, temporary, path, error);
    if (!good)
        (void) unlink (temporary); /* the first error is told */
    return good;
}
