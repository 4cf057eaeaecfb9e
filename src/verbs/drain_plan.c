/* What draining an endpoint takes: counted before anything is moved, by the places that objects would get now. */
#include "archive/common.h"
#include "archive/places.h"
#include "archive/places_of.h"
#include "verbs/drain.h"
#include "verbs/price.h"
#include "verbs/status.h"

#include <inttypes.h>
#include <json-glib/json-glib.h>

#define PATIENCE_US 5000000
#define PATHS_TOLD  20

typedef struct Plan {
    EcfsArchive *archive;
    size_t position;   /* of the endpoint */
    bool here;         /* it answers */
    EcfsPlace *places; /* n_places; without what the object at hand has */
    size_t n_places;
    bool *towards; /* n_places: they take what they can, before others do; none: whichever */
    uint64_t n_objects, n_stripes, bytes;
    uint64_t n_endangered; /* objects that can lose less than if all was well */
    uint64_t n_unplaced;   /* stripes that no endpoint takes, and … */
    uint64_t n_stuck;      /* … objects that have such */
    uint64_t n_lost;       /* objects of the past that go with it */
    uint64_t rebuilt_bytes;
    double read_bytes;   /* from others, to rebuild what the endpoint does not give */
    uint64_t *written;   /* n_places: bytes that each would get, … */
    uint64_t *n_written; /* … and by how many requests */
    uint64_t n_given;    /* requests that read what the endpoint gives */
    double n_reads;      /* of others, for what is rebuilt */
    JsonArray *paths;
} Plan;

static bool takes_stripes (const EcfsArchiveEndpoint *endpoint)
{
    return endpoint->endpoint != NULL && endpoint->state == ECFS_ENDPOINT_ACTIVE;
}

/* One object */

static void hold (Plan *self, EcfsPlace *places, const EcfsObjectRow *object, int64_t endpoint, bool *ret_wanted)
{
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        if (stripe->endpoint == endpoint && stripe->index < ECFS_CODEC_MAX_N)
            ret_wanted[stripe->index] = true;
        for (size_t j = 0; stripe->endpoint != endpoint && j < self->n_places; j++)
            places[j].n_held += ecfs_archive_endpoint (self->archive, j)->id == stripe->endpoint;
    }
}

static void tell_stuck (Plan *self, const EcfsObjectRow *object)
{
    uint64_t ino;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    const bool is_past = ecfs_object_is_past (object->id);
    if (self->n_stuck++ >= PATHS_TOLD || (!is_past && !ecfs_catalog_object_file (catalog, object->id, &ino, NULL)))
        return;
    g_autofree char *path = is_past ? ecfs_past_name (&object->uuid) : ecfs_catalog_path (catalog, ino);
    g_autofree char *shown = g_utf8_make_valid (path, -1);
    json_array_add_string_element (self->paths, shown);
}

/* Each segment is read by a request of its own. */
static void count_stripe (Plan *self, const EcfsStripeRow *stripe, const EcfsCodec *codec, uint64_t n_segments,
                          size_t found)
{
    self->n_stripes++;
    self->bytes += stripe->size;
    if (self->here) {
        self->n_given += n_segments;
    } else {
        self->rebuilt_bytes += stripe->size;
        self->read_bytes += (double) stripe->size * ecfs_codec_k (codec);
        self->n_reads += (double) n_segments * ecfs_codec_k (codec);
    }
    if (found == SIZE_MAX) {
        self->n_unplaced++;
        return;
    }
    self->written[found] += stripe->size;
    self->n_written[found] +=
        ecfs_endpoint_store_requests (ecfs_archive_endpoint (self->archive, found)->endpoint, stripe->size);
}

static bool is_endangered (const Plan *self, const EcfsObjectRow *object, const EcfsCodec *codec)
{
    bool all[ECFS_CODEC_MAX_N] = {0};
    size_t holder[ECFS_CODEC_MAX_N] = {0};
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        holder[stripe->index] = (size_t) stripe->endpoint;
        all[stripe->index] = true;
    }
    return object->stripes->len < ecfs_codec_n (codec) ||
           ecfs_object_guarantee (self->archive, object) < ecfs_holders_guarantee (codec, all, holder);
}

/* Only what rules allow takes stripes; returns how many endpoints that are. */
static unsigned allow_places (const Plan *self, EcfsPlace *places, const char *marks)
{
    unsigned n_takers = 0;
    for (size_t i = 0; i < self->n_places; i++) {
        bool allowed = ecfs_mark_at (marks, i) != ECFS_MARK_FORBIDDEN;
        places[i].usable = places[i].usable && allowed;
        n_takers += allowed && i != self->position && takes_stripes (ecfs_archive_endpoint (self->archive, i));
    }
    return n_takers;
}

