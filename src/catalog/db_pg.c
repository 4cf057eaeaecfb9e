/*
 * Statements of PostgreSQL: prepared, with binary values and rows. What is asked for is read at once, as queries are
 * asked while others are stepped; what may be long is read through a cursor, in parts. What nobody waits for travels
 * with the next statement (pg_exchange.h).
 */
#include "catalog/catalog.h"
#include "catalog/pg_exchange.h"

#include <arpa/inet.h>
#include <endian.h>
#include <libpq-fe.h>

#define PART  1000 /* rows of a cursor that are read at once */
#define TRIES 3    /* to wait for a standby */

typedef struct PgQuery {
    EcfsQuery base;
    Pg *of;
    PgRows *rows;    /* those that were read; NULL: none */
    int row;         /* that it is at, of rows */
    unsigned cursor; /* its number; 0: there is none */
    unsigned begun;  /* n_begun when it was made: else it has ended */
    bool last;       /* no more rows can be read */
} PgQuery;

/* Values */

static bool put_number (PgParameters *to, int i, Oid type, int64_t number)
{
    switch (type) {
    case PG_INT8:
        to->numbers[i] = htobe64 ((uint64_t) number);
        to->sizes[i] = 8;
        return true;
    case PG_INT4:
        to->sizes[i] = 4;
        memcpy (&to->numbers[i], &(uint32_t){htonl ((uint32_t) number)}, 4);
        return number >= INT32_MIN && number <= INT32_MAX;
    default:
        return false;
    }
}

static bool put_value (PgParameters *to, int i, Oid type, const Value *value)
{
    to->formats[i] = 1;
    to->values[i] = value->type == VALUE_INT    ? (const char *) &to->numbers[i]
                    : value->type == VALUE_NULL ? NULL
                    : value->number == 0        ? ""
                                                : value->bytes;
    to->sizes[i] = value->type >= VALUE_BLOB ? (int) value->number : 0;
    if (value->type == VALUE_INT)
        return put_number (to, i, type, value->number);
    return value->type == VALUE_NULL ||
           ((type == PG_BYTEA || type == PG_TEXT) && value->number >= 0 && value->number <= INT_MAX);
}

static bool put_values (const Pg *self, StatementId id, const Value *values, size_t n_values, PgParameters *to,
                        GError **error)
{
    const PgStatement *statement = &self->statements[id];
    to->n = statement->n_types;
    for (int i = 0; i < to->n; i++) {
        Value none = NONE;
        const Value *value = (size_t) i < n_values ? &values[i] : &none;
        if (!put_value (to, i, statement->types[i], value))
            return ecfs_fail (error, ERANGE, "catalog %s: %.40s: value %d is not possible there", self->name,
                              statement->sql, i + 1);
    }
    return true;
}

/* Rows */

static const PGresult *rows_of (EcfsQuery *query)
{
    return ((PgQuery *) query)->rows->result;
}

static int row_of (EcfsQuery *query)
{
    return ((PgQuery *) query)->row;
}

static bool is_null (EcfsQuery *query, int column)
{
    return PQgetisnull (rows_of (query), row_of (query), column) != 0;
}

static bool is_number (EcfsQuery *query, int column, int64_t *ret_number)
{
    const char *bytes = PQgetvalue (rows_of (query), row_of (query), column);
    uint64_t eight;
    uint32_t four;
    *ret_number = 0;
    if (is_null (query, column))
        return false;
    switch (PQftype (rows_of (query), column)) {
    case PG_INT8:
        memcpy (&eight, bytes, sizeof eight);
        *ret_number = (int64_t) be64toh (eight);
        return true;
    case PG_INT4:
        memcpy (&four, bytes, sizeof four);
        *ret_number = (int32_t) ntohl (four);
        return true;
    case PG_BOOL:
        *ret_number = *bytes;
        return true;
    default:
        return false;
    }
}

static int64_t number (EcfsQuery *query, int column)
{
    int64_t value;
    (void) is_number (query, column, &value); /* else it is 0 */
    return value;
}

static size_t size (EcfsQuery *query, int column)
{
    return (size_t) PQgetlength (rows_of (query), row_of (query), column);
}

static const char *text (EcfsQuery *query, int column)
{
    return is_null (query, column) ? NULL : PQgetvalue (rows_of (query), row_of (query), column);
}

