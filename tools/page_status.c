#include "page_status.h"

#include "page.h"
#include "page_report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS     64 /* endpoints that are drawn; the others are counted */
#define MOST_COLUMNS  32 /* of the map; stripes with neighbouring numbers share one */
#define MOST_IN_PAIRS 24 /* endpoints of which all pairs are drawn */
#define MOST_TOLD     12 /* of what is told one by one */
#define LABEL_WIDTH   150
#define MAP_WIDTH     560

/* Endpoints, the worst first */

typedef enum Severity { FINE, SET_ASIDE, DOUBTFUL, AWAY } Severity;

typedef struct Row {
    JsonObject *endpoint; /* borrowed, as the next */
    JsonObject *share;    /* of the survey; NULL: nothing is known */
    Severity severity;
} Row;

static Severity severity_of (JsonObject *status, JsonObject *endpoint, JsonObject *share)
{
    static const char *const aside[] = {"readonly", "draining", NULL},
                             *const doubtful[] = {"refusing", "full", "spent", "trial", NULL},
                             *const members[] = {"disagrees", "false_marker", "journal_gap", "key_share_lost",
                                                 "unmarked"};
    if (tool_is_away (status, endpoint))
        return AWAY;
    bool wrong = g_strv_contains (doubtful, tool_text (endpoint, "state")) ||
                 (share != NULL && tool_number (share, "damaged") > 0);
    for (size_t i = 0; i < G_N_ELEMENTS (members); i++)
        wrong = wrong || json_object_has_member (endpoint, members[i]);
    return wrong ? DOUBTFUL : g_strv_contains (aside, tool_text (endpoint, "state")) ? SET_ASIDE : FINE;
}

static double lateness (const Row *row)
{
    JsonObject *latency = tool_part (row->endpoint, "latency_ms");
    return latency == NULL ? 0 : tool_double (latency, "p95");
}

static int64_t damaged (const Row *row)
{
    return row->share == NULL ? 0 : tool_number (row->share, "damaged");
}

static int by_badness (gconstpointer a, gconstpointer b)
{
    const Row *x = a, *y = b;
    if (x->severity != y->severity)
        return x->severity > y->severity ? -1 : 1;
    if (damaged (x) != damaged (y))
        return damaged (x) > damaged (y) ? -1 : 1;
    int64_t since[] = {tool_number (x->endpoint, "down_since"), tool_number (y->endpoint, "down_since")};
    if (since[0] != since[1])
        return since[1] == 0 || (since[0] > 0 && since[0] < since[1]) ? -1 : 1;
    return (lateness (x) < lateness (y)) - (lateness (x) > lateness (y));
}

/* Of Row, the worst first. */
static GArray *rows_of (JsonObject *status)
{
    GArray *rows = g_array_new (FALSE, FALSE, sizeof (Row));
    JsonArray *endpoints = tool_list (status, "endpoints"),
              *shares = tool_list (tool_part (status, "survey"), "endpoints");
    for (guint i = 0; i < tool_length (endpoints); i++) {
        Row row = {.endpoint = json_array_get_object_element (endpoints, i)};
        for (guint j = 0; j < tool_length (shares) && row.share == NULL; j++) {
            JsonObject *share = json_array_get_object_element (shares, j);
            if (g_str_equal (tool_text (share, "endpoint"), tool_text (row.endpoint, "name")))
                row.share = share;
        }
        row.severity = severity_of (status, row.endpoint, row.share);
        g_array_append_val (rows, row);
    }
    g_array_sort (rows, by_badness);
    return rows;
}

static const char *class_of (Severity severity)
{
    static const char *const classes[] = {[FINE] = "good", [SET_ASIDE] = "mild", [DOUBTFUL] = "mild", [AWAY] = "bad"};
    return classes[severity];
}

static void add_cell (GString *page, const char *label, char *text, bool number)
{
    page_add (page, number ? "<td class=\"n\" data-l=\"%s\">" : "<td data-l=\"%s\">", label);
    page_add (page, "%s</td>", text);
    g_free (text);
}

static char *bytes_text (JsonObject *object, const char *member, const char *behind)
{
    if (object == NULL || !json_object_has_member (object, member) || tool_double (object, member) <= 0)
        return g_strdup ("");
    g_autofree char *bytes = tool_bytes (tool_double (object, member));
    return g_strconcat (bytes, behind, NULL);
}

