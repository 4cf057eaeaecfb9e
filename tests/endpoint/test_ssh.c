/* The SSH transport and the life of sftp:// endpoints, against a real sshd. */
#include "endpoint/endpoint.h"
#include "endpoint/ssh/ssh_transport.h"
#include "program/program.h"
#include "sshd_fixture.h"
#include "transfer.h"
#include "util/lock.h"

#include <arpa/inet.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPEN_US (60 * G_USEC_PER_SEC)

/* Opens a transport and closes it again; returns the errno, and the text of the error for checking what must be in it.
 */
static int try_open (const EcfsSshRequest *request, int64_t timeout_us, char **ret_text)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsSshConfig) config = ecfs_ssh_config_resolve (request, &error);
    g_assert_no_error (error);
    EcfsSshWait wait = {.deadline_us = ecfs_now_us () + timeout_us, .fd = -1};
    g_autoptr (EcfsSshTransport) transport = ecfs_ssh_libssh2_open (config, &wait, &error);
    g_assert_true ((transport == NULL) == (error != NULL));
    if (error != NULL)
        g_test_message ("%s", error->message);
    if (ret_text != NULL)
        *ret_text = g_strdup (error != NULL ? error->message : "");
    return ecfs_errno (error);
}

static EcfsSshRequest request_to (const Sshd *sshd)
{
    return (EcfsSshRequest){.host = "127.0.0.1",
                            .port = sshd->port,
                            .identity_file = sshd->key,
                            .known_hosts = sshd->known_hosts,
                            .config_file = "/dev/null"};
}

static char *write_file (const Sshd *sshd, const char *name, const char *text)
{
    char *path = g_build_filename (sshd->dir, name, NULL);
    g_assert_true (g_file_set_contents (path, text, -1, NULL));
    return path;
}

static void opens_with_the_right_key (Sshd *sshd)
{
    EcfsSshRequest request = request_to (sshd);
    g_assert_cmpint (try_open (&request, OPEN_US, NULL), ==, 0);
}

static void refuses_an_unknown_host (Sshd *sshd)
{
    g_autofree char *empty = write_file (sshd, "empty", "");
    g_autofree char *text = NULL;
    EcfsSshRequest request = request_to (sshd);
    request.known_hosts = empty;
    g_assert_cmpint (try_open (&request, OPEN_US, &text), ==, EACCES);
    g_assert_nonnull (strstr (text, "SHA256:"));
    g_assert_nonnull (strstr (text, ": ssh -"));
}

static void refuses_a_changed_host_key (Sshd *sshd)
{
    g_autofree char *other = g_build_filename (sshd->dir, "other", NULL);
    g_autofree char *other_pub = g_strconcat (other, ".pub", NULL);
    g_autofree char *public = NULL;
    g_autofree char *text = NULL;
    sshd_make_key (other, "ed25519");
    g_assert_true (g_file_get_contents (other_pub, &public, NULL, NULL));
    g_autofree char *line = g_strdup_printf ("[127.0.0.1]:%u %s", sshd->port, public);
    g_autofree char *known = write_file (sshd, "changed", line);
    EcfsSshRequest request = request_to (sshd);
    request.known_hosts = known;
    g_assert_cmpint (try_open (&request, OPEN_US, &text), ==, EACCES);
    g_assert_nonnull (strstr (text, known));
}

static void names_the_keys_that_were_refused (Sshd *sshd)
{
    g_autofree char *other = g_build_filename (sshd->dir, "stranger", NULL);
    g_autofree char *text = NULL;
    sshd_make_key (other, "ed25519");
    EcfsSshRequest request = request_to (sshd);
    request.identity_file = other;
    g_assert_cmpint (try_open (&request, OPEN_US, &text), ==, EACCES);
    g_assert_nonnull (strstr (text, other));
    g_assert_null (strstr (text, "RSA"));
}