static const void *bytes (EcfsQuery *query, int column)
{
    return size (query, column) == 0 ? NULL : text (query, column);
}

/* Transactions */

/* Also in one that a failed statement has ended. */
static bool is_in_transaction (const Pg *self)
{
    return self->begin_read || self->is_optimistic ||
           (!self->end_read && !ecfs_pg_is_away (self) && PQtransactionStatus (self->conn) != PQTRANS_IDLE);
}

static bool roll_back (Pg *self, const char *what, GError **error)
{
    bool nothing = self->begin_read || self->is_optimistic || !is_in_transaction (self);
    self->begin_read = false;
    self->n_begun++;
    ecfs_pg_forget (self);
    if (!nothing && self->session != NULL && self->reading) { /* it goes with the statement behind it */
        self->end_read = true;
        return true;
    }
    if (nothing || ecfs_pg_run_sql (self, "ROLLBACK", what, NULL, error))
        return true;
    if (!ecfs_pg_is_away (self))
        return false;
    g_clear_error (error); /* with the connection the transaction is gone */
    return true;
}

/* A read whose statement failed cannot go on in its transaction. */
static void leave_failed_read (Pg *self)
{
    if (self->reading && PQtransactionStatus (self->conn) == PQTRANS_INERROR)
        (void) roll_back (self, "ROLLBACK", NULL); /* the first error is told */
}

/* Preparing */

static bool is_known (Oid type)
{
    return type == PG_BOOL || type == PG_BYTEA || type == PG_INT8 || type == PG_INT4 || type == PG_TEXT;
}

/* Ids are given by a trigger, as SQLite gives them, where nobody has asked for the next before. */
static bool gives_id (StatementId id)
{
    return id == STMT_ENDPOINT_INSERT;
}

#define PG_SQL_X(id, sql)         sql,
#define PG_SQL_Y(id, sqlite, sql) sql,
static const char *const pg_sql[] = {ECFS_STATEMENTS (PG_SQL_X, PG_SQL_Y)};

static void translate (Pg *self)
{
    for (int i = 0; i < N_STATEMENTS; i++) {
        g_autofree char *sql = ecfs_pg_dialect (pg_sql[i], self->schema, self->member);
        self->statements[i].name = g_strdup_printf ("s%d_%s", i, self->tag);
        self->statements[i].sql = g_strconcat (sql, gives_id ((StatementId) i) ? " RETURNING id" : NULL, NULL);
    }
}

static bool take_types (const Pg *self, StatementId id, const PGresult *described, PgStatement *statement,
                        GError **error)
{
    for (int i = 0; i < PQnfields (described); i++)
        if (!is_known (PQftype (described, i)))
            return ecfs_fail (error, EBADMSG, "catalog %s: statement %d, column %d: type %u is not expected",
                              self->name, (int) id, i + 1, PQftype (described, i));
    statement->n_types = PQnparams (described);
    g_free (statement->types);
    statement->types = g_new (Oid, statement->n_types + 1);
    for (int i = 0; i < statement->n_types; i++) {
        statement->types[i] = PQparamtype (described, i);
        if (!is_known (statement->types[i]))
            return ecfs_fail (error, EBADMSG, "catalog %s: statement %d, value %d: type %u is not expected", self->name,
                              (int) id, i + 1, statement->types[i]);
    }
    return true;
}

static bool send_all (Pg *self)
{
    bool sent = PQenterPipelineMode (self->conn) == 1;
    for (int i = STMT_ROLLBACK_TO + 1; sent && i < N_STATEMENTS; i++) {
        const PgStatement *statement = &self->statements[i];
        sent = PQsendPrepare (self->conn, statement->name, statement->sql, 0, NULL) == 1 &&
               PQsendDescribePrepared (self->conn, statement->name) == 1;
    }
    return sent && PQpipelineSync (self->conn) == 1;
}

static bool receive_all (Pg *self, GError **error)
{
    bool good = true;
    for (int i = STMT_ROLLBACK_TO + 1; i < N_STATEMENTS; i++) {
        StatementId id = (StatementId) i;
        autoresult *prepared = ecfs_pg_next_result (self);
        autoresult *described = ecfs_pg_next_result (self);
        if (good && !ecfs_pg_is_good (prepared))
            good = ecfs_pg_fail_statement (self, prepared, id, error);
        else if (good && !ecfs_pg_is_good (described))
            good = ecfs_pg_fail_statement (self, described, id, error);
        else if (good)
            good = take_types (self, id, described, &self->statements[i], error);
    }
    PQclear (ecfs_pg_next_result (self)); /* of the sync */
    return good;
}

