/* Endpoints that neither remove nor replace anything: what they refuse, and which of their markers counts. */
#include "appender.h"
#include "endpoint/core/driver.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Fixture {
    char *root;
    char *url; /* x=file://root */
    EcfsMarker marker;
    EcfsEndpoint *endpoint;
} Fixture;

static EcfsEndpoint *start (const Fixture *self, const char *options, const EcfsMarker *expected,
                            bool (*vouch) (void *user, const EcfsMarker *marker))
{
    g_autoptr (GError) error = NULL;
    g_autofree char *text = g_strconcat (self->url, options, NULL);
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, &error);
    g_assert_no_error (error);
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, expected, &error);
    g_assert_no_error (error);
    ecfs_endpoint_set_vouch (endpoint, vouch, NULL);
    ecfs_endpoint_start (endpoint);
    return endpoint;
}

static void set_up (Fixture *self, gconstpointer options)
{
    static const EcfsMarker nothing;
    g_autoptr (GError) error = NULL;
    self->root = g_dir_make_tmp ("ecfs-retain-XXXXXX", &error);
    g_assert_no_error (error);
    self->url = g_strconcat ("x=file://", self->root, NULL);
    self->marker = (EcfsMarker){.archive = ecfs_uuid_new (), .endpoint = ecfs_uuid_new (), .epoch = 1};
    g_autoptr (EcfsEndpoint) maker = start (self, options, &nothing, NULL);
    g_assert_true (ecfs_endpoint_mark_wait (maker, &self->marker, true, &error));
    self->endpoint = start (self, options, &self->marker, NULL);
}

static void tear_down (Fixture *self, gconstpointer options)
{
    (void) options;
    ecfs_endpoint_free (self->endpoint);
    const char *remove[] = {"rm", "-rf", self->root, NULL};
    g_assert_true (
        g_spawn_sync (NULL, (char **) remove, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, NULL, NULL));
    g_free (self->url);
    g_free (self->root);
}

static int store (Fixture *self, const char *name)
{
    g_autoptr (GError) error = NULL;
    bool stored = ecfs_endpoint_write_wait (self->endpoint, name, "content", 7, &error);
    return stored ? 0 : error->code;
}

static int take_away (Fixture *self, const char *name, bool aged)
{
    GError *error = NULL;
    if (aged)
        ecfs_endpoint_remove_all_wait (self->endpoint, &name, 1, &error);
    else
        (void) !ecfs_endpoint_remove_wait (self->endpoint, name, &error);
    int code = ecfs_errno (error);
    g_clear_error (&error);
    return code;
}

static bool is_there (Fixture *self, const char *name, mode_t *ret_mode)
{
    g_autofree char *path = g_build_filename (self->root, name, NULL);
    struct stat status = {.st_mode = 0};
    bool there = stat (path, &status) == 0;
    *ret_mode = status.st_mode & 0777;
    return there;
}

static void test_stays (Fixture *self, gconstpointer options)
{
    mode_t mode;
    bool never = strstr (options, "never") != NULL;
    g_assert_cmpint (store (self, "a/file"), ==, 0);
    g_assert_cmpint (store (self, "a/file"), ==, EEXIST);
    g_assert_true (is_there (self, "a/file", &mode));
    g_assert_cmpuint (mode, ==, 0400);
    g_assert_false (is_there (self, "incoming", &mode));
    g_assert_cmpint (take_away (self, "a/file", false), ==, EPERM);
    g_assert_false (ecfs_endpoint_remove_directory_wait (self->endpoint, "a", NULL));
    g_assert_true (is_there (self, "a/file", &mode));
    g_assert_cmpint (take_away (self, "a/file", true), ==, never ? EPERM : 0);
    g_assert_true (is_there (self, "a/file", &mode) == never);
    g_assert_cmpint (ecfs_endpoint_capabilities (self->endpoint) & ECFS_CAN_LOG, ==, 0);
}

/* The beginning of a file, and then nothing. */
static EcfsPull pull (void *user, const uint8_t **ret_bytes, size_t *ret_size)
{
    bool *given = user;
    if (*given)
        return ECFS_PULL_ABORT;
    *given = true;
    *ret_bytes = (const uint8_t *) "begin";
    *ret_size = 5;
    return ECFS_PULL_BYTES;
}

static void release (void *user, const uint8_t *bytes, size_t size)
{
    (void) user;
    (void) bytes;
    (void) size;
}

static atomic_int ended;

static void done (void *user, const GError *error)
{
    (void) user;
    atomic_store (&ended, ecfs_errno (error));
}

