#include "plan.h"
#include "tool_secret.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

typedef struct InitArguments {
    char *code;
    char **endpoints;
    char **settings;
    char *key;
    gboolean alone;
    char *passphrase_file;
    char *code_file;
} InitArguments;

/* Fills *ret_way, whose secret is for tool_forget (). */
static bool choose_way (const InitArguments *arguments, EcfsKeyWay *ret_way, GError **error)
{
    const char *kind = arguments->key != NULL ? arguments->key : "split";
    const char *recipient = g_str_has_prefix (kind, "recipient=") ? strchr (kind, '=') + 1 : NULL;
    bool passphrase = strcmp (kind, "passphrase") == 0, code = strcmp (kind, "code") == 0;
    if ((arguments->alone && !passphrase) || (arguments->passphrase_file != NULL && !passphrase))
        return tool_error (error, EINVAL, "--alone and --passphrase-file go with --key passphrase");
    if (arguments->code_file != NULL && !code)
        return tool_error (error, EINVAL, "--code-file goes with --key code");
    *ret_way = (EcfsKeyWay){.kind = kind};
    if (strcmp (kind, "alone") == 0 || strcmp (kind, "recipient") == 0)
        return tool_error (error, EINVAL, "a key is kept by --key recipient=PUBLICKEY, or --key passphrase --alone");
    if (recipient != NULL)
        *ret_way = (EcfsKeyWay){.kind = "recipient", .secret = tool_public_key (recipient, error)};
    if (passphrase)
        *ret_way = (EcfsKeyWay){.kind = arguments->alone ? "alone" : "passphrase",
                                .secret = tool_new_passphrase (arguments->passphrase_file, error)};
    if (code)
        *ret_way = (EcfsKeyWay){.kind = "code", .secret = tool_new_code (arguments->code_file, error)};
    return ret_way->secret != NULL || (recipient == NULL && !passphrase && !code);
}

static bool make (const char *directory, const InitArguments *arguments, EcfsKeyWay *ret_way, GError **error)
{
    bool good = choose_way (arguments, ret_way, error) &&
                ecfs_init_with_key (directory, arguments->code, (const char *const *) arguments->endpoints,
                                    (const char *const *) arguments->settings, ret_way, error);
    if (!good && arguments->code_file != NULL && ret_way->secret != NULL)
        (void) remove (arguments->code_file); /* it opens nothing */
    return good;
}

/* Somebody who has not said how the key is kept, and whose endpoints cannot share it, may say it now. */
static bool ask_way (const Verb *verb, const char *why, InitArguments *arguments)
{
    char answer[32] = "";
    if (arguments->key != NULL || !isatty (STDIN_FILENO) || !isatty (STDERR_FILENO))
        return false;
    tool_say (verb->name, "%s", why);
    fputs ("How is the key to be kept?\n"
           "  code        a code is printed once, and you write it down\n"
           "  passphrase  you remember one; whoever runs an endpoint can try to guess it\n"
           "  file        you keep a copy of a file elsewhere\n"
           "  none        there is no key: whoever runs an endpoint can read what it has\n"
           "code, passphrase, file or none: ",
           stderr);
    if (fgets (answer, sizeof answer, stdin) == NULL)
        return false;
    g_strstrip (answer);
    static const char *const answers[] = {"code", "passphrase", "file", "none", NULL};
    if (!g_strv_contains (answers, answer))
        return false;
    arguments->key = g_strdup (answer);
    arguments->alone = strcmp (answer, "passphrase") == 0;
    return true;
}

static int fail (const Verb *verb, GError *error)
{
    int code = error->code;
    int status = tool_fail (verb->name, error, tool_status (code));
    if (code == EDOM)
        tool_say (verb->name,
                  "nothing was made: name more zones, or say how the key is kept: --key code (a code that is printed "
                  "once, to be written down), --key passphrase --alone (whoever runs an endpoint can try to guess it), "
                  "--key file (you keep a copy of a file), or --key none (no key: whoever runs an endpoint can read "
                  "what it has)");
    return status;
}

