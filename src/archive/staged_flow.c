#include "archive/archive_priv.h"
#include "archive/staged_priv.h"
#include "util/io.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define RETRY_FIRST_US     1000000
#define RETRY_MAX_US       60000000
#define TIMER_IDLE_US      60000000
#define BACKLOG_SYNC_SHARE 2 /* commit = async becomes sync when this part of staging_max is in use */

/* Answers */

EcfsAnswer *ecfs_answer_new (EcfsStagedDone done, void *user)
{
    EcfsAnswer *answer = g_new0 (EcfsAnswer, 1);
    answer->done = done;
    answer->user = user;
    return answer;
}

void ecfs_answer_all (GQueue *answers)
{
    EcfsAnswer *answer;
    while ((answer = g_queue_pop_head (answers)) != NULL) {
        answer->done (answer->user, answer->error);
        g_clear_error (&answer->error);
        g_free (answer);
    }
}

static void answer_take_error (EcfsAnswer *answer, const GError *error)
{
    if (answer->error == NULL && error != NULL)
        answer->error = g_error_copy (error);
}

static void move_all (GQueue *from, GQueue *to, const GError *error)
{
    EcfsAnswer *answer;
    while ((answer = g_queue_pop_head (from)) != NULL) {
        answer_take_error (answer, error);
        g_queue_push_tail (to, answer);
    }
}

/* The file needs nothing more for this wait. */
static void settle_wait (EcfsWait *wait, const GError *error, GQueue *answers)
{
    answer_take_error (wait->answer, error);
    if (--wait->n_pending > 0)
        return;
    g_queue_push_tail (answers, wait->answer);
    g_free (wait);
}

static bool is_clean (const EcfsStaged *self)
{
    return self->generation == self->committed_generation;
}

/* Settles the waits that have what they want; with an error, all of them. */
static void settle_waits_locked (EcfsStagedTable *table, EcfsStaged *self, bool all, const GError *error,
                                 GQueue *answers) ECFS_REQUIRES (table->lock)
{
    GSList *next;
    for (GSList *l = self->waits; l != NULL; l = next) {
        next = l->next;
        EcfsWaitEntry *entry = l->data;
        bool stored = self->committed_generation >= entry->want && (self->full || !entry->wait->full);
        if (!stored && !all)
            continue;
        settle_wait (entry->wait, stored ? NULL : error, answers);
        self->waits = g_slist_delete_link (self->waits, l);
        g_free (entry);
    }
}

void ecfs_staged_give_up_locked (EcfsStagedTable *table, EcfsStaged *self, const GError *error, GQueue *answers)
{
    move_all (&self->flushes, answers, error);
    move_all (&self->durables, answers, error);
    settle_waits_locked (table, self, true, error, answers);
}

/* Making durable */

static bool make_durable (EcfsStaged *self, uint64_t size, int64_t mtime_ns, const char *failure, GError **error)
    ECFS_REQUIRES (self->row_lock)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->table->archive);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                {.tv_sec = mtime_ns / 1000000000, .tv_nsec = mtime_ns % 1000000000}};
    if (times[1].tv_nsec < 0) { /* before 1970 */
        times[1].tv_nsec += 1000000000;
        times[1].tv_sec--;
    }
    /* The time travels in the staging file: whoever commits after a crash finds it there. */
    if (futimens (self->fd, times) != 0 || fsync (self->fd) != 0 ||
        (!self->name_durable && fsync (self->table->dir_fd) != 0))
        return ecfs_fail_errno (error, errno, "staging/%s: cannot be made durable", self->name);
    self->name_durable = true;
    g_autoptr (GError) local = NULL;
    if (!ecfs_catalog_staging_set (catalog, self->row, ECFS_STAGING_QUEUED, size, failure, &local) &&
        !g_error_matches (local, ECFS_ERROR, ENOENT)) { /* gone: a commit of the same bytes just ended */
        g_propagate_error (error, g_steal_pointer (&local));
        return false;
    }
    return ecfs_catalog_barrier (catalog, error);
}

typedef struct Durable {
    GQueue batch; /* of EcfsAnswer */
    uint64_t generation;
    uint64_t size;
    int64_t mtime_ns;
    char *failure;
    bool needed;
} Durable;

