/* The connection to PostgreSQL, and what is known of it. */
#ifndef ECFS_CATALOG_PG_PRIV_H
#define ECFS_CATALOG_PG_PRIV_H

#include "catalog/pg.h"

#include <stdatomic.h>

/* As libpq-fe.h has them. */
typedef struct pg_conn PGconn;
typedef struct pg_result PGresult;
typedef unsigned int Oid;

/* Types of columns and parameters. */
enum { PG_BOOL = 16, PG_BYTEA = 17, PG_INT8 = 20, PG_INT2 = 21, PG_INT4 = 23, PG_TEXT = 25 };

/* Of a schema, twice, that cannot be used: what is made anew has its name. */
#define ECFS_PG_ADVICE                                                                                                 \
    "rename the schema (ALTER SCHEMA %s RENAME TO %s_old), and 'ecfs recover NEW --set catalog=... --endpoint "        \
    "URL...' "                                                                                                         \
    "makes a new one from the endpoints; a dump lacks all that was stored since"

/* The same statement, asked otherwise; prepared with the first that is asked so. */
typedef struct PgVariant {
    char *name;
    char *sql;
    unsigned made; /* the connection that knows it, as n_made; 0: none */
} PgVariant;

typedef struct PgStatement {
    char *name; /* nobody else has one of it: behind a pooler it would be run in place of this */
    char *sql;  /* as PostgreSQL gets it */
    Oid *types;
    int n_types;
    PgVariant seen; /* its rows, each with what tells it from others in the last column */
    PgVariant same; /* fails unless they are so still */
} PgStatement;

struct PgSaying;

typedef struct Pg {
    EcfsDb base;
    char *conninfo;
    char *name;      /* for messages: without what is secret */
    char *schema;    /* quoted where it is used: "ecfs_" and the archive's UUID in hex */
    char *tag;       /* marks what is set for this connection, … */
    char *names[4];  /* … and is in the names of what it says of its turns: see ecfs_pg_prepare_turns () */
    EcfsUuid holder; /* whose the archive directory is */
    bool readonly;
    bool is_asked, is_verified; /* whether the server's certificate is to be looked at */
    bool arriving;              /* it may be one that nobody uses yet */
    bool sets_aside;            /* what is there is renamed where tables are made */
    bool is_member;             /* it has the archive open as one of several, if for writing */
    bool must_lead;             /* or not at all */
    bool is_copy;               /* of the directory whose row it has: that is not thrown out */
    bool leads;
    int64_t member;            /* its row in members; 0: none yet */
    PGconn *conn;              /* NULL: not connected */
    bool is_stuck;             /* the connection takes nothing any more: it is lost */
    bool prepared;             /* its statements are known to it */
    char *session;             /* of this opening, while it holds the archive; NULL: it does not */
    uint64_t taken_at;         /* the number of signs of life when it took it; they never become fewer */
    char *identity;            /* of the database, as connected last; NULL: not known */
    bool is_doubtful;          /* it is another than before, and may lack what others were told is committed */
    _Atomic bool is_fenced;    /* another process has taken over what this one had open */
    bool is_behind;            /* it is not the database that it was: nothing may be changed, but read */
    uint64_t txn;              /* number of the last transaction begun in the session */
    uint64_t committed;        /* of the last that is known to be committed */
    unsigned n_made;           /* connections until now */
    unsigned n_begun;          /* changes when a transaction, and so its cursors, may have ended */
    bool reading;              /* its transaction, if there is one, only reads */
    bool unsettled;            /* the connection went during its COMMIT */
    bool is_warned;            /* since this was false, the server has warned of something */
    bool end_read, begin_read; /* to be said before the next statement, in this order */
    bool looks;                /* the read that begins is no transaction: each answer stands for itself */
    GPtrArray *waiting;        /* see pg_exchange.h; as the next */
    GPtrArray *ahead;
    GPtrArray *known;
    GPtrArray *seen;
    bool is_optimistic; /* the transaction has not begun at the server; see pg_exchange.h */
    bool is_changed;    /* since this was false, what one had read was found to be another when it began */
    int64_t seed;       /* of what tells rows apart: nobody can choose two that are taken for one */
    size_t waiting_bytes;
    GHashTable *sights; /* session of each other member → what it showed last; NULL: nobody looked */
    int64_t looked_us;  /* when that was */
    int64_t rests_us;   /* until then it does not come to lead */
    uint64_t changes;
    int64_t inserted;
    unsigned n_cursors;
    atomic_uint n_trips; /* how often an answer was waited for; for tests */
    PgStatement statements[N_STATEMENTS];
} Pg;

