/* report: what a night's check, drill and status say, for a mail */
#include "page_status.h"
#include "report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPORT_WELL = 0, REPORT_FINDINGS = 1, REPORT_BAD = 3 };

#define DEFAULT_SCRUB    "4%" /* everything within a month of nights */
#define DEFAULT_SAMPLE   "1%"
#define DEFAULT_POINT    "1h"
#define DEFAULT_AWAY     "1h"
#define DEFAULT_VERIFIED "90d"
#define DEFAULT_FULL     "95%"

typedef struct Options {
    char *scrub, *sample, *rate, *max_time, *point, *away, *verified, *full, *html;
    gint64 damaged, guarantee, seed;
    gboolean repair, json;
    /* Of these texts, as they are meant. */
    double scrub_part, sample_part;
    uint64_t bytes_per_s;
    int64_t max_time_us;
    ReportLimits limits;
} Options;

/* What was found out; strings and objects are owned. */
typedef struct Night {
    const Verb *verb;
    const Options *options;
    char *directory;
    ToolWatch watch;
    JsonObject *status, *scrub, *drill;
    char *scrub_error, *drill_error;
    bool is_checked_elsewhere;
    int64_t may_vanish;
} Night;

static bool parse_part (const char *text, double *ret_part)
{
    char *end;
    double percent = g_ascii_strtod (text, &end);
    *ret_part = percent / 100;
    return end != text && (*end == '\0' || strcmp (end, "%") == 0) && percent >= 0 && percent <= 100;
}

static bool parse_seconds (const char *text, int64_t *ret_s)
{
    int64_t us = 0;
    bool good = ecfs_parse_duration (text, &us);
    *ret_s = us / G_USEC_PER_SEC;
    return good;
}

static const char *or_default (const char *text, const char *preset)
{
    return text == NULL ? preset : text;
}

/* NULL, or what is wrong. */
static const char *parse_texts (Options *options)
{
    ReportLimits *limits = &options->limits;
    limits->damaged = options->damaged;
    limits->guarantee = options->guarantee;
    if (!parse_part (or_default (options->scrub, DEFAULT_SCRUB), &options->scrub_part))
        return "--scrub takes a percentage, such as 4%";
    if (!parse_part (or_default (options->sample, DEFAULT_SAMPLE), &options->sample_part))
        return "--sample takes a percentage, such as 1%";
    if (!parse_part (or_default (options->full, DEFAULT_FULL), &limits->full))
        return "--full takes a percentage, such as 95%";
    if (!parse_seconds (or_default (options->point, DEFAULT_POINT), &limits->point_s))
        return "--recovery-age takes a duration, such as 1h";
    if (!parse_seconds (or_default (options->away, DEFAULT_AWAY), &limits->away_s))
        return "--away takes a duration, such as 1h";
    if (!parse_seconds (or_default (options->verified, DEFAULT_VERIFIED), &limits->verified_s))
        return "--verified takes a duration, such as 90d";
    if (options->rate != NULL && (!ecfs_parse_size (options->rate, &options->bytes_per_s) || options->bytes_per_s == 0))
        return "--bwlimit takes bytes per second, such as 10M";
    if (options->max_time != NULL &&
        (!ecfs_parse_duration (options->max_time, &options->max_time_us) || options->max_time_us <= 0))
        return "--max-time takes a duration, such as 4h";
    if (options->damaged < 0)
        return "--damaged takes a number of stripes";
    return NULL;
}

/* A check of all stripes' presence, and of the bytes of a share */

static bool on_progress (void *user, const EcfsFsckProgress *progress)
{
    Night *self = user;
    return tool_watch_tick (&self->watch, progress->phase, progress->n_done, progress->n_all);
}

