/* Catalogs as a whole, row by row, from PostgreSQL to a file of SQLite and back: their tables have the same columns. */
#include "catalog/db.h"
#include "catalog/pg_exchange.h"
#include "catalog/sqlite.h"

#include <arpa/inet.h>
#include <endian.h>
#include <libpq-fe.h>
#include <unistd.h>

#define PART   1000      /* rows that are read at once */
#define BUFFER (1 << 18) /* bytes that are sent at once */

/* In an order in which none names a row that is not there yet. */
const char *const ecfs_pg_tables[ECFS_PG_N_TABLES] = {
    "meta",     "counters", "inodes",    "entries",        "xattrs",   "endpoints",   "objects",
    "stripes",  "extents",  "intents",   "intent_stripes", "staging",  "deletions",   "journal",
    "codes",    "age",      "estimates", "journal_places", "settings", "snapshots",   "repairs",
    "sessions", "released", "losses",    "brake",          "marks",    "past_objects"};
/* Whose ids are given out. */
static const char *const with_ids[] = {"endpoints", "objects", "intents", "staging", "deletions", "past_objects"};

void ecfs_pg_columns_clear (PgColumns *columns)
{
    if (columns->names != NULL)
        (void) g_string_free (columns->names, TRUE);
    if (columns->marks != NULL)
        (void) g_string_free (columns->marks, TRUE);
}

bool ecfs_pg_columns_read (sqlite3 *db, const char *path, const char *table, PgColumns *ret_columns, GError **error)
{
    g_autofree char *sql = g_strdup_printf ("PRAGMA table_info (%s)", table);
    sqlite3_stmt *query = NULL;
    *ret_columns = (PgColumns){.names = g_string_new (NULL), .marks = g_string_new (NULL)};
    int rc = sqlite3_prepare_v2 (db, sql, -1, &query, NULL);
    while (rc == SQLITE_OK && (rc = sqlite3_step (query)) == SQLITE_ROW && ret_columns->n < ECFS_PG_MOST_COLUMNS) {
        const char *type = (const char *) sqlite3_column_text (query, 2);
        const char *comma = ret_columns->n == 0 ? "" : ", ";
        g_string_append_printf (ret_columns->names, "%s\"%s\"", comma, (const char *) sqlite3_column_text (query, 1));
        g_string_append_printf (ret_columns->marks, "%s?", comma);
        ret_columns->types[ret_columns->n++] = g_strcmp0 (type, "INTEGER") == 0 ? VALUE_INT
                                               : g_strcmp0 (type, "TEXT") == 0  ? VALUE_TEXT
                                                                                : VALUE_BLOB;
        rc = SQLITE_OK;
    }
    (void) sqlite3_finalize (query); /* repeats rc */
    if (rc == SQLITE_ROW)
        return ecfs_fail (error, EBADMSG, "%s: table %s has more columns than are known", path, table);
    return rc == SQLITE_DONE ? ret_columns->n > 0 || ecfs_fail (error, EBADMSG, "%s: no table %s", path, table)
                             : ecfs_sqlite_fail (db, rc, error, path, "reading its tables");
}

