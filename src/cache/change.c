/* What verbs and others ask of a cache beside its threads. */
#include "cache/cache_priv.h"
#include "cache/cells.h"

#define DROP_BATCH     256
#define MOST_FORGOTTEN 4096

static bool remove_all_locked (EcfsCache *self, const GArray *rows, GError **error) ECFS_REQUIRES (self->index_lock)
{
    bool good = true;
    for (guint i = 0; i < rows->len && good; i++)
        good = ecfs_cache_remove_locked (self, &g_array_index (rows, EcfsCacheRow, i), error);
    return good;
}

typedef bool (*Change) (EcfsCache *self, void *user, GError **error);

static void run (EcfsCache *self, Change change, void *user)
{
    g_autoptr (GError) error = NULL;
    ecfs_mutex_lock (&self->index_lock);
    bool is_open = ecfs_cache_index_locked (self, false, &error) != NULL;
    if (is_open && ecfs_cache_index_begin (self->index, &error))
        (void) ecfs_cache_index_end (self->index, change (self, user, &error), &error); /* told below */
    if (error != NULL)
        ecfs_cache_doubt_locked (self, error);
    else if (is_open)
        ecfs_cache_note_totals_locked (self);
    ecfs_mutex_unlock (&self->index_lock);
    if (error != NULL)
        ecfs_cache_tell (self, error->message);
}

typedef struct Forgetting {
    const EcfsCache *cache;
    const EcfsUuid *object;
    int result;
} Forgetting;

static void forget_cell (void *user, const EcfsCacheCell *cell)
{
    Forgetting *self = user;
    int result = ecfs_uuid_equal (&cell->object, self->object) ? ecfs_cell_remove (self->cache->directory, cell) : 0;
    self->result = self->result != 0 ? self->result : result;
}

/* Also what the index does not know. */
static bool forget (EcfsCache *self, void *user, GError **error)
{
    ecfs_mutex_is_held (&self->index_lock);
    const EcfsUuid *object = user;
    Forgetting forgetting = {.cache = self, .object = object};
    g_autoptr (GArray) cells = ecfs_cache_index_of_object (self->index, object, error);
    if (cells == NULL || !remove_all_locked (self, cells, error))
        return false;
    ecfs_cells_walk (self->directory, object->bytes[15], forget_cell, &forgetting);
    return forgetting.result == 0 || ecfs_fail_errno (error, -forgetting.result, "%s/cells", self->directory);
}

/* Above so many, all readers that there are fill in nothing more. */
static void note_forgotten_locked (EcfsCache *self, const EcfsUuid *object) ECFS_REQUIRES (self->lock)
{
    int64_t now_us = ecfs_now_us ();
    if (object == NULL || g_hash_table_size (self->forgotten) >= MOST_FORGOTTEN) {
        g_hash_table_remove_all (self->forgotten);
        self->all_forgotten_us = now_us;
    } else
        g_hash_table_insert (self->forgotten, g_memdup2 (object, sizeof *object), g_memdup2 (&now_us, sizeof now_us));
}

static void forget_queued (EcfsCache *self, const EcfsUuid *object)
{
    GQueue gone = G_QUEUE_INIT;
    ecfs_mutex_lock (&self->lock);
    note_forgotten_locked (self, object);
    for (GList *l = self->fills.head, *next; l != NULL; l = next) {
        EcfsCacheFill *fill = l->data;
        next = l->next;
        if (object != NULL && !ecfs_uuid_equal (&fill->cell.object, object))
            continue;
        g_queue_unlink (&self->fills, l);
        g_queue_push_tail_link (&gone, l);
        self->queued_bytes -= ecfs_cache_fill_bytes (fill);
    }
    ecfs_cond_broadcast (&self->moved);
    ecfs_mutex_unlock (&self->lock);
    EcfsCacheFill *fill;
    while ((fill = g_queue_pop_head (&gone)) != NULL)
        fill->free (fill);
}

void ecfs_cache_forget (EcfsCache *self, const EcfsUuid *object)
{
    uint64_t bytes;
    g_autoptr (GError) error = NULL;
    forget_queued (self, object);
    if (object != NULL)
        run (self, forget, (void *) object);
    else if (!ecfs_cache_drop (self, &bytes, &error))
        ecfs_cache_tell (self, error->message);
}

static GArray *objects_locked (EcfsCache *self, GError **error) ECFS_REQUIRES (self->index_lock)
{
    EcfsCacheCell after = {.segment = 0};
    g_autoptr (GArray) objects = g_array_new (FALSE, FALSE, sizeof (EcfsUuid));
    for (guint n = 1; n > 0;) {
        g_autoptr (GArray) cells = ecfs_cache_index_next (self->index, &after, DROP_BATCH, error);
        if (cells == NULL)
            return NULL;
        n = cells->len;
        for (guint i = 0; i < n; i++) {
            after = g_array_index (cells, EcfsCacheRow, i).cell;
            guint last = objects->len;
            if (last == 0 || !ecfs_uuid_equal (&g_array_index (objects, EcfsUuid, last - 1), &after.object))
                g_array_append_val (objects, after.object);
        }
    }
    return g_steal_pointer (&objects);
}

