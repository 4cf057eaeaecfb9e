/* From outside of a mount: finding it in the kernel's table, changing it, ending it. */
#include "archive/common.h"
#include "fs/fs_priv.h"
#include "util/io.h"
#include "wire/wire.h"

#include <libmount.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define END_WAIT_MS 30000 /* for a process that has stored everything and only closes what it has open */

/* The table of mounts */

/* What is mounted on top at @mountpoint, as the kernel spells it; nothing there is touched, for it may be dead. */
static struct libmnt_fs *find_mount (struct libmnt_table *table, const char *mountpoint)
{
    struct libmnt_fs *fs = table == NULL ? NULL : mnt_table_find_target (table, mountpoint, MNT_ITER_BACKWARD);
    return fs != NULL && g_strcmp0 (mnt_fs_get_fstype (fs), ECFS_FSTYPE) == 0 ? fs : NULL;
}

dev_t ecfs_fs_device (const char *mountpoint)
{
    struct libmnt_table *table = mnt_new_table_from_file ("/proc/self/mountinfo");
    struct libmnt_fs *fs = find_mount (table, mountpoint);
    dev_t device = fs == NULL ? 0 : mnt_fs_get_devno (fs);
    mnt_unref_table (table);
    return device;
}

typedef struct Mounted {
    char *mountpoint; /* as the kernel spells it */
    char *directory;  /* of the archive */
    bool readonly;
    bool allow_other;
} Mounted;

static void mounted_clear (Mounted *self)
{
    g_free (self->mountpoint);
    g_free (self->directory);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Mounted, mounted_clear)

static bool has_word (const char *options, const char *word)
{
    return options != NULL && mnt_optstr_get_option (options, word, NULL, NULL) == 0;
}

static bool look_up (const char *mountpoint, Mounted *ret_mounted)
{
    struct libmnt_table *table = mnt_new_table_from_file ("/proc/self/mountinfo");
    struct libmnt_fs *fs = find_mount (table, mountpoint);
    if (fs != NULL)
        *ret_mounted = (Mounted){.mountpoint = g_strdup (mountpoint),
                                 .directory = g_strdup (mnt_fs_get_source (fs)),
                                 .readonly = has_word (mnt_fs_get_fs_options (fs), "ro"),
                                 .allow_other = has_word (mnt_fs_get_fs_options (fs), "allow_other")};
    mnt_unref_table (table);
    return fs != NULL;
}

static bool find (const char *mountpoint, Mounted *ret_mounted, GError **error)
{
    g_autofree char *name = ecfs_kernel_name (mountpoint);
    if (look_up (name, ret_mounted))
        return true;
    char *real = g_file_test (name, G_FILE_TEST_IS_SYMLINK) ? realpath (name, NULL) : NULL;
    bool found = real != NULL && look_up (real, ret_mounted);
    free (real);
    return found || ecfs_fail (error, EINVAL, "%s: no archive is mounted there", name);
}

/* Where the archive in @directory is mounted. EINVAL: nowhere, or on several mountpoints. */
static bool find_archive (const char *directory, Mounted *ret_mounted, GError **error)
{
    struct libmnt_table *table = mnt_new_table_from_file ("/proc/self/mountinfo");
    struct libmnt_iter *iter = mnt_new_iter (MNT_ITER_FORWARD);
    struct libmnt_fs *fs;
    g_autoptr (GPtrArray) mountpoints = g_ptr_array_new_with_free_func (g_free);
    char *real = realpath (directory, NULL);
    while (table != NULL && real != NULL && mnt_table_next_fs (table, iter, &fs) == 0)
        if (g_strcmp0 (mnt_fs_get_fstype (fs), ECFS_FSTYPE) == 0 && g_strcmp0 (mnt_fs_get_source (fs), real) == 0 &&
            g_strcmp0 (mnt_fs_get_root (fs), "/") == 0)
            g_ptr_array_add (mountpoints, g_strdup (mnt_fs_get_target (fs)));
    free (real);
    mnt_free_iter (iter);
    mnt_unref_table (table);
    if (mountpoints->len == 0)
        return ecfs_fail (error, EINVAL, "%s is not mounted", directory);
    if (mountpoints->len > 1)
        return ecfs_fail (error, EINVAL, "%s is mounted on %s and on %s: say which to unmount", directory,
                          (const char *) mountpoints->pdata[0], (const char *) mountpoints->pdata[1]);
    return look_up (mountpoints->pdata[0], ret_mounted) || ecfs_fail (error, EINVAL, "%s is not mounted", directory);
}

