#include "archive/crowding.h"

#include "archive/archive_priv.h"
#include "archive/places.h"
#include "archive/places_of.h"

#define STRIPE_MORE_BYTES 65536 /* header and footer of a stripe, and what its file takes beside */
#define MOST_LOTS         16

static bool is_wished (const EcfsArchiveEndpoint *endpoint)
{
    return endpoint->endpoint != NULL && endpoint->state == ECFS_ENDPOINT_ACTIVE;
}

bool ecfs_roomy_init (EcfsRoomy *self, EcfsArchive *archive, GError **error)
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
    return ecfs_catalog_knows_xattr (archive->catalog, ECFS_PLACES_ATTRIBUTE, &self->has_rules, error);
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

/* Those that stripes may move to: as rules allow, and nothing leaves what is preferred for the sake of its zone. */
static EcfsPlace *places_within (const EcfsPlace *all, size_t n_places, const char *marks)
{
    bool prefers = ecfs_marks_prefer (marks);
    EcfsPlace *places = g_memdup2 (all, n_places * sizeof *all);
    for (size_t i = 0; i < n_places; i++) {
        EcfsPlacesMark mark = ecfs_mark_at (marks, i);
        places[i].usable = all[i].usable && mark != ECFS_MARK_FORBIDDEN && (!prefers || mark == ECFS_MARK_PREFERRED);
    }
    return places;
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

/* An object that is looked at. */
typedef struct Judging {
    const EcfsRoomy *roomy;
    const EcfsObjectRow *object;
    const EcfsCodec *codec;
    const char *marks;
    size_t position[ECFS_CODEC_MAX_N];
    unsigned most; /* per endpoint */
} Judging;

static void find_positions (Judging *self)
{
    const EcfsObjectPlaces places = {.codec = self->codec, .n_endpoints = self->roomy->n_places, .marks = self->marks};
    self->most = ecfs_object_most_per_endpoint (self->roomy->archive, &places);
    for (unsigned i = 0; i < G_N_ELEMENTS (self->position); i++)
        self->position[i] = SIZE_MAX;
    for (guint i = 0; i < self->object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (self->object->stripes, EcfsStripeRow, i);
        if (stripe->index < ecfs_codec_n (self->codec))
            self->position[stripe->index] = position_of (self->roomy, stripe->endpoint);
    }
}

/* Where forbidden stripes go among @all; returns how many find a place. */
static unsigned move_back (const Judging *self, const EcfsPlace *all, const bool *forbidden, uint64_t lot, size_t *to)
{
    const EcfsObjectPlaces of_object = {
        .codec = self->codec, .n_endpoints = self->roomy->n_places, .marks = self->marks};
    const unsigned n = ecfs_codec_n (self->codec);
    g_autofree EcfsPlace *places = g_memdup2 (all, self->roomy->n_places * sizeof *all);
    unsigned n_moves = 0;
    for (size_t i = 0; i < self->roomy->n_places; i++)
        places[i].usable =
            places[i].usable && places[i].room > 0 && ecfs_mark_at (self->marks, i) != ECFS_MARK_FORBIDDEN;
    for (unsigned i = 0; i < n; i++)
        if (self->position[i] != SIZE_MAX && !forbidden[i])
            places[self->position[i]].n_held++;
    (void) ecfs_object_place (&of_object, places, forbidden, self->most, lot, NULL, to); /* told by to */
    for (unsigned i = 0; i < n; i++)
        n_moves += to[i] != SIZE_MAX;
    return n_moves;
}

/* Whether a rule forbids places of the object. What can go, goes, also where that is not all. */
static bool is_misplaced (const Judging *self, uint64_t lot, EcfsCrowding *crowding)
{
    const EcfsRoomy *roomy = self->roomy;
    const unsigned n = ecfs_codec_n (self->codec);
    bool forbidden[ECFS_CODEC_MAX_N] = {false};
    size_t wished[ECFS_CODEC_MAX_N], after[ECFS_CODEC_MAX_N];
    crowding->n_forbidden = 0;
    for (unsigned i = 0; i < n; i++) {
        forbidden[i] =
            self->position[i] != SIZE_MAX && ecfs_mark_at (self->marks, self->position[i]) == ECFS_MARK_FORBIDDEN;
        crowding->n_forbidden += forbidden[i];
    }
    if (crowding->n_forbidden == 0)
        return false;
    g_autofree EcfsPlace *places = places_for (roomy, self->object);
    crowding->n_moves = move_back (self, places, forbidden, lot, crowding->to);
    (void) move_back (self, roomy->wished, forbidden, lot, wished); /* told by wished */
    for (unsigned i = 0; i < n; i++)
        after[i] = crowding->to[i] != SIZE_MAX ? crowding->to[i] : self->position[i];
    crowding->now = ecfs_spread (self->codec, places, self->position);
    crowding->reachable = crowding->possible = ecfs_spread (self->codec, places, after);
    crowding->lacking = crowding->n_moves < crowding->n_forbidden ? find_lacking (places, wished, n) : SIZE_MAX;
    return true;
}

static bool is_crowded (const Judging *self, uint64_t lot, EcfsCrowding *crowding)
{
    const EcfsRoomy *roomy = self->roomy;
    size_t wished[ECFS_CODEC_MAX_N];
    g_autofree EcfsPlace *all = places_within (roomy->wished, roomy->n_places, self->marks);
    if (ecfs_move_apart (self->codec, all, roomy->n_places, self->position, self->most, wished, &crowding->possible) ==
        0)
        return false;
    g_autofree EcfsPlace *some = places_for (roomy, self->object);
    g_autofree EcfsPlace *places = places_within (some, roomy->n_places, self->marks);
    crowding->reachable = crowding->now = ecfs_spread (self->codec, places, self->position);
    crowding->n_moves = ecfs_move_apart (self->codec, places, roomy->n_places, self->position, self->most, crowding->to,
                                         &crowding->reachable);
    bool is_all = ecfs_spread_compare (&crowding->reachable, &crowding->possible) >= 0;
    crowding->lacking = is_all ? SIZE_MAX : find_lacking (places, wished, ecfs_codec_n (self->codec));
    if (crowding->n_moves > 0)
        draw (self->codec, places, roomy->n_places, self->position, self->most, lot, crowding);
    return crowding->n_moves > 0 || crowding->lacking != SIZE_MAX;
}

int ecfs_object_is_crowded (const EcfsRoomy *roomy, const EcfsObjectRow *object, uint64_t lot,
                            EcfsCrowding *ret_crowding, GError **error)
{
    EcfsRuled ruled = {.marks = NULL};
    Judging judging = {.roomy = roomy,
                       .object = object,
                       .codec =
                           ecfs_archive_codec (roomy->archive, object->code, NULL)}; /* who checks the object tells */
    if (judging.codec == NULL)
        return 0;
    if (roomy->has_rules && !ecfs_archive_object_ruled (roomy->archive, object->id, &ruled, error))
        return -1;
    judging.marks = ruled.marks;
    find_positions (&judging);
    bool is = is_misplaced (&judging, lot, ret_crowding) || is_crowded (&judging, lot, ret_crowding);
    ecfs_ruled_clear (&ruled);
    return is;
}
