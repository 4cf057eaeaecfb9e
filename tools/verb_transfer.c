/* put and get */
#include "tool.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Adds what is below @path, or it; what cannot be looked at is told by who stores it. */
static void add_tree (ToolTransfer *all, const char *path, bool follow)
{
    struct stat status;
    if ((follow ? stat (path, &status) : lstat (path, &status)) != 0)
        return;
    all->n_all += !S_ISDIR (status.st_mode);
    all->bytes_all += S_ISREG (status.st_mode) ? (uint64_t) status.st_size : 0;
    g_autoptr (GDir) directory = S_ISDIR (status.st_mode) ? g_dir_open (path, 0, NULL) : NULL;
    const char *name;
    while (directory != NULL && (name = g_dir_read_name (directory)) != NULL) {
        g_autofree char *below = g_build_filename (path, name, NULL);
        add_tree (all, below, false);
    }
}

static void add_entry (void *user, const EcfsEntry *entry)
{
    ToolTransfer *all = user;
    all->n_all += !S_ISDIR (entry->mode);
    all->bytes_all += S_ISREG (entry->mode) ? entry->size : 0;
}

void tool_transfer_expect (ToolTransfer *self, Ecfs *ecfs, const char *const *paths)
{
    for (size_t i = 0; tool_progress_is_shown (&self->progress) && paths[i] != NULL; i++)
        (void) ecfs_list (ecfs, paths[i], true, add_entry, self, NULL); /* who transfers it tells what is wrong */
}

/* What a byte of new content takes on the wire. */
static double wire_factor (const char *archive_dir)
{
    g_autofree char *text = ecfs_promise (archive_dir, NULL);
    g_autoptr (JsonObject) promise = tool_json_object (text != NULL ? text : "{}");
    return text == NULL ? 0 : tool_double (promise, "n") / tool_double (promise, "k");
}

/* What continues it. Where the archive gets a directory under a new name, the same command would put it into that. */
static char *resume_put (Ecfs *ecfs, const char *const *sources, const char *path, const char *option)
{
    bool is_one = sources[1] == NULL && g_file_test (sources[0], G_FILE_TEST_IS_DIR) && !g_str_has_suffix (path, "/") &&
                  !g_str_has_suffix (sources[0], "/.");
    g_autofree char *there = is_one ? ecfs_info (ecfs, path, NULL) : NULL;
    g_autofree char *contents = g_build_filename (sources[0], ".", NULL);
    return is_one && there == NULL ? tool_command_with (option, sources[0], contents) : tool_command (option);
}

int verb_put (const Verb *verb, int argc, char **argv)
{
    g_autofree char *code = NULL;
    gboolean update = FALSE;
    const GOptionEntry options[] = {
        {"code", 'c', 0, G_OPTION_ARG_STRING, &code, "Code for these files instead of the directory's", "CODE"},
        {"update", 'u', 0, G_OPTION_ARG_NONE, &update,
         "Leave files alone that the archive already has with the same size and time", NULL},
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
    bool shown = tool_progress_is_shown (&transfer.progress), piped = false;
    for (int i = 0; sources[i] != NULL; i++) {
        piped = piped || strcmp (sources[i], "-") == 0;
        if (shown)
            add_tree (&transfer, sources[i], true);
    }
    transfer.wire_factor = shown && code == NULL ? wire_factor (argv[1]) : 0;
    transfer.resume = piped ? NULL : resume_put (ecfs, sources, argv[argc - 1], update ? NULL : "--update");
    if (piped)
        transfer.n_all = transfer.bytes_all = 0;
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
    g_autofree char *at = NULL;
    gboolean update = FALSE;
    const GOptionEntry options[] = {TOOL_AT (&at),
                                    {"update", 'u', 0, G_OPTION_ARG_NONE, &update,
                                     "Leave files alone that are there already with the same size and time", NULL},
                                    G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 2, G_MAXINT);
    GError *error = NULL;
    g_auto (GStrv) words = tool_in_archive (verb, &argc, argv, 1, 1);
    g_autoptr (Ecfs) ecfs = tool_open (words[1], at, &error);
    if (ecfs == NULL)
        return tool_fail (verb->name, error, at == NULL ? TOOL_FAILED : tool_status (error->code));
    const char *directory = words[argc - 1];
    if (strcmp (directory, "-") == 0)
        return get_to_stdout (verb, ecfs, words + 2, argc - 3);
    g_autofree const char **paths = g_new0 (const char *, (size_t) argc - 2);
    for (int i = 2; i < argc - 1; i++)
        paths[i - 2] = words[i];
    ToolTransfer transfer;
    tool_transfer_begin (&transfer, verb->name);
    tool_transfer_expect (&transfer, ecfs, paths);
    transfer.wire_factor = 1;
    transfer.transfer.update = update;
    transfer.resume = tool_command (update ? NULL : "--update");
    (void) ecfs_get (ecfs, paths, directory, &transfer.transfer, &error); /* the error says it */
    return tool_transfer_end (&transfer, error);
}
