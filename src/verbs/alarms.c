#include "verbs/alarms.h"

#include "archive/common.h"
#include "catalog/brake.h"
#include "util/ticker.h"
#include "verbs/status.h"
#include "verbs/verbs.h"
#include "verbs/verdict_priv.h"

#include <inttypes.h>

#define LOOK_US     (10 * G_USEC_PER_SEC)  /* whether something has changed, … */
#define REST_US     (60 * G_USEC_PER_SEC)  /* … and at all, which asks endpoints */
#define COST        100                    /* times what a look took is waited at least */
#define PATIENCE_US 1000000                /* with endpoints that do not answer; others know what is down */
#define LATE_LEAST  900                    /* seconds that the recovery point may be behind, and … */
#define LATE_TIMES  10                     /* … how many times journal_interval, if that is longer */
#define TELL_US     (120 * G_USEC_PER_SEC) /* that who tells once waits for the command */

struct EcfsAlarms {
    EcfsArchive *archive; /* immutable, as the next two */
    EcfsEvents *events;
    EcfsTicker *ticker; /* NULL: nobody wants to be told */
    /* The ticker's. */
    int64_t next_us; /* not before that, whatever it costs, … */
    int64_t rest_us; /* … and without a change not before that */
    uint64_t seen;   /* of what is cheap to look at, what it was */
    uint32_t kinds;  /* of problems, as the last look had them */
};

/* Kinds of problems that are told by their own names; what else there is has a source of its own below. */
static const char *const told_kinds[] = {"old-copy", "in-doubt", "catalog", "key",      "not-stored", "crowded",
                                         "gap",      "history",  "shrunk",  "given-up", "no-place",   "exposed"};
static const char *const told_of_endpoints[] = {"full", "spent", "contradicts", "false-marker"};

/* What is wrong, and what to do; g_free () */
static char *text_of (JsonObject *problem)
{
    const char *action = ecfs_verdict_text (problem, "action");
    return g_strconcat (ecfs_verdict_text (problem, "reason"), ". ", ecfs_verdict_text (problem, "meaning"), " ",
                        ecfs_verdict_text (problem, "advice"), *action == '\0' ? "" : " ", action, NULL);
}

/* The first problem of a kind, at an endpoint where one is named; NULL: there is none. */
static JsonObject *problem_of (JsonObject *status, const char *kind, const char *endpoint)
{
    JsonArray *problems = json_object_get_array_member (status, "problems");
    for (guint i = 0; i < json_array_get_length (problems); i++) {
        JsonObject *problem = json_array_get_object_element (problems, i);
        if (g_str_equal (ecfs_verdict_text (problem, "kind"), kind) &&
            (endpoint == NULL || g_str_equal (ecfs_verdict_text (problem, "endpoint"), endpoint)))
            return problem;
    }
    return NULL;
}

static void note_problem (EcfsEvents *events, const char *event, const char *endpoint, JsonObject *problem)
{
    g_autofree char *text = problem == NULL ? NULL : text_of (problem);
    ecfs_events_note (events, event, endpoint, problem == NULL ? NULL : "so", text == NULL ? "" : text);
}

/* What @seen, a bit for each kind, has not yet is told at the next look, if it is still so: much is so for a moment. */
static void take_kinds (EcfsEvents *events, JsonObject *status, uint32_t *seen)
{
    uint32_t now = 0;
    for (size_t i = 0; i < G_N_ELEMENTS (told_kinds); i++) {
        JsonObject *problem = problem_of (status, told_kinds[i], NULL);
        now |= problem == NULL ? 0 : UINT32_C (1) << i;
        if (problem == NULL || seen == NULL || (*seen & UINT32_C (1) << i) != 0)
            note_problem (events, told_kinds[i], "", problem);
    }
    if (seen != NULL)
        *seen = now;
}

