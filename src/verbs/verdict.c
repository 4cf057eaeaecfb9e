/*
 * What the facts of a status amount to: what is wrong and since when, what that means, and the command to type. Facts
 * in, facts out, so a mount of another version can be judged too.
 */
#include "util/text.h"
#include "verbs/status.h"

#include "ecfs/ecfs.h"
#include "verbs/status_priv.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define LONG_GONE_S (24 * 3600) /* an endpoint that is away for longer is thought lost */
#define NAMES_MAX   3           /* that are told one by one */

/* Something that is not as it should be. */
typedef struct Problem {
    const char *verdict; /* a word or two */
    int check;           /* what `status --check` exits with */
    int64_t since;       /* seconds since 1970; 0: not known */
    char *reason;        /* owned, as the rest */
    char *meaning;
    char *advice;
    char *action; /* a command; NULL: there is none to type */
} Problem;

typedef struct Verdict {
    JsonObject *status;
    JsonObject *worst; /* of the problems so far; borrowed from them; NULL: none */
    JsonArray *problems;
    char *directory; /* as a shell takes it; owned */
    bool mounted;
} Verdict;

static const char *text_of (JsonObject *object, const char *member)
{
    return json_object_get_string_member_with_default (object, member, "");
}

static int64_t number_of (JsonObject *object, const char *member)
{
    return json_object_get_int_member_with_default (object, member, 0);
}

static JsonObject *part_of (JsonObject *object, const char *member)
{
    JsonNode *node = json_object_get_member (object, member);
    return node != NULL && JSON_NODE_HOLDS_OBJECT (node) ? json_node_get_object (node) : NULL;
}

static void add (Verdict *self, const Problem *problem)
{
    JsonObject *facts = json_object_new ();
    json_object_set_string_member (facts, "verdict", problem->verdict);
    json_object_set_int_member (facts, "check", problem->check);
    if (problem->since > 0)
        json_object_set_int_member (facts, "since", problem->since);
    json_object_set_string_member (facts, "reason", problem->reason);
    json_object_set_string_member (facts, "meaning", problem->meaning);
    json_object_set_string_member (facts, "advice", problem->advice);
    if (problem->action != NULL)
        json_object_set_string_member (facts, "action", problem->action);
    json_array_add_object_element (self->problems, facts);
    if (self->worst == NULL || number_of (self->worst, "check") < problem->check)
        self->worst = facts;
    g_free (problem->reason);
    g_free (problem->meaning);
    g_free (problem->advice);
    g_free (problem->action);
}

/* How safe what is stored is now. */
static char *safety (Verdict *self)
{
    JsonObject *objects = part_of (self->status, "objects");
    if (objects == NULL || !json_object_has_member (objects, "guarantee"))
        return g_strdup ("No file is stored yet.");
    int64_t guarantee = number_of (objects, "guarantee");
    if (guarantee < 0)
        return g_strdup_printf ("%" PRIi64 " objects cannot be read now; the others can.",
                                number_of (objects, "unreadable"));
    if (guarantee == 0)
        return g_strdup ("Every stored file can be read, but no further endpoint may vanish.");
    return g_strdup_printf ("Every stored file can be read, and any %" PRIi64 " more endpoint%s may vanish.", guarantee,
                            guarantee == 1 ? "" : "s");
}

/* How bad it is that something is away: 2 where files cannot be read, or nothing more may be lost. */
static int badness (Verdict *self, const char **ret_verdict)
{
    JsonObject *objects = part_of (self->status, "objects");
    int64_t guarantee = objects == NULL ? 1 : json_object_get_int_member_with_default (objects, "guarantee", 1);
    *ret_verdict = guarantee < 0 ? "unreadable" : guarantee == 0 ? "at risk" : "degraded";
    return guarantee <= 0 ? 2 : 1;
}

/* " on HOST", where it is told; g_free () */
static char *on_host (JsonObject *other)
{
    const char *host = other == NULL ? "" : text_of (other, "host");
    return *host == '\0' ? g_strdup ("") : g_strdup_printf (" on %s", host);
}

