/* What an item of a record does to the catalog. Whatever makes no sense is refused with EBADMSG. */
#include "catalog/content_sum.h"
#include "catalog/restore_priv.h"

#include <sys/stat.h>

/* Inodes and names */

/* 1: it is there; 0; -1: @error. Most are above all that are there. */
static int find_inode (EcfsRestore *self, uint64_t ino, Inode *ret_inode, GError **error)
{
    GError *why = NULL;
    if (ino > self->last_ino)
        return 0;
    if (ecfs_inode_get (self->catalog, ino, ret_inode, &why))
        return 1;
    if (ecfs_errno (why) == ENOENT) {
        g_error_free (why);
        return 0;
    }
    g_propagate_error (error, why);
    return -1;
}

static bool check_inode (const EcfsJournalItem *item, GError **error)
{
    const EcfsAttr *attr = &item->attr;
    if (attr->ino == 0 || attr->ino >= INT64_MAX || (attr->mode & ~(uint32_t) (S_IFMT | 07777)) != 0)
        return ecfs_restore_refuse (error, "an inode's number or mode is impossible");
    return attr->ino != ECFS_ROOT_INO || attr->nlink > 0 || ecfs_restore_refuse (error, "the root is removed");
}

static Inode inode_of (const EcfsJournalItem *item)
{
    Inode inode = {.attr = item->attr, .committed_size = item->attr.size, .has_code = item->code.size > 0};
    memcpy (inode.code, item->code.bytes, MIN (item->code.size, ECFS_CODE_MAX));
    return inode;
}

static bool restore_inode (EcfsRestore *self, const EcfsJournalItem *item, GError **error)
{
    EcfsCatalog *catalog = self->catalog;
    Inode old;
    const EcfsAttr *attr = &item->attr;
    if (!check_inode (item, error))
        return false;
    Inode inode = inode_of (item);
    int found = find_inode (self, attr->ino, &old, error);
    if (found == 0) {
        if (S_ISREG (attr->mode))
            ecfs_restore_set_fresh (self, attr->ino, true);
        self->last_ino = MAX (self->last_ino, attr->ino);
        return ecfs_inode_insert (catalog, &inode, NULL, error);
    }
    if (found < 0 || (attr->size < old.committed_size && !ecfs_restore_finds (self, error)))
        return false;
    ecfs_restore_forget_read (self);
    if ((old.attr.mode & S_IFMT) != (attr->mode & S_IFMT))
        return ecfs_restore_refuse (error, "an inode changes its type");
    inode.attr.data_bytes = old.attr.data_bytes;
    if (attr->size == 0 && old.committed_size > 0)
        ecfs_restore_note_emptied (self, attr->ino);
    return (attr->size >= old.committed_size || ecfs_content_truncate (catalog, &old, attr->size, error)) &&
           ecfs_content_count (catalog, &inode, error) && ecfs_inode_store (catalog, &inode, error) &&
           ecfs_inode_touch (catalog, &inode, true, error) &&
           EXEC (catalog, INODE_SET_BIRTH, error, INT (attr->ino), INT (attr->btime_ns));
}

/* What was on its way for a file that went, or that got other content since, came to nothing. Its ABORT may be too late
 * for the journal. */
static bool give_up_intents (EcfsRestore *self, uint64_t ino, uint64_t before, GError **error)
{
    return !self->has_intents || EXEC (self->catalog, INTENT_DELETE_INO, error, INT (ino), INT (before));
}

static bool restore_touch (EcfsRestore *self, const EcfsJournalItem *item, GError **error)
{
    Inode inode;
    if (!ecfs_inode_get (self->catalog, item->attr.ino, &inode, error))
        return false;
    if (item->attr.ino == ECFS_ROOT_INO && item->attr.nlink == 0)
        return ecfs_restore_refuse (error, "the root is removed");
    if (inode.attr.nlink > 0 && item->attr.nlink == 0 && !give_up_intents (self, item->attr.ino, INT64_MAX, error))
        return false;
    inode.attr.nlink = item->attr.nlink;
    inode.attr.mtime_ns = item->attr.mtime_ns;
    inode.attr.ctime_ns = item->attr.ctime_ns;
    return ecfs_inode_touch (self->catalog, &inode, true, error);
}

