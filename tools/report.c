#include "report.h"

#include "page.h"

#include <inttypes.h>
#include <string.h>

typedef struct Report {
    const ReportFacts *facts;
    const ReportLimits *limits;
    JsonArray *findings;
    JsonArray *notes;
    JsonArray *done;
    JsonObject *worst; /* of the findings; borrowed; NULL: none */
    bool is_excused;   /* that files survive less than they are to */
    char *directory;   /* as a shell takes it; owned */
} Report;

/* Something that is to be done. Texts are taken; @action may be NULL. */
static void add_finding (Report *self, const char *kind, int check, char *reason, const char *meaning,
                         const char *advice, char *action)
{
    JsonObject *finding = json_object_new ();
    json_object_set_string_member (finding, "kind", kind);
    json_object_set_int_member (finding, "check", check);
    json_object_set_string_member (finding, "reason", reason);
    json_object_set_string_member (finding, "meaning", meaning);
    json_object_set_string_member (finding, "advice", advice);
    if (action != NULL)
        json_object_set_string_member (finding, "action", action);
    json_array_add_object_element (self->findings, finding);
    g_free (reason);
    g_free (action);
}

static void add_note (Report *self, char *text)
{
    json_array_add_string_element (self->notes, text);
    g_free (text);
}

static void add_done (Report *self, const char *title, char *text)
{
    JsonObject *line = json_object_new ();
    json_object_set_string_member (line, "title", title);
    json_object_set_string_member (line, "text", text);
    json_array_add_object_element (self->done, line);
    g_free (text);
}

static char *command (const Report *self, const char *verb)
{
    return g_strdup_printf ("ecfs %s %s", verb, self->directory);
}

static char *percent_text (double part)
{
    return g_strdup_printf ("%.3g%%", part * 100);
}

static bool is_found (const Report *self, const char *kind)
{
    for (guint i = 0; i < json_array_get_length (self->findings); i++)
        if (g_str_equal (tool_text (json_array_get_object_element (self->findings, i), "kind"), kind))
            return true;
    return false;
}

/* Whether what it tells to do is about files that are worse off than they are to be. */
static bool is_about_losses (JsonObject *finding)
{
    static const char *const kinds[] = {"down",         "unreadable", "damaged",  "crowded", "low-guarantee",
                                        "not-readable", "given-up",   "no-place", NULL};
    return g_strv_contains (kinds, tool_text (finding, "kind"));
}

/* What the status says is wrong */

/* How long the endpoint has been away that has been it longest; -1: not known of all. */
static int64_t longest_away_s (const Report *self)
{
    int64_t longest = 0;
    JsonArray *endpoints = tool_list (self->facts->status, "endpoints");
    for (guint i = 0; i < tool_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        if (!tool_is_away (self->facts->status, endpoint))
            continue;
        if (tool_number (endpoint, "down_since") == 0)
            return -1;
        longest = MAX (longest, self->facts->now_s - tool_number (endpoint, "down_since"));
    }
    return longest;
}

/* Whether a limit says that it may be so. What may cost a file is never excused. */
static bool is_excused (const Report *self, JsonObject *problem)
{
    const char *kind = tool_text (problem, "kind");
    JsonObject *repairs = tool_part (self->facts->status, "repairs"), *scrub = tool_part (self->facts->status, "scrub");
    if (tool_number (problem, "check") == 0)
        return true;
    if (tool_number (problem, "check") > 1)
        return false;
    if (g_str_equal (kind, "down")) {
        int64_t away_s = longest_away_s (self);
        return away_s >= 0 && away_s < self->limits->away_s;
    }
    int64_t n_damaged = MAX (tool_number (repairs, "queued"), tool_number (scrub, "damaged"));
    return g_str_equal (kind, "damaged") && n_damaged > 0 && n_damaged <= self->limits->damaged;
}

static void take_problems (Report *self)
{
    JsonArray *problems = tool_list (self->facts->status, "problems");
    for (guint i = 0; i < tool_length (problems); i++) {
        JsonObject *problem = json_array_get_object_element (problems, i);
        if (is_excused (self, problem)) {
            add_note (self, g_strdup (tool_text (problem, "reason")));
            self->is_excused |= is_about_losses (problem);
        } else
            json_array_add_object_element (self->findings, json_object_ref (problem));
    }
}

