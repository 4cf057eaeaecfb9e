#include "archive/config.h"

#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

#define ENDPOINTS                                                                                                      \
    "[endpoint a]\nurl = file:///srv/a\n[endpoint b]\nurl = file:///srv/b\nzone = attic\nconnections = 3\n"

static void refused (const char *text, const char *const *expected)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsConfig) config = ecfs_config_parse (text, "ecfs.conf", &error);
    g_assert_null (config);
    g_assert_error (error, ECFS_ERROR, EINVAL);
    g_auto (GStrv) lines = g_strsplit (error->message, "\n", -1);
    for (unsigned i = 0; expected[i] != NULL; i++) {
        g_assert_cmpuint (g_strv_length (lines), >, i);
        if (!g_str_has_prefix (lines[i], expected[i]))
            g_error ("\"%s\" does not begin with \"%s\"", lines[i], expected[i]);
    }
    g_assert_cmpuint (g_strv_length (lines), ==, g_strv_length ((char **) expected));
}

#define REFUSED(text, ...) refused (text, (const char *const[]){__VA_ARGS__, NULL})

static EcfsConfig *accepted (const char *text)
{
    g_autoptr (GError) error = NULL;
    EcfsConfig *config = ecfs_config_parse (text, "ecfs.conf", &error);
    g_assert_no_error (error);
    return config;
}

static void test_defaults (void)
{
    g_autoptr (EcfsConfig) config = ecfs_config_new ();
    g_assert_cmpstr (config->code, ==, "rs:4+2");
    g_assert_cmpuint (config->segment_size, ==, 2 << 20);
    g_assert_false (config->commit_async);
    g_assert_cmpuint (config->write_quorum, ==, 0);
    g_assert_cmpuint (config->small_file, ==, 16384);
    g_assert_false (config->rewrite_deny);
    g_assert_cmpuint (config->rewrite_max, ==, 64 << 20);
    g_assert_cmpuint (config->transfer_memory, ==, 256 << 20);
    g_assert_cmpuint (config->staging_max, ==, 0);
    g_assert_cmpuint (config->staging_reserve, ==, 256 << 20);
    g_assert_false (config->allow_double);
    g_assert_cmpint (config->deletion_grace_us, ==, 300000000);
    g_assert_cmpint (config->close_timeout_us, ==, 600000000);
    g_assert_cmpuint (config->endpoints->len, ==, 0);
    ecfs_config_free (NULL);
    ecfs_config_endpoint_free (NULL);
}

static void test_reads (void)
{
    g_autoptr (EcfsConfig) config = accepted ("; old\n# new\n\n [archive] \r\ncode=copies:3 # three\n"
                                              "commit = async\nwrite_quorum = 2\nrewrite = deny\nallow_double = yes\n"
                                              "close_timeout = 30s\nsmall_file = 0\n" ENDPOINTS);
    g_assert_cmpstr (config->code, ==, "copies:3");
    g_assert_true (config->commit_async && config->rewrite_deny && config->allow_double);
    g_autoptr (EcfsConfig) temporary = accepted ("[archive]\nallow_double = temporary\n" ENDPOINTS);
    g_assert_cmpint (config->allow_double, ==, ECFS_DOUBLE_YES);
    g_assert_cmpint (temporary->allow_double, ==, ECFS_DOUBLE_TEMPORARY);
    g_autofree char *again = ecfs_config_format (temporary);
    g_assert_nonnull (strstr (again, "\nallow_double = temporary\n"));
    g_assert_cmpuint (config->write_quorum, ==, 2);
    g_assert_cmpint (config->close_timeout_us, ==, 30000000);
    g_assert_cmpuint (config->endpoints->len, ==, 2);
    const EcfsConfigEndpoint *a = g_ptr_array_index (config->endpoints, 0);
    const EcfsConfigEndpoint *b = g_ptr_array_index (config->endpoints, 1);
    g_assert_cmpstr (a->spec->name, ==, "a");
    g_assert_cmpstr (a->spec->url, ==, "file:///srv/a");
    g_assert_cmpstr (a->zone, ==, "a");
    g_assert_cmpstr (b->zone, ==, "attic");
    g_assert_cmpstr (g_hash_table_lookup (b->spec->options, "connections"), ==, "3");
    g_assert_null (g_hash_table_lookup (b->spec->options, "zone"));
}

