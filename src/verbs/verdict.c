/*
 * What the facts of a status amount to: what is wrong and since when, what that means, and the command to type. Facts
 * in, facts out, so a mount of another version can be judged too.
 */
#include "archive/catalog_place.h"
#include "util/text.h"
#include "verbs/status.h"

#include "ecfs/ecfs.h"
#include "verbs/verdict_priv.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define LONG_GONE_S (24 * 3600) /* an endpoint that is away for longer is thought lost */
#define NAMES_MAX   3           /* that are told one by one */

void ecfs_verdict_add (EcfsStatusVerdict *self, const EcfsStatusProblem *problem)
{
    JsonObject *facts = json_object_new ();
    g_assert (problem->kind != NULL);
    json_object_set_string_member (facts, "verdict", problem->verdict);
    json_object_set_string_member (facts, "kind", problem->kind);
    if (problem->endpoint != NULL)
        json_object_set_string_member (facts, "endpoint", problem->endpoint);
    json_object_set_int_member (facts, "check", problem->check);
    if (problem->since > 0)
        json_object_set_int_member (facts, "since", problem->since);
    json_object_set_string_member (facts, "reason", problem->reason);
    json_object_set_string_member (facts, "meaning", problem->meaning);
    json_object_set_string_member (facts, "advice", problem->advice);
    if (problem->action != NULL)
        json_object_set_string_member (facts, "action", problem->action);
    json_array_add_object_element (self->problems, facts);
    if (self->worst == NULL || ecfs_verdict_number (self->worst, "check") < problem->check)
        self->worst = facts;
    g_free (problem->reason);
    g_free (problem->meaning);
    g_free (problem->advice);
    g_free (problem->action);
}

char *ecfs_verdict_safety (EcfsStatusVerdict *self)
{
    JsonObject *objects = ecfs_verdict_part (self->status, "objects");
    if (objects == NULL || !json_object_has_member (objects, "guarantee"))
        return g_strdup ("No file is stored yet.");
    int64_t guarantee = ecfs_verdict_number (objects, "guarantee");
    if (guarantee < 0)
        return g_strdup_printf ("%" PRIi64 " objects cannot be read now; the others can.",
                                ecfs_verdict_number (objects, "unreadable"));
    if (guarantee == 0)
        return g_strdup ("Every stored file can be read, but no further endpoint may vanish.");
    return g_strdup_printf ("Every stored file can be read, and any %" PRIi64 " more endpoint%s may vanish.", guarantee,
                            guarantee == 1 ? "" : "s");
}

int ecfs_verdict_badness (EcfsStatusVerdict *self, const char **ret_verdict)
{
    JsonObject *objects = ecfs_verdict_part (self->status, "objects");
    int64_t guarantee = objects == NULL ? 1 : json_object_get_int_member_with_default (objects, "guarantee", 1);
    *ret_verdict = guarantee < 0 ? "unreadable" : guarantee == 0 ? "at risk" : "degraded";
    return guarantee <= 0 ? 2 : 1;
}

/* " on HOST", where it is told; g_free () */
static char *on_host (JsonObject *other)
{
    const char *host = other == NULL ? "" : ecfs_verdict_text (other, "host");
    return *host == '\0' ? g_strdup ("") : g_strdup_printf (" on %s", host);
}

/* That makes the archive anew beside this copy; g_free () */
static char *recover_command (EcfsStatusVerdict *self)
{
    g_autoptr (GString) command = g_string_new (NULL);
    JsonArray *endpoints = json_object_get_array_member (self->status, "endpoints");
    g_autofree char *fresh = g_strconcat (ecfs_verdict_text (self->status, "directory"), ".new", NULL);
    g_autofree char *quoted = ecfs_shell_word (fresh);
    g_string_append_printf (command, "ecfs recover %s", quoted);
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        g_autofree char *word = ecfs_shell_word (ecfs_verdict_text (endpoint, "endpoint"));
        if (json_object_has_member (endpoint, "endpoint"))
            g_string_append_printf (command, " -e %s", word);
    }
    return g_string_free (g_steal_pointer (&command), FALSE);
}

static void judge_read_only (EcfsStatusVerdict *self)
{
    JsonObject *follow = ecfs_verdict_part (self->status, "follow");
    if (follow != NULL && json_object_get_boolean_member (follow, "lives"))
        return; /* as it is meant */
    if (json_object_has_member (self->status, "read_only"))
        ecfs_verdict_add (self,
                          &(EcfsStatusProblem){.verdict = "read only",
                                               .kind = "read-only",
                                               .check = 0,
                                               .reason = g_strdup (ecfs_verdict_text (self->status, "read_only")),
                                               .meaning = ecfs_verdict_safety (self),
                                               .advice = g_strdup ("To take the archive over from whoever has it:"),
                                               .action = recover_command (self)});
}

