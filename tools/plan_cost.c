/* What codes cost, by the prices of accounts that are given or that an archive has. */
#include "plan.h"
#include "tool.h"

#include <inttypes.h>
#include <stdio.h>

#define DEFAULT_BYTES   1000000000000u
#define DEFAULT_OBJECTS 100000

static bool parse_list (const char *text, PlanPrices *prices, GError **error)
{
    g_auto (GStrv) parts = g_strsplit (text, ",", -1);
    unsigned n = g_strv_length (parts);
    if (n == 0 || n > ECFS_MAX_STRIPES)
        return tool_error (error, EINVAL, "--prices takes 1 to %d of them, not %u", ECFS_MAX_STRIPES, n);
    for (unsigned i = 0; i < n; i++)
        if (!ecfs_parse_prices (g_strstrip (parts[i]), &prices->prices[i]))
            return tool_error (error, EINVAL, "--prices: \"%s\" is not STORAGE[/REQUESTS[/EGRESS]], such as 6/0.004/10",
                               parts[i]);
    prices->n = n;
    return true;
}

static bool read_archive (const char *directory, PlanPrices *prices, GError **error)
{
    g_autoptr (Ecfs) ecfs = ecfs_open (directory, 0, error);
    g_autofree char *text = ecfs == NULL ? NULL : ecfs_prices (ecfs, error);
    if (text == NULL)
        return false;
    g_autoptr (JsonObject) facts = tool_json_object (text);
    JsonArray *endpoints = json_object_get_array_member (facts, "endpoints");
    unsigned n = json_array_get_length (endpoints);
    if (n > ECFS_MAX_STRIPES)
        return tool_error (error, EINVAL, "%s has more endpoints than any code has stripes", directory);
    for (unsigned i = 0; i < n; i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        prices->prices[i] = (EcfsPrices){.storage = (uint64_t) tool_number (endpoint, "storage"),
                                         .requests = (uint64_t) tool_number (endpoint, "requests"),
                                         .egress = (uint64_t) tool_number (endpoint, "egress")};
    }
    prices->n = n;
    prices->bytes = (uint64_t) tool_number (facts, "bytes");
    prices->n_objects = (uint64_t) tool_number (facts, "objects");
    return true;
}

bool plan_prices (const PlanCostOptions *options, const PlanEndpoints *endpoints, PlanPrices *ret_prices,
                  GError **error)
{
    ret_prices->bytes = DEFAULT_BYTES;
    ret_prices->n_objects = DEFAULT_OBJECTS;
    if (options->prices != NULL && options->archive != NULL)
        return tool_error (error, EINVAL, "prices are those of --prices or of --archive, not both");
    if (options->prices == NULL && options->archive == NULL)
        return (options->size == NULL && options->n_files == 0) ||
               tool_error (error, EINVAL, "--size and --files need prices: --prices or --archive");
    if (options->archive != NULL ? !read_archive (options->archive, ret_prices, error)
                                 : !parse_list (options->prices, ret_prices, error))
        return false;
    if (options->size != NULL && !ecfs_parse_size (options->size, &ret_prices->bytes))
        return tool_error (error, EINVAL, "--size: \"%s\" is not a size", options->size);
    if (options->n_files < 0)
        return tool_error (error, EINVAL, "--files takes a number above 0");
    if (options->n_files > 0)
        ret_prices->n_objects = (uint64_t) options->n_files;
    return ret_prices->n == 1 || endpoints->n == 1 || ret_prices->n == endpoints->n ||
           tool_error (error, EINVAL, "there are prices of %u endpoints, and availabilities of %u", ret_prices->n,
                       endpoints->n);
}

bool plan_add_costs (const GPtrArray *rows, const PlanPrices *prices, GError **error)
{
    const EcfsPlanned what = {
        .prices = prices->prices, .n_endpoints = prices->n, .bytes = prices->bytes, .n_objects = prices->n_objects};
    for (guint i = 0; i < rows->len; i++) {
        const PlanRow *row = g_ptr_array_index (rows, i);
        g_autofree char *text = ecfs_plan_cost (row->code, &what, error);
        if (text == NULL)
            return false;
        json_object_set_object_member (row->facts, "costs", tool_json_object (text));
    }
    return true;
}

static void add_money (GPtrArray *cells, JsonObject *costs, const char *member)
{
    bool known = json_object_has_member (costs, member);
    tool_cell (cells, known ? tool_money (tool_number (costs, member)) : g_strdup ("-"));
}

void plan_print_costs (const GPtrArray *rows, const PlanPrices *prices)
{
    static const char *const titles[] = {"CODE", "A MONTH", "STORE", "READ", "CHEAP", "REPAIR"};
    static const char *const members[] = {"month_millionths", "store_millionths", "read_millionths",
                                          "read_cheap_millionths", "repair_millionths"};
    g_autoptr (GPtrArray) cells = g_ptr_array_new_with_free_func (g_free);
    for (size_t i = 0; i < G_N_ELEMENTS (titles); i++)
        tool_cell (cells, g_strdup (titles[i]));
    for (guint i = 0; i < rows->len; i++) {
        const PlanRow *row = g_ptr_array_index (rows, i);
        tool_cell (cells, g_strdup (row->code));
        for (size_t j = 0; j < G_N_ELEMENTS (members); j++)
            add_money (cells, tool_part (row->facts, "costs"), members[j]);
    }
    g_autofree char *bytes = tool_bytes ((double) prices->bytes);
    printf ("\nWhat %s in %" PRIu64 " objects costs:\n", bytes, prices->n_objects);
    tool_table (cells, G_N_ELEMENTS (titles), "");
    puts ("\nA MONTH: of storage. STORE, READ: requests to store all once, and to read all once with what is read.\n"
          "CHEAP: the same from the cheapest endpoints that suffice. REPAIR: to rebuild all that one endpoint had.");
}
