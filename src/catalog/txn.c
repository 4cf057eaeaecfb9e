/* Group commit: operations share a transaction, whose states are in db.h. */
#include "catalog/age.h"
#include "catalog/lost.h"
#include "catalog/numbers.h"
#include "catalog/optimistic.h"

#define RETRY_US     G_USEC_PER_SEC
#define SETTLE_US    (120 * G_USEC_PER_SEC)
#define TRIES        5 /* of an operation whose transaction is given up */
#define PAUSE_US     (G_USEC_PER_SEC / 10)
#define BEAT_US      (5 * G_USEC_PER_SEC)
#define IDLE_US      (60 * G_USEC_PER_SEC)
#define GATHER_US    300 /* how long a durable caller lets others join its COMMIT */
#define SANE_COUNTER ((uint64_t) INT64_MAX)
#define N_COUNTERS   ECFS_N_COUNTERS

/* Its operation was lost: it is made in its turn. */
static _Thread_local bool needs_turn;

uint64_t *ecfs_counter (Counters *counters, int i)
{
    EcfsTotals *totals = &counters->totals;
    uint64_t *all[N_COUNTERS] = {
        &counters->next_ino,  &counters->next_position, &counters->sequence,   &totals->n_inodes, &totals->n_files,
        &totals->n_objects,   &totals->content_bytes,   &totals->stripe_bytes, &totals->n_staged, &totals->n_not_full,
        &totals->n_deletions, &totals->journal_records, &totals->n_lost};
    return all[i];
}

bool ecfs_counters_load (EcfsCatalog *self, Counters *ret_counters, GError **error)
{
    autoquery *query = ecfs_query (self, STMT_COUNTERS_GET, NULL, 0, error);
    int found = ecfs_query_step (self, query, error);
    if (found < 0)
        return false;
    if (found == 0)
        return ecfs_bad_row (error, "counters", 1, "is missing");
    for (int i = 0; i < N_COUNTERS; i++)
        if (!ecfs_column_u64 (query, i, SANE_COUNTER, ecfs_counter (ret_counters, i)))
            return ecfs_bad_row (error, "counters", 1, "a number is impossible");
    return true;
}

