#include "archive/places.h"

#include "archive/archive_priv.h"
#include "archive/places_of.h"

#include <string.h>

#define STRIPE_MORE_BYTES 65536 /* header and footer of a stripe, and what its file takes beside */

static bool takes_new (const EcfsArchiveEndpoint *endpoint)
{
    return endpoint->endpoint != NULL && endpoint->state == ECFS_ENDPOINT_ACTIVE;
}

static bool is_usable (const EcfsArchiveEndpoint *endpoint, const EcfsObjectPlaces *self, EcfsDoubts doubts)
{
    EcfsEndpointHealth health;
    ecfs_endpoint_health (endpoint->endpoint, &health);
    bool usable = !health.down && !health.takes_none && (doubts >= ECFS_DOUBTS_TRIAL || !health.trial) &&
                  (doubts >= ECFS_DOUBTS_ALL || (!health.suspect && !health.refuses));
    ecfs_endpoint_health_clear (&health);
    return usable && ecfs_endpoint_has_room (endpoint->endpoint, self->stripe_bytes);
}

static EcfsPlace *empty_places (const EcfsArchive *archive, const EcfsObjectPlaces *self)
{
    EcfsPlace *places = g_new0 (EcfsPlace, MAX (self->n_endpoints, 1));
    for (size_t i = 0; i < self->n_endpoints; i++)
        places[i].zone = ecfs_archive_zone_number (archive, i);
    return places;
}

EcfsPlace *ecfs_object_places (const EcfsArchive *archive, const EcfsObjectPlaces *self, EcfsDoubts doubts)
{
    EcfsPlace *places = empty_places (archive, self);
    g_autofree uint64_t *rooms = g_new0 (uint64_t, self->n_endpoints + 1);
    ecfs_archive_rooms (archive, self->n_endpoints, rooms);
    for (size_t i = 0; i < self->n_endpoints; i++) {
        places[i].room = rooms[i] < self->stripe_bytes + STRIPE_MORE_BYTES ? 0 : rooms[i];
        places[i].usable = takes_new (&archive->endpoints[i]) && !(i < ECFS_CODEC_MAX_N && self->tried[i]) &&
                           ecfs_mark_at (self->marks, i) != ECFS_MARK_FORBIDDEN &&
                           is_usable (&archive->endpoints[i], self, doubts);
    }
    for (unsigned i = 0; i < ecfs_codec_n (self->codec); i++)
        if (self->position[i] != SIZE_MAX)
            places[self->position[i]].n_held++;
    return places;
}

unsigned ecfs_object_most_per_endpoint (const EcfsArchive *archive, const EcfsObjectPlaces *self)
{
    unsigned n_takers = 0, n = ecfs_codec_n (self->codec);
    if (self->marks == NULL || !archive->config->allow_double)
        return ecfs_archive_most_per_endpoint (archive, self->n_endpoints, n);
    for (size_t i = 0; i < self->n_endpoints; i++)
        n_takers += takes_new (&archive->endpoints[i]) && ecfs_mark_at (self->marks, i) != ECFS_MARK_FORBIDDEN;
    return n_takers == 0 ? 1 : (n + n_takers - 1) / n_takers;
}

/* As many of the wanted stripes as the preferred endpoints take; these are no more @left then. */
static void place_preferred (const EcfsObjectPlaces *self, EcfsPlace *places, bool *left, unsigned most, uint64_t lot,
                             size_t *found)
{
    const unsigned n = ecfs_codec_n (self->codec);
    g_autofree EcfsPlace *preferred = g_memdup2 (places, self->n_endpoints * sizeof *places);
    for (size_t i = 0; i < self->n_endpoints; i++)
        preferred[i].usable =
            places[i].usable && places[i].room > 0 && ecfs_mark_at (self->marks, i) == ECFS_MARK_PREFERRED;
    (void) ecfs_place (preferred, self->n_endpoints, left, n, most, lot, found);
    for (unsigned i = 0; i < n; i++)
        left[i] = left[i] && found[i] == SIZE_MAX;
    for (size_t i = 0; i < self->n_endpoints; i++)
        places[i].n_held = preferred[i].n_held;
}

