/*
 * Metrics by tables: a row for each, whose samples are the members of the status, of each endpoint, or what a function
 * of its own writes. What a mount counts is left out where there is none: it would begin at 0 with every call.
 *
 * The text is OpenMetrics of the kinds that Prometheus' own format has as well, which node_exporter reads.
 */
#include "metrics.h"

#include <inttypes.h>
#include <string.h>

typedef struct Out {
    GString *text;
    const char *archive;
    JsonObject *status;
    int64_t now_s;
} Out;

typedef enum Scale {
    SCALE_NONE,
    SCALE_AGE,  /* the member is a time since 1970 */
    SCALE_FLAG, /* a boolean, or whether it is there */
    SCALE_RATE, /* 0: it is not known */
} Scale;

/* A metric of the whole archive. */
typedef struct Metric {
    const char *name, *type, *unit, *help;
    const char *part; /* the member that has the next; NULL: the status itself */
    const char *member;
    Scale scale;
} Metric;

static const Metric metrics[] = {
    {"ecfs_check", "gauge", NULL, "What 'ecfs status --check' exits with: 0 fine, 1 degraded, 2 unreadable or at risk.",
     NULL, "check", SCALE_NONE},
    {"ecfs_trouble_age_seconds", "gauge", "seconds", "How long the worst problem has lasted, where that is known.",
     NULL, "since", SCALE_AGE},
    {"ecfs_old_copy", "gauge", NULL, "Whether another archive directory is newer than this one.", NULL, "old_copy",
     SCALE_FLAG},
    {"ecfs_guarantee", "gauge", NULL,
     "How many more endpoints may vanish now with every stored file still readable; -1: some file cannot be read.",
     "objects", "guarantee", SCALE_NONE},
    {"ecfs_content_bytes", "gauge", "bytes", "What all stored files contain.", NULL, "content_bytes", SCALE_NONE},
    {"ecfs_stripe_bytes", "gauge", "bytes", "What that takes on all endpoints together.", NULL, "stripe_bytes",
     SCALE_NONE},
    {"ecfs_free_bytes", "gauge", "bytes", "How much more content has room.", NULL, "free_bytes", SCALE_NONE},
    {"ecfs_missing_stripes", "gauge", NULL, "Objects that were stored without all of their stripes.", "objects",
     "missing_stripes", SCALE_NONE},
    {"ecfs_recovery_point_pending", "gauge", NULL,
     "Changes that the journal on the endpoints does not have: a new machine would lose them.", "recovery_point",
     "pending", SCALE_NONE},
    {"ecfs_snapshot_age_seconds", "gauge", "seconds", "Age of the newest snapshot of the catalog on the endpoints.",
     "recovery_point", "snapshot_time", SCALE_AGE},
    {"ecfs_staging_files", "gauge", NULL, "Files that wait to be stored, or to be stored in full.", "staging", "files",
     SCALE_NONE},
    {"ecfs_staging_bytes", "gauge", "bytes", "What these contain.", "staging", "bytes", SCALE_NONE},
    {"ecfs_staging_failed_files", "gauge", NULL, "Those of them that could not be stored so far.", "staging", "failed",
     SCALE_NONE},
    {"ecfs_staging_age_seconds", "gauge", "seconds", "How long the oldest of them has waited.", "staging", "since",
     SCALE_AGE},
    {"ecfs_repairs_queued", "gauge", NULL, "Damaged stripes that are known and not rebuilt yet.", "repairs", "queued",
     SCALE_NONE},
    {"ecfs_repairs_age_seconds", "gauge", "seconds", "How long the oldest of them has been known.", "repairs", "since",
     SCALE_AGE},
    {"ecfs_repairs_failing", "gauge", NULL, "Objects whose repair failed and is tried again.", "repairs", "failing",
     SCALE_NONE},
    {"ecfs_scrub_age_seconds", "gauge", "seconds", "How long ago a check ended that had verified everything.", "scrub",
     "full_ended", SCALE_AGE},
    {"ecfs_scrub_verified_ratio", "gauge", "ratio", "The part of everything that the newest check has verified.",
     "scrub", "verified", SCALE_NONE},
    {"ecfs_scrub_damaged_stripes", "gauge", NULL, "Stripes that checks found damaged and that still are.", "scrub",
     "damaged", SCALE_NONE},
    {"ecfs_deletions_waiting", "gauge", NULL, "Stripes that wait to be deleted.", NULL, "deletions", SCALE_NONE},
    {"ecfs_history_bytes", "gauge", "bytes", "What only the past has, on all endpoints together.", "past", "bytes",
     SCALE_NONE},
    {"ecfs_history_stripes", "gauge", NULL, "Stripes that only the past has.", "past", "stripes", SCALE_NONE},
    {"ecfs_brake", "gauge", NULL, "Whether everything is kept after a mass deletion.", NULL, "brake", SCALE_FLAG},
    {"ecfs_brake_lost_files", "gauge", NULL, "Files that it deleted or overwrote.", "brake", "lost", SCALE_NONE},
    {"ecfs_key_zones_here", "gauge", NULL, "Zones that have their share of the archive's key now.", "key_sharing",
     "here", SCALE_NONE},
    {"ecfs_key_zones_needed", "gauge", NULL, "How many of them bring it back.", "key_sharing", "needed", SCALE_NONE},
    {"ecfs_read_segments", "counter", NULL, "Segments that were read.", "reads", "segments", SCALE_NONE},
    {"ecfs_read_decoded_segments", "counter", NULL, "Segments that were decoded from parity.", "reads", "decoded",
     SCALE_NONE},
    {"ecfs_read_degraded_segments", "counter", NULL, "Segments that were read around an erased endpoint.", "reads",
     "degraded", SCALE_NONE},
    {"ecfs_read_erasures", "counter", NULL, "Episodes in which reads treated an endpoint as erased.", "reads", "erased",
     SCALE_NONE},
    {"ecfs_read_received_bytes", "counter", "bytes", "What reads received.", "reads", "received_bytes", SCALE_NONE},
    {"ecfs_read_hedged_bytes", "counter", "bytes", "What of that was asked for twice, and not needed.", "reads",
     "hedged_bytes", SCALE_NONE},
    {"ecfs_read_cancelled_requests", "counter", NULL, "Requests that reads took back.", "reads", "cancelled",
     SCALE_NONE},
    {"ecfs_repaired_objects", "counter", NULL, "Objects that were repaired.", "repairs", "repaired", SCALE_NONE},
    {"ecfs_rebuilt_stripes", "counter", NULL, "Stripes that were rebuilt.", "repairs", "rebuilt", SCALE_NONE},
    {"ecfs_repair_read_bytes", "counter", "bytes", "What repairs read.", "repairs", "read_bytes", SCALE_NONE},
    {"ecfs_repair_written_bytes", "counter", "bytes", "What repairs wrote.", "repairs", "written_bytes", SCALE_NONE},
};

