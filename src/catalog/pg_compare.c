/*
 * Whether a catalog in PostgreSQL and one in a file have the same rows. Each row is hashed as both databases read it,
 * and the sums of the hashes of a table are compared, as the order of rows differs.
 */
#include "catalog/db.h"
#include "catalog/pg_priv.h"
#include "catalog/sqlite.h"
#include "util/bytes.h"

#include <libpq-fe.h>
#include <xxhash.h>

#define PART 1000 /* rows that are read at once */

typedef struct Sum {
    uint64_t n_rows;
    uint64_t low;
    uint64_t high;
} Sum;

typedef struct Comparing {
    Pg *pg;
    sqlite3 *file;
    const char *path;
    const EcfsPgCopying *how;
    GByteArray *row;
    uint64_t n_rows;
} Comparing;

/* A row begins with an empty buffer, to which its values are put in order. */
static void put_value (GByteArray *row, const Value *value)
{
    uint8_t head[9] = {value->type == VALUE_NULL ? 0 : value->type == VALUE_INT ? 1 : 2};
    ecfs_put_le (head + 1, value->type == VALUE_NULL ? 0 : (uint64_t) value->number, 8);
    g_byte_array_append (row, head, sizeof head);
    if (value->type >= VALUE_BLOB && value->number > 0)
        g_byte_array_append (row, value->bytes, (guint) value->number);
}

static void add_row (GByteArray *row, Sum *sum)
{
    XXH128_hash_t hash = XXH3_128bits (row->data, row->len);
    sum->n_rows++;
    sum->low += hash.low64;
    sum->high += hash.high64;
    g_byte_array_set_size (row, 0);
}

static Value file_value (sqlite3_stmt *row, int column)
{
    switch (sqlite3_column_type (row, column)) {
    case SQLITE_NULL:
        return NONE;
    case SQLITE_INTEGER:
        return INT (sqlite3_column_int64 (row, column));
    default: {
        const void *bytes = sqlite3_column_blob (row, column);
        return BLOB (bytes, sqlite3_column_bytes (row, column));
    }
    }
}

static bool sum_file (Comparing *self, const char *table, const PgColumns *columns, Sum *sum, GError **error)
{
    g_autofree char *sql = g_strdup_printf ("SELECT %s FROM %s", columns->names->str, table);
    sqlite3_stmt *rows = NULL;
    int rc = sqlite3_prepare_v2 (self->file, sql, -1, &rows, NULL);
    bool good = true;
    while (good && rc == SQLITE_OK && (rc = sqlite3_step (rows)) == SQLITE_ROW) {
        for (int i = 0; i < columns->n; i++) {
            Value value = file_value (rows, i);
            put_value (self->row, &value);
        }
        add_row (self->row, sum);
        good = sum->n_rows % PART != 0 || ecfs_pg_tick (self->how, self->n_rows + sum->n_rows / 2, error);
        rc = SQLITE_OK;
    }
    (void) sqlite3_finalize (rows); /* repeats rc */
    return good && (rc == SQLITE_DONE || ecfs_sqlite_fail (self->file, rc, error, self->path, "comparing it"));
}

static bool sum_part (Comparing *self, const PgColumns *columns, const PGresult *rows, Sum *sum, GError **error)
{
    if (!ecfs_pg_columns_fit (self->pg, columns, rows, error))
        return false;
    for (int row = 0; row < PQntuples (rows); row++) {
        for (int i = 0; i < columns->n; i++) {
            Value value = ecfs_pg_value (rows, row, i, columns->types[i]);
            put_value (self->row, &value);
        }
        add_row (self->row, sum);
    }
    return ecfs_pg_tick (self->how, self->n_rows + sum->n_rows / 2, error);
}

static bool sum_pg (Comparing *self, const char *table, const PgColumns *columns, Sum *sum, GError **error)
{
    static const char fetch[] = "FETCH " G_STRINGIFY (PART) " FROM c";
    g_autofree char *declare = g_strdup_printf ("DECLARE c NO SCROLL CURSOR FOR SELECT %s FROM \"%s\".%s",
                                                columns->names->str, self->pg->schema, table);
    if (!ecfs_pg_run_sql (self->pg, declare, "comparing it", NULL, error))
        return false;
    for (bool last = false; !last;) {
        autoresult *rows = PQexecParams (self->pg->conn, fetch, 0, NULL, NULL, NULL, NULL, 1);
        if (PQresultStatus (rows) != PGRES_TUPLES_OK)
            return ecfs_pg_fail (self->pg, rows, "comparing it", error);
        if (!sum_part (self, columns, rows, sum, error))
            return false;
        last = PQntuples (rows) < PART;
    }
    return ecfs_pg_run_sql (self->pg, "CLOSE c", "comparing it", NULL, error);
}

