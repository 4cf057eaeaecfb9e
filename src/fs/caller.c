/*
 * What /proc tells about the process behind a request. Only `status` is read, and of it the pending signals: newer
 * kernels keep `stat` and others locked while a process is within execve, where it closes descriptors and waits for
 * our answer.
 */
#include "fs/fs_priv.h"
#include "util/io.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#define STATUS_BYTES 4096

/* The set of signals in the line that begins with @key. */
static guint64 signals_of (const char *status, const char *key)
{
    const char *line = strstr (status, key);
    return line == NULL ? 0 : g_ascii_strtoull (line + strlen (key), NULL, 16);
}

bool ecfs_fs_is_killed (pid_t pid)
{
    char path[64];
    char status[STATUS_BYTES];
    g_snprintf (path, sizeof path, "/proc/%d/status", (int) pid);
    ecfs_autofd fd = pid <= 0 ? -1 : open (path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read (fd, status, sizeof status - 1);
    if (size <= 0)
        return false;
    status[size] = '\0';
    /* The process keeps a SIGKILL among its shared ones until it is reaped: nobody takes it from there. */
    guint64 pending = signals_of (status, "\nSigPnd:\t") | signals_of (status, "\nShdPnd:\t");
    return (pending >> (SIGKILL - 1)) & 1;
}
