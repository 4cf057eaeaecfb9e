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

#define N_ATTEMPTS           16 /* at once, as many as commit threads */
#define N_BEHIND             12 /* of these for what nobody waits for */
#define N_FILLS              4
#define N_TRAILING           4  /* that go on behind closes which were answered at the quorum */
#define ECFS_STAGED_PATIENCE 16 /* failures in a row */
#define PAUSE_FIRST_US       G_USEC_PER_SEC
#define PAUSE_MAX_US         ((int64_t) 60 * G_USEC_PER_SEC)
#define LOOK_US              G_USEC_PER_SEC /* whether endpoints came back, while something waits for them */
#define IDLE_US              (60 * G_USEC_PER_SEC)

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

static void enter_locked (EcfsStagedTable *table, EcfsStaged *self, EcfsTurn turn, uint64_t key)
    ECFS_REQUIRES (table->lock)
{
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

static EcfsStaged *first_locked (EcfsStagedTable *table, EcfsTurn turn) ECFS_REQUIRES (table->lock)
{
    GSequenceIter *begin = g_sequence_get_begin_iter (table->turns[turn]);
    return g_sequence_iter_is_end (begin) ? NULL : g_sequence_get (begin);
}

/* What is due */

static EcfsTurn later_or_locked (EcfsStagedTable *table, EcfsStaged *self, EcfsTurn turn, uint64_t *ret_key)
    ECFS_REQUIRES (table->lock)
{
    if (self->order == 0)
        self->order = ++table->last_order;
    bool later = self->waits == NULL && self->retry_us > ecfs_now_us ();
    *ret_key = later ? (uint64_t) self->retry_us : self->order;
    return later ? ECFS_TURN_LATER : self->waits != NULL ? ECFS_TURN_WAITED : turn;
}

/* Work behind, for a file that nobody flushes just now. */
static EcfsTurn behind_locked (EcfsStagedTable *table, EcfsStaged *self, uint64_t *ret_key) ECFS_REQUIRES (table->lock)
{
    bool clean = ecfs_staged_is_clean (self);
    /* What is set aside was flushed, and what takes its place was not. */
    bool wanted = self->n_writers == 0 || (self->waits != NULL && self->aside_row == 0);
    if (!wanted || self->unlinked || (table->stopping && (self->gave_up || (clean && !table->filling))))
        return ECFS_TURN_NONE;
    if (clean && (self->row_state != ECFS_STAGING_STORED || self->full))
        return ECFS_TURN_NONE;
    EcfsTurn turn = later_or_locked (table, self, clean ? ECFS_TURN_FILL : ECFS_TURN_COMMIT, ret_key);
    if (clean || self->durable_generation == self->generation || self->durable_failed)
        return turn;
    ecfs_staged_start_durable_locked (table, self);
    return ECFS_TURN_NONE;
}

static EcfsTurn next_turn_locked (EcfsStagedTable *table, EcfsStaged *self, uint64_t *ret_key)
    ECFS_REQUIRES (table->lock)
{
    const EcfsWaiter *flush = g_queue_peek_head (&self->flushes);
    const EcfsWaiter *durable = g_queue_peek_head (&self->durables);
    *ret_key = 0;
    bool free = self->attempt == ECFS_ATTEMPT_NONE || self->attempt == ECFS_ATTEMPT_STREAM;
    if (!free || self->durable_running || self->finishing)
        return ECFS_TURN_NONE;
    if (ecfs_staged_may_finish_locked (table, self)) {
        ecfs_staged_start_finish_locked (table, self);
        return ECFS_TURN_NONE;
    }
    if (flush != NULL || (durable != NULL && self->kept)) {
        *ret_key = flush != NULL ? flush->order : durable->order;
        return ECFS_TURN_FLUSH;
    }
    if (self->kept)
        return table->stopping && self->gave_up ? ECFS_TURN_NONE
                                                : later_or_locked (table, self, ECFS_TURN_COMMIT, ret_key);
    return behind_locked (table, self, ret_key);
}

/* Stop waits for what is under way, and for content that was never committed and may yet be. */
static void count_busy_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    bool under_way = self->opening || self->durable_running || self->finishing ||
                     self->attempt == ECFS_ATTEMPT_COMMIT || self->attempt == ECFS_ATTEMPT_SETTLE;
    bool busy = self->in_table && (under_way || (!ecfs_staged_is_clean (self) && !self->unlinked && !self->gave_up));
    if (busy != self->busy)
        table->n_busy += busy ? 1 : -1;
    self->busy = busy;
    if (!busy)
        ecfs_cond_broadcast (&table->progress);
}

