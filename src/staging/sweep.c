#include "archive/common.h"
#include "staging/staged_priv.h"

static gpointer key_of (int64_t row)
{
    return GSIZE_TO_POINTER ((gsize) row);
}

static GHashTable *known_rows (EcfsStagedTable *table)
{
    GHashTable *rows = g_hash_table_new (NULL, NULL);
    GHashTableIter iter;
    gpointer value;
    ecfs_mutex_lock (&table->lock);
    g_hash_table_iter_init (&iter, table->files);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        const EcfsStaged *self = value;
        g_hash_table_add (rows, key_of (self->row));
        g_hash_table_add (rows, key_of (self->aside_row));
    }
    ecfs_mutex_unlock (&table->lock);
    return rows;
}

bool ecfs_staged_sweep (EcfsArchive *archive, GHashTable *suspects, GError **error)
{
    EcfsStagedTable *table = ecfs_archive_service (archive, ECFS_SERVICE_STAGING);
    EcfsCatalog *catalog = ecfs_archive_catalog (archive);
    g_autoptr (GPtrArray) rows = table == NULL ? NULL : ecfs_catalog_staging_list (catalog, error);
    if (rows == NULL)
        return table == NULL;
    g_autoptr (GHashTable) known = known_rows (table); /* after the rows: newer files are in no row of these */
    g_autoptr (GHashTable) now = g_hash_table_new (NULL, NULL);
    for (guint i = 0; i < rows->len; i++) {
        const EcfsStagingRow *row = rows->pdata[i];
        gpointer key = key_of (row->id);
        if (row->state == ECFS_STAGING_QUEUED || g_hash_table_contains (known, key))
            continue;
        if (g_hash_table_contains (suspects, key) && !ecfs_catalog_staging_remove (catalog, row->id, error))
            return false;
        g_hash_table_add (now, key);
    }
    g_hash_table_remove_all (suspects);
    GHashTableIter iter;
    gpointer key;
    g_hash_table_iter_init (&iter, now);
    while (g_hash_table_iter_next (&iter, &key, NULL))
        g_hash_table_add (suspects, key);
    return true;
}