static char *latency_text (JsonObject *endpoint)
{
    JsonObject *latency = tool_part (endpoint, "latency_ms");
    if (latency == NULL)
        return g_strdup ("");
    g_autofree char *usual = tool_seconds (tool_double (latency, "p50") / 1000);
    g_autofree char *late = tool_seconds (tool_double (latency, "p95") / 1000);
    return g_strdup_printf ("%s, 95%%: %s", usual, late);
}

static char *stripes_text (JsonObject *share)
{
    if (share == NULL)
        return g_strdup ("");
    int64_t n_damaged = tool_number (share, "damaged");
    g_autofree char *damage = n_damaged == 0 ? g_strdup ("") : g_strdup_printf (", %" PRIi64 " damaged", n_damaged);
    return g_strdup_printf ("%" PRIi64 "%s", tool_number (share, "stripes"), damage);
}

/* What is wrong with an endpoint, in its words. */
static void add_reasons (GString *page, JsonObject *endpoint)
{
    static const char *const members[] = {"reason", "disagrees", "false_marker", "journal_gap", "key_share_lost"};
    for (size_t i = 0; i < G_N_ELEMENTS (members); i++)
        if (*tool_text (endpoint, members[i]) != '\0')
            page_add (page, "<div class=\"dim\">%s</div>", tool_text (endpoint, members[i]));
}

static void add_month (GString *page, JsonObject *endpoint)
{
    g_autofree char *text = tool_month_text (endpoint);
    if (text != NULL)
        page_add (page, "<div class=\"dim\">this month: %s</div>", text);
}

static void add_row (GString *page, const Row *row)
{
    JsonObject *endpoint = row->endpoint;
    page_add (page, "<tr><td data-l=\"endpoint\"><b><bdi>%s</bdi></b></td>", tool_text (endpoint, "name"));
    page_add (page, "<td data-l=\"state\"><span><b class=\"%s\">%s</b>", class_of (row->severity),
              tool_text (endpoint, "state"));
    if (tool_number (endpoint, "down_since") > 0) {
        g_autofree char *since = page_since (tool_number (endpoint, "down_since"));
        page_add (page, " since %s", since);
    }
    add_reasons (page, endpoint);
    add_month (page, endpoint);
    g_string_append (page, "</span></td>");
    add_cell (page, "zone", g_strdup (tool_text (endpoint, "zone")), false);
    add_cell (page, "answers after", latency_text (endpoint), true);
    add_cell (page, "read", bytes_text (endpoint, "read_bytes_per_s", "/s"), true);
    add_cell (page, "write", bytes_text (endpoint, "write_bytes_per_s", "/s"), true);
    add_cell (page, "free", bytes_text (endpoint, "free_bytes", ""), true);
    add_cell (page, "stripes", stripes_text (row->share), true);
    add_cell (page, "has", bytes_text (row->share, "bytes", ""), true);
    g_string_append (page, "</tr>\n");
}

static void add_worst (GString *page, const GArray *rows)
{
    const Row *worst = rows->len == 0 ? NULL : &g_array_index (rows, Row, 0);
    if (worst == NULL || worst->severity == FINE) {
        page_add (page, "<p>None of the %u endpoints is worse than the others: all answer.</p>", rows->len);
        return;
    }
    page_add (page, "<p>The worst is <b><bdi>%s</bdi></b>: <b class=\"%s\">%s</b>", tool_text (worst->endpoint, "name"),
              class_of (worst->severity), tool_text (worst->endpoint, "state"));
    if (tool_number (worst->endpoint, "down_since") > 0) {
        g_autofree char *since = page_since (tool_number (worst->endpoint, "down_since"));
        page_add (page, " since %s", since);
    }
    if (damaged (worst) > 0)
        page_add (page, ", %" PRIi64 " of its stripes are damaged or gone", damaged (worst));
    g_string_append (page, ".</p>");
}

static void add_endpoints (GString *page, const GArray *rows)
{
    g_string_append (page, "<h2>Endpoints (storage accounts), the worst first</h2>");
    add_worst (page, rows);
    g_string_append (page,
                     "<table><thead><tr><th>endpoint</th><th>state</th><th>zone</th><th class=\"n\">answers after</th>"
                     "<th class=\"n\">read</th><th class=\"n\">write</th><th class=\"n\">free</th>"
                     "<th class=\"n\">stripes</th><th class=\"n\">has</th></tr></thead><tbody>\n");
    for (guint i = 0; i < MIN (rows->len, MOST_ROWS); i++)
        add_row (page, &g_array_index (rows, Row, i));
    g_string_append (page, "</tbody></table>");
    if (rows->len > MOST_ROWS)
        page_add (page, "<p class=\"dim\">and %u more, none of them worse</p>", rows->len - MOST_ROWS);
}

