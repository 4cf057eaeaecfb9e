/* export and fetch: a file's descriptor, and its content by that alone, or by a name */
#include "tool_secret.h"

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

/* Prints what finds it; the descriptor is written only if that is asked for. */
static int publish (const Verb *verb, const char *archive, const char *path, const char *name, unsigned flags,
                    const char *output)
{
    GError *error = NULL;
    ToolTransfer transfer;
    bool has_keys = false;
    char *text = NULL;
    g_autofree char *behind = NULL;
    g_autoptr (Ecfs) ecfs = tool_open (archive, NULL, &error);
    if (ecfs == NULL)
        return tool_fail (verb->name, error, TOOL_FAILED);
    tool_transfer_begin (&transfer, verb->name);
    g_autofree char *capability = ecfs_publish (ecfs, path, name, flags, &transfer.transfer, &has_keys,
                                                output == NULL ? NULL : &text, &behind, &error);
    bool is_usage = error != NULL && error->code == EINVAL;
    int result = tool_transfer_end (&transfer, error);
    if (capability == NULL)
        return is_usage ? TOOL_USAGE : result;
    if (has_keys)
        tool_say (verb->name, "warning: whoever has this text can read the file");
    puts (capability);
    result = text == NULL ? TOOL_DONE : write_text (verb, text, has_keys, output);
    if (text != NULL)
        explicit_bzero (text, strlen (text));
    g_free (text);
    if (behind == NULL)
        return result;
    tool_say (verb->name, "it is not in the hash table yet: %s; a mount of the archive will put it there", behind);
    return TOOL_FAILED;
}

static int withdraw (const Verb *verb, const char *archive, const char *name)
{
    GError *error = NULL;
    g_autoptr (Ecfs) ecfs = tool_open (archive, NULL, &error);
    if (ecfs == NULL || !ecfs_withdraw (ecfs, name, &error))
        return tool_fail (verb->name, error, TOOL_FAILED);
    return TOOL_DONE;
}

int verb_export (const Verb *verb, int argc, char **argv)
{
    g_autofree char *format = NULL, *output = NULL, *at = NULL, *name = NULL, *withdrawn = NULL;
    gboolean without_keys = FALSE;
    const GOptionEntry options[] = {
        {"format", 'f', 0, G_OPTION_ARG_STRING, &format, "ecfs (the default), or fec: a properties file", "FORMAT"},
        {"output", 'o', 0, G_OPTION_ARG_FILENAME, &output,
         "Write this file, which you alone can read where it has keys", "FILE"},
        TOOL_AT (&at),
        {"publish", 0, 0, G_OPTION_ARG_STRING, &name,
         "Put it into the hash table under this name, and print the text that finds it there", "NAME"},
        {"withdraw", 0, 0, G_OPTION_ARG_STRING, &withdrawn, "Take back what was published under this name; no path",
         "NAME"},
        {"without-keys", 0, 0, G_OPTION_ARG_NONE, &without_keys,
         "Leave out keys and names: who fetches needs the archive's key", NULL},
        G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 1, 2);
    bool fec = g_strcmp0 (format, "fec") == 0;
    if (format != NULL && !fec && strcmp (format, "ecfs") != 0) {
        tool_say (verb->name, "\"%s\" is neither ecfs nor fec", format);
        return TOOL_USAGE;
    }
    if ((name != NULL || withdrawn != NULL) && (fec || at != NULL || (name != NULL && withdrawn != NULL))) {
        tool_say (verb->name, "what is published is a descriptor of the form ecfs, as the file is now");
        return TOOL_USAGE;
    }
    unsigned flags = (fec ? ECFS_EXPORT_FEC : 0) | (without_keys ? ECFS_EXPORT_WITHOUT_KEYS : 0);
    if (withdrawn != NULL) {
        g_autofree char *archive = tool_archive (argv[1]);
        return withdraw (verb, archive, withdrawn);
    }
    g_auto (GStrv) words = tool_in_archive (verb, &argc, argv, 1, 0);
    return name != NULL ? publish (verb, words[1], words[2], name, flags, output)
                        : export_file (verb, words[1], words[2], flags, output, at);
}

int verb_fetch (const Verb *verb, int argc, char **argv)
{
    g_auto (GStrv) endpoints = NULL;
    g_autofree char *keys = NULL, *nodes = NULL, *word = NULL;
    const GOptionEntry options[] = {
        {"dht", 0, 0, G_OPTION_ARG_STRING, &word,
         "Fetch what is published in the hash table, by what ecfs export --publish printed (-: read that from the "
         "standard input), in place of a descriptor",
         "CAPABILITY"},
        {"endpoint", 'e', 0, G_OPTION_ARG_STRING_ARRAY, &endpoints,
         "Use this instead of the descriptor's URL of that name; may be repeated", "NAME=URL[,KEY=VALUE...]"},
        {"key", 'k', 0, G_OPTION_ARG_FILENAME, &keys, "The archive's key, for a descriptor without keys", "FILE"},
        {"node", 0, 0, G_OPTION_ARG_STRING, &nodes, "Who takes part in the hash table, instead of those it names",
         "HOST:PORT[,HOST:PORT...]"},
        G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 1, 2);
    GError *error = NULL;
    if (argc != (word == NULL ? 3 : 2)) {
        tool_say (verb->name, word == NULL ? "give a descriptor and the file to write"
                                           : "with --dht give the file to write, and no descriptor");
        return TOOL_USAGE;
    }
    const char *const *used = (const char *const *) endpoints;
    char *capability = word == NULL ? NULL : tool_capability (word, &error);
    bool good = error == NULL && (word == NULL ? ecfs_fetch (argv[1], argv[2], used, keys, &error)
                                               : ecfs_fetch_published (capability, nodes, argv[1], used, keys, &error));
    tool_forget (capability);
    bool is_usage = !good && word != NULL && error->code == EINVAL;
    return good ? TOOL_DONE : tool_fail (verb->name, error, is_usage ? TOOL_USAGE : TOOL_FAILED);
}
