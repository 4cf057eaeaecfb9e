/*
 * The step of the state machine: finds out what is due of a file, and begins it or queues it until it is its turn.
 *
 * What it begins ends in promise.c, attempt.c, stream.c or leave.c, and each end is an event that calls it again.
 *
 * Whose turn it is: a file for which somebody waits comes first; behind that, files that wait to be committed, oldest
 * first, and then those that lack stripes. Few attempts run at a time, so that a hundred thousand files that wait cost
 * a place in a queue each and nothing more. When attempts of several files in a row fail, the reason is taken to be
 * common to all: from then on one at a time tries, with growing pauses, until one succeeds or an endpoint comes back.
 */
#include "archive/common.h"
#include "staging/staged_priv.h"

#include <assert.h>

#define N_ATTEMPTS     16  /* at once, as many as commit threads */
#define N_BEHIND       12  /* of these for what nobody waits for */
#define N_JOINED       512 /* beside these: each has its file open, and no thread */
#define N_FILLS        4
#define N_TRAILING     4 /* that go on behind closes which were answered at the quorum */
#define PAUSE_FIRST_US G_USEC_PER_SEC
#define PAUSE_MAX_US   ((int64_t) 60 * G_USEC_PER_SEC)

/* What a step begins. */
typedef struct Due {
    bool durable;  /* is made durable */
    bool leave;    /* leaves staging */
    bool behind;   /* waits behind, by the order in which files came to */
    EcfsTurn turn; /* for an attempt; NONE: none is due */
} Due;

/* What is due: a look, nothing changes */

bool ecfs_staged_is_cared_for_locked (const EcfsStagedTable *table, const EcfsStaged *self)
{
    return self->full || ecfs_catalog_is_shared (ecfs_archive_catalog (table->archive));
}

bool ecfs_staged_may_leave_locked (EcfsStagedTable *table, const EcfsStaged *self)
{
    if (self->phase != ECFS_PHASE_IDLE || self->durability == ECFS_DURABILITY_RUNNING || self->n_writers > 0 ||
        self->n_changing > 0)
        return false;
    return self->unlinked ? self->dropped
                          : ecfs_staged_is_clean (self) && ecfs_staged_is_cared_for_locked (table, self);
}

static EcfsTurn later_or_locked (EcfsStagedTable *table, const EcfsStaged *self, EcfsTurn turn)
    ECFS_REQUIRES (table->lock)
{
    const bool is_later = self->retry_us > ecfs_now_us ();
    if (self->waits != NULL && !(self->comes_packed && is_later))
        return ECFS_TURN_WAITED;
    return is_later ? ECFS_TURN_LATER : turn;
}

/* For a file that nobody flushes just now. */
static void look_behind_locked (EcfsStagedTable *table, const EcfsStaged *self, Due *due) ECFS_REQUIRES (table->lock)
{
    bool clean = ecfs_staged_is_clean (self);
    /* What is set aside was flushed, and what takes its place was not. */
    bool wanted = self->n_writers == 0 || (self->waits != NULL && self->aside_row == 0);
    if (!wanted || self->unlinked || (table->stopping && (self->gave_up || (clean && !table->filling))))
        return;
    if (clean && (self->row_state != ECFS_STAGING_STORED || self->full))
        return;
    due->behind = true;
    if (clean)
        due->turn = later_or_locked (table, self, ECFS_TURN_FILL);
    else if (self->durable_generation == self->generation || self->durability == ECFS_DURABILITY_FAILED)
        due->turn = later_or_locked (table, self, ECFS_TURN_COMMIT);
    else
        due->durable = true;
}

/* What is due of a file now. */
static Due due_locked (EcfsStagedTable *table, const EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    Due due = {.turn = ECFS_TURN_NONE};
    bool asked = self->durables.length > 0;
    bool running = self->durability == ECFS_DURABILITY_RUNNING;
    if (table->stopped || self->phase == ECFS_PHASE_ABSENT || self->phase == ECFS_PHASE_OPENING)
        return due;
    due.durable = asked && !running && !ecfs_staged_owns_row_locked (table, self);
    if (due.durable || running || (self->phase != ECFS_PHASE_IDLE && self->phase != ECFS_PHASE_STREAMING))
        return due;
    if (ecfs_staged_may_leave_locked (table, self)) {
        due.leave = true;
    } else if (self->flushes.length > 0 || (asked && self->kept)) {
        due.turn = ECFS_TURN_FLUSH;
    } else if (self->kept) {
        due.behind = !(table->stopping && self->gave_up);
        due.turn = due.behind ? later_or_locked (table, self, ECFS_TURN_COMMIT) : ECFS_TURN_NONE;
    } else {
        look_behind_locked (table, self, &due);
    }
    return due;
}

/* Queues */

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

static void enter_turn_locked (EcfsStagedTable *table, EcfsStaged *self, EcfsTurn turn) ECFS_REQUIRES (table->lock)
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

static void count_busy_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
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
    count_busy_locked (table, self);
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

/* Who may begin an attempt now; NULL: nobody waits, or enough are under way. */
static EcfsStaged *next_turn_locked (EcfsStagedTable *table) ECFS_REQUIRES (table->lock)
{
    int64_t now_us = ecfs_now_us ();
    for (EcfsTurn turn = ECFS_TURN_FLUSH; turn < ECFS_TURN_LATER; turn++) {
        EcfsStaged *first = ecfs_staged_first_locked (table, turn);
        if (first != NULL && may_start_locked (table, turn, now_us))
            return first;
    }
    return NULL;
}

