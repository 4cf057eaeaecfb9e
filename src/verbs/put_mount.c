/* Storing files through the mount that has the archive open: the asking side of the conversation of `put`. */
#include "util/lock.h"
#include "verbs/put_store.h"
#include "wire/wire.h"

#include <poll.h>

typedef struct Mount {
    EcfsPutStore base;
    EcfsLines lines;
    GHashTable *files; /* id as int64_t → EcfsPutFile that is on its way; borrowed */
    GQueue ended;      /* of EcfsPutFile */
    GError *broken;    /* the connection is of no more use; NULL: it is */
    int64_t last_id;
    uint64_t wire_bytes;
} Mount;

static Mount *mount_of (EcfsPutStore *store)
{
    return (Mount *) store; /* its first member */
}

/* Nothing that was sent will be answered. Takes @error. */
static void set_broken (Mount *self, GError *error)
{
    GHashTableIter iter;
    gpointer value;
    if (self->broken != NULL) {
        g_error_free (error);
        return;
    }
    g_prefix_error (&error, "the mount of the archive ended: ");
    self->broken = error;
    g_hash_table_iter_init (&iter, self->files);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        EcfsPutFile *file = value;
        file->error = g_error_copy (error);
        g_queue_push_tail (&self->ended, file);
    }
    g_hash_table_remove_all (self->files);
}

static void end_file (Mount *self, JsonObject *reply)
{
    int64_t id = ecfs_control_number (reply, "file");
    EcfsPutFile *file = g_hash_table_lookup (self->files, &id);
    if (file == NULL)
        return; /* it was answered before, or never asked */
    file->ino = (uint64_t) ecfs_control_number (reply, "ino");
    file->full = ecfs_control_flag (reply, "full");
    const char *warning = ecfs_control_text (reply, "warning");
    if (warning != NULL)
        file->warning = g_error_new_literal (ECFS_ERROR, EIO, warning);
    (void) ecfs_control_check (reply, &file->error); /* kept in the file */
    g_hash_table_remove (self->files, &id);
    g_queue_push_tail (&self->ended, file);
}

/* The next line that answers a step; NULL: none of what was received does. */
static JsonNode *next_answer (Mount *self, GError **error)
{
    char *line;
    while ((line = ecfs_lines_take (&self->lines)) != NULL) {
        g_autoptr (JsonNode) node = ecfs_control_parse (line, error);
        g_free (line);
        if (node == NULL)
            return NULL;
        JsonObject *reply = json_node_get_object (node);
        if (json_object_has_member (reply, "wire"))
            self->wire_bytes = (uint64_t) ecfs_control_number (reply, "wire");
        else if (json_object_has_member (reply, "file"))
            end_file (self, reply);
        else
            return g_steal_pointer (&node);
    }
    return NULL;
}

static JsonNode *wait_for_answer (Mount *self, GError **error)
{
    for (;;) {
        GError *reason = NULL;
        JsonNode *answer = next_answer (self, &reason);
        if (answer != NULL)
            return answer;
        if (reason == NULL && ecfs_lines_receive (&self->lines, SIZE_MAX, &reason))
            continue;
        set_broken (self, reason);
        g_propagate_error (error, g_error_copy (self->broken));
        return NULL;
    }
}

static bool send_step (Mount *self, JsonObject *step, int fd, GError **error)
{
    GError *reason = NULL;
    if (self->broken == NULL && !ecfs_lines_send_object (&self->lines, step, fd, &reason))
        set_broken (self, reason);
    if (self->broken == NULL)
        return true;
    g_propagate_error (error, g_error_copy (self->broken));
    return false;
}

/* Takes @step. Returns what was answered, or NULL with the error that was. */
static JsonNode *ask (Mount *self, JsonObject *step, int fd, GError **error)
{
    g_autoptr (JsonObject) sent = step;
    g_autoptr (JsonNode) answer = send_step (self, sent, fd, error) ? wait_for_answer (self, error) : NULL;
    return answer != NULL && ecfs_control_check (json_node_get_object (answer), error) ? g_steal_pointer (&answer)
                                                                                       : NULL;
}

static bool tell (Mount *self, JsonObject *step, int fd, GError **error)
{
    g_autoptr (JsonNode) answer = ask (self, step, fd, error);
    return answer != NULL;
}

/* Steps */

static void set_escaped (JsonObject *object, const char *member, const char *bytes)
{
    g_autofree char *text = ecfs_control_escape (bytes);
    json_object_set_string_member (object, member, text);
}

static JsonObject *step_new (const char *name)
{
    JsonObject *step = json_object_new ();
    json_object_set_string_member (step, "step", name);
    return step;
}

/* A step about a name; @st may be NULL. */
static JsonObject *name_step (const char *step_name, uint64_t parent, const char *name, const struct stat *st)
{
    JsonObject *step = step_new (step_name);
    json_object_set_int_member (step, "parent", (int64_t) parent);
    set_escaped (step, "name", name);
    if (st != NULL)
        ecfs_control_put_attributes (step, st);
    return step;
}

static bool op_resolve (EcfsPutStore *store, const char *path, bool directory, EcfsPutPlace *ret_place, GError **error)
{
    JsonObject *step = step_new ("resolve");
    set_escaped (step, "path", path);
    json_object_set_boolean_member (step, "directory", directory);
    g_autoptr (JsonNode) answer = ask (mount_of (store), step, -1, error);
    if (answer == NULL)
        return false;
    JsonObject *reply = json_node_get_object (answer);
    const char *name = ecfs_control_text (reply, "name");
    *ret_place = (EcfsPutPlace){.parent = (uint64_t) ecfs_control_number (reply, "parent"),
                                .name = name == NULL ? NULL : ecfs_control_unescape (name)};
    return true;
}

