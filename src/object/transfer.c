#include "object/transfer.h"

#include "util/lock.h"

#include <glib.h>
#include <stdlib.h>
#include <unistd.h>

#define WARM_BUFFER_MIN 65536 /* below, malloc is as good */

typedef struct Waiting {
    size_t bytes;
    void (*granted) (void *user);
    void *user;
} Waiting;

typedef struct Buffer {
    uint8_t *bytes;
    size_t size;
} Buffer;

struct EcfsTransferPool {
    EcfsMutex lock;
    uint64_t memory_bytes;  /* immutable after new */
    uint64_t granted_bytes; /* guarded by lock */
    GQueue waiting;         /* of Waiting; guarded by lock */
    GArray *warm;           /* of Buffer, last given back last; guarded by lock */
    uint64_t warm_bytes;    /* guarded by lock */
    GArray *ticking;        /* of EcfsTicking; guarded by lock */
    EcfsCond ticker_cond;   /* guarded by lock */
    bool stopping;          /* guarded by lock */
    bool started;           /* start and stop are called by one thread */
    EcfsWorkers *workers;   /* between start and stop */
    pthread_t ticker;       /* between start and stop */
};

EcfsTransferPool *ecfs_transfer_new (uint64_t memory_bytes)
{
    EcfsTransferPool *self = g_new0 (EcfsTransferPool, 1);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->ticker_cond);
    self->memory_bytes = memory_bytes;
    g_queue_init (&self->waiting);
    self->warm = g_array_new (FALSE, FALSE, sizeof (Buffer));
    self->ticking = g_array_new (FALSE, FALSE, sizeof (EcfsTicking));
    return self;
}

/* Those of the ticking whose references could be taken. */
static GArray *referenced_locked (EcfsTransferPool *self) ECFS_REQUIRES (self->lock)
{
    GArray *referenced = g_array_sized_new (FALSE, FALSE, sizeof (EcfsTicking), self->ticking->len);
    for (guint i = 0; i < self->ticking->len; i++) {
        EcfsTicking *ticking = &g_array_index (self->ticking, EcfsTicking, i);
        if (ticking->try_ref (ticking->user))
            g_array_append_val (referenced, *ticking);
    }
    return referenced;
}

static void tick_all (GArray *ticking, bool pressure)
{
    int64_t now = ecfs_now_us ();
    for (guint i = 0; i < ticking->len; i++) {
        EcfsTicking *each = &g_array_index (ticking, EcfsTicking, i);
        each->tick (each->user, now, pressure);
        each->unref (each->user);
    }
    g_array_unref (ticking);
}

static void *run_ticker (void *data)
{
    EcfsTransferPool *self = data;
    ecfs_mutex_lock (&self->lock);
    while (!self->stopping) {
        int64_t due_us = ecfs_now_us () + (self->ticking->len == 0 ? 60 * G_USEC_PER_SEC : ECFS_TICK_US);
        (void) ecfs_cond_wait_until (&self->ticker_cond, &self->lock, due_us);
        ecfs_missed (due_us, ecfs_now_us ());
        GArray *ticking = referenced_locked (self);
        bool pressure = !g_queue_is_empty (&self->waiting);
        ecfs_mutex_unlock (&self->lock);
        tick_all (ticking, pressure);
        ecfs_mutex_lock (&self->lock);
    }
    ecfs_mutex_unlock (&self->lock);
    return NULL;
}

void ecfs_transfer_start (EcfsTransferPool *self)
{
    long n_cores = sysconf (_SC_NPROCESSORS_ONLN);
    self->workers = ecfs_workers_new ("ecfs-coding", (unsigned) CLAMP (n_cores, 1, 16));
    int result = pthread_create (&self->ticker, NULL, run_ticker, self);
    if (result != 0)
        g_error ("cannot start the ticker thread: %s", g_strerror (result));
    self->started = true;
}

void ecfs_transfer_stop (EcfsTransferPool *self)
{
    if (!self->started)
        return;
    self->started = false;
    ecfs_mutex_lock (&self->lock);
    self->stopping = true;
    ecfs_cond_broadcast (&self->ticker_cond);
    ecfs_mutex_unlock (&self->lock);
    (void) pthread_join (self->ticker, NULL); /* joinable and ours: it cannot fail */
    ecfs_workers_free (g_steal_pointer (&self->workers));
}