/* That makes the archive anew beside this copy; g_free () */
static char *recover_command (Verdict *self)
{
    g_autoptr (GString) command = g_string_new (NULL);
    JsonArray *endpoints = json_object_get_array_member (self->status, "endpoints");
    g_autofree char *fresh = g_strconcat (text_of (self->status, "directory"), ".new", NULL);
    g_autofree char *quoted = ecfs_shell_word (fresh);
    g_string_append_printf (command, "ecfs recover %s", quoted);
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        g_autofree char *word = ecfs_shell_word (text_of (endpoint, "endpoint"));
        if (json_object_has_member (endpoint, "endpoint"))
            g_string_append_printf (command, " -e %s", word);
    }
    return g_string_free (g_steal_pointer (&command), FALSE);
}

static void judge_read_only (Verdict *self)
{
    JsonObject *follow = part_of (self->status, "follow");
    if (follow != NULL && json_object_get_boolean_member (follow, "lives") && *text_of (follow, "trouble") == '\0')
        return; /* as it is meant */
    if (json_object_has_member (self->status, "read_only"))
        add (self, &(Problem){.verdict = "read only",
                              .check = 0,
                              .reason = g_strdup (text_of (self->status, "read_only")),
                              .meaning = safety (self),
                              .advice = g_strdup ("To take the archive over from whoever has it:"),
                              .action = recover_command (self)});
}

static void judge_key_begun (Verdict *self)
{
    bool rotates = json_object_has_member (self->status, "key_rotates");
    const char *verb = rotates ? "rotate" : "init";
    if (rotates || json_object_has_member (self->status, "key_begun"))
        add (self, &(Problem){.verdict = "at risk",
                              .check = 2,
                              .reason = g_strdup_printf ("'ecfs key %s' was interrupted, and nothing can be stored "
                                                         "until it has ended",
                                                         verb),
                              .meaning = safety (self),
                              .advice = g_strdup (rotates ? "End it, with the options that it was given; if it cannot "
                                                            "end, it is taken back:"
                                                          : "End it, with the options that it was given:"),
                              .action = g_strdup_printf ("ecfs key %s %s", verb, self->directory)});
}

/* What nothing is stored of from an old copy; g_free () */
static char *only_here (Verdict *self)
{
    JsonObject *unstored = part_of (self->status, "unstored");
    int64_t n_files = unstored == NULL ? 0 : number_of (unstored, "files");
    int64_t n_changes = unstored == NULL ? 0 : number_of (unstored, "changes");
    g_autofree char *also =
        n_files + n_changes == 0
            ? g_strdup ("")
            : g_strdup_printf (" %" PRIi64 " files and %" PRIi64 " other changes that were not stored before that are "
                               "only here; they are named below.",
                               n_files, n_changes);
    return g_strconcat ("What is stored can be read, but nothing more is stored from here.", also, NULL);
}

static void judge_old_copy (Verdict *self)
{
    if (!json_object_has_member (self->status, "old_copy"))
        return;
    JsonObject *successor = part_of (self->status, "successor");
    g_autofree char *host = on_host (successor);
    g_autofree char *directory = ecfs_shell_word (text_of (self->status, "directory"));
    bool recovered = successor != NULL && number_of (successor, "epoch") > number_of (self->status, "epoch");
    add (self,
         &(Problem){
             .verdict = "old copy",
             .check = 2,
             .since = successor == NULL ? 0 : number_of (successor, "since"),
             .reason = g_strdup_printf ("%s%s: %s", recovered ? "the archive was recovered" : "another copy is in use",
                                        host, text_of (self->status, "old_copy")),
             .meaning = only_here (self),
             .advice = g_strdup_printf ("Use the newer archive directory%s. To take the archive over here, with what "
                                        "only this directory has kept as files:",
                                        host),
             .action = g_strdup_printf ("ecfs takeover %s", directory)});
}

