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

struct EcfsCatalog {
    EcfsMutex lock;
    atomic_uint n_entering; /* durable callers that are about to take the lock; atomic */
    /* immutable after open */
    char *path;
    bool readonly;
    EcfsUuid archive;
    uint32_t epoch; /* changed by restore.c only, before anybody else has the catalog */
    CatalogAge age; /* when it was opened */
    pthread_t flusher;
    /* guarded by lock */
    EcfsDb *db;           /* owned */
    Counters counters;    /* valid in open and failing */
    int64_t noted_age_ns; /* in the database; negative: noted in another boot */
    unsigned n_marks_removed;
    int64_t deleted_us;   /* by ecfs_now_us (): when a deletion ended last, or at the latest */
    GHashTable *lost;     /* numbers of files that lost content lately; NULL: none did; … */
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
    bool has_read;        /* something was read in it; valid with reading */
    unsigned n_waiting;   /* durable callers whose change is made */
    unsigned last_group;  /* n_waiting at the last COMMIT */
    int64_t begun_us;
    int64_t beat_at_us;                                /* when the next sign of life is due */
    int64_t flush_at_us;                               /* when the flusher ends in_txn or reading */
    char *failure;                                     /* why COMMIT fails, or NULL */
    int failure_code;                                  /* its errno; valid with failure */
    char *away;                                        /* why there is no connection, or NULL */
    int64_t connect_at_us;                             /* when it is tried again; valid with away, as the next */
    int64_t away_us;                                   /* since when there is none */
    int64_t timeout_us;                                /* how long since then operations wait for it */
    char *refusal;                                     /* why nothing may change that the journal tells, or NULL */
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
} Op;

/** What the counters say now, within an operation or a read. */
bool ecfs_counters_read (EcfsCatalog *self, uint64_t *ret_next_ino, uint64_t *ret_sequence, GError **error);

/** The sum of the last record, within an operation or a read; zeros: there is none. */
bool ecfs_last_sum (EcfsCatalog *self, uint64_t sequence, uint8_t ret_sum[ECFS_JOURNAL_SUM_BYTES], GError **error);

bool ecfs_op_begin (EcfsCatalog *self, Op *op, GError **error) ECFS_REQUIRES (self->lock);
/** Keeps (@ok) or undoes what was done since op_begin; appends its journal record. Returns @ok unless that fails. */
bool ecfs_op_end (EcfsCatalog *self, const Op *op, bool ok, GError **error) ECFS_REQUIRES (self->lock);
/** Returns when all changes up to now are on disk. */
bool ecfs_op_wait (EcfsCatalog *self, GError **error) ECFS_REQUIRES (self->lock);
/** A snapshot for the reads of the next moment. */
void ecfs_read_begin (EcfsCatalog *self) ECFS_REQUIRES (self->lock);
void ecfs_read_end (EcfsCatalog *self) ECFS_REQUIRES (self->lock);
void ecfs_op_enter (EcfsCatalog *self) ECFS_TSA (acquire_capability (self->lock));

/* An operation whose steps are @call, a bool expression that sets @error. */
#define CHANGE(self, error, call)                                                                                      \
    ({                                                                                                                 \
        Op op_;                                                                                                        \
        ecfs_mutex_lock (&(self)->lock);                                                                               \
        bool ok_ = ecfs_op_begin (self, &op_, error) && ecfs_op_end (self, &op_, (call), error);                       \
        ecfs_mutex_unlock (&(self)->lock);                                                                             \
        ok_;                                                                                                           \
    })
#define CHANGE_DURABLE(self, error, call)                                                                              \
    ({                                                                                                                 \
        Op op_;                                                                                                        \
        ecfs_op_enter (self);                                                                                          \
        bool ok_ = ecfs_op_begin (self, &op_, error) && ecfs_op_end (self, &op_, (call), error) &&                     \
                   ecfs_op_wait (self, error);                                                                         \
        ecfs_mutex_unlock (&(self)->lock);                                                                             \
        ok_;                                                                                                           \
    })
#define READ(self, call)                                                                                               \
    ({                                                                                                                 \
        ecfs_mutex_lock (&(self)->lock);                                                                               \
        ecfs_read_begin (self);                                                                                        \
        __typeof__ (call) result_ = (call);                                                                            \
        ecfs_read_end (self);                                                                                          \
        ecfs_mutex_unlock (&(self)->lock);                                                                             \
        result_;                                                                                                       \
    })

/** Runs a changing statement and notes it in redo. */
bool ecfs_exec (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values, GError **error);
#define EXEC(self, id, error, ...) ecfs_exec (self, STMT_##id, VALUES (__VA_ARGS__), error)

/** Rows that the last ecfs_exec () changed; the id of the row that it inserted. */
uint64_t ecfs_changes (EcfsCatalog *self);
int64_t ecfs_inserted (EcfsCatalog *self);

/** Runs what is in @redo from @begin to @end again. */
bool ecfs_replay (EcfsCatalog *self, guint begin, guint end, GError **error);

/** Nothing can be read or changed, as the database is away and what was changed is not in it. Always false. */
bool ecfs_fail_detached (const EcfsCatalog *self, GError **error) __attribute__ ((warn_unused_result));

/** After a statement that failed with *@error: whether that was for a lost connection, which is made anew with all that
 * was changed since BEGIN, so that the statement can be run again. Then *@error is cleared. */
bool ecfs_revive (EcfsCatalog *self, GError **error);

/** Connects within some seconds; when the last attempt failed, once, and not twice in a second. */
bool ecfs_connect_within (EcfsCatalog *self, GError **error);
/** Notes in `behind` an error that nothing mends, as the database is not the one that it was (ESTALE): the next
 * operation breaks the catalog. Other errors are none of these. */
void ecfs_catalog_judge (EcfsCatalog *self, const GError *why);
/** While the database is away, waits until it is there again or timeout_us have passed since it went; before anything
 * of an operation is done, as the lock, which is held, is given back meanwhile. */
void ecfs_await_back (EcfsCatalog *self);
/** The connection is there again. */
void ecfs_tell_back (EcfsCatalog *self);

/** A query with its values bound; NULL with @error. To be stepped and given to ecfs_query_end (). */
EcfsQuery *ecfs_query (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values, GError **error);
#define QUERY(self, id, error, ...) ecfs_query (self, STMT_##id, VALUES (__VA_ARGS__), error)
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
