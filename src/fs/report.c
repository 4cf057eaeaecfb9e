/* What a service manager is told of a mount that it runs: ready, stopping, and one line about how things are. */
#include "fs/fs_priv.h"

#include "util/notify.h"

#define LOOK_US (2 * G_USEC_PER_SEC)

struct EcfsReport {
    EcfsArchive *archive; /* immutable, as the next */
    char *mountpoint;
    EcfsMutex lock;
    EcfsCond wake;
    bool stopping; /* guarded by lock, as the next */
    bool ended;
    char *said; /* the thread's */
    pthread_t thread;
};

static void say (EcfsReport *self, bool stopping)
{
    g_autofree char *brief = ecfs_archive_brief (self->archive);
    g_autofree char *state = g_strdup_printf (
        "STATUS=%s %s: %s", stopping ? "storing what is staged, no longer on" : "on", self->mountpoint, brief);
    if (g_strcmp0 (state, self->said) == 0)
        return;
    ecfs_notify (state);
    g_free (self->said);
    self->said = g_steal_pointer (&state);
}

static void *watch (void *data)
{
    EcfsReport *self = data;
    ecfs_mutex_lock (&self->lock);
    while (!self->ended) {
        bool stopping = self->stopping;
        ecfs_mutex_unlock (&self->lock);
        say (self, stopping);
        ecfs_mutex_lock (&self->lock);
        if (!self->ended && self->stopping == stopping)
            (void) ecfs_cond_wait_until (&self->wake, &self->lock, ecfs_now_us () + LOOK_US);
    }
    ecfs_mutex_unlock (&self->lock);
    return NULL;
}

EcfsReport *ecfs_report_start (EcfsArchive *archive, const char *mountpoint)
{
    if (!ecfs_notify_wanted ())
        return NULL;
    EcfsReport *self = g_new0 (EcfsReport, 1);
    self->archive = archive;
    self->mountpoint = g_strdup (mountpoint);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->wake);
    int result = pthread_create (&self->thread, NULL, watch, self);
    if (result != 0)
        g_error ("cannot start the thread that reports to the service manager: %s", g_strerror (result));
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
    ecfs_mutex_lock (&self->lock);
    self->stopping = true;
    ecfs_cond_broadcast (&self->wake);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_report_stop (EcfsReport *self)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    self->ended = true;
    ecfs_cond_broadcast (&self->wake);
    ecfs_mutex_unlock (&self->lock);
    (void) pthread_join (self->thread, NULL); /* joinable and ours: it cannot fail */
    ecfs_cond_clear (&self->wake);
    ecfs_mutex_clear (&self->lock);
    g_free (self->mountpoint);
    g_free (self->said);
    g_free (self);
}
