#include "archive/archive_priv.h"
#include "archive/content.h"
#include "commit/commit.h"
#include "fixture.h"
#include "program/program.h"
#include "util/io.h"
#include "util/lock.h"

#include <fcntl.h>
#include <glib/gstdio.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Outcome {
    EcfsMutex lock;
    EcfsCond cond;
    bool done;
    bool full;
    GError *error;
} Outcome;

static void committed (void *user, const EcfsOutcome *end)
{
    Outcome *outcome = user;
    ecfs_mutex_lock (&outcome->lock);
    outcome->done = true;
    outcome->full = end->full;
    outcome->error = end->error == NULL ? NULL : g_error_copy (end->error);
    ecfs_cond_signal (&outcome->cond);
    ecfs_mutex_unlock (&outcome->lock);
}

static bool no_longer_the_same (void *user)
{
    return false;
}

static EcfsArchive *outrun; /* where others are faster */

/* What an attempt has announced is its own no more, as if others had stored the stripe or it had been cleaned up. */
static bool outrun_by_others (void *user)
{
    g_autoptr (GError) error = NULL;
    g_assert_true (ecfs_catalog_intents_abort_all (ecfs_archive_catalog (outrun), &error));
    return true;
}

/* Has it done, and waits; the error is the caller's. */
static bool run_and_ask (Fixture *fixture, EcfsCommit commit, GError **error)
{
    Outcome outcome = {0};
    ecfs_mutex_init (&outcome.lock);
    ecfs_cond_init (&outcome.cond);
    commit.done = committed;
    commit.patient = true; /* on a busy machine an endpoint is soon thought late */
    commit.user = &outcome;
    ecfs_archive_commit (fixture->archive, &commit);
    ecfs_mutex_lock (&outcome.lock);
    int64_t deadline = ecfs_now_us () + 60 * G_USEC_PER_SEC;
    while (!outcome.done)
        g_assert_true (ecfs_cond_wait_until (&outcome.cond, &outcome.lock, deadline) || outcome.done);
    ecfs_mutex_unlock (&outcome.lock);
    ecfs_cond_clear (&outcome.cond);
    ecfs_mutex_clear (&outcome.lock);
    if (outcome.error != NULL)
        g_propagate_error (error, outcome.error);
    return outcome.full;
}

static bool commit_and_ask (Fixture *fixture, uint64_t ino, int fd, uint64_t size, bool backfill,
                            bool (*unchanged) (void *user), GError **error)
{
    const EcfsCommit commit = {.kind = backfill ? ECFS_COMMIT_BACKFILL : ECFS_COMMIT_STORE,
                               .ino = ino,
                               .fd = fd,
                               .size = size,
                               .mtime_ns = 1234567890123456789,
                               .unchanged = unchanged};
    return run_and_ask (fixture, commit, error);
}

static bool commit_fd (Fixture *fixture, uint64_t ino, int fd, uint64_t size, bool backfill, bool changed,
                       GError **error)
{
    return commit_and_ask (fixture, ino, fd, size, backfill, changed ? no_longer_the_same : NULL, error);
}

