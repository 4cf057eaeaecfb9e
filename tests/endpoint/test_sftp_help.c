/*
 * Files that several connections store together: a real sftp-server on a line that lab-proxy makes long, each
 * connection with a log of what it was asked.
 *
 * ECFS_HELP=all runs every case; otherwise those few that the others build on.
 */
#include "endpoint/endpoint.h"
#include "program/program.h"
#include "proxy_fixture.h"
#include "sshd_fixture.h"
#include "util/lock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SFTP_SERVER "/usr/lib/openssh/sftp-server"
#define LIMIT_US    (60 * G_USEC_PER_SEC)

#define DELAY_MS    "15"
#define BYTES_PER_S "24000000" /* so that it is the line that bytes wait for, on any machine */

#define CHUNK_BYTES   200001
#define PATTERN_BYTES (1u << 20) /* and a little, so that no two WRITEs are the same */
#define MORE_BYTES    (4u << 20) /* given after what was waited for has happened, and before the end */
#define MOST_BYTES    (1u << 30)
#define MAX_OWN       6
#define MOST_AHEAD    (64u << 20) /* of what a connection that stalls keeps from being stored */

/* One for all tests. */
typedef struct Server {
    char *dir; /* a log per connection, and what is to go wrong */
    Sshd *sshd;
    LabProxy *proxy;
} Server;

/* A source that goes on until the test has seen what it waits for. */
typedef struct Writer {
    EcfsMutex lock;
    EcfsCond cond;
    EcfsStream *stream;
    uint8_t *pattern;
    uint64_t given;
    uint64_t end; /* gives no more from here on */
    uint64_t released;
    unsigned n_done;
    int code;
} Writer;

static void start_proxy (Server *self)
{
    self->proxy = lab_proxy_new (self->sshd->port);
    lab_proxy_tell (self->proxy, "throttle " BYTES_PER_S);
    lab_proxy_tell (self->proxy, "delay " DELAY_MS);
    g_autofree char *known = g_strdup_printf ("[127.0.0.1]:%u %s", self->proxy->port, self->sshd->host_public);
    g_assert_true (g_file_set_contents (self->sshd->known_hosts, known, -1, NULL));
}

static Server *server_new (void)
{
    Server *self = g_new0 (Server, 1);
    self->dir = g_dir_make_tmp ("ecfs-help-XXXXXX", NULL);
    g_assert_nonnull (self->dir);
    g_autofree char *extra = g_strdup_printf ("ForceCommand LD_PRELOAD=%s ECFS_LAB_FAULT=%s/fault exec " SFTP_SERVER
                                              " -e -l INFO 2>%s/log.$$",
                                              LAB_FAULT, self->dir, self->dir);
    self->sshd = sshd_new (extra);
    if (self->sshd != NULL)
        start_proxy (self);
    return self;
}

static void server_free (Server *self)
{
    if (self->sshd != NULL) {
        lab_proxy_free (self->proxy);
        sshd_free (self->sshd);
    }
    g_autofree char *command = g_strdup_printf ("rm -rf %s", self->dir);
    g_assert_true (g_spawn_command_line_sync (command, NULL, NULL, NULL, NULL));
    g_free (self->dir);
    g_free (self);
}

static void fail (const Server *self, const char *words)
{
    g_autofree char *path = g_build_filename (self->dir, "fault", NULL);
    g_assert_true (g_file_set_contents (path, words, -1, NULL));
}

static EcfsEndpoint *start (const Server *server, const char *transport, unsigned connections)
{
    static const EcfsMarker nothing;
    g_autoptr (GError) error = NULL;
    g_autofree char *options = sshd_options (server->sshd);
    g_autofree char *text = g_strdup_printf ("x=sftp://127.0.0.1:%u%s,%s,transport=%s,connections=%u",
                                             server->proxy->port, server->sshd->root, options, transport, connections);
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, &error);
    g_assert_no_error (error);
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, &nothing, &error);
    g_assert_no_error (error);
    ecfs_endpoint_start (endpoint);
    return endpoint;
}

