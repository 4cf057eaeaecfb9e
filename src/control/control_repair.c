/* The conversation of `repair` on the control socket: control_priv.h tells its lines. */
#include "control/control_priv.h"
#include "fsck/fsck_priv.h"

#include <poll.h>

#define TICK_MS 200
#define MOST    64 /* objects in one request */

/* The mount's side */

typedef struct Serving {
    const EcfsControlPut *client;
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

void ecfs_control_repair (const EcfsControlPut *client, EcfsLines *lines, JsonObject *request)
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

/* Who asks */

typedef struct Asking {
    EcfsLines lines;
    const EcfsRepairs *repairs;
    GHashTable *tasks; /* int64_t of an object → EcfsRepairTask, of those not told yet */
    bool ended;
} Asking;

static JsonArray *describe_spares (const GArray *spares)
{
    JsonArray *array = json_array_new ();
    for (guint i = 0; i < spares->len; i++) {
        const EcfsStripeRow *spare = &g_array_index (spares, EcfsStripeRow, i);
        json_array_add_int_element (array, spare->index);
        json_array_add_int_element (array, (int64_t) spare->instance);
        json_array_add_int_element (array, spare->endpoint);
        json_array_add_int_element (array, (int64_t) spare->size);
    }
    return array;
}

static JsonObject *describe (const EcfsRepairTask *task)
{
    JsonObject *object = json_object_new ();
    JsonArray *stripes = json_array_new ();
    for (unsigned i = 0; i < ECFS_CODEC_MAX_N; i++) {
        if (task->order.instance[i] == 0)
            continue;
        json_array_add_int_element (stripes, i);
        json_array_add_int_element (stripes, (int64_t) task->order.instance[i]);
        json_array_add_int_element (stripes, task->order.gone[i]);
    }
    json_object_set_int_member (object, "object", task->object);
    json_object_set_array_member (object, "stripes", stripes);
    if (task->spares != NULL)
        json_object_set_array_member (object, "spares", describe_spares (task->spares));
    if (task->order.is_crowded)
        json_object_set_boolean_member (object, "crowded", TRUE);
    return object;
}

/* The next objects, as a request; NULL: there are none more. */
static JsonObject *next_request (Asking *self)
{
    JsonArray *objects = json_array_new ();
    EcfsRepairTask *task;
    while (json_array_get_length (objects) < MOST && (task = self->repairs->next (self->repairs->user)) != NULL) {
        json_array_add_object_element (objects, describe (task));
        g_hash_table_insert (self->tasks, &task->object, task);
    }
    JsonObject *request = json_object_new ();
    bool any = json_array_get_length (objects) > 0;
    json_object_set_string_member (request, "verb", "repair");
    json_object_set_array_member (request, "objects", objects);
    if (!any)
        g_clear_pointer (&request, json_object_unref);
    return request;
}

static void hear_task (Asking *self, JsonObject *line, GError *error)
{
    int64_t object = ecfs_control_number (line, "object");
    EcfsRepairTask *task = g_hash_table_lookup (self->tasks, &object);
    if (task == NULL) {
        g_clear_error (&error);
        return;
    }
    g_hash_table_remove (self->tasks, &object);
    task->order.n_stored = (unsigned) ecfs_control_number (line, "stored");
    task->order.read_bytes = (uint64_t) ecfs_control_number (line, "read");
    task->order.written_bytes = (uint64_t) ecfs_control_number (line, "written");
    task->error = error;
    self->repairs->done (self->repairs->user, task);
}

static bool hear_line (Asking *self, const char *text, GError **error)
{
    GError *told = NULL;
    g_autoptr (JsonNode) node = ecfs_control_parse (text, error);
    if (node == NULL)
        return false;
    JsonObject *line = json_node_get_object (node);
    bool good = ecfs_control_check (line, &told);
    if (json_object_has_member (line, "object")) {
        hear_task (self, line, told);
        return true;
    }
    self->ended = true;
    if (!good)
        g_propagate_error (error, told);
    return good;
}

static bool hear_all (Asking *self, GError **error)
{
    self->ended = false;
    while (!self->ended) {
        struct pollfd wait = {.fd = self->lines.fd, .events = POLLIN};
        if (!self->repairs->tick (self->repairs->user))
            return ecfs_fail (error, ECANCELED, "cancelled");
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

static bool ask (Asking *self, const char *archive_dir, JsonObject *request, GError **error)
{
    int fd = ecfs_control_connect (archive_dir, error);
    if (fd < 0)
        return false;
    ecfs_lines_init (&self->lines, fd);
    bool heard = ecfs_lines_send_object (&self->lines, request, -1, error) && hear_all (self, error);
    ecfs_lines_clear (&self->lines);
    return heard;
}

/* What was asked and not told is told as left. */
static void leave_rest (Asking *self, const GError *why)
{
    GHashTableIter iter;
    EcfsRepairTask *task;
    g_hash_table_iter_init (&iter, self->tasks);
    while (g_hash_table_iter_next (&iter, NULL, (void **) &task)) {
        g_hash_table_iter_remove (&iter);
        task->error = why != NULL
                          ? g_error_copy (why)
                          : g_error_new_literal (ECFS_ERROR, EPROTO, "the mount did not tell what became of it");
        self->repairs->done (self->repairs->user, task);
    }
}

bool ecfs_repair_mounted (const char *archive_dir, const EcfsRepairs *repairs, GError **error)
{
    Asking self = {.repairs = repairs, .tasks = g_hash_table_new (g_int64_hash, g_int64_equal)};
    GError *why = NULL;
    while (why == NULL) {
        g_autoptr (JsonObject) request = next_request (&self);
        if (request == NULL)
            break;
        (void) !ask (&self, archive_dir, request, &why);
        leave_rest (&self, why);
    }
    g_hash_table_unref (self.tasks);
    if (why == NULL)
        return true;
    g_propagate_error (error, why);
    return false;
}
