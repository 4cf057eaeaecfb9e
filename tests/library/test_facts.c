/* What the library tells without asking an endpoint: by the shared library and its header alone. */
#include "library_fixture.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <json-glib/json-glib.h>
#include <string.h>

static JsonNode *parse (char *text)
{
    g_autoptr (GError) error = NULL;
    g_assert_nonnull (text);
    JsonNode *node = json_from_string (text, &error);
    g_assert_no_error (error);
    g_free (text);
    return node;
}

static int64_t number_of (JsonNode *node, const char *member)
{
    g_assert_true (json_object_has_member (json_node_get_object (node), member));
    return json_object_get_int_member (json_node_get_object (node), member);
}

/* A file of @size bytes. */
static void store (const Fixture *fixture, const char *path, size_t size)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *bytes = g_malloc0 (size);
    g_autoptr (Ecfs) ecfs = open_archive (fixture, ECFS_OPEN_WRITE);
    EcfsFile *file = ecfs_file_open (ecfs, path, ECFS_FILE_WRITE, NULL, &error);
    g_assert_no_error (error);
    g_assert_true (ecfs_file_write (file, bytes, size, NULL));
    g_assert_true (ecfs_file_close (file, NULL, NULL));
}

static void test_features (void)
{
    g_autoptr (JsonNode) node = parse (ecfs_features ());
    JsonObject *facts = json_node_get_object (node);
    JsonArray *codes = json_object_get_array_member (facts, "codes");
    bool has_rs = false;
    for (guint i = 0; i < json_array_get_length (codes); i++)
        has_rs |= g_str_equal (json_array_get_string_element (codes, i), "rs");
    g_assert_true (has_rs);
    g_assert_cmpuint (json_array_get_length (json_object_get_array_member (facts, "schemes")), >=, 2);
    g_assert_true (json_object_has_member (json_object_get_object_member (facts, "libraries"), "SQLite"));
}

/* Where any four of six serve, three or more must be away: 20 q^3 p^3 + 15 q^4 p^2 + 6 q^5 p + q^6. */
static void test_plan (void)
{
    const double usual = 0.9;
    g_autoptr (GError) error = NULL;
    g_autoptr (JsonNode) node = parse (ecfs_plan ("rs:4+2", &usual, 1, &error));
    g_assert_no_error (error);
    JsonObject *facts = json_node_get_object (node);
    g_assert_cmpint (number_of (node, "tolerance"), ==, 2);
    g_assert_true (json_object_get_boolean_member (facts, "exact"));
    g_assert_cmpfloat_with_epsilon (json_object_get_double_member (facts, "failure"), 0.01585, 1e-6);
}

static void test_plan_refuses (void)
{
    const double usual = 0.9, wrong = 1.5, three[] = {0.9, 0.9, 0.9};
    GError *error = NULL;
    g_assert_null (ecfs_plan ("rs:0+2", &usual, 1, &error));
    g_assert_cmpint (code_of (g_steal_pointer (&error)), ==, EINVAL);
    g_assert_null (ecfs_plan ("rs:4+2", &wrong, 1, &error));
    g_assert_cmpint (code_of (g_steal_pointer (&error)), ==, EINVAL);
    g_assert_null (ecfs_plan ("rs:4+2", three, 3, &error));
    g_assert_cmpint (code_of (g_steal_pointer (&error)), ==, EINVAL);
    g_assert_null (ecfs_plan ("rs:4+2", three, 0, &error));
    g_assert_cmpint (code_of (g_steal_pointer (&error)), ==, EINVAL);
}

static void test_words (void)
{
    uint64_t bytes;
    int64_t us;
    g_autoptr (GError) error = NULL;
    g_autofree char *clean = ecfs_printable ("a\033[2Jb\nc");
    g_assert_cmpstr (clean, ==, "a?[2Jb?c");
    g_assert_true (ecfs_parse_size ("2M", &bytes) && bytes == 2 << 20);
    g_assert_false (ecfs_parse_size ("2 apples", &bytes));
    g_assert_true (ecfs_parse_duration ("500ms", &us) && us == 500000);
    g_autofree char *name = ecfs_parse_endpoint ("one=file:///srv/one,zone=here", &error);
    g_assert_no_error (error);
    g_assert_cmpstr (name, ==, "one");
    g_assert_null (ecfs_parse_endpoint ("one=nothing", &error));
    g_assert_cmpint (code_of (g_steal_pointer (&error)), ==, EINVAL);
}

static void test_paths_outside (Fixture *fixture, gconstpointer code)
{
    char *directory = NULL;
    g_assert_null (ecfs_mounted_path (fixture->directory, &directory));
    g_assert_null (ecfs_mounted_path ("/nothing/of/that/name", &directory));
    g_assert_null (directory);
}

