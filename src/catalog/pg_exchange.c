#include "catalog/pg_exchange.h"

#include <inttypes.h>
#include <libpq-fe.h>

/* One thing of a pipeline. */
typedef struct Said {
    const char *text; /* else it is prepared */
    const char *name; /* of what is prepared, … */
    StatementId id;   /* … which is this, but for SAID_PLAIN */
    const PgParameters *with;
    PgVariant *variant; /* that is prepared */
    bool is_seen;       /* what comes is to be validated */
    enum {
        SAID_PLAIN,
        SAID_MINE, /* fails where the turn is no more this process's */
        SAID_PREPARE,
        SAID_SAME, /* fails where something is another */
        SAID_RUN,
        SAID_AHEAD,
        SAID_LAST,
        SAID_COMMIT,
        SAID_SYNC
    } kind;
} Said;

/* What came back. */
typedef struct Heard {
    PGresult *last;   /* of SAID_LAST; owned */
    PGresult *failed; /* the first that failed; NULL: none did, or the connection; owned */
    gint failed_at;   /* which that is; negative: none */
    uint64_t changes; /* of the last that is SAID_PLAIN */
    bool is_lost;     /* the turn is no more this process's */
    bool committed;
    bool synced; /* the server has done with all of it: what is in no transaction of its own is committed */
} Heard;

void ecfs_pg_exchange_init (Pg *self)
{
    self->tag = g_uuid_string_random ();
    (void) g_strdelimit (self->tag, "-", '_'); /* changed in place */
    self->seed = (int64_t) (((uint64_t) g_random_int () << 32) | g_random_int ());
    ecfs_pg_waiting_init (self);
}

void ecfs_pg_exchange_clear (Pg *self)
{
    g_free (self->tag);
    for (size_t i = 0; i < G_N_ELEMENTS (self->names); i++)
        g_free (self->names[i]);
    ecfs_pg_waiting_clear (self);
}

void ecfs_pg_variant_clear (PgVariant *variant)
{
    g_free (variant->name);
    g_free (variant->sql);
}

PGresult *ecfs_pg_next_result (Pg *self)
{
    PGresult *result = PQgetResult (self->conn);
    while (result != NULL && PQresultStatus (result) != PGRES_PIPELINE_SYNC) {
        PGresult *more = PQgetResult (self->conn);
        if (more == NULL)
            break;
        PQclear (more);
    }
    return result;
}

