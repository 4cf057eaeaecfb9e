/* Content: where it is, opening, reading, writing, and what close(2) means. */
#include "archive/common.h"
#include "catalog/reads.h"
#include "fs/fs_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ns (void)
{
    struct timespec now;
    (void) clock_gettime (CLOCK_REALTIME, &now); /* cannot fail with this clock */
    return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Where content is: staged, or committed */

/* Someone begins to write: committed content is looked up anew when nothing is staged any more. */
static void forget_content (EcfsFs *self, uint64_t ino)
{
    ecfs_mutex_lock (&self->lock);
    EcfsInode *inode = ecfs_fs_inode_locked (self, ino);
    EcfsContent *content = g_steal_pointer (&inode->content);
    inode->content_epoch++;
    ecfs_mutex_unlock (&self->lock);
    ecfs_content_unref (content);
}

/* Others may store a shared file, so one that is open for writing is read from where it was stored until it is changed:
 * what was opened of that is old from now on. */
static void staged_changed (EcfsFs *self, uint64_t ino)
{
    if (self->shared)
        forget_content (self, ino);
}

/* Takes the kept content, or says with which epoch a newly opened one may be kept. */
static EcfsContent *kept_content (EcfsFs *self, uint64_t ino, unsigned *ret_epoch)
{
    ecfs_mutex_lock (&self->lock);
    EcfsInode *inode = ecfs_fs_inode_locked (self, ino);
    EcfsContent *content = inode->content == NULL ? NULL : ecfs_content_ref (inode->content);
    *ret_epoch = inode->content_epoch;
    ecfs_mutex_unlock (&self->lock);
    return content;
}

static void keep_content (EcfsFs *self, uint64_t ino, EcfsContent *content, unsigned epoch)
{
    ecfs_mutex_lock (&self->lock);
    EcfsInode *inode = ecfs_fs_inode_locked (self, ino);
    if (inode->content == NULL && inode->content_epoch == epoch && inode->n_handles > 0)
        inode->content = ecfs_content_ref (content);
    ecfs_mutex_unlock (&self->lock);
}

/* The staged file to read from, for ecfs_staged_read_end (); or NULL and committed content in *ret_content (or an
 * error). */
static EcfsStaged *source (EcfsFs *self, uint64_t ino, const struct fuse_file_info *fi, EcfsContent **ret_content,
                           GError **error)
{
    unsigned epoch;
    if (self->follow != NULL) {
        *ret_content = ecfs_fs_followed (self, ecfs_handle_of (fi), false, error);
        return NULL;
    }
    /* In this order: content that is kept under the epoch was committed while nothing was staged after it began. */
    EcfsContent *content = kept_content (self, ino, &epoch);
    while (content != NULL && !ecfs_content_is_current (content)) {
        ecfs_content_unref (content);
        forget_content (self, ino);
        content = kept_content (self, ino, &epoch);
    }
    GError *reason = NULL;
    /* What is stored, and staged for a while still, may be old: others store it, too. */
    bool staged_counts = !self->shared || ecfs_staged_is_newer (self->archive, ino);
    EcfsStaged *staged = staged_counts ? ecfs_staged_read_begin (self->archive, ino, &reason) : NULL;
    if (staged != NULL || reason != NULL) {
        ecfs_content_unref (content);
        if (reason != NULL)
            g_propagate_error (error, reason);
        return staged;
    }
    if (content == NULL) {
        content = ecfs_content_open (self->archive, ino, error);
        if (content != NULL)
            ecfs_content_set_caching (content, ECFS_CACHING_FILLS);
        if (content != NULL)
            keep_content (self, ino, content, epoch);
    }
    *ret_content = content;
    return NULL;
}

/* Opening */

typedef struct Open {
    fuse_req_t req;
    uint64_t ino;
    struct fuse_file_info fi;
} Open;

/* Whether what the kernel has of it still counts. */
static bool believe_pages (EcfsFs *self, uint64_t ino)
{
    unsigned now = ecfs_archive_doubts (self->archive);
    ecfs_mutex_lock (&self->lock);
    EcfsInode *inode = ecfs_fs_inode_locked (self, ino);
    bool counts = inode->doubts == now;
    inode->doubts = now;
    ecfs_mutex_unlock (&self->lock);
    return counts;
}

/* What was stored elsewhere since it was opened last is seen from now on: by this kernel, and by those who have it open
 * still. Whether what the kernel has of it still counts. *@ret_gone: another machine has removed it. */
static bool is_as_seen (EcfsFs *self, uint64_t ino, bool *ret_gone)
{
    EcfsAttr attr;
    g_autoptr (GError) error = NULL;
    *ret_gone = false;
    if (!ecfs_catalog_getattr (self->catalog, ino, &attr, &error)) {
        *ret_gone = ecfs_errno (error) == ENOENT;
        return false; /* reading it tells why */
    }
    ecfs_mutex_lock (&self->lock);
    EcfsInode *inode = ecfs_fs_inode_locked (self, ino);
    bool same = inode->seen.ino == ino && inode->seen.ctime_ns == attr.ctime_ns &&
                inode->seen.committed_size == attr.committed_size &&
                inode->seen.committed_mtime_ns == attr.committed_mtime_ns;
    inode->seen = attr;
    *ret_gone = attr.nlink == 0 && !inode->unlinked;
    ecfs_mutex_unlock (&self->lock);
    if (same)
        return true;
    forget_content (self, ino);
    (void) fuse_lowlevel_notify_inval_inode (self->session, ino, -1, 0); /* its size; pages go with open's answer */
    return false;
}

void ecfs_fs_look_again (EcfsFs *self, uint64_t ino)
{
    bool is_gone;
    if (!is_as_seen (self, ino, &is_gone))
        (void) fuse_lowlevel_notify_inval_inode (self->session, ino, 0, 0); /* it may not know it */
}

static void reply_open (fuse_req_t req, uint64_t ino, EcfsStaged *staged, struct fuse_file_info *fi)
{
    bool is_gone = false;
    EcfsFs *self = ecfs_fs_of (req);
    fi->fh = (uintptr_t) ecfs_fs_handle_new (self, ino, staged);
    ecfs_handle_of (fi)->writes = (fi->flags & O_ACCMODE) != O_RDONLY;
    /* All changes of content come through this kernel and its page cache, so what it has is what there is; unless an
     * endpoint lied, or others change it, too. */
    fi->keep_cache = believe_pages (self, ino);
    if (self->shared)
        fi->keep_cache = is_as_seen (self, ino, &is_gone) && fi->keep_cache;
    if (is_gone) { /* the kernel looks for who has its name now */
        ecfs_fs_handle_free (self, ecfs_handle_of (fi));
        fuse_reply_err (req, ESTALE);
        return;
    }
    if (self->shared && staged != NULL && !(fi->flags & O_TRUNC))
        ecfs_fs_rests (self, ecfs_handle_of (fi));
    if (fuse_reply_open (req, fi) != 0)
        ecfs_fs_handle_free (self, ecfs_handle_of (fi));
}

/* Beside a mount for reading only somebody else replaces and removes files: what is open stays what it was. */
static void open_beside (fuse_req_t req, uint64_t ino, struct fuse_file_info *fi)
{
    EcfsAttr attr;
    unsigned epoch;
    EcfsFs *self = ecfs_fs_of (req);
    g_autoptr (GError) error = NULL;
    EcfsHandle *handle = ecfs_fs_handle_new (self, ino, NULL); /* while there is one, content is kept */
    EcfsContent *content = kept_content (self, ino, &epoch);
    if (content == NULL && (content = ecfs_content_open (self->archive, ino, &error)) != NULL) {
        ecfs_content_set_caching (content, ECFS_CACHING_FILLS);
        keep_content (self, ino, content, epoch);
    }
    if (content == NULL || !ecfs_catalog_getattr (self->catalog, ino, &attr, &error)) {
        ecfs_content_unref (content);
        ecfs_fs_reply_error (req, ino, "opening it", error);
        ecfs_fs_handle_free (self, handle);
        return;
    }
    attr.committed_size = ecfs_content_size (content);
    ecfs_mutex_lock (&self->lock);
    handle->followed = content;
    handle->opened = attr;
    ecfs_mutex_unlock (&self->lock);
    fi->fh = (uintptr_t) handle;
    if (fuse_reply_open (req, fi) != 0)
        ecfs_fs_handle_free (self, handle);
}

/* The kernel takes set-user-ID bits from what others change, except where opening truncates. */
static void clear_id_bits (EcfsFs *self, uint64_t ino)
{
    EcfsAttr attr;
    g_autoptr (GError) error = NULL;
    if (!ecfs_catalog_getattr (self->catalog, ino, &attr, &error) || !(attr.mode & (S_ISUID | S_ISGID)))
        return; /* an inode that is gone has no bits */
    attr.mode &= ~(uint32_t) S_ISUID;
    if (attr.mode & S_IXGRP)
        attr.mode &= ~(uint32_t) S_ISGID;
    if (!ecfs_catalog_setattr (self->catalog, ino, &attr, ECFS_ATTR_MODE, &attr, &error))
        (void) ecfs_fs_log_error (self, ino, "clearing its set-user-ID bit", error);
}

static void opened_for_writing (void *user, EcfsStaged *staged, const GError *error)
{
    Open *request = user;
    if (staged == NULL && ecfs_fs_of (request->req)->shared && ecfs_errno (error) == ENOENT) {
        fuse_reply_err (request->req, ESTALE); /* another machine has removed it: its name may be another's */
    } else if (staged == NULL && ecfs_errno (error) == EBUSY && !(request->fi.flags & O_TRUNC) &&
               ecfs_fs_locks_held_elsewhere (ecfs_fs_of (request->req)->locks, request->ino)) {
        reply_open (request->req, request->ino, NULL, &request->fi); /* who locks it takes turns */
    } else if (staged == NULL) {
        ecfs_fs_reply_error (request->req, request->ino, "opening it for writing", error);
    } else {
        EcfsFs *self = ecfs_fs_of (request->req);
        forget_content (self, request->ino);
        if (request->fi.flags & O_TRUNC && fuse_req_ctx (request->req)->uid != 0)
            clear_id_bits (self, request->ino);
        reply_open (request->req, request->ino, staged, &request->fi);
    }
    g_free (request);
}

static void op_open (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    bool truncate = fi->flags & O_TRUNC;
    if ((fi->flags & O_ACCMODE) == O_RDONLY && !truncate) {
        EcfsReads *reads = ecfs_archive_service (ecfs_fs_of (req)->archive, ECFS_SERVICE_READS);
        if (reads != NULL)
            ecfs_reads_note (reads, ino);
        if (ecfs_fs_of (req)->follow != NULL)
            ecfs_fs_open_followed (req, ino, fi);
        else if (ecfs_fs_of (req)->readonly)
            open_beside (req, ino, fi);
        else
            reply_open (req, ino, NULL, fi);
        return;
    }
    Open *request = g_new (Open, 1);
    *request = (Open){.req = req, .ino = ino, .fi = *fi};
    ecfs_staged_open (ecfs_fs_of (req)->archive, ino, truncate, opened_for_writing, request);
}

/* A new file whose staging file could not be made does not stay as an empty one. */
static void undo_make (EcfsFs *self, uint64_t parent, const char *name)
{
    EcfsAttr attr;
    g_autoptr (GError) error = NULL;
    if (!ecfs_catalog_unlink (self->catalog, parent, name, &attr, &error) ||
        !ecfs_catalog_drop (self->catalog, attr.ino, &error))
        (void) ecfs_fs_log_error (self, parent, "removing a new file again", error);
}

static void op_create (fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
    EcfsFs *self = ecfs_fs_of (req);
    const struct fuse_ctx *context = fuse_req_ctx (req);
    EcfsNewInode inode = {
        .mode = (mode & ~(mode_t) S_IFMT) | S_IFREG, .uid = context->uid, .gid = context->gid, .staged = true};
    EcfsAttr attr;
    int64_t row;
    unsigned moment = ecfs_staged_epoch (self->archive);
    g_autoptr (GError) error = NULL;
    g_autofree char *trouble = ecfs_archive_trouble (self->archive);
    if (trouble != NULL)
        (void) !ecfs_fail (&error, EROFS, "%s", trouble);
    if (trouble != NULL || !ecfs_catalog_make (self->catalog, parent, name, &inode, &attr, &row, &error)) {
        ecfs_fs_reply_error (req, parent, name, error);
        return;
    }
    EcfsStaged *staged = ecfs_staged_new (self->archive, &attr, row, &error);
    if (staged == NULL) {
        undo_make (self, parent, name);
        ecfs_fs_reply_error (req, parent, name, error);
        return;
    }
    struct fuse_entry_param entry;
    ecfs_fs_entry (self, moment, &attr, &entry);
    ecfs_fs_note_capability (self, attr.ino, true);
    fi->fh = (uintptr_t) ecfs_fs_handle_new (self, attr.ino, staged);
    fi->keep_cache = 1;
    if (fuse_reply_create (req, &entry, fi) != 0) {
        ecfs_fs_handle_free (self, ecfs_handle_of (fi));
        ecfs_fs_forget (self, attr.ino, 1);
    }
}

static void op_release (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    ecfs_fs_locks_release (req, ecfs_handle_of (fi));
}

/* Reading */

typedef struct Request {
    fuse_req_t req;
    uint64_t ino;
    size_t size;
    uint64_t offset;
    EcfsHandle *handle;
    bool is_second; /* the first found too little of it */
} Request;

static void read_content (const Request *wanted, EcfsContent *content);

/* What is newer was looked for. */
static void read_again (void *user)
{
    Request *request = user;
    g_autoptr (GError) error = NULL;
    EcfsFs *self = ecfs_fs_of (request->req);
    g_autoptr (EcfsContent) content = ecfs_fs_followed (self, request->handle, true, &error);
    request->is_second = true;
    if (content != NULL)
        read_content (request, content);
    else if (ecfs_errno (error) == ESTALE)
        fuse_reply_err (request->req, ESTALE);
    else
        ecfs_fs_reply_error (request->req, request->ino, "read", error);
    g_free (request);
}

static void content_read (void *user, const struct iovec *iov, int n_iov, const GError *error);

/* Another mount may have moved it, or stored something else. */
static void read_where_it_is (Request *request)
{
    g_autoptr (GError) error = NULL;
    EcfsFs *self = ecfs_fs_of (request->req);
    forget_content (self, request->ino);
    g_autoptr (EcfsContent) content = ecfs_content_open (self->archive, request->ino, &error);
    request->is_second = true;
    if (content != NULL)
        read_content (request, content);
    else
        ecfs_fs_reply_error (request->req, request->ino, "read", error);
    g_free (request);
}

static void content_read (void *user, const struct iovec *iov, int n_iov, const GError *error)
{
    Request *request = user;
    if (error != NULL && !request->is_second && ecfs_fs_of (request->req)->shared) {
        read_where_it_is (request);
        return;
    }
    if (error != NULL && !request->is_second &&
        ecfs_fs_follow_then (ecfs_fs_of (request->req)->follow, read_again, request))
        return;
    if (error != NULL)
        ecfs_fs_reply_error (request->req, request->ino, "read", error);
    else
        fuse_reply_iov (request->req, iov, n_iov);
    g_free (request);
}

static void read_content (const Request *wanted, EcfsContent *content)
{
    Request *request = g_new (Request, 1);
    *request = *wanted;
    ecfs_content_read (content, request->offset, request->size, content_read, request);
}

static void op_read (fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
    EcfsContent *content = NULL;
    g_autoptr (GError) error = NULL;
    if (atomic_load (&ecfs_handle_of (fi)->lost_lock)) {
        fuse_reply_err (req, EIO);
        return;
    }
    EcfsStaged *staged = source (ecfs_fs_of (req), ino, fi, &content, &error);
    if (staged != NULL) {
        struct fuse_bufvec data = FUSE_BUFVEC_INIT (size);
        data.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
        data.buf[0].fd = ecfs_staged_fd (staged);
        data.buf[0].pos = offset;
        fuse_reply_data (req, &data, 0);
        ecfs_staged_read_end (staged);
    } else if (content != NULL) {
        const Request request = {
            .req = req, .ino = ino, .size = size, .offset = (uint64_t) offset, .handle = ecfs_handle_of (fi)};
        read_content (&request, content);
        ecfs_content_unref (content);
    } else {
        ecfs_fs_reply_error (req, ino, "read", error);
    }
}

uint64_t ecfs_fs_seek (const GArray *extents, uint64_t size, uint64_t offset, int whence)
{
    uint64_t at = offset;
    if (offset >= size)
        return UINT64_MAX;
    for (guint i = 0; i < extents->len; i++) {
        const EcfsExtent *extent = &g_array_index (extents, EcfsExtent, i);
        uint64_t end = extent->offset + extent->length;
        if (end <= at)
            continue;
        if (whence == SEEK_DATA)
            return MAX (at, extent->offset) < size ? MAX (at, extent->offset) : UINT64_MAX;
        if (extent->offset > at)
            break;
        at = end;
    }
    return whence == SEEK_DATA ? UINT64_MAX : MIN (at, size);
}

static void op_lseek (fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, struct fuse_file_info *fi)
{
    EcfsContent *content = NULL;
    g_autoptr (GError) error = NULL;
    if (whence != SEEK_DATA && whence != SEEK_HOLE) {
        fuse_reply_err (req, EINVAL);
        return;
    }
    EcfsStaged *staged = source (ecfs_fs_of (req), ino, fi, &content, &error);
    if (staged == NULL && content == NULL) {
        ecfs_fs_reply_error (req, ino, "seek", error);
        return;
    }
    off_t found;
    if (staged != NULL) {
        found = lseek (ecfs_staged_fd (staged), offset, whence);
    } else {
        uint64_t at =
            ecfs_fs_seek (ecfs_content_extents (content), ecfs_content_size (content), (uint64_t) offset, whence);
        found = at == UINT64_MAX ? -1 : (off_t) at;
    }
    if (found < 0)
        fuse_reply_err (req, ENXIO);
    else
        fuse_reply_lseek (req, found);
    ecfs_staged_read_end (staged);
    ecfs_content_unref (content);
}

/* Writing */

/* A change that is done, and whose caller waits for room. Two hold it: who began it, and the answer. */
typedef struct Pause {
    fuse_req_t req;
    EcfsStaged *staged;
    size_t n_written;
    bool is_write;
    atomic_uint n_refs;
    atomic_bool interrupted;
} Pause;

static void pause_unref (Pause *self)
{
    if (atomic_fetch_sub (&self->n_refs, 1) != 1)
        return;
    ecfs_staged_unref (self->staged);
    g_free (self);
}

static void pause_ended (void *user, const GError *error)
{
    Pause *self = user;
    (void) error;                                    /* what follows fails where there is no room */
    fuse_req_interrupt_func (self->req, NULL, NULL); /* returns when no interrupt is being handled any more */
    if (self->is_write)
        fuse_reply_write (self->req, self->n_written);
    else
        fuse_reply_err (self->req, 0);
    pause_unref (self);
}

static void pause_interrupted (fuse_req_t req, void *user)
{
    Pause *self = user;
    (void) req;
    atomic_store (&self->interrupted, true);
    ecfs_staged_unpause (self->staged, self);
}

/* Answers a change; @pausing, which is taken: its writer is to wait for room, if it is not NULL. */
static void reply_change (fuse_req_t req, EcfsStaged *pausing, bool is_write, size_t n_written)
{
    if (pausing == NULL && is_write) {
        fuse_reply_write (req, n_written);
        return;
    }
    if (pausing == NULL) {
        fuse_reply_err (req, 0);
        return;
    }
    Pause *self = g_new (Pause, 1);
    *self = (Pause){.req = req, .staged = pausing, .n_written = n_written, .is_write = is_write};
    atomic_init (&self->n_refs, 2);
    atomic_init (&self->interrupted, false);
    fuse_req_interrupt_func (req, pause_interrupted, self);
    ecfs_staged_pause (self->staged, pause_ended, self);
    if (atomic_load (&self->interrupted)) /* perhaps before it could be found */
        ecfs_staged_unpause (self->staged, self);
    pause_unref (self);
}

/* The kernel appends at the end that it knows, where others may have appended meanwhile. */
static off_t where_to (EcfsFs *self, uint64_t ino, EcfsStaged *staged, int flags, off_t offset)
{
    struct stat now;
    if (!self->shared || !(flags & O_APPEND) || fstat (ecfs_staged_fd (staged), &now) != 0 || now.st_size == offset)
        return offset;
    ecfs_fs_locks_forget (self->locks, ino); /* it has put the bytes into its pages elsewhere */
    return now.st_size;
}

/* A write or fallocate. */
typedef struct Change {
    fuse_req_t req;
    uint64_t ino;
    EcfsHandle *handle;
    int flags; /* of the open file */
    bool is_write;
    off_t offset;
    struct fuse_bufvec *from; /* of a write; lent, or, where it waits, memory to be freed */
    int mode;                 /* of fallocate, as the next */
    off_t length;
} Change;

static void write_now (const Change *self, EcfsStaged *staged)
{
    g_autoptr (GError) error = NULL;
    EcfsFs *fs = ecfs_fs_of (self->req);
    size_t size = fuse_buf_size (self->from);
    if (!ecfs_staged_change_begin (staged, (uint64_t) self->offset, size, &error)) {
        ecfs_fs_staged_end (fs, self->handle);
        ecfs_fs_reply_error (self->req, self->ino, "write", error);
        return;
    }
    off_t offset = where_to (fs, self->ino, staged, self->flags, self->offset);
    struct fuse_bufvec to = FUSE_BUFVEC_INIT (size);
    to.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
    to.buf[0].fd = ecfs_staged_fd (staged);
    to.buf[0].pos = offset;
    ssize_t written = fuse_buf_copy (&to, self->from, 0);
    size_t n_new = written > 0 ? (size_t) written : 0;
    bool may_go_on = ecfs_staged_change_end (staged, n_new, n_new > 0 ? (uint64_t) offset + n_new : 0, now_ns ());
    staged_changed (fs, self->ino);
    EcfsStaged *pausing = may_go_on || written < 0 ? NULL : ecfs_staged_ref (staged);
    ecfs_fs_staged_end (fs, self->handle); /* which may be gone with the answer */
    if (written < 0)
        fuse_reply_err (self->req, (int) -written);
    else
        reply_change (self->req, pausing, true, n_new);
}

static void allocate_now (const Change *self, EcfsStaged *staged)
{
    g_autoptr (GError) error = NULL;
    EcfsFs *fs = ecfs_fs_of (self->req);
    bool punches = self->mode & FALLOC_FL_PUNCH_HOLE;
    uint64_t changed = self->mode & ~FALLOC_FL_KEEP_SIZE ? (uint64_t) self->offset : UINT64_MAX;
    if (!ecfs_staged_change_begin (staged, changed, punches ? 0 : (uint64_t) self->length, &error)) {
        ecfs_fs_staged_end (fs, self->handle);
        ecfs_fs_reply_error (self->req, self->ino, "fallocate", error);
        return;
    }
    int result = fallocate (ecfs_staged_fd (staged), self->mode, self->offset, self->length) == 0 ? 0 : errno;
    bool grows = result == 0 && !(self->mode & FALLOC_FL_KEEP_SIZE);
    bool may_go_on =
        ecfs_staged_change_end (staged, 0, grows ? (uint64_t) self->offset + (uint64_t) self->length : 0, now_ns ());
    staged_changed (fs, self->ino);
    EcfsStaged *pausing = may_go_on || result != 0 ? NULL : ecfs_staged_ref (staged);
    ecfs_fs_staged_end (fs, self->handle);
    if (result != 0)
        fuse_reply_err (self->req, result);
    else
        reply_change (self->req, pausing, false, 0);
}

static void change_now (const Change *self, EcfsStaged *staged)
{
    if (self->is_write)
        write_now (self, staged);
    else
        allocate_now (self, staged);
}

/* The file was others' to write, and is this one's again. */
static void changes_again (void *user, EcfsStaged *staged, const GError *error)
{
    Change *self = user;
    EcfsFs *fs = ecfs_fs_of (self->req);
    if (staged == NULL) {
        ecfs_fs_reply_error (self->req, self->ino, "writing it", error);
    } else {
        forget_content (fs, self->ino);
        change_now (self, ecfs_fs_staged_again (fs, self->handle, staged));
    }
    if (self->from != NULL)
        g_free (self->from->buf[0].mem);
    g_free (self->from);
    g_free (self);
}

static void change_later (const Change *wanted)
{
    Change *self = g_new (Change, 1);
    *self = *wanted;
    self->from = NULL;
    if (wanted->is_write) { /* the pipe that it is in is the thread's */
        self->from = g_new (struct fuse_bufvec, 1);
        *self->from = FUSE_BUFVEC_INIT (fuse_buf_size (wanted->from));
        self->from->buf[0].mem = g_malloc (self->from->buf[0].size);
        ssize_t got = fuse_buf_copy (self->from, wanted->from, 0);
        self->from->idx = 0;
        self->from->off = 0;
        self->from->buf[0].size = got > 0 ? (size_t) got : 0;
    }
    ecfs_staged_open (ecfs_fs_of (self->req)->archive, self->ino, false, changes_again, self);
}

static void change (const Change *self)
{
    if (!self->handle->writes || atomic_load (&self->handle->lost_lock)) {
        fuse_reply_err (self->req, self->handle->writes ? EIO : EBADF);
        return;
    }
    EcfsStaged *staged = ecfs_fs_staged_begin (ecfs_fs_of (self->req), self->handle);
    if (staged != NULL)
        change_now (self, staged);
    else
        change_later (self);
}

static void op_write_buf (fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *from, off_t offset,
                          struct fuse_file_info *fi)
{
    const Change wanted = {.req = req,
                           .ino = ino,
                           .handle = ecfs_handle_of (fi),
                           .flags = fi->flags,
                           .is_write = true,
                           .offset = offset,
                           .from = from};
    change (&wanted);
}

static void op_fallocate (fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
                          struct fuse_file_info *fi)
{
    const Change wanted = {
        .req = req, .ino = ino, .handle = ecfs_handle_of (fi), .offset = offset, .mode = mode, .length = length};
    change (&wanted);
}

typedef struct Truncate {
    EcfsFs *fs;
    uint64_t ino;
    uint64_t size;
    EcfsStaged *staged;
    void (*done) (void *user, const GError *error);
    void *user;
} Truncate;

static void truncate_flushed (void *user, const GError *error)
{
    Truncate *request = user;
    ecfs_staged_release (request->staged);
    request->done (request->user, error);
    g_free (request);
}

static void truncate_opened (void *user, EcfsStaged *staged, const GError *open_error)
{
    Truncate *request = user;
    g_autoptr (GError) error = NULL;
    if (staged == NULL) {
        request->done (request->user, open_error);
        g_free (request);
        return;
    }
    request->staged = staged;
    bool done = request->size == 0 || ecfs_staged_truncate (staged, request->size, now_ns (), &error);
    forget_content (request->fs, request->ino);
    if (done)
        ecfs_staged_flush (staged, truncate_flushed, request);
    else
        truncate_flushed (request, error);
}

void ecfs_fs_truncate (EcfsFs *self, uint64_t ino, EcfsHandle *handle, uint64_t size,
                       void (*done) (void *user, const GError *error), void *user)
{
    EcfsStaged *staged = handle == NULL ? NULL : ecfs_fs_staged_begin (self, handle);
    if (staged != NULL) {
        g_autoptr (GError) error = NULL;
        (void) !ecfs_staged_truncate (staged, size, now_ns (), &error); /* error says it */
        staged_changed (self, ino);
        ecfs_fs_staged_end (self, handle);
        done (user, error);
        return;
    }
    Truncate *request = g_new (Truncate, 1);
    *request = (Truncate){.fs = self, .ino = ino, .size = size, .done = done, .user = user};
    ecfs_staged_open (self->archive, ino, size == 0, truncate_opened, request);
}

/* Flush and fsync */

/* Two hold it: who began it, and the answer. */
typedef struct Flush {
    fuse_req_t req;
    uint64_t ino;
    const char *operation;
    void (*done) (void *user, int code); /* NULL: it is answered */
    void *user;
    uint64_t owner; /* of locks, who closes it; valid with is_close */
    bool is_close;
    EcfsStaged *staged;
    atomic_uint n_refs;
    atomic_bool killed;
} Flush;

static void flush_unref (Flush *self)
{
    if (atomic_fetch_sub (&self->n_refs, 1) != 1)
        return;
    ecfs_staged_unref (self->staged);
    g_free (self);
}

static void flushed (void *user, const GError *error)
{
    Flush *self = user;
    fuse_req_interrupt_func (self->req, NULL, NULL); /* returns when no interrupt is being handled any more */
    int code = error == NULL ? 0 : ecfs_fs_log_error (ecfs_fs_of (self->req), self->ino, self->operation, error);
    if (self->done != NULL)
        self->done (self->user, code);
    else if (self->is_close)
        ecfs_fs_locks_close (self->req, self->ino, self->owner, code);
    else
        fuse_reply_err (self->req, code);
    flush_unref (self);
}

static void flush_interrupted (fuse_req_t req, void *user)
{
    Flush *self = user;
    if (!ecfs_fs_is_killed (fuse_req_ctx (req)->pid))
        return; /* other signals do not cut a close short */
    atomic_store (&self->killed, true);
    ecfs_staged_hurry (self->staged, self);
}

/* Takes the reference to @staged. */
static void flush (const Flush *wanted, EcfsStaged *staged,
                   void (*begin) (EcfsStaged *staged, EcfsStagedDone done, void *user))
{
    Flush *self = g_new (Flush, 1);
    *self = *wanted;
    self->staged = staged;
    atomic_init (&self->n_refs, 2);
    atomic_init (&self->killed, ecfs_fs_is_killed (fuse_req_ctx (self->req)->pid));
    fuse_req_interrupt_func (self->req, flush_interrupted, self);
    begin (staged, flushed, self);
    if (atomic_load (&self->killed)) /* perhaps before it could be found */
        ecfs_staged_hurry (self->staged, self);
    flush_unref (self);
}

/*
 * A shell opens what it redirects to, and closes that descriptor as soon as the command has another one, which has
 * written nothing yet. If that counted, the stored content would be gone as long as the command runs. So what has been
 * emptied is stored when its last descriptor is closed.
 */
static bool is_emptied (EcfsFs *self, uint64_t ino)
{
    EcfsAttr staged = {.ino = ino, .mode = S_IFREG, .size = 1}, stored;
    ecfs_staged_overlay (self->archive, ecfs_staged_epoch (self->archive), &staged);
    return staged.size == 0 && ecfs_catalog_getattr (self->catalog, ino, &stored, NULL) && stored.size > 0;
}

static void op_flush (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    EcfsFs *self = ecfs_fs_of (req);
    const Flush wanted = {.req = req, .ino = ino, .operation = "close", .owner = fi->lock_owner, .is_close = true};
    g_autoptr (EcfsStaged) staged = ecfs_fs_staged_ref (self, ecfs_handle_of (fi));
    if (staged == NULL || is_emptied (self, ino))
        ecfs_fs_locks_close (req, ino, fi->lock_owner, 0);
    else
        flush (&wanted, g_steal_pointer (&staged), ecfs_staged_flush);
}

bool ecfs_fs_is_empty (EcfsFs *self, uint64_t ino)
{
    EcfsAttr staged = {.ino = ino, .mode = S_IFREG, .size = 1};
    ecfs_staged_overlay (self->archive, ecfs_staged_epoch (self->archive), &staged);
    return staged.size == 0;
}

bool ecfs_fs_store (fuse_req_t req, uint64_t ino, const char *operation, void (*done) (void *user, int code),
                    void *user)
{
    EcfsArchive *archive = ecfs_fs_of (req)->archive;
    const Flush wanted = {.req = req, .ino = ino, .operation = operation, .done = done, .user = user};
    EcfsStaged *staged = ecfs_staged_is_newer (archive, ino) ? ecfs_staged_find (archive, ino) : NULL;
    if (staged != NULL)
        flush (&wanted, staged, ecfs_staged_flush);
    return staged != NULL;
}

static void op_fsync (fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
    EcfsStaged *staged = ecfs_staged_find (ecfs_fs_of (req)->archive, ino);
    if (staged != NULL) {
        const Flush wanted = {.req = req, .ino = ino, .operation = "fsync"};
        flush (&wanted, staged, ecfs_staged_fsync);
        return;
    }
    g_autoptr (GError) error = NULL;
    if (ecfs_catalog_barrier (ecfs_fs_of (req)->catalog, &error))
        fuse_reply_err (req, 0);
    else
        ecfs_fs_reply_error (req, ino, "fsync", error);
}

void ecfs_fs_file_ops (struct fuse_lowlevel_ops *ops)
{
    ops->open = op_open;
    ops->create = op_create;
    ops->release = op_release;
    ops->read = op_read;
    ops->lseek = op_lseek;
    ops->write_buf = op_write_buf;
    ops->fallocate = op_fallocate;
    ops->flush = op_flush;
    ops->fsync = op_fsync;
}