static void test_unknown (void)
{
    REFUSED ("[archive]\ncode = rs:4+2\nsegmentsize = 2M\n", "ecfs.conf:3: unknown key \"segmentsize\"");
    REFUSED ("\n[archives]\ncode = 1\n", "ecfs.conf:2: unknown section [archives]");
    REFUSED ("code = rs:4+2\n", "ecfs.conf:1: key \"code\" stands before");
    REFUSED ("[archive]\nnonsense\n", "ecfs.conf:2: \"nonsense\" is neither");
    REFUSED ("[archive\n", "ecfs.conf:1: \"[archive\" lacks");
    REFUSED ("[endpoint a]\nurl = file:///srv/a\ncolour = red\n",
             "ecfs.conf:3: endpoint a: unknown key \"colour\"; this URL takes zone, ");
    REFUSED ("[endpoint a]\nurl = gopher://srv/a\n", "ecfs.conf:1: endpoint a: \"gopher://srv/a\" is not a URL");
    REFUSED ("[archive]\ncode = \xff\n", "ecfs.conf:2: is not UTF-8");
}

static void test_twice (void)
{
    REFUSED ("[archive]\ncommit = sync\n\ncommit = sync\n",
             "ecfs.conf:4: key \"commit\" is given twice, first in line 2");
    REFUSED ("[archive]\n[archive]\n", "ecfs.conf:2: section \"archive\" is given twice, first in line 1");
    REFUSED (ENDPOINTS "[endpoint a]\nurl = file:///srv/c\n", "ecfs.conf:7: section \"endpoint a\" is given twice");
    REFUSED (ENDPOINTS "[endpoint  a]\nurl = file:///srv/c\n", "ecfs.conf:7: endpoint a: there are two with this name");
    REFUSED (ENDPOINTS "[endpoint c]\nurl = file:///srv/a/\n",
             "ecfs.conf:7: endpoint c is the same place as endpoint a");
    REFUSED ("[endpoint a]\nurl = file:///a\nurl = file:///b\n", "ecfs.conf:3: key \"url\" is given twice");
}

static void test_ranges (void)
{
    static const char *const good[] = {
        "segment_size = 64K", "segment_size = 64M",    "small_file = 0",        "small_file = 16M",
        "write_quorum = 4",   "write_quorum = 6",      "deletion_grace = 0",    "close_timeout = 1s",
        "rewrite_max = 1T",   "hedge_budget = 100%",   "read_policy = T=1,R=1", "code = rs:8+3",
        "staging_max = 10G",  "transfer_memory = 16M", "repair_rate = 20M",     "repair = off",
        "object_max = 16K",   "object_max = 16G",      "rs_provider = isal"};
    static const char *const bad[] = {
        "segment_size = 63K",    "segment_size = 65M", "small_file = 17M",   "write_quorum = 0",
        "write_quorum = 257",    "close_timeout = 0",  "close_timeout = 2d", "deletion_grace = 366d",
        "commit = maybe",        "code = rs:0+2",      "code = best",        "rewrite_max = large",
        "transfer_memory = 15M", "allow_double =",     "allow_double = 1",   "hedge_budget = 5",
        "hedge_budget = 101%",   "read_policy = P=3",  "read_policy = fast", "write_quorum = 3",
        "write_quorum = 7",      "segment_size = -1",  "object_max = 16383", "object_max = 17G",
        "rs_provider = jerasure"};
    for (size_t i = 0; i < G_N_ELEMENTS (good); i++) {
        g_autofree char *text = g_strdup_printf ("[archive]\n%s\n", good[i]);
        ecfs_config_free (accepted (text));
    }
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++) {
        g_autofree char *text = g_strdup_printf ("[archive]\n%s\n", bad[i]);
        REFUSED (text, "ecfs.conf:2: ");
    }
}

