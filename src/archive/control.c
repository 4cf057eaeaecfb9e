#include "archive/control.h"

#include "archive/staged.h"
#include "archive/status.h"
#include "util/io.h"
#include "util/lock.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define N_CLIENTS_MAX      32
#define MAX_DEPTH          16 /* of nested JSON */
#define REQUEST_TIMEOUT_MS 10000
#define LOOK_AGAIN_US      500000 /* whether the client is still there */
#define STATUS_PATIENCE_US 3000000

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
    int fd;
} Client;

/* Lines on sockets */

/* Socket addresses hold 108 bytes; a directory's path may be longer. */
static void address_of (int dir_fd, struct sockaddr_un *ret_address)
{
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    g_snprintf (ret_address->sun_path, sizeof ret_address->sun_path, "/proc/self/fd/%d/" ECFS_CONTROL_SOCKET, dir_fd);
}

static bool send_line (int fd, const char *text, GError **error)
{
    g_autofree char *line = g_strconcat (text, "\n", NULL);
    size_t size = strlen (line);
    for (size_t sent = 0; sent < size;) {
        ssize_t put = send (fd, line + sent, size - sent, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return ecfs_fail_errno (error, errno, "control socket");
        sent += (size_t) put;
    }
    return true;
}

/* Up to the first newline; @timeout_ms between bytes, -1: any. */
static char *receive_line (int fd, size_t max_size, int timeout_ms, GError **error)
{
    g_autoptr (GString) line = g_string_new (NULL);
    while (line->len < max_size) {
        char part[4096];
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int ready = poll (&wait, 1, timeout_ms);
        ssize_t got = ready > 0 ? recv (fd, part, sizeof part, 0) : ready;
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            g_set_error_literal (error, ECFS_ERROR, EPROTO, "control socket: the other side hung up or says nothing");
            return NULL;
        }
        g_string_append_len (line, part, got);
        char *end = memchr (line->str, '\n', line->len);
        if (end != NULL) {
            *end = '\0';
            return g_string_free (g_steal_pointer (&line), FALSE);
        }
    }
    g_set_error (error, ECFS_ERROR, EPROTO, "control socket: a line of more than %zu bytes", max_size);
    return NULL;
}

/* The parser recurses. */
static bool is_shallow (const char *text)
{
    unsigned depth = 0;
    bool quoted = false;
    for (const char *c = text; *c != '\0'; c++) {
        if (quoted && *c == '\\' && c[1] != '\0')
            c++;
        else if (*c == '"')
            quoted = !quoted;
        else if (!quoted && (*c == '[' || *c == '{') && ++depth > MAX_DEPTH)
            return false;
        else if (!quoted && (*c == ']' || *c == '}') && depth > 0)
            depth--;
    }
    return true;
}

static JsonNode *parse_object (const char *text, GError **error)
{
    g_autoptr (JsonParser) parser = json_parser_new_immutable ();
    g_autoptr (GError) local = NULL;
    if (!is_shallow (text) || !json_parser_load_from_data (parser, text, -1, &local)) {
        g_set_error (error, ECFS_ERROR, EPROTO, "control socket: not JSON: %s",
                     local != NULL ? local->message : "nested too deeply");
        return NULL;
    }
    JsonNode *root = json_parser_get_root (parser);
    if (root == NULL || !JSON_NODE_HOLDS_OBJECT (root)) {
        g_set_error_literal (error, ECFS_ERROR, EPROTO, "control socket: not a JSON object");
        return NULL;
    }
    return json_node_ref (root);
}

/* The verb wait */

