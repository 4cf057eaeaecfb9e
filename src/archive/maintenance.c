/*
 * What an archive does behind its users: deleting stripes that nothing needs any more (DESIGN.md decision 10), and
 * keeping the figures of free space.
 */
#include "archive/archive_priv.h"

#define PAUSE_US          (2 * G_USEC_PER_SEC)
#define SPACE_PERIOD_US   (15 * G_USEC_PER_SEC)
#define DELETIONS_AT_ONCE 64

struct EcfsMaintenance {
    EcfsArchive *archive;
    pthread_t thread;
    EcfsMutex lock;
    EcfsCond wake;
    bool stopping;    /* guarded by lock */
    unsigned n_asked; /* space requests under way; guarded by lock */
    int64_t asked_us; /* the thread's, as the next */
    uint64_t space_state;
};

static void space_answered (void *user, uint64_t value, const GError *error)
{
    EcfsMaintenance *self = user;
    (void) value;
    (void) error; /* the endpoint's health tells both */
    ecfs_mutex_lock (&self->lock);
    self->n_asked--;
    ecfs_cond_broadcast (&self->wake);
    ecfs_mutex_unlock (&self->lock);
}

static void ask_space (EcfsMaintenance *self)
{
    EcfsArchive *archive = self->archive;
    for (size_t i = 0; i < archive->n_endpoints; i++) {
        if (archive->endpoints[i].endpoint == NULL || archive->endpoints[i].state != ECFS_ENDPOINT_ACTIVE)
            continue;
        ecfs_mutex_lock (&self->lock);
        self->n_asked++;
        ecfs_mutex_unlock (&self->lock);
        ecfs_endpoint_space (archive->endpoints[i].endpoint, space_answered, self);
    }
}

/* Whether some endpoint takes nothing before its space figure says that it can. */
static bool any_full (const EcfsArchive *archive)
{
    for (size_t i = 0; i < archive->n_endpoints; i++) {
        EcfsEndpointHealth health = {0};
        if (archive->endpoints[i].endpoint != NULL)
            ecfs_endpoint_health (archive->endpoints[i].endpoint, &health);
        bool full = health.full;
        ecfs_endpoint_health_clear (&health);
        if (full)
            return true;
    }
    return false;
}

/* Asks when it is time, and counts anew when something moved. */
static void keep_space (EcfsMaintenance *self, bool nobody_owes)
{
    int64_t period_us = any_full (self->archive) ? PAUSE_US : SPACE_PERIOD_US;
    if (nobody_owes && ecfs_now_us () - self->asked_us >= period_us) {
        self->asked_us = ecfs_now_us ();
        ask_space (self);
    }
    uint64_t state = ecfs_archive_space_state (self->archive);
    if (state != self->space_state)
        ecfs_archive_foretell (self->archive);
    self->space_state = state;
}

static bool is_up (const EcfsArchiveEndpoint *endpoint)
{
    EcfsEndpointHealth health;
    if (endpoint->endpoint == NULL || endpoint->state == ECFS_ENDPOINT_FAILED)
        return false;
    ecfs_endpoint_health (endpoint->endpoint, &health);
    bool up = !health.down;
    ecfs_endpoint_health_clear (&health);
    return up;
}

static void deletion_name (const EcfsDeletion *deletion, char name[ECFS_STRIPE_NAME_SIZE])
{
    ecfs_stripe_name (&deletion->object, deletion->stripe.index, deletion->stripe.instance, name);
}

/* Uploads that came to nothing may have left the beginning of a stripe under a temporary name. */
static bool remove_unfinished (const EcfsArchiveEndpoint *endpoint, const GArray *due)
{
    char names[DELETIONS_AT_ONCE][ECFS_STRIPE_NAME_SIZE];
    const char *pointers[DELETIONS_AT_ONCE];
    g_autoptr (GError) error = NULL;
    size_t n_names = 0;
    for (guint i = 0; i < due->len && n_names < DELETIONS_AT_ONCE; i++) {
        const EcfsDeletion *deletion = &g_array_index (due, EcfsDeletion, i);
        if (!deletion->uncommitted)
            continue;
        deletion_name (deletion, names[n_names]);
        pointers[n_names] = names[n_names];
        n_names++;
    }
    if (n_names == 0 || ecfs_endpoint_remove_unfinished_wait (endpoint->endpoint, pointers, n_names, &error))
        return true;
    g_info ("removing unfinished uploads has to wait: %s", error->message);
    return false;
}

