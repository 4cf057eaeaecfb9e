/* What is to be seen of staged files from outside: attributes, and whether there is anything newer. */
#include "archive/common.h"
#include "staging/staged_priv.h"
#include <sys/stat.h>

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
