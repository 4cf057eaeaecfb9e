#include "sim/lifetime.h"

#include "object/placement.h"
#include "sim/events.h"

#include <math.h>
#include <string.h>

#define MAX_N          64 /* stripes: a set of them is a word */
#define MAX_CANDIDATES (3 * MAX_N)
#define MORE_PLACES    8 /* endpoints that a repair chooses from */
#define MAX_STRIPES    2e8
#define S_US           1e6
#define HOUR_S         3600.0
#define DAY_S          (24 * HOUR_S)
#define YEAR_S         (365.25 * DAY_S)

typedef enum LifeKind { LIFE_DEATH, LIFE_DETECT, LIFE_REPLACE, LIFE_DISASTER, LIFE_REPAIRED } LifeKind;

typedef struct Endpoint {
    bool alive;
    unsigned n_lives;
    GArray *objects; /* of uint32_t: that have, or had, a stripe here */
} Endpoint;

typedef struct Object {
    uint64_t lost, known; /* stripes; of them those that are noticed */
    int64_t lost_us;      /* since when it lacks some */
    bool gone;
} Object;

/* Objects to repair that lack so many stripes, first come first served. */
typedef struct Waiting {
    GArray *objects; /* of uint32_t */
    guint next;
} Waiting;

typedef struct Life {
    const EcfsLifetimeModel *model;
    EcfsCodec *codec;
    unsigned k, n, tolerance;
    GRand *random;
    SimEvents events;
    int64_t now_us;
    Endpoint *endpoints;
    Object *objects;
    uint32_t *holders; /* n of each object */
    Waiting waiting[MAX_N + 1];
    Waiting placeless; /* until an endpoint is replaced */
    GHashTable *reads; /* lost set → double *: packets that its repair reads */
    bool repairing;
    uint64_t repaired_set;
    EcfsLifetime result;
} Life;

static void plan (Life *self, double after_s, LifeKind kind, uint64_t subject, uint64_t what)
{
    ecfs_sim_events_add (&self->events, self->now_us + (int64_t) MIN (after_s * S_US, 1e18), kind,
                         GSIZE_TO_POINTER (subject), what);
}

static double draw_s (Life *self, double mean_s)
{
    return -log (1 - g_rand_double (self->random)) * mean_s;
}

static void plan_death (Life *self, uint64_t number)
{
    double mttf_years = self->model->endpoints[number].mttf_years;
    if (mttf_years > 0)
        plan (self, draw_s (self, mttf_years * YEAR_S), LIFE_DEATH, number, self->endpoints[number].n_lives);
}

static void plan_disaster (Life *self, uint64_t zone)
{
    if (self->model->disaster_every_years > 0)
        plan (self, draw_s (self, self->model->disaster_every_years * YEAR_S), LIFE_DISASTER, zone, 0);
}

/* Placement */

static size_t add_candidate (const Life *self, EcfsPlace *places, uint32_t *candidates, size_t n, uint32_t number,
                             unsigned n_held)
{
    for (size_t i = 0; i < n; i++)
        if (candidates[i] == number)
            return n;
    candidates[n] = number;
    places[n] = (EcfsPlace){.zone = self->model->endpoints[number].zone,
                            .usable = self->endpoints[number].alive,
                            .n_held = n_held,
                            .room = ECFS_ROOM_UNKNOWN};
    return n + 1;
}