/* The verdict */

static const char *class_of_check (int64_t check)
{
    return check == 0 ? "good" : check == 1 ? "mild" : "bad";
}

static void add_problem (GString *page, JsonObject *problem)
{
    g_autofree char *since = page_since (tool_number (problem, "since"));
    g_autofree char *word = g_ascii_strup (tool_text (problem, "verdict"), -1);
    page_add (page, "<section class=\"state %s\"><div class=\"word\">%s</div>",
              class_of_check (tool_number (problem, "check")), word);
    if (tool_number (problem, "since") > 0)
        page_add (page, "<p>since <b>%s</b></p>", since);
    page_add (page, "<p><b>%s</b></p><p>%s</p><p>%s</p>", tool_text (problem, "reason"), tool_text (problem, "meaning"),
              tool_text (problem, "advice"));
    if (*tool_text (problem, "action") != '\0')
        page_add (page, "<pre>%s</pre>", tool_text (problem, "action"));
    g_string_append (page, "</section>\n");
}

static void add_others (GString *page, JsonObject *status)
{
    JsonArray *problems = tool_list (status, "problems");
    unsigned n_told = 0;
    for (guint i = 0; i < tool_length (problems) && n_told < MOST_TOLD; i++) {
        JsonObject *problem = json_array_get_object_element (problems, i);
        if (g_str_equal (tool_text (problem, "reason"), tool_text (status, "reason")))
            continue;
        if (n_told++ == 0)
            g_string_append (page, "<h2>What else is wrong</h2>");
        add_problem (page, problem);
    }
}

/* Figures */

static void add_tile (GString *page, const char *title, const char *figure, const char *class, const char *text)
{
    page_add (page, "<div class=\"tile\"><span class=\"dim\">%s</span><b class=\"%s\">%s</b>%s</div>", title, class,
              figure, text);
}

static void add_guarantee (GString *page, JsonObject *status)
{
    JsonObject *objects = tool_part (status, "objects");
    if (objects == NULL || !json_object_has_member (objects, "guarantee"))
        return;
    int64_t guarantee = tool_number (objects, "guarantee");
    g_autofree char *figure =
        guarantee < 0 ? g_strdup ("too much is lost") : page_count (guarantee, "endpoint", "endpoints");
    add_tile (page, "may vanish now", figure,
              guarantee < 0    ? "bad"
              : guarantee == 0 ? "bad"
                               : "good",
              guarantee < 0    ? tool_unreadable_text (status)
              : guarantee == 0 ? "every file can be read, but none may go"
                               : "whichever they are: every file stays readable");
}

static void add_staging_tile (GString *page, JsonObject *status)
{
    JsonObject *staging = tool_part (status, "staging");
    int64_t n_files = staging == NULL ? 0 : tool_number (staging, "files");
    g_autofree char *figure = n_files == 0 ? g_strdup ("nothing") : page_count (n_files, "file", "files");
    g_autofree char *bytes = n_files == 0 ? g_strdup ("all is stored") : tool_bytes (tool_double (staging, "bytes"));
    add_tile (page, "waits on this machine", figure, n_files == 0 ? "good" : "mild", bytes);
}

static void add_recovery_tile (GString *page, JsonObject *status)
{
    JsonObject *point = tool_part (status, "recovery_point");
    int64_t n_pending = point == NULL ? 0 : tool_number (point, "pending");
    if (point != NULL && json_object_has_member (status, "held")) {
        add_tile (page, "safe without this machine", "in doubt", "mild", "too few endpoints tell what is the newest");
        return;
    }
    g_autofree char *since = point == NULL || tool_number (point, "time") == 0
                                 ? g_strdup ("nothing yet")
                                 : page_since (tool_number (point, "time"));
    g_autofree char *behind = n_pending == 0 ? g_strdup ("no name would be lost with it")
                                             : page_count (n_pending, "change since is not", "changes since are not");
    if (point != NULL)
        add_tile (page, "safe without this machine", n_pending == 0 ? "everything" : since,
                  n_pending == 0 ? "good" : "mild", behind);
}

static void add_scrub_tile (GString *page, JsonObject *status)
{
    JsonObject *scrub = tool_part (status, "scrub");
    bool ended = scrub != NULL && json_object_has_member (scrub, "full_ended");
    g_autofree char *since = ended ? page_since (tool_number (scrub, "full_ended")) : g_strdup ("never");
    if (scrub != NULL)
        add_tile (page, "everything was verified", since, ended ? "good" : "mild",
                  ended ? "every byte was compared" : "ecfs fsck --deep does it");
}

