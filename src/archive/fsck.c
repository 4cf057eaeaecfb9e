/* Checking an archive: its catalog, then its objects batch by batch; then what is damaged is repaired and told. */
#include "archive/fsck_priv.h"
#include "archive/recode_priv.h"
#include "archive/status.h"
#include "object/placement.h"

#define BATCH        8192 /* objects */
#define PATIENCE_US  5000000
#define TICK_US      250000
#define ORPHANS_TOLD 100 /* of each endpoint */

typedef struct Fsck {
    Ecfs *ecfs;
    Ecfs *writer; /* what repairs, once something is to be repaired; ecfs itself where that can; owned where not */
    EcfsArchive *archive;
    const EcfsFsck *what;
    EcfsPace pace;
    EcfsFsckProgress progress;
    int64_t next_us; /* when progress is to be told again */
    bool cancelled;
    bool is_sound; /* the catalog can be written */
    EcfsFsckSums sums;
    EcfsFsckEndpoint *endpoints; /* n_endpoints, and one for all that this process does not know */
    char **silences;             /* likewise: what those said that do not answer, or NULL */
    size_t n_endpoints;
    GArray *named; /* of Named, by UUID: the objects of the paths; NULL: all */
    guint next_named;
    EcfsUuid after;     /* the last object that was looked at, where all are */
    GPtrArray *damages; /* of EcfsDamage, the most endangered first when they are repaired */
    guint next_damage;
    GPtrArray *stale; /* of EcfsRepairTask, which are said to be about what has changed */
} Fsck;

typedef struct Named {
    EcfsUuid uuid;
    int64_t id;
} Named;

static bool tick (void *user)
{
    Fsck *self = user;
    int64_t now_us = ecfs_now_us ();
    if (self->cancelled || self->what->progress == NULL || now_us < self->next_us)
        return !self->cancelled;
    self->next_us = now_us + TICK_US;
    self->progress.bytes = ecfs_archive_wire_bytes (self->archive);
    if (self->writer != NULL && self->writer != self->ecfs)
        self->progress.bytes += ecfs_archive_wire_bytes (self->writer->archive);
    self->cancelled = !self->what->progress (self->what->user, &self->progress);
    return !self->cancelled;
}

static void enter (Fsck *self, const char *phase, uint64_t n_all)
{
    self->progress = (EcfsFsckProgress){.phase = phase, .n_all = n_all};
    self->next_us = 0;
    (void) tick (self); /* remembers */
}

/* Takes @json. */
static void tell (const Fsck *self, char *json)
{
    if (self->what->found != NULL)
        self->what->found (self->what->user, json);
    g_free (json);
}

/* The catalog */

static void tell_problem (void *user, uint64_t ino, const char *text)
{
    Fsck *self = user;
    g_autofree char *path = ino == 0 ? NULL : ecfs_catalog_path (self->archive->catalog, ino);
    self->sums.n_problems++;
    tell (self, ecfs_fsck_tell_catalog (path, text));
}

/* By a connection of its own: the check may take a while, and others work with the archive's. */
static bool check_catalog (Fsck *self, GError **error)
{
    enter (self, "catalog", 0);
    g_autofree char *path = g_build_filename (self->archive->directory, ECFS_CATALOG_NAME, NULL);
    EcfsCatalog *catalog = ecfs_catalog_open (path, ECFS_CATALOG_READONLY, error);
    bool good = catalog != NULL && ecfs_catalog_check (catalog, tell_problem, self, &self->is_sound, error);
    return ecfs_catalog_close (catalog, good ? error : NULL) && good;
}

/* Objects */

static int compare_named (const void *a, const void *b)
{
    return memcmp (a, b, sizeof (EcfsUuid)); /* it comes first */
}

typedef struct Collecting {
    Fsck *fsck;
    GHashTable *seen; /* of int64_t */
    GError *error;
} Collecting;

