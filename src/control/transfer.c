/* A conversation of the control socket in which the mount tells how far it is: wire.h has its lines. */
#include "control/control_priv.h"

#include <poll.h>

typedef struct Serving {
    const EcfsControlClient *client;
    EcfsLines *lines;
    bool gone; /* who asked */
} Serving;

static void send_line (Serving *self, JsonObject *line)
{
    g_autoptr (JsonObject) sent = line;
    self->gone = self->gone || !ecfs_lines_send_object (self->lines, sent, -1, NULL); /* who hung up cancels */
}

static bool tell_progress (void *user, const EcfsProgress *progress)
{
    Serving *self = user;
    struct pollfd peer = {.fd = self->lines->fd, .events = POLLRDHUP};
    JsonObject *line = json_object_new ();
    json_object_set_int_member (line, "found", (int64_t) progress->n_found);
    json_object_set_int_member (line, "done", (int64_t) progress->n_done);
    json_object_set_int_member (line, "current", (int64_t) progress->n_current);
    json_object_set_int_member (line, "failed", (int64_t) progress->n_failed);
    json_object_set_int_member (line, "bytes", (int64_t) progress->bytes_done);
    json_object_set_int_member (line, "wire", (int64_t) progress->wire_bytes);
    send_line (self, line);
    return !self->gone && poll (&peer, 1, 0) == 0 && !self->client->is_stopping (self->client->user);
}

static void tell_problem (void *user, const GError *error, bool warning)
{
    JsonObject *line = json_object_new ();
    json_object_set_boolean_member (line, "problem", TRUE);
    if (warning)
        json_object_set_boolean_member (line, "warning", TRUE);
    ecfs_control_put_error (line, error);
    send_line (user, line);
}

void ecfs_control_serve_transfer (const EcfsControlClient *client, EcfsLines *lines, JsonObject *request,
                                  EcfsControlWork work)
{
    g_autoptr (GError) error = NULL;
    Serving self = {.client = client, .lines = lines};
    const EcfsTransferOptions transfer = {.progress = tell_progress, .problem = tell_problem, .user = &self};
    JsonObject *reply = json_object_new ();
    (void) work (client, request, &transfer, &error); /* told by the error */
    ecfs_control_put_end (reply, error);
    send_line (&self, reply);
}
