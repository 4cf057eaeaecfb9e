/* The namespace: names, attributes, links. */
#include "archive/places_of.h"
#include "fs/fs_priv.h"

#include <sys/stat.h>
#include <time.h>

static int64_t now_ns (void)
{
    struct timespec now;
    (void) clock_gettime (CLOCK_REALTIME, &now); /* cannot fail with this clock */
    return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Times beyond 1677 and 2262 become the last that can be kept. */
static int64_t ns_of (struct timespec time)
{
    int64_t ns;
    if (__builtin_mul_overflow ((int64_t) time.tv_sec, INT64_C (1000000000), &ns) ||
        __builtin_add_overflow (ns, (int64_t) time.tv_nsec, &ns))
        return time.tv_sec < 0 ? INT64_MIN : INT64_MAX;
    return ns;
}

/* "." and ".." come from the kernel only for what it was given by number: open_by_handle_at(2), an NFS server. */
static bool look_up (EcfsFs *self, uint64_t parent, const char *name, EcfsAttr *ret_attr, GError **error)
{
    uint64_t above;
    if (strcmp (name, ".") == 0)
        return ecfs_catalog_getattr (self->catalog, parent, ret_attr, error) &&
               (ret_attr->nlink > 0 || ecfs_fail (error, ENOENT, "inode %" PRIu64 " was removed", (uint64_t) parent));
    if (strcmp (name, "..") == 0)
        return ecfs_catalog_parent (self->catalog, parent, &above, error) &&
               ecfs_catalog_getattr (self->catalog, above, ret_attr, error);
    return ecfs_catalog_lookup (self->catalog, parent, name, ret_attr, error);
}

static void op_lookup (fuse_req_t req, fuse_ino_t parent, const char *name)
{
    EcfsFs *self = ecfs_fs_of (req);
    EcfsAttr attr;
    g_autoptr (GError) error = NULL;
    if (self->connected != NULL && !atomic_flag_test_and_set (&self->was_connected))
        self->connected (self);
    unsigned moment = ecfs_staged_epoch (self->archive);
    if (look_up (self, parent, name, &attr, &error)) {
        ecfs_fs_reply_entry (req, moment, &attr);
    } else if (g_error_matches (error, ECFS_ERROR, ENOENT) && !self->readonly && !self->shared) {
        struct fuse_entry_param absent = {.entry_timeout = self->timeout_s}; /* nobody else could make it */
        fuse_reply_entry (req, &absent);
    } else {
        ecfs_fs_reply_error (req, parent, "lookup", error);
    }
}

static void op_forget (fuse_req_t req, fuse_ino_t ino, uint64_t n_lookups)
{
    ecfs_fs_forget (ecfs_fs_of (req), ino, n_lookups);
    fuse_reply_none (req);
}

static void op_forget_multi (fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    for (size_t i = 0; i < count; i++)
        ecfs_fs_forget (ecfs_fs_of (req), forgets[i].ino, forgets[i].nlookup);
    fuse_reply_none (req);
}

static void reply_attr (fuse_req_t req, unsigned moment, EcfsAttr *attr)
{
    EcfsFs *self = ecfs_fs_of (req);
    struct stat st;
    ecfs_fs_overlay (self, moment, attr);
    ecfs_fs_stat (attr, &st);
    fuse_reply_attr (req, &st, ecfs_fs_attr_timeout_s (self, attr));
}

static void op_getattr (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    EcfsAttr attr;
    unsigned moment = ecfs_staged_epoch (ecfs_fs_of (req)->archive);
    g_autoptr (GError) error = NULL;
    if (ecfs_catalog_getattr (ecfs_fs_of (req)->catalog, ino, &attr, &error))
        reply_attr (req, moment, &attr);
    else if (ecfs_errno (error) == ENOENT && ecfs_fs_followed_attr (ecfs_fs_of (req), ino, &attr))
        reply_attr (req, moment, &attr);
    else
        ecfs_fs_reply_error (req, ino, "stat", error);
}

/* setattr */

typedef struct SetAttr {
    fuse_req_t req;
    uint64_t ino;
    EcfsAttr attr;
    unsigned mask; /* ECFS_ATTR_* for the catalog */
} SetAttr;

static unsigned mask_of (int to_set, const struct stat *st, EcfsAttr *attr)
{
    static const struct {
        int fuse;
        unsigned ours;
    } bits[] = {{FUSE_SET_ATTR_MODE, ECFS_ATTR_MODE},       {FUSE_SET_ATTR_UID, ECFS_ATTR_UID},
                {FUSE_SET_ATTR_GID, ECFS_ATTR_GID},         {FUSE_SET_ATTR_ATIME, ECFS_ATTR_ATIME},
                {FUSE_SET_ATTR_ATIME_NOW, ECFS_ATTR_ATIME}, {FUSE_SET_ATTR_MTIME, ECFS_ATTR_MTIME},
                {FUSE_SET_ATTR_MTIME_NOW, ECFS_ATTR_MTIME}, {FUSE_SET_ATTR_CTIME, ECFS_ATTR_CTIME}};
    unsigned mask = 0;
    for (size_t i = 0; i < G_N_ELEMENTS (bits); i++) {
        if (to_set & bits[i].fuse)
            mask |= bits[i].ours;
    }
    *attr = (EcfsAttr){.mode = st->st_mode, .uid = st->st_uid, .gid = st->st_gid};
    attr->atime_ns = to_set & FUSE_SET_ATTR_ATIME_NOW ? now_ns () : ns_of (st->st_atim);
    attr->mtime_ns = to_set & FUSE_SET_ATTR_MTIME_NOW ? now_ns () : ns_of (st->st_mtim);
    attr->ctime_ns = ns_of (st->st_ctim);
    return mask;
}

/* The time of staged content belongs to it, and reaches the catalog with it. */
static void set_staged_mtime (EcfsFs *self, SetAttr *set)
{
    if (!(set->mask & ECFS_ATTR_MTIME))
        return;
    EcfsStaged *staged = ecfs_staged_find (self->archive, set->ino);
    if (staged != NULL && !ecfs_staged_set_mtime (staged, set->attr.mtime_ns))
        set->mask &= ~(unsigned) ECFS_ATTR_MTIME;
    ecfs_staged_unref (staged);
}

static void finish_setattr (void *user, const GError *truncate_error)
{
    SetAttr *set = user;
    EcfsFs *self = ecfs_fs_of (set->req);
    EcfsAttr attr;
    unsigned moment = ecfs_staged_epoch (self->archive);
    g_autoptr (GError) error = truncate_error == NULL ? NULL : g_error_copy (truncate_error);
    if (error == NULL)
        set_staged_mtime (self, set);
    bool ok = error == NULL &&
              (set->mask != 0 ? ecfs_catalog_setattr (self->catalog, set->ino, &set->attr, set->mask, &attr, &error)
                              : ecfs_catalog_getattr (self->catalog, set->ino, &attr, &error));
    if (ok)
        reply_attr (set->req, moment, &attr);
    else
        ecfs_fs_reply_error (set->req, set->ino, "setting attributes", error);
    g_free (set);
}

/* Truncation to the size that it has changes times only. */
static bool has_size (EcfsFs *self, uint64_t ino, uint64_t size)
{
    EcfsAttr attr;
    unsigned moment = ecfs_staged_epoch (self->archive);
    if (!ecfs_catalog_getattr (self->catalog, ino, &attr, NULL))
        return false; /* truncating finds out why */
    ecfs_fs_overlay (self, moment, &attr);
    return attr.size == size;
}

static void op_setattr (fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi)
{
    SetAttr *set = g_new (SetAttr, 1);
    *set = (SetAttr){.req = req, .ino = ino};
    set->mask = mask_of (to_set, st, &set->attr);
    if (to_set & FUSE_SET_ATTR_SIZE && has_size (ecfs_fs_of (req), ino, (uint64_t) st->st_size)) {
        if (!(set->mask & ECFS_ATTR_MTIME))
            set->attr.mtime_ns = now_ns ();
        set->mask |= ECFS_ATTR_MTIME;
        finish_setattr (set, NULL);
    } else if (to_set & FUSE_SET_ATTR_SIZE)
        ecfs_fs_truncate (ecfs_fs_of (req), ino, fi == NULL ? NULL : ecfs_handle_of (fi), (uint64_t) st->st_size,
                          finish_setattr, set);
    else
        finish_setattr (set, NULL);
}

/* Making and removing */

static void make (fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev, const char *target)
{
    const struct fuse_ctx *context = fuse_req_ctx (req);
    EcfsNewInode inode = {
        .mode = mode, .uid = context->uid, .gid = context->gid, .rdev = rdev, .target = target, .staged = false};
    EcfsAttr attr;
    unsigned moment = ecfs_staged_epoch (ecfs_fs_of (req)->archive);
    g_autoptr (GError) error = NULL;
    if (ecfs_catalog_make (ecfs_fs_of (req)->catalog, parent, name, &inode, &attr, NULL, &error))
        ecfs_fs_reply_entry (req, moment, &attr);
    else
        ecfs_fs_reply_error (req, parent, name, error);
}

static void op_mknod (fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    make (req, parent, name, mode, rdev, NULL);
}

static void op_mkdir (fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    make (req, parent, name, (mode & ~(mode_t) S_IFMT) | S_IFDIR, 0, NULL);
}

static void op_symlink (fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    make (req, parent, name, S_IFLNK | 0777, 0, target);
}

static void op_readlink (fuse_req_t req, fuse_ino_t ino)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *target = ecfs_catalog_readlink (ecfs_fs_of (req)->catalog, ino, &error);
    if (target != NULL)
        fuse_reply_readlink (req, target);
    else
        ecfs_fs_reply_error (req, ino, "readlink", error);
}