static void test_broken_off (Fixture *self, gconstpointer options)
{
    mode_t mode;
    bool given = false;
    (void) options;
    atomic_store (&ended, 0);
    const EcfsSource source = {.pull = pull, .release = release, .done = done, .user = &given};
    ecfs_stream_unref (ecfs_endpoint_write (self->endpoint, "a/part", &source));
    while (atomic_load (&ended) == 0)
        g_usleep (1000);
    g_assert_cmpint (atomic_load (&ended), ==, ECANCELED);
    g_assert_true (is_there (self, "a/part", &mode)); /* nobody may remove it */
    g_assert_cmpint (store (self, "a/part"), ==, EEXIST);
}

/* Markers */

static void mark (Fixture *self, uint64_t sequence)
{
    g_autoptr (GError) error = NULL;
    EcfsMarker marker = self->marker;
    marker.sequence = sequence;
    g_assert_true (ecfs_endpoint_mark_wait (self->endpoint, &marker, false, &error));
}

static uint64_t marked (EcfsEndpoint *endpoint)
{
    g_autoptr (GError) error = NULL;
    EcfsMarker marker = {.sequence = 0};
    bool read = ecfs_endpoint_examine_wait (endpoint, &marker, &error);
    g_assert_no_error (error);
    g_assert_true (read);
    return marker.sequence;
}

static void forge (Fixture *self, unsigned number, const EcfsMarker *marker, const char *end)
{
    g_autofree char *text = ecfs_marker_format (marker);
    g_autofree char *whole = g_strconcat (text, end, NULL);
    g_autofree char *path = g_strdup_printf ("%s/markers/%08x", self->root, number);
    g_assert_true (g_file_set_contents (path, whole, -1, NULL));
}

static bool is_below_hundred (void *user, const EcfsMarker *marker)
{
    (void) user;
    return marker->sequence < 100;
}

static void test_markers (Fixture *self, gconstpointer options)
{
    static const EcfsMarker nothing;
    mode_t mode;
    mark (self, 5);
    mark (self, 7);
    g_assert_true (is_there (self, "markers/00000003", &mode)); /* the first is that of the beginning */
    g_assert_cmpuint (marked (self->endpoint), ==, 7);
    g_autoptr (EcfsEndpoint) other = start (self, options, &self->marker, is_below_hundred);
    g_assert_cmpuint (marked (other), ==, 7);
    mark (self, 9); /* which the other finds without a list */
    g_assert_cmpuint (marked (other), ==, 9);

    EcfsMarker foreign = self->marker, later = self->marker;
    foreign.endpoint = ecfs_uuid_new ();
    later.sequence = 1000;
    forge (self, 5, &foreign, "# whole\n");
    forge (self, 6, &later, "# whole\n"); /* nobody vouches for it */
    forge (self, 7, &self->marker, "# wh");
    forge (self, 99, &self->marker, "# whole\n");
    g_assert_cmpuint (marked (other), ==, 9);
    mark (self, 11);
    g_assert_true (is_there (self, "markers/00000008", &mode));
    g_assert_cmpuint (marked (other), ==, 11);

    /* Who knows nothing of the endpoint finds out that it only grows. */
    g_autoptr (EcfsEndpoint) finder = start (self, "", &nothing, is_below_hundred);
    g_assert_cmpint (ecfs_endpoint_retain_us (finder), ==, ECFS_RETAIN_NOT);
    g_assert_cmpuint (marked (finder), ==, 11);
    g_assert_cmpint (ecfs_endpoint_retain_us (finder), ==, ECFS_RETAIN_ALWAYS);
    g_assert_true (ecfs_endpoint_mark_wait (finder, &self->marker, false, NULL));
    g_assert_true (is_there (self, "markers/00000009", &mode));
}

/* As `ecfs prune` leaves them: the first, and the newest. */
static void test_removed (Fixture *self, gconstpointer options)
{
    static const EcfsMarker nothing;
    mode_t mode;
    for (uint64_t i = 1; i <= 8; i++)
        mark (self, 10 * i);
    for (unsigned number = 2; number <= 6; number++) {
        g_autofree char *path = g_strdup_printf ("%s/markers/%08x", self->root, number);
        g_assert_cmpint (number == 4 ? 0 : unlink (path), ==, 0);
    }
    g_assert_cmpuint (marked (self->endpoint), ==, 80);
    g_autoptr (EcfsEndpoint) other = start (self, options, &self->marker, is_below_hundred);
    g_assert_cmpuint (marked (other), ==, 80);
    g_autoptr (EcfsEndpoint) finder = start (self, "", &nothing, is_below_hundred);
    g_assert_cmpuint (marked (finder), ==, 80);
    g_assert_cmpint (ecfs_endpoint_retain_us (finder), ==, ECFS_RETAIN_ALWAYS);
    mark (self, 90);
    g_assert_true (is_there (self, "markers/0000000a", &mode));
    g_assert_cmpuint (marked (other), ==, 90);

    /* An old one again, as who has the login stores it, is not later. */
    EcfsMarker old = self->marker;
    old.sequence = 30;
    forge (self, 0xfffffff0, &old, "# whole\n");
    g_autoptr (EcfsEndpoint) third = start (self, options, &self->marker, is_below_hundred);
    g_assert_cmpuint (marked (third), ==, 90);
    g_assert_true (ecfs_endpoint_mark_wait (third, &self->marker, false, NULL));
    g_assert_true (is_there (self, "markers/0000000b", &mode));
}

