/* Marks: moments with a name, of which everything is kept. */
#include "verbs/mark.h"

#include "archive/common.h"
#include "catalog/marks.h"
#include "ecfs/ecfs.h"
#include "verbs/verbs.h"
#include "wire/wire.h"

bool ecfs_mark_here (EcfsArchive *archive, const char *name, bool removes, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    return removes ? ecfs_catalog_mark_remove (catalog, name, error) : ecfs_catalog_mark_add (catalog, name, error);
}

static bool mark_mounted (const char *directory, const char *name, bool removes, GError **error)
{
    JsonObject *request = json_object_new ();
    json_object_set_string_member (request, "verb", "mark");
    json_object_set_string_member (request, "name", name);
    json_object_set_boolean_member (request, "remove", removes);
    g_autoptr (JsonNode) question = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (question, request);
    g_autoptr (JsonNode) answer = ecfs_control_call (directory, question, error);
    return answer != NULL;
}

bool ecfs_mark (Ecfs *self, const char *name, bool removes, GError **error)
{
    const char *directory = ecfs_archive_directory (self->archive);
    if (!self->writable)
        return ecfs_fail (error, EROFS, "%s is open for reading", directory);
    if (!ecfs_mark_check (name, error))
        return false;
    if (self->mounted)
        return mark_mounted (directory, name, removes, error);
    return ecfs_mark_here (self->archive, name, removes, error) &&
           (ecfs_archive_store_journal (self->archive, NULL, NULL, error) || ecfs_prefix (error, ECFS_MARKED_HERE));
}

JsonArray *ecfs_mark_facts (EcfsArchive *archive, GError **error)
{
    g_autoptr (GArray) marks = ecfs_catalog_marks (ecfs_archive_catalog (archive), error);
    if (marks == NULL)
        return NULL;
    JsonArray *all = json_array_new ();
    for (guint i = 0; i < marks->len; i++) {
        uint64_t bytes;
        const EcfsMark *mark = &g_array_index (marks, EcfsMark, i);
        if (!ecfs_catalog_mark_bytes (ecfs_archive_catalog (archive), mark, &bytes, error)) {
            json_array_unref (all);
            return NULL;
        }
        JsonObject *facts = json_object_new ();
        json_object_set_string_member (facts, "name", mark->name);
        json_object_set_int_member (facts, "time_ns", mark->time_ns);
        json_object_set_int_member (facts, "bytes", (int64_t) bytes);
        json_array_add_object_element (all, facts);
    }
    return all;
}

char *ecfs_marks (Ecfs *self, GError **error)
{
    JsonArray *marks = ecfs_mark_facts (self->archive, error);
    if (marks == NULL)
        return NULL;
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_ARRAY);
    json_node_take_array (node, marks);
    return json_to_string (node, TRUE);
}
