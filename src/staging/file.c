/*
 * What the other files of this room stand on: one staged file in memory, its row and the file in the staging directory
 * behind it; waking the timer, and answering who waits.
 *
 * The file is open while somebody uses it, and some that nobody uses stay open for who comes next. However many files
 * wait to be stored, few are open.
 */
#include "archive/common.h"
#include "staging/staged_priv.h"
#include "util/io.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define IDLE_MAX 64 /* open files that nobody uses */

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

void ecfs_staged_schedule_locked (EcfsStagedTable *table, int64_t at_us)
{
    if (at_us >= table->wake_us)
        return;
    table->wake_us = at_us;
    ecfs_cond_signal (&table->timer_wake);
}

/* Names */

char *ecfs_staged_row_name (int64_t row, uint64_t ino)
{
    return g_strdup_printf ("%" PRId64 ".%" PRIu64, row, ino);
}

char *ecfs_staged_copy_name (EcfsStagedTable *table, uint64_t ino)
{
    return g_strdup_printf (ECFS_STAGED_COPY_PREFIX "%" PRIu64 ".%u", ino, atomic_fetch_add (&table->serial, 1));
}

char *ecfs_staged_aside_name (const char *name)
{
    return g_strconcat (ECFS_STAGED_ASIDE_PREFIX, name, NULL);
}

bool ecfs_staged_parse_name (const char *name, uint64_t *ret_ino)
{
    const char *dot = strchr (name, '.');
    g_autofree char *row = dot == NULL ? NULL : g_strndup (name, (size_t) (dot - name));
    guint64 ino;
    if (row == NULL || !g_ascii_string_to_unsigned (row, 10, 1, INT64_MAX, NULL, NULL) ||
        !g_ascii_string_to_unsigned (dot + 1, 10, 1, INT64_MAX, &ino, NULL))
        return false;
    *ret_ino = ino;
    return true;
}

bool ecfs_staged_rename (EcfsStaged *self, char *name, GError **error)
{
    EcfsStagedTable *table = self->table;
    if (renameat (table->dir_fd, self->name, table->dir_fd, name) != 0) {
        int code = errno;
        bool ok = ecfs_fail_errno (error, code, "staging/%s: cannot be renamed to %s", self->name, name);
        g_free (name);
        return ok;
    }
    ecfs_mutex_lock (&table->lock);
    g_free (self->name);
    self->name = name;
    ecfs_mutex_unlock (&table->lock);
    return true;
}

/* The row */

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

/* The descriptor */

static void unlink_idle_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    if (self->idle.data == NULL)
        return;
    g_queue_unlink (&table->idle, &self->idle);
    self->idle.data = NULL;
}

void ecfs_staged_close_idle_locked (EcfsStagedTable *table, EcfsStaged *self)
{
    if (self->idle.data == NULL)
        return;
    unlink_idle_locked (table, self);
    (void) close (self->fd); /* what had to be durable was synced before */
    self->fd = -1;
}

static void put_idle_locked (EcfsStagedTable *table, EcfsStaged *self) ECFS_REQUIRES (table->lock)
{
    self->idle.data = self;
    g_queue_push_tail_link (&table->idle, &self->idle);
    if (self->phase == ECFS_PHASE_ABSENT || table->idle.length > IDLE_MAX)
        ecfs_staged_close_idle_locked (table,
                                       self->phase == ECFS_PHASE_ABSENT ? self : g_queue_peek_head (&table->idle));
}

void ecfs_staged_take_fd_locked (EcfsStagedTable *table, EcfsStaged *self, int fd, unsigned n_uses)
{
    self->fd = fd;
    self->n_fd_uses = n_uses;
    if (n_uses == 0)
        put_idle_locked (table, self);
}

