/* What a file consists of: its extents, and what changes them but publishing. */
#include "catalog/age.h"
#include "catalog/content_priv.h"
#include "catalog/content_sum.h"
#include "catalog/lost.h"

#define LOST_YOUNG_NS INT64_C (60000000000)

bool ecfs_extent_read (EcfsQuery *query, EcfsExtent *ret_extent)
{
    *ret_extent = (EcfsExtent){.object = ecfs_column_number (query, 2), .has_sha256 = !ecfs_column_is_null (query, 4)};
    return ecfs_column_u64 (query, 0, INT64_MAX, &ret_extent->offset) &&
           ecfs_column_u64 (query, 1, INT64_MAX - ret_extent->offset, &ret_extent->length) && ret_extent->length > 0 &&
           ecfs_column_u64 (query, 3, INT64_MAX - ret_extent->length, &ret_extent->object_offset) &&
           (!ret_extent->has_sha256 || ecfs_column_bytes (query, 4, ret_extent->sha256, ECFS_SHA256_SIZE)) &&
           (ecfs_column_is_null (query, 5) || ecfs_column_u64 (query, 5, INT64_MAX, &ret_extent->generation));
}

GArray *ecfs_extents_list (EcfsCatalog *self, uint64_t ino, GError **error)
{
    g_autoptr (GArray) extents = g_array_new (false, true, sizeof (EcfsExtent));
    autoquery *query = QUERY (self, EXTENT_LIST, error, INT (ino));
    uint64_t end = 0;
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        EcfsExtent extent;
        if (!ecfs_extent_read (query, &extent) || extent.offset < end) {
            told (ecfs_bad_row (error, "extents", (int64_t) ino, "an extent is impossible"));
            return NULL;
        }
        end = extent.offset + extent.length;
        g_array_append_val (extents, extent);
    }
    return found < 0 ? NULL : g_steal_pointer (&extents);
}

static uint64_t sum_extents (uint64_t ino, const GArray *extents)
{
    uint64_t sum = 0;
    for (guint i = 0; i < extents->len; i++)
        sum ^= ecfs_content_sum_extent (ino, &g_array_index (extents, EcfsExtent, i));
    return sum;
}

static bool check_extents (const Inode *inode, const GArray *extents, GError **error)
{
    return sum_extents (inode->attr.ino, extents) == inode->extents_sum ||
           ecfs_bad_row (error, "inodes", (int64_t) inode->attr.ino,
                         "its size or extents are not those that were stored");
}

/* The extents of an inode that are what was stored. */
static GArray *summed_extents (EcfsCatalog *self, const Inode *inode, GError **error)
{
    g_autoptr (GArray) extents = ecfs_extents_list (self, inode->attr.ino, error);
    return extents != NULL && check_extents (inode, extents, error) ? g_steal_pointer (&extents) : NULL;
}

static GArray *get_extents (EcfsCatalog *self, uint64_t ino, GError **error)
{
    Inode inode;
    return ecfs_inode_get (self, ino, &inode, error) ? summed_extents (self, &inode, error) : NULL;
}

GArray *ecfs_catalog_extents (EcfsCatalog *self, uint64_t ino, GError **error)
{
    return READ (self, get_extents (self, ino, error));
}

static GArray *get_content (EcfsCatalog *self, uint64_t ino, uint64_t *ret_size, GError **error)
{
    Inode inode;
    if (!ecfs_inode_get (self, ino, &inode, error))
        return NULL;
    *ret_size = inode.committed_size;
    return summed_extents (self, &inode, error);
}

GArray *ecfs_catalog_content (EcfsCatalog *self, uint64_t ino, uint64_t *ret_size, GError **error)
{
    return READ (self, get_content (self, ino, ret_size, error));
}

/* Changing them */

/* For the brake: what comes and goes, as while a file is written again and again, is no mass deletion. So a file counts
 * once an hour, and not in its first minute. */
void ecfs_content_note_lost (EcfsCatalog *self, uint64_t ino)
{
    Inode inode;
    int64_t now_ns = ecfs_real_ns (), age_ns = ecfs_age_ns (self);
    if (!ecfs_inode_get (self, ino, &inode, NULL)) /* what it is removed for tells */
        return;
    const int64_t for_ns = now_ns - inode.attr.btime_ns; /* below 0: the clock was set back since */
    if (!self->is_restored && for_ns >= 0 && for_ns < LOST_YOUNG_NS)
        return;
    self->counters.totals.n_lost += ecfs_lost_add (self, ino, age_ns) ? 1 : 0;
}

