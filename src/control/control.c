/* The server behind control.sock, and the verbs that are one request and one answer. */
#include "control/control.h"

#include "archive/key_watch.h"
#include "archive/lineage.h"
#include "archive/peered.h"
#include "archive/places_gone.h"
#include "catalog/brake.h"
#include "control/control_priv.h"
#include "journal/journal_watch.h"
#include "staging/staged.h"
#include "util/io.h"
#include "util/lock.h"
#include "verbs/endpoints.h"
#include "verbs/key.h"
#include "verbs/live.h"
#include "verbs/mark.h"
#include "verbs/status.h"
#include "verbs/swarm.h"
#include "verbs/unstored.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_CLIENTS_MAX      32
#define REQUEST_TIMEOUT_MS 10000
#define SEND_TIMEOUT_S     30     /* who does not listen for so long is hung up on */
#define LOOK_AGAIN_US      500000 /* whether the client is still there */
#define STATUS_PATIENCE_US 3000000
#define PUBLISH_US         30000000
#define MET_PATIENCE_US    10000000 /* until what readers met damaged is asked for once more and queued */

struct EcfsControl {
    EcfsMutex lock;
    EcfsCond idle;
    EcfsArchive *archive; /* immutable, as all up to the next comment */
    EcfsControlOps ops;
    int dir_fd;
    int listen_fd;
    int stop_pipe[2];
    pthread_t thread;
    /* Guarded by lock. */
    bool stopping;
    unsigned n_clients;
};

typedef struct Client {
    EcfsControl *server;
    EcfsLines lines;
    struct ucred peer;
} Client;

/* The verb wait */

/* Held by the handler and the callback. */
typedef struct Waiting {
    EcfsMutex lock;
    EcfsCond changed;
    unsigned n_refs; /* guarded by lock, as the rest */
    unsigned n_pending;
    GError *error; /* a line for each */
    GArray *inos;  /* of uint64_t: what is waited for; the handler's */
} Waiting;

static void waiting_unref (Waiting *self)
{
    ecfs_mutex_lock (&self->lock);
    bool last = --self->n_refs == 0;
    ecfs_mutex_unlock (&self->lock);
    if (!last)
        return;
    ecfs_mutex_clear (&self->lock);
    ecfs_cond_clear (&self->changed);
    g_clear_error (&self->error);
    g_array_unref (self->inos);
    g_free (self);
}

static void stored (void *user, const GError *error)
{
    Waiting *self = user;
    ecfs_mutex_lock (&self->lock);
    self->n_pending--;
    if (self->error == NULL && error != NULL)
        self->error = g_error_copy (error);
    else if (error != NULL)
        g_prefix_error (&self->error, "%s\n", error->message);
    ecfs_cond_signal (&self->changed);
    ecfs_mutex_unlock (&self->lock);
    waiting_unref (self);
}

static void wait_for (Waiting *self, EcfsArchive *archive, uint64_t ino, bool full)
{
    g_array_append_val (self->inos, ino);
    ecfs_mutex_lock (&self->lock);
    self->n_refs++;
    self->n_pending++;
    ecfs_mutex_unlock (&self->lock);
    ecfs_staged_wait (archive, ino, full, stored, self);
}

static bool is_stopping (EcfsControl *self)
{
    ecfs_mutex_lock (&self->lock);
    bool stopping = self->stopping;
    ecfs_mutex_unlock (&self->lock);
    return stopping;
}

static bool has_hung_up (int fd)
{
    struct pollfd peer = {.fd = fd, .events = POLLRDHUP};
    return poll (&peer, 1, 0) > 0;
}

static bool wait_until_stored (Client *client, Waiting *self, GError **error)
{
    bool here = true;
    ecfs_mutex_lock (&self->lock);
    while (self->n_pending > 0 && here) {
        if (ecfs_cond_wait_until (&self->changed, &self->lock, ecfs_now_us () + LOOK_AGAIN_US))
            continue;
        ecfs_mutex_unlock (&self->lock);
        here = !is_stopping (client->server) && !has_hung_up (client->lines.fd);
        ecfs_mutex_lock (&self->lock);
    }
    GError *failure = self->error == NULL ? NULL : g_error_copy (self->error);
    ecfs_mutex_unlock (&self->lock);
    if (failure != NULL) {
        g_propagate_error (error, failure);
        return false;
    }
    return here || ecfs_fail (error, ECANCELED, "the mount ends");
}

