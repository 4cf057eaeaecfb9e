/* What was found to be wrong: told by object, the most endangered first, and repaired. */
#include "fsck/fsck_priv.h"
#include "object/placement.h"
#include "verbs/status.h"
#include "wire/wire.h"

#define SPARES_MOST  256 /* that are read for one object */
#define TOLD_AT_ONCE 256 /* stripes that are put into the queue of repairs in one request to a mount */

typedef struct Repairing {
    EcfsFsckRun *run;
    EcfsSpoolDamage last; /* that was begun */
    GArray *stale;        /* of Stale: what is said to be about something that has changed */
    GError *error;        /* the spool's or the catalog's */
} Repairing;

typedef struct Stale {
    EcfsSpoolDamage damage;
    unsigned n_stored;
    uint64_t read_bytes, written_bytes;
    GError *error;
} Stale;

/* Damages */

static void damage_clear (EcfsDamage *damage)
{
    for (unsigned i = 0; i < damage->n_stripes; i++)
        g_free (damage->stripes[i].text);
    damage->n_stripes = 0;
}

/* Whether the catalog still has the stripe that was looked at; @now NULL: the object is gone. */
static bool is_current (const EcfsObjectRow *now, unsigned index, uint64_t instance)
{
    uint64_t found = 0;
    for (guint i = 0; now != NULL && i < now->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (now->stripes, EcfsStripeRow, i);
        if (stripe->index == index)
            found = stripe->instance;
    }
    return now != NULL && found == instance;
}

/* Takes the fault's text. */
static void add_fault (const EcfsFsckRun *self, EcfsDamage *damage, EcfsSpoolFault *fault)
{
    size_t position = ecfs_fsck_position (self, fault->endpoint);
    EcfsFaultyStripe *stripe = &damage->stripes[damage->n_stripes++];
    *stripe = (EcfsFaultyStripe){.index = fault->index,
                                 .fault = (EcfsStripeFault) fault->fault,
                                 .instance = fault->instance,
                                 .position = position,
                                 .text = g_steal_pointer (&fault->text)};
    damage->n_lost += stripe->fault != ECFS_STRIPE_UNKNOWN;
    if (stripe->fault == ECFS_STRIPE_UNKNOWN && stripe->text == NULL) /* as its endpoint said of others */
        stripe->text = g_strdup (self->silences[MIN (position, self->n_endpoints)]);
}

/* Endpoints that may vanish with the object still readable from what is fine; where it is not, marks what helps. */
static int guarantee_of (const EcfsFsckRun *self, const EcfsCodec *codec, const EcfsObjectRow *now, EcfsDamage *damage)
{
    bool present[ECFS_CODEC_MAX_N] = {0};
    size_t holder[ECFS_CODEC_MAX_N] = {0};
    for (guint i = 0; i < now->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (now->stripes, EcfsStripeRow, i);
        present[stripe->index] = true;
        holder[stripe->index] = ecfs_fsck_position (self, stripe->endpoint);
    }
    for (unsigned i = 0; i < damage->n_stripes; i++)
        present[damage->stripes[i].index] = false;
    int guarantee = ecfs_holders_guarantee (codec, present, holder);
    for (unsigned i = 0; guarantee < 0 && i < damage->n_stripes; i++) {
        unsigned index = damage->stripes[i].index;
        present[index] = true;
        damage->stripes[i].helps = ecfs_holders_guarantee (codec, present, holder) >= 0;
        present[index] = false;
    }
    return guarantee;
}

/* The object as it is now; NULL without @error: it is gone, or makes no sense, which was told. */
static EcfsObjectRow *object_now (EcfsFsckRun *self, int64_t object, GError **error)
{
    g_autoptr (GError) why = NULL;
    EcfsObjectRow *now = ecfs_catalog_object (ecfs_archive_catalog (self->archive), object, &why);
    if (now == NULL && why->code != ENOENT && why->code != EBADMSG)
        g_propagate_error (error, g_steal_pointer (&why));
    return now;
}

/* A log or pack of which no file has anything is on its way out, and nobody misses its stripes. */
static bool is_needed (const EcfsFsckRun *self, const EcfsObjectRow *now)
{
    uint64_t n_files;
    return ecfs_object_is_past (now->id) || now->kind == ECFS_OBJECT_WHOLE ||
           !ecfs_catalog_object_files (ecfs_archive_catalog (self->archive), now->id, &n_files, NULL) || n_files > 0;
}

