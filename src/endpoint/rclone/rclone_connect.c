/* Starts rclone's server, and looks whether the remote is there. */
#include "endpoint/rclone/rclone_priv.h"

#include <unistd.h>

#define LEAST_MAJOR 1
#define LEAST_MINOR 60
#define ABOUT_US    (5 * G_USEC_PER_SEC) /* for a remote to tell its space */

/*
 * Looking at the root, which is there where the marker is. Else:
 *
 *   is the directory there? → make it
 */
typedef struct Look {
    EcfsHttpOp op;
    bool make_root;
    bool over;
    GError *error;
} Look;

static void clear (EcfsHttpOp *op)
{
    g_clear_error (&((Look *) op)->error);
}

static GError *failure_of (EcfsRcloneRun *run, int status, GError *error)
{
    const EcfsRclone *self = ecfs_rclone (run->op.http);
    if (error != NULL || status == 0)
        return error;
    return ecfs_rclone_error (self, self->config->place,
                              run->child.last != NULL ? run->child.last : "no reason is told");
}

static void made (EcfsRcloneRun *run, int status, GError *error)
{
    Look *look = run->user;
    error = failure_of (run, status, error);
    if (error != NULL)
        look->error = ecfs_http_error (error->code, "cannot make %s", error->message);
    g_clear_error (&error);
    look->over = true;
    ecfs_http_op_drop (&run->op);
}

static void make_root (EcfsRcloneRun *run)
{
    const char *const words[] = {"mkdir", ecfs_rclone (run->op.http)->config->place, NULL};
    run->ended = made;
    ecfs_rclone_run_start (run, words);
}

static void root_told (EcfsRcloneRun *run, int status, GError *error)
{
    Look *look = run->user;
    const EcfsRclone *self = ecfs_rclone (run->op.http);
    EcfsRcloneItem item = {.path = NULL};
    if (error == NULL && status == ECFS_RCLONE_ABSENT_STATUS && look->make_root) {
        make_root (run);
        return;
    }
    if (error == NULL && status == ECFS_RCLONE_ABSENT_STATUS)
        error = ecfs_http_error (ENOENT,
                                 "%s does not exist: correct the URL, or make it with 'rclone mkdir' (ecfs init and "
                                 "ecfs endpoint add make it)",
                                 self->config->place);
    else
        error = failure_of (run, status, error);
    if (error == NULL && ecfs_rclone_item_parse (run->rest->str, run->rest->len, &item) && !item.is_directory)
        error = ecfs_http_error (ENOTDIR, "%s is a file, not a directory", self->config->place);
    ecfs_rclone_item_clear (&item);
    look->error = error;
    look->over = true;
    ecfs_http_op_drop (&run->op);
}

static void ask_root (Look *look)
{
    EcfsRclone *self = ecfs_rclone (look->op.http);
    EcfsRcloneRun *run = ecfs_rclone_run_new (self, NULL, sizeof *run);
    const char *const words[] = {"lsjson", "--stat", self->config->place, NULL};
    run->user = look;
    run->ended = root_told;
    ecfs_rclone_run_start (run, words);
}

static GError *check_version (EcfsRclone *self, const EcfsHttpCall *call)
{
    const char *server = call->server != NULL ? call->server : "no name";
    if (!ecfs_rclone_version_parse (server, &self->major, &self->minor))
        return ecfs_http_error (EPROTO, "%s says that it is \"%s\", which is no rclone", self->config->program, server);
    if (self->major < LEAST_MAJOR || (self->major == LEAST_MAJOR && self->minor < LEAST_MINOR))
        return ecfs_http_error (ENOTSUP, "%s is %s, which is too old: %d.%d or later is needed", self->config->program,
                                server, LEAST_MAJOR, LEAST_MINOR);
    g_autofree char *text = g_strdup_printf ("%s, remote %s", server, self->config->place);
    ecfs_slot_describe (self->http.slot, text);
    return NULL;
}

static void looked (EcfsHttp *http, EcfsHttpOp *op)
{
    Look *look = (Look *) op;
    look->error = check_version (ecfs_rclone (http), &op->call);
    if (look->error == NULL && ecfs_rclone_is_absent (op, ECFS_MARKER_NAME)) {
        ask_root (look);
        return;
    }
    if (look->error == NULL && !ecfs_http_good (op->call.status))
        look->error = ecfs_http_refusal (op, ECFS_MARKER_NAME);
    look->over = true;
}

