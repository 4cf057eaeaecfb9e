/* Logs among the other requests of an endpoint: those without anything to do are in nobody's way. */
#include "appender.h"
#include "endpoint/core/core.h"
#include "program/program.h"
#include "transfer.h"

#define PIPELINED 4

/* logging://: logs are durable as soon as they are pulled, unless their disk is held; other requests succeed at once,
 * but for files named "stuck", which hang, and "break". */
typedef struct Connection {
    EcfsSlot *slot;
    GQueue logs; /* EcfsStream */
    bool owes;   /* for good */
} Connection;

static atomic_uint n_connected;
static atomic_bool holds; /* nothing becomes durable */
static atomic_bool refuses;

static void *new_config (const EcfsEndpointSpec *spec, GError **error)
{
    return g_strdup (spec->url);
}

static void *logging_connect (EcfsSlot *slot, bool make_root, GError **error)
{
    if (atomic_load (&refuses))
        return g_set_error (error, ECFS_ERROR, ECONNREFUSED, "nobody listens"), NULL;
    atomic_fetch_add (&n_connected, 1);
    Connection *self = g_new0 (Connection, 1);
    self->slot = slot;
    g_queue_init (&self->logs);
    ecfs_slot_capabilities (slot, ECFS_CAN_LOG);
    return self;
}

static void log_end (Connection *self, EcfsStream *request, int code)
{
    g_queue_remove (&self->logs, request);
    if (code == 0)
        ecfs_request_finish (request, 0, NULL);
    else
        ecfs_request_fail (request, code, "%s", g_strerror (code));
}

/* Moves a log on; whether it waits for its disk. */
static bool log_step (Connection *self, EcfsStream *request)
{
    const uint8_t *bytes;
    size_t size;
    EcfsPull answer;
    while ((answer = ecfs_request_pull (request, &bytes, &size)) == ECFS_PULL_BYTES)
        ;
    if (answer == ECFS_PULL_ABORT) {
        log_end (self, request, ECANCELED);
        return false;
    }
    if (atomic_load (&holds) && request->pulled > request->acknowledged)
        return true;
    if (request->pulled > request->acknowledged)
        ecfs_request_acknowledge (request, request->pulled);
    if (answer == ECFS_PULL_END)
        log_end (self, request, 0);
    return false;
}

/* False: the connection breaks. */
static bool begin (Connection *self, EcfsStream *request, GError **error)
{
    if (g_strcmp0 (request->name, "break") == 0)
        return ecfs_fail (error, ECONNRESET, "broken on demand");
    if (request->kind == ECFS_REQUEST_LOG)
        g_queue_push_tail (&self->logs, request);
    else if (g_strcmp0 (request->name, "stuck") == 0)
        self->owes = true;
    else
        ecfs_request_finish (request, 0, NULL);
    return true;
}

static bool logging_serve (EcfsSlot *slot, void *connection, GError **error)
{
    Connection *self = connection;
    bool owed = false;
    while (ecfs_slot_check (slot, error)) {
        EcfsStream *request = ecfs_slot_take (slot);
        if (request != NULL && !begin (self, request, error))
            return false;
        bool owes = self->owes;
        for (GList *at = self->logs.head, *next; at != NULL; at = next) {
            next = at->next;
            owes |= log_step (self, at->data);
        }
        if (owes != owed)
            ecfs_slot_owed (slot, owes ? ECFS_OWES_SYNC : ECFS_OWES_NOTHING);
        owed = owes;
        if (request == NULL) /* who holds the disk does not tell */
            (void) ecfs_slot_wait (slot, ecfs_now_us () + (owes ? 2000 : TRANSFER_TIMEOUT_US));
    }
    return false;
}

static void logging_disconnect (void *connection)
{
    Connection *self = connection;
    g_queue_clear (&self->logs);
    g_free (self);
}

static EcfsEndpoint *start (const char *options)
{
    static const EcfsMarker nothing;
    g_autoptr (GError) error = NULL;
    g_autofree char *text = g_strconcat ("x=logging://x/", options, NULL);
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, &error);
    g_assert_no_error (error);
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, &nothing, &error);
    g_assert_no_error (error);
    atomic_store (&n_connected, 0);
    atomic_store (&holds, false);
    atomic_store (&refuses, false);
    ecfs_endpoint_start (endpoint);
    return endpoint;
}

static void begin_read (Transfer *transfer, EcfsEndpoint *endpoint, const char *name)
{
    static uint8_t byte;
    transfer_init (transfer, endpoint);
    transfer->ranges[0] = (EcfsRange){.offset = 0, .size = 1, .to = &byte};
    transfer->n_ranges = 1;
    transfer_read (transfer, name, 0);
}

