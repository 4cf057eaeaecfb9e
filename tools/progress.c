/* How far a verb is: rates over the last seconds, time left, and the forms in which it is shown. */
#include "progress.h"
#include "tool.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define REDRAW_US  (G_USEC_PER_SEC / 4)
#define PATIENT_US G_USEC_PER_SEC /* what takes less shows nothing */
#define LINES_US   (10 * G_USEC_PER_SEC)
#define JSON_US    G_USEC_PER_SEC
#define SAMPLE_US  (G_USEC_PER_SEC / 4)
/* Before that, a rate is that of opening connections. */
#define EARLY_US   (3 * G_USEC_PER_SEC)
#define MEANS_US   (2 * G_USEC_PER_SEC)
#define LEAST_COLS 20

/* Figures */

static bool by_bytes (const ToolStep *step)
{
    return step->bytes_all > 0;
}

/* Files count when they are done, which for a large one is late: what went over the wire tells more. */
static double done_of (const ToolStep *step)
{
    double done = (double) step->bytes_done;
    if (!by_bytes (step))
        return (double) step->n_done;
    if (step->wire_factor > 0)
        done = MAX (done, (double) step->wire_bytes / step->wire_factor);
    return MIN (done, (double) step->bytes_all);
}

static const ToolSample *oldest (const ToolProgress *self)
{
    unsigned back = self->n_samples - 1;
    return &self->samples[(self->newest + TOOL_PROGRESS_SAMPLES - back) % TOOL_PROGRESS_SAMPLES];
}

/* Of what is done, or of the wire. */
static double rate_of (const ToolProgress *self, bool wire)
{
    if (self->n_samples < 2)
        return 0;
    const ToolSample *first = oldest (self), *last = &self->samples[self->newest];
    double seconds = (double) (last->time_us - first->time_us) / 1e6;
    double moved = wire ? last->wire - first->wire : last->done - first->done;
    return seconds <= 0 || moved <= 0 ? 0 : moved / seconds;
}

double tool_progress_rate (const ToolProgress *self)
{
    return rate_of (self, false);
}

double tool_progress_left (const ToolProgress *self)
{
    const ToolStep *step = &self->last;
    double rate = tool_progress_rate (self), done = done_of (step);
    double all = by_bytes (step) ? (double) step->bytes_all : step->grows ? 0 : (double) step->n_all;
    if (self->n_samples < 2 || rate <= 0 || done >= all)
        return -1;
    int64_t now_us = self->samples[self->newest].time_us;
    if (now_us - self->phase_us < EARLY_US || now_us - oldest (self)->time_us < MEANS_US)
        return -1;
    return (all - done) / rate;
}

static void take_sample (ToolProgress *self, int64_t now_us)
{
    if (self->n_samples > 0 && now_us - self->samples[self->newest].time_us < SAMPLE_US)
        return;
    self->newest = self->n_samples == 0 ? 0 : (self->newest + 1) % TOOL_PROGRESS_SAMPLES;
    self->n_samples = MIN (self->n_samples + 1, TOOL_PROGRESS_SAMPLES);
    self->samples[self->newest] =
        (ToolSample){.time_us = now_us, .done = done_of (&self->last), .wire = (double) self->last.wire_bytes};
}

/* Text */

static char *count_text (const ToolProgress *self)
{
    const ToolStep *step = &self->last;
    g_autoptr (GString) text = g_string_new (self->phase);
    if (text->len > 0)
        g_string_append (text, ": ");
    g_string_append_printf (text, "%" PRIu64, step->n_done);
    if (step->n_all > 0)
        g_string_append_printf (text, " of %" PRIu64, MAX (step->n_all, step->n_done));
    if (step->things != NULL)
        g_string_append_printf (text, " %s", step->things);
    return g_string_free (g_steal_pointer (&text), FALSE);
}

