#include "verbs/status.h"

#include "archive/common.h"
#include "archive/content.h"
#include "archive/lineage.h"
#include "archive/watch.h"
#include "codec/codec.h"
#include "object/placement.h"
#include "staging/staged.h"
#include "util/lock.h"
#include "verbs/status_priv.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#define WALK_BATCH  256 /* objects */
#define MAX_BACKLOG 100 /* staging rows that are told one by one */

/* Asking all endpoints at once. Lives until the last answer is in, which may be after whoever asked went on. */
typedef struct Probe {
    EcfsMutex lock;
    EcfsCond answered;
    unsigned n_pending;    /* guarded by lock */
    unsigned n_refs;       /* guarded by lock: one per pending answer and the asker's */
    EcfsUuid archive_uuid; /* immutable, as the next */
    size_t n_endpoints;
    struct Answer {
        struct Probe *probe; /* immutable, as the next */
        EcfsUuid uuid;
        bool known; /* guarded by lock, as the rest: how much room there is */
        uint64_t free_bytes;
        bool examining; /* its marker is asked for */
        char *problem;  /* why that came to nothing; NULL: it did not, or not yet */
    } answers[];
} Probe;

static void probe_unref (Probe *self)
{
    ecfs_mutex_lock (&self->lock);
    unsigned left = --self->n_refs;
    ecfs_mutex_unlock (&self->lock);
    if (left > 0)
        return;
    ecfs_mutex_clear (&self->lock);
    ecfs_cond_clear (&self->answered);
    for (size_t i = 0; i < self->n_endpoints; i++)
        g_free (self->answers[i].problem);
    g_free (self);
}

static void end_answer_locked (Probe *self) ECFS_REQUIRES (self->lock)
{
    self->n_pending--;
    ecfs_cond_broadcast (&self->answered);
}

static void on_space (void *user, uint64_t value, const GError *error)
{
    struct Answer *answer = user;
    Probe *probe = answer->probe;
    ecfs_mutex_lock (&probe->lock);
    answer->known = error == NULL;
    answer->free_bytes = value;
    end_answer_locked (probe);
    ecfs_mutex_unlock (&probe->lock);
    probe_unref (probe);
}

/* Not every endpoint can tell its free space, but each has a marker. */
static void on_examined (void *user, const EcfsMarker *marker, const GError *error)
{
    struct Answer *answer = user;
    Probe *probe = answer->probe;
    ecfs_mutex_lock (&probe->lock);
    answer->examining = false;
    if (error != NULL && error->code != ECANCELED)
        answer->problem = g_strdup (error->message);
    else if (error == NULL && !ecfs_uuid_equal (&marker->archive, &probe->archive_uuid))
        answer->problem = g_strdup ("the marker there is of another archive");
    else if (error == NULL && !ecfs_uuid_equal (&marker->endpoint, &answer->uuid))
        answer->problem = g_strdup ("the marker there is of another endpoint of this archive");
    end_answer_locked (probe);
    ecfs_mutex_unlock (&probe->lock);
    probe_unref (probe);
}

/* Returns the asker's reference. What is known to be down is not examined: the keeper of it tries it. */
static Probe *probe_new (EcfsArchive *archive)
{
    size_t n = ecfs_archive_n_endpoints (archive);
    Probe *self = g_malloc0 (sizeof *self + n * sizeof self->answers[0]);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->answered);
    self->n_refs = 1;
    self->archive_uuid = *ecfs_catalog_archive (ecfs_archive_catalog (archive));
    self->n_endpoints = n;
    for (size_t i = 0; i < n; i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        self->answers[i].probe = self;
        self->answers[i].uuid = endpoint->uuid;
        if (endpoint->endpoint == NULL)
            continue;
        bool examine = endpoint->state != ECFS_ENDPOINT_REMOVED && !ecfs_endpoint_is_down (endpoint->endpoint);
        ecfs_mutex_lock (&self->lock);
        self->answers[i].examining = examine;
        self->n_pending += 1 + examine;
        self->n_refs += 1 + examine;
        ecfs_mutex_unlock (&self->lock);
        ecfs_endpoint_space (endpoint->endpoint, on_space, &self->answers[i]);
        if (examine)
            ecfs_endpoint_examine (endpoint->endpoint, on_examined, &self->answers[i]);
    }
    return self;
}

