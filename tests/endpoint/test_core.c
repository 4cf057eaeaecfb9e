/* Down and up, stalls, broken connections: the core with a driver that does what the test says. */
#include "endpoint/core.h"
#include "transfer.h"
#include "util/log.h"

#include <string.h>

/* scripted://: requests succeed at once, but for files named "stuck" (until released) and "break". */
static struct {
    EcfsMutex lock;
    EcfsCond cond;
    /* guarded by lock */
    bool refuse;          /* connect fails */
    unsigned refuse_from; /* so does this connect and later ones; 0: none */
    bool released;        /* stuck ones go on */
    unsigned n_connects;
    unsigned n_stuck;
    int64_t connected_us[64];
    int write_code; /* writes fail with it; 0: they succeed */
    uint64_t free_bytes;
    bool hold_space; /* space requests are stuck */
    bool hold_ends;  /* connections end only as far as … */
    unsigned n_ends; /* … so many may */
} script;

static void *new_config (const EcfsEndpointSpec *spec, GError **error)
{
    (void) error;
    return g_strdup (spec->url);
}

static void *scripted_connect (EcfsSlot *slot, bool make_root, GError **error)
{
    (void) make_root;
    ecfs_mutex_lock (&script.lock);
    if (script.n_connects < G_N_ELEMENTS (script.connected_us))
        script.connected_us[script.n_connects] = ecfs_now_us ();
    script.n_connects++;
    bool refuse = script.refuse || (script.refuse_from != 0 && script.n_connects >= script.refuse_from);
    ecfs_cond_broadcast (&script.cond);
    ecfs_mutex_unlock (&script.lock);
    ecfs_slot_capabilities (slot, ECFS_CAN_SPACE);
    if (!refuse)
        return g_strdup ("connection");
    g_set_error (error, ECFS_ERROR, ECONNREFUSED, "nobody listens");
    return NULL;
}

/* A call of the system that does not return. */
static void be_stuck (void)
{
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    ecfs_mutex_lock (&script.lock);
    script.n_stuck++;
    ecfs_cond_broadcast (&script.cond);
    while (!script.released)
        g_assert_true (ecfs_cond_wait_until (&script.cond, &script.lock, deadline_us));
    script.n_stuck--;
    ecfs_mutex_unlock (&script.lock);
}

static bool is_stuck (const EcfsStream *request)
{
    ecfs_mutex_lock (&script.lock);
    bool hold = request->kind == ECFS_REQUEST_SPACE && script.hold_space;
    ecfs_mutex_unlock (&script.lock);
    return hold || g_strcmp0 (request->name, "stuck") == 0;
}

static void end_request (EcfsStream *request)
{
    ecfs_mutex_lock (&script.lock);
    int code = request->kind == ECFS_REQUEST_WRITE ? script.write_code : 0;
    uint64_t value = script.free_bytes;
    ecfs_mutex_unlock (&script.lock);
    const uint8_t *bytes;
    size_t size, sum = 0;
    while (request->kind == ECFS_REQUEST_WRITE && code == 0 &&
           ecfs_request_pull (request, &bytes, &size) == ECFS_PULL_BYTES)
        ecfs_request_acknowledge (request, sum += size);
    if (code == 0 && request->kind == ECFS_REQUEST_SPACE)
        ecfs_request_finish_space (request, value, NULL);
    else if (code == 0 && request->kind == ECFS_REQUEST_EXAMINE)
        ecfs_request_finish_marker (request, "", 0);
    else if (code == 0)
        ecfs_request_finish (request, 0, NULL);
    else
        ecfs_request_fail (request, code, "%s: %s", request->name, g_strerror (code));
}

