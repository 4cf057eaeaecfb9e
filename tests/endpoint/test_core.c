/* Down and up, stalls, broken connections. */
#include "program/program.h"
#include "script.h"
#include "transfer.h"

/* Polls, since nothing tells when the state of an endpoint changes. */
static void wait_down (EcfsEndpoint *endpoint, bool down)
{
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    while (script_is_down (endpoint) != down) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (5000);
    }
}

/* Connections are refused after @n more, so that what goes down stays so until it was seen. Negative: no longer. */
static void refuse_after (int n)
{
    ecfs_mutex_lock (&script.lock);
    script.refuse_from = n < 0 ? 0 : script.n_connects + (unsigned) n + 1;
    ecfs_mutex_unlock (&script.lock);
}

static void begin (Transfer *transfer, EcfsEndpoint *endpoint, const char *name, unsigned flags)
{
    static uint8_t byte;
    transfer_init (transfer, endpoint);
    transfer->ranges[0] = (EcfsRange){.offset = 0, .size = 1, .to = &byte};
    transfer->n_ranges = 1;
    transfer_read (transfer, name, flags);
}

static int try_read (EcfsEndpoint *endpoint, const char *name, unsigned flags)
{
    Transfer transfer;
    begin (&transfer, endpoint, name, flags);
    return transfer_finish (&transfer);
}

static void test_stuck (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start (",stall_timeout=2s,connections=2");
    Transfer stuck, queued;
    begin (&stuck, endpoint, "stuck", 0);
    script_wait (&script.n_stuck, 1);
    g_assert_cmpint (try_read (endpoint, "other", 0), ==, 0); /* a second connection serves it */
    script_set (&script.refuse, true);
    wait_down (endpoint, true);
    begin (&queued, endpoint, "other", 0);
    g_assert_cmpint (transfer_finish (&queued), ==, ENOTCONN);
    script_set (&script.refuse, false);
    wait_down (endpoint, false); /* the other thread probes while this one is stuck still */
    g_assert_cmpuint (script_count (&script.n_stuck), ==, 1);
    g_assert_cmpint (try_read (endpoint, "other", 0), ==, 0);
    script_set (&script.released, true);
    g_assert_cmpint (transfer_finish (&stuck), ==, ETIMEDOUT);
    g_assert_cmpint (try_read (endpoint, "other", 0), ==, 0);
    g_assert_false (script_is_down (endpoint));
}

static void test_costly (void)
{
    static const uint8_t byte;
    g_autoptr (EcfsEndpoint) endpoint = script_start_costly (",connections=3");
    Transfer stuck[3];
    for (size_t i = 0; i < G_N_ELEMENTS (stuck); i++)
        begin (&stuck[i], endpoint, "stuck", 0); /* of one file: nobody else's */
    script_wait (&script.n_stuck, 1);
    script_set (&script.released, true);
    for (size_t i = 0; i < G_N_ELEMENTS (stuck); i++)
        g_assert_cmpint (transfer_finish (&stuck[i]), ==, 0);
    g_assert_cmpuint (script_count (&script.n_connects), ==, 1);
    script_set (&script.released, false);
    transfer_init (&stuck[0], endpoint);
    transfer_write (&stuck[0], "stuck", &byte, 1);
    script_wait (&script.n_stuck, 1);
    g_assert_cmpint (try_read (endpoint, "other", 0), ==, 0);
    g_assert_cmpuint (script_count (&script.n_connects), ==, 2);
    begin (&stuck[1], endpoint, "stuck", 0);
    script_wait (&script.n_stuck, 2);
    g_assert_cmpuint (script_count (&script.n_connects), ==, 2);
    script_set (&script.released, true);
    g_assert_cmpint (transfer_finish (&stuck[0]), ==, 0);
    g_assert_cmpint (transfer_finish (&stuck[1]), ==, 0);
    for (size_t i = 0; i < 100; i++) /* both connections have been at it */
        g_assert_cmpint (try_read (endpoint, "stuck", 0), ==, 0);
}