static bool begin_durable_locked (EcfsStagedTable *table, EcfsStaged *self, Durable *job) ECFS_REQUIRES (table->lock)
{
    if (self->publishing) { /* the row is the attempt's; its end comes back here */
        self->durable_running = false;
        return false;
    }
    *job = (Durable){.batch = self->durables,
                     .generation = self->generation,
                     .size = self->size,
                     .mtime_ns = self->mtime_ns,
                     .failure = g_strdup (self->failure),
                     .needed = !self->unlinked && !is_clean (self) &&
                               (self->durable_generation != self->generation || self->failure != NULL)};
    g_queue_init (&self->durables);
    return true;
}

static void end_durable_locked (EcfsStagedTable *table, EcfsStaged *self, Durable *job, const GError *error)
    ECFS_REQUIRES (table->lock)
{
    self->durable_running = false;
    self->durable_failed = error != NULL;
    if (job->needed && error == NULL) {
        self->durable_generation = job->generation;
        if (self->row_state == ECFS_STAGING_OPEN)
            self->row_state = ECFS_STAGING_QUEUED;
    }
    ecfs_staged_step_locked (table, self);
    ecfs_cond_broadcast (&table->progress);
}

static void durable_job (void *data)
{
    EcfsStaged *self = data;
    EcfsStagedTable *table = self->table;
    Durable job;
    g_autoptr (GError) error = NULL;
    GQueue answers = G_QUEUE_INIT;

    ecfs_mutex_lock (&self->row_lock);
    ecfs_mutex_lock (&table->lock);
    bool begun = begin_durable_locked (table, self, &job);
    ecfs_mutex_unlock (&table->lock);
    if (begun) {
        bool durable = job.needed ? make_durable (self, job.size, job.mtime_ns, job.failure, &error)
                                  : ecfs_catalog_barrier (ecfs_archive_catalog (table->archive), &error);
        if (!durable)
            g_warning ("%s", error->message);
        ecfs_mutex_lock (&table->lock);
        end_durable_locked (table, self, &job, error);
        ecfs_mutex_unlock (&table->lock);
        move_all (&job.batch, &answers, error);
        g_free (job.failure);
    }
    ecfs_mutex_unlock (&self->row_lock);
    ecfs_answer_all (&answers);
    ecfs_staged_unref (self);
}

static void start_durable_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    self->durable_running = true;
    ecfs_workers_push (table->workers, durable_job, ecfs_staged_ref (self));
}

/* Attempts */

static bool unchanged (void *user)
{
    EcfsStaged *self = user;
    ecfs_mutex_lock (&self->table->lock);
    bool same = self->generation == self->attempt_generation && self->n_changing == 0 && !self->unlinked;
    self->publishing = same && self->attempt == ECFS_ATTEMPT_COMMIT;
    ecfs_mutex_unlock (&self->table->lock);
    return same;
}

static void set_back_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    int64_t delay_us = MIN ((int64_t) RETRY_FIRST_US << MIN (self->n_failures, 6), RETRY_MAX_US);
    self->n_failures++;
    self->retry_us = ecfs_now_us () + delay_us;
}

/* Content or its fill-up did not get where it should: said once per reason, retried behind. */
static void attempt_failed_locked (EcfsStagedTable *table, EcfsStaged *self, const GError *error)
    ECFS_REQUIRES (table->lock)
{
    set_back_locked (table, self);
    self->gave_up = table->stopping;
    if (error == NULL || self->unlinked || g_strcmp0 (self->failure, error->message) == 0)
        return;
    if (!g_error_matches (error, ECFS_ERROR, ECANCELED) &&
        g_queue_is_empty (&self->flushes)) /* else the caller says it */
        g_warning ("%s; it stays in staging and is retried", error->message);
    g_free (self->failure);
    self->failure = g_strdup (error->message);
    if (!is_clean (self))
        self->durable_generation = 0; /* the row is to have the reason */
}

static void committed_locked (EcfsStagedTable *table, EcfsStaged *self, bool full) ECFS_REQUIRES (table->lock)
{
    self->committed_generation = self->attempt_generation;
    self->committed_bytes = self->attempt_size;
    self->new_bytes -= MIN (self->new_bytes, self->attempt_new_bytes);
    self->full = full;
    self->row_state = full ? ECFS_ROW_NONE : ECFS_STAGING_STORED;
    if (full)
        self->row = 0;
    self->n_failures = 0;
    self->retry_us =
        ecfs_now_us () + RETRY_FIRST_US; /* an endpoint that was left out just now rarely is back at once */
    g_clear_pointer (&self->failure, g_free);
}

