/* The conversation of `recode` on the control socket: control_priv.h tells its lines. */
#include "archive/control_priv.h"
#include "archive/recode_priv.h"
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

void ecfs_control_recode (const EcfsControlPut *client, EcfsLines *lines, JsonObject *request)
{
    g_autoptr (GError) error = NULL;
    Serving self = {.client = client, .lines = lines};
    const char *text = ecfs_control_text (request, "path");
    g_autofree char *path = text == NULL ? NULL : ecfs_control_unescape (text);
    const EcfsTransfer transfer = {.progress = tell_progress, .problem = tell_problem, .user = &self};
    const EcfsRecodeHere what = {.path = path,
                                 .code = ecfs_control_text (request, "code"),
                                 .transfer = &transfer,
                                 .changed = client->ops->changed,
                                 .user = client->ops->user};
    bool asked = (path != NULL && what.code != NULL) ||
                 ecfs_fail (&error, EINVAL, "control socket: \"path\" or \"code\" is missing or wrong");
    JsonObject *reply = json_object_new ();
    (void) (asked && ecfs_recode_here (client->archive, &what, &error)); /* told by the error */
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

bool ecfs_recode_mounted (const char *archive_dir, const char *path, const char *code, const EcfsTransfer *transfer,
                          GError **error)
{
    Asking self = {.tally = {.transfer = transfer}};
    int fd = ecfs_control_connect (archive_dir, error);
    if (fd < 0)
        return false;
    ecfs_lines_init (&self.lines, fd);
    g_autoptr (JsonObject) request = json_object_new ();
    g_autofree char *escaped = ecfs_control_escape (path);
    json_object_set_string_member (request, "verb", "recode");
    json_object_set_string_member (request, "path", escaped);
    json_object_set_string_member (request, "code", code);
    bool heard = ecfs_lines_send_object (&self.lines, request, -1, error) && hear_all (&self, error);
    ecfs_lines_clear (&self.lines);
    return ecfs_tally_end (&self.tally, "were not recoded", heard ? error : NULL) && heard;
}
