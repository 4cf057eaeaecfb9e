/* export and fetch: a file's descriptor, and its content by that alone */
#include "tool.h"

#include <stdio.h>
#include <string.h>

/* With @has_keys whoever can read the file can read what it describes. */
static int write_text (const Verb *verb, const char *text, bool has_keys, const char *path)
{
    GError *error = NULL;
    if (path != NULL)
        return g_file_set_contents_full (path, text, -1, G_FILE_SET_CONTENTS_CONSISTENT | G_FILE_SET_CONTENTS_DURABLE,
                                         has_keys ? 0600 : 0666, &error)
                   ? TOOL_DONE
                   : tool_fail (verb->name, error, TOOL_FAILED);
    if (has_keys)
        tool_say (verb->name, "warning: whoever has this descriptor can read the file; --output makes a file that you "
                              "alone can read");
    if (fputs (text, stdout) != EOF && fflush (stdout) == 0)
        return TOOL_DONE;
    tool_say (verb->name, "writing: %s", g_strerror (errno));
    return TOOL_FAILED;
}

static int export_file (const Verb *verb, const char *archive, const char *path, unsigned flags, const char *output,
                        const char *at)
{
    GError *error = NULL;
    ToolTransfer transfer;
    bool has_keys = false;
    g_autoptr (Ecfs) ecfs = tool_open (archive, at, &error);
    if (ecfs == NULL)
        return tool_fail (verb->name, error, at == NULL ? TOOL_FAILED : tool_status (error->code));
    tool_transfer_begin (&transfer, verb->name);
    char *text = ecfs_export (ecfs, path, flags, &transfer.transfer, &has_keys, &error);
    int result = tool_transfer_end (&transfer, error);
    if (text == NULL)
        return result;
    result = write_text (verb, text, has_keys, output);
    explicit_bzero (text, strlen (text));
    g_free (text);
    return result;
}

int verb_export (const Verb *verb, int argc, char **argv)
{
    g_autofree char *format = NULL, *output = NULL, *at = NULL;
    gboolean without_keys = FALSE;
    const GOptionEntry options[] = {
        {"format", 'f', 0, G_OPTION_ARG_STRING, &format, "ecfs (the default), or fec: a properties file", "FORMAT"},
        {"output", 'o', 0, G_OPTION_ARG_FILENAME, &output,
         "Write this file, which you alone can read where it has keys", "FILE"},
        TOOL_AT (&at),
        {"without-keys", 0, 0, G_OPTION_ARG_NONE, &without_keys,
         "Leave out keys and names: who fetches needs the archive's key", NULL},
        G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 1, 2);
    g_auto (GStrv) words = tool_in_archive (verb, &argc, argv, 1, 0);
    bool fec = g_strcmp0 (format, "fec") == 0;
    if (format != NULL && !fec && strcmp (format, "ecfs") != 0) {
        tool_say (verb->name, "\"%s\" is neither ecfs nor fec", format);
        return TOOL_USAGE;
    }
    return export_file (verb, words[1], words[2],
                        (fec ? ECFS_EXPORT_FEC : 0) | (without_keys ? ECFS_EXPORT_WITHOUT_KEYS : 0), output, at);
}

int verb_fetch (const Verb *verb, int argc, char **argv)
{
    g_auto (GStrv) endpoints = NULL;
    g_autofree char *keys = NULL;
    const GOptionEntry options[] = {
        {"endpoint", 'e', 0, G_OPTION_ARG_STRING_ARRAY, &endpoints,
         "Use this instead of the descriptor's URL of that name; may be repeated", "NAME=URL[,KEY=VALUE...]"},
        {"key", 'k', 0, G_OPTION_ARG_FILENAME, &keys, "The archive's key, for a descriptor without keys", "FILE"},
        G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 2, 2);
    GError *error = NULL;
    if (!ecfs_fetch (argv[1], argv[2], (const char *const *) endpoints, keys, &error))
        return tool_fail (verb->name, error, TOOL_FAILED);
    return TOOL_DONE;
}
