#include "archive/common.h"
#include "fs/fs_priv.h"
#include "util/io.h"

#include <sys/stat.h>

#define REPEAT_US      (10 * G_USEC_PER_SEC) /* the same message again at the earliest */
#define N_SAID_MAX     1000
#define TIMEOUT_OWN_S  3600.0 /* nobody else changes the archive */
#define TIMEOUT_READ_S 1.0
#define REST_US        G_USEC_PER_SEC

/* As local file systems allocate: content must not look smaller when it leaves staging. */
#define ALLOCATION_BYTES 4096

static void inode_free (gpointer data)
{
    EcfsInode *inode = data;
    ecfs_content_unref (inode->content);
    g_free (inode);
}

void ecfs_fs_init (EcfsFs *self, EcfsArchive *archive, bool readonly)
{
    *self = (EcfsFs){.archive = archive, .catalog = ecfs_archive_catalog (archive), .readonly = readonly};
    atomic_flag_clear (&self->was_connected);
    self->shared = !readonly && ecfs_catalog_is_shared (self->catalog);
    self->timeout_s = readonly || self->shared ? TIMEOUT_READ_S : TIMEOUT_OWN_S;
    ecfs_mutex_init (&self->lock);
    self->inodes = g_hash_table_new_full (g_int64_hash, g_int64_equal, NULL, inode_free);
    self->handles = g_hash_table_new (NULL, NULL);
    self->said = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
}

/* Inodes without names are dropped at the next mount: nobody may drop them while staging still writes. */
void ecfs_fs_clear (EcfsFs *self)
{
    GHashTableIter iter;
    gpointer key;
    g_hash_table_iter_init (&iter, self->handles);
    while (g_hash_table_iter_next (&iter, &key, NULL)) {
        EcfsHandle *handle = key;
        if (handle->staged != NULL)
            ecfs_staged_release (handle->staged);
        ecfs_content_unref (handle->followed);
        g_free (handle);
    }
    g_hash_table_destroy (self->handles);
    g_hash_table_destroy (self->inodes);
    g_hash_table_destroy (self->said);
    ecfs_mutex_clear (&self->lock);
}

/* Errors */

static bool is_ordinary (int code)
{
    static const int ordinary[] = {ENOENT, EEXIST, ENOTDIR, EISDIR, ENOTEMPTY, ENODATA,    ENAMETOOLONG, EINVAL,
                                   EMLINK, ERANGE, EPERM,   ENXIO,  ENOTSUP,   EOPNOTSUPP, E2BIG};
    for (size_t i = 0; i < G_N_ELEMENTS (ordinary); i++) {
        if (code == ordinary[i])
            return true;
    }
    return false;
}

/* What programs understand; our own shades of "not now" would confuse them. */
static int errno_for_programs (int code)
{
    static const int told[] = {ENOSPC, EDQUOT, EROFS, EFBIG, EACCES, EBUSY, EINTR, ENOMEM, EMFILE, ENFILE, EXDEV};
    for (size_t i = 0; i < G_N_ELEMENTS (told); i++) {
        if (code == told[i])
            return code;
    }
    return is_ordinary (code) ? code : EIO;
}

/* Whether the message was not said lately. */
static bool is_news (EcfsFs *self, const char *message)
{
    int64_t now_us = ecfs_now_us ();
    ecfs_mutex_lock (&self->lock);
    const int64_t *last_us = g_hash_table_lookup (self->said, message);
    bool news = last_us == NULL || now_us - *last_us > REPEAT_US;
    if (news) {
        if (g_hash_table_size (self->said) >= N_SAID_MAX)
            g_hash_table_remove_all (self->said);
        int64_t *when_us = g_new (int64_t, 1);
        *when_us = now_us;
        g_hash_table_replace (self->said, g_strdup (message), when_us);
    }
    ecfs_mutex_unlock (&self->lock);
    return news;
}

