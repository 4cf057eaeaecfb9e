/* recode: files to another code, or under the archive's key; policy: what is cold to the code for that */
#include "tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

static void add_cost (GPtrArray *cells, const char *name, JsonObject *cost)
{
    static const char *const members[] = {"read_bytes", "written_bytes", "freed_bytes"};
    tool_cell (cells, g_strdup (name));
    for (size_t i = 0; i < G_N_ELEMENTS (members); i++)
        tool_cell (cells, tool_bytes ((double) tool_number (cost, members[i])));
}

static void print_cost (JsonObject *cost)
{
    g_autofree char *path = tool_printable (tool_text (cost, "path"));
    g_autofree char *content = tool_bytes ((double) tool_number (cost, "content_bytes"));
    if (json_object_get_boolean_member (cost, "seal"))
        printf ("%s under the archive's key\n", path);
    else if (json_object_has_member (cost, "code"))
        printf ("%s to %s\n", path, tool_text (cost, "code"));
    else
        printf ("%s as policies say\n", path);
    printf ("  files    %" PRIi64 " of %" PRIi64 " would change, with %s\n", tool_number (cost, "files_recoded"),
            tool_number (cost, "files"), content);
    if (tool_number (cost, "files_staged") > 0)
        printf ("  staged   %" PRIi64 " are not stored yet and would be left alone\n",
                tool_number (cost, "files_staged"));
    if (tool_number (cost, "files_recoded") == 0)
        return;
    printf ("  objects  %" PRIi64 ", %" PRIi64 " of them keep their stripes\n", tool_number (cost, "objects"),
            tool_number (cost, "objects_in_place"));
    if (tool_number (cost, "objects_unreadable") > 0)
        printf ("  lost     %" PRIi64 " objects have too few stripes to be read\n",
                tool_number (cost, "objects_unreadable"));
    g_autoptr (GPtrArray) cells = g_ptr_array_new_with_free_func (g_free);
    const char *const titles[] = {"", "read", "written", "freed later"};
    for (size_t i = 0; i < G_N_ELEMENTS (titles); i++)
        tool_cell (cells, g_strdup (titles[i]));
    JsonArray *endpoints = json_object_get_array_member (cost, "endpoints");
    for (unsigned i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        add_cost (cells, tool_text (endpoint, "name"), endpoint);
    }
    add_cost (cells, "all", cost);
    tool_table (cells, G_N_ELEMENTS (titles), "  ");
    tool_print_cost (cost, "  cost     ");
}

/* @text is taken; NULL: @error. */
static int tell_cost (const Verb *verb, char *taken, GError *error, bool json)
{
    g_autofree char *text = taken;
    if (text == NULL)
        return tool_fail (verb->name, error, TOOL_FAILED);
    g_autoptr (JsonObject) cost = tool_json_object (text);
    if (json)
        puts (text);
    else
        print_cost (cost);
    return TOOL_DONE;
}

static void add_file (void *user, const EcfsEntry *entry)
{
    ToolTransfer *all = user;
    all->n_all += S_ISREG (entry->mode);
    all->bytes_all += S_ISREG (entry->mode) ? entry->size : 0;
}

/* What @taken, the cost of it all, tells of how far it is; NULL where that cannot be told. g_free () is done here. */
static void expect_cost (ToolTransfer *transfer, char *taken, bool sums)
{
    g_autofree char *text = taken;
    g_autoptr (JsonObject) cost = tool_json_object (text == NULL ? "{}" : text);
    double content = (double) tool_number (cost, "content_bytes");
    double wire = (double) (tool_number (cost, "read_bytes") + tool_number (cost, "written_bytes"));
    transfer->wire_factor = content > 0 ? wire / content : 0;
    if (!sums)
        return;
    transfer->n_all = (uint64_t) tool_number (cost, "files_recoded");
    transfer->bytes_all = (uint64_t) content;
}

/* Files that have the code already count, too. What is wrong is told by who recodes. */
static void expect_files (ToolTransfer *transfer, Ecfs *ecfs, const char *path, const char *code)
{
    (void) ecfs_list (ecfs, path, true, add_file, transfer, NULL);
    expect_cost (transfer,
                 code == NULL ? ecfs_recode_seal_cost (ecfs, path, NULL) : ecfs_recode_cost (ecfs, path, code, NULL),
                 false);
}