static int try_read (EcfsEndpoint *endpoint, const char *name)
{
    Transfer transfer;
    begin_read (&transfer, endpoint, name);
    return transfer_finish (&transfer);
}

static void begin_log (Appender *log, EcfsEndpoint *endpoint, const char *name)
{
    appender_init (log);
    appender_begin (log, endpoint, name);
    g_assert_true (appender_wait_begun (log));
}

static void end_log (Appender *log)
{
    appender_end (log, ECFS_PULL_END);
    g_assert_cmpint (appender_finish (log), ==, 0);
}

static void wait_down (EcfsEndpoint *endpoint, bool down)
{
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    while (ecfs_endpoint_is_down (endpoint) != down) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (2000);
    }
}

static bool is_on_trial (EcfsEndpoint *endpoint)
{
    EcfsEndpointHealth health;
    ecfs_endpoint_health (endpoint, &health);
    ecfs_endpoint_health_clear (&health);
    return health.trial;
}

static void needs_no_connection_for_itself (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start (",connections=3");
    Appender logs[2 * PIPELINED];
    for (size_t i = 0; i < G_N_ELEMENTS (logs); i++) {
        begin_log (&logs[i], endpoint, "log");
        g_assert_true (appender_append (&logs[i], 1000));
    }
    for (unsigned i = 0; i < 50; i++)
        g_assert_cmpint (try_read (endpoint, "other"), ==, 0);
    g_assert_cmpuint (atomic_load (&n_connected), ==, 1);
    for (size_t i = 0; i < G_N_ELEMENTS (logs); i++)
        end_log (&logs[i]);
}

static void is_a_load_until_all_is_durable (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start (",connections=2");
    Appender logs[PIPELINED];
    atomic_store (&holds, true);
    for (size_t i = 0; i < G_N_ELEMENTS (logs); i++) {
        begin_log (&logs[i], endpoint, "log");
        appender_give (&logs[i], 1000);
        g_assert_true (appender_wait_begun (&logs[i])); /* it was asked again, and waits for its disk */
    }
    g_assert_cmpuint (atomic_load (&n_connected), ==, 1);
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    while (atomic_load (&n_connected) < 2) {
        g_assert_cmpint (try_read (endpoint, "other"), ==, 0);
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
    }
    atomic_store (&holds, false);
    for (size_t i = 0; i < G_N_ELEMENTS (logs); i++) {
        g_assert_true (appender_wait (&logs[i], 1000));
        end_log (&logs[i]);
    }
}

/* Has it fail at work, and lets it in again. */
static void put_on_trial (EcfsEndpoint *endpoint)
{
    Transfer stuck;
    begin_read (&stuck, endpoint, "stuck");
    wait_down (endpoint, true);
    g_assert_cmpint (transfer_finish (&stuck), ==, ETIMEDOUT);
    wait_down (endpoint, false);
    g_assert_true (is_on_trial (endpoint));
}

static void survives_a_trial (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start (",stall_timeout=200ms,connections=2");
    Appender log;
    put_on_trial (endpoint);
    begin_log (&log, endpoint, "log");
    for (unsigned i = 0; i < 3; i++)
        g_assert_cmpint (try_read (endpoint, "other"), ==, 0);
    g_assert_true (is_on_trial (endpoint));
    g_assert_true (appender_append (&log, 1000));
    for (unsigned i = 0; i < 3; i++)
        g_assert_cmpint (try_read (endpoint, "other"), ==, 0);
    g_assert_false (is_on_trial (endpoint));
    g_assert_true (appender_append (&log, 1000));
    end_log (&log);
}

/* One thing at a time: what waits for the disk is one. */
static void takes_its_turn_on_trial (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start (",stall_timeout=5s,connections=2");
    Appender log;
    Transfer other;
    atomic_store (&holds, true);
    begin_log (&log, endpoint, "log");
    ecfs_mutex_lock (&endpoint->lock);
    endpoint->breaker.state = BREAKER_TRIAL;
    ecfs_mutex_unlock (&endpoint->lock);
    appender_give (&log, 1000);
    g_assert_true (appender_wait_begun (&log));
    begin_read (&other, endpoint, "other");
    g_usleep (50000); /* it would have been served meanwhile */
    ecfs_mutex_lock (&other.lock);
    g_assert_cmpuint (other.n_done, ==, 0);
    ecfs_mutex_unlock (&other.lock);
    atomic_store (&holds, false);
    g_assert_cmpint (transfer_finish (&other), ==, 0);
    g_assert_true (appender_wait (&log, 1000));
    end_log (&log);
}

