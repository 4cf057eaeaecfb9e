/* Servers that are not as OpenSSH's: its sftp-server, with lab-fault to make it so. */
#include "appender.h"
#include "program/program.h"
#include "sshd_fixture.h"
#include "transfer.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SFTP_SERVER "/usr/lib/openssh/sftp-server"

typedef struct Fixture {
    Sshd *sshd;
    char *fault;
    EcfsEndpoint *endpoint;
} Fixture;

static void fail (Fixture *f, const char *word, int number)
{
    g_autofree char *words = g_strdup_printf ("%s %d", word, number);
    g_assert_true (g_file_set_contents (f->fault, words, -1, NULL));
}

static EcfsEndpoint *start (const Sshd *sshd, const char *more)
{
    static const EcfsMarker nothing;
    g_autoptr (GError) error = NULL;
    g_autofree char *url = sshd_url (sshd, sshd->root), *options = sshd_options (sshd);
    g_autofree char *text = g_strdup_printf ("x=%s,%s%s", url, options, more);
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, &error);
    g_assert_no_error (error);
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, &nothing, &error);
    g_assert_no_error (error);
    ecfs_endpoint_start (endpoint);
    return endpoint;
}

/* False: skipped. @filtered: lab's sftp-filter is in between, and patience is short. */
static bool set_up_with (Fixture *f, bool filtered)
{
    *f = (Fixture){.sshd = NULL};
    if (access (SFTP_SERVER, X_OK) != 0) {
        g_test_skip ("SKIPPED: there is no " SFTP_SERVER ": install openssh-sftp-server to run this test");
        return false;
    }
    g_autofree char *dir = g_dir_make_tmp ("ecfs-fault-XXXXXX", NULL);
    g_assert_nonnull (dir);
    f->fault = g_build_filename (dir, "fault", NULL);
    g_autofree char *extra =
        filtered ? g_strdup_printf ("ForceCommand /usr/bin/env ECFS_LAB_FAULT=%s " LAB_FILTER " " SFTP_SERVER, f->fault)
                 : g_strdup_printf ("ForceCommand /usr/bin/env LD_PRELOAD=%s ECFS_LAB_FAULT=%s " SFTP_SERVER, LAB_FAULT,
                                    f->fault);
    f->sshd = sshd_new (extra);
    if (f->sshd != NULL)
        f->endpoint = start (f->sshd, filtered ? ",connections=1,stall_timeout=500ms" : "");
    return f->sshd != NULL;
}

static bool set_up (Fixture *f)
{
    return set_up_with (f, false);
}

static void tear_down (Fixture *f)
{
    ecfs_endpoint_free (f->endpoint);
    sshd_free (f->sshd);
    g_autofree char *dir = g_path_get_dirname (f->fault);
    (void) unlink (f->fault); /* not every test makes it */
    g_assert_cmpint (rmdir (dir), ==, 0);
    g_free (f->fault);
}

/* A small file, which is committed in one go with its WRITEs, and one whose WRITEs are waited for. */
static const size_t sizes[] = {1000, 1000000};

static void try_write (Fixture *f, size_t size, const char *name, int code)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *bytes = g_strnfill (size, 'x'), *kept = NULL;
    g_autofree char *path = g_build_filename (f->sshd->root, name, NULL);
    gsize n_kept;
    (void) !ecfs_endpoint_write_wait (f->endpoint, name, bytes, size, &error); /* error says it */
    g_test_message ("%s", error != NULL ? error->message : "no error");
    g_assert_cmpint (ecfs_errno (error), ==, code);
    g_assert_true (g_file_get_contents (path, &kept, &n_kept, NULL) == (code == 0));
    if (code == 0)
        g_assert_true (n_kept == size && memcmp (kept, bytes, size) == 0);
}

/* As servers do that look before they have written what was sent before: it does not count. */
static void tells_the_size_too_early (void)
{
    Fixture f;
    if (!set_up (&f))
        return;
    for (int level = 1; level <= 2; level++) {
        fail (&f, "less", level);
        for (size_t i = 0; i < G_N_ELEMENTS (sizes); i++) {
            g_autofree char *name = g_strdup_printf ("some/where%d/%zu", level, sizes[i]);
            try_write (&f, sizes[i], name, 0);
        }
    }
    tear_down (&f);
}

static void keeps_less_than_it_acknowledges (void)
{
    Fixture f;
    if (!set_up (&f))
        return;
    fail (&f, "less", 3);
    for (size_t i = 0; i < G_N_ELEMENTS (sizes); i++)
        try_write (&f, sizes[i], "file", EIO);
    tear_down (&f);
}

static void check_space (Fixture *f, int code)
{
    uint64_t free_bytes;
    g_autoptr (GError) error = NULL;
    (void) !ecfs_endpoint_space_wait (f->endpoint, &free_bytes, &error); /* error says it */
    g_assert_cmpint (ecfs_errno (error), ==, code);
    EcfsEndpointHealth health;
    ecfs_endpoint_health (f->endpoint, &health);
    g_assert_true (health.space.asked);
    g_assert_true (health.space.told == (code != ENOTSUP));
    ecfs_endpoint_health_clear (&health);
}

