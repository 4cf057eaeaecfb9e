/* Which of the archive's endpoints take stripes, which only give them, and which are no more. */
#include "archive/archive_priv.h"

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

static bool follow_endpoints (EcfsArchive *self, const GPtrArray *rows, GError **error)
{
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
