/* What SQLite says about a catalog's file, asked on a connection of its own. */
#ifndef TESTS_CATALOG_CHECK_DB_H
#define TESTS_CATALOG_CHECK_DB_H

#include "catalog/pg.h"

#include <glib.h>
#include <sqlite3.h>

static inline void run_pg_sql (const char *location, const char *sql)
{
    g_auto (GStrv) parts = g_strsplit (location, "#", 2), uuids = g_strsplit (parts[1], ":", 2),
                   groups = g_strsplit (uuids[0], "-", -1);
    g_autofree char *archive = g_strjoinv ("", groups);
    g_auto (GStrv) around = g_strsplit (sql, "x'", -1);
    g_autofree char *own = g_strjoinv ("'\\x", around); /* SQLite's way to write bytes */
    g_autofree char *path = g_strdup_printf ("SET search_path TO ecfs_%s", archive);
    const char *argv[] = {"psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", parts[0], "-c", path, "-c", own, NULL};
    int status = -1;
    g_assert_true (
        g_spawn_sync (NULL, (char **) argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, &status, NULL));
    g_assert_cmpint (status, ==, 0);
}

static inline void run_sql (const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    char *message = NULL;
    if (ecfs_pg_is_location (path)) {
        run_pg_sql (path, sql);
        return;
    }
    g_assert_cmpint (sqlite3_open (path, &db), ==, SQLITE_OK);
    sqlite3_exec (db, sql, NULL, NULL, &message);
    g_assert_cmpstr (message, ==, NULL);
    g_assert_cmpint (sqlite3_close (db), ==, SQLITE_OK);
}

static inline void check_integrity (const char *path)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *query = NULL;
    if (ecfs_pg_is_location (path)) /* which looks itself */
        return;
    g_assert_cmpint (sqlite3_open (path, &db), ==, SQLITE_OK);
    g_assert_cmpint (sqlite3_prepare_v2 (db, "PRAGMA integrity_check", -1, &query, NULL), ==, SQLITE_OK);
    g_assert_cmpint (sqlite3_step (query), ==, SQLITE_ROW);
    g_assert_cmpstr ((const char *) sqlite3_column_text (query, 0), ==, "ok");
    sqlite3_finalize (query);
    g_assert_cmpint (sqlite3_prepare_v2 (db, "PRAGMA foreign_key_check", -1, &query, NULL), ==, SQLITE_OK);
    g_assert_cmpint (sqlite3_step (query), ==, SQLITE_DONE);
    sqlite3_finalize (query);
    g_assert_cmpint (sqlite3_close (db), ==, SQLITE_OK);
}

#endif
