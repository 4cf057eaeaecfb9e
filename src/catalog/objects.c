/* Objects and their stripes: how they become the content of files, change, and are let go. */
#include "catalog/content_priv.h"

#include <sys/stat.h>

#define WALK_BATCH 256

guint ecfs_code_n (const char *code)
{
    const char *at = strchr (code, ':');
    guint64 n = 0;
    while (at != NULL) {
        n += g_ascii_strtoull (at + 1, NULL, 10);
        at = strchr (at + 1, '+');
    }
    return n > 256 ? 0 : (guint) n;
}

static bool is_full (const char *code, guint n_stripes)
{
    return n_stripes >= ecfs_code_n (code);
}

static bool read_stripes (EcfsCatalog *self, const EcfsObjectRow *object, GError **error)
{
    autoquery *query = object->id > 0 ? QUERY (self, STRIPE_LIST, error, INT (object->id))
                                      : QUERY (self, PAST_STRIPES, error, UUID (&object->uuid));
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        EcfsStripeRow stripe = {.endpoint = ecfs_column_number (query, 2)};
        uint64_t index;
        if (!ecfs_column_u64 (query, 0, 255, &index) || !ecfs_column_u64 (query, 1, INT64_MAX, &stripe.instance) ||
            !ecfs_column_u64 (query, 3, INT64_MAX, &stripe.size) ||
            !ecfs_column_bytes (query, 4, stripe.digest, sizeof stripe.digest))
            return ecfs_bad_row (error, "stripes", object->id, "a stripe is impossible");
        stripe.index = (uint16_t) index;
        if (ecfs_stripe_at (object, stripe.index) == NULL) /* of the past the newest counts */
            g_array_append_val (object->stripes, stripe);
    }
    return found == 0;
}

static bool read_seal (EcfsQuery *query, EcfsSeal *ret_seal)
{
    return ecfs_column_is_null (query, 11) ||
           ecfs_seal_parse (ecfs_column_blob (query, 11), ecfs_column_size (query, 11), ret_seal, NULL);
}

static bool read_object (EcfsQuery *query, EcfsObjectRow *row, GError **error)
{
    uint64_t epoch, segment_bytes, block_bytes, header_bytes;
    row->id = ecfs_column_number (query, 0);
    const char *code = ecfs_column_text (query, 4);
    size_t code_size = ecfs_column_size (query, 4);
    if (code == NULL || code_size == 0 || code_size > ECFS_CODE_MAX)
        return ecfs_bad_row (error, "objects", row->id, "its code is impossible");
    if (!ecfs_column_bytes (query, 1, row->uuid.bytes, sizeof row->uuid.bytes) ||
        !ecfs_column_bytes (query, 9, row->digest, sizeof row->digest))
        return ecfs_bad_row (error, "objects", row->id, "its UUID or digest is impossible");
    row->has_sha256 = !ecfs_column_is_null (query, 10);
    if (row->has_sha256 && !ecfs_column_bytes (query, 10, row->sha256, sizeof row->sha256))
        return ecfs_bad_row (error, "objects", row->id, "its SHA-256 is impossible");
    if (!read_seal (query, &row->seal))
        return ecfs_bad_row (error, "objects", row->id, "under which key it is stored is impossible");
    if (!ecfs_column_u64 (query, 2, UINT32_MAX, &epoch) || !ecfs_column_u64 (query, 3, INT64_MAX, &row->sequence) ||
        !ecfs_column_u64 (query, 5, INT64_MAX, &row->size) || !ecfs_column_u64 (query, 6, UINT32_MAX, &segment_bytes) ||
        !ecfs_column_u64 (query, 7, UINT32_MAX, &block_bytes) || !ecfs_column_u64 (query, 8, UINT32_MAX, &header_bytes))
        return ecfs_bad_row (error, "objects", row->id, "a number is impossible");
    row->kind = (EcfsObjectKind) ecfs_column_number (query, 12);
    if (row->kind > ECFS_OBJECT_PACK)
        return ecfs_bad_row (error, "objects", row->id, "its kind is impossible");
    row->epoch = (uint32_t) epoch;
    row->segment_bytes = (uint32_t) segment_bytes;
    row->block_bytes = (uint32_t) block_bytes;
    row->header_bytes = (uint32_t) header_bytes;
    row->code = g_strndup (code, (gsize) code_size);
    return true;
}

EcfsObjectRow *ecfs_object_load (EcfsCatalog *self, EcfsQuery *query, GError **error)
{
    g_autoptr (EcfsObjectRow) row = ecfs_object_row_new ();
    bool ok = read_object (query, row, error) && read_stripes (self, row, error);
    return ok ? g_steal_pointer (&row) : NULL;
}

static EcfsObjectRow *get_object (EcfsCatalog *self, int64_t object, GError **error)
{
    autoquery *query =
        object > 0 ? QUERY (self, OBJECT_GET, error, INT (object)) : QUERY (self, PAST_GET, error, INT (-object));
    int found = ecfs_query_step (self, query, error);
    if (found == 0)
        told (ecfs_fail (error, ENOENT, "object row %" PRId64 " does not exist", object));
    return found == 1 ? ecfs_object_load (self, query, error) : NULL;
}

