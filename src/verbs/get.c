/*
 * Files out of the archive without a mount. The caller's thread walks the archive and makes directories; workers fetch
 * contents, each one file at a time, into a temporary name beside the final one.
 *
 * Destinations are reached by directory descriptors and never through symbolic links below the directory given.
 */
#include "archive/cached.h"
#include "archive/common.h"
#include "archive/content_check.h"
#include "archive/peered.h"
#include "util/io.h"
#include "util/lock.h"
#include "verbs/verbs.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define N_WORKERS      8
#define MAX_IN_FLIGHT  24
#define PIECE_BYTES    (1 << 20)
#define DIR_BATCH      256
#define CAT_KEPT_BYTES (64u << 20) /* of a file that is compared as a whole before anything of it is written */
#define TICK_US        200000
#define TEMPORARY      ".ecfs-get-" /* what is not complete begins with it */
#define MAX_NAMES      1000
#define MAX_ATTEMPTS   10 /* at a file that changes between two looks */

/* A local directory being filled. When the last that holds it lets go, it gets its attributes and is closed. The
 * caller's thread only. */
typedef struct Directory {
    struct Get *get;
    struct Directory *parent; /* held; NULL at the top */
    unsigned n_refs;
    int fd;
    char *path;    /* for messages */
    bool dressed;  /* gets attributes at the end */
    EcfsAttr attr; /* in the archive */
} Directory;

/* The first name of a file that has several. */
typedef struct First {
    char *path; /* local; NULL while it is in flight */
    dev_t device;
    ino_t ino; /* local */
} First;

typedef struct Get {
    EcfsArchive *archive;
    EcfsCatalog *catalog;
    EcfsTally tally;
    GHashTable *staged; /* rows by inode */
    GHashTable *links;  /* inodes with several names: int64_t * → First */
    EcfsWorkers *workers;
    unsigned n_in_flight;
    atomic_bool cancelled;
    atomic_uint n_temporary; /* to number temporary names */

    EcfsMutex lock;
    EcfsCond moved;
    GQueue ended; /* Item, guarded by lock */
} Get;

typedef struct Item {
    Get *get;
    Directory *directory; /* held */
    char *name;
    char *path;       /* in the archive */
    struct stat made; /* result: the local file */
    EcfsAttr attr;
    bool is_former;  /* newer content is staged */
    GError *error;   /* result */
    GError *warning; /* result: extended attributes that cannot be set here */
} Item;

/* Attributes */

static bool set_xattrs (Get *get, int fd, uint64_t ino, GError **error)
{
    g_autoptr (GByteArray) names = ecfs_catalog_listxattr (get->catalog, ino, error);
    if (names == NULL)
        return false;
    const char *end = (const char *) names->data + names->len;
    for (const char *name = (const char *) names->data; name < end; name += strlen (name) + 1) {
        if (!ecfs_xattr_travels (name))
            continue;
        g_autoptr (GByteArray) value = ecfs_catalog_getxattr (get->catalog, ino, name, error);
        if (value == NULL)
            return false;
        if (fsetxattr (fd, name, value->data, value->len, 0) != 0)
            return ecfs_fail_errno (error, errno, "extended attribute %s cannot be set here", name);
    }
    return true;
}

/* @is_former: the content is that of before, and the time of what is staged since would lie about it. */
static bool set_attributes (int fd, const EcfsAttr *attr, bool is_former, GError **error)
{
    struct timespec times[2] = {ecfs_timespec (attr->atime_ns), ecfs_timespec (attr->mtime_ns)};
    if (is_former)
        times[1].tv_nsec = UTIME_NOW;
    mode_t mode = attr->mode & 07777;
    /* These give rights to an owner: not to another than was meant. */
    if (geteuid () != 0 && attr->uid != geteuid ())
        mode &= (mode_t) ~S_ISUID;
    if (geteuid () != 0 && attr->gid != getegid ())
        mode &= (mode_t) ~S_ISGID;
    if (geteuid () == 0 && fchown (fd, attr->uid, attr->gid) != 0)
        return ecfs_fail_errno (error, errno, "owner cannot be set");
    if (fchmod (fd, mode) != 0 || futimens (fd, times) != 0)
        return ecfs_fail_errno (error, errno, "mode and times cannot be set");
    return true;
}

/* Directories */

