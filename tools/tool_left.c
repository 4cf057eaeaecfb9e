/* What a mount has still to store, on the terminal of whoever waits for it. */
#include "tool.h"

#include "archive/archive.h"
#include "util/ticker.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define LOOK_US G_USEC_PER_SEC

struct ToolLeft {
    char *directory; /* immutable, as the next */
    EcfsTicker *ticker;
    bool due; /* the ticker's, as the next: what takes no second shows nothing */
    bool shown;
};

/* Beside the mount, which is busy; false: it cannot be told. */
static bool count_left (const char *directory, EcfsTotals *ret_totals)
{
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, ECFS_ARCHIVE_READONLY, NULL);
    return archive != NULL && ecfs_catalog_totals (ecfs_archive_catalog (archive), ret_totals, NULL);
}

static void show (void *user)
{
    ToolLeft *self = user;
    EcfsTotals totals = {0};
    if (self->due && count_left (self->directory, &totals)) {
        fprintf (stderr, "\r\033[K%" PRIu64 " %s left to store", totals.n_staged,
                 totals.n_staged == 1 ? "file is" : "files are");
        self->shown = true;
    }
    self->due = true;
}

ToolLeft *tool_left_begin (const char *directory)
{
    if (directory == NULL || !isatty (STDERR_FILENO))
        return NULL;
    ToolLeft *self = g_new0 (ToolLeft, 1);
    self->directory = g_strdup (directory);
    self->ticker = ecfs_ticker_start (LOOK_US, show, self);
    return self;
}

void tool_left_end (ToolLeft *self)
{
    if (self == NULL)
        return;
    ecfs_ticker_stop (self->ticker);
    if (self->shown)
        fputs ("\r\033[K", stderr);
    g_free (self->directory);
    g_free (self);
}
