/* Staging rows: files whose bytes are, or also are, in the staging area. */
#include "catalog/content_priv.h"

#include <sys/stat.h>

bool ecfs_staging_insert (EcfsCatalog *self, uint64_t ino, bool fresh, int64_t *ret_staging, GError **error)
{
    int64_t id;
    if (!ecfs_next_id (self, ECFS_IDS_STAGING, &id, error) ||
        !EXEC (self, STAGING_INSERT, error, INT (id), INT (ino), INT (fresh), INT (ecfs_real_ns ())))
        return false;
    self->counters.totals.n_staged++;
    if (ret_staging != NULL)
        *ret_staging = id;
    return true;
}

/* Only one member at a time has a row of a file, so that none takes the place of what it did not know: also one whose
 * bytes are stored may have writers, who go on with those. */
static bool take_from_others (EcfsCatalog *self, uint64_t ino, GError **error)
{
    if (!self->is_member)
        return true;
    autoquery *query = QUERY (self, STAGING_ELSEWHERE, error, INT (ino));
    int found = ecfs_query_step (self, query, error);
    if (found <= 0)
        return found == 0;
    if (ecfs_column_number (query, 1) != 0)
        return ecfs_fail (error, EBUSY, "%s writes it, or has not stored yet what was written",
                          ecfs_column_text (query, 0));
    if (!EXEC_NOW (self, STAGING_DELETE_ELSEWHERE, error, INT (ino)))
        return false;
    self->counters.totals.n_staged -= ecfs_changes (self);
    return true;
}

/* What takes the place of a first content that is not stored is one too. */
static bool add (EcfsCatalog *self, uint64_t ino, int64_t *ret_staging, GError **error)
{
    Inode inode;
    if (!ecfs_inode_get (self, ino, &inode, error))
        return false;
    if (!S_ISREG (inode.attr.mode))
        return ecfs_fail (error, EINVAL, "inode %" PRIu64 " is not a regular file", ino);
    int64_t one;
    int fresh = QUERY_NUMBER (self, STAGING_FRESH, &one, error, INT (ino));
    return fresh >= 0 && take_from_others (self, ino, error) &&
           ecfs_staging_insert (self, ino, fresh == 1, ret_staging, error);
}

bool ecfs_catalog_staging_add (EcfsCatalog *self, uint64_t ino, int64_t *ret_staging, GError **error)
{
    AHEAD (INODE_GET, INT (ino));
    AHEAD (STAGING_FRESH, INT (ino));
    AHEAD (STAGING_ELSEWHERE, INT (ino));
    AHEAD_ID (ECFS_IDS_STAGING);
    return CHANGE_CHECKED (self, error, add (self, ino, ret_staging, error));
}

bool ecfs_catalog_is_staged (EcfsCatalog *self, uint64_t ino, bool *ret_staged, GError **error)
{
    int found = READ (self, ecfs_staging_unstored (self, ino, error));
    *ret_staged = found > 0;
    return found >= 0;
}

int ecfs_staging_queued (EcfsCatalog *self, uint64_t ino, GError **error)
{
    int64_t one;
    return QUERY_NUMBER (self, STAGING_QUEUED, &one, error, INT (ino));
}

int ecfs_staging_unstored (EcfsCatalog *self, uint64_t ino, GError **error)
{
    int64_t one;
    return QUERY_NUMBER (self, STAGING_UNSTORED, &one, error, INT (ino));
}

void ecfs_staging_row_free (EcfsStagingRow *row)
{
    if (row == NULL)
        return;
    g_free (row->error);
    g_free (row);
}

