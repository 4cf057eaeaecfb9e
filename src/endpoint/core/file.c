/*
 * file:// — a directory of this machine or of a mounted network file system.
 *
 * A connection is the root directory held open; every name is walked from there without following symbolic links, so
 * that nothing leads out of it. Requests are served one at a time, except that a write or log whose source has nothing
 * is parked: its file stays open while others are served. A system call that hangs (a dead NFS server) delays the
 * `done` of its own request until the kernel returns; the core fails all others meanwhile.
 */
#include "endpoint/core/file_priv.h"

#include "util/io.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define STEP_BYTES    (64 * 1024) /* of a read between two looks at what the caller wants */
#define ROOT_CHECK_US (G_USEC_PER_SEC)
#define IDLE_CLOSE_US (30 * G_USEC_PER_SEC) /* an idle connection would keep a file system busy against umount */

typedef struct FileConfig {
    char *root;
    unsigned directory_mode; /* of what is made there; files have the same without x */
} FileConfig;

static void *new_config (const EcfsEndpointSpec *spec, GError **error)
{
    const char *authority = spec->url + strlen ("file://");
    if (*authority != '/' && !g_str_has_prefix (authority, "localhost/")) {
        g_set_error (error, ECFS_ERROR, EINVAL, "%s: write file:///PATH with an absolute path", spec->url);
        return NULL;
    }
    unsigned directory_mode;
    char *root = ecfs_spec_share (spec, &directory_mode, error) ? ecfs_url_path (spec->url, error) : NULL;
    if (root == NULL)
        return NULL;
    FileConfig *config = g_new (FileConfig, 1);
    *config = (FileConfig){.root = root, .directory_mode = directory_mode};
    return config;
}

static void free_config (void *data)
{
    FileConfig *config = data;
    g_free (config->root);
    g_free (config);
}

static bool fail_root (GError **error, const char *root, int code)
{
    if (code == ENOENT || code == ENOTDIR)
        return ecfs_fail (error, code, "%s does not exist or is not mounted", root);
    return ecfs_fail_errno (error, code, "%s", root);
}

static int open_root (const char *root, bool make, unsigned mode, GError **error)
{
    if (make && mkdir (root, mode) != 0 && errno != EEXIST) {
        g_set_error (error, ECFS_ERROR, errno, "cannot make %s: %s", root, g_strerror (errno));
        return -1;
    }
    int fd = open (root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        (void) fail_root (error, root, errno);
    return fd;
}

static void *file_connect (EcfsSlot *slot, bool make_root, GError **error)
{
    const FileConfig *config = ecfs_slot_config (slot);
    int fd = open_root (config->root, make_root, config->directory_mode, error);
    if (fd < 0)
        return NULL;
    EcfsDirectory *self = g_new0 (EcfsDirectory, 1);
    self->slot = slot;
    self->root = config->root;
    self->directory_mode = config->directory_mode;
    self->root_fd = fd;
    self->root_checked_us = ecfs_now_us ();
    g_queue_init (&self->writes);
    ecfs_slot_capabilities (slot, ECFS_CAN_POSITION | ECFS_CAN_RENAME | ECFS_CAN_FSYNC | ECFS_CAN_SPACE |
                                      ECFS_CAN_LIST | ECFS_CAN_LOG);
    return self;
}

static void file_close (EcfsDirectoryFile *file)
{
    if (file->name == NULL)
        return;
    g_clear_pointer (&file->name, g_free);
    close (file->fd);
}

static void file_disconnect (void *connection)
{
    EcfsDirectory *self = connection;
    for (size_t i = 0; i < ECFS_FILE_N_OPEN; i++)
        file_close (&self->open[i]);
    close (self->root_fd);
    g_free (self->piece);
    g_free (self);
}

/* Whether the path still leads to the directory that is held open: unmounted or exchanged ones must take nothing. */
bool ecfs_file_check_root (EcfsDirectory *self, GError **error)
{
    struct stat held, there;
    if (fstat (self->root_fd, &held) != 0 || stat (self->root, &there) != 0)
        return fail_root (error, self->root, errno);
    if (held.st_dev != there.st_dev || held.st_ino != there.st_ino)
        return ecfs_fail (error, ENOTCONN, "%s is no longer the directory that it was: unmounted or replaced",
                          self->root);
    self->root_checked_us = ecfs_now_us ();
    return true;
}

/* Opens the directory @part of @dir_fd, and makes it with @make_mode unless that is 0. Returns a descriptor or -errno.
 */
static int open_directory (int dir_fd, const char *part, unsigned make_mode)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat (dir_fd, part, flags);
    if (fd >= 0 || errno != ENOENT || make_mode == 0)
        return fd >= 0 ? fd : -errno;
    if (mkdirat (dir_fd, part, make_mode) != 0 && errno != EEXIST)
        return -errno;
    /* The entry of a new directory is as durable as what is stored below. */
    if (fsync (dir_fd) != 0)
        return -errno;
    fd = openat (dir_fd, part, flags);
    return fd >= 0 ? fd : -errno;
}