/* What exceeds limits */

static void take_mass_deletion (Report *self)
{
    JsonObject *brake = tool_part (self->facts->status, "brake");
    if (brake != NULL)
        add_finding (self, "mass-deletion", 1,
                     g_strdup_printf ("%" PRIi64 " of %" PRIi64 " files were deleted or overwritten within an hour",
                                      tool_number (brake, "lost"), tool_number (brake, "files")),
                     "All they had is kept for a while.",
                     "If it was not meant, undo it; 'ecfs history --release' lets it go:",
                     g_strdup (tool_text (brake, "command")));
}

static void take_recovery_point (Report *self)
{
    JsonObject *point = tool_part (self->facts->status, "recovery_point");
    int64_t pending = tool_number (point, "pending"), time_s = tool_number (point, "time");
    bool mounted = json_object_get_boolean_member_with_default (self->facts->status, "mounted", FALSE);
    if (point == NULL || pending == 0 || json_object_has_member (self->facts->status, "follow") ||
        json_object_has_member (self->facts->status, "old_copy"))
        return;
    g_autofree char *age = tool_seconds ((double) (self->facts->now_s - time_s));
    if (time_s > 0 && self->facts->now_s - time_s <= self->limits->point_s)
        return;
    add_finding (self, "recovery-point-old", 1,
                 time_s == 0 ? g_strdup_printf ("no name is safe without this machine: %" PRIi64 " changes", pending)
                             : g_strdup_printf ("%" PRIi64 " changes of names and places are on this machine alone, "
                                                "since %s ago",
                                                pending, age),
                 "If this machine is lost, so are they: files that were stored since are found by their stripes alone.",
                 mounted ? "Store them, or learn what keeps the mount from that:" : "A mount for writing stores them:",
                 mounted ? command (self, "wait") : g_strdup_printf ("ecfs mount %s MOUNTPOINT", self->directory));
}

static void take_staging (Report *self)
{
    JsonObject *staging = tool_part (self->facts->status, "staging");
    int64_t since = tool_number (staging, "since"), n_files = tool_number (staging, "files");
    g_autofree char *age = tool_seconds ((double) (self->facts->now_s - since));
    if (n_files > 0 && !is_found (self, "not-stored") && self->facts->now_s - since > self->limits->point_s)
        add_finding (self, "not-stored", 1,
                     g_strdup_printf ("%" PRIi64 " %s to be stored in full, the first for %s", n_files,
                                      n_files == 1 ? "file waits" : "files wait", age),
                     "Until then they may be lost with this machine, or survive less than they are to.",
                     "Store them, or learn what keeps the mount from that:", command (self, "wait"));
}

/* Files that cannot bear so many losses; where @all is not set, only those that lack stripes. */
static int64_t files_below (const Report *self, int64_t guarantee, bool all)
{
    int64_t n = 0;
    JsonArray *rows = tool_list (tool_part (self->facts->status, "survey"), "files");
    for (guint i = 0; i < tool_length (rows); i++) {
        JsonObject *row = json_array_get_object_element (rows, i);
        if (tool_number (row, "guarantee") < guarantee && (all || !g_str_equal (tool_text (row, "state"), "full")))
            n += tool_number (row, "files");
    }
    return n;
}

/* Files that lack stripes, whatever the reason is: for an endpoint that is not believed, nobody waits. */
static void take_losses (Report *self)
{
    JsonObject *status = self->facts->status, *staging = tool_part (status, "staging");
    bool coming =
        json_object_get_boolean_member_with_default (status, "mounted", FALSE) && tool_number (staging, "files") > 0;
    int64_t n_files = files_below (self, self->facts->may_vanish, false);
    for (guint i = 0; i < json_array_get_length (self->findings); i++)
        if (is_about_losses (json_array_get_object_element (self->findings, i)))
            return;
    if (n_files > 0 && !coming && !self->is_excused)
        add_finding (self, "low-guarantee", 1, page_count (n_files, "file lacks stripes", "files lack stripes"),
                     "They survive the loss of fewer endpoints than they are to.",
                     "See which endpoints are not used any more. Move what these had to others:",
                     command (self, "status --survey"));
}

