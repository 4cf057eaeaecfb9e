#include "archive/ended.h"

void ecfs_ended_init (EcfsEnded *self)
{
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->moved);
    g_queue_init (&self->queue);
}

void ecfs_ended_clear (EcfsEnded *self)
{
    ecfs_cond_clear (&self->moved);
    ecfs_mutex_clear (&self->lock);
}

void ecfs_ended_push (EcfsEnded *self, void *what)
{
    ecfs_mutex_lock (&self->lock);
    g_queue_push_tail (&self->queue, what);
    ecfs_cond_signal (&self->moved);
    ecfs_mutex_unlock (&self->lock);
}

GQueue ecfs_ended_take (EcfsEnded *self, int64_t patience_us)
{
    int64_t deadline_us = ecfs_now_us () + patience_us;
    ecfs_mutex_lock (&self->lock);
    while (g_queue_is_empty (&self->queue) && ecfs_cond_wait_until (&self->moved, &self->lock, deadline_us))
        ;
    GQueue taken = self->queue;
    g_queue_init (&self->queue);
    ecfs_mutex_unlock (&self->lock);
    return taken;
}
