/* metrics: the state of an archive for monitoring */
#include "metrics.h"

#include <stdio.h>
#include <stdlib.h>

#define OUTPUT_MODE 0644 /* whoever collects it is somebody else */

static bool write_text (const char *output, const char *text, GError **error)
{
    g_autoptr (GError) failure = NULL;
    if (output == NULL)
        return fputs (text, stdout) >= 0 && fflush (stdout) == 0
                   ? true
                   : tool_error (error, errno, "standard output: %s", g_strerror (errno));
    /* Beside it first, under a name that no collector takes, then renamed. */
    if (g_file_set_contents_full (output, text, -1, G_FILE_SET_CONTENTS_CONSISTENT, OUTPUT_MODE, &failure))
        return true;
    return tool_error (error, EIO, "%s", failure->message);
}

/* However it was typed, so that it is one archive to who collects. */
static char *label_of (const char *directory)
{
    char *real = realpath (directory, NULL);
    char *label = real != NULL ? g_strdup (real) : g_canonicalize_filename (directory, NULL);
    free (real);
    return label;
}

int verb_metrics (const Verb *verb, int argc, char **argv)
{
    g_autofree char *output = NULL;
    const GOptionEntry options[] = {{"output", 'o', 0, G_OPTION_ARG_FILENAME, &output,
                                     "Write this file at once, for a collector of text files", "FILE"},
                                    G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 1, 1);
    GError *error = NULL, *failure = NULL;
    g_autofree char *directory = tool_archive (argv[1]);
    g_autoptr (Ecfs) ecfs = ecfs_open (directory, 0, &error);
    g_autofree char *facts = ecfs == NULL ? NULL : ecfs_survey (ecfs, &error);
    g_autoptr (JsonObject) status = facts == NULL ? NULL : tool_json_object (facts);
    g_autofree char *label = label_of (directory);
    g_autofree char *text = metrics_text (label, status, g_get_real_time () / G_USEC_PER_SEC);
    int result = error == NULL ? TOOL_DONE : tool_fail (verb->name, error, TOOL_FAILED);
    if (!write_text (output, text, &failure))
        result = tool_fail (verb->name, failure, TOOL_FAILED);
    return result;
}
