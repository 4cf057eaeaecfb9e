/* Whether what readers missed is really gone: asked as fsck asks. */
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

static bool is_gone (const GArray *checked, const EcfsSighting *sighting)
{
    for (guint i = 0; i < checked->len; i++) {
        const EcfsCheckedStripe *one = &g_array_index (checked, EcfsCheckedStripe, i);
        if (one->stripe->index == sighting->index && one->stripe->instance == sighting->instance &&
            ecfs_uuid_equal (&one->object->uuid, &sighting->object))
            return one->fault == ECFS_STRIPE_GONE;
    }
    return false;
}

/* Takes out what is said to be gone and is not. */
static void drop_unproven (GArray *sightings, const GArray *checked)
{
    for (guint i = sightings->len; i-- > 0;) {
        const EcfsSighting *sighting = &g_array_index (sightings, EcfsSighting, i);
        if (sighting->gone && !is_gone (checked, sighting))
            g_array_remove_index (sightings, i);
    }
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
