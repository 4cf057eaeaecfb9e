/* endpoint list, add, test; the others are in verb_lifecycle.c */
#include "tool.h"

#include "archive/archive.h"
#include "endpoint_test.h"

#include <stdio.h>
#include <string.h>

static const Verb list_verb = {"endpoint list", "ARCHIVE", "Lists the endpoints of an archive", NULL};
static const Verb add_verb = {"endpoint add", "ARCHIVE [NAME=]URL[,KEY=VALUE...]...", "Adds endpoints to an archive",
                              NULL};
static const Verb test_verb = {"endpoint test", "ARCHIVE [NAME...] | URL[,KEY=VALUE...]...",
                               "Connects to endpoints and writes, reads and deletes a few MiB", NULL};

static const char *state_word (EcfsEndpointState state)
{
    switch (state) {
    case ECFS_ENDPOINT_ACTIVE:
        return "active";
    case ECFS_ENDPOINT_READONLY:
        return "readonly";
    case ECFS_ENDPOINT_DRAINING:
        return "draining";
    case ECFS_ENDPOINT_FAILED:
        return "failed";
    case ECFS_ENDPOINT_DISTRUSTED:
        return "distrusted";
    case ECFS_ENDPOINT_REMOVED:
        break; /* it is not listed */
    }
    return "unknown";
}

static void list_json (const EcfsArchive *archive)
{
    JsonArray *array = json_array_new ();
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        char uuid[ECFS_UUID_TEXT_SIZE];
        ecfs_uuid_text (&endpoint->uuid, uuid);
        JsonObject *object = json_object_new ();
        json_object_set_string_member (object, "name", endpoint->name);
        json_object_set_string_member (object, "zone", endpoint->zone);
        json_object_set_string_member (object, "uuid", uuid);
        json_object_set_string_member (object, "state", state_word (endpoint->state));
        if (endpoint->endpoint != NULL)
            json_object_set_string_member (object, "url", ecfs_endpoint_url (endpoint->endpoint));
        json_array_add_object_element (array, object);
    }
    JsonNode *node = json_node_new (JSON_NODE_ARRAY);
    json_node_take_array (node, array);
    tool_print_json (node);
}

static void list_table (const EcfsArchive *archive)
{
    g_autoptr (GPtrArray) cells = g_ptr_array_new_with_free_func (g_free);
    static const char *const titles[] = {"ENDPOINT", "STATE", "ZONE", "URL"};
    for (size_t i = 0; i < G_N_ELEMENTS (titles); i++)
        tool_cell (cells, g_strdup (titles[i]));
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        tool_cell (cells, g_strdup (endpoint->name));
        tool_cell (cells, g_strdup (state_word (endpoint->state)));
        tool_cell (cells, g_strdup (endpoint->zone));
        tool_cell (cells, g_strdup (endpoint->endpoint == NULL ? "not in ecfs.conf any more"
                                                               : ecfs_endpoint_url (endpoint->endpoint)));
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
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (argv[1], ECFS_ARCHIVE_READONLY, &error);
    if (archive == NULL)
        return tool_fail (list_verb.name, error, TOOL_FAILED);
    if (json)
        list_json (archive);
    else
        list_table (archive);
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
    g_autofree char *all = g_strjoinv (", ", (char **) actions);
    const char *near = tool_nearest (action, actions);
    tool_say (verb->name, "\"%s\" is not one of %s", action, all);
    if (near != NULL)
        tool_say (verb->name, "did you mean \"ecfs endpoint %s\"?", near);
    return TOOL_USAGE;
}
