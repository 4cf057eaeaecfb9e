/* Objects that would be safer with their stripes elsewhere: told, the least safe first, and moved apart. */
#include "archive/places.h"
#include "archive/places_of.h"
#include "fsck/fsck_priv.h"

#define ZONE_WEIGHT 1024 /* more than an object has endpoints */

/* Finding them */

/* As ecfs_object_is_crowded (); 0 too where its rule makes no sense, which is told by itself. */
static int judge_object (const EcfsRoomy *roomy, const EcfsObjectRow *object, EcfsCrowding *ret_crowding,
                         GError **error)
{
    GError *why = NULL;
    int is = ecfs_object_is_crowded (roomy, object, 0, ret_crowding, &why);
    if (is >= 0)
        return is;
    bool no_sense = why->code == EINVAL;
    if (no_sense)
        g_error_free (why);
    else
        g_propagate_error (error, why);
    return no_sense ? 0 : -1;
}

bool ecfs_fsck_note_crowded (EcfsFsckRun *self, const GPtrArray *objects, GError **error)
{
    EcfsRoomy roomy;
    bool good = ecfs_roomy_init (&roomy, self->archive, error);
    for (guint i = 0; i < objects->len && good; i++) {
        EcfsCrowding crowding;
        const EcfsObjectRow *object = g_ptr_array_index (objects, i);
        if (ecfs_object_is_past (object->id))
            continue;
        int is = judge_object (&roomy, object, &crowding, error);
        good = is >= 0;
        if (is != 1)
            continue;
        const EcfsSpoolDamage one = {.object = object->id,
                                     .urgency = crowding.now.zones * ZONE_WEIGHT + crowding.now.endpoints,
                                     .uuid = object->uuid};
        self->sums.n_movable += crowding.n_moves > 0;
        good = ecfs_spool_add_damage (self->crowded, &one, error);
    }
    ecfs_roomy_clear (&roomy);
    return good;
}

/* Moving them */

typedef struct Parting {
    EcfsFsckRun *run;
    EcfsRoomy roomy;      /* once what was to be repaired is */
    EcfsSpoolDamage last; /* that was begun */
    uint64_t *n_waiting;  /* by position: objects that need the endpoint, and it takes nothing now */
    GError *error;        /* the spool's or the catalog's */
} Parting;

typedef struct Attempt {
    EcfsRepairTask task; /* its first member */
    EcfsCrowding crowding;
} Attempt;

/* 1: it is crowded as before; 0: not any more; -1. */
static int judge (Parting *self, int64_t object, EcfsCrowding *ret_crowding)
{
    g_autoptr (GError) why = NULL;
    g_autoptr (EcfsObjectRow) now = ecfs_catalog_object (ecfs_archive_catalog (self->run->archive), object, &why);
    if (now != NULL) {
        int is = judge_object (&self->roomy, now, ret_crowding, &why);
        if (is < 0)
            g_propagate_error (&self->error, g_steal_pointer (&why));
        return is;
    }
    if (why->code == ENOENT || why->code == EBADMSG) /* deleted, or told */
        return 0;
    g_propagate_error (&self->error, g_steal_pointer (&why));
    return -1;
}

static void conclude (Parting *self, const Attempt *attempt, EcfsCrowdedResult result)
{
    EcfsFsckSums *sums = &self->run->sums;
    (attempt->crowding.n_forbidden > 0 ? sums->misplaced : sums->crowded)[result]++;
    sums->n_moved_stripes += attempt->task.order.n_stored;
    sums->moved_bytes += attempt->task.order.written_bytes;
    ecfs_fsck_tell (self->run, ecfs_fsck_tell_crowded (self->run->archive, attempt->task.object, &attempt->crowding,
                                                       result, &attempt->task));
}

/* An object that is gone is none. */
static bool is_kind (const Parting *self, int64_t object, EcfsObjectKind kind)
{
    g_autoptr (EcfsObjectRow) row = ecfs_catalog_object (ecfs_archive_catalog (self->run->archive), object, NULL);
    return row != NULL && row->kind == kind;
}

/* g_free () */
static char *why_placeless (const Parting *self, int64_t object)
{
    EcfsRuled ruled;
    bool mixed;
    EcfsArchive *archive = self->run->archive;
    if (ecfs_archive_object_is_mixed (archive, object, &mixed, NULL) && mixed &&
        !is_kind (self, object, ECFS_OBJECT_WHOLE))
        return g_strdup ("its rules leave no place for it; small files of several rules that share it go apart by ecfs "
                         "recode");
    if (!ecfs_archive_object_ruled (archive, object, &ruled, NULL)) /* as it was a moment ago */
        return g_strdup ("its rules leave no place for it");
    g_autofree char *text = ecfs_ruled_describe (archive, &ruled);
    ecfs_ruled_clear (&ruled);
    return g_strdup_printf ("too few endpoints are left for it%s: change the rule", text);
}

/* Of what a rule does not allow each object is told: it may hold no stripe there, whatever that waits for. */
static void leave_misplaced (Parting *self, Attempt *attempt)
{
    const EcfsArchive *archive = self->run->archive;
    const size_t lacking = attempt->crowding.lacking;
    g_autofree char *why = lacking == SIZE_MAX ? why_placeless (self, attempt->task.object)
                                               : ecfs_unusable_endpoint (ecfs_archive_endpoint (archive, lacking));
    attempt->task.error = g_error_new (ECFS_ERROR, ENOTSUP, "%s",
                                       why != NULL ? why : "the endpoints that are allowed have no room for it");
    conclude (self, attempt, ECFS_CROWDED_LEFT);
    g_clear_error (&attempt->task.error);
}

