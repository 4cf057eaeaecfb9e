/* What `ecfs status` tells of deep checks. */
#include "archive/common.h"
#include "catalog/scrub.h"
#include "verbs/status.h"

#define MOST 10000 /* stripes found damaged that are looked at */

/* What was repaired or replaced since does not count. */
static bool is_still_there (EcfsCatalog *catalog, const EcfsScrubDamage *damage)
{
    g_autoptr (EcfsObjectRow) row = ecfs_catalog_object (catalog, damage->object, NULL);
    for (guint i = 0; row != NULL && i < row->stripes->len; i++) {
        const EcfsStripeRow *stripe = &g_array_index (row->stripes, EcfsStripeRow, i);
        if (stripe->index == damage->index && stripe->instance == damage->instance)
            return true;
    }
    return false;
}

static bool count_damages (EcfsScrub *notes, EcfsCatalog *catalog, int64_t *ret_n, GError **error)
{
    g_autoptr (GArray) damages = ecfs_scrub_damages (notes, NULL, MOST, error);
    *ret_n = 0;
    for (guint i = 0; damages != NULL && i < damages->len; i++)
        *ret_n += is_still_there (catalog, &g_array_index (damages, EcfsScrubDamage, i));
    return damages != NULL;
}

static bool share (EcfsScrub *notes, EcfsArchive *archive, uint64_t pass, double *ret_share, GError **error)
{
    size_t n = 0;
    bool good = true;
    g_autofree GArray **ranges = g_new0 (GArray *, ecfs_archive_n_endpoints (archive) + 1);
    for (size_t i = 0; good && i < ecfs_archive_n_endpoints (archive); i++) {
        const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint (archive, i);
        if (!ecfs_archive_endpoint_counts (endpoint))
            continue;
        ranges[n] = ecfs_scrub_ranges (notes, endpoint->id, pass, error);
        good = ranges[n] != NULL;
        n += good;
    }
    *ret_share = n == 0 ? 0 : ecfs_ranges_share (ranges, n, pass, ecfs_archive_catalog (archive));
    for (size_t i = 0; i < n; i++)
        g_array_unref (ranges[i]);
    return good;
}

static bool add (JsonObject *facts, EcfsScrub *notes, EcfsArchive *archive, GError **error)
{
    EcfsScrubState state;
    int64_t n_damaged;
    double verified;
    if (!ecfs_scrub_state (notes, &state, error) ||
        !count_damages (notes, ecfs_archive_catalog (archive), &n_damaged, error) ||
        !share (notes, archive, state.pass, &verified, error))
        return false;
    json_object_set_int_member (facts, "damaged", n_damaged);
    if (state.full_ended_ns > 0) {
        json_object_set_int_member (facts, "full_began", state.full_began_ns / 1000000000);
        json_object_set_int_member (facts, "full_ended", state.full_ended_ns / 1000000000);
    }
    if (state.pass > 0) {
        json_object_set_int_member (facts, "began", state.began_ns / 1000000000);
        json_object_set_boolean_member (facts, "open", state.open);
        json_object_set_double_member (facts, "verified", verified);
    }
    return true;
}

JsonObject *ecfs_archive_scrub_facts (EcfsArchive *archive)
{
    g_autoptr (GError) error = NULL;
    JsonObject *facts = json_object_new ();
    g_autoptr (EcfsScrub) notes = ecfs_scrub_open (ecfs_archive_directory (archive), false, &error);
    if (notes == NULL || !add (facts, notes, archive, &error))
        g_warning ("what earlier scrubs have noted cannot be read: %s", error->message);
    return facts;
}
