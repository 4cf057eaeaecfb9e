/* The thread that writes into a cache, and makes room there. */
#include "cache/cache_priv.h"
#include "cache/cells.h"
#include "util/io.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define BATCH_BYTES     (8u << 20)
#define BATCH_MAX       64
#define BATCHES_AT_ONCE 4
#define EVICT_BATCH     32
#define MOST_EVICTED    64 /* batches at once */
#define TOLD_US         (2 * G_USEC_PER_SEC)
#define REST_US         (5 * G_USEC_PER_SEC) /* after the disk was full, or failed */
#define REOPEN_US       (10 * G_USEC_PER_SEC)
#define SWEEP_US        (24ll * 3600 * G_USEC_PER_SEC)
#define SWEEP_AGE_S     60 /* a younger file may be on its way into the index */
#define BLOCK_BYTES     4096

EcfsCacheIndex *ecfs_cache_index_locked (EcfsCache *self, bool make, GError **error)
{
    bool anew, this_boot;
    int64_t swept_us;
    GError *why = NULL;
    if (self->index != NULL)
        return self->index;
    if (!make && !g_file_test (self->directory, G_FILE_TEST_IS_DIR))
        return NULL;
    if (ecfs_now_us () < self->index_from_us) {
        (void) !ecfs_fail (error, EAGAIN, "%s", self->index_trouble);
        return NULL;
    }
    self->index = ecfs_cache_index_open (self->directory, &anew, &why);
    g_free (self->index_trouble);
    self->index_trouble = why == NULL ? NULL : g_strdup (why->message);
    self->index_from_us = why == NULL ? 0 : ecfs_now_us () + REOPEN_US;
    if (why != NULL)
        g_propagate_error (error, why);
    else if (anew)
        g_warning ("%s: the cache was damaged, and begins anew", self->directory);
    if (self->index != NULL && ecfs_cache_index_swept (self->index, &swept_us, &this_boot, NULL) &&
        (!this_boot || g_get_real_time () - swept_us > SWEEP_US))
        self->sweep_folder = 0;
    return self->index;
}

void ecfs_cache_doubt_locked (EcfsCache *self, const GError *error)
{
    if (ecfs_errno (error) != EBADMSG || self->index == NULL)
        return;
    g_warning ("%s; the cache begins anew", error->message);
    ecfs_cache_index_close (g_steal_pointer (&self->index));
    ecfs_cache_index_discard (self->directory);
    self->index_from_us = 0;
}

void ecfs_cache_tell (EcfsCache *self, const char *trouble)
{
    ecfs_mutex_lock (&self->lock);
    bool is_news = g_strcmp0 (trouble, self->trouble) != 0;
    if (is_news) {
        g_free (self->trouble);
        self->trouble = g_strdup (trouble);
    }
    if (trouble != NULL)
        self->fills_from_us = MAX (self->fills_from_us, ecfs_now_us () + REST_US);
    ecfs_mutex_unlock (&self->lock);
    if (is_news && trouble != NULL)
        g_message ("%s: nothing is cached for now, and all is read from endpoints: %s", self->directory, trouble);
}

void ecfs_cache_note_totals_locked (EcfsCache *self)
{
    EcfsCacheState now = {0};
    if (!ecfs_cache_index_totals (self->index, &now.bytes, &now.pinned_bytes, &now.n_cells, NULL))
        return;
    ecfs_mutex_lock (&self->lock);
    self->totals = now;
    self->knows_totals = true;
    ecfs_mutex_unlock (&self->lock);
}

/* Making room */

static uint64_t free_bytes (const EcfsCache *self)
{
    struct statvfs disk;
    return statvfs (self->directory, &disk) == 0 ? (uint64_t) disk.f_bavail * disk.f_frsize : UINT64_MAX;
}

bool ecfs_cache_remove_locked (EcfsCache *self, const EcfsCacheRow *row, GError **error)
{
    int result = ecfs_cell_remove (self->directory, &row->cell);
    if (result != 0)
        return ecfs_fail_errno (error, -result, "%s/cells", self->directory);
    return ecfs_cache_index_remove (self->index, &row->cell, error);
}

/* How much has to go so that no more than @max is left, and the disk has @free left. */
static bool excess_locked (EcfsCache *self, uint64_t max, uint64_t free, uint64_t *ret_bytes, GError **error)
    ECFS_REQUIRES (self->index_lock)
{
    uint64_t bytes, pinned, n, has = free_bytes (self);
    if (!ecfs_cache_index_totals (self->index, &bytes, &pinned, &n, error))
        return false;
    *ret_bytes = MAX (bytes > max ? bytes - max : 0, free > has ? free - has : 0);
    return true;
}

