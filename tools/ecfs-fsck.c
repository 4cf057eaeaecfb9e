/* The program `ecfs-fsck`: checks an archive, repairs it, and tells as fsck(8) does. */
#include "tool.h"
#include "tool_secret.h"

#include "program/program.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Exit status, added up, as fsck(8) has them. */
enum { FSCK_CLEAN = 0, FSCK_REPAIRED = 1, FSCK_LEFT = 4, FSCK_FAILED = 8, FSCK_USAGE = 16, FSCK_CANCELLED = 32 };

#define PRUNE_AGE_US (7 * 24 * 3600 * G_GINT64_CONSTANT (1000000))
#define ARGUMENTS    "ARCHIVE [PATH...]"

typedef struct Options {
    gboolean yes, no, deep, prune, json, help, version;
    uint64_t bytes_per_s;
    int64_t max_time_us;
    double sample; /* part of 1; 0: all */
    double share;  /* the same */
    gboolean remote_hash;
    uint64_t seed;
    int64_t prune_age_us;
    uint64_t unrecovered; /* stripes; 0: they stay */
    char *export_dir;
} Options;

typedef struct Shown {
    Options options;
    ToolProgress progress;
    const char *phase;
    uint64_t phase_bytes; /* on the wire when it began */
} Shown;

static volatile sig_atomic_t interrupted;

static void on_signal (int number)
{
    (void) number;
    interrupted = 1;
}

static void usage (const char *text) G_GNUC_NORETURN;
static void usage (const char *text)
{
    fprintf (stderr, "ecfs-fsck: %s\nUsage: ecfs-fsck [OPTION...] " ARGUMENTS " (see ecfs-fsck --help)\n", text);
    exit (FSCK_USAGE);
}

/* Progress */

/* What is read counts from the beginning of its phase. */
static bool on_progress (void *user, const EcfsFsckProgress *progress)
{
    Shown *self = user;
    if (self->phase != progress->phase) {
        self->phase = progress->phase;
        self->phase_bytes = progress->bytes;
    }
    const ToolStep step = {.phase = progress->phase,
                           .things = "objects",
                           .n_done = progress->n_done,
                           .n_all = progress->n_all,
                           .bytes_done = progress->checked_bytes,
                           .bytes_all = progress->checked_bytes_all,
                           .wire_bytes = progress->bytes - self->phase_bytes};
    tool_progress_tell (&self->progress, &step);
    return !interrupted;
}

/* Findings */

static void print_stripes (JsonObject *finding)
{
    JsonArray *stripes = json_object_get_array_member (finding, "stripes");
    for (guint i = 0; i < json_array_get_length (stripes); i++) {
        JsonObject *stripe = json_array_get_object_element (stripes, i);
        const char *endpoint = tool_text (stripe, "endpoint");
        bool unknown = strcmp (tool_text (stripe, "state"), "unknown") == 0; /* its endpoint was told */
        g_autofree char *text = tool_printable (unknown ? "" : tool_text (stripe, "text"));
        printf ("%sstripe %" PRIi64 "%s%s: %s%s%s%s", i > 0 ? "; " : "", tool_number (stripe, "index"),
                *endpoint == '\0' ? "" : " at ", endpoint, tool_text (stripe, "state"), *text == '\0' ? "" : " (", text,
                *text == '\0' ? "" : ")");
    }
}

/* Which stripes would make it readable. */
static void print_help (JsonObject *finding)
{
    JsonArray *stripes = json_object_get_array_member (finding, "stripes");
    bool any = false;
    for (guint i = 0; i < json_array_get_length (stripes); i++) {
        JsonObject *stripe = json_array_get_object_element (stripes, i);
        if (!json_object_has_member (stripe, "helps"))
            continue;
        printf ("%s %" PRIi64,
                any ? "," : ", any of these stripes would make it readable:", tool_number (stripe, "index"));
        any = true;
    }
    if (!any)
        fputs (", more than one of these stripes is needed", stdout);
}

