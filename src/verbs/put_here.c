/*
 * Storing files in the archive that this process has open.
 *
 * A file is an inode without a name until its content is committed, and then gets its name in place of what had it: so
 * nobody finds an empty or half a file, and a crash leaves nothing but an inode that the next mount drops. Contents are
 * stored by the archive's put threads, several at a time.
 */
#include "archive/common.h"
#include "commit/commit.h"
#include "verbs/names.h"
#include "verbs/put_store.h"
#include "verbs/verbs.h"

#include <inttypes.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MAX_ATTEMPTS 3 /* at a file that changes while it is read */

typedef struct Here {
    EcfsPutStore base;
    EcfsArchive *archive;
    EcfsCatalog *catalog;
    EcfsPutHere options; /* with a code of its own */
    uint64_t wire_before;
    uint64_t path_ino; /* whose path is `path`: most files follow one from the same directory */
    char *path;
    atomic_bool cancelled;
    EcfsMutex lock;
    EcfsCond moved;
    GQueue ended; /* of Job, guarded by lock */
} Here;

typedef struct Job {
    Here *here;
    EcfsPutFile *file;
    GError *error; /* of the attempt; owned */
} Job;

static Here *here_of (EcfsPutStore *store)
{
    return (Here *) store; /* its first member */
}

EcfsPutFile *ecfs_put_file_new (int fd, const struct stat *st, uint64_t parent, const char *name)
{
    EcfsPutFile *file = g_new0 (EcfsPutFile, 1);
    *file = (EcfsPutFile){.fd = fd, .st = *st, .parent = parent, .name = g_strdup (name)};
    return file;
}

void ecfs_put_file_free (EcfsPutFile *file)
{
    if (file == NULL)
        return;
    if (file->fd >= 0)
        (void) close (file->fd); /* only read */
    g_clear_error (&file->error);
    g_clear_error (&file->warning);
    g_free (file->name);
    g_free (file);
}

static int64_t to_ns (const struct timespec *time)
{
    return (int64_t) time->tv_sec * 1000000000 + time->tv_nsec;
}

/* Attributes */

static bool put_attributes (Here *self, uint64_t ino, const struct stat *st, GError **error)
{
    const EcfsPutHere *options = &self->options;
    EcfsAttr attr = {.mode = st->st_mode & 07777,
                     .uid = options->keeps_owners ? st->st_uid : options->uid,
                     .gid = options->keeps_owners ? st->st_gid : options->gid,
                     .atime_ns = to_ns (&st->st_atim),
                     .mtime_ns = to_ns (&st->st_mtim)};
    unsigned mask = ECFS_ATTR_UID | ECFS_ATTR_GID | ECFS_ATTR_ATIME | ECFS_ATTR_MTIME;
    if (!S_ISLNK (st->st_mode))
        mask |= ECFS_ATTR_MODE;
    return ecfs_catalog_setattr (self->catalog, ino, &attr, mask, &attr, error);
}

static bool put_xattr (Here *self, int fd, const char *name, uint64_t ino, GError **error)
{
    ssize_t size = fgetxattr (fd, name, NULL, 0);
    if (size < 0)
        return errno == ENODATA || ecfs_fail_errno (error, errno, "extended attribute %s", name);
    g_autofree char *value = g_malloc ((size_t) size + 1);
    size = fgetxattr (fd, name, value, (size_t) size);
    if (size < 0)
        return errno == ENODATA || ecfs_fail_errno (error, errno, "extended attribute %s", name);
    return ecfs_catalog_setxattr (self->catalog, ino, name, value, (size_t) size, 0, error);
}

static bool put_xattrs (Here *self, int fd, uint64_t ino, GError **error)
{
    ssize_t size = flistxattr (fd, NULL, 0);
    if (size <= 0) /* none, or none on this file system */
        return true;
    g_autofree char *names = g_malloc ((size_t) size);
    size = flistxattr (fd, names, (size_t) size);
    for (const char *name = names; size > 0 && name < names + size; name += strlen (name) + 1)
        if (ecfs_xattr_travels (name) && !put_xattr (self, fd, name, ino, error))
            return false;
    return true;
}

/* Names */

