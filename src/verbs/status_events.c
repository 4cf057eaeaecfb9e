/* What became of the command that is told of events, for status. */
#include "archive/events.h"
#include "verbs/status_priv.h"

void ecfs_status_add_events (JsonObject *status, EcfsArchive *archive)
{
    EcfsEventsFacts facts;
    ecfs_events_facts (archive, &facts);
    if (facts.told_s > 0) {
        JsonObject *events = json_object_new ();
        json_object_set_int_member (events, "time", facts.told_s);
        ecfs_status_add_text (events, "told", facts.told == NULL ? "" : facts.told);
        if (facts.failure != NULL) {
            ecfs_status_add_text (events, "failure", facts.failure);
            json_object_set_int_member (events, "failed", facts.failed_s);
        }
        json_object_set_object_member (status, "events", events);
    }
    ecfs_events_facts_clear (&facts);
}