static void collect (void *user, const EcfsEntry *entry)
{
    Collecting *self = user;
    g_autoptr (GPtrArray) objects =
        self->error != NULL ? NULL : ecfs_recode_objects (self->fsck->archive, entry->inode, &self->error);
    for (guint i = 0; objects != NULL && i < objects->len; i++) {
        const EcfsObjectRow *object = g_ptr_array_index (objects, i);
        Named named = {.uuid = object->uuid, .id = object->id};
        if (g_hash_table_add (self->seen, g_memdup2 (&named.id, sizeof named.id)))
            g_array_append_val (self->fsck->named, named);
    }
    if (g_error_matches (self->error, ECFS_ERROR, ENOENT)) /* deleted meanwhile */
        g_clear_error (&self->error);
}

static bool collect_named (Fsck *self, GError **error)
{
    Collecting collecting = {.fsck = self, .seen = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL)};
    self->named = g_array_new (FALSE, FALSE, sizeof (Named));
    bool good = true;
    for (const char *const *path = self->what->paths; good && *path != NULL; path++)
        good = ecfs_recode_walk (self->archive, *path, collect, &collecting, error);
    g_hash_table_unref (collecting.seen);
    g_array_sort (self->named, compare_named);
    if (collecting.error != NULL && good)
        g_propagate_error (error, g_steal_pointer (&collecting.error));
    else if (collecting.error == NULL)
        return good;
    g_clear_error (&collecting.error);
    return false;
}

static GPtrArray *next_named (Fsck *self, GError **error)
{
    g_autoptr (GPtrArray) objects = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_object_row_free);
    for (; objects->len < BATCH && self->next_named < self->named->len; self->next_named++) {
        g_autoptr (GError) why = NULL;
        int64_t id = g_array_index (self->named, Named, self->next_named).id;
        EcfsObjectRow *object = ecfs_catalog_object (self->archive->catalog, id, &why);
        if (object != NULL) {
            g_ptr_array_add (objects, object);
        } else if (why->code != ENOENT) {
            g_propagate_error (error, g_steal_pointer (&why));
            return NULL;
        }
    }
    return g_steal_pointer (&objects);
}

static GPtrArray *next_objects (Fsck *self, GError **error)
{
    if (self->named != NULL)
        return next_named (self, error);
    GPtrArray *objects = ecfs_catalog_objects_by_uuid (self->archive->catalog, &self->after, BATCH, error);
    if (objects != NULL && objects->len > 0)
        self->after = ((const EcfsObjectRow *) g_ptr_array_index (objects, objects->len - 1))->uuid;
    return objects;
}

static size_t position_of (const Fsck *self, int64_t endpoint)
{
    for (size_t i = 0; i < self->n_endpoints; i++)
        if (self->archive->endpoints[i].id == endpoint)
            return i;
    return SIZE_MAX;
}

static void checked_clear (gpointer data)
{
    g_free (((EcfsCheckedStripe *) data)->text);
}

static GArray *stripes_of (const Fsck *self, const GPtrArray *objects)
{
    GArray *stripes = g_array_new (FALSE, TRUE, sizeof (EcfsCheckedStripe));
    g_array_set_clear_func (stripes, checked_clear);
    for (guint i = 0; i < objects->len; i++) {
        const EcfsObjectRow *object = g_ptr_array_index (objects, i);
        for (guint j = 0; j < object->stripes->len; j++) {
            EcfsCheckedStripe checked = {.object = object,
                                         .stripe = &g_array_index (object->stripes, EcfsStripeRow, j)};
            checked.position = position_of (self, checked.stripe->endpoint);
            g_array_append_val (stripes, checked);
        }
    }
    return stripes;
}

/* Damage */