EcfsObjectRow *ecfs_catalog_object (EcfsCatalog *self, int64_t object, GError **error)
{
    return READ (self, get_object (self, object, error));
}

GPtrArray *ecfs_objects_load (EcfsCatalog *self, EcfsQuery *query, GError **error)
{
    g_autoptr (GPtrArray) rows = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_object_row_free);
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        EcfsObjectRow *row = ecfs_object_load (self, query, error);
        if (row == NULL)
            return NULL;
        g_ptr_array_add (rows, row);
    }
    return found < 0 ? NULL : g_steal_pointer (&rows);
}

static GPtrArray *list_objects (EcfsCatalog *self, int64_t after, size_t max, GError **error)
{
    autoquery *query = QUERY (self, OBJECT_LIST, error, INT (after), INT (MIN (max, INT_MAX)));
    return ecfs_objects_load (self, query, error);
}

GPtrArray *ecfs_catalog_objects (EcfsCatalog *self, int64_t after, size_t max, GError **error)
{
    return READ (self, list_objects (self, after, max, error));
}

bool ecfs_catalog_each_object (EcfsCatalog *self,
                               bool (*each) (void *user, const EcfsObjectRow *object, GError **error), void *user,
                               GError **error)
{
    int64_t after = 0;
    for (bool more = true; more;) {
        g_autoptr (GPtrArray) objects = ecfs_catalog_objects (self, after, WALK_BATCH, error);
        if (objects == NULL)
            return false;
        for (guint i = 0; i < objects->len; i++) {
            const EcfsObjectRow *object = g_ptr_array_index (objects, i);
            after = object->id;
            if (!each (user, object, error))
                return false;
        }
        more = objects->len == WALK_BATCH;
    }
    return true;
}

static GPtrArray *list_objects_by_uuid (EcfsCatalog *self, const EcfsUuid *after, size_t max, GError **error)
{
    autoquery *query = QUERY (self, OBJECT_LIST_BY_UUID, error, UUID (after), INT (MIN (max, INT_MAX)));
    return ecfs_objects_load (self, query, error);
}

GPtrArray *ecfs_catalog_objects_by_uuid (EcfsCatalog *self, const EcfsUuid *after, size_t max, GError **error)
{
    return READ (self, list_objects_by_uuid (self, after, max, error));
}

static bool find_file (EcfsCatalog *self, int64_t object, uint64_t *ret_ino, GError **error)
{
    int64_t ino;
    int found = QUERY_NUMBER (self, EXTENT_OF_OBJECT, &ino, error, INT (object));
    if (found == 1)
        *ret_ino = (uint64_t) ino;
    return found == 1 || (found == 0 && ecfs_fail (error, ENOENT, "no file has object row %" PRId64, object));
}

bool ecfs_catalog_object_file (EcfsCatalog *self, int64_t object, uint64_t *ret_ino, GError **error)
{
    return READ (self, find_file (self, object, ret_ino, error));
}

static bool find_file_by_uuid (EcfsCatalog *self, const EcfsUuid *uuid, uint64_t *ret_ino)
{
    int64_t object;
    return QUERY_NUMBER (self, OBJECT_BY_UUID, &object, NULL, UUID (uuid)) == 1 &&
           find_file (self, object, ret_ino, NULL);
}

char *ecfs_catalog_object_path (EcfsCatalog *self, const EcfsUuid *object)
{
    uint64_t ino = 0;
    return READ (self, find_file_by_uuid (self, object, &ino)) ? ecfs_catalog_path (self, ino) : NULL;
}

/* Letting objects go */

/* What files had in a log is somewhere else where nothing of it died there. */
static bool deletion_kind (EcfsCatalog *self, const EcfsObjectRow *object, EcfsDeletionKind *ret_kind, GError **error)
{
    int64_t dead_bytes = 1;
    *ret_kind = ECFS_DELETION_REMOVED;
    if (object->kind != ECFS_OBJECT_LOG)
        return true;
    if (QUERY_NUMBER (self, OBJECT_DEAD, &dead_bytes, error, INT (object->id)) < 0)
        return false;
    if (dead_bytes == 0)
        *ret_kind = ECFS_DELETION_EXCHANGED;
    return true;
}

bool ecfs_object_delete (EcfsCatalog *self, int64_t object, GError **error)
{
    EcfsDeletionKind kind;
    g_autoptr (EcfsObjectRow) row = get_object (self, object, error);
    if (row == NULL || !deletion_kind (self, row, &kind, error))
        return false;
    EcfsTotals *totals = &self->counters.totals;
    for (guint i = 0; i < row->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (row->stripes, EcfsStripeRow, i);
        totals->stripe_bytes -= stripe->size;
        if (!ecfs_deletion_queue (self, &row->uuid, stripe, kind, error))
            return false;
    }
    if (kind == ECFS_DELETION_REMOVED && !ecfs_past_keep (self, row, error))
        return false;
    totals->n_objects--;
    totals->content_bytes -= row->size;
    totals->n_not_full -= is_full (row->code, row->stripes->len) ? 0 : 1;
    return EXEC (self, STRIPE_DELETE_ALL, error, INT (object)) && EXEC (self, OBJECT_DELETE, error, INT (object));
}

