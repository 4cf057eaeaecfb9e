#include "catalog/pg_waiting.h"

#include <libpq-fe.h>

#define MOST_WAITING 64 /* statements, … */
#define MOST_BYTES   (64u << 10)
#define MOST_AHEAD   16

/* Values, rows and commands */

static int one_more (PgParameters *self)
{
    g_assert (self->n < ECFS_PG_MOST_VALUES);
    self->formats[self->n] = 1;
    return self->n++;
}

void ecfs_pg_say_number (PgParameters *self, int64_t number)
{
    const int i = one_more (self);
    self->numbers[i] = GUINT64_TO_BE ((uint64_t) number);
    self->values[i] = (const char *) &self->numbers[i];
    self->sizes[i] = sizeof self->numbers[i];
}

void ecfs_pg_say_text (PgParameters *self, const char *text)
{
    const int i = one_more (self);
    self->values[i] = text;
    self->sizes[i] = (int) strlen (text);
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

PgCommand *ecfs_pg_command_new (StatementId id, const PgParameters *with)
{
    size_t size = 0;
    for (int i = 0; i < with->n; i++)
        size += (size_t) with->sizes[i];
    PgCommand *self = g_malloc (sizeof *self + size);
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

static bool is_same (const PgCommand *self, StatementId id, const PgParameters *with)
{
    bool same = self->id == id && self->with.n == with->n;
    for (int i = 0; same && i < with->n; i++)
        same = (self->with.values[i] == NULL) == (with->values[i] == NULL) && self->with.sizes[i] == with->sizes[i] &&
               (with->sizes[i] == 0 || memcmp (self->with.values[i], with->values[i], (size_t) with->sizes[i]) == 0);
    return same;
}

static void free_known (gpointer data)
{
    PgKnown *self = data;
    g_free (self->command);
    ecfs_pg_rows_unref (self->rows);
    g_free (self);
}

/* What waits */

void ecfs_pg_waiting_init (Pg *self)
{
    self->waiting = g_ptr_array_new_with_free_func (g_free);
    self->ahead = g_ptr_array_new_with_free_func (g_free);
    self->known = g_ptr_array_new_with_free_func (free_known);
    self->seen = g_ptr_array_new_with_free_func (g_free);
}

void ecfs_pg_waiting_clear (Pg *self)
{
    g_ptr_array_unref (self->waiting);
    g_ptr_array_unref (self->ahead);
    g_ptr_array_unref (self->known);
    g_ptr_array_unref (self->seen);
}

static void drop_one (Pg *self, guint i)
{
    self->waiting_bytes -= ((const PgCommand *) g_ptr_array_index (self->waiting, i))->size;
    g_ptr_array_remove_index (self->waiting, i);
}

static void drop_behind (Pg *self, guint n)
{
    while (self->waiting->len > n)
        drop_one (self, self->waiting->len - 1);
}

void ecfs_pg_drop_waiting (Pg *self)
{
    drop_behind (self, 0);
}

void ecfs_pg_forget (Pg *self)
{
    ecfs_pg_drop_waiting (self);
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
static bool is_next_of (const PgCommand *command, const char *table)
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
        const PgKnown *known = g_ptr_array_index (self->known, i);
        if (table == NULL || mentions (self->statements[known->command->id].sql, table) ||
            is_next_of (known->command, table))
            g_ptr_array_remove_index_fast (self->known, i);
    }
}

bool ecfs_pg_may_be_changed (const Pg *self, StatementId id)
{
    for (guint i = 0; i < self->waiting->len; i++) {
        const StatementId waiting = ((const PgCommand *) g_ptr_array_index (self->waiting, i))->id;
        g_autofree char *table = waiting <= STMT_ROLLBACK_TO ? NULL : table_of (self->statements[waiting].sql);
        if (waiting > STMT_ROLLBACK_TO &&
            (table == NULL || id == STMT_NEXT_ID || mentions (self->statements[id].sql, table)))
            return true;
    }
    return false;
}

void ecfs_pg_defer (Pg *self, StatementId id, const PgParameters *with)
{
    PgCommand *command = ecfs_pg_command_new (id, with);
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
    return ((const PgCommand *) g_ptr_array_index (self->waiting, i))->id;
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
    drop_behind (self, n);
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
        g_ptr_array_add (self->ahead, ecfs_pg_command_new (id, with));
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
        const PgKnown *known = g_ptr_array_index (self->known, i);
        if (is_same (known->command, id, with))
            return g_rc_box_acquire (known->rows);
    }
    return NULL;
}