/* Flushes whose attempt has ended: satisfied, failed, or in need of another one. */
static void settle_flushes_locked (EcfsStagedTable *table, EcfsStaged *self, const GError *error, bool overtaken,
                                   GQueue *answers) ECFS_REQUIRES (table->lock)
{
    GQueue left = G_QUEUE_INIT;
    EcfsAnswer *flush;
    while ((flush = g_queue_pop_head (&self->flushes)) != NULL) {
        if (self->committed_generation >= flush->want) {
            g_queue_push_tail (answers, flush);
        } else if (error != NULL && flush->want <= self->attempt_generation) {
            /* Overtaken by a change: what the caller wrote is to be durable, and the last release commits it. */
            answer_take_error (flush, overtaken ? NULL : error);
            g_queue_push_tail (&self->durables, flush);
        } else {
            g_queue_push_tail (&left, flush);
        }
    }
    self->flushes = left;
}

/* A commit ended: new times of the file that its publish did not know yet. The change time stays what was shown. */
static void settle_times (EcfsStaged *self, int64_t published_mtime_ns)
{
    EcfsAttr attr = {0};
    unsigned mask = ECFS_ATTR_CTIME;
    ecfs_mutex_lock (&self->table->lock);
    attr.mtime_ns = self->mtime_ns;
    attr.ctime_ns = self->ctime_ns;
    if (attr.mtime_ns != published_mtime_ns && is_clean (self))
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
    bool moved = (!is_clean (self) || self->n_changing > 0) && !self->unlinked;
    bool rename_it = self->row == 0 && !moved && self->n_writers > 0;
    ecfs_mutex_unlock (&table->lock);
    g_autoptr (GError) error = NULL;
    if (moved && !has_row && !ecfs_staged_reopen_row (self, &error))
        g_warning ("inode %" PRIu64 " is being written and lost its row: %s", self->ino, error->message);
    if (!rename_it)
        return;
    char *name =
        g_strdup_printf (ECFS_STAGED_COPY_PREFIX "%" PRIu64 ".%u", self->ino, atomic_fetch_add (&table->serial, 1));
    if (renameat (table->dir_fd, self->name, table->dir_fd, name) != 0) {
        g_warning ("staging/%s: cannot be renamed to %s: %s", self->name, name, g_strerror (errno));
        g_free (name);
        return;
    }
    ecfs_mutex_lock (&table->lock);
    g_free (self->name);
    self->name = name;
    ecfs_mutex_unlock (&table->lock);
}

/* What fails while the file moves says nothing about the next attempt, except that there is no room. */
static bool is_overtaken (bool moved, const GError *error)
{
    return moved && error != NULL && ecfs_errno (error) != ENOSPC && ecfs_errno (error) != EDQUOT;
}

static void end_commit_locked (EcfsStagedTable *table, EcfsStaged *self, bool full, const GError *error)
    ECFS_REQUIRES (table->lock)
{
    bool moved = self->generation != self->attempt_generation || self->n_changing > 0;
    self->publishing = false;
    if (error == NULL)
        committed_locked (table, self, full);
    else if (is_overtaken (moved, error))
        self->retry_us = 0;
    else
        attempt_failed_locked (table, self, error);
}

static void end_backfill_locked (EcfsStagedTable *table, EcfsStaged *self, bool full, const GError *error,
                                 GQueue *answers) ECFS_REQUIRES (table->lock)
{
    g_autoptr (GError) incomplete = NULL;
    if (!is_clean (self) || self->n_changing > 0)
        return; /* it is going to be replaced anyway */
    if (full || g_error_matches (error, ECFS_ERROR, ESTALE)) {
        self->full = true;
        return;
    }
    if (error == NULL)
        incomplete = g_error_new (ECFS_ERROR, EIO,
                                  "inode %" PRIu64 ": stored, but not all of its stripes; it is retried", self->ino);
    attempt_failed_locked (table, self, error);
    settle_waits_locked (table, self, true, error != NULL ? error : incomplete, answers);
}

