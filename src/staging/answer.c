/* Who waits for a staged file: callers of close, fsync and `ecfs wait`. */
#include "archive/common.h"
#include "staging/staged_priv.h"

#include <inttypes.h>

#define EXPIRED_AGAIN_US G_USEC_PER_SEC /* a flush past its deadline whose attempt is just being published */
#define FAILURES_TOLD    10             /* of one wait, by name */

/* Answers */

EcfsWaiter *ecfs_answer_new (EcfsStagedDone done, void *user)
{
    EcfsWaiter *answer = g_new0 (EcfsWaiter, 1);
    answer->done = done;
    answer->user = user;
    return answer;
}

void ecfs_answer_all (GQueue *answers)
{
    EcfsWaiter *answer;
    while ((answer = g_queue_pop_head (answers)) != NULL) {
        answer->done (answer->user, answer->error);
        g_clear_error (&answer->error);
        g_free (answer);
    }
}

void ecfs_answer_take_error (EcfsWaiter *answer, const GError *error)
{
    if (answer->error == NULL && error != NULL)
        answer->error = g_error_copy (error);
}

void ecfs_answers_move (GQueue *from, GQueue *to, const GError *error)
{
    EcfsWaiter *answer;
    while ((answer = g_queue_pop_head (from)) != NULL) {
        ecfs_answer_take_error (answer, error);
        g_queue_push_tail (to, answer);
    }
}

/* Waits */

static void note_failure (EcfsWait *wait, const GError *error)
{
    if (wait->failures == NULL) {
        wait->code = error->code;
        wait->failures = g_string_new (NULL);
    }
    if (wait->n_failed++ < FAILURES_TOLD)
        g_string_append_printf (wait->failures, "%s%s", wait->failures->len > 0 ? "\n" : "", error->message);
}

/* The file needs nothing more for this wait, or will not get it now. */
static void settle_wait (EcfsWait *wait, const GError *error, GQueue *answers)
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

void ecfs_staged_settle_waits_locked (EcfsStagedTable *table, EcfsStaged *self, bool all, const GError *error,
                                      GQueue *answers)
{
    GSList *next;
    for (GSList *l = self->waits; l != NULL; l = next) {
        next = l->next;
        EcfsWaitEntry *entry = l->data;
        bool stored = self->committed_generation >= entry->want && (self->full || !entry->wait->full);
        bool keeps = !stored && (!all || entry->during);
        entry->during = entry->during && !all;
        if (keeps)
            continue;
        settle_wait (entry->wait, stored ? NULL : error, answers);
        self->waits = g_slist_delete_link (self->waits, l);
        g_free (entry);
    }
}

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
    ecfs_staged_settle_waits_locked (table, self, true, error, answers);
}

/* The generation up to which everything was flushed; 0: nothing ever was. */
static uint64_t flushed_locked (EcfsStagedTable *table, const EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    if (self->n_writers == 0 || self->flushes.length > 0 || self->durables.length > 0)
        return self->generation;
    uint64_t flushed = MAX (self->durable_generation, self->committed_generation);
    return self->attempt == ECFS_ATTEMPT_COMMIT ? MAX (flushed, self->attempt_generation) : flushed;
}

bool ecfs_staged_is_unflushed (EcfsArchive *archive, uint64_t ino)
{
    EcfsStaged *self = ecfs_staged_find (archive, ino);
    if (self == NULL)
        return false;
    ecfs_mutex_lock (&self->table->lock);
    bool unflushed = flushed_locked (self->table, self) == 0;
    ecfs_mutex_unlock (&self->table->lock);
    ecfs_staged_unref (self);
    return unflushed;
}

static void wait_for_locked (EcfsStagedTable *table, EcfsStaged *self, EcfsWait *wait) ECFS_REQUIRES (table->lock)
{
    uint64_t want = flushed_locked (table, self);
    bool stored = self->committed_generation >= want;
    /* What is stored, and being replaced by somebody who has not flushed yet, cannot be filled up from here. */
    bool lacks_stripes = wait->full && !self->full && (!stored || ecfs_staged_is_clean (self));
    if (self->opening || self->unlinked || (stored && !lacks_stripes))
        return;
    EcfsWaitEntry *entry = g_new (EcfsWaitEntry, 1);
    *entry = (EcfsWaitEntry){.wait = wait,
                             .want = want,
                             .during = self->attempt != ECFS_ATTEMPT_NONE && self->attempt != ECFS_ATTEMPT_STREAM};
    wait->n_pending++;
    self->waits = g_slist_prepend (self->waits, entry);
    ecfs_staged_line_up_locked (table, self);
}

