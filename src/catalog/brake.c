#include "catalog/brake.h"

#include "catalog/age.h"
#include "catalog/content_priv.h"

static bool read_losses (EcfsQuery *query, int column, EcfsLosses *ret_losses)
{
    *ret_losses =
        (EcfsLosses){.age_ns = ecfs_column_number (query, column), .time_ns = ecfs_column_number (query, column + 1)};
    return ecfs_column_u64 (query, column + 2, INT64_MAX, &ret_losses->n_lost) &&
           ecfs_column_u64 (query, column + 3, INT64_MAX, &ret_losses->n_files);
}

bool ecfs_catalog_losses_now (EcfsCatalog *self, EcfsLosses *ret_losses, GError **error)
{
    EcfsTotals totals;
    EcfsLosses losses = {.age_ns = ecfs_catalog_age_ns (self), .time_ns = ecfs_real_ns ()}; /* not later than these */
    if (!ecfs_catalog_totals (self, &totals, error))
        return false;
    losses.n_lost = totals.n_lost;
    losses.n_files = totals.n_files;
    *ret_losses = losses;
    return true;
}

static bool keep_losses (EcfsCatalog *self, const EcfsLosses *losses, int64_t since_age_ns, GError **error)
{
    return EXEC (self, LOSSES_INSERT, error, INT (losses->age_ns), INT (losses->time_ns), INT (losses->n_lost),
                 INT (losses->n_files)) &&
           EXEC (self, LOSSES_FORGET, error, INT (since_age_ns));
}

bool ecfs_catalog_losses_keep (EcfsCatalog *self, const EcfsLosses *losses, int64_t since_age_ns, GError **error)
{
    return CHANGE (self, error, keep_losses (self, losses, since_age_ns, error));
}

static GArray *list_losses (EcfsCatalog *self, GError **error)
{
    g_autoptr (GArray) all = g_array_new (false, true, sizeof (EcfsLosses));
    autoquery *query = ecfs_query (self, STMT_LOSSES_LIST, NULL, 0, error);
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        EcfsLosses losses;
        if (!read_losses (query, 0, &losses)) {
            told (ecfs_bad_row (error, "losses", losses.age_ns, "a number is impossible"));
            return NULL;
        }
        g_array_append_val (all, losses);
    }
    return found < 0 ? NULL : g_steal_pointer (&all);
}

GArray *ecfs_catalog_losses (EcfsCatalog *self, GError **error)
{
    return READ (self, list_losses (self, error));
}

static bool get_brake (EcfsCatalog *self, EcfsBrake *ret_brake, GError **error)
{
    EcfsBrake brake;
    autoquery *query = ecfs_query (self, STMT_BRAKE_GET, NULL, 0, error);
    int found = ecfs_query_step (self, query, error);
    *ret_brake = (EcfsBrake){.until_age_ns = 0};
    if (found != 1)
        return found == 0;
    brake.until_age_ns = ecfs_column_number (query, 0);
    if (!read_losses (query, 1, &brake.from) || !read_losses (query, 5, &brake.last) ||
        brake.last.n_lost < brake.from.n_lost)
        return ecfs_bad_row (error, "brake", 1, "a number is impossible");
    if (brake.until_age_ns > ecfs_age_ns (self))
        *ret_brake = brake;
    return true;
}

bool ecfs_catalog_brake (EcfsCatalog *self, EcfsBrake *ret_brake, GError **error)
{
    return READ (self, get_brake (self, ret_brake, error));
}

bool ecfs_catalog_brake_set (EcfsCatalog *self, const EcfsBrake *brake, GError **error)
{
    const EcfsLosses *from = &brake->from, *last = &brake->last;
    return CHANGE_DURABLE (self, error,
                           EXEC (self, BRAKE_SET, error, INT (brake->until_age_ns), INT (from->age_ns),
                                 INT (from->time_ns), INT (from->n_lost), INT (from->n_files), INT (last->age_ns),
                                 INT (last->time_ns), INT (last->n_lost), INT (last->n_files)));
}

static bool end_brake (EcfsCatalog *self, GError **error)
{
    Counters counters;
    if (!ecfs_counters_read (self, &counters, error))
        return false;
    const EcfsLosses now = {.age_ns = ecfs_age_ns (self),
                            .time_ns = ecfs_real_ns (),
                            .n_lost = counters.totals.n_lost,
                            .n_files = counters.totals.n_files};
    return EXEC (self, BRAKE_DELETE, error) && EXEC (self, LOSSES_DELETE, error) && keep_losses (self, &now, 0, error);
}

bool ecfs_catalog_brake_end (EcfsCatalog *self, GError **error)
{
    AHEAD_TURN ();
    return CHANGE_DURABLE (self, error, end_brake (self, error));
}
