#include "page.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PAGE_MODE 0600 /* it names files and accounts */

/* Colours with contrast in both schemes; what they mean is in words beside them, too. */
static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1c2024;--dim:#5c636a;--line:#d5d9de;--box:#f4f6f8;--good:#177245;"
    "--mild:#8a5a00;--bad:#b3261e;--info:#1f5fa8;--cell:31,95,168}"
    "@media(prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e6e9ec;--dim:#9aa3ab;--line:#363c43;--box:#1e2328;"
    "--good:#4cc38a;--mild:#e0a53a;--bad:#ff7b72;--info:#79b8ff;--cell:121,184,255}}"
    "*{box-sizing:border-box}body{margin:0 auto;max-width:68rem;padding:1rem;background:var(--bg);color:var(--fg);"
    "font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}h1{font-size:1.4rem;margin:.2rem 0}"
    "h2{font-size:1.1rem;margin:2rem 0 .5rem;border-bottom:1px solid var(--line)}p{margin:.4rem 0}"
    ".dim{color:var(--dim)}.good{color:var(--good)}.mild{color:var(--mild)}.bad{color:var(--bad)}"
    ".state{border-left:.5rem solid;padding:.5rem 1rem;background:var(--box);margin:1rem 0}"
    ".state>*{color:var(--fg)}.state .word{color:inherit;font-weight:700;font-size:1.3rem}"
    "pre{background:var(--bg);border:1px solid var(--line);padding:.5rem;margin:.4rem 0;white-space:pre-wrap;"
    "font:.9rem/1.4 ui-monospace,monospace}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.6rem;margin:1rem 0}"
    ".tile{background:var(--box);padding:.6rem .8rem}.tile b{display:block;font-size:1.3rem}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .6rem .3rem 0;"
    "border-bottom:1px solid var(--line);vertical-align:top}th{color:var(--dim);font-weight:500;white-space:nowrap}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}"
    "svg{max-width:100%;height:auto;display:block}svg text{fill:var(--fg);font:12px system-ui,sans-serif}svg "
    ".x{fill:var(--bg)}"
    ".g{fill:var(--good)}.m{fill:var(--mild)}.b{fill:var(--bad)}.o{fill:var(--box);stroke:var(--line)}"
    ".c{fill:rgb(var(--cell))}footer{margin-top:2.5rem;color:var(--dim);font-size:.85rem}"
    "@media(max-width:40rem){thead{display:none}tr{display:block;border-bottom:1px solid var(--line);padding:.4rem 0}"
    "td,td.n{display:flex;justify-content:space-between;gap:1rem;border:0;padding:.1rem 0;text-align:right}"
    "td:before{content:attr(data-l);color:var(--dim);text-align:left;white-space:nowrap}td:empty{display:none}}"
    "@media "
    "print{:root{--bg:#fff;--fg:#000;--dim:#444;--line:#999;--box:#fff;--good:#0a5c34;--mild:#7a4f00;--bad:#a01010;"
    "--cell:31,95,168}body{font-size:11px;max-width:none}.state,.tile{border:1px solid var(--line)}"
    "*{print-color-adjust:exact;-webkit-print-color-adjust:exact}tr,svg,.state,.tile{break-inside:avoid}}";

GString *page_new (const char *title)
{
    GString *page = g_string_sized_new (32768);
    page_add (page,
              "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
              "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
              "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
              "<meta name=\"referrer\" content=\"no-referrer\"><title>%s</title><style>",
              title);
    g_string_append (page, style);
    g_string_append (page, "</style></head><body>\n");
    return page;
}

bool page_write (GString *page, const char *command, const char *file, GError **error)
{
    g_autoptr (GError) failure = NULL;
    g_autoptr (GDateTime) now = g_date_time_new_now_local ();
    g_autofree char *when = g_date_time_format (now, "%F %T %Z");
    page_add (page, "<footer>As of %s, by <code>%s</code>, ecfs %s</footer>\n</body></html>\n", when, command,
              ECFS_VERSION);
    g_autofree char *text = g_string_free (page, FALSE);
    if (g_file_set_contents_full (file, text, -1, G_FILE_SET_CONTENTS_CONSISTENT, PAGE_MODE, &failure))
        return true;
    return tool_error (error, EIO, "%s", failure->message);
}

/* Control characters, for which HTML has no way, and which GLib escapes all the same as "&#x...;". */
static void drop_controls (char *text)
{
    char *to = text;
    for (const char *at = text; *at != '\0';) {
        const char *end = g_str_has_prefix (at, "&#x") ? strchr (at, ';') : NULL;
        if (end == NULL) {
            *to++ = *at++;
            continue;
        }
        *to++ = '?';
        at = end + 1;
    }
    *to = '\0';
}

void page_add (GString *page, const char *format, ...)
{
    va_list args;
    va_start (args, format);
    g_autofree char *text = g_markup_vprintf_escaped (format, args);
    va_end (args);
    drop_controls (text);
    g_string_append (page, text);
}

void page_table (GString *page, const GPtrArray *cells, unsigned n_columns, const double *parts, const char *bar)
{
    g_string_append (page, "<table><thead><tr>");
    for (unsigned i = 0; i < n_columns; i++)
        page_add (page, i == 0 ? "<th>%s</th>" : "<th class=\"n\">%s</th>", (const char *) cells->pdata[i]);
    page_add (page, "<th>%s</th></tr></thead><tbody>\n", bar);
    for (unsigned row = 1; row * n_columns < cells->len; row++) {
        g_string_append (page, "<tr>");
        for (unsigned i = 0; i < n_columns; i++)
            page_add (page, i == 0 ? "<td data-l=\"%s\">%s</td>" : "<td class=\"n\" data-l=\"%s\">%s</td>",
                      (const char *) cells->pdata[i], (const char *) cells->pdata[row * n_columns + i]);
        page_add (page,
                  "<td><svg viewBox=\"0 0 200 16\" width=\"200\" height=\"16\" role=\"img\" aria-label=\"%s\"><rect "
                  "class=\"o\" width=\"200\" height=\"16\"/><rect class=\"c\" width=\"%.0f\" "
                  "height=\"16\"/></svg></td></tr>\n",
                  bar, CLAMP (parts[row - 1], 0, 1) * 200);
    }
    g_string_append (page, "</tbody></table>");
}

char *page_since (int64_t time_s)
{
    g_autoptr (GDateTime) time = g_date_time_new_from_unix_local (time_s);
    g_autofree char *clock = time == NULL ? g_strdup ("?") : g_date_time_format (time, "%F %T");
    double seconds = (double) g_get_real_time () / 1e6 - (double) time_s;
    g_autofree char *age = seconds < 2 ? g_strdup ("just now") : tool_seconds (seconds);
    return g_strdup_printf ("%s (%s%s)", clock, age, seconds < 2 ? "" : " ago");
}

char *page_count (int64_t n, const char *one, const char *many)
{
    return g_strdup_printf ("%" PRIi64 " %s", n, n == 1 ? one : many);
}