static void test_all_at_once (void)
{
    REFUSED ("[archive]\ncommit = maybe\nrewrit = deny\n[endpoint a]\nzone = x y\nurl = file:///a\n[endpoint b]\n"
             "url = file:///b\nconnection = 2\npasword_file = x\n[endpoint c]\n",
             "ecfs.conf:2: commit: \"maybe\" is not sync or async", "ecfs.conf:3: unknown key \"rewrit\"",
             "ecfs.conf:4: endpoint a: zone \"x y\"", "ecfs.conf:9: endpoint b: unknown key \"connection\"",
             "ecfs.conf:10: endpoint b: unknown key \"pasword_file\"", "ecfs.conf:11: endpoint c has no url");
}

static void test_bounded (void)
{
    g_autoptr (GString) text = g_string_new ("[archive]\n");
    for (unsigned i = 0; i < 1000; i++)
        g_string_append_printf (text, "key%u = 1\n", i);
    g_autoptr (GError) error = NULL;
    g_assert_null (ecfs_config_parse (text->str, "ecfs.conf", &error));
    g_assert_error (error, ECFS_ERROR, EINVAL);
    g_assert_true (g_str_has_suffix (error->message, "and 980 more"));
}

static void test_round_trip (void)
{
    g_autoptr (EcfsConfig) config = ecfs_config_new ();
    static const char *const values[][2] = {{"code", "rs:8+3"},
#ifdef ECFS_WITH_LIBERASURECODE
                                            {"rs_provider", "liberasurecode"},
#endif
                                            {"segment_size", "65537"},
                                            {"commit", "async"},
                                            {"write_quorum", "9"},
                                            {"small_file", "0"},
                                            {"rewrite", "deny"},
                                            {"rewrite_max", "3T"},
                                            {"transfer_memory", "1G"},
                                            {"staging_max", "17"},
                                            {"staging_reserve", "1K"},
                                            {"allow_double", "yes"},
                                            {"repair", "off"},
                                            {"repair_rate", "20M"},
                                            {"deletion_grace", "1500ms"},
                                            {"close_timeout", "1d"},
                                            {"hedge_budget", "0%"},
                                            {"read_policy", "T=20,R=2,P=6,fastest1,data-first"}};
    for (size_t i = 0; i < G_N_ELEMENTS (values); i++)
        g_assert_true (ecfs_config_set (config, values[i][0], values[i][1], NULL));
    for (unsigned i = 0; i < 11; i++) {
        g_autofree char *text = g_strdup_printf ("e%u=file:///srv/%%20 %u#x,zone=z%u,connections=2", i, i, i % 3);
        g_autoptr (GError) error = NULL;
        EcfsConfigEndpoint *endpoint = ecfs_config_endpoint_new (ecfs_endpoint_spec_parse (text, &error), &error);
        g_assert_no_error (error);
        g_assert_true (ecfs_config_add_endpoint (config, endpoint, &error));
    }
    g_autofree char *first = ecfs_config_format (config);
    g_autoptr (EcfsConfig) again = accepted (first);
    g_autofree char *second = ecfs_config_format (again);
    g_assert_cmpstr (first, ==, second);
    g_assert_cmpuint (again->segment_size, ==, 65537);
    g_assert_cmpint (again->deletion_grace_us, ==, 1500000);
    g_assert_cmpint (again->close_timeout_us, ==, 86400000000);
    g_assert_cmpuint (again->read_policy.hedge_percent, ==, 0);
    g_assert_cmpuint (again->read_policy.transfers, ==, 20);
    g_assert_cmpuint (again->endpoints->len, ==, 11);
    const EcfsConfigEndpoint *last = g_ptr_array_index (again->endpoints, 10);
    g_assert_cmpstr (last->spec->url, ==, "file:///srv/%20 10#x");
    g_assert_cmpstr (last->zone, ==, "z1");
    g_assert_cmpstr (g_hash_table_lookup (last->spec->options, "connections"), ==, "2");
}

