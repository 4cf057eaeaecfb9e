/* Life cycle and group commit; the states of the transaction are in db.h. */
#include "catalog/age.h"
#include "catalog/namespace_priv.h"
#include "catalog/pg.h"
#include "catalog/sqlite.h"

#include <sys/stat.h>
#include <unistd.h>

#define RETRY_US     G_USEC_PER_SEC
#define GROUP_US     (ECFS_CATALOG_GROUP_MS * 1000)
#define TURN_US      2000 /* others wait meanwhile */
#define SETTLE_US    (120 * G_USEC_PER_SEC)
#define TRIES        5 /* of an operation whose transaction is given up */
#define PAUSE_US     (G_USEC_PER_SEC / 10)
#define BEAT_US      (5 * G_USEC_PER_SEC)
#define IDLE_US      (60 * G_USEC_PER_SEC)
#define TIMEOUT_US   (30 * G_USEC_PER_SEC)
#define GATHER_US    300 /* how long a durable caller lets others join its COMMIT */
#define SANE_COUNTER ((uint64_t) INT64_MAX)
#define N_COUNTERS   13

/* Group commit */

static uint64_t *counter (Counters *counters, int i)
{
    EcfsTotals *totals = &counters->totals;
    uint64_t *all[N_COUNTERS] = {
        &counters->next_ino,  &counters->next_position, &counters->sequence,   &totals->n_inodes, &totals->n_files,
        &totals->n_objects,   &totals->content_bytes,   &totals->stripe_bytes, &totals->n_staged, &totals->n_not_full,
        &totals->n_deletions, &totals->journal_records, &totals->n_lost};
    return all[i];
}

static bool load_counters (EcfsCatalog *self, Counters *ret_counters, GError **error)
{
    autoquery *query = ecfs_query (self, STMT_COUNTERS_GET, NULL, 0, error);
    int found = ecfs_query_step (self, query, error);
    if (found < 0)
        return false;
    if (found == 0)
        return ecfs_bad_row (error, "counters", 1, "is missing");
    for (int i = 0; i < N_COUNTERS; i++)
        if (!ecfs_column_u64 (query, i, SANE_COUNTER, counter (ret_counters, i)))
            return ecfs_bad_row (error, "counters", 1, "a number is impossible");
    return true;
}

static bool save_counters (EcfsCatalog *self, GError **error)
{
    Value values[N_COUNTERS];
    for (int i = 0; i < N_COUNTERS; i++)
        values[i] = INT (*counter (&self->counters, i));
    return self->db->ops->run (self->db, STMT_COUNTERS_SET, values, N_COUNTERS, error);
}

/* The operations since BEGIN cannot be brought back. */
static void set_broken (EcfsCatalog *self, const char *reason)
{
    if (atomic_load (&self->behind) != NULL)
        g_critical ("%s; all changes are refused", reason);
    else
        g_critical (
            "catalog %s: the changes of the last moments are LOST: %s; unmount, check its disk, and mount again",
            self->path, reason);
    self->in_txn = false;
    (void) self->db->ops->control (self->db, STMT_ROLLBACK, "ROLLBACK", NULL); /* there may be nothing to roll back */
    g_byte_array_set_size (self->redo, 0);
    self->detached = false;
    self->broken = true;
    ecfs_cond_broadcast (&self->committed);
}

static void break_if_behind (EcfsCatalog *self)
{
    if (!self->broken && atomic_load (&self->behind) != NULL)
        set_broken (self, atomic_load (&self->behind));
}

static bool in_transaction (EcfsCatalog *self)
{
    return self->db->ops->in_transaction (self->db);
}

static bool is_away (EcfsCatalog *self)
{
    return self->db->ops->is_away != NULL && self->db->ops->is_away (self->db);
}

/* The database has rolled back on its own: makes the transaction again. False: it is broken; or, where the database is
 * another machine's, which may be able later, detached. */
static bool restore_txn (EcfsCatalog *self, GError **error)
{
    const DbOps *ops = self->db->ops;
    GError *why = NULL;
    self->detached = true;
    if (ops->control (self->db, STMT_BEGIN, "beginning again", &why) && ecfs_replay (self, 0, self->redo->len, &why)) {
        self->detached = false;
        return true;
    }
    if (!is_away (self))
        (void) ops->control (self->db, STMT_ROLLBACK, "ROLLBACK", NULL); /* that has an error, too, says what counts */
    ecfs_catalog_judge (self, why);
    break_if_behind (self);
    if (ops->settle == NULL)
        set_broken (self, why->message);
    g_propagate_error (error, why);
    return false;
}

