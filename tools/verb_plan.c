/* plan: what a code buys */
#include "page_plan.h"
#include "plot.h"
#include "tool.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_K            4
#define DEFAULT_M            2
#define DEFAULT_AVAILABILITY "0.99"

typedef struct PlanArguments {
    int k, m;
    char *codes, *availability, *wanted, *plot, *html;
    PlanCostOptions costs;
    gboolean json;
} PlanArguments;

static bool parse_probability (const char *text, double *ret_value, GError **error)
{
    char *end;
    double value = g_ascii_strtod (text, &end);
    if (end == text || *end != '\0' || !(value >= 0 && value <= 1))
        return tool_error (error, EINVAL, "\"%s\" is not a probability from 0 to 1", text);
    *ret_value = value;
    return true;
}

static bool parse_endpoints (const char *text, PlanEndpoints *ret_endpoints, GError **error)
{
    g_auto (GStrv) parts = g_strsplit (text, ",", -1);
    unsigned n = g_strv_length (parts);
    if (n == 0 || n > ECFS_MAX_STRIPES)
        return tool_error (error, EINVAL, "--availability takes 1 to %d figures, not %u", ECFS_MAX_STRIPES, n);
    for (unsigned i = 0; i < n; i++)
        if (!parse_probability (g_strstrip (parts[i]), &ret_endpoints->availability[i], error)) {
            g_prefix_error_literal (error, "--availability: ");
            return false;
        }
    ret_endpoints->n = n;
    return true;
}

static GPtrArray *rows_of_codes (const char *codes, const PlanEndpoints *endpoints, GError **error)
{
    g_autoptr (GPtrArray) rows = g_ptr_array_new_with_free_func ((GDestroyNotify) plan_row_free);
    g_auto (GStrv) parts = g_strsplit (codes, ",", -1);
    for (char **part = parts; *part != NULL; part++) {
        PlanRow *row = plan_row_new (g_strstrip (*part), endpoints, error);
        if (row == NULL)
            return NULL;
        g_ptr_array_add (rows, row);
    }
    if (rows->len == 0) {
        g_set_error_literal (error, ECFS_ERROR, EINVAL, "--code is empty");
        return NULL;
    }
    return g_steal_pointer (&rows);
}

static GPtrArray *make_rows (const PlanArguments *arguments, const PlanEndpoints *endpoints, double wanted,
                             GError **error)
{
    if (arguments->codes != NULL)
        return rows_of_codes (arguments->codes, endpoints, error);
    if (arguments->wanted != NULL)
        return plan_rows_for ((unsigned) arguments->k, wanted, endpoints, error);
    return plan_rows_of ((unsigned) arguments->k, (unsigned) arguments->m, endpoints, error);
}

static void print_json (const GPtrArray *rows, const PlanEndpoints *endpoints, const PlanPrices *prices)
{
    JsonObject *facts = json_object_new ();
    JsonArray *availability = json_array_new (), *codes = json_array_new ();
    for (unsigned i = 0; i < endpoints->n; i++)
        json_array_add_double_element (availability, endpoints->availability[i]);
    for (guint i = 0; i < rows->len; i++)
        json_array_add_object_element (codes, json_object_ref (((const PlanRow *) g_ptr_array_index (rows, i))->facts));
    json_object_set_array_member (facts, "availability", availability);
    json_object_set_array_member (facts, "codes", codes);
    if (prices->n > 0) {
        json_object_set_int_member (facts, "bytes", (int64_t) prices->bytes);
        json_object_set_int_member (facts, "objects", (int64_t) prices->n_objects);
    }
    JsonNode *node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, facts);
    tool_print_json (node);
}