/* A metric that each endpoint has. */
static const Metric of_endpoints[] = {
    {"ecfs_endpoint_connected", "gauge", NULL, "Whether there is a connection to the endpoint.", NULL, "connected",
     SCALE_FLAG},
    {"ecfs_endpoint_down_age_seconds", "gauge", "seconds", "How long the endpoint has been down.", NULL, "down_since",
     SCALE_AGE},
    {"ecfs_endpoint_free_bytes", "gauge", "bytes", "Free space, where the endpoint tells it.", NULL, "free_bytes",
     SCALE_NONE},
    {"ecfs_endpoint_read_bytes_per_second", "gauge", NULL, "How fast the endpoint is read from, the median.", NULL,
     "read_bytes_per_s", SCALE_RATE},
    {"ecfs_endpoint_write_bytes_per_second", "gauge", NULL, "How fast the endpoint is written to, the median.", NULL,
     "write_bytes_per_s", SCALE_RATE},
    {"ecfs_endpoint_read_bytes", "counter", "bytes", "What was read from the endpoint.", NULL, "read_bytes",
     SCALE_NONE},
    {"ecfs_endpoint_written_bytes", "counter", "bytes", "What was written to the endpoint.", NULL, "written_bytes",
     SCALE_NONE},
    {"ecfs_endpoint_month_requests", "gauge", NULL,
     "Requests of this calendar month (UTC), where it has limits or prices.", "month", "requests", SCALE_NONE},
    {"ecfs_endpoint_month_requests_limit", "gauge", NULL, "How many of them its account allows.", "month",
     "requests_limit", SCALE_NONE},
    {"ecfs_endpoint_month_egress_bytes", "gauge", "bytes", "What was read from it this month.", "month", "egress_bytes",
     SCALE_NONE},
    {"ecfs_endpoint_month_egress_limit_bytes", "gauge", "bytes", "How much of that its account allows.", "month",
     "egress_limit_bytes", SCALE_NONE},
    {"ecfs_endpoint_month_cost", "gauge", NULL,
     "What it costs: what was used, and a month of what is stored there now, in the unit of the prices.", "month",
     "cost", SCALE_NONE},
    {"ecfs_endpoint_month_egress_spent", "gauge", NULL, "Whether that is used up.", "month", "egress_spent",
     SCALE_FLAG},
};

