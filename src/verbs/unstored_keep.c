#include "verbs/unstored_keep.h"

#include "archive/common.h"
#include "staging/directory.h"
#include "util/io.h"
#include "verbs/verbs.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNFINISHED ".unfinished"
#define STORED     ".stored"

#define NUMBER_MOST 12 /* characters of what tells files of one name apart */

typedef struct Keep {
    const char *directory;
    int staging_fd;
    guint n;
} Keep;

/* The archive's names may be as long as a directory takes them, without what is put behind them here. */
static bool is_too_long (const char *place)
{
    return strlen (place) + NUMBER_MOST >= PATH_MAX || strlen (strrchr (place, '/') + 1) + NUMBER_MOST > NAME_MAX;
}

/* Where a file of that path is kept, in a directory that is made; g_free (). NULL: it cannot be made. */
static char *place_of (const Keep *self, const EcfsUnstored *one, const char *suffix, GError **error)
{
    g_autofree char *plain = g_strconcat (self->directory, "/", one->path, suffix, NULL);
    if (is_too_long (plain)) {
        g_free (plain);
        plain = g_strdup_printf ("%s/long-names/%" PRIu64 "%s", self->directory, one->ino, suffix);
    }
    g_autofree char *parent = g_path_get_dirname (plain);
    if (g_mkdir_with_parents (parent, 0700) != 0) {
        (void) !ecfs_fail_errno (error, errno, "%s: cannot make it", parent);
        return NULL;
    }
    char *place = g_strdup (plain);
    for (unsigned i = 2; access (place, F_OK) == 0; i++) { /* a name of the archive that ends so, too */
        g_free (place);
        place = g_strdup_printf ("%s.%u", plain, i);
    }
    return place;
}