static Directory *directory_ref (Directory *self)
{
    self->n_refs++;
    return self;
}

static void directory_dress (Directory *self)
{
    GError *error = NULL;
    if (set_xattrs (self->get, self->fd, self->attr.ino, &error) &&
        set_attributes (self->fd, &self->attr, false, &error))
        return;
    g_prefix_error (&error, "%s: ", self->path);
    ecfs_tally_warn (&self->get->tally, error);
}

static void directory_unref (Directory *self)
{
    while (self != NULL && --self->n_refs == 0) {
        Directory *parent = self->parent;
        if (self->dressed)
            directory_dress (self);
        close (self->fd);
        g_free (self->path);
        g_free (self);
        self = parent;
    }
}

/* Takes @fd and @path. */
static Directory *directory_new (Get *get, Directory *parent, int fd, char *path, const EcfsAttr *attr)
{
    Directory *self = g_new0 (Directory, 1);
    *self = (Directory){.get = get, .n_refs = 1, .fd = fd, .path = path, .dressed = attr != NULL};
    if (parent != NULL)
        self->parent = directory_ref (parent);
    if (attr != NULL)
        self->attr = *attr;
    return self;
}

/* One file, on a worker */

static bool copy_range (Item *item, EcfsContent *content, EcfsContentCheck *check, int fd, uint64_t offset,
                        uint64_t length, GError **error)
{
    while (length > 0) {
        if (atomic_load (&item->get->cancelled))
            return ecfs_fail (error, ECANCELED, "cancelled");
        size_t size = (size_t) MIN (length, PIECE_BYTES);
        EcfsBorrowed piece;
        if (!ecfs_content_borrow (content, offset, size, &piece, error))
            return false;
        bool whole = piece.size == size;
        bool right = ecfs_content_check_take (check, offset, piece.iov, piece.n_iov, error);
        int result = whole && right ? ecfs_pwritev_all (fd, piece.iov, piece.n_iov, offset) : 0;
        ecfs_content_give_back (&piece);
        if (!right)
            return false;
        if (!whole)
            return ecfs_fail (error, EIO, "it ends before its size");
        if (result != 0)
            return ecfs_fail_errno (error, -result, "%s/%s", item->directory->path, item->name);
        offset += size;
        length -= size;
    }
    return true;
}

static bool copy_content (Item *item, EcfsContent *content, EcfsContentCheck *check, int fd, GError **error)
{
    uint64_t size = ecfs_content_size (content);
    ecfs_content_expect_all (content);
    if (ftruncate (fd, (off_t) size) != 0)
        return ecfs_fail_errno (error, errno, "%s/%s", item->directory->path, item->name);
    const GArray *extents = ecfs_content_extents (content);
    for (unsigned i = 0; i < extents->len; i++) {
        const EcfsExtent *extent = &g_array_index (extents, EcfsExtent, i);
        uint64_t end = MIN (extent->offset + extent->length, size);
        if (extent->offset < end && !copy_range (item, content, check, fd, extent->offset, end - extent->offset, error))
            return false;
    }
    return ecfs_content_check_end (check, error);
}

/* The content with the attributes of the same moment: those of the listing may be older. */
static EcfsContent *open_current (Item *item, GError **error)
{
    EcfsCatalog *catalog = item->get->catalog;
    uint64_t ino = item->attr.ino;
    for (unsigned attempt = 1;; attempt++) {
        EcfsAttr before;
        if (!ecfs_catalog_getattr (catalog, ino, &before, error))
            return NULL;
        EcfsContent *content = ecfs_content_open (item->get->archive, ino, error);
        bool good = content != NULL && ecfs_catalog_getattr (catalog, ino, &item->attr, error);
        if (good && (item->attr.ctime_ns == before.ctime_ns || attempt == MAX_ATTEMPTS))
            return content;
        ecfs_content_unref (content);
        if (!good)
            return NULL;
    }
}

/* Whether what was read of it is to be read again; those that lie are in @without then. */
static bool is_to_be_read_again (Item *item, const EcfsObjectRow *bad, bool *without, bool came_cached)
{
    g_autofree bool *before = g_memdup2 (without, ECFS_ENDPOINTS_MAX * sizeof *without);
    if (!ecfs_content_leave_out_liars (item->get->archive, bad, without, NULL))
        return false;
    if (came_cached && bad->seal.kind != ECFS_SEAL_NONE &&
        memcmp (before, without, ECFS_ENDPOINTS_MAX * sizeof *without) == 0)
        g_warning ("%s: the cache had other bytes than were stored, with tags that fit: somebody who has the "
                   "archive's key forges them; it is read from endpoints, and no longer in the cache",
                   item->path);
    return true;
}

