/* destroy */
#include "tool.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How much there is to lose, as far as that can be told. */
static void tell_what_is_there (const char *archive)
{
    g_autoptr (Ecfs) ecfs = ecfs_open (archive, 0, NULL);
    g_autofree char *text = ecfs == NULL ? NULL : ecfs_status (ecfs, NULL);
    if (text == NULL)
        return;
    g_autoptr (JsonObject) status = tool_json_object (text);
    g_autofree char *bytes = tool_bytes ((double) tool_number (status, "content_bytes"));
    fprintf (stderr, "%s has %" G_GINT64_FORMAT " files with %s. They will be removed here and on every endpoint.\n",
             archive, tool_number (status, "files"), bytes);
}

static bool is_confirmed (const char *archive)
{
    char answer[16] = "";
    if (!isatty (STDIN_FILENO)) {
        tool_say ("destroy", "--yes is needed where there is no terminal to ask on");
        return false;
    }
    tell_what_is_there (archive);
    fputs ("Type yes to continue: ", stderr);
    if (fgets (answer, sizeof answer, stdin) != NULL && strcmp (answer, "yes\n") == 0)
        return true;
    tool_say ("destroy", "nothing was removed");
    return false;
}

int verb_destroy (const Verb *verb, int argc, char **argv)
{
    gboolean yes = FALSE, force = FALSE;
    const GOptionEntry options[] = {
        {"yes", 'y', 0, G_OPTION_ARG_NONE, &yes, "Do not ask", NULL},
        {"force", 0, 0, G_OPTION_ARG_NONE, &force, "Leave what is on endpoints that cannot be reached", NULL},
        G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 1, 1);
    if (!yes && !is_confirmed (argv[1]))
        return TOOL_FAILED;
    GError *error = NULL;
    ToolTransfer transfer;
    tool_transfer_begin (&transfer, verb->name);
    transfer.things = "remote files";
    transfer.resume = tool_command (NULL);
    (void) ecfs_destroy (argv[1], force, &transfer.transfer, &error); /* the error says it */
    int code = error == NULL ? 0 : error->code;
    bool is_away =
        !force && (code == ENOTCONN || code == ETIMEDOUT || code == EACCES || code == EPROTO || code == EBADMSG);
    int status = tool_transfer_end (&transfer, error);
    if (is_away)
        tool_say (verb->name, "--force leaves what is on endpoints that cannot be reached");
    return status;
}
