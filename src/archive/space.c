/* How much room there is: what endpoints told of theirs, and what placement makes of it. */
#include "archive/archive_priv.h"
#include "object/capacity.h"
#include "object/placement.h"

#include <sys/statvfs.h>

#define UNTOLD_BYTES    (UINT64_C (1) << 50) /* what counts for an endpoint that cannot tell its room */
#define CATALOG_BYTES   1024                 /* of the local disk that the catalog needs for a file, at most about */
#define MAX_TOTAL_BYTES (UINT64_C (1) << 62)

unsigned ecfs_archive_zone_number (const EcfsArchive *self, size_t position)
{
    unsigned zone = 0;
    const char *own = self->endpoints[position].zone; /* which may become another: an endpoint is found again */
    while (zone < position && strcmp (self->endpoints[zone].zone, own) != 0)
        zone++;
    return zone;
}

unsigned ecfs_archive_most_per_endpoint (const EcfsArchive *self, size_t n_endpoints, unsigned n)
{
    unsigned n_takers = 0;
    for (size_t i = 0; i < n_endpoints; i++)
        n_takers += self->endpoints[i].endpoint != NULL && self->endpoints[i].state == ECFS_ENDPOINT_ACTIVE;
    if (!self->config->allow_double || n_takers == 0)
        return 1;
    return (n + n_takers - 1) / n_takers;
}

/* An endpoint that takes stripes now, and what it told. */
typedef struct Taker {
    size_t position;
    EcfsEndpointSpace space;
    unsigned device; /* the first taker on the same file system */
} Taker;

static unsigned device_of (const Taker *takers, unsigned index)
{
    unsigned first = 0;
    while (first < index &&
           (takers[index].space.device == 0 || takers[first].space.device != takers[index].space.device))
        first++;
    return first;
}

/* Fills @takers, of which there is one per endpoint at most; returns how many there are. */
static unsigned find_takers (const EcfsArchive *self, size_t n_endpoints, Taker *takers)
{
    unsigned n_takers = 0;
    for (size_t i = 0; i < n_endpoints; i++) {
        EcfsEndpointHealth health = {0};
        if (self->endpoints[i].endpoint == NULL || self->endpoints[i].state != ECFS_ENDPOINT_ACTIVE)
            continue;
        ecfs_endpoint_health (self->endpoints[i].endpoint, &health);
        takers[n_takers] = (Taker){.position = i, .space = health.space};
        takers[n_takers].device = device_of (takers, n_takers);
        n_takers += !health.down && !health.refuses && !health.takes_none;
        ecfs_endpoint_health_clear (&health);
    }
    return n_takers;
}

void ecfs_archive_rooms (const EcfsArchive *self, size_t n_endpoints, uint64_t *ret_rooms)
{
    g_autofree Taker *takers = g_new0 (Taker, n_endpoints + 1);
    unsigned n_takers = find_takers (self, n_endpoints, takers);
    for (size_t i = 0; i < n_endpoints; i++)
        ret_rooms[i] = ECFS_ROOM_UNKNOWN;
    for (unsigned i = 0; i < n_takers; i++) {
        unsigned n_users = 0;
        for (unsigned j = 0; j < n_takers; j++)
            n_users += takers[j].device == takers[i].device;
        if (takers[i].space.told)
            ret_rooms[takers[i].position] = takers[i].space.free_bytes / n_users;
    }
}

/* As many stripes as endpoints that are up can take: all, or fewer while these are still worth a commit; else 0. */
static unsigned stripes_placed (const EcfsArchive *self, const EcfsCodec *codec, unsigned n_takers, unsigned most)
{
    unsigned n = ecfs_codec_n (codec);
    bool present[ECFS_CODEC_MAX_N] = {false};
    size_t holder[ECFS_CODEC_MAX_N];
    for (unsigned i = 0; i < n; i++) {
        present[i] = i < n_takers * most;
        holder[i] = n_takers == 0 ? 0 : i % n_takers;
    }
    if (n_takers * most >= n)
        return n;
    return ecfs_quorum_reached (codec, present, holder, self->config->write_quorum) ? n_takers * most : 0;
}

/* Of one that takes stripes and has not been heard, nothing counts: with it there may be more. */
static uint64_t free_content_bytes (EcfsArchive *self, const EcfsCodec *codec, bool *ret_all_heard)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (self);
    g_autofree Taker *takers = g_new0 (Taker, n_endpoints + 1);
    g_autofree EcfsRoom *rooms = g_new0 (EcfsRoom, n_endpoints + 1);
    unsigned n_takers = find_takers (self, n_endpoints, takers);
    unsigned most = ecfs_archive_most_per_endpoint (self, n_endpoints, ecfs_codec_n (codec));
    /* Zones are numbered by endpoints, of which there may be more than takers: those that take nothing have no room. */
    for (size_t i = 0; i < n_endpoints; i++)
        rooms[i] = (EcfsRoom){.zone = ecfs_archive_zone_number (self, i), .device = (unsigned) i};
    *ret_all_heard = true;
    for (unsigned i = 0; i < n_takers; i++) {
        const EcfsEndpointSpace *space = &takers[i].space;
        *ret_all_heard = *ret_all_heard && (space->told || space->asked);
        EcfsRoom *room = &rooms[takers[i].position];
        room->device = (unsigned) takers[takers[i].device].position;
        room->free_bytes = space->told ? space->free_bytes : space->asked ? UNTOLD_BYTES : 0;
    }
    uint64_t x = ecfs_capacity (rooms, n_endpoints, stripes_placed (self, codec, n_takers, most), most);
    return x > MAX_TOTAL_BYTES / ecfs_codec_k (codec) ? MAX_TOTAL_BYTES : x * ecfs_codec_k (codec);
}