static bool scripted_serve (EcfsSlot *slot, void *connection, GError **error)
{
    (void) connection;
    while (ecfs_slot_check (slot, error)) {
        EcfsStream *request = ecfs_slot_take (slot);
        if (request == NULL) {
            (void) ecfs_slot_wait (slot, ecfs_now_us () + TRANSFER_TIMEOUT_US);
            continue;
        }
        if (g_strcmp0 (request->name, "break") == 0)
            return ecfs_fail (error, ECONNRESET, "broken on demand");
        ecfs_slot_owed (slot, ECFS_OWES_ANSWER);
        if (is_stuck (request)) {
            be_stuck ();
            if (!ecfs_slot_check (slot, error))
                return false;
        }
        ecfs_slot_owed (slot, ECFS_OWES_NOTHING);
        end_request (request);
    }
    return false;
}

/* Takes its time, as to end a process may. */
static void scripted_disconnect (void *connection)
{
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    ecfs_mutex_lock (&script.lock);
    while (script.hold_ends && script.n_ends == 0)
        g_assert_true (ecfs_cond_wait_until (&script.cond, &script.lock, deadline_us));
    script.n_ends -= script.hold_ends;
    ecfs_mutex_unlock (&script.lock);
    g_free (connection);
}

static EcfsEndpoint *start (const char *options)
{
    static const EcfsMarker nothing;
    ecfs_mutex_lock (&script.lock);
    script.refuse = script.released = script.hold_space = script.hold_ends = false;
    script.refuse_from = script.n_connects = script.n_stuck = script.n_ends = 0;
    ecfs_mutex_unlock (&script.lock);
    g_autofree char *text = g_strconcat ("x=scripted://x/", options, NULL);
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, &error);
    g_assert_no_error (error);
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, &nothing, &error);
    g_assert_no_error (error);
    ecfs_endpoint_start (endpoint);
    return endpoint;
}

static void set_bool (bool *which, bool value)
{
    ecfs_mutex_lock (&script.lock);
    *which = value;
    ecfs_cond_broadcast (&script.cond);
    ecfs_mutex_unlock (&script.lock);
}

static unsigned get_count (const unsigned *which)
{
    ecfs_mutex_lock (&script.lock);
    unsigned value = *which;
    ecfs_mutex_unlock (&script.lock);
    return value;
}

static void wait_count (const unsigned *which, unsigned least)
{
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    ecfs_mutex_lock (&script.lock);
    while (*which < least)
        g_assert_true (ecfs_cond_wait_until (&script.cond, &script.lock, deadline_us));
    ecfs_mutex_unlock (&script.lock);
}

static bool is_down (EcfsEndpoint *endpoint)
{
    EcfsEndpointHealth health;
    ecfs_endpoint_health (endpoint, &health);
    bool down = health.down;
    g_assert_true (!down || health.reason != NULL);
    ecfs_endpoint_health_clear (&health);
    return down;
}

/* Polls, since nothing tells when the state of an endpoint changes. */
static void wait_down (EcfsEndpoint *endpoint, bool down)
{
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    while (is_down (endpoint) != down) {
        g_assert_cmpint (ecfs_now_us (), <, deadline_us);
        g_usleep (5000);
    }
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
    g_autoptr (EcfsEndpoint) endpoint = start (",stall_timeout=2s,connections=2");
    Transfer stuck, queued;
    begin (&stuck, endpoint, "stuck", 0);
    wait_count (&script.n_stuck, 1);
    g_assert_cmpint (try_read (endpoint, "other", 0), ==, 0); /* a second connection serves it */
    set_bool (&script.refuse, true);
    wait_down (endpoint, true);
    begin (&queued, endpoint, "other", 0);
    g_assert_cmpint (transfer_finish (&queued), ==, ENOTCONN);
    set_bool (&script.refuse, false);
    wait_down (endpoint, false); /* the other thread probes while this one is stuck still */
    g_assert_cmpuint (get_count (&script.n_stuck), ==, 1);
    g_assert_cmpint (try_read (endpoint, "other", 0), ==, 0);
    set_bool (&script.released, true);
    g_assert_cmpint (transfer_finish (&stuck), ==, ETIMEDOUT);
    g_assert_cmpint (try_read (endpoint, "other", 0), ==, 0);
    g_assert_false (is_down (endpoint));
}