static void test_appended (void)
{
    g_autoptr (EcfsConfig) config = accepted (ENDPOINTS);
    g_autofree char *section = ecfs_config_format_endpoint (g_ptr_array_index (config->endpoints, 1));
    g_assert_cmpstr (section, ==, "\n[endpoint b]\nurl = file:///srv/b\nzone = attic\nconnections = 3\n");
}

static void edited (const char *text, const char *section, const char *key, const char *value, const char *expected)
{
    g_autofree char *result = ecfs_config_edit (text, section, key, value);
    g_assert_cmpstr (result, ==, expected);
}

/* Whatever people put there stays: comments, order, what is odd. */
static void test_edits (void)
{
    edited ("[archive]\ncode = rs:4+2\n", "archive", "code", "rs:8+3", "[archive]\ncode = rs:8+3\n");
    edited ("# ours\n[ archive ] # it\n  segment_size=1M\t # small\n\n#end", "archive", "segment_size", "4M",
            "# ours\n[ archive ] # it\n  segment_size=4M\t # small\n\n#end");
    edited ("[archive]\ncode = x\n\n# of a\n[endpoint a]\nurl = file:///a#b\n# more\n\n[endpoint b]\nurl = file:///b",
            "endpoint a", "connections", "4",
            "[archive]\ncode = x\n\n# of a\n[endpoint a]\nurl = file:///a#b\nconnections = 4\n# more\n\n[endpoint b]\n"
            "url = file:///b");
    edited ("[endpoint   a]\n#connections = 2\n;connections = 3\nxconnections = 9\n", "endpoint a", "connections", "4",
            "[endpoint   a]\n#connections = 2\n;connections = 3\nxconnections = 9\nconnections = 4\n");
    edited ("[endpoint a]\r\nurl = file:///a\r\n", "endpoint a", "zone", "z",
            "[endpoint a]\r\nurl = file:///a\r\nzone = z\r\n");
    edited ("[endpoint a]\r\nzone =\r\n", "endpoint a", "zone", "z", "[endpoint a]\r\nzone =z\r\n");
    edited ("[endpoint a]\nzone = # none\n", "endpoint a", "zone", "z", "[endpoint a]\nzone =z # none\n");
    edited ("[archive]", "archive", "code", "rs:4+2", "[archive]\ncode = rs:4+2");
    edited ("[endpoint a]\nurl = x\n", "endpoint b", "zone", "z", NULL);
    edited ("", "archive", "code", "rs:4+2", NULL);
}

/* A section goes with its keys, and what people wrote around it stays. */
static void test_removes (void)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *directory = g_dir_make_tmp ("ecfs-config-XXXXXX", &error), *text = NULL;
    g_autofree char *path = g_build_filename (directory, "ecfs.conf", NULL);
    g_autofree char *previous = g_build_filename (directory, "ecfs.conf.previous", NULL);
    static const char before[] = "[archive]\ncode = copies:2\n\n# of a\n[endpoint   a]\nurl = file:///a\n# odd\n"
                                 "zone = x\n\n# of b = so\n[endpoint b]\nurl = file:///b\n";
    g_assert_true (g_file_set_contents (path, before, -1, &error));
    g_assert_true (ecfs_config_remove (directory, "endpoint a", &error));
    g_assert_true (ecfs_config_remove (directory, "endpoint a", &error)); /* it is gone */
    g_assert_no_error (error);
    g_assert_true (g_file_get_contents (path, &text, NULL, &error));
    g_assert_cmpstr (text, ==, "[archive]\ncode = copies:2\n\n# of a\n# of b = so\n[endpoint b]\nurl = file:///b\n");
    (void) unlink (path);
    (void) unlink (previous);
    g_assert_cmpint (rmdir (directory), ==, 0);
}