/* Gives the stripes @set of an object places beside those that it has; returns those that found one. */
static uint64_t place (Life *self, uint32_t number, uint64_t set, size_t n_more)
{
    EcfsPlace places[MAX_CANDIDATES];
    uint32_t candidates[MAX_CANDIDATES], *holders = self->holders + (size_t) number * self->n;
    size_t n = 0, found[MAX_N], n_endpoints = self->model->n_endpoints;
    bool wanted[MAX_N];
    for (unsigned i = 0; i < self->n; i++) {
        wanted[i] = set >> i & 1;
        if (!(self->objects[number].lost >> i & 1))
            n = add_candidate (self, places, candidates, n, holders[i], 1);
    }
    for (size_t i = 0; i < (n_more < n_endpoints ? n_more : n_endpoints); i++) {
        uint32_t other = n_more < n_endpoints ? g_rand_int (self->random) % (uint32_t) n_endpoints : (uint32_t) i;
        n = add_candidate (self, places, candidates, n, other, 0);
    }
    (void) ecfs_place (places, n, wanted, self->n, 1, g_rand_int (self->random), found); /* told by found */
    for (unsigned i = 0; i < self->n; i++) {
        if (!wanted[i] || found[i] == SIZE_MAX) {
            set &= ~(UINT64_C (1) << i);
            continue;
        }
        holders[i] = candidates[found[i]];
        g_array_append_val (self->endpoints[holders[i]].objects, number);
    }
    return set;
}

/* Repair */

static uint64_t all_stripes (const Life *self)
{
    return self->n == 64 ? UINT64_MAX : (UINT64_C (1) << self->n) - 1;
}

static void flags_of (const Life *self, uint64_t set, bool *flags)
{
    for (unsigned i = 0; i < self->n; i++)
        flags[i] = set >> i & 1;
}

/* Packets that giving back the stripes @set reads. */
static double find_reads (const Life *self, uint64_t set)
{
    bool lost[MAX_N], available[MAX_N];
    size_t n_reads = 0, bytes = 0;
    if (!ecfs_codec_is_modelled (self->codec)) {
        flags_of (self, set, lost);
        flags_of (self, all_stripes (self) & ~set, available);
        g_autoptr (EcfsPlan) repair = ecfs_codec_plan_repair (self->codec, lost, available, NULL, NULL);
        const EcfsPlanRead *reads = repair == NULL ? NULL : ecfs_plan_reads (repair, &n_reads);
        for (size_t i = 0; i < n_reads; i++)
            bytes += reads[i].size;
    }
    return n_reads == 0 ? self->k : (double) bytes / (double) ecfs_codec_granule (self->codec);
}

static double reads_of (Life *self, uint64_t set)
{
    double *reads = g_hash_table_lookup (self->reads, &set);
    if (reads == NULL) {
        uint64_t *key = g_new (uint64_t, 1);
        reads = g_new (double, 1);
        *key = set;
        *reads = find_reads (self, set);
        g_hash_table_insert (self->reads, key, reads);
    }
    return *reads;
}

static void wait_in (Waiting *self, uint32_t number)
{
    if (self->objects == NULL)
        self->objects = g_array_new (FALSE, FALSE, sizeof number);
    if (self->next > 1024 && self->next > self->objects->len / 2) {
        g_array_remove_range (self->objects, 0, self->next);
        self->next = 0;
    }
    g_array_append_val (self->objects, number);
}

static bool next_of (Waiting *self, uint32_t *ret_number)
{
    if (self->objects == NULL || self->next >= self->objects->len)
        return false;
    *ret_number = g_array_index (self->objects, uint32_t, self->next++);
    return true;
}

static unsigned n_lost (const Object *object)
{
    return (unsigned) __builtin_popcountll (object->lost);
}

/* Begins with whatever has the fewest stripes to lose. */
static void repair_next (Life *self)
{
    for (unsigned level = self->n; level > 0 && !self->repairing; level--) {
        uint32_t number;
        while (!self->repairing && next_of (&self->waiting[level], &number)) {
            const Object *object = &self->objects[number];
            if (object->gone || object->known == 0 || n_lost (object) != level)
                continue; /* it waits elsewhere, or for nothing */
            double bytes = reads_of (self, object->lost) * self->model->object_bytes / self->k;
            self->repairing = true;
            self->repaired_set = object->known;
            self->result.repair_bytes += bytes;
            plan (self, bytes / self->model->repair_bytes_per_s, LIFE_REPAIRED, number, 0);
        }
    }
}