static void test_taken_back (Fixture *self, gconstpointer options)
{
    (void) options;
    mark (self, 5);
    mark (self, 6);
    g_assert_cmpuint (marked (self->endpoint), ==, 6);
    g_autofree char *newest = g_build_filename (self->root, "markers/00000003", NULL);
    g_assert_cmpint (unlink (newest), ==, 0);
    g_assert_cmpuint (marked (self->endpoint), ==, 5); /* the truth, which its readers know for an older one */
}

/* Another login may replace the root's marker, and each finds what the other wrote. */
static void test_two_logins (Fixture *self, gconstpointer options)
{
    (void) options;
    EcfsMarker later = self->marker;
    mark (self, 5);
    g_autoptr (EcfsEndpoint) master = start (self, ",delete=yes", &self->marker, NULL);
    g_assert_cmpuint (marked (master), ==, 5);
    later.epoch = 2;
    later.sequence = 20;
    g_assert_true (ecfs_endpoint_mark_wait (master, &later, false, NULL));
    g_assert_cmpuint (marked (self->endpoint), ==, 20);
    g_assert_cmpuint (marked (master), ==, 20);
    g_assert_cmpint (store (self, "a/file"), ==, 0);
    g_assert_true (ecfs_endpoint_remove_wait (master, "a/file", NULL));
    later.claim = (EcfsMarkerClaim){.epoch = 3, .session = ecfs_uuid_new (), .count = 1};
    later.sequence = 25;
    g_assert_true (ecfs_endpoint_mark_wait (master, &later, false, NULL));
    g_assert_cmpuint (marked (self->endpoint), ==, 25);
    self->marker.epoch = 3;
    mark (self, 30);
    g_assert_cmpuint (marked (master), ==, 30);
}

static void test_options (void)
{
    static const struct {
        const char *text;
        int64_t retain_us; /* -1: refused */
    } cases[] = {{"yes", ECFS_RETAIN_NOT},
                 {"never", ECFS_RETAIN_ALWAYS},
                 {"after 30d", 30 * 86400 * INT64_C (1000000)},
                 {"after", -1},
                 {"after 0", -1},
                 {"after 4000d", -1},
                 {"", -1},
                 {"Never", -1},
                 {"no", -1}};
    static const EcfsMarker nothing;
    for (size_t i = 0; i < G_N_ELEMENTS (cases); i++) {
        g_autoptr (GError) error = NULL;
        g_autofree char *text = g_strconcat ("x=file:///none,delete=", cases[i].text, NULL);
        g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, &error);
        g_assert_no_error (error);
        g_autoptr (EcfsEndpoint) endpoint = ecfs_endpoint_new (spec, &nothing, &error);
        g_assert_true ((endpoint == NULL) == (cases[i].retain_us < 0));
        if (endpoint == NULL)
            g_assert_error (error, ECFS_ERROR, EINVAL);
        else
            g_assert_cmpint (ecfs_endpoint_retain_us (endpoint), ==, cases[i].retain_us);
    }
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add ("/retain/what-is-stored-stays", Fixture, ",delete=never", set_up, test_stays, tear_down);
    g_test_add ("/retain/what-is-old-may-go", Fixture, ",delete=after 1s", set_up, test_stays, tear_down);
    g_test_add ("/retain/an-upload-that-broke-off-stays", Fixture, ",delete=never", set_up, test_broken_off, tear_down);
    g_test_add ("/retain/the-newest-authentic-marker-counts", Fixture, ",delete=never", set_up, test_markers,
                tear_down);
    g_test_add ("/retain/markers-of-which-old-ones-are-gone", Fixture, ",delete=never", set_up, test_removed,
                tear_down);
    g_test_add ("/retain/a-marker-that-is-gone", Fixture, ",delete=never", set_up, test_taken_back, tear_down);
    g_test_add ("/retain/a-login-that-may-delete", Fixture, ",delete=never", set_up, test_two_logins, tear_down);
    g_test_add_func ("/retain/options", test_options);
    return g_test_run ();
}