/* What nothing is stored of from an old copy; g_free () */
static char *only_here (EcfsStatusVerdict *self)
{
    JsonObject *unstored = ecfs_verdict_part (self->status, "unstored");
    int64_t n_files = unstored == NULL ? 0 : ecfs_verdict_number (unstored, "files");
    int64_t n_changes = unstored == NULL ? 0 : ecfs_verdict_number (unstored, "changes");
    g_autofree char *also =
        n_files + n_changes == 0
            ? g_strdup ("")
            : g_strdup_printf (" %" PRIi64 " files and %" PRIi64 " other changes that were not stored before that are "
                               "only here; they are named below.",
                               n_files, n_changes);
    return g_strconcat ("What is stored can be read, but nothing more is stored from here.", also, NULL);
}

/* The mount was taken for dead, or its database is an older one: nobody needs another copy for that. */
static bool judge_ended (EcfsStatusVerdict *self)
{
    if (!json_object_has_member (self->status, "catalog_ended"))
        return false;
    bool taken_over = strcmp (ecfs_verdict_text (self->status, "catalog_ended"), "taken over") == 0;
    const char *said = ecfs_verdict_text (self->status, "old_copy");
    if (said == NULL)
        said = ecfs_verdict_text (self->status, "catalog_error");
    ecfs_verdict_add (
        self, &(EcfsStatusProblem){
                  .verdict = "old copy",
                  .kind = "old-copy",
                  .check = 2,
                  .reason = g_strdup (said),
                  .meaning = only_here (self),
                  .advice = g_strdup (taken_over ? "Unmount it, and mount it again, which stores "
                                                   "what is staged here:"
                                                 : "Unmount it. Then, to take the archive over here, "
                                                   "with what only this directory has kept as files:"),
                  .action = g_strdup_printf (taken_over ? "ecfs umount %s" : "ecfs takeover %s", self->directory)});
    return true;
}

static void judge_old_copy (EcfsStatusVerdict *self)
{
    if (judge_ended (self) || !json_object_has_member (self->status, "old_copy"))
        return;
    JsonObject *successor = ecfs_verdict_part (self->status, "successor");
    g_autofree char *host = on_host (successor);
    g_autofree char *directory = ecfs_shell_word (ecfs_verdict_text (self->status, "directory"));
    bool recovered =
        successor != NULL && ecfs_verdict_number (successor, "epoch") > ecfs_verdict_number (self->status, "epoch");
    ecfs_verdict_add (
        self,
        &(EcfsStatusProblem){
            .verdict = "old copy",
            .kind = "old-copy",
            .check = 2,
            .since = successor == NULL ? 0 : ecfs_verdict_number (successor, "since"),
            .reason = g_strdup_printf ("%s%s: %s", recovered ? "the archive was recovered" : "another copy is in use",
                                       host, ecfs_verdict_text (self->status, "old_copy")),
            .meaning = only_here (self),
            .advice = g_strdup_printf ("Use the newer archive directory%s. To take the archive over here, with what "
                                       "only this directory has kept as files:",
                                       host),
            .action = g_strdup_printf ("ecfs takeover %s", directory)});
}

/* A recovery is under way, or too few endpoints answer to tell whether this is the newest copy. */
static void judge_held (EcfsStatusVerdict *self)
{
    JsonObject *claim = ecfs_verdict_part (self->status, "claim"),
               *successor = ecfs_verdict_part (self->status, "successor");
    bool held = json_object_has_member (self->status, "held");
    if (json_object_has_member (self->status, "old_copy") || (claim == NULL && !held))
        return;
    JsonObject *other = claim != NULL ? claim : successor;
    g_autofree char *host = on_host (other);
    EcfsStatusProblem problem = {.verdict = claim != NULL ? "being recovered" : "in doubt",
                                 .kind = "in-doubt",
                                 .check = 1,
                                 .since = other == NULL ? 0 : ecfs_verdict_number (other, "since")};
    problem.meaning = g_strdup (held ? "Files can be read, but what is written now is only safe on this machine."
                                     : "Too few endpoints say so for it to be believed: files are stored as usual.");
    if (claim != NULL) {
        problem.reason =
            g_strdup_printf ("ecfs recover runs for this archive%s, or was interrupted (%" PRIi64 " endpoints say so)",
                             host, ecfs_verdict_number (claim, "endpoints"));
        problem.advice = g_strdup_printf ("When it succeeds, use the new archive directory%s; this one is then an old "
                                          "copy. If it was interrupted, a mount resumes after two minutes. To look "
                                          "again:",
                                          host);
    } else {
        problem.reason = g_strdup (ecfs_verdict_text (self->status, "held"));
        problem.advice = g_strdup ("Bring back the endpoints that do not answer, then look again:");
    }
    problem.action = g_strdup_printf ("ecfs status %s", self->directory);
    ecfs_verdict_add (self, &problem);
}