int ecfs_fs_log_error (EcfsFs *self, uint64_t ino, const char *operation, const GError *error)
{
    int code = ecfs_errno (error);
    if (is_ordinary (code) && code != EPERM)
        return errno_for_programs (code);
    g_autofree char *path = ecfs_catalog_path (self->catalog, ino);
    g_autofree char *message = g_strdup_printf ("%s: %s: %s", path, operation, error->message);
    if (is_news (self, message))
        g_warning ("%s", message);
    return errno_for_programs (code);
}

/* Whether somebody else has removed the inode beside a mount for reading only. */
static bool is_gone (const EcfsFs *self, uint64_t ino, const GError *error)
{
    EcfsAttr attr;
    g_autoptr (GError) why = NULL;
    return self->readonly && ecfs_errno (error) == ENOENT && !ecfs_catalog_getattr (self->catalog, ino, &attr, &why) &&
           ecfs_errno (why) == ENOENT;
}

void ecfs_fs_reply_error (fuse_req_t req, uint64_t ino, const char *operation, const GError *error)
{
    EcfsFs *self = ecfs_fs_of (req);
    fuse_reply_err (req, is_gone (self, ino, error) ? ESTALE : ecfs_fs_log_error (self, ino, operation, error));
}

/* Attributes and entries */

void ecfs_fs_overlay (const EcfsFs *self, unsigned moment, EcfsAttr *attr)
{
    EcfsAttr now;
    if (!self->readonly && (!self->shared || ecfs_staged_is_newer (self->archive, attr->ino))) {
        ecfs_staged_overlay (self->archive, moment, attr);
        return;
    }
    /* It may have been stored since it was read. */
    g_autoptr (EcfsStaged) staged = self->shared ? ecfs_staged_find (self->archive, attr->ino) : NULL;
    if (self->shared && (staged != NULL || ecfs_staged_epoch (self->archive) != moment) &&
        ecfs_catalog_getattr (self->catalog, attr->ino, &now, NULL))
        *attr = now;
    if (S_ISREG (attr->mode)) { /* what is read ends there: a longer file would be cut short, or SIGBUS */
        attr->size = attr->committed_size;
        attr->mtime_ns = attr->committed_mtime_ns;
    }
}

void ecfs_fs_stat (const EcfsAttr *attr, struct stat *ret_stat)
{
    *ret_stat = (struct stat){.st_ino = attr->ino,
                              .st_mode = attr->mode,
                              .st_nlink = attr->nlink,
                              .st_uid = attr->uid,
                              .st_gid = attr->gid,
                              .st_rdev = attr->rdev,
                              .st_size = (off_t) attr->size,
                              .st_blksize = ECFS_FS_REQUEST_BYTES,
                              .st_blocks = (blkcnt_t) ((attr->data_bytes + ALLOCATION_BYTES - 1) / ALLOCATION_BYTES *
                                                       (ALLOCATION_BYTES / 512)),
                              .st_atim = ecfs_timespec (attr->atime_ns),
                              .st_mtim = ecfs_timespec (attr->mtime_ns),
                              .st_ctim = ecfs_timespec (attr->ctime_ns)};
}

bool ecfs_fs_is_set_id (uint32_t mode)
{
    return S_ISREG (mode) && ((mode & S_ISUID) || ((mode & S_ISGID) && (mode & S_IXGRP)));
}

/* The mode of such a program changes without the kernel's knowledge. */
double ecfs_fs_attr_timeout_s (const EcfsFs *self, const EcfsAttr *attr)
{
    return ecfs_fs_is_set_id (attr->mode) ? 0 : self->timeout_s;
}

EcfsInode *ecfs_fs_inode_locked (EcfsFs *self, uint64_t ino)
{
    EcfsInode *inode = g_hash_table_lookup (self->inodes, &ino);
    if (inode == NULL) {
        inode = g_new0 (EcfsInode, 1);
        inode->ino = ino;
        inode->doubts = ecfs_archive_doubts (self->archive);
        g_hash_table_insert (self->inodes, &inode->ino, inode);
    }
    return inode;
}