/* Asks for each path; 0 stands for everything. */
static bool wait_for_paths (Waiting *waiting, EcfsArchive *archive, JsonArray *paths, bool full, GError **error)
{
    guint n_paths = paths == NULL ? 0 : json_array_get_length (paths);
    for (guint i = 0; i < n_paths; i++) {
        JsonNode *node = json_array_get_element (paths, i);
        const char *text = JSON_NODE_HOLDS_VALUE (node) ? json_node_get_string (node) : NULL;
        g_autofree char *path = text == NULL ? NULL : ecfs_control_unescape (text);
        EcfsAttr attr;
        if (path == NULL)
            return ecfs_fail (error, EINVAL, "control socket: a path is no text");
        if (!ecfs_catalog_resolve (ecfs_archive_catalog (archive), path, &attr, error))
            return false;
        if (S_ISREG (attr.mode) && ecfs_staged_is_unflushed (archive, attr.ino))
            return ecfs_fail (error, EBUSY, "%s: it is still being written, and was never closed", path);
        wait_for (waiting, archive, S_ISREG (attr.mode) ? attr.ino : 0, full);
    }
    if (n_paths == 0)
        wait_for (waiting, archive, 0, full);
    return true;
}

/* What was never staged here, or lost its staged bytes, has nothing to be filled up from. */
static bool check_full (const Waiting *self, EcfsArchive *archive, GError **error)
{
    for (guint i = 0; i < self->inos->len; i++) {
        g_autoptr (GError) why = NULL;
        if (ecfs_archive_check_full (archive, g_array_index (self->inos, uint64_t, i), &why) ||
            g_error_matches (why, ECFS_ERROR, ENOENT)) /* deleted meanwhile */
            continue;
        g_propagate_error (error, g_steal_pointer (&why));
        return false;
    }
    return true;
}

static bool is_wanted (void *user)
{
    Client *client = user;
    return !is_stopping (client->server) && !has_hung_up (client->lines.fd);
}

/* Names travel before anybody looks which files are full: what is wrong with some is no reason to leave the names of
 * all others on this machine alone. */
static bool drain (Client *client, JsonArray *paths, bool names, bool full, GError **error)
{
    EcfsArchive *archive = client->server->archive;
    Waiting *waiting = g_new0 (Waiting, 1);
    ecfs_mutex_init (&waiting->lock);
    ecfs_cond_init (&waiting->changed);
    waiting->n_refs = 1;
    waiting->inos = g_array_new (FALSE, FALSE, sizeof (uint64_t));
    bool ok = wait_for_paths (waiting, archive, paths, full, error) && wait_until_stored (client, waiting, error) &&
              ecfs_catalog_barrier (ecfs_archive_catalog (archive), error) &&
              (!names || ecfs_archive_store_journal (archive, is_wanted, client, error)) &&
              (!full || check_full (waiting, archive, error));
    waiting_unref (waiting);
    return ok;
}

/* Requests */

static bool handle_status (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    EcfsControl *self = client->server;
    (void) ecfs_archive_await_damage (self->archive,
                                      ecfs_now_us () + STATUS_PATIENCE_US); /* it is told the next time */
    JsonObject *status =
        ecfs_archive_status (self->archive, STATUS_PATIENCE_US, ecfs_control_flag (request, "survey"), error);
    if (status == NULL)
        return false;
    json_object_set_int_member (reply, "pid", getpid ());
    json_object_set_string_member (reply, "mountpoint", self->ops.mountpoint);
    json_object_set_object_member (reply, "status", status);
    return true;
}