static void test_all_stuck (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start (",stall_timeout=200ms,connections=1");
    Transfer stuck, queued;
    begin (&stuck, endpoint, "stuck", 0);
    wait_count (&script.n_stuck, 1);
    begin (&queued, endpoint, "other", 0);
    g_assert_cmpint (transfer_finish (&queued), ==, ENOTCONN); /* although its only thread is stuck */
    g_assert_cmpint (try_read (endpoint, "other", ECFS_READ_URGENT), ==, ENOTCONN);
    g_autoptr (GError) error = NULL;
    EcfsMarker marker;
    g_assert_false (ecfs_endpoint_examine_wait (endpoint, &marker, &error));
    g_assert_error (error, ECFS_ERROR, ENOTCONN);
    set_bool (&script.released, true);
    g_assert_cmpint (transfer_finish (&stuck), ==, ETIMEDOUT);
    wait_down (endpoint, false);
}

static void test_cancel_in_the_queue (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start (",connections=1");
    Transfer stuck, queued;
    begin (&stuck, endpoint, "stuck", 0);
    wait_count (&script.n_stuck, 1);
    begin (&queued, endpoint, "other", 0);
    ecfs_stream_cancel (queued.stream);
    g_assert_cmpint (transfer_finish (&queued), ==, ECANCELED);
    set_bool (&script.released, true);
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
    g_autoptr (EcfsEndpoint) endpoint = start (",connections=2");
    be_quick (endpoint);
    wait_suspect (endpoint, false);
    Transfer stuck;
    begin (&stuck, endpoint, "stuck", 0);
    wait_count (&script.n_stuck, 1);
    wait_suspect (endpoint, true);                            /* and is not down, which takes two seconds */
    g_assert_cmpint (try_read (endpoint, "other", 0), ==, 0); /* it is asked and answers all the same */
    set_bool (&script.released, true);
    g_assert_cmpint (transfer_finish (&stuck), ==, 0);
    wait_suspect (endpoint, false);
}

static void test_gone_before_its_time (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start (",connections=2");
    be_quick (endpoint);
    Transfer stuck;
    int64_t began_us = ecfs_now_us ();
    begin (&stuck, endpoint, "stuck", 0);
    wait_down (endpoint, true);
    g_assert_cmpint (ecfs_now_us () - began_us, >=, 2 * G_USEC_PER_SEC);
    set_bool (&script.released, true);
    g_assert_cmpint (transfer_finish (&stuck), ==, ETIMEDOUT);
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
    g_autoptr (EcfsEndpoint) endpoint = start (",stall_timeout=200ms,connections=3");
    Transfer stuck, others[6];
    begin (&stuck, endpoint, "stuck", 0);
    wait_count (&script.n_stuck, 1);
    wait_down (endpoint, true);
    g_assert_false (is_on_trial (endpoint));
    set_bool (&script.released, true);
    g_assert_cmpint (transfer_finish (&stuck), ==, ETIMEDOUT);
    wait_down (endpoint, false);
    g_assert_true (is_on_trial (endpoint));
    for (size_t i = 0; i < G_N_ELEMENTS (others); i++) /* those behind wait for their turn, and get it */
        begin (&others[i], endpoint, "other", 0);
    for (size_t i = 0; i < G_N_ELEMENTS (others); i++)
        g_assert_cmpint (transfer_finish (&others[i]), ==, 0);
    g_assert_false (is_on_trial (endpoint));
}