static void probe_wait (Probe *self, int64_t deadline_us)
{
    ecfs_mutex_lock (&self->lock);
    while (self->n_pending > 0 && ecfs_cond_wait_until (&self->answered, &self->lock, deadline_us))
        ;
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_archive_probe (EcfsArchive *self, int64_t patience_us)
{
    int64_t deadline_us = ecfs_now_us () + patience_us;
    Probe *probe = probe_new (self);
    probe_wait (probe, deadline_us);
    probe_unref (probe);
}

/* What asking has found out about one endpoint, beyond what its health tells. */
typedef struct Found {
    bool space_known;
    uint64_t free_bytes;
    const char *word; /* its state for now; NULL: as its health tells it */
    char *reason;     /* owned */
} Found;

static void found_clear (gpointer data)
{
    g_free (((Found *) data)->reason);
}

/* One with so much to do that the question has to wait its turn is not silent. */
static bool is_silent (EcfsEndpoint *endpoint)
{
    EcfsEndpointHealth health;
    ecfs_endpoint_health (endpoint, &health);
    bool silent = !health.down && (health.suspect || !health.connected);
    ecfs_endpoint_health_clear (&health);
    return silent;
}

/* Of all endpoints, by position; g_array_unref () */
static GArray *probe_end (Probe *self, EcfsArchive *archive, int64_t begun_us, int64_t deadline_us)
{
    GArray *all = g_array_new (FALSE, TRUE, sizeof (Found));
    g_array_set_clear_func (all, found_clear);
    probe_wait (self, deadline_us);
    for (size_t i = 0; i < self->n_endpoints; i++) {
        const struct Answer *answer = &self->answers[i];
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        ecfs_mutex_lock (&self->lock);
        Found found = {.space_known = answer->known, .free_bytes = answer->free_bytes};
        bool examining = answer->examining;
        found.reason = g_strdup (answer->problem);
        ecfs_mutex_unlock (&self->lock);
        found.word = found.reason == NULL ? NULL : "down";
        if (examining && is_silent (endpoint->endpoint)) {
            found.word = "silent";
            found.reason = g_strdup_printf ("endpoint %s was asked and has not answered within %.0f s", endpoint->name,
                                            (double) (ecfs_now_us () - begun_us) / G_USEC_PER_SEC);
        }
        g_array_append_val (all, found);
    }
    probe_unref (self);
    return all;
}

/* Endpoints */

/* The word of the design for an endpoint's state, with the connection seen from this process. */
static const char *state_word (const EcfsArchiveEndpoint *endpoint, const EcfsEndpointHealth *health)
{
    if (endpoint->endpoint == NULL)
        return "unconfigured";
    if (endpoint->state == ECFS_ENDPOINT_ACTIVE && !health->down && (health->full || health->refuses))
        return health->full ? "full" : "refusing";
    if (endpoint->state == ECFS_ENDPOINT_ACTIVE && health->trial)
        return "trial";
    if (endpoint->state >= ECFS_ENDPOINT_FAILED || !health->down)
        return ecfs_endpoint_state_word (endpoint->state);
    return "down";
}

static void add_uuid (JsonObject *object, const char *member, const EcfsUuid *uuid)
{
    char text[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (uuid, text);
    json_object_set_string_member (object, member, text);
}

static void add_quantiles (JsonObject *facts, const char *member, const EcfsQuantiles *quantiles, double unit)
{
    if (quantiles->p50 <= 0)
        return;
    JsonObject *object = json_object_new ();
    json_object_set_double_member (object, "p5", quantiles->p5 / unit);
    json_object_set_double_member (object, "p50", quantiles->p50 / unit);
    json_object_set_double_member (object, "p95", quantiles->p95 / unit);
    json_object_set_object_member (facts, member, object);
}

/* The medians under names of their own, for whoever wants one figure. */
static void add_estimates (JsonObject *facts, const EcfsEstimates *estimates)
{
    json_object_set_double_member (facts, "round_trip_ms", estimates->latency_us.p50 / 1000);
    json_object_set_double_member (facts, "read_bytes_per_s", estimates->read_bytes_per_s.p50);
    json_object_set_double_member (facts, "write_bytes_per_s", estimates->write_bytes_per_s.p50);
    add_quantiles (facts, "latency_ms", &estimates->latency_us, 1000);
    add_quantiles (facts, "read_rate", &estimates->read_bytes_per_s, 1);
    add_quantiles (facts, "write_rate", &estimates->write_bytes_per_s, 1);
}

static void add_health (JsonObject *facts, const EcfsEndpointHealth *health)
{
    json_object_set_boolean_member (facts, "connected", health->connected);
    if (health->reason != NULL)
        ecfs_status_add_text (facts, "reason", health->reason);
    add_estimates (facts, &health->estimates);
    json_object_set_int_member (facts, "read_bytes", (int64_t) health->read_bytes);
    json_object_set_int_member (facts, "written_bytes", (int64_t) health->written_bytes);
}

/* Since when it is down: as a mount noted it, which may be an earlier one, or as this one has seen it. */
static int64_t down_since (EcfsArchive *archive, const EcfsArchiveEndpoint *endpoint, const EcfsEndpointHealth *health)
{
    int64_t noted = ecfs_watch_noted (archive, &endpoint->uuid);
    if (noted > 0 || ecfs_archive_is_readonly (archive))
        return noted; /* who has just begun to look knows nothing of before */
    return health->down_since_s;
}

/* What it had to say when it was asked goes before what is known of it, unless it does not count any more. */
static void add_found (JsonObject *facts, EcfsArchive *archive, const EcfsArchiveEndpoint *endpoint, const Found *found)
{
    int64_t noted = ecfs_watch_noted (archive, &endpoint->uuid);
    json_object_set_string_member (facts, "state", found->word);
    json_object_set_boolean_member (facts, "connected", FALSE);
    ecfs_status_add_text (facts, "reason", found->reason);
    if (noted > 0 || !ecfs_archive_is_readonly (archive))
        json_object_set_int_member (facts, "down_since", noted > 0 ? noted : g_get_real_time () / G_USEC_PER_SEC);
}

/* As `--endpoint` takes it, for commands that are told to be typed. What was added under this mount is not in there. */
static void add_spec (JsonObject *facts, EcfsArchive *archive, const EcfsArchiveEndpoint *endpoint)
{
    const EcfsConfigEndpoint *config = ecfs_config_endpoint (ecfs_archive_config (archive), endpoint->name);
    if (config == NULL)
        return;
    g_autofree char *text = ecfs_endpoint_spec_text (config->spec);
    bool own_zone = strcmp (config->zone, endpoint->name) == 0;
    g_autofree char *whole = g_strconcat (text, own_zone ? "" : ",zone=", own_zone ? "" : config->zone, NULL);
    json_object_set_string_member (facts, "endpoint", whole);
}

/* @said: what it tells that too few others do; may be NULL. */
static JsonObject *endpoint_facts (EcfsArchive *archive, const EcfsArchiveEndpoint *endpoint, const char *said,
                                   const Found *found)
{
    JsonObject *facts = json_object_new ();
    json_object_set_string_member (facts, "name", endpoint->name);
    json_object_set_string_member (facts, "zone", endpoint->zone);
    add_uuid (facts, "uuid", &endpoint->uuid);
    EcfsEndpointHealth health = {0};
    if (endpoint->endpoint != NULL) {
        json_object_set_string_member (facts, "url", ecfs_endpoint_url (endpoint->endpoint));
        ecfs_endpoint_health (endpoint->endpoint, &health);
    }
    add_spec (facts, archive, endpoint);
    json_object_set_string_member (facts, "state", state_word (endpoint, &health));
    add_health (facts, &health);
    int64_t since = health.down ? down_since (archive, endpoint, &health) : 0;
    if (since > 0)
        json_object_set_int_member (facts, "down_since", since);
    if (health.unmarked)
        json_object_set_boolean_member (facts, "unmarked", TRUE);
    if (said != NULL)
        ecfs_status_add_text (facts, "disagrees", said);
    if (found->space_known)
        json_object_set_int_member (facts, "free_bytes", (int64_t) found->free_bytes);
    if (found->word != NULL && !health.down && endpoint->state < ECFS_ENDPOINT_FAILED)
        add_found (facts, archive, endpoint, found);
    ecfs_endpoint_health_clear (&health);
    return facts;
}

static void add_endpoints (JsonObject *status, EcfsArchive *archive, const GArray *found)
{
    JsonArray *endpoints = json_array_new ();
    for (guint i = 0; i < found->len; i++) {
        if (ecfs_archive_endpoint (archive, i)->state == ECFS_ENDPOINT_REMOVED)
            continue;
        g_autofree char *said = ecfs_archive_lineage (archive) == NULL
                                    ? NULL
                                    : ecfs_lineage_disagreement (ecfs_archive_lineage (archive), i);
        json_array_add_object_element (endpoints, endpoint_facts (archive, ecfs_archive_endpoint (archive, i), said,
                                                                  &g_array_index (found, Found, i)));
    }
    json_object_set_array_member (status, "endpoints", endpoints);
}

/* Objects */

/* Whether it can be reached as far as this process knows; one that was added since it asked was not asked. */
static bool is_there (EcfsArchive *archive, const GArray *found, int64_t id)
{
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (archive, id);
    size_t position = endpoint == NULL ? SIZE_MAX : ecfs_archive_position (archive, endpoint);
    return ecfs_archive_reaches (endpoint) &&
           (position >= found->len || g_array_index (found, Found, position).word == NULL);
}

/* How safe one object is. */
typedef struct ObjectHealth {
    unsigned n, n_stored, n_reachable, tolerance;
    int guarantee;
} ObjectHealth;

static void object_health (EcfsArchive *archive, const GArray *found, const EcfsCodec *codec,
                           const EcfsObjectRow *object, const bool *damaged, ObjectHealth *ret_health)
{
    bool present[ECFS_CODEC_MAX_N] = {false};
    size_t holder[ECFS_CODEC_MAX_N] = {0};
    unsigned n = ecfs_codec_n (codec), n_stored = 0, n_reachable = 0;
    for (unsigned i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        if (stripe->index >= n)
            continue;
        n_stored++;
        holder[stripe->index] = (size_t) stripe->endpoint;
        present[stripe->index] = !damaged[stripe->index] && is_there (archive, found, stripe->endpoint);
        n_reachable += present[stripe->index];
    }
    *ret_health = (ObjectHealth){.n = n,
                                 .n_stored = n_stored,
                                 .n_reachable = n_reachable,
                                 .tolerance = ecfs_codec_tolerance (codec),
                                 .guarantee = ecfs_holders_guarantee (codec, present, holder)};
}

typedef struct Tally {
    uint64_t n_full, n_degraded, n_unreadable;
    int guarantee; /* the least; INT_MAX without objects */
} Tally;

static void tally (Tally *self, const ObjectHealth *health)
{
    if (health->guarantee < 0)
        self->n_unreadable++;
    else if (health->n_reachable < health->n)
        self->n_degraded++;
    else
        self->n_full++;
    self->guarantee = MIN (self->guarantee, health->guarantee);
}

/* Flags what is queued of an object; @rows are by object, and *next moves on to the first of a later one. */
static void take_damage (const GArray *rows, guint *next, int64_t object, bool *ret_damaged)
{
    for (; *next < rows->len; (*next)++) {
        const EcfsRepairRow *row = &g_array_index (rows, EcfsRepairRow, *next);
        if (row->object > object)
            break;
        if (row->object == object && row->index < ECFS_CODEC_MAX_N)
            ret_damaged[row->index] = true;
    }
}

static bool tally_objects (EcfsArchive *archive, const GArray *found, const GArray *repairs, Tally *ret_tally,
                           GError **error)
{
    Tally sum = {.guarantee = INT_MAX};
    int64_t after = 0;
    guint next = 0;
    for (;;) {
        g_autoptr (GPtrArray) objects = ecfs_catalog_objects (ecfs_archive_catalog (archive), after, WALK_BATCH, error);
        if (objects == NULL)
            return false;
        for (unsigned i = 0; i < objects->len; i++) {
            const EcfsObjectRow *object = g_ptr_array_index (objects, i);
            const EcfsCodec *codec = ecfs_archive_codec (archive, object->code, error);
            if (codec == NULL)
                return false;
            ObjectHealth health;
            bool damaged[ECFS_CODEC_MAX_N] = {false};
            take_damage (repairs, &next, object->id, damaged);
            object_health (archive, found, codec, object, damaged, &health);
            tally (&sum, &health);
            after = object->id;
        }
        if (objects->len < WALK_BATCH)
            break;
    }
    *ret_tally = sum;
    return true;
}

static bool add_objects (JsonObject *status, EcfsArchive *archive, const GArray *found, GError **error)
{
    Tally sum;
    EcfsTotals totals;
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    g_autoptr (GArray) repairs = ecfs_catalog_repairs (catalog, 0, error);
    if (repairs == NULL || !ecfs_catalog_totals (catalog, &totals, error) ||
        !tally_objects (archive, found, repairs, &sum, error))
        return false;
    ecfs_status_add_repairs (status, archive, repairs);
    json_object_set_int_member (status, "files", (int64_t) totals.n_files);
    json_object_set_int_member (status, "content_bytes", (int64_t) totals.content_bytes);
    json_object_set_int_member (status, "stripe_bytes", (int64_t) totals.stripe_bytes);
    json_object_set_int_member (status, "deletions", (int64_t) totals.n_deletions);
    JsonObject *objects = json_object_new ();
    json_object_set_int_member (objects, "full", (int64_t) sum.n_full);
    json_object_set_int_member (objects, "degraded", (int64_t) sum.n_degraded);
    json_object_set_int_member (objects, "unreadable", (int64_t) sum.n_unreadable);
    json_object_set_int_member (objects, "missing_stripes", (int64_t) totals.n_not_full);
    if (sum.guarantee != INT_MAX)
        json_object_set_int_member (objects, "guarantee", sum.guarantee);
    json_object_set_object_member (status, "objects", objects);
    return true;
}

/* Staging */

static JsonObject *backlog_facts (EcfsCatalog *catalog, const EcfsStagingRow *row)
{
    static const char *const words[] = {
        [ECFS_STAGING_OPEN] = "written to",
        [ECFS_STAGING_QUEUED] = "queued",
        [ECFS_STAGING_STORED] = "not full",
    };
    g_autofree char *path = ecfs_catalog_path (catalog, row->ino);
    JsonObject *facts = json_object_new ();
    ecfs_status_add_text (facts, "path", path);
    json_object_set_string_member (facts, "state",
                                   (unsigned) row->state < G_N_ELEMENTS (words) ? words[row->state] : "unknown");
    json_object_set_int_member (facts, "size", (int64_t) row->size);
    json_object_set_int_member (facts, "since", row->since_ns / 1000000000);
    if (row->error != NULL)
        ecfs_status_add_text (facts, "error", row->error);
    return facts;
}

static bool add_staging (JsonObject *status, EcfsArchive *archive, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    g_autoptr (GPtrArray) rows = ecfs_catalog_staging_list (catalog, error);
    if (rows == NULL)
        return false;
    uint64_t bytes = 0, n_failed = 0;
    JsonArray *oldest = json_array_new ();
    for (unsigned i = 0; i < rows->len; i++) {
        const EcfsStagingRow *row = g_ptr_array_index (rows, i);
        bytes += row->size;
        n_failed += row->error != NULL;
        if (i < MAX_BACKLOG)
            json_array_add_object_element (oldest, backlog_facts (catalog, row));
    }
    JsonObject *staging = json_object_new ();
    json_object_set_int_member (staging, "files", rows->len);
    json_object_set_int_member (staging, "bytes", (int64_t) bytes);
    json_object_set_int_member (staging, "failed", (int64_t) n_failed);
    json_object_set_int_member (staging, "too_large", ecfs_staged_n_too_large (archive));
    json_object_set_array_member (staging, "oldest", oldest);
    json_object_set_object_member (status, "staging", staging);
    return true;
}

static void add_interrupted (JsonObject *status, EcfsArchive *archive)
{
    JsonArray *names = json_array_new ();
    g_autofree char *path = g_build_filename (ecfs_archive_directory (archive), "interrupted", NULL);
    g_autoptr (GDir) dir = g_dir_open (path, 0, NULL); /* absent: nothing was ever interrupted */
    const char *name;
    while (dir != NULL && (name = g_dir_read_name (dir)) != NULL) {
        g_autofree char *utf8 = g_utf8_make_valid (name, -1);
        json_array_add_string_element (names, utf8);
    }
    json_object_set_array_member (status, "interrupted", names);
}

static void add_space (JsonObject *status, EcfsArchive *archive)
{
    EcfsArchiveSpace space;
    ecfs_archive_space (archive, &space);
    if (space.total == 0)
        return;
    json_object_set_int_member (status, "total_bytes", (int64_t) space.total);
    json_object_set_int_member (status, "free_bytes", (int64_t) space.free);
}

/* Reading, as this process has met it. */

static JsonObject *erasure_facts (const EcfsErasure *erasure)
{
    JsonObject *facts = json_object_new ();
    json_object_set_string_member (facts, "endpoint", erasure->endpoint);
    json_object_set_string_member (facts, "why", ecfs_erased_word (erasure->why));
    json_object_set_double_member (facts, "begin", (double) erasure->begin_us / 1e6);
    json_object_set_double_member (facts, "end", (double) erasure->end_us / 1e6);
    json_object_set_int_member (facts, "segments", (int64_t) erasure->n_segments);
    if (erasure->saved_us > 0)
        json_object_set_double_member (facts, "saved_s", (double) erasure->saved_us / 1e6);
    return facts;
}

static void add_reads (JsonObject *status, EcfsReadLog *log)
{
    EcfsReadCounts counts;
    ecfs_read_log_counts (log, &counts);
    JsonObject *reads = json_object_new ();
    json_object_set_int_member (reads, "segments", (int64_t) counts.segments);
    json_object_set_int_member (reads, "decoded", (int64_t) counts.decoded);
    json_object_set_int_member (reads, "degraded", (int64_t) counts.degraded);
    json_object_set_int_member (reads, "received_bytes", (int64_t) counts.received_bytes);
    json_object_set_int_member (reads, "hedged_bytes", (int64_t) counts.hedged_bytes);
    json_object_set_int_member (reads, "cancelled", (int64_t) counts.cancelled);
    JsonArray *erasures = json_array_new ();
    g_autoptr (GPtrArray) found = ecfs_read_log_erasures (log);
    for (guint i = 0; i < found->len; i++)
        json_array_add_object_element (erasures, erasure_facts (g_ptr_array_index (found, i)));
    json_object_set_array_member (reads, "erasures", erasures);
    json_object_set_object_member (status, "reads", reads);
}

static bool add_recovery_point (JsonObject *status, EcfsArchive *archive, GError **error)
{
    EcfsRecoveryPoint point;
    g_autoptr (GArray) snapshots = ecfs_catalog_snapshots (ecfs_archive_catalog (archive), error); /* newest first */
    if (snapshots == NULL || !ecfs_archive_recovery_point (archive, &point, error))
        return false;
    const EcfsSnapshotRow none = {.sequence = 0};
    const EcfsSnapshotRow *snapshot = snapshots->len == 0 ? &none : &g_array_index (snapshots, EcfsSnapshotRow, 0);
    JsonObject *facts = json_object_new ();
    json_object_set_int_member (facts, "sequence", (int64_t) point.stored);
    json_object_set_int_member (facts, "pending", (int64_t) (point.sequence - MIN (point.stored, point.sequence)));
    json_object_set_int_member (facts, "copies", point.n_copies);
    if (point.stored > 0)
        json_object_set_int_member (facts, "time", point.time_ns / 1000000000);
    if (snapshots->len > 0)
        json_object_set_int_member (facts, "snapshot_time", snapshot->time_ns / 1000000000);
    json_object_set_int_member (facts, "behind_snapshot",
                                (int64_t) (point.sequence - MIN (snapshot->sequence, point.sequence)));
    json_object_set_object_member (status, "recovery_point", facts);
    return true;
}

static JsonObject *other_facts (const EcfsLineageOther *other)
{
    JsonObject *facts = json_object_new ();
    json_object_set_int_member (facts, "epoch", other->epoch);
    json_object_set_string_member (facts, "host", other->host); /* letters, digits and "-_.?" */
    if (other->since_s > 0)
        json_object_set_int_member (facts, "since", other->since_s);
    json_object_set_int_member (facts, "endpoints", other->n_endpoints);
    return facts;
}

/* Whether this is the newest copy, and who says what of another. */
static void add_lineage (JsonObject *status, EcfsArchive *archive)
{
    EcfsLineageOther other;
    g_autoptr (GError) read_only = NULL;
    if (!ecfs_archive_check_writable (archive, &read_only))
        ecfs_status_add_text (status, "read_only", read_only->message);
    if (ecfs_archive_lineage (archive) == NULL)
        return;
    g_autofree char *trouble = ecfs_archive_trouble (archive);
    bool is_stale = ecfs_lineage_is_stale (ecfs_archive_lineage (archive));
    if (trouble != NULL)
        ecfs_status_add_text (status, is_stale ? "old_copy" : "held", trouble);
    if (trouble != NULL && ecfs_lineage_successor (ecfs_archive_lineage (archive), &other))
        json_object_set_object_member (status, "successor", other_facts (&other));
    if (ecfs_lineage_claim (ecfs_archive_lineage (archive), &other))
        json_object_set_object_member (status, "claim", other_facts (&other));
}

JsonObject *ecfs_archive_status (EcfsArchive *self, int64_t patience_us, GError **error)
{
    int64_t begun_us = ecfs_now_us (), deadline_us = begun_us + patience_us;
    g_autoptr (JsonObject) status = json_object_new ();
    EcfsCatalog *catalog = ecfs_archive_catalog (self);
    Probe *probe = probe_new (self);       /* first, so that all questions are under way at once */
    if (ecfs_archive_is_readonly (self)) { /* nobody else asks whether it is an old copy, and how much room there is */
        ecfs_archive_ask_lineage (self, deadline_us);
        ecfs_archive_keep_space (self, deadline_us);
    }
    g_autoptr (GArray) found = probe_end (probe, self, begun_us, deadline_us);
    ecfs_status_add_text (status, "directory", ecfs_archive_directory (self));
    add_uuid (status, "archive", ecfs_catalog_archive (catalog));
    json_object_set_int_member (status, "epoch", ecfs_catalog_epoch (catalog));
    json_object_set_int_member (status, "sequence", (int64_t) ecfs_catalog_sequence (catalog));
    json_object_set_string_member (status, "code", ecfs_archive_config (self)->code);
    g_autofree char *trouble = ecfs_catalog_trouble (catalog);
    if (trouble != NULL)
        ecfs_status_add_text (status, "catalog_error", trouble);
    add_lineage (status, self);
    add_endpoints (status, self, found);
    add_space (status, self);
    add_interrupted (status, self);
    add_reads (status, ecfs_archive_read_log (self));
    if (!add_objects (status, self, found, error) || !add_staging (status, self, error) ||
        !add_recovery_point (status, self, error))
        return NULL;
    json_object_set_object_member (status, "scrub", ecfs_archive_scrub_facts (self));
    return g_steal_pointer (&status);
}

/* One file */

static const char *type_word (uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "file";
    case S_IFDIR:
        return "directory";
    case S_IFLNK:
        return "symlink";
    case S_IFIFO:
        return "fifo";
    case S_IFSOCK:
        return "socket";
    default:
        return "device";
    }
}

static char *hex (const uint8_t *bytes, size_t size)
{
    GString *text = g_string_sized_new (2 * size);
    for (size_t i = 0; i < size; i++)
        g_string_append_printf (text, "%02x", bytes[i]);
    return g_string_free (text, FALSE);
}

static void add_digest (JsonObject *facts, const uint8_t *digest)
{
    g_autofree char *text = hex (digest, ECFS_DIGEST_SIZE);
    json_object_set_string_member (facts, "digest", text);
}

static const EcfsStripeRow *find_stripe (const EcfsObjectRow *object, unsigned index)
{
    for (unsigned i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        if (stripe->index == index)
            return stripe;
    }
    return NULL;
}

static JsonObject *stripe_facts (EcfsArchive *archive, const EcfsObjectRow *object, const GArray *repairs,
                                 unsigned index)
{
    JsonObject *facts = json_object_new ();
    add_uuid (facts, "object", &object->uuid);
    json_object_set_int_member (facts, "index", index);
    const EcfsStripeRow *stripe = find_stripe (object, index);
    if (stripe == NULL) {
        json_object_set_string_member (facts, "state", "missing");
        return facts;
    }
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (archive, stripe->endpoint);
    ecfs_status_add_stripe (facts, endpoint, repairs, index);
    json_object_set_int_member (facts, "size", (int64_t) stripe->size);
    if (endpoint != NULL) {
        json_object_set_string_member (facts, "endpoint", endpoint->name);
        json_object_set_string_member (facts, "zone", endpoint->zone);
    }
    g_autofree char *instance = g_strdup_printf ("%016" PRIx64, stripe->instance);
    json_object_set_string_member (facts, "instance", instance);
    add_digest (facts, stripe->digest);
    return facts;
}

static uint64_t stored_bytes (const EcfsObjectRow *object)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < object->stripes->len; i++)
        bytes += g_array_index (object->stripes, EcfsStripeRow, i).size;
    return bytes;
}

