/*
 * What the files of the catalog share.
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
 *            replayed from redo, so they are visible  next try)                    replay fails: → broken
 *   broken   replay failed: operations are lost       broken                       close
 *
 * SQLite rolls a transaction back when its COMMIT fails; redo, the list of changing statements with their values, is
 * what makes "kept in memory and tried again" true. Ids come out the same in the replay: they depend on the database
 * alone.
 */
#ifndef ECFS_CATALOG_PRIV_H
#define ECFS_CATALOG_PRIV_H

#include "catalog/catalog.h"
#include "catalog/journal.h"
#include "catalog/statements.h"
#include "util/lock.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <stdatomic.h>

#define ECFS_CATALOG_APPLICATION_ID 0x65636673 /* "ecfs" */
#define ECFS_CATALOG_VERSION        14
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
    sqlite3 *db;
    sqlite3_stmt *statements[N_STATEMENTS];
    Counters counters;    /* valid in open and failing */
    int64_t noted_age_ns; /* in the database; negative: noted in another boot */
    GByteArray *redo;     /* statements since BEGIN */
    GByteArray *record;   /* journal record of the operation that runs */
    bool in_txn;          /* open or failing */
    uint64_t txn;         /* number of the last transaction begun */
    uint64_t durable_txn; /* number of the last one committed */
    bool reading;         /* a read transaction is open; never with in_txn */
    unsigned n_waiting;   /* durable callers whose change is made */
    unsigned last_group;  /* n_waiting at the last COMMIT */
    int64_t begun_us;
    int64_t flush_at_us; /* when the flusher ends in_txn or reading */
    char *failure;       /* why COMMIT fails, or NULL */
    int failure_code;    /* its errno; valid with failure */
    char *refusal;       /* why nothing may change that the journal tells, or NULL */
    bool broken;
    bool stopping;
    EcfsCond wake;      /* the flusher: flush_at_us or stopping changed */
    EcfsCond committed; /* durable_txn, failure or broken changed */
};

/* Where an operation began, for undoing it alone. */
typedef struct Op {
    Counters counters;
    guint redo_size;
} Op;

/** What the counters say now, within an operation or a read. */
bool ecfs_counters_read (EcfsCatalog *self, uint64_t *ret_next_ino, uint64_t *ret_sequence, GError **error);

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

/* db.c: statements */

typedef enum ValueType { VALUE_NULL, VALUE_INT, VALUE_BLOB, VALUE_TEXT } ValueType;

typedef struct Value {
    ValueType type;
    int64_t number;    /* or the size of bytes */
    const void *bytes; /* borrowed */
} Value;

#define INT(x)        ((Value){.type = VALUE_INT, .number = (int64_t) (x)})
#define BLOB(b, size) ((Value){.type = VALUE_BLOB, .number = (int64_t) (size), .bytes = (b)})
#define NONE          ((Value){.type = VALUE_NULL})
#define UUID(uuid)    BLOB ((uuid)->bytes, sizeof (uuid)->bytes)
#define NAME(name)    BLOB (name, strlen (name))
#define TEXT(t)       ecfs_value_text (t) /* NULL is SQL's NULL */
#define VALUES(...)   (const Value[]){__VA_ARGS__}, G_N_ELEMENTS (((const Value[]){__VA_ARGS__}))

Value ecfs_value_text (const char *text);

/** Runs a changing statement and notes it in redo. */
bool ecfs_exec (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values, GError **error);
#define EXEC(self, id, error, ...) ecfs_exec (self, STMT_##id, VALUES (__VA_ARGS__), error)

/** Rows that the last ecfs_exec () changed; the id of the row that it inserted. */
uint64_t ecfs_changes (EcfsCatalog *self);
int64_t ecfs_inserted (EcfsCatalog *self);

/** Runs everything in @redo from its start again. */
bool ecfs_replay (EcfsCatalog *self, GError **error);

