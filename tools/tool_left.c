/* What a mount has still to store, told by whoever waits for it. */
#include "tool.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define LOOK_US  (G_USEC_PER_SEC / 5)
#define COUNT_US G_USEC_PER_SEC

struct ToolLeft {
    char *directory; /* immutable, as the next */
    const char *when_interrupted;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool ended;            /* guarded by lock */
    ToolProgress progress; /* the thread's, until it is joined; the same with what follows */
    int64_t counted_us;
    uint64_t n_left, n_stored;
};

/* Beside the mount, which is busy. Where it cannot be told, nothing is. */
static void count (ToolLeft *self)
{
    int64_t now_us = g_get_monotonic_time ();
    if (now_us - self->counted_us < COUNT_US)
        return;
    self->counted_us = now_us;
    g_autofree char *text = ecfs_backlog (self->directory, NULL);
    if (text == NULL)
        return;
    g_autoptr (JsonObject) backlog = tool_json_object (text);
    uint64_t n_staged = (uint64_t) tool_number (backlog, "staged");
    uint64_t n_changes = (uint64_t) tool_number (backlog, "changes_behind");
    if (self->n_left > n_staged)
        self->n_stored += self->n_left - n_staged;
    self->n_left = n_staged;
    const ToolStep files = {
        .phase = "storing", .things = "files", .n_done = self->n_stored, .n_all = self->n_stored + n_staged};
    const ToolStep journal = {.phase = "changes of names left to store", .n_done = n_changes};
    tool_progress_tell (&self->progress, n_staged == 0 && n_changes > 0 ? &journal : &files);
}

/* Nothing is to be wound up here: who waits only watches what another process does. */
static void leave (ToolLeft *self)
{
    tool_progress_end (&self->progress);
    tool_say (self->progress.verb, "interrupted; %s", self->when_interrupted);
    (void) signal (tool_interrupting_signal (), SIG_DFL);
    (void) kill (getpid (), tool_interrupting_signal ()); /* who called sees which it was */
}

static void *watch (void *data)
{
    ToolLeft *self = data;
    struct timespec next;
    bool gone = false;
    (void) pthread_mutex_lock (&self->lock);
    while (!self->ended) {
        (void) clock_gettime (CLOCK_REALTIME, &next); /* cannot fail with this clock */
        next.tv_nsec += (long) LOOK_US * 1000;
        next.tv_sec += next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        while (!self->ended && pthread_cond_timedwait (&self->wake, &self->lock, &next) == 0)
            ;
        if (self->ended)
            break;
        (void) pthread_mutex_unlock (&self->lock);
        if (tool_is_interrupted () && !gone)
            leave (self);
        gone = gone || tool_is_interrupted ();
        count (self);
        (void) pthread_mutex_lock (&self->lock);
    }
    (void) pthread_mutex_unlock (&self->lock);
    return NULL;
}

ToolLeft *tool_left_begin (const char *verb, const char *directory, const char *when_interrupted)
{
    ToolProgress progress;
    tool_progress_begin (&progress, verb, false);
    if (directory == NULL || !tool_progress_is_shown (&progress))
        return NULL;
    ToolLeft *self = g_new (ToolLeft, 1);
    *self = (ToolLeft){.directory = g_strdup (directory),
                       .when_interrupted = when_interrupted,
                       .lock = PTHREAD_MUTEX_INITIALIZER,
                       .wake = PTHREAD_COND_INITIALIZER,
                       .progress = progress,
                       .counted_us = g_get_monotonic_time ()};
    tool_catch_interrupts ();
    if (pthread_create (&self->thread, NULL, watch, self) == 0)
        return self;
    (void) signal (SIGINT, SIG_DFL); /* there is no telling then */
    (void) signal (SIGTERM, SIG_DFL);
    g_free (self->directory);
    g_free (self);
    return NULL;
}

void tool_left_end (ToolLeft *self)
{
    if (self == NULL)
        return;
    (void) pthread_mutex_lock (&self->lock);
    self->ended = true;
    (void) pthread_cond_signal (&self->wake);
    (void) pthread_mutex_unlock (&self->lock);
    (void) pthread_join (self->thread, NULL);
    tool_progress_end (&self->progress);
    g_free (self->directory);
    g_free (self);
}
