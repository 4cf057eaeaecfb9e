/* `sha256` on the control socket: a deep check beside the mount tells what content without a SHA-256 has for one. */
#include "control/control_priv.h"
#include "fsck/fsck_priv.h"

#define ANSWER_MS 60000

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
        if (!ecfs_catalog_object_set_sha256 (archive->catalog, &object, sha256, error))
            return false;
    }
    return true;
}

/* Who asks */

static JsonObject *describe (const EcfsCheckedContent *content)
{
    char uuid[ECFS_UUID_TEXT_SIZE];
    JsonObject *object = json_object_new ();
    g_autofree char *sha256 = g_base64_encode (content->sha256, sizeof content->sha256);
    ecfs_uuid_text (&content->object->uuid, uuid);
    json_object_set_string_member (object, "object", uuid);
    json_object_set_string_member (object, "sha256", sha256);
    return object;
}

static bool tell_mount (const EcfsFsckRun *self, const GArray *contents, GError **error)
{
    JsonObject *object = json_object_new ();
    JsonArray *objects = json_array_new ();
    for (guint i = 0; i < contents->len; i++)
        if (g_array_index (contents, EcfsCheckedContent, i).is_new)
            json_array_add_object_element (objects, describe (&g_array_index (contents, EcfsCheckedContent, i)));
    json_object_set_string_member (object, "verb", "sha256");
    json_object_set_array_member (object, "objects", objects);
    g_autoptr (JsonNode) request = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (request, object);
    g_autoptr (JsonNode) answer = ecfs_control_ask (self->archive->directory, request, ANSWER_MS, error);
    return answer != NULL;
}

static bool set_here (const EcfsFsckRun *self, const GArray *contents, GError **error)
{
    for (guint i = 0; i < contents->len; i++) {
        const EcfsCheckedContent *content = &g_array_index (contents, EcfsCheckedContent, i);
        if (content->is_new && !ecfs_catalog_object_set_sha256 (self->writer->archive->catalog, &content->object->uuid,
                                                                content->sha256, error))
            return false;
    }
    return true;
}

bool ecfs_fsck_keep_sha256 (EcfsFsckRun *self, const GArray *contents, GError **error)
{
    uint64_t n_new = 0;
    for (guint i = 0; i < contents->len; i++)
        n_new += g_array_index (contents, EcfsCheckedContent, i).is_new;
    if (n_new == 0 || !ecfs_fsck_may_repair (self))
        return true;
    bool kept = ecfs_fsck_open_writer (self, error) &&
                (self->writer->mounted ? tell_mount (self, contents, error) : set_here (self, contents, error));
    self->sums.n_sha256 += kept ? n_new : 0;
    return kept;
}
