#include "plan.h"
#include "tool.h"

#include "archive/archive.h"
#include "codec/codec.h"
#include "object/placement.h"
#include "verbs/init.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

typedef struct InitArguments {
    char *code;
    char **endpoints;
    char **settings;
} InitArguments;

/* How the stripes of one file would lie: how many endpoints, and how many zones, may vanish. */
typedef struct Protection {
    unsigned n_zones;
    int endpoints, zones;
} Protection;

static unsigned number_zones (const EcfsConfig *config, EcfsPlace *places)
{
    unsigned n_zones = 0;
    for (unsigned i = 0; i < config->endpoints->len; i++) {
        const EcfsConfigEndpoint *endpoint = g_ptr_array_index (config->endpoints, i);
        unsigned first = 0;
        while (strcmp (((const EcfsConfigEndpoint *) g_ptr_array_index (config->endpoints, first))->zone,
                       endpoint->zone) != 0)
            first++;
        places[i] = (EcfsPlace){.zone = first, .usable = true};
        n_zones += first == i;
    }
    return n_zones;
}

static Protection protection_of (const EcfsConfig *config, const EcfsCodec *codec)
{
    unsigned n = ecfs_codec_n (codec), n_places = config->endpoints->len;
    g_autofree EcfsPlace *places = g_new0 (EcfsPlace, n_places);
    size_t position[ECFS_CODEC_MAX_N], zone[ECFS_CODEC_MAX_N] = {0};
    bool wanted[ECFS_CODEC_MAX_N], present[ECFS_CODEC_MAX_N];
    Protection protection = {.n_zones = number_zones (config, places)};
    for (unsigned i = 0; i < n; i++)
        wanted[i] = true;
    (void) ecfs_place (places, n_places, wanted, n, config->allow_double ? n : 1, 0, position); /* seen below */
    for (unsigned i = 0; i < n; i++) {
        present[i] = position[i] != SIZE_MAX;
        zone[i] = present[i] ? places[position[i]].zone : 0;
    }
    protection.endpoints = ecfs_holders_guarantee (codec, present, position);
    protection.zones = ecfs_holders_guarantee (codec, present, zone);
    return protection;
}

static void print_protection (const char *directory, const EcfsConfig *config)
{
    g_autoptr (EcfsCodec) codec = ecfs_codec_new (config->code, NULL);
    if (codec == NULL)
        return; /* it was there a moment ago, and the archive is made */
    Protection protection = protection_of (config, codec);
    unsigned n = ecfs_codec_n (codec), n_endpoints = config->endpoints->len;
    printf (
        "%s: %s over %u endpoints: any %d of them may vanish and every file stays readable. A byte takes %.2f bytes.\n",
        directory, config->code, n_endpoints, protection.endpoints, (double) n / ecfs_codec_k (codec));
    if (protection.n_zones < n_endpoints)
        printf ("They lie in %u zones, of which any %d may vanish.%s\n", protection.n_zones, protection.zones,
                protection.zones == 0 ? " No zone may: spread them over more zones." : "");
    g_autofree char *sentence = n_endpoints >= n ? plan_sentence (config->code) : NULL;
    if (sentence != NULL)
        puts (sentence);
}

/* The disk or the host that an endpoint is on, as far as its URL tells; g_free (). */
static char *whereabouts (const EcfsConfigEndpoint *endpoint)
{
    g_autoptr (GUri) uri = g_uri_parse (endpoint->spec->url, G_URI_FLAGS_NON_DNS, NULL);
    struct stat status;
    if (uri == NULL)
        return g_strdup (endpoint->spec->url);
    if (strcmp (g_uri_get_scheme (uri), "file") != 0)
        return g_strdup_printf ("host %s", g_uri_get_host (uri));
    if (stat (g_uri_get_path (uri), &status) != 0)
        return g_strdup (endpoint->spec->url);
    return g_strdup_printf ("disk %u:%u", major (status.st_dev), minor (status.st_dev));
}

/* Endpoints of one disk or host vanish together, whatever the arithmetic says of them one by one. */
static void warn_of_one_place (const char *verb, const EcfsConfig *config)
{
    g_autoptr (GHashTable) zones = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL); /* place → zone */
    g_autoptr (GHashTable) shared = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, (GDestroyNotify) g_free);
    for (guint i = 0; i < config->endpoints->len; i++) {
        const EcfsConfigEndpoint *endpoint = g_ptr_array_index (config->endpoints, i);
        g_autofree char *place = whereabouts (endpoint);
        const EcfsConfigEndpoint *first = g_hash_table_lookup (zones, place);
        if (first == NULL) {
            g_hash_table_insert (zones, g_strdup (place), (gpointer) endpoint);
        } else if (strcmp (first->zone, endpoint->zone) != 0) {
            const char *so_far = g_hash_table_lookup (shared, place);
            char *names = g_strdup_printf ("%s, %s", so_far == NULL ? first->spec->name : so_far, endpoint->spec->name);
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
        G_OPTION_ENTRY_NULL};
    (void) tool_parse (verb, options, argc, argv, 1, 1);
    if (arguments.endpoints == NULL) {
        tool_say (verb->name, "--endpoint is missing: give it once for each endpoint");
        return TOOL_USAGE;
    }
    GError *error = NULL;
    g_autoptr (EcfsConfig) config = ecfs_init_config (arguments.code, (const char *const *) arguments.endpoints,
                                                      (const char *const *) arguments.settings, &error);
    g_free (arguments.code);
    g_strfreev (arguments.endpoints);
    g_strfreev (arguments.settings);
    if (config == NULL)
        return tool_fail (verb->name, error, TOOL_USAGE);
    if (!ecfs_archive_init (argv[1], config, &error))
        return tool_fail (verb->name, error, TOOL_FAILED);
    print_protection (argv[1], config);
    warn_of_one_place (verb->name, config);
    return TOOL_DONE;
}
