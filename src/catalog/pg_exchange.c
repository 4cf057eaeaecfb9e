#include "catalog/pg_exchange.h"

#include <inttypes.h>
#include <libpq-fe.h>

#define MOST_WAITING 64 /* statements, … */
#define MOST_BYTES   (64u << 10)
#define MOST_AHEAD   16

/* A statement with values of its own. */
typedef struct Command {
    StatementId id;
    PgParameters with; /* its values are bytes, or its own numbers */
    size_t size;
    char bytes[];
} Command;

/* What the server said before it was asked. */
typedef struct Known {
    Command *command;
    PgRows *rows;
} Known;

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

/* Rows and commands */

static int one_more (PgParameters *self)
{
    g_assert (self->n < ECFS_PG_MOST_VALUES);
    self->formats[self->n] = 1;
    return self->n++;
}

void ecfs_pg_say_number (PgSaying *self, int64_t number)
{
    const int i = one_more (&self->with);
    self->with.numbers[i] = GUINT64_TO_BE ((uint64_t) number);
    self->with.values[i] = (const char *) &self->with.numbers[i];
    self->with.sizes[i] = sizeof self->with.numbers[i];
}

void ecfs_pg_say_text (PgSaying *self, const char *text)
{
    const int i = one_more (&self->with);
    self->with.values[i] = text;
    self->with.sizes[i] = (int) strlen (text);
}

PgRows *ecfs_pg_rows_new (PGresult *result)
{
    PgRows *self = g_rc_box_new (PgRows);
    self->result = result;
    return self;
}

static void clear_rows (gpointer data)
{
    PQclear (((PgRows *) data)->result); /* NULL is accepted */
}

void ecfs_pg_rows_unref (PgRows *self)
{
    if (self != NULL)
        g_rc_box_release_full (self, clear_rows);
}

static Command *copy (StatementId id, const PgParameters *with)
{
    size_t size = 0;
    for (int i = 0; i < with->n; i++)
        size += (size_t) with->sizes[i];
    Command *self = g_malloc (sizeof *self + size);
    self->id = id;
    self->with = *with;
    self->size = size;
    char *to = self->bytes;
    for (int i = 0; i < with->n; i++) {
        const char *from = with->values[i];
        bool is_own = from == (const char *) &with->numbers[i];
        if (from == NULL)
            continue;
        self->with.values[i] = is_own ? (const char *) &self->with.numbers[i] : to;
        if (!is_own && with->sizes[i] > 0)
            memcpy (to, from, (size_t) with->sizes[i]);
        to += is_own ? 0 : with->sizes[i];
    }
    return self;
}

static bool is_same (const Command *self, StatementId id, const PgParameters *with)
{
    bool same = self->id == id && self->with.n == with->n;
    for (int i = 0; same && i < with->n; i++)
        same = (self->with.values[i] == NULL) == (with->values[i] == NULL) && self->with.sizes[i] == with->sizes[i] &&
               (with->sizes[i] == 0 || memcmp (self->with.values[i], with->values[i], (size_t) with->sizes[i]) == 0);
    return same;
}

static void free_known (gpointer data)
{
    Known *self = data;
    g_free (self->command);
    ecfs_pg_rows_unref (self->rows);
    g_free (self);
}

/* What waits */

void ecfs_pg_exchange_init (Pg *self)
{
    self->tag = g_uuid_string_random ();
    (void) g_strdelimit (self->tag, "-", '_'); /* changed in place */
    self->waiting = g_ptr_array_new_with_free_func (g_free);
    self->ahead = g_ptr_array_new_with_free_func (g_free);
    self->known = g_ptr_array_new_with_free_func (free_known);
    self->seen = g_ptr_array_new_with_free_func (g_free);
    self->seed = (int64_t) (((uint64_t) g_random_int () << 32) | g_random_int ());
}

