/* Logs: what was told to be durable is there, whatever else happens to them and beside them. */
#include "appender.h"
#include "conformance_priv.h"
#include "transfer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KIB ((size_t) 1024)
#define MIB (1024 * KIB)

static char *path_of (const Fixture *self, const char *name)
{
    return g_build_filename (self->path, name, NULL);
}

/* Begins a log and waits until it is there. */
static void begin (Fixture *self, Appender *log, const char *name)
{
    appender_init (log);
    appender_begin (log, self->endpoint, name);
    g_assert_true (appender_wait_begun (log));
}

static void check (const Fixture *self, Appender *log, const char *name)
{
    g_autofree char *path = path_of (self, name);
    (void) appender_check_file (log, path, true);
}

static void check_whole (const Fixture *self, Appender *log, const char *name)
{
    g_autofree char *path = path_of (self, name);
    g_assert_cmpuint (appender_check_file (log, path, false), ==, log->given);
}

static unsigned mode_of (const Fixture *self, const char *name)
{
    g_autofree char *path = path_of (self, name);
    struct stat status;
    g_assert_cmpint (stat (path, &status), ==, 0);
    return status.st_mode & 0777;
}

static uint64_t size_of (Fixture *self, const char *name)
{
    g_autoptr (GError) error = NULL;
    uint64_t size = 0;
    ecfs_endpoint_size_wait (self->endpoint, name, &size, &error);
    g_assert_no_error (error);
    return size;
}

static void test_grows (Fixture *self, gconstpointer row)
{
    static const size_t sizes[] = {1, 100, 9 * KIB, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 300001, 5 * MIB + 3, 7};
    g_autoptr (GError) error = NULL;
    g_autofree char *incoming = path_of (self, "incoming");
    Appender log;
    begin (self, &log, "logs/a/b/grows");
    g_assert_cmpuint (size_of (self, "logs/a/b/grows"), ==, 0);
    for (size_t i = 0; i < G_N_ELEMENTS (sizes); i++) {
        g_assert_true (appender_append (&log, sizes[i]));
        g_assert_cmpuint (size_of (self, "logs/a/b/grows"), ==, log.given);
        check_whole (self, &log, "logs/a/b/grows"); /* it is seen while it grows */
    }
    (void) rmdir (incoming); /* fails where anything is in it, or it is not there */
    g_assert_false (g_file_test (incoming, G_FILE_TEST_EXISTS));
    appender_end (&log, ECFS_PULL_END);
    g_assert_cmpint (appender_finish (&log), ==, 0);
    check_whole (self, &log, "logs/a/b/grows");
    ecfs_endpoint_write_wait (self->endpoint, "stripe", "x", 1, &error);
    g_assert_no_error (error);
    g_assert_cmpuint (mode_of (self, "logs/a/b/grows"), ==, mode_of (self, "stripe"));
}

static void test_empty (Fixture *self, gconstpointer row)
{
    Appender log;
    appender_init (&log);
    log.then = ECFS_PULL_END;
    appender_begin (&log, self->endpoint, "empty");
    g_assert_cmpint (appender_finish (&log), ==, 0);
    g_assert_cmpuint (size_of (self, "empty"), ==, 0);
}

/* None waits for the one before. */
static void test_pipelined (Fixture *self, gconstpointer row)
{
    enum { N = 3000, SIZE = 977 };
    Appender log;
    begin (self, &log, "pipelined");
    log.chunk = SIZE;
    for (unsigned i = 0; i < N; i++)
        appender_give (&log, SIZE);
    g_assert_true (appender_wait (&log, N * SIZE));
    check_whole (self, &log, "pipelined");
    for (unsigned i = 0; i < 50; i++) {
        appender_give (&log, SIZE);
        g_assert_true (appender_wait (&log, log.given - MIN (i, 3) * SIZE));
    }
    appender_end (&log, ECFS_PULL_END);
    g_assert_cmpint (appender_finish (&log), ==, 0);
    check_whole (self, &log, "pipelined");
    g_assert_cmpuint (log.n_flows, <=, N + 50);
}

