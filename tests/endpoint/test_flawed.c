/* The endpoint in which operations go wrong on command does to each what its rules say, and nothing else. */
#include "../lab/flawed.h"
#include "../lab/flaws.h"
#include "appender.h"
#include "program/program.h"
#include "util/io.h"
#include "util/lock.h"

#include <string.h>

#define SIZE 100000

typedef struct Fixture {
    char *base, *rules;
    EcfsEndpoint *endpoint;
    uint8_t written[SIZE], got[SIZE];
} Fixture;

static void begin (Fixture *self)
{
    g_autoptr (GError) error = NULL;
    *self = (Fixture){.base = g_dir_make_tmp ("ecfs-flawed-XXXXXX", &error)};
    g_assert_no_error (error);
    self->rules = g_build_filename (self->base, "rules", NULL);
    for (size_t i = 0; i < SIZE; i++)
        self->written[i] = (uint8_t) (i * 31 + i / 251);
    g_autofree char *text =
        g_strdup_printf ("a=flaw+file://%s/root,flaws=%s,stall_timeout=60s", self->base, self->rules);
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, &error);
    g_assert_no_error (error);
    EcfsMarker marker = {.epoch = 1, .archive = {.bytes = {1}}, .endpoint = {.bytes = {2}}};
    self->endpoint = ecfs_endpoint_new (spec, &(EcfsMarker){.epoch = 0}, &error);
    g_assert_no_error (error);
    ecfs_endpoint_start (self->endpoint);
    ecfs_endpoint_mark_wait (self->endpoint, &marker, true, &error);
    g_assert_no_error (error);
}

static void end (Fixture *self)
{
    ecfs_endpoint_free (self->endpoint);
    const char *remove[] = {"rm", "-rf", self->base, NULL};
    g_spawn_sync (NULL, (char **) remove, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, NULL, NULL);
    g_free (self->base);
    g_free (self->rules);
}

static void rules (Fixture *self, const char *text)
{
    g_autoptr (GError) error = NULL;
    g_file_set_contents (self->rules, text, -1, &error);
    g_assert_no_error (error);
}

static int write_file (Fixture *self, const char *name)
{
    g_autoptr (GError) error = NULL;
    return ecfs_endpoint_write_wait (self->endpoint, name, self->written, SIZE, &error) ? 0 : error->code;
}

static int read_some (Fixture *self, const char *name, size_t size)
{
    g_autoptr (GError) error = NULL;
    EcfsRange range = {.offset = 0, .size = size, .to = self->got};
    memset (self->got, 0, SIZE);
    return ecfs_endpoint_read_wait (self->endpoint, name, &range, 1, &error) ? 0 : error->code;
}

static int read_file (Fixture *self, const char *name)
{
    return read_some (self, name, SIZE);
}

static unsigned n_wrong (const Fixture *self)
{
    unsigned n = 0;
    for (size_t i = 0; i < SIZE; i++)
        n += self->got[i] != self->written[i];
    return n;
}

static void test_none (void)
{
    Fixture self;
    begin (&self);
    g_assert_cmpint (write_file (&self, "x"), ==, 0);
    g_assert_cmpint (read_file (&self, "x"), ==, 0);
    g_assert_cmpuint (n_wrong (&self), ==, 0);
    end (&self);
}

static void test_fail (void)
{
    Fixture self;
    begin (&self);
    rules (&self, "# once, and for good\nread 2 fail 5\nwrite 2+ fail 28\n");
    g_assert_cmpint (write_file (&self, "x"), ==, 0);
    g_assert_cmpint (write_file (&self, "y"), ==, ENOSPC);
    g_assert_cmpint (write_file (&self, "y"), ==, ENOSPC);
    g_assert_cmpint (read_file (&self, "x"), ==, 0);
    g_assert_cmpint (read_file (&self, "x"), ==, EIO);
    g_assert_cmpint (read_file (&self, "x"), ==, 0);
    rules (&self, "");
    g_assert_cmpint (write_file (&self, "y"), ==, 0);
    end (&self);
}

