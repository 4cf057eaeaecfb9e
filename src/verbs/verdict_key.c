/* What the facts of a status say of the archive's key. */
#include "verbs/verdict_priv.h"

#include <inttypes.h>

void ecfs_verdict_judge_key_begun (EcfsStatusVerdict *self)
{
    bool rotates = json_object_has_member (self->status, "key_rotates");
    const char *verb = rotates ? "rotate" : "init";
    if (ecfs_verdict_cannot_follow (self)) /* and so does not know when it has ended */
        return;
    if (rotates || json_object_has_member (self->status, "key_begun"))
        ecfs_verdict_add (self,
                          &(EcfsStatusProblem){
                              .verdict = "at risk",
                              .kind = "key",
                              .check = 2,
                              .reason = g_strdup_printf ("'ecfs key %s' was interrupted, and nothing can be stored "
                                                         "until it has ended",
                                                         verb),
                              .meaning = ecfs_verdict_safety (self),
                              .advice = g_strdup (rotates ? "End it, with the options that it was given; if it cannot "
                                                            "end, it is taken back:"
                                                          : "End it, with the options that it was given:"),
                              .action = g_strdup_printf ("ecfs key %s %s", verb, self->directory)});
}

/* "a, b" of an array of names; g_free () */
static char *names_of (JsonArray *names)
{
    GString *text = g_string_new (NULL);
    for (guint i = 0; names != NULL && i < json_array_get_length (names); i++)
        g_string_append_printf (text, "%s%s", i == 0 ? "" : ", ", json_array_get_string_element (names, i));
    return g_string_free (text, FALSE);
}

static void advise_on_losses (EcfsStatusVerdict *self, JsonObject *key, const char *lacking, EcfsStatusProblem *problem)
{
    g_autofree char *twins = names_of (json_object_get_array_member (key, "twins"));
    if (*lacking != '\0') {
        problem->advice = g_strdup ("Store them again:");
        problem->action = g_strdup_printf ("ecfs fsck -y %s", self->directory);
    } else if (*twins != '\0') {
        problem->advice =
            g_strdup_printf ("Zones that have one share between them count as one, as some may have copied "
                             "it: %s. Keep a copy of the file key of the archive directory elsewhere. Add "
                             "endpoints in other zones, then take out all but one of these:",
                             twins);
        problem->action = g_strdup_printf ("ecfs endpoint drain %s NAME", self->directory);
    } else {
        problem->advice = g_strdup ("Bring back the endpoints that do not answer, and keep a copy of the file key of "
                                    "the archive directory elsewhere until then. To look again:");
        problem->action = g_strdup_printf ("ecfs status %s", self->directory);
    }
}

/* What may be lost that takes too many of the shares: "1 more zone"; NULL: all that may be lost does not. g_free () */
static char *fatal_loss (JsonObject *key, int64_t needed)
{
    bool by_zones = ecfs_verdict_number (key, "left") < needed;
    int64_t n = ecfs_verdict_number (key, by_zones ? "tolerance" : "endpoint_tolerance");
    bool is_told = by_zones || json_object_has_member (key, "endpoints_left"); /* an earlier ecfs did not */
    return is_told && ecfs_verdict_number (key, by_zones ? "left" : "endpoints_left") < needed
               ? g_strdup_printf ("%" PRIi64 " more %s%s", n, by_zones ? "zone" : "endpoint", n == 1 ? "" : "s")
               : NULL;
}

/* So few zones have their shares of the key that it does not outlive what it is to. */
static void judge_key_losses (EcfsStatusVerdict *self, JsonObject *key)
{
    int64_t needed = ecfs_verdict_number (key, "needed"), n_here = ecfs_verdict_number (key, "here");
    bool too_few = ecfs_verdict_number (key, "shares_here") < needed;
    g_autofree char *lost = fatal_loss (key, needed);
    g_autofree char *lacking = names_of (json_object_get_array_member (key, "lacking"));
    if (lost == NULL)
        return;
    EcfsStatusProblem problem = {.kind = "key", .verdict = too_few ? "at risk" : "degraded", .check = too_few ? 2 : 1};
    const char *without = *lacking == '\0' ? "" : "; without it: ";
    problem.reason =
        json_object_has_member (self->status, "key_shares")
            ? g_strdup_printf ("the archive's key needs the shares of %" PRIi64 " zones, and %" PRIi64 " of %" PRIi64
                               " have theirs now%s%s",
                               needed, n_here, ecfs_verdict_number (key, "zones"), without, lacking)
            : g_strdup_printf ("%" PRIi64 " of %" PRIi64 " zones have the key file now, which the archive's key comes "
                               "back from%s%s",
                               n_here, ecfs_verdict_number (key, "zones"), without, lacking);
    problem.meaning = too_few ? g_strdup ("Files can be read here. If this machine is lost now, all of them are.")
                              : g_strdup_printf ("If this machine and %s are lost now, so are all files.", lost);
    advise_on_losses (self, key, lacking, &problem);
    ecfs_verdict_add (self, &problem);
}

