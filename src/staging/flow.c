/* How staged content gets durable, committed and filled up, and how a file leaves staging. */
#include "archive/common.h"
#include "staging/staged_priv.h"
#include "util/io.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define RETRY_FIRST_US      G_USEC_PER_SEC
#define RETRY_COMMIT_MAX_US ((int64_t) 60 * G_USEC_PER_SEC)
#define RETRY_FILL_MAX_US   ((int64_t) 3600 * G_USEC_PER_SEC) /* an endpoint that comes back is noticed sooner */

/* Making durable */

typedef struct Durable {
    GQueue batch; /* of EcfsWaiter */
    uint64_t generation;
    uint64_t size;
    int64_t mtime_ns;
    char *failure;
    bool needed;
    bool closes; /* somebody's close is answered by it, or everybody has closed the file */
} Durable;

/* A commit of the same bytes has ended in the catalog and takes its end here next, or nobody wants them. */
static bool may_lack_row (EcfsStaged *self)
{
    ecfs_mutex_lock (&self->table->lock);
    bool may = self->publishing || self->unlinked;
    ecfs_mutex_unlock (&self->table->lock);
    return may;
}

static bool set_row (EcfsStaged *self, const Durable *job, GError **error) ECFS_REQUIRES (self->row_lock)
{
    g_autoptr (GError) local = NULL;
    if (ecfs_catalog_staging_set (ecfs_archive_catalog (self->table->archive), self->row, ECFS_STAGING_QUEUED,
                                  job->size, job->mtime_ns, job->failure, &local))
        return true;
    if (!g_error_matches (local, ECFS_ERROR, ENOENT))
        g_propagate_error (error, g_steal_pointer (&local));
    else if (may_lack_row (self))
        return true;
    else
        g_set_error (error, ECFS_ERROR, EIO,
                     "staging/%s: the catalog does not know of it any more, so it is not safe there: write it again",
                     self->name);
    return false;
}

static bool make_durable (EcfsStaged *self, int fd, const Durable *job, GError **error) ECFS_REQUIRES (self->row_lock)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->table->archive);
    if (fsync (fd) != 0 || (!self->name_durable && fsync (self->table->dir_fd) != 0))
        return ecfs_fail_errno (error, errno, "staging/%s: cannot be made durable", self->name);
    self->name_durable = true;
    if (!set_row (self, job, error) || !ecfs_catalog_barrier (catalog, error))
        return false;
    ecfs_staged_drop_aside (self);
    return true;
}

static bool is_close (const EcfsStaged *self, const GQueue *batch)
{
    for (const GList *l = batch->head; l != NULL; l = l->next)
        if (((const EcfsWaiter *) l->data)->closes)
            return true;
    return self->n_writers == 0;
}

static bool begin_durable_locked (EcfsStagedTable *table, EcfsStaged *self, Durable *job) ECFS_REQUIRES (table->lock)
{
    if (self->publishing) { /* the row is the attempt's; its end comes back here */
        self->durable_running = false;
        return false;
    }
    bool news = self->durable_generation != self->generation || self->failure != NULL;
    /* Nobody may have asked since a writer came, who has not flushed. */
    bool asked = self->durables.length > 0 || self->n_writers == 0 || (self->waits != NULL && self->aside_row == 0);
    *job = (Durable){.batch = self->durables,
                     .generation = self->generation,
                     .size = self->size,
                     .mtime_ns = self->mtime_ns,
                     .failure = g_strdup (self->failure),
                     .closes = is_close (self, &self->durables),
                     .needed = asked && news && !self->unlinked && !ecfs_staged_is_clean (self)};
    g_queue_init (&self->durables);
    return true;
}

static void note_promise_locked (EcfsStagedTable *table, EcfsStaged *self, const Durable *job)
    ECFS_REQUIRES (table->lock)
{
    if (self->promised_generation != job->generation)
        self->promised_generation = job->closes ? job->generation : 0;
    self->promised_size = job->size;
    if (self->generation != job->generation || self->n_changing > 0) /* what changed may be in the file already */
        self->promised_generation = 0;
}

