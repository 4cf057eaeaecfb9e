#include "top.h"

#include <inttypes.h>
#include <string.h>

#define WIDE          110 /* columns from which on there is more of each endpoint */
#define ERASED_LATELY 5   /* seconds for which an erasure is in colour */
#define MOST_ERASURES 8   /* that are explained */
#define OTHER_LINES   13  /* that are not an endpoint's, where there is little room */
#define MOST_LINES    40  /* of files, where there is no end */

typedef struct Row {
    JsonObject *endpoint; /* borrowed */
    const char *name;
    double read, written, latency, late, requests, failed; /* per second; seconds */
    int64_t queue;
    unsigned n_erased;
    double saved; /* seconds that segments would have waited longer, at least */
    bool is_erased, is_away, is_doubtful;
} Row;

typedef struct Frame {
    const TopView *view;
    JsonObject *live, *before;
    double seconds; /* between the two; 0: rates are not known */
    GString *text;
    unsigned n_lines;
} Frame;

/* Text of a terminal */

static unsigned width_of (gunichar c)
{
    return g_unichar_iszerowidth (c) ? 0 : g_unichar_iswide (c) ? 2 : 1;
}

/* Appends @text, cut or filled up to @width columns. */
static void add_cell (GString *line, const char *text, unsigned width, bool right)
{
    unsigned column = 0;
    const char *end = text;
    while (*end != '\0' && column + width_of (g_utf8_get_char (end)) <= width) {
        column += width_of (g_utf8_get_char (end));
        end = g_utf8_next_char (end);
    }
    if (right)
        g_string_append_printf (line, "%*s", (int) (width - column), "");
    g_string_append_len (line, text, end - text);
    if (!right)
        g_string_append_printf (line, "%*s", (int) (width - column), "");
}

static void add_line (Frame *self, const char *text, const char *colour)
{
    g_autoptr (GString) line = g_string_new (NULL);
    if (self->view->height > 0 && self->n_lines >= self->view->height - (self->view->keys ? 1 : 0))
        return;
    g_autofree char *clean = ecfs_printable (text);
    add_cell (line, clean, self->view->width, false);
    while (line->len > 0 && line->str[line->len - 1] == ' ')
        g_string_truncate (line, line->len - 1);
    if (colour != NULL && self->view->colours)
        g_string_append_printf (self->text, "\033[%sm%s\033[0m\n", colour, line->str);
    else
        g_string_append_printf (self->text, "%s\n", line->str);
    self->n_lines++;
}

static void add_format (Frame *self, const char *format, ...) G_GNUC_PRINTF (2, 3);
static void add_format (Frame *self, const char *format, ...)
{
    va_list args;
    va_start (args, format);
    g_autofree char *text = g_strdup_vprintf (format, args);
    va_end (args);
    add_line (self, text, NULL);
}

/* "-" where it is nothing. */
static char *rate_text (double bytes_per_s)
{
    return bytes_per_s < 1 ? g_strdup ("-") : tool_bytes (bytes_per_s);
}

static char *seconds_text (double seconds)
{
    return seconds <= 0 ? g_strdup ("-") : tool_seconds (seconds);
}

static char *number_text (double number)
{
    return number <= 0 ? g_strdup ("-") : g_strdup_printf ("%.0f", number);
}

/* Endpoints */

static double grown (double now, double before, double seconds)
{
    return seconds <= 0 ? 0 : MAX (now - before, 0) / seconds; /* less: it was begun anew */
}

static JsonObject *same_before (const Frame *self, const char *name)
{
    JsonArray *endpoints = tool_list (self->before, "endpoints");
    for (guint i = 0; i < tool_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        if (g_str_equal (tool_text (endpoint, "name"), name))
            return endpoint;
    }
    return NULL;
}

static double sum_of (JsonObject *counts)
{
    double sum = 0;
    GList *members = counts == NULL ? NULL : json_object_get_members (counts);
    for (; members != NULL; members = g_list_delete_link (members, members))
        sum += tool_double (counts, members->data);
    return sum;
}

static void take_erasures (const Frame *self, Row *row)
{
    JsonArray *erasures = tool_list (tool_part (self->live, "reads"), "erasures");
    for (guint i = 0; i < tool_length (erasures); i++) {
        JsonObject *erasure = json_array_get_object_element (erasures, i);
        if (!g_str_equal (tool_text (erasure, "endpoint"), row->name))
            continue;
        row->n_erased++;
        row->saved += tool_double (erasure, "saved_s");
        row->is_erased |= tool_double (self->live, "time") - tool_double (erasure, "end") < ERASED_LATELY;
    }
}