static void test_relapse (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start (",stall_timeout=200ms,connections=3");
    Transfer stuck, behind;
    for (unsigned i = 1; i <= 2; i++) {
        set_bool (&script.released, false);
        begin (&stuck, endpoint, "stuck", 0);
        wait_count (&script.n_stuck, 1);
        begin (&behind, endpoint, "other", 0); /* on trial no second connection serves it */
        g_assert_cmpint (transfer_finish (&behind), ==, i == 1 ? 0 : ENOTCONN);
        wait_down (endpoint, true);
        set_bool (&script.released, true);
        g_assert_cmpint (transfer_finish (&stuck), ==, ETIMEDOUT);
        int64_t down_us = ecfs_now_us ();
        wait_down (endpoint, false);
        g_assert_true (is_on_trial (endpoint));
        if (i == 2) /* less what passed until this thread knew */
            g_assert_cmpint (ecfs_now_us () - down_us, >, 3 * G_USEC_PER_SEC / 2);
    }
}

/* A server that takes every connection and drops it as soon as there is work. */
static void test_lost_in_a_row (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start (",connections=1");
    for (unsigned i = 0; i < 3; i++) {
        g_assert_false (is_down (endpoint));
        g_assert_cmpint (try_read (endpoint, "break", 0), ==, ENOTCONN);
    }
    g_assert_true (is_down (endpoint));
    wait_down (endpoint, false);
    g_assert_true (is_on_trial (endpoint));
    g_assert_cmpint (try_read (endpoint, "other", 0), ==, 0);
}

static void set_store (int write_code, uint64_t free_bytes)
{
    ecfs_mutex_lock (&script.lock);
    script.write_code = write_code;
    script.free_bytes = free_bytes;
    ecfs_mutex_unlock (&script.lock);
}

static int try_write (EcfsEndpoint *endpoint, size_t size)
{
    static uint8_t bytes[1 << 20];
    g_autoptr (GError) error = NULL;
    g_assert_cmpuint (size, <=, sizeof bytes);
    (void) !ecfs_endpoint_write_wait (endpoint, "other", bytes, size, &error); /* error says it */
    return ecfs_errno (error);
}

static void ask_space (EcfsEndpoint *endpoint)
{
    uint64_t free_bytes;
    g_autoptr (GError) error = NULL;
    g_assert_true (ecfs_endpoint_space_wait (endpoint, &free_bytes, &error));
}

static void check_refusal (EcfsEndpoint *endpoint, bool refuses, bool full)
{
    EcfsEndpointHealth health;
    ecfs_endpoint_health (endpoint, &health);
    g_assert_true (health.refuses == refuses);
    g_assert_true (health.full == full);
    g_assert_true ((health.reason != NULL) == (refuses || full));
    ecfs_endpoint_health_clear (&health);
}

static void test_full (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start ("");
    set_store (0, 10000000);
    g_assert_true (ecfs_endpoint_has_room (endpoint, 1000000000)); /* it has not said anything yet */
    ask_space (endpoint);
    g_assert_true (ecfs_endpoint_has_room (endpoint, 9000000));
    check_refusal (endpoint, false, false);
    g_assert_false (ecfs_endpoint_has_room (endpoint, 9900000));
    check_refusal (endpoint, false, true);
    g_assert_true (ecfs_endpoint_has_room (endpoint, 1000000)); /* a smaller one fits all the same */
    g_assert_cmpint (try_write (endpoint, 1000000), ==, 0);
    check_refusal (endpoint, false, true);
    g_assert_false (ecfs_endpoint_has_room (endpoint, 9000000)); /* less what was written */
    set_store (0, 20000000);
    ask_space (endpoint);
    check_refusal (endpoint, false, false);
}

static void test_filled_by_others (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start ("");
    set_store (ENOSPC, 100000000);
    ask_space (endpoint);
    g_assert_cmpint (try_write (endpoint, 1000), ==, ENOSPC);
    check_refusal (endpoint, false, true);
    g_assert_false (ecfs_endpoint_has_room (endpoint, 1)); /* the figure was wrong */
    set_store (0, 100000000);
    ask_space (endpoint);
    check_refusal (endpoint, false, false);
    g_assert_true (ecfs_endpoint_has_room (endpoint, 1000));
}

