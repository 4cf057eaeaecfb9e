#include "fs/mount.h"

#include "archive/catalog_place.h"
#include "archive/peered.h"
#include "archive/watch.h"
#include "control/control.h"
#include "ecfs/ecfs.h"
#include "fs/fs_priv.h"
#include "program/program.h"
#include "util/io.h"
#include "verbs/alarms.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_BACKGROUND 64 /* readahead requests that the kernel may have under way */
/* What is written goes from libfuse's pipe to staging without being copied, but only where a request with its header
 * fits into a pipe, for which the system's bound is 1 MiB. doc/fuse.md has figures. */
#define MAX_WRITE_BYTES   (512u << 10)
#define DRAIN_DEADLINE_US ((int64_t) 24 * 3600 * G_USEC_PER_SEC)
#define SPACE_DEADLINE_US G_USEC_PER_SEC
#define LIVE              'L' /* what the child says on the pipe; an error's text begins with 'E' */

typedef struct Mount {
    EcfsFs fs;
    const EcfsMountOptions *options;
    char *mountpoint; /* absolute */
    struct fuse_session *session;
    struct fuse_conn_info_opts *wanted; /* of what init says to the kernel */
    unsigned readahead_bytes;           /* what came of it */
    EcfsControl *control;
    EcfsReport *report; /* NULL: no service manager started this */
    int *live_fd;       /* becomes -1 when said; -1 in the foreground */
} Mount;

/* What libfuse said last, for the error of a call that failed; recorded while there are no threads. */
static char fuse_said[512];
static bool fuse_recorded = true;

static void log_of_fuse (enum fuse_log_level level, const char *format, va_list arguments) G_GNUC_PRINTF (2, 0);
static void log_of_fuse (enum fuse_log_level level, const char *format, va_list arguments)
{
    static bool goes_on; /* it says a line in pieces */
    g_autofree char *text = g_strdup_vprintf (format, arguments);
    bool ended = g_str_has_suffix (text, "\n");
    g_strchomp (text);
    if (level >= FUSE_LOG_DEBUG) {
        g_debug ("%s", text);
    } else if (level > FUSE_LOG_ERR || !fuse_recorded) {
        g_info ("%s", text);
    } else {
        (goes_on ? g_strlcat : g_strlcpy) (fuse_said, text, sizeof fuse_said);
        goes_on = !ended;
    }
}

/* The session */

/* To the background: nobody sees stderr any more. */
static void detach (void)
{
    ecfs_autofd null = open ("/dev/null", O_RDWR | O_CLOEXEC);
    ecfs_log_init (true, G_LOG_LEVEL_MESSAGE);
    for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
        (void) dup2 (null, fd); /* at worst they stay what they are */
    (void) !chdir ("/");        /* keeps no other mount busy; cannot fail */
}

static void now_live (Mount *self)
{
    bool background = *self->live_fd >= 0;
    if (background)
        detach ();
    g_message ("%s is mounted on %s", ecfs_archive_directory (self->fs.archive), self->mountpoint);
    ecfs_report_ready (self->report);
    if (!background)
        return;
    const char live = LIVE;
    (void) !ecfs_write_all (*self->live_fd, &live, 1); /* without a parent nobody waits */
    (void) close (*self->live_fd);
    *self->live_fd = -1;
}

/* FUSE starts with the system's 128 KiB of readahead, however much the file system allows; root may raise it. */
static void raise_readahead (EcfsFs *fs)
{
    const Mount *self = (const Mount *) fs; /* its first member */
    dev_t device = ecfs_fs_device (self->mountpoint);
    g_autofree char *path =
        g_strdup_printf ("/sys/class/bdi/%u:%u/read_ahead_kb", gnu_dev_major (device), gnu_dev_minor (device));
    ecfs_autofd fd = open (path, O_WRONLY | O_CLOEXEC);
    g_autofree char *kib = g_strdup_printf ("%u\n", self->readahead_bytes / 1024);
    if (fd < 0 || ecfs_write_all (fd, kib, strlen (kib)) != 0)
        g_info ("%s: cannot raise the kernel's readahead; large files are read in smaller pieces", self->mountpoint);
}