static int file_of (const Fixture *fixture, const uint8_t *bytes, size_t size)
{
    g_autofree char *path = g_build_filename (fixture->base, "source", NULL);
    int fd = open (path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    g_assert_cmpint (fd, >=, 0);
    g_assert_cmpint (ecfs_pwrite_all (fd, bytes, size, 0), ==, 0);
    return fd;
}

static unsigned count_stripes (const Fixture *fixture)
{
    unsigned n_stripes = 0;
    for (unsigned i = 0; i < N_ENDPOINTS; i++) {
        g_autofree char *path = endpoint_path (fixture, i);
        g_autofree char *stripes = g_build_filename (path, "stripes", NULL);
        g_autofree char *incoming = g_build_filename (path, "incoming", NULL);
        n_stripes += count_files (stripes) + count_files (incoming);
    }
    return n_stripes;
}

static void test_sizes (Fixture *fixture, gconstpointer code)
{
    static const size_t sizes[] = {0, 1, 4096, 16384, 16385, 2097152, 2097153, 11000007};
    for (size_t i = 0; i < G_N_ELEMENTS (sizes); i++) {
        g_autoptr (GError) error = NULL;
        g_autofree char *name = g_strdup_printf ("file-%zu", sizes[i]);
        uint64_t ino = make_file (fixture, name);
        g_autofree uint8_t *bytes = random_bytes (sizes[i] + 1);
        ecfs_autofd fd = file_of (fixture, bytes, sizes[i]);
        g_assert_true (commit_fd (fixture, ino, fd, sizes[i], false, false, &error));
        g_assert_no_error (error);
        assert_content (fixture, ino, bytes, sizes[i]);
    }
}

/* An object whose code a later ecfs would make another way: what the catalog has kept decides. */
static void test_kept_code (Fixture *fixture, gconstpointer code)
{
    static const uint8_t graph[] = {2, 0, 1, 2, 1, 2, 2, 0, 2};
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsCodec) theirs = ecfs_codec_new_for (ECFS_CODE_LDPC, 3, 6, graph, sizeof graph, &error);
    g_assert_no_error (error);
    const char *identity = ecfs_codec_identity (theirs);
    const EcfsCodec *ours = ecfs_archive_codec (fixture->archive, "ldpc:3+3", &error);
    g_assert_cmpstr (ecfs_codec_identity (ours), !=, identity);
    g_assert_null (ecfs_archive_codec (fixture->archive, identity, &error));
    g_assert_error (error, ECFS_ERROR, ENOENT);
    g_clear_error (&error);
    EcfsCatalog *catalog = ecfs_archive_catalog (fixture->archive);
    g_assert_true (ecfs_catalog_keep_code (catalog, identity, graph, sizeof graph, &error));
    const EcfsCodec *kept = ecfs_archive_codec (fixture->archive, identity, &error);
    g_assert_no_error (error);
    g_assert_cmpstr (ecfs_codec_identity (kept), ==, identity);
    size_t size;
    g_assert_true (memcmp (ecfs_codec_parameters (kept, &size), graph, sizeof graph) == 0);
    g_assert_true (kept == ecfs_archive_codec (fixture->archive, identity, NULL));
}

static void test_loss (Fixture *fixture, gconstpointer code)
{
    g_autoptr (GError) error = NULL;
    uint64_t ino = make_file (fixture, "file");
    size_t size = 5000003;
    g_autofree uint8_t *bytes = random_bytes (size);
    ecfs_autofd fd = file_of (fixture, bytes, size);
    g_assert_true (commit_fd (fixture, ino, fd, size, false, false, &error));
    for (unsigned i = 0; i < N_ENDPOINTS; i++) {
        for (unsigned j = i + 1; j < N_ENDPOINTS; j++) {
            hide_endpoint (fixture, i, true);
            hide_endpoint (fixture, j, true);
            reopen (fixture);
            assert_content (fixture, ino, bytes, size);
            hide_endpoint (fixture, i, false);
            hide_endpoint (fixture, j, false);
        }
    }
    for (unsigned i = 0; i < 3; i++)
        hide_endpoint (fixture, i, true);
    reopen (fixture);
    EcfsContent *content = ecfs_content_open (fixture->archive, ino, &error);
    size_t n_got;
    g_autofree uint8_t *got = g_malloc (size);
    g_assert_false (ecfs_content_read_wait (content, 0, size, got, &n_got, &error));
    g_assert_cmpint (ecfs_errno (error), ==, EIO);
    g_assert_nonnull (strstr (error->message, "endpoint e0"));
    g_assert_nonnull (strstr (error->message, "endpoint e2"));
    for (unsigned i = 0; i < 3; i++)
        hide_endpoint (fixture, i, false);
    g_clear_error (&error);
    while (!ecfs_content_read_wait (content, 0, size, got, &n_got, &error)) /* without reopening */
        g_clear_error (&error);
    g_assert_true (memcmp (got, bytes, size) == 0);
    ecfs_content_unref (content);
}

static void *bring_back (void *data)
{
    g_usleep (500000);
    hide_endpoint (data, 0, false);
    return NULL;
}

static void test_read_holds_out (Fixture *fixture, gconstpointer code)
{
    g_autoptr (GError) error = NULL;
    uint64_t ino = make_file (fixture, "file");
    size_t size = 5000003;
    g_autofree uint8_t *bytes = random_bytes (size);
    ecfs_autofd fd = file_of (fixture, bytes, size);
    g_assert_true (commit_fd (fixture, ino, fd, size, false, false, &error));
    for (unsigned i = 0; i < 3; i++)
        hide_endpoint (fixture, i, true);
    reopen (fixture);
    pthread_t thread;
    g_assert_cmpint (pthread_create (&thread, NULL, bring_back, fixture), ==, 0);
    assert_content (fixture, ino, bytes, size);
    g_assert_cmpint (pthread_join (thread, NULL), ==, 0);
}

