/*
 * Attempts to store a file: a commit, the filling up of what has only its quorum; who waits for one, and what they are
 * answered at its end.
 */
#include "archive/common.h"
#include "staging/staged_priv.h"
#include <inttypes.h>

#define FAILURES_TOLD       10 /* of one wait, by name */
#define RETRY_FIRST_US      G_USEC_PER_SEC
#define PACKED_US           (15 * G_USEC_PER_SEC) /* how long a wait does for who packs */
#define RETRY_COMMIT_MAX_US ((int64_t) 60 * G_USEC_PER_SEC)
#define RETRY_FILL_MAX_US   ((int64_t) 3600 * G_USEC_PER_SEC) /* an endpoint that comes back is noticed sooner */

/* Who waits: in ecfs_staged_wait () */

static void note_failure (EcfsWait *wait, const GError *error)
{
    if (wait->failures == NULL) {
        wait->code = error->code;
        wait->failures = g_string_new (NULL);
    }
    if (wait->n_failed++ < FAILURES_TOLD)
        g_string_append_printf (wait->failures, "%s%s", wait->failures->len > 0 ? "\n" : "", error->message);
}

void ecfs_staged_settle_wait (EcfsWait *wait, const GError *error, GQueue *answers)
{
    if (error != NULL)
        note_failure (wait, error);
    if (--wait->n_pending > 0)
        return;
    if (wait->n_failed > FAILURES_TOLD)
        g_string_append_printf (wait->failures, "\nand %u more files", wait->n_failed - FAILURES_TOLD);
    if (wait->failures != NULL) {
        wait->answer->error = g_error_new_literal (ECFS_ERROR, wait->code, wait->failures->str);
        g_string_free (wait->failures, TRUE);
    }
    g_queue_push_tail (answers, wait->answer);
    g_free (wait);
}

/* Waits that have what they want; with @all the others too, as failed, but for those that began during the attempt, and
 * those for which what is missing is on its way. */
static void settle_waits_locked (EcfsStagedTable *table, EcfsStaged *self, bool all, const GError *error,
                                 GQueue *answers) ECFS_REQUIRES (table->lock)
{
    GSList *next;
    const int64_t now_us = ecfs_now_us ();
    for (GSList *l = self->waits; l != NULL; l = next) {
        next = l->next;
        EcfsWaitEntry *entry = l->data;
        bool stored = self->committed_generation >= entry->want &&
                      (ecfs_staged_is_cared_for_locked (table, self) || !entry->wait->full);
        bool comes = error != NULL && error->code == EINPROGRESS && now_us - entry->wait->begun_us < PACKED_US;
        bool keeps = !stored && (!all || entry->during || comes);
        entry->during = entry->during && !all;
        if (keeps)
            continue;
        ecfs_staged_settle_wait (entry->wait, stored ? NULL : error, answers);
        self->waits = g_slist_delete_link (self->waits, l);
        g_free (entry);
    }
}

/* Who waits: in close and fsync */

/* Nobody insists on an attempt any more. */
static void let_writers_go_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    if (self->held)
        ecfs_staged_schedule_locked (table, ecfs_now_us ());
    self->held = false;
}

void ecfs_staged_give_up_locked (EcfsStagedTable *table, EcfsStaged *self, const GError *error, GQueue *answers)
{
    let_writers_go_locked (table, self);
    g_hash_table_remove (table->flushing, self);
    ecfs_answers_move (&self->flushes, answers, error);
    ecfs_answers_move (&self->durables, answers, error);
    for (GSList *l = self->waits; l != NULL; l = l->next)
        ((EcfsWaitEntry *) l->data)->during = false;
    settle_waits_locked (table, self, true, error, answers);
}

uint64_t ecfs_staged_flushed_locked (EcfsStagedTable *table, const EcfsStaged *self)
{
    if (self->n_writers == 0 || self->flushes.length > 0 || self->durables.length > 0)
        return self->generation;
    uint64_t flushed = MAX (self->durable_generation, self->committed_generation);
    return ecfs_staged_is_committing (self) ? MAX (flushed, self->attempt_generation) : flushed;
}

