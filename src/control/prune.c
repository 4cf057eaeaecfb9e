/* `prune` on the control socket: ecfs-fsck asks the mount to remove stripes that nothing knows. */
#include "upkeep/prune.h"
#include "control/control_priv.h"

/* Text from anybody. */
static bool parse_stripe (JsonNode *node, EcfsPruneStripe *ret_stripe)
{
    JsonObject *object = JSON_NODE_HOLDS_OBJECT (node) ? json_node_get_object (node) : NULL;
    const char *uuid = object == NULL ? NULL : ecfs_control_text (object, "object");
    int64_t index = object == NULL ? -1 : ecfs_control_number (object, "index");
    *ret_stripe = (EcfsPruneStripe){.index = (uint16_t) index};
    if (object != NULL)
        ret_stripe->instance = (uint64_t) ecfs_control_number (object, "instance");
    return uuid != NULL && index >= 0 && index <= UINT16_MAX && ecfs_uuid_parse (uuid, &ret_stripe->object);
}

bool ecfs_control_prune (EcfsArchive *archive, JsonObject *request, JsonObject *reply, GError **error)
{
    JsonNode *node = json_object_get_member (request, "stripes");
    JsonArray *asked = node != NULL && JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
    guint n = asked == NULL ? 0 : json_array_get_length (asked);
    EcfsPruneStripe stripes[ECFS_PRUNE_MOST];
    g_autoptr (GError) why = NULL;
    if (n == 0 || n > ECFS_PRUNE_MOST)
        return ecfs_fail (error, EINVAL, "control socket: \"stripes\" makes no sense");
    for (guint i = 0; i < n; i++)
        if (!parse_stripe (json_array_get_element (asked, i), &stripes[i]))
            return ecfs_fail (error, EINVAL, "control socket: \"stripes\" makes no sense");
    if (!ecfs_prune_here (archive, ecfs_control_number (request, "endpoint"), stripes, n,
                          ecfs_control_flag (request, "unrecovered"), &why)) {
        g_autofree char *reason = g_utf8_make_valid (why->message, -1);
        json_object_set_string_member (reply, "reason", reason);
    }
    JsonArray *removed = json_array_new (), *unrecovered = json_array_new ();
    for (guint i = 0; i < n; i++) {
        json_array_add_boolean_element (removed, stripes[i].removed);
        json_array_add_boolean_element (unrecovered, stripes[i].is_unrecovered);
    }
    json_object_set_array_member (reply, "removed", removed);
    json_object_set_array_member (reply, "unrecovered", unrecovered);
    return true;
}
