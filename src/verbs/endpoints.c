/* Adding endpoints, changing their state, replacing and removing them: by the mount where there is one. */
#include "verbs/endpoints.h"

#include "archive/key_watch.h"
#include "archive/places_gone.h"
#include "verbs/verbs.h"
#include "wire/wire.h"

/* One request, one answer; @verb with the name of an endpoint, and a state where there is one to be set. */
static JsonNode *ask (const char *directory, const char *verb, const char *name, const char *state, GError **error)
{
    JsonObject *object = json_object_new ();
    json_object_set_string_member (object, "verb", verb);
    json_object_set_string_member (object, "endpoint", name);
    if (state != NULL)
        json_object_set_string_member (object, "state", state);
    g_autoptr (JsonNode) request = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (request, object);
    return ecfs_control_call (directory, request, error);
}

/* An archive that is an old copy by what this endpoint says is opened, but not started. */
bool ecfs_distrust_endpoint (const char *archive_dir, const char *name, bool undo, GError **error)
{
    GError *reason = NULL;
    g_autoptr (JsonNode) answer = ask (archive_dir, "endpoint-state", name, undo ? "active" : "distrusted", &reason);
    if (answer == NULL && ecfs_errno (reason) != ENOTCONN) {
        g_propagate_error (error, reason);
        return false;
    }
    g_clear_error (&reason);
    g_autoptr (EcfsArchive) archive =
        answer != NULL ? NULL : ecfs_archive_open (archive_dir, ECFS_ARCHIVE_LEADER, error);
    return answer != NULL ||
           (archive != NULL && ecfs_archive_set_endpoint_state (
                                   archive, name, undo ? ECFS_ENDPOINT_ACTIVE : ECFS_ENDPOINT_DISTRUSTED, error));
}

bool ecfs_control_state_parse (const char *text, EcfsEndpointState *ret_state, GError **error)
{
    static const EcfsEndpointState states[] = {ECFS_ENDPOINT_ACTIVE, ECFS_ENDPOINT_READONLY, ECFS_ENDPOINT_DRAINING,
                                               ECFS_ENDPOINT_DISTRUSTED};
    for (size_t i = 0; i < G_N_ELEMENTS (states); i++) {
        if (g_strcmp0 (text, ecfs_endpoint_state_word (states[i])) == 0) {
            *ret_state = states[i];
            return true;
        }
    }
    return ecfs_fail (error, EINVAL, "%s is not a state that an endpoint can be given",
                      text != NULL ? text : "nothing");
}

bool ecfs_set_endpoint_state (Ecfs *self, const char *name, const char *state, GError **error)
{
    EcfsEndpointState number = ECFS_ENDPOINT_ACTIVE;
    if (!ecfs_check_leads (self, error))
        return false;
    if (!ecfs_control_state_parse (state, &number, error))
        return false;
    if (!self->mounted)
        return ecfs_archive_set_endpoint_state (self->archive, name, number, error);
    g_autoptr (JsonNode) answer = ask (ecfs_archive_directory (self->archive), "endpoint-state", name, state, error);
    return answer != NULL;
}

bool ecfs_renew_endpoint (Ecfs *self, const char *name, char **ret_old, GError **error)
{
    if (!ecfs_check_leads (self, error))
        return false;
    if (!self->mounted)
        return ecfs_archive_settle_renewed (self->archive, name, error) &&
               ecfs_archive_renew_endpoint (self->archive, name, ret_old, error);
    g_autoptr (JsonNode) answer = ask (ecfs_archive_directory (self->archive), "endpoint-renew", name, NULL, error);
    const char *old = answer == NULL ? NULL : ecfs_control_text (json_node_get_object (answer), "old");
    if (answer == NULL)
        return false;
    *ret_old = g_strdup (old);
    return old != NULL || ecfs_fail (error, EPROTO, "control socket: the answer makes no sense");
}

bool ecfs_replace_in_rules (Ecfs *self, const char *name, const char *const *by, uint64_t *ret_n, GError **error)
{
    const char *directory = ecfs_archive_directory (self->archive);
    if (!ecfs_check_leads (self, error))
        return false;
    if (!self->mounted)
        return ecfs_archive_replace_in_rules (self->archive, name, by, ret_n, error);
    JsonArray *names = json_array_new ();
    for (; *by != NULL; by++)
        json_array_add_string_element (names, *by);
    g_autoptr (JsonNode) request = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (request, json_object_new ());
    json_object_set_string_member (json_node_get_object (request), "verb", "endpoint-rules");
    json_object_set_string_member (json_node_get_object (request), "endpoint", name);
    json_object_set_array_member (json_node_get_object (request), "by", names);
    g_autoptr (JsonNode) answer = ecfs_control_call (directory, request, error);
    if (answer == NULL)
        return false;
    int64_t n = json_object_get_int_member_with_default (json_node_get_object (answer), "rules", -1);
    *ret_n = (uint64_t) n;
    return n >= 0 || ecfs_fail (error, EPROTO, "control socket: the answer makes no sense");
}

bool ecfs_remove_endpoint (Ecfs *self, const char *name, char **ret_left, GError **error)
{
    *ret_left = NULL;
    if (!ecfs_check_leads (self, error))
        return false;
    if (!self->mounted)
        return ecfs_archive_remove_endpoint (self->archive, name, ret_left, error);
    g_autoptr (JsonNode) answer = ask (ecfs_archive_directory (self->archive), "endpoint-remove", name, NULL, error);
    if (answer != NULL)
        *ret_left = g_strdup (ecfs_control_text (json_node_get_object (answer), "left"));
    return answer != NULL;
}

/* Without a mount this process is the one that may. */
static bool add_here (const char *archive_dir, const char *text, GError **error)
{
    EcfsEndpointSpec *spec = ecfs_endpoint_spec_parse (text, error);
    g_autoptr (EcfsConfigEndpoint) endpoint = spec == NULL ? NULL : ecfs_config_endpoint_new (spec, error);
    g_autoptr (EcfsArchive) archive =
        endpoint == NULL ? NULL : ecfs_archive_open (archive_dir, ECFS_ARCHIVE_LEADER, error);
    if (archive == NULL || !ecfs_archive_start (archive, error))
        return false;
    ecfs_archive_lead_meanwhile (archive);
    return ecfs_archive_settle_share (archive, endpoint->zone, NULL, error) &&
           ecfs_archive_endpoint_add (archive, endpoint, error);
}

bool ecfs_add_endpoint (const char *archive_dir, const char *endpoint, GError **error)
{
    JsonObject *object = json_object_new ();
    g_autofree char *text = ecfs_control_escape (endpoint);
    json_object_set_string_member (object, "verb", "endpoint-add");
    json_object_set_string_member (object, "endpoint", text);
    g_autoptr (JsonNode) request = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (request, object);
    GError *reason = NULL;
    g_autoptr (JsonNode) answer = ecfs_control_call (archive_dir, request, &reason);
    if (answer == NULL && ecfs_errno (reason) != ENOTCONN) {
        g_propagate_error (error, reason);
        return false;
    }
    g_clear_error (&reason);
    return answer != NULL || add_here (archive_dir, endpoint, error);
}
