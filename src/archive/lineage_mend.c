/*
 * Markers that are damaged or not authentic, of an archive with a key, are written anew when the user asks for that:
 * only where enough others confirm that this is the newest copy, so that nothing depends on what they said.
 */
#include "archive/lineage_priv.h"

#define LOOKED_AT 16 /* stripes */

/* What the marker is to be; EAGAIN: what is there could still be right. */
static bool make_marker (EcfsLineage *self, size_t position, EcfsMarker *ret_marker, GError **error)
{
    ecfs_mutex_lock (&self->lock);
    bool may =
        self->own.session_number > 0 && !self->is_stale && !self->is_held && ecfs_lineage_is_sure_locked (self, 0);
    *ret_marker = self->own;
    ecfs_mutex_unlock (&self->lock);
    ret_marker->endpoint = self->archive->endpoints[position].uuid;
    ecfs_marker_sign (ret_marker, self->archive->marker_keys);
    return may || ecfs_fail (error, EAGAIN, "too few other endpoints confirm that %s is the newest copy",
                             self->archive->directory);
}

/* Whether a stripe is there that the archive has at this endpoint, and nobody has anywhere else. */
static bool has_its_stripes (EcfsLineage *self, size_t position, EcfsEndpoint *place)
{
    int64_t after = 0;
    bool more, has = false;
    g_autoptr (GArray) stripes = ecfs_catalog_stripes_at (self->archive->catalog, self->archive->endpoints[position].id,
                                                          &after, &more, NULL); /* then none is known */
    for (guint i = 0; stripes != NULL && i < MIN (stripes->len, LOOKED_AT) && !has; i++) {
        const EcfsStripeAt *one = &g_array_index (stripes, EcfsStripeAt, i);
        g_autoptr (EcfsObjectRow) object = ecfs_catalog_object (self->archive->catalog, one->object, NULL);
        char name[ECFS_STRIPE_NAME_SIZE];
        uint64_t size;
        if (object == NULL)
            continue;
        ecfs_stripe_name (&object->uuid, one->index, one->instance, name);
        has = ecfs_endpoint_size_wait (place, name, &size, NULL);
    }
    return has;
}

/* Another's marker says that a URL leads elsewhere, or that somebody has copied it: neither is mended by writing there.
 * What is no marker at all may have been anybody's. */
static bool check_mendable (EcfsLineage *self, size_t position, EcfsEndpoint *place, bool *ret_good, GError **error)
{
    EcfsMarker there;
    GError *why = NULL;
    *ret_good = false;
    if (!ecfs_endpoint_examine_wait (place, &there, &why) && why->code != EPROTO && why->code != ENOTSUP) {
        g_propagate_error (error, why);
        return false;
    }
    if (why != NULL) {
        g_error_free (why);
        return has_its_stripes (self, position, place) ||
               ecfs_fail (error, EPERM, "nothing there shows that it is this endpoint: 'ecfs endpoint replace'");
    }
    EcfsMarkerWorth worth =
        ecfs_marker_judge (&there, self->archive->marker_keys, &self->archive->endpoints[position].uuid);
    *ret_good = worth == ECFS_MARKER_AUTHENTIC;
    return (worth != ECFS_MARKER_MISPLACED && worth != ECFS_MARKER_UNKNOWN_KEY) ||
           ecfs_fail (error, EPERM, "it may be in use by another archive directory, and is left alone");
}

static bool rewrite (EcfsLineage *self, size_t position, GError **error)
{
    static const EcfsMarker any; /* lets the connection be made whatever there is */
    const EcfsArchiveEndpoint *endpoint = &self->archive->endpoints[position];
    const EcfsConfigEndpoint *config = ecfs_config_endpoint (self->archive->config, endpoint->name);
    EcfsMarker marker, there;
    bool is_good;
    if (config == NULL)
        return ecfs_fail (error, ENOTCONN, "endpoint %s is in ecfs.conf from the next mount on", endpoint->name);
    g_autoptr (EcfsEndpoint) place = ecfs_endpoint_new (config->spec, &any, error);
    if (place == NULL)
        return false;
    ecfs_endpoint_start (place);
    if (!check_mendable (self, position, place, &is_good, error))
        return false;
    if (is_good)
        return true;
    if (!make_marker (self, position, &marker, error) || !ecfs_endpoint_mark_wait (place, &marker, false, error) ||
        !ecfs_endpoint_examine_wait (place, &there, error))
        return false;
    return ecfs_marker_judge (&there, self->archive->marker_keys, &endpoint->uuid) == ECFS_MARKER_AUTHENTIC ||
           ecfs_fail (error, EIO, "the endpoint does not keep what is written there");
}

bool ecfs_lineage_mend (EcfsLineage *self, size_t position, GError **error)
{
    if (self->archive->marker_keys != NULL && !rewrite (self, position, error))
        return false;
    ecfs_lineage_ask_since (self, ecfs_lineage_clock_us ());
    ecfs_lineage_await_told (self, position, ecfs_now_us () + ecfs_lineage_told_us);
    return true;
}