static bool check_directory (EcfsRestore *self, uint64_t ino, GError **error)
{
    Inode dir;
    if (ino == self->directory)
        return true;
    if (!ecfs_inode_get_dir (self->catalog, ino, &dir, error))
        return false;
    self->directory = ino;
    return true;
}

/* Most names are new, of inodes that are there: for these SQLite has less to do. PostgreSQL goes on after no failure.
 */
static bool put_name (EcfsRestore *self, uint64_t parent, const char *name, uint64_t ino, GError **error)
{
    EcfsCatalog *catalog = self->catalog;
    g_autoptr (GError) why = NULL;
    const uint64_t position = catalog->counters.next_position++;
    if (catalog->db->ops->is_sqlite &&
        EXEC_NOW (catalog, ENTRY_INSERT, &why, INT (parent), NAME (name), INT (position), INT (ino)))
        return true;
    if (why != NULL && why->code != EBADMSG) {
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    }
    return EXEC_NOW (catalog, ENTRY_PUT, error, INT (parent), NAME (name), INT (position), INT (ino)) &&
           (ecfs_changes (catalog) == 1 || ecfs_restore_refuse (error, "a name is of an inode that does not exist"));
}

static bool restore_name (EcfsRestore *self, const EcfsJournalItem *item, GError **error)
{
    EcfsCatalog *catalog = self->catalog;
    uint64_t ino = item->attr.ino;
    g_autofree char *name = ecfs_restore_text (item->name);
    if (!ecfs_name_check (name, error) || !check_directory (self, item->parent, error))
        return false;
    if (item->type == ECFS_JOURNAL_NAME_REMOVED)
        return EXEC (catalog, ENTRY_DELETE, error, INT (item->parent), NAME (name));
    if (ino == ECFS_ROOT_INO)
        return ecfs_restore_refuse (error, "a name is of the root");
    return put_name (self, item->parent, name, ino, error);
}

static bool restore_xattr (EcfsRestore *self, const EcfsJournalItem *item, GError **error)
{
    EcfsCatalog *catalog = self->catalog;
    Inode inode;
    Value name = BLOB (item->name.bytes, item->name.size);
    if (!ecfs_inode_get (catalog, item->attr.ino, &inode, error))
        return false;
    if (item->type == ECFS_JOURNAL_XATTR_REMOVED)
        return EXEC (catalog, XATTR_DELETE, error, INT (item->attr.ino), name);
    return EXEC (catalog, XATTR_SET, error, INT (item->attr.ino), name, BLOB (item->value.bytes, item->value.size));
}

/* Content */

static bool endpoint_row (EcfsCatalog *catalog, const EcfsUuid *uuid, int64_t *ret_id, GError **error)
{
    int found = QUERY_NUMBER (catalog, ENDPOINT_BY_UUID, ret_id, error, UUID (uuid));
    return found == 1 ||
           (found == 0 && ecfs_restore_refuse (error, "a stripe is at an endpoint that no record mentions"));
}

static bool stripe_of (EcfsCatalog *catalog, const EcfsJournalStripe *told, EcfsStripeRow *ret_stripe, GError **error)
{
    *ret_stripe = (EcfsStripeRow){.index = told->index, .instance = told->instance, .size = told->size};
    memcpy (ret_stripe->digest, told->digest, sizeof ret_stripe->digest);
    return endpoint_row (catalog, &told->endpoint, &ret_stripe->endpoint, error);
}

/* What the object had and has no more waits for deletion. */
static bool forget_object (EcfsCatalog *catalog, const EcfsObjectRow *old, const EcfsObjectRow *new, GError **error)
{
    for (guint i = 0; i < old->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (old->stripes, EcfsStripeRow, i);
        catalog->counters.totals.stripe_bytes -= stripe->size;
        if (!ecfs_stripes_have (new->stripes, stripe) &&
            !ecfs_deletion_queue (catalog, &old->uuid, stripe, ECFS_DELETION_REMOVED, error))
            return false;
    }
    return EXEC (catalog, STRIPE_DELETE_ALL, error, INT (old->id));
}

