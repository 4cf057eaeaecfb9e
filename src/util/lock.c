#include "util/lock.h"

#include <errno.h>
#include <glib.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define WAKES_WITHIN_US 5000

static _Atomic int64_t missed_us;
static _Atomic int64_t seen_us; /* what was missed until then is counted */

/* A failing pthread call here is a bug of ours (or no memory at start); nothing sensible can continue. */
static void must (int result, const char *what)
{
    if (G_UNLIKELY (result != 0))
        g_error ("%s: %s", what, g_strerror (result));
}

void ecfs_mutex_init (EcfsMutex *self)
{
    must (pthread_mutex_init (&self->impl, NULL), "pthread_mutex_init");
}

void ecfs_mutex_clear (EcfsMutex *self)
{
    must (pthread_mutex_destroy (&self->impl), "pthread_mutex_destroy");
}

void ecfs_mutex_lock (EcfsMutex *self) ECFS_TSA (no_thread_safety_analysis)
{
    must (pthread_mutex_lock (&self->impl), "pthread_mutex_lock");
}

void ecfs_mutex_unlock (EcfsMutex *self) ECFS_TSA (no_thread_safety_analysis)
{
    must (pthread_mutex_unlock (&self->impl), "pthread_mutex_unlock");
}

bool ecfs_mutex_try_lock (EcfsMutex *self) ECFS_TSA (no_thread_safety_analysis)
{
    int result = pthread_mutex_trylock (&self->impl);
    if (result != EBUSY)
        must (result, "pthread_mutex_trylock");
    return result == 0;
}

void ecfs_cond_init (EcfsCond *self)
{
    pthread_condattr_t attr;
    must (pthread_condattr_init (&attr), "pthread_condattr_init");
    must (pthread_condattr_setclock (&attr, CLOCK_MONOTONIC), "pthread_condattr_setclock");
    must (pthread_cond_init (&self->impl, &attr), "pthread_cond_init");
    must (pthread_condattr_destroy (&attr), "pthread_condattr_destroy");
}

void ecfs_cond_clear (EcfsCond *self)
{
    must (pthread_cond_destroy (&self->impl), "pthread_cond_destroy");
}

void ecfs_cond_signal (EcfsCond *self)
{
    must (pthread_cond_signal (&self->impl), "pthread_cond_signal");
}

void ecfs_cond_broadcast (EcfsCond *self)
{
    must (pthread_cond_broadcast (&self->impl), "pthread_cond_broadcast");
}

bool ecfs_cond_wait_until (EcfsCond *self, EcfsMutex *mutex, int64_t deadline_us)
{
    if (deadline_us < 0)
        deadline_us = 0;
    struct timespec at = {.tv_sec = deadline_us / 1000000, .tv_nsec = (deadline_us % 1000000) * 1000};
    int result = pthread_cond_timedwait (&self->impl, &mutex->impl, &at);
    if (result == ETIMEDOUT)
        return false;
    must (result, "pthread_cond_timedwait");
    return true;
}

int64_t ecfs_now_us (void)
{
    struct timespec now;
    must (clock_gettime (CLOCK_MONOTONIC, &now) == 0 ? 0 : errno, "clock_gettime");
    return (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t ecfs_own_us (void)
{
    return ecfs_now_us () - atomic_load (&missed_us);
}

void ecfs_missed (int64_t due_us, int64_t now_us)
{
    int64_t counted_us = atomic_exchange (&seen_us, now_us), from_us = MAX (due_us, counted_us);
    if (now_us - from_us > WAKES_WITHIN_US)
        atomic_fetch_add (&missed_us, now_us - from_us);
}

typedef struct Job {
    void (*run) (void *data);
    void *data;
} Job;

struct EcfsWorkers {
    EcfsMutex lock;
    EcfsCond more;      /* guarded by lock */
    GQueue jobs;        /* of Job; guarded by lock */
    bool stopping;      /* guarded by lock */
    unsigned n_busy;    /* threads inside a job; guarded by lock */
    unsigned n_threads; /* immutable after new */
    pthread_t threads[];
};

static Job *take_job (EcfsWorkers *self)
{
    ecfs_mutex_lock (&self->lock);
    while (g_queue_is_empty (&self->jobs) && !(self->stopping && self->n_busy == 0))
        (void) ecfs_cond_wait_until (&self->more, &self->lock, ecfs_now_us () + 60 * G_USEC_PER_SEC);
    Job *job = g_queue_pop_head (&self->jobs);
    if (job != NULL)
        self->n_busy++;
    ecfs_mutex_unlock (&self->lock);
    return job;
}

static void *work (void *data)
{
    EcfsWorkers *self = data;
    Job *job;
    while ((job = take_job (self)) != NULL) {
        job->run (job->data);
        g_free (job);
        ecfs_mutex_lock (&self->lock);
        self->n_busy--;
        if (self->stopping)
            ecfs_cond_broadcast (&self->more);
        ecfs_mutex_unlock (&self->lock);
    }
    return NULL;
}

EcfsWorkers *ecfs_workers_new (const char *name, unsigned n_threads)
{
    EcfsWorkers *self = g_malloc0 (sizeof *self + n_threads * sizeof self->threads[0]);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->more);
    g_queue_init (&self->jobs);
    self->n_threads = n_threads;
    for (unsigned i = 0; i < n_threads; i++) {
        must (pthread_create (&self->threads[i], NULL, work, self), "pthread_create");
        (void) pthread_setname_np (self->threads[i], name); /* opens a file, of which there may be none left */
    }
    return self;
}

void ecfs_workers_push (EcfsWorkers *self, void (*run) (void *data), void *data)
{
    Job *job = g_new (Job, 1);
    *job = (Job){.run = run, .data = data};
    ecfs_mutex_lock (&self->lock);
    g_queue_push_tail (&self->jobs, job);
    ecfs_cond_signal (&self->more);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_workers_free (EcfsWorkers *self)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    self->stopping = true;
    ecfs_cond_broadcast (&self->more);
    ecfs_mutex_unlock (&self->lock);
    for (unsigned i = 0; i < self->n_threads; i++)
        must (pthread_join (self->threads[i], NULL), "pthread_join");
    ecfs_cond_clear (&self->more);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}
