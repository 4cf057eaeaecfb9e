/* put and get */
#include "tool.h"

#include <string.h>
#include <unistd.h>

int verb_put (const Verb *verb, int argc, char **argv)
{
    g_autofree char *code = NULL;
    gboolean update = FALSE;
    const GOptionEntry options[] = {
        {"code", 'c', 0, G_OPTION_ARG_STRING, &code, "Code for these files instead of the directory's", "CODE"},
        {"update", 'u', 0, G_OPTION_ARG_NONE, &update,
         "Leaves files alone that the archive has with the same size and time", NULL},
        G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 3, G_MAXINT);
    GError *error = NULL;
    g_autoptr (Ecfs) ecfs = ecfs_open (argv[1], ECFS_OPEN_WRITE, &error);
    if (ecfs == NULL)
        return tool_fail (verb->name, error, TOOL_FAILED);
    g_autofree const char **sources = g_new0 (const char *, (size_t) argc - 2);
    for (int i = 2; i < argc - 1; i++)
        sources[i - 2] = argv[i];
    ToolTransfer transfer;
    tool_transfer_begin (&transfer, verb->name);
    transfer.transfer.code = code;
    transfer.transfer.update = update;
    (void) ecfs_put (ecfs, sources, argv[argc - 1], &transfer.transfer, &error); /* the error says it */
    return tool_transfer_end (&transfer, error);
}

static int get_to_stdout (const Verb *verb, Ecfs *ecfs, char **paths, int n_paths)
{
    for (int i = 0; i < n_paths; i++) {
        GError *error = NULL;
        if (!ecfs_cat (ecfs, paths[i], STDOUT_FILENO, &error))
            return tool_fail (verb->name, error, TOOL_FAILED);
    }
    return TOOL_DONE;
}

int verb_get (const Verb *verb, int argc, char **argv)
{
    argc = tool_parse (verb, NULL, argc, argv, 3, G_MAXINT);
    GError *error = NULL;
    g_autoptr (Ecfs) ecfs = ecfs_open (argv[1], 0, &error);
    if (ecfs == NULL)
        return tool_fail (verb->name, error, TOOL_FAILED);
    const char *directory = argv[argc - 1];
    if (strcmp (directory, "-") == 0)
        return get_to_stdout (verb, ecfs, argv + 2, argc - 3);
    g_autofree const char **paths = g_new0 (const char *, (size_t) argc - 2);
    for (int i = 2; i < argc - 1; i++)
        paths[i - 2] = argv[i];
    ToolTransfer transfer;
    tool_transfer_begin (&transfer, verb->name);
    (void) ecfs_get (ecfs, paths, directory, &transfer.transfer, &error); /* the error says it */
    return tool_transfer_end (&transfer, error);
}
