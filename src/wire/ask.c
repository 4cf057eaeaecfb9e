/* Who asks a mount: one request, one answer. */
#include "archive/common.h"
#include "wire/wire.h"

#define ANSWER_MS 10000 /* who reads must not hang because the mount does */

JsonNode *ecfs_control_call (const char *archive_dir, JsonNode *request, GError **error)
{
    return ecfs_control_ask (archive_dir, request, -1, error);
}

static JsonNode *ask (int fd, JsonNode *request, int timeout_ms, GError **error)
{
    EcfsLines lines;
    if (fd < 0)
        return NULL;
    ecfs_lines_init (&lines, fd);
    g_autofree char *text = json_to_string (request, FALSE);
    g_autofree char *line =
        ecfs_lines_send (&lines, text, -1, error) ? ecfs_lines_wait (&lines, SIZE_MAX, timeout_ms, error) : NULL;
    ecfs_lines_clear (&lines);
    g_autoptr (JsonNode) reply = line == NULL ? NULL : ecfs_control_parse (line, error);
    if (reply == NULL || !ecfs_control_check (json_node_get_object (reply), error))
        return NULL;
    bool good =
        json_object_has_member (json_node_get_object (reply), "ok") ||
        ecfs_fail (error, EPROTO, "control socket: the answer makes no sense: is the mount of another version?");
    return good ? g_steal_pointer (&reply) : NULL;
}

JsonNode *ecfs_control_ask (const char *archive_dir, JsonNode *request, int timeout_ms, GError **error)
{
    return ask (ecfs_control_connect (archive_dir, error), request, timeout_ms, error);
}

JsonNode *ecfs_control_ask_reader (const char *archive_dir, JsonNode *request, int timeout_ms, GError **error)
{
    return ask (ecfs_control_connect_reader (archive_dir, error), request, timeout_ms, error);
}

static bool fail_silent (const char *archive_dir, GError **error)
{
    EcfsHolder holder = {0};
    if (!ecfs_archive_holder (archive_dir, &holder) || holder.mountpoint == NULL)
        (void) !ecfs_fail (error, ETIMEDOUT, "%s: its mount does not answer: its process was stopped, or hangs",
                           archive_dir);
    else
        (void) !ecfs_fail (error, ETIMEDOUT,
                           "%s: its mount on %s does not answer: its process, %ld, was stopped, or hangs", archive_dir,
                           holder.mountpoint, (long) holder.pid);
    ecfs_holder_clear (&holder);
    return true;
}

bool ecfs_control_is_silent (const char *archive_dir, GError **error)
{
    JsonObject *object = json_object_new ();
    json_object_set_string_member (object, "verb", "ping");
    g_autoptr (JsonNode) request = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (request, object);
    g_autoptr (GError) why = NULL;
    g_autoptr (JsonNode) answer = ecfs_control_ask (archive_dir, request, ANSWER_MS, &why);
    /* One of an earlier ecfs says that it does not know the verb. */
    return answer == NULL && ecfs_errno (why) == ETIMEDOUT && fail_silent (archive_dir, error);
}

static JsonObject *describe (const EcfsSighting *sighting)
{
    char uuid[ECFS_UUID_TEXT_SIZE];
    JsonObject *object = json_object_new ();
    g_autofree char *reason = g_utf8_make_valid (sighting->reason != NULL ? sighting->reason : "", -1);
    ecfs_uuid_text (&sighting->object, uuid);
    json_object_set_string_member (object, "object", uuid);
    json_object_set_int_member (object, "index", sighting->index);
    json_object_set_int_member (object, "instance", (int64_t) sighting->instance);
    json_object_set_boolean_member (object, "gone", sighting->gone);
    json_object_set_boolean_member (object, "lies", sighting->lies);
    json_object_set_boolean_member (object, "back", sighting->back);
    json_object_set_string_member (object, "reason", reason);
    return object;
}

static bool tell_damage (const char *archive_dir, const GArray *sightings, GError **error)
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
    if (tell_damage (directory, sightings, &why))
        return true;
    if (ecfs_errno (why) != ENOTCONN) {
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    }
    EcfsArchive *writer = ecfs_archive_open (directory, ECFS_ARCHIVE_MEMBER, error);
    bool queued = writer != NULL && ecfs_sightings_queue (ecfs_archive_catalog (writer), sightings, &n_queued, error);
    ecfs_archive_close (writer);
    return queued;
}