/* *ret_again: it came from endpoints that lie, which are in @without from now on, or from the cache or a peer. */
static bool fill_once (Item *item, bool *without, bool is_again, int fd, bool *ret_again, GError **error)
{
    EcfsContent *content = open_current (item, error);
    if (content == NULL)
        return false;
    GError *why = NULL;
    if (is_again) /* which says less of what it meets */
        ecfs_content_leave_out (content, without);
    /* Again: if no endpoint lies, the cache had it, or a peer, which would give it again. */
    ecfs_content_set_caching (content, is_again ? ECFS_CACHING_NONE : ECFS_CACHING_FILLS);
    g_autoptr (EcfsContentCheck) check = ecfs_content_check_new (content);
    bool good = copy_content (item, content, check, fd, &why);
    const EcfsObjectRow *bad = ecfs_content_check_bad (check);
    *ret_again = bad != NULL &&
                 is_to_be_read_again (item, bad, without, !is_again && ecfs_archive_cache (item->get->archive) != NULL);
    if (*ret_again)
        g_clear_error (&why);
    ecfs_content_unref (content);
    if (why != NULL)
        g_propagate_error (error, why);
    return good;
}

static bool fill (Item *item, int fd, GError **error)
{
    bool again = true, good = false;
    g_autofree bool *without = g_new0 (bool, ECFS_ENDPOINTS_MAX); /* more may come meanwhile */
    for (unsigned attempt = 0; again && attempt < MAX_ATTEMPTS; attempt++)
        good = fill_once (item, without, attempt > 0, fd, &again, error);
    if (again)
        return ecfs_fail (error, EIO, "endpoints return other bytes than they got, another one each time");
    if (good)
        (void) set_xattrs (item->get, fd, item->attr.ino, &item->warning); /* told by the caller's thread */
    good = good && set_attributes (fd, &item->attr, item->is_former, error);
    /* A power cut must not leave a name, a size and a time without the bytes: --update would take it for complete. */
    if (good && fdatasync (fd) != 0)
        return ecfs_fail_errno (error, errno, "%s/%s", item->directory->path, item->name);
    return good && (fstat (fd, &item->made) == 0 || ecfs_fail_errno (error, errno, "%s", item->path));
}

