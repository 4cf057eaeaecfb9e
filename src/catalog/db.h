/*
 * The database of the catalog: its lock, transactions, statements and values.
 *
 * One lock serialises the catalog. Every function declared here, and every static function of the folder that takes
 * the catalog, runs with it held; public functions take it, through CHANGE (), CHANGE_DURABLE () and READ ().
 *
 * States of the write transaction:
 *
 *   state    meaning                                  fields                       leaves by
 *   idle     nothing is open                          txn == durable_txn           op_begin: BEGIN
 *   open     operations since BEGIN are in SQLite's   redo, flush_at_us            commit: → idle, or failing
 *            cache and, as statements, in redo
 *   failing  COMMIT failed; the operations were       failure, flush_at_us (the    commit succeeds: → idle
 *            replayed from redo, so they are visible  next try)                    replay fails: → broken (SQLite)
 *   broken   replay failed: operations are lost       broken                       close
 *
 * SQLite rolls a transaction back when its COMMIT fails; redo, the list of changing statements with their values, is
 * what makes "kept in memory and tried again" true. Ids come out the same in the replay: they depend on the database
 * alone.
 *
 * A database that is reached by a connection may be away. Where the connection is lost in the middle of a transaction,
 * the statement that notices it makes it again from redo, for some seconds (revive.c); then the transaction is failing
 * and detached. Where it is lost during COMMIT, the database is asked whether that took effect before anything else.
 * There a replay that fails is tried again, too: it breaks only when another process has taken the archive over.
 *
 * What others change, too (a member), is never made again from redo, which may not fit any more: the transaction is
 * given up, and its operations begin anew. So nobody is told of one before it is committed. An open transaction of a
 * member may be optimistic (optimistic.h): the database hears of it when something of it has to be sent, and of most at
 * COMMIT.
 */
#ifndef ECFS_CATALOG_DB_H
#define ECFS_CATALOG_DB_H

#include "catalog/catalog.h"
#include "catalog/database.h"
#include "catalog/journal.h"
#include "util/lock.h"

#include <inttypes.h>
#include <stdatomic.h>

#define ECFS_CATALOG_APPLICATION_ID 0x65636673 /* "ecfs" */
#define ECFS_CATALOG_VERSION        21
#define ECFS_CODE_MAX               31 /* bytes of a code's text */
#define ECFS_PARAMETERS_MAX         16512

/* What would cost a scan to find out; one row, written with each COMMIT. */
typedef struct Counters {
    uint64_t next_ino;
    uint64_t next_position;
    uint64_t sequence;
    EcfsTotals totals;
} Counters;

/* Readings of the clocks at one moment, and how old the catalog was then; see age.c. */
typedef struct CatalogAge {
    EcfsUuid boot;
    int64_t boot_ns; /* since that boot */
    int64_t real_ns; /* the time of day, since 1970 */
    int64_t age_ns;
} CatalogAge;

/* The counters in their order in the table; the first two are numbers that are given. */
enum { ECFS_COUNTER_SEQUENCE = 2, ECFS_N_COUNTERS = 13 };

/* Numbers that are nobody else's: each from next, up to end. They are lost with the connection, as another server may
 * not know of them. */
typedef struct Ranges {
    unsigned connection; /* on which they were taken; 0: there are none */
    uint64_t next_ino, end_ino;
    uint64_t next_position, end_position;
    uint64_t next_staging, end_staging;
} Ranges;

struct Op;

