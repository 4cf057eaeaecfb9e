/* info and wait: what is known of single files */
#include "plan.h"
#include "tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void print_stripes (JsonObject *info)
{
    JsonArray *stripes = json_object_get_array_member (info, "stripes");
    bool many = json_array_get_length (json_object_get_array_member (info, "objects")) > 1;
    g_autoptr (GPtrArray) cells = g_ptr_array_new_with_free_func (g_free);
    for (unsigned i = 0; i < json_array_get_length (stripes); i++) {
        JsonObject *stripe = json_array_get_object_element (stripes, i);
        if (many)
            tool_cell (cells, g_strdup (tool_text (stripe, "object")));
        tool_cell (cells, g_strdup_printf ("%" PRIi64, tool_number (stripe, "index")));
        tool_cell (cells, g_strdup (tool_text (stripe, "endpoint")));
        tool_cell (cells, g_strdup (tool_text (stripe, "state")));
        tool_cell (cells, tool_bytes ((double) tool_number (stripe, "size")));
    }
    tool_table (cells, many ? 5 : 4, "    ");
}

static void print_stored (JsonObject *info)
{
    JsonObject *former = tool_part (info, "former");
    int64_t size = tool_number (former != NULL ? former : info, "size"), stored = tool_number (info, "stripe_bytes");
    g_autofree char *text = tool_bytes ((double) stored);
    printf ("  stored     %s (%" PRIi64 " bytes)", text, stored);
    if (size > 0)
        printf (", %.2f times the content", (double) stored / (double) size);
    puts ("");
}

/* Many files have one code. */
static void print_failure (const char *code)
{
    static char *told_code, *told;
    if (g_strcmp0 (told_code, code) != 0) {
        g_free (told_code);
        g_free (told);
        told_code = g_strdup (code);
        told = plan_sentence (code);
    }
    if (told != NULL)
        printf ("  failure    %s\n", told);
}

static void print_file (JsonObject *info)
{
    JsonObject *former = tool_part (info, "former");
    printf ("  code       %s", tool_text (info, "code"));
    if (json_object_has_member (info, "tolerance"))
        printf (", any %" PRIi64 " stripes may be lost", tool_number (info, "tolerance"));
    if (json_object_has_member (info, "f"))
        printf ("\n  overhead   %.2f times the space, f %.4f", tool_double (info, "overhead"), tool_double (info, "f"));
    bool staged = json_object_get_boolean_member (info, "staged");
    printf ("\n  state      %s%s\n", tool_text (info, "state"),
            staged ? ", not stored yet: this content is on this machine alone" : "");
    if (former != NULL) {
        g_autofree char *size = tool_bytes ((double) tool_number (former, "size"));
        printf ("  former     %s, of %s (%" PRIi64 " bytes); what follows is of it\n", tool_text (former, "state"),
                size, tool_number (former, "size"));
    }
    if (json_object_has_member (info, "digest"))
        printf ("  digest     xxh3-128 %s\n", tool_text (info, "digest"));
    if (json_object_has_member (info, "tolerance"))
        print_failure (tool_text (info, "code"));
    print_stored (info);
    if (json_array_get_length (json_object_get_array_member (info, "stripes")) > 0)
        puts ("  stripes");
    print_stripes (info);
}

/* What user.ecfs.places says for it. */
static void print_places (JsonObject *info)
{
    g_autofree char *rule = tool_printable (tool_text (info, "places"));
    if (json_object_has_member (info, "places_error")) {
        g_autofree char *why = tool_printable (tool_text (info, "places_error"));
        printf ("  places     unknown: %s\n", why);
    }
    if (!json_object_has_member (info, "places"))
        return;
    printf ("  places     %s", rule);
    int64_t n_misplaced = tool_number (info, "misplaced_stripes");
    if (n_misplaced > 0)
        printf (", which forbids where %" PRIi64 " stripe%s: ecfs-fsck -y moves %s", n_misplaced,
                n_misplaced == 1 ? " is" : "s are", n_misplaced == 1 ? "it" : "them");
    putchar ('\n');
}