static void add_tiles (GString *page, JsonObject *status)
{
    g_autofree char *files = page_count (tool_number (status, "files"), "file", "files");
    g_autofree char *content = tool_bytes (tool_double (status, "content_bytes"));
    g_autofree char *stored = tool_bytes (tool_double (status, "stripe_bytes"));
    g_autofree char *text = g_strdup_printf ("%s, stored in %s", content, stored);
    g_autofree char *room = tool_bytes (tool_double (status, "free_bytes"));
    g_autofree char *sum = tool_month_sum (status);
    g_string_append (page, "<div class=\"tiles\">");
    add_guarantee (page, status);
    add_tile (page, "in the archive", files, "", text);
    if (json_object_has_member (status, "free_bytes"))
        add_tile (page, "room for", room, tool_number (status, "free_bytes") > 0 ? "" : "bad",
                  tool_number (status, "free_bytes") > 0 ? "more content" : "endpoints are full, or too few answer");
    if (sum != NULL)
        add_tile (page, "this month", sum, "", "what it costs, with a month of what is stored now");
    add_staging_tile (page, status);
    add_recovery_tile (page, status);
    add_scrub_tile (page, status);
    g_string_append (page, "</div>\n");
}

/* Files by how safe they are */

static void add_file_row (GString *page, JsonObject *row, double n_all)
{
    int64_t guarantee = tool_number (row, "guarantee"), n_files = tool_number (row, "files");
    const char *class = guarantee < 0 || guarantee == 0                  ? "b"
                        : g_str_equal (tool_text (row, "state"), "full") ? "g"
                                                                         : "m";
    g_autofree char *safety = guarantee < 0
                                  ? g_strdup ("cannot be read now")
                                  : page_count (guarantee, "more endpoint may vanish", "more endpoints may vanish");
    double width = MAX ((double) n_files / n_all * 300, 2);
    page_add (page, "<tr><td data-l=\"safety\">%s</td>", safety);
    add_cell (page, "stored", g_strdup (tool_text (row, "state")), false);
    add_cell (page, "files", g_strdup_printf ("%" PRIi64, n_files), true);
    add_cell (page, "content", bytes_text (row, "bytes", ""), true);
    page_add (page,
              "<td><svg viewBox=\"0 0 300 16\" width=\"300\" height=\"16\" role=\"img\" aria-label=\"%.3g%%\">"
              "<rect class=\"o\" width=\"300\" height=\"16\"/><rect class=\"%s\" width=\"%.0f\" "
              "height=\"16\"/></svg></td></tr>\n",
              (double) n_files / n_all * 100, class, width);
}

static void add_files (GString *page, JsonObject *survey)
{
    JsonArray *files = tool_list (survey, "files");
    double n_all = 0;
    for (guint i = 0; i < tool_length (files); i++)
        n_all += tool_double (json_array_get_object_element (files, i), "files");
    g_string_append (page, "<h2>Files, by how many more endpoints may vanish</h2>");
    if (n_all <= 0) {
        g_string_append (page, "<p>No file with content is stored yet.</p>");
        return;
    }
    g_string_append (page, "<table><thead><tr><th>safety</th><th>stored</th><th class=\"n\">files</th>"
                           "<th class=\"n\">content</th><th>share</th></tr></thead><tbody>\n");
    for (guint i = 0; i < tool_length (files); i++)
        add_file_row (page, json_array_get_object_element (files, i), n_all);
    g_string_append (page, "</tbody></table>");
}

/* What may still be lost */

static const char *without (JsonObject *loss, guint i)
{
    JsonArray *names = tool_list (loss, "without");
    return i < tool_length (names) ? json_array_get_string_element (names, i) : NULL;
}

/* How many objects go with @a and @b (the same: with it alone). */
static int64_t lost_with (JsonArray *unsafe, const char *a, const char *b)
{
    for (guint i = 0; i < tool_length (unsafe); i++) {
        JsonObject *loss = json_array_get_object_element (unsafe, i);
        const char *x = without (loss, 0), *y = without (loss, 1) == NULL ? x : without (loss, 1);
        if ((strcmp (x, a) == 0 && strcmp (y, b) == 0) || (strcmp (x, b) == 0 && strcmp (y, a) == 0))
            return tool_number (loss, "objects");
    }
    return 0;
}