static void attempt_done (void *user, bool full, const GError *error)
{
    EcfsStaged *self = user;
    EcfsStagedTable *table = self->table;
    GQueue answers = G_QUEUE_INIT;

    ecfs_mutex_lock (&self->row_lock);
    ecfs_mutex_lock (&table->lock);
    EcfsAttempt kind = self->attempt;
    bool moved = self->generation != self->attempt_generation || self->n_changing > 0;
    int64_t published_mtime_ns = self->attempt_mtime_ns;
    if (kind == ECFS_ATTEMPT_COMMIT)
        end_commit_locked (table, self, full, error);
    else
        end_backfill_locked (table, self, full, error, &answers);
    ecfs_mutex_unlock (&table->lock);

    if (kind == ECFS_ATTEMPT_COMMIT && error == NULL) {
        settle_times (self, published_mtime_ns);
        settle_row (self);
    }

    ecfs_mutex_lock (&table->lock);
    self->attempt = ECFS_ATTEMPT_NONE;
    if (kind == ECFS_ATTEMPT_COMMIT) {
        bool overtaken = is_overtaken (moved, error);
        settle_flushes_locked (table, self, error, overtaken, &answers);
        settle_waits_locked (table, self, error != NULL && !overtaken, error, &answers);
    } else {
        settle_waits_locked (table, self, false, NULL, &answers);
    }
    ecfs_staged_step_locked (table, self);
    bool finish_here = table->stopped && is_clean (self) && self->full;
    ecfs_cond_broadcast (&table->progress);
    ecfs_mutex_unlock (&table->lock);
    ecfs_mutex_unlock (&self->row_lock);

    if (finish_here)
        ecfs_staged_finish (self);
    ecfs_answer_all (&answers);
    ecfs_staged_unref (self);
}

static void start_attempt_locked (EcfsStagedTable *table, EcfsStaged *self, EcfsAttempt kind)
    ECFS_REQUIRES (table->lock)
{
    EcfsCommit commit = {.ino = self->ino,
                         .staging = self->row,
                         .fd = self->fd,
                         .size = self->size,
                         .mtime_ns = self->mtime_ns,
                         .retry = self->waits != NULL || (kind == ECFS_ATTEMPT_COMMIT && self->n_failures > 0),
                         .unchanged = unchanged,
                         .done = attempt_done,
                         .user = ecfs_staged_ref (self)};
    self->attempt = kind;
    self->attempt_generation = self->generation;
    self->attempt_new_bytes = self->new_bytes;
    self->attempt_size = self->size;
    self->attempt_mtime_ns = self->mtime_ns;
    if (kind == ECFS_ATTEMPT_COMMIT)
        ecfs_archive_commit (table->archive, &commit);
    else
        ecfs_archive_backfill (table->archive, &commit);
}

/* Finishing */

static bool may_finish_locked (EcfsStagedTable *table, const EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    if (self->opening || self->attempt != ECFS_ATTEMPT_NONE || self->durable_running || self->n_writers > 0 ||
        self->n_changing > 0)
        return false;
    return self->unlinked ? self->dropped : is_clean (self) && self->full;
}

/* Bytes that were flushed go after their name is gone for good: a crash must not bring it back without them. */
static bool may_unlink (EcfsStaged *self) ECFS_REQUIRES (self->row_lock)
{
    g_autoptr (GError) error = NULL;
    if (self->row_state != ECFS_STAGING_QUEUED ||
        ecfs_catalog_barrier (ecfs_archive_catalog (self->table->archive), &error))
        return true;
    g_warning ("staging/%s: stays until the next mount: %s", self->name, error->message);
    return false;
}

void ecfs_staged_finish (EcfsStaged *self)
{
    EcfsStagedTable *table = self->table;
    ecfs_mutex_lock (&self->row_lock);
    ecfs_mutex_lock (&table->lock);
    bool finished = self->in_table && may_finish_locked (table, self);
    self->finishing = false;
    if (finished)
        ecfs_staged_withdraw_locked (table, self);
    else
        ecfs_staged_step_locked (table, self);
    ecfs_cond_broadcast (&table->progress);
    ecfs_mutex_unlock (&table->lock);

    g_autoptr (GError) error = NULL;
    if (finished && self->row != 0 &&
        !ecfs_catalog_staging_remove (ecfs_archive_catalog (table->archive), self->row, &error) &&
        !g_error_matches (error, ECFS_ERROR, ENOENT)) /* it went with its inode */
        g_warning ("staging/%s: %s", self->name, error->message);
    if (finished && may_unlink (self) && unlinkat (table->dir_fd, self->name, 0) != 0)
        g_warning ("staging/%s: cannot be removed: %s", self->name, g_strerror (errno));
    ecfs_mutex_unlock (&self->row_lock);
}