static bool plan_object (Plan *self, const EcfsObjectRow *object, GError **error)
{
    const EcfsCodec *codec = ecfs_archive_codec (self->archive, object->code, error);
    EcfsLayout layout;
    if (codec == NULL || !ecfs_archive_layout (self->archive, object, &layout, error))
        return false;
    unsigned n = ecfs_codec_n (codec);
    EcfsRuled ruled;
    g_autofree EcfsPlace *places = g_memdup2 (self->places, self->n_places * sizeof *places);
    if (!ecfs_archive_object_ruled (self->archive, object->id, &ruled, error))
        return false;
    unsigned n_takers = allow_places (self, places, ruled.marks);
    unsigned most =
        ecfs_archive_config (self->archive)->allow_double && n_takers > 0 ? (n + n_takers - 1) / n_takers : 1;
    bool wanted[ECFS_CODEC_MAX_N] = {0};
    size_t found[ECFS_CODEC_MAX_N];
    uint64_t n_unplaced = self->n_unplaced;
    int64_t endpoint = ecfs_archive_endpoint (self->archive, self->position)->id;
    const EcfsObjectPlaces of_object = {.codec = codec, .n_endpoints = self->n_places, .marks = ruled.marks};
    hold (self, places, object, endpoint, wanted);
    (void) ecfs_object_place (&of_object, places, wanted, most, (uint64_t) object->id, self->towards,
                              found); /* told by found */
    ecfs_ruled_clear (&ruled);
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        if (stripe->endpoint == endpoint && stripe->index < n)
            count_stripe (self, stripe, codec, ecfs_layout_n_segments (&layout), found[stripe->index]);
    }
    self->n_objects++;
    self->n_endangered += is_endangered (self, object, codec);
    if (self->n_unplaced > n_unplaced)
        tell_stuck (self, object);
    return true;
}

static bool plan_objects (Plan *self, GError **error)
{
    EcfsHolding holding;
    GError *why = NULL;
    bool more = true;
    ecfs_holding_init (&holding, self->archive, ecfs_archive_endpoint (self->archive, self->position)->id);
    while (more && why == NULL) {
        g_autoptr (EcfsObjectRow) object = ecfs_holding_next (&holding, &why);
        more = object != NULL && plan_object (self, object, &why);
    }
    self->n_lost = holding.n_lost;
    ecfs_holding_clear (&holding);
    if (why == NULL)
        return true;
    g_propagate_error (error, why);
    return false;
}

/* Time */

/* Seconds for bytes at the rate that was measured; 0: none was. */
static double seconds (double bytes, uint64_t bytes_per_s)
{
    return bytes_per_s == 0 ? 0 : bytes / (double) bytes_per_s;
}

/* Whatever takes longest: what the endpoint gives, what others give instead of it, what each of them takes. */
static bool estimate (Plan *self, double *ret_seconds, size_t *ret_limit, GError **error)
{
    uint64_t others = 0;
    *ret_seconds = 0;
    *ret_limit = SIZE_MAX;
    for (size_t i = 0; i < self->n_places; i++) {
        EcfsEstimateRow row;
        if (!ecfs_catalog_estimate (ecfs_archive_catalog (self->archive), ecfs_archive_endpoint (self->archive, i)->id,
                                    &row, error))
            return false;
        bool source = i == self->position;
        double takes_s = source ? seconds ((double) (self->bytes - self->rebuilt_bytes), row.read_bytes_per_s[1])
                                : seconds ((double) self->written[i], row.write_bytes_per_s[1]);
        if (takes_s > *ret_seconds) {
            *ret_seconds = takes_s;
            *ret_limit = i;
        }
        others += source ? 0 : row.read_bytes_per_s[1];
    }
    *ret_seconds = MAX (*ret_seconds, seconds (self->read_bytes, others));
    return true;
}

/* The whole */