static bool restore_object (EcfsRestore *self, const EcfsJournalItem *item, GError **error)
{
    EcfsCatalog *catalog = self->catalog;
    int found;
    int64_t id;
    g_autoptr (EcfsObjectRow) object = ecfs_object_row_new ();
    object->uuid = item->uuid;
    object->epoch = item->epoch;
    object->sequence = item->sequence;
    object->code = ecfs_restore_text (item->code);
    object->size = item->object_size;
    object->segment_bytes = item->segment_bytes;
    object->block_bytes = item->block_bytes;
    object->header_bytes = item->header_bytes;
    object->seal = self->seal;
    self->seal = (EcfsSeal){.kind = ECFS_SEAL_NONE};
    memcpy (object->digest, item->digest, sizeof object->digest);
    for (size_t i = 0; i < item->n_parts; i++) {
        EcfsJournalStripe told = ecfs_journal_stripe (item, i);
        EcfsStripeRow stripe;
        if (!stripe_of (catalog, &told, &stripe, error))
            return false;
        g_array_append_val (object->stripes, stripe);
    }
    g_autoptr (EcfsObjectRow) old = ecfs_object_find (catalog, &item->uuid, &found, error);
    if (found < 0 || !ecfs_object_check (object, error) ||
        !EXEC (catalog, INTENT_DELETE_OBJECT, error, UUID (&item->uuid)))
        return false;
    if (old == NULL)
        return item->sequence <= INT64_MAX && ecfs_object_insert (catalog, object, &id, error);
    if (!ecfs_seal_equal (&old->seal, &object->seal))
        return ecfs_restore_refuse (error, "an object that is stored is under another key");
    return forget_object (catalog, old, object, error) && ecfs_object_renew (catalog, old, object, error);
}

static bool restore_log_end (EcfsRestore *self, const EcfsJournalItem *item, GError **error)
{
    int found;
    g_autoptr (EcfsObjectRow) log = ecfs_object_find (self->catalog, &item->uuid, &found, error);
    if (log == NULL)
        return found == 0 && ecfs_restore_refuse (error, "what ends is a log that no record mentions");
    if (log->kind != ECFS_OBJECT_LOG)
        return ecfs_restore_refuse (error, "what ends is no log");
    return ecfs_log_set_end (self->catalog, log, item->object_size, error);
}

static bool restore_stripe (EcfsRestore *self, const EcfsJournalItem *item, GError **error)
{
    EcfsCatalog *catalog = self->catalog;
    int found;
    EcfsJournalStripe told = ecfs_journal_stripe (item, 0);
    EcfsStripeRow stripe;
    if (!stripe_of (catalog, &told, &stripe, error))
        return false;
    if (item->type == ECFS_JOURNAL_DELETED)
        return ecfs_deletion_queue (catalog, &item->uuid, &stripe, ECFS_DELETION_REMOVED, error);
    g_autoptr (EcfsObjectRow) object = ecfs_object_find (catalog, &item->uuid, &found, error);
    if (object == NULL && item->type == ECFS_JOURNAL_PAST_STRIPE)
        return found == 0;
    if (object == NULL)
        return found == 0 && ecfs_restore_refuse (error, "a stripe is of an object that no record mentions");
    return ecfs_stripe_check (&stripe, error) &&
           ecfs_stripe_swap (catalog, object, &stripe, ecfs_stripe_at (object, stripe.index), error);
}

/* The object of an extent, borrowed; NULL. Files that follow one another are often of one. */
static const EcfsObjectRow *object_of (EcfsRestore *self, const EcfsUuid *uuid, GError **error)
{
    int found;
    if (self->named != NULL && ecfs_uuid_equal (&self->named->uuid, uuid))
        return self->named;
    g_clear_pointer (&self->named, ecfs_object_row_free);
    self->named = ecfs_object_find (self->catalog, uuid, &found, error);
    if (found == 0)
        told (ecfs_restore_refuse (error, "an extent is of an object that no record mentions"));
    return self->named;
}

/* What an inode has of its content in the catalog, and where the last of its objects was begun. */
typedef struct Filled {
    uint64_t data_bytes;
    uint64_t extents_sum;
    uint64_t begun;
} Filled;

