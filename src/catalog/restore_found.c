/* What stripes tell that no journal does, in a catalog that was restored. */
#include "catalog/restore_priv.h"

#include <sys/stat.h>

/* Files that only footers tell of */

static bool insert_found (EcfsCatalog *catalog, const EcfsFoundFile *file, uint64_t ino, GError **error)
{
    g_autofree int64_t *ids = g_new (int64_t, file->n_objects + 1);
    for (size_t i = 0; i < file->n_objects; i++) {
        int found;
        g_autoptr (EcfsObjectRow) there = ecfs_object_find (catalog, &file->objects[i]->uuid, &found, error);
        if (found < 0 || (found == 0 && (!ecfs_object_check (file->objects[i], error) ||
                                         !ecfs_object_insert (catalog, file->objects[i], &ids[i], error))))
            return false;
        if (found == 1)
            ids[i] = there->id;
        if (found == 1 && there->kind == ECFS_OBJECT_LOG && !ecfs_log_extend (catalog, there, file->objects[i], error))
            return false;
    }
    for (size_t i = 0; i < file->n_extents; i++) {
        const EcfsExtent *extent = &file->extents[i];
        if (!EXEC (catalog, EXTENT_INSERT, error, INT (ino), INT (extent->offset), INT (extent->length),
                   INT (ids[extent->object]), INT (extent->object_offset),
                   extent->has_sha256 ? BLOB (extent->sha256, sizeof extent->sha256) : NONE,
                   extent->generation != 0 ? INT (extent->generation) : NONE))
            return false;
    }
    return true;
}

/* What became its content behind the journal's end; names and attributes are there. */
static bool fill_unfinished (EcfsCatalog *catalog, const EcfsFoundFile *file, GError **error)
{
    Inode inode;
    if (!ecfs_inode_get (catalog, file->unfinished, &inode, error))
        return false;
    inode.attr.size = inode.committed_size = file->attr.size;
    inode.attr.mtime_ns = file->attr.mtime_ns;
    return insert_found (catalog, file, file->unfinished, error) && ecfs_content_count (catalog, &inode, error) &&
           ecfs_inode_store (catalog, &inode, error) && ecfs_content_journal (catalog, &inode, error);
}

static bool add_found (EcfsCatalog *catalog, const EcfsFoundFile *file, GError **error)
{
    Inode dir, inode = {.attr = file->attr, .committed_size = file->attr.size};
    int64_t now_ns = ecfs_real_ns (), taken;
    int found = QUERY_NUMBER (catalog, ENTRY_GET, &taken, error, INT (file->parent), NAME (file->name));
    if (found != 0)
        return found == 1 && ecfs_fail (error, EEXIST, "'%s' exists", file->name);
    inode.attr.ino = catalog->counters.next_ino;
    inode.attr.nlink = 1;
    inode.attr.rdev = 0;
    inode.attr.mode = S_IFREG | (file->attr.mode & 07777);
    inode.attr.atime_ns = inode.attr.ctime_ns = inode.attr.btime_ns = now_ns;
    if (!ecfs_name_check (file->name, error) || !ecfs_inode_get_dir (catalog, file->parent, &dir, error) ||
        !ecfs_inode_insert (catalog, &inode, NULL, error))
        return false;
    ecfs_journal_put_name_added (catalog->record, file->parent, file->name, inode.attr.ino);
    return EXEC (catalog, ENTRY_INSERT, error, INT (file->parent), NAME (file->name),
                 INT (catalog->counters.next_position++), INT (inode.attr.ino)) &&
           insert_found (catalog, file, inode.attr.ino, error) && ecfs_content_count (catalog, &inode, error) &&
           ecfs_inode_store (catalog, &inode, error) && ecfs_content_journal (catalog, &inode, error) &&
           ecfs_inode_touch_dir (catalog, &dir, 0, now_ns, error);
}

bool ecfs_restore_found (EcfsRestore *self, const EcfsFoundFile *file, GError **error)
{
    if (file->unfinished == 0)
        return CHANGE (self->catalog, error, add_found (self->catalog, file, error));
    if (!CHANGE (self->catalog, error, fill_unfinished (self->catalog, file, error)))
        return false;
    (void) g_hash_table_remove (self->fresh, &file->unfinished);
    return true;
}

/* Stripes that were stored behind the journal's end */

static bool exchange_stripe (EcfsCatalog *catalog, const EcfsUuid *uuid, const EcfsStripeRow *stripe, GError **error)
{
    int found;
    g_autoptr (EcfsObjectRow) object = ecfs_object_find (catalog, uuid, &found, error);
    const EcfsStripeRow *old = object == NULL ? NULL : ecfs_stripe_at (object, stripe->index);
    if (found < 0)
        return false;
    return old == NULL ? ecfs_fail (error, ENOENT, "the catalog does not have stripe %u of the object", stripe->index)
                       : ecfs_stripe_swap (catalog, object, stripe, old, error);
}

bool ecfs_restore_stripe (EcfsRestore *self, const EcfsUuid *object, const EcfsStripeRow *stripe, GError **error)
{
    return ecfs_stripe_check (stripe, error) &&
           CHANGE (self->catalog, error, exchange_stripe (self->catalog, object, stripe, error));
}