/* Writing */

static void begin (Out *out, const char *name, const char *type, const char *unit, const char *help)
{
    g_string_append_printf (out->text, "# TYPE %s %s\n", name, type);
    if (unit != NULL)
        g_string_append_printf (out->text, "# UNIT %s %s\n", name, unit);
    g_string_append_printf (out->text, "# HELP %s %s\n", name, help);
}

static void add_label (Out *out, const char *name, const char *value)
{
    g_string_append_printf (out->text, ",%s=\"", name);
    for (; *value != '\0'; value++) {
        if (*value == '\n')
            g_string_append (out->text, "\\n");
        else {
            if (*value == '"' || *value == '\\')
                g_string_append_c (out->text, '\\');
            g_string_append_c (out->text, *value);
        }
    }
    g_string_append_c (out->text, '"');
}

/* A sample with pairs of label and value, up to NULL. */
static void add_sample (Out *out, const char *name, double value, ...)
{
    va_list labels;
    char number[G_ASCII_DTOSTR_BUF_SIZE];
    g_string_append_printf (out->text, "%s{", name);
    gsize first = out->text->len;
    add_label (out, "archive", out->archive);
    g_string_erase (out->text, (gssize) first, 1); /* its comma */
    va_start (labels, value);
    for (const char *label; (label = va_arg (labels, const char *)) != NULL;)
        add_label (out, label, va_arg (labels, const char *));
    va_end (labels);
    g_string_append_printf (out->text, "} %s\n", g_ascii_formatd (number, sizeof number, "%.15g", value));
}

static bool is_mounted (const Out *out)
{
    return json_object_get_boolean_member_with_default (out->status, "mounted", FALSE);
}

static char *sample_name (const Metric *metric)
{
    return g_strconcat (metric->name, g_str_equal (metric->type, "counter") ? "_total" : "", NULL);
}

/* The value of a member of @object; false: there is none. */
static bool value_of (const Out *out, const Metric *metric, JsonObject *object, double *ret_value)
{
    JsonNode *node = object == NULL ? NULL : json_object_get_member (object, metric->member);
    if (metric->scale == SCALE_FLAG) {
        *ret_value =
            node != NULL && (!JSON_NODE_HOLDS_VALUE (node) || json_node_get_value_type (node) != G_TYPE_BOOLEAN ||
                             json_node_get_boolean (node));
        return object != NULL;
    }
    if (node == NULL || !JSON_NODE_HOLDS_VALUE (node))
        return false;
    *ret_value = json_node_get_double (node);
    if (metric->scale == SCALE_AGE)
        *ret_value = MAX ((double) out->now_s - *ret_value, 0);
    return metric->scale != SCALE_RATE || *ret_value > 0;
}

static bool is_left_out (const Out *out, const Metric *metric)
{
    bool of_reads = g_strcmp0 (metric->part, "reads") == 0;
    return g_str_equal (metric->type, "counter") && !is_mounted (out) && !(of_reads && tool_knows_reads (out->status));
}

