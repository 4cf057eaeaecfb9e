#include "verbs/drain.h"

#include "archive/common.h"
#include "check/check.h"
#include "object/placement.h"
#include "verbs/status.h"

#include <inttypes.h>

#define PATIENCE_US   5000000 /* with endpoints that do not answer */
#define TICK_US       200000
#define PROBLEMS_TOLD 20
#define PAST_AT_ONCE  256
#define MAX_IDLE      3 /* rounds in which nothing was moved although nothing failed */

typedef struct Drain {
    EcfsArchive *archive;
    const EcfsDrainHere *what;
    const EcfsArchiveEndpoint *endpoint;
    bool *towards; /* by position of endpoints: who is to take what it can */
    size_t n_towards;
    EcfsTally tally;
    uint64_t wire_before;
    /* Of a round: */
    uint64_t n_at[ECFS_CODEC_MAX_N + 2]; /* objects that can lose so many endpoints, and one less than none */
    int level;                           /* those that are moved now */
    EcfsHolding holding;
    uint64_t n_moved;
    uint64_t n_lost;    /* objects of the past that go with the endpoint */
    GHashTable *failed; /* int64_t of objects that could not be moved */
    GError *error;      /* the catalog cannot be read */
} Drain;

/* What the endpoint holds */

void ecfs_holding_init (EcfsHolding *self, EcfsArchive *archive, int64_t endpoint)
{
    *self = (EcfsHolding){.archive = archive, .catalog = ecfs_archive_catalog (archive), .endpoint = endpoint};
}

void ecfs_holding_clear (EcfsHolding *self)
{
    g_clear_pointer (&self->stripes, g_array_unref);
    g_clear_pointer (&self->past, g_ptr_array_unref);
}

static bool load_next (EcfsHolding *self, GError **error)
{
    bool more = true;
    while (more && (self->stripes == NULL || self->next >= self->stripes->len)) {
        g_clear_pointer (&self->stripes, g_array_unref);
        self->next = 0;
        self->stripes = ecfs_catalog_stripes_at (self->catalog, self->endpoint, &self->after, &more, error);
        if (self->stripes == NULL)
            return false;
    }
    self->ended = self->next >= self->stripes->len;
    return true;
}

static EcfsObjectRow *next_present (EcfsHolding *self, GError **error)
{
    while (!self->ended && load_next (self, error)) {
        if (self->ended)
            break;
        g_autoptr (GError) why = NULL;
        int64_t id = g_array_index (self->stripes, EcfsStripeAt, self->next).object;
        while (self->next < self->stripes->len && g_array_index (self->stripes, EcfsStripeAt, self->next).object == id)
            self->next++;
        EcfsObjectRow *object = ecfs_catalog_object (self->catalog, id, &why);
        if (object != NULL)
            return object;
        if (why->code != ENOENT) { /* deleted meanwhile */
            g_propagate_error (error, g_steal_pointer (&why));
            return NULL;
        }
    }
    return NULL;
}

static bool has_stripe_at (const EcfsObjectRow *object, int64_t endpoint)
{
    for (guint i = 0; i < object->stripes->len; i++)
        if (g_array_index (object->stripes, EcfsStripeRow, i).endpoint == endpoint)
            return true;
    return false;
}

static EcfsObjectRow *next_past (EcfsHolding *self, GError **error)
{
    while (!self->past_ended) {
        if (self->past == NULL || self->next >= self->past->len) {
            g_clear_pointer (&self->past, g_ptr_array_unref);
            self->next = 0;
            self->past = ecfs_archive_past_objects (self->archive, self->after_past, PAST_AT_ONCE, error);
            self->past_ended = self->past == NULL || self->past->len == 0;
            continue;
        }
        const EcfsObjectRow *object = g_ptr_array_index (self->past, self->next++);
        self->after_past = object->id;
        if (!has_stripe_at (object, self->endpoint))
            continue;
        if (!ecfs_archive_past_is_lost (self->archive, object, self->endpoint))
            return ecfs_object_row_copy (object);
        self->n_lost++;
    }
    return NULL;
}

