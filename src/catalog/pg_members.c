/*
 * Who has an archive open for writing: `members`, one row for each archive directory that ever did, which every
 * transaction of that member changes. So it shows signs of life, decides whether a COMMIT that nobody answered took
 * effect, and fences: a member that was taken for dead finds no session of its own in it, and can change nothing more.
 *
 * One of them leads (`holder`): what is done once for all of them, as sending the journal and deleting, is its part. It
 * may have the archive alone, and then nobody else comes in.
 *
 * Members take turns: each transaction changes the row of `holder` first, and so waits for the one before it. Within
 * its turn a member sees what all others have committed, and what it reads stays so until it commits itself.
 *
 * Whether a member is alive is judged by the number of its signs while one looks, never by clocks of several machines.
 */
#include "catalog/catalog.h"
#include "catalog/locks.h"
#include "catalog/pg_exchange.h"

#include <inttypes.h>
#include <libpq-fe.h>
#include <unistd.h>

#define LOOK_US      (G_USEC_PER_SEC / 2)
#define N_LOCK_TURNS 64

_Atomic int64_t ecfs_pg_dead_us = 60 * G_USEC_PER_SEC;

/* Another that has a session. */
typedef struct Other {
    char *uuid;
    char *session;
    char *who;
    char *signs; /* changes with each */
    bool leads;
    bool alone;
} Other;

static void free_other (gpointer data)
{
    Other *self = data;
    g_free (self->uuid);
    g_free (self->session);
    g_free (self->who);
    g_free (self->signs);
    g_free (self);
}

static GPtrArray *read_others (Pg *self, GError **error)
{
    char own[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&self->holder, own);
    g_autofree char *sql = g_strdup_printf (
        "SELECT m.uuid, m.session, m.who, m.beat || '-' || m.txn, h.session = m.session, h.alone FROM \"%s\".members m "
        "CROSS JOIN \"%s\".holder h WHERE m.session IS NOT NULL AND m.uuid <> '%s' ORDER BY m.id",
        self->schema, self->schema, own);
    autoresult *rows = ecfs_pg_ask_sql (self, sql, "looking who has it open", error);
    if (rows == NULL)
        return NULL;
    GPtrArray *others = g_ptr_array_new_with_free_func (free_other);
    for (int i = 0; i < PQntuples (rows); i++) {
        Other *other = g_new (Other, 1);
        *other = (Other){.uuid = g_strdup (PQgetvalue (rows, i, 0)),
                         .session = g_strdup (PQgetvalue (rows, i, 1)),
                         .who = g_strdup (PQgetvalue (rows, i, 2)),
                         .signs = g_strdup (PQgetvalue (rows, i, 3)),
                         .leads = strcmp (PQgetvalue (rows, i, 4), "t") == 0};
        other->alone = other->leads && strcmp (PQgetvalue (rows, i, 5), "t") == 0;
        g_ptr_array_add (others, other);
    }
    return others;
}

static const Other *find_other (const GPtrArray *others, const char *session)
{
    for (guint i = 0; i < others->len; i++) {
        const Other *other = g_ptr_array_index (others, i);
        if (strcmp (other->session, session) == 0)
            return other;
    }
    return NULL;
}

/* Whether it keeps this process out while it is alive. */
static bool is_in_the_way (const Pg *self, const Other *other)
{
    return other->alone || !self->is_member || (self->must_lead && other->leads);
}

static bool fail_held (const Pg *self, const Other *other, GError **error)
{
    if (other->alone)
        return ecfs_fail (error, EBUSY,
                          "catalog %s: %s has the archive open for writing, and for itself: end that, use it there, or "
                          "mount with -o ro",
                          self->name, other->who);
    if (self->is_member)
        return ecfs_fail (error, EBUSY,
                          "catalog %s: %s leads those that have the archive open, and this is done by who leads: do it "
                          "there, or unmount it there first",
                          self->name, other->who);
    return ecfs_fail (error, EBUSY,
                      "catalog %s: %s has the archive open for writing as one of many, and this needs it for itself: "
                      "unmount it there first",
                      self->name, other->who);
}

/* Of @before those that gave no sign for as long as makes them dead. NULL: one that is in the way did. */
static GPtrArray *watch (Pg *self, const GPtrArray *before, GError **error)
{
    int64_t until_us = g_get_monotonic_time () + ecfs_pg_dead_us;
    g_autoptr (GPtrArray) silent = g_ptr_array_new ();
    for (guint i = 0; i < before->len; i++) {
        Other *other = g_ptr_array_index (before, i);
        if (!is_in_the_way (self, other))
            continue;
        g_ptr_array_add (silent, other);
        g_message ("catalog %s: %s had it open for writing; looking for %d s whether that is alive", self->name,
                   other->who, (int) (ecfs_pg_dead_us / G_USEC_PER_SEC));
    }
    while (silent->len > 0 && g_get_monotonic_time () < until_us) {
        g_usleep (LOOK_US);
        g_autoptr (GPtrArray) now = read_others (self, error);
        if (now == NULL)
            return NULL;
        for (guint i = silent->len; i-- > 0;) {
            const Other *was = g_ptr_array_index (silent, i);
            const Other *is = find_other (now, was->session);
            if (is == NULL)
                g_ptr_array_remove_index (silent, i); /* it has left */
            else if (strcmp (is->signs, was->signs) != 0) {
                told (fail_held (self, is, error));
                return NULL;
            }
        }
    }
    return g_steal_pointer (&silent);
}

