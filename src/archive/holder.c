/* The lock of an archive and who holds it: its file has the holder's process number and, when mounted, the mountpoint.
 */
#include "archive/archive_priv.h"
#include "util/io.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#define MAX_SIZE 8192 /* of the lock's text: a number and a path */

static bool read_holder (int fd, EcfsHolder *ret_holder)
{
    g_autofree char *text = g_malloc (MAX_SIZE);
    ssize_t size = ecfs_pread_all (fd, text, MAX_SIZE - 1, 0);
    text[MAX (size, 0)] = '\0';
    char *end;
    long pid = strtol (text, &end, 10);
    if (pid <= 0 || (*end != '\n' && *end != '\0'))
        return false;
    char *mountpoint = *end == '\n' ? end + 1 : end;
    *ret_holder = (EcfsHolder){.pid = (pid_t) pid, .mountpoint = *mountpoint == '\0' ? NULL : g_strdup (mountpoint)};
    return true;
}

static bool tell_holder (EcfsArchive *self, GError **error)
{
    EcfsHolder holder = {0};
    bool known = read_holder (self->lock_fd, &holder);
    if (!known)
        (void) !ecfs_fail (error, EBUSY, "%s is in use by another process", self->directory);
    else if (holder.mountpoint != NULL)
        (void) !ecfs_fail (error, EBUSY, "%s is mounted already: on %s by process %ld", self->directory,
                           holder.mountpoint, (long) holder.pid);
    else
        (void) !ecfs_fail (error, EBUSY, "%s is in use by process %ld, which changes it or is about to mount it",
                           self->directory, (long) holder.pid);
    ecfs_holder_clear (&holder);
    return false;
}

bool ecfs_archive_take_lock (EcfsArchive *self, GError **error)
{
    g_autofree char *path = g_build_filename (self->directory, ECFS_LOCK_NAME, NULL);
    self->lock_fd = open (path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (self->lock_fd < 0)
        return ecfs_fail_errno (error, errno, "%s", path);
    if (flock (self->lock_fd, LOCK_EX | LOCK_NB) == 0) {
        (void) !ftruncate (self->lock_fd, 0); /* an old name in it would only mislead whoever meets the lock */
        return true;
    }
    return errno == EWOULDBLOCK ? tell_holder (self, error)
                                : ecfs_fail_errno (error, errno, "%s: cannot lock it", path);
}

void ecfs_archive_sign_lock (EcfsArchive *self, const char *mountpoint)
{
    g_autofree char *text = g_strdup_printf ("%ld\n%s", (long) getpid (), mountpoint != NULL ? mountpoint : "");
    if (ftruncate (self->lock_fd, 0) != 0 || ecfs_pwrite_all (self->lock_fd, text, strlen (text), 0) != 0)
        g_info ("%s: cannot write the process number into the lock", self->directory);
}

void ecfs_archive_mounted_on (EcfsArchive *self, const char *mountpoint)
{
    if (self->lock_fd >= 0)
        ecfs_archive_sign_lock (self, mountpoint);
}

bool ecfs_archive_holder (const char *directory, EcfsHolder *ret_holder)
{
    g_autofree char *path = g_build_filename (directory, ECFS_LOCK_NAME, NULL);
    ecfs_autofd fd = open (path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read_holder (fd, ret_holder);
}

void ecfs_holder_clear (EcfsHolder *holder)
{
    g_clear_pointer (&holder->mountpoint, g_free);
}