bool ecfs_pg_is_good (const PGresult *result)
{
    ExecStatusType status = PQresultStatus (result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

/* A statement's text up to its first parenthesis or value names the operation well enough: "INSERT INTO inodes". */
bool ecfs_pg_fail_statement (const Pg *self, const PGresult *result, StatementId id, GError **error)
{
    const char *sql = ecfs_statement_sql (id);
    g_autofree char *what = g_strndup (sql, strcspn (sql, "(?"));
    return ecfs_pg_fail (self, result, g_strchomp (what), error);
}

static void say_text (GArray *all, const char *text, int kind)
{
    const Said said = {.text = text, .kind = (guint) kind};
    g_array_append_val (all, said);
}

static void say (const Pg *self, GArray *all, StatementId id, const PgParameters *with, int kind)
{
    const Said said = {.name = self->statements[id].name, .id = id, .with = with, .kind = (guint) kind};
    g_array_append_val (all, said);
}

static void say_also (GArray *all, const PgSaying *saying, int kind)
{
    const Said said = {.name = saying->name, .with = &saying->with, .kind = (guint) kind};
    g_array_append_val (all, said);
}

/* Optimistic transactions */

#define DIGEST "hashtextextended (CAST (r AS text), %" PRId64 ")"

static void make_variants (const Pg *self, PgStatement *statement)
{
    if (statement->seen.name != NULL)
        return;
    const int n = statement->n_types;
    statement->seen.name = g_strconcat ("seen_", statement->name, NULL);
    statement->seen.sql = g_strdup_printf ("SELECT r.*, " DIGEST " FROM (%s) r", self->seed, statement->sql);
    statement->same.name = g_strconcat ("same_", statement->name, NULL);
    statement->same.sql = g_strdup_printf ("SELECT 1 / CAST (count (*) = $%d AND coalesce (bit_xor (" DIGEST
                                           "), 0) = $%d AS integer) FROM (%s) r",
                                           n + 1, self->seed, n + 2, statement->sql);
}

static bool is_prepared (const Pg *self, const GArray *all, const PgVariant *variant)
{
    bool found = variant->made == self->n_made;
    for (guint i = 0; i < all->len && !found; i++)
        found = g_array_index (all, Said, i).variant == variant;
    return found;
}

static void say_variant (Pg *self, GArray *all, StatementId id, bool seen, const PgParameters *with, int kind)
{
    PgStatement *statement = &self->statements[id];
    make_variants (self, statement);
    PgVariant *variant = seen ? &statement->seen : &statement->same;
    const Said prepare = {.variant = variant, .kind = SAID_PREPARE};
    const Said said = {.name = variant->name, .id = id, .with = with, .is_seen = seen, .kind = (guint) kind};
    if (!is_prepared (self, all, variant))
        g_array_append_val (all, prepare);
    g_array_append_val (all, said);
}

/* What tells the rows from others: how many they are, and what the server has said with each. */
static void note_seen (Pg *self, const Said *said, const PGresult *result)
{
    PgCommand *command = ecfs_pg_command_new (said->id, said->with);
    const int n = PQntuples (result), last = PQnfields (result) - 1;
    int64_t digest = 0;
    for (int i = 0; i < n; i++)
        digest ^= ecfs_pg_value (result, i, last, VALUE_INT).number;
    ecfs_pg_say_number (&command->with, n);
    ecfs_pg_say_number (&command->with, digest);
    g_ptr_array_add (self->seen, command);
}

/* Where a transaction is optimistic, and until then only there: its turn, and whether all is as it was read. */
static void say_turn (Pg *self, GArray *all, PgSaying turn[ECFS_PG_N_TURN])
{
    if (!self->is_optimistic)
        return;
    ecfs_pg_turn (self, turn);
    say_text (all, self->statements[STMT_BEGIN].sql, SAID_PLAIN);
    say_also (all, &turn[0], SAID_PLAIN);
    say_also (all, &turn[1], SAID_MINE);
    for (guint i = 0; i < self->seen->len; i++) {
        const PgCommand *command = g_ptr_array_index (self->seen, i);
        say_variant (self, all, command->id, false, &command->with, SAID_SAME);
    }
}

/* SAVEPOINT and RELEASE are not prepared. */
static void say_waiting (const Pg *self, GArray *all)
{
    for (guint i = 0; i < self->waiting->len; i++) {
        const PgCommand *command = g_ptr_array_index (self->waiting, i);
        if (command->id <= STMT_ROLLBACK_TO)
            say_text (all, self->statements[command->id].sql, SAID_PLAIN);
        else
            say (self, all, command->id, &command->with, SAID_RUN);
    }
}

static void say_ahead (const Pg *self, GArray *all)
{
    for (guint i = 0; i < self->ahead->len; i++) {
        const PgCommand *command = g_ptr_array_index (self->ahead, i);
        say (self, all, command->id, &command->with, SAID_AHEAD);
    }
}

static bool send_one (Pg *self, const Said *said)
{
    if (said->kind == SAID_SYNC)
        return PQpipelineSync (self->conn) == 1;
    if (said->kind == SAID_PREPARE)
        return PQsendPrepare (self->conn, said->variant->name, said->variant->sql, 0, NULL) == 1;
    if (said->text != NULL)
        return PQsendQueryParams (self->conn, said->text, 0, NULL, NULL, NULL, NULL, 1) == 1;
    return PQsendQueryPrepared (self->conn, said->name, said->with->n, said->with->values, said->with->sizes,
                                said->with->formats, 1) == 1;
}

static void take_changes (Pg *self, const PGresult *result)
{
    self->changes = g_ascii_strtoull (PQcmdTuples ((PGresult *) result), NULL, 10);
    if (PQresultStatus (result) == PGRES_TUPLES_OK && PQntuples (result) > 0)
        self->inserted = ecfs_pg_value (result, 0, 0, VALUE_INT).number;
}

static void take_known (Pg *self, const Said *said, PGresult *result)
{
    PgKnown *known = g_new (PgKnown, 1);
    *known = (PgKnown){.command = ecfs_pg_command_new (said->id, said->with), .rows = ecfs_pg_rows_new (result)};
    g_ptr_array_add (self->known, known);
}

/* As what is to fail does. */
static bool is_division (const PGresult *result)
{
    return g_strcmp0 (PQresultErrorField (result, PG_DIAG_SQLSTATE), "22012") == 0;
}

/* Takes @result. */
static void hear (Pg *self, const Said *said, guint at, PGresult *result, Heard *heard)
{
    bool good = ecfs_pg_is_good (result);
    if (!good && heard->failed_at < 0) {
        heard->failed_at = (gint) at;
        heard->failed = result;
        heard->is_lost = said->kind == SAID_MINE && is_division (result);
        self->is_changed = self->is_changed || said->kind == SAID_SAME;
        return;
    }
    if (good && said->is_seen)
        note_seen (self, said, result);
    switch (good ? said->kind : SAID_SYNC) {
    case SAID_PLAIN:
        heard->changes = g_ascii_strtoull (PQcmdTuples (result), NULL, 10);
        break;
    case SAID_PREPARE:
        said->variant->made = self->n_made;
        break;
    case SAID_RUN:
        take_changes (self, result);
        break;
    case SAID_AHEAD:
        take_known (self, said, result);
        return;
    case SAID_LAST:
        heard->last = result;
        return;
    case SAID_COMMIT: /* a failed transaction is rolled back where COMMIT was asked for, without an error */
        heard->committed = strcmp (PQcmdStatus (result), "COMMIT") == 0;
        break;
    default:
        break;
    }
    PQclear (result); /* NULL is accepted */
}

/* In a pipeline everything is one transaction where nothing else says so: only for what is in one. */
static void talk (Pg *self, const GArray *all, Heard *ret_heard)
{
    *ret_heard = (Heard){.failed_at = -1};
    bool sent = PQenterPipelineMode (self->conn) == 1;
    atomic_fetch_add (&self->n_trips, 1);
    for (guint i = 0; sent && i < all->len; i++)
        sent = send_one (self, &g_array_index (all, Said, i));
    for (guint i = 0; i < all->len; i++) {
        const Said *said = &g_array_index (all, Said, i);
        PGresult *result = sent ? ecfs_pg_next_result (self) : NULL;
        if (said->kind != SAID_SYNC) {
            hear (self, said, i, result, ret_heard);
            continue;
        }
        ret_heard->synced = PQresultStatus (result) == PGRES_PIPELINE_SYNC;
        PQclear (result); /* NULL is accepted */
    }
    if (PQexitPipelineMode (self->conn) != 1) {
        g_info ("catalog %s: %s", self->name, PQerrorMessage (self->conn));
        self->is_stuck = true;
    }
}

/* Where something failed: true with @error. */
static bool has_failed (Pg *self, const GArray *all, Heard *heard, GError **error)
{
    if (heard->failed_at < 0)
        return false;
    const Said *said = &g_array_index (all, Said, heard->failed_at);
    const char *what = said->text != NULL                                    ? said->text
                       : said->kind == SAID_PREPARE                          ? "preparing"
                       : said->kind == SAID_SAME                             ? "looking whether it is as it was"
                       : said->kind == SAID_PLAIN || said->kind == SAID_MINE ? "taking its turn"
                                                                             : NULL;
    if (heard->is_lost) {
        PQclear (PQexec (self->conn, "ROLLBACK")); /* whoever looks why needs a transaction that has not failed */
        told (ecfs_pg_fail_fenced (self, error));
    } else {
        told (what != NULL ? ecfs_pg_fail (self, heard->failed, what, error)
                           : ecfs_pg_fail_statement (self, heard->failed, said->id, error));
    }
    PQclear (heard->failed); /* NULL is accepted, also by the next */
    PQclear (heard->last);
    return true;
}

static GArray *new_talk (void)
{
    return g_array_new (FALSE, FALSE, sizeof (Said));
}

/* The beginning of a read, and the end of the one before, wait as well. */
static GArray *say_all_before (Pg *self, PgSaying turn[ECFS_PG_N_TURN])
{
    GArray *all = new_talk ();
    if (self->end_read)
        say_text (all, self->statements[STMT_ROLLBACK].sql, SAID_PLAIN);
    say_turn (self, all, turn);
    if (self->begin_read && !self->looks)
        say_text (all, self->statements[STMT_BEGIN_READ].sql, SAID_PLAIN);
    say_waiting (self, all);
    say_ahead (self, all);
    return all;
}

static bool talk_all (Pg *self, GArray *all, PGresult **ret_last, GError **error)
{
    Heard heard;
    say_text (all, NULL, SAID_SYNC);
    talk (self, all, &heard);
    self->end_read = false;
    self->begin_read = self->begin_read && self->looks;
    self->is_optimistic = false;
    bool good = !has_failed (self, all, &heard, error);
    ecfs_pg_drop_waiting (self);
    g_ptr_array_set_size (self->ahead, 0);
    if (good && ret_last != NULL)
        *ret_last = heard.last;
    return good;
}

bool ecfs_pg_flush (Pg *self, GError **error)
{
    PgSaying turn[ECFS_PG_N_TURN];
    g_autoptr (GArray) all = say_all_before (self, turn);
    return all->len == 0 || talk_all (self, all, NULL, error);
}

static bool may_ahead_be_changed (const Pg *self)
{
    for (guint i = 0; i < self->ahead->len; i++)
        if (ecfs_pg_may_be_changed (self, ((const PgCommand *) g_ptr_array_index (self->ahead, i))->id))
            return true;
    return false;
}

/* Beside an optimistic transaction, where nothing that waits is in the way: what is asked ahead, and one more, unless
 * @with is NULL. */
static bool see (Pg *self, StatementId id, const PgParameters *with, PGresult **ret_last, GError **error)
{
    Heard heard;
    g_autoptr (GArray) all = new_talk ();
    if (self->end_read)
        say_text (all, self->statements[STMT_ROLLBACK].sql, SAID_PLAIN);
    for (guint i = 0; i < self->ahead->len; i++) {
        const PgCommand *command = g_ptr_array_index (self->ahead, i);
        say_variant (self, all, command->id, true, &command->with, SAID_AHEAD);
    }
    if (with != NULL)
        say_variant (self, all, id, true, with, SAID_LAST);
    say_text (all, NULL, SAID_SYNC);
    talk (self, all, &heard);
    self->end_read = false;
    bool good = !has_failed (self, all, &heard, error);
    g_ptr_array_set_size (self->ahead, 0);
    if (good && ret_last != NULL)
        *ret_last = heard.last;
    return good;
}

bool ecfs_pg_fetch_ahead (Pg *self, GError **error)
{
    return self->is_optimistic && !may_ahead_be_changed (self) ? see (self, 0, NULL, NULL, error)
                                                               : ecfs_pg_flush (self, error);
}

PGresult *ecfs_pg_execute (Pg *self, StatementId id, const PgParameters *with, GError **error)
{
    PGresult *result = NULL;
    PgSaying turn[ECFS_PG_N_TURN];
    if (self->is_optimistic && !ecfs_pg_may_be_changed (self, id) && !may_ahead_be_changed (self))
        return see (self, id, with, &result, error) ? result : NULL;
    g_autoptr (GArray) all = say_all_before (self, turn);
    if (all->len > 0) {
        say (self, all, id, with, SAID_LAST);
        return talk_all (self, all, &result, error) ? result : NULL;
    }
    atomic_fetch_add (&self->n_trips, 1);
    result =
        PQexecPrepared (self->conn, self->statements[id].name, with->n, with->values, with->sizes, with->formats, 1);
    if (ecfs_pg_is_good (result))
        return result;
    told (ecfs_pg_fail_statement (self, result, id, error));
    PQclear (result); /* NULL is accepted */
    return NULL;
}

bool ecfs_pg_begin_with (Pg *self, const PgSaying *sayings, size_t n_sayings, uint64_t *ret_changes, GError **error)
{
    Heard heard;
    g_autoptr (GArray) all = new_talk ();
    if (self->end_read)
        say_text (all, self->statements[STMT_ROLLBACK].sql, SAID_PLAIN);
    say_text (all, self->statements[STMT_BEGIN].sql, SAID_PLAIN);
    for (size_t i = 0; i < n_sayings; i++)
        say_also (all, &sayings[i], SAID_PLAIN);
    say_ahead (self, all);
    say_text (all, NULL, SAID_SYNC);
    ecfs_pg_forget (self);
    talk (self, all, &heard);
    self->end_read = false;
    bool good = !has_failed (self, all, &heard, error);
    g_ptr_array_set_size (self->ahead, 0);
    *ret_changes = heard.changes;
    return good;
}

bool ecfs_pg_commit_with (Pg *self, const PgSaying *flush, bool *ret_unsettled, GError **error)
{
    Heard heard;
    PgSaying turn[ECFS_PG_N_TURN];
    *ret_unsettled = false;
    g_autoptr (GArray) all = new_talk ();
    if (self->end_read)
        say_text (all, self->statements[STMT_ROLLBACK].sql, SAID_PLAIN);
    say_turn (self, all, turn);
    say_waiting (self, all);
    say_text (all, self->statements[STMT_COMMIT].sql, SAID_COMMIT);
    if (flush != NULL) /* a transaction of its own, as that has ended; and one answer for both */
        say_also (all, flush, SAID_PLAIN);
    say_text (all, NULL, SAID_SYNC);
    talk (self, all, &heard);
    self->end_read = false;
    ecfs_pg_forget (self);
    g_ptr_array_set_size (self->ahead, 0);
    bool flushed = flush == NULL || (heard.failed_at < 0 && heard.changes == 1 && heard.synced);
    if (heard.committed && !flushed) /* it can be seen, and may not be on the disk */
        ecfs_pg_hang_up (self);
    *ret_unsettled = ecfs_pg_is_away (self);
    if (has_failed (self, all, &heard, error))
        return false;
    return (heard.committed && flushed) ||
           ecfs_fail (error, EIO, "catalog %s: COMMIT: the server rolled back", self->name);
}
