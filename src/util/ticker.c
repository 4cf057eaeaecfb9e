#include "util/ticker.h"

#include "util/lock.h"

#include <glib.h>

struct EcfsTicker {
    EcfsMutex lock;
    EcfsCond wake;
    bool nudged; /* guarded by lock, as the next */
    bool ended;
    int64_t period_us; /* immutable, as the rest */
    void (*tick) (void *user);
    void *user;
    pthread_t thread;
};

static void *run (void *data)
{
    EcfsTicker *self = data;
    ecfs_mutex_lock (&self->lock);
    while (!self->ended) {
        self->nudged = false;
        ecfs_mutex_unlock (&self->lock);
        self->tick (self->user);
        int64_t next_us = ecfs_now_us () + self->period_us;
        ecfs_mutex_lock (&self->lock);
        while (!self->ended && !self->nudged && ecfs_cond_wait_until (&self->wake, &self->lock, next_us))
            ;
    }
    ecfs_mutex_unlock (&self->lock);
    return NULL;
}

EcfsTicker *ecfs_ticker_start (int64_t period_us, void (*tick) (void *user), void *user)
{
    EcfsTicker *self = g_new0 (EcfsTicker, 1);
    self->period_us = period_us;
    self->tick = tick;
    self->user = user;
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->wake);
    int result = pthread_create (&self->thread, NULL, run, self);
    if (result != 0)
        g_error ("cannot start a thread: %s", g_strerror (result));
    return self;
}

static void tell (EcfsTicker *self, bool end)
{
    ecfs_mutex_lock (&self->lock);
    self->nudged = true;
    self->ended = self->ended || end;
    ecfs_cond_broadcast (&self->wake);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_ticker_nudge (EcfsTicker *self)
{
    if (self != NULL)
        tell (self, false);
}

void ecfs_ticker_stop (EcfsTicker *self)
{
    if (self == NULL)
        return;
    tell (self, true);
    (void) pthread_join (self->thread, NULL); /* joinable and ours: it cannot fail */
    ecfs_cond_clear (&self->wake);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}
