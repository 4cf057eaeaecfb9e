#include "cache/cache_priv.h"
#include "cache/cells.h"
#include "util/io.h"

#include <string.h>
#include <unistd.h>

#define PERIOD_US    G_USEC_PER_SEC
#define SLOW_US      300000               /* a disk that shows nothing for so long is not asked, … */
#define REST_US      (2 * G_USEC_PER_SEC) /* … until so long after it did */
#define MOST_LOOKS   256
#define MOST_TOUCHED 4096
#define GIVE_US      G_USEC_PER_SEC
#define GAVE_REST_US (10 * G_USEC_PER_SEC)

static guint cell_hash (gconstpointer key)
{
    const EcfsCacheCell *cell = key;
    guint hash;
    memcpy (&hash, cell->object.bytes + 8, sizeof hash);
    return hash ^ (guint) cell->segment * 2654435761u;
}

static guint object_hash (gconstpointer key)
{
    const EcfsUuid *object = key;
    guint hash;
    memcpy (&hash, object->bytes + 8, sizeof hash);
    return hash;
}

static gboolean object_equal (gconstpointer a, gconstpointer b)
{
    return ecfs_uuid_equal (a, b);
}

static gboolean cell_equal (gconstpointer a, gconstpointer b)
{
    const EcfsCacheCell *x = a, *y = b;
    return x->segment == y->segment && ecfs_uuid_equal (&x->object, &y->object);
}

EcfsCache *ecfs_cache_new (const EcfsCacheParams *params)
{
    EcfsCache *self = g_new0 (EcfsCache, 1);
    ecfs_mutex_init (&self->lock);
    ecfs_mutex_init (&self->index_lock);
    ecfs_cond_init (&self->moved);
    self->directory = g_strdup (params->directory);
    self->max_bytes = params->max_bytes;
    self->keep_free_bytes = params->keep_free_bytes;
    self->queue_bytes = params->queue_bytes;
    g_queue_init (&self->fills);
    self->touched = g_hash_table_new_full (cell_hash, cell_equal, g_free, NULL);
    self->wrong = g_array_new (FALSE, FALSE, sizeof (EcfsCacheCell));
    self->forgotten = g_hash_table_new_full (object_hash, object_equal, g_free, g_free);
    self->sweep_folder = ECFS_CACHE_FOLDERS;
    return self;
}

static bool ensure_running_locked (EcfsCache *self) ECFS_REQUIRES (self->lock)
{
    if (self->stopped)
        return false;
    if (self->lookers == NULL) {
        self->lookers = ecfs_workers_new ("ecfs-cache", MIN (ECFS_CACHE_LOOKERS, MAX (2, g_get_num_processors ())));
        self->filler = ecfs_ticker_start (PERIOD_US, ecfs_cache_work, self);
    }
    return true;
}

void ecfs_cache_stop (EcfsCache *self)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    self->stopped = true;
    EcfsWorkers *lookers = g_steal_pointer (&self->lookers);
    EcfsTicker *filler = g_steal_pointer (&self->filler);
    ecfs_mutex_unlock (&self->lock);
    ecfs_workers_free (lookers);
    ecfs_ticker_stop (filler);
    if (filler != NULL)
        ecfs_cache_work (self);
}

void ecfs_cache_free (EcfsCache *self)
{
    if (self == NULL)
        return;
    ecfs_cache_stop (self);
    ecfs_cache_index_close (self->index);
    g_hash_table_unref (self->touched);
    g_array_unref (self->wrong);
    g_hash_table_unref (self->forgotten);
    ecfs_cond_clear (&self->moved);
    ecfs_mutex_clear (&self->index_lock);
    ecfs_mutex_clear (&self->lock);
    g_free (self->trouble);
    g_free (self->index_trouble);
    g_free (self->directory);
    g_free (self);
}

/* Looking */

typedef struct Looking {
    EcfsCache *cache;
    EcfsCacheLook *look;
} Looking;

static unsigned begin_reading (EcfsCache *self)
{
    unsigned slot = 0;
    ecfs_mutex_lock (&self->lock);
    while (self->running_us[slot] != 0) /* there are as many as lookers */
        slot++;
    self->running_us[slot] = ecfs_own_us ();
    ecfs_mutex_unlock (&self->lock);
    return slot;
}

static void touch_locked (EcfsCache *self, const EcfsCacheCell *cell) ECFS_REQUIRES (self->lock)
{
    if (g_hash_table_size (self->touched) < MOST_TOUCHED && !g_hash_table_contains (self->touched, cell))
        g_hash_table_add (self->touched, g_memdup2 (cell, sizeof *cell));
}

