/* What only directories have: links, FIFOs, mounts that come and go, and uploads that can be looked at. */
#include "appender.h"
#include "objectstore.h"
#include "program/program.h"
#include "transfer.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

typedef struct Fixture {
    char *base; /* a temporary directory */
    char *root; /* base/root */
    EcfsMarker marker;
    EcfsEndpoint *endpoint;
} Fixture;

/* How much smaller the calls below say that files of 7 bytes are. */
static atomic_int n_lost;

/* In place of libc's, for the endpoint as well. */
int fstat (int fd, struct stat *status)
{
    int result = fstatat (fd, "", status, AT_EMPTY_PATH);
    if (result == 0 && status->st_size == 7)
        status->st_size -= atomic_load (&n_lost);
    return result;
}

/* What the call below says of the files named "unreadable"; 0: the truth. */
static atomic_int unreadable_code;

int fstatat (int dir_fd, const char *path, struct stat *status, int flags)
{
    int code = atomic_load (&unreadable_code);
    if (code != 0 && g_str_equal (path, "unreadable")) {
        errno = code;
        return -1;
    }
    int (*real) (int, const char *, struct stat *, int) =
        (int (*) (int, const char *, struct stat *, int)) dlsym (RTLD_NEXT, "fstatat");
    return real (dir_fd, path, status, flags);
}

/* What the disk does to logs. */
static atomic_bool disk_is_held;         /* fdatasync does not return */
static atomic_int disk_code;             /* it fails with it */
static atomic_int directory_code;        /* so does fsync of a directory */
static atomic_uint n_synced_directories; /* since it was set to 0 */
static atomic_long disk_room = LONG_MAX; /* bytes that may be written */

int fdatasync (int fd)
{
    int (*real) (int) = (int (*) (int)) dlsym (RTLD_NEXT, "fdatasync");
    while (atomic_load (&disk_is_held))
        g_usleep (1000);
    int code = atomic_load (&disk_code);
    errno = code;
    return code != 0 ? -1 : real (fd);
}

int fsync (int fd)
{
    int (*real) (int) = (int (*) (int)) dlsym (RTLD_NEXT, "fsync");
    struct stat status;
    if (fstatat (fd, "", &status, AT_EMPTY_PATH) != 0 || !S_ISDIR (status.st_mode))
        return real (fd);
    int code = atomic_load (&directory_code);
    errno = code;
    if (code != 0 || real (fd) != 0)
        return -1;
    atomic_fetch_add (&n_synced_directories, 1);
    return 0;
}

ssize_t pwritev (int fd, const struct iovec *iov, int n_iov, off_t offset)
{
    ssize_t (*real) (int, const struct iovec *, int, off_t) =
        (ssize_t (*) (int, const struct iovec *, int, off_t)) dlsym (RTLD_NEXT, "pwritev64");
    long room = atomic_load (&disk_room);
    if (room == LONG_MAX)
        return real (fd, iov, n_iov, offset);
    struct iovec part = {.iov_base = iov->iov_base, .iov_len = MIN (iov->iov_len, (size_t) room)};
    atomic_fetch_sub (&disk_room, (long) part.iov_len);
    errno = ENOSPC;
    return part.iov_len > 0 ? real (fd, &part, 1, offset) : -1;
}

static EcfsEndpoint *start (const char *url, const EcfsMarker *expected)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (url, &error);
    g_assert_no_error (error);
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, expected, &error);
    g_assert_no_error (error);
    ecfs_endpoint_start (endpoint);
    return endpoint;
}

static void set_up (Fixture *self, gconstpointer options)
{
    static const EcfsMarker nothing;
    g_autoptr (GError) error = NULL;
    self->base = g_dir_make_tmp ("ecfs-file-XXXXXX", &error);
    g_assert_no_error (error);
    self->root = g_build_filename (self->base, "root", NULL);
    self->marker = (EcfsMarker){.archive = ecfs_uuid_new (), .endpoint = ecfs_uuid_new ()};
    g_autofree char *url = g_strdup_printf ("x=%s://%s%s", (const char *) options, self->root, "");
    g_autoptr (EcfsEndpoint) maker = start (url, &nothing);
    ecfs_endpoint_mark_wait (maker, &self->marker, true, &error);
    g_assert_no_error (error);
    g_autofree char *impatient = g_strconcat (url, ",stall_timeout=2s", NULL);
    self->endpoint = start (impatient, &self->marker);
}

