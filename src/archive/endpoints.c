/* The endpoints of an archive that is open: which take stripes, which only give them, and which are no more; those that
 * come while it is open. */
#include "archive/archive_priv.h"
#include "archive/keys.h"
#include "archive/marks.h"
#include "archive/zones.h"
#include "util/io.h"

/* What they are for */

size_t ecfs_archive_n_left (const EcfsArchive *self)
{
    size_t n_left = 0, n_endpoints = self->n_endpoints;
    for (size_t i = 0; i < n_endpoints; i++)
        n_left += self->endpoints[i].state != ECFS_ENDPOINT_REMOVED;
    return n_left;
}

bool ecfs_archive_endpoint_counts (const EcfsArchiveEndpoint *endpoint)
{
    return endpoint->endpoint != NULL && endpoint->state < ECFS_ENDPOINT_FAILED;
}

const EcfsArchiveEndpoint *ecfs_archive_endpoint_named (const EcfsArchive *self, const char *name, GError **error)
{
    size_t n_endpoints = self->n_endpoints;
    for (size_t i = 0; i < n_endpoints; i++)
        if (self->endpoints[i].state != ECFS_ENDPOINT_REMOVED && strcmp (self->endpoints[i].name, name) == 0)
            return &self->endpoints[i];
    (void) !ecfs_fail (error, ENOENT, "%s has no endpoint %s: 'ecfs endpoint list' shows those it has", self->directory,
                       name);
    return NULL;
}

EcfsArchiveEndpoint *ecfs_archive_endpoint_own (EcfsArchive *self, const EcfsArchiveEndpoint *endpoint)
{
    return &self->endpoints[endpoint - self->endpoints];
}

/* The catalog refuses stripes for what is not active: whoever places some is to know that before it does. */
bool ecfs_archive_put_state (EcfsArchive *self, const EcfsArchiveEndpoint *endpoint, EcfsEndpointState state,
                             GError **error)
{
    EcfsArchiveEndpoint *own = ecfs_archive_endpoint_own (self, endpoint);
    EcfsEndpointState before = own->state;
    if (before == state || (before == ECFS_ENDPOINT_DISTRUSTED && state == ECFS_ENDPOINT_DRAINING))
        return true; /* who is distrusted is emptied as it is */
    if (before == ECFS_ENDPOINT_DISTRUSTED && state != ECFS_ENDPOINT_ACTIVE)
        return ecfs_fail (error, EINVAL, "endpoint %s is distrusted: 'ecfs endpoint distrust --undo %s %s' ends that",
                          own->name, self->directory, own->name);
    if (state != ECFS_ENDPOINT_ACTIVE)
        own->state = state;
    bool reconsider =
        self->lineage != NULL && (state == ECFS_ENDPOINT_DISTRUSTED || before == ECFS_ENDPOINT_DISTRUSTED);
    if (reconsider)
        ecfs_catalog_allow (self->catalog); /* it may be this one that keeps it from being changed */
    bool put = ecfs_catalog_endpoint_set_state (self->catalog, own->id, state, error);
    own->state = put ? state : before;
    if (reconsider)
        ecfs_lineage_reconsider (self->lineage);
    return put;
}

static bool set_state (EcfsArchive *self, const char *name, EcfsEndpointState state, GError **error)
{
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_named (self, name, error);
    return endpoint != NULL && ecfs_archive_put_state (self, endpoint, state, error);
}

bool ecfs_archive_set_endpoint_state (EcfsArchive *self, const char *name, EcfsEndpointState state, GError **error)
{
    ecfs_mutex_lock (&self->adding);
    bool set = set_state (self, name, state, error);
    ecfs_mutex_unlock (&self->adding);
    if (set && state == ECFS_ENDPOINT_DISTRUSTED)
        ecfs_archive_doubt (self);
    if (set && state == ECFS_ENDPOINT_DISTRUSTED && self->cache != NULL)
        ecfs_cache_forget (self->cache, NULL); /* it may have lied before, and not all need be sealed */
    return set;
}