EcfsObjectRow *ecfs_holding_next (EcfsHolding *self, GError **error)
{
    GError *why = NULL;
    EcfsObjectRow *object = next_present (self, &why);
    if (object != NULL || why == NULL)
        return object != NULL ? object : next_past (self, error);
    g_propagate_error (error, why);
    return NULL;
}

int ecfs_object_guarantee (EcfsArchive *archive, const EcfsObjectRow *object)
{
    bool present[ECFS_CODEC_MAX_N] = {0};
    size_t holder[ECFS_CODEC_MAX_N] = {0};
    const EcfsCodec *codec = ecfs_archive_codec (archive, object->code, NULL); /* who moves it tells */
    for (guint i = 0; codec != NULL && i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        if (stripe->index >= ecfs_codec_n (codec))
            continue;
        holder[stripe->index] = (size_t) stripe->endpoint;
        present[stripe->index] = ecfs_archive_reaches (ecfs_archive_endpoint_by_id (archive, stripe->endpoint));
    }
    return codec == NULL ? -1 : ecfs_holders_guarantee (codec, present, holder);
}

bool ecfs_endpoint_is_empty (EcfsArchive *archive, const EcfsArchiveEndpoint *endpoint, bool *ret_empty, GError **error)
{
    EcfsHolding holding;
    uint64_t n_announced;
    GError *why = NULL;
    if (!ecfs_catalog_announced_at (ecfs_archive_catalog (archive), endpoint->id, &n_announced, error))
        return false;
    ecfs_holding_init (&holding, archive, endpoint->id);
    g_autoptr (EcfsObjectRow) first = ecfs_holding_next (&holding, &why);
    ecfs_holding_clear (&holding);
    *ret_empty = first == NULL && n_announced == 0;
    if (why == NULL)
        return true;
    g_propagate_error (error, why);
    return false;
}

/* One round: what there is, then level by level */

static bool has_failed (const Drain *self, const EcfsObjectRow *object)
{
    return g_hash_table_contains (self->failed, &object->id);
}

static bool tick (void *user)
{
    Drain *self = user;
    self->tally.wire_bytes = ecfs_archive_wire_bytes (self->archive) - self->wire_before;
    return ecfs_tally_tick (&self->tally);
}

/* Counts what is to be moved; *ret_n objects, without those that failed before. */
static bool look (Drain *self, uint64_t *ret_n, GError **error)
{
    memset (self->n_at, 0, sizeof self->n_at);
    *ret_n = 0;
    ecfs_holding_init (&self->holding, self->archive, self->endpoint->id);
    for (;;) {
        g_autoptr (EcfsObjectRow) object = ecfs_holding_next (&self->holding, &self->error);
        if (object == NULL || !tick (self))
            break;
        if (has_failed (self, object))
            continue;
        self->n_at[ecfs_object_guarantee (self->archive, object) + 1]++;
        (*ret_n)++;
    }
    self->n_lost = self->holding.n_lost;
    ecfs_holding_clear (&self->holding);
    if (self->error == NULL)
        return !self->tally.cancelled || ecfs_fail (error, ECANCELED, "cancelled");
    g_propagate_error (error, g_steal_pointer (&self->error));
    return false;
}

static EcfsRepairTask *make_task (const Drain *self, const EcfsObjectRow *object)
{
    EcfsRepairTask *task = g_new0 (EcfsRepairTask, 1);
    task->object = object->id;
    task->order.only_named = true;
    task->order.towards = self->towards;
    task->order.n_towards = self->n_towards;
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        if (stripe->endpoint != self->endpoint->id || stripe->index >= ECFS_CODEC_MAX_N)
            continue;
        task->order.instance[stripe->index] = stripe->instance;
        task->order.moved[stripe->index] = true;
    }
    return task;
}

