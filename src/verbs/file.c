/*
 * Single files without a mount. What is read is the content of one moment; what is written goes to a nameless file in
 * the staging area first, and closing puts that, as standard input is put.
 */
#include "archive/content.h"
#include "util/io.h"
#include "util/lock.h"
#include "verbs/names.h"
#include "verbs/put_store.h"
#include "verbs/verbs.h"

#include <string.h>
#include <unistd.h>

#define TICK_US      200000
#define DEFAULT_MODE 0644

struct EcfsFile {
    Ecfs *ecfs;
    char *path; /* owned */
    uint64_t size;

    /* Reading: */
    EcfsMutex lock;
    EcfsContent *content; /* guarded by lock; NULL: it is written */
    uint64_t ino;

    /* Writing: */
    int fd;       /* -1: it is read */
    char *code;   /* NULL: what directory and archive say; owned */
    mode_t mode;  /* permissions */
    bool is_torn; /* a write failed */
};

static EcfsFile *file_new (Ecfs *ecfs, const char *path)
{
    EcfsFile *self = g_new0 (EcfsFile, 1);
    *self = (EcfsFile){.ecfs = ecfs, .path = g_strdup (path), .fd = -1};
    ecfs_mutex_init (&self->lock);
    return self;
}

void ecfs_file_discard (EcfsFile *self)
{
    if (self == NULL)
        return;
    ecfs_content_unref (self->content);
    if (self->fd >= 0)
        (void) close (self->fd); /* it has no name */
    ecfs_mutex_clear (&self->lock);
    g_free (self->code);
    g_free (self->path);
    g_free (self);
}

/* Reading */

/* Of a file that is being made there is nothing yet; of one that is replaced, what was stored before. */
static bool check_stored (EcfsCatalog *catalog, uint64_t ino, GError **error)
{
    int64_t key = (int64_t) ino;
    g_autoptr (GHashTable) rows = ecfs_staged_rows (catalog, error);
    const EcfsStagingRow *row = rows == NULL ? NULL : g_hash_table_lookup (rows, &key);
    return rows != NULL &&
           (row == NULL || !row->fresh ||
            ecfs_fail (error, EAGAIN, "it is in staging and not stored yet: wait for it, or read it in the mount"));
}

static bool check_kind (const EcfsAttr *attr, GError **error)
{
    if (S_ISDIR (attr->mode))
        return ecfs_fail (error, EISDIR, "it is a directory");
    return S_ISREG (attr->mode) || ecfs_fail (error, EINVAL, "it is not a file");
}

static bool begin_reading (EcfsFile *self, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->ecfs->archive);
    EcfsAttr attr;
    if (!ecfs_catalog_resolve (catalog, self->path, &attr, error))
        return false;
    if (!check_kind (&attr, error) || !check_stored (catalog, attr.ino, error))
        return ecfs_prefix (error, "%s", self->path);
    self->ino = attr.ino;
    self->content = ecfs_content_open (self->ecfs->archive, attr.ino, error);
    if (self->content == NULL)
        return ecfs_prefix (error, "%s", self->path);
    ecfs_content_set_caching (self->content, ECFS_CACHING_FILLS);
    self->size = ecfs_content_size (self->content);
    return true;
}

static bool same_content (const EcfsContent *a, const EcfsContent *b)
{
    size_t i = 0;
    bool same = ecfs_content_size (a) == ecfs_content_size (b);
    for (; same && ecfs_content_object (a, i) != NULL; i++) {
        const EcfsObjectRow *other = ecfs_content_object (b, i);
        same = other != NULL && other->id == ecfs_content_object (a, i)->id;
    }
    return same && ecfs_content_object (b, i) == NULL;
}

static EcfsContent *take_content (EcfsFile *self)
{
    ecfs_mutex_lock (&self->lock);
    EcfsContent *content = ecfs_content_ref (self->content);
    ecfs_mutex_unlock (&self->lock);
    return content;
}

/* Whoever has the archive open for writing may have moved stripes of the same content since @old was opened. */
static bool look_again (EcfsFile *self, const EcfsContent *old)
{
    EcfsContent *now = ecfs_content_open (self->ecfs->archive, self->ino, NULL);
    if (now == NULL || !same_content (old, now)) {
        ecfs_content_unref (now);
        return false;
    }
    ecfs_content_set_caching (now, ECFS_CACHING_FILLS);
    ecfs_mutex_lock (&self->lock);
    EcfsContent *former = self->content;
    self->content = now;
    ecfs_mutex_unlock (&self->lock);
    ecfs_content_unref (former);
    return true;
}

bool ecfs_file_pread (EcfsFile *self, void *to, size_t size, uint64_t offset, size_t *ret_size, GError **error)
{
    if (self->content == NULL)
        return ecfs_fail (error, EBADF, "%s: it is open for writing", self->path);
    GError *why = NULL;
    EcfsContent *content = take_content (self);
    bool good = ecfs_content_read_wait (content, offset, size, to, ret_size, &why);
    if (!good && look_again (self, content)) {
        ecfs_content_unref (content);
        content = take_content (self);
        g_clear_error (&why);
        good = ecfs_content_read_wait (content, offset, size, to, ret_size, &why);
    }
    ecfs_content_unref (content);
    if (why != NULL)
        g_propagate_error (error, why);
    return good || ecfs_prefix (error, "%s", self->path);
}