static void end_durable_locked (EcfsStagedTable *table, EcfsStaged *self, const Durable *job, const GError *error)
    ECFS_REQUIRES (table->lock)
{
    self->durable_running = false;
    self->durable_failed = error != NULL;
    if (job->needed && error == NULL) {
        note_promise_locked (table, self, job);
        self->durable_generation = job->generation;
        if (self->row_state == ECFS_STAGING_OPEN)
            self->row_state = ECFS_STAGING_QUEUED;
    }
    ecfs_staged_step_locked (table, self);
}

/* @ret_error may not be NULL. */
static void run_durable (EcfsStaged *self, int fd, const Durable *job, GError **ret_error)
    ECFS_REQUIRES (self->row_lock)
{
    EcfsStagedTable *table = self->table;
    if (!(job->needed ? make_durable (self, fd, job, ret_error)
                      : ecfs_catalog_barrier (ecfs_archive_catalog (table->archive), ret_error)))
        g_warning ("%s", (*ret_error)->message);
    ecfs_mutex_lock (&table->lock);
    end_durable_locked (table, self, job, *ret_error);
    ecfs_mutex_unlock (&table->lock);
}

static void durable_failed (EcfsStaged *self, const GError *error, GQueue *answers)
{
    EcfsStagedTable *table = self->table;
    ecfs_mutex_lock (&table->lock);
    self->durable_running = false;
    self->durable_failed = true;
    ecfs_answers_move (&self->durables, answers, error);
    ecfs_staged_step_locked (table, self);
    ecfs_mutex_unlock (&table->lock);
}

static void durable_job (void *data)
{
    EcfsStaged *self = data;
    EcfsStagedTable *table = self->table;
    Durable job;
    g_autoptr (GError) error = NULL;
    GQueue answers = G_QUEUE_INIT;
    int fd = ecfs_staged_hold_fd (self, &error);
    if (fd < 0) {
        durable_failed (self, error, &answers);
    } else {
        ecfs_mutex_lock (&self->row_lock);
        ecfs_mutex_lock (&table->lock);
        bool begun = begin_durable_locked (table, self, &job);
        ecfs_mutex_unlock (&table->lock);
        if (begun) {
            run_durable (self, fd, &job, &error);
            ecfs_answers_move (&job.batch, &answers, error);
            g_free (job.failure);
        }
        ecfs_mutex_unlock (&self->row_lock);
        ecfs_staged_release_fd (self);
    }
    ecfs_answer_all (&answers);
    ecfs_staged_unref (self);
}

void ecfs_staged_start_durable_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    self->durable_running = true;
    ecfs_workers_push (table->workers, durable_job, ecfs_staged_ref (self));
}

/* Finishing */

bool ecfs_staged_may_finish_locked (EcfsStagedTable *table, const EcfsStaged *self)
{
    if (self->opening || self->attempt != ECFS_ATTEMPT_NONE || self->durable_running || self->n_writers > 0 ||
        self->n_changing > 0)
        return false;
    return self->unlinked ? self->dropped : ecfs_staged_is_clean (self) && self->full;
}

/* Bytes that were flushed go after their name is gone for good: a crash must not bring it back without them. */
static bool may_unlink (EcfsStaged *self) ECFS_REQUIRES (self->row_lock)
{
    g_autoptr (GError) error = NULL;
    if ((self->row_state != ECFS_STAGING_QUEUED && self->aside_row == 0) ||
        ecfs_catalog_barrier (ecfs_archive_catalog (self->table->archive), &error))
        return true;
    g_warning ("staging/%s: stays until the next mount: %s", self->name, error->message);
    return false;
}

static void remove_row (EcfsStaged *self, int64_t row)
{
    g_autoptr (GError) error = NULL;
    if (row != 0 && !ecfs_catalog_staging_remove (ecfs_archive_catalog (self->table->archive), row, &error) &&
        !g_error_matches (error, ECFS_ERROR, ENOENT)) /* it went with its inode */
        g_warning ("staging/%s: %s", self->name, error->message);
}