static void test_bytes (void)
{
    Fixture self;
    begin (&self);
    rules (&self, "write 1 flip\nwrite 2 truncate\nread 4 flip\nread 5 truncate\n");
    g_assert_cmpint (write_file (&self, "flipped"), ==, 0);
    g_assert_cmpint (write_file (&self, "half"), ==, 0);
    g_assert_cmpint (write_file (&self, "good"), ==, 0);
    g_assert_cmpint (read_file (&self, "flipped"), ==, 0);
    g_assert_cmpuint (n_wrong (&self), ==, 1);
    g_assert_cmpint (read_file (&self, "half"), ==, EBADMSG);
    g_assert_cmpint (read_some (&self, "half", SIZE / 2), ==, 0);
    g_assert_cmpmem (self.got, SIZE / 2, self.written, SIZE / 2);
    g_assert_cmpint (read_file (&self, "good"), ==, 0);
    g_assert_cmpuint (n_wrong (&self), ==, 1);
    g_assert_cmpint (read_file (&self, "good"), ==, EBADMSG);
    g_assert_cmpint (read_file (&self, "good"), ==, 0);
    g_assert_cmpuint (n_wrong (&self), ==, 0);
    end (&self);
}

typedef struct Waited {
    EcfsMutex lock;
    EcfsCond cond;
    bool done; /* guarded by lock, like all below */
    int code;
    unsigned n_listed;
} Waited;

static void waited_init (Waited *self)
{
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->cond);
    self->done = false;
    self->n_listed = 0;
}

static void set_done (Waited *self, const GError *error)
{
    ecfs_mutex_lock (&self->lock);
    self->done = true;
    self->code = error == NULL ? 0 : error->code;
    ecfs_cond_signal (&self->cond);
    ecfs_mutex_unlock (&self->lock);
}

static void count (void *user, const EcfsListed *listed)
{
    Waited *self = user;
    (void) listed;
    ecfs_mutex_lock (&self->lock);
    self->n_listed++;
    ecfs_mutex_unlock (&self->lock);
}

static void on_value (void *user, uint64_t value, const GError *error)
{
    (void) value;
    set_done (user, error);
}

static void on_done (void *user, const GError *error)
{
    set_done (user, error);
}

static int wait_done (Waited *self)
{
    ecfs_mutex_lock (&self->lock);
    while (!self->done)
        (void) ecfs_cond_wait_until (&self->cond, &self->lock, ecfs_now_us () + G_USEC_PER_SEC);
    int code = self->code;
    ecfs_mutex_unlock (&self->lock);
    return code;
}

static void waited_clear (Waited *self)
{
    ecfs_cond_clear (&self->cond);
    ecfs_mutex_clear (&self->lock);
}

static unsigned n_listed (Fixture *self)
{
    Waited waited;
    waited_init (&waited);
    ecfs_endpoint_list (self->endpoint, "", count, on_value, &waited);
    g_assert_cmpint (wait_done (&waited), ==, 0);
    waited_clear (&waited);
    return waited.n_listed;
}

static void test_hang (void)
{
    Fixture self;
    begin (&self);
    g_assert_cmpint (write_file (&self, "x"), ==, 0);
    rules (&self, "read 1 hang\nread 2 delay 150\n");
    Waited hung, delayed;
    waited_init (&hung);
    waited_init (&delayed);
    uint8_t other[10];
    EcfsRange first = {.size = 10, .to = self.got}, second = {.size = 10, .to = other};
    EcfsStream *hanging =
        ecfs_endpoint_read (self.endpoint, "x", &first, 1, 0, &(EcfsSink){.done = on_done, .user = &hung});
    int64_t begin_us = ecfs_now_us ();
    EcfsStream *late =
        ecfs_endpoint_read (self.endpoint, "x", &second, 1, 0, &(EcfsSink){.done = on_done, .user = &delayed});
    g_assert_cmpint (wait_done (&delayed), ==, 0);
    g_assert_cmpint (ecfs_now_us () - begin_us, >=, 150000);
    g_assert_cmpmem (other, 10, self.written, 10);
    ecfs_mutex_lock (&hung.lock);
    g_assert_false (hung.done);
    ecfs_mutex_unlock (&hung.lock);
    ecfs_stream_cancel (hanging);
    g_assert_cmpint (wait_done (&hung), ==, ECANCELED);
    ecfs_stream_unref (hanging);
    ecfs_stream_unref (late);
    waited_clear (&hung);
    waited_clear (&delayed);
    end (&self);
}

