/* Files that cannot be read whole, written as far as they can be: holes where not, and a list of what is missing. */
#include "archive/content.h"
#include "fsck/fsck_priv.h"
#include "util/io.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define LIST_NAME   "unreadable.txt"
#define RANGES_TOLD 1000 /* of each file */
#define SHARERS     1024 /* that are looked up at once */

typedef struct Export {
    EcfsFsckRun *run;
    FILE *list;
    GHashTable *done; /* inodes */
} Export;

/* A file on its way. */
typedef struct Copy {
    Export *export;
    char *path; /* in the archive */
    char *to;   /* where it is written */
    int fd;
    uint64_t bytes;     /* that were read */
    GArray *missing;    /* of EcfsUnreadable, in order */
    uint64_t n_missing; /* bytes */
    GError *reason;     /* of the first */
} Copy;

/* What is missing goes on where the last ended. */
static void miss (Copy *self, uint64_t offset, uint64_t size, GError *why)
{
    EcfsUnreadable *last =
        self->missing->len == 0 ? NULL : &g_array_index (self->missing, EcfsUnreadable, self->missing->len - 1);
    const EcfsUnreadable one = {.offset = offset, .length = size};
    self->n_missing += size;
    if (last != NULL && last->offset + last->length == offset)
        last->length += size;
    else
        g_array_append_val (self->missing, one);
    if (self->reason == NULL)
        self->reason = why;
    else
        g_error_free (why);
}

static bool copy_piece (Copy *self, EcfsContent *content, uint64_t offset, size_t size, GError **error)
{
    EcfsBorrowed piece;
    GError *why = NULL;
    if (!ecfs_content_borrow (content, offset, size, &piece, &why)) {
        miss (self, offset, size, why);
        return true;
    }
    size_t got = piece.size;
    int result = ecfs_pwritev_all (self->fd, piece.iov, piece.n_iov, offset);
    ecfs_content_give_back (&piece);
    self->bytes += got;
    if (got < size)
        miss (self, offset + got, size - got, g_error_new (ECFS_ERROR, EBADMSG, "its object ends earlier"));
    return result == 0 || ecfs_fail_errno (error, -result, "%s", self->to);
}

/* Segment by segment: what one cannot be decoded from says nothing of the next. */
static bool copy_extent (Copy *self, EcfsContent *content, const EcfsExtent *extent, GError **error)
{
    const EcfsObjectRow *object = ecfs_content_object (content, (size_t) extent->object);
    uint64_t segment = MAX (object->segment_bytes, 1), done = 0;
    while (done < extent->length) {
        uint64_t within = (extent->object_offset + done) % segment;
        size_t size = (size_t) MIN (segment - within, extent->length - done);
        if (!ecfs_fsck_goes_on (self->export->run, error) ||
            !copy_piece (self, content, extent->offset + done, size, error))
            return false;
        done += size;
    }
    return true;
}

static bool copy_all (Copy *self, EcfsContent *content, GError **error)
{
    const GArray *extents = ecfs_content_extents (content);
    if (ftruncate (self->fd, (off_t) ecfs_content_size (content)) != 0)
        return ecfs_fail_errno (error, errno, "%s", self->to);
    for (guint i = 0; i < extents->len; i++)
        if (!copy_extent (self, content, &g_array_index (extents, EcfsExtent, i), error))
            return false;
    return true;
}

static void tell_copy (const Copy *self)
{
    g_autofree char *shown = g_strescape (self->path, NULL); /* one line each */
    for (guint i = 0; i < self->missing->len; i++) {
        const EcfsUnreadable *range = &g_array_index (self->missing, EcfsUnreadable, i);
        fprintf (self->export->list, "%s\t%" PRIu64 "\t%" PRIu64 "\n", shown, range->offset, range->length);
    }
    const EcfsExported told = {.path = self->path,
                               .to = self->to,
                               .bytes = self->bytes,
                               .missing_bytes = self->n_missing,
                               .ranges = (const EcfsUnreadable *) (void *) self->missing->data,
                               .n_ranges = MIN (self->missing->len, RANGES_TOLD),
                               .reason = self->reason->message};
    ecfs_fsck_tell (self->export->run, ecfs_fsck_tell_export (&told));
}

