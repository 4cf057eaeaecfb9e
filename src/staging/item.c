/* One staged file: its life in memory and its place in the table. */
#include "archive/common.h"
#include "staging/staged_priv.h"
#include <time.h>
#include <unistd.h>

int64_t ecfs_staged_now_ns (void)
{
    struct timespec now;
    (void) clock_gettime (CLOCK_REALTIME, &now); /* cannot fail with this clock */
    return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}

EcfsStaged *ecfs_staged_alloc (EcfsStagedTable *table, uint64_t ino)
{
    EcfsStaged *self = g_new0 (EcfsStaged, 1);
    ecfs_mutex_init (&self->row_lock);
    atomic_init (&self->n_refs, 1);
    atomic_init (&self->cut_short, false);
    self->table = table;
    self->ino = ino;
    self->fd = -1;
    self->row_state = ECFS_ROW_NONE;
    self->phase = ECFS_PHASE_ABSENT;
    self->turn = ECFS_TURN_NONE;
    g_queue_init (&self->openers);
    g_queue_init (&self->flushes);
    g_queue_init (&self->durables);
    return self;
}

EcfsStaged *ecfs_staged_ref (EcfsStaged *self)
{
    atomic_fetch_add (&self->n_refs, 1);
    return self;
}

void ecfs_staged_unref (EcfsStaged *self)
{
    if (self == NULL || atomic_fetch_sub (&self->n_refs, 1) != 1)
        return;
    if (self->fd >= 0)
        (void) close (self->fd); /* what had to be durable was synced before */
    ecfs_mutex_clear (&self->row_lock);
    g_free (self->name);
    g_free (self->aside_name);
    g_free (self->failure);
    g_free (self);
}

/* The table's reference is an own one. */
void ecfs_staged_insert_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    self->phase = ECFS_PHASE_IDLE;
    g_hash_table_insert (table->files, &self->ino, ecfs_staged_ref (self));
    atomic_fetch_add (&table->n_files, 1);
}

EcfsStaged *ecfs_staged_find (EcfsArchive *archive, uint64_t ino)
{
    EcfsStagedTable *table = ecfs_archive_service (archive, ECFS_SERVICE_STAGING);
    if (table == NULL || atomic_load (&table->n_files) == 0)
        return NULL;
    ecfs_mutex_lock (&table->lock);
    EcfsStaged *self = g_hash_table_lookup (table->files, &ino);
    if (self != NULL)
        self = self->phase == ECFS_PHASE_OPENING ? NULL : ecfs_staged_ref (self);
    ecfs_mutex_unlock (&table->lock);
    return self;
}

bool ecfs_staged_is_clean (const EcfsStaged *self)
{
    return self->generation == self->committed_generation;
}

bool ecfs_staged_is_committing (const EcfsStaged *self)
{
    return self->phase == ECFS_PHASE_COMMITTING || self->phase == ECFS_PHASE_PUBLISHING;
}

bool ecfs_staged_is_filling (const EcfsStaged *self)
{
    return self->phase == ECFS_PHASE_FILLING || self->phase == ECFS_PHASE_TRAILING || self->phase == ECFS_PHASE_ENDING;
}

bool ecfs_staged_is_storing (const EcfsStaged *self)
{
    return ecfs_staged_is_committing (self) || ecfs_staged_is_filling (self) || self->phase == ECFS_PHASE_SETTLING;
}

bool ecfs_staged_owns_row_locked (EcfsStagedTable *table, const EcfsStaged *self)
{
    return self->phase == ECFS_PHASE_PUBLISHING || self->kept;
}

void ecfs_staged_charge_locked (EcfsStagedTable *table, EcfsStaged *self, uint64_t bytes)
{
    uint64_t charged = MIN (self->charged_bytes + bytes, self->size);
    table->staged_bytes += charged - self->charged_bytes;
    self->charged_bytes = charged;
}