void ecfs_staged_wait (EcfsArchive *archive, uint64_t ino, bool full, EcfsStagedDone done, void *user)
{
    EcfsStagedTable *table = ecfs_archive_service (archive, ECFS_SERVICE_STAGING);
    GQueue answers = G_QUEUE_INIT;
    EcfsWait *wait = g_new0 (EcfsWait, 1);
    *wait = (EcfsWait){.n_pending = 1, .full = full, .answer = ecfs_answer_new (done, user)};
    if (table == NULL) { /* opened for reading: nothing can be staged */
        settle_wait (wait, NULL, &answers);
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
    settle_wait (wait, NULL, &answers);
    ecfs_mutex_unlock (&table->lock);
    ecfs_answer_all (&answers);
}

/* Flush and fsync */

static bool commits_at_flush_locked (EcfsStagedTable *table, const EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    return !ecfs_archive_config (table->archive)->commit_async && ecfs_staged_is_worth_locked (table, self);
}

/* Begins to wait for a commit of what is there now. */
static void want_commit_locked (EcfsStagedTable *table, EcfsStaged *self, EcfsWaiter *answer)
    ECFS_REQUIRES (table->lock)
{
    answer->order = ++table->last_order;
    answer->deadline_us = ecfs_now_us () + ecfs_archive_config (table->archive)->close_timeout_us;
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
        want_commit_locked (table, self, flush);
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
        want_commit_locked (table, self, answer);
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
    g_queue_push_tail (self->unlinked || durable ? &answers : &self->durables, answer);
    ecfs_staged_step_locked (table, self);
    ecfs_mutex_unlock (&table->lock);
    ecfs_answer_all (&answers);
    ecfs_staged_unref (self);
}

/* The upload goes on behind; the caller is content with what is durable here. */
static void leave_behind_locked (EcfsStagedTable *table, EcfsStaged *self, GList *link) ECFS_REQUIRES (table->lock)
{
    EcfsWaiter *flush = link->data;
    let_writers_go_locked (table, self);
    g_queue_delete_link (&self->flushes, link);
    g_queue_push_tail (&self->durables, flush);
    if (self->flushes.length == 0)
        g_hash_table_remove (table->flushing, self);
}

void ecfs_staged_hurry (EcfsStaged *self, const void *user)
{
    ecfs_mutex_lock (&self->table->lock);
    for (GList *l = self->flushes.head; l != NULL; l = l->next) {
        if (((const EcfsWaiter *) l->data)->user != user)
            continue;
        leave_behind_locked (self->table, self, l);
        ecfs_staged_step_locked (self->table, self);
        break;
    }
    ecfs_mutex_unlock (&self->table->lock);
}

void ecfs_staged_settle_flushes_locked (EcfsStagedTable *table, EcfsStaged *self, const GError *error, bool overtaken,
                                        GQueue *answers)
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
            ecfs_answer_take_error (flush, overtaken ? NULL : error);
            g_queue_push_tail (&self->durables, flush);
        } else {
            g_queue_push_tail (&left, flush);
        }
    }
    self->flushes = left;
    if (left.length == 0)
        g_hash_table_remove (table->flushing, self);
}

static int64_t expire_locked (EcfsStagedTable *table, EcfsStaged *self, int64_t now_us) ECFS_REQUIRES (table->lock)
{
    int64_t next_us = INT64_MAX;
    GList *next;
    for (GList *l = self->flushes.head; l != NULL; l = next) {
        next = l->next;
        EcfsWaiter *flush = l->data;
        if (flush->deadline_us > now_us || self->publishing) {
            next_us = MIN (next_us, flush->deadline_us > now_us ? flush->deadline_us : now_us + EXPIRED_AGAIN_US);
            continue;
        }
        flush->error = g_error_new (ECFS_ERROR, ETIMEDOUT,
                                    "inode %" PRIu64
                                    ": not stored within close_timeout; it stays in staging and the upload goes on",
                                    self->ino);
        leave_behind_locked (table, self, l);
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
