/*
 * What is not said to the server yet, and what it said before it was asked: statements that wait for the next that
 * somebody waits for, questions that are to be asked ahead, and rows that are known until something changes them.
 */
#ifndef ECFS_CATALOG_PG_WAITING_H
#define ECFS_CATALOG_PG_WAITING_H

#include "catalog/pg_priv.h"

enum { ECFS_PG_MOST_VALUES = 17 };

typedef struct PgParameters {
    const char *values[ECFS_PG_MOST_VALUES];
    int sizes[ECFS_PG_MOST_VALUES];
    int formats[ECFS_PG_MOST_VALUES];
    uint64_t numbers[ECFS_PG_MOST_VALUES];
    int n;
} PgParameters;

/** A value more, an integer or a text that is there as long. */
void ecfs_pg_say_number (PgParameters *self, int64_t number);
void ecfs_pg_say_text (PgParameters *self, const char *text);

/* Rows that several queries may look at; g_rc_box. */
typedef struct PgRows {
    PGresult *result;
} PgRows;

PgRows *ecfs_pg_rows_new (PGresult *result);
void ecfs_pg_rows_unref (PgRows *self);

/* A statement with values of its own. */
typedef struct PgCommand {
    StatementId id;
    PgParameters with; /* its values are bytes, or its own numbers */
    size_t size;
    char bytes[];
} PgCommand;

/* What the server said before it was asked. */
typedef struct PgKnown {
    PgCommand *command;
    PgRows *rows;
} PgKnown;

/** The values are copied; g_free (). */
PgCommand *ecfs_pg_command_new (StatementId id, const PgParameters *with);

void ecfs_pg_waiting_init (Pg *self);
void ecfs_pg_waiting_clear (Pg *self);
/** All that waits is said, or was in vain. */
void ecfs_pg_drop_waiting (Pg *self);
/** Whether what waits may change what is asked for, or what a trigger changes. */
bool ecfs_pg_may_be_changed (const Pg *self, StatementId id);
/** Nothing waits any more, and nothing is known ahead: the transaction is over. */
void ecfs_pg_forget (Pg *self);
/** Has a statement, which is of the open transaction, wait. The values are copied. */
void ecfs_pg_defer (Pg *self, StatementId id, const PgParameters *with);
/** Whether what waits is so much that it should go. */
bool ecfs_pg_is_full (const Pg *self);
/** Undoes what waits up to the last SAVEPOINT, if that waits, too; else false, and nothing waits any more. */
bool ecfs_pg_take_back (Pg *self);
/** RELEASE; of a SAVEPOINT that still waits, neither is said: nobody can go back to it any more, and what failed behind
 * it fails the transaction either way. A subtransaction costs the server a number of its own. */
void ecfs_pg_release (Pg *self);
/** Has a query be asked with the next that is waited for. Its values are copied. */
void ecfs_pg_ask_ahead (Pg *self, StatementId id, const PgParameters *with);
/** Whether that is so. */
bool ecfs_pg_is_ahead (const Pg *self, StatementId id, const PgParameters *with);
/** What it said, if nothing was changed since; else NULL. */
PgRows *ecfs_pg_known (const Pg *self, StatementId id, const PgParameters *with);

#endif
