#include "upkeep/packer.h"

#include "archive/common.h"
#include "commit/logs.h"
#include "packing/packing.h"

#define ENOUGH_BYTES   (1u << 20) /* in logs that are worth a pack at once */
#define SMALL_BYTES    (1u << 20) /* packs of less are small, … */
#define SMALL_PACKS    16         /* … and so many are made one */
#define DEAD_PERCENT   50
#define MOST_OBJECTS   64 /* at once */
#define LOOK_US        (1 * G_USEC_PER_SEC)
#define QUIET_US       (1 * G_USEC_PER_SEC)
#define PILE_BYTES     (64u << 20) /* in logs: then they are packed beside who works */
#define RETRY_FIRST_US (5 * G_USEC_PER_SEC)
#define RETRY_MAX_US   (600 * G_USEC_PER_SEC)

struct EcfsPacker {
    EcfsArchive *archive;
    pthread_t thread;
    EcfsMutex lock;
    EcfsCond wake;
    bool stopping; /* guarded by lock */
    atomic_bool cancelled;
    /* Of the thread alone. */
    unsigned n_failures; /* in a row */
    int64_t not_before_us;
    char *failure;          /* the last that was told */
    int64_t loose_since_us; /* when logs were first seen that are worth no pack yet; 0: there are none */
};

static EcfsLogs *logs_of (const EcfsPacker *self)
{
    return ecfs_archive_service (self->archive, ECFS_SERVICE_LOGS);
}

/* What is to be packed */

/* What the logs that have ended hold. */
typedef struct Loose {
    GArray *logs; /* of int64_t: rows */
    uint64_t bytes;
    bool is_endangered; /* a copy of one ends early, or is not there */
} Loose;

static bool is_endangered (EcfsArchive *archive, const EcfsObjectRow *log)
{
    const EcfsCodec *codec = ecfs_archive_codec (archive, log->code, NULL);
    bool lacks = codec == NULL || log->stripes->len < ecfs_codec_n (codec);
    for (guint i = 0; i < log->stripes->len; i++)
        lacks = lacks || ecfs_stripe_lacks (log, &g_array_index (log->stripes, EcfsStripeRow, i), log->size);
    return lacks;
}

static bool find_loose (EcfsPacker *self, Loose *ret_loose, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    g_autoptr (GArray) all = ecfs_catalog_objects_of_kind (catalog, ECFS_OBJECT_LOG, 0, MOST_OBJECTS, error);
    if (all == NULL)
        return false;
    *ret_loose = (Loose){.logs = g_array_new (FALSE, FALSE, sizeof (int64_t))};
    for (guint i = 0; i < all->len; i++) {
        int64_t id = g_array_index (all, int64_t, i);
        g_autoptr (EcfsObjectRow) log = ecfs_catalog_object (catalog, id, NULL);
        if (log == NULL || ecfs_logs_is_open (logs_of (self), &log->uuid))
            continue;
        g_array_append_val (ret_loose->logs, id);
        ret_loose->bytes += log->size;
        ret_loose->is_endangered = ret_loose->is_endangered || is_endangered (self->archive, log);
    }
    return true;
}

/* Whether what is loose is worth a pack now. */
static bool are_due (EcfsPacker *self, const Loose *loose)
{
    const int64_t now_us = ecfs_now_us ();
    if (loose->logs->len == 0)
        self->loose_since_us = 0;
    else if (self->loose_since_us == 0)
        self->loose_since_us = now_us;
    if (loose->logs->len == 0)
        return false;
    bool waited = now_us - self->loose_since_us >= ecfs_archive_config (self->archive)->pack_after_us;
    bool quiet = ecfs_archive_is_quiet (self->archive, QUIET_US) || loose->bytes >= PILE_BYTES;
    return waited || (loose->bytes >= ENOUGH_BYTES && quiet) || loose->is_endangered ||
           loose->logs->len == MOST_OBJECTS;
}

/* Logs that are due; else packs of which little is left; else small ones, where there are many. NULL: error. */
static GArray *find_due (EcfsPacker *self, GError **error)
{
    Loose loose;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    if (!find_loose (self, &loose, error))
        return NULL;
    if (are_due (self, &loose)) {
        self->loose_since_us = 0;
        return loose.logs;
    }
    g_array_unref (loose.logs);
    GArray *packs = ecfs_catalog_dead_packs (catalog, 0, DEAD_PERCENT, MOST_OBJECTS, error);
    if (packs == NULL || packs->len > 0)
        return packs;
    g_array_unref (packs);
    packs = ecfs_catalog_small_packs (catalog, 0, SMALL_BYTES, MOST_OBJECTS, error);
    if (packs != NULL && packs->len < SMALL_PACKS)
        g_array_set_size (packs, 0);
    return packs;
}

/* Rounds */

static void tell (EcfsPacker *self, const GError *error)
{
    if (g_error_matches (error, ECFS_ERROR, ECANCELED) || g_strcmp0 (self->failure, error->message) == 0)
        return;
    g_warning ("small files stay as they are, and are packed later: %s", error->message);
    g_free (self->failure);
    self->failure = g_strdup (error->message);
}

static void pause_packing (EcfsPacker *self)
{
    self->not_before_us = ecfs_now_us () + MIN ((int64_t) RETRY_FIRST_US << MIN (self->n_failures, 12), RETRY_MAX_US);
    self->n_failures++;
}

static void pack (EcfsPacker *self)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) due = find_due (self, &error);
    EcfsPacking packing = {.archive = self->archive, .cancelled = &self->cancelled};
    bool fine = due != NULL && ecfs_pack_objects (&packing, (const int64_t *) (void *) due->data, due->len, &error);
    if (!fine)
        tell (self, error);
    if (!fine || packing.n_left > 0) {
        pause_packing (self);
        return;
    }
    self->n_failures = 0;
    g_clear_pointer (&self->failure, g_free);
}

static void *run (void *data)
{
    EcfsPacker *self = data;
    ecfs_mutex_lock (&self->lock);
    while (!self->stopping) {
        ecfs_mutex_unlock (&self->lock);
        ecfs_logs_end_old (logs_of (self), ecfs_archive_config (self->archive)->pack_after_us);
        if (ecfs_now_us () >= self->not_before_us)
            pack (self);
        ecfs_mutex_lock (&self->lock);
        if (!self->stopping)
            (void) ecfs_cond_wait_until (&self->wake, &self->lock, ecfs_now_us () + LOOK_US);
    }
    ecfs_mutex_unlock (&self->lock);
    return NULL;
}

EcfsPacker *ecfs_packer_start (EcfsArchive *archive)
{
    EcfsPacker *self = g_new0 (EcfsPacker, 1);
    self->archive = archive;
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->wake);
    int result = pthread_create (&self->thread, NULL, run, self);
    if (result != 0)
        g_error ("cannot start the thread that packs: %s", g_strerror (result));
    return self;
}

void ecfs_packer_stop (EcfsPacker *self)
{
    if (self == NULL)
        return;
    atomic_store (&self->cancelled, true);
    ecfs_mutex_lock (&self->lock);
    self->stopping = true;
    ecfs_cond_broadcast (&self->wake);
    ecfs_mutex_unlock (&self->lock);
    (void) pthread_join (self->thread, NULL); /* joinable and ours: it cannot fail */
    ecfs_cond_clear (&self->wake);
    ecfs_mutex_clear (&self->lock);
    g_free (self->failure);
    g_free (self);
}