static bool run_sqlite (sqlite3 *db, const char *path, const char *sql, GError **error)
{
    int rc = sqlite3_exec (db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK || ecfs_sqlite_fail (db, rc, error, path, "copying");
}

bool ecfs_pg_tick (const EcfsPgCopying *how, uint64_t n_rows, GError **error)
{
    return how == NULL || how->tick == NULL || how->tick (how->user, n_rows) ||
           ecfs_fail (error, ECANCELED, "the copy of the catalog is given up");
}

/* To a file */

typedef struct Out {
    Pg *from;
    sqlite3 *to;
    const char *path;
    const EcfsPgCopying *how;
    uint64_t n_rows;
} Out;

Value ecfs_pg_value (const PGresult *rows, int row, int column, ValueType type)
{
    uint64_t number;
    const char *bytes = PQgetvalue (rows, row, column);
    if (PQgetisnull (rows, row, column))
        return NONE;
    if (type != VALUE_INT)
        return (Value){.type = type, .number = PQgetlength (rows, row, column), .bytes = bytes};
    memcpy (&number, bytes, sizeof number);
    return INT (be64toh (number));
}

static bool insert_rows (Out *self, const PgColumns *columns, sqlite3_stmt *insert, const PGresult *rows,
                         GError **error)
{
    for (int row = 0; row < PQntuples (rows); row++) {
        Value values[ECFS_PG_MOST_COLUMNS];
        for (int i = 0; i < columns->n; i++)
            values[i] = ecfs_pg_value (rows, row, i, columns->types[i]);
        int rc = ecfs_sqlite_bind (insert, values, (size_t) columns->n);
        if (rc == SQLITE_OK)
            rc = sqlite3_step (insert);
        (void) sqlite3_reset (insert); /* repeats rc */
        if (rc != SQLITE_DONE)
            return ecfs_sqlite_fail (self->to, rc, error, self->path, "copying a catalog to it");
    }
    return true;
}

bool ecfs_pg_columns_fit (const Pg *self, const PgColumns *columns, const PGresult *rows, GError **error)
{
    for (int i = 0; i < columns->n; i++) {
        Oid type = PQftype (rows, i);
        if (columns->types[i] == VALUE_INT ? type != PG_INT8 : type != PG_BYTEA && type != PG_TEXT)
            return ecfs_fail (error, EBADMSG, "catalog %s: column %s has another type than was expected", self->name,
                              PQfname (rows, i));
    }
    return true;
}

static bool fetch_rows (Out *self, const PgColumns *columns, sqlite3_stmt *insert, GError **error)
{
    for (bool last = false; !last;) {
        if (!ecfs_pg_tick (self->how, self->n_rows, error))
            return false;
        static const char fetch[] = "FETCH " G_STRINGIFY (PART) " FROM c";
        autoresult *rows = PQexecParams (self->from->conn, fetch, 0, NULL, NULL, NULL, NULL, 1);
        if (PQresultStatus (rows) != PGRES_TUPLES_OK)
            return ecfs_pg_fail (self->from, rows, "copying it", error);
        if (!ecfs_pg_columns_fit (self->from, columns, rows, error) ||
            !insert_rows (self, columns, insert, rows, error))
            return false;
        self->n_rows += (uint64_t) PQntuples (rows);
        last = PQntuples (rows) < PART;
    }
    return true;
}

static bool copy_table_out (Out *self, const char *table, GError **error)
{
    g_auto (PgColumns) columns = {.n = 0};
    sqlite3_stmt *insert = NULL;
    if (!ecfs_pg_columns_read (self->to, self->path, table, &columns, error))
        return false;
    g_autofree char *empty = g_strdup_printf ("DELETE FROM %s", table);
    g_autofree char *sql =
        g_strdup_printf ("INSERT INTO %s (%s) VALUES (%s)", table, columns.names->str, columns.marks->str);
    g_autofree char *declare = g_strdup_printf ("DECLARE c NO SCROLL CURSOR FOR SELECT %s FROM \"%s\".%s",
                                                columns.names->str, self->from->schema, table);
    if (!run_sqlite (self->to, self->path, empty, error) ||
        !ecfs_pg_run_sql (self->from, declare, "copying it", NULL, error))
        return false;
    int rc = sqlite3_prepare_v2 (self->to, sql, -1, &insert, NULL);
    bool copied = rc == SQLITE_OK ? fetch_rows (self, &columns, insert, error)
                                  : ecfs_sqlite_fail (self->to, rc, error, self->path, "copying a catalog to it");
    (void) sqlite3_finalize (insert); /* repeats an error that was told */
    return copied && ecfs_pg_run_sql (self->from, "CLOSE c", "copying it", NULL, error);
}

/* Ids that were given out to rows that are gone do not come back. */
static bool copy_ids_out (Out *self, GError **error)
{
    g_autofree char *sql = g_strdup_printf ("SELECT name, last FROM \"%s\".ids WHERE last > 0", self->from->schema);
    autoresult *rows = ecfs_pg_ask_sql (self->from, sql, "copying it", error);
    if (rows == NULL || !run_sqlite (self->to, self->path, "DELETE FROM sqlite_sequence", error))
        return false;
    for (int i = 0; i < PQntuples (rows); i++) {
        char *insert = sqlite3_mprintf ("INSERT INTO sqlite_sequence (name, seq) VALUES (%Q, %lld)",
                                        PQgetvalue (rows, i, 0), g_ascii_strtoll (PQgetvalue (rows, i, 1), NULL, 10));
        bool good = run_sqlite (self->to, self->path, insert, error);
        sqlite3_free (insert);
        if (!good)
            return false;
    }
    return true;
}

static bool copy_out (Out *self, GError **error)
{
    if (!ecfs_pg_connect (self->from, error) ||
        !ecfs_pg_run_sql (self->from, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "copying it", NULL, error) ||
        !run_sqlite (self->to, self->path,
                     "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; BEGIN", error))
        return false;
    for (size_t i = 0; i < ECFS_PG_N_TABLES; i++)
        if (!copy_table_out (self, ecfs_pg_tables[i], error))
            return false;
    return copy_ids_out (self, error) && run_sqlite (self->to, self->path, "COMMIT", error);
}

/* A connection of its own, whose transaction keeps nobody from anything. */
Pg *ecfs_pg_twin (const Pg *self)
{
    Pg *twin = g_new0 (Pg, 1);
    ecfs_pg_exchange_init (twin);
    twin->conninfo = g_strdup (self->conninfo);
    twin->name = g_strdup (self->name);
    twin->schema = g_strdup (self->schema);
    twin->readonly = true;
    twin->session = g_strdup (self->session);
    twin->member = self->member;
    twin->taken_at = self->taken_at;
    twin->committed = self->committed;
    return twin;
}

/* What the other connection is to know, as it is at one moment. */
static ECFS_TSA (no_thread_safety_analysis) Pg *twin_of (EcfsDb *db, EcfsMutex *lock)
{
    if (lock != NULL)
        ecfs_mutex_lock (lock);
    Pg *twin = ecfs_pg_twin (ecfs_pg_of (db));
    if (lock != NULL)
        ecfs_mutex_unlock (lock);
    return twin;
}

bool ecfs_pg_copy_to_file (EcfsDb *db, const char *path, const EcfsPgCopying *how, GError **error)
{
    sqlite3 *to = ecfs_sqlite_make (path, error);
    if (to == NULL)
        return false;
    Pg *twin = twin_of (db, how == NULL ? NULL : how->lock);
    Out out = {.from = twin, .to = to, .path = path, .how = how};
    bool copied = copy_out (&out, error);
    ecfs_pg_free (twin);
    (void) sqlite3_close (to); /* what was copied is committed */
    if (!copied)
        (void) unlink (path); /* the first error is the one to tell */
    return copied;
}

/* From a file */

typedef struct In {
    sqlite3 *from;
    const char *path;
    Pg *to;
    GByteArray *buffer;
    const EcfsPgCopying *how;
    uint64_t n_rows;
} In;

static void put_be (GByteArray *to, uint64_t value, guint n_bytes)
{
    uint64_t big = htobe64 (value);
    g_byte_array_append (to, (const uint8_t *) &big + 8 - n_bytes, n_bytes);
}

static bool send_buffer (In *self, GError **error)
{
    int sent = PQputCopyData (self->to->conn, (const char *) self->buffer->data, (int) self->buffer->len);
    g_byte_array_set_size (self->buffer, 0);
    return sent == 1 || ecfs_pg_fail (self->to, NULL, "copying to it", error);
}

/* As COPY's binary format has it. */
static void put_row (In *self, sqlite3_stmt *row, const PgColumns *columns)
{
    put_be (self->buffer, (uint64_t) columns->n, 2);
    for (int i = 0; i < columns->n; i++) {
        if (sqlite3_column_type (row, i) == SQLITE_NULL) {
            put_be (self->buffer, UINT32_MAX, 4);
        } else if (columns->types[i] == VALUE_INT) {
            put_be (self->buffer, 8, 4);
            put_be (self->buffer, (uint64_t) sqlite3_column_int64 (row, i), 8);
        } else {
            const void *bytes = sqlite3_column_blob (row, i);
            guint n = (guint) sqlite3_column_bytes (row, i);
            put_be (self->buffer, n, 4);
            if (n > 0)
                g_byte_array_append (self->buffer, bytes, n);
        }
    }
}

static bool send_rows (In *self, sqlite3_stmt *rows, const PgColumns *columns, GError **error)
{
    static const uint8_t head[19] = "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0";
    g_byte_array_append (self->buffer, head, sizeof head);
    int rc;
    while ((rc = sqlite3_step (rows)) == SQLITE_ROW) {
        put_row (self, rows, columns);
        if (self->buffer->len > BUFFER && !send_buffer (self, error))
            return false;
        if (++self->n_rows % PART == 0 && !ecfs_pg_tick (self->how, self->n_rows, error))
            return false;
    }
    put_be (self->buffer, UINT16_MAX, 2);
    return rc == SQLITE_DONE ? send_buffer (self, error)
                             : ecfs_sqlite_fail (self->from, rc, error, self->path, "copying it");
}

static bool copy_rows (In *self, sqlite3_stmt *rows, const char *table, const PgColumns *columns, GError **error)
{
    g_autofree char *sql = g_strdup_printf ("COPY \"%s\".%s (%s) FROM STDIN (FORMAT binary)", self->to->schema, table,
                                            columns->names->str);
    autoresult *begun = PQexec (self->to->conn, sql);
    if (PQresultStatus (begun) != PGRES_COPY_IN)
        return ecfs_pg_fail (self->to, begun, "copying to it", error);
    bool sent = send_rows (self, rows, columns, error);
    bool ended = PQputCopyEnd (self->to->conn, sent ? NULL : "given up") == 1;
    autoresult *result = PQgetResult (self->to->conn);
    while (ended) {
        PGresult *more = PQgetResult (self->to->conn);
        if (more == NULL)
            break;
        PQclear (more);
    }
    return sent &&
           (PQresultStatus (result) == PGRES_COMMAND_OK || ecfs_pg_fail (self->to, result, "copying to it", error));
}

static bool copy_table_in (In *self, const char *table, GError **error)
{
    g_auto (PgColumns) columns = {.n = 0};
    sqlite3_stmt *rows = NULL;
    if (!ecfs_pg_columns_read (self->from, self->path, table, &columns, error))
        return false;
    g_autofree char *empty = g_strdup_printf ("DELETE FROM \"%s\".%s", self->to->schema, table);
    g_autofree char *sql = g_strdup_printf ("SELECT %s FROM %s", columns.names->str, table);
    int rc = sqlite3_prepare_v2 (self->from, sql, -1, &rows, NULL);
    bool copied = rc == SQLITE_OK || ecfs_sqlite_fail (self->from, rc, error, self->path, "copying it");
    copied = copied && ecfs_pg_run_sql (self->to, empty, "copying to it", NULL, error) &&
             copy_rows (self, rows, table, &columns, error);
    (void) sqlite3_finalize (rows); /* repeats an error that was told */
    return copied;
}

/* A trigger for each row would take longer than the rows. */
static bool set_triggers (Pg *self, bool on, GError **error)
{
    for (size_t i = 0; i < G_N_ELEMENTS (with_ids); i++) {
        g_autofree char *sql = g_strdup_printf ("ALTER TABLE \"%s\".%s %s TRIGGER next_id", self->schema, with_ids[i],
                                                on ? "ENABLE" : "DISABLE");
        if (!ecfs_pg_run_sql (self, sql, "copying to it", NULL, error))
            return false;
    }
    return true;
}

static bool copy_ids_in (In *self, GError **error)
{
    sqlite3_stmt *rows = NULL;
    bool good = true;
    int rc = sqlite3_prepare_v2 (self->from, "SELECT name, seq FROM sqlite_sequence", -1, &rows, NULL);
    while (good && rc == SQLITE_OK && (rc = sqlite3_step (rows)) == SQLITE_ROW) {
        g_autofree char *sql =
            g_strdup_printf ("UPDATE \"%s\".ids SET last = %" G_GINT64_FORMAT " WHERE name = '%s'", self->to->schema,
                             (gint64) sqlite3_column_int64 (rows, 1), (const char *) sqlite3_column_text (rows, 0));
        good = ecfs_pg_run_sql (self->to, sql, "copying to it", NULL, error);
        rc = SQLITE_OK;
    }
    (void) sqlite3_finalize (rows); /* repeats rc */
    return good && (rc == SQLITE_DONE || ecfs_sqlite_fail (self->from, rc, error, self->path, "copying it"));
}

/* Nobody may have answered a COMMIT that took effect. No other can have made it: that would have waited for this. */
static bool is_there_after_all (In *self)
{
    return ecfs_pg_is_away (self->to) && ecfs_pg_connect (self->to, NULL) && ecfs_pg_check_tables (self->to, NULL);
}

static bool copy_in (In *self, GError **error)
{
    if (!ecfs_pg_connect (self->to, error) || !ecfs_pg_run_sql (self->to, "BEGIN", "copying to it", NULL, error) ||
        !ecfs_pg_make_tables (self->to, error) || !set_triggers (self->to, false, error))
        return false;
    for (size_t i = 0; i < ECFS_PG_N_TABLES; i++)
        if (!copy_table_in (self, ecfs_pg_tables[i], error))
            return false;
    if (!copy_ids_in (self, error) || !set_triggers (self->to, true, error) || !ecfs_pg_own_all (self->to, error) ||
        (self->how != NULL && self->how->arriving && !ecfs_pg_set_arriving (self->to, error)))
        return false;
    GError *why = NULL;
    if (ecfs_pg_run_sql (self->to, "COMMIT", "copying to it", NULL, &why) || is_there_after_all (self))
        g_clear_error (&why);
    return why == NULL || (g_propagate_error (error, why), false);
}

bool ecfs_pg_copy_from_file (const char *location, const char *path, const EcfsPgCopying *how, GError **error)
{
    Pg *to = ecfs_pg_new (location, false, error);
    EcfsDb *db = to == NULL ? NULL : ecfs_sqlite_open (path, true, error);
    bool copied = false;
    if (db != NULL) {
        to->arriving = how != NULL && how->arriving;
        to->sets_aside = how != NULL && how->set_aside;
        In in = {.from = ecfs_sqlite_of (db), .path = path, .to = to, .buffer = g_byte_array_new (), .how = how};
        copied = run_sqlite (in.from, path, "BEGIN", error) && copy_in (&in, error);
        g_byte_array_unref (in.buffer);
        db->ops->close (db);
    }
    if (to != NULL)
        ecfs_pg_free (to);
    return copied;
}
