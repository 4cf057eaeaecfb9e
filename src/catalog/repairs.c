/* The queue of stripes that are to be repaired, as readers met them. */
#include "catalog/db.h"

/* Values of the column `gone`. */
enum { DAMAGED = 0, GONE = 1, LIES = 2 };

static void row_clear (gpointer data)
{
    g_free (((EcfsRepairRow *) data)->reason);
}

static bool add (EcfsCatalog *self, const EcfsUuid *object, const EcfsRepairRow *row, bool *ret_queued, GError **error)
{
    int64_t n_queued = 0;
    if (ecfs_query_number (self, STMT_REPAIR_COUNT, NULL, 0, &n_queued, error) < 0)
        return false;
    if (n_queued >= ECFS_REPAIRS_MAX)
        return ecfs_fail (error, ENOSPC, "%d damaged stripes are queued for repair, which is as many as are noted",
                          ECFS_REPAIRS_MAX);
    g_autofree char *reason = g_utf8_make_valid (row->reason, -1);
    if (!EXEC_NOW (self, REPAIR_INSERT, error, UUID (object), INT (row->index), INT (row->instance),
                   INT (row->lies   ? LIES
                        : row->gone ? GONE
                                    : DAMAGED),
                   INT (ecfs_real_ns ()), TEXT (reason)))
        return false;
    *ret_queued = ecfs_changes (self) > 0;
    return true;
}

bool ecfs_catalog_repair_add (EcfsCatalog *self, const EcfsUuid *object, const EcfsRepairRow *row, bool *ret_queued,
                              GError **error)
{
    return CHANGE (self, error, add (self, object, row, ret_queued, error));
}

bool ecfs_catalog_repair_drop (EcfsCatalog *self, const EcfsUuid *object, unsigned index, uint64_t instance,
                               GError **error)
{
    return CHANGE (self, error, EXEC (self, REPAIR_DROP, error, UUID (object), INT (index), INT (instance)));
}

static bool count (EcfsCatalog *self, uint64_t *ret_n, GError **error)
{
    int64_t n = 0;
    bool good = ecfs_query_number (self, STMT_REPAIR_COUNT, NULL, 0, &n, error) >= 0;
    *ret_n = (uint64_t) MAX (n, 0);
    return good;
}

bool ecfs_catalog_repairs_count (EcfsCatalog *self, uint64_t *ret_n, GError **error)
{
    return READ (self, count (self, ret_n, error));
}

static GArray *list (EcfsCatalog *self, int64_t object, GError **error)
{
    g_autoptr (GArray) rows = g_array_new (false, true, sizeof (EcfsRepairRow));
    g_array_set_clear_func (rows, row_clear);
    autoquery *query = QUERY (self, REPAIR_LIST, error, INT (object), INT (object == 0 ? INT64_MAX : object));
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        uint64_t index;
        EcfsRepairRow row = {.object = ecfs_column_number (query, 0),
                             .endpoint = ecfs_column_number (query, 3),
                             .gone = ecfs_column_number (query, 4) != DAMAGED,
                             .lies = ecfs_column_number (query, 4) == LIES,
                             .found_ns = ecfs_column_number (query, 5)};
        if (!ecfs_column_u64 (query, 1, 255, &index) || !ecfs_column_u64 (query, 2, INT64_MAX, &row.instance)) {
            told (ecfs_bad_row (error, "repairs", row.object, "its stripe is impossible"));
            return NULL;
        }
        row.index = (uint16_t) index;
        row.reason = g_strdup (ecfs_column_text (query, 6));
        g_array_append_val (rows, row);
    }
    return found < 0 ? NULL : g_steal_pointer (&rows);
}

GArray *ecfs_catalog_repairs (EcfsCatalog *self, int64_t object, GError **error)
{
    return READ (self, list (self, object, error));
}