static void damage_free (gpointer data)
{
    EcfsDamage *damage = data;
    for (unsigned i = 0; damage != NULL && i < damage->n_stripes; i++)
        g_free (damage->stripes[i].text);
    g_free (damage);
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

/* Keeps of the faults those of stripes that are still the object's. */
static bool keep_current (Fsck *self, EcfsDamage *damage, GError **error)
{
    g_autoptr (GError) why = NULL;
    g_autoptr (EcfsObjectRow) now = ecfs_catalog_object (self->archive->catalog, damage->object, &why);
    if (now == NULL && why->code != ENOENT) {
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    }
    damage->n_lost = 0;
    unsigned n_kept = 0;
    for (unsigned i = 0; i < damage->n_stripes; i++) {
        EcfsFaultyStripe *stripe = &damage->stripes[i];
        if (is_current (now, stripe->index, stripe->instance)) {
            damage->n_lost += stripe->fault != ECFS_STRIPE_UNKNOWN;
            damage->stripes[n_kept++] = *stripe;
        } else {
            g_free (stripe->text);
        }
    }
    damage->n_stripes = n_kept;
    return true;
}

static void count (Fsck *self, const EcfsDamage *damage)
{
    for (unsigned i = 0; i < damage->n_stripes; i++) {
        const EcfsFaultyStripe *stripe = &damage->stripes[i];
        size_t position = MIN (stripe->position, self->n_endpoints);
        EcfsFsckEndpoint *at = &self->endpoints[position];
        bool gone = stripe->fault == ECFS_STRIPE_GONE || stripe->fault == ECFS_STRIPE_GIVEN_UP;
        bool damaged = stripe->fault == ECFS_STRIPE_SIZE || stripe->fault == ECFS_STRIPE_DAMAGED;
        bool unknown = stripe->fault == ECFS_STRIPE_UNKNOWN;
        self->sums.n_absent += stripe->fault == ECFS_STRIPE_ABSENT;
        self->sums.n_gone += gone;
        self->sums.n_damaged += damaged;
        self->sums.n_unknown += unknown;
        at->n_gone += gone;
        at->n_damaged += damaged;
        at->n_unknown += unknown;
        if (unknown && self->silences[position] == NULL)
            self->silences[position] = g_strdup (stripe->text);
    }
}

/* The faults of one object, whose stripes are @checked; NULL: it has none. */
static EcfsDamage *judge (const EcfsObjectRow *object, const EcfsCodec *codec, const EcfsCheckedStripe *checked)
{
    bool present[ECFS_CODEC_MAX_N] = {0}, named[ECFS_CODEC_MAX_N] = {0};
    size_t holder[ECFS_CODEC_MAX_N] = {0};
    unsigned n_faulty = 0;
    EcfsFaultyStripe faulty[ECFS_CODEC_MAX_N]; /* each index at most once */
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = checked[i].stripe;
        named[stripe->index] = true;
        present[stripe->index] = checked[i].fault == ECFS_STRIPE_FINE;
        holder[stripe->index] = checked[i].position;
        if (!present[stripe->index])
            faulty[n_faulty++] = (EcfsFaultyStripe){.index = stripe->index,
                                                    .fault = checked[i].fault,
                                                    .instance = stripe->instance,
                                                    .position = checked[i].position,
                                                    .text = g_strdup (checked[i].text)};
    }
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++)
        if (!named[i])
            faulty[n_faulty++] = (EcfsFaultyStripe){.index = i, .fault = ECFS_STRIPE_ABSENT, .position = SIZE_MAX};
    if (n_faulty == 0)
        return NULL;
    EcfsDamage *damage = g_malloc (sizeof *damage + n_faulty * sizeof *faulty);
    *damage = (EcfsDamage){.object = object->id, .n_stripes = n_faulty};
    memcpy (damage->stripes, faulty, n_faulty * sizeof *faulty);
    damage->guarantee = ecfs_holders_guarantee (codec, present, holder);
    return damage;
}

/* An object that the catalog says nonsense about is told, and left as it is. */
static const EcfsCodec *codec_of (Fsck *self, const EcfsObjectRow *object)
{
    g_autoptr (GError) error = NULL;
    const EcfsCodec *codec = ecfs_archive_codec (self->archive, object->code, &error);
    uint64_t ino;
    if (codec != NULL)
        return codec;
    g_autofree char *text = g_strdup_printf ("object %" G_GINT64_FORMAT ": %s", object->id, error->message);
    tell_problem (self, ecfs_catalog_object_file (self->archive->catalog, object->id, &ino, NULL) ? ino : 0, text);
    return NULL;
}

