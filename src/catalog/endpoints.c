/* Endpoint rows: stripes name endpoints by row id, everything outside by UUID. */
#include "catalog/content_priv.h"
#include "catalog/work.h"

#define OBJECTS_AT_ONCE   4096 /* that are looked at for stripes at an endpoint */
#define DELETIONS_AT_ONCE 512  /* that are forgotten with it */

void ecfs_endpoint_row_free (EcfsEndpointRow *row)
{
    if (row == NULL)
        return;
    g_free (row->name);
    g_free (row);
}

static EcfsEndpointRow *read_row (EcfsQuery *query, GError **error)
{
    EcfsUuid uuid;
    uint64_t state;
    const char *name = ecfs_column_text (query, 2);
    if (ecfs_column_bytes (query, 1, uuid.bytes, sizeof uuid.bytes) && name != NULL &&
        ecfs_column_u64 (query, 3, ECFS_ENDPOINT_DISTRUSTED, &state)) {
        EcfsEndpointRow *row = g_new (EcfsEndpointRow, 1);
        *row = (EcfsEndpointRow){.id = ecfs_column_number (query, 0),
                                 .uuid = uuid,
                                 .name = g_strdup (name),
                                 .state = (EcfsEndpointState) state};
        return row;
    }
    told (ecfs_bad_row (error, "endpoints", ecfs_column_number (query, 0), "is impossible"));
    return NULL;
}

