/*
 * Files and directories into the archive: walks the sources and hands them to a store (put_priv.h), here or in the
 * mount. The caller's thread does all of it.
 */
#include "util/io.h"
#include "util/lock.h"
#include "verbs/put_store.h"
#include "verbs/verbs.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define MAX_IN_FLIGHT 16
#define MAX_KEPT      64 /* files that lack stripes and stay open until the end, to be filled up then */
#define TICK_US       200000

typedef struct Put {
    const char *directory; /* of the archive */
    EcfsPutStore *store;
    EcfsTally tally;
    EcfsCatalog *catalog;
    GHashTable *staged; /* rows by inode, of files whose newer content is not stored; NULL: nothing is left as it is */
    struct stat own;    /* the archive directory, which is not put into itself */
    GHashTable *links;  /* "device:inode" of sources with several names → Link */
    GQueue kept;        /* of Item */
    unsigned n_in_flight;
} Put;

typedef struct Link {
    uint64_t ino; /* 0: its first name is in flight, or was not stored */
    bool in_flight;
} Link;

/* A directory that is being filled. When the last that holds it lets go, it gets its attributes, which the names of its
 * files would change. */
typedef struct Folder {
    unsigned n_refs;
    int fd;
    struct stat st;
    char *source; /* for messages */
    uint64_t ino;
} Folder;

/* A file whose content is on its way. */
typedef struct Item {
    EcfsPutFile *file;
    char *source;   /* for messages */
    Folder *folder; /* held; NULL: it was named itself */
    Link *link;     /* NULL: it has one name */
} Item;

/* What is to be put: what it is found by, and where it goes. All borrowed. */
typedef struct Source {
    int dir_fd;
    const char *entry; /* there */
    const char *path;  /* for messages */
    bool follow;       /* a symbolic link */
    Folder *folder;    /* that it is in; NULL: it was named itself */
    uint64_t parent;   /* where to */
    const char *name;  /* there; NULL: of a directory, what is in it goes into parent itself */
} Source;

static Folder *folder_new (int fd, const struct stat *st, const char *source, uint64_t ino)
{
    Folder *self = g_new (Folder, 1);
    *self = (Folder){.n_refs = 1, .fd = fd, .st = *st, .source = g_strdup (source), .ino = ino};
    return self;
}

/* NULL is accepted, here and below. */
static Folder *folder_ref (Folder *self)
{
    if (self != NULL)
        self->n_refs++;
    return self;
}

static void folder_unref (Put *put, Folder *self)
{
    if (self == NULL || --self->n_refs > 0)
        return;
    g_autoptr (GError) error = NULL;
    if (!put->tally.cancelled && !put->store->ops->dress (put->store, self->ino, self->fd, &self->st, &error)) {
        g_prefix_error (&error, "%s: ", self->source);
        ecfs_tally_failed (&put->tally, g_steal_pointer (&error));
    }
    (void) close (self->fd); /* only read */
    g_free (self->source);
    g_free (self);
}

static void item_free (Put *put, Item *item)
{
    folder_unref (put, item->folder);
    ecfs_put_file_free (item->file);
    g_free (item->source);
    g_free (item);
}

/* Contents in flight */

static bool tick (Put *put)
{
    put->tally.wire_bytes = put->store->ops->wire_bytes (put->store);
    return ecfs_tally_tick (&put->tally);
}

static void submit (Put *put, Item *item)
{
    put->n_in_flight++;
    put->store->ops->file (put->store, item->file);
}

/* An open file that lacks stripes is of use as long as it is open. */
static bool keep (Put *put, Item *item)
{
    if (item->file->full || item->file->fills || put->kept.length >= MAX_KEPT)
        return false;
    folder_unref (put, g_steal_pointer (&item->folder));
    g_queue_push_tail (&put->kept, item);
    return true;
}

static void stored (Put *put, Item *item)
{
    EcfsProgress *progress = &put->tally.progress;
    progress->n_done++;
    progress->bytes_done += (uint64_t) item->file->st.st_size;
    progress->n_not_full += !item->file->full;
}

static void tell_warning (Put *put, Item *item)
{
    if (item->file->warning == NULL)
        return;
    g_prefix_error (&item->file->warning, "%s: ", item->source);
    ecfs_tally_warn (&put->tally, g_steal_pointer (&item->file->warning));
}