static bool prepare_statements (Pg *self, GError **error)
{
    if (self->prepared)
        return true;
    self->prepared = send_all (self) ? receive_all (self, error) : ecfs_pg_fail (self, NULL, "preparing", error);
    (void) PQexitPipelineMode (self->conn); /* a lost connection is told */
    self->prepared = self->prepared && ecfs_pg_prepare_turns (self, error);
    if (!self->prepared)
        ecfs_pg_hang_up (self); /* which knows some of them */
    return self->prepared;
}

static bool prepare (EcfsDb *db, GError **error)
{
    return prepare_statements ((Pg *) db, error);
}

/* Statements */

/* It is done when somebody waits for it, or for what comes behind it. */
static bool run (EcfsDb *db, StatementId id, const Value *values, size_t n_values, GError **error)
{
    Pg *self = (Pg *) db;
    PgParameters with;
    if (!put_values (self, id, values, n_values, &with, error) ||
        (ecfs_pg_is_full (self) && !ecfs_pg_flush (self, error)))
        return false;
    ecfs_pg_defer (self, id, &with);
    return is_in_transaction (self) || ecfs_pg_flush (self, error);
}

static bool await (EcfsDb *db, GError **error)
{
    return ecfs_pg_flush ((Pg *) db, error);
}

static void ahead (EcfsDb *db, StatementId id, const Value *values, size_t n_values)
{
    Pg *self = (Pg *) db;
    PgParameters with;
    if (self->prepared && put_values (self, id, values, n_values, &with, NULL)) /* whoever asks it is told */
        ecfs_pg_ask_ahead (self, id, &with);
}

static bool in_transaction (EcfsDb *db)
{
    const Pg *self = (Pg *) db;
    return is_in_transaction (self) &&
           (self->begin_read || self->is_optimistic || PQtransactionStatus (self->conn) != PQTRANS_INERROR);
}

static bool is_optimistic (EcfsDb *db)
{
    return ((Pg *) db)->is_optimistic;
}

static bool was_changed (EcfsDb *db)
{
    Pg *self = (Pg *) db;
    bool was = self->is_changed;
    self->is_changed = false;
    return was;
}

static bool reconnect (EcfsDb *db, GError **error)
{
    Pg *self = (Pg *) db;
    return ecfs_pg_connect (self, error) && prepare_statements (self, error);
}

static int settle (EcfsDb *db, GError **error)
{
    return reconnect (db, error) ? ecfs_pg_settle ((Pg *) db, error) : -1;
}

/* Somebody may have ended the wait for a standby: what commits behind that waits for all before it. */
static void await_standby (Pg *self)
{
    for (unsigned i = 0; self->is_warned && i < TRIES; i++) {
        self->is_warned = false;
        g_autoptr (GError) why = NULL;
        if (!ecfs_pg_beat (self, &why))
            g_warning ("%s", why->message); /* the next change finds out what the server has then */
    }
    if (self->is_warned)
        g_critical ("catalog %s: changes are on the server's disk, but no standby is known to have them", self->name);
}

static bool commit (Pg *self, GError **error)
{
    PgSaying flush;
    if (self->is_member)
        ecfs_pg_sign (self, &flush);
    self->is_warned = false;
    self->n_begun++;
    if (!ecfs_pg_commit_with (self, self->is_member ? &flush : NULL, &self->unsettled, error))
        return false;
    self->committed = self->txn;
    await_standby (self);
    return true;
}

static bool roll_back_to (Pg *self, const char *what, GError **error)
{
    return ecfs_pg_take_back (self) ||
           ecfs_pg_run_sql (self, self->statements[STMT_ROLLBACK_TO].sql, what, NULL, error);
}

static void set_savepoint (Pg *self)
{
    const PgParameters none = {.n = 0};
    ecfs_pg_defer (self, STMT_SAVEPOINT, &none);
}