static void says_what_to_do_about_rsa_keys (Sshd *sshd)
{
    g_autofree char *rsa = g_build_filename (sshd->dir, "rsa", NULL);
    g_autofree char *rsa_pub = g_strconcat (rsa, ".pub", NULL);
    g_autofree char *authorized = g_build_filename (sshd->dir, "authorized_keys", NULL);
    g_autofree char *old = NULL;
    g_autofree char *public = NULL;
    g_autofree char *text = NULL;
    sshd_make_key (rsa, "rsa");
    g_assert_true (g_file_get_contents (authorized, &old, NULL, NULL));
    g_assert_true (g_file_get_contents (rsa_pub, &public, NULL, NULL));
    g_autofree char *both = g_strconcat (old, public, NULL);
    g_assert_true (g_file_set_contents (authorized, both, -1, NULL));
    EcfsSshRequest request = request_to (sshd);
    request.identity_file = rsa;
    int code = try_open (&request, OPEN_US, &text);
    if (code != 0) { /* a libssh2 from 1.11 on signs with SHA-2 */
        g_assert_cmpint (code, ==, EACCES);
        g_assert_nonnull (strstr (text, "ssh-keygen -t ed25519"));
    }
}

static void wants_the_password_file_to_be_private (Sshd *sshd)
{
    g_autofree char *password = write_file (sshd, "password", "not it\n");
    g_autofree char *nothing = g_build_filename (sshd->dir, "absent", NULL);
    g_autofree char *text = NULL;
    EcfsSshRequest request = request_to (sshd);
    request.identity_file = nothing;
    request.password_file = password;
    g_assert_cmpint (chmod (password, 0644), ==, 0);
    g_assert_cmpint (try_open (&request, OPEN_US, &text), ==, EACCES);
    g_assert_nonnull (strstr (text, "chmod 600"));
    g_clear_pointer (&text, g_free);
    g_assert_cmpint (chmod (password, 0600), ==, 0);
    g_assert_cmpint (try_open (&request, OPEN_US, &text), ==, EACCES);
    g_assert_null (strstr (text, "chmod 600"));
    g_assert_nonnull (strstr (text, password));
}

static void goes_through_a_jump_host_by_alias (Sshd *sshd)
{
    g_autofree char *text = g_strdup_printf ("Host far jump\n  HostName 127.0.0.1\n  Port %u\n  IdentityFile %s\n"
                                             "  UserKnownHostsFile %s\nHost far\n  ProxyJump jump\n",
                                             sshd->port, sshd->key, sshd->known_hosts);
    g_autofree char *config = write_file (sshd, "ssh_config", text);
    EcfsSshRequest request = {.host = "far", .config_file = config};
    g_assert_cmpint (try_open (&request, OPEN_US, NULL), ==, 0);
    request.host = "jump";
    request.proxy_jump = "jump";
    g_assert_cmpint (try_open (&request, OPEN_US, NULL), ==, 0);
    request.proxy_jump = NULL;
    request.host = "nowhere.invalid";
    g_assert_cmpint (try_open (&request, OPEN_US, NULL), ==, ENOTCONN);
}

static void uses_the_agent (Sshd *sshd)
{
    g_autofree char *socket_path = g_build_filename (sshd->dir, "agent", NULL);
    const char *agent[] = {"ssh-agent", "-D", "-a", socket_path, NULL};
    GPid pid;
    g_autoptr (GError) error = NULL;
    g_spawn_async (NULL, (char **) agent, NULL,
                   G_SPAWN_SEARCH_PATH | G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_STDOUT_TO_DEV_NULL, NULL, NULL, &pid,
                   &error);
    g_assert_no_error (error);
    for (int64_t end_us = ecfs_now_us () + OPEN_US; access (socket_path, F_OK) != 0 && ecfs_now_us () < end_us;)
        g_usleep (2000);
    g_autofree char *variable = g_strconcat ("SSH_AUTH_SOCK=", socket_path, NULL);
    const char *add[] = {"env", variable, "ssh-add", "-q", sshd->key, NULL};
    int status = -1;
    g_spawn_sync (NULL, (char **) add, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, &status, NULL);
    g_assert_cmpint (status, ==, 0);
    g_autofree char *text = g_strdup_printf ("Host *\n  IdentityAgent %s\n  IdentityFile none\n", socket_path);
    g_autofree char *config = write_file (sshd, "agent_config", text);
    EcfsSshRequest request = request_to (sshd);
    request.identity_file = NULL;
    request.config_file = config;
    int with_agent = try_open (&request, OPEN_US, NULL);
    kill (pid, SIGTERM);
    (void) waitpid (pid, NULL, 0);
    g_assert_cmpint (with_agent, ==, 0);
    g_assert_cmpint (try_open (&request, OPEN_US, NULL), ==, EACCES); /* it was the agent */
}