/* The next that can be moved now; NULL: there is none, or an error. */
static Attempt *next_attempt (Parting *self)
{
    Attempt *attempt = g_new0 (Attempt, 1);
    while (self->error == NULL && ecfs_fsck_tick (self->run) &&
           ecfs_spool_next_damage (self->run->crowded, &self->last, &self->error) == 1) {
        self->run->progress.n_done++;
        attempt->task.object = self->last.object;
        attempt->task.order.is_crowded = true;
        if (judge (self, self->last.object, &attempt->crowding) != 1)
            continue;
        if (attempt->crowding.n_moves > 0)
            return attempt;
        if (attempt->crowding.n_forbidden > 0) {
            leave_misplaced (self, attempt);
            continue;
        }
        self->run->sums.crowded[ECFS_CROWDED_WAITS]++;
        self->n_waiting[attempt->crowding.lacking]++;
    }
    g_free (attempt);
    return NULL;
}

static EcfsRepairTask *next_task (void *user)
{
    Attempt *attempt = next_attempt (user);
    return attempt == NULL ? NULL : &attempt->task;
}

static void task_done (void *user, EcfsRepairTask *task)
{
    Parting *self = user;
    Attempt *attempt = (Attempt *) (void *) task;
    EcfsCrowding after;
    bool any = task->order.n_stored > 0;
    if (task->error == NULL && any && attempt->crowding.n_forbidden > 0 && judge (self, task->object, &after) == 1 &&
        after.n_forbidden > 0)
        task->error = g_error_new (ECFS_ERROR, EAGAIN, "%u stripe%s without a place that is allowed", after.n_forbidden,
                                   after.n_forbidden == 1 ? " is" : "s are");
    if (task->error == NULL && !any && judge (self, task->object, &attempt->crowding) == 1)
        task->error = g_error_new_literal (ECFS_ERROR, EAGAIN,
                                           /* what may still be written to is not moved */
                                           is_kind (self, task->object, ECFS_OBJECT_LOG)
                                               ? "it has small files that are packed soon, where they may be then"
                                               : "no better place is found now");
    if (task->error != NULL && task->error->code != ESTALE)
        conclude (self, attempt, ECFS_CROWDED_LEFT);
    else if (any)
        conclude (self, attempt, ECFS_CROWDED_MOVED);
    g_clear_error (&task->error);
    g_free (attempt);
}

static bool tick (void *user)
{
    return ecfs_fsck_tick (((Parting *) user)->run);
}

static bool is_wanted (const EcfsFsckRun *run)
{
    return (run->what->flags & ECFS_FSCK_REPAIR) && run->is_sound && run->sums.n_movable > 0 &&
           (run->what->confirm_move == NULL || run->what->confirm_move (run->what->user, run->sums.n_movable));
}

static void leave_all (Parting *self)
{
    Attempt *attempt;
    while ((attempt = next_attempt (self)) != NULL) {
        conclude (self, attempt, ECFS_CROWDED_FOUND);
        g_free (attempt);
    }
}

static bool part_all (Parting *self, GError **error)
{
    EcfsFsckRun *run = self->run;
    const EcfsRepairs moves = {.next = next_task, .done = task_done, .tick = tick, .user = self};
    bool wanted = is_wanted (run);
    if (!wanted || !ecfs_fsck_open_writer (run, error)) {
        leave_all (self);
        return !wanted;
    }
    if (run->writer->mounted)
        return ecfs_repair_mounted (ecfs_archive_directory (run->archive), &moves, error);
    ecfs_repair_here (run->writer->archive, &moves);
    return ecfs_catalog_barrier (ecfs_archive_catalog (run->writer->archive), error);
}

static void tell_waiting (const Parting *self)
{
    const EcfsArchive *archive = self->run->archive;
    for (size_t i = 0; i < self->roomy.n_places; i++) {
        if (self->n_waiting[i] == 0)
            continue;
        g_autofree char *why = ecfs_unusable_endpoint (ecfs_archive_endpoint (archive, i));
        ecfs_fsck_tell (self->run, ecfs_fsck_tell_waiting (archive, i, self->n_waiting[i],
                                                           why == NULL ? "it has no room for them" : why));
    }
}

bool ecfs_fsck_move_apart (EcfsFsckRun *self, GError **error)
{
    Parting parting = {.run = self, .last = {.urgency = INT_MIN}};
    ecfs_fsck_enter (self, "move", 0);
    bool is_known = ecfs_roomy_init (&parting.roomy, self->archive, error);
    parting.n_waiting = g_new0 (uint64_t, parting.roomy.n_places + 1);
    bool done = is_known && part_all (&parting, error);
    tell_waiting (&parting);
    ecfs_roomy_clear (&parting.roomy);
    g_free (parting.n_waiting);
    if (parting.error == NULL)
        return done && ecfs_fsck_goes_on (self, error);
    if (done)
        g_propagate_error (error, parting.error);
    else
        g_error_free (parting.error);
    return false;
}