/* What one test leaves is not the next one's. */
static void clear (const Server *self)
{
    g_autofree char *command = g_strdup_printf ("sh -c 'rm -rf %s/log.* %s/*'", self->dir, self->sshd->root);
    g_assert_true (g_spawn_command_line_sync (command, NULL, NULL, NULL, NULL));
    fail (self, "");
}

/* The process id of a connection whose log holds @words; *ret_n: how many do. */
static int connection_that (const Server *server, const char *words, unsigned *ret_n)
{
    int pid = 0;
    *ret_n = 0;
    g_autoptr (GDir) dir = g_dir_open (server->dir, 0, NULL);
    g_assert_nonnull (dir);
    const char *name;
    while ((name = g_dir_read_name (dir)) != NULL) {
        g_autofree char *path = g_build_filename (server->dir, name, NULL), *text = NULL;
        if (!g_str_has_prefix (name, "log.") || !g_file_get_contents (path, &text, NULL, NULL) ||
            !g_regex_match_simple (words, text, 0, 0))
            continue;
        ++*ret_n;
        pid = (int) g_ascii_strtoll (name + strlen ("log."), NULL, 10);
    }
    return pid;
}

#define IS_LEAD   "open \".*/incoming/.*\" flags WRITE,CREATE"
#define IS_HELPER "open \".*/incoming/.*\" flags WRITE mode"
#define HAS_SENT  "close \".*/incoming/.*\" bytes read 0 written [1-9]"

static int wait_for (const Server *server, const char *words, unsigned n)
{
    unsigned n_now;
    int pid;
    for (int64_t deadline_us = ecfs_now_us () + LIMIT_US; ecfs_now_us () < deadline_us; g_usleep (5000))
        if ((pid = connection_that (server, words, &n_now)) != 0 && n_now >= n)
            return pid;
    g_error ("no %u connections did %s", n, words);
}

/* Writing */

static EcfsPull on_pull (void *user, const uint8_t **ret_bytes, size_t *ret_size)
{
    Writer *self = user;
    ecfs_mutex_lock (&self->lock);
    uint64_t at = self->given;
    size_t size = (size_t) MIN (MIN (self->end - at, CHUNK_BYTES), PATTERN_BYTES - at % PATTERN_BYTES);
    self->given += size;
    ecfs_cond_broadcast (&self->cond);
    ecfs_mutex_unlock (&self->lock);
    *ret_bytes = self->pattern + at % PATTERN_BYTES;
    *ret_size = size;
    return size == 0 ? ECFS_PULL_END : ECFS_PULL_BYTES;
}

static void on_release (void *user, const uint8_t *bytes, size_t size)
{
    Writer *self = user;
    ecfs_mutex_lock (&self->lock);
    g_assert_true (bytes == self->pattern + self->released % PATTERN_BYTES && self->n_done == 0);
    self->released += size;
    ecfs_mutex_unlock (&self->lock);
}

static void on_done (void *user, const GError *error)
{
    Writer *self = user;
    g_test_message ("%s", error != NULL ? error->message : "stored");
    ecfs_mutex_lock (&self->lock);
    g_assert_true (self->released == self->given);
    self->n_done++;
    self->code = ecfs_errno (error);
    /* Nobody may look at it from now on. */
    memset (self->pattern, 0xee, PATTERN_BYTES);
    g_clear_pointer (&self->pattern, g_free);
    ecfs_cond_broadcast (&self->cond);
    ecfs_mutex_unlock (&self->lock);
}

static uint8_t *make_pattern (void)
{
    uint8_t *bytes = g_malloc (PATTERN_BYTES);
    for (uint32_t i = 0, state = 1; i < PATTERN_BYTES; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (uint8_t) (state >> 24);
    }
    return bytes;
}

static void begin_named (Writer *self, EcfsEndpoint *endpoint, const char *name, uint64_t size)
{
    *self = (Writer){.pattern = make_pattern (), .end = size};
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->cond);
    EcfsSource source = {.pull = on_pull, .release = on_release, .done = on_done, .user = self};
    self->stream = ecfs_endpoint_write (endpoint, name, &source);
}

static void begin (Writer *self, EcfsEndpoint *endpoint, uint64_t size)
{
    begin_named (self, endpoint, "some/file", size);
}

