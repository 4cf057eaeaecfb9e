/*
 * What is promised to callers of close(2) and fsync(2): it is made durable on this machine, the file synced and its row
 * QUEUED, and it stays so.
 *
 * What close(2) has promised stays until something else is promised (doc/architecture.md decision 3). Content that was
 * flushed and is not committed yet is on this disk only: before its bytes change the staged file goes on with a copy of
 * them, or with nothing where it is truncated, under a row of its own. The old file stays aside, its row QUEUED, until
 * the new content is flushed or committed; after a crash before that, it is the file's content.
 *
 * Bytes behind those that were flushed need no copy: the row tells where they begin. Nor does what follows an fsync(2)
 * of a file that is open still: a database that syncs each of its transactions would be copied for each of them. Files
 * of more than rewrite_max are changed in place.
 */
#include "archive/common.h"
#include "staging/staged_priv.h"
#include "util/io.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define SLEEP_US G_USEC_PER_SEC /* bounds one sleep; whatever is waited for ends by itself */

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
    if (ecfs_staged_owns_row_locked (table, self)) { /* the row is the attempt's, which may have ended meanwhile */
        self->durability = ECFS_DURABILITY_IDLE;
        ecfs_staged_step_locked (table, self);
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

/* Setting aside what was promised */

/* Bytes that a copy of the first @keep takes at most: holes stay holes. */
static uint64_t copied_bytes_locked (const EcfsStaged *self, uint64_t keep)
{
    return MIN (keep, self->charged_bytes);
}

bool ecfs_staged_is_promised_locked (EcfsStagedTable *table, const EcfsStaged *self, uint64_t offset, uint64_t keep)
{
    if (self->setting_apart)
        return true;
    return self->promised_generation != 0 && self->row_state == ECFS_STAGING_QUEUED && !self->unlinked &&
           offset < self->promised_size &&
           copied_bytes_locked (self, keep) <= ecfs_archive_config (table->archive)->rewrite_max;
}

/* The row is the attempt's until then. */
static void wait_until_published (EcfsStaged *self)
{
    EcfsStagedTable *table = self->table;
    ecfs_mutex_lock (&table->lock);
    while (self->phase == ECFS_PHASE_PUBLISHING)
        (void) ecfs_cond_wait_until (&table->progress, &table->lock, ecfs_now_us () + SLEEP_US);
    ecfs_mutex_unlock (&table->lock);
}

static bool copy_file (EcfsStaged *self, int new_fd, uint64_t keep, GError **error)
{
    int result = ecfs_copy_bytes (ecfs_staged_fd (self), 0, new_fd, 0, keep);
    if (result == 0 && ftruncate (new_fd, (off_t) keep) != 0)
        result = -errno;
    return result == 0 ||
           ecfs_fail_errno (error, -result, "staging/%s: cannot be copied before it is changed", self->name);
}

static bool rename_in (EcfsStaged *self, const char *from, const char *to, GError **error)
{
    int dir_fd = self->table->dir_fd;
    return renameat (dir_fd, from, dir_fd, to) == 0 ||
           ecfs_fail_errno (error, errno, "staging/%s: cannot be renamed to %s", from, to);
}

/* The old file, which nobody reads any more, loses what was added behind the promised bytes. Where that fails it is
 * told by the row, after a crash. */
static void cut_aside (EcfsStaged *self, int old_fd)
{
    ecfs_mutex_lock (&self->table->lock);
    uint64_t promised_size = self->promised_size;
    ecfs_mutex_unlock (&self->table->lock);
    if (ftruncate (old_fd, (off_t) promised_size) != 0)
        g_info ("staging/%s: %s", self->aside_name, g_strerror (errno));
}

/* The descriptor keeps its number: nobody who uses it notices. */
static void take_over (EcfsStaged *self, int fd, int64_t row, char *name, char *aside, uint64_t keep)
    ECFS_REQUIRES (self->row_lock)
{
    EcfsStagedTable *table = self->table;
    ecfs_mutex_lock (&table->lock);
    if (dup3 (fd, self->fd, O_CLOEXEC) < 0)
        g_error ("cannot exchange an open file: %s", g_strerror (errno));
    g_free (self->name);
    self->aside_name = aside;
    self->aside_row = self->row;
    self->aside_bytes = self->charged_bytes;
    self->name = name;
    self->row = row;
    self->row_state = ECFS_STAGING_OPEN;
    self->name_durable = false;
    self->promised_generation = 0;
    self->generation++; /* an attempt that reads the file may have seen both */
    self->size = keep;
    self->charged_bytes = 0;
    ecfs_staged_charge_locked (table, self, MIN (keep, self->aside_bytes));
    ecfs_mutex_unlock (&table->lock);
}

/* Until it is whole the new file has the name of what is thrown away after a crash; the old one gets a name that tells
 * what it is to whoever finds it without its row. */
static bool make_files (EcfsStaged *self, const char *name, const char *aside, uint64_t keep, int *ret_fd,
                        GError **error) ECFS_REQUIRES (self->row_lock)
{
    EcfsStagedTable *table = self->table;
    g_autofree char *copy = ecfs_staged_copy_name (table, self->ino);
    ecfs_autofd fd = openat (table->dir_fd, copy, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return ecfs_fail_errno (error, errno, "staging/%s", copy);
    if (copy_file (self, fd, keep, error) && rename_in (self, self->name, aside, error)) {
        if (rename_in (self, copy, name, error)) {
            *ret_fd = ecfs_steal_fd (&fd);
            return true;
        }
        (void) renameat (table->dir_fd, aside, table->dir_fd, self->name); /* the next mount finds it there too */
    }
    (void) unlinkat (table->dir_fd, copy, 0); /* likewise */
    return false;
}

static bool exchange (EcfsStaged *self, uint64_t keep, GError **error) ECFS_REQUIRES (self->row_lock)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->table->archive);
    int64_t row;
    if (!ecfs_catalog_staging_add (catalog, self->ino, &row, error))
        return false;
    g_autofree char *name = ecfs_staged_row_name (row, self->ino);
    g_autofree char *aside = ecfs_staged_aside_name (self->name);
    ecfs_autofd fd = -1;
    ecfs_autofd old_fd = fcntl (ecfs_staged_fd (self), F_DUPFD_CLOEXEC, 0);
    if (old_fd < 0)
        (void) !ecfs_fail_errno (error, errno, "staging/%s", self->name);
    else if (make_files (self, name, aside, keep, &fd, error)) {
        take_over (self, fd, row, g_steal_pointer (&name), g_steal_pointer (&aside), keep);
        cut_aside (self, old_fd);
        return true;
    }
    (void) ecfs_catalog_staging_remove (catalog, row, NULL); /* the next mount finds nothing for it */
    return false;
}

