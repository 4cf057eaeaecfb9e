/* The conformance suite over what needs no server; a program of its own has each protocol that does. */
#include "../lab/flawed.h"
#include "conformance.h"
#include "objectstore.h"

static void add_directory (const char *scheme, const char *base)
{
    conformance_add ((ConformanceRow){.name = g_strdup (scheme),
                                      .url = g_strdup_printf ("%s://%s", scheme, base),
                                      .path = g_strdup (base),
                                      .is_sure = g_str_equal (scheme, "file"),
                                      .logs = !g_str_equal (scheme, "objectstore"),
                                      .is_nested = g_str_has_prefix (scheme, "flaw+")});
}

int main (int argc, char **argv)
{
    conformance_init (&argc, &argv);
    g_autoptr (GError) error = NULL;
    g_autofree char *base = g_dir_make_tmp ("ecfs-conformance-XXXXXX", &error);
    g_assert_no_error (error);
    objectstore_register ();
    flawed_register ();
    add_directory ("file", base);
    add_directory ("objectstore", base);
    add_directory ("flaw+file", base);
    int result = conformance_run (NULL);
    const char *remove[] = {"rm", "-rf", base, NULL};
    g_spawn_sync (NULL, (char **) remove, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, NULL, NULL);
    return result;
}