static void wait_given (Writer *self, uint64_t size)
{
    int64_t deadline_us = ecfs_now_us () + LIMIT_US;
    ecfs_mutex_lock (&self->lock);
    while (self->given < size && self->n_done == 0)
        g_assert_true (ecfs_cond_wait_until (&self->cond, &self->lock, deadline_us));
    ecfs_mutex_unlock (&self->lock);
}

static uint64_t given (Writer *self)
{
    ecfs_mutex_lock (&self->lock);
    uint64_t bytes = self->given;
    ecfs_mutex_unlock (&self->lock);
    return bytes;
}

/* The end is near. */
static void enough (Writer *self)
{
    ecfs_mutex_lock (&self->lock);
    self->end = self->given + MORE_BYTES;
    ecfs_mutex_unlock (&self->lock);
}

static int finish (Writer *self)
{
    int64_t deadline_us = ecfs_now_us () + LIMIT_US;
    ecfs_mutex_lock (&self->lock);
    while (self->n_done == 0)
        g_assert_true (ecfs_cond_wait_until (&self->cond, &self->lock, deadline_us));
    g_assert_cmpuint (self->n_done, ==, 1);
    ecfs_mutex_unlock (&self->lock);
    ecfs_stream_unref (self->stream);
    ecfs_cond_clear (&self->cond);
    ecfs_mutex_clear (&self->lock);
    return self->code;
}

