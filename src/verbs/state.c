/* The verbs info, status and wait: questions about an archive, which its mount answers where there is one. */
#include "archive/common.h"
#include "archive/in_use.h"
#include "archive/key_watch.h"
#include "verbs/status.h"
#include "verbs/verbs.h"
#include "wire/wire.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define PATIENCE_US 5000000 /* with endpoints that do not answer */

static JsonNode *to_node (JsonObject *object)
{
    JsonNode *node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, object);
    return node;
}

static char *to_text (JsonObject *object)
{
    JsonNode *node = to_node (object);
    char *text = json_to_string (node, TRUE);
    json_node_unref (node);
    return text;
}

char *ecfs_info (Ecfs *self, const char *path, GError **error)
{
    EcfsAttr attr;
    if (!ecfs_catalog_resolve (ecfs_archive_catalog (self->archive), path, &attr, error))
        return NULL;
    if (S_ISREG (attr.mode))
        ecfs_archive_probe (self->archive, PATIENCE_US);
    JsonObject *info = ecfs_archive_info (self->archive, path, error);
    return info == NULL ? NULL : to_text (info);
}

/* Asks the mount of this archive; @request is taken. NULL without an error: it is not mounted. */
static JsonNode *ask_mount (Ecfs *self, JsonObject *request, GError **error)
{
    g_autoptr (JsonNode) question = to_node (request);
    GError *failure = NULL;
    JsonNode *answer = ecfs_control_call (ecfs_archive_directory (self->archive), question, &failure);
    if (answer != NULL)
        return answer;
    if (ecfs_errno (failure) == ENOTCONN)
        g_error_free (failure);
    else
        g_propagate_error (error, failure);
    return NULL;
}

static JsonObject *status_of_mount (JsonNode *answer, GError **error)
{
    JsonObject *object = JSON_NODE_HOLDS_OBJECT (answer) ? json_node_get_object (answer) : NULL;
    JsonNode *status = object == NULL ? NULL : json_object_get_member (object, "status");
    bool good = (status != NULL && JSON_NODE_HOLDS_OBJECT (status)) ||
                ecfs_fail (error, EPROTO, "the mount's answer has no status: it may be of another version of ecfs");
    if (!good)
        return NULL;
    JsonObject *facts = json_node_dup_object (status);
    json_object_set_string_member (facts, "mountpoint",
                                   json_object_get_string_member_with_default (object, "mountpoint", ""));
    json_object_set_int_member (facts, "pid", json_object_get_int_member_with_default (object, "pid", 0));
    return facts;
}

/* As a signal stops it, or a debugger does. */
static bool is_stopped (pid_t pid)
{
    g_autofree char *path = g_strdup_printf ("/proc/%ld/stat", (long) pid), *text = NULL;
    const char *end = g_file_get_contents (path, &text, NULL, NULL) ? strrchr (text, ')') : NULL; /* of its name */
    return end != NULL && (g_str_has_prefix (end, ") T") || g_str_has_prefix (end, ") t"));
}

/* Whose process it is that does not answer. */
static void add_silent (JsonObject *status, const char *directory)
{
    EcfsHolder holder = {0};
    JsonObject *facts = json_object_new ();
    if (ecfs_archive_holder (directory, &holder)) {
        json_object_set_int_member (facts, "pid", holder.pid);
        json_object_set_boolean_member (facts, "stopped", is_stopped (holder.pid));
        if (holder.mountpoint != NULL)
            ecfs_status_add_text (facts, "mountpoint", holder.mountpoint);
    }
    ecfs_holder_clear (&holder);
    json_object_set_object_member (status, "silent_mount", facts);
}

static char *status_text (Ecfs *self, bool survey, GError **error)
{
    JsonObject *request = json_object_new ();
    json_object_set_string_member (request, "verb", "status");
    json_object_set_boolean_member (request, "survey", survey);
    GError *failure = NULL;
    g_autoptr (JsonObject) asked = request;
    g_autoptr (JsonNode) answer = self->silent ? NULL : ask_mount (self, g_steal_pointer (&asked), &failure);
    JsonObject *status = NULL;
    if (answer != NULL)
        status = status_of_mount (answer, &failure);
    else if (failure == NULL) {
        if (self->writable)
            ecfs_archive_keep_space (self->archive, ecfs_now_us () + PATIENCE_US);
        status = ecfs_archive_status (self->archive, PATIENCE_US, survey, &failure);
    }
    if (status == NULL) {
        g_propagate_error (error, failure);
        return NULL;
    }
    json_object_set_boolean_member (status, "mounted", answer != NULL);
    if (self->silent)
        add_silent (status, ecfs_archive_directory (self->archive));
    ecfs_status_judge (status);
    return to_text (status);
}

char *ecfs_status_of_mount (const char *directory, GError **error)
{
    JsonObject *request = json_object_new ();
    json_object_set_string_member (request, "verb", "status");
    g_autoptr (JsonNode) question = to_node (request);
    g_autoptr (JsonNode) answer = ecfs_control_call (directory, question, error);
    JsonObject *status = answer == NULL ? NULL : status_of_mount (answer, error);
    if (status == NULL)
        return NULL;
    json_object_set_boolean_member (status, "mounted", TRUE);
    ecfs_status_judge (status);
    return to_text (status);
}

char *ecfs_status (Ecfs *self, GError **error)
{
    return status_text (self, false, error);
}

char *ecfs_survey (Ecfs *self, GError **error)
{
    return status_text (self, true, error);
}