/* A database that is asked ahead is asked once for all endpoints of an operation. */
static EcfsEndpointRow *get (EcfsCatalog *self, int64_t id, GError **error)
{
    bool all = self->db->ops->ahead != NULL;
    autoquery *query =
        all ? ecfs_query (self, STMT_ENDPOINT_LIST_ALL, NULL, 0, error) : QUERY (self, ENDPOINT_GET, error, INT (id));
    int found = ecfs_query_step (self, query, error);
    while (found == 1 && ecfs_column_number (query, 0) != id)
        found = ecfs_query_step (self, query, error);
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

bool ecfs_endpoint_check_active (EcfsCatalog *self, int64_t endpoint, GError **error)
{
    EcfsEndpointRow *row = get (self, endpoint, error);
    bool active = row != NULL && (row->state == ECFS_ENDPOINT_ACTIVE ||
                                  ecfs_fail (error, EAGAIN, "endpoint %s takes no new stripes any more", row->name));
    ecfs_endpoint_row_free (row);
    return active;
}

static bool check_unknown (EcfsCatalog *self, const EcfsUuid *uuid, const char *name, GError **error)
{
    autoquery *query = QUERY (self, ENDPOINT_FIND, error, UUID (uuid), TEXT (name));
    int found = ecfs_query_step (self, query, error);
    if (found != 1)
        return found == 0;
    if (ecfs_column_number (query, 0) != 0)
        return ecfs_fail (error, EEXIST, "endpoint %s is the same place as endpoint %s: they have one marker", name,
                          ecfs_column_text (query, 1));
    return ecfs_fail (error, EEXIST, "there is an endpoint %s already; give this one another name", name);
}

static bool add (EcfsCatalog *self, const EcfsUuid *uuid, const char *name, int64_t *ret_id, GError **error)
{
    size_t size = strlen (name);
    if (size == 0 || size > ECFS_NAME_MAX)
        return ecfs_fail (error, EINVAL, "the name of an endpoint has 1 to %d bytes", ECFS_NAME_MAX);
    if (!check_unknown (self, uuid, name, error) ||
        !EXEC_NOW (self, ENDPOINT_INSERT, error, UUID (uuid), TEXT (name), INT (ECFS_ENDPOINT_ACTIVE)))
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
    if (state > ECFS_ENDPOINT_FAILED && state != ECFS_ENDPOINT_DISTRUSTED)
        return ecfs_fail (error, EINVAL, "%d is not a state of an endpoint", state);
    return CHANGE_DURABLE (self, error, set_state (self, endpoint, state, error));
}

/* Removing */

/* No name of an endpoint has a blank. */
static char *removed_name (const EcfsEndpointRow *row)
{
    char uuid[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&row->uuid, uuid);
    return g_strdup_printf ("%.200s (removed, %s)", row->name, uuid);
}

static bool forget_deletions (EcfsCatalog *self, int64_t id, int64_t most, GError **error)
{
    if (!EXEC (self, PAST_DELETE_AT, error, INT (id), INT (most)) ||
        !EXEC_NOW (self, DELETION_DELETE_AT, error, INT (id), INT (most)))
        return false;
    self->counters.totals.n_deletions -= ecfs_changes (self);
    return true;
}

bool ecfs_endpoint_row_retire (EcfsCatalog *self, int64_t id, const char *name, GError **error)
{
    return forget_deletions (self, id, -1, error) && EXEC (self, PLACE_DELETE, error, INT (id)) &&
           EXEC (self, ESTIMATE_DELETE, error, INT (id)) &&
           EXEC (self, ENDPOINT_RENAME, error, INT (id), TEXT (name)) &&
           EXEC (self, ENDPOINT_SET_STATE, error, INT (id), INT (ECFS_ENDPOINT_REMOVED));
}

/* Nothing new comes there, and nothing is on its way. */
static bool check_idle (EcfsCatalog *self, const EcfsEndpointRow *row, GError **error)
{
    int64_t n_announced;
    if (row->state == ECFS_ENDPOINT_ACTIVE)
        return ecfs_fail (error, EBUSY, "endpoint %s takes stripes", row->name);
    return QUERY_NUMBER (self, ANNOUNCED_AT, &n_announced, error, INT (row->id)) >= 0 &&
           (n_announced == 0 || ecfs_fail (error, EBUSY, "%" PRId64 " stripes are on their way there", n_announced));
}

/* An endpoint that was dead for long may have a lot of them: some at a time, so that others can change the catalog. */
static bool forget_some (EcfsCatalog *self, int64_t id, GError **error)
{
    EcfsEndpointRow *row = get (self, id, error);
    bool forgotten =
        row != NULL && check_idle (self, row, error) && forget_deletions (self, id, DELETIONS_AT_ONCE, error);
    ecfs_endpoint_row_free (row);
    return forgotten;
}

static bool remove_endpoint (EcfsCatalog *self, int64_t id, GError **error)
{
    EcfsEndpointRow *row = get (self, id, error);
    if (row == NULL || !check_idle (self, row, error)) {
        ecfs_endpoint_row_free (row);
        return false;
    }
    g_autofree char *name = removed_name (row);
    EcfsUuid uuid = row->uuid;
    ecfs_endpoint_row_free (row);
    ecfs_journal_put_endpoint_removed (self->record, &uuid, name);
    return ecfs_endpoint_row_retire (self, id, name, error);
}

bool ecfs_catalog_endpoint_remove (EcfsCatalog *self, int64_t endpoint, GError **error)
{
    uint64_t n_left;
    if (!ecfs_catalog_deletions_at (self, endpoint, &n_left, error))
        return false;
    for (; n_left > DELETIONS_AT_ONCE; n_left -= DELETIONS_AT_ONCE)
        if (!CHANGE (self, error, forget_some (self, endpoint, error)))
            return false;
    return CHANGE_DURABLE (self, error, remove_endpoint (self, endpoint, error));
}

/* Replacing in the same place */

static bool supersede (EcfsCatalog *self, const EcfsEndpointRow *row, const char *aside, const EcfsUuid *uuid,
                       int64_t *ret_id, GError **error)
{
    if (!check_idle (self, row, error))
        return false;
    ecfs_journal_put_endpoint (self->record, &row->uuid, ECFS_ENDPOINT_DRAINING, aside);
    return EXEC (self, ENDPOINT_RENAME, error, INT (row->id), TEXT (aside)) &&
           EXEC (self, ENDPOINT_SET_STATE, error, INT (row->id), INT (ECFS_ENDPOINT_DRAINING)) &&
           EXEC (self, PLACE_DELETE, error, INT (row->id)) && add (self, uuid, row->name, ret_id, error);
}

static bool supersede_by_id (EcfsCatalog *self, int64_t old, const EcfsUuid *uuid, int64_t *ret_id, char **ret_old_name,
                             GError **error)
{
    EcfsEndpointRow *row = get (self, old, error);
    if (row == NULL)
        return false;
    char text[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (&row->uuid, text);
    g_autofree char *aside = g_strdup_printf ("%.200s (replaced, %s)", row->name, text);
    bool done = supersede (self, row, aside, uuid, ret_id, error);
    ecfs_endpoint_row_free (row);
    if (done)
        *ret_old_name = g_steal_pointer (&aside);
    return done;
}

bool ecfs_catalog_endpoint_supersede (EcfsCatalog *self, int64_t old, const EcfsUuid *uuid, int64_t *ret_id,
                                      char **ret_old_name, GError **error)
{
    return CHANGE_DURABLE (self, error, supersede_by_id (self, old, uuid, ret_id, ret_old_name, error));
}

static bool find_removed (EcfsCatalog *self, const EcfsUuid *uuid, char **ret_name, GError **error)
{
    autoquery *query = QUERY (self, ENDPOINT_REMOVED, error, UUID (uuid));
    int found = ecfs_query_step (self, query, error);
    if (found < 0)
        return false;
    *ret_name = found == 1 ? g_strdup (ecfs_column_text (query, 0)) : NULL;
    return true;
}

bool ecfs_catalog_endpoint_removed (EcfsCatalog *self, const EcfsUuid *uuid, char **ret_name, GError **error)
{
    return READ (self, find_removed (self, uuid, ret_name, error));
}

/* Whether one was removed that was called @name and then got @suffix. */
static bool was_renamed (EcfsCatalog *self, const char *name, const char *suffix, bool *ret_removed, GError **error)
{
    int64_t n;
    g_autofree char *begin = g_strconcat (name, suffix, NULL);
    if (READ (self, QUERY_NUMBER (self, ENDPOINT_NAME_REMOVED, &n, error, TEXT (begin))) != 1)
        return false;
    *ret_removed = n > 0;
    return true;
}

bool ecfs_catalog_endpoint_name_removed (EcfsCatalog *self, const char *name, bool *ret_removed, GError **error)
{
    return was_renamed (self, name, " (removed, ", ret_removed, error);
}

bool ecfs_catalog_endpoint_was_superseded (EcfsCatalog *self, const char *name, bool *ret_superseded, GError **error)
{
    return was_renamed (self, name, " (replaced, ", ret_superseded, error);
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

/* What an endpoint holds */

static bool list_stripes (EcfsCatalog *self, int64_t endpoint, int64_t after, int64_t upto, GArray *stripes,
                          GError **error)
{
    autoquery *query = QUERY (self, STRIPES_AT, error, INT (after), INT (upto), INT (endpoint));
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        uint64_t index;
        EcfsStripeAt stripe = {.object = ecfs_column_number (query, 0)};
        if (!ecfs_column_u64 (query, 1, 255, &index) || !ecfs_column_u64 (query, 2, INT64_MAX, &stripe.instance) ||
            !ecfs_column_u64 (query, 3, INT64_MAX, &stripe.size))
            return ecfs_bad_row (error, "stripes", stripe.object, "is impossible");
        stripe.index = (uint16_t) index;
        g_array_append_val (stripes, stripe);
    }
    return found == 0;
}

static bool look_at_some (EcfsCatalog *self, int64_t endpoint, int64_t *after, GArray *stripes, bool *ret_more,
                          GError **error)
{
    int64_t upto = 0;
    if (QUERY_NUMBER (self, OBJECT_SKIP, &upto, error, INT (*after), INT (OBJECTS_AT_ONCE)) < 0)
        return false;
    *ret_more = upto > 0;
    if (upto == 0)
        return true;
    if (!list_stripes (self, endpoint, *after, upto, stripes, error))
        return false;
    *after = upto;
    return true;
}

GArray *ecfs_catalog_stripes_at (EcfsCatalog *self, int64_t endpoint, int64_t *after, bool *ret_more, GError **error)
{
    g_autoptr (GArray) stripes = g_array_new (FALSE, FALSE, sizeof (EcfsStripeAt));
    return READ (self, look_at_some (self, endpoint, after, stripes, ret_more, error)) ? g_steal_pointer (&stripes)
                                                                                       : NULL;
}

bool ecfs_catalog_announced_at (EcfsCatalog *self, int64_t endpoint, uint64_t *ret_n_stripes, GError **error)
{
    int64_t n;
    int found = READ (self, QUERY_NUMBER (self, ANNOUNCED_AT, &n, error, INT (endpoint)));
    *ret_n_stripes = found == 1 ? (uint64_t) n : 0;
    return found == 1;
}

bool ecfs_catalog_deletions_at (EcfsCatalog *self, int64_t endpoint, uint64_t *ret_n_stripes, GError **error)
{
    int64_t n;
    int found = READ (self, QUERY_NUMBER (self, DELETIONS_AT, &n, error, INT (endpoint)));
    *ret_n_stripes = found == 1 ? (uint64_t) n : 0;
    return found == 1;
}

static uint64_t figure (EcfsQuery *query, int column)
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

typedef struct Counting {
    const int64_t *endpoints;
    size_t n;
    uint64_t *bytes;
    int64_t after; /* the object that was counted last */
} Counting;

static bool count_some (EcfsCatalog *self, Counting *counting, bool *ret_more, GError **error)
{
    int64_t upto = 0;
    int found = QUERY_NUMBER (self, OBJECT_SKIP, &upto, error, INT (counting->after), INT (OBJECTS_AT_ONCE));
    *ret_more = upto > 0;
    if (found < 0 || upto == 0)
        return found >= 0;
    autoquery *query = QUERY (self, STRIPE_BYTES, error, INT (counting->after), INT (upto));
    while ((found = ecfs_query_step (self, query, error)) == 1)
        for (size_t i = 0; i < counting->n; i++)
            if (counting->endpoints[i] == ecfs_column_number (query, 0))
                counting->bytes[i] += (uint64_t) MAX (ecfs_column_number (query, 1), 0);
    counting->after = upto;
    return found == 0;
}

bool ecfs_catalog_bytes_at (EcfsCatalog *self, const int64_t *endpoints, size_t n, const atomic_bool *stop,
                            uint64_t *ret_bytes, GError **error)
{
    Counting counting = {.endpoints = endpoints, .n = n, .bytes = ret_bytes};
    bool more = true;
    for (size_t i = 0; i < n; i++) {
        EcfsRetained waiting;
        if (!ecfs_catalog_retained (self, endpoints[i], &waiting, error))
            return false;
        ret_bytes[i] = waiting.bytes;
    }
    while (more) {
        if (stop != NULL && atomic_load (stop))
            return ecfs_fail (error, ECANCELED, "counting what endpoints have is given up");
        if (!READ (self, count_some (self, &counting, &more, error)))
            return false;
    }
    return true;
}