static bool control (EcfsDb *db, StatementId id, const char *what, GError **error)
{
    Pg *self = (Pg *) db;
    switch (id) {
    case STMT_BEGIN: /* one that failed may be open */
        self->reading = false;
        return roll_back (self, what, error) && ecfs_pg_begin (self, error);
    case STMT_BEGIN_OPTIMISTIC:
        self->reading = false;
        return roll_back (self, what, error) && ecfs_pg_begin_optimistic (self, error);
    case STMT_BEGIN_READ:
    case STMT_BEGIN_LOOK:
        if (!roll_back (self, what, error))
            return false;
        self->begin_read = self->reading = true;
        self->looks = id == STMT_BEGIN_LOOK;
        return true;
    case STMT_COMMIT:
        return commit (self, error);
    case STMT_ROLLBACK:
        return roll_back (self, what, error);
    case STMT_SAVEPOINT:
        set_savepoint (self);
        return true;
    case STMT_RELEASE:
        ecfs_pg_release (self);
        return true;
    default:
        return roll_back_to (self, what, error);
    }
}

bool ecfs_pg_end_read (Pg *self, GError **error)
{
    if (!self->end_read)
        return true;
    self->end_read = false;
    return ecfs_pg_run_sql (self, self->statements[STMT_ROLLBACK].sql, "reading", NULL, error);
}

static uint64_t changes (EcfsDb *db)
{
    return ((Pg *) db)->changes;
}

static int64_t inserted (EcfsDb *db)
{
    return ((Pg *) db)->inserted;
}

/* Queries */

static bool fetch (PgQuery *self, GError **error)
{
    char sql[64];
    if (self->begun != self->of->n_begun)
        return ecfs_fail (error, EIO, "catalog %s: the connection was lost while it was read", self->of->name);
    g_snprintf (sql, sizeof sql, "FETCH %d FROM c%u", PART, self->cursor);
    if (!ecfs_pg_flush (self->of, error))
        return false;
    ecfs_pg_rows_unref (self->rows); /* NULL is accepted */
    self->rows = ecfs_pg_rows_new (PQexecParams (self->of->conn, sql, 0, NULL, NULL, NULL, NULL, 1));
    if (PQresultStatus (self->rows->result) != PGRES_TUPLES_OK) {
        told (ecfs_pg_fail (self->of, self->rows->result, "reading", error));
        leave_failed_read (self->of);
        return false;
    }
    self->row = 0;
    self->last = PQntuples (self->rows->result) < PART;
    return true;
}

static int step (EcfsQuery *query, GError **error)
{
    PgQuery *self = (PgQuery *) query;
    self->row++;
    bool more = self->rows != NULL && self->row < PQntuples (self->rows->result);
    if (!more && !self->last && !fetch (self, error))
        return -1;
    return self->rows != NULL && self->row < PQntuples (self->rows->result) ? 1 : 0;
}

static void end (EcfsQuery *query)
{
    PgQuery *self = (PgQuery *) query;
    char sql[32];
    g_snprintf (sql, sizeof sql, "CLOSE c%u", self->cursor);
    if (self->cursor != 0 && self->begun == self->of->n_begun && !ecfs_pg_is_away (self->of) &&
        PQtransactionStatus (self->of->conn) == PQTRANS_INTRANS)
        (void) ecfs_pg_run_sql (self->of, sql, "reading", NULL, NULL); /* it ends with the transaction */
    ecfs_pg_rows_unref (self->rows);                                   /* NULL is accepted */
    g_free (self);
}

static const QueryOps query_ops = {.step = step,
                                   .end = end,
                                   .is_null = is_null,
                                   .is_number = is_number,
                                   .number = number,
                                   .bytes = bytes,
                                   .size = size,
                                   .text = text};

static PgQuery *new_query (Pg *self)
{
    PgQuery *query = g_new0 (PgQuery, 1);
    *query = (PgQuery){.base.ops = &query_ops, .of = self, .begun = self->n_begun, .row = -1, .last = true};
    return query;
}

/* What reads a table to its end, or has a limit that is none. */
static bool may_be_long (StatementId id, const Value *values, size_t n_values)
{
    switch (id) {
    case STMT_INODE_LIST:
    case STMT_CONTENT_LIST:
    case STMT_EXTENT_LIST_ALL:
    case STMT_ENTRY_LIST_ALL:
    case STMT_XATTR_LIST_ALL:
    case STMT_DELETION_LIST_ALL:
        return true;
    default:
        return n_values > 0 && g_str_has_suffix (pg_sql[id], "LIMIT ?") &&
               (uint64_t) values[n_values - 1].number > 10 * PART;
    }
}