static void space_told (EcfsRcloneRun *run, int status, GError *error)
{
    bool *over = run->user;
    const EcfsRclone *self = ecfs_rclone (run->op.http);
    g_clear_error (&error); /* the figure is worth no connection */
    (void) ecfs_rclone_note_space (self->config, run->rest->str, status == 0 ? run->rest->len : 0);
    *over = true;
    ecfs_http_op_drop (&run->op);
}

/* Whether the remote tells its space is asked once. */
static bool ask_space (EcfsRclone *self, GError **error)
{
    EcfsRcloneShared *shared = self->config->shared;
    bool over = false;
    ecfs_mutex_lock (&shared->lock);
    bool known = shared->tells_space >= 0;
    ecfs_mutex_unlock (&shared->lock);
    if (known)
        return true;
    EcfsRcloneRun *run = ecfs_rclone_run_new (self, NULL, sizeof *run);
    const char *const words[] = {"about", "--json", self->config->place, NULL};
    run->user = &over;
    run->ended = space_told;
    run->patience_us = ABOUT_US;
    ecfs_rclone_run_start (run, words);
    return ecfs_http_drive (&self->http, &over, error);
}

static unsigned capabilities (const EcfsRclone *self)
{
    EcfsRcloneShared *shared = self->config->shared;
    ecfs_mutex_lock (&shared->lock);
    unsigned can = ECFS_CAN_LIST | (shared->tells_space == 1 ? ECFS_CAN_SPACE : 0);
    ecfs_mutex_unlock (&shared->lock);
    return can;
}

static bool look_around (EcfsRclone *self, bool make, GError **error)
{
    Look *look = (Look *) ecfs_http_op_new (&self->http, NULL, sizeof *look);
    look->op.clear = clear;
    look->make_root = make;
    EcfsHttpAsk ask = {.method = "HEAD", .name = ECFS_MARKER_NAME, .done = looked};
    ecfs_http_ask (&look->op, &ask);
    if (!ecfs_http_drive (&self->http, &look->over, error))
        return false;
    if (look->error != NULL) {
        g_propagate_error (error, g_steal_pointer (&look->error));
        return false;
    }
    ecfs_http_op_drop (&look->op);
    return ask_space (self, error);
}

static void close_listener (EcfsRclone *self)
{
    if (self->listener >= 0)
        (void) close (self->listener);
    self->listener = -1;
}

void ecfs_rclone_serve (EcfsRclone *self)
{
    /* The log tells why something is not there: rclone_failure.c. */
    const char *const words[] = {
        "serve", "restic", "--stdio", "--cache-objects=false", "--log-level=DEBUG", "--stats=0", self->config->place,
        NULL};
    GError *error = NULL;
    if (!ecfs_rclone_serve_who_connects (&self->child, self->config, words, self->listener, &error))
        ecfs_http_break (&self->http, error);
    if (self->child.pid > 0 || self->http.broken != NULL)
        close_listener (self);
}

void ecfs_rclone_disconnect (void *connection)
{
    EcfsRclone *self = connection;
    close_listener (self);
    ecfs_http_clear (&self->http); /* closes the socket, at which the process ends */
    (void) ecfs_rclone_end (&self->child, false);
    g_free (self->child.last);
    g_free (self);
}

void *ecfs_rclone_connect (EcfsSlot *slot, bool make, GError **error)
{
    EcfsRclone *self = g_new0 (EcfsRclone, 1);
    self->config = ecfs_slot_config (slot);
    self->listener = self->child.fd = self->child.errors = -1;
    g_queue_init (&self->runs);
    if (!ecfs_http_init (&self->http, slot, &self->config->http, &ecfs_rclone_dialect, error) ||
        (self->listener = ecfs_rclone_listen (&self->http.peer, error)) < 0 || !look_around (self, make, error)) {
        ecfs_rclone_disconnect (self);
        return NULL;
    }
    ecfs_slot_capabilities (slot, capabilities (self));
    return self;
}
