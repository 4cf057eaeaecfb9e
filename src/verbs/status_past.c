/* What history holds, for status. */
#include "verbs/status_priv.h"

#include "catalog/brake.h"
#include "catalog/retention.h"
#include "upkeep/upkeep.h"
#include "verbs/mark.h"

#define BATCH 4096 /* stripes that are read at once */

/* What only the past has. */
static bool add_up (EcfsArchive *archive, JsonObject *past, GError **error)
{
    int64_t after = 0;
    uint64_t n_stripes = 0, bytes = 0;
    for (;;) {
        g_autoptr (GArray) some = ecfs_catalog_removed (ecfs_archive_catalog (archive), after, BATCH, error);
        if (some == NULL)
            return false;
        for (guint i = 0; i < some->len; i++)
            bytes += g_array_index (some, EcfsRemovedStripe, i).bytes;
        n_stripes += some->len;
        if (some->len == 0)
            break;
        after = g_array_index (some, EcfsRemovedStripe, some->len - 1).id;
    }
    json_object_set_int_member (past, "stripes", (int64_t) n_stripes);
    json_object_set_int_member (past, "bytes", (int64_t) bytes);
    return true;
}

/* Up to when it was let go. */
static bool add_released (EcfsArchive *archive, JsonObject *past, GError **error)
{
    EcfsReleased released;
    if (!ecfs_catalog_released (ecfs_archive_catalog (archive), &released, error))
        return false;
    if (released.reason == ECFS_RELEASE_NONE)
        return true;
    json_object_set_double_member (past, "released", (double) released.time_ns / 1e9);
    json_object_set_string_member (past, "released_for", released.reason == ECFS_RELEASE_ROOM ? "room" : "history_max");
    return true;
}

/* A mass deletion of which everything is kept. */
static bool add_brake (JsonObject *status, EcfsArchive *archive, GError **error)
{
    EcfsBrake brake;
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    if (!ecfs_catalog_brake (catalog, &brake, error))
        return false;
    if (brake.until_age_ns == 0 || ecfs_archive_config (archive)->delete_brake == 0)
        return true;
    const int64_t left_ns = brake.until_age_ns - ecfs_catalog_age_ns (catalog);
    g_autofree char *moment = ecfs_brake_moment (&brake), *command = ecfs_brake_command (archive, &brake);
    JsonObject *facts = json_object_new ();
    json_object_set_int_member (facts, "lost", (int64_t) (brake.last.n_lost - brake.from.n_lost));
    json_object_set_int_member (facts, "files", (int64_t) brake.last.n_files);
    json_object_set_string_member (facts, "moment", moment);
    json_object_set_double_member (facts, "until",
                                   (double) g_get_real_time () / G_USEC_PER_SEC + (double) left_ns / 1e9);
    ecfs_status_add_text (facts, "command", command);
    json_object_set_object_member (status, "brake", facts);
    return true;
}

/* A snapshot that is far smaller than the one before it. */
static bool add_shrunk (JsonObject *status, EcfsArchive *archive, GError **error)
{
    const int64_t least_ns = ecfs_archive_config (archive)->history_min_us * 1000;
    g_autoptr (GArray) rows = ecfs_catalog_snapshots (ecfs_archive_catalog (archive), error);
    if (rows == NULL)
        return false;
    const EcfsSnapshotRow *shrunk = ecfs_snapshots_shrunk (rows, g_get_real_time () * 1000 - least_ns);
    if (shrunk == NULL)
        return true;
    JsonObject *facts = json_object_new ();
    json_object_set_double_member (facts, "time", (double) shrunk->time_ns / 1e9);
    json_object_set_int_member (facts, "bytes", (int64_t) shrunk->bytes);
    json_object_set_double_member (facts, "before", (double) shrunk[1].time_ns / 1e9);
    json_object_set_int_member (facts, "bytes_before", (int64_t) shrunk[1].bytes);
    json_object_set_object_member (status, "shrunk", facts);
    return true;
}

static bool add_marks (JsonObject *status, EcfsArchive *archive, GError **error)
{
    JsonArray *marks = ecfs_mark_facts (archive, error);
    if (marks == NULL)
        return false;
    json_object_set_array_member (status, "marks", marks);
    return true;
}

static bool any_full (EcfsArchive *archive)
{
    bool full = false;
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive) && !full; i++) {
        EcfsEndpointHealth health = {0};
        if (ecfs_archive_endpoint (archive, i)->endpoint == NULL ||
            ecfs_archive_endpoint (archive, i)->state != ECFS_ENDPOINT_ACTIVE)
            continue;
        ecfs_endpoint_health (ecfs_archive_endpoint (archive, i)->endpoint, &health);
        full = health.full && !health.down;
        ecfs_endpoint_health_clear (&health);
    }
    return full;
}

bool ecfs_status_add_past (JsonObject *status, EcfsArchive *archive, GError **error)
{
    const EcfsConfig *config = ecfs_archive_config (archive);
    JsonObject *past = json_object_new ();
    json_object_set_object_member (status, "past", past);
    const bool only_reads = !ecfs_archive_check_writable (archive, NULL); /* journals do not tell what waits */
    if ((!only_reads && !add_up (archive, past, error)) || !add_released (archive, past, error) ||
        !add_brake (status, archive, error) || !add_shrunk (status, archive, error) ||
        !add_marks (status, archive, error))
        return false;
    if (config->history_max > 0)
        json_object_set_int_member (past, "limit", (int64_t) config->history_max);
    if (config->history_us > 0 && !only_reads && json_object_get_int_member (past, "bytes") > 0 && any_full (archive))
        json_object_set_double_member (past, "kept_though_full",
                                       (double) ecfs_config_history_least_us (config) / G_USEC_PER_SEC);
    return true;
}