static int64_t stage (Fixture *fixture, uint64_t ino)
{
    int64_t row;
    g_assert_true (ecfs_catalog_staging_add (fixture->archive->catalog, ino, &row, NULL));
    g_assert_true (ecfs_catalog_staging_set (fixture->archive->catalog, row, ECFS_STAGING_STORED, 0, 0, NULL, NULL));
    return row;
}

/* Of two files one lacks a stripe: the row of the other in staging does not make up for it, only its own does. */
static void assert_counts (Fixture *fixture, uint64_t lacking)
{
    EcfsCatalog *catalog = fixture->archive->catalog;
    g_autoptr (GError) error = NULL;
    int64_t other = stage (fixture, make_file (fixture, "other"));
    g_assert_false (ecfs_archive_check_full (fixture->archive, 0, &error));
    g_assert_error (error, ECFS_ERROR, EIO);
    g_assert_nonnull (strstr (error->message, "file: it has 5 of 6"));
    int64_t own = stage (fixture, lacking);
    g_assert_true (ecfs_archive_check_full (fixture->archive, 0, NULL));
    g_assert_true (ecfs_catalog_staging_remove (catalog, other, NULL) &&
                   ecfs_catalog_staging_remove (catalog, own, NULL));
}

static void test_quorum (Fixture *fixture, gconstpointer code)
{
    g_autoptr (GError) error = NULL;
    uint64_t ino = make_file (fixture, "file");
    size_t size = 3000000;
    g_autofree uint8_t *bytes = random_bytes (size);
    ecfs_autofd fd = file_of (fixture, bytes, size);
    hide_endpoint (fixture, 5, true);
    reopen (fixture);
    g_assert_false (commit_fd (fixture, ino, fd, size, false, false, &error));
    g_assert_no_error (error);
    EcfsFileState state;
    g_assert_true (ecfs_archive_file_state (fixture->archive, ino, &state, &error));
    g_assert_cmpuint (state.n_stored, ==, 5);
    g_assert_cmpint (state.guarantee, ==, 1);
    assert_counts (fixture, ino);
    hide_endpoint (fixture, 5, false);
    reopen (fixture);
    g_assert_false (commit_fd (fixture, ino, fd, size, true, true, &error)); /* what was read twice may have torn */
    g_assert_cmpint (ecfs_errno (error), ==, ECANCELED);
    g_clear_error (&error);
    g_assert_true (ecfs_archive_file_state (fixture->archive, ino, &state, &error));
    g_assert_cmpuint (state.n_stored, ==, 5);
    g_assert_true (commit_fd (fixture, ino, fd, size, true, false, &error));
    g_assert_no_error (error);
    g_assert_true (ecfs_archive_file_state (fixture->archive, ino, &state, &error));
    g_assert_cmpuint (state.n_stored, ==, 6);
    g_assert_cmpint (state.guarantee, ==, 2);
    hide_endpoint (fixture, 0, true);
    hide_endpoint (fixture, 1, true);
    reopen (fixture);
    assert_content (fixture, ino, bytes, size);
    g_assert_false (commit_fd (fixture, ino, fd, size, false, false, &error));
    g_assert_cmpint (ecfs_errno (error), ==, EIO); /* 4 of 6 is decodable, but not after one more loss */
    g_assert_nonnull (strstr (error->message, "endpoint e0"));
    assert_content (fixture, ino, bytes, size);
}

/* ESTALE would make staging drop the content before the file is full. */
static void test_outrun_is_not_replaced (Fixture *fixture, gconstpointer code)
{
    g_autoptr (GError) error = NULL;
    uint64_t ino = make_file (fixture, "file");
    size_t size = 300000;
    g_autofree uint8_t *bytes = random_bytes (size);
    ecfs_autofd fd = file_of (fixture, bytes, size);
    hide_endpoint (fixture, 5, true);
    reopen (fixture);
    g_assert_false (commit_fd (fixture, ino, fd, size, false, false, &error));
    g_assert_no_error (error);
    hide_endpoint (fixture, 5, false);
    reopen (fixture);
    outrun = fixture->archive;
    g_assert_false (commit_and_ask (fixture, ino, fd, size, true, outrun_by_others, &error));
    g_assert_cmpint (ecfs_errno (error), ==, EIO);
    g_clear_error (&error);
    g_assert_true (commit_fd (fixture, ino, fd, size, true, false, &error));
    g_assert_no_error (error);
    assert_content (fixture, ino, bytes, size);
}

