/* `sha256` on the control socket: a deep check beside the mount tells what content without a SHA-256 has for one. */
#include "control/control_priv.h"

static bool parse (JsonObject *object, EcfsUuid *ret_object, uint8_t *ret_sha256)
{
    const char *uuid = ecfs_control_text (object, "object"), *sha256 = ecfs_control_text (object, "sha256");
    gsize size = 0;
    g_autofree guchar *bytes = sha256 == NULL ? NULL : g_base64_decode (sha256, &size);
    if (uuid == NULL || size != ECFS_SHA256_SIZE || !ecfs_uuid_parse (uuid, ret_object))
        return false;
    memcpy (ret_sha256, bytes, size);
    return true;
}

bool ecfs_control_sha256 (EcfsArchive *archive, JsonObject *request, GError **error)
{
    JsonNode *node = json_object_get_member (request, "objects");
    JsonArray *objects = node != NULL && JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
    for (guint i = 0; objects != NULL && i < json_array_get_length (objects); i++) {
        EcfsUuid object;
        uint8_t sha256[ECFS_SHA256_SIZE];
        JsonNode *element = json_array_get_element (objects, i);
        if (!JSON_NODE_HOLDS_OBJECT (element) || !parse (json_node_get_object (element), &object, sha256))
            return ecfs_fail (error, EINVAL, "control socket: \"objects\" makes no sense");
        if (!ecfs_catalog_object_set_sha256 (ecfs_archive_catalog (archive), &object, sha256, error))
            return false;
    }
    return true;
}