static void finish_job (void *data)
{
    EcfsStaged *self = data;
    ecfs_staged_finish (self);
    ecfs_staged_unref (self);
}

/* What is due */

void ecfs_staged_schedule_locked (EcfsStagedTable *table, int64_t at_us)
{
    if (at_us >= table->wake_us)
        return;
    table->wake_us = at_us;
    ecfs_cond_signal (&table->timer_wake);
}

/* Work behind, for a file that nobody flushes just now. */
static void step_behind_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    bool wanted = self->n_writers == 0 || self->waits != NULL;
    if (!wanted || self->unlinked || (table->stopping && (self->gave_up || is_clean (self))))
        return;
    if (!is_clean (self) && self->durable_generation != self->generation && !self->durable_failed) {
        start_durable_locked (table, self);
        return;
    }
    if (self->retry_us > ecfs_now_us ()) {
        ecfs_staged_schedule_locked (table, self->retry_us);
        return;
    }
    if (!is_clean (self))
        start_attempt_locked (table, self, ECFS_ATTEMPT_COMMIT);
    else if (self->row_state == ECFS_STAGING_STORED && !self->full)
        start_attempt_locked (table, self, ECFS_ATTEMPT_BACKFILL);
}

void ecfs_staged_step_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    if (self->opening || table->stopped || !self->in_table)
        return;
    if (!g_queue_is_empty (&self->durables) && !self->durable_running && !self->publishing)
        start_durable_locked (table, self);
    if (self->attempt != ECFS_ATTEMPT_NONE || self->durable_running || self->finishing)
        return;
    if (may_finish_locked (table, self)) {
        self->finishing = true;
        ecfs_workers_push (table->workers, finish_job, ecfs_staged_ref (self));
    } else if (!g_queue_is_empty (&self->flushes)) {
        start_attempt_locked (table, self, ECFS_ATTEMPT_COMMIT);
    } else {
        step_behind_locked (table, self);
    }
}

/* Flush, fsync, wait */

static bool commits_at_flush_locked (EcfsStagedTable *table, const EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    const EcfsConfig *config = ecfs_archive_config (table->archive);
    bool crowded = config->staging_max != 0 && table->staged_bytes > config->staging_max / BACKLOG_SYNC_SHARE;
    if (config->commit_async && !crowded)
        return false;
    return self->new_bytes >= self->committed_bytes;
}

void ecfs_staged_flush (EcfsStaged *self, EcfsStagedDone done, void *user)
{
    EcfsStagedTable *table = self->table;
    GQueue answers = G_QUEUE_INIT;
    EcfsAnswer *flush = ecfs_answer_new (done, user);
    ecfs_mutex_lock (&table->lock);
    flush->want = self->generation;
    flush->deadline_us = ecfs_now_us () + ecfs_archive_config (table->archive)->close_timeout_us;
    if (self->unlinked || self->committed_generation >= flush->want) {
        g_queue_push_tail (&answers, flush);
    } else if (commits_at_flush_locked (table, self)) {
        g_queue_push_tail (&self->flushes, flush);
        ecfs_staged_schedule_locked (table, flush->deadline_us);
    } else if (self->durable_generation >= flush->want) {
        g_queue_push_tail (&answers, flush);
    } else {
        g_queue_push_tail (&self->durables, flush);
    }
    ecfs_staged_step_locked (table, self);
    ecfs_mutex_unlock (&table->lock);
    ecfs_answer_all (&answers);
}

void ecfs_staged_fsync (EcfsStaged *self, bool data_only, EcfsStagedDone done, void *user)
{
    (void) data_only; /* content without its size and name would not survive: both kinds make everything durable */
    EcfsStagedTable *table = self->table;
    EcfsAnswer *answer = ecfs_answer_new (done, user);
    ecfs_mutex_lock (&table->lock);
    answer->want = self->generation;
    bool committed = self->unlinked || self->committed_generation >= answer->want;
    if (!committed) {
        g_queue_push_tail (&self->durables, answer);
        ecfs_staged_step_locked (table, self);
    }
    ecfs_mutex_unlock (&table->lock);
    if (!committed)
        return;
    (void) ecfs_catalog_barrier (ecfs_archive_catalog (table->archive), &answer->error);
    GQueue answers = G_QUEUE_INIT;
    g_queue_push_tail (&answers, answer);
    ecfs_answer_all (&answers);
}