bool ecfs_staged_set_apart (EcfsStaged *self, uint64_t offset, uint64_t keep, GError **error)
{
    EcfsStagedTable *table = self->table;
    wait_until_published (self);
    ecfs_mutex_lock (&self->row_lock);
    ecfs_mutex_lock (&table->lock);
    bool needed = self->phase != ECFS_PHASE_PUBLISHING && ecfs_staged_is_promised_locked (table, self, offset, keep);
    bool ok = !needed || ecfs_staged_check_room_locked (table, copied_bytes_locked (self, keep), error);
    self->setting_apart = needed && ok;
    while (self->setting_apart && self->n_changing > 0)
        (void) ecfs_cond_wait_until (&table->progress, &table->lock, ecfs_now_us () + SLEEP_US);
    uint64_t size = MIN (keep, self->size);
    ecfs_mutex_unlock (&table->lock);
    if (needed && ok)
        ok = exchange (self, size, error);
    ecfs_mutex_lock (&table->lock);
    self->setting_apart = false;
    ecfs_mutex_unlock (&table->lock);
    ecfs_mutex_unlock (&self->row_lock);
    return ok;
}

void ecfs_staged_drop_aside (EcfsStaged *self)
{
    EcfsStagedTable *table = self->table;
    if (self->aside_row == 0)
        return;
    if (unlinkat (table->dir_fd, self->aside_name, 0) != 0)
        g_warning ("staging/%s: cannot be removed: %s", self->aside_name, g_strerror (errno));
    ecfs_mutex_lock (&table->lock);
    ecfs_staged_room_made_locked (table, self->aside_bytes);
    table->staged_bytes -= self->aside_bytes;
    self->aside_bytes = 0;
    self->aside_row = 0;
    g_clear_pointer (&self->aside_name, g_free);
    ecfs_mutex_unlock (&table->lock);
}
