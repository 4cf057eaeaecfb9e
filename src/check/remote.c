/*
 * Digests that endpoints make of their stripes. Each endpoint has a session of its own and a thread that waits for it;
 * one that has no hash tool, or whose session ended, is told once and not asked again.
 */
#include "check/check.h"
#include "object/layout.h"

#define TICK_US 200000
#define AT_ONCE 64 /* stripes, between two looks at the time */

typedef struct Session {
    EcfsRemoteHash *remote;
    EcfsEndpoint *endpoint;
    EcfsHasher *hasher; /* NULL: not yet, or none any more */
    bool is_over;
    size_t position;
} Session;

struct EcfsRemoteHash {
    size_t n;
    Session *sessions; /* by the position of endpoints; each is its job's while that runs */
    EcfsMutex lock;
    EcfsCond ended;
    unsigned n_pending;     /* jobs; guarded by lock */
    EcfsCheckBatch *batch;  /* that is asked about; immutable while jobs run */
    bool again;             /* those that were read; likewise */
    atomic_bool is_stopped; /* cancelled or late */
};

static bool goes_on (void *user)
{
    const Session *self = user;
    return !atomic_load (&self->remote->is_stopped);
}

EcfsRemoteHash *ecfs_remote_hash_new (EcfsArchive *archive)
{
    EcfsRemoteHash *self = g_new0 (EcfsRemoteHash, 1);
    self->n = ecfs_archive_n_endpoints (archive);
    self->sessions = g_new0 (Session, self->n);
    for (size_t i = 0; i < self->n; i++)
        self->sessions[i] =
            (Session){.remote = self, .endpoint = ecfs_archive_endpoint (archive, i)->endpoint, .position = i};
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->ended);
    return self;
}

void ecfs_remote_hash_free (EcfsRemoteHash *self)
{
    if (self == NULL)
        return;
    for (size_t i = 0; i < self->n; i++)
        ecfs_hasher_free (self->sessions[i].hasher);
    ecfs_cond_clear (&self->ended);
    ecfs_mutex_clear (&self->lock);
    g_free (self->sessions);
    g_free (self);
}

/* No answer is no damage: what is not told is read. */
static void end_session (Session *self, const GError *why)
{
    g_clear_pointer (&self->hasher, ecfs_hasher_free);
    if (why->code == ECANCELED)
        return;
    self->is_over = true;
    g_warning ("endpoint %s: %s; its stripes are read", ecfs_endpoint_name (self->endpoint), why->message);
}

/* Whether the digest of @checked is wanted from the endpoint at @position. */
static bool is_wanted (const EcfsRemoteHash *self, const EcfsCheckedStripe *checked, size_t position)
{
    if (checked->position != position || checked->is_left_out || checked->fault != ECFS_STRIPE_FINE ||
        checked->object->kind == ECFS_OBJECT_LOG) /* which grows */
        return false;
    return !self->again || (checked->digest != NULL && !checked->is_unchanged && atomic_load (&checked->is_settled));
}

static void take_digest (EcfsRemoteHash *self, EcfsCheckedStripe *checked, char *digest)
{
    if (!self->again) {
        checked->digest = digest;
        return;
    }
    if (g_strcmp0 (checked->digest, digest) != 0)
        g_clear_pointer (&checked->digest, g_free);
    g_free (digest);
}

/* Up to @n of them. */
static bool ask_some (Session *self, EcfsCheckedStripe **some, size_t n, GError **error)
{
    EcfsHashed files[AT_ONCE] = {{.size = 0}};
    char names[AT_ONCE][ECFS_STRIPE_NAME_SIZE];
    for (size_t i = 0; i < n; i++) {
        const EcfsStripeRow *stripe = some[i]->stripe;
        ecfs_stripe_name (&some[i]->object->uuid, stripe->index, stripe->instance, names[i]);
        files[i] = (EcfsHashed){.name = names[i], .size = stripe->size};
    }
    bool good = ecfs_hasher_ask (self->hasher, files, n, error);
    for (size_t i = 0; i < n; i++)
        take_digest (self->remote, some[i], files[i].digest);
    return good;
}

static bool ask_all (Session *self, GError **error)
{
    EcfsRemoteHash *remote = self->remote;
    const GArray *stripes = remote->batch->stripes;
    EcfsCheckedStripe *some[AT_ONCE];
    size_t n = 0;
    for (guint i = 0; i < stripes->len; i++) {
        EcfsCheckedStripe *checked = &g_array_index (stripes, EcfsCheckedStripe, i);
        if (is_wanted (remote, checked, self->position))
            some[n++] = checked;
        if (n == 0 || (n < AT_ONCE && i + 1 < stripes->len))
            continue;
        if (!goes_on (self))
            return true;
        if (self->hasher == NULL)
            self->hasher = ecfs_endpoint_hasher (self->endpoint, goes_on, self, error);
        if (self->hasher == NULL || !ask_some (self, some, n, error))
            return false;
        n = 0;
    }
    return true;
}

static void run_job (void *data)
{
    Session *self = data;
    EcfsRemoteHash *remote = self->remote;
    g_autoptr (GError) error = NULL;
    if (!ask_all (self, &error))
        end_session (self, error);
    ecfs_mutex_lock (&remote->lock);
    remote->n_pending--;
    ecfs_cond_signal (&remote->ended);
    ecfs_mutex_unlock (&remote->lock);
}

static void await (EcfsRemoteHash *self)
{
    ecfs_mutex_lock (&self->lock);
    while (self->n_pending > 0) {
        if (ecfs_cond_wait_until (&self->ended, &self->lock, ecfs_now_us () + TICK_US))
            continue;
        ecfs_mutex_unlock (&self->lock);
        const bool *is_late = self->batch->is_late;
        if (!self->batch->tick (self->batch->user) || (is_late != NULL && *is_late))
            atomic_store (&self->is_stopped, true);
        ecfs_mutex_lock (&self->lock);
    }
    ecfs_mutex_unlock (&self->lock);
}

static void ask (EcfsRemoteHash *self, EcfsCheckBatch *batch, bool again)
{
    g_autofree EcfsWorkers **workers = g_new0 (EcfsWorkers *, self->n + 1);
    self->batch = batch;
    self->again = again;
    for (size_t i = 0; i < self->n; i++) {
        if (self->sessions[i].is_over)
            continue;
        ecfs_mutex_lock (&self->lock);
        self->n_pending++;
        ecfs_mutex_unlock (&self->lock);
        workers[i] = ecfs_workers_new ("ecfs-hash", 1);
        ecfs_workers_push (workers[i], run_job, &self->sessions[i]);
    }
    await (self);
    for (size_t i = 0; i < self->n; i++)
        ecfs_workers_free (workers[i]);
}

void ecfs_remote_hash_ask (EcfsRemoteHash *self, EcfsCheckBatch *batch)
{
    ask (self, batch, false);
}

void ecfs_remote_hash_ask_again (EcfsRemoteHash *self, EcfsCheckBatch *batch)
{
    ask (self, batch, true);
    for (guint i = 0; i < batch->stripes->len; i++) {
        EcfsCheckedStripe *checked = &g_array_index (batch->stripes, EcfsCheckedStripe, i);
        bool asked = is_wanted (self, checked, checked->position) && goes_on (&self->sessions[checked->position]) &&
                     !self->sessions[checked->position].is_over;
        if (checked->digest != NULL && !checked->is_unchanged && !asked)
            g_clear_pointer (&checked->digest, g_free);
    }
}
