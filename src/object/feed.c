#include "object/feed.h"

#include "util/lock.h"

#include <glib.h>
#include <stdatomic.h>

struct EcfsFeed {
    atomic_uint references;
    EcfsMutex watching;           /* outer to the locks of the watcher, and these to `lock` */
    void (*changed) (void *user); /* guarded by watching, as the next */
    void *user;
    EcfsMutex lock;
    EcfsCond moved;
    EcfsFeedState state; /* guarded by lock, as the next */
    uint64_t awaited;    /* the watcher asked for the bytes before that; 0: for none */
};

EcfsFeed *ecfs_feed_new (void)
{
    EcfsFeed *self = g_new0 (EcfsFeed, 1);
    atomic_init (&self->references, 1);
    ecfs_mutex_init (&self->watching);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->moved);
    return self;
}

EcfsFeed *ecfs_feed_ref (EcfsFeed *self)
{
    atomic_fetch_add (&self->references, 1);
    return self;
}

void ecfs_feed_unref (EcfsFeed *self)
{
    if (self == NULL || atomic_fetch_sub (&self->references, 1) > 1)
        return;
    ecfs_cond_clear (&self->moved);
    ecfs_mutex_clear (&self->lock);
    ecfs_mutex_clear (&self->watching);
    g_free (self);
}

static void tell (EcfsFeed *self)
{
    ecfs_mutex_lock (&self->watching);
    if (self->changed != NULL)
        self->changed (self->user);
    ecfs_mutex_unlock (&self->watching);
}

bool ecfs_feed_hold (EcfsFeed *self, uint64_t offset)
{
    ecfs_mutex_lock (&self->lock);
    bool untaken = offset >= self->state.taken;
    if (untaken && !self->state.final)
        self->state.available = MIN (self->state.available, offset);
    ecfs_mutex_unlock (&self->lock);
    if (!untaken)
        ecfs_feed_abandon (self);
    return untaken;
}

void ecfs_feed_grow (EcfsFeed *self, uint64_t available)
{
    ecfs_mutex_lock (&self->lock);
    if (!self->state.final)
        self->state.available = MAX (available, self->state.taken);
    bool asked = self->awaited != 0 && self->state.available >= self->awaited;
    if (asked)
        self->awaited = 0;
    ecfs_cond_broadcast (&self->moved);
    ecfs_mutex_unlock (&self->lock);
    if (asked)
        tell (self);
}

void ecfs_feed_finish (EcfsFeed *self, uint64_t size)
{
    ecfs_mutex_lock (&self->lock);
    self->state.available = size;
    self->state.final = true;
    ecfs_cond_broadcast (&self->moved);
    ecfs_mutex_unlock (&self->lock);
    tell (self);
}

void ecfs_feed_abandon (EcfsFeed *self)
{
    ecfs_mutex_lock (&self->lock);
    self->state.abandoned = true;
    ecfs_cond_broadcast (&self->moved);
    ecfs_mutex_unlock (&self->lock);
    tell (self);
}

void ecfs_feed_look (EcfsFeed *self, EcfsFeedState *ret_state)
{
    ecfs_mutex_lock (&self->lock);
    *ret_state = self->state;
    ecfs_mutex_unlock (&self->lock);
}

bool ecfs_feed_take (EcfsFeed *self, uint64_t end)
{
    ecfs_mutex_lock (&self->lock);
    bool there = self->state.available >= end;
    if (there)
        self->state.taken = MAX (self->state.taken, end);
    else
        self->awaited = end;
    ecfs_mutex_unlock (&self->lock);
    return there;
}

void ecfs_feed_watch (EcfsFeed *self, void (*changed) (void *user), void *user)
{
    ecfs_mutex_lock (&self->watching);
    self->changed = changed;
    self->user = user;
    ecfs_mutex_unlock (&self->watching);
}

void ecfs_feed_wait (EcfsFeed *self, uint64_t available, int64_t deadline_us)
{
    ecfs_mutex_lock (&self->lock);
    while (self->state.available < available && !self->state.final && !self->state.abandoned)
        if (!ecfs_cond_wait_until (&self->moved, &self->lock, deadline_us))
            break;
    ecfs_mutex_unlock (&self->lock);
}