struct EcfsCatalog {
    EcfsMutex lock;
    atomic_uint n_entering; /* durable callers that are about to take the lock; atomic */
    /* immutable after open */
    char *path;
    bool readonly;
    bool is_member;   /* others may change it, too */
    int64_t group_us; /* how long operations share a transaction */
    EcfsUuid archive;
    uint32_t epoch; /* changed by restore.c only, before anybody else has the catalog */
    pthread_t flusher;
    /* guarded by lock */
    EcfsDb *db;             /* owned */
    CatalogAge age;         /* when it was opened; of a member that does not lead, when it was told last */
    Counters counters;      /* valid in open and failing */
    uint64_t base_sequence; /* the last record's number before the transaction; likewise */
    bool is_optimistic;     /* the transaction is; valid with in_txn (optimistic.h) */
    bool is_settled;        /* its turn has come, and base_sequence is right; likewise */
    Counters guessed;       /* what counters were when it began, which says nothing: only differences do; likewise */
    Counters settled;       /* how much they were more; valid with is_settled */
    Ranges ranges;
    Ranges filled;        /* what the transaction takes; its end_ino 0: nothing */
    unsigned n_turns;     /* transactions that are not to be optimistic */
    int64_t noted_age_ns; /* in the database; negative: noted in another boot */
    bool inherits;        /* it is to lead, and has not read yet how old the catalog is */
    int64_t followed_ns;  /* when the age was read last, since the boot; 0: never */
    unsigned n_marks_removed;
    int64_t deleted_us;   /* by ecfs_now_us (): when a deletion ended last, or at the latest */
    GHashTable *lost;     /* numbers of files that lost content lately; NULL: none did; … */
    GArray *lost_now;     /* … those of them that came since BEGIN, in order; uint64_t */
    int64_t lost_from_ns; /* … since this age */
    bool is_restored;     /* it is made of records, whose times are no proof that a file was young */
    GByteArray *redo;     /* statements since BEGIN */
    GByteArray *record;   /* journal record of the operation that runs */
    uint64_t summed;      /* the record that `sum` is of, for who writes the next; 0: none */
    uint8_t sum[ECFS_JOURNAL_SUM_BYTES];
    bool in_txn;          /* open or failing */
    bool detached;        /* failing, and the database has no transaction: what is in redo is nowhere else */
    guint op_at;          /* where the redo of the operation that runs begins; NO_OP: none runs */
    uint64_t txn;         /* number of the last transaction begun */
    uint64_t durable_txn; /* number of the last one committed */
    bool reading;         /* a read transaction is open; never with in_txn */
    bool has_read;        /* the read that runs has seen something, or an optimistic transaction that is open */
    EcfsAttr touched;     /* of a shared catalog: the directory that a change here touched last, as it left it */
    int64_t touched_us;   /* when; 0: none, or it is another since */
    uint64_t touched_txn; /* the transaction of that */
    unsigned n_waiting;   /* durable callers whose change is made */
    struct Op *waiting;   /* their operations, of a shared catalog */
    unsigned last_group;  /* n_waiting at the last COMMIT */
    int64_t begun_us;
    int64_t beat_at_us;    /* when the next sign of life is due */
    int64_t flush_at_us;   /* when the flusher ends in_txn or reading */
    char *failure;         /* why COMMIT fails, or NULL */
    int failure_code;      /* its errno; valid with failure */
    char *away;            /* why there is no connection, or NULL */
    char *unread;          /* why its numbers could not be read last, as was told, or NULL */
    int64_t connect_at_us; /* when it is tried again; valid with away, as the next */
    int64_t away_us;       /* since when there is none */
    int64_t timeout_us;    /* how long since then operations wait for it */
    char *refusal;         /* why nothing may change that the journal tells, or NULL */
    void (*on_commit) (void *user, uint64_t sequence); /* NULL: nobody wants to know */
    void *on_commit_user;
    bool broken;
    /* Why the database is not the one that it was: it lacks what it had committed, or is another process's. Set once,
     * and then it stays; NULL: it is. Atomic */
    _Atomic (char *) behind;
    bool stopping;
    EcfsCond wake;      /* the flusher: flush_at_us or stopping changed */
    EcfsCond committed; /* durable_txn, failure or broken changed */
};

#define NO_OP G_MAXUINT

/* Where an operation began, for undoing it alone. */
typedef struct Op {
    Counters counters;
    guint redo_size;
    guint n_lost;    /* as lost_now had */
    uint64_t txn;    /* that it is part of */
    bool is_lost;    /* of a shared catalog: that was given up, and nothing of it is left */
    struct Op *next; /* in waiting */
} Op;

/** What the counters say now, within an operation or a read. */
bool ecfs_counters_read (EcfsCatalog *self, Counters *ret_counters, GError **error);
/** One of them, in their order in the table. */
uint64_t *ecfs_counter (Counters *counters, int i);
/** The number that the record of the operation that runs gets, if it writes one. A change that knows that it asks for
 * it says AHEAD_TURN () before, or it waits for its turn in the middle, one round trip more. */
bool ecfs_sequence_next (EcfsCatalog *self, uint64_t *ret_sequence, GError **error);
#define AHEAD_TURN() ecfs_ahead (STMT_COUNTERS_GET, NULL, 0)

/** The sum of the last record, within an operation or a read; zeros: there is none. */
bool ecfs_last_sum (EcfsCatalog *self, uint64_t sequence, uint8_t ret_sum[ECFS_JOURNAL_SUM_BYTES], GError **error);

/** Whether this process does what is done once for all. */
static inline bool ecfs_leads (const EcfsCatalog *self)
{
    return self->db->ops->leads == NULL || self->db->ops->leads (self->db);
}

/* The transaction (txn.c). */

