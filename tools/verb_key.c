/* key list, check, add, remove, init, rotate */
#include "tool_secret.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const Verb list_verb = {"key list", "ARCHIVE", "Lists the ways to open an archive's keys", NULL};
static const Verb check_verb = {"key check", "ARCHIVE", "Tries whether an archive's keys would come back", NULL};

static const Verb add_verb = {"key add", "ARCHIVE", "Adds a way to open an archive's keys", NULL};
static const Verb remove_verb = {"key remove", "ARCHIVE SLOT", "Takes a way to open an archive's keys away", NULL};

static const Verb init_verb = {"key init", "ARCHIVE", "Gives a key to an archive that was made without one", NULL};

static const Verb rotate_verb = {"key rotate", "ARCHIVE", "Gives another key to an archive that has one", NULL};

/* g_free () */
static char *opened_by (JsonObject *slot)
{
    static const char *const texts[][2] = {{"split", "the endpoints' shares"},
                                           {"passphrase", "a passphrase, and the endpoints' shares"},
                                           {"alone", "a passphrase alone"},
                                           {"code", "a code"}};
    const char *kind = tool_text (slot, "kind");
    for (size_t i = 0; i < G_N_ELEMENTS (texts); i++)
        if (strcmp (kind, texts[i][0]) == 0)
            return g_strdup (texts[i][1]);
    return g_strdup_printf ("the private half of %s", tool_text (slot, "recipient"));
}

static void print_slots (JsonArray *slots)
{
    g_autoptr (GPtrArray) cells = g_ptr_array_new_with_free_func (g_free);
    static const char *const titles[] = {"SLOT", "KIND", "OPENED BY"};
    for (size_t i = 0; i < G_N_ELEMENTS (titles); i++)
        tool_cell (cells, g_strdup (titles[i]));
    for (guint i = 0; i < json_array_get_length (slots); i++) {
        JsonObject *slot = json_array_get_object_element (slots, i);
        tool_cell (cells, g_strdup (tool_text (slot, "id")));
        tool_cell (cells, g_strdup (tool_text (slot, "kind")));
        tool_cell (cells, opened_by (slot));
    }
    tool_table (cells, G_N_ELEMENTS (titles), "");
}

static void print_endpoints (JsonArray *endpoints)
{
    g_autoptr (GPtrArray) cells = g_ptr_array_new_with_free_func (g_free);
    static const char *const titles[] = {"ENDPOINT", "ZONE", "KEY FILE"};
    for (size_t i = 0; i < G_N_ELEMENTS (titles); i++)
        tool_cell (cells, g_strdup (titles[i]));
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        tool_cell (cells, g_strdup (tool_text (endpoint, "name")));
        tool_cell (cells, g_strdup (tool_text (endpoint, "zone")));
        tool_cell (cells, g_strdup (tool_text (endpoint, "key_file")));
    }
    tool_table (cells, G_N_ELEMENTS (titles), "");
}

static void print_list (JsonObject *found)
{
    printf ("key %s\n", tool_text (found, "key"));
    JsonArray *retired = json_object_get_array_member (found, "retired");
    for (guint i = 0; i < json_array_get_length (retired); i++)
        printf ("retired %s\n", json_array_get_string_element (retired, i));
    if (!json_object_has_member (found, "slots")) {
        puts ("It is in the archive directory alone: keep a copy of the file \"key\" elsewhere, or see ecfs key add.");
        tool_print_salvage ();
        return;
    }
    if (tool_number (found, "threshold") > 0)
        printf ("%" PRIi64 " zones bring back what their endpoints share\n", tool_number (found, "threshold"));
    putchar ('\n');
    print_slots (json_object_get_array_member (found, "slots"));
    putchar ('\n');
    print_endpoints (json_object_get_array_member (found, "endpoints"));
    putchar ('\n');
    tool_print_salvage ();
}

static int list (int argc, char **argv)
{
    gboolean json = FALSE;
    const GOptionEntry options[] = {{"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print a JSON object", NULL},
                                    G_OPTION_ENTRY_NULL};
    (void) tool_parse (&list_verb, options, argc, argv, 1, 1);
    GError *error = NULL;
    g_autoptr (Ecfs) ecfs = ecfs_open (argv[1], 0, &error);
    g_autofree char *text = ecfs == NULL ? NULL : ecfs_key_list (ecfs, &error);
    if (text == NULL)
        return tool_fail (list_verb.name, error, TOOL_FAILED);
    g_autoptr (JsonObject) found = tool_json_object (text);
    if (json)
        puts (text);
    else
        print_list (found);
    return TOOL_DONE;
}