/* Without a pause in which it would be said to be durable. */
static void test_without_rest (Fixture *self, gconstpointer row)
{
    Appender log;
    appender_init (&log);
    log.chunk = 200001;
    log.given = 24 * MIB;
    log.then = ECFS_PULL_END;
    appender_begin (&log, self->endpoint, "bulk");
    g_assert_cmpint (appender_finish (&log), ==, 0);
    g_assert_cmpuint (log.n_flows, >, 1); /* the source's memory is not kept until the end */
    check_whole (self, &log, "bulk");
}

static void test_beside_others (Fixture *self, gconstpointer row)
{
    enum { N_LOGS = 4, N = 4, ROUNDS = 40 };
    const size_t size = 3 * MIB;
    g_autofree uint8_t *bytes = test_bytes (size, 1), *back = g_malloc (N * size);
    g_autoptr (GError) error = NULL;
    Appender logs[N_LOGS];
    Transfer writes[N], reads[N];
    ecfs_endpoint_write_wait (self->endpoint, "beside/read", bytes, size, &error);
    g_assert_no_error (error);
    for (unsigned i = 0; i < N_LOGS; i++) {
        g_autofree char *name = g_strdup_printf ("beside/log-%u", i);
        begin (self, &logs[i], name);
    }
    for (unsigned i = 0; i < N; i++) {
        transfer_init (&writes[i], self->endpoint);
        transfer_init (&reads[i], self->endpoint);
        g_autofree char *name = g_strdup_printf ("beside/write-%u", i);
        transfer_write (&writes[i], name, bytes, size);
        reads[i].ranges[0] = (EcfsRange){0, size, back + i * size};
        reads[i].n_ranges = 1;
        transfer_read (&reads[i], "beside/read", 0);
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        for (unsigned j = 0; j < N_LOGS; j++)
            appender_give (&logs[j], 5000 + i + j);
        for (unsigned j = 0; j < N_LOGS; j++)
            g_assert_true (appender_wait (&logs[j], logs[j].given));
    }
    for (unsigned i = 0; i < N; i++) {
        g_assert_cmpint (transfer_finish (&writes[i]), ==, 0);
        g_assert_cmpint (transfer_finish (&reads[i]), ==, 0);
        g_assert_cmpmem (back + i * size, size, bytes, size);
    }
    for (unsigned i = 0; i < N_LOGS; i++) {
        g_autofree char *name = g_strdup_printf ("beside/log-%u", i);
        appender_end (&logs[i], ECFS_PULL_END);
        g_assert_cmpint (appender_finish (&logs[i]), ==, 0);
        check_whole (self, &logs[i], name);
    }
    conformance_holds (self, "beside/write-3", bytes, size);
}

/* More of them than a connection serves at a time. */
static void test_parked_block_nobody (Fixture *self, gconstpointer row)
{
    enum { N = 40 };
    Appender logs[N];
    g_autoptr (GError) error = NULL;
    for (unsigned i = 0; i < N; i++) {
        g_autofree char *name = g_strdup_printf ("parked/%u", i);
        begin (self, &logs[i], name);
    }
    ecfs_endpoint_write_wait (self->endpoint, "other", "content", 7, &error);
    g_assert_no_error (error);
    conformance_holds (self, "other", (const uint8_t *) "content", 7);
    for (unsigned i = 0; i < N; i++)
        g_assert_true (appender_append (&logs[i], 100 * i + 1));
    for (unsigned i = 0; i < N; i++) {
        g_autofree char *name = g_strdup_printf ("parked/%u", i);
        appender_end (&logs[i], ECFS_PULL_END);
        g_assert_cmpint (appender_finish (&logs[i]), ==, 0);
        check_whole (self, &logs[i], name);
    }
}

static int try_log (Fixture *self, const char *name)
{
    Appender log;
    appender_init (&log);
    log.given = 100;
    log.then = ECFS_PULL_END;
    appender_begin (&log, self->endpoint, name);
    int code = appender_finish (&log);
    g_assert_true (code == 0 || log.pulled == 0);
    return code;
}