/* A server that drops connections on which nothing goes on for a while is not one that fails at work. */
static void is_no_work_when_parked (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start (",connections=1");
    for (unsigned i = 0; i < 5; i++) {
        g_autoptr (GError) error = NULL;
        Appender log;
        begin_log (&log, endpoint, "log");
        g_assert_false (ecfs_endpoint_remove_wait (endpoint, "break", &error));
        g_assert_cmpint (appender_finish (&log), ==, ENOTCONN);
        g_assert_false (ecfs_endpoint_is_down (endpoint));
    }
    atomic_store (&holds, true);
    for (unsigned i = 0; i < 3; i++) {
        g_autoptr (GError) error = NULL;
        Appender log;
        g_assert_false (ecfs_endpoint_is_down (endpoint));
        begin_log (&log, endpoint, "log");
        appender_give (&log, 1000);
        g_assert_true (appender_wait_begun (&log));
        g_assert_false (ecfs_endpoint_remove_wait (endpoint, "break", &error));
        g_assert_cmpint (appender_finish (&log), ==, ENOTCONN);
    }
    g_assert_true (ecfs_endpoint_is_down (endpoint));
}

static void owes_nothing_when_parked (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start (",stall_timeout=200ms,connections=1");
    Appender parked, busy;
    begin_log (&parked, endpoint, "parked");
    begin_log (&busy, endpoint, "busy");
    g_assert_true (appender_append (&parked, 1000));
    g_usleep (500000); /* more than the stall timeout */
    g_assert_false (appender_is_done (&parked));
    atomic_store (&refuses, true);
    atomic_store (&holds, true);
    appender_give (&busy, 1000);
    g_assert_cmpint (appender_finish (&busy), ==, ETIMEDOUT);
    g_assert_cmpint (appender_finish (&parked), ==, ENOTCONN); /* with its connection */
    g_assert_cmpuint (busy.acknowledged, ==, 0);
    Appender late;
    appender_init (&late);
    appender_begin (&late, endpoint, "late");
    g_assert_cmpint (appender_finish (&late), ==, ENOTCONN);
}

static void counts_what_is_durable (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start (",connections=1");
    Appender log;
    EcfsEndpointHealth health;
    begin_log (&log, endpoint, "log");
    g_assert_true (appender_append (&log, 300000));
    ecfs_endpoint_health (endpoint, &health);
    ecfs_endpoint_health_clear (&health);
    g_assert_cmpuint (health.written_bytes, ==, 300000);
    g_assert_cmpfloat (health.estimates.write_bytes_per_s.p50, ==, 0); /* the disk's time is not the line's */
    atomic_store (&holds, true);
    appender_give (&log, 1000);
    g_assert_true (appender_wait_begun (&log));
    ecfs_stream_cancel (log.stream);
    g_assert_cmpint (appender_finish (&log), ==, ECANCELED);
    ecfs_endpoint_health (endpoint, &health);
    ecfs_endpoint_health_clear (&health);
    g_assert_cmpuint (health.written_bytes, ==, 300000);
    ecfs_mutex_lock (&endpoint->lock);
    g_assert_cmpuint (endpoint->logged_bytes, ==, 0);
    g_assert_cmpuint (endpoint->slots[0].n_idle_logs, ==, 0);
    ecfs_mutex_unlock (&endpoint->lock);
}

int main (int argc, char **argv)
{
    static const char *const keys[] = {ECFS_COMMON_OPTION_KEYS, NULL};
    static const EcfsDriver driver = {
        .scheme = "logging",
        .option_keys = keys,
        .default_connections = 1,
        .n_pipelined = PIPELINED,
        .logs = true,
        .new_config = new_config,
        .free_config = g_free,
        .connect = logging_connect,
        .serve = logging_serve,
        .disconnect = logging_disconnect,
    };
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    ecfs_endpoint_register_for_tests (&driver);
    g_test_add_func ("/logs/need-no-connection-for-themselves", needs_no_connection_for_itself);
    g_test_add_func ("/logs/are-a-load-until-all-is-durable", is_a_load_until_all_is_durable);
    g_test_add_func ("/logs/survive-a-trial", survives_a_trial);
    g_test_add_func ("/logs/take-their-turn-on-trial", takes_its_turn_on_trial);
    g_test_add_func ("/logs/are-no-work-when-parked", is_no_work_when_parked);
    g_test_add_func ("/logs/owe-nothing-when-parked", owes_nothing_when_parked);
    g_test_add_func ("/logs/count-what-is-durable", counts_what_is_durable);
    return g_test_run ();
}
