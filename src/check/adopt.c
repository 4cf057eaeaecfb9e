/* Stripes that nothing knows take the places of damaged ones: what a repair stored and no journal told of. */
#include "check/check.h"

/* Those of the spares that may be read, as stripes with the digests that they should have; the caller owns it. */
static GArray *candidates (EcfsArchive *archive, const EcfsRepairTask *task, const EcfsObjectRow *object)
{
    GArray *rows = g_array_new (FALSE, FALSE, sizeof (EcfsStripeRow));
    for (guint i = 0; i < task->spares->len; i++) {
        EcfsStripeRow row = g_array_index (task->spares, EcfsStripeRow, i);
        bool wanted = false;
        for (guint j = 0; j < object->stripes->len && !wanted; j++) {
            const EcfsStripeRow *named = &g_array_index (object->stripes, EcfsStripeRow, j);
            wanted = named->index == row.index && named->instance == task->order.instance[row.index];
            memcpy (row.digest, named->digest, sizeof row.digest);
        }
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (archive, row.endpoint);
        if (wanted && endpoint != NULL && ecfs_archive_reaches (endpoint))
            g_array_append_val (rows, row);
    }
    return rows;
}

static size_t position_of (const EcfsArchive *archive, int64_t endpoint)
{
    size_t i = 0;
    while (i < ecfs_archive_n_endpoints (archive) && ecfs_archive_endpoint (archive, i)->id != endpoint)
        i++;
    return i;
}

/* Reads them whole: which are what was stored? */
static GArray *verify (EcfsArchive *archive, EcfsObjectRow *object, const GArray *rows, const EcfsRepairs *repairs)
{
    EcfsReadPace pace = {.bytes_per_s = 0};
    GArray *stripes = g_array_new (FALSE, TRUE, sizeof (EcfsCheckedStripe));
    g_autoptr (GPtrArray) objects = g_ptr_array_new ();
    g_ptr_array_add (objects, object);
    for (guint i = 0; i < rows->len; i++) {
        const EcfsStripeRow *row = &g_array_index (rows, EcfsStripeRow, i);
        const EcfsCheckedStripe checked = {
            .object = object, .stripe = row, .position = position_of (archive, row->endpoint)};
        g_array_append_val (stripes, checked);
    }
    EcfsCheckBatch batch = {
        .archive = archive, .objects = objects, .stripes = stripes, .tick = repairs->tick, .user = repairs->user};
    ecfs_mutex_init (&pace.lock);
    bool read = ecfs_check_packets (&batch, &pace);
    ecfs_mutex_clear (&pace.lock);
    for (guint i = 0; i < stripes->len; i++) {
        EcfsCheckedStripe *checked = &g_array_index (stripes, EcfsCheckedStripe, i);
        checked->is_left_out = !read || checked->fault != ECFS_STRIPE_FINE;
        g_clear_pointer (&checked->text, g_free);
    }
    return stripes;
}

/* What cannot be taken is left to what rebuilds. */
static void take (EcfsArchive *archive, EcfsRepairTask *task, const EcfsCheckedStripe *checked)
{
    g_autoptr (GError) why = NULL;
    const EcfsStripeRow *stripe = checked->stripe;
    uint64_t *instance = &task->order.instance[stripe->index];
    if (*instance == 0)
        return;
    if (!ecfs_catalog_stripe_adopt (ecfs_archive_catalog (archive), &checked->object->uuid, stripe, *instance, &why)) {
        g_info ("an orphan is not used: %s", why->message);
        return;
    }
    *instance = 0;
    task->order.gone[stripe->index] = false;
    task->order.n_stored++;
    ecfs_archive_stripes_changed (archive);
}

static bool has_order (const EcfsRepairOrder *order)
{
    bool any = order->is_crowded;
    for (unsigned i = 0; i < ECFS_CODEC_MAX_N && !any; i++)
        any = order->instance[i] != 0;
    return any;
}

bool ecfs_repair_adopt (EcfsArchive *archive, EcfsRepairTask *task, const EcfsRepairs *repairs)
{
    if (task->spares == NULL || task->spares->len == 0)
        return false;
    g_autoptr (EcfsObjectRow) object = ecfs_catalog_object (ecfs_archive_catalog (archive), task->object, NULL);
    const EcfsCodec *codec = object == NULL ? NULL : ecfs_archive_codec (archive, object->code, NULL);
    if (codec == NULL)
        return false; /* who rebuilds tells why */
    g_autoptr (GArray) rows = candidates (archive, task, object);
    g_autoptr (GArray) stripes = verify (archive, object, rows, repairs);
    for (guint i = 0; i < stripes->len; i++) {
        const EcfsCheckedStripe *checked = &g_array_index (stripes, EcfsCheckedStripe, i);
        if (!checked->is_left_out)
            take (archive, task, checked);
    }
    return object->stripes->len == ecfs_codec_n (codec) && !has_order (&task->order);
}
