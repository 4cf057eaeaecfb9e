/* `undelete` on the control socket. */
#include "verbs/undelete.h"
#include "control/control_priv.h"

/* NULL: they are missing, or one of them is no text. */
static GStrv paths_of (JsonObject *request)
{
    JsonNode *node = json_object_get_member (request, "paths");
    JsonArray *array = node != NULL && JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
    g_autoptr (GStrvBuilder) paths = g_strv_builder_new ();
    for (guint i = 0; array != NULL && i < json_array_get_length (array); i++) {
        JsonNode *text = json_array_get_element (array, i);
        const char *escaped = JSON_NODE_HOLDS_VALUE (text) ? json_node_get_string (text) : NULL;
        g_autofree char *path = escaped == NULL ? NULL : ecfs_control_unescape (escaped);
        if (path == NULL)
            return NULL;
        g_strv_builder_add (paths, path);
    }
    return array == NULL ? NULL : g_strv_builder_end (paths);
}

static bool serve (const EcfsControlClient *client, JsonObject *request, const EcfsTransferOptions *transfer,
                   GError **error)
{
    const char *past_text = ecfs_control_text (request, "past");
    g_autofree char *past = past_text == NULL ? NULL : ecfs_control_unescape (past_text);
    g_auto (GStrv) paths = paths_of (request);
    const EcfsUndeleteHere what = {.past = past,
                                   .paths = (const char *const *) paths,
                                   .at_ns = ecfs_control_number (request, "at_ns"),
                                   .looked_us = ecfs_control_number (request, "looked_us"),
                                   .keep = ecfs_control_flag (request, "keep"),
                                   .notes = ecfs_control_text (request, "prune_notes"),
                                   .transfer = transfer,
                                   .watch = &client->ops->names};
    return ((paths != NULL && past != NULL) ||
            ecfs_fail (error, EINVAL, "control socket: \"paths\" or \"past\" is missing or wrong")) &&
           ecfs_undelete_here (client->archive, &what, error);
}

void ecfs_control_undelete (const EcfsControlClient *client, EcfsLines *lines, JsonObject *request)
{
    ecfs_control_serve_transfer (client, lines, request, serve);
}