static bool handle_live (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    EcfsControl *self = client->server;
    JsonObject *live = ecfs_archive_live (self->archive, error);
    (void) request; /* it asks for nothing in particular */
    if (live == NULL)
        return false;
    json_object_set_string_member (live, "mountpoint", self->ops.mountpoint);
    json_object_set_object_member (reply, "live", live);
    return true;
}

/* Says what only this directory has, where somebody else has taken the archive over. */
static bool fail_unmount (Client *client, GError **error, const char *why)
{
    EcfsArchive *archive = client->server->archive;
    g_autoptr (GError) stale = NULL;
    if (ecfs_archive_confirm_newest (archive, is_wanted, client, &stale))
        return ecfs_prefix (error, "%s", why);
    g_autoptr (GPtrArray) unstored = ecfs_archive_unstored (archive, NULL); /* what is wrong is said all the same */
    g_autofree char *text = unstored == NULL ? NULL : ecfs_unstored_text (unstored);
    g_clear_error (error); /* it comes of that */
    return ecfs_fail (error, ESTALE, "%s: %s%s%s", why, stale->message, text == NULL ? "" : ": ",
                      text == NULL ? "" : text);
}

/* The archive may be mounted a second time, for reading only; such mounts have no door of their own. */
static bool handle_umount (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    EcfsControl *self = client->server;
    const char *meant = ecfs_control_text (request, "mountpoint");
    (void) reply; /* nothing to tell */
    if (meant != NULL && strcmp (meant, self->ops.mountpoint) != 0)
        return ecfs_fail (error, ENOTCONN, "this is the mount on %s", self->ops.mountpoint);
    if (ecfs_catalog_is_taken_over (ecfs_archive_catalog (self->archive))) /* what is staged is for the next mount */
        return self->ops.umount (self->ops.user, error);
    if (!drain (client, NULL, false, false, error))
        return fail_unmount (
            client, error,
            "not unmounted, because not everything could be stored (umount(8) leaves it to the next mount)");
    ecfs_staged_await_full (self->archive, is_wanted, client);
    if (!is_wanted (client))
        return ecfs_fail (error, ECANCELED,
                          "not unmounted: the program that asked for it is gone, or the mount already ends");
    if (!ecfs_archive_confirm_newest (self->archive, is_wanted, client, error))
        return fail_unmount (
            client, error, "not unmounted, as long as you may want to copy files from here (umount(8) does not wait)");
    return self->ops.umount (self->ops.user, error);
}

static bool handle_wait (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    JsonNode *node = json_object_get_member (request, "paths");
    JsonArray *paths = node != NULL && JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
    (void) reply; /* nothing to tell */
    ecfs_archive_reconsider_hold (client->server->archive, is_wanted, client);
    const bool looked = ecfs_archive_await_damage (client->server->archive, ecfs_now_us () + MET_PATIENCE_US);
    return drain (client, paths, true, !ecfs_control_flag (request, "quorum"), error) &&
           ecfs_archive_confirm_key (client->server->archive, is_wanted, client, error) &&
           (looked ||
            ecfs_fail (error, ETIMEDOUT,
                       "all is stored, but readers met damaged stripes, which could not be looked at in time: "
                       "run this again, or 'ecfs fsck -y'"));
}

/* Somebody listens. */
static bool handle_ping (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    (void) client;
    (void) request;
    (void) reply;
    (void) error;
    return true;
}

/* What the mount has done is to be seen by who reads the catalog itself. */
static bool handle_sync (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    (void) reply; /* nothing to tell */
    return ecfs_catalog_barrier (ecfs_archive_catalog (client->server->archive), error) &&
           (!ecfs_control_flag (request, "journal") ||
            ecfs_archive_store_journal (client->server->archive, is_wanted, client, error));
}

static bool mend_marker (EcfsArchive *archive, const char *name, GError **error)
{
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_named (archive, name, error);
    return endpoint != NULL &&
           ecfs_lineage_mend (ecfs_archive_lineage (archive), ecfs_archive_position (archive, endpoint), error);
}