void ecfs_staged_leave_behind_locked (EcfsStagedTable *table, EcfsStaged *self, GList *link)
{
    EcfsWaiter *flush = link->data;
    let_writers_go_locked (table, self);
    g_queue_delete_link (&self->flushes, link);
    g_queue_push_tail (&self->durables, flush);
    if (self->flushes.length == 0)
        g_hash_table_remove (table->flushing, self);
}

/* Flushes whose attempt has ended: satisfied, failed, or in need of another one. */
static void settle_flushes_locked (EcfsStagedTable *table, EcfsStaged *self, const GError *error, bool overtaken,
                                   GQueue *answers) ECFS_REQUIRES (table->lock)
{
    GQueue left = G_QUEUE_INIT;
    EcfsWaiter *flush;
    let_writers_go_locked (table, self);
    self->held = overtaken && self->waits != NULL;
    while ((flush = g_queue_pop_head (&self->flushes)) != NULL) {
        bool ended = error != NULL && (self->kept || flush->want <= self->attempt_generation);
        if (self->committed_generation >= flush->want) {
            g_queue_push_tail (answers, flush);
        } else if (ended && overtaken && flush->insists) {
            self->held = true;
            g_queue_push_tail (&left, flush);
        } else if (ended) {
            /* Overtaken by a change: what the caller wrote is to be durable, and the last release commits it. */
            ecfs_answer_take_error (flush, overtaken || flush->forgives ? NULL : error);
            g_queue_push_tail (&self->durables, flush);
        } else {
            g_queue_push_tail (&left, flush);
        }
    }
    self->flushes = left;
    if (left.length == 0)
        g_hash_table_remove (table->flushing, self);
}

/* Attempts */

static int open_content (void *user, GError **error)
{
    return ecfs_staged_hold_fd (user, error);
}

static bool unchanged (void *user)
{
    EcfsStaged *self = user;
    ecfs_mutex_lock (&self->table->lock);
    bool same = self->generation == self->attempt_generation && self->n_changing == 0 && !self->unlinked;
    if (ecfs_staged_is_committing (self))
        self->phase = same ? ECFS_PHASE_PUBLISHING : ECFS_PHASE_COMMITTING;
    /* Of what is durable already, a new time is told to the catalog at once (ecfs_staged_set_mtime ()), and must not be
     * taken back by an attempt that began before. */
    atomic_store (&self->time_told, self->durable_generation >= self->generation);
    ecfs_mutex_unlock (&self->table->lock);
    return same;
}

static void set_back_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    int64_t max_us = ecfs_staged_is_filling (self) ? RETRY_FILL_MAX_US : RETRY_COMMIT_MAX_US;
    int64_t delay_us = MIN ((int64_t) RETRY_FIRST_US << MIN (self->n_failures, 12), max_us);
    self->n_failures++;
    self->retry_us = ecfs_now_us () + delay_us;
}

/* Of many files the first are told. */
static void tell_failure_locked (EcfsStagedTable *table, const GError *error) ECFS_REQUIRES (table->lock)
{
    unsigned n_before = table->commit_pace.n_failures;
    if (n_before < ECFS_STAGED_PATIENCE)
        g_warning ("%s; it stays in staging and is retried", error->message);
    else if (n_before == ECFS_STAGED_PATIENCE)
        g_warning ("%s/staging: %u files wait to be stored; further failures of this kind are not logged",
                   ecfs_archive_directory (table->archive), atomic_load (&table->n_files));
}

/* Content or its fill-up did not get where it should: said once per reason, retried behind. */
static void attempt_failed_locked (EcfsStagedTable *table, EcfsStaged *self, const GError *error)
    ECFS_REQUIRES (table->lock)
{
    self->comes_packed = error->code == EINPROGRESS;
    set_back_locked (table, self);
    if (self->comes_packed)
        self->retry_us = ecfs_now_us () + RETRY_FIRST_US;
    self->gave_up = table->stopping &&
                    !(table->filling && ecfs_staged_is_clean (self) && self->n_failures < ECFS_STAGED_FILL_TRIES);
    if (self->unlinked || g_strcmp0 (self->failure, error->message) == 0)
        return;
    bool clean = ecfs_staged_is_clean (self); /* safe as it is, and the endpoints that it lacks are told of */
    if (!clean && !g_error_matches (error, ECFS_ERROR, ECANCELED) &&
        g_queue_is_empty (&self->flushes)) /* else the caller says it */
        tell_failure_locked (table, error);
    g_free (self->failure);
    self->failure = g_strdup (error->message);
    if (!clean && !self->kept)
        self->durable_generation = 0; /* the row is to have the reason */
}

