#include "plan.h"
#include "tool_secret.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

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
    const char *kind = arguments->key != NULL ? arguments->key : "none";
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

static void print_promise (const char *directory)
{
    g_autofree char *text = ecfs_promise (directory, NULL);
    if (text == NULL)
        return; /* the archive is made all the same */
    g_autoptr (JsonObject) promise = tool_json_object (text);
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

static void print_key (const char *directory, const EcfsKeyWay *way, const char *code_file)
{
    if (strcmp (way->kind, "file") == 0)
        printf ("Its key is the file %s/key: keep a copy elsewhere, as nothing can be read without it.\n", directory);
    if (strcmp (way->kind, "split") == 0)
        puts ("Its key is shared by the endpoints: as many as may vanish cannot read anything together, and one more "
              "bring it back if this machine is lost.");
    if (strcmp (way->kind, "passphrase") == 0)
        puts ("If this machine is lost, the passphrase brings its key back, with one endpoint more than may vanish: as "
              "many as may vanish cannot even guess it.");
    if (strcmp (way->kind, "alone") == 0)
        puts ("If this machine is lost, the passphrase brings its key back. Who has an endpoint can guess it, as fast "
              "as computers go: take a long one.");
    if (strcmp (way->kind, "recipient") == 0)
        puts ("If this machine is lost, the private half of the given key brings its key back.");
    if (strcmp (way->kind, "code") == 0)
        tool_print_code (way->secret, code_file);
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

/* Endpoints of one disk or host vanish together, whatever the arithmetic says of them one by one. */
static void warn_of_one_place (const char *verb, const char *directory)
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
        tool_say (verb,
                  "warning: the endpoints %s are all on %s and may vanish together; give each of them the same zone "
                  "(zone = NAME in ecfs.conf, or --endpoint NAME=URL,zone=NAME), so that ecfs counts them as one",
                  (char *) names, (char *) place);
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
        {"key", 'k', 0, G_OPTION_ARG_STRING, &arguments.key, "How the archive's key is kept (none: it has none)",
         "none|file|split|passphrase|code|recipient=PUBLICKEY"},
        {"alone", 0, 0, G_OPTION_ARG_NONE, &arguments.alone, "The passphrase opens it without the endpoints' shares",
         NULL},
        {"passphrase-file", 0, 0, G_OPTION_ARG_FILENAME, &arguments.passphrase_file,
         "A file whose first line is the passphrase", "FILE"},
        {"code-file", 0, 0, G_OPTION_ARG_FILENAME, &arguments.code_file, "Write the code into this new file", "FILE"},
        G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 1, 1);
    GError *error = NULL;
    EcfsKeyWay way = {.secret = NULL};
    bool named = arguments.endpoints != NULL;
    bool good = named && choose_way (&arguments, &way, &error) &&
                ecfs_init_with_key (argv[1], arguments.code, (const char *const *) arguments.endpoints,
                                    (const char *const *) arguments.settings, &way, &error);
    if (!good && arguments.code_file != NULL && way.secret != NULL)
        (void) remove (arguments.code_file); /* it opens nothing */
    g_free (arguments.code);
    g_strfreev (arguments.endpoints);
    g_strfreev (arguments.settings);
    if (!named) {
        tool_say (verb->name, "--endpoint is missing: give it once for each endpoint");
        return TOOL_USAGE;
    }
    if (good) {
        print_promise (argv[1]);
        print_key (argv[1], &way, arguments.code_file);
    }
    tool_forget ((char *) way.secret);
    g_free (arguments.key);
    g_free (arguments.passphrase_file);
    g_free (arguments.code_file);
    if (!good)
        return tool_fail (verb->name, error, tool_status (error->code));
    warn_of_one_place (verb->name, argv[1]);
    return TOOL_DONE;
}
