/*
 * Whose turn it is to be stored.
 *
 * A file for which somebody waits comes first; behind that, files that wait to be committed, oldest first, and then
 * those that lack stripes. Few attempts run at a time, so that a hundred thousand files that wait cost a place in a
 * queue each and nothing more. When attempts of several files in a row fail, the reason is taken to be common to all:
 * from then on one at a time tries, with growing pauses, until one succeeds or an endpoint comes back.
 */
#include "archive/common.h"
#include "staging/staged_priv.h"

#define N_ATTEMPTS     16 /* at once, as many as commit threads */
#define N_BEHIND       12 /* of these for what nobody waits for */
#define N_FILLS        4
#define N_TRAILING     4 /* that go on behind closes which were answered at the quorum */
#define PAUSE_FIRST_US G_USEC_PER_SEC
#define PAUSE_MAX_US   ((int64_t) 60 * G_USEC_PER_SEC)

void ecfs_staged_queues_init (EcfsStagedTable *table)
{
    for (int i = 0; i < ECFS_N_TURNS; i++)
        table->turns[i] = g_sequence_new (NULL);
    table->flushing = g_hash_table_new (NULL, NULL);
    table->was_out = g_byte_array_new ();
}

void ecfs_staged_queues_clear (EcfsStagedTable *table)
{
    for (int i = 0; i < ECFS_N_TURNS; i++)
        g_sequence_free (table->turns[i]);
    g_hash_table_destroy (table->flushing);
    g_byte_array_unref (table->was_out);
}

/* Queues */

static int by_key (gconstpointer a, gconstpointer b, gpointer unused)
{
    const EcfsStaged *left = a, *right = b;
    (void) unused;
    return left->turn_key < right->turn_key ? -1 : left->turn_key > right->turn_key;
}

static void leave_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    if (self->place != NULL)
        g_sequence_remove (self->place);
    self->place = NULL;
    self->turn = ECFS_TURN_NONE;
}

/* Its place there, ascending. */
static uint64_t key_of_locked (EcfsStagedTable *table, const EcfsStaged *self, EcfsTurn turn)
    ECFS_REQUIRES (table->lock)
{
    if (turn == ECFS_TURN_NONE)
        return 0;
    if (turn == ECFS_TURN_LATER)
        return (uint64_t) self->retry_us;
    if (turn != ECFS_TURN_FLUSH)
        return self->order;
    const GList *first = self->flushes.length > 0 ? self->flushes.head : self->durables.head;
    return ((const EcfsWaiter *) first->data)->order;
}

void ecfs_staged_enter_turn_locked (EcfsStagedTable *table, EcfsStaged *self, EcfsTurn turn)
{
    uint64_t key = key_of_locked (table, self, turn);
    if (self->turn == turn && (turn == ECFS_TURN_NONE || self->turn_key == key))
        return;
    leave_locked (table, self);
    self->turn = turn;
    self->turn_key = key;
    if (turn != ECFS_TURN_NONE)
        self->place = g_sequence_insert_sorted (table->turns[turn], self, by_key, NULL);
    if (turn == ECFS_TURN_LATER)
        ecfs_staged_schedule_locked (table, self->retry_us);
}

EcfsStaged *ecfs_staged_first_locked (EcfsStagedTable *table, EcfsTurn turn)
{
    GSequenceIter *begin = g_sequence_get_begin_iter (table->turns[turn]);
    return g_sequence_iter_is_end (begin) ? NULL : g_sequence_get (begin);
}

/* Stop waits for what is under way, and for content that was never committed and may yet be. */
static bool is_busy_locked (EcfsStagedTable *table, const EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    switch (self->phase) {
    case ECFS_PHASE_ABSENT:
        return false;
    case ECFS_PHASE_OPENING:
    case ECFS_PHASE_COMMITTING:
    case ECFS_PHASE_PUBLISHING:
    case ECFS_PHASE_SETTLING:
    case ECFS_PHASE_LEAVING:
        return true;
    case ECFS_PHASE_IDLE:
    case ECFS_PHASE_STREAMING:
    case ECFS_PHASE_FILLING:
    case ECFS_PHASE_TRAILING:
    case ECFS_PHASE_ENDING:
        break;
    }
    return self->durability == ECFS_DURABILITY_RUNNING ||
           (!ecfs_staged_is_clean (self) && !self->unlinked && !self->gave_up);
}

