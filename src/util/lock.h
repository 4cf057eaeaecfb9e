/*
 * Locks, conditions and worker threads on pthreads. GLib has all of these, but ThreadSanitizer cannot see through
 * GMutex, GAsyncQueue and GThreadPool and reports races that are none.
 *
 * Every wait has a deadline on the monotonic clock, in microseconds as ecfs_now_us () gives it.
 */
#ifndef ECFS_UTIL_LOCK_H
#define ECFS_UTIL_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __clang__
#define ECFS_TSA(x) __attribute__ ((x))
#else
#define ECFS_TSA(x)
#endif
/* Marks a function that must be called with the lock held; clang's -Wthread-safety checks it. */
#define ECFS_REQUIRES(...) ECFS_TSA (requires_capability (__VA_ARGS__))

typedef struct ECFS_TSA (capability ("mutex")) EcfsMutex {
    pthread_mutex_t impl;
} EcfsMutex;

typedef struct EcfsCond {
    pthread_cond_t impl;
} EcfsCond;

void ecfs_mutex_init (EcfsMutex *self);
void ecfs_mutex_clear (EcfsMutex *self);
void ecfs_mutex_lock (EcfsMutex *self) ECFS_TSA (acquire_capability (*self));
void ecfs_mutex_unlock (EcfsMutex *self) ECFS_TSA (release_capability (*self));
/** False, at once, where it is held: by another thread, or by this one. */
bool ecfs_mutex_try_lock (EcfsMutex *self) ECFS_TSA (try_acquire_capability (true, *self));

/** Tells clang's analysis that the lock is held, where it was taken under another name (an alias it cannot see). */
static inline void ecfs_mutex_is_held (EcfsMutex *self) ECFS_TSA (assert_capability (*self))
{
    (void) self;
}

void ecfs_cond_init (EcfsCond *self);
void ecfs_cond_clear (EcfsCond *self);
void ecfs_cond_signal (EcfsCond *self);
void ecfs_cond_broadcast (EcfsCond *self);

/** Waits until signalled or @deadline_us; may wake for no reason. Returns false when the deadline has passed. */
bool ecfs_cond_wait_until (EcfsCond *self, EcfsMutex *mutex, int64_t deadline_us) ECFS_REQUIRES (*mutex);

/** Microseconds on the monotonic clock. */
int64_t ecfs_now_us (void);
/** The same without what ecfs_missed () was told: stands still while this process has no processor, and so tells who is
 * slow from who was only not looked at. Differences count; atomic. */
int64_t ecfs_own_us (void);
/** This process was to be woken at @due_us, and it is now @now_us. For threads that wake often. */
void ecfs_missed (int64_t due_us, int64_t now_us);

/** A fixed number of threads that run jobs in the order in which they were pushed. */
typedef struct EcfsWorkers EcfsWorkers;

/** Starts @n_threads threads named @name (at most 15 bytes). Aborts when the system has no threads left. */
EcfsWorkers *ecfs_workers_new (const char *name, unsigned n_threads);

/** Queues job (data) for any thread; never blocks. Must not be called after ecfs_workers_free () began, except by jobs.
 */
void ecfs_workers_push (EcfsWorkers *self, void (*job) (void *data), void *data);

/** Runs what is queued, jobs that these push included, then ends the threads. NULL is accepted. */
void ecfs_workers_free (EcfsWorkers *self);

#endif
