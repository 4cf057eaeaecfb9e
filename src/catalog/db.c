/* Statements: binding, running, noting for replay, reading columns that may hold anything. */
#include "catalog/db.h"
#include "catalog/schema.h"
#include "util/bytes.h"

#include <time.h>

#define STATEMENT_SQL(id, sql) sql,
static const char *const statement_sql[] = {ECFS_STATEMENTS (STATEMENT_SQL)};
#undef STATEMENT_SQL

int ecfs_db_errno (int rc)
{
    switch (rc & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_CONSTRAINT: /* operations look before they write: the rows contradict each other */
    case SQLITE_MISMATCH:
    case SQLITE_ERROR: /* a statement does not fit the tables */
        return EBADMSG;
    case SQLITE_FULL:
        return ENOSPC;
    case SQLITE_NOMEM:
        return ENOMEM;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return EBUSY;
    case SQLITE_READONLY:
        return EROFS;
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return EACCES;
    case SQLITE_TOOBIG:
        return E2BIG;
    default:
        return EIO;
    }
}

bool ecfs_db_fail (sqlite3 *db, int rc, GError **error, const char *path, const char *what)
{
    int code = ecfs_db_errno (rc);
    int system = db == NULL ? 0 : sqlite3_system_errno (db);
    if ((rc & 0xff) == SQLITE_CANTOPEN && system != 0)
        code = system;
    const char *advice = "";
    if (code == EBADMSG)
        advice = "; the catalog is damaged: " ECFS_CATALOG_ADVICE;
    else if (code == ENOSPC)
        advice = "; make room on its disk";
    else if (code == EBUSY)
        advice = "; another process holds it";
    const char *text = db == NULL ? sqlite3_errstr (rc) : sqlite3_errmsg (db);
    if ((code == EIO || code == ENOSPC || (rc & 0xff) == SQLITE_CANTOPEN) && system != 0)
        return ecfs_fail (error, code, "catalog %s: %s: %s (%s)%s", path, what, text, g_strerror (system), advice);
    return ecfs_fail (error, code, "catalog %s: %s: %s%s", path, what, text, advice);
}

bool ecfs_bad_row (GError **error, const char *table, int64_t row, const char *what)
{
    return ecfs_fail (error, EBADMSG,
                      "catalog: table %s, row %" G_GINT64_FORMAT ": %s; the catalog is damaged: " ECFS_CATALOG_ADVICE,
                      table, row, what);
}

/* A statement's text up to its first parenthesis or value names the operation well enough: "INSERT INTO inodes". */
static bool fail_statement (EcfsCatalog *self, StatementId id, int rc, GError **error)
{
    const char *sql = statement_sql[id];
    g_autofree char *what = g_strndup (sql, strcspn (sql, "(?"));
    return ecfs_db_fail (self->db, rc, error, self->path, g_strchomp (what));
}

bool ecfs_prepare_all (EcfsCatalog *self, GError **error)
{
    for (int i = 0; i < N_STATEMENTS; i++) {
        int rc =
            sqlite3_prepare_v3 (self->db, statement_sql[i], -1, SQLITE_PREPARE_PERSISTENT, &self->statements[i], NULL);
        if (rc != SQLITE_OK)
            return fail_statement (self, (StatementId) i, rc, error);
    }
    return true;
}

void ecfs_finalize_all (EcfsCatalog *self)
{
    for (int i = 0; i < N_STATEMENTS; i++) {
        (void) sqlite3_finalize (self->statements[i]); /* repeats an error that was told */
        self->statements[i] = NULL;
    }
}

Value ecfs_value_text (const char *text)
{
    if (text == NULL)
        return (Value){.type = VALUE_NULL};
    return (Value){.type = VALUE_TEXT, .number = (int64_t) strlen (text), .bytes = text};
}

static int bind_value (sqlite3_stmt *statement, int i, const Value *value)
{
    switch (value->type) {
    case VALUE_INT:
        return sqlite3_bind_int64 (statement, i, value->number);
    case VALUE_BLOB: /* a NULL pointer would bind NULL */
        return sqlite3_bind_blob64 (statement, i, value->number == 0 ? "" : value->bytes,
                                    (sqlite3_uint64) value->number, SQLITE_STATIC);
    case VALUE_TEXT:
        return sqlite3_bind_text64 (statement, i, value->bytes, (sqlite3_uint64) value->number, SQLITE_STATIC,
                                    SQLITE_UTF8);
    default:
        return sqlite3_bind_null (statement, i);
    }
}