static bool delete_stripe (EcfsArchive *archive, const EcfsArchiveEndpoint *endpoint, const EcfsDeletion *deletion)
{
    g_autoptr (GError) error = NULL;
    char name[ECFS_STRIPE_NAME_SIZE];
    deletion_name (deletion, name);
    if (!ecfs_endpoint_remove_wait (endpoint->endpoint, name, &error) && error->code != ENOENT) {
        g_info ("deleting %s has to wait: %s", name, error->message);
        return false;
    }
    g_clear_error (&error);
    if (!ecfs_catalog_deletion_done (archive->catalog, deletion->id, &error)) {
        g_warning ("%s", error->message);
        return false;
    }
    return true;
}

/* Whether an open handle may still read the stripe; none knows one that never was in an object. */
static bool is_needed (EcfsArchive *archive, const EcfsDeletion *deletion)
{
    return !deletion->uncommitted && ecfs_archive_pinned (archive, &deletion->object);
}

/* Works off what is due behind the first *n_needed, to which it adds those that have to stay for now. Returns whether
 * there may be more that can be deleted. */
static bool delete_batch (EcfsArchive *archive, const EcfsArchiveEndpoint *endpoint, size_t *n_needed)
{
    g_autoptr (GError) error = NULL;
    int64_t grace_ns = archive->config->deletion_grace_us * 1000;
    g_autoptr (GArray) due =
        ecfs_catalog_deletions (archive->catalog, endpoint->id, grace_ns, *n_needed, DELETIONS_AT_ONCE, &error);
    if (due == NULL) {
        g_warning ("%s", error->message);
        return false;
    }
    /* What is queued may not be durable: a crash would bring the object back, and not its stripes. */
    if (due->len > 0 && !ecfs_catalog_barrier (archive->catalog, &error)) {
        g_info ("deletions have to wait: %s", error->message);
        return false;
    }
    if (!remove_unfinished (endpoint, due))
        return false;
    for (guint i = 0; i < due->len && !atomic_load (&archive->stopping); i++) {
        const EcfsDeletion *deletion = &g_array_index (due, EcfsDeletion, i);
        if (is_needed (archive, deletion))
            (*n_needed)++;
        else if (!delete_stripe (archive, endpoint, deletion))
            return false;
    }
    return due->len == DELETIONS_AT_ONCE && !atomic_load (&archive->stopping);
}

/* Returns whether there may be more that can be deleted now. */
static bool delete_due (EcfsArchive *archive, const EcfsArchiveEndpoint *endpoint)
{
    if (!is_up (endpoint))
        return false;
    size_t n_needed = 0, n_before;
    bool more;
    do {
        n_before = n_needed;
        more = delete_batch (archive, endpoint, &n_needed);
    } while (more && n_needed > n_before);
    return more;
}

static bool delete_all_due (EcfsArchive *archive)
{
    g_autoptr (GError) error = NULL;
    EcfsTotals totals;
    bool more = false;
    if (archive->readonly || !ecfs_catalog_totals (archive->catalog, &totals, NULL) || totals.n_deletions == 0)
        return false;
    if (!ecfs_catalog_note_age (archive->catalog, &error))
        g_info ("%s", error->message); /* tried again; the catalog says what is wrong with it */
    for (size_t i = 0; i < archive->n_endpoints; i++)
        more |= delete_due (archive, &archive->endpoints[i]);
    return more;
}

static void *run (void *data)
{
    EcfsMaintenance *self = data;
    ecfs_mutex_lock (&self->lock);
    while (!self->stopping) {
        unsigned n_asked = self->n_asked;
        ecfs_mutex_unlock (&self->lock);
        keep_space (self, n_asked == 0);
        bool more = delete_all_due (self->archive);
        ecfs_mutex_lock (&self->lock);
        bool answered = self->n_asked < n_asked;
        if (!self->stopping && !more && !answered)
            (void) ecfs_cond_wait_until (&self->wake, &self->lock, ecfs_now_us () + PAUSE_US);
    }
    ecfs_mutex_unlock (&self->lock);
    return NULL;
}

EcfsMaintenance *ecfs_maintenance_start (EcfsArchive *archive)
{
    EcfsMaintenance *self = g_new0 (EcfsMaintenance, 1);
    self->archive = archive;
    self->asked_us = INT64_MIN / 2;
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->wake);
    int result = pthread_create (&self->thread, NULL, run, self);
    if (result != 0)
        g_error ("cannot start the maintenance thread: %s", g_strerror (result));
    return self;
}

void ecfs_maintenance_stop (EcfsMaintenance *self)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    self->stopping = true;
    ecfs_cond_broadcast (&self->wake);
    ecfs_mutex_unlock (&self->lock);
    (void) pthread_join (self->thread, NULL); /* joinable and ours: it cannot fail */
    ecfs_mutex_lock (&self->lock);
    while (self->n_asked > 0)
        (void) ecfs_cond_wait_until (&self->wake, &self->lock, ecfs_now_us () + G_USEC_PER_SEC);
    ecfs_mutex_unlock (&self->lock);
    ecfs_cond_clear (&self->wake);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}
