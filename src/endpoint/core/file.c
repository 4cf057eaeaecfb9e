/*
 * file:// — a directory of this machine or of a mounted network file system.
 *
 * A connection is the root directory held open; every name is walked from there without following symbolic links, so
 * that nothing leads out of it. Requests are served one at a time, except that a write whose source has nothing is
 * parked: its temporary file stays open while others are served. A system call that hangs (a dead NFS server) delays
 * the `done` of its own request until the kernel returns; the core fails all others meanwhile.
 */
#include "endpoint/core/driver.h"

#include "util/io.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define STEP_BYTES    (64 * 1024)       /* of a read between two looks at what the caller wants */
#define WRITE_STEP    (1024 * 1024)     /* of a write between two */
#define FLUSH_BYTES   (8 * 1024 * 1024) /* written back in the meantime, so that the fsync at the end is short */
#define N_OPEN        8
#define ROOT_CHECK_US (G_USEC_PER_SEC)
#define IDLE_CLOSE_US (30 * G_USEC_PER_SEC) /* an idle connection would keep a file system busy against umount */

typedef struct FileConfig {
    char *root;
    unsigned directory_mode; /* of what is made there; files have the same without x */
} FileConfig;

typedef struct OpenFile {
    char *name;
    int fd;
    uint64_t used; /* when, by the connection's counter */
} OpenFile;

/* Everything is of the slot's thread. */
typedef struct FileConnection {
    EcfsSlot *slot;
    const char *root;
    unsigned directory_mode;
    int root_fd;
    int64_t root_checked_us;
    OpenFile open[N_OPEN]; /* name NULL: free */
    uint64_t n_uses;
    uint8_t *piece; /* memory for those that are lent */
    size_t piece_bytes;
    GQueue writes; /* EcfsStream, parked or not, whose driver_data is a FileWrite */
} FileConnection;

typedef struct FileWrite {
    char *temporary; /* name below the root */
    int fd;
    uint64_t offset;      /* written so far */
    uint64_t flushed;     /* write-back was begun for the bytes before */
    const uint8_t *bytes; /* pulled, and not yet written */
    size_t n_bytes;
} FileWrite;

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
    FileConnection *self = g_new0 (FileConnection, 1);
    self->slot = slot;
    self->root = config->root;
    self->directory_mode = config->directory_mode;
    self->root_fd = fd;
    self->root_checked_us = ecfs_now_us ();
    g_queue_init (&self->writes);
    ecfs_slot_capabilities (slot,
                            ECFS_CAN_POSITION | ECFS_CAN_RENAME | ECFS_CAN_FSYNC | ECFS_CAN_SPACE | ECFS_CAN_LIST);
    return self;
}

static void file_close (OpenFile *file)
{
    if (file->name == NULL)
        return;
    g_clear_pointer (&file->name, g_free);
    close (file->fd);
}

static void file_disconnect (void *connection)
{
    FileConnection *self = connection;
    for (size_t i = 0; i < N_OPEN; i++)
        file_close (&self->open[i]);
    close (self->root_fd);
    g_free (self->piece);
    g_free (self);
}

