#include "upkeep/repairer.h"

#include "archive/past.h"
#include "archive/sightings.h"
#include "archive/standing.h"
#include "check/check.h"
#include "journal/sender.h"
#include "object/placement.h"
#include "upkeep/retries.h"
#include "util/lock.h"
#include "wire/wire.h"

#define LOOK_US       (1 * G_USEC_PER_SEC)
#define UNSTORED_US   (250 * 1000)           /* … while the journal does not name what was rebuilt */
#define HURRY_US      (2 * G_USEC_PER_SEC)   /* between two times that it is to be stored for that, … */
#define HURRY_BUSY_US (30 * G_USEC_PER_SEC)  /* … while more is being repaired */
#define QUIET_US      (1 * G_USEC_PER_SEC)   /* nobody has read for so long */
#define WALK_US       (600 * G_USEC_PER_SEC) /* between two looks at all objects for stripes that they lack, … */
#define WALK_LEAST_US (5 * G_USEC_PER_SEC)   /* … at least, and … */
#define WALK_SHARE    20                     /* … so many times as long as one takes */
#define WALK_BATCH    256
#define MOST_LACKING  4096 /* objects that are found in one walk */
#define MANY_REBUILT  4
#define TRICKLE       (1u << 20) /* bytes per second */
#define MOST_AT_ONCE  4
#define MEMORY_PART   4 /* of transfer_memory */
#define NO_RATE       (UINT64_C (1) << 62)
#define HAND_OVER_US  (60 * G_USEC_PER_SEC) /* between two tries of a mount that may not write */

/* What is granted by time: repairs stop for a while when it is used up. */
typedef struct Bucket {
    int64_t bytes; /* may be below 0, by a segment */
    int64_t filled_us;
} Bucket;

struct EcfsRepairer {
    EcfsArchive *archive;
    pthread_t thread;
    EcfsMutex lock;
    EcfsCond wake;
    bool stopping; /* guarded by lock, as all up to the next comment */
    bool hurried;
    uint64_t n_looks_begun, n_looks_ended; /* at what readers met */
    bool is_unqueued;                      /* by the last, as the catalog could not take it */
    EcfsCond looked;
    Bucket any, trickle; /* repair_rate, and what is left of it beside who works */
    EcfsRepairerFacts facts;
    /* Of the thread alone. */
    EcfsRetries *retries;
    GHashTable *lacking; /* set of int64_t: objects that lacked stripes at the last walk */
    GHashTable *past;    /* likewise of what only the past has */
    GHashTable *queued;  /* set of int64_t: objects that the queue has stripes of */
    int64_t walked_us;   /* when the last walk ended; 0: never */
    int64_t walk_took_us;
    uint64_t walked_lacking; /* how many lacked some then */
    int64_t past_us;         /* when the past is looked at again */
    int64_t counted_us;      /* when they were counted last, … */
    int64_t count_took_us;   /* … which takes so long */
    GByteArray *reachable;   /* by position: endpoints that were up at the last look */
    bool queue_full;         /* told; until something goes in again, or is handed over */
    GArray *met;             /* of EcfsSighting, that are to be handed over or queued; NULL: none */
    int64_t hand_over_us;    /* not before */
    GPtrArray *jobs;         /* of Job, the most endangered first: what this round is about */
    guint next_job;
    GHashTable *listed;        /* set of int64_t: objects that jobs are about */
    GArray *unstored;          /* of Rebuilt, which the journal does not name yet */
    uint64_t hurried_sequence; /* up to which it was to be stored at the last time, … */
    int64_t hurried_us;        /* … which was then */
};

/* An object that is to be repaired. */
typedef struct Job {
    EcfsRepairTask task; /* its first member */
    EcfsRepairPace pace;
    EcfsRepairer *repairer;
    int guarantee;
    bool waits; /* for others that work */
    int64_t began_us;
    char *path;
} Job;

/* What is told of an object when the journal names it. */
typedef struct Rebuilt {
    uint64_t sequence; /* that the journal has to reach */
    unsigned n_stored;
    bool is_whole;
    char *path; /* owned */
} Rebuilt;

static void rebuilt_clear (gpointer data)
{
    g_free (((Rebuilt *) data)->path);
}