/* False: interrupted. */
static bool scrub (Night *self, Ecfs *ecfs)
{
    const Options *options = self->options;
    g_autoptr (GError) error = NULL;
    const EcfsFsck what = {.flags = ECFS_FSCK_DEEP | ECFS_FSCK_QUEUE | (options->repair ? ECFS_FSCK_REPAIR : 0),
                           .share = options->scrub_part,
                           .bytes_per_s = options->bytes_per_s,
                           .max_time_us = options->max_time_us,
                           .progress = on_progress,
                           .user = self};
    if (options->scrub_part <= 0)
        return true;
    g_autofree char *text = ecfs_fsck (ecfs, &what, &error);
    if (text != NULL)
        self->scrub = tool_json_object (text);
    else if (error->code == EALREADY)
        self->is_checked_elsewhere = true;
    else
        self->scrub_error = g_strdup (error->message);
    return text != NULL || error->code != ECANCELED;
}

/* A drill */

/* The endpoints to do without: those that are away, and by chance others, as many in all as may vanish. */
static GPtrArray *choose (Night *self, GRand *random)
{
    JsonArray *endpoints = tool_list (self->status, "endpoints");
    GPtrArray *chosen = g_ptr_array_new (), *others = g_ptr_array_new ();
    for (guint i = 0; i < tool_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        bool away = tool_is_away (self->status, endpoint);
        g_ptr_array_add (away ? chosen : others, (char *) tool_text (endpoint, "name"));
    }
    while ((int64_t) chosen->len < self->may_vanish && others->len > 0) {
        guint i = (guint) g_rand_int_range (random, 0, (gint32) others->len);
        g_ptr_array_add (chosen, g_ptr_array_remove_index_fast (others, i));
    }
    g_ptr_array_unref (others);
    g_ptr_array_add (chosen, NULL);
    return chosen;
}

static bool on_transfer (void *user, const EcfsProgress *progress)
{
    Night *self = user;
    return tool_watch_tick (&self->watch, "drill", progress->n_done, progress->n_found);
}

/* The report of the drill counts them. */
static void on_problem (void *user, const GError *error, bool warning)
{
    (void) user;
    (void) error;
    (void) warning;
}

/* False: interrupted. */
static bool rehearse (Night *self, Ecfs *ecfs)
{
    bool good;
    g_autoptr (GError) error = NULL;
    uint64_t seed = self->options->seed != 0 ? (uint64_t) self->options->seed : (uint64_t) g_random_int () + 1;
    if (self->options->sample_part <= 0 || self->may_vanish == 0 || tool_number (self->status, "files") == 0)
        return true;
    GRand *random = g_rand_new_with_seed ((guint32) seed);
    g_autoptr (GPtrArray) without = choose (self, random);
    g_rand_free (random);
    const EcfsTransferOptions transfer = {.progress = on_transfer, .problem = on_problem, .user = self};
    const EcfsDrill what = {.without = (const char *const *) without->pdata,
                            .percent = self->options->sample_part * 100,
                            .seed = seed,
                            .transfer = &transfer};
    g_autofree char *text = ecfs_drill (ecfs, &what, &good, &error);
    if (text == NULL)
        self->drill_error = g_strdup (error->message);
    else
        self->drill = tool_json_object (text);
    return text != NULL || error->code != ECANCELED;
}

/* The report */

static bool take_status (Night *self, Ecfs *ecfs, GError **error)
{
    g_autofree char *text = ecfs_survey (ecfs, error);
    if (text == NULL)
        return false;
    if (self->status != NULL)
        json_object_unref (self->status);
    self->status = tool_json_object (text);
    return true;
}

/* What a code survives the loss of. */
static int64_t tolerance_of (const char *code)
{
    static const double always = 1;
    g_autofree char *text = ecfs_plan (code, &always, 1, NULL); /* then it is not known */
    g_autoptr (JsonObject) plan = text == NULL ? NULL : tool_json_object (text);
    return plan == NULL ? 0 : tool_number (plan, "tolerance");
}

