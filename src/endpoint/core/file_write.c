/* Storing in directories: a temporary file, then a rename that never replaces. */
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

typedef struct FileWrite {
    char *temporary; /* name below the root */
    int fd;
    uint64_t offset;      /* written so far */
    uint64_t flushed;     /* write-back was begun for the bytes before */
    const uint8_t *bytes; /* pulled, and not yet written */
    size_t n_bytes;
} FileWrite;

/* Makes a temporary file. Returns its descriptor or -errno. */
static int make_temporary (EcfsDirectory *self, const char *name)
{
    const char *leaf;
    ecfs_autofd dir_fd = ecfs_file_open_parent (self, name, true, &leaf);
    if (dir_fd < 0)
        return dir_fd;
    int fd = openat (dir_fd, leaf, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, self->directory_mode & 0666);
    return fd >= 0 ? fd : -errno;
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

/* Lets go of a write; what it left is removed unless it was committed. */
static void write_clear (EcfsDirectory *self, EcfsStream *request, bool committed)
{
    FileWrite *write = g_steal_pointer (&request->driver_data);
    g_queue_remove (&self->writes, request);
    if (!committed)
        (void) ecfs_file_unlink (self, write->temporary); /* best effort: list shows what stays */
    write_free (write);
}

static void write_end (EcfsDirectory *self, EcfsStream *request, int code)
{
    write_clear (self, request, code == 0);
    if (code == 0)
        ecfs_request_finish (request, 0, NULL);
    else
        ecfs_file_fail_named (request, code);
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
    char *temporary = ecfs_incoming_name (request->name);
    int fd = make_temporary (self, temporary);
    if (fd < 0) {
        g_free (temporary);
        ecfs_file_fail_named (request, -fd);
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
static int write_sync (EcfsDirectory *self, FileWrite *write, uint64_t *ret_kept)
{
    struct stat status;
    g_autoptr (GError) moved = NULL;
    if (!ecfs_file_check_root (self, &moved))
        return ENOTCONN;
    ecfs_slot_owed (self->slot, ECFS_OWES_SYNC);
    if (fsync (write->fd) != 0 || fstat (write->fd, &status) != 0)
        return errno;
    *ret_kept = (uint64_t) status.st_size;
    return 0;
}

static void write_finish (EcfsDirectory *self, EcfsStream *request)
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
bool ecfs_file_step_writes (EcfsDirectory *self)
{
    bool moved = false;
    for (GList *at = self->writes.head, *next; at != NULL; at = next) {
        next = at->next;
        moved |= write_step (self, at->data);
    }
    return moved;
}

/* The requests stay with the core, which fails them. */
void ecfs_file_abandon_writes (EcfsDirectory *self)
{
    EcfsStream *request;
    while ((request = g_queue_pop_head (&self->writes)) != NULL) {
        FileWrite *write = g_steal_pointer (&request->driver_data);
        (void) ecfs_file_unlink (self, write->temporary); /* best effort, as in write_end () */
        write_free (write);
    }
}

/* Returns 0 or an errno. */
int ecfs_file_store_marker (EcfsDirectory *self, const EcfsStream *request)
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
        (void) ecfs_file_unlink (self, temporary); /* best effort; after a commit there is nothing */
    return code;
}