/* Within the turn: each that is to be dead has given no sign since, and can do nothing from now on. *ret_all: so it is
 * with all that are in the way. */
static bool fence (Pg *self, const GPtrArray *silent, bool *ret_all, GError **error)
{
    g_autoptr (GPtrArray) now = read_others (self, error);
    if (now == NULL)
        return false;
    *ret_all = true;
    for (guint i = 0; i < now->len; i++) {
        const Other *is = g_ptr_array_index (now, i);
        const Other *was = find_other (silent, is->session);
        bool dead = was != NULL && strcmp (was->signs, is->signs) == 0;
        g_autofree char *sql = g_strdup_printf ("UPDATE \"%s\".members SET session = NULL WHERE session = '%s'",
                                                self->schema, is->session);
        if (dead && !ecfs_pg_run_sql (self, sql, "taking it", NULL, error))
            return false;
        *ret_all = *ret_all && (dead || !is_in_the_way (self, is));
    }
    return true;
}

/* Within the turn: a copy of an archive directory has the name of that among the members, and not its place. */
static bool check_copy (Pg *self, GError **error)
{
    char uuid[ECFS_UUID_TEXT_SIZE];
    if (!self->is_copy)
        return true;
    ecfs_uuid_text (&self->holder, uuid);
    g_autofree char *sql = g_strdup_printf ("SELECT who FROM \"%s\".members WHERE uuid = '%s' AND session IS NOT NULL",
                                            self->schema, uuid);
    autoresult *rows = ecfs_pg_ask_sql (self, sql, "looking who has it open", error);
    return rows != NULL &&
           (PQntuples (rows) == 0 ||
            ecfs_fail (error, EBUSY,
                       "catalog %s: this directory is a copy of one that was in use, and %s has that open for writing: "
                       "use that one; with catalog_mounts = many 'ecfs catalog join' makes a directory of its own; if "
                       "that one is gone, 'ecfs takeover' makes this the newest",
                       self->name, PQgetvalue (rows, 0, 0)));
}

/* Within the turn. */
static bool enter (Pg *self, GError **error)
{
    char uuid[ECFS_UUID_TEXT_SIZE], session[ECFS_UUID_TEXT_SIZE];
    EcfsUuid fresh = ecfs_uuid_new ();
    ecfs_uuid_text (&self->holder, uuid);
    ecfs_uuid_text (&fresh, session);
    g_autofree char *who = g_strdup_printf ("process %d on %s", (int) getpid (), g_get_host_name ());
    g_autofree char *sql = g_strdup_printf (
        "INSERT INTO \"%s\".members (uuid, session, who, beat, txn) VALUES ($1, $2, $3, 0, 0) ON CONFLICT (uuid) DO "
        "UPDATE SET session = $2, who = $3, beat = members.beat + 1, txn = 0, peer = NULL RETURNING id, beat",
        self->schema);
    const char *values[] = {uuid, session, who};
    autoresult *row = PQexecParams (self->conn, sql, G_N_ELEMENTS (values), NULL, values, NULL, NULL, 0);
    if (PQresultStatus (row) != PGRES_TUPLES_OK || PQntuples (row) != 1)
        return ecfs_pg_fail (self, row, "taking it", error);
    self->member = g_ascii_strtoll (PQgetvalue (row, 0, 0), NULL, 10);
    g_free (self->session);
    self->session = g_strdup (session);
    self->txn = self->committed = 0;
    self->taken_at = g_ascii_strtoull (PQgetvalue (row, 0, 1), NULL, 10);
    return ecfs_pg_make_lock_tables (self, error) && ecfs_pg_sweep_locks (self, error);
}

/* Within the turn: where nobody who has a session leads, this one does. */
static bool lead_if_free (Pg *self, GError **error)
{
    uint64_t changes = 0;
    g_autofree char *sql = g_strdup_printf (
        "UPDATE \"%1$s\".holder h SET session = '%2$s', alone = %3$s "
        "WHERE NOT EXISTS (SELECT 1 FROM \"%1$s\".members m WHERE m.session = h.session AND m.session <> '%2$s') "
        "AND EXISTS (SELECT 1 FROM \"%1$s\".members m WHERE m.session = '%2$s')",
        self->schema, self->session, self->is_member ? "false" : "true");
    if (!ecfs_pg_run_sql (self, sql, "taking it", &changes, error))
        return false;
    self->leads = changes == 1;
    return true;
}