/** A query with its values bound; NULL with @error. To be stepped and given to ecfs_query_end (). */
sqlite3_stmt *ecfs_query (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values, GError **error);
#define QUERY(self, id, error, ...) ecfs_query (self, STMT_##id, VALUES (__VA_ARGS__), error)
/** 1: a row; 0: no more; -1: @error. */
int ecfs_query_step (EcfsCatalog *self, sqlite3_stmt *query, GError **error);
void ecfs_query_end (sqlite3_stmt **query);
#define autoquery __attribute__ ((cleanup (ecfs_query_end))) sqlite3_stmt

/** Runs a query whose first row's first column is a number. 1: there; 0: no row; -1: @error. */
int ecfs_query_number (EcfsCatalog *self, StatementId id, const Value *values, size_t n_values, int64_t *ret_number,
                       GError **error);
#define QUERY_NUMBER(self, id, ret, error, ...) ecfs_query_number (self, STMT_##id, VALUES (__VA_ARGS__), ret, error)

/** Runs a statement without values that is not to be replayed (BEGIN, COMMIT, SAVEPOINT). */
int ecfs_control (EcfsCatalog *self, StatementId id);

/** Prepares all statements. */
bool ecfs_prepare_all (EcfsCatalog *self, GError **error);
void ecfs_finalize_all (EcfsCatalog *self);

/** Binds values in order; SQLite's code. They are to live as long as the statement uses them. */
int ecfs_bind_all (sqlite3_stmt *statement, const Value *values, size_t n_values);
int ecfs_db_errno (int rc);
/** The one place where SQLite's codes become errnos; @what is the operation. Always false. */
bool ecfs_db_fail (sqlite3 *db, int rc, GError **error, const char *path, const char *what)
    __attribute__ ((warn_unused_result));
/** A row that cannot be: EBADMSG naming it. Always false. */
bool ecfs_bad_row (GError **error, const char *table, int64_t row, const char *what)
    __attribute__ ((warn_unused_result));

/* For functions that say failure by NULL or -1, or by the text of a local error. */
static inline void told (bool failed)
{
    (void) failed;
}

/* Columns of the current row; false when the value is not of that kind. */
bool ecfs_column_u64 (sqlite3_stmt *query, int column, uint64_t max, uint64_t *ret_value);
bool ecfs_column_bytes (sqlite3_stmt *query, int column, void *to, size_t size); /* exactly size */

int64_t ecfs_real_ns (void);

/* age.c */

/** How old the catalog is @now, whose own age is not looked at; never less than @noted. */
int64_t ecfs_age_since (const CatalogAge *noted, const CatalogAge *now);
/** Sets self->age from the database and the clocks. */
bool ecfs_age_load (EcfsCatalog *self, GError **error);
int64_t ecfs_age_ns (const EcfsCatalog *self);
/** Within an operation: writes down how old the catalog is, once a minute. */
bool ecfs_age_note (EcfsCatalog *self, GError **error);

/* schema.c */

/** Makes the tables of the current version in an empty database, or brings an older one there. */
bool ecfs_schema_migrate (sqlite3 *db, const char *path, GError **error);
/** Whether @db is a catalog of a version that this program can read; sets *ret_version. */
bool ecfs_schema_check (sqlite3 *db, const char *path, int *ret_version, GError **error);

/* content_sum.c */

/** The part of an inode's content_sum that is about its sizes. */
uint64_t ecfs_content_sum_sizes (uint64_t ino, uint64_t committed_size, uint64_t data_bytes);
/** The part that is about one extent; @extent->object is a row. */
uint64_t ecfs_content_sum_extent (uint64_t ino, const EcfsExtent *extent);
/** Makes the aggregate function ecfs_content_sum known to @db; a result code of SQLite. */
int ecfs_content_sum_register (sqlite3 *db);

/* inode.c */

typedef struct Inode {
    EcfsAttr attr;
    uint64_t committed_size; /* of the content that extents describe; attr.size may be that of staging */
    bool mtime_is_staged;    /* attr.mtime_ns is that of staged bytes, and the next that of the stored ones */
    int64_t committed_mtime_ns;
    uint64_t extents_sum; /* of all extents, as the row has it; see content_sum.c */
    bool has_code;
    char code[ECFS_CODE_MAX + 1];
} Inode;

