/*
 * Files into the archive without a mount. The caller's thread walks the sources and makes names; contents are stored by
 * the archive's commit threads, several at a time.
 *
 * A new file is made together with a staging row, so that a crash before its commit leaves a name that the next mount
 * takes away again, never an empty file that looks complete. A file that is there keeps its inode and gets its new
 * content when that is stored; a staging row that it has is settled by it.
 */
#include "archive/api_priv.h"
#include "archive/commit.h"
#include "codec/codec.h"
#include "util/io.h"
#include "util/lock.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MAX_IN_FLIGHT 16
#define MAX_ATTEMPTS  3 /* at a file that changes while it is read */
#define TICK_US       200000

typedef struct Put {
    EcfsArchive *archive;
    EcfsCatalog *catalog;
    const char *code; /* NULL: default */
    EcfsTally tally;
    struct stat own;    /* the archive directory, which is not put into itself */
    GHashTable *staged; /* rows of before, by inode */
    GHashTable *links;  /* "device:inode" of sources with several names → Link */
    unsigned n_in_flight;

    EcfsMutex lock;
    EcfsCond moved;
    GQueue ended; /* Item, guarded by lock */
} Put;

typedef struct Link {
    uint64_t ino; /* 0: its first name is in flight, or was not stored */
    bool in_flight;
} Link;

/* A file whose content is on its way. */
typedef struct Item {
    Put *put;
    char *source; /* for messages */
    int fd;
    struct stat st;
    uint64_t parent;
    char *name;
    uint64_t ino;
    bool fresh;      /* made by us: taken away again when it fails */
    int64_t staging; /* 0: none */
    bool spooled;    /* a copy of ours: nobody changes it */
    unsigned n_attempts;
    Link *link;    /* NULL: it has one name */
    bool full;     /* result */
    GError *error; /* result */
} Item;

static void item_free (Item *item)
{
    if (item->fd >= 0)
        close (item->fd);
    g_clear_error (&item->error);
    g_free (item->source);
    g_free (item->name);
    g_free (item);
}