static void tell_renamed (Here *self, uint64_t parent, const char *name, const EcfsAttr *lost)
{
    g_autoptr (GError) error = NULL;
    if (self->options.renamed != NULL)
        self->options.renamed (self->options.user, parent, name, lost);
    else if (lost->ino != 0 && lost->nlink == 0 && !ecfs_catalog_is_shared (self->catalog) &&
             !ecfs_catalog_drop (self->catalog, lost->ino, &error))
        g_info ("%s", error->message); /* done again at the next mount; who leads others does it later */
}

static void tell_changed (Here *self, uint64_t ino)
{
    if (self->options.changed != NULL)
        self->options.changed (self->options.user, ino);
}

static bool give_name (Here *self, uint64_t ino, uint64_t parent, const char *name, GError **error)
{
    EcfsAttr lost;
    if (!ecfs_catalog_link_over (self->catalog, ino, parent, name, &lost, error))
        return false;
    tell_renamed (self, parent, name, &lost);
    return true;
}

static bool make (Here *self, uint64_t parent, const char *name, const struct stat *st, const char *target,
                  EcfsAttr *ret_attr, GError **error)
{
    const EcfsPutHere *options = &self->options;
    EcfsNewInode inode = {.mode = st->st_mode,
                          .uid = options->keeps_owners ? st->st_uid : options->uid,
                          .gid = options->keeps_owners ? st->st_gid : options->gid,
                          .rdev = st->st_rdev,
                          .target = target};
    return ecfs_catalog_make (self->catalog, parent, name, &inode, ret_attr, NULL, error);
}

/* An inode that does not get a name after all. */
static void take_back (Here *self, uint64_t ino)
{
    g_autoptr (GError) error = NULL;
    if (ino != 0 && !ecfs_catalog_drop (self->catalog, ino, &error))
        g_info ("%s", error->message); /* done again at the next mount */
}

static bool op_link (EcfsPutStore *store, uint64_t ino, uint64_t parent, const char *name, GError **error)
{
    if (!give_name (here_of (store), ino, parent, name, error))
        return false;
    tell_changed (here_of (store), ino);
    return true;
}

static bool op_special (EcfsPutStore *store, uint64_t parent, const char *name, const struct stat *st,
                        const char *target, GError **error)
{
    Here *self = here_of (store);
    EcfsAttr attr = {0};
    if (make (self, parent, NULL, st, target, &attr, error) && put_attributes (self, attr.ino, st, error) &&
        give_name (self, attr.ino, parent, name, error))
        return true;
    take_back (self, attr.ino);
    return false;
}

static bool op_directory (EcfsPutStore *store, uint64_t parent, const char *name, const struct stat *st,
                          uint64_t *ret_ino, GError **error)
{
    static const EcfsAttr nobody = {.ino = 0};
    Here *self = here_of (store);
    EcfsAttr attr;
    g_autoptr (GError) missing = NULL;
    bool there = ecfs_catalog_lookup (self->catalog, parent, name, &attr, &missing);
    if (there && !S_ISDIR (attr.mode))
        return ecfs_fail (error, ENOTDIR, "the archive has a file of this name");
    if (!there && ecfs_errno (missing) != ENOENT) {
        g_propagate_error (error, g_steal_pointer (&missing));
        return false;
    }
    if (!there && !make (self, parent, name, st, NULL, &attr, error))
        return false;
    if (!there)
        tell_renamed (self, parent, name, &nobody);
    *ret_ino = attr.ino;
    return true;
}

static bool op_dress (EcfsPutStore *store, uint64_t ino, int fd, const struct stat *st, GError **error)
{
    Here *self = here_of (store);
    bool good = put_xattrs (self, fd, ino, error) && put_attributes (self, ino, st, error);
    tell_changed (self, ino);
    return good;
}

/* Paths */

static bool make_path (Here *self, char **names, size_t n_names, uint64_t *ret_ino, GError **error)
{
    struct stat st = {.st_mode = S_IFDIR | 0755, .st_uid = self->options.uid, .st_gid = self->options.gid};
    uint64_t ino = ECFS_ROOT_INO;
    for (size_t i = 0; i < n_names; i++)
        if (!op_directory (&self->base, ino, names[i], &st, &ino, error))
            return ecfs_prefix (error, "%s", names[i]);
    *ret_ino = ino;
    return true;
}

