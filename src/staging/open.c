#include "archive/common.h"
#include "archive/content_check.h"
#include "staging/staged_priv.h"
#include "util/io.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_BYTES    (1u << 20) /* read at a time */
#define BLOCK_BYTES   65536u     /* of zeros that are not written, so that holes stay holes */
#define LEASE_US      (5 * G_USEC_PER_SEC)
#define LEASE_LOOK_US (G_USEC_PER_SEC / 10)
#define ATTEMPTS      5 /* at content of which endpoints return other bytes than they got */

/* Copying up */

static bool is_zero (const uint8_t *bytes, size_t size)
{
    return size == 0 || (bytes[0] == 0 && memcmp (bytes, bytes + 1, size - 1) == 0);
}

static bool write_sparse (EcfsStaged *self, int fd, const uint8_t *bytes, size_t size, uint64_t offset,
                          uint64_t *written, GError **error)
{
    for (size_t done = 0; done < size; done += BLOCK_BYTES) {
        size_t part = MIN (size - done, BLOCK_BYTES);
        if (is_zero (bytes + done, part))
            continue;
        int result = ecfs_pwrite_all (fd, bytes + done, part, offset + done);
        if (result != 0)
            return ecfs_fail_errno (error, -result, "staging/%s", self->name);
        *written += part;
    }
    return true;
}

static bool copy_extent (EcfsStaged *self, int fd, EcfsContent *content, EcfsContentCheck *check,
                         const EcfsExtent *extent, uint8_t *buffer, uint64_t *written, GError **error)
{
    uint64_t end = MIN (extent->offset + extent->length, ecfs_content_size (content));
    for (uint64_t at = extent->offset; at < end;) {
        size_t got = 0;
        if (!ecfs_content_read_wait (content, at, (size_t) MIN (end - at, COPY_BYTES), buffer, &got, error))
            return false;
        if (got == 0)
            return ecfs_fail (error, EIO, "inode %" PRIu64 ": its content ends at %" PRIu64 " bytes", self->ino, at);
        const struct iovec iov = {.iov_base = buffer, .iov_len = got};
        if (!ecfs_content_check_take (check, at, &iov, 1, error) ||
            !write_sparse (self, fd, buffer, got, at, written, error))
            return false;
        at += got;
    }
    return true;
}

/* *ret_again: what came is not what was stored, and the endpoints that it came from are in @without from now on. */
static bool copy_once (EcfsStaged *self, int fd, EcfsContent *content, bool *without, uint64_t *ret_written,
                       bool *ret_again, GError **error)
{
    g_autofree uint8_t *buffer = g_malloc (COPY_BYTES);
    g_autoptr (EcfsContentCheck) check = ecfs_content_check_new (content);
    const GArray *extents = ecfs_content_extents (content);
    GError *why = NULL;
    bool ok = true;
    *ret_written = 0;
    for (guint i = 0; ok && i < extents->len; i++)
        ok = copy_extent (self, fd, content, check, &g_array_index (extents, EcfsExtent, i), buffer, ret_written, &why);
    ok = ok && ecfs_content_check_end (check, &why);
    const EcfsObjectRow *bad = ecfs_content_check_bad (check);
    *ret_again = bad != NULL && ecfs_content_leave_out_liars (self->table->archive, bad, without, NULL);
    if (*ret_again)
        g_clear_error (&why);
    if (why != NULL)
        g_propagate_error (error, why);
    return ok;
}

/* What is changed is stored as a whole, with a new SHA-256: so what it is made from has to be what was stored. */
static bool copy_content (EcfsStaged *self, int fd, uint64_t *ret_size, uint64_t *ret_written, GError **error)
{
    bool again = true, ok = true;
    g_autofree bool *without = g_new0 (bool, ECFS_ENDPOINTS_MAX); /* more may come meanwhile */
    for (unsigned attempt = 0; ok && again && attempt < ATTEMPTS; attempt++) {
        EcfsContent *content = ecfs_content_open (self->table->archive, self->ino, error);
        if (content == NULL)
            return false;
        if (attempt > 0)
            ecfs_content_leave_out (content, without);
        ecfs_content_set_caching (content, ECFS_CACHING_READS);
        ecfs_content_expect_all (content);
        /* Zeros are not written, also where others were. */
        ok = (ftruncate (fd, 0) == 0 || ecfs_fail_errno (error, errno, "staging/%s", self->name)) &&
             (copy_once (self, fd, content, without, ret_written, &again, error) || again);
        *ret_size = ecfs_content_size (content);
        ecfs_content_unref (content);
    }
    if (ok && again)
        return ecfs_fail (error, EIO,
                          "inode %" PRIu64 ": endpoints return other bytes than they got, another one each time",
                          self->ino);
    return ok && (ftruncate (fd, (off_t) *ret_size) == 0 || ecfs_fail_errno (error, errno, "staging/%s", self->name));
}

