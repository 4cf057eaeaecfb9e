/* history: what is kept of the past, and letting go of what a mass deletion took. */
#include "tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static char *clock_time (double seconds)
{
    g_autoptr (GDateTime) time = g_date_time_new_from_unix_local ((gint64) seconds);
    return time == NULL ? g_strdup ("?") : g_date_time_format (time, "%F %T");
}

static void print_kept (JsonObject *status)
{
    g_autofree char *history = tool_seconds ((double) tool_number (status, "history"));
    printf ("history    what was removed or overwritten in the last %s can come back\n", history);
    if (!json_object_has_member (status, "past")) /* the mount is of an earlier ecfs */
        return;
    JsonObject *past = json_object_get_object_member (status, "past");
    g_autofree char *bytes = tool_bytes ((double) tool_number (past, "bytes"));
    bool marked = json_object_has_member (status, "marks") &&
                  json_array_get_length (json_object_get_array_member (status, "marks")) > 0;
    if (json_object_has_member (past, "bytes"))
        printf ("           it takes %s at the endpoints%s\n", bytes, marked ? ", beside what marks keep" : "");
    else
        puts ("           how much it takes is known where the archive is written");
    int64_t n_degraded = tool_number (past, "degraded"), n_unreadable = tool_number (past, "unreadable");
    if (n_degraded > 0)
        printf ("           %" PRIi64 " of its %" PRIi64 " objects lack stripes now, or their endpoints are away\n",
                n_degraded, tool_number (past, "objects"));
    if (n_unreadable > 0)
        printf ("           %" PRIi64 " of its %" PRIi64 " objects cannot be read now\n", n_unreadable,
                tool_number (past, "objects"));
    if (json_object_has_member (past, "released")) {
        g_autofree char *when = clock_time (tool_double (past, "released"));
        printf ("           what was removed until %s was let go: %s\n", when,
                strcmp (tool_text (past, "released_for"), "room") == 0 ? "an endpoint was full"
                                                                       : "it took more than history_max");
    }
    if (json_object_has_member (past, "kept_though_full")) {
        g_autofree char *least = tool_seconds (tool_double (past, "kept_though_full"));
        printf ("           endpoints are full, and what was removed in the last %s stays all the same (history_min)\n",
                least);
    }
}

static void print_brake (const char *directory, JsonObject *brake)
{
    g_autofree char *until = clock_time (tool_double (brake, "until"));
    printf ("BRAKE      %" PRIi64 " of %" PRIi64 " files were deleted or overwritten within an hour\n"
            "           what they had is kept until %s\n"
            "           to undo it:    %s\n"
            "           to let it go:  ecfs history --release %s\n",
            tool_number (brake, "lost"), tool_number (brake, "files"), until, tool_text (brake, "command"), directory);
}

static void print_marks (JsonArray *marks)
{
    for (guint i = 0; i < json_array_get_length (marks); i++) {
        JsonObject *mark = json_array_get_object_element (marks, i);
        g_autofree char *when = clock_time (tool_double (mark, "time_ns") / 1e9);
        g_autofree char *bytes = tool_bytes (tool_double (mark, "bytes"));
        printf ("mark       %s of %s keeps %s that only the past has\n", tool_text (mark, "name"), when, bytes);
    }
}

void tool_print_history (JsonObject *status)
{
    if (tool_number (status, "history") > 0)
        print_kept (status);
    if (json_object_has_member (status, "marks")) /* not where the mount is of an earlier ecfs */
        print_marks (json_object_get_array_member (status, "marks"));
    if (json_object_has_member (status, "brake"))
        print_brake (tool_text (status, "directory"), json_object_get_object_member (status, "brake"));
}

static int release (const Verb *verb, const char *archive)
{
    GError *error = NULL;
    g_autoptr (Ecfs) ecfs = ecfs_open (archive, ECFS_OPEN_WRITE, &error);
    if (ecfs == NULL || !ecfs_release_brake (ecfs, &error))
        return tool_fail (verb->name, error, TOOL_FAILED);
    puts ("what was deleted goes when its time has passed, as anything else");
    return TOOL_DONE;
}

int verb_history (const Verb *verb, int argc, char **argv)
{
    gboolean json = FALSE, lets_go = FALSE;
    const GOptionEntry options[] = {{"release", 0, 0, G_OPTION_ARG_NONE, &lets_go,
                                     "A mass deletion was meant: what it took is kept no longer", NULL},
                                    {"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print a JSON object", NULL},
                                    G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 1, 1);
    GError *error = NULL;
    g_autofree char *archive = tool_archive (argv[1]);
    if (lets_go)
        return release (verb, archive);
    g_autoptr (Ecfs) ecfs = ecfs_open (archive, 0, &error);
    g_autofree char *text = ecfs == NULL ? NULL : ecfs_status (ecfs, &error);
    if (text == NULL)
        return tool_fail (verb->name, error, TOOL_FAILED);
    g_autoptr (JsonObject) status = tool_json_object (text);
    if (!json) {
        if (tool_number (status, "history") == 0)
            puts ("history    off: what was deleted or overwritten can come back for deletion_grace only");
        tool_print_history (status);
        return TOOL_DONE;
    }
    g_autoptr (JsonObject) facts = json_object_new ();
    for (const char *const *member = (const char *const[]){"history", "past", "marks", "brake", NULL}; *member != NULL;
         member++)
        if (json_object_has_member (status, *member))
            json_object_set_member (facts, *member, json_node_copy (json_object_get_member (status, *member)));
    JsonNode *node = json_node_new (JSON_NODE_OBJECT);
    json_node_set_object (node, facts);
    tool_print_json (node);
    return TOOL_DONE;
}