void ecfs_staged_hurry (EcfsStaged *self, const void *user)
{
    ecfs_mutex_lock (&self->table->lock);
    for (GList *l = self->flushes.head; l != NULL; l = l->next) {
        EcfsAnswer *flush = l->data;
        if (flush->user != user)
            continue;
        g_queue_delete_link (&self->flushes, l);
        g_queue_push_tail (&self->durables, flush);
        ecfs_staged_step_locked (self->table, self);
        break;
    }
    ecfs_mutex_unlock (&self->table->lock);
}

static void wait_for_locked (EcfsStagedTable *table, EcfsStaged *self, EcfsWait *wait) ECFS_REQUIRES (table->lock)
{
    uint64_t want = MAX (self->durable_generation, self->committed_generation);
    if (self->attempt == ECFS_ATTEMPT_COMMIT)
        want = MAX (want, self->attempt_generation);
    if (self->n_writers == 0 || !g_queue_is_empty (&self->flushes) || !g_queue_is_empty (&self->durables))
        want = self->generation;
    bool stored = self->committed_generation >= want && (!wait->full || self->full);
    if (self->opening || self->unlinked || stored)
        return;
    EcfsWaitEntry *entry = g_new (EcfsWaitEntry, 1);
    *entry = (EcfsWaitEntry){.wait = wait, .want = want};
    wait->n_pending++;
    self->waits = g_slist_prepend (self->waits, entry);
    self->retry_us = 0;
    ecfs_staged_step_locked (table, self);
}

void ecfs_staged_wait (EcfsArchive *archive, uint64_t ino, bool full, EcfsStagedDone done, void *user)
{
    EcfsStagedTable *table = archive->staged;
    GQueue answers = G_QUEUE_INIT;
    EcfsWait *wait = g_new0 (EcfsWait, 1);
    *wait = (EcfsWait){.n_pending = 1, .full = full, .answer = ecfs_answer_new (done, user)};
    if (table == NULL) { /* opened for reading: nothing can be staged */
        settle_wait (wait, NULL, &answers);
        ecfs_answer_all (&answers);
        return;
    }
    ecfs_mutex_lock (&table->lock);
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init (&iter, table->files);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        EcfsStaged *self = value;
        if (ino == 0 || ino == self->ino)
            wait_for_locked (table, self, wait);
    }
    settle_wait (wait, NULL, &answers);
    ecfs_mutex_unlock (&table->lock);
    ecfs_answer_all (&answers);
}

/* The timer */

/* Flushes past their deadline are answered once staging is durable; the commit goes on. Returns the next deadline. */
static int64_t expire_flushes_locked (EcfsStagedTable *table, EcfsStaged *self, int64_t now_us)
    ECFS_REQUIRES (table->lock)
{
    int64_t next_us = INT64_MAX;
    GList *next;
    for (GList *l = self->flushes.head; l != NULL; l = next) {
        next = l->next;
        EcfsAnswer *flush = l->data;
        if (flush->deadline_us > now_us || self->publishing) {
            next_us = MIN (next_us, flush->deadline_us > now_us ? flush->deadline_us : now_us + RETRY_FIRST_US);
            continue;
        }
        flush->error = g_error_new (ECFS_ERROR, ETIMEDOUT,
                                    "inode %" PRIu64
                                    ": not stored within close_timeout; it stays in staging and the upload goes on",
                                    self->ino);
        g_queue_delete_link (&self->flushes, l);
        g_queue_push_tail (&self->durables, flush);
    }
    return next_us;
}

static void look_at_all_locked (EcfsStagedTable *table) ECFS_REQUIRES (table->lock)
{
    int64_t now_us = ecfs_now_us ();
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init (&iter, table->files);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        EcfsStaged *self = value;
        ecfs_staged_schedule_locked (table, expire_flushes_locked (table, self, now_us));
        ecfs_staged_step_locked (table, self);
    }
}

void *ecfs_staged_timer (void *data)
{
    EcfsStagedTable *table = data;
    ecfs_mutex_lock (&table->lock);
    while (!table->stopped) {
        if (ecfs_now_us () >= table->wake_us) {
            table->wake_us = ecfs_now_us () + TIMER_IDLE_US;
            look_at_all_locked (table);
        }
        (void) ecfs_cond_wait_until (&table->timer_wake, &table->lock, table->wake_us);
    }
    ecfs_mutex_unlock (&table->lock);
    return NULL;
}
