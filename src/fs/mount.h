/*
 * The mount: an archive as a directory of this machine, over FUSE's low-level interface.
 *
 * The process that serves it opens the archive itself (SQLite's locks do not survive a fork), so in the background it
 * is the child that does everything; the parent returns when the mount is live, or with the child's error.
 *
 * In the kernel's tables a mount has the type "fuse.ecfs" and the archive directory as its source.
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
    /* What -o says. */
    bool allow_other;
    bool readonly;       /* beside another mount, changing nothing */
    char *log;           /* file for messages, absolute; NULL: syslog or stderr; owned */
    char *at;            /* the moment to show, as ecfs_past_open () takes it; NULL: what is now; owned */
    bool follow;         /* what another machine writes, for reading only */
    bool nonempty;       /* also over a directory that has entries */
    bool remount;        /* change the mount that is there */
    unsigned long flags; /* MS_* of mount(2) */
    GString *fuse_words; /* for libfuse and the kernel, comma-separated; NULL: none */
    unsigned max_read;   /* bytes, also among fuse_words; 0: as much as the kernel asks for */
    /* For measuring what they do. */
    bool clone_fd;        /* each thread takes requests from a descriptor of its own */
    unsigned max_threads; /* that take requests; 0: libfuse's default */
} EcfsMountOptions;

/**
 * Adds the words of a comma-separated -o list. Those that mount(8), fstab and systemd keep for themselves are dropped.
 * EINVAL naming all unknown ones, unless @sloppy.
 */
bool ecfs_mount_options_add (EcfsMountOptions *self, const char *list, bool sloppy, GError **error);
void ecfs_mount_options_clear (EcfsMountOptions *self);

/** Whether there is an archive and a directory to mount it on, as far as that can be told without opening it. */
bool ecfs_mount_check (const EcfsMountOptions *options, GError **error);

/**
 * Mounts and serves until the mount ends: by `ecfs umount`, umount(8), SIGTERM, SIGINT or SIGHUP. What is staged is
 * committed before it returns; a second signal leaves it to the next mount. With `remount` it returns at once.
 *
 * Returns the exit status: 0, or 1 with @error: could not be mounted (EBUSY: this archive is mounted already), or how
 * many files stay in staging.
 */
int ecfs_mount_run (const EcfsMountOptions *options, GError **error);

/** The directory of the archive that is mounted on @mountpoint, g_free (); NULL: none is. Touches nothing there. */
char *ecfs_mounted_archive (const char *mountpoint);

typedef enum EcfsUmountFlags {
    ECFS_UMOUNT_FORCE = 1 << 0, /* stores nothing first; what is under way fails */
    ECFS_UMOUNT_LAZY = 1 << 1,  /* stores nothing first; those who use it continue */
    ECFS_UMOUNT_DEAD = 1 << 2,  /* also where the process behind the mount is gone */
} EcfsUmountFlags;

/**
 * Has everything that is staged stored, then unmounts what is mounted on @path, or the archive whose directory @path
 * is, and returns when the process behind the mount has ended.
 * *ret_directory gets the archive's directory, also with an error where it is known: g_free (). ENOTCONN: the process
 * behind the mount is gone; EPROTO: it lives and cannot be asked; EBUSY: the mount is in use.
 */
bool ecfs_umount (const char *path, unsigned flags, char **ret_directory, GError **error);

#endif