static void take_guarantee (Report *self)
{
    int64_t least = self->limits->guarantee, n_files = least < 0 ? 0 : files_below (self, least, true);
    if (n_files > 0)
        add_finding (self, "low-guarantee", 1,
                     g_strdup_printf ("%" PRIi64 " %s not survive the loss of %" PRIi64 " more endpoint%s", n_files,
                                      n_files == 1 ? "file would" : "files would", least, least == 1 ? "" : "s"),
                     "That is what --guarantee asks for.",
                     "Bring endpoints back and repair; or, where the code of files promises less, give them another:",
                     command (self, "info"));
}

static void take_room (Report *self)
{
    JsonObject *status = self->facts->status;
    JsonArray *endpoints = tool_list (status, "endpoints"),
              *shares = tool_list (tool_part (status, "survey"), "endpoints");
    for (guint i = 0; i < tool_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i), *share = NULL;
        const char *name = tool_text (endpoint, "name");
        for (guint j = 0; j < tool_length (shares) && share == NULL; j++)
            if (g_str_equal (tool_text (json_array_get_object_element (shares, j), "endpoint"), name))
                share = json_array_get_object_element (shares, j);
        if (share == NULL || !json_object_has_member (endpoint, "free_bytes"))
            continue;
        double used = tool_double (share, "bytes"), free_bytes = tool_double (endpoint, "free_bytes");
        double part = used + free_bytes > 0 ? used / (used + free_bytes) : 0;
        if (part <= self->limits->full)
            continue;
        g_autofree char *percent = percent_text (part), *left = tool_bytes (free_bytes), *word = tool_shell_word (name);
        add_finding (self, "nearly-full", 1,
                     g_strdup_printf ("endpoint %s is %s full: %s are left for stripes", name, percent, left),
                     "When it is full, new files get fewer stripes or go to other endpoints.",
                     "Make room there, add an endpoint, or move some of what it holds to others:",
                     g_strdup_printf ("ecfs endpoint drain %s %s --dry-run", self->directory, word));
    }
}

static void take_verified (Report *self)
{
    JsonObject *scrub = tool_part (self->facts->status, "scrub");
    if (scrub == NULL || tool_double (self->facts->status, "stripe_bytes") <= 0)
        return;
    int64_t ended = tool_number (scrub, "full_ended"), began = tool_number (scrub, "began");
    int64_t since = ended > 0 ? ended : began;
    g_autofree char *age = tool_seconds ((double) (self->facts->now_s - since));
    if (since == 0)
        add_note (self, g_strdup ("stored bytes were never verified so far"));
    else if (self->facts->now_s - since > self->limits->verified_s)
        add_finding (
            self, "not-verified", 1,
            ended > 0 ? g_strdup_printf ("not everything was verified since %s ago", age)
                      : g_strdup_printf ("a check begun %s ago has not verified everything yet", age),
            "Stripes that nobody reads may be damaged, and nobody knows.",
            "Verify it; reports with a larger --scrub get there by themselves:", command (self, "fsck -y --deep"));
}

/* What was done now */

/* "amber, birch": whose stripes a check found gone or damaged; g_free () */
static char *losers_of (JsonObject *scrub)
{
    JsonArray *endpoints = tool_list (scrub, "endpoints");
    GString *names = g_string_new (NULL);
    for (guint i = 0; i < tool_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        if (tool_number (endpoint, "gone") + tool_number (endpoint, "damaged") > 0)
            g_string_append_printf (names, "%s%s", names->len == 0 ? "" : ", ", tool_text (endpoint, "name"));
    }
    return g_string_free (names, FALSE);
}

