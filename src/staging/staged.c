#include "archive/common.h"
#include "staging/staged_priv.h"
#include "util/io.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define N_WORKERS 4
#define N_COPIERS 2

#define STOP_FULL_US (30 * G_USEC_PER_SEC) /* for what has its quorum, when all else has ended */
#define LOOK_US      200000

int64_t ecfs_staged_now_ns (void)
{
    struct timespec now;
    (void) clock_gettime (CLOCK_REALTIME, &now); /* cannot fail with this clock */
    return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}

bool ecfs_staged_is_clean (const EcfsStaged *self)
{
    return self->generation == self->committed_generation;
}

/* The table */

static EcfsStagedTable *table_of (EcfsArchive *archive)
{
    return ecfs_archive_service (archive, ECFS_SERVICE_STAGING);
}

static void unref_file (gpointer data)
{
    ecfs_staged_unref (data);
}

static EcfsStagedTable *table_new (EcfsArchive *archive, int dir_fd)
{
    EcfsStagedTable *table = g_new0 (EcfsStagedTable, 1);
    ecfs_mutex_init (&table->lock);
    ecfs_cond_init (&table->timer_wake);
    ecfs_cond_init (&table->progress);
    table->archive = archive;
    table->dir_fd = dir_fd;
    table->files = g_hash_table_new_full (g_int64_hash, g_int64_equal, NULL, unref_file);
    g_queue_init (&table->idle);
    g_queue_init (&table->paused);
    ecfs_staged_queues_init (table);
    ecfs_staged_stream_init (table);
    table->workers = ecfs_workers_new ("ecfs-staging", N_WORKERS);
    table->copiers = ecfs_workers_new ("ecfs-copy-up", N_COPIERS);
    return table;
}

/* The table says stopped, or nobody knows it yet: no more jobs come. */
static void stop_workers (EcfsStagedTable *table)
{
    ecfs_workers_free (table->copiers);
    ecfs_workers_free (table->workers);
    table->workers = table->copiers = NULL;
}

void ecfs_staged_table_free (EcfsStagedTable *table)
{
    if (table == NULL)
        return;
    ecfs_staged_queues_clear (table);
    g_hash_table_destroy (table->files);
    (void) close (table->dir_fd); /* a directory: nothing to lose */
    ecfs_cond_clear (&table->timer_wake);
    ecfs_cond_clear (&table->progress);
    ecfs_mutex_clear (&table->lock);
    g_free (table);
}

/* Begins whatever there is to be done; n_busy says what is under way then. */
static void step_all_locked (EcfsStagedTable *table) ECFS_REQUIRES (table->lock)
{
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init (&iter, table->files);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        EcfsStaged *self = value;
        self->retry_us = 0;
        ecfs_staged_line_up_locked (table, self);
    }
    ecfs_staged_dispatch_locked (table);
}

bool ecfs_staged_start (EcfsArchive *archive, GError **error)
{
    ecfs_autofd dir_fd = ecfs_staged_open_dir (archive, "staging", error);
    if (dir_fd < 0 || !ecfs_staged_check_identity (archive, dir_fd, error))
        return false;
    EcfsStagedTable *table = table_new (archive, ecfs_steal_fd (&dir_fd));
    if (!ecfs_staged_recover (table, error)) {
        stop_workers (table);
        ecfs_staged_table_free (table);
        return false;
    }
    ecfs_mutex_lock (&table->lock);
    step_all_locked (table);
    ecfs_mutex_unlock (&table->lock);
    if (pthread_create (&table->timer, NULL, ecfs_staged_timer, table) != 0)
        g_error ("cannot start a thread");
    ecfs_archive_set_service (archive, ECFS_SERVICE_STAGING, table);
    return true;
}

static unsigned count_left_locked (EcfsStagedTable *table, GQueue *answers) ECFS_REQUIRES (table->lock)
{
    g_autoptr (GError) ended = g_error_new_literal (ECFS_ERROR, ECANCELED, "the mount ends");
    unsigned n_left = 0;
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init (&iter, table->files);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        EcfsStaged *self = value;
        n_left += !ecfs_staged_is_clean (self) && !self->unlinked;
        ecfs_staged_give_up_locked (table, self, ended, answers);
    }
    return n_left;
}

