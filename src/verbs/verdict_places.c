/* What the facts of a status say of endpoints that take no stripes, or whose stripes do not count. */
#include "verbs/verdict_priv.h"

#include <inttypes.h>

bool ecfs_verdict_gives_up (JsonObject *endpoint)
{
    const char *state = ecfs_verdict_text (endpoint, "state");
    return g_str_equal (state, "failed") || g_str_equal (state, "distrusted");
}

/* "cedar is draining, delta is distrusted": what takes no stripes by anybody's decision; g_free () */
static char *who_takes_nothing (EcfsStatusVerdict *self, bool only_given_up)
{
    static const char *const words[] = {"readonly", "draining", "failed", "distrusted", "unconfigured", NULL};
    GString *text = g_string_new (NULL);
    JsonArray *endpoints = json_object_get_array_member (self->status, "endpoints");
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        const char *state = ecfs_verdict_text (endpoint, "state");
        if (only_given_up ? ecfs_verdict_gives_up (endpoint) : g_strv_contains (words, state))
            g_string_append_printf (text, "%s%s is %s", text->len == 0 ? "" : ", ",
                                    ecfs_verdict_text (endpoint, "name"), state);
    }
    return g_string_free (text, FALSE);
}

void ecfs_verdict_judge_given_up (EcfsStatusVerdict *self)
{
    JsonObject *objects = ecfs_verdict_part (self->status, "objects");
    int64_t n_given_up = objects == NULL ? 0 : ecfs_verdict_number (objects, "given_up");
    g_autofree char *names = who_takes_nothing (self, true);
    if (n_given_up == 0)
        return;
    EcfsStatusProblem problem = {.kind = "given-up", .meaning = ecfs_verdict_safety (self)};
    problem.check = ecfs_verdict_badness (self, &problem.verdict);
    problem.reason = g_strdup_printf ("%" PRIi64 " objects have stripes that count as lost%s%s", n_given_up,
                                      *names == '\0' ? "" : ": ", names);
    if (ecfs_verdict_number (objects, "no_place") > 0) {
        problem.advice = g_strdup ("No endpoint is left that could take them. Add one, then run 'ecfs fsck -y':");
        problem.action = g_strdup_printf ("ecfs endpoint add %s NAME=URL", self->directory);
    } else {
        problem.advice = g_strdup ("Rebuild them elsewhere from the others:");
        problem.action = g_strdup_printf ("ecfs fsck -y %s", self->directory);
    }
    ecfs_verdict_add (self, &problem);
}

void ecfs_verdict_judge_no_place (EcfsStatusVerdict *self)
{
    JsonObject *objects = ecfs_verdict_part (self->status, "objects");
    int64_t n_lacking = objects == NULL ? 0 : ecfs_verdict_number (objects, "no_place");
    if (n_lacking == 0 || ecfs_verdict_number (objects, "given_up") > 0)
        return;
    g_autofree char *names = who_takes_nothing (self, false);
    EcfsStatusProblem problem = {.kind = "no-place", .meaning = ecfs_verdict_safety (self)};
    problem.check = ecfs_verdict_badness (self, &problem.verdict);
    problem.reason = g_strdup_printf ("%" PRIi64 " objects lack stripes that no endpoint is left for%s%s", n_lacking,
                                      *names == '\0' ? "" : ": ", names);
    problem.advice = g_strdup ("Add an endpoint; a mount, or 'ecfs fsck -y', stores what they lack then:");
    problem.action = g_strdup_printf ("ecfs endpoint add %s NAME=URL", self->directory);
    ecfs_verdict_add (self, &problem);
}