static void test_all_stuck (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start (",stall_timeout=200ms,connections=1");
    Transfer stuck, queued;
    begin (&stuck, endpoint, "stuck", 0);
    script_wait (&script.n_stuck, 1);
    begin (&queued, endpoint, "other", 0);
    g_assert_cmpint (transfer_finish (&queued), ==, ENOTCONN); /* although its only thread is stuck */
    g_assert_cmpint (try_read (endpoint, "other", ECFS_READ_URGENT), ==, ENOTCONN);
    g_autoptr (GError) error = NULL;
    EcfsMarker marker;
    g_assert_false (ecfs_endpoint_examine_wait (endpoint, &marker, &error));
    g_assert_error (error, ECFS_ERROR, ENOTCONN);
    script_set (&script.released, true);
    g_assert_cmpint (transfer_finish (&stuck), ==, ETIMEDOUT);
    wait_down (endpoint, false);
}

static void test_cancel_in_the_queue (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start (",connections=1");
    Transfer stuck, queued;
    begin (&stuck, endpoint, "stuck", 0);
    script_wait (&script.n_stuck, 1);
    begin (&queued, endpoint, "other", 0);
    ecfs_stream_cancel (queued.stream);
    g_assert_cmpint (transfer_finish (&queued), ==, ECANCELED);
    script_set (&script.released, true);
    g_assert_cmpint (transfer_finish (&stuck), ==, 0);
}

/* Polls, as wait_down () does. */
static void wait_suspect (EcfsEndpoint *endpoint, bool suspect)
{
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    EcfsEndpointHealth health = {.suspect = !suspect};
    while (health.suspect != suspect) {
        ecfs_endpoint_health (endpoint, &health);
        ecfs_endpoint_health_clear (&health);
        g_assert_false (health.down);
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (2000);
    }
}

static void be_quick (EcfsEndpoint *endpoint)
{
    for (unsigned i = 0; i < 100; i++)
        g_assert_cmpint (try_read (endpoint, "other", 0), ==, 0);
}

static void test_suspect (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start (",connections=2");
    be_quick (endpoint);
    wait_suspect (endpoint, false);
    Transfer stuck;
    begin (&stuck, endpoint, "stuck", 0);
    script_wait (&script.n_stuck, 1);
    wait_suspect (endpoint, true);                            /* and is not down, which takes two seconds */
    g_assert_cmpint (try_read (endpoint, "other", 0), ==, 0); /* it is asked and answers all the same */
    script_set (&script.released, true);
    g_assert_cmpint (transfer_finish (&stuck), ==, 0);
    wait_suspect (endpoint, false);
}

static void test_gone_before_its_time (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start (",connections=2");
    be_quick (endpoint);
    refuse_after (0);
    Transfer stuck;
    int64_t began_us = ecfs_now_us ();
    begin (&stuck, endpoint, "stuck", 0);
    wait_down (endpoint, true);
    g_assert_cmpint (ecfs_now_us () - began_us, >=, 2 * G_USEC_PER_SEC);
    script_set (&script.released, true);
    g_assert_cmpint (transfer_finish (&stuck), ==, ETIMEDOUT);
}

static void test_counted (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start (",stall_timeout=200ms,connections=1");
    Transfer stuck;
    EcfsEndpointCounts counts;
    for (unsigned i = 0; i < 5; i++)
        g_assert_cmpint (try_read (endpoint, "other", 0), ==, 0);
    refuse_after (0);
    begin (&stuck, endpoint, "stuck", 0);
    wait_down (endpoint, true);
    script_set (&script.released, true);
    g_assert_cmpint (transfer_finish (&stuck), ==, ETIMEDOUT);
    g_assert_cmpint (try_read (endpoint, "other", 0), ==, ENOTCONN); /* it was not asked */
    ecfs_endpoint_counts (endpoint, &counts);
    g_assert_cmpuint (counts.ended[ECFS_CLASS_READ], ==, 6);
    g_assert_cmpuint (counts.failed[ECFS_CLASS_READ], ==, 1);
    g_assert_cmpuint (counts.ended[ECFS_CLASS_WRITE] + counts.failed[ECFS_CLASS_LOOK], ==, 0);
}