void ecfs_archive_heed_distrust (EcfsArchive *self)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GPtrArray) rows = ecfs_catalog_endpoints (self->catalog, &error);
    if (rows == NULL)
        g_warning ("%s: whether an endpoint is distrusted cannot be told: %s", self->directory, error->message);
    ecfs_mutex_lock (&self->adding);
    for (guint i = 0; rows != NULL && i < rows->len; i++) {
        const EcfsEndpointRow *row = g_ptr_array_index (rows, i);
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (self, row->id);
        if (endpoint == NULL || endpoint->state == ECFS_ENDPOINT_REMOVED)
            continue;
        if ((row->state == ECFS_ENDPOINT_DISTRUSTED) != (endpoint->state == ECFS_ENDPOINT_DISTRUSTED))
            ecfs_archive_endpoint_own (self, endpoint)->state = row->state;
    }
    ecfs_mutex_unlock (&self->adding);
}

/* One that was added elsewhere: it is used if ecfs.conf here has its section by now. */
static bool take_endpoint (EcfsArchive *self, const EcfsEndpointRow *row, GError **error)
{
    g_autoptr (EcfsConfig) config = ecfs_archive_config_now (self, error);
    if (config == NULL)
        return false;
    const EcfsConfigEndpoint *section = ecfs_config_endpoint (config, row->name);
    if (!ecfs_archive_open_endpoint (self, row, row->name, section, error))
        return false;
    if (section != NULL)
        ecfs_endpoint_start (self->endpoints[self->n_endpoints].endpoint);
    else
        g_warning ("%s: endpoint %s was added at another mount: add its section to " ECFS_CONFIG_NAME
                   " here, too, and mount again",
                   self->directory, row->name);
    self->n_endpoints++;
    return true;
}

static bool has_row (const GPtrArray *rows, int64_t id)
{
    for (guint i = 0; i < rows->len; i++)
        if (((const EcfsEndpointRow *) g_ptr_array_index (rows, i))->id == id)
            return true;
    return false;
}

static bool follow_endpoints (EcfsArchive *self, const GPtrArray *rows, GError **error)
{
    for (size_t i = 0; i < self->n_endpoints; i++) /* what is removed is not listed */
        if (!has_row (rows, self->endpoints[i].id))
            self->endpoints[i].state = ECFS_ENDPOINT_REMOVED;
    for (guint i = 0; i < rows->len; i++) {
        const EcfsEndpointRow *row = g_ptr_array_index (rows, i);
        const EcfsArchiveEndpoint *known = ecfs_archive_endpoint_by_id (self, row->id);
        if (known == NULL && row->state != ECFS_ENDPOINT_REMOVED && !take_endpoint (self, row, error))
            return false;
        if (known == NULL || known->state == row->state || known->state == ECFS_ENDPOINT_REMOVED)
            continue;
        ecfs_archive_endpoint_own (self, known)->state = row->state;
        if (row->state == ECFS_ENDPOINT_DISTRUSTED)
            ecfs_archive_doubt (self);
        if (row->state == ECFS_ENDPOINT_DISTRUSTED && self->cache != NULL)
            ecfs_cache_forget (self->cache, NULL);
    }
    return true;
}

bool ecfs_archive_follow_endpoints (EcfsArchive *self, GError **error)
{
    g_autoptr (GPtrArray) rows = ecfs_catalog_endpoints (self->catalog, error);
    if (rows == NULL)
        return false;
    ecfs_mutex_lock (&self->adding);
    bool good = follow_endpoints (self, rows, error);
    ecfs_mutex_unlock (&self->adding);
    return good;
}