static EcfsRepairTask *next_task (void *user)
{
    Drain *self = user;
    for (;;) {
        g_autoptr (EcfsObjectRow) object =
            self->error != NULL ? NULL : ecfs_holding_next (&self->holding, &self->error);
        if (object == NULL)
            return NULL;
        if (!has_failed (self, object) && ecfs_object_guarantee (self->archive, object) == self->level)
            return make_task (self, object);
    }
}

/* Whatever was met first: of what was deleted meanwhile nothing is to be moved. */
static bool is_gone (const Drain *self, const EcfsRepairTask *task)
{
    uint64_t ino;
    g_autoptr (GError) why = NULL;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    g_autoptr (EcfsObjectRow) row = ecfs_catalog_object (catalog, task->object, &why);
    if (row == NULL || ecfs_object_is_past (task->object))
        return row == NULL && why->code == ENOENT;
    return !ecfs_catalog_object_file (catalog, task->object, &ino, &why) && why->code == ENOENT;
}

static void note_failed (Drain *self, EcfsRepairTask *task)
{
    g_hash_table_add (self->failed, g_memdup2 (&task->object, sizeof task->object));
    if (g_hash_table_size (self->failed) <= PROBLEMS_TOLD)
        ecfs_tally_failed (&self->tally, g_steal_pointer (&task->error));
    else
        self->tally.progress.n_failed++;
}

static void task_done (void *user, EcfsRepairTask *task)
{
    Drain *self = user;
    bool changed = task->error != NULL && (task->error->code == ESTALE || is_gone (self, task)); /* looked at again */
    if (task->error == NULL) {
        self->tally.progress.n_done++;
        self->n_moved++;
    } else if (!changed && !self->tally.cancelled) {
        note_failed (self, task);
    }
    self->tally.progress.bytes_done += task->order.written_bytes;
    g_clear_error (&task->error);
    g_free (task);
}

static bool move_level (Drain *self, int level, GError **error)
{
    const EcfsRepairs repairs = {.next = next_task, .done = task_done, .tick = tick, .user = self};
    if (self->n_at[level + 1] == 0)
        return true;
    self->level = level;
    ecfs_holding_init (&self->holding, self->archive, self->endpoint->id);
    ecfs_repair_here (self->archive, &repairs);
    ecfs_holding_clear (&self->holding);
    if (self->error != NULL) {
        g_propagate_error (error, g_steal_pointer (&self->error));
        return false;
    }
    return !self->tally.cancelled || ecfs_fail (error, ECANCELED, "cancelled");
}

/* What cannot be read without the endpoint comes first where it is there, else last: then it cannot be moved. */
static bool move_all (Drain *self, GError **error)
{
    bool here = ecfs_archive_reaches (self->endpoint);
    if (here && !move_level (self, -1, error))
        return false;
    for (int level = 0; level <= ECFS_CODEC_MAX_N; level++)
        if (!move_level (self, level, error))
            return false;
    return here || move_level (self, -1, error);
}

/* What was placed there before it was to be drained may be on its way still: that is asked before what has arrived. */
static bool run (Drain *self, GError **error)
{
    for (unsigned n_idle = 0; n_idle <= MAX_IDLE;) {
        uint64_t n_announced, n_left;
        if (!ecfs_catalog_announced_at (ecfs_archive_catalog (self->archive), self->endpoint->id, &n_announced,
                                        error) ||
            !look (self, &n_left, error))
            return false;
        if (n_left == 0 && n_announced == 0)
            return true;
        if (self->endpoint->state == ECFS_ENDPOINT_ACTIVE)
            return ecfs_fail (error, ECANCELED, "endpoint %s was made active meanwhile", self->endpoint->name);
        self->n_moved = 0;
        self->tally.progress.n_found = self->tally.progress.n_done + g_hash_table_size (self->failed) + n_left;
        if (n_left == 0 && !tick (self))
            return ecfs_fail (error, ECANCELED, "cancelled");
        if (n_left == 0)
            g_usleep (TICK_US);
        else if (!move_all (self, error))
            return false;
        n_idle = n_left > 0 && self->n_moved == 0 ? n_idle + 1 : 0;
    }
    return ecfs_fail (error, EAGAIN, "what endpoint %s holds keeps changing: run this again later",
                      self->endpoint->name);
}

