/* Descriptions, markers, names, options: everything that needs no connection. */
#include "endpoint/core/driver.h"
#include "program/program.h"

#include <string.h>

static void assert_spec (const char *text, const char *name, const char *url)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, &error);
    g_assert_no_error (error);
    g_assert_cmpstr (spec->name, ==, name);
    g_assert_cmpstr (spec->url, ==, url);
}

static void test_spec_names (void)
{
    assert_spec ("hh=sftp://u@h.example.org/srv", "hh", "sftp://u@h.example.org/srv");
    assert_spec ("sftp://u@h.example.org:2222/srv", "h.example.org", "sftp://u@h.example.org:2222/srv");
    assert_spec ("sftp://[::1]:22/srv", "1", "sftp://[::1]:22/srv");
    assert_spec ("file:///mnt/disk 1", "disk-1", "file:///mnt/disk 1");
    assert_spec ("file:///mnt/disk/", "disk", "file:///mnt/disk/");
    assert_spec ("file:///a=b", "a-b", "file:///a=b");
    assert_spec ("x=file:///a=b,stall_timeout=1s", "x", "file:///a=b");
}

static void test_spec_options (void)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse ("a=file:///x,zone=de,connections=2,empty=", &error);
    g_assert_no_error (error);
    g_autoptr (EcfsEndpointSpec) copy = ecfs_endpoint_spec_copy (spec);
    g_assert_cmpuint (g_hash_table_size (copy->options), ==, 3);
    g_assert_cmpstr (ecfs_spec_option (copy, "zone"), ==, "de");
    g_assert_cmpstr (ecfs_spec_option (copy, "connections"), ==, "2");
    g_assert_cmpstr (ecfs_spec_option (copy, "empty"), ==, "");
    ecfs_endpoint_spec_free (NULL);
}

static void test_spec_wrong (void)
{
    static const char *const wrong[] = {
        "",
        "/a/b",
        "name=/a/b",
        "://x",
        "a=://x",
        "=file:///x",
        "a b=file:///x",
        "file:///",
        "a=file:///x,zone",
        "a=file:///x,=de",
        "a=file:///x,z=1,z=2",
        "a=file:///x,",
    };
    for (size_t i = 0; i < G_N_ELEMENTS (wrong); i++) {
        g_autoptr (GError) error = NULL;
        g_assert_null (ecfs_endpoint_spec_parse (wrong[i], &error));
        g_assert_error (error, ECFS_ERROR, EINVAL);
    }
}

static void assert_refused (const char *text, const char *named)
{
    static const EcfsMarker nothing;
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, &error);
    g_assert_no_error (error);
    g_assert_null (ecfs_endpoint_new (spec, &nothing, &error));
    g_assert_error (error, ECFS_ERROR, EINVAL);
    g_assert_nonnull (strstr (error->message, named));
}

static void test_wrong_options (void)
{
    assert_refused ("x=file:///a,colour=red", "colour");
    assert_refused ("x=file:///a,share=all", "private, group or world");
    assert_refused ("x=file:///a,connections=0", "connections");
    assert_refused ("x=file:///a,connections=17", "connections");
    assert_refused ("x=file:///a,connections=two", "connections");
    assert_refused ("x=file:///a,stall_timeout=soon", "stall_timeout");
    assert_refused ("x=file:///a,connect_timeout=0s", "connect_timeout");
    assert_refused ("x=file://host/a", "file://host/a");
    assert_refused ("x=file:///a%zz", "%");
    assert_refused ("x=file:///a%00b", "control");
    assert_refused ("x=gopher://a/b", "gopher");
    g_assert_null (ecfs_endpoint_option_keys ("gopher://a/b"));
    g_assert_true (g_strv_contains (ecfs_endpoint_option_keys ("file:///"), "connections"));
}

