/*
 * Small databases beside the catalog: what may be lost without harm, or is needed while a program runs only. One thread
 * at a time. Errors name the database and advise nothing about the catalog.
 */
#ifndef ECFS_CATALOG_SIDE_H
#define ECFS_CATALOG_SIDE_H

#include "catalog/db.h"
#include "catalog/sqlite.h"

typedef struct EcfsSide {
    sqlite3 *db;
    char *name;              /* for messages; owned */
    SqliteQuery *statements; /* n_statements; owned */
    size_t n_statements;
} EcfsSide;

/**
 * Opens the database @path ("" is a temporary one on disk, ":memory:" one in memory) with SQLite's @flags, runs @setup
 * and prepares @statements. EBADMSG: it is damaged, or no database. To be closed, also after a failure.
 */
bool ecfs_side_open (EcfsSide *self, const char *path, int flags, const char *setup, const char *const *statements,
                     size_t n_statements, GError **error);
/** Zeroed memory is accepted. */
void ecfs_side_close (EcfsSide *self);

/** Binds values to a statement; NULL with @error. It stays the database's: ecfs_query_end () when done with it. */
EcfsQuery *ecfs_side_query (EcfsSide *self, size_t statement, const Value *values, size_t n_values, GError **error);
/** 1: a row; 0: no more; -1: @error. */
int ecfs_side_step (EcfsSide *self, EcfsQuery *query, GError **error);
/** Runs a statement that gives no rows. */
bool ecfs_side_exec (EcfsSide *self, size_t statement, const Value *values, size_t n_values, GError **error);
/** Runs SQL without values. */
bool ecfs_side_run (EcfsSide *self, const char *sql, GError **error);

#endif
