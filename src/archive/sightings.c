#include "archive/sightings.h"

#include "util/lock.h"

struct EcfsSightings {
    EcfsMutex lock;
    GArray *noted;     /* of EcfsSighting; guarded by lock, as the next */
    GHashTable *known; /* set of char *: what was ever met, as far as it is remembered */
};

static void sighting_clear (gpointer data)
{
    g_free (((EcfsSighting *) data)->reason);
}

GArray *ecfs_sightings_array_new (void)
{
    GArray *array = g_array_new (FALSE, FALSE, sizeof (EcfsSighting));
    g_array_set_clear_func (array, sighting_clear);
    return array;
}

EcfsSightings *ecfs_sightings_new (void)
{
    EcfsSightings *self = g_new0 (EcfsSightings, 1);
    ecfs_mutex_init (&self->lock);
    self->noted = ecfs_sightings_array_new ();
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

static bool meet_locked (EcfsSightings *self, const EcfsTrouble *trouble) ECFS_REQUIRES (self->lock)
{
    char name[ECFS_STRIPE_NAME_SIZE];
    ecfs_stripe_name (trouble->object, (uint16_t) trouble->stripe_index, trouble->instance, name);
    if (g_hash_table_size (self->known) >= ECFS_SIGHTINGS_MAX)
        g_hash_table_remove_all (self->known);
    return g_hash_table_add (self->known, g_strdup (name));
}

bool ecfs_sightings_pass_over (EcfsSightings *self, const EcfsTrouble *trouble)
{
    ecfs_mutex_lock (&self->lock);
    bool news = meet_locked (self, trouble);
    ecfs_mutex_unlock (&self->lock);
    return news;
}

bool ecfs_sightings_note (EcfsSightings *self, const EcfsTrouble *trouble)
{
    ecfs_mutex_lock (&self->lock);
    bool news = meet_locked (self, trouble);
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

bool ecfs_sightings_any (EcfsSightings *self)
{
    ecfs_mutex_lock (&self->lock);
    bool any = self->noted->len > 0;
    ecfs_mutex_unlock (&self->lock);
    return any;
}

GArray *ecfs_sightings_take (EcfsSightings *self)
{
    GArray *fresh = ecfs_sightings_array_new ();
    ecfs_mutex_lock (&self->lock);
    GArray *taken = self->noted;
    self->noted = fresh;
    ecfs_mutex_unlock (&self->lock);
    return taken;
}

void ecfs_sightings_drop_gone (GArray *sightings)
{
    for (guint i = sightings->len; i-- > 0;)
        if (g_array_index (sightings, EcfsSighting, i).gone)
            g_array_remove_index (sightings, i);
}

bool ecfs_sightings_queue (EcfsCatalog *catalog, const GArray *sightings, unsigned *ret_queued, GError **error)
{
    unsigned n_queued = 0, n_back = 0;
    for (guint i = 0; i < sightings->len; i++) {
        const EcfsSighting *sighting = &g_array_index (sightings, EcfsSighting, i);
        if (sighting->back) {
            n_back++;
            if (!ecfs_catalog_repair_drop (catalog, &sighting->object, sighting->index, sighting->instance, error))
                return false;
            continue;
        }
        const EcfsRepairRow row = {.index = sighting->index,
                                   .instance = sighting->instance,
                                   .gone = sighting->gone || sighting->lies, /* nothing of it is used */
                                   .lies = sighting->lies,
                                   .reason = sighting->reason};
        bool queued;
        if (!ecfs_catalog_repair_add (catalog, &sighting->object, &row, &queued, error))
            return false;
        n_queued += queued;
    }
    if (n_queued + n_back > 0 && !ecfs_catalog_barrier (catalog, error))
        return false;
    *ret_queued = n_queued;
    return true;
}