static JsonObject *object_facts (const EcfsObjectRow *object, const EcfsCodec *codec)
{
    JsonObject *facts = json_object_new ();
    add_uuid (facts, "uuid", &object->uuid);
    json_object_set_string_member (facts, "code", ecfs_codec_code (codec));
    json_object_set_int_member (facts, "size", (int64_t) object->size);
    json_object_set_int_member (facts, "stripe_bytes", (int64_t) stored_bytes (object));
    json_object_set_int_member (facts, "segment_bytes", object->segment_bytes);
    add_digest (facts, object->digest);
    return facts;
}

static JsonObject *extent_facts (const EcfsExtent *extent, const EcfsObjectRow *object)
{
    JsonObject *facts = json_object_new ();
    json_object_set_int_member (facts, "offset", (int64_t) extent->offset);
    json_object_set_int_member (facts, "length", (int64_t) extent->length);
    add_uuid (facts, "object", &object->uuid);
    json_object_set_int_member (facts, "object_offset", (int64_t) extent->object_offset);
    return facts;
}

/* Whether the content is one object from its first to its last byte, so that the object's digest is the file's. */
static bool is_one_object (EcfsContent *content, const GArray *extents)
{
    if (extents->len != 1)
        return false;
    const EcfsExtent *extent = &g_array_index (extents, EcfsExtent, 0);
    const EcfsObjectRow *object = ecfs_content_object (content, 0);
    return extent->offset == 0 && extent->object_offset == 0 && extent->length == ecfs_content_size (content) &&
           extent->length == object->size;
}

