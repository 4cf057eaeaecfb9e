/* Draining an endpoint, changing its state and taking it out through the control socket: control_priv.h tells the lines
 * of `drain`, which are those of `recode` but for what is asked. */
#include "verbs/drain.h"
#include "control/control_priv.h"

/* The mount's side */

static GStrv names_member (JsonObject *request, const char *member)
{
    g_autoptr (GStrvBuilder) names = g_strv_builder_new ();
    JsonNode *node = json_object_get_member (request, member);
    JsonArray *array = node != NULL && JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
    for (guint i = 0; array != NULL && i < json_array_get_length (array); i++) {
        JsonNode *name = json_array_get_element (array, i);
        if (JSON_NODE_HOLDS_VALUE (name) && json_node_get_string (name) != NULL)
            g_strv_builder_add (names, json_node_get_string (name));
    }
    return array == NULL ? NULL : g_strv_builder_end (names);
}

static bool serve (const EcfsControlClient *client, JsonObject *request, const EcfsTransferOptions *transfer,
                   GError **error)
{
    g_auto (GStrv) towards = names_member (request, "towards");
    const EcfsDrainHere what = {.name = ecfs_control_text (request, "endpoint"),
                                .towards = (const char *const *) towards,
                                .transfer = transfer};
    return (what.name != NULL || ecfs_fail (error, EINVAL, "control socket: \"endpoint\" is missing or wrong")) &&
           ecfs_drain_here (client->archive, &what, error);
}

void ecfs_control_drain (const EcfsControlClient *client, EcfsLines *lines, JsonObject *request)
{
    ecfs_control_serve_transfer (client, lines, request, serve);
}