static void add_cells (GPtrArray *cells, const PlanRow *row)
{
    tool_cell (cells, g_strdup (row->code));
    tool_cell (cells, g_strdup_printf ("%.2f", (double) row->n / row->k));
    tool_cell (cells, g_strdup_printf ("%u of %u", row->tolerance, row->n));
    tool_cell (cells, isnan (row->repair) ? g_strdup ("-") : g_strdup_printf ("%.1f", row->repair));
    if (row->exact)
        tool_cell (cells, g_strdup_printf ("%.2e", row->failure));
    else if (plan_is_bound (row))
        tool_cell (cells, g_strdup_printf ("< %.0e", row->failure + 2 * row->error));
    else
        tool_cell (cells, g_strdup_printf ("%.2e +- %.0e", row->failure, row->error));
    tool_cell (cells, plan_year (row));
    tool_cell (cells, isnan (row->formula) ? g_strdup ("-") : g_strdup_printf ("%.2e", row->formula));
}

/* Which of the codes a key cannot be shared for with no more endpoints than they have stripes, in as many zones: init
 * refuses these. */
static void tell_of_keys (const GPtrArray *rows)
{
    g_autoptr (GString) codes = g_string_new (NULL);
    for (guint i = 0; i < rows->len; i++) {
        const PlanRow *row = g_ptr_array_index (rows, i);
        if (!row->modelled && row->tolerance > 0 && 2 * row->tolerance + 1 > row->n)
            g_string_append_printf (codes, "%s%s (%u)", codes->len > 0 ? ", " : "", row->code, 2 * row->tolerance + 1);
    }
    if (codes->len > 0)
        printf ("With these codes, sharing the archive's key takes more endpoints than they have stripes, each in a "
                "zone of "
                "its own:\n%s. With fewer, 'ecfs init' asks for another --key.\n",
                codes->str);
}

static void print_table (const GPtrArray *rows)
{
    static const char *const titles[] = {"CODE", "SPACE", "TOLERANCE", "REPAIR", "FAILURE", "A YEAR", "BY FORMULA"};
    g_autoptr (GPtrArray) cells = g_ptr_array_new_with_free_func (g_free);
    bool formula = false, modelled = false, estimated = false;
    for (size_t i = 0; i < G_N_ELEMENTS (titles); i++)
        tool_cell (cells, g_strdup (titles[i]));
    for (guint i = 0; i < rows->len; i++) {
        const PlanRow *row = g_ptr_array_index (rows, i);
        add_cells (cells, row);
        formula |= !isnan (row->formula);
        modelled |= row->modelled;
        estimated |= !row->exact;
    }
    tool_table (cells, G_N_ELEMENTS (titles), "");
    puts ("\nSPACE: bytes stored for each byte. TOLERANCE: stripes of which any may be lost. REPAIR: bytes read for "
          "each\n"
          "lost one. FAILURE: the probability that a file cannot be read, with endpoints that fail independently.");
    if (estimated)
        puts ("+-: estimated from a sample, with its standard error. <: the sample shows no more than that.");
    if (formula)
        puts ("BY FORMULA: as Gaidioz et al. compute it for ldpc, from how many stripes a download takes on average.");
    if (modelled)
        puts ("mds: a code of which any K stripes suffice; rs here has at most 32 stripes. peeling: ldpc without "
              "elimination.");
    tell_of_keys (rows);
}

static bool check_numbers (const PlanArguments *arguments, GError **error)
{
    if (arguments->k >= 1 && arguments->k < ECFS_MAX_STRIPES && arguments->m >= 1 && arguments->m < ECFS_MAX_STRIPES)
        return true;
    return tool_error (error, EINVAL, "--k and --m are numbers from 1 to %d", ECFS_MAX_STRIPES - 1);
}