static void op_link (fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    EcfsAttr attr;
    unsigned moment = ecfs_staged_epoch (ecfs_fs_of (req)->archive);
    g_autoptr (GError) error = NULL;
    if (ecfs_archive_check_name (ecfs_fs_of (req)->archive, ino, parent, 0, &error) &&
        ecfs_catalog_link (ecfs_fs_of (req)->catalog, ino, parent, name, &attr, &error))
        ecfs_fs_reply_entry (req, moment, &attr);
    else
        ecfs_fs_reply_error (req, ino, "link", error);
}

static void op_unlink (fuse_req_t req, fuse_ino_t parent, const char *name)
{
    EcfsFs *self = ecfs_fs_of (req);
    EcfsAttr attr;
    g_autoptr (GError) error = NULL;
    if (!ecfs_catalog_unlink (self->catalog, parent, name, &attr, &error)) {
        ecfs_fs_reply_error (req, parent, "unlink", error);
        return;
    }
    ecfs_fs_lost_name (self, &attr);
    fuse_reply_err (req, 0);
}

static void op_rmdir (fuse_req_t req, fuse_ino_t parent, const char *name)
{
    EcfsFs *self = ecfs_fs_of (req);
    EcfsAttr attr;
    g_autoptr (GError) error = NULL;
    if (!ecfs_catalog_rmdir (self->catalog, parent, name, &attr, &error)) {
        ecfs_fs_reply_error (req, parent, "rmdir", error);
        return;
    }
    ecfs_fs_lost_name (self, &attr);
    fuse_reply_err (req, 0);
}

