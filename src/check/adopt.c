/*
 * Stripes that nothing knows take the places of damaged ones: what a repair stored and no journal told of. Or of those
 * that an object lacks: what an endpoint has that no recovery was given.
 */
#include "check/check.h"
#include "object/format.h"

#define FOOT_BYTES 4096 /* read at once from the end of a stripe */

static bool lacks (const EcfsObjectRow *object, const EcfsCodec *codec, unsigned index)
{
    for (guint i = 0; i < object->stripes->len; i++)
        if (g_array_index (object->stripes, EcfsStripeRow, i).index == index)
            return false;
    return index < ecfs_codec_n (codec);
}

/* The last @size bytes of a stripe, for g_free (); NULL. */
static uint8_t *read_end (const EcfsArchiveEndpoint *endpoint, const char *name, uint64_t stripe_bytes, size_t size,
                          GError **error)
{
    g_autofree uint8_t *bytes = g_malloc (size);
    const EcfsRange range = {.offset = stripe_bytes - size, .size = size, .to = bytes};
    return ecfs_endpoint_read_wait (endpoint->endpoint, name, &range, 1, error) ? g_steal_pointer (&bytes) : NULL;
}

/* The digest that a stripe's own footer tells, where that says that it is of this content: nobody else knows one. Its
 * packets are compared with it later. */
static bool ask_digest (EcfsArchive *archive, const EcfsArchiveEndpoint *endpoint, const EcfsObjectRow *object,
                        EcfsStripeRow *row, GError **error)
{
    char name[ECFS_STRIPE_NAME_SIZE];
    uint64_t offset, hash;
    uint32_t footer_bytes;
    EcfsStripeFooter footer;
    const EcfsStripeHeader header = {.object = object->uuid, .index = row->index, .instance = row->instance};
    g_autoptr (EcfsSealKeys) keys = NULL;
    size_t size = (size_t) MIN (row->size, FOOT_BYTES);
    ecfs_stripe_name (&object->uuid, row->index, row->instance, name);
    if (size < ECFS_STRIPE_TAIL_BYTES)
        return ecfs_fail (error, EBADMSG, "it has no tail");
    if (!ecfs_archive_seal_keys (archive, object, &keys, error))
        return false;
    g_autofree uint8_t *bytes = read_end (endpoint, name, row->size, size, error);
    if (bytes == NULL || !ecfs_stripe_tail_parse (bytes + size - ECFS_STRIPE_TAIL_BYTES, row->size, &offset,
                                                  &footer_bytes, &hash, error))
        return false;
    if (footer_bytes + ECFS_STRIPE_TAIL_BYTES > size) {
        g_free (bytes);
        size = footer_bytes + ECFS_STRIPE_TAIL_BYTES;
        bytes = read_end (endpoint, name, row->size, size, error);
    }
    if (bytes == NULL || !ecfs_stripe_footer_parse (bytes + size - ECFS_STRIPE_TAIL_BYTES - footer_bytes, footer_bytes,
                                                    hash, &header, keys, &footer, error))
        return false;
    bool same =
        footer.size == object->size && memcmp (footer.object_digest, object->digest, sizeof footer.object_digest) == 0;
    memcpy (row->digest, footer.area_digest, sizeof row->digest);
    ecfs_stripe_footer_clear (&footer);
    return same || ecfs_fail (error, EBADMSG, "it is of another content");
}

/* Whether the object can be read without what it lost or lacks. */
static bool is_readable (EcfsArchive *archive, const EcfsRepairTask *task, const EcfsObjectRow *object,
                         const EcfsCodec *codec)
{
    bool present[ECFS_CODEC_MAX_N] = {false};
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *row = &g_array_index (object->stripes, EcfsStripeRow, i);
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (archive, row->endpoint);
        present[row->index] =
            task->order.instance[row->index] == 0 && endpoint != NULL && ecfs_archive_reaches (endpoint);
    }
    return ecfs_codec_decodable (codec, present);
}

/* Those of the spares that may be read, as stripes with the digests that they should have; the caller owns it. */
static GArray *candidates (EcfsArchive *archive, const EcfsRepairTask *task, const EcfsObjectRow *object,
                           const EcfsCodec *codec)
{
    GArray *rows = g_array_new (FALSE, FALSE, sizeof (EcfsStripeRow));
    /* Without a key its footer proves nothing: where the others suffice, what is lacking is computed from them. */
    bool may_give = object->seal.kind != ECFS_SEAL_NONE || !is_readable (archive, task, object, codec);
    for (guint i = 0; i < task->spares->len; i++) {
        EcfsStripeRow row = g_array_index (task->spares, EcfsStripeRow, i);
        bool wanted = false, is_lacking = may_give && lacks (object, codec, row.index);
        g_autoptr (GError) why = NULL;
        for (guint j = 0; j < object->stripes->len && !wanted; j++) {
            const EcfsStripeRow *named = &g_array_index (object->stripes, EcfsStripeRow, j);
            wanted = named->index == row.index && named->instance == task->order.instance[row.index];
            memcpy (row.digest, named->digest, sizeof row.digest);
        }
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (archive, row.endpoint);
        if ((!wanted && !is_lacking) || endpoint == NULL || !ecfs_archive_reaches (endpoint))
            continue;
        if (is_lacking && !ask_digest (archive, endpoint, object, &row, &why))
            g_info ("endpoint %s: an orphan is not used: %s", endpoint->name, why->message);
        else
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

/* What cannot be taken is left to what rebuilds. *n_lacking: how many the object lacks. */
static void take (EcfsArchive *archive, EcfsRepairTask *task, const EcfsCheckedStripe *checked, bool is_lacking,
                  unsigned *n_lacking)
{
    g_autoptr (GError) why = NULL;
    const EcfsStripeRow *stripe = checked->stripe;
    uint64_t *instance = &task->order.instance[stripe->index];
    if (*instance == 0 && !is_lacking)
        return;
    if (!ecfs_catalog_stripe_adopt (ecfs_archive_catalog (archive), &checked->object->uuid, stripe, *instance, &why)) {
        g_info ("an orphan is not used: %s", why->message);
        return;
    }
    *instance = 0;
    task->order.gone[stripe->index] = false;
    task->order.n_stored++;
    *n_lacking -= is_lacking;
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
    unsigned n_lacking = ecfs_codec_n (codec) - MIN (object->stripes->len, ecfs_codec_n (codec));
    g_autoptr (GArray) rows = candidates (archive, task, object, codec);
    g_autoptr (GArray) stripes = verify (archive, object, rows, repairs);
    for (guint i = 0; i < stripes->len; i++) {
        const EcfsCheckedStripe *checked = &g_array_index (stripes, EcfsCheckedStripe, i);
        if (!checked->is_left_out)
            take (archive, task, checked, lacks (object, codec, checked->stripe->index), &n_lacking);
    }
    return n_lacking == 0 && !has_order (&task->order);
}