static void take_problems (EcfsEvents *events, JsonObject *status)
{
    JsonArray *endpoints = json_object_get_array_member (status, "endpoints");
    for (size_t i = 0; i < G_N_ELEMENTS (told_of_endpoints); i++)
        for (guint j = 0; j < json_array_get_length (endpoints); j++) {
            const char *name = ecfs_verdict_text (json_array_get_object_element (endpoints, j), "name");
            note_problem (events, told_of_endpoints[i], name, problem_of (status, told_of_endpoints[i], name));
        }
}

/* No further loss may come, for objects that once could bear one. */
static void take_guarantee (EcfsEvents *events, JsonObject *status)
{
    JsonObject *objects = ecfs_verdict_part (status, "objects");
    int64_t guarantee = objects == NULL ? 1 : json_object_get_int_member_with_default (objects, "guarantee", 1);
    bool low =
        guarantee <= 0 && ecfs_verdict_number (objects, "degraded") + ecfs_verdict_number (objects, "unreadable") > 0;
    g_autofree char *sign = g_strdup_printf ("%" PRIi64, guarantee);
    JsonObject *worst = low ? status : NULL; /* has the members of its worst problem */
    g_autofree char *text = worst == NULL ? NULL : text_of (worst);
    ecfs_events_note (events, "low-guarantee", "", low ? sign : NULL, text == NULL ? "" : text);
}

static void take_recovery_point (EcfsEvents *events, JsonObject *status, int64_t late_s)
{
    JsonObject *point = ecfs_verdict_part (status, "recovery_point");
    int64_t pending = point == NULL ? 0 : ecfs_verdict_number (point, "pending");
    int64_t time_s = point == NULL ? 0 : ecfs_verdict_number (point, "time");
    int64_t age_s = g_get_real_time () / G_USEC_PER_SEC - time_s;
    bool old = pending > 0 && time_s > 0 && age_s > late_s;
    g_autofree char *text =
        g_strdup_printf ("%" PRIi64 " changes of names and places are on this machine alone, the oldest for %" PRIi64
                         " minutes: without it they are lost. 'ecfs wait' stores them, or says what keeps it from that",
                         pending, age_s / 60);
    ecfs_events_note (events, "recovery-point-old", "", old ? "so" : NULL, text);
}

static void take_brake (EcfsEvents *events, JsonObject *status)
{
    JsonObject *brake = ecfs_verdict_part (status, "brake");
    g_autofree char *text =
        brake == NULL
            ? NULL
            : g_strdup_printf ("%" PRIi64 " of %" PRIi64 " files were deleted or overwritten within an hour. All they "
                               "had is kept for a while. To undo it: %s",
                               ecfs_verdict_number (brake, "lost"), ecfs_verdict_number (brake, "files"),
                               ecfs_verdict_text (brake, "command"));
    ecfs_events_note (events, "mass-deletion", "", brake == NULL ? NULL : ecfs_verdict_text (brake, "moment"),
                      text == NULL ? "" : text);
}

/* What a mount's watch sees by itself. */
static void take_watched (EcfsEvents *events, JsonObject *status)
{
    JsonArray *endpoints = json_object_get_array_member (status, "endpoints");
    JsonObject *damage = problem_of (status, "damaged", NULL);
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        bool away = ecfs_status_is_away (endpoint, false);
        ecfs_events_note (events, "down", ecfs_verdict_text (endpoint, "name"), away ? "so" : NULL,
                          ecfs_verdict_text (endpoint, "reason"));
    }
    note_problem (events, "damaged", "", damage);
}

void ecfs_alarms_take (EcfsEvents *events, JsonObject *status, uint32_t *seen, int64_t point_late_s)
{
    take_kinds (events, status, seen);
    take_problems (events, status);
    take_guarantee (events, status);
    take_recovery_point (events, status, point_late_s);
    take_brake (events, status);
    if (seen == NULL)
        take_watched (events, status);
}

static int64_t point_late_s (const EcfsArchive *archive)
{
    const int64_t interval_s = ecfs_archive_config (archive)->journal_interval_us / G_USEC_PER_SEC;
    return MAX (LATE_LEAST, LATE_TIMES * interval_s);
}

