/* What an earlier mount left in the staging area: flushed content is committed, the rest is kept under interrupted/. */
#include "archive/common.h"
#include "staging/staged_priv.h"
#include "util/io.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define FLAT_NAME_MAX 200 /* bytes of a path in the name of an interrupted file */

typedef struct Recovery {
    EcfsStagedTable *table;
    EcfsCatalog *catalog;
    const GPtrArray *rows; /* of EcfsStagingRow: all */
    int interrupted_fd;
    unsigned n_queued;
    unsigned n_interrupted;
} Recovery;

static char *flat_name (const char *path, const char *suffix)
{
    while (*path == '/')
        path++;
    size_t size = strlen (path);
    char *flat = g_strconcat (size > FLAT_NAME_MAX ? path + size - FLAT_NAME_MAX : path, ".", suffix, NULL);
    for (char *c = flat; *c != '\0'; c++) {
        if (*c == '/')
            *c = '!';
    }
    return flat;
}

/* Moves a staging file to interrupted/; an empty one holds nothing to keep. False: it could not be moved. */
static bool keep_interrupted (Recovery *self, const char *name, const char *path, GError **error)
{
    struct stat st;
    int dir_fd = self->table->dir_fd;
    if (fstatat (dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT || ecfs_fail_errno (error, errno, "staging/%s", name);
    if (S_ISREG (st.st_mode) && st.st_size == 0)
        return unlinkat (dir_fd, name, 0) == 0 || ecfs_fail_errno (error, errno, "staging/%s", name);
    g_autofree char *flat = flat_name (path, name);
    if (renameat (dir_fd, name, self->interrupted_fd, flat) != 0)
        return ecfs_fail_errno (error, errno, "staging/%s: cannot be moved to interrupted/%s", name, flat);
    g_message ("%s was not closed when the last mount died; what was written of it is interrupted/%s", path, flat);
    self->n_interrupted++;
    return true;
}

/* Takes one name away from a file without content. */
static bool unlink_path (Recovery *self, uint64_t ino, const char *path, GError **error)
{
    EcfsAttr attr;
    g_autofree char *parent = g_path_get_dirname (path);
    const char *name = strrchr (path, '/');
    if (name == NULL || !ecfs_catalog_resolve (self->catalog, path, &attr, error))
        return name != NULL || ecfs_fail (error, ENOENT, "%s", path);
    if (attr.ino != ino)
        return ecfs_fail (error, EBADMSG, "%s is not inode %" PRIu64, path, ino);
    return ecfs_catalog_resolve (self->catalog, parent, &attr, error) &&
           ecfs_catalog_unlink (self->catalog, attr.ino, name + 1, &attr, error);
}

/* A file that never had content and whose first content was never flushed does not stay as an empty one. */
static bool remove_fresh (Recovery *self, uint64_t ino, GError **error)
{
    EcfsAttr attr;
    while (ecfs_catalog_getattr (self->catalog, ino, &attr, NULL) && attr.nlink > 0) {
        g_autofree char *path = ecfs_catalog_path (self->catalog, ino);
        if (!unlink_path (self, ino, path, error))
            return false;
    }
    return ecfs_catalog_drop (self->catalog, ino, error);
}

static bool forget_row (Recovery *self, const EcfsStagingRow *row, GError **error)
{
    g_autoptr (GError) local = NULL;
    if (ecfs_catalog_staging_remove (self->catalog, row->id, &local) || g_error_matches (local, ECFS_ERROR, ENOENT))
        return true;
    g_propagate_error (error, g_steal_pointer (&local));
    return false;
}

/* Whether an earlier content of it was flushed. */
static bool is_promised (const Recovery *self, uint64_t ino)
{
    for (guint i = 0; i < self->rows->len; i++) {
        const EcfsStagingRow *row = self->rows->pdata[i];
        if (row->ino == ino && row->state == ECFS_STAGING_QUEUED)
            return true;
    }
    return false;
}

/* It was opened for writing, and nothing was written. */
static bool is_as_stored (const Recovery *self, const EcfsStagingRow *row, const char *name)
{
    ecfs_autofd fd = openat (self->table->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    return fd >= 0 && !row->fresh && ecfs_staged_verify (self->catalog, row->ino, fd, NULL);
}

static bool recover_open (Recovery *self, const EcfsStagingRow *row, const char *name, GError **error)
{
    g_autofree char *path = ecfs_catalog_path (self->catalog, row->ino);
    if (is_as_stored (self, row, name) && unlinkat (self->table->dir_fd, name, 0) == 0)
        return forget_row (self, row, error);
    if (!keep_interrupted (self, name, path, error))
        return false;
    return (!row->fresh || is_promised (self, row->ino) || remove_fresh (self, row->ino, error)) &&
           forget_row (self, row, error);
}

static EcfsStaged *staged_from_row (Recovery *self, const EcfsStagingRow *row, const EcfsAttr *attr,
                                    const struct stat *st)
{
    EcfsStaged *staged = ecfs_staged_alloc (self->table, row->ino);
    bool stored = row->state == ECFS_STAGING_STORED;
    staged->row = row->id;
    staged->row_state = (int) row->state;
    staged->name = ecfs_staged_row_name (row->id, row->ino);
    staged->name_durable = !stored; /* as only what was flushed and not stored had to be */
    staged->size = stored ? (uint64_t) st->st_size : MIN (row->size, (uint64_t) st->st_size);
    staged->mtime_ns = attr->mtime_ns; /* of what was flushed */
    staged->promised_generation = stored ? 0 : 1;
    staged->promised_size = staged->size;
    staged->generation = staged->durable_generation = 1;
    staged->committed_generation = stored ? 1 : 0;
    return staged;
}

/* A change of what was stored began, and nothing of it is in the row: a crash came between. */
static bool recover_torn (Recovery *self, const EcfsStagingRow *row, const char *name, const GError *reason,
                          GError **error)
{
    g_autofree char *path = ecfs_catalog_path (self->catalog, row->ino);
    g_message ("%s: staging/%s: %s, which stays", path, name, reason->message);
    return keep_interrupted (self, name, path, error) && forget_row (self, row, error);
}

/* Bytes behind those that were flushed are kept apart. Nothing was promised about them, so a full disk does not keep
 * the archive from being mounted. */
static void keep_tail (Recovery *self, const EcfsStagingRow *row, int fd, uint64_t size, const char *name)
{
    g_autofree char *path = ecfs_catalog_path (self->catalog, row->ino);
    g_autofree char *suffix = g_strdup_printf ("%s.from-%" PRIu64, name, row->size);
    g_autofree char *flat = flat_name (path, suffix);
    ecfs_autofd to_fd = openat (self->interrupted_fd, flat, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int result = to_fd < 0 ? -errno : ecfs_copy_bytes (fd, row->size, to_fd, 0, size - row->size);
    if (result == 0) {
        g_message ("%s: %" PRIu64
                   " bytes were written and not flushed when the last mount died; they are interrupted/%s",
                   path, size - row->size, flat);
        self->n_interrupted++;
        return;
    }
    g_warning ("%s: %" PRIu64 " bytes were written and not flushed when the last mount died, and cannot be kept in "
               "interrupted/: %s",
               path, size - row->size, g_strerror (-result));
    (void) unlinkat (self->interrupted_fd, flat, 0); /* a part of them would only mislead */
}

static bool recover_flushed (Recovery *self, const EcfsStagingRow *row, const EcfsAttr *attr, const char *name,
                             GError **error)
{
    struct stat st;
    ecfs_autofd fd = openat (self->table->dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno != ENOENT)
        return ecfs_fail_errno (error, errno, "staging/%s", name);
    if (fd < 0) {
        g_autofree char *path = ecfs_catalog_path (self->catalog, row->ino);
        if (row->state == ECFS_STAGING_QUEUED)
            g_critical ("%s: its content was staged in staging/%s, which is gone; %s", path, name,
                        row->fresh ? "the name is removed" : "its former content stays");
        bool lost = row->state == ECFS_STAGING_QUEUED && row->fresh;
        return (!lost || remove_fresh (self, row->ino, error)) && forget_row (self, row, error);
    }
    if (fstat (fd, &st) != 0)
        return ecfs_fail_errno (error, errno, "staging/%s", name);
    if (row->state == ECFS_STAGING_QUEUED && (uint64_t) st.st_size > row->size) {
        keep_tail (self, row, fd, (uint64_t) st.st_size, name);
        if (ftruncate (fd, (off_t) row->size) != 0)
            return ecfs_fail_errno (error, errno, "staging/%s: cannot be cut to what was flushed", name);
    }
    g_autoptr (GError) reason = NULL;
    if (row->state == ECFS_STAGING_STORED && !ecfs_staged_verify (self->catalog, row->ino, fd, &reason))
        return recover_torn (self, row, name, reason, error);
    EcfsStaged *staged = staged_from_row (self, row, attr, &st);
    ecfs_mutex_lock (&self->table->lock);
    staged->order = ++self->table->last_order;
    ecfs_staged_insert_locked (self->table, staged);
    ecfs_staged_charge_locked (self->table, staged, staged->size);
    ecfs_mutex_unlock (&self->table->lock);
    ecfs_staged_unref (staged);
    self->n_queued += row->state == ECFS_STAGING_QUEUED;
    return true;
}

/* What was being replaced is the file's content again. */
static bool bring_back_aside (Recovery *self, const char *name, GError **error)
{
    int dir_fd = self->table->dir_fd;
    g_autofree char *aside = ecfs_staged_aside_name (name);
    return renameat (dir_fd, aside, dir_fd, name) == 0 || errno == ENOENT ||
           ecfs_fail_errno (error, errno, "staging/%s: cannot be renamed to %s", aside, name);
}

static bool recover_row (Recovery *self, const EcfsStagingRow *row, GError **error)
{
    g_autofree char *name = ecfs_staged_row_name (row->id, row->ino);
    EcfsAttr attr;
    g_autoptr (GError) local = NULL;
    bool known = ecfs_catalog_getattr (self->catalog, row->ino, &attr, &local);
    if (!known && !g_error_matches (local, ECFS_ERROR, ENOENT)) {
        g_propagate_error (error, g_steal_pointer (&local));
        return false;
    }
    if (!known || attr.nlink == 0) { /* deleted while it was open */
        if (unlinkat (self->table->dir_fd, name, 0) != 0 && errno != ENOENT)
            return ecfs_fail_errno (error, errno, "staging/%s", name);
        return forget_row (self, row, error);
    }
    if (row->state == ECFS_STAGING_OPEN)
        return recover_open (self, row, name, error);
    if (!bring_back_aside (self, name, error))
        return false;
    return recover_flushed (self, row, &attr, name, error);
}

static GHashTable *known_names (EcfsStagedTable *table)
{
    GHashTable *names = g_hash_table_new (g_str_hash, g_str_equal);
    GHashTableIter iter;
    gpointer value;
    ecfs_mutex_lock (&table->lock);
    g_hash_table_iter_init (&iter, table->files);
    while (g_hash_table_iter_next (&iter, NULL, &value))
        g_hash_table_add (names, ((EcfsStaged *) value)->name);
    ecfs_mutex_unlock (&table->lock);
    return names;
}

/* Its row went with the commit of what is in it, or with its inode, and the file was to go next. An inode that the
 * catalog has never had was new, and nothing of it durable; which is not known where mounts take numbers ahead. */
static bool is_stored (Recovery *self, const char *name, uint64_t ino)
{
    EcfsAttr attr;
    uint64_t next_ino;
    g_autoptr (GError) error = NULL;
    if (!ecfs_catalog_getattr (self->catalog, ino, &attr, &error))
        return g_error_matches (error, ECFS_ERROR, ENOENT) && !ecfs_catalog_is_shared (self->catalog) &&
               ecfs_catalog_next_ino (self->catalog, &next_ino, NULL) && ino < next_ino;
    ecfs_autofd fd = openat (self->table->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    return fd >= 0 && ecfs_staged_verify (self->catalog, ino, fd, NULL);
}

static bool recover_stray (Recovery *self, GHashTable *known, const char *name, GError **error)
{
    uint64_t ino;
    bool had_row = ecfs_staged_parse_name (name, &ino);
    if (strcmp (name, ".") == 0 || strcmp (name, "..") == 0 || strcmp (name, ECFS_STAGED_ID_FILE) == 0 ||
        g_hash_table_contains (known, name))
        return true;
    if (g_str_has_prefix (name, ECFS_STAGED_COPY_PREFIX)     /* equal to committed content */
        || g_str_has_prefix (name, ECFS_STAGED_ID_FILE)      /* half written when a machine failed */
        || g_str_has_prefix (name, ECFS_STAGED_ASIDE_PREFIX) /* without its row: something newer was flushed */
        || (had_row && is_stored (self, name, ino)))
        return unlinkat (self->table->dir_fd, name, 0) == 0 || ecfs_fail_errno (error, errno, "staging/%s", name);
    g_autofree char *path = had_row ? ecfs_catalog_path (self->catalog, ino) : g_strdup ("stray");
    return keep_interrupted (self, name, path, error);
}

static bool recover_strays (Recovery *self, GError **error)
{
    int fd = openat (self->table->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir (fd);
    if (dir == NULL)
        return ecfs_fail_errno (error, errno, "staging: cannot be listed");
    g_autoptr (GHashTable) known = known_names (self->table);
    bool ok = true;
    struct dirent *entry;
    while (ok && (entry = readdir (dir)) != NULL)
        ok = recover_stray (self, known, entry->d_name, error);
    (void) closedir (dir); /* only read */
    return ok;
}

int ecfs_staged_open_dir (EcfsArchive *archive, const char *name, GError **error)
{
    g_autofree char *path = g_build_filename (ecfs_archive_directory (archive), name, NULL);
    if (mkdir (path, 0700) != 0 && errno != EEXIST && !ecfs_fail_errno (error, errno, "%s: cannot make it", path))
        return -1;
    int fd = open (path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 || ecfs_fail_errno (error, errno, "%s: cannot open it", path) ? fd : -1;
}

static int by_age (gconstpointer a, gconstpointer b)
{
    const EcfsStagingRow *const *left = a, *const *right = b;
    return (*left)->since_ns < (*right)->since_ns ? -1 : (*left)->since_ns > (*right)->since_ns;
}

bool ecfs_staged_recover (EcfsStagedTable *table, GError **error)
{
    ecfs_autofd interrupted_fd = ecfs_staged_open_dir (table->archive, "interrupted", error);
    if (interrupted_fd < 0)
        return false;
    Recovery self = {
        .table = table, .catalog = ecfs_archive_catalog (table->archive), .interrupted_fd = interrupted_fd};
    g_autoptr (GPtrArray) rows = ecfs_catalog_staging_list (self.catalog, error);
    if (rows == NULL)
        return false;
    self.rows = rows;
    g_ptr_array_sort (rows, by_age); /* they are stored in this order */
    for (guint i = 0; i < rows->len; i++) {
        if (!recover_row (&self, rows->pdata[i], error))
            return ecfs_prefix (error, "recovering staged files");
    }
    bool shared = ecfs_catalog_is_shared (self.catalog); /* then others may have files open that have no name */
    if (!recover_strays (&self, error) || (!shared && !ecfs_catalog_drop_orphans (self.catalog, INT64_MAX, error)) ||
        !ecfs_catalog_barrier (self.catalog, error))
        return ecfs_prefix (error, "recovering staged files");
    if (self.n_queued > 0)
        g_message ("%u files of an earlier mount are staged and will be committed", self.n_queued);
    return true;
}