static void take_damage (Report *self, JsonObject *scrub)
{
    int64_t n_bad = tool_number (scrub, "stripes_gone") + tool_number (scrub, "stripes_damaged");
    int64_t n_rebuilt = tool_number (scrub, "stripes_rebuilt");
    g_autofree char *losers = losers_of (scrub);
    g_autofree char *stripes = page_count (n_bad, "stripe", "stripes");
    g_autofree char *reason = g_strdup_printf ("the check found %s damaged or gone at %s; %" PRIi64 " %s rebuilt",
                                               stripes, losers, n_rebuilt, n_rebuilt == 1 ? "was" : "were");
    if (n_bad > self->limits->damaged)
        add_finding (self, "damaged", 1, g_steal_pointer (&reason),
                     "An account that loses or changes what it was given may do so again.",
                     "Ask who runs it. To verify everything now, and rebuild what is not well:",
                     command (self, "fsck -y --deep"));
    else if (n_bad > 0)
        add_note (self, g_steal_pointer (&reason));
}

static void take_scrub_errors (Report *self)
{
    JsonObject *scrub = self->facts->scrub;
    int64_t n_left = tool_number (scrub, "objects_left");
    if (self->facts->scrub_error != NULL)
        add_finding (self, "not-checked", 1, g_strdup_printf ("the check failed: %s", self->facts->scrub_error),
                     "So what is said here of files is what the catalog says.",
                     "Try it by hand:", command (self, "fsck -n"));
    if (scrub == NULL)
        return;
    take_damage (self, scrub);
    if (tool_number (scrub, "catalog_problems") > 0)
        add_finding (self, "catalog", 2,
                     g_strdup_printf ("the catalog of this directory has %" PRIi64 " problems",
                                      tool_number (scrub, "catalog_problems")),
                     "Files may be missing here that the endpoints have.",
                     "See what they are:", command (self, "fsck -n"));
    if (n_left > 0 && !is_found (self, "down"))
        add_finding (self, "damaged", 1,
                     g_strdup_printf ("%" PRIi64 " objects lack stripes that could not be rebuilt", n_left),
                     "They survive the loss of fewer endpoints than they are to.",
                     "Bring endpoints back or add some, then:", command (self, "fsck -y"));
    if (json_object_get_boolean_member_with_default (scrub, "out_of_time", FALSE))
        add_note (self, g_strdup ("--max-time was over before all was checked that was to be"));
}

static char *names_of (JsonArray *names)
{
    GString *text = g_string_new (NULL);
    for (guint i = 0; i < tool_length (names); i++)
        g_string_append_printf (text, "%s%s",
                                i == 0                         ? ""
                                : i + 1 == tool_length (names) ? " and "
                                                               : ", ",
                                json_array_get_string_element (names, i));
    return g_string_free (text, FALSE);
}

static void take_drill_errors (Report *self)
{
    JsonObject *drill = self->facts->drill, *key = tool_part (drill, "key");
    if (self->facts->drill_error != NULL)
        add_finding (self, "not-rehearsed", 1, g_strdup_printf ("the drill failed: %s", self->facts->drill_error),
                     "So nobody has tried whether files can be read without some endpoints.",
                     "Try it by hand:", command (self, "drill"));
    if (drill == NULL)
        return;
    g_autofree char *without = names_of (tool_list (drill, "without"));
    int64_t n_bad = tool_number (drill, "unreadable"), n_broken = tool_number (drill, "unreadable_with_all");
    if (n_bad + n_broken > 0)
        add_finding (self, "not-readable", n_broken > 0 ? 2 : 1,
                     g_strdup_printf ("%" PRIi64 " of %" PRIi64 " objects could not be read without %s, and %" PRIi64
                                      " not even with all endpoints",
                                      n_bad, tool_number (drill, "sampled"), without, n_broken),
                     "It was a sample: there may be more.",
                     "Find all of them, and rebuild what can be:", command (self, "fsck -y --deep"));
    if (key != NULL && !json_object_get_boolean_member_with_default (key, "comes_back", TRUE))
        add_finding (
            self, "key", 2,
            g_strdup_printf ("the archive's key does not come back without %s: %s", without, tool_text (key, "error")),
            "Without this machine nothing could be read then.",
            "See who has a share of it, and keep a copy of it elsewhere until that is well:",
            command (self, "key list"));
}