static bool handle_marker (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    const char *name = ecfs_control_text (request, "endpoint");
    (void) reply; /* nothing to tell */
    return name == NULL ? ecfs_fail (error, EINVAL, "control socket: no endpoint is named")
                        : mend_marker (client->server->archive, name, error);
}

static bool handle_journal (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    EcfsArchive *archive = client->server->archive;
    (void) reply; /* nothing to tell */
    return ecfs_archive_store_journal (archive, NULL, NULL, error) &&
           (!ecfs_control_flag (request, "renew") || ecfs_journal_renew (archive, error));
}

static bool handle_damaged (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    (void) reply; /* nothing to tell */
    return ecfs_control_damaged (client->server->archive, request, error);
}

static bool handle_sha256 (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    (void) reply; /* nothing to tell */
    return ecfs_control_sha256 (client->server->archive, request, error);
}

static bool handle_prune (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    return ecfs_control_prune (client->server->archive, request, reply, error);
}

static bool is_ending (void *user)
{
    return is_stopping (user);
}

static EcfsControlClient asking (Client *client)
{
    EcfsControl *server = client->server;
    return (EcfsControlClient){.archive = server->archive,
                               .ops = &server->ops,
                               .peer = client->peer,
                               .is_stopping = is_ending,
                               .user = server};
}

static bool handle_names (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    const EcfsControlClient who = asking (client);
    (void) reply; /* nothing to tell */
    return ecfs_control_names (&who, request, error);
}

static bool handle_endpoint_add (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    const char *text = ecfs_control_text (request, "endpoint");
    g_autofree char *plain = text == NULL ? NULL : ecfs_control_unescape (text);
    (void) reply; /* nothing to tell */
    if (plain == NULL)
        return ecfs_fail (error, EINVAL, "control socket: \"endpoint\" is missing or wrong");
    EcfsEndpointSpec *spec = ecfs_endpoint_spec_parse (plain, error);
    g_autoptr (EcfsConfigEndpoint) endpoint = spec == NULL ? NULL : ecfs_config_endpoint_new (spec, error);
    EcfsArchive *archive = client->server->archive;
    return endpoint != NULL && ecfs_archive_settle_share (archive, endpoint->zone, NULL, error) &&
           ecfs_archive_endpoint_add (archive, endpoint, error);
}

static bool handle_endpoint_state (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    EcfsEndpointState state;
    const char *name = ecfs_control_text (request, "endpoint");
    (void) reply; /* nothing to tell */
    return (name != NULL || ecfs_fail (error, EINVAL, "control socket: \"endpoint\" is missing or wrong")) &&
           ecfs_control_state_parse (ecfs_control_text (request, "state"), &state, error) &&
           ecfs_archive_set_endpoint_state (client->server->archive, name, state, error);
}

static bool handle_endpoint_renew (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    const char *name = ecfs_control_text (request, "endpoint");
    g_autofree char *old = NULL;
    if (name == NULL)
        return ecfs_fail (error, EINVAL, "control socket: \"endpoint\" is missing or wrong");
    if (!ecfs_archive_settle_renewed (client->server->archive, name, error) ||
        !ecfs_archive_renew_endpoint (client->server->archive, name, &old, error))
        return false;
    json_object_set_string_member (reply, "old", old);
    return true;
}

/* Names of endpoints; NULL: it makes no sense. */
static GStrv names_of (JsonObject *request, const char *member)
{
    JsonNode *node = json_object_get_member (request, member);
    JsonArray *array = node != NULL && JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
    g_autoptr (GStrvBuilder) names = g_strv_builder_new ();
    for (guint i = 0; array != NULL && i < json_array_get_length (array); i++) {
        JsonNode *name = json_array_get_element (array, i);
        if (json_node_get_value_type (name) != G_TYPE_STRING)
            return NULL;
        g_strv_builder_add (names, json_node_get_string (name));
    }
    return array == NULL ? NULL : g_strv_builder_end (names);
}