/* A recovery is under way, or too few endpoints answer to tell whether this is the newest copy. */
static void judge_held (Verdict *self)
{
    JsonObject *claim = part_of (self->status, "claim"), *successor = part_of (self->status, "successor");
    bool held = json_object_has_member (self->status, "held");
    if (json_object_has_member (self->status, "old_copy") || (claim == NULL && !held))
        return;
    JsonObject *other = claim != NULL ? claim : successor;
    g_autofree char *host = on_host (other);
    Problem problem = {.verdict = claim != NULL ? "being recovered" : "in doubt",
                       .check = 1,
                       .since = other == NULL ? 0 : number_of (other, "since")};
    problem.meaning = g_strdup (held ? "Files can be read, but what is written now is only safe on this machine."
                                     : "Too few endpoints say so for it to be believed: files are stored as usual.");
    if (claim != NULL) {
        problem.reason =
            g_strdup_printf ("ecfs recover runs for this archive%s, or was interrupted (%" PRIi64 " endpoints say so)",
                             host, number_of (claim, "endpoints"));
        problem.advice = g_strdup_printf ("When it succeeds, use the new archive directory%s; this one is then an old "
                                          "copy. If it was interrupted, a mount resumes after two minutes. To look "
                                          "again:",
                                          host);
    } else {
        problem.reason = g_strdup (text_of (self->status, "held"));
        problem.advice = g_strdup ("Bring back the endpoints that do not answer, then look again:");
    }
    problem.action = g_strdup_printf ("ecfs status %s", self->directory);
    add (self, &problem);
}

/* An endpoint that says what too few others do. */
static void judge_disagreeing (Verdict *self)
{
    JsonArray *endpoints = json_object_get_array_member (self->status, "endpoints");
    if (json_object_has_member (self->status, "old_copy") || json_object_has_member (self->status, "held"))
        return; /* it may be right */
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        g_autofree char *name = ecfs_shell_word (text_of (endpoint, "name"));
        if (!json_object_has_member (endpoint, "disagrees"))
            continue;
        add (self, &(Problem){.verdict = "degraded",
                              .check = 1,
                              .reason = g_strdup_printf ("%s, and the other endpoints contradict it",
                                                         text_of (endpoint, "disagrees")),
                              .meaning = g_strdup ("What it says of the archive does not count, and nothing is deleted "
                                                   "there."),
                              .advice = g_strdup ("If it lies, do not believe it any more:"),
                              .action = g_strdup_printf ("ecfs endpoint distrust %s %s", self->directory, name)});
    }
}

static void judge_false_markers (Verdict *self)
{
    JsonArray *endpoints = json_object_get_array_member (self->status, "endpoints");
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        if (!json_object_has_member (endpoint, "false_marker"))
            continue;
        add (self, &(Problem){.verdict = "degraded",
                              .check = 1,
                              .reason = g_strdup (text_of (endpoint, "false_marker")),
                              .meaning = g_strdup ("Its journal and what it says of the archive do not count, and "
                                                   "nothing is deleted there."),
                              .advice = g_strdup ("Write the marker anew. If it changes again, the endpoint lies: "
                                                  "distrust it."),
                              .action = g_strdup_printf ("ecfs fsck -y %s", self->directory)});
    }
}

/* Endpoints that seem to have been put back to an earlier state, of which all stripes are to be looked at. */
static void judge_gaps (Verdict *self)
{
    JsonArray *endpoints = json_object_get_array_member (self->status, "endpoints");
    g_autoptr (GString) names = g_string_new (NULL);
    JsonObject *first = NULL;
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        if (!json_object_has_member (endpoint, "journal_gap"))
            continue;
        g_string_append_printf (names, "%s%s", first == NULL ? "" : ", ", text_of (endpoint, "name"));
        first = first == NULL ? endpoint : first;
    }
    if (first == NULL)
        return;
    add (self,
         &(Problem){.verdict = "degraded",
                    .check = 1,
                    .since = number_of (first, "journal_gap_since"),
                    .reason = g_strdup_printf ("endpoints have lost files that they had, as after being put back from "
                                               "an earlier copy: %s (%s)",
                                               names->str, text_of (first, "journal_gap")),
                    .meaning = g_strdup ("Stripes may be missing there as well: fewer endpoints may vanish then than "
                                         "it seems."),
                    .advice = g_strdup ("Look at all stripes, and rebuild those that are missing:"),
                    .action = g_strdup_printf ("ecfs fsck -y %s", self->directory)});
}