int ecfs_bind_all (sqlite3_stmt *statement, const Value *values, size_t n_values)
{
    for (size_t i = 0; i < n_values; i++) {
        int rc = bind_value (statement, (int) i + 1, &values[i]);
        if (rc != SQLITE_OK)
            return rc;
    }
    return SQLITE_OK;
}

static int run (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values)
{
    sqlite3_stmt *statement = self->statements[id];
    int rc = ecfs_bind_all (statement, values, n_values);
    if (rc == SQLITE_OK)
        rc = sqlite3_step (statement);
    (void) sqlite3_reset (statement); /* repeats rc */
    return rc == SQLITE_ROW ? SQLITE_DONE : rc;
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

#define MAX_VALUES 17
G_STATIC_ASSERT (N_STATEMENTS < 256);

bool ecfs_exec (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values, GError **error)
{
    int rc = run (self, id, values, n_values);
    if (rc != SQLITE_DONE)
        return fail_statement (self, id, rc, error);
    note (self, id, values, n_values);
    return true;
}

bool ecfs_replay (EcfsCatalog *self, GError **error)
{
    EcfsCursor cursor = {.at = self->redo->data, .left = self->redo->len};
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
        int rc = run (self, id, values, n_values);
        if (rc != SQLITE_DONE)
            return fail_statement (self, id, rc, error);
    }
    return true;
}

uint64_t ecfs_changes (EcfsCatalog *self)
{
    return (uint64_t) sqlite3_changes64 (self->db);
}

int64_t ecfs_inserted (EcfsCatalog *self)
{
    return sqlite3_last_insert_rowid (self->db);
}

int ecfs_control (EcfsCatalog *self, StatementId id)
{
    int rc = run (self, id, NULL, 0);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

sqlite3_stmt *ecfs_query (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values, GError **error)
{
    int rc = ecfs_bind_all (self->statements[id], values, n_values);
    if (rc == SQLITE_OK)
        return self->statements[id];
    told (fail_statement (self, id, rc, error));
    return NULL;
}

int ecfs_query_step (EcfsCatalog *self, sqlite3_stmt *query, GError **error)
{
    if (query == NULL)
        return -1;
    int rc = sqlite3_step (query);
    if (rc == SQLITE_ROW)
        return 1;
    if (rc == SQLITE_DONE)
        return 0;
    const char *sql = sqlite3_sql (query);
    const char *from = strstr (sql, "FROM ");
    g_autofree char *table = g_strndup (from + 5, strcspn (from + 5, " "));
    g_autofree char *what = g_strdup_printf ("reading table %s", table);
    told (ecfs_db_fail (self->db, rc, error, self->path, what));
    return -1;
}

void ecfs_query_end (sqlite3_stmt **query)
{
    if (*query != NULL)
        (void) sqlite3_reset (*query); /* repeats an error that was told */
    *query = NULL;
}

int ecfs_query_number (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values, int64_t *ret_number,
                       GError **error)
{
    autoquery *query = ecfs_query (self, id, values, n_values, error);
    int found = ecfs_query_step (self, query, error);
    if (found == 1)
        *ret_number = sqlite3_column_int64 (query, 0);
    return found;
}

bool ecfs_column_u64 (sqlite3_stmt *query, int column, uint64_t max, uint64_t *ret_value)
{
    int64_t value = sqlite3_column_int64 (query, column);
    if (sqlite3_column_type (query, column) != SQLITE_INTEGER || value < 0 || (uint64_t) value > max)
        return false;
    *ret_value = (uint64_t) value;
    return true;
}

bool ecfs_column_bytes (sqlite3_stmt *query, int column, void *to, size_t size)
{
    const void *bytes = sqlite3_column_blob (query, column);
    if (bytes == NULL || (size_t) sqlite3_column_bytes (query, column) != size)
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