static void op_init (void *user, struct fuse_conn_info *conn)
{
    Mount *self = (Mount *) user; /* fs is its first member */
    const unsigned wanted = FUSE_CAP_ASYNC_READ | FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_PARALLEL_DIROPS |
                            FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_SPLICE_READ |
                            FUSE_CAP_SPLICE_WRITE | FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_EXPORT_SUPPORT;
    /* Without HANDLE_KILLPRIV the kernel itself clears set-user-ID bits on write, truncate and chown, by setattr. */
    const unsigned locks = FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS; /* of machines that do not know of each other */
    const unsigned refused = FUSE_CAP_HANDLE_KILLPRIV | FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_POSIX_ACL |
                             FUSE_CAP_DONT_MASK | (self->fs.shared ? 0 : locks);
    conn->want |= wanted & conn->capable;
    if (!self->fs.readonly &&
        !self->fs.shared) { /* nobody else changes content, so new times say nothing about cached pages */
        conn->want &= ~(unsigned) FUSE_CAP_AUTO_INVAL_DATA;
        conn->want |= FUSE_CAP_EXPLICIT_INVAL_DATA & conn->capable;
    }
    conn->max_write = MAX_WRITE_BYTES;
    conn->max_readahead = ECFS_FS_REQUEST_BYTES;
    conn->max_background = MAX_BACKGROUND;
    conn->congestion_threshold = MAX_BACKGROUND * 3 / 4;
    conn->max_read = self->options->max_read;
    fuse_apply_conn_info_opts (self->wanted, conn);
    conn->want &= ~refused;
    self->readahead_bytes = conn->max_readahead;
    now_live (self);
}

/* All that libfuse is told. The source is as fstab's reader resolves it, so that "mount -a" knows what is mounted. */
static GString *session_options (const Mount *self)
{
    const EcfsMountOptions *wanted = self->options;
    const char *directory = ecfs_archive_directory (self->fs.archive);
    char *real = realpath (directory, NULL);
    GString *options = g_string_new ("default_permissions,noatime,subtype=ecfs");
    ecfs_fs_add_option (options, "fsname=", real != NULL ? real : directory);
    free (real);
    if (wanted->allow_other)
        g_string_append (options, ",allow_other");
    if (self->fs.readonly)
        g_string_append (options, ",ro");
    if (wanted->fuse_words != NULL && wanted->fuse_words->len > 0)
        g_string_append_printf (options, ",%s", wanted->fuse_words->str);
    return options;
}

static bool make_session (Mount *self, GError **error)
{
    struct fuse_lowlevel_ops ops = {.init = op_init};
    ecfs_fs_name_ops (&ops);
    ecfs_fs_dir_ops (&ops);
    ecfs_fs_file_ops (&ops);
    ecfs_fs_xattr_ops (&ops);
    if (self->fs.shared)
        ecfs_fs_lock_ops (&ops);

    g_autoptr (GString) options = session_options (self);
    struct fuse_args args = FUSE_ARGS_INIT (0, NULL);
    if (fuse_opt_add_arg (&args, "ecfs") == 0 && fuse_opt_add_arg (&args, "-o") == 0 &&
        fuse_opt_add_arg (&args, options->str) == 0 && (!self->options->debug || fuse_opt_add_arg (&args, "-d") == 0))
        self->wanted = fuse_parse_conn_info_opts (&args);
    if (self->wanted != NULL)
        self->session = fuse_session_new (&args, &ops, sizeof ops, &self->fs);
    fuse_opt_free_args (&args);
    self->fs.session = self->session;
    return self->session != NULL || ecfs_fail (error, EINVAL, "mount options %s: %s", options->str, fuse_said);
}

/* Unmounting */

/* The verb: the mount goes away when nobody uses it, and with it the loop ends. */
static bool umount_unused (void *user, GError **error)
{
    const Mount *self = user;
    return ecfs_fs_detach (self->mountpoint, 0, error);
}

/*
 * After the loop: requests that are under way still get answers from other threads, so the descriptor keeps its number
 * and loses the connection only.
 */
