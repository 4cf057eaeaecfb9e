/* What stripes of a pack tell of the files in it. */
#include "commit/commit_priv.h"

#include "archive/common.h"

#define RECORDS_BYTES (900u << 10) /* that are written of the files in a pack, so that a footer has room for them */
#define RECORD_BYTES  128          /* that one takes beside its path, at most */
#define SHARERS       1024         /* files that are listed at once */

/* A file that is gone meanwhile is left out. */
static bool add_record (const EcfsCommitAttempt *self, const EcfsPackFile *file, GPtrArray *records, size_t *bytes,
                        GError **error)
{
    EcfsAttr attr;
    g_autoptr (GError) why = NULL;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    if (!ecfs_catalog_getattr (catalog, file->ino, &attr, &why)) {
        if (why->code == ENOENT)
            return true;
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    }
    EcfsFileRange range = {.length = file->length, .object_offset = file->offset};
    EcfsFileRecord *record = g_new (EcfsFileRecord, 1);
    char *path = ecfs_catalog_path (catalog, file->ino);
    *bytes += RECORD_BYTES + strlen (path);
    if (*bytes > RECORDS_BYTES) { /* longer names than there were: without one it is found below /recovered */
        *bytes -= strlen (path);
        path[0] = '\0';
    }
    *record = (EcfsFileRecord){.ino = file->ino,
                               .generation = file->generation,
                               .file_size =
                                   file->is_staged ? file->length : attr.committed_size, /* it may be open, and grow */
                               .mode = attr.mode,
                               .uid = attr.uid,
                               .gid = attr.gid,
                               .mtime_ns = file->is_staged ? file->mtime_ns : attr.committed_mtime_ns,
                               .path = path,
                               .ranges = g_array_new (FALSE, FALSE, sizeof range),
                               .content = self->part->row->uuid,
                               .n_objects = 1};
    g_array_append_val (record->ranges, range);
    g_ptr_array_add (records, record);
    return true;
}

/* Those that are in a pack now. */
static bool add_sharers (const EcfsCommitAttempt *self, GPtrArray *records, GError **error)
{
    size_t bytes = 0;
    uint64_t after = 0;
    for (bool more = true; more;) {
        g_autoptr (GArray) sharers =
            ecfs_catalog_sharers (ecfs_archive_catalog (self->archive), self->part->row->id, after, SHARERS, error);
        for (guint i = 0; sharers != NULL && i < sharers->len; i++) {
            const EcfsSharer *sharer = &g_array_index (sharers, EcfsSharer, i);
            const EcfsPackFile file = {.ino = sharer->ino,
                                       .length = sharer->extent.length,
                                       .offset = sharer->extent.object_offset,
                                       .generation = sharer->extent.generation};
            after = sharer->ino;
            if (!add_record (self, &file, records, &bytes, error))
                return false;
        }
        if (sharers == NULL)
            return false;
        more = sharers->len == SHARERS;
    }
    return true;
}

GPtrArray *ecfs_attempt_pack_records (const EcfsCommitAttempt *self, GError **error)
{
    size_t bytes = 0;
    g_autoptr (GPtrArray) records = g_ptr_array_new_with_free_func (ecfs_file_record_free);
    const EcfsPackOrder *order = self->commit.kind == ECFS_COMMIT_PACK ? self->commit.pack : NULL;
    for (size_t i = 0; order != NULL && i < order->n_files; i++)
        if (!add_record (self, &order->files[i], records, &bytes, error))
            return NULL;
    return order != NULL || add_sharers (self, records, error) ? g_steal_pointer (&records) : NULL;
}