static void test_replaced_stripes_go (Fixture *fixture, gconstpointer code)
{
    g_autoptr (GError) error = NULL;
    uint64_t ino = make_file (fixture, "file");
    size_t size = 100000;
    g_autofree uint8_t *bytes = random_bytes (size);
    ecfs_autofd fd = file_of (fixture, bytes, size);
    g_assert_true (commit_fd (fixture, ino, fd, size, false, false, &error));
    g_assert_true (commit_fd (fixture, ino, fd, size, false, false, &error));
    g_assert_false (commit_fd (fixture, ino, fd, size, false, true, &error));
    g_assert_cmpint (ecfs_errno (error), ==, ECANCELED);
    int64_t deadline = ecfs_now_us () + 60 * G_USEC_PER_SEC;
    while (count_stripes (fixture) != 6 && ecfs_now_us () < deadline)
        g_usleep (20000);
    g_assert_cmpuint (count_stripes (fixture), ==, 6);
    assert_content (fixture, ino, bytes, size);
}

static void *open_over_and_over (void *data)
{
    Fixture *fixture = data;
    unsigned n_failed = 0;
    for (unsigned i = 0; i < 20000; i++) {
        g_autoptr (GError) error = NULL;
        EcfsContent *content = ecfs_content_open (fixture->archive, 2, &error);
        EcfsFileState state;
        n_failed +=
            content == NULL || !ecfs_archive_file_state (fixture->archive, 2, &state, &error) || state.n_stripes == 0;
        ecfs_content_unref (content);
    }
    return GUINT_TO_POINTER (n_failed);
}

/* Who opens it or asks how safe it is finds the old content or the new one, whatever is replaced between two looks at
 * the catalog.
 */
static void test_open_while_replaced (Fixture *fixture, gconstpointer code)
{
    g_autoptr (GError) error = NULL;
    uint64_t ino = make_file (fixture, "file");
    g_assert_cmpuint (ino, ==, 2);
    g_autofree uint8_t *bytes = random_bytes (1000);
    ecfs_autofd fd = file_of (fixture, bytes, 1000);
    g_assert_true (commit_fd (fixture, ino, fd, 1000, false, false, &error));
    pthread_t thread;
    g_assert_cmpint (pthread_create (&thread, NULL, open_over_and_over, fixture), ==, 0);
    void *n_failed;
    for (;;) {
        g_assert_true (commit_fd (fixture, ino, fd, 1000, false, false, &error));
        if (pthread_tryjoin_np (thread, &n_failed) == 0)
            break;
    }
    g_assert_cmpuint (GPOINTER_TO_UINT (n_failed), ==, 0);
}

static void test_holes (Fixture *fixture, gconstpointer code)
{
    g_autoptr (GError) error = NULL;
    uint64_t ino = make_file (fixture, "file");
    size_t size = 10u << 20;
    g_autofree uint8_t *bytes = g_malloc0 (size);
    g_autofree uint8_t *data = random_bytes (100000);
    memcpy (bytes + (3u << 20), data, 100000);
    memcpy (bytes + (7u << 20) + 5, data, 100000);
    ecfs_autofd fd = file_of (fixture, bytes, 0);
    g_assert_cmpint (ecfs_pwrite_all (fd, data, 100000, 3u << 20), ==, 0);
    g_assert_cmpint (ecfs_pwrite_all (fd, data, 100000, (7u << 20) + 5), ==, 0);
    g_assert_cmpint (ftruncate (fd, (off_t) size), ==, 0);
    g_assert_true (commit_fd (fixture, ino, fd, size, false, false, &error));
    assert_content (fixture, ino, bytes, size);
    EcfsContent *content = ecfs_content_open (fixture->archive, ino, &error);
    g_assert_cmpuint (ecfs_content_object (content, 0)->size, <, 300000);
    ecfs_content_unref (content);
}

static EcfsCatalog *deleting; /* where "file" is deleted in the middle */

/* Called between the first look at the file and the next. */
static int delete_file (void *user, GError **error)
{
    (void) user;
    (void) error;
    EcfsAttr attr;
    g_assert_true (ecfs_catalog_unlink (deleting, ECFS_ROOT_INO, "file", &attr, NULL));
    g_assert_true (ecfs_catalog_drop (deleting, attr.ino, NULL));
    return -1; /* a repair needs no content */
}

