#include "script.h"

#include "transfer.h"

Script script;

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
    bool hold = (request->kind == ECFS_REQUEST_SPACE && script.hold_space) ||
                (request->kind == ECFS_REQUEST_WRITE && script.hold_writes);
    ecfs_mutex_unlock (&script.lock);
    return hold || g_strcmp0 (request->name, "stuck") == 0 || g_strcmp0 (request->name, "swallow") == 0;
}

/* Takes what is there, and acknowledges nothing of it. */
static void swallow (EcfsStream *request)
{
    const uint8_t *bytes;
    size_t size;
    while (ecfs_request_pull (request, &bytes, &size) == ECFS_PULL_BYTES) {
    }
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
        if (g_strcmp0 (request->name, "swallow") == 0)
            swallow (request);
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

#define SCRIPTED(NAME)                                                                                                 \
    .scheme = NAME, .option_keys = keys, .default_connections = 2, .new_config = new_config, .free_config = g_free,    \
    .connect = scripted_connect, .serve = scripted_serve, .disconnect = scripted_disconnect

void script_register (void)
{
    static const char *const keys[] = {ECFS_COMMON_OPTION_KEYS, NULL};
    static const EcfsDriver driver = {SCRIPTED ("scripted")};
    static const EcfsDriver costly = {SCRIPTED ("costly"), .n_pipelined = 4, .costly = true};
    ecfs_mutex_init (&script.lock);
    ecfs_cond_init (&script.cond);
    ecfs_endpoint_register_for_tests (&driver);
    ecfs_endpoint_register_for_tests (&costly);
}

static EcfsEndpoint *start (const char *scheme, const char *options)
{
    static const EcfsMarker nothing;
    ecfs_mutex_lock (&script.lock);
    script.refuse = script.released = script.hold_space = script.hold_writes = script.hold_ends = false;
    script.refuse_from = script.n_connects = script.n_stuck = script.n_ends = 0;
    ecfs_mutex_unlock (&script.lock);
    g_autofree char *text = g_strconcat ("x=", scheme, "://x/", options, NULL);
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsEndpointSpec) spec = ecfs_endpoint_spec_parse (text, &error);
    g_assert_no_error (error);
    EcfsEndpoint *endpoint = ecfs_endpoint_new (spec, &nothing, &error);
    g_assert_no_error (error);
    ecfs_endpoint_start (endpoint);
    return endpoint;
}

EcfsEndpoint *script_start (const char *options)
{
    return start ("scripted", options);
}

EcfsEndpoint *script_start_costly (const char *options)
{
    return start ("costly", options);
}

void script_set (bool *which, bool value)
{
    ecfs_mutex_lock (&script.lock);
    *which = value;
    ecfs_cond_broadcast (&script.cond);
    ecfs_mutex_unlock (&script.lock);
}

unsigned script_count (const unsigned *which)
{
    ecfs_mutex_lock (&script.lock);
    unsigned value = *which;
    ecfs_mutex_unlock (&script.lock);
    return value;
}

void script_wait (const unsigned *which, unsigned least)
{
    int64_t deadline_us = ecfs_now_us () + TRANSFER_TIMEOUT_US;
    ecfs_mutex_lock (&script.lock);
    while (*which < least)
        g_assert_true (ecfs_cond_wait_until (&script.cond, &script.lock, deadline_us));
    ecfs_mutex_unlock (&script.lock);
}

bool script_is_down (EcfsEndpoint *endpoint)
{
    EcfsEndpointHealth health;
    ecfs_endpoint_health (endpoint, &health);
    bool down = health.down;
    g_assert_true (!down || health.reason != NULL);
    ecfs_endpoint_health_clear (&health);
    return down;
}