/* Shared objects are not done with the last file that names them: more may be on their way. */
static bool release_object (EcfsCatalog *self, int64_t object, uint64_t dead_bytes, GError **error)
{
    int64_t ino, kind;
    int found = QUERY_NUMBER (self, OBJECT_KIND, &kind, error, INT (object));
    if (found != 1)
        return found == 0;
    if (kind != ECFS_OBJECT_WHOLE)
        return EXEC (self, OBJECT_ADD_DEAD, error, INT (object), INT (dead_bytes));
    found = QUERY_NUMBER (self, EXTENT_OF_OBJECT, &ino, error, INT (object));
    return found == 1 || (found == 0 && ecfs_object_delete (self, object, error));
}

bool ecfs_objects_release (EcfsCatalog *self, const GArray *extents, GError **error)
{
    g_autoptr (GHashTable) seen = g_hash_table_new (g_int64_hash, g_int64_equal);
    for (guint i = 0; i < extents->len; i++) {
        int64_t *object = &g_array_index (extents, EcfsExtent, i).object;
        if (g_hash_table_add (seen, object) &&
            !release_object (self, *object, g_array_index (extents, EcfsExtent, i).length, error))
            return false;
    }
    return true;
}

/* Publishing */

static bool check_extents (const EcfsPublish *publish, GError **error)
{
    uint64_t end = 0;
    for (size_t i = 0; i < publish->n_extents; i++) {
        const EcfsExtent *extent = &publish->extents[i];
        if (extent->object < 0 || (uint64_t) extent->object >= publish->n_objects)
            return ecfs_fail (error, EINVAL, "extent %zu names an object that is not published", i);
        uint64_t size = publish->objects[extent->object]->size;
        if (extent->length == 0 || extent->offset < end || extent->offset > publish->size ||
            extent->length > publish->size - extent->offset || extent->object_offset > size ||
            extent->length > size - extent->object_offset)
            return ecfs_fail (error, EINVAL, "extent %zu is outside of its file, its object, or overlaps", i);
        end = extent->offset + extent->length;
    }
    return true;
}

bool ecfs_object_check (const EcfsObjectRow *object, GError **error)
{
    size_t code_size = object->code == NULL ? 0 : strlen (object->code);
    if (code_size == 0 || code_size > ECFS_CODE_MAX || object->size > INT64_MAX)
        return ecfs_fail (error, EINVAL, "an object's code or size is impossible");
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        if (!ecfs_stripe_check (stripe, error))
            return false;
        if (i > 0 && stripe[-1].index >= stripe->index)
            return ecfs_fail (error, EINVAL, "an object's stripes are not in the order of their indexes");
    }
    return true;
}

static bool check_publish (const EcfsPublish *publish, GError **error)
{
    if (publish->logged != NULL &&
        (publish->n_objects > 0 || publish->n_extents > 0 || publish->size == 0 || publish->logged->end > INT64_MAX ||
         publish->size > publish->logged->end || publish->logged->offset > publish->logged->end - publish->size))
        return ecfs_fail (error, EINVAL, "what is in a log is all of a file's content, and within its record");
    if (publish->size > INT64_MAX)
        return ecfs_fail (error, EFBIG, "%" PRIu64 " bytes are more than a file can have", publish->size);
    for (size_t i = 0; i < publish->n_objects; i++)
        if (!ecfs_object_check (publish->objects[i], error))
            return false;
    return check_extents (publish, error);
}

bool ecfs_total_add (uint64_t *total, uint64_t bytes, GError **error)
{
    if (*total > INT64_MAX || bytes > INT64_MAX - *total)
        return ecfs_fail (error, EFBIG, "%" PRIu64 " bytes more cannot be counted", bytes);
    *total += bytes;
    return true;
}

static bool insert_stripe (EcfsCatalog *self, int64_t object, const EcfsStripeRow *stripe, GError **error)
{
    return ecfs_total_add (&self->counters.totals.stripe_bytes, stripe->size, error) &&
           EXEC (self, STRIPE_INSERT, error, INT (object), INT (stripe->index), INT (stripe->instance),
                 INT (stripe->endpoint), INT (stripe->size), BLOB (stripe->digest, sizeof stripe->digest));
}

bool ecfs_object_journal (EcfsCatalog *self, const EcfsObjectRow *object, GError **error)
{
    g_autofree EcfsUuid *endpoints = g_new (EcfsUuid, object->stripes->len);
    for (guint i = 0; i < object->stripes->len; i++)
        if (!ecfs_endpoint_uuid (self, g_array_index (object->stripes, EcfsStripeRow, i).endpoint, &endpoints[i],
                                 error))
            return false;
    if (object->seal.kind != ECFS_SEAL_NONE)
        ecfs_journal_put_object_key (self->record, &object->uuid, &object->seal);
    ecfs_journal_put_object (self->record, object, endpoints);
    if (object->kind != ECFS_OBJECT_WHOLE)
        ecfs_journal_put_object_kind (self->record, &object->uuid, object->kind);
    if (object->has_sha256)
        ecfs_journal_put_object_sha256 (self->record, &object->uuid, object->sha256);
    return true;
}