static bool handle_endpoint_rules (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    uint64_t n;
    const char *name = ecfs_control_text (request, "endpoint");
    g_auto (GStrv) by = names_of (request, "by");
    if (name == NULL || by == NULL || *by == NULL)
        return ecfs_fail (error, EINVAL, "control socket: \"endpoint\" or \"by\" is missing or wrong");
    if (!ecfs_archive_replace_in_rules (client->server->archive, name, (const char *const *) by, &n, error))
        return false;
    json_object_set_int_member (reply, "rules", (int64_t) n);
    return true;
}

static bool handle_endpoint_remove (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    const char *name = ecfs_control_text (request, "endpoint");
    g_autofree char *left = NULL;
    if (name == NULL)
        return ecfs_fail (error, EINVAL, "control socket: \"endpoint\" is missing or wrong");
    if (!ecfs_archive_remove_endpoint (client->server->archive, name, &left, error))
        return false;
    if (left != NULL)
        json_object_set_string_member (reply, "left", left);
    return true;
}

static bool handle_brake_end (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    (void) request; /* it asks for nothing in particular */
    (void) reply;   /* nothing to tell */
    return ecfs_catalog_brake_end (ecfs_archive_catalog (client->server->archive), error);
}

static bool handle_mark (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    EcfsArchive *archive = client->server->archive;
    const char *name = ecfs_control_text (request, "name");
    (void) reply; /* nothing to tell */
    return (name != NULL || ecfs_fail (error, EINVAL, "control socket: \"name\" is missing or wrong")) &&
           ecfs_mark_here (archive, name, ecfs_control_flag (request, "remove"), error) &&
           (ecfs_archive_store_journal (archive, is_wanted, client, error) || ecfs_prefix (error, ECFS_MARKED_HERE));
}

/* What is published under a name goes into the hash table now, and again as long as the mount is there; or away. */
static bool handle_publish (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    const char *name = ecfs_control_text (request, "name");
    EcfsLocated *located = ecfs_archive_located (client->server->archive);
    int64_t deadline_us = ecfs_now_us () + PUBLISH_US;
    (void) reply; /* nothing to tell */
    if (name == NULL)
        return ecfs_fail (error, EINVAL, "control socket: \"name\" is missing or wrong");
    return ecfs_control_flag (request, "withdraw") ? ecfs_located_withdraw (located, name, deadline_us, error)
                                                   : ecfs_located_publish (located, name, deadline_us, error);
}

static bool handle_swarm (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    const char *action = ecfs_control_text (request, "action");
    (void) reply; /* nothing to tell */
    return action == NULL
               ? ecfs_fail (error, EINVAL, "control socket: \"action\" is missing or wrong")
               : ecfs_swarm_here (client->server->archive, action, ecfs_control_text (request, "address"), error);
}

static bool handle_key_file (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    gsize size = 0;
    const char *text = ecfs_control_text (request, "file");
    g_autofree guchar *bytes = text == NULL ? NULL : g_base64_decode (text, &size);
    return bytes != NULL ? ecfs_key_change_here (client->server->archive, bytes, size, reply, error)
                         : ecfs_fail (error, EINVAL, "control socket: \"file\" is missing or wrong");
}

static const struct {
    const char *name;
    bool (*handle) (Client *client, JsonObject *request, JsonObject *reply, GError **error);
} verbs[] = {{"wait", handle_wait},
             {"status", handle_status},
             {"live", handle_live},
             {"ping", handle_ping},
             {"sync", handle_sync},
             {"journal", handle_journal},
             {"marker", handle_marker},
             {"umount", handle_umount},
             {"damaged", handle_damaged},
             {"sha256", handle_sha256},
             {"endpoint-add", handle_endpoint_add},
             {"prune", handle_prune},
             {"brake-end", handle_brake_end},
             {"mark", handle_mark},
             {"rm", handle_names},
             {"mv", handle_names},
             {"mkdir", handle_names},
             {"endpoint-state", handle_endpoint_state},
             {"endpoint-renew", handle_endpoint_renew},
             {"endpoint-rules", handle_endpoint_rules},
             {"endpoint-remove", handle_endpoint_remove},
             {"publish", handle_publish},
             {"swarm", handle_swarm},
             {"key-file", handle_key_file}};