void ecfs_pg_exchange_clear (Pg *self)
{
    g_free (self->tag);
    for (size_t i = 0; i < G_N_ELEMENTS (self->names); i++)
        g_free (self->names[i]);
    g_ptr_array_unref (self->waiting);
    g_ptr_array_unref (self->ahead);
    g_ptr_array_unref (self->known);
    g_ptr_array_unref (self->seen);
}

void ecfs_pg_variant_clear (PgVariant *variant)
{
    g_free (variant->name);
    g_free (variant->sql);
}

static void drop_one (Pg *self, guint i)
{
    self->waiting_bytes -= ((const Command *) g_ptr_array_index (self->waiting, i))->size;
    g_ptr_array_remove_index (self->waiting, i);
}

static void drop_waiting (Pg *self, guint from)
{
    while (self->waiting->len > from)
        drop_one (self, self->waiting->len - 1);
}

void ecfs_pg_forget (Pg *self)
{
    drop_waiting (self, 0);
    g_ptr_array_set_size (self->known, 0);
    g_ptr_array_set_size (self->seen, 0);
    self->is_optimistic = false;
}

/* The table that a statement changes, with what is before it; NULL: who knows. Triggers change what nobody asks. */
static char *table_of (const char *sql)
{
    static const char *const verbs[] = {"INSERT INTO ", "DELETE FROM ", "UPDATE "};
    for (size_t i = 0; i < G_N_ELEMENTS (verbs); i++)
        if (g_str_has_prefix (sql, verbs[i])) {
            const char *table = sql + strlen (verbs[i]);
            return g_strndup (table, strcspn (table, " ("));
        }
    return NULL;
}

static bool mentions (const char *sql, const char *table)
{
    const size_t n = strlen (table);
    for (const char *at = strstr (sql, table); at != NULL; at = strstr (at + n, table))
        if (!g_ascii_isalnum (at[n]) && at[n] != '_')
            return true;
    return false;
}

/* Whether what is known is the number of the next row of @table (with its schema). */
static bool is_next_of (const Command *command, const char *table)
{
    const size_t n = command->id == STMT_NEXT_ID ? (size_t) command->with.sizes[0] : 0, length = strlen (table);
    return n > 0 && n < length && table[length - n - 1] == '.' &&
           memcmp (table + length - n, command->with.values[0], n) == 0;
}

/* What a statement that is about to run may change is not known any more. */
static void forget_changed (Pg *self, StatementId id)
{
    if (self->known->len == 0 || id <= STMT_ROLLBACK_TO)
        return;
    g_autofree char *table = table_of (self->statements[id].sql);
    for (guint i = self->known->len; i-- > 0;) {
        const Known *known = g_ptr_array_index (self->known, i);
        if (table == NULL || mentions (self->statements[known->command->id].sql, table) ||
            is_next_of (known->command, table))
            g_ptr_array_remove_index_fast (self->known, i);
    }
}

/* Whether what waits may change what is asked for, or what a trigger changes. */
static bool may_be_changed (const Pg *self, StatementId id)
{
    for (guint i = 0; i < self->waiting->len; i++) {
        const StatementId waiting = ((const Command *) g_ptr_array_index (self->waiting, i))->id;
        g_autofree char *table = waiting <= STMT_ROLLBACK_TO ? NULL : table_of (self->statements[waiting].sql);
        if (waiting > STMT_ROLLBACK_TO &&
            (table == NULL || id == STMT_NEXT_ID || mentions (self->statements[id].sql, table)))
            return true;
    }
    return false;
}

void ecfs_pg_defer (Pg *self, StatementId id, const PgParameters *with)
{
    Command *command = copy (id, with);
    forget_changed (self, id);
    g_ptr_array_add (self->waiting, command);
    self->waiting_bytes += command->size;
}

bool ecfs_pg_is_full (const Pg *self)
{
    return self->waiting->len >= MOST_WAITING || self->waiting_bytes >= MOST_BYTES;
}