/* An endpoint that says what too few others do. */
static void judge_disagreeing (EcfsStatusVerdict *self)
{
    JsonArray *endpoints = json_object_get_array_member (self->status, "endpoints");
    if (json_object_has_member (self->status, "old_copy") || json_object_has_member (self->status, "held"))
        return; /* it may be right */
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        g_autofree char *name = ecfs_shell_word (ecfs_verdict_text (endpoint, "name"));
        if (!json_object_has_member (endpoint, "disagrees"))
            continue;
        ecfs_verdict_add (self,
                          &(EcfsStatusProblem){
                              .verdict = "degraded",
                              .kind = "contradicts",
                              .endpoint = ecfs_verdict_text (endpoint, "name"),
                              .check = 1,
                              .reason = g_strdup_printf ("%s, and the other endpoints contradict it",
                                                         ecfs_verdict_text (endpoint, "disagrees")),
                              .meaning = g_strdup ("What it says of the archive does not count, and nothing is deleted "
                                                   "there."),
                              .advice = g_strdup ("If it lies, do not believe it any more:"),
                              .action = g_strdup_printf ("ecfs endpoint distrust %s %s", self->directory, name)});
    }
}

static void judge_false_markers (EcfsStatusVerdict *self)
{
    JsonArray *endpoints = json_object_get_array_member (self->status, "endpoints");
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        if (!json_object_has_member (endpoint, "false_marker"))
            continue;
        ecfs_verdict_add (
            self,
            &(EcfsStatusProblem){.verdict = "degraded",
                                 .kind = "false-marker",
                                 .endpoint = ecfs_verdict_text (endpoint, "name"),
                                 .check = 1,
                                 .reason = g_strdup (ecfs_verdict_text (endpoint, "false_marker")),
                                 .meaning = g_strdup ("Its journal and what it says of the archive do not count, and "
                                                      "nothing is deleted there."),
                                 .advice = g_strdup ("Write the marker anew. If it changes again, the endpoint lies: "
                                                     "distrust it."),
                                 .action = g_strdup_printf ("ecfs fsck -y %s", self->directory)});
    }
}

/* Endpoints that seem to have been put back to an earlier state, of which all stripes are to be looked at. */
static void judge_gaps (EcfsStatusVerdict *self)
{
    JsonArray *endpoints = json_object_get_array_member (self->status, "endpoints");
    g_autoptr (GString) names = g_string_new (NULL);
    JsonObject *first = NULL;
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        if (!json_object_has_member (endpoint, "journal_gap"))
            continue;
        g_string_append_printf (names, "%s%s", first == NULL ? "" : ", ", ecfs_verdict_text (endpoint, "name"));
        first = first == NULL ? endpoint : first;
    }
    if (first == NULL)
        return;
    ecfs_verdict_add (
        self, &(EcfsStatusProblem){
                  .verdict = "degraded",
                  .kind = "gap",
                  .check = 1,
                  .since = ecfs_verdict_number (first, "journal_gap_since"),
                  .reason = g_strdup_printf ("endpoints have lost files that they had, as after being put back from "
                                             "an earlier copy: %s (%s)",
                                             names->str, ecfs_verdict_text (first, "journal_gap")),
                  .meaning = g_strdup ("Stripes may be missing there as well: fewer endpoints may vanish then than "
                                       "it seems."),
                  .advice = g_strdup ("Look at all stripes, and rebuild those that are missing:"),
                  .action = g_strdup_printf ("ecfs fsck -y %s", self->directory)});
}

static bool is_in_database (const char *directory)
{
    g_autofree char *place = g_build_filename (directory, ECFS_CATALOG_PLACE_NAME, NULL);
    return access (place, F_OK) == 0;
}

