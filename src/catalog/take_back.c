/*
 * Content that an archive had becomes a file's again. Its objects are in the catalog still, or they were deleted, and
 * their stripes wait for the deletion: then these are taken out of the queue, in the transaction in which the object
 * comes back. What is doomed, and so may be gone already, does not come back; nor what no longer waits, unless a
 * recovery gave up the queue that it was in: then nobody deletes it.
 */
#include "catalog/content_priv.h"

#include <inttypes.h>
#include <sys/stat.h>

/* *ret_kind: an EcfsDeletionKind, or -1 where it does not wait: it was given up with the queue, by a recovery. */
static bool queued_as (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe, int64_t *ret_id,
                       int64_t *ret_kind, GError **error)
{
    autoquery *query = QUERY (self, DELETION_FIND, error, UUID (object), INT (stripe->index), INT (stripe->instance),
                              INT (stripe->endpoint));
    int found = ecfs_query_step (self, query, error);
    *ret_kind = -1;
    if (found == 1) {
        *ret_id = ecfs_column_number (query, 0);
        *ret_kind = ecfs_column_number (query, 1);
    }
    return found >= 0;
}

/* Whether one that does not wait may have waited when it was looked for. */
static bool may_be_deleted (const EcfsCatalog *self, int64_t looked_us)
{
    return self->deleted_us >= looked_us;
}

/* The object as it was, with those stripes that may come back, which leave the queue. */
static EcfsObjectRow *take_stripes (EcfsCatalog *self, const EcfsTakeBack *what, const EcfsObjectRow *was,
                                    GError **error)
{
    g_autoptr (EcfsObjectRow) object = ecfs_object_row_copy (was);
    for (guint i = object->stripes->len; i-- > 0;) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        int64_t id, kind;
        if (!queued_as (self, &was->uuid, stripe, &id, &kind, error))
            return NULL;
        bool is_gone = kind < 0 ? may_be_deleted (self, what->looked_us) &&
                                      (what->is_there == NULL || !what->is_there (what->user, stripe))
                                : kind == ECFS_DELETION_DOOMED;
        if (is_gone) {
            g_array_remove_index (object->stripes, i);
        } else if (kind >= 0) {
            if (!EXEC (self, DELETION_DELETE, error, INT (id)))
                return NULL;
            self->counters.totals.n_deletions--;
        }
    }
    return g_steal_pointer (&object);
}

/* All that it waits for has a row: where the catalog knows the object as the past's, what has none is gone. */
static bool waits (EcfsCatalog *self, const EcfsObjectRow *was, const EcfsStripeRow *stripe, bool *ret_waits,
                   GError **error)
{
    int64_t id, kind;
    bool told = queued_as (self, &was->uuid, stripe, &id, &kind, error);
    *ret_waits = kind >= 0;
    return told;
}

/* The stripes are those that were looked for and found, whatever the past lists: another machine may have removed some
 * of these. What has taken the place of one since waits for its deletion. */
static bool find_stripes (EcfsCatalog *self, const EcfsObjectRow *was, EcfsObjectRow *past, GError **error)
{
    g_autoptr (EcfsObjectRow) found = ecfs_object_row_copy (was);
    for (guint i = found->stripes->len; i-- > 0;) {
        EcfsStripeRow *stripe = &g_array_index (found->stripes, EcfsStripeRow, i);
        const EcfsStripeRow *listed = ecfs_stripe_at (past, stripe->index);
        bool is_there;
        if (!waits (self, was, stripe, &is_there, error))
            return false;
        if (!is_there)
            g_array_remove_index (found->stripes, i);
        else if (listed != NULL && listed->instance == stripe->instance)
            stripe->size = listed->size; /* a log may have grown */
    }
    g_array_unref (past->stripes);
    past->stripes = g_array_ref (found->stripes);
    return true;
}

/* What the past knows of the object itself is newer than a moment at which a file had it. */
static EcfsObjectRow *take_object (EcfsCatalog *self, const EcfsTakeBack *what, const EcfsObjectRow *was,
                                   GError **error)
{
    int found;
    g_autoptr (EcfsObjectRow) object = ecfs_past_find (self, &was->uuid, &found, error);
    if (found <= 0)
        return found < 0 ? NULL : take_stripes (self, what, was, error);
    if (object->kind != was->kind || object->size < was->size || !ecfs_seal_equal (&object->seal, &was->seal)) {
        told (ecfs_fail (error, ESTALE, "its content is another since"));
        return NULL;
    }
    return find_stripes (self, was, object, error) && ecfs_past_take (self, &was->uuid, error)
               ? take_stripes (self, what, object, error)
               : NULL;
}

