/* swarm: what is shared with other machines that read the archive. */
#include "tool.h"

#include <inttypes.h>
#include <stdio.h>

#define LOOK_US 200000 /* whether it is to end */

static const Verb list_verb = {"swarm list", "ARCHIVE|MOUNTPOINT", "Lists who gives to this machine, and who takes",
                               NULL};
static const Verb stats_verb = {"swarm stats", "ARCHIVE|MOUNTPOINT", "Shows how much went to peers and came from them",
                                NULL};
static const Verb start_verb = {"swarm start", "ARCHIVE|MOUNTPOINT", "Has a mount serve peers again", NULL};
static const Verb stop_verb = {"swarm stop", "ARCHIVE|MOUNTPOINT", "Has a mount serve peers no more", NULL};
static const Verb drop_verb = {"swarm drop", "ARCHIVE|MOUNTPOINT HOST:PORT",
                               "Has a mount neither ask nor serve one of its peers", NULL};
static const Verb serve_verb = {"swarm serve", "ARCHIVE", "Serves peers without a mount, until it is interrupted",
                                NULL};

/* NULL: it was said why not. */
static JsonObject *ask (const Verb *verb, const char *path, gboolean json)
{
    GError *error = NULL;
    g_autofree char *archive = tool_archive (path);
    g_autoptr (Ecfs) ecfs = tool_open (archive, NULL, &error);
    g_autofree char *text = ecfs == NULL ? NULL : ecfs_swarm (ecfs, &error);
    if (text == NULL) {
        (void) tool_fail (verb->name, error, TOOL_FAILED);
        return NULL;
    }
    if (json)
        puts (text);
    return tool_json_object (text);
}

static const char *state_of (JsonObject *one, bool takes)
{
    if (!takes)
        return tool_text (one, "state");
    if (json_object_get_boolean_member (one, "dropped"))
        return "dropped";
    return tool_number (one, "connections") > 0 ? "connected" : "gone";
}

static void print_each (JsonArray *array, bool takes)
{
    g_autoptr (GPtrArray) cells = g_ptr_array_new_with_free_func (g_free);
    for (guint i = 0; i < tool_length (array); i++) {
        JsonObject *one = json_array_get_object_element (array, i);
        g_autofree char *bytes = tool_bytes ((double) tool_number (one, takes ? "served_bytes" : "fetched_bytes"));
        tool_cell (cells, g_strdup (takes ? "taker" : "peer"));
        tool_cell (cells, tool_printable (tool_text (one, "address")));
        tool_cell (cells, g_strdup (state_of (one, takes)));
        tool_cell (cells, g_strdup_printf (takes ? "%s went to it" : "%s came from it", bytes));
        tool_cell (cells, tool_printable (tool_text (one, "problem")));
    }
    tool_table (cells, 5, "");
}

static int list (int argc, char **argv)
{
    gboolean json = FALSE;
    const GOptionEntry options[] = {{"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print it as JSON", NULL},
                                    G_OPTION_ENTRY_NULL};
    (void) tool_parse (&list_verb, options, argc, argv, 1, 1);
    g_autoptr (JsonObject) peers = ask (&list_verb, argv[1], json);
    if (peers == NULL)
        return TOOL_FAILED;
    if (!json) {
        print_each (tool_list (peers, "list"), false);
        print_each (tool_list (peers, "takers"), true);
    }
    return TOOL_DONE;
}

/* What a way to find others has found. */
static void print_found (JsonObject *way)
{
    g_autofree char *problem = tool_printable (tool_text (way, "problem"));
    printf ("%" PRId64 " found%s%s\n", tool_number (way, "found"), problem[0] == '\0' ? "" : ": ", problem);
}

static void print_stats (JsonObject *peers)
{
    JsonObject *dht = tool_part (peers, "dht"), *catalog = tool_part (peers, "catalog");
    g_autofree char *listen = tool_printable (tool_text (peers, "listen"));
    g_autofree char *served = tool_bytes ((double) tool_number (peers, "served_bytes"));
    g_autofree char *fetched = tool_bytes ((double) tool_number (peers, "fetched_bytes"));
    printf ("served     %s%s\n", listen[0] == '\0' ? "nobody is" : "at ", listen);
    printf ("to peers   %s, %" PRId64 " connections now\n", served, tool_number (peers, "connections"));
    printf ("from peers %s\n", fetched);
    if (dht != NULL) {
        printf ("hash table %s, port %" PRId64 ", ", tool_text (dht, "state"), tool_number (dht, "port"));
        print_found (dht);
    }
    if (catalog != NULL) {
        printf ("catalog    ");
        print_found (catalog);
    }
}

static int stats (int argc, char **argv)
{
    gboolean json = FALSE;
    const GOptionEntry options[] = {{"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print it as JSON", NULL},
                                    G_OPTION_ENTRY_NULL};
    (void) tool_parse (&stats_verb, options, argc, argv, 1, 1);
    g_autoptr (JsonObject) peers = ask (&stats_verb, argv[1], json);
    if (peers != NULL && !json)
        print_stats (peers);
    return peers == NULL ? TOOL_FAILED : TOOL_DONE;
}

static int change (const Verb *verb, const char *action, const char *path, const char *address)
{
    GError *error = NULL;
    g_autofree char *archive = tool_archive (path);
    g_autoptr (Ecfs) ecfs = tool_open (archive, NULL, &error);
    if (ecfs == NULL || !ecfs_swarm_change (ecfs, action, address, &error))
        return tool_fail (verb->name, error, TOOL_FAILED);
    return TOOL_DONE;
}

static int start (int argc, char **argv)
{
    (void) tool_parse (&start_verb, NULL, argc, argv, 1, 1);
    return change (&start_verb, "start", argv[1], NULL);
}

static int stop (int argc, char **argv)
{
    (void) tool_parse (&stop_verb, NULL, argc, argv, 1, 1);
    return change (&stop_verb, "stop", argv[1], NULL);
}

static int drop (int argc, char **argv)
{
    (void) tool_parse (&drop_verb, NULL, argc, argv, 2, 2);
    return change (&drop_verb, "drop", argv[1], argv[2]);
}

static int serve (int argc, char **argv)
{
    gboolean json = FALSE;
    const GOptionEntry options[] = {
        {"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print at the end what was given, as JSON", NULL},
        G_OPTION_ENTRY_NULL};
    (void) tool_parse (&serve_verb, options, argc, argv, 1, 1);
    GError *error = NULL;
    g_autofree char *archive = tool_archive (argv[1]);
    tool_catch_interrupts ();
    g_autoptr (Ecfs) ecfs = tool_open (archive, NULL, &error);
    if (ecfs == NULL || !ecfs_swarm_serve (ecfs, &error))
        return tool_fail (serve_verb.name, error, TOOL_FAILED);
    while (!tool_is_interrupted ())
        g_usleep (LOOK_US);
    g_autofree char *text = ecfs_swarm (ecfs, &error);
    if (text == NULL)
        return tool_fail (serve_verb.name, error, TOOL_FAILED);
    g_autoptr (JsonObject) peers = tool_json_object (text);
    if (json)
        puts (text);
    else
        print_stats (peers);
    return TOOL_DONE;
}

int verb_swarm (const Verb *verb, int argc, char **argv)
{
    static const Action actions[] = {{"list", list}, {"stats", stats}, {"start", start}, {"stop", stop},
                                     {"drop", drop}, {"serve", serve}, {NULL, NULL}};
    return tool_run_action (verb, actions, argc, argv);
}