uint64_t ecfs_file_size (const EcfsFile *self)
{
    return self->size;
}

/* Writing */

static bool begin_writing (EcfsFile *self, const EcfsFileOptions *options, GError **error)
{
    EcfsArchive *archive = self->ecfs->archive;
    EcfsAttr attr;
    if (!self->ecfs->writable)
        return ecfs_fail (error, EROFS, "%s is open for reading", ecfs_archive_directory (archive));
    g_auto (GStrv) names = ecfs_names_split (self->path, error);
    if (names == NULL)
        return false;
    bool is_directory =
        names[0] == NULL || g_str_has_suffix (self->path, "/") ||
        (ecfs_catalog_resolve (ecfs_archive_catalog (archive), self->path, &attr, NULL) && S_ISDIR (attr.mode));
    if (is_directory)
        return ecfs_fail (error, EISDIR, "%s: it is a directory", self->path);
    self->code = g_strdup (options == NULL ? NULL : options->code);
    self->mode = options == NULL || options->mode == 0 ? DEFAULT_MODE : options->mode & 07777;
    if (self->code != NULL && !ecfs_archive_check_code (archive, self->code, error))
        return false;
    g_autofree char *spool = g_build_filename (ecfs_archive_directory (archive), "staging", NULL);
    self->fd = ecfs_nameless_file (spool, error);
    return self->fd >= 0;
}

bool ecfs_file_write (EcfsFile *self, const void *from, size_t size, GError **error)
{
    if (self->fd < 0)
        return ecfs_fail (error, EBADF, "%s: it is open for reading", self->path);
    int result = ecfs_write_all (self->fd, from, size);
    self->is_torn = self->is_torn || result != 0;
    self->size += result == 0 ? size : 0;
    return result == 0 || ecfs_fail_errno (error, -result, "%s: the staging area of the archive", self->path);
}

/* Hands it to the store and waits until it is through. */
static void await (EcfsPutStore *store, EcfsPutFile *file)
{
    GQueue ended = G_QUEUE_INIT;
    store->ops->file (store, file);
    while (g_queue_is_empty (&ended))
        store->ops->collect (store, ecfs_now_us () + TICK_US, &ended);
    g_queue_clear (&ended);
}

/* Endpoints that were away when it was stored may be back. */
static void fill_up (EcfsPutStore *store, EcfsPutFile *file)
{
    if (file->full)
        return;
    file->fills = true;
    await (store, file);
    g_clear_error (&file->error); /* then it is as it was */
}

static bool store_as (EcfsFile *self, EcfsPutStore *store, const EcfsPutPlace *place, bool *ret_full, GError **error)
{
    struct stat st;
    if (place->name == NULL)
        return ecfs_fail (error, EISDIR, "%s: it is a directory", self->path);
    if (fstat (self->fd, &st) != 0)
        return ecfs_fail_errno (error, errno, "%s", self->path);
    st.st_mode = S_IFREG | self->mode;
    EcfsPutFile *file = ecfs_put_file_new (self->fd, &st, place->parent, place->name);
    self->fd = -1;
    file->is_fixed = true;
    await (store, file);
    if (file->error == NULL)
        fill_up (store, file);
    bool good = file->error == NULL && store->ops->finish (store, error);
    *ret_full = good && file->full;
    if (file->error != NULL) {
        g_propagate_error (error, g_steal_pointer (&file->error));
        (void) !ecfs_prefix (error, "%s", self->path);
    }
    ecfs_put_file_free (file);
    return good;
}

static bool store (EcfsFile *self, bool *ret_full, GError **error)
{
    EcfsPutPlace place = {0};
    if (self->is_torn)
        return ecfs_fail (error, EIO, "%s: not everything could be written; not stored", self->path);
    EcfsPutStore *store = ecfs_put_store_new (self->ecfs, self->code, error);
    if (store == NULL)
        return false;
    bool good = store->ops->resolve (store, self->path, false, &place, error) &&
                store_as (self, store, &place, ret_full, error);
    g_free (place.name);
    store->ops->free (store);
    return good;
}

bool ecfs_file_close (EcfsFile *self, bool *ret_full, GError **error)
{
    bool full = true, good = self->content != NULL || store (self, &full, error);
    if (good && ret_full != NULL)
        *ret_full = full;
    ecfs_file_discard (self);
    return good;
}

EcfsFile *ecfs_file_open (Ecfs *ecfs, const char *path, unsigned flags, const EcfsFileOptions *options, GError **error)
{
    g_autoptr (EcfsFile) self = file_new (ecfs, path);
    bool good = (flags & ECFS_FILE_WRITE) != 0 ? begin_writing (self, options, error) : begin_reading (self, error);
    return good ? g_steal_pointer (&self) : NULL;
}
