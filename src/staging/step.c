/*
 * The step of the state machine: finds out what is due of a file, and begins it or queues it until it is its turn
 * (turns.c).
 *
 * What it begins ends in promise.c, attempt.c, stream.c or leave.c, and each end is an event that calls it again.
 */
#include "archive/common.h"
#include "staging/staged_priv.h"

#include <assert.h>

/* What a step begins. */
typedef struct Due {
    bool durable;  /* is made durable */
    bool leave;    /* leaves staging */
    bool behind;   /* waits behind, by the order in which files came to */
    EcfsTurn turn; /* for an attempt; NONE: none is due */
} Due;

/* What is due: a look, nothing changes */

bool ecfs_staged_may_leave_locked (EcfsStagedTable *table, const EcfsStaged *self)
{
    if (self->phase != ECFS_PHASE_IDLE || self->durability == ECFS_DURABILITY_RUNNING || self->n_writers > 0 ||
        self->n_changing > 0)
        return false;
    return self->unlinked ? self->dropped : ecfs_staged_is_clean (self) && self->full;
}

static EcfsTurn later_or_locked (EcfsStagedTable *table, const EcfsStaged *self, EcfsTurn turn)
    ECFS_REQUIRES (table->lock)
{
    if (self->waits != NULL)
        return ECFS_TURN_WAITED;
    return self->retry_us > ecfs_now_us () ? ECFS_TURN_LATER : turn;
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

/* Beginning it */

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
    assert (table->n_trailing <= table->n_attempts + table->streaming.length);
}

/* Its turn has come. */
static void start_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    EcfsPhase phase = self->kept                    ? ECFS_PHASE_SETTLING
                      : ecfs_staged_is_clean (self) ? ECFS_PHASE_FILLING
                                                    : ECFS_PHASE_COMMITTING;
    ecfs_staged_take_turn_locked (table, self, phase);
    ecfs_staged_start_attempt_locked (table, self);
    ecfs_staged_count_busy_locked (table, self);
}

void ecfs_staged_dispatch_locked (EcfsStagedTable *table)
{
    EcfsStaged *self;
    while (!table->stopped && (self = ecfs_staged_next_turn_locked (table)) != NULL)
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
    ecfs_staged_enter_turn_locked (table, self, self->phase == ECFS_PHASE_IDLE ? due->turn : ECFS_TURN_NONE);
    ecfs_staged_count_busy_locked (table, self);
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
