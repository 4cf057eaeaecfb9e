#include "catalog/restore_priv.h"

#include <sys/stat.h>

#define BATCH 256 /* records of one operation */

static void turn_fresh (EcfsRestore *self, uint64_t ino)
{
    if (!g_hash_table_remove (self->fresh, &ino))
        (void) g_hash_table_add (self->fresh, g_memdup2 (&ino, sizeof ino));
}

void ecfs_restore_set_fresh (EcfsRestore *self, uint64_t ino, bool fresh)
{
    if (g_hash_table_contains (self->fresh, &ino) == fresh)
        return;
    turn_fresh (self, ino);
    g_array_append_val (self->moved, ino);
}

/* A snapshot has no time of its own for what it tells: only records that follow another say when. */
void ecfs_restore_note_emptied (EcfsRestore *self, uint64_t ino)
{
    EcfsCursor cursor;
    EcfsJournalItem item = {.type = ECFS_JOURNAL_INODE};
    int result = ecfs_journal_open (&cursor, self->row->record->data, self->row->record->len);
    while (result >= 0 && (result = ecfs_journal_next (&cursor, &item)) == 1 && item.type != ECFS_JOURNAL_PREVIOUS)
        ;
    if (result == 1)
        (void) g_hash_table_insert (self->emptied, g_memdup2 (&ino, sizeof ino),
                                    g_memdup2 (&self->row->sequence, sizeof self->row->sequence));
}

/* What was read of the catalog may not be so any more. */
void ecfs_restore_forget_read (EcfsRestore *self)
{
    self->directory = 0;
    g_clear_pointer (&self->named, ecfs_object_row_free);
}

bool ecfs_restore_finds (EcfsRestore *self, GError **error)
{
    self->wants_indexes = self->lacks_indexes;
    return !self->lacks_indexes || ecfs_fail (error, EAGAIN, "it has no indexes yet");
}

/* An operation has ended; what became of the catalog is what becomes of this. */
static bool settle (EcfsRestore *self, bool kept)
{
    if (!kept)
        ecfs_restore_forget_read (self);
    for (guint i = self->moved->len; !kept && i-- > 0;)
        turn_fresh (self, g_array_index (self->moved, uint64_t, i));
    g_array_set_size (self->moved, 0);
    return kept;
}

EcfsRestore *ecfs_restore_new (EcfsCatalog *catalog)
{
    EcfsRestore *self = g_new (EcfsRestore, 1);
    *self = (EcfsRestore){.catalog = catalog,
                          .fresh = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL),
                          .moved = g_array_new (FALSE, FALSE, sizeof (uint64_t)),
                          .last_ino = ECFS_ROOT_INO,
                          .emptied = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, g_free),
                          .stands = true};
    catalog->is_restored = true;
    return self;
}

void ecfs_restore_free (EcfsRestore *self)
{
    if (self == NULL)
        return;
    g_hash_table_unref (self->fresh);
    g_hash_table_unref (self->emptied);
    g_array_unref (self->moved);
    ecfs_restore_forget_read (self);
    g_free (self);
}

/* Records */

/* A key is of the object that follows it, and of nothing else. */
static bool fits_seal (const EcfsRestore *self, const EcfsJournalItem *item, GError **error)
{
    bool is_next = item->type == ECFS_JOURNAL_OBJECT && ecfs_uuid_equal (&item->uuid, &self->sealed);
    return self->seal.kind == ECFS_SEAL_NONE || is_next || ecfs_restore_refuse (error, "a key is of no object");
}

/* Takes the next item, if it is such a one of this inode. */
static bool take_next (EcfsCursor *cursor, EcfsJournalType type, uint64_t ino, EcfsJournalItem *ret_item)
{
    EcfsCursor ahead = *cursor;
    if (ecfs_journal_next (&ahead, ret_item) != 1 || ret_item->type != type || ret_item->attr.ino != ino)
        return false;
    *cursor = ahead;
    return true;
}