/* Whether a file that has its quorum is being brought to full, or is worth a try: where tries fail one after the other
 * an endpoint is away, and waiting would not help. */
static bool is_filling_locked (EcfsStagedTable *table) ECFS_REQUIRES (table->lock)
{
    GHashTableIter iter;
    gpointer value;
    if (table->fill_pace.n_failures >= ECFS_STAGED_FILL_TRIES)
        return false;
    g_hash_table_iter_init (&iter, table->files);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        const EcfsStaged *self = value;
        if (ecfs_staged_is_clean (self) && self->row_state == ECFS_STAGING_STORED && !self->full && !self->unlinked &&
            self->n_writers == 0 && self->n_failures < ECFS_STAGED_FILL_TRIES)
            return true;
    }
    return false;
}

void ecfs_staged_await_full (EcfsArchive *archive, bool (*goes_on) (void *user), void *user)
{
    bool on = true;
    EcfsStagedTable *table = table_of (archive);
    ecfs_mutex_lock (&table->lock);
    step_all_locked (table);
    while (on && is_filling_locked (table)) {
        (void) ecfs_cond_wait_until (&table->progress, &table->lock, ecfs_now_us () + LOOK_US);
        ecfs_mutex_unlock (&table->lock);
        on = goes_on (user);
        ecfs_mutex_lock (&table->lock);
    }
    ecfs_mutex_unlock (&table->lock);
}

static void await_end_locked (EcfsStagedTable *table, int64_t deadline_us) ECFS_REQUIRES (table->lock)
{
    int64_t full_us = 0; /* until then what is committed is brought to full */
    for (;;) {
        int64_t now_us = ecfs_now_us ();
        if (table->n_busy == 0 && full_us == 0)
            full_us = MIN (now_us + STOP_FULL_US, deadline_us);
        if (now_us >= deadline_us || (table->n_busy == 0 && (now_us >= full_us || !is_filling_locked (table))))
            return;
        (void) ecfs_cond_wait_until (&table->progress, &table->lock, now_us + LOOK_US);
    }
}

void ecfs_staged_stop (EcfsArchive *archive, int64_t deadline_us, unsigned *ret_left)
{
    EcfsStagedTable *table = table_of (archive);
    *ret_left = 0;
    if (table == NULL)
        return;
    ecfs_mutex_lock (&table->lock);
    table->stopping = table->filling = true;
    step_all_locked (table);
    await_end_locked (table, deadline_us);
    table->filling = false;
    step_all_locked (table);
    table->stopped = true;
    ecfs_cond_broadcast (&table->timer_wake);
    ecfs_mutex_unlock (&table->lock);

    if (pthread_join (table->timer, NULL) != 0)
        g_error ("cannot join the timer of staging");
    stop_workers (table);
    GQueue answers = G_QUEUE_INIT;
    ecfs_mutex_lock (&table->lock);
    *ret_left = count_left_locked (table, &answers);
    (void) ecfs_staged_resume_locked (table, ecfs_now_us (), &answers);
    ecfs_mutex_unlock (&table->lock);
    ecfs_answer_all (&answers);
}

/* One staged file */

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
    self->in_table = true;
    g_hash_table_insert (table->files, &self->ino, ecfs_staged_ref (self));
    atomic_fetch_add (&table->n_files, 1);
}

void ecfs_staged_withdraw_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    if (!self->in_table)
        return;
    self->in_table = false;
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

void ecfs_staged_charge_locked (EcfsStagedTable *table, EcfsStaged *self, uint64_t bytes)
{
    uint64_t charged = MIN (self->charged_bytes + bytes, self->size);
    table->staged_bytes += charged - self->charged_bytes;
    self->charged_bytes = charged;
}