/* Of what was spooled about an object, what is still so. 1; 0: nothing, or it makes no sense; -1. To be cleared. */
static int load_damage (EcfsFsckRun *self, const EcfsUuid *uuid, int64_t object, EcfsDamage *ret_damage, GError **error)
{
    GError *why = NULL;
    ret_damage->n_stripes = ret_damage->n_lost = 0;
    ret_damage->uuid = *uuid;
    ret_damage->object = object;
    g_autoptr (EcfsObjectRow) now = object_now (self, object, &why);
    g_autoptr (GArray) faults = why != NULL ? NULL : ecfs_spool_faults (self->spool, uuid, &why);
    const EcfsCodec *codec =
        now == NULL || !is_needed (self, now) ? NULL : ecfs_archive_codec (self->archive, now->code, NULL);
    if (faults == NULL) {
        g_propagate_error (error, why);
        return -1;
    }
    for (guint i = 0; codec != NULL && i < faults->len; i++) {
        EcfsSpoolFault *fault = &g_array_index (faults, EcfsSpoolFault, i);
        if (fault->index < ecfs_codec_n (codec) && is_current (now, fault->index, fault->instance))
            add_fault (self, ret_damage, fault);
    }
    if (ret_damage->n_stripes > 0)
        ret_damage->guarantee = guarantee_of (self, codec, now, ret_damage);
    return ret_damage->n_stripes > 0;
}

static bool is_gone (const EcfsFaultyStripe *stripe)
{
    return stripe->fault == ECFS_STRIPE_GONE || stripe->fault == ECFS_STRIPE_GIVEN_UP;
}

static void count (EcfsFsckRun *self, const EcfsDamage *damage)
{
    for (unsigned i = 0; i < damage->n_stripes; i++) {
        const EcfsFaultyStripe *stripe = &damage->stripes[i];
        EcfsFsckEndpoint *at = &self->endpoints[MIN (stripe->position, self->n_endpoints)];
        bool gone = is_gone (stripe);
        bool damaged = stripe->fault == ECFS_STRIPE_SIZE || stripe->fault == ECFS_STRIPE_DAMAGED ||
                       stripe->fault == ECFS_STRIPE_FORGED;
        bool unknown = stripe->fault == ECFS_STRIPE_UNKNOWN, is_past = ecfs_object_is_past (damage->object);
        self->sums.n_absent += !is_past && stripe->fault == ECFS_STRIPE_ABSENT;
        self->sums.n_gone += !is_past && gone;
        self->sums.n_damaged += !is_past && damaged;
        self->sums.n_past_missing += is_past && !unknown;
        self->sums.n_unknown += unknown;
        at->n_gone += gone;
        at->n_damaged += damaged;
        at->n_unknown += unknown;
    }
}

/* Goes over all that is spooled; what is to be told comes to its place in the order. */
static bool judge_all (EcfsFsckRun *self, GError **error)
{
    EcfsSpoolDamage one = {.urgency = 0};
    int found;
    while ((found = ecfs_spool_next_faulty (self->spool, &one.uuid, &one.object, error)) == 1) {
        EcfsDamage damage;
        int loaded = load_damage (self, &one.uuid, one.object, &damage, error);
        if (loaded < 0 || !ecfs_fsck_goes_on (self, error))
            return false;
        count (self, &damage);
        one.urgency = damage.guarantee;
        one.is_lost = damage.n_lost > 0;
        /* What only waits for endpoints, and can be read without them, is told with these. */
        bool is_told = loaded == 1 && (damage.n_lost > 0 || damage.guarantee < 0);
        self->sums.n_damages += is_told;
        self->sums.n_repairable += is_told && one.is_lost;
        damage_clear (&damage);
        if (is_told && !ecfs_spool_add_damage (self->spool, &one, error))
            return false;
    }
    return found == 0;
}

static void tell_silences (const EcfsFsckRun *self)
{
    for (size_t i = 0; i <= self->n_endpoints; i++)
        if (self->silences[i] != NULL && self->endpoints[i].n_unknown > 0)
            ecfs_fsck_tell (self, ecfs_fsck_tell_endpoint (self->archive, i < self->n_endpoints ? i : SIZE_MAX,
                                                           &self->endpoints[i], self->silences[i]));
}