typedef struct Listing {
    EcfsArchive *archive;
    JsonArray *objects, *stripes;
    GHashTable *seen; /* int64_t ids of objects */
    uint64_t bytes;
} Listing;

static bool list_object (Listing *self, const EcfsObjectRow *object, GError **error)
{
    if (!g_hash_table_add (self->seen, g_memdup2 (&object->id, sizeof object->id)))
        return true;
    const EcfsCodec *codec = ecfs_archive_codec (self->archive, object->code, error);
    g_autoptr (GArray) repairs =
        codec == NULL ? NULL : ecfs_catalog_repairs (ecfs_archive_catalog (self->archive), object->id, error);
    if (repairs == NULL)
        return false;
    json_array_add_object_element (self->objects, object_facts (object, codec));
    for (unsigned i = 0; i < ecfs_codec_n (codec); i++)
        json_array_add_object_element (self->stripes, stripe_facts (self->archive, object, repairs, i));
    self->bytes += stored_bytes (object);
    return true;
}

static bool add_code_facts (JsonObject *info, EcfsArchive *archive, const char *code, GError **error)
{
    const EcfsCodec *codec = ecfs_archive_codec (archive, code, error);
    if (codec == NULL)
        return false;
    json_object_set_string_member (info, "code", ecfs_codec_code (codec));
    json_object_set_double_member (info, "f", ecfs_codec_overhead (codec));
    json_object_set_double_member (info, "overhead", (double) ecfs_codec_n (codec) / ecfs_codec_k (codec));
    return true;
}