static void judge_catalog (Verdict *self)
{
    if (json_object_has_member (self->status, "catalog_error"))
        add (self, &(Problem){.verdict = "at risk",
                              .check = 2,
                              .reason = g_strdup (text_of (self->status, "catalog_error")),
                              .meaning = g_strdup ("Names and attributes cannot be changed."),
                              .advice = g_strdup ("Check the disk of the archive directory:"),
                              .action = g_strdup_printf ("df -h %s", self->directory)});
}

/* Endpoints that do not answer. */
typedef struct Away {
    unsigned n;
    int64_t since; /* the earliest that is known */
    GString *names;
    JsonObject *first; /* NULL: none */
} Away;

static bool is_away (JsonObject *endpoint, bool mounted)
{
    const char *state = text_of (endpoint, "state");
    bool connected = json_object_get_boolean_member_with_default (endpoint, "connected", FALSE);
    return g_str_equal (state, "down") || g_str_equal (state, "silent") || g_str_equal (state, "unconfigured") ||
           (!mounted && !connected && !g_str_equal (state, "failed"));
}

static void find_away (Verdict *self, Away *away)
{
    JsonArray *endpoints = json_object_get_array_member (self->status, "endpoints");
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        int64_t since = number_of (endpoint, "down_since");
        if (!is_away (endpoint, self->mounted))
            continue;
        if (away->n < NAMES_MAX)
            g_string_append_printf (away->names, "%s%s", away->n == 0 ? "" : ", ", text_of (endpoint, "name"));
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
    const char *reason = text_of (away->first, "reason");
    if (away->n > 1)
        return g_strdup_printf ("%u of %u endpoints do not answer: %s%s%s", away->n, n_endpoints, away->names->str,
                                *reason == '\0' ? "" : "; ", reason);
    if (g_str_equal (text_of (away->first, "state"), "unconfigured"))
        return g_strdup_printf ("endpoint %s is in the catalog, but not in ecfs.conf", away->names->str);
    return *reason != '\0' ? g_strdup (reason) : g_strdup_printf ("endpoint %s does not answer", away->names->str);
}

static void judge_away (Verdict *self)
{
    g_autoptr (GString) names = g_string_new (NULL);
    Away away = {.names = names};
    find_away (self, &away);
    if (away.n == 0)
        return;
    guint n_endpoints = json_array_get_length (json_object_get_array_member (self->status, "endpoints"));
    Problem problem = {.since = away.since, .reason = away_reason (&away, n_endpoints), .meaning = safety (self)};
    problem.check = badness (self, &problem.verdict);
    if (away.n == n_endpoints) {
        problem.verdict = "unreadable";
        problem.check = 2;
        g_free (problem.meaning);
        problem.meaning = g_strdup ("No file can be read until endpoints answer.");
    }
    g_autofree char *name = ecfs_shell_word (text_of (away.first, "name"));
    bool gone = away.since > 0 && g_get_real_time () / G_USEC_PER_SEC - away.since > LONG_GONE_S;
    const char *aside = strstr (text_of (away.first, "name"), " (replaced, ");
    if (aside != NULL) {
        g_autofree char *was = g_strndup (text_of (away.first, "name"), (gsize) (aside - text_of (away.first, "name")));
        g_autofree char *word = ecfs_shell_word (was);
        problem.advice =
            g_strdup_printf ("What %s held is rebuilt in its place. If that was interrupted, resume it:", was);
        problem.action = g_strdup_printf ("ecfs endpoint replace %s %s", self->directory, word);
    } else if (g_str_equal (text_of (away.first, "state"), "unconfigured")) {
        problem.advice =
            g_strdup ("Put its section back into ecfs.conf. If it is lost, move its stripes to a new one:");
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
    add (self, &problem);
}

/* Endpoints that answer and take nothing. */
static void judge_full (Verdict *self)
{
    JsonArray *endpoints = json_object_get_array_member (self->status, "endpoints");
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        const char *state = text_of (endpoint, "state"), *reason = text_of (endpoint, "reason");
        if (!g_str_equal (state, "full") && !g_str_equal (state, "refusing"))
            continue;
        g_autofree char *name = ecfs_shell_word (text_of (endpoint, "name"));
        add (self,
             &(Problem){.verdict = "degraded",
                        .check = 1,
                        .reason = *reason != '\0'
                                      ? g_strdup (reason)
                                      : g_strdup_printf ("endpoint %s is %s", text_of (endpoint, "name"), state),
                        .meaning = g_strdup ("New files get fewer stripes, or go to other endpoints."),
                        .advice = g_strdup ("Make room there, or move some of what it holds to others:"),
                        .action = g_strdup_printf ("ecfs endpoint drain %s %s --dry-run", self->directory, name)});
    }
}

