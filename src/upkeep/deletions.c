/*
 * Deleting stripes that nothing needs any more (doc/architecture.md decision 10). An endpoint with something to delete
 * has a thread for that until it is done or fails: one that hangs holds up nobody else.
 */
#include "upkeep/upkeep.h"

#include "archive/common.h"
#include "archive/lineage.h"
#include "catalog/retention.h"
#include "journal/sender.h"

#define DELETIONS_AT_ONCE 64 /* in one catalog transaction, and on their way to an endpoint */
#define FORBIDDEN_REST_US (INT64_C (3600) * G_USEC_PER_SEC) /* until who refuses is asked again */

/* All that is due at an endpoint, once. One that fails is passed over until the others had their turn. */
typedef struct Sweep {
    EcfsArchive *archive;
    const EcfsArchiveEndpoint *endpoint;
    atomic_int_least64_t held_from_ns; /* what was removed since is not due */
    pthread_t thread;
    bool running;       /* until its thread is joined */
    atomic_bool ended;  /* its thread has nothing left to do */
    EcfsDeletion after; /* where it goes on; the thread's while running */
    bool goes_on;       /* else it begins with the first; likewise */
    bool told;          /* that something cannot be removed, once; likewise */
    int64_t rest_us;    /* until when nothing is tried, as it is forbidden; likewise */
} Sweep;

struct EcfsDeletions {
    EcfsArchive *archive;
    GPtrArray *sweeps; /* of Sweep, by position of the endpoint */
};

/* Not of what never was in an object; and what is doomed is not looked at again. */
static bool was_content (const EcfsDeletion *deletion)
{
    return deletion->kind == ECFS_DELETION_REMOVED || deletion->kind == ECFS_DELETION_EXCHANGED;
}

static void deletion_name (const EcfsDeletion *deletion, char name[ECFS_STRIPE_NAME_SIZE])
{
    ecfs_stripe_name (&deletion->object, deletion->stripe.index, deletion->stripe.instance, name);
}

/* Somebody has to do something about what is forbidden; an endpoint that is down says so itself. */
static void tell_stuck (Sweep *self, const char *what, const GError *error)
{
    bool forbidden = error->code == EACCES || error->code == EPERM || error->code == EROFS;
    if (forbidden && !self->told)
        g_warning ("cannot delete %s: %s; it uses space until this is fixed", what, error->message);
    else
        g_info ("cannot delete %s yet: %s", what, error->message);
    self->told = self->told || forbidden;
    if (forbidden)
        self->rest_us = ecfs_now_us () + FORBIDDEN_REST_US;
}

/* Uploads that came to nothing may have left the beginning of a stripe under a temporary name. */
static bool remove_unfinished (Sweep *self, const GArray *due)
{
    char names[DELETIONS_AT_ONCE][ECFS_STRIPE_NAME_SIZE];
    const char *pointers[DELETIONS_AT_ONCE];
    g_autoptr (GError) error = NULL;
    size_t n_names = 0;
    for (guint i = 0; i < due->len && n_names < DELETIONS_AT_ONCE; i++) {
        const EcfsDeletion *deletion = &g_array_index (due, EcfsDeletion, i);
        if (deletion->kind != ECFS_DELETION_UNCOMMITTED)
            continue;
        deletion_name (deletion, names[n_names]);
        pointers[n_names] = names[n_names];
        n_names++;
    }
    if (n_names == 0 || ecfs_endpoint_remove_unfinished_wait (self->endpoint->endpoint, pointers, n_names, &error))
        return true;
    tell_stuck (self, "what unfinished uploads left", error);
    return false;
}

/* Whether the stripe may go; *ret_kept: it stays, whoever queued it, as an object has it. */
static bool may_go (Sweep *self, const EcfsDeletion *deletion, bool *ret_kept)
{
    g_autoptr (GError) error = NULL;
    char name[ECFS_STRIPE_NAME_SIZE];
    *ret_kept = false;
    if (!ecfs_catalog_stripe_current (ecfs_archive_catalog (self->archive), &deletion->object, &deletion->stripe,
                                      ret_kept, &error)) {
        g_warning ("%s", error->message);
        return false;
    }
    deletion_name (deletion, name);
    if (*ret_kept)
        g_warning ("endpoint %s: %s was queued for deletion, but an object has it: it stays, run ecfs-fsck",
                   self->endpoint->name, name);
    return !*ret_kept;
}

typedef struct Batch {
    size_t n;
    int64_t ids[DELETIONS_AT_ONCE];
    bool was_content[DELETIONS_AT_ONCE]; /* and may be again */
    char names[DELETIONS_AT_ONCE][ECFS_STRIPE_NAME_SIZE];
    size_t n_done; /* the ids of these are forgotten */
    int64_t done[DELETIONS_AT_ONCE];
} Batch;

