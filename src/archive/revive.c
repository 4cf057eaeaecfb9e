#include "archive/archive_priv.h"

#define REVIVAL_PAUSE_US G_USEC_PER_SEC
#define REVIVAL_US       (3 * G_USEC_PER_SEC)

/* Endpoints that are being tried again; the last callback or the last of those who wait frees it. */
struct EcfsRevival {
    EcfsMutex lock;
    EcfsCond answered;
    int64_t deadline_us; /* immutable */
    unsigned n_waiting;  /* answers, and one while the questions are being asked; guarded by lock */
    unsigned references; /* guarded by lock */
};

static void revival_ref (EcfsRevival *self)
{
    ecfs_mutex_lock (&self->lock);
    self->references++;
    ecfs_mutex_unlock (&self->lock);
}

static void revival_unref (EcfsRevival *self)
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

/* One thing less to wait for; takes a reference. */
static void revival_settle (EcfsRevival *self)
{
    ecfs_mutex_lock (&self->lock);
    self->n_waiting--;
    ecfs_cond_broadcast (&self->answered);
    ecfs_mutex_unlock (&self->lock);
    revival_unref (self);
}

static void revival_answered (void *user, const EcfsMarker *marker, const GError *error)
{
    (void) marker;
    (void) error; /* the endpoint's health tells it */
    revival_settle (user);
}

/* The revival to wait for, with a reference; NULL: there was one just now. *ret_new: the questions are to be asked. */
static EcfsRevival *revival_join (EcfsArchive *archive, bool *ret_new)
{
    int64_t now_us = ecfs_now_us ();
    ecfs_mutex_lock (&archive->lock);
    EcfsRevival *self = archive->revival;
    *ret_new = self == NULL && now_us - archive->revived_us >= REVIVAL_PAUSE_US;
    if (*ret_new) {
        self = archive->revival = g_new0 (EcfsRevival, 1);
        ecfs_mutex_init (&self->lock);
        ecfs_cond_init (&self->answered);
        self->deadline_us = now_us + REVIVAL_US;
        self->n_waiting = 1;
        self->references = 1;
    }
    if (self != NULL)
        revival_ref (self);
    ecfs_mutex_unlock (&archive->lock);
    return self;
}

static void revival_ask (EcfsRevival *self, EcfsArchive *archive)
{
    for (size_t i = 0; i < archive->n_endpoints; i++) {
        EcfsEndpoint *endpoint = archive->endpoints[i].endpoint;
        if (!ecfs_archive_endpoint_counts (&archive->endpoints[i]) || !ecfs_endpoint_is_down (endpoint))
            continue;
        ecfs_mutex_lock (&self->lock);
        self->n_waiting++;
        self->references++;
        ecfs_mutex_unlock (&self->lock);
        ecfs_endpoint_examine (endpoint, revival_answered, self);
    }
    revival_settle (self);
}

static void revival_end (EcfsRevival *self, EcfsArchive *archive)
{
    ecfs_mutex_lock (&archive->lock);
    if (archive->revival == self) {
        archive->revival = NULL;
        archive->revived_us = ecfs_now_us ();
    }
    ecfs_mutex_unlock (&archive->lock);
}

void ecfs_archive_revive_endpoints (EcfsArchive *archive)
{
    bool is_new;
    EcfsRevival *self = revival_join (archive, &is_new);
    if (self == NULL)
        return;
    if (is_new)
        revival_ask (self, archive);
    ecfs_mutex_lock (&self->lock);
    while (self->n_waiting > 0 && ecfs_now_us () < self->deadline_us)
        (void) ecfs_cond_wait_until (&self->answered, &self->lock, self->deadline_us);
    ecfs_mutex_unlock (&self->lock);
    revival_end (self, archive);
    revival_unref (self);
}