static void end_reading (EcfsCache *self, unsigned slot, const EcfsCacheCell *used, const EcfsCacheCell *wrong)
{
    int64_t now_us = ecfs_now_us ();
    ecfs_mutex_lock (&self->lock);
    if (ecfs_own_us () - self->running_us[slot] > SLOW_US)
        self->looks_from_us = now_us + REST_US;
    self->running_us[slot] = 0;
    if (used != NULL)
        touch_locked (self, used);
    if (wrong != NULL && self->wrong->len < MOST_TOUCHED)
        g_array_append_val (self->wrong, *wrong);
    ecfs_mutex_unlock (&self->lock);
}

/* Range by range: where the first was never filled in, the others need not be read. */
static EcfsCacheVerdict read_cell (const EcfsCache *self, EcfsCacheLook *look)
{
    bool is_own = ecfs_cells_check (self->directory) == 0; /* else in an open archive others could say anything */
    ecfs_autofd fd = is_own ? ecfs_cell_open (self->directory, &look->cell) : -1;
    EcfsCacheVerdict verdict = fd < 0 ? ECFS_CACHE_ABSENT : ECFS_CACHE_FITS;
    for (unsigned i = 0; i < look->n_ranges && verdict == ECFS_CACHE_FITS; i++) {
        const EcfsCacheRange *range = &look->ranges[i];
        ssize_t got = ecfs_pread_all (fd, range->bytes, range->size, range->offset);
        if (got < 0)
            return ECFS_CACHE_WRONG;    /* a bad sector, likely */
        if ((size_t) got < range->size) /* it ends in a hole, or was cut */
            memset (range->bytes + got, 0, range->size - (size_t) got);
        verdict = look->judge (look, i);
    }
    return verdict;
}

static void run_look (void *data)
{
    Looking *looking = data;
    EcfsCache *self = looking->cache;
    EcfsCacheLook *look = looking->look;
    bool found = false;
    if (look->begin (look)) {
        unsigned slot = begin_reading (self);
        EcfsCacheVerdict verdict = read_cell (self, look);
        found = verdict == ECFS_CACHE_FITS;
        if (verdict == ECFS_CACHE_WRONG)
            (void) ecfs_cell_remove (self->directory, &look->cell); /* else it is found wrong again */
        end_reading (self, slot, found ? &look->cell : NULL, verdict == ECFS_CACHE_WRONG ? &look->cell : NULL);
    }
    ecfs_mutex_lock (&self->lock);
    self->n_looks--;
    ecfs_mutex_unlock (&self->lock);
    g_free (looking);
    look->done (look, found); /* the caller's from here on */
}

static bool hangs_locked (const EcfsCache *self, int64_t now_us) ECFS_REQUIRES (self->lock)
{
    for (unsigned i = 0; i < ECFS_CACHE_LOOKERS; i++)
        if (self->running_us[i] != 0 && ecfs_own_us () - self->running_us[i] > SLOW_US)
            return true;
    return now_us < self->looks_from_us;
}

bool ecfs_cache_look (EcfsCache *self, EcfsCacheLook *look)
{
    Looking *looking = NULL;
    ecfs_mutex_lock (&self->lock);
    if (!hangs_locked (self, ecfs_now_us ()) && self->n_looks < MOST_LOOKS && ensure_running_locked (self)) {
        looking = g_new (Looking, 1);
        *looking = (Looking){.cache = self, .look = look};
        self->n_looks++;
        ecfs_workers_push (self->lookers, run_look, looking);
    }
    ecfs_mutex_unlock (&self->lock);
    return looking != NULL;
}

uint64_t ecfs_cache_max_bytes (const EcfsCache *self)
{
    return self->max_bytes;
}

/* Filling */

static bool has_room_locked (const EcfsCache *self, uint64_t bytes) ECFS_REQUIRES (self->lock)
{
    return !self->stopped && ecfs_now_us () >= self->fills_from_us && bytes <= self->max_bytes / 2 &&
           self->queued_bytes + bytes <= self->queue_bytes;
}

bool ecfs_cache_has_room (EcfsCache *self, size_t bytes)
{
    ecfs_mutex_lock (&self->lock);
    bool has = has_room_locked (self, bytes);
    self->dropped_bytes += has ? 0 : bytes;
    ecfs_mutex_unlock (&self->lock);
    return has;
}

uint64_t ecfs_cache_fill_bytes (const EcfsCacheFill *fill)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < fill->n_ranges; i++)
        bytes += fill->ranges[i].size;
    return bytes;
}

