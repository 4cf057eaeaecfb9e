/* Who waits for a staged file, and what they are answered. */
#include "archive/common.h"
#include "staging/staged_priv.h"

#define FAILURES_TOLD 10 /* of one wait, by name */

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

/* The first error stays. */
static void take_error (EcfsWaiter *answer, const GError *error)
{
    if (answer->error == NULL && error != NULL)
        answer->error = g_error_copy (error);
}

void ecfs_answers_move (GQueue *from, GQueue *to, const GError *error)
{
    EcfsWaiter *answer;
    while ((answer = g_queue_pop_head (from)) != NULL) {
        take_error (answer, error);
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
        ecfs_staged_settle_wait (entry->wait, stored ? NULL : error, answers);
        self->waits = g_slist_delete_link (self->waits, l);
        g_free (entry);
    }
}

/* Flushes */

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
            take_error (flush, overtaken ? NULL : error);
            g_queue_push_tail (&self->durables, flush);
        } else {
            g_queue_push_tail (&left, flush);
        }
    }
    self->flushes = left;
    if (left.length == 0)
        g_hash_table_remove (table->flushing, self);
}