char *ecfs_mounted_archive (const char *mountpoint)
{
    g_auto (Mounted) mounted = {0};
    return find (mountpoint, &mounted, NULL) ? g_steal_pointer (&mounted.directory) : NULL;
}

/* Taking a mount away */

static bool run_fusermount (const char *mountpoint, bool lazy)
{
    const char *arguments[] = {
        "fusermount3", "-u", "-q", lazy ? "-z" : "--", lazy ? "--" : mountpoint, lazy ? mountpoint : NULL, NULL};
    int status = -1;
    return g_spawn_sync (NULL, (char **) arguments, NULL,
                         G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL, NULL, NULL,
                         NULL, NULL, &status, NULL) &&
           status == 0;
}

bool ecfs_fs_detach (const char *mountpoint, int flags, GError **error)
{
    if (umount2 (mountpoint, UMOUNT_NOFOLLOW | flags) == 0 ||
        (errno == EPERM && run_fusermount (mountpoint, (flags & MNT_DETACH) != 0)))
        return true;
    bool busy = errno == EPERM || errno == EBUSY; /* fusermount3 tells no reason */
    return ecfs_fail (error, busy ? EBUSY : errno, "%s cannot be unmounted: %s", mountpoint,
                      busy ? "it is in use (fuser -vm shows by whom)" : g_strerror (errno));
}

static JsonNode *request (const char *verb, const char *mountpoint)
{
    JsonObject *object = json_object_new ();
    json_object_set_string_member (object, "verb", verb);
    json_object_set_string_member (object, "mountpoint", mountpoint);
    JsonNode *node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, object);
    return node;
}

/* A descriptor that becomes readable when the process ends that has the archive mounted; -1: not to be had. */
static int watch_holder (const char *directory)
{
    EcfsHolder holder;
    if (!ecfs_archive_holder (directory, &holder))
        return -1;
    int fd = (int) syscall (SYS_pidfd_open, holder.pid, 0);
    ecfs_holder_clear (&holder);
    return fd;
}

static bool is_there (const Mounted *mounted)
{
    g_auto (Mounted) now = {0};
    return look_up (mounted->mountpoint, &now) && g_strcmp0 (now.directory, mounted->directory) == 0;
}

/* The process behind a mount that has no door; 0: there is none any more. */
static pid_t living_holder (const Mounted *mounted)
{
    EcfsHolder holder;
    if (!ecfs_archive_is_held (mounted->directory) || !ecfs_archive_holder (mounted->directory, &holder))
        return 0;
    pid_t pid = g_strcmp0 (holder.mountpoint, mounted->mountpoint) == 0 ? holder.pid : 0; /* else of a later mount */
    ecfs_holder_clear (&holder);
    return pid;
}

/* What is mounted for reading only has no door and nothing to store; nor has what is dead. */
static bool end_unheard (const Mounted *mounted, unsigned flags, GError **error)
{
    if (mounted->readonly || (flags & ECFS_UMOUNT_DEAD) != 0)
        return ecfs_fs_detach (mounted->mountpoint, 0, error);
    pid_t pid = living_holder (mounted);
    if (pid != 0)
        return ecfs_fail (error, EPROTO,
                          "%s: process %ld serves this mount, but %s/" ECFS_CONTROL_SOCKET
                          " is gone, so it cannot be asked to unmount; \"kill %ld\" unmounts it at once, even while it "
                          "is in use, and the process ends when it has stored what is staged",
                          mounted->mountpoint, (long) pid, mounted->directory, (long) pid);
    return ecfs_fail (
        error, ENOTCONN,
        "%s: the process behind this mount is gone; \"fusermount3 -u -z %s\" clears it away, and the next "
        "mount stores what is staged",
        mounted->mountpoint, mounted->mountpoint);
}