static void committed_locked (EcfsStagedTable *table, EcfsStaged *self, bool full) ECFS_REQUIRES (table->lock)
{
    self->committed_generation = self->attempt_generation;
    self->full = full;
    self->kept = false;
    const bool has_row = !full || ecfs_catalog_is_shared (ecfs_archive_catalog (table->archive)); /* until it leaves */
    self->row_state = has_row ? (int) ECFS_STAGING_STORED : ECFS_ROW_NONE;
    if (!has_row)
        self->row = 0;
    self->n_failures = 0;
    self->comes_packed = false;
    self->order = 0;
    self->retry_us =
        ecfs_now_us () + RETRY_FIRST_US; /* an endpoint that was left out just now rarely is back at once */
    g_clear_pointer (&self->failure, g_free);
}

typedef struct Times {
    int64_t mtime_ns, ctime_ns;
} Times;

static Times attempt_times (const EcfsStaged *self)
{
    return (Times){.mtime_ns = self->attempt_mtime_ns, .ctime_ns = self->attempt_ctime_ns};
}

/* A commit ended: new times of the file that its publish did not know yet. The change time stays what was shown. */
static void settle_times (EcfsStaged *self, Times published)
{
    EcfsAttr attr = {0};
    unsigned mask = ECFS_ATTR_CTIME;
    ecfs_mutex_lock (&self->table->lock);
    attr.mtime_ns = self->mtime_ns;
    attr.ctime_ns = self->ctime_ns;
    if (attr.mtime_ns != published.mtime_ns && ecfs_staged_is_clean (self))
        mask |= ECFS_ATTR_MTIME;
    ecfs_mutex_unlock (&self->table->lock);
    if (mask == ECFS_ATTR_CTIME && attr.ctime_ns == published.ctime_ns)
        return;
    g_autoptr (GError) error = NULL;
    if (!ecfs_catalog_setattr (ecfs_archive_catalog (self->table->archive), self->ino, &attr, mask, &attr, &error) &&
        !g_error_matches (error, ECFS_ERROR, ENOENT))
        g_warning ("inode %" PRIu64 ": cannot set its times: %s", self->ino, error->message);
}

/* After a commit in full the row is gone. The file goes on as a copy, or gets a new row when it moved meanwhile. */
static void settle_row (EcfsStaged *self) ECFS_REQUIRES (self->row_lock)
{
    EcfsStagedTable *table = self->table;
    ecfs_mutex_lock (&table->lock);
    bool has_row = self->row_state == ECFS_STAGING_OPEN || self->row_state == ECFS_STAGING_QUEUED;
    bool moved = (!ecfs_staged_is_clean (self) || self->n_changing > 0) && !self->unlinked;
    bool becomes_copy = self->row == 0 && !moved && self->n_writers > 0;
    ecfs_mutex_unlock (&table->lock);
    g_autoptr (GError) error = NULL;
    if (moved && !has_row && !ecfs_staged_reopen_row (self, &error))
        g_warning ("inode %" PRIu64 " is being written and lost its row: %s", self->ino, error->message);
    else if (becomes_copy && !ecfs_staged_rename (self, ecfs_staged_copy_name (table, self->ino), &error))
        g_warning ("%s", error->message);
}

/* What fails while the file moves says nothing about the next attempt, except that there is no room. */
static bool is_overtaken (bool moved, const GError *error)
{
    return moved && error != NULL && ecfs_errno (error) != ENOSPC && ecfs_errno (error) != EDQUOT;
}

/* An attempt that came to nothing, and nobody waits for it: what is due now is as if it had not been. */
static void forget_attempt_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    self->attempt_bytes = 0;
    ecfs_staged_step_locked (table, self);
    ecfs_cond_broadcast (&table->progress);
}