/* Repair */

static char *reason_of (const EcfsFaultyStripe *stripe)
{
    if (stripe->text != NULL)
        return g_strdup (stripe->text);
    return g_strdup (stripe->fault == ECFS_STRIPE_GONE       ? "its endpoint does not have it any more"
                     : stripe->fault == ECFS_STRIPE_GIVEN_UP ? "its endpoint was given up"
                                                             : "it has another size");
}

/* The catalog shows by itself which stripes were never stored, or are at an endpoint that was given up: nobody doubts
 * that before they are rebuilt elsewhere. */
static void note_left (EcfsFsckRun *self, const EcfsDamage *damage, bool was_tried)
{
    for (unsigned i = 0; i < damage->n_stripes && self->left->len < ECFS_REPAIRS_MAX; i++) {
        const EcfsFaultyStripe *stripe = &damage->stripes[i];
        if (stripe->fault == ECFS_STRIPE_UNKNOWN || stripe->fault == ECFS_STRIPE_ABSENT ||
            (stripe->fault == ECFS_STRIPE_GIVEN_UP && !was_tried))
            continue;
        const EcfsSighting sighting = {.object = damage->uuid,
                                       .index = (uint16_t) stripe->index,
                                       .instance = stripe->instance,
                                       .gone = is_gone (stripe),
                                       .lies = stripe->fault == ECFS_STRIPE_FORGED,
                                       .reason = reason_of (stripe)};
        g_array_append_val (self->left, sighting);
    }
}

/* From the queue of repairs `status` and `wait` know, and a mount tries again. */
static void put_into_queue (EcfsFsckRun *self, const GArray *sightings)
{
    for (guint i = 0, n; i < sightings->len; i += n) {
        unsigned n_queued;
        g_autoptr (GError) error = NULL;
        g_autoptr (GArray) some = g_array_new (FALSE, FALSE, sizeof (EcfsSighting)); /* of borrowed text */
        n = MIN (sightings->len - i, TOLD_AT_ONCE);
        g_array_append_vals (some, &g_array_index (sightings, EcfsSighting, i), n);
        if (self->writer == NULL || self->writer->mounted
                ? ecfs_sightings_hand_over (self->archive, some, &error)
                : ecfs_sightings_queue (ecfs_archive_catalog (self->writer->archive), some, &n_queued, &error))
            continue;
        g_warning ("%s; 'ecfs status' and 'ecfs wait' do not know of all that is left", error->message);
        return;
    }
}

static void conclude (EcfsFsckRun *self, const EcfsDamage *damage, EcfsDamageResult result, const EcfsRepairTask *task)
{
    bool was_tried = result == ECFS_DAMAGE_LEFT;
    bool queues = self->is_led_elsewhere || (self->what->flags & ECFS_FSCK_QUEUE) != 0;
    if (was_tried || (result == ECFS_DAMAGE_FOUND && queues))
        note_left (self, damage, was_tried);
    self->sums.results[result]++;
    self->progress.n_done++;
    if (task != NULL) {
        self->sums.n_rebuilt += task->order.n_stored;
        self->sums.n_past_rebuilt += ecfs_object_is_past (damage->object) ? task->order.n_stored : 0;
        self->sums.n_rebuilt_objects += task->order.n_stored > 0;
        self->sums.read_bytes += task->order.read_bytes;
        self->sums.written_bytes += task->order.written_bytes;
    }
    ecfs_fsck_tell (self, ecfs_fsck_tell_damage (self->archive, damage, result, task));
}

/* A task and what it is about. */
typedef struct Attempt {
    EcfsRepairTask task; /* its data is this */
    EcfsSpoolDamage spooled;
    EcfsDamage damage;
} Attempt;

static void attempt_free (Attempt *attempt)
{
    damage_clear (&attempt->damage);
    ecfs_repair_task_clear (&attempt->task);
    g_free (attempt);
}

