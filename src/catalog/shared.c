/*
 * Objects that many files share. A log is there before its first record and grows; a file is in it by an extent that
 * names where its record begins. A pack is there before its first file: these are moved into it some at a time, each by
 * compare-and-set, from logs, other packs and objects of their own.
 */
#include "catalog/content_priv.h"

#include <inttypes.h>

/* Logs */

static bool begin_log (EcfsCatalog *self, EcfsObjectRow *log, int64_t *ret_intent, GError **error)
{
    int64_t id;
    for (guint i = 0; i < log->stripes->len; i++)
        if (!ecfs_endpoint_check_active (self, g_array_index (log->stripes, EcfsStripeRow, i).endpoint, error))
            return false;
    log->kind = ECFS_OBJECT_LOG;
    log->epoch = self->epoch;
    return ecfs_sequence_next (self, &log->sequence, error) && ecfs_object_check (log, error) &&
           ecfs_object_insert (self, log, &id, error) && ecfs_intent_insert (self, &log->uuid, 0, ret_intent, error);
}

bool ecfs_catalog_log_begin (EcfsCatalog *self, EcfsObjectRow *log, int64_t *ret_intent, GError **error)
{
    int64_t intent;
    AHEAD_TURN ();
    if (!CHANGE_DURABLE (self, error, begin_log (self, log, &intent, error)))
        return false;
    *ret_intent = intent;
    return true;
}

static bool close_log (EcfsCatalog *self, const EcfsUuid *log, GError **error)
{
    int64_t any;
    int found = QUERY_NUMBER (self, INTENT_HAS, &any, error, UUID (log));
    return found == 0 || (found == 1 && EXEC (self, INTENT_DELETE_BARE, error, UUID (log)));
}

bool ecfs_catalog_log_close (EcfsCatalog *self, const EcfsUuid *log, GError **error)
{
    return CHANGE (self, error, close_log (self, log, error));
}

static EcfsObjectRow *find_kind (EcfsCatalog *self, const EcfsUuid *uuid, EcfsObjectKind kind, GError **error)
{
    int found;
    g_autoptr (EcfsObjectRow) row = ecfs_object_find (self, uuid, &found, error);
    if (found == 0 || (found == 1 && row->kind != kind)) {
        told (
            ecfs_fail (error, ESTALE, "the %s is no longer in the catalog", kind == ECFS_OBJECT_LOG ? "log" : "pack"));
        return NULL;
    }
    return g_steal_pointer (&row);
}

static bool set_stripe_end (EcfsCatalog *self, const EcfsObjectRow *log, const EcfsStripeRow *stripe, uint64_t bytes,
                            GError **error)
{
    EcfsUuid endpoint;
    EcfsStripeRow ended = *stripe;
    ended.size = MAX (bytes, 1);
    self->counters.totals.stripe_bytes += ended.size - stripe->size;
    if (!ecfs_endpoint_uuid (self, stripe->endpoint, &endpoint, error))
        return false;
    ecfs_journal_put_stripe (self->record, &log->uuid, &ended, &endpoint);
    return EXEC (self, STRIPE_SET_SIZE, error, INT (log->id), INT (stripe->index), INT (ended.size));
}

static bool end_stripe (EcfsCatalog *self, const EcfsUuid *uuid, unsigned index, uint64_t bytes, GError **error)
{
    g_autoptr (EcfsObjectRow) log = find_kind (self, uuid, ECFS_OBJECT_LOG, error);
    const EcfsStripeRow *stripe = log == NULL ? NULL : ecfs_stripe_at (log, index);
    if (stripe == NULL)
        return log != NULL && ecfs_fail (error, ESTALE, "the log has no stripe %u any more", index);
    return set_stripe_end (self, log, stripe, bytes, error);
}

bool ecfs_catalog_log_stripe_ends (EcfsCatalog *self, const EcfsUuid *log, unsigned index, uint64_t bytes,
                                   GError **error)
{
    return CHANGE (self, error, end_stripe (self, log, index, bytes, error));
}