/* The inode that a path given to wait stands for: 0 is everything. */
static bool waited_for (EcfsCatalog *catalog, const char *path, uint64_t *ret_ino, GError **error)
{
    EcfsAttr attr;
    if (!ecfs_catalog_resolve (catalog, path, &attr, error))
        return false;
    *ret_ino = S_ISREG (attr.mode) ? attr.ino : 0;
    return true;
}

/* Without a mount nothing moves: all is stored, or it waits for one. @ino 0: everything. */
static bool is_stored (Ecfs *self, const GPtrArray *rows, uint64_t ino, bool quorum, GError **error)
{
    unsigned n_staged = 0;
    for (guint i = 0; i < rows->len; i++) {
        const EcfsStagingRow *row = g_ptr_array_index (rows, i);
        bool committed = row->state == ECFS_STAGING_STORED;
        n_staged += (ino == 0 || row->ino == ino) && !(quorum && committed);
    }
    if (n_staged > 0)
        return ecfs_fail (
            error, ENOTCONN,
            "%s has %u files in staging and is not mounted for writing: mount it for writing to store them",
            ecfs_archive_directory (self->archive), n_staged);
    return quorum || ecfs_archive_check_full (self->archive, ino, error);
}

static bool nothing_staged (Ecfs *self, const char *const *paths, bool quorum, GError **error)
{
    EcfsCatalog *catalog = ecfs_archive_catalog (self->archive);
    g_autoptr (GPtrArray) rows = ecfs_catalog_staging_list (catalog, error);
    bool good = rows != NULL;
    if (good && (paths == NULL || paths[0] == NULL))
        return is_stored (self, rows, 0, quorum, error);
    for (size_t i = 0; good && paths[i] != NULL; i++) {
        uint64_t ino;
        good = waited_for (catalog, paths[i], &ino, error) && is_stored (self, rows, ino, quorum, error);
    }
    return good;
}

/* As one of those that have it open: who leads stores it, and where nobody does, this process. */
static bool store_journal (Ecfs *self, GError **error)
{
    g_autoptr (Ecfs) member = ecfs_open (ecfs_archive_directory (self->archive), ECFS_OPEN_WRITE, error);
    return member != NULL && ecfs_archive_store_journal (member->archive, NULL, NULL, error) &&
           ecfs_archive_confirm_key (self->archive, NULL, NULL, error);
}

/* What was never mounted has no names to lose. */
static bool has_journal (Ecfs *self, unsigned flags, GError **error)
{
    const bool is_one_of_many = ecfs_archive_config (self->archive)->catalog_many && self->past == NULL;
    EcfsRecoveryPoint point;
    uint64_t next_ino;
    if (!ecfs_archive_recovery_point (self->archive, &point, error) ||
        !ecfs_catalog_next_ino (ecfs_archive_catalog (self->archive), &next_ino, error))
        return false;
    if (next_ino == ECFS_ROOT_INO + 1)
        return true;
    if (point.stored < point.sequence && is_one_of_many && !self->silent && (flags & ECFS_WAIT_UNMOUNTED) != 0)
        return store_journal (self, error);
    g_autoptr (GError) why = NULL;
    if (point.stored < point.sequence && !ecfs_archive_confirm_journal (self->archive, &why) && why->code == ESTALE) {
        g_propagate_error (error, g_steal_pointer (&why)); /* no mount would store them */
        return false;
    }
    if (point.stored < point.sequence)
        return ecfs_fail (error, ENOTCONN,
                          "%s has %" PRIu64 " changes that are not in the journal on the endpoints, and is not mounted "
                          "for writing: mount it for writing to store them",
                          ecfs_archive_directory (self->archive), point.sequence - point.stored);
    return ecfs_archive_confirm_journal (self->archive, error) &&
           ecfs_archive_confirm_key (self->archive, NULL, NULL, error);
}

static void add_path (JsonArray *array, const char *path)
{
    g_autofree char *text = ecfs_control_escape (path);
    json_array_add_string_element (array, text);
}

/* Whoever waits has just written something: without a mount it went somewhere else. */
static bool is_mounted_or_need_not (Ecfs *self, unsigned flags, GError **error)
{
    return (flags & ECFS_WAIT_UNMOUNTED) != 0 ||
           ecfs_fail (error, ENOTCONN,
                      "%s is not mounted for writing, so what was written to its mountpoint is not in the archive: "
                      "mount it first, or ask with 'ecfs wait --unmounted' whether everything in the archive is stored",
                      ecfs_archive_directory (self->archive));
}

bool ecfs_wait (Ecfs *self, const char *const *paths, unsigned flags, GError **error)
{
    bool quorum = (flags & ECFS_WAIT_QUORUM) != 0;
    JsonObject *request = json_object_new ();
    JsonArray *array = json_array_new ();
    for (size_t i = 0; paths != NULL && paths[i] != NULL; i++)
        add_path (array, paths[i]);
    json_object_set_string_member (request, "verb", "wait");
    json_object_set_boolean_member (request, "quorum", quorum);
    json_object_set_array_member (request, "paths", array);
    GError *failure = NULL;
    g_autoptr (JsonNode) answer = ask_mount (self, request, &failure);
    if (failure != NULL)
        g_propagate_error (error, failure);
    /* What a copy lacks a mount of it cannot store either. */
    return answer != NULL ||
           (failure == NULL &&
            ecfs_in_use_check (ecfs_archive_directory (self->archive), ecfs_archive_catalog (self->archive), error) &&
            nothing_staged (self, paths, quorum, error) && has_journal (self, flags, error) &&
            is_mounted_or_need_not (self, flags, error));
}
