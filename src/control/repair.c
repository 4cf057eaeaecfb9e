/* The conversation of `repair` on the control socket: wire.h has its lines. */
#include "check/check.h"
#include "control/control_priv.h"

#include <poll.h>

typedef struct Serving {
    const EcfsControlClient *client;
    EcfsLines *lines;
    JsonArray *objects; /* of the request */
    guint next;
    bool gone; /* who asked */
} Serving;

static void send_line (Serving *self, JsonObject *line)
{
    g_autoptr (JsonObject) sent = line;
    self->gone = self->gone || !ecfs_lines_send_object (self->lines, sent, -1, NULL); /* who hung up cancels */
}

/* A flat array of numbers, which may be from anybody: index, instance, whether it is gone. */
static bool parse_stripes (JsonArray *stripes, EcfsRepairOrder *order)
{
    guint n = json_array_get_length (stripes);
    for (guint i = 0; i + 2 < n; i += 3) {
        int64_t index = json_array_get_int_element (stripes, i);
        if (index < 0 || index >= ECFS_CODEC_MAX_N)
            return false;
        order->instance[index] = (uint64_t) json_array_get_int_element (stripes, i + 1);
        order->gone[index] = json_array_get_int_element (stripes, i + 2) != 0;
    }
    return n % 3 == 0;
}

static bool holds_numbers (JsonArray *array)
{
    for (guint i = 0; array != NULL && i < json_array_get_length (array); i++) {
        JsonNode *node = json_array_get_element (array, i);
        if (!JSON_NODE_HOLDS_VALUE (node) || json_node_get_value_type (node) != G_TYPE_INT64)
            return false;
    }
    return array != NULL;
}

static JsonArray *array_member (JsonObject *object, const char *name)
{
    JsonNode *node = object == NULL ? NULL : json_object_get_member (object, name);
    return node != NULL && JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
}

/* Likewise: index, instance, endpoint, size. NULL: there are none that make sense. */
static GArray *parse_spares (JsonArray *spares)
{
    if (!holds_numbers (spares))
        return NULL;
    GArray *parsed = g_array_new (FALSE, FALSE, sizeof (EcfsStripeRow));
    for (guint i = 0; i + 3 < json_array_get_length (spares); i += 4) {
        int64_t index = json_array_get_int_element (spares, i);
        const EcfsStripeRow row = {.index = (uint16_t) index,
                                   .instance = (uint64_t) json_array_get_int_element (spares, i + 1),
                                   .endpoint = json_array_get_int_element (spares, i + 2),
                                   .size = (uint64_t) json_array_get_int_element (spares, i + 3)};
        if (index >= 0 && index < ECFS_CODEC_MAX_N)
            g_array_append_val (parsed, row);
    }
    return parsed;
}

static EcfsRepairTask *next_asked (void *user)
{
    Serving *self = user;
    if (self->next >= json_array_get_length (self->objects))
        return NULL;
    JsonNode *node = json_array_get_element (self->objects, self->next++);
    JsonObject *asked = JSON_NODE_HOLDS_OBJECT (node) ? json_node_get_object (node) : NULL;
    JsonArray *stripes = array_member (asked, "stripes");
    EcfsRepairTask *task = g_new0 (EcfsRepairTask, 1);
    if (!holds_numbers (stripes) || !parse_stripes (stripes, &task->order)) {
        g_free (task);
        self->gone = true; /* no ecfs-fsck asks so: it is left alone */
        return NULL;
    }
    task->object = ecfs_control_number (asked, "object");
    task->spares = parse_spares (array_member (asked, "spares"));
    task->order.is_crowded = ecfs_control_flag (asked, "crowded");
    return task;
}

static void tell_task (void *user, EcfsRepairTask *task)
{
    JsonObject *line = json_object_new ();
    json_object_set_int_member (line, "object", task->object);
    json_object_set_int_member (line, "stored", task->order.n_stored);
    json_object_set_int_member (line, "read", (int64_t) task->order.read_bytes);
    json_object_set_int_member (line, "written", (int64_t) task->order.written_bytes);
    if (task->error != NULL)
        ecfs_control_put_error (line, task->error);
    send_line (user, line);
    ecfs_repair_task_clear (task);
    g_free (task);
}

static bool still_wanted (void *user)
{
    const Serving *self = user;
    struct pollfd peer = {.fd = self->lines->fd, .events = POLLRDHUP};
    return !self->gone && poll (&peer, 1, 0) == 0 && !self->client->is_stopping (self->client->user);
}

void ecfs_control_repair (const EcfsControlClient *client, EcfsLines *lines, JsonObject *request)
{
    g_autoptr (GError) error = NULL;
    Serving self = {.client = client, .lines = lines, .objects = array_member (request, "objects")};
    const EcfsRepairs repairs = {.next = next_asked, .done = tell_task, .tick = still_wanted, .user = &self};
    JsonObject *reply = json_object_new ();
    bool asked = self.objects != NULL || ecfs_fail (&error, EINVAL, "control socket: \"objects\" is missing or wrong");
    if (asked)
        ecfs_repair_here (client->archive, &repairs);
    (void) (asked && ecfs_catalog_barrier (ecfs_archive_catalog (client->archive), &error)); /* told by the error */
    ecfs_control_put_end (reply, error);
    send_line (&self, reply);
}