static void print_check (JsonObject *found)
{
    JsonArray *told = json_object_get_array_member (found, "told");
    for (guint i = 0; i < json_array_get_length (told); i++)
        tool_say (check_verb.name, "%s", json_array_get_string_element (told, i));
    if (!json_object_get_boolean_member (found, "comes_back")) {
        tool_say (check_verb.name, "%s", tool_text (found, "reason"));
        return;
    }
    g_autofree char *by = opened_by (found);
    printf ("The keys come back from %" PRIi64 " endpoints, by %s (slot %s).\n",
            tool_number (found, "endpoints_with_key_file"), by, tool_text (found, "id"));
}

static int check (int argc, char **argv)
{
    gboolean json = FALSE;
    ToolSecrets secrets = {.code_file = NULL};
    const GOptionEntry options[] = {TOOL_SECRET_OPTIONS (&secrets),
                                    {"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print a JSON object", NULL},
                                    G_OPTION_ENTRY_NULL};
    (void) tool_parse (&check_verb, options, argc, argv, 1, 1);
    GError *error = NULL;
    g_autoptr (Ecfs) ecfs = tool_secrets_read (&secrets, !json, &error) ? ecfs_open (argv[1], 0, &error) : NULL;
    g_autofree char *text = ecfs == NULL ? NULL : ecfs_key_check (ecfs, &secrets.secrets, &error);
    tool_secrets_clear (&secrets);
    if (text == NULL)
        return tool_fail (check_verb.name, error, TOOL_FAILED);
    g_autoptr (JsonObject) found = tool_json_object (text);
    if (json)
        puts (text);
    else
        print_check (found);
    return json_object_get_boolean_member (found, "comes_back") ? TOOL_DONE : TOOL_FAILED;
}

/* Changes */

/* What became of a change; @taken is what ecfs_key_add () made. */
static int tell_changed (const Verb *verb, char *taken, bool json)
{
    g_autofree char *text = taken;
    g_autoptr (JsonObject) done = tool_json_object (text);
    JsonArray *behind = json_object_get_array_member (done, "behind");
    for (guint i = 0; i < json_array_get_length (behind); i++)
        tool_say (verb->name, "%s; 'ecfs fsck -y' stores the new key file there later",
                  json_array_get_string_element (behind, i));
    if (json)
        puts (text);
    bool safe = json_object_get_boolean_member (done, "safe");
    if (!safe)
        tool_say (verb->name, "too few endpoints have the new key file: it could be lost with as many as may vanish");
    return safe ? TOOL_DONE : TOOL_FAILED;
}

typedef struct AddArguments {
    gboolean passphrase, alone, code, split, json;
    char *recipient, *passphrase_file, *code_file;
    const char *shown; /* the code; borrowed; NULL: none is to be shown */
    bool is_lost;      /* it could not be */
    bool is_begun;     /* something may depend on it */
} AddArguments;

/* The options of add and init. */
#define WAY_OPTIONS(self)                                                                                              \
    {                                                                                                                  \
        "passphrase",                                                                                                  \
        0,                                                                                                             \
        0,                                                                                                             \
        G_OPTION_ARG_NONE,                                                                                             \
        &(self)->passphrase,                                                                                           \
        "A passphrase opens them, with the endpoints' shares",                                                         \
        NULL},                                                                                                         \
        {"alone", 0, 0, G_OPTION_ARG_NONE, &(self)->alone, "The same, without the endpoints' shares", NULL},           \
        {"passphrase-file",                                                                                            \
         0,                                                                                                            \
         0,                                                                                                            \
         G_OPTION_ARG_FILENAME,                                                                                        \
         &(self)->passphrase_file,                                                                                     \
         "A file whose first line is the passphrase",                                                                  \
         "FILE"},                                                                                                      \
        {"code", 0, 0, G_OPTION_ARG_NONE, &(self)->code, "A code opens them, which is printed once", NULL},            \
        {"code-file", 0, 0, G_OPTION_ARG_FILENAME, &(self)->code_file, "Write the code into this new file", "FILE"},   \
    {                                                                                                                  \
        "recipient", 0, 0, G_OPTION_ARG_FILENAME, &(self)->recipient,                                                  \
            "Who has the private half of this X25519 key opens them", "PUBLICKEY"                                      \
    }

static void arguments_clear (AddArguments *self)
{
    g_free (self->recipient);
    g_free (self->passphrase_file);
    g_free (self->code_file);
}

