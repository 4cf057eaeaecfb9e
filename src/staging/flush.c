/* Callers of close, fsync and `ecfs wait`. */
#include "archive/common.h"
#include "staging/staged_priv.h"

#include <inttypes.h>

#define RENAME_US        (10 * G_USEC_PER_SEC) /* the kernel keeps both directories locked meanwhile */
#define EXPIRED_AGAIN_US G_USEC_PER_SEC        /* a flush past its deadline whose attempt is just being published */

static bool commits_at_flush_locked (EcfsStagedTable *table, const EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    return !ecfs_archive_config (table->archive)->commit_async && ecfs_staged_is_worth_locked (table, self);
}

/* Begins to wait for a commit of what is there now, for close_timeout or @most_us. */
static void want_commit_locked (EcfsStagedTable *table, EcfsStaged *self, EcfsWaiter *answer, int64_t most_us)
    ECFS_REQUIRES (table->lock)
{
    answer->order = ++table->last_order;
    answer->deadline_us = ecfs_now_us () + MIN (ecfs_archive_config (table->archive)->close_timeout_us, most_us);
    g_queue_push_tail (&self->flushes, answer);
    g_hash_table_add (table->flushing, self);
    ecfs_staged_schedule_locked (table, answer->deadline_us);
}

/* What an fsync(2) has made durable is promised from now on. */
static void promise_durable_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    if (self->n_changing > 0)
        return;
    self->promised_generation = self->generation;
    self->promised_size = self->size;
}

void ecfs_staged_flush (EcfsStaged *self, EcfsStagedDone done, void *user)
{
    EcfsStagedTable *table = self->table;
    GQueue answers = G_QUEUE_INIT;
    EcfsWaiter *flush = ecfs_answer_new (done, user);
    flush->closes = true;
    ecfs_mutex_lock (&table->lock);
    flush->want = self->generation;
    if (self->unlinked || self->committed_generation >= flush->want)
        g_queue_push_tail (&answers, flush);
    else if (commits_at_flush_locked (table, self))
        want_commit_locked (table, self, flush, INT64_MAX);
    else
        g_queue_push_tail (self->durable_generation >= flush->want ? &answers : &self->durables, flush);
    if (self->durable_generation == self->generation)
        promise_durable_locked (table, self);
    ecfs_staged_step_locked (table, self);
    ecfs_mutex_unlock (&table->lock);
    ecfs_answer_all (&answers);
}

void ecfs_staged_fsync (EcfsStaged *self, EcfsStagedDone done, void *user)
{
    EcfsStagedTable *table = self->table;
    bool remote = ecfs_archive_config (table->archive)->fsync_remote;
    EcfsWaiter *answer = ecfs_answer_new (done, user);
    ecfs_mutex_lock (&table->lock);
    answer->want = self->generation;
    answer->insists = true;
    bool committed = self->unlinked || self->committed_generation >= answer->want;
    if (!committed && remote)
        want_commit_locked (table, self, answer, INT64_MAX);
    else if (!committed)
        g_queue_push_tail (&self->durables, answer);
    if (!committed)
        ecfs_staged_step_locked (table, self);
    ecfs_mutex_unlock (&table->lock);
    if (!committed)
        return;
    (void) ecfs_catalog_barrier (ecfs_archive_catalog (table->archive), &answer->error);
    GQueue answers = G_QUEUE_INIT;
    g_queue_push_tail (&answers, answer);
    ecfs_answer_all (&answers);
}

/* The staged file that is called @name, if something else has @new_name. A reference. */
static EcfsStaged *find_replacement (EcfsArchive *archive, uint64_t parent, const char *name, uint64_t new_parent,
                                     const char *new_name)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    EcfsAttr attr, replaced;
    if (!ecfs_catalog_lookup (catalog, parent, name, &attr, NULL) ||
        !ecfs_catalog_lookup (catalog, new_parent, new_name, &replaced, NULL) || attr.ino == replaced.ino)
        return NULL; /* what is wrong with them the rename says */
    return ecfs_staged_find (archive, attr.ino);
}

/* What was closed: else the name would be told of with the content before, where this machine is lost meanwhile. */
static bool waits_for_commit_locked (EcfsStagedTable *table, const EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    bool is_closed = self->n_writers == 0 || self->promised_generation == self->generation;
    return is_closed && !self->unlinked && self->committed_generation < self->generation &&
           !ecfs_archive_config (table->archive)->commit_async;
}

