/* How safe what is stored is, and since when it is not, for status. */
#include "verbs/status_priv.h"

#include "archive/past.h"
#include "archive/places.h"
#include "archive/places_of.h"
#include "archive/standing.h"
#include "object/placement.h"

#define WALK_BATCH 256 /* objects */

/* An endpoint that is away for now. */
typedef struct Away {
    int64_t id;
    int64_t since; /* seconds since 1970; 0: not known */
} Away;

/* How many of those that are away, in the order in which they went, it took until the first object was so unsafe. */
typedef struct Fall {
    int guarantee; /* at most this */
    bool fell;
    guint n; /* 0: it did before any went */
} Fall;

typedef struct Tally {
    EcfsArchive *archive;
    const GArray *found; /* EcfsFound, by position of the endpoint */
    GArray *away;        /* of Away, by when they went */
    uint64_t n_full, n_degraded, n_unreadable;
    uint64_t n_doubled;  /* of those that are full, … */
    unsigned widest;     /* … and the stripes of the one that has most */
    uint64_t n_given_up; /* have stripes at endpoints that do not count */
    uint64_t n_no_place; /* lack stripes that no endpoint is left for */
    int guarantee;       /* the least; INT_MAX without objects */
    Fall unreadable, at_risk;
} Tally;

/* How safe one object is. */
typedef struct ObjectHealth {
    EcfsStanding standing;
    EcfsKind kind;        /* holders are row ids */
    unsigned n_reachable; /* of its stripes */
    bool doubled;         /* an endpoint has several of these */
} ObjectHealth;

/* Whether it can be reached as far as this process knows; one that was added since it asked was not asked. */
static bool is_there (EcfsArchive *archive, const GArray *found, int64_t id)
{
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (archive, id);
    size_t position = endpoint == NULL ? SIZE_MAX : ecfs_archive_position (archive, endpoint);
    return ecfs_archive_reaches (endpoint) &&
           (position >= found->len || g_array_index (found, EcfsFound, position).word == NULL);
}

/* Since when it is away, as the facts of the endpoints have it. */
static int64_t told_since (JsonObject *status, const char *name)
{
    JsonArray *endpoints = json_object_get_array_member (status, "endpoints");
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        if (g_str_equal (json_object_get_string_member (endpoint, "name"), name))
            return json_object_get_int_member_with_default (endpoint, "down_since", 0);
    }
    return 0;
}

static int by_since (gconstpointer a, gconstpointer b)
{
    const Away *left = a, *right = b;
    return (left->since > right->since) - (left->since < right->since);
}

static void tally_init (Tally *self, JsonObject *status, EcfsArchive *archive, const GArray *found)
{
    *self = (Tally){.archive = archive, .found = found, .guarantee = INT_MAX};
    self->unreadable.guarantee = -1;
    self->away = g_array_new (FALSE, FALSE, sizeof (Away));
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        const Away away = {.id = endpoint->id, .since = told_since (status, endpoint->name)};
        if (endpoint->state < ECFS_ENDPOINT_FAILED && !is_there (archive, found, endpoint->id))
            g_array_append_val (self->away, away);
    }
    g_array_sort (self->away, by_since);
    self->unreadable.n = self->at_risk.n = self->away->len;
}

static void object_health (const Tally *self, const EcfsCodec *codec, const EcfsObjectRow *object, const bool *damaged,
                           ObjectHealth *ret_health)
{
    *ret_health = (ObjectHealth){.kind = {.codec = codec, .n_objects = 1}};
    EcfsKind *kind = &ret_health->kind;
    EcfsStanding *standing = &ret_health->standing;
    ecfs_object_standing (self->archive, object, codec, object->size, damaged, standing);
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        if (stripe->index >= standing->n)
            continue;
        for (guint j = 0; j < i && !ret_health->doubled; j++)
            ret_health->doubled = g_array_index (object->stripes, EcfsStripeRow, j).endpoint == stripe->endpoint;
        kind->holder[stripe->index] = standing->holder[stripe->index];
        kind->present[stripe->index] =
            standing->held[stripe->index] && is_there (self->archive, self->found, stripe->endpoint);
        ret_health->n_reachable += kind->present[stripe->index];
    }
    kind->guarantee = ecfs_holders_guarantee (codec, kind->present, kind->holder);
}

static bool is_full (const ObjectHealth *health)
{
    return health->kind.guarantee >= 0 && health->n_reachable >= ecfs_codec_n (health->kind.codec);
}

/* How safe it was when only the first @n of those that are away were. */
static int guarantee_then (const Tally *self, const ObjectHealth *health, guint n)
{
    bool present[ECFS_CODEC_MAX_N] = {false};
    const EcfsStanding *standing = &health->standing;
    for (unsigned i = 0; i < standing->n; i++) {
        present[i] = standing->held[i];
        for (guint j = 0; j < n && present[i]; j++)
            present[i] = (int64_t) standing->holder[i] != g_array_index (self->away, Away, j).id;
    }
    return ecfs_holders_guarantee (health->kind.codec, present, standing->holder);
}