/* Held by the handler and the callback. */
typedef struct Waiting {
    EcfsMutex lock;
    EcfsCond changed;
    unsigned n_refs; /* guarded by lock, as the rest */
    unsigned n_pending;
    GError *error; /* the first */
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
        here = !is_stopping (client->server) && !has_hung_up (client->fd);
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
        const char *path = JSON_NODE_HOLDS_VALUE (node) ? json_node_get_string (node) : NULL;
        EcfsAttr attr;
        if (path == NULL)
            return ecfs_fail (error, EINVAL, "control socket: a path is no text");
        if (!ecfs_catalog_resolve (ecfs_archive_catalog (archive), path, &attr, error))
            return ecfs_prefix (error, "%s", path);
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

static bool drain (Client *client, JsonArray *paths, bool full, GError **error)
{
    EcfsArchive *archive = client->server->archive;
    Waiting *waiting = g_new0 (Waiting, 1);
    ecfs_mutex_init (&waiting->lock);
    ecfs_cond_init (&waiting->changed);
    waiting->n_refs = 1;
    waiting->inos = g_array_new (FALSE, FALSE, sizeof (uint64_t));
    bool ok = wait_for_paths (waiting, archive, paths, full, error) && wait_until_stored (client, waiting, error) &&
              (!full || check_full (waiting, archive, error)) &&
              ecfs_catalog_barrier (ecfs_archive_catalog (archive), error);
    waiting_unref (waiting);
    return ok;
}

/* Requests */

static bool handle_status (EcfsControl *self, JsonObject *reply, GError **error)
{
    JsonObject *status = ecfs_archive_status (self->archive, STATUS_PATIENCE_US, error);
    if (status == NULL)
        return false;
    json_object_set_int_member (reply, "pid", getpid ());
    json_object_set_string_member (reply, "mountpoint", self->ops.mountpoint);
    json_object_set_object_member (reply, "status", status);
    return true;
}

/* The archive may be mounted a second time, for reading only; such mounts have no door of their own. */
static bool handle_umount (Client *client, JsonObject *request, GError **error)
{
    EcfsControl *self = client->server;
    JsonNode *meant = json_object_get_member (request, "mountpoint");
    if (meant != NULL && JSON_NODE_HOLDS_VALUE (meant) &&
        g_strcmp0 (json_node_get_string (meant), self->ops.mountpoint) != 0)
        return ecfs_fail (error, ENOTCONN, "this is the mount on %s", self->ops.mountpoint);
    if (!drain (client, NULL, false, error))
        return ecfs_prefix (
            error, "not unmounted, for not everything could be stored (umount(8) leaves it to the next mount)");
    return self->ops.umount (self->ops.user, error);
}

static bool handle (Client *client, JsonObject *request, JsonObject *reply, GError **error)
{
    JsonNode *verb_node = json_object_get_member (request, "verb");
    JsonNode *paths_node = json_object_get_member (request, "paths");
    JsonNode *quorum_node = json_object_get_member (request, "quorum");
    const char *verb = verb_node != NULL && JSON_NODE_HOLDS_VALUE (verb_node) ? json_node_get_string (verb_node) : NULL;
    JsonArray *paths =
        paths_node != NULL && JSON_NODE_HOLDS_ARRAY (paths_node) ? json_node_get_array (paths_node) : NULL;
    bool quorum = quorum_node != NULL && JSON_NODE_HOLDS_VALUE (quorum_node) && json_node_get_boolean (quorum_node);
    if (g_strcmp0 (verb, "wait") == 0)
        return drain (client, paths, !quorum, error);
    if (g_strcmp0 (verb, "status") == 0)
        return handle_status (client->server, reply, error);
    if (g_strcmp0 (verb, "umount") == 0)
        return handle_umount (client, request, error);
    return ecfs_fail (error, EINVAL, "control socket: unknown verb %s", verb != NULL ? verb : "(none)");
}

static char *answer (Client *client, const char *line)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (JsonObject) reply = json_object_new ();
    g_autoptr (JsonNode) request = parse_object (line, &error);
    if (request != NULL && handle (client, json_node_get_object (request), reply, &error)) {
        json_object_set_boolean_member (reply, "ok", TRUE);
    } else {
        json_object_set_string_member (reply, "error", error->message);
        json_object_set_int_member (reply, "errno", ecfs_errno (error));
    }
    g_autoptr (JsonNode) node = json_node_init_object (json_node_alloc (), reply);
    return json_to_string (node, FALSE);
}

/* Clients */

static bool is_allowed (int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt (fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == 0 || peer.uid == geteuid ());
}