static Row row_of (const Frame *self, JsonObject *endpoint)
{
    static const char *const away[] = {"down", "unconfigured", "failed", "distrusted", NULL}, *const doubtful[] = {
                                                                                                  "trial", "full",
                                                                                                  "spent", "refusing",
                                                                                                  NULL};
    Row row = {.endpoint = endpoint, .name = tool_text (endpoint, "name")};
    JsonObject *before = same_before (self, row.name), *latency = tool_part (endpoint, "latency_ms");
    double seconds = before == NULL ? 0 : self->seconds;
    row.read = grown (tool_double (endpoint, "read_bytes"), tool_double (before, "read_bytes"), seconds);
    row.written = grown (tool_double (endpoint, "written_bytes"), tool_double (before, "written_bytes"), seconds);
    row.requests = grown (sum_of (tool_part (endpoint, "requests")), sum_of (tool_part (before, "requests")), seconds);
    row.failed = sum_of (tool_part (endpoint, "failed_requests"));
    row.latency = tool_double (latency, "p50") / 1000;
    row.late = tool_double (latency, "p95") / 1000;
    row.queue = tool_number (endpoint, "under_way") + tool_number (endpoint, "waiting");
    row.is_away = g_strv_contains (away, tool_text (endpoint, "state"));
    row.is_doubtful = g_strv_contains (doubtful, tool_text (endpoint, "state")) ||
                      json_object_get_boolean_member_with_default (endpoint, "suspect", FALSE);
    take_erasures (self, &row);
    return row;
}

static double key_of (const Row *row, TopSort sort)
{
    switch (sort) {
    case TOP_BY_READ:
        return row->read;
    case TOP_BY_WRITE:
        return row->written;
    case TOP_BY_LATENCY:
        return row->late;
    case TOP_BY_QUEUE:
        return (double) row->queue;
    case TOP_BY_ERASED:
        return row->n_erased;
    case TOP_BY_NAME:
    case TOP_N_SORTS:
        break;
    }
    return 0;
}

/* The largest first, and else by name. */
static gint by_key (gconstpointer a, gconstpointer b, gpointer user)
{
    const TopSort *sort = user;
    double x = key_of (a, *sort), y = key_of (b, *sort);
    return x != y ? (x < y) - (x > y) : strcmp (((const Row *) a)->name, ((const Row *) b)->name);
}

static GArray *rows_of (const Frame *self)
{
    TopSort sort = self->view->sort;
    GArray *rows = g_array_new (FALSE, FALSE, sizeof (Row));
    JsonArray *endpoints = tool_list (self->live, "endpoints");
    for (guint i = 0; i < tool_length (endpoints); i++) {
        const Row row = row_of (self, json_array_get_object_element (endpoints, i));
        g_array_append_val (rows, row);
    }
    g_array_sort_with_data (rows, by_key, &sort);
    return rows;
}

static const char *state_text (const Row *row)
{
    const char *state = tool_text (row->endpoint, "state");
    if (row->is_away || !g_str_equal (state, "active"))
        return state;
    return row->is_erased                                                                    ? "erased"
           : json_object_get_boolean_member_with_default (row->endpoint, "suspect", FALSE)   ? "suspect"
           : json_object_get_boolean_member_with_default (row->endpoint, "connected", FALSE) ? "active"
                                                                                             : "idle";
}

typedef struct Column {
    const char *title;
    unsigned width;
    bool wide; /* only where there is room */
} Column;

static const Column columns[] = {{"STATE", 9, false},   {"READ/s", 9, false}, {"WRITE/s", 9, false},
                                 {"LATENCY", 8, false}, {"95%", 8, false},    {"QUEUE", 5, false},
                                 {"ERASED", 6, false},  {"SAVED", 7, false},  {"REQ/s", 6, true},
                                 {"FAILED", 6, true},   {"ZONE", 10, true}};

static bool is_shown (const Frame *self, const Column *column)
{
    return !column->wide || self->view->width >= WIDE;
}

/* What the columns leave. */
static unsigned name_width (const Frame *self)
{
    unsigned width = self->view->width;
    for (size_t i = 0; i < G_N_ELEMENTS (columns); i++)
        if (is_shown (self, &columns[i]))
            width -= MIN (columns[i].width + 1, width);
    return CLAMP (width, 6, 30);
}

