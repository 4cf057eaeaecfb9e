/* Repairing and pruning by the mount that has the archive open: the asking side of both. */
#include "fsck/fsck_priv.h"
#include "wire/wire.h"

#include <poll.h>

#define TICK_MS 200
#define MOST    64 /* objects in one request */

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
        task->error = why != NULL ? g_error_copy (why)
                                  : g_error_new_literal (ECFS_ERROR, EPROTO, "the mount did not say what became of it");
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

static JsonNode *request_for (int64_t endpoint, const EcfsPruneStripe *stripes, size_t n_stripes, bool unrecovered)
{
    JsonObject *object = json_object_new ();
    JsonArray *array = json_array_new ();
    for (size_t i = 0; i < n_stripes; i++) {
        char uuid[ECFS_UUID_TEXT_SIZE];
        JsonObject *one = json_object_new ();
        ecfs_uuid_text (&stripes[i].object, uuid);
        json_object_set_string_member (one, "object", uuid);
        json_object_set_int_member (one, "index", stripes[i].index);
        json_object_set_int_member (one, "instance", (int64_t) stripes[i].instance);
        json_array_add_object_element (array, one);
    }
    json_object_set_string_member (object, "verb", "prune");
    json_object_set_int_member (object, "endpoint", endpoint);
    json_object_set_boolean_member (object, "unrecovered", unrecovered);
    json_object_set_array_member (object, "stripes", array);
    JsonNode *request = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (request, object);
    return request;
}

static bool flag_at (JsonObject *answer, const char *name, guint i)
{
    JsonNode *node = json_object_get_member (answer, name);
    JsonArray *flags = node != NULL && JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
    return flags != NULL && i < json_array_get_length (flags) && json_array_get_boolean_element (flags, i);
}

bool ecfs_prune_mounted (const char *archive_dir, int64_t endpoint, EcfsPruneStripe *stripes, size_t n_stripes,
                         bool unrecovered, GError **error)
{
    g_autoptr (JsonNode) request = request_for (endpoint, stripes, n_stripes, unrecovered);
    g_autoptr (JsonNode) answer = ecfs_control_call (archive_dir, request, error);
    if (answer == NULL)
        return false;
    JsonObject *object = json_node_get_object (answer);
    const char *reason = ecfs_control_text (object, "reason");
    for (guint i = 0; i < n_stripes; i++) {
        stripes[i].removed = flag_at (object, "removed", i);
        stripes[i].is_unrecovered = flag_at (object, "unrecovered", i);
    }
    return reason == NULL || ecfs_fail (error, EAGAIN, "%s", reason);
}