static void take_command (Report *self)
{
    JsonObject *events = tool_part (self->facts->status, "events");
    if (events != NULL && json_object_has_member (events, "failure"))
        add_finding (self, "not-told", 1,
                     g_strdup_printf ("the command on_event of ecfs.conf failed: %s", tool_text (events, "failure")),
                     "Whoever waits to be told is not told.",
                     "Correct it; it is run again when something happens. Its "
                     "last run:",
                     command (self, "status"));
}

/* Lines on what is well */

static void tell_scrub (Report *self)
{
    JsonObject *scrub = self->facts->scrub, *deep = tool_part (scrub, "deep"),
               *state = tool_part (self->facts->status, "scrub");
    if (scrub == NULL) {
        add_done (self, "checked",
                  g_strdup (self->facts->scrub_error != NULL ? "nothing: the check failed"
                            : self->facts->is_checked_elsewhere
                                ? "nothing, as another check is at work; what is said of files is what the catalog says"
                                : "nothing: what is said of files is what the catalog says"));
        return;
    }
    g_autofree char *bytes = tool_bytes (tool_double (scrub, "checked_bytes"));
    int64_t n_stripes = tool_number (scrub, "stripes"), n_unknown = tool_number (scrub, "stripes_unknown");
    int64_t n_lost = tool_number (scrub, "stripes_gone") + tool_number (scrub, "stripes_damaged");
    GString *text = g_string_new (NULL);
    if (n_lost + n_unknown == 0)
        g_string_append_printf (text, "all %" PRIi64 " stripes are in their places", n_stripes);
    else
        g_string_append_printf (text,
                                "of %" PRIi64 " stripes %" PRIi64 " are gone or damaged, and %" PRIi64
                                " are at endpoints that do not answer",
                                n_stripes, n_lost, n_unknown);
    g_string_append_printf (text, "; %" PRIi64 " with %s were read and verified", tool_number (deep, "stripes"), bytes);
    if (tool_number (scrub, "stripes_rebuilt") > 0)
        g_string_append_printf (text, "; %" PRIi64 " were rebuilt", tool_number (scrub, "stripes_rebuilt"));
    if (json_object_has_member (state, "full_ended")) {
        g_autofree char *ended = page_since (tool_number (state, "full_ended"));
        g_string_append_printf (text, ". Everything was verified last by %s", ended);
    } else {
        g_string_append (text, ". Not everything was verified yet");
    }
    if (state != NULL && json_object_get_boolean_member_with_default (state, "open", FALSE)) {
        g_autofree char *part = percent_text (tool_double (state, "verified"));
        g_string_append_printf (text, "; this round is at %s", part);
    }
    add_done (self, "checked", g_string_free (text, FALSE));
}

static void tell_drill (Report *self)
{
    JsonObject *drill = self->facts->drill, *key = tool_part (drill, "key");
    if (drill == NULL) {
        add_done (self, "rehearsed",
                  g_strdup (self->facts->drill_error != NULL ? "nothing: the drill failed" : "nothing"));
        return;
    }
    g_autofree char *without = names_of (tool_list (drill, "without")),
                    *bytes = tool_bytes (tool_double (drill, "bytes"));
    int64_t n_bad = tool_number (drill, "unreadable");
    g_autofree char *objects = page_count (tool_number (drill, "sampled"), "object", "objects");
    g_autofree char *result = n_bad == 0 ? g_strdup ("every byte was as it was stored")
                                         : g_strdup_printf ("%" PRIi64 " could not be read", n_bad);
    add_done (self, "rehearsed",
              g_strdup_printf ("%s with %s were read without %s: %s. With %.0f%% confidence no more than "
                               "%" PRIi64 " of all %" PRIi64 " cannot be read without them%s",
                               objects, bytes, without, result, tool_double (drill, "confidence") * 100,
                               tool_number (drill, "unreadable_at_most"), tool_number (drill, "objects"),
                               key == NULL ? ""
                               : json_object_get_boolean_member_with_default (key, "comes_back", FALSE)
                                   ? ". The key comes back"
                                   : ". The key does not come back"));
}

