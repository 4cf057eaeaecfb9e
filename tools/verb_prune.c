/* prune: what died long ago goes from accounts that only grow, by a login that may delete there */
#include "tool_secret.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct Asking {
    ToolWatch watch; /* first: it is what the other callbacks take */
    bool yes;
} Asking;

static bool ask (void *user, const char *text)
{
    Asking *self = user;
    if (self->yes)
        return true;
    if (tool_watch_can_ask ())
        return tool_watch_ask (&self->watch, text, "remove them");
    tool_progress_clear (&self->watch.progress);
    tool_say (self->watch.verb, "%s: --yes removes them without a question", text);
    return false;
}

static char *day_of (JsonObject *place, const char *member)
{
    g_autoptr (GDateTime) time =
        json_object_has_member (place, member) ? g_date_time_new_from_unix_local (tool_number (place, member)) : NULL;
    return time == NULL ? g_strdup ("-") : g_date_time_format (time, "%F");
}

static void print_places (JsonObject *report, bool dry_run)
{
    JsonArray *places = json_object_get_array_member (report, "endpoints");
    static const char *const titles[] = {"endpoint", "dead files", "bytes", "oldest", "newest", "removed"};
    const unsigned n_columns = dry_run ? G_N_ELEMENTS (titles) - 1 : G_N_ELEMENTS (titles);
    g_autoptr (GPtrArray) cells = g_ptr_array_new_with_free_func (g_free);
    for (unsigned i = 0; i < n_columns; i++)
        tool_cell (cells, g_strdup (titles[i]));
    for (guint i = 0; i < json_array_get_length (places); i++) {
        JsonObject *place = json_array_get_object_element (places, i);
        tool_cell (cells, g_strdup (tool_text (place, "endpoint")));
        tool_cell (cells, g_strdup_printf ("%" PRIi64, tool_number (place, "files")));
        tool_cell (cells, tool_bytes ((double) tool_number (place, "bytes")));
        tool_cell (cells, day_of (place, "oldest_s"));
        tool_cell (cells, day_of (place, "newest_s"));
        if (!dry_run)
            tool_cell (cells, g_strdup_printf ("%" PRIi64, tool_number (place, "removed")));
    }
    tool_table (cells, n_columns, "");
}

/* What else goes, by kind. */
static void print_old (JsonObject *report, bool dry_run)
{
    static const struct {
        const char *word, *title;
    } kinds[] = {{"journal", "journal"}, {"snapshot", "snapshots"}, {"marker", "markers"}};
    JsonArray *places = json_object_get_array_member (report, "endpoints");
    g_autoptr (GPtrArray) cells = g_ptr_array_new_with_free_func (g_free);
    static const char *const titles[] = {"endpoint", "superfluous", "files", "bytes", "removed"};
    const unsigned n_columns = dry_run ? G_N_ELEMENTS (titles) - 1 : G_N_ELEMENTS (titles);
    for (unsigned i = 0; i < n_columns; i++)
        tool_cell (cells, g_strdup (titles[i]));
    const guint n_head = cells->len;
    for (guint i = 0; i < json_array_get_length (places); i++)
        for (size_t kind = 0; kind < G_N_ELEMENTS (kinds); kind++) {
            JsonObject *place = json_array_get_object_element (places, i);
            g_autofree char *files = g_strconcat (kinds[kind].word, "_files", NULL),
                            *bytes = g_strconcat (kinds[kind].word, "_bytes", NULL),
                            *removed = g_strconcat (kinds[kind].word, "_removed", NULL);
            if (tool_number (place, files) == 0)
                continue;
            tool_cell (cells, g_strdup (tool_text (place, "endpoint")));
            tool_cell (cells, g_strdup (kinds[kind].title));
            tool_cell (cells, g_strdup_printf ("%" PRIi64, tool_number (place, files)));
            tool_cell (cells, tool_bytes ((double) tool_number (place, bytes)));
            if (!dry_run)
                tool_cell (cells, g_strdup_printf ("%" PRIi64, tool_number (place, removed)));
        }
    if (cells->len > n_head)
        tool_table (cells, n_columns, "");
}

/* What stays there, for the time being or for somebody to decide. */
static void print_left (JsonObject *report)
{
    JsonArray *places = json_object_get_array_member (report, "endpoints");
    for (guint i = 0; i < json_array_get_length (places); i++) {
        JsonObject *place = json_array_get_object_element (places, i);
        const char *name = tool_text (place, "endpoint");
        if (tool_number (place, "unproven") > 0)
            printf ("%s: %" PRIi64 " of the dead files are not provably what their names say; --unproven %s removes "
                    "these, too\n",
                    name, tool_number (place, "unproven"), name);
        if (tool_number (place, "unknown") > 0)
            printf ("%s: %" PRIi64 " files stay that no change of the archive mentions\n", name,
                    tool_number (place, "unknown"));
        if (tool_number (place, "unreadable") > 0)
            printf ("%s: %" PRIi64 " old files of the journal or markers stay that cannot be read\n", name,
                    tool_number (place, "unreadable"));
        if (json_object_has_member (place, "error"))
            printf ("%s: not done: %s\n", name, tool_text (place, "error"));
    }
}

