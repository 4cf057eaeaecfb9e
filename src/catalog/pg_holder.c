/*
 * Who has an archive open for writing: the row `holder`, which every transaction changes first. So it shows signs of
 * life, decides whether a COMMIT that nobody answered took effect, and fences: a process that was taken for dead finds
 * another session in it, and can change nothing more. It also has the number of the last transaction: a database that
 * came back without what it had committed, as from an asynchronous standby, is noticed before anything is built on it.
 *
 * Whether a process is alive is judged by the number of its signs while one looks, never by clocks of several machines.
 */
#include "catalog/pg_priv.h"

#include <libpq-fe.h>
#include <unistd.h>

#define LOOK_US (G_USEC_PER_SEC / 2)

_Atomic int64_t ecfs_pg_dead_us = 60 * G_USEC_PER_SEC;

typedef struct Sign {
    char *session; /* NULL: nobody has it */
    char *holder;
    char *who;
    char *signs; /* changes with each */
} Sign;

static void clear_sign (Sign *sign)
{
    g_free (sign->session);
    g_free (sign->holder);
    g_free (sign->who);
    g_free (sign->signs);
    *sign = (Sign){.session = NULL};
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Sign, clear_sign)

static bool read_sign (Pg *self, Sign *ret_sign, GError **error)
{
    g_autofree char *sql = g_strdup_printf (
        "SELECT session, holder, who, beat || '-' || txn FROM \"%s\".holder WHERE id = 1", self->schema);
    autoresult *rows = ecfs_pg_ask_sql (self, sql, "looking who has it open", error);
    if (rows == NULL)
        return false;
    if (PQntuples (rows) != 1)
        return ecfs_fail (error, EBADMSG, "catalog %s: table holder has no row", self->name);
    *ret_sign = (Sign){.session = PQgetisnull (rows, 0, 0) ? NULL : g_strdup (PQgetvalue (rows, 0, 0)),
                       .holder = g_strdup (PQgetvalue (rows, 0, 1)),
                       .who = g_strdup (PQgetvalue (rows, 0, 2)),
                       .signs = g_strdup (PQgetvalue (rows, 0, 3))};
    return true;
}

/* Takes it from @former, unless that gave a sign since. */
static bool take_from (Pg *self, const Sign *former, bool *ret_taken, GError **error)
{
    EcfsUuid session = ecfs_uuid_new ();
    char text[ECFS_UUID_TEXT_SIZE], holder[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&session, text);
    ecfs_uuid_text (&self->holder, holder);
    g_autofree char *who = g_strdup_printf ("process %d on %s", (int) getpid (), g_get_host_name ());
    g_autofree char *sql =
        g_strdup_printf ("UPDATE \"%s\".holder SET session = $1, holder = $2, who = $3, beat = beat + 1, txn = 0 "
                         "WHERE id = 1 AND session IS NOT DISTINCT FROM $4 AND beat || '-' || txn = $5 RETURNING beat",
                         self->schema);
    const char *values[] = {text, holder, who, former->session, former->signs};
    autoresult *result = PQexecParams (self->conn, sql, 5, NULL, values, NULL, NULL, 0);
    if (PQresultStatus (result) != PGRES_TUPLES_OK)
        return ecfs_pg_fail (self, result, "taking it", error);
    *ret_taken = PQntuples (result) == 1;
    if (*ret_taken) {
        g_free (self->session);
        self->session = g_strdup (text);
        self->txn = self->committed = 0;
        self->taken_at = g_ascii_strtoull (PQgetvalue (result, 0, 0), NULL, 10);
    }
    return true;
}

static bool fail_held (const Pg *self, const Sign *sign, GError **error)
{
    return ecfs_fail (error, EBUSY,
                      "catalog %s: %s has the archive open for writing, and only one may: end that, use it there, or "
                      "mount with -o ro",
                      self->name, sign->who);
}

/* Until it gives a sign, or is dead: *ret_sign is its last. */
static bool watch (Pg *self, Sign *sign, GError **error)
{
    int64_t until_us = g_get_monotonic_time () + ecfs_pg_dead_us;
    g_message ("catalog %s: %s had it open for writing; looking for %d s whether that is alive", self->name, sign->who,
               (int) (ecfs_pg_dead_us / G_USEC_PER_SEC));
    while (g_get_monotonic_time () < until_us) {
        g_auto (Sign) now = {.session = NULL};
        g_usleep (LOOK_US);
        if (!read_sign (self, &now, error))
            return false;
        if (now.session == NULL || strcmp (now.signs, sign->signs) != 0)
            return now.session == NULL || fail_held (self, &now, error);
    }
    return true;
}

bool ecfs_pg_take (Pg *self, GError **error)
{
    char holder[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&self->holder, holder);
    for (bool taken = false; !taken;) {
        g_auto (Sign) sign = {.session = NULL};
        if (!read_sign (self, &sign, error) ||
            (sign.session != NULL && strcmp (sign.holder, holder) != 0 && !watch (self, &sign, error)))
            return false;
        g_auto (Sign) last = {.session = NULL};
        if (!read_sign (self, &last, error))
            return false;
        if (last.session != NULL && g_strcmp0 (last.signs, sign.signs) != 0)
            return fail_held (self, &last, error);
        if (!take_from (self, &last, &taken, error))
            return false;
    }
    return true;
}

