/*
 * Content that is still being written: how many of its bytes are there, from its beginning on, and whether these are
 * all. One side writes (hold, grow, finish, abandon), the other reads along behind (take, watch). What was taken may
 * not change any more; a change there abandons the feed, and what was made of it is worth nothing.
 *
 *   0 ── taken ── available ── where the writing side is
 *
 * All functions are thread-safe. Those of the writing side may be called with locks held, outer to those of whoever
 * watches.
 */
#ifndef ECFS_OBJECT_FEED_H
#define ECFS_OBJECT_FEED_H

#include <stdbool.h>
#include <stdint.h>

typedef struct EcfsFeed EcfsFeed;

EcfsFeed *ecfs_feed_new (void);
EcfsFeed *ecfs_feed_ref (EcfsFeed *self);
void ecfs_feed_unref (EcfsFeed *self); /* NULL is accepted */

/**
 * Bytes from @offset on are about to change: until the next grow () none of them is given away. False: some were taken
 * already; the feed is abandoned.
 */
bool ecfs_feed_hold (EcfsFeed *self, uint64_t offset);
/** The first @available bytes are there; at least as many as were taken. */
void ecfs_feed_grow (EcfsFeed *self, uint64_t available);
/** The first @size bytes are all. What the writing side does from now on is no concern of the feed. */
void ecfs_feed_finish (EcfsFeed *self, uint64_t size);
void ecfs_feed_abandon (EcfsFeed *self);

typedef struct EcfsFeedState {
    uint64_t available;
    uint64_t taken;
    bool final; /* these bytes are all */
    bool abandoned;
} EcfsFeedState;

void ecfs_feed_look (EcfsFeed *self, EcfsFeedState *ret_state);

/** Takes the bytes before @end. False: they are not there yet, and the watcher is called when they may be. */
bool ecfs_feed_take (EcfsFeed *self, uint64_t end);

/**
 * Has changed (user) called, from any thread, when bytes that were asked for are there and when the feed is final or
 * abandoned. NULL ends that, and returns when it is not being called any more; not from changed () itself.
 */
void ecfs_feed_watch (EcfsFeed *self, void (*changed) (void *user), void *user);

/** Waits until there are @available bytes, or it is final or abandoned, or @deadline_us (monotonic). */
void ecfs_feed_wait (EcfsFeed *self, uint64_t available, int64_t deadline_us);

#endif