/* The extents that a CONTENT tells, with ids of objects of the catalog; NULL. */
static GArray *extents_of (EcfsRestore *self, const EcfsJournalItem *item, Filled *ret_filled, GError **error)
{
    uint64_t end = 0, ino = item->attr.ino;
    g_autoptr (GArray) extents = g_array_sized_new (FALSE, FALSE, sizeof (EcfsExtent), (guint) item->n_parts);
    *ret_filled = (Filled){.begun = 0};
    for (size_t i = 0; i < item->n_parts; i++) {
        const EcfsJournalExtent one = ecfs_journal_extent (item, i);
        const EcfsObjectRow *object = object_of (self, &one.object, error);
        if (object == NULL)
            return NULL;
        if (one.object_offset > object->size || one.length > object->size - one.object_offset) {
            told (ecfs_restore_refuse (error, "an extent is not within its object"));
            return NULL;
        }
        if (one.length == 0 || one.offset < end || one.offset > INT64_MAX || one.length > INT64_MAX - one.offset ||
            one.object_offset > INT64_MAX - one.length) {
            told (ecfs_restore_refuse (error, "an extent is impossible"));
            return NULL;
        }
        const EcfsExtent extent = {
            .offset = one.offset, .length = one.length, .object = object->id, .object_offset = one.object_offset};
        end = one.offset + one.length;
        ret_filled->begun = MAX (ret_filled->begun, object->sequence);
        ret_filled->data_bytes += one.length;
        ret_filled->extents_sum ^= ecfs_content_sum_extent (ino, &extent);
        g_array_append_val (extents, extent);
    }
    return g_steal_pointer (&extents);
}

/* @first: the CONTENT_SHA256 of the first; NULL: none is told. */
static bool insert_extents (EcfsRestore *self, uint64_t ino, const GArray *extents, const EcfsJournalItem *first,
                            GError **error)
{
    for (guint i = 0; i < extents->len; i++) {
        const EcfsExtent *extent = &g_array_index (extents, EcfsExtent, i);
        bool has = i == 0 && first != NULL && extent->offset == 0;
        if (!EXEC (self->catalog, EXTENT_INSERT, error, INT (ino), INT (extent->offset), INT (extent->length),
                   INT (extent->object), INT (extent->object_offset),
                   has ? BLOB (first->sha256, ECFS_SHA256_SIZE) : NONE, has ? INT (first->sequence) : NONE))
            return false;
    }
    return true;
}

static bool fill_inode (EcfsRestore *self, const EcfsJournalItem *item, const Filled *filled, GError **error)
{
    Inode inode = {.attr = item->attr, .committed_size = item->attr.size, .extents_sum = filled->extents_sum};
    inode.attr.data_bytes = filled->data_bytes;
    return ecfs_inode_fill (self->catalog, &inode, error);
}

static bool replace_content (EcfsRestore *self, const EcfsJournalItem *item, GError **error)
{
    EcfsCatalog *catalog = self->catalog;
    Filled filled;
    if (!ecfs_restore_finds (self, error))
        return false;
    g_autoptr (GArray) old = ecfs_extents_list (catalog, item->attr.ino, error);
    g_autoptr (GArray) new = old == NULL ? NULL : extents_of (self, item, &filled, error);
    bool replaced =
        new != NULL &&EXEC (catalog, EXTENT_DELETE_ALL, error, INT (item->attr.ino)) &&
        insert_extents (self, item->attr.ino, new, NULL, error) && ecfs_objects_release (catalog, old, error) &&
        give_up_intents (self, item->attr.ino, filled.begun, error) && fill_inode (self, item, &filled, error);
    ecfs_restore_forget_read (self); /* objects may have gone */
    if (replaced && old->len > 0)
        ecfs_content_note_lost (catalog, item->attr.ino);
    return replaced;
}

static bool restore_content (EcfsRestore *self, const EcfsJournalItem *item, GError **error)
{
    uint64_t ino = item->attr.ino;
    Filled filled;
    if (ino > INT64_MAX)
        return ecfs_restore_refuse (error, "an inode's number is impossible");
    bool is_new = g_hash_table_contains (self->fresh, &ino);
    ecfs_restore_set_fresh (self, ino, false);
    if (item->n_parts == 0)
        ecfs_restore_note_emptied (self, ino);
    if (!is_new)
        return replace_content (self, item, error);
    g_autoptr (GArray) extents = extents_of (self, item, &filled, error);
    return extents != NULL && insert_extents (self, ino, extents, NULL, error) &&
           give_up_intents (self, ino, filled.begun, error) && fill_inode (self, item, &filled, error);
}