/* Opening */

/* Holes are not copied up. */
static bool may_rewrite (EcfsStaged *self, uint64_t size, uint64_t data_bytes, bool truncate, GError **error)
{
    const EcfsConfig *config = ecfs_archive_config (self->table->archive);
    if (size > 0 && config->rewrite_deny)
        return ecfs_fail (error, EPERM, "inode %" PRIu64 ": this archive is write-once (rewrite = deny)", self->ino);
    if (truncate || data_bytes <= config->rewrite_max)
        return true;
    atomic_fetch_add (&self->table->n_too_large, 1);
    return ecfs_fail (error, EFBIG,
                      "inode %" PRIu64 ": its %" PRIu64
                      " bytes are more than may be changed in place: raise rewrite_max in ecfs.conf, or write the file "
                      "anew",
                      self->ino, data_bytes);
}

/* Of what others may write, too, no copy is made before the row says whose it is for now. Another mount's writer is
 * waited for, for a moment. */
static bool add_row (EcfsStaged *self, int64_t *ret_row, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->table->archive);
    for (int64_t until_us = ecfs_now_us () + LEASE_US;;) {
        g_autoptr (GError) why = NULL;
        if (ecfs_catalog_staging_add (catalog, self->ino, ret_row, &why))
            return true;
        if (why->code != EBUSY || !ecfs_catalog_is_shared (catalog) || ecfs_now_us () > until_us ||
            ecfs_archive_is_stopping (self->table->archive)) {
            g_propagate_error (error, g_steal_pointer (&why));
            return false;
        }
        g_usleep (LEASE_LOOK_US);
    }
}