/* Fills *ret_way, whose secret is for tool_forget (). */
static bool choose_way (const AddArguments *arguments, EcfsKeyWay *ret_way, GError **error)
{
    const char *recipient = arguments->recipient;
    if (arguments->passphrase + arguments->code + arguments->split + (recipient != NULL) != 1)
        return tool_error (error, EINVAL, "give one of --split, --passphrase, --code and --recipient");
    if (arguments->alone && !arguments->passphrase)
        return tool_error (error, EINVAL, "--alone goes with --passphrase");
    *ret_way = (EcfsKeyWay){.kind = "split"};
    if (arguments->split)
        return true;
    if (arguments->passphrase)
        *ret_way = (EcfsKeyWay){.kind = arguments->alone ? "alone" : "passphrase",
                                .secret = tool_new_passphrase (arguments->passphrase_file, error)};
    else if (arguments->code)
        *ret_way = (EcfsKeyWay){.kind = "code", .secret = tool_new_code (arguments->code_file, error)};
    else
        *ret_way = (EcfsKeyWay){.kind = "recipient", .secret = tool_public_key (recipient, error)};
    return ret_way->secret != NULL;
}

/* @also: what else there is to choose; @with: what goes with it. */
static int fail (const Verb *verb, GError *error, const char *also, const char *with)
{
    int code = error->code;
    int status = tool_fail (verb->name, error, tool_status (code));
    if (code == EDOM)
        tool_say (verb->name, "nothing has changed: choose --code, --passphrase --alone%s or --recipient%s", also,
                  with);
    return status;
}

static int add_way (const char *directory, const AddArguments *arguments, GError **error)
{
    EcfsKeyWay way = {.secret = NULL};
    g_autoptr (Ecfs) ecfs = ecfs_open (directory, ECFS_OPEN_WRITE | ECFS_OPEN_LEAD, error);
    char *text = ecfs != NULL && choose_way (arguments, &way, error) ? ecfs_key_add (ecfs, &way, error) : NULL;
    bool shown = true;
    if (text != NULL && arguments->code)
        shown = tool_print_code (way.secret, arguments->code_file);
    else if (text == NULL && arguments->code_file != NULL && way.secret != NULL)
        (void) remove (arguments->code_file); /* it opens nothing */
    tool_forget ((char *) way.secret);
    int status = text == NULL ? -1 : tell_changed (&add_verb, text, arguments->json);
    return shown ? status : TOOL_FAILED;
}

static int add (int argc, char **argv)
{
    AddArguments arguments = {.json = FALSE};
    const GOptionEntry options[] = {
        {"split", 0, 0, G_OPTION_ARG_NONE, &arguments.split, "The endpoints' shares open them", NULL},
        WAY_OPTIONS (&arguments),
        {"json", 0, 0, G_OPTION_ARG_NONE, &arguments.json, "Print a JSON object", NULL},
        G_OPTION_ENTRY_NULL};
    (void) tool_parse (&add_verb, options, argc, argv, 1, 1);
    GError *error = NULL;
    int status = add_way (argv[1], &arguments, &error);
    arguments_clear (&arguments);
    return status >= 0 ? status : fail (&add_verb, error, "", "");
}

static int take_away (int argc, char **argv)
{
    gboolean force = FALSE, json = FALSE;
    const GOptionEntry options[] = {{"force", 'f', 0, G_OPTION_ARG_NONE, &force, "Also the last one", NULL},
                                    {"json", 0, 0, G_OPTION_ARG_NONE, &json, "Print a JSON object", NULL},
                                    G_OPTION_ENTRY_NULL};
    (void) tool_parse (&remove_verb, options, argc, argv, 2, 2);
    GError *error = NULL;
    g_autoptr (Ecfs) ecfs = ecfs_open (argv[1], ECFS_OPEN_WRITE | ECFS_OPEN_LEAD, &error);
    char *text = ecfs == NULL ? NULL : ecfs_key_remove (ecfs, argv[2], force, &error);
    if (text != NULL)
        return tell_changed (&remove_verb, text, json);
    bool last = error->code == EBUSY && ecfs != NULL;
    int status = tool_fail (remove_verb.name, error, TOOL_FAILED);
    if (last)
        tool_say (remove_verb.name, "--force removes it all the same");
    return status;
}

/* One of add, or a file. */
static bool choose_init_way (const AddArguments *arguments, const char *kind, EcfsKeyWay *ret_way, GError **error)
{
    AddArguments chosen = *arguments;
    bool any = chosen.passphrase || chosen.code || chosen.recipient != NULL;
    if (kind != NULL && any)
        return tool_error (error, EINVAL, "--key goes with neither --passphrase, --code nor --recipient");
    *ret_way = (EcfsKeyWay){.kind = kind != NULL ? kind : "split"};
    if (kind != NULL && strcmp (kind, "split") != 0 && strcmp (kind, "file") != 0)
        return tool_error (error, EINVAL, "--key is split or file");
    return !any || choose_way (&chosen, ret_way, error);
}