bool ecfs_object_insert (EcfsCatalog *self, const EcfsObjectRow *object, int64_t *ret_id, GError **error)
{
    EcfsTotals *totals = &self->counters.totals;
    uint8_t seal[ECFS_SEAL_BYTES];
    ecfs_seal_put (&object->seal, seal);
    if (!ecfs_next_id (self, ECFS_IDS_OBJECTS, ret_id, error) ||
        !EXEC (self, OBJECT_INSERT, error, INT (*ret_id), UUID (&object->uuid), INT (object->epoch),
               INT (object->sequence), TEXT (object->code), INT (object->size), INT (object->segment_bytes),
               INT (object->block_bytes), INT (object->header_bytes), BLOB (object->digest, sizeof object->digest),
               object->has_sha256 ? BLOB (object->sha256, sizeof object->sha256) : NONE,
               object->seal.kind == ECFS_SEAL_NONE ? NONE : BLOB (seal, sizeof seal), INT (object->kind)))
        return false;
    if (!ecfs_total_add (&totals->content_bytes, object->size, error))
        return false;
    totals->n_objects++;
    totals->n_not_full += is_full (object->code, object->stripes->len) ? 0 : 1;
    for (guint i = 0; i < object->stripes->len; i++)
        if (!insert_stripe (self, *ret_id, &g_array_index (object->stripes, EcfsStripeRow, i), error))
            return false;
    return ecfs_object_journal (self, object, error);
}

bool ecfs_object_renew (EcfsCatalog *self, const EcfsObjectRow *old, const EcfsObjectRow *new, GError **error)
{
    EcfsTotals *totals = &self->counters.totals;
    totals->n_not_full -= is_full (old->code, old->stripes->len) ? 0 : 1;
    totals->n_not_full += is_full (new->code, new->stripes->len) ? 0 : 1;
    for (guint i = 0; i < new->stripes->len; i++)
        if (!insert_stripe (self, old->id, &g_array_index (new->stripes, EcfsStripeRow, i), error))
            return false;
    return EXEC (self, OBJECT_SET_CODE, error, INT (old->id), TEXT (new->code));
}

/* The object's intent must stand, and have announced each of its stripes: else they may be deleted already. */
static bool check_announced (const Intent *intent, const EcfsObjectRow *object, GError **error)
{
    if (!ecfs_uuid_equal (&intent->object, &object->uuid) || intent->epoch != object->epoch ||
        intent->sequence != object->sequence)
        return ecfs_fail (error, EINVAL, "an object is not the one of its intent");
    for (guint i = 0; i < object->stripes->len; i++)
        if (!ecfs_stripes_have (intent->stripes, &g_array_index (object->stripes, EcfsStripeRow, i)))
            return ecfs_fail (error, EINVAL, "an object has a stripe that its intent does not announce");
    return true;
}

/* Takes what the object has out of the intent, which stays for the others. */
static bool keep_rest (EcfsCatalog *self, int64_t intent, const GArray *stripes, GError **error)
{
    for (guint i = 0; i < stripes->len; i++)
        if (!EXEC (self, INTENT_STRIPE_DELETE, error, INT (intent),
                   INT (g_array_index (stripes, EcfsStripeRow, i).instance)))
            return false;
    return true;
}

/* With @goes_on, the intent stays for the stripes that the object has not. */
bool ecfs_object_publish (EcfsCatalog *self, const EcfsObjectRow *object, int64_t intent_id, bool goes_on,
                          int64_t *ret_id, GError **error)
{
    g_auto (Intent) intent = {.stripes = NULL};
    int found = ecfs_intent_get (self, intent_id, &intent, error);
    if (found == 0)
        return ecfs_fail (error, ESTALE, "intent %" PRId64 " has ended", intent_id);
    return found == 1 && check_announced (&intent, object, error) && ecfs_object_insert (self, object, ret_id, error) &&
           (goes_on ? keep_rest (self, intent_id, object->stripes, error)
                    : ecfs_intent_end (self, intent_id, &intent, object->stripes, error));
}

/* What the file's content is then, of EcfsExtent; and an object of it, where there are some. */
static GArray *insert_extents (EcfsCatalog *self, const EcfsPublish *publish, const int64_t *objects,
                               ObjectName *ret_name, GError **error)
{
    g_autoptr (GArray) inserted = g_array_new (FALSE, TRUE, sizeof (EcfsExtent));
    *ret_name = (ObjectName){.id = 0};
    for (size_t i = 0; i < publish->n_extents; i++) {
        EcfsExtent extent = publish->extents[i];
        if (i == 0)
            *ret_name = (ObjectName){.id = objects[extent.object], .uuid = publish->objects[extent.object]->uuid};
        extent.object = objects[extent.object];
        extent.has_sha256 = false;
        extent.generation = 0;
        if (!EXEC (self, EXTENT_INSERT, error, INT (publish->ino), INT (extent.offset), INT (extent.length),
                   INT (extent.object), INT (extent.object_offset), NONE, NONE))
            return NULL;
        g_array_append_val (inserted, extent);
    }
    EcfsExtent logged;
    if (publish->logged != NULL) {
        if (!ecfs_logged_insert (self, publish->ino, publish->size, publish->logged, &logged, error))
            return NULL;
        *ret_name = (ObjectName){.id = logged.object, .uuid = publish->logged->log};
        g_array_append_val (inserted, logged);
    }
    return g_steal_pointer (&inserted);
}