/* By two statements instead of four, as snapshots consist of these. */
bool ecfs_restore_file (EcfsRestore *self, const EcfsJournalItem *file, const EcfsJournalItem *content,
                        const EcfsJournalItem *digest, GError **error)
{
    Filled filled;
    uint64_t ino = file->attr.ino;
    g_autoptr (GArray) extents = extents_of (self, content, &filled, error);
    if (extents == NULL || !check_inode (file, error))
        return false;
    Inode inode = inode_of (file);
    inode.attr.size = inode.committed_size = content->attr.size;
    inode.attr.mtime_ns = content->attr.mtime_ns;
    inode.attr.ctime_ns = content->attr.ctime_ns;
    inode.attr.data_bytes = filled.data_bytes;
    inode.extents_sum = filled.extents_sum;
    self->last_ino = ino;
    if (content->n_parts == 0)
        ecfs_restore_note_emptied (self, ino);
    return ecfs_inode_insert (self->catalog, &inode, NULL, error) &&
           insert_extents (self, ino, extents, digest, error) && give_up_intents (self, ino, filled.begun, error);
}

static bool restore_drop (EcfsRestore *self, const EcfsJournalItem *item, GError **error)
{
    Inode inode;
    uint64_t ino = item->attr.ino;
    if (!ecfs_inode_get (self->catalog, ino, &inode, error))
        return false;
    if (inode.attr.nlink > 0)
        return ecfs_restore_refuse (error, "an inode that has names is removed");
    ecfs_restore_set_fresh (self, ino, false);
    return give_up_intents (self, ino, INT64_MAX, error) && ecfs_inode_drop (self->catalog, ino, error);
}

static bool restore_intent (EcfsRestore *self, const EcfsJournalItem *item, uint64_t sequence, GError **error)
{
    EcfsCatalog *catalog = self->catalog;
    int64_t any, id;
    int found = QUERY_NUMBER (catalog, OBJECT_BY_UUID, &any, error, UUID (&item->uuid));
    self->has_intents = true;
    return found == 1 ||
           (found == 0 && item->attr.ino <= INT64_MAX && ecfs_next_id (catalog, ECFS_IDS_INTENTS, &id, error) &&
            EXEC (catalog, INTENT_INSERT, error, INT (id), UUID (&item->uuid), INT (item->attr.ino),
                  INT (catalog->epoch), INT (sequence), INT (ecfs_real_ns ())));
}

/* The rest */

static bool restore_text (EcfsRestore *self, const EcfsJournalItem *item, GError **error)
{
    EcfsCatalog *catalog = self->catalog;
    if (item->type == ECFS_JOURNAL_SETTING) {
        g_autofree char *key = ecfs_restore_text (item->name), *value = ecfs_restore_text (item->value);
        return EXEC (catalog, SETTING_SET, error, TEXT (key), TEXT (value));
    }
    g_autofree char *code = ecfs_restore_text (item->code);
    autoquery *known = QUERY (catalog, CODE_GET, error, TEXT (code));
    int found = ecfs_query_step (catalog, known, error);
    return found == 1 ||
           (found == 0 && EXEC (catalog, CODE_INSERT, error, TEXT (code), BLOB (item->value.bytes, item->value.size)));
}

/* Whether the item leaves objects and directories as they are, but for what its function says. */
static bool keeps_others (EcfsJournalType type)
{
    return type == ECFS_JOURNAL_INODE || type == ECFS_JOURNAL_TARGET || type == ECFS_JOURNAL_NAME_ADDED ||
           type == ECFS_JOURNAL_NAME_REMOVED || type == ECFS_JOURNAL_CONTENT || type == ECFS_JOURNAL_CONTENT_SHA256;
}

/* Whether it looks for files of an object, or names of an inode. */
static bool finds_others (EcfsJournalType type)
{
    return type == ECFS_JOURNAL_INODE_DROPPED || type == ECFS_JOURNAL_TOUCH || type == ECFS_JOURNAL_PACKED ||
           type == ECFS_JOURNAL_UNUSED || type == ECFS_JOURNAL_LOG_END || type == ECFS_JOURNAL_NAME_REMOVED;
}

/* What says where content is, and not what anything consists of. */
static bool is_exchange (EcfsJournalType type)
{
    return type == ECFS_JOURNAL_ENDPOINT || type == ECFS_JOURNAL_REMOVED || type == ECFS_JOURNAL_CODE ||
           type == ECFS_JOURNAL_OBJECT || type == ECFS_JOURNAL_OBJECT_KEY || type == ECFS_JOURNAL_OBJECT_KIND ||
           type == ECFS_JOURNAL_OBJECT_SHA256 || type == ECFS_JOURNAL_STRIPE || type == ECFS_JOURNAL_PAST_STRIPE ||
           type == ECFS_JOURNAL_LOG_END || type == ECFS_JOURNAL_PACKED;
}

