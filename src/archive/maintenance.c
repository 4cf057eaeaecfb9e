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
    EcfsCond wake;        /* guarded by lock */
    bool stopping;        /* guarded by lock */
    unsigned n_asked;     /* space requests under way; guarded by lock */
    bool space_moved;     /* answers came that are not counted yet; guarded by lock */
    uint64_t *free_bytes; /* per endpoint, UINT64_MAX unknown; guarded by lock */
};

typedef struct SpaceAsked {
    EcfsMaintenance *maintenance;
    size_t position;
} SpaceAsked;

static void space_answered (void *user, uint64_t value, const GError *error)
{
    SpaceAsked *asked = user;
    EcfsMaintenance *self = asked->maintenance;
    ecfs_mutex_lock (&self->lock);
    self->free_bytes[asked->position] = error == NULL ? value : UINT64_MAX; /* no space figure is no failure */
    self->n_asked--;
    self->space_moved = true;
    ecfs_cond_broadcast (&self->wake);
    ecfs_mutex_unlock (&self->lock);
    g_free (asked);
}

static void ask_space (EcfsMaintenance *self)
{
    EcfsArchive *archive = self->archive;
    for (size_t i = 0; i < archive->n_endpoints; i++) {
        if (archive->endpoints[i].endpoint == NULL || archive->endpoints[i].state != ECFS_ENDPOINT_ACTIVE)
            continue;
        SpaceAsked *asked = g_new (SpaceAsked, 1);
        *asked = (SpaceAsked){.maintenance = self, .position = i};
        ecfs_mutex_lock (&self->lock);
        self->n_asked++;
        ecfs_mutex_unlock (&self->lock);
        ecfs_endpoint_space (archive->endpoints[i].endpoint, space_answered, asked);
    }
}

/* Whether `each` bytes can be put on n of the places at once, over and over, until they are used up. */
static bool placeable (const uint64_t *free_bytes, size_t n_places, unsigned n, uint64_t each)
{
    uint64_t room = 0;
    for (size_t i = 0; i < n_places; i++)
        if (free_bytes[i] != UINT64_MAX)
            room += MIN (free_bytes[i], each);
    return room / n >= each;
}

/* The most bytes of user data that fit: the largest stripe total x with Σ min (free, x) ≥ n·x, times k. */
static uint64_t usable_bytes (const uint64_t *free_bytes, size_t n_places, unsigned k, unsigned n)
{
    uint64_t low = 0, high = UINT64_C (1) << 55;
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        if (placeable (free_bytes, n_places, n, middle))
            low = middle;
        else
            high = middle - 1;
    }
    return low * k;
}

static void update_space (EcfsMaintenance *self)
{
    EcfsArchive *archive = self->archive;
    EcfsTotals totals = {0};
    const EcfsCodec *codec = ecfs_archive_codec (archive, archive->config->code, NULL);
    if (codec == NULL || !ecfs_catalog_totals (archive->catalog, &totals, NULL))
        return; /* the figures stay as they were: whoever uses the catalog meets and tells the error */
    ecfs_mutex_lock (&self->lock);
    uint64_t free_bytes =
        usable_bytes (self->free_bytes, archive->n_endpoints, ecfs_codec_k (codec), ecfs_codec_n (codec));
    ecfs_mutex_unlock (&self->lock);
    ecfs_mutex_lock (&archive->lock);
    archive->space = (EcfsArchiveSpace){.free = free_bytes, .total = free_bytes + totals.content_bytes};
    ecfs_mutex_unlock (&archive->lock);
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

/* Works off one batch; returns whether there may be more that can be deleted now. */
static bool delete_due (EcfsArchive *archive, const EcfsArchiveEndpoint *endpoint)
{
    g_autoptr (GError) error = NULL;
    if (!is_up (endpoint))
        return false;
    g_autoptr (GArray) due = ecfs_catalog_deletions (
        archive->catalog, endpoint->id, archive->config->deletion_grace_us * 1000, DELETIONS_AT_ONCE, &error);
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
    unsigned n_deleted = 0;
    for (guint i = 0; i < due->len && !atomic_load (&archive->stopping); i++) {
        const EcfsDeletion *deletion = &g_array_index (due, EcfsDeletion, i);
        if (ecfs_archive_pinned (archive, &deletion->object))
            continue;
        if (!delete_stripe (archive, endpoint, deletion))
            return false;
        n_deleted++;
    }
    return n_deleted == DELETIONS_AT_ONCE;
}

static void *run (void *data)
{
    EcfsMaintenance *self = data;
    int64_t next_space_us = 0;
    ecfs_mutex_lock (&self->lock);
    while (!self->stopping) {
        bool idle = self->n_asked == 0;
        bool space_moved = idle && self->space_moved;
        self->space_moved = self->space_moved && !space_moved;
        ecfs_mutex_unlock (&self->lock);
        if (idle && ecfs_now_us () >= next_space_us) {
            ask_space (self);
            next_space_us = ecfs_now_us () + SPACE_PERIOD_US;
        }
        if (space_moved)
            update_space (self);
        bool more = false;
        for (size_t i = 0; i < self->archive->n_endpoints; i++)
            more |= delete_due (self->archive, &self->archive->endpoints[i]);
        ecfs_mutex_lock (&self->lock);
        bool answered = self->space_moved && self->n_asked == 0;
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
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->wake);
    self->free_bytes = g_new (uint64_t, MAX (archive->n_endpoints, 1));
    for (size_t i = 0; i < archive->n_endpoints; i++)
        self->free_bytes[i] = UINT64_MAX;
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
    g_free (self->free_bytes);
    g_free (self);
}
