#include "tool.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void tool_say (const char *verb, const char *format, ...)
{
    va_list args;
    va_start (args, format);
    g_autofree char *text = g_strdup_vprintf (format, args);
    va_end (args);
    g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
    for (char **line = lines; *line != NULL; line++) {
        g_autofree char *clean = ecfs_printable (*line);
        fprintf (stderr, "%s%s: %s\n", strchr (verb, '.') == NULL ? "ecfs " : "", verb, clean);
    }
}

int tool_fail (const char *verb, GError *error, int status)
{
    tool_say (verb, "%s", error->message);
    g_error_free (error);
    return status;
}

int tool_status (int code)
{
    return code == EINVAL || code == ENOTSUP || code == EDOM ? TOOL_USAGE : TOOL_FAILED;
}

char *tool_shell_word (const char *text)
{
    static const char plain[] = G_CSET_a_2_z G_CSET_A_2_Z G_CSET_DIGITS "/._-+:@%=,";
    return *text != '\0' && text[strspn (text, plain)] == '\0' ? g_strdup (text) : g_shell_quote (text);
}

bool tool_error (GError **error, int code, const char *format, ...)
{
    va_list args;
    va_start (args, format);
    if (error != NULL)
        *error = g_error_new_valist (ECFS_ERROR, code, format, args);
    va_end (args);
    return false;
}

static void usage_error (const Verb *verb, const char *text)
{
    tool_say (verb->name, "%s", text);
    fprintf (stderr, "Usage: ecfs %s [OPTION...] %s (see ecfs %s --help)\n", verb->name, verb->arguments, verb->name);
    exit (TOOL_USAGE);
}

/* GLib's own --help has a character in it that ASCII has not. */
void tool_print_help (GOptionContext *context)
{
    g_autofree char *help = g_option_context_get_help (context, FALSE, NULL);
    g_auto (GStrv) parts = g_strsplit (help, "\342\200\246", -1);
    g_autofree char *plain = g_strjoinv ("...", parts);
    fputs (plain, stdout);
}

static GOptionContext *option_context (const Verb *verb, const GOptionEntry *options, gboolean *help, gboolean *version)
{
    const GOptionEntry own[] = {{"help", 'h', 0, G_OPTION_ARG_NONE, help, "Explain this verb", NULL},
                                {"version", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_NONE, version, "", NULL},
                                G_OPTION_ENTRY_NULL};
    GOptionContext *context = g_option_context_new (verb->arguments);
    g_autofree char *summary = g_strdup_printf ("%s.", verb->summary);
    g_option_context_set_help_enabled (context, FALSE);
    g_option_context_set_summary (context, summary);
    g_option_context_set_description (context, "Exit status: 0 done, 1 failed, 2 wrong usage.");
    if (options != NULL)
        g_option_context_add_main_entries (context, options, NULL);
    g_option_context_add_main_entries (context, own, NULL);
    return context;
}

