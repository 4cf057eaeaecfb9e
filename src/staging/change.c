/* Changes of a staged file by those who have it open, its end when its last name goes, and its attributes. */
#include "archive/common.h"
#include "staging/staged_priv.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

/* Before bytes from @offset on change, and at most @size more come; the first @keep bytes stay. */
static bool begin_change (EcfsStaged *self, uint64_t offset, uint64_t keep, uint64_t size, GError **error)
{
    ecfs_mutex_lock (&self->table->lock);
    while (ecfs_staged_is_promised_locked (self->table, self, offset, keep)) {
        ecfs_mutex_unlock (&self->table->lock);
        if (!ecfs_staged_set_apart (self, offset, keep, error))
            return false;
        ecfs_mutex_lock (&self->table->lock);
    }
    bool ok = ecfs_staged_check_room_locked (self->table, size, error);
    if (ok)
        ecfs_staged_stream_hold_locked (self->table, self, offset);
    self->n_changing += ok;
    bool has_row = self->row_state == ECFS_STAGING_OPEN || self->row_state == ECFS_STAGING_QUEUED || self->unlinked;
    ecfs_mutex_unlock (&self->table->lock);
    if (!ok || has_row)
        return ok;
    ecfs_mutex_lock (&self->row_lock);
    ok = ecfs_staged_reopen_row (self, error);
    ecfs_mutex_unlock (&self->row_lock);
    if (!ok) {
        ecfs_mutex_lock (&self->table->lock);
        self->n_changing--;
        ecfs_mutex_unlock (&self->table->lock);
    }
    return ok;
}

bool ecfs_staged_change_begin (EcfsStaged *self, uint64_t offset, uint64_t size, GError **error)
{
    return begin_change (self, offset, UINT64_MAX, size, error);
}

/* @n_new_bytes were written, up to @end. */
static void moved_locked (EcfsStaged *self, uint64_t n_new_bytes, uint64_t end, int64_t mtime_ns)
    ECFS_REQUIRES (self->table->lock)
{
    self->n_changing--;
    if (self->setting_apart)
        ecfs_cond_broadcast (&self->table->progress);
    self->generation++;
    if (self->durability == ECFS_DURABILITY_FAILED)
        self->durability = ECFS_DURABILITY_IDLE;
    if (mtime_ns != self->mtime_ns) /* else nothing was changed */
        self->ctime_ns = MAX (self->ctime_ns, mtime_ns);
    self->mtime_ns = mtime_ns;
    ecfs_staged_stream_moved_locked (self->table, self, n_new_bytes, end);
}

bool ecfs_staged_change_end (EcfsStaged *self, uint64_t n_new_bytes, uint64_t size, int64_t mtime_ns)
{
    ecfs_mutex_lock (&self->table->lock);
    self->size = MAX (self->size, size);
    self->written_bytes += n_new_bytes;
    ecfs_staged_charge_locked (self->table, self, n_new_bytes);
    moved_locked (self, n_new_bytes, size, mtime_ns);
    bool go_on = !self->held && !ecfs_staged_is_over_locked (self->table);
    ecfs_mutex_unlock (&self->table->lock);
    return go_on;
}

bool ecfs_staged_truncate (EcfsStaged *self, uint64_t size, int64_t mtime_ns, GError **error)
{
    if (!begin_change (self, size, size, 0, error))
        return false;
    int result = ftruncate (ecfs_staged_fd (self), (off_t) size) == 0 ? 0 : errno;
    ecfs_mutex_lock (&self->table->lock);
    if (result == 0)
        self->size = size;
    if (result == 0 && size == 0) /* what comes now is all new */
        ecfs_staged_emptied_locked (self->table, self);
    if (self->charged_bytes > self->size) {
        ecfs_staged_room_made_locked (self->table, self->charged_bytes - self->size);
        self->table->staged_bytes -= self->charged_bytes - self->size;
        self->charged_bytes = self->size;
    }
    moved_locked (self, 0, 0, result == 0 ? mtime_ns : self->mtime_ns);
    ecfs_mutex_unlock (&self->table->lock);
    return result == 0 || ecfs_fail_errno (error, result, "staging/%" PRId64 ": cannot be truncated", self->row);
}

void ecfs_staged_release (EcfsStaged *self)
{
    EcfsStagedTable *table = self->table;
    ecfs_mutex_lock (&table->lock);
    if (self->n_writers > 0)
        self->n_writers--;
    ecfs_staged_rest_locked (table, self);
    ecfs_staged_step_locked (table, self);
    ecfs_mutex_unlock (&table->lock);
    ecfs_staged_release_fd (self);
    ecfs_staged_unref (self);
}

