/* Whether what readers missed is really gone, and whether it is back: asked as fsck asks. */
#include "archive/common.h"
#include "archive/sightings.h"
#include "check/check.h"

static size_t position_of (EcfsArchive *archive, const EcfsEndpoint *endpoint)
{
    for (size_t i = 0; i < ecfs_archive_n_endpoints (archive); i++)
        if (ecfs_archive_endpoint (archive, i)->endpoint == endpoint)
            return i;
    return SIZE_MAX;
}

static void checked_clear (gpointer data)
{
    g_free (((EcfsCheckedStripe *) data)->text);
}

/* What is gone, in the form in which fsck asks for it once more. */
static GArray *questions (EcfsArchive *archive, const GArray *sightings, GPtrArray *objects)
{
    GArray *checked = g_array_new (FALSE, TRUE, sizeof (EcfsCheckedStripe));
    g_array_set_clear_func (checked, checked_clear);
    for (guint i = 0; i < sightings->len; i++) {
        const EcfsSighting *sighting = &g_array_index (sightings, EcfsSighting, i);
        size_t position = position_of (archive, sighting->endpoint);
        if (!sighting->gone || position == SIZE_MAX)
            continue;
        EcfsObjectRow *object = ecfs_object_row_new ();
        EcfsStripeRow stripe = {.index = sighting->index, .instance = sighting->instance};
        object->uuid = sighting->object;
        g_array_append_val (object->stripes, stripe);
        g_ptr_array_add (objects, object);
        EcfsCheckedStripe one = {.object = object,
                                 .stripe = &g_array_index (object->stripes, EcfsStripeRow, 0),
                                 .position = position,
                                 .fault = ECFS_STRIPE_GONE};
        g_array_append_val (checked, one);
    }
    return checked;
}

static char *name_of (const EcfsUuid *object, uint16_t index, uint64_t instance)
{
    char name[ECFS_STRIPE_NAME_SIZE];
    ecfs_stripe_name (object, index, instance, name);
    return g_strdup (name);
}

/* Set of the names of those that are gone. */
static GHashTable *proven (const GArray *checked)
{
    GHashTable *names = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
    for (guint i = 0; i < checked->len; i++) {
        const EcfsCheckedStripe *one = &g_array_index (checked, EcfsCheckedStripe, i);
        if (one->fault == ECFS_STRIPE_GONE)
            (void) g_hash_table_add (names, name_of (&one->object->uuid, one->stripe->index, one->stripe->instance));
    }
    return names;
}

/* Takes out what is said to be gone and is not: a step for each, as there may be very many. */
static void drop_unproven (GArray *sightings, const GArray *checked)
{
    guint n_kept = 0;
    g_autoptr (GHashTable) gone = proven (checked);
    for (guint i = 0; i < sightings->len; i++) {
        EcfsSighting *sighting = &g_array_index (sightings, EcfsSighting, i);
        g_autofree char *name = name_of (&sighting->object, sighting->index, sighting->instance);
        if (sighting->gone && !g_hash_table_contains (gone, name))
            continue;
        EcfsSighting *to = &g_array_index (sightings, EcfsSighting, n_kept++), other = *to;
        *to = *sighting;
        *sighting = other;
    }
    g_array_set_size (sightings, n_kept);
}

bool ecfs_sightings_confirm (EcfsArchive *archive, GArray *sightings, bool (*tick) (void *user), void *user)
{
    g_autoptr (GPtrArray) objects = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_object_row_free);
    g_autoptr (GArray) checked = questions (archive, sightings, objects);
    EcfsCheckBatch batch = {.archive = archive, .objects = objects, .stripes = checked, .tick = tick, .user = user};
    if (checked->len > 0 && !ecfs_check_gone (&batch))
        return false;
    drop_unproven (sightings, checked);
    return true;
}

/* Adds the stripe of a row, if its object still has it. */
static void ask_for (EcfsArchive *archive, const EcfsRepairRow *row, GPtrArray *objects, GArray *checked)
{
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (archive, row->endpoint);
    g_autoptr (EcfsObjectRow) object = ecfs_catalog_object (ecfs_archive_catalog (archive), row->object, NULL);
    if (object == NULL || endpoint == NULL || !ecfs_archive_endpoint_counts (endpoint) || !row->gone || row->lies)
        return;
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        const EcfsCheckedStripe one = {.object = object,
                                       .stripe = stripe,
                                       .position = ecfs_archive_position (archive, endpoint),
                                       .fault = ECFS_STRIPE_GONE};
        if (stripe->index != row->index || stripe->instance != row->instance)
            continue;
        g_array_append_val (checked, one);
        g_ptr_array_add (objects, g_steal_pointer (&object));
        return;
    }
}

GArray *ecfs_repairs_find_back (EcfsArchive *archive, const GArray *rows, bool (*tick) (void *user), void *user)
{
    GArray *back = ecfs_sightings_array_new ();
    g_autoptr (GPtrArray) objects = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_object_row_free);
    g_autoptr (GArray) checked = g_array_new (FALSE, TRUE, sizeof (EcfsCheckedStripe));
    g_array_set_clear_func (checked, checked_clear);
    for (guint i = 0; i < rows->len; i++)
        ask_for (archive, &g_array_index (rows, EcfsRepairRow, i), objects, checked);
    EcfsCheckBatch batch = {.archive = archive, .objects = objects, .stripes = checked, .tick = tick, .user = user};
    if (checked->len == 0 || !ecfs_check_gone (&batch))
        return back;
    for (guint i = 0; i < checked->len; i++) {
        const EcfsCheckedStripe *one = &g_array_index (checked, EcfsCheckedStripe, i);
        const EcfsSighting sighting = {
            .object = one->object->uuid, .index = one->stripe->index, .instance = one->stripe->instance, .back = true};
        if (one->fault == ECFS_STRIPE_FINE)
            g_array_append_val (back, sighting);
    }
    return back;
}
