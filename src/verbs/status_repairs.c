/* What is known of damage, for status and info. */
#include "verbs/status_priv.h"

#include "upkeep/repairer.h"

#define MOST_TOLD 100 /* stripes that are told one by one */

void ecfs_status_add_text (JsonObject *object, const char *member, const char *text)
{
    g_autofree char *utf8 = g_utf8_make_valid (text, -1);
    json_object_set_string_member (object, member, utf8);
}

void ecfs_status_add_uuid (JsonObject *object, const char *member, const EcfsUuid *uuid)
{
    char text[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (uuid, text);
    json_object_set_string_member (object, member, text);
}

static JsonObject *repair_facts (EcfsArchive *archive, const EcfsRepairRow *row)
{
    uint64_t ino;
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (archive, row->endpoint);
    JsonObject *facts = json_object_new ();
    if (ecfs_catalog_object_file (catalog, row->object, &ino, NULL)) { /* else it was deleted just now */
        g_autofree char *path = ecfs_catalog_path (catalog, ino);
        ecfs_status_add_text (facts, "path", path);
    }
    json_object_set_int_member (facts, "stripe", row->index);
    if (endpoint != NULL)
        json_object_set_string_member (facts, "endpoint", endpoint->name);
    json_object_set_string_member (facts, "state", row->gone ? "gone" : "damaged");
    json_object_set_int_member (facts, "since", row->found_ns / 1000000000);
    ecfs_status_add_text (facts, "reason", row->reason);
    return facts;
}

void ecfs_status_add_repairs (JsonObject *status, EcfsArchive *archive, const GArray *rows)
{
    JsonObject *repairs = json_object_new ();
    JsonArray *stripes = json_array_new ();
    json_object_set_boolean_member (repairs, "auto", !ecfs_archive_config (archive)->repair_off);
    json_object_set_int_member (repairs, "queued", rows->len);
    int64_t first_ns = INT64_MAX;
    for (guint i = 0; i < rows->len; i++)
        first_ns = MIN (first_ns, g_array_index (rows, EcfsRepairRow, i).found_ns);
    if (rows->len > 0)
        json_object_set_int_member (repairs, "since", first_ns / 1000000000);
    for (guint i = 0; i < MIN (rows->len, MOST_TOLD); i++)
        json_array_add_object_element (stripes, repair_facts (archive, &g_array_index (rows, EcfsRepairRow, i)));
    json_object_set_array_member (repairs, "stripes", stripes);
    json_object_set_object_member (status, "repairs", repairs);
    EcfsRepairer *repairer = ecfs_archive_service (archive, ECFS_SERVICE_REPAIR);
    if (repairer == NULL)
        return;
    EcfsRepairerFacts facts;
    ecfs_repairer_facts (repairer, &facts);
    json_object_set_int_member (repairs, "repaired", (int64_t) facts.n_repaired);
    json_object_set_int_member (repairs, "rebuilt", (int64_t) facts.n_rebuilt);
    json_object_set_int_member (repairs, "unstored", (int64_t) facts.n_unstored);
    json_object_set_int_member (repairs, "read_bytes", (int64_t) facts.read_bytes);
    json_object_set_int_member (repairs, "written_bytes", (int64_t) facts.written_bytes);
    json_object_set_int_member (repairs, "failing", (int64_t) facts.n_failing);
    if (facts.failure != NULL)
        ecfs_status_add_text (repairs, "failure", facts.failure);
    ecfs_repairer_facts_clear (&facts);
}

static const EcfsRepairRow *find_repair (const GArray *repairs, unsigned index)
{
    for (guint i = 0; i < repairs->len; i++) {
        const EcfsRepairRow *row = &g_array_index (repairs, EcfsRepairRow, i);
        if (row->index == index)
            return row;
    }
    return NULL;
}

void ecfs_status_add_stripe (JsonObject *facts, const EcfsArchiveEndpoint *endpoint, const GArray *repairs,
                             unsigned index)
{
    const EcfsRepairRow *repair = find_repair (repairs, index);
    if (repair == NULL) {
        json_object_set_string_member (facts, "state", ecfs_archive_reaches (endpoint) ? "stored" : "unreachable");
        return;
    }
    json_object_set_string_member (facts, "state", repair->gone ? "gone" : "damaged");
    json_object_set_int_member (facts, "since", repair->found_ns / 1000000000);
    ecfs_status_add_text (facts, "reason", repair->reason);
}
