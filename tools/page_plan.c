#include "page_plan.h"

#include "page.h"

#include <math.h>

#define LEAST     1e-15 /* of the bars: what is left of them is nothing to see */
#define BAR_WIDTH 300
#define MOST_TOLD 16 /* availabilities */

/* The longer, the more often a file cannot be read: a tenth of the line is 1.5 powers of ten. */
static void add_bar (GString *page, const PlanRow *row)
{
    double failure = plan_is_bound (row) ? row->failure + 2 * row->error : row->failure;
    double width = (log10 (CLAMP (failure, LEAST, 1)) - log10 (LEAST)) / -log10 (LEAST) * BAR_WIDTH;
    const char *class = failure > 1e-3 ? "b" : failure > 1e-6 ? "m" : "g";
    page_add (page,
              "<td><svg viewBox=\"0 0 300 16\" width=\"300\" height=\"16\" role=\"img\" aria-label=\"%.1e\"><rect "
              "class=\"o\" "
              "width=\"300\" height=\"16\"/><rect class=\"%s\" width=\"%.0f\" height=\"16\"/></svg></td></tr>\n",
              failure, class, width);
}

static void add_row (GString *page, const PlanRow *row)
{
    g_autofree char *year = plan_year (row);
    page_add (page,
              "<tr><td data-l=\"code\"><b>%s</b></td><td class=\"n\" data-l=\"space\">%.2f</td>"
              "<td class=\"n\" data-l=\"may be lost\">%u of %u</td>",
              row->code, (double) row->n / row->k, row->tolerance, row->n);
    if (isnan (row->repair))
        g_string_append (page, "<td class=\"n\"></td>");
    else
        page_add (page, "<td class=\"n\" data-l=\"repair reads\">%.1f</td>", row->repair);
    if (plan_is_bound (row))
        page_add (page, "<td class=\"n\" data-l=\"failure\">&lt; %.0e</td>", row->failure + 2 * row->error);
    else if (row->exact)
        page_add (page, "<td class=\"n\" data-l=\"failure\">%.2e</td>", row->failure);
    else
        page_add (page, "<td class=\"n\" data-l=\"failure\">%.2e &#177; %.0e</td>", row->failure, row->error);
    page_add (page, "<td class=\"n\" data-l=\"a year\">%s</td>", year);
    add_bar (page, row);
}

static char *availability_text (const PlanEndpoints *endpoints)
{
    g_autoptr (GString) text = g_string_new (NULL);
    for (unsigned i = 0; i < MIN (endpoints->n, MOST_TOLD); i++)
        g_string_append_printf (text, "%s%.4g%%", i == 0 ? "" : ", ", endpoints->availability[i] * 100);
    if (endpoints->n > MOST_TOLD)
        g_string_append (text, ", ...");
    return g_string_free (g_steal_pointer (&text), FALSE);
}

bool page_plan (const GPtrArray *rows, const PlanEndpoints *endpoints, const char *file, GError **error)
{
    g_autofree char *availability = availability_text (endpoints), *word = g_shell_quote (file);
    g_autofree char *command = g_strdup_printf ("ecfs plan --html %s", word);
    GString *page = page_new ("what codes buy");
    page_add (
        page,
        "<h1>What codes buy</h1><p class=\"dim\">with endpoints that are there %s of the time, independently</p>\n",
        availability);
    g_string_append (page, "<table><thead><tr><th>code</th><th class=\"n\">space</th><th class=\"n\">may be lost</th>"
                           "<th class=\"n\">repair reads</th><th class=\"n\">failure</th><th class=\"n\">a year</th>"
                           "<th>failure, from 10<sup>-15</sup> to 1</th></tr></thead><tbody>\n");
    for (guint i = 0; i < rows->len; i++)
        add_row (page, g_ptr_array_index (rows, i));
    g_string_append (
        page,
        "</tbody></table><p class=\"dim\">Space: bytes stored for each byte. May be lost: stripes, whichever they "
        "are. Repair reads: bytes for each lost one. Failure: the probability that a file cannot be read; a "
        "year: for how long in one.</p>");
    return page_write (page, command, file, error);
}