static void be_full (EcfsEndpoint *endpoint, uint64_t says)
{
    set_store (ENOSPC, says);
    g_assert_cmpint (try_write (endpoint, 1000), ==, ENOSPC);
    check_refusal (endpoint, false, true);
}

/* A disk that fills up right after there was room again is no quota. */
static void test_filled_again (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start ("");
    set_store (0, 100000000);
    ask_space (endpoint);
    be_full (endpoint, 100000000);
    ask_space (endpoint); /* as it says it has room, it is tried again at once */
    check_refusal (endpoint, false, false);
    be_full (endpoint, 0);
    ask_space (endpoint);
    check_refusal (endpoint, false, true);
    set_store (0, 100000000);
    ask_space (endpoint);
    check_refusal (endpoint, false, false);
}

static void note_done (void *user, uint64_t value, const GError *error)
{
    (void) value;
    g_assert_no_error (error);
    ecfs_mutex_lock (&script.lock);
    ++*(unsigned *) user;
    ecfs_cond_broadcast (&script.cond);
    ecfs_mutex_unlock (&script.lock);
}

/* What was asked for before it was full does not end that. */
static void test_old_figure (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start (",connections=2,stall_timeout=60s");
    unsigned n_done = 0;
    set_store (0, 100000000);
    ask_space (endpoint);
    set_bool (&script.hold_space, true);
    ecfs_endpoint_space (endpoint, note_done, &n_done);
    wait_count (&script.n_stuck, 1);
    be_full (endpoint, 100000000);
    set_bool (&script.hold_space, false);
    set_bool (&script.released, true);
    wait_count (&n_done, 1);
    check_refusal (endpoint, false, true);
    g_assert_false (ecfs_endpoint_has_room (endpoint, 1));
    ask_space (endpoint);
    check_refusal (endpoint, false, false);
    g_assert_true (ecfs_endpoint_has_room (endpoint, 1));
}

/* Figures that say there is room say nothing then. */
static void test_quota (gconstpointer code)
{
    g_autoptr (EcfsEndpoint) endpoint = start ("");
    set_store (GPOINTER_TO_INT (code), 100000000);
    ask_space (endpoint);
    for (unsigned i = 0; i < 2; i++) {
        g_assert_cmpint (try_write (endpoint, 1000), ==, GPOINTER_TO_INT (code));
        ask_space (endpoint);
    }
    check_refusal (endpoint, true, true);
    ask_space (endpoint);
    check_refusal (endpoint, true, true);
    set_store (0, 100000000);
    g_assert_cmpint (try_write (endpoint, 1000), ==, 0);
    check_refusal (endpoint, false, false);
}

static void test_bad_disk (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start ("");
    set_store (EIO, 100000000);
    g_assert_cmpint (try_write (endpoint, 1000), ==, EIO);
    check_refusal (endpoint, true, false);
    g_assert_false (is_down (endpoint));
    set_store (EEXIST, 100000000); /* says nothing about the endpoint */
    g_assert_cmpint (try_write (endpoint, 1000), ==, EEXIST);
    check_refusal (endpoint, true, false);
    set_store (0, 100000000);
    g_assert_cmpint (try_write (endpoint, 1000), ==, 0);
    check_refusal (endpoint, false, false);
}

/* It is not about space, whatever figures say meanwhile. */
static void test_bad_disk_with_figures (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start ("");
    set_store (EACCES, 10000000);
    ask_space (endpoint);
    g_assert_cmpint (try_write (endpoint, 1000000), ==, EACCES);
    g_assert_false (ecfs_endpoint_has_room (endpoint, 100000000));
    check_refusal (endpoint, true, false);
    set_store (0, 1000000000);
    ask_space (endpoint);
    check_refusal (endpoint, true, false);
    g_assert_cmpint (try_write (endpoint, 1), ==, 0); /* the smallest is enough */
    check_refusal (endpoint, false, false);
}