static void test_rewrites (void)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *directory = g_dir_make_tmp ("ecfs-config-XXXXXX", &error);
    g_autofree char *path = g_build_filename (directory, "ecfs.conf", NULL);
    g_autofree char *previous = g_strconcat (path, ECFS_CONFIG_PREVIOUS, NULL);
    const char *text = "[archive]\ncode = copies:2 # two\nallow_double = yes\n[endpoint a]\nurl = file:///a\n";
    g_assert_true (g_file_set_contents (path, text, -1, &error));
    EcfsConfigChange changes[] = {{(char *) "archive", (char *) "segment_size", (char *) "4M"},
                                  {(char *) "endpoint a", (char *) "connections", (char *) "2"}};
    g_assert_true (ecfs_config_rewrite (directory, changes, 2, &error));
    g_autofree char *found = NULL, *kept = NULL;
    g_assert_true (g_file_get_contents (path, &found, NULL, &error));
    g_assert_true (g_file_get_contents (previous, &kept, NULL, &error));
    g_assert_cmpstr (found, ==,
                     "[archive]\ncode = copies:2 # two\nallow_double = yes\nsegment_size = 4M\n[endpoint a]\n"
                     "url = file:///a\nconnections = 2\n");
    g_assert_cmpstr (kept, ==, text);
    changes[1].value = (char *) "99"; /* all or nothing */
    changes[0].value = (char *) "8M";
    g_assert_false (ecfs_config_rewrite (directory, changes, 2, &error));
    g_assert_error (error, ECFS_ERROR, EINVAL);
    g_autofree char *same = NULL;
    g_assert_true (g_file_get_contents (path, &same, NULL, NULL));
    g_assert_cmpstr (same, ==, found);
    g_assert_cmpint (unlink (path), ==, 0);
    g_assert_cmpint (unlink (previous), ==, 0);
    g_assert_cmpint (rmdir (directory), ==, 0);
}

static void test_injection (void)
{
    g_autoptr (EcfsConfig) config = ecfs_config_new ();
    static const char *const bad[] = {"yes\n[endpoint x]", "no # really", " yes", ""};
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++)
        g_assert_false (ecfs_config_set (config, "allow_double", bad[i], NULL));
    EcfsEndpointSpec *spec = ecfs_endpoint_spec_new ("a", "file:///a\nzone = b");
    g_autoptr (GError) error = NULL;
    g_assert_null (ecfs_config_endpoint_new (spec, &error));
    g_assert_error (error, ECFS_ERROR, EINVAL);
    g_assert_null (ecfs_config_endpoint_new (ecfs_endpoint_spec_new ("a]b", "file:///a"), NULL));
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/config/has-the-defaults-of-the-manual", test_defaults);
    g_test_add_func ("/config/reads-archive-and-endpoints", test_reads);
    g_test_add_func ("/config/names-what-it-does-not-know-with-its-line", test_unknown);
    g_test_add_func ("/config/refuses-what-is-given-twice", test_twice);
    g_test_add_func ("/config/checks-ranges", test_ranges);
    g_test_add_func ("/config/tells-all-problems-at-once", test_all_at_once);
    g_test_add_func ("/config/tells-a-bounded-number-of-problems", test_bounded);
    g_test_add_func ("/config/reads-back-what-it-formats", test_round_trip);
    g_test_add_func ("/config/formats-one-endpoint-to-append", test_appended);
    g_test_add_func ("/config/changes-one-key-and-nothing-else", test_edits);
    g_test_add_func ("/config/changes-all-keys-or-none", test_rewrites);
    g_test_add_func ("/config/loses-a-section-and-nothing-else", test_removes);
    g_test_add_func ("/config/lets-no-value-become-another-line", test_injection);
    return g_test_run ();
}