/* @item, and what belongs to it of those behind it. */
static bool restore_next (EcfsRestore *self, EcfsCursor *cursor, const EcfsJournalItem *item, GError **error)
{
    EcfsJournalItem content, digest;
    uint64_t ino = item->attr.ino;
    if (item->type != ECFS_JOURNAL_INODE || self->exchanges_only || !S_ISREG (item->attr.mode) ||
        ino <= self->last_ino || !take_next (cursor, ECFS_JOURNAL_CONTENT, ino, &content))
        return ecfs_restore_item (self, item, self->row->sequence, error);
    bool has_digest = take_next (cursor, ECFS_JOURNAL_CONTENT_SHA256, ino, &digest);
    return ecfs_restore_file (self, item, &content, has_digest ? &digest : NULL, error);
}

static bool restore_record (EcfsRestore *self, const EcfsJournalRow *row, GError **error)
{
    EcfsCursor cursor;
    EcfsJournalItem item;
    int result = ecfs_journal_open (&cursor, row->record->data, row->record->len);
    self->row = row;
    self->seal = (EcfsSeal){.kind = ECFS_SEAL_NONE};
    while (result >= 0 && (result = ecfs_journal_next (&cursor, &item)) == 1)
        if (!fits_seal (self, &item, error) || !restore_next (self, &cursor, &item, error))
            return false;
    g_byte_array_set_size (self->catalog->record, 0); /* what was restored is in the journal already */
    if (result == 0 && self->seal.kind != ECFS_SEAL_NONE)
        return ecfs_restore_refuse (error, "a key is of no object");
    return result == 0 || ecfs_restore_refuse (error, result == -ENOTSUP ? "a later ecfs wrote it" : "it is damaged");
}

/* The record alone: what fails is undone and nothing else. */
static bool restore_alone (EcfsRestore *self, const EcfsJournalRow *row, GError **error)
{
    return settle (self, CHANGE (self->catalog, error, restore_record (self, row, error)));
}

static bool restore_batch (EcfsRestore *self, const GPtrArray *rows, guint from, guint to, GError **error)
{
    for (guint i = from; i < to; i++)
        if (!restore_record (self, g_ptr_array_index (rows, i), error))
            return false;
    return true;
}

/* Where the journal stands behind a record: a snapshot says it, and other records are summed. Those of who did not sum
 * them say nothing. */
static void note_sum (EcfsRestore *self, const EcfsJournalRow *row)
{
    EcfsCursor cursor;
    EcfsJournalItem item;
    self->stands = false;
    if (ecfs_journal_open (&cursor, row->record->data, row->record->len) != 0)
        return;
    while (ecfs_journal_next (&cursor, &item) == 1) {
        if (item.type == ECFS_JOURNAL_PREVIOUS) {
            ecfs_journal_sum (row->sequence, row->time_ns, row->record->data, row->record->len, self->sum);
            self->stands = true;
        } else if (item.type == ECFS_JOURNAL_STANDS) {
            memcpy (self->sum, item.sum, sizeof self->sum);
            self->stands = true;
        }
    }
}

const uint8_t *ecfs_restore_stands (const EcfsRestore *self)
{
    return self->stands ? self->sum : NULL;
}

static bool drop_indexes (EcfsCatalog *catalog, GError **error)
{
    return ecfs_exec (catalog, STMT_INDEX_DROP_POSITIONS, NULL, 0, error) &&
           ecfs_exec (catalog, STMT_INDEX_DROP_INOS, NULL, 0, error) &&
           ecfs_exec (catalog, STMT_INDEX_DROP_OBJECTS, NULL, 0, error);
}

static bool set_memory (EcfsCatalog *catalog, bool on_disk, GError **error)
{
    ecfs_mutex_lock (&catalog->lock);
    bool good = catalog->db->ops->set_memory (catalog->db, on_disk, error);
    ecfs_mutex_unlock (&catalog->lock);
    return good;
}

static bool make_each (EcfsCatalog *self, GError **error)
{
    return CHANGE (self, error, ecfs_exec (self, STMT_INDEX_MAKE_POSITIONS, NULL, 0, error)) &&
           CHANGE (self, error, ecfs_exec (self, STMT_INDEX_MAKE_INOS, NULL, 0, error)) &&
           CHANGE (self, error, ecfs_exec (self, STMT_INDEX_MAKE_OBJECTS, NULL, 0, error));
}