static bool bring_object (EcfsCatalog *self, const EcfsTakeBack *what, const EcfsObjectRow *was, int64_t *ret_id,
                          GError **error)
{
    int found;
    g_autoptr (EcfsObjectRow) there = ecfs_object_find (self, &was->uuid, &found, error);
    if (found < 0)
        return false;
    if (found == 1) {
        *ret_id = there->id;
        return (there->kind == was->kind && there->size >= was->size && ecfs_seal_equal (&there->seal, &was->seal)) ||
               ecfs_fail (error, ESTALE, "its content is another since");
    }
    if (!ecfs_object_check (was, error))
        return false;
    g_autoptr (EcfsObjectRow) object = take_object (self, what, was, error);
    if (object == NULL)
        return false;
    if (!what->decodes (what->user, object))
        return ecfs_fail (error, EIO,
                          "too few of its stripes are left: its deletion has begun, or endpoints lost them");
    /* What was in it before is of the past, which nothing that is moved out of it from now on takes along. */
    return ecfs_object_insert (self, object, ret_id, error) && EXEC (self, OBJECT_SINCE_EVER, error, INT (*ret_id)) &&
           (was->kind != ECFS_OBJECT_LOG || EXEC (self, OBJECT_ADD_DEAD, error, INT (*ret_id), INT (1))) &&
           (was->kind != ECFS_OBJECT_PACK || EXEC (self, OBJECT_ADD_DEAD, error, INT (*ret_id), INT (object->size)));
}

static bool bring_extent (EcfsCatalog *self, const EcfsTakeBack *what, const EcfsExtent *extent, int64_t object,
                          GError **error)
{
    const EcfsObjectRow *was = what->objects[extent->object];
    if (extent->length > was->size || extent->object_offset > was->size - extent->length)
        return ecfs_fail (error, EBADMSG, "an extent is not within its object");
    /* It is alive again where its death was noted; in a log it is another file's that died, and that stays history. */
    return (was->kind != ECFS_OBJECT_PACK ||
            EXEC (self, OBJECT_ADD_DEAD, error, INT (object), INT (-(int64_t) extent->length))) &&
           EXEC (self, EXTENT_INSERT, error, INT (what->ino), INT (extent->offset), INT (extent->length), INT (object),
                 INT (extent->object_offset), extent->has_sha256 ? BLOB (extent->sha256, sizeof extent->sha256) : NONE,
                 extent->generation != 0 ? INT (extent->generation) : NONE);
}

static bool take_back (EcfsCatalog *self, const EcfsTakeBack *what, GError **error)
{
    Inode inode;
    g_autofree int64_t *ids = g_new (int64_t, what->n_objects + 1);
    g_autoptr (GArray) none = ecfs_extents_list (self, what->ino, error);
    if (none == NULL || !ecfs_inode_get (self, what->ino, &inode, error))
        return false;
    if (!S_ISREG (inode.attr.mode) || none->len > 0)
        return ecfs_fail (error, EINVAL, "inode %" PRIu64 " is no regular file, or has content", what->ino);
    for (size_t i = 0; i < what->n_objects; i++)
        if (!bring_object (self, what, what->objects[i], &ids[i], error))
            return false;
    for (size_t i = 0; i < what->n_extents; i++)
        if (!bring_extent (self, what, &what->extents[i], ids[what->extents[i].object], error))
            return false;
    inode.attr.size = inode.committed_size = what->size;
    return ecfs_content_count (self, &inode, error) && ecfs_inode_store (self, &inode, error) &&
           ecfs_content_journal (self, &inode, error);
}

bool ecfs_catalog_take_back (EcfsCatalog *self, const EcfsTakeBack *what, GError **error)
{
    return CHANGE (self, error, take_back (self, what, error));
}

static GArray *find_unsure (EcfsCatalog *self, const EcfsObjectRow *was, int64_t looked_us, GError **error)
{
    int found = 1;
    g_autoptr (GArray) unsure = g_array_new (FALSE, FALSE, sizeof (EcfsStripeRow));
    if (!may_be_deleted (self, looked_us))
        return g_steal_pointer (&unsure);
    g_autoptr (EcfsObjectRow) there = ecfs_object_find (self, &was->uuid, &found, error);
    if (found < 0)
        return NULL;
    for (guint i = 0; there == NULL && i < was->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (was->stripes, EcfsStripeRow, i);
        bool is_queued;
        if (!waits (self, was, stripe, &is_queued, error))
            return NULL;
        if (!is_queued)
            g_array_append_vals (unsure, stripe, 1);
    }
    return g_steal_pointer (&unsure);
}

GArray *ecfs_catalog_unsure (EcfsCatalog *self, const EcfsObjectRow *was, int64_t looked_us, GError **error)
{
    return READ (self, find_unsure (self, was, looked_us, error));
}