/* Attempts */

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
    return self->attempt == ECFS_ATTEMPT_BACKFILL ? &table->fill_pace : &table->commit_pace;
}

static void start_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    EcfsAttempt kind = self->kept                    ? ECFS_ATTEMPT_SETTLE
                       : ecfs_staged_is_clean (self) ? ECFS_ATTEMPT_BACKFILL
                                                     : ECFS_ATTEMPT_COMMIT;
    bool paced = self->turn == ECFS_TURN_COMMIT || self->turn == ECFS_TURN_FILL;
    leave_locked (table, self);
    table->n_attempts++;
    self->attempt_paced = paced;
    ecfs_staged_start_attempt_locked (table, self, kind);
    if (paced)
        pace_of (table, self)->n_running++;
    count_busy_locked (table, self);
}

void ecfs_staged_dispatch_locked (EcfsStagedTable *table)
{
    int64_t now_us = ecfs_now_us ();
    for (EcfsTurn turn = ECFS_TURN_FLUSH; turn < ECFS_TURN_LATER; turn++) {
        EcfsStaged *self;
        while (!table->stopped && (self = first_locked (table, turn)) != NULL && may_start_locked (table, turn, now_us))
            start_locked (table, self);
    }
}

bool ecfs_staged_note_published_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    if (self->attempt_paced)
        table->commit_pace.n_running--;
    self->attempt_paced = false;
    table->commit_pace.n_failures = 0;
    self->trailing = table->n_trailing < N_TRAILING;
    table->n_trailing += self->trailing;
    return self->trailing;
}

void ecfs_staged_note_end_locked (EcfsStagedTable *table, EcfsStaged *self, bool streamed, EcfsVerdict verdict)
{
    EcfsRetryPace *pace = pace_of (table, self);
    table->n_attempts -= !streamed;
    table->n_trailing -= self->trailing;
    self->trailing = false;
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

/* Somebody has it open and never flushed what is in it: nobody knows whether that is all. */
static bool is_half_written_locked (EcfsStagedTable *table, const EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    return self->n_writers > 0 && self->row_state == ECFS_STAGING_OPEN && !ecfs_staged_is_clean (self) &&
           self->flushes.length == 0 && self->durables.length == 0 && !self->durable_running;
}

void ecfs_staged_line_up_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    uint64_t key = 0;
    EcfsTurn turn = ECFS_TURN_NONE;
    if (table->stopping && is_half_written_locked (table, self))
        self->gave_up = true;
    else if (table->stopping)
        self->n_writers = 0; /* what they write from now on is not taken any more */
    if (!table->stopped && self->in_table && !self->opening) {
        if (!g_queue_is_empty (&self->durables) && !self->durable_running && !self->publishing)
            ecfs_staged_start_durable_locked (table, self);
        turn = next_turn_locked (table, self, &key);
    }
    if (self->attempt == ECFS_ATTEMPT_STREAM && (self->unlinked || self->gave_up))
        ecfs_staged_stream_abandon_locked (table, self);
    else if (self->attempt == ECFS_ATTEMPT_STREAM && turn != ECFS_TURN_NONE)
        ecfs_staged_stream_finish_locked (table, self);
    bool ends = table->stopping && !table->filling;
    if (self->trailing && (self->unlinked || ends || !ecfs_staged_is_clean (self)))
        atomic_store (&self->cut_short, true);
    if (self->attempt != ECFS_ATTEMPT_NONE)
        turn = ECFS_TURN_NONE;
    enter_locked (table, self, turn, key);
    count_busy_locked (table, self);
}

void ecfs_staged_step_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    ecfs_staged_line_up_locked (table, self);
    ecfs_staged_dispatch_locked (table);
}

void ecfs_staged_forget_turn_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    leave_locked (table, self);
    g_hash_table_remove (table->flushing, self);
    count_busy_locked (table, self);
}

/* The timer */

void ecfs_staged_schedule_locked (EcfsStagedTable *table, int64_t at_us)
{
    if (at_us >= table->wake_us)
        return;
    table->wake_us = at_us;
    ecfs_cond_signal (&table->timer_wake);
}