/* The directory in which @name lies, and its last part. Returns a descriptor or -errno. */
int ecfs_file_open_parent (EcfsDirectory *self, const char *name, bool make, const char **ret_leaf)
{
    int fd = openat (self->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    const char *slash;
    for (; (slash = strchr (name, '/')) != NULL; name = slash + 1) {
        g_autofree char *part = g_strndup (name, (size_t) (slash - name));
        int next_fd = open_directory (fd, part, make ? self->directory_mode : 0);
        close (fd);
        if (next_fd < 0)
            return next_fd;
        fd = next_fd;
    }
    *ret_leaf = name;
    return fd;
}

/* Opens a file for reading. Returns a descriptor or -errno; anything but a regular file is EPROTO. */
static int open_stored (EcfsDirectory *self, const char *name)
{
    const char *leaf;
    ecfs_autofd dir_fd = ecfs_file_open_parent (self, name, false, &leaf);
    if (dir_fd < 0)
        return dir_fd;
    /* O_NONBLOCK: opening a FIFO that someone put there must not wait for its writer. */
    ecfs_autofd fd = openat (dir_fd, leaf, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ELOOP ? -EPROTO : -errno;
    struct stat status;
    if (fstat (fd, &status) != 0)
        return -errno;
    return S_ISREG (status.st_mode) ? ecfs_steal_fd (&fd) : -EPROTO;
}

static bool was_removed (int fd)
{
    struct stat status;
    return fstat (fd, &status) != 0 || status.st_nlink == 0;
}

/* The descriptor of @name, owned by the connection, or -errno. */
static int open_cached (EcfsDirectory *self, const char *name)
{
    EcfsDirectoryFile *oldest = &self->open[0];
    for (size_t i = 0; i < ECFS_FILE_N_OPEN; i++) {
        EcfsDirectoryFile *file = &self->open[i];
        if (file->name != NULL && g_str_equal (file->name, name)) {
            file->used = ++self->n_uses;
            if (!was_removed (file->fd))
                return file->fd;
            file_close (file);
            oldest = file;
            break;
        }
        if (oldest->name != NULL && (file->name == NULL || file->used < oldest->used))
            oldest = file;
    }
    int fd = open_stored (self, name);
    if (fd < 0)
        return fd;
    file_close (oldest);
    *oldest = (EcfsDirectoryFile){.name = g_strdup (name), .fd = fd, .used = ++self->n_uses};
    return fd;
}

void ecfs_file_fail_named (EcfsStream *request, int code)
{
    ecfs_request_fail (request, code, "%s: %s", request->name,
                       code == EPROTO ? "is not a regular file" : g_strerror (code));
}

/* Memory for pieces: all go through the same, which stays in the processor's cache. */
static uint8_t *piece_memory (EcfsDirectory *self, size_t size)
{
    if (self->piece_bytes < size) {
        g_free (self->piece);
        self->piece = g_malloc (size);
        self->piece_bytes = size;
    }
    return self->piece;
}

/* Returns 0 or an errno. */
static int read_range (EcfsDirectory *self, EcfsStream *request, int fd, size_t range_index)
{
    const EcfsRange *range = &request->ranges[range_index];
    bool lends = request->n_pieces > 0;
    for (size_t filled = 0; filled < range->size;) {
        if (ecfs_request_cancelled (request))
            return ECANCELED;
        size_t step = lends ? request->piece_sizes[request->next_piece] : MIN (range->size - filled, STEP_BYTES);
        uint8_t *to = lends ? piece_memory (self, step) : range->to + filled;
        ssize_t n = ecfs_pread_all (fd, to, step, range->offset + filled);
        if (n < 0)
            return (int) -n;
        filled += (size_t) n;
        if (n > 0 && !lends)
            ecfs_request_filled (request, range_index, filled);
        if ((size_t) n < step)
            return EBADMSG;
        if (lends)
            ecfs_request_piece (request, to);
    }
    return 0;
}

static void serve_read (EcfsDirectory *self, EcfsStream *request)
{
    int fd = open_cached (self, request->name);
    int code = fd < 0 ? -fd : 0;
    for (size_t i = 0; i < request->n_ranges && code == 0; i++)
        code = read_range (self, request, fd, i);
    if (code == 0)
        ecfs_request_finish (request, 0, NULL);
    else if (code == EBADMSG)
        ecfs_request_fail (request, EBADMSG, "%s: ends before the range that was asked for", request->name);
    else
        ecfs_file_fail_named (request, code);
}

static void serve_remove (EcfsDirectory *self, EcfsStream *request)
{
    int code = ecfs_file_unlink (self, request->name);
    if (code == 0)
        ecfs_request_finish (request, 0, NULL);
    else
        ecfs_file_fail_named (request, code);
}

static void serve_rmdir (EcfsDirectory *self, EcfsStream *request)
{
    const char *leaf;
    ecfs_autofd fd = ecfs_file_open_parent (self, request->name, false, &leaf);
    int code = fd < 0 ? -fd : unlinkat (fd, leaf, AT_REMOVEDIR) != 0 ? errno : 0;
    if (code == 0)
        ecfs_request_finish (request, 0, NULL);
    else
        ecfs_file_fail_named (request, code);
}

static void serve_size (EcfsDirectory *self, EcfsStream *request)
{
    ecfs_autofd fd = open_stored (self, request->name);
    struct stat status;
    if (fd < 0)
        ecfs_file_fail_named (request, -fd);
    else if (fstat (fd, &status) != 0)
        ecfs_file_fail_named (request, errno);
    else
        ecfs_request_finish (request, (uint64_t) status.st_size, NULL);
}

static void serve_space (EcfsDirectory *self, EcfsStream *request)
{
    struct statvfs status;
    struct stat root;
    if (fstatvfs (self->root_fd, &status) != 0 || fstat (self->root_fd, &root) != 0) {
        ecfs_request_fail (request, errno, "%s: %s", self->root, g_strerror (errno));
        return;
    }
    g_autofree char *device = g_strdup_printf ("device %" PRIu64, (uint64_t) root.st_dev);
    ecfs_request_finish_space (request, (uint64_t) status.f_bavail * status.f_frsize, device);
}

static bool list_directory (EcfsDirectory *self, EcfsStream *request, int dir_fd, const char *prefix, GError **error);

/* Lists the file or directory @leaf of @dir_fd, whose name is @name. One that has gone meanwhile is none. */
static bool list_entry (EcfsDirectory *self, EcfsStream *request, int dir_fd, const char *leaf, const char *name,
                        GError **error)
{
    struct stat status;
    if (fstatat (dir_fd, leaf, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT || ecfs_fail (error, errno, "%s: %s", name, g_strerror (errno));
    if (S_ISREG (status.st_mode))
        ecfs_request_listed (request, name, (uint64_t) status.st_size, status.st_mtime);
    if (!S_ISDIR (status.st_mode))
        return true;
    int fd = open_directory (dir_fd, leaf, 0);
    ecfs_slot_owed (self->slot, ECFS_OWES_ANSWER);
    if (fd < 0)
        return fd == -ENOENT || ecfs_fail (error, -fd, "%s: %s", name, g_strerror (-fd));
    if (!ecfs_slot_check (self->slot, NULL)) {
        close (fd);
        return ecfs_fail (error, ECANCELED, "%s: cancelled", name);
    }
    return list_directory (self, request, fd, name, error);
}

/* Lists what is in @dir_fd (taken), whose name is @prefix. */
static bool list_directory (EcfsDirectory *self, EcfsStream *request, int dir_fd, const char *prefix, GError **error)
{
    DIR *dir = fdopendir (dir_fd);
    if (dir == NULL) {
        int code = errno;
        close (dir_fd);
        return ecfs_fail (error, code, "%s: %s", prefix, g_strerror (code));
    }
    bool fine = true;
    const struct dirent *entry;
    while (fine && (errno = 0, entry = readdir (dir)) != NULL) {
        g_autofree char *name =
            *prefix == '\0' ? g_strdup (entry->d_name) : g_strconcat (prefix, "/", entry->d_name, NULL);
        /* Valid names bound the depth too: "." and ".." are none, nor are those above the greatest length. */
        if (ecfs_stored_name_valid (name))
            fine = list_entry (self, request, dirfd (dir), entry->d_name, name, error);
    }
    if (fine && errno != 0)
        fine = ecfs_fail (error, errno, "%s: %s", prefix, g_strerror (errno));
    closedir (dir);
    return fine;
}

static void serve_list (EcfsDirectory *self, EcfsStream *request)
{
    const char *leaf = ".";
    GError *error = NULL;
    ecfs_autofd dir_fd = ecfs_file_open_parent (self, request->name, false, &leaf);
    int fd = dir_fd < 0 ? dir_fd : open_directory (dir_fd, *leaf == '\0' ? "." : leaf, 0);
    if (fd < 0 && fd != -ENOENT)
        ecfs_file_fail_named (request, -fd);
    else if (fd < 0 || list_directory (self, request, fd, request->name, &error))
        ecfs_request_finish (request, 0, NULL);
    else
        ecfs_request_finish (request, 0, error);
}

/* Reads the marker into @text of ECFS_MARKER_MAX_SIZE + 1 bytes. Returns its size, or -errno. */
static ssize_t read_marker (EcfsDirectory *self, char *text)
{
    ecfs_autofd fd = open_stored (self, ECFS_MARKER_NAME);
    return fd < 0 ? fd : ecfs_pread_all (fd, text, ECFS_MARKER_MAX_SIZE + 1, 0);
}

static void serve_examine (EcfsDirectory *self, EcfsStream *request)
{
    char text[ECFS_MARKER_MAX_SIZE + 1];
    ssize_t size = read_marker (self, text);
    if (size < 0)
        ecfs_request_fail (request, (int) -size, "%s/%s: %s", self->root, ECFS_MARKER_NAME, g_strerror ((int) -size));
    else
        ecfs_request_finish_marker (request, text, (size_t) size);
}

static void serve_mark (EcfsDirectory *self, EcfsStream *request)
{
    char text[ECFS_MARKER_MAX_SIZE + 1];
    ssize_t size = request->create ? read_marker (self, text) : -ENOENT;
    int code = size >= 0 ? EEXIST : ecfs_file_store_marker (self, request);
    if (code == EEXIST && size < 0)
        size = MAX (read_marker (self, text), 0);
    if (code == 0)
        ecfs_request_finish (request, 0, NULL);
    else if (code == EEXIST)
        ecfs_request_fail_marked (request, text, (size_t) size);
    else
        ecfs_request_fail (request, code, "%s/%s: %s", self->root, ECFS_MARKER_NAME, g_strerror (code));
}

static void begin (EcfsDirectory *self, EcfsStream *request)
{
    static void (*const serve_kind[]) (EcfsDirectory *, EcfsStream *) = {
        [ECFS_REQUEST_READ] = serve_read,       [ECFS_REQUEST_WRITE] = ecfs_file_write_begin,
        [ECFS_REQUEST_REMOVE] = serve_remove,   [ECFS_REQUEST_SIZE] = serve_size,
        [ECFS_REQUEST_SPACE] = serve_space,     [ECFS_REQUEST_LIST] = serve_list,
        [ECFS_REQUEST_EXAMINE] = serve_examine, [ECFS_REQUEST_MARK] = serve_mark,
        [ECFS_REQUEST_RMDIR] = serve_rmdir,     [ECFS_REQUEST_LOG] = ecfs_file_log_begin,
    };
    if (ecfs_request_cancelled (request))
        ecfs_request_fail (request, ECANCELED, "%s: cancelled", request->name);
    else
        serve_kind[request->kind](self, request);
}

static bool needs_root_check (const EcfsDirectory *self, const EcfsStream *request)
{
    return request->kind == ECFS_REQUEST_WRITE || request->kind == ECFS_REQUEST_LOG ||
           request->kind == ECFS_REQUEST_MARK || request->kind == ECFS_REQUEST_EXAMINE ||
           request->kind == ECFS_REQUEST_SPACE || ecfs_now_us () - self->root_checked_us > ROOT_CHECK_US;
}

static bool file_serve (EcfsSlot *slot, void *connection, GError **error)
{
    EcfsDirectory *self = connection;
    for (;;) {
        if (!ecfs_slot_check (slot, error))
            break;
        EcfsStream *request = ecfs_slot_take (slot);
        if (request != NULL) {
            ecfs_slot_owed (slot, ECFS_OWES_ANSWER);
            if (needs_root_check (self, request) && !ecfs_file_check_root (self, error))
                break;
            begin (self, request);
        }
        bool moved = ecfs_file_step_writes (self);
        ecfs_slot_owed (slot, ECFS_OWES_NOTHING);
        if (request == NULL && !moved && !ecfs_slot_wait (slot, ecfs_now_us () + IDLE_CLOSE_US) &&
            g_queue_is_empty (&self->writes))
            return true;
    }
    ecfs_file_abandon_writes (self);
    return false;
}

static const char *const option_keys[] = {ECFS_COMMON_OPTION_KEYS, ECFS_RETAIN_OPTION_KEY, "share", NULL};

const EcfsDriver ecfs_driver_file = {
    .scheme = "file",
    .option_keys = option_keys,
    .default_connections = 4,
    .lends = true,
    .logs = true,
    .new_config = new_config,
    .free_config = free_config,
    .connect = file_connect,
    .serve = file_serve,
    .disconnect = file_disconnect,
};
