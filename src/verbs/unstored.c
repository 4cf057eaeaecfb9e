#include "verbs/unstored.h"

#include "archive/common.h"
#include "catalog/journal.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define BATCH     1000 /* records */
#define MOST_TOLD 1000

typedef struct Walk {
    EcfsCatalog *catalog;
    GHashTable *kinds; /* int64_t *, an inode → EcfsUnstoredKind */
    GHashTable *gone;  /* paths of names that were removed; a set */
} Walk;

static void unstored_free (gpointer data)
{
    EcfsUnstored *self = data;
    g_free (self->path);
    g_free (self);
}

const char *ecfs_unstored_word (EcfsUnstoredKind kind)
{
    static const char *const words[] = {[ECFS_UNSTORED_REMOVED] = "removed",
                                        [ECFS_UNSTORED_CHANGED] = "changed",
                                        [ECFS_UNSTORED_CONTENT] = "content",
                                        [ECFS_UNSTORED_UNFINISHED] = "unfinished",
                                        [ECFS_UNSTORED_STAGED] = "staged"};
    return words[kind];
}

bool ecfs_unstored_has_content (const EcfsUnstored *self)
{
    return self->kind >= ECFS_UNSTORED_CONTENT;
}

/* What says most of an inode counts. */
static void note (Walk *self, uint64_t ino, EcfsUnstoredKind kind)
{
    const int64_t key = (int64_t) ino;
    if ((EcfsUnstoredKind) GPOINTER_TO_INT (g_hash_table_lookup (self->kinds, &key)) < kind)
        g_hash_table_insert (self->kinds, g_memdup2 (&key, sizeof key), GINT_TO_POINTER (kind));
}

static void note_removed (Walk *self, const EcfsJournalItem *item)
{
    EcfsAttr attr;
    g_autofree char *parent = ecfs_catalog_path (self->catalog, item->parent);
    g_autofree char *name = g_strndup ((const char *) item->name.bytes, item->name.size);
    if (parent == NULL || !ecfs_catalog_getattr (self->catalog, item->parent, &attr, NULL) || attr.nlink == 0)
        return; /* its directory is gone, too */
    g_autofree char *path = g_build_path ("/", parent, name, NULL);
    if (!ecfs_catalog_resolve (self->catalog, path, &attr, NULL))
        g_hash_table_add (self->gone, g_steal_pointer (&path));
}

static void note_item (Walk *self, const EcfsJournalItem *item)
{
    switch (item->type) {
    case ECFS_JOURNAL_CONTENT:
        note (self, item->attr.ino, ECFS_UNSTORED_CONTENT);
        break;
    case ECFS_JOURNAL_INODE:
    case ECFS_JOURNAL_NAME_ADDED:
    case ECFS_JOURNAL_XATTR_SET:
    case ECFS_JOURNAL_XATTR_REMOVED:
        note (self, item->attr.ino, ECFS_UNSTORED_CHANGED);
        break;
    case ECFS_JOURNAL_NAME_REMOVED:
        note_removed (self, item);
        break;
    default: /* of objects and the archive, or it goes with one of these */
        break;
    }
}

static bool walk_record (Walk *self, const EcfsJournalRow *row, GError **error)
{
    EcfsCursor cursor;
    EcfsJournalItem item;
    int result = ecfs_journal_open (&cursor, row->record->data, row->record->len);
    while (result == 0 && (result = ecfs_journal_next (&cursor, &item)) == 1) {
        note_item (self, &item);
        result = 0;
    }
    return result == 0 || ecfs_fail (error, EBADMSG, "record %" PRIu64 " of the journal makes no sense", row->sequence);
}

static bool walk_journal (Walk *self, uint64_t after, GError **error)
{
    for (bool more = true; more;) {
        g_autoptr (GPtrArray) rows = ecfs_catalog_journal (self->catalog, after, BATCH, error);
        for (guint i = 0; rows != NULL && i < rows->len; i++) {
            const EcfsJournalRow *row = g_ptr_array_index (rows, i);
            if (!walk_record (self, row, error))
                return false;
            after = row->sequence;
        }
        if (rows == NULL)
            return false;
        more = rows->len == BATCH;
    }
    return true;
}

static bool walk_staging (Walk *self, GError **error)
{
    g_autoptr (GPtrArray) rows = ecfs_catalog_staging_list (self->catalog, error);
    for (guint i = 0; rows != NULL && i < rows->len; i++) {
        const EcfsStagingRow *row = g_ptr_array_index (rows, i);
        if (row->state != ECFS_STAGING_STORED)
            note (self, row->ino, row->state == ECFS_STAGING_OPEN ? ECFS_UNSTORED_UNFINISHED : ECFS_UNSTORED_STAGED);
    }
    return rows != NULL;
}

static void add (GPtrArray *list, EcfsUnstoredKind kind, char *path, uint64_t ino, uint64_t size)
{
    EcfsUnstored *one = g_new (EcfsUnstored, 1);
    *one = (EcfsUnstored){.kind = kind, .path = path, .ino = ino, .size = size};
    g_ptr_array_add (list, one);
}

static void add_inode (GPtrArray *list, EcfsCatalog *catalog, uint64_t ino, EcfsUnstoredKind kind)
{
    EcfsAttr attr;
    if (!ecfs_catalog_getattr (catalog, ino, &attr, NULL) || attr.nlink == 0)
        return; /* deleted since */
    char *path = ecfs_catalog_path (catalog, ino);
    bool is_file = S_ISREG (attr.mode);
    if (path != NULL)
        add (list, is_file ? kind : MIN (kind, ECFS_UNSTORED_CHANGED), path, ino,
             is_file && kind >= ECFS_UNSTORED_CONTENT ? attr.size : 0);
}