void ecfs_staged_before_rename (EcfsArchive *archive, uint64_t parent, const char *name, uint64_t new_parent,
                                const char *new_name, EcfsStagedDone done, void *user)
{
    EcfsStagedTable *table = ecfs_archive_service (archive, ECFS_SERVICE_STAGING);
    EcfsStaged *self = NULL;
    if (table != NULL && atomic_load (&table->n_files) > 0)
        self = find_replacement (archive, parent, name, new_parent, new_name);
    if (self == NULL) {
        done (user, NULL);
        return;
    }
    GQueue answers = G_QUEUE_INIT;
    EcfsWaiter *answer = ecfs_answer_new (done, user);
    ecfs_mutex_lock (&table->lock);
    answer->want = self->generation;
    bool durable = MAX (self->durable_generation, self->committed_generation) >= answer->want;
    if (waits_for_commit_locked (table, self)) {
        answer->forgives = true;
        want_commit_locked (table, self, answer, RENAME_US);
    } else {
        g_queue_push_tail (self->unlinked || durable ? &answers : &self->durables, answer);
    }
    ecfs_staged_step_locked (table, self);
    ecfs_mutex_unlock (&table->lock);
    ecfs_answer_all (&answers);
    ecfs_staged_unref (self);
}

void ecfs_staged_hurry (EcfsStaged *self, const void *user)
{
    ecfs_mutex_lock (&self->table->lock);
    for (GList *l = self->flushes.head; l != NULL; l = l->next) {
        if (((const EcfsWaiter *) l->data)->user != user)
            continue;
        ecfs_staged_leave_behind_locked (self->table, self, l);
        ecfs_staged_step_locked (self->table, self);
        break;
    }
    ecfs_mutex_unlock (&self->table->lock);
}

static int64_t expire_locked (EcfsStagedTable *table, EcfsStaged *self, int64_t now_us) ECFS_REQUIRES (table->lock)
{
    int64_t next_us = INT64_MAX;
    GList *next;
    for (GList *l = self->flushes.head; l != NULL; l = next) {
        next = l->next;
        EcfsWaiter *flush = l->data;
        if (flush->deadline_us > now_us || ecfs_staged_owns_row_locked (table, self)) {
            next_us = MIN (next_us, flush->deadline_us > now_us ? flush->deadline_us : now_us + EXPIRED_AGAIN_US);
            continue;
        }
        if (!flush->forgives)
            flush->error = g_error_new (
                ECFS_ERROR, ETIMEDOUT,
                "inode %" PRIu64 ": not stored within close_timeout; it stays in staging and the upload continues",
                self->ino);
        ecfs_staged_leave_behind_locked (table, self, l);
    }
    ecfs_staged_step_locked (table, self);
    return next_us;
}

int64_t ecfs_staged_expire_flushes_locked (EcfsStagedTable *table, int64_t now_us)
{
    int64_t next_us = INT64_MAX;
    g_autoptr (GList) files = g_hash_table_get_keys (table->flushing);
    for (GList *l = files; l != NULL; l = l->next)
        next_us = MIN (next_us, expire_locked (table, l->data, now_us));
    return next_us;
}

static void wait_for_locked (EcfsStagedTable *table, EcfsStaged *self, EcfsWait *wait) ECFS_REQUIRES (table->lock)
{
    uint64_t want = ecfs_staged_flushed_locked (table, self);
    bool stored = self->committed_generation >= want;
    /* What is stored, and being replaced by somebody who has not flushed yet, cannot be filled up from here. */
    bool lacks_stripes =
        wait->full && !ecfs_staged_is_cared_for_locked (table, self) && (!stored || ecfs_staged_is_clean (self));
    if (self->phase == ECFS_PHASE_OPENING || self->unlinked || (stored && !lacks_stripes))
        return;
    EcfsWaitEntry *entry = g_new (EcfsWaitEntry, 1);
    *entry = (EcfsWaitEntry){.wait = wait, .want = want, .during = ecfs_staged_is_storing (self)};
    wait->n_pending++;
    self->waits = g_slist_prepend (self->waits, entry);
    ecfs_staged_line_up_locked (table, self);
}

void ecfs_staged_wait (EcfsArchive *archive, uint64_t ino, bool full, EcfsStagedDone done, void *user)
{
    EcfsStagedTable *table = ecfs_archive_service (archive, ECFS_SERVICE_STAGING);
    GQueue answers = G_QUEUE_INIT;
    EcfsWait *wait = g_new0 (EcfsWait, 1);
    *wait =
        (EcfsWait){.n_pending = 1, .begun_us = ecfs_now_us (), .full = full, .answer = ecfs_answer_new (done, user)};
    if (table == NULL) { /* opened for reading: nothing can be staged */
        ecfs_staged_settle_wait (wait, NULL, &answers);
        ecfs_answer_all (&answers);
        return;
    }
    ecfs_mutex_lock (&table->lock);
    EcfsStaged *only = ino == 0 ? NULL : g_hash_table_lookup (table->files, &ino);
    if (only != NULL)
        wait_for_locked (table, only, wait);
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init (&iter, table->files);
    while (ino == 0 && g_hash_table_iter_next (&iter, NULL, &value))
        wait_for_locked (table, value, wait);
    ecfs_staged_dispatch_locked (table);
    ecfs_staged_settle_wait (wait, NULL, &answers);
    ecfs_mutex_unlock (&table->lock);
    ecfs_answer_all (&answers);
}
