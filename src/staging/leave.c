/* How a file leaves staging: from the table, the directory and the catalog. */
#include "archive/common.h"
#include "staging/staged_priv.h"
#include <unistd.h>

#define LINGER_US  (200 * 1000) /* what another mount may take over, leaves with others that are stored meanwhile, … */
#define ALONG_MOST 4            /* … or with what another of them has the catalog change */

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

static void leave_alone_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    self->phase = ECFS_PHASE_LEAVING;
    ecfs_workers_push (table->workers, leave_job, ecfs_staged_ref (self));
}

/* Files that leave together: each is a transaction less of a database that others wait for. */
typedef struct Leavers {
    EcfsStagedTable *table;
    GPtrArray *files; /* of EcfsStaged, a reference each */
    GArray *rows;     /* of int64_t */
    GPtrArray *names;
} Leavers;

/* What is stored and nothing else of it is in the way; the rest leaves alone. */
static void take_leaver (Leavers *self, EcfsStaged *file)
{
    EcfsStagedTable *table = self->table;
    ecfs_mutex_lock (&file->row_lock);
    ecfs_mutex_lock (&table->lock);
    file->lingers = false;
    const bool is_plain = file->row != 0 && file->row_state == ECFS_STAGING_STORED && file->aside_row == 0;
    if (is_plain && ecfs_staged_may_leave_locked (table, file)) {
        ecfs_staged_withdraw_locked (table, file);
        g_array_append_val (self->rows, file->row);
        g_ptr_array_add (self->names, g_strdup (file->name));
    } else if (ecfs_staged_may_leave_locked (table, file) && !table->stopped) {
        leave_alone_locked (table, file);
    }
    ecfs_cond_broadcast (&table->progress);
    ecfs_mutex_unlock (&table->lock);
    ecfs_mutex_unlock (&file->row_lock);
}

/* With those of the table that linger, the first @most of them. */
static Leavers *leavers_new_locked (EcfsStagedTable *table, guint most) ECFS_REQUIRES (table->lock)
{
    Leavers *self = g_new0 (Leavers, 1);
    self->table = table;
    self->files = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_staged_unref);
    self->rows = g_array_new (FALSE, FALSE, sizeof (int64_t));
    self->names = g_ptr_array_new_with_free_func (g_free);
    while (table->lingering->len > 0 && self->files->len < most)
        g_ptr_array_add (self->files, g_ptr_array_steal_index (table->lingering, 0));
    if (table->lingering->len == 0)
        table->leave_us = 0;
    return self;
}

static void take_leavers (Leavers *self)
{
    for (guint i = 0; i < self->files->len; i++)
        take_leaver (self, g_ptr_array_index (self->files, i));
}

/* Those that the catalog has let go. */
static void end_leavers (Leavers *self)
{
    EcfsStagedTable *table = self->table;
    for (guint i = 0; i < self->names->len; i++)
        if (unlinkat (table->dir_fd, g_ptr_array_index (self->names, i), 0) != 0)
            g_warning ("staging/%s: cannot be removed: %s", (const char *) g_ptr_array_index (self->names, i),
                       g_strerror (errno));
    g_ptr_array_unref (self->files);
    g_ptr_array_unref (self->names);
    g_array_unref (self->rows);
    g_free (self);
}

static void remove_job (void *data)
{
    Leavers *self = data;
    g_autoptr (GError) error = NULL;
    EcfsArchive *archive = self->table->archive;
    const int64_t *rows = (const int64_t *) (void *) self->rows->data;
    if (!ecfs_catalog_staging_remove_all (ecfs_archive_catalog (archive), rows, self->rows->len, &error))
        g_warning ("%s/staging: %u files: %s", ecfs_archive_directory (archive), self->rows->len, error->message);
    end_leavers (self);
}

static void leave_together_job (void *data)
{
    take_leavers (data);
    remove_job (data);
}

int64_t ecfs_staged_end_lingering_locked (EcfsStagedTable *table, int64_t now_us)
{
    if (table->leave_us == 0 || now_us < table->leave_us)
        return table->leave_us == 0 ? INT64_MAX : table->leave_us;
    ecfs_workers_push (table->workers, leave_together_job, leavers_new_locked (table, G_MAXUINT));
    return INT64_MAX;
}

void *ecfs_staged_leave_along (void *user, const int64_t **ret_rows, size_t *ret_n_rows)
{
    EcfsStagedTable *table = ((const EcfsStaged *) user)->table;
    ecfs_mutex_lock (&table->lock);
    bool none = table->stopping || table->lingering->len == 0;
    Leavers *self = none ? NULL : leavers_new_locked (table, ALONG_MOST);
    ecfs_mutex_unlock (&table->lock);
    if (self == NULL)
        return NULL;
    take_leavers (self);
    *ret_rows = (const int64_t *) (void *) self->rows->data;
    *ret_n_rows = self->rows->len;
    return self;
}

void ecfs_staged_left (void *leavers, bool gone)
{
    if (gone)
        end_leavers (leavers);
    else
        remove_job (leavers);
}

static void linger_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    if (self->lingers)
        return;
    self->lingers = true;
    g_ptr_array_add (table->lingering, ecfs_staged_ref (self));
    if (table->leave_us == 0) {
        table->leave_us = ecfs_now_us () + LINGER_US;
        ecfs_staged_schedule_locked (table, table->leave_us);
    }
}

void ecfs_staged_start_leaving_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    if (!table->stopping && ecfs_catalog_is_shared (ecfs_archive_catalog (table->archive)))
        linger_locked (table, self);
    else
        leave_alone_locked (table, self);
}
