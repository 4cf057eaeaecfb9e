/*
 * What keeps the rows of a catalog: one connection to a database. Statements are those of statements.h. One thread at a
 * time. Errors say which catalog, what was tried, what the database says and what to do.
 */
#ifndef ECFS_CATALOG_DATABASE_H
#define ECFS_CATALOG_DATABASE_H

#include "catalog/query.h"
#include "catalog/statements.h"
#include "util/error.h"

typedef struct EcfsDb EcfsDb;
typedef struct EcfsLeaderAnswer EcfsLeaderAnswer;
typedef struct EcfsLockOwner EcfsLockOwner;
typedef struct EcfsLockRange EcfsLockRange;

typedef struct DbOps {
    /* Prepares all statements: the tables are what this version expects. */
    bool (*prepare) (EcfsDb *db, GError **error);
    /* Runs a statement whose rows nobody wants. */
    bool (*run) (EcfsDb *db, StatementId id, const Value *values, size_t n_values, GError **error);
    /* Of a database that does what is run later, and tells its error with that of another statement; NULL: it is done
     * at once. Returns when it is done. */
    bool (*await) (EcfsDb *db, GError **error);
    /* Of a database that knows BEGIN_OPTIMISTIC: whether the transaction that is open was begun so, and has not had its
     * turn; NULL: none knows. And whether, since this was asked last, one ended as what it had read had changed. */
    bool (*is_optimistic) (EcfsDb *db);
    bool (*was_changed) (EcfsDb *db);
    /* A query that will be asked soon, for one to which the way is long; NULL: it is not. Values are copied. */
    void (*ahead) (EcfsDb *db, StatementId id, const Value *values, size_t n_values);
    /* Runs BEGIN, COMMIT, SAVEPOINT and the like; @what is for messages. */
    bool (*control) (EcfsDb *db, StatementId id, const char *what, GError **error);
    /* A query with its values bound; they are to live as long as it is used. */
    EcfsQuery *(*query) (EcfsDb *db, StatementId id, const Value *values, size_t n_values, GError **error);
    /* Rows that the last run () changed; the id of the row that it inserted. */
    uint64_t (*changes) (EcfsDb *db);
    int64_t (*inserted) (EcfsDb *db);
    /* False: there is none, or the database has rolled it back on its own. */
    bool (*in_transaction) (EcfsDb *db);
    /* Whether it sorts on disk rather than in memory. */
    bool (*set_memory) (EcfsDb *db, bool on_disk, GError **error);
    /* A query in SQL of its own, which is not kept. */
    EcfsQuery *(*ask) (EcfsDb *db, const char *sql, GError **error);
    /* Of a database that may be away; NULL: it cannot. Whether it is; connecting anew; whether the last COMMIT, which
     * nobody answered, took effect (1, 0, -1: @error); a sign of life, where nothing else is done. */
    bool (*is_away) (EcfsDb *db);
    /* Whether another process has taken over what this one had open; NULL: none can. */
    bool (*is_taken_over) (EcfsDb *db);
    bool (*reconnect) (EcfsDb *db, GError **error);
    int (*settle) (EcfsDb *db, GError **error);
    bool (*beat) (EcfsDb *db, GError **error);
    /* Of a shared one: what others have committed is on its disk. An error where the connection is lost, as whoever has
     * read it did so before. */
    bool (*harden) (EcfsDb *db, GError **error);
    /* Of a database that several processes write; NULL: there is one. Finds out, while no transaction is open, whether
     * others are dead, and whether this one leads; whether it did when it looked last. */
    bool (*look_around) (EcfsDb *db, bool *ret_leads, GError **error);
    bool (*leads) (EcfsDb *db);
    bool (*resign) (EcfsDb *db, GError **error);
    /* Whether the database is another than the one that was opened; it is as good. */
    bool (*is_doubtful) (EcfsDb *db);
    void (*end_doubt) (EcfsDb *db);
    /* What members want of who leads, likewise. */
    bool (*ask_leader) (EcfsDb *db, uint64_t sequence, EcfsLeaderAnswer *ret_answer, GError **error);
    bool (*wanted) (EcfsDb *db, uint64_t *ret_sequence, GError **error);
    bool (*answer) (EcfsDb *db, uint64_t sequence, const char *trouble, GError **error);
    char *(*leader) (EcfsDb *db);
    /* Where processes serve peers; NULL: no database of others. See catalog.h. */
    bool (*tell_peer) (EcfsDb *db, const char *address, GError **error);
    GPtrArray *(*peers) (EcfsDb *db, GError **error);
    char *(*own_host) (EcfsDb *db);
    /* Locks of files (locks.h), likewise; how often a connection was made. */
    bool (*lock_set) (EcfsDb *db, const EcfsLockOwner *owner, const GArray *ranges, bool *ret_granted, GError **error);
    bool (*lock_find) (EcfsDb *db, const EcfsLockOwner *owner, const EcfsLockRange *wanted, bool *ret_there,
                       EcfsLockRange *ret_found, GError **error);
    unsigned (*n_connections) (EcfsDb *db);
    bool is_sqlite;
    void (*close) (EcfsDb *db);
} DbOps;

/** The text of a statement, as SQLite knows it. */
const char *ecfs_statement_sql (StatementId id);

/* For functions that say failure by NULL or -1, or by the text of a local error. */
static inline void told (bool failed)
{
    (void) failed;
}

struct EcfsDb {
    const DbOps *ops;
};

#endif