/* Returns whether changes overtook it. */
static bool end_commit_locked (EcfsStagedTable *table, EcfsStaged *self, const EcfsOutcome *outcome)
    ECFS_REQUIRES (table->lock)
{
    bool moved = self->generation != self->attempt_generation || self->n_changing > 0;
    bool overtaken = is_overtaken (moved, outcome->error) && !outcome->kept;
    self->kept = outcome->kept;
    self->kept_full = outcome->full;
    if (self->phase == ECFS_PHASE_PUBLISHING)
        self->phase = ECFS_PHASE_COMMITTING;
    if (outcome->error == NULL || overtaken || outcome->kept)
        ecfs_staged_uploaded_locked (table, self);
    if (outcome->error == NULL)
        committed_locked (table, self, outcome->full);
    else if (!overtaken)
        attempt_failed_locked (table, self, outcome->error);
    return overtaken;
}

/* Returns why it is not full; NULL: it is, or is going to be replaced anyway. */
static const GError *end_backfill_locked (EcfsStagedTable *table, EcfsStaged *self, const EcfsOutcome *outcome)
    ECFS_REQUIRES (table->lock)
{
    if (!ecfs_staged_is_clean (self) || self->n_changing > 0)
        return NULL;
    if (outcome->full || g_error_matches (outcome->error, ECFS_ERROR, ESTALE)) {
        self->full = true;
        return NULL;
    }
    if (self->phase != ECFS_PHASE_ENDING) /* that was no failure */
        attempt_failed_locked (table, self, outcome->error);
    return outcome->error;
}

static EcfsVerdict verdict_of (const EcfsOutcome *outcome, bool overtaken)
{
    if (outcome->error == NULL || g_error_matches (outcome->error, ECFS_ERROR, ESTALE))
        return ECFS_VERDICT_GOOD;
    const int code = outcome->error->code;
    return overtaken || code == ECANCELED || code == EINPROGRESS ? ECFS_VERDICT_NONE : ECFS_VERDICT_BAD;
}

/* Books the end of an attempt, and answers who has what it wanted or will not get it now. */
static void settle_locked (EcfsStagedTable *table, EcfsStaged *self, bool filled, const GError *why_not, bool overtaken,
                           GQueue *answers) ECFS_REQUIRES (table->lock)
{
    if (!filled)
        settle_flushes_locked (table, self, why_not, overtaken, answers);
    settle_waits_locked (table, self, why_not != NULL && !overtaken, why_not, answers);
    if (self->kept) /* the row cannot be written either */
        ecfs_answers_move (&self->durables, answers, why_not);
    ecfs_staged_step_locked (table, self);
}

static void attempt_ended (EcfsStaged *self, const EcfsOutcome *outcome)
{
    EcfsStagedTable *table = self->table;
    GQueue answers = G_QUEUE_INIT;
    bool overtaken = false;
    const GError *why_not = outcome->error;

    ecfs_mutex_lock (&self->row_lock);
    ecfs_mutex_lock (&table->lock);
    bool streamed = self->feed != NULL;
    bool forgotten = ecfs_staged_stream_ended_locked (table, self, outcome);
    bool filled = ecfs_staged_is_filling (self);
    bool left = self->phase == ECFS_PHASE_ENDING;
    const Times published_times = attempt_times (self);
    if (filled)
        why_not = end_backfill_locked (table, self, outcome);
    else if (!forgotten)
        overtaken = end_commit_locked (table, self, outcome);
    ecfs_staged_note_end_locked (table, self, streamed,
                                 forgotten || left ? ECFS_VERDICT_NONE : verdict_of (outcome, overtaken));
    if (!filled && !forgotten && outcome->error == NULL) {
        ecfs_mutex_unlock (&table->lock);
        settle_times (self, published_times);
        settle_row (self);
        ecfs_staged_drop_aside (self);
        ecfs_mutex_lock (&table->lock);
    }
    self->phase = ECFS_PHASE_IDLE; /* no moment in which it reads along without a feed */
    if (forgotten)
        forget_attempt_locked (table, self);
    else
        settle_locked (table, self, filled, why_not, overtaken, &answers);
    bool finish_here = table->stopped && ecfs_staged_is_clean (self) && self->full;
    ecfs_cond_broadcast (&table->progress);
    ecfs_mutex_unlock (&table->lock);
    ecfs_mutex_unlock (&self->row_lock);

    if (finish_here)
        ecfs_staged_leave (self);
    ecfs_answer_all (&answers);
    ecfs_staged_unref (self);
}

