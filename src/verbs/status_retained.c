/* What stays at endpoints that do not delete, for status. */
#include "upkeep/renewals.h"
#include "verbs/status_priv.h"

/* How the last round went that renewed what is locked there. */
static void add_locks (JsonObject *facts, const EcfsArchive *archive, const EcfsArchiveEndpoint *endpoint)
{
    const int64_t lock_us = ecfs_endpoint_lock_us (endpoint->endpoint);
    EcfsRenewed last;
    if (lock_us == 0)
        return;
    ecfs_renewed_load (&last, ecfs_archive_directory (archive), &endpoint->uuid);
    JsonObject *locks = json_object_new ();
    json_object_set_int_member (locks, "seconds", lock_us / G_USEC_PER_SEC);
    json_object_set_int_member (locks, "asked", (int64_t) last.n_asked);
    json_object_set_int_member (locks, "renewed", (int64_t) last.n_renewed);
    json_object_set_int_member (locks, "refused", (int64_t) last.n_refused);
    if (last.ended_s > 0)
        json_object_set_int_member (locks, "ended", last.ended_s);
    if (last.error != NULL)
        json_object_set_string_member (locks, "error", last.error);
    json_object_set_object_member (facts, "locks", locks);
    ecfs_renewed_clear (&last);
}

bool ecfs_status_add_retained (JsonObject *status, EcfsArchive *archive, uint64_t *ret_n_stripes, GError **error)
{
    uint64_t n_stripes = 0;
    g_autoptr (JsonArray) retained = json_array_new ();
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        int64_t retain_us = endpoint->endpoint == NULL || !ecfs_archive_endpoint_counts (endpoint)
                                ? ECFS_RETAIN_NOT
                                : ecfs_endpoint_retain_us (endpoint->endpoint);
        EcfsRetained sum;
        if (retain_us == ECFS_RETAIN_NOT)
            continue;
        if (!ecfs_catalog_retained (ecfs_archive_catalog (archive), endpoint->id, &sum, error))
            return false;
        JsonObject *facts = json_object_new ();
        json_object_set_string_member (facts, "endpoint", endpoint->name);
        json_object_set_string_member (facts, "delete", retain_us == ECFS_RETAIN_ALWAYS ? "never" : "after");
        if (retain_us != ECFS_RETAIN_ALWAYS)
            json_object_set_int_member (facts, "after", retain_us / G_USEC_PER_SEC);
        json_object_set_int_member (facts, "stripes", (int64_t) sum.n_stripes);
        json_object_set_int_member (facts, "bytes", (int64_t) sum.bytes);
        add_locks (facts, archive, endpoint);
        json_array_add_object_element (retained, facts);
        n_stripes += sum.n_stripes;
    }
    if (json_array_get_length (retained) > 0)
        json_object_set_array_member (status, "retained", g_steal_pointer (&retained));
    *ret_n_stripes = n_stripes;
    return true;
}