static bool begin_turn (Pg *self, GError **error)
{
    g_autofree char *sql =
        g_strdup_printf ("BEGIN; UPDATE \"%s\".holder SET turn = turn + 1 WHERE id = 1", self->schema);
    return ecfs_pg_end_read (self, error) && ecfs_pg_run_sql (self, sql, "taking it", NULL, error);
}

/* One try. *ret_taken false without an error: somebody came in between. */
static bool try_to_take (Pg *self, bool *ret_taken, GError **error)
{
    g_autoptr (GPtrArray) before = read_others (self, error);
    g_autoptr (GPtrArray) silent = before == NULL ? NULL : watch (self, before, error);
    if (silent == NULL)
        return false;
    if (begin_turn (self, error) && fence (self, silent, ret_taken, error) &&
        (!*ret_taken || (check_copy (self, error) && enter (self, error) && lead_if_free (self, error))) &&
        ecfs_pg_run_sql (self, *ret_taken ? "COMMIT" : "ROLLBACK", "taking it", NULL, error))
        return true;
    (void) ecfs_pg_run_sql (self, "ROLLBACK", "taking it", NULL, NULL); /* the first error is told */
    g_clear_pointer (&self->session, g_free);
    self->leads = false;
    return false;
}

bool ecfs_pg_take (Pg *self, GError **error)
{
    bool taken = false;
    while (!taken)
        if (!try_to_take (self, &taken, error))
            return false;
    return true;
}

bool ecfs_pg_find_member (Pg *self, GError **error)
{
    char uuid[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&self->holder, uuid);
    g_autofree char *sql = g_strdup_printf ("SELECT id FROM \"%s\".members WHERE uuid = '%s'", self->schema, uuid);
    autoresult *rows = ecfs_pg_ask_sql (self, sql, "looking who has it open", error);
    if (rows != NULL && PQntuples (rows) == 1)
        self->member = g_ascii_strtoll (PQgetvalue (rows, 0, 0), NULL, 10);
    return rows != NULL;
}

void ecfs_pg_leave (Pg *self)
{
    if (self->session == NULL || ecfs_pg_is_away (self))
        return;
    if (PQtransactionStatus (self->conn) != PQTRANS_IDLE)
        (void) ecfs_pg_run_sql (self, "ROLLBACK", "leaving it", NULL, NULL); /* the next says it */
    self->end_read = false;
    g_autofree char *sql =
        g_strdup_printf ("UPDATE \"%1$s\".holder SET session = NULL, alone = false WHERE session = '%2$s'; "
                         "UPDATE \"%1$s\".members SET session = NULL WHERE session = '%2$s'; "
                         "DELETE FROM \"%1$s\".locks WHERE session = '%2$s'",
                         self->schema, self->session);
    g_autoptr (GError) why = NULL;
    if (!ecfs_pg_run_sql (self, sql, "leaving it", NULL, &why))
        g_info ("%s", why->message); /* the next looks whether this is alive */
}

#define ADVICE                                                                                                         \
    "; nothing is stored or deleted by what it says: unmount, and 'ecfs takeover' makes the catalog anew from the "    \
    "endpoints"

/* Of one that has no turn any more: the database is not what it was, where it has fewer signs of life than when this
 * process came in, or not its last transaction. */
bool ecfs_pg_fail_fenced (Pg *self, GError **error)
{
    g_autofree char *sql = g_strdup_printf ("SELECT session = '%s', beat FROM \"%s\".members WHERE id = %" PRId64,
                                            self->session, self->schema, self->member);
    autoresult *rows = ecfs_pg_ask_sql (self, sql, "looking who has it open", error);
    if (rows == NULL) /* the next connection finds it out */
        return false;
    self->is_behind = true;
    if (PQntuples (rows) != 1 || strcmp (PQgetvalue (rows, 0, 0), "t") == 0 ||
        g_ascii_strtoull (PQgetvalue (rows, 0, 1), NULL, 10) < self->taken_at)
        return ecfs_fail (error, ESTALE,
                          "catalog %s: the database lacks changes that it had committed, as after a failover to a "
                          "standby that lagged, or a restored backup" ADVICE,
                          self->name);
    self->leads = false;
    atomic_store (&self->is_fenced, true);
    return ecfs_fail (error, ESTALE,
                      "catalog %s: another process has taken over what this one had open, as nothing was heard of it: "
                      "unmount it here, and mount it again",
                      self->name);
}

bool ecfs_pg_check_same (Pg *self, GError **error)
{
    if (self->session == NULL || self->is_behind)
        return true;
    g_autofree char *sql =
        g_strdup_printf ("SELECT 1 FROM \"%s\".members WHERE id = %" PRId64 " AND session = '%s' AND txn >= %" PRIu64,
                         self->schema, self->member, self->session, self->committed);
    autoresult *rows = ecfs_pg_ask_sql (self, sql, "looking whether it is as it was", error);
    return rows != NULL && (PQntuples (rows) == 1 || ecfs_pg_fail_fenced (self, error));
}