static void order (Attempt *attempt)
{
    attempt->task.object = attempt->damage.object;
    attempt->task.data = attempt;
    for (unsigned i = 0; i < attempt->damage.n_stripes; i++) {
        const EcfsFaultyStripe *stripe = &attempt->damage.stripes[i];
        if (stripe->fault == ECFS_STRIPE_UNKNOWN)
            continue;
        attempt->task.order.instance[stripe->index] = stripe->instance;
        attempt->task.order.gone[stripe->index] = is_gone (stripe) || stripe->fault == ECFS_STRIPE_FORGED;
    }
}

static bool is_forged (const EcfsDamage *damage, unsigned index)
{
    for (unsigned i = 0; i < damage->n_stripes; i++)
        if (damage->stripes[i].index == index && damage->stripes[i].fault == ECFS_STRIPE_FORGED)
            return true;
    return false;
}

static bool is_absent (const EcfsDamage *damage, unsigned index)
{
    for (unsigned i = 0; i < damage->n_stripes; i++)
        if (damage->stripes[i].index == index && damage->stripes[i].fault == ECFS_STRIPE_ABSENT)
            return true;
    return false;
}

/* What else there is of its stripes, at any endpoint; but for forged ones, which had the right digests, too. */
static bool find_spares (Repairing *self, Attempt *attempt)
{
    EcfsFsckRun *run = self->run;
    EcfsRepairTask *task = &attempt->task;
    for (size_t i = 0; i < run->n_endpoints; i++) {
        EcfsSpoolOrphan spare = {.kind = ECFS_SPOOL_SPARE,
                                 .endpoint = ecfs_archive_endpoint (run->archive, i)->id,
                                 .uuid = attempt->spooled.uuid};
        int64_t endpoint = spare.endpoint;
        int found;
        while ((found = ecfs_spool_next_orphan (run->spool, &spare, &self->error)) == 1 && spare.endpoint == endpoint &&
               ecfs_uuid_equal (&spare.uuid, &attempt->spooled.uuid)) {
            const EcfsStripeRow row = {
                .index = (uint16_t) spare.index, .instance = spare.instance, .endpoint = endpoint, .size = spare.size};
            bool wanted = spare.index < ECFS_CODEC_MAX_N &&
                          (task->order.instance[spare.index] != 0 || is_absent (&attempt->damage, spare.index));
            if (!wanted || is_forged (&attempt->damage, spare.index))
                continue;
            if (task->spares == NULL)
                task->spares = g_array_new (FALSE, FALSE, sizeof (EcfsStripeRow));
            if (task->spares->len < SPARES_MOST)
                g_array_append_val (task->spares, row);
        }
        if (found < 0)
            return false;
    }
    return true;
}

/* The next that is still so, NULL: there is none, or an error. */
static Attempt *next_attempt (Repairing *self)
{
    Attempt *attempt = g_new0 (Attempt, 1);
    while (self->error == NULL && ecfs_spool_next_damage (self->run->spool, &self->last, &self->error) == 1) {
        attempt->spooled = self->last;
        int found = load_damage (self->run, &self->last.uuid, self->last.object, &attempt->damage, &self->error);
        if (found == 1)
            return attempt;
        if (found == 0)
            conclude (self->run, &attempt->damage, ECFS_DAMAGE_CHANGED, NULL);
    }
    attempt_free (attempt);
    return NULL;
}

static EcfsRepairTask *next_task (void *user)
{
    Repairing *self = user;
    Attempt *attempt;
    while ((attempt = next_attempt (self)) != NULL && attempt->damage.n_lost == 0) {
        conclude (self->run, &attempt->damage, ECFS_DAMAGE_UNKNOWN, NULL);
        attempt_free (attempt);
    }
    if (attempt == NULL)
        return NULL;
    order (attempt);
    if (find_spares (self, attempt))
        return &attempt->task;
    attempt_free (attempt);
    return NULL;
}

static void task_done (void *user, EcfsRepairTask *task)
{
    Repairing *self = user;
    Attempt *attempt = task->data;
    if (task->error == NULL || task->error->code != ESTALE) {
        conclude (self->run, &attempt->damage, task->error == NULL ? ECFS_DAMAGE_REPAIRED : ECFS_DAMAGE_LEFT, task);
    } else {
        const Stale stale = {.damage = attempt->spooled,
                             .n_stored = task->order.n_stored,
                             .read_bytes = task->order.read_bytes,
                             .written_bytes = task->order.written_bytes,
                             .error = g_steal_pointer (&task->error)};
        g_array_append_val (self->stale, stale);
    }
    attempt_free (attempt);
}

