/*
 * SQLite as the database of a catalog (database.h): a file in WAL mode, synchronous=FULL, foreign keys, STRICT tables;
 * and what is shared with files of SQLite that are no catalog.
 */
#ifndef ECFS_CATALOG_SQLITE_H
#define ECFS_CATALOG_SQLITE_H

#include "catalog/database.h"
#include "util/uuid.h"

#include <sqlite3.h>

typedef struct SqliteQuery {
    EcfsQuery base;
    sqlite3_stmt *statement;
    const char *path; /* for messages; not owned */
} SqliteQuery;

/** Makes @query one of @statement. */
void ecfs_sqlite_query_init (SqliteQuery *query, sqlite3_stmt *statement, const char *path);
/** Binds values in order; SQLite's code. They are to live as long as the statement uses them. */
int ecfs_sqlite_bind (sqlite3_stmt *statement, const Value *values, size_t n_values);

int ecfs_sqlite_errno (int rc);
/** The one place where SQLite's codes become errnos; @what is the operation. Always false. */
bool ecfs_sqlite_fail (sqlite3 *db, int rc, GError **error, const char *path, const char *what)
    __attribute__ ((warn_unused_result));

/** The database @db, which is a catalog's at @path, from now on owned; its statements are not prepared yet. */
EcfsDb *ecfs_sqlite_wrap (sqlite3 *db, const char *path);
/** That of a catalog, if it is SQLite; NULL: it is not. */
sqlite3 *ecfs_sqlite_of (EcfsDb *db);

/** Opens the catalog that is the file @path, bringing older tables up to date unless @readonly. */
EcfsDb *ecfs_sqlite_open (const char *path, bool readonly, GError **error);
/** Makes a catalog without rows in a new file @path, which no crash need leave whole. */
sqlite3 *ecfs_sqlite_make (const char *path, GError **error);
/** Makes a file @path of empty tables that @fill gets, with @archive, to fill and to close; it appears when that is
 * done. EEXIST: there is one. */
bool ecfs_sqlite_create (const char *path,
                         bool (*fill) (EcfsDb *db, const char *path, const EcfsUuid *archive, GError **error),
                         const EcfsUuid *archive, GError **error);

#endif
