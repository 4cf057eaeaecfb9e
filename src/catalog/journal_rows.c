/* Records of the journal, and what is written down of their way to the endpoints: places, snapshots, settings. */
#include "catalog/db.h"

#define DROPPED_AT_ONCE 500 /* records: no transaction takes long */

/* Records */

void ecfs_journal_row_free (EcfsJournalRow *row)
{
    if (row == NULL)
        return;
    g_byte_array_unref (row->record);
    g_free (row);
}

static GPtrArray *journal_rows (EcfsCatalog *self, uint64_t after, size_t max, GError **error)
{
    g_autoptr (GPtrArray) rows = g_ptr_array_new_with_free_func ((GDestroyNotify) ecfs_journal_row_free);
    autoquery *query = QUERY (self, JOURNAL_LIST, error, INT (after), INT (MIN (max, INT_MAX)));
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        EcfsJournalRow *row = g_new0 (EcfsJournalRow, 1);
        row->sequence = (uint64_t) ecfs_column_number (query, 0);
        row->time_ns = ecfs_column_number (query, 1);
        row->record = g_byte_array_new ();
        g_byte_array_append (row->record, ecfs_column_blob (query, 2), (guint) ecfs_column_size (query, 2));
        g_ptr_array_add (rows, row);
    }
    return found < 0 ? NULL : g_steal_pointer (&rows);
}

GPtrArray *ecfs_catalog_journal (EcfsCatalog *self, uint64_t after, size_t max, GError **error)
{
    return READ (self, journal_rows (self, after, max, error));
}

bool ecfs_catalog_journal_bytes (EcfsCatalog *self, uint64_t after, uint64_t *ret_bytes, GError **error)
{
    int64_t bytes = 0;
    if (READ (self, QUERY_NUMBER (self, JOURNAL_BYTES, &bytes, error, INT (after))) < 0)
        return false;
    *ret_bytes = (uint64_t) bytes;
    return true;
}

static bool drop_records (EcfsCatalog *self, uint64_t sequence, bool *ret_more, GError **error)
{
    int64_t first = 0;
    uint64_t next = 0;
    if (!ecfs_sequence_next (self, &next, error))
        return false;
    sequence = MIN (sequence, MAX (next, 2) - 2);
    if (ecfs_query_number (self, STMT_JOURNAL_FIRST, NULL, 0, &first, error) < 0)
        return false;
    *ret_more = (uint64_t) first + DROPPED_AT_ONCE <= sequence;
    if (first == 0 || (uint64_t) first > sequence)
        return true;
    if (!EXEC_NOW (self, JOURNAL_DROP, error, INT (sequence), INT (first + DROPPED_AT_ONCE)))
        return false;
    self->counters.totals.journal_records -= ecfs_changes (self);
    return true;
}

bool ecfs_catalog_journal_drop (EcfsCatalog *self, uint64_t sequence, bool *ret_more, GError **error)
{
    return CHANGE (self, error, drop_records (self, sequence, ret_more, error));
}

static bool mark (EcfsCatalog *self)
{
    ecfs_journal_put_epoch (self->record, self->epoch);
    return true;
}

bool ecfs_catalog_advance (EcfsCatalog *self, GError **error)
{
    return CHANGE (self, error, mark (self));
}

/* Places */

static GArray *list_places (EcfsCatalog *self, GError **error)
{
    g_autoptr (GArray) places = g_array_new (false, true, sizeof (EcfsJournalPlace));
    autoquery *query = ecfs_query (self, STMT_PLACE_LIST, NULL, 0, error);
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        EcfsJournalPlace place = {.endpoint = ecfs_column_number (query, 0), .time_ns = ecfs_column_number (query, 2)};
        if (!ecfs_column_u64 (query, 1, INT64_MAX, &place.sequence)) {
            told (ecfs_bad_row (error, "journal_places", place.endpoint, "its sequence is impossible"));
            return NULL;
        }
        g_array_append_val (places, place);
    }
    return found < 0 ? NULL : g_steal_pointer (&places);
}

GArray *ecfs_catalog_journal_places (EcfsCatalog *self, GError **error)
{
    return READ (self, list_places (self, error));
}

bool ecfs_catalog_journal_stored (EcfsCatalog *self, const EcfsJournalPlace *place, GError **error)
{
    return CHANGE (self, error,
                   EXEC (self, PLACE_SET, error, INT (place->endpoint), INT (place->sequence), INT (place->time_ns)));
}

bool ecfs_catalog_journal_set_back (EcfsCatalog *self, const EcfsJournalPlace *place, GError **error)
{
    return CHANGE (
        self, error,
        EXEC (self, PLACE_SET_BACK, error, INT (place->endpoint), INT (place->sequence), INT (place->time_ns)));
}

/* Snapshots */