/* A cursor is of a transaction; what needs none is asked within one all the same, as READ () and CHANGE () see to. */
static PGresult *declare (Pg *self, StatementId id, const PgParameters *with, PgQuery *query)
{
    const PgStatement *statement = &self->statements[id];
    query->cursor = ++self->n_cursors;
    query->last = false;
    g_autofree char *sql = g_strdup_printf ("DECLARE c%u NO SCROLL CURSOR FOR %s", query->cursor, statement->sql);
    return PQexecParams (self->conn, sql, with->n, statement->types, with->values, with->sizes, with->formats, 1);
}

static bool begin_cursor (Pg *self, StatementId id, const PgParameters *with, PgQuery *query, GError **error)
{
    if (!ecfs_pg_flush (self, error))
        return false;
    autoresult *declared = declare (self, id, with, query);
    return ecfs_pg_is_good (declared) || ecfs_pg_fail_statement (self, declared, id, error);
}

static bool read_at_once (Pg *self, StatementId id, const PgParameters *with, PgQuery *query, GError **error)
{
    const bool is_open = is_in_transaction (self);
    if (is_open && ecfs_pg_is_ahead (self, id, with) && !ecfs_pg_fetch_ahead (self, error))
        return false;
    query->rows = is_open ? ecfs_pg_known (self, id, with) : NULL;
    if (query->rows != NULL)
        return true;
    PGresult *rows = ecfs_pg_execute (self, id, with, error);
    if (rows == NULL)
        return false;
    query->rows = ecfs_pg_rows_new (rows);
    return true;
}

/* Whoever asks ahead has use for all of it. */
static bool was_asked_ahead (const Pg *self, StatementId id, const PgParameters *with)
{
    PgRows *rows = ecfs_pg_known (self, id, with);
    const bool was = rows != NULL || ecfs_pg_is_ahead (self, id, with);
    ecfs_pg_rows_unref (rows); /* NULL is accepted */
    return was;
}

static EcfsQuery *query (EcfsDb *db, StatementId id, const Value *values, size_t n_values, GError **error)
{
    Pg *self = (Pg *) db;
    PgParameters with;
    PgQuery *query = new_query (self);
    bool is_put = put_values (self, id, values, n_values, &with, error);
    bool in_parts =
        is_put && may_be_long (id, values, n_values) && is_in_transaction (self) && !was_asked_ahead (self, id, &with);
    if (is_put &&
        (in_parts ? begin_cursor (self, id, &with, query, error) : read_at_once (self, id, &with, query, error)))
        return &query->base;
    query->cursor = 0;
    end (&query->base);
    leave_failed_read (self);
    return NULL;
}

static EcfsQuery *ask (EcfsDb *db, const char *sql, GError **error)
{
    Pg *self = (Pg *) db;
    g_autofree char *own = ecfs_pg_dialect (sql, self->schema, self->member);
    if (!ecfs_pg_flush (self, error))
        return NULL;
    PgQuery *query = new_query (self);
    query->rows = ecfs_pg_rows_new (PQexecParams (self->conn, own, 0, NULL, NULL, NULL, NULL, 1));
    if (PQresultStatus (query->rows->result) == PGRES_TUPLES_OK ||
        ecfs_pg_fail (self, query->rows->result, "checking it", error))
        return &query->base;
    end (&query->base);
    return NULL;
}

/* Where it sorts is for those to say who run the server. */
static bool set_memory (EcfsDb *db, bool on_disk, GError **error)
{
    return true;
}

/* Being away */

static bool is_taken_over (EcfsDb *db)
{
    return atomic_load (&((Pg *) db)->is_fenced);
}

static bool is_away (EcfsDb *db)
{
    return ecfs_pg_is_away ((Pg *) db);
}

static bool beat (EcfsDb *db, GError **error)
{
    return reconnect (db, error) && ecfs_pg_beat ((Pg *) db, error);
}

static bool harden (EcfsDb *db, GError **error)
{
    Pg *self = (Pg *) db;
    if (ecfs_pg_is_away (self))
        return ecfs_fail (error, EIO, "catalog %s: the connection is lost", self->name);
    return ecfs_pg_beat (self, error);
}