static void hang_up (Mount *self)
{
    int fd = fuse_session_fd (self->session);
    struct pollfd connection = {.fd = fd, .events = POLLIN};
    bool gone = poll (&connection, 1, 0) == 1 && (connection.revents & POLLERR);
    if (!gone)
        (void) !ecfs_fs_detach (self->mountpoint, MNT_DETACH, NULL); /* what stays tells "not connected" */
    int broken[2]; /* a pipe without a reader: writing fails, and libfuse takes it for a mount that is gone */
    if (pipe2 (broken, O_CLOEXEC) != 0)
        return; /* at worst the connection lives until the end */
    (void) close (broken[0]);
    (void) dup3 (broken[1], fd, O_CLOEXEC); /* likewise */
    (void) close (broken[1]);
}

/* Changes by verbs */

/*
 * The kernel keeps names, their absence, and listings for long. It waits here until nobody looks up in the directory;
 * who looks up after that finds what the verb has made. Only then may the inode that lost its name go.
 */
static void verb_renamed (void *user, uint64_t parent, const char *name, const EcfsAttr *lost)
{
    Mount *self = user;
    (void) fuse_lowlevel_notify_inval_entry (self->session, parent, name, strlen (name)); /* it may not know it */
    (void) fuse_lowlevel_notify_inval_inode (self->session, parent, 0, 0);
    if (lost->ino == 0)
        return;
    (void) fuse_lowlevel_notify_inval_inode (self->session, lost->ino, -1, 0);
    ecfs_fs_lost_name (&self->fs, lost);
}

static void verb_changed (void *user, uint64_t ino)
{
    Mount *self = user;
    (void) fuse_lowlevel_notify_inval_inode (self->session, ino, -1, 0); /* likewise */
}

/* Serving */

static const int end_signals[] = {SIGTERM, SIGINT, SIGHUP};

/* Only the main thread takes these: libfuse's loop sleeps there and is to be woken. */
static void set_end_signals (int how)
{
    sigset_t set;
    sigemptyset (&set);
    for (size_t i = 0; i < G_N_ELEMENTS (end_signals); i++)
        sigaddset (&set, end_signals[i]);
    (void) pthread_sigmask (how, &set, NULL); /* fails for invalid arguments only */
}

static void leave_at_once (int number)
{
    static const char text[] = "ecfs: a second signal: what is staged stays for the next mount\n";
    (void) !write (STDERR_FILENO, text, sizeof text - 1); /* the exit status says it too */
    _exit (1);
}

static void leave_at_second_signal (void)
{
    struct sigaction action = {.sa_handler = leave_at_once};
    for (size_t i = 0; i < G_N_ELEMENTS (end_signals); i++)
        (void) sigaction (end_signals[i], &action, NULL); /* fails for invalid arguments only */
}

static bool loop (Mount *self, GError **error)
{
    struct fuse_loop_config *config = fuse_loop_cfg_create ();
    fuse_loop_cfg_set_clone_fd (config, self->options->clone_fd);
    if (self->options->max_threads > 0)
        fuse_loop_cfg_set_max_threads (config, self->options->max_threads);
    if (fuse_set_signal_handlers (self->session) != 0)
        return ecfs_fail (error, EIO, "cannot handle signals");
    set_end_signals (SIG_UNBLOCK);
    fuse_recorded = false;
    int result = fuse_session_loop_mt (self->session, config);
    leave_at_second_signal ();
    fuse_loop_cfg_destroy (config);
    /* A signal ends it with its number, which is no failure. */
    return result >= 0 || ecfs_fail (error, -result, "%s: the connection to the kernel broke", self->mountpoint);
}