static void print_file (JsonObject *finding)
{
    static const struct {
        const char *result, *text;
    } results[] = {{"found", "not repaired"},
                   {"repaired", "repaired"},
                   {"left", "LEFT"},
                   {"unknown", "LEFT until its endpoints answer"},
                   {"changed", "was replaced or deleted meanwhile"}};
    const char *result = tool_text (finding, "result");
    g_autofree char *path = tool_printable (tool_text (finding, "path"));
    g_autofree char *reason = tool_printable (tool_text (finding, "reason"));
    const int64_t n_files = tool_number (finding, "files");
    if (n_files > 1)
        printf ("%s and %" PRIi64 " small file%s with it: ", path, n_files - 1, n_files == 2 ? "" : "s");
    else
        printf ("%s: ", path);
    print_stripes (finding);
    for (size_t i = 0; i < G_N_ELEMENTS (results); i++)
        if (strcmp (result, results[i].result) == 0)
            printf (" - %s", results[i].text);
    bool whole = strcmp (result, "repaired") == 0 || strcmp (result, "changed") == 0;
    if (tool_number (finding, "guarantee") < 0 && !whole) {
        fputs (", CANNOT BE READ from the good stripes", stdout);
        print_help (finding);
    }
    printf ("%s%s\n", *reason == '\0' || whole ? "" : ": ", whole ? "" : reason);
}

/* "1 zone and 2 endpoints". */
static char *losses (int64_t n_zones, int64_t n_endpoints)
{
    return g_strdup_printf ("%" PRIi64 " zone%s and %" PRIi64 " endpoint%s", n_zones, n_zones == 1 ? "" : "s",
                            n_endpoints, n_endpoints == 1 ? "" : "s");
}

static void print_crowded (JsonObject *finding)
{
    const char *result = tool_text (finding, "result");
    g_autofree char *path = tool_printable (tool_text (finding, "path"));
    g_autofree char *reason = tool_printable (tool_text (finding, "reason"));
    g_autofree char *now = losses (tool_number (finding, "zones"), tool_number (finding, "endpoints"));
    g_autofree char *then =
        losses (tool_number (finding, "possible_zones"), tool_number (finding, "possible_endpoints"));
    printf ("%s: crowded: survives the loss of any %s, could survive %s - %s%s%s\n", path, now, then,
            strcmp (result, "moved") == 0  ? "moved apart"
            : strcmp (result, "left") == 0 ? "LEFT"
                                           : "not moved",
            *reason == '\0' ? "" : ": ", reason);
}

static void print_misplaced (JsonObject *finding)
{
    const char *result = tool_text (finding, "result");
    g_autofree char *path = tool_printable (tool_text (finding, "path"));
    g_autofree char *rule = tool_printable (tool_text (finding, "rule"));
    g_autofree char *reason = tool_printable (tool_text (finding, "reason"));
    int64_t n_forbidden = tool_number (finding, "forbidden");
    printf ("%s: misplaced: %" PRIi64 " stripe%s where the rule \"%s\" forbids %s - %s%s%s\n", path, n_forbidden,
            n_forbidden == 1 ? " is" : "s are", rule, n_forbidden == 1 ? "it" : "them",
            strcmp (result, "moved") == 0  ? "moved"
            : strcmp (result, "left") == 0 ? "LEFT"
                                           : "not moved",
            *reason == '\0' ? "" : ": ", reason);
}

static void print_waiting (JsonObject *finding, const char *text)
{
    printf ("endpoint %s of zone %s: %" PRIi64 " crowded objects need it, and it takes no stripes: %s\n",
            tool_text (finding, "name"), tool_text (finding, "zone"), tool_number (finding, "objects"), text);
}

