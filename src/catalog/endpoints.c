/* Endpoint rows: stripes name endpoints by row id, everything outside by UUID. */
#include "catalog/catalog_priv.h"

void ecfs_endpoint_row_free (EcfsEndpointRow *row)
{
    if (row == NULL)
        return;
    g_free (row->name);
    g_free (row);
}

static EcfsEndpointRow *read_row (sqlite3_stmt *query, GError **error)
{
    EcfsUuid uuid;
    uint64_t state;
    const char *name = (const char *) sqlite3_column_text (query, 2);
    if (ecfs_column_bytes (query, 1, uuid.bytes, sizeof uuid.bytes) && name != NULL &&
        ecfs_column_u64 (query, 3, ECFS_ENDPOINT_FAILED, &state)) {
        EcfsEndpointRow *row = g_new (EcfsEndpointRow, 1);
        *row = (EcfsEndpointRow){.id = sqlite3_column_int64 (query, 0),
                                 .uuid = uuid,
                                 .name = g_strdup (name),
                                 .state = (EcfsEndpointState) state};
        return row;
    }
    told (ecfs_bad_row (error, "endpoints", sqlite3_column_int64 (query, 0), "is impossible"));
    return NULL;
}

static EcfsEndpointRow *get (EcfsCatalog *self, int64_t id, GError **error)
{
    autoquery *query = QUERY (self, ENDPOINT_GET, error, INT (id));
    int found = ecfs_query_step (self, query, error);
    if (found == 0)
        told (ecfs_fail (error, ENOENT, "endpoint row %" PRId64 " does not exist", id));
    return found == 1 ? read_row (query, error) : NULL;
}

bool ecfs_endpoint_uuid (EcfsCatalog *self, int64_t endpoint, EcfsUuid *ret_uuid, GError **error)
{
    EcfsEndpointRow *row = get (self, endpoint, error);
    if (row == NULL)
        return false;
    *ret_uuid = row->uuid;
    ecfs_endpoint_row_free (row);
    return true;
}

static bool check_unknown (EcfsCatalog *self, const EcfsUuid *uuid, const char *name, GError **error)
{
    autoquery *query = QUERY (self, ENDPOINT_FIND, error, UUID (uuid), TEXT (name));
    int found = ecfs_query_step (self, query, error);
    if (found != 1)
        return found == 0;
    if (sqlite3_column_int (query, 0) != 0)
        return ecfs_fail (error, EEXIST, "endpoint %s is the same place as endpoint %s: they have one marker", name,
                          (const char *) sqlite3_column_text (query, 1));
    return ecfs_fail (error, EEXIST, "there is an endpoint %s already; give this one another name", name);
}

static bool add (EcfsCatalog *self, const EcfsUuid *uuid, const char *name, int64_t *ret_id, GError **error)
{
    size_t size = strlen (name);
    if (size == 0 || size > ECFS_NAME_MAX)
        return ecfs_fail (error, EINVAL, "the name of an endpoint has 1 to %d bytes", ECFS_NAME_MAX);
    if (!check_unknown (self, uuid, name, error) ||
        !EXEC (self, ENDPOINT_INSERT, error, UUID (uuid), TEXT (name), INT (ECFS_ENDPOINT_ACTIVE)))
        return false;
    *ret_id = ecfs_inserted (self);
    ecfs_journal_put_endpoint (self->record, uuid, ECFS_ENDPOINT_ACTIVE, name);
    return true;
}

bool ecfs_catalog_endpoint_add (EcfsCatalog *self, const EcfsUuid *uuid, const char *name, int64_t *ret_id,
                                GError **error)
{
    return CHANGE_DURABLE (self, error, add (self, uuid, name, ret_id, error));
}

static bool set_state (EcfsCatalog *self, int64_t id, EcfsEndpointState state, GError **error)
{
    EcfsEndpointRow *row = get (self, id, error);
    if (row == NULL)
        return false;
    ecfs_journal_put_endpoint (self->record, &row->uuid, state, row->name);
    ecfs_endpoint_row_free (row);
    return EXEC (self, ENDPOINT_SET_STATE, error, INT (id), INT (state));
}

bool ecfs_catalog_endpoint_set_state (EcfsCatalog *self, int64_t endpoint, EcfsEndpointState state, GError **error)
{
    if (state > ECFS_ENDPOINT_FAILED)
        return ecfs_fail (error, EINVAL, "%d is no state of an endpoint", state);
    return CHANGE (self, error, set_state (self, endpoint, state, error));
}

static GPtrArray *list (EcfsCatalog *self, GError **error)
{
    g_autoptr (GPtrArray) rows = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_endpoint_row_free);
    autoquery *query = ecfs_query (self, STMT_ENDPOINT_LIST, NULL, 0, error);
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        EcfsEndpointRow *row = read_row (query, error);
        if (row == NULL)
            return NULL;
        g_ptr_array_add (rows, row);
    }
    return found < 0 ? NULL : g_steal_pointer (&rows);
}

GPtrArray *ecfs_catalog_endpoints (EcfsCatalog *self, GError **error)
{
    return READ (self, list (self, error));
}

static uint64_t figure (sqlite3_stmt *query, int column)
{
    uint64_t value;
    return ecfs_column_u64 (query, column, INT64_MAX, &value) ? value : 0;
}

static bool get_estimate (EcfsCatalog *self, int64_t endpoint, EcfsEstimateRow *ret_row, GError **error)
{
    autoquery *query = QUERY (self, ESTIMATE_GET, error, INT (endpoint));
    int found = ecfs_query_step (self, query, error);
    if (found < 0)
        return false;
    *ret_row = (EcfsEstimateRow){.endpoint = endpoint};
    for (int i = 0; i < 3 && found == 1; i++) {
        ret_row->latency_us[i] = figure (query, i);
        ret_row->read_bytes_per_s[i] = figure (query, 3 + i);
        ret_row->write_bytes_per_s[i] = figure (query, 6 + i);
    }
    return true;
}

bool ecfs_catalog_estimate (EcfsCatalog *self, int64_t endpoint, EcfsEstimateRow *ret_row, GError **error)
{
    return READ (self, get_estimate (self, endpoint, ret_row, error));
}

bool ecfs_catalog_estimate_set (EcfsCatalog *self, const EcfsEstimateRow *row, GError **error)
{
    const uint64_t *latency = row->latency_us, *reads = row->read_bytes_per_s, *writes = row->write_bytes_per_s;
    return CHANGE (self, error,
                   EXEC (self, ESTIMATE_SET, error, INT (latency[0]), INT (latency[1]), INT (latency[2]),
                         INT (reads[0]), INT (reads[1]), INT (reads[2]), INT (writes[0]), INT (writes[1]),
                         INT (writes[2]), INT (row->endpoint)));
}