static void mix (uint64_t *hash, uint64_t value)
{
    *hash = (*hash ^ value) * 0x100000001b3;
}

/* Endpoints, damage and a mass deletion, as one number. */
static uint64_t glance (EcfsArchive *archive)
{
    EcfsBrake brake = {.until_age_ns = 0};
    uint64_t hash = 0xcbf29ce484222325, n_queued = 0;
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++) {
        EcfsEndpointHealth health = {.down = true};
        if (ecfs_archive_endpoint (archive, i)->endpoint != NULL)
            ecfs_endpoint_health (ecfs_archive_endpoint (archive, i)->endpoint, &health);
        mix (&hash, health.down + 2U * health.full + 4U * health.refuses + 8U * health.spent + 16U * health.takes_none);
        ecfs_endpoint_health_clear (&health);
    }
    /* Where the catalog cannot be asked, the next full look says so. */
    (void) ecfs_catalog_repairs_count (ecfs_archive_catalog (archive), &n_queued, NULL);
    (void) ecfs_catalog_brake (ecfs_archive_catalog (archive), &brake, NULL);
    mix (&hash, n_queued);
    mix (&hash, brake.until_age_ns > 0);
    return hash;
}

static void look (void *user)
{
    EcfsAlarms *self = user;
    g_autoptr (GError) error = NULL;
    int64_t begun_us = ecfs_now_us ();
    if (begun_us < self->next_us)
        return;
    uint64_t seen = glance (self->archive);
    if (seen == self->seen && begun_us < self->rest_us)
        return;
    self->seen = seen;
    self->rest_us = begun_us + REST_US;
    g_autoptr (JsonObject) status = ecfs_archive_status (self->archive, PATIENCE_US, false, &error);
    self->next_us = ecfs_now_us () + COST * (ecfs_now_us () - begun_us);
    if (status == NULL) {
        g_info ("%s", error->message); /* tried again; who asks for the status is told */
        return;
    }
    json_object_set_boolean_member (status, "mounted", TRUE);
    ecfs_status_judge (status);
    ecfs_alarms_take (self->events, status, &self->kinds, point_late_s (self->archive));
}

EcfsAlarms *ecfs_alarms_start (EcfsArchive *archive, EcfsEvents *events)
{
    EcfsAlarms *self = g_new0 (EcfsAlarms, 1);
    self->archive = archive;
    self->events = events;
    self->next_us = ecfs_now_us () + LOOK_US; /* endpoints are being connected to */
    if (ecfs_events_wanted (events))
        self->ticker = ecfs_ticker_start (LOOK_US, look, self);
    return self;
}

void ecfs_alarms_stop (EcfsAlarms *self)
{
    if (self == NULL)
        return;
    ecfs_ticker_stop (self->ticker);
    g_free (self);
}

bool ecfs_tell_events (Ecfs *self, const char *status, const char *report, GError **error)
{
    EcfsEvents *events = ecfs_events_new (self->archive);
    EcfsEventsFacts facts = {.failure = NULL};
    const int64_t begun_s = g_get_real_time () / G_USEC_PER_SEC;
    g_autoptr (JsonNode) node = ecfs_events_wanted (events) ? json_from_string (status, error) : NULL;
    if (node != NULL && JSON_NODE_HOLDS_OBJECT (node)) {
        JsonObject *object = json_node_get_object (node);
        if (!json_object_get_boolean_member_with_default (object, "mounted", FALSE))
            ecfs_alarms_take (events, object, NULL, point_late_s (self->archive));
        ecfs_events_note (events, "report", "", report, report == NULL ? "" : report);
        ecfs_events_await (events, ecfs_now_us () + TELL_US);
        ecfs_events_facts (self->archive, &facts);
    }
    bool good = !ecfs_events_wanted (events) || node != NULL;
    ecfs_events_free (events);
    if (facts.failure != NULL && facts.failed_s >= begun_s)
        good = ecfs_fail (error, EIO, "on_event: %s", facts.failure);
    ecfs_events_facts_clear (&facts);
    return good;
}
