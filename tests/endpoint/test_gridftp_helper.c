/* Helpers of the gridftp drivers that die or go wrong (hostile-helper): no wrong bytes, no hang, nothing left behind.
 */
#include "endpoint/endpoint.h"
#include "program/program.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>

#define SIZE  ((size_t) 512 * 1024)
#define BLOCK (SIZE / 2)

static EcfsEndpoint *start_url (const char *url, const char *options)
{
    static const EcfsMarker nothing;
    g_autoptr (GError) error = NULL;
    g_autofree char *text = g_strconcat ("x=", url, ",connections=1", options, NULL);
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, &error);
    g_assert_no_error (error);
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, &nothing, &error);
    g_assert_no_error (error);
    ecfs_endpoint_start (endpoint);
    return endpoint;
}

static EcfsEndpoint *start (const char *options)
{
    return start_url ("ftp://localhost/root", options);
}

static unsigned count_descriptors (void)
{
    unsigned n = 0;
    g_autoptr (GDir) directory = g_dir_open ("/proc/self/fd", 0, NULL);
    while (g_dir_read_name (directory) != NULL)
        n++;
    return n;
}

static void assert_no_children (void)
{
    g_assert_cmpint (waitpid (-1, NULL, WNOHANG), ==, -1);
    g_assert_cmpint (errno, ==, ECHILD);
}

/* Reads @name; whatever comes without an error is what was to come. */
static int try_read (EcfsEndpoint *endpoint, const char *name)
{
    g_autofree uint8_t *to = g_malloc0 (SIZE), *expected = g_malloc (SIZE);
    EcfsRange range = {.offset = 0, .size = SIZE, .to = to};
    g_autoptr (GError) error = NULL;
    if (!ecfs_endpoint_read_wait (endpoint, name, &range, 1, &error))
        return error->code;
    memset (expected, 'a', BLOCK);
    memset (expected + BLOCK, 'b', BLOCK);
    g_assert_true (memcmp (to, expected, SIZE) == 0);
    return 0;
}

static void test_reads (void)
{
    static const struct {
        const char *name;
        int code;
    } cases[] = {{"right", 0},       {"twice", 0},       {"beyond", 0},       {"gaps", EPROTO},     {"lost-once", 0},
                 {"lost", ENOTCONN}, {"dies", ENOTCONN}, {"block", ENOTCONN}, {"length", ENOTCONN}, {"text", ENOTCONN}};
    unsigned n_descriptors = count_descriptors ();
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        g_test_message ("%s", cases[i].name);
        EcfsEndpoint *endpoint = start ("");
        g_assert_cmpint (try_read (endpoint, cases[i].name), ==, cases[i].code);
        g_assert_cmpint (try_read (endpoint, "right"), ==, 0); /* another helper, if need be */
        ecfs_endpoint_free (endpoint);
        assert_no_children ();
    }
    /* What a helper has said is read to its end by a thread that may outlive it for a moment. */
    for (unsigned i = 0; i < 500 && count_descriptors () != n_descriptors; i++)
        g_usleep (10000);
    g_assert_cmpuint (count_descriptors (), ==, n_descriptors);
}

/* One after the other, so that reads run ahead. */
static void assert_reads (EcfsEndpoint *endpoint, uint64_t offset, size_t size)
{
    g_autofree uint8_t *to = g_malloc0 (size);
    EcfsRange range = {.offset = offset, .size = size, .to = to};
    g_autoptr (GError) error = NULL;
    ecfs_endpoint_read_wait (endpoint, "lost-behind", &range, 1, &error);
    g_assert_no_error (error);
    for (size_t i = 0; i < size; i++)
        g_assert_cmpint (to[i], ==, "abcdefgh"[(offset + i) / BLOCK]);
}

/* The next request is taken while the end of a GET that nobody needs any more is awaited, … */
static void test_lost_behind (void)
{
    EcfsEndpoint *endpoint = start_url ("gsiftp://localhost/root", "");
    assert_reads (endpoint, 0, BLOCK);
    assert_reads (endpoint, BLOCK, BLOCK);
    g_assert_cmpint (try_read (endpoint, "right"), ==, 0);
    ecfs_endpoint_free (endpoint);
    assert_no_children ();
}

/* … or comes later, when some of what it wants had come before the connection was lost. */
static void test_lost_ahead (void)
{
    EcfsEndpointHealth health;
    EcfsEndpoint *endpoint = start_url ("gsiftp://localhost/root", ",stall_timeout=1s");
    assert_reads (endpoint, 0, BLOCK);
    assert_reads (endpoint, BLOCK, BLOCK / 2);
    g_usleep (3 * G_USEC_PER_SEC); /* in which nobody owes anything */
    ecfs_endpoint_health (endpoint, &health);
    g_assert_true (!health.suspect && !health.down);
    ecfs_endpoint_health_clear (&health);
    assert_reads (endpoint, BLOCK + BLOCK / 2, BLOCK);
    ecfs_endpoint_free (endpoint);
    assert_no_children ();
}

static void test_markers (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start ("");
    g_autoptr (GError) error = NULL;
    EcfsMarker found;
    g_assert_false (ecfs_endpoint_examine_wait (endpoint, &found, &error));
    g_assert_error (error, ECFS_ERROR, EPROTO);
}

static void test_writes (void)
{
    g_autofree uint8_t *bytes = g_malloc0 (16 * SIZE);
    EcfsEndpoint *endpoint = start ("");
    g_autoptr (GError) error = NULL;
    g_assert_false (ecfs_endpoint_write_wait (endpoint, "file", bytes, 16 * SIZE, &error));
    g_assert_error (error, ECFS_ERROR, ENOTCONN);
    g_assert_cmpint (try_read (endpoint, "right"), ==, 0);
    ecfs_endpoint_free (endpoint);
    assert_no_children ();
}

/* Not only after as long as a login may take. */
static void test_silence (void)
{
    EcfsEndpoint *endpoint = start (",stall_timeout=3s,connect_timeout=900s");
    g_assert_cmpint (try_read (endpoint, "right"), ==, 0);
    g_assert_cmpint (try_read (endpoint, "silent"), ==, ETIMEDOUT);
    ecfs_endpoint_free (endpoint);
    assert_no_children ();
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    g_assert_true (g_setenv ("ECFS_GRIDFTP_HELPER", HOSTILE_HELPER, TRUE));
    g_test_add_func ("/gridftp-helper/brings-no-wrong-bytes-and-is-replaced", test_reads);
    g_test_add_func ("/gridftp-helper/loses-the-connection-behind-what-was-wanted", test_lost_behind);
    g_test_add_func ("/gridftp-helper/loses-the-connection-while-it-is-ahead", test_lost_ahead);
    g_test_add_func ("/gridftp-helper/sends-a-marker-more-than-once", test_markers);
    g_test_add_func ("/gridftp-helper/dies-while-it-stores", test_writes);
    g_test_add_func ("/gridftp-helper/says-nothing-any-more", test_silence);
    return g_test_run ();
}