/* Zones that became one in ecfs.conf have more of the key than one may. */
static void judge_key_zones (EcfsStatusVerdict *self, JsonObject *key)
{
    int64_t needed = ecfs_verdict_number (key, "needed"), n_readers = ecfs_verdict_number (key, "readers");
    g_autofree char *merged = names_of (json_object_get_array_member (key, "merged"));
    if (n_readers == 0 || n_readers >= needed)
        return;
    ecfs_verdict_add (
        self, &(EcfsStatusProblem){
                  .kind = "exposed",
                  .verdict = "exposed",
                  .check = 1,
                  .reason = g_strdup_printf ("several shares of the archive's key are in one zone: %s", merged),
                  .meaning = g_strdup_printf ("%" PRIi64 " zone%s could read the archive together, and no fewer "
                                              "than %" PRIi64 " are to.",
                                              n_readers, n_readers == 1 ? "" : "s", needed),
                  .advice = g_strdup ("If the endpoints are not in one hand, give them zones of their own in "
                                      "ecfs.conf. If they are, add endpoints in other zones, and take all but one of "
                                      "these out:"),
                  .action = g_strdup_printf ("ecfs endpoint drain %s NAME", self->directory)});
}

/* There are more zones than when it was shared, of which more may vanish than are to read. */
static void judge_key_threshold (EcfsStatusVerdict *self, JsonObject *key)
{
    int64_t needed = ecfs_verdict_number (key, "needed"), would_need = ecfs_verdict_number (key, "would_need");
    if (would_need <= needed)
        return;
    ecfs_verdict_add (
        self, &(EcfsStatusProblem){
                  .kind = "exposed",
                  .verdict = "exposed",
                  .check = 1,
                  .reason = g_strdup_printf ("%" PRIi64 " zones bring the archive's key back, and as many may vanish "
                                             "now with all files left",
                                             needed),
                  .meaning = g_strdup ("As many zones as files survive the loss of could read the archive together."),
                  .advice = g_strdup_printf ("Give it another key, which %" PRIi64 " zones bring back:", would_need),
                  .action = g_strdup_printf ("ecfs key rotate %s", self->directory)});
}

/* Somebody took the last slot away: all that is left is the file key. */
static void judge_key_slots (EcfsStatusVerdict *self)
{
    ecfs_verdict_add (
        self, &(EcfsStatusProblem){
                  .kind = "key",
                  .verdict = "at risk",
                  .check = 2,
                  .reason = g_strdup ("no key slot is left, so nothing that endpoints have opens the archive's key"),
                  .meaning = g_strdup_printf ("If this machine is lost, nothing comes back without a copy of the "
                                              "file %s/key.",
                                              ecfs_verdict_text (self->status, "directory")),
                  .advice = g_strdup ("Make a slot, with a code (see ecfs-key(1) for others):"),
                  .action = g_strdup_printf ("ecfs key add --code %s", self->directory)});
}

void ecfs_verdict_judge_key (EcfsStatusVerdict *self)
{
    JsonObject *key = ecfs_verdict_part (self->status, "key_sharing");
    if (key == NULL || ecfs_verdict_only_reads (self)) /* that is for who writes; here, it may be an older key */
        return;
    if (json_object_has_member (key, "slots") && /* an earlier ecfs does not tell */
        json_array_get_length (json_object_get_array_member (key, "slots")) == 0) {
        judge_key_slots (self);
        return;
    }
    judge_key_losses (self, key);
    judge_key_zones (self, key);
    judge_key_threshold (self, key);
}