/** Reads INODE_COLUMNS from @column on. */
bool ecfs_inode_from_row (sqlite3_stmt *query, int column, Inode *ret_inode, GError **error);
/** What may leave this machine: the size and the modification time of stored content, whatever staging has. */
EcfsAttr ecfs_inode_committed (const Inode *inode);
/** Before attr.mtime_ns becomes that of staged bytes. */
void ecfs_inode_keep_mtime (Inode *inode);
/** ENOENT when there is none. */
bool ecfs_inode_get (EcfsCatalog *self, uint64_t ino, Inode *ret_inode, GError **error);
/** The same for a directory that still has its name: ENOTDIR, ENOENT. */
/** The inode from which what is made in a directory has its code: itself, or the nearest above it that has one; else
 * with has_code false. */
bool ecfs_code_above (EcfsCatalog *self, const Inode *dir, Inode *ret_holder, GError **error);
bool ecfs_inode_get_dir (EcfsCatalog *self, uint64_t ino, Inode *ret_inode, GError **error);
/** Adds and journals a new inode; @target is that of a symlink, else NULL. */
bool ecfs_inode_insert (EcfsCatalog *self, const Inode *inode, const char *target, GError **error);
/** Stores all but nlink and rdev. */
bool ecfs_inode_store (EcfsCatalog *self, const Inode *inode, GError **error);
/** The same, and journals the inode. */
bool ecfs_inode_update (EcfsCatalog *self, const Inode *inode, GError **error);
/** Stores and journals times; the link count too when that @relinked. */
bool ecfs_inode_touch (EcfsCatalog *self, const Inode *inode, bool relinked, GError **error);
/** mtime and ctime of a directory become @now_ns, its link count changes by @links. */
bool ecfs_inode_touch_dir (EcfsCatalog *self, Inode *dir, int links, int64_t now_ns, GError **error);
/** 1..255 bytes, no '/', neither "." nor "..". */
bool ecfs_name_check (const char *name, GError **error);
/** 1: found, *ret_inode set; 0: no such name; -1: @error. */
int ecfs_entry_find (EcfsCatalog *self, uint64_t parent, const char *name, Inode *ret_inode, GError **error);
/** The parent and name (may be NULL; g_free) of one entry of an inode. 1, 0: has none, -1. */
int ecfs_entry_of (EcfsCatalog *self, uint64_t ino, uint64_t *ret_parent, char **ret_name, GError **error);
/** Copies @inode's attributes to @ret_attr where that is not NULL; always true. */
bool ecfs_attr_out (const Inode *inode, EcfsAttr *ret_attr);

/** A name from a row, g_free (); NULL and EBADMSG when it is none. @parent is for the message. */
char *ecfs_column_name (sqlite3_stmt *query, int column, int64_t parent, GError **error);

/* namespace.c */

/** What ecfs_catalog_drop () does. */
bool ecfs_inode_drop (EcfsCatalog *self, uint64_t ino, GError **error);

/** 1, 0, -1. */
int ecfs_dir_is_empty (EcfsCatalog *self, uint64_t ino, GError **error);
/** Whether directory @ino is @above or somewhere in it: 1, 0, -1. */
int ecfs_dir_is_below (EcfsCatalog *self, uint64_t ino, uint64_t above, GError **error);
/** One link less (none for a directory), stored and journalled. */
bool ecfs_inode_lose_name (EcfsCatalog *self, Inode *inode, int64_t now_ns, GError **error);

/* content.c */

/** Removes extents (all, or what lies above @size) and queues objects that lose their last one. */
bool ecfs_content_remove (EcfsCatalog *self, uint64_t ino, GError **error);
/**
 * @inode takes the place of @replaced with content that is not stored yet: what @replaced has is its content until
 * then. Nothing happens where @inode has stored content of its own.
 */
bool ecfs_content_adopt (EcfsCatalog *self, Inode *inode, const Inode *replaced, GError **error);
bool ecfs_content_truncate (EcfsCatalog *self, Inode *inode, uint64_t size, GError **error);

/** The extents of a file, whatever else is known of it. */
GArray *ecfs_extents_list (EcfsCatalog *self, uint64_t ino, GError **error);
/** Sets data_bytes and extents_sum of the inode from its extents: before it is stored, wherever these have changed. */
bool ecfs_content_count (EcfsCatalog *self, Inode *inode, GError **error);
bool ecfs_content_journal (EcfsCatalog *self, const Inode *inode, GError **error);

