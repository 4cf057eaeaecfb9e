/*
 * Whose an archive directory is, and who holds its lock, whose file has the holder's process number and, when mounted,
 * the mountpoint.
 *
 * ecfs.conf names commands that ssh runs, and files that are read and written: whoever could write there would act as
 * whoever runs a verb. So it counts only where it belongs to that user or to root, and nobody else may write there.
 */
#include "archive/archive_priv.h"
#include "archive/catalog_place.h"
#include "archive/common.h"
#include "util/io.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#define MAX_SIZE 8192 /* of the lock's text: a number and a path */

static bool fail_owner (const char *path, uid_t uid, GError **error)
{
    struct passwd entry, *found = NULL;
    char buffer[4096];
    (void) getpwuid_r (uid, &entry, buffer, sizeof buffer, &found); /* without a name the number serves */
    g_autofree char *owner =
        found != NULL ? g_strdup_printf ("user %s", found->pw_name) : g_strdup_printf ("user %u", uid);
    if (geteuid () == 0 && found != NULL)
        return ecfs_fail (error, EPERM,
                          "%s belongs to %s, whose archive could make ecfs run commands as you: use it as its owner "
                          "(sudo -u %s ecfs ...)",
                          path, owner, found->pw_name);
    return ecfs_fail (error, EPERM,
                      "%s belongs to %s, whose archive could make ecfs run commands as you: use it as "
                      "its owner, or chown it",
                      path, owner);
}

bool ecfs_archive_check_owner (const char *path, const struct stat *status, GError **error)
{
    if (S_ISLNK (status->st_mode))
        return ecfs_fail (error, ELOOP, "%s is a symbolic link, which is not followed: put the file itself there",
                          path);
    if (status->st_uid != geteuid () && status->st_uid != 0)
        return fail_owner (path, status->st_uid, error);
    if ((status->st_mode & (S_IWGRP | S_IWOTH)) != 0 && !S_ISSOCK (status->st_mode))
        return ecfs_fail (error, EPERM,
                          "%s can be written by others (mode %04o), who could make ecfs run commands as you: chmod "
                          "go-w it",
                          path, status->st_mode & 07777);
    return true;
}

bool ecfs_archive_is_one (const char *directory)
{
    g_autofree char *config = g_build_filename (directory, ECFS_CONFIG_NAME, NULL);
    return g_file_test (config, G_FILE_TEST_EXISTS) || ecfs_catalog_place_is_there (directory);
}

bool ecfs_archive_check_directory (const char *directory, GError **error)
{
    static const char *const names[] = {"", ECFS_CONFIG_NAME, ECFS_CATALOG_NAME, ECFS_CATALOG_PLACE_NAME,
                                        ECFS_LOCK_NAME};
    ecfs_autofd fd = open (directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return ecfs_fail_errno (error, errno, "%s", directory);
    for (size_t i = 0; i < G_N_ELEMENTS (names); i++) {
        struct stat status;
        g_autofree char *path = i == 0 ? g_strdup (directory) : g_build_filename (directory, names[i], NULL);
        if (fstatat (fd, names[i], &status, i == 0 ? AT_EMPTY_PATH : AT_SYMLINK_NOFOLLOW) != 0) {
            if (errno != ENOENT)
                return ecfs_fail_errno (error, errno, "%s", path);
        } else if (!ecfs_archive_check_owner (path, &status, error)) {
            return false;
        }
    }
    return true;
}

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

static bool tell_holder (const char *directory, int fd, GError **error)
{
    EcfsHolder holder = {0};
    bool known = read_holder (fd, &holder);
    if (!known)
        (void) !ecfs_fail (error, EBUSY, "%s is in use by another process", directory);
    else if (holder.mountpoint != NULL)
        (void) !ecfs_fail (error, EBUSY, "%s is mounted already: on %s by process %ld", directory, holder.mountpoint,
                           (long) holder.pid);
    else
        (void) !ecfs_fail (error, EBUSY, "%s is in use by process %ld, which changes it or is about to mount it",
                           directory, (long) holder.pid);
    ecfs_holder_clear (&holder);
    return false;
}

/* Whoever reads it meanwhile finds the old text or this one: it is not emptied first, and its NUL ends it in front of
 * what is left of a longer one. */
static void sign (const char *directory, int fd, const char *mountpoint)
{
    g_autofree char *text = g_strdup_printf ("%ld\n%s", (long) getpid (), mountpoint != NULL ? mountpoint : "");
    if (ecfs_pwrite_all (fd, text, strlen (text) + 1, 0) == 0) {
        (void) !ftruncate (fd, (off_t) strlen (text)); /* else that stays, and is not read */
        return;
    }
    g_info ("%s: cannot write the process number into the lock", directory);
    (void) !ftruncate (fd, 0); /* what it said is not so any more */
}

int ecfs_archive_lock_directory (const char *directory, GError **error)
{
    g_autofree char *path = g_build_filename (directory, ECFS_LOCK_NAME, NULL);
    ecfs_autofd fd = open (path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        (void) !ecfs_fail_errno (error, errno, "%s", path);
        return -1;
    }
    if (flock (fd, LOCK_EX | LOCK_NB) != 0) {
        (void) !(errno == EWOULDBLOCK ? tell_holder (directory, fd, error)
                                      : ecfs_fail_errno (error, errno, "%s: cannot lock it", path));
        return -1;
    }
    sign (directory, fd, NULL); /* an old name in it would only mislead whoever meets the lock */
    g_autofree char *door = g_build_filename (directory, ECFS_CONTROL_SOCKET, NULL);
    (void) unlink (door); /* of a mount that died: one that lives has the lock */
    int taken = fd;
    fd = -1;
    return taken;
}

bool ecfs_archive_take_lock (EcfsArchive *self, GError **error)
{
    self->lock_fd = ecfs_archive_lock_directory (self->directory, error);
    return self->lock_fd >= 0;
}

int ecfs_archive_keep_lock (const EcfsArchive *self, GError **error)
{
    int fd = fcntl (self->lock_fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        (void) !ecfs_fail_errno (error, errno, "%s: its lock", self->directory);
    return fd;
}

bool ecfs_archive_is_held (const char *directory)
{
    g_autofree char *path = g_build_filename (directory, ECFS_LOCK_NAME, NULL);
    ecfs_autofd fd = open (path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && flock (fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

void ecfs_archive_sign_lock (EcfsArchive *self, const char *mountpoint)
{
    sign (self->directory, self->lock_fd, mountpoint);
}

void ecfs_archive_mounted_on (EcfsArchive *self, const char *mountpoint)
{
    if (self->lock_fd >= 0)
        ecfs_archive_sign_lock (self, mountpoint);
}

bool ecfs_archive_holder (const char *directory, EcfsHolder *ret_holder)
{
    g_autofree char *path = g_build_filename (directory, ECFS_LOCK_NAME, NULL);
    ecfs_autofd fd = open (path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd >= 0 && read_holder (fd, ret_holder);
}

void ecfs_holder_clear (EcfsHolder *holder)
{
    g_clear_pointer (&holder->mountpoint, g_free);
}