/* From now on nothing takes them back; those that something has taken back leave the batch. */
static bool doom_all (Sweep *self, Batch *batch)
{
    int64_t ids[DELETIONS_AT_ONCE];
    size_t n_ids = 0, n_kept = 0;
    g_autoptr (GError) error = NULL;
    for (size_t i = 0; i < batch->n; i++)
        if (batch->was_content[i])
            ids[n_ids++] = batch->ids[i];
    if (n_ids > 0 && !ecfs_catalog_deletions_doom (ecfs_archive_catalog (self->archive), ids, n_ids, &error)) {
        g_info ("deletions have to wait: %s", error->message);
        return false;
    }
    for (size_t i = 0, at = 0; i < batch->n; i++) {
        if (batch->was_content[i] && ids[at++] == 0)
            continue;
        batch->ids[n_kept] = batch->ids[i];
        memmove (batch->names[n_kept++], batch->names[i], ECFS_STRIPE_NAME_SIZE);
    }
    batch->n = n_kept;
    return true;
}

/* Returns whether all of them are gone, and the catalog has it. */
static bool remove_all (Sweep *self, Batch *batch)
{
    const char *names[DELETIONS_AT_ONCE];
    GError *errors[DELETIONS_AT_ONCE] = {NULL};
    bool fine = true;
    for (size_t i = 0; i < batch->n; i++)
        names[i] = batch->names[i];
    ecfs_endpoint_remove_all_wait (self->endpoint->endpoint, names, batch->n, errors);
    for (size_t i = 0; i < batch->n; i++) {
        if (errors[i] == NULL || errors[i]->code == ENOENT) {
            batch->done[batch->n_done++] = batch->ids[i];
        } else {
            tell_stuck (self, names[i], errors[i]);
            fine = false;
        }
        g_clear_error (&errors[i]);
    }
    g_autoptr (GError) error = NULL;
    if (batch->n_done == 0 ||
        ecfs_catalog_deletions_done (ecfs_archive_catalog (self->archive), batch->done, batch->n_done, &error))
        return fine;
    g_warning ("%s", error->message);
    return false;
}

/* How long everything stays there; or ECFS_RETAIN_ALWAYS. */
static int64_t retained_us (const Sweep *self)
{
    return self->endpoint->endpoint == NULL ? ECFS_RETAIN_NOT : ecfs_endpoint_retain_us (self->endpoint->endpoint);
}

/* The next batch; NULL: there is none, or an error, which is told. */
static GArray *next_batch (const Sweep *self)
{
    g_autoptr (GError) error = NULL;
    EcfsArchive *archive = self->archive;
    const EcfsConfig *config = ecfs_archive_config (archive);
    EcfsReleased released;
    if (!ecfs_catalog_released (ecfs_archive_catalog (archive), &released, &error)) {
        g_warning ("%s", error->message);
        return NULL;
    }
    const int64_t grace_us = MAX (config->deletion_grace_us, retained_us (self));
    const EcfsDeletionWaits waits = {.holds = true,
                                     .held_from_age_ns = atomic_load (&self->held_from_ns),
                                     .released_age_ns = released.age_ns,
                                     .removed_ns = MAX (grace_us, config->history_us) * 1000,
                                     .exchanged_ns = grace_us * 1000,
                                     .least_ns = retained_us (self) * 1000};
    g_autoptr (GArray) due = ecfs_catalog_deletions (ecfs_archive_catalog (archive), self->endpoint->id, &waits,
                                                     self->goes_on ? &self->after : NULL, DELETIONS_AT_ONCE, &error);
    if (due == NULL)
        g_warning ("%s", error->message);
    return due == NULL || due->len == 0 ? NULL : g_steal_pointer (&due);
}

/* Whether an open handle may still read the stripe, or a recovery would still look for it; neither knows one that never
 * was in an object. */
static bool is_needed (EcfsArchive *archive, const EcfsDeletion *deletion, uint64_t stored)
{
    return was_content (deletion) && (deletion->sequence > stored || ecfs_archive_pinned (archive, &deletion->object));
}

/* The last record of the journal that enough endpoints have; the rest follows soon where something waits for it. */
static uint64_t stored_sequence (EcfsArchive *archive, const GArray *due)
{
    EcfsRecoveryPoint point;
    g_autoptr (GError) error = NULL;
    if (!ecfs_archive_recovery_point (archive, &point, &error)) {
        g_warning ("%s", error->message);
        return 0;
    }
    for (guint i = 0; i < due->len; i++) {
        const EcfsDeletion *deletion = &g_array_index (due, EcfsDeletion, i);
        if (was_content (deletion) && deletion->sequence > point.stored) {
            ecfs_journal_sender_hurry (ecfs_archive_service (archive, ECFS_SERVICE_JOURNAL));
            break;
        }
    }
    return point.stored;
}