/* A socket of 127.0.0.1 that listens or not; its port. */
static unsigned make_port (int *ret_fd, bool listens)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl (INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    *ret_fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    g_assert_cmpint (bind (*ret_fd, (struct sockaddr *) &address, sizeof address), ==, 0);
    g_assert_cmpint (getsockname (*ret_fd, (struct sockaddr *) &address, &size), ==, 0);
    if (listens)
        g_assert_cmpint (listen (*ret_fd, 5), ==, 0);
    return ntohs (address.sin_port);
}

static void says_that_nobody_is_there (void)
{
    int fd;
    EcfsSshRequest request = {.host = "127.0.0.1", .port = make_port (&fd, false), .config_file = "/dev/null"};
    g_assert_cmpint (try_open (&request, OPEN_US, NULL), ==, ENOTCONN);
    close (fd);
}

static void gives_up_on_a_silent_server (void)
{
    int fd;
    EcfsSshRequest request = {.host = "127.0.0.1", .port = make_port (&fd, true), .config_file = "/dev/null"};
    g_assert_cmpint (try_open (&request, 200 * 1000, NULL), ==, ETIMEDOUT);
    close (fd);
}

/* A server that dies */

static EcfsEndpoint *start_endpoint (const Sshd *sshd, const EcfsMarker *expected)
{
    g_autofree char *url = sshd_url (sshd, sshd->root);
    g_autofree char *options = sshd_options (sshd);
    g_autofree char *text = g_strdup_printf ("x=%s,%s,connections=2", url, options);
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, &error);
    g_assert_no_error (error);
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, expected, &error);
    g_assert_no_error (error);
    ecfs_endpoint_start (endpoint);
    return endpoint;
}

static void fails_reads_of_a_server_that_dies_and_comes_back (Sshd *sshd)
{
    static const EcfsMarker nothing;
    EcfsMarker marker = {.archive = ecfs_uuid_new (), .endpoint = ecfs_uuid_new ()};
    g_autoptr (EcfsEndpoint) maker = start_endpoint (sshd, &nothing);
    g_autoptr (GError) error = NULL;
    ecfs_endpoint_mark_wait (maker, &marker, true, &error);
    g_assert_no_error (error);
    g_autoptr (EcfsEndpoint) endpoint = start_endpoint (sshd, &marker);
    size_t size = 64 << 20;
    g_autofree uint8_t *bytes = test_bytes (size, 1);
    g_autofree uint8_t *back = g_malloc0 (size);
    ecfs_endpoint_write_wait (endpoint, "a/big", bytes, size, &error);
    g_assert_no_error (error);

    Transfer transfer;
    transfer_init (&transfer, endpoint);
    transfer.n_ranges = 1;
    transfer.ranges[0] = (EcfsRange){.offset = 0, .size = size, .to = back};
    transfer_read (&transfer, "a/big", 0);
    transfer_wait_moved (&transfer, 1 << 20);
    sshd_kill (sshd);
    g_assert_cmpint (transfer_finish (&transfer), ==, ENOTCONN);

    sshd_restart (sshd);
    EcfsRange range = {.offset = 0, .size = size, .to = back};
    int64_t end_us = ecfs_now_us () + 60 * G_USEC_PER_SEC;
    bool ok;
    do {
        g_clear_error (&error);
        ok = ecfs_endpoint_read_wait (endpoint, "a/big", &range, 1, &error);
    } while (!ok && g_error_matches (error, ECFS_ERROR, ENOTCONN) && ecfs_now_us () < end_us);
    g_assert_no_error (error);
    g_assert_true (memcmp (bytes, back, size) == 0);
}

