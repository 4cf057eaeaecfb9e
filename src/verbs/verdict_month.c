/* Endpoints whose account allows no more this month. */
#include "verbs/verdict_priv.h"

void ecfs_verdict_judge_spent (EcfsStatusVerdict *self)
{
    JsonArray *endpoints = json_object_get_array_member (self->status, "endpoints");
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        JsonObject *month = ecfs_verdict_part (endpoint, "month");
        if (!g_str_equal (ecfs_verdict_text (endpoint, "state"), "spent") || month == NULL)
            continue;
        bool takes_none = json_object_get_boolean_member (month, "requests_spent");
        ecfs_verdict_add (
            self, &(EcfsStatusProblem){.verdict = "degraded",
                                       .kind = "spent",
                                       .endpoint = ecfs_verdict_text (endpoint, "name"),
                                       .check = 1,
                                       .reason = g_strdup (ecfs_verdict_text (endpoint, "reason")),
                                       .meaning = g_strdup_printf ("Until the next month begins (UTC), it is read only "
                                                                   "where others have too little%s.",
                                                                   takes_none ? ", and gets no new stripes" : ""),
                                       .advice = g_strdup ("Wait, or raise the limit in ecfs.conf and mount again."),
                                       .action = NULL});
    }
}
