#include "archive/archive_priv.h"

#define REVIVAL_PAUSE_US G_USEC_PER_SEC
#define REVIVAL_US       (3 * G_USEC_PER_SEC)

/* Endpoints that are being tried again; the last callback or the one who waits frees it. */
typedef struct Revival {
    EcfsMutex lock;
    EcfsCond answered;
    unsigned n_waiting;
    unsigned references;
} Revival;

static void revival_unref (Revival *self)
{
    ecfs_mutex_lock (&self->lock);
    bool last = --self->references == 0;
    ecfs_mutex_unlock (&self->lock);
    if (!last)
        return;
    ecfs_cond_clear (&self->answered);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

static void revival_answered (void *user, const EcfsMarker *marker, const GError *error)
{
    Revival *self = user;
    (void) marker;
    (void) error; /* the endpoint's health tells it */
    ecfs_mutex_lock (&self->lock);
    self->n_waiting--;
    ecfs_cond_signal (&self->answered);
    ecfs_mutex_unlock (&self->lock);
    revival_unref (self);
}

/* Whether nobody tried just now: many attempts at once need not ask one by one. */
static bool revival_is_due (EcfsArchive *archive)
{
    int64_t now_us = ecfs_now_us ();
    ecfs_mutex_lock (&archive->lock);
    bool due = now_us - archive->revived_us >= REVIVAL_PAUSE_US;
    if (due)
        archive->revived_us = now_us;
    ecfs_mutex_unlock (&archive->lock);
    return due;
}

/* Tries the endpoints that are down once more and waits for their answers for a while. */
void ecfs_archive_revive_endpoints (EcfsArchive *archive)
{
    if (!revival_is_due (archive))
        return;
    Revival *self = g_new0 (Revival, 1);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->answered);
    self->references = 1;
    for (size_t i = 0; i < archive->n_endpoints; i++) {
        EcfsEndpoint *endpoint = archive->endpoints[i].endpoint;
        EcfsEndpointHealth health = {0};
        if (endpoint != NULL)
            ecfs_endpoint_health (endpoint, &health);
        bool down = health.down;
        ecfs_endpoint_health_clear (&health);
        if (!down)
            continue;
        ecfs_mutex_lock (&self->lock);
        self->n_waiting++;
        self->references++;
        ecfs_mutex_unlock (&self->lock);
        ecfs_endpoint_examine (endpoint, revival_answered, self);
    }
    int64_t deadline_us = ecfs_now_us () + REVIVAL_US;
    ecfs_mutex_lock (&self->lock);
    while (self->n_waiting > 0 && ecfs_now_us () < deadline_us)
        (void) ecfs_cond_wait_until (&self->answered, &self->lock, deadline_us);
    ecfs_mutex_unlock (&self->lock);
    revival_unref (self);
}