/** Parses a location; nothing is connected yet. */
Pg *ecfs_pg_new (const char *location, bool readonly, GError **error);
void ecfs_pg_free (Pg *self);

/** Connects unless it is connected; a new connection knows no statements. */
bool ecfs_pg_connect (Pg *self, GError **error);
/** Ends the connection. */
void ecfs_pg_hang_up (Pg *self);
/** Whether the connection is lost, or there is none. */
bool ecfs_pg_is_away (const Pg *self);

/** What the server said against @what, as an error; false. @result may be NULL. */
bool ecfs_pg_fail (const Pg *self, const PGresult *result, const char *what, GError **error)
    __attribute__ ((warn_unused_result));
/** Runs SQL without rows; several statements are possible. *@ret_changes: rows that the last changed; may be NULL. */
bool ecfs_pg_run_sql (Pg *self, const char *sql, const char *what, uint64_t *ret_changes, GError **error);
/** Rows as text; PQclear (). NULL with @error. */
PGresult *ecfs_pg_ask_sql (Pg *self, const char *sql, const char *what, GError **error);
#define autoresult __attribute__ ((cleanup (ecfs_pg_clear))) PGresult
void ecfs_pg_clear (PGresult **result);

/** Enters among those who have the archive open for writing; see pg_members.c. */
bool ecfs_pg_take (Pg *self, GError **error);
void ecfs_pg_leave (Pg *self);
/** As who this archive directory has it open, for one that only reads. */
bool ecfs_pg_find_member (Pg *self, GError **error);
/** To be called every few seconds: takes others for dead that are silent, and leads where nobody does. */
bool ecfs_pg_look_around (Pg *self, GError **error);
/** A sign of life. */
bool ecfs_pg_beat (Pg *self, GError **error);
/** Prepares what each change says of the turn: to plan it anew each time would take the server as long as to do it. */
bool ecfs_pg_prepare_turns (Pg *self, GError **error);
/** What gives one, valid as long as the session. */
void ecfs_pg_sign (const Pg *self, struct PgSaying *ret_saying);
bool ecfs_pg_resign (Pg *self, GError **error);
/** Within the transaction that copies a catalog to new tables: what it has begun is that of the archive directory. */
bool ecfs_pg_own_all (Pg *self, GError **error);
/** What members and who leads say to each other (catalog.h). */
bool ecfs_pg_ask_leader (Pg *self, uint64_t sequence, EcfsLeaderAnswer *ret_answer, GError **error);
bool ecfs_pg_wanted (Pg *self, uint64_t *ret_sequence, GError **error);
bool ecfs_pg_answer (Pg *self, uint64_t sequence, const char *trouble, GError **error);
char *ecfs_pg_leader (Pg *self);
bool ecfs_pg_tell_peer (Pg *self, const char *address, GError **error);
GPtrArray *ecfs_pg_peers (Pg *self, GError **error);
char *ecfs_pg_own_host (Pg *self);
/** Why a session is none any more: ESTALE; false. */
bool ecfs_pg_fail_fenced (Pg *self, GError **error);
/** Within the turn: the tables of locks, if they are not there. */
bool ecfs_pg_make_lock_tables (Pg *self, GError **error);
/** Removes locks of those that have no session. */
bool ecfs_pg_sweep_locks (Pg *self, GError **error);
/** See locks.h. */
bool ecfs_pg_lock_set (Pg *self, const EcfsLockOwner *owner, const GArray *ranges, bool *ret_granted, GError **error);
bool ecfs_pg_lock_find (Pg *self, const EcfsLockOwner *owner, const EcfsLockRange *wanted, bool *ret_there,
                        EcfsLockRange *ret_found, GError **error);