static bool compare_table (Comparing *self, const char *table, GError **error)
{
    g_auto (PgColumns) columns = {.n = 0};
    Sum file = {.n_rows = 0}, pg = {.n_rows = 0};
    if (!ecfs_pg_columns_read (self->file, self->path, table, &columns, error) ||
        !sum_file (self, table, &columns, &file, error))
        return false;
    self->n_rows += file.n_rows / 2;
    if (!sum_pg (self, table, &columns, &pg, error))
        return false;
    self->n_rows += file.n_rows - file.n_rows / 2;
    return (file.n_rows == pg.n_rows && file.low == pg.low && file.high == pg.high) ||
           ecfs_fail (error, EBADMSG, "catalog %s: table %s has other rows (%" PRIu64 ") than that of %s (%" PRIu64 ")",
                      self->pg->name, table, pg.n_rows, self->path, file.n_rows);
}

/* Ids that were given out must not be given out again. */
static bool compare_ids (Comparing *self, GError **error)
{
    sqlite3_stmt *rows = NULL;
    bool good = true;
    int rc = sqlite3_prepare_v2 (self->file, "SELECT name, seq FROM sqlite_sequence", -1, &rows, NULL);
    while (good && rc == SQLITE_OK && (rc = sqlite3_step (rows)) == SQLITE_ROW) {
        const char *name = (const char *) sqlite3_column_text (rows, 0);
        g_autofree char *sql =
            g_strdup_printf ("SELECT last FROM \"%s\".ids WHERE name = '%s'", self->pg->schema, name);
        autoresult *last = ecfs_pg_ask_sql (self->pg, sql, "comparing it", error);
        good = last != NULL && ((PQntuples (last) == 1 && g_ascii_strtoll (PQgetvalue (last, 0, 0), NULL, 10) ==
                                                              sqlite3_column_int64 (rows, 1)) ||
                                ecfs_fail (error, EBADMSG, "catalog %s: table %s has given out other ids than in %s",
                                           self->pg->name, name, self->path));
        rc = SQLITE_OK;
    }
    (void) sqlite3_finalize (rows); /* repeats rc */
    return good && (rc == SQLITE_DONE || ecfs_sqlite_fail (self->file, rc, error, self->path, "comparing it"));
}

static bool compare (Comparing *self, GError **error)
{
    if (!ecfs_pg_connect (self->pg, error) ||
        !ecfs_pg_run_sql (self->pg, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "comparing it", NULL, error))
        return false;
    for (size_t i = 0; i < ECFS_PG_N_TABLES; i++)
        if (!compare_table (self, ecfs_pg_tables[i], error))
            return false;
    return compare_ids (self, error);
}

bool ecfs_pg_compare (const char *location, const char *path, const EcfsPgCopying *how, uint64_t *ret_n_rows,
                      GError **error)
{
    Pg *pg = ecfs_pg_new (location, true, error);
    EcfsDb *file = pg == NULL ? NULL : ecfs_sqlite_open (path, true, error);
    bool same = false;
    if (file != NULL) {
        Comparing self = {
            .pg = pg, .file = ecfs_sqlite_of (file), .path = path, .how = how, .row = g_byte_array_new ()};
        same = compare (&self, error);
        *ret_n_rows = self.n_rows;
        g_byte_array_unref (self.row);
        file->ops->close (file);
    }
    if (pg != NULL)
        ecfs_pg_free (pg);
    return same;
}

bool ecfs_pg_count_file (const char *path, uint64_t *ret_n_rows, GError **error)
{
    EcfsDb *file = ecfs_sqlite_open (path, true, error);
    int rc = SQLITE_OK;
    *ret_n_rows = 0;
    if (file == NULL)
        return false;
    for (size_t i = 0; rc == SQLITE_OK && i < ECFS_PG_N_TABLES; i++) {
        g_autofree char *sql = g_strdup_printf ("SELECT count (*) FROM %s", ecfs_pg_tables[i]);
        sqlite3_stmt *count = NULL;
        rc = sqlite3_prepare_v2 (ecfs_sqlite_of (file), sql, -1, &count, NULL);
        if (rc == SQLITE_OK && (rc = sqlite3_step (count)) == SQLITE_ROW) {
            *ret_n_rows += (uint64_t) sqlite3_column_int64 (count, 0);
            rc = SQLITE_OK;
        }
        (void) sqlite3_finalize (count); /* repeats rc */
    }
    bool counted = rc == SQLITE_OK || ecfs_sqlite_fail (ecfs_sqlite_of (file), rc, error, path, "counting its rows");
    file->ops->close (file);
    return counted;
}
