/* Making durable on this machine what was flushed: the file synced, its row QUEUED. */
#include "archive/common.h"
#include "staging/staged_priv.h"
#include <unistd.h>

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
    bool may = ecfs_staged_owns_row_locked (self->table, self) || self->unlinked;
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
    if (ecfs_staged_owns_row_locked (table, self)) { /* the row is the attempt's; its end comes back here */
        self->durability = ECFS_DURABILITY_IDLE;
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
    self->durability = error != NULL ? ECFS_DURABILITY_FAILED : ECFS_DURABILITY_IDLE;
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
    self->durability = ECFS_DURABILITY_FAILED;
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
    self->durability = ECFS_DURABILITY_RUNNING;
    ecfs_workers_push (table->workers, durable_job, ecfs_staged_ref (self));
}