static char *sign (const Pg *self)
{
    return g_strdup_printf ("UPDATE \"%s\".members SET beat = beat + 1 WHERE id = %" PRId64 " AND session = '%s'",
                            self->schema, self->member, self->session);
}

enum { TURN, MINE, SIGN, SURELY };

bool ecfs_pg_prepare_turns (Pg *self, GError **error)
{
    static const char *const kinds[] = {"turn", "mine", "sign", "surely"};
    for (size_t i = 0; i < G_N_ELEMENTS (kinds); i++) {
        g_free (self->names[i]);
        self->names[i] = g_strdup_printf ("%s_%s", kinds[i], self->tag);
    }
    /* A change fails where the connection is not the one that was set up: what was set is needed for it. Of members
     * COMMIT does not wait for the disk: a sign of life behind it does. */
    g_autofree char *mine = g_strdup_printf (
        "UPDATE \"%1$s\".members SET txn = $3, beat = beat + 1 WHERE id = $1 AND session = $2 AND txn = $4 AND "
        "CAST (current_setting ('ecfs.of_%2$s') AS boolean) %3$s",
        self->schema, self->tag,
        self->is_member ? "RETURNING set_config ('synchronous_commit', 'off', true) AS said" : "RETURNING '' AS said");
    g_autofree char *sql = g_strdup_printf (
        "PREPARE %2$s AS SELECT FROM \"%1$s\".holder WHERE id = 1 FOR UPDATE; "
        "PREPARE %3$s (bigint, text, bigint, bigint) AS %6$s; "
        "PREPARE %4$s (bigint, text) AS UPDATE \"%1$s\".members SET beat = beat + 1 WHERE id = $1 AND session = $2; "
        "PREPARE %5$s (bigint, text, bigint, bigint) AS WITH mine AS (%6$s) SELECT 1 / count (said) FROM mine",
        self->schema, self->names[TURN], self->names[MINE], self->names[SIGN], self->names[SURELY], mine);
    return ecfs_pg_run_sql (self, sql, "preparing", NULL, error);
}

void ecfs_pg_sign (const Pg *self, PgSaying *ret_saying)
{
    *ret_saying = (PgSaying){.name = self->names[SIGN]};
    ecfs_pg_say_number (&ret_saying->with, self->member);
    ecfs_pg_say_text (&ret_saying->with, self->session);
}

bool ecfs_pg_beat (Pg *self, GError **error)
{
    uint64_t changes = 0;
    g_autofree char *sql = sign (self); /* a new connection knows no others */
    return ecfs_pg_connect (self, error) && ecfs_pg_end_read (self, error) &&
           ecfs_pg_run_sql (self, sql, "a sign of life", &changes, error) &&
           (changes == 1 || ecfs_pg_fail_fenced (self, error));
}

static bool has_no_doubt (const Pg *self, GError **error)
{
    return !self->is_doubtful ||
           ecfs_fail (error, EROFS,
                      "catalog %s: the database is another than before, as after a failover or from a backup: the "
                      "endpoints have not told yet whether it lacks something",
                      self->name);
}

static void say_turn (const Pg *self, const char *mine, PgSaying ret_sayings[ECFS_PG_N_TURN])
{
    ret_sayings[0] = (PgSaying){.name = self->names[TURN]};
    ret_sayings[1] = (PgSaying){.name = mine};
    ecfs_pg_say_number (&ret_sayings[1].with, self->member);
    ecfs_pg_say_text (&ret_sayings[1].with, self->session);
    ecfs_pg_say_number (&ret_sayings[1].with, (int64_t) self->txn + 1);
    ecfs_pg_say_number (&ret_sayings[1].with, (int64_t) self->committed);
}

void ecfs_pg_turn (Pg *self, PgSaying *ret_sayings)
{
    say_turn (self, self->names[SURELY], ret_sayings);
    self->txn++;
}

bool ecfs_pg_begin_optimistic (Pg *self, GError **error)
{
    if (!has_no_doubt (self, error))
        return false;
    ecfs_pg_forget (self);
    g_ptr_array_set_size (self->ahead, 0);
    self->is_optimistic = true;
    return true;
}

bool ecfs_pg_begin (Pg *self, GError **error)
{
    uint64_t changes = 0;
    PgSaying sayings[ECFS_PG_N_TURN];
    if (!has_no_doubt (self, error))
        return false;
    say_turn (self, self->names[MINE], sayings);
    bool begun = ecfs_pg_begin_with (self, sayings, G_N_ELEMENTS (sayings), &changes, error);
    self->txn += begun;
    if (begun && changes == 1)
        return true;
    if (!ecfs_pg_is_away (self))
        (void) ecfs_pg_run_sql (self, "ROLLBACK", "ROLLBACK", NULL, NULL); /* nothing was changed */
    ecfs_pg_forget (self);
    return begun && ecfs_pg_fail_fenced (self, error);
}