/* Where stripes have no place now, as endpoints are missing, files were promised more. */
static void take_promise (Night *self)
{
    g_autofree char *text = ecfs_promise (self->directory, NULL); /* then nothing is promised */
    g_autoptr (JsonObject) promise = text == NULL ? NULL : tool_json_object (text);
    if (promise == NULL)
        return;
    self->may_vanish = tool_number (promise, "stripes_without_place") > 0
                           ? tolerance_of (tool_text (promise, "code"))
                           : tool_number (promise, "endpoints_may_vanish");
}

static int exit_status (JsonObject *report)
{
    return tool_number (report, "check") == 0   ? REPORT_WELL
           : tool_number (report, "check") == 1 ? REPORT_FINDINGS
                                                : REPORT_BAD;
}

static void print_json (const Night *self, JsonObject *report)
{
    JsonNode *node = json_node_new (JSON_NODE_OBJECT);
    if (self->scrub != NULL)
        json_object_set_object_member (report, "scrub", json_object_ref (self->scrub));
    if (self->drill != NULL)
        json_object_set_object_member (report, "drill", json_object_ref (self->drill));
    if (self->status != NULL)
        json_object_set_object_member (report, "status", json_object_ref (self->status));
    json_node_set_object (node, report);
    tool_print_json (node);
}

/* Who waits to be told of events, where no mount does it, and of what this report says. */
static int tell (const Night *self, Ecfs *ecfs, JsonObject *report)
{
    GError *error = NULL;
    JsonNode *node = json_node_new (JSON_NODE_OBJECT);
    json_node_set_object (node, self->status);
    g_autofree char *status = json_to_string (node, FALSE);
    json_node_unref (node);
    bool well = tool_number (report, "check") == 0;
    if (!ecfs_tell_events (ecfs, status, well ? NULL : tool_text (report, "headline"), &error))
        return tool_fail (self->verb->name, error, REPORT_FINDINGS);
    return REPORT_WELL;
}

static int conclude (Night *self, Ecfs *ecfs)
{
    GError *error = NULL;
    int64_t now_s = g_get_real_time () / G_USEC_PER_SEC;
    const ReportFacts facts = {.status = self->status,
                               .scrub = self->scrub,
                               .scrub_error = self->scrub_error,
                               .is_checked_elsewhere = self->is_checked_elsewhere,
                               .drill = self->drill,
                               .drill_error = self->drill_error,
                               .may_vanish = self->may_vanish,
                               .now_s = now_s};
    g_autoptr (JsonObject) report = report_judge (&facts, &self->options->limits);
    int result = exit_status (report);
    g_autofree char *text = report_text (report);
    json_object_set_object_member (self->status, "report", json_object_ref (report));
    if (self->options->html != NULL && !page_status (self->status, self->options->html, &error))
        result = MAX (tool_fail (self->verb->name, error, REPORT_FINDINGS), result);
    json_object_remove_member (self->status, "report"); /* which would have it in itself below */
    if (self->options->json)
        print_json (self, report);
    else
        fputs (text, stdout);
    fflush (stdout);
    int told = tell (self, ecfs, report);
    return MAX (result, told);
}

/* The archive cannot be opened, or does not say how it is. */
static int tell_broken (const Night *self, GError *error)
{
    GError *failure = NULL;
    g_autofree char *text = ecfs_diagnose (self->directory, error);
    g_autoptr (JsonObject) diagnosis = tool_json_object (text);
    g_autoptr (JsonObject) report = report_broken (diagnosis, g_get_real_time () / G_USEC_PER_SEC);
    g_autofree char *lines = report_text (report);
    g_error_free (error);
    if (self->options->json)
        print_json (self, report);
    else
        fputs (lines, stdout);
    if (self->options->html != NULL && !page_status_broken (diagnosis, self->options->html, &failure))
        (void) tool_fail (self->verb->name, failure, REPORT_BAD); /* which it is */
    return REPORT_BAD;
}

