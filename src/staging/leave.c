/* How a file leaves staging: from the table, the directory and the catalog. */
#include "archive/common.h"
#include "staging/staged_priv.h"
#include <unistd.h>

void ecfs_staged_withdraw_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    if (self->phase == ECFS_PHASE_ABSENT)
        return;
    self->phase = ECFS_PHASE_ABSENT;
    ecfs_staged_forget_turn_locked (table, self);
    ecfs_staged_close_idle_locked (table, self);
    ecfs_staged_room_made_locked (table, self->charged_bytes);
    table->staged_bytes -= self->charged_bytes;
    self->charged_bytes = 0;
    atomic_fetch_add (&table->n_withdrawn, 1);
    atomic_fetch_sub (&table->n_files, 1);
    g_hash_table_remove (table->files, &self->ino);
    ecfs_cond_broadcast (&table->progress);
}

/* Bytes that were flushed go after their name is gone for good: a crash must not bring it back without them. */
static bool may_unlink (EcfsStaged *self) ECFS_REQUIRES (self->row_lock)
{
    g_autoptr (GError) error = NULL;
    if ((self->row_state != ECFS_STAGING_QUEUED && self->aside_row == 0) ||
        ecfs_catalog_barrier (ecfs_archive_catalog (self->table->archive), &error))
        return true;
    g_warning ("staging/%s: stays until the next mount: %s", self->name, error->message);
    return false;
}

static void remove_row (EcfsStaged *self, int64_t row)
{
    g_autoptr (GError) error = NULL;
    if (row != 0 && !ecfs_catalog_staging_remove (ecfs_archive_catalog (self->table->archive), row, &error) &&
        !g_error_matches (error, ECFS_ERROR, ENOENT)) /* it went with its inode */
        g_warning ("staging/%s: %s", self->name, error->message);
}

/* Removes a file that nobody needs from table, staging area and catalog. */
void ecfs_staged_leave (EcfsStaged *self)
{
    EcfsStagedTable *table = self->table;
    ecfs_mutex_lock (&self->row_lock);
    ecfs_mutex_lock (&table->lock);
    if (self->phase == ECFS_PHASE_LEAVING)
        self->phase = ECFS_PHASE_IDLE;
    bool leaves = ecfs_staged_may_leave_locked (table, self);
    if (leaves)
        ecfs_staged_withdraw_locked (table, self);
    else
        ecfs_staged_step_locked (table, self);
    ecfs_cond_broadcast (&table->progress);
    ecfs_mutex_unlock (&table->lock);

    if (leaves) {
        remove_row (self, self->row);
        remove_row (self, self->aside_row);
    }
    if (leaves && may_unlink (self)) {
        if (unlinkat (table->dir_fd, self->name, 0) != 0)
            g_warning ("staging/%s: cannot be removed: %s", self->name, g_strerror (errno));
        ecfs_staged_drop_aside (self);
    }
    ecfs_mutex_unlock (&self->row_lock);
}

static void leave_job (void *data)
{
    EcfsStaged *self = data;
    ecfs_staged_leave (self);
    ecfs_staged_unref (self);
}

void ecfs_staged_start_leaving_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    self->phase = ECFS_PHASE_LEAVING;
    ecfs_workers_push (table->workers, leave_job, ecfs_staged_ref (self));
}