static void repaired (Life *self, uint32_t number)
{
    Object *object = &self->objects[number];
    self->repairing = false;
    if (object->gone)
        return;
    uint64_t back = place (self, number, self->repaired_set, MORE_PLACES);
    object->lost &= ~back;
    object->known &= ~back;
    self->result.n_repairs++;
    double days = (double) (self->now_us - object->lost_us) / S_US / DAY_S;
    self->result.longest_repair_days = MAX (self->result.longest_repair_days, days);
    if (object->known != 0)
        wait_in (back == 0 ? &self->placeless : &self->waiting[n_lost (object)], number);
}

/* Deaths */

static void check (Life *self, Object *object)
{
    bool present[MAX_N];
    int left = (int) self->tolerance - (int) n_lost (object);
    flags_of (self, ~object->lost, present);
    if (left < 0 && !ecfs_codec_decodable (self->codec, present)) {
        object->gone = true;
        self->result.n_lost++;
        return;
    }
    self->result.least_guarantee = MIN (self->result.least_guarantee, MAX (left, 0));
}

static void lose_stripe (Life *self, uint32_t number, uint32_t endpoint)
{
    Object *object = &self->objects[number];
    const uint32_t *holders = self->holders + (size_t) number * self->n;
    uint64_t before = object->lost;
    for (unsigned i = 0; i < self->n && !object->gone; i++)
        if (holders[i] == endpoint && !(object->lost >> i & 1))
            object->lost |= UINT64_C (1) << i;
    if (object->lost == before)
        return; /* it was moved away meanwhile */
    if (before == 0)
        object->lost_us = self->now_us;
    check (self, object);
    if (object->known != 0 && !object->gone)
        wait_in (&self->waiting[n_lost (object)], number);
}

static void die (Life *self, uint64_t number)
{
    Endpoint *endpoint = &self->endpoints[number];
    if (!endpoint->alive)
        return;
    endpoint->alive = false;
    self->result.n_deaths++;
    for (guint i = 0; i < endpoint->objects->len; i++)
        lose_stripe (self, g_array_index (endpoint->objects, uint32_t, i), (uint32_t) number);
    plan (self, self->model->detect_hours * HOUR_S, LIFE_DETECT, number, 0);
    plan (self, self->model->detect_hours * HOUR_S + self->model->replace_days * DAY_S, LIFE_REPLACE, number, 0);
}

static void detect (Life *self, uint64_t number)
{
    Endpoint *endpoint = &self->endpoints[number];
    for (guint i = 0; i < endpoint->objects->len; i++) {
        uint32_t at = g_array_index (endpoint->objects, uint32_t, i);
        Object *object = &self->objects[at];
        uint64_t before = object->known;
        for (unsigned j = 0; j < self->n; j++)
            if (self->holders[(size_t) at * self->n + j] == number)
                object->known |= object->lost & UINT64_C (1) << j;
        if (object->known != before && !object->gone)
            wait_in (&self->waiting[n_lost (object)], at);
    }
    g_array_set_size (endpoint->objects, 0);
}

static void replace (Life *self, uint64_t number)
{
    uint32_t waiting;
    self->endpoints[number].alive = true;
    self->endpoints[number].n_lives++;
    plan_death (self, number);
    while (next_of (&self->placeless, &waiting))
        wait_in (&self->waiting[n_lost (&self->objects[waiting])], waiting);
}

static void befall (Life *self, uint64_t zone)
{
    self->result.n_disasters++;
    for (size_t i = 0; i < self->model->n_endpoints; i++)
        if (self->model->endpoints[i].zone == zone && g_rand_double (self->random) < self->model->disaster_share)
            die (self, i);
    plan_disaster (self, zone);
}

static void happen (Life *self, const SimEvent *event)
{
    uint64_t subject = GPOINTER_TO_SIZE (event->subject);
    switch ((LifeKind) event->kind) {
    case LIFE_DEATH:
        if (event->what == self->endpoints[subject].n_lives)
            die (self, subject);
        break;
    case LIFE_DETECT:
        detect (self, subject);
        break;
    case LIFE_REPLACE:
        replace (self, subject);
        break;
    case LIFE_DISASTER:
        befall (self, subject);
        break;
    case LIFE_REPAIRED:
        repaired (self, (uint32_t) subject);
        break;
    }
    if (!self->repairing)
        repair_next (self);
}