/* What is damaged or lacks stripes although all endpoints answer. */
static void judge_damage (Verdict *self)
{
    JsonObject *objects = part_of (self->status, "objects"), *repairs = part_of (self->status, "repairs"),
               *scrub = part_of (self->status, "scrub"), *staging = part_of (self->status, "staging");
    int64_t n_damaged = repairs == NULL ? 0 : number_of (repairs, "queued");
    int64_t n_found = scrub == NULL ? 0 : number_of (scrub, "damaged");
    int64_t n_lacking = objects == NULL ? 0 : number_of (objects, "missing_stripes");
    int64_t n_staged = staging == NULL ? 0 : number_of (staging, "files");
    bool coming = self->mounted && n_staged > 0;
    if (n_damaged == 0 && n_found == 0 && (n_lacking == 0 || coming))
        return;
    bool repairs_itself = self->mounted && n_found <= n_damaged && repairs != NULL &&
                          json_object_get_boolean_member_with_default (repairs, "auto", FALSE);
    Problem problem = {.since = repairs == NULL ? 0 : number_of (repairs, "since"), .meaning = safety (self)};
    problem.check = badness (self, &problem.verdict);
    problem.reason = MAX (n_damaged, n_found) > 0
                         ? g_strdup_printf ("%" PRIi64 " stripes are damaged or gone", MAX (n_damaged, n_found))
                         : g_strdup_printf ("%" PRIi64 " objects were stored without all of their stripes", n_lacking);
    const char *advice =
        repairs_itself ? "The mount rebuilds them in the background. To do it now:" : "Rebuild them from the others:";
    problem.advice =
        g_strdup (objects != NULL && number_of (objects, "guarantee") < 0
                      ? "What is needed and cannot be rebuilt is read again as soon as the files that endpoints have "
                        "lost are back in their places. To rebuild what can be, and to see which files are concerned:"
                      : advice);
    problem.action = g_strdup_printf ("ecfs fsck -y%s %s", n_found > n_damaged ? " --deep" : "", self->directory);
    add (self, &problem);
}

/* What only the past has, and lacks stripes wherever endpoints are. */
static void judge_past (Verdict *self)
{
    JsonObject *past = part_of (self->status, "past");
    int64_t n_lacking = past == NULL ? 0 : number_of (past, "lacking");
    if (n_lacking == 0)
        return;
    add (self, &(Problem){.verdict = "degraded",
                          .check = 1,
                          .reason = g_strdup_printf ("history: %" PRIi64 " objects that only the past has lack stripes",
                                                     n_lacking),
                          .meaning = g_strdup ("What was deleted or overwritten survives the loss of fewer endpoints "
                                               "than its code promises. The files that there are now are safe."),
                          .advice = g_strdup ("Rebuild them from the others:"),
                          .action = g_strdup_printf ("ecfs fsck -y %s", self->directory)});
}

