#include "archive/in_use.h"

#include "util/error.h"
#include "util/io.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST     128 /* bytes in it */
#define NS_PER_S 1000000000

/* What the file says of itself. */
static char *identity_of (int fd, GError **error)
{
    struct statx info;
    if (statx (fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &info) != 0) {
        (void) !ecfs_fail_errno (error, errno, "what file it is");
        return NULL;
    }
    const int64_t born_ns =
        (info.stx_mask & STATX_BTIME) != 0 ? info.stx_btime.tv_sec * NS_PER_S + (int64_t) info.stx_btime.tv_nsec : 0;
    return g_strdup_printf ("%" G_GUINT64_FORMAT " %" G_GINT64_FORMAT "\n", (guint64) info.stx_ino, born_ns);
}

/* What it says, and what is so; false: error. Both are NULL where there is no file. */
static bool compare (const char *path, char **ret_said, char **ret_identity, GError **error)
{
    char said[MOST + 1] = "";
    ecfs_autofd fd = open (path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    *ret_said = *ret_identity = NULL;
    if (fd < 0)
        return errno == ENOENT || ecfs_fail_errno (error, errno, "%s", path);
    ssize_t got = ecfs_pread_all (fd, said, MOST, 0);
    if (got < 0)
        return ecfs_fail_errno (error, (int) -got, "%s", path);
    *ret_identity = identity_of (fd, error);
    if (*ret_identity == NULL)
        return ecfs_prefix (error, "%s", path);
    *ret_said = g_strdup (said);
    return true;
}

bool ecfs_in_use_check (const char *directory, GError **error)
{
    g_autofree char *path = g_build_filename (directory, ECFS_IN_USE_NAME, NULL), *said = NULL, *identity = NULL;
    if (!compare (path, &said, &identity, error))
        return false;
    /* Who made it may have died before all was said. */
    if (said == NULL || g_str_equal (said, identity) || !g_str_has_suffix (said, "\n"))
        return true;
    return ecfs_fail (error, ESTALE,
                      "%s is a copy that was made while the archive was in use, and nobody can tell what was stored "
                      "since; make a new one with 'ecfs recover', or mount this one for reading only with 'ecfs mount "
                      "-o ro'; where it was only moved after a crash, and nobody has another, remove %s first",
                      directory, path);
}

static int write_identity (int fd, const char *directory, const char *identity)
{
    ecfs_autofd dir_fd = open (directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0 || ftruncate (fd, 0) != 0)
        return -errno;
    int result = ecfs_pwrite_all (fd, identity, strlen (identity), 0);
    if (result == 0 && (fsync (fd) != 0 || fsync (dir_fd) != 0))
        result = -errno;
    return result;
}

bool ecfs_in_use_begin (const char *directory, GError **error)
{
    g_autofree char *path = g_build_filename (directory, ECFS_IN_USE_NAME, NULL), *said = NULL, *identity = NULL;
    ecfs_autofd fd = open (path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return ecfs_fail_errno (error, errno, "%s", path);
    if (!compare (path, &said, &identity, error))
        return false;
    int result = g_strcmp0 (said, identity) == 0 ? 0 : write_identity (fd, directory, identity);
    return result == 0 || ecfs_fail_errno (error, -result, "%s", path);
}

void ecfs_in_use_end (const char *directory)
{
    g_autofree char *path = g_build_filename (directory, ECFS_IN_USE_NAME, NULL);
    if (unlink (path) != 0 && errno != ENOENT)
        g_info ("%s: %s", path, g_strerror (errno));
}