/* The whole */

static bool check_model (const EcfsLifetimeModel *model, const EcfsCodec *codec, GError **error)
{
    unsigned n = ecfs_codec_n (codec);
    if (n > MAX_N)
        return ecfs_fail (error, EINVAL, "%s: lifetimes are simulated for up to %d stripes", model->code, MAX_N);
    if (model->n_endpoints < n)
        return ecfs_fail (error, EINVAL, "%s needs %u endpoints, and there are %zu", model->code, n,
                          model->n_endpoints);
    if ((double) model->n_objects * n > MAX_STRIPES)
        return ecfs_fail (error, EINVAL, "%s: there are more than 2 * 10^8 stripes; let each object stand_for several",
                          model->code);
    if (model->n_objects > UINT32_MAX || !(model->repair_bytes_per_s > 0) || !(model->years > 0))
        return ecfs_fail (error, EINVAL, "years and bandwidth of repair are above 0, objects fewer than 2^32");
    return true;
}

static void begin (Life *self)
{
    const EcfsLifetimeModel *model = self->model;
    self->random = g_rand_new_with_seed (model->seed);
    self->endpoints = g_new0 (Endpoint, model->n_endpoints);
    self->objects = g_new0 (Object, model->n_objects);
    self->holders = g_new0 (uint32_t, model->n_objects * self->n);
    self->reads = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, g_free);
    self->result.least_guarantee = (int) self->tolerance;
    for (size_t i = 0; i < model->n_endpoints; i++) {
        self->endpoints[i] = (Endpoint){.alive = true, .objects = g_array_new (FALSE, FALSE, sizeof (uint32_t))};
        plan_death (self, i);
    }
    for (size_t i = 0; i < model->n_zones; i++)
        plan_disaster (self, i);
    for (uint32_t i = 0; i < model->n_objects; i++) {
        uint64_t left = self->objects[i].lost = all_stripes (self);
        while (left != 0) { /* the same endpoint may be drawn twice */
            uint64_t placed = place (self, i, left, 2 * self->n);
            left &= ~placed;
            self->objects[i].lost = left;
        }
    }
}

static void end (Life *self)
{
    for (size_t i = 0; i < self->model->n_objects; i++)
        self->result.n_unrepaired += self->objects[i].lost != 0 && !self->objects[i].gone;
    for (size_t i = 0; i < self->model->n_endpoints; i++)
        g_array_unref (self->endpoints[i].objects);
    for (unsigned i = 0; i <= MAX_N; i++)
        g_clear_pointer (&self->waiting[i].objects, g_array_unref);
    g_clear_pointer (&self->placeless.objects, g_array_unref);
    ecfs_sim_events_clear (&self->events);
    g_hash_table_unref (self->reads);
    g_rand_free (self->random);
    g_free (self->endpoints);
    g_free (self->objects);
    g_free (self->holders);
}

bool ecfs_lifetime_run (const EcfsLifetimeModel *model, EcfsLifetime *ret_lifetime, GError **error)
{
    g_autoptr (EcfsCodec) codec = ecfs_codec_new_modelled (model->code, error);
    if (codec == NULL || !check_model (model, codec, error))
        return false;
    g_autofree Life *self = g_new0 (Life, 1);
    self->model = model;
    self->codec = codec;
    self->k = ecfs_codec_k (codec);
    self->n = ecfs_codec_n (codec);
    self->tolerance = ecfs_codec_tolerance (codec);
    begin (self);
    SimEvent event;
    int64_t end_us = (int64_t) (model->years * YEAR_S * S_US);
    while (ecfs_sim_events_take (&self->events, &event) && event.us <= end_us) {
        self->now_us = event.us;
        happen (self, &event);
    }
    end (self);
    *ret_lifetime = self->result;
    return true;
}