static bool mount_and_serve (Mount *self, GError **error)
{
    const EcfsControlOps ops = {.is_reader = self->fs.readonly,
                                .mountpoint = self->mountpoint,
                                .umount = umount_unused,
                                .user = self,
                                .names = {.renamed = verb_renamed, .changed = verb_changed, .user = self}};
    ecfs_archive_keep_space (self->fs.archive, ecfs_now_us () + SPACE_DEADLINE_US); /* df right after it tells */
    /* Before anybody sees the mount: who finds it in the kernel's table may ask it at once. */
    if ((!self->fs.readonly || self->options->follow) &&
        (self->control = ecfs_control_start (self->fs.archive, &ops, error)) == NULL)
        return false;
    bool ok = false;
    if (fuse_session_mount (self->session, self->mountpoint) == 0) {
        ecfs_archive_mounted_on (self->fs.archive, self->mountpoint);
        ecfs_fs_follow_start (self->fs.follow);
        ok = loop (self, error);
        ecfs_report_stopping (self->report);
        hang_up (self);
    } else {
        (void) !ecfs_fail (error, EIO, "%s: cannot mount there: %s", self->mountpoint,
                           fuse_said[0] != '\0' ? fuse_said : "fusermount3 says why");
    }
    ecfs_control_stop (g_steal_pointer (&self->control));
    return ok;
}

/* All that is committed is safe; what its guarantee lacks is for the next mount to give. */
static void tell_what_is_not_full (EcfsArchive *archive)
{
    EcfsTotals totals;
    if (ecfs_catalog_totals (ecfs_archive_catalog (archive), &totals, NULL) && totals.n_not_full > 0)
        g_warning ("%s: %" PRIu64
                   " objects are stored safely, but not on all of their endpoints yet: the next mount stores the rest",
                   ecfs_archive_directory (archive), totals.n_not_full);
}

/* Without them it is as fast as endpoints are. */
static void serve_peers (EcfsArchive *archive)
{
    g_autoptr (GError) error = NULL;
    if (!ecfs_archive_serve_peers (archive, &error))
        g_warning ("%s; nothing is given to peers", error->message);
}

/* Threads run from here to ecfs_archive_stop (). */
static bool start_and_serve (Mount *self, GError **error)
{
    unsigned n_left = 0;
    EcfsArchive *archive = self->fs.archive;
    set_end_signals (SIG_BLOCK);
    if (self->options->foreground) /* else the process that was started is not the one that serves */
        self->report = ecfs_report_start (archive, self->mountpoint);
    (void) signal (SIGPIPE, SIG_IGN); /* who hangs up is told by errno */
    bool ok = ecfs_archive_start (archive, error) && (self->fs.readonly || ecfs_staged_start (archive, error));
    if (ok) {
        ecfs_archive_await_session (archive);
        ecfs_archive_repair_behind (archive);
        if (self->options->at == NULL) /* what was pinned then is not what is pinned now */
            ecfs_archive_pin_behind (archive);
        ecfs_archive_pack_behind (archive);
        if (!self->fs.readonly)
            ecfs_archive_lead_behind (archive);
        if (self->options->at == NULL) {
            serve_peers (archive);
            ecfs_archive_renew_published (archive);
        }
    }
    if (ok && self->options->follow)
        ok = (self->fs.follow = ecfs_fs_follow_begin (&self->fs, self->session, error)) != NULL;
    if (ok)
        self->fs.locks = ecfs_fs_locks_start (&self->fs);
    EcfsEvents *events = ecfs_events_new (archive);
    EcfsWatch *watch = ok && !self->fs.readonly ? ecfs_watch_start (archive, events) : NULL;
    EcfsAlarms *alarms = ok && !self->fs.readonly ? ecfs_alarms_start (archive, events) : NULL;
    ok = ok && mount_and_serve (self, error);
    ecfs_alarms_stop (alarms);
    ecfs_watch_stop (watch);
    ecfs_events_free (events);
    ecfs_fs_follow_stop (self->fs.follow);
    ecfs_fs_locks_stop (self->fs.locks);
    ecfs_archive_end_repairs (archive);
    ecfs_staged_stop (archive, ecfs_now_us () + DRAIN_DEADLINE_US, &n_left);
    if (!self->fs.readonly)
        tell_what_is_not_full (archive);
    ecfs_report_stop (g_steal_pointer (&self->report));
    ecfs_archive_stop (archive);
    ecfs_fs_follow_free (g_steal_pointer (&self->fs.follow));
    ecfs_fs_locks_free (g_steal_pointer (&self->fs.locks));
    if (ok && n_left > 0)
        return ecfs_fail (error, EIO, "%u files could not be stored; they stay in %s/staging for the next mount",
                          n_left, ecfs_archive_directory (archive));
    return ok;
}

