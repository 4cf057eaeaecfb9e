/* mark: moments with a name, of which everything is kept. */
#include "tool.h"

#include <inttypes.h>
#include <stdio.h>

static void print_mark (JsonObject *mark)
{
    g_autoptr (GDateTime) time = g_date_time_new_from_unix_local (tool_number (mark, "time_ns") / 1000000000);
    g_autofree char *when = time == NULL ? g_strdup ("?") : g_date_time_format (time, "%F %T");
    g_autofree char *bytes = tool_bytes ((double) tool_number (mark, "bytes"));
    printf ("%s  %-20s  %s that only the past has\n", when, tool_text (mark, "name"), bytes);
}

static int list (const Verb *verb, const char *archive, bool json)
{
    GError *error = NULL;
    g_autoptr (Ecfs) ecfs = ecfs_open (archive, 0, &error);
    g_autofree char *text = ecfs == NULL ? NULL : ecfs_marks (ecfs, &error);
    if (text == NULL)
        return tool_fail (verb->name, error, TOOL_FAILED);
    if (json) {
        puts (text);
        return TOOL_DONE;
    }
    g_autoptr (JsonArray) marks = tool_json_array (text);
    for (guint i = 0; i < json_array_get_length (marks); i++)
        print_mark (json_array_get_object_element (marks, i));
    return TOOL_DONE;
}

int verb_mark (const Verb *verb, int argc, char **argv)
{
    gboolean lists = FALSE, removes = FALSE, json = FALSE;
    const GOptionEntry options[] = {
        {"list", 'l', 0, G_OPTION_ARG_NONE, &lists, "Print all marks", NULL},
        {"remove", 'r', 0, G_OPTION_ARG_NONE, &removes, "Remove the mark, and keep no longer what only it needs", NULL},
        {"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print a JSON array, with --list", NULL},
        G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 1, 2);
    g_autofree char *archive = tool_archive (argv[1]);
    if (lists != (argc == 2) || (lists && removes) || (json && !lists)) {
        tool_say (verb->name, "give an archive and the name of a mark, or an archive and --list");
        return TOOL_USAGE;
    }
    if (lists)
        return list (verb, archive, json);
    GError *error = NULL;
    g_autoptr (Ecfs) ecfs = ecfs_open (archive, ECFS_OPEN_WRITE, &error);
    if (ecfs == NULL)
        return tool_fail (verb->name, error, TOOL_FAILED);
    return ecfs_mark (ecfs, argv[2], removes, &error) ? TOOL_DONE
                                                      : tool_fail (verb->name, error, tool_status (error->code));
}