/* Removes a file that nobody needs from table, staging area and catalog. */
static void finish (EcfsStaged *self)
{
    EcfsStagedTable *table = self->table;
    ecfs_mutex_lock (&self->row_lock);
    ecfs_mutex_lock (&table->lock);
    bool finished = self->in_table && ecfs_staged_may_finish_locked (table, self);
    self->finishing = false;
    if (finished)
        ecfs_staged_withdraw_locked (table, self);
    else
        ecfs_staged_step_locked (table, self);
    ecfs_cond_broadcast (&table->progress);
    ecfs_mutex_unlock (&table->lock);

    if (finished) {
        remove_row (self, self->row);
        remove_row (self, self->aside_row);
    }
    if (finished && may_unlink (self)) {
        if (unlinkat (table->dir_fd, self->name, 0) != 0)
            g_warning ("staging/%s: cannot be removed: %s", self->name, g_strerror (errno));
        ecfs_staged_drop_aside (self);
    }
    ecfs_mutex_unlock (&self->row_lock);
}

static void finish_job (void *data)
{
    EcfsStaged *self = data;
    finish (self);
    ecfs_staged_unref (self);
}

void ecfs_staged_start_finish_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    self->finishing = true;
    ecfs_workers_push (table->workers, finish_job, ecfs_staged_ref (self));
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
    self->publishing = same && self->attempt == ECFS_ATTEMPT_COMMIT;
    /* Of what is durable already, a new time is told to the catalog at once (ecfs_staged_set_mtime ()), and must not be
     * taken back by an attempt that began before. */
    atomic_store (&self->time_told, self->durable_generation >= self->generation);
    ecfs_mutex_unlock (&self->table->lock);
    return same;
}

static void set_back_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    int64_t max_us = self->attempt == ECFS_ATTEMPT_BACKFILL ? RETRY_FILL_MAX_US : RETRY_COMMIT_MAX_US;
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
        g_warning ("%s/staging: %u files wait to be stored; that each fails alike is not told any more",
                   ecfs_archive_directory (table->archive), atomic_load (&table->n_files));
}

/* Content or its fill-up did not get where it should: said once per reason, retried behind. */
static void attempt_failed_locked (EcfsStagedTable *table, EcfsStaged *self, const GError *error)
    ECFS_REQUIRES (table->lock)
{
    set_back_locked (table, self);
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
    self->kept = self->publishing = false;
    self->row_state = full ? ECFS_ROW_NONE : ECFS_STAGING_STORED;
    if (full)
        self->row = 0;
    self->n_failures = 0;
    self->order = 0;
    self->retry_us =
        ecfs_now_us () + RETRY_FIRST_US; /* an endpoint that was left out just now rarely is back at once */
    g_clear_pointer (&self->failure, g_free);
}

/* A commit ended: new times of the file that its publish did not know yet. The change time stays what was shown. */
static void settle_times (EcfsStaged *self, int64_t published_mtime_ns)
{
    EcfsAttr attr = {0};
    unsigned mask = ECFS_ATTR_CTIME;
    ecfs_mutex_lock (&self->table->lock);
    attr.mtime_ns = self->mtime_ns;
    attr.ctime_ns = self->ctime_ns;
    if (attr.mtime_ns != published_mtime_ns && ecfs_staged_is_clean (self))
        mask |= ECFS_ATTR_MTIME;
    ecfs_mutex_unlock (&self->table->lock);
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
    self->publishing = false;
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
    self->publishing = outcome->kept;
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
    if (!self->rest_left) /* that was no failure */
        attempt_failed_locked (table, self, outcome->error);
    return outcome->error;
}

static EcfsVerdict verdict_of (const EcfsOutcome *outcome, bool overtaken)
{
    if (outcome->error == NULL || g_error_matches (outcome->error, ECFS_ERROR, ESTALE))
        return ECFS_VERDICT_GOOD;
    return overtaken || g_error_matches (outcome->error, ECFS_ERROR, ECANCELED) ? ECFS_VERDICT_NONE : ECFS_VERDICT_BAD;
}

