/* `ecfs warm` and `ecfs cache`: what is kept of what was read. */
#include "tool.h"

#include <inttypes.h>
#include <stdio.h>

static void print_warmed (const ToolTransfer *transfer, bool done)
{
    JsonObject *facts = json_object_new ();
    JsonNode *node = json_node_new (JSON_NODE_OBJECT);
    json_object_set_boolean_member (facts, "done", done);
    json_object_set_int_member (facts, "files", (int64_t) transfer->last.n_done);
    json_object_set_int_member (facts, "failed", (int64_t) transfer->last.n_failed);
    json_object_set_int_member (facts, "bytes", (int64_t) transfer->last.bytes_done);
    json_object_set_int_member (facts, "wire_bytes", (int64_t) transfer->last.wire_bytes);
    json_node_take_object (node, facts);
    tool_print_json (node);
}

int verb_warm (const Verb *verb, int argc, char **argv)
{
    gboolean json = FALSE;
    const GOptionEntry options[] = {{"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print what was done as JSON", NULL},
                                    G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 1, G_MAXINT);
    GError *error = NULL;
    g_auto (GStrv) words = tool_in_archive (verb, &argc, argv, 1, 0);
    g_autoptr (Ecfs) ecfs = tool_open (words[1], NULL, &error);
    if (ecfs == NULL)
        return tool_fail (verb->name, error, TOOL_FAILED);
    ToolTransfer transfer;
    tool_transfer_begin (&transfer, verb->name);
    tool_transfer_expect (&transfer, ecfs, (const char *const *) words + 2);
    transfer.wire_factor = 1;
    transfer.resume = tool_command (NULL);
    bool done = ecfs_warm (ecfs, (const char *const *) words + 2, &transfer.transfer, &error);
    int status = tool_transfer_end (&transfer, error);
    if (json)
        print_warmed (&transfer, done);
    return status;
}

static void print_cache (JsonObject *cache)
{
    g_autofree char *bytes = tool_bytes ((double) tool_number (cache, "bytes"));
    g_autofree char *max = tool_bytes ((double) tool_number (cache, "max_bytes"));
    g_autofree char *pinned = tool_bytes ((double) tool_number (cache, "pinned_bytes"));
    g_autofree char *freed = tool_bytes ((double) tool_number (cache, "freed_bytes"));
    g_autofree char *directory = tool_printable (tool_text (cache, "directory"));
    printf ("%s  %s of %s, of which %s are pinned\n", directory, bytes, max, pinned);
    if (tool_number (cache, "freed_bytes") > 0)
        printf ("%s were removed\n", freed);
    if (json_object_has_member (cache, "trouble"))
        printf ("nothing is added for now: %s\n", tool_text (cache, "trouble"));
}

int verb_cache (const Verb *verb, int argc, char **argv)
{
    gboolean json = FALSE, drop = FALSE;
    const GOptionEntry options[] = {{"drop", 0, 0, G_OPTION_ARG_NONE, &drop, "Remove all that is in the cache", NULL},
                                    {"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print it as JSON", NULL},
                                    G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 1, 1);
    GError *error = NULL;
    g_autofree char *archive = tool_archive (argv[1]);
    g_autoptr (Ecfs) ecfs = tool_open (archive, NULL, &error);
    g_autofree char *text = ecfs == NULL ? NULL : ecfs_cache (ecfs, drop, &error);
    if (text == NULL)
        return tool_fail (verb->name, error, TOOL_FAILED);
    g_autoptr (JsonObject) cache = tool_json_object (text);
    if (json)
        puts (text);
    else
        print_cache (cache);
    return TOOL_DONE;
}
