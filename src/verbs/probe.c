/* Asking all endpoints at once how they are. */
#include "verbs/status_priv.h"

#include "util/lock.h"

struct EcfsProbe {
    EcfsMutex lock;
    EcfsCond answered;
    unsigned n_pending;    /* guarded by lock */
    unsigned n_refs;       /* guarded by lock: one per pending answer and the asker's */
    EcfsUuid archive_uuid; /* immutable, as the next */
    size_t n_endpoints;
    struct Answer {
        EcfsProbe *probe; /* immutable, as the next */
        EcfsUuid uuid;
        bool known; /* guarded by lock, as the rest: how much room there is */
        uint64_t free_bytes;
        bool examining; /* its marker is asked for */
        char *problem;  /* why that came to nothing; NULL: it did not, or not yet */
    } answers[];
};

static void probe_unref (EcfsProbe *self)
{
    ecfs_mutex_lock (&self->lock);
    unsigned left = --self->n_refs;
    ecfs_mutex_unlock (&self->lock);
    if (left > 0)
        return;
    ecfs_mutex_clear (&self->lock);
    ecfs_cond_clear (&self->answered);
    for (size_t i = 0; i < self->n_endpoints; i++)
        g_free (self->answers[i].problem);
    g_free (self);
}

static void end_answer_locked (EcfsProbe *self) ECFS_REQUIRES (self->lock)
{
    self->n_pending--;
    ecfs_cond_broadcast (&self->answered);
}

static void on_space (void *user, uint64_t value, const GError *error)
{
    struct Answer *answer = user;
    EcfsProbe *probe = answer->probe;
    ecfs_mutex_lock (&probe->lock);
    answer->known = error == NULL;
    answer->free_bytes = value;
    end_answer_locked (probe);
    ecfs_mutex_unlock (&probe->lock);
    probe_unref (probe);
}

/* Not every endpoint can tell its free space, but each has a marker. */
static void on_examined (void *user, const EcfsMarker *marker, const GError *error)
{
    struct Answer *answer = user;
    EcfsProbe *probe = answer->probe;
    ecfs_mutex_lock (&probe->lock);
    answer->examining = false;
    if (error != NULL && error->code != ECANCELED)
        answer->problem = g_strdup (error->message);
    else if (error == NULL && !ecfs_uuid_equal (&marker->archive, &probe->archive_uuid))
        answer->problem = g_strdup ("the marker there is of another archive");
    else if (error == NULL && !ecfs_uuid_equal (&marker->endpoint, &answer->uuid))
        answer->problem = g_strdup ("the marker there is of another endpoint of this archive");
    end_answer_locked (probe);
    ecfs_mutex_unlock (&probe->lock);
    probe_unref (probe);
}

/* What is known to be down is not examined: the keeper of it tries it. */
EcfsProbe *ecfs_probe_new (EcfsArchive *archive)
{
    size_t n = ecfs_archive_n_endpoints (archive);
    EcfsProbe *self = g_malloc0 (sizeof *self + n * sizeof self->answers[0]);
    g_autoptr (GError) error = NULL;
    if (!ecfs_archive_count_used (archive, &error) && error->code != ECANCELED)
        g_warning ("%s", error->message); /* free space is that of the account then */
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->answered);
    self->n_refs = 1;
    self->archive_uuid = *ecfs_catalog_archive (ecfs_archive_catalog (archive));
    self->n_endpoints = n;
    for (size_t i = 0; i < n; i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        self->answers[i].probe = self;
        self->answers[i].uuid = endpoint->uuid;
        if (endpoint->endpoint == NULL)
            continue;
        bool examine = endpoint->state != ECFS_ENDPOINT_REMOVED && !ecfs_endpoint_is_down (endpoint->endpoint);
        ecfs_mutex_lock (&self->lock);
        self->answers[i].examining = examine;
        self->n_pending += 1 + examine;
        self->n_refs += 1 + examine;
        ecfs_mutex_unlock (&self->lock);
        ecfs_endpoint_space (endpoint->endpoint, on_space, &self->answers[i]);
        if (examine)
            ecfs_endpoint_examine (endpoint->endpoint, on_examined, &self->answers[i]);
    }
    return self;
}

static void probe_wait (EcfsProbe *self, int64_t deadline_us)
{
    ecfs_mutex_lock (&self->lock);
    while (self->n_pending > 0 && ecfs_cond_wait_until (&self->answered, &self->lock, deadline_us))
        ;
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_archive_probe (EcfsArchive *self, int64_t patience_us)
{
    int64_t deadline_us = ecfs_now_us () + patience_us;
    EcfsProbe *probe = ecfs_probe_new (self);
    probe_wait (probe, deadline_us);
    probe_unref (probe);
}

static void found_clear (gpointer data)
{
    g_free (((EcfsFound *) data)->reason);
}

/* One with so much to do that the question has to wait its turn is not silent. */
static bool is_silent (EcfsEndpoint *endpoint)
{
    EcfsEndpointHealth health;
    ecfs_endpoint_health (endpoint, &health);
    bool silent = !health.down && (health.suspect || !health.connected);
    ecfs_endpoint_health_clear (&health);
    return silent;
}

GArray *ecfs_probe_end (EcfsProbe *self, EcfsArchive *archive, int64_t begun_us, int64_t deadline_us)
{
    GArray *all = g_array_new (FALSE, TRUE, sizeof (EcfsFound));
    g_array_set_clear_func (all, found_clear);
    probe_wait (self, deadline_us);
    for (size_t i = 0; i < self->n_endpoints; i++) {
        const struct Answer *answer = &self->answers[i];
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        ecfs_mutex_lock (&self->lock);
        EcfsFound found = {.space_known = answer->known, .free_bytes = answer->free_bytes};
        bool examining = answer->examining;
        found.reason = g_strdup (answer->problem);
        ecfs_mutex_unlock (&self->lock);
        found.word = found.reason == NULL ? NULL : "down";
        if (examining && is_silent (endpoint->endpoint)) {
            found.word = "silent";
            found.reason = g_strdup_printf ("endpoint %s was asked and has not answered within %.0f s", endpoint->name,
                                            (double) (ecfs_now_us () - begun_us) / G_USEC_PER_SEC);
        }
        g_array_append_val (all, found);
    }
    probe_unref (self);
    return all;
}