/* Characters to insert, delete or change, two that are swapped counting as one change. */
static size_t edit_distance (const char *a, const char *b)
{
    size_t n_a = strlen (a), n_b = strlen (b), columns = n_b + 1;
    g_autofree size_t *table = g_new0 (size_t, (n_a + 1) * columns);
    for (size_t i = 0; i <= n_a; i++) {
        for (size_t j = 0; j <= n_b; j++) {
            size_t *at = &table[i * columns + j];
            if (i == 0 || j == 0) {
                *at = i + j;
                continue;
            }
            *at = MIN (at[-1], table[(i - 1) * columns + j]) + 1;
            *at = MIN (*at, table[(i - 1) * columns + j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                *at = MIN (*at, table[(i - 2) * columns + j - 2] + 1);
        }
    }
    return table[n_a * columns + n_b];
}

const char *tool_nearest (const char *word, const char *const *candidates)
{
    size_t length = strlen (word), least = MIN (length / 2, 3);
    const char *nearest = NULL;
    if (length > 100)
        return NULL;
    for (; *candidates != NULL; candidates++) {
        size_t distance = edit_distance (word, *candidates);
        if (distance > least || (distance == least && nearest != NULL))
            continue;
        least = distance;
        nearest = *candidates;
    }
    return nearest;
}

int tool_unknown_action (const Verb *verb, const char *action, const char *const *actions)
{
    g_autofree char *all = g_strjoinv (", ", (char **) actions);
    const char *near = tool_nearest (action, actions);
    tool_say (verb->name, "\"%s\" is not one of %s", action, all);
    if (near != NULL)
        tool_say (verb->name, "did you mean \"ecfs %s %s\"?", verb->name, near);
    return TOOL_USAGE;
}

int tool_run_action (const Verb *verb, const Action *actions, int argc, char **argv)
{
    g_autoptr (GPtrArray) names = g_ptr_array_new ();
    const char *word = argc > 1 ? argv[1] : "";
    for (; actions->name != NULL; actions++) {
        if (strcmp (word, actions->name) == 0)
            return actions->run (argc - 1, argv + 1);
        g_ptr_array_add (names, (char *) actions->name);
    }
    g_ptr_array_add (names, NULL);
    (void) tool_parse (verb, NULL, argc, argv, 1, G_MAXINT);
    return tool_unknown_action (verb, word, (const char *const *) names->pdata);
}

/* The command line before it is parsed; the process's. */
static const char *command_verb;
static char **command_words;

static void note_command (const Verb *verb, int argc, char **argv)
{
    g_strfreev (command_words);
    command_verb = verb->name;
    command_words = g_new0 (char *, (size_t) argc + 1);
    for (int i = 1; i < argc; i++)
        command_words[i - 1] = g_strdup (argv[i]);
}

char *tool_command_with (const char *option, const char *word, const char *instead)
{
    GString *text = g_string_new (NULL);
    g_string_append_printf (text, "ecfs %s%s%s", command_verb, option == NULL ? "" : " ", option == NULL ? "" : option);
    for (char **w = command_words; *w != NULL; w++) {
        g_autofree char *quoted = tool_shell_word (word != NULL && strcmp (*w, word) == 0 ? instead : *w);
        g_string_append_printf (text, " %s", quoted);
    }
    return g_string_free (text, FALSE);
}

char *tool_command (const char *option)
{
    return tool_command_with (option, NULL, NULL);
}

int tool_parse (const Verb *verb, const GOptionEntry *options, int argc, char **argv, int min, int max)
{
    gboolean help = FALSE, version = FALSE;
    g_autofree char *program = g_strdup_printf ("ecfs %s", verb->name);
    g_set_prgname (program);
    note_command (verb, argc, argv);
    g_autoptr (GOptionContext) context = option_context (verb, options, &help, &version);
    g_autoptr (GError) error = NULL;
    if (!g_option_context_parse (context, &argc, &argv, &error))
        usage_error (verb, error->message);
    if (version) {
        puts ("ecfs " ECFS_VERSION);
        exit (TOOL_DONE);
    }
    if (help) {
        tool_print_help (context);
        exit (TOOL_DONE);
    }
    if (argc > 1 && strcmp (argv[1], "--") == 0) {
        memmove (argv + 1, argv + 2, (size_t) (argc - 1) * sizeof *argv);
        argc--;
    }
    if (argc - 1 < min)
        usage_error (verb, "an argument is missing");
    if (argc - 1 > max)
        usage_error (verb, "there are too many arguments");
    return argc;
}

bool tool_key_has (JsonObject *key, const char *kind)
{
    if (!json_object_has_member (key, "slots"))
        return g_str_equal (kind, "split");
    JsonArray *slots = json_object_get_array_member (key, "slots");
    for (guint i = 0; i < json_array_get_length (slots); i++)
        if (g_str_equal (json_array_get_string_element (slots, i), kind))
            return true;
    return false;
}

char *tool_key_openers (JsonObject *key, bool for_less)
{
    static const struct {
        const char *kind, *text;
        bool needs_shares;
    } openers[] = {{"passphrase", "the passphrase", true},
                   {"alone", "a passphrase alone", false},
                   {"code", "a code", false},
                   {"recipient", "a private key", false}};
    g_autoptr (GString) text = g_string_new (NULL);
    for (size_t i = 0; i < G_N_ELEMENTS (openers); i++)
        if (tool_key_has (key, openers[i].kind) && !(for_less && openers[i].needs_shares))
            g_string_append_printf (text, "%s%s", text->len > 0 ? " or " : "", openers[i].text);
    bool any = text->len > 0 && (for_less || !tool_key_has (key, "split"));
    return any ? g_strdup (text->str) : NULL;
}

char *tool_archive (const char *path)
{
    char *directory = NULL;
    g_free (ecfs_mounted_path (path, &directory));
    return directory != NULL ? directory : g_strdup (path);
}

Ecfs *tool_open (const char *archive, const char *at, GError **error)
{
    return at == NULL ? ecfs_open (archive, 0, error) : ecfs_open_at (archive, at, error);
}

char **tool_in_archive (const Verb *verb, int *argc, char **argv, int min, int n_others)
{
    g_autoptr (GPtrArray) words = g_ptr_array_new ();
    g_autofree char *directory = NULL;
    /* Asked of the table of mounts first: nothing on a mount that hangs is touched. */
    char *first = ecfs_mounted_path (argv[1], &directory);
    bool whole = g_strcmp0 (first, "/") == 0;
    int n_paths = *argc - n_others;
    g_ptr_array_add (words, g_strdup (argv[0]));
    g_ptr_array_add (words, g_strdup (directory != NULL ? directory : argv[1]));
    if (first != NULL && (!whole || n_paths == 2))
        g_ptr_array_add (words, g_strdup (first));
    for (int i = 2; i < *argc; i++) {
        g_autofree char *other = NULL;
        char *inside = first == NULL || i >= n_paths ? NULL : ecfs_mounted_path (argv[i], &other);
        bool same = inside != NULL && g_strcmp0 (other, directory) == 0;
        if (first != NULL && !whole && i < n_paths && !same) {
            tool_say (verb->name, "%s and %s are not in the same archive", argv[1], argv[i]);
            exit (TOOL_USAGE);
        }
        g_ptr_array_add (words, same ? g_steal_pointer (&inside) : g_strdup (argv[i]));
        g_free (inside);
    }
    g_free (first);
    *argc = (int) words->len;
    if (*argc - 2 - n_others < min)
        usage_error (verb, "an argument is missing");
    g_ptr_array_add (words, NULL);
    return (char **) g_ptr_array_steal (words, NULL);
}

char *tool_bytes (double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned unit = 0;
    while (bytes >= 1000 && unit + 1 < G_N_ELEMENTS (units)) {
        bytes /= 1024;
        unit++;
    }
    return g_strdup_printf (unit > 0 && bytes < 10 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

char *tool_seconds (double seconds)
{
    if (seconds < 0.0001)
        return g_strdup ("< 0.1 ms");
    if (seconds < 1)
        return g_strdup_printf (seconds < 0.01 ? "%.1f ms" : "%.0f ms", seconds * 1000);
    if (seconds < 120)
        return g_strdup_printf ("%.0f s", seconds);
    if (seconds < 7200)
        return g_strdup_printf ("%.0f min", seconds / 60);
    return seconds < 172800 ? g_strdup_printf ("%.0f h", seconds / 3600)
                            : g_strdup_printf ("%.0f days", seconds / 86400);
}

char *tool_printable (const char *text)
{
    return isatty (STDOUT_FILENO) ? ecfs_printable (text) : g_strdup (text);
}

void tool_print_unstored (JsonObject *unstored, const char *title)
{
    JsonArray *list = json_object_get_array_member (unstored, "list");
    const guint n_told = json_array_get_length (list);
    const int64_t n_files = tool_number (unstored, "files"), n_changes = tool_number (unstored, "changes");
    g_autofree char *bytes = tool_bytes ((double) tool_number (unstored, "bytes"));
    if (n_files + n_changes == 0)
        return;
    printf ("%s: %" PRIi64 " files with %s, and %" PRIi64 " other changes\n", title, n_files, bytes, n_changes);
    for (guint i = 0; i < n_told; i++) {
        JsonObject *row = json_array_get_object_element (list, i);
        g_autofree char *path = tool_printable (tool_text (row, "path"));
        g_autofree char *size = tool_bytes ((double) tool_number (row, "size"));
        bool has_size = tool_number (row, "size") > 0;
        printf ("  %s: %s%s%s\n", path, tool_text (row, "state"), has_size ? ", " : "", has_size ? size : "");
    }
    if (n_told < n_files + n_changes)
        printf ("  and %" PRIi64 " more\n", n_files + n_changes - n_told);
}

static unsigned width (const char *text)
{
    return g_utf8_validate (text, -1, NULL) ? (unsigned) g_utf8_strlen (text, -1) : (unsigned) strlen (text);
}

void tool_table (const GPtrArray *cells, unsigned n_columns, const char *indent)
{
    g_autofree unsigned *widths = g_new0 (unsigned, n_columns);
    for (unsigned i = 0; i < cells->len; i++)
        widths[i % n_columns] = MAX (widths[i % n_columns], width (g_ptr_array_index (cells, i)));
    for (unsigned i = 0; i < cells->len; i++) {
        const char *cell = g_ptr_array_index (cells, i);
        unsigned column = i % n_columns;
        bool last = column + 1 == n_columns;
        unsigned gap = last ? 0 : widths[column] - width (cell) + 2;
        printf ("%s%s%*s%s", column == 0 ? indent : "", cell, (int) gap, "", last ? "\n" : "");
    }
}

void tool_print_json (JsonNode *node)
{
    g_autofree char *text = json_to_string (node, TRUE);
    json_node_unref (node);
    puts (text);
}

JsonObject *tool_json_object (const char *text)
{
    g_autoptr (JsonNode) node = json_from_string (text, NULL);
    return node != NULL && JSON_NODE_HOLDS_OBJECT (node) ? json_node_dup_object (node) : json_object_new ();
}

JsonArray *tool_json_array (const char *text)
{
    g_autoptr (JsonNode) node = json_from_string (text, NULL);
    return node != NULL && JSON_NODE_HOLDS_ARRAY (node) ? json_node_dup_array (node) : json_array_new ();
}

const char *tool_text (JsonObject *object, const char *member)
{
    return json_object_get_string_member_with_default (object, member, "");
}

int64_t tool_number (JsonObject *object, const char *member)
{
    return json_object_get_int_member_with_default (object, member, 0);
}

double tool_double (JsonObject *object, const char *member)
{
    return json_object_get_double_member_with_default (object, member, 0);
}

JsonObject *tool_part (JsonObject *object, const char *member)
{
    JsonNode *node = object == NULL ? NULL : json_object_get_member (object, member);
    return node != NULL && JSON_NODE_HOLDS_OBJECT (node) ? json_node_get_object (node) : NULL;
}

JsonArray *tool_list (JsonObject *object, const char *member)
{
    JsonNode *node = object == NULL ? NULL : json_object_get_member (object, member);
    return node != NULL && JSON_NODE_HOLDS_ARRAY (node) ? json_node_get_array (node) : NULL;
}

guint tool_length (JsonArray *list)
{
    return list == NULL ? 0 : json_array_get_length (list);
}

bool tool_is_away (JsonObject *status, JsonObject *endpoint)
{
    static const char *const away[] = {"down", "silent", "unconfigured", "failed", "distrusted", NULL};
    bool mounted = json_object_get_boolean_member_with_default (status, "mounted", FALSE);
    bool connected = json_object_get_boolean_member_with_default (endpoint, "connected", FALSE);
    return g_strv_contains (away, tool_text (endpoint, "state")) || (!mounted && !connected);
}

bool tool_follows (JsonObject *status)
{
    JsonObject *follow = tool_part (status, "follow");
    return follow != NULL && json_object_get_boolean_member_with_default (follow, "lives", FALSE);
}

bool tool_knows_reads (JsonObject *status)
{
    return json_object_get_boolean_member_with_default (status, "mounted", FALSE) ||
           (tool_follows (status) && tool_part (tool_part (status, "follow"), "reads") != NULL);
}

const char *tool_unreadable_text (JsonObject *status)
{
    JsonArray *endpoints = tool_list (status, "endpoints");
    for (guint i = 0; i < tool_length (endpoints); i++)
        if (tool_is_away (status, json_array_get_object_element (endpoints, i)))
            return "some files cannot be read before endpoints return";
    return "some files cannot be read: too many of their stripes are damaged or gone";
}

/* Interrupts */

static volatile sig_atomic_t interrupted;

static void on_signal (int number)
{
    interrupted = number;
}

void tool_catch_interrupts (void)
{
    /* The second signal ends the program at once. */
    static const int signals[] = {SIGINT, SIGTERM};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int) SA_RESETHAND}, before;
    for (size_t i = 0; i < G_N_ELEMENTS (signals); i++)
        /* A shell that runs it in the background has it ignore Ctrl-C. */
        if (sigaction (signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            (void) sigaction (signals[i], &action, NULL); /* cannot fail for these */
}

bool tool_is_interrupted (void)
{
    return interrupted != 0;
}

int tool_interrupting_signal (void)
{
    return interrupted;
}

/* Transfers */

static bool on_progress (void *user, const EcfsProgress *progress)
{
    ToolTransfer *self = user;
    self->last = *progress;
    if (!self->begun)
        self->wire_before = progress->wire_bytes;
    self->begun = true;
    const ToolStep step = {.things = self->things,
                           .n_done = progress->n_done,
                           .n_all = self->n_all > 0 ? self->n_all : progress->n_found,
                           .grows = self->n_all == 0 && !self->all_found,
                           .bytes_done = progress->bytes_done,
                           .bytes_all = self->bytes_all,
                           .wire_bytes = progress->wire_bytes - MIN (self->wire_before, progress->wire_bytes),
                           .wire_factor = self->wire_factor};
    tool_progress_tell (&self->progress, &step);
    return !interrupted;
}

static void on_problem (void *user, const GError *error, bool warning)
{
    ToolTransfer *self = user;
    tool_progress_clear (&self->progress);
    self->n_problems += !warning;
    tool_say (self->verb, "%s%s", warning ? "warning: " : "", error->message);
}

void tool_transfer_begin (ToolTransfer *self, const char *verb)
{
    *self = (ToolTransfer){
        .transfer = {.progress = on_progress, .problem = on_problem, .user = self}, .verb = verb, .things = "files"};
    tool_progress_begin (&self->progress, verb, false);
    tool_catch_interrupts ();
}

/* What Ctrl-C has left. */
static void tell_cancelled (const ToolTransfer *self, const char *resume)
{
    uint64_t n_all = MAX (self->n_all, self->last.n_found);
    tool_say (self->verb, "cancelled; %" PRIu64 " of %" PRIu64 " %s are done and stay so", self->last.n_done, n_all,
              self->things);
    if (resume != NULL)
        tool_say (self->verb, "to do the rest: %s", resume);
}

int tool_transfer_end (ToolTransfer *self, GError *error)
{
    g_autofree char *resume = g_steal_pointer (&self->resume);
    tool_progress_end (&self->progress);
    if (self->last.n_not_full > 0)
        tool_say (self->verb,
                  "%" PRIu64 " of %" PRIu64
                  " files are stored with fewer stripes than their code has, because endpoints could not be reached: a "
                  "mount completes them in the background, 'ecfs fsck -y' does so now",
                  self->last.n_not_full, self->last.n_found);
    if (error == NULL)
        return TOOL_DONE;
    if (error->code == ECANCELED && interrupted) {
        tell_cancelled (self, resume);
        g_error_free (error);
    } else if (self->n_problems == 1 && self->last.n_found <= 1)
        g_error_free (error); /* one failed file was told already */
    else
        (void) tool_fail (self->verb, error, TOOL_FAILED);
    return TOOL_FAILED;
}