bool ecfs_content_remove (EcfsCatalog *self, uint64_t ino, GError **error)
{
    g_autoptr (GArray) extents = ecfs_extents_list (self, ino, error);
    if (extents != NULL && extents->len > 0)
        ecfs_content_note_lost (self, ino);
    return extents != NULL && (extents->len == 0 || EXEC (self, EXTENT_DELETE_ALL, error, INT (ino))) &&
           ecfs_objects_release (self, extents, error);
}

static bool name_object (EcfsCatalog *self, int64_t object, ObjectName *name, GError **error)
{
    if (name->id == object)
        return true;
    name->id = 0;
    autoquery *query = QUERY (self, OBJECT_GET, error, INT (object));
    int found = ecfs_query_step (self, query, error);
    if (found < 0)
        return false;
    if (found == 0 || !ecfs_column_bytes (query, 1, name->uuid.bytes, sizeof name->uuid.bytes))
        return ecfs_bad_row (error, "objects", object, "is missing or has no UUID");
    name->id = object;
    return true;
}

bool ecfs_content_journal (EcfsCatalog *self, const Inode *inode, GError **error)
{
    ObjectName name = {.id = 0};
    g_autoptr (GArray) extents = ecfs_extents_list (self, inode->attr.ino, error);
    return extents != NULL && ecfs_content_put (self, inode, extents, &name, error);
}

bool ecfs_content_put (EcfsCatalog *self, const Inode *inode, const GArray *extents, ObjectName *last, GError **error)
{
    if (!check_extents (inode, extents, error))
        return false;
    g_autofree EcfsJournalExtent *images = g_new (EcfsJournalExtent, extents->len);
    for (guint i = 0; i < extents->len; i++) {
        const EcfsExtent *extent = &g_array_index (extents, EcfsExtent, i);
        if (!name_object (self, extent->object, last, error))
            return false;
        images[i] = (EcfsJournalExtent){.offset = extent->offset,
                                        .length = extent->length,
                                        .object = last->uuid,
                                        .object_offset = extent->object_offset};
    }
    EcfsAttr attr = ecfs_inode_committed (inode);
    ecfs_journal_put_content (self->record, &attr, images, extents->len);
    const EcfsExtent *first = extents->len == 0 ? NULL : &g_array_index (extents, EcfsExtent, 0);
    if (first != NULL && first->has_sha256 && first->offset == 0)
        ecfs_journal_put_content_sha256 (self->record, attr.ino, first->generation, first->sha256);
    return true;
}

void ecfs_content_sum (Inode *inode, const GArray *extents)
{
    inode->attr.data_bytes = 0;
    for (guint i = 0; i < extents->len; i++)
        inode->attr.data_bytes += g_array_index (extents, EcfsExtent, i).length;
    inode->extents_sum = sum_extents (inode->attr.ino, extents);
}

bool ecfs_content_count (EcfsCatalog *self, Inode *inode, GError **error)
{
    g_autoptr (GArray) extents = ecfs_extents_list (self, inode->attr.ino, error);
    if (extents != NULL)
        ecfs_content_sum (inode, extents);
    return extents != NULL;
}

bool ecfs_content_adopt (EcfsCatalog *self, Inode *inode, const Inode *replaced, GError **error)
{
    g_autoptr (GArray) own = ecfs_extents_list (self, inode->attr.ino, error);
    g_autoptr (GArray) theirs = own == NULL ? NULL : ecfs_extents_list (self, replaced->attr.ino, error);
    if (theirs == NULL)
        return false;
    if (own->len > 0 || theirs->len == 0)
        return true;
    inode->committed_size = replaced->committed_size;
    inode->committed_mtime_ns = ecfs_inode_committed (replaced).mtime_ns;
    inode->mtime_is_staged = true;
    return EXEC (self, EXTENT_COPY, error, INT (inode->attr.ino), INT (replaced->attr.ino)) &&
           EXEC (self, STAGING_NOT_FRESH, error, INT (inode->attr.ino)) && ecfs_content_count (self, inode, error) &&
           ecfs_inode_store (self, inode, error) && ecfs_content_journal (self, inode, error);
}

bool ecfs_content_truncate (EcfsCatalog *self, Inode *inode, uint64_t size, GError **error)
{
    uint64_t ino = inode->attr.ino;
    bool shrinks = size < inode->committed_size;
    inode->committed_size = size;
    if (!shrinks)
        return true;
    g_autoptr (GArray) extents = ecfs_extents_list (self, ino, error);
    if (extents != NULL && extents->len > 0)
        ecfs_content_note_lost (self, ino);
    return extents != NULL && EXEC (self, EXTENT_DELETE_FROM, error, INT (ino), INT (size)) &&
           EXEC (self, EXTENT_SHORTEN, error, INT (ino), INT (size)) && ecfs_content_count (self, inode, error) &&
           ecfs_objects_release (self, extents, error) && ecfs_content_journal (self, inode, error);
}
