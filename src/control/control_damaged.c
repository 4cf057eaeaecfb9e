/* `damaged` on the control socket: a process that reads beside the mount tells it of damaged stripes. */
#include "control/control_priv.h"
#include "upkeep/repairer.h"
#include "archive/sightings.h"

#define ANSWER_MS 10000 /* who reads must not hang because the mount does */

/* Text from anybody. */
static bool parse_sighting (JsonObject *object, EcfsSighting *ret_sighting)
{
    const char *uuid = ecfs_control_text (object, "object"), *reason = ecfs_control_text (object, "reason");
    int64_t index = ecfs_control_number (object, "index"), instance = ecfs_control_number (object, "instance");
    *ret_sighting = (EcfsSighting){.index = (uint16_t) index,
                                   .instance = (uint64_t) instance,
                                   .gone = ecfs_control_flag (object, "gone"),
                                   .lies = ecfs_control_flag (object, "lies"),
                                   .reason = (char *) reason};
    return uuid != NULL && reason != NULL && index >= 0 && index <= 255 && instance > 0 &&
           ecfs_uuid_parse (uuid, &ret_sighting->object);
}

bool ecfs_control_damaged (EcfsArchive *archive, JsonObject *request, GError **error)
{
    unsigned n_queued;
    JsonNode *node = json_object_get_member (request, "stripes");
    JsonArray *stripes = node != NULL && JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
    g_autoptr (GArray) sightings = g_array_new (FALSE, FALSE, sizeof (EcfsSighting)); /* of borrowed text */
    for (guint i = 0; stripes != NULL && i < json_array_get_length (stripes); i++) {
        EcfsSighting sighting;
        JsonNode *element = json_array_get_element (stripes, i);
        if (!JSON_NODE_HOLDS_OBJECT (element) || !parse_sighting (json_node_get_object (element), &sighting))
            return ecfs_fail (error, EINVAL, "control socket: \"stripes\" makes no sense");
        g_array_append_val (sightings, sighting);
    }
    if (!ecfs_sightings_queue (ecfs_archive_catalog (archive), sightings, &n_queued, error))
        return false;
    ecfs_archive_hurry_repairs (archive);
    return true;
}

static JsonObject *describe (const EcfsSighting *sighting)
{
    char uuid[ECFS_UUID_TEXT_SIZE];
    JsonObject *object = json_object_new ();
    g_autofree char *reason = g_utf8_make_valid (sighting->reason, -1);
    ecfs_uuid_text (&sighting->object, uuid);
    json_object_set_string_member (object, "object", uuid);
    json_object_set_int_member (object, "index", sighting->index);
    json_object_set_int_member (object, "instance", (int64_t) sighting->instance);
    json_object_set_boolean_member (object, "gone", sighting->gone);
    json_object_set_boolean_member (object, "lies", sighting->lies);
    json_object_set_string_member (object, "reason", reason);
    return object;
}

bool ecfs_control_tell_damage (const char *archive_dir, const GArray *sightings, GError **error)
{
    JsonObject *object = json_object_new ();
    JsonArray *stripes = json_array_new ();
    for (guint i = 0; i < sightings->len; i++)
        json_array_add_object_element (stripes, describe (&g_array_index (sightings, EcfsSighting, i)));
    json_object_set_string_member (object, "verb", "damaged");
    json_object_set_array_member (object, "stripes", stripes);
    g_autoptr (JsonNode) request = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (request, object);
    g_autoptr (JsonNode) answer = ecfs_control_ask (archive_dir, request, ANSWER_MS, error);
    return answer != NULL;
}

bool ecfs_sightings_hand_over (EcfsArchive *archive, const GArray *sightings, GError **error)
{
    unsigned n_queued;
    const char *directory = ecfs_archive_directory (archive);
    g_autoptr (GError) why = NULL;
    if (ecfs_control_tell_damage (directory, sightings, &why))
        return true;
    if (ecfs_errno (why) != ENOTCONN) {
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    }
    g_autoptr (EcfsArchive) writer = ecfs_archive_open (directory, 0, error);
    return writer != NULL && ecfs_sightings_queue (ecfs_archive_catalog (writer), sightings, &n_queued, error);
}