static void test_stale (void)
{
    Fixture self;
    begin (&self);
    g_assert_cmpint (write_file (&self, "x"), ==, 0);
    rules (&self, "read 1 stale\nlist 2 stale\n");
    g_assert_cmpint (read_file (&self, "x"), ==, ENOENT);
    g_assert_cmpint (read_file (&self, "x"), ==, 0);
    g_assert_cmpuint (n_listed (&self), ==, 1);
    g_assert_cmpint (write_file (&self, "y"), ==, 0);
    g_assert_cmpuint (n_listed (&self), ==, 1);
    g_assert_cmpuint (n_listed (&self), ==, 2);
    end (&self);
}

static void begin_log (Fixture *self, Appender *log, const char *name)
{
    appender_init (log);
    appender_begin (log, self->endpoint, name);
}

static void test_logs (void)
{
    Fixture self;
    Appender log;
    begin (&self);
    rules (&self, "log 2 fail 28\nappend 3 fail 5\nappend 6 delay 150\nappend 8 hang\nappend 10 truncate\n");
    begin_log (&self, &log, "fails");
    g_assert_true (appender_append (&log, 1000) && appender_append (&log, 1000));
    g_assert_false (appender_append (&log, 1000));
    g_assert_cmpint (appender_finish (&log), ==, EIO);
    g_assert_cmpuint (log.acknowledged, ==, 2000);
    begin_log (&self, &log, "is-not-begun");
    g_assert_cmpint (appender_finish (&log), ==, ENOSPC);
    begin_log (&self, &log, "is-delayed");
    g_assert_true (appender_append (&log, 1000) && appender_append (&log, 1000));
    int64_t begin_us = ecfs_now_us ();
    g_assert_true (appender_append (&log, 1000));
    g_assert_cmpint (ecfs_now_us () - begin_us, >=, 150000);
    appender_end (&log, ECFS_PULL_END);
    g_assert_cmpint (appender_finish (&log), ==, 0);
    begin_log (&self, &log, "hangs");
    g_assert_true (appender_append (&log, 1000));
    appender_give (&log, 1000);
    g_assert_cmpint (write_file (&self, "x"), ==, 0); /* others do not wait */
    g_assert_cmpuint (appender_durable (&log), ==, 1000);
    ecfs_stream_cancel (log.stream);
    g_assert_cmpint (appender_finish (&log), ==, ECANCELED);
    begin_log (&self, &log, "is-torn");
    g_assert_true (appender_append (&log, 1000));
    g_assert_false (appender_append (&log, 1000));
    g_assert_cmpint (appender_finish (&log), ==, EIO);
    g_autofree char *path = g_build_filename (self.base, "root", "is-torn", NULL);
    g_assert_cmpuint (appender_check_file (&log, path, false), ==, 1500);
    end (&self);
}

static void draw (Flaws *flaws, bool *ret_met)
{
    for (unsigned i = 0; i < 1000; i++)
        ret_met[i] = flaws_next (flaws, i % 3 == 0 ? "write" : "read").kind == FLAW_DELAY;
}

static void test_replay (void)
{
    Fixture self;
    begin (&self);
    bool first[1000], second[1000];
    unsigned n = 0;
    rules (&self, "seed 5\nread 10% delay 100\n");
    Flaws *one = flaws_new (self.rules), *two = flaws_new (self.rules);
    draw (one, first);
    draw (two, second);
    g_assert_cmpmem (first, sizeof first, second, sizeof second);
    for (unsigned i = 0; i < 1000; i++)
        n += first[i];
    g_assert_cmpuint (n, >, 40);
    g_assert_cmpuint (n, <, 95);
    flaws_free (one);
    flaws_free (two);
    flaws_free (NULL);
    end (&self);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL);
    flawed_register ();
    g_test_add_func ("/flawed/without-rules-nothing-is-wrong", test_none);
    g_test_add_func ("/flawed/operations-fail-once-or-for-good", test_fail);
    g_test_add_func ("/flawed/bytes-are-wrong-or-missing", test_bytes);
    g_test_add_func ("/flawed/what-hangs-or-is-delayed-holds-up-nothing-else", test_hang);
    g_test_add_func ("/flawed/answers-are-stale", test_stale);
    g_test_add_func ("/flawed/appends-fail-hang-and-are-torn", test_logs);
    g_test_add_func ("/flawed/a-seed-replays", test_replay);
    return g_test_run ();
}