static bool is_on_trial (EcfsEndpoint *endpoint)
{
    EcfsEndpointHealth health;
    ecfs_endpoint_health (endpoint, &health);
    ecfs_endpoint_health_clear (&health);
    return health.trial;
}

/* Down in the middle of work, and let in again: one thing at a time, until some have gone well. */
static void test_trial (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start (",stall_timeout=200ms,connections=3");
    Transfer stuck, others[6];
    refuse_after (1);
    begin (&stuck, endpoint, "stuck", 0);
    script_wait (&script.n_stuck, 1);
    wait_down (endpoint, true);
    g_assert_false (is_on_trial (endpoint));
    script_set (&script.released, true);
    g_assert_cmpint (transfer_finish (&stuck), ==, ETIMEDOUT);
    refuse_after (-1);
    wait_down (endpoint, false);
    g_assert_true (is_on_trial (endpoint));
    for (size_t i = 0; i < G_N_ELEMENTS (others); i++) /* those behind wait for their turn, and get it */
        begin (&others[i], endpoint, "other", 0);
    for (size_t i = 0; i < G_N_ELEMENTS (others); i++)
        g_assert_cmpint (transfer_finish (&others[i]), ==, 0);
    g_assert_false (is_on_trial (endpoint));
}

/* It owes something for what it took, although there is nothing more to send just then. */
static void test_trial_after_it_swallowed (void)
{
    static const uint8_t bytes[2];
    g_autoptr (EcfsEndpoint) endpoint = script_start (",stall_timeout=200ms,connections=3");
    Transfer swallowed;
    refuse_after (1);
    transfer_init (&swallowed, endpoint);
    swallowed.chunk = 1;
    swallowed.hold = true;
    transfer_write (&swallowed, "swallow", bytes, sizeof bytes);
    wait_down (endpoint, true);
    script_set (&script.released, true);
    g_assert_cmpint (transfer_finish (&swallowed), ==, ETIMEDOUT);
    refuse_after (-1);
    wait_down (endpoint, false);
    g_assert_true (is_on_trial (endpoint));
}

static void test_relapse (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start (",stall_timeout=200ms,connections=3");
    Transfer stuck, behind;
    for (unsigned i = 1; i <= 2; i++) {
        script_set (&script.released, false);
        refuse_after (i == 1 ? 2 : 0);
        begin (&stuck, endpoint, "stuck", 0);
        script_wait (&script.n_stuck, 1);
        begin (&behind, endpoint, "other", 0); /* on trial no second connection serves it */
        g_assert_cmpint (transfer_finish (&behind), ==, i == 1 ? 0 : ENOTCONN);
        wait_down (endpoint, true);
        script_set (&script.released, true);
        g_assert_cmpint (transfer_finish (&stuck), ==, ETIMEDOUT);
        int64_t down_us = ecfs_now_us ();
        refuse_after (-1);
        wait_down (endpoint, false);
        g_assert_true (is_on_trial (endpoint));
        if (i == 2) /* less what passed until this thread knew */
            g_assert_cmpint (ecfs_now_us () - down_us, >, 3 * G_USEC_PER_SEC / 2);
    }
}

/* A server that takes every connection and drops it as soon as there is work. */
static void test_lost_in_a_row (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start (",connections=1");
    for (unsigned i = 0; i < 3; i++) {
        g_assert_false (script_is_down (endpoint));
        g_assert_cmpint (try_read (endpoint, "break", 0), ==, ENOTCONN);
    }
    g_assert_true (script_is_down (endpoint));
    wait_down (endpoint, false);
    g_assert_true (is_on_trial (endpoint));
    g_assert_cmpint (try_read (endpoint, "other", 0), ==, 0);
}