static void judge_catalog (EcfsStatusVerdict *self)
{
    if (json_object_has_member (self->status, "catalog_away_since_s"))
        ecfs_verdict_add (self,
                          &(EcfsStatusProblem){.verdict = "at risk",
                                               .kind = "catalog",
                                               .check = 2,
                                               .reason = g_strdup (ecfs_verdict_text (self->status, "catalog_error")),
                                               .meaning = g_strdup ("Files that are being read can be read on; names "
                                                                    "cannot be read or changed."),
                                               .advice = g_strdup ("See that the database is up, then:"),
                                               .action = g_strdup_printf ("ecfs status %s", self->directory)});
    else if (json_object_has_member (self->status, "catalog_error") &&
             !json_object_has_member (self->status, "catalog_ended")) {
        bool in_database = is_in_database (ecfs_verdict_text (self->status, "directory"));
        ecfs_verdict_add (
            self, &(EcfsStatusProblem){
                      .verdict = "at risk",
                      .kind = "catalog",
                      .check = 2,
                      .reason = g_strdup (ecfs_verdict_text (self->status, "catalog_error")),
                      .meaning = g_strdup ("Names and attributes cannot be changed."),
                      .advice = g_strdup (in_database ? "See that the database takes changes (its "
                                                        "server's log says more), then:"
                                                      : "Check the disk of the archive directory:"),
                      .action = g_strdup_printf (in_database ? "ecfs status %s" : "df -h %s", self->directory)});
    }
}

/* Endpoints that do not answer. */
typedef struct Away {
    unsigned n;
    int64_t since; /* the earliest that is known */
    GString *names;
    JsonObject *first; /* NULL: none */
} Away;

bool ecfs_status_is_away (JsonObject *endpoint, bool mounted)
{
    const char *state = ecfs_verdict_text (endpoint, "state");
    bool connected = json_object_get_boolean_member_with_default (endpoint, "connected", FALSE);
    return g_str_equal (state, "down") || g_str_equal (state, "silent") || g_str_equal (state, "unconfigured") ||
           (!mounted && !connected && !ecfs_verdict_gives_up (endpoint));
}

static void find_away (EcfsStatusVerdict *self, Away *away)
{
    JsonArray *endpoints = json_object_get_array_member (self->status, "endpoints");
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        int64_t since = ecfs_verdict_number (endpoint, "down_since");
        if (!ecfs_status_is_away (endpoint, self->mounted))
            continue;
        if (away->n < NAMES_MAX)
            g_string_append_printf (away->names, "%s%s", away->n == 0 ? "" : ", ",
                                    ecfs_verdict_text (endpoint, "name"));
        if (away->n == NAMES_MAX)
            g_string_append (away->names, ", ...");
        if (since > 0 && (away->since == 0 || since < away->since))
            away->since = since;
        away->first = away->first == NULL ? endpoint : away->first;
        away->n++;
    }
}

static char *away_reason (const Away *away, guint n_endpoints)
{
    const char *reason = ecfs_verdict_text (away->first, "reason");
    if (away->n > 1)
        return g_strdup_printf ("%u of %u endpoints do not answer: %s%s%s", away->n, n_endpoints, away->names->str,
                                *reason == '\0' ? "" : "; ", reason);
    if (g_str_equal (ecfs_verdict_text (away->first, "state"), "unconfigured"))
        return g_strdup_printf ("endpoint %s is in the catalog, but not in ecfs.conf", away->names->str);
    return *reason != '\0' ? g_strdup (reason) : g_strdup_printf ("endpoint %s does not answer", away->names->str);
}

/* What that means, but for what is in the cache. */
static char *nothing_answers (EcfsStatusVerdict *self)
{
    JsonObject *cache = ecfs_verdict_part (self->status, "cache");
    bool cached = cache != NULL && ecfs_verdict_number (cache, "bytes") > 0;
    return g_strdup_printf ("No file can be read until endpoints answer%s.",
                            cached ? ", but for what is in the cache" : "");
}