static bool is_believed_locked (const EcfsCache *self, const EcfsCacheFill *fill) ECFS_REQUIRES (self->lock)
{
    const int64_t *forgotten_us = g_hash_table_lookup (self->forgotten, &fill->cell.object);
    return fill->since_us > self->all_forgotten_us && (forgotten_us == NULL || fill->since_us > *forgotten_us);
}

void ecfs_cache_fill (EcfsCache *self, EcfsCacheFill *fill)
{
    uint64_t bytes = ecfs_cache_fill_bytes (fill);
    ecfs_mutex_lock (&self->lock);
    bool takes = has_room_locked (self, bytes) && is_believed_locked (self, fill) && ensure_running_locked (self);
    if (takes) {
        g_queue_push_tail (&self->fills, fill);
        self->queued_bytes += bytes;
        ecfs_ticker_nudge (self->filler);
    } else
        self->dropped_bytes += bytes;
    ecfs_mutex_unlock (&self->lock);
    if (!takes)
        fill->free (fill);
}

static bool await (EcfsCache *self, uint64_t bytes, bool all, int64_t deadline_us)
{
    bool moved = true;
    ecfs_mutex_lock (&self->lock);
    while (moved && !self->stopped && self->queued_bytes > 0 && (all || !has_room_locked (self, bytes)))
        moved = ecfs_cond_wait_until (&self->moved, &self->lock, deadline_us);
    bool good = all ? self->queued_bytes == 0 : has_room_locked (self, bytes);
    ecfs_mutex_unlock (&self->lock);
    return good;
}

bool ecfs_cache_await_room (EcfsCache *self, size_t bytes, int64_t deadline_us)
{
    uint64_t most = MIN (self->max_bytes / 2, self->queue_bytes);
    return await (self, MIN (bytes, most), false, deadline_us);
}

bool ecfs_cache_await_written (EcfsCache *self, int64_t deadline_us)
{
    return await (self, 0, true, deadline_us);
}

bool ecfs_cache_give_way (EcfsCache *self, uint64_t bytes)
{
    int64_t now_us = ecfs_now_us ();
    g_autofree char *cells = g_build_filename (self->directory, "cells", NULL);
    if (!g_file_test (cells, G_FILE_TEST_IS_DIR))
        return false;
    ecfs_mutex_lock (&self->lock);
    bool is_empty = self->knows_totals && self->totals.bytes == 0;
    if (is_empty || now_us < self->gives_from_us || !ensure_running_locked (self)) {
        ecfs_mutex_unlock (&self->lock);
        return false;
    }
    self->give_bytes = MAX (self->give_bytes, bytes);
    self->fills_from_us = MAX (self->fills_from_us, now_us + GAVE_REST_US);
    ecfs_ticker_nudge (self->filler);
    while (self->give_bytes > 0 && ecfs_cond_wait_until (&self->moved, &self->lock, now_us + GIVE_US))
        ;
    bool gave = self->give_bytes == 0 && self->gave_enough;
    self->gives_from_us = gave ? 0 : ecfs_now_us () + GAVE_REST_US; /* nobody waits in vain again */
    ecfs_mutex_unlock (&self->lock);
    return gave;
}

uint64_t ecfs_cache_present (EcfsCache *self, const EcfsCacheCell *cell, uint64_t offset, uint64_t size)
{
    uint64_t present = 0;
    off_t end = (off_t) (offset + size);
    ecfs_autofd fd = ecfs_cell_open (self->directory, cell);
    off_t at = fd < 0 ? -1 : lseek (fd, (off_t) offset, SEEK_DATA);
    while (at >= 0 && at < end) {
        off_t hole = lseek (fd, at, SEEK_HOLE);
        if (hole <= at)
            break;
        present += (uint64_t) (MIN (hole, end) - at);
        at = lseek (fd, hole, SEEK_DATA);
    }
    return present;
}

int ecfs_cache_open_cell (EcfsCache *self, const EcfsCacheCell *cell, uint64_t bytes)
{
    struct stat status;
    ecfs_autofd fd = ecfs_cells_check (self->directory) == 0 ? ecfs_cell_open (self->directory, cell) : -1;
    if (fd < 0 || fstat (fd, &status) != 0 || (uint64_t) status.st_size < bytes ||
        (uint64_t) lseek (fd, 0, SEEK_HOLE) < bytes)
        return -1;
    ecfs_mutex_lock (&self->lock);
    touch_locked (self, cell);
    ecfs_mutex_unlock (&self->lock);
    return ecfs_steal_fd (&fd);
}