/* Nothing is left to repair or to move, which is no failure. */
static void test_repair_of_what_is_deleted (Fixture *fixture, gconstpointer code)
{
    (void) code;
    g_autoptr (GError) error = NULL;
    EcfsRepairOrder order = {.only_named = true};
    g_autofree uint8_t *bytes = random_bytes (100000);
    uint64_t ino = make_file (fixture, "file");
    ecfs_autofd fd = file_of (fixture, bytes, 100000);
    g_assert_true (commit_fd (fixture, ino, fd, 100000, false, false, &error));
    deleting = ecfs_archive_catalog (fixture->archive);
    g_autoptr (GArray) extents = ecfs_catalog_extents (deleting, ino, &error);
    const EcfsCommit repair = {.kind = ECFS_COMMIT_REPAIR,
                               .ino = ino,
                               .fd = -1,
                               .open = delete_file,
                               .object = g_array_index (extents, EcfsExtent, 0).object,
                               .repair = {.order = &order}};
    g_assert_false (run_and_ask (fixture, repair, &error));
    g_assert_error (error, ECFS_ERROR, ESTALE);
}

/* Repairs wait until nothing is being stored, and an object that keeps its stripes counts only while it is recoded. */
static void test_quiet_after_recode (Fixture *fixture, gconstpointer code)
{
    (void) code;
    g_autoptr (GError) error = NULL;
    g_autofree uint8_t *bytes = random_bytes (100000);
    uint64_t ino = make_file (fixture, "file");
    ecfs_autofd fd = file_of (fixture, bytes, 100000);
    g_assert_true (commit_fd (fixture, ino, fd, 100000, false, false, &error));
    g_assert_true (ecfs_archive_is_quiet (fixture->archive, -1));
    g_autoptr (GArray) extents = ecfs_catalog_extents (ecfs_archive_catalog (fixture->archive), ino, &error);
    const EcfsCommit recode = {.kind = ECFS_COMMIT_RECODE,
                               .ino = ino,
                               .fd = fd,
                               .size = 100000,
                               .code = "copies:3",
                               .object = g_array_index (extents, EcfsExtent, 0).object};
    (void) run_and_ask (fixture, recode, &error);
    g_assert_no_error (error);
    g_autoptr (EcfsObjectRow) object =
        ecfs_catalog_object (ecfs_archive_catalog (fixture->archive), recode.object, &error);
    g_assert_cmpstr (object->code, ==, "copies:3"); /* a new object would have another row */
    g_assert_true (ecfs_archive_is_quiet (fixture->archive, -1));
    assert_content (fixture, ino, bytes, 100000);
}

typedef struct Looking {
    EcfsArchive *archive;
    atomic_bool stop;
} Looking;

/* As those do who place, read and tell. */
static void *look_at_endpoints (void *data)
{
    Looking *self = data;
    size_t n_zones = 0;
    while (!atomic_load (&self->stop))
        for (size_t i = 0; i < ecfs_archive_n_endpoints (self->archive); i++) {
            (void) ecfs_archive_reaches (ecfs_archive_endpoint (self->archive, i));
            n_zones += ecfs_archive_zone_number (self->archive, i);
        }
    return GSIZE_TO_POINTER (n_zones);
}

static void test_found_again (Fixture *fixture, gconstpointer code)
{
    (void) code;
    g_autoptr (GError) error = NULL;
    pthread_t thread;
    g_autofree char *path = g_build_filename (fixture->directory, "ecfs.conf", NULL), *text = NULL;
    g_assert_true (g_file_get_contents (path, &text, NULL, NULL));
    g_autoptr (EcfsConfig) config = ecfs_config_parse (text, path, &error);
    g_assert_true (ecfs_config_remove (fixture->directory, "endpoint e3", &error));
    reopen (fixture);
    Looking looking = {.archive = fixture->archive};
    atomic_init (&looking.stop, false);
    g_assert_cmpint (pthread_create (&thread, NULL, look_at_endpoints, &looking), ==, 0);
    EcfsConfigEndpoint *endpoint = (EcfsConfigEndpoint *) ecfs_config_endpoint (config, "e3");
    g_free (endpoint->zone);
    endpoint->zone = g_strdup ("elsewhere");
    g_assert_true (ecfs_archive_endpoint_add (fixture->archive, endpoint, &error));
    g_autofree uint8_t *bytes = random_bytes (100000);
    uint64_t ino = make_file (fixture, "file");
    ecfs_autofd fd = file_of (fixture, bytes, 100000);
    g_assert_true (commit_fd (fixture, ino, fd, 100000, false, false, &error));
    g_assert_cmpuint (count_stripes (fixture), ==, N_ENDPOINTS);
    g_assert_cmpstr (ecfs_archive_endpoint (fixture->archive, 3)->zone, ==, "elsewhere");
    atomic_store (&looking.stop, true);
    g_assert_cmpint (pthread_join (thread, NULL), ==, 0);
    assert_content (fixture, ino, bytes, 100000);
}