const char *ecfs_endpoint_state_word (EcfsEndpointState state)
{
    static const char *const words[] = {
        [ECFS_ENDPOINT_ACTIVE] = "active",     [ECFS_ENDPOINT_READONLY] = "readonly",
        [ECFS_ENDPOINT_DRAINING] = "draining", [ECFS_ENDPOINT_FAILED] = "failed",
        [ECFS_ENDPOINT_REMOVED] = "removed",   [ECFS_ENDPOINT_DISTRUSTED] = "distrusted",
    };
    return (unsigned) state < G_N_ELEMENTS (words) ? words[state] : "unknown";
}

/* Opening them */

/* Of several markers the newest that the archive wrote counts. */
static bool is_authentic (void *user, const EcfsMarker *marker)
{
    const EcfsArchive *self = user;
    return self->lacks_keys || !ecfs_marker_is_doubtful (ecfs_marker_judge (marker, self->marker_keys, NULL));
}

static EcfsEndpoint *make_endpoint (EcfsArchive *self, const EcfsEndpointRow *row, const EcfsConfigEndpoint *config,
                                    GError **error)
{
    EcfsMarker expected = {.archive = *ecfs_catalog_archive (self->catalog),
                           .endpoint = row->uuid,
                           .epoch = ecfs_catalog_epoch (self->catalog),
                           .sequence = ecfs_catalog_sequence (self->catalog)};
    EcfsEndpoint *endpoint = ecfs_endpoint_new (config->spec, &expected, error);
    if (endpoint != NULL)
        ecfs_endpoint_set_vouch (endpoint, is_authentic, self);
    return endpoint;
}

bool ecfs_archive_open_endpoint (EcfsArchive *self, const EcfsEndpointRow *row, const char *name,
                                 const EcfsConfigEndpoint *config, GError **error)
{
    size_t position = self->n_endpoints;
    EcfsEndpoint *endpoint = NULL;
    if (position == ECFS_ENDPOINTS_MAX)
        return ecfs_fail (error, ENOSPC, "%s: it already has %d endpoints, the most there can be", self->directory,
                          ECFS_ENDPOINTS_MAX);
    if (config != NULL && (endpoint = make_endpoint (self, row, config, error)) == NULL)
        return false;
    self->endpoints[position] = (EcfsArchiveEndpoint){.id = row->id,
                                                      .uuid = row->uuid,
                                                      .name = g_strdup (name),
                                                      .zone = g_strdup (config != NULL ? config->zone : name),
                                                      .state = row->state,
                                                      .endpoint = endpoint};
    return true;
}

/* Others that come */

/* The text of ecfs.conf as it is now with one more section, checked; g_free (). As it is where it has this
 * section: what was added may be added again, as by somebody whose first try was killed. */
static char *extended_config (const char *path, const EcfsConfigEndpoint *endpoint, GError **error)
{
    g_autofree char *text = NULL;
    if (!ecfs_read_file (path, ECFS_CONFIG_MAX_SIZE, &text, NULL, error))
        return NULL;
    g_autofree char *section = ecfs_config_format_endpoint (endpoint);
    g_autofree char *extended = g_strconcat (text, g_str_has_suffix (text, "\n") ? "\n" : "\n\n", section, NULL);
    g_autoptr (EcfsConfig) now = ecfs_config_parse (text, path, error); /* its own faults first */
    if (now == NULL)
        return NULL;
    const EcfsConfigEndpoint *there = ecfs_config_endpoint (now, endpoint->spec->name);
    g_autofree char *same = there == NULL ? NULL : ecfs_config_format_endpoint (there);
    if (g_strcmp0 (same, section) == 0)
        return g_steal_pointer (&text);
    g_autoptr (EcfsConfig) then = ecfs_config_parse (extended, path, error); /* name or URL used twice */
    return then == NULL ? NULL : g_steal_pointer (&extended);
}