/* Beginning and ending */

bool *ecfs_endpoint_flags (EcfsArchive *archive, const char *const *names, size_t n, GError **error)
{
    g_autofree bool *flags = g_new0 (bool, n + 1);
    for (size_t i = 0; names != NULL && names[i] != NULL; i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_named (archive, names[i], error);
        if (endpoint == NULL)
            return NULL;
        size_t position = ecfs_archive_position (archive, endpoint);
        if (position < n)
            flags[position] = true;
    }
    return g_steal_pointer (&flags);
}

static bool begin (Drain *self, GError **error)
{
    self->endpoint = ecfs_archive_endpoint_named (self->archive, self->what->name, error);
    self->n_towards = ecfs_archive_n_endpoints (self->archive);
    if (self->endpoint != NULL)
        self->towards = ecfs_endpoint_flags (self->archive, self->what->towards, self->n_towards, error);
    if (self->towards == NULL ||
        !ecfs_archive_set_endpoint_state (self->archive, self->what->name, ECFS_ENDPOINT_DRAINING, error))
        return false;
    ecfs_archive_probe (self->archive, PATIENCE_US);
    return true;
}

/* What cannot be moved nor rebuilt of the past holds nothing up. */
static void tell_lost (Drain *self)
{
    GError *lost = NULL;
    if (self->n_lost == 0)
        return;
    (void) !ecfs_fail (&lost, EIO,
                       "history: %" PRIu64
                       " objects cannot be rebuilt without endpoint %s, which does not answer: what "
                       "only the past has in them is lost with it",
                       self->n_lost, self->what->name);
    ecfs_tally_warn (&self->tally, lost);
}

static bool end (Drain *self, bool ran, GError *why, GError **error)
{
    if (ran)
        tell_lost (self);
    uint64_t n_failed = self->tally.progress.n_failed;
    g_autoptr (GError) told = NULL;
    bool clean = ecfs_tally_end (&self->tally, "were not moved", &told);
    if (!ran) {
        g_propagate_error (error, why);
        return false;
    }
    return clean || (n_failed == 0 ? ecfs_fail (error, told->code, "%s", told->message)
                                   : ecfs_fail (error, EIO,
                                                "%" PRIu64 " objects could not be moved off endpoint %s, which stays "
                                                "draining: add an endpoint or make room, and run this again",
                                                n_failed, self->what->name));
}

bool ecfs_drain_here (EcfsArchive *archive, const EcfsDrainHere *what, GError **error)
{
    GError *why = NULL;
    Drain self = {.archive = archive,
                  .what = what,
                  .tally = {.transfer = what->transfer},
                  .wire_before = ecfs_archive_wire_bytes (archive),
                  .failed = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL)};
    bool ran = begin (&self, &why) && run (&self, &why) && ecfs_catalog_barrier (ecfs_archive_catalog (archive), &why);
    bool drained = end (&self, ran, why, error);
    g_hash_table_unref (self.failed);
    g_free (self.towards);
    return drained;
}

bool ecfs_drain (Ecfs *self, const char *name, const char *const *towards, const EcfsTransferOptions *transfer,
                 GError **error)
{
    const char *directory = ecfs_archive_directory (self->archive);
    const EcfsDrainHere what = {.name = name, .towards = towards, .transfer = transfer};
    if (!ecfs_check_leads (self, error))
        return false;
    return self->mounted ? ecfs_drain_mounted (directory, &what, error) : ecfs_drain_here (self->archive, &what, error);
}