/* What carries SFTP */

/* Makes an endpoint's marker over @transport with other options instead of the right ones; returns the errno. */
static int try_transport (const Sshd *sshd, const char *transport, const char *options, char **ret_text)
{
    static const EcfsMarker nothing;
    EcfsMarker marker = {.archive = ecfs_uuid_new (), .endpoint = ecfs_uuid_new ()};
    g_autoptr (GError) error = NULL;
    g_autofree char *name = g_uuid_string_random ();
    g_autofree char *root = g_build_filename (sshd->root, name, NULL);
    g_autofree char *url = sshd_url (sshd, root);
    g_autofree char *text = g_strdup_printf ("x=%s,transport=%s,%s", url, transport, options);
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, &error);
    g_assert_no_error (error);
    g_autoptr (EcfsEndpoint) endpoint = ecfs_endpoint_new (spec, &nothing, &error);
    if (endpoint != NULL) {
        ecfs_endpoint_start (endpoint);
        (void) !ecfs_endpoint_mark_wait (endpoint, &marker, true, &error);
    }
    if (ret_text != NULL)
        *ret_text = g_strdup (error == NULL ? "" : error->message);
    return ecfs_errno (error);
}

static void openssh_tells_what_ssh_says (Sshd *sshd)
{
    g_autofree char *empty = write_file (sshd, "empty 100%", "");
    g_autofree char *unknown = g_strdup_printf ("identity_file=%s,known_hosts=%s", sshd->key, empty);
    g_autofree char *refused = g_strdup_printf ("identity_file=/dev/null,known_hosts=%s", sshd->known_hosts);
    g_autofree char *right = sshd_options (sshd);
    g_autofree char *text = NULL;
    g_assert_cmpint (try_transport (sshd, "openssh", right, NULL), ==, 0);
    g_assert_cmpint (try_transport (sshd, "openssh", unknown, &text), ==, ENOTCONN);
    g_assert_nonnull (strstr (text, "Host key verification failed"));
    g_clear_pointer (&text, g_free);
    g_assert_cmpint (try_transport (sshd, "openssh", refused, &text), ==, ENOTCONN);
    g_assert_nonnull (strstr (text, "Permission denied"));
}

static const char *const carriers[] = {"openssh", "auto", "libssh2"};

/* What ssh refuses, libssh2 does not do instead. */
static void takes_no_key_that_others_can_read (Sshd *sshd)
{
    g_autofree char *right = sshd_options (sshd);
    g_assert_cmpint (chmod (sshd->key, 0644), ==, 0);
    for (size_t i = 0; i < G_N_ELEMENTS (carriers); i++)
        g_assert_cmpint (try_transport (sshd, carriers[i], right, NULL), ==, ENOTCONN);
    g_assert_cmpint (chmod (sshd->key, 0600), ==, 0);
    g_assert_cmpint (try_transport (sshd, "auto", right, NULL), ==, 0);
}

/* What is wrong with a host key is told in libssh2's words, which say what to do. */
static void either_says_what_is_wrong_with_a_host_key (Sshd *sshd)
{
    g_autofree char *empty = write_file (sshd, "empty", "");
    g_autofree char *unknown = g_strdup_printf ("identity_file=%s,known_hosts=%s", sshd->key, empty);
    g_autofree char *text = NULL;
    g_assert_cmpint (try_transport (sshd, "auto", unknown, &text), ==, ENOTCONN);
    g_assert_nonnull (strstr (text, ": ssh -"));
}