/* What an earlier mount staged is for the next that may write. */
static void tell_what_is_staged (EcfsArchive *archive)
{
    EcfsTotals totals;
    if (ecfs_catalog_totals (ecfs_archive_catalog (archive), &totals, NULL) && totals.n_staged > 0)
        g_message ("%s has %" PRIu64
                   " %s in staging, which a mount for reading only leaves there: readers see what is stored",
                   ecfs_archive_directory (archive), totals.n_staged, totals.n_staged == 1 ? "file" : "files");
}

/* What was written there before it was mounted would be hidden, and may be taken for what is in the archive. */
static bool check_empty (const EcfsMountOptions *options, const char *mountpoint, GError **error)
{
    g_autofree char *covered = ecfs_mounted_archive (mountpoint); /* that is another matter */
    g_autoptr (GDir) directory = options->nonempty || covered != NULL ? NULL : g_dir_open (mountpoint, 0, NULL);
    const char *name = directory == NULL ? NULL : g_dir_read_name (directory);
    return name == NULL ||
           ecfs_fail (error, ENOTEMPTY,
                      "%s is not empty (it has %s): mounting would hide that; move it away, or mount with -o nonempty",
                      mountpoint, name);
}

static bool serve_archive (const EcfsMountOptions *options, bool readonly, char *mountpoint, int *live_fd,
                           GError **error)
{
    Mount self = {.options = options, .mountpoint = mountpoint, .live_fd = live_fd};
    g_autoptr (EcfsArchive) archive =
        ecfs_archive_open (options->directory, readonly ? ECFS_ARCHIVE_READONLY : ECFS_ARCHIVE_MEMBER, error);
    if (archive == NULL || !check_empty (options, mountpoint, error))
        return false;
    ecfs_fs_init (&self.fs, archive, readonly);
    self.fs.connected = raise_readahead;
    if (readonly)
        tell_what_is_staged (archive);
    bool ok = make_session (&self, error) && start_and_serve (&self, error);
    if (self.session != NULL) {
        fuse_session_unmount (self.session);
        fuse_session_destroy (self.session);
    }
    free (self.wanted); /* libfuse's malloc */
    ecfs_fs_clear (&self.fs);
    return ok;
}

static bool serve_past (const EcfsMountOptions *options, char *mountpoint, int *live_fd, GError **error)
{
    EcfsMountOptions then = *options;
    char *past = ecfs_past_open (options->directory, options->at, error);
    if (past == NULL)
        return false;
    then.directory = past;
    bool ok = serve_archive (&then, true, mountpoint, live_fd, error);
    ecfs_past_close (past);
    return ok;
}

/* An old copy of an archive directory is there to be read, and so is one without room for a change. */
static bool serve (const EcfsMountOptions *options, char *mountpoint, int *live_fd, GError **error)
{
    if (options->at != NULL)
        return serve_past (options, mountpoint, live_fd, error);
    if (options->follow)
        return serve_archive (options, true, mountpoint, live_fd, error);
    g_autoptr (GError) reason = NULL;
    if (serve_archive (options, options->readonly, mountpoint, live_fd, &reason))
        return true;
    const bool is_full = g_error_matches (reason, ECFS_ERROR, ENOSPC) || g_error_matches (reason, ECFS_ERROR, EDQUOT);
    if (!options->readonly && (is_full || g_error_matches (reason, ECFS_ERROR, ESTALE))) {
        g_critical ("%s; it is mounted for reading only%s", reason->message,
                    is_full ? ": make room, unmount it, and mount it again" : "");
        return serve_archive (options, true, mountpoint, live_fd, error);
    }
    g_propagate_error (error, g_steal_pointer (&reason));
    return false;
}

/* Foreground and background */

