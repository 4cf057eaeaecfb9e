/* How far a mount is that follows what another machine writes: it notes that beside its catalog. */
#include "verbs/status_priv.h"

JsonObject *ecfs_status_followed (const char *directory)
{
    g_autofree char *path = g_build_filename (directory, ECFS_FOLLOWED_NAME, NULL), *text = NULL;
    if (!g_file_get_contents (path, &text, NULL, NULL))
        return NULL; /* nothing follows here, or did ever */
    g_autoptr (JsonNode) node = json_from_string (text, NULL);
    return node == NULL || !JSON_NODE_HOLDS_OBJECT (node) ? NULL : json_node_dup_object (node);
}

void ecfs_status_add_follow (JsonObject *status, EcfsArchive *archive)
{
    const char *directory = ecfs_archive_directory (archive);
    JsonObject *facts = ecfs_status_followed (directory);
    if (facts == NULL)
        return;
    json_object_set_boolean_member (facts, "lives", ecfs_archive_is_held (directory));
    json_object_set_object_member (status, "follow", facts);
}
