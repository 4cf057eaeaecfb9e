/* The face of endpoints: drivers by scheme, options, life cycle, health. */
#include "endpoint/core/core.h"

#include "endpoint/drivers.h" /* made by meson: drivers[] and absent[] */
#include "util/io.h"
#include "util/units.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define DEFAULT_CONNECT_TIMEOUT_US (10 * G_USEC_PER_SEC)
#define MAX_TEST_DRIVERS           4
#define RETAIN_MOST_US             (3650ll * 86400 * G_USEC_PER_SEC)

static const EcfsDriver *test_drivers[MAX_TEST_DRIVERS];
static unsigned n_test_drivers;

void ecfs_endpoint_register_for_tests (const EcfsDriver *driver)
{
    g_assert (n_test_drivers < MAX_TEST_DRIVERS);
    test_drivers[n_test_drivers++] = driver;
}

static bool has_scheme (const char *url, const char *scheme)
{
    size_t size = strlen (scheme);
    return strncmp (url, scheme, size) == 0 && strncmp (url + size, "://", 3) == 0;
}

static const EcfsDriver *find_driver (const char *url)
{
    for (size_t i = 0; i < G_N_ELEMENTS (drivers); i++)
        if (has_scheme (url, drivers[i]->scheme))
            return drivers[i];
    for (unsigned i = 0; i < n_test_drivers; i++)
        if (has_scheme (url, test_drivers[i]->scheme))
            return test_drivers[i];
    return NULL;
}

const char *const *ecfs_endpoint_schemes (void)
{
    static const char *schemes[G_N_ELEMENTS (drivers) + 1];
    for (size_t i = 0; i < G_N_ELEMENTS (drivers); i++)
        schemes[i] = drivers[i]->scheme;
    return schemes;
}

const char *const *ecfs_endpoint_absent_schemes (void)
{
    static const char *schemes[G_N_ELEMENTS (absent)];
    for (size_t i = 0; i < G_N_ELEMENTS (absent); i++)
        schemes[i] = absent[i].scheme;
    return schemes;
}

bool ecfs_endpoint_check_scheme (const char *url, GError **error)
{
    if (find_driver (url) != NULL)
        return true;
    for (size_t i = 0; absent[i].scheme != NULL; i++)
        if (has_scheme (url, absent[i].scheme))
            return ecfs_fail (error, EINVAL, "%s: this ecfs was built without %s://: install %s and build it again",
                              url, absent[i].scheme, absent[i].packages);
    g_autofree char *known = g_strjoinv (", ", (char **) ecfs_endpoint_schemes ());
    return ecfs_fail (error, EINVAL,
                      "\"%s\" is not a URL that ecfs knows: write file:///DIR or SCHEME://HOST/DIR; schemes are %s",
                      url, known);
}

bool ecfs_endpoint_has_own_login (const char *url)
{
    const EcfsDriver *driver = find_driver (url);
    return driver != NULL && driver->own_login;
}

const char *const *ecfs_endpoint_option_keys (const char *url)
{
    const EcfsDriver *driver = find_driver (url);
    return driver == NULL ? NULL : driver->option_keys;
}

unsigned ecfs_endpoint_default_connections (const char *url)
{
    const EcfsDriver *driver = find_driver (url);
    return driver == NULL ? 0 : driver->default_connections;
}

static bool check_keys (const EcfsDriver *driver, const EcfsEndpointSpec *spec, GError **error)
{
    if (spec->options == NULL)
        return true;
    GHashTableIter iter;
    gpointer key;
    g_hash_table_iter_init (&iter, spec->options);
    while (g_hash_table_iter_next (&iter, &key, NULL))
        if (!g_strv_contains (driver->option_keys, key)) {
            g_autofree char *known = g_strjoinv (", ", (char **) driver->option_keys);
            return ecfs_fail (error, EINVAL, "unknown option \"%s\"; %s:// takes: %s", (const char *) key,
                              driver->scheme, known);
        }
    return true;
}

static bool parse_timeout (const EcfsEndpointSpec *spec, const char *key, int64_t *value_us, GError **error)
{
    const char *text = ecfs_spec_option (spec, key);
    if (text == NULL)
        return true;
    int64_t parsed_us;
    if (!ecfs_parse_duration (text, &parsed_us) || parsed_us <= 0)
        return ecfs_fail (error, EINVAL, "%s = \"%s\" is not a time such as 10s or 500ms", key, text);
    *value_us = parsed_us;
    return true;
}

static bool parse_capacity (EcfsEndpoint *self, const EcfsEndpointSpec *spec, GError **error)
{
    const char *text = ecfs_spec_option (spec, "capacity");
    return text == NULL || (ecfs_parse_size (text, &self->capacity) && self->capacity > 0) ||
           ecfs_fail (error, EINVAL, "capacity = \"%s\" is not a number of bytes such as 500G or 2T", text);
}