static void tell_endpoints (Report *self)
{
    guint n_away = 0;
    JsonArray *endpoints = tool_list (self->facts->status, "endpoints");
    g_autoptr (GString) text = g_string_new (NULL);
    for (guint i = 0; i < tool_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        if (!tool_is_away (self->facts->status, endpoint))
            continue;
        g_string_append_printf (text, "%s%s", n_away++ == 0 ? "; away: " : ", ", tool_text (endpoint, "name"));
        if (tool_number (endpoint, "down_since") > 0) {
            g_autofree char *since = page_since (tool_number (endpoint, "down_since"));
            g_string_append_printf (text, " since %s", since);
        }
    }
    add_done (
        self, "endpoints",
        g_strdup_printf ("%u of %u answer%s", tool_length (endpoints) - n_away, tool_length (endpoints), text->str));
}

static void tell_files (Report *self)
{
    JsonArray *rows = tool_list (tool_part (self->facts->status, "survey"), "files");
    g_autoptr (GString) text = g_string_new (NULL);
    for (guint i = 0; i < tool_length (rows); i++) {
        JsonObject *row = json_array_get_object_element (rows, i);
        int64_t guarantee = tool_number (row, "guarantee");
        g_autofree char *bytes = tool_bytes (tool_double (row, "bytes"));
        g_autofree char *files = page_count (tool_number (row, "files"), "file", "files");
        g_string_append_printf (text, "%s%s with %s", i == 0 ? "" : "; ", files, bytes);
        if (guarantee < 0)
            g_string_append (text, ": unreadable now");
        else if (guarantee == 0)
            g_string_append (text, ": no further endpoint may vanish");
        else
            g_string_append_printf (text, ": any %" PRIi64 " more endpoint%s may vanish", guarantee,
                                    guarantee == 1 ? "" : "s");
        if (guarantee >= 0 && !g_str_equal (tool_text (row, "state"), "full"))
            g_string_append (text, " (stripes are missing)");
    }
    add_done (self, "files", text->len == 0 ? g_strdup ("none is stored") : g_strdup (text->str));
}

static void tell_names (Report *self)
{
    JsonObject *point = tool_part (self->facts->status, "recovery_point");
    if (point == NULL || json_object_has_member (self->facts->status, "follow"))
        return;
    int64_t pending = tool_number (point, "pending");
    g_autofree char *since = page_since (tool_number (point, "time"));
    add_done (self, "names",
              pending == 0
                  ? g_strdup ("every name and attribute is safe without this machine")
                  : g_strdup_printf ("%" PRIi64 " changes are on this machine alone; what was before %s is safe "
                                     "without it",
                                     pending, tool_number (point, "time") == 0 ? "them" : since));
}

static void tell_room (Report *self)
{
    JsonObject *status = self->facts->status;
    g_autofree char *left = tool_bytes (tool_double (status, "free_bytes"));
    add_done (self, "room",
              json_object_has_member (status, "free_bytes") ? g_strdup_printf ("for %s more", left)
                                                            : g_strdup ("not known: endpoints did not tell"));
}

/* The verdict */

/* Of files that are worse off than they are to be; NULL: there are none. g_free () */
static char *loss_text (const Report *self)
{
    guint n_endpoints = tool_length (tool_list (self->facts->status, "endpoints"));
    int64_t n_lost = files_below (self, 0, true), may = self->facts->may_vanish, n_low = files_below (self, may, false);
    if (n_lost > 0)
        return g_strdup_printf ("%" PRIi64 " file%s cannot be read", n_lost, n_lost == 1 ? "" : "s");
    if (n_low > 0)
        return g_strdup_printf ("%" PRIi64 " file%s would not survive the loss of %" PRIi64 " more of %u endpoints",
                                n_low, n_low == 1 ? "" : "s", may, n_endpoints);
    return NULL;
}

static JsonObject *worst_of (const Report *self)
{
    JsonObject *worst = NULL;
    for (guint i = 0; i < json_array_get_length (self->findings); i++) {
        JsonObject *finding = json_array_get_object_element (self->findings, i);
        if (worst == NULL || tool_number (finding, "check") > tool_number (worst, "check"))
            worst = finding;
    }
    return worst;
}

