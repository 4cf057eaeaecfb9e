/* Digests that a hash tool on an SSH server makes: what it answers, and servers that have none. */
#include "endpoint/core/hash_text.h"
#include "endpoint/endpoint.h"
#include "util/xxh3.h"

#include "sshd_fixture.h"

#include <glib/gstdio.h>
#include <string.h>

static void test_greetings (void)
{
    g_assert_cmpstr (ecfs_hash_parse_greeting ("ecfs-hash xxh128", 16), ==, "xxh128");
    g_assert_cmpstr (ecfs_hash_parse_greeting ("ecfs-hash b2", 12), ==, "b2");
    g_assert_null (ecfs_hash_parse_greeting ("ecfs-hash none", 14));
    g_assert_null (ecfs_hash_parse_greeting ("ecfs-hash b2sum", 15));
    g_assert_null (ecfs_hash_parse_greeting ("", 0));
    g_assert_true (ecfs_hash_root_valid ("/srv/it's \"ours\" $(reboot)"));
    g_assert_false (ecfs_hash_root_valid ("/srv\nreboot"));
    g_assert_null (strchr (ecfs_hash_script, '\''));
    g_assert_null (strchr (ecfs_hash_script, '!'));
}

static void test_answers (void)
{
    static const char *const bad[] = {"",
                                      "s",
                                      "s ",
                                      "-",
                                      "s --",
                                      "0123456789abcdef0123456789abcdef  stdin",
                                      "t 0123456789abcdef0123456789abcdef  stdin", /* that is another's */
                                      "s 0123456789abcdef0123456789abcde",
                                      "s 0123456789abcdef0123456789abcdef0",
                                      "s 0123456789abcdef0123456789abcdeF  x",
                                      "s \\123456789abcdef0123456789abcdef  x"};
    char *digest = NULL;
    const char *good = "s 0123456789abcdef0123456789abcdef  stdin";
    g_assert_true (ecfs_hash_parse_answer ("xxh128", "s", good, strlen (good), &digest));
    g_assert_cmpstr (digest, ==, "xxh128:0123456789abcdef0123456789abcdef");
    g_clear_pointer (&digest, g_free);
    g_assert_false (ecfs_hash_parse_answer ("sha256", "s", good, strlen (good), &digest));
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++)
        g_assert_false (ecfs_hash_parse_answer ("xxh128", "s", bad[i], strlen (bad[i]), &digest));
    g_assert_true (ecfs_hash_parse_answer ("xxh128", "s", "s -", 3, &digest));
    g_assert_null (digest);
}

static bool goes_on (void *user)
{
    return user == NULL;
}

/* An endpoint below a directory whose name a shell would not take as it is. */
static EcfsEndpoint *start (const Sshd *sshd, EcfsMarker *marker)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *options = sshd_options (sshd);
    g_autofree char *root = g_strconcat (sshd->root, "/it%27s%20%22$(exit)%22", NULL);
    g_autofree char *url = sshd_url (sshd, root);
    g_autofree char *text = g_strdup_printf ("x=%s,%s", url, options);
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, &error);
    g_assert_no_error (error);
    *marker = (EcfsMarker){.archive = ecfs_uuid_new (), .endpoint = ecfs_uuid_new ()};
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, marker, &error);
    g_assert_no_error (error);
    ecfs_endpoint_start (endpoint);
    g_assert_true (ecfs_endpoint_mark_wait (endpoint, marker, true, &error));
    return endpoint;
}

static void test_hashes (void)
{
    EcfsMarker marker;
    g_autoptr (GError) error = NULL;
    Sshd *sshd = sshd_new (NULL);
    if (sshd == NULL)
        return;
    g_autoptr (EcfsEndpoint) endpoint = start (sshd, &marker);
    g_assert_true (ecfs_endpoint_write_wait (endpoint, "stripes/one", "one", 3, &error));
    g_assert_true (ecfs_endpoint_write_wait (endpoint, "stripes/two", "two", 3, &error));
    g_assert_null (ecfs_endpoint_hasher (endpoint, goes_on, endpoint, &error));
    g_assert_cmpint (error->code, ==, ECANCELED);
    g_clear_error (&error);
    EcfsHasher *hasher = ecfs_endpoint_hasher (endpoint, goes_on, NULL, &error);
    g_assert_no_error (error);
    EcfsHashed files[100] = {{.name = "stripes/one"}, {.name = "stripes/none"}, {.name = "stripes/two"}};
    for (size_t i = 3; i < G_N_ELEMENTS (files); i++)
        files[i].name = files[i % 3].name;
    g_assert_true (ecfs_hasher_ask (hasher, files, G_N_ELEMENTS (files), &error));
    g_assert_no_error (error);
    g_assert_null (files[1].digest);
    g_assert_cmpstr (files[0].digest, !=, files[2].digest);
    for (size_t i = 3; i < G_N_ELEMENTS (files); i++)
        g_assert_cmpstr (files[i].digest, ==, files[i % 3].digest);
    if (g_str_has_prefix (files[0].digest, "xxh128:")) {
        XXH128_hash_t hash = XXH3_128bits ("one", 3);
        g_autofree char *expected =
            g_strdup_printf ("xxh128:%016" G_GINT64_MODIFIER "x%016" G_GINT64_MODIFIER "x", hash.high64, hash.low64);
        g_assert_cmpstr (files[0].digest, ==, expected);
    }
    for (size_t i = 0; i < G_N_ELEMENTS (files); i++)
        g_free (files[i].digest);
    ecfs_hasher_free (hasher);
    ecfs_endpoint_stop (endpoint);
    sshd_free (sshd);
}

/* Accounts that may do SFTP only, and what other protocols can. */
static void test_refusals (void)
{
    EcfsMarker marker;
    g_autoptr (GError) error = NULL;
    Sshd *sshd = sshd_new ("ForceCommand internal-sftp");
    if (sshd == NULL)
        return;
    g_autoptr (EcfsEndpoint) endpoint = start (sshd, &marker);
    g_assert_null (ecfs_endpoint_hasher (endpoint, goes_on, NULL, &error));
    g_assert_cmpint (error->code, ==, ENOTSUP);
    ecfs_endpoint_stop (endpoint);
    sshd_free (sshd);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/sftp-hash/greetings", test_greetings);
    g_test_add_func ("/sftp-hash/answers", test_answers);
    g_test_add_func ("/sftp-hash/makes-digests-of-files", test_hashes);
    g_test_add_func ("/sftp-hash/accounts-for-sftp-only-have-none", test_refusals);
    return g_test_run ();
}
