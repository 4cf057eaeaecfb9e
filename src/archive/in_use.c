#include "archive/in_use.h"

#include "util/error.h"
#include "util/io.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME     ECFS_IN_USE_NAME
#define MOST_FD  128
#define NS_PER_S 1000000000

/* What the file says of itself. */
static char *identity_of (int fd, GError **error)
{
    struct statx info;
    if (statx (fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &info) != 0) {
        (void) !ecfs_fail_errno (error, errno, NAME);
        return NULL;
    }
    const int64_t born_ns =
        (info.stx_mask & STATX_BTIME) != 0 ? info.stx_btime.tv_sec * NS_PER_S + (int64_t) info.stx_btime.tv_nsec : 0;
    return g_strdup_printf ("%" G_GUINT64_FORMAT " %" G_GINT64_FORMAT "\n", (guint64) info.stx_ino, born_ns);
}

static bool say (int fd, const char *directory, const char *identity, GError **error)
{
    ecfs_autofd dir_fd = open (directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int result = ftruncate (fd, 0) == 0 ? ecfs_pwrite_all (fd, identity, strlen (identity), 0) : -errno;
    if (result == 0 && fsync (fd) != 0)
        result = -errno;
    if (result == 0 && (dir_fd < 0 || fsync (dir_fd) != 0))
        result = -errno;
    return result == 0 || ecfs_fail_errno (error, -result, "%s/" NAME, directory);
}

bool ecfs_in_use_begin (const char *directory, GError **error)
{
    char said[MOST_FD + 1] = "";
    g_autofree char *path = g_build_filename (directory, NAME, NULL);
    ecfs_autofd fd = open (path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return ecfs_fail_errno (error, errno, "%s", path);
    ssize_t got = ecfs_pread_all (fd, said, MOST_FD, 0);
    g_autofree char *identity = got < 0 ? NULL : identity_of (fd, error);
    if (got < 0)
        return ecfs_fail_errno (error, (int) -got, "%s", path);
    if (identity == NULL)
        return ecfs_prefix (error, "%s", directory);
    if (g_str_equal (said, identity))
        return true;
    if (!g_str_has_suffix (said, "\n")) /* it is new, or who made it died before all was said */
        return say (fd, directory, identity, error);
    return ecfs_fail (error, ESTALE,
                      "%s is a copy that was made while the archive was in use, and nobody can tell what was stored "
                      "since: make a new one with 'ecfs recover', or mount this one for reading only with 'ecfs mount "
                      "-o ro'; where it was only moved after a crash, and nobody has another, remove %s first",
                      directory, path);
}

void ecfs_in_use_end (const char *directory)
{
    g_autofree char *path = g_build_filename (directory, NAME, NULL);
    if (unlink (path) != 0 && errno != ENOENT)
        g_info ("%s: %s", path, g_strerror (errno));
}
