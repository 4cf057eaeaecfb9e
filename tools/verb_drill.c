/* drill: rehearse a loss */
#include "page_drill.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static char *joined (JsonArray *names)
{
    GString *text = g_string_new (NULL);
    for (unsigned i = 0; i < json_array_get_length (names); i++)
        g_string_append_printf (text, "%s%s", i > 0 ? ", " : "", json_array_get_string_element (names, i));
    return g_string_free (text, FALSE);
}

static void print_key (JsonObject *report)
{
    if (!json_object_has_member (report, "key"))
        return;
    JsonObject *key = json_object_get_object_member (report, "key");
    int64_t n_without = tool_number (key, "without_any");
    bool shared = tool_key_has (key, "split") || tool_key_has (key, "passphrase");
    g_autofree char *openers = tool_key_openers (key, false);
    g_autofree char *with = g_strdup_printf ("%s%s", openers == NULL ? "" : " with ", openers == NULL ? "" : openers);
    if (!json_object_get_boolean_member (key, "comes_back"))
        printf ("key       does not come back: %s\n", tool_text (key, "error"));
    else if (n_without > 0)
        printf ("key       comes back%s without any %" PRIi64 " of the %" PRIi64 " zones that have %s\n", with,
                n_without, tool_number (key, "zones"), shared ? "their shares" : "its file");
    else if (openers != NULL)
        printf ("key       comes back%s, which is not tried here, from any %" PRIi64 " of the %" PRIi64
                " zones that have %s\n",
                with, tool_number (key, "needed"), tool_number (key, "zones"), shared ? "their shares" : "its file");
    else
        printf ("key       comes back: it was joined from the shares of %" PRIi64 " zones, and needs %" PRIi64 "\n",
                tool_number (key, "zones"), tool_number (key, "needed"));
}

/* Reading */

/* What is left of the month of its account, in words. */
static char *left_text (JsonObject *endpoint)
{
    GString *text = g_string_new (NULL);
    bool exceeds = json_object_get_boolean_member (endpoint, "exceeds_month");
    if (json_object_has_member (endpoint, "requests_left"))
        g_string_append_printf (text, ", %" PRIi64 " requests", tool_number (endpoint, "requests_left"));
    if (json_object_has_member (endpoint, "egress_left_bytes")) {
        g_autofree char *left = tool_bytes (tool_double (endpoint, "egress_left_bytes"));
        g_string_append_printf (text, "%s%s to read", text->len > 0 ? " and " : ", ", left);
    }
    if (text->len > 0)
        g_string_append_printf (text, " left this month%s", exceeds ? ": NOT ENOUGH" : "");
    return g_string_free (text, FALSE);
}

/* Before anything is read. Endpoints are listed where somebody counts what is asked of them. */
static void print_plan (JsonObject *plan, bool dry_run)
{
    JsonArray *endpoints = json_object_get_array_member (plan, "endpoints");
    g_autofree char *content = tool_bytes ((double) tool_number (plan, "bytes"));
    g_autofree char *all = tool_bytes ((double) tool_number (plan, "read_bytes"));
    printf ("%s %" PRIi64 " of %" PRIi64 " objects twice, %s each time: about %s in %" PRIi64 " requests",
            dry_run ? "would read" : "will read", tool_number (plan, "sampled"), tool_number (plan, "objects"), content,
            all, tool_number (plan, "requests"));
    if (json_object_has_member (plan, "cost_millionths")) {
        g_autofree char *money = tool_money (tool_number (plan, "cost_millionths"));
        printf (", which costs about %s", money);
    }
    if (dry_run)
        printf (" (--seed %" PRIi64 " reads the same)", tool_number (plan, "seed"));
    puts ("");
    for (unsigned i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        const bool priced = json_object_has_member (endpoint, "cost_millionths");
        g_autofree char *left = left_text (endpoint), *bytes = tool_bytes (tool_double (endpoint, "read_bytes"));
        g_autofree char *money = tool_money (priced ? tool_number (endpoint, "cost_millionths") : 0);
        if (priced || *left != '\0')
            printf ("  %s: %s in %" PRIi64 " requests%s%s%s\n", tool_text (endpoint, "name"), bytes,
                    tool_number (endpoint, "requests"), priced ? " for " : "", priced ? money : "", left);
    }
    (void) fflush (stdout); /* whoever waits reads it now */
}