/* In as much memory for many files as for few: what is sorted goes to a temporary file, and pages to the log. Where
 * there is no place for such a file, in memory all the same. */
static bool make_indexes (EcfsCatalog *catalog, GError **error)
{
    GError *why = NULL;
    bool good = set_memory (catalog, true, error);
    bool made = good && make_each (catalog, &why);
    good = good && set_memory (catalog, false, made ? error : NULL);
    if (why == NULL)
        return good;
    if (!good) {
        g_propagate_error (error, why);
        return false;
    }
    g_info ("%s; indexes are made in memory", why->message);
    g_error_free (why);
    return make_each (catalog, error);
}

bool ecfs_restore_begin_snapshot (EcfsRestore *self, GError **error)
{
    self->lacks_indexes = CHANGE (self->catalog, error, drop_indexes (self->catalog, error));
    return self->lacks_indexes;
}

bool ecfs_restore_end_snapshot (EcfsRestore *self, GError **error)
{
    if (self->lacks_indexes && !make_indexes (self->catalog, error))
        return false;
    self->lacks_indexes = self->wants_indexes = false;
    return true;
}

static bool restore_all (EcfsRestore *self, const GPtrArray *rows, uint64_t *n_refused, GError **error)
{
    for (guint from = 0; from < rows->len; from += BATCH) {
        guint to = MIN (from + BATCH, rows->len);
        bool done = settle (self, CHANGE (self->catalog, NULL, restore_batch (self, rows, from, to, NULL)));
        if (!done && self->wants_indexes) {
            if (!ecfs_restore_end_snapshot (self, error))
                return false;
            done = settle (self, CHANGE (self->catalog, NULL, restore_batch (self, rows, from, to, NULL)));
        }
        if (done)
            continue;
        for (guint i = from; i < to; i++) {
            const EcfsJournalRow *row = g_ptr_array_index (rows, i);
            g_autoptr (GError) why = NULL;
            if (restore_alone (self, row, &why))
                continue;
            if (self->wants_indexes) { /* not for what it says is it left out */
                g_clear_error (&why);
                if (!ecfs_restore_end_snapshot (self, error))
                    return false;
                if (restore_alone (self, row, &why))
                    continue;
            }
            if (ecfs_errno (why) == EROFS || ecfs_errno (why) == EIO || ecfs_errno (why) == ENOSPC) {
                g_propagate_error (error, g_steal_pointer (&why));
                return false;
            }
            g_info ("record %" PRIu64 " is left out: %s", row->sequence, why != NULL ? why->message : "impossible");
            ++*n_refused;
        }
    }
    if (rows->len > 0)
        note_sum (self, g_ptr_array_index (rows, rows->len - 1));
    return true;
}

bool ecfs_restore_records (EcfsRestore *self, const GPtrArray *rows, uint64_t *n_refused, GError **error)
{
    self->exchanges_only = false;
    return restore_all (self, rows, n_refused, error);
}

bool ecfs_restore_exchanges (EcfsRestore *self, const GPtrArray *rows, uint64_t *n_refused, GError **error)
{
    self->exchanges_only = true;
    return restore_all (self, rows, n_refused, error);
}

void ecfs_restore_forget_stands (EcfsRestore *self)
{
    self->stands = false;
}

bool ecfs_restore_was_open (EcfsRestore *self, const EcfsUuid *object, bool *ret_open, GError **error)
{
    int64_t one;
    int found = READ (self->catalog, QUERY_NUMBER (self->catalog, INTENT_HAS, &one, error, UUID (object)));
    *ret_open = found == 1;
    return found >= 0;
}

void ecfs_restore_move (EcfsRestore *self, EcfsCatalog *catalog)
{
    self->catalog = catalog;
    catalog->is_restored = true;
    catalog->ranges.connection = 0; /* records say which numbers are given */
}

static bool delete_deletions (EcfsCatalog *catalog, GError **error)
{
    catalog->counters.totals.n_deletions = 0;
    return EXEC (catalog, DELETION_DELETE_ALL, error, INT (0)) && EXEC (catalog, PAST_DELETE_ALL, error, INT (0));
}