/* None of these is a connection; a build without the protocol says so. */
static void test_wrong_options_of_servers (void)
{
    static const struct {
        const char *text, *named;
    } cases[] = {
        {"x=ftp://h/a,password_file=/p", "USER@"},
        {"x=ftp://me@h/a,password_file=/p", "auth=clear"},
        {"x=ftp://h/a,mode=extended", "data_authentication=no"},
        {"x=sshftp://h/a,mode=extended", "data_authentication=no"},
        {"x=ftp://me:secret@h/a", "password_file"},
        {"x=ftp://h/a,streams=2", "mode = extended"},
        {"x=ftp://h/a,mode=extended,data_authentication=no,streams=65", "64"},
        {"x=gsiftp://h/a,protection=private,data_authentication=no", "data_authentication"},
        {"x=gsiftp://h/a,user_key=/k", "user_certificate"},
        {"x=gsiftp://h/a,tcp_buffer=2G", "1G"},
        {"x=davs://h/a,password_file=/p", "USER@"},
        {"x=davs://me@h/a", "password_file"},
        {"x=davs://me:secret@h/a", "password_file"},
        {"x=dav://h/a,token_file=/t", "auth=clear"},
        {"x=dav://h/a,ca_file=/c", "davs://"},
        {"x=davs://h/a//b", "empty part"},
        {"x=davs://h/a/../b", "part \"..\""},
        {"x=davs://h/a/%2e%2e/b", "part \"..\""},
        {"x=dav://h/..", "part \"..\""},
        {"x=dav://h/./a", "part \".\""},
        {"x=davs://h/a?b", "%3F"},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        bool built = ecfs_endpoint_option_keys (cases[i].text + strlen ("x=")) != NULL;
        assert_refused (cases[i].text, built ? cases[i].named : "built without");
    }
}

/* A line break in the name of a file is another command to an FTP server. */
static void test_control_characters (void)
{
    static const char *const hidden[] = {"/a%0d%0aDELE%20x", "/a%0Ab", "/%00", "/a%1b[2J", "/%7f", "/a\nb",
                                         "/\033c",           "/\177"};
    const char *const *schemes = ecfs_endpoint_schemes ();
    for (size_t i = 0; schemes[i] != NULL; i++)
        for (size_t j = 0; j < G_N_ELEMENTS (hidden); j++) {
            bool local = g_str_equal (schemes[i], "file");
            g_autofree char *in_path = g_strconcat ("x=", schemes[i], local ? "://" : "://h", hidden[j], NULL);
            g_autofree char *in_user = g_strconcat ("x=", schemes[i], "://me", hidden[j] + 1, "@h/a", NULL);
            g_autofree char *in_host = g_strconcat ("x=", schemes[i], "://h", hidden[j] + 1, "/a", NULL);
            assert_refused (in_path, "control character");
            assert_refused (in_user, "control character");
            assert_refused (in_host, "control character");
        }
    assert_refused ("x=sftp://h/a,identity_file=/a\nb", "identity_file \"/a?b\"");
    assert_refused ("x=file:///a,conn\033ections=2", "conn?ections");
}

static void test_free_without_start (void)
{
    static const EcfsMarker nothing;
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse ("x=file:///nowhere", &error);
    g_autoptr (EcfsEndpoint) endpoint = ecfs_endpoint_new (spec, &nothing, &error);
    g_assert_no_error (error);
    g_assert_cmpstr (ecfs_endpoint_name (endpoint), ==, "x");
    g_assert_cmpstr (ecfs_endpoint_url (endpoint), ==, "file:///nowhere");
    ecfs_endpoint_free (NULL);
}

#define A "archive=5999e7fa-8195-4450-a655-825e4ad28990\n"
#define E "endpoint=8092fa05-a1cd-44a2-bf9d-c2333d6b3ae4\n"
#define G "[ecfs-endpoint]\n"