void ecfs_transfer_free (EcfsTransferPool *self)
{
    if (self == NULL)
        return;
    ecfs_transfer_stop (self);
    for (guint i = 0; i < self->warm->len; i++)
        free (g_array_index (self->warm, Buffer, i).bytes);
    g_array_unref (self->warm);
    g_array_unref (self->ticking);
    g_queue_clear_full (&self->waiting, g_free);
    ecfs_cond_clear (&self->ticker_cond);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

void ecfs_transfer_run (EcfsTransferPool *self, void (*job) (void *data), void *data)
{
    ecfs_workers_push (self->workers, job, data);
}

static bool fits_locked (const EcfsTransferPool *self, size_t bytes) ECFS_REQUIRES (self->lock)
{
    return self->granted_bytes == 0 || self->granted_bytes + bytes <= self->memory_bytes;
}

bool ecfs_transfer_try_acquire (EcfsTransferPool *self, size_t bytes)
{
    ecfs_mutex_lock (&self->lock);
    bool granted = g_queue_is_empty (&self->waiting) && fits_locked (self, bytes);
    if (granted)
        self->granted_bytes += bytes;
    ecfs_mutex_unlock (&self->lock);
    return granted;
}

bool ecfs_transfer_acquire (EcfsTransferPool *self, size_t bytes, void (*granted) (void *user), void *user)
{
    ecfs_mutex_lock (&self->lock);
    bool now = g_queue_is_empty (&self->waiting) && fits_locked (self, bytes);
    if (now) {
        self->granted_bytes += bytes;
    } else {
        Waiting *waiting = g_new (Waiting, 1);
        *waiting = (Waiting){.bytes = bytes, .granted = granted, .user = user};
        g_queue_push_tail (&self->waiting, waiting);
        ecfs_cond_signal (&self->ticker_cond);
    }
    ecfs_mutex_unlock (&self->lock);
    return now;
}

void ecfs_transfer_release (EcfsTransferPool *self, size_t bytes)
{
    ecfs_mutex_lock (&self->lock);
    self->granted_bytes -= bytes;
    Waiting *first;
    while ((first = g_queue_peek_head (&self->waiting)) != NULL && fits_locked (self, first->bytes)) {
        self->granted_bytes += first->bytes;
        ecfs_workers_push (self->workers, first->granted, first->user);
        g_free (g_queue_pop_head (&self->waiting));
    }
    ecfs_mutex_unlock (&self->lock);
}

/* Takes the warm buffer at @i off the list. */
static uint8_t *unlist_locked (EcfsTransferPool *self, guint i) ECFS_REQUIRES (self->lock)
{
    Buffer buffer = g_array_index (self->warm, Buffer, i);
    self->warm_bytes -= buffer.size;
    g_array_remove_index (self->warm, i);
    return buffer.bytes;
}

/* Unmaps the longest unused buffers until warm and granted memory are within the bound together. */
static void trim_locked (EcfsTransferPool *self) ECFS_REQUIRES (self->lock)
{
    while (self->warm->len > 0 && self->warm_bytes + self->granted_bytes > self->memory_bytes)
        free (unlist_locked (self, 0));
}

uint8_t *ecfs_transfer_buffer_take (EcfsTransferPool *self, size_t size)
{
    uint8_t *bytes = NULL;
    ecfs_mutex_lock (&self->lock);
    for (guint i = self->warm->len; i-- > 0 && bytes == NULL;)
        if (g_array_index (self->warm, Buffer, i).size == size)
            bytes = unlist_locked (self, i);
    trim_locked (self);
    ecfs_mutex_unlock (&self->lock);
    return bytes != NULL ? bytes : g_malloc (size);
}

void ecfs_transfer_buffer_give (EcfsTransferPool *self, uint8_t *buffer, size_t size)
{
    if (buffer == NULL)
        return;
    if (size < WARM_BUFFER_MIN) {
        g_free (buffer);
        return;
    }
    ecfs_mutex_lock (&self->lock);
    Buffer warm = {.bytes = buffer, .size = size};
    g_array_append_val (self->warm, warm);
    self->warm_bytes += size;
    trim_locked (self);
    ecfs_mutex_unlock (&self->lock);
}

uint64_t ecfs_transfer_memory (const EcfsTransferPool *self)
{
    return self->memory_bytes;
}

void ecfs_transfer_add_ticking (EcfsTransferPool *self, const EcfsTicking *ticking)
{
    ecfs_mutex_lock (&self->lock);
    g_array_append_val (self->ticking, *ticking);
    ecfs_cond_signal (&self->ticker_cond);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_transfer_remove_ticking (EcfsTransferPool *self, void *user)
{
    ecfs_mutex_lock (&self->lock);
    for (guint i = 0; i < self->ticking->len; i++) {
        if (g_array_index (self->ticking, EcfsTicking, i).user == user) {
            g_array_remove_index_fast (self->ticking, i);
            break;
        }
    }
    ecfs_mutex_unlock (&self->lock);
}
