/* The blocking forms of requests. */
#include "endpoint/core/driver.h"

#include "util/lock.h"

#include <string.h>

#define LEFT_AHEAD_S (24 * 3600) /* by two clocks, which may be hours apart */

/* Requests end by their own deadlines; this only bounds one sleep. */
#define SLEEP_US (60 * G_USEC_PER_SEC)

typedef struct Waiter {
    EcfsMutex lock;
    EcfsCond cond;
    bool done; /* guarded by lock, as all below */
    GError *error;
    uint64_t value;
    EcfsMarker marker;
} Waiter;

static void waiter_init (Waiter *self)
{
    *self = (Waiter){.done = false};
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->cond);
}

static void waiter_done (void *user, uint64_t value, const GError *error)
{
    Waiter *self = user;
    ecfs_mutex_lock (&self->lock);
    self->done = true;
    self->value = value;
    self->error = error == NULL ? NULL : g_error_copy (error);
    ecfs_cond_signal (&self->cond);
    ecfs_mutex_unlock (&self->lock);
}

static void waiter_ended (void *user, const GError *error)
{
    waiter_done (user, 0, error);
}

static void waiter_examined (void *user, const EcfsMarker *marker, const GError *error)
{
    Waiter *self = user;
    self->marker = *marker;
    waiter_done (user, 0, error);
}

/* Waits for the callback, clears @self and tells the result. */
static bool waiter_finish (Waiter *self, GError **error)
{
    ecfs_mutex_lock (&self->lock);
    while (!self->done)
        (void) ecfs_cond_wait_until (&self->cond, &self->lock, ecfs_now_us () + SLEEP_US);
    ecfs_mutex_unlock (&self->lock);
    ecfs_cond_clear (&self->cond);
    ecfs_mutex_clear (&self->lock);
    if (self->error == NULL)
        return true;
    g_propagate_error (error, self->error);
    return false;
}

bool ecfs_endpoint_mark_wait (EcfsEndpoint *self, const EcfsMarker *marker, bool create, GError **error)
{
    Waiter waiter;
    waiter_init (&waiter);
    ecfs_endpoint_mark (self, marker, create, waiter_done, &waiter);
    return waiter_finish (&waiter, error);
}

bool ecfs_endpoint_examine_wait (EcfsEndpoint *self, EcfsMarker *ret_marker, GError **error)
{
    Waiter waiter;
    waiter_init (&waiter);
    ecfs_endpoint_examine (self, waiter_examined, &waiter);
    if (!waiter_finish (&waiter, error))
        return false;
    *ret_marker = waiter.marker;
    return true;
}

bool ecfs_endpoint_read_wait (EcfsEndpoint *self, const char *name, const EcfsRange *ranges, size_t n_ranges,
                              GError **error)
{
    Waiter waiter;
    waiter_init (&waiter);
    EcfsSink sink = {.done = waiter_ended, .user = &waiter};
    ecfs_stream_unref (ecfs_endpoint_read (self, name, ranges, n_ranges, 0, &sink));
    return waiter_finish (&waiter, error);
}

typedef struct PieceWaiter {
    Waiter waiter;
    const EcfsPieces *pieces;
} PieceWaiter;

static void waiter_piece (void *user, size_t index, const uint8_t *bytes)
{
    const PieceWaiter *self = user;
    self->pieces->piece (self->pieces->user, index, bytes);
}

bool ecfs_endpoint_read_pieces_wait (EcfsEndpoint *self, const char *name, const EcfsPieces *pieces, GError **error)
{
    PieceWaiter waiter = {.pieces = pieces};
    EcfsPieces waiting = *pieces;
    waiting.piece = waiter_piece;
    waiting.done = waiter_ended;
    waiting.user = &waiter;
    waiter_init (&waiter.waiter);
    ecfs_stream_unref (ecfs_endpoint_read_pieces (self, name, &waiting));
    return waiter_finish (&waiter.waiter, error);
}

bool ecfs_endpoint_write_wait (EcfsEndpoint *self, const char *name, const void *bytes, size_t size, GError **error)
{
    Waiter waiter;
    waiter_init (&waiter);
    ecfs_stream_unref (ecfs_endpoint_write_bytes (self, name, bytes, size, waiter_ended, &waiter));
    return waiter_finish (&waiter, error);
}

bool ecfs_endpoint_remove_wait (EcfsEndpoint *self, const char *name, GError **error)
{
    Waiter waiter;
    waiter_init (&waiter);
    ecfs_endpoint_remove (self, name, waiter_done, &waiter);
    return waiter_finish (&waiter, error);
}

typedef struct Removals {
    EcfsMutex lock;
    EcfsCond cond;
    size_t n_left; /* guarded by lock */
} Removals;

typedef struct Removal {
    Removals *all;
    GError *error; /* its callback's, until that has come */
} Removal;

static void removal_done (void *user, uint64_t value, const GError *error)
{
    Removal *self = user;
    (void) value;
    self->error = error == NULL ? NULL : g_error_copy (error);
    ecfs_mutex_lock (&self->all->lock);
    self->all->n_left--;
    ecfs_cond_signal (&self->all->cond);
    ecfs_mutex_unlock (&self->all->lock);
}