static GArray *list_snapshots (EcfsCatalog *self, GError **error)
{
    g_autoptr (GArray) rows = g_array_new (false, true, sizeof (EcfsSnapshotRow));
    autoquery *query = ecfs_query (self, STMT_SNAPSHOT_LIST, NULL, 0, error);
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        EcfsSnapshotRow row = {.time_ns = ecfs_column_number (query, 2)};
        uint64_t epoch, n_copies;
        if (!ecfs_column_u64 (query, 0, UINT32_MAX, &epoch) || !ecfs_column_u64 (query, 1, INT64_MAX, &row.sequence) ||
            !ecfs_column_u64 (query, 3, INT64_MAX, &row.bytes) || !ecfs_column_u64 (query, 4, UINT32_MAX, &n_copies)) {
            told (ecfs_bad_row (error, "snapshots", ecfs_column_number (query, 1), "a number is impossible"));
            return NULL;
        }
        row.epoch = (uint32_t) epoch;
        row.n_copies = (uint32_t) n_copies;
        g_array_append_val (rows, row);
    }
    return found < 0 ? NULL : g_steal_pointer (&rows);
}

GArray *ecfs_catalog_snapshots (EcfsCatalog *self, GError **error)
{
    return READ (self, list_snapshots (self, error));
}

#define SHRINKS_LEAST (256u << 10) /* bytes of a snapshot: of fewer nobody is told */
#define SHRINKS_BY    4

const EcfsSnapshotRow *ecfs_snapshots_shrunk (const GArray *snapshots, int64_t since_ns)
{
    for (guint i = 0; i + 1 < snapshots->len; i++) {
        const EcfsSnapshotRow *row = &g_array_index (snapshots, EcfsSnapshotRow, i);
        if (row->time_ns > since_ns && row[1].bytes >= SHRINKS_LEAST && row->bytes < row[1].bytes / SHRINKS_BY)
            return row;
    }
    return NULL;
}

static bool add_snapshot (EcfsCatalog *self, const EcfsSnapshotRow *row, guint keep, int64_t since_ns, GError **error)
{
    if (!EXEC (self, SNAPSHOT_INSERT, error, INT (row->epoch), INT (row->sequence), INT (row->time_ns),
               INT (row->bytes), INT (row->n_copies)))
        return false;
    g_autoptr (GArray) rows = list_snapshots (self, error);
    for (guint i = keep; rows != NULL && i < rows->len; i++) {
        const EcfsSnapshotRow *old = &g_array_index (rows, EcfsSnapshotRow, i);
        if (old[-1].time_ns > since_ns) /* what was between them is told by this one and the journal behind it */
            continue;
        if (!EXEC (self, SNAPSHOT_DELETE, error, INT (old->epoch), INT (old->sequence), INT (old[-1].sequence)))
            return false;
    }
    return rows != NULL;
}

bool ecfs_catalog_snapshot_add (EcfsCatalog *self, const EcfsSnapshotRow *row, guint keep, int64_t since_ns,
                                GError **error)
{
    return CHANGE_DURABLE (self, error, add_snapshot (self, row, keep, since_ns, error));
}

/* Settings */

typedef struct Setting {
    char *key;
    char *value;
} Setting;

static void setting_clear (gpointer data)
{
    Setting *self = data;
    g_free (self->key);
    g_free (self->value);
}

static GArray *list_settings (EcfsCatalog *self, GError **error)
{
    g_autoptr (GArray) settings = g_array_new (false, true, sizeof (Setting));
    g_array_set_clear_func (settings, setting_clear);
    autoquery *query = ecfs_query (self, STMT_SETTING_LIST, NULL, 0, error);
    int found;
    while ((found = ecfs_query_step (self, query, error)) == 1) {
        Setting setting = {.key = g_strdup (ecfs_column_text (query, 0)),
                           .value = g_strdup (ecfs_column_text (query, 1))};
        g_array_append_val (settings, setting);
    }
    return found < 0 ? NULL : g_steal_pointer (&settings);
}

bool ecfs_catalog_settings (EcfsCatalog *self, void (*each) (void *user, const char *key, const char *value),
                            void *user, GError **error)
{
    g_autoptr (GArray) settings = READ (self, list_settings (self, error));
    for (guint i = 0; settings != NULL && i < settings->len; i++) {
        const Setting *setting = &g_array_index (settings, Setting, i);
        each (user, setting->key, setting->value);
    }
    return settings != NULL;
}

static int has_setting (EcfsCatalog *self, const char *key, const char *value, GError **error)
{
    g_autoptr (GArray) settings = list_settings (self, error);
    for (guint i = 0; settings != NULL && i < settings->len; i++) {
        const Setting *setting = &g_array_index (settings, Setting, i);
        if (g_str_equal (setting->key, key))
            return g_str_equal (setting->value, value);
    }
    return settings == NULL ? -1 : 0;
}

static bool keep_setting (EcfsCatalog *self, const char *key, const char *value, GError **error)
{
    ecfs_journal_put_setting (self->record, key, value);
    return EXEC (self, SETTING_SET, error, TEXT (key), TEXT (value));
}

bool ecfs_catalog_keep_setting (EcfsCatalog *self, const char *key, const char *value, GError **error)
{
    int has = READ (self, has_setting (self, key, value, error));
    if (has != 0) /* nearly always */
        return has == 1;
    return CHANGE (self, error, keep_setting (self, key, value, error));
}