static void print_promise (const char *directory, JsonObject *promise)
{
    const char *code = tool_text (promise, "code");
    int64_t n_endpoints = tool_number (promise, "endpoints"), n_zones = tool_number (promise, "zones");
    int64_t zones = tool_number (promise, "zones_may_vanish");
    printf ("%s: %s over %" PRIi64 " endpoints: any %" PRIi64
            " of them may vanish and every file stays readable. A byte takes %.2f bytes.\n",
            directory, code, n_endpoints, tool_number (promise, "endpoints_may_vanish"),
            (double) tool_number (promise, "n") / (double) tool_number (promise, "k"));
    if (n_zones < n_endpoints)
        printf ("They lie in %" PRIi64 " zones, of which any %" PRIi64 " may vanish.%s\n", n_zones, zones,
                zones == 0 ? " No zone may: spread them over more zones." : "");
    g_autofree char *sentence = n_endpoints >= tool_number (promise, "n") ? plan_sentence (code) : NULL;
    if (sentence != NULL)
        puts (sentence);
}

static void print_shared_key (const char *directory, JsonObject *promise)
{
    int64_t threshold = tool_number (promise, "key_threshold"), n_zones = tool_number (promise, "zones");
    const char *places = n_zones < tool_number (promise, "endpoints") ? "zones" : "endpoints";
    printf (
        "It has a key, without which nobody can read what is stored. Any %" PRIi64 " of the %" PRIi64
        " %s bring it back, and fewer together learn nothing.\n"
        "The file %s/key needs no backup, and nobody else may have it.\n"
        "If this machine is lost, 'ecfs recover' on another one needs the endpoints that are left, and nothing else.\n",
        threshold, n_zones, places, directory);
}

static void print_passphrase (JsonObject *promise)
{
    int64_t threshold = tool_number (promise, "key_threshold"), n_zones = tool_number (promise, "zones");
    printf ("If this machine is lost, the passphrase brings its key back, with any %" PRIi64 " of the %" PRIi64
            " %s. Fewer together cannot even guess it.\n",
            threshold, n_zones, n_zones < tool_number (promise, "endpoints") ? "zones" : "endpoints");
}

/* False: there is a code, and nobody has it. */
static bool print_key (const char *directory, JsonObject *promise, const EcfsKeyWay *way, const char *code_file)
{
    if (strcmp (way->kind, "none") == 0)
        puts ("It has no key: whoever runs an endpoint can read what it has.");
    if (strcmp (way->kind, "file") == 0)
        printf ("Its key is the file %s/key: keep a copy elsewhere, as nothing can be read without it. If this machine "
                "is lost, 'ecfs recover --key COPY' needs it.\n",
                directory);
    if (strcmp (way->kind, "split") == 0)
        print_shared_key (directory, promise);
    if (strcmp (way->kind, "passphrase") == 0)
        print_passphrase (promise);
    if (strcmp (way->kind, "alone") == 0)
        puts ("If this machine is lost, the passphrase brings its key back. Who has an endpoint can guess it, as fast "
              "as computers go: take a long one.");
    if (strcmp (way->kind, "recipient") == 0)
        puts ("If this machine is lost, the private half of the given key brings its key back.");
    return strcmp (way->kind, "code") != 0 || tool_print_code (way->secret, code_file);
}

static bool print_made (const char *directory, const EcfsKeyWay *way, const char *code_file)
{
    g_autofree char *text = ecfs_promise (directory, NULL);
    g_autoptr (JsonObject) promise = tool_json_object (text != NULL ? text : "{}");
    if (text != NULL) /* else the archive is made all the same */
        print_promise (directory, promise);
    return print_key (directory, promise, way, code_file);
}

/* The disk or the host that an endpoint is on, as far as its URL tells; g_free (). */
static char *whereabouts (const char *url)
{
    g_autoptr (GUri) uri = g_uri_parse (url, G_URI_FLAGS_NON_DNS, NULL);
    struct stat status;
    if (uri == NULL)
        return g_strdup (url);
    if (g_strcmp0 (g_uri_get_scheme (uri), "file") != 0 && g_uri_get_host (uri) != NULL)
        return g_strdup_printf ("host %s", g_uri_get_host (uri));
    if (stat (g_uri_get_path (uri), &status) != 0)
        return g_strdup (url);
    return g_strdup_printf ("disk %u:%u", major (status.st_dev), minor (status.st_dev));
}

/* Endpoints of one disk or host vanish together, whatever the arithmetic says of them one by one. @splits: they share
 * a key by their zones, which must not become fewer then. */