/* One that was in the catalog alone. Whoever looks at it meanwhile sees it with all that it has, or not at all. */
static bool find_again (EcfsArchive *self, const EcfsArchiveEndpoint *known, const EcfsEndpointRow *row,
                        const EcfsConfigEndpoint *config, GError **error)
{
    EcfsArchiveEndpoint *own = ecfs_archive_endpoint_own (self, known);
    EcfsEndpoint *endpoint = make_endpoint (self, row, config, error);
    if (endpoint == NULL)
        return ecfs_prefix (error, "endpoint %s will be used from the next mount on", known->name);
    if (strcmp (known->zone, config->zone) != 0) {
        own->first_zone = (char *) own->zone;
        own->zone = g_strdup (config->zone);
    }
    ecfs_endpoint_start (endpoint);
    own->endpoint = endpoint;
    return true;
}

/* Where a recovery found too few endpoints and there are enough again, each takes one stripe of an object, as before.
 * Takes @text; g_free (). */
static char *end_doubling (char *text, const char *path, GError **error)
{
    g_autofree char *whole = text;
    g_autoptr (EcfsConfig) config = ecfs_config_parse (text, path, error);
    if (config == NULL)
        return NULL;
    bool is_temporary = config->allow_double == ECFS_DOUBLE_TEMPORARY;
    g_autoptr (EcfsCodec) codec = is_temporary ? ecfs_codec_new (config->code, NULL) : NULL;
    if (codec == NULL || !ecfs_archive_enough_endpoints (codec, config->endpoints->len, false, NULL))
        return g_steal_pointer (&whole);
    return ecfs_config_edit (whole, "archive", "allow_double", "no");
}

static bool add_endpoint (EcfsArchive *self, const EcfsConfigEndpoint *endpoint, GError **error)
{
    EcfsEndpointRow row;
    const char *name = endpoint->spec->name;
    g_autofree char *path = g_build_filename (self->directory, ECFS_CONFIG_NAME, NULL);
    g_autofree char *text = extended_config (path, endpoint, error);
    text = text == NULL ? NULL : end_doubling (g_steal_pointer (&text), path, error);
    if (text == NULL ||
        !ecfs_archive_register (self->catalog, self->keys, self->shares, endpoint, false, &row, error) ||
        !ecfs_zone_keep (self->catalog, &row.uuid, name, endpoint->zone, error))
        return false;
    if (!ecfs_replace_file (path, text, strlen (text), 0600, error))
        return ecfs_prefix (error, "the catalog has endpoint %s now: add its section to the file by hand", name);
    const EcfsArchiveEndpoint *known = ecfs_archive_endpoint_by_id (self, row.id);
    if (known != NULL)
        return known->endpoint != NULL || find_again (self, known, &row, endpoint, error);
    if (!ecfs_archive_open_endpoint (self, &row, name, endpoint, error))
        return ecfs_prefix (error, "endpoint %s will be used from the next mount on", name);
    ecfs_endpoint_start (self->endpoints[self->n_endpoints].endpoint);
    self->n_endpoints++;
    return true;
}

/* The zone that an endpoint was in which is in the catalog alone; NULL: it is not told, or another one is given. */
static bool zone_before (EcfsArchive *self, const EcfsConfigEndpoint *endpoint, char **ret_zone, GError **error)
{
    *ret_zone = NULL;
    const EcfsArchiveEndpoint *known = ecfs_archive_endpoint_named (self, endpoint->spec->name, NULL);
    return endpoint->has_zone || known == NULL || ecfs_zone_kept (self->catalog, &known->uuid, ret_zone, error);
}

bool ecfs_archive_endpoint_add (EcfsArchive *self, const EcfsConfigEndpoint *endpoint, GError **error)
{
    EcfsConfigEndpoint with = *endpoint;
    g_autofree char *before = NULL;
    if (!ecfs_archive_check_apart (self->directory, endpoint, error) || !zone_before (self, endpoint, &before, error))
        return false;
    with.zone = before != NULL ? before : with.zone;
    ecfs_mutex_lock (&self->adding);
    bool added = add_endpoint (self, &with, error);
    if (added)
        ecfs_month_book_begin (self->month);
    ecfs_mutex_unlock (&self->adding);
    return added;
}