static void print_export (JsonObject *finding)
{
    JsonArray *ranges = json_object_get_array_member (finding, "unreadable");
    g_autofree char *path = tool_printable (tool_text (finding, "path"));
    g_autofree char *file = tool_printable (tool_text (finding, "file"));
    g_autofree char *reason = tool_printable (tool_text (finding, "reason"));
    g_autofree char *bytes = tool_bytes ((double) tool_number (finding, "bytes"));
    if (*file == '\0') {
        printf ("%s: NOT WRITTEN: %s\n", path, reason);
        return;
    }
    printf ("%s: %s of it written to %s, with holes where it cannot be read:", path, bytes, file);
    for (guint i = 0; i < json_array_get_length (ranges); i++) {
        JsonArray *range = json_array_get_array_element (ranges, i);
        int64_t from = json_array_get_int_element (range, 0);
        printf ("%s bytes %" PRIi64 " to %" PRIi64, i > 0 ? "," : "", from,
                from + json_array_get_int_element (range, 1) - 1);
    }
    printf (" (%s)\n", reason);
}

static void print_orphan (JsonObject *finding)
{
    g_autofree char *bytes = tool_bytes ((double) tool_number (finding, "bytes"));
    g_autofree char *age = tool_seconds ((double) MAX (tool_number (finding, "age"), 0));
    printf ("endpoint %s: %s: no file uses this stripe of %s, %s old\n", tool_text (finding, "endpoint"),
            tool_text (finding, "name"), bytes, age);
}

static void print_unrecovered (JsonObject *finding)
{
    g_autofree char *bytes = tool_bytes ((double) tool_number (finding, "bytes"));
    printf ("orphans: object %s, which a recovery did not bring back: %" PRIi64 " stripes, %s\n",
            tool_text (finding, "object"), tool_number (finding, "stripes"), bytes);
}

static void print_silence (JsonObject *finding, const char *text)
{
    const char *name = tool_text (finding, "name");
    printf ("endpoint%s%s: %" PRIi64 " of %" PRIi64 " stripes are unknown: %s\n", *name == '\0' ? "" : " ", name,
            tool_number (finding, "unknown"), tool_number (finding, "stripes"), text);
}

static void on_found (void *user, const char *json)
{
    Shown *self = user;
    tool_progress_clear (&self->progress);
    if (self->options.json) {
        puts (json);
        return;
    }
    g_autoptr (JsonObject) finding = tool_json_object (json);
    const char *about = tool_text (finding, "about");
    g_autofree char *text = tool_printable (tool_text (finding, "text"));
    g_autofree char *path = tool_printable (tool_text (finding, "path"));
    if (strcmp (about, "file") == 0 || strcmp (about, "history") == 0)
        print_file (finding);
    else if (strcmp (about, "crowded") == 0)
        print_crowded (finding);
    else if (strcmp (about, "misplaced") == 0)
        print_misplaced (finding);
    else if (strcmp (about, "waiting") == 0)
        print_waiting (finding, text);
    else if (strcmp (about, "orphan") == 0)
        print_orphan (finding);
    else if (strcmp (about, "unrecovered") == 0)
        print_unrecovered (finding);
    else if (strcmp (about, "export") == 0)
        print_export (finding);
    else if (strcmp (about, "prune") == 0)
        printf ("orphans: %s\n", text);
    else if (strcmp (about, "journal") == 0)
        printf ("%s%s%s%s - %s\n", json_object_has_member (finding, "name") ? "endpoint " : "",
                json_object_has_member (finding, "name") ? tool_text (finding, "name") : "journal", ": ", text,
                strcmp (tool_text (finding, "result"), "repaired") == 0 ? "STORED ANEW" : "LEFT");
    else if (strcmp (about, "catalog") == 0)
        printf ("catalog: %s%s%s - LEFT\n", path, *path == '\0' ? "" : ": ", text);
    else
        print_silence (finding, text);
}

static bool is_yes (void)
{
    char answer[16];
    return fgets (answer, sizeof answer, stdin) != NULL && (*answer == 'y' || *answer == 'Y');
}