/* The quorum is stored, and the catalog says so; the attempt goes on for the rest, as if it filled up. */
static bool published (void *user)
{
    EcfsStaged *self = user;
    EcfsStagedTable *table = self->table;
    GQueue answers = G_QUEUE_INIT;
    const EcfsOutcome outcome = {.error = NULL};

    ecfs_mutex_lock (&self->row_lock);
    ecfs_mutex_lock (&table->lock);
    const Times published_times = attempt_times (self);
    bool goes_on = ecfs_staged_note_published_locked (table, self);
    (void) end_commit_locked (table, self, &outcome);
    ecfs_mutex_unlock (&table->lock);

    settle_times (self, published_times);
    settle_row (self);
    ecfs_staged_drop_aside (self);

    ecfs_mutex_lock (&table->lock);
    self->phase = goes_on ? ECFS_PHASE_TRAILING : ECFS_PHASE_ENDING;
    settle_locked (table, self, false, NULL, false, &answers);
    ecfs_cond_broadcast (&table->progress);
    ecfs_mutex_unlock (&table->lock);
    ecfs_mutex_unlock (&self->row_lock);
    ecfs_answer_all (&answers);
    return goes_on;
}

static void joined (void *user)
{
    EcfsStaged *self = user;
    ecfs_mutex_lock (&self->table->lock);
    ecfs_staged_note_joined_locked (self->table, self);
    ecfs_mutex_unlock (&self->table->lock);
}

static void attempt_done (void *user, const EcfsOutcome *outcome)
{
    EcfsStaged *self = user;
    if (outcome->opened)
        ecfs_staged_release_fd (self);
    attempt_ended (self, outcome);
}

/* What was published is durable when the catalog is. */
static void settle_job (void *data)
{
    EcfsStaged *self = data;
    g_autoptr (GError) error = NULL;
    bool durable = ecfs_catalog_barrier (ecfs_archive_catalog (self->table->archive), &error);
    ecfs_mutex_lock (&self->table->lock);
    const EcfsOutcome outcome = {.error = error, .full = self->kept_full, .kept = !durable};
    ecfs_mutex_unlock (&self->table->lock);
    attempt_ended (self, &outcome);
}

void ecfs_staged_queue_commit_locked (EcfsStagedTable *table, EcfsStaged *self, EcfsCommit *commit)
{
    bool fills = commit->kind == ECFS_COMMIT_BACKFILL;
    commit->ino = self->ino;
    commit->fd = -1;
    commit->open = open_content;
    commit->size = self->size;
    commit->mtime_ns = self->mtime_ns;
    commit->ctime_ns = self->ctime_ns;
    commit->patient = fills && self->waits != NULL;
    commit->has_failed = self->phase == ECFS_PHASE_COMMITTING && self->n_failures > 0;
    commit->retry = self->waits != NULL || commit->has_failed;
    commit->joined = joined;
    commit->unchanged = unchanged;
    commit->cancelled = &self->cut_short;
    atomic_store (&self->cut_short, false);
    if (!fills) {
        commit->publish.staging = self->row;
        commit->publish.time_told = &self->time_told;
        commit->publish.published = published;
        commit->publish.at_quorum = ecfs_archive_config (table->archive)->close_quorum;
        commit->publish.leave = ecfs_staged_leave_along;
        commit->publish.left = ecfs_staged_left;
    }
    commit->done = attempt_done;
    commit->user = ecfs_staged_ref (self);
    table->store (table->archive, commit);
}

void ecfs_staged_start_attempt_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    if (self->phase == ECFS_PHASE_SETTLING) {
        ecfs_workers_push (table->workers, settle_job, ecfs_staged_ref (self));
        return;
    }
    self->attempt_generation = self->generation;
    self->attempt_mtime_ns = self->mtime_ns;
    self->attempt_ctime_ns = self->ctime_ns;
    if (self->phase == ECFS_PHASE_COMMITTING)
        ecfs_staged_upload_begins_locked (table, self);
    EcfsCommit commit = {.kind = self->phase == ECFS_PHASE_FILLING ? ECFS_COMMIT_BACKFILL : ECFS_COMMIT_STORE};
    ecfs_staged_queue_commit_locked (table, self, &commit);
}
