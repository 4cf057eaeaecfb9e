#include "endpoint/ssh/ssh_config.h"
#include "endpoint/ssh/ssh_known_hosts.h"

#include <string.h>

static EcfsSshConfig *resolve (const EcfsSshRequest *request, const char *text)
{
    g_autoptr (GError) error = NULL;
    EcfsSshConfig *config = ecfs_ssh_config_parse (request, text, "/home/u", "/agent", &error);
    g_assert_no_error (error);
    return config;
}

static void takes_what_ssh_says (void)
{
    EcfsSshRequest request = {.host = "alias"};
    g_autoptr (EcfsSshConfig) config = resolve (&request, "host alias\nuser bob\nhostname real.example\nport 2200\n"
                                                          "identityfile ~/.ssh/one\nidentityfile /two/%h\n"
                                                          "identityagent /my/agent\nproxycommand nc %h %p %% %z\n"
                                                          "userknownhostsfile ~/.ssh/known_hosts /b\n"
                                                          "globalknownhostsfile /c\nhostkeyalias other\n"
                                                          "connecttimeout 7\nstrange\nfuture value\n");
    g_assert_cmpstr (config->hostname, ==, "real.example");
    g_assert_cmpstr (config->user, ==, "bob");
    g_assert_cmpuint (config->port, ==, 2200);
    g_assert_cmpstr (config->identity_files[0], ==, "/home/u/.ssh/one");
    g_assert_cmpstr (config->identity_files[1], ==, "/two/real.example");
    g_assert_cmpstr (config->identity_agent, ==, "/my/agent");
    g_assert_cmpstr (config->proxy_command, ==, "nc real.example 2200 % %z");
    g_assert_cmpstr (config->known_hosts[0], ==, "/home/u/.ssh/known_hosts");
    g_assert_cmpstr (config->known_hosts[2], ==, "/c");
    g_assert_cmpstr (config->host_key_alias, ==, "other");
    g_assert_cmpint (config->connect_timeout_us, ==, 7 * G_USEC_PER_SEC);
    g_assert_false (config->identity_first);
}

static void lets_url_and_options_win (void)
{
    EcfsSshRequest request = {
        .host = "h", .port = 99, .user = "eve", .identity_file = "~/k", .known_hosts = "/kh", .proxy_jump = "j1,j2"};
    g_autoptr (EcfsSshConfig) config =
        resolve (&request, "user bob\nport 22\nidentityfile /other\nproxycommand x\nuserknownhostsfile /a\n");
    g_assert_cmpstr (config->user, ==, "eve");
    g_assert_cmpuint (config->port, ==, 99);
    g_assert_cmpstr (config->identity_files[0], ==, "/home/u/k");
    g_assert_null (config->identity_files[1]);
    g_assert_true (config->identity_first);
    g_assert_cmpstr (config->known_hosts[0], ==, "/kh");
    g_assert_cmpstr (config->proxy_jump, ==, "j1,j2");
    g_assert_null (config->proxy_command);
}

static void knows_what_none_means (void)
{
    EcfsSshRequest request = {.host = "h"};
    g_autoptr (EcfsSshConfig) config = resolve (&request, "identityagent none\nproxycommand none\nproxyjump none\n"
                                                          "identityfile none\nconnecttimeout none\n");
    g_assert_null (config->identity_agent);
    g_assert_null (config->proxy_command);
    g_assert_null (config->proxy_jump);
    g_assert_null (config->identity_files[0]);
    g_assert_cmpint (config->connect_timeout_us, ==, 0);
}

static void works_without_the_ssh_program (void)
{
    EcfsSshRequest request = {.host = "h"};
    g_autoptr (EcfsSshConfig) config = resolve (&request, NULL);
    g_assert_true (config->without_ssh);
    g_assert_cmpuint (config->port, ==, 22);
    g_assert_cmpstr (config->hostname, ==, "h");
    g_assert_cmpstr (config->identity_files[0], ==, "/home/u/.ssh/id_ed25519");
    g_assert_cmpstr (config->identity_agent, ==, "/agent");
}