/* One try at opening a file that is closed. False: not open, and no use in trying again. */
static bool open_closed (EcfsStaged *self, GError **error)
{
    EcfsStagedTable *table = self->table;
    ecfs_mutex_lock (&table->lock);
    g_autofree char *name = g_strdup (self->name);
    ecfs_mutex_unlock (&table->lock);
    int fd = openat (table->dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    int code = errno;
    ecfs_mutex_lock (&table->lock);
    bool renamed = strcmp (name, self->name) != 0;
    bool ours = fd >= 0 && self->fd < 0;
    if (ours)
        ecfs_staged_take_fd_locked (table, self, fd, 0);
    ecfs_mutex_unlock (&table->lock);
    if (fd >= 0 && !ours)
        (void) close (fd); /* somebody else was faster */
    return fd >= 0 || renamed || ecfs_fail_errno (error, code, "staging/%s", name);
}

int ecfs_staged_hold_fd (EcfsStaged *self, GError **error)
{
    EcfsStagedTable *table = self->table;
    for (;;) {
        ecfs_mutex_lock (&table->lock);
        int fd = self->fd;
        if (fd >= 0) {
            self->n_fd_uses++;
            unlink_idle_locked (table, self);
        }
        ecfs_mutex_unlock (&table->lock);
        if (fd >= 0 || !open_closed (self, error))
            return fd;
    }
}

void ecfs_staged_release_fd (EcfsStaged *self)
{
    EcfsStagedTable *table = self->table;
    ecfs_mutex_lock (&table->lock);
    if (--self->n_fd_uses == 0)
        put_idle_locked (table, self);
    ecfs_mutex_unlock (&table->lock);
}

int ecfs_staged_fd (EcfsStaged *self)
{
    ecfs_mutex_lock (&self->table->lock);
    int fd = self->fd;
    ecfs_mutex_unlock (&self->table->lock);
    return fd;
}

EcfsStaged *ecfs_staged_read_begin (EcfsArchive *archive, uint64_t ino, GError **error)
{
    EcfsStaged *self = ecfs_staged_find (archive, ino);
    g_autoptr (GError) reason = NULL;
    if (self == NULL || ecfs_staged_hold_fd (self, &reason) >= 0)
        return self;
    ecfs_staged_unref (self);
    if (!g_error_matches (reason, ECFS_ERROR, ENOENT)) /* else it is stored and gone */
        g_propagate_error (error, g_steal_pointer (&reason));
    return NULL;
}

void ecfs_staged_read_end (EcfsStaged *self)
{
    if (self == NULL)
        return;
    ecfs_staged_release_fd (self);
    ecfs_staged_unref (self);
}

/* Size */

void ecfs_staged_count_data (EcfsStaged *self, uint64_t *bytes)
{
    EcfsStagedTable *table = self->table;
    for (bool settled = false; !settled;) {
        struct stat st;
        ecfs_mutex_lock (&table->lock);
        g_autofree char *name = g_strdup (self->name);
        ecfs_mutex_unlock (&table->lock);
        if (fstatat (table->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            bool inside = st.st_blocks == 0 && st.st_size > 0; /* of the inode, as some file systems keep a few bytes */
            *bytes = inside ? 1 : (uint64_t) st.st_blocks * 512;
            return;
        }
        ecfs_mutex_lock (&table->lock);
        settled = strcmp (self->name, name) == 0;
        ecfs_mutex_unlock (&table->lock);
    }
}

/* Answers */

EcfsWaiter *ecfs_answer_new (EcfsStagedDone done, void *user)
{
    EcfsWaiter *answer = g_new0 (EcfsWaiter, 1);
    answer->done = done;
    answer->user = user;
    return answer;
}

void ecfs_answer_all (GQueue *answers)
{
    EcfsWaiter *answer;
    while ((answer = g_queue_pop_head (answers)) != NULL) {
        answer->done (answer->user, answer->error);
        g_clear_error (&answer->error);
        g_free (answer);
    }
}

void ecfs_answer_take_error (EcfsWaiter *answer, const GError *error)
{
    if (answer->error == NULL && error != NULL)
        answer->error = g_error_copy (error);
}

void ecfs_answers_move (GQueue *from, GQueue *to, const GError *error)
{
    EcfsWaiter *answer;
    while ((answer = g_queue_pop_head (from)) != NULL) {
        ecfs_answer_take_error (answer, error);
        g_queue_push_tail (to, answer);
    }
}