static void conclude (Put *put, Item *item)
{
    EcfsPutFile *file = item->file;
    put->n_in_flight--;
    if (file->fills) { /* what could not be filled up is as it was, and counted */
        put->tally.progress.n_not_full -= file->error == NULL && file->full;
        item_free (put, item);
        return;
    }
    if (item->link != NULL) {
        item->link->in_flight = false;
        item->link->ino = file->error == NULL ? file->ino : 0;
    }
    if (file->error == NULL) {
        tell_warning (put, item);
        stored (put, item);
        if (keep (put, item))
            return;
    } else if (!put->tally.cancelled) {
        g_prefix_error (&file->error, "%s: ", item->source);
        ecfs_tally_failed (&put->tally, g_steal_pointer (&file->error));
    }
    item_free (put, item);
}

/* Takes what has ended, waiting for something at most one tick. */
static void reap (Put *put)
{
    GQueue ended = G_QUEUE_INIT;
    put->store->ops->collect (put->store, ecfs_now_us () + TICK_US, &ended);
    EcfsPutFile *file;
    while ((file = g_queue_pop_head (&ended)) != NULL)
        conclude (put, file->user);
    if (!put->tally.cancelled && !tick (put))
        put->store->ops->cancel (put->store);
}

/* Endpoints that were away when a file was stored may be back. */
static void fill_up (Put *put)
{
    Item *item;
    put->tally.next_us = 0; /* what is stored is told before */
    if (!put->tally.cancelled && !g_queue_is_empty (&put->kept) && !tick (put))
        put->store->ops->cancel (put->store);
    while ((item = g_queue_pop_head (&put->kept)) != NULL) {
        if (put->tally.cancelled) {
            item_free (put, item);
            continue;
        }
        item->file->fills = true;
        submit (put, item);
        while (put->n_in_flight >= MAX_IN_FLIGHT)
            reap (put);
    }
    while (put->n_in_flight > 0)
        reap (put);
}

/* Names */