static int plan (const Verb *verb, const PlanArguments *arguments)
{
    PlanEndpoints endpoints;
    g_autofree PlanPrices *prices = g_new0 (PlanPrices, 1);
    double wanted = 0;
    GError *error = NULL;
    const char *availability = arguments->availability != NULL ? arguments->availability : DEFAULT_AVAILABILITY;
    if (!check_numbers (arguments, &error) || !parse_endpoints (availability, &endpoints, &error) ||
        (arguments->wanted != NULL && !parse_probability (arguments->wanted, &wanted, &error)) ||
        (arguments->plot != NULL && !tool_plot_check (arguments->plot, &error)) ||
        !plan_prices (&arguments->costs, &endpoints, prices, &error))
        return tool_fail (verb->name, error, TOOL_USAGE);
    g_autoptr (GPtrArray) rows = make_rows (arguments, &endpoints, wanted, &error);
    if (rows == NULL || (prices->n > 0 && !plan_add_costs (rows, prices, &error)))
        return tool_fail (verb->name, error, TOOL_USAGE);
    if (arguments->html != NULL && !page_plan (rows, &endpoints, arguments->html, &error))
        return tool_fail (verb->name, error, TOOL_FAILED);
    if (arguments->json)
        print_json (rows, &endpoints, prices);
    else if (arguments->html == NULL)
        print_table (rows);
    if (prices->n > 0 && !arguments->json && arguments->html == NULL)
        plan_print_costs (rows, prices);
    if (arguments->plot == NULL)
        return TOOL_DONE;
    unsigned k = (unsigned) arguments->k, m = (unsigned) arguments->m;
    g_autofree char *commands = plan_plot (k, MAX (k, m), &endpoints, &error);
    return commands != NULL && tool_plot (arguments->plot, commands, &error)
               ? TOOL_DONE
               : tool_fail (verb->name, error, TOOL_FAILED);
}

int verb_plan (const Verb *verb, int argc, char **argv)
{
    PlanArguments arguments = {.k = DEFAULT_K, .m = DEFAULT_M};
    const GOptionEntry options[] = {
        {"k", 0, 0, G_OPTION_ARG_INT, &arguments.k, "Data stripes (4)", "K"},
        {"m", 0, 0, G_OPTION_ARG_INT, &arguments.m, "Parity stripes (2)", "M"},
        {"code", 0, 0, G_OPTION_ARG_STRING, &arguments.codes, "Compare these codes instead", "CODE,..."},
        {"availability", 0, 0, G_OPTION_ARG_STRING, &arguments.availability,
         "Part of the time an endpoint is there, or each of them (0.99)", "P[,P...]"},
        {"want", 0, 0, G_OPTION_ARG_STRING, &arguments.wanted,
         "Find the least space with which files can be read with this probability", "P"},
        {"prices", 0, 0, G_OPTION_ARG_STRING, &arguments.costs.prices,
         "What accounts ask for a GB and month, 1000 requests and a GB that is read, all or each of them",
         "STORAGE[/REQUESTS[/EGRESS]][,...]"},
        {"archive", 0, 0, G_OPTION_ARG_FILENAME, &arguments.costs.archive,
         "Take prices, and what is stored, from this archive", "ARCHIVE"},
        {"size", 0, 0, G_OPTION_ARG_STRING, &arguments.costs.size, "With prices: how much is stored (1TB)", "SIZE"},
        {"files", 0, 0, G_OPTION_ARG_INT64, &arguments.costs.n_files, "With prices: in how many files (100000)", "N"},
        {"plot", 0, 0, G_OPTION_ARG_FILENAME, &arguments.plot, "Draw failure against space, with gnuplot",
         "FILE.svg|png"},
        {"html", 0, 0, G_OPTION_ARG_FILENAME, &arguments.html,
         "Write a page for people to this file, and print nothing", "FILE"},
        {"json", 0, 0, G_OPTION_ARG_NONE, &arguments.json, "Print a JSON object", NULL},
        G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 0, 0);
    int status = plan (verb, &arguments);
    g_free (arguments.codes);
    g_free (arguments.availability);
    g_free (arguments.wanted);
    g_free (arguments.plot);
    g_free (arguments.html);
    g_free (arguments.costs.prices);
    g_free (arguments.costs.archive);
    g_free (arguments.costs.size);
    return status;
}
