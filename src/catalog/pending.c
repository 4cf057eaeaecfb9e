/* Intents (what may be on its way to endpoints) and deletions (what is to vanish from them). */
#include "catalog/age.h"
#include "catalog/content_priv.h"
#include "catalog/past.h"

bool ecfs_stripe_check (const EcfsStripeRow *stripe, GError **error)
{
    if (stripe->index > 255 || stripe->instance == 0 || stripe->instance > INT64_MAX || stripe->size > INT64_MAX)
        return ecfs_fail (error, EINVAL, "stripe %u with instance %" PRIu64 " and %" PRIu64 " bytes is impossible",
                          stripe->index, stripe->instance, stripe->size);
    return true;
}

bool ecfs_stripes_have (const GArray *stripes, const EcfsStripeRow *stripe)
{
    for (guint i = 0; stripes != NULL && i < stripes->len; i++) {
        const EcfsStripeRow *other = &g_array_index (stripes, EcfsStripeRow, i);
        if (other->index == stripe->index && other->instance == stripe->instance && other->endpoint == stripe->endpoint)
            return true;
    }
    return false;
}

/* Index, instance and endpoint from three columns. */
static bool read_place (EcfsQuery *query, int column, EcfsStripeRow *ret_stripe)
{
    uint64_t index;
    *ret_stripe = (EcfsStripeRow){.endpoint = ecfs_column_number (query, column + 2)};
    if (!ecfs_column_u64 (query, column, 255, &index) ||
        !ecfs_column_u64 (query, column + 1, INT64_MAX, &ret_stripe->instance))
        return false;
    ret_stripe->index = (uint16_t) index;
    return true;
}

/* Deletions */

bool ecfs_deletion_queue (EcfsCatalog *self, const EcfsUuid *object, const EcfsStripeRow *stripe, EcfsDeletionKind kind,
                          GError **error)
{
    /* The record of the running operation, if it writes one, is the one that no longer names the stripe. */
    uint64_t sequence = 0;
    self->counters.totals.n_deletions++;
    return ecfs_sequence_next (self, &sequence, error) && ecfs_age_note (self, error) &&
           EXEC (self, DELETION_INSERT, error, UUID (object), INT (stripe->index), INT (stripe->instance),
                 INT (stripe->endpoint), INT (ecfs_age_ns (self)), INT (kind), INT (sequence), INT (stripe->size),
                 INT (ecfs_real_ns ()), BLOB (stripe->digest, sizeof stripe->digest));
}

static bool add_deletions (EcfsCatalog *self, EcfsQuery *query, EcfsDeletionKind kind, GArray *deletions,
                           GError **error)
{
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        EcfsDeletion deletion = {.id = ecfs_column_number (query, 0),
                                 .queued_age_ns = ecfs_column_number (query, 5),
                                 .sequence = (uint64_t) ecfs_column_number (query, 6),
                                 .kind = kind};
        if (!ecfs_column_bytes (query, 1, deletion.object.bytes, sizeof deletion.object.bytes) ||
            !read_place (query, 2, &deletion.stripe))
            return ecfs_bad_row (error, "deletions", deletion.id, "its stripe is impossible");
        g_array_append_val (deletions, deletion);
    }
    return found == 0;
}

/* How old those have to be that are due. */
static int64_t due_until (EcfsDeletionKind kind, const EcfsDeletionWaits *waits, int64_t now_ns)
{
    if (kind == ECFS_DELETION_EXCHANGED)
        return now_ns - waits->exchanged_ns;
    if (kind == ECFS_DELETION_MARKED)
        return waits->marked ? INT64_MAX : INT64_MIN;
    if (kind != ECFS_DELETION_REMOVED)
        return waits->least_ns > 0 ? now_ns - waits->least_ns : INT64_MAX;
    int64_t until_ns = now_ns - waits->removed_ns;
    if (waits->released_age_ns > 0)
        until_ns = MAX (until_ns, MIN (waits->released_age_ns, now_ns - waits->exchanged_ns));
    return waits->holds ? MIN (until_ns, waits->held_from_age_ns - 1) : until_ns;
}