/* The row is locked until the former connection's transaction has ended, one way or the other; and what is committed is
 * on the server's disk when this is. */
int ecfs_pg_settle (Pg *self, GError **error)
{
    g_autofree char *sql = g_strdup_printf ("UPDATE \"%s\".members SET beat = beat + 1 WHERE id = %" PRId64
                                            " AND session = '%s' RETURNING txn",
                                            self->schema, self->member, self->session);
    if (!ecfs_pg_connect (self, error))
        return -1;
    if (!self->unsettled)
        return 0;
    autoresult *rows = ecfs_pg_ask_sql (self, sql, "asking what became of a COMMIT", error);
    if (rows == NULL)
        return -1;
    if (PQntuples (rows) != 1) {
        told (ecfs_pg_fail_fenced (self, error));
        return -1;
    }
    uint64_t last = g_ascii_strtoull (PQgetvalue (rows, 0, 0), NULL, 10);
    if (last != self->txn && last != self->committed) {
        told (ecfs_pg_fail_fenced (self, error));
        return -1;
    }
    self->unsettled = false;
    self->committed = last;
    return last == self->txn ? 1 : 0;
}

/* Whose work it is */

bool ecfs_pg_own_all (Pg *self, GError **error)
{
    char uuid[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&self->holder, uuid);
    g_autofree char *sql =
        g_strdup_printf ("INSERT INTO \"%1$s\".members (uuid, who, beat, txn) VALUES ('%2$s', 'nobody yet', 0, 0); "
                         "UPDATE \"%1$s\".staging SET member = (SELECT id FROM \"%1$s\".members); "
                         "UPDATE \"%1$s\".intents SET member = (SELECT id FROM \"%1$s\".members)",
                         self->schema, uuid);
    return ecfs_pg_run_sql (self, sql, "copying to it", NULL, error);
}

bool ecfs_pg_check_own (EcfsDb *db, GError **error)
{
    Pg *self = ecfs_pg_of (db);
    g_autofree char *sql =
        g_strdup_printf ("SELECT count (DISTINCT s.ino), string_agg (DISTINCT m.who, ', ') FROM \"%1$s\".staging s "
                         "JOIN \"%1$s\".members m ON m.id = s.member WHERE s.state < 2 AND m.id <> %2$" PRId64,
                         self->schema, self->member);
    autoresult *row = ecfs_pg_ask_sql (self, sql, "looking what others have", error);
    return row != NULL &&
           (strcmp (PQgetvalue (row, 0, 0), "0") == 0 ||
            ecfs_fail (
                error, EBUSY,
                "catalog %s: files that were written by another mount and are not stored yet: %s (%s). Their "
                "content is in the archive directory there: mount that, wait until 'ecfs wait' has returned, and "
                "unmount it; where it is lost, 'ecfs recover' makes a new directory without that content",
                self->name, PQgetvalue (row, 0, 0), PQgetvalue (row, 0, 1)));
}

/* Watching the others */

typedef struct Sight {
    char *signs;
    int64_t since_us;
} Sight;

static void free_sight (gpointer data)
{
    Sight *self = data;
    g_free (self->signs);
    g_free (self);
}

/* Those that have given no sign for as long as makes them dead, while this process looked all the time. */
static GPtrArray *look_who_is_silent (Pg *self, GPtrArray *others)
{
    int64_t now_us = g_get_monotonic_time ();
    if (self->sights == NULL)
        self->sights = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, free_sight);
    if (now_us - self->looked_us > ecfs_pg_dead_us / 4) /* it slept, and so may its connection have */
        g_hash_table_remove_all (self->sights);
    self->looked_us = now_us;
    GPtrArray *silent = g_ptr_array_new ();
    for (guint i = 0; i < others->len; i++) {
        Other *other = g_ptr_array_index (others, i);
        Sight *sight = g_hash_table_lookup (self->sights, other->session);
        if (sight != NULL && strcmp (sight->signs, other->signs) == 0) {
            if (now_us - sight->since_us >= ecfs_pg_dead_us)
                g_ptr_array_add (silent, other);
            continue;
        }
        sight = g_new (Sight, 1);
        *sight = (Sight){.signs = g_strdup (other->signs), .since_us = now_us};
        g_hash_table_replace (self->sights, g_strdup (other->session), sight);
    }
    return silent;
}

static bool has_leader (GPtrArray *others, GPtrArray *silent)
{
    for (guint i = 0; i < others->len; i++) {
        Other *other = g_ptr_array_index (others, i);
        if (other->leads && !g_ptr_array_find (silent, other, NULL))
            return true;
    }
    return false;
}

