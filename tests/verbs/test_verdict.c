/* What `ecfs status` advises. */
#include "archive/catalog_place.h"
#include "verbs/status.h"

#include <glib/gstdio.h>
#include <json-glib/json-glib.h>
#include <string.h>

/* The command for a catalog that takes no changes; g_free (). */
static char *action_of (const char *directory)
{
    JsonObject *status = json_object_new ();
    json_object_set_string_member (status, "directory", directory);
    json_object_set_string_member (status, "catalog_error", "no change is taken");
    json_object_set_array_member (status, "endpoints", json_array_new ());
    ecfs_status_judge (status);
    g_assert_cmpstr (json_object_get_string_member (status, "reason"), ==, "no change is taken");
    char *action = g_strdup (json_object_get_string_member (status, "action"));
    json_object_unref (status);
    return action;
}

static void test_catalog_that_takes_no_changes (void)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *directory = g_dir_make_tmp ("ecfs-verdict-XXXXXX", &error);
    g_assert_no_error (error);
    g_autofree char *place = g_build_filename (directory, ECFS_CATALOG_PLACE_NAME, NULL);
    g_autofree char *of_file = action_of (directory);
    g_assert_true (g_str_has_prefix (of_file, "df -h "));
    g_assert_true (g_file_set_contents (place, "", 0, &error));
    g_autofree char *of_database = action_of (directory); /* whose disk is another machine's */
    g_assert_true (g_str_has_prefix (of_database, "ecfs status "));
    g_assert_cmpint (g_unlink (place), ==, 0);
    g_assert_cmpint (g_rmdir (directory), ==, 0);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/verdict/disk-is-not-blamed-for-a-database", test_catalog_that_takes_no_changes);
    return g_test_run ();
}
