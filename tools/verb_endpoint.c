/* endpoint list, add, test; the others are in verb_lifecycle.c */
#include "tool.h"

#include "measure/endpoint_test.h"

#include <stdio.h>
#include <string.h>

static const Verb list_verb = {"endpoint list", "ARCHIVE", "Lists the endpoints of an archive", NULL};
static const Verb add_verb = {"endpoint add", "ARCHIVE [NAME=]URL[,KEY=VALUE...]...", "Adds endpoints to an archive",
                              NULL};
static const Verb test_verb = {"endpoint test", "ARCHIVE [NAME...] | URL[,KEY=VALUE...]...",
                               "Connects to endpoints and writes, reads and deletes a few MiB", NULL};

static void list_table (JsonArray *endpoints)
{
    g_autoptr (GPtrArray) cells = g_ptr_array_new_with_free_func (g_free);
    static const char *const titles[] = {"ENDPOINT", "STATE", "ZONE", "URL"};
    for (size_t i = 0; i < G_N_ELEMENTS (titles); i++)
        tool_cell (cells, g_strdup (titles[i]));
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        tool_cell (cells, g_strdup (tool_text (endpoint, "name")));
        tool_cell (cells, g_strdup (tool_text (endpoint, "state")));
        tool_cell (cells, g_strdup (tool_text (endpoint, "zone")));
        tool_cell (cells, g_strdup (json_object_get_string_member_with_default (endpoint, "url",
                                                                                "not in ecfs.conf any more")));
    }
    tool_table (cells, G_N_ELEMENTS (titles), "");
}

static int list (int argc, char **argv)
{
    gboolean json = FALSE;
    const GOptionEntry options[] = {{"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print a JSON array", NULL},
                                    G_OPTION_ENTRY_NULL};
    (void) tool_parse (&list_verb, options, argc, argv, 1, 1);
    GError *error = NULL;
    g_autofree char *text = ecfs_list_endpoints (argv[1], &error);
    if (text == NULL)
        return tool_fail (list_verb.name, error, TOOL_FAILED);
    g_autoptr (JsonArray) endpoints = tool_json_array (text);
    if (json)
        puts (text);
    else
        list_table (endpoints);
    return TOOL_DONE;
}

static int add (int argc, char **argv)
{
    argc = tool_parse (&add_verb, NULL, argc, argv, 2, G_MAXINT);
    for (int i = 2; i < argc; i++) {
        GError *error = NULL;
        if (!ecfs_add_endpoint (argv[1], argv[i], &error))
            return tool_fail (add_verb.name, error, TOOL_FAILED);
    }
    return TOOL_DONE;
}

static int test (int argc, char **argv)
{
    gboolean json = FALSE;
    const GOptionEntry options[] = {{"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print a JSON array", NULL},
                                    G_OPTION_ENTRY_NULL};
    argc = tool_parse (&test_verb, options, argc, argv, 1, G_MAXINT);
    g_autoptr (JsonArray) results = json_array_new ();
    GError *error = NULL;
    bool urls = strstr (argv[1], "://") != NULL;
    if (!(urls ? endpoint_test_urls (argv + 1, results, &error)
               : endpoint_test_archive (argv[1], argv + 2, argc - 2, results, &error)))
        return tool_fail (test_verb.name, error, TOOL_FAILED);
    return endpoint_test_print (test_verb.name, results, json) ? TOOL_DONE : TOOL_FAILED;
}

int verb_endpoint (const Verb *verb, int argc, char **argv)
{
    const char *action = argc > 1 ? argv[1] : "";
    if (strcmp (action, "list") == 0)
        return list (argc - 1, argv + 1);
    if (strcmp (action, "add") == 0)
        return add (argc - 1, argv + 1);
    if (strcmp (action, "test") == 0)
        return test (argc - 1, argv + 1);
    int status = verb_lifecycle (action, argc - 1, argv + 1);
    if (status >= 0)
        return status;
    (void) tool_parse (verb, NULL, argc, argv, 1, G_MAXINT);
    static const char *const actions[] = {"list",     "add",   "test",    "readonly", "active",
                                          "distrust", "drain", "replace", "remove",   NULL};
    return tool_unknown_action (verb, action, actions);
}