/* Another name of a source that is stored already. False, without an error, when it is not. */
static bool put_link (Put *put, Link *link, const Source *from, GError **error)
{
    while (link->in_flight)
        reap (put);
    return link->ino != 0 && put->store->ops->link (put->store, link->ino, from->parent, from->name, error);
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

/* Takes @file. */
static void send_file (Put *put, EcfsPutFile *file, const Source *from, Link *link)
{
    Item *item = g_new0 (Item, 1);
    *item = (Item){.file = file, .source = g_strdup (from->path), .folder = folder_ref (from->folder), .link = link};
    file->user = item;
    while (put->n_in_flight >= MAX_IN_FLIGHT)
        reap (put);
    if (put->tally.cancelled) {
        item_free (put, item);
        return;
    }
    if (link != NULL)
        link->in_flight = true;
    submit (put, item);
}

/* Whether the archive has it with this size and time already; *ret_ino is the inode then. */
static bool is_current (const Put *put, const Source *from, const struct stat *st, uint64_t *ret_ino)
{
    EcfsAttr attr;
    if (put->staged == NULL || !ecfs_catalog_lookup (put->catalog, from->parent, from->name, &attr, NULL))
        return false; /* what cannot be known is stored */
    int64_t ino = (int64_t) attr.ino, mtime_ns = (int64_t) st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    *ret_ino = attr.ino;
    return S_ISREG (attr.mode) && attr.size == (uint64_t) st->st_size && attr.mtime_ns == mtime_ns &&
           !g_hash_table_contains (put->staged, &ino);
}

static bool put_file (Put *put, const Source *from, GError **error)
{
    int flags = from->follow ? 0 : O_NOFOLLOW;
    ecfs_autofd fd = openat (from->dir_fd, from->entry, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
    if (fd < 0)
        return ecfs_fail_errno (error, errno, "%s", from->path);
    struct stat st;
    if (fstat (fd, &st) != 0 || !S_ISREG (st.st_mode))
        return ecfs_fail (error, ESTALE, "%s: it is not a regular file any more", from->path);
    uint64_t current;
    Link *link = link_of (put, &st);
    if (is_current (put, from, &st, &current) && (link == NULL || (!link->in_flight && link->ino == 0))) {
        if (link != NULL)
            link->ino = current;
        put->tally.progress.n_done++;
        put->tally.progress.n_current++;
        put->tally.progress.bytes_done += (uint64_t) st.st_size;
        return true;
    }
    if (link != NULL && (link->in_flight || link->ino != 0)) {
        g_autoptr (GError) why = NULL;
        bool linked = put_link (put, link, from, &why);
        put->tally.progress.n_done += linked;
        if (linked || why != NULL)
            return linked || ecfs_fail (error, why->code, "%s: %s", from->path, why->message);
    }
    send_file (put, ecfs_put_file_new (ecfs_steal_fd (&fd), &st, from->parent, from->name), from, link);
    return true;
}

static char *read_link (const Source *from, GError **error)
{
    char target[PATH_MAX];
    ssize_t size = readlinkat (from->dir_fd, from->entry, target, sizeof target);
    if (size >= 0 && size < (ssize_t) sizeof target)
        return g_strndup (target, (size_t) size);
    bool failed = ecfs_fail_errno (error, size < 0 ? errno : ENAMETOOLONG, "%s", from->path);
    g_assert (!failed);
    return NULL;
}

/* Symbolic links, devices, pipes: all that is a name and nothing else. */
static bool put_special (Put *put, const Source *from, const struct stat *st, GError **error)
{
    g_autofree char *target = NULL;
    if (S_ISLNK (st->st_mode) && (target = read_link (from, error)) == NULL)
        return false;
    if (!put->store->ops->special (put->store, from->parent, from->name, st, target, error))
        return ecfs_prefix (error, "%s", from->path);
    put->tally.progress.n_done++;
    return true;
}

static void put_entry (Put *put, const Source *from);

/* Everything in a directory; what is in flight of it at the end holds it. */
static bool put_contents (Put *put, Folder *folder, GError **error)
{
    int fd = fcntl (folder->fd, F_DUPFD_CLOEXEC, 0);
    DIR *dir = fd < 0 ? NULL : fdopendir (fd);
    if (dir == NULL)
        return ecfs_fail_errno (error, errno, "%s", folder->source);
    struct dirent *entry;
    while (!put->tally.cancelled && (errno = 0, entry = readdir (dir)) != NULL) {
        if (strcmp (entry->d_name, ".") == 0 || strcmp (entry->d_name, "..") == 0)
            continue;
        g_autofree char *path = g_build_filename (folder->source, entry->d_name, NULL);
        const Source below = {.dir_fd = folder->fd,
                              .entry = entry->d_name,
                              .path = path,
                              .folder = folder,
                              .parent = folder->ino,
                              .name = entry->d_name};
        put_entry (put, &below);
    }
    bool good = errno == 0 || put->tally.cancelled || ecfs_fail_errno (error, errno, "%s", folder->source);
    closedir (dir);
    return good;
}

static bool put_directory (Put *put, const Source *from, GError **error)
{
    int flags = from->follow ? 0 : O_NOFOLLOW;
    ecfs_autofd fd = openat (from->dir_fd, from->entry, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
    struct stat st;
    if (fd < 0 || fstat (fd, &st) != 0)
        return ecfs_fail_errno (error, errno, "%s", from->path);
    if (st.st_dev == put->own.st_dev && st.st_ino == put->own.st_ino)
        return ecfs_fail (error, EINVAL, "%s is this archive: left out", from->path);
    uint64_t ino = from->parent;
    if (from->name != NULL && !put->store->ops->directory (put->store, from->parent, from->name, &st, &ino, error))
        return ecfs_prefix (error, "%s", from->path);
    Folder *folder = folder_new (ecfs_steal_fd (&fd), &st, from->path, ino);
    bool good = put_contents (put, folder, error);
    folder_unref (put, folder);
    return good;
}

static bool put_any (Put *put, const Source *from, GError **error)
{
    struct stat st;
    if (fstatat (from->dir_fd, from->entry, &st, from->follow ? 0 : AT_SYMLINK_NOFOLLOW) != 0)
        return ecfs_fail_errno (error, errno, "%s", from->path);
    if (S_ISDIR (st.st_mode))
        return put_directory (put, from, error);
    put->tally.progress.n_found++;
    return S_ISREG (st.st_mode) ? put_file (put, from, error) : put_special (put, from, &st, error);
}

static void put_entry (Put *put, const Source *from)
{
    GError *error = NULL;
    if (!put_any (put, from, &error))
        ecfs_tally_failed (&put->tally, error);
}

/* Copies standard input to the end of @fd; false with or, when it was cancelled, without an error. */
static bool spool_input (Put *put, int fd, const char *spool, GError **error)
{
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
        if (!tick (put))
            return false;
    }
    return true;
}

/* Standard input: its size is not known before its end, so it goes through a file without a name. */
static bool put_input (Put *put, const EcfsPutPlace *to, GError **error)
{
    static const Source input = {.path = "standard input"};
    g_autofree char *spool = g_build_filename (put->directory, "staging", NULL);
    ecfs_autofd fd = ecfs_nameless_file (spool, error);
    if (fd < 0)
        return false;
    if (!spool_input (put, fd, spool, error))
        return put->tally.cancelled;
    struct stat st;
    if (fstat (fd, &st) != 0)
        return ecfs_fail_errno (error, errno, "%s", spool);
    mode_t mask = umask (0);
    umask (mask);
    st.st_mode = S_IFREG | (0666 & ~mask);
    put->tally.progress.n_found++;
    EcfsPutFile *file = ecfs_put_file_new (ecfs_steal_fd (&fd), &st, to->parent, to->name);
    file->is_fixed = true;
    send_file (put, file, &input, NULL);
    return true;
}

static void put_source (Put *put, const char *source, const EcfsPutPlace *to)
{
    GError *error = NULL;
    if (strcmp (source, "-") == 0) {
        if (to->name == NULL)
            ecfs_tally_failed (
                &put->tally,
                g_error_new_literal (ECFS_ERROR, EINVAL, "standard input needs a file name to be stored under"));
        else if (!put_input (put, to, &error))
            ecfs_tally_failed (&put->tally, error);
        return;
    }
    g_autofree char *base = g_path_get_basename (source);
    Source from = {.dir_fd = AT_FDCWD, .entry = source, .path = source, .follow = true, .parent = to->parent};
    bool is_nameless = strcmp (base, ".") == 0 || strcmp (base, "..") == 0 || strcmp (base, "/") == 0;
    from.name = to->name != NULL ? to->name : is_nameless ? NULL : base;
    put_entry (put, &from);
}

static void put_all (Put *put, const char *const *sources, const EcfsPutPlace *to)
{
    for (const char *const *source = sources; *source != NULL && !put->tally.cancelled; source++)
        put_source (put, *source, to);
    while (put->n_in_flight > 0)
        reap (put);
    fill_up (put);
    GError *error = NULL;
    if (!put->store->ops->finish (put->store, &error))
        ecfs_tally_failed (&put->tally, error);
}

EcfsPutStore *ecfs_put_store_new (Ecfs *ecfs, const char *code, GError **error)
{
    if (ecfs->mounted)
        return ecfs_put_mount_new (ecfs_archive_directory (ecfs->archive), code, error);
    const EcfsPutHere options = {
        .code = code, .keeps_owners = geteuid () == 0, .uid = geteuid (), .gid = getegid (), .wake_fd = -1};
    return ecfs_put_here_new (ecfs->archive, &options, error);
}

static bool run (Put *put, const char *const *sources, const char *path, GError **error)
{
    EcfsPutPlace to = {0};
    bool many = sources[0] != NULL && sources[1] != NULL;
    bool good = put->store->ops->resolve (put->store, path, many, &to, error);
    if (good) {
        put_all (put, sources, &to);
        put->tally.wire_bytes = put->store->ops->wire_bytes (put->store);
        good = ecfs_tally_end (&put->tally, "were not stored", error);
    }
    g_free (to.name);
    return good;
}

bool ecfs_put (Ecfs *self, const char *const *sources, const char *path, const EcfsTransferOptions *transfer,
               GError **error)
{
    const char *directory = ecfs_archive_directory (self->archive);
    if (!self->writable)
        return ecfs_fail (error, EROFS, "%s is open for reading", directory);
    Put put = {.directory = directory,
               .tally = {.transfer = transfer},
               .kept = G_QUEUE_INIT,
               .store = ecfs_put_store_new (self, transfer == NULL ? NULL : transfer->code, error)};
    if (put.store == NULL)
        return false;
    put.links = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, g_free);
    put.catalog = ecfs_archive_catalog (self->archive);
    if (transfer != NULL && transfer->update)
        put.staged = ecfs_staged_rows (put.catalog, NULL);
    bool good = (stat (directory, &put.own) == 0 || ecfs_fail_errno (error, errno, "%s", directory)) &&
                run (&put, sources, path, error);
    g_hash_table_unref (put.links);
    g_clear_pointer (&put.staged, g_hash_table_unref);
    put.store->ops->free (put.store);
    return good;
}