/* What is wrong with them; NULL: nothing. */
static const char *check_options (const char *code, bool seal, bool dry_run, bool json, int argc)
{
    if (seal && code != NULL)
        return "--code and --seal are two steps: one after the other";
    if (!seal && code == NULL)
        return "--code is missing: it names the new code of the files";
    if (!seal && argc < 3)
        return "PATH is missing: it names what is to have the code";
    return json && !dry_run ? "--json needs --dry-run" : NULL;
}

int verb_recode (const Verb *verb, int argc, char **argv)
{
    g_autofree char *code = NULL;
    gboolean seal = FALSE, dry_run = FALSE, json = FALSE;
    const GOptionEntry options[] = {
        {"code", 'c', 0, G_OPTION_ARG_STRING, &code, "New code of the files", "CODE"},
        {"seal", 0, 0, G_OPTION_ARG_NONE, &seal,
         "Store what has no key under the archive's key, in the code that it has", NULL},
        {"dry-run", 'n', 0, G_OPTION_ARG_NONE, &dry_run, "Only show what would be read, written and freed", NULL},
        {"json", 0, 0, G_OPTION_ARG_NONE, &json, "With --dry-run: print a JSON object", NULL},
        G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 1, 2);
    const char *wrong = check_options (code, seal, dry_run, json, argc);
    if (wrong != NULL) {
        tool_say (verb->name, "%s", wrong);
        return TOOL_USAGE;
    }
    const char *path = argc > 2 ? argv[2] : "/";
    GError *error = NULL;
    g_autoptr (Ecfs) ecfs = ecfs_open (argv[1], dry_run ? 0 : ECFS_OPEN_WRITE | ECFS_OPEN_LEAD, &error);
    if (ecfs == NULL)
        return tool_fail (verb->name, error, TOOL_FAILED);
    if (dry_run) {
        char *cost =
            code == NULL ? ecfs_recode_seal_cost (ecfs, path, &error) : ecfs_recode_cost (ecfs, path, code, &error);
        return tell_cost (verb, cost, error, json);
    }
    ToolTransfer transfer;
    tool_transfer_begin (&transfer, verb->name);
    transfer.resume = tool_command (NULL);
    if (tool_progress_is_shown (&transfer.progress))
        expect_files (&transfer, ecfs, path, code);
    if (seal)
        (void) ecfs_recode_seal (ecfs, path, &transfer.transfer, &error); /* the error says it, as with the next */
    else
        (void) ecfs_recode (ecfs, path, code, &transfer.transfer, &error);
    return tool_transfer_end (&transfer, error);
}

int verb_policy (const Verb *verb, int argc, char **argv)
{
    gboolean dry_run = FALSE, json = FALSE;
    const GOptionEntry options[] = {
        {"dry-run", 'n', 0, G_OPTION_ARG_NONE, &dry_run, "Only show what would be read, written and freed", NULL},
        {"json", 0, 0, G_OPTION_ARG_NONE, &json, "With --dry-run: print a JSON object", NULL},
        G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 1, 2);
    if (json && !dry_run) {
        tool_say (verb->name, "--json needs --dry-run");
        return TOOL_USAGE;
    }
    const char *path = argc > 2 ? argv[2] : "/";
    GError *error = NULL;
    g_autoptr (Ecfs) ecfs = ecfs_open (argv[1], dry_run ? 0 : ECFS_OPEN_WRITE | ECFS_OPEN_LEAD, &error);
    if (ecfs == NULL)
        return tool_fail (verb->name, error, TOOL_FAILED);
    if (dry_run) {
        char *cost = ecfs_policy_cost (ecfs, path, &error);
        return tell_cost (verb, cost, error, json);
    }
    ToolTransfer transfer;
    tool_transfer_begin (&transfer, verb->name);
    transfer.resume = tool_command (NULL);
    if (tool_progress_is_shown (&transfer.progress))
        expect_cost (&transfer, ecfs_policy_cost (ecfs, path, NULL), true);
    (void) ecfs_apply_policy (ecfs, path, &transfer.transfer, &error); /* the error says it */
    return tool_transfer_end (&transfer, error);
}
