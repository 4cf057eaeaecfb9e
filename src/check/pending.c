/* Waiting for what endpoints answer about a batch. */
#include "check/check.h"

#define TICK_US 200000

void ecfs_pending_init (EcfsPending *self)
{
    *self = (EcfsPending){.n_pending = 0};
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->answered);
}

void ecfs_pending_clear (EcfsPending *self)
{
    ecfs_cond_clear (&self->answered);
    ecfs_mutex_clear (&self->lock);
}

void ecfs_pending_expect (EcfsPending *self, unsigned n)
{
    ecfs_mutex_lock (&self->lock);
    self->n_pending += n;
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_pending_note_locked (EcfsPending *self)
{
    self->n_pending--;
    ecfs_cond_signal (&self->answered);
}

bool ecfs_pending_await (EcfsPending *self, const EcfsCheckBatch *batch)
{
    bool go_on = true;
    ecfs_mutex_lock (&self->lock);
    while (self->n_pending > 0) {
        if (ecfs_cond_wait_until (&self->answered, &self->lock, ecfs_now_us () + TICK_US))
            continue;
        ecfs_mutex_unlock (&self->lock);
        go_on = batch->tick (batch->user) && go_on;
        ecfs_mutex_lock (&self->lock);
    }
    ecfs_mutex_unlock (&self->lock);
    return go_on;
}