void ecfs_endpoint_remove_all_wait (EcfsEndpoint *self, const char *const *names, size_t n, GError **ret_errors)
{
    Removals all = {.n_left = n};
    g_autofree Removal *removals = g_new0 (Removal, n + 1);
    ecfs_mutex_init (&all.lock);
    ecfs_cond_init (&all.cond);
    for (size_t i = 0; i < n; i++) {
        removals[i].all = &all;
        ecfs_endpoint_remove_aged (self, names[i], removal_done, &removals[i]);
    }
    ecfs_mutex_lock (&all.lock);
    while (all.n_left > 0)
        (void) ecfs_cond_wait_until (&all.cond, &all.lock, ecfs_now_us () + SLEEP_US);
    ecfs_mutex_unlock (&all.lock);
    ecfs_cond_clear (&all.cond);
    ecfs_mutex_clear (&all.lock);
    for (size_t i = 0; i < n; i++)
        ret_errors[i] = removals[i].error;
}

bool ecfs_endpoint_remove_directory_wait (EcfsEndpoint *self, const char *name, GError **error)
{
    Waiter waiter;
    waiter_init (&waiter);
    ecfs_endpoint_remove_directory (self, name, waiter_done, &waiter);
    return waiter_finish (&waiter, error);
}

bool ecfs_endpoint_renew_wait (EcfsEndpoint *self, const char *name, bool *ret_renewed, GError **error)
{
    Waiter waiter;
    waiter_init (&waiter);
    ecfs_endpoint_renew (self, name, waiter_done, &waiter);
    if (!waiter_finish (&waiter, error))
        return false;
    *ret_renewed = waiter.value > 0;
    return true;
}

typedef struct Listing {
    Waiter waiter;
    void (*each) (void *user, const EcfsListed *listed);
    void *user;
} Listing;

static void listing_each (void *user, const EcfsListed *listed)
{
    Listing *self = user;
    self->each (self->user, listed);
}

static void listing_done (void *user, uint64_t value, const GError *error)
{
    Listing *self = user;
    waiter_done (&self->waiter, value, error);
}

bool ecfs_endpoint_list_wait (EcfsEndpoint *self, const char *name, void (*each) (void *user, const EcfsListed *listed),
                              void *user, GError **error)
{
    Listing listing = {.each = each, .user = user};
    waiter_init (&listing.waiter);
    ecfs_endpoint_list (self, name, listing_each, listing_done, &listing);
    return waiter_finish (&listing.waiter, error);
}

/* What another process has opened ahead it may be about to use: other mounts store at the same endpoints. */
static void add_name (void *user, const EcfsListed *listed)
{
    const bool is_young =
        listed->mtime_s == 0 || listed->mtime_s > g_get_real_time () / G_USEC_PER_SEC - LEFT_AHEAD_S; /* 0: not told */
    if (!is_young || !ecfs_is_left_ahead (listed->name))
        g_ptr_array_add (user, g_strdup (listed->name));
}

static bool is_incoming_of_any (const char *file, const char *const *names, size_t n_names)
{
    for (size_t i = 0; i < n_names; i++) {
        g_autofree char *prefix = ecfs_incoming_prefix (names[i]);
        if (g_str_has_prefix (file, prefix) && strlen (file) == strlen (prefix) + ECFS_INCOMING_RANDOM)
            return true;
    }
    return false;
}

bool ecfs_endpoint_remove_unfinished_wait (EcfsEndpoint *self, const char *const *names, size_t n_names, GError **error)
{
    g_autoptr (GPtrArray) files = g_ptr_array_new_with_free_func (g_free);
    if (ecfs_endpoint_retain_us (self) != ECFS_RETAIN_NOT) /* uploads have their final names there */
        return true;
    if (!ecfs_endpoint_list_wait (self, ECFS_INCOMING, add_name, files, error))
        return false;
    for (guint i = 0; i < files->len; i++) {
        g_autoptr (GError) reason = NULL;
        bool left = is_incoming_of_any (files->pdata[i], names, n_names) || ecfs_is_left_ahead (files->pdata[i]);
        if (!left || ecfs_endpoint_remove_wait (self, files->pdata[i], &reason) || reason->code == ENOENT)
            continue;
        g_propagate_error (error, g_steal_pointer (&reason));
        return false;
    }
    return true;
}

bool ecfs_endpoint_size_wait (EcfsEndpoint *self, const char *name, uint64_t *ret_size, GError **error)
{
    Waiter waiter;
    waiter_init (&waiter);
    ecfs_endpoint_size (self, name, waiter_done, &waiter);
    if (!waiter_finish (&waiter, error))
        return false;
    *ret_size = waiter.value;
    return true;
}

bool ecfs_endpoint_space_wait (EcfsEndpoint *self, uint64_t *ret_bytes, GError **error)
{
    Waiter waiter;
    waiter_init (&waiter);
    ecfs_endpoint_space (self, waiter_done, &waiter);
    if (!waiter_finish (&waiter, error))
        return false;
    *ret_bytes = waiter.value;
    return true;
}
