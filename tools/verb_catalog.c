/* catalog: where an archive's catalog is kept */
#include "tool.h"

#include <inttypes.h>
#include <stdio.h>

static void print_moved (JsonObject *report)
{
    const char *kept = tool_text (report, "kept");
    if (json_object_get_boolean_member (report, "dry_run")) {
        puts ("nothing was changed");
        return;
    }
    printf ("the catalog is in %s now", tool_text (report, "to"));
    if (tool_number (report, "rows") > 0)
        printf (", with %" PRIi64 " rows", tool_number (report, "rows"));
    puts ("");
    if (*kept != '\0')
        printf ("%s is what it was: nothing uses it any more, and it can be removed\n", kept);
}

static int run_move (int argc, char **argv)
{
    gboolean dry_run = FALSE, json = FALSE;
    const Verb verb = {"catalog move", "ARCHIVE file|postgresql://...|service=...", "Moves an archive's catalog", NULL};
    const GOptionEntry options[] = {
        {"dry-run", 'n', 0, G_OPTION_ARG_NONE, &dry_run, "Only say what would be done", NULL},
        {"json", 0, 0, G_OPTION_ARG_NONE, &json, "For programs", NULL},
        G_OPTION_ENTRY_NULL};
    (void) tool_parse (&verb, options, argc, argv, 2, 2);
    ToolWatch watch;
    GError *error = NULL;
    tool_watch_begin (&watch, verb.name, json);
    const EcfsMoving how = {.dry_run = dry_run, .tell = tool_watch_tell, .progress = tool_watch_tick, .user = &watch};
    g_autofree char *text = ecfs_move_catalog (argv[1], argv[2], &how, &error);
    tool_watch_end (&watch);
    if (text == NULL) {
        int code = error->code;
        (void) tool_fail (verb.name, error, TOOL_FAILED);
        if (code == ECANCELED) {
            g_autofree char *again = tool_command (NULL);
            tool_say (verb.name, "to begin again: %s", again);
        }
        return tool_status (code);
    }
    g_autoptr (JsonObject) report = tool_json_object (text);
    if (json)
        puts (text);
    else
        print_moved (report);
    return TOOL_DONE;
}

static int run_join (int argc, char **argv)
{
    GError *error = NULL;
    const Verb verb = {"catalog join", "ARCHIVE",
                       "Gives another machine's copy of an archive's files a name of its own", NULL};
    (void) tool_parse (&verb, NULL, argc, argv, 1, 1);
    if (!ecfs_join_catalog (argv[1], &error))
        return tool_fail (verb.name, error, TOOL_FAILED);
    printf ("%s can be mounted beside the others\n", argv[1]);
    return TOOL_DONE;
}

int verb_catalog (const Verb *verb, int argc, char **argv)
{
    static const Action actions[] = {{"join", run_join}, {"move", run_move}, {NULL, NULL}};
    return tool_run_action (verb, actions, argc, argv);
}