static bool open_copy (Copy *self, GError **error)
{
    g_autofree char *directory = g_path_get_dirname (self->to);
    if (g_mkdir_with_parents (directory, 0700) != 0)
        return ecfs_fail_errno (error, errno, "%s", directory);
    self->fd = open (self->to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    return self->fd >= 0 || ecfs_fail_errno (error, errno, "%s: no file is overwritten", self->to);
}

/* What cannot be written does not keep the others from being so. */
static void tell_unwritten (const Copy *self, const GError *why)
{
    const EcfsExported told = {.path = self->path, .reason = why->message};
    ecfs_fsck_tell (self->export->run, ecfs_fsck_tell_export (&told));
}

/* What can be read whole after all needs no copy, and one that is not listed would pass for whole. */
static bool close_copy (Copy *self, bool good, GError **error)
{
    bool closed = close (self->fd) == 0 || !good || ecfs_fail_errno (error, errno, "%s", self->to);
    if (self->missing->len == 0 || !good || !closed)
        (void) unlink (self->to); /* it was made here */
    else
        tell_copy (self);
    return good && closed;
}

static bool export_file (Export *self, uint64_t ino, GError **error)
{
    g_autoptr (GError) why = NULL;
    EcfsArchive *archive = self->run->archive;
    EcfsContent *content = ecfs_content_open (archive, ino, &why);
    if (content == NULL) {
        ecfs_fsck_tell_problem (self->run, ino, why->message);
        return true;
    }
    ecfs_content_expect_all (content);
    if (!(self->run->what->flags & ECFS_FSCK_REPAIR)) /* nothing is to be changed, nor queued for that */
        ecfs_content_pass_over_damage (content);
    Copy copy = {.export = self, .path = ecfs_catalog_path (ecfs_archive_catalog (archive), ino), .fd = -1};
    copy.to = g_build_filename (self->run->what->export_dir, copy.path, NULL);
    copy.missing = g_array_new (FALSE, FALSE, sizeof (EcfsUnreadable));
    bool opened = open_copy (&copy, &why);
    if (!opened)
        tell_unwritten (&copy, why);
    bool good = !opened || close_copy (&copy, copy_all (&copy, content, error), error);
    ecfs_content_unref (content);
    g_array_unref (copy.missing);
    g_clear_error (&copy.reason);
    g_free (copy.path);
    g_free (copy.to);
    return good;
}

static bool export_once (Export *self, uint64_t ino, GError **error)
{
    return !g_hash_table_add (self->done, g_memdup2 (&ino, sizeof ino)) || export_file (self, ino, error);
}

/* The file whose object it is, or all that share it; none, where they were deleted meanwhile. */
static bool export_files (Export *self, int64_t object, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->run->archive);
    uint64_t ino, after = 0;
    if (!ecfs_catalog_object_file (catalog, object, &ino, NULL))
        return true;
    if (!export_once (self, ino, error))
        return false;
    for (bool more = true; more;) {
        g_autoptr (GArray) sharers = ecfs_catalog_sharers (catalog, object, after, SHARERS, error);
        for (guint i = 0; sharers != NULL && i < sharers->len; i++) {
            after = g_array_index (sharers, EcfsSharer, i).ino;
            if (!export_once (self, after, error))
                return false;
        }
        if (sharers == NULL)
            return false;
        more = sharers->len == SHARERS;
    }
    return true;
}

static bool export_all (Export *self, GError **error)
{
    EcfsSpoolDamage one = {.urgency = INT_MIN};
    int found;
    while ((found = ecfs_spool_next_damage (self->run->spool, &one, error)) == 1 && one.urgency < 0) {
        self->run->progress.n_done++;
        if (!export_files (self, one.object, error))
            return false;
    }
    return found >= 0;
}

bool ecfs_fsck_export (EcfsFsckRun *self, GError **error)
{
    if (self->what->export_dir == NULL)
        return true;
    ecfs_fsck_enter (self, "export", 0);
    g_autofree char *path = g_build_filename (self->what->export_dir, LIST_NAME, NULL);
    if (g_mkdir_with_parents (self->what->export_dir, 0700) != 0)
        return ecfs_fail_errno (error, errno, "%s", self->what->export_dir);
    Export export = {.run = self, .list = fopen (path, "ae")};
    if (export.list == NULL)
        return ecfs_fail_errno (error, errno, "%s", path);
    export.done = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL);
    bool good = export_all (&export, error);
    g_hash_table_unref (export.done);
    bool listed = ferror (export.list) == 0;
    if ((fclose (export.list) != 0 || !listed) && good)
        return ecfs_fail_errno (error, listed ? errno : EIO, "%s", path);
    return good;
}