bool ecfs_pg_resign (Pg *self, GError **error)
{
    g_autofree char *sql = g_strdup_printf (
        "UPDATE \"%s\".holder SET session = NULL, alone = false WHERE session = '%s'", self->schema, self->session);
    if (!ecfs_pg_end_read (self, error) || !ecfs_pg_run_sql (self, sql, "leading no more", NULL, error))
        return false;
    self->leads = false;
    self->rests_us = g_get_monotonic_time () + ecfs_pg_dead_us;
    return true;
}

bool ecfs_pg_look_around (Pg *self, GError **error)
{
    bool all = false, led = self->leads;
    if (!ecfs_pg_beat (self, error)) {
        self->leads = self->leads && ecfs_pg_is_away (self);
        return false;
    }
    g_autoptr (GPtrArray) others = read_others (self, error);
    if (others == NULL)
        return false;
    g_autoptr (GPtrArray) silent = look_who_is_silent (self, others);
    bool stays = self->leads || g_get_monotonic_time () < self->rests_us;
    if (silent->len == 0 && (stays || has_leader (others, silent)))
        return true;
    for (guint i = 0; i < silent->len; i++)
        g_message ("catalog %s: nothing was heard of %s for %d s: it is taken for dead", self->name,
                   ((Other *) g_ptr_array_index (silent, i))->who, (int) (ecfs_pg_dead_us / G_USEC_PER_SEC));
    if (begin_turn (self, error) && fence (self, silent, &all, error) && ecfs_pg_sweep_locks (self, error) &&
        (stays || lead_if_free (self, error)) && ecfs_pg_run_sql (self, "COMMIT", "leading it", NULL, error))
        return true;
    self->leads = led; /* it is looked at again, also where COMMIT took effect after all */
    if (!ecfs_pg_is_away (self))
        (void) ecfs_pg_run_sql (self, "ROLLBACK", "leading it", NULL, NULL); /* the first error is told */
    return false;
}

/* What they say to each other */

bool ecfs_pg_ask_leader (Pg *self, uint64_t sequence, EcfsLeaderAnswer *ret_answer, GError **error)
{
    g_autofree char *sql =
        g_strdup_printf ("UPDATE \"%s\".leader_asked SET wanted = %" PRIu64 " WHERE wanted < %" PRIu64
                         "; SELECT stored, tries, convert_from (trouble, 'UTF8') FROM \"%s\".leader_asked",
                         self->schema, sequence, sequence, self->schema);
    *ret_answer = (EcfsLeaderAnswer){.stored = 0};
    autoresult *rows = ecfs_pg_end_read (self, error) ? ecfs_pg_ask_sql (self, sql, "asking who leads", error) : NULL;
    if (rows == NULL)
        return false;
    if (PQntuples (rows) != 1)
        return ecfs_fail (error, EBADMSG, "catalog %s: table leader_asked has no row", self->name);
    *ret_answer = (EcfsLeaderAnswer){.stored = g_ascii_strtoull (PQgetvalue (rows, 0, 0), NULL, 10),
                                     .tries = g_ascii_strtoull (PQgetvalue (rows, 0, 1), NULL, 10),
                                     .trouble = PQgetisnull (rows, 0, 2) ? NULL : g_strdup (PQgetvalue (rows, 0, 2))};
    return true;
}

bool ecfs_pg_wanted (Pg *self, uint64_t *ret_sequence, GError **error)
{
    g_autofree char *sql =
        g_strdup_printf ("SELECT wanted FROM \"%s\".leader_asked WHERE wanted > stored", self->schema);
    autoresult *rows =
        ecfs_pg_end_read (self, error) ? ecfs_pg_ask_sql (self, sql, "looking what is wanted", error) : NULL;
    if (rows != NULL)
        *ret_sequence = PQntuples (rows) == 0 ? 0 : g_ascii_strtoull (PQgetvalue (rows, 0, 0), NULL, 10);
    return rows != NULL;
}

bool ecfs_pg_answer (Pg *self, uint64_t sequence, const char *trouble, GError **error)
{
    g_autofree char *sql = g_strdup_printf (
        "UPDATE \"%s\".leader_asked SET stored = CASE WHEN $2::text IS NULL THEN $1::bigint ELSE stored END, "
        "tries = tries + 1, trouble = convert_to ($2, 'UTF8') "
        "WHERE EXISTS (SELECT 1 FROM \"%s\".holder WHERE session = $3)",
        self->schema, self->schema);
    g_autofree char *number = g_strdup_printf ("%" PRIu64, sequence);
    g_autofree char *text = trouble == NULL ? NULL : g_utf8_make_valid (trouble, -1);
    const char *values[] = {number, text, self->session};
    if (!ecfs_pg_end_read (self, error))
        return false;
    autoresult *done = PQexecParams (self->conn, sql, G_N_ELEMENTS (values), NULL, values, NULL, NULL, 0);
    return PQresultStatus (done) == PGRES_COMMAND_OK || ecfs_pg_fail (self, done, "answering members", error);
}