static void refuses_names_that_are_options_or_shell (void)
{
    static const char *const hosts[] = {"-oProxyCommand=x", "", "a b", "a;b", "a$(b)", "a/b", "a'b"};
    for (size_t i = 0; i < G_N_ELEMENTS (hosts); i++) {
        EcfsSshRequest request = {.host = hosts[i]};
        g_autoptr (GError) error = NULL;
        g_assert_false (ecfs_ssh_request_check (&request, &error));
        g_assert_error (error, ECFS_ERROR, EINVAL);
    }
    EcfsSshRequest request = {.host = "h"};
    g_autoptr (GError) error = NULL;
    g_assert_null (ecfs_ssh_config_parse (&request, "hostname a;rm -rf b\n", NULL, NULL, &error));
    g_assert_error (error, ECFS_ERROR, EINVAL);
    g_clear_error (&error);
    g_assert_null (ecfs_ssh_config_parse (&request, "user $(x)\n", NULL, NULL, &error));
    g_assert_error (error, ECFS_ERROR, EINVAL);
    g_clear_error (&error);
    g_assert_null (ecfs_ssh_config_parse (&request, "proxyjump -oX\n", NULL, NULL, &error));
    g_assert_error (error, ECFS_ERROR, EINVAL);
    request.proxy_jump = "-oX";
    g_assert_false (ecfs_ssh_request_check (&request, NULL));
    ecfs_ssh_config_free (NULL);
}

/* Blobs: a length, "ssh-ed25519", four bytes that differ. */
#define KEY_A "AAAAC3NzaC1lZDI1NTE5AAAAAQ=="
#define KEY_B "AAAAC3NzaC1lZDI1NTE5AAAAAg=="

static GPtrArray *find (const char *text, const char *host, unsigned port)
{
    GPtrArray *keys = ecfs_known_hosts_new ();
    ecfs_known_hosts_find (text, "file", host, port, keys);
    return keys;
}

static guint n_found (const char *text, const char *host, unsigned port)
{
    g_autoptr (GPtrArray) keys = find (text, host, port);
    return keys->len;
}

static EcfsKnownVerdict judge (const char *text, const char *host, const char *key)
{
    g_autoptr (GPtrArray) keys = find (text, host, 22);
    gsize size;
    g_autofree guchar *blob = g_base64_decode (key, &size);
    const EcfsKnownKey *decided;
    return ecfs_known_hosts_judge (keys, blob, size, &decided);
}

static void finds_hosts_in_all_their_spellings (void)
{
    g_assert_cmpuint (n_found ("h ssh-ed25519 " KEY_A " comment\n", "h", 22), ==, 1);
    g_assert_cmpuint (n_found ("h ssh-ed25519 " KEY_A, "H", 22), ==, 1);
    g_assert_cmpuint (n_found ("h ssh-ed25519 " KEY_A, "h", 2222), ==, 0);
    g_assert_cmpuint (n_found ("[h]:2222 ssh-ed25519 " KEY_A, "h", 2222), ==, 1);
    g_assert_cmpuint (n_found ("[h]:2222 ssh-ed25519 " KEY_A, "h", 22), ==, 0);
    g_assert_cmpuint (n_found ("a,h,10.0.0.1\tssh-ed25519 " KEY_A, "10.0.0.1", 22), ==, 1);
    g_assert_cmpuint (n_found ("*.example.com,!bad.example.com ssh-ed25519 " KEY_A, "a.example.com", 22), ==, 1);
    g_assert_cmpuint (n_found ("*.example.com,!bad.example.com ssh-ed25519 " KEY_A, "bad.example.com", 22), ==, 0);
    g_assert_cmpuint (n_found ("h?st*z*a ssh-ed25519 " KEY_A, "hostzzba", 22), ==, 1);
    g_assert_cmpuint (n_found ("h?st*z*a ssh-ed25519 " KEY_A, "hostzzb", 22), ==, 0);
    g_assert_cmpuint (n_found ("*\356\356 ssh-ed25519 " KEY_A, "h", 22), ==, 0);
    g_assert_cmpuint (n_found ("#h ssh-ed25519 " KEY_A "\n\n  \nh ssh-rsa " KEY_A "\nh ssh-ed25519\nh\n", "h", 22), ==,
                      0);
    g_assert_cmpuint (n_found ("@cert-authority h ssh-ed25519 " KEY_A, "h", 22), ==, 0);
    g_assert_cmpuint (n_found ("h ssh-ed25519 !!!!\nh ssh-ed25519 AAAA\n|1|x|y ssh-ed25519 " KEY_A, "h", 22), ==, 0);
}