static void add_row (Frame *self, const char *name, const char *const *cells, const char *colour)
{
    g_autoptr (GString) line = g_string_new (NULL);
    add_cell (line, name, name_width (self), false);
    for (size_t i = 0; i < G_N_ELEMENTS (columns); i++) {
        if (!is_shown (self, &columns[i]))
            continue;
        g_string_append_c (line, ' ');
        add_cell (line, cells[i], columns[i].width, i > 0 && i + 1 < G_N_ELEMENTS (columns));
    }
    add_line (self, line->str, colour);
}

static void add_endpoint (Frame *self, const Row *row)
{
    g_autofree char *read = rate_text (row->read), *written = rate_text (row->written),
                    *latency = seconds_text (row->latency), *late = seconds_text (row->late),
                    *queue = number_text ((double) row->queue), *erased = number_text (row->n_erased),
                    *saved = seconds_text (row->saved), *requests = number_text (row->requests),
                    *failed = number_text (row->failed);
    const char *const cells[] = {state_text (row),
                                 read,
                                 written,
                                 latency,
                                 late,
                                 queue,
                                 erased,
                                 saved,
                                 requests,
                                 failed,
                                 tool_text (row->endpoint, "zone")};
    const char *colour = row->is_away ? "31" : row->is_erased || row->is_doubtful ? "33" : NULL;
    add_row (self, row->name, cells, colour);
    if (row->is_away && self->view->width >= WIDE && *tool_text (row->endpoint, "reason") != '\0')
        add_format (self, "  %s", tool_text (row->endpoint, "reason"));
}

static void add_endpoints (Frame *self, const GArray *rows)
{
    const char *titles[G_N_ELEMENTS (columns)];
    for (size_t i = 0; i < G_N_ELEMENTS (columns); i++)
        titles[i] = columns[i].title;
    add_row (self, "ENDPOINT", titles, "7");
    guint most = self->view->height == 0 ? rows->len : MAX (self->view->height, OTHER_LINES + 1) - OTHER_LINES;
    for (guint i = 0; i < rows->len && i < most; i++)
        add_endpoint (self, &g_array_index (rows, Row, i));
    if (rows->len > most)
        add_format (self, "and %u more endpoints", rows->len - most);
}

/* The rest */

static void add_head (Frame *self, const GArray *rows)
{
    unsigned n_away = 0;
    double read = 0, written = 0;
    for (guint i = 0; i < rows->len; i++) {
        const Row *row = &g_array_index (rows, Row, i);
        n_away += row->is_away;
        read += row->read;
        written += row->written;
    }
    g_autoptr (GDateTime) time = g_date_time_new_from_unix_local ((gint64) tool_double (self->live, "time"));
    g_autofree char *clock = time == NULL ? g_strdup ("?") : g_date_time_format (time, "%T");
    g_autofree char *in = tool_bytes (read), *out = tool_bytes (written);
    g_autofree char *left =
        g_strdup_printf ("ecfs top  %s%s", tool_text (self->live, "directory"), self->view->paused ? "  PAUSED" : "");
    g_autofree char *clean = ecfs_printable (left);
    g_autoptr (GString) line = g_string_new (NULL);
    add_cell (line, clean, self->view->width - 9, false);
    g_string_append_printf (line, " %s", clock);
    add_line (self, line->str, "1");
    g_autofree char *away = n_away == 0 ? g_strdup_printf ("%u endpoints", rows->len)
                                        : g_strdup_printf ("%u of %u endpoints away", n_away, rows->len);
    add_format (self, "%s, new files %s; from endpoints %s/s, to endpoints %s/s", away, tool_text (self->live, "code"),
                in, out);
}

static double share (double part, double rest)
{
    return part + rest > 0 ? 100 * part / (part + rest) : 0;
}

static void add_reads (Frame *self)
{
    JsonObject *reads = tool_part (self->live, "reads"), *cache = tool_part (self->live, "cache");
    g_autofree char *received = tool_bytes (tool_double (reads, "received_bytes"));
    g_autofree char *hedged = tool_bytes (tool_double (reads, "hedged_bytes"));
    add_format (self,
                "reads    %" PRIi64 " segments with %s, %" PRIi64 " decoded, %" PRIi64 " around endpoints, %s in vain",
                tool_number (reads, "segments"), received, tool_number (reads, "decoded"),
                tool_number (reads, "degraded"), hedged);
    if (cache == NULL)
        return;
    g_autofree char *bytes = tool_bytes (tool_double (cache, "bytes")),
                    *most = tool_bytes (tool_double (cache, "max_bytes"));
    add_format (self, "cache    %s of %s; %.0f%% of what was read came from it", bytes, most,
                share (tool_double (reads, "cached_bytes"), tool_double (reads, "received_bytes")));
}

