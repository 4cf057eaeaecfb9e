/* What an endpoint has used of its month, in words. */
#include "tool.h"

#include <inttypes.h>
#include <stdio.h>

#define MILLION 1000000
#define DIGITS  6 /* behind the point, of which two are shown at least */

char *tool_money (int64_t millionths)
{
    GString *text = g_string_new (NULL);
    g_string_printf (text, "%" PRIi64 ".%06" PRIi64, millionths / MILLION, millionths % MILLION);
    for (unsigned n = DIGITS; n > 2 && text->str[text->len - 1] == '0'; n--)
        g_string_truncate (text, text->len - 1);
    return g_string_free (text, FALSE);
}

static char *egress_text (JsonObject *month)
{
    g_autofree char *used = tool_bytes (tool_double (month, "egress_bytes"));
    if (!json_object_has_member (month, "egress_limit_bytes"))
        return g_strdup_printf ("%s read", used);
    g_autofree char *limit = tool_bytes (tool_double (month, "egress_limit_bytes"));
    return g_strdup_printf ("%s of %s read", used, limit);
}

static char *requests_text (JsonObject *month)
{
    int64_t used = tool_number (month, "requests");
    if (!json_object_has_member (month, "requests_limit"))
        return g_strdup_printf ("%" PRIi64 " requests", used);
    return g_strdup_printf ("%" PRIi64 " of %" PRIi64 " requests", used, tool_number (month, "requests_limit"));
}

static char *costs_text (JsonObject *month)
{
    JsonObject *costs = tool_part (month, "cost_millionths");
    if (costs == NULL)
        return g_strdup ("");
    g_autofree char *moved = tool_money (tool_number (costs, "requests") + tool_number (costs, "egress"));
    g_autofree char *storage = tool_money (tool_number (costs, "storage"));
    return g_strdup_printf (", costs %s so far and %s for storage", moved, storage);
}

char *tool_month_text (JsonObject *endpoint)
{
    JsonObject *month = tool_part (endpoint, "month");
    if (month == NULL)
        return NULL;
    g_autofree char *egress = egress_text (month), *requests = requests_text (month), *costs = costs_text (month);
    bool spent = json_object_get_boolean_member_with_default (month, "egress_spent", FALSE) ||
                 json_object_get_boolean_member_with_default (month, "requests_spent", FALSE);
    return g_strdup_printf (
        "%s, %s%s%s%s", egress, requests, costs, spent ? "; USED UP" : "",
        json_object_get_boolean_member_with_default (month, "read_anyway", FALSE) ? ", and read all the same" : "");
}

char *tool_month_sum (JsonObject *status)
{
    return json_object_has_member (status, "month_cost_millionths")
               ? tool_money (tool_number (status, "month_cost_millionths"))
               : NULL;
}

void tool_print_cost (JsonObject *plan, const char *title)
{
    if (!json_object_has_member (plan, "cost_millionths"))
        return;
    g_autofree char *money = tool_money (tool_number (plan, "cost_millionths"));
    printf ("%sabout %s, for %" PRIi64 " requests and what is read\n", title, money, tool_number (plan, "requests"));
}