static bool judge_batch (Fsck *self, const EcfsCheckBatch *batch, GError **error)
{
    const EcfsCheckedStripe *checked = (const EcfsCheckedStripe *) (void *) batch->stripes->data;
    for (guint i = 0; i < batch->objects->len; i++) {
        const EcfsObjectRow *object = g_ptr_array_index (batch->objects, i);
        const EcfsCodec *codec = codec_of (self, object);
        for (guint j = 0; j < object->stripes->len; j++)
            self->endpoints[MIN (checked[j].position, self->n_endpoints)].n_stripes++;
        self->sums.n_stripes += object->stripes->len;
        EcfsDamage *damage = codec == NULL ? NULL : judge (object, codec, checked);
        checked += object->stripes->len;
        if (damage != NULL && !keep_current (self, damage, error)) {
            damage_free (damage);
            return false;
        }
        if (damage != NULL && damage->n_stripes > 0) {
            count (self, damage);
            /* What only waits for endpoints, and can be read without them, is told with these. */
            if (damage->n_lost > 0 || damage->guarantee < 0)
                g_ptr_array_add (self->damages, g_steal_pointer (&damage));
        }
        g_clear_pointer (&damage, damage_free);
    }
    self->sums.n_objects += batch->objects->len;
    self->progress.n_done += batch->objects->len;
    return true;
}

static void count_orphans (Fsck *self, const GArray *orphans)
{
    for (guint i = 0; i < orphans->len; i++) {
        const EcfsStranger *orphan = &g_array_index (orphans, EcfsStranger, i);
        EcfsFsckEndpoint *at = &self->endpoints[orphan->position];
        if (at->n_orphans++ < ORPHANS_TOLD)
            tell (self, ecfs_fsck_tell_orphan (self->archive, orphan));
        at->orphan_bytes += orphan->size;
        self->sums.n_orphans++;
        self->sums.orphan_bytes += orphan->size;
    }
}

static bool check_batch (Fsck *self, EcfsCheckBatch *batch, GError **error)
{
    bool deep = (self->what->flags & ECFS_FSCK_DEEP) != 0;
    if (!ecfs_check_presence (batch) || !ecfs_check_gone (batch) ||
        (deep && !(ecfs_check_packets (batch, &self->pace) && ecfs_check_gone (batch))) ||
        !judge_batch (self, batch, error) || (batch->strangers != NULL && !ecfs_check_strangers (batch, error)))
        return false;
    if (batch->strangers != NULL)
        count_orphans (self, batch->strangers);
    return true;
}

/* *ret_more: there may be others. */
static bool check_next (Fsck *self, bool *ret_more, GError **error)
{
    EcfsCheckBatch batch = {.archive = self->archive, .after = self->after, .tick = tick, .user = self};
    g_autoptr (GPtrArray) objects = next_objects (self, error);
    if (objects == NULL)
        return false;
    g_autoptr (GArray) stripes = stripes_of (self, objects);
    g_autoptr (GArray) strangers = self->named != NULL ? NULL : g_array_new (FALSE, FALSE, sizeof (EcfsStranger));
    batch.objects = objects;
    batch.stripes = stripes;
    batch.strangers = strangers;
    batch.is_first = ecfs_uuid_is_nil (&batch.after);
    batch.is_last = objects->len < BATCH;
    *ret_more = !batch.is_last;
    return check_batch (self, &batch, error);
}

static bool check_objects (Fsck *self, GError **error)
{
    EcfsTotals totals;
    if ((self->what->paths != NULL && !collect_named (self, error)) ||
        !ecfs_catalog_totals (self->archive->catalog, &totals, error))
        return false;
    enter (self, "objects", self->named != NULL ? self->named->len : totals.n_objects);
    ecfs_archive_probe (self->archive, PATIENCE_US);
    for (bool more = true; more;) {
        if (!check_next (self, &more, error))
            return false;
        if (!tick (self))
            return ecfs_fail (error, ECANCELED, "cancelled");
    }
    return true;
}