static bool look_around (EcfsDb *db, bool *ret_leads, GError **error)
{
    Pg *self = (Pg *) db;
    bool good = reconnect (db, error) && ecfs_pg_look_around (self, error);
    *ret_leads = self->leads;
    return good;
}

static bool ask_leader (EcfsDb *db, uint64_t sequence, EcfsLeaderAnswer *ret_answer, GError **error)
{
    return reconnect (db, error) && ecfs_pg_ask_leader ((Pg *) db, sequence, ret_answer, error);
}

static bool wanted (EcfsDb *db, uint64_t *ret_sequence, GError **error)
{
    return reconnect (db, error) && ecfs_pg_wanted ((Pg *) db, ret_sequence, error);
}

static bool answer (EcfsDb *db, uint64_t sequence, const char *trouble, GError **error)
{
    return reconnect (db, error) && ecfs_pg_answer ((Pg *) db, sequence, trouble, error);
}

static char *leader (EcfsDb *db)
{
    return reconnect (db, NULL) ? ecfs_pg_leader ((Pg *) db) : NULL;
}

static bool tell_peer (EcfsDb *db, const char *address, GError **error)
{
    return reconnect (db, error) && ecfs_pg_tell_peer ((Pg *) db, address, error);
}

static GPtrArray *peers (EcfsDb *db, GError **error)
{
    return reconnect (db, error) ? ecfs_pg_peers ((Pg *) db, error) : NULL;
}

static char *own_host (EcfsDb *db)
{
    return reconnect (db, NULL) ? ecfs_pg_own_host ((Pg *) db) : NULL;
}

static bool lock_set (EcfsDb *db, const EcfsLockOwner *owner, const GArray *ranges, bool *ret_granted, GError **error)
{
    return reconnect (db, error) && ecfs_pg_lock_set ((Pg *) db, owner, ranges, ret_granted, error);
}

static bool lock_find (EcfsDb *db, const EcfsLockOwner *owner, const EcfsLockRange *wanted, bool *ret_there,
                       EcfsLockRange *ret_found, GError **error)
{
    return reconnect (db, error) && ecfs_pg_lock_find ((Pg *) db, owner, wanted, ret_there, ret_found, error);
}

static unsigned n_connections (EcfsDb *db)
{
    return ((Pg *) db)->n_made;
}

static bool resign (EcfsDb *db, GError **error)
{
    return reconnect (db, error) && ecfs_pg_resign ((Pg *) db, error);
}

static bool is_doubtful (EcfsDb *db)
{
    return ((Pg *) db)->is_doubtful;
}

static void end_doubt (EcfsDb *db)
{
    ((Pg *) db)->is_doubtful = false;
}

static bool leads (EcfsDb *db)
{
    return ((Pg *) db)->leads;
}

static void close_db (EcfsDb *db)
{
    Pg *self = (Pg *) db;
    ecfs_pg_leave (self);
    ecfs_pg_free (self);
}

static const DbOps db_ops = {.prepare = prepare,
                             .run = run,
                             .await = await,
                             .is_optimistic = is_optimistic,
                             .was_changed = was_changed,
                             .ahead = ahead,
                             .control = control,
                             .query = query,
                             .changes = changes,
                             .inserted = inserted,
                             .in_transaction = in_transaction,
                             .set_memory = set_memory,
                             .ask = ask,
                             .is_away = is_away,
                             .is_taken_over = is_taken_over,
                             .reconnect = reconnect,
                             .settle = settle,
                             .beat = beat,
                             .harden = harden,
                             .look_around = look_around,
                             .leads = leads,
                             .resign = resign,
                             .is_doubtful = is_doubtful,
                             .end_doubt = end_doubt,
                             .ask_leader = ask_leader,
                             .wanted = wanted,
                             .answer = answer,
                             .leader = leader,
                             .tell_peer = tell_peer,
                             .peers = peers,
                             .own_host = own_host,
                             .lock_set = lock_set,
                             .lock_find = lock_find,
                             .n_connections = n_connections,
                             .close = close_db};

EcfsDb *ecfs_pg_wrap (Pg *self)
{
    self->base.ops = &db_ops;
    translate (self);
    return &self->base;
}

Pg *ecfs_pg_of (EcfsDb *db)
{
    return db->ops == &db_ops ? (Pg *) db : NULL;
}