static void print_speed (JsonObject *report)
{
    double seconds = tool_double (report, "seconds"), all = tool_double (report, "seconds_with_all");
    g_autofree char *bytes = tool_bytes ((double) tool_number (report, "bytes"));
    g_autofree char *took = tool_seconds (seconds), *took_all = tool_seconds (all);
    printf ("time      %s in %s without them and in %s with all endpoints", bytes, took, took_all);
    if (all > 0)
        printf (", %.2f times as long", seconds / all);
    puts ("");
    tool_print_cost (report, "cost      ");
}

static void print_notices (JsonObject *report)
{
    int64_t n_objects = tool_number (report, "objects");
    JsonArray *notices = json_object_get_array_member (report, "notices");
    for (unsigned i = 0; i < json_array_get_length (notices); i++) {
        JsonObject *notice = json_array_get_object_element (notices, i);
        int64_t n_bad = tool_number (notice, "objects");
        printf ("%s%" PRIi64 " unreadable %s of %" PRIi64 " would have been noticed with %.4g%%\n",
                i == 0 ? "proves    " : "          ", n_bad, n_bad == 1 ? "object" : "objects", n_objects,
                100 * tool_double (notice, "probability"));
    }
    printf ("          with %.0f%% confidence no more than %" PRIi64 " of all objects cannot be read without them\n",
            100 * tool_double (report, "confidence"), tool_number (report, "unreadable_at_most"));
}

static void print_reading (JsonObject *report)
{
    g_autofree char *without = joined (json_object_get_array_member (report, "without"));
    int64_t n_bad = tool_number (report, "unreadable"), n_broken = tool_number (report, "unreadable_with_all");
    printf ("without   %s\n", without);
    printf ("catalog   %" PRIi64 " of %" PRIi64 " objects have too few stripes elsewhere\n",
            tool_number (report, "unreadable_by_catalog"), tool_number (report, "objects"));
    printf ("sample    %" PRIi64 " objects were read (--seed %" PRIi64 " chooses the same): ",
            tool_number (report, "sampled"), tool_number (report, "seed"));
    if (n_bad == 0 && n_broken == 0)
        puts ("every byte was as it was stored");
    else
        printf ("%" PRIi64 " could not be read, and %" PRIi64 " not even with all endpoints\n", n_bad, n_broken);
    print_speed (report);
    if (tool_number (report, "sampled") > 0)
        print_notices (report);
}

/* The catalog alone */

static void print_unsafe (JsonObject *loss)
{
    JsonArray *unsafe = json_object_get_array_member (loss, "unsafe");
    for (unsigned i = 0; i < json_array_get_length (unsafe); i++) {
        JsonObject *set = json_array_get_object_element (unsafe, i);
        g_autofree char *names = joined (json_object_get_array_member (set, "without"));
        printf ("  without %s: %" PRIi64 " objects cannot be read\n", names[0] == '\0' ? "any of them missing" : names,
                tool_number (set, "unreadable"));
    }
}

static void print_loss (JsonObject *loss)
{
    int64_t n = tool_number (loss, "endpoints"), n_sets = tool_number (loss, "sets");
    int64_t n_objects = tool_number (loss, "objects"), n_safe = tool_number (loss, "safe");
    const char *endpoints = n == 1 ? "endpoint" : "endpoints";
    if (n == 0 && n_safe == n_sets)
        printf ("With all endpoints, all %" PRIi64 " objects are readable.\n", n_objects);
    else if (n == 0)
        puts ("With all endpoints, not all objects are readable:");
    else if (!json_object_has_member (loss, "safe"))
        printf ("Without %" PRIi64 " %s: there are too many sets to check each of them.\n", n, endpoints);
    else if (n_safe == n_sets)
        printf ("Without any %" PRIi64 " %s, all %" PRIi64 " objects whose codes promise it stay readable.\n", n,
                endpoints, n_objects);
    else
        printf ("Without %" PRIi64 " %s, %" PRIi64 " of %" PRIi64 " sets leave all %" PRIi64
                " objects readable whose codes promise it:\n",
                n, endpoints, n_safe, n_sets, n_objects);
    print_unsafe (loss);
}

static void print_losses (JsonObject *report)
{
    JsonArray *losses = json_object_get_array_member (report, "losses");
    for (unsigned i = 0; i < json_array_get_length (losses); i++)
        print_loss (json_array_get_object_element (losses, i));
}

/* The verb */

static bool parse_percent (const char *text, double *ret_percent)
{
    char *end;
    *ret_percent = g_ascii_strtod (text, &end);
    return end != text && (*end == '\0' || strcmp (end, "%") == 0) && *ret_percent > 0 && *ret_percent <= 100;
}

typedef struct DrillOutput {
    const char *html;
    gboolean json, dry_run;
} DrillOutput;