static void finds_hashed_hosts (void)
{
    /* HMAC-SHA1 with twenty zero bytes for salt. */
    const guchar salt[20] = {0};
    g_autofree char *digest_hex = g_compute_hmac_for_string (G_CHECKSUM_SHA1, salt, sizeof salt, "[h]:2222", -1);
    guchar digest[20];
    for (unsigned i = 0; i < sizeof digest; i++)
        digest[i] =
            (guchar) (g_ascii_xdigit_value (digest_hex[2 * i]) * 16 + g_ascii_xdigit_value (digest_hex[2 * i + 1]));
    g_autofree char *salt64 = g_base64_encode (salt, sizeof salt);
    g_autofree char *digest64 = g_base64_encode (digest, sizeof digest);
    g_autofree char *line = g_strdup_printf ("|1|%s|%s ssh-ed25519 " KEY_A, salt64, digest64);
    g_assert_cmpuint (n_found (line, "h", 2222), ==, 1);
    g_assert_cmpuint (n_found (line, "i", 2222), ==, 0);
}

static void judges_keys (void)
{
    g_assert_cmpint (judge ("h ssh-ed25519 " KEY_A, "h", KEY_A), ==, ECFS_HOST_KNOWN);
    g_assert_cmpint (judge ("h ssh-ed25519 " KEY_B "\nh ssh-ed25519 " KEY_A, "h", KEY_A), ==, ECFS_HOST_KNOWN);
    g_assert_cmpint (judge ("h ssh-ed25519 " KEY_B, "h", KEY_A), ==, ECFS_HOST_CHANGED);
    g_assert_cmpint (judge ("i ssh-ed25519 " KEY_A, "h", KEY_A), ==, ECFS_HOST_UNKNOWN);
    g_assert_cmpint (judge ("h ssh-ed25519 " KEY_A "\n@revoked * ssh-ed25519 " KEY_A, "h", KEY_A), ==,
                     ECFS_HOST_REVOKED);
    g_assert_cmpint (judge ("@revoked * ssh-ed25519 " KEY_B, "h", KEY_A), ==, ECFS_HOST_UNKNOWN);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/ssh-config/takes-what-ssh-says", takes_what_ssh_says);
    g_test_add_func ("/ssh-config/lets-url-and-options-win", lets_url_and_options_win);
    g_test_add_func ("/ssh-config/knows-what-none-means", knows_what_none_means);
    g_test_add_func ("/ssh-config/works-without-the-ssh-program", works_without_the_ssh_program);
    g_test_add_func ("/ssh-config/refuses-names-that-are-options-or-shell", refuses_names_that_are_options_or_shell);
    g_test_add_func ("/known-hosts/finds-hosts-in-all-their-spellings", finds_hosts_in_all_their_spellings);
    g_test_add_func ("/known-hosts/finds-hashed-hosts", finds_hashed_hosts);
    g_test_add_func ("/known-hosts/judges-keys", judges_keys);
    return g_test_run ();
}
