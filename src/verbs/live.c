#include "verbs/live.h"

#include "archive/peered.h"
#include "staging/staged.h"
#include "upkeep/repairer.h"
#include "verbs/status.h"
#include "verbs/status_month.h"
#include "verbs/status_priv.h"
#include "wire/wire.h"

#include "ecfs/ecfs.h"

#define MOST_TOLD 40   /* files under way */
#define ANSWER_MS 5000 /* who looks must not hang because the mount does */

static JsonObject *endpoint_facts (const EcfsArchiveEndpoint *endpoint)
{
    JsonObject *facts = json_object_new ();
    EcfsEndpointHealth health = {0};
    json_object_set_string_member (facts, "name", endpoint->name);
    json_object_set_string_member (facts, "zone", endpoint->zone);
    if (endpoint->endpoint != NULL) {
        ecfs_endpoint_health (endpoint->endpoint, &health);
        ecfs_status_add_counts (facts, endpoint->endpoint);
        ecfs_status_add_month (facts, endpoint->endpoint, NULL);
    }
    json_object_set_string_member (facts, "state", ecfs_status_state_word (endpoint, &health));
    json_object_set_boolean_member (facts, "suspect", health.suspect);
    if (health.down_since_s > 0)
        json_object_set_int_member (facts, "down_since", health.down_since_s);
    json_object_set_int_member (facts, "queued_bytes", (int64_t) health.queued_bytes);
    json_object_set_int_member (facts, "under_way", health.n_under_way);
    json_object_set_int_member (facts, "waiting", health.n_waiting);
    ecfs_status_add_health (facts, &health);
    ecfs_endpoint_health_clear (&health);
    return facts;
}

static void add_endpoints (JsonObject *live, EcfsArchive *archive)
{
    JsonArray *endpoints = json_array_new ();
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++)
        if (ecfs_archive_endpoint (archive, i)->state != ECFS_ENDPOINT_REMOVED)
            json_array_add_object_element (endpoints, endpoint_facts (ecfs_archive_endpoint (archive, i)));
    json_object_set_array_member (live, "endpoints", endpoints);
}

static void add_under_way (JsonObject *live, EcfsArchive *archive)
{
    JsonArray *files = json_array_new ();
    EcfsStagedFacts facts[MOST_TOLD];
    size_t n = ecfs_staged_under_way (archive, facts, MOST_TOLD);
    for (size_t i = 0; i < n; i++) {
        JsonObject *file = json_object_new ();
        g_autofree char *path = ecfs_catalog_path (ecfs_archive_catalog (archive), facts[i].ino);
        ecfs_status_add_text (file, "path", path);
        json_object_set_string_member (file, "doing", facts[i].doing);
        json_object_set_int_member (file, "size", (int64_t) facts[i].size);
        json_object_set_double_member (file, "seconds", (double) facts[i].took_us / 1e6);
        json_array_add_object_element (files, file);
    }
    json_object_set_array_member (live, "under_way", files);
}

static bool add_catalog (JsonObject *live, EcfsArchive *archive, GError **error)
{
    EcfsTotals totals;
    EcfsRecoveryPoint point;
    if (!ecfs_catalog_totals (ecfs_archive_catalog (archive), &totals, error) ||
        !ecfs_archive_recovery_point (archive, &point, error))
        return false;
    json_object_set_int_member (live, "files", (int64_t) totals.n_files);
    json_object_set_int_member (live, "content_bytes", (int64_t) totals.content_bytes);
    json_object_set_int_member (live, "staged", (int64_t) totals.n_staged);
    json_object_set_int_member (live, "not_full", (int64_t) totals.n_not_full);
    json_object_set_int_member (live, "deletions", (int64_t) totals.n_deletions);
    json_object_set_int_member (live, "pending", (int64_t) (point.sequence - MIN (point.stored, point.sequence)));
    return true;
}

static bool add_repairs (JsonObject *live, EcfsArchive *archive, GError **error)
{
    uint64_t n_queued;
    EcfsRepairerFacts facts = {.failure = NULL};
    EcfsRepairer *repairer = ecfs_archive_service (archive, ECFS_SERVICE_REPAIR);
    if (!ecfs_catalog_repairs_count (ecfs_archive_catalog (archive), &n_queued, error))
        return false;
    if (repairer != NULL)
        ecfs_repairer_facts (repairer, &facts);
    JsonObject *repairs = json_object_new ();
    json_object_set_int_member (repairs, "queued", (int64_t) n_queued);
    json_object_set_int_member (repairs, "repaired", (int64_t) facts.n_repaired);
    json_object_set_int_member (repairs, "rebuilt", (int64_t) facts.n_rebuilt);
    json_object_set_int_member (repairs, "failing", (int64_t) facts.n_failing);
    json_object_set_int_member (repairs, "read_bytes", (int64_t) facts.read_bytes);
    json_object_set_int_member (repairs, "written_bytes", (int64_t) facts.written_bytes);
    if (facts.failure != NULL)
        ecfs_status_add_text (repairs, "failure", facts.failure);
    ecfs_repairer_facts_clear (&facts);
    json_object_set_object_member (live, "repairs", repairs);
    return true;
}

