#include "page_drill.h"

#include "page.h"

#include <inttypes.h>

#define MOST_TOLD 50 /* of what is told one by one */

/* "<bdi>a</bdi>, <bdi>b</bdi>" */
static void add_names (GString *page, JsonArray *names)
{
    for (guint i = 0; i < tool_length (names); i++)
        page_add (page, i == 0 ? "<bdi>%s</bdi>" : ", <bdi>%s</bdi>", json_array_get_string_element (names, i));
}

static void add_verdict (GString *page, bool good, const char *text)
{
    page_add (page, "<section class=\"state %s\"><div class=\"word\">%s</div>", good ? "good" : "bad",
              good ? "NOTHING WOULD BE LOST" : "SOMETHING WOULD BE LOST");
    page_add (page, "<p>%s</p></section>\n", text);
}

/* By the catalog alone */

static void add_bar (GString *page, double part)
{
    page_add (
        page,
        "<svg viewBox=\"0 0 300 16\" width=\"300\" height=\"16\" role=\"img\" aria-label=\"%.3g%%\"><rect class=\"b\" "
        "width=\"300\" height=\"16\"/><rect class=\"g\" width=\"%.0f\" height=\"16\"/></svg>",
        part * 100, part < 1 ? MIN (part * 300, 298) : 300);
}

static void add_loss (GString *page, JsonObject *loss)
{
    int64_t n_endpoints = tool_number (loss, "endpoints"), n_sets = tool_number (loss, "sets");
    bool known = json_object_has_member (loss, "safe") && n_sets > 0;
    g_autofree char *lost =
        n_endpoints == 0 ? g_strdup ("nothing lost") : page_count (n_endpoints, "endpoint", "endpoints");
    page_add (page,
              "<tr><td data-l=\"without\">%s</td><td class=\"n\" data-l=\"objects\">%" PRIi64 "</td>"
              "<td class=\"n\" data-l=\"sets tried\">%" PRIi64 "</td>",
              lost, tool_number (loss, "objects"), n_sets);
    if (!known) {
        g_string_append (page, "<td data-l=\"safe\">too many to try</td><td></td></tr>\n");
        return;
    }
    page_add (page, "<td class=\"n\" data-l=\"safe\">%" PRIi64 "</td><td>", tool_number (loss, "safe"));
    add_bar (page, tool_double (loss, "safe") / (double) n_sets);
    g_string_append (page, "</td></tr>\n");
}

static void add_unsafe (GString *page, JsonArray *losses)
{
    unsigned n_told = 0;
    for (guint i = 0; i < tool_length (losses); i++) {
        JsonArray *unsafe = tool_list (json_array_get_object_element (losses, i), "unsafe");
        for (guint j = 0; j < tool_length (unsafe) && n_told < MOST_TOLD; j++, n_told++) {
            JsonObject *set = json_array_get_object_element (unsafe, j);
            g_autofree char *objects = page_count (tool_number (set, "unreadable"), "object", "objects");
            g_string_append (page, n_told == 0 ? "<h2>What may not vanish</h2><ul><li>Without " : "<li>Without ");
            add_names (page, tool_list (set, "without"));
            if (tool_length (tool_list (set, "without")) == 0)
                g_string_append (page, "any of them missing");
            page_add (page, ": %s could not be read</li>", objects);
        }
    }
    if (n_told > 0)
        g_string_append (page, "</ul>");
    if (n_told == MOST_TOLD)
        g_string_append (page, "<p class=\"dim\">There may be more: <code>ecfs drill</code> lists them.</p>");
}

static void add_losses (GString *page, JsonArray *losses)
{
    g_string_append (page, "<h2>Sets of endpoints, of the size that codes promise to survive</h2><table><thead><tr>"
                           "<th>without</th><th class=\"n\">objects</th><th class=\"n\">sets tried</th>"
                           "<th class=\"n\">safe</th><th>share</th></tr></thead><tbody>\n");
    for (guint i = 0; i < tool_length (losses); i++)
        add_loss (page, json_array_get_object_element (losses, i));
    g_string_append (page, "</tbody></table>");
    add_unsafe (page, losses);
}

/* Reading */

static void add_failures (GString *page, JsonArray *failures)
{
    if (tool_length (failures) == 0)
        return;
    g_string_append (page, "<h2>What could not be read</h2><ul>");
    for (guint i = 0; i < MIN (tool_length (failures), MOST_TOLD); i++) {
        JsonObject *failure = json_array_get_object_element (failures, i);
        page_add (page, "<li><bdi>%s</bdi><div class=\"dim\">%s</div></li>", tool_text (failure, "path"),
                  tool_text (failure, "error"));
    }
    g_string_append (page, "</ul>");
}

static void add_reading (GString *page, JsonObject *report)
{
    g_autofree char *bytes = tool_bytes (tool_double (report, "bytes"));
    g_autofree char *took = tool_seconds (tool_double (report, "seconds"));
    g_autofree char *took_all = tool_seconds (tool_double (report, "seconds_with_all"));
    g_string_append (page, "<h2>Read as if these had vanished: ");
    add_names (page, tool_list (report, "without"));
    page_add (
        page,
        "</h2><p>%" PRIi64 " of %" PRIi64 " objects have too few stripes elsewhere, by the catalog.</p>"
        "<p>%" PRIi64 " were read: %" PRIi64 " could not be, %" PRIi64 " of them not even with all endpoints.</p>",
        tool_number (report, "unreadable_by_catalog"), tool_number (report, "objects"), tool_number (report, "sampled"),
        tool_number (report, "unreadable"), tool_number (report, "unreadable_with_all"));
    page_add (page, "<p>%s took %s, and %s with all endpoints.</p>", bytes, took, took_all);
    page_add (page,
              "<p>With %.0f%% confidence no more than %" PRIi64 " of all objects cannot be read without them.</p>",
              tool_double (report, "confidence") * 100, tool_number (report, "unreadable_at_most"));
    add_failures (page, tool_list (report, "failures"));
}

static void add_key (GString *page, JsonObject *key)
{
    if (key == NULL)
        return;
    g_string_append (page, "<h2>The archive's key</h2>");
    if (json_object_get_boolean_member_with_default (key, "comes_back", FALSE))
        page_add (page,
                  "<p class=\"good\">It comes back: %" PRIi64 " zones have what it takes, and %" PRIi64
                  " are needed.</p>",
                  tool_number (key, "zones"), tool_number (key, "needed"));
    else
        page_add (page, "<p class=\"bad\">It does not come back: %s</p>", tool_text (key, "error"));
}

bool page_drill (JsonObject *report, const char *directory, bool good, const char *file, GError **error)
{
    bool reads = json_object_has_member (report, "without");
    g_autofree char *title = g_strdup_printf ("drill: %s", directory), *word = g_shell_quote (file);
    g_autofree char *archive = g_shell_quote (directory);
    g_autofree char *command = g_strdup_printf ("ecfs drill --html %s %s", word, archive);
    GString *page = page_new (title);
    page_add (page, "<h1><bdi>%s</bdi></h1><p class=\"dim\">a rehearsed loss of endpoints</p>\n", directory);
    add_verdict (page, good,
                 good ? "All that was tried stays readable, and the key comes back where it is shared."
                      : "Not all that was tried stays readable, or the key does not come back.");
    if (reads)
        add_reading (page, report);
    else
        add_losses (page, tool_list (report, "losses"));
    add_key (page, tool_part (report, "key"));
    return page_write (page, command, file, error);
}