void ecfs_staged_count_busy_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    bool busy = is_busy_locked (table, self);
    if (busy != self->busy)
        table->n_busy += busy ? 1 : -1;
    self->busy = busy;
    if (!busy)
        ecfs_cond_broadcast (&table->progress);
}

void ecfs_staged_forget_turn_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    leave_locked (table, self);
    g_hash_table_remove (table->flushing, self);
    ecfs_staged_count_busy_locked (table, self);
}

void ecfs_staged_schedule_locked (EcfsStagedTable *table, int64_t at_us)
{
    if (at_us >= table->wake_us)
        return;
    table->wake_us = at_us;
    ecfs_cond_signal (&table->timer_wake);
}

/* Pace */

static bool pace_allows (const EcfsRetryPace *pace, int64_t now_us)
{
    if (pace->n_failures < ECFS_STAGED_PATIENCE)
        return true;
    return pace->n_running == 0 && now_us >= pace->not_before_us;
}

static bool may_start_locked (EcfsStagedTable *table, EcfsTurn turn, int64_t now_us) ECFS_REQUIRES (table->lock)
{
    if (turn == ECFS_TURN_FLUSH || turn == ECFS_TURN_WAITED || table->stopping)
        return table->n_attempts < N_ATTEMPTS;
    if (table->n_attempts >= N_BEHIND)
        return false;
    if (turn == ECFS_TURN_COMMIT)
        return pace_allows (&table->commit_pace, now_us);
    return table->fill_pace.n_running < N_FILLS && pace_allows (&table->fill_pace, now_us);
}

static EcfsRetryPace *pace_of (EcfsStagedTable *table, const EcfsStaged *self)
{
    return ecfs_staged_is_filling (self) ? &table->fill_pace : &table->commit_pace;
}

EcfsStaged *ecfs_staged_next_turn_locked (EcfsStagedTable *table)
{
    int64_t now_us = ecfs_now_us ();
    for (EcfsTurn turn = ECFS_TURN_FLUSH; turn < ECFS_TURN_LATER; turn++) {
        EcfsStaged *first = ecfs_staged_first_locked (table, turn);
        if (first != NULL && may_start_locked (table, turn, now_us))
            return first;
    }
    return NULL;
}

void ecfs_staged_take_turn_locked (EcfsStagedTable *table, EcfsStaged *self, EcfsPhase phase)
{
    self->attempt_paced = self->turn == ECFS_TURN_COMMIT || self->turn == ECFS_TURN_FILL;
    leave_locked (table, self);
    self->phase = phase;
    table->n_attempts++;
    if (self->attempt_paced)
        pace_of (table, self)->n_running++;
}

bool ecfs_staged_note_published_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    if (self->attempt_paced)
        table->commit_pace.n_running--;
    self->attempt_paced = false;
    table->commit_pace.n_failures = 0;
    bool may_trail = table->n_trailing < N_TRAILING;
    table->n_trailing += may_trail;
    return may_trail;
}

void ecfs_staged_note_end_locked (EcfsStagedTable *table, EcfsStaged *self, bool streamed, EcfsVerdict verdict)
{
    EcfsRetryPace *pace = pace_of (table, self);
    table->n_attempts -= !streamed;
    table->n_trailing -= self->phase == ECFS_PHASE_TRAILING;
    if (self->attempt_paced)
        pace->n_running--;
    self->attempt_paced = false;
    if (verdict == ECFS_VERDICT_GOOD)
        pace->n_failures = 0;
    if (verdict != ECFS_VERDICT_BAD || ++pace->n_failures < ECFS_STAGED_PATIENCE)
        return;
    int64_t pause_us = MIN ((int64_t) PAUSE_FIRST_US << MIN (pace->n_failures - ECFS_STAGED_PATIENCE, 6), PAUSE_MAX_US);
    pace->not_before_us = ecfs_now_us () + pause_us;
    ecfs_staged_schedule_locked (table, pace->not_before_us);
}