bool ecfs_log_set_end (EcfsCatalog *self, const EcfsObjectRow *log, uint64_t end, GError **error)
{
    if (end <= log->size)
        return true;
    if (!ecfs_total_add (&self->counters.totals.content_bytes, end - log->size, error))
        return false;
    ecfs_journal_put_log_end (self->record, &log->uuid, end);
    return EXEC (self, OBJECT_SET_SIZE, error, INT (log->id), INT (end));
}

bool ecfs_log_extend (EcfsCatalog *self, const EcfsObjectRow *log, const EcfsObjectRow *told, GError **error)
{
    for (guint i = 0; i < told->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (told->stripes, EcfsStripeRow, i);
        const EcfsStripeRow *known = ecfs_stripe_at (log, stripe->index);
        if (known != NULL && known->size != stripe->size && !set_stripe_end (self, log, known, stripe->size, error))
            return false;
    }
    return ecfs_log_set_end (self, log, told->size, error);
}

static bool check_open (EcfsCatalog *self, int64_t intent, GError **error)
{
    int64_t any;
    int found = QUERY_NUMBER (self, INTENT_IS, &any, error, INT (intent));
    return found == 1 || (found == 0 && ecfs_fail (error, EAGAIN, "the log was closed by who leads"));
}

bool ecfs_logged_insert (EcfsCatalog *self, uint64_t ino, uint64_t size, const EcfsLogged *logged,
                         EcfsExtent *ret_extent, GError **error)
{
    int found;
    g_autoptr (EcfsObjectRow) log = ecfs_object_find_bare (self, &logged->log, &found, error);
    if (found == 0 || (found == 1 && log->kind == ECFS_OBJECT_WHOLE))
        return ecfs_fail (error, EAGAIN, "the log or pack is no longer in the catalog");
    if (found == 1 && log->kind == ECFS_OBJECT_PACK && logged->end > log->size)
        return ecfs_fail (error, EINVAL, "what is to be in a pack is not within it");
    if (log == NULL || (logged->intent != 0 && !check_open (self, logged->intent, error)))
        return false;
    *ret_extent = (EcfsExtent){.length = size,
                               .object = log->id,
                               .object_offset = logged->offset,
                               .has_sha256 = true,
                               .generation = logged->generation};
    memcpy (ret_extent->sha256, logged->sha256, sizeof ret_extent->sha256);
    return EXEC (self, EXTENT_INSERT, error, INT (ino), INT (0), INT (size), INT (log->id), INT (logged->offset),
                 BLOB (logged->sha256, sizeof logged->sha256), INT (logged->generation)) &&
           ecfs_log_set_end (self, log, logged->end, error);
}

/* Both */

static GArray *list_ids (EcfsCatalog *self, EcfsQuery *query, GError **error)
{
    g_autoptr (GArray) ids = g_array_new (false, true, sizeof (int64_t));
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        int64_t id = ecfs_column_number (query, 0);
        g_array_append_val (ids, id);
    }
    return found < 0 ? NULL : g_steal_pointer (&ids);
}

static GArray *list_kind (EcfsCatalog *self, EcfsObjectKind kind, bool ended, int64_t after, size_t max, GError **error)
{
    autoquery *query =
        QUERY (self, OBJECTS_OF_KIND, error, INT (kind), INT (after), INT (MIN (max, INT_MAX)), INT (ended));
    return list_ids (self, query, error);
}

GArray *ecfs_catalog_objects_of_kind (EcfsCatalog *self, EcfsObjectKind kind, bool ended, int64_t after, size_t max,
                                      GError **error)
{
    return READ (self, list_kind (self, kind, ended, after, max, error));
}

static GArray *list_dead (EcfsCatalog *self, int64_t after, unsigned percent, size_t max, GError **error)
{
    autoquery *query = QUERY (self, OBJECTS_DEAD, error, INT (after), INT (percent), INT (MIN (max, INT_MAX)));
    return list_ids (self, query, error);
}

