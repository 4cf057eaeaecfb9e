/* The conformance suite over what needs no server; a program of its own has each protocol that does. */
#include "../lab/flawed.h"
#include "conformance.h"
#include "objectstore.h"
#include "program/program.h"

static ConformanceRow *directory_row (const char *scheme, const char *base)
{
    ConformanceRow *row = g_new0 (ConformanceRow, 1);
    row->name = g_strdup (scheme);
    row->url = g_strdup_printf ("%s://%s", scheme, base);
    row->path = g_strdup (base);
    row->is_sure = g_str_equal (scheme, "file");
    row->is_nested = g_str_has_prefix (scheme, "flaw+");
    conformance_add (row);
    return row;
}

static void row_free (ConformanceRow *row)
{
    g_free (row->name);
    g_free (row->url);
    g_free (row->path);
    g_free (row);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    g_autoptr (GError) error = NULL;
    g_autofree char *base = g_dir_make_tmp ("ecfs-conformance-XXXXXX", &error);
    g_assert_no_error (error);
    objectstore_register ();
    flawed_register ();
    ConformanceRow *rows[] = {directory_row ("file", base), directory_row ("objectstore", base),
                              directory_row ("flaw+file", base)};
    int result = g_test_run ();
    for (size_t i = 0; i < G_N_ELEMENTS (rows); i++)
        row_free (rows[i]);
    const char *remove[] = {"rm", "-rf", base, NULL};
    g_spawn_sync (NULL, (char **) remove, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, NULL, NULL);
    return result;
}