static void judge_away (EcfsStatusVerdict *self)
{
    g_autoptr (GString) names = g_string_new (NULL);
    Away away = {.names = names};
    find_away (self, &away);
    if (away.n == 0)
        return;
    guint n_endpoints = json_array_get_length (json_object_get_array_member (self->status, "endpoints"));
    EcfsStatusProblem problem = {.kind = "down",
                                 .since = away.since,
                                 .reason = away_reason (&away, n_endpoints),
                                 .meaning = ecfs_verdict_safety (self)};
    problem.check = ecfs_verdict_badness (self, &problem.verdict);
    if (problem.check == 2) /* not when the first went */
        problem.since =
            ecfs_verdict_number (ecfs_verdict_part (self->status, "objects"),
                                 g_str_equal (problem.verdict, "at risk") ? "at_risk_since" : "unreadable_since");
    if (away.n == n_endpoints) {
        problem.verdict = "unreadable";
        problem.check = 2;
        g_free (problem.meaning);
        problem.meaning = nothing_answers (self);
    }
    g_autofree char *name = ecfs_shell_word (ecfs_verdict_text (away.first, "name"));
    bool gone = away.since > 0 && g_get_real_time () / G_USEC_PER_SEC - away.since > LONG_GONE_S;
    const char *aside = strstr (ecfs_verdict_text (away.first, "name"), " (replaced, ");
    if (ecfs_verdict_only_reads (self)) {
        ecfs_verdict_advise_reader (away.first, self->directory, &problem);
    } else if (aside != NULL) {
        g_autofree char *was = g_strndup (ecfs_verdict_text (away.first, "name"),
                                          (gsize) (aside - ecfs_verdict_text (away.first, "name")));
        g_autofree char *word = ecfs_shell_word (was);
        problem.advice =
            g_strdup_printf ("What %s held is rebuilt in its place. If that was interrupted, resume it:", was);
        problem.action = g_strdup_printf ("ecfs endpoint replace %s %s", self->directory, word);
    } else if (g_str_equal (ecfs_verdict_text (away.first, "state"), "unconfigured")) {
        problem.advice = g_strdup (
            "Put its section back into ecfs.conf; where other machines write the archive, too, one of them may "
            "have added it: copy the section from there, and mount again. If it is lost, move its stripes to "
            "a new one:");
        problem.action = g_strdup_printf ("ecfs endpoint replace %s %s NEW=URL", self->directory, name);
    } else if (json_object_get_boolean_member_with_default (away.first, "unmarked", FALSE)) {
        problem.advice =
            g_strdup_printf ("Mount it if it is not mounted. If %s was emptied permanently, begin anew there:", name);
        problem.action = g_strdup_printf ("ecfs endpoint replace %s %s", self->directory, name);
    } else if (gone) {
        problem.advice = g_strdup_printf ("Bring %s back, or rebuild its stripes on a new endpoint (ecfs fsck does "
                                          "nothing for an endpoint that is down):",
                                          name);
        problem.action = g_strdup_printf ("ecfs endpoint replace %s %s NEW=URL", self->directory, name);
    } else {
        problem.advice = g_strdup_printf ("Bring it back; then you need to do nothing else. ecfs fsck does nothing for "
                                          "an endpoint that is down. If it is lost, run: ecfs endpoint replace %s %s "
                                          "NEW=URL. To try it now:",
                                          self->directory, name);
        problem.action = g_strdup_printf ("ecfs endpoint test %s %s", self->directory, name);
    }
    ecfs_verdict_add (self, &problem);
}

/* Endpoints that answer and take nothing. */
static void judge_full (EcfsStatusVerdict *self)
{
    JsonArray *endpoints = json_object_get_array_member (self->status, "endpoints");
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        const char *state = ecfs_verdict_text (endpoint, "state"), *reason = ecfs_verdict_text (endpoint, "reason");
        if (!g_str_equal (state, "full") && !g_str_equal (state, "refusing"))
            continue;
        g_autofree char *name = ecfs_shell_word (ecfs_verdict_text (endpoint, "name"));
        ecfs_verdict_add (
            self, &(EcfsStatusProblem){
                      .verdict = "degraded",
                      .kind = "full",
                      .endpoint = ecfs_verdict_text (endpoint, "name"),
                      .check = 1,
                      .reason = *reason != '\0' ? g_strdup (reason)
                                                : g_strdup_printf ("endpoint %s is %s",
                                                                   ecfs_verdict_text (endpoint, "name"), state),
                      .meaning = g_strdup ("New files get fewer stripes, or go to other endpoints."),
                      .advice = g_strdup ("Make room there, or move some of what it holds to others:"),
                      .action = g_strdup_printf ("ecfs endpoint drain %s %s --dry-run", self->directory, name)});
    }
}

/* What is damaged or lacks stripes although all endpoints answer. */
static void judge_damage (EcfsStatusVerdict *self)
{
    JsonObject *objects = ecfs_verdict_part (self->status, "objects"),
               *repairs = ecfs_verdict_part (self->status, "repairs"),
               *scrub = ecfs_verdict_part (self->status, "scrub"),
               *staging = ecfs_verdict_part (self->status, "staging");
    int64_t n_damaged = repairs == NULL ? 0 : ecfs_verdict_number (repairs, "queued");
    int64_t n_found = scrub == NULL ? 0 : ecfs_verdict_number (scrub, "damaged");
    int64_t n_lacking = objects == NULL ? 0 : ecfs_verdict_number (objects, "missing_stripes");
    int64_t n_staged = staging == NULL ? 0 : ecfs_verdict_number (staging, "files");
    bool coming = self->mounted && n_staged > 0;
    if (n_damaged == 0 && n_found == 0 && (n_lacking == 0 || coming))
        return;
    bool repairs_itself = self->mounted && n_found <= n_damaged && repairs != NULL &&
                          json_object_get_boolean_member_with_default (repairs, "auto", FALSE);
    EcfsStatusProblem problem = {.kind = "damaged",
                                 .since = repairs == NULL ? 0 : ecfs_verdict_number (repairs, "since"),
                                 .meaning = ecfs_verdict_safety (self)};
    problem.check = ecfs_verdict_badness (self, &problem.verdict);
    problem.reason = MAX (n_damaged, n_found) > 0
                         ? g_strdup_printf ("%" PRIi64 " stripes are damaged or gone", MAX (n_damaged, n_found))
                         : g_strdup_printf ("%" PRIi64 " objects were stored without all of their stripes", n_lacking);
    const char *advice =
        repairs_itself ? "The mount rebuilds them in the background. To do it now:" : "Rebuild them from the others:";
    problem.advice =
        g_strdup (objects != NULL && ecfs_verdict_number (objects, "guarantee") < 0
                      ? "What is needed and cannot be rebuilt is read again as soon as the files that endpoints have "
                        "lost are back in their places. To rebuild what can be, and to see which files are concerned:"
                      : advice);
    problem.action = g_strdup_printf ("ecfs fsck -y%s %s", n_found > n_damaged ? " --deep" : "", self->directory);
    ecfs_verdict_add (self, &problem);
}