GArray *ecfs_catalog_dead_packs (EcfsCatalog *self, int64_t after, unsigned percent, size_t max, GError **error)
{
    return READ (self, list_dead (self, after, percent, max, error));
}

static GArray *list_small (EcfsCatalog *self, int64_t after, uint64_t bytes, unsigned n_files, size_t max,
                           GError **error)
{
    autoquery *query =
        QUERY (self, OBJECTS_SMALL, error, INT (after), INT (bytes), INT (MIN (max, INT_MAX)), INT (n_files));
    return list_ids (self, query, error);
}

GArray *ecfs_catalog_small_packs (EcfsCatalog *self, int64_t after, uint64_t bytes, unsigned n_files, size_t max,
                                  GError **error)
{
    return READ (self, list_small (self, after, bytes, n_files, max, error));
}

static GArray *list_sharers (EcfsCatalog *self, int64_t object, uint64_t after_ino, size_t max, GError **error)
{
    g_autoptr (GArray) sharers = g_array_new (false, true, sizeof (EcfsSharer));
    autoquery *query = QUERY (self, EXTENT_SHARERS, error, INT (object), INT (after_ino), INT (MIN (max, INT_MAX)));
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        EcfsSharer sharer = {.ino = (uint64_t) ecfs_column_number (query, 6)};
        if (!ecfs_extent_read (query, &sharer.extent)) {
            told (ecfs_bad_row (error, "extents", (int64_t) sharer.ino, "an extent is impossible"));
            return NULL;
        }
        g_array_append_val (sharers, sharer);
    }
    return found < 0 ? NULL : g_steal_pointer (&sharers);
}

GArray *ecfs_catalog_sharers (EcfsCatalog *self, int64_t object, uint64_t after_ino, size_t max, GError **error)
{
    return READ (self, list_sharers (self, object, after_ino, max, error));
}

static GArray *list_file_extents (EcfsCatalog *self, uint64_t after_ino, uint64_t after_offset, size_t max,
                                  GError **error)
{
    g_autoptr (GArray) extents = g_array_new (false, true, sizeof (EcfsFileExtent));
    autoquery *query = QUERY (self, EXTENT_ALL, error, INT (after_ino), INT (after_offset), INT (MIN (max, INT_MAX)));
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        EcfsFileExtent extent = {.object = ecfs_column_number (query, 3)};
        if (!ecfs_column_u64 (query, 0, INT64_MAX, &extent.ino) ||
            !ecfs_column_u64 (query, 1, INT64_MAX, &extent.offset) ||
            !ecfs_column_u64 (query, 2, INT64_MAX, &extent.length)) {
            told (ecfs_bad_row (error, "extents", (int64_t) extent.ino, "an extent is impossible"));
            return NULL;
        }
        g_array_append_val (extents, extent);
    }
    return found < 0 ? NULL : g_steal_pointer (&extents);
}

GArray *ecfs_catalog_file_extents (EcfsCatalog *self, uint64_t after_ino, uint64_t after_offset, size_t max,
                                   GError **error)
{
    return READ (self, list_file_extents (self, after_ino, after_offset, max, error));
}

bool ecfs_catalog_live_bytes (EcfsCatalog *self, int64_t object, uint64_t *ret_bytes, GError **error)
{
    int64_t bytes = 0;
    if (READ (self, QUERY_NUMBER (self, EXTENT_BYTES, &bytes, error, INT (object))) < 0)
        return false;
    *ret_bytes = (uint64_t) bytes;
    return true;
}

bool ecfs_catalog_object_files (EcfsCatalog *self, int64_t object, uint64_t *ret_n_files, GError **error)
{
    int64_t n_files = 0;
    if (READ (self, QUERY_NUMBER (self, EXTENT_FILES, &n_files, error, INT (object))) < 0)
        return false;
    *ret_n_files = (uint64_t) n_files;
    return true;
}