void ecfs_fs_entry (EcfsFs *self, unsigned moment, EcfsAttr *attr, struct fuse_entry_param *ret_entry)
{
    ecfs_fs_overlay (self, moment, attr);
    ecfs_mutex_lock (&self->lock);
    ecfs_fs_inode_locked (self, attr->ino)->n_lookups++;
    ecfs_mutex_unlock (&self->lock);
    *ret_entry = (struct fuse_entry_param){.ino = attr->ino,
                                           .generation = 1, /* inode numbers are never reused */
                                           .attr_timeout = ecfs_fs_attr_timeout_s (self, attr),
                                           .entry_timeout = self->timeout_s};
    ecfs_fs_stat (attr, &ret_entry->attr);
}

void ecfs_fs_reply_entry (fuse_req_t req, unsigned moment, EcfsAttr *attr)
{
    EcfsFs *self = ecfs_fs_of (req);
    struct fuse_entry_param entry;
    ecfs_fs_entry (self, moment, attr, &entry);
    if (fuse_reply_entry (req, &entry) != 0)
        ecfs_fs_forget (self, attr->ino, 1);
}

/* The end of inodes */

/* Takes the inode out when nobody knows it; true: it has no name either and is to be dropped from the catalog. */
static bool retire_locked (EcfsFs *self, EcfsInode *inode) ECFS_REQUIRES (self->lock)
{
    if (inode->n_lookups > 0 || inode->n_handles > 0)
        return false;
    bool unlinked = inode->unlinked;
    g_hash_table_remove (self->inodes, &inode->ino);
    return unlinked;
}

static void drop (EcfsFs *self, uint64_t ino)
{
    g_autoptr (GError) error = NULL;
    ecfs_staged_drop (self->archive, ino);
    if (self->shared) /* others may have it open: who leads drops it later */
        return;
    if (!ecfs_catalog_drop (self->catalog, ino, &error))
        (void) ecfs_fs_log_error (self, ino, "deleting", error); /* done again at the next mount */
}

void ecfs_fs_forget (EcfsFs *self, uint64_t ino, uint64_t n_lookups)
{
    bool gone = false;
    ecfs_mutex_lock (&self->lock);
    EcfsInode *inode = g_hash_table_lookup (self->inodes, &ino);
    if (inode != NULL) {
        inode->n_lookups -= MIN (n_lookups, inode->n_lookups);
        gone = retire_locked (self, inode);
    }
    ecfs_mutex_unlock (&self->lock);
    if (gone)
        drop (self, ino);
}

void ecfs_fs_lost_name (EcfsFs *self, const EcfsAttr *attr)
{
    if (attr->ino == 0 || (attr->nlink > 0 && !S_ISDIR (attr->mode)))
        return;
    ecfs_mutex_lock (&self->lock);
    EcfsInode *inode = ecfs_fs_inode_locked (self, attr->ino);
    inode->unlinked = true;
    bool gone = retire_locked (self, inode);
    ecfs_mutex_unlock (&self->lock);
    if (gone)
        drop (self, attr->ino);
    else if (S_ISREG (attr->mode))
        ecfs_staged_unlinked (self->archive, attr->ino);
}

/* Handles */

EcfsHandle *ecfs_fs_handle_new (EcfsFs *self, uint64_t ino, EcfsStaged *staged)
{
    EcfsHandle *handle = g_new (EcfsHandle, 1);
    ecfs_mutex_lock (&self->lock);
    *handle = (EcfsHandle){.inode = ecfs_fs_inode_locked (self, ino), .writes = staged != NULL, .staged = staged};
    handle->inode->n_handles++;
    g_hash_table_add (self->handles, handle);
    ecfs_mutex_unlock (&self->lock);
    return handle;
}

void ecfs_fs_handle_free (EcfsFs *self, EcfsHandle *handle)
{
    uint64_t ino = handle->inode->ino;
    if (handle->staged != NULL)
        ecfs_staged_release (handle->staged);
    ecfs_mutex_lock (&self->lock);
    g_hash_table_remove (self->handles, handle);
    handle->inode->n_handles--;
    EcfsContent *content = handle->inode->n_handles > 0 ? NULL : g_steal_pointer (&handle->inode->content);
    bool gone = retire_locked (self, handle->inode);
    ecfs_mutex_unlock (&self->lock);
    ecfs_content_unref (content); /* the stripes that it pins may be replaced ones */
    ecfs_content_unref (handle->followed);
    g_free (handle);
    if (gone)
        drop (self, ino);
}