static int create_file (EcfsStaged *self, bool truncate, GError **error)
{
    EcfsStagedTable *table = self->table;
    int64_t row = 0;
    const bool has_row = truncate || ecfs_catalog_is_shared (ecfs_archive_catalog (table->archive));
    if (has_row && !add_row (self, &row, error))
        return -1;
    self->name = has_row ? ecfs_staged_row_name (row, self->ino) : ecfs_staged_copy_name (table, self->ino);
    self->row = row;
    self->row_state = has_row ? (int) ECFS_STAGING_OPEN : ECFS_ROW_NONE;
    int fd = openat (table->dir_fd, self->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return fd >= 0 || ecfs_fail_errno (error, errno, "staging/%s", self->name) ? fd : -1;
}

static bool has_room (EcfsStaged *self, uint64_t size, GError **error)
{
    ecfs_mutex_lock (&self->table->lock);
    bool ok = ecfs_staged_check_room_locked (self->table, size, error);
    ecfs_mutex_unlock (&self->table->lock);
    return ok;
}

/* Makes the staging file of an inode that nobody else sees as staged yet, so its fields need no lock. */
static bool begin_file (EcfsStaged *self, bool truncate, GError **error)
{
    EcfsAttr attr;
    uint64_t size = 0;
    uint64_t written = 0;
    if (!ecfs_catalog_getattr (ecfs_archive_catalog (self->table->archive), self->ino, &attr, error))
        return false;
    if (!S_ISREG (attr.mode))
        return ecfs_fail (error, S_ISDIR (attr.mode) ? EISDIR : EINVAL, "inode %" PRIu64 " is not a regular file",
                          self->ino);
    if (!may_rewrite (self, attr.size, attr.data_bytes, truncate, error) ||
        !has_room (self, truncate ? 0 : attr.data_bytes, error))
        return false;
    ecfs_autofd fd = create_file (self, truncate, error);
    if (fd < 0)
        return false;
    if (!truncate && !copy_content (self, fd, &size, &written, error))
        return ecfs_prefix (error, "copying it up for writing");

    ecfs_mutex_lock (&self->table->lock);
    ecfs_staged_take_fd_locked (self->table, self, ecfs_steal_fd (&fd), 1); /* a use of open_job's */
    self->size = size;
    self->mtime_ns = truncate ? ecfs_staged_now_ns () : attr.mtime_ns;
    self->ctime_ns = truncate ? self->mtime_ns : attr.ctime_ns;
    self->committed_generation = 1;
    self->generation = truncate ? 2 : 1;
    self->full = !truncate;
    ecfs_staged_charge_locked (self->table, self, written);
    ecfs_staged_copied_up_locked (self->table, self);
    ecfs_mutex_unlock (&self->table->lock);
    return true;
}

static void undo_file (EcfsStaged *self)
{
    if (self->name != NULL)
        (void) unlinkat (self->table->dir_fd, self->name, 0); /* it is moved away at the next mount at the latest */
    if (self->row != 0)
        (void) ecfs_catalog_staging_remove (ecfs_archive_catalog (self->table->archive), self->row,
                                            NULL); /* likewise */
}

EcfsStaged *ecfs_staged_new (EcfsArchive *archive, const EcfsAttr *attr, int64_t staging, GError **error)
{
    EcfsStagedTable *table = ecfs_archive_service (archive, ECFS_SERVICE_STAGING);
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

/* One writer less that never got to write. */
static void turn_away (EcfsStaged *self)
{
    ecfs_mutex_lock (&self->table->lock);
    self->n_writers -= self->n_writers > 0;
    ecfs_staged_step_locked (self->table, self);
    ecfs_mutex_unlock (&self->table->lock);
    ecfs_staged_unref (self);
}

/* A writer joins a file that is staged; its count is in already, with a reference. */
static void admit (EcfsStaged *self, EcfsOpener *opener, bool truncated)
{
    g_autoptr (GError) error = NULL;
    if (ecfs_staged_hold_fd (self, &error) < 0) {
        turn_away (self);
        self = NULL;
    } else if (opener->truncate && !truncated && !ecfs_staged_truncate (self, 0, ecfs_staged_now_ns (), &error)) {
        ecfs_staged_release (self);
        self = NULL;
    }
    opener->done (opener->user, self, error);
    g_free (opener);
}

static void open_failed (EcfsStaged *self, const GError *error)
{
    GQueue openers;
    undo_file (self);
    ecfs_mutex_lock (&self->table->lock);
    openers = self->openers;
    g_queue_init (&self->openers);
    ecfs_staged_withdraw_locked (self->table, self);
    ecfs_mutex_unlock (&self->table->lock);
    EcfsOpener *opener;
    while ((opener = g_queue_pop_head (&openers)) != NULL) {
        opener->done (opener->user, NULL, error);
        g_free (opener);
    }
}

static void open_succeeded (EcfsStaged *self, bool truncated)
{
    GQueue openers;
    ecfs_mutex_lock (&self->table->lock);
    openers = self->openers;
    g_queue_init (&self->openers);
    self->n_writers = openers.length;
    self->phase = ECFS_PHASE_IDLE;
    ecfs_staged_step_locked (self->table, self);
    ecfs_mutex_unlock (&self->table->lock);
    EcfsOpener *opener;
    while ((opener = g_queue_pop_head (&openers)) != NULL) {
        admit (ecfs_staged_ref (self), opener, truncated);
        truncated = false;
    }
    ecfs_staged_release_fd (self);
}

static void open_job (void *data)
{
    EcfsStaged *self = data;
    g_autoptr (GError) error = NULL;
    ecfs_mutex_lock (&self->table->lock);
    const EcfsOpener *first = g_queue_peek_head (&self->openers);
    bool truncate = first->truncate;
    ecfs_mutex_unlock (&self->table->lock);
    if (begin_file (self, truncate, &error))
        open_succeeded (self, truncate);
    else
        open_failed (self, error);
    ecfs_staged_unref (self);
}

void ecfs_staged_open (EcfsArchive *archive, uint64_t ino, bool truncate,
                       void (*done) (void *user, EcfsStaged *staged, const GError *error), void *user)
{
    EcfsStagedTable *table = ecfs_archive_service (archive, ECFS_SERVICE_STAGING);
    g_autoptr (GError) error = NULL;
    if (table == NULL) { /* a kernel that was told to remount asks all the same */
        g_set_error_literal (&error, ECFS_ERROR, EROFS, "the archive is mounted for reading only");
        done (user, NULL, error);
        return;
    }
    /* What is stored of it last may be in this copy alone: nothing takes its place that could not be stored. */
    g_autofree char *trouble = ecfs_archive_trouble (archive);
    if (trouble != NULL) {
        (void) !ecfs_fail (&error, EROFS, "%s", trouble);
        done (user, NULL, error);
        return;
    }
    EcfsOpener *opener = g_new (EcfsOpener, 1);
    *opener = (EcfsOpener){.truncate = truncate, .done = done, .user = user};

    ecfs_mutex_lock (&table->lock);
    EcfsStaged *self = g_hash_table_lookup (table->files, &ino);
    bool join = self != NULL && self->phase != ECFS_PHASE_OPENING;
    if (self == NULL) {
        self = ecfs_staged_alloc (table, ino);
        ecfs_staged_insert_locked (table, self);
        self->phase = ECFS_PHASE_OPENING;
        ecfs_workers_push (table->copiers, open_job, self);
    }
    bool admitted = join && (self->n_writers > 0 || may_rewrite (self, self->size, 0, true, &error));
    if (!join)
        g_queue_push_tail (&self->openers, opener);
    if (admitted) {
        self->n_writers++;
        ecfs_staged_ref (self);
        ecfs_staged_step_locked (table, self); /* it does not wait behind any more */
    }
    ecfs_mutex_unlock (&table->lock);
    if (admitted) {
        admit (self, opener, false);
    } else if (join) {
        done (user, NULL, error);
        g_free (opener);
    }
}