static void tell_silences (const Fsck *self)
{
    for (size_t i = 0; i <= self->n_endpoints; i++)
        if (self->silences[i] != NULL)
            tell (self, ecfs_fsck_tell_endpoint (self->archive, i < self->n_endpoints ? i : SIZE_MAX,
                                                 &self->endpoints[i], self->silences[i]));
}

/* Repair */

static int most_endangered_first (const void *a, const void *b)
{
    const EcfsDamage *const *left = a, *const *right = b;
    int order = ((*left)->guarantee > (*right)->guarantee) - ((*left)->guarantee < (*right)->guarantee);
    return order != 0 ? order : ((*left)->object > (*right)->object) - ((*left)->object < (*right)->object);
}

static void conclude (Fsck *self, const EcfsDamage *damage, EcfsDamageResult result, const EcfsRepairTask *task)
{
    self->sums.results[result]++;
    self->progress.n_done++;
    if (task != NULL) {
        self->sums.n_rebuilt += task->order.n_stored;
        self->sums.read_bytes += task->order.read_bytes;
        self->sums.written_bytes += task->order.written_bytes;
    }
    tell (self, ecfs_fsck_tell_damage (self->archive, damage, result, task));
}

static EcfsRepairTask *next_task (void *user)
{
    Fsck *self = user;
    while (self->next_damage < self->damages->len) {
        EcfsDamage *damage = g_ptr_array_index (self->damages, self->next_damage++);
        if (damage->n_lost == 0) {
            conclude (self, damage, ECFS_DAMAGE_UNKNOWN, NULL);
            continue;
        }
        EcfsRepairTask *task = g_new0 (EcfsRepairTask, 1);
        task->object = damage->object;
        task->data = damage;
        for (unsigned i = 0; i < damage->n_stripes; i++) {
            const EcfsFaultyStripe *stripe = &damage->stripes[i];
            if (stripe->fault == ECFS_STRIPE_UNKNOWN)
                continue;
            task->order.instance[stripe->index] = stripe->instance;
            task->order.gone[stripe->index] =
                stripe->fault == ECFS_STRIPE_GONE || stripe->fault == ECFS_STRIPE_GIVEN_UP;
        }
        return task;
    }
    return NULL;
}

static void task_free (gpointer data)
{
    EcfsRepairTask *task = data;
    g_clear_error (&task->error);
    g_free (task);
}

static void task_done (void *user, EcfsRepairTask *task)
{
    Fsck *self = user;
    if (task->error != NULL && task->error->code == ESTALE) {
        g_ptr_array_add (self->stale, task);
        return;
    }
    conclude (self, task->data, task->error == NULL ? ECFS_DAMAGE_REPAIRED : ECFS_DAMAGE_LEFT, task);
    task_free (task);
}

/* Whether the object lacks any of the stripes as before. */
static bool is_still_lost (Fsck *self, const EcfsDamage *damage)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsObjectRow) now = ecfs_catalog_object (self->archive->catalog, damage->object, &error);
    bool lost = now == NULL && error->code != ENOENT;
    for (unsigned i = 0; now != NULL && i < damage->n_stripes; i++) {
        const EcfsFaultyStripe *stripe = &damage->stripes[i];
        lost = lost || (stripe->fault != ECFS_STRIPE_UNKNOWN && is_current (now, stripe->index, stripe->instance));
    }
    return lost;
}

/* What has changed is told by the catalog, once all that was done is written there. */
static void conclude_stale (Fsck *self)
{
    for (guint i = 0; i < self->stale->len; i++) {
        const EcfsRepairTask *task = g_ptr_array_index (self->stale, i);
        conclude (self, task->data, is_still_lost (self, task->data) ? ECFS_DAMAGE_LEFT : ECFS_DAMAGE_CHANGED, task);
    }
}

