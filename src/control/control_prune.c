/* `prune` on the control socket: ecfs-fsck asks the mount to remove stripes that nothing knows. */
#include "control/control_priv.h"
#include "upkeep/prune.h"

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

static JsonNode *request_for (int64_t endpoint, const EcfsPruneStripe *stripes, size_t n_stripes, bool unrecovered)
{
    JsonObject *object = json_object_new ();
    JsonArray *array = json_array_new ();
    for (size_t i = 0; i < n_stripes; i++) {
        char uuid[ECFS_UUID_TEXT_SIZE];
        JsonObject *one = json_object_new ();
        ecfs_uuid_text (&stripes[i].object, uuid);
        json_object_set_string_member (one, "object", uuid);
        json_object_set_int_member (one, "index", stripes[i].index);
        json_object_set_int_member (one, "instance", (int64_t) stripes[i].instance);
        json_array_add_object_element (array, one);
    }
    json_object_set_string_member (object, "verb", "prune");
    json_object_set_int_member (object, "endpoint", endpoint);
    json_object_set_boolean_member (object, "unrecovered", unrecovered);
    json_object_set_array_member (object, "stripes", array);
    JsonNode *request = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (request, object);
    return request;
}

static bool flag_at (JsonObject *answer, const char *name, guint i)
{
    JsonNode *node = json_object_get_member (answer, name);
    JsonArray *flags = node != NULL && JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
    return flags != NULL && i < json_array_get_length (flags) && json_array_get_boolean_element (flags, i);
}

bool ecfs_prune_mounted (const char *archive_dir, int64_t endpoint, EcfsPruneStripe *stripes, size_t n_stripes,
                         bool unrecovered, GError **error)
{
    g_autoptr (JsonNode) request = request_for (endpoint, stripes, n_stripes, unrecovered);
    g_autoptr (JsonNode) answer = ecfs_control_call (archive_dir, request, error);
    if (answer == NULL)
        return false;
    JsonObject *object = json_node_get_object (answer);
    const char *reason = ecfs_control_text (object, "reason");
    for (guint i = 0; i < n_stripes; i++) {
        stripes[i].removed = flag_at (object, "removed", i);
        stripes[i].is_unrecovered = flag_at (object, "unrecovered", i);
    }
    return reason == NULL || ecfs_fail (error, EAGAIN, "%s", reason);
}