static int run (Night *self)
{
    GError *error = NULL;
    g_autoptr (Ecfs) ecfs = ecfs_open (self->directory, 0, &error);
    if (ecfs == NULL)
        return tell_broken (self, error);
    take_promise (self);
    tool_watch_begin (&self->watch, self->verb->name, self->options->json);
    bool done = scrub (self, ecfs);
    if (done && !take_status (self, ecfs, &error))
        return tell_broken (self, error);
    done = done && rehearse (self, ecfs);
    tool_watch_end (&self->watch);
    if (!done) {
        tool_say (self->verb->name, "cancelled; what was verified is noted, and the next one resumes there");
        return REPORT_FINDINGS;
    }
    if (!take_status (self, ecfs, &error)) /* once more: the drill may have met damage */
        return tell_broken (self, error);
    return conclude (self, ecfs);
}

static void night_clear (Night *self)
{
    g_clear_pointer (&self->status, json_object_unref);
    g_clear_pointer (&self->scrub, json_object_unref);
    g_clear_pointer (&self->drill, json_object_unref);
    g_free (self->scrub_error);
    g_free (self->drill_error);
    g_free (self->directory);
}

static void options_clear (Options *options)
{
    char *texts[] = {options->scrub, options->sample,   options->rate, options->max_time, options->point,
                     options->away,  options->verified, options->full, options->html};
    for (size_t i = 0; i < G_N_ELEMENTS (texts); i++)
        g_free (texts[i]);
}

int verb_report (const Verb *verb, int argc, char **argv)
{
    Options options = {.guarantee = -1};
    const GOptionEntry entries[] = {
        {"scrub", 0, 0, G_OPTION_ARG_STRING, &options.scrub,
         "Share of everything to read and verify (" DEFAULT_SCRUB "); 0: nothing is checked", "P%"},
        {"sample", 0, 0, G_OPTION_ARG_STRING, &options.sample,
         "Share of the objects to read without some endpoints (" DEFAULT_SAMPLE "); 0: none", "P%"},
        {"seed", 0, 0, G_OPTION_ARG_INT64, &options.seed, "Number that chooses endpoints and objects for that (random)",
         "N"},
        {"repair", 0, 0, G_OPTION_ARG_NONE, &options.repair, "Rebuild what the check finds lost or damaged", NULL},
        {"bwlimit", 0, 0, G_OPTION_ARG_STRING, &options.rate, "Read at most this many bytes per second for the check",
         "RATE"},
        {"max-time", 0, 0, G_OPTION_ARG_STRING, &options.max_time, "Stop checking after this time; the next resumes",
         "DURATION"},
        {"damaged", 0, 0, G_OPTION_ARG_INT64, &options.damaged, "Stripes that may be found damaged or gone (0)", "N"},
        {"guarantee", 0, 0, G_OPTION_ARG_INT64, &options.guarantee,
         "Endpoints that every file must survive the loss of (what its code promises)", "N"},
        {"recovery-age", 0, 0, G_OPTION_ARG_STRING, &options.point,
         "How long something may be on this machine alone (" DEFAULT_POINT ")", "DURATION"},
        {"away", 0, 0, G_OPTION_ARG_STRING, &options.away,
         "How long an endpoint may be away if no file is at risk (" DEFAULT_AWAY ")", "DURATION"},
        {"verified", 0, 0, G_OPTION_ARG_STRING, &options.verified,
         "Within how long everything must have been verified (" DEFAULT_VERIFIED ")", "DURATION"},
        {"full", 0, 0, G_OPTION_ARG_STRING, &options.full, "How full an endpoint may be (" DEFAULT_FULL ")", "P%"},
        {"html", 0, 0, G_OPTION_ARG_FILENAME, &options.html, "Also write a page for people to this file", "FILE"},
        {"json", 0, 0, G_OPTION_ARG_NONE, &options.json, "Print a JSON object", NULL},
        G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, entries, argc, argv, 1, 1);
    const char *wrong = parse_texts (&options);
    int result = TOOL_USAGE;
    if (wrong != NULL) {
        tool_say (verb->name, "%s", wrong);
    } else {
        Night night = {.verb = verb, .options = &options, .directory = tool_archive (argv[1])};
        result = run (&night);
        night_clear (&night);
    }
    options_clear (&options);
    return result;
}
