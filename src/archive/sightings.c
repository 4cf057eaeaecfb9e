#include "archive/sightings.h"

#include "fsck/fsck_priv.h"
#include "util/lock.h"

struct EcfsSightings {
    EcfsMutex lock;
    GArray *noted;     /* of EcfsSighting; guarded by lock, as the next */
    GHashTable *known; /* set of char *: what was ever noted, as far as it is remembered */
};

static void sighting_clear (gpointer data)
{
    g_free (((EcfsSighting *) data)->reason);
}

static GArray *array_new (void)
{
    GArray *array = g_array_new (FALSE, FALSE, sizeof (EcfsSighting));
    g_array_set_clear_func (array, sighting_clear);
    return array;
}

EcfsSightings *ecfs_sightings_new (void)
{
    EcfsSightings *self = g_new0 (EcfsSightings, 1);
    ecfs_mutex_init (&self->lock);
    self->noted = array_new ();
    self->known = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
    return self;
}

void ecfs_sightings_free (EcfsSightings *self)
{
    if (self == NULL)
        return;
    g_array_unref (self->noted);
    g_hash_table_unref (self->known);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

static bool is_noted_locked (const EcfsSightings *self, const EcfsTrouble *trouble) ECFS_REQUIRES (self->lock)
{
    for (guint i = 0; i < self->noted->len; i++) {
        const EcfsSighting *sighting = &g_array_index (self->noted, EcfsSighting, i);
        if (sighting->index == trouble->stripe_index && sighting->instance == trouble->instance &&
            ecfs_uuid_equal (&sighting->object, trouble->object))
            return true;
    }
    return false;
}

bool ecfs_sightings_note (EcfsSightings *self, const EcfsTrouble *trouble)
{
    char name[ECFS_STRIPE_NAME_SIZE];
    ecfs_stripe_name (trouble->object, (uint16_t) trouble->stripe_index, trouble->instance, name);
    ecfs_mutex_lock (&self->lock);
    if (g_hash_table_size (self->known) >= ECFS_SIGHTINGS_MAX)
        g_hash_table_remove_all (self->known);
    bool news = g_hash_table_add (self->known, g_strdup (name));
    if (self->noted->len < ECFS_SIGHTINGS_MAX && !is_noted_locked (self, trouble)) {
        EcfsSighting sighting = {.object = *trouble->object,
                                 .index = (uint16_t) trouble->stripe_index,
                                 .instance = trouble->instance,
                                 .endpoint = trouble->endpoint,
                                 .gone = trouble->error->code == ENOENT,
                                 .lies = trouble->lies,
                                 .reason = g_strdup (trouble->error->message)};
        g_array_append_val (self->noted, sighting);
    }
    ecfs_mutex_unlock (&self->lock);
    return news;
}

GArray *ecfs_sightings_take (EcfsSightings *self)
{
    GArray *fresh = array_new ();
    ecfs_mutex_lock (&self->lock);
    GArray *taken = self->noted;
    self->noted = fresh;
    ecfs_mutex_unlock (&self->lock);
    return taken;
}

/* Confirming */

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

/* Takes out what is said to be gone, but for what is by @checked (NULL: nothing is). */
static void drop_gone (GArray *sightings, const GArray *checked)
{
    for (guint i = sightings->len; i-- > 0;) {
        const EcfsSighting *sighting = &g_array_index (sightings, EcfsSighting, i);
        if (sighting->gone && (checked == NULL || !is_gone (checked, sighting)))
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
    drop_gone (sightings, checked);
    return true;
}

void ecfs_sightings_drop_gone (GArray *sightings)
{
    drop_gone (sightings, NULL);
}

bool ecfs_sightings_queue (EcfsCatalog *catalog, const GArray *sightings, unsigned *ret_queued, GError **error)
{
    unsigned n_queued = 0;
    for (guint i = 0; i < sightings->len; i++) {
        const EcfsSighting *sighting = &g_array_index (sightings, EcfsSighting, i);
        const EcfsRepairRow row = {.index = sighting->index,
                                   .instance = sighting->instance,
                                   .gone = sighting->gone || sighting->lies, /* nothing of it is used */
                                   .reason = sighting->reason};
        bool queued;
        if (!ecfs_catalog_repair_add (catalog, &sighting->object, &row, &queued, error))
            return false;
        n_queued += queued;
    }
    if (n_queued > 0 && !ecfs_catalog_barrier (catalog, error))
        return false;
    *ret_queued = n_queued;
    return true;
}