/* What it cannot tell now does not mean that it never can. */
static void fails_to_tell_its_space (void)
{
    Fixture f;
    if (!set_up (&f))
        return;
    check_space (&f, 0);
    fail (&f, "statvfs", EIO);
    check_space (&f, EIO);
    fail (&f, "statvfs", EACCES);
    check_space (&f, EACCES);
    fail (&f, "statvfs", ENOSYS);
    check_space (&f, ENOTSUP);
    tear_down (&f);
}

static void try_read (Fixture *f, const char *name, size_t size, int code)
{
    g_autoptr (GError) error = NULL;
    g_autofree uint8_t *bytes = g_malloc0 (size);
    const EcfsRange range = {.size = size, .to = bytes};
    (void) !ecfs_endpoint_read_wait (f->endpoint, name, &range, 1, &error); /* error says it */
    g_test_message ("%s", error != NULL ? error->message : "no error");
    g_assert_cmpint (ecfs_errno (error), ==, code);
    g_assert_true (code != 0 || (bytes[0] == 'x' && bytes[size - 1] == 'x'));
}

/* Each answer comes at once, so that no silence ends it; but it would be for ever. */
static void sends_a_byte_at_a_time (void)
{
    Fixture f;
    const char *name = "stripes/abc/crawls";
    if (!set_up (&f))
        return;
    try_write (&f, sizes[1], name, 0);
    fail (&f, "crawl", 2000); /* servers may give less than was asked for */
    try_read (&f, name, sizes[1], 0);
    fail (&f, "crawl", 1);
    try_read (&f, name, sizes[1], ETIMEDOUT);
    try_read (&f, name, 10, 0); /* nor is it broken for who asks for little */
    fail (&f, "", 0);
    try_read (&f, name, sizes[1], 0);
    tear_down (&f);
}

static bool is_down (const Fixture *f)
{
    EcfsEndpointHealth health;
    ecfs_endpoint_health (f->endpoint, &health);
    bool down = health.down;
    ecfs_endpoint_health_clear (&health);
    return down;
}

/* Something comes all the time, so there is no silence; but no answer does in the end. */
static void drips (void)
{
    Fixture f;
    const char *name = "stripes/abc/drips";
    if (!set_up_with (&f, true))
        return;
    try_write (&f, sizes[0], name, 0);
    try_read (&f, name, 777, 0);
    fail (&f, "drip", 777);
    try_read (&f, name, 777, ETIMEDOUT);
    g_assert_true (is_down (&f));
    tear_down (&f);
}

static void on_read (void *user, const GError *error)
{
    atomic_store ((atomic_int *) user, error == NULL ? -1 : error->code);
}

/* Others are answered all the time, but one request never is. */
static void leaves_one_unanswered (void)
{
    Fixture f;
    const char *name = "stripes/abc/never";
    uint8_t bytes[777];
    atomic_int code = 0;
    if (!set_up_with (&f, true))
        return;
    try_write (&f, sizes[0], name, 0);
    fail (&f, "never", sizeof bytes);
    const EcfsRange range = {.size = sizeof bytes, .to = bytes};
    const EcfsSink sink = {.done = on_read, .user = &code};
    EcfsStream *stream = ecfs_endpoint_read (f.endpoint, name, &range, 1, 0, &sink);
    int64_t late_us = g_get_monotonic_time () + 60 * G_USEC_PER_SEC;
    while (atomic_load (&code) == 0 && g_get_monotonic_time () < late_us) {
        uint64_t size;
        (void) !ecfs_endpoint_size_wait (f.endpoint, name, &size, NULL); /* it ends when the other does */
    }
    g_assert_cmpint (atomic_load (&code), ==, ENOTCONN);
    ecfs_stream_unref (stream);
    g_assert_true (is_down (&f));
    tear_down (&f);
}

/* Logs */

/* Begins one and appends to it. */
static void begin_log (Fixture *f, Appender *log)
{
    appender_init (log);
    appender_begin (log, f->endpoint, "logs/log");
    g_assert_true (appender_append (log, 1000));
}

static void finish_log (Fixture *f, Appender *log, int code, uint64_t durable)
{
    g_autofree char *path = g_build_filename (f->sshd->root, "logs/log", NULL);
    g_assert_cmpint (appender_finish (log), ==, code);
    g_assert_cmpuint (log->acknowledged, ==, durable);
    (void) appender_check_file (log, path, false);
}

static void wait_for_size (const Fixture *f, int64_t size)
{
    g_autofree char *path = g_build_filename (f->sshd->root, "logs/log", NULL);
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    struct stat status;
    while (stat (path, &status) == 0 && status.st_size < size && ecfs_now_us () < deadline_us)
        g_usleep (1000);
    g_assert_cmpint (status.st_size, ==, size);
}