static bool on_confirm (void *user, uint64_t n_objects)
{
    Shown *self = user;
    tool_progress_clear (&self->progress);
    fprintf (stderr, "Repair %" PRIu64 " objects? [y/N] ", n_objects);
    return is_yes ();
}

static bool on_confirm_move (void *user, uint64_t n_objects)
{
    Shown *self = user;
    tool_progress_clear (&self->progress);
    fprintf (stderr, "Move stripes of %" PRIu64 " crowded or misplaced objects? [y/N] ", n_objects);
    return is_yes ();
}

static char *day (int64_t time_s)
{
    g_autoptr (GDateTime) time = g_date_time_new_from_unix_local (time_s);
    return time == NULL ? g_strdup ("?") : g_date_time_format (time, "%F %R");
}

static void print_sample (JsonObject *sample)
{
    int64_t most = tool_number (sample, "at_most_bad"), all = tool_number (sample, "population");
    printf ("  sample   %" PRIi64 " of %" PRIi64 " stripes read at random (seed %" PRIi64 "), %" PRIi64
            " bad: with %.0f%% confidence ",
            tool_number (sample, "read"), all, tool_number (sample, "seed"), tool_number (sample, "bad"),
            tool_double (sample, "confidence") * 100);
    if (most < all)
        printf ("fewer than %" PRIi64 " of all are bad\n", most + 1);
    else
        puts ("nothing can be said of the others");
}

/* How far a check of everything has come. */
static void print_pass (JsonObject *deep)
{
    if (json_object_has_member (deep, "unchanged"))
        printf ("  digests  of %" PRIi64 " of %" PRIi64 " stripes are unchanged since they were verified\n",
                tool_number (deep, "unchanged"), tool_number (deep, "stripes"));
    g_autofree char *began = day (tool_number (deep, "began"));
    g_autofree char *left = tool_bytes ((double) tool_number (deep, "left_bytes"));
    if (json_object_get_boolean_member (deep, "whole"))
        printf ("  scrub    of %s is complete: everything was verified\n", began);
    else if (!json_object_get_boolean_member (deep, "kept"))
        printf ("  scrub    about %s were not verified, and progress is not noted\n", left);
    else if (json_object_get_boolean_member (deep, "continues"))
        printf ("  scrub    of %s: about %s are left; the next --deep resumes there\n", began, left);
    else
        printf ("  scrub    of %s reached the end, but about %s could not be read; the next --deep begins there\n",
                began, left);
}

static void print_deep (JsonObject *deep)
{
    if (json_object_has_member (deep, "sample"))
        print_sample (json_object_get_object_member (deep, "sample"));
    if (json_object_has_member (deep, "began"))
        print_pass (deep);
}

static bool on_confirm_prune (void *user, uint64_t n_stripes, uint64_t bytes)
{
    Shown *self = user;
    g_autofree char *size = tool_bytes ((double) bytes);
    tool_progress_clear (&self->progress);
    fprintf (stderr, "Remove %" PRIu64 " orphans (%s)? [y/N] ", n_stripes, size);
    return is_yes ();
}

static void print_orphans (const Shown *self, JsonObject *summary)
{
    g_autofree char *bytes = tool_bytes ((double) tool_number (summary, "orphan_bytes"));
    g_autofree char *removed = tool_bytes ((double) tool_number (summary, "removed_bytes"));
    if (tool_number (summary, "orphans") == 0)
        return;
    printf ("  orphans  %" PRIi64 " stripes of %s that no file uses", tool_number (summary, "orphans"), bytes);
    if (!self->options.prune)
        puts ("; they stay (--prune removes old ones)");
    else
        printf (", %" PRIi64 " of them old enough: %" PRIi64 " removed (%s)\n", tool_number (summary, "orphans_old"),
                tool_number (summary, "orphans_removed"), removed);
    int64_t n_unrecovered = tool_number (summary, "orphans_unrecovered");
    if (n_unrecovered > 0 && (uint64_t) n_unrecovered != self->options.unrecovered)
        printf ("  kept     %" PRIi64
                " unrecovered stripes, of objects that the recovery did not bring back: they may be all that is left "
                "of files. 'ecfs-salvage --list' shows which. With endpoints that were missing, 'ecfs recover' may "
                "bring them back. --prune --unrecovered %" PRIi64 " removes them\n",
                n_unrecovered, n_unrecovered);
}