static void test_broken (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start (",connections=2");
    for (unsigned i = 0; i < 5; i++) {
        g_assert_cmpint (try_read (endpoint, "break", 0), ==, ENOTCONN);
        g_assert_cmpint (try_read (endpoint, "other", 0), ==, 0);
        g_assert_false (script_is_down (endpoint));
    }
}

static void allow_end (void)
{
    ecfs_mutex_lock (&script.lock);
    script.n_ends++;
    ecfs_cond_broadcast (&script.cond);
    ecfs_mutex_unlock (&script.lock);
}

static void on_examined (void *user, const EcfsMarker *marker, const GError *error)
{
    (void) marker;
    atomic_store ((atomic_int *) user, ecfs_errno (error));
}

static bool has_looked_for_a_slot (EcfsEndpoint *endpoint)
{
    ecfs_mutex_lock (&endpoint->lock);
    bool looked = endpoint->all_busy_us != 0;
    ecfs_mutex_unlock (&endpoint->lock);
    return looked;
}

/* With one connection, which takes its time to end, there is none to be had for a while: that is not for ever. */
static void test_slow_end (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start (",connections=1");
    atomic_int code = -1;
    script_set (&script.hold_ends, true);
    g_assert_cmpint (try_read (endpoint, "break", 0), ==, ENOTCONN);
    while (!script_is_down (endpoint)) {
        allow_end ();
        g_assert_cmpint (try_read (endpoint, "break", 0), ==, ENOTCONN);
    }
    ecfs_endpoint_examine (endpoint, on_examined, (void *) &code);
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    while (!has_looked_for_a_slot (endpoint) && atomic_load (&code) == -1 && ecfs_now_us () < deadline_us)
        g_usleep (5000);
    script_set (&script.hold_ends, false);
    while (atomic_load (&code) == -1 && ecfs_now_us () < deadline_us)
        g_usleep (5000);
    g_assert_cmpint (atomic_load (&code), ==, EPROTO); /* it was asked: the marker is empty */
}

/* What is under way ends, and nothing begins any more. */
static void test_retired (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start (",connections=1");
    Transfer stuck, queued;
    atomic_int code = -1;
    begin (&stuck, endpoint, "stuck", 0);
    script_wait (&script.n_stuck, 1);
    begin (&queued, endpoint, "other", 0);
    ecfs_endpoint_retire (endpoint, "was taken out");
    g_assert_cmpint (transfer_finish (&queued), ==, ENOTCONN);
    script_set (&script.released, true);
    (void) transfer_finish (&stuck); /* it may have been done just then */
    ecfs_endpoint_examine (endpoint, on_examined, (void *) &code);
    g_assert_cmpint (try_read (endpoint, "other", ECFS_READ_URGENT), ==, ENOTCONN);
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    while (atomic_load (&code) == -1 && ecfs_now_us () < deadline_us)
        g_usleep (5000);
    g_assert_cmpint (atomic_load (&code), ==, ENOTCONN);
    g_assert_true (script_is_down (endpoint));
    g_assert_cmpuint (script_count (&script.n_connects), ==, 1);
}

static void test_refused_second (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start (",connections=2");
    script.refuse_from = 2;
    Transfer stuck, queued;
    begin (&stuck, endpoint, "stuck", 0);
    script_wait (&script.n_stuck, 1);
    begin (&queued, endpoint, "other", 0);
    script_wait (&script.n_connects, 2);
    g_assert_false (script_is_down (endpoint));
    script_set (&script.released, true);
    g_assert_cmpint (transfer_finish (&stuck), ==, 0);
    g_assert_cmpint (transfer_finish (&queued), ==, 0);
}