/* What only the past has, and lacks stripes wherever endpoints are. */
static void judge_past (EcfsStatusVerdict *self)
{
    JsonObject *past = ecfs_verdict_part (self->status, "past");
    int64_t n_lacking = past == NULL ? 0 : ecfs_verdict_number (past, "lacking");
    if (n_lacking == 0)
        return;
    ecfs_verdict_add (
        self,
        &(EcfsStatusProblem){
            .verdict = "degraded",
            .kind = "history",
            .check = 1,
            .reason = g_strdup_printf ("history: %" PRIi64 " objects that only the past has lack stripes", n_lacking),
            .meaning = g_strdup ("What was deleted or overwritten survives the loss of fewer endpoints "
                                 "than its code promises. The files that there are now are safe."),
            .advice = g_strdup ("Rebuild them from the others:"),
            .action = g_strdup_printf ("ecfs fsck -y %s", self->directory)});
}

/* Several stripes of an object at one endpoint, where nobody has chosen that: fewer endpoints may vanish. */
static void judge_doubled (EcfsStatusVerdict *self)
{
    JsonObject *objects = ecfs_verdict_part (self->status, "objects");
    int64_t n_doubled = objects == NULL ? 0 : ecfs_verdict_number (objects, "doubled");
    if (n_doubled == 0)
        return;
    int64_t n_lacking = ecfs_verdict_number (objects, "endpoints_lacking");
    EcfsStatusProblem problem = {.kind = "crowded", .meaning = ecfs_verdict_safety (self)};
    problem.check = ecfs_verdict_badness (self, &problem.verdict);
    problem.reason =
        g_strdup_printf ("%" PRIi64 " objects have several stripes at one endpoint, and survive the loss of "
                         "fewer endpoints than their code promises",
                         n_doubled);
    if (n_lacking > 0) {
        problem.advice = g_strdup_printf ("Add %" PRIi64 " endpoint%s, or one that 'ecfs recover' was not given, then "
                                          "run 'ecfs fsck -y'. If it is to stay so, set allow_double = yes in "
                                          "ecfs.conf.",
                                          n_lacking, n_lacking == 1 ? "" : "s");
        problem.action = g_strdup_printf ("ecfs endpoint add %s NAME=URL", self->directory);
    } else {
        problem.advice = g_strdup ("Move them apart:");
        problem.action = g_strdup_printf ("ecfs fsck -y %s", self->directory);
    }
    ecfs_verdict_add (self, &problem);
}

/* What was rebuilt and only this machine knows of. */
static void judge_rebuilt (EcfsStatusVerdict *self)
{
    JsonObject *repairs = ecfs_verdict_part (self->status, "repairs");
    int64_t n_unstored = repairs == NULL ? 0 : ecfs_verdict_number (repairs, "unstored");
    if (n_unstored == 0)
        return;
    ecfs_verdict_add (
        self, &(EcfsStatusProblem){.verdict = "degraded",
                                   .kind = "rebuilt",
                                   .check = 1,
                                   .reason = g_strdup_printf ("the journal on the endpoints does not name %" PRIi64
                                                              " rebuilt stripes yet",
                                                              n_unstored),
                                   .meaning = g_strdup ("If this machine is lost now, these may be missed."),
                                   .advice = g_strdup ("The mount stores it by itself. To wait for that:"),
                                   .action = g_strdup_printf ("ecfs wait %s", self->directory)});
}