static void print_moves (JsonObject *summary)
{
    int64_t n_crowded = tool_number (summary, "objects_crowded"), n_waiting = tool_number (summary, "objects_waiting");
    int64_t n_misplaced = tool_number (summary, "objects_misplaced");
    g_autofree char *bytes = tool_bytes ((double) tool_number (summary, "moved_bytes"));
    if (tool_number (summary, "stripes_moved") > 0)
        printf ("  moved    %" PRIi64 " stripes of crowded or misplaced objects, %s\n",
                tool_number (summary, "stripes_moved"), bytes);
    if (n_misplaced > 0)
        printf ("  places   %" PRIi64 " objects have stripes where a rule forbids them; -y moves them\n", n_misplaced);
    if (n_crowded > 0)
        printf ("  crowded  %" PRIi64 " objects could survive more with stripes elsewhere; -y moves them\n", n_crowded);
    if (n_waiting > 0)
        printf ("  waiting  %" PRIi64 " crowded objects need endpoints that take nothing now: see above\n", n_waiting);
}

/* What only the past has. */
static void print_past (JsonObject *summary)
{
    if (tool_number (summary, "past_objects") == 0)
        return;
    printf ("  history  %" PRIi64 " stripes missing of %" PRIi64 " in %" PRIi64 " objects that only the past has",
            tool_number (summary, "past_stripes_missing"), tool_number (summary, "past_stripes"),
            tool_number (summary, "past_objects"));
    if (tool_number (summary, "past_stripes_rebuilt") > 0)
        printf (", %" PRIi64 " rebuilt", tool_number (summary, "past_stripes_rebuilt"));
    putchar ('\n');
}

static void print_summary (const Shown *self, const char *archive, JsonObject *summary)
{
    printf ("%s: %" PRIi64 " objects, %" PRIi64 " stripes, ", archive, tool_number (summary, "objects"),
            tool_number (summary, "stripes"));
    if (self->options.deep) {
        JsonObject *deep = json_object_get_object_member (summary, "deep");
        g_autofree char *bytes = tool_bytes ((double) tool_number (summary, "checked_bytes"));
        printf ("%" PRIi64 " with %s read and verified\n", tool_number (deep, "stripes"), bytes);
        print_deep (deep);
    } else {
        puts ("presence and sizes only (--deep verifies their bytes)");
    }
    if (json_object_get_boolean_member (summary, "out_of_time"))
        puts ("  time     was up (--max-time): not everything was checked");
    printf ("  stripes  %" PRIi64 " gone, %" PRIi64 " damaged, %" PRIi64 " never stored, %" PRIi64 " unknown\n",
            tool_number (summary, "stripes_gone"), tool_number (summary, "stripes_damaged"),
            tool_number (summary, "stripes_never_stored"), tool_number (summary, "stripes_unknown"));
    print_past (summary);
    double read = (double) tool_number (summary, "read_bytes");
    double written = (double) tool_number (summary, "written_bytes");
    if (written > 0) {
        g_autofree char *read_text = tool_bytes (read);
        g_autofree char *written_text = tool_bytes (written);
        printf ("  rebuilt  %" PRIi64 " stripes of %" PRIi64
                " objects: %s written, %s read, %.2f bytes for each one written\n",
                tool_number (summary, "stripes_rebuilt"), tool_number (summary, "objects_rebuilt"), written_text,
                read_text, read / written);
    } else if (tool_number (summary, "stripes_rebuilt") > 0) {
        printf ("  rebuilt  %" PRIi64 " stripes of %" PRIi64 " objects: they were found among the orphans\n",
                tool_number (summary, "stripes_rebuilt"), tool_number (summary, "objects_repaired"));
    }
    print_moves (summary);
    print_orphans (self, summary);
    int64_t n_left = tool_number (summary, "objects_left") + tool_number (summary, "objects_found");
    const char *advice = "; -y rebuilds them";
    if (tool_number (summary, "objects_left") > 0)
        advice = ": bring endpoints back or add some (ecfs endpoint add), then run this again";
    else if (tool_number (summary, "catalog_problems") > 0)
        advice = "; deal with the catalog first";
    if (n_left > 0)
        printf ("  left     %" PRIi64 " objects lack stripes%s\n", n_left, advice);
}