static void tear_down (Fixture *self, gconstpointer options)
{
    (void) options;
    ecfs_endpoint_free (self->endpoint);
    const char *remove[] = {"rm", "-rf", self->base, NULL};
    g_spawn_sync (NULL, (char **) remove, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, NULL, NULL);
    g_free (self->base);
    g_free (self->root);
}

static int try_store (Fixture *self, const char *name)
{
    g_autoptr (GError) error = NULL;
    bool ok = ecfs_endpoint_write_wait (self->endpoint, name, "content", 7, &error);
    g_assert_true (ok == (error == NULL));
    return ecfs_errno (error);
}

static int try_read (Fixture *self, const char *name)
{
    g_autoptr (GError) error = NULL;
    uint8_t byte;
    EcfsRange range = {.offset = 0, .size = 1, .to = &byte};
    bool ok = ecfs_endpoint_read_wait (self->endpoint, name, &range, 1, &error);
    g_assert_true (ok == (error == NULL));
    return ecfs_errno (error);
}

static char *in_root (Fixture *self, const char *name)
{
    return g_build_filename (self->root, name, NULL);
}

static unsigned count_entries (const char *path)
{
    g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
    unsigned n = 0;
    while (dir != NULL && g_dir_read_name (dir) != NULL)
        n++;
    return n;
}

static void test_exchanged (Fixture *self, gconstpointer options)
{
    g_assert_cmpint (try_store (self, "a/first"), ==, 0);
    g_autofree char *away = g_build_filename (self->base, "away", NULL);
    g_assert_cmpint (rename (self->root, away), ==, 0);
    g_assert_cmpint (mkdir (self->root, 0700), ==, 0);
    g_assert_cmpint (try_store (self, "a/second"), ==, ENOTCONN);
    g_assert_cmpint (try_store (self, "a/third"), ==, ENOTCONN);
    g_autoptr (GError) error = NULL;
    g_assert_false (ecfs_endpoint_mark_wait (self->endpoint, &self->marker, false, &error)); /* would make it ours */
    g_assert_error (error, ECFS_ERROR, ENOTCONN);
    g_assert_cmpuint (count_entries (self->root), ==, 0);
}

static void test_links (Fixture *self, gconstpointer options)
{
    g_autofree char *outside = g_build_filename (self->base, "outside", NULL);
    g_autofree char *secret = g_build_filename (outside, "secret", NULL);
    g_autofree char *directory_link = in_root (self, "out"), *file_link = in_root (self, "link");
    g_autofree char *fifo = in_root (self, "fifo");
    g_assert_cmpint (mkdir (outside, 0700), ==, 0);
    g_assert_true (g_file_set_contents (secret, "s", 1, NULL));
    g_assert_cmpint (symlink (outside, directory_link), ==, 0);
    g_assert_cmpint (symlink (secret, file_link), ==, 0);
    g_assert_cmpint (mkfifo (fifo, 0600), ==, 0);
    g_assert_cmpint (try_read (self, "out/secret"), !=, 0);
    g_assert_cmpint (try_store (self, "out/new"), !=, 0);
    g_assert_cmpint (try_read (self, "link"), ==, EPROTO);
    g_assert_cmpint (try_read (self, "fifo"), ==, EPROTO);
    g_autoptr (GError) error = NULL;
    g_assert_false (ecfs_endpoint_remove_wait (self->endpoint, "out/secret", &error));
    g_assert_cmpuint (count_entries (outside), ==, 1);
}

static void test_incoming (Fixture *self, gconstpointer options)
{
    g_autofree uint8_t *bytes = test_bytes (100000, 1);
    g_autofree char *incoming = in_root (self, "incoming"), *final = in_root (self, "up/load");
    Transfer transfer;
    transfer_init (&transfer, self->endpoint);
    transfer.hold = true;
    transfer_write (&transfer, "up/load", bytes, 100000);
    transfer_wait_moved (&transfer, 50000);
    g_assert_cmpuint (count_entries (incoming), ==, 1);
    g_assert_false (g_file_test (final, G_FILE_TEST_EXISTS));
    ecfs_endpoint_stop (self->endpoint);
    g_assert_cmpint (transfer_finish (&transfer), ==, ECANCELED);
    g_assert_cmpuint (count_entries (incoming), ==, 0);
    g_assert_false (g_file_test (final, G_FILE_TEST_EXISTS));
}

