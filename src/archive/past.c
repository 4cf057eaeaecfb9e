#include "archive/past.h"

#include "archive/common.h"
#include "catalog/brake.h"
#include "catalog/retention.h"

#define NS_PER_US 1000

bool ecfs_archive_past_until (EcfsArchive *self, int64_t *ret_age_ns, GError **error)
{
    EcfsReleased released;
    EcfsBrake brake;
    EcfsCatalog *catalog = ecfs_archive_catalog (self);
    const EcfsConfig *config = ecfs_archive_config (self);
    if (!ecfs_catalog_released (catalog, &released, error) || !ecfs_catalog_brake (catalog, &brake, error))
        return false;
    const int64_t now_ns = ecfs_catalog_age_ns (catalog);
    /* Without a history nothing is rebuilt for the few minutes of grace. */
    int64_t until_ns = config->history_us == 0 ? INT64_MAX : now_ns - config->history_us * NS_PER_US;
    if (released.age_ns > 0)
        until_ns = MAX (until_ns, MIN (released.age_ns, now_ns - config->deletion_grace_us * NS_PER_US));
    if (brake.until_age_ns > 0)
        until_ns = MIN (until_ns, brake.from.age_ns - 1);
    *ret_age_ns = until_ns;
    return true;
}

GPtrArray *ecfs_archive_past_objects (EcfsArchive *self, int64_t after, size_t max, GError **error)
{
    int64_t until_ns;
    return ecfs_archive_past_until (self, &until_ns, error)
               ? ecfs_catalog_past (ecfs_archive_catalog (self), until_ns, after, max, error)
               : NULL;
}

bool ecfs_archive_past_is_lost (EcfsArchive *self, const EcfsObjectRow *object, int64_t endpoint)
{
    bool present[ECFS_CODEC_MAX_N] = {false};
    const EcfsCodec *codec = ecfs_archive_codec (self, object->code, NULL); /* who moves it tells */
    if (codec == NULL || ecfs_archive_reaches (ecfs_archive_endpoint_by_id (self, endpoint)))
        return false;
    for (guint i = 0; i < object->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (object->stripes, EcfsStripeRow, i);
        const EcfsArchiveEndpoint *at = ecfs_archive_endpoint_by_id (self, stripe->endpoint);
        if (stripe->index < ecfs_codec_n (codec))
            present[stripe->index] = stripe->endpoint != endpoint && at != NULL && ecfs_archive_endpoint_counts (at);
    }
    return !ecfs_codec_decodable (codec, present);
}