static void test_failed_init_leaves_nothing (void)
{
    g_autoptr (GError) error = NULL;
    Fixture fixture = {.base = g_dir_make_tmp ("ecfs-archive-XXXXXX", NULL)};
    fixture.directory = g_build_filename (fixture.base, "archive", NULL);
    g_autoptr (EcfsConfig) config = make_config (&fixture, "rs:4+2");
    g_autofree char *last = endpoint_path (&fixture, N_ENDPOINTS - 1);
    g_assert_cmpint (rmdir (last), ==, 0);
    g_assert_true (g_file_set_contents (last, "a file where a directory should be", -1, NULL));
    g_assert_false (ecfs_archive_init (fixture.directory, config, ECFS_KEEPING_NONE, NULL, &error));
    g_assert_nonnull (strstr (error->message, "endpoint e5"));
    g_assert_false (g_file_test (fixture.directory, G_FILE_TEST_EXISTS));
    for (unsigned i = 0; i + 1 < N_ENDPOINTS; i++) {
        g_autofree char *path = endpoint_path (&fixture, i);
        g_assert_cmpuint (count_files (path), ==, 0);
    }
    remove_tree (fixture.base);
    g_free (fixture.base);
    g_free (fixture.directory);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    g_test_add ("/commit/every-size-reads-back-rs", Fixture, "rs:4+2", set_up, test_sizes, tear_down);
    g_test_add ("/commit/every-size-reads-back-copies", Fixture, "copies:3", set_up, test_sizes, tear_down);
    g_test_add ("/commit/every-size-reads-back-ldpc", Fixture, "ldpc:3+3", set_up, test_sizes, tear_down);
    g_test_add ("/commit/objects-keep-the-parameters-of-their-code", Fixture, "ldpc:3+3", set_up, test_kept_code,
                tear_down);
    g_test_add ("/commit/any-two-endpoints-may-go-and-a-third-is-told", Fixture, "rs:4+2", set_up, test_loss,
                tear_down);
    g_test_add ("/commit/a-read-holds-out-for-an-endpoint-that-comes-back", Fixture, "rs:4+2", set_up,
                test_read_holds_out, tear_down);
    g_test_add ("/commit/a-quorum-commits-and-is-filled-up", Fixture, "rs:4+2", set_up, test_quorum, tear_down);
    g_test_add ("/commit/what-others-are-faster-with-is-not-replaced", Fixture, "rs:4+2", set_up,
                test_outrun_is_not_replaced, tear_down);
    g_test_add ("/commit/what-is-replaced-or-cancelled-is-deleted", Fixture, "rs:4+2", set_up, test_replaced_stripes_go,
                tear_down);
    g_test_add ("/commit/content-opens-while-it-is-replaced", Fixture, "copies:2", set_up, test_open_while_replaced,
                tear_down);
    g_test_add ("/commit/a-repair-of-what-is-deleted-is-stale", Fixture, "rs:4+2", set_up,
                test_repair_of_what_is_deleted, tear_down);
    g_test_add ("/commit/the-archive-is-quiet-after-a-recode-in-place", Fixture, "copies:2", set_up,
                test_quiet_after_recode, tear_down);
    g_test_add ("/commit/an-endpoint-that-is-found-again-takes-stripes-at-once", Fixture, "rs:4+2", set_up,
                test_found_again, tear_down);
    g_test_add ("/commit/holes-stay-holes", Fixture, "rs:4+2", set_up, test_holes, tear_down);
    g_test_add_func ("/commit/a-failed-init-leaves-nothing-behind", test_failed_init_leaves_nothing);
    return g_test_run ();
}