static void add_pair (GString *page, JsonArray *unsafe, const char *a, const char *b, guint row, guint column)
{
    int64_t n_lost = lost_with (unsafe, a, b);
    page_add (page,
              "<rect class=\"%s\" x=\"%u\" y=\"%u\" width=\"22\" height=\"22\"><title>%s%s%s: ", n_lost > 0 ? "b" : "g",
              LABEL_WIDTH + column * 24, 20 + row * 24, a, a == b ? "" : " and ", a == b ? "" : b);
    if (n_lost > 0)
        page_add (page, "%" PRIi64 " objects could not be read</title></rect>", n_lost);
    else
        g_string_append (page, "may vanish</title></rect>");
    if (n_lost > 0)
        page_add (page, "<text x=\"%u\" y=\"%u\" text-anchor=\"middle\" class=\"x\">&#215;</text>",
                  LABEL_WIDTH + column * 24 + 11, 20 + row * 24 + 15);
}

/* All pairs of endpoints that are there; on the diagonal one alone. */
static void add_pairs (GString *page, const GArray *rows, JsonArray *unsafe)
{
    g_autoptr (GPtrArray) names = g_ptr_array_new ();
    for (guint i = 0; i < rows->len; i++)
        if (g_array_index (rows, Row, i).severity != AWAY)
            g_ptr_array_add (names, (char *) tool_text (g_array_index (rows, Row, i).endpoint, "name"));
    if (names->len == 0 || names->len > MOST_IN_PAIRS)
        return;
    guint width = LABEL_WIDTH + names->len * 24, height = 20 + names->len * 24;
    page_add (page,
              "<svg viewBox=\"0 0 %u %u\" width=\"%u\" height=\"%u\" role=\"img\" aria-label=\"pairs of endpoints\">",
              width, height, width, height);
    for (guint i = 0; i < names->len; i++) {
        page_add (page,
                  "<text x=\"0\" y=\"%u\">%u %.18s</text><text x=\"%u\" y=\"14\" text-anchor=\"middle\">%u</text>",
                  20 + i * 24 + 15, i + 1, (const char *) names->pdata[i], LABEL_WIDTH + i * 24 + 11, i + 1);
        for (guint j = 0; j <= i; j++)
            add_pair (page, unsafe, names->pdata[i], names->pdata[j], i, j);
    }
    g_string_append (
        page, "</svg><p class=\"dim\">Green: both may vanish together. Red with a cross: some file could not be read "
              "without them. On the diagonal, one alone.</p>");
}

/* Whether a set has nothing that goes without saying: a pair of which one alone is too much does. */
static bool is_news (JsonArray *unsafe, JsonObject *loss)
{
    const char *a = without (loss, 0), *b = without (loss, 1);
    return b == NULL || (lost_with (unsafe, a, a) == 0 && lost_with (unsafe, b, b) == 0);
}

static void add_unsafe (GString *page, JsonObject *losses)
{
    JsonArray *unsafe = tool_list (losses, "unsafe");
    int64_t n_all = tool_number (losses, "endpoints_unsafe") + tool_number (losses, "pairs_unsafe");
    int64_t n_told = 0, n_left = n_all - tool_length (unsafe); /* the survey does not name all */
    g_string_append (page, "<ul>");
    for (guint i = 0; i < tool_length (unsafe); i++) {
        JsonObject *loss = json_array_get_object_element (unsafe, i);
        g_autofree char *objects = page_count (tool_number (loss, "objects"), "object", "objects");
        if (!is_news (unsafe, loss))
            continue;
        if (n_told == MOST_TOLD) {
            n_left++;
            continue;
        }
        n_told++;
        page_add (page, "<li>Without <bdi>%s</bdi>", without (loss, 0));
        if (without (loss, 1) != NULL)
            page_add (page, " and <bdi>%s</bdi>", without (loss, 1));
        page_add (page, ", %s could not be read.</li>", objects);
    }
    g_string_append (page, "</ul>");
    if (n_left > 0)
        page_add (page, "<p>And %" PRIi64 " more sets.</p>", n_left);
}