static void set_failure (EcfsCatalog *self, const GError *why)
{
    bool is_first = self->failure == NULL;
    g_free (self->failure);
    self->failure = g_strdup (why->message);
    self->failure_code = why->code;
    self->flush_at_us = ecfs_now_us () + RETRY_US;
    if (is_first)
        g_warning ("%s; the changes are kept in memory and tried again each second, further ones are refused",
                   self->failure);
    if (self->db->ops->settle != NULL) /* whether COMMIT took effect is asked first */
        self->detached = self->detached || is_away (self) || !in_transaction (self);
    else if (!in_transaction (self))
        (void) restore_txn (self, NULL); /* failure or broken says it */
    ecfs_cond_broadcast (&self->committed);
}

/* Where the database was away: whether the last COMMIT took effect after all, else the transaction made again. 1: it
 * did; 0: it is there again; -1: @error, or broken. */
static int reattach (EcfsCatalog *self, GError **error)
{
    if (!self->detached)
        return 0;
    GError *why = NULL;
    int settled = self->db->ops->settle (self->db, &why);
    if (settled == 0 && !restore_txn (self, &why))
        settled = -1;
    else if (settled < 0)
        ecfs_catalog_judge (self, why);
    break_if_behind (self);
    self->detached = self->detached && settled < 0;
    if (settled >= 0)
        ecfs_tell_back (self);
    else
        g_propagate_error (error, why);
    return settled;
}

static bool fail_state (const EcfsCatalog *self, GError **error)
{
    if (atomic_load (&self->behind) != NULL)
        return ecfs_fail (error, EROFS, "%s", atomic_load (&self->behind));
    if (self->broken)
        return ecfs_fail (error, EIO, "catalog %s: changes were lost after a failed COMMIT; unmount and mount again",
                          self->path);
    return ecfs_fail (error, self->failure_code == ENOSPC ? ENOSPC : EROFS, "%s; changes are refused until it succeeds",
                      self->failure);
}

/* A failed read has made the database give up the transaction, which nobody rolls back to a savepoint. */
static bool heal (EcfsCatalog *self, GError **error)
{
    g_autoptr (GError) why = NULL;
    break_if_behind (self);
    if (self->broken)
        return fail_state (self, error);
    if (!self->in_txn || self->detached || is_away (self) || in_transaction (self))
        return true;
    if (self->is_member)
        ecfs_give_up (self);
    if (self->is_member || restore_txn (self, &why))
        return true;
    if (!self->broken)
        set_failure (self, why);
    return fail_state (self, error);
}

/* Not by ecfs_control (): that would begin again what may be committed. */
static bool write_down (EcfsCatalog *self, GError **error)
{
    return (save_counters (self, error) || (ecfs_revive (self, error) && save_counters (self, error))) &&
           self->db->ops->control (self->db, STMT_COMMIT, "COMMIT", error);
}

/* After a COMMIT that failed with *@why: where the database is away, or has given the transaction up, once more before
 * anybody hears of it. 1: it had taken effect; 0: it does now; -1: *@why stays. */
static int write_again (EcfsCatalog *self, GError **why)
{
    if (atomic_load (&self->behind) != NULL || self->db->ops->settle == NULL ||
        (!is_away (self) && in_transaction (self)))
        return -1;
    self->detached = true;
    if (is_away (self) && !ecfs_connect_within (self, NULL))
        return -1;
    int settled = reattach (self, NULL);
    if (settled == 0 && !write_down (self, NULL))
        settled = -1;
    if (settled >= 0)
        g_clear_error (why);
    return settled;
}

/* Of a shared catalog. 1: it is committed; 0: it is given up, with *@why; -1: nobody can tell, with *@why. */
static int commit_or_give_up (EcfsCatalog *self, GError **why)
{
    const DbOps *ops = self->db->ops;
    GError *unsettled = NULL;
    if (!self->detached && save_counters (self, why) && ops->control (self->db, STMT_COMMIT, "COMMIT", why))
        return 1;
    self->detached = self->detached || is_away (self);
    int settled = !self->detached || ecfs_connect_within (self, &unsettled) ? 0 : -1;
    if (self->detached && settled == 0)
        settled = ops->settle (self->db, &unsettled);
    if (settled < 0)
        ecfs_catalog_judge (self, unsettled);
    else if (settled == 0)
        ecfs_give_up (self);
    if (settled != 0)
        g_clear_error (why);
    if (settled < 0)
        g_propagate_error (why, unsettled);
    else if (settled == 0 && *why == NULL)
        told (ecfs_fail (why, EIO, "catalog %s: the connection was lost before COMMIT", self->path));
    self->detached = self->detached && settled < 0;
    return settled;
}