static StatementId waiting_id (const Pg *self, guint i)
{
    return ((const Command *) g_ptr_array_index (self->waiting, i))->id;
}

/* How much waits up to the last SAVEPOINT, and with it; 0: it was sent, or there is none. */
static guint up_to_savepoint (const Pg *self)
{
    guint n = self->waiting->len;
    while (n > 0 && waiting_id (self, n - 1) != STMT_SAVEPOINT)
        n--;
    return n;
}

bool ecfs_pg_take_back (Pg *self)
{
    guint n = up_to_savepoint (self);
    g_ptr_array_set_size (self->known, 0);
    drop_waiting (self, n);
    return n > 0;
}

void ecfs_pg_release (Pg *self)
{
    const PgParameters none = {.n = 0};
    guint n = up_to_savepoint (self);
    if (n > 0)
        drop_one (self, n - 1);
    else
        ecfs_pg_defer (self, STMT_RELEASE, &none);
}

void ecfs_pg_ask_ahead (Pg *self, StatementId id, const PgParameters *with)
{
    if (self->ahead->len < MOST_AHEAD && !ecfs_pg_is_ahead (self, id, with))
        g_ptr_array_add (self->ahead, copy (id, with));
}

bool ecfs_pg_is_ahead (const Pg *self, StatementId id, const PgParameters *with)
{
    for (guint i = 0; i < self->ahead->len; i++)
        if (is_same (g_ptr_array_index (self->ahead, i), id, with))
            return true;
    return false;
}

PgRows *ecfs_pg_known (const Pg *self, StatementId id, const PgParameters *with)
{
    for (guint i = 0; i < self->known->len; i++) {
        const Known *known = g_ptr_array_index (self->known, i);
        if (is_same (known->command, id, with))
            return g_rc_box_acquire (known->rows);
    }
    return NULL;
}

/* Talking */

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
    Command *command = copy (said->id, said->with);
    PgSaying saying = {.with = {.n = 0}};
    const int n = PQntuples (result), last = PQnfields (result) - 1;
    int64_t digest = 0;
    for (int i = 0; i < n; i++)
        digest ^= ecfs_pg_value (result, i, last, VALUE_INT).number;
    ecfs_pg_say_number (&saying, n);
    ecfs_pg_say_number (&saying, digest);
    for (int i = 0; i < saying.with.n; i++) {
        const int to = one_more (&command->with);
        command->with.numbers[to] = saying.with.numbers[i];
        command->with.values[to] = (const char *) &command->with.numbers[to];
        command->with.sizes[to] = sizeof command->with.numbers[to];
    }
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
        const Command *command = g_ptr_array_index (self->seen, i);
        say_variant (self, all, command->id, false, &command->with, SAID_SAME);
    }
}

/* SAVEPOINT and RELEASE are not prepared. */
static void say_waiting (const Pg *self, GArray *all)
{
    for (guint i = 0; i < self->waiting->len; i++) {
        const Command *command = g_ptr_array_index (self->waiting, i);
        if (command->id <= STMT_ROLLBACK_TO)
            say_text (all, self->statements[command->id].sql, SAID_PLAIN);
        else
            say (self, all, command->id, &command->with, SAID_RUN);
    }
}

static void say_ahead (const Pg *self, GArray *all)
{
    for (guint i = 0; i < self->ahead->len; i++) {
        const Command *command = g_ptr_array_index (self->ahead, i);
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
    Known *known = g_new (Known, 1);
    *known = (Known){.command = copy (said->id, said->with), .rows = ecfs_pg_rows_new (result)};
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
    drop_waiting (self, 0);
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
        if (may_be_changed (self, ((const Command *) g_ptr_array_index (self->ahead, i))->id))
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
        const Command *command = g_ptr_array_index (self->ahead, i);
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
    if (self->is_optimistic && !may_be_changed (self, id) && !may_ahead_be_changed (self))
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