/* @size of the bytes from @from on. */
static bool copy (const Keep *self, int from_fd, uint64_t from, uint64_t size, const EcfsUnstored *one,
                  const char *suffix, GError **error)
{
    g_autofree char *place = place_of (self, one, suffix, error);
    if (place == NULL)
        return false;
    ecfs_autofd fd = open (place, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int result = fd < 0 ? -errno : ecfs_copy_bytes (from_fd, from, fd, 0, size);
    if (result == 0 && fsync (fd) != 0)
        result = -errno;
    if (result == 0)
        return true;
    (void) unlink (place); /* a part of it would only mislead */
    return ecfs_fail_errno (error, -result, "%s: cannot be written", place);
}

/* Moves a staging file, cut to @size; bytes behind that were not closed. */
static bool move (Keep *self, const char *name, uint64_t size, const EcfsUnstored *one, const char *suffix,
                  GError **error)
{
    struct stat status;
    ecfs_autofd fd = openat (self->staging_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat (fd, &status) != 0)
        return errno == ENOENT || ecfs_fail_errno (error, errno, "staging/%s", name);
    if ((uint64_t) status.st_size > size) {
        g_autofree char *tail = g_strdup_printf (".from-%" PRIu64 UNFINISHED, size);
        if (!copy (self, fd, size, (uint64_t) status.st_size - size, one, tail, error))
            return false;
        if (ftruncate (fd, (off_t) size) != 0)
            return ecfs_fail_errno (error, errno, "staging/%s", name);
    }
    g_autofree char *place = place_of (self, one, suffix, error);
    if (place == NULL)
        return false;
    self->n++;
    if (renameat (self->staging_fd, name, AT_FDCWD, place) == 0)
        return true;
    if (errno != EXDEV) /* staging may be a file system of its own */
        return ecfs_fail_errno (error, errno, "staging/%s cannot be moved to %s", name, place);
    return copy (self, fd, 0, MIN (size, (uint64_t) status.st_size), one, suffix, error) &&
           (unlinkat (self->staging_fd, name, 0) == 0 ||
            ecfs_fail_errno (error, errno, "staging/%s cannot be removed", name));
}

static bool keep_row (Keep *self, const EcfsStagingRow *row, const EcfsUnstored *one, GError **error)
{
    g_autofree char *name = ecfs_staged_row_name (row->id, row->ino);
    g_autofree char *aside = ecfs_staged_aside_name (name);
    if (row->state == ECFS_STAGING_STORED)
        return move (self, name, UINT64_MAX, one, "", error);
    if (row->state == ECFS_STAGING_OPEN)
        return move (self, name, UINT64_MAX, one, UNFINISHED, error);
    if (faccessat (self->staging_fd, aside, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
        return move (self, name, row->size, one, "", error);
    /* What was closed was set aside when other bytes began to take its place. */
    return move (self, aside, row->size, one, "", error) && move (self, name, UINT64_MAX, one, UNFINISHED, error);
}

/* By inode; borrowed from @unstored. */
static GHashTable *index_content (const GPtrArray *unstored)
{
    GHashTable *by_ino = g_hash_table_new (g_int64_hash, g_int64_equal);
    for (guint i = 0; i < unstored->len; i++) {
        EcfsUnstored *one = g_ptr_array_index (unstored, i);
        if (ecfs_unstored_has_content (one))
            g_hash_table_insert (by_ino, &one->ino, one);
    }
    return by_ino;
}

bool ecfs_unstored_keep_staged (EcfsArchive *archive, const GPtrArray *unstored, const char *directory, guint *ret_n,
                                GError **error)
{
    ecfs_autofd staging_fd = ecfs_staged_open_dir (archive, "staging", error);
    Keep self = {.directory = directory, .staging_fd = staging_fd};
    g_autoptr (GHashTable) by_ino = index_content (unstored);
    g_autoptr (GPtrArray) rows =
        staging_fd < 0 ? NULL : ecfs_catalog_staging_list (ecfs_archive_catalog (archive), error);
    bool good = rows != NULL;
    for (guint i = 0; good && i < rows->len; i++) {
        const EcfsStagingRow *row = g_ptr_array_index (rows, i);
        const EcfsUnstored *one = g_hash_table_lookup (by_ino, &row->ino);
        good = one == NULL || keep_row (&self, row, one, error);
    }
    *ret_n += self.n;
    return good;
}

/* Whether the newer archive has what this one has. */
static bool is_there (EcfsCatalog *newer, const EcfsAttr *attr, const char *path)
{
    EcfsAttr there;
    return ecfs_catalog_resolve (newer, path, &there, NULL) && S_ISREG (there.mode) &&
           there.committed_size == attr->committed_size && there.committed_mtime_ns == attr->committed_mtime_ns;
}

static bool keep_stored (const Keep *self, Ecfs *reading, const EcfsUnstored *one, const char *suffix, GError **error)
{
    g_autofree char *place = place_of (self, one, suffix, error);
    if (place == NULL)
        return false;
    ecfs_autofd fd = open (place, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return ecfs_fail_errno (error, errno, "%s", place);
    if (ecfs_cat (reading, one->path, fd, error))
        return true;
    (void) unlink (place); /* a part of it would only mislead */
    return false;
}

/* Inodes of which the staging area has something; a set. */
static GHashTable *staged_inodes (EcfsCatalog *catalog, GError **error)
{
    g_autoptr (GPtrArray) rows = ecfs_catalog_staging_list (catalog, error);
    GHashTable *inodes = rows == NULL ? NULL : g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL);
    for (guint i = 0; inodes != NULL && i < rows->len; i++) {
        const EcfsStagingRow *row = g_ptr_array_index (rows, i);
        g_hash_table_add (inodes, g_memdup2 (&(int64_t){(int64_t) row->ino}, sizeof (int64_t)));
    }
    return inodes;
}

bool ecfs_unstored_keep_stored (Ecfs *reading, EcfsCatalog *newer, const GPtrArray *unstored,
                                const EcfsUnstoredSink *to, guint *ret_n, guint *ret_n_failed, GError **error)
{
    const Keep self = {.directory = to->directory, .staging_fd = -1};
    EcfsCatalog *catalog = ecfs_archive_catalog (reading->archive);
    g_autoptr (GHashTable) staged = staged_inodes (catalog, error);
    for (guint i = 0; staged != NULL && i < unstored->len; i++) {
        const EcfsUnstored *one = g_ptr_array_index (unstored, i);
        g_autoptr (GError) why = NULL;
        EcfsAttr attr;
        const bool is_staged = g_hash_table_contains (staged, &one->ino);
        if (!ecfs_unstored_has_content (one) || (one->kind == ECFS_UNSTORED_CONTENT && is_staged) ||
            !ecfs_catalog_getattr (catalog, one->ino, &attr, NULL) || attr.committed_size == 0 ||
            is_there (newer, &attr, one->path))
            continue;
        /* What was staged over it may be a part, or was refused. */
        if (keep_stored (&self, reading, one, is_staged ? STORED : "", &why)) {
            ++*ret_n;
            continue;
        }
        ++*ret_n_failed;
        g_autofree char *text = g_strdup_printf ("%s cannot be kept: %s", one->path, why->message);
        to->warn (to->user, text);
    }
    return staged != NULL;
}