static void test_urgent (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start (",connections=3");
    script_set (&script.refuse, true);
    int64_t began_us = ecfs_now_us ();
    for (unsigned i = 0; i < 200; i++)
        g_assert_cmpint (try_read (endpoint, "other", i % 2 == 0 ? ECFS_READ_URGENT : 0), ==, ENOTCONN);
    int64_t seconds = (ecfs_now_us () - began_us) / G_USEC_PER_SEC;
    g_assert_cmpuint (script_count (&script.n_connects), <=, 1 + 2 * seconds + 1);

    /* Once it would work again, urgent ones do not wait for the probe, which is four seconds away by now. */
    script_wait (&script.n_connects, 3);
    script_set (&script.refuse, false);
    began_us = ecfs_now_us ();
    while (try_read (endpoint, "other", ECFS_READ_URGENT) != 0) {
        g_assert_cmpint (ecfs_now_us () - began_us, <, TRANSFER_TIMEOUT_US);
        g_usleep (5000);
    }
    g_assert_false (script_is_down (endpoint));
    g_assert_cmpint (ecfs_now_us () - began_us, <, 3 * G_USEC_PER_SEC);
}

static void test_back_off (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start (",connections=3");
    script_set (&script.refuse, true);
    g_assert_cmpint (try_read (endpoint, "other", 0), ==, ENOTCONN);
    script_wait (&script.n_connects, 3);
    script_set (&script.refuse, false);
    wait_down (endpoint, false);
    g_assert_cmpuint (script_count (&script.n_connects), ==, 4);
    for (unsigned i = 1; i < 4; i++)
        g_assert_cmpint (script.connected_us[i] - script.connected_us[i - 1], >=,
                         (1 << (i - 1)) * G_USEC_PER_SEC * 9 / 10);
    g_assert_cmpint (try_read (endpoint, "other", 0), ==, 0);
}

typedef struct Holding {
    EcfsEndpoint *endpoint;
    atomic_bool held;
} Holding;

static bool is_stopping (EcfsEndpoint *endpoint)
{
    ecfs_mutex_lock (&endpoint->lock);
    bool stopping = endpoint->stopping;
    ecfs_mutex_unlock (&endpoint->lock);
    return stopping;
}

/* Holds the keeper while the endpoint stops, until the last of its slots has ended. */
static void hold_keeper (void *user, const GError *error)
{
    Holding *self = user;
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    atomic_store (&self->held, true);
    while (!is_stopping (self->endpoint)) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (1000);
    }
    script_set (&script.released, true);
    g_usleep (50000); /* the slots have ended */
}

static void count_answer (void *user, uint64_t value, const GError *error)
{
    g_assert_cmpint (ecfs_errno (error), ==, ECANCELED);
    atomic_fetch_add ((atomic_uint *) user, 1);
}

static void test_stop_while_the_keeper_is_busy (void)
{
    g_autoptr (EcfsEndpoint) endpoint = script_start (",connections=1");
    Transfer stuck;
    Holding holding = {.endpoint = endpoint};
    atomic_uint n_answers = 0;
    EcfsSink sink = {.done = hold_keeper, .user = &holding};
    EcfsRange range = {.size = 1, .to = (uint8_t[1]){0}};
    begin (&stuck, endpoint, "stuck", 0);
    script_wait (&script.n_stuck, 1);
    EcfsStream *cancelled = ecfs_endpoint_read (endpoint, "x", &range, 1, 0, &sink);
    ecfs_endpoint_remove (endpoint, "x", count_answer, &n_answers);
    ecfs_endpoint_remove (endpoint, "y", count_answer, &n_answers);
    ecfs_stream_cancel (cancelled);
    ecfs_stream_unref (cancelled);
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    while (!atomic_load (&holding.held)) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (1000);
    }
    ecfs_endpoint_stop (endpoint);
    g_assert_cmpuint (atomic_load (&n_answers), ==, 2);
    (void) transfer_finish (&stuck); /* whatever its answer was */
}