static bool same_time (const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static int64_t to_ns (const struct timespec *time)
{
    return (int64_t) time->tv_sec * 1000000000 + time->tv_nsec;
}

/* Attributes */

static uint32_t owner_of (const struct stat *st)
{
    return geteuid () == 0 ? st->st_uid : geteuid ();
}

static uint32_t group_of (const struct stat *st)
{
    return geteuid () == 0 ? st->st_gid : getegid ();
}

static bool put_attributes (Put *put, uint64_t ino, const struct stat *st, GError **error)
{
    EcfsAttr attr = {.mode = st->st_mode & 07777,
                     .uid = owner_of (st),
                     .gid = group_of (st),
                     .atime_ns = to_ns (&st->st_atim),
                     .mtime_ns = to_ns (&st->st_mtim)};
    unsigned mask = ECFS_ATTR_UID | ECFS_ATTR_GID | ECFS_ATTR_ATIME | ECFS_ATTR_MTIME;
    if (!S_ISLNK (st->st_mode))
        mask |= ECFS_ATTR_MODE;
    return ecfs_catalog_setattr (put->catalog, ino, &attr, mask, &attr, error);
}

static bool put_xattr (Put *put, int fd, const char *name, uint64_t ino, GError **error)
{
    ssize_t size = fgetxattr (fd, name, NULL, 0);
    if (size < 0)
        return errno == ENODATA || ecfs_fail_errno (error, errno, "extended attribute %s", name);
    g_autofree char *value = g_malloc ((size_t) size + 1);
    size = fgetxattr (fd, name, value, (size_t) size);
    if (size < 0)
        return errno == ENODATA || ecfs_fail_errno (error, errno, "extended attribute %s", name);
    return ecfs_catalog_setxattr (put->catalog, ino, name, value, (size_t) size, 0, error);
}

static bool put_xattrs (Put *put, int fd, uint64_t ino, GError **error)
{
    ssize_t size = flistxattr (fd, NULL, 0);
    if (size <= 0) /* none, or none on this file system */
        return true;
    g_autofree char *names = g_malloc ((size_t) size);
    size = flistxattr (fd, names, (size_t) size);
    for (const char *name = names; size > 0 && name < names + size; name += strlen (name) + 1)
        if (ecfs_xattr_travels (name) && !put_xattr (put, fd, name, ino, error))
            return false;
    return true;
}

/* Contents in flight */

static bool on_unchanged (void *user)
{
    const Item *item = user;
    struct stat now;
    return item->spooled || (fstat (item->fd, &now) == 0 && now.st_size == item->st.st_size &&
                             same_time (&now.st_mtim, &item->st.st_mtim));
}

static void on_done (void *user, const EcfsOutcome *outcome)
{
    Item *item = user;
    Put *put = item->put;
    ecfs_mutex_lock (&put->lock);
    item->full = outcome->full;
    item->error = outcome->error == NULL ? NULL : g_error_copy (outcome->error);
    g_queue_push_tail (&put->ended, item);
    ecfs_cond_broadcast (&put->moved);
    ecfs_mutex_unlock (&put->lock);
}

static void submit (Put *put, Item *item)
{
    EcfsCommit commit = {.ino = item->ino,
                         .staging = item->staging,
                         .fd = item->fd,
                         .size = (uint64_t) item->st.st_size,
                         .mtime_ns = to_ns (&item->st.st_mtim),
                         .code = put->code,
                         .patient = true,
                         .unchanged = on_unchanged,
                         .done = on_done,
                         .user = item};
    item->n_attempts++;
    put->n_in_flight++;
    ecfs_archive_commit (put->archive, &commit);
}

/* The staging row is settled; when an earlier mount had made it, its file is of no more use. */
static bool settle (Put *put, Item *item, GError **error)
{
    if (item->staging == 0)
        return true;
    if (!item->full && !ecfs_catalog_staging_remove (put->catalog, item->staging, error))
        return false;
    int64_t ino = (int64_t) item->ino;
    if (g_hash_table_remove (put->staged, &ino)) {
        g_autofree char *path = g_strdup_printf ("%s/staging/%" PRIi64 ".%" PRIu64,
                                                 ecfs_archive_directory (put->archive), item->staging, item->ino);
        (void) unlink (path); /* absent is as good */
    }
    return true;
}

static void take_back (Put *put, Item *item)
{
    EcfsAttr attr;
    g_autoptr (GError) error = NULL;
    if (!ecfs_catalog_unlink (put->catalog, item->parent, item->name, &attr, &error) ||
        !ecfs_catalog_drop (put->catalog, item->ino, &error))
        ecfs_tally_warn (&put->tally, g_steal_pointer (&error));
}

static GError *changed_error (void)
{
    return g_error_new_literal (ECFS_ERROR, EAGAIN, "it changes while it is read; not stored");
}

static void item_failed (Put *put, Item *item)
{
    if (!put->tally.cancelled) {
        g_prefix_error (&item->error, "%s: ", item->source);
        ecfs_tally_failed (&put->tally, g_steal_pointer (&item->error));
    }
    if (item->fresh)
        take_back (put, item);
}

/* One commit has ended. Returns false when the item is in flight again. */
static bool conclude (Put *put, Item *item)
{
    put->n_in_flight--;
    if (ecfs_errno (item->error) == ECANCELED && !put->tally.cancelled) {
        g_clear_error (&item->error);
        if (item->n_attempts < MAX_ATTEMPTS && fstat (item->fd, &item->st) == 0) {
            submit (put, item);
            return false;
        }
        item->error = changed_error ();
    }
    if (item->error == NULL && settle (put, item, &item->error))
        (void) put_attributes (put, item->ino, &item->st, &item->error);
    if (item->link != NULL) {
        item->link->in_flight = false;
        item->link->ino = item->error == NULL ? item->ino : 0;
    }
    if (item->error != NULL) {
        item_failed (put, item);
        return true;
    }
    put->tally.progress.n_done++;
    put->tally.progress.bytes_done += (uint64_t) item->st.st_size;
    put->tally.progress.n_not_full += !item->full;
    return true;
}

/* Takes what has ended, waiting for something at most one tick. */
static void reap (Put *put)
{
    int64_t deadline_us = ecfs_now_us () + TICK_US;
    GQueue ended = G_QUEUE_INIT;
    ecfs_mutex_lock (&put->lock);
    while (g_queue_is_empty (&put->ended) && ecfs_cond_wait_until (&put->moved, &put->lock, deadline_us))
        ;
    GQueue empty = ended;
    ended = put->ended;
    put->ended = empty;
    ecfs_mutex_unlock (&put->lock);
    Item *item;
    while ((item = g_queue_pop_head (&ended)) != NULL)
        if (conclude (put, item))
            item_free (item);
    /* What is in flight ends with ECANCELED, and its names are taken back when it is reaped. */
    if (!put->tally.cancelled && !ecfs_tally_tick (&put->tally))
        ecfs_archive_stop (put->archive);
}

/* Names */

/* Makes room for another kind of file under a name. */
static bool remove_other (Put *put, uint64_t parent, const char *name, const EcfsAttr *old, GError **error)
{
    EcfsAttr attr;
    if (S_ISDIR (old->mode))
        return ecfs_fail (error, EISDIR, "the archive has a directory of this name");
    return ecfs_catalog_unlink (put->catalog, parent, name, &attr, error) &&
           ecfs_catalog_drop (put->catalog, attr.ino, error);
}

/* Looks up @name; *ret_attr has ino 0 when it is free. */
static bool look_up (Put *put, uint64_t parent, const char *name, EcfsAttr *ret_attr, GError **error)
{
    GError *missing = NULL;
    if (ecfs_catalog_lookup (put->catalog, parent, name, ret_attr, &missing))
        return true;
    if (ecfs_errno (missing) != ENOENT) {
        g_propagate_error (error, missing);
        return false;
    }
    g_error_free (missing);
    *ret_attr = (EcfsAttr){0};
    return true;
}

static bool make (Put *put, uint64_t parent, const char *name, const struct stat *st, const char *target,
                  EcfsAttr *ret_attr, int64_t *ret_staging, GError **error)
{
    EcfsNewInode inode = {.mode = st->st_mode,
                          .uid = owner_of (st),
                          .gid = group_of (st),
                          .rdev = st->st_rdev,
                          .target = target,
                          .staged = S_ISREG (st->st_mode)};
    return ecfs_catalog_make (put->catalog, parent, name, &inode, ret_attr, ret_staging, error);
}

static bool make_file (Put *put, Item *item, GError **error)
{
    EcfsAttr attr;
    if (!make (put, item->parent, item->name, &item->st, NULL, &attr, &item->staging, error))
        return false;
    item->ino = attr.ino;
    item->fresh = true;
    if (put->code != NULL && !ecfs_catalog_set_code (put->catalog, item->ino, put->code, error)) {
        take_back (put, item);
        return false;
    }
    return true;
}

/* Finds or makes the inode that gets the content. */
static bool place (Put *put, Item *item, GError **error)
{
    EcfsAttr old;
    if (!look_up (put, item->parent, item->name, &old, error))
        return false;
    if (old.ino == 0 || !S_ISREG (old.mode)) {
        if (old.ino != 0 && !remove_other (put, item->parent, item->name, &old, error))
            return false;
        return make_file (put, item, error);
    }
    item->ino = old.ino;
    int64_t ino = (int64_t) old.ino;
    const EcfsStagingRow *row = g_hash_table_lookup (put->staged, &ino);
    item->staging = row == NULL ? 0 : row->id;
    return put->code == NULL || ecfs_catalog_set_code (put->catalog, item->ino, put->code, error);
}

/* Another name of a source that is stored already. False, without an error, when it is not. */
static bool put_link (Put *put, Link *link, uint64_t parent, const char *name, GError **error)
{
    while (link->in_flight)
        reap (put);
    if (link->ino == 0)
        return false;
    EcfsAttr old;
    if (!look_up (put, parent, name, &old, error))
        return false;
    if (old.ino == link->ino)
        return true;
    return (old.ino == 0 || remove_other (put, parent, name, &old, error)) &&
           ecfs_catalog_link (put->catalog, link->ino, parent, name, &old, error);
}

static Link *link_of (Put *put, const struct stat *st)
{
    if (st->st_nlink < 2)
        return NULL;
    char *key = g_strdup_printf ("%" PRIu64 ":%" PRIu64, (uint64_t) st->st_dev, (uint64_t) st->st_ino);
    Link *link = g_hash_table_lookup (put->links, key);
    if (link == NULL) {
        link = g_new0 (Link, 1);
        g_hash_table_insert (put->links, key, link);
    } else {
        g_free (key);
    }
    return link;
}

/* Sources */

/* The item of an open file; takes @fd. */
static Item *item_new (Put *put, int fd, const struct stat *st, const char *source, uint64_t parent, const char *name)
{
    Item *item = g_new0 (Item, 1);
    item->put = put;
    item->fd = fd;
    item->st = *st;
    item->source = g_strdup (source);
    item->parent = parent;
    item->name = g_strdup (name);
    return item;
}

static bool send_item (Put *put, Item *item, GError **error)
{
    while (put->n_in_flight >= MAX_IN_FLIGHT)
        reap (put);
    if (put->tally.cancelled || !place (put, item, error)) {
        item_free (item);
        return put->tally.cancelled;
    }
    GError *warning = NULL;
    if (!put_xattrs (put, item->fd, item->ino, &warning)) {
        g_prefix_error (&warning, "%s: ", item->source);
        ecfs_tally_warn (&put->tally, warning);
    }
    if (item->link != NULL)
        item->link->in_flight = true;
    submit (put, item);
    return true;
}

static bool put_file (Put *put, int dir_fd, const char *entry, const char *source, uint64_t parent, const char *name,
                      int flags, GError **error)
{
    int fd = openat (dir_fd, entry, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
    if (fd < 0)
        return ecfs_fail_errno (error, errno, "%s", source);
    struct stat st;
    if (fstat (fd, &st) != 0 || !S_ISREG (st.st_mode)) {
        close (fd);
        return ecfs_fail (error, ESTALE, "%s: it is no regular file any more", source);
    }
    Link *link = link_of (put, &st);
    if (link != NULL && (link->in_flight || link->ino != 0)) {
        GError *why = NULL;
        if (put_link (put, link, parent, name, &why) || why != NULL) {
            close (fd);
            put->tally.progress.n_done += why == NULL;
            if (why != NULL)
                g_propagate_prefixed_error (error, why, "%s: ", source);
            return why == NULL;
        }
    }
    Item *item = item_new (put, fd, &st, source, parent, name);
    item->link = link;
    return send_item (put, item, error) || ecfs_prefix (error, "%s", source);
}

static char *read_link (int dir_fd, const char *entry, const char *source, GError **error)
{
    char target[PATH_MAX];
    ssize_t size = readlinkat (dir_fd, entry, target, sizeof target);
    if (size >= 0 && size < (ssize_t) sizeof target)
        return g_strndup (target, (size_t) size);
    bool failed = ecfs_fail_errno (error, size < 0 ? errno : ENAMETOOLONG, "%s", source);
    g_assert (!failed);
    return NULL;
}

/* Symbolic links, devices, pipes: all that is a name and nothing else. */
static bool put_special (Put *put, int dir_fd, const char *entry, const struct stat *st, const char *source,
                         uint64_t parent, const char *name, GError **error)
{
    g_autofree char *target = NULL;
    if (S_ISLNK (st->st_mode) && (target = read_link (dir_fd, entry, source, error)) == NULL)
        return false;
    EcfsAttr attr;
    if (!look_up (put, parent, name, &attr, error) ||
        (attr.ino != 0 && !remove_other (put, parent, name, &attr, error)) ||
        !make (put, parent, name, st, target, &attr, NULL, error) || !put_attributes (put, attr.ino, st, error))
        return ecfs_prefix (error, "%s", source);
    put->tally.progress.n_done++;
    return true;
}

static void put_entry (Put *put, int dir_fd, const char *entry, const char *source, uint64_t parent, const char *name,
                       bool follow);

static bool make_directory (Put *put, const struct stat *st, uint64_t parent, const char *name, uint64_t *ret_ino,
                            GError **error)
{
    EcfsAttr attr;
    if (!look_up (put, parent, name, &attr, error))
        return false;
    if (attr.ino != 0 && !S_ISDIR (attr.mode))
        return ecfs_fail (error, ENOTDIR, "the archive has a file of this name");
    if (attr.ino == 0 && !make (put, parent, name, st, NULL, &attr, NULL, error))
        return false;
    *ret_ino = attr.ino;
    return true;
}

/* Everything in the open directory @fd (taken) becomes the content of @ino. */
static bool put_contents (Put *put, int fd, const struct stat *st, const char *source, uint64_t ino, GError **error)
{
    DIR *dir = fdopendir (fd);
    if (dir == NULL) {
        close (fd);
        return ecfs_fail_errno (error, errno, "%s", source);
    }
    struct dirent *entry;
    while (!put->tally.cancelled && (errno = 0, entry = readdir (dir)) != NULL) {
        if (strcmp (entry->d_name, ".") == 0 || strcmp (entry->d_name, "..") == 0)
            continue;
        g_autofree char *path = g_build_filename (source, entry->d_name, NULL);
        put_entry (put, dirfd (dir), entry->d_name, path, ino, entry->d_name, false);
    }
    bool good = errno == 0 || put->tally.cancelled || ecfs_fail_errno (error, errno, "%s", source);
    good = good && ((put_xattrs (put, dirfd (dir), ino, error) && put_attributes (put, ino, st, error)) ||
                    ecfs_prefix (error, "%s", source));
    closedir (dir);
    return good;
}

/* @name NULL: the contents go into @parent itself. */
static bool put_directory (Put *put, int dir_fd, const char *entry, const char *source, uint64_t parent,
                           const char *name, int flags, GError **error)
{
    ecfs_autofd fd = openat (dir_fd, entry, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
    struct stat st;
    if (fd < 0 || fstat (fd, &st) != 0)
        return ecfs_fail_errno (error, errno, "%s", source);
    if (st.st_dev == put->own.st_dev && st.st_ino == put->own.st_ino)
        return ecfs_fail (error, EINVAL, "%s is this archive: left out", source);
    uint64_t ino = parent;
    if (name != NULL && !make_directory (put, &st, parent, name, &ino, error))
        return ecfs_prefix (error, "%s", source);
    return put_contents (put, ecfs_steal_fd (&fd), &st, source, ino, error);
}

static bool put_any (Put *put, int dir_fd, const char *entry, const char *source, uint64_t parent, const char *name,
                     bool follow, GError **error)
{
    struct stat st;
    int flags = follow ? 0 : O_NOFOLLOW;
    if (fstatat (dir_fd, entry, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW) != 0)
        return ecfs_fail_errno (error, errno, "%s", source);
    if (S_ISDIR (st.st_mode))
        return put_directory (put, dir_fd, entry, source, parent, name, flags, error);
    put->tally.progress.n_found++;
    if (S_ISREG (st.st_mode))
        return put_file (put, dir_fd, entry, source, parent, name, flags, error);
    return put_special (put, dir_fd, entry, &st, source, parent, name, error);
}

static void put_entry (Put *put, int dir_fd, const char *entry, const char *source, uint64_t parent, const char *name,
                       bool follow)
{
    GError *error = NULL;
    if (!put_any (put, dir_fd, entry, source, parent, name, follow, &error))
        ecfs_tally_failed (&put->tally, error);
}

/* Standard input: its size is not known before its end, so it goes through a file without a name. */
static bool put_input (Put *put, uint64_t parent, const char *name, GError **error)
{
    g_autofree char *spool = g_build_filename (ecfs_archive_directory (put->archive), "staging", "put-XXXXXX", NULL);
    ecfs_autofd fd = mkostemp (spool, O_CLOEXEC);
    if (fd < 0 || unlink (spool) != 0)
        return ecfs_fail_errno (error, errno, "%s", spool);
    g_autofree char *piece = g_malloc (1 << 20);
    ssize_t n_bytes;
    while ((n_bytes = read (STDIN_FILENO, piece, 1 << 20)) != 0) {
        if (n_bytes < 0 && errno == EINTR)
            continue;
        if (n_bytes < 0)
            return ecfs_fail_errno (error, errno, "standard input");
        int result = ecfs_write_all (fd, piece, (size_t) n_bytes);
        if (result != 0)
            return ecfs_fail_errno (error, -result, "%s", spool);
        if (!ecfs_tally_tick (&put->tally))
            return true;
    }
    struct stat st;
    if (fstat (fd, &st) != 0)
        return ecfs_fail_errno (error, errno, "%s", spool);
    mode_t mask = umask (0);
    umask (mask);
    st.st_mode = S_IFREG | (0666 & ~mask);
    put->tally.progress.n_found++;
    Item *item = item_new (put, ecfs_steal_fd (&fd), &st, "standard input", parent, name);
    item->spooled = true;
    return send_item (put, item, error) || ecfs_prefix (error, "standard input");
}

/* Where to: an existing directory, or a new name in one */

typedef struct Destination {
    uint64_t parent;
    char *name; /* NULL: sources keep their names in parent */
} Destination;

static bool split_path (const char *path, GPtrArray *ret_parts, GError **error)
{
    g_auto (GStrv) parts = g_strsplit (path, "/", -1);
    for (char **part = parts; *part != NULL; part++) {
        if (strcmp (*part, "..") == 0)
            return ecfs_fail (error, EINVAL, "%s: a path in the archive has no \"..\"", path);
        if (**part != '\0' && strcmp (*part, ".") != 0)
            g_ptr_array_add (ret_parts, g_strdup (*part));
    }
    return true;
}

/* Follows @parts down, making directories where there are none. */
static bool make_path (Put *put, GPtrArray *parts, unsigned n_parts, uint64_t *ret_ino, GError **error)
{
    struct stat st = {.st_mode = S_IFDIR | 0755, .st_uid = geteuid (), .st_gid = getegid ()};
    uint64_t ino = ECFS_ROOT_INO;
    for (unsigned i = 0; i < n_parts; i++)
        if (!make_directory (put, &st, ino, g_ptr_array_index (parts, i), &ino, error))
            return ecfs_prefix (error, "%s", (char *) g_ptr_array_index (parts, i));
    *ret_ino = ino;
    return true;
}

static bool resolve (Put *put, const char *path, bool directory, Destination *ret, GError **error)
{
    g_autoptr (GPtrArray) parts = g_ptr_array_new_with_free_func (g_free);
    if (!split_path (path, parts, error))
        return false;
    EcfsAttr attr;
    bool is_directory = ecfs_catalog_resolve (put->catalog, path, &attr, NULL) && S_ISDIR (attr.mode);
    directory = directory || is_directory || parts->len == 0 || g_str_has_suffix (path, "/");
    unsigned n_parents = directory ? parts->len : parts->len - 1;
    uint64_t parent = ECFS_ROOT_INO;
    if (!make_path (put, parts, n_parents, &parent, error))
        return ecfs_prefix (error, "%s", path);
    ret->parent = parent;
    ret->name = directory ? NULL : g_strdup (g_ptr_array_index (parts, parts->len - 1));
    return true;
}

static void put_source (Put *put, const char *source, const Destination *to)
{
    GError *error = NULL;
    if (strcmp (source, "-") == 0) {
        if (to->name == NULL)
            ecfs_tally_failed (
                &put->tally,
                g_error_new_literal (ECFS_ERROR, EINVAL, "standard input needs a file name to be stored under"));
        else if (!put_input (put, to->parent, to->name, &error))
            ecfs_tally_failed (&put->tally, error);
        return;
    }
    g_autofree char *base = g_path_get_basename (source);
    const char *name = to->name != NULL ? to->name : base;
    if (to->name == NULL && (strcmp (base, ".") == 0 || strcmp (base, "..") == 0 || strcmp (base, "/") == 0))
        name = NULL;
    put_entry (put, AT_FDCWD, source, source, to->parent, name, true);
}

static bool put_prepare (Put *put, GError **error)
{
    if (put->code != NULL) {
        g_autoptr (EcfsCodec) codec = ecfs_codec_new (put->code, error);
        if (codec == NULL)
            return false;
    }
    if (stat (ecfs_archive_directory (put->archive), &put->own) != 0)
        return ecfs_fail_errno (error, errno, "%s", ecfs_archive_directory (put->archive));
    put->staged = ecfs_staged_rows (put->catalog, true, error);
    return put->staged != NULL;
}

static void put_all (Put *put, const char *const *sources, const Destination *to)
{
    for (const char *const *source = sources; *source != NULL && !put->tally.cancelled; source++)
        put_source (put, *source, to);
    while (put->n_in_flight > 0)
        reap (put);
    GError *error = NULL;
    if (!ecfs_catalog_barrier (put->catalog, &error))
        ecfs_tally_failed (&put->tally, error);
}

bool ecfs_put (Ecfs *self, const char *const *sources, const char *path, const EcfsTransfer *transfer, GError **error)
{
    if (!self->writable)
        return ecfs_fail (error, EROFS, "%s is open for reading", ecfs_archive_directory (self->archive));
    Put put = {.archive = self->archive,
               .catalog = ecfs_archive_catalog (self->archive),
               .code = transfer == NULL ? NULL : transfer->code,
               .tally = {.archive = self->archive, .transfer = transfer},
               .links = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free),
               .ended = G_QUEUE_INIT};
    ecfs_mutex_init (&put.lock);
    ecfs_cond_init (&put.moved);
    Destination to = {0};
    bool many = sources[0] != NULL && sources[1] != NULL;
    bool good = put_prepare (&put, error) && resolve (&put, path, many, &to, error);
    if (good) {
        put_all (&put, sources, &to);
        good = ecfs_tally_end (&put.tally, "were not stored", error);
    }
    g_clear_pointer (&put.staged, g_hash_table_unref);
    g_hash_table_unref (put.links);
    g_free (to.name);
    ecfs_cond_clear (&put.moved);
    ecfs_mutex_clear (&put.lock);
    return good;
}
