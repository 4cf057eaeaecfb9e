/* What `ecfs status` tells of an archive. */
#include "catalog/marks.h"
#include "verbs/status_month.h"
#include "verbs/status_priv.h"
#include "verbs/survey.h"

#include "archive/gaps.h"
#include "archive/key_watch.h"
#include "archive/keys.h"
#include "archive/lineage.h"
#include "archive/past.h"
#include "archive/watch.h"
#include "journal/journal_open.h"
#include "locate/published.h"
#include "staging/staged.h"
#include "verbs/unstored.h"

#include <inttypes.h>

#define MAX_BACKLOG 100 /* staging rows that are told one by one */

/* Endpoints */

/* The word of the design for an endpoint's state, with the connection seen from this process. */
const char *ecfs_status_state_word (const EcfsArchiveEndpoint *endpoint, const EcfsEndpointHealth *health)
{
    if (endpoint->endpoint == NULL && endpoint->state < ECFS_ENDPOINT_FAILED) /* what was given up stays so */
        return "unconfigured";
    if (endpoint->state == ECFS_ENDPOINT_ACTIVE && !health->down && (health->full || health->refuses))
        return health->full ? "full" : "refusing";
    if (endpoint->state == ECFS_ENDPOINT_ACTIVE && !health->down && health->spent)
        return "spent";
    if (endpoint->state == ECFS_ENDPOINT_ACTIVE && health->trial)
        return "trial";
    if (endpoint->state >= ECFS_ENDPOINT_FAILED || !health->down)
        return ecfs_endpoint_state_word (endpoint->state);
    return "down";
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

void ecfs_status_add_counts (JsonObject *facts, EcfsEndpoint *endpoint)
{
    EcfsEndpointCounts counts;
    JsonObject *requests = json_object_new (), *failed = json_object_new ();
    ecfs_endpoint_counts (endpoint, &counts);
    for (EcfsRequestClass i = 0; i < ECFS_N_CLASSES; i++) {
        json_object_set_int_member (requests, ecfs_request_class_word (i), (int64_t) counts.ended[i]);
        json_object_set_int_member (failed, ecfs_request_class_word (i), (int64_t) counts.failed[i]);
    }
    json_object_set_object_member (facts, "requests", requests);
    json_object_set_object_member (facts, "failed_requests", failed);
    json_object_set_int_member (facts, "sent_requests", (int64_t) counts.sent);
}

void ecfs_status_add_health (JsonObject *facts, const EcfsEndpointHealth *health)
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
static void add_found (JsonObject *facts, EcfsArchive *archive, const EcfsArchiveEndpoint *endpoint,
                       const EcfsFound *found)
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

/* What a mount saw that it has lost. */
static void add_gap (JsonObject *facts, const EcfsArchive *archive, const EcfsArchiveEndpoint *endpoint)
{
    int64_t since_s;
    g_autofree char *text = ecfs_gap_noted (archive, &endpoint->uuid, &since_s);
    if (text == NULL || !ecfs_archive_endpoint_counts (endpoint))
        return;
    ecfs_status_add_text (facts, "journal_gap", text);
    json_object_set_int_member (facts, "journal_gap_since", since_s);
}

/* What it tells that too few others do, or why its marker tells nothing. */
static void add_word (JsonObject *facts, EcfsArchive *archive, size_t position)
{
    EcfsLineage *lineage = ecfs_archive_lineage (archive);
    if (lineage == NULL)
        return;
    g_autofree char *said = ecfs_lineage_disagreement (lineage, position);
    g_autofree char *doubt = ecfs_lineage_false_marker (lineage, position);
    if (said != NULL)
        ecfs_status_add_text (facts, "disagrees", said);
    if (doubt != NULL)
        ecfs_status_add_text (facts, "false_marker", doubt);
}

static JsonObject *endpoint_facts (EcfsArchive *archive, const EcfsArchiveEndpoint *endpoint, const EcfsFound *found,
                                   const uint64_t *stored)
{
    JsonObject *facts = json_object_new ();
    json_object_set_string_member (facts, "name", endpoint->name);
    json_object_set_string_member (facts, "zone", endpoint->zone);
    ecfs_status_add_uuid (facts, "uuid", &endpoint->uuid);
    EcfsEndpointHealth health = {0};
    if (endpoint->endpoint != NULL) {
        json_object_set_string_member (facts, "url", ecfs_endpoint_url (endpoint->endpoint));
        ecfs_endpoint_health (endpoint->endpoint, &health);
        ecfs_status_add_counts (facts, endpoint->endpoint);
        ecfs_status_add_month (facts, endpoint->endpoint, stored);
    }
    add_spec (facts, archive, endpoint);
    json_object_set_string_member (facts, "state", ecfs_status_state_word (endpoint, &health));
    ecfs_status_add_health (facts, &health);
    int64_t since = health.down ? down_since (archive, endpoint, &health) : 0;
    if (since > 0)
        json_object_set_int_member (facts, "down_since", since);
    if (health.unmarked)
        json_object_set_boolean_member (facts, "unmarked", TRUE);
    add_word (facts, archive, ecfs_archive_position (archive, endpoint));
    add_gap (facts, archive, endpoint);
    if (found->space_known)
        json_object_set_int_member (facts, "free_bytes", (int64_t) found->free_bytes);
    if (endpoint->endpoint != NULL && ecfs_endpoint_capacity (endpoint->endpoint) > 0)
        json_object_set_int_member (facts, "capacity_bytes", (int64_t) ecfs_endpoint_capacity (endpoint->endpoint));
    if (found->word != NULL && !health.down && endpoint->state < ECFS_ENDPOINT_FAILED)
        add_found (facts, archive, endpoint, found);
    ecfs_endpoint_health_clear (&health);
    return facts;
}

static bool add_endpoints (JsonObject *status, EcfsArchive *archive, const GArray *found, GError **error)
{
    g_autofree uint64_t *stored = ecfs_status_stored (archive, error);
    if (stored == NULL)
        return false;
    JsonArray *endpoints = json_array_new ();
    for (guint i = 0; i < found->len; i++) {
        if (ecfs_archive_endpoint (archive, i)->state == ECFS_ENDPOINT_REMOVED)
            continue;
        json_array_add_object_element (endpoints, endpoint_facts (archive, ecfs_archive_endpoint (archive, i),
                                                                  &g_array_index (found, EcfsFound, i), &stored[i]));
    }
    json_object_set_array_member (status, "endpoints", endpoints);
    ecfs_status_add_month_sum (status, archive);
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
    int64_t since_ns = INT64_MAX;
    JsonArray *oldest = json_array_new ();
    for (unsigned i = 0; i < rows->len; i++) {
        const EcfsStagingRow *row = g_ptr_array_index (rows, i);
        bytes += row->size;
        n_failed += row->error != NULL;
        since_ns = MIN (since_ns, row->since_ns);
        if (i < MAX_BACKLOG)
            json_array_add_object_element (oldest, backlog_facts (catalog, row));
    }
    JsonObject *staging = json_object_new ();
    json_object_set_int_member (staging, "files", rows->len);
    json_object_set_int_member (staging, "bytes", (int64_t) bytes);
    json_object_set_int_member (staging, "failed", (int64_t) n_failed);
    if (rows->len > 0)
        json_object_set_int_member (staging, "since", since_ns / 1000000000);
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

static void add_published (JsonObject *status, EcfsArchive *archive)
{
    JsonArray *array = json_array_new ();
    g_autoptr (GPtrArray) names = ecfs_publications (ecfs_archive_directory (archive));
    for (guint i = 0; i < names->len; i++)
        json_array_add_string_element (array, g_ptr_array_index (names, i));
    json_object_set_array_member (status, "published", array);
}

static void add_space (JsonObject *status, EcfsArchive *archive)
{
    EcfsArchiveSpace space;
    ecfs_archive_space (archive, &space);
    if (!space.is_known)
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

JsonObject *ecfs_status_reads (EcfsReadLog *log)
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
    json_object_set_int_member (reads, "erased", (int64_t) counts.erasures);
    json_object_set_int_member (reads, "cached", (int64_t) counts.cached);
    json_object_set_int_member (reads, "cached_bytes", (int64_t) counts.cached_bytes);
    JsonArray *erasures = json_array_new ();
    g_autoptr (GPtrArray) found = ecfs_read_log_erasures (log);
    for (guint i = 0; i < found->len; i++)
        json_array_add_object_element (erasures, erasure_facts (g_ptr_array_index (found, i)));
    json_object_set_array_member (reads, "erasures", erasures);
    return reads;
}

/* What a mount that follows has noted of itself; false: there is none. */
static bool add_noted (JsonObject *status, const char *name)
{
    JsonObject *follow =
        json_object_has_member (status, "follow") ? json_object_get_object_member (status, "follow") : NULL;
    JsonNode *noted = follow != NULL && json_object_get_boolean_member (follow, "lives")
                          ? json_object_get_member (follow, name)
                          : NULL;
    bool any = noted != NULL && JSON_NODE_HOLDS_OBJECT (noted);
    if (any)
        json_object_set_member (status, name, json_node_copy (noted));
    return any;
}

static void add_reads (JsonObject *status, EcfsArchive *archive)
{
    if (!add_noted (status, "reads"))
        json_object_set_object_member (status, "reads", ecfs_status_reads (ecfs_archive_read_log (archive)));
}

/* What was read here came from there; and what nobody stores from here any more was stored before, or never. */
static bool find_recovery_point (EcfsArchive *archive, EcfsRecoveryPoint *ret_point, GError **error)
{
    EcfsJournalPlace stored;
    EcfsLineage *lineage = ecfs_archive_lineage (archive);
    if (!ecfs_archive_recovery_point (archive, ret_point, error))
        return false;
    if (!ecfs_archive_check_writable (archive, NULL)) {
        ret_point->stored = ret_point->sequence;
        return true;
    }
    if (lineage == NULL || !ecfs_lineage_is_stale (lineage))
        return true;
    if (!ecfs_archive_stored_once (archive, &stored, error))
        return false;
    ret_point->stored = stored.sequence;
    ret_point->time_ns = stored.time_ns;
    return true;
}

static bool add_recovery_point (JsonObject *status, EcfsArchive *archive, GError **error)
{
    EcfsRecoveryPoint point;
    g_autoptr (GArray) snapshots = ecfs_catalog_snapshots (ecfs_archive_catalog (archive), error); /* newest first */
    if (snapshots == NULL || !find_recovery_point (archive, &point, error))
        return false;
    const EcfsSnapshotRow none = {.sequence = 0};
    const EcfsSnapshotRow *snapshot = snapshots->len == 0 ? &none : &g_array_index (snapshots, EcfsSnapshotRow, 0);
    JsonObject *facts = json_object_new ();
    json_object_set_int_member (facts, "sequence", (int64_t) point.stored);
    json_object_set_int_member (facts, "pending", (int64_t) (point.sequence - MIN (point.stored, point.sequence)));
    json_object_set_int_member (facts, "copies", point.n_copies);
    if (point.time_ns > 0)
        json_object_set_int_member (facts, "time", point.time_ns / 1000000000);
    if (snapshots->len > 0)
        json_object_set_int_member (facts, "snapshot_time", snapshot->time_ns / 1000000000);
    if (ecfs_archive_check_writable (archive, NULL))
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
    if (!ecfs_archive_check_writable (archive, &read_only) && read_only->code == EROFS)
        ecfs_status_add_text (status, "read_only", read_only->message);
    ecfs_status_add_follow (status, archive);
    const char *old = ecfs_archive_old_copy (archive);
    if (old != NULL && ecfs_archive_lineage (archive) == NULL)
        ecfs_status_add_text (status, "old_copy", old);
    if (ecfs_catalog_behind (ecfs_archive_catalog (archive)) != NULL)
        ecfs_status_add_text (status, "catalog_ended",
                              ecfs_catalog_is_taken_over (ecfs_archive_catalog (archive)) ? "taken over" : "older");
    if (ecfs_archive_lineage (archive) == NULL)
        return;
    g_autofree char *trouble = ecfs_archive_trouble (archive);
    bool is_stale = ecfs_lineage_is_stale (ecfs_archive_lineage (archive));
    if (trouble != NULL)
        ecfs_status_add_text (status, is_stale ? "old_copy" : "held", trouble);
    g_autofree char *wait = ecfs_lineage_deletions_wait (ecfs_archive_lineage (archive));
    if (wait != NULL)
        ecfs_status_add_text (status, "deletions_wait", wait);
    if (trouble != NULL && ecfs_lineage_successor (ecfs_archive_lineage (archive), &other))
        json_object_set_object_member (status, "successor", other_facts (&other));
    if (ecfs_lineage_claim (ecfs_archive_lineage (archive), &other))
        json_object_set_object_member (status, "claim", other_facts (&other));
}

/* What whoever has the archive now may lack. */
static bool add_unstored (JsonObject *status, EcfsArchive *archive, GError **error)
{
    EcfsLineage *lineage = ecfs_archive_lineage (archive);
    if (lineage == NULL || !ecfs_lineage_is_stale (lineage))
        return true;
    g_autoptr (GPtrArray) unstored = ecfs_archive_unstored (archive, error);
    if (unstored != NULL)
        json_object_set_object_member (status, "unstored", ecfs_unstored_facts (unstored));
    return unstored != NULL;
}

/* When the last of the stripes that wait for their deletion is due; seconds since 1970. */
static int64_t retained_until (const EcfsArchive *archive, const EcfsOpenTotals *totals)
{
    const EcfsConfig *config = ecfs_archive_config (archive);
    int64_t left_us = MAX (config->deletion_grace_us, config->history_us) - totals->newest_ns / 1000;
    return (g_get_real_time () + MAX (left_us, 0)) / G_USEC_PER_SEC;
}

/* Then nobody knows until when something waits. */
static bool has_marks (const EcfsArchive *archive)
{
    g_autoptr (GArray) marks = ecfs_catalog_marks (ecfs_archive_catalog (archive), NULL);
    return marks == NULL || marks->len > 0;
}

/* What endpoints can read still of an archive that has a key; nothing is added where they cannot. */
static bool add_open (JsonObject *status, EcfsArchive *archive, GError **error)
{
    EcfsOpenTotals totals;
    uint64_t n_files, n_strays;
    unsigned n_unknown;
    if (!ecfs_catalog_open_totals (ecfs_archive_catalog (archive), &totals, error) ||
        !ecfs_journal_open_files (archive, &n_files, &n_unknown, error) ||
        !ecfs_keys_strays (ecfs_archive_catalog (archive), &n_strays, error))
        return false;
    bool is_open = totals.n_objects + totals.n_stripes + n_files + n_unknown + n_strays > 0;
    json_object_set_boolean_member (status, "sealed", !is_open);
    if (!is_open)
        return true;
    JsonObject *facts = json_object_new ();
    json_object_set_int_member (facts, "objects", (int64_t) totals.n_objects);
    json_object_set_int_member (facts, "content_bytes", (int64_t) totals.content_bytes);
    json_object_set_int_member (facts, "journal_files", (int64_t) n_files);
    json_object_set_int_member (facts, "endpoints_unknown", n_unknown);
    json_object_set_int_member (facts, "stray_stripes", (int64_t) n_strays);
    json_object_set_int_member (facts, "retained_stripes", (int64_t) totals.n_stripes);
    if (totals.n_stripes > 0 && !has_marks (archive))
        json_object_set_int_member (facts, "retained_until", retained_until (archive, &totals));
    json_object_set_object_member (status, "open", facts);
    return true;
}

/* What is under keys that are retired. */
static bool add_retired (JsonObject *status, EcfsArchive *archive, GError **error)
{
    EcfsOpenTotals totals;
    const EcfsKeyRing *keys = ecfs_archive_keys (archive);
    if (keys == NULL || ecfs_key_ring_n_retired (keys) == 0)
        return true;
    if (!ecfs_catalog_retired_totals (ecfs_archive_catalog (archive), ecfs_key_ring_active (keys), &totals, error))
        return false;
    json_object_set_int_member (status, "retired_objects", (int64_t) totals.n_objects);
    json_object_set_int_member (status, "retired_bytes", (int64_t) totals.content_bytes);
    json_object_set_int_member (status, "retired_stripes", (int64_t) totals.n_stripes);
    if (totals.n_stripes > 0 && !has_marks (archive))
        json_object_set_int_member (status, "retired_until", retained_until (archive, &totals));
    if (totals.n_objects + totals.n_stripes > 0)
        json_object_set_boolean_member (status, "sealed", FALSE);
    return true;
}

static bool add_sealing (JsonObject *status, EcfsArchive *archive, GError **error)
{
    EcfsKeysState state;
    if (!ecfs_keys_state (ecfs_archive_catalog (archive), &state, error))
        return false;
    if (state == ECFS_KEYS_BEGUN)
        json_object_set_boolean_member (status, "key_begun", TRUE);
    if (state == ECFS_KEYS_ROTATING)
        json_object_set_boolean_member (status, "key_rotates", TRUE);
    return ecfs_archive_keys (archive) == NULL ||
           (add_open (status, archive, error) && add_retired (status, archive, error));
}

/* Without the catalog, whose database is away: what the archive itself knows. */
static JsonObject *status_without (EcfsArchive *self, int64_t since_us)
{
    JsonObject *status = json_object_new ();
    EcfsCatalog *catalog = ecfs_archive_catalog (self);
    g_autofree char *trouble = ecfs_catalog_trouble (catalog);
    int64_t away_us = ecfs_now_us () - since_us;
    ecfs_status_add_text (status, "directory", ecfs_archive_directory (self));
    ecfs_status_add_uuid (status, "archive", ecfs_catalog_archive (catalog));
    json_object_set_int_member (status, "epoch", ecfs_catalog_epoch (catalog));
    json_object_set_string_member (status, "code", ecfs_archive_config (self)->code);
    ecfs_status_add_text (status, "catalog_error", trouble == NULL ? "the database was away" : trouble);
    json_object_set_int_member (status, "catalog_away_since_s", (g_get_real_time () - away_us) / G_USEC_PER_SEC);
    json_object_set_array_member (status, "endpoints", json_array_new ());
    add_lineage (status, self);
    add_reads (status, self);
    ecfs_status_add_events (status, self);
    return status;
}

JsonObject *ecfs_archive_status (EcfsArchive *self, int64_t patience_us, bool with_survey, GError **error)
{
    int64_t away_us = ecfs_catalog_away_us (ecfs_archive_catalog (self));
    if (away_us != 0) {
        ecfs_catalog_hurry (true);
        JsonObject *without = status_without (self, away_us);
        ecfs_catalog_hurry (false);
        return without;
    }
    g_autoptr (EcfsSurvey) survey = with_survey ? ecfs_survey_new (self) : NULL;
    int64_t begun_us = ecfs_now_us (), deadline_us = begun_us + patience_us;
    g_autoptr (JsonObject) status = json_object_new ();
    EcfsCatalog *catalog = ecfs_archive_catalog (self);
    EcfsProbe *probe = ecfs_probe_new (self); /* first, so that all questions are under way at once */
    ecfs_key_watch_look (ecfs_archive_key_watch (self));
    if (ecfs_archive_is_readonly (self)) { /* nobody else asks whether it is an old copy, and how much room there is */
        ecfs_archive_ask_lineage (self, deadline_us);
        ecfs_archive_keep_space (self, deadline_us);
    } else if (ecfs_archive_lineage (self) != NULL) {
        ecfs_lineage_look (ecfs_archive_lineage (self), deadline_us);
    }
    g_autoptr (GArray) found = ecfs_probe_end (probe, self, begun_us, deadline_us);
    ecfs_key_watch_await (ecfs_archive_key_watch (self), deadline_us);
    ecfs_status_add_text (status, "directory", ecfs_archive_directory (self));
    ecfs_status_add_uuid (status, "archive", ecfs_catalog_archive (catalog));
    json_object_set_int_member (status, "epoch", ecfs_catalog_epoch (catalog));
    json_object_set_int_member (status, "sequence", (int64_t) ecfs_catalog_sequence (catalog));
    json_object_set_string_member (status, "code", ecfs_archive_config (self)->code);
    g_autofree char *trouble = ecfs_catalog_trouble (catalog);
    if (trouble != NULL)
        ecfs_status_add_text (status, "catalog_error", trouble);
    add_lineage (status, self);
    if (!add_endpoints (status, self, found, error))
        return NULL;
    add_space (status, self);
    add_interrupted (status, self);
    add_published (status, self);
    add_reads (status, self);
    (void) ecfs_status_add_cache (status, self); /* there may be none */
    if (!add_noted (status, "peers"))
        ecfs_status_add_peers (status, self);
    ecfs_status_add_events (status, self);
    if (!ecfs_status_add_key (status, self, found, error) || !add_sealing (status, self, error) ||
        !ecfs_status_add_objects (status, self, found, survey, error) ||
        !ecfs_status_add_policy (status, self, error) || !add_staging (status, self, error) ||
        !add_unstored (status, self, error) || !add_recovery_point (status, self, error))
        return NULL;
    json_object_set_object_member (status, "scrub", ecfs_archive_scrub_facts (self));
    return g_steal_pointer (&status);
}