static void warn_of_one_place (const char *verb, const char *directory, bool splits)
{
    g_autofree char *text = ecfs_list_endpoints (directory, NULL);
    g_autoptr (JsonArray) endpoints = tool_json_array (text != NULL ? text : "[]");
    g_autoptr (GHashTable) zones = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL); /* place → first */
    g_autoptr (GHashTable) shared = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, (GDestroyNotify) g_free);
    for (guint i = 0; i < json_array_get_length (endpoints); i++) {
        JsonObject *endpoint = json_array_get_object_element (endpoints, i);
        g_autofree char *place = whereabouts (tool_text (endpoint, "url"));
        JsonObject *first = g_hash_table_lookup (zones, place);
        if (first == NULL) {
            g_hash_table_insert (zones, g_strdup (place), endpoint);
        } else if (strcmp (tool_text (first, "zone"), tool_text (endpoint, "zone")) != 0) {
            const char *so_far = g_hash_table_lookup (shared, place);
            char *names = g_strdup_printf ("%s, %s", so_far == NULL ? tool_text (first, "name") : so_far,
                                           tool_text (endpoint, "name"));
            g_hash_table_replace (shared, g_strdup (place), names);
        }
    }
    GHashTableIter iter;
    gpointer place, names;
    g_hash_table_iter_init (&iter, shared);
    while (g_hash_table_iter_next (&iter, &place, &names))
        if (splits)
            tool_say (
                verb,
                "warning: the endpoints %s are all on %s, may vanish together, and who is there has the shares of "
                "them all; except to try ecfs, make the archive again with --endpoint NAME=URL,zone=NAME and the "
                "same zone for each of them, so that ecfs counts them as one",
                (char *) names, (char *) place);
        else
            tool_say (
                verb,
                "warning: the endpoints %s are all on %s and may vanish together; give each of them the same zone "
                "(zone = NAME in ecfs.conf, or --endpoint NAME=URL,zone=NAME), so that ecfs counts them as one",
                (char *) names, (char *) place);
}

static void arguments_clear (InitArguments *self)
{
    g_free (self->code);
    g_strfreev (self->endpoints);
    g_strfreev (self->settings);
    g_free (self->key);
    g_free (self->passphrase_file);
    g_free (self->code_file);
}

int verb_init (const Verb *verb, int argc, char **argv)
{
    InitArguments arguments = {0};
    const GOptionEntry options[] = {
        {"code", 'c', 0, G_OPTION_ARG_STRING, &arguments.code, "How files are made redundant (rs:4+2)", "CODE"},
        {"endpoint", 'e', 0, G_OPTION_ARG_FILENAME_ARRAY, &arguments.endpoints, "An endpoint; give it once for each",
         "[NAME=]URL[,KEY=VALUE...]"},
        {"set", 's', 0, G_OPTION_ARG_FILENAME_ARRAY, &arguments.settings,
         "A key of [archive] in ecfs.conf; may be repeated", "KEY=VALUE"},
        {"key", 'k', 0, G_OPTION_ARG_STRING, &arguments.key, "How the archive's key is kept (split); none: it has none",
         "split|passphrase|code|recipient=PUBLICKEY|file|none"},
        {"alone", 0, 0, G_OPTION_ARG_NONE, &arguments.alone, "The passphrase opens it without the endpoints' shares",
         NULL},
        {"passphrase-file", 0, 0, G_OPTION_ARG_FILENAME, &arguments.passphrase_file,
         "A file whose first line is the passphrase", "FILE"},
        {"code-file", 0, 0, G_OPTION_ARG_FILENAME, &arguments.code_file, "Write the code into this new file", "FILE"},
        G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 1, 1);
    GError *error = NULL;
    EcfsKeyWay way = {.secret = NULL};
    if (arguments.endpoints == NULL) {
        tool_say (verb->name, "--endpoint is missing: give it once for each endpoint");
        arguments_clear (&arguments);
        return TOOL_USAGE;
    }
    bool good = make (argv[1], &arguments, &way, &error);
    if (!good && error->code == EDOM && ask_way (verb, error->message, &arguments)) {
        g_clear_error (&error);
        good = make (argv[1], &arguments, &way, &error);
    }
    bool told = good && print_made (argv[1], &way, arguments.code_file);
    bool splits = good && (strcmp (way.kind, "split") == 0 || strcmp (way.kind, "passphrase") == 0);
    tool_forget ((char *) way.secret);
    arguments_clear (&arguments);
    if (!good)
        return fail (verb, error);
    warn_of_one_place (verb->name, argv[1], splits);
    return told ? TOOL_DONE : TOOL_FAILED;
}
