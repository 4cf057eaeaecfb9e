/*
 * The circuit breaker: what is asked of an endpoint that failed.
 *
 *   state  in the literature  meaning                                     leaves by
 *   UP     closed             everything is asked of it                   fail → DOWN
 *   DOWN   open               nothing is, but for probes, with back-off   pass → UP, or TRIAL if it failed at work
 *   TRIAL  half-open          one request at a time, until it has proven  prove → UP; fail → DOWN, with the back-off
 *                             itself by work                              that follows its last one
 *
 * One that fails at work again soon after it was let in goes on with its back-off where it was: it may well answer
 * probes, and fall over as soon as there is work. One that was away for another reason, or worked for STEADY_US, begins
 * anew.
 */
#include "endpoint/core/core.h"

#define STEADY_US    (60 * G_USEC_PER_SEC)
#define TRIAL_CREDIT 16
#define LOSSES_MAX   3 /* connections in a row that end in the middle of work */

void ecfs_breaker_fail (EcfsBreaker *self, bool at_work, int64_t now_us)
{
    bool relapse = self->state == BREAKER_TRIAL || (self->backoff_us > 0 && now_us - self->up_us < STEADY_US);
    if (self->state == BREAKER_DOWN || (at_work && relapse))
        self->backoff_us = CLAMP (2 * self->backoff_us, BACKOFF_MIN_US, BACKOFF_MAX_US);
    else
        self->backoff_us = BACKOFF_MIN_US;
    if (self->state != BREAKER_DOWN) {
        self->down_since_us = now_us;
        self->at_work = at_work || self->state == BREAKER_TRIAL;
    }
    self->state = BREAKER_DOWN;
    self->n_losses = 0;
    self->next_probe_us = now_us + self->backoff_us;
}

void ecfs_breaker_pass (EcfsBreaker *self, int64_t now_us)
{
    if (self->state != BREAKER_DOWN)
        return;
    self->state = self->at_work ? BREAKER_TRIAL : BREAKER_UP;
    self->credit = 0;
    self->up_us = now_us;
}

bool ecfs_breaker_prove (EcfsBreaker *self, unsigned credit, int64_t now_us)
{
    self->n_losses = 0;
    if (self->state != BREAKER_TRIAL)
        return false;
    self->credit += credit;
    if (self->credit < TRIAL_CREDIT)
        return false;
    self->state = BREAKER_UP;
    self->up_us = now_us;
    return true;
}

bool ecfs_breaker_lose (EcfsBreaker *self)
{
    return ++self->n_losses >= LOSSES_MAX;
}