static bool get_publishable (EcfsCatalog *self, uint64_t ino, Inode *ret_inode, GError **error)
{
    g_autoptr (GError) why = NULL;
    if (ecfs_inode_get (self, ino, ret_inode, &why))
        return S_ISREG (ret_inode->attr.mode) ||
               ecfs_fail (error, EINVAL, "inode %" PRIu64 " is not a regular file", ino);
    if (ecfs_errno (why) == ENOENT)
        return ecfs_fail (error, ESTALE, "inode %" PRIu64 " was deleted", ino);
    g_propagate_error (error, g_steal_pointer (&why));
    return false;
}

static bool publish_all (EcfsCatalog *self, const EcfsPublish *publish, GError **error)
{
    Inode inode;
    g_autofree int64_t *objects = g_new (int64_t, publish->n_objects);
    StagingRows leaving;
    if (!get_publishable (self, publish->ino, &inode, error) ||
        !ecfs_staging_find_rows (self, publish->leaving, publish->n_leaving, &leaving, error))
        return false;
    for (size_t i = 0; i < publish->n_objects; i++)
        if (!ecfs_object_publish (self, publish->objects[i], publish->intents[i],
                                  publish->last_goes_on && i + 1 == publish->n_objects, &objects[i], error))
            return false;
    inode.attr.size = inode.committed_size = publish->size;
    if (!publish->keep_mtime)
        inode.attr.mtime_ns = publish->mtime_ns;
    inode.mtime_is_staged = false;
    inode.attr.ctime_ns = publish->ctime_ns == 0 ? ecfs_real_ns () : MAX (inode.attr.ctime_ns, publish->ctime_ns);
    ObjectName name;
    g_autoptr (GArray) extents =
        ecfs_content_remove (self, publish->ino, error) ? insert_extents (self, publish, objects, &name, error) : NULL;
    if (extents == NULL)
        return false;
    ecfs_content_sum (&inode, extents);
    return ecfs_inode_store (self, &inode, error) && ecfs_content_put (self, &inode, extents, &name, error) &&
           (publish->staging == 0 ||
            ecfs_staging_published (self, publish->staging, publish->ino, publish->full, error)) &&
           ecfs_staging_drop_rows (self, &leaving, error);
}

static void say_ahead (const EcfsPublish *publish)
{
    AHEAD (INODE_GET, INT (publish->ino));
    AHEAD (EXTENT_LIST, INT (publish->ino));
    if (publish->logged != NULL)
        AHEAD (OBJECT_BY_UUID, UUID (&publish->logged->log));
    if (publish->logged != NULL && publish->logged->intent != 0)
        AHEAD (INTENT_IS, INT (publish->logged->intent));
    if (publish->staging != 0) {
        AHEAD (STAGING_GET, INT (publish->staging));
        AHEAD (STAGING_OLDER, INT (publish->ino), INT (publish->staging));
    }
    if (publish->n_objects > 0) {
        AHEAD_ID (ECFS_IDS_OBJECTS);
        AHEAD (INTENT_GET, INT (publish->intents[0]));
        AHEAD (INTENT_STRIPE_LIST, INT (publish->intents[0]));
        ecfs_ahead (STMT_ENDPOINT_LIST_ALL, NULL, 0);
    }
    ecfs_staging_ahead (publish->leaving, publish->n_leaving);
}

static bool make_public (EcfsCatalog *self, const EcfsPublish *publish, Op *op, GError **error)
    ECFS_REQUIRES (self->lock)
{
    *op = (Op){.is_lost = false};
    bool made = check_publish (publish, error) && ecfs_op_begin (self, op, error) &&
                ecfs_op_end_checked (self, op, publish_all (self, publish, error), error);
    if (made && publish->made != NULL && !self->is_member)
        publish->made (publish->user);
    return made;
}

/* Of a shared catalog it is made when it is committed. */
static bool publish_shared (EcfsCatalog *self, const EcfsPublish *publish, GError **error)
{
    Op op;
    bool durable;
    unsigned tries = 0;
    if (!check_publish (publish, error)) /* what is asked ahead is of this caller */
        return false;
    say_ahead (publish);
    do {
        ecfs_op_enter (self, true);
        bool made = make_public (self, publish, &op, error);
        durable = made && ecfs_op_settle (self, &op, error); /* whoever is told that it failed stores it again */
        if (durable && publish->made != NULL)
            publish->made (publish->user);
        ecfs_mutex_unlock (&self->lock);
    } while (!durable && ecfs_op_again (self, &op, tries++, error));
    return durable;
}