static void add_mounted (Out *out)
{
    begin (out, "ecfs_mounted", "gauge", NULL,
           "Whether a mount answered, or follows; counters are those of that mount.");
    add_sample (out, "ecfs_mounted", is_mounted (out) || tool_follows (out->status), NULL);
}

static void add_metric (Out *out, const Metric *metric)
{
    double value;
    JsonObject *part = metric->part == NULL ? out->status : tool_part (out->status, metric->part);
    if (is_left_out (out, metric) || !value_of (out, metric, part, &value))
        return;
    g_autofree char *name = sample_name (metric);
    begin (out, metric->name, metric->type, metric->unit, metric->help);
    add_sample (out, name, value, NULL);
}

static void add_of_endpoints (Out *out, const Metric *metric)
{
    JsonArray *endpoints = tool_list (out->status, "endpoints");
    g_autofree char *name = sample_name (metric);
    double value;
    if (is_left_out (out, metric))
        return;
    begin (out, metric->name, metric->type, metric->unit, metric->help);
    for (guint i = 0; i < tool_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        if (value_of (out, metric, metric->part == NULL ? endpoint : tool_part (endpoint, metric->part), &value))
            add_sample (out, name, value, "endpoint", tool_text (endpoint, "name"), NULL);
    }
}

/* What has more labels */

static bool takes_none (JsonObject *endpoint)
{
    JsonObject *month = tool_part (endpoint, "month");
    return month != NULL && json_object_get_boolean_member (month, "requests_spent");
}

static void add_endpoint_states (Out *out)
{
    JsonArray *endpoints = tool_list (out->status, "endpoints");
    begin (out, "ecfs_endpoint_up", "gauge", NULL, "Whether the endpoint answers and is believed.");
    for (guint i = 0; i < tool_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        add_sample (out, "ecfs_endpoint_up", !tool_is_away (out->status, endpoint), "endpoint",
                    tool_text (endpoint, "name"), "zone", tool_text (endpoint, "zone"), NULL);
    }
    begin (out, "ecfs_endpoint_refuses", "gauge", NULL, "Whether the endpoint answers and takes no new stripes.");
    for (guint i = 0; i < tool_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        const char *state = tool_text (endpoint, "state");
        add_sample (out, "ecfs_endpoint_refuses",
                    g_str_equal (state, "full") || g_str_equal (state, "refusing") || takes_none (endpoint), "endpoint",
                    tool_text (endpoint, "name"), NULL);
    }
    begin (out, "ecfs_endpoint_state", "gauge", NULL, "1 for the state that the endpoint is in.");
    for (guint i = 0; i < tool_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        add_sample (out, "ecfs_endpoint_state", 1, "endpoint", tool_text (endpoint, "name"), "state",
                    tool_text (endpoint, "state"), NULL);
    }
}

static void add_latencies (Out *out)
{
    static const struct {
        const char *member, *quantile;
    } quantiles[] = {{"p5", "0.05"}, {"p50", "0.5"}, {"p95", "0.95"}};
    JsonArray *endpoints = tool_list (out->status, "endpoints");
    begin (out, "ecfs_endpoint_latency_seconds", "summary", "seconds", "How long it takes until an answer begins.");
    for (guint i = 0; i < tool_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i),
                   *latency = tool_part (endpoint, "latency_ms");
        for (size_t j = 0; j < G_N_ELEMENTS (quantiles) && latency != NULL; j++)
            add_sample (out, "ecfs_endpoint_latency_seconds", tool_double (latency, quantiles[j].member) / 1000,
                        "endpoint", tool_text (endpoint, "name"), "quantile", quantiles[j].quantile, NULL);
    }
}

static void add_requests (Out *out, const char *name, const char *help, const char *member)
{
    JsonArray *endpoints = tool_list (out->status, "endpoints");
    g_autofree char *total = g_strconcat (name, "_total", NULL);
    begin (out, name, "counter", NULL, help);
    for (guint i = 0; i < tool_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i), *counts = tool_part (endpoint, member);
        GList *classes = counts == NULL ? NULL : json_object_get_members (counts);
        for (GList *at = classes; at != NULL; at = at->next)
            add_sample (out, total, tool_double (counts, at->data), "endpoint", tool_text (endpoint, "name"), "class",
                        (const char *) at->data, NULL);
        g_list_free (classes);
    }
}

