/* PACK: content of many small files as one object, which they come to be in one after the other. */
#include "commit/commit_priv.h"

#include "archive/common.h"

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
    EcfsPackOrder *order = self->commit.pack;
    bool moved =
        order->put_in != NULL ? order->put_in (order->user, part->row, part->full, error) : move_files (self, error);
    self->outcome.full = moved;
    bool ended = ecfs_catalog_pack_end (catalog, &part->row->uuid, intent, moved ? error : NULL);
    return moved && ended;
}