static int status_of (const Options *options, JsonObject *summary)
{
    static const char *const left[] = {"objects_found",   "objects_left",    "catalog_problems",  "stripes_unknown",
                                       "objects_crowded", "objects_waiting", "objects_misplaced", "journals_left"};
    bool any = tool_number (summary, "stripes_rebuilt") > 0 || tool_number (summary, "stripes_moved") > 0 ||
               tool_number (summary, "journals_repaired") > 0;
    int status = any ? FSCK_REPAIRED : FSCK_CLEAN;
    for (size_t i = 0; i < G_N_ELEMENTS (left); i++)
        if (tool_number (summary, left[i]) > 0)
            status |= FSCK_LEFT;
    if (options->prune && !options->no &&
        tool_number (summary, "orphans_old") > tool_number (summary, "orphans_removed"))
        status |= FSCK_LEFT;
    return status;
}

/* The program */

static int fail (const GError *error)
{
    if (error->code == ECANCELED) {
        fputs ("ecfs-fsck: cancelled; what was repaired stays repaired, and the next run does the rest\n", stderr);
        return FSCK_CANCELLED;
    }
    fprintf (stderr, "ecfs-fsck: %s\n", error->message);
    return FSCK_FAILED;
}

static int check (Shown *self, char **argv)
{
    g_autoptr (GError) error = NULL;
    bool asks = !self->options.yes && !self->options.no && isatty (STDIN_FILENO) && isatty (STDERR_FILENO);
    bool repairs = self->options.yes || asks;
    g_autoptr (Ecfs) ecfs = ecfs_open (argv[1], 0, &error);
    if (ecfs == NULL)
        return fail (error);
    const EcfsFsck what = {.flags = (self->options.deep ? ECFS_FSCK_DEEP : 0) | (repairs ? ECFS_FSCK_REPAIR : 0) |
                                    (self->options.no ? ECFS_FSCK_DRY : 0) |
                                    (self->options.remote_hash ? ECFS_FSCK_REMOTE_HASH : 0) |
                                    (self->options.prune && (repairs || self->options.no) ? ECFS_FSCK_PRUNE : 0),
                           .paths = argv[2] == NULL ? NULL : (const char *const *) argv + 2,
                           .bytes_per_s = self->options.bytes_per_s,
                           .max_time_us = self->options.max_time_us,
                           .sample = self->options.sample,
                           .share = self->options.share,
                           .seed = self->options.seed,
                           .prune_age_us = self->options.prune ? self->options.prune_age_us : 0,
                           .prune_unrecovered = self->options.unrecovered,
                           .export_dir = self->options.export_dir,
                           .progress = on_progress,
                           .confirm = asks ? on_confirm : NULL,
                           .confirm_move = asks ? on_confirm_move : NULL,
                           .confirm_prune = asks ? on_confirm_prune : NULL,
                           .found = on_found,
                           .user = self};
    tool_progress_begin (&self->progress, "fsck", false);
    g_autofree char *text = ecfs_fsck (ecfs, &what, &error);
    tool_progress_end (&self->progress);
    if (text == NULL)
        return fail (error);
    g_autoptr (JsonObject) summary = tool_json_object (text);
    if (self->options.json)
        puts (text);
    else
        print_summary (self, argv[1], summary);
    return status_of (&self->options, summary);
}