static void add_objects (Out *out)
{
    static const char *const states[] = {"full", "degraded", "unreadable"};
    JsonObject *objects = tool_part (out->status, "objects");
    if (objects == NULL)
        return;
    begin (out, "ecfs_objects", "gauge", NULL, "Objects by state.");
    for (size_t i = 0; i < G_N_ELEMENTS (states); i++)
        add_sample (out, "ecfs_objects", tool_double (objects, states[i]), "state", states[i], NULL);
}

/* How many problems there are of each kind. */
static void add_problems (Out *out)
{
    JsonArray *problems = tool_list (out->status, "problems");
    begin (out, "ecfs_problems", "gauge", NULL, "What is wrong, by the words of 'ecfs status'; nothing: nothing is.");
    for (guint i = 0; i < tool_length (problems); i++) {
        const char *word = tool_text (json_array_get_object_element (problems, i), "verdict");
        guint n_before = 0, n = 0;
        for (guint j = 0; j < json_array_get_length (problems); j++) {
            bool same = g_str_equal (word, tool_text (json_array_get_object_element (problems, j), "verdict"));
            n += same;
            n_before += same && j < i;
        }
        if (n_before == 0)
            add_sample (out, "ecfs_problems", n, "verdict", word, NULL);
    }
}

/* 0 where nothing is lost with this machine. */
static void add_recovery_point (Out *out)
{
    JsonObject *point = tool_part (out->status, "recovery_point");
    bool pending = point != NULL && tool_number (point, "pending") > 0;
    if (point == NULL || (pending && !json_object_has_member (point, "time")))
        return;
    int64_t age_s = pending ? MAX (out->now_s - tool_number (point, "time"), 0) : 0;
    begin (out, "ecfs_recovery_point_age_seconds", "gauge", "seconds",
           "Age of the newest change up to which names are safe without this machine; 0: all are.");
    add_sample (out, "ecfs_recovery_point_age_seconds", (double) age_s, NULL);
}

static void add_retained (Out *out)
{
    JsonArray *rows = tool_list (out->status, "retained");
    if (rows == NULL)
        return;
    begin (out, "ecfs_endpoint_retained_bytes", "gauge", "bytes", "What stays at an endpoint that does not delete.");
    for (guint i = 0; i < json_array_get_length (rows); i++) {
        JsonObject *row = json_array_get_object_element (rows, i);
        add_sample (out, "ecfs_endpoint_retained_bytes", tool_double (row, "bytes"), "endpoint",
                    tool_text (row, "endpoint"), NULL);
    }
}

/* Of endpoints that lock what they store. */
static void add_locks (Out *out, const char *name, const char *unit, const char *help, const char *member)
{
    JsonArray *rows = tool_list (out->status, "retained");
    bool begun = false;
    for (guint i = 0; i < tool_length (rows); i++) {
        JsonObject *row = json_array_get_object_element (rows, i), *locks = tool_part (row, "locks");
        if (locks == NULL || !json_object_has_member (locks, member))
            continue;
        if (!begun)
            begin (out, name, "gauge", unit, help);
        begun = true;
        const bool is_time = g_str_equal (member, "ended");
        const int64_t value = is_time ? MAX (out->now_s - tool_number (locks, member), 0) : tool_number (locks, member);
        add_sample (out, name, (double) value, "endpoint", tool_text (row, "endpoint"), NULL);
    }
}

/* The survey */

static void add_files (Out *out, JsonObject *survey, const char *name, const char *unit, const char *help,
                       const char *member)
{
    JsonArray *rows = tool_list (survey, "files");
    begin (out, name, "gauge", unit, help);
    for (guint i = 0; i < tool_length (rows); i++) {
        JsonObject *row = json_array_get_object_element (rows, i);
        g_autofree char *guarantee = g_strdup_printf ("%" PRIi64, tool_number (row, "guarantee"));
        add_sample (out, name, tool_double (row, member), "guarantee", guarantee, "state", tool_text (row, "state"),
                    NULL);
    }
}