/* Whether it is down or takes nothing. */
static bool is_out (const EcfsArchiveEndpoint *endpoint)
{
    EcfsEndpointHealth health = {.down = true};
    if (endpoint->endpoint != NULL)
        ecfs_endpoint_health (endpoint->endpoint, &health);
    bool out = health.down || health.refuses || health.full;
    ecfs_endpoint_health_clear (&health);
    return out;
}

/* Whether an endpoint takes stripes that did not when this was last asked. */
static bool came_back_locked (EcfsStagedTable *table) ECFS_REQUIRES (table->lock)
{
    bool came_back = false;
    size_t n = ecfs_archive_n_endpoints (table->archive);
    for (size_t i = 0; i < n; i++) {
        uint8_t out = is_out (ecfs_archive_endpoint (table->archive, i));
        bool known = i < table->was_out->len;
        came_back = came_back || (known && table->was_out->data[i] && !out);
        if (known)
            table->was_out->data[i] = out;
        else
            g_byte_array_append (table->was_out, &out, 1);
    }
    return came_back;
}

/* Files whose time has come, or with @all every one, go back to their queues. */
static void bring_forward_locked (EcfsStagedTable *table, bool all, int64_t now_us) ECFS_REQUIRES (table->lock)
{
    EcfsStaged *self;
    while ((self = first_locked (table, ECFS_TURN_LATER)) != NULL && (all || self->retry_us <= now_us)) {
        self->retry_us = 0;
        ecfs_staged_line_up_locked (table, self);
    }
}

static int64_t next_pause_end_locked (EcfsStagedTable *table, int64_t now_us) ECFS_REQUIRES (table->lock)
{
    int64_t next_us = INT64_MAX;
    const EcfsRetryPace *paces[] = {&table->commit_pace, &table->fill_pace};
    for (size_t i = 0; i < G_N_ELEMENTS (paces); i++)
        if (paces[i]->n_failures >= ECFS_STAGED_PATIENCE && paces[i]->not_before_us > now_us)
            next_us = MIN (next_us, paces[i]->not_before_us);
    return next_us;
}

/* Does what time brings; returns when to look again. */
static int64_t look_locked (EcfsStagedTable *table, GQueue *answers) ECFS_REQUIRES (table->lock)
{
    int64_t now_us = ecfs_now_us ();
    bool failing = first_locked (table, ECFS_TURN_LATER) != NULL ||
                   table->commit_pace.n_failures >= ECFS_STAGED_PATIENCE ||
                   table->fill_pace.n_failures >= ECFS_STAGED_PATIENCE;
    bool came_back = failing && came_back_locked (table);
    if (came_back)
        table->commit_pace.n_failures = table->fill_pace.n_failures = 0;
    bring_forward_locked (table, came_back, now_us);
    int64_t next_us = MIN (ecfs_staged_expire_flushes_locked (table, now_us), now_us + IDLE_US);
    next_us = MIN (next_us, ecfs_staged_resume_locked (table, now_us, answers));
    next_us = MIN (next_us, ecfs_staged_stream_expire_locked (table, now_us));
    ecfs_staged_dispatch_locked (table);
    EcfsStaged *later = first_locked (table, ECFS_TURN_LATER);
    next_us = MIN (next_us, next_pause_end_locked (table, now_us));
    if (later != NULL)
        next_us = MIN (next_us, later->retry_us);
    return failing ? MIN (next_us, now_us + LOOK_US) : next_us;
}

void *ecfs_staged_timer (void *data)
{
    EcfsStagedTable *table = data;
    ecfs_mutex_lock (&table->lock);
    while (!table->stopped) {
        if (ecfs_now_us () < table->wake_us) {
            (void) ecfs_cond_wait_until (&table->timer_wake, &table->lock, table->wake_us);
            continue;
        }
        GQueue answers = G_QUEUE_INIT;
        table->wake_us = INT64_MAX; /* looking may set it */
        ecfs_staged_schedule_locked (table, look_locked (table, &answers));
        if (g_queue_is_empty (&answers))
            continue;
        ecfs_mutex_unlock (&table->lock);
        ecfs_answer_all (&answers);
        ecfs_mutex_lock (&table->lock);
    }
    ecfs_mutex_unlock (&table->lock);
    return NULL;
}