/* None is waited for before all have begun. */
static void test_stop_side_by_side (void)
{
    g_autoptr (EcfsEndpoint) first = script_start (",connections=1");
    g_assert_cmpint (try_read (first, "other", 0), ==, 0);
    g_autoptr (EcfsEndpoint) second = script_start (",connections=1");
    g_assert_cmpint (try_read (second, "other", 0), ==, 0);
    ecfs_mutex_lock (&script.lock);
    script.hold_ends = true;
    script.n_ends = 2;
    ecfs_mutex_unlock (&script.lock);
    ecfs_endpoint_begin_stop (first);
    ecfs_endpoint_begin_stop (second);
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    while (script_count (&script.n_ends) > 0) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (1000);
    }
    g_assert_cmpint (try_read (first, "other", 0), ==, ECANCELED);
    ecfs_endpoint_stop (first);
    ecfs_endpoint_stop (second);
}

/* Reads that begin while the connection waits: idle:// tells who began them, and ends them. */

typedef struct Idle {
    EcfsStream *begun; /* whoever has the slot's turn */
} Idle;

static atomic_uint n_begun, n_taken, n_connected;
static atomic_bool holding; /* what was begun is not ended */

static void *idle_config (const EcfsEndpointSpec *spec, GError **error)
{
    (void) error;
    return g_strdup (spec->url);
}

static void *idle_connect (EcfsSlot *slot, bool make_root, GError **error)
{
    (void) slot;
    (void) make_root;
    (void) error;
    atomic_fetch_add (&n_connected, 1);
    return g_new0 (Idle, 1);
}

static bool idle_serve (EcfsSlot *slot, void *connection, GError **error)
{
    Idle *self = connection;
    while (ecfs_slot_check (slot, error)) {
        EcfsStream *request = ecfs_slot_take (slot);
        atomic_fetch_add (&n_taken, request != NULL);
        if (request == NULL && !atomic_load (&holding))
            request = g_steal_pointer (&self->begun);
        struct pollfd news = {.fd = ecfs_slot_fd (slot), .events = POLLIN};
        if (request != NULL)
            ecfs_request_finish (request, 0, NULL);
        else
            ecfs_slot_poll (slot, &news, 1, (int) (TRANSFER_TIMEOUT_US / 1000));
    }
    return false;
}

static bool idle_begin_read (void *connection, EcfsStream *request)
{
    Idle *self = connection;
    g_assert_null (self->begun);
    self->begun = request;
    atomic_fetch_add (&n_begun, 1);
    return false; /* the slot's thread ends it */
}

/* Begins a read that is under way until release (). */
static void hold (EcfsEndpoint *endpoint, Transfer *held)
{
    unsigned before = atomic_load (&n_begun);
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    atomic_store (&holding, true);
    for (;;) {
        begin (held, endpoint, "any", 0);
        if (atomic_load (&n_begun) > before)
            return;
        g_assert_cmpint (transfer_finish (held), ==, 0);
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
    }
}

static void release (EcfsEndpoint *endpoint, Transfer *held)
{
    atomic_store (&holding, false);
    g_assert_cmpint (try_read (endpoint, "any", 0), ==, 0); /* wakes the slot's thread */
    g_assert_cmpint (transfer_finish (held), ==, 0);
}

/* Reads at the same time are for the slot's thread, and so for all connections that have room. */
static void read_beside (EcfsEndpoint *endpoint)
{
    Transfer held;
    hold (endpoint, &held);
    unsigned before = atomic_load (&n_begun);
    for (unsigned i = 0; i < 3; i++)
        g_assert_cmpint (try_read (endpoint, "any", 0), ==, 0);
    g_assert_cmpuint (atomic_load (&n_begun), ==, before);
    release (endpoint, &held);
}

static EcfsEndpoint *start_idle (const char *options)
{
    static const char *const keys[] = {ECFS_COMMON_OPTION_KEYS, NULL};
    static const EcfsDriver driver = {
        .scheme = "idle",
        .option_keys = keys,
        .default_connections = 1,
        .n_pipelined = 4,
        .new_config = idle_config,
        .free_config = g_free,
        .connect = idle_connect,
        .serve = idle_serve,
        .disconnect = g_free,
        .begin_read = idle_begin_read,
    };
    static const EcfsMarker nothing;
    static gsize registered;
    if (g_once_init_enter (&registered)) {
        ecfs_endpoint_register_for_tests (&driver);
        g_once_init_leave (&registered, 1);
    }
    g_autofree char *text = g_strconcat ("x=idle://x/", options, NULL);
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, NULL);
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, &nothing, NULL);
    atomic_store (&n_begun, 0);
    atomic_store (&n_taken, 0);
    atomic_store (&n_connected, 0);
    ecfs_endpoint_start (endpoint);
    return endpoint;
}