/* Whether what is staged is on endpoints all the same, with fewer stripes than it is to have. */
static bool is_all_committed (JsonObject *staging)
{
    JsonArray *oldest = json_object_get_array_member (staging, "oldest");
    bool committed = ecfs_verdict_number (staging, "files") == json_array_get_length (oldest);
    for (guint i = 0; committed && i < json_array_get_length (oldest); i++)
        committed = g_str_equal (ecfs_verdict_text (json_array_get_object_element (oldest, i), "state"), "not full");
    return committed;
}

static void judge_staging (EcfsStatusVerdict *self)
{
    JsonObject *staging = ecfs_verdict_part (self->status, "staging");
    int64_t n_files = staging == NULL ? 0 : ecfs_verdict_number (staging, "files");
    int64_t n_failed = staging == NULL ? 0 : ecfs_verdict_number (staging, "failed");
    JsonArray *oldest = staging == NULL ? NULL : json_object_get_array_member (staging, "oldest");
    if (n_files == 0 || (self->mounted && n_failed == 0))
        return;
    JsonObject *row = json_array_get_length (oldest) == 0 ? NULL : json_array_get_object_element (oldest, 0);
    for (guint i = 0; i < json_array_get_length (oldest); i++)
        if (json_object_has_member (json_array_get_object_element (oldest, i), "error")) {
            row = json_array_get_object_element (oldest, i);
            break;
        }
    const char *error = row == NULL ? "" : ecfs_verdict_text (row, "error");
    bool committed = is_all_committed (staging);
    const char *what = committed ? (n_files == 1 ? "file lacks stripes" : "files lack stripes")
                                 : (n_files == 1 ? "file is only on this machine" : "files are only on this machine");
    ecfs_verdict_add (
        self, &(EcfsStatusProblem){
                  .verdict = committed ? "degraded" : "not stored",
                  .kind = "not-stored",
                  .check = 1,
                  .since = row == NULL ? 0 : ecfs_verdict_number (row, "since"),
                  .reason = g_strdup_printf ("%" PRIi64 " %s%s%s", n_files, what, *error == '\0' ? "" : ": ", error),
                  .meaning = committed ? ecfs_verdict_safety (self) : g_strdup ("They are lost if this machine is."),
                  .advice = g_strdup (self->mounted ? "The mount tries again by itself. To wait until they are "
                                                      "stored:"
                                                    : "Mount the archive for writing, which stores them:"),
                  .action = self->mounted ? g_strdup_printf ("ecfs wait %s", self->directory)
                                          : g_strdup_printf ("ecfs mount %s MOUNTPOINT", self->directory)});
}

static void judge_unreadable (EcfsStatusVerdict *self)
{
    JsonObject *objects = ecfs_verdict_part (self->status, "objects");
    int64_t n_unreadable = objects == NULL ? 0 : ecfs_verdict_number (objects, "unreadable");
    if (n_unreadable == 0 || (self->worst != NULL && ecfs_verdict_number (self->worst, "check") == 2))
        return;
    ecfs_verdict_add (
        self, &(EcfsStatusProblem){.verdict = "unreadable",
                                   .kind = "unreadable",
                                   .check = 2,
                                   .reason = g_strdup_printf ("%" PRIi64 " objects cannot be read", n_unreadable),
                                   .meaning = ecfs_verdict_safety (self),
                                   .advice = g_strdup ("Find out which files that concerns, and what is left of them:"),
                                   .action = g_strdup_printf ("ecfs fsck -n %s", self->directory)});
}

/* Most names have gone, and no brake has told of it: by a program that went wrong, or a catalog that did. */
static void judge_shrunk (EcfsStatusVerdict *self)
{
    JsonObject *shrunk = ecfs_verdict_part (self->status, "shrunk");
    if (shrunk == NULL || json_object_has_member (self->status, "brake"))
        return;
    g_autoptr (GDateTime) before =
        g_date_time_new_from_unix_local ((gint64) json_object_get_double_member (shrunk, "before"));
    g_autofree char *moment = before == NULL ? g_strdup ("?") : g_date_time_format (before, "%F %T");
    ecfs_verdict_add (self,
                      &(EcfsStatusProblem){
                          .verdict = "at risk",
                          .kind = "shrunk",
                          .check = 1,
                          .since = (int64_t) json_object_get_double_member (shrunk, "time"),
                          .reason = g_strdup_printf ("the last snapshot of the catalog has %" PRIi64
                                                     " bytes, and the one before it had %" PRIi64 ": most names have "
                                                     "gone since",
                                                     ecfs_verdict_number (shrunk, "bytes"),
                                                     ecfs_verdict_number (shrunk, "bytes_before")),
                          .meaning = g_strdup ("If that was not meant, what had these names is lost when its time has "
                                               "passed."),
                          .advice = g_strdup ("See what there was; 'ecfs undelete' brings it back:"),
                          .action = g_strdup_printf ("ecfs ls %s --at '%s'", self->directory, moment)});
}

