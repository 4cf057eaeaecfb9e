/* sim: what would happen */
#include "page.h"
#include "plot.h"
#include "sim/sim_tool.h"
#include "tool.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct SimArguments {
    char *plot, *html, *codes, *policies;
    int64_t seed, repeat;
    gboolean json;
} SimArguments;

static int64_t shown_us;

static void show_progress (unsigned n_done, unsigned n_all)
{
    int64_t now_us = g_get_monotonic_time ();
    if (shown_us == 0)
        shown_us = now_us;
    if (now_us - shown_us < G_USEC_PER_SEC)
        return;
    shown_us = now_us;
    fprintf (stderr, "\r%u of %u runs\033[K", n_done, n_all);
}

static JsonObject *reading_facts (const SimRow *row)
{
    JsonObject *facts = json_object_new ();
    json_object_set_string_member (facts, "policy", row->variant);
    json_object_set_double_member (facts, "seconds", row->seconds);
    json_object_set_double_member (facts, "deviation", row->deviation);
    json_object_set_double_member (facts, "bytes_per_s", row->bytes_per_s);
    json_object_set_double_member (facts, "object_p50_s", row->object_p50_s);
    json_object_set_double_member (facts, "object_p95_s", row->object_p95_s);
    json_object_set_double_member (facts, "longest_wait_s", row->longest_wait_s);
    json_object_set_double_member (facts, "received", row->received);
    json_object_set_double_member (facts, "extra", row->extra);
    json_object_set_double_member (facts, "hedges", row->hedges);
    json_object_set_int_member (facts, "objects", (int64_t) row->objects);
    json_object_set_int_member (facts, "failed", (int64_t) row->failed);
    json_object_set_int_member (facts, "timed_out", row->n_timed_out);
    return facts;
}

static JsonObject *lifetime_facts (const EcfsScenario *scenario, const SimRow *row)
{
    const EcfsLifetime *lifetime = &row->lifetime;
    JsonObject *facts = json_object_new ();
    double rate;
    bool seen = sim_loss_rate (scenario, row, &rate);
    json_object_set_string_member (facts, "repair_bandwidth", row->variant);
    json_object_set_int_member (facts, "lost", (int64_t) lifetime->n_lost);
    json_object_set_double_member (facts, seen ? "lost_of_1e6_a_year" : "lost_of_1e6_a_year_at_most", rate);
    json_object_set_int_member (facts, "deaths", (int64_t) lifetime->n_deaths);
    json_object_set_int_member (facts, "disasters", (int64_t) lifetime->n_disasters);
    json_object_set_int_member (facts, "repairs", (int64_t) lifetime->n_repairs);
    json_object_set_int_member (facts, "unrepaired", (int64_t) lifetime->n_unrepaired);
    json_object_set_double_member (facts, "repair_bytes", lifetime->repair_bytes);
    json_object_set_double_member (facts, "longest_repair_days", lifetime->longest_repair_days);
    json_object_set_int_member (facts, "least_guarantee", lifetime->least_guarantee);
    return facts;
}

static void print_json (const EcfsScenario *scenario, const GArray *rows)
{
    JsonObject *facts = json_object_new ();
    JsonArray *array = json_array_new ();
    for (guint i = 0; i < rows->len; i++) {
        const SimRow *row = &g_array_index (rows, SimRow, i);
        JsonObject *one = scenario->is_lifetime ? lifetime_facts (scenario, row) : reading_facts (row);
        json_object_set_string_member (one, "code", row->code);
        json_object_set_boolean_member (one, "modelled", row->modelled);
        json_object_set_int_member (one, "runs", row->n_runs);
        json_array_add_object_element (array, one);
    }
    json_object_set_string_member (facts, "kind", scenario->is_lifetime ? "lifetime" : "read");
    json_object_set_string_member (facts, "about", scenario->about == NULL ? "" : scenario->about);
    json_object_set_int_member (facts, "seed", (int64_t) scenario->seed);
    json_object_set_array_member (facts, "rows", array);
    JsonNode *node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, facts);
    tool_print_json (node);
}

static void add_titles (GPtrArray *cells, const char *const *titles, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tool_cell (cells, g_strdup (titles[i]));
}

static const char reading_notes[] =
    "CAME: bytes that came in whole packets, for each byte read. EXTRA: those that came and were not needed. HEDGES:\n"
    "packets asked because others were late. FAILED: objects that could not be read. Means of all seeds.";
static const char lifetime_notes[] =
    "LOST: objects, in all runs. <: none was, and in 95% of cases with more than that some would be. LEAST\n"
    "GUARANTEE: how many stripes more an object could have lost in its worst moment.";