static bool read_row (EcfsQuery *query, EcfsStagingRow *ret_row, GError **error)
{
    int64_t id = ecfs_column_number (query, 0);
    uint64_t state, fresh;
    if (!ecfs_column_u64 (query, 1, INT64_MAX, &ret_row->ino) ||
        !ecfs_column_u64 (query, 2, ECFS_STAGING_STORED, &state) || !ecfs_column_u64 (query, 3, 1, &fresh) ||
        !ecfs_column_u64 (query, 4, INT64_MAX, &ret_row->size))
        return ecfs_bad_row (error, "staging", id, "a number is impossible");
    ret_row->id = id;
    ret_row->state = (EcfsStagingState) state;
    ret_row->fresh = fresh != 0;
    ret_row->since_ns = ecfs_column_number (query, 5);
    ret_row->error = g_strdup (ecfs_column_text (query, 6));
    return true;
}

/* 1; 0: there is no such row; -1. ret_row->error is not set. */
static int get (EcfsCatalog *self, int64_t id, EcfsStagingRow *ret_row, GError **error)
{
    autoquery *query = QUERY (self, STAGING_GET, error, INT (id));
    int found = ecfs_query_step (self, query, error);
    if (found != 1)
        return found;
    if (!read_row (query, ret_row, error))
        return -1;
    g_clear_pointer (&ret_row->error, g_free);
    return 1;
}

/* What the inode shows of staged bytes is nobody's business but this machine's: not journalled. */
static bool show_staged (EcfsCatalog *self, uint64_t ino, uint64_t size, const int64_t *mtime_ns, GError **error)
{
    Inode inode;
    if (!ecfs_inode_get (self, ino, &inode, error))
        return false;
    inode.attr.size = size;
    if (mtime_ns != NULL) {
        ecfs_inode_keep_mtime (&inode);
        inode.attr.mtime_ns = *mtime_ns;
    }
    return ecfs_inode_store (self, &inode, error);
}

static bool show_committed (EcfsCatalog *self, uint64_t ino, GError **error)
{
    Inode inode;
    if (!ecfs_inode_get (self, ino, &inode, error))
        return false;
    inode.attr = ecfs_inode_committed (&inode);
    inode.mtime_is_staged = false;
    return ecfs_inode_store (self, &inode, error);
}

/* Bytes that were staged before and stay only until others take their place. */
static bool delete_older (EcfsCatalog *self, uint64_t ino, int64_t id, GError **error)
{
    int64_t n = 0;
    if (QUERY_NUMBER (self, STAGING_OLDER, &n, error, INT (ino), INT (id)) < 0)
        return false;
    self->counters.totals.n_staged -= (uint64_t) n;
    return n == 0 || EXEC (self, STAGING_DELETE_OLDER, error, INT (ino), INT (id));
}

static bool set (EcfsCatalog *self, int64_t id, EcfsStagingState state, uint64_t size, int64_t mtime_ns,
                 const char *failure, GError **error)
{
    EcfsStagingRow row;
    if (size > INT64_MAX || state > ECFS_STAGING_STORED)
        return ecfs_fail (error, EINVAL, "a staging row cannot have state %d and %" PRIu64 " bytes", state, size);
    int found = get (self, id, &row, error);
    if (found == 0)
        return ecfs_fail (error, ENOENT, "staging row %" PRId64 " does not exist", id);
    if (found < 0)
        return false;
    int64_t since_ns = state == row.state ? row.since_ns : ecfs_real_ns ();
    return EXEC (self, STAGING_UPDATE, error, INT (id), INT (state), INT (size), INT (since_ns), TEXT (failure)) &&
           (state != ECFS_STAGING_QUEUED || delete_older (self, row.ino, id, error)) &&
           (state == ECFS_STAGING_STORED ||
            show_staged (self, row.ino, size, state == ECFS_STAGING_QUEUED ? &mtime_ns : NULL, error));
}

bool ecfs_catalog_staging_set (EcfsCatalog *self, int64_t staging, EcfsStagingState state, uint64_t size,
                               int64_t mtime_ns, const char *failure, GError **error)
{
    return CHANGE_CHECKED (self, error, set (self, staging, state, size, mtime_ns, failure, error));
}

/* Of a row that is there. */
static bool delete_row (EcfsCatalog *self, int64_t id, GError **error)
{
    self->counters.totals.n_staged--;
    return EXEC (self, STAGING_DELETE, error, INT (id));
}

