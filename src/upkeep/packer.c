#include "upkeep/packer.h"

#include "archive/common.h"
#include "commit/logs.h"
#include "packing/packing.h"

#define ENOUGH_BYTES   (1u << 20)            /* in logs that are worth a pack at once */
#define SMALL_BYTES    (1u << 20)            /* packs of less are small, … */
#define SMALL_FILES    2048                  /* … if it has no more, */
#define SMALL_PACKS    16                    /* … and so many are made one */
#define MOST_SMALL     4096                  /* that are counted */
#define PACKS_LOOK_US  (10 * G_USEC_PER_SEC) /* how often packs are looked at */
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
    GHashTable *resting;    /* int64_t row of an object in which something cannot be read → int64_t: until when */
    unsigned enough_small;  /* packs: some stay small whatever is made of them */
    bool merged;            /* the last round was of small packs */
    int64_t packs_seen_us;  /* when they were looked at last, … */
    uint64_t packs_seen_at; /* … and what had changed in the catalog until then */
    int64_t loose_since_us; /* when logs were first seen that are worth no pack yet; 0: there are none */
};

static EcfsLogs *logs_of (const EcfsPacker *self)
{
    return ecfs_archive_service (self->archive, ECFS_SERVICE_LOGS);
}

static void tell (EcfsPacker *self, const GError *error)
{
    if (g_error_matches (error, ECFS_ERROR, ECANCELED) || g_strcmp0 (self->failure, error->message) == 0)
        return;
    g_warning ("small files stay as they are, and are packed later: %s", error->message);
    g_free (self->failure);
    self->failure = g_strdup (error->message);
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

/* Something in it could not be read a while ago. */
static bool is_resting (const EcfsPacker *self, int64_t object)
{
    const int64_t *until_us = g_hash_table_lookup (self->resting, &object);
    return until_us != NULL && ecfs_now_us () < *until_us;
}

/* What it was given came to nothing. */
static void drop_empty (EcfsPacker *self, const EcfsObjectRow *log)
{
    bool gone = false;
    g_autoptr (GError) error = NULL;
    if (!ecfs_catalog_drop_unused (ecfs_archive_catalog (self->archive), &log->uuid, &gone, &error))
        tell (self, error);
    if (gone)
        ecfs_logs_forget (logs_of (self), &log->uuid);
}

static void add_loose (EcfsPacker *self, int64_t id, Loose *loose)
{
    g_autoptr (EcfsObjectRow) log = ecfs_catalog_object (ecfs_archive_catalog (self->archive), id, NULL);
    if (log == NULL || is_resting (self, id))
        return;
    if (log->size == 0) {
        drop_empty (self, log);
        return;
    }
    g_array_append_val (loose->logs, id);
    loose->bytes += log->size;
    loose->is_endangered = loose->is_endangered || is_endangered (self->archive, log);
}

static bool find_loose (EcfsPacker *self, Loose *ret_loose, GError **error)
{
    int64_t after = 0;
    *ret_loose = (Loose){.logs = g_array_new (FALSE, FALSE, sizeof (int64_t))};
    for (bool more = true; more && ret_loose->logs->len < MOST_OBJECTS;) {
        g_autoptr (GArray) some = ecfs_catalog_objects_of_kind (ecfs_archive_catalog (self->archive), ECFS_OBJECT_LOG,
                                                                true, after, MOST_OBJECTS, error);
        if (some == NULL) {
            g_array_unref (ret_loose->logs);
            return false;
        }
        for (guint i = 0; i < some->len; i++) {
            after = g_array_index (some, int64_t, i);
            add_loose (self, after, ret_loose);
        }
        more = some->len == MOST_OBJECTS;
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
           loose->logs->len >= MOST_OBJECTS;
}

static void leave_out_resting (const EcfsPacker *self, GArray *objects)
{
    for (guint i = objects->len; i-- > 0;)
        if (is_resting (self, g_array_index (objects, int64_t, i)))
            g_array_remove_index (objects, i);
}

/* The newest small packs, where there are so many that it is worth it. A round that leaves as many is none that
 * another should follow. */
static GArray *find_small (EcfsPacker *self, GError **error)
{
    GArray *packs =
        ecfs_catalog_small_packs (ecfs_archive_catalog (self->archive), 0, SMALL_BYTES, SMALL_FILES, MOST_SMALL, error);
    if (packs == NULL)
        return NULL;
    leave_out_resting (self, packs);
    if (self->merged || packs->len + SMALL_PACKS < self->enough_small)
        self->enough_small = packs->len + SMALL_PACKS;
    self->merged = packs->len >= MAX (self->enough_small, SMALL_PACKS);
    if (!self->merged)
        g_array_set_size (packs, 0);
    else if (packs->len > MOST_OBJECTS)
        g_array_remove_range (packs, 0, packs->len - MOST_OBJECTS);
    return packs;
}

/* Packs are looked at now and then, and when something has changed: all of them are gone through. */
static bool are_packs_due (EcfsPacker *self)
{
    const int64_t now_us = ecfs_now_us ();
    uint64_t sequence = ecfs_catalog_sequence (ecfs_archive_catalog (self->archive));
    int64_t apart_us = MIN (PACKS_LOOK_US, ecfs_archive_config (self->archive)->pack_after_us);
    if (sequence == self->packs_seen_at || now_us - self->packs_seen_us < apart_us)
        return false;
    self->packs_seen_at = sequence;
    self->packs_seen_us = now_us;
    return true;
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
    g_array_set_size (loose.logs, 0);
    if (!are_packs_due (self))
        return loose.logs;
    g_array_unref (loose.logs);
    GArray *packs = ecfs_catalog_dead_packs (catalog, 0, DEAD_PERCENT, MOST_OBJECTS, error);
    if (packs == NULL)
        return NULL;
    leave_out_resting (self, packs);
    if (packs->len > 0)
        return packs;
    g_array_unref (packs);
    return find_small (self, error);
}

/* Rounds */

static void let_rest (EcfsPacker *self, const GArray *objects)
{
    const int64_t until_us = ecfs_now_us () + RETRY_MAX_US;
    for (guint i = 0; i < objects->len; i++)
        (void) g_hash_table_insert (self->resting, g_memdup2 (&g_array_index (objects, int64_t, i), sizeof (int64_t)),
                                    g_memdup2 (&until_us, sizeof until_us));
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
    g_autoptr (GArray) left = g_array_new (FALSE, FALSE, sizeof (int64_t));
    EcfsPacking packing = {.archive = self->archive, .cancelled = &self->cancelled, .left = left};
    bool fine = due != NULL && ecfs_pack_objects (&packing, (const int64_t *) (void *) due->data, due->len, &error);
    let_rest (self, left);
    if (!fine) {
        tell (self, error);
        self->merged = false; /* it says nothing of what can be merged */
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
    self->resting = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, g_free);
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
    g_hash_table_unref (self->resting);
    g_free (self->failure);
    g_free (self);
}