static void job_free (gpointer data)
{
    Job *job = data;
    g_clear_error (&job->task.error);
    g_free (job->path);
    g_free (job);
}

static bool is_stopping (EcfsRepairer *self)
{
    ecfs_mutex_lock (&self->lock);
    bool stopping = self->stopping;
    ecfs_mutex_unlock (&self->lock);
    return stopping;
}

static bool goes_on (void *user)
{
    return !is_stopping (user);
}

/* Precedence of others */

static bool is_quiet (EcfsArchive *archive)
{
    return ecfs_archive_is_quiet (archive, QUIET_US);
}

static void fill (Bucket *bucket, uint64_t rate, int64_t now_us)
{
    double grown = (double) (now_us - bucket->filled_us) / G_USEC_PER_SEC * (double) rate;
    bucket->bytes = (int64_t) MIN ((double) bucket->bytes + grown, (double) rate);
    bucket->filled_us = now_us;
}

static bool is_held (void *user)
{
    const Job *job = user;
    EcfsRepairer *self = job->repairer;
    const EcfsConfig *config = ecfs_archive_config (self->archive);
    uint64_t rate = config->repair_rate == 0 ? NO_RATE : config->repair_rate;
    bool waits = job->waits && !is_quiet (self->archive);
    int64_t now_us = ecfs_now_us ();
    ecfs_mutex_lock (&self->lock);
    fill (&self->any, rate, now_us);
    fill (&self->trickle, MIN (rate, TRICKLE), now_us);
    bool held = !self->stopping && (self->any.bytes <= 0 || (waits && self->trickle.bytes <= 0));
    ecfs_mutex_unlock (&self->lock);
    return held;
}

static void spend (void *user, uint64_t bytes)
{
    EcfsRepairer *self = ((const Job *) user)->repairer;
    ecfs_mutex_lock (&self->lock);
    self->any.bytes -= (int64_t) bytes;
    self->trickle.bytes = MAX (self->trickle.bytes - (int64_t) bytes, -(int64_t) bytes);
    ecfs_mutex_unlock (&self->lock);
}

/* What is slow for others' sake holds up nothing that does not wait for them. */
static unsigned most_objects (void *user)
{
    const EcfsRepairer *self = user;
    const Job *next = self->next_job < self->jobs->len ? g_ptr_array_index (self->jobs, self->next_job) : NULL;
    return is_quiet (self->archive) || (next != NULL && !next->waits) ? MOST_AT_ONCE : 1;
}

/* What is to be done */

static bool is_due (EcfsRepairer *self, int64_t object)
{
    return ecfs_retries_is_due (self->retries, object, ecfs_now_us ());
}

/* Endpoints that may still vanish for an object without the stripes that are @damaged; -1: it is not readable. */
static int guarantee_of (EcfsArchive *archive, const EcfsObjectRow *object, const EcfsCodec *codec, const bool *damaged)
{
    EcfsStanding standing;
    ecfs_object_standing (archive, object, codec, object->size, damaged, &standing);
    return ecfs_holders_guarantee (codec, standing.reachable, standing.holder);
}

/* What is said to be repaired: the path of a file that has the object; NULL: there is none any more. */
static char *name_of (EcfsCatalog *catalog, const EcfsObjectRow *object)
{
    uint64_t ino;
    if (ecfs_object_is_past (object->id))
        return ecfs_past_name (&object->uuid);
    return ecfs_catalog_object_file (catalog, object->id, &ino, NULL) ? ecfs_catalog_path (catalog, ino) : NULL;
}