static void find_places (Plan *self, const EcfsArchiveEndpoint *endpoint)
{
    EcfsArchive *archive = self->archive;
    EcfsObjectPlaces none = {.codec = ecfs_archive_codec (archive, ecfs_archive_config (archive)->code, NULL),
                             .n_endpoints = ecfs_archive_n_endpoints (archive)};
    for (size_t i = 0; i < G_N_ELEMENTS (none.position); i++)
        none.position[i] = SIZE_MAX;
    self->position = ecfs_archive_position (archive, endpoint);
    self->here = ecfs_archive_reaches (endpoint);
    self->n_places = none.n_endpoints;
    self->places = ecfs_object_places (archive, &none, ECFS_DOUBTS_ALL);
    self->places[self->position].usable = false;
    self->written = g_new0 (uint64_t, self->n_places);
    self->n_written = g_new0 (uint64_t, self->n_places);
}

static void put_number (JsonObject *object, const char *member, uint64_t number)
{
    json_object_set_int_member (object, member, (int64_t) number);
}

static JsonArray *describe_targets (const Plan *self)
{
    JsonArray *targets = json_array_new ();
    for (size_t i = 0; i < self->n_places; i++) {
        if (self->written[i] == 0)
            continue;
        JsonObject *target = json_object_new ();
        json_object_set_string_member (target, "name", ecfs_archive_endpoint (self->archive, i)->name);
        put_number (target, "written_bytes", self->written[i]);
        json_array_add_object_element (targets, target);
    }
    return targets;
}

/* A stripe is deleted with a request, and stored with as many as its endpoint takes. What is rebuilt comes from any of
 * the others. */
static EcfsPriceSum price_of (const Plan *self)
{
    EcfsPriceSum sum = {.is_known = false};
    size_t n_others = 0;
    for (size_t i = 0; i < self->n_places; i++)
        n_others += i != self->position && ecfs_archive_reaches (ecfs_archive_endpoint (self->archive, i));
    for (size_t i = 0; i < self->n_places; i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (self->archive, i);
        bool gives = i != self->position && n_others > 0 && ecfs_archive_reaches (endpoint);
        double part = gives ? 1.0 / (double) n_others : 0;
        if (i == self->position && self->here)
            ecfs_price_add (&sum, endpoint, (double) self->bytes, (double) (self->n_given + self->n_stripes));
        else if (i != self->position)
            ecfs_price_add (&sum, endpoint, self->read_bytes * part,
                            self->n_reads * part + (double) self->n_written[i]);
    }
    return sum;
}

static JsonObject *describe (Plan *self, GError **error)
{
    double takes_s;
    size_t limit;
    if (!estimate (self, &takes_s, &limit, error))
        return NULL;
    JsonObject *plan = json_object_new ();
    json_object_set_string_member (plan, "endpoint", ecfs_archive_endpoint (self->archive, self->position)->name);
    json_object_set_boolean_member (plan, "reachable", self->here);
    put_number (plan, "objects", self->n_objects);
    put_number (plan, "stripes", self->n_stripes);
    put_number (plan, "bytes", self->bytes);
    put_number (plan, "rebuilt_bytes", self->rebuilt_bytes);
    put_number (plan, "rebuild_read_bytes", (uint64_t) self->read_bytes);
    put_number (plan, "endangered_objects", self->n_endangered);
    put_number (plan, "unplaced_objects", self->n_stuck);
    put_number (plan, "lost_past_objects", self->n_lost);
    json_object_set_array_member (plan, "unplaced_paths", json_array_ref (self->paths));
    json_object_set_array_member (plan, "targets", describe_targets (self));
    EcfsPriceSum price = price_of (self);
    ecfs_price_put (&price, plan);
    if (takes_s > 0)
        json_object_set_double_member (plan, "seconds", takes_s);
    if (takes_s > 0 && limit != SIZE_MAX)
        json_object_set_string_member (plan, "slowest", ecfs_archive_endpoint (self->archive, limit)->name);
    return plan;
}

char *ecfs_drain_plan (Ecfs *self, const char *name, const char *const *towards, GError **error)
{
    Plan plan = {.archive = self->archive};
    JsonObject *object = NULL;
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_named (self->archive, name, error);
    if (endpoint == NULL)
        return NULL;
    ecfs_archive_probe (self->archive, PATIENCE_US);
    find_places (&plan, endpoint);
    plan.towards = ecfs_endpoint_flags (self->archive, towards, plan.n_places, error);
    if (plan.towards == NULL)
        goto out;
    plan.paths = json_array_new ();
    object = plan_objects (&plan, error) ? describe (&plan, error) : NULL;
    json_array_unref (plan.paths);
out:
    g_free (plan.places);
    g_free (plan.towards);
    g_free (plan.written);
    g_free (plan.n_written);
    if (object == NULL)
        return NULL;
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, object);
    return json_to_string (node, TRUE);
}
