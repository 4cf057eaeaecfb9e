#include "object/capacity.h"

#include "object/placement.h"

#include <glib.h>
#include <stdbool.h>

#define N_OBJECTS    512 /* that the room is thought to be filled with */
#define N_HALVINGS   10  /* of their stripes' size, for what is left at the end */
#define N_BISECTIONS 64
#define MAX_FREE     (UINT64_C (1) << 60) /* bytes; more is as good as endless */

typedef struct Filling {
    const EcfsRoom *rooms;
    size_t n_rooms;
    unsigned n;
    unsigned max_per_endpoint;
    uint64_t *left;     /* bytes per device */
    unsigned *n_users;  /* per device */
    EcfsPlace *places;  /* as the next object meets them */
    uint64_t n_objects; /* so far */
} Filling;

static void look_at_places (Filling *self, uint64_t stripe_bytes)
{
    for (size_t i = 0; i < self->n_rooms; i++) {
        unsigned device = self->rooms[i].device;
        uint64_t share = self->left[device] / self->n_users[device];
        self->places[i] = (EcfsPlace){
            .zone = self->rooms[i].zone, .usable = share >= stripe_bytes * self->max_per_endpoint, .room = share};
    }
}

/* Places one object with stripes of this size; false: there is no room for it. */
static bool place_object (Filling *self, uint64_t stripe_bytes)
{
    bool wanted[ECFS_CODEC_MAX_N];
    size_t found[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < self->n; i++)
        wanted[i] = true;
    look_at_places (self, stripe_bytes);
    if (ecfs_place (self->places, self->n_rooms, wanted, self->n, self->max_per_endpoint, self->n_objects++, found) > 0)
        return false;
    for (unsigned i = 0; i < self->n; i++)
        self->left[self->rooms[found[i]].device] -= stripe_bytes;
    return true;
}

/* What devices can give for stripes of x bytes, of which every endpoint holds max_per_endpoint. */
static double available (const Filling *self, double x)
{
    double sum = 0;
    for (size_t i = 0; i < self->n_rooms; i++)
        sum += MIN ((double) self->left[i], (double) self->n_users[i] * self->max_per_endpoint * x);
    return sum;
}

/* The largest x for which there are n·x bytes, were there no zones. */
static double upper_bound (const Filling *self)
{
    double low = 0, high = (double) MAX_FREE;
    for (unsigned i = 0; i < N_BISECTIONS; i++) {
        double middle = (low + high) / 2;
        *(available (self, middle) >= self->n * middle ? &low : &high) = middle;
    }
    return low;
}

static uint64_t fill (Filling *self)
{
    uint64_t sum = 0, stripe_bytes = MAX ((uint64_t) (upper_bound (self) / N_OBJECTS), 1);
    for (unsigned i = 0; i <= N_HALVINGS && stripe_bytes > 0; i++, stripe_bytes /= 2)
        while (place_object (self, stripe_bytes))
            sum += stripe_bytes;
    return sum;
}

uint64_t ecfs_capacity (const EcfsRoom *rooms, size_t n_rooms, unsigned n, unsigned max_per_endpoint)
{
    if (n_rooms == 0 || n == 0)
        return 0;
    g_autofree uint64_t *left = g_new0 (uint64_t, n_rooms);
    g_autofree unsigned *n_users = g_new0 (unsigned, n_rooms);
    g_autofree EcfsPlace *places = g_new0 (EcfsPlace, n_rooms);
    Filling filling = {.rooms = rooms,
                       .n_rooms = n_rooms,
                       .n = n,
                       .max_per_endpoint = max_per_endpoint,
                       .left = left,
                       .n_users = n_users,
                       .places = places};
    for (size_t i = 0; i < n_rooms; i++) {
        unsigned device = rooms[i].device;
        uint64_t free_bytes = MIN (rooms[i].free_bytes, MAX_FREE);
        left[device] = n_users[device]++ == 0 ? free_bytes : MIN (left[device], free_bytes);
    }
    return fill (&filling);
}