static void print_info (JsonObject *info)
{
    g_autofree char *path = tool_printable (tool_text (info, "path"));
    g_autofree char *size = tool_bytes ((double) tool_number (info, "size"));
    puts (path);
    printf ("  type       %s\n", tool_text (info, "type"));
    printf ("  size       %s (%" PRIi64 " bytes)\n", size, tool_number (info, "size"));
    print_places (info);
    if (json_object_has_member (info, "stripes"))
        print_file (info);
    else if (json_object_has_member (info, "code"))
        printf ("  code       %s for new files\n", tool_text (info, "code"));
}

/* One object for one path, else an array. */
static void print_all (JsonArray *infos, bool json, int n_paths)
{
    if (json) {
        JsonNode *node = json_node_new (JSON_NODE_ARRAY);
        json_node_set_array (node, infos);
        if (n_paths == 1 && json_array_get_length (infos) == 1) {
            JsonNode *only = json_array_dup_element (infos, 0);
            json_node_unref (node);
            node = only;
        }
        tool_print_json (node);
        return;
    }
    for (unsigned i = 0; i < json_array_get_length (infos); i++)
        print_info (json_array_get_object_element (infos, i));
}

int verb_info (const Verb *verb, int argc, char **argv)
{
    gboolean json = FALSE;
    g_autofree char *at = NULL;
    const GOptionEntry options[] = {
        TOOL_AT (&at),
        {"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print a JSON object, or an array for several paths", NULL},
        G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 1, G_MAXINT);
    GError *error = NULL;
    g_auto (GStrv) words = tool_in_archive (verb, &argc, argv, 1, 0);
    g_autoptr (Ecfs) ecfs = tool_open (words[1], at, &error);
    if (ecfs == NULL)
        return tool_fail (verb->name, error, at == NULL ? TOOL_FAILED : tool_status (error->code));
    int status = TOOL_DONE;
    g_autoptr (JsonArray) infos = json_array_new ();
    for (int i = 2; i < argc; i++) {
        g_autofree char *text = ecfs_info (ecfs, words[i], &error);
        if (text == NULL) {
            status = tool_fail (verb->name, g_steal_pointer (&error), TOOL_FAILED);
            continue;
        }
        json_array_add_object_element (infos, tool_json_object (text));
    }
    print_all (infos, json, argc - 2);
    return status;
}

int verb_wait (const Verb *verb, int argc, char **argv)
{
    gboolean quorum = FALSE, unmounted = FALSE;
    const GOptionEntry options[] = {{"unmounted", 'u', 0, G_OPTION_ARG_NONE, &unmounted,
                                     "Do not fail only because the archive is not mounted", NULL},
                                    {"quorum", 'q', 0, G_OPTION_ARG_NONE, &quorum,
                                     "Wait until it is committed, not until all stripes are stored", NULL},
                                    G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 1, G_MAXINT);
    GError *error = NULL;
    unsigned flags = (quorum ? ECFS_WAIT_QUORUM : 0) | (unmounted ? ECFS_WAIT_UNMOUNTED : 0);
    g_auto (GStrv) words = tool_in_archive (verb, &argc, argv, 0, 0);
    if (strcmp (words[1], argv[1]) != 0 && argc == 3 && strcmp (words[2], "/") == 0)
        argc = 2; /* the mountpoint: everything, names too */
    g_autofree char *command = tool_command (NULL);
    g_autofree char *interrupted = g_strdup_printf ("the mount continues to store; to wait again: %s", command);
    ToolLeft *left = tool_left_begin (verb->name, words[1], interrupted);
    g_autoptr (Ecfs) ecfs = ecfs_open (words[1], 0, &error);
    g_autofree char *config = g_build_filename (words[1], "ecfs.conf", NULL);
    if (ecfs == NULL && error->code == ENOENT && access (config, F_OK) != 0)
        g_prefix_error (&error, "nothing is mounted on %s, and ", argv[1]);
    bool stored = ecfs != NULL && ecfs_wait (ecfs, argc > 2 ? (const char *const *) words + 2 : NULL, flags, &error);
    tool_left_end (left);
    if (!stored)
        return tool_fail (verb->name, error, TOOL_FAILED);
    return TOOL_DONE;
}
