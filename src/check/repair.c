/* Damaged objects, repaired several at a time in the archive that this process has opened for writing. */
#include "archive/ended.h"
#include "catalog/past.h"
#include "check/check.h"
#include "commit/logs.h"
#include "packing/packing.h"

#include <inttypes.h>

#define MAX_IN_FLIGHT 8
#define TICK_US       200000

typedef struct Runner {
    EcfsArchive *archive;
    const EcfsRepairs *repairs;
    unsigned n_in_flight;
    atomic_bool cancelled;
    EcfsEnded ended; /* of Attempt */
} Runner;

typedef struct Attempt {
    Runner *runner;
    EcfsRepairTask *task;
} Attempt;

static void on_done (void *user, const EcfsOutcome *outcome)
{
    Attempt *attempt = user;
    Runner *self = attempt->runner;
    attempt->task->error = outcome->error == NULL ? NULL : g_error_copy (outcome->error);
    ecfs_ended_push (&self->ended, attempt);
}

/* Takes what has ended, waiting for something at most one tick. */
static void reap (Runner *self)
{
    GQueue ended = ecfs_ended_take (&self->ended, TICK_US);
    Attempt *attempt;
    while ((attempt = g_queue_pop_head (&ended)) != NULL) {
        self->n_in_flight--;
        self->repairs->done (self->repairs->user, attempt->task);
        g_free (attempt);
    }
    if (!self->repairs->tick (self->repairs->user))
        atomic_store (&self->cancelled, true);
}

/* The file that has the object; what only the past has is of none, and gets a name. */
static bool find_file (const Runner *self, int64_t object, EcfsAttr *ret_attr, char **ret_name, GError **error)
{
    uint64_t ino;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    *ret_name = NULL;
    if (!ecfs_object_is_past (object))
        return ecfs_catalog_object_file (catalog, object, &ino, error) &&
               ecfs_catalog_getattr (catalog, ino, ret_attr, error);
    g_autoptr (EcfsObjectRow) row = ecfs_catalog_object (catalog, object, error);
    if (row == NULL)
        return false;
    *ret_attr = (EcfsAttr){.size = row->size};
    *ret_name = ecfs_past_name (&row->uuid);
    return true;
}

static bool submit (Runner *self, EcfsRepairTask *task, GError **error)
{
    EcfsAttr attr;
    g_autofree char *name = NULL;
    if (!find_file (self, task->object, &attr, &name, error))
        return false;
    Attempt *attempt = g_new (Attempt, 1);
    *attempt = (Attempt){.runner = self, .task = task};
    EcfsCommit commit = {.kind = ECFS_COMMIT_REPAIR,
                         .ino = attr.ino,
                         .path = name,
                         .fd = -1,
                         .size = attr.size,
                         .mtime_ns = attr.mtime_ns,
                         .object = task->object,
                         .repair = {.order = &task->order, .pace = task->pace},
                         .patient = true,
                         .is_foreign = true,
                         .cancelled = &self->cancelled,
                         .done = on_done,
                         .user = attempt};
    self->n_in_flight++;
    ecfs_archive_commit (self->archive, &commit);
    return true;
}

/* Whose files can be packed: of the past there are none. */
static bool is_log (const Runner *self, int64_t object)
{
    g_autoptr (EcfsObjectRow) row = ecfs_catalog_object (ecfs_archive_catalog (self->archive), object, NULL);
    return row != NULL && row->kind == ECFS_OBJECT_LOG && !ecfs_object_is_past (object);
}

/* Its stripes are wanted no more. */
static void count_as_stored (EcfsRepairTask *task)
{
    for (unsigned i = 0; i < ECFS_CODEC_MAX_N; i++)
        task->order.n_stored += task->order.instance[i] != 0;
}

/* A log or pack of which no file has anything goes; false: it is none. */
static bool drop_empty (Runner *self, EcfsRepairTask *task)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    g_autoptr (EcfsObjectRow) row = ecfs_catalog_object (catalog, task->object, NULL);
    uint64_t live_bytes;
    bool gone = false;
    if (row == NULL || row->kind != ECFS_OBJECT_PACK || ecfs_object_is_past (row->id) ||
        !ecfs_catalog_live_bytes (catalog, row->id, &live_bytes, NULL) || live_bytes > 0)
        return false;
    EcfsMutex *turn = ecfs_logs_packing_lock (ecfs_archive_service (self->archive, ECFS_SERVICE_LOGS));
    ecfs_mutex_lock (turn);
    bool fine = ecfs_catalog_drop_unused (catalog, &row->uuid, &gone, &task->error);
    ecfs_mutex_unlock (turn);
    if (gone)
        count_as_stored (task);
    return gone || !fine;
}

/* The files of a log go into packs, which are whole. False: endpoints do not take packs now, as a pack needs all of
 * its stripes; then the log gets new copies. */
static bool pack_log (Runner *self, EcfsRepairTask *task)
{
    g_autoptr (GError) error = NULL;
    EcfsPacking packing = {.archive = self->archive, .cancelled = &self->cancelled};
    bool fine = ecfs_pack_objects (&packing, &task->object, 1, &error);
    if (!fine && !atomic_load (&self->cancelled)) {
        g_info ("a log is copied, as it cannot be packed: %s", error->message);
        return false;
    }
    if (fine && packing.n_left > 0)
        (void) !ecfs_fail (&task->error, EIO, "%" PRIu64 " files in it cannot be read", packing.n_left);
    else if (!fine)
        task->error = g_steal_pointer (&error);
    task->order.read_bytes = task->order.written_bytes = packing.bytes;
    if (task->error == NULL)
        count_as_stored (task);
    return true;
}

static unsigned most_in_flight (const Runner *self)
{
    return self->repairs->most == NULL ? MAX_IN_FLIGHT : self->repairs->most (self->repairs->user);
}

static void run (Runner *self)
{
    for (;;) {
        EcfsRepairTask *task = atomic_load (&self->cancelled) ? NULL : self->repairs->next (self->repairs->user);
        if (task == NULL && self->n_in_flight == 0)
            return;
        if (task == NULL) {
            reap (self);
            continue;
        }
        const bool whole = !is_log (self, task->object);
        if (drop_empty (self, task) ||
            (whole ? ecfs_repair_adopt (self->archive, task, self->repairs) : pack_log (self, task))) {
            self->repairs->done (self->repairs->user, task);
            continue;
        }
        if (!submit (self, task, &task->error)) {
            if (task->error->code == ENOENT) /* deleted since */
                task->error->code = ESTALE;
            self->repairs->done (self->repairs->user, task);
        }
        while (self->n_in_flight >= most_in_flight (self))
            reap (self);
    }
}

void ecfs_repair_task_clear (EcfsRepairTask *task)
{
    g_clear_error (&task->error);
    g_clear_pointer (&task->spares, g_array_unref);
}

void ecfs_repair_here (EcfsArchive *archive, const EcfsRepairs *repairs)
{
    Runner self = {.archive = archive, .repairs = repairs};
    atomic_init (&self.cancelled, false);
    ecfs_ended_init (&self.ended);
    run (&self);
    ecfs_ended_clear (&self.ended);
}
