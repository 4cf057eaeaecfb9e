/* What content without a SHA-256 has for one, as a deep check found it: kept here, or by the mount that has the
 * archive. */
#include "fsck/fsck_priv.h"
#include "wire/wire.h"

#define ANSWER_MS 60000

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
    g_autoptr (JsonNode) answer = ecfs_control_ask (ecfs_archive_directory (self->archive), request, ANSWER_MS, error);
    return answer != NULL;
}

static bool set_here (const EcfsFsckRun *self, const GArray *contents, GError **error)
{
    for (guint i = 0; i < contents->len; i++) {
        const EcfsCheckedContent *content = &g_array_index (contents, EcfsCheckedContent, i);
        if (content->is_new && !ecfs_catalog_object_set_sha256 (ecfs_archive_catalog (self->writer->archive),
                                                                &content->object->uuid, content->sha256, error))
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
    bool kept = ecfs_fsck_open_noter (self, error) &&
                (self->writer->mounted ? tell_mount (self, contents, error) : set_here (self, contents, error));
    self->sums.n_sha256 += kept ? n_new : 0;
    return kept;
}