/* Lets @us pass, which is what the test is about. */
static void pass_time (int64_t us)
{
    int64_t until_us = ecfs_now_us () + us;
    while (ecfs_now_us () < until_us)
        g_usleep (5000);
}

static void test_waiting_is_no_stall (Fixture *self, gconstpointer options)
{
    g_autofree uint8_t *bytes = test_bytes (100000, 1);
    Transfer transfer;
    transfer_init (&transfer, self->endpoint);
    transfer.hold = true;
    transfer_write (&transfer, "slow", bytes, 100000);
    transfer_wait_moved (&transfer, 50000);
    pass_time (3 * G_USEC_PER_SEC); /* more than the stall timeout */
    transfer_let_go (&transfer);
    g_assert_cmpint (transfer_finish (&transfer), ==, 0);
    EcfsEndpointHealth health;
    ecfs_endpoint_health (self->endpoint, &health);
    g_assert_false (health.down);
    ecfs_endpoint_health_clear (&health);
}

static void test_read_only (Fixture *self, gconstpointer options)
{
    if (geteuid () == 0) {
        g_test_skip ("root may write to any directory");
        return;
    }
    g_assert_cmpint (chmod (self->root, 0555), ==, 0);
    g_assert_cmpint (try_store (self, "a"), ==, EACCES);
    g_assert_cmpint (chmod (self->root, 0755), ==, 0);
    g_assert_cmpint (try_store (self, "a"), ==, 0);
}

/* The file is not committed, and who reads of it is told both sizes. */
static void test_lost_bytes (Fixture *self, gconstpointer options)
{
    atomic_store (&n_lost, 3);
    g_autoptr (GError) error = NULL;
    g_assert_false (ecfs_endpoint_write_wait (self->endpoint, "a", "content", 7, &error));
    atomic_store (&n_lost, 0);
    g_assert_error (error, ECFS_ERROR, EIO);
    g_assert_nonnull (strstr (error->message, " 4 of the 7 bytes"));
    g_autofree char *incoming = in_root (self, "incoming");
    g_assert_cmpuint (count_entries (incoming), ==, 0);
    g_assert_cmpint (try_read (self, "a"), ==, ENOENT);
    g_assert_cmpint (try_store (self, "a"), ==, 0);
}

typedef struct Listing {
    EcfsMutex lock;
    EcfsCond ended;
    bool done;
    unsigned n_files;
    GError *error;
} Listing;

static void on_listed (void *user, const EcfsListed *listed)
{
    ((Listing *) user)->n_files += g_str_has_prefix (listed->name, "stripes/");
}

static void on_list_done (void *user, uint64_t value, const GError *error)
{
    Listing *self = user;
    (void) value;
    ecfs_mutex_lock (&self->lock);
    self->error = error == NULL ? NULL : g_error_copy (error);
    self->done = true;
    ecfs_cond_broadcast (&self->ended);
    ecfs_mutex_unlock (&self->lock);
}

/* The number of files; the error, which names @expected, is @code. */
static unsigned list (Fixture *self, int code, const char *expected)
{
    Listing listing = {.n_files = 0};
    ecfs_mutex_init (&listing.lock);
    ecfs_cond_init (&listing.ended);
    ecfs_endpoint_list (self->endpoint, "stripes", on_listed, on_list_done, &listing);
    ecfs_mutex_lock (&listing.lock);
    while (!listing.done)
        (void) ecfs_cond_wait_until (&listing.ended, &listing.lock, ecfs_now_us () + G_USEC_PER_SEC);
    ecfs_mutex_unlock (&listing.lock);
    g_assert_cmpint (ecfs_errno (listing.error), ==, code);
    g_assert_true (code == 0 || strstr (listing.error->message, expected) != NULL);
    g_clear_error (&listing.error);
    ecfs_cond_clear (&listing.ended);
    ecfs_mutex_clear (&listing.lock);
    return listing.n_files;
}