static int commit_alone (EcfsCatalog *self, GError **why)
{
    int settled = reattach (self, why);
    if (settled == 0 && !write_down (self, why))
        settled = write_again (self, why);
    return settled < 0 ? -1 : 1;
}

static bool commit (EcfsCatalog *self, GError **error)
{
    if (!self->in_txn)
        return true;
    GError *why = NULL;
    int committed = self->is_member ? commit_or_give_up (self, &why) : commit_alone (self, &why);
    break_if_behind (self);
    if (self->broken)
        committed = -1;
    if (committed < 0 && !self->broken)
        set_failure (self, why);
    if (committed == 0) {
        g_propagate_error (error, why);
        return false;
    }
    g_clear_error (&why);
    if (committed < 0)
        return fail_state (self, error);
    if (self->failure != NULL)
        g_message ("catalog %s: COMMIT succeeds again, nothing was lost", self->path);
    g_clear_pointer (&self->failure, g_free);
    g_byte_array_set_size (self->redo, 0);
    self->in_txn = false;
    self->durable_txn = self->txn;
    self->last_group = self->n_waiting;
    if (self->on_commit != NULL)
        self->on_commit (self->on_commit_user, self->counters.sequence);
    ecfs_cond_broadcast (&self->committed);
    return true;
}

void ecfs_catalog_watch_commits (EcfsCatalog *self, void (*committed) (void *user, uint64_t sequence), void *user)
{
    ecfs_mutex_lock (&self->lock);
    self->on_commit = committed;
    self->on_commit_user = user;
    ecfs_mutex_unlock (&self->lock);
}

static void roll_back (EcfsCatalog *self)
{
    g_autoptr (GError) why = NULL;
    if (!ecfs_control (self, STMT_ROLLBACK, "ROLLBACK", &why))
        set_broken (self, why->message);
}

static void end_reading (EcfsCatalog *self)
{
    if (self->reading && in_transaction (self))
        roll_back (self);
    self->reading = false;
}

/* Opening and closing a snapshot for each statement would cost more than most statements; so one is kept for a moment.
 * A reader beside a writer must see what that commits: its snapshot ends with the read. */
void ecfs_read_begin (EcfsCatalog *self)
{
    ecfs_await_back (self);
    (void) heal (self, NULL); /* failure or broken says it */
    if (self->in_txn || self->reading || self->broken)
        return;
    self->has_read = false;
    self->reading =
        ecfs_control (self, STMT_BEGIN_READ, "reading it", NULL); /* without it each statement has its own */
    if (self->readonly || self->is_member)
        return;
    self->flush_at_us = ecfs_now_us () + GROUP_US;
    ecfs_cond_signal (&self->wake);
}

void ecfs_read_end (EcfsCatalog *self)
{
    if (self->readonly || self->is_member)
        end_reading (self);
}

static bool begin (EcfsCatalog *self, GError **error)
{
    GError *why = NULL;
    end_reading (self);
    if (!ecfs_control (self, STMT_BEGIN, "BEGIN", &why)) {
        ecfs_catalog_judge (self, why);
        g_propagate_error (error, why);
        return false;
    }
    bool begun = load_counters (self, &self->counters, error) && (!self->is_member || ecfs_age_follow (self, error));
    if (begun && !in_transaction (self)) /* a query that came to a new connection is not within it */
        begun = ecfs_fail (error, EIO, "catalog %s: the connection was lost", self->path);
    if (!begun) {
        (void) ecfs_control (self, STMT_ROLLBACK, "ROLLBACK", NULL); /* nothing was changed */
        return false;
    }
    self->base_sequence = self->counters.sequence;
    self->in_txn = true;
    self->txn++;
    self->begun_us = ecfs_now_us ();
    return true;
}

/* Whether operations can be done: the transaction is open. */
static bool join (EcfsCatalog *self, Op *op, GError **error) ECFS_REQUIRES (self->lock)
{
    ecfs_await_back (self);
    if (self->broken || self->failure != NULL)
        return fail_state (self, error);
    /* Under load the flusher may not get the lock in time. */
    if (self->in_txn && ecfs_now_us () - self->begun_us > 2 * self->group_us && !commit (self, error)) {
        op->is_lost = self->is_member && self->failure == NULL && !self->broken; /* as well as those that it had */
        return false;
    }
    return heal (self, error) && (self->in_txn || begin (self, error));
}

