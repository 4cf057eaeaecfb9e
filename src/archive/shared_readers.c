#include "archive/shared_readers.h"

#include "util/lock.h"

#include <stdatomic.h>

#define N_KEPT           8
#define IDLE_US          (3 * G_USEC_PER_SEC) /* as long as a reader keeps what it has read ahead */
#define PRESSURE_IDLE_US 100000
#define MOST_US          (60 * G_USEC_PER_SEC) /* then endpoints are looked at anew, as for a file that is opened */

struct EcfsSharedReader {
    atomic_uint references;
    EcfsSharedReadersOps ops; /* immutable, as the next three */
    EcfsObjectRow *object;    /* as it was */
    EcfsReader *reader;
    int64_t made_us;
    int64_t used_us; /* guarded by the lock of the readers */
};

struct EcfsSharedReaders {
    EcfsTransferPool *transfer; /* immutable */
    EcfsMutex lock;             /* outer to those of readers and transfers */
    GPtrArray *kept;            /* of EcfsSharedReader, the one used last at the end; guarded by lock */
    bool stopped;               /* guarded by lock */
};

static EcfsSharedReader *ref (EcfsSharedReader *self)
{
    atomic_fetch_add (&self->references, 1);
    return self;
}

void ecfs_shared_reader_unref (EcfsSharedReader *self)
{
    if (self == NULL || atomic_fetch_sub (&self->references, 1) > 1)
        return;
    ecfs_reader_close (self->reader);
    self->ops.unpin (self->ops.user, &self->object->uuid);
    ecfs_object_row_free (self->object);
    g_free (self);
}

static void unref_shared (void *shared)
{
    ecfs_shared_reader_unref (shared);
}

EcfsReader *ecfs_shared_reader (const EcfsSharedReader *self)
{
    return self->reader;
}

static bool try_ref (void *user)
{
    (void) user; /* it outlives the ticker */
    return true;
}

static void unref (void *user)
{
    (void) user; /* as above */
}

/* Takes those out that nobody has used since @before_us; the caller lets go of them without the lock. */
static GPtrArray *take_idle_locked (EcfsSharedReaders *self, int64_t before_us) ECFS_REQUIRES (self->lock)
{
    GPtrArray *idle = g_ptr_array_new_with_free_func (unref_shared);
    for (guint i = self->kept->len; i-- > 0;) {
        EcfsSharedReader *each = g_ptr_array_index (self->kept, i);
        if (each->used_us < before_us)
            g_ptr_array_add (idle, g_ptr_array_steal_index (self->kept, i));
    }
    if (self->kept->len == 0 && idle->len > 0)
        ecfs_transfer_remove_ticking (self->transfer, self);
    return idle;
}

static void tick (void *user, int64_t now_us, bool pressure)
{
    EcfsSharedReaders *self = user;
    ecfs_mutex_lock (&self->lock);
    GPtrArray *idle = take_idle_locked (self, now_us - (pressure ? PRESSURE_IDLE_US : IDLE_US));
    ecfs_mutex_unlock (&self->lock);
    g_ptr_array_unref (idle);
}

EcfsSharedReaders *ecfs_shared_readers_new (EcfsTransferPool *transfer)
{
    EcfsSharedReaders *self = g_new0 (EcfsSharedReaders, 1);
    self->transfer = transfer;
    ecfs_mutex_init (&self->lock);
    self->kept = g_ptr_array_new_with_free_func (unref_shared);
    return self;
}

void ecfs_shared_readers_stop (EcfsSharedReaders *self)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    self->stopped = true;
    GPtrArray *all = take_idle_locked (self, INT64_MAX);
    ecfs_mutex_unlock (&self->lock);
    g_ptr_array_unref (all);
}

void ecfs_shared_readers_free (EcfsSharedReaders *self)
{
    if (self == NULL)
        return;
    g_ptr_array_unref (self->kept);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

static EcfsSharedReader *find_locked (EcfsSharedReaders *self, const EcfsObjectRow *object) ECFS_REQUIRES (self->lock)
{
    const int64_t now_us = ecfs_now_us ();
    for (guint i = self->kept->len; i-- > 0;) {
        EcfsSharedReader *each = g_ptr_array_index (self->kept, i);
        if (!ecfs_uuid_equal (&each->object->uuid, &object->uuid) || each->object->size != object->size ||
            now_us - each->made_us > MOST_US || !ecfs_object_same_stripes (each->object, object))
            continue;
        g_ptr_array_add (self->kept, g_ptr_array_steal_index (self->kept, i));
        return each;
    }
    return NULL;
}

static EcfsSharedReader *shared_new (const EcfsSharedReadersOps *ops, const EcfsObjectRow *object, GError **error)
{
    EcfsReader *reader = ops->make (ops->user, object, error);
    if (reader == NULL)
        return NULL;
    ecfs_reader_expect_neighbours (reader);
    EcfsSharedReader *self = g_new0 (EcfsSharedReader, 1);
    atomic_init (&self->references, 1);
    self->ops = *ops;
    self->object = ecfs_object_row_copy (object);
    self->reader = reader;
    self->made_us = ecfs_now_us ();
    ops->pin (ops->user, &object->uuid);
    return self;
}

/* Returns what has to make room, for the caller to let go of without the lock; NULL: nothing. */
static EcfsSharedReader *keep_locked (EcfsSharedReaders *self, EcfsSharedReader *shared) ECFS_REQUIRES (self->lock)
{
    const EcfsTicking ticking = {.tick = tick, .try_ref = try_ref, .unref = unref, .user = self};
    if (self->kept->len == 0)
        ecfs_transfer_add_ticking (self->transfer, &ticking);
    g_ptr_array_add (self->kept, ref (shared));
    return self->kept->len > N_KEPT ? g_ptr_array_steal_index (self->kept, 0) : NULL;
}

EcfsSharedReader *ecfs_shared_readers_get (EcfsSharedReaders *self, const EcfsSharedReadersOps *ops,
                                           const EcfsObjectRow *object, GError **error)
{
    EcfsSharedReader *crowded_out = NULL;
    ecfs_mutex_lock (&self->lock);
    EcfsSharedReader *found = find_locked (self, object);
    EcfsSharedReader *shared = found != NULL ? ref (found) : shared_new (ops, object, error);
    if (found == NULL && shared != NULL && !self->stopped)
        crowded_out = keep_locked (self, shared);
    if (shared != NULL)
        shared->used_us = ecfs_now_us ();
    ecfs_mutex_unlock (&self->lock);
    ecfs_shared_reader_unref (crowded_out);
    return shared;
}