/* What has changed is told by the catalog, once all that was done is written there: is anything lost as before? */
static bool conclude_stale (Repairing *self, GError **error)
{
    for (guint i = 0; i < self->stale->len; i++) {
        Stale *stale = &g_array_index (self->stale, Stale, i);
        EcfsDamage damage;
        EcfsRepairTask task = {.order = {.n_stored = stale->n_stored,
                                         .read_bytes = stale->read_bytes,
                                         .written_bytes = stale->written_bytes},
                               .error = stale->error};
        if (load_damage (self->run, &stale->damage.uuid, stale->damage.object, &damage, error) < 0)
            return false;
        conclude (self->run, &damage, damage.n_lost > 0 ? ECFS_DAMAGE_LEFT : ECFS_DAMAGE_CHANGED, &task);
        damage_clear (&damage);
    }
    return true;
}

static bool is_wanted (const EcfsFsckRun *self)
{
    return (self->what->flags & ECFS_FSCK_REPAIR) && self->is_sound && self->sums.n_repairable > 0 &&
           (self->what->confirm == NULL || self->what->confirm (self->what->user, self->sums.n_repairable));
}

static void leave_all (Repairing *self)
{
    Attempt *attempt;
    while ((attempt = next_attempt (self)) != NULL) {
        conclude (self->run, &attempt->damage, attempt->damage.n_lost > 0 ? ECFS_DAMAGE_FOUND : ECFS_DAMAGE_UNKNOWN,
                  NULL);
        attempt_free (attempt);
    }
}

static bool tick (void *user)
{
    return ecfs_fsck_tick (((Repairing *) user)->run);
}

static bool repair_all (Repairing *self, GError **error)
{
    EcfsFsckRun *run = self->run;
    const EcfsRepairs repairs = {.next = next_task, .done = task_done, .tick = tick, .user = self};
    if (run->writer->mounted)
        return ecfs_repair_mounted (ecfs_archive_directory (run->archive), &repairs, error);
    ecfs_repair_here (run->writer->archive, &repairs);
    return ecfs_catalog_barrier (ecfs_archive_catalog (run->writer->archive), error);
}

static bool repair (Repairing *self, GError **error)
{
    EcfsFsckRun *run = self->run;
    bool wanted = is_wanted (run);
    bool settles = run->back->len > 0 && (wanted || ecfs_fsck_may_repair (run));
    GError *why = NULL;
    bool open = (wanted || settles) && ecfs_fsck_open_writer (run, &why);
    run->is_led_elsewhere = g_error_matches (why, ECFS_ERROR, EBUSY);
    if (settles && (open || run->is_led_elsewhere))
        put_into_queue (run, run->back);
    if (!wanted || !open) {
        leave_all (self);
        put_into_queue (run, run->left);
        if (run->is_led_elsewhere && run->left->len > 0)
            g_prefix_error (&why, "what was found is queued for repair by who leads: ");
        if (why != NULL)
            g_propagate_error (error, why);
        return open || (!wanted && !settles);
    }
    bool done = repair_all (self, error);
    bool concluded = conclude_stale (self, done ? error : NULL);
    put_into_queue (run, run->left);
    return concluded && done && ecfs_fsck_goes_on (run, error);
}

static void stale_clear (gpointer data)
{
    g_clear_error (&((Stale *) data)->error);
}

bool ecfs_fsck_repair (EcfsFsckRun *self, GError **error)
{
    if (!judge_all (self, error))
        return false;
    tell_silences (self);
    ecfs_fsck_enter (self, "repair", self->sums.n_damages);
    if (!ecfs_fsck_goes_on (self, error))
        return false;
    Repairing repairing = {.run = self, .last = {.urgency = INT_MIN}};
    repairing.stale = g_array_new (FALSE, TRUE, sizeof (Stale));
    g_array_set_clear_func (repairing.stale, stale_clear);
    bool done = repair (&repairing, error);
    g_array_unref (repairing.stale);
    if (repairing.error == NULL)
        return done;
    if (done)
        g_propagate_error (error, repairing.error);
    else
        g_error_free (repairing.error);
    return false;
}