/* Those that are due at once come first. */
static GArray *list_deletions (EcfsCatalog *self, int64_t endpoint, const EcfsDeletionWaits *waits,
                               const EcfsDeletion *after, size_t max, GError **error)
{
    static const EcfsDeletionKind order[] = {ECFS_DELETION_DOOMED, ECFS_DELETION_UNCOMMITTED, ECFS_DELETION_EXCHANGED,
                                             ECFS_DELETION_REMOVED, ECFS_DELETION_MARKED};
    static const EcfsDeletion first = {.queued_age_ns = INT64_MIN};
    g_autoptr (GArray) deletions = g_array_new (false, true, sizeof (EcfsDeletion));
    const int64_t limit = (int64_t) MIN (max, INT_MAX), now_ns = ecfs_age_ns (self);
    size_t from = 0;
    while (after != NULL && order[from] != after->kind)
        from++;
    for (size_t i = from; i < G_N_ELEMENTS (order); i++) {
        const EcfsDeletion *last = i == from && after != NULL ? after : &first;
        autoquery *query =
            QUERY (self, DELETION_DUE, error, INT (endpoint), INT (order[i]), INT (due_until (order[i], waits, now_ns)),
                   INT (last->queued_age_ns), INT (last->id), INT (limit - (int64_t) deletions->len));
        if (!add_deletions (self, query, order[i], deletions, error))
            return NULL;
    }
    return g_steal_pointer (&deletions);
}

GArray *ecfs_catalog_deletions (EcfsCatalog *self, int64_t endpoint, const EcfsDeletionWaits *waits,
                                const EcfsDeletion *after, size_t max, GError **error)
{
    return READ (self, list_deletions (self, endpoint, waits, after, max, error));
}

/* Of a query that always has a row. */
static bool get_pair (EcfsCatalog *self, EcfsQuery *query, uint64_t *ret_first, uint64_t *ret_second, GError **error)
{
    int found = ecfs_query_step (self, query, error);
    if (found != 1)
        return false;
    return (ecfs_column_u64 (query, 0, INT64_MAX, ret_first) && ecfs_column_u64 (query, 1, INT64_MAX, ret_second)) ||
           ecfs_bad_row (error, "objects", 0, "a sum is impossible");
}

static bool sum_deletions (EcfsCatalog *self, int64_t endpoint, EcfsRetained *ret_retained, GError **error)
{
    autoquery *query = QUERY (self, DELETION_SUM, error, INT (endpoint));
    return get_pair (self, query, &ret_retained->n_stripes, &ret_retained->bytes, error);
}

bool ecfs_catalog_retained (EcfsCatalog *self, int64_t endpoint, EcfsRetained *ret_retained, GError **error)
{
    return READ (self, sum_deletions (self, endpoint, ret_retained, error));
}

static bool doom_deletions (EcfsCatalog *self, int64_t *deletions, size_t n, GError **error)
{
    for (size_t i = 0; i < n; i++) {
        if (!EXEC (self, PAST_DOOM, error, INT (deletions[i])) ||
            !EXEC_NOW (self, DELETION_DOOM, error, INT (deletions[i])))
            return false;
        if (ecfs_changes (self) == 0)
            deletions[i] = 0;
    }
    return true;
}

bool ecfs_catalog_deletions_doom (EcfsCatalog *self, int64_t *deletions, size_t n, GError **error)
{
    return CHANGE_DURABLE (self, error, doom_deletions (self, deletions, n, error));
}

static bool deletions_done (EcfsCatalog *self, const int64_t *deletions, size_t n, GError **error)
{
    for (size_t i = 0; i < n; i++) {
        if (!EXEC_NOW (self, DELETION_DELETE, error, INT (deletions[i])))
            return false;
        self->counters.totals.n_deletions -= ecfs_changes (self);
    }
    self->deleted_us = ecfs_now_us ();
    return true;
}

static bool sum_up (EcfsCatalog *self, EcfsQuery *objects, EcfsQuery *deletions, EcfsOpenTotals *ret_totals,
                    GError **error)
{
    uint64_t newest = 0;
    EcfsOpenTotals totals = {.n_objects = 0};
    if (!get_pair (self, objects, &totals.n_objects, &totals.content_bytes, error) ||
        !get_pair (self, deletions, &totals.n_stripes, &newest, error))
        return false;
    totals.newest_ns = totals.n_stripes == 0 ? 0 : MAX (ecfs_age_ns (self) - (int64_t) newest, 0);
    *ret_totals = totals;
    return true;
}

static bool open_totals (EcfsCatalog *self, EcfsOpenTotals *ret_totals, GError **error)
{
    autoquery *objects = ecfs_query (self, STMT_OPEN_OBJECTS, NULL, 0, error);
    autoquery *deletions = ecfs_query (self, STMT_OPEN_DELETIONS, NULL, 0, error);
    return sum_up (self, objects, deletions, ret_totals, error);
}

bool ecfs_catalog_open_totals (EcfsCatalog *self, EcfsOpenTotals *ret_totals, GError **error)
{
    return READ (self, open_totals (self, ret_totals, error));
}

static bool retired_totals (EcfsCatalog *self, const EcfsUuid *key, EcfsOpenTotals *ret_totals, GError **error)
{
    autoquery *objects = QUERY (self, RETIRED_OBJECTS, error, BLOB (key->bytes, sizeof key->bytes));
    autoquery *deletions = QUERY (self, RETIRED_DELETIONS, error, BLOB (key->bytes, sizeof key->bytes));
    return sum_up (self, objects, deletions, ret_totals, error);
}