static void test_promise (Fixture *fixture, gconstpointer code)
{
    g_autoptr (GError) error = NULL;
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        hide_endpoint (fixture, i, true); /* none is asked */
    g_autoptr (JsonNode) promise = parse (ecfs_promise (fixture->directory, &error));
    g_assert_no_error (error);
    g_assert_cmpint (number_of (promise, "k"), ==, 4);
    g_assert_cmpint (number_of (promise, "endpoints"), ==, N_ENDPOINTS);
    g_assert_cmpint (number_of (promise, "zones"), ==, N_ENDPOINTS);
    g_assert_cmpint (number_of (promise, "endpoints_may_vanish"), ==, 2);
    g_assert_cmpint (number_of (promise, "stripes_without_place"), ==, 0);
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        hide_endpoint (fixture, i, false);
}

static bool lists (const Fixture *fixture, const char *name)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (JsonNode) node = parse (ecfs_list_endpoints (fixture->directory, &error));
    JsonArray *endpoints = json_node_get_array (node);
    bool found = false;
    for (guint i = 0; i < json_array_get_length (endpoints); i++)
        found |=
            g_str_equal (json_object_get_string_member (json_array_get_object_element (endpoints, i), "name"), name);
    return found;
}

static void test_endpoints (Fixture *fixture, gconstpointer code)
{
    g_autoptr (GError) error = NULL;
    bool removed = true;
    g_autofree char *left = NULL;
    g_assert_true (lists (fixture, "e5") && !lists (fixture, "e6"));
    g_assert_true (ecfs_endpoint_was_removed (fixture->directory, "e5", &removed, &error) && !removed);
    g_autoptr (Ecfs) ecfs = open_archive (fixture, ECFS_OPEN_WRITE);
    g_assert_true (ecfs_set_endpoint_state (ecfs, "e5", "draining", &error));
    g_autoptr (JsonNode) promise = parse (ecfs_promise (fixture->directory, &error));
    g_assert_cmpint (number_of (promise, "endpoints"), ==, N_ENDPOINTS - 1);
    g_assert_cmpint (number_of (promise, "zones"), ==, N_ENDPOINTS - 1);
    bool done = ecfs_remove_endpoint (ecfs, "e5", &left, &error);
    g_assert_no_error (error);
    g_assert_true (done && !lists (fixture, "e5"));
    g_assert_true (ecfs_endpoint_was_removed (fixture->directory, "e5", &removed, &error) && removed);
}

static void test_backlog (Fixture *fixture, gconstpointer code)
{
    g_autoptr (GError) error = NULL;
    hide_endpoint (fixture, 0, true);
    store (fixture, "/file", 1 << 20); /* more than copies are made of */
    g_autoptr (JsonNode) lacking = parse (ecfs_backlog (fixture->directory, &error));
    g_assert_no_error (error);
    g_assert_cmpint (number_of (lacking, "staged"), ==, 0);
    g_assert_cmpint (number_of (lacking, "not_full"), ==, 1);
    hide_endpoint (fixture, 0, false);
}

static void test_diagnosis (Fixture *fixture, gconstpointer code)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *config = g_build_filename (fixture->directory, "ecfs.conf", NULL);
    g_assert_cmpint (g_unlink (config), ==, 0);
    g_assert_null (ecfs_open (fixture->directory, 0, &error));
    g_autoptr (JsonNode) told = parse (ecfs_diagnose (fixture->directory, error));
    JsonObject *status = json_node_get_object (told);
    g_assert_cmpstr (json_object_get_string_member (status, "verdict"), ==, "broken");
    g_assert_nonnull (strstr (json_object_get_string_member (status, "action"), "ecfs recover"));
    g_autoptr (JsonNode) odd = parse (ecfs_diagnose ("/nothing/\377", error)); /* is JSON whatever the bytes are */
    g_assert_true (JSON_NODE_HOLDS_OBJECT (odd));
    g_clear_error (&error);
    g_assert_null (ecfs_promise (fixture->directory, &error));
    g_assert_nonnull (error);
    g_clear_error (&error);
    g_assert_null (ecfs_backlog (fixture->directory, &error));
    g_assert_nonnull (error);
    g_clear_error (&error);
    g_assert_null (ecfs_list_endpoints (fixture->directory, &error));
    g_assert_nonnull (error);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/library/features/name-codes-and-schemes", test_features);
    g_test_add_func ("/library/plan/is-the-binomial-sum", test_plan);
    g_test_add_func ("/library/plan/refuses-what-makes-no-sense", test_plan_refuses);
    g_test_add_func ("/library/words/are-parsed-and-cleaned", test_words);
    g_test_add ("/library/mounted-path/is-null-elsewhere", Fixture, "rs:4+2", set_up, test_paths_outside, tear_down);
    g_test_add ("/library/promise/is-told-without-endpoints", Fixture, "rs:4+2", set_up, test_promise, tear_down);
    g_test_add ("/library/endpoints/come-and-go", Fixture, "rs:2+1", set_up, test_endpoints, tear_down);
    g_test_add ("/library/backlog/counts-what-is-not-stored", Fixture, "rs:4+2", set_up, test_backlog, tear_down);
    g_test_add ("/library/diagnosis/says-what-to-do", Fixture, "rs:4+2", set_up, test_diagnosis, tear_down);
    return g_test_run ();
}