bool ecfs_restore_forget_deletions (EcfsRestore *self, GError **error)
{
    g_hash_table_remove_all (self->emptied);
    return CHANGE (self->catalog, error, delete_deletions (self->catalog, error));
}

/* Ending */

/* Takes all names of an inode, and it. */
static bool remove_inode (EcfsCatalog *catalog, uint64_t ino, GError **error)
{
    Inode inode, dir;
    int64_t now_ns = ecfs_real_ns ();
    g_autoptr (GError) why = NULL;
    if (!ecfs_inode_get (catalog, ino, &inode, &why)) {
        if (ecfs_errno (why) == ENOENT) /* its record was refused */
            return true;
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    }
    uint64_t parent;
    char *name = NULL;
    int found;
    while ((found = ecfs_entry_of (catalog, ino, &parent, &name, error)) == 1) {
        g_autofree char *own = g_steal_pointer (&name);
        ecfs_journal_put_name_removed (catalog->record, parent, own);
        if (!EXEC (catalog, ENTRY_DELETE, error, INT (parent), NAME (own)) ||
            !ecfs_inode_get_dir (catalog, parent, &dir, error) ||
            !ecfs_inode_touch_dir (catalog, &dir, 0, now_ns, error))
            return false;
    }
    inode.attr.nlink = 0;
    return found == 0 && ecfs_inode_touch (catalog, &inode, true, error) && ecfs_inode_drop (catalog, ino, error);
}

static bool begin_epoch (const EcfsRestore *self, uint32_t epoch, uint64_t sequence, GError **error)
{
    EcfsCatalog *catalog = self->catalog;
    if (!EXEC (catalog, JOURNAL_DROP_ALL, error, INT (0)))
        return false;
    catalog->counters.totals.journal_records = 0;
    catalog->counters.sequence = catalog->summed = sequence;
    memset (catalog->sum, 0, sizeof catalog->sum);
    if (self->stands)
        memcpy (catalog->sum, self->sum, sizeof catalog->sum);
    catalog->epoch = epoch;
    ecfs_journal_put_epoch (catalog->record, epoch);
    return EXEC (catalog, EPOCH_SET, error, INT (epoch));
}

bool ecfs_restore_finish (EcfsRestore *self, uint32_t epoch, uint64_t sequence, GError **error)
{
    if (sequence >= INT64_MAX)
        return ecfs_fail (error, EBADMSG, "the journal's last number is impossible");
    return CHANGE_DURABLE (self->catalog, error, begin_epoch (self, epoch, sequence, error));
}

bool ecfs_restore_is_unfinished (const EcfsRestore *self, uint64_t ino)
{
    return ino <= INT64_MAX && g_hash_table_contains (self->fresh, &(int64_t){(int64_t) ino});
}

uint64_t ecfs_restore_emptied (const EcfsRestore *self, uint64_t ino)
{
    const uint64_t *sequence = g_hash_table_lookup (self->emptied, &ino);
    return sequence == NULL ? 0 : *sequence;
}

/* What was to be deleted stays: an orphan, which only fsck --prune removes. */
static bool forget_deletions (EcfsCatalog *catalog, GError **error)
{
    /* Journals do not tell what nobody has of a pack any more, nor since when there is what an object has. */
    return delete_deletions (catalog, error) && EXEC (catalog, OBJECTS_SET_DEAD, error) &&
           EXEC (catalog, OBJECTS_SINCE_EVER, error);
}

bool ecfs_restore_end (EcfsRestore *self, uint64_t *ret_n_unfinished, GError **error)
{
    GHashTableIter iter;
    gpointer key;
    g_hash_table_iter_init (&iter, self->fresh);
    *ret_n_unfinished = 0;
    while (g_hash_table_iter_next (&iter, &key, NULL)) {
        if (!CHANGE (self->catalog, error, remove_inode (self->catalog, *(uint64_t *) key, error)))
            return false;
        ++*ret_n_unfinished;
    }
    return CHANGE (self->catalog, error, forget_deletions (self->catalog, error)) &&
           ecfs_catalog_barrier (self->catalog, error);
}
