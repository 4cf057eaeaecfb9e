/* export and fetch: a file's descriptor, and its content by that alone */
#include "tool.h"

#include <stdio.h>
#include <string.h>

int verb_export (const Verb *verb, int argc, char **argv)
{
    g_autofree char *format = NULL;
    const GOptionEntry options[] = {
        {"format", 'f', 0, G_OPTION_ARG_STRING, &format, "ecfs (the default), or fec: a properties file", "FORMAT"},
        G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 1, 2);
    g_auto (GStrv) words = tool_in_archive (verb, &argc, argv, 1, 0);
    bool fec = g_strcmp0 (format, "fec") == 0;
    if (format != NULL && !fec && strcmp (format, "ecfs") != 0) {
        tool_say (verb->name, "\"%s\" is neither ecfs nor fec", format);
        return TOOL_USAGE;
    }
    GError *error = NULL;
    g_autoptr (Ecfs) ecfs = ecfs_open (words[1], 0, &error);
    g_autofree char *text = ecfs == NULL ? NULL : ecfs_export (ecfs, words[2], fec, &error);
    if (text == NULL)
        return tool_fail (verb->name, error, TOOL_FAILED);
    if (fputs (text, stdout) == EOF || fflush (stdout) != 0) {
        tool_say (verb->name, "writing: %s", g_strerror (errno));
        return TOOL_FAILED;
    }
    return TOOL_DONE;
}

int verb_fetch (const Verb *verb, int argc, char **argv)
{
    g_auto (GStrv) endpoints = NULL;
    const GOptionEntry options[] = {{"endpoint", 'e', 0, G_OPTION_ARG_STRING_ARRAY, &endpoints,
                                     "Use this instead of the descriptor's URL of that name; may be repeated",
                                     "NAME=URL[,KEY=VALUE...]"},
                                    G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 2, 2);
    GError *error = NULL;
    if (!ecfs_fetch (argv[1], argv[2], (const char *const *) endpoints, &error))
        return tool_fail (verb->name, error, TOOL_FAILED);
    return TOOL_DONE;
}