uint64_t ecfs_archive_space_state (const EcfsArchive *self)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (self);
    g_autofree Taker *takers = g_new0 (Taker, n_endpoints + 1);
    unsigned n_takers = find_takers (self, n_endpoints, takers);
    uint64_t sum = n_takers;
    for (unsigned i = 0; i < n_takers; i++)
        sum = sum * 31 + takers[i].position + takers[i].space.free_bytes + takers[i].space.asked;
    return sum;
}

void ecfs_archive_foretell (EcfsArchive *self)
{
    bool all_heard;
    EcfsTotals totals = {0};
    const EcfsCodec *codec = ecfs_archive_codec (self, self->config->code, NULL);
    if (codec == NULL || !ecfs_catalog_totals (self->catalog, &totals, NULL))
        return; /* the figures stay as they were: whoever uses the catalog meets and tells the error */
    uint64_t free_bytes = free_content_bytes (self, codec, &all_heard);
    ecfs_mutex_lock (&self->lock);
    self->foretold_bytes = free_bytes;
    self->is_foretold = free_bytes > 0 || all_heard;
    self->foretold_content = totals.content_bytes;
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_archive_space (EcfsArchive *self, EcfsArchiveSpace *ret_space)
{
    EcfsTotals totals = {0};
    struct statvfs disk = {0};
    (void) ecfs_catalog_totals (self->catalog, &totals, NULL); /* whoever changes something is told the error */
    if (statvfs (self->directory, &disk) != 0)
        disk.f_bavail = 0;
    ecfs_mutex_lock (&self->lock);
    uint64_t since = totals.content_bytes - MIN (totals.content_bytes, self->foretold_content);
    uint64_t free_bytes = self->foretold_bytes - MIN (self->foretold_bytes, since);
    bool is_known = self->is_foretold;
    ecfs_mutex_unlock (&self->lock);
    *ret_space = (EcfsArchiveSpace){.is_known = is_known,
                                    .total = totals.content_bytes + free_bytes,
                                    .free = free_bytes,
                                    .n_inodes = totals.n_inodes,
                                    .free_inodes = (uint64_t) disk.f_bavail * disk.f_frsize / CATALOG_BYTES};
}

bool ecfs_archive_space_is_owed (const EcfsArchive *self)
{
    size_t n_endpoints = ecfs_archive_n_endpoints (self);
    g_autofree Taker *takers = g_new0 (Taker, n_endpoints + 1);
    unsigned n_takers = find_takers (self, n_endpoints, takers);
    for (unsigned i = 0; i < n_takers; i++)
        if (!takers[i].space.told && !takers[i].space.asked)
            return true;
    return false;
}

static uint64_t written_to (const EcfsArchiveEndpoint *endpoint)
{
    EcfsEndpointHealth health = {0};
    ecfs_endpoint_health (endpoint->endpoint, &health);
    ecfs_endpoint_health_clear (&health);
    return health.written_bytes;
}

bool ecfs_archive_has_capacities (const EcfsArchive *self)
{
    for (size_t i = 0; i < ecfs_archive_n_endpoints (self); i++)
        if (self->endpoints[i].endpoint != NULL && ecfs_endpoint_capacity (self->endpoints[i].endpoint) > 0)
            return true;
    return false;
}

bool ecfs_archive_count_used (EcfsArchive *self, GError **error)
{
    size_t n = 0, n_endpoints = ecfs_archive_n_endpoints (self);
    g_autofree int64_t *ids = g_new (int64_t, n_endpoints + 1);
    g_autofree size_t *positions = g_new (size_t, n_endpoints + 1);
    g_autofree uint64_t *written = g_new (uint64_t, n_endpoints + 1), *used = g_new0 (uint64_t, n_endpoints + 1);
    for (size_t i = 0; i < n_endpoints; i++) {
        const EcfsArchiveEndpoint *endpoint = &self->endpoints[i];
        if (endpoint->endpoint == NULL || ecfs_endpoint_capacity (endpoint->endpoint) == 0)
            continue;
        positions[n] = i;
        ids[n] = endpoint->id;
        written[n++] = written_to (endpoint); /* what is written while it is counted may count twice */
    }
    if (n > 0 && !ecfs_catalog_bytes_at (self->catalog, ids, n, ecfs_archive_stop_flag (self), used, error))
        return ecfs_prefix (error, "what endpoints have of their capacity");
    for (size_t i = 0; i < n; i++)
        ecfs_endpoint_note_used (self->endpoints[positions[i]].endpoint, used[i], written[i]);
    return true;
}