/* What this program or its machine lacks is not the endpoint's. */
static void test_own_limits (void)
{
    static const int codes[] = {EMFILE, ENFILE, ENOMEM};
    g_autoptr (EcfsEndpoint) endpoint = start ("");
    for (size_t i = 0; i < G_N_ELEMENTS (codes); i++) {
        set_store (codes[i], 100000000);
        g_assert_cmpint (try_write (endpoint, 1000), ==, codes[i]);
        check_refusal (endpoint, false, false);
    }
}

static void test_broken (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start (",connections=2");
    for (unsigned i = 0; i < 5; i++) {
        g_assert_cmpint (try_read (endpoint, "break", 0), ==, ENOTCONN);
        g_assert_cmpint (try_read (endpoint, "other", 0), ==, 0);
        g_assert_false (is_down (endpoint));
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
    g_autoptr (EcfsEndpoint) endpoint = start (",connections=1");
    atomic_int code = -1;
    set_bool (&script.hold_ends, true);
    g_assert_cmpint (try_read (endpoint, "break", 0), ==, ENOTCONN);
    while (!is_down (endpoint)) {
        allow_end ();
        g_assert_cmpint (try_read (endpoint, "break", 0), ==, ENOTCONN);
    }
    ecfs_endpoint_examine (endpoint, on_examined, (void *) &code);
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    while (!has_looked_for_a_slot (endpoint) && atomic_load (&code) == -1 && ecfs_now_us () < deadline_us)
        g_usleep (5000);
    set_bool (&script.hold_ends, false);
    while (atomic_load (&code) == -1 && ecfs_now_us () < deadline_us)
        g_usleep (5000);
    g_assert_cmpint (atomic_load (&code), ==, EPROTO); /* it was asked: the marker is empty */
}

static void test_refused_second (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start (",connections=2");
    script.refuse_from = 2;
    Transfer stuck, queued;
    begin (&stuck, endpoint, "stuck", 0);
    wait_count (&script.n_stuck, 1);
    begin (&queued, endpoint, "other", 0);
    wait_count (&script.n_connects, 2);
    g_assert_false (is_down (endpoint));
    set_bool (&script.released, true);
    g_assert_cmpint (transfer_finish (&stuck), ==, 0);
    g_assert_cmpint (transfer_finish (&queued), ==, 0);
}

static void test_urgent (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start (",connections=3");
    set_bool (&script.refuse, true);
    int64_t began_us = ecfs_now_us ();
    for (unsigned i = 0; i < 200; i++)
        g_assert_cmpint (try_read (endpoint, "other", i % 2 == 0 ? ECFS_READ_URGENT : 0), ==, ENOTCONN);
    int64_t seconds = (ecfs_now_us () - began_us) / G_USEC_PER_SEC;
    g_assert_cmpuint (get_count (&script.n_connects), <=, 1 + 2 * seconds + 1);

    /* Once it would work again, urgent ones do not wait for the probe, which is four seconds away by now. */
    wait_count (&script.n_connects, 3);
    set_bool (&script.refuse, false);
    began_us = ecfs_now_us ();
    while (try_read (endpoint, "other", ECFS_READ_URGENT) != 0) {
        g_assert_cmpint (ecfs_now_us () - began_us, <, TRANSFER_TIMEOUT_US);
        g_usleep (5000);
    }
    g_assert_false (is_down (endpoint));
    g_assert_cmpint (ecfs_now_us () - began_us, <, 3 * G_USEC_PER_SEC);
}

static void test_back_off (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start (",connections=3");
    set_bool (&script.refuse, true);
    g_assert_cmpint (try_read (endpoint, "other", 0), ==, ENOTCONN);
    wait_count (&script.n_connects, 3);
    set_bool (&script.refuse, false);
    wait_down (endpoint, false);
    g_assert_cmpuint (get_count (&script.n_connects), ==, 4);
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
    set_bool (&script.released, true);
    g_usleep (50000); /* the slots have ended */
}

static void count_answer (void *user, uint64_t value, const GError *error)
{
    g_assert_cmpint (ecfs_errno (error), ==, ECANCELED);
    atomic_fetch_add ((atomic_uint *) user, 1);
}

static void test_stop_while_the_keeper_is_busy (void)
{
    g_autoptr (EcfsEndpoint) endpoint = start (",connections=1");
    Transfer stuck;
    Holding holding = {.endpoint = endpoint};
    atomic_uint n_answers = 0;
    EcfsSink sink = {.done = hold_keeper, .user = &holding};
    EcfsRange range = {.size = 1, .to = (uint8_t[1]){0}};
    begin (&stuck, endpoint, "stuck", 0);
    wait_count (&script.n_stuck, 1);
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

int main (int argc, char **argv)
{
    static const char *const keys[] = {ECFS_COMMON_OPTION_KEYS, NULL};
    static const EcfsDriver driver = {
        .scheme = "scripted",
        .option_keys = keys,
        .default_connections = 2,
        .new_config = new_config,
        .free_config = g_free,
        .connect = scripted_connect,
        .serve = scripted_serve,
        .disconnect = scripted_disconnect,
    };
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    ecfs_mutex_init (&script.lock);
    ecfs_cond_init (&script.cond);
    ecfs_endpoint_register_for_tests (&driver);
    g_test_add_func ("/core/a-stuck-call-takes-the-endpoint-down-and-others-probe-it", test_stuck);
    g_test_add_func ("/core/nobody-waits-behind-threads-that-are-all-stuck", test_all_stuck);
    g_test_add_func ("/core/cancels-what-is-queued-behind-a-stuck-call", test_cancel_in_the_queue);
    g_test_add_func ("/core/is-suspect-after-an-unusual-silence", test_suspect);
    g_test_add_func ("/core/is-gone-sooner-than-stall-timeout-where-it-was-always-quick", test_gone_before_its_time);
    g_test_add_func ("/core/is-on-trial-after-it-was-down-at-work", test_trial);
    g_test_add_func ("/core/is-probed-later-when-it-fails-on-trial", test_relapse);
    g_test_add_func ("/core/is-down-when-it-loses-connections-in-a-row", test_lost_in_a_row);
    g_test_add_func ("/core/is-full-until-what-did-not-fit-would", test_full);
    g_test_add_func ("/core/is-full-whatever-it-said-before", test_filled_by_others);
    g_test_add_data_func ("/core/full-by-quota-is-tried-again-after-a-while", GINT_TO_POINTER (EDQUOT), test_quota);
    g_test_add_data_func ("/core/full-against-its-own-figures-is-as-with-a-quota", GINT_TO_POINTER (ENOSPC),
                          test_quota);
    g_test_add_func ("/core/full-again-after-there-was-room-is-no-quota", test_filled_again);
    g_test_add_func ("/core/is-full-whatever-it-was-asked-before", test_old_figure);
    g_test_add_func ("/core/a-bad-disk-refuses-until-a-write-succeeds", test_bad_disk);
    g_test_add_func ("/core/a-bad-disk-is-not-mended-by-figures-of-space", test_bad_disk_with_figures);
    g_test_add_func ("/core/own-limits-say-nothing-about-an-endpoint", test_own_limits);
    g_test_add_func ("/core/a-broken-connection-is-replaced-without-being-down", test_broken);
    g_test_add_func ("/core/a-connection-that-ends-slowly-is-waited-for", test_slow_end);
    g_test_add_func ("/core/a-refused-second-connection-leaves-the-first-alone", test_refused_second);
    g_test_add_func ("/core/urgent-reads-try-to-connect-once-a-second", test_urgent);
    g_test_add_func ("/core/a-stop-leaves-no-request-unanswered", test_stop_while_the_keeper_is_busy);
    g_test_add_func ("/core/probes-with-back-off-and-comes-up", test_back_off);
    return g_test_run ();
}