/* A job for one object, whose queued stripes are rows[0] to rows[n - 1]; n may be 0. */
static void add_job (EcfsRepairer *self, int64_t object, const EcfsRepairRow *rows, guint n)
{
    bool damaged[ECFS_CODEC_MAX_N] = {false};
    EcfsArchive *archive = self->archive;
    if (g_hash_table_contains (self->listed, &object))
        return;
    g_autoptr (EcfsObjectRow) row = ecfs_catalog_object (ecfs_archive_catalog (archive), object, NULL);
    const EcfsCodec *codec = row == NULL ? NULL : ecfs_archive_codec (archive, row->code, NULL);
    char *name = codec == NULL ? NULL : name_of (ecfs_archive_catalog (archive), row);
    if (name == NULL) {
        ecfs_retries_remove (self->retries, object); /* deleted since, or fsck tells what is wrong with it */
        return;
    }
    Job *job = g_new0 (Job, 1);
    job->repairer = self;
    job->task = (EcfsRepairTask){.object = object, .pace = &job->pace, .data = job};
    for (guint i = 0; i < n; i++) {
        damaged[rows[i].index] = true;
        if (rows[i].index >= ecfs_codec_n (codec))
            continue;
        job->task.order.instance[rows[i].index] = rows[i].instance;
        job->task.order.gone[rows[i].index] = rows[i].gone;
    }
    job->pace =
        (EcfsRepairPace){.held = is_held,
                         .spent = spend,
                         .most_bytes = ecfs_archive_config (archive)->transfer_memory / (MEMORY_PART * MOST_AT_ONCE),
                         .user = job};
    job->guarantee = guarantee_of (archive, row, codec, damaged);
    job->waits = job->guarantee > 0 || ecfs_object_is_past (object) || ecfs_retries_has_failed (self->retries, object);
    job->path = name;
    g_ptr_array_add (self->jobs, job);
    g_hash_table_add (self->listed, g_memdup2 (&object, sizeof object));
}

/* False: the queue cannot be read. */
static bool add_damaged (EcfsRepairer *self)
{
    g_hash_table_remove_all (self->queued);
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) rows = ecfs_catalog_repairs (ecfs_archive_catalog (self->archive), 0, &error);
    if (rows == NULL)
        g_info ("%s", error->message); /* tried again; the catalog says what is wrong with it */
    for (guint i = 0, next; rows != NULL && i < rows->len; i = next) {
        const EcfsRepairRow *row = &g_array_index (rows, EcfsRepairRow, i);
        for (next = i + 1; next < rows->len && g_array_index (rows, EcfsRepairRow, next).object == row->object;)
            next++;
        g_hash_table_remove (self->lacking, &row->object);
        g_hash_table_add (self->queued, g_memdup2 (&row->object, sizeof row->object));
        if (is_due (self, row->object))
            add_job (self, row->object, row, next - i);
    }
    return rows != NULL;
}

/* Notes objects that lack stripes and are not in @coming. False: it is to end. */
static bool walk (EcfsRepairer *self, GHashTable *coming)
{
    int64_t after = 0;
    for (bool more = true; more;) {
        g_autoptr (GPtrArray) objects =
            ecfs_catalog_objects (ecfs_archive_catalog (self->archive), after, WALK_BATCH, NULL);
        if (objects == NULL || is_stopping (self))
            return false;
        for (guint i = 0; i < objects->len; i++) {
            uint64_t ino;
            const EcfsObjectRow *object = g_ptr_array_index (objects, i);
            const EcfsCodec *codec = ecfs_archive_codec (self->archive, object->code, NULL);
            after = object->id;
            if (codec == NULL || object->stripes->len >= ecfs_codec_n (codec) ||
                !ecfs_catalog_object_file (ecfs_archive_catalog (self->archive), object->id, &ino, NULL) ||
                g_hash_table_contains (coming, &object->id) || g_hash_table_size (self->lacking) >= MOST_LACKING)
                continue;
            g_hash_table_add (self->lacking, g_memdup2 (&object->id, sizeof object->id));
        }
        more = objects->len == WALK_BATCH;
    }
    return true;
}

/* Objects that lack stripes, without those that staging gives what they lack: those are not for us. The rest is found
 * by looking at all objects, which is done where there are others than at the last time. */