bool ecfs_op_begin (EcfsCatalog *self, Op *op, GError **error)
{
    GError *why = NULL;
    *op = (Op){.txn = self->txn};
    if (self->readonly)
        return ecfs_fail (error, EROFS, "catalog %s is open for reading only", self->path);
    while (!join (self, op, &why)) {
        if (op->is_lost || self->away == NULL || self->broken || atomic_load (&self->behind) != NULL ||
            ecfs_now_us () >= self->away_us + self->timeout_us) {
            g_propagate_error (error, why);
            return false;
        }
        g_clear_error (&why); /* nothing was done yet: the database may be back in time */
    }
    if (!ecfs_control (self, STMT_SAVEPOINT, "SAVEPOINT", error))
        return false;
    op->txn = self->txn;
    op->counters = self->counters;
    op->redo_size = self->op_at = self->redo->len;
    g_byte_array_set_size (self->record, 0);
    return true;
}

bool ecfs_last_sum (EcfsCatalog *self, uint64_t sequence, uint8_t ret_sum[ECFS_JOURNAL_SUM_BYTES], GError **error)
{
    autoquery *query = QUERY (self, JOURNAL_LIST, error, INT ((int64_t) sequence - 1), INT (1));
    int found = ecfs_query_step (self, query, error);
    memset (ret_sum, 0, ECFS_JOURNAL_SUM_BYTES);
    if (found == 1 && (uint64_t) ecfs_column_number (query, 0) == sequence)
        ecfs_journal_sum (sequence, ecfs_column_number (query, 1), ecfs_column_blob (query, 2),
                          ecfs_column_size (query, 2), ret_sum);
    return found >= 0;
}

/* The record tells of the one before it, and is the one that the next tells of. */
static bool link_record (EcfsCatalog *self, int64_t now_ns, GError **error)
{
    uint64_t sequence = self->counters.sequence;
    if (self->summed != sequence - 1 && !ecfs_last_sum (self, sequence - 1, self->sum, error))
        return false;
    ecfs_journal_put_sum (self->record, ECFS_JOURNAL_PREVIOUS, self->sum);
    ecfs_journal_sum (sequence, now_ns, self->record->data, self->record->len, self->sum);
    self->summed = sequence;
    return true;
}

static bool append_journal (EcfsCatalog *self, GError **error)
{
    int64_t now_ns = ecfs_real_ns ();
    if (self->record->len == 0)
        return true;
    if (self->refusal != NULL)
        return ecfs_fail (error, EROFS, "%s", self->refusal);
    self->counters.sequence++;
    self->counters.totals.journal_records++;
    return link_record (self, now_ns, error) && EXEC (self, JOURNAL_INSERT, error, INT (self->counters.sequence),
                                                      INT (now_ns), BLOB (self->record->data, self->record->len));
}

static bool is_given_up (const EcfsCatalog *self, const Op *op)
{
    return self->is_member && (!self->in_txn || op->txn != self->txn);
}

static void undo (EcfsCatalog *self, Op *op)
{
    op->is_lost = is_given_up (self, op);
    if (op->is_lost)
        return;
    self->counters = op->counters;
    self->summed = 0;
    break_if_behind (self);
    if (self->broken)
        return;
    g_byte_array_set_size (self->redo, op->redo_size);
    g_autoptr (GError) why = NULL;
    const DbOps *ops = self->db->ops;
    if (!is_away (self) && in_transaction (self) && ops->control (self->db, STMT_ROLLBACK_TO, "ROLLBACK TO", &why) &&
        ops->control (self->db, STMT_RELEASE, "RELEASE", &why))
        return;
    if (self->is_member) {
        ecfs_give_up (self);
        op->is_lost = true;
        return;
    }
    if (!is_away (self) && in_transaction (self)) {
        set_broken (self, why->message);
        return;
    }
    g_clear_error (&why);
    if (is_away (self))
        told (ecfs_fail (&why, EIO, "catalog %s: the connection is lost", self->path));
    else if (restore_txn (self, &why) || self->broken)
        return;
    set_failure (self, why);
}