static void *serve_client (void *data)
{
    Client *client = data;
    EcfsControl *server = client->server;
    g_autofree char *line = receive_line (client->fd, ECFS_CONTROL_MAX_SIZE, REQUEST_TIMEOUT_MS, NULL);
    if (line != NULL) {
        g_autofree char *reply = answer (client, line);
        (void) !send_line (client->fd, reply, NULL); /* who hung up does not want it */
    }
    (void) close (client->fd); /* nothing unsent: a socket sends what it took */
    g_free (client);
    ecfs_mutex_lock (&server->lock);
    server->n_clients--;
    ecfs_cond_broadcast (&server->idle);
    ecfs_mutex_unlock (&server->lock);
    return NULL;
}

static void take_client (EcfsControl *self, int fd)
{
    ecfs_mutex_lock (&self->lock);
    bool room = self->n_clients < N_CLIENTS_MAX && is_allowed (fd);
    self->n_clients += room;
    ecfs_mutex_unlock (&self->lock);
    if (!room) {
        (void) close (fd); /* refused */
        return;
    }
    Client *client = g_new (Client, 1);
    *client = (Client){.server = self, .fd = fd};
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

static bool listen_in (EcfsControl *self, GError **error)
{
    const char *directory = ecfs_archive_directory (self->archive);
    struct sockaddr_un address;
    self->dir_fd = open (directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (self->dir_fd < 0)
        return ecfs_fail_errno (error, errno, "%s", directory);
    address_of (self->dir_fd, &address);
    (void) unlinkat (self->dir_fd, ECFS_CONTROL_SOCKET, 0); /* of a dead mount, or none */
    self->listen_fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (self->listen_fd < 0 || fchmod (self->listen_fd, 0600) != 0 ||
        bind (self->listen_fd, (const struct sockaddr *) &address, sizeof address) != 0 ||
        fchmodat (self->dir_fd, ECFS_CONTROL_SOCKET, 0600, 0) != 0 || listen (self->listen_fd, N_CLIENTS_MAX) != 0)
        return ecfs_fail_errno (error, errno, "%s/" ECFS_CONTROL_SOCKET ": cannot listen on it", directory);
    if (pipe2 (self->stop_pipe, O_CLOEXEC) != 0 || pthread_create (&self->thread, NULL, serve, self) != 0)
        return ecfs_fail (error, EAGAIN, "%s/" ECFS_CONTROL_SOCKET ": no pipe or thread left", directory);
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
    (void) unlinkat (self->dir_fd, ECFS_CONTROL_SOCKET, 0); /* the next mount replaces it otherwise */
    ecfs_mutex_lock (&self->lock);
    while (self->n_clients > 0)
        (void) ecfs_cond_wait_until (&self->idle, &self->lock, ecfs_now_us () + LOOK_AGAIN_US);
    ecfs_mutex_unlock (&self->lock);
    control_free (self);
}

/* The other side */

static int connect_to (const char *archive_dir, GError **error)
{
    struct sockaddr_un address;
    ecfs_autofd dir_fd = open (archive_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return ecfs_fail_errno (error, errno, "%s", archive_dir) - 1;
    address_of (dir_fd, &address);
    ecfs_autofd fd = socket (AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect (fd, (const struct sockaddr *) &address, sizeof address) == 0)
        return ecfs_steal_fd (&fd);
    int code = errno;
    bool absent = code == ENOENT || code == ECONNREFUSED;
    return (absent ? ecfs_fail (error, ENOTCONN, "%s is not mounted", archive_dir)
                   : ecfs_fail_errno (error, code, "%s/" ECFS_CONTROL_SOCKET, archive_dir)) -
           1;
}

JsonNode *ecfs_control_call (const char *archive_dir, JsonNode *request, GError **error)
{
    ecfs_autofd fd = connect_to (archive_dir, error);
    if (fd < 0)
        return NULL;
    g_autofree char *text = json_to_string (request, FALSE);
    if (!send_line (fd, text, error))
        return NULL;
    g_autofree char *line = receive_line (fd, SIZE_MAX, -1, error);
    g_autoptr (JsonNode) reply = line == NULL ? NULL : parse_object (line, error);
    if (reply == NULL)
        return NULL;
    JsonObject *object = json_node_get_object (reply);
    if (json_object_has_member (object, "ok"))
        return g_steal_pointer (&reply);
    g_set_error (error, ECFS_ERROR, (int) json_object_get_int_member_with_default (object, "errno", EIO), "%s",
                 json_object_get_string_member_with_default (object, "error", "the mount gave no reason"));
    return NULL;
}