/* Books the end of an attempt, and answers who has what it wanted or will not get it now. */
static void settle_locked (EcfsStagedTable *table, EcfsStaged *self, EcfsAttempt kind, const GError *why_not,
                           bool overtaken, GQueue *answers) ECFS_REQUIRES (table->lock)
{
    if (kind != ECFS_ATTEMPT_BACKFILL)
        ecfs_staged_settle_flushes_locked (table, self, why_not, overtaken, answers);
    ecfs_staged_settle_waits_locked (table, self, why_not != NULL && !overtaken, why_not, answers);
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
    EcfsAttempt kind = self->attempt;
    bool left = kind == ECFS_ATTEMPT_BACKFILL && self->rest_left;
    int64_t published_mtime_ns = self->attempt_mtime_ns;
    if (kind == ECFS_ATTEMPT_BACKFILL)
        why_not = end_backfill_locked (table, self, outcome);
    else if (!forgotten)
        overtaken = end_commit_locked (table, self, outcome);
    ecfs_staged_note_end_locked (table, self, streamed,
                                 forgotten || left ? ECFS_VERDICT_NONE : verdict_of (outcome, overtaken));
    if (kind != ECFS_ATTEMPT_BACKFILL && !forgotten && outcome->error == NULL) {
        ecfs_mutex_unlock (&table->lock);
        settle_times (self, published_mtime_ns);
        settle_row (self);
        ecfs_staged_drop_aside (self);
        ecfs_mutex_lock (&table->lock);
    }
    self->attempt = ECFS_ATTEMPT_NONE; /* no moment in which it reads along without a feed */
    if (forgotten)
        forget_attempt_locked (table, self);
    else
        settle_locked (table, self, kind, why_not, overtaken, &answers);
    bool finish_here = table->stopped && ecfs_staged_is_clean (self) && self->full;
    ecfs_cond_broadcast (&table->progress);
    ecfs_mutex_unlock (&table->lock);
    ecfs_mutex_unlock (&self->row_lock);

    if (finish_here)
        finish (self);
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
    int64_t published_mtime_ns = self->attempt_mtime_ns;
    bool goes_on = ecfs_staged_note_published_locked (table, self);
    self->rest_left = !goes_on;
    (void) end_commit_locked (table, self, &outcome);
    ecfs_mutex_unlock (&table->lock);

    settle_times (self, published_mtime_ns);
    settle_row (self);
    ecfs_staged_drop_aside (self);

    ecfs_mutex_lock (&table->lock);
    self->attempt = ECFS_ATTEMPT_BACKFILL;
    settle_locked (table, self, ECFS_ATTEMPT_COMMIT, NULL, false, &answers);
    ecfs_cond_broadcast (&table->progress);
    ecfs_mutex_unlock (&table->lock);
    ecfs_mutex_unlock (&self->row_lock);
    ecfs_answer_all (&answers);
    return goes_on;
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
    EcfsAttempt kind = self->attempt;
    commit->ino = self->ino;
    commit->staging = self->row;
    commit->fd = -1;
    commit->open = open_content;
    commit->size = self->size;
    commit->mtime_ns = self->mtime_ns;
    commit->patient = kind == ECFS_ATTEMPT_BACKFILL && self->waits != NULL;
    commit->retry = self->waits != NULL || (kind == ECFS_ATTEMPT_COMMIT && self->n_failures > 0);
    commit->unchanged = unchanged;
    commit->time_told = &self->time_told;
    commit->cancelled = &self->cut_short;
    atomic_store (&self->cut_short, false);
    self->rest_left = false;
    if (kind != ECFS_ATTEMPT_BACKFILL)
        commit->published = published;
    commit->at_quorum = ecfs_archive_config (table->archive)->close_quorum;
    commit->done = attempt_done;
    commit->user = ecfs_staged_ref (self);
    if (kind == ECFS_ATTEMPT_BACKFILL)
        ecfs_archive_backfill (table->archive, commit);
    else
        ecfs_archive_commit (table->archive, commit);
}

void ecfs_staged_start_attempt_locked (EcfsStagedTable *table, EcfsStaged *self, EcfsAttempt kind)
{
    self->attempt = kind;
    if (kind == ECFS_ATTEMPT_SETTLE) {
        ecfs_workers_push (table->workers, settle_job, ecfs_staged_ref (self));
        return;
    }
    self->attempt_generation = self->generation;
    self->attempt_mtime_ns = self->mtime_ns;
    if (kind == ECFS_ATTEMPT_COMMIT)
        ecfs_staged_upload_begins_locked (table, self);
    EcfsCommit commit = {0};
    ecfs_staged_queue_commit_locked (table, self, &commit);
}
