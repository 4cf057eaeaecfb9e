/* What SQLite says about a catalog's file, asked on a connection of its own. */
#ifndef TESTS_CATALOG_CHECK_DB_H
#define TESTS_CATALOG_CHECK_DB_H

#include <glib.h>
#include <sqlite3.h>

static inline void run_sql (const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    char *message = NULL;
    g_assert_cmpint (sqlite3_open (path, &db), ==, SQLITE_OK);
    sqlite3_exec (db, sql, NULL, NULL, &message);
    g_assert_cmpstr (message, ==, NULL);
    g_assert_cmpint (sqlite3_close (db), ==, SQLITE_OK);
}

static inline void check_integrity (const char *path)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *query = NULL;
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