/* Without staged bytes the inode shows its committed size again. */
static bool drop_row (EcfsCatalog *self, const EcfsStagingRow *row, GError **error)
{
    if (!delete_row (self, row->id, error))
        return false;
    int others = row->state == ECFS_STAGING_STORED ? 1 : ecfs_staging_unstored (self, row->ino, error);
    return others == 1 || (others == 0 && show_committed (self, row->ino, error));
}

bool ecfs_staging_find_rows (EcfsCatalog *self, const int64_t *ids, size_t n, StagingRows *ret_rows, GError **error)
{
    g_assert (n <= G_N_ELEMENTS (ret_rows->row));
    ret_rows->n = n;
    for (size_t i = 0; i < n; i++)
        if ((ret_rows->found[i] = get (self, ids[i], &ret_rows->row[i], error)) < 0)
            return false;
    return true;
}

bool ecfs_staging_drop_rows (EcfsCatalog *self, const StagingRows *rows, GError **error)
{
    for (size_t i = 0; i < rows->n; i++)
        if (rows->found[i] == 1 && !drop_row (self, &rows->row[i], error))
            return false;
    return true;
}

static bool remove_rows (EcfsCatalog *self, const int64_t *ids, size_t n, GError **error)
{
    StagingRows rows;
    return ecfs_staging_find_rows (self, ids, n, &rows, error) && ecfs_staging_drop_rows (self, &rows, error);
}

void ecfs_staging_ahead (const int64_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        AHEAD (STAGING_GET, INT (ids[i]));
}

bool ecfs_catalog_staging_remove (EcfsCatalog *self, int64_t staging, GError **error)
{
    return ecfs_catalog_staging_remove_all (self, &staging, 1, error);
}

bool ecfs_catalog_staging_remove_all (EcfsCatalog *self, const int64_t *stagings, size_t n, GError **error)
{
    for (size_t i = 0, now; i < n; i += now) {
        now = MIN (n - i, STAGING_ROWS);
        ecfs_staging_ahead (stagings + i, now);
        if (!CHANGE_CHECKED (self, error, remove_rows (self, stagings + i, now, error)))
            return false;
    }
    return true;
}

bool ecfs_staging_published (EcfsCatalog *self, int64_t staging, uint64_t ino, bool full, GError **error)
{
    EcfsStagingRow row;
    int found = get (self, staging, &row, error);
    if (found < 0)
        return false;
    if (found == 0 || row.ino != ino)
        return ecfs_fail (error, ESTALE, "staging row %" PRId64 " of inode %" PRIu64 " is gone", staging, ino);
    if (!delete_older (self, ino, staging, error) || !EXEC (self, STAGING_NOT_FRESH, error, INT (ino)))
        return false;             /* newer ones may have begun before the file had content */
    if (full && !self->is_member) /* else nobody else may write it before this one leaves it */
        return delete_row (self, staging, error);
    return EXEC (self, STAGING_UPDATE, error, INT (staging), INT (ECFS_STAGING_STORED), INT (row.size),
                 INT (ecfs_real_ns ()), TEXT (NULL));
}

bool ecfs_staging_drop_inode (EcfsCatalog *self, uint64_t ino, GError **error)
{
    if (!EXEC_NOW (self, STAGING_DELETE_INO, error, INT (ino)))
        return false;
    self->counters.totals.n_staged -= ecfs_changes (self);
    return true;
}

static GPtrArray *list (EcfsCatalog *self, GError **error)
{
    g_autoptr (GPtrArray) rows = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_staging_row_free);
    autoquery *query = ecfs_query (self, STMT_STAGING_LIST, NULL, 0, error);
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        EcfsStagingRow *row = g_new0 (EcfsStagingRow, 1);
        g_ptr_array_add (rows, row);
        if (!read_row (query, row, error))
            return NULL;
    }
    return found < 0 ? NULL : g_steal_pointer (&rows);
}

GPtrArray *ecfs_catalog_staging_list (EcfsCatalog *self, GError **error)
{
    return READ (self, list (self, error));
}