static void test_never_replaces (Fixture *self, gconstpointer row)
{
    g_autoptr (GError) error = NULL;
    Appender log, other;
    ecfs_endpoint_write_wait (self->endpoint, "d/stored", "content", 7, &error);
    g_assert_no_error (error);
    g_assert_cmpint (try_log (self, "d/stored"), ==, EEXIST);
    conformance_holds (self, "d/stored", (const uint8_t *) "content", 7);
    g_assert_cmpint (try_log (self, "d"), ==, EEXIST);
    begin (self, &log, "d/log");
    g_assert_true (appender_append (&log, 3000));
    g_assert_cmpint (try_log (self, "d/log"), ==, EEXIST);
    appender_init (&other);
    appender_begin (&other, self->endpoint, "d/log");
    g_assert_cmpint (appender_finish (&other), ==, EEXIST);
    g_assert_true (appender_append (&log, 3000));
    appender_end (&log, ECFS_PULL_END);
    g_assert_cmpint (appender_finish (&log), ==, 0);
    check_whole (self, &log, "d/log");
    g_assert_cmpint (try_log (self, "d/log"), ==, EEXIST); /* what has ended is not begun again */
    check_whole (self, &log, "d/log");
}

static void test_names (Fixture *self, gconstpointer row)
{
    static const char *const bad[] = {"", "../up", "a//b", "A", ECFS_MARKER_NAME};
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++)
        g_assert_cmpint (try_log (self, bad[i]), ==, EINVAL);
}

/* Ends a log that is parked, or with bytes under way; what is durable stays. */
static void give_up (Fixture *self, bool cancels, bool parked)
{
    g_autofree char *name = g_strdup_printf ("given-up/%d-%d", cancels, parked);
    Appender log;
    begin (self, &log, name);
    g_assert_true (appender_append (&log, 30000));
    if (!parked)
        appender_give (&log, 8 * MIB);
    if (cancels)
        ecfs_stream_cancel (log.stream);
    else
        appender_end (&log, ECFS_PULL_ABORT);
    g_assert_cmpint (appender_finish (&log), ==, ECANCELED);
    if (parked)
        check_whole (self, &log, name);
    check (self, &log, name);
}

static void test_given_up (Fixture *self, gconstpointer row)
{
    for (unsigned i = 0; i < 4; i++)
        give_up (self, i % 2 != 0, i / 2 != 0);
    Appender queued;
    appender_init (&queued);
    appender_begin (&queued, self->endpoint, "given-up/queued");
    ecfs_stream_cancel (queued.stream);
    g_assert_cmpint (appender_finish (&queued), ==, ECANCELED);
    EcfsEndpointHealth health;
    ecfs_endpoint_health (self->endpoint, &health);
    g_assert_false (health.down || health.refuses);
    ecfs_endpoint_health_clear (&health);
}

static void test_stop (Fixture *self, gconstpointer row)
{
    enum { N = 4 };
    Appender logs[N];
    for (unsigned i = 0; i < N; i++) {
        g_autofree char *name = g_strdup_printf ("stopped/%u", i);
        begin (self, &logs[i], name);
        g_assert_true (appender_append (&logs[i], 10000));
    }
    for (unsigned i = 0; i < N / 2; i++)
        appender_give (&logs[i], 8 * MIB);
    ecfs_endpoint_stop (self->endpoint);
    for (unsigned i = 0; i < N; i++) {
        g_autofree char *name = g_strdup_printf ("stopped/%u", i);
        g_assert_cmpuint (logs[i].n_done, ==, 1); /* stop waited for all callbacks */
        g_assert_cmpint (appender_finish (&logs[i]), ==, ECANCELED);
        check (self, &logs[i], name);
    }
}

static void test_removed (Fixture *self, gconstpointer row)
{
    g_autofree char *path = path_of (self, "removed");
    Appender log;
    begin (self, &log, "removed");
    g_assert_true (appender_append (&log, 1000));
    g_assert_cmpint (unlink (path), ==, 0);
    g_assert_false (appender_append (&log, 1000));
    g_assert_cmpint (appender_finish (&log), ==, EIO);
    g_assert_cmpuint (log.acknowledged, ==, 1000);
    g_assert_cmpint (try_log (self, "another"), ==, 0);
}

