/* `damaged` on the control socket: a process that reads beside the mount tells it of damaged stripes. */
#include "archive/sightings.h"
#include "control/control_priv.h"
#include "upkeep/repairer.h"

/* Text from anybody. */
static bool parse_sighting (JsonObject *object, EcfsSighting *ret_sighting)
{
    const char *uuid = ecfs_control_text (object, "object"), *reason = ecfs_control_text (object, "reason");
    int64_t index = ecfs_control_number (object, "index"), instance = ecfs_control_number (object, "instance");
    *ret_sighting = (EcfsSighting){.index = (uint16_t) index,
                                   .instance = (uint64_t) instance,
                                   .gone = ecfs_control_flag (object, "gone"),
                                   .lies = ecfs_control_flag (object, "lies"),
                                   .back = ecfs_control_flag (object, "back"),
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