static void test_marker_round_trip (void)
{
    EcfsMarker marker = {.archive = ecfs_uuid_new (),
                         .endpoint = ecfs_uuid_new (),
                         .epoch = UINT32_MAX,
                         .sequence = UINT64_MAX,
                         .session_number = UINT64_MAX,
                         .session = ecfs_uuid_new (),
                         .since_s = INT64_MAX,
                         .copies = UINT32_MAX,
                         .endpoints = 6,
                         .claim = {.epoch = UINT32_MAX,
                                   .session = ecfs_uuid_new (),
                                   .count = UINT64_MAX,
                                   .since_s = 1,
                                   .host = "there.example.org"}};
    ecfs_marker_host (marker.host);
    g_autofree char *text = ecfs_marker_format (&marker);
    EcfsMarker parsed;
    g_autoptr (GError) error = NULL;
    ecfs_marker_parse (text, strlen (text), &parsed, &error);
    g_assert_no_error (error);
    g_assert_true (ecfs_uuid_equal (&parsed.archive, &marker.archive));
    g_assert_true (ecfs_uuid_equal (&parsed.endpoint, &marker.endpoint));
    g_assert_cmpuint (parsed.epoch, ==, UINT32_MAX);
    g_assert_cmpuint (parsed.sequence, ==, UINT64_MAX);
    g_assert_cmpuint (parsed.session_number, ==, UINT64_MAX);
    g_assert_true (ecfs_uuid_equal (&parsed.session, &marker.session));
    g_assert_cmpint (parsed.since_s, ==, INT64_MAX);
    g_assert_cmpstr (parsed.host, ==, marker.host);
    g_assert_cmpuint (parsed.copies, ==, UINT32_MAX);
    g_assert_cmpuint (parsed.endpoints, ==, 6);
    g_assert_cmpuint (parsed.claim.epoch, ==, UINT32_MAX);
    g_assert_true (ecfs_uuid_equal (&parsed.claim.session, &marker.claim.session));
    g_assert_cmpuint (parsed.claim.count, ==, UINT64_MAX);
    g_assert_cmpint (parsed.claim.since_s, ==, 1);
    g_assert_cmpstr (parsed.claim.host, ==, "there.example.org");
}

/* As written before there were sessions; and a host's name that would forge lines of a log. */
static void test_marker_absent_and_odd (void)
{
    static const char old[] = G "format=1\n" A E "epoch=1\nsequence=1\n";
    static const char odd[] = G "format=1\n" A E "epoch=1\nsequence=1\nhost=a\\nb\x1b[0m\xc3\xa4\n";
    EcfsMarker marker;
    g_autoptr (GError) error = NULL;
    ecfs_marker_parse (old, strlen (old), &marker, &error);
    g_assert_no_error (error);
    g_assert_true (marker.session_number == 0 && ecfs_uuid_is_nil (&marker.session) && marker.claim.epoch == 0);
    g_assert_cmpstr (marker.host, ==, "");
    ecfs_marker_parse (odd, strlen (odd), &marker, &error);
    g_assert_no_error (error);
    g_assert_cmpstr (marker.host, ==, "a?nb??0m??");
}

