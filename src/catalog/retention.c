#include "catalog/retention.h"

#include "catalog/db.h"

static bool get_released (EcfsCatalog *self, EcfsReleased *ret_released, GError **error)
{
    autoquery *query = ecfs_query (self, STMT_RELEASED_GET, NULL, 0, error);
    int found = ecfs_query_step (self, query, error);
    *ret_released = (EcfsReleased){.age_ns = 0};
    if (found == 1)
        *ret_released = (EcfsReleased){.age_ns = ecfs_column_number (query, 0),
                                       .time_ns = ecfs_column_number (query, 1),
                                       .reason = (EcfsReleaseReason) ecfs_column_number (query, 2)};
    return found >= 0;
}

bool ecfs_catalog_released (EcfsCatalog *self, EcfsReleased *ret_released, GError **error)
{
    return READ (self, get_released (self, ret_released, error));
}

static bool release (EcfsCatalog *self, const EcfsReleased *up_to, GError **error)
{
    EcfsReleased last;
    return get_released (self, &last, error) &&
           (up_to->age_ns <= last.age_ns || EXEC (self, RELEASED_SET, error, INT (up_to->age_ns),
                                                  INT (MAX (up_to->time_ns, last.time_ns)), INT (up_to->reason)));
}

bool ecfs_catalog_release (EcfsCatalog *self, const EcfsReleased *up_to, GError **error)
{
    return CHANGE_DURABLE (self, error, release (self, up_to, error));
}

static GArray *list_removed (EcfsCatalog *self, int64_t after, size_t max, GError **error)
{
    g_autoptr (GArray) stripes = g_array_new (false, true, sizeof (EcfsRemovedStripe));
    autoquery *query = QUERY (self, DELETIONS_REMOVED, error, INT (after), INT (MIN (max, INT_MAX)));
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        EcfsRemovedStripe stripe = {.id = ecfs_column_number (query, 0),
                                    .endpoint = ecfs_column_number (query, 1),
                                    .age_ns = ecfs_column_number (query, 2),
                                    .time_ns = ecfs_column_number (query, 3)};
        if (!ecfs_column_u64 (query, 4, INT64_MAX, &stripe.bytes) ||
            !ecfs_column_u64 (query, 5, INT64_MAX, &stripe.sequence)) {
            told (ecfs_bad_row (error, "deletions", stripe.id, "a number is impossible"));
            return NULL;
        }
        g_array_append_val (stripes, stripe);
    }
    return found < 0 ? NULL : g_steal_pointer (&stripes);
}

GArray *ecfs_catalog_removed (EcfsCatalog *self, int64_t after, size_t max, GError **error)
{
    return READ (self, list_removed (self, after, max, error));
}