bool ecfs_umount (const char *path, unsigned flags, char **ret_directory, GError **error)
{
    g_auto (Mounted) mounted = {0};
    g_autoptr (GError) nothing = NULL;
    if (!find (path, &mounted, &nothing)) {
        bool is_archive = ecfs_archive_is_one (path);
        if (is_archive && !find_archive (path, &mounted, error))
            return false;
        if (!is_archive) {
            g_propagate_error (error, g_steal_pointer (&nothing));
            return false;
        }
    }
    *ret_directory = g_strdup (mounted.directory);
    if ((flags & (ECFS_UMOUNT_FORCE | ECFS_UMOUNT_LAZY)) != 0)
        return ecfs_fs_detach (
            mounted.mountpoint,
            (flags & ECFS_UMOUNT_FORCE ? MNT_FORCE : 0) | (flags & ECFS_UMOUNT_LAZY ? MNT_DETACH : 0), error);
    ecfs_autofd holder = watch_holder (mounted.directory);
    g_autoptr (GError) reason = NULL;
    g_autoptr (JsonNode) question = request ("umount", mounted.mountpoint);
    bool silent = ecfs_control_is_silent (mounted.directory, &reason);
    g_autoptr (JsonNode) answer = silent ? NULL : ecfs_control_call (mounted.directory, question, &reason);
    bool unheard = answer == NULL && (ecfs_errno (reason) == ENOTCONN || (silent && mounted.readonly));
    bool waits = holder >= 0;
    if (unheard && is_there (&mounted)) {
        waits = waits && living_holder (&mounted) != 0; /* who only reads may have no lock, and somebody else has it */
        if (!end_unheard (&mounted, flags, error))
            return false;
    } else if (answer == NULL && !unheard) {
        g_propagate_error (error, g_steal_pointer (&reason));
        return false;
    }
    /* One that has ended by itself may still store what is staged. */
    struct pollfd end = {.fd = holder, .events = POLLIN};
    (void) poll (&end, 1, waits ? END_WAIT_MS : 0); /* who mounts it at once finds the lock free */
    return true;
}

/* What the kernel has cached of a mount outlives its process; how full it is, is always asked. */
static bool is_dead (const char *mountpoint)
{
    struct statvfs room;
    return statvfs (mountpoint, &room) != 0 && errno == ENOTCONN;
}

/* There may be several: each hides those before it. */
void ecfs_fs_clear_dead (const char *directory, const char *mountpoint)
{
    char *real = realpath (directory, NULL);
    bool cleared = real != NULL;
    while (cleared && is_dead (mountpoint)) {
        g_auto (Mounted) mounted = {0};
        cleared = find (mountpoint, &mounted, NULL) && g_str_equal (real, mounted.directory) &&
                  ecfs_fs_detach (mounted.mountpoint, MNT_DETACH, NULL);
        if (cleared)
            g_message ("%s: cleared what an earlier mount left when its process died", mounted.mountpoint);
    }
    free (real);
}

/* Changing it */

/* Whether the process behind the mount may write to the archive, whatever the kernel lets through now. */
static bool is_writable (const Mounted *mounted)
{
    g_autoptr (JsonNode) question = request ("status", mounted->mountpoint);
    g_autoptr (JsonNode) answer = ecfs_control_call (mounted->directory, question, NULL);
    return answer != NULL &&
           g_strcmp0 (json_object_get_string_member_with_default (json_node_get_object (answer), "mountpoint", NULL),
                      mounted->mountpoint) == 0;
}

bool ecfs_fs_remount (const EcfsMountOptions *options, GError **error)
{
    g_auto (Mounted) mounted = {0};
    if (!find (options->mountpoint, &mounted, error))
        return false;
    if (options->allow_other && !mounted.allow_other)
        return ecfs_fail (error, EINVAL, "%s: allow_other cannot be set by remounting: unmount it, and mount it again",
                          mounted.mountpoint);
    if (!options->readonly && !is_writable (&mounted))
        return ecfs_fail (error, EROFS,
                          "%s was mounted for reading only, without the archive's lock: unmount it, and mount it again",
                          mounted.mountpoint);
    return mount (NULL, mounted.mountpoint, NULL, options->flags | MS_REMOUNT, NULL) == 0 ||
           ecfs_fail_errno (error, errno, "%s cannot be remounted", mounted.mountpoint);
}