/* In a transaction: removes what was not used for longest. *ret_enough: that was possible. */
static bool evict_locked (EcfsCache *self, uint64_t max, uint64_t free, bool *ret_enough, GError **error)
    ECFS_REQUIRES (self->index_lock)
{
    uint64_t excess;
    bool good = true;
    *ret_enough = false;
    for (unsigned i = 0; i < MOST_EVICTED && good; i++) {
        if (!excess_locked (self, max, free, &excess, error))
            return false;
        *ret_enough = excess == 0;
        if (*ret_enough)
            return true;
        g_autoptr (GArray) oldest = ecfs_cache_index_oldest (self->index, EVICT_BATCH, error);
        if (oldest == NULL || oldest->len == 0)
            return oldest != NULL;
        for (guint j = 0; j < oldest->len && excess > 0 && good; j++) {
            const EcfsCacheRow *row = &g_array_index (oldest, EcfsCacheRow, j);
            good = ecfs_cache_remove_locked (self, row, error);
            excess -= MIN (MAX (row->bytes, 1), excess);
        }
    }
    return good;
}

/* Gives bytes away that somebody else needs, but for what is pinned. *ret_enough: that was all. */
static bool give_locked (EcfsCache *self, uint64_t wanted, bool *ret_enough, GError **error)
    ECFS_REQUIRES (self->index_lock)
{
    uint64_t bytes, pinned, n;
    *ret_enough = false;
    if (!ecfs_cache_index_begin (self->index, error))
        return false;
    bool good = ecfs_cache_index_totals (self->index, &bytes, &pinned, &n, error) &&
                evict_locked (self, bytes > wanted ? bytes - wanted : 0, 0, ret_enough, error);
    return ecfs_cache_index_end (self->index, good, error);
}

/* Whoever asked for bytes gets them before anything else is written. */
static bool give_asked_locked (EcfsCache *self, GError **error) ECFS_REQUIRES (self->index_lock)
{
    bool enough;
    ecfs_mutex_lock (&self->lock);
    uint64_t wanted = self->give_bytes;
    ecfs_mutex_unlock (&self->lock);
    if (wanted == 0)
        return true;
    bool good = give_locked (self, wanted, &enough, error);
    ecfs_cache_note_totals_locked (self);
    ecfs_mutex_lock (&self->lock);
    self->give_bytes = 0;
    self->gave_enough = good && enough;
    ecfs_cond_broadcast (&self->moved);
    ecfs_mutex_unlock (&self->lock);
    return good;
}

/* It may have been larger before. What is pinned stays. */
static bool keep_free_locked (EcfsCache *self, GError **error) ECFS_REQUIRES (self->index_lock)
{
    bool enough;
    uint64_t bytes, pinned, n;
    if (!ecfs_cache_index_totals (self->index, &bytes, &pinned, &n, error))
        return false;
    if (bytes == pinned || (bytes <= self->max_bytes && free_bytes (self) >= self->keep_free_bytes))
        return true;
    return ecfs_cache_index_begin (self->index, error) &&
           ecfs_cache_index_end (self->index,
                                 evict_locked (self, self->max_bytes, self->keep_free_bytes, &enough, error), error);
}

/* Writing */

typedef struct Batch {
    EcfsCacheFill *fills[BATCH_MAX];
    int results[BATCH_MAX];         /* 0 or -errno */
    uint64_t cell_bytes[BATCH_MAX]; /* that the cell takes now */
    unsigned n;
    uint64_t bytes;
} Batch;

/* As the file system counts, at most. */
static uint64_t blocks_of (const EcfsCacheFill *fill)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < fill->n_ranges; i++)
        bytes += (fill->ranges[i].size / BLOCK_BYTES + 2) * BLOCK_BYTES;
    return bytes;
}

static void take_batch (EcfsCache *self, Batch *ret)
{
    uint64_t most = MIN (BATCH_BYTES, self->max_bytes / 4);
    ret->n = 0;
    ret->bytes = 0;
    ecfs_mutex_lock (&self->lock);
    while (ret->n < BATCH_MAX && (ret->n == 0 || ret->bytes < most) && !g_queue_is_empty (&self->fills)) {
        ret->fills[ret->n] = g_queue_pop_head (&self->fills);
        ret->bytes += ecfs_cache_fill_bytes (ret->fills[ret->n++]);
    }
    ecfs_mutex_unlock (&self->lock);
}