static void praise (EcfsStatusVerdict *self)
{
    guint n_endpoints = json_array_get_length (json_object_get_array_member (self->status, "endpoints"));
    JsonObject *staging = ecfs_verdict_part (self->status, "staging");
    int64_t n_files = staging == NULL ? 0 : ecfs_verdict_number (staging, "files");
    g_autofree char *storing = n_files == 0 ? g_strdup ("")
                                            : g_strdup_printf (", and %" PRIi64 " %s being stored", n_files,
                                                               n_files == 1 ? "file is" : "files are");
    g_autofree char *reason = g_strdup_printf ("all %u endpoints answer%s", n_endpoints, storing);
    g_autofree char *meaning = ecfs_verdict_safety (self);
    json_object_set_string_member (self->status, "verdict", "healthy");
    json_object_set_int_member (self->status, "check", 0);
    json_object_set_string_member (self->status, "reason", reason);
    json_object_set_string_member (self->status, "meaning", meaning);
    json_object_set_string_member (self->status, "advice", "Nothing to do.");
}

void ecfs_status_judge (JsonObject *status)
{
    EcfsStatusVerdict self = {.status = status,
                              .problems = json_array_new (),
                              .directory = ecfs_shell_word (ecfs_verdict_text (status, "directory")),
                              .mounted = json_object_get_boolean_member_with_default (status, "mounted", FALSE)};
    ecfs_verdict_judge_silent_mount (&self);
    judge_read_only (&self);
    ecfs_verdict_judge_follow (&self);
    judge_old_copy (&self);
    judge_held (&self);
    ecfs_verdict_judge_key_begun (&self);
    judge_catalog (&self);
    judge_away (&self);
    ecfs_verdict_judge_given_up (&self);
    ecfs_verdict_judge_no_place (&self);
    judge_unreadable (&self);
    judge_damage (&self);
    judge_past (&self);
    judge_doubled (&self);
    judge_gaps (&self);
    ecfs_verdict_judge_key (&self);
    judge_rebuilt (&self);
    judge_staging (&self);
    judge_full (&self);
    ecfs_verdict_judge_spent (&self);
    judge_shrunk (&self);
    judge_disagreeing (&self);
    judge_false_markers (&self);
    ecfs_verdict_leave_to_writer (&self);
    if (self.worst == NULL)
        praise (&self);
    for (GList *names = self.worst == NULL ? NULL : json_object_get_members (self.worst); names != NULL;
         names = g_list_delete_link (names, names))
        json_object_set_member (status, names->data, json_object_dup_member (self.worst, names->data));
    json_object_set_array_member (status, "problems", self.problems);
    g_free (self.directory);
}

char *ecfs_diagnose (const char *directory, const GError *error)
{
    g_autofree char *word = ecfs_shell_word (directory);
    g_autofree char *config = g_build_filename (directory, "ecfs.conf", NULL);
    bool no_config = access (config, F_OK) != 0, no_catalog = !ecfs_catalog_place_is_there (directory);
    bool in_database = is_in_database (directory);
    bool damaged = no_config || no_catalog || error->code == EBADMSG || (in_database && error->code == ENOENT);
    g_autofree char *recover =
        g_strdup_printf ("ecfs recover %s.new%s --endpoint URL...", word, in_database ? " --set catalog=..." : "");
    g_autofree char *again = g_strdup_printf ("ecfs status %s", word);
    JsonObject *status = json_object_new ();
    ecfs_status_add_text (status, "directory", directory);
    json_object_set_string_member (status, "verdict", "broken");
    json_object_set_int_member (status, "check", 2);
    ecfs_status_add_text (status, "reason", error->message);
    json_object_set_array_member (status, "problems", json_array_new ());
    if (no_config && no_catalog) {
        json_object_set_string_member (status, "meaning", "there is no archive in this directory");
        json_object_set_string_member (status, "advice", "ecfs init makes one, ecfs recover brings one back");
    } else if (damaged) {
        json_object_set_string_member (status, "meaning",
                                       "the archive cannot be used from this directory; the stripes on the endpoints "
                                       "are not touched");
        json_object_set_string_member (
            status, "advice",
            in_database && !no_config
                ? "make the catalog and a directory again from the endpoints; if the schema is there, rename it first:"
                : "restore the file from a backup, or make the directory again from the endpoints:");
        ecfs_status_add_text (status, "action", recover);
    } else {
        json_object_set_string_member (status, "meaning", "the archive cannot be opened");
        json_object_set_string_member (status, "advice", "correct that, then:");
        ecfs_status_add_text (status, "action", again);
    }
    g_autoptr (JsonNode) node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, status);
    return json_to_string (node, TRUE);
}
