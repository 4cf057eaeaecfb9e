/* locate: what is published under a name, and where it is. Its words are a stranger's: they are shown as ls shows names
 * on a terminal, wherever they go, so that none makes a line of its own. */
#include "tool_secret.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void print_object (JsonArray *array, guint index, JsonNode *node, void *user)
{
    JsonObject *object = json_node_get_object (node);
    JsonArray *stripes = tool_list (object, "stripes");
    g_autofree char *code = ecfs_printable (tool_text (object, "code"));
    g_autofree char *size = tool_bytes ((double) tool_number (object, "size"));
    (void) array, (void) index, (void) user;
    printf ("object     %s  %s  %s%s\n", tool_text (object, "uuid"), code, size,
            json_object_get_boolean_member (object, "encrypted") ? ", encrypted" : "");
    printf ("  digest   %s\n", tool_text (object, "digest"));
    if (json_object_has_member (object, "sha256"))
        printf ("  sha256   %s\n", tool_text (object, "sha256"));
    for (guint i = 0; i < tool_length (stripes); i++) {
        JsonObject *stripe = json_array_get_object_element (stripes, i);
        g_autofree char *url = ecfs_printable (tool_text (stripe, "url"));
        printf ("  stripe %-2" PRId64 "%s\n", tool_number (stripe, "stripe"), url);
    }
}

static void print_located (JsonObject *located)
{
    g_autofree char *name = ecfs_printable (tool_text (located, "name"));
    g_autofree char *path = ecfs_printable (tool_text (located, "path"));
    JsonArray *peers = tool_list (located, "peers");
    printf ("name       %s\n", name);
    if (path[0] != '\0')
        printf ("path       %s\n", path);
    printf ("size       %" PRId64 " bytes\n", tool_number (located, "size"));
    if (json_object_get_boolean_member (located, "has_keys"))
        puts ("keys       whoever has this name can read the file");
    json_array_foreach_element (tool_list (located, "objects"), print_object, NULL);
    for (guint i = 0; i < tool_length (peers); i++) {
        g_autofree char *peer = ecfs_printable (json_array_get_string_element (peers, i));
        printf ("peer       %s\n", peer);
    }
}

int verb_locate (const Verb *verb, int argc, char **argv)
{
    gboolean json = FALSE;
    g_autofree char *nodes = NULL, *archive = NULL;
    const GOptionEntry options[] = {
        {"archive", 0, 0, G_OPTION_ARG_FILENAME, &archive, "Show the peers of this archive, too", "ARCHIVE"},
        {"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print it as JSON", NULL},
        {"node", 0, 0, G_OPTION_ARG_STRING, &nodes, "Who takes part in the hash table, instead of those it names",
         "HOST:PORT[,HOST:PORT...]"},
        G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 1, 1);
    GError *error = NULL;
    g_autofree char *directory = archive == NULL ? NULL : tool_archive (archive);
    g_autoptr (Ecfs) ecfs = directory == NULL ? NULL : tool_open (directory, NULL, &error);
    char *capability = error != NULL ? NULL : tool_capability (argv[1], &error);
    g_autofree char *text = capability == NULL ? NULL : ecfs_locate (capability, nodes, ecfs, &error);
    tool_forget (capability);
    if (text == NULL)
        return tool_fail (verb->name, error, error->code == EINVAL ? TOOL_USAGE : TOOL_FAILED);
    g_autoptr (JsonObject) located = tool_json_object (text);
    if (json)
        puts (text);
    else
        print_located (located);
    return TOOL_DONE;
}