static void find_others (EcfsRepairer *self, uint64_t n_not_full, bool came_back)
{
    int64_t now_us = ecfs_now_us ();
    g_autoptr (GHashTable) coming = ecfs_archive_coming_objects (self->archive, NULL);
    if (coming == NULL)
        return; /* tried again; the catalog says what is wrong with it */
    uint64_t n_lacking = n_not_full - MIN (n_not_full, g_hash_table_size (coming));
    self->counted_us = ecfs_now_us ();
    self->count_took_us = self->counted_us - now_us;
    int64_t pause_us = n_lacking == self->walked_lacking && !came_back ? WALK_US : WALK_LEAST_US;
    bool known = self->walked_us != 0 && now_us - self->walked_us < MAX (pause_us, WALK_SHARE * self->walk_took_us);
    if (n_lacking == 0) {
        g_hash_table_remove_all (self->lacking);
        self->walked_lacking = 0;
    }
    if (n_lacking == 0 || known)
        return;
    g_hash_table_remove_all (self->lacking);
    if (!walk (self, coming))
        return;
    self->walked_us = ecfs_now_us ();
    self->walk_took_us = self->walked_us - self->counted_us;
    self->walked_lacking = n_lacking;
}

static void find_lacking (EcfsRepairer *self, bool came_back)
{
    EcfsTotals totals;
    if (!ecfs_catalog_totals (ecfs_archive_catalog (self->archive), &totals, NULL))
        return; /* as above */
    if (totals.n_not_full == 0) {
        g_hash_table_remove_all (self->lacking);
        self->walked_lacking = 0;
    } else if (came_back || ecfs_now_us () - self->counted_us >= WALK_SHARE * self->count_took_us) {
        find_others (self, totals.n_not_full, came_back);
    }
}

/* What was removed before it had all of its stripes, or lost some with an endpoint. */
static void find_past (EcfsRepairer *self, bool came_back)
{
    const int64_t begun_us = ecfs_now_us ();
    if (begun_us < self->past_us && !came_back)
        return;
    g_hash_table_remove_all (self->past);
    for (int64_t after = 0, more = true; more && !is_stopping (self);) {
        g_autoptr (GPtrArray) objects = ecfs_archive_past_objects (self->archive, after, WALK_BATCH, NULL);
        for (guint i = 0; objects != NULL && i < objects->len; i++) {
            const EcfsObjectRow *object = g_ptr_array_index (objects, i);
            const EcfsCodec *codec = ecfs_archive_codec (self->archive, object->code, NULL);
            after = object->id;
            if (codec != NULL && object->stripes->len < ecfs_codec_n (codec) &&
                g_hash_table_size (self->past) < MOST_LACKING)
                g_hash_table_add (self->past, g_memdup2 (&object->id, sizeof object->id));
        }
        more = objects != NULL && objects->len == WALK_BATCH; /* NULL: tried again; the catalog says what is wrong */
    }
    const int64_t now_us = ecfs_now_us ();
    self->past_us = now_us + MAX (WALK_US, WALK_SHARE * (now_us - begun_us));
}

static void add_lacking (EcfsRepairer *self, GHashTable *lacking)
{
    GHashTableIter iter;
    const int64_t *object;
    g_hash_table_iter_init (&iter, lacking);
    while (g_hash_table_iter_next (&iter, (void **) &object, NULL))
        if (is_due (self, *object))
            add_job (self, *object, NULL, 0);
}

static int most_endangered_first (const void *a, const void *b)
{
    const Job *const *left = a, *const *right = b;
    int order = ((*left)->guarantee > (*right)->guarantee) - ((*left)->guarantee < (*right)->guarantee);
    return order != 0 ? order
                      : ((*left)->task.object > (*right)->task.object) - ((*left)->task.object < (*right)->task.object);
}

/* Doing it */

static EcfsRepairTask *next_task (void *user)
{
    EcfsRepairer *self = user;
    if (is_stopping (self) || self->next_job == self->jobs->len)
        return NULL;
    Job *job = g_ptr_array_index (self->jobs, self->next_job++);
    job->began_us = ecfs_now_us ();
    return &job->task;
}

static void count_failing (EcfsRepairer *self)
{
    ecfs_mutex_lock (&self->lock);
    self->facts.n_failing = ecfs_retries_n_failing (self->retries);
    if (self->facts.n_failing == 0)
        g_clear_pointer (&self->facts.failure, g_free);
    ecfs_mutex_unlock (&self->lock);
}

static gboolean is_over (void *object, void *retry, void *user)
{
    const EcfsRepairer *self = user;
    (void) retry;
    return !g_hash_table_contains (self->queued, object) && !g_hash_table_contains (self->lacking, object) &&
           !g_hash_table_contains (self->past, object);
}