static bool list_content (JsonObject *info, EcfsArchive *archive, EcfsContent *content, GError **error)
{
    g_autoptr (GHashTable) seen = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL);
    Listing listing = {.archive = archive, .objects = json_array_new (), .stripes = json_array_new (), .seen = seen};
    JsonArray *extents = json_array_new ();
    json_object_set_array_member (info, "extents", extents);
    json_object_set_array_member (info, "objects", listing.objects);
    json_object_set_array_member (info, "stripes", listing.stripes);
    const GArray *rows = ecfs_content_extents (content);
    for (unsigned i = 0; i < rows->len; i++) {
        const EcfsExtent *extent = &g_array_index (rows, EcfsExtent, i);
        const EcfsObjectRow *object = ecfs_content_object (content, (size_t) extent->object);
        json_array_add_object_element (extents, extent_facts (extent, object));
        if (!list_object (&listing, object, error))
            return false;
    }
    json_object_set_int_member (info, "stripe_bytes", (int64_t) listing.bytes);
    if (rows->len > 0 && !add_code_facts (info, archive, ecfs_content_object (content, 0)->code, error))
        return false;
    if (is_one_object (content, rows))
        add_digest (info, ecfs_content_object (content, 0)->digest);
    return true;
}

static bool add_content (JsonObject *info, EcfsArchive *archive, uint64_t ino, GError **error)
{
    EcfsContent *content = ecfs_content_open (archive, ino, error);
    if (content == NULL)
        return false;
    bool good = list_content (info, archive, content, error);
    ecfs_content_unref (content);
    return good;
}