/* Options that are parsed further. */
typedef struct Texts {
    char *rate, *max_time, *sample, *share, *seed, *older_than, *unrecovered;
} Texts;

static GOptionContext *option_context (Options *options, Texts *texts)
{
    const GOptionEntry entries[] = {
        {"yes", 'y', 0, G_OPTION_ARG_NONE, &options->yes, "Repair without asking", NULL},
        {"no", 'n', 0, G_OPTION_ARG_NONE, &options->no, "Change nothing, only report", NULL},
        {"deep", 0, 0, G_OPTION_ARG_NONE, &options->deep, "Read every stripe and verify its checksums", NULL},
        {"remote-hash", 0, 0, G_OPTION_ARG_NONE, &options->remote_hash,
         "For --deep, let SSH endpoints hash stripes, and read only what changed", NULL},
        {"bwlimit", 0, 0, G_OPTION_ARG_STRING, &texts->rate, "Read at most this many bytes per second for --deep",
         "RATE"},
        {"max-time", 0, 0, G_OPTION_ARG_STRING, &texts->max_time,
         "Stop checking after this time; the next --deep resumes", "DURATION"},
        {"sample", 0, 0, G_OPTION_ARG_STRING, &texts->sample, "Read a random sample of this size for --deep",
         "PERCENT"},
        {"share", 0, 0, G_OPTION_ARG_STRING, &texts->share,
         "Stop --deep after this part of everything; the next --deep resumes", "PERCENT"},
        {"seed", 0, 0, G_OPTION_ARG_STRING, &texts->seed, "Number that chooses the sample", "NUMBER"},
        {"prune", 0, 0, G_OPTION_ARG_NONE, &options->prune, "Remove old orphans (stripes that no file uses)", NULL},
        {"export", 0, 0, G_OPTION_ARG_FILENAME, &options->export_dir,
         "Write what can be read of unreadable files to this directory", "DIR"},
        {"older-than", 0, 0, G_OPTION_ARG_STRING, &texts->older_than, "How old orphans must be for --prune (7d)",
         "DURATION"},
        {"unrecovered", 0, 0, G_OPTION_ARG_STRING, &texts->unrecovered,
         "Also remove unrecovered stripes, if there are exactly this many", "STRIPES"},
        {"json", 0, 0, G_OPTION_ARG_NONE, &options->json, "Print a JSON object per line", NULL},
        {"help", 'h', 0, G_OPTION_ARG_NONE, &options->help, "Explain this program", NULL},
        {"version", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_NONE, &options->version, "", NULL},
        G_OPTION_ENTRY_NULL};
    GOptionContext *context = g_option_context_new (ARGUMENTS);
    g_option_context_set_help_enabled (context, FALSE);
    g_option_context_set_summary (context, "Checks an archive, and rebuilds lost and damaged stripes.");
    g_option_context_set_description (
        context, "Exit status, added up: 0 clean, 1 repaired, 4 something is left, 8 could not run, 16 wrong usage,\n"
                 "32 cancelled.");
    g_option_context_add_main_entries (context, entries, NULL);
    return context;
}

static bool parse_percent (const char *text, double *ret_part)
{
    char *end;
    double percent = g_ascii_strtod (text, &end);
    *ret_part = percent / 100;
    return end != text && (*end == '\0' || strcmp (end, "%") == 0) && percent > 0 && percent <= 100;
}