static JsonArray *describe_each (const GPtrArray *peers)
{
    JsonArray *array = json_array_new ();
    for (guint i = 0; i < peers->len; i++) {
        const EcfsPeerState *state = g_ptr_array_index (peers, i);
        JsonObject *object = json_object_new ();
        ecfs_status_add_text (object, "address", state->address);
        json_object_set_string_member (object, "state",
                                       state->is_dropped ? "dropped"
                                       : state->lies     ? "lies"
                                       : state->is_up    ? "up"
                                                         : "down");
        json_object_set_boolean_member (object, "seeder", state->is_seeder);
        json_object_set_int_member (object, "fetched_bytes", (int64_t) state->fetched_bytes);
        if (state->problem != NULL)
            ecfs_status_add_text (object, "problem", state->problem);
        json_array_add_object_element (array, object);
    }
    return array;
}

static JsonArray *describe_takers (const GPtrArray *takers)
{
    JsonArray *array = json_array_new ();
    for (guint i = 0; i < takers->len; i++) {
        const EcfsPeerTakerState *state = g_ptr_array_index (takers, i);
        JsonObject *object = json_object_new ();
        ecfs_status_add_text (object, "address", state->address);
        json_object_set_boolean_member (object, "dropped", state->is_dropped);
        json_object_set_int_member (object, "connections", state->n_connections);
        json_object_set_int_member (object, "served_bytes", (int64_t) state->bytes);
        json_array_add_object_element (array, object);
    }
    return array;
}

static void add_way (JsonObject *facts, const EcfsLocatedWay *way, const char *problem)
{
    json_object_set_int_member (facts, "found", way->n_found);
    if (way->address != NULL)
        ecfs_status_add_text (facts, "announced", way->address);
    if (problem != NULL || way->problem != NULL)
        ecfs_status_add_text (facts, "problem", problem != NULL ? problem : way->problem);
}

static void add_located (JsonObject *peers, EcfsLocated *located)
{
    EcfsLocatedState state;
    ecfs_located_state (located, &state);
    if (state.runs) {
        JsonObject *dht = json_object_new ();
        json_object_set_string_member (dht, "state", state.dht.is_up ? "up" : "down");
        json_object_set_int_member (dht, "port", state.dht.port);
        add_way (dht, &state.by_dht, state.dht.problem);
        json_object_set_object_member (peers, "dht", dht);
    }
    if (state.uses_catalog) {
        JsonObject *catalog = json_object_new ();
        add_way (catalog, &state.by_catalog, NULL);
        json_object_set_object_member (peers, "catalog", catalog);
    }
    ecfs_located_state_clear (&state);
}

void ecfs_status_add_peers (JsonObject *status, EcfsArchive *archive)
{
    EcfsPeersState state;
    if (ecfs_archive_peers (archive) == NULL)
        return;
    ecfs_peers_state (ecfs_archive_peers (archive), &state);
    JsonObject *facts = json_object_new ();
    if (state.listen != NULL)
        ecfs_status_add_text (facts, "listen", state.listen);
    json_object_set_int_member (facts, "connections", state.n_connections);
    json_object_set_int_member (facts, "served_bytes", (int64_t) state.served_bytes);
    json_object_set_int_member (facts, "fetched_bytes", (int64_t) state.fetched_bytes);
    json_object_set_array_member (facts, "list", describe_each (state.peers));
    json_object_set_array_member (facts, "takers", describe_takers (state.takers));
    add_located (facts, ecfs_archive_located (archive));
    json_object_set_object_member (status, "peers", facts);
    ecfs_peers_state_clear (&state);
}

JsonObject *ecfs_archive_live (EcfsArchive *self, GError **error)
{
    g_autoptr (JsonObject) live = json_object_new ();
    ecfs_status_add_text (live, "directory", ecfs_archive_directory (self));
    json_object_set_string_member (live, "code", ecfs_archive_config (self)->code);
    json_object_set_double_member (live, "time", (double) g_get_real_time () / 1e6);
    json_object_set_double_member (live, "clock", (double) ecfs_now_us () / 1e6);
    add_endpoints (live, self);
    json_object_set_object_member (live, "reads", ecfs_status_reads (ecfs_archive_read_log (self)));
    (void) ecfs_status_add_cache (live, self); /* there may be none */
    ecfs_status_add_peers (live, self);
    add_under_way (live, self);
    if (!add_catalog (live, self, error) || !add_repairs (live, self, error))
        return NULL;
    return g_steal_pointer (&live);
}

char *ecfs_live (const char *directory, GError **error)
{
    JsonObject *request = json_object_new ();
    g_autoptr (JsonNode) question = json_node_new (JSON_NODE_OBJECT);
    json_object_set_string_member (request, "verb", "live");
    json_node_take_object (question, request);
    g_autoptr (JsonNode) answer = ecfs_control_ask (directory, question, ANSWER_MS, error);
    JsonObject *object = answer == NULL ? NULL : json_node_get_object (answer);
    JsonNode *live = object == NULL ? NULL : json_object_get_member (object, "live");
    if (object != NULL && (live == NULL || !JSON_NODE_HOLDS_OBJECT (live)))
        (void) !ecfs_fail (error, EPROTO, "the mount's answer makes no sense: it may be of another version of ecfs");
    return live == NULL || !JSON_NODE_HOLDS_OBJECT (live) ? NULL : json_to_string (live, FALSE);
}