char *ecfs_pg_leader (Pg *self)
{
    char own[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&self->holder, own);
    g_autofree char *sql = g_strdup_printf (
        "SELECT m.who FROM \"%s\".members m JOIN \"%s\".holder h ON m.session = h.session WHERE m.uuid <> '%s'",
        self->schema, self->schema, own);
    autoresult *rows = ecfs_pg_end_read (self, NULL) ? ecfs_pg_ask_sql (self, sql, "looking who leads", NULL) : NULL;
    return rows == NULL || PQntuples (rows) == 0 ? NULL : g_strdup (PQgetvalue (rows, 0, 0));
}

/* Where they serve peers: who is dead has no session, and is not found */

bool ecfs_pg_tell_peer (Pg *self, const char *address, GError **error)
{
    if (self->session == NULL)
        return ecfs_fail (error, EROFS, "catalog %s: who only reads is not found there by others", self->name);
    g_autofree char *sql = g_strdup_printf (
        "UPDATE \"%s\".members SET peer = $1 WHERE id = %" PRId64 " AND session = $2", self->schema, self->member);
    const char *values[] = {address, self->session};
    if (!ecfs_pg_end_read (self, error))
        return false;
    autoresult *done = PQexecParams (self->conn, sql, G_N_ELEMENTS (values), NULL, values, NULL, NULL, 0);
    if (PQresultStatus (done) != PGRES_COMMAND_OK)
        return ecfs_pg_fail (self, done, "telling where peers are served", error);
    return strcmp (PQcmdTuples (done), "1") == 0 ||
           ecfs_fail (error, ESTALE, "catalog %s: this process is not among those that have it open any more",
                      self->name);
}

GPtrArray *ecfs_pg_peers (Pg *self, GError **error)
{
    g_autofree char *sql = g_strdup_printf (
        "SELECT peer FROM \"%s\".members WHERE session IS NOT NULL AND peer IS NOT NULL ORDER BY id", self->schema);
    autoresult *rows =
        ecfs_pg_end_read (self, error) ? ecfs_pg_ask_sql (self, sql, "looking where peers are", error) : NULL;
    if (rows == NULL)
        return NULL;
    GPtrArray *found = g_ptr_array_new_with_free_func (g_free);
    for (int i = 0; i < PQntuples (rows); i++)
        g_ptr_array_add (found, g_strdup (PQgetvalue (rows, i, 0)));
    return found;
}

char *ecfs_pg_own_host (Pg *self)
{
    autoresult *rows = ecfs_pg_end_read (self, NULL)
                           ? ecfs_pg_ask_sql (self, "SELECT host (inet_client_addr ())", "looking who asks", NULL)
                           : NULL;
    return rows == NULL || PQntuples (rows) == 0 || PQgetisnull (rows, 0, 0) ? NULL
                                                                             : g_strdup (PQgetvalue (rows, 0, 0));
}

/*
 * Locks of files: `locks`, a row for each range that an owner holds. A row counts as long as its session is a member's,
 * so who is taken for dead has lost its locks in the same moment.
 *
 * They do not take the turn that changes of the namespace take, which is held while others commit. Who sets locks of a
 * file locks the row of `lock_turns` that its number falls to, and then looks and writes: each statement sees what was
 * committed before it began, so nobody is granted what another was granted at the same time. All is one transaction
 * that is sent at once.
 */

bool ecfs_pg_make_lock_tables (Pg *self, GError **error)
{
    g_autofree char *look = g_strdup_printf ("SELECT to_regclass ('\"%s\".locks') IS NOT NULL", self->schema);
    autoresult *there = ecfs_pg_ask_sql (self, look, "looking what is there", error);
    if (there == NULL)
        return false;
    g_autofree char *sql = g_strdup_printf (
        "CREATE TABLE \"%1$s\".locks (session text NOT NULL, ino bigint NOT NULL, kind bigint NOT NULL, owner bigint "
        "NOT NULL, first bigint NOT NULL, last bigint NOT NULL, exclusive boolean NOT NULL, PRIMARY KEY (ino, kind, "
        "session, owner, first)); CREATE TABLE \"%1$s\".lock_turns (id bigint PRIMARY KEY); "
        "INSERT INTO \"%1$s\".lock_turns SELECT generate_series (0, %2$d)",
        self->schema, N_LOCK_TURNS - 1);
    return strcmp (PQgetvalue (there, 0, 0), "t") == 0 || ecfs_pg_run_sql (self, sql, "making its tables", NULL, error);
}

bool ecfs_pg_sweep_locks (Pg *self, GError **error)
{
    g_autofree char *sql = g_strdup_printf ("DELETE FROM \"%1$s\".locks l WHERE NOT EXISTS (SELECT 1 FROM "
                                            "\"%1$s\".members m WHERE m.session = l.session)",
                                            self->schema);
    return ecfs_pg_run_sql (self, sql, "sweeping locks", NULL, error);
}

