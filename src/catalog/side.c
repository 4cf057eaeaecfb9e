#include "catalog/side.h"

#define BUSY_MS 5000

static bool fail (const EcfsSide *self, int rc, const char *what, GError **error)
{
    const char *text = self->db == NULL ? sqlite3_errstr (rc) : sqlite3_errmsg (self->db);
    int system = self->db == NULL ? 0 : sqlite3_system_errno (self->db);
    int code = (rc & 0xff) == SQLITE_CANTOPEN && system != 0 ? system : ecfs_sqlite_errno (rc);
    return ecfs_fail (error, code, "%s: %s: %s", self->name, what, text);
}

bool ecfs_side_run (EcfsSide *self, const char *sql, GError **error)
{
    int rc = sqlite3_exec (self->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK || fail (self, rc, "changing it", error);
}

bool ecfs_side_open (EcfsSide *self, const char *path, int flags, const char *setup, const char *const *statements,
                     size_t n_statements, GError **error)
{
    *self = (EcfsSide){.name = g_strdup (*path == '\0' ? "a temporary file" : path)};
    self->statements = g_new0 (SqliteQuery, n_statements + 1);
    int rc = sqlite3_open_v2 (path, &self->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK)
        return fail (self, rc, "opening", error);
    (void) sqlite3_busy_timeout (self->db, BUSY_MS); /* cannot fail on an open database */
    rc = sqlite3_exec (self->db, setup, NULL, NULL, NULL);
    if (rc != SQLITE_OK)
        return fail (self, rc, "opening", error);
    for (size_t i = 0; i < n_statements; i++) {
        sqlite3_stmt *statement = NULL;
        rc = sqlite3_prepare_v3 (self->db, statements[i], -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL);
        if (rc != SQLITE_OK)
            return fail (self, rc, "its tables are not what this version expects", error);
        ecfs_sqlite_query_init (&self->statements[self->n_statements++], statement, self->name);
    }
    return true;
}

void ecfs_side_close (EcfsSide *self)
{
    for (size_t i = 0; i < self->n_statements; i++)
        (void) sqlite3_finalize (self->statements[i].statement); /* repeats an error that was told */
    (void) sqlite3_close (self->db);                             /* likewise; NULL is accepted */
    g_free (self->statements);
    g_free (self->name);
    *self = (EcfsSide){.db = NULL};
}

EcfsQuery *ecfs_side_query (EcfsSide *self, size_t statement, const Value *values, size_t n_values, GError **error)
{
    int rc = ecfs_sqlite_bind (self->statements[statement].statement, values, n_values);
    if (rc == SQLITE_OK)
        return &self->statements[statement].base;
    told (fail (self, rc, "asking it", error));
    return NULL;
}

int ecfs_side_step (EcfsSide *self, EcfsQuery *query, GError **error)
{
    int rc = query == NULL ? SQLITE_ERROR : sqlite3_step (((SqliteQuery *) query)->statement);
    if (rc == SQLITE_ROW)
        return 1;
    if (rc != SQLITE_DONE && query != NULL)
        told (fail (self, rc, "reading or writing it", error));
    return rc == SQLITE_DONE ? 0 : -1;
}

bool ecfs_side_exec (EcfsSide *self, size_t statement, const Value *values, size_t n_values, GError **error)
{
    autoquery *query = ecfs_side_query (self, statement, values, n_values, error);
    return ecfs_side_step (self, query, error) >= 0;
}