bool ecfs_op_end (EcfsCatalog *self, Op *op, bool ok, GError **error)
{
    if (ok && is_given_up (self, op)) /* whatever it made of the statement that failed */
        ok = ecfs_fail (error, EIO, "catalog %s: the connection was lost", self->path);
    ok = ok && append_journal (self, error) && ecfs_control (self, STMT_RELEASE, "RELEASE", error);
    self->op_at = NO_OP;
    if (!ok)
        undo (self, op);
    if (op->is_lost)
        return false;
    if (self->in_txn && self->redo->len == 0 &&
        self->failure == NULL) { /* nothing changed: no reason to keep others from the database */
        roll_back (self);
        self->in_txn = false;
        self->durable_txn = self->txn;
    } else if (ok && op->redo_size == 0) {
        self->flush_at_us = self->begun_us + self->group_us;
        ecfs_cond_signal (&self->wake);
    }
    return ok;
}

void ecfs_op_enter (EcfsCatalog *self, bool durable)
{
    if (!durable && !self->is_member) {
        ecfs_mutex_lock (&self->lock);
        return;
    }
    atomic_fetch_add (&self->n_entering, 1);
    ecfs_mutex_lock (&self->lock);
    atomic_fetch_sub (&self->n_entering, 1);
}

/* Whoever completes the group commits for all of it: when nobody is about to take the lock, and as many wait as the
 * last time (they tend to come again together), or GATHER_US have passed. */
static bool wait_for_commit (EcfsCatalog *self, Op *op, int64_t patient_until_us, GError **error)
    ECFS_REQUIRES (self->lock)
{
    uint64_t txn = op->txn;
    int64_t deadline_us = ecfs_now_us () + GATHER_US;
    bool ok = true;
    self->n_waiting++;
    op->next = self->waiting;
    self->waiting = op;
    while (ok && (self->durable_txn < txn || op->is_lost)) {
        bool complete = atomic_load (&self->n_entering) == 0 && self->n_waiting >= self->last_group;
        if (op->is_lost)
            ok = ecfs_fail (error, EIO, "catalog %s: the connection was lost, again and again", self->path);
        else if (self->failure != NULL && !self->broken && ecfs_now_us () < patient_until_us)
            (void) ecfs_cond_wait_until (&self->committed, &self->lock, patient_until_us); /* likewise */
        else if (self->broken || self->failure != NULL)
            ok = fail_state (self, error);
        else if (!complete && ecfs_now_us () < deadline_us)
            (void) ecfs_cond_wait_until (&self->committed, &self->lock, deadline_us); /* the loop looks */
        else
            ok = commit (self, error);
    }
    self->n_waiting--;
    Op **at = &self->waiting;
    while (*at != op)
        at = &(*at)->next;
    *at = op->next;
    return ok;
}

bool ecfs_op_wait (EcfsCatalog *self, Op *op, GError **error)
{
    return wait_for_commit (self, op, 0, error);
}

bool ecfs_op_settle (EcfsCatalog *self, Op *op, GError **error)
{
    return wait_for_commit (self, op, ecfs_now_us () + SETTLE_US, error);
}

bool ecfs_wait_all (EcfsCatalog *self, GError **error)
{
    Op op = {.txn = self->txn};
    g_autoptr (GError) why = NULL;
    if (ecfs_op_wait (self, &op, &why) || op.is_lost) /* what was given up is no change that was made */
        return true;
    g_propagate_error (error, g_steal_pointer (&why));
    return false;
}

bool ecfs_op_again (EcfsCatalog *self, const Op *op, unsigned tries, GError **error)
{
    if (!op->is_lost || tries >= TRIES)
        return false;
    if (error != NULL)
        g_clear_error (error);
    g_usleep (tries * PAUSE_US);
    return true;
}

bool ecfs_catalog_barrier (EcfsCatalog *self, GError **error)
{
    ecfs_op_enter (self, true);
    bool ok = self->failure != NULL ? commit (self, error) : ecfs_wait_all (self, error);
    ecfs_mutex_unlock (&self->lock);
    return ok;
}

/* When nothing else is done, the database is told that this process is alive. */
static void beat (EcfsCatalog *self, int64_t now_us)
{
    g_autoptr (GError) why = NULL;
    if (self->db->ops->beat == NULL || self->in_txn || self->reading || now_us < self->beat_at_us)
        return;
    if (self->db->ops->beat (self->db, &why))
        ecfs_tell_back (self);
    else
        g_info ("%s", why->message); /* the next change says it to whoever makes it */
    ecfs_catalog_judge (self, why);
    break_if_behind (self);
    self->beat_at_us = ecfs_now_us () + (why == NULL ? BEAT_US : RETRY_US);
}