/* "(first, last, exclusive), ..." */
static char *list_of (const GArray *ranges)
{
    GString *list = g_string_new (NULL);
    for (guint i = 0; i < ranges->len; i++) {
        const EcfsLockRange *range = &g_array_index (ranges, EcfsLockRange, i);
        g_string_append_printf (list, "%s(%" PRId64 ", %" PRId64 ", %s)", i > 0 ? ", " : "", range->first, range->last,
                                range->exclusive ? "true" : "false");
    }
    return g_string_free (list, FALSE);
}

/* A condition: nobody else holds what conflicts with the list. */
static char *is_free (const Pg *self, const EcfsLockOwner *owner, const char *list)
{
    return g_strdup_printf (
        "NOT EXISTS (SELECT 1 FROM \"%1$s\".locks l JOIN \"%1$s\".members m ON m.session = l.session JOIN (VALUES "
        "%2$s) v (first, last, exclusive) ON l.first <= v.last AND l.last >= v.first AND (l.exclusive OR v.exclusive) "
        "WHERE l.ino = %3$" PRId64 " AND l.kind = %4$d AND (l.session <> '%5$s' OR l.owner <> %6$" PRId64 "))",
        self->schema, list, (int64_t) owner->ino, (int) owner->kind, self->session, (int64_t) owner->owner);
}

static void add_insert (GString *sql, const Pg *self, const EcfsLockOwner *owner, const char *list, const char *free)
{
    g_string_append_printf (sql,
                            "INSERT INTO \"%s\".locks SELECT '%s', %" PRId64 ", %d, %" PRId64
                            ", v.first, v.last, v.exclusive FROM (VALUES %s) v (first, last, exclusive) WHERE %s; ",
                            self->schema, self->session, (int64_t) owner->ino, (int) owner->kind,
                            (int64_t) owner->owner, list, free);
}

bool ecfs_pg_lock_set (Pg *self, const EcfsLockOwner *owner, const GArray *ranges, bool *ret_granted, GError **error)
{
    g_autofree char *list = list_of (ranges);
    g_autofree char *free = ranges->len == 0 ? g_strdup ("true") : is_free (self, owner, list);
    g_autoptr (GString) sql = g_string_new (NULL);
    g_string_append_printf (sql, "SELECT 1 FROM \"%s\".lock_turns WHERE id = %d FOR UPDATE; ", self->schema,
                            (int) (owner->ino % N_LOCK_TURNS));
    g_string_append_printf (sql,
                            "DELETE FROM \"%s\".locks WHERE ino = %" PRId64
                            " AND kind = %d AND session = '%s' AND owner = %" PRId64 " AND %s; ",
                            self->schema, (int64_t) owner->ino, (int) owner->kind, self->session,
                            (int64_t) owner->owner, free);
    if (ranges->len > 0)
        add_insert (sql, self, owner, list, free);
    g_string_append_printf (
        sql, "SELECT %s, EXISTS (SELECT 1 FROM \"%s\".members WHERE id = %" PRId64 " AND session = '%s')", free,
        self->schema, self->member, self->session);
    if (!ecfs_pg_end_read (self, error))
        return false;
    autoresult *row = ecfs_pg_ask_sql (self, sql->str, "locking a file", error);
    if (row == NULL)
        return false;
    *ret_granted = strcmp (PQgetvalue (row, 0, 0), "t") == 0;
    return strcmp (PQgetvalue (row, 0, 1), "t") == 0 || ecfs_pg_fail_fenced (self, error);
}

bool ecfs_pg_lock_find (Pg *self, const EcfsLockOwner *owner, const EcfsLockRange *wanted, bool *ret_there,
                        EcfsLockRange *ret_found, GError **error)
{
    g_autofree char *sql = g_strdup_printf (
        "SELECT l.first, l.last, l.exclusive FROM \"%1$s\".locks l JOIN \"%1$s\".members m ON m.session = l.session "
        "WHERE l.ino = %2$" PRId64 " AND l.kind = %3$d AND l.session <> '%4$s' AND l.first <= %5$" PRId64
        " AND l.last >= %6$" PRId64 " AND (l.exclusive OR %7$s) ORDER BY l.first LIMIT 1",
        self->schema, (int64_t) owner->ino, (int) owner->kind, self->session, wanted->last, wanted->first,
        wanted->exclusive ? "true" : "false");
    autoresult *rows = ecfs_pg_end_read (self, error) ? ecfs_pg_ask_sql (self, sql, "looking for locks", error) : NULL;
    *ret_there = rows != NULL && PQntuples (rows) == 1;
    if (*ret_there)
        *ret_found = (EcfsLockRange){.first = g_ascii_strtoll (PQgetvalue (rows, 0, 0), NULL, 10),
                                     .last = g_ascii_strtoll (PQgetvalue (rows, 0, 1), NULL, 10),
                                     .exclusive = strcmp (PQgetvalue (rows, 0, 2), "t") == 0};
    return rows != NULL;
}