/* It leaves its queue for @phase, an attempt. */
static void take_turn_locked (EcfsStagedTable *table, EcfsStaged *self, EcfsPhase phase) ECFS_REQUIRES (table->lock)
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

void ecfs_staged_note_joined_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    if (table->n_joined >= N_JOINED)
        return;
    self->attempt_joined = true;
    table->n_joined++;
    table->n_attempts--;
    ecfs_staged_dispatch_locked (table);
}

void ecfs_staged_note_end_locked (EcfsStagedTable *table, EcfsStaged *self, bool streamed, EcfsVerdict verdict)
{
    EcfsRetryPace *pace = pace_of (table, self);
    table->n_attempts -= !streamed && !self->attempt_joined;
    table->n_joined -= self->attempt_joined;
    self->attempt_joined = false;
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

/* Beginning what is due */

/* Holds whenever table->lock is free, and is asserted in debug builds at each step. */
static void check_invariants_locked (EcfsStagedTable *table, const EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    if (self->phase == ECFS_PHASE_OPENING) /* who copies it up holds no lock yet */
        return;
    assert (self->committed_generation <= self->generation && self->durable_generation <= self->generation);
    assert (self->promised_generation <= self->generation && self->attempt_generation <= self->generation);
    assert (self->charged_bytes <= self->size);
    /* What was written while its row went, and could not get another, is STORED without one. */
    assert (self->row != 0 || self->row_state == ECFS_ROW_NONE || self->row_state == ECFS_STAGING_STORED);
    assert (self->row == 0 || self->row_state != ECFS_ROW_NONE);
    assert ((self->aside_row == 0) == (self->aside_name == NULL));
    assert ((self->turn == ECFS_TURN_NONE) == (self->place == NULL));
    assert (self->turn == ECFS_TURN_NONE || self->phase == ECFS_PHASE_IDLE);
    assert (self->phase != ECFS_PHASE_STREAMING || self->feed != NULL);
    assert (!self->kept || self->phase == ECFS_PHASE_IDLE || self->phase == ECFS_PHASE_SETTLING ||
            self->phase == ECFS_PHASE_LEAVING || self->phase == ECFS_PHASE_ABSENT);
    assert (!self->dropped || self->unlinked);
    assert (table->n_trailing <= table->n_attempts + table->n_joined + table->streaming.length);
}

/* Its turn has come. */
static void start_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    EcfsPhase phase = self->kept                    ? ECFS_PHASE_SETTLING
                      : ecfs_staged_is_clean (self) ? ECFS_PHASE_FILLING
                                                    : ECFS_PHASE_COMMITTING;
    take_turn_locked (table, self, phase);
    ecfs_staged_start_attempt_locked (table, self);
    count_busy_locked (table, self);
}

void ecfs_staged_dispatch_locked (EcfsStagedTable *table)
{
    EcfsStaged *self;
    while (!table->stopped && (self = next_turn_locked (table)) != NULL)
        start_locked (table, self);
}

/* Somebody has it open and never flushed what is in it: nobody knows whether that is all. */
static bool is_half_written_locked (EcfsStagedTable *table, const EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    return self->n_writers > 0 && self->row_state == ECFS_STAGING_OPEN && !ecfs_staged_is_clean (self) &&
           self->flushes.length == 0 && self->durables.length == 0 && self->durability != ECFS_DURABILITY_RUNNING;
}

/* The mount ends: what writers write from now on is not taken any more. */
static void part_from_writers_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    if (is_half_written_locked (table, self))
        self->gave_up = true;
    else
        self->n_writers = 0;
}

static void begin_locked (EcfsStagedTable *table, EcfsStaged *self, const Due *due) ECFS_REQUIRES (table->lock)
{
    if (due->behind && self->order == 0)
        self->order = ++table->last_order;
    if (due->durable)
        ecfs_staged_start_durable_locked (table, self);
    if (due->leave)
        ecfs_staged_start_leaving_locked (table, self);
    if (self->phase == ECFS_PHASE_STREAMING && (self->unlinked || self->gave_up))
        ecfs_staged_stream_abandon_locked (table, self);
    else if (self->phase == ECFS_PHASE_STREAMING && due->turn != ECFS_TURN_NONE)
        ecfs_staged_stream_finish_locked (table, self);
    bool ends = table->stopping && !table->filling;
    if (self->phase == ECFS_PHASE_TRAILING && (self->unlinked || ends || !ecfs_staged_is_clean (self)))
        atomic_store (&self->cut_short, true);
    enter_turn_locked (table, self, self->phase == ECFS_PHASE_IDLE ? due->turn : ECFS_TURN_NONE);
    count_busy_locked (table, self);
}

void ecfs_staged_line_up_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    check_invariants_locked (table, self);
    if (table->stopping)
        part_from_writers_locked (table, self);
    const Due due = due_locked (table, self);
    begin_locked (table, self, &due);
    check_invariants_locked (table, self);
}

void ecfs_staged_step_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    ecfs_staged_line_up_locked (table, self);
    ecfs_staged_dispatch_locked (table);
}
