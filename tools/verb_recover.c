/* recover: an archive directory from endpoints alone */
#include "tool.h"

#include "verbs/recover.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct Arguments {
    char **endpoints;
    char **settings;
    char **believe;
    char **distrust;
    char *code;
    char *archive;
    gboolean dry_run;
    gboolean read_only;
    gboolean force;
    gboolean allow_lost;
    gboolean json;
} Arguments;

typedef struct Progress {
    const Verb *verb;
    bool terminal;
    int64_t next_us;
    bool shown;
} Progress;

static void end_line (Progress *self)
{
    if (self->shown)
        fputs ("\r\033[K", stderr);
    self->shown = false;
}

static void tell (void *user, const char *text)
{
    Progress *self = user;
    end_line (self);
    g_autofree char *printable = tool_printable (text);
    tool_say (self->verb->name, "%s", printable);
}

static volatile sig_atomic_t interrupted;

/* A second one ends the program at once. */
static void on_signal (int number)
{
    interrupted = 1;
    (void) signal (number, SIG_DFL);
}

static bool tick (void *user, const char *phase, uint64_t n_done, uint64_t n_all)
{
    Progress *self = user;
    int64_t now_us = g_get_monotonic_time ();
    if (interrupted)
        return false;
    if (!self->terminal || now_us < self->next_us)
        return true;
    self->next_us = now_us + G_USEC_PER_SEC / 4;
    self->shown = true;
    fprintf (stderr, "\r\033[K%s: %" PRIu64 " of %" PRIu64, phase, n_done, n_all);
    return true;
}

/* Only somebody at a terminal can answer. */
static bool ask (void *user, const char *text)
{
    Progress *self = user;
    char answer[8];
    if (!isatty (STDIN_FILENO) || !isatty (STDERR_FILENO))
        return false;
    end_line (self);
    tool_say (self->verb->name, "%s", text);
    fputs ("Type \"yes\" to continue anyway: ", stderr);
    return fgets (answer, sizeof answer, stdin) != NULL && strcmp (answer, "yes\n") == 0;
}

static void print_json (const EcfsRecovered *recovered)
{
    JsonNode *node = json_node_new (JSON_NODE_OBJECT);
    json_node_take_object (node, ecfs_recovered_facts (recovered));
    tool_print_json (node);
}

static void print_count (uint64_t number, const char *text)
{
    if (number > 0)
        printf ("%" PRIu64 " %s\n", number, text);
}

static void print_doubted (const EcfsRecovered *recovered)
{
    g_autoptr (GString) names = g_string_new (NULL);
    for (guint i = 0; recovered->doubted != NULL && i < recovered->doubted->len; i++)
        g_string_append_printf (names, "%s%s", i == 0 ? "" : ", ", (const char *) recovered->doubted->pdata[i]);
    if (names->len > 0)
        printf ("not everything that these endpoints say is believed: %s (--believe NAME believes one)\n", names->str);
}

static void print_end (const Arguments *arguments)
{
    if (arguments->dry_run)
        puts ("nothing was changed, neither here nor on any endpoint");
    else if (arguments->read_only)
        puts ("this directory can only be read (ecfs mount -o ro, get, ls, export); the endpoints and every other copy "
              "of it are as they were");
    else
        puts ("from now on every other copy of this archive directory can only be read\nif endpoints are gone, ecfs "
              "fsck -y rebuilds on others what they had");
}

static void print_recovered (const char *directory, const EcfsRecovered *recovered, const Arguments *arguments)
{
    char uuid[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&recovered->archive, uuid);
    printf ("%s: archive %s with %" PRIu64 " files\n", directory, uuid, recovered->n_files);
    printf ("epoch %" PRIu32 ", from %zu of %zu endpoints\n", recovered->epoch, recovered->n_given, recovered->n_known);
    if (recovered->sequence > 0) {
        g_autoptr (GDateTime) time = g_date_time_new_from_unix_local (recovered->time_ns / 1000000000);
        g_autofree char *text = time == NULL ? NULL : g_date_time_format (time, "%F %T");
        printf ("names and attributes are as of %s (change %" PRIu64 ")\n", text == NULL ? "an unknown time" : text,
                recovered->sequence);
    } else {
        puts ("there was neither snapshot nor journal: all names and attributes are hints in the stripes");
    }
    print_count (recovered->n_unfinished, "files that were being written, and never closed, are left out");
    print_count (recovered->n_hinted, "files are named by the hints in their stripes");
    print_count (recovered->n_set_apart, "files are in /recovered, because others have their names");
    print_count (recovered->n_partial,
                 "files are in /recovered as .partial, because only a part of their content is there");
    print_count (recovered->n_refused, "records of the journal made no sense and were left out");
    print_count (recovered->n_lost, "objects cannot be read: too few of their stripes are on these endpoints");
    print_doubted (recovered);
    print_end (arguments);
}