static void print_report (JsonObject *report)
{
    const bool dry_run = json_object_get_boolean_member (report, "dry_run");
    g_autoptr (GDateTime) then = g_date_time_new_from_unix_local (tool_number (report, "then_ns") / 1000000000);
    g_autofree char *text = then == NULL ? g_strdup ("?") : g_date_time_format (then, "%F %T");
    printf ("what died before %s\n", text);
    print_places (report, dry_run);
    print_old (report, dry_run);
    print_left (report);
    if (json_object_has_member (report, "journal_stays"))
        printf ("the journal stays: %s\n", tool_text (report, "journal_stays"));
    if (json_object_has_member (report, "refused"))
        printf ("refused: %s\n", tool_text (report, "refused"));
    if (dry_run)
        puts ("nothing was removed");
}

static int run (const Verb *verb, const char *directory, EcfsPrune *what, bool yes, bool json)
{
    GError *error = NULL;
    Asking asking = {.yes = yes};
    what->ask = ask;
    what->tell = tool_watch_tell;
    what->progress = tool_watch_tick;
    what->user = &asking;
    tool_watch_begin (&asking.watch, verb->name, json);
    g_autofree char *text = ecfs_prune (directory, what, &error);
    tool_watch_end (&asking.watch);
    if (text == NULL) {
        g_autofree char *resume = error->code == ECANCELED ? tool_command (NULL) : NULL;
        int status = tool_fail (verb->name, error, error->code == EINVAL ? TOOL_USAGE : TOOL_FAILED);
        if (resume != NULL)
            tool_say (verb->name, "what was removed stays so; to do the rest: %s", resume);
        return status;
    }
    g_autoptr (JsonObject) report = tool_json_object (text);
    if (json)
        puts (text);
    else
        print_report (report);
    return json_object_get_boolean_member (report, "done") ? TOOL_DONE : TOOL_FAILED;
}

int verb_prune (const Verb *verb, int argc, char **argv)
{
    char **endpoints = NULL, **unproven = NULL, *keep = NULL, *accept = NULL, *key = NULL;
    gboolean dry_run = FALSE, yes = FALSE, json = FALSE;
    int max_share = -1; /* as the library has it */
    ToolSecrets secrets = {0};
    GError *error = NULL;
    const GOptionEntry options[] = {
        {"endpoint", 'e', 0, G_OPTION_ARG_FILENAME_ARRAY, &endpoints,
         "An endpoint, with a login that may delete there, to make the directory from; give it once for each",
         "NAME=URL[,KEY=VALUE...]"},
        {"keep", 0, 0, G_OPTION_ARG_STRING, &keep, "What died within this time stays (30d)", "AGE"},
        {"max-share", 0, 0, G_OPTION_ARG_INT, &max_share,
         "Refuse if more than this share of files or bytes was lost within a day (10)", "PERCENT"},
        {"accept", 0, 0, G_OPTION_ARG_STRING, &accept, "What was lost up to this moment was meant to be", "TIME"},
        {"unproven", 0, 0, G_OPTION_ARG_STRING_ARRAY, &unproven,
         "Remove at this endpoint also dead files that are not authentic; may be repeated", "NAME"},
        {"key", 'k', 0, G_OPTION_ARG_FILENAME, &key, "The archive's key, to make the directory", "FILE"},
        TOOL_SECRET_OPTIONS (&secrets),
        {"dry-run", 'n', 0, G_OPTION_ARG_NONE, &dry_run, "Only show what would go; remove nothing", NULL},
        {"yes", 'y', 0, G_OPTION_ARG_NONE, &yes, "Do not ask", NULL},
        {"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print a JSON object", NULL},
        G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 1, 1);
    EcfsPrune what = {.endpoints = (const char *const *) endpoints,
                      .key_file = key,
                      .secrets = &secrets.secrets,
                      .keep = keep,
                      .max_share = (unsigned) MAX (max_share, 0),
                      .accept = accept,
                      .unproven = (const char *const *) unproven,
                      .dry_run = dry_run};
    int status = TOOL_USAGE;
    if (max_share != -1 && (max_share < 1 || max_share > 100))
        tool_say (verb->name, "--max-share takes 1 to 100");
    else if (!tool_secrets_read (&secrets, !json, &error))
        status = tool_fail (verb->name, error, TOOL_FAILED);
    else
        status = run (verb, argv[1], &what, yes, json);
    tool_secrets_clear (&secrets);
    g_strfreev (endpoints);
    g_strfreev (unproven);
    g_free (keep);
    g_free (accept);
    g_free (key);
    return status;
}