static void *flush (void *data)
{
    EcfsCatalog *self = data;
    ecfs_mutex_lock (&self->lock);
    while (!self->stopping) {
        int64_t now_us = ecfs_now_us ();
        beat (self, now_us);
        bool open = self->in_txn || self->reading;
        if (self->reading && now_us >= self->flush_at_us)
            end_reading (self);
        else if (open && now_us >= self->flush_at_us)
            (void) commit (self, NULL); /* kept as failure, which everybody sees */
        else
            (void) ecfs_cond_wait_until (&self->wake, &self->lock,
                                         open                          ? self->flush_at_us
                                         : self->db->ops->beat == NULL ? now_us + IDLE_US
                                                                       : self->beat_at_us);
    }
    ecfs_mutex_unlock (&self->lock);
    return NULL;
}

/* Opening */

static bool load_meta (EcfsCatalog *self, GError **error)
{
    autoquery *query = ecfs_query (self, STMT_META_GET, NULL, 0, error);
    int found = ecfs_query_step (self, query, error);
    if (found < 0)
        return false;
    uint64_t epoch;
    if (found == 0 || !ecfs_column_bytes (query, 0, self->archive.bytes, sizeof self->archive.bytes) ||
        !ecfs_column_u64 (query, 1, UINT32_MAX, &epoch))
        return ecfs_bad_row (error, "meta", 1, "does not say which archive this is");
    self->epoch = (uint32_t) epoch;
    return true;
}

/* Numbers that would be given out twice, or a root that is none, are found before anything is done with them. */
static bool check_start (EcfsCatalog *self, GError **error)
{
    Counters counters;
    int64_t max_ino, max_seq;
    Inode root;
    if (!load_meta (self, error) || !load_counters (self, &counters, error) || !ecfs_age_load (self, error) ||
        ecfs_query_number (self, STMT_INODE_MAX, NULL, 0, &max_ino, error) < 0 ||
        ecfs_query_number (self, STMT_JOURNAL_MAX, NULL, 0, &max_seq, error) < 0)
        return false;
    if (counters.next_ino <= (uint64_t) max_ino || counters.sequence < (uint64_t) max_seq)
        return ecfs_bad_row (error, "counters", 1, "is lower than the rows that it counts");
    g_autoptr (GError) why = NULL;
    if (!ecfs_inode_get_dir (self, ECFS_ROOT_INO, &root, &why))
        return ecfs_bad_row (error, "inodes", ECFS_ROOT_INO, why->message);
    return true;
}

/* Another process may be writing: it is looked at as it is at one moment. */
static bool check_snapshot (EcfsCatalog *self, GError **error)
{
    if (!ecfs_control (self, STMT_BEGIN_READ, "reading it", error))
        return false;
    bool good = check_start (self, error);
    (void) ecfs_control (self, STMT_ROLLBACK, "ROLLBACK", NULL); /* nothing was written */
    return good;
}

static EcfsCatalog *wrap_db (const char *path, EcfsDb *db, bool readonly, bool is_member)
{
    EcfsCatalog *self = g_new0 (EcfsCatalog, 1);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->wake);
    ecfs_cond_init (&self->committed);
    self->path = g_strdup (path);
    self->readonly = readonly;
    self->is_member = is_member;
    self->group_us = is_member ? TURN_US : GROUP_US;
    self->db = db;
    self->redo = g_byte_array_new ();
    self->record = g_byte_array_new ();
    self->deleted_us = ecfs_now_us ();
    self->op_at = NO_OP;
    self->timeout_us = TIMEOUT_US;
    return self;
}

static void free_catalog (EcfsCatalog *self)
{
    self->db->ops->close (self->db);
    g_clear_pointer (&self->lost, g_hash_table_unref);
    g_byte_array_unref (self->redo);
    g_byte_array_unref (self->record);
    ecfs_cond_clear (&self->wake);
    ecfs_cond_clear (&self->committed);
    ecfs_mutex_clear (&self->lock);
    g_free (self->failure);
    g_free (self->away);
    g_free (atomic_load (&self->behind));
    g_free (self->refusal);
    g_free (self->path);
    g_free (self);
}

EcfsCatalog *ecfs_catalog_open (const char *path, unsigned flags, GError **error)
{
    bool readonly = (flags & ECFS_CATALOG_READONLY) != 0;
    bool is_location = ecfs_pg_is_location (path);
    g_autofree char *name = is_location ? ecfs_pg_display (path) : g_strdup (path);
    bool is_member = is_location && !readonly && (flags & ECFS_CATALOG_MEMBER) != 0;
    EcfsDb *db = is_location ? ecfs_pg_open (path, flags, error) : ecfs_sqlite_open (path, readonly, error);
    if (db == NULL)
        return NULL;
    EcfsCatalog *self = wrap_db (name, db, readonly, is_member);
    if (!db->ops->prepare (db, error) || !check_snapshot (self, error)) {
        free_catalog (self);
        return NULL;
    }
    if (!readonly && (errno = pthread_create (&self->flusher, NULL, flush, self)) != 0) {
        told (ecfs_fail_errno (error, errno, "catalog %s: starting a thread", name));
        free_catalog (self);
        return NULL;
    }
    return self;
}