/* A code is shown before anything could depend on it, but not where it would come too late to open anything. */
static bool check_lacks_key (const char *directory, GError **error)
{
    g_autoptr (GError) why = NULL;
    g_autoptr (Ecfs) ecfs = ecfs_open (directory, 0, error);
    g_autofree char *has = ecfs == NULL ? NULL : ecfs_key_list (ecfs, &why);
    if (has != NULL)
        return tool_error (error, EEXIST,
                           "%s has a key already: 'ecfs key add' adds a way to open it; if 'ecfs key init' was "
                           "interrupted, 'ecfs key init %s' without options ends it",
                           directory, directory);
    return ecfs != NULL;
}

static int init (int argc, char **argv)
{
    g_autofree char *kind = NULL, *copy = NULL;
    AddArguments arguments = {.json = FALSE};
    EcfsKeyWay way = {.secret = NULL};
    const GOptionEntry options[] = {
        {"key", 'k', 0, G_OPTION_ARG_STRING, &kind, "The endpoints share the key (split), or have nothing of it (file)",
         "split|file"},
        {"copy", 0, 0, G_OPTION_ARG_FILENAME, &copy, "With --key file: where a copy of the key is", "FILE"},
        WAY_OPTIONS (&arguments),
        G_OPTION_ENTRY_NULL};
    GError *error = NULL;
    (void) tool_parse (&init_verb, options, argc, argv, 1, 1);
    bool given =
        (!arguments.code || check_lacks_key (argv[1], &error)) && choose_init_way (&arguments, kind, &way, &error);
    if (given && strcmp (way.kind, "code") == 0) /* before anything could depend on it */
        given = tool_print_code (way.secret, arguments.code_file) || tool_error (&error, EIO, "nothing has changed");
    given = given && ecfs_key_init (argv[1], &way, copy, &error);
    if (given)
        printf ("What was stored before lies open until 'ecfs recode --seal %s' has moved it.\n", argv[1]);
    tool_forget ((char *) way.secret);
    arguments_clear (&arguments);
    return given ? TOOL_DONE : fail (&init_verb, error, ", --key file", "");
}

/* Before anything could depend on it. */
static void show_code (void *user)
{
    AddArguments *arguments = user;
    arguments->is_begun = true;
    arguments->is_lost = arguments->shown != NULL && !tool_print_code (arguments->shown, arguments->code_file);
}

static bool choose_rotate_way (const AddArguments *arguments, EcfsKeyWay *ret_way, EcfsKeyRotation *rotation,
                               GError **error)
{
    if (!arguments->passphrase && !arguments->code && arguments->recipient == NULL)
        return true;
    rotation->way = ret_way;
    return choose_way (arguments, ret_way, error);
}

static int rotate (int argc, char **argv)
{
    g_autofree char *copy = NULL;
    gboolean drop = FALSE;
    AddArguments arguments = {.json = FALSE};
    EcfsKeyWay way = {.secret = NULL};
    const GOptionEntry options[] = {
        {"copy", 0, 0, G_OPTION_ARG_FILENAME, &copy, "Write a copy of the keys there", "FILE"},
        {"drop", 0, 0, G_OPTION_ARG_NONE, &drop, "Go on without the ways that would need a secret", NULL},
        WAY_OPTIONS (&arguments),
        G_OPTION_ENTRY_NULL};
    GError *error = NULL;
    (void) tool_parse (&rotate_verb, options, argc, argv, 1, 1);
    EcfsKeyRotation rotation = {.copy = copy, .drop = drop, .begun = show_code, .user = &arguments};
    bool done = choose_rotate_way (&arguments, &way, &rotation, &error);
    arguments.shown = arguments.code ? way.secret : NULL;
    done = done && ecfs_key_rotate (argv[1], &rotation, &error);
    if (done)
        printf ("The archive has a new key. What was stored before is under the old one until 'ecfs recode --seal %s' "
                "has moved it.\n",
                argv[1]);
    if (!done && !arguments.is_begun && arguments.code_file != NULL && way.secret != NULL && arguments.code)
        (void) remove (arguments.code_file); /* it opens nothing */
    tool_forget ((char *) way.secret);
    arguments_clear (&arguments);
    if (done && arguments.is_lost)
        return TOOL_FAILED;
    return done ? TOOL_DONE : fail (&rotate_verb, error, "", ", and --drop for the endpoints' shares");
}

int verb_key (const Verb *verb, int argc, char **argv)
{
    static const Action actions[] = {{"list", list}, {"check", check},   {"add", add}, {"remove", take_away},
                                     {"init", init}, {"rotate", rotate}, {NULL, NULL}};
    return tool_run_action (verb, actions, argc, argv);
}