/* Of a mount that only reads little can be asked. */
static bool is_open_to (const Client *client, const char *verb)
{
    static const char *const of_readers[] = {"live", "ping", "publish", "swarm", NULL};
    return !client->server->ops.is_reader || g_strv_contains (of_readers, verb);
}

/* While another mount leads, what is done once for all of them is asked of that one. */
static bool check_leads (const Client *client, const char *verb, GError **error)
{
    static const char *const of_all[] = {"wait",    "status", "live",  "ping",      "sync",  "umount",
                                         "damaged", "sha256", "put",   "publish",   "swarm", "mark",
                                         "rm",      "mv",     "mkdir", "brake-end", NULL};
    EcfsArchive *archive = client->server->archive;
    if (client->server->ops.is_reader || ecfs_archive_leads (archive) || verb == NULL || g_strv_contains (of_all, verb))
        return true;
    g_autofree char *leader = ecfs_catalog_leader (ecfs_archive_catalog (archive));
    return ecfs_fail (error, EBUSY, "this mount is one of several, and %s leads them, where this is to be done",
                      leader == NULL ? "none of them" : leader);
}

static bool handle (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    const char *verb = ecfs_control_text (request, "verb");
    for (size_t i = 0; i < G_N_ELEMENTS (verbs); i++)
        if (g_strcmp0 (verb, verbs[i].name) == 0 && is_open_to (client, verb))
            return verbs[i].handle (client, request, reply, error);
    return ecfs_fail (error, EINVAL, "control socket: unknown verb %s", verb != NULL ? verb : "(none)");
}

/* Clients */

/* Verbs that are more than one request and one answer. */
static bool converse (Client *client, JsonObject *request)
{
    static const struct {
        const char *verb;
        void (*serve) (const EcfsControlClient *client, EcfsLines *lines, JsonObject *request);
    } conversations[] = {{"put", ecfs_control_put},
                         {"recode", ecfs_control_recode},
                         {"drain", ecfs_control_drain},
                         {"undelete", ecfs_control_undelete},
                         {"repair", ecfs_control_repair}};
    const EcfsControlClient who = asking (client);
    for (size_t i = 0; i < G_N_ELEMENTS (conversations); i++) {
        if (g_strcmp0 (ecfs_control_text (request, "verb"), conversations[i].verb) != 0)
            continue;
        conversations[i].serve (&who, &client->lines, request);
        return true;
    }
    return false;
}

static void serve_line (Client *client, const char *line)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (JsonObject) reply = json_object_new ();
    g_autoptr (JsonNode) node = ecfs_control_parse (line, &error);
    JsonObject *request = node == NULL ? NULL : json_node_get_object (node);
    bool may = request != NULL && check_leads (client, ecfs_control_text (request, "verb"), &error);
    if (may && !client->server->ops.is_reader && converse (client, request))
        return;
    (void) (may && handle (client, request, reply, &error)); /* told by the error */
    ecfs_control_put_end (reply, error);
    (void) !ecfs_lines_send_object (&client->lines, reply, -1, NULL); /* who hung up does not want it */
}

static bool is_allowed (int fd, struct ucred *ret_peer)
{
    socklen_t size = sizeof *ret_peer;
    return getsockopt (fd, SOL_SOCKET, SO_PEERCRED, ret_peer, &size) == 0 &&
           (ret_peer->uid == 0 || ret_peer->uid == geteuid ());
}

static void *serve_client (void *data)
{
    Client *client = data;
    EcfsControl *server = client->server;
    g_autofree char *line = ecfs_lines_wait (&client->lines, ECFS_CONTROL_MAX_SIZE, REQUEST_TIMEOUT_MS, NULL);
    if (line != NULL)
        serve_line (client, line);
    ecfs_lines_clear (&client->lines);
    g_free (client);
    ecfs_mutex_lock (&server->lock);
    server->n_clients--;
    ecfs_cond_broadcast (&server->idle);
    ecfs_mutex_unlock (&server->lock);
    return NULL;
}