static void waits_for_the_disk (void)
{
    Fixture f;
    Appender log;
    if (!set_up (&f))
        return;
    begin_log (&f, &log);
    fail (&f, "hold", 0);
    appender_give (&log, 9000);
    wait_for_size (&f, 10000);
    for (unsigned i = 0; i < 100; i++) { /* all that comes while the disk is busy shares few flushes */
        appender_give (&log, 100);
        g_usleep (1000);
    }
    g_assert_cmpuint (appender_durable (&log), ==, 1000);
    fail (&f, "", 0);
    g_assert_true (appender_wait (&log, 20000));
    g_assert_cmpuint (log.n_flows, <=, 4);
    appender_end (&log, ECFS_PULL_END);
    finish_log (&f, &log, 0, 20000);
    tear_down (&f);
}

static void tells_of_a_disk_that_fails (void)
{
    Fixture f;
    Appender log;
    if (!set_up (&f))
        return;
    begin_log (&f, &log);
    fail (&f, "fsync", EIO);
    g_assert_false (appender_append (&log, 9000));
    finish_log (&f, &log, EIO, 1000);
    fail (&f, "", 0);
    try_write (&f, 1000, "stripes/another", 0);
    tear_down (&f);
}

static bool is_full (EcfsEndpoint *endpoint)
{
    EcfsEndpointHealth health;
    ecfs_endpoint_health (endpoint, &health);
    ecfs_endpoint_health_clear (&health);
    return health.full;
}

static void tells_of_a_full_disk (void)
{
    Fixture f;
    Appender log;
    if (!set_up (&f))
        return;
    begin_log (&f, &log);
    fail (&f, "full", 5000);
    g_assert_true (appender_append (&log, 4000));
    g_assert_false (appender_append (&log, 4000)); /* of which a part is written */
    finish_log (&f, &log, ENOSPC, 5000);
    g_assert_true (is_full (f.endpoint));
    tear_down (&f);
}

static void tells_of_a_server_that_keeps_less (void)
{
    Fixture f;
    Appender log;
    if (!set_up (&f))
        return;
    begin_log (&f, &log);
    fail (&f, "less", 3);
    g_assert_false (appender_append (&log, 9000));
    g_assert_nonnull (strstr (log.text, " 5000 of the 10000 bytes"));
    finish_log (&f, &log, EIO, 1000);
    tear_down (&f);
}

static void keeps_no_log_that_is_hidden (void)
{
    Fixture f;
    Appender log;
    if (!set_up (&f))
        return;
    fail (&f, "hide", 0);
    appender_init (&log);
    log.given = 1000;
    appender_begin (&log, f.endpoint, "logs/log");
    g_assert_cmpint (appender_finish (&log), ==, ENOTSUP);
    g_assert_cmpuint (log.pulled, ==, 0);
    g_autofree char *path = g_build_filename (f.sshd->root, "logs/log", NULL);
    g_assert_false (g_file_test (path, G_FILE_TEST_EXISTS));
    fail (&f, "", 0);
    begin_log (&f, &log); /* the name is free */
    appender_end (&log, ECFS_PULL_END);
    finish_log (&f, &log, 0, 1000);
    tear_down (&f);
}

static void gives_up_a_disk_that_hangs (void)
{
    Fixture f;
    Appender log;
    if (!set_up (&f))
        return;
    ecfs_endpoint_free (f.endpoint);
    f.endpoint = start (f.sshd, ",stall_timeout=1s");
    begin_log (&f, &log);
    fail (&f, "hold", 0);
    appender_give (&log, 9000);
    EcfsEndpointHealth health = {.suspect = false};
    while (!health.suspect && !appender_is_done (&log)) {
        ecfs_endpoint_health (f.endpoint, &health);
        ecfs_endpoint_health_clear (&health);
        g_usleep (1000);
    }
    g_assert_true (health.suspect);
    finish_log (&f, &log, ETIMEDOUT, 1000);
    g_assert_true (ecfs_endpoint_is_down (f.endpoint));
    tear_down (&f);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    g_test_add_func ("/sftp-server/tells-the-size-too-early", tells_the_size_too_early);
    g_test_add_func ("/sftp-server/keeps-less-than-it-acknowledges", keeps_less_than_it_acknowledges);
    g_test_add_func ("/sftp-server/fails-to-tell-its-space", fails_to_tell_its_space);
    g_test_add_func ("/sftp-server/sends-a-byte-at-a-time", sends_a_byte_at_a_time);
    g_test_add_func ("/sftp-server/drips", drips);
    g_test_add_func ("/sftp-server/leaves-one-unanswered", leaves_one_unanswered);
    g_test_add_func ("/sftp-server/a-log-waits-for-the-disk", waits_for_the_disk);
    g_test_add_func ("/sftp-server/a-log-ends-with-a-disk-that-fails", tells_of_a_disk_that_fails);
    g_test_add_func ("/sftp-server/a-log-ends-with-a-full-disk", tells_of_a_full_disk);
    g_test_add_func ("/sftp-server/a-log-ends-with-a-server-that-keeps-less", tells_of_a_server_that_keeps_less);
    g_test_add_func ("/sftp-server/keeps-no-log-that-is-hidden", keeps_no_log_that_is_hidden);
    g_test_add_func ("/sftp-server/a-log-gives-up-a-disk-that-hangs", gives_up_a_disk_that_hangs);
    return g_test_run ();
}