/** Sends the end of a read that waits to be sent. */
bool ecfs_pg_end_read (Pg *self, GError **error);
/** BEGIN for writing: the turn of this process, which surely is no other's. */
bool ecfs_pg_begin (Pg *self, GError **error);
/** The same, later: nothing is said to the server yet. */
bool ecfs_pg_begin_optimistic (Pg *self, GError **error);
/** What takes the turn of a transaction that was begun so, and fails where it is no more this process's. */
enum { ECFS_PG_N_TURN = 2 };
void ecfs_pg_turn (Pg *self, struct PgSaying *ret_sayings);
/** After a connection was made anew, before anything is read: whether it is the database that it was, with all that was
 * committed to this process. ESTALE the first time that it is not; then it can be read as it is. */
bool ecfs_pg_check_same (Pg *self, GError **error);
/** Whether the transaction whose COMMIT nobody answered took effect: 1 or 0; -1: @error. */
int ecfs_pg_settle (Pg *self, GError **error);

/** The tables, in a schema that is not there yet or is in nobody's use; within a transaction. EEXIST. */
bool ecfs_pg_make_tables (Pg *self, GError **error);
/** Whether the schema has the tables of this version. */
bool ecfs_pg_check_tables (Pg *self, GError **error);

/* Copies; see pg_copy.c. */

enum { ECFS_PG_N_TABLES = 27, ECFS_PG_MOST_COLUMNS = 20 };

/* All tables that SQLite has as well. */
extern const char *const ecfs_pg_tables[ECFS_PG_N_TABLES];

/* A table's, as the file of SQLite has them. */
typedef struct PgColumns {
    GString *names; /* quoted, with commas */
    GString *marks; /* as many ? */
    ValueType types[ECFS_PG_MOST_COLUMNS];
    int n;
} PgColumns;

typedef struct sqlite3 sqlite3;

bool ecfs_pg_columns_read (sqlite3 *db, const char *path, const char *table, PgColumns *ret_columns, GError **error);
void ecfs_pg_columns_clear (PgColumns *columns);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PgColumns, ecfs_pg_columns_clear)
/** Whether the rows have the types of the columns. */
bool ecfs_pg_columns_fit (const Pg *self, const PgColumns *columns, const PGresult *rows, GError **error);
/** A binary value; its bytes are those of @rows. */
Value ecfs_pg_value (const PGresult *rows, int row, int column, ValueType type);
/** Tells that so many rows were copied; ECANCELED. @how may be NULL. */
bool ecfs_pg_tick (const EcfsPgCopying *how, uint64_t n_rows, GError **error);
/** Nobody uses the tables, which are new, before ecfs_pg_arrived (). */
bool ecfs_pg_set_arriving (Pg *self, GError **error);
/** A connection of its own to the same schema, for reading; not made yet. */
Pg *ecfs_pg_twin (const Pg *self);

/** The connection as a database that prepares nothing yet; @self is the database's. */
EcfsDb *ecfs_pg_wrap (Pg *self);
Pg *ecfs_pg_of (EcfsDb *db);

/** A text of statements.h as PostgreSQL knows it: $1 for ? and ?1, tables with their schema, @member for MINE, without
 * what only SQLite has (INDEXED BY, CROSS JOIN … ON). g_free (). */
char *ecfs_pg_dialect (const char *sql, const char *schema, int64_t member);

#endif
