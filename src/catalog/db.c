/* Statements: binding, running, noting for replay, reading columns that may hold anything. */
#include "catalog/numbers.h"
#include "util/bytes.h"

#include <time.h>

#define STATEMENT_SQL(id, sql, ...) sql,
static const char *const statement_sql[] = {ECFS_STATEMENTS (STATEMENT_SQL, STATEMENT_SQL)};
#undef STATEMENT_SQL

const char *ecfs_statement_sql (StatementId id)
{
    return statement_sql[id];
}

bool ecfs_bad_row (GError **error, const char *table, int64_t row, const char *what)
{
    return ecfs_fail (error, EBADMSG,
                      "catalog: table %s, row %" G_GINT64_FORMAT ": %s; the catalog is damaged: " ECFS_CATALOG_ADVICE,
                      table, row, what);
}

Value ecfs_value_text (const char *text)
{
    if (text == NULL)
        return (Value){.type = VALUE_NULL};
    return (Value){.type = VALUE_TEXT, .number = (int64_t) strlen (text), .bytes = text};
}

/* Statement u8, number of values u8, each: type u8, number u64, bytes. */
static size_t bytes_of (const Value *value)
{
    return value->type >= VALUE_BLOB ? (size_t) value->number : 0;
}

static void note (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values)
{
    const guint begin = self->redo->len;
    size_t size = 2 + 9 * n_values;
    for (size_t i = 0; i < n_values; i++)
        size += bytes_of (&values[i]);
    g_byte_array_set_size (self->redo, begin + (guint) size);
    uint8_t *to = self->redo->data + begin;
    *to++ = (uint8_t) id;
    *to++ = (uint8_t) n_values;
    for (size_t i = 0; i < n_values; i++) {
        *to = (uint8_t) values[i].type;
        ecfs_put_le (to + 1, (uint64_t) values[i].number, 8);
        to += 9;
        if (bytes_of (&values[i]) > 0)
            memcpy (to, values[i].bytes, bytes_of (&values[i]));
        to += bytes_of (&values[i]);
    }
}

#define MAX_VALUES   17
#define AHEAD_MOST   16
#define AHEAD_VALUES 3
G_STATIC_ASSERT (N_STATEMENTS < 256);

static bool run (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values, bool now, GError **error)
{
    const DbOps *ops = self->db->ops;
    return ops->run (self->db, id, values, n_values, error) &&
           (!now || ops->await == NULL || ops->await (self->db, error));
}

static bool exec (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values, bool now, GError **error)
{
    if (self->detached)
        return ecfs_fail_detached (self, error);
    /* It was given up in the middle of an operation that goes on all the same. */
    if (self->is_member && (!self->in_txn || !self->db->ops->in_transaction (self->db)))
        return ecfs_fail (error, EIO, "catalog %s: the connection was lost", self->path);
    if (!run (self, id, values, n_values, now, error) &&
        (!ecfs_revive (self, error) || !run (self, id, values, n_values, now, error)))
        return false;
    note (self, id, values, n_values);
    return true;
}

bool ecfs_exec (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values, GError **error)
{
    return exec (self, id, values, n_values, false, error);
}

bool ecfs_exec_now (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values, GError **error)
{
    return exec (self, id, values, n_values, true, error);
}

bool ecfs_replay (EcfsCatalog *self, guint begin, guint end, GError **error)
{
    EcfsCursor cursor = {.at = self->redo->data + begin, .left = end - begin};
    while (cursor.left > 0) {
        StatementId id = (StatementId) ecfs_cursor_le (&cursor, 1);
        size_t n_values = ecfs_cursor_le (&cursor, 1);
        Value values[MAX_VALUES];
        g_assert (n_values <= MAX_VALUES);
        for (size_t i = 0; i < n_values; i++) {
            values[i].type = (ValueType) ecfs_cursor_le (&cursor, 1);
            values[i].number = (int64_t) ecfs_cursor_le (&cursor, 8);
            values[i].bytes =
                values[i].type >= VALUE_BLOB ? ecfs_cursor_bytes (&cursor, (size_t) values[i].number) : NULL;
        }
        if (!self->db->ops->run (self->db, id, values, n_values, error))
            return false;
    }
    return self->db->ops->await == NULL || self->db->ops->await (self->db, error);
}

bool ecfs_next_id (EcfsCatalog *self, const char *table, int64_t *ret_id, GError **error)
{
    *ret_id = strcmp (table, ECFS_IDS_STAGING) == 0 ? ecfs_numbers_staging (self) : 0;
    if (*ret_id != 0)
        return true;
    int found = QUERY_NUMBER (self, NEXT_ID, ret_id, error, TEXT (table));
    if (found == 0) /* SQLite knows of none before the first */
        *ret_id = 1;
    return found >= 0 &&
           (*ret_id > 0 || ecfs_fail (error, EBADMSG, "catalog %s: %s has no numbers left", self->path, table));
}

