/* Runs the conformance suite for every protocol there is. */
#include "conformance.h"
#include "objectstore.h"

#include <stdlib.h>

static void skip (gconstpointer reason)
{
    g_test_skip (reason);
}

static void add_directory (const char *scheme, const char *base)
{
    ConformanceRow *row = g_new0 (ConformanceRow, 1);
    row->name = g_strdup (scheme);
    row->url = g_strdup_printf ("%s://%s", scheme, base);
    row->path = g_strdup (base);
    conformance_add (row);
}

static void add_from_environment (const char *scheme)
{
    g_autofree char *upper = g_ascii_strup (scheme, -1);
    g_autofree char *url_key = g_strdup_printf ("ECFS_TEST_%s_URL", upper);
    g_autofree char *options_key = g_strdup_printf ("ECFS_TEST_%s_OPTIONS", upper);
    g_autofree char *root_key = g_strdup_printf ("ECFS_TEST_%s_ROOT", upper);
    if (g_getenv (url_key) == NULL) {
        g_autofree char *path = g_strdup_printf ("/conformance/%s", scheme);
        g_test_add_data_func_full (path, g_strdup_printf ("%s is not set: no server to test against", url_key), skip,
                                   g_free);
        return;
    }
    ConformanceRow *row = g_new0 (ConformanceRow, 1);
    row->name = g_strdup (scheme);
    row->url = g_strdup (g_getenv (url_key));
    row->options = g_strdup (g_getenv (options_key));
    row->path = g_strdup (g_getenv (root_key));
    conformance_add (row);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_autoptr (GError) error = NULL;
    g_autofree char *base = g_dir_make_tmp ("ecfs-conformance-XXXXXX", &error);
    g_assert_no_error (error);
    objectstore_register ();
    add_directory ("file", base);
    add_directory ("objectstore", base);
    add_from_environment ("sftp");
    int result = g_test_run ();
    const char *remove[] = {"rm", "-rf", base, NULL};
    g_spawn_sync (NULL, (char **) remove, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, NULL, NULL);
    return result;
}