static char *well_text (const Report *self)
{
    JsonObject *status = self->facts->status, *objects = tool_part (status, "objects");
    guint n_endpoints = tool_length (tool_list (status, "endpoints"));
    int64_t guarantee = tool_number (objects, "guarantee");
    const char *how = self->facts->scrub == NULL ? " by the catalog alone" : "";
    GString *text = g_string_new ("all is well: ");
    if (objects == NULL || !json_object_has_member (objects, "guarantee"))
        g_string_append (text, "no file is stored yet");
    else if (guarantee == 0)
        g_string_append_printf (text, "every file can be read%s, but no endpoint may vanish", how);
    else
        g_string_append_printf (text, "every file can be read%s, and any %" PRIi64 " of %u endpoints may vanish", how,
                                guarantee, n_endpoints);
    for (guint i = 0; i < json_array_get_length (self->notes); i++)
        g_string_append_printf (text, "; %s", json_array_get_string_element (self->notes, i));
    return g_string_free (text, FALSE);
}

static char *headline (const Report *self)
{
    if (self->worst == NULL)
        return well_text (self);
    g_autofree char *loss = is_about_losses (self->worst) ? loss_text (self) : NULL;
    const char *action = tool_text (self->worst, "action");
    return g_strconcat (loss == NULL ? tool_text (self->worst, "reason") : loss, *action == '\0' ? "" : ": ", action,
                        NULL);
}

/* The worst first; as they were found otherwise. */
static JsonArray *sorted (JsonArray *findings)
{
    JsonArray *array = json_array_new ();
    for (int check = 2; check >= 0; check--)
        for (guint i = 0; i < json_array_get_length (findings); i++) {
            JsonObject *finding = json_array_get_object_element (findings, i);
            if (tool_number (finding, "check") == check)
                json_array_add_object_element (array, json_object_ref (finding));
        }
    return array;
}

JsonObject *report_judge (const ReportFacts *facts, const ReportLimits *limits)
{
    Report self = {.facts = facts,
                   .limits = limits,
                   .findings = json_array_new (),
                   .notes = json_array_new (),
                   .done = json_array_new (),
                   .directory = tool_shell_word (tool_text (facts->status, "directory"))};
    take_problems (&self);
    take_scrub_errors (&self);
    take_drill_errors (&self);
    take_losses (&self);
    take_guarantee (&self);
    take_mass_deletion (&self);
    take_recovery_point (&self);
    take_staging (&self);
    take_room (&self);
    take_verified (&self);
    take_command (&self);
    tell_endpoints (&self);
    tell_files (&self);
    tell_scrub (&self);
    tell_drill (&self);
    tell_names (&self);
    tell_room (&self);
    self.worst = worst_of (&self);
    JsonObject *report = json_object_new ();
    g_autofree char *line = headline (&self);
    json_object_set_string_member (report, "headline", line);
    json_object_set_string_member (report, "directory", tool_text (facts->status, "directory"));
    json_object_set_int_member (report, "time", facts->now_s);
    json_object_set_int_member (report, "check", self.worst == NULL ? 0 : tool_number (self.worst, "check"));
    json_object_set_array_member (report, "findings", sorted (self.findings));
    json_object_set_array_member (report, "notes", self.notes);
    json_object_set_array_member (report, "done", self.done);
    json_array_unref (self.findings);
    g_free (self.directory);
    return report;
}

JsonObject *report_broken (JsonObject *diagnosis, int64_t now_s)
{
    JsonObject *report = json_object_new ();
    JsonArray *findings = json_array_new ();
    const char *action = tool_text (diagnosis, "action");
    g_autofree char *line = g_strconcat ("the archive cannot be used: ", tool_text (diagnosis, "reason"),
                                         *action == '\0' ? "" : ": ", action, NULL);
    json_object_set_string_member (report, "headline", line);
    json_object_set_string_member (report, "directory", tool_text (diagnosis, "directory"));
    json_object_set_int_member (report, "time", now_s);
    json_object_set_int_member (report, "check", tool_number (diagnosis, "check"));
    json_array_add_object_element (findings, json_object_ref (diagnosis));
    json_object_set_array_member (report, "findings", findings);
    json_object_set_array_member (report, "notes", json_array_new ());
    json_object_set_array_member (report, "done", json_array_new ());
    return report;
}