/* Titles, and a row for each. */
static GPtrArray *reading_cells (const GArray *rows, unsigned *ret_n_columns)
{
    static const char *const titles[] = {"CODE", "POLICY", "SECONDS", "MB/s",   "OBJECT p50",
                                         "p95",  "CAME",   "EXTRA",   "HEDGES", "FAILED"};
    GPtrArray *cells = g_ptr_array_new_with_free_func (g_free);
    add_titles (cells, titles, G_N_ELEMENTS (titles));
    for (guint i = 0; i < rows->len; i++) {
        const SimRow *row = &g_array_index (rows, SimRow, i);
        tool_cell (cells, g_strdup (row->code));
        tool_cell (cells, g_strdup (row->variant));
        tool_cell (cells, row->n_runs > 1 ? g_strdup_printf ("%.2f +- %.2f", row->seconds, row->deviation)
                                          : g_strdup_printf ("%.2f", row->seconds));
        tool_cell (cells, g_strdup_printf ("%.2f", row->bytes_per_s / 1e6));
        tool_cell (cells, tool_seconds (row->object_p50_s));
        tool_cell (cells, tool_seconds (row->object_p95_s));
        tool_cell (cells, g_strdup_printf ("%.3f", row->received));
        tool_cell (cells, g_strdup_printf ("%.3f", row->extra));
        tool_cell (cells, g_strdup_printf ("%.0f", row->hedges));
        tool_cell (cells, g_strdup_printf ("%.0f", row->failed));
    }
    *ret_n_columns = G_N_ELEMENTS (titles);
    return cells;
}

static GPtrArray *lifetime_cells (const EcfsScenario *scenario, const GArray *rows, unsigned *ret_n_columns)
{
    static const char *const titles[] = {"CODE",           "REPAIR/s",        "LOST",        "OF 10^6 A YEAR",
                                         "LONGEST REPAIR", "LEAST GUARANTEE", "READ A YEAR", "DEATHS"};
    GPtrArray *cells = g_ptr_array_new_with_free_func (g_free);
    add_titles (cells, titles, G_N_ELEMENTS (titles));
    for (guint i = 0; i < rows->len; i++) {
        const SimRow *row = &g_array_index (rows, SimRow, i);
        double rate;
        bool seen = sim_loss_rate (scenario, row, &rate);
        tool_cell (cells, g_strdup (row->code));
        tool_cell (cells, g_strdup (row->variant));
        tool_cell (cells, g_strdup_printf ("%" PRIu64, row->lifetime.n_lost));
        tool_cell (cells, g_strdup_printf (seen ? "%.3g" : "< %.1g", rate));
        tool_cell (cells, tool_seconds (row->lifetime.longest_repair_days * 86400));
        tool_cell (cells, g_strdup_printf ("%d", row->lifetime.least_guarantee));
        tool_cell (cells, tool_bytes (row->lifetime.repair_bytes / scenario->years / row->n_runs));
        tool_cell (cells, g_strdup_printf ("%" PRIu64, row->lifetime.n_deaths));
    }
    *ret_n_columns = G_N_ELEMENTS (titles);
    return cells;
}

static GPtrArray *cells_of (const EcfsScenario *scenario, const GArray *rows, unsigned *ret_n_columns)
{
    return scenario->is_lifetime ? lifetime_cells (scenario, rows, ret_n_columns) : reading_cells (rows, ret_n_columns);
}

/* Times by the longest; losses by their powers of ten, from 10^-3 to 10^6 a year. */
static double *bars_of (const EcfsScenario *scenario, const GArray *rows)
{
    double *parts = g_new0 (double, rows->len + 1), longest = 0, rate;
    for (guint i = 0; i < rows->len; i++)
        longest = MAX (longest, g_array_index (rows, SimRow, i).seconds);
    for (guint i = 0; i < rows->len; i++) {
        const SimRow *row = &g_array_index (rows, SimRow, i);
        if (!scenario->is_lifetime)
            parts[i] = longest > 0 ? row->seconds / longest : 0;
        else if (sim_loss_rate (scenario, row, &rate))
            parts[i] = (log10 (MAX (rate, 1e-3)) + 3) / 9;
    }
    return parts;
}

static bool write_page (const EcfsScenario *scenario, const GArray *rows, const char *path, const char *html,
                        GError **error)
{
    unsigned n_columns;
    g_autoptr (GPtrArray) cells = cells_of (scenario, rows, &n_columns);
    g_autofree double *parts = bars_of (scenario, rows);
    g_autofree char *file = g_shell_quote (html), *from = g_shell_quote (path);
    g_autofree char *command = g_strdup_printf ("ecfs sim --html %s %s", file, from);
    GString *page = page_new ("simulation");
    page_add (page, "<h1>%s</h1><p class=\"dim\">seeds %.0f to %.0f</p>\n",
              scenario->about == NULL ? "A simulation" : scenario->about, scenario->seed,
              scenario->seed + scenario->repeat - 1);
    page_table (page, cells, n_columns, parts,
                scenario->is_lifetime ? "lost, powers of ten" : "seconds, by the longest");
    page_add (page, "<p class=\"dim\">%s</p>", scenario->is_lifetime ? lifetime_notes : reading_notes);
    return page_write (page, command, html, error);
}