/* The child's word: live, or why not. */
static int hear_child (pid_t child, int fd, GError **error)
{
    char text[4096];
    size_t size = 0;
    ssize_t got;
    while (size < sizeof text - 1 && (got = read (fd, text + size, sizeof text - 1 - size)) != 0) {
        if (got > 0)
            size += (size_t) got;
        else if (errno != EINTR)
            break;
    }
    text[size] = '\0';
    if (size > 0 && text[0] == LIVE)
        return 0;
    (void) waitpid (child, NULL, 0); /* it has told all it had to tell */
    (void) !ecfs_fail (error, EIO, "%s", size > 1 ? text + 1 : "the mount died while it started");
    return 1;
}

static void tell_parent (int fd, const GError *error)
{
    g_autofree char *text = g_strconcat ("E", error->message, NULL);
    (void) !ecfs_write_all (fd, text, strlen (text)); /* the exit status says it too */
}

static int run_in_background (const EcfsMountOptions *options, char *mountpoint, GError **error)
{
    int fds[2];
    if (pipe2 (fds, O_CLOEXEC) != 0)
        return !ecfs_fail_errno (error, errno, "cannot make a pipe");
    pid_t child = fork ();
    if (child < 0)
        return !ecfs_fail_errno (error, errno, "cannot go to the background");
    if (child > 0) {
        (void) close (fds[1]); /* the child's end */
        int result = hear_child (child, fds[0], error);
        (void) close (fds[0]); /* only read */
        return result;
    }
    (void) close (fds[0]); /* the parent's end */
    (void) setsid ();      /* fails for a leader of a group only, which a child is not */
    g_autoptr (GError) local = NULL;
    bool ok = serve (options, mountpoint, &fds[1], &local);
    if (!ok && fds[1] >= 0)
        tell_parent (fds[1], local);
    else if (!ok)
        g_critical ("%s", local->message);
    _exit (ok ? 0 : 1);
}

bool ecfs_mount_check (const EcfsMountOptions *options, GError **error)
{
    struct stat status;
    g_autofree char *config = g_build_filename (options->directory, "ecfs.conf", NULL);
    if (access (config, R_OK) != 0) {
        int code = errno;
        bool lost = code == ENOENT && ecfs_catalog_place_is_there (options->directory);
        if (code != ENOENT)
            return ecfs_fail_errno (error, code, "%s", config);
        if (lost)
            return ecfs_fail (error, ENOENT,
                              "%s has lost its ecfs.conf: restore that file from a backup, or make the archive "
                              "directory again with 'ecfs recover' in another place",
                              options->directory);
        return ecfs_fail (error, ENOENT,
                          "%s is not an archive directory (it has no ecfs.conf): ecfs init makes a new archive, ecfs "
                          "recover brings a lost one back from its endpoints",
                          options->directory);
    }
    if (stat (options->mountpoint, &status) != 0)
        return ecfs_fail_errno (error, errno, "the mountpoint %s", options->mountpoint);
    return S_ISDIR (status.st_mode) ||
           ecfs_fail (error, ENOTDIR, "the mountpoint %s is not a directory", options->mountpoint);
}

int ecfs_mount_run (const EcfsMountOptions *options, GError **error)
{
    if (options->remount)
        return ecfs_fs_remount (options, error) ? 0 : 1;
    ecfs_log_init (false, options->debug ? G_LOG_LEVEL_DEBUG : G_LOG_LEVEL_MESSAGE);
    ecfs_fs_clear_dead (options->directory, options->mountpoint);
    if (!ecfs_mount_check (options, error) || (options->log != NULL && !ecfs_log_to_file (options->log, error)))
        return 1;
    char *mountpoint = realpath (options->mountpoint, NULL);
    if (mountpoint == NULL)
        return !ecfs_fail_errno (error, errno, "%s", options->mountpoint);
    fuse_set_log_func (log_of_fuse);
    int nobody = -1;
    int status = options->foreground || options->debug ? !serve (options, mountpoint, &nobody, error)
                                                       : run_in_background (options, mountpoint, error);
    free (mountpoint);
    return status;
}