/* What of @due may go now. Returns whether that is all of it but what has to wait. */
static bool choose (Sweep *self, const GArray *due, bool clean, Batch *ret_batch)
{
    EcfsArchive *archive = self->archive;
    const uint64_t stored = stored_sequence (archive, due);
    const size_t position = ecfs_archive_position (archive, self->endpoint);
    *ret_batch = (Batch){.n = 0};
    for (guint i = 0; i < due->len; i++) {
        if (ecfs_archive_is_stopping (archive) || !ecfs_lineage_may_delete (ecfs_archive_lineage (archive), position))
            return false;
        const EcfsDeletion *deletion = &g_array_index (due, EcfsDeletion, i);
        bool is_kept;
        self->after = *deletion;
        self->goes_on = true;
        if (is_needed (archive, deletion, stored) || (deletion->kind == ECFS_DELETION_UNCOMMITTED && !clean))
            continue;
        if (may_go (self, deletion, &is_kept)) {
            ret_batch->was_content[ret_batch->n] = was_content (deletion);
            ret_batch->ids[ret_batch->n] = deletion->id;
            deletion_name (deletion, ret_batch->names[ret_batch->n++]);
        } else if (is_kept) {
            ret_batch->done[ret_batch->n_done++] = deletion->id;
        } else {
            return false;
        }
    }
    return true;
}

/* Returns whether to go on behind it. */
static bool delete_batch (Sweep *self, const GArray *due)
{
    g_autoptr (GError) error = NULL;
    EcfsArchive *archive = self->archive;
    /* What is queued may not be durable: a crash would bring the object back, and not its stripes. */
    if (!ecfs_catalog_harden (ecfs_archive_catalog (archive), NULL, &error)) {
        g_info ("deletions have to wait: %s", error->message);
        return false;
    }
    if (!ecfs_lineage_confirm (ecfs_archive_lineage (archive), ecfs_archive_position (archive, self->endpoint)))
        return false;
    bool clean = remove_unfinished (self, due);
    if (!clean && !ecfs_archive_reaches (self->endpoint))
        return false;
    Batch batch;
    bool chosen = choose (self, due, clean, &batch);
    return doom_all (self, &batch) && remove_all (self, &batch) && chosen;
}

static void *sweep (void *data)
{
    Sweep *self = data;
    for (bool fine = true; fine;) {
        g_autoptr (GArray) due = next_batch (self);
        if (due == NULL)
            self->goes_on = false;
        fine = due != NULL && delete_batch (self, due);
    }
    atomic_store (&self->ended, true);
    return NULL;
}

static void sweep_join (Sweep *self)
{
    (void) pthread_join (self->thread, NULL); /* joinable and ours: it cannot fail */
    self->running = false;
}

static void sweep_free (gpointer data)
{
    Sweep *self = data;
    if (self->running)
        sweep_join (self);
    g_free (self);
}

static Sweep *sweep_of (EcfsDeletions *self, size_t position)
{
    while (self->sweeps->len <= position) {
        Sweep *sweep = g_new0 (Sweep, 1);
        sweep->archive = self->archive;
        sweep->endpoint = ecfs_archive_endpoint (self->archive, self->sweeps->len);
        g_ptr_array_add (self->sweeps, sweep);
    }
    return g_ptr_array_index (self->sweeps, position);
}

static bool has_due (const Sweep *self)
{
    const Sweep from_the_first = {
        .archive = self->archive, .endpoint = self->endpoint, .held_from_ns = atomic_load (&self->held_from_ns)};
    g_autoptr (GArray) due = next_batch (&from_the_first);
    return due != NULL;
}

EcfsDeletions *ecfs_deletions_new (EcfsArchive *archive)
{
    EcfsDeletions *self = g_new0 (EcfsDeletions, 1);
    self->archive = archive;
    self->sweeps = g_ptr_array_new_with_free_func (sweep_free);
    return self;
}

void ecfs_deletions_begin (EcfsDeletions *self, int64_t held_from_ns)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (self->archive);
    for (size_t i = 0; i < n_endpoints; i++) {
        Sweep *one = sweep_of (self, i);
        atomic_store (&one->held_from_ns, held_from_ns);
        if (one->running && atomic_load (&one->ended))
            sweep_join (one);
        if (one->running || retained_us (one) == ECFS_RETAIN_ALWAYS || ecfs_now_us () < one->rest_us ||
            !ecfs_archive_reaches (one->endpoint) ||
            !ecfs_lineage_may_delete (ecfs_archive_lineage (self->archive), i) || !has_due (one))
            continue;
        atomic_store (&one->ended, false);
        one->running = pthread_create (&one->thread, NULL, sweep, one) == 0; /* else it is tried again */
    }
}

void ecfs_deletions_free (EcfsDeletions *self)
{
    if (self == NULL)
        return;
    g_ptr_array_unref (self->sweeps);
    g_free (self);
}