static void note_failure (EcfsRepairer *self, const Job *job)
{
    int64_t object = job->task.object;
    const char *why = job->task.error->message;
    unsigned n = ecfs_retries_failed (self->retries, object, job->began_us, ecfs_now_us ());
    g_log (G_LOG_DOMAIN, n == 1 ? G_LOG_LEVEL_WARNING : G_LOG_LEVEL_INFO, "%s: cannot be repaired yet: %s", job->path,
           why);
    ecfs_mutex_lock (&self->lock);
    g_free (self->facts.failure);
    self->facts.failure = g_strdup_printf ("%s: %s", job->path, why);
    ecfs_mutex_unlock (&self->lock);
}

static void note_rebuilt (EcfsRepairer *self, const Job *job)
{
    if (ecfs_retries_rebuilt (self->retries, job->task.object, ecfs_now_us ()) == MANY_REBUILT)
        g_warning ("%s: its stripes were rebuilt %d times within minutes: an endpoint loses what it said that it has "
                   "stored. 'ecfs status' names what is damaged and where; it is rebuilt less often from now on",
                   job->path, MANY_REBUILT);
}

static void task_done (void *user, EcfsRepairTask *task)
{
    EcfsRepairer *self = user;
    Job *job = task->data;
    int code = task->error == NULL ? 0 : task->error->code;
    if (code == 0 || code == ESTALE) {
        ecfs_retries_remove (self->retries, task->object);
        g_hash_table_remove (self->lacking, &task->object);
        g_hash_table_remove (self->past, &task->object);
    } else if (code != ECANCELED) {
        note_failure (self, job);
    }
    if (task->order.n_stored > 0)
        note_rebuilt (self, job);
    if (code == 0 || task->order.n_stored > 0) {
        const Rebuilt rebuilt = {.sequence = ecfs_catalog_sequence (ecfs_archive_catalog (self->archive)),
                                 .n_stored = task->order.n_stored,
                                 .is_whole = code == 0,
                                 .path = g_strdup (job->path)};
        g_array_append_val (self->unstored, rebuilt);
    }
    ecfs_mutex_lock (&self->lock);
    self->facts.n_unstored += task->order.n_stored;
    self->facts.read_bytes += task->order.read_bytes;
    self->facts.written_bytes += task->order.written_bytes;
    ecfs_mutex_unlock (&self->lock);
    count_failing (self);
}

/* Has the journal stored up to what was rebuilt last. */
static void store_rebuilt (EcfsRepairer *self, bool busy)
{
    int64_t now_us = ecfs_now_us ();
    uint64_t sequence = g_array_index (self->unstored, Rebuilt, self->unstored->len - 1).sequence;
    bool early = self->hurried_us != 0 && now_us - self->hurried_us < (busy ? HURRY_BUSY_US : HURRY_US);
    if (sequence <= self->hurried_sequence || early)
        return;
    self->hurried_sequence = sequence;
    self->hurried_us = now_us;
    ecfs_journal_sender_hurry (ecfs_archive_service (self->archive, ECFS_SERVICE_JOURNAL));
}

/* Counts and tells what the journal names by now. @busy: more is being repaired. */
static void settle_rebuilt (EcfsRepairer *self, bool busy)
{
    guint n = 0;
    for (; n < self->unstored->len; n++) {
        const Rebuilt *rebuilt = &g_array_index (self->unstored, Rebuilt, n);
        if (!ecfs_journal_sender_has_stored (ecfs_archive_service (self->archive, ECFS_SERVICE_JOURNAL),
                                             rebuilt->sequence))
            break;
        if (rebuilt->n_stored > 0)
            g_message ("%s: repaired, %u stripes rebuilt", rebuilt->path, rebuilt->n_stored);
        ecfs_mutex_lock (&self->lock);
        self->facts.n_repaired += rebuilt->is_whole;
        self->facts.n_rebuilt += rebuilt->n_stored;
        self->facts.n_unstored -= rebuilt->n_stored;
        ecfs_mutex_unlock (&self->lock);
    }
    if (n > 0)
        g_array_remove_range (self->unstored, 0, n);
    if (self->unstored->len > 0)
        store_rebuilt (self, busy);
}

