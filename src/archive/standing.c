/* What an object has of its stripes. */
#include "archive/standing.h"

#include "archive/common.h"

#include <string.h>

void ecfs_object_standing (const EcfsArchive *archive, const EcfsObjectRow *object, const EcfsCodec *codec,
                           uint64_t end, const bool *damaged, EcfsStanding *ret_standing)
{
    *ret_standing = (EcfsStanding){.n = ecfs_codec_n (codec)};
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_by_id (archive, stripe->endpoint);
        if (stripe->index >= ret_standing->n || ecfs_stripe_lacks (object, stripe, end))
            continue;
        bool given_up = endpoint == NULL || endpoint->state >= ECFS_ENDPOINT_FAILED;
        bool held = !given_up && !damaged[stripe->index], reachable = held && ecfs_archive_reaches (endpoint);
        ret_standing->holder[stripe->index] = (size_t) stripe->endpoint;
        ret_standing->held[stripe->index] = held;
        ret_standing->reachable[stripe->index] = reachable;
        ret_standing->n_stored++;
        ret_standing->n_given_up += given_up;
        ret_standing->n_damaged += damaged[stripe->index];
        ret_standing->n_held += held;
        ret_standing->n_reachable += reachable;
        ret_standing->n_nowhere += held && endpoint->endpoint == NULL;
    }
}

bool ecfs_damage_load (EcfsArchive *archive, EcfsKnownDamage *ret_damage, GError **error)
{
    *ret_damage = (EcfsKnownDamage){.rows = ecfs_catalog_repairs (ecfs_archive_catalog (archive), 0, error)};
    return ret_damage->rows != NULL;
}

void ecfs_damage_of (EcfsKnownDamage *self, int64_t object, bool *ret_damaged)
{
    memset (ret_damaged, 0, ECFS_CODEC_MAX_N * sizeof *ret_damaged);
    for (; self->next < self->rows->len; self->next++) {
        const EcfsRepairRow *row = &g_array_index (self->rows, EcfsRepairRow, self->next);
        if (row->object > object)
            break;
        if (row->object == object && row->index < ECFS_CODEC_MAX_N)
            ret_damaged[row->index] = true;
    }
}

void ecfs_damage_clear (EcfsKnownDamage *self)
{
    g_clear_pointer (&self->rows, g_array_unref);
}