bool ecfs_restore_item (EcfsRestore *self, const EcfsJournalItem *item, uint64_t sequence, GError **error)
{
    EcfsCatalog *catalog = self->catalog;
    if (self->exchanges_only && !is_exchange (item->type))
        return true;
    if (finds_others (item->type) && !ecfs_restore_finds (self, error))
        return false;
    if (!keeps_others (item->type))
        ecfs_restore_forget_read (self);
    switch (item->type) {
    case ECFS_JOURNAL_EPOCH:
        return true;
    case ECFS_JOURNAL_INODE:
        return restore_inode (self, item, error);
    case ECFS_JOURNAL_TARGET:
        return EXEC (catalog, INODE_SET_TARGET, error, INT (item->attr.ino),
                     BLOB (item->value.bytes, item->value.size));
    case ECFS_JOURNAL_NAME_ADDED:
    case ECFS_JOURNAL_NAME_REMOVED:
        return restore_name (self, item, error);
    case ECFS_JOURNAL_TOUCH:
        return restore_touch (self, item, error);
    case ECFS_JOURNAL_XATTR_SET:
    case ECFS_JOURNAL_XATTR_REMOVED:
        return restore_xattr (self, item, error);
    case ECFS_JOURNAL_OBJECT:
        return restore_object (self, item, error);
    case ECFS_JOURNAL_OBJECT_KEY:
        self->sealed = item->uuid;
        return ecfs_seal_parse (item->value.bytes, item->value.size, &self->seal, error);
    case ECFS_JOURNAL_OBJECT_SHA256:
        return EXEC (catalog, OBJECT_SET_SHA256, error, UUID (&item->uuid), BLOB (item->sha256, ECFS_SHA256_SIZE));
    case ECFS_JOURNAL_CONTENT:
        return restore_content (self, item, error);
    case ECFS_JOURNAL_STRIPE:
    case ECFS_JOURNAL_PAST_STRIPE:
    case ECFS_JOURNAL_DELETED:
        return restore_stripe (self, item, error);
    case ECFS_JOURNAL_INODE_DROPPED:
        return restore_drop (self, item, error);
    case ECFS_JOURNAL_INTENT:
        return restore_intent (self, item, sequence, error);
    case ECFS_JOURNAL_ABORT:
        return EXEC (catalog, INTENT_DELETE_OBJECT, error, UUID (&item->uuid));
    case ECFS_JOURNAL_ENDPOINT:
        return ecfs_restore_endpoint_item (self, item, error);
    case ECFS_JOURNAL_REMOVED:
        return ecfs_restore_removed_item (self, item, error);
    case ECFS_JOURNAL_NEXT_INO:
        catalog->counters.next_ino = MAX (catalog->counters.next_ino, MIN (item->attr.ino, INT64_MAX));
        return true;
    case ECFS_JOURNAL_SETTING:
    case ECFS_JOURNAL_CODE:
        return restore_text (self, item, error);
    case ECFS_JOURNAL_OBJECT_KIND:
        return item->state <= ECFS_OBJECT_PACK
                   ? EXEC (catalog, OBJECT_SET_KIND, error, UUID (&item->uuid), INT (item->state))
                   : ecfs_restore_refuse (error, "an object's kind is impossible");
    case ECFS_JOURNAL_LOG_END:
        return restore_log_end (self, item, error);
    case ECFS_JOURNAL_PACKED:
        return ecfs_shared_restore (catalog, item, error);
    case ECFS_JOURNAL_UNUSED:
        return ecfs_shared_drop_unused (catalog, &item->uuid, error) >= 0;
    case ECFS_JOURNAL_CONTENT_SHA256:
        return EXEC (catalog, EXTENT_SET_SHA256, error, INT (item->attr.ino), BLOB (item->sha256, ECFS_SHA256_SIZE),
                     INT (item->sequence));
    case ECFS_JOURNAL_MARK:
    case ECFS_JOURNAL_MARK_REMOVED:
        return ecfs_mark_restore (catalog, item, error);
    case ECFS_JOURNAL_PREVIOUS:
    case ECFS_JOURNAL_STANDS:
    case ECFS_JOURNAL_SESSION:
        return true;
    }
    return true;
}