static void add_losses (GString *page, JsonObject *survey, const GArray *rows)
{
    JsonObject *losses = tool_part (survey, "losses");
    g_string_append (page, "<h2>What may still be lost</h2>");
    if (losses == NULL) {
        g_string_append (page, "<p>There are too many cases to try here. <code>ecfs drill</code> tells.</p>");
        return;
    }
    int64_t n_single = tool_number (losses, "endpoints_unsafe"), n_pairs = tool_number (losses, "pairs_unsafe");
    if (tool_number (losses, "endpoints") == 0)
        g_string_append (page, "<p class=\"bad\"><b>No endpoint answers.</b></p>");
    else if (n_single + n_pairs == 0)
        page_add (
            page, "<p class=\"good\"><b>%s</b></p>",
            tool_number (losses, "pairs") > 0
                ? "Of the endpoints that answer, any two may vanish, and every file that can be read stays readable."
                : "The endpoint that answers may vanish, and every file that can be read stays readable.");
    else if (n_single == 0)
        page_add (page,
                  "<p class=\"mild\"><b>Any one of the endpoints that answer may vanish. %" PRIi64 " of %" PRIi64
                  " pairs may not.</b></p>",
                  n_pairs, tool_number (losses, "pairs"));
    else
        page_add (page,
                  "<p class=\"bad\"><b>%" PRIi64 " of the %" PRIi64
                  " endpoints that answer may not vanish, each alone.</b></p>",
                  n_single, tool_number (losses, "endpoints"));
    add_pairs (page, rows, tool_list (losses, "unsafe"));
    if (n_single + n_pairs > 0)
        add_unsafe (page, losses);
}

/* Which stripes are where */

/* Of @count stripe numbers, the first that @column shows. */
static guint first_of (guint column, guint n_columns, guint count)
{
    return column * count / n_columns;
}

static double cell_of (JsonArray *by_index, guint column, guint n_columns)
{
    double n = 0;
    guint count = tool_length (by_index);
    for (guint i = first_of (column, n_columns, count); i < first_of (column + 1, n_columns, count); i++)
        n += (double) json_array_get_int_element (by_index, i);
    return n;
}

static void add_map_row (GString *page, const Row *row, guint y, guint n_columns, double most)
{
    JsonArray *by_index = tool_list (row->share, "by_index");
    guint width = MAP_WIDTH / n_columns;
    page_add (page, "<text x=\"0\" y=\"%u\">%.18s</text>", y + 12, tool_text (row->endpoint, "name"));
    for (guint i = 0; i < n_columns; i++) {
        double n = cell_of (by_index, i, n_columns);
        page_add (page, "<rect class=\"%s\" x=\"%u\" y=\"%u\" width=\"%u\" height=\"14\"",
                  n <= 0                  ? "o"
                  : row->severity == AWAY ? "b"
                                          : "c",
                  LABEL_WIDTH + i * width, y, width - 2);
        if (n > 0)
            page_add (page, " fill-opacity=\"%.2f\"", 0.25 + 0.75 * n / most);
        page_add (page, "><title>%.0f</title></rect>", n);
    }
}

static void add_map (GString *page, const GArray *rows)
{
    guint n_rows = MIN (rows->len, MOST_ROWS), n_columns = 0;
    double most = 1;
    for (guint i = 0; i < n_rows; i++) {
        JsonArray *by_index = tool_list (g_array_index (rows, Row, i).share, "by_index");
        n_columns = MAX (n_columns, MIN (tool_length (by_index), MOST_COLUMNS));
        for (guint j = 0; j < n_columns; j++)
            most = MAX (most, cell_of (by_index, j, n_columns));
    }
    if (n_columns == 0)
        return;
    guint height = 20 + n_rows * 18;
    page_add (page,
              "<h2>Which stripes are where</h2><svg viewBox=\"0 0 %u %u\" width=\"%u\" height=\"%u\" role=\"img\" "
              "aria-label=\"stripes by endpoint\"><text x=\"%u\" y=\"12\">stripe 0</text>"
              "<text x=\"%u\" y=\"12\" text-anchor=\"end\">the last</text>",
              LABEL_WIDTH + MAP_WIDTH, height, LABEL_WIDTH + MAP_WIDTH, height, LABEL_WIDTH,
              LABEL_WIDTH + MAP_WIDTH / n_columns * n_columns);
    for (guint i = 0; i < n_rows; i++)
        add_map_row (page, &g_array_index (rows, Row, i), 20 + i * 18, n_columns, most);
    g_string_append (
        page,
        "</svg><p class=\"dim\">A row is an endpoint, a column the number of a stripe in its object. The darker, the "
        "more stripes; red where the endpoint is away.</p>");
}

/* What waits */

