/* What a service manager is told of a mount that it runs: ready, stopping, and one line about how things are. */
#include "fs/fs_priv.h"

#include "util/notify.h"
#include "util/ticker.h"

#include <stdatomic.h>

#define LOOK_US (2 * G_USEC_PER_SEC)

struct EcfsReport {
    EcfsArchive *archive; /* immutable, as the next two */
    char *mountpoint;
    EcfsTicker *ticker;
    atomic_bool stopping;
    char *said; /* the ticker's */
};

static void say (void *user)
{
    EcfsReport *self = user;
    bool stopping = atomic_load (&self->stopping);
    g_autofree char *brief = ecfs_archive_brief (self->archive);
    g_autofree char *state = g_strdup_printf (
        "STATUS=%s %s: %s", stopping ? "storing what is staged, unmounted from" : "on", self->mountpoint, brief);
    if (g_strcmp0 (state, self->said) == 0)
        return;
    ecfs_notify (state);
    g_free (self->said);
    self->said = g_steal_pointer (&state);
}

EcfsReport *ecfs_report_start (EcfsArchive *archive, const char *mountpoint)
{
    if (!ecfs_notify_wanted ())
        return NULL;
    EcfsReport *self = g_new0 (EcfsReport, 1);
    self->archive = archive;
    self->mountpoint = g_strdup (mountpoint);
    atomic_init (&self->stopping, false);
    self->ticker = ecfs_ticker_start (LOOK_US, say, self);
    return self;
}

void ecfs_report_ready (EcfsReport *self)
{
    if (self != NULL)
        ecfs_notify ("READY=1");
}

void ecfs_report_stopping (EcfsReport *self)
{
    if (self == NULL)
        return;
    ecfs_notify ("STOPPING=1");
    atomic_store (&self->stopping, true);
    ecfs_ticker_nudge (self->ticker);
}

void ecfs_report_stop (EcfsReport *self)
{
    if (self == NULL)
        return;
    ecfs_ticker_stop (self->ticker);
    g_free (self->mountpoint);
    g_free (self->said);
    g_free (self);
}