/* Of what the keeper stores when it ends. */
static void tell_unstored (EcfsRepairer *self)
{
    settle_rebuilt (self, true);
    for (guint i = 0; i < self->unstored->len; i++) {
        const Rebuilt *rebuilt = &g_array_index (self->unstored, Rebuilt, i);
        if (rebuilt->n_stored > 0)
            g_message ("%s: %u stripes rebuilt, but the journal does not name them yet", rebuilt->path,
                       rebuilt->n_stored);
    }
}

/* What readers met and is proven; at the end endpoints are not waited for: what is gone without a proof is met again.
 */
static GArray *take_sightings (EcfsRepairer *self)
{
    GArray *sightings = ecfs_sightings_take (ecfs_archive_sightings (self->archive));
    if (is_stopping (self) || !ecfs_sightings_confirm (self->archive, sightings, goes_on, self))
        ecfs_sightings_drop_gone (sightings);
    return sightings;
}

static void tell_not_handed_over (EcfsRepairer *self, const GError *error)
{
    const EcfsSighting *first = &g_array_index (self->met, EcfsSighting, 0);
    g_autofree char *path = ecfs_catalog_object_path (ecfs_archive_catalog (self->archive), &first->object);
    g_log (G_LOG_DOMAIN, self->queue_full ? G_LOG_LEVEL_INFO : G_LOG_LEVEL_WARNING,
           "%s: it has damaged stripes, which this mount, for reading only, could not hand over for repair: %s; run "
           "\"ecfs-fsck --deep -y\" where the archive directory can be written",
           path == NULL ? "a file" : path, error->message);
    self->queue_full = true;
}

/* By who may write, as there is no queue here. */
static void hand_over (EcfsRepairer *self)
{
    int64_t now_us = ecfs_now_us ();
    g_autoptr (GError) error = NULL;
    if (self->met == NULL)
        self->met = take_sightings (self);
    if (self->met->len == 0) {
        g_clear_pointer (&self->met, g_array_unref);
        return;
    }
    if (now_us < self->hand_over_us && !is_stopping (self))
        return;
    self->hand_over_us = now_us + HAND_OVER_US;
    if (!ecfs_sightings_hand_over (self->archive, self->met, &error)) {
        tell_not_handed_over (self, error);
        return;
    }
    g_message ("%u damaged stripes were met and are queued for repair, which a mount for writing does", self->met->len);
    self->queue_full = false;
    g_clear_pointer (&self->met, g_array_unref);
}

/* Who waits for what was met before it asked knows by that when it is in the queue. */
static void begin_look (EcfsRepairer *self)
{
    ecfs_mutex_lock (&self->lock);
    self->n_looks_begun++;
    ecfs_mutex_unlock (&self->lock);
}

static void end_look (EcfsRepairer *self, bool unqueued)
{
    ecfs_mutex_lock (&self->lock);
    self->n_looks_ended++;
    self->is_unqueued = unqueued;
    ecfs_cond_broadcast (&self->looked);
    ecfs_mutex_unlock (&self->lock);
}

/* Beside what could not be queued before; what is too much is met again. */
static void gather_met (EcfsRepairer *self)
{
    GArray *news = take_sightings (self);
    if (self->met == NULL) {
        self->met = news;
        return;
    }
    if (self->met->len + news->len <= ECFS_SIGHTINGS_MAX) {
        gsize n;
        g_autofree EcfsSighting *moved = g_array_steal (news, &n);
        if (n > 0)
            g_array_append_vals (self->met, moved, (guint) n);
    }
    g_array_unref (news);
}

/* *ret_unqueued: something was met, and is not in the queue. */
static bool queue_met (EcfsRepairer *self, bool *ret_unqueued)
{
    unsigned n_queued = 0;
    g_autoptr (GError) error = NULL;
    gather_met (self);
    *ret_unqueued = false;
    if (self->met->len == 0) {
        g_clear_pointer (&self->met, g_array_unref);
        return false;
    }
    bool queued = ecfs_sightings_queue (ecfs_archive_catalog (self->archive), self->met, &n_queued, &error);
    if (!queued)
        g_log (G_LOG_DOMAIN, self->queue_full ? G_LOG_LEVEL_INFO : G_LOG_LEVEL_WARNING,
               "%s; \"ecfs-fsck --deep -y\" finds and repairs what is not queued", error->message);
    self->queue_full = ecfs_errno (error) == ENOSPC;
    *ret_unqueued = !queued;
    if (queued)
        g_clear_pointer (&self->met, g_array_unref);
    if (n_queued > 0)
        g_message ("%u damaged stripes were met and are queued for repair", n_queued);
    return n_queued > 0;
}

