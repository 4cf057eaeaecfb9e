/* PACK: content of many small files as one object, which they come to be in one after the other. */
#include "commit/commit_priv.h"

#include "archive/common.h"

#define RECORDS_BYTES (900u << 10) /* that are written of the files in a pack, so that a footer has room for them */
#define RECORD_BYTES  128          /* that one takes beside its path, at most */
#define SHARERS       1024         /* files that are listed at once */

/* What a stripe tells of files */

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
                               .file_size = attr.size,
                               .mode = attr.mode,
                               .uid = attr.uid,
                               .gid = attr.gid,
                               .mtime_ns = attr.mtime_ns,
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

/* Moving files into it */

static int by_object (gconstpointer a, gconstpointer b)
{
    const EcfsPackFile *left = *(const EcfsPackFile *const *) a, *right = *(const EcfsPackFile *const *) b;
    return memcmp (left->object.bytes, right->object.bytes, sizeof left->object.bytes);
}

/* The files from @at on that are in one object, at most ECFS_PACK_MOVES_MAX. Returns where the next begin. */
static guint move_some (EcfsCommitAttempt *self, const GPtrArray *files, guint at, GError **error)
{
    EcfsPackMove moves[ECFS_PACK_MOVES_MAX];
    guint n = 0;
    const EcfsPackFile *first = g_ptr_array_index (files, at);
    for (; at + n < files->len && n < G_N_ELEMENTS (moves); n++) {
        const EcfsPackFile *file = g_ptr_array_index (files, at + n);
        if (!ecfs_uuid_equal (&file->object, &first->object))
            break;
        moves[n] = (EcfsPackMove){.ino = file->ino,
                                  .length = file->length,
                                  .from = file->object_offset,
                                  .to = file->offset,
                                  .generation = file->generation,
                                  .is_known = file->is_known};
        memcpy (moves[n].sha256, file->sha256, ECFS_SHA256_SIZE);
    }
    if (!ecfs_catalog_pack_move (ecfs_archive_catalog (self->archive), &self->part->row->uuid, &first->object, moves, n,
                                 error))
        return 0;
    for (guint i = 0; i < n; i++)
        self->commit.pack->n_moved += moves[i].moved;
    return at + n;
}

static bool move_files (EcfsCommitAttempt *self, GError **error)
{
    EcfsPackOrder *order = self->commit.pack;
    g_autoptr (GPtrArray) files = g_ptr_array_new ();
    for (size_t i = 0; i < order->n_files; i++)
        g_ptr_array_add (files, (gpointer) &order->files[i]);
    g_ptr_array_sort (files, by_object);
    for (guint at = 0; at < files->len;) {
        at = move_some (self, files, at, error);
        if (at == 0)
            return false;
    }
    return true;
}

bool ecfs_attempt_pack (EcfsCommitAttempt *self, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    const EcfsFileRange all = {.length = self->commit.size};
    EcfsCommitObject *part = ecfs_attempt_part (self);
    part->row->kind = ECFS_OBJECT_PACK;
    part->row->size = self->commit.size;
    part->n_objects = 1;
    g_array_append_val (part->ranges, all);
    const EcfsCodec *codec = ecfs_attempt_codec (self, part->row->size, error);
    if (codec == NULL || !ecfs_attempt_store_object (self, part, codec, error))
        return false;
    ecfs_archive_await_session (self->archive);
    if (!ecfs_catalog_pack_begin (catalog, part->row, part->intent, error))
        return false;
    int64_t intent = part->intent;
    part->intent = 0; /* the pack is there, whatever comes into it */
    bool moved = move_files (self, error);
    self->outcome.full = moved;
    bool ended = ecfs_catalog_pack_end (catalog, &part->row->uuid, intent, moved ? error : NULL);
    return moved && ended;
}
