/* What a mount has still to store, on the terminal of whoever waits for it. */
#include "tool.h"

#include "archive/archive.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define LOOK_US G_USEC_PER_SEC

struct ToolLeft {
    char *directory; /* immutable */
    GMutex lock;
    GCond wake;
    bool ended; /* guarded by lock */
    GThread *thread;
};

/* Beside the mount, which is busy; false: it cannot be told. */
static bool count_left (const char *directory, EcfsTotals *ret_totals)
{
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, ECFS_ARCHIVE_READONLY, NULL);
    return archive != NULL && ecfs_catalog_totals (ecfs_archive_catalog (archive), ret_totals, NULL);
}

static void *show (void *data)
{
    ToolLeft *self = data;
    bool shown = false;
    g_mutex_lock (&self->lock);
    while (!self->ended) {
        EcfsTotals totals = {0};
        (void) g_cond_wait_until (&self->wake, &self->lock, g_get_monotonic_time () + LOOK_US); /* the loop looks */
        if (self->ended)
            break;
        g_mutex_unlock (&self->lock);
        if (count_left (self->directory, &totals)) {
            fprintf (stderr, "\r\033[K%" PRIu64 " %s left to store", totals.n_staged,
                     totals.n_staged == 1 ? "file is" : "files are");
            shown = true;
        }
        g_mutex_lock (&self->lock);
    }
    g_mutex_unlock (&self->lock);
    if (shown)
        fputs ("\r\033[K", stderr);
    return NULL;
}

ToolLeft *tool_left_begin (const char *directory)
{
    if (directory == NULL || !isatty (STDERR_FILENO))
        return NULL;
    ToolLeft *self = g_new0 (ToolLeft, 1);
    self->directory = g_strdup (directory);
    g_mutex_init (&self->lock);
    g_cond_init (&self->wake);
    self->thread = g_thread_new ("ecfs-left", show, self);
    return self;
}

void tool_left_end (ToolLeft *self)
{
    if (self == NULL)
        return;
    g_mutex_lock (&self->lock);
    self->ended = true;
    g_cond_signal (&self->wake);
    g_mutex_unlock (&self->lock);
    g_thread_join (self->thread);
    g_mutex_clear (&self->lock);
    g_cond_clear (&self->wake);
    g_free (self->directory);
    g_free (self);
}