/* Several stripes of an object at one endpoint, where nobody has chosen that: fewer endpoints may vanish. */
static void judge_doubled (Verdict *self)
{
    JsonObject *objects = part_of (self->status, "objects");
    int64_t n_doubled = objects == NULL ? 0 : number_of (objects, "doubled");
    if (n_doubled == 0)
        return;
    int64_t n_lacking = number_of (objects, "endpoints_lacking");
    Problem problem = {.meaning = safety (self)};
    problem.check = badness (self, &problem.verdict);
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
    add (self, &problem);
}

/* What was rebuilt and only this machine knows of. */
static void judge_rebuilt (Verdict *self)
{
    JsonObject *repairs = part_of (self->status, "repairs");
    int64_t n_unstored = repairs == NULL ? 0 : number_of (repairs, "unstored");
    if (n_unstored == 0)
        return;
    add (self, &(Problem){.verdict = "degraded",
                          .check = 1,
                          .reason = g_strdup_printf (
                              "the journal on the endpoints does not name %" PRIi64 " rebuilt stripes yet", n_unstored),
                          .meaning = g_strdup ("If this machine is lost now, these may be missed."),
                          .advice = g_strdup ("The mount stores it by itself. To wait for that:"),
                          .action = g_strdup_printf ("ecfs wait %s", self->directory)});
}

/* Whether what is staged is on endpoints all the same, with fewer stripes than it is to have. */
static bool is_all_committed (JsonObject *staging)
{
    JsonArray *oldest = json_object_get_array_member (staging, "oldest");
    bool committed = number_of (staging, "files") == json_array_get_length (oldest);
    for (guint i = 0; committed && i < json_array_get_length (oldest); i++)
        committed = g_str_equal (text_of (json_array_get_object_element (oldest, i), "state"), "not full");
    return committed;
}

/* "a, b" of an array of names; g_free () */
static char *names_of (JsonArray *names)
{
    GString *text = g_string_new (NULL);
    for (guint i = 0; names != NULL && i < json_array_get_length (names); i++)
        g_string_append_printf (text, "%s%s", i == 0 ? "" : ", ", json_array_get_string_element (names, i));
    return g_string_free (text, FALSE);
}

static void advise_on_losses (Verdict *self, JsonObject *key, const char *lacking, Problem *problem)
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
    bool by_zones = number_of (key, "left") < needed;
    int64_t n = number_of (key, by_zones ? "tolerance" : "endpoint_tolerance");
    bool is_told = by_zones || json_object_has_member (key, "endpoints_left"); /* an earlier ecfs did not */
    return is_told && number_of (key, by_zones ? "left" : "endpoints_left") < needed
               ? g_strdup_printf ("%" PRIi64 " more %s%s", n, by_zones ? "zone" : "endpoint", n == 1 ? "" : "s")
               : NULL;
}

/* So few zones have their shares of the key that it does not outlive what it is to. */
static void judge_key_losses (Verdict *self, JsonObject *key)
{
    int64_t needed = number_of (key, "needed"), n_here = number_of (key, "here");
    bool too_few = number_of (key, "shares_here") < needed;
    g_autofree char *lost = fatal_loss (key, needed);
    g_autofree char *lacking = names_of (json_object_get_array_member (key, "lacking"));
    if (lost == NULL)
        return;
    Problem problem = {.verdict = too_few ? "at risk" : "degraded", .check = too_few ? 2 : 1};
    const char *without = *lacking == '\0' ? "" : "; without it: ";
    problem.reason =
        json_object_has_member (self->status, "key_shares")
            ? g_strdup_printf ("the archive's key needs the shares of %" PRIi64 " zones, and %" PRIi64 " of %" PRIi64
                               " have theirs now%s%s",
                               needed, n_here, number_of (key, "zones"), without, lacking)
            : g_strdup_printf ("%" PRIi64 " of %" PRIi64 " zones have the key file now, which the archive's key comes "
                               "back from%s%s",
                               n_here, number_of (key, "zones"), without, lacking);
    problem.meaning = too_few ? g_strdup ("Files can be read here. If this machine is lost now, all of them are.")
                              : g_strdup_printf ("If this machine and %s are lost now, so are all files.", lost);
    advise_on_losses (self, key, lacking, &problem);
    add (self, &problem);
}