/* Whether the path still leads to the directory that is held open: unmounted or exchanged ones must take nothing. */
static bool check_root (FileConnection *self, GError **error)
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
static int open_parent (FileConnection *self, const char *name, bool make, const char **ret_leaf)
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
static int open_stored (FileConnection *self, const char *name)
{
    const char *leaf;
    ecfs_autofd dir_fd = open_parent (self, name, false, &leaf);
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
static int open_cached (FileConnection *self, const char *name)
{
    OpenFile *oldest = &self->open[0];
    for (size_t i = 0; i < N_OPEN; i++) {
        OpenFile *file = &self->open[i];
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
    *oldest = (OpenFile){.name = g_strdup (name), .fd = fd, .used = ++self->n_uses};
    return fd;
}

static void fail_named (EcfsStream *request, int code)
{
    ecfs_request_fail (request, code, "%s: %s", request->name,
                       code == EPROTO ? "is not a regular file" : g_strerror (code));
}

/* Memory for pieces: all go through the same, which stays in the processor's cache. */
static uint8_t *piece_memory (FileConnection *self, size_t size)
{
    if (self->piece_bytes < size) {
        g_free (self->piece);
        self->piece = g_malloc (size);
        self->piece_bytes = size;
    }
    return self->piece;
}

/* Returns 0 or an errno. */
static int read_range (FileConnection *self, EcfsStream *request, int fd, size_t range_index)
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

static void serve_read (FileConnection *self, EcfsStream *request)
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
        fail_named (request, code);
}

/* Makes a temporary file. Returns its descriptor or -errno. */
static int make_temporary (FileConnection *self, const char *name)
{
    const char *leaf;
    ecfs_autofd dir_fd = open_parent (self, name, true, &leaf);
    if (dir_fd < 0)
        return dir_fd;
    int fd = openat (dir_fd, leaf, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, self->directory_mode & 0666);
    return fd >= 0 ? fd : -errno;
}

static int unlink_stored (FileConnection *self, const char *name)
{
    const char *leaf;
    ecfs_autofd dir_fd = open_parent (self, name, false, &leaf);
    if (dir_fd < 0)
        return -dir_fd;
    return unlinkat (dir_fd, leaf, 0) == 0 ? 0 : errno;
}

/* Gives a temporary file its name for good; with @replace another may have it already. Returns 0 or an errno. */
static int commit (FileConnection *self, const char *temporary, const char *name, bool replace)
{
    const char *from, *to;
    ecfs_autofd from_fd = open_parent (self, temporary, false, &from);
    if (from_fd < 0)
        return -from_fd;
    ecfs_autofd to_fd = open_parent (self, name, true, &to);
    if (to_fd < 0)
        return -to_fd;
    if (renameat2 (from_fd, from, to_fd, to, replace ? 0 : RENAME_NOREPLACE) != 0) {
        /* NFS and others know no flags; a hard link never replaces either. */
        if (replace || (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP))
            return errno;
        if (linkat (from_fd, from, to_fd, to, 0) != 0)
            return errno;
        if (unlinkat (from_fd, from, 0) != 0)
            return errno;
    }
    return fsync (to_fd) == 0 ? 0 : errno;
}

static void write_free (FileWrite *write)
{
    if (write->fd >= 0)
        close (write->fd);
    g_free (write->temporary);
    g_free (write);
}

/* Lets go of a write; what it left is removed unless it was committed. */
static void write_clear (FileConnection *self, EcfsStream *request, bool committed)
{
    FileWrite *write = g_steal_pointer (&request->driver_data);
    g_queue_remove (&self->writes, request);
    if (!committed)
        (void) unlink_stored (self, write->temporary); /* best effort: list shows what stays */
    write_free (write);
}

static void write_end (FileConnection *self, EcfsStream *request, int code)
{
    write_clear (self, request, code == 0);
    if (code == 0)
        ecfs_request_finish (request, 0, NULL);
    else
        fail_named (request, code);
}

static void write_begin (FileConnection *self, EcfsStream *request)
{
    const char *leaf;
    struct stat status;
    ecfs_autofd dir_fd = open_parent (self, request->name, false, &leaf);
    if (dir_fd >= 0 && fstatat (dir_fd, leaf, &status, AT_SYMLINK_NOFOLLOW) == 0) {
        fail_named (request, EEXIST);
        return;
    }
    char *temporary = ecfs_incoming_name (request->name);
    int fd = make_temporary (self, temporary);
    if (fd < 0) {
        g_free (temporary);
        fail_named (request, -fd);
        return;
    }
    FileWrite *write = g_new0 (FileWrite, 1);
    write->temporary = temporary;
    write->fd = fd;
    request->driver_data = write;
    g_queue_push_tail (&self->writes, request);
}

/* Keeps the unwritten part of the page cache small; only an optimisation, so errors are left to fsync. */
static void flush_behind (FileWrite *write)
{
    while (write->offset - write->flushed >= FLUSH_BYTES) {
        (void) sync_file_range (write->fd, (off_t) write->flushed, FLUSH_BYTES, SYNC_FILE_RANGE_WRITE);
        if (write->flushed >= FLUSH_BYTES)
            (void) sync_file_range (write->fd, (off_t) (write->flushed - FLUSH_BYTES), FLUSH_BYTES,
                                    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
        write->flushed += FLUSH_BYTES;
    }
}

/* Writes some of the bytes that were pulled. Returns 0 or an errno. */
static int write_some (FileWrite *write)
{
    size_t size = MIN (write->n_bytes, WRITE_STEP);
    int result = ecfs_pwrite_all (write->fd, write->bytes, size, write->offset);
    if (result != 0)
        return -result;
    write->bytes += size;
    write->n_bytes -= size;
    write->offset += size;
    flush_behind (write);
    return 0;
}

/* Brings what was written to the disk. Returns 0 or an errno. */
static int write_sync (FileConnection *self, FileWrite *write, uint64_t *ret_kept)
{
    struct stat status;
    g_autoptr (GError) moved = NULL;
    if (!check_root (self, &moved))
        return ENOTCONN;
    ecfs_slot_owed (self->slot, ECFS_OWES_SYNC);
    if (fsync (write->fd) != 0 || fstat (write->fd, &status) != 0)
        return errno;
    *ret_kept = (uint64_t) status.st_size;
    return 0;
}

static void write_finish (FileConnection *self, EcfsStream *request)
{
    FileWrite *write = request->driver_data;
    uint64_t kept = 0, written = write->offset;
    int code = write_sync (self, write, &kept);
    if (code == 0 && kept != written) { /* a disk that lies */
        write_clear (self, request, false);
        ecfs_request_fail (request, EIO,
                           "%s: the file system of %s keeps %" PRIu64 " of the %" PRIu64
                           " bytes that were written: check its disk",
                           request->name, self->root, kept, written);
        return;
    }
    write_end (self, request, code != 0 ? code : commit (self, write->temporary, request->name, false));
}

/* Moves a write on by one step. Returns false when its source has nothing. */
static bool write_step (FileConnection *self, EcfsStream *request)
{
    FileWrite *write = request->driver_data;
    if (ecfs_request_cancelled (request)) {
        write_end (self, request, ECANCELED);
        return true;
    }
    if (write->n_bytes == 0) {
        EcfsPull answer = ecfs_request_pull (request, &write->bytes, &write->n_bytes);
        if (answer == ECFS_PULL_LATER)
            return false;
        if (answer != ECFS_PULL_BYTES) {
            ecfs_slot_owed (self->slot, ECFS_OWES_ANSWER);
            if (answer == ECFS_PULL_END)
                write_finish (self, request);
            else
                write_end (self, request, ECANCELED);
            return true;
        }
    }
    ecfs_slot_owed (self->slot, ECFS_OWES_ANSWER);
    int code = write_some (write);
    if (code != 0)
        write_end (self, request, code);
    else
        ecfs_request_acknowledge (request, write->offset);
    return true;
}

/* Moves every write on by one step. Returns whether any had something to do. */
static bool step_writes (FileConnection *self)
{
    bool moved = false;
    for (GList *at = self->writes.head, *next; at != NULL; at = next) {
        next = at->next;
        moved |= write_step (self, at->data);
    }
    return moved;
}

/* The requests stay with the core, which fails them. */
static void abandon_writes (FileConnection *self)
{
    EcfsStream *request;
    while ((request = g_queue_pop_head (&self->writes)) != NULL) {
        FileWrite *write = g_steal_pointer (&request->driver_data);
        (void) unlink_stored (self, write->temporary); /* best effort, as in write_end () */
        write_free (write);
    }
}

static void serve_remove (FileConnection *self, EcfsStream *request)
{
    int code = unlink_stored (self, request->name);
    if (code == 0)
        ecfs_request_finish (request, 0, NULL);
    else
        fail_named (request, code);
}

static void serve_rmdir (FileConnection *self, EcfsStream *request)
{
    const char *leaf;
    ecfs_autofd fd = open_parent (self, request->name, false, &leaf);
    int code = fd < 0 ? -fd : unlinkat (fd, leaf, AT_REMOVEDIR) != 0 ? errno : 0;
    if (code == 0)
        ecfs_request_finish (request, 0, NULL);
    else
        fail_named (request, code);
}

static void serve_size (FileConnection *self, EcfsStream *request)
{
    ecfs_autofd fd = open_stored (self, request->name);
    struct stat status;
    if (fd < 0)
        fail_named (request, -fd);
    else if (fstat (fd, &status) != 0)
        fail_named (request, errno);
    else
        ecfs_request_finish (request, (uint64_t) status.st_size, NULL);
}

static void serve_space (FileConnection *self, EcfsStream *request)
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

static bool list_directory (FileConnection *self, EcfsStream *request, int dir_fd, const char *prefix, GError **error);

/* Lists the file or directory @leaf of @dir_fd, whose name is @name. One that has gone meanwhile is none. */
static bool list_entry (FileConnection *self, EcfsStream *request, int dir_fd, const char *leaf, const char *name,
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
static bool list_directory (FileConnection *self, EcfsStream *request, int dir_fd, const char *prefix, GError **error)
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

static void serve_list (FileConnection *self, EcfsStream *request)
{
    const char *leaf = ".";
    GError *error = NULL;
    ecfs_autofd dir_fd = open_parent (self, request->name, false, &leaf);
    int fd = dir_fd < 0 ? dir_fd : open_directory (dir_fd, *leaf == '\0' ? "." : leaf, 0);
    if (fd < 0 && fd != -ENOENT)
        fail_named (request, -fd);
    else if (fd < 0 || list_directory (self, request, fd, request->name, &error))
        ecfs_request_finish (request, 0, NULL);
    else
        ecfs_request_finish (request, 0, error);
}

/* Reads the marker into @text of ECFS_MARKER_MAX_SIZE + 1 bytes. Returns its size, or -errno. */
static ssize_t read_marker (FileConnection *self, char *text)
{
    ecfs_autofd fd = open_stored (self, ECFS_MARKER_NAME);
    return fd < 0 ? fd : ecfs_pread_all (fd, text, ECFS_MARKER_MAX_SIZE + 1, 0);
}

static void serve_examine (FileConnection *self, EcfsStream *request)
{
    char text[ECFS_MARKER_MAX_SIZE + 1];
    ssize_t size = read_marker (self, text);
    if (size < 0)
        ecfs_request_fail (request, (int) -size, "%s/%s: %s", self->root, ECFS_MARKER_NAME, g_strerror ((int) -size));
    else
        ecfs_request_finish_marker (request, text, (size_t) size);
}

/* Returns 0 or an errno. */
static int store_marker (FileConnection *self, const EcfsStream *request)
{
    g_autofree char *temporary = ecfs_incoming_name (NULL);
    ecfs_autofd fd = make_temporary (self, temporary);
    if (fd < 0)
        return -fd;
    int code = -ecfs_pwrite_all (fd, request->text, strlen (request->text), 0);
    if (code == 0 && fsync (fd) != 0)
        code = errno;
    if (code == 0)
        code = commit (self, temporary, ECFS_MARKER_NAME, !request->create);
    if (code != 0)
        (void) unlink_stored (self, temporary); /* best effort; after a commit there is nothing */
    return code;
}

static void serve_mark (FileConnection *self, EcfsStream *request)
{
    char text[ECFS_MARKER_MAX_SIZE + 1];
    ssize_t size = request->create ? read_marker (self, text) : -ENOENT;
    int code = size >= 0 ? EEXIST : store_marker (self, request);
    if (code == EEXIST && size < 0)
        size = MAX (read_marker (self, text), 0);
    if (code == 0)
        ecfs_request_finish (request, 0, NULL);
    else if (code == EEXIST)
        ecfs_request_fail_marked (request, text, (size_t) size);
    else
        ecfs_request_fail (request, code, "%s/%s: %s", self->root, ECFS_MARKER_NAME, g_strerror (code));
}

static void begin (FileConnection *self, EcfsStream *request)
{
    static void (*const serve_kind[]) (FileConnection *, EcfsStream *) = {
        [ECFS_REQUEST_READ] = serve_read,       [ECFS_REQUEST_WRITE] = write_begin,
        [ECFS_REQUEST_REMOVE] = serve_remove,   [ECFS_REQUEST_SIZE] = serve_size,
        [ECFS_REQUEST_SPACE] = serve_space,     [ECFS_REQUEST_LIST] = serve_list,
        [ECFS_REQUEST_EXAMINE] = serve_examine, [ECFS_REQUEST_MARK] = serve_mark,
        [ECFS_REQUEST_RMDIR] = serve_rmdir,
    };
    if (ecfs_request_cancelled (request))
        ecfs_request_fail (request, ECANCELED, "%s: cancelled", request->name);
    else
        serve_kind[request->kind](self, request);
}

static bool needs_root_check (const FileConnection *self, const EcfsStream *request)
{
    return request->kind == ECFS_REQUEST_WRITE || request->kind == ECFS_REQUEST_MARK ||
           request->kind == ECFS_REQUEST_EXAMINE || request->kind == ECFS_REQUEST_SPACE ||
           ecfs_now_us () - self->root_checked_us > ROOT_CHECK_US;
}

static bool file_serve (EcfsSlot *slot, void *connection, GError **error)
{
    FileConnection *self = connection;
    for (;;) {
        if (!ecfs_slot_check (slot, error))
            break;
        EcfsStream *request = ecfs_slot_take (slot);
        if (request != NULL) {
            ecfs_slot_owed (slot, ECFS_OWES_ANSWER);
            if (needs_root_check (self, request) && !check_root (self, error))
                break;
            begin (self, request);
        }
        bool moved = step_writes (self);
        ecfs_slot_owed (slot, ECFS_OWES_NOTHING);
        if (request == NULL && !moved && !ecfs_slot_wait (slot, ecfs_now_us () + IDLE_CLOSE_US) &&
            g_queue_is_empty (&self->writes))
            return true;
    }
    abandon_writes (self);
    return false;
}

static const char *const option_keys[] = {ECFS_COMMON_OPTION_KEYS, "share", NULL};

const EcfsDriver ecfs_driver_file = {
    .scheme = "file",
    .option_keys = option_keys,
    .default_connections = 4,
    .lends = true,
    .new_config = new_config,
    .free_config = free_config,
    .connect = file_connect,
    .serve = file_serve,
    .disconnect = file_disconnect,
};
