/* What a mount has still to store, on the terminal of whoever waits for it. */
#include "tool.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

struct ToolLeft {
    char *directory; /* immutable */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool ended; /* guarded by lock */
    bool shown; /* the thread's, until it is joined */
};

/* Beside the mount, which is busy. Where it cannot be told, nothing is. */
static void show (ToolLeft *self)
{
    g_autofree char *text = ecfs_backlog (self->directory, NULL);
    if (text == NULL)
        return;
    g_autoptr (JsonObject) backlog = tool_json_object (text);
    int64_t n_staged = tool_number (backlog, "staged");
    fprintf (stderr, "\r\033[K%" PRIi64 " %s left to store", n_staged, n_staged == 1 ? "file is" : "files are");
    self->shown = true;
}

/* What takes no second shows nothing. */
static void *watch (void *data)
{
    ToolLeft *self = data;
    struct timespec next;
    (void) clock_gettime (CLOCK_REALTIME, &next); /* cannot fail with this clock */
    (void) pthread_mutex_lock (&self->lock);
    while (!self->ended) {
        next.tv_sec++;
        while (!self->ended && pthread_cond_timedwait (&self->wake, &self->lock, &next) == 0)
            ;
        if (self->ended)
            break;
        (void) pthread_mutex_unlock (&self->lock);
        show (self);
        (void) clock_gettime (CLOCK_REALTIME, &next);
        (void) pthread_mutex_lock (&self->lock);
    }
    (void) pthread_mutex_unlock (&self->lock);
    return NULL;
}

ToolLeft *tool_left_begin (const char *directory)
{
    if (directory == NULL || !isatty (STDERR_FILENO))
        return NULL;
    ToolLeft *self = g_new (ToolLeft, 1);
    *self = (ToolLeft){
        .directory = g_strdup (directory), .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};
    if (pthread_create (&self->thread, NULL, watch, self) == 0)
        return self;
    g_free (self->directory); /* there is no telling then */
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
    if (self->shown)
        fputs ("\r\033[K", stderr);
    g_free (self->directory);
    g_free (self);
}