/* Zones that became one in ecfs.conf have more of the key than one may. */
static void judge_key_zones (Verdict *self, JsonObject *key)
{
    int64_t needed = number_of (key, "needed"), n_readers = number_of (key, "readers");
    g_autofree char *merged = names_of (json_object_get_array_member (key, "merged"));
    if (n_readers == 0 || n_readers >= needed)
        return;
    add (self,
         &(Problem){.verdict = "exposed",
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
static void judge_key_threshold (Verdict *self, JsonObject *key)
{
    int64_t needed = number_of (key, "needed"), would_need = number_of (key, "would_need");
    if (would_need <= needed)
        return;
    add (self,
         &(Problem){.verdict = "exposed",
                    .check = 1,
                    .reason = g_strdup_printf ("%" PRIi64 " zones bring the archive's key back, and as many may vanish "
                                               "now with all files left",
                                               needed),
                    .meaning = g_strdup ("As many zones as files survive the loss of could read the archive together."),
                    .advice = g_strdup_printf ("Give it another key, which %" PRIi64 " zones bring back:", would_need),
                    .action = g_strdup_printf ("ecfs key rotate %s", self->directory)});
}

/* Somebody took the last slot away: all that is left is the file key. */
static void judge_key_slots (Verdict *self)
{
    add (self,
         &(Problem){.verdict = "at risk",
                    .check = 2,
                    .reason = g_strdup ("no key slot is left, so nothing that endpoints have opens the archive's key"),
                    .meaning = g_strdup_printf ("If this machine is lost, nothing comes back without a copy of the "
                                                "file %s/key.",
                                                text_of (self->status, "directory")),
                    .advice = g_strdup ("Make a slot, with a code (see ecfs-key(1) for others):"),
                    .action = g_strdup_printf ("ecfs key add --code %s", self->directory)});
}

static void judge_key (Verdict *self)
{
    JsonObject *key = part_of (self->status, "key_sharing");
    if (key == NULL)
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

static void judge_staging (Verdict *self)
{
    JsonObject *staging = part_of (self->status, "staging");
    int64_t n_files = staging == NULL ? 0 : number_of (staging, "files");
    int64_t n_failed = staging == NULL ? 0 : number_of (staging, "failed");
    JsonArray *oldest = staging == NULL ? NULL : json_object_get_array_member (staging, "oldest");
    if (n_files == 0 || (self->mounted && n_failed == 0))
        return;
    JsonObject *row = json_array_get_length (oldest) == 0 ? NULL : json_array_get_object_element (oldest, 0);
    for (guint i = 0; i < json_array_get_length (oldest); i++)
        if (json_object_has_member (json_array_get_object_element (oldest, i), "error")) {
            row = json_array_get_object_element (oldest, i);
            break;
        }
    const char *error = row == NULL ? "" : text_of (row, "error");
    bool committed = is_all_committed (staging);
    const char *what = committed ? (n_files == 1 ? "file lacks stripes" : "files lack stripes")
                                 : (n_files == 1 ? "file is only on this machine" : "files are only on this machine");
    add (self,
         &(Problem){.verdict = committed ? "degraded" : "not stored",
                    .check = 1,
                    .since = row == NULL ? 0 : number_of (row, "since"),
                    .reason = g_strdup_printf ("%" PRIi64 " %s%s%s", n_files, what, *error == '\0' ? "" : ": ", error),
                    .meaning = committed ? safety (self) : g_strdup ("They are lost if this machine is."),
                    .advice = g_strdup (self->mounted ? "The mount tries again by itself. To wait until they are "
                                                        "stored:"
                                                      : "Mount the archive for writing, which stores them:"),
                    .action = self->mounted ? g_strdup_printf ("ecfs wait %s", self->directory)
                                            : g_strdup_printf ("ecfs mount %s MOUNTPOINT", self->directory)});
}

static void judge_unreadable (Verdict *self)
{
    JsonObject *objects = part_of (self->status, "objects");
    int64_t n_unreadable = objects == NULL ? 0 : number_of (objects, "unreadable");
    if (n_unreadable == 0 || (self->worst != NULL && number_of (self->worst, "check") == 2))
        return;
    add (self, &(Problem){.verdict = "unreadable",
                          .check = 2,
                          .reason = g_strdup_printf ("%" PRIi64 " objects cannot be read", n_unreadable),
                          .meaning = safety (self),
                          .advice = g_strdup ("Find out which files that concerns, and what is left of them:"),
                          .action = g_strdup_printf ("ecfs fsck -n %s", self->directory)});
}

/* Most names have gone, and no brake has told of it: by a program that went wrong, or a catalog that did. */
static void judge_shrunk (Verdict *self)
{
    JsonObject *shrunk = part_of (self->status, "shrunk");
    if (shrunk == NULL || json_object_has_member (self->status, "brake"))
        return;
    g_autoptr (GDateTime) before =
        g_date_time_new_from_unix_local ((gint64) json_object_get_double_member (shrunk, "before"));
    g_autofree char *moment = before == NULL ? g_strdup ("?") : g_date_time_format (before, "%F %T");
    add (self, &(Problem){.verdict = "at risk",
                          .check = 1,
                          .since = (int64_t) json_object_get_double_member (shrunk, "time"),
                          .reason = g_strdup_printf ("the last snapshot of the catalog has %" PRIi64
                                                     " bytes, and the one before it had %" PRIi64 ": most names have "
                                                     "gone since",
                                                     number_of (shrunk, "bytes"), number_of (shrunk, "bytes_before")),
                          .meaning = g_strdup ("If that was not meant, what had these names is lost when its time has "
                                               "passed."),
                          .advice = g_strdup ("See what there was; 'ecfs undelete' brings it back:"),
                          .action = g_strdup_printf ("ecfs ls %s --at '%s'", self->directory, moment)});
}

static void praise (Verdict *self)
{
    guint n_endpoints = json_array_get_length (json_object_get_array_member (self->status, "endpoints"));
    JsonObject *staging = part_of (self->status, "staging");
    int64_t n_files = staging == NULL ? 0 : number_of (staging, "files");
    g_autofree char *storing = n_files == 0 ? g_strdup ("")
                                            : g_strdup_printf (", and %" PRIi64 " %s being stored", n_files,
                                                               n_files == 1 ? "file is" : "files are");
    g_autofree char *reason = g_strdup_printf ("all %u endpoints answer%s", n_endpoints, storing);
    g_autofree char *meaning = safety (self);
    json_object_set_string_member (self->status, "verdict", "healthy");
    json_object_set_int_member (self->status, "check", 0);
    json_object_set_string_member (self->status, "reason", reason);
    json_object_set_string_member (self->status, "meaning", meaning);
    json_object_set_string_member (self->status, "advice", "Nothing to do.");
}

void ecfs_status_judge (JsonObject *status)
{
    Verdict self = {.status = status,
                    .problems = json_array_new (),
                    .directory = ecfs_shell_word (text_of (status, "directory")),
                    .mounted = json_object_get_boolean_member_with_default (status, "mounted", FALSE)};
    judge_read_only (&self);
    judge_old_copy (&self);
    judge_held (&self);
    judge_key_begun (&self);
    judge_catalog (&self);
    judge_away (&self);
    judge_unreadable (&self);
    judge_damage (&self);
    judge_past (&self);
    judge_doubled (&self);
    judge_gaps (&self);
    judge_key (&self);
    judge_rebuilt (&self);
    judge_staging (&self);
    judge_full (&self);
    judge_shrunk (&self);
    judge_disagreeing (&self);
    judge_false_markers (&self);
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
    g_autofree char *catalog = g_build_filename (directory, "catalog.sqlite", NULL);
    bool no_config = access (config, F_OK) != 0, no_catalog = access (catalog, F_OK) != 0;
    bool damaged = no_config || no_catalog || error->code == EBADMSG;
    g_autofree char *recover = g_strdup_printf ("ecfs recover %s.new --endpoint URL...", word);
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
            status, "advice", "restore the file from a backup, or make the directory again from the endpoints:");
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