static void parse_texts (Options *options, const Texts *texts)
{
    options->seed = (uint64_t) g_random_int ();
    if (texts->rate != NULL && (!ecfs_parse_size (texts->rate, &options->bytes_per_s) || options->bytes_per_s == 0))
        usage ("--bwlimit takes bytes per second, such as 10M");
    if (texts->max_time != NULL &&
        (!ecfs_parse_duration (texts->max_time, &options->max_time_us) || options->max_time_us <= 0))
        usage ("--max-time takes a duration, such as 4h");
    if (texts->sample != NULL && !parse_percent (texts->sample, &options->sample))
        usage ("--sample takes a percentage above 0, such as 2%");
    if (texts->share != NULL && !parse_percent (texts->share, &options->share))
        usage ("--share takes a percentage above 0, such as 4%");
    if (texts->seed != NULL && !g_ascii_string_to_unsigned (texts->seed, 10, 0, G_MAXINT64, &options->seed, NULL))
        usage ("--seed takes a number");
    options->prune_age_us = PRUNE_AGE_US;
    if (texts->older_than != NULL &&
        (!ecfs_parse_duration (texts->older_than, &options->prune_age_us) || options->prune_age_us <= 0))
        usage ("--older-than takes a duration, such as 30d");
    if (!options->prune && texts->older_than != NULL)
        usage ("--older-than needs --prune");
    if (texts->unrecovered != NULL &&
        (!g_ascii_string_to_unsigned (texts->unrecovered, 10, 1, G_MAXINT64, &options->unrecovered, NULL) ||
         !options->prune))
        usage ("--unrecovered takes the number of unrecovered stripes to remove, and needs --prune");
    if (texts->share != NULL && (!options->deep || texts->sample != NULL))
        usage ("--share needs --deep, and does not go with --sample");
    if (!options->deep && texts->sample != NULL)
        usage ("--sample needs --deep");
    if (options->remote_hash && (!options->deep || options->no || texts->sample != NULL))
        usage ("--remote-hash needs --deep, and works neither with -n, which notes nothing, nor with --sample");
}

static void parse (Options *options, int *argc, char ***argv)
{
    Texts texts = {.rate = NULL};
    g_autoptr (GError) error = NULL;
    g_autoptr (GOptionContext) context = option_context (options, &texts);
    g_set_prgname ("ecfs-fsck");
    if (!g_option_context_parse (context, argc, argv, &error))
        usage (error->message);
    if (options->version) {
        puts ("ecfs-fsck " ECFS_VERSION);
        exit (FSCK_CLEAN);
    }
    if (options->help) {
        tool_print_help (context);
        exit (FSCK_CLEAN);
    }
    if (*argc > 1 && strcmp ((*argv)[1], "--") == 0) {
        memmove (*argv + 1, *argv + 2, (size_t) (*argc - 1) * sizeof **argv);
        --*argc;
    }
    if (*argc < 2)
        usage ("the archive is missing");
    if (options->prune && *argc > 2)
        usage ("--prune checks all files: give no path");
    if (options->share > 0 && *argc > 2)
        usage ("--share checks all files: give no path");
    if (options->remote_hash && *argc > 2)
        usage ("--remote-hash checks all files: give no path");
    if (options->yes && options->no)
        usage ("-y and -n contradict each other");
    parse_texts (options, &texts);
    g_free (texts.rate);
    g_free (texts.max_time);
    g_free (texts.sample);
    g_free (texts.share);
    g_free (texts.seed);
    g_free (texts.older_than);
    g_free (texts.unrecovered);
}

int main (int argc, char **argv)
{
    Shown self = {.phase = NULL};
    ecfs_log_init (false, G_LOG_LEVEL_WARNING);
    ecfs_allow_many_files ();
    tool_hide_memory ();
    parse (&self.options, &argc, &argv);
    (void) setvbuf (stdout, NULL, _IOLBF, 0); /* whoever reads along learns each finding at once */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND};
    (void) sigaction (SIGINT, &action, NULL); /* at worst it ends at once */
    (void) sigaction (SIGTERM, &action, NULL);
    (void) signal (SIGPIPE, SIG_IGN);
    int status = check (&self, argv);
    g_free (self.options.export_dir);
    return status;
}