unsigned ecfs_object_place (const EcfsObjectPlaces *self, EcfsPlace *places, const bool *wanted, unsigned most,
                            uint64_t lot, const bool *towards, size_t *ret_places)
{
    const unsigned n = ecfs_codec_n (self->codec);
    size_t first[ECFS_CODEC_MAX_N];
    bool left[ECFS_CODEC_MAX_N], names_any = false;
    memcpy (left, wanted, n * sizeof *left);
    for (unsigned i = 0; i < n; i++)
        first[i] = SIZE_MAX;
    for (size_t i = 0; towards != NULL && i < self->n_endpoints; i++)
        names_any = names_any || towards[i];
    if (!names_any && ecfs_marks_prefer (self->marks)) /* who names endpoints wants these */
        place_preferred (self, places, left, most, lot, first);
    unsigned n_without = names_any
                             ? ecfs_place_towards (places, self->n_endpoints, left, n, most, lot, towards, ret_places)
                             : ecfs_place (places, self->n_endpoints, left, n, most, lot, ret_places);
    for (unsigned i = 0; i < n; i++)
        if (first[i] != SIZE_MAX)
            ret_places[i] = first[i];
    return n_without;
}

char *ecfs_unusable_endpoint (const EcfsArchiveEndpoint *endpoint)
{
    if (!takes_new (endpoint))
        return g_strdup_printf (
            "endpoint %s %s", endpoint->name,
            endpoint->endpoint == NULL
                ? "is not in ecfs.conf here: put its section back, or copy it from the machine that added the endpoint"
            : endpoint->state == ECFS_ENDPOINT_READONLY ? "is readonly"
            : endpoint->state == ECFS_ENDPOINT_DRAINING ? "is being drained"
            : endpoint->state == ECFS_ENDPOINT_FAILED   ? "was given up"
            : endpoint->state == ECFS_ENDPOINT_REMOVED  ? "was removed"
                                                        : "is distrusted");
    EcfsEndpointHealth health;
    char *why = NULL;
    ecfs_endpoint_health (endpoint->endpoint, &health);
    if (health.full && !health.down)
        why = g_strdup_printf ("endpoint %s is full", endpoint->name);
    else if (health.down || health.refuses || health.takes_none)
        why = g_strdup (health.reason);
    else if (health.suspect)
        why = g_strdup_printf ("endpoint %s does not answer just now", endpoint->name);
    ecfs_endpoint_health_clear (&health);
    return why;
}

char *ecfs_unusable_endpoints (const EcfsArchive *archive, const EcfsObjectPlaces *self)
{
    GString *text = g_string_new (NULL);
    for (size_t i = 0; i < self->n_endpoints; i++) {
        g_autofree char *why = ecfs_mark_at (self->marks, i) == ECFS_MARK_FORBIDDEN
                                   ? NULL
                                   : ecfs_unusable_endpoint (&archive->endpoints[i]);
        if (why != NULL)
            g_string_append_printf (text, "; %s", why);
    }
    return g_string_free (text, FALSE);
}

bool ecfs_only_room_is_missing (const EcfsArchive *archive, const EcfsObjectPlaces *self)
{
    g_autofree EcfsPlace *places = empty_places (archive, self);
    bool any_full = false; /* or used up for this month */
    for (size_t i = 0; i < self->n_endpoints; i++) {
        if (!takes_new (&archive->endpoints[i]) || ecfs_mark_at (self->marks, i) == ECFS_MARK_FORBIDDEN)
            continue;
        EcfsEndpointHealth health;
        ecfs_endpoint_health (archive->endpoints[i].endpoint, &health);
        places[i].usable = !health.down && (health.full || !health.refuses);
        any_full = any_full || health.full || health.takes_none;
        ecfs_endpoint_health_clear (&health);
    }
    bool all[ECFS_CODEC_MAX_N], placed[ECFS_CODEC_MAX_N];
    size_t found[ECFS_CODEC_MAX_N];
    unsigned n = ecfs_codec_n (self->codec);
    for (unsigned i = 0; i < n; i++)
        all[i] = true;
    unsigned most = ecfs_object_most_per_endpoint (archive, self);
    (void) ecfs_place (places, self->n_endpoints, all, n, most, 0, found);
    for (unsigned i = 0; i < n; i++)
        placed[i] = found[i] != SIZE_MAX;
    return any_full && ecfs_quorum_reached (self->codec, placed, found, archive->config->write_quorum);
}
