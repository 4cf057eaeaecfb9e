/* A conversation of the control socket in which the mount tells how far it is, and who asks listens: control_priv.h
 * tells its lines. */
#include "verbs/api_priv.h"
#include "control/control_priv.h"
#include "util/lock.h"

#include <poll.h>

#define TICK_MS 200

/* The mount's side */

typedef struct Serving {
    const EcfsControlPut *client;
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
    json_object_set_int_member (line, "failed", (int64_t) progress->n_failed);
    json_object_set_int_member (line, "bytes", (int64_t) progress->bytes_done);
    json_object_set_int_member (line, "wire", (int64_t) progress->wire_bytes);
    send_line (self, line);
    return !self->gone && poll (&peer, 1, 0) == 0 && !self->client->is_stopping (self->client->user);
}

static void tell_problem (void *user, const GError *error, bool warning)
{
    JsonObject *line = json_object_new ();
    (void) warning; /* there are none */
    json_object_set_boolean_member (line, "problem", TRUE);
    ecfs_control_put_error (line, error);
    send_line (user, line);
}

void ecfs_control_serve_transfer (const EcfsControlPut *client, EcfsLines *lines, JsonObject *request,
                                  EcfsControlWork work)
{
    g_autoptr (GError) error = NULL;
    Serving self = {.client = client, .lines = lines};
    const EcfsTransfer transfer = {.progress = tell_progress, .problem = tell_problem, .user = &self};
    JsonObject *reply = json_object_new ();
    (void) work (client, request, &transfer, &error); /* told by the error */
    ecfs_control_put_end (reply, error);
    send_line (&self, reply);
}

/* Who asks */

typedef struct Asking {
    EcfsLines lines;
    EcfsTally tally;
    bool ended;
} Asking;

static void hear_progress (Asking *self, JsonObject *line)
{
    EcfsProgress *progress = &self->tally.progress;
    progress->n_found = (uint64_t) ecfs_control_number (line, "found");
    progress->n_done = (uint64_t) ecfs_control_number (line, "done");
    progress->n_failed = MAX (progress->n_failed, (uint64_t) ecfs_control_number (line, "failed"));
    progress->bytes_done = (uint64_t) ecfs_control_number (line, "bytes");
    self->tally.wire_bytes = (uint64_t) ecfs_control_number (line, "wire");
}

static bool hear_line (Asking *self, const char *text, GError **error)
{
    g_autoptr (JsonNode) node = ecfs_control_parse (text, error);
    if (node == NULL)
        return false;
    JsonObject *line = json_node_get_object (node);
    g_autoptr (GError) told = NULL;
    bool good = ecfs_control_check (line, &told);
    if (json_object_has_member (line, "problem") && !good)
        ecfs_tally_failed (&self->tally, g_steal_pointer (&told));
    else if (json_object_has_member (line, "found"))
        hear_progress (self, line);
    else
        self->ended = true;
    if (!self->ended || good)
        return true;
    g_propagate_error (error, g_steal_pointer (&told));
    return false;
}

static bool hear_all (Asking *self, GError **error)
{
    while (!self->ended && ecfs_tally_tick (&self->tally)) {
        struct pollfd wait = {.fd = self->lines.fd, .events = POLLIN};
        if (poll (&wait, 1, TICK_MS) > 0 && !ecfs_lines_receive (&self->lines, SIZE_MAX, error))
            return ecfs_prefix (error, "the mount of the archive ended");
        g_autofree char *line = NULL;
        while (!self->ended && (line = ecfs_lines_take (&self->lines)) != NULL) {
            if (!hear_line (self, line, error))
                return false;
            g_clear_pointer (&line, g_free);
        }
    }
    return true;
}

bool ecfs_control_ask_transfer (const char *archive_dir, JsonObject *request, const EcfsTransfer *transfer,
                                const char *failed, GError **error)
{
    g_autoptr (JsonObject) asked = request;
    Asking self = {.tally = {.transfer = transfer}};
    int fd = ecfs_control_connect (archive_dir, error);
    if (fd < 0)
        return false;
    ecfs_lines_init (&self.lines, fd);
    bool heard = ecfs_lines_send_object (&self.lines, asked, -1, error) && hear_all (&self, error);
    ecfs_lines_clear (&self.lines);
    return ecfs_tally_end (&self.tally, failed, heard ? error : NULL) && heard;
}