static int recover (const Verb *verb, const char *directory, const Arguments *arguments)
{
    GError *error = NULL;
    EcfsUuid archive;
    g_autoptr (GPtrArray) given = g_ptr_array_new_with_free_func (g_free);
    const EcfsRecovery words = {.endpoints = (const char *const *) arguments->endpoints,
                                .code = arguments->code,
                                .settings = (const char *const *) arguments->settings};
    g_autoptr (EcfsConfig) config = ecfs_recovery_config (&words, given, &error);
    if (config == NULL)
        return tool_fail (verb->name, error, TOOL_USAGE);
    if (arguments->archive != NULL && !ecfs_uuid_parse (arguments->archive, &archive)) {
        tool_say (verb->name, "--archive %s: this is not a UUID", arguments->archive);
        return TOOL_USAGE;
    }
    Progress progress = {.verb = verb, .terminal = isatty (STDERR_FILENO) && !arguments->json};
    const EcfsRecover what = {.directory = directory,
                              .config = config,
                              .given = (const char *const *) given->pdata,
                              .archive = arguments->archive == NULL ? NULL : &archive,
                              .believe = (const char *const *) arguments->believe,
                              .distrust = (const char *const *) arguments->distrust,
                              .dry_run = arguments->dry_run,
                              .read_only = arguments->read_only,
                              .force = arguments->force,
                              .ask = arguments->json ? NULL : ask,
                              .tell = tell,
                              .tick = tick,
                              .user = &progress};
    (void) signal (SIGINT, on_signal);
    (void) signal (SIGTERM, on_signal);
    EcfsRecovered recovered;
    bool done = ecfs_archive_recover (&what, &recovered, &error);
    end_line (&progress);
    bool all = (recovered.n_lost == 0 && recovered.n_partial == 0) || arguments->allow_lost;
    if (done && arguments->json)
        print_json (&recovered);
    else if (done)
        print_recovered (directory, &recovered, arguments);
    ecfs_recovered_clear (&recovered);
    if (!done)
        (void) tool_fail (verb->name, error, TOOL_FAILED);
    if (!done && recovered.is_refused)
        tool_say (verb->name,
                  "--dry-run and --read-only change nothing, --believe and --distrust say whose word counts, "
                  "--force recovers all the same");
    return done && all ? TOOL_DONE : TOOL_FAILED;
}

int verb_recover (const Verb *verb, int argc, char **argv)
{
    Arguments arguments = {0};
    const GOptionEntry options[] = {{"endpoint", 'e', 0, G_OPTION_ARG_FILENAME_ARRAY, &arguments.endpoints,
                                     "An endpoint that is there; give it once for each", "[NAME=]URL[,KEY=VALUE...]"},
                                    {"archive", 'a', 0, G_OPTION_ARG_STRING, &arguments.archive,
                                     "The archive, if the endpoints belong to several", "UUID"},
                                    {"code", 'c', 0, G_OPTION_ARG_STRING, &arguments.code,
                                     "The code of new files, in place of what it was", "CODE"},
                                    {"set", 's', 0, G_OPTION_ARG_FILENAME_ARRAY, &arguments.settings,
                                     "A key of [archive] in ecfs.conf, in place of what it was; may be repeated",
                                     "KEY=VALUE"},
                                    {"believe", 0, 0, G_OPTION_ARG_STRING_ARRAY, &arguments.believe,
                                     "Believe this endpoint, whatever others say; may be repeated", "NAME"},
                                    {"distrust", 0, 0, G_OPTION_ARG_STRING_ARRAY, &arguments.distrust,
                                     "Believe nothing that this endpoint says; may be repeated", "NAME"},
                                    {"dry-run", 'n', 0, G_OPTION_ARG_NONE, &arguments.dry_run,
                                     "Only show what would be recovered; change nothing anywhere", NULL},
                                    {"read-only", 'r', 0, G_OPTION_ARG_NONE, &arguments.read_only,
                                     "Make a directory that can only be read, and change no endpoint", NULL},
                                    {"force", 'f', 0, G_OPTION_ARG_NONE, &arguments.force,
                                     "Recover although endpoints are missing or another machine was just here", NULL},
                                    {"allow-lost", 0, 0, G_OPTION_ARG_NONE, &arguments.allow_lost,
                                     "Exit with 0 even if objects cannot be read", NULL},
                                    {"json", 0, 0, G_OPTION_ARG_NONE, &arguments.json, "Print a JSON object", NULL},
                                    G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 1, 1);
    if (arguments.endpoints == NULL)
        tool_say (verb->name, "--endpoint is missing: give it once for each endpoint that is there");
    int status = arguments.endpoints == NULL ? TOOL_USAGE : recover (verb, argv[1], &arguments);
    g_strfreev (arguments.endpoints);
    g_strfreev (arguments.settings);
    g_strfreev (arguments.believe);
    g_strfreev (arguments.distrust);
    g_free (arguments.code);
    g_free (arguments.archive);
    return status;
}
