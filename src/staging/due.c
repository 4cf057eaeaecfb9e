/* What is due next of a staged file. Looks, and changes nothing: step.c begins it. */
#include "archive/common.h"
#include "staging/staged_priv.h"

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
static void look_behind_locked (EcfsStagedTable *table, const EcfsStaged *self, EcfsDue *due)
    ECFS_REQUIRES (table->lock)
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

EcfsDue ecfs_staged_due_locked (EcfsStagedTable *table, const EcfsStaged *self)
{
    EcfsDue due = {.turn = ECFS_TURN_NONE};
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