static void add_backlog (GString *page, JsonObject *status)
{
    JsonObject *staging = tool_part (status, "staging");
    JsonArray *oldest = tool_list (staging, "oldest");
    if (tool_length (oldest) == 0)
        return;
    g_autofree char *bytes = tool_bytes (tool_double (staging, "bytes"));
    page_add (page,
              "<p>%" PRIi64 " files with %s are not stored in full; %" PRIi64
              " of them had failures. The oldest:</p><ul>",
              tool_number (staging, "files"), bytes, tool_number (staging, "failed"));
    for (guint i = 0; i < MIN (tool_length (oldest), MOST_TOLD); i++) {
        JsonObject *row = json_array_get_object_element (oldest, i);
        g_autofree char *since = page_since (tool_number (row, "since"));
        page_add (page, "<li><bdi>%s</bdi>: %s since %s", tool_text (row, "path"), tool_text (row, "state"), since);
        if (*tool_text (row, "error") != '\0')
            page_add (page, "<div class=\"dim\">%s</div>", tool_text (row, "error"));
        g_string_append (page, "</li>");
    }
    g_string_append (page, "</ul>");
}

static void add_repairs (GString *page, JsonObject *status)
{
    JsonObject *repairs = tool_part (status, "repairs");
    JsonArray *stripes = tool_list (repairs, "stripes");
    if (tool_length (stripes) == 0)
        return;
    page_add (page, "<p>%" PRIi64 " damaged stripes are to be rebuilt:</p><ul>", tool_number (repairs, "queued"));
    for (guint i = 0; i < MIN (tool_length (stripes), MOST_TOLD); i++) {
        JsonObject *stripe = json_array_get_object_element (stripes, i);
        g_autofree char *since = page_since (tool_number (stripe, "since"));
        page_add (page,
                  "<li><bdi>%s</bdi>: stripe %" PRIi64
                  " at <bdi>%s</bdi> is %s, known since %s<div class=\"dim\">%s</div></li>",
                  tool_text (stripe, "path"), tool_number (stripe, "stripe"), tool_text (stripe, "endpoint"),
                  tool_text (stripe, "state"), since, tool_text (stripe, "reason"));
    }
    g_string_append (page, "</ul>");
    if (*tool_text (repairs, "failure") != '\0')
        page_add (page, "<p>Tried again later: %s</p>", tool_text (repairs, "failure"));
}

static void add_waiting (GString *page, JsonObject *status)
{
    JsonObject *policy = tool_part (status, "policy");
    g_string_append (page, "<h2>What waits</h2>");
    gsize begin = page->len;
    add_backlog (page, status);
    add_repairs (page, status);
    if (tool_number (status, "deletions") > 0)
        page_add (page, "<p>%" PRIi64 " stripes wait to be deleted%s%s</p>", tool_number (status, "deletions"),
                  *tool_text (status, "deletions_wait") == '\0' ? "" : ": ", tool_text (status, "deletions_wait"));
    if (policy != NULL && tool_number (policy, "files") > 0)
        page_add (page, "<p>%" PRIi64 " files are to get another code: <code>ecfs policy</code> does it.</p>",
                  tool_number (policy, "files"));
    if (page->len == begin)
        g_string_append (page, "<p>Nothing.</p>");
}

/* Checks and the past */

static void add_scrub (GString *page, JsonObject *status)
{
    JsonObject *scrub = tool_part (status, "scrub");
    if (scrub == NULL)
        return;
    bool ended = json_object_has_member (scrub, "full_ended"), begun = json_object_has_member (scrub, "began");
    bool open = json_object_get_boolean_member_with_default (scrub, "open", FALSE);
    g_autofree char *full = page_since (tool_number (scrub, "full_ended")),
                    *began = page_since (tool_number (scrub, "began"));
    g_string_append (page, "<h2>Checks</h2>");
    if (ended)
        page_add (page, "<p>Every byte was last verified at <b>%s</b>.</p>", full);
    else
        g_string_append (page, "<p>Not everything was verified yet: <code>ecfs fsck --deep</code> does it.</p>");
    if (begun && open)
        page_add (page, "<p>A check begun at %s has verified %.1f%%.</p>", began,
                  tool_double (scrub, "verified") * 100);
    if (begun)
        page_add (page,
                  "<svg viewBox=\"0 0 600 16\" width=\"600\" height=\"16\" role=\"img\" aria-label=\"verified\"><rect "
                  "class=\"o\" "
                  "width=\"600\" height=\"16\"/><rect class=\"g\" width=\"%.0f\" height=\"16\"/></svg>",
                  600 * CLAMP (tool_double (scrub, "verified"), 0, 1));
    if (tool_number (scrub, "damaged") > 0)
        page_add (page, "<p class=\"bad\">%" PRIi64 " stripes were found damaged and still are.</p>",
                  tool_number (scrub, "damaged"));
}

