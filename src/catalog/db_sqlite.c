/* Statements of SQLite: binding, running, stepping; its errors. */
#include "catalog/catalog.h"
#include "catalog/sqlite.h"

typedef struct Sqlite {
    EcfsDb base;
    sqlite3 *db;
    char *path;
    SqliteQuery queries[N_STATEMENTS];
} Sqlite;

/* Errors */

int ecfs_sqlite_errno (int rc)
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

bool ecfs_sqlite_fail (sqlite3 *db, int rc, GError **error, const char *path, const char *what)
{
    int code = ecfs_sqlite_errno (rc);
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

/* A statement's text up to its first parenthesis or value names the operation well enough: "INSERT INTO inodes". */
static bool fail_statement (Sqlite *self, StatementId id, int rc, GError **error)
{
    const char *sql = ecfs_statement_sql (id);
    g_autofree char *what = g_strndup (sql, strcspn (sql, "(?"));
    return ecfs_sqlite_fail (self->db, rc, error, self->path, g_strchomp (what));
}

/* Values and rows */

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

int ecfs_sqlite_bind (sqlite3_stmt *statement, const Value *values, size_t n_values)
{
    for (size_t i = 0; i < n_values; i++) {
        int rc = bind_value (statement, (int) i + 1, &values[i]);
        if (rc != SQLITE_OK)
            return rc;
    }
    return SQLITE_OK;
}

static inline sqlite3_stmt *statement_of (EcfsQuery *query)
{
    return ((SqliteQuery *) query)->statement;
}

static bool is_null (EcfsQuery *query, int column)
{
    return sqlite3_column_type (statement_of (query), column) == SQLITE_NULL;
}

static int64_t number (EcfsQuery *query, int column)
{
    return sqlite3_column_int64 (statement_of (query), column);
}

static bool is_number (EcfsQuery *query, int column, int64_t *ret_number)
{
    *ret_number = number (query, column);
    return sqlite3_column_type (statement_of (query), column) == SQLITE_INTEGER;
}

static const void *bytes (EcfsQuery *query, int column)
{
    return sqlite3_column_blob (statement_of (query), column);
}

static size_t size (EcfsQuery *query, int column)
{
    return (size_t) sqlite3_column_bytes (statement_of (query), column);
}

static const char *text (EcfsQuery *query, int column)
{
    return (const char *) sqlite3_column_text (statement_of (query), column);
}

static int step (EcfsQuery *query, GError **error)
{
    sqlite3_stmt *statement = statement_of (query);
    int rc = sqlite3_step (statement);
    if (rc == SQLITE_ROW)
        return 1;
    if (rc == SQLITE_DONE)
        return 0;
    const char *from = strstr (sqlite3_sql (statement), "FROM ");
    g_autofree char *table = from == NULL ? g_strdup ("?") : g_strndup (from + 5, strcspn (from + 5, " "));
    g_autofree char *what = g_strdup_printf ("reading table %s", table);
    const char *path = ((SqliteQuery *) query)->path;
    told (ecfs_sqlite_fail (sqlite3_db_handle (statement), rc, error, path, what));
    return -1;
}

static void end (EcfsQuery *query)
{
    (void) sqlite3_reset (statement_of (query)); /* repeats an error that was told */
}

static const QueryOps query_ops = {.step = step,
                                   .end = end,
                                   .is_null = is_null,
                                   .is_number = is_number,
                                   .number = number,
                                   .bytes = bytes,
                                   .size = size,
                                   .text = text};

void ecfs_sqlite_query_init (SqliteQuery *query, sqlite3_stmt *statement, const char *path)
{
    *query = (SqliteQuery){.base.ops = &query_ops, .statement = statement, .path = path};
}

/* Statements */

static bool prepare (EcfsDb *db, GError **error)
{
    Sqlite *self = (Sqlite *) db;
    for (int i = 0; i < N_STATEMENTS; i++) {
        sqlite3_stmt *statement = NULL;
        int rc = sqlite3_prepare_v3 (self->db, ecfs_statement_sql ((StatementId) i), -1, SQLITE_PREPARE_PERSISTENT,
                                     &statement, NULL);
        if (rc != SQLITE_OK)
            return fail_statement (self, (StatementId) i, rc, error);
        ecfs_sqlite_query_init (&self->queries[i], statement, self->path);
    }
    return true;
}

static int run_code (Sqlite *self, StatementId id, const Value *values, size_t n_values)
{
    sqlite3_stmt *statement = self->queries[id].statement;
    int rc = ecfs_sqlite_bind (statement, values, n_values);
    if (rc == SQLITE_OK)
        rc = sqlite3_step (statement);
    (void) sqlite3_reset (statement); /* repeats rc */
    return rc == SQLITE_ROW ? SQLITE_DONE : rc;
}

static bool run (EcfsDb *db, StatementId id, const Value *values, size_t n_values, GError **error)
{
    Sqlite *self = (Sqlite *) db;
    int rc = run_code (self, id, values, n_values);
    return rc == SQLITE_DONE || fail_statement (self, id, rc, error);
}

static bool control (EcfsDb *db, StatementId id, const char *what, GError **error)
{
    Sqlite *self = (Sqlite *) db;
    int rc = run_code (self, id, NULL, 0);
    return rc == SQLITE_DONE || ecfs_sqlite_fail (self->db, rc, error, self->path, what);
}

static EcfsQuery *query (EcfsDb *db, StatementId id, const Value *values, size_t n_values, GError **error)
{
    Sqlite *self = (Sqlite *) db;
    int rc = ecfs_sqlite_bind (self->queries[id].statement, values, n_values);
    bool good = rc == SQLITE_OK || fail_statement (self, id, rc, error);
    return good ? &self->queries[id].base : NULL;
}

static uint64_t changes (EcfsDb *db)
{
    return (uint64_t) sqlite3_changes64 (((Sqlite *) db)->db);
}

static int64_t inserted (EcfsDb *db)
{
    return sqlite3_last_insert_rowid (((Sqlite *) db)->db);
}

static bool in_transaction (EcfsDb *db)
{
    return sqlite3_get_autocommit (((Sqlite *) db)->db) == 0;
}

static bool set_memory (EcfsDb *db, bool on_disk, GError **error)
{
    Sqlite *self = (Sqlite *) db;
    int rc = sqlite3_exec (self->db,
                           on_disk ? "PRAGMA temp_store = FILE; PRAGMA cache_spill = ON"
                                   : "PRAGMA temp_store = MEMORY; PRAGMA cache_spill = OFF",
                           NULL, NULL, NULL);
    return rc == SQLITE_OK || ecfs_sqlite_fail (self->db, rc, error, self->path, "setting where it sorts");
}

static void free_asked (EcfsQuery *asked)
{
    (void) sqlite3_finalize (statement_of (asked)); /* repeats an error that was told */
    g_free (asked);
}

static EcfsQuery *ask (EcfsDb *db, const char *sql, GError **error)
{
    static const QueryOps asked_ops = {.step = step,
                                       .end = free_asked,
                                       .is_null = is_null,
                                       .is_number = is_number,
                                       .number = number,
                                       .bytes = bytes,
                                       .size = size,
                                       .text = text};
    Sqlite *self = (Sqlite *) db;
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2 (self->db, sql, -1, &statement, NULL);
    if (rc != SQLITE_OK) {
        told (ecfs_sqlite_fail (self->db, rc, error, self->path, "checking it"));
        return NULL;
    }
    SqliteQuery *asked = g_new (SqliteQuery, 1);
    *asked = (SqliteQuery){.base.ops = &asked_ops, .statement = statement, .path = self->path};
    return &asked->base;
}

static void close_db (EcfsDb *db)
{
    Sqlite *self = (Sqlite *) db;
    for (int i = 0; i < N_STATEMENTS; i++)
        (void) sqlite3_finalize (self->queries[i].statement); /* repeats an error that was told */
    int rc = sqlite3_close (self->db);
    if (rc != SQLITE_OK)
        g_warning ("catalog %s: closing: %s", self->path, sqlite3_errstr (rc));
    g_free (self->path);
    g_free (self);
}

static const DbOps db_ops = {.prepare = prepare,
                             .run = run,
                             .control = control,
                             .query = query,
                             .changes = changes,
                             .inserted = inserted,
                             .in_transaction = in_transaction,
                             .set_memory = set_memory,
                             .ask = ask,
                             .is_sqlite = true,
                             .close = close_db};

EcfsDb *ecfs_sqlite_wrap (sqlite3 *db, const char *path)
{
    Sqlite *self = g_new0 (Sqlite, 1);
    self->base.ops = &db_ops;
    self->db = db;
    self->path = g_strdup (path);
    return &self->base;
}

sqlite3 *ecfs_sqlite_of (EcfsDb *db)
{
    return db->ops == &db_ops ? ((Sqlite *) db)->db : NULL;
}