/* What readers met goes to the queue, whether or not it is repaired from there. True: something new is there. */
static bool queue_sightings (EcfsRepairer *self)
{
    bool unqueued;
    begin_look (self);
    bool news = queue_met (self, &unqueued);
    end_look (self, unqueued);
    return news;
}

/* Asked while repairs are under way: what is new is queued, and takes its place among what waits. */
static bool tick (void *user)
{
    EcfsRepairer *self = user;
    bool news = queue_sightings (self);
    settle_rebuilt (self, true);
    ecfs_mutex_lock (&self->lock);
    news = news || self->hurried;
    self->hurried = false;
    ecfs_mutex_unlock (&self->lock);
    if (news) {
        add_damaged (self);
        qsort (self->jobs->pdata + self->next_job, self->jobs->len - self->next_job, sizeof *self->jobs->pdata,
               most_endangered_first);
    }
    return !is_stopping (self);
}

/* Whether an endpoint is up that was not at the last look; then all is tried again. */
static bool came_back (EcfsRepairer *self)
{
    bool any = false;
    const guint8 unknown = false;
    for (size_t i = 0; i < ecfs_archive_n_endpoints (self->archive); i++) {
        if (i == self->reachable->len) /* at the first look, or added since */
            g_byte_array_append (self->reachable, &unknown, 1);
        bool reachable = ecfs_archive_reaches (ecfs_archive_endpoint (self->archive, i));
        any = any || (reachable && !self->reachable->data[i]);
        self->reachable->data[i] = reachable;
    }
    if (any)
        ecfs_retries_reset (self->retries);
    return any;
}

/* What could not be rebuilt may have been brought back to where it was: that ends what the queue says of it. */
static void settle_back (EcfsRepairer *self)
{
    unsigned n_queued;
    g_autoptr (GError) error = NULL;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    g_autoptr (GArray) rows =
        ecfs_retries_n_failing (self->retries) == 0 ? NULL : ecfs_catalog_repairs (catalog, 0, NULL);
    g_autoptr (GArray) asked = g_array_new (FALSE, FALSE, sizeof (EcfsRepairRow)); /* of borrowed text */
    for (guint i = 0; rows != NULL && i < rows->len; i++) {
        const EcfsRepairRow *row = &g_array_index (rows, EcfsRepairRow, i);
        if (ecfs_retries_has_failed (self->retries, row->object) && is_due (self, row->object))
            g_array_append_vals (asked, row, 1);
    }
    if (asked->len == 0)
        return;
    g_autoptr (GArray) back = ecfs_repairs_find_back (self->archive, asked, goes_on, self);
    if (back->len > 0 && !ecfs_sightings_queue (catalog, back, &n_queued, &error))
        g_info ("%s", error->message); /* tried again; whoever changes something is told the error */
    else if (back->len > 0)
        g_message ("%u stripes that were gone are there again", back->len);
}

static void repair_round (EcfsRepairer *self)
{
    const EcfsRepairs repairs = {
        .next = next_task, .done = task_done, .tick = tick, .most = most_objects, .user = self};
    settle_back (self);
    const bool back = came_back (self);
    find_lacking (self, back);
    find_past (self, back);
    self->jobs = g_ptr_array_new_with_free_func (job_free);
    self->listed = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL);
    self->next_job = 0;
    if (add_damaged (self)) /* others may have repaired what could not be */
        ecfs_retries_sweep (self->retries, is_over, self, ecfs_now_us ());
    count_failing (self);
    add_lacking (self, self->lacking);
    add_lacking (self, self->past);
    g_ptr_array_sort (self->jobs, most_endangered_first);
    if (self->jobs->len > 0)
        ecfs_repair_here (self->archive, &repairs);
    g_clear_pointer (&self->jobs, g_ptr_array_unref);
    g_clear_pointer (&self->listed, g_hash_table_unref);
}

