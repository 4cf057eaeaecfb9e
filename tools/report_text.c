/* A report as text: the verdict first, then what is to be done, then what was found to be well. */
#include "page.h"
#include "report.h"

#define LINE_WIDTH 76
#define INDENT     4

/* Adds words, each line of which begins @indent columns from the left; the first is there already. */
static void add_wrapped (GString *text, const char *words, size_t indent, size_t column)
{
    g_autofree char *clean = ecfs_printable (words);
    g_auto (GStrv) parts = g_strsplit (clean, " ", -1);
    bool begun = false;
    for (char **word = parts; *word != NULL; word++) {
        size_t width = (size_t) g_utf8_strlen (*word, -1);
        if (begun && column + 1 + width > LINE_WIDTH) {
            g_string_append_printf (text, "\n%*s", (int) indent, "");
            column = indent;
            begun = false;
        }
        g_string_append_printf (text, "%s%s", begun ? " " : "", *word);
        column += width + begun;
        begun = true;
    }
    g_string_append_c (text, '\n');
}

static void add_sentences (GString *text, const char *words)
{
    if (*words == '\0')
        return;
    g_string_append_printf (text, "%*s", INDENT, "");
    add_wrapped (text, words, INDENT, INDENT);
}

static void add_one (GString *text, guint number, JsonObject *finding)
{
    const char *action = tool_text (finding, "action");
    g_autofree char *since = page_since (tool_number (finding, "since"));
    g_autofree char *when =
        tool_number (finding, "since") == 0 ? g_strdup ("") : g_strdup_printf (" (since %s)", since);
    g_autofree char *reason = g_strconcat (tool_text (finding, "reason"), when, NULL);
    g_autofree char *begin = g_strdup_printf ("%2u. ", number);
    g_string_append_printf (text, "\n%s", begin);
    add_wrapped (text, reason, INDENT, strlen (begin));
    add_sentences (text, tool_text (finding, "meaning"));
    add_sentences (text, tool_text (finding, "advice"));
    if (*action != '\0') {
        g_autofree char *clean = ecfs_printable (action);
        g_string_append_printf (text, "%*s%s\n", INDENT + 2, "", clean);
    }
}

char *report_text (JsonObject *report)
{
    JsonArray *findings = tool_list (report, "findings"), *notes = tool_list (report, "notes"),
              *done = tool_list (report, "done");
    g_autoptr (GDateTime) now = g_date_time_new_from_unix_local (tool_number (report, "time"));
    g_autofree char *when = now == NULL ? g_strdup ("?") : g_date_time_format (now, "%F %R");
    g_autofree char *line = ecfs_printable (tool_text (report, "headline"));
    g_autofree char *about = g_strdup_printf ("Archive %s at %s.", tool_text (report, "directory"), when);
    GString *text = g_string_new (line);
    g_string_append (text, "\n\n");
    add_wrapped (text, about, 0, 0);
    for (guint i = 0; i < tool_length (findings); i++)
        add_one (text, i + 1, json_array_get_object_element (findings, i));
    for (guint i = 0; i < tool_length (notes) && tool_length (findings) > 0; i++) {
        g_string_append (text, i == 0 ? "\nAlso: " : "      ");
        add_wrapped (text, json_array_get_string_element (notes, i), 6, 6);
    }
    for (guint i = 0; i < tool_length (done); i++) {
        JsonObject *one = json_array_get_object_element (done, i);
        g_string_append_printf (text, "%s%-11s", i == 0 ? "\n" : "", tool_text (one, "title"));
        add_wrapped (text, tool_text (one, "text"), 11, 11);
    }
    return g_string_free (text, FALSE);
}
