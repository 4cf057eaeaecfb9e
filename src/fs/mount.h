/*
 * The mount: an archive as a directory of this machine, over FUSE's low-level interface.
 *
 * The process that serves it opens the archive itself (SQLite's locks do not survive a fork), so in the background it
 * is the child that does everything; the parent returns when the mount is live, or with the child's error.
 */
#ifndef ECFS_FS_MOUNT_H
#define ECFS_FS_MOUNT_H

#include <glib.h>
#include <stdbool.h>

typedef struct EcfsMountOptions {
    const char *directory; /* of the archive */
    const char *mountpoint;
    bool foreground; /* stay, and log to stderr; else to syslog, once the mount is live */
    bool debug;      /* every FUSE request to stderr; implies foreground */
    bool allow_other;
    bool readonly;            /* beside another mount, changing nothing */
    const char *fuse_options; /* further "-o" options for libfuse and the kernel, comma-separated; may be NULL */
} EcfsMountOptions;

/**
 * Mounts and serves until the mount ends: by `ecfs umount`, umount(8), SIGTERM, SIGINT or SIGHUP. What is staged is
 * committed before it returns; a second signal leaves it to the next mount.
 *
 * Returns the exit status: 0, or 1 with @error: could not be mounted (EBUSY: this archive is mounted already), or how
 * many files stay in staging.
 */
int ecfs_mount_run (const EcfsMountOptions *options, GError **error);

#endif