static int by_path (gconstpointer a, gconstpointer b)
{
    const EcfsUnstored *const *left = a, *const *right = b;
    return strcmp ((*left)->path, (*right)->path);
}

static int newest_first (const void *a, const void *b)
{
    const EcfsJournalPlace *left = a, *right = b;
    return (left->sequence < right->sequence) - (left->sequence > right->sequence);
}

bool ecfs_archive_stored_once (EcfsArchive *archive, EcfsJournalPlace *ret_place, GError **error)
{
    g_autoptr (GArray) places = ecfs_catalog_journal_places (ecfs_archive_catalog (archive), error);
    if (places == NULL || !ecfs_archive_load_codes (archive, error))
        return false;
    for (guint i = places->len; i-- > 0;) {
        const EcfsArchiveEndpoint *endpoint =
            ecfs_archive_endpoint_by_id (archive, g_array_index (places, EcfsJournalPlace, i).endpoint);
        if (endpoint == NULL || !ecfs_archive_has_journal (endpoint))
            g_array_remove_index_fast (places, i);
    }
    const unsigned n_copies = ecfs_archive_journal_copies (archive);
    g_array_sort (places, newest_first);
    *ret_place = places->len < n_copies ? (EcfsJournalPlace){.sequence = 0}
                                        : g_array_index (places, EcfsJournalPlace, n_copies - 1);
    return true;
}

GPtrArray *ecfs_archive_unstored (EcfsArchive *archive, GError **error)
{
    EcfsJournalPlace stored;
    GHashTableIter iter;
    gpointer key, value;
    g_autoptr (GHashTable) kinds = g_hash_table_new_full (g_int64_hash, g_int64_equal, g_free, NULL);
    g_autoptr (GHashTable) gone = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
    Walk self = {.catalog = ecfs_archive_catalog (archive), .kinds = kinds, .gone = gone};
    if (!walk_staging (&self, error))
        return NULL;
    /* Who was taken for dead reads the catalog of those that took it over: its journal is theirs to store. */
    if (!ecfs_catalog_is_taken_over (self.catalog) &&
        (!ecfs_archive_stored_once (archive, &stored, error) || !walk_journal (&self, stored.sequence, error)))
        return NULL;
    GPtrArray *list = g_ptr_array_new_with_free_func (unstored_free);
    g_hash_table_iter_init (&iter, kinds);
    while (g_hash_table_iter_next (&iter, &key, &value))
        add_inode (list, self.catalog, (uint64_t) * (int64_t *) key, (EcfsUnstoredKind) GPOINTER_TO_INT (value));
    g_hash_table_iter_init (&iter, gone);
    while (g_hash_table_iter_next (&iter, &key, NULL))
        add (list, ECFS_UNSTORED_REMOVED, g_strdup (key), 0, 0);
    g_ptr_array_sort (list, by_path);
    return list;
}

typedef struct Sums {
    guint n_files, n_changes;
    uint64_t bytes;
} Sums;

static Sums sum_up (const GPtrArray *unstored)
{
    Sums sums = {0};
    for (guint i = 0; i < unstored->len; i++) {
        const EcfsUnstored *one = g_ptr_array_index (unstored, i);
        bool is_file = ecfs_unstored_has_content (one);
        sums.n_files += is_file;
        sums.n_changes += !is_file;
        sums.bytes += one->size;
    }
    return sums;
}

JsonObject *ecfs_unstored_facts (const GPtrArray *unstored)
{
    const Sums sums = sum_up (unstored);
    JsonObject *facts = json_object_new ();
    JsonArray *list = json_array_new ();
    for (guint i = 0; i < MIN (unstored->len, MOST_TOLD); i++) {
        const EcfsUnstored *one = g_ptr_array_index (unstored, i);
        g_autofree char *path = g_utf8_make_valid (one->path, -1);
        JsonObject *row = json_object_new ();
        json_object_set_string_member (row, "path", path);
        json_object_set_string_member (row, "state", ecfs_unstored_word (one->kind));
        json_object_set_int_member (row, "size", (int64_t) one->size);
        json_array_add_object_element (list, row);
    }
    json_object_set_int_member (facts, "files", sums.n_files);
    json_object_set_int_member (facts, "bytes", (int64_t) sums.bytes);
    json_object_set_int_member (facts, "changes", sums.n_changes);
    json_object_set_array_member (facts, "list", list);
    return facts;
}

char *ecfs_unstored_text (const GPtrArray *unstored)
{
    const Sums sums = sum_up (unstored);
    g_autoptr (GString) text = g_string_new (NULL);
    if (sums.n_files > 0)
        g_string_append_printf (text, "%u file%s with %" PRIu64 " bytes", sums.n_files, sums.n_files == 1 ? "" : "s",
                                sums.bytes);
    if (sums.n_changes > 0)
        g_string_append_printf (text, "%s%u %schange%s", text->len > 0 ? " and " : "", sums.n_changes,
                                sums.n_files > 0 ? "other " : "", sums.n_changes == 1 ? "" : "s");
    if (text->len == 0)
        return NULL;
    g_string_append (text, sums.n_files + sums.n_changes == 1 ? " is only here" : " are only here");
    return g_string_free (g_steal_pointer (&text), FALSE);
}