static bool op_resolve (EcfsPutStore *store, const char *path, bool directory, EcfsPutPlace *ret_place, GError **error)
{
    Here *self = here_of (store);
    g_auto (GStrv) names = ecfs_names_split (path, error);
    if (names == NULL)
        return false;
    EcfsAttr attr;
    size_t n_names = g_strv_length (names);
    bool is_directory = ecfs_catalog_resolve (self->catalog, path, &attr, NULL) && S_ISDIR (attr.mode);
    directory = directory || is_directory || n_names == 0 || g_str_has_suffix (path, "/");
    size_t n_parents = directory ? n_names : n_names - 1;
    uint64_t parent = ECFS_ROOT_INO;
    if (!make_path (self, names, n_parents, &parent, error))
        return ecfs_prefix (error, "%s", path);
    ret_place->parent = parent;
    ret_place->name = directory ? NULL : g_strdup (names[n_names - 1]);
    return true;
}

/* Files */

static bool same_time (const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool on_unchanged (void *user)
{
    const Job *job = user;
    const EcfsPutFile *file = job->file;
    struct stat now;
    if (atomic_load (&job->here->cancelled))
        return false;
    return file->is_fixed || (fstat (file->fd, &now) == 0 && now.st_size == file->st.st_size &&
                              same_time (&now.st_mtim, &file->st.st_mtim));
}

/* Who takes the last job may free all of it as soon as the lock is free. */
static void give_back (Job *job)
{
    Here *self = job->here;
    ecfs_mutex_lock (&self->lock);
    g_queue_push_tail (&self->ended, job);
    ecfs_cond_broadcast (&self->moved);
    if (self->options.wake_fd >= 0)
        (void) eventfd_write (self->options.wake_fd, 1); /* cannot fail, nor block: its count stays small */
    ecfs_mutex_unlock (&self->lock);
}

static void on_done (void *user, const EcfsOutcome *outcome)
{
    Job *job = user;
    job->file->full = outcome->full;
    job->error = outcome->error == NULL ? NULL : g_error_copy (outcome->error);
    give_back (job);
}

static const char *parent_path (Here *self, uint64_t parent)
{
    if (self->path_ino != parent) {
        g_free (self->path);
        self->path = ecfs_catalog_path (self->catalog, parent);
        self->path_ino = parent;
    }
    return self->path;
}

static void submit (Here *self, Job *job)
{
    EcfsPutFile *file = job->file;
    g_autofree char *path = file->fills ? NULL : g_build_filename (parent_path (self, file->parent), file->name, NULL);
    EcfsCommit commit = {.kind = file->fills ? ECFS_COMMIT_BACKFILL : ECFS_COMMIT_STORE,
                         .ino = file->ino,
                         .parent = file->fills ? 0 : file->parent,
                         .fd = file->fd,
                         .size = (uint64_t) file->st.st_size,
                         .mtime_ns = to_ns (&file->st.st_mtim),
                         .retry = file->fills,
                         .code = file->fills ? NULL : self->options.code,
                         .path = path,
                         .patient = true,
                         .is_foreign = true,
                         .cancelled = &self->cancelled,
                         .unchanged = on_unchanged,
                         .done = on_done,
                         .user = job};
    file->attempt++;
    ecfs_archive_commit (self->archive, &commit);
}

/* A name that a directory has is refused before anything is sent. */
static bool check_name (Here *self, const EcfsPutFile *file, GError **error)
{
    EcfsAttr old;
    bool taken = ecfs_catalog_lookup (self->catalog, file->parent, file->name, &old, NULL) && S_ISDIR (old.mode);
    return !taken || ecfs_fail (error, EISDIR, "the archive has a directory of this name");
}

static bool begin (Here *self, EcfsPutFile *file, GError **error)
{
    EcfsAttr attr;
    if (atomic_load (&self->cancelled))
        return ecfs_fail (error, ECANCELED, "cancelled");
    if (file->fills)
        return true;
    if (!check_name (self, file, error) || !make (self, file->parent, NULL, &file->st, NULL, &attr, error))
        return false;
    file->ino = attr.ino;
    if (self->options.code != NULL && !ecfs_catalog_set_code (self->catalog, file->ino, self->options.code, error))
        return false;
    (void) put_xattrs (self, file->fd, file->ino, &file->warning); /* told when the content is stored */
    return true;
}

static void op_file (EcfsPutStore *store, EcfsPutFile *file)
{
    Here *self = here_of (store);
    Job *job = g_new0 (Job, 1);
    *job = (Job){.here = self, .file = file};
    if (begin (self, file, &job->error))
        submit (self, job);
    else
        give_back (job);
}

/* The content changed while it was read: once more, as it is now. */
static bool again (Here *self, Job *job)
{
    EcfsPutFile *file = job->file;
    struct stat now;
    if (ecfs_errno (job->error) != ECANCELED || atomic_load (&self->cancelled) || file->fills)
        return false;
    if (file->attempt >= MAX_ATTEMPTS || fstat (file->fd, &now) != 0) {
        g_clear_error (&job->error);
        job->error = g_error_new_literal (ECFS_ERROR, EAGAIN, "it changed while it was read; not stored");
        return false;
    }
    g_clear_error (&job->error);
    file->st.st_size = now.st_size;
    file->st.st_mtim = now.st_mtim;
    submit (self, job);
    return true;
}

/* Returns whether the file goes back to who sent it. */
static bool conclude (Here *self, Job *job)
{
    EcfsPutFile *file = job->file;
    if (again (self, job))
        return false;
    if (!file->fills && job->error == NULL && put_attributes (self, file->ino, &file->st, &job->error))
        (void) give_name (self, file->ino, file->parent, file->name, &job->error); /* kept in the job */
    if (!file->fills && job->error != NULL)
        take_back (self, file->ino);
    file->error = g_steal_pointer (&job->error);
    g_free (job);
    return true;
}

static void op_collect (EcfsPutStore *store, int64_t deadline_us, GQueue *ret_files)
{
    Here *self = here_of (store);
    GQueue ended = G_QUEUE_INIT;
    ecfs_mutex_lock (&self->lock);
    while (g_queue_is_empty (&self->ended) && ecfs_now_us () < deadline_us)
        (void) ecfs_cond_wait_until (&self->moved, &self->lock, deadline_us);
    GQueue empty = ended;
    ended = self->ended;
    self->ended = empty;
    ecfs_mutex_unlock (&self->lock);
    Job *job;
    while ((job = g_queue_pop_head (&ended)) != NULL) {
        EcfsPutFile *file = job->file;
        if (conclude (self, job))
            g_queue_push_tail (ret_files, file);
    }
}

static void op_cancel (EcfsPutStore *store)
{
    atomic_store (&here_of (store)->cancelled, true);
}

static bool op_finish (EcfsPutStore *store, GError **error)
{
    return ecfs_catalog_barrier (here_of (store)->catalog, error);
}

static uint64_t op_wire_bytes (EcfsPutStore *store)
{
    return ecfs_archive_wire_bytes (here_of (store)->archive) - here_of (store)->wire_before;
}

static void op_free (EcfsPutStore *store)
{
    Here *self = here_of (store);
    ecfs_cond_clear (&self->moved);
    ecfs_mutex_clear (&self->lock);
    g_free (self->path);
    g_free ((char *) self->options.code);
    g_free (self);
}

EcfsPutStore *ecfs_put_here_new (EcfsArchive *archive, const EcfsPutHere *options, GError **error)
{
    static const EcfsPutOps ops = {.resolve = op_resolve,
                                   .directory = op_directory,
                                   .dress = op_dress,
                                   .special = op_special,
                                   .link = op_link,
                                   .file = op_file,
                                   .collect = op_collect,
                                   .cancel = op_cancel,
                                   .finish = op_finish,
                                   .wire_bytes = op_wire_bytes,
                                   .free = op_free};
    if (options->code != NULL && !ecfs_archive_check_code (archive, options->code, error))
        return NULL;
    Here *self = g_new0 (Here, 1);
    *self = (Here){.base.ops = &ops,
                   .archive = archive,
                   .catalog = ecfs_archive_catalog (archive),
                   .options = *options,
                   .wire_before = ecfs_archive_wire_bytes (archive),
                   .ended = G_QUEUE_INIT};
    self->options.code = g_strdup (options->code);
    atomic_init (&self->cancelled, false);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->moved);
    return &self->base;
}