/* A new file; -1: none can be made. One that was killed may have left files whose names have our number. */
static int make_temporary (Item *item, char **ret_name, GError **error)
{
    int fd = -1;
    *ret_name = NULL;
    for (unsigned i = 0; i < MAX_NAMES && fd < 0 && (i == 0 || errno == EEXIST); i++) {
        g_free (*ret_name);
        *ret_name = g_strdup_printf (TEMPORARY "%d-%u", (int) getpid (), atomic_fetch_add (&item->get->n_temporary, 1));
        fd = openat (item->directory->fd, *ret_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    }
    if (fd < 0)
        (void) !ecfs_fail_errno (error, errno, "%s/%s", item->directory->path, *ret_name);
    return fd;
}

static bool fetch (Item *item, GError **error)
{
    g_autofree char *temporary = NULL;
    int dir_fd = item->directory->fd;
    ecfs_autofd fd = make_temporary (item, &temporary, error);
    if (fd < 0)
        return false;
    bool good = fill (item, fd, error);
    if (good && renameat (dir_fd, temporary, dir_fd, item->name) != 0)
        good = ecfs_fail_errno (error, errno, "%s/%s", item->directory->path, item->name);
    if (!good)
        (void) unlinkat (dir_fd, temporary, 0); /* the first error is told */
    return good;
}

static void fetch_job (void *data)
{
    Item *item = data;
    Get *get = item->get;
    (void) fetch (item, &item->error); /* kept in the item */
    ecfs_mutex_lock (&get->lock);
    g_queue_push_tail (&get->ended, item);
    ecfs_cond_broadcast (&get->moved);
    ecfs_mutex_unlock (&get->lock);
}

/* The caller's thread */

static void item_free (Item *item)
{
    directory_unref (item->directory);
    g_clear_error (&item->error);
    g_clear_error (&item->warning);
    g_free (item->name);
    g_free (item->path);
    g_free (item);
}

static void first_free (gpointer data)
{
    First *first = data;
    g_free (first->path);
    g_free (first);
}

/* Takes @path. */
static void note_first (Get *get, int64_t ino, char *path, const struct stat *made)
{
    First *first = g_new0 (First, 1);
    first->path = path;
    if (made != NULL) {
        first->device = made->st_dev;
        first->ino = made->st_ino;
    }
    g_hash_table_insert (get->links, g_memdup2 (&ino, sizeof ino), first);
}

static void conclude (Get *get, Item *item)
{
    get->n_in_flight--;
    if (item->attr.nlink > 1) {
        int64_t ino = (int64_t) item->attr.ino;
        if (item->error != NULL)
            g_hash_table_remove (get->links, &ino);
        else
            note_first (get, ino, g_build_filename (item->directory->path, item->name, NULL), &item->made);
    }
    if (item->warning != NULL && item->error == NULL) {
        g_prefix_error (&item->warning, "%s: ", item->path);
        ecfs_tally_warn (&get->tally, g_steal_pointer (&item->warning));
    }
    if (item->error == NULL) {
        get->tally.progress.n_done++;
        get->tally.progress.bytes_done += item->attr.size;
    } else if (!get->tally.cancelled) {
        g_prefix_error (&item->error, "%s: ", item->path);
        ecfs_tally_failed (&get->tally, g_steal_pointer (&item->error));
    }
    item_free (item);
}

static void reap (Get *get)
{
    int64_t deadline_us = ecfs_now_us () + TICK_US;
    GQueue ended = G_QUEUE_INIT;
    GQueue empty = G_QUEUE_INIT;
    ecfs_mutex_lock (&get->lock);
    while (g_queue_is_empty (&get->ended) && ecfs_cond_wait_until (&get->moved, &get->lock, deadline_us))
        ;
    ended = get->ended;
    get->ended = empty;
    ecfs_mutex_unlock (&get->lock);
    Item *item;
    while ((item = g_queue_pop_head (&ended)) != NULL)
        conclude (get, item);
    get->tally.wire_bytes = ecfs_archive_wire_bytes (get->archive);
    if (!ecfs_tally_tick (&get->tally))
        atomic_store (&get->cancelled, true);
}

/* Another name of a file that was fetched already. False, without an error, when there is no such. */
static bool get_link (Get *get, Directory *to, const char *name, const EcfsAttr *attr, GError **error)
{
    int64_t ino = (int64_t) attr->ino;
    const First *first;
    while ((first = g_hash_table_lookup (get->links, &ino)) != NULL && first->path == NULL)
        reap (get);
    if (first == NULL)
        return false;
    if (unlinkat (to->fd, name, 0) != 0 && errno != ENOENT)
        return ecfs_fail_errno (error, errno, "%s/%s", to->path, name);
    if (linkat (AT_FDCWD, first->path, to->fd, name, 0) == 0) {
        /* The path may have been led elsewhere meanwhile, by who may write to what is above. */
        struct stat linked;
        if (fstatat (to->fd, name, &linked, AT_SYMLINK_NOFOLLOW) == 0 && linked.st_dev == first->device &&
            linked.st_ino == first->ino)
            return true;
        (void) unlinkat (to->fd, name, 0); /* where it cannot, making the copy tells why */
    }
    g_hash_table_remove (get->links, &ino); /* a file system without hard links, or another file: it is copied */
    return false;
}

/* Whether it is there already, as far as size and time tell. A file has its name and its time when it is complete. */
static bool is_current (const Get *get, const Directory *to, const char *name, const EcfsAttr *attr, struct stat *ret)
{
    if (get->tally.transfer == NULL || !get->tally.transfer->update ||
        fstatat (to->fd, name, ret, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG (ret->st_mode))
        return false;
    struct timespec mtime = ecfs_timespec (attr->mtime_ns);
    return (uint64_t) ret->st_size == attr->size && ret->st_mtim.tv_sec == mtime.tv_sec &&
           ret->st_mtim.tv_nsec == mtime.tv_nsec;
}

/* Counts it. Its other names become links of it, as of one that was fetched. */
static void leave_current (Get *get, const Directory *to, const char *name, const EcfsAttr *attr,
                           const struct stat *there)
{
    get->tally.progress.n_done++;
    get->tally.progress.n_current++;
    get->tally.progress.bytes_done += attr->size;
    if (attr->nlink > 1)
        note_first (get, (int64_t) attr->ino, g_build_filename (to->path, name, NULL), there);
}

static bool get_file (Get *get, Directory *to, const char *name, const char *path, const EcfsAttr *attr, GError **error)
{
    get->tally.progress.n_found++;
    if (!ecfs_tally_check_staged (&get->tally, get->staged, attr->ino, path, error))
        return false;
    if (attr->nlink > 1) {
        GError *why = NULL;
        if (get_link (get, to, name, attr, &why)) {
            get->tally.progress.n_done++;
            return true;
        }
        if (why != NULL) {
            g_propagate_error (error, why);
            return false;
        }
    }
    struct stat there;
    if (is_current (get, to, name, attr, &there)) {
        leave_current (get, to, name, attr, &there);
        return true;
    }
    if (attr->nlink > 1)
        note_first (get, (int64_t) attr->ino, NULL, NULL);
    while (get->n_in_flight >= MAX_IN_FLIGHT)
        reap (get);
    Item *item = g_new0 (Item, 1);
    *item = (Item){
        .get = get, .directory = directory_ref (to), .name = g_strdup (name), .path = g_strdup (path), .attr = *attr};
    item->is_former = g_hash_table_contains (get->staged, &(int64_t){(int64_t) attr->ino});
    get->n_in_flight++;
    ecfs_workers_push (get->workers, fetch_job, item);
    return true;
}

/* Owner and times of what is no file and no directory. */
static bool dress_special (Directory *to, const char *name, const EcfsAttr *attr, GError **error)
{
    struct timespec times[2] = {ecfs_timespec (attr->atime_ns), ecfs_timespec (attr->mtime_ns)};
    /* What was made may have been exchanged for a link by whoever else may write there. */
    struct stat status;
    ecfs_autofd fd = openat (to->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat (fd, &status) != 0)
        return ecfs_fail_errno (error, errno, "%s/%s", to->path, name);
    if ((status.st_mode & S_IFMT) != (attr->mode & S_IFMT) || status.st_uid != geteuid ())
        return ecfs_fail (error, EAGAIN, "%s/%s: another program changes this directory", to->path, name);
    g_autofree char *opened = g_strdup_printf ("/proc/self/fd/%d", fd);
    if (geteuid () == 0 && fchownat (fd, "", attr->uid, attr->gid, AT_EMPTY_PATH) != 0)
        return ecfs_fail_errno (error, errno, "%s/%s", to->path, name);
    if (!S_ISLNK (attr->mode) && chmod (opened, attr->mode & 0777) != 0) /* without the umask */
        return ecfs_fail_errno (error, errno, "%s/%s", to->path, name);
    (void) utimensat (fd, "", times, AT_EMPTY_PATH); /* not every file system keeps them */
    return true;
}

static bool get_special (Get *get, Directory *to, const char *name, const EcfsAttr *attr, GError **error)
{
    g_autofree char *target = NULL;
    if (S_ISLNK (attr->mode) && (target = ecfs_catalog_readlink (get->catalog, attr->ino, error)) == NULL)
        return false;
    get->tally.progress.n_found++;
    if (unlinkat (to->fd, name, 0) != 0 && errno != ENOENT)
        return ecfs_fail_errno (error, errno, "%s/%s", to->path, name);
    if ((target != NULL ? symlinkat (target, to->fd, name)
                        : mknodat (to->fd, name, attr->mode & (S_IFMT | 0777), (dev_t) attr->rdev)) != 0)
        return ecfs_fail_errno (error, errno, "%s/%s", to->path, name);
    if (!dress_special (to, name, attr, error))
        return false;
    get->tally.progress.n_done++;
    return true;
}

static void get_entry (Get *get, Directory *to, const char *name, const char *path, const EcfsAttr *attr);

static bool get_contents (Get *get, Directory *to, const char *path, uint64_t ino, GError **error)
{
    int64_t after = 0;
    while (!get->tally.cancelled) {
        g_autoptr (GPtrArray) entries = ecfs_catalog_readdir (get->catalog, ino, after, DIR_BATCH, error);
        if (entries == NULL)
            return ecfs_prefix (error, "%s", path);
        for (unsigned i = 0; i < entries->len && !get->tally.cancelled; i++) {
            const EcfsDirent *entry = g_ptr_array_index (entries, i);
            g_autofree char *below = g_build_filename (path, entry->name, NULL);
            get_entry (get, to, entry->name, below, &entry->attr);
            after = entry->offset;
        }
        if (entries->len == 0)
            break;
    }
    return true;
}

static bool get_directory (Get *get, Directory *to, const char *name, const char *path, const EcfsAttr *attr,
                           GError **error)
{
    g_autofree char *local = g_build_filename (to->path, name, NULL);
    if (mkdirat (to->fd, name, 0700) != 0 && errno != EEXIST)
        return ecfs_fail_errno (error, errno, "%s", local);
    int fd = openat (to->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return ecfs_fail_errno (error, errno, "%s", local);
    Directory *directory = directory_new (get, to, fd, g_steal_pointer (&local), attr);
    bool good = get_contents (get, directory, path, attr->ino, error);
    directory_unref (directory);
    return good;
}

static bool get_any (Get *get, Directory *to, const char *name, const char *path, const EcfsAttr *attr, GError **error)
{
    /* The catalog refuses such names; a damaged one must not lead out of the destination either. */
    if (name[0] == '\0' || strcmp (name, ".") == 0 || strcmp (name, "..") == 0 || strchr (name, '/') != NULL)
        return ecfs_fail (error, EBADMSG, "%s: the catalog is damaged: \"%s\" is not a name", path, name);
    if (S_ISDIR (attr->mode))
        return get_directory (get, to, name, path, attr, error);
    if (S_ISREG (attr->mode))
        return get_file (get, to, name, path, attr, error);
    return get_special (get, to, name, attr, error);
}

static void get_entry (Get *get, Directory *to, const char *name, const char *path, const EcfsAttr *attr)
{
    GError *error = NULL;
    if (!get_any (get, to, name, path, attr, &error))
        ecfs_tally_failed (&get->tally, error);
}

/* @new_name: of a file; NULL: its own. */
static void get_path (Get *get, Directory *to, const char *path, const char *new_name)
{
    GError *error = NULL;
    EcfsAttr attr;
    if (!ecfs_catalog_resolve (get->catalog, path, &attr, &error)) {
        ecfs_tally_failed (&get->tally, error);
        return;
    }
    if (attr.ino == ECFS_ROOT_INO) {
        if (!get_contents (get, to, "/", attr.ino, &error))
            ecfs_tally_failed (&get->tally, error);
        return;
    }
    g_autofree char *full = ecfs_catalog_path (get->catalog, attr.ino);
    g_autofree char *bare = g_strdup (path);
    for (size_t length = strlen (bare); length > 1 && bare[length - 1] == '/'; length--)
        bare[length - 1] = '\0';
    g_autofree char *name = g_path_get_basename (bare);
    get_entry (get, to, new_name != NULL ? new_name : name, full, &attr);
}

static Directory *open_destination (Get *get, const char *directory, GError **error)
{
    g_autofree char *path = g_canonicalize_filename (directory, NULL);
    int fd = g_mkdir_with_parents (path, 0777) == 0 ? open (path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0)
        return directory_new (get, NULL, fd, g_steal_pointer (&path), NULL);
    bool failed = ecfs_fail_errno (error, errno, "%s", directory);
    g_assert (!failed);
    return NULL;
}

static void get_all (Get *get, const char *const *paths, Directory *to, const char *new_name)
{
    get->workers = ecfs_workers_new ("ecfs-get", N_WORKERS);
    for (const char *const *path = paths; *path != NULL && !get->tally.cancelled; path++)
        get_path (get, to, *path, new_name);
    while (get->n_in_flight > 0)
        reap (get);
    g_clear_pointer (&get->workers, ecfs_workers_free);
}

/* The new name of a single file that is fetched; NULL: @target is a directory, or to become one. g_free () */
static char *new_name_of (EcfsCatalog *catalog, const char *const *paths, const char *target)
{
    EcfsAttr attr;
    bool is_one = paths[0] != NULL && paths[1] == NULL;
    if (!is_one || g_str_has_suffix (target, "/") || g_file_test (target, G_FILE_TEST_IS_DIR) ||
        !ecfs_catalog_resolve (catalog, paths[0], &attr, NULL) || S_ISDIR (attr.mode))
        return NULL;
    return g_path_get_basename (target);
}

/* A mount of the same directory does it, or will tell what is wrong. */
static void serve_peers (EcfsArchive *archive)
{
    g_autoptr (GError) error = NULL;
    if (!ecfs_archive_serve_peers (archive, &error))
        g_log (G_LOG_DOMAIN, error->code == EADDRINUSE ? G_LOG_LEVEL_INFO : G_LOG_LEVEL_WARNING,
               "%s; nothing is given to peers", error->message);
}

bool ecfs_get (Ecfs *self, const char *const *paths, const char *directory, const EcfsTransferOptions *transfer,
               GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    Get get = {.archive = self->archive,
               .catalog = catalog,
               .tally = {.transfer = transfer},
               .links = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, first_free),
               .ended = G_QUEUE_INIT};
    ecfs_mutex_init (&get.lock);
    ecfs_cond_init (&get.moved);
    Directory *to = NULL;
    get.staged = ecfs_staged_rows (catalog, error);
    g_autofree char *new_name = new_name_of (catalog, paths, directory);
    g_autofree char *parent = new_name == NULL ? g_strdup (directory) : g_path_get_dirname (directory);
    bool good = get.staged != NULL && (to = open_destination (&get, parent, error)) != NULL;
    if (good) {
        serve_peers (self->archive);
        get_all (&get, paths, to, new_name);
        directory_unref (to);
        get.tally.wire_bytes = ecfs_archive_wire_bytes (get.archive);
        good = ecfs_tally_end (&get.tally, "were not fetched", error);
    }
    g_clear_pointer (&get.staged, g_hash_table_unref);
    g_hash_table_unref (get.links);
    ecfs_cond_clear (&get.moved);
    ecfs_mutex_clear (&get.lock);
    return good;
}

/* A file that goes to a descriptor, which takes nothing back. */
typedef struct Cat {
    EcfsArchive *archive;
    uint64_t ino;
    int fd;
    bool *lies;       /* endpoints that were found to lie, by position; … */
    bool *left_out;   /* … all those of which nothing is read */
    GByteArray *kept; /* what is not written before its SHA-256 was compared; NULL: there is too much of it */
    uint64_t written;
    bool is_again; /* what the cache and peers have is wrong, or endpoints lied */
} Cat;

static bool cat_piece (Cat *self, const EcfsBorrowed *piece, GError **error)
{
    for (int i = 0; self->kept != NULL && i < piece->n_iov; i++)
        g_byte_array_append (self->kept, piece->iov[i].iov_base, (guint) piece->iov[i].iov_len);
    int result = self->kept != NULL ? 0 : ecfs_writev_all (self->fd, piece->iov, piece->n_iov);
    self->written += self->kept != NULL ? 0 : piece->size;
    return result == 0 || ecfs_fail_errno (error, -result, "output");
}

static bool cat_content (Cat *self, EcfsContent *content, EcfsContentCheck *check, GError **error)
{
    uint64_t size = ecfs_content_size (content);
    for (uint64_t offset = 0; offset < size;) {
        EcfsBorrowed piece;
        if (!ecfs_content_borrow (content, offset, (size_t) MIN (size - offset, PIECE_BYTES), &piece, error))
            return false;
        size_t got = piece.size;
        bool good = (got > 0 || ecfs_fail (error, EIO, "it ends before its size")) &&
                    ecfs_content_check_take (check, offset, piece.iov, piece.n_iov, error) &&
                    cat_piece (self, &piece, error);
        ecfs_content_give_back (&piece);
        if (!good)
            return false;
        offset += got;
    }
    return ecfs_content_check_end (check, error);
}

/* Flags the endpoints of an object's stripes that are known to be damaged. *ret_tolerance: of its code, at most. */
static bool flag_damage (EcfsArchive *archive, const EcfsObjectRow *object, bool *ret_known, unsigned *ret_tolerance,
                         GError **error)
{
    bool damaged[ECFS_CODEC_MAX_N] = {false};
    const EcfsCodec *codec = ecfs_archive_codec (archive, object->code, error);
    if (codec == NULL || !ecfs_archive_known_damage (archive, object->id, damaged, error))
        return false;
    *ret_tolerance = MIN (*ret_tolerance, ecfs_codec_tolerance (codec));
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (archive, stripe->endpoint);
        if (endpoint != NULL && stripe->index < ECFS_CODEC_MAX_N && damaged[stripe->index])
            ret_known[ecfs_archive_position (archive, endpoint)] = true;
    }
    return true;
}

/* Nothing is read from endpoints that are known to have damaged stripes of it, where the others are enough. */
static bool choose_left_out (Cat *self, EcfsContent *content, GError **error)
{
    unsigned tolerance = UINT_MAX, n_left_out = 0;
    memcpy (self->left_out, self->lies, ECFS_ENDPOINTS_MAX * sizeof *self->lies);
    for (guint i = 0; i < ecfs_content_extents (content)->len; i++) {
        size_t object = (size_t) g_array_index (ecfs_content_extents (content), EcfsExtent, i).object;
        if (!flag_damage (self->archive, ecfs_content_object (content, object), self->left_out, &tolerance, error))
            return false;
    }
    for (size_t i = 0; i < ECFS_ENDPOINTS_MAX; i++)
        n_left_out += self->left_out[i];
    if (n_left_out > tolerance)
        memcpy (self->left_out, self->lies, ECFS_ENDPOINTS_MAX * sizeof *self->lies);
    return true;
}

/* *ret_again: it came from endpoints that lie, which are in `lies` from now on. */
static bool cat_once (Cat *self, bool *ret_again, GError **error)
{
    GError *why = NULL;
    *ret_again = false;
    EcfsContent *content = ecfs_content_open (self->archive, self->ino, error);
    if (content == NULL)
        return false;
    if (!choose_left_out (self, content, error)) {
        ecfs_content_unref (content);
        return false;
    }
    g_autoptr (EcfsContentCheck) check = ecfs_content_check_new (content);
    self->kept = ecfs_content_size (content) <= CAT_KEPT_BYTES ? g_byte_array_new () : NULL;
    ecfs_content_leave_out (content, self->left_out);
    ecfs_content_set_caching (content, self->is_again ? ECFS_CACHING_NONE : ECFS_CACHING_FILLS);
    ecfs_content_expect_all (content);
    bool good = cat_content (self, content, check, &why);
    const EcfsObjectRow *bad = ecfs_content_check_bad (check);
    bool found = bad != NULL && ecfs_content_leave_out_liars (self->archive, bad, self->lies, NULL);
    *ret_again = found && self->written == 0;
    int result = good && self->kept != NULL ? ecfs_write_all (self->fd, self->kept->data, self->kept->len) : 0;
    good = good && (result == 0 || ecfs_fail_errno (&why, -result, "output"));
    if (found && self->written > 0)
        g_prefix_error (&why, "what was written of it is wrong; run this again, which reads around that endpoint: ");
    g_clear_pointer (&self->kept, g_byte_array_unref);
    ecfs_content_unref (content);
    if (*ret_again)
        g_clear_error (&why);
    if (why != NULL)
        g_propagate_error (error, why);
    return good;
}

bool ecfs_cat (Ecfs *self, const char *path, int fd, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    EcfsAttr attr;
    if (!ecfs_catalog_resolve (catalog, path, &attr, error))
        return false;
    if (!S_ISREG (attr.mode))
        return ecfs_fail (error, EINVAL, "%s: it is not a file", path);
    g_autoptr (GHashTable) staged = ecfs_staged_rows (catalog, error);
    if (staged == NULL)
        return false;
    Get get = {.archive = self->archive, .catalog = catalog, .staged = staged};
    if (!ecfs_tally_check_staged (&get.tally, get.staged, attr.ino, path, error))
        return false;
    g_autofree bool *lies = g_new0 (bool, ECFS_ENDPOINTS_MAX); /* more may come meanwhile */
    g_autofree bool *left_out = g_new0 (bool, ECFS_ENDPOINTS_MAX);
    Cat cat = {.archive = self->archive, .ino = attr.ino, .fd = fd, .lies = lies, .left_out = left_out};
    bool again = true, good = false;
    for (unsigned attempt = 0; again && attempt < MAX_ATTEMPTS; attempt++) {
        cat.is_again = attempt > 0;
        good = cat_once (&cat, &again, error);
    }
    if (again)
        return ecfs_fail (error, EIO, "%s: endpoints return other bytes than they got, another one each time", path);
    return good || ecfs_prefix (error, "%s", path);
}