bool ecfs_catalog_publish_some (EcfsCatalog *self, const EcfsPublish *publishes, size_t n, GError **ret_errors,
                                bool *ret_kept, GError **error)
{
    bool any = false;
    Op op;
    *ret_kept = false;
    for (size_t i = 0; i < n && self->is_member; i++)
        (void) publish_shared (self, &publishes[i], &ret_errors[i]); /* they say it */
    if (self->is_member)
        return true;
    ecfs_op_enter (self, true);
    for (size_t i = 0; i < n; i++)
        any = make_public (self, &publishes[i], &op, &ret_errors[i]) || any;
    bool durable = !any || ecfs_wait_all (self, error);
    *ret_kept = any && !durable && !self->broken;
    ecfs_mutex_unlock (&self->lock);
    return durable;
}

bool ecfs_catalog_publish (EcfsCatalog *self, const EcfsPublish *publish, bool *ret_kept, GError **error)
{
    Op op;
    bool kept = false;
    if (ret_kept == NULL)
        ret_kept = &kept;
    *ret_kept = false;
    if (self->is_member)
        return publish_shared (self, publish, error);
    say_ahead (publish);
    ecfs_op_enter (self, true);
    bool made = make_public (self, publish, &op, error);
    bool durable = made && ecfs_op_wait (self, &op, error);
    *ret_kept = made && !durable && !self->broken;
    ecfs_mutex_unlock (&self->lock);
    return durable;
}

/* Setting one stripe */

EcfsObjectRow *ecfs_object_find_bare (EcfsCatalog *self, const EcfsUuid *uuid, int *ret_found, GError **error)
{
    g_autoptr (EcfsObjectRow) row = ecfs_object_row_new ();
    autoquery *query = QUERY (self, OBJECT_BY_UUID, error, UUID (uuid));
    *ret_found = ecfs_query_step (self, query, error);
    if (*ret_found == 1 && !read_object (query, row, error))
        *ret_found = -1;
    return *ret_found == 1 ? g_steal_pointer (&row) : NULL;
}

EcfsObjectRow *ecfs_object_find (EcfsCatalog *self, const EcfsUuid *uuid, int *ret_found, GError **error)
{
    g_autoptr (EcfsObjectRow) row = ecfs_object_find_bare (self, uuid, ret_found, error);
    if (row != NULL && !read_stripes (self, row, error))
        *ret_found = -1;
    return *ret_found == 1 ? g_steal_pointer (&row) : NULL;
}

const EcfsStripeRow *ecfs_stripe_at (const EcfsObjectRow *object, unsigned index)
{
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        if (stripe->index == index)
            return stripe;
    }
    return NULL;
}

/* Takes the stripes with this index out of an intent, and ends it when they were the last. All but @kept (may be NULL)
 * go to the deletion queue. */
static bool end_index (EcfsCatalog *self, int64_t id, const Intent *intent, unsigned index, const EcfsStripeRow *kept,
                       GError **error)
{
    guint n_others = 0;
    for (guint i = 0; i < intent->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (intent->stripes, EcfsStripeRow, i);
        if (stripe->index != index)
            n_others++;
        else if ((kept == NULL || stripe->instance != kept->instance) &&
                 !ecfs_deletion_queue (self, &intent->object, stripe, ECFS_DELETION_UNCOMMITTED, error))
            return false;
    }
    return EXEC (self, INTENT_STRIPE_DELETE_INDEX, error, INT (id), INT (index)) &&
           (n_others > 0 || EXEC (self, INTENT_DELETE, error, INT (id)));
}

bool ecfs_stripe_swap (EcfsCatalog *self, const EcfsObjectRow *object, const EcfsStripeRow *stripe,
                       const EcfsStripeRow *old, GError **error)
{
    EcfsUuid endpoint;
    EcfsTotals *totals = &self->counters.totals;
    guint n_stripes = object->stripes->len;
    if (!ecfs_endpoint_uuid (self, stripe->endpoint, &endpoint, error))
        return false;
    if (old != NULL) {
        totals->stripe_bytes -= old->size;
        if (!EXEC (self, STRIPE_DELETE, error, INT (object->id), INT (old->index)) ||
            !ecfs_deletion_queue (self, &object->uuid, old, ECFS_DELETION_EXCHANGED, error))
            return false;
    } else if (!is_full (object->code, n_stripes) && is_full (object->code, n_stripes + 1))
        totals->n_not_full--;
    ecfs_journal_put_stripe (self->record, &object->uuid, stripe, &endpoint);
    return insert_stripe (self, object->id, stripe, error);
}

/* Whoever else gives the object a stripe meanwhile may have chosen the same endpoint. */
static bool has_room_for (const EcfsObjectRow *object, const EcfsStripeRow *stripe, unsigned max_per_endpoint)
{
    unsigned n_others = 0;
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *other = &g_array_index (object->stripes, EcfsStripeRow, i);
        n_others += other->index != stripe->index && other->endpoint == stripe->endpoint;
    }
    return n_others < max_per_endpoint;
}