bool ecfs_catalog_retired_totals (EcfsCatalog *self, const EcfsUuid *key, EcfsOpenTotals *ret_totals, GError **error)
{
    return READ (self, retired_totals (self, key, ret_totals, error));
}

bool ecfs_catalog_deletions_done (EcfsCatalog *self, const int64_t *deletions, size_t n, GError **error)
{
    return CHANGE (self, error, deletions_done (self, deletions, n, error));
}

/* Intents */

void ecfs_intent_clear (Intent *intent)
{
    g_clear_pointer (&intent->stripes, g_array_unref);
}

static bool read_intent_stripes (EcfsCatalog *self, int64_t id, GArray *stripes, GError **error)
{
    autoquery *query = QUERY (self, INTENT_STRIPE_LIST, error, INT (id));
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        EcfsStripeRow stripe;
        if (!read_place (query, 0, &stripe))
            return ecfs_bad_row (error, "intent_stripes", id, "a stripe is impossible");
        g_array_append_val (stripes, stripe);
    }
    return found == 0;
}

int ecfs_intent_get (EcfsCatalog *self, int64_t id, Intent *ret_intent, GError **error)
{
    autoquery *query = QUERY (self, INTENT_GET, error, INT (id));
    int found = ecfs_query_step (self, query, error);
    if (found != 1)
        return found;
    uint64_t epoch;
    if (!ecfs_column_bytes (query, 0, ret_intent->object.bytes, sizeof ret_intent->object.bytes) ||
        !ecfs_column_u64 (query, 1, UINT32_MAX, &epoch) ||
        !ecfs_column_u64 (query, 2, INT64_MAX, &ret_intent->sequence)) {
        told (ecfs_bad_row (error, "intents", id, "its object is impossible"));
        return -1;
    }
    ret_intent->epoch = (uint32_t) epoch;
    ret_intent->stripes = g_array_new (false, true, sizeof (EcfsStripeRow));
    if (read_intent_stripes (self, id, ret_intent->stripes, error))
        return 1;
    ecfs_intent_clear (ret_intent);
    return -1;
}

bool ecfs_intent_end (EcfsCatalog *self, int64_t id, const Intent *intent, const GArray *kept, GError **error)
{
    for (guint i = 0; i < intent->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (intent->stripes, EcfsStripeRow, i);
        if (!ecfs_stripes_have (kept, stripe) &&
            !ecfs_deletion_queue (self, &intent->object, stripe, ECFS_DELETION_UNCOMMITTED, error))
            return false;
    }
    return EXEC (self, INTENT_STRIPE_DELETE_ALL, error, INT (id)) && EXEC (self, INTENT_DELETE, error, INT (id));
}

static bool announce (EcfsCatalog *self, int64_t intent, const EcfsStripeRow *stripe, GError **error)
{
    return ecfs_stripe_check (stripe, error) && ecfs_endpoint_check_active (self, stripe->endpoint, error) &&
           EXEC (self, INTENT_STRIPE_INSERT, error, INT (intent), INT (stripe->index), INT (stripe->instance),
                 INT (stripe->endpoint));
}

bool ecfs_intent_insert (EcfsCatalog *self, const EcfsUuid *object, uint64_t ino, int64_t *ret_intent, GError **error)
{
    uint64_t sequence = 0;
    return ecfs_sequence_next (self, &sequence, error) && ecfs_next_id (self, ECFS_IDS_INTENTS, ret_intent, error) &&
           EXEC (self, INTENT_INSERT, error, INT (*ret_intent), UUID (object), INT (ino), INT (self->epoch),
                 INT (sequence), INT (ecfs_real_ns ()));
}

/* The journal does not tell of what is on its way to an object of the past: a recovery would take that for a new one.
 */
static bool begin (EcfsCatalog *self, const EcfsUuid *object, uint64_t ino, const EcfsStripeRow *stripes,
                   size_t n_stripes, bool is_past, int64_t *ret_intent, GError **error)
{
    int64_t intent;
    if (!ecfs_intent_insert (self, object, ino, &intent, error))
        return false;
    if (!is_past)
        ecfs_journal_put_intent (self->record, object, ino);
    for (size_t i = 0; i < n_stripes; i++)
        if (!announce (self, intent, &stripes[i], error))
            return false;
    *ret_intent = intent; /* else the number is free for another */
    return true;
}

static bool begin_new (EcfsCatalog *self, EcfsObjectRow *object, uint64_t ino, int64_t *ret_intent, GError **error)
{
    if (!begin (self, &object->uuid, ino, (const EcfsStripeRow *) (void *) object->stripes->data, object->stripes->len,
                false, ret_intent, error))
        return false;
    object->epoch = self->epoch;
    return ecfs_sequence_next (self, &object->sequence, error);
}