/* A directory that is unmounted behind a log: where nobody finds it nothing is durable. */
static void test_root_exchanged (Fixture *self, gconstpointer row)
{
    g_autofree char *away = g_strconcat (self->path, "-away", NULL);
    Appender log, other;
    begin (self, &log, "log");
    g_assert_true (appender_append (&log, 1000));
    g_assert_cmpint (rename (self->path, away), ==, 0);
    g_assert_cmpint (mkdir (self->path, 0700), ==, 0);
    g_assert_false (appender_append (&log, 1000));
    int code = appender_finish (&log);
    g_assert_true (code == ENOTCONN || (code == EIO && self->row->is_nested)); /* which knows no marker */
    g_assert_cmpuint (log.acknowledged, ==, 1000);
    appender_init (&other);
    other.given = 1000;
    appender_begin (&other, self->endpoint, "other");
    if (self->row->is_sure) {
        g_assert_cmpint (appender_finish (&other), ==, ENOTCONN);
        g_assert_cmpint (rmdir (self->path), ==, 0); /* nothing was put there */
    } else {
        appender_end (&other, ECFS_PULL_END);
        (void) appender_finish (&other);
    }
}

static void test_made_elsewhere (Fixture *self, gconstpointer row)
{
    g_autofree char *away = g_strconcat (self->path, "-away", NULL);
    g_autofree char *logs = path_of (self, "logs");
    g_assert_cmpint (try_log (self, "logs/first"), ==, 0);
    g_assert_cmpint (rename (self->path, away), ==, 0);
    g_assert_cmpint (g_mkdir_with_parents (logs, 0700), ==, 0);
    g_assert_cmpint (try_log (self, "logs/second"), ==, ENOTCONN);
    g_assert_cmpint (try_log (self, "logs/third"), ==, ENOTCONN);
    g_assert_cmpint (rmdir (logs), ==, 0); /* nothing was left there */
}

static void test_unsupported (Fixture *self, gconstpointer row)
{
    EcfsMarker found;
    g_autoptr (GError) error = NULL;
    ecfs_endpoint_examine_wait (self->endpoint, &found, &error); /* capabilities are known when connected */
    g_assert_no_error (error);
    g_assert_cmpuint (ecfs_endpoint_capabilities (self->endpoint) & ECFS_CAN_LOG, ==, 0);
    g_assert_cmpint (try_log (self, "logs/none"), ==, ENOTSUP);
    uint64_t size;
    g_assert_false (ecfs_endpoint_size_wait (self->endpoint, "logs/none", &size, &error));
    g_assert_error (error, ECFS_ERROR, ENOENT);
    EcfsEndpointHealth health;
    ecfs_endpoint_health (self->endpoint, &health);
    g_assert_false (health.down || health.refuses);
    ecfs_endpoint_health_clear (&health);
}

static void test_supported (Fixture *self, gconstpointer row)
{
    g_assert_cmpint (try_log (self, "logs/some"), ==, 0);
    g_assert_cmpuint (ecfs_endpoint_capabilities (self->endpoint) & ECFS_CAN_LOG, !=, 0);
}

/* On a line that comes and goes */

static void tell (const Fixture *self, const char *command)
{
    lab_proxy_tell (self->row->proxy, command);
}

static void test_cut_in_a_burst (Fixture *self, gconstpointer row)
{
    for (unsigned i = 0; i < 5; i++) {
        g_autofree char *name = g_strdup_printf ("cut/%u", i);
        Appender log;
        begin (self, &log, name);
        log.chunk = 9000;
        tell (self, "throttle 20000000");
        g_assert_true (appender_append (&log, 9000));
        appender_give (&log, 4 * MIB);
        g_assert_true (appender_wait (&log, 100000 * (i + 1)));
        tell (self, "cut");
        g_assert_cmpint (appender_finish (&log), ==, ENOTCONN);
        tell (self, "throttle 0");
        g_assert_cmpuint (log.acknowledged, <, log.given);
        check (self, &log, name);
    }
    g_assert_cmpint (try_log (self, "cut/after"), ==, 0);
}