static bool is_wanted (const Fsck *self)
{
    uint64_t n_objects = 0;
    for (guint i = 0; i < self->damages->len; i++)
        n_objects += ((const EcfsDamage *) g_ptr_array_index (self->damages, i))->n_lost > 0;
    return (self->what->flags & ECFS_FSCK_REPAIR) && self->is_sound && n_objects > 0 &&
           (self->what->confirm == NULL || self->what->confirm (self->what->user, n_objects));
}

static void leave_all (Fsck *self)
{
    for (guint i = 0; i < self->damages->len; i++) {
        const EcfsDamage *damage = g_ptr_array_index (self->damages, i);
        conclude (self, damage, damage->n_lost > 0 ? ECFS_DAMAGE_FOUND : ECFS_DAMAGE_UNKNOWN, NULL);
    }
}

/* What is open for reading only is opened for writing not before this: that alone changes the archive. */
static bool open_writer (Fsck *self, GError **error)
{
    self->writer = self->ecfs->writable ? self->ecfs : ecfs_open (self->archive->directory, ECFS_OPEN_WRITE, error);
    if (self->writer == NULL)
        return false;
    if (!self->writer->mounted)
        ecfs_archive_probe (self->writer->archive, PATIENCE_US);
    return true;
}

static bool repair_all (Fsck *self, GError **error)
{
    const EcfsRepairs repairs = {.next = next_task, .done = task_done, .tick = tick, .user = self};
    if (self->writer->mounted)
        return ecfs_repair_mounted (self->archive->directory, &repairs, error);
    ecfs_repair_here (self->writer->archive, &repairs);
    return ecfs_catalog_barrier (self->writer->archive->catalog, error);
}

static bool repair (Fsck *self, GError **error)
{
    g_ptr_array_sort (self->damages, most_endangered_first);
    enter (self, "repair", self->damages->len);
    if (!tick (self))
        return ecfs_fail (error, ECANCELED, "cancelled");
    bool wanted = is_wanted (self);
    if (!wanted || !open_writer (self, error)) {
        leave_all (self);
        return !wanted;
    }
    bool done = repair_all (self, error);
    conclude_stale (self);
    if (!done)
        return false;
    return tick (self) || ecfs_fail (error, ECANCELED, "cancelled");
}

static bool run (Fsck *self, GError **error)
{
    if (!check_catalog (self, error) || !check_objects (self, error))
        return *error != NULL ? false : ecfs_fail (error, ECANCELED, "cancelled");
    tell_silences (self);
    return repair (self, error);
}

static void fsck_clear (Fsck *self)
{
    for (size_t i = 0; i <= self->n_endpoints; i++)
        g_free (self->silences[i]);
    g_free (self->silences);
    g_free (self->endpoints);
    if (self->named != NULL)
        g_array_unref (self->named);
    g_ptr_array_unref (self->stale);
    g_ptr_array_unref (self->damages);
    ecfs_mutex_clear (&self->pace.lock);
    if (self->writer != self->ecfs)
        ecfs_close (self->writer);
}

char *ecfs_fsck (Ecfs *ecfs, const EcfsFsck *what, GError **error)
{
    char *summary = NULL;
    GError *why = NULL;
    Fsck self = {.ecfs = ecfs, .archive = ecfs->archive, .what = what, .pace = {.bytes_per_s = what->bytes_per_s}};
    ecfs_mutex_init (&self.pace.lock);
    self.n_endpoints = ecfs_archive_n_endpoints (self.archive);
    self.endpoints = g_new0 (EcfsFsckEndpoint, self.n_endpoints + 1);
    self.silences = g_new0 (char *, self.n_endpoints + 1);
    self.damages = g_ptr_array_new_with_free_func (damage_free);
    self.stale = g_ptr_array_new_with_free_func (task_free);
    if (run (&self, &why)) {
        self.sums.checked_bytes = self.pace.bytes;
        summary = ecfs_fsck_tell_summary (self.archive, &self.sums, self.endpoints, self.n_endpoints);
    } else {
        g_propagate_error (error, why);
    }
    fsck_clear (&self);
    return summary;
}