static void add_writes (Frame *self)
{
    JsonObject *repairs = tool_part (self->live, "repairs");
    double stored =
        grown (tool_double (self->live, "content_bytes"), tool_double (self->before, "content_bytes"), self->seconds);
    g_autofree char *rate = tool_bytes (stored);
    add_format (self,
                "commits  %s/s; in staging: %" PRIi64 " files; lacking stripes: %" PRIi64 "; only here: %" PRIi64
                " changes",
                rate, tool_number (self->live, "staged"), tool_number (self->live, "not_full"),
                tool_number (self->live, "pending"));
    g_autofree char *written = tool_bytes (tool_double (repairs, "written_bytes"));
    add_format (
        self, "repairs  %" PRIi64 " stripes queued, %" PRIi64 " objects fail; %" PRIi64 " stripes rebuilt, %s written",
        tool_number (repairs, "queued"), tool_number (repairs, "failing"), tool_number (repairs, "rebuilt"), written);
}

/* Rows that are left on the terminal. */
static unsigned room (const Frame *self)
{
    unsigned taken = self->n_lines + (self->view->keys ? 1 : 0);
    if (self->view->height == 0)
        return MOST_LINES;
    return self->view->height > taken ? self->view->height - taken : 0;
}

static void add_files (Frame *self)
{
    JsonArray *files = tool_list (self->live, "under_way");
    guint n = tool_length (files);
    add_line (self, n == 0 ? "no file is on its way" : "FILES ON THEIR WAY", n == 0 ? NULL : "7");
    for (guint i = 0; i < n && room (self) > 0; i++) {
        JsonObject *file = json_array_get_object_element (files, i);
        g_autofree char *size = tool_bytes (tool_double (file, "size"));
        g_autofree char *took = tool_seconds (tool_double (file, "seconds"));
        add_format (self, "%-10s %9s %8s  %s", tool_text (file, "doing"), size, took, tool_text (file, "path"));
    }
}

static void add_erasures (Frame *self)
{
    JsonArray *erasures = tool_list (tool_part (self->live, "reads"), "erasures");
    guint n = tool_length (erasures);
    add_line (self, n == 0 ? "no endpoint was read around" : "ENDPOINTS THAT WERE READ AROUND, THE LAST FIRST",
              n == 0 ? NULL : "7");
    for (guint i = n; i-- > 0 && room (self) > 0 && n - i <= MOST_ERASURES;) {
        JsonObject *erasure = json_array_get_object_element (erasures, i);
        double begin = tool_double (erasure, "begin"), saved = tool_double (erasure, "saved_s");
        g_autoptr (GDateTime) time = g_date_time_new_from_unix_local ((gint64) begin);
        g_autofree char *when = time == NULL ? g_strdup ("?") : g_date_time_format (time, "%T");
        g_autofree char *lasted = tool_seconds (tool_double (erasure, "end") - begin), *longer = tool_seconds (saved);
        add_format (self, "%s  %s: %s for %s, %" PRIi64 " segments%s%s%s", when, tool_text (erasure, "endpoint"),
                    tool_text (erasure, "why"), lasted, tool_number (erasure, "segments"),
                    saved > 0 ? "; one would have waited " : "", saved > 0 ? longer : "", saved > 0 ? " more" : "");
    }
}

static void add_keys (Frame *self)
{
    static const char *const sorts[] = {"name", "read", "write", "latency", "queue", "erased"};
    while (self->view->height > 0 && room (self) > 0)
        add_line (self, "", NULL);
    g_autofree char *text = g_strdup_printf ("q quit   p %s   s sorted by %s   e %s",
                                             self->view->paused ? "go on" : "pause", sorts[self->view->sort],
                                             self->view->explain ? "files on their way" : "explain what was erased");
    g_autoptr (GString) line = g_string_new (NULL);
    add_cell (line, text, self->view->width, false);
    g_string_append (self->text, g_strchomp (line->str));
}

char *top_frame (JsonObject *live, JsonObject *before, const TopView *view)
{
    Frame self = {.view = view, .live = live, .before = before, .text = g_string_new (NULL)};
    if (before != NULL)
        self.seconds = tool_double (live, "clock") - tool_double (before, "clock");
    g_autoptr (GArray) rows = rows_of (&self);
    add_head (&self, rows);
    add_endpoints (&self, rows);
    add_reads (&self);
    add_writes (&self);
    if (view->explain)
        add_erasures (&self);
    else
        add_files (&self);
    if (view->keys)
        add_keys (&self);
    return g_string_free (self.text, FALSE);
}