static void look (EcfsRepairer *self)
{
    if (ecfs_archive_is_readonly (self->archive)) {
        hand_over (self);
        return;
    }
    (void) queue_sightings (self); /* the round looks at the whole queue */
    if (!ecfs_archive_config (self->archive)->repair_off && !is_stopping (self))
        repair_round (self);
    settle_rebuilt (self, false);
}

static void *run (void *data)
{
    EcfsRepairer *self = data;
    ecfs_mutex_lock (&self->lock);
    while (!self->stopping) {
        self->hurried = false;
        ecfs_mutex_unlock (&self->lock);
        look (self);
        ecfs_mutex_lock (&self->lock);
        if (!self->stopping && !self->hurried)
            (void) ecfs_cond_wait_until (&self->wake, &self->lock,
                                         ecfs_now_us () + (self->unstored->len > 0 ? UNSTORED_US : LOOK_US));
    }
    ecfs_mutex_unlock (&self->lock);
    look (self); /* for the next mount */
    tell_unstored (self);
    return NULL;
}

EcfsRepairer *ecfs_repairer_start (EcfsArchive *archive)
{
    EcfsRepairer *self = g_new0 (EcfsRepairer, 1);
    self->archive = archive;
    self->any.filled_us = self->trickle.filled_us = ecfs_now_us ();
    self->reachable = g_byte_array_new ();
    self->unstored = g_array_new (FALSE, FALSE, sizeof (Rebuilt));
    g_array_set_clear_func (self->unstored, rebuilt_clear);
    self->retries = ecfs_retries_new ();
    self->queued = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL);
    self->lacking = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL);
    self->past = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->wake);
    ecfs_cond_init (&self->looked);
    int result = pthread_create (&self->thread, NULL, run, self);
    if (result != 0)
        g_error ("cannot start the thread for repairs: %s", g_strerror (result));
    return self;
}

void ecfs_repairer_stop (EcfsRepairer *self)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    self->stopping = true;
    ecfs_cond_broadcast (&self->wake);
    ecfs_mutex_unlock (&self->lock);
    (void) pthread_join (self->thread, NULL); /* joinable and ours: it cannot fail */
    if (self->met != NULL)
        g_array_unref (self->met);
    g_byte_array_unref (self->reachable);
    g_array_unref (self->unstored);
    ecfs_retries_free (self->retries);
    g_hash_table_unref (self->queued);
    g_hash_table_unref (self->lacking);
    g_hash_table_unref (self->past);
    ecfs_repairer_facts_clear (&self->facts);
    ecfs_cond_clear (&self->wake);
    ecfs_cond_clear (&self->looked);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

void ecfs_repairer_hurry (EcfsRepairer *self)
{
    ecfs_mutex_lock (&self->lock);
    self->hurried = true;
    ecfs_cond_broadcast (&self->wake);
    ecfs_mutex_unlock (&self->lock);
}

bool ecfs_repairer_await_queued (EcfsRepairer *self, int64_t deadline_us)
{
    bool any = ecfs_sightings_any (ecfs_archive_sightings (self->archive));
    ecfs_mutex_lock (&self->lock);
    /* One that is under way may have begun before what was met last. */
    uint64_t awaited = any ? self->n_looks_begun + 1 : self->n_looks_begun;
    self->hurried = self->hurried || any;
    ecfs_cond_broadcast (&self->wake);
    while (self->n_looks_ended < awaited && !self->stopping &&
           ecfs_cond_wait_until (&self->looked, &self->lock, deadline_us))
        ;
    const bool queued = self->n_looks_ended >= awaited && !self->is_unqueued;
    ecfs_mutex_unlock (&self->lock);
    return queued;
}

void ecfs_repairer_facts (EcfsRepairer *self, EcfsRepairerFacts *ret_facts)
{
    ecfs_mutex_lock (&self->lock);
    *ret_facts = self->facts;
    ret_facts->failure = g_strdup (self->facts.failure);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_repairer_facts_clear (EcfsRepairerFacts *facts)
{
    g_clear_pointer (&facts->failure, g_free);
}