static char *bytes_text (const ToolProgress *self)
{
    const ToolStep *step = &self->last;
    g_autofree char *done = tool_bytes (by_bytes (step) ? done_of (step) : (double) step->bytes_done);
    g_autofree char *all = tool_bytes ((double) step->bytes_all);
    if (by_bytes (step))
        return g_strdup_printf (", %s of %s", done, all);
    return step->bytes_done > 0 ? g_strdup_printf (", %s", done) : NULL;
}

/* Of content where its size is known, else of the wire. */
static char *rate_text (const ToolProgress *self)
{
    double rate = rate_of (self, !by_bytes (&self->last));
    g_autofree char *text = tool_bytes (rate);
    return rate > 0 ? g_strdup_printf (", %s/s", text) : NULL;
}

static char *left_text (const ToolProgress *self)
{
    double seconds = tool_progress_left (self);
    g_autofree char *text = tool_seconds (ceil (seconds));
    return seconds < 0 ? NULL : g_strdup_printf (", %s left", text);
}

static char *wire_text (const ToolProgress *self)
{
    g_autofree char *text = tool_bytes ((double) self->last.wire_bytes);
    return self->last.wire_bytes == 0 ? NULL : g_strdup_printf (", %s on the wire", text);
}

char *tool_progress_text (const ToolProgress *self, unsigned columns)
{
    enum { COUNT, BYTES, RATE, LEFT, WIRE, N_PARTS };
    static const int first_to_go[] = {WIRE, BYTES, RATE, LEFT};
    char *parts[N_PARTS] = {count_text (self), bytes_text (self), rate_text (self), left_text (self), wire_text (self)};
    size_t n = 0;
    for (int i = 0; i < N_PARTS; i++)
        n += parts[i] == NULL ? 0 : strlen (parts[i]); /* they are ASCII */
    for (size_t i = 0; i < G_N_ELEMENTS (first_to_go) && n > columns; i++) {
        char **part = &parts[first_to_go[i]];
        n -= *part == NULL ? 0 : strlen (*part);
        g_clear_pointer (part, g_free);
    }
    g_autoptr (GString) text = g_string_new (NULL);
    for (int i = 0; i < N_PARTS; i++) {
        g_string_append (text, parts[i] == NULL ? "" : parts[i]);
        g_free (parts[i]);
    }
    g_string_truncate (text, MIN (text->len, columns));
    return g_string_free (g_steal_pointer (&text), FALSE);
}

/* Forms */