static void note_fall (const Tally *self, const ObjectHealth *health, Fall *fall)
{
    if (health->kind.guarantee > fall->guarantee)
        return;
    fall->fell = true;
    while (fall->n > 0 && guarantee_then (self, health, fall->n - 1) <= fall->guarantee)
        fall->n--;
}

/* Whether fewer places are left than it lacks stripes, however long one waits for who is down. */
static bool lacks_places (EcfsArchive *archive, const EcfsObjectRow *object, const EcfsStanding *standing)
{
    unsigned n_free = 0, n_has = MIN (object->stripes->len, standing->n) - standing->n_given_up;
    unsigned n_lacking = standing->n - n_has; /* a copy of a log that ends early has its place */
    size_t n_endpoints = ecfs_archive_n_endpoints (archive);
    EcfsRuled ruled;
    const EcfsCodec *codec = n_lacking == 0 ? NULL : ecfs_archive_codec (archive, object->code, NULL);
    if (codec == NULL || !ecfs_archive_object_ruled (archive, object->id, &ruled, NULL)) /* who stores it tells */
        return false;
    const EcfsObjectPlaces places = {.codec = codec, .n_endpoints = n_endpoints, .marks = ruled.marks};
    unsigned most = ecfs_object_most_per_endpoint (archive, &places);
    for (size_t i = 0; i < n_endpoints && n_free < n_lacking; i++) {
        unsigned n_there = 0;
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        if (endpoint->endpoint == NULL || endpoint->state != ECFS_ENDPOINT_ACTIVE ||
            ecfs_mark_at (ruled.marks, i) == ECFS_MARK_FORBIDDEN)
            continue;
        for (guint j = 0; j < object->stripes->len; j++)
            n_there += g_array_index (object->stripes, EcfsStripeRow, j).endpoint == endpoint->id;
        n_free += most - MIN (n_there, most);
    }
    ecfs_ruled_clear (&ruled);
    return n_free < n_lacking;
}

static void tally (Tally *self, const EcfsObjectRow *object, const ObjectHealth *health)
{
    const EcfsKind *kind = &health->kind;
    if (kind->guarantee < 0)
        self->n_unreadable++;
    else if (!is_full (health))
        self->n_degraded++;
    else
        self->n_full++;
    if (is_full (health) && health->doubled && kind->guarantee < (int) ecfs_codec_tolerance (kind->codec)) {
        self->n_doubled++;
        self->widest = MAX (self->widest, ecfs_codec_n (kind->codec));
    }
    self->n_given_up += health->standing.n_given_up > 0;
    self->n_no_place += lacks_places (self->archive, object, &health->standing);
    self->guarantee = MIN (self->guarantee, kind->guarantee);
    note_fall (self, health, &self->unreadable);
    note_fall (self, health, &self->at_risk);
}

typedef struct Tallying {
    Tally *tally;
    EcfsKnownDamage *damage;
    EcfsSurvey *survey;
} Tallying;

static bool tally_object (void *user, const EcfsObjectRow *object, GError **error)
{
    Tallying *self = user;
    ObjectHealth health;
    bool damaged[ECFS_CODEC_MAX_N];
    const EcfsCodec *codec = ecfs_archive_codec (self->tally->archive, object->code, error);
    if (codec == NULL)
        return false;
    ecfs_damage_of (self->damage, object->id, damaged);
    object_health (self->tally, codec, object, damaged, &health);
    tally (self->tally, object, &health);
    ecfs_survey_add (self->survey, object, &health.kind, damaged, is_full (&health));
    return true;
}

/* The same of what only the past has, for which nothing is queued; and how many of its objects lack stripes. */
static bool tally_past (Tally *self, uint64_t *ret_n, uint64_t *ret_n_lacking, GError **error)
{
    const bool fine[ECFS_CODEC_MAX_N] = {false};
    *ret_n = *ret_n_lacking = 0;
    for (int64_t after = 0, more = true; more;) {
        g_autoptr (GPtrArray) objects = ecfs_archive_past_objects (self->archive, after, WALK_BATCH, error);
        if (objects == NULL)
            return false;
        for (guint i = 0; i < objects->len; i++) {
            ObjectHealth health;
            const EcfsObjectRow *object = g_ptr_array_index (objects, i);
            const EcfsCodec *codec = ecfs_archive_codec (self->archive, object->code, error);
            if (codec == NULL)
                return false;
            object_health (self, codec, object, fine, &health);
            tally (self, object, &health);
            *ret_n_lacking += ecfs_standing_lacks (&health.standing);
            after = object->id;
        }
        *ret_n += objects->len;
        more = objects->len == WALK_BATCH;
    }
    return true;
}

static bool add_past_objects (JsonObject *status, EcfsArchive *archive, const GArray *found, GError **error)
{
    Tally sum;
    uint64_t n, n_lacking;
    JsonObject *past = json_object_get_object_member (status, "past");
    tally_init (&sum, status, archive, found);
    bool done = tally_past (&sum, &n, &n_lacking, error);
    g_array_unref (sum.away);
    if (!done)
        return false;
    json_object_set_int_member (past, "objects", (int64_t) n);
    json_object_set_int_member (past, "degraded", (int64_t) sum.n_degraded);
    json_object_set_int_member (past, "unreadable", (int64_t) sum.n_unreadable);
    json_object_set_int_member (past, "lacking", (int64_t) n_lacking);
    if (sum.guarantee != INT_MAX)
        json_object_set_int_member (past, "guarantee", sum.guarantee);
    return true;
}