/* objects.c */

/** Of the objects that @extents named, those that nothing names now are deleted. */
bool ecfs_objects_release (EcfsCatalog *self, const GArray *extents, GError **error);
EcfsObjectRow *ecfs_object_find (EcfsCatalog *self, const EcfsUuid *uuid, int *ret_found, GError **error);
/** The object in the current row of a query for OBJECT_COLUMNS, with its stripes. */
EcfsObjectRow *ecfs_object_load (EcfsCatalog *self, sqlite3_stmt *query, GError **error);
bool ecfs_object_check (const EcfsObjectRow *object, GError **error);
bool ecfs_object_insert (EcfsCatalog *self, const EcfsObjectRow *object, int64_t *ret_id, GError **error);
bool ecfs_object_delete (EcfsCatalog *self, int64_t object, GError **error);
bool ecfs_object_journal (EcfsCatalog *self, const EcfsObjectRow *object, GError **error);
/** Gives an object, whose stripes have been taken from it, the code and the stripes of @new. */
bool ecfs_object_renew (EcfsCatalog *self, const EcfsObjectRow *old, const EcfsObjectRow *new, GError **error);
/** Puts a stripe in the place of @old (NULL: there was none), which is queued for deletion. */
bool ecfs_stripe_swap (EcfsCatalog *self, const EcfsObjectRow *object, const EcfsStripeRow *stripe,
                       const EcfsStripeRow *old, GError **error);
const EcfsStripeRow *ecfs_stripe_at (const EcfsObjectRow *object, unsigned index);

/* pending.c */

/** Queues one stripe for deletion. */
bool ecfs_deletion_queue (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe, bool at_once,
                          GError **error);

typedef struct Intent {
    EcfsUuid object;
    uint32_t epoch;
    uint64_t sequence;
    GArray *stripes; /* of EcfsStripeRow; owned */
} Intent;

/** 1; 0: there is none; -1. To be cleared. */
int ecfs_intent_get (EcfsCatalog *self, int64_t id, Intent *ret_intent, GError **error);
void ecfs_intent_clear (Intent *intent);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Intent, ecfs_intent_clear)
/** Ends an intent; its stripes that are not in @kept (of EcfsStripeRow, may be NULL) go to the deletion queue. */
bool ecfs_intent_end (EcfsCatalog *self, int64_t id, const Intent *intent, const GArray *kept, GError **error);
/** Whether @stripes has this index with this instance on this endpoint. */
bool ecfs_stripes_have (const GArray *stripes, const EcfsStripeRow *stripe);
/** The UUID of an endpoint; ENOENT. */
bool ecfs_endpoint_uuid (EcfsCatalog *self, int64_t endpoint, EcfsUuid *ret_uuid, GError **error);
/** That an endpoint is there and takes stripes; ENOENT, EAGAIN. */
bool ecfs_endpoint_check_active (EcfsCatalog *self, int64_t endpoint, GError **error);
/** Makes it one that was removed, under the name that it has from then on. */
bool ecfs_endpoint_row_retire (EcfsCatalog *self, int64_t id, const char *name, GError **error);
/** EINVAL unless index, instance and endpoint are possible. */
bool ecfs_stripe_check (const EcfsStripeRow *stripe, GError **error);

/* staging.c */

bool ecfs_staging_insert (EcfsCatalog *self, uint64_t ino, bool fresh, int64_t *ret_staging, GError **error);
/** Whether the inode has bytes in staging that were flushed and are not committed: 1, 0, -1. */
int ecfs_staging_queued (EcfsCatalog *self, uint64_t ino, GError **error);
/** Whether the inode has bytes in staging that are not committed: 1, 0, -1. */
int ecfs_staging_unstored (EcfsCatalog *self, uint64_t ino, GError **error);
/** After a publish: the row goes (@full) or becomes STORED. */
bool ecfs_staging_published (EcfsCatalog *self, int64_t staging, uint64_t ino, bool full, GError **error);
bool ecfs_staging_drop_inode (EcfsCatalog *self, uint64_t ino, GError **error);

#endif