EcfsStaged *ecfs_staged_new (EcfsArchive *archive, const EcfsAttr *attr, int64_t staging, GError **error)
{
    EcfsStagedTable *table = table_of (archive);
    g_autofree char *name = ecfs_staged_row_name (staging, attr->ino);
    int fd = openat (table->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && !ecfs_fail_errno (error, errno, "%s/staging/%s", ecfs_archive_directory (archive), name))
        return NULL;
    EcfsStaged *self = ecfs_staged_alloc (table, attr->ino);
    self->name = g_steal_pointer (&name);
    self->row = staging;
    self->row_state = ECFS_STAGING_OPEN;
    self->mtime_ns = attr->mtime_ns;
    self->ctime_ns = attr->ctime_ns;
    self->generation = 1; /* the empty file is not committed yet */
    self->n_writers = 1;
    ecfs_mutex_lock (&table->lock);
    ecfs_staged_insert_locked (table, self);
    ecfs_staged_take_fd_locked (table, self, fd, 1);
    ecfs_mutex_unlock (&table->lock);
    return self;
}

static EcfsStaged *lookup_locked (EcfsStagedTable *table, uint64_t ino) ECFS_REQUIRES (table->lock)
{
    return g_hash_table_lookup (table->files, &ino);
}

EcfsStaged *ecfs_staged_find (EcfsArchive *archive, uint64_t ino)
{
    EcfsStagedTable *table = table_of (archive);
    if (table == NULL || atomic_load (&table->n_files) == 0)
        return NULL;
    ecfs_mutex_lock (&table->lock);
    EcfsStaged *self = lookup_locked (table, ino);
    if (self != NULL)
        self = self->opening ? NULL : ecfs_staged_ref (self);
    ecfs_mutex_unlock (&table->lock);
    return self;
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

/* Changes */

static bool rename_to_row (EcfsStaged *self, int64_t row, GError **error) ECFS_REQUIRES (self->row_lock)
{
    if (!ecfs_staged_rename (self, ecfs_staged_row_name (row, self->ino), error))
        return false;
    ecfs_mutex_lock (&self->table->lock);
    self->row = row;
    self->row_state = ECFS_STAGING_OPEN;
    self->name_durable = false;
    self->full = false;
    ecfs_mutex_unlock (&self->table->lock);
    return true;
}

bool ecfs_staged_reopen_row (EcfsStaged *self, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->table->archive);
    int64_t row = self->row;
    if (row == 0)
        return ecfs_catalog_staging_add (catalog, self->ino, &row, error) && rename_to_row (self, row, error);
    if (self->row_state != ECFS_STAGING_STORED)
        return true;
    ecfs_mutex_lock (&self->table->lock);
    uint64_t size = self->size;
    ecfs_mutex_unlock (&self->table->lock);
    if (!ecfs_catalog_staging_set (catalog, row, ECFS_STAGING_OPEN, size, 0, NULL, error))
        return false;
    ecfs_mutex_lock (&self->table->lock);
    self->row_state = ECFS_STAGING_OPEN;
    ecfs_mutex_unlock (&self->table->lock);
    return true;
}

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
    self->durable_failed = false;
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

void ecfs_staged_attr (EcfsStaged *self, EcfsAttr *attr)
{
    ecfs_staged_count_data (self, &attr->data_bytes);
    ecfs_mutex_lock (&self->table->lock);
    attr->size = self->size;
    attr->mtime_ns = self->mtime_ns;
    self->ctime_ns = MAX (self->ctime_ns, attr->ctime_ns);
    attr->ctime_ns = self->ctime_ns;
    ecfs_mutex_unlock (&self->table->lock);
}

unsigned ecfs_staged_epoch (EcfsArchive *archive)
{
    EcfsStagedTable *table = table_of (archive);
    return table == NULL ? 0 : atomic_load (&table->n_withdrawn);
}

unsigned ecfs_staged_n_too_large (EcfsArchive *archive)
{
    EcfsStagedTable *table = table_of (archive);
    return table == NULL ? 0 : atomic_load (&table->n_too_large);
}

void ecfs_staged_overlay (EcfsArchive *archive, unsigned moment, EcfsAttr *attr)
{
    if (!S_ISREG (attr->mode))
        return;
    for (;;) {
        EcfsStaged *self = ecfs_staged_find (archive, attr->ino);
        if (self != NULL) {
            ecfs_staged_attr (self, attr);
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
    EcfsStagedTable *table = table_of (archive);
    if (table == NULL)
        return;
    GQueue answers = G_QUEUE_INIT;
    ecfs_mutex_lock (&table->lock);
    EcfsStaged *self = lookup_locked (table, ino);
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