static void check_stored (const Server *server, uint64_t size)
{
    g_autofree char *path = g_build_filename (server->sshd->root, "some/file", NULL), *kept = NULL;
    g_autofree uint8_t *pattern = make_pattern ();
    g_autoptr (GError) error = NULL;
    gsize n_kept;
    (void) g_file_get_contents (path, &kept, &n_kept, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (n_kept, ==, size);
    for (uint64_t at = 0; at < size; at += PATTERN_BYTES)
        g_assert_true (memcmp (kept + at, pattern, MIN (PATTERN_BYTES, size - at)) == 0);
}

/* Nothing is left but a temporary file where a connection was lost. */
static void check_absent (const Server *server)
{
    g_autofree char *path = g_build_filename (server->sshd->root, "some/file", NULL);
    g_assert_false (g_file_test (path, G_FILE_TEST_EXISTS));
}

static void write_again (const Server *server, EcfsEndpoint *endpoint)
{
    Writer again;
    begin (&again, endpoint, MORE_BYTES);
    g_assert_cmpint (finish (&again), ==, 0);
    check_stored (server, MORE_BYTES);
}

/* Begins to store, and waits until @n helpers have much of it. */
static EcfsEndpoint *begin_with_help (const Server *server, const char *transport, unsigned n, Writer *writer)
{
    clear (server);
    EcfsEndpoint *endpoint = start (server, transport, n + 1);
    begin (writer, endpoint, MOST_BYTES);
    (void) wait_for (server, IS_HELPER, n);
    wait_given (writer, given (writer) + MORE_BYTES);
    return endpoint;
}

/* Cases */

static void is_stored_by_several (const Server *server, const char *transport)
{
    Writer writer;
    unsigned n;
    EcfsEndpoint *endpoint = begin_with_help (server, transport, 2, &writer);
    enough (&writer);
    g_assert_cmpint (finish (&writer), ==, 0);
    check_stored (server, writer.given);
    (void) connection_that (server, HAS_SENT, &n);
    g_assert_cmpuint (n, ==, 3);
    ecfs_endpoint_free (endpoint);
}

static void openssh_stores_by_several (gconstpointer server)
{
    is_stored_by_several (server, "openssh");
}

static void libssh2_stores_by_several (gconstpointer server)
{
    is_stored_by_several (server, "libssh2");
}

static void one_connection_does_it_alone (gconstpointer data)
{
    const Server *server = data;
    Writer writer;
    unsigned n;
    clear (server);
    EcfsEndpoint *endpoint = start (server, "libssh2", 1);
    begin (&writer, endpoint, 3 * MORE_BYTES);
    g_assert_cmpint (finish (&writer), ==, 0);
    check_stored (server, writer.given);
    (void) connection_that (server, HAS_SENT, &n);
    g_assert_cmpuint (n, ==, 1);
    ecfs_endpoint_free (endpoint);
}

static void goes_on_without_a_helper_that_is_lost (gconstpointer server)
{
    Writer writer;
    EcfsEndpoint *endpoint = begin_with_help (server, "libssh2", 1, &writer);
    g_assert_cmpint (kill (wait_for (server, IS_HELPER, 1), SIGKILL), ==, 0);
    wait_given (&writer, given (&writer) + MORE_BYTES);
    enough (&writer);
    g_assert_cmpint (finish (&writer), ==, 0);
    check_stored (server, writer.given);
    ecfs_endpoint_free (endpoint);
}

static void fails_with_the_lead (gconstpointer server)
{
    Writer writer;
    EcfsEndpoint *endpoint = begin_with_help (server, "libssh2", 2, &writer);
    g_assert_cmpint (kill (wait_for (server, IS_LEAD, 1), SIGKILL), ==, 0);
    g_assert_cmpint (finish (&writer), ==, ENOTCONN);
    check_absent (server);
    write_again (server, endpoint);
    ecfs_endpoint_free (endpoint);
}

static void is_cancelled (gconstpointer server)
{
    Writer writer;
    EcfsEndpoint *endpoint = begin_with_help (server, "openssh", 1, &writer);
    ecfs_stream_cancel (writer.stream);
    g_assert_cmpint (finish (&writer), ==, ECANCELED);
    check_absent (server);
    (void) wait_for (server, HAS_SENT, 2);
    write_again (server, endpoint);
    ecfs_endpoint_free (endpoint);
}

/* A write of its own, for which there is always something to send, keeps nobody from leaving. Which connection takes
 * one is the core's choice: several are begun, until one is the helper's. */
static void leaves_while_it_stores (gconstpointer server)
{
    Writer writer, own[MAX_OWN];
    unsigned n = 0, n_leads;
    EcfsEndpoint *endpoint = begin_with_help (server, "libssh2", 1, &writer);
    do {
        g_autofree char *name = g_strdup_printf ("own/%u", n);
        begin_named (&own[n], endpoint, name, MOST_BYTES);
        wait_given (&own[n++], CHUNK_BYTES);
        (void) connection_that (server, IS_LEAD, &n_leads);
    } while (n < MAX_OWN && n_leads < 2);
    enough (&writer);
    g_assert_cmpint (finish (&writer), ==, 0);
    check_stored (server, writer.given);
    for (unsigned i = 0; i < n; i++) {
        g_assert_cmpuint (given (&own[i]), <, MOST_BYTES);
        ecfs_stream_cancel (own[i].stream);
        g_assert_cmpint (finish (&own[i]), ==, ECANCELED);
    }
    ecfs_endpoint_free (endpoint);
}

/* What helpers store is no answer of the lead's server. */
static void notices_a_lead_that_stalls (gconstpointer server)
{
    Writer writer;
    EcfsEndpoint *endpoint = begin_with_help (server, "libssh2,stall_timeout=2s", 1, &writer);
    int lead = wait_for (server, IS_LEAD, 1);
    uint64_t before = given (&writer);
    g_assert_cmpint (kill (lead, SIGSTOP), ==, 0);
    g_assert_cmpint (finish (&writer), ==, ETIMEDOUT);
    g_assert_cmpuint (writer.given - before, <, MOST_AHEAD);
    g_assert_cmpint (kill (lead, SIGKILL), ==, 0);
    check_absent (server);
    ecfs_endpoint_free (endpoint);
}

/* What a helper cannot do the lead does. */
static void needs_no_helper_that_fails (const Server *server, const char *fault)
{
    Writer writer;
    clear (server);
    fail (server, fault);
    EcfsEndpoint *endpoint = start (server, "libssh2", 2);
    begin (&writer, endpoint, MOST_BYTES);
    (void) wait_for (server, IS_HELPER "(?s).*sent status", 1);
    wait_given (&writer, given (&writer) + MORE_BYTES);
    enough (&writer);
    g_assert_cmpint (finish (&writer), ==, 0);
    check_stored (server, writer.given);
    ecfs_endpoint_free (endpoint);
}

static void needs_no_helper_that_cannot_open (gconstpointer server)
{
    needs_no_helper_that_fails (server, "reopen 13");
}

static void needs_no_helper_that_cannot_write (gconstpointer server)
{
    needs_no_helper_that_fails (server, "rewrite 5");
}

static void tells_when_all_fail (gconstpointer server)
{
    Writer writer;
    EcfsEndpoint *endpoint = begin_with_help (server, "libssh2", 1, &writer);
    fail (server, "write 5");
    g_assert_cmpint (finish (&writer), ==, EIO);
    check_absent (server);
    ecfs_endpoint_free (endpoint);
}

/* What was acknowledged to the helper may not be kept. */
static void tells_when_a_helper_cannot_close (gconstpointer server)
{
    Writer writer;
    EcfsEndpoint *endpoint = begin_with_help (server, "libssh2", 1, &writer);
    fail (server, "reclose 5");
    enough (&writer);
    g_assert_cmpint (finish (&writer), ==, EIO);
    check_absent (server);
    ecfs_endpoint_free (endpoint);
}

static unsigned n_connections_to_begin (const Server *server, unsigned connections)
{
    unsigned n;
    clear (server);
    EcfsEndpoint *endpoint = start (server, "auto", connections);
    g_autoptr (GError) error = NULL;
    uint64_t size;
    g_assert_false (ecfs_endpoint_size_wait (endpoint, "none", &size, &error));
    g_assert_error (error, ECFS_ERROR, ENOENT);
    ecfs_endpoint_stop (endpoint);
    ecfs_endpoint_free (endpoint);
    (void) connection_that (server, "session opened", &n);
    return n;
}

/* There ssh is left for libssh2, whose window is larger. */
static void connects_again_where_one_must_fill_a_long_line (gconstpointer server)
{
    lab_proxy_tell (((const Server *) server)->proxy, "delay 30");
    g_assert_cmpuint (n_connections_to_begin (server, 1), ==, 2);
    g_assert_cmpuint (n_connections_to_begin (server, 3), ==, 1);
    lab_proxy_tell (((const Server *) server)->proxy, "delay " DELAY_MS);
}

typedef struct Case {
    const char *path;
    void (*run) (gconstpointer server);
    bool always;
} Case;

static const Case cases[] = {
    {"/sftp-help/openssh-stores-by-several", openssh_stores_by_several, false},
    {"/sftp-help/libssh2-stores-by-several", libssh2_stores_by_several, true},
    {"/sftp-help/connects-again-where-one-must-fill-a-long-line", connects_again_where_one_must_fill_a_long_line, true},
    {"/sftp-help/one-connection-does-it-alone", one_connection_does_it_alone, false},
    {"/sftp-help/goes-on-without-a-helper-that-is-lost", goes_on_without_a_helper_that_is_lost, false},
    {"/sftp-help/fails-with-the-lead", fails_with_the_lead, false},
    {"/sftp-help/is-cancelled", is_cancelled, false},
    {"/sftp-help/leaves-while-it-stores", leaves_while_it_stores, true},
    {"/sftp-help/notices-a-lead-that-stalls", notices_a_lead_that_stalls, false},
    {"/sftp-help/needs-no-helper-that-cannot-open", needs_no_helper_that_cannot_open, false},
    {"/sftp-help/needs-no-helper-that-cannot-write", needs_no_helper_that_cannot_write, false},
    {"/sftp-help/tells-when-all-fail", tells_when_all_fail, false},
    {"/sftp-help/tells-when-a-helper-cannot-close", tells_when_a_helper_cannot_close, false},
};

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    Server *server = access (SFTP_SERVER, X_OK) == 0 ? server_new () : NULL;
    if (server == NULL || server->sshd == NULL) {
        g_print ("1..0 # SKIP there is no sshd or no " SFTP_SERVER ": install openssh-server to run these tests\n");
        return 0;
    }
    bool all = g_strcmp0 (g_getenv ("ECFS_HELP"), "all") == 0;
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++)
        if (all || cases[i].always)
            g_test_add_data_func (cases[i].path, server, cases[i].run);
    int result = g_test_run ();
    server_free (server);
    return result;
}