/* What a handle writes to. Where others write, too, the file is theirs while nobody here does. */

EcfsStaged *ecfs_fs_staged_begin (EcfsFs *self, EcfsHandle *handle)
{
    if (!self->shared)
        return handle->staged;
    ecfs_mutex_lock (&self->lock);
    handle->n_uses += handle->staged != NULL;
    handle->rests_us = 0;
    EcfsStaged *staged = handle->staged;
    ecfs_mutex_unlock (&self->lock);
    return staged;
}

void ecfs_fs_staged_end (EcfsFs *self, EcfsHandle *handle)
{
    if (!self->shared)
        return;
    ecfs_mutex_lock (&self->lock);
    handle->n_uses--;
    ecfs_mutex_unlock (&self->lock);
}

EcfsStaged *ecfs_fs_staged_again (EcfsFs *self, EcfsHandle *handle, EcfsStaged *staged)
{
    ecfs_mutex_lock (&self->lock);
    EcfsStaged *surplus = handle->staged == NULL ? NULL : staged;
    if (surplus == NULL)
        handle->staged = staged;
    handle->n_uses++;
    staged = handle->staged;
    ecfs_mutex_unlock (&self->lock);
    if (surplus != NULL)
        ecfs_staged_release (surplus);
    return staged;
}

EcfsStaged *ecfs_fs_staged_ref (EcfsFs *self, const EcfsHandle *handle)
{
    ecfs_mutex_lock (&self->lock);
    EcfsStaged *staged = handle->staged == NULL ? NULL : ecfs_staged_ref (handle->staged);
    ecfs_mutex_unlock (&self->lock);
    return staged;
}

static EcfsStaged *take_unused_locked (EcfsHandle *handle)
{
    handle->rests_us = 0;
    return handle->n_uses > 0 || handle->inode->unlinked ? NULL : g_steal_pointer (&handle->staged);
}

void ecfs_fs_leave (EcfsFs *self, EcfsHandle *handle)
{
    if (ecfs_staged_is_newer (self->archive, handle->inode->ino))
        return;
    ecfs_mutex_lock (&self->lock);
    EcfsStaged *staged = take_unused_locked (handle);
    ecfs_mutex_unlock (&self->lock);
    if (staged != NULL)
        ecfs_staged_release (staged);
}

void ecfs_fs_rests (EcfsFs *self, EcfsHandle *handle)
{
    ecfs_mutex_lock (&self->lock);
    handle->rests_us = ecfs_now_us ();
    ecfs_mutex_unlock (&self->lock);
    ecfs_fs_locks_opened (self->locks);
}

void ecfs_fs_leave_resting (EcfsFs *self, int64_t *ret_due_us)
{
    GHashTableIter iter;
    gpointer key;
    EcfsStaged *staged;
    int64_t now_us = ecfs_now_us ();
    g_autoptr (GPtrArray) left = g_ptr_array_new ();
    *ret_due_us = INT64_MAX;
    ecfs_mutex_lock (&self->lock);
    g_hash_table_iter_init (&iter, self->handles);
    while (g_hash_table_iter_next (&iter, &key, NULL)) {
        EcfsHandle *handle = key;
        if (handle->rests_us == 0 || handle->staged == NULL)
            continue;
        if (now_us - handle->rests_us < REST_US)
            *ret_due_us = MIN (*ret_due_us, handle->rests_us + REST_US);
        else if ((staged = take_unused_locked (handle)) != NULL)
            g_ptr_array_add (left, staged);
    }
    ecfs_mutex_unlock (&self->lock);
    for (guint i = 0; i < left->len; i++)
        ecfs_staged_release (g_ptr_array_index (left, i));
}