/** Begins it, with the counters as they are. */
bool ecfs_txn_begin (EcfsCatalog *self, GError **error);
/** Ends it, if it is open; false: it failed, or is given up. */
bool ecfs_commit (EcfsCatalog *self, GError **error);
/** Why nothing can be changed now; false. */
bool ecfs_fail_state (const EcfsCatalog *self, GError **error);
/** Ends the snapshot of reads. */
void ecfs_reading_end (EcfsCatalog *self);
bool ecfs_counters_load (EcfsCatalog *self, Counters *ret_counters, GError **error);
/** What is asked outside of transactions waits for the one that is open. */
bool ecfs_step_aside (EcfsCatalog *self, GError **error) ECFS_REQUIRES (self->lock);
/** Writes the record of the operation that runs. */
bool ecfs_journal_append (EcfsCatalog *self, GError **error);
/** The thread that commits what nobody waits for, and gives signs of life; @data is the catalog. */
void *ecfs_flush (void *data);

bool ecfs_op_begin (EcfsCatalog *self, Op *op, GError **error) ECFS_REQUIRES (self->lock);
/** Keeps (@ok) or undoes what was done since op_begin; appends its journal record. Returns @ok unless that fails. */
bool ecfs_op_end (EcfsCatalog *self, Op *op, bool ok, GError **error) ECFS_REQUIRES (self->lock);
/** The same for one that has looked at all that could refuse it before it wrote: a database that is far away is not
 * waited for. What it refuses all the same fails as COMMIT does. */
bool ecfs_op_end_checked (EcfsCatalog *self, Op *op, bool ok, GError **error) ECFS_REQUIRES (self->lock);
/** Returns when all changes up to now are on disk. */
bool ecfs_op_wait (EcfsCatalog *self, Op *op, GError **error) ECFS_REQUIRES (self->lock);
/** The same, but while nobody can tell whether a shared catalog has taken the change it waits for minutes. */
bool ecfs_op_settle (EcfsCatalog *self, Op *op, GError **error) ECFS_REQUIRES (self->lock);
/** As ecfs_op_wait () without an operation of one's own. */
bool ecfs_wait_all (EcfsCatalog *self, GError **error) ECFS_REQUIRES (self->lock);
/** Whether an operation that failed is to be done again from its beginning, as the @tries before were undone with what
 * others had changed meanwhile. Then *@error is cleared. */
bool ecfs_op_again (EcfsCatalog *self, const Op *op, unsigned tries, GError **error);
/** A snapshot for the reads of the next moment; with @looks a shared catalog needs none, as each query of the read
 * stands for itself. */
void ecfs_read_begin (EcfsCatalog *self, bool looks) ECFS_REQUIRES (self->lock);
void ecfs_read_end (EcfsCatalog *self) ECFS_REQUIRES (self->lock);
void ecfs_op_enter (EcfsCatalog *self, bool durable) ECFS_TSA (acquire_capability (self->lock));

/* An operation whose steps are @call, a bool expression that sets @error. It is evaluated again where the catalog is
 * shared, and what it did was undone; there nobody is told of a change that is not committed. */
#define CHANGE_AS(self, error, durable, end, call)                                                                     \
    ({                                                                                                                 \
        Op op_;                                                                                                        \
        bool ok_;                                                                                                      \
        unsigned tries_ = 0;                                                                                           \
        do {                                                                                                           \
            ecfs_op_enter (self, durable);                                                                             \
            ok_ = ecfs_op_begin (self, &op_, error) && end (self, &op_, (call), error) &&                              \
                  (!(durable || (self)->is_member) || ecfs_op_wait (self, &op_, error));                               \
            ecfs_mutex_unlock (&(self)->lock);                                                                         \
        } while (!ok_ && ecfs_op_again (self, &op_, tries_++, error));                                                 \
        ok_;                                                                                                           \
    })
#define CHANGE(self, error, call)         CHANGE_AS (self, error, false, ecfs_op_end, call)
#define CHANGE_CHECKED(self, error, call) CHANGE_AS (self, error, false, ecfs_op_end_checked, call)
#define CHANGE_DURABLE(self, error, call) CHANGE_AS (self, error, true, ecfs_op_end, call)
#define READ(self, call)                  READ_AS (self, false, call)
#define LOOK(self, call)                  READ_AS (self, true, call)
#define READ_AS(self, looks, call)                                                                                     \
    ({                                                                                                                 \
        ecfs_mutex_lock (&(self)->lock);                                                                               \
        ecfs_read_begin (self, looks);                                                                                 \
        __typeof__ (call) result_ = (call);                                                                            \
        ecfs_read_end (self);                                                                                          \
        ecfs_mutex_unlock (&(self)->lock);                                                                             \
        result_;                                                                                                       \
    })

/** Runs a changing statement and notes it in redo. */
bool ecfs_exec (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values, GError **error);
#define EXEC(self, id, error, ...) ecfs_exec (self, STMT_##id, VALUES (__VA_ARGS__), error)

