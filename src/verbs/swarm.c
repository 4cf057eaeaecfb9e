#include "verbs/swarm.h"

#include "archive/common.h"
#include "archive/peered.h"
#include "util/io.h"
#include "verbs/status.h"
#include "verbs/verbs.h"
#include "wire/wire.h"

#include <string.h>

#define ANSWER_MS 30000
#define NO_PEERS  "there are no peers here: set peers or peer_listen in ecfs.conf"

static bool check_peers (EcfsArchive *archive, GError **error)
{
    const char *trouble = ecfs_archive_peers_trouble (archive);
    return ecfs_archive_peers (archive) != NULL ||
           ecfs_fail (error, ENOTSUP, "%s: %s", ecfs_archive_directory (archive), trouble != NULL ? trouble : NO_PEERS);
}

static bool start (EcfsArchive *archive, GError **error)
{
    if (ecfs_archive_config (archive)->peer_listen == NULL)
        return ecfs_fail (error, ENOTSUP, "%s: set peer_listen in ecfs.conf: it says where peers are served",
                          ecfs_archive_directory (archive));
    return ecfs_archive_serve_peers (archive, error);
}

bool ecfs_swarm_here (EcfsArchive *archive, const char *action, const char *address, GError **error)
{
    if (!check_peers (archive, error))
        return false;
    if (strcmp (action, "start") == 0)
        return start (archive, error);
    if (strcmp (action, "stop") == 0) {
        ecfs_peers_end_serving (ecfs_archive_peers (archive));
        return true;
    }
    if (strcmp (action, "drop") == 0 && address != NULL)
        return ecfs_peers_drop (ecfs_archive_peers (archive), address) ||
               ecfs_fail (error, ENOENT, "there is no peer %s: 'ecfs swarm list' shows them", address);
    return ecfs_fail (error, EINVAL, "\"%s\" is nothing that can be done with peers", action);
}

/* By the mount that writes, or the one that follows. NULL and ENOTCONN: there is neither. */
static JsonNode *ask_mount (const Ecfs *self, JsonObject *request, GError **error)
{
    const char *directory = ecfs_archive_directory (self->archive);
    g_autoptr (JsonNode) question = json_node_new (JSON_NODE_OBJECT);
    json_node_set_object (question, request);
    return self->mounted ? ecfs_control_ask (directory, question, ANSWER_MS, error)
                         : ecfs_control_ask_reader (directory, question, ANSWER_MS, error);
}

bool ecfs_swarm_change (Ecfs *self, const char *action, const char *address, GError **error)
{
    g_autoptr (JsonObject) request = json_object_new ();
    json_object_set_string_member (request, "verb", "swarm");
    json_object_set_string_member (request, "action", action);
    if (address != NULL)
        json_object_set_string_member (request, "address", address);
    g_autoptr (JsonNode) answer = ask_mount (self, request, error);
    return answer != NULL;
}

/* NULL: it has no peers. */
static char *peers_text (JsonObject *facts, const char *directory, GError **error)
{
    JsonNode *peers = facts == NULL ? NULL : json_object_get_member (facts, "peers");
    if (peers != NULL && JSON_NODE_HOLDS_OBJECT (peers))
        return json_to_string (peers, TRUE);
    (void) !ecfs_fail (error, ENOTSUP, "%s: " NO_PEERS, directory);
    return NULL;
}

char *ecfs_swarm (Ecfs *self, GError **error)
{
    const char *directory = ecfs_archive_directory (self->archive);
    g_autoptr (GError) why = NULL;
    g_autoptr (JsonObject) request = json_object_new ();
    json_object_set_string_member (request, "verb", "live");
    g_autoptr (JsonNode) answer = ask_mount (self, request, &why);
    if (answer != NULL) {
        JsonNode *live = json_object_get_member (json_node_get_object (answer), "live");
        return peers_text (live != NULL && JSON_NODE_HOLDS_OBJECT (live) ? json_node_get_object (live) : NULL,
                           directory, error);
    }
    if (why->code != ENOTCONN) {
        g_propagate_error (error, g_steal_pointer (&why));
        return NULL;
    }
    if (!check_peers (self->archive, error))
        return NULL;
    g_autoptr (JsonObject) facts = json_object_new ();
    ecfs_status_add_peers (facts, self->archive);
    return peers_text (facts, directory, error);
}

bool ecfs_swarm_serve (Ecfs *self, GError **error)
{
    ecfs_autofd reader = ecfs_control_connect_reader (ecfs_archive_directory (self->archive), NULL);
    if (self->mounted || reader >= 0)
        return ecfs_fail (error, EBUSY, "%s is mounted, and the mount serves peers: 'ecfs swarm start' has it do so",
                          ecfs_archive_directory (self->archive));
    if (!check_peers (self->archive, error))
        return false;
    ecfs_peers_seed (ecfs_archive_peers (self->archive));
    if (!start (self->archive, error))
        return false;
    ecfs_archive_renew_published (self->archive);
    return true;
}
