/* recode, drain and undelete by the mount that has the archive open: the asking side of conversations that tell how far
 * it is. */
#include "verbs/drain.h"
#include "verbs/recode.h"
#include "verbs/undelete.h"
#include "verbs/verbs.h"
#include "wire/wire.h"

#include <poll.h>

#define TICK_MS 200

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
    progress->n_current = (uint64_t) ecfs_control_number (line, "current");
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
    if (json_object_has_member (line, "problem") && !good && ecfs_control_flag (line, "warning"))
        ecfs_tally_warn (&self->tally, g_steal_pointer (&told));
    else if (json_object_has_member (line, "problem") && !good)
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

/* Has the mount do it; takes @request. @failed: what did not become of files, for the message. */
static bool ask_transfer (const char *archive_dir, JsonObject *request, const EcfsTransferOptions *transfer,
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

bool ecfs_drain_mounted (const char *archive_dir, const EcfsDrainHere *what, GError **error)
{
    JsonObject *request = json_object_new ();
    json_object_set_string_member (request, "verb", "drain");
    json_object_set_string_member (request, "endpoint", what->name);
    if (what->towards != NULL) {
        JsonArray *towards = json_array_new ();
        for (size_t i = 0; what->towards[i] != NULL; i++)
            json_array_add_string_element (towards, what->towards[i]);
        json_object_set_array_member (request, "towards", towards);
    }
    return ask_transfer (archive_dir, request, what->transfer, "were not moved", error);
}

bool ecfs_policy_mounted (const char *archive_dir, const char *path, const EcfsTransferOptions *transfer,
                          GError **error)
{
    JsonObject *request = json_object_new ();
    g_autofree char *escaped = ecfs_control_escape (path);
    json_object_set_string_member (request, "verb", "recode");
    json_object_set_string_member (request, "path", escaped);
    json_object_set_boolean_member (request, "policy", TRUE);
    return ask_transfer (archive_dir, request, transfer, "were not moved", error);
}

bool ecfs_recode_mounted (const char *archive_dir, const char *path, const char *code,
                          const EcfsTransferOptions *transfer, GError **error)
{
    JsonObject *request = json_object_new ();
    g_autofree char *escaped = ecfs_control_escape (path);
    json_object_set_string_member (request, "verb", "recode");
    json_object_set_string_member (request, "path", escaped);
    if (code != NULL)
        json_object_set_string_member (request, "code", code);
    else
        json_object_set_boolean_member (request, "seal", TRUE);
    return ask_transfer (archive_dir, request, transfer, "were not recoded", error);
}

bool ecfs_undelete_mounted (const char *archive_dir, const EcfsUndeleteHere *what, GError **error)
{
    JsonObject *request = json_object_new ();
    JsonArray *paths = json_array_new ();
    g_autofree char *past = ecfs_control_escape (what->past);
    for (const char *const *path = what->paths; *path != NULL; path++) {
        g_autofree char *text = ecfs_control_escape (*path);
        json_array_add_string_element (paths, text);
    }
    json_object_set_string_member (request, "verb", "undelete");
    json_object_set_array_member (request, "paths", paths);
    json_object_set_string_member (request, "past", past);
    json_object_set_boolean_member (request, "keep", what->keep);
    json_object_set_int_member (request, "at_ns", what->at_ns);
    json_object_set_int_member (request, "looked_us", what->looked_us);
    if (what->notes != NULL)
        json_object_set_string_member (request, "prune_notes", what->notes);
    return ask_transfer (archive_dir, request, what->transfer, "were not brought back", error);
}

bool ecfs_release_brake_mounted (const char *archive_dir, GError **error)
{
    JsonObject *request = json_object_new ();
    json_object_set_string_member (request, "verb", "brake-end");
    g_autoptr (JsonNode) question = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (question, request);
    g_autoptr (JsonNode) answer = ecfs_control_call (archive_dir, question, error);
    return answer != NULL;
}