/* *ret_stale: what was changed is to be kept, but the caller's answer is ESTALE. */
static bool set_stripe (EcfsCatalog *self, const EcfsUuid *uuid, const EcfsStripeRow *stripe, uint64_t old_instance,
                        unsigned max_per_endpoint, int64_t id, bool *ret_stale, GError **error)
{
    g_auto (Intent) intent = {.stripes = NULL};
    int found = ecfs_intent_get (self, id, &intent, error);
    *ret_stale = found == 0;
    if (found <= 0)
        return found == 0;
    if (!ecfs_uuid_equal (&intent.object, uuid) || !ecfs_stripes_have (intent.stripes, stripe))
        return ecfs_fail (error, EINVAL, "stripe %u was not announced by intent %" PRId64, stripe->index, id);
    g_autoptr (EcfsObjectRow) object = ecfs_object_find (self, uuid, &found, error);
    if (found < 0)
        return false;
    if (object == NULL)
        object = ecfs_past_find (self, uuid, &found, error);
    if (found < 0)
        return false;
    *ret_stale = true;
    if (object == NULL)
        return ecfs_intent_end (self, id, &intent, NULL, error);
    const EcfsStripeRow *old = ecfs_stripe_at (object, stripe->index);
    bool has_place = stripe->index < ecfs_code_n (object->code); /* it may have got a smaller code */
    if ((old == NULL ? 0 : old->instance) != old_instance || !has_place ||
        !has_room_for (object, stripe, max_per_endpoint))
        return end_index (self, id, &intent, stripe->index, NULL, error);
    *ret_stale = false;
    return (object->id > 0 ? ecfs_stripe_swap (self, object, stripe, old, error)
                           : ecfs_past_stripe_swap (self, object, stripe, old, error)) &&
           end_index (self, id, &intent, stripe->index, stripe, error);
}

bool ecfs_catalog_stripe_set (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe,
                              uint64_t old_instance, unsigned max_per_endpoint, int64_t intent, GError **error)
{
    bool stale = false;
    if (!ecfs_stripe_check (stripe, error) ||
        !CHANGE_DURABLE (self, error,
                         set_stripe (self, object, stripe, old_instance, max_per_endpoint, intent, &stale, error)))
        return false;
    return !stale ||
           ecfs_fail (error, ESTALE, "stripe %u: the object or its stripe has changed meanwhile", stripe->index);
}

static bool adopt_stripe (EcfsCatalog *self, const EcfsUuid *uuid, const EcfsStripeRow *stripe, uint64_t old_instance,
                          GError **error)
{
    int found;
    int64_t known = 0, queued = 0;
    g_autoptr (EcfsObjectRow) object = ecfs_object_find (self, uuid, &found, error);
    if (found < 0 ||
        QUERY_NUMBER (self, STRIPE_KNOWN, &known, error, UUID (uuid), INT (stripe->index), INT (stripe->instance)) <
            0 ||
        QUERY_NUMBER (self, DELETION_QUEUED, &queued, error, UUID (uuid), INT (stripe->index), INT (stripe->instance),
                      INT (stripe->endpoint)) < 0)
        return false;
    const EcfsStripeRow *old = object == NULL ? NULL : ecfs_stripe_at (object, stripe->index);
    bool fits = old == NULL
                    ? object != NULL && old_instance == 0 && stripe->index < ecfs_code_n (object->code)
                    : old->instance == old_instance && memcmp (old->digest, stripe->digest, sizeof old->digest) == 0;
    if (!fits || known != 0 || queued != 0)
        return ecfs_fail (error, ESTALE, "stripe %u: the object or its stripe has changed meanwhile", stripe->index);
    return ecfs_stripe_swap (self, object, stripe, old, error);
}

bool ecfs_catalog_stripe_adopt (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe,
                                uint64_t old_instance, GError **error)
{
    return ecfs_stripe_check (stripe, error) &&
           CHANGE_DURABLE (self, error, adopt_stripe (self, object, stripe, old_instance, error));
}

/* Another code for an object */

static GArray *inodes_of (EcfsCatalog *self, int64_t object, GError **error)
{
    g_autoptr (GArray) inodes = g_array_new (false, true, sizeof (uint64_t));
    autoquery *query = QUERY (self, EXTENT_INODES, error, INT (object));
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        uint64_t ino = (uint64_t) ecfs_column_number (query, 0);
        g_array_append_val (inodes, ino);
    }
    return found < 0 ? NULL : g_steal_pointer (&inodes);
}

/* Sums and journals what has the object now. */
static bool renew_contents_of (EcfsCatalog *self, int64_t object, GError **error)
{
    g_autoptr (GArray) inodes = inodes_of (self, object, error);
    for (guint i = 0; inodes != NULL && i < inodes->len; i++) {
        Inode inode;
        if (!ecfs_inode_get (self, g_array_index (inodes, uint64_t, i), &inode, error) ||
            !ecfs_content_count (self, &inode, error) || !ecfs_inode_store (self, &inode, error) ||
            !ecfs_content_journal (self, &inode, error))
            return false;
    }
    return inodes != NULL;
}

static bool exchange (EcfsCatalog *self, const EcfsUuid *uuid, const EcfsObjectRow *object, int64_t intent,
                      GError **error)
{
    int found;
    int64_t id;
    g_autoptr (EcfsObjectRow) old = ecfs_object_find (self, uuid, &found, error);
    if (found == 0)
        return ecfs_fail (error, ESTALE, "the object is no longer in the catalog");
    if (found == 1 && !ecfs_object_same_content (old, object))
        return ecfs_fail (error, EINVAL, "an object with other content cannot take the place of one");
    return found == 1 && ecfs_object_publish (self, object, intent, false, &id, error) &&
           EXEC (self, EXTENT_SET_OBJECT, error, INT (old->id), INT (id)) &&
           EXEC (self, OBJECT_SINCE, error, INT (id), INT (old->id)) && ecfs_object_delete (self, old->id, error) &&
           renew_contents_of (self, id, error);
}