bool ecfs_catalog_is_shared (const EcfsCatalog *self)
{
    return self->is_member;
}

bool ecfs_catalog_leads (EcfsCatalog *self)
{
    ecfs_mutex_lock (&self->lock);
    bool leads = ecfs_leads (self) && !self->inherits;
    ecfs_mutex_unlock (&self->lock);
    return leads;
}

static bool look_around (EcfsCatalog *self, GError **error)
{
    bool led = ecfs_leads (self), leads = led;
    bool looked = self->db->ops->look_around (self->db, &leads, error);
    self->inherits = leads && (self->inherits || !led);
    if (!looked || !self->inherits)
        return looked;
    self->inherits = !ecfs_age_inherit (self, error);
    return !self->inherits;
}

/* What is asked outside of transactions waits for the one that is open. */
static bool step_aside (EcfsCatalog *self, GError **error)
{
    if (self->broken || self->failure != NULL)
        return fail_state (self, error);
    g_autoptr (GError) why = NULL;
    if (!commit (self, &why) && (self->broken || self->failure != NULL)) { /* what is given up its callers are told */
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    }
    end_reading (self);
    return true;
}

/* @call is asked of the database outside of transactions. */
#define ASIDE(self, error, call)                                                                                       \
    ({                                                                                                                 \
        ecfs_mutex_lock (&(self)->lock);                                                                               \
        bool ok_ = step_aside (self, error) && (call);                                                                 \
        ecfs_mutex_unlock (&(self)->lock);                                                                             \
        ok_;                                                                                                           \
    })

bool ecfs_catalog_ask_leader (EcfsCatalog *self, uint64_t sequence, EcfsLeaderAnswer *ret_answer, GError **error)
{
    return ASIDE (self, error, self->db->ops->ask_leader (self->db, sequence, ret_answer, error));
}

bool ecfs_catalog_wanted (EcfsCatalog *self, uint64_t *ret_sequence, GError **error)
{
    return ASIDE (self, error, self->db->ops->wanted (self->db, ret_sequence, error));
}

bool ecfs_catalog_answer (EcfsCatalog *self, uint64_t sequence, const char *trouble, GError **error)
{
    return ASIDE (self, error, self->db->ops->answer (self->db, sequence, trouble, error));
}

bool ecfs_catalog_resign (EcfsCatalog *self, GError **error)
{
    return ASIDE (self, error, self->db->ops->resign (self->db, error));
}

bool ecfs_catalog_look_around (EcfsCatalog *self, GError **error)
{
    return !self->is_member || ASIDE (self, error, look_around (self, error));
}

char *ecfs_catalog_leader (EcfsCatalog *self)
{
    char *leader = NULL;
    if (self->is_member)
        (void) ASIDE (self, NULL, (leader = self->db->ops->leader (self->db)) != NULL); /* NULL says it */
    return leader;
}