static void keeps_to_what_the_configuration_allows (Sshd *sshd)
{
    static const char *const lines[] = {"RevokedHostKeys %s\n", "RevokedHostKeys %s.none\n",
                                        "HostKeyAlgorithms ssh-ed25519-cert-v01@openssh.com\n",
                                        "Ciphers chacha20-poly1305@openssh.com\n"};
    g_autofree char *known = NULL;
    g_assert_true (g_file_get_contents (sshd->known_hosts, &known, NULL, NULL));
    g_autofree char *revoked = write_file (sshd, "revoked", strchr (known, ' ') + 1);
    for (size_t i = 0; i < G_N_ELEMENTS (lines); i++) {
        g_autoptr (GString) config = g_string_new (lines[i]);
        (void) g_string_replace (config, "%s", revoked, 0);
        g_autofree char *file = write_file (sshd, "config", config->str);
        g_autofree char *options =
            g_strdup_printf ("identity_file=%s,known_hosts=%s,ssh_config=%s", sshd->key, sshd->known_hosts, file);
        bool only_libssh2 = strstr (lines[i], "chacha20") != NULL; /* which has no such cipher */
        for (size_t j = only_libssh2 ? 2 : 0; j < G_N_ELEMENTS (carriers); j++) {
            g_test_message ("%s: %s", carriers[j], config->str);
            g_assert_cmpint (try_transport (sshd, carriers[j], options, NULL), ==, ENOTCONN);
        }
    }
}

static void openssh_takes_no_password_file (Sshd *sshd)
{
    g_autofree char *text = NULL;
    g_assert_cmpint (try_transport (sshd, "openssh", "password_file=/dev/null", &text), ==, EINVAL);
    g_assert_nonnull (strstr (text, "password_file"));
    g_clear_pointer (&text, g_free);
    g_assert_cmpint (try_transport (sshd, "carrier-pigeon", "connections=1", &text), ==, EINVAL);
    g_assert_nonnull (strstr (text, "carrier-pigeon"));
}

typedef void (*SshdTest) (Sshd *sshd);

typedef struct Case {
    const char *name;
    SshdTest run;
    const char *extra; /* for sshd_config */
} Case;

static void run_case (gconstpointer data)
{
    const Case *test = data;
    Sshd *sshd = sshd_new (test->extra);
    if (sshd == NULL)
        return;
    test->run (sshd);
    sshd_free (sshd);
}

int main (int argc, char **argv)
{
    static const Case cases[] = {
        {"/ssh/opens-with-the-right-key", opens_with_the_right_key, NULL},
        {"/ssh/opens-with-the-key-exchange-that-openssh-prefers", opens_with_the_right_key,
         "KexAlgorithms -diffie-hellman-group1-sha1"}, /* which is not in its list anyway */
        {"/ssh/refuses-an-unknown-host", refuses_an_unknown_host, NULL},
        {"/ssh/refuses-a-changed-host-key", refuses_a_changed_host_key, NULL},
        {"/ssh/names-the-keys-that-were-refused", names_the_keys_that_were_refused, NULL},
        {"/ssh/says-what-to-do-about-rsa-keys", says_what_to_do_about_rsa_keys, NULL},
        {"/ssh/wants-the-password-file-to-be-private", wants_the_password_file_to_be_private,
         "Match all\nPasswordAuthentication yes"},
        {"/ssh/goes-through-a-jump-host-by-alias", goes_through_a_jump_host_by_alias, NULL},
        {"/ssh/uses-the-agent", uses_the_agent, NULL},
        {"/sftp/openssh-tells-what-ssh-says", openssh_tells_what_ssh_says, NULL},
        {"/sftp/takes-no-key-that-others-can-read", takes_no_key_that_others_can_read, NULL},
        {"/sftp/either-says-what-is-wrong-with-a-host-key", either_says_what_is_wrong_with_a_host_key, NULL},
        {"/sftp/keeps-to-what-the-configuration-allows", keeps_to_what_the_configuration_allows, NULL},
        {"/sftp/openssh-takes-no-password-file", openssh_takes_no_password_file, NULL},
        {"/sftp/fails-reads-of-a-server-that-dies-and-comes-back", fails_reads_of_a_server_that_dies_and_comes_back,
         NULL},
    };
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* notices are what these tests provoke */
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++)
        g_test_add_data_func (cases[i].name, &cases[i], run_case);
    g_test_add_func ("/ssh/says-that-nobody-is-there", says_that_nobody_is_there);
    g_test_add_func ("/ssh/gives-up-on-a-silent-server", gives_up_on_a_silent_server);
    return g_test_run ();
}
