/*
 * Storing in directories: a temporary file, then a rename that never replaces; or, where nothing may be removed and for
 * a log, under the final name from the beginning. The name of a log is brought to the disk when it is made, its bytes
 * when its source has no more of them for now: the slot's thread waits for the disk, and what comes meanwhile waits for
 * it.
 */
#include "endpoint/core/file_priv.h"

#include "util/io.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRITE_STEP  (1024 * 1024)     /* of a write between two looks at what else there is to do */
#define FLUSH_BYTES (8 * 1024 * 1024) /* written back in the meantime, so that the fsync at the end is short */
#define LOG_BYTES   (4 * 1024 * 1024) /* of a log that are not on the disk, where its source never rests */

typedef struct FileWrite {
    bool is_log;
    char *temporary; /* name below the root; NULL: it has its final name */
    int fd;
    uint64_t offset;      /* written so far */
    uint64_t flushed;     /* write-back was begun for the bytes before */
    uint64_t durable;     /* of a log */
    const uint8_t *bytes; /* pulled, and not yet written */
    size_t n_bytes;
} FileWrite;

/* Makes a file with @mode, with @to_stay under that name even if the power fails. Returns its descriptor or -errno. */
static int make_file (EcfsDirectory *self, const char *name, unsigned mode, bool to_stay)
{
    const char *leaf;
    ecfs_autofd dir_fd = ecfs_file_open_parent (self, name, true, &leaf);
    if (dir_fd < 0)
        return dir_fd;
    ecfs_autofd fd = openat (dir_fd, leaf, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0)
        return -errno;
    if (to_stay && fsync (dir_fd) != 0) {
        int code = errno;
        (void) unlinkat (dir_fd, leaf, 0); /* best effort: nobody relies on it */
        return -code;
    }
    return ecfs_steal_fd (&fd);
}

int ecfs_file_unlink (EcfsDirectory *self, const char *name)
{
    const char *leaf;
    ecfs_autofd dir_fd = ecfs_file_open_parent (self, name, false, &leaf);
    if (dir_fd < 0)
        return -dir_fd;
    return unlinkat (dir_fd, leaf, 0) == 0 ? 0 : errno;
}