static void test_begun_by_who_asks (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start_idle ("");
    g_assert_cmpint (try_read (endpoint, "any", 0), ==, 0); /* nobody was connected */
    g_assert_cmpuint (atomic_load (&n_taken), ==, 1);
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    while (atomic_load (&n_begun) == 0) { /* once its thread has come to rest */
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_assert_cmpint (try_read (endpoint, "any", 0), ==, 0);
    }
    read_beside (endpoint);
}

/* That most answers took long, but not all, says that the machine was busy: one connection serves as fast as two. */
static void test_busy_is_not_long (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start_idle (",connections=2");
    const EcfsEstimates prior = {.latency_us = {.p5 = 1e3, .p50 = 1e5, .p95 = 2e5}};
    Transfer held;
    ecfs_endpoint_expect (endpoint, &prior);
    g_assert_cmpint (try_read (endpoint, "any", 0), ==, 0);
    hold (endpoint, &held);
    for (unsigned i = 0; i < 3; i++)
        g_assert_cmpint (try_read (endpoint, "other", 0), ==, 0);
    g_usleep (50000); /* another one would have come meanwhile */
    g_assert_cmpuint (atomic_load (&n_connected), ==, 1);
    release (endpoint, &held);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    script_register ();
    g_test_add_func ("/core/a-stuck-call-takes-the-endpoint-down-and-others-probe-it", test_stuck);
    g_test_add_func ("/core/costly-connections-are-shared", test_costly);
    g_test_add_func ("/core/nobody-waits-behind-threads-that-are-all-stuck", test_all_stuck);
    g_test_add_func ("/core/cancels-what-is-queued-behind-a-stuck-call", test_cancel_in_the_queue);
    g_test_add_func ("/core/is-suspect-after-an-unusual-silence", test_suspect);
    g_test_add_func ("/core/counts-what-ended-at-the-other-side", test_counted);
    g_test_add_func ("/core/is-gone-sooner-than-stall-timeout-where-it-was-always-quick", test_gone_before_its_time);
    g_test_add_func ("/core/is-on-trial-after-it-was-down-at-work", test_trial);
    g_test_add_func ("/core/is-on-trial-after-it-swallowed-what-it-got", test_trial_after_it_swallowed);
    g_test_add_func ("/core/is-probed-later-when-it-fails-on-trial", test_relapse);
    g_test_add_func ("/core/is-down-when-it-loses-connections-in-a-row", test_lost_in_a_row);
    g_test_add_func ("/core/a-broken-connection-is-replaced-without-being-down", test_broken);
    g_test_add_func ("/core/a-connection-that-ends-slowly-is-waited-for", test_slow_end);
    g_test_add_func ("/core/a-retired-endpoint-is-never-asked-again", test_retired);
    g_test_add_func ("/core/a-refused-second-connection-leaves-the-first-alone", test_refused_second);
    g_test_add_func ("/core/urgent-reads-try-to-connect-once-a-second", test_urgent);
    g_test_add_func ("/core/a-stop-leaves-no-request-unanswered", test_stop_while_the_keeper_is_busy);
    g_test_add_func ("/core/several-stop-side-by-side", test_stop_side_by_side);
    g_test_add_func ("/core/a-busy-machine-is-no-long-line", test_busy_is_not_long);
    g_test_add_func ("/core/a-read-begins-at-once-while-the-connection-waits", test_begun_by_who_asks);
    g_test_add_func ("/core/probes-with-back-off-and-comes-up", test_back_off);
    return g_test_run ();
}