int ecfs_shared_drop_unused (EcfsCatalog *self, const EcfsUuid *object, GError **error)
{
    int found;
    int64_t any;
    g_autoptr (EcfsObjectRow) row = ecfs_object_find (self, object, &found, error);
    if (found != 1 || row->kind == ECFS_OBJECT_WHOLE)
        return found < 0 ? -1 : 0;
    found = QUERY_NUMBER (self, EXTENT_OF_OBJECT, &any, error, INT (row->id));
    if (found == 0)
        found = QUERY_NUMBER (self, INTENT_HAS, &any, error, UUID (object));
    if (found != 0)
        return found < 0 ? -1 : 0;
    ecfs_journal_put_unused (self->record, object);
    return ecfs_object_delete (self, row->id, error) ? 1 : -1;
}

static bool drop_unused (EcfsCatalog *self, const EcfsUuid *object, bool *ret_gone, GError **error)
{
    int dropped = ecfs_shared_drop_unused (self, object, error);
    *ret_gone = dropped == 1;
    return dropped >= 0;
}

bool ecfs_catalog_drop_unused (EcfsCatalog *self, const EcfsUuid *object, bool *ret_gone, GError **error)
{
    *ret_gone = false;
    return CHANGE (self, error, drop_unused (self, object, ret_gone, error));
}

/* Packs */

static bool begin_pack (EcfsCatalog *self, const EcfsObjectRow *pack, int64_t intent, GError **error)
{
    int64_t id;
    return ecfs_object_publish (self, pack, intent, true, &id, error);
}

bool ecfs_catalog_pack_begin (EcfsCatalog *self, const EcfsObjectRow *pack, int64_t intent, GError **error)
{
    return ecfs_object_check (pack, error) &&
           (pack->kind == ECFS_OBJECT_PACK || ecfs_fail (error, EINVAL, "no pack")) &&
           CHANGE_DURABLE (self, error, begin_pack (self, pack, intent, error));
}

/* 1: the file has it in the pack now; 0: its content is another; -1. */
static int move_one (EcfsCatalog *self, int64_t pack, int64_t object, const EcfsPackMove *move, GError **error)
{
    Inode inode;
    if (!EXEC_NOW (self, EXTENT_MOVE, error, INT (move->ino), INT (object), INT (move->from), INT (pack),
                   INT (move->to), INT (move->length), BLOB (move->sha256, sizeof move->sha256),
                   INT (move->generation)))
        return -1;
    if (ecfs_changes (self) == 0)
        return 0;
    return ecfs_inode_get (self, move->ino, &inode, error) && ecfs_content_count (self, &inode, error) &&
                   ecfs_inode_store (self, &inode, error)
               ? 1
               : -1;
}

/* What it had is nobody's; all that is left of it goes with the last. What goes out of a log did not die there. */
static bool release_moved (EcfsCatalog *self, const EcfsObjectRow *object, uint64_t bytes, GError **error)
{
    if (object->kind == ECFS_OBJECT_LOG)
        return true;
    const EcfsExtent extent = {.object = object->id, .length = bytes};
    g_autoptr (GArray) extents = g_array_new (FALSE, FALSE, sizeof extent);
    g_array_append_val (extents, extent);
    return ecfs_objects_release (self, extents, error);
}