static void lost_name (EcfsArchive *archive, uint64_t ino, bool dropped)
{
    EcfsStagedTable *table = ecfs_archive_service (archive, ECFS_SERVICE_STAGING);
    if (table == NULL)
        return;
    GQueue answers = G_QUEUE_INIT;
    ecfs_mutex_lock (&table->lock);
    EcfsStaged *self = g_hash_table_lookup (table->files, &ino);
    if (self != NULL) {
        self->unlinked = true;
        self->dropped = self->dropped || dropped;
        ecfs_staged_give_up_locked (table, self, NULL, &answers);
        ecfs_staged_step_locked (table, self);
    }
    ecfs_mutex_unlock (&table->lock);
    ecfs_answer_all (&answers);
}

void ecfs_staged_unlinked (EcfsArchive *archive, uint64_t ino)
{
    lost_name (archive, ino, false);
}

void ecfs_staged_drop (EcfsArchive *archive, uint64_t ino)
{
    lost_name (archive, ino, true);
}

/* Attributes */

/* The size, data_bytes, mtime and ctime that the file has now, into *attr (others untouched). */
static void read_attr (EcfsStaged *self, EcfsAttr *attr)
{
    ecfs_staged_count_data (self, &attr->data_bytes);
    ecfs_mutex_lock (&self->table->lock);
    attr->size = self->size;
    attr->mtime_ns = self->mtime_ns;
    self->ctime_ns = MAX (self->ctime_ns, attr->ctime_ns);
    attr->ctime_ns = self->ctime_ns;
    ecfs_mutex_unlock (&self->table->lock);
}

bool ecfs_staged_set_mtime (EcfsStaged *self, int64_t mtime_ns)
{
    ecfs_mutex_lock (&self->row_lock); /* what is being made durable or published has the time of before, or this one */
    ecfs_mutex_lock (&self->table->lock);
    self->mtime_ns = mtime_ns;
    self->ctime_ns = MAX (self->ctime_ns, ecfs_staged_now_ns ());
    bool in_catalog = MAX (self->committed_generation, self->durable_generation) >= self->generation;
    ecfs_mutex_unlock (&self->table->lock);
    ecfs_mutex_unlock (&self->row_lock);
    return in_catalog;
}

unsigned ecfs_staged_epoch (EcfsArchive *archive)
{
    EcfsStagedTable *table = ecfs_archive_service (archive, ECFS_SERVICE_STAGING);
    return table == NULL ? 0 : atomic_load (&table->n_withdrawn);
}

void ecfs_staged_overlay (EcfsArchive *archive, unsigned moment, EcfsAttr *attr)
{
    if (!S_ISREG (attr->mode))
        return;
    for (;;) {
        EcfsStaged *self = ecfs_staged_find (archive, attr->ino);
        if (self != NULL) {
            read_attr (self, attr);
            ecfs_staged_unref (self);
            return;
        }
        unsigned now = ecfs_staged_epoch (archive);
        EcfsAttr newer;
        if (now == moment || !ecfs_catalog_getattr (ecfs_archive_catalog (archive), attr->ino, &newer, NULL))
            return; /* an inode that is gone is as good with its last attributes */
        *attr = newer;
        moment = now;
    }
}

bool ecfs_staged_is_newer (EcfsArchive *archive, uint64_t ino)
{
    EcfsStaged *self = ecfs_staged_find (archive, ino);
    if (self == NULL)
        return false;
    ecfs_mutex_lock (&self->table->lock);
    bool newer = !ecfs_staged_is_clean (self);
    ecfs_mutex_unlock (&self->table->lock);
    ecfs_staged_unref (self);
    return newer;
}

bool ecfs_staged_is_unflushed (EcfsArchive *archive, uint64_t ino)
{
    EcfsStaged *self = ecfs_staged_find (archive, ino);
    if (self == NULL)
        return false;
    ecfs_mutex_lock (&self->table->lock);
    bool unflushed = ecfs_staged_flushed_locked (self->table, self) == 0;
    ecfs_mutex_unlock (&self->table->lock);
    ecfs_staged_unref (self);
    return unflushed;
}

unsigned ecfs_staged_n_too_large (EcfsArchive *archive)
{
    EcfsStagedTable *table = ecfs_archive_service (archive, ECFS_SERVICE_STAGING);
    return table == NULL ? 0 : atomic_load (&table->n_too_large);
}