/* Gives a temporary file its name for good; with @replace another may have it already. Returns 0 or an errno. */
static int commit (EcfsDirectory *self, const char *temporary, const char *name, bool replace)
{
    const char *from, *to;
    ecfs_autofd from_fd = ecfs_file_open_parent (self, temporary, false, &from);
    if (from_fd < 0)
        return -from_fd;
    ecfs_autofd to_fd = ecfs_file_open_parent (self, name, true, &to);
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

/* What a write left is removed unless it was committed; a log stays as it is. */
static void let_go (EcfsDirectory *self, FileWrite *write, bool committed)
{
    if (!committed && write->temporary != NULL)
        (void) ecfs_file_unlink (self, write->temporary); /* best effort: list shows what stays */
    write_free (write);
}

static void write_clear (EcfsDirectory *self, EcfsStream *request, bool committed)
{
    g_queue_remove (&self->writes, request);
    let_go (self, g_steal_pointer (&request->driver_data), committed);
}

static void write_end (EcfsDirectory *self, EcfsStream *request, int code)
{
    write_clear (self, request, code == 0);
    if (code == 0)
        ecfs_request_finish (request, 0, NULL);
    else
        ecfs_file_fail_named (request, code);
}

static void write_fail (EcfsDirectory *self, EcfsStream *request, GError *error)
{
    write_clear (self, request, false);
    ecfs_request_finish (request, 0, error);
}

static unsigned file_mode (const EcfsDirectory *self)
{
    return self->directory_mode & 0666;
}

/* Others read it where they may read the directory. */
static unsigned in_place_mode (const EcfsDirectory *self)
{
    return ECFS_IN_PLACE_MODE | (self->directory_mode & 0044);
}

/* @temporary is taken, and so is @fd, unless it is -errno. */
static void add_write (EcfsDirectory *self, EcfsStream *request, char *temporary, int fd)
{
    if (fd < 0) {
        g_free (temporary);
        ecfs_file_fail_named (request, -fd);
        return;
    }
    FileWrite *write = g_new0 (FileWrite, 1);
    write->is_log = request->kind == ECFS_REQUEST_LOG;
    write->temporary = temporary;
    write->fd = fd;
    request->driver_data = write;
    g_queue_push_tail (&self->writes, request);
}

void ecfs_file_log_begin (EcfsDirectory *self, EcfsStream *request)
{
    add_write (self, request, NULL, make_file (self, request->name, file_mode (self), true));
}

void ecfs_file_write_begin (EcfsDirectory *self, EcfsStream *request)
{
    const char *leaf;
    struct stat status;
    ecfs_autofd dir_fd = ecfs_file_open_parent (self, request->name, false, &leaf);
    if (dir_fd >= 0 && fstatat (dir_fd, leaf, &status, AT_SYMLINK_NOFOLLOW) == 0) {
        ecfs_file_fail_named (request, EEXIST);
        return;
    }
    if (request->in_place) {
        add_write (self, request, NULL, make_file (self, request->name, in_place_mode (self), true));
        return;
    }
    char *temporary = ecfs_incoming_name (request->name);
    add_write (self, request, temporary, make_file (self, temporary, file_mode (self), false));
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

/* Whether what is on the disk is what was written, in a file that is still there; not so on disks that lie. */
static bool check_kept (EcfsDirectory *self, EcfsStream *request, GError **error)
{
    const FileWrite *write = request->driver_data;
    struct stat status;
    if (fstat (write->fd, &status) != 0)
        return ecfs_fail_errno (error, errno, "%s", request->name);
    if (status.st_nlink == 0)
        return ecfs_fail (error, EIO, "%s: was removed while it was written", request->name);
    return (uint64_t) status.st_size == write->offset ||
           ecfs_fail (error, EIO,
                      "%s: the file system of %s keeps %" PRIu64 " of the %" PRIu64
                      " bytes that were written: check its disk",
                      request->name, self->root, (uint64_t) status.st_size, write->offset);
}

/* Brings what was written to the disk, and sees that it is the endpoint's. */
static bool write_sync (EcfsDirectory *self, EcfsStream *request, GError **error)
{
    const FileWrite *write = request->driver_data;
    g_autoptr (GError) moved = NULL;
    if (!ecfs_file_check_root (self, &moved)) {
        ecfs_slot_doubt (self->slot);
        return ecfs_fail (error, ENOTCONN, "%s: %s", request->name, moved->message);
    }
    ecfs_slot_owed (self->slot, ECFS_OWES_SYNC);
    if ((write->is_log ? fdatasync (write->fd) : fsync (write->fd)) != 0)
        return ecfs_fail_errno (error, errno, "%s", request->name);
    return check_kept (self, request, error);
}

/* Brings what was appended to the disk and tells of it. False: that failed, and the log has ended. */
static bool log_sync (EcfsDirectory *self, EcfsStream *request)
{
    FileWrite *write = request->driver_data;
    GError *error = NULL;
    if (write->durable == write->offset)
        return true;
    if (!write_sync (self, request, &error)) {
        write_fail (self, request, error);
        return false;
    }
    write->durable = write->offset;
    ecfs_request_acknowledge (request, write->offset);
    return true;
}

static void write_finish (EcfsDirectory *self, EcfsStream *request)
{
    FileWrite *write = request->driver_data;
    GError *error = NULL;
    if (write->is_log) {
        if (log_sync (self, request))
            write_end (self, request, 0);
    } else if (!write_sync (self, request, &error)) {
        write_fail (self, request, error);
    } else {
        write_end (self, request, write->temporary == NULL ? 0 : commit (self, write->temporary, request->name, false));
    }
}

/* The source has nothing for now. Returns whether there was something to do all the same. */
static bool write_rest (EcfsDirectory *self, EcfsStream *request)
{
    const FileWrite *write = request->driver_data;
    if (!write->is_log || write->durable == write->offset)
        return false;
    (void) log_sync (self, request); /* one that failed has ended */
    return true;
}

/* Moves bytes that were pulled. */
static void write_on (EcfsDirectory *self, EcfsStream *request)
{
    FileWrite *write = request->driver_data;
    ecfs_slot_owed (self->slot, ECFS_OWES_ANSWER);
    int code = write_some (write);
    if (code != 0)
        write_end (self, request, code);
    else if (!write->is_log)
        ecfs_request_acknowledge (request, write->offset);
    else if (write->offset - write->durable >= LOG_BYTES)
        (void) log_sync (self, request); /* as above */
}

/* Moves a write on by one step. Returns false when its source has nothing. */
static bool write_step (EcfsDirectory *self, EcfsStream *request)
{
    FileWrite *write = request->driver_data;
    if (ecfs_request_cancelled (request)) {
        write_end (self, request, ECANCELED);
        return true;
    }
    if (write->n_bytes == 0) {
        EcfsPull answer = ecfs_request_pull (request, &write->bytes, &write->n_bytes);
        if (answer == ECFS_PULL_LATER)
            return write_rest (self, request);
        if (answer != ECFS_PULL_BYTES) {
            ecfs_slot_owed (self->slot, ECFS_OWES_ANSWER);
            if (answer == ECFS_PULL_END)
                write_finish (self, request);
            else
                write_end (self, request, ECANCELED);
            return true;
        }
    }
    write_on (self, request);
    return true;
}

bool ecfs_file_step_writes (EcfsDirectory *self)
{
    bool moved = false;
    for (GList *at = self->writes.head, *next; at != NULL; at = next) {
        next = at->next;
        moved |= write_step (self, at->data);
    }
    return moved;
}

void ecfs_file_abandon_writes (EcfsDirectory *self)
{
    EcfsStream *request;
    while ((request = g_queue_pop_head (&self->writes)) != NULL)
        let_go (self, g_steal_pointer (&request->driver_data), false);
}

int ecfs_file_store_marker (EcfsDirectory *self, const EcfsStream *request)
{
    bool in_place = request->create && request->in_place;
    g_autofree char *temporary = in_place ? g_strdup (ECFS_MARKER_NAME) : ecfs_incoming_name (NULL);
    ecfs_autofd fd = make_file (self, temporary, in_place ? in_place_mode (self) : file_mode (self), in_place);
    if (fd < 0)
        return -fd;
    int code = -ecfs_pwrite_all (fd, request->text, strlen (request->text), 0);
    if (code == 0 && fsync (fd) != 0)
        code = errno;
    if (in_place)
        return code;
    if (code == 0)
        code = commit (self, temporary, ECFS_MARKER_NAME, !request->create);
    if (code != 0)
        (void) ecfs_file_unlink (self, temporary); /* best effort; after a commit there is nothing */
    return code;
}