static bool add_state (JsonObject *info, EcfsArchive *archive, uint64_t ino, GError **error)
{
    EcfsFileState state;
    if (!ecfs_archive_file_state (archive, ino, &state, error))
        return false;
    g_autofree char *text = ecfs_file_state_text (&state);
    json_object_set_string_member (info, "state", text);
    json_object_set_boolean_member (info, "staged", state.staged);
    if (state.n_stripes == 0)
        return true;
    json_object_set_int_member (info, "tolerance", state.tolerance);
    json_object_set_int_member (info, "guarantee", state.guarantee);
    return true;
}

static bool add_code (JsonObject *info, EcfsArchive *archive, uint64_t ino, GError **error)
{
    g_autofree char *code = NULL;
    if (!ecfs_catalog_get_code (ecfs_archive_catalog (archive), ino, &code, error))
        return false;
    json_object_set_string_member (info, "code", code != NULL ? code : ecfs_archive_config (archive)->code);
    return true;
}

JsonObject *ecfs_archive_info (EcfsArchive *self, const char *path, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self);
    g_autoptr (JsonObject) info = json_object_new ();
    EcfsAttr attr;
    if (!ecfs_catalog_resolve (catalog, path, &attr, error))
        return NULL;
    g_autofree char *full = ecfs_catalog_path (catalog, attr.ino);
    ecfs_status_add_text (info, "path", full);
    json_object_set_string_member (info, "type", type_word (attr.mode));
    json_object_set_int_member (info, "inode", (int64_t) attr.ino);
    json_object_set_int_member (info, "mode", attr.mode & 07777);
    json_object_set_int_member (info, "uid", attr.uid);
    json_object_set_int_member (info, "gid", attr.gid);
    json_object_set_int_member (info, "size", (int64_t) attr.size);
    json_object_set_int_member (info, "mtime_ns", attr.mtime_ns);
    if ((S_ISREG (attr.mode) || S_ISDIR (attr.mode)) && !add_code (info, self, attr.ino, error))
        return NULL;
    if (S_ISREG (attr.mode) && (!add_state (info, self, attr.ino, error) || !add_content (info, self, attr.ino, error)))
        return NULL;
    return g_steal_pointer (&info);
}