static unsigned terminal_columns (void)
{
    struct winsize size;
    if (ioctl (STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return 80;
    return MAX (size.ws_col, LEAST_COLS);
}

static void add_count (JsonObject *object, const char *member, uint64_t count)
{
    json_object_set_int_member (object, member, (int64_t) MIN (count, G_MAXINT64));
}

static void print_json (const ToolProgress *self, const char *event, int64_t now_us)
{
    const ToolStep *step = &self->last;
    JsonObject *object = json_object_new ();
    json_object_set_string_member (object, "event", event);
    json_object_set_string_member (object, "verb", self->verb);
    json_object_set_double_member (object, "seconds", (double) (now_us - self->begin_us) / 1e6);
    if (self->phase[0] != '\0')
        json_object_set_string_member (object, "phase", self->phase);
    if (step->things != NULL)
        json_object_set_string_member (object, "things", step->things);
    add_count (object, "done", step->n_done);
    if (step->n_all > 0)
        add_count (object, step->grows ? "found" : "all", step->n_all);
    add_count (object, "bytes_done", (uint64_t) (by_bytes (step) ? done_of (step) : (double) step->bytes_done));
    if (by_bytes (step))
        add_count (object, "bytes_all", step->bytes_all);
    add_count (object, "wire_bytes", step->wire_bytes);
    double rate = rate_of (self, !by_bytes (step)), left = tool_progress_left (self);
    if (rate > 0)
        json_object_set_double_member (object, "bytes_per_s", rate);
    if (left >= 0)
        json_object_set_double_member (object, "seconds_left", left);
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, object);
    g_autofree char *text = json_to_string (node, FALSE);
    fprintf (stderr, "%s\n", text);
}

static void show (ToolProgress *self, int64_t now_us)
{
    if (self->form == TOOL_PROGRESS_JSON) {
        print_json (self, "progress", now_us);
        return;
    }
    bool line = self->form == TOOL_PROGRESS_LINE;
    /* The last column stays free: some terminals go to the next line there. */
    g_autofree char *text = tool_progress_text (self, line ? terminal_columns () - 1 : 1000);
    if (line)
        fprintf (stderr, "\r\033[K%s", text);
    else
        tool_say (self->verb, "%s", text);
    self->shown = line;
    self->printed = self->printed || !line;
}

/* "lines", "json:5s" */
static bool parse_form (const char *text, ToolProgressForm *ret_form, int64_t *ret_interval_us)
{
    const char *colon = strchr (text, ':');
    g_autofree char *name = colon == NULL ? g_strdup (text) : g_strndup (text, (size_t) (colon - text));
    int64_t interval_us = 0;
    bool json = strcmp (name, "json") == 0;
    if (strcmp (text, "none") == 0) {
        *ret_form = TOOL_PROGRESS_NONE;
        return true;
    }
    if (!json && strcmp (name, "lines") != 0)
        return false;
    if (colon != NULL && (!ecfs_parse_duration (colon + 1, &interval_us) || interval_us <= 0))
        return false;
    *ret_form = json ? TOOL_PROGRESS_JSON : TOOL_PROGRESS_LINES;
    *ret_interval_us = colon != NULL ? interval_us : json ? JSON_US : LINES_US;
    return true;
}

void tool_progress_begin (ToolProgress *self, const char *verb, bool quiet)
{
    const char *wish = getenv ("ECFS_PROGRESS"), *terminal = getenv ("TERM");
    bool can_clear = isatty (STDERR_FILENO) && g_strcmp0 (terminal, "dumb") != 0;
    *self = (ToolProgress){.verb = verb,
                           .form = can_clear && !quiet ? TOOL_PROGRESS_LINE : TOOL_PROGRESS_NONE,
                           .interval_us = REDRAW_US,
                           .begin_us = g_get_monotonic_time ()};
    self->phase_us = self->begin_us;
    if (wish != NULL && *wish != '\0' && strcmp (wish, "auto") != 0 &&
        !parse_form (wish, &self->form, &self->interval_us))
        tool_say (verb, "ECFS_PROGRESS is none, auto, lines or json, and may end with a time, as in lines:30s; it is "
                        "ignored");
    self->next_us = self->begin_us + MAX (self->form == TOOL_PROGRESS_LINE ? PATIENT_US : 0, self->interval_us);
}

bool tool_progress_is_shown (const ToolProgress *self)
{
    return self->form != TOOL_PROGRESS_NONE;
}

/* What was measured of another phase says nothing of this one. */
static void enter_phase (ToolProgress *self, const char *phase, int64_t now_us)
{
    if (strncmp (self->phase, phase, sizeof self->phase - 1) == 0)
        return;
    g_strlcpy (self->phase, phase, sizeof self->phase);
    self->phase_us = now_us;
    self->n_samples = 0;
}

void tool_progress_tell (ToolProgress *self, const ToolStep *step)
{
    int64_t now_us = g_get_monotonic_time ();
    if (self->form == TOOL_PROGRESS_NONE)
        return;
    enter_phase (self, step->phase == NULL ? "" : step->phase, now_us);
    self->last = *step;
    self->last.phase = NULL;
    self->told = true;
    take_sample (self, now_us);
    if (now_us < self->next_us)
        return;
    self->next_us = now_us + self->interval_us;
    show (self, now_us);
}

void tool_progress_clear (ToolProgress *self)
{
    if (self->shown)
        fputs ("\r\033[K", stderr);
    self->shown = false;
}

void tool_progress_end (ToolProgress *self)
{
    tool_progress_clear (self);
    if (self->told && self->form == TOOL_PROGRESS_JSON)
        print_json (self, "end", g_get_monotonic_time ());
    else if (self->told && self->printed)
        show (self, g_get_monotonic_time ());
    self->form = TOOL_PROGRESS_NONE;
}