static void end_batch (EcfsCache *self, const Batch *batch, bool dropped)
{
    for (unsigned i = 0; i < batch->n; i++)
        batch->fills[i]->free (batch->fills[i]);
    ecfs_mutex_lock (&self->lock);
    self->queued_bytes -= batch->bytes;
    self->dropped_bytes += dropped ? batch->bytes : 0;
    ecfs_cond_broadcast (&self->moved);
    ecfs_mutex_unlock (&self->lock);
}

/* The index knows of a cell before there is a file: what a crash leaves is known. */
static bool announce_locked (EcfsCache *self, const Batch *batch, bool *ret_enough, GError **error)
    ECFS_REQUIRES (self->index_lock)
{
    bool good = true;
    int64_t now_us = g_get_real_time ();
    if (!ecfs_cache_index_begin (self->index, error))
        return false;
    for (unsigned i = 0; i < batch->n && good; i++)
        good = ecfs_cache_index_set (self->index, &batch->fills[i]->cell, blocks_of (batch->fills[i]), true, now_us,
                                     error);
    good = good && evict_locked (self, self->max_bytes, self->keep_free_bytes + batch->bytes, ret_enough, error);
    return ecfs_cache_index_end (self->index, good, error);
}

static bool settle_one_locked (EcfsCache *self, const Batch *batch, unsigned i, int64_t now_us, GError **error)
    ECFS_REQUIRES (self->index_lock)
{
    const EcfsCacheFill *fill = batch->fills[i];
    if (batch->results[i] == 0)
        return ecfs_cache_index_set (self->index, &fill->cell, batch->cell_bytes[i], false, now_us, error);
    (void) ecfs_cell_remove (self->directory, &fill->cell); /* what stays is not wrong, and swept */
    return ecfs_cache_index_remove (self->index, &fill->cell, error);
}

static bool settle_locked (EcfsCache *self, const Batch *batch, GError **error) ECFS_REQUIRES (self->index_lock)
{
    bool good = true;
    int64_t now_us = g_get_real_time ();
    if (!ecfs_cache_index_begin (self->index, error))
        return false;
    for (unsigned i = 0; i < batch->n && good; i++)
        good = settle_one_locked (self, batch, i, now_us, error);
    return ecfs_cache_index_end (self->index, good, error);
}

/* Returns 0, or the first -errno. */
static int write_cells (const EcfsCache *self, Batch *batch)
{
    int first = 0;
    for (unsigned i = 0; i < batch->n; i++) {
        EcfsCacheFill *fill = batch->fills[i];
        if (first == 0 && fill->prepare != NULL)
            fill->prepare (fill);
        batch->results[i] = first != 0 ? first
                                       : ecfs_cell_write (self->directory, &fill->cell, fill->ranges, fill->n_ranges,
                                                          &batch->cell_bytes[i]);
        first = batch->results[i];
    }
    return first;
}

static bool write_batch_locked (EcfsCache *self, Batch *batch, GError **error) ECFS_REQUIRES (self->index_lock)
{
    bool enough = false;
    if (!announce_locked (self, batch, &enough, error))
        return false;
    int result = enough ? write_cells (self, batch) : -ENOSPC;
    for (unsigned i = 0; i < batch->n && !enough; i++)
        batch->results[i] = -ENOSPC;
    if (!settle_locked (self, batch, error))
        return false;
    /* By a quota, or by what others wrote just now: what statvfs() says does not make it smaller. */
    if (enough && (result == -ENOSPC || result == -EDQUOT) && !give_locked (self, 2 * batch->bytes, &enough, error))
        return false;
    if (!enough)
        return ecfs_fail (error, ENOSPC, "its disk is full, or all that it may take is pinned");
    return result == 0 || ecfs_fail_errno (error, -result, "writing");
}

/* Some of it, and goes on after others had the index; all of it, when it is stopped. */
static bool write_queued_locked (EcfsCache *self, bool all, GError **error) ECFS_REQUIRES (self->index_lock)
{
    Batch batch;
    for (unsigned i = 0; all || i < BATCHES_AT_ONCE; i++) {
        if (!give_asked_locked (self, error))
            return false;
        take_batch (self, &batch);
        if (batch.n == 0)
            return true;
        bool good = write_batch_locked (self, &batch, error);
        ecfs_cache_note_totals_locked (self);
        end_batch (self, &batch, !good);
        if (!good)
            return false;
        ecfs_cache_tell (self, NULL);
    }
    ecfs_mutex_lock (&self->lock);
    ecfs_ticker_nudge (self->filler);
    ecfs_mutex_unlock (&self->lock);
    return true;
}

/* Telling the index */