bool ecfs_catalog_exchange (EcfsCatalog *self, const EcfsUuid *old, const EcfsObjectRow *object, int64_t intent,
                            GError **error)
{
    return ecfs_object_check (object, error) &&
           CHANGE_DURABLE (self, error, exchange (self, old, object, intent, error));
}

/* The digest of content that was stored without */

static bool fill_sha256 (EcfsCatalog *self, const EcfsUuid *object, const uint8_t *sha256, GError **error)
{
    if (!EXEC_NOW (self, OBJECT_FILL_SHA256, error, UUID (object), BLOB (sha256, ECFS_SHA256_SIZE)))
        return false;
    if (ecfs_changes (self) > 0)
        ecfs_journal_put_object_sha256 (self->record, object, sha256);
    return true;
}

bool ecfs_catalog_object_set_sha256 (EcfsCatalog *self, const EcfsUuid *object, const uint8_t sha256[ECFS_SHA256_SIZE],
                                     GError **error)
{
    return CHANGE (self, error, fill_sha256 (self, object, sha256, error));
}

/* Takes the stripes from index @n on out of the object, and its row. */
static bool drop_stripes_from (EcfsCatalog *self, EcfsObjectRow *object, guint n, GError **error)
{
    for (guint i = object->stripes->len; i-- > 0;) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        if (stripe->index < n)
            break;
        self->counters.totals.stripe_bytes -= stripe->size;
        if (!EXEC (self, STRIPE_DELETE, error, INT (object->id), INT (stripe->index)) ||
            !ecfs_deletion_queue (self, &object->uuid, stripe, ECFS_DELETION_EXCHANGED, error))
            return false;
        g_array_set_size (object->stripes, i);
    }
    return true;
}

static int by_index (const void *a, const void *b)
{
    return ((const EcfsStripeRow *) a)->index - ((const EcfsStripeRow *) b)->index;
}

static bool add_stripes (EcfsCatalog *self, EcfsObjectRow *object, const GArray *stripes, int64_t id, GError **error)
{
    g_auto (Intent) intent = {.stripes = NULL};
    int found = ecfs_intent_get (self, id, &intent, error);
    if (found == 0)
        return ecfs_fail (error, ESTALE, "intent %" PRId64 " has ended", id);
    for (guint i = 0; found == 1 && i < stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (stripes, EcfsStripeRow, i);
        if (ecfs_stripe_at (object, stripe->index) != NULL)
            return ecfs_fail (error, ESTALE, "stripe %u was stored meanwhile", stripe->index);
        if (!ecfs_uuid_equal (&intent.object, &object->uuid) || !ecfs_stripes_have (intent.stripes, stripe))
            return ecfs_fail (error, EINVAL, "stripe %u was not announced by intent %" PRId64, stripe->index, id);
        if (!ecfs_stripe_check (stripe, error) || !insert_stripe (self, object->id, stripe, error))
            return false;
        g_array_append_val (object->stripes, *stripe);
        g_array_sort (object->stripes, by_index);
    }
    return found == 1 && ecfs_intent_end (self, id, &intent, stripes, error);
}

static bool set_object_code (EcfsCatalog *self, const EcfsUuid *uuid, const char *old_code, const char *code,
                             const GArray *stripes, int64_t intent, GError **error)
{
    int found;
    g_autoptr (EcfsObjectRow) object = ecfs_object_find (self, uuid, &found, error);
    if (found < 0)
        return false;
    if (found == 0 || strcmp (object->code, old_code) != 0)
        return ecfs_fail (error, ESTALE, "the object is no longer in the catalog, or has another code");
    bool was_full = is_full (object->code, object->stripes->len);
    g_free (object->code);
    object->code = g_strdup (code);
    if (!drop_stripes_from (self, object, ecfs_code_n (code), error) ||
        (intent != 0 && !add_stripes (self, object, stripes, intent, error)))
        return false;
    self->counters.totals.n_not_full -= was_full ? 0 : 1;
    self->counters.totals.n_not_full += is_full (code, object->stripes->len) ? 0 : 1;
    return EXEC (self, OBJECT_SET_CODE, error, INT (object->id), TEXT (code)) &&
           ecfs_object_journal (self, object, error);
}

bool ecfs_catalog_set_object_code (EcfsCatalog *self, const EcfsUuid *object, const char *old_code, const char *code,
                                   const GArray *stripes, int64_t intent, GError **error)
{
    size_t size = strlen (code);
    if (size == 0 || size > ECFS_CODE_MAX)
        return ecfs_fail (error, EINVAL, "a code has 1 to %d bytes, not %zu", ECFS_CODE_MAX, size);
    return CHANGE_DURABLE (self, error, set_object_code (self, object, old_code, code, stripes, intent, error));
}
