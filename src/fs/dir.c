/*
 * Listing directories. An offset is the catalog's plus two, for "." and "..". A listing ends where the directory ended
 * when it began, so that somebody who makes an entry for each one that he reads comes to an end too.
 */
#include "fs/fs_priv.h"

#include <sys/stat.h>

#define OFFSET_DOT    1
#define OFFSET_DOTDOT 2
#define ENTRY_BYTES   32  /* the least that a name takes in the answer */
#define PLUS_BYTES    152 /* the same with attributes */
#define UNKNOWN       -1  /* where the directory ends: nobody has read yet */

typedef struct Listing {
    fuse_req_t req;
    EcfsFs *fs;
    int64_t last; /* offset of the catalog */
    bool plus;
    unsigned moment; /* before any attributes were read */
    char *buffer;
    size_t size;
    size_t used;
} Listing;

/* False: the buffer is full. The kernel counts a lookup for each entry with attributes but "." and "..". */
static bool add (Listing *self, const char *name, EcfsAttr *attr, bool counts, int64_t offset)
{
    char *at = self->buffer + self->used;
    size_t room = self->size - self->used;
    struct fuse_entry_param entry = {.attr = {.st_ino = attr->ino, .st_mode = attr->mode}};
    if (self->plus && counts)
        ecfs_fs_entry (self->fs, self->moment, attr, &entry);
    size_t size = self->plus ? fuse_add_direntry_plus (self->req, at, room, name, &entry, offset)
                             : fuse_add_direntry (self->req, at, room, name, &entry.attr, offset);
    if (size > room) {
        if (self->plus && counts)
            ecfs_fs_forget (self->fs, attr->ino, 1);
        return false;
    }
    self->used += size;
    return true;
}

static bool add_dots (Listing *self, uint64_t ino, int64_t offset, GError **error)
{
    EcfsAttr attr = {.ino = ino, .mode = S_IFDIR};
    if (offset < OFFSET_DOT && !add (self, ".", &attr, false, OFFSET_DOT))
        return true;
    if (offset >= OFFSET_DOTDOT)
        return true;
    if (!ecfs_catalog_parent (self->fs->catalog, ino, &attr.ino, error))
        return false;
    (void) add (self, "..", &attr, false, OFFSET_DOTDOT); /* when it does not fit, the next call brings it */
    return true;
}

static bool add_entries (Listing *self, uint64_t ino, int64_t offset, GError **error)
{
    size_t max = (self->size - self->used) / (self->plus ? PLUS_BYTES : ENTRY_BYTES) + 1;
    int64_t after = MAX (offset, OFFSET_DOTDOT) - OFFSET_DOTDOT;
    g_autoptr (GPtrArray) entries = ecfs_catalog_readdir (self->fs->catalog, ino, after, max, error);
    if (entries == NULL)
        return false;
    for (guint i = 0; i < entries->len; i++) {
        EcfsDirent *entry = entries->pdata[i];
        if (entry->offset > self->last || !add (self, entry->name, &entry->attr, true, entry->offset + OFFSET_DOTDOT))
            break;
    }
    return true;
}

/* Beside a read-only mount somebody else may write, who gives offsets that this catalog's counter does not show yet. */
static int64_t last_offset (EcfsFs *self)
{
    return self->readonly ? INT64_MAX : ecfs_catalog_last_offset (self->catalog);
}

static void list (fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, EcfsHandle *handle, bool plus)
{
    g_autofree char *buffer = g_malloc (size);
    Listing self = {.req = req, .fs = ecfs_fs_of (req), .plus = plus, .buffer = buffer, .size = size};
    self.moment = ecfs_staged_epoch (self.fs->archive);
    if (offset == 0 || atomic_load (&handle->at_end) == UNKNOWN) /* opened, or rewound; or opened and sought */
        atomic_store (&handle->at_end, last_offset (self.fs));
    self.last = atomic_load (&handle->at_end);
    g_autoptr (GError) error = NULL;
    bool ok = add_dots (&self, ino, offset, &error);
    size_t dots_fit = size - self.used > PLUS_BYTES;
    if (ok && dots_fit)
        ok = add_entries (&self, ino, offset, &error);
    if (ok)
        fuse_reply_buf (req, buffer, self.used);
    else
        ecfs_fs_reply_error (req, ino, "readdir", error);
}

static void op_readdir (fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
    list (req, ino, size, offset, ecfs_handle_of (fi), false);
}

static void op_readdirplus (fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
    list (req, ino, size, offset, ecfs_handle_of (fi), true);
}

static void op_opendir (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    EcfsFs *self = ecfs_fs_of (req);
    EcfsHandle *handle = ecfs_fs_handle_new (self, ino, NULL);
    atomic_store (&handle->at_end, UNKNOWN);
    fi->fh = (uintptr_t) handle;
    fi->cache_readdir = fi->keep_cache =
        !self->readonly && !self->shared; /* the kernel forgets it with every change it makes */
    if (fuse_reply_open (req, fi) != 0)
        ecfs_fs_handle_free (self, ecfs_handle_of (fi));
}

static void op_releasedir (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    ecfs_fs_handle_free (ecfs_fs_of (req), ecfs_handle_of (fi));
    fuse_reply_err (req, 0);
}

static void op_fsyncdir (fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
    g_autoptr (GError) error = NULL;
    if (ecfs_catalog_barrier (ecfs_fs_of (req)->catalog, &error))
        fuse_reply_err (req, 0);
    else
        ecfs_fs_reply_error (req, ino, "fsync", error);
}

void ecfs_fs_dir_ops (struct fuse_lowlevel_ops *ops)
{
    ops->opendir = op_opendir;
    ops->readdir = op_readdir;
    ops->readdirplus = op_readdirplus;
    ops->releasedir = op_releasedir;
    ops->fsyncdir = op_fsyncdir;
}