static void add_past (GString *page, JsonObject *status)
{
    JsonObject *past = tool_part (status, "past"), *brake = tool_part (status, "brake");
    if (brake != NULL) {
        g_autoptr (GDateTime) end = g_date_time_new_from_unix_local ((gint64) tool_double (brake, "until"));
        g_autofree char *until = end == NULL ? g_strdup ("?") : g_date_time_format (end, "%F %R");
        page_add (page,
                  "<h2>A mass deletion</h2><p class=\"bad\">%" PRIi64 " of %" PRIi64
                  " files were deleted or overwritten within a short "
                  "time. All they had is kept until %s. To undo it:</p><pre>%s</pre>",
                  tool_number (brake, "lost"), tool_number (brake, "files"), until, tool_text (brake, "command"));
    }
    if (past != NULL && tool_number (past, "bytes") > 0) {
        g_autofree char *bytes = tool_bytes (tool_double (past, "bytes"));
        page_add (page,
                  "<h2>The past</h2><p>%s on all endpoints together is only of what was deleted or overwritten.</p>",
                  bytes);
    }
}

static void add_reads (GString *page, JsonObject *status)
{
    JsonObject *reads = tool_part (status, "reads");
    JsonArray *erasures = tool_list (reads, "erasures");
    guint n = tool_length (erasures);
    if (reads == NULL || !tool_knows_reads (status))
        return;
    g_autofree char *received = tool_bytes (tool_double (reads, "received_bytes"));
    g_autofree char *hedged = tool_bytes (tool_double (reads, "hedged_bytes"));
    page_add (page,
              "<h2>Reading, since the mount began</h2><p>%" PRIi64 " segments with %s; %" PRIi64
              " decoded from parity, %" PRIi64 " read around endpoints. %s came that was not needed in the end.</p>",
              tool_number (reads, "segments"), received, tool_number (reads, "decoded"),
              tool_number (reads, "degraded"), hedged);
    if (n > 0)
        g_string_append (page, "<p>Endpoints that were read around, the last first:</p><ul>");
    for (guint i = 0; i < MIN (n, MOST_TOLD); i++) {
        JsonObject *erasure = json_array_get_object_element (erasures, n - 1 - i);
        g_autofree char *when = page_since ((int64_t) tool_double (erasure, "begin"));
        page_add (page, "<li><bdi>%s</bdi>: %s, %s, %" PRIi64 " segments</li>", tool_text (erasure, "endpoint"),
                  tool_text (erasure, "why"), when, tool_number (erasure, "segments"));
    }
    if (n > 0)
        g_string_append (page, "</ul>");
}

static bool write_page (GString *page, JsonObject *status, const char *file, GError **error)
{
    g_autofree char *directory = g_shell_quote (tool_text (status, "directory")), *word = g_shell_quote (file);
    g_autofree char *command = g_strdup_printf ("ecfs status --html %s %s", word, directory);
    return page_write (page, command, file, error);
}

bool page_status (JsonObject *status, const char *file, GError **error)
{
    g_autofree char *title = g_strdup_printf ("%s: %s", tool_text (status, "verdict"), tool_text (status, "directory"));
    JsonObject *survey = tool_part (status, "survey");
    g_autoptr (GArray) rows = rows_of (status);
    GString *page = page_new (title);
    page_add (page, "<h1><bdi>%s</bdi></h1><p class=\"dim\">archive %s, %s, new files %s</p>\n",
              tool_text (status, "directory"), tool_text (status, "archive"),
              json_object_get_boolean_member_with_default (status, "mounted", FALSE) ? "mounted"
              : tool_follows (status)                                                ? "mounted, following"
              : json_object_has_member (status, "silent_mount")                      ? "mounted, without an answer"
                                                                                     : "not mounted",
              tool_text (status, "code"));
    page_add_report (page, tool_part (status, "report"));
    add_problem (page, status);
    add_tiles (page, status);
    add_endpoints (page, rows);
    if (survey != NULL) {
        add_losses (page, survey, rows);
        add_files (page, survey);
        add_map (page, rows);
    } else {
        g_string_append (
            page, "<p class=\"dim\">The mount is of an earlier ecfs: it does not tell how safe each file is.</p>");
    }
    add_others (page, status);
    add_waiting (page, status);
    add_scrub (page, status);
    add_past (page, status);
    add_reads (page, status);
    return write_page (page, status, file, error);
}

bool page_status_broken (JsonObject *facts, const char *file, GError **error)
{
    g_autofree char *title = g_strdup_printf ("broken: %s", tool_text (facts, "directory"));
    GString *page = page_new (title);
    page_add (page, "<h1><bdi>%s</bdi></h1>\n", tool_text (facts, "directory"));
    add_problem (page, facts);
    return write_page (page, facts, file, error);
}