/* What is only unreadable must not look as if it were not there. */
static void test_unreadable_entry (Fixture *self, gconstpointer options)
{
    g_assert_cmpint (try_store (self, "stripes/000/fine"), ==, 0);
    g_assert_cmpint (try_store (self, "stripes/000/unreadable"), ==, 0);
    g_assert_cmpuint (list (self, 0, NULL), ==, 2);
    atomic_store (&unreadable_code, EIO);
    (void) list (self, EIO, "stripes/000/unreadable");
    atomic_store (&unreadable_code, EACCES);
    (void) list (self, EACCES, "stripes/000/unreadable");
    atomic_store (&unreadable_code, ENOENT);
    g_assert_cmpuint (list (self, 0, NULL), ==, 1);
    atomic_store (&unreadable_code, 0);
}

static void test_idle_upload (Fixture *self, gconstpointer options)
{
    g_autofree uint8_t *bytes = test_bytes (100000, 1);
    Transfer transfer;
    transfer_init (&transfer, self->endpoint);
    transfer.hold = true;
    transfer_write (&transfer, "idle", bytes, 100000);
    g_assert_cmpint (transfer_finish (&transfer), ==, ENOTCONN);
    g_assert_cmpint (try_read (self, "idle"), ==, ENOENT);
    g_assert_cmpint (try_store (self, "idle"), ==, 0);
}

/* Logs */

static void begin_log (Fixture *self, Appender *log)
{
    appender_init (log);
    appender_begin (log, self->endpoint, "logs/log");
    g_assert_true (appender_wait_begun (log));
}

static void finish_log (Fixture *self, Appender *log, int code, uint64_t durable)
{
    g_autofree char *path = in_root (self, "logs/log");
    g_assert_cmpint (appender_finish (log), ==, code);
    g_assert_cmpuint (log->acknowledged, ==, durable);
    (void) appender_check_file (log, path, false);
}

static void wait_for_size (Fixture *self, int64_t size)
{
    g_autofree char *path = in_root (self, "logs/log");
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    struct stat status = {.st_size = 0};
    while (stat (path, &status) == 0 && status.st_size < size && ecfs_now_us () < deadline_us)
        g_usleep (1000);
    g_assert_cmpint (status.st_size, ==, size);
}

static void test_log_waits (Fixture *self, gconstpointer options)
{
    Appender log;
    begin_log (self, &log);
    g_assert_true (appender_append (&log, 1000));
    atomic_store (&disk_is_held, true);
    appender_give (&log, 9000);
    wait_for_size (self, 10000);
    for (unsigned i = 0; i < 100; i++) /* these share a flush */
        appender_give (&log, 100);
    pass_time (50000);
    g_assert_cmpuint (appender_durable (&log), ==, 1000);
    atomic_store (&disk_is_held, false);
    g_assert_true (appender_wait (&log, 20000));
    g_assert_cmpuint (log.n_flows, <=, 3);
    appender_end (&log, ECFS_PULL_END);
    finish_log (self, &log, 0, 20000);
}

static void test_log_fails (Fixture *self, gconstpointer options)
{
    Appender log;
    begin_log (self, &log);
    g_assert_true (appender_append (&log, 1000));
    atomic_store (&disk_code, EIO);
    g_assert_false (appender_append (&log, 9000));
    atomic_store (&disk_code, 0);
    finish_log (self, &log, EIO, 1000);
    g_assert_cmpint (try_store (self, "another"), ==, 0);
}

static bool is_full (Fixture *self)
{
    EcfsEndpointHealth health;
    ecfs_endpoint_health (self->endpoint, &health);
    ecfs_endpoint_health_clear (&health);
    return health.full;
}

