/* recover and takeover: an archive directory from endpoints alone, and an old one made current */
#include "tool_secret.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct Arguments {
    char **endpoints;
    char **settings;
    char **believe;
    char **distrust;
    char *code;
    char *archive;
    char *key;
    char *at;
    ToolSecrets secrets;
    gboolean dry_run;
    gboolean read_only;
    gboolean force;
    gboolean yes;
    gboolean allow_lost;
    gboolean json;
} Arguments;

typedef struct Asking {
    ToolWatch watch; /* first: it is what the other callbacks take */
    bool yes;
    bool json;
} Asking;

/* Only somebody at a terminal can answer. */
static bool ask (void *user, const char *text)
{
    Asking *self = user;
    if (self->yes) {
        tool_watch_tell (&self->watch, text);
        return true;
    }
    return !self->json && tool_watch_can_ask () && tool_watch_ask (&self->watch, text, "continue anyway");
}

static void print_count (JsonObject *report, const char *member, const char *text)
{
    if (tool_number (report, member) > 0)
        printf ("%" PRIi64 " %s\n", tool_number (report, member), text);
}

static void print_doubted (JsonObject *report)
{
    JsonArray *doubted = json_object_get_array_member (report, "endpoints_doubted");
    for (guint i = 0; i < json_array_get_length (doubted); i++)
        printf ("%s%s", i == 0 ? "not everything that these endpoints say is believed: " : ", ",
                json_array_get_string_element (doubted, i));
    if (json_array_get_length (doubted) > 0)
        puts (" (--believe NAME believes one)");
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

static void print_recovered (const char *directory, JsonObject *report, const Arguments *arguments)
{
    printf ("%s: archive %s with %" PRIi64 " files\n", directory, tool_text (report, "archive"),
            tool_number (report, "files"));
    printf ("epoch %" PRIi64 ", from %" PRIi64 " of %" PRIi64 " endpoints\n", tool_number (report, "epoch"),
            tool_number (report, "endpoints_given"), tool_number (report, "endpoints_known"));
    if (json_object_has_member (report, "key"))
        printf ("what was recovered is authentic by its key %s\n", tool_text (report, "key"));
    else
        puts (
            "the archive has no key: nothing shows that what was recovered was not made up by most of these endpoints");
    if (json_object_has_member (report, "recovery_point_ns")) {
        g_autoptr (GDateTime) time =
            g_date_time_new_from_unix_local (tool_number (report, "recovery_point_ns") / 1000000000);
        g_autofree char *text = time == NULL ? NULL : g_date_time_format (time, "%F %T");
        bool told = json_object_has_member (report, "last_host");
        printf ("names and attributes are as of %s (change %" PRIi64 "%s%s)\n", text == NULL ? "an unknown time" : text,
                tool_number (report, "sequence"), told ? ", by " : "", told ? tool_text (report, "last_host") : "");
    } else {
        puts ("there was neither snapshot nor journal: all names and attributes are hints in the stripes");
    }
    print_count (report, "unfinished", "files that were being written, and never closed, are left out");
    print_count (report, "hinted", "files are named by the hints in their stripes");
    print_count (report, "set_apart", "files are in /recovered, because others have their names");
    print_count (report, "partial",
                 "files are in /recovered as .partial, because only a part of their content is there");
    print_count (report, "refused_records", "records of the journal made no sense and were left out");
    print_count (report, "lost", "objects cannot be read: too few of their stripes are on these endpoints");
    print_doubted (report);
    print_end (arguments);
}

/* What an old copy had alone. */
static void print_kept (JsonObject *report)
{
    if (!json_object_has_member (report, "unstored"))
        return;
    tool_print_unstored (json_object_get_object_member (report, "unstored"),
                         "this directory had what the archive may lack");
    if (json_object_has_member (report, "kept"))
        printf ("%" PRIi64 " of these files are kept in %s: copy into the archive what it lacks\n",
                tool_number (report, "kept"), tool_text (report, "kept_in"));
}

/* Does it, as one of the verbs. */
static int run (const Verb *verb, const char *directory, Arguments *arguments,
                char *(*recover) (const char *directory, const EcfsRecovery *what, GError **error))
{
    GError *error = NULL;
    Asking asking = {.yes = arguments->yes, .json = arguments->json};
    const EcfsRecovery what = {.endpoints = (const char *const *) arguments->endpoints,
                               .code = arguments->code,
                               .settings = (const char *const *) arguments->settings,
                               .archive = arguments->archive,
                               .key_file = arguments->key,
                               .secrets = &arguments->secrets.secrets,
                               .at = arguments->at,
                               .believe = (const char *const *) arguments->believe,
                               .distrust = (const char *const *) arguments->distrust,
                               .dry_run = arguments->dry_run,
                               .read_only = arguments->read_only,
                               .force = arguments->force,
                               .ask = ask,
                               .tell = tool_watch_tell,
                               .progress = tool_watch_tick,
                               .user = &asking};
    if (!tool_secrets_read (&arguments->secrets, !arguments->json, &error))
        return tool_fail (verb->name, error, TOOL_FAILED);
    tool_watch_begin (&asking.watch, verb->name, arguments->json);
    g_autofree char *text = recover (directory, &what, &error);
    tool_watch_end (&asking.watch);
    if (text == NULL) {
        int code = error->code;
        (void) tool_fail (verb->name, error, TOOL_FAILED);
        if (code == ECANCELED) {
            g_autofree char *again = tool_command (NULL);
            tool_say (verb->name, "to begin again: %s", again);
        }
        if (code == ENOTUNIQ && arguments->archive == NULL)
            tool_say (verb->name, "--archive UUID names an archive");
        if (code == ENOTRECOVERABLE)
            tool_say (
                verb->name,
                "%s: nothing is changed; --believe and --distrust say whose word counts, --yes answers that the other "
                "machine may lose what it stores, --force recovers all the same",
                recover == ecfs_takeover ? "--dry-run" : "--dry-run and --read-only");
        return tool_status (code);
    }
    g_autoptr (JsonObject) report = tool_json_object (text);
    if (arguments->json)
        puts (text);
    else
        print_recovered (directory, report, arguments);
    if (!arguments->json)
        print_kept (report);
    bool all = tool_number (report, "lost") == 0 && tool_number (report, "partial") == 0;
    return all || arguments->allow_lost ? TOOL_DONE : TOOL_FAILED;
}

static void arguments_clear (Arguments *self)
{
    tool_secrets_clear (&self->secrets);
    g_strfreev (self->endpoints);
    g_strfreev (self->settings);
    g_strfreev (self->believe);
    g_strfreev (self->distrust);
    g_free (self->code);
    g_free (self->archive);
    g_free (self->key);
    g_free (self->at);
}

/* That both verbs have. */
#define OPTIONS(arguments)                                                                                              \
    {"endpoint",                                                                                                        \
     'e',                                                                                                               \
     0,                                                                                                                 \
     G_OPTION_ARG_FILENAME_ARRAY,                                                                                       \
     &(arguments)->endpoints,                                                                                           \
     "An endpoint that is there; give it once for each",                                                                \
     "[NAME=]URL[,KEY=VALUE...]"},                                                                                      \
        {"key", 'k', 0, G_OPTION_ARG_FILENAME, &(arguments)->key, "The archive's key, if it has one", "FILE"},          \
        TOOL_SECRET_OPTIONS (&(arguments)->secrets),                                                                    \
        {"believe",                                                                                                     \
         0,                                                                                                             \
         0,                                                                                                             \
         G_OPTION_ARG_STRING_ARRAY,                                                                                     \
         &(arguments)->believe,                                                                                         \
         "Believe this endpoint, whatever others say; may be repeated",                                                 \
         "NAME"},                                                                                                       \
        {"distrust",                                                                                                    \
         0,                                                                                                             \
         0,                                                                                                             \
         G_OPTION_ARG_STRING_ARRAY,                                                                                     \
         &(arguments)->distrust,                                                                                        \
         "Believe nothing that this endpoint says; may be repeated",                                                    \
         "NAME"},                                                                                                       \
        {"dry-run",                                                                                                     \
         'n',                                                                                                           \
         0,                                                                                                             \
         G_OPTION_ARG_NONE,                                                                                             \
         &(arguments)->dry_run,                                                                                         \
         "Only show what would be recovered; change nothing anywhere",                                                  \
         NULL},                                                                                                         \
        {"yes",                                                                                                         \
         'y',                                                                                                           \
         0,                                                                                                             \
         G_OPTION_ARG_NONE,                                                                                             \
         &(arguments)->yes,                                                                                             \
         "Do not ask whether to, although another machine was just here",                                               \
         NULL},                                                                                                         \
        {"force",                                                                                                       \
         'f',                                                                                                           \
         0,                                                                                                             \
         G_OPTION_ARG_NONE,                                                                                             \
         &(arguments)->force,                                                                                           \
         "Also where it is refused otherwise, as when endpoints are missing",                                           \
         NULL},                                                                                                         \
        {"allow-lost", 0, 0, G_OPTION_ARG_NONE, &(arguments)->allow_lost, "Exit with 0 even if objects cannot be read", \
         NULL},                                                                                                         \
    {                                                                                                                   \
        "json", 0, 0, G_OPTION_ARG_NONE, &(arguments)->json, "Print a JSON object", NULL                                \
    }

int verb_recover (const Verb *verb, int argc, char **argv)
{
    Arguments arguments = {0};
    const GOptionEntry options[] = {OPTIONS (&arguments),
                                    {"archive", 'a', 0, G_OPTION_ARG_STRING, &arguments.archive,
                                     "The archive, if the endpoints belong to several", "UUID"},
                                    {"code", 'c', 0, G_OPTION_ARG_STRING, &arguments.code,
                                     "The code of new files, in place of what it was", "CODE"},
                                    {"set", 's', 0, G_OPTION_ARG_FILENAME_ARRAY, &arguments.settings,
                                     "A key of [archive] in ecfs.conf, in place of what it was; may be repeated",
                                     "KEY=VALUE"},
                                    {"at", 0, 0, G_OPTION_ARG_STRING, &arguments.at,
                                     "The archive as it was then, as far as its history goes", "TIME"},
                                    {"read-only", 'r', 0, G_OPTION_ARG_NONE, &arguments.read_only,
                                     "Make a directory that can only be read, and change no endpoint", NULL},
                                    G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 1, 1);
    if (arguments.endpoints == NULL)
        tool_say (verb->name, "--endpoint is missing: give it once for each endpoint that is there");
    int status = arguments.endpoints == NULL ? TOOL_USAGE : run (verb, argv[1], &arguments, ecfs_recover);
    arguments_clear (&arguments);
    return status;
}

int verb_takeover (const Verb *verb, int argc, char **argv)
{
    Arguments arguments = {0};
    const GOptionEntry options[] = {OPTIONS (&arguments), G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 1, 1);
    int status = run (verb, argv[1], &arguments, ecfs_takeover);
    arguments_clear (&arguments);
    return status;
}