void ecfs_catalog_refuse (EcfsCatalog *self, const char *reason)
{
    ecfs_mutex_lock (&self->lock);
    if (self->refusal == NULL)
        self->refusal = g_strdup (reason);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_catalog_allow (EcfsCatalog *self)
{
    ecfs_mutex_lock (&self->lock);
    g_clear_pointer (&self->refusal, g_free);
    ecfs_mutex_unlock (&self->lock);
}

bool ecfs_catalog_close (EcfsCatalog *self, GError **error)
{
    if (self == NULL)
        return true;
    ecfs_mutex_lock (&self->lock);
    self->stopping = true;
    ecfs_cond_signal (&self->wake);
    ecfs_mutex_unlock (&self->lock);
    if (!self->readonly)
        (void) pthread_join (self->flusher, NULL); /* fails only for threads that are none */
    ecfs_mutex_lock (&self->lock);
    end_reading (self);
    bool ok = self->broken ? fail_state (self, error) : commit (self, error);
    ecfs_mutex_unlock (&self->lock);
    free_catalog (self);
    return ok;
}

/* Creating */

static bool insert_first_rows (EcfsCatalog *self, GError **error)
{
    int64_t now_ns = ecfs_real_ns ();
    Inode root = {.attr = {.ino = ECFS_ROOT_INO,
                           .mode = S_IFDIR | 0755,
                           .nlink = 2,
                           .uid = geteuid (),
                           .gid = getegid (),
                           .atime_ns = now_ns,
                           .mtime_ns = now_ns,
                           .ctime_ns = now_ns,
                           .btime_ns = now_ns}};
    ecfs_journal_put_epoch (self->record, 1);
    return ecfs_inode_insert (self, &root, NULL, error) && append_journal (self, error);
}

static bool insert_all (EcfsCatalog *self, const EcfsUuid *archive, GError **error)
{
    const DbOps *ops = self->db->ops;
    return ops->prepare (self->db, error) &&
           ops->run (self->db, STMT_META_INSERT, VALUES (UUID (archive), INT (ecfs_real_ns ())), error) &&
           ops->run (self->db, STMT_COUNTERS_INSERT, NULL, 0, error) && begin (self, error) &&
           insert_first_rows (self, error) && commit (self, error);
}

/* Nobody sees it before it is filled. */
static bool fill (EcfsDb *db, const char *path, const EcfsUuid *archive, GError **error)
{
    EcfsCatalog *self = wrap_db (path, db, false, false);
    ecfs_mutex_lock (&self->lock);
    bool ok = insert_all (self, archive, error);
    ecfs_mutex_unlock (&self->lock);
    free_catalog (self);
    return ok;
}

bool ecfs_catalog_create (const char *path, const EcfsUuid *archive, GError **error)
{
    return ecfs_pg_is_location (path) ? ecfs_pg_create (path, fill, archive, error)
                                      : ecfs_sqlite_create (path, fill, archive, error);
}

/* Facts */

const EcfsUuid *ecfs_catalog_archive (const EcfsCatalog *self)
{
    return &self->archive;
}

uint32_t ecfs_catalog_epoch (const EcfsCatalog *self)
{
    return self->epoch;
}

static bool get_counters (EcfsCatalog *self, Counters *ret_counters, GError **error)
{
    if (!self->in_txn)
        return load_counters (self, ret_counters, error);
    *ret_counters = self->counters;
    return true;
}

bool ecfs_counters_read (EcfsCatalog *self, uint64_t *ret_next_ino, uint64_t *ret_sequence, GError **error)
{
    Counters counters;
    if (!get_counters (self, &counters, error))
        return false;
    *ret_next_ino = counters.next_ino;
    *ret_sequence = counters.sequence;
    return true;
}

static Counters counters_now (EcfsCatalog *self)
{
    Counters counters = {.sequence = 0};
    g_autoptr (GError) error = NULL;
    if (!READ (self, get_counters (self, &counters, &error)))
        g_warning ("%s", error->message);
    return counters;
}

/* Of a shared catalog what is not committed may be given up, and its numbers become those of others' records. */
static bool get_sequence (EcfsCatalog *self, uint64_t *ret_sequence, GError **error)
{
    Counters counters = {.sequence = self->base_sequence};
    bool good = (self->is_member && self->in_txn) || get_counters (self, &counters, error);
    *ret_sequence = counters.sequence;
    return good;
}

uint64_t ecfs_catalog_sequence (EcfsCatalog *self)
{
    uint64_t sequence = 0;
    g_autoptr (GError) error = NULL;
    if (!READ (self, get_sequence (self, &sequence, &error)))
        g_warning ("%s", error->message);
    return sequence;
}

int64_t ecfs_catalog_last_offset (EcfsCatalog *self)
{
    return (int64_t) counters_now (self).next_position - 1;
}

bool ecfs_catalog_next_ino (EcfsCatalog *self, uint64_t *ret_ino, GError **error)
{
    Counters counters;
    if (!READ (self, get_counters (self, &counters, error)))
        return false;
    *ret_ino = counters.next_ino;
    return true;
}

bool ecfs_catalog_totals (EcfsCatalog *self, EcfsTotals *ret_totals, GError **error)
{
    Counters counters;
    if (!READ (self, get_counters (self, &counters, error)))
        return false;
    *ret_totals = counters.totals;
    return true;
}

char *ecfs_catalog_trouble (EcfsCatalog *self)
{
    g_autoptr (GError) error = NULL;
    ecfs_mutex_lock (&self->lock);
    if (self->broken || self->failure != NULL)
        told (fail_state (self, &error));
    else if (self->away != NULL)
        told (ecfs_fail (&error, EIO, "%s; names cannot be read until it is back", self->away));
    ecfs_mutex_unlock (&self->lock);
    return error == NULL ? NULL : g_strdup (error->message);
}