static bool save_counters (EcfsCatalog *self, GError **error)
{
    Value values[N_COUNTERS];
    if (self->is_optimistic)
        return ecfs_optimistic_end (self, error);
    if (!ecfs_numbers_take (self, error))
        return false;
    for (int i = 0; i < N_COUNTERS; i++)
        values[i] = INT (*ecfs_counter (&self->counters, i));
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
    ecfs_cond_signal (&self->wake);
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

bool ecfs_fail_state (const EcfsCatalog *self, GError **error)
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
        return ecfs_fail_state (self, error);
    if (!self->in_txn || self->detached || is_away (self) || in_transaction (self))
        return true;
    if (self->is_member)
        ecfs_give_up (self);
    if (self->is_member || restore_txn (self, &why))
        return true;
    if (!self->broken)
        set_failure (self, why);
    return ecfs_fail_state (self, error);
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

static void take_numbers (EcfsCatalog *self, bool is_answered)
{
    if (self->is_optimistic)
        ecfs_optimistic_ended (self, is_answered);
    else
        ecfs_numbers_taken (self, is_answered);
}

/* Of a shared catalog. 1: it is committed; 0: it is given up, with *@why; -1: nobody can tell, with *@why. */
static int commit_or_give_up (EcfsCatalog *self, GError **why)
{
    const DbOps *ops = self->db->ops;
    GError *unsettled = NULL;
    if (!self->detached && in_transaction (self) && save_counters (self, why) &&
        ops->control (self->db, STMT_COMMIT, "COMMIT", why)) {
        take_numbers (self, true);
        return 1;
    }
    self->detached = self->detached || is_away (self);
    int settled = !self->detached || ecfs_connect_within (self, &unsettled) ? 0 : -1;
    if (self->detached && settled == 0)
        settled = ops->settle (self->db, &unsettled);
    if (settled < 0)
        ecfs_catalog_judge (self, unsettled);
    else if (settled == 0)
        ecfs_give_up (self);
    else
        take_numbers (self, false);
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

bool ecfs_commit (EcfsCatalog *self, GError **error)
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
        return ecfs_fail_state (self, error);
    if (self->failure != NULL)
        g_message ("catalog %s: COMMIT succeeds again, nothing was lost", self->path);
    g_clear_pointer (&self->failure, g_free);
    g_byte_array_set_size (self->redo, 0);
    self->in_txn = false;
    self->durable_txn = self->txn;
    self->last_group = self->n_waiting;
    ecfs_lost_keep (self);
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

void ecfs_reading_end (EcfsCatalog *self)
{
    if (self->reading && in_transaction (self))
        roll_back (self);
    self->reading = false;
}

/* Opening and closing a snapshot for each statement would cost more than most statements; so one is kept for a moment.
 * A reader beside a writer must see what that commits: its snapshot ends with the read. */
void ecfs_read_begin (EcfsCatalog *self, bool looks)
{
    ecfs_await_back (self);
    if (ecfs_optimistic_is_unsent (self)) /* what is read beside it is of no single moment */
        (void) ecfs_commit (self, NULL);  /* whoever waits for it begins anew */
    (void) heal (self, NULL);             /* failure or broken says it */
    ecfs_ahead_take (self);
    if (self->reading || self->broken)
        return;
    self->has_read = false;
    if (self->in_txn)
        return;
    self->reading = ecfs_control (self, looks && self->is_member ? STMT_BEGIN_LOOK : STMT_BEGIN_READ, "reading it",
                                  NULL); /* without it each statement has its own */
    if (self->readonly || self->is_member)
        return;
    self->flush_at_us = ecfs_now_us () + self->group_us;
    ecfs_cond_signal (&self->wake);
}

void ecfs_read_end (EcfsCatalog *self)
{
    if (self->readonly || self->is_member)
        ecfs_reading_end (self);
}

static void set_begun (EcfsCatalog *self)
{
    self->in_txn = true;
    self->txn++;
    self->begun_us = ecfs_now_us ();
}

bool ecfs_txn_begin (EcfsCatalog *self, GError **error)
{
    GError *why = NULL;
    ecfs_reading_end (self);
    if (self->db->ops->ahead != NULL)
        self->db->ops->ahead (self->db, STMT_COUNTERS_GET, NULL, 0);
    if (self->is_member) /* which may be another's, and is told of in this one's turn */
        self->db->ops->ahead (self->db, STMT_JOURNAL_LAST, NULL, 0);
    if (!ecfs_control (self, STMT_BEGIN, "BEGIN", &why)) {
        ecfs_catalog_judge (self, why);
        g_propagate_error (error, why);
        return false;
    }
    bool begun =
        ecfs_counters_load (self, &self->counters, error) && (!self->is_member || ecfs_age_follow (self, error));
    if (begun && !in_transaction (self)) /* a query that came to a new connection is not within it */
        begun = ecfs_fail (error, EIO, "catalog %s: the connection was lost", self->path);
    if (!begun) {
        (void) ecfs_control (self, STMT_ROLLBACK, "ROLLBACK", NULL); /* nothing was changed */
        return false;
    }
    self->base_sequence = self->counters.sequence;
    self->n_turns -= self->n_turns > 0 ? 1 : 0;
    self->is_optimistic = false;
    set_begun (self);
    return true;
}

static bool begin_optimistic (EcfsCatalog *self, GError **error)
{
    ecfs_reading_end (self);
    if (!ecfs_optimistic_begin (self, error))
        return false;
    set_begun (self);
    return true;
}

/* One that others have begun gets its turn, if it is to. */
static bool take_turn (EcfsCatalog *self, Op *op, bool has_turn, GError **error)
{
    if (!self->in_txn && !has_turn && ecfs_optimistic_is_possible (self) && !begin_optimistic (self, error))
        return false;
    ecfs_ahead_take (self); /* now: what is behind BEGIN here is of this operation */
    if (!self->in_txn)
        return ecfs_txn_begin (self, error);
    if (!has_turn || !ecfs_optimistic_is_unsent (self) || self->db->ops->await (self->db, error))
        return true;
    ecfs_give_up (self);
    op->is_lost = true;
    return false;
}

/* Whether operations can be done: the transaction is open. */
static bool join (EcfsCatalog *self, Op *op, bool has_turn, GError **error) ECFS_REQUIRES (self->lock)
{
    ecfs_await_back (self);
    if (self->broken || self->failure != NULL)
        return ecfs_fail_state (self, error);
    /* Under load the flusher may not get the lock in time. */
    if (self->in_txn && (ecfs_now_us () - self->begun_us > 2 * self->group_us || ecfs_optimistic_is_full (self)) &&
        !ecfs_commit (self, error)) {
        op->is_lost = self->is_member && self->failure == NULL && !self->broken; /* as well as those that it had */
        return false;
    }
    return heal (self, error) && take_turn (self, op, has_turn, error);
}

bool ecfs_op_begin (EcfsCatalog *self, Op *op, GError **error)
{
    GError *why = NULL;
    const int64_t until_us = ecfs_now_us () + self->timeout_us;
    *op = (Op){.txn = self->txn};
    const bool has_turn = ecfs_ahead_has_turn (self) || needs_turn;
    needs_turn = false;
    if (self->readonly)
        return ecfs_fail (error, EROFS, "catalog %s is open for reading only", self->path);
    while (!join (self, op, has_turn, &why)) {
        if (self->is_member && self->db->ops->is_doubtful (self->db) && ecfs_await_no_doubt (self, until_us)) {
            g_clear_error (&why);
            continue;
        }
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
    op->n_lost = ecfs_lost_count (self);
    g_byte_array_set_size (self->record, 0);
    return true;
}

bool ecfs_last_sum (EcfsCatalog *self, uint64_t sequence, uint8_t ret_sum[ECFS_JOURNAL_SUM_BYTES], GError **error)
{
    autoquery *query = ecfs_query (self, STMT_JOURNAL_LAST, NULL, 0, error);
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

bool ecfs_journal_append (EcfsCatalog *self, GError **error)
{
    int64_t now_ns = ecfs_real_ns ();
    if (self->record->len == 0)
        return true;
    if (self->refusal != NULL)
        return ecfs_fail (error, EROFS, "%s", self->refusal);
    self->counters.sequence++;
    self->counters.totals.journal_records++;
    if (self->is_optimistic)
        return ecfs_optimistic_append (self, now_ns, error);
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
    ecfs_lost_forget (self, op->n_lost);
    self->summed = 0;
    self->touched_us = 0;
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

/* What a database does later is done. */
static bool await_run (EcfsCatalog *self, GError **error)
{
    const DbOps *ops = self->db->ops;
    return ops->await == NULL || ops->await (self->db, error) ||
           (ecfs_revive (self, error) && ops->await (self->db, error));
}

static bool end_op (EcfsCatalog *self, Op *op, bool ok, bool is_checked, GError **error)
{
    if (ok && is_given_up (self, op)) /* whatever it made of the statement that failed */
        ok = ecfs_fail (error, EIO, "catalog %s: the connection was lost", self->path);
    const bool is_unsent = ecfs_optimistic_is_unsent (self);
    /* Where nothing was read nobody knows yet whether the database is there: that is better found before COMMIT. */
    const bool is_later = is_unsent ? self->has_read : is_checked;
    ok = ok && ecfs_journal_append (self, error) && (is_later || await_run (self, error)) &&
         ecfs_control (self, STMT_RELEASE, "RELEASE", error);
    self->op_at = NO_OP;
    /* What is decided by what was read beside the transaction, and does not become part of it, nobody validates. */
    const bool is_unproven = is_unsent && (!ok || self->redo->len == op->redo_size);
    if (!ok)
        undo (self, op);
    if (op->is_lost)
        return false;
    op->is_lost = is_unproven;
    if (self->in_txn && self->redo->len == 0 &&
        self->failure == NULL) { /* nothing changed: no reason to keep others from the database */
        roll_back (self);
        self->in_txn = false;
        self->durable_txn = self->txn;
    } else if (ok && !is_unproven && op->redo_size == 0) {
        self->flush_at_us = self->begun_us + self->group_us;
        if (!self->is_member) /* else who changes something commits it */
            ecfs_cond_signal (&self->wake);
    }
    return ok && !is_unproven;
}

bool ecfs_op_end (EcfsCatalog *self, Op *op, bool ok, GError **error)
{
    return end_op (self, op, ok, false, error);
}

bool ecfs_op_end_checked (EcfsCatalog *self, Op *op, bool ok, GError **error)
{
    return end_op (self, op, ok, true, error);
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
        op->is_lost = op->is_lost || is_given_up (self, op); /* it may have been before this came */
        if (op->is_lost)
            ok = ecfs_fail (error, EIO, "catalog %s: the connection was lost, again and again", self->path);
        else if (self->failure != NULL && !self->broken && ecfs_now_us () < patient_until_us)
            (void) ecfs_cond_wait_until (&self->committed, &self->lock, patient_until_us); /* the loop looks */
        else if (self->broken || self->failure != NULL)
            ok = ecfs_fail_state (self, error);
        else if (!complete && ecfs_now_us () < deadline_us)
            (void) ecfs_cond_wait_until (&self->committed, &self->lock, deadline_us); /* likewise */
        else
            ok = ecfs_commit (self, error);
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
    needs_turn = true;
    ecfs_ahead_again ();
    return true;
}

bool ecfs_catalog_barrier (EcfsCatalog *self, GError **error)
{
    ecfs_op_enter (self, true);
    bool ok = self->failure != NULL ? ecfs_commit (self, error) : ecfs_wait_all (self, error);
    ecfs_mutex_unlock (&self->lock);
    return ok;
}

/* Of members: what others committed may be seen before the disk has it (pg_exchange.c), and what commits behind it
 * waits for all before it. */
static bool harden (EcfsCatalog *self, uint64_t *ret_sequence, GError **error) ECFS_REQUIRES (self->lock)
{
    /* Within a transaction, which somebody may have begun while this gave the lock back, nothing gets to the disk. */
    for (ecfs_read_begin (self, false); self->in_txn; ecfs_read_begin (self, false))
        if (!ecfs_commit (self, error))
            return false;
    bool known = ecfs_sequence_get (self, ret_sequence, error);
    ecfs_read_end (self);
    return known && (!self->is_member || self->db->ops->harden (self->db, error));
}

bool ecfs_catalog_harden (EcfsCatalog *self, uint64_t *ret_sequence, GError **error)
{
    uint64_t sequence = 0;
    ecfs_op_enter (self, true);
    bool ok = (self->failure != NULL ? ecfs_commit (self, error) : ecfs_wait_all (self, error)) &&
              harden (self, &sequence, error);
    ecfs_mutex_unlock (&self->lock);
    if (ok && ret_sequence != NULL)
        *ret_sequence = sequence;
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

void *ecfs_flush (void *data)
{
    EcfsCatalog *self = data;
    ecfs_mutex_lock (&self->lock);
    while (!self->stopping) {
        int64_t now_us = ecfs_now_us ();
        beat (self, now_us);
        bool open = self->in_txn || self->reading;
        if (self->reading && now_us >= self->flush_at_us)
            ecfs_reading_end (self);
        else if (open && now_us >= self->flush_at_us)
            (void) ecfs_commit (self, NULL); /* kept as failure, which everybody sees */
        else
            (void) ecfs_cond_wait_until (&self->wake, &self->lock,
                                         open                          ? self->flush_at_us
                                         : self->db->ops->beat == NULL ? now_us + IDLE_US
                                                                       : self->beat_at_us);
    }
    ecfs_mutex_unlock (&self->lock);
    return NULL;
}