/** The same, and it is done: for who looks at the error, or at what follows. */
bool ecfs_exec_now (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values, GError **error);
#define EXEC_NOW(self, id, error, ...) ecfs_exec_now (self, STMT_##id, VALUES (__VA_ARGS__), error)

/** The sequence of the newest record of the journal that nothing takes back. */
bool ecfs_sequence_get (EcfsCatalog *self, uint64_t *ret_sequence, GError **error);

#define ECFS_IDS_OBJECTS "objects"
#define ECFS_IDS_INTENTS "intents"
#define ECFS_IDS_STAGING "staging"

/** The number that the next row of a table gets which numbers its rows, for the statement that inserts it: nobody has
 * to wait for that one then. Within a change; AHEAD_ID () before. */
bool ecfs_next_id (EcfsCatalog *self, const char *table, int64_t *ret_id, GError **error);
#define AHEAD_ID(table) AHEAD (NEXT_ID, TEXT (table))

/** Rows that the last ecfs_exec_now () changed; the id of the row that it inserted. */
uint64_t ecfs_changes (EcfsCatalog *self);
int64_t ecfs_inserted (EcfsCatalog *self);

/** Runs what is in @redo from @begin to @end again. */
bool ecfs_replay (EcfsCatalog *self, guint begin, guint end, GError **error);

/** Nothing can be read or changed, as the database is away and what was changed is not in it. Always false. */
bool ecfs_fail_detached (const EcfsCatalog *self, GError **error) __attribute__ ((warn_unused_result));

/** After a statement that failed with *@error: whether that was for a lost connection, which is made anew with all that
 * was changed since BEGIN, so that the statement can be run again. Then *@error is cleared. */
bool ecfs_revive (EcfsCatalog *self, GError **error);

/** Of a shared catalog: what was begun is undone, as others may have changed what it was made of. Whoever is to be told
 * of it begins anew. */
void ecfs_give_up (EcfsCatalog *self);
/** Connects within some seconds; when the last attempt failed, once, and not twice in a second. */
bool ecfs_connect_within (EcfsCatalog *self, GError **error);
/** Notes in `behind` an error that nothing mends, as the database is not the one that it was (ESTALE): the next
 * operation breaks the catalog. Other errors are none of these. */
void ecfs_catalog_judge (EcfsCatalog *self, const GError *why);
/** While the database is away, waits until it is there again or timeout_us have passed since it went; before anything
 * of an operation is done, as the lock, which is held, is given back meanwhile. */
void ecfs_await_back (EcfsCatalog *self);
/** Where the database is another than before: waits until it is known to lack nothing. False: it is not, by then. */
bool ecfs_await_no_doubt (EcfsCatalog *self, int64_t until_us);
/** The connection is there again. */
void ecfs_tell_back (EcfsCatalog *self);

/** A query with its values bound; NULL with @error. To be stepped and given to ecfs_query_end (). */
EcfsQuery *ecfs_query (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values, GError **error);
#define QUERY(self, id, error, ...) ecfs_query (self, STMT_##id, VALUES (__VA_ARGS__), error)
/** To be said before CHANGE () or READ (): what that will ask first. A database that is far away is asked all of it at
 * once; nothing else depends on it. The values live until that is done. */
void ecfs_ahead (StatementId id, const Value *values, size_t n_values);
#define AHEAD(id, ...) ecfs_ahead (STMT_##id, VALUES (__VA_ARGS__))
/** Tells the database what was said. */
void ecfs_ahead_take (EcfsCatalog *self);
/** Whether, by what was said, the change had better have its turn from its beginning. */
bool ecfs_ahead_has_turn (const EcfsCatalog *self);
/** What was said last is said again, for a change that begins anew. */
void ecfs_ahead_again (void);

/** 1: a row; 0: no more; -1: @error. */
int ecfs_query_step (EcfsCatalog *self, EcfsQuery *query, GError **error);

/** Runs a query whose first row's first column is a number. 1: there; 0: no row; -1: @error. */
int ecfs_query_number (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values, int64_t *ret_number,
                       GError **error);
#define QUERY_NUMBER(self, id, ret, error, ...) ecfs_query_number (self, STMT_##id, VALUES (__VA_ARGS__), ret, error)

/** Runs a statement without values that is not to be replayed (BEGIN, COMMIT, SAVEPOINT); @what is for messages. */
bool ecfs_control (EcfsCatalog *self, StatementId id, const char *what, GError **error);

/** A row that cannot be: EBADMSG naming it. Always false. */
bool ecfs_bad_row (GError **error, const char *table, int64_t row, const char *what)
    __attribute__ ((warn_unused_result));

int64_t ecfs_real_ns (void);

#endif