/* Objects that survive less than their code promises, where nobody has chosen that. */
static void add_doubled (JsonObject *objects, const Tally *sum)
{
    unsigned n_takers = 0;
    EcfsArchive *archive = sum->archive;
    if (ecfs_archive_config (archive)->allow_double == ECFS_DOUBLE_YES || sum->n_doubled == 0)
        return;
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++)
        n_takers += ecfs_archive_endpoint (archive, i)->endpoint != NULL &&
                    ecfs_archive_endpoint (archive, i)->state == ECFS_ENDPOINT_ACTIVE;
    json_object_set_int_member (objects, "doubled", (int64_t) sum->n_doubled);
    json_object_set_int_member (objects, "endpoints_lacking", sum->widest - MIN (n_takers, sum->widest));
}

/* Nothing where that is not known, or has another cause than who is away. */
static void add_fall (JsonObject *objects, const char *member, const Tally *sum, const Fall *fall)
{
    int64_t since = !fall->fell || fall->n == 0 ? 0 : g_array_index (sum->away, Away, fall->n - 1).since;
    if (since > 0)
        json_object_set_int_member (objects, member, since);
}

static JsonObject *object_facts (const Tally *sum, const EcfsTotals *totals)
{
    JsonObject *objects = json_object_new ();
    json_object_set_int_member (objects, "full", (int64_t) sum->n_full);
    json_object_set_int_member (objects, "degraded", (int64_t) sum->n_degraded);
    json_object_set_int_member (objects, "unreadable", (int64_t) sum->n_unreadable);
    json_object_set_int_member (objects, "missing_stripes", (int64_t) totals->n_not_full);
    json_object_set_int_member (objects, "given_up", (int64_t) sum->n_given_up);
    json_object_set_int_member (objects, "no_place", (int64_t) sum->n_no_place);
    add_doubled (objects, sum);
    add_fall (objects, "unreadable_since", sum, &sum->unreadable);
    add_fall (objects, "at_risk_since", sum, &sum->at_risk);
    if (sum->guarantee != INT_MAX)
        json_object_set_int_member (objects, "guarantee", sum->guarantee);
    return objects;
}

static bool add_present (JsonObject *status, EcfsArchive *archive, const GArray *found, const EcfsTotals *totals,
                         EcfsSurvey *survey, GError **error)
{
    Tally sum;
    g_auto (EcfsKnownDamage) damage = {NULL, 0};
    if (!ecfs_damage_load (archive, &damage, error))
        return false;
    tally_init (&sum, status, archive, found);
    Tallying all = {.tally = &sum, .damage = &damage, .survey = survey};
    bool done = ecfs_catalog_each_object (ecfs_archive_catalog (archive), tally_object, &all, error);
    if (done) {
        json_object_set_object_member (status, "objects", object_facts (&sum, totals));
        ecfs_status_add_repairs (status, archive, damage.rows);
    }
    g_array_unref (sum.away);
    return done;
}

static bool add_survey (JsonObject *status, EcfsArchive *archive, const GArray *found, EcfsSurvey *survey,
                        GError **error)
{
    if (survey == NULL)
        return true;
    g_autofree bool *there = g_new (bool, ecfs_archive_n_endpoints (archive));
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++)
        there[i] = is_there (archive, found, ecfs_archive_endpoint (archive, i)->id);
    JsonObject *facts = ecfs_survey_end (survey, there, error);
    if (facts != NULL)
        json_object_set_object_member (status, "survey", facts);
    return facts != NULL;
}

bool ecfs_status_add_objects (JsonObject *status, EcfsArchive *archive, const GArray *found, EcfsSurvey *survey,
                              GError **error)
{
    EcfsTotals totals;
    uint64_t n_retained;
    if (!ecfs_catalog_totals (ecfs_archive_catalog (archive), &totals, error) ||
        !add_present (status, archive, found, &totals, survey, error) ||
        !ecfs_status_add_retained (status, archive, &n_retained, error))
        return false;
    json_object_set_int_member (status, "files", (int64_t) totals.n_files);
    json_object_set_int_member (status, "content_bytes", (int64_t) totals.content_bytes);
    json_object_set_int_member (status, "stripe_bytes", (int64_t) totals.stripe_bytes);
    json_object_set_int_member (status, "deletions",
                                (int64_t) (totals.n_deletions - MIN (n_retained, totals.n_deletions)));
    json_object_set_int_member (status, "history", ecfs_archive_config (archive)->history_us / G_USEC_PER_SEC);
    return ecfs_status_add_past (status, archive, error) &&
           (!ecfs_archive_check_writable (archive, NULL) || add_past_objects (status, archive, found, error)) &&
           add_survey (status, archive, found, survey, error);
}