static void test_marker_hostile (void)
{
    static const struct {
        const char *text;
        int code;
    } cases[] = {
        {"", EPROTO},
        {"x", EPROTO},
        {G, EPROTO},
        {"[other]\nformat=1\n" A E "epoch=1\nsequence=1\n", EPROTO},
        {G "format=2\n", ENOTSUP},
        {G "format=one\n", EPROTO},
        {G "format=1\n" A E "epoch=1\n", EPROTO},
        {G "format=1\n" A E "epoch=-1\nsequence=1\n", EPROTO},
        {G "format=1\n" A E "epoch=4294967296\nsequence=1\n", EPROTO},
        {G "format=1\n" A E "epoch=1\nsequence=18446744073709551616\n", EPROTO},
        {G "format=1\narchive=00000000-0000-0000-0000-000000000000\n" E "epoch=1\nsequence=1\n", EPROTO},
        {G "format=1\narchive=5999e7fa\n" E "epoch=1\nsequence=1\n", EPROTO},
        {G "format=1\n" A E "epoch=1\nsequence=1\nsession_number=1\n", EPROTO},
        {G "format=1\n" A E "epoch=1\nsequence=1\nsession=8092fa05-a1cd-44a2-bf9d-c2333d6b3ae4\n", EPROTO},
        {G "format=1\n" A E "epoch=1\nsequence=1\nsession_number=0\nsession=8092fa05-a1cd-44a2-bf9d-c2333d6b3ae4\n",
         EPROTO},
        {G "format=1\n" A E "epoch=1\nsequence=1\nclaim_epoch=2\n", EPROTO},
        {G "format=1\n" A E "epoch=1\nsequence=1\nsince=9223372036854775808\n", EPROTO},
        {G "format=1\n" A E "epoch=1\nsequence=1\ncopies=x\n", EPROTO},
        {G "format=1\n\xff\xfe=1\n" A E "epoch=1\nsequence=1\n", EPROTO},
    };
    EcfsMarker marker;
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        g_autoptr (GError) error = NULL;
        g_assert_false (ecfs_marker_parse (cases[i].text, strlen (cases[i].text), &marker, &error));
        g_assert_error (error, ECFS_ERROR, cases[i].code);
    }
    static const char with_nul[] = G "format=1\n\0" A E;
    g_autofree char *huge = g_strnfill (ECFS_MARKER_MAX_SIZE + 1, '\n');
    g_assert_false (ecfs_marker_parse (with_nul, sizeof with_nul, &marker, NULL));
    g_assert_false (ecfs_marker_parse (huge, ECFS_MARKER_MAX_SIZE + 1, &marker, NULL));
    static const char good[] = G "format=1\n" A E "epoch=1\nsequence=1\nlater=thing\n";
    g_assert_true (ecfs_marker_parse (good, strlen (good), &marker, NULL));
}

static void test_incoming_names (void)
{
    g_autofree char *longest = g_strnfill (200, 'a');
    const char *const names[] = {NULL, "a/b/c", longest};
    for (size_t i = 0; i < G_N_ELEMENTS (names); i++) {
        g_autofree char *first = ecfs_incoming_name (names[i]), *second = ecfs_incoming_name (names[i]);
        g_assert_true (ecfs_stored_name_valid (first) && g_str_has_prefix (first, "incoming/"));
        g_assert_null (strchr (first + strlen ("incoming/"), '/'));
        g_assert_cmpstr (first, !=, second);
    }
}

static void test_ahead_names (void)
{
    g_autofree char *first = ecfs_ahead_name (), *second = ecfs_ahead_name ();
    g_assert_true (ecfs_stored_name_valid (first) && g_str_has_prefix (first, "incoming/"));
    g_assert_cmpstr (first, !=, second);
    g_assert_false (ecfs_is_left_ahead (first));
    char *digit = first + strlen ("incoming/ahead-");
    *digit = *digit == '0' ? '1' : '0'; /* another process */
    g_assert_true (ecfs_is_left_ahead (first));
    g_assert_false (ecfs_is_left_ahead ("incoming/ahead-"));
    first[strlen (first) - 1] = '\0';
    g_assert_false (ecfs_is_left_ahead (first));
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    g_test_add_func ("/spec/takes-or-makes-names", test_spec_names);
    g_test_add_func ("/spec/takes-options", test_spec_options);
    g_test_add_func ("/spec/refuses-what-is-none", test_spec_wrong);
    g_test_add_func ("/endpoint/refuses-wrong-options-by-name", test_wrong_options);
    g_test_add_func ("/endpoint/refuses-options-that-make-no-sense-for-servers", test_wrong_options_of_servers);
    g_test_add_func ("/endpoint/refuses-control-characters-in-url-and-options", test_control_characters);
    g_test_add_func ("/endpoint/need-not-be-started", test_free_without_start);
    g_test_add_func ("/marker/reads-what-it-wrote", test_marker_round_trip);
    g_test_add_func ("/marker/takes-what-is-absent-and-cleans-hosts", test_marker_absent_and_odd);
    g_test_add_func ("/marker/refuses-hostile-ones", test_marker_hostile);
    g_test_add_func ("/names/of-temporary-files-are-valid-and-new", test_incoming_names);
    g_test_add_func ("/names/of-files-opened-ahead-tell-the-process", test_ahead_names);
    return g_test_run ();
}