bool ecfs_catalog_intent_begin (EcfsCatalog *self, EcfsObjectRow *object, uint64_t ino, int64_t *ret_intent,
                                GError **error)
{
    AHEAD_ID (ECFS_IDS_INTENTS);
    ecfs_ahead (STMT_ENDPOINT_LIST_ALL, NULL, 0);
    return CHANGE_AS (self, error, true, ecfs_op_end_checked, begin_new (self, object, ino, ret_intent, error));
}

static bool begin_more (EcfsCatalog *self, const EcfsObjectRow *object, const EcfsStripeRow *stripes, size_t n_stripes,
                        int64_t *ret_intent, GError **error)
{
    int64_t id;
    bool is_past = false;
    int found = QUERY_NUMBER (self, OBJECT_BY_UUID, &id, error, UUID (&object->uuid));
    if (found == 0 && ecfs_object_is_past (object->id)) { /* else it went since it was looked at */
        is_past = true;
        found = QUERY_NUMBER (self, PAST_BY_UUID, &id, error, UUID (&object->uuid));
    }
    if (found == 0)
        return ecfs_fail (error, ESTALE, "the object is no longer in the catalog");
    if (found == 1)
        found = QUERY_NUMBER (self, INTENT_IS_BARE, &id, error, UUID (&object->uuid)) == 0;
    if (found == 0) /* a copy would lack what comes, and nobody would know */
        return ecfs_fail (error, EAGAIN, "it is a log that is still written to");
    return found == 1 && begin (self, &object->uuid, 0, stripes, n_stripes, is_past, ret_intent, error);
}

bool ecfs_catalog_intent_more (EcfsCatalog *self, const EcfsObjectRow *object, const EcfsStripeRow *stripes,
                               size_t n_stripes, int64_t *ret_intent, GError **error)
{
    return CHANGE_DURABLE (self, error, begin_more (self, object, stripes, n_stripes, ret_intent, error));
}

static bool add_stripe (EcfsCatalog *self, int64_t id, const EcfsStripeRow *stripe, GError **error)
{
    g_auto (Intent) intent = {.stripes = NULL};
    int found = ecfs_intent_get (self, id, &intent, error);
    if (found == 0)
        return ecfs_fail (error, ESTALE, "intent %" PRId64 " has ended", id);
    return found == 1 && announce (self, id, stripe, error);
}

bool ecfs_catalog_intent_add (EcfsCatalog *self, int64_t intent, const EcfsStripeRow *stripe, GError **error)
{
    return CHANGE_DURABLE (self, error, add_stripe (self, intent, stripe, error));
}

static bool abort_intent (EcfsCatalog *self, int64_t id, GError **error)
{
    g_auto (Intent) intent = {.stripes = NULL};
    int64_t object;
    int found = ecfs_intent_get (self, id, &intent, error);
    if (found != 1)
        return found == 0;
    int known = QUERY_NUMBER (self, OBJECT_BY_UUID, &object, error, UUID (&intent.object));
    if (known == 0)
        known = QUERY_NUMBER (self, PAST_BY_UUID, &object, error, UUID (&intent.object));
    if (known == 0) /* else the intent was to add stripes to it */
        ecfs_journal_put_abort (self->record, &intent.object);
    return known >= 0 && ecfs_intent_end (self, id, &intent, NULL, error);
}

bool ecfs_catalog_intent_abort (EcfsCatalog *self, int64_t intent, GError **error)
{
    return CHANGE (self, error, abort_intent (self, intent, error));
}

static int list_intents (EcfsCatalog *self, StatementId list, int64_t *ids, int max, GError **error)
{
    autoquery *query = ecfs_query (self, list, VALUES (INT (max)), error);
    int n = 0, found;
    while ((found = ecfs_query_step (self, query, error)) == 1)
        ids[n++] = ecfs_column_number (query, 0);
    return found < 0 ? -1 : n;
}

static bool abort_listed (EcfsCatalog *self, StatementId list, GError **error)
{
    int64_t ids[64];
    int n;
    while ((n = READ (self, list_intents (self, list, ids, G_N_ELEMENTS (ids), error))) > 0)
        for (int i = 0; i < n; i++)
            if (!ecfs_catalog_intent_abort (self, ids[i], error))
                return false;
    return n == 0;
}

bool ecfs_catalog_intents_abort_all (EcfsCatalog *self, GError **error)
{
    return abort_listed (self, STMT_INTENT_LIST, error);
}

bool ecfs_catalog_intents_abort_dead (EcfsCatalog *self, GError **error)
{
    return abort_listed (self, STMT_INTENT_LIST_DEAD, error);
}