void ecfs_pg_leave (Pg *self)
{
    if (self->session == NULL || ecfs_pg_is_away (self))
        return;
    if (PQtransactionStatus (self->conn) != PQTRANS_IDLE)
        (void) ecfs_pg_run_sql (self, "ROLLBACK", "leaving it", NULL, NULL); /* the next says it */
    g_autofree char *sql = g_strdup_printf ("UPDATE \"%s\".holder SET session = NULL WHERE id = 1 AND session = '%s'",
                                            self->schema, self->session);
    g_autoptr (GError) why = NULL;
    if (!ecfs_pg_run_sql (self, sql, "leaving it", NULL, &why))
        g_info ("%s", why->message); /* the next looks whether this is alive */
}

#define ADVICE                                                                                                         \
    "; nothing is stored or deleted by what it says: unmount, and 'ecfs takeover' makes the catalog anew from the "    \
    "endpoints"

/* It has not what it had: fewer signs of life than when this process took it, or not its last transaction. */
static bool fail_behind (const Pg *self, GError **error)
{
    return ecfs_fail (error, ESTALE,
                      "catalog %s: the database lacks changes that it had committed, as after a failover to a standby "
                      "that lagged, or a restored backup" ADVICE,
                      self->name);
}

static bool fail_fenced (Pg *self, GError **error)
{
    g_auto (Sign) sign = {.session = NULL};
    bool known = read_sign (self, &sign, NULL);
    self->is_behind = true;
    if (known &&
        (g_strcmp0 (sign.session, self->session) == 0 || g_ascii_strtoull (sign.signs, NULL, 10) < self->taken_at))
        return fail_behind (self, error);
    return ecfs_fail (
        error, ESTALE,
        "catalog %s: %s has taken the archive over, as nothing was heard of this process: unmount it here", self->name,
        known && sign.session != NULL ? sign.who : "another process");
}

bool ecfs_pg_check_same (Pg *self, GError **error)
{
    if (self->session == NULL || self->is_behind)
        return true;
    g_autofree char *sql =
        g_strdup_printf ("SELECT txn FROM \"%s\".holder WHERE id = 1 AND session = '%s' AND txn >= %" G_GUINT64_FORMAT,
                         self->schema, self->session, self->committed);
    autoresult *rows = ecfs_pg_ask_sql (self, sql, "looking whether it is as it was", error);
    return rows != NULL && (PQntuples (rows) == 1 || fail_fenced (self, error));
}

bool ecfs_pg_beat (Pg *self, GError **error)
{
    uint64_t changes = 0;
    g_autofree char *sql = g_strdup_printf ("UPDATE \"%s\".holder SET beat = beat + 1 WHERE id = 1 AND session = '%s'",
                                            self->schema, self->session);
    return ecfs_pg_connect (self, error) && ecfs_pg_run_sql (self, sql, "a sign of life", &changes, error) &&
           (changes == 1 || fail_fenced (self, error));
}

bool ecfs_pg_begin (Pg *self, GError **error)
{
    uint64_t changes = 0;
    g_autofree char *sql = g_strdup_printf (
        "%s; UPDATE \"%s\".holder SET txn = %" G_GUINT64_FORMAT ", beat = beat + 1 WHERE id = 1 AND session = '%s' "
        "AND txn = %" G_GUINT64_FORMAT,
        self->statements[STMT_BEGIN].sql, self->schema, self->txn + 1, self->session, self->committed);
    bool begun = ecfs_pg_run_sql (self, sql, "BEGIN", &changes, error);
    self->txn += begun;
    if (begun && changes == 1)
        return true;
    if (!ecfs_pg_is_away (self))
        (void) ecfs_pg_run_sql (self, "ROLLBACK", "ROLLBACK", NULL, NULL); /* nothing was changed */
    return begun && fail_fenced (self, error);
}

/* The row is locked until the former connection's transaction has ended, one way or the other. */
int ecfs_pg_settle (Pg *self, GError **error)
{
    g_autofree char *sql = g_strdup_printf ("SELECT txn FROM \"%s\".holder WHERE id = 1 AND session = '%s' FOR UPDATE",
                                            self->schema, self->session);
    if (!ecfs_pg_connect (self, error))
        return -1;
    if (!self->unsettled)
        return 0;
    autoresult *rows = ecfs_pg_ask_sql (self, sql, "asking what became of a COMMIT", error);
    if (rows == NULL)
        return -1;
    if (PQntuples (rows) != 1) {
        told (fail_fenced (self, error));
        return -1;
    }
    uint64_t last = g_ascii_strtoull (PQgetvalue (rows, 0, 0), NULL, 10);
    if (last != self->txn && last != self->committed) {
        told (fail_fenced (self, error));
        return -1;
    }
    self->unsettled = false;
    self->committed = last;
    return last == self->txn ? 1 : 0;
}
