#include "archive/crowding.h"

#include "archive/archive_priv.h"
#include "archive/places.h"

#define STRIPE_MORE_BYTES 65536 /* header and footer of a stripe, and what its file takes beside */
#define MOST_LOTS         16

static bool is_wished (const EcfsArchiveEndpoint *endpoint)
{
    return endpoint->endpoint != NULL && endpoint->state == ECFS_ENDPOINT_ACTIVE;
}

void ecfs_roomy_init (EcfsRoomy *self, EcfsArchive *archive)
{
    EcfsObjectPlaces none = {.codec = ecfs_archive_codec (archive, archive->config->code, NULL),
                             .n_endpoints = ecfs_archive_n_endpoints (archive)};
    for (size_t i = 0; i < G_N_ELEMENTS (none.position); i++)
        none.position[i] = SIZE_MAX;
    *self = (EcfsRoomy){.archive = archive, .n_places = none.n_endpoints};
    self->now = ecfs_object_places (archive, &none, ECFS_DOUBTS_TRIAL);
    self->wished = g_memdup2 (self->now, self->n_places * sizeof *self->now);
    for (size_t i = 0; i < self->n_places; i++) {
        self->wished[i].usable = is_wished (&archive->endpoints[i]);
        self->wished[i].room = ECFS_ROOM_UNKNOWN;
    }
}

void ecfs_roomy_clear (EcfsRoomy *self)
{
    g_clear_pointer (&self->now, g_free);
    g_clear_pointer (&self->wished, g_free);
}

static size_t position_of (const EcfsRoomy *self, int64_t endpoint)
{
    for (size_t i = 0; i < self->n_places; i++)
        if (self->archive->endpoints[i].id == endpoint && ecfs_archive_endpoint_counts (&self->archive->endpoints[i]))
            return i;
    return SIZE_MAX;
}

/* Endpoints that take a stripe as large as those of the object. */
static EcfsPlace *places_for (const EcfsRoomy *self, const EcfsObjectRow *object)
{
    EcfsPlace *places = g_memdup2 (self->now, self->n_places * sizeof *places);
    uint64_t largest = 0;
    for (guint i = 0; i < object->stripes->len; i++)
        largest = MAX (largest, g_array_index (object->stripes, EcfsStripeRow, i).size);
    for (size_t i = 0; i < self->n_places; i++)
        places[i].usable = places[i].usable && places[i].room >= largest + STRIPE_MORE_BYTES;
    return places;
}

/* What is found has the lowest positions among equals: the same endpoints for all objects. Places are drawn until one
 * draw is as good, which with most codes the first is. */
static void draw (const EcfsCodec *codec, EcfsPlace *places, size_t n_places, const size_t *position, unsigned most,
                  uint64_t lot, EcfsCrowding *crowding)
{
    bool wanted[ECFS_CODEC_MAX_N];
    unsigned n = ecfs_codec_n (codec);
    for (unsigned i = 0; i < n; i++)
        wanted[i] = crowding->to[i] != SIZE_MAX;
    for (unsigned round = 0; round < MOST_LOTS; round++) {
        size_t found[ECFS_CODEC_MAX_N], after[ECFS_CODEC_MAX_N];
        for (size_t i = 0; i < n_places; i++)
            places[i].n_held = 0;
        for (unsigned i = 0; i < n; i++)
            if (position[i] != SIZE_MAX && !wanted[i])
                places[position[i]].n_held++;
        if (ecfs_place (places, n_places, wanted, n, most, lot + round, found) > 0)
            return;
        for (unsigned i = 0; i < n; i++)
            after[i] = wanted[i] ? found[i] : position[i];
        EcfsSpread spread = ecfs_spread (codec, places, after);
        if (ecfs_spread_compare (&spread, &crowding->reachable) < 0)
            continue;
        memcpy (crowding->to, found, n * sizeof *found);
        return;
    }
}

static size_t find_lacking (const EcfsPlace *places, const size_t *wished, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (wished[i] != SIZE_MAX && !places[wished[i]].usable)
            return wished[i];
    return SIZE_MAX;
}

bool ecfs_object_is_crowded (const EcfsRoomy *roomy, const EcfsObjectRow *object, uint64_t lot,
                             EcfsCrowding *ret_crowding)
{
    size_t position[ECFS_CODEC_MAX_N], wished[ECFS_CODEC_MAX_N];
    const EcfsCodec *codec = ecfs_archive_codec (roomy->archive, object->code, NULL); /* who checks the object tells */
    if (codec == NULL)
        return false;
    unsigned n = ecfs_codec_n (codec), most = ecfs_archive_most_per_endpoint (roomy->archive, roomy->n_places, n);
    for (unsigned i = 0; i < n; i++)
        position[i] = SIZE_MAX;
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        if (stripe->index < n)
            position[stripe->index] = position_of (roomy, stripe->endpoint);
    }
    if (ecfs_move_apart (codec, roomy->wished, roomy->n_places, position, most, wished, &ret_crowding->possible) == 0)
        return false;
    g_autofree EcfsPlace *places = places_for (roomy, object);
    ret_crowding->reachable = ret_crowding->now = ecfs_spread (codec, places, position);
    ret_crowding->n_moves =
        ecfs_move_apart (codec, places, roomy->n_places, position, most, ret_crowding->to, &ret_crowding->reachable);
    bool all = ecfs_spread_compare (&ret_crowding->reachable, &ret_crowding->possible) >= 0;
    ret_crowding->lacking = all ? SIZE_MAX : find_lacking (places, wished, n);
    if (ret_crowding->n_moves > 0)
        draw (codec, places, roomy->n_places, position, most, lot, ret_crowding);
    return ret_crowding->n_moves > 0 || ret_crowding->lacking != SIZE_MAX;
}