/* One that an earlier call has put aside and whose stripes are not all rebuilt; NULL: there is none. */
static const EcfsArchiveEndpoint *put_aside (EcfsArchive *self, const char *name)
{
    g_autofree char *prefix = g_strdup_printf ("%s (replaced, ", name);
    for (size_t i = 0; i < self->n_endpoints; i++)
        if (self->endpoints[i].state != ECFS_ENDPOINT_REMOVED && g_str_has_prefix (self->endpoints[i].name, prefix))
            return &self->endpoints[i];
    return NULL;
}

/* As ecfs.conf has it now: it may have been added since the archive was opened. */
EcfsConfig *ecfs_archive_config_now (EcfsArchive *self, GError **error)
{
    g_autofree char *path = g_build_filename (self->directory, ECFS_CONFIG_NAME, NULL);
    g_autofree char *text = NULL;
    return ecfs_read_file (path, ECFS_CONFIG_MAX_SIZE, &text, NULL, error) ? ecfs_config_parse (text, path, error)
                                                                           : NULL;
}

static bool renew_endpoint (EcfsArchive *self, const char *name, char **ret_old, GError **error)
{
    const EcfsArchiveEndpoint *aside = put_aside (self, name);
    if (aside != NULL) {
        *ret_old = g_strdup (aside->name);
        return true;
    }
    EcfsEndpointRow row;
    g_autofree char *renamed = NULL;
    const EcfsArchiveEndpoint *old = ecfs_archive_endpoint_named (self, name, error);
    g_autoptr (EcfsConfig) config = old == NULL ? NULL : ecfs_archive_config_now (self, error);
    if (config == NULL)
        return false;
    const EcfsConfigEndpoint *section = ecfs_config_endpoint (config, name);
    if (section == NULL || old->endpoint == NULL)
        return ecfs_fail (
            error, ENOTCONN,
            "endpoint %s is not in ecfs.conf: name a place that takes over, with 'ecfs endpoint replace %s %s NEW=URL'",
            name, self->directory, name);
    if (self->n_endpoints == ECFS_ENDPOINTS_MAX)
        return ecfs_fail (error, ENOSPC, "%s: it already has %d endpoints, the most there can be", self->directory,
                          ECFS_ENDPOINTS_MAX);
    EcfsEndpointState before = old->state;
    if (!ecfs_archive_put_state (self, old, ECFS_ENDPOINT_DRAINING, error))
        return false; /* nothing new is placed there meanwhile */
    if (!ecfs_archive_register_anew (self->catalog, self->keys, self->shares, section, old, &row, &renamed, error)) {
        (void) ecfs_archive_put_state (self, old, before, NULL); /* the first error is the one to tell */
        return false;
    }
    EcfsArchiveEndpoint *own = ecfs_archive_endpoint_own (self, old);
    own->first_name = (char *) own->name;
    own->name = g_strdup (renamed);
    ecfs_endpoint_retire (own->endpoint, "was emptied, and another endpoint has taken its place");
    bool told = ecfs_zone_keep (self->catalog, &row.uuid, name, section->zone, error);
    *ret_old = g_steal_pointer (&renamed);
    if (!told)
        return false;
    if (!ecfs_archive_open_endpoint (self, &row, name, section, error))
        return ecfs_prefix (error, "endpoint %s will be used from the next mount on: then run this again", name);
    ecfs_endpoint_start (self->endpoints[self->n_endpoints].endpoint);
    self->n_endpoints++;
    return true;
}

bool ecfs_archive_renew_endpoint (EcfsArchive *self, const char *name, char **ret_old, GError **error)
{
    ecfs_mutex_lock (&self->adding);
    bool renewed = renew_endpoint (self, name, ret_old, error);
    ecfs_mutex_unlock (&self->adding);
    return renewed;
}