static void test_log_full (Fixture *self, gconstpointer options)
{
    Appender log;
    begin_log (self, &log);
    atomic_store (&disk_room, 5000);
    g_assert_true (appender_append (&log, 3000));
    g_assert_false (appender_append (&log, 3000)); /* of which a part is written */
    atomic_store (&disk_room, LONG_MAX);
    finish_log (self, &log, ENOSPC, 3000);
    g_assert_true (is_full (self));
    appender_init (&log);
    appender_begin (&log, self->endpoint, "logs/another");
    g_assert_true (appender_wait_begun (&log));
    g_assert_true (is_full (self)); /* there was room for a name only */
    g_assert_true (appender_append (&log, 3000));
    g_assert_false (is_full (self));
    appender_end (&log, ECFS_PULL_END);
    g_assert_cmpint (appender_finish (&log), ==, 0);
}

static void test_log_name (Fixture *self, gconstpointer options)
{
    g_autofree char *path = in_root (self, "logs/log");
    Appender log;
    g_assert_cmpint (try_store (self, "logs/other"), ==, 0);
    atomic_store (&directory_code, EIO);
    appender_init (&log);
    appender_begin (&log, self->endpoint, "logs/log");
    g_assert_cmpint (appender_finish (&log), ==, EIO);
    atomic_store (&directory_code, 0);
    g_assert_false (g_file_test (path, G_FILE_TEST_EXISTS));
    atomic_store (&n_synced_directories, 0);
    begin_log (self, &log);
    g_assert_cmpuint (atomic_load (&n_synced_directories), ==, 1); /* before anything can be told to be durable */
    g_assert_true (appender_append (&log, 1000));
    appender_end (&log, ECFS_PULL_END);
    finish_log (self, &log, 0, 1000);
}

static void test_log_lost (Fixture *self, gconstpointer options)
{
    Appender log;
    begin_log (self, &log);
    g_assert_true (appender_append (&log, 5));
    atomic_store (&n_lost, 1);
    g_assert_false (appender_append (&log, 2));
    atomic_store (&n_lost, 0);
    g_assert_nonnull (strstr (log.text, " 6 of the 7 bytes"));
    finish_log (self, &log, EIO, 5);
}

static void test_log_hangs (Fixture *self, gconstpointer options)
{
    Appender log;
    EcfsEndpointHealth health = {.suspect = false};
    begin_log (self, &log);
    g_assert_true (appender_append (&log, 1000));
    atomic_store (&disk_is_held, true);
    appender_give (&log, 9000);
    while (!health.suspect) {
        ecfs_endpoint_health (self->endpoint, &health);
        ecfs_endpoint_health_clear (&health);
        g_assert_false (health.down);
        g_usleep (1000);
    }
    while (!ecfs_endpoint_is_down (self->endpoint))
        g_usleep (1000);
    g_assert_cmpuint (appender_durable (&log), ==, 1000);
    atomic_store (&disk_is_held, false);
    finish_log (self, &log, ENOTCONN, 10000); /* the disk has it in the end, which was too late for the connection */
}

#define ADD(name, scheme, test) g_test_add ("/" name, Fixture, scheme, set_up, test, tear_down)

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    objectstore_register ();
    ADD ("file/an-exchanged-root-takes-nothing", "file", test_exchanged);
    ADD ("file/links-and-fifos-lead-nowhere", "file", test_links);
    ADD ("file/an-upload-is-incoming-until-committed", "file", test_incoming);
    ADD ("file/waiting-for-the-source-is-no-stall", "file", test_waiting_is_no_stall);
    ADD ("file/a-read-only-root-is-told", "file", test_read_only);
    ADD ("file/what-lost-bytes-is-not-committed", "file", test_lost_bytes);
    ADD ("file/an-entry-that-cannot-be-read-fails-the-listing", "file", test_unreadable_entry);
    ADD ("file/a-log-waits-for-the-disk", "file", test_log_waits);
    ADD ("file/a-log-ends-with-a-disk-that-fails", "file", test_log_fails);
    ADD ("file/a-log-ends-with-a-full-disk", "file", test_log_full);
    ADD ("file/the-name-of-a-log-is-durable", "file", test_log_name);
    ADD ("file/a-log-that-lost-bytes-is-not-durable", "file", test_log_lost);
    ADD ("file/a-log-gives-up-a-disk-that-hangs", "file", test_log_hangs);
    ADD ("objectstore/an-idle-upload-is-dropped-and-can-be-repeated", "objectstore", test_idle_upload);
    return g_test_run ();
}