static void add_shares (Out *out, JsonObject *survey)
{
    static const Metric of_shares[] = {
        {"ecfs_endpoint_stripes", "gauge", NULL, "Stripes that the endpoint has by the catalog.", NULL, "stripes",
         SCALE_NONE},
        {"ecfs_endpoint_damaged_stripes", "gauge", NULL, "Those of them that are known to be damaged or gone.", NULL,
         "damaged", SCALE_NONE},
        {"ecfs_endpoint_stripe_bytes", "gauge", "bytes", "What they take.", NULL, "bytes", SCALE_NONE},
    };
    JsonArray *rows = tool_list (survey, "endpoints");
    for (size_t i = 0; i < G_N_ELEMENTS (of_shares); i++) {
        const Metric *metric = &of_shares[i];
        begin (out, metric->name, metric->type, metric->unit, metric->help);
        for (guint j = 0; j < tool_length (rows); j++) {
            JsonObject *row = json_array_get_object_element (rows, j);
            add_sample (out, metric->name, tool_double (row, metric->member), "endpoint", tool_text (row, "endpoint"),
                        NULL);
        }
    }
}

static void add_losses (Out *out, JsonObject *survey)
{
    JsonObject *losses = tool_part (survey, "losses");
    if (losses == NULL)
        return;
    begin (out, "ecfs_unsafe_losses", "gauge", NULL,
           "Sets of so many endpoints that may not vanish: without them some file could not be read.");
    add_sample (out, "ecfs_unsafe_losses", tool_double (losses, "endpoints_unsafe"), "size", "1", NULL);
    add_sample (out, "ecfs_unsafe_losses", tool_double (losses, "pairs_unsafe"), "size", "2", NULL);
}

static void add_survey (Out *out, JsonObject *survey)
{
    add_files (out, survey, "ecfs_files", NULL, "Files with stored content, by how many more endpoints may vanish.",
               "files");
    add_files (out, survey, "ecfs_file_bytes", "bytes", "What these files contain.", "bytes");
    add_shares (out, survey);
    add_losses (out, survey);
}

static void add_status (Out *out)
{
    JsonObject *survey = tool_part (out->status, "survey");
    add_mounted (out);
    for (size_t i = 0; i < G_N_ELEMENTS (metrics); i++)
        add_metric (out, &metrics[i]);
    add_objects (out);
    add_problems (out);
    add_recovery_point (out);
    add_endpoint_states (out);
    for (size_t i = 0; i < G_N_ELEMENTS (of_endpoints); i++)
        add_of_endpoints (out, &of_endpoints[i]);
    add_latencies (out);
    add_retained (out);
    add_locks (out, "ecfs_endpoint_locks_refused", NULL, "Files whose locks could not be renewed, in the last round.",
               "refused");
    add_locks (out, "ecfs_endpoint_locks_age_seconds", "seconds", "Since the last round that renewed locks has ended.",
               "ended");
    if (is_mounted (out)) {
        add_requests (out, "ecfs_endpoint_requests", "Requests that ended at the endpoint.", "requests");
        add_requests (out, "ecfs_endpoint_failed_requests", "Those of them that failed.", "failed_requests");
    }
    if (survey != NULL)
        add_survey (out, survey);
}

char *metrics_text (const char *directory, JsonObject *status, int64_t now_s)
{
    g_autofree char *archive = g_utf8_make_valid (directory, -1);
    Out out = {.text = g_string_new (NULL), .archive = archive, .status = status, .now_s = now_s};
    begin (&out, "ecfs_archive_up", "gauge", NULL, "Whether the archive directory can be used.");
    add_sample (&out, "ecfs_archive_up", status != NULL, NULL);
    begin (&out, "ecfs_told_timestamp_seconds", "gauge", "seconds", "When this was written, since 1970.");
    add_sample (&out, "ecfs_told_timestamp_seconds", (double) now_s, NULL);
    if (status != NULL)
        add_status (&out);
    g_string_append (out.text, "# EOF\n");
    return g_string_free (out.text, FALSE);
}