static bool move_all (EcfsCatalog *self, const EcfsUuid *pack_uuid, const EcfsUuid *uuid, EcfsPackMove *moves,
                      size_t n_moves, GError **error)
{
    g_autofree EcfsJournalPlaced *places = g_new (EcfsJournalPlaced, n_moves + 1);
    g_autoptr (EcfsObjectRow) pack = find_kind (self, pack_uuid, ECFS_OBJECT_PACK, error);
    int found = -1;
    uint64_t bytes = 0;
    size_t n_places = 0;
    g_autoptr (EcfsObjectRow) object = pack == NULL ? NULL : ecfs_object_find (self, uuid, &found, error);
    for (size_t i = 0; i < n_moves; i++) /* it may be done anew */
        moves[i].moved = false;
    for (size_t i = 0; i < n_moves && found == 1; i++) {
        EcfsPackMove *move = &moves[i];
        if (move->length == 0 || move->to > pack->size || move->length > pack->size - move->to)
            return ecfs_fail (error, EINVAL, "what is to be moved is not within the pack");
        int moved = move_one (self, pack->id, object->id, move, error);
        if (moved < 0)
            return false;
        move->moved = moved == 1;
        if (moved == 0)
            continue;
        bytes += move->length;
        places[n_places++] = (EcfsJournalPlaced){.ino = move->ino, .from = move->from, .to = move->to};
    }
    if (found < 0 || n_places == 0)
        return found >= 0;
    if (!EXEC (self, OBJECT_SINCE, error, INT (pack->id), INT (object->id)))
        return false;
    ecfs_journal_put_packed (self->record, pack_uuid, uuid, places, n_places);
    for (size_t i = 0; i < n_moves; i++)
        if (moves[i].moved && !moves[i].is_known)
            ecfs_journal_put_content_sha256 (self->record, moves[i].ino, moves[i].generation, moves[i].sha256);
    return release_moved (self, object, bytes, error);
}

bool ecfs_catalog_pack_move (EcfsCatalog *self, const EcfsUuid *pack, const EcfsUuid *object, EcfsPackMove *moves,
                             size_t n_moves, GError **error)
{
    return CHANGE (self, error, move_all (self, pack, object, moves, n_moves, error));
}

bool ecfs_shared_restore (EcfsCatalog *self, const EcfsJournalItem *item, GError **error)
{
    g_autoptr (EcfsObjectRow) pack = find_kind (self, &item->uuid, ECFS_OBJECT_PACK, error);
    int found = -1;
    uint64_t bytes = 0;
    g_autoptr (EcfsObjectRow) object = pack == NULL ? NULL : ecfs_object_find (self, &item->other, &found, error);
    for (size_t i = 0; i < item->n_parts && found == 1; i++) {
        EcfsJournalPlaced placed = ecfs_journal_placed (item, i);
        g_autoptr (GArray) extents = ecfs_extents_list (self, placed.ino, error);
        if (extents == NULL)
            return false;
        const EcfsExtent *first = extents->len == 0 ? NULL : &g_array_index (extents, EcfsExtent, 0);
        if (first == NULL || first->offset != 0 || first->object != object->id || first->object_offset != placed.from)
            continue;
        if (placed.to > pack->size || first->length > pack->size - placed.to)
            return ecfs_fail (error, EBADMSG, "content is not within its pack");
        EcfsPackMove move = {.ino = placed.ino,
                             .length = first->length,
                             .from = placed.from,
                             .to = placed.to,
                             .generation = first->generation};
        memcpy (move.sha256, first->sha256, sizeof move.sha256); /* where there is none, it comes next */
        if (move_one (self, pack->id, object->id, &move, error) < 0)
            return false;
        bytes += move.length;
    }
    return found >= 0 && (bytes == 0 || (EXEC (self, OBJECT_SINCE, error, INT (pack->id), INT (object->id)) &&
                                         release_moved (self, object, bytes, error)));
}

static bool end_pack (EcfsCatalog *self, const EcfsUuid *pack, int64_t id, GError **error)
{
    g_auto (Intent) intent = {.stripes = NULL};
    int found = ecfs_intent_get (self, id, &intent, error);
    if (found < 0 || (found == 1 && !ecfs_intent_end (self, id, &intent, NULL, error)))
        return false;
    /* What did not come into it, as files were other by then, is dead from the beginning. */
    g_autoptr (EcfsObjectRow) row = ecfs_object_find (self, pack, &found, error);
    if (found < 0 || (found == 1 && !EXEC (self, OBJECT_SET_DEAD, error, INT (row->id))))
        return false;
    return ecfs_shared_drop_unused (self, pack, error) >= 0;
}

bool ecfs_catalog_pack_end (EcfsCatalog *self, const EcfsUuid *pack, int64_t intent, GError **error)
{
    return CHANGE (self, error, end_pack (self, pack, intent, error));
}