static GPtrArray *take_touched (EcfsCache *self, GArray **ret_wrong)
{
    GHashTableIter iter;
    gpointer cell;
    GPtrArray *touched = g_ptr_array_new_with_free_func (g_free);
    ecfs_mutex_lock (&self->lock);
    g_hash_table_iter_init (&iter, self->touched);
    while (g_hash_table_iter_next (&iter, &cell, NULL)) {
        g_ptr_array_add (touched, cell);
        g_hash_table_iter_steal (&iter);
    }
    *ret_wrong = self->wrong;
    self->wrong = g_array_new (FALSE, FALSE, sizeof (EcfsCacheCell));
    ecfs_mutex_unlock (&self->lock);
    return touched;
}

/* A cell that was removed may have been filled in again meanwhile. */
static bool tell_wrong_locked (EcfsCache *self, const EcfsCacheCell *cell, GError **error)
    ECFS_REQUIRES (self->index_lock)
{
    ecfs_autofd fd = ecfs_cell_open (self->directory, cell);
    return fd >= 0 || ecfs_cache_index_remove (self->index, cell, error);
}

static bool tell_used_locked (EcfsCache *self, bool at_once, GError **error) ECFS_REQUIRES (self->index_lock)
{
    int64_t now_us = g_get_real_time ();
    g_autoptr (GArray) wrong = NULL;
    if (!at_once && ecfs_now_us () - self->touched_us < TOLD_US)
        return true;
    self->touched_us = ecfs_now_us ();
    g_autoptr (GPtrArray) touched = take_touched (self, &wrong);
    if (touched->len == 0 && wrong->len == 0)
        return true;
    bool good = ecfs_cache_index_begin (self->index, error);
    if (!good)
        return false;
    for (guint i = 0; i < touched->len && good; i++)
        good = ecfs_cache_index_touch (self->index, g_ptr_array_index (touched, i), now_us, error);
    for (guint i = 0; i < wrong->len && good; i++)
        good = tell_wrong_locked (self, &g_array_index (wrong, EcfsCacheCell, i), error);
    return ecfs_cache_index_end (self->index, good, error);
}

static void sweep_one (void *user, const EcfsCacheCell *cell)
{
    EcfsCache *self = user;
    bool has = true;
    struct stat status;
    ecfs_mutex_is_held (&self->index_lock);
    if (!ecfs_cache_index_has (self->index, cell, &has, NULL) || has)
        return;
    int fd = ecfs_cell_open (self->directory, cell);
    bool is_young = fd >= 0 && fstat (fd, &status) == 0 &&
                    g_get_real_time () / G_USEC_PER_SEC - status.st_mtim.tv_sec < SWEEP_AGE_S;
    if (fd >= 0)
        (void) close (fd);
    if (!is_young)
        (void) ecfs_cell_remove (self->directory, cell); /* the next sweep tries again */
}

/* Files that the index does not know, one folder at a time: a machine that lost power may leave some. */
static void sweep_locked (EcfsCache *self) ECFS_REQUIRES (self->index_lock)
{
    if (self->sweep_folder >= ECFS_CACHE_FOLDERS)
        return;
    ecfs_cells_walk (self->directory, self->sweep_folder++, sweep_one, self);
    if (self->sweep_folder == ECFS_CACHE_FOLDERS)
        (void) ecfs_cache_index_set_swept (self->index, g_get_real_time (), NULL); /* else it is done again */
}

static bool work_locked (EcfsCache *self, GError **error) ECFS_REQUIRES (self->index_lock)
{
    ecfs_mutex_lock (&self->lock);
    bool stopped = self->stopped;
    ecfs_mutex_unlock (&self->lock);
    if (!give_asked_locked (self, error) || !keep_free_locked (self, error) ||
        !write_queued_locked (self, stopped, error))
        return false;
    ecfs_cache_note_totals_locked (self);
    if (!stopped)
        sweep_locked (self);
    return tell_used_locked (self, stopped, error);
}

static void drop_queued (EcfsCache *self)
{
    Batch batch;
    for (take_batch (self, &batch); batch.n > 0; take_batch (self, &batch))
        end_batch (self, &batch, true);
}

void ecfs_cache_work (void *cache)
{
    EcfsCache *self = cache;
    g_autoptr (GError) error = NULL;
    ecfs_mutex_lock (&self->index_lock);
    ecfs_mutex_lock (&self->lock);
    bool make = !g_queue_is_empty (&self->fills);
    ecfs_mutex_unlock (&self->lock);
    bool is_open = ecfs_cache_index_locked (self, make, &error) != NULL;
    bool good = is_open && work_locked (self, &error);
    if (!good)
        ecfs_cache_doubt_locked (self, error);
    ecfs_mutex_unlock (&self->index_lock);
    if (error != NULL)
        drop_queued (self);
    if (error != NULL)
        ecfs_cache_tell (self, error->message);
}