typedef struct Rename {
    fuse_req_t req;
    fuse_ino_t parent;
    fuse_ino_t new_parent;
    char *name;
    char *new_name;
    unsigned flags;
} Rename;

/* Of a file with several names, whose rules are all kept. What is not there is told by who renames. */
static bool may_move (const Rename *self, GError **error)
{
    EcfsAttr attr;
    EcfsFs *fs = ecfs_fs_of (self->req);
    return self->parent == self->new_parent ||
           !ecfs_catalog_lookup (fs->catalog, self->parent, self->name, &attr, NULL) || attr.nlink < 2 ||
           ecfs_archive_check_name (fs->archive, attr.ino, self->new_parent, self->parent, error);
}

static void do_rename (void *user, const GError *not_durable)
{
    Rename *request = user;
    EcfsFs *self = ecfs_fs_of (request->req);
    EcfsAttr replaced = {0};
    g_autoptr (GError) error = not_durable == NULL ? NULL : g_error_copy (not_durable);
    if (error == NULL && may_move (request, &error) &&
        ecfs_catalog_rename (self->catalog, request->parent, request->name, request->new_parent, request->new_name,
                             request->flags, &replaced, &error)) {
        ecfs_fs_lost_name (self, &replaced);
        fuse_reply_err (request->req, 0);
    } else {
        ecfs_fs_reply_error (request->req, request->parent, "rename", error);
    }
    g_free (request->name);
    g_free (request->new_name);
    g_free (request);
}

static void op_rename (fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent, const char *new_name,
                       unsigned flags)
{
    Rename *request = g_new (Rename, 1);
    *request = (Rename){.req = req,
                        .parent = parent,
                        .new_parent = new_parent,
                        .name = g_strdup (name),
                        .new_name = g_strdup (new_name),
                        .flags = flags};
    if (flags != 0) /* nothing is replaced */
        do_rename (request, NULL);
    else
        ecfs_staged_before_rename (ecfs_fs_of (req)->archive, parent, name, new_parent, new_name, do_rename, request);
}

static void op_statfs (fuse_req_t req, fuse_ino_t ino)
{
    EcfsArchiveSpace space;
    ecfs_archive_space (ecfs_fs_of (req)->archive, &space);
    struct statvfs disk = {.f_bsize = ECFS_FS_REQUEST_BYTES,
                           .f_frsize = 4096,
                           .f_blocks = space.total / 4096,
                           .f_bfree = space.free / 4096,
                           .f_bavail = space.free / 4096,
                           .f_files = space.n_inodes + space.free_inodes,
                           .f_ffree = space.free_inodes,
                           .f_favail = space.free_inodes,
                           .f_namemax = ECFS_NAME_MAX};
    fuse_reply_statfs (req, &disk);
}

void ecfs_fs_name_ops (struct fuse_lowlevel_ops *ops)
{
    ops->lookup = op_lookup;
    ops->forget = op_forget;
    ops->forget_multi = op_forget_multi;
    ops->getattr = op_getattr;
    ops->setattr = op_setattr;
    ops->mknod = op_mknod;
    ops->mkdir = op_mkdir;
    ops->symlink = op_symlink;
    ops->readlink = op_readlink;
    ops->link = op_link;
    ops->unlink = op_unlink;
    ops->rmdir = op_rmdir;
    ops->rename = op_rename;
    ops->statfs = op_statfs;
}