static void print_text (const EcfsScenario *scenario, const GArray *rows)
{
    bool mds = false, peeling = false, sparse = false;
    if (scenario->about != NULL) {
        g_autofree char *about = tool_printable (scenario->about);
        puts (about);
    }
    printf ("seeds %.0f to %.0f\n\n", scenario->seed, scenario->seed + scenario->repeat - 1);
    unsigned n_columns;
    g_autoptr (GPtrArray) cells = cells_of (scenario, rows, &n_columns);
    tool_table (cells, n_columns, "");
    printf ("\n%s\n", scenario->is_lifetime ? lifetime_notes : reading_notes);
    for (guint i = 0; i < rows->len; i++) {
        const SimRow *row = &g_array_index (rows, SimRow, i);
        mds |= g_str_has_prefix (row->code, "mds:");
        peeling |= g_str_has_prefix (row->code, "peeling:");
        sparse |= g_str_has_prefix (row->code, "sparse:");
    }
    if (mds)
        puts ("mds: any k of the stripes suffice, as with Reed-Solomon codes; ours have at most 32 stripes, so this is "
              "a model.");
    if (peeling)
        puts (
            "peeling: the ldpc code decoded by peeling alone, as in the papers; ldpc: with elimination, as ours are.");
    if (sparse)
        puts ("sparse: an ldpc code of few edges, made for peeling alone; not one of ours.");
}

static bool apply (EcfsScenario *scenario, const SimArguments *arguments, GError **error)
{
    if (arguments->seed > G_MAXUINT32 || arguments->repeat > 10000 || arguments->repeat == 0 ||
        arguments->repeat < -1 || arguments->seed < -1)
        return ecfs_fail (error, EINVAL, "--seed is at most %u and --repeat from 1 to 10000", G_MAXUINT32);
    scenario->seed = arguments->seed >= 0 ? (double) arguments->seed : scenario->seed;
    scenario->repeat = arguments->repeat > 0 ? (double) arguments->repeat : scenario->repeat;
    char ***variants = scenario->is_lifetime ? &scenario->repair_bandwidths : &scenario->policies;
    return (arguments->codes == NULL || ecfs_scenario_list (arguments->codes, "--codes", &scenario->codes, error)) &&
           (arguments->policies == NULL || ecfs_scenario_list (arguments->policies, "--variants", variants, error)) &&
           (arguments->plot == NULL || tool_plot_check (arguments->plot, error));
}

static int sim (const Verb *verb, const char *path, const SimArguments *arguments)
{
    GError *error = NULL;
    g_autoptr (EcfsScenario) scenario = ecfs_scenario_load (path, &error);
    if (scenario == NULL || !apply (scenario, arguments, &error))
        return tool_fail (verb->name, error, TOOL_USAGE);
    bool terminal = isatty (STDERR_FILENO);
    g_autoptr (GArray) rows = sim_run_all (scenario, terminal ? show_progress : NULL, &error);
    if (terminal)
        fputs ("\r\033[K", stderr);
    if (rows == NULL)
        return tool_fail (verb->name, error, TOOL_USAGE);
    if (arguments->html != NULL && !write_page (scenario, rows, path, arguments->html, &error))
        return tool_fail (verb->name, error, TOOL_FAILED);
    if (arguments->json)
        print_json (scenario, rows);
    else if (arguments->html == NULL)
        print_text (scenario, rows);
    if (arguments->plot == NULL)
        return TOOL_DONE;
    g_autofree char *commands = sim_plot (scenario, rows);
    return tool_plot (arguments->plot, commands, &error) ? TOOL_DONE : tool_fail (verb->name, error, TOOL_FAILED);
}

int verb_sim (const Verb *verb, int argc, char **argv)
{
    SimArguments arguments = {.seed = -1, .repeat = -1};
    const GOptionEntry options[] = {
        {"codes", 0, 0, G_OPTION_ARG_STRING, &arguments.codes, "Use these codes instead of the scenario's", "CODE;..."},
        {"variants", 0, 0, G_OPTION_ARG_STRING, &arguments.policies,
         "Use these policies, or bandwidths of repair, instead", "TEXT;..."},
        {"seed", 0, 0, G_OPTION_ARG_INT64, &arguments.seed, "First seed", "NUMBER"},
        {"repeat", 0, 0, G_OPTION_ARG_INT64, &arguments.repeat, "Runs of each, every one with its own seed", "NUMBER"},
        {"plot", 0, 0, G_OPTION_ARG_FILENAME, &arguments.plot, "Draw the result with gnuplot", "FILE.svg|png"},
        {"html", 0, 0, G_OPTION_ARG_FILENAME, &arguments.html,
         "Write a page for people to this file, and print nothing", "FILE"},
        {"json", 0, 0, G_OPTION_ARG_NONE, &arguments.json, "Print a JSON object", NULL},
        G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 1, 1);
    int status = sim (verb, argv[1], &arguments);
    g_free (arguments.plot);
    g_free (arguments.html);
    g_free (arguments.codes);
    g_free (arguments.policies);
    return status;
}
