#include "page_report.h"

#include "page.h"

static const char *class_of (JsonObject *report)
{
    static const char *const classes[] = {"good", "mild", "bad"};
    return classes[CLAMP (tool_number (report, "check"), 0, 2)];
}

static void add_findings (GString *page, JsonArray *findings)
{
    for (guint i = 0; i < tool_length (findings); i++) {
        JsonObject *finding = json_array_get_object_element (findings, i);
        const char *action = tool_text (finding, "action");
        page_add (page, "<p><b>%s</b><br>%s %s</p>", tool_text (finding, "reason"), tool_text (finding, "meaning"),
                  tool_text (finding, "advice"));
        if (*action != '\0')
            page_add (page, "<pre>%s</pre>", action);
    }
}

void page_add_report (GString *page, JsonObject *report)
{
    JsonArray *done = tool_list (report, "done");
    if (report == NULL)
        return;
    page_add (page, "<section class=\"state %s\"><div class=\"word\">REPORT</div><p>%s</p>", class_of (report),
              tool_text (report, "headline"));
    add_findings (page, tool_list (report, "findings"));
    g_string_append (page, "</section>\n<table><tbody>\n");
    for (guint i = 0; i < tool_length (done); i++) {
        JsonObject *line = json_array_get_object_element (done, i);
        page_add (page, "<tr><td data-l=\"what\"><b>%s</b></td><td data-l=\"result\">%s</td></tr>\n",
                  tool_text (line, "title"), tool_text (line, "text"));
    }
    g_string_append (page, "</tbody></table>\n");
}