static bool op_directory (EcfsPutStore *store, uint64_t parent, const char *name, const struct stat *st,
                          uint64_t *ret_ino, GError **error)
{
    g_autoptr (JsonNode) answer = ask (mount_of (store), name_step ("directory", parent, name, st), -1, error);
    if (answer == NULL)
        return false;
    *ret_ino = (uint64_t) ecfs_control_number (json_node_get_object (answer), "ino");
    return true;
}

static bool op_dress (EcfsPutStore *store, uint64_t ino, int fd, const struct stat *st, GError **error)
{
    JsonObject *step = step_new ("dress");
    json_object_set_int_member (step, "ino", (int64_t) ino);
    ecfs_control_put_attributes (step, st);
    return tell (mount_of (store), step, fd, error);
}

static bool op_special (EcfsPutStore *store, uint64_t parent, const char *name, const struct stat *st,
                        const char *target, GError **error)
{
    JsonObject *step = name_step ("special", parent, name, st);
    if (target != NULL)
        set_escaped (step, "target", target);
    return tell (mount_of (store), step, -1, error);
}

static bool op_link (EcfsPutStore *store, uint64_t ino, uint64_t parent, const char *name, GError **error)
{
    JsonObject *step = name_step ("link", parent, name, NULL);
    json_object_set_int_member (step, "ino", (int64_t) ino);
    return tell (mount_of (store), step, -1, error);
}

static void op_file (EcfsPutStore *store, EcfsPutFile *file)
{
    Mount *self = mount_of (store);
    int64_t id = ++self->last_id;
    g_autoptr (JsonObject) step = name_step (file->fills ? "fill" : "file", file->parent, file->name, &file->st);
    json_object_set_int_member (step, "id", id);
    json_object_set_int_member (step, "ino", (int64_t) file->ino);
    json_object_set_boolean_member (step, "fixed", file->is_fixed);
    if (send_step (self, step, file->fd, &file->error))
        g_hash_table_insert (self->files, g_memdup2 (&id, sizeof id), file);
    else
        g_queue_push_tail (&self->ended, file);
}

/* Reads what is there, or comes until the deadline. False: nothing did. */
static bool hear (Mount *self, int64_t deadline_us)
{
    GError *reason = NULL;
    int64_t left_us = deadline_us - ecfs_now_us ();
    struct pollfd wait = {.fd = self->lines.fd, .events = POLLIN};
    if (poll (&wait, 1, left_us > 0 ? (int) (left_us / 1000 + 1) : 0) <= 0)
        return false;
    if (ecfs_lines_receive (&self->lines, SIZE_MAX, &reason)) {
        g_autoptr (JsonNode) stray = next_answer (self, &reason);
        if (stray != NULL)
            reason = g_error_new_literal (ECFS_ERROR, EPROTO, "it answers what was not asked");
    }
    if (reason != NULL)
        set_broken (self, reason);
    return true;
}

static void op_collect (EcfsPutStore *store, int64_t deadline_us, GQueue *ret_files)
{
    Mount *self = mount_of (store);
    while (g_queue_is_empty (&self->ended) && self->broken == NULL && hear (self, deadline_us))
        ;
    EcfsPutFile *file;
    while ((file = g_queue_pop_head (&self->ended)) != NULL)
        g_queue_push_tail (ret_files, file);
}

static void op_cancel (EcfsPutStore *store)
{
    g_autoptr (JsonObject) step = step_new ("cancel");
    (void) !send_step (mount_of (store), step, -1, NULL); /* otherwise all of it has failed already */
}

static bool op_finish (EcfsPutStore *store, GError **error)
{
    return tell (mount_of (store), step_new ("end"), -1, error);
}

static uint64_t op_wire_bytes (EcfsPutStore *store)
{
    return mount_of (store)->wire_bytes;
}

static void op_free (EcfsPutStore *store)
{
    Mount *self = mount_of (store);
    ecfs_lines_clear (&self->lines);
    g_hash_table_unref (self->files);
    g_clear_error (&self->broken);
    g_free (self);
}

EcfsPutStore *ecfs_put_mount_new (const char *archive_dir, const char *code, GError **error)
{
    static const EcfsPutOps ops = {.resolve = op_resolve,
                                   .directory = op_directory,
                                   .dress = op_dress,
                                   .special = op_special,
                                   .link = op_link,
                                   .file = op_file,
                                   .collect = op_collect,
                                   .cancel = op_cancel,
                                   .finish = op_finish,
                                   .wire_bytes = op_wire_bytes,
                                   .free = op_free};
    int fd = ecfs_control_connect (archive_dir, error);
    if (fd < 0)
        return NULL;
    Mount *self = g_new0 (Mount, 1);
    *self = (Mount){.base.ops = &ops,
                    .files = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL),
                    .ended = G_QUEUE_INIT};
    ecfs_lines_init (&self->lines, fd);
    JsonObject *request = json_object_new ();
    json_object_set_string_member (request, "verb", "put");
    if (code != NULL)
        json_object_set_string_member (request, "code", code);
    if (tell (self, request, -1, error))
        return &self->base;
    op_free (&self->base);
    return NULL;
}