static void take_client (EcfsControl *self, int fd)
{
    struct ucred peer;
    ecfs_mutex_lock (&self->lock);
    bool room = self->n_clients < N_CLIENTS_MAX && is_allowed (fd, &peer);
    self->n_clients += room;
    ecfs_mutex_unlock (&self->lock);
    if (!room) {
        (void) close (fd); /* refused */
        return;
    }
    const struct timeval patience = {.tv_sec = SEND_TIMEOUT_S};
    (void) setsockopt (fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience); /* at worst it is more patient */
    Client *client = g_new (Client, 1);
    *client = (Client){.server = self, .peer = peer};
    ecfs_lines_init (&client->lines, fd);
    pthread_t thread;
    if (pthread_create (&thread, NULL, serve_client, client) == 0)
        (void) pthread_detach (thread); /* stop waits for n_clients */
    else
        (void) serve_client (client); /* one after the other, then */
}

static void *serve (void *data)
{
    EcfsControl *self = data;
    while (!is_stopping (self)) {
        struct pollfd wait[2] = {{.fd = self->listen_fd, .events = POLLIN},
                                 {.fd = self->stop_pipe[0], .events = POLLIN}};
        if (poll (wait, 2, -1) <= 0 || !(wait[0].revents & POLLIN))
            continue;
        int fd = accept4 (self->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            take_client (self, fd);
    }
    return NULL;
}

static const char *name_of (const EcfsControl *self)
{
    return self->ops.is_reader ? ECFS_READER_SOCKET : ECFS_CONTROL_SOCKET;
}

static bool listen_in (EcfsControl *self, GError **error)
{
    const char *directory = ecfs_archive_directory (self->archive);
    self->dir_fd = open (directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (self->dir_fd < 0)
        return ecfs_fail_errno (error, errno, "%s", directory);
    self->listen_fd = ecfs_control_listen (self->dir_fd, name_of (self), N_CLIENTS_MAX, error);
    if (self->listen_fd < 0)
        return ecfs_prefix (error, "%s", directory);
    if (pipe2 (self->stop_pipe, O_CLOEXEC) != 0 || pthread_create (&self->thread, NULL, serve, self) != 0)
        return ecfs_fail (error, EAGAIN, "%s/%s: no pipe or thread left", directory, name_of (self));
    return true;
}

static void control_free (EcfsControl *self)
{
    const int fds[] = {self->dir_fd, self->listen_fd, self->stop_pipe[0], self->stop_pipe[1]};
    for (size_t i = 0; i < G_N_ELEMENTS (fds); i++) {
        if (fds[i] >= 0)
            (void) close (fds[i]); /* nothing is written through them */
    }
    ecfs_mutex_clear (&self->lock);
    ecfs_cond_clear (&self->idle);
    g_free (self);
}

EcfsControl *ecfs_control_start (EcfsArchive *archive, const EcfsControlOps *ops, GError **error)
{
    EcfsControl *self = g_new0 (EcfsControl, 1);
    *self = (EcfsControl){.archive = archive, .ops = *ops, .dir_fd = -1, .listen_fd = -1, .stop_pipe = {-1, -1}};
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->idle);
    if (listen_in (self, error))
        return self;
    control_free (self);
    return NULL;
}

void ecfs_control_stop (EcfsControl *self)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    self->stopping = true;
    ecfs_mutex_unlock (&self->lock);
    (void) !ecfs_write_all (self->stop_pipe[1], "x", 1); /* an empty pipe of our own takes it */
    if (pthread_join (self->thread, NULL) != 0)
        g_error ("cannot join the control thread");
    (void) unlinkat (self->dir_fd, name_of (self), 0); /* the next mount replaces it otherwise */
    ecfs_mutex_lock (&self->lock);
    while (self->n_clients > 0)
        (void) ecfs_cond_wait_until (&self->idle, &self->lock, ecfs_now_us () + LOOK_AGAIN_US);
    ecfs_mutex_unlock (&self->lock);
    control_free (self);
}