static void test_cut_when_parked (Fixture *self, gconstpointer row)
{
    for (unsigned i = 0; i < 4; i++) { /* so many losses at work in a row, and it would be down */
        g_autofree char *name = g_strdup_printf ("parked/%u", i);
        Appender log;
        begin (self, &log, name);
        g_assert_true (appender_append (&log, 9000));
        tell (self, "cut");
        g_assert_cmpint (appender_finish (&log), ==, ENOTCONN);
        check_whole (self, &log, name);
        g_assert_false (ecfs_endpoint_is_down (self->endpoint));
    }
}

static void wait_suspect (Fixture *self)
{
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    for (EcfsEndpointHealth health = {.suspect = false}; !health.suspect; g_usleep (2000)) {
        ecfs_endpoint_health (self->endpoint, &health);
        ecfs_endpoint_health_clear (&health);
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_assert_false (health.down);
    }
}

/* What nobody answers in the middle of an append. */
static void test_stall (Fixture *self, gconstpointer row)
{
    conformance_become_impatient (self, "stall_timeout=2s,connections=1");
    Appender log, parked;
    begin (self, &log, "stalled/log");
    begin (self, &parked, "stalled/parked");
    g_assert_true (appender_append (&log, 9000));
    g_assert_true (appender_append (&parked, 9000));
    tell (self, "stall");
    appender_give (&log, 9000);
    wait_suspect (self);
    g_assert_cmpint (appender_finish (&log), ==, ETIMEDOUT);
    g_assert_cmpint (appender_finish (&parked), ==, ENOTCONN); /* it owed nothing */
    g_assert_cmpuint (log.acknowledged, ==, 9000);
    g_assert_true (ecfs_endpoint_is_down (self->endpoint));
    tell (self, "resume");
    conformance_wait_readable (self, "stalled/log");
    check (self, &log, "stalled/log");
    check_whole (self, &parked, "stalled/parked");
    g_assert_cmpint (try_log (self, "stalled/after"), ==, 0);
}

typedef struct Case {
    const char *name;
    void (*test) (Fixture *, gconstpointer);
} Case;

static void add_cases (const ConformanceRow *row, const Case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        g_autofree char *path = g_strdup_printf ("/conformance/%s/%s", row->name, cases[i].name);
        g_test_add (path, Fixture, row, conformance_set_up, cases[i].test, conformance_tear_down);
    }
}

void conformance_add_log (const ConformanceRow *row)
{
    static const Case without[] = {{"says-that-it-keeps-no-logs", test_unsupported}};
    static const Case with[] = {
        {"says-that-it-keeps-logs", test_supported},
        {"a-log-holds-what-was-appended", test_grows},
        {"a-log-may-be-empty", test_empty},
        {"a-log-takes-appends-without-pause", test_pipelined},
        {"a-log-takes-bytes-without-rest", test_without_rest},
        {"logs-grow-beside-others", test_beside_others},
        {"parked-logs-block-nobody", test_parked_block_nobody},
        {"a-log-never-replaces", test_never_replaces},
        {"a-log-takes-no-name-that-leaves-the-root", test_names},
        {"a-log-given-up-stays-as-it-is", test_given_up},
        {"stops-with-open-logs", test_stop},
        {"a-log-that-was-removed-is-not-durable", test_removed},
        {"a-log-in-an-exchanged-root-is-not-durable", test_root_exchanged},
    };
    static const Case sure[] = {{"no-log-is-made-where-there-is-no-marker", test_made_elsewhere}};
    static const Case network[] = {
        {"a-log-cut-in-a-burst-holds-what-was-told", test_cut_in_a_burst},
        {"a-log-cut-when-parked-loses-nothing", test_cut_when_parked},
        {"a-log-on-a-line-that-stands-still-ends", test_stall},
    };
    if (!row->logs) {
        add_cases (row, without, G_N_ELEMENTS (without));
        return;
    }
    add_cases (row, with, G_N_ELEMENTS (with));
    if (row->is_sure)
        add_cases (row, sure, G_N_ELEMENTS (sure));
    if (row->proxy != NULL)
        add_cases (row, network, G_N_ELEMENTS (network));
}