uint64_t ecfs_changes (EcfsCatalog *self)
{
    return self->db->ops->changes (self->db);
}

int64_t ecfs_inserted (EcfsCatalog *self)
{
    return self->db->ops->inserted (self->db);
}

bool ecfs_control (EcfsCatalog *self, StatementId id, const char *what, GError **error)
{
    return self->db->ops->control (self->db, id, what, error) ||
           (ecfs_revive (self, error) && self->db->ops->control (self->db, id, what, error));
}

/* Set before the catalog is locked, and used up when it is. */
static _Thread_local struct {
    StatementId id;
    Value values[AHEAD_VALUES];
    size_t n_values;
} ahead[AHEAD_MOST];
static _Thread_local size_t n_ahead;
static _Thread_local size_t n_taken; /* what was used up last, and is still there */

void ecfs_ahead (StatementId id, const Value *values, size_t n_values)
{
    if (n_ahead == AHEAD_MOST || n_values > AHEAD_VALUES)
        return;
    ahead[n_ahead].id = id;
    for (size_t i = 0; i < n_values; i++)
        ahead[n_ahead].values[i] = values[i];
    ahead[n_ahead++].n_values = n_values;
}

static bool is_staging_id (StatementId id, const Value *values)
{
    return id == STMT_NEXT_ID && strcmp (values[0].bytes, ECFS_IDS_STAGING) == 0;
}

/* The last number of a table is another whenever anybody adds a row, but where there is a range. */
bool ecfs_ahead_has_turn (const EcfsCatalog *self)
{
    bool has_turn = false;
    for (size_t i = 0; i < n_ahead; i++)
        has_turn = has_turn || ahead[i].id == STMT_COUNTERS_GET ||
                   (ahead[i].id == STMT_NEXT_ID && !is_staging_id (ahead[i].id, ahead[i].values));
    return has_turn && self->is_member;
}

void ecfs_ahead_take (EcfsCatalog *self)
{
    for (size_t i = 0; self->db->ops->ahead != NULL && i < n_ahead; i++)
        if (!is_staging_id (ahead[i].id, ahead[i].values) || !ecfs_numbers_have_staging (self))
            self->db->ops->ahead (self->db, ahead[i].id, ahead[i].values, ahead[i].n_values);
    n_taken = n_ahead;
    n_ahead = 0;
}

void ecfs_ahead_again (void)
{
    n_ahead = n_taken;
}

EcfsQuery *ecfs_query (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values, GError **error)
{
    if (self->detached) {
        told (ecfs_fail_detached (self, error));
        return NULL;
    }
    EcfsQuery *query = self->db->ops->query (self->db, id, values, n_values, error);
    if (query == NULL && ecfs_revive (self, error))
        query = self->db->ops->query (self->db, id, values, n_values, error);
    self->has_read = self->has_read || query != NULL;
    return query;
}

int ecfs_query_step (EcfsCatalog *self, EcfsQuery *query, GError **error)
{
    (void) self; /* its lock is held */
    return query == NULL ? -1 : query->ops->step (query, error);
}

void ecfs_query_end (EcfsQuery **query)
{
    if (*query != NULL)
        (*query)->ops->end (*query);
    *query = NULL;
}

int ecfs_query_number (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values, int64_t *ret_number,
                       GError **error)
{
    autoquery *query = ecfs_query (self, id, values, n_values, error);
    int found = ecfs_query_step (self, query, error);
    if (found == 1)
        *ret_number = ecfs_column_number (query, 0);
    return found;
}

bool ecfs_column_u64 (EcfsQuery *query, int column, uint64_t max, uint64_t *ret_value)
{
    int64_t value;
    if (!query->ops->is_number (query, column, &value) || value < 0 || (uint64_t) value > max)
        return false;
    *ret_value = (uint64_t) value;
    return true;
}

bool ecfs_column_bytes (EcfsQuery *query, int column, void *to, size_t size)
{
    const void *bytes = ecfs_column_blob (query, column);
    if (bytes == NULL || ecfs_column_size (query, column) != size)
        return false;
    memcpy (to, bytes, size);
    return true;
}

int64_t ecfs_real_ns (void)
{
    struct timespec now;
    (void) clock_gettime (CLOCK_REALTIME, &now); /* cannot fail with this clock */
    return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}