GArray *ecfs_cache_objects (EcfsCache *self, GError **error)
{
    GError *why = NULL;
    GArray *objects = NULL;
    ecfs_mutex_lock (&self->index_lock);
    if (ecfs_cache_index_locked (self, false, &why) != NULL)
        objects = objects_locked (self, &why);
    else if (why == NULL)
        objects = g_array_new (FALSE, FALSE, sizeof (EcfsUuid));
    ecfs_mutex_unlock (&self->index_lock);
    if (why != NULL)
        g_propagate_error (error, why);
    return objects;
}

typedef struct Pinning {
    const EcfsCacheCell *cell;
    int64_t stamp;
} Pinning;

static bool pin (EcfsCache *self, void *user, GError **error)
{
    const Pinning *pinning = user;
    ecfs_mutex_is_held (&self->index_lock);
    return ecfs_cache_index_pin (self->index, pinning->cell, pinning->stamp, error);
}

void ecfs_cache_pin (EcfsCache *self, const EcfsCacheCell *cell, int64_t stamp)
{
    Pinning pinning = {.cell = cell, .stamp = stamp};
    run (self, pin, &pinning);
}

static bool unpin (EcfsCache *self, void *user, GError **error)
{
    const Pinning *pinning = user;
    ecfs_mutex_is_held (&self->index_lock);
    return ecfs_cache_index_unpin (self->index, pinning->stamp, error);
}

void ecfs_cache_unpin (EcfsCache *self, int64_t stamp)
{
    Pinning pinning = {.stamp = stamp};
    run (self, unpin, &pinning);
}

static bool read_totals_locked (EcfsCache *self, EcfsCacheState *ret, GError **error) ECFS_REQUIRES (self->index_lock)
{
    GError *why = NULL;
    if (ecfs_cache_index_locked (self, false, &why) != NULL)
        (void) ecfs_cache_index_totals (self->index, &ret->bytes, &ret->pinned_bytes, &ret->n_cells, &why);
    if (why == NULL)
        return true;
    g_propagate_error (error, why);
    return false;
}

bool ecfs_cache_state (EcfsCache *self, EcfsCacheState *ret_state, GError **error)
{
    bool good = true;
    EcfsCacheState now = {0};
    ecfs_mutex_lock (&self->lock);
    bool knows = self->knows_totals;
    ecfs_mutex_unlock (&self->lock);
    if (!knows) {
        ecfs_mutex_lock (&self->index_lock);
        good = read_totals_locked (self, &now, error);
        ecfs_mutex_unlock (&self->index_lock);
    } else if (ecfs_mutex_try_lock (&self->index_lock)) { /* who writes may have to wait for the disk */
        good = read_totals_locked (self, &now, error);
        ecfs_mutex_unlock (&self->index_lock);
    } else {
        ecfs_mutex_lock (&self->lock);
        now = self->totals;
        ecfs_mutex_unlock (&self->lock);
    }
    if (!good)
        return false;
    ecfs_mutex_lock (&self->lock);
    now.dropped_bytes = self->dropped_bytes;
    now.trouble = g_strdup (self->trouble);
    ecfs_mutex_unlock (&self->lock);
    *ret_state = now;
    return true;
}

void ecfs_cache_state_clear (EcfsCacheState *state)
{
    g_clear_pointer (&state->trouble, g_free);
}

/* Removes up to DROP_BATCH behind *after. *ret_n: how many there were. */
static bool drop_some_locked (EcfsCache *self, EcfsCacheCell *after, guint *ret_n, GError **error)
    ECFS_REQUIRES (self->index_lock)
{
    if (!ecfs_cache_index_begin (self->index, error))
        return false;
    g_autoptr (GArray) cells = ecfs_cache_index_next (self->index, after, DROP_BATCH, error);
    *ret_n = cells == NULL ? 0 : cells->len;
    if (*ret_n > 0)
        *after = g_array_index (cells, EcfsCacheRow, *ret_n - 1).cell;
    return ecfs_cache_index_end (self->index, cells != NULL && remove_all_locked (self, cells, error), error);
}

bool ecfs_cache_drop (EcfsCache *self, uint64_t *ret_bytes, GError **error)
{
    guint n = 1;
    EcfsCacheCell after = {.segment = 0};
    uint64_t pinned, n_cells;
    *ret_bytes = 0;
    ecfs_mutex_lock (&self->index_lock);
    GError *why = NULL;
    bool is_open = ecfs_cache_index_locked (self, false, &why) != NULL;
    bool good = is_open ? ecfs_cache_index_totals (self->index, ret_bytes, &pinned, &n_cells, &why) : why == NULL;
    while (is_open && good && n > 0)
        good = drop_some_locked (self, &after, &n, &why);
    if (is_open)
        ecfs_cache_note_totals_locked (self);
    ecfs_mutex_unlock (&self->index_lock);
    if (why != NULL)
        g_propagate_error (error, why);
    return good;
}