static bool parse_retention (EcfsEndpoint *self, const EcfsEndpointSpec *spec, GError **error)
{
    const char *text = ecfs_spec_option (spec, ECFS_RETAIN_OPTION_KEY);
    int64_t after_us = ECFS_RETAIN_NOT;
    if (g_strcmp0 (text, "never") == 0)
        after_us = ECFS_RETAIN_ALWAYS;
    else if (text != NULL && strcmp (text, "yes") != 0 &&
             (!g_str_has_prefix (text, "after ") || !ecfs_parse_duration (text + strlen ("after "), &after_us) ||
              after_us <= 0 || after_us > RETAIN_MOST_US))
        return ecfs_fail (error, EINVAL, "delete is yes, never, or as \"after 30d\", at most 3650d, not \"%s\"", text);
    self->retain_us = after_us;
    self->retain_told = text != NULL;
    atomic_init (&self->retains, after_us != ECFS_RETAIN_NOT);
    return true;
}

static bool parse_options (EcfsEndpoint *self, const EcfsEndpointSpec *spec, GError **error)
{
    if (!check_keys (self->driver, spec, error) || !parse_retention (self, spec, error) ||
        !parse_capacity (self, spec, error) || !ecfs_core_parse_tariff (spec, &self->tariff, error) ||
        !parse_timeout (spec, "stall_timeout", &self->stall_timeout_us, error) ||
        !parse_timeout (spec, "connect_timeout", &self->connect_timeout_us, error))
        return false;
    const char *text = ecfs_spec_option (spec, "connections");
    guint64 n = self->driver->default_connections;
    if (text != NULL && !g_ascii_string_to_unsigned (text, 10, 1, MAX_CONNECTIONS, &n, NULL))
        return ecfs_fail (error, EINVAL, "connections = \"%s\" is not a number from 1 to %d", text, MAX_CONNECTIONS);
    self->n_slots = (unsigned) n;
    self->config = self->driver->new_config (spec, error);
    return self->config != NULL;
}

static bool make_slots (EcfsEndpoint *self, GError **error)
{
    self->slots = g_new0 (EcfsSlot, self->n_slots);
    for (unsigned i = 0; i < self->n_slots; i++) {
        EcfsSlot *slot = &self->slots[i];
        slot->endpoint = self;
        g_queue_init (&slot->active);
        atomic_init (&slot->clock.since_us, 0);
        atomic_init (&slot->clock.owes, ECFS_OWES_NOTHING);
        ecfs_mutex_init (&slot->turn);
        slot->event_fd = eventfd (0, EFD_CLOEXEC | EFD_NONBLOCK);
    }
    for (unsigned i = 0; i < self->n_slots; i++)
        if (self->slots[i].event_fd < 0)
            return ecfs_fail (error, EMFILE, "no file descriptors left: raise the limit (ulimit -n)");
    return true;
}

EcfsEndpoint *ecfs_endpoint_new (const EcfsEndpointSpec *spec, const EcfsMarker *expected, GError **error)
{
    const EcfsDriver *driver = find_driver (spec->url);
    if (!ecfs_endpoint_name_valid (spec->name)) {
        g_autofree char *name = ecfs_text_clean (spec->name, ECFS_WORDS_MAX);
        g_set_error (error, ECFS_ERROR, EINVAL, "\"%s\" cannot name an endpoint: use letters, digits and \"-_.\"",
                     name);
        return NULL;
    }
    if (!ecfs_spec_check (spec, error) || !ecfs_endpoint_check_scheme (spec->url, error)) {
        g_prefix_error (error, "endpoint %s: ", spec->name);
        return NULL;
    }
    EcfsEndpoint *self = g_new0 (EcfsEndpoint, 1);
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->slots_cond);
    ecfs_cond_init (&self->keeper_cond);
    atomic_init (&self->n_refs, 1);
    atomic_init (&self->keeper_wakes_us, INT64_MAX);
    g_queue_init (&self->queue);
    g_queue_init (&self->ended);
    self->driver = driver;
    self->name = g_strdup (spec->name);
    self->url = g_strdup (spec->url);
    self->expected = *expected;
    self->stall_timeout_us = driver->stall_timeout_us != 0 ? driver->stall_timeout_us : ECFS_STALL_TIMEOUT_US;
    self->connect_timeout_us = DEFAULT_CONNECT_TIMEOUT_US;
    self->last_attempt_us = ecfs_now_us () - URGENT_INTERVAL_US;
    if (!parse_options (self, spec, error) || !make_slots (self, error)) {
        g_prefix_error (error, "endpoint %s: ", spec->name);
        ecfs_endpoint_unref (self);
        return NULL;
    }
    return self;
}