/* NULL, without an error, where nothing is read. */
static JsonObject *plan_of (Ecfs *ecfs, const EcfsDrill *drill, GError **error)
{
    g_autofree char *text = drill->without == NULL ? NULL : ecfs_drill_cost (ecfs, drill, error);
    return text == NULL ? NULL : tool_json_object (text);
}

static void print_object (JsonObject *object)
{
    JsonNode *node = json_node_new (JSON_NODE_OBJECT);
    json_node_set_object (node, object);
    tool_print_json (node);
}

static void print_report (JsonObject *report, JsonObject *plan, const DrillOutput *output)
{
    if (output->json) {
        if (plan != NULL)
            json_object_set_object_member (report, "planned", json_object_ref (plan));
        print_object (report);
        return;
    }
    if (output->html != NULL)
        return;
    if (plan != NULL)
        print_reading (report);
    else
        print_losses (report);
    print_key (report);
}

static int run (const Verb *verb, const char *directory, EcfsDrill *drill, const DrillOutput *output)
{
    bool good = true;
    ToolTransfer transfer;
    GError *error = NULL;
    g_autoptr (Ecfs) ecfs = ecfs_open (directory, 0, &error);
    if (ecfs == NULL)
        return tool_fail (verb->name, error, TOOL_FAILED);
    g_autoptr (JsonObject) plan = plan_of (ecfs, drill, &error);
    if (error != NULL)
        return tool_fail (verb->name, error, TOOL_FAILED);
    if (plan != NULL && !output->json && output->html == NULL)
        print_plan (plan, output->dry_run);
    if (output->dry_run) {
        if (output->json)
            print_object (plan);
        return TOOL_DONE;
    }
    tool_transfer_begin (&transfer, verb->name);
    drill->transfer = &transfer.transfer;
    g_autofree char *text = ecfs_drill (ecfs, drill, &good, &error);
    if (text == NULL)
        return tool_transfer_end (&transfer, error);
    (void) tool_transfer_end (&transfer, NULL); /* what could not be read was told */
    g_autoptr (JsonObject) report = tool_json_object (text);
    if (output->html != NULL && !page_drill (report, directory, good, output->html, &error))
        return tool_fail (verb->name, error, TOOL_FAILED);
    print_report (report, plan, output);
    return good ? TOOL_DONE : TOOL_FAILED;
}

int verb_drill (const Verb *verb, int argc, char **argv)
{
    g_autofree char *without = NULL, *sample = NULL, *html = NULL;
    gint64 seed = 0;
    DrillOutput output = {.json = FALSE};
    const GOptionEntry options[] = {
        {"without", 'w', 0, G_OPTION_ARG_STRING, &without, "Endpoints to do without; none: ask the catalog alone",
         "NAME,..."},
        {"sample", 's', 0, G_OPTION_ARG_STRING, &sample, "Share of the objects to read (1%)", "P%"},
        {"seed", 0, 0, G_OPTION_ARG_INT64, &seed, "Number that chooses the sample; the report shows it (random)", "N"},
        {"html", 0, 0, G_OPTION_ARG_FILENAME, &html, "Write a page for people to this file, and print nothing", "FILE"},
        {"dry-run", 'n', 0, G_OPTION_ARG_NONE, &output.dry_run, "Only tell what reading the sample takes and costs",
         NULL},
        {"json", 0, 0, G_OPTION_ARG_NONE, &output.json, "Print a JSON object", NULL},
        G_OPTION_ENTRY_NULL};
    argc = tool_parse (verb, options, argc, argv, 1, 1);
    EcfsDrill drill = {.percent = 1};
    if (sample != NULL && (without == NULL || !parse_percent (sample, &drill.percent))) {
        tool_say (verb->name, without == NULL ? "--sample needs --without, which names the endpoints to do without"
                                              : "--sample takes more than 0%% and at most 100%%");
        return TOOL_USAGE;
    }
    if (output.dry_run && (without == NULL || html != NULL)) {
        tool_say (verb->name, without == NULL ? "--dry-run needs --without: else the catalog alone is asked"
                                              : "--dry-run has no page: it takes no --html");
        return TOOL_USAGE;
    }
    g_auto (GStrv) names = without == NULL ? NULL : g_strsplit (without, ",", -1);
    if (names != NULL && names[0] == NULL) {
        tool_say (verb->name, "--without names no endpoint");
        return TOOL_USAGE;
    }
    drill.without = (const char *const *) names;
    drill.seed = seed != 0 ? (uint64_t) seed : (uint64_t) g_random_int () + 1;
    output.html = html;
    return run (verb, argv[1], &drill, &output);
}