void ecfs_endpoint_start (EcfsEndpoint *self)
{
    ecfs_mutex_lock (&self->lock);
    g_assert (!self->started);
    self->started = true;
    ecfs_mutex_unlock (&self->lock);
    for (unsigned i = 0; i < self->n_slots; i++)
        if (pthread_create (&self->slots[i].thread, NULL, ecfs_slot_main, &self->slots[i]) != 0)
            g_error ("endpoint %s: the system has no threads left", self->name);
    if (pthread_create (&self->keeper, NULL, ecfs_slot_watchdog, self) != 0)
        g_error ("endpoint %s: the system has no threads left", self->name);
}

void ecfs_endpoint_retire (EcfsEndpoint *self, const char *reason)
{
    ecfs_mutex_lock (&self->lock);
    self->retired = true;
    ecfs_core_down_locked (self, reason);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_endpoint_begin_stop (EcfsEndpoint *self)
{
    ecfs_mutex_lock (&self->lock);
    self->stopping = true;
    ecfs_cond_broadcast (&self->slots_cond);
    ecfs_cond_signal (&self->keeper_cond);
    for (unsigned i = 0; self->started && i < self->n_slots; i++)
        ecfs_slot_notify (&self->slots[i]);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_endpoint_stop (EcfsEndpoint *self)
{
    ecfs_endpoint_begin_stop (self);
    ecfs_mutex_lock (&self->lock);
    bool running = self->started && !self->stopped;
    self->stopped = true;
    ecfs_mutex_unlock (&self->lock);
    if (!running)
        return;
    for (unsigned i = 0; i < self->n_slots; i++)
        pthread_join (self->slots[i].thread, NULL);
    ecfs_mutex_lock (&self->lock);
    self->slots_joined = true;
    ecfs_cond_signal (&self->keeper_cond);
    ecfs_mutex_unlock (&self->lock);
    pthread_join (self->keeper, NULL);
}

void ecfs_endpoint_free (EcfsEndpoint *self)
{
    if (self == NULL)
        return;
    ecfs_endpoint_stop (self);
    ecfs_endpoint_unref (self);
}

const char *ecfs_endpoint_name (const EcfsEndpoint *self)
{
    return self->name;
}

const char *ecfs_endpoint_url (const EcfsEndpoint *self)
{
    return self->url;
}

unsigned ecfs_endpoint_capabilities (EcfsEndpoint *self)
{
    ecfs_mutex_lock (&self->lock);
    unsigned capabilities = self->capabilities;
    ecfs_mutex_unlock (&self->lock);
    return atomic_load (&self->retains) ? capabilities & ~(unsigned) ECFS_CAN_LOG : capabilities;
}

int64_t ecfs_endpoint_retain_us (EcfsEndpoint *self)
{
    if (!atomic_load (&self->retains))
        return ECFS_RETAIN_NOT;
    return self->retain_us == ECFS_RETAIN_NOT ? ECFS_RETAIN_ALWAYS : self->retain_us; /* found out */
}

int64_t ecfs_endpoint_lock_us (const EcfsEndpoint *self)
{
    return self->driver->lock_us == NULL ? 0 : self->driver->lock_us (self->config);
}

void ecfs_endpoint_set_vouch (EcfsEndpoint *self, bool (*vouch) (void *user, const EcfsMarker *marker), void *user)
{
    self->vouch = vouch;
    self->vouch_user = user;
}

char *ecfs_endpoint_description (EcfsEndpoint *self)
{
    ecfs_mutex_lock (&self->lock);
    char *description = g_strdup (self->description);
    ecfs_mutex_unlock (&self->lock);
    return description;
}

bool ecfs_endpoint_is_down (EcfsEndpoint *self)
{
    ecfs_mutex_lock (&self->lock);
    bool down = ecfs_core_down (self);
    ecfs_mutex_unlock (&self->lock);
    return down;
}

static unsigned under_way_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock)
{
    unsigned n = 0;
    for (unsigned i = 0; i < self->n_slots; i++)
        n += g_queue_get_length (&self->slots[i].active) - self->slots[i].n_idle_logs;
    return n;
}

/* What is worst about it; g_free () */
static char *reason_locked (EcfsEndpoint *self) ECFS_REQUIRES (self->lock)
{
    if (ecfs_core_down (self))
        return g_strdup (self->reason);
    return self->refusal.text != NULL ? g_strdup (self->refusal.text) : ecfs_core_spent_text_locked (self);
}

void ecfs_endpoint_health (EcfsEndpoint *self, EcfsEndpointHealth *ret_health)
{
    EcfsMonth month;
    ecfs_mutex_lock (&self->lock);
    ecfs_core_month_locked (self, &month);
    *ret_health = (EcfsEndpointHealth){
        .connected = ecfs_core_connected_locked (self),
        .down = ecfs_core_down (self),
        .trial = self->breaker.state == BREAKER_TRIAL,
        .refuses = ecfs_core_refuses_locked (self),
        .full = ecfs_core_full_locked (self),
        .suspect = !ecfs_core_down (self) && ecfs_core_suspect_locked (self),
        .unmarked = ecfs_core_down (self) && self->unmarked,
        .spent = month.requests_spent || month.egress_spent,
        .takes_none = month.requests_spent,
        .reason = reason_locked (self),
        .down_since_us = ecfs_core_down (self) ? self->breaker.down_since_us : 0,
        .down_since_s = ecfs_core_down (self) ? self->down_since_s : 0,
        .estimates = {.latency_us = self->latency.quantiles,
                      .read_bytes_per_s = ecfs_meter_rate (&self->read_meter),
                      .write_bytes_per_s = ecfs_meter_rate (&self->write_meter)},
        .rtt_us = (int64_t) self->latency.quantiles.p50,
        .queued_bytes = self->queued_bytes,
        .n_waiting = g_queue_get_length (&self->queue),
        .n_under_way = under_way_locked (self),
        .read_bytes = self->read_meter.total,
        .written_bytes = self->write_meter.total,
        .space = self->space,
    };
    ret_health->space.free_bytes = ecfs_core_free_locked (self);
    ecfs_mutex_unlock (&self->lock);
}

const char *ecfs_request_class_word (EcfsRequestClass class)
{
    static const char *const words[ECFS_N_CLASSES] = {
        [ECFS_CLASS_READ] = "read",     [ECFS_CLASS_WRITE] = "write", [ECFS_CLASS_APPEND] = "append",
        [ECFS_CLASS_REMOVE] = "remove", [ECFS_CLASS_LIST] = "list",   [ECFS_CLASS_LOOK] = "look",
        [ECFS_CLASS_MARK] = "mark",
    };
    return words[class];
}

void ecfs_endpoint_counts (EcfsEndpoint *self, EcfsEndpointCounts *ret_counts)
{
    ecfs_mutex_lock (&self->lock);
    *ret_counts = self->counts;
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_endpoint_health_clear (EcfsEndpointHealth *health)
{
    g_clear_pointer (&health->reason, g_free);
}

void ecfs_endpoint_expect (EcfsEndpoint *self, const EcfsEstimates *prior)
{
    ecfs_mutex_lock (&self->lock);
    (void) ecfs_distribution_expect (&self->latency, &prior->latency_us); /* without, it is not known */
    ecfs_meter_expect (&self->read_meter, &prior->read_bytes_per_s);
    ecfs_meter_expect (&self->write_meter, &prior->write_bytes_per_s);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_endpoint_estimates (EcfsEndpoint *self, EcfsEstimates *ret_estimates)
{
    ecfs_mutex_lock (&self->lock);
    *ret_estimates = (EcfsEstimates){.latency_us = self->latency.quantiles};
    if (self->read_meter.proven)
        ret_estimates->read_bytes_per_s = ecfs_meter_rate (&self->read_meter);
    if (self->write_meter.proven)
        ret_estimates->write_bytes_per_s = ecfs_meter_rate (&self->write_meter);
    ecfs_mutex_unlock (&self->lock);
}

EcfsForecast ecfs_endpoint_forecast (EcfsEndpoint *self, uint64_t bytes)
{
    ecfs_mutex_lock (&self->lock);
    EcfsForecast forecast = ecfs_forecast_of (&self->latency, &self->read_meter,
                                              self->silences[ECFS_OWES_ANSWER].usual_us, self->queued_bytes + bytes);
    ecfs_mutex_unlock (&self->lock);
    return forecast;
}

EcfsHasher *ecfs_endpoint_hasher (EcfsEndpoint *self, bool (*goes_on) (void *user), void *user, GError **error)
{
    ecfs_mutex_lock (&self->lock);
    const EcfsHasherTerms terms = {
        .expected = self->expected, .connect_timeout_us = self->connect_timeout_us, .goes_on = goes_on, .user = user};
    ecfs_mutex_unlock (&self->lock);
    if (self->driver->hasher != NULL)
        return self->driver->hasher (self->config, &terms, error);
    (void) !ecfs_fail (error, ENOTSUP, "%s:// has no way to run a hash tool", self->driver->scheme);
    return NULL;
}

bool ecfs_endpoint_lends (const EcfsEndpoint *self)
{
    return self->driver->lends;
}
